/* simd_kernels.h : the kernels, written once, over vectors of as many lanes as an instruction set has. A
 * file that has the operations of one makes its kernels by SPECRT__SIMD_KERNELS().
 *
 * A product takes four rows, in blocks of 32 columns. Column j is fused into lane j % 16 of a row's sums,
 * which are 16 / L vectors of L lanes:
 *
 *     columns of a block      0 .. 7   8 .. 15   16 .. 23   24 .. 31
 *     their vector, L = 8        0         1          0          1
 *     their vector, L = 16       0         0          0          0
 *
 * So a lane meets the same columns in the same order for every L, for any number R of rows that are read
 * side by side, and for any number N of hidden rows that share them. That is why a logit has the same bits
 * in every batch and on every machine with a fused instruction. Columns behind the last block are padded
 * with zeros, which change no sum.
 *
 *     _KERNELS     all of an instruction set, and its table:
 *       _PRODUCTS    _FOUR   four rows by one hidden row, R side by side; each block is a _BLOCK
 *                    _TILE   four rows by N hidden rows, L of the 16 lanes at a time; each block is a _STEP
 *                    _LANES  adds the 16 lanes of a tile's sums
 *       _EXP, _SUM_EXP, _FIND
 *
 * Each of them is the text of a function, into which an instruction set (isa), its attribute (target), its
 * type of vectors (V) and their lanes (L) are filled. SPECRT__SIMD_OP(isa, fma) names its function
 * specrt__simd_fma_<isa>(); f32, f16, bf16 and q8_0 are operations, too: L columns of a row as floats.
 * Loops over R, N, 16 / L and a block's columns are unrolled, so that sums can stay in registers. */
#ifndef CORE_SIMD_KERNELS_H
#define CORE_SIMD_KERNELS_H

#include "core/simd.h"

/* --- instruction sets --- */

#if defined(SPECRT__SIMD_X86)
#include <immintrin.h>

#define SPECRT__SIMD_AVX2   __attribute__((target("avx2,fma,f16c")))
#define SPECRT__SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma,f16c")))

/* g++ 12, which takes the undefined vectors inside its own intrinsics for ours (bug 105593), is unasked. */
#if defined(__cplusplus) && !defined(__clang__)
#define SPECRT__SIMD_UNASKED                                                                       \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")           \
        _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define SPECRT__SIMD_ASKED _Pragma("GCC diagnostic pop")
#else
#define SPECRT__SIMD_UNASKED
#define SPECRT__SIMD_ASKED
#endif
#elif defined(SPECRT__SIMD_ARM64)
#include <arm_neon.h>

typedef struct specrt__simd_v4x2 {
    float32x4_t lo, hi;
} specrt__simd_v4x2;
#elif defined(SPECRT__SIMD_WASM)
#include <wasm_simd128.h>

typedef struct specrt__simd_v4x2 {
    v128_t lo, hi;
} specrt__simd_v4x2;
#endif

/* --- kernels: written once, over vectors of as many lanes as the instruction set has --- */

#if defined(__clang__)
#define SPECRT__SIMD_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define SPECRT__SIMD_UNROLL _Pragma("GCC unroll 8")
#else
#define SPECRT__SIMD_UNROLL
#endif

/* Rows of a few KB are over before the hardware has seen a stream in them. */
#if defined(__GNUC__)
#define SPECRT__SIMD_PREFETCH(p) __builtin_prefetch(p)
#else
#define SPECRT__SIMD_PREFETCH(p) (void)(p)
#endif

/* The operations of an instruction set are named after it. */
#define SPECRT__SIMD_OP(isa, op) specrt__simd_##op##_##isa

/* Columns of four rows beyond the last whole block, padded with zeros to one. */
typedef struct specrt__simd_tail {
    uint8_t bytes[4][128];
    const uint8_t *rows[4];
} specrt__simd_tail;

static inline void specrt__simd_pad(specrt__simd_tail *t, const uint8_t *const *rows,
                                    int64_t n_cols, size_t elem_bytes) {
    size_t n_left = (size_t)(n_cols % 32), n_done = (size_t)n_cols - n_left;
    memset(t->bytes, 0, sizeof t->bytes);
    for (int r = 0; r < 4; r++) {
        memcpy(t->bytes[r], rows[r] + n_done * elem_bytes, n_left * elem_bytes);
        t->rows[r] = t->bytes[r];
    }
}

/* Block i of R rows from r0 on against one hidden row. */
#define SPECRT__SIMD_BLOCK(isa, V, L, format, R, rows, hidden, i)                                  \
    SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                           \
        SPECRT__SIMD_UNROLL for (int at = p * L; at < 32; at += 16) {                              \
        V x = SPECRT__SIMD_OP(isa, load)((hidden) + 32 * (i) + at);                                \
        SPECRT__SIMD_UNROLL for (int r = r0; r < r0 + R; r++) sums[r][p] = SPECRT__SIMD_OP(        \
            isa, fma)(SPECRT__SIMD_OP(isa, format)((rows)[r], i, at), x, sums[r][p]);              \
    }

/* Rows are read R side by side. What is fetched meanwhile is fetched in the order of memory: all of one
 * row, then of the next. */
#define SPECRT__SIMD_FOUR(isa, target, V, L, format, block_bytes, R)                               \
    target static void specrt__simd_four_##format##x##R##_##isa(                                   \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        V sums[4][16 / L];                                                                         \
        specrt__simd_tail tail;                                                                    \
        float last[32] = {0};                                                                      \
        if (n_cols % 32 != 0) {                                                                    \
            specrt__simd_pad(&tail, rows, n_cols, block_bytes / 32);                               \
            memcpy(last, hidden + n_cols / 32 * 32, (size_t)(n_cols % 32) * sizeof *last);         \
        }                                                                                          \
        SPECRT__SIMD_UNROLL for (int r0 = 0; r0 < 4; r0 += R) {                                    \
            SPECRT__SIMD_UNROLL for (int r = r0; r < r0 + R; r++)                                  \
                SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[r][p] =                  \
                    SPECRT__SIMD_OP(isa, splat)(0);                                                \
            for (int64_t i = 0, part = 0; part < R; part++) {                                      \
                int64_t begin = i, end = n_cols / 32 * (part + 1) / R;                             \
                for (; i < end; i++) {                                                             \
                    SPECRT__SIMD_UNROLL for (int line = 0; line < R * block_bytes; line += 64)     \
                        SPECRT__SIMD_PREFETCH(next[r0 + part] + R * block_bytes * (i - begin) +    \
                                              line);                                               \
                    SPECRT__SIMD_BLOCK(isa, V, L, format, R, rows, hidden, i)                      \
                }                                                                                  \
            }                                                                                      \
            if (n_cols % 32 != 0) {                                                                \
                SPECRT__SIMD_BLOCK(isa, V, L, format, R, tail.rows, last, 0)                       \
            }                                                                                      \
        }                                                                                          \
        SPECRT__SIMD_OP(isa, reduce)(sums, out);                                                   \
    }

/* Block i of four rows against N hidden rows, L of the 16 lanes from `first` on. */
#define SPECRT__SIMD_STEP(isa, V, L, format, N, rows, hidden, i)                                   \
    SPECRT__SIMD_UNROLL for (int at = first; at < 32; at += 16) {                                  \
        V x[N];                                                                                    \
        SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) x[h] =                                     \
            SPECRT__SIMD_OP(isa, load)((hidden)[h] + 32 * (i) + at);                               \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {                                          \
            V w = SPECRT__SIMD_OP(isa, format)((rows)[r], i, at);                                  \
            SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) s[r][h] =                              \
                SPECRT__SIMD_OP(isa, fma)(w, x[h], s[r][h]);                                       \
        }                                                                                          \
    }

/* Takes L lanes at a time, so that all its sums stay in registers. */
#define SPECRT__SIMD_TILE(isa, target, V, L, format, block_bytes, N)                               \
    target static void specrt__simd_tile_##format##x##N##_##isa(                                   \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t step,                      \
        const float *const *hidden, int64_t n_blocks, const float *from, float *sums) {            \
        SPECRT__SIMD_UNROLL for (int first = 0; first < 16; first += L) {                          \
            V s[4][N];                                                                             \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) s[r][h] =                          \
                    SPECRT__SIMD_OP(isa, load)(from + 16 * (4 * h + r) + first);                   \
            for (int64_t i = 0, part = 0; part < 4; part++) {                                      \
                int64_t end = n_blocks * (part + 1) / 4;                                           \
                const uint8_t *ahead = next[part] - 4 * step * i;                                  \
                for (; i < end; i++) {                                                             \
                    SPECRT__SIMD_UNROLL for (int line = 0; line < 2 * block_bytes; line += 64)     \
                        SPECRT__SIMD_PREFETCH(ahead + 4 * step * i + line);                        \
                    if (step == block_bytes) {                                                     \
                        SPECRT__SIMD_UNROLL for (int line = 0; line < 2 * block_bytes; line += 64) \
                            SPECRT__SIMD_PREFETCH(ahead + 4 * step * i + 2 * block_bytes + line);  \
                    }                                                                              \
                    SPECRT__SIMD_STEP(isa, V, L, format, N, rows, hidden, i)                       \
                }                                                                                  \
            }                                                                                      \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++)                                    \
                    SPECRT__SIMD_OP(isa, store)(sums + 16 * (4 * h + r) + first, s[r][h]);         \
        }                                                                                          \
    }

#define SPECRT__SIMD_LANES(isa, target, V, L)                                                      \
    target static void specrt__simd_lanes_of_##isa(const float *sums, int32_t n, float *out,       \
                                                   size_t stride) {                                \
        for (; n > 0; n--, sums += 64, out += stride) {                                            \
            V four[4][16 / L];                                                                     \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) four[r][p] =                  \
                    SPECRT__SIMD_OP(isa, load)(sums + 16 * r + p * L);                             \
            SPECRT__SIMD_OP(isa, reduce)(four, out);                                               \
        }                                                                                          \
    }

/* A tile's definition or name, of 2 to N hidden rows. */
#define SPECRT__SIMD_EACH_3(define, ...) define(__VA_ARGS__, 2) define(__VA_ARGS__, 3)
#define SPECRT__SIMD_EACH_5(define, ...)                                                           \
    SPECRT__SIMD_EACH_3(define, __VA_ARGS__) define(__VA_ARGS__, 4) define(__VA_ARGS__, 5)
#define SPECRT__SIMD_EACH_6(define, ...)                                                           \
    SPECRT__SIMD_EACH_5(define, __VA_ARGS__) define(__VA_ARGS__, 6)
#define SPECRT__SIMD_NAME(isa, format, N) specrt__simd_tile_##format##x##N##_##isa,

/* Bytes of 32 columns; the formats with single columns divide them evenly. Rows of f16 and bf16 come
 * from memory faster one after the other. */
#define SPECRT__SIMD_PRODUCTS(isa, target, V, L, N, Q)                                             \
    SPECRT__SIMD_FOUR(isa, target, V, L, f32, 128, 4)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, f16, 64, 4)                                               \
    SPECRT__SIMD_FOUR(isa, target, V, L, f16, 64, 1)                                               \
    SPECRT__SIMD_FOUR(isa, target, V, L, bf16, 64, 4)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, bf16, 64, 1)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, q8_0, 34, 4)                                              \
    SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, f32, 128)                          \
        SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, f16, 64)                       \
            SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, bf16, 64)                  \
                SPECRT__SIMD_EACH_##Q(SPECRT__SIMD_TILE, isa, target, V, L, q8_0, 34)              \
                    SPECRT__SIMD_LANES(isa, target, V, L)

/* exp(x) for -87 <= x <= 0 : 2^n e^r, n = round(x / ln 2), Taylor to r^7 (5e-9 of the value).
 * Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits, for pow2 to take. */
#define SPECRT__SIMD_EXP(isa, target, V)                                                           \
    target static inline V specrt__simd_exp_##isa(V x) {                                           \
        static const float taylor[6] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f};  \
        V magic = SPECRT__SIMD_OP(isa, splat)(12582912.0f);                                        \
        V z = SPECRT__SIMD_OP(isa, fma)(x, SPECRT__SIMD_OP(isa, splat)(1.44269504f), magic);       \
        V n = SPECRT__SIMD_OP(isa, sub)(z, magic);                                                 \
        V r = SPECRT__SIMD_OP(isa, fma)(n, SPECRT__SIMD_OP(isa, splat)(-0.693359375f), x);         \
        r = SPECRT__SIMD_OP(isa, fma)(n, SPECRT__SIMD_OP(isa, splat)(2.12194440e-4f), r);          \
        V y = SPECRT__SIMD_OP(isa, splat)(1 / 5040.0f);                                            \
        SPECRT__SIMD_UNROLL for (int k = 0; k < 6; k++) y =                                        \
            SPECRT__SIMD_OP(isa, fma)(y, r, SPECRT__SIMD_OP(isa, splat)(taylor[k]));               \
        y = SPECRT__SIMD_OP(isa, fma)(y, r, SPECRT__SIMD_OP(isa, splat)(1.0f));                    \
        return SPECRT__SIMD_OP(isa, mul)(y, SPECRT__SIMD_OP(isa, pow2)(z));                        \
    }

/* Terms below e^-87 of the largest count as that: they cannot change a sum that is at least 1. */
#define SPECRT__SIMD_SUM_EXP(isa, target, V, L)                                                    \
    target static double specrt__simd_sum_exp_##isa(const float *x, int64_t n, float max) {        \
        V shift = SPECRT__SIMD_OP(isa, splat)(max), floor = SPECRT__SIMD_OP(isa, splat)(-87.0f);   \
        specrt__simd_sums_##isa sums[16 / L];                                                      \
        float tail[16];                                                                            \
        double lanes[16];                                                                          \
        SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[p] =                             \
            SPECRT__SIMD_OP(isa, zeros)();                                                         \
        for (int64_t i = 0; i < n; i += 16) {                                                      \
            const float *from = x + i;                                                             \
            if (n - i < 16) {                                                                      \
                for (int k = 0; k < 16; k++) tail[k] = i + k < n ? from[k] : -INFINITY;            \
                from = tail;                                                                       \
            }                                                                                      \
            SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) {                                 \
                V t = SPECRT__SIMD_OP(isa, sub)(SPECRT__SIMD_OP(isa, load)(from + p * L), shift);  \
                t = SPECRT__SIMD_OP(isa, exp)(SPECRT__SIMD_OP(isa, max)(t, floor));                \
                sums[p] = SPECRT__SIMD_OP(isa, add)(sums[p], t);                                   \
            }                                                                                      \
        }                                                                                          \
        SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                       \
            SPECRT__SIMD_OP(isa, lanes)(sums[p], lanes + p * L);                                   \
        return specrt__simd_total(lanes);                                                          \
    }

/* Leaves the loop when any of n reaches the bound, or may be NaN: max() passes over NaN, a sum keeps it. */
#define SPECRT__SIMD_BREAK(isa, V, L, x, n, bound)                                                 \
    V most = SPECRT__SIMD_OP(isa, splat)(-INFINITY), sum = SPECRT__SIMD_OP(isa, splat)(0);         \
    SPECRT__SIMD_UNROLL for (int j = 0; j < n; j += L) {                                           \
        V part = SPECRT__SIMD_OP(isa, load)(x + j);                                                \
        most = SPECRT__SIMD_OP(isa, max)(part, most);                                              \
        sum = SPECRT__SIMD_OP(isa, fma)(part, one, sum);                                           \
    }                                                                                              \
    if (SPECRT__SIMD_OP(isa, any_reach)(most, bound)) break;                                       \
    if (SPECRT__SIMD_OP(isa, any_reach)(sum, infinite)) break;

#define SPECRT__SIMD_FIND(isa, target, V, L)                                                       \
    target static int64_t specrt__simd_find_##isa(const float *x, int64_t n, float bound) {        \
        V b = SPECRT__SIMD_OP(isa, splat)(bound), one = SPECRT__SIMD_OP(isa, splat)(1);            \
        V infinite = SPECRT__SIMD_OP(isa, splat)(INFINITY);                                        \
        int64_t i = 0;                                                                             \
        for (; i + 4 * SPECRT__SIMD_SCAN <= n; i += 4 * SPECRT__SIMD_SCAN) {                       \
            SPECRT__SIMD_BREAK(isa, V, L, x + i, 4 * SPECRT__SIMD_SCAN, b)                         \
        }                                                                                          \
        for (; i + SPECRT__SIMD_SCAN <= n; i += SPECRT__SIMD_SCAN) {                               \
            SPECRT__SIMD_BREAK(isa, V, L, x + i, SPECRT__SIMD_SCAN, b)                             \
        }                                                                                          \
        return i;                                                                                  \
    }

/* All of an instruction set with vectors V of L lanes; a tile takes N hidden rows, Q for q8_0, whose scales
 * need registers too. */
#define SPECRT__SIMD_KERNELS(isa, target, V, L, N, Q)                                              \
    SPECRT__SIMD_PRODUCTS(isa, target, V, L, N, Q)                                                 \
    SPECRT__SIMD_EXP(isa, target, V)                                                               \
    SPECRT__SIMD_SUM_EXP(isa, target, V, L)                                                        \
    SPECRT__SIMD_FIND(isa, target, V, L)                                                           \
    SPECRT__INTERNAL const specrt__simd_kernels specrt__simd_kernels_##isa = {                     \
        /* name = */ #isa,                                                                         \
        {/* four = */ specrt__simd_four_f32x4_##isa, specrt__simd_four_f16x4_##isa,                \
         specrt__simd_four_bf16x4_##isa, specrt__simd_four_q8_0x4_##isa},                          \
        {/* stream = */ specrt__simd_four_f32x4_##isa, specrt__simd_four_f16x1_##isa,              \
         specrt__simd_four_bf16x1_##isa, specrt__simd_four_q8_0x4_##isa},                          \
        {/* tile = */ {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, f32)},                        \
         {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, f16)},                                     \
         {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, bf16)},                                    \
         {SPECRT__SIMD_EACH_##Q(SPECRT__SIMD_NAME, isa, q8_0)}},                                   \
        /* n_hidden = */ {N, N, N, Q},                                                             \
        /* lanes = */ specrt__simd_lanes_of_##isa,                                                 \
        /* tile_i8 = */ specrt__simd_tile_i8_##isa,                                                \
        /* sum_exp = */ specrt__simd_sum_exp_##isa,                                                \
        /* find = */ specrt__simd_find_##isa,                                                      \
    };

/* Lanes are added as a tree: i and i + 8, i and i + 4, ... */
static inline double specrt__simd_total(double *lanes) {
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) lanes[i] += lanes[i + n];
    return lanes[0];
}

#endif
