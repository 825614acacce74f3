/* simd_scalar.c : the scalar instruction set, which the others must equal bit for bit. */
#include "core/simd_kernels.h"
#include "core/blocks_kernels.h"
#include "core/rows.h"

#define SPECRT__EACH_LANE(i) for (int i = 0; i < 16; i++)

typedef struct specrt__simd_v16 {
    float lane[16];
} specrt__simd_v16;

typedef struct specrt__simd_sums_scalar {
    double lane[16];
} specrt__simd_sums_scalar;

static inline specrt__simd_v16 specrt__simd_splat_scalar(float x) {
    specrt__simd_v16 v;
    SPECRT__EACH_LANE (i) v.lane[i] = x;
    return v;
}

static inline specrt__simd_v16 specrt__simd_load_scalar(const float *p) {
    specrt__simd_v16 v;
    memcpy(v.lane, p, sizeof v.lane);
    return v;
}

static inline void specrt__simd_store_scalar(float *p, specrt__simd_v16 v) {
    memcpy(p, v.lane, sizeof v.lane);
}

static inline specrt__simd_v16 specrt__simd_f32_scalar(const uint8_t *row, int64_t i, int at) {
    specrt__simd_v16 v;
    memcpy(v.lane, row + 128 * i + 4 * at, sizeof v.lane);
    return v;
}

static inline specrt__simd_v16 specrt__simd_f16_scalar(const uint8_t *row, int64_t i, int at) {
    specrt__simd_v16 v;
    row += 64 * i + 2 * at;
    for (int k = 0; k < 16; k++) v.lane[k] = specrt__base_f16(specrt__base_load16(row + 2 * k));
    return v;
}

static inline specrt__simd_v16 specrt__simd_bf16_scalar(const uint8_t *row, int64_t i, int at) {
    specrt__simd_v16 v;
    row += 64 * i + 2 * at;
    for (int k = 0; k < 16; k++) v.lane[k] = specrt__base_bf16(specrt__base_load16(row + 2 * k));
    return v;
}

/* A half times an 8-bit number fits in 24 bits, so the decoded value is exact here too. */
static inline specrt__simd_v16 specrt__simd_q8_0_scalar(const uint8_t *row, int64_t i, int at) {
    specrt__simd_v16 v;
    float d = specrt__base_f16(specrt__base_load16(row + 34 * i));
    row += 34 * i + 2 + at;
    for (int k = 0; k < 16; k++) v.lane[k] = d * (float)(int8_t)row[k];
    return v;
}

static inline specrt__simd_v16 specrt__simd_fma_scalar(specrt__simd_v16 a, specrt__simd_v16 b,
                                                       specrt__simd_v16 c) {
    SPECRT__EACH_LANE (i) {
#if defined(FP_FAST_FMAF)
        c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
#else
        c.lane[i] = (float)((double)a.lane[i] * b.lane[i] + c.lane[i]);
#endif
    }
    return c;
}

static inline specrt__simd_v16 specrt__simd_sub_scalar(specrt__simd_v16 a, specrt__simd_v16 b) {
    SPECRT__EACH_LANE (i) a.lane[i] -= b.lane[i];
    return a;
}

static inline specrt__simd_v16 specrt__simd_mul_scalar(specrt__simd_v16 a, specrt__simd_v16 b) {
    SPECRT__EACH_LANE (i) a.lane[i] *= b.lane[i];
    return a;
}

/* NaN in a gives b. */
static inline specrt__simd_v16 specrt__simd_max_scalar(specrt__simd_v16 a, specrt__simd_v16 b) {
    SPECRT__EACH_LANE (i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}

static inline int specrt__simd_any_reach_scalar(specrt__simd_v16 a, specrt__simd_v16 b) {
    int any = 0;
    SPECRT__EACH_LANE (i) any |= !(a.lane[i] < b.lane[i]);
    return any;
}

static inline specrt__simd_v16 specrt__simd_pow2_scalar(specrt__simd_v16 z) {
    SPECRT__EACH_LANE (i)
        z.lane[i] = specrt__base_float((specrt__base_bits(z.lane[i]) + 127) << 23);
    return z;
}

/* The lanes of four rows, each added as a tree. */
static inline void specrt__simd_reduce_scalar(specrt__simd_v16 (*rows)[1], float *out) {
    for (int r = 0; r < 4; r++) {
        for (int n = 8; n > 0; n /= 2)
            for (int i = 0; i < n; i++) rows[r][0].lane[i] += rows[r][0].lane[i + n];
        out[r] = rows[r][0].lane[0];
    }
}

static inline specrt__simd_sums_scalar specrt__simd_zeros_scalar(void) {
    specrt__simd_sums_scalar d;
    memset(&d, 0, sizeof d);
    return d;
}

static inline specrt__simd_sums_scalar specrt__simd_add_scalar(specrt__simd_sums_scalar d,
                                                               specrt__simd_v16 v) {
    SPECRT__EACH_LANE (i) d.lane[i] += v.lane[i];
    return d;
}

static inline void specrt__simd_lanes_scalar(specrt__simd_sums_scalar d, double *out) {
    memcpy(out, d.lane, sizeof d.lane);
}

static void specrt__simd_tile_i8_scalar(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                        int32_t *out) {
    for (int r = 0; r < 4; r++) {
        out[r] = 0;
        for (int64_t j = 0; j < n_cols; j++) out[r] += rows[r][j] * x[j];
    }
}

SPECRT__SIMD_KERNELS(scalar, , specrt__simd_v16, 16, 3, 3)

/* --- the scalar instruction set: blocks decoded by >>rows --- */

static void specrt__blocks_multiply(specrt_dtype dtype, int64_t n_bytes, const uint8_t *const *rows,
                                    const float *hidden, int64_t n_cols, float *out) {
    specrt__simd_v16 sums[4][1];
    float weights[256];
    for (int r = 0; r < 4; r++) {
        const uint8_t *from = rows[r];
        sums[r][0] = specrt__simd_splat_scalar(0);
        for (int64_t i = 0; i < n_cols; i += 256, from += n_bytes) {
            int64_t n = n_cols - i < 256 ? n_cols - i : 256;
            specrt__rows_decode_blocks(dtype, from, n, weights);
            for (int64_t j = 0; j < n; j += 16)
                sums[r][0] =
                    specrt__simd_fma_scalar(specrt__simd_load_scalar(weights + j),
                                            specrt__simd_load_scalar(hidden + i + j), sums[r][0]);
        }
    }
    specrt__simd_reduce_scalar(sums, out);
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
