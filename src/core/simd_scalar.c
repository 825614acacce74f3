/* simd_scalar.c : the scalar instruction set, which the others must equal bit for bit. Lanes are plain loops,
 * which compilers turn into vectors where they can, and formats share functions: written out by
 * SPECRT__SIMD_KERNELS() like the others, these kernels were a third of a program. */
#include "core/simd_kernels.h"
#include "core/blocks_kernels.h"
#include "core/rows.h"

static inline float specrt__simd_fma_scalar(float a, float b, float c) {
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}

/* --- products: 32 columns of a row are decoded, then multiplied with every hidden row --- */

static inline void specrt__simd_f32_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_float(specrt__base_load32(block + 4 * k));
}

static inline void specrt__simd_f16_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_f16(specrt__base_load16(block + 2 * k));
}

static inline void specrt__simd_bf16_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_bf16(specrt__base_load16(block + 2 * k));
}

/* A half times an 8-bit number fits in 24 bits, so the decoded value is exact here too. */
static inline void specrt__simd_q8_0_scalar(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int k = 0; k < 32; k++) out[k] = d * (float)(int8_t)block[2 + k];
}

/* Adds 32 columns to the 16 lanes of a row's sums, which no other pointer reaches meanwhile. */
static inline void specrt__simd_add_scalar(const float *weights, const float *hidden, float *sums) {
    float lanes[16];
    memcpy(lanes, sums, sizeof lanes);
    for (int k = 0; k < 16; k++) {
        lanes[k] = specrt__simd_fma_scalar(weights[k], hidden[k], lanes[k]);
        lanes[k] = specrt__simd_fma_scalar(weights[16 + k], hidden[16 + k], lanes[k]);
    }
    memcpy(sums, lanes, sizeof lanes);
}

/* The lanes of four rows by n hidden rows, each added as a tree. */
static void specrt__simd_lanes_scalar(const float *sums, int32_t n, float *out, size_t stride) {
    float lanes[16];
    for (; n > 0; n--, out += stride)
        for (int r = 0; r < 4; r++, sums += 16) {
            memcpy(lanes, sums, sizeof lanes);
            for (int half = 8; half > 0; half /= 2)
                for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
            out[r] = lanes[0];
        }
}

/* Adds blocks of four rows by n hidden rows to sums f32 [n, 4, 16]. */
typedef void specrt__simd_multiply(int n, const uint8_t *const *rows, const float *const *hidden,
                                   int64_t n_blocks, float *sums);

#define SPECRT__SIMD_MULTIPLY(format, block_bytes)                                                 \
    static void specrt__simd_multiply_##format(int n, const uint8_t *const *rows,                  \
                                               const float *const *hidden, int64_t n_blocks,       \
                                               float *sums) {                                      \
        float weights[32];                                                                         \
        for (int r = 0; r < 4; r++, sums += 16)                                                    \
            for (int64_t i = 0; i < n_blocks; i++) {                                               \
                specrt__simd_##format##_scalar(rows[r] + block_bytes * i, weights);                \
                for (int h = 0; h < n; h++)                                                        \
                    specrt__simd_add_scalar(weights, hidden[h] + 32 * i, sums + 64 * h);           \
            }                                                                                      \
    }

/* One hidden row; block_bytes: of 32 columns. */
static void specrt__simd_single(specrt__simd_multiply *multiply, size_t block_bytes,
                                const uint8_t *const *rows, const float *hidden, int64_t n_cols,
                                float *out) {
    float sums[64] = {0}, last[32] = {0};
    const float *columns = hidden;
    specrt__simd_tail tail;
    multiply(1, rows, &columns, n_cols / 32, sums);
    if (n_cols % 32 != 0) {
        specrt__simd_pad(&tail, rows, n_cols, block_bytes / 32);
        memcpy(last, hidden + n_cols / 32 * 32, (size_t)(n_cols % 32) * sizeof *last);
        columns = last;
        multiply(1, tail.rows, &columns, 1, sums);
    }
    specrt__simd_lanes_scalar(sums, 1, out, 4);
}

#define SPECRT__SIMD_TILE_SCALAR(format, N)                                                        \
    static void specrt__simd_tile_##format##x##N##_scalar(                                         \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t step,                      \
        const float *const *hidden, int64_t n_blocks, const float *from, float *sums) {            \
        (void)next, (void)step;                                                                    \
        memmove(sums, from, N * 64 * sizeof *sums);                                                \
        specrt__simd_multiply_##format(N, rows, hidden, n_blocks, sums);                           \
    }

#define SPECRT__SIMD_PRODUCTS_SCALAR(format, block_bytes)                                          \
    SPECRT__SIMD_MULTIPLY(format, block_bytes)                                                     \
    static void specrt__simd_four_##format##_scalar(                                               \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        (void)next;                                                                                \
        specrt__simd_single(specrt__simd_multiply_##format, block_bytes, rows, hidden, n_cols,     \
                            out);                                                                  \
    }                                                                                              \
    SPECRT__SIMD_EACH_3(SPECRT__SIMD_TILE_SCALAR, format)

SPECRT__SIMD_PRODUCTS_SCALAR(f32, 128)
SPECRT__SIMD_PRODUCTS_SCALAR(f16, 64)
SPECRT__SIMD_PRODUCTS_SCALAR(bf16, 64)
SPECRT__SIMD_PRODUCTS_SCALAR(q8_0, 34)

static void specrt__simd_tile_i8_scalar(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                        int32_t *out) {
    for (int r = 0; r < 4; r++) {
        out[r] = 0;
        for (int64_t j = 0; j < n_cols; j++) out[r] += rows[r][j] * x[j];
    }
}

/* --- the sum of exponentials and the search for great logits: as in >>simd_kernels --- */

/* x[16] becomes exp(x). */
static inline void specrt__simd_exp_scalar(float *x) {
    static const float taylor[7] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f};
    const float magic = 12582912.0f;
    float z[16], r[16], y[16];
    for (int k = 0; k < 16; k++) {
        z[k] = specrt__simd_fma_scalar(x[k], 1.44269504f, magic);
        r[k] = specrt__simd_fma_scalar(z[k] - magic, -0.693359375f, x[k]);
        r[k] = specrt__simd_fma_scalar(z[k] - magic, 2.12194440e-4f, r[k]);
        y[k] = 1 / 5040.0f;
    }
    for (int term = 0; term < 7; term++)
        for (int k = 0; k < 16; k++) y[k] = specrt__simd_fma_scalar(y[k], r[k], taylor[term]);
    for (int k = 0; k < 16; k++)
        x[k] = y[k] * specrt__base_float((specrt__base_bits(z[k]) + 127) << 23);
}

static double specrt__simd_sum_exp_scalar(const float *x, int64_t n, float max) {
    double lanes[16] = {0};
    float t[16];
    for (; n > 0; x += 16, n -= 16) {
        for (int k = 0; k < 16; k++) t[k] = -INFINITY;
        memcpy(t, x, (size_t)(n < 16 ? n : 16) * sizeof *t);
        for (int k = 0; k < 16; k++) t[k] = t[k] - max > -87.0f ? t[k] - max : -87.0f;
        specrt__simd_exp_scalar(t);
        for (int k = 0; k < 16; k++) lanes[k] += t[k];
    }
    return specrt__simd_total(lanes);
}

static int64_t specrt__simd_find_scalar(const float *x, int64_t n, float bound) {
    int64_t i = 0;
    for (int any = 0; i + SPECRT__SIMD_SCAN <= n; i += SPECRT__SIMD_SCAN) {
        for (int k = 0; k < SPECRT__SIMD_SCAN; k++) any |= !(x[i + k] < bound); /* NaN too */
        if (any) break;
    }
    return i;
}

#define SPECRT__SIMD_TILES_SCALAR(format)                                                          \
    { specrt__simd_tile_##format##x2_scalar, specrt__simd_tile_##format##x3_scalar }
#define SPECRT__SIMD_FOURS_SCALAR                                                                  \
    {                                                                                              \
        specrt__simd_four_f32_scalar, specrt__simd_four_f16_scalar, specrt__simd_four_bf16_scalar, \
            specrt__simd_four_q8_0_scalar                                                          \
    }

SPECRT__INTERNAL const specrt__simd_kernels specrt__simd_kernels_scalar = {
    /* name = */ "scalar",
    /* four = */ SPECRT__SIMD_FOURS_SCALAR,
    /* stream = */ SPECRT__SIMD_FOURS_SCALAR,
    /* tile = */
    {SPECRT__SIMD_TILES_SCALAR(f32), SPECRT__SIMD_TILES_SCALAR(f16),
     SPECRT__SIMD_TILES_SCALAR(bf16), SPECRT__SIMD_TILES_SCALAR(q8_0)},
    /* n_hidden = */ {3, 3, 3, 3},
    /* lanes = */ specrt__simd_lanes_scalar,
    /* tile_i8 = */ specrt__simd_tile_i8_scalar,
    /* sum_exp = */ specrt__simd_sum_exp_scalar,
    /* find = */ specrt__simd_find_scalar,
};

/* --- blocks decoded by >>rows --- */

static void specrt__blocks_multiply(specrt_dtype dtype, int64_t n_bytes, const uint8_t *const *rows,
                                    const float *hidden, int64_t n_cols, float *out) {
    float sums[64] = {0}, weights[256];
    for (int r = 0; r < 4; r++) {
        const uint8_t *from = rows[r];
        for (int64_t i = 0; i < n_cols; i += 256, from += n_bytes) {
            int64_t n = n_cols - i < 256 ? n_cols - i : 256;
            specrt__rows_decode_blocks(dtype, from, n, weights);
            for (int64_t j = 0; j < n; j += 32)
                specrt__simd_add_scalar(weights + j, hidden + i + j, sums + 16 * r);
        }
    }
    specrt__simd_lanes_scalar(sums, 1, out, 4);
}

#define SPECRT__BLOCKS_SCALAR(isa, format, name, n_bytes)                                          \
    static void specrt__blocks_four_##format##_##isa(                                              \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        (void)next;                                                                                \
        specrt__blocks_multiply(SPECRT_DTYPE_##name, n_bytes, rows, hidden, n_cols, out);          \
    }                                                                                              \
    static void specrt__blocks_expand_##format##_##isa(                                            \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols, float *out) {      \
        (void)next;                                                                                \
        for (int r = 0; r < 4; r++, out += SPECRT__BLOCKS_COLS)                                    \
            specrt__rows_decode_blocks(SPECRT_DTYPE_##name, rows[r], n_cols, out);                 \
    }

SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_SCALAR, scalar)
SPECRT__BLOCKS_TABLE(scalar)
