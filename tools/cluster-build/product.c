/* product.c : see product.h. Blocks of the result are computed each by one thread; operands are copied into
 * the order in which the innermost loop reads them. */
#include "product.h"

#include <string.h>
#include "vectors.h"
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

enum { TILE_M = 6, TILE_N = 16, BLOCK_M = 192, BLOCK_N = 128, BLOCK_K = 256 };

/* Half a row of a tile: as wide as AVX2's registers, of which a tile takes twelve. */
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));

/* c [TILE_M, TILE_N] += a [k, TILE_M]' b [k, TILE_N] */
CLONES static void tile(const float *a, const float *b, int32_t k, float *c) {
    lanes sum[2 * TILE_M], *out = (lanes *)(void *)c;
#pragma GCC unroll 12
    for (int i = 0; i < 2 * TILE_M; i++) sum[i] = out[i];
    for (int32_t j = 0; j < k; j++, a += TILE_M, b += TILE_N) {
        const lanes *y = (const lanes *)(const void *)b;
        lanes left = y[0], right = y[1];
#pragma GCC unroll 6
        for (int r = 0; r < TILE_M; r++) {
            sum[2 * r] += a[r] * left;
            sum[2 * r + 1] += a[r] * right;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < 2 * TILE_M; i++) out[i] = sum[i];
}

/* Panels of `width` rows (by the view's first index) by n columns, zeros beyond n_rows. */
static void pack(matrix_view v, int32_t n_rows, int32_t n, int32_t width, float *out) {
    for (int32_t begin = 0; begin < n_rows; begin += width, out += width * n)
        for (int32_t r = 0; r < width; r++) {
            const float *x = v.x + (begin + r) * v.row;
            bool is = begin + r < n_rows;
            for (int32_t j = 0; j < n; j++) out[j * width + r] = is ? x[j * v.col] : 0;
        }
}

typedef struct product_job {
    matrix_view a, b;
    int32_t m, n, k, n_across; /* blocks side by side */
    float *c;
} product_job;

static int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Adds what columns [from, from + k) of a give to `sums`, tile by tile. */
static void add_block(const product_job *job, int32_t i, int32_t j, int32_t from, float *sums) {
    float a[BLOCK_M * BLOCK_K], b[TILE_N * BLOCK_K];
    int32_t m = least(BLOCK_M, job->m - i), n = least(BLOCK_N, job->n - j),
            k = least(BLOCK_K, job->k - from);
    matrix_view left = {job->a.x + i * job->a.row + from * job->a.col, job->a.row, job->a.col};
    pack(left, m, k, TILE_M, a);
    for (int32_t y = 0; y < n; y += TILE_N) {
        matrix_view right = {job->b.x + (j + y) * job->b.col + from * job->b.row, job->b.col,
                             job->b.row};
        pack(right, least(TILE_N, n - y), k, TILE_N, b);
        for (int32_t x = 0; x < m; x += TILE_M, sums += TILE_M * TILE_N)
            tile(a + x * k, b, k, sums);
    }
}

static void product_block(void *arg, int64_t block) {
    const product_job *job = arg;
    float sums[BLOCK_M * BLOCK_N] = {0};
    int32_t i = (int32_t)(block / job->n_across) * BLOCK_M,
            j = (int32_t)(block % job->n_across) * BLOCK_N;
    int32_t m = least(BLOCK_M, job->m - i), n = least(BLOCK_N, job->n - j);
    for (int32_t from = 0; from < job->k; from += BLOCK_K) add_block(job, i, j, from, sums);
    const float *at = sums;
    for (int32_t y = 0; y < n; y += TILE_N)
        for (int32_t x = 0; x < m; x += TILE_M, at += TILE_M * TILE_N)
            for (int32_t r = 0; r < least(TILE_M, m - x); r++)
                memcpy(job->c + (int64_t)(i + x + r) * job->n + j + y, at + r * TILE_N,
                       (size_t)least(TILE_N, n - y) * sizeof *at);
}

void product(parallel_pool *pool, matrix_view a, matrix_view b, int32_t m, int32_t n, int32_t k,
             float *c) {
    int32_t down = (m + BLOCK_M - 1) / BLOCK_M, across = (n + BLOCK_N - 1) / BLOCK_N;
    product_job job = {a, b, m, n, k, across, c};
    sl_parallel_pool_for(pool, (int64_t)down * across, product_block, &job);
}
