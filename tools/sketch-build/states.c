/* states.c : hidden states of a drafter, recorded or made up, and the rows that answer them best. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

void states_free(state_set *s) {
    free(s->states);
    free(s->best);
    free(s->least);
    *s = (state_set){0};
}

static specrt_status allocate(state_set *s, int64_t dim, int32_t n, specrt_error *err) {
    *s = (state_set){.dim = dim};
    s->states = calloc((size_t)n * (size_t)dim, sizeof *s->states);
    if (s->states) return SPECRT_STATUS_OK;
    return sl_error_no_memory_for(err, "the states");
}

/* --- recorded --- */

/* Of all rows of a trace each has the same chance to stay (a reservoir), at any place. */
static void take(state_set *s, const specrt_trace_record *r, int32_t n, uint64_t *seen) {
    for (int32_t row = 0; row < r->n; row++) {
        const uint16_t *state = r->draft_hidden + (int64_t)row * s->dim;
        if ((state[0] & 0x7c00) == 0x7c00) continue; /* the drafter made no pass there */
        uint64_t place = specrt_hash64(seen, 8, 0) % (*seen + 1);
        float *at = s->states + (int64_t)place * s->dim;
        size_t bytes = (size_t)s->dim * sizeof *at;
        if (++*seen <= (uint64_t)n) /* who is there makes room */
            memcpy(s->states + (int64_t)s->n++ * s->dim, at, bytes);
        if (place < (uint64_t)n) specrt_row_decode(SPECRT_DTYPE_F16, state, s->dim, at);
    }
}

static specrt_status read_all(specrt_trace_reader *reader, state_set *s, int32_t n,
                              specrt_error *err) {
    uint64_t seen = 0;
    for (;;) {
        specrt_trace_record r;
        TRY(specrt_trace_read(reader, &r, err));
        if (r.kind == SPECRT_TRACE_END) return SPECRT_STATUS_OK;
        if (r.draft_hidden) take(s, &r, n, &seen);
    }
}

/* Finite, and not all the same. */
static specrt_status check(const char *path, const state_set *s, specrt_error *err) {
    bool varies = false;
    for (int64_t i = 0; i < s->n * s->dim; i++) {
        if (!isfinite(s->states[i]))
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: hidden state %" PRId64 ": expected finite numbers, found "
                                    "NaN or infinity; record it again",
                                    path, i / s->dim);
        varies = varies || s->states[i] != s->states[i % s->dim];
    }
    if (s->n >= 2 * BUILD_K && varies) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: expected %d or more hidden states of the drafter that differ, "
                            "found %" PRId32 "%s; record more with specrt-eval record",
                            path, 2 * BUILD_K, s->n, varies || s->n == 0 ? "" : ", all the same");
}

specrt_status states_from_trace(const char *path, int64_t dim, int32_t n, state_set *out,
                                specrt_error *err) {
    specrt_trace_reader *reader;
    TRY(specrt_trace_open(path, NULL, &reader, err));
    int32_t width = specrt_trace_get_info(reader)->d_draft;
    specrt_status status = SPECRT_STATUS_OK;
    if (width != dim)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: the drafter's hidden states: expected %" PRId64
                                  " columns, those of the head, found %" PRId32
                                  "; record with this model's drafter",
                                  path, dim, width);
    if (!status) status = allocate(out, dim, STATES_MOST, err);
    if (!status) status = read_all(reader, out, STATES_MOST, err);
    if (!status) status = check(path, out, err);
    out->n_measured = n < out->n / 2 ? n : out->n / 2;
    specrt_trace_close(reader);
    return status;
}

specrt_status states_held_out(const char *path, const char *held_out, int64_t dim, int32_t n,
                              state_set *out, specrt_error *err) {
    state_set chosen = {0}, measured = {0};
    specrt_status status = states_from_trace(path, dim, n, &chosen, err);
    if (!status) status = states_from_trace(held_out, dim, n, &measured, err);
    int32_t n_measured = n < measured.n ? n : measured.n;
    if (!status) status = allocate(out, dim, n_measured + chosen.n, err);
    if (!status) {
        size_t first = (size_t)n_measured * (size_t)dim;
        memcpy(out->states, measured.states, first * sizeof(float));
        memcpy(out->states + first, chosen.states, (size_t)(chosen.n * dim) * sizeof(float));
        out->n_measured = n_measured;
        out->n = n_measured + chosen.n;
    }
    states_free(&chosen);
    states_free(&measured);
    return status;
}

/* --- made up: sums of rows under noise --- */

static double uniform(uint64_t *state) {
    *state = specrt_hash64(state, sizeof *state, 11);
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void add_row(const row_order *o, int32_t place, float *row, float *state) {
    double square = 0;
    order_read(o, place, row);
    for (int64_t j = 0; j < o->n_cols; j++) {
        row[j] -= o->mean[j];
        square += (double)row[j] * (double)row[j];
    }
    float scale = square > 0 ? (float)sqrt(o->n_cols / square) : 0;
    for (int64_t j = 0; j < o->n_cols; j++) state[j] += scale * row[j];
}

specrt_status states_synthetic(const row_order *o, int32_t n, uint64_t seed, state_set *out,
                               specrt_error *err) {
    float *row = malloc((size_t)o->n_cols * sizeof *row);
    if (!row) return sl_error_no_memory(err, NULL);
    specrt_status status = allocate(out, o->n_cols, n, err);
    for (int32_t i = 0; i < n && !status; i++) {
        float *state = out->states + (int64_t)i * o->n_cols;
        for (int k = 0; k < 3; k++) add_row(o, (int32_t)(uniform(&seed) * o->n), row, state);
        for (int64_t j = 0; j < o->n_cols; j++)
            state[j] += (float)(4 * (uniform(&seed) + uniform(&seed) + uniform(&seed) - 1.5));
        out->n = out->n_measured = i + 1;
    }
    free(row);
    return status;
}

/* --- truth: the full product, a block of decoded rows at a time --- */

enum { TRUTH_ROWS = 2048, TRUTH_BATCH = 16 };

typedef struct truth {
    state_set *s;
    const row_order *o;
    specrt_shortlist block; /* f32 rows */
    float *logits;          /* [threads, TRUTH_BATCH, TRUTH_ROWS] */
    float *scores;          /* [n, BUILD_K] of best */
} truth;

/* Ties go to the lower row, as in the runtime. */
static void rank(int32_t *best, float *scores, int32_t row, float score) {
    int at = BUILD_K;
    while (at > 0 && (score > scores[at - 1] || (score == scores[at - 1] && row < best[at - 1])))
        at--;
    if (at == BUILD_K) return;
    memmove(best + at + 1, best + at, (size_t)(BUILD_K - 1 - at) * sizeof *best);
    memmove(scores + at + 1, scores + at, (size_t)(BUILD_K - 1 - at) * sizeof *scores);
    best[at] = row;
    scores[at] = score;
}

static void rank_batch(void *arg, int64_t batch, int worker) {
    const truth *t = arg;
    int32_t first = (int32_t)batch * TRUTH_BATCH, n = t->s->n_measured - first,
            rows = t->block.n_rows;
    float *logits = t->logits + (size_t)worker * TRUTH_BATCH * TRUTH_ROWS;
    if (n > TRUTH_BATCH) n = TRUTH_BATCH;
    specrt_shortlist_logits(&t->block, t->s->states + first * t->s->dim, n, logits);
    for (int32_t i = 0; i < n; i++) {
        int32_t *best = t->s->best + (size_t)(first + i) * BUILD_K;
        float *scores = t->scores + (size_t)(first + i) * BUILD_K;
        for (int32_t j = 0; j < rows; j++)
            if (logits[(size_t)i * (size_t)rows + (size_t)j] >= scores[BUILD_K - 1])
                rank(best, scores, t->block.segments->ids[j], logits[i * rows + j]);
    }
}

static specrt_status rank_all(truth *t, float *rows, int threads, specrt_error *err) {
    specrt_head *head;
    specrt_head_desc desc = {
        .rows = rows, .n_rows = TRUTH_ROWS, .n_cols = t->s->dim, .dtype = SPECRT_DTYPE_F32};
    specrt_segment segment = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .row_stride = (size_t)t->s->dim * sizeof *rows};
    TRY(specrt_head_bind(NULL, &desc, NULL, &head, err));
    for (int32_t first = 0; first < t->o->n; first += TRUTH_ROWS) {
        int32_t n = t->o->n - first < TRUTH_ROWS ? t->o->n - first : TRUTH_ROWS;
        for (int32_t i = 0; i < n; i++) order_read(t->o, first + i, rows + i * t->s->dim);
        segment.ids = t->o->rows + first;
        segment.n_rows = n;
        t->block = (specrt_shortlist){specrt_head_compute(head), &segment, 1, n, t->s->dim, NULL};
        sl_parallel_for(threads, (t->s->n_measured + TRUTH_BATCH - 1) / TRUTH_BATCH, rank_batch, t);
    }
    specrt_head_close(head);
    return SPECRT_STATUS_OK;
}

specrt_status states_truth(state_set *s, const row_order *o, int threads, specrt_error *err) {
    size_t n = (size_t)s->n_measured * BUILD_K;
    sl_arrays owned = {0};
    float *rows = sl_array(&owned, (size_t)TRUTH_ROWS * (size_t)s->dim, sizeof *rows);
    truth t = {.s = s, .o = o};
    t.logits = sl_array(&owned, (size_t)threads * TRUTH_BATCH * TRUTH_ROWS, sizeof *t.logits);
    t.scores = sl_array(&owned, n, sizeof *t.scores);
    s->best = malloc(n * sizeof *s->best);
    s->least = malloc((size_t)s->n_measured * sizeof *s->least);
    specrt_status status = !owned.failed && s->best && s->least
                               ? SPECRT_STATUS_OK
                               : sl_error_no_memory_for(err, "the states");
    for (size_t i = 0; i < n && !status; i++) {
        s->best[i] = INT32_MAX;
        t.scores[i] = -INFINITY;
    }
    if (!status) status = rank_all(&t, rows, threads, err);
    for (int32_t i = 0; i < s->n_measured && !status; i++)
        s->least[i] = t.scores[(size_t)(i + 1) * BUILD_K - 1];
    sl_arrays_free(&owned);
    return status;
}
