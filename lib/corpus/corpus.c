/* corpus.c : one corpus shared by threads. Under the lock the next batch is chosen (and framed,
 * where a file can only be read in order); outside it is framed where it was not, and parsed. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/error.h"

/* A batch in work. */
typedef struct batch_job {
    corpus_open_file *file; /* NULL: there are no more */
    uint64_t block;
    corpus_range range;
    uint64_t n_records, n_bad;
} batch_job;

/* Where something is: file, then content offset (of a record) or batch (of a failure). */
typedef struct place {
    size_t file;
    uint64_t offset;
} place;

struct corpus {
    corpus_options options;
    corpus_list list;
    const uint8_t *memory; /* of the only file, or NULL */
    size_t n_memory;
    int n_domains;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t idle;  /* n_parsing fell to 0 */
    int n_parsing;        /* batches in work */
    size_t next_file;
    corpus_open_file *current;
    uint64_t bytes_done; /* raw, of files before the current one */
    uint64_t *digests;   /* [n_domains] */
    corpus_stats stats;
    place bad_places[CORPUS_EXAMPLES];
    size_t replaced_file; /* of stats.replaced_in */
    specrt_error failure;
    place failed_at;
};

static bool is_before(place a, place b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

/* ---- bad records ---- */

/* Slot an example would take, CORPUS_EXAMPLES if it comes too late in the files. */
static int example_slot(const corpus *c, place at) {
    int slot = 0;
    while (slot < CORPUS_EXAMPLES && c->stats.bad_examples[slot][0] &&
           !is_before(at, c->bad_places[slot]))
        slot++;
    return slot;
}

static void keep_example(corpus *c, place at, const char *text) {
    int slot = example_slot(c, at);
    if (slot == CORPUS_EXAMPLES) return;
    for (int i = CORPUS_EXAMPLES - 1; i > slot; i--) {
        memcpy(c->stats.bad_examples[i], c->stats.bad_examples[i - 1], 256);
        c->bad_places[i] = c->bad_places[i - 1];
    }
    c->bad_places[slot] = at;
    memcpy(c->stats.bad_examples[slot], text, 256);
}

static specrt_status bad_record(corpus *c, const struct corpus_arena *a, batch_job *job,
                                uint64_t offset, const char *why, specrt_error *err) {
    place at = {job->file->index, offset};
    job->n_bad++;
    pthread_mutex_lock(&c->lock);
    bool wanted = c->options.strict || example_slot(c, at) < CORPUS_EXAMPLES;
    pthread_mutex_unlock(&c->lock);
    if (!wanted) return SPECRT_STATUS_OK;
    unsigned long long line = sl_corpus_file_line(job->file, a, offset);
    const char *name = job->file->stream.name;
    if (c->options.strict)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s:%llu: %s", name, line, why);
    char text[256];
    snprintf(text, sizeof text, "%.120s:%llu: %.100s", name, line, why);
    pthread_mutex_lock(&c->lock);
    keep_example(c, at, text);
    pthread_mutex_unlock(&c->lock);
    return SPECRT_STATUS_OK;
}

/* ---- parsing a batch, in the caller's thread ---- */

static specrt_status parse_text(const corpus *c, struct corpus_arena *a, batch_job *job,
                                corpus_doc *base) {
    const corpus_range *range = &job->range;
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; i < range->n_cuts && status == SPECRT_STATUS_OK; i++) {
        uint64_t end = i + 1 < range->n_cuts ? range->cuts[i + 1] : range->end;
        base->text = a->window.bytes + (range->cuts[i] - a->window.base);
        base->n_bytes = (size_t)(end - range->cuts[i]);
        base->continues = range->cuts[i] > job->file->format.first;
        base->unit_hash = specrt_hash64(base->text, base->n_bytes, c->options.seed);
        status = sl_corpus_arena_add_doc(a, base, true);
        job->n_records++;
    }
    return status;
}

static specrt_status parse_records(corpus *c, struct corpus_arena *a, batch_job *job,
                                   corpus_doc *base, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    uint64_t start = job->range.start;
    for (size_t i = 0; i < a->values.n && status == SPECRT_STATUS_OK; i++) {
        const corpus_value_span *span = &a->values.spans[i];
        char why[256], *text = a->window.bytes + (start - a->window.base) + span->at;
        job->n_records++;
        if (span->fault) {
            status = bad_record(c, a, job, start + span->fault_at, span->fault, err);
            continue;
        }
        base->unit_hash = specrt_hash64(text, span->n, c->options.seed);
        status = sl_corpus_record_parse(a, text, span->n, &c->options, base, why);
        if (status == SPECRT_STATUS_BAD_INPUT)
            status = bad_record(c, a, job, start + span->at, why, err);
    }
    return status;
}

static specrt_status parse_batch(corpus *c, struct corpus_arena *a, batch_job *job,
                                 specrt_error *err) {
    corpus_open_file *file = job->file;
    specrt_status status = SPECRT_STATUS_OK;
    if (file->parallel) status = sl_corpus_file_frame(file, job->block, a, &job->range, err);
    if (status != SPECRT_STATUS_OK) return status;
    corpus_doc base = {.domain = c->list.files[file->index].domain};
    switch (file->format.kind) {
    case KIND_TEXT: status = parse_text(c, a, job, &base); break;
    case KIND_LINES:
    case KIND_VALUES: status = parse_records(c, a, job, &base, err); break;
    case KIND_IDS:
        status = sl_corpus_ids_add(a, &file->format, file->stream.name, &job->range, &c->options,
                                   &base, err);
        job->n_records = a->n_docs;
    }
    return status == SPECRT_STATUS_NO_MEMORY ? sl_error_no_memory(err, "corpus") : status;
}

/* ---- choosing a batch, under the lock ---- */

/* With few files the batches of each are dealt to the shards. With many, a file that has to be read
 * from its beginning goes to one shard whole, or every shard would unpack everything. */
static bool is_ours(const corpus *c, const corpus_open_file *file, uint64_t batch) {
    uint64_t n = (uint64_t)c->options.n_shards, shard = (uint64_t)c->options.shard;
    if (n <= 1) return true;
    bool whole = !file->parallel && c->list.n >= 8 * n;
    return (file->index + (whole ? 0 : batch)) % n == shard;
}

static void skip_file(corpus *c, const char *why) {
    if (c->stats.n_skipped_files < CORPUS_EXAMPLES)
        snprintf(c->stats.skipped_examples[c->stats.n_skipped_files], 256, "%.255s", why);
    c->stats.n_skipped_files++;
}

static void note_doubt(corpus *c, const corpus_open_file *file) {
    if (!file->format.doubt[0]) return;
    if (c->stats.n_doubtful_files < CORPUS_EXAMPLES)
        snprintf(c->stats.doubtful_examples[c->stats.n_doubtful_files], 256, "%.90s: %s",
                 file->stream.name, file->format.doubt);
    c->stats.n_doubtful_files++;
}

static void end_file(corpus *c) {
    const corpus_open_file *file = c->current;
    c->bytes_done += file->stream.sized ? file->stream.n_raw : sl_corpus_file_position(file);
    sl_corpus_file_release(c->current);
    c->current = NULL;
}

static specrt_status start_file(corpus *c, specrt_error *err) {
    const corpus_file *listed = &c->list.files[c->next_file];
    char refusal[512];
    if (listed->dangling) {
        snprintf(refusal, sizeof refusal, "%s: a link to nothing", listed->path);
        skip_file(c, refusal);
        c->next_file++;
        return SPECRT_STATUS_OK;
    }
    specrt_status status = sl_corpus_file_open(listed->path, c->memory, c->n_memory, &c->options,
                                               &c->current, refusal, err);
    if (status != SPECRT_STATUS_OK) return status;
    c->current->index = c->next_file++;
    if (!refusal[0]) {
        c->stats.n_files++;
        note_doubt(c, c->current);
        return SPECRT_STATUS_OK;
    }
    if (listed->named) return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s", refusal);
    skip_file(c, refusal);
    end_file(c);
    return SPECRT_STATUS_OK;
}

static void give_batch(corpus *c, batch_job *job) {
    job->file = c->current;
    job->file->refs++;
    c->n_parsing++;
}

/* take_block() : the next of our blocks of the current file, if one is left. */
static void take_block(corpus *c, batch_job *job) {
    corpus_open_file *file = c->current;
    while (file->next_block < file->n_blocks && !is_ours(c, file, file->next_block))
        file->next_block++;
    if (file->next_block == file->n_blocks) {
        end_file(c);
        return;
    }
    job->block = file->next_block++;
    give_batch(c, job);
}

static specrt_status take_in_order(corpus *c, struct corpus_arena *a, batch_job *job,
                                   specrt_error *err) {
    corpus_open_file *file = c->current;
    job->block = file->next_block++;
    specrt_status status = sl_corpus_file_frame(file, job->block, a, &job->range, err);
    if (status != SPECRT_STATUS_OK) return status;
    if (sl_corpus_file_ended(file, &job->range))
        end_file(c);
    else if (job->range.start < job->range.end && is_ours(c, file, job->block))
        give_batch(c, job);
    return status;
}

static specrt_status take_batch(corpus *c, struct corpus_arena *a, batch_job *job,
                                specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    while (status == SPECRT_STATUS_OK && !job->file) {
        if (!c->current) {
            if (c->next_file == c->list.n) break;
            status = start_file(c, err);
        } else if (c->current->parallel)
            take_block(c, job);
        else
            status = take_in_order(c, a, job, err);
        c->stats.bytes_read =
            c->bytes_done + (c->current ? sl_corpus_file_position(c->current) : 0);
    }
    return status;
}

static void note_failure(corpus *c, place at, const specrt_error *err) {
    if (c->failure.status != SPECRT_STATUS_OK && !is_before(at, c->failed_at)) return;
    c->failure = *err;
    c->failed_at = at;
}

static void note_replaced(corpus *c, const corpus_open_file *file, uint64_t n) {
    if (n && (!c->stats.n_replaced || file->index < c->replaced_file)) {
        c->replaced_file = file->index;
        snprintf(c->stats.replaced_in, sizeof c->stats.replaced_in, "%.255s", file->stream.name);
    }
    c->stats.n_replaced += n;
}

static void note_batch(corpus *c, const struct corpus_arena *a, const batch_job *job,
                       uint64_t digest) {
    c->stats.n_records += job->n_records;
    c->stats.n_bad_records += job->n_bad;
    c->stats.n_docs += a->n_docs;
    c->stats.n_text_bytes += a->n_text_bytes;
    note_replaced(c, job->file, a->n_replaced);
    c->stats.n_forced_cuts += (uint64_t)job->range.n_forced;
    c->digests[c->list.files[job->file->index].domain] += digest;
}

static uint64_t digest_records(const struct corpus_arena *a, const corpus_range *range) {
    const char *text = a->window.bytes + (range->start - a->window.base);
    uint64_t sum = 0;
    for (size_t i = 0; i < a->values.n; i++) {
        const corpus_value_span *span = &a->values.spans[i];
        if (!span->fault) sum += specrt_hash64(text + span->at, span->n, 0);
    }
    return sum;
}

static uint64_t digest_batch(const corpus *c, const struct corpus_arena *a, const batch_job *job) {
    const corpus_range *range = &job->range;
    corpus_kind kind = job->file->format.kind;
    uint64_t ordinal = c->list.files[job->file->index].ordinal;
    size_t n = (size_t)(range->end - range->start);
    if (n == 0) return 0;
    if (kind == KIND_LINES || kind == KIND_VALUES) return digest_records(a, range);
    return specrt_hash64(a->window.bytes + (range->start - a->window.base), n,
                         (ordinal << 44) + range->start);
}

/* ---- the public face ---- */

/* next_batch() : into the arena; *end when there is none. */
static specrt_status next_batch(corpus *c, struct corpus_arena *a, bool *end, specrt_error *err) {
    batch_job job = {0};
    sl_corpus_arena_reset(a);
    pthread_mutex_lock(&c->lock);
    specrt_status status = c->failure.status;
    if (status == SPECRT_STATUS_OK) {
        status = take_batch(c, a, &job, err);
        place at = {c->next_file, 0};
        if (c->current) at = (place){c->current->index, c->current->next_block};
        if (status != SPECRT_STATUS_OK) note_failure(c, at, err);
    }
    pthread_mutex_unlock(&c->lock);
    *end = status == SPECRT_STATUS_OK && !job.file;
    if (status != SPECRT_STATUS_OK || *end) return status;

    status = parse_batch(c, a, &job, err);
    uint64_t digest = status == SPECRT_STATUS_OK ? digest_batch(c, a, &job) : 0;
    pthread_mutex_lock(&c->lock);
    if (status == SPECRT_STATUS_OK)
        note_batch(c, a, &job, digest);
    else
        note_failure(c, (place){job.file->index, job.block}, err);
    sl_corpus_file_release(job.file);
    if (--c->n_parsing == 0) pthread_cond_broadcast(&c->idle);
    pthread_mutex_unlock(&c->lock);
    return status;
}

specrt_status sl_corpus_next(corpus *c, corpus_batch *batch, bool *end, specrt_error *err) {
    *end = false;
    batch->docs = NULL;
    batch->n_docs = 0;
    if (!batch->arena) batch->arena = (struct corpus_arena *)calloc(1, sizeof *batch->arena);
    if (!batch->arena) return sl_error_no_memory(err, "corpus");
    specrt_error failure = {0};
    specrt_status status;
    do status = next_batch(c, batch->arena, end, &failure);
    while (status == SPECRT_STATUS_OK && !*end && batch->arena->n_docs == 0);
    if (status == SPECRT_STATUS_OK) {
        batch->docs = batch->arena->docs;
        batch->n_docs = (int64_t)(*end ? 0 : batch->arena->n_docs);
        return status;
    }
    /* Batches are handed out in order, so a failure before this one shows once those in work are
     * done. */
    pthread_mutex_lock(&c->lock);
    while (c->n_parsing > 0) pthread_cond_wait(&c->idle, &c->lock);
    if (err) *err = c->failure;
    status = c->failure.status;
    pthread_mutex_unlock(&c->lock);
    return status;
}

void sl_corpus_batch_free(corpus_batch *batch) {
    sl_corpus_arena_free(batch->arena);
    memset(batch, 0, sizeof *batch);
}

static corpus *corpus_create(int n_domains, const corpus_options *options) {
    corpus *c = (corpus *)calloc(1, sizeof *c);
    if (!c) return NULL;
    c->options = *options;
    c->n_domains = n_domains;
    c->digests = (uint64_t *)calloc((size_t)n_domains + 1, sizeof *c->digests);
    if (c->digests && pthread_mutex_init(&c->lock, NULL) == 0) {
        pthread_cond_init(&c->idle, NULL); /* cannot fail without attributes */
        return c;
    }
    free(c->digests);
    free(c);
    return NULL;
}

/* check_named() : the content of a file that stands on its own, before any work. A pipe has to
 * wait. */
static specrt_status check_named(const corpus *c, const corpus_file *listed, specrt_error *err) {
    corpus_open_file *file;
    char refusal[512];
    specrt_status status =
        sl_corpus_file_open(listed->path, c->memory, c->n_memory, &c->options, &file, refusal, err);
    if (status != SPECRT_STATUS_OK) return status;
    sl_corpus_file_release(file);
    if (!refusal[0]) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s", refusal);
}

static specrt_status list_paths(corpus *c, const char *const *paths, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    c->list.exclude = c->options.exclude;
    for (int i = 0; i < c->n_domains && status == SPECRT_STATUS_OK; i++)
        status = sl_corpus_list_path(&c->list, paths[i], i, err);
    for (size_t i = 0; i < c->list.n && status == SPECRT_STATUS_OK; i++) {
        const corpus_file *listed = &c->list.files[i];
        c->stats.bytes_total += listed->n_bytes;
        if (listed->named && listed->n_bytes > 0) status = check_named(c, listed, err);
    }
    if (c->list.has_pipe) c->stats.bytes_total = 0;
    return status;
}

specrt_status sl_corpus_open(const char *const *paths, int n_paths, const corpus_options *options,
                             corpus **out, specrt_error *err) {
    *out = NULL;
    corpus *c = corpus_create(n_paths, options);
    if (!c) return sl_error_no_memory(err, "corpus");
    specrt_status status = list_paths(c, paths, err);
    if (status == SPECRT_STATUS_OK)
        *out = c;
    else
        sl_corpus_close(c);
    return status;
}

specrt_status sl_corpus_open_memory(const char *name, const void *bytes, size_t n,
                                    const corpus_options *options, corpus **out,
                                    specrt_error *err) {
    *out = NULL;
    corpus *c = corpus_create(1, options);
    if (!c) return sl_error_no_memory(err, "corpus");
    c->memory = n > 0 ? (const uint8_t *)bytes : (const uint8_t *)"";
    c->n_memory = n;
    c->stats.bytes_total = n;
    specrt_status status = sl_corpus_list_add(&c->list, name, 0, true, n, err);
    if (status == SPECRT_STATUS_OK) status = check_named(c, &c->list.files[0], err);
    if (status == SPECRT_STATUS_OK)
        *out = c;
    else
        sl_corpus_close(c);
    return status;
}

void sl_corpus_close(corpus *c) {
    if (!c) return;
    sl_corpus_file_release(c->current);
    sl_corpus_list_free(&c->list);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->idle);
    free(c->digests);
    free(c);
}

void sl_corpus_get_stats(corpus *c, corpus_stats *out) {
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}

uint64_t sl_corpus_digest(corpus *c, int domain) {
    pthread_mutex_lock(&c->lock);
    uint64_t digest = domain >= 0 && domain < c->n_domains ? c->digests[domain] : 0;
    pthread_mutex_unlock(&c->lock);
    return digest;
}

static void warn_examples(const char (*examples)[256]) {
    for (int i = 0; i < CORPUS_EXAMPLES && examples[i][0]; i++) sl_cli_warn("  %s", examples[i]);
}

void sl_corpus_warn(const corpus_stats *stats) {
    for (uint64_t i = 0; i < stats->n_doubtful_files && i < CORPUS_EXAMPLES; i++)
        sl_cli_warn("%s", stats->doubtful_examples[i]);
    if (stats->n_doubtful_files > CORPUS_EXAMPLES)
        sl_cli_warn("%" PRIu64 " more such files", stats->n_doubtful_files - CORPUS_EXAMPLES);
    if (stats->n_bad_records) {
        sl_cli_warn("%" PRIu64 " bad records were skipped, such as:", stats->n_bad_records);
        warn_examples(stats->bad_examples);
    }
    if (stats->n_skipped_files) {
        sl_cli_warn("%" PRIu64 " files in folders were skipped, such as:", stats->n_skipped_files);
        warn_examples(stats->skipped_examples);
    }
    if (stats->n_replaced)
        sl_cli_warn("%" PRIu64 " ill-formed byte sequences were counted as U+FFFD, first in %s",
                    stats->n_replaced, stats->replaced_in);
    if (stats->n_forced_cuts)
        sl_cli_warn("%" PRIu64
                    " texts had no place to cut within 64 MiB and were cut anyway, perhaps "
                    "inside a token",
                    stats->n_forced_cuts);
}
