/* sl_head_check.c : see sl_head_check.h. */
#include "specrt_tools.h"
#include "model/head_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/io.h"
#include "base/parallel.h"

enum { BLOCK = 512 };

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

static void check_block(void *arg, int64_t block, int worker) {
    const checking *c = arg;
    int64_t end = (block + 1) * BLOCK < c->head->n_rows ? (block + 1) * BLOCK : c->head->n_rows;
    float *x = c->x + worker * c->head->n_cols;
    for (int64_t row = block * BLOCK; row < end && row < c->first[worker]; row++) {
        if (c->skip && c->skip[row]) continue;
        read_row(c, row, x);
        bool bad = bad_column(x, c->head->n_cols) < c->head->n_cols;
        if (bad || (c->head->bias && !is_good(c->head->bias[row]))) c->first[worker] = row;
    }
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

specrt_status sl_head_check(const specrt_head_desc *head, const char *name, const uint8_t *skip,
                            int threads, specrt_error *err) {
    checking c = {.head = head, .skip = skip, .stride = head->row_stride};
    if (!c.stride) c.stride = specrt_row_bytes(head->dtype, head->n_cols);
    c.x = malloc((size_t)threads * (size_t)head->n_cols * sizeof *c.x);
    c.first = malloc((size_t)threads * sizeof *c.first);
    specrt_status status = SPECRT_STATUS_OK;
    int64_t first = head->n_rows;
    if (!c.x || !c.first) status = sl_error_no_memory_for(err, "a row");
    for (int i = 0; i < threads && !status; i++) c.first[i] = head->n_rows;
    if (!status) sl_parallel_for(threads, (head->n_rows + BLOCK - 1) / BLOCK, check_block, &c);
    for (int i = 0; i < threads && !status; i++)
        if (c.first[i] < first) first = c.first[i];
    if (first < head->n_rows) status = blame(&c, name, first, err);
    free(c.x);
    free(c.first);
    return status;
}
