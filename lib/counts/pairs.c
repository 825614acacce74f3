/* pairs.c : see pairs.h. Merging goes range of sources by range, each range on one thread: cursors over
 * the runs deliver the rows of a source, which are added up and taken out in order. */
#include "counts/pairs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { MAX_SPILLED = 32, WINDOW_BYTES = 1 << 16 };

specrt_status sl_pairs_no_memory(specrt_error *err) {
    return sl_error_no_memory_for(err, "pairs; give less --memory");
}

/* ---- one row ---- */

bool sl_pairs_sum_init(pairs_sum *s, int32_t n_vocab) {
    size_t n = (size_t)n_vocab + 1, n_words = (n + 63) / 64;
    s->n_summary = (n_words + 63) / 64;
    return (s->counts = (uint64_t *)calloc(n, sizeof *s->counts)) &&
           (s->marks = (uint64_t *)calloc(s->n_summary * 64, sizeof *s->marks)) &&
           (s->summary = (uint64_t *)calloc(s->n_summary, sizeof *s->summary)) &&
           (s->ids = (int32_t *)malloc(n * sizeof *s->ids)) &&
           (s->taken = (uint64_t *)malloc(n * sizeof *s->taken));
}

void sl_pairs_sum_free(pairs_sum *s) {
    free(s->counts);
    free(s->marks);
    free(s->summary);
    free(s->ids);
    free(s->taken);
}

pairs_row sl_pairs_sum_take(pairs_sum *s, int32_t source, int32_t n_vocab) {
    pairs_row row = {.source = source, .ids = s->ids, .counts = s->taken};
    for (size_t w = 0; w < s->n_summary; w++) {
        for (uint64_t words = s->summary[w]; words; words &= words - 1) {
            size_t word = w * 64 + (size_t)__builtin_ctzll(words);
            for (uint64_t bits = s->marks[word]; bits; bits &= bits - 1) {
                int32_t id = (int32_t)(word * 64) + __builtin_ctzll(bits);
                s->ids[row.n] = id;
                s->taken[row.n++] = s->counts[id];
                s->counts[id] = 0;
            }
            s->marks[word] = 0;
        }
        s->summary[w] = 0;
    }
    if (row.n && s->ids[row.n - 1] == n_vocab) row.n--;
    return row;
}

bool sl_pairs_bytes_more(pairs_bytes *out, size_t n, uint8_t **at) {
    if (!sl_reserve(&out->bytes, &out->capacity, out->n + n, 1)) return false;
    *at = out->bytes + out->n;
    return true;
}

specrt_status sl_pairs_encode(const pairs_row *row, pairs_bytes *out, specrt_error *err) {
    uint8_t *start, *p;
    int32_t before = -1;
    if (!sl_pairs_bytes_more(out, 2 * PAIRS_MAX_VARINT * ((size_t)row->n + 1), &start))
        return sl_pairs_no_memory(err);
    p = pairs_put_varint(start, (uint64_t)row->source);
    p = pairs_put_varint(p, (uint64_t)row->n);
    for (int32_t i = 0; i < row->n; i++) {
        p = pairs_put_varint(p, (uint64_t)(row->ids[i] - before));
        p = pairs_put_varint(p, row->counts[i]);
        before = row->ids[i];
    }
    out->n += (size_t)(p - start);
    return SPECRT_STATUS_OK;
}

/* ---- the store ---- */

specrt_status sl_pairs_create(int32_t n_vocab, uint64_t memory, int threads, const char *folder,
                              pairs **out, specrt_error *err) {
    pairs *p = (pairs *)calloc(1, sizeof *p);
    *out = p;
    if (!p) return sl_pairs_no_memory(err);
    if (memory < PAIRS_MIN_MEMORY) memory = PAIRS_MIN_MEMORY;
    sl_pairs_set_vocab(p, n_vocab);
    p->run_memory = memory / 3;
    /* A token takes its id and its place among the successors; its pair, at worst, about as much. */
    p->block_tokens = memory / 2 / 12 / (uint64_t)threads;
    if (p->block_tokens > INT32_MAX / 2) p->block_tokens = INT32_MAX / 2;
    p->folder = folder;
    p->fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    return SPECRT_STATUS_OK;
}

void sl_pairs_set_vocab(pairs *p, int32_t n_vocab) {
    p->n_vocab = n_vocab;
    p->n_ranges = ((int64_t)n_vocab + PAIRS_RANGE - 1) / PAIRS_RANGE;
}

void sl_pairs_limit(pairs *p, uint64_t run_memory) {
    p->run_memory = run_memory;
}

void sl_pairs_run_free(pairs_run *run) {
    free(run->bytes);
    free(run->starts);
}

void sl_pairs_free(pairs *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_runs; i++) sl_pairs_run_free(&p->runs[i]);
    free(p->runs);
    if (p->fd >= 0) close(p->fd);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint64_t *sl_pairs_run_starts(const pairs *p) {
    return (uint64_t *)calloc((size_t)p->n_ranges + 1, sizeof(uint64_t));
}

/* ---- cursors ---- */

/* Over the rows of one range in one run. A run in the file is read through a window. */
typedef struct cursor {
    const uint8_t *at, *end; /* what is at hand */
    uint8_t *window;         /* owned; NULL: the run is in memory */
    int fd;
    uint64_t next, stop; /* of the file, not read yet */
    int64_t source;      /* of the row at hand; -1: none left */
} cursor;

/* At least `need` bytes at hand, or all there are. */
static specrt_status cursor_fill(cursor *c, size_t need, const char *folder, specrt_error *err) {
    size_t left = (size_t)(c->end - c->at);
    if (left >= need || c->next == c->stop) return SPECRT_STATUS_OK;
    memmove(c->window, c->at, left);
    while (left < WINDOW_BYTES && c->next < c->stop) {
        uint64_t rest = c->stop - c->next;
        size_t want = WINDOW_BYTES - left < rest ? WINDOW_BYTES - left : (size_t)rest;
        ssize_t n = pread(c->fd, c->window + left, want, (off_t)c->next);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot read back pairs: %s", folder,
                                    n < 0 ? strerror(errno) : "the file ends early");
        left += (size_t)n;
        c->next += (uint64_t)n;
    }
    c->at = c->window;
    c->end = c->window + left;
    return SPECRT_STATUS_OK;
}

static specrt_status cursor_next(cursor *c, const char *folder, specrt_error *err) {
    uint64_t source;
    TRY(cursor_fill(c, 2 * PAIRS_MAX_VARINT, folder, err));
    c->source = -1;
    if (c->at == c->end) return SPECRT_STATUS_OK;
    c->at = pairs_get_varint(c->at, &source);
    c->source = (int64_t)source;
    return SPECRT_STATUS_OK;
}

static specrt_status cursor_open(cursor *c, const pairs *p, const pairs_run *run, int fd,
                                 int64_t range, specrt_error *err) {
    uint64_t begin = run->starts[range], end = run->starts[range + 1];
    *c = (cursor){.fd = fd};
    if (run->bytes || begin == end) {
        c->at = begin < end ? run->bytes + begin : NULL;
        c->end = begin < end ? run->bytes + end : NULL;
    } else {
        c->window = (uint8_t *)malloc(WINDOW_BYTES);
        if (!c->window) return sl_pairs_no_memory(err);
        c->at = c->end = c->window;
        c->next = begin;
        c->stop = end;
    }
    return cursor_next(c, p->folder, err);
}

/* Adds the row at hand and goes on to the next. */
static specrt_status cursor_add(cursor *c, pairs_sum *sum, const char *folder, specrt_error *err) {
    uint64_t n, step, count;
    int32_t id = -1;
    c->at = pairs_get_varint(c->at, &n);
    for (uint64_t i = 0; i < n; i++) {
        TRY(cursor_fill(c, 2 * PAIRS_MAX_VARINT, folder, err));
        c->at = pairs_get_varint(pairs_get_varint(c->at, &step), &count);
        id += (int32_t)step;
        pairs_sum_add(sum, id, count);
    }
    return cursor_next(c, folder, err);
}

/* ---- merging ---- */

typedef struct merge {
    pairs *p;
    const pairs_run *runs;
    size_t n_runs;
    int fd; /* of runs that are in a file */
    pairs_take *take;
    void *arg;
    pairs_sum *sums;      /* [threads] */
    cursor *cursors;      /* [threads, n_runs] */
    pairs_bytes *outputs; /* [n ranges at once] */
    int64_t first;        /* range of outputs[0] */
    pthread_mutex_t lock; /* over what follows */
    specrt_status status;
    specrt_error error;
} merge;

static specrt_status merge_rows(merge *m, int64_t range, int worker, cursor *cursors,
                                specrt_error *err) {
    pairs_sum *sum = &m->sums[worker];
    for (;;) {
        int64_t source = INT64_MAX;
        for (size_t i = 0; i < m->n_runs; i++)
            if (cursors[i].source >= 0 && cursors[i].source < source) source = cursors[i].source;
        if (source == INT64_MAX) return SPECRT_STATUS_OK;
        for (size_t i = 0; i < m->n_runs; i++)
            if (cursors[i].source == source) TRY(cursor_add(&cursors[i], sum, m->p->folder, err));
        pairs_row row = sl_pairs_sum_take(sum, (int32_t)source, m->p->n_vocab);
        TRY(m->take(m->arg, &row, &m->outputs[range - m->first], err));
    }
}

static void merge_range(void *opaque, int64_t index, int worker) {
    merge *m = (merge *)opaque;
    int64_t range = m->first + index;
    cursor *cursors = m->cursors + (size_t)worker * m->n_runs;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_status status = SPECRT_STATUS_OK;
    size_t n_open = 0;
    while (n_open < m->n_runs && status == SPECRT_STATUS_OK) {
        status = cursor_open(&cursors[n_open], m->p, &m->runs[n_open], m->fd, range, &err);
        n_open++;
    }
    if (status == SPECRT_STATUS_OK) status = merge_rows(m, range, worker, cursors, &err);
    for (size_t i = 0; i < n_open; i++) free(cursors[i].window);
    if (status == SPECRT_STATUS_OK) return;
    pthread_mutex_lock(&m->lock);
    m->status = status;
    m->error = err;
    pthread_mutex_unlock(&m->lock);
}

static specrt_status merge_all(merge *m, int threads, pairs_put *put, specrt_error *err) {
    int64_t at_once = 4 * (int64_t)threads;
    m->outputs = (pairs_bytes *)calloc((size_t)at_once, sizeof *m->outputs);
    if (!m->outputs) return sl_pairs_no_memory(err);
    specrt_status status = SPECRT_STATUS_OK;
    for (m->first = 0; m->first < m->p->n_ranges && !status; m->first += at_once) {
        int64_t left = m->p->n_ranges - m->first, n = left < at_once ? left : at_once;
        sl_parallel_for(threads, n, merge_range, m);
        if (m->status) *err = m->error, status = m->status;
        for (int64_t i = 0; i < n; i++) {
            if (!status && m->outputs[i].n)
                status = put(m->arg, m->outputs[i].bytes, m->outputs[i].n, err);
            m->outputs[i].n = 0;
        }
    }
    for (int64_t i = 0; i < at_once; i++) free(m->outputs[i].bytes);
    free(m->outputs);
    return status;
}

/* Counters and cursors of each thread. */
static bool merge_reserve(merge *m, int threads) {
    size_t n = (size_t)threads;
    bool ok = (m->sums = (pairs_sum *)calloc(n, sizeof *m->sums)) &&
              (m->cursors = (cursor *)calloc(n, (m->n_runs + 1) * sizeof *m->cursors));
    for (int i = 0; i < threads && ok; i++) ok = sl_pairs_sum_init(&m->sums[i], m->p->n_vocab);
    return ok;
}

static specrt_status merge_runs(merge *m, int threads, pairs_put *put, specrt_error *err) {
    specrt_error unused;
    pthread_mutex_init(&m->lock, NULL);
    specrt_status status = merge_reserve(m, threads)
                               ? merge_all(m, threads, put, err ? err : &unused)
                               : sl_pairs_no_memory(err);
    pthread_mutex_destroy(&m->lock);
    for (int i = 0; i < threads && m->sums; i++) sl_pairs_sum_free(&m->sums[i]);
    free(m->sums);
    free(m->cursors);
    return status;
}

specrt_status sl_pairs_each(pairs *p, int threads, pairs_take *take, pairs_put *put, void *arg,
                            specrt_error *err) {
    merge m = {.p = p, .runs = p->runs, .n_runs = p->n_runs, .fd = p->fd, .take = take, .arg = arg};
    return merge_runs(&m, threads, put, err);
}

/* ---- spilling ---- */

typedef struct spill {
    pairs *p;
    int fd;
    uint64_t end;
    pairs_run run;
    int64_t n_started; /* ranges whose start is known */
} spill;

static specrt_status spill_take(void *arg, const pairs_row *row, pairs_bytes *out,
                                specrt_error *err) {
    (void)arg;
    return sl_pairs_encode(row, out, err);
}

/* Ranges are delivered in order, those without rows not at all. */
static void spill_start(spill *s, int64_t range) {
    while (s->n_started <= range) s->run.starts[s->n_started++] = s->end;
}

static specrt_status spill_put(void *arg, const void *bytes, size_t n, specrt_error *err) {
    spill *s = (spill *)arg;
    const uint8_t *p = (const uint8_t *)bytes;
    uint64_t source;
    pairs_get_varint(p, &source);
    spill_start(s, (int64_t)source / PAIRS_RANGE);
    while (n > 0) {
        ssize_t written = pwrite(s->fd, p, n, (off_t)s->end);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot spill pairs: %s",
                                    s->p->folder, strerror(written < 0 ? errno : ENOSPC));
        p += written;
        n -= (size_t)written;
        s->end += (uint64_t)written;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_unnamed(const char *folder, int *fd, specrt_error *err) {
    size_t n = strlen(folder) + sizeof "/specrt-pairs-XXXXXX";
    char *path = (char *)malloc(n);
    if (!path) return sl_pairs_no_memory(err);
    snprintf(path, n, "%s/specrt-pairs-XXXXXX", folder);
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd >= 0) unlink(path);
    free(path);
    if (*fd >= 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot create a temporary file: %s", folder,
                            strerror(errno));
}

/* Runs [first, first + n) become one at the end of `s`. They stay, for the caller to drop. */
static specrt_status spill_runs(spill *s, size_t first, size_t n, specrt_error *err) {
    pairs *p = s->p;
    merge m = {
        .p = p, .runs = p->runs + first, .n_runs = n, .fd = p->fd, .take = spill_take, .arg = s};
    s->run = (pairs_run){.starts = sl_pairs_run_starts(p)};
    s->n_started = 0;
    if (!s->run.starts) return sl_pairs_no_memory(err);
    specrt_status status = merge_runs(&m, 1, spill_put, err);
    spill_start(s, p->n_ranges);
    return status;
}

/* What is in memory goes to the file, as its next run. */
static specrt_status spill_memory(pairs *p, specrt_error *err) {
    if (p->fd < 0) TRY(open_unnamed(p->folder, &p->fd, err));
    spill s = {.p = p, .fd = p->fd, .end = p->file_end};
    specrt_status status = spill_runs(&s, p->n_spilled, p->n_runs - p->n_spilled, err);
    if (status != SPECRT_STATUS_OK) return sl_pairs_run_free(&s.run), status;
    for (size_t i = p->n_spilled; i < p->n_runs; i++) sl_pairs_run_free(&p->runs[i]);
    p->file_end = s.end;
    p->runs[p->n_spilled++] = s.run;
    p->n_runs = p->n_spilled;
    p->held = 0;
    return SPECRT_STATUS_OK;
}

/* All runs of the file become one in another. */
static specrt_status spill_again(pairs *p, specrt_error *err) {
    spill s = {.p = p};
    TRY(open_unnamed(p->folder, &s.fd, err));
    specrt_status status = spill_runs(&s, 0, p->n_spilled, err);
    if (status != SPECRT_STATUS_OK) {
        close(s.fd);
        return sl_pairs_run_free(&s.run), status;
    }
    for (size_t i = 0; i < p->n_spilled; i++) sl_pairs_run_free(&p->runs[i]);
    close(p->fd);
    p->fd = s.fd;
    p->file_end = s.end;
    p->runs[0] = s.run;
    p->n_runs = p->n_spilled = 1;
    return SPECRT_STATUS_OK;
}

static specrt_status add_run(pairs *p, pairs_run *run, specrt_error *err) {
    if (!sl_reserve(&p->runs, &p->capacity, p->n_runs + 1, sizeof *run))
        return sl_pairs_run_free(run), sl_pairs_no_memory(err);
    p->runs[p->n_runs++] = *run;
    p->held += run->n_bytes;
    if (p->held > p->run_memory) TRY(spill_memory(p, err));
    return p->n_spilled == MAX_SPILLED ? spill_again(p, err) : SPECRT_STATUS_OK;
}

specrt_status sl_pairs_add_run(pairs *p, pairs_run *run, specrt_error *err) {
    /* Buffers double: what was not needed goes back. */
    uint8_t *fitted = (uint8_t *)realloc(run->bytes, run->n_bytes ? (size_t)run->n_bytes : 1);
    if (fitted) run->bytes = fitted;
    pthread_mutex_lock(&p->lock);
    specrt_status status = add_run(p, run, err);
    pthread_mutex_unlock(&p->lock);
    return status;
}
