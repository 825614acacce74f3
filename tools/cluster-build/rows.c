/* rows.c : see rows.h. A head is read where it lies; only int8 copies of its rows are kept. */
#include "specrt_tools.h"
#include "rows.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { ROWS_BLOCK = 256 };

static const uint8_t *stored(const row_set *r, int64_t id) {
    return (const uint8_t *)r->head.rows + (size_t)id * r->head.row_stride;
}

void rows_read(const row_set *r, int32_t i, float *out) {
    specrt_row_decode(r->head.dtype, stored(r, r->ids[i]), r->head.n_cols, out);
}

const float *rows_f32(const row_set *r, int32_t i, float *scratch) {
    const void *row = stored(r, r->ids[i]);
    if (r->head.dtype == SPECRT_DTYPE_F32 && (uintptr_t)row % sizeof(float) == 0) return row;
    rows_read(r, i, scratch);
    return scratch;
}

/* --- which rows --- */

typedef struct digest {
    uint64_t hash;
    int32_t id;
} digest;

/* Any order puts equal ones side by side. */
static int by_hash(const void *a, const void *b) {
    return memcmp(&((const digest *)a)->hash, &((const digest *)b)->hash, sizeof(uint64_t));
}

/* What a pass over the stored rows finds out. */
typedef struct survey {
    row_set *r;
    double *squares; /* [n_rows] squared lengths */
    digest *digests; /* [n_rows] */
    float *scratch;  /* [threads, n_cols] */
} survey;

static void survey_block(void *arg, int64_t block, int worker) {
    const survey *s = arg;
    const specrt_head_desc *head = &s->r->head;
    float *x = s->scratch + worker * head->n_cols;
    int64_t end = (block + 1) * ROWS_BLOCK < head->n_rows ? (block + 1) * ROWS_BLOCK : head->n_rows;
    for (int64_t id = block * ROWS_BLOCK; id < end; id++) {
        const uint8_t *row = stored(s->r, id);
        double square = 0;
        specrt_row_decode(head->dtype, row, head->n_cols, x);
        for (int64_t j = 0; j < head->n_cols; j++) square += (double)x[j] * x[j];
        s->squares[id] = square;
        s->digests[id].hash = specrt_hash64(row, specrt_row_bytes(head->dtype, head->n_cols), 0);
        s->digests[id].id = (int32_t)id;
    }
}

/* Marks rows whose bytes another has too. */
static void mark_duplicates(survey *s, uint8_t *duplicate) {
    int64_t n = s->r->head.n_rows;
    qsort(s->digests, (size_t)n, sizeof *s->digests, by_hash);
    for (int64_t i = 1; i < n; i++)
        if (s->digests[i].hash == s->digests[i - 1].hash)
            duplicate[s->digests[i].id] = duplicate[s->digests[i - 1].id] = 1;
}

static void keep_rows(survey *s, const uint8_t *reserved, const uint8_t *duplicate) {
    row_set *r = s->r;
    for (int64_t id = 0; id < r->head.n_rows; id++) {
        double square = s->squares[id];
        if (reserved && reserved[id]) {
            r->n_reserved++;
        } else if (square < FLT_MIN) {
            r->n_zero++;
        } else if (duplicate[id]) {
            r->n_duplicate++;
        } else {
            r->ids[r->n] = (int32_t)id;
            r->inverses[r->n++] = (float)(1 / sqrt(square));
        }
    }
}

/* --- their int8 copies --- */

static void round_block(void *arg, int64_t block, int worker) {
    const survey *s = arg;
    row_set *r = s->r;
    float *x = s->scratch + worker * r->head.n_cols;
    int32_t begin = (int32_t)block * ROWS_BLOCK,
            end = begin + ROWS_BLOCK < r->n ? begin + ROWS_BLOCK : r->n;
    for (int32_t i = begin; i < end; i++) {
        rows_read(r, i, x);
        unit_rows_set(&r->units, i, x, r->inverses[i]);
    }
}

static specrt_status choose(survey *s, const uint8_t *reserved, int threads, specrt_error *err) {
    int64_t n = s->r->head.n_rows;
    uint8_t *duplicate = calloc((size_t)n, 1);
    if (!duplicate) return sl_error_no_memory(err, NULL);
    sl_parallel_for(threads, (n + ROWS_BLOCK - 1) / ROWS_BLOCK, survey_block, s);
    mark_duplicates(s, duplicate);
    keep_rows(s, reserved, duplicate);
    free(duplicate);
    return SPECRT_STATUS_OK;
}

specrt_status rows_open(const specrt_head_desc *head, const uint8_t *reserved, int threads,
                        row_set *out, specrt_error *err) {
    size_t n = (size_t)head->n_rows;
    survey s = {.r = out};
    *out = (row_set){.head = *head};
    if (head->row_stride == 0) out->head.row_stride = specrt_row_bytes(head->dtype, head->n_cols);
    out->ids = malloc(n * sizeof *out->ids);
    out->inverses = malloc(n * sizeof *out->inverses);
    sl_arrays owned = {0};
    s.squares = sl_array(&owned, n, sizeof *s.squares);
    s.digests = sl_array(&owned, n, sizeof *s.digests);
    s.scratch = sl_array(&owned, (size_t)threads * (size_t)head->n_cols, sizeof *s.scratch);
    bool good = out->ids && out->inverses && !owned.failed;
    specrt_status status = good ? choose(&s, reserved, threads, err) : SPECRT_STATUS_NO_MEMORY;
    if (!status && !unit_rows_create(&out->units, out->n, (int32_t)head->n_cols))
        status = SPECRT_STATUS_NO_MEMORY;
    if (!status) sl_parallel_for(threads, (out->n + ROWS_BLOCK - 1) / ROWS_BLOCK, round_block, &s);
    sl_arrays_free(&owned);
    if (status) rows_close(out);
    if (status == SPECRT_STATUS_NO_MEMORY)
        return sl_error_no_memory_for(err, "%zu rows of the head", n);
    return status;
}

void rows_close(row_set *r) {
    free(r->ids);
    free(r->inverses);
    unit_rows_free(&r->units);
    *r = (row_set){0};
}
