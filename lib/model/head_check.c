/* sl_head_check.c : see sl_head_check.h. */
#include "specrt_tools.h"
#include "model/head_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/parallel.h"

typedef struct checking {
    const specrt_head_desc *head;
    const uint8_t *skip;
    size_t stride;
    float *x;       /* [threads, n_cols] */
    int64_t *first; /* [threads] lowest bad row that each found; n_rows: none */
} checking;

static bool is_good(float x) {
    return fabsf(x) <= HEAD_MOST;
}

static void read_row(const checking *c, int64_t row, float *x) {
    specrt_row_decode(c->head->dtype, (const uint8_t *)c->head->rows + (size_t)row * c->stride,
                      c->head->n_cols, x);
}

/* The first weight of a row that is not good; n_cols: all are. */
static int64_t bad_column(const float *x, int64_t n) {
    int64_t j = 0;
    while (j < n && is_good(x[j])) j++;
    return j;
}

/* Each worker's rows rise, so those behind its first bad one are not needed. */
static void check_row(void *arg, int64_t row, int worker) {
    const checking *c = arg;
    const specrt_head_desc *head = c->head;
    float *x = c->x + worker * head->n_cols;
    if (c->first[worker] < head->n_rows || (c->skip && c->skip[row])) return;
    read_row(c, row, x);
    bool bad = bad_column(x, head->n_cols) < head->n_cols;
    if (bad || (head->bias && !is_good(head->bias[row]))) c->first[worker] = row;
}

static specrt_status blame(const checking *c, const char *name, int64_t row, specrt_error *err) {
    int64_t n = c->head->n_cols;
    read_row(c, row, c->x);
    int64_t column = bad_column(c->x, n);
    bool is_bias = column == n;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "\"%s\": row %" PRId64 ": expected a finite %s of %.0f at most, "
                            "found %g",
                            name, row, is_bias ? "bias" : "weight", (double)HEAD_MOST,
                            (double)(is_bias ? c->head->bias[row] : c->x[column]));
}

static specrt_status check_rows(const checking *c, const char *name, int threads,
                                specrt_error *err) {
    int64_t n = c->head->n_rows, first = n;
    for (int i = 0; i < threads; i++) c->first[i] = n;
    sl_parallel_for(threads, n, check_row, (void *)(uintptr_t)c);
    for (int i = 0; i < threads; i++)
        if (c->first[i] < first) first = c->first[i];
    return first == n ? SPECRT_STATUS_OK : blame(c, name, first, err);
}

specrt_status sl_head_check(const specrt_head_desc *head, const char *name, const uint8_t *skip,
                            int threads, specrt_error *err) {
    checking c = {.head = head, .skip = skip, .stride = head->row_stride};
    if (!c.stride) c.stride = specrt_row_bytes(head->dtype, head->n_cols);
    bool ok = (c.x = calloc((size_t)threads * (size_t)head->n_cols, sizeof *c.x)) &&
              (c.first = calloc((size_t)threads, sizeof *c.first));
    specrt_status status =
        ok ? check_rows(&c, name, threads, err) : sl_error_no_memory_for(err, "a row");
    free(c.x);
    free(c.first);
    return status;
}
