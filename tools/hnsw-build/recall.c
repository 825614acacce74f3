/* recall.c : see recall.h. */
#include "recall.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "model/head_rows.h"

specrt_status hnsw_recall_create(hnsw_recall_set *set, int64_t dim, int32_t n, specrt_error *err) {
    *set = (hnsw_recall_set){.dim = dim};
    set->queries = (float *)calloc((size_t)n * (size_t)dim, sizeof *set->queries);
    set->truth = (int32_t *)malloc((size_t)n * RECALL_K * sizeof *set->truth);
    if (set->queries && set->truth) return SPECRT_STATUS_OK;
    hnsw_recall_free(set);
    return sl_error_no_memory_for(err, "the queries");
}

void hnsw_recall_free(hnsw_recall_set *set) {
    free(set->queries);
    free(set->truth);
    *set = (hnsw_recall_set){0};
}

/* ---- queries ---- */

/* Row i of all in the trace takes the place of an earlier one with the chance of a reservoir. */
static void take_states(hnsw_recall_set *set, const specrt_trace_record *r, int32_t n,
                        uint64_t *i) {
    for (int32_t row = 0; row < r->n; row++, ++*i) {
        uint64_t place = *i < (uint64_t)n ? *i : specrt_hash64(i, sizeof *i, 0) % (*i + 1);
        if (place >= (uint64_t)n) continue;
        if (set->n <= (int32_t)place) set->n = (int32_t)place + 1;
        specrt_row_decode(SPECRT_DTYPE_F16, r->target_hidden + (int64_t)row * set->dim, set->dim,
                          set->queries + (int64_t)place * set->dim);
    }
}

static specrt_status read_states(specrt_trace_reader *reader, hnsw_recall_set *set, int32_t n,
                                 specrt_error *err) {
    uint64_t i = 0;
    for (;;) {
        specrt_trace_record r;
        TRY(specrt_trace_read(reader, &r, err));
        if (r.kind == SPECRT_TRACE_END) return SPECRT_STATUS_OK;
        if (r.kind == SPECRT_TRACE_CYCLE && r.target_hidden) take_states(set, &r, n, &i);
    }
}

specrt_status hnsw_recall_from_trace(const char *path, int64_t dim, int32_t n, hnsw_recall_set *out,
                                     specrt_error *err) {
    specrt_trace_reader *reader;
    TRY(specrt_trace_open(path, NULL, &reader, err));
    int32_t width = specrt_trace_get_info(reader)->d_target;
    specrt_status status = SPECRT_STATUS_OK;
    if (width != dim)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: hidden states of width %" PRId32 "; expected %" PRId64
                                  ", the columns of the head",
                                  path, width, dim);
    if (!status) status = hnsw_recall_create(out, dim, n, err);
    if (!status) status = read_states(reader, out, n, err);
    if (!status && out->n == 0)
        status = specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT, "%s: holds no hidden states of the target%s", path,
            specrt_trace_is_cut(reader) ? ": it is cut short before the first; record it again"
                                        : "; record one with specrt-eval record");
    specrt_trace_close(reader);
    return status;
}

static double uniform(uint64_t *state) {
    *state = specrt_hash64(state, sizeof *state, 7);
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Adds a row, made as long as sqrt(dim). */
static void add_row(const specrt_head_desc *rows, int32_t id, float *row, float *query) {
    double sum = 0;
    specrt_row_decode(rows->dtype, sl_head_row(rows, id), rows->n_cols, row);
    for (int64_t j = 0; j < rows->n_cols; j++) sum += (double)row[j] * (double)row[j];
    double scale = sqrt((double)rows->n_cols / sum); /* index_rows() leaves out rows of zeros */
    for (int64_t j = 0; j < rows->n_cols; j++) query[j] += (float)(scale * (double)row[j]);
}

specrt_status hnsw_recall_synthetic(const specrt_head_desc *rows, const int32_t *ids, int32_t n_ids,
                                    int32_t n, uint64_t seed, hnsw_recall_set *out,
                                    specrt_error *err) {
    float *row = (float *)malloc((size_t)rows->n_cols * sizeof *row);
    specrt_status status = row ? hnsw_recall_create(out, rows->n_cols, n, err)
                               : sl_error_no_memory_for(err, "the queries");
    uint64_t state = seed;
    const float noise = 2 * sqrtf(3); /* three uniform ones: deviation 1/2; three rows: sqrt(3) */
    for (int32_t q = 0; q < n && !status; q++) {
        float *query = out->queries + q * rows->n_cols;
        for (int i = 0; i < 3; i++)
            add_row(rows, ids[(int32_t)(uniform(&state) * n_ids)], row, query);
        for (int64_t j = 0; j < rows->n_cols; j++)
            query[j] += noise * (float)(uniform(&state) + uniform(&state) + uniform(&state) - 1.5);
    }
    if (!status) out->n = n;
    free(row);
    return status;
}

/* ---- truth and measure ---- */

specrt_status hnsw_recall_truth(hnsw_recall_set *set, const specrt_head *head,
                                const specrt_head_desc *rows, const int32_t *ids, int32_t n_ids,
                                specrt_error *err) {
    enum { BATCH = 16 };
    specrt_segment s = {
        .rows = rows->rows, .bias = rows->bias, .dtype = rows->dtype, .ids = ids, .places = ids};
    s.row_stride = sl_head_stride(rows);
    s.n_rows = n_ids;
    specrt_shortlist shortlist = {specrt_head_compute(head), &s, 1, n_ids, rows->n_cols, NULL};
    int32_t k = n_ids < RECALL_K ? n_ids : RECALL_K, best[BATCH * RECALL_K];
    float logprobs[BATCH * RECALL_K];
    float *logits = (float *)malloc((size_t)n_ids * BATCH * sizeof *logits);
    if (!logits) return sl_error_no_memory_for(err, "the queries");
    memset(set->truth, 0xff, (size_t)set->n * RECALL_K * sizeof *set->truth);
    for (int32_t q = 0; q < set->n; q += BATCH) {
        int32_t n = set->n - q < BATCH ? set->n - q : BATCH;
        specrt_shortlist_logits(&shortlist, set->queries + q * set->dim, n, logits);
        specrt_shortlist_topk(&shortlist, logits, n, k, best, logprobs);
        for (int32_t i = 0; i < n; i++)
            memcpy(set->truth + (q + i) * RECALL_K, best + i * k, (size_t)k * sizeof *best);
    }
    free(logits);
    return SPECRT_STATUS_OK;
}

int32_t hnsw_recall_hits(const int32_t *truth, const int32_t *found, int32_t n, int32_t *n_true) {
    int32_t hits = 0;
    for (int32_t i = 0; i < RECALL_K && truth[i] >= 0; i++, ++*n_true)
        for (int32_t j = 0; j < n; j++) hits += found[j] == truth[i];
    return hits;
}

specrt_status hnsw_recall_measure(const hnsw_recall_set *set, const specrt_hnsw *index, int32_t ef,
                                  hnsw_recall_step *out, specrt_error *err) {
    void *scratch = calloc(1, specrt_hnsw_scratch_bytes(index, ef));
    int32_t found[RECALL_K], hits = 0, n_true = 0;
    float scores[RECALL_K];
    if (!scratch) return sl_error_no_memory_for(err, "the queries");
    double started = sl_measure_seconds();
    for (int32_t q = 0; q < set->n; q++) {
        int32_t n = specrt_hnsw_search(index, set->queries + q * set->dim, RECALL_K, ef, found,
                                       scores, scratch);
        hits += hnsw_recall_hits(set->truth + q * RECALL_K, found, n, &n_true);
    }
    *out = (hnsw_recall_step){ef, n_true ? (double)hits / n_true : 0,
                              set->n / (sl_measure_seconds() - started + 1e-9)};
    free(scratch);
    return SPECRT_STATUS_OK;
}
