/* count.c : corpus to counts. Every thread pulls batches and counts into dense arrays of its own, one for
 * each fold of the domain at hand (of each script in it), and adds them to the shared sparse counts
 * when the domain changes. So memory does not grow with the number of domains times threads, and sums,
 * being exact, do not depend on who counted what. */
#include "calibrate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "counts/input.h"
#include "corpus/script.h"

typedef struct job {
    const calibrate_options *options;
    const tokenizer *tok;
    char *const *names; /* by --corpus argument */
    corpus *corpus;
    counts *total;
    int n_folds;
    pthread_mutex_t lock; /* over total, status and error */
    specrt_status status;
    specrt_error error;
    progress bar; /* drawn by worker 0 */
} job;

/* What was counted of one script; of all text without --by-language. */
typedef struct group {
    uint64_t *dense[COUNTS_MAX_FOLDS]; /* [n_vocab] by fold; NULL: no document yet */
    counts_domain tally;               /* without name and rows */
} group;

typedef struct counter {
    job *job;
    tok_worker *worker;
    script_finder *scripts; /* NULL: without --by-language, all is in groups[0] */
    corpus_batch batch;
    int32_t domain; /* of the groups below; -1: none yet */
    group groups[N_SCRIPTS];
} counter;

static void fail(job *j, specrt_status status, const specrt_error *err) {
    pthread_mutex_lock(&j->lock);
    if (j->status == SPECRT_STATUS_OK) {
        j->status = status;
        j->error = *err;
    }
    pthread_mutex_unlock(&j->lock);
}

static bool has_failed(job *j) {
    pthread_mutex_lock(&j->lock);
    bool failed = j->status != SPECRT_STATUS_OK;
    pthread_mutex_unlock(&j->lock);
    return failed;
}

/* Move the dense counts into rows and clear them; false: no memory. */
static bool take_rows(group *g, int n_folds, int32_t n_vocab) {
    size_t n = 0;
    for (int fold = 0; fold < n_folds; fold++)
        for (int32_t id = 0; g->dense[fold] && id < n_vocab; id++) n += g->dense[fold][id] > 0;
    g->tally.rows = (counts_row *)malloc((n ? n : 1) * sizeof *g->tally.rows);
    if (!g->tally.rows) return false;
    for (int32_t id = 0; id < n_vocab; id++)
        for (int fold = 0; fold < n_folds; fold++)
            if (g->dense[fold] && g->dense[fold][id])
                g->tally.rows[g->tally.n_rows++] = (counts_row){id, fold, g->dense[fold][id]};
    for (int fold = 0; fold < n_folds; fold++)
        if (g->dense[fold]) memset(g->dense[fold], 0, (size_t)n_vocab * sizeof *g->dense[fold]);
    return true;
}

/* The name of what a group counted; owned, NULL: no memory. */
static char *group_name(const counter *w, int script) {
    const char *domain = w->job->names[w->domain];
    size_t n = strlen(domain) + 40;
    char *name = (char *)malloc(n);
    if (name && w->scripts)
        snprintf(name, n, "%s" COUNTS_LANGUAGE_MARK "%s", domain, sl_script_name(script));
    else if (name)
        snprintf(name, n, "%s", domain);
    return name;
}

static specrt_status flush_group(counter *w, int script, specrt_error *err) {
    job *j = w->job;
    group *g = &w->groups[script];
    if (!g->tally.n_docs) return SPECRT_STATUS_OK;
    g->tally.name = group_name(w, script);
    if (!g->tally.name || !take_rows(g, j->n_folds, j->total->vocab.n_vocab)) {
        free(g->tally.name);
        return sl_error_no_memory(err, NULL);
    }
    snprintf(g->tally.provenance, sizeof g->tally.provenance, "%s", j->options->provenance);
    pthread_mutex_lock(&j->lock);
    specrt_status status = sl_counts_add(j->total, &g->tally, err);
    pthread_mutex_unlock(&j->lock);
    free(g->tally.rows);
    free(g->tally.name);
    g->tally = (counts_domain){0};
    return status;
}

/* Add what was counted of the domain at hand to the total. */
static specrt_status flush(counter *w, specrt_error *err) {
    for (int i = 0; i < N_SCRIPTS; i++) TRY(flush_group(w, i, err));
    w->domain = -1;
    return SPECRT_STATUS_OK;
}

/* The group that a document counts in, ready to count its fold. */
static specrt_status group_of(counter *w, const corpus_doc *doc, int fold, group **out,
                              specrt_error *err) {
    group *g = &w->groups[w->scripts ? sl_script_of(w->scripts, doc->text, doc->n_bytes) : 0];
    if (!g->dense[fold])
        g->dense[fold] =
            (uint64_t *)calloc((size_t)w->job->total->vocab.n_vocab, sizeof *g->dense[fold]);
    *out = g;
    return g->dense[fold] ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
}

/* A file of ids holds BOS and terminators as the tokenizer wrote them: terminators end completions,
 * other specials are never drafted and not counted. */
static void count_ids(const counter *w, group *g, const corpus_doc *doc, int fold) {
    const uint8_t *types = w->job->total->vocab.types;
    for (size_t i = 0; i < doc->n_ids; i++) {
        int32_t id = doc->ids[i];
        if (types[id] == COUNTS_NORMAL)
            g->dense[fold][id]++, g->tally.n_tokens++;
        else if (types[id] == COUNTS_TERMINATOR)
            g->tally.n_completions++;
    }
}

/* By the hash of its record, whatever the order, the thread and the shard. */
static int fold_of(const job *j, const corpus_doc *doc) {
    return (int)((doc->unit_hash >> 32) * (uint64_t)j->n_folds >> 32);
}

static specrt_status count_doc(counter *w, const corpus_doc *doc, int fold, specrt_error *err) {
    group *g = NULL;
    if (doc->domain != w->domain) TRY(flush(w, err));
    w->domain = doc->domain;
    TRY(group_of(w, doc, fold, &g, err));
    g->tally.n_docs++;
    g->tally.n_bytes += doc->text ? doc->n_bytes : doc->n_ids * sizeof *doc->ids;
    g->tally.n_completions += doc->completion;
    if (!doc->text) return count_ids(w, g, doc, fold), SPECRT_STATUS_OK;
    sl_tok_worker_continue(w->worker, doc->continues);
    if (sl_tok_count(w->worker, doc->text, doc->n_bytes, g->dense[fold], &g->tally.n_tokens))
        return sl_error_no_memory(err, NULL);
    return SPECRT_STATUS_OK;
}

/* Fold by fold, so that one array at a time is in the cache. */
static specrt_status count_batch(counter *w, specrt_error *err) {
    const corpus_batch *b = &w->batch;
    for (int fold = 0; fold < w->job->n_folds; fold++)
        for (int64_t i = 0; i < b->n_docs; i++)
            if (fold_of(w->job, &b->docs[i]) == fold) TRY(count_doc(w, &b->docs[i], fold, err));
    return SPECRT_STATUS_OK;
}

static specrt_status count_batches(counter *w, bool draws, specrt_error *err) {
    job *j = w->job;
    for (;;) {
        bool end = false;
        TRY(sl_corpus_next(j->corpus, &w->batch, &end, err));
        TRY(count_batch(w, err));
        if (end && w->batch.n_docs == 0) return flush(w, err);
        if (has_failed(j)) return SPECRT_STATUS_OK;
        if (draws) {
            corpus_stats stats;
            sl_corpus_get_stats(j->corpus, &stats);
            sl_progress_update(&j->bar, stats.bytes_read);
        }
    }
}

static specrt_status counter_open(counter *w, job *j, specrt_error *err) {
    *w = (counter){.job = j, .domain = -1};
    if (j->options->by_language) TRY(sl_script_finder_new(&w->scripts, err));
    return j->tok ? sl_tok_worker_create(j->tok, &w->worker, err) : SPECRT_STATUS_OK;
}

static void counter_close(counter *w) {
    for (int i = 0; i < N_SCRIPTS; i++)
        for (int f = 0; f < COUNTS_MAX_FOLDS; f++) free(w->groups[i].dense[f]);
    sl_script_finder_free(w->scripts);
    sl_tok_worker_free(w->worker);
    sl_corpus_batch_free(&w->batch);
}

static void run_counter(void *arg, int worker) {
    job *j = (job *)arg;
    counter w;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_status status = counter_open(&w, j, &err);
    if (status == SPECRT_STATUS_OK) status = count_batches(&w, worker == 0, &err);
    if (status != SPECRT_STATUS_OK) fail(j, status, &err);
    counter_close(&w);
}

/* The digests of what was read; this also makes a domain of an argument that turned out empty. */
static specrt_status add_digests(const job *j, specrt_error *err) {
    const calibrate_options *o = j->options;
    for (int i = 0; i < o->corpus.n; i++) {
        counts_domain d = {.name = j->names[i], .digest = sl_corpus_digest(j->corpus, i)};
        snprintf(d.provenance, sizeof d.provenance, "%s", o->provenance);
        TRY(sl_counts_add(j->total, &d, err));
    }
    return SPECRT_STATUS_OK;
}

static void count_all(job *j, corpus_stats *stats) {
    const cli_common *common = &j->options->common;
    sl_corpus_get_stats(j->corpus, stats);
    pthread_mutex_init(&j->lock, NULL);
    sl_progress_begin(&j->bar, common->progress, "counting", "B", stats->bytes_total);
    sl_parallel_run((int)common->threads, run_counter, j);
    sl_progress_end(&j->bar);
    pthread_mutex_destroy(&j->lock);
    sl_corpus_get_stats(j->corpus, stats);
}

specrt_status count_corpus(const calibrate_options *o, const tokenizer *tok, char *const *names,
                           counts *c, corpus_stats *stats, specrt_error *err) {
    corpus_options reading = {.all_messages = strcmp(o->messages, "all") == 0,
                              .field = o->field,
                              .exclude = o->exclude,
                              .strict = o->strict,
                              .reading = (corpus_reading)sl_counts_input_reading(o->format),
                              .token_ids = tok == NULL,
                              .id_bytes = (int)o->id_bytes,
                              .n_vocab = c->vocab.n_vocab,
                              .shard = o->part.index,
                              .n_shards = o->part.n,
                              .seed = (uint64_t)o->common.seed};
    job j = {.options = o, .tok = tok, .names = names, .total = c, .n_folds = sl_counts_n_folds(c)};
    TRY(sl_corpus_open(o->corpus.items, o->corpus.n, &reading, &j.corpus, err));
    count_all(&j, stats);
    if (j.status == SPECRT_STATUS_OK) j.status = add_digests(&j, &j.error);
    sl_corpus_close(j.corpus);
    if (j.status != SPECRT_STATUS_OK) *err = j.error;
    return j.status;
}
