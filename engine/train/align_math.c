/* align_math.c : products forward and backward. Each element of a result is one task's, and summed in one
 * order: results depend neither on threads nor on the width of vectors. */
#include <string.h>
#include "engine/train/align_impl.h"

typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));
enum { LANES = 8, QUERIES = 8, BLOCK_ROWS = 64 };

/* ---- two loops ------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) float dot(const float *x, const float *y, int32_t n) {
    vector sum = {0};
    float total = 0, lanes[LANES];
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += *(const vector *)(x + i) * *(const vector *)(y + i);
    memcpy(lanes, &sum, sizeof lanes);
    for (int32_t k = 0; k < LANES; k++) total += lanes[k];
    for (; i < n; i++) total += x[i] * y[i];
    return total;
}

static inline __attribute__((always_inline)) void add(float scale, const float *x, int32_t n,
                                                      float *y) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) *(vector *)(y + i) += scale * *(const vector *)(x + i);
    for (; i < n; i++) y[i] += scale * x[i];
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static float dot_avx2(const float *x, const float *y, int32_t n) {
    return dot(x, y, n);
}
__attribute__((target("avx2"))) static void add_avx2(float scale, const float *x, int32_t n,
                                                     float *y) {
    add(scale, x, n, y);
}
#endif

float align_dot(const float *x, const float *y, int32_t n) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) return dot_avx2(x, y, n);
#endif
    return dot(x, y, n);
}

void align_add(float scale, const float *x, int32_t n, float *y) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        add_avx2(scale, x, n, y);
        return;
    }
#endif
    add(scale, x, n, y);
}

/* ---- products -------------------------------------------------------------------------------- */

engine_matrix align_matrix(const float *rows, int32_t n_rows, int32_t n_cols) {
    return (engine_matrix){.segment = {.rows = rows,
                                       .row_stride = (size_t)n_cols * sizeof(float),
                                       .dtype = SPECRT_DTYPE_F32,
                                       .n_rows = n_rows},
                           .n_cols = n_cols};
}

void align_product(const engine_align *a, const engine_matrix *w, const float *x, int32_t n,
                   float *y) {
    specrt_shortlist one = {
        specrt_head_compute(a->compute), &w->segment, 1, w->segment.n_rows, w->n_cols, NULL};
    if (n > 0) specrt_shortlist_logits(&one, x, n, y);
}

typedef struct product_back {
    const engine_matrix *w;
    const float *dy;
    int32_t n;
    float *dx;
} product_back;

/* A few rows of the batch: every row of the matrix in turn, decoded once. */
static void product_back_task(void *arg, int64_t task) {
    const product_back *p = (const product_back *)arg;
    const specrt_segment *s = &p->w->segment;
    int32_t from = (int32_t)task * QUERIES, to = from + QUERIES < p->n ? from + QUERIES : p->n;
    int32_t n_cols = p->w->n_cols, chunk = 1024;
    float row[1024];
    for (int32_t at = 0; at < n_cols; at += chunk) {
        int32_t width = n_cols - at < chunk ? n_cols - at : chunk;
        size_t skip = at ? specrt_row_bytes(s->dtype, at) : 0;
        for (int32_t v = 0; v < s->n_rows; v++) {
            const char *bytes = (const char *)s->rows + (size_t)v * s->row_stride + skip;
            const float *decoded = row;
            if (s->dtype == SPECRT_DTYPE_F32)
                decoded = (const float *)(const void *)bytes;
            else
                specrt_row_decode(s->dtype, bytes, width, row);
            for (int32_t i = from; i < to; i++)
                align_add(p->dy[(int64_t)i * s->n_rows + v], decoded, width,
                          p->dx + (int64_t)i * n_cols + at);
        }
    }
}

void align_product_back(const engine_align *a, const engine_matrix *w, const float *dy, int32_t n,
                        float *dx) {
    product_back p = {w, dy, n, dx};
    sl_parallel_pool_for(a->pool, (n + QUERIES - 1) / QUERIES, product_back_task, &p);
}

typedef struct outer {
    const float *dy, *x;
    int32_t n_rows, n_cols, n;
    float scale, *dw;
} outer;

static void outer_task(void *arg, int64_t task) {
    const outer *o = (const outer *)arg;
    int32_t from = (int32_t)task * BLOCK_ROWS;
    int32_t to = from + BLOCK_ROWS < o->n_rows ? from + BLOCK_ROWS : o->n_rows;
    for (int32_t v = from; v < to; v++)
        for (int32_t i = 0; i < o->n; i++)
            align_add(o->scale * o->dy[(int64_t)i * o->n_rows + v], o->x + (int64_t)i * o->n_cols,
                      o->n_cols, o->dw + (int64_t)v * o->n_cols);
}

void align_outer(const engine_align *a, const float *dy, int32_t n_rows, const float *x,
                 int32_t n_cols, int32_t n, float scale, float *dw) {
    outer o = {dy, x, n_rows, n_cols, n, scale, dw};
    sl_parallel_pool_for(a->pool, (n_rows + BLOCK_ROWS - 1) / BLOCK_ROWS, outer_task, &o);
}
