/* order.c : the rows of a head by rank, their weights and their mean. */
#include <stdlib.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { ORDER_BLOCK = 512 };

void order_read(const row_order *o, int32_t place, float *out) {
    const uint8_t *rows = (const uint8_t *)o->head.rows;
    specrt_row_decode(o->head.dtype, rows + (size_t)o->rows[place] * o->head.row_stride,
                      o->head.n_cols, out);
}

void order_read_centered(const row_order *o, int32_t place, float *scratch, double *out) {
    order_read(o, place, scratch);
    for (int32_t j = 0; j < o->n_cols; j++) out[j] = (double)scratch[j] - (double)o->mean[j];
}

void order_free(row_order *o) {
    free(o->rows);
    free(o->weights);
    free(o->mean);
    *o = (row_order){0};
}

/* Ranked rows first. Half of all weight is spread evenly, half goes by count: ranks are spent on what is
 * drafted, and no row is forgotten. */
static void arrange(row_order *o, const specrt_ranks *ranks, uint8_t *taken) {
    int32_t n = 0;
    double total = ranks ? (double)ranks->header->n_tokens : 0;
    for (int32_t i = 0; ranks && i < ranks->header->n_ranked; i++) {
        int32_t id = ranks->ids[i];
        if (id >= o->n || taken[id]) continue;
        taken[id] = 1;
        o->rows[n] = id;
        o->weights[n++] =
            total > 0 ? (float)(0.5 + 0.5 * o->n * (double)ranks->counts[i] / total) : 1;
    }
    for (int32_t id = 0; id < o->n; id++) {
        if (taken[id]) continue;
        o->rows[n] = id;
        o->weights[n++] = total > 0 ? 0.5f : 1;
    }
}

typedef struct averaging {
    const row_order *o;
    double *sums; /* [blocks, n_cols] */
    float *rows;  /* [threads, n_cols] */
} averaging;

static void average_block(void *arg, int64_t block, int worker) {
    const averaging *a = arg;
    int64_t d = a->o->n_cols, end = (block + 1) * ORDER_BLOCK;
    double *sum = a->sums + block * d;
    float *row = a->rows + worker * d;
    for (int64_t i = block * ORDER_BLOCK; i < end && i < a->o->n; i++) {
        order_read(a->o, (int32_t)i, row);
        for (int64_t j = 0; j < d; j++) sum[j] += (double)a->o->weights[i] * (double)row[j];
    }
}

static specrt_status average(row_order *o, int threads, specrt_error *err) {
    int64_t d = o->n_cols, n_blocks = (o->n + ORDER_BLOCK - 1) / ORDER_BLOCK;
    averaging a = {o, calloc((size_t)(n_blocks * d), sizeof(double)),
                   malloc((size_t)(threads * d) * sizeof(float))};
    specrt_status status = SPECRT_STATUS_OK;
    double total = 0;
    if (!a.sums || !a.rows) status = sl_error_no_memory_for(err, "the rows");
    if (!status) sl_parallel_for(threads, n_blocks, average_block, &a);
    for (int32_t i = 0; i < o->n; i++) total += (double)o->weights[i];
    for (int64_t j = 0; j < d && !status; j++) {
        double sum = 0;
        for (int64_t block = 0; block < n_blocks; block++) sum += a.sums[block * d + j];
        o->mean[j] = (float)(sum / total);
    }
    free(a.sums);
    free(a.rows);
    return status;
}

specrt_status order_open(const specrt_head_desc *head, const specrt_bundle *bundle, int threads,
                         row_order *out, specrt_error *err) {
    specrt_ranks ranks;
    bool ranked = bundle && specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK;
    size_t n = (size_t)head->n_rows;
    uint8_t *taken;
    *out = (row_order){.head = *head, .n = (int32_t)head->n_rows, .n_cols = (int32_t)head->n_cols};
    if (head->row_stride == 0) out->head.row_stride = specrt_row_bytes(head->dtype, head->n_cols);
    TRY(sl_new(&out->rows, n, sizeof *out->rows, "the rows", err));
    TRY(sl_new(&out->weights, n, sizeof *out->weights, "the rows", err));
    TRY(sl_new(&out->mean, (size_t)out->n_cols, sizeof *out->mean, "the rows", err));
    TRY(sl_new(&taken, n, 1, "the rows", err));
    arrange(out, ranked ? &ranks : NULL, taken);
    free(taken);
    return average(out, threads, err);
}
