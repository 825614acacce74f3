/* count.c : corpus to pairs. Every thread pulls batches and tokenises into a block of its own. */
#include "build.h"

#include <pthread.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "counts/input.h"

typedef struct job {
    const cograph_options *options;
    const tokenizer *tok;
    const uint8_t *skip;
    corpus *corpus;
    pairs *store;
    pairs_header *header;
    pthread_mutex_t lock; /* over the header, status and error */
    specrt_status status;
    specrt_error error;
    progress bar; /* drawn by worker 0 */
} job;

typedef struct worker {
    job *job;
    tok_worker *tok;
    pairs_counter *counter;
    corpus_batch batch;
    uint64_t n_tokens, n_docs, n_bytes;
} worker;

static bool has_failed(job *j) {
    pthread_mutex_lock(&j->lock);
    bool failed = j->status != SPECRT_STATUS_OK;
    pthread_mutex_unlock(&j->lock);
    return failed;
}

static bool reserve(id_list *list, size_t more) {
    return sl_reserve(&list->ids, &list->capacity, list->n + more, sizeof *list->ids);
}

/* Ids as they are, but for those that no pair spans. */
static specrt_status add_ids(worker *w, const corpus_doc *doc, id_list *tokens, specrt_error *err) {
    const uint8_t *skip = w->job->skip;
    int32_t boundary = w->job->header->n_vocab;
    if (!reserve(tokens, doc->n_ids)) return sl_error_no_memory(err, NULL);
    int32_t *out = tokens->ids + tokens->n;
    for (size_t i = 0; i < doc->n_ids; i++) {
        out[i] = skip[doc->ids[i]] ? boundary : doc->ids[i];
        w->n_tokens += !skip[doc->ids[i]];
    }
    tokens->n += doc->n_ids;
    return SPECRT_STATUS_OK;
}

static specrt_status add_text(worker *w, const corpus_doc *doc, id_list *tokens,
                              specrt_error *err) {
    size_t before = tokens->n;
    sl_tok_worker_continue(w->tok, doc->continues);
    if (sl_tok_encode(w->tok, doc->text, doc->n_bytes, tokens))
        return sl_error_no_memory(err, NULL);
    w->n_tokens += tokens->n - before;
    return SPECRT_STATUS_OK;
}

/* A unit goes on where the one before in its batch ended; where batches meet, a pair is lost, so that it
 * does not matter who takes which. */
static specrt_status add_doc(worker *w, const corpus_doc *doc, bool should_continue,
                             specrt_error *err) {
    id_list *tokens = sl_pairs_counter_tokens(w->counter);
    if (!should_continue) {
        if (!reserve(tokens, 1)) return sl_error_no_memory(err, NULL);
        tokens->ids[tokens->n++] = w->job->header->n_vocab;
    }
    w->n_docs++;
    w->n_bytes += doc->text ? doc->n_bytes : doc->n_ids * sizeof *doc->ids;
    return doc->text ? add_text(w, doc, tokens, err) : add_ids(w, doc, tokens, err);
}

static specrt_status add_batches(worker *w, bool draws, specrt_error *err) {
    job *j = w->job;
    for (;;) {
        bool end = false;
        TRY(sl_corpus_next(j->corpus, &w->batch, &end, err));
        for (int64_t i = 0; i < w->batch.n_docs; i++)
            TRY(add_doc(w, &w->batch.docs[i], i > 0 && w->batch.docs[i].continues, err));
        if (end && w->batch.n_docs == 0) return sl_pairs_counter_flush(w->counter, err);
        TRY(sl_pairs_counter_check(w->counter, err));
        if (has_failed(j)) return SPECRT_STATUS_OK;
        if (draws) {
            corpus_stats stats;
            sl_corpus_get_stats(j->corpus, &stats);
            sl_progress_update(&j->bar, stats.bytes_read);
        }
    }
}

static void run_worker(void *arg, int index) {
    job *j = (job *)arg;
    worker w = {.job = j};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_status status = sl_pairs_counter_create(j->store, &w.counter, &err);
    if (!status && j->tok) status = sl_tok_worker_create(j->tok, &w.tok, &err);
    if (!status) status = add_batches(&w, index == 0, &err);
    pthread_mutex_lock(&j->lock);
    j->header->n_tokens += w.n_tokens;
    j->header->n_docs += w.n_docs;
    j->header->n_bytes += w.n_bytes;
    if (status && !j->status) j->status = status, j->error = err;
    pthread_mutex_unlock(&j->lock);
    sl_pairs_counter_free(w.counter);
    sl_tok_worker_free(w.tok);
    sl_corpus_batch_free(&w.batch);
}

specrt_status count_pairs(const cograph_options *o, const tokenizer *tok, const uint8_t *skip,
                          pairs *p, pairs_header *header, corpus_stats *stats, specrt_error *err) {
    corpus_options reading = {.all_messages = strcmp(o->messages, "all") == 0,
                              .field = o->field,
                              .exclude = o->exclude,
                              .strict = o->strict,
                              .reading = (corpus_reading)sl_counts_input_reading(o->format),
                              .token_ids = tok == NULL,
                              .id_bytes = (int)o->id_bytes,
                              .n_vocab = header->n_vocab,
                              .shard = o->part.index,
                              .n_shards = o->part.n};
    job j = {.options = o, .tok = tok, .skip = skip, .store = p, .header = header};
    TRY(sl_corpus_open(o->corpus.items, o->corpus.n, &reading, &j.corpus, err));
    sl_corpus_get_stats(j.corpus, stats);
    pthread_mutex_init(&j.lock, NULL);
    sl_progress_begin(&j.bar, o->common.progress, "counting pairs", "B", stats->bytes_total);
    sl_parallel_run((int)o->common.threads, run_worker, &j);
    sl_progress_end(&j.bar);
    pthread_mutex_destroy(&j.lock);
    sl_corpus_get_stats(j.corpus, stats);
    for (int i = 0; i < o->corpus.n; i++) header->digest += sl_corpus_digest(j.corpus, i);
    sl_corpus_close(j.corpus);
    *err = j.error;
    return j.status;
}
