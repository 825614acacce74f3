/* blocks_kernels.h : the kernels of blocks, written once for all instruction sets. */
#ifndef CORE_BLOCKS_KERNELS_H
#define CORE_BLOCKS_KERNELS_H

#include "core/blocks.h"
#include "core/rows.h"
#include "core/simd_kernels.h"

/* The formats and their bytes of 256 columns; rows are read so many at a time, at most. */
#define SPECRT__BLOCKS_EACH(X, ...)                                                                \
    X(__VA_ARGS__, q4_0, Q4_0, 144)                                                                \
    X(__VA_ARGS__, q4_1, Q4_1, 160)                                                                \
    X(__VA_ARGS__, q5_0, Q5_0, 176)                                                                \
    X(__VA_ARGS__, q5_1, Q5_1, 192)                                                                \
    X(__VA_ARGS__, q4_k, Q4_K, 144)                                                                \
    X(__VA_ARGS__, q5_k, Q5_K, 176)                                                                \
    X(__VA_ARGS__, q6_k, Q6_K, 210)                                                                \
    X(__VA_ARGS__, iq4_nl, IQ4_NL, 144)

#define SPECRT__BLOCKS_ENTRY(isa, format, name, n_bytes)                                           \
    {SPECRT_DTYPE_##name, specrt__blocks_four_##format##_##isa,                                    \
     specrt__blocks_expand_##format##_##isa},

#define SPECRT__BLOCKS_TABLE(isa)                                                                  \
    SPECRT__INTERNAL const specrt__blocks_kernels specrt__blocks_kernels_##isa[] = {               \
        SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_ENTRY, isa)};

#if defined(SPECRT__BLOCKS_VECTORS)

/* --- codes: 16 of a block as bytes, alike for every instruction set --- */

typedef uint8_t specrt__blocks_codes __attribute__((vector_size(16)));
typedef uint16_t specrt__blocks_words __attribute__((vector_size(16)));
typedef uint32_t specrt__blocks_fours __attribute__((vector_size(16)));
typedef uint64_t specrt__blocks_longs __attribute__((vector_size(16)));
typedef uint8_t specrt__blocks_bytes __attribute__((vector_size(32)));
typedef uint16_t specrt__blocks_pairs __attribute__((vector_size(32)));

#define SPECRT__BLOCKS_CODES(name)                                                                 \
    static inline __attribute__((always_inline)) specrt__blocks_codes specrt__blocks_##name

/* Bits [from, from + n) of 16 bytes. */
SPECRT__BLOCKS_CODES(bits)(const uint8_t *p, int from, int n) {
    const uint8_t low = (uint8_t)((1 << n) - 1); /* apart: g++ widens it under ubsan */
    specrt__blocks_words x;
    memcpy(&x, p, sizeof x);
    return (specrt__blocks_codes)(x >> from) & low;
}

/* Sixteens where bit i of two bytes is clear. */
SPECRT__BLOCKS_CODES(clear)(const uint8_t *p) {
    const specrt__blocks_longs each = {0x8040201008040201u, 0x8040201008040201u};
    specrt__blocks_words x = {(uint16_t)specrt__base_load16(p)};
#if defined(__clang__)
    specrt__blocks_codes y =
        __builtin_shufflevector((specrt__blocks_codes)x, (specrt__blocks_codes)x, 0, 0, 0, 0, 0, 0,
                                0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
#else
    const specrt__blocks_codes which = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    specrt__blocks_codes y = __builtin_shuffle((specrt__blocks_codes)x, which);
#endif
    return (specrt__blocks_codes)((y & (specrt__blocks_codes)each) == 0) & 16;
}

/* Eight scales, then eight minima of q4_k and q5_k. */
SPECRT__BLOCKS_CODES(scales)(const uint8_t *p) {
    uint32_t x = specrt__base_load32(p), y = specrt__base_load32(p + 4),
             z = specrt__base_load32(p + 8);
    specrt__blocks_fours all = {
        x & 0x3f3f3f3fu, (z & 0x0f0f0f0fu) | (x >> 6 & 0x03030303u) << 4, /* of scales */
        y & 0x3f3f3f3fu, (z >> 4 & 0x0f0f0f0fu) | (y >> 6 & 0x03030303u) << 4};
    return (specrt__blocks_codes)all;
}

/* --- what 256 columns share, made ready before they are multiplied --- */

/* Instructions that take a number from memory to all lanes cost less than those that move it there from
 * another register. */
typedef struct specrt__blocks_ready {
    /* Of group g: stored scales at 4 g, what is added at 4 g + 1; computed ones (of q6_k two) at g and
     * 16 + g. */
    float scales[32];
    int8_t codes[256]; /* of formats whose codes lie in two places */
} specrt__blocks_ready;

#define SPECRT__BLOCKS_HALF(isa, p) specrt__blocks_half_##isa(p)

/* Stored scales: the first four halves of a group, of which one or two are scales. */
#define SPECRT__BLOCKS_HALVES(isa, b, n, bytes, s)                                                 \
    for (int g = 0; g < n; g++) specrt__blocks_halves_##isa((b) + bytes * g, (s)->scales + 4 * g)

#define SPECRT__BLOCKS_TIMES(isa, L, half, codes, to)                                              \
    SPECRT__SIMD_UNROLL for (int at = 0; at < 16; at += L) SPECRT__SIMD_OP(isa, store)(            \
        (to) + at, SPECRT__SIMD_OP(isa, mul)(SPECRT__SIMD_OP(isa, splat)(half),                    \
                                             specrt__blocks_floats_##isa(codes, (at)&8)))

#define SPECRT__BLOCKS_READY_q4_0(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 18, s)
#define SPECRT__BLOCKS_READY_q4_1(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 20, s)
#define SPECRT__BLOCKS_READY_iq4_nl(isa, L, b, n, s) SPECRT__BLOCKS_HALVES(isa, b, n, 18, s)
#define SPECRT__BLOCKS_READY_q5_0(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 22, s)
#define SPECRT__BLOCKS_READY_q5_1(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 24, s)
#define SPECRT__BLOCKS_READY_q4_k(isa, L, b, n, s)                                                 \
    specrt__blocks_codes codes = specrt__blocks_scales((b) + 4);                                   \
    SPECRT__BLOCKS_TIMES(isa, L, SPECRT__BLOCKS_HALF(isa, b), codes, (s)->scales);                 \
    SPECRT__BLOCKS_TIMES(isa, L, -SPECRT__BLOCKS_HALF(isa, (b) + 2), codes, (s)->scales + 8)
#define SPECRT__BLOCKS_READY_q5_k(isa, L, b, n, s)                                                 \
    SPECRT__BLOCKS_READY_q4_k(isa, L, b, n, s);                                                    \
    specrt__blocks_codes_q5_k_##isa(b, (s)->codes)
#define SPECRT__BLOCKS_READY_q6_k(isa, L, b, n, s)                                                 \
    SPECRT__BLOCKS_TIMES(isa, L, SPECRT__BLOCKS_HALF(isa, (b) + 208),                              \
                         specrt__blocks_bits((b) + 192, 0, 8), (s)->scales);                       \
    specrt__blocks_codes_q6_k_##isa(b, (s)->codes)

/* Codes of 256 columns, a group at a time: nibbles below, the higher bits (from bit `from` of other bytes
 * on) above them. */
#define SPECRT__BLOCKS_JOIN(low, half, high, from, mask, zero, codes)                              \
    do {                                                                                           \
        specrt__blocks_pairs x, y;                                                                 \
        memcpy(&x, low, sizeof x);                                                                 \
        memcpy(&y, high, sizeof y);                                                                \
        x = (x >> (half)&0x0f0f) |                                                                 \
            (((from) < 4 ? y << ((4 - (from)) & 7) : y >> (((from)-4) & 7)) & (mask));             \
        specrt__blocks_bytes z = (specrt__blocks_bytes)x - (uint8_t)(zero);                        \
        memcpy(codes, &z, sizeof z);                                                               \
    } while (0)

#define SPECRT__BLOCKS_JOINED(isa, target)                                                         \
    target static inline void specrt__blocks_codes_q5_k_##isa(const uint8_t *b, int8_t *codes) {   \
        SPECRT__SIMD_UNROLL for (int g = 0; g < 8; g++) SPECRT__BLOCKS_JOIN(                       \
            b + 48 + g / 2 * 32, g % 2 * 4, b + 16, g, 0x1010, 0, codes + 32 * g);                 \
    }                                                                                              \
    target static inline void specrt__blocks_codes_q6_k_##isa(const uint8_t *b, int8_t *codes) {   \
        SPECRT__SIMD_UNROLL for (int g = 0; g < 8; g++)                                            \
            SPECRT__BLOCKS_JOIN(b + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, b + 128 + g / 4 * 32,  \
                                g % 4 * 2, 0x3030, 32, codes + 32 * g);                            \
    }

/* --- weights: L columns of group g from `at` on --- */

#define SPECRT__BLOCKS_SPLAT(isa, x) SPECRT__SIMD_OP(isa, splat)(x)
#define SPECRT__BLOCKS_WEIGHT(isa, codes, at, scale, offset)                                       \
    SPECRT__SIMD_OP(isa, fma)                                                                      \
    (SPECRT__BLOCKS_SPLAT(isa, scale), specrt__blocks_floats_##isa(codes, (at)&8),                 \
     SPECRT__BLOCKS_SPLAT(isa, offset))

/* Nibbles less `zero`: 16 from bit `from` (0 or 4) of the bytes at p on. */
#define SPECRT__BLOCKS_NIBBLES(isa, target, V)                                                     \
    target static inline V specrt__blocks_nibbles_##isa(const uint8_t *p, int from, int zero,      \
                                                        int at, float scale, float offset) {       \
        return SPECRT__BLOCKS_WEIGHT(isa, specrt__blocks_bits(p, from, 4) - (uint8_t)zero, at,     \
                                     scale, offset);                                               \
    }

/* The same where a nibble is the place of its weight. */
#define SPECRT__BLOCKS_LEVELS(isa, target, V)                                                      \
    target static inline V specrt__blocks_levels_##isa(const uint8_t *p, int from, int at,         \
                                                       float scale) {                              \
        return SPECRT__BLOCKS_WEIGHT(                                                              \
            isa, specrt__blocks_look_##isa(specrt__blocks_bits(p, from, 4)), at, scale, 0);        \
    }

/* Nibbles with a fifth bit, bit `first` of the word at `high` on. */
#define SPECRT__BLOCKS_FIVES(isa, target, V)                                                       \
    target static inline V specrt__blocks_fives_##isa(const uint8_t *p, const uint8_t *high,       \
                                                      int first, int zero, int at, float scale,    \
                                                      float offset) {                              \
        return SPECRT__BLOCKS_WEIGHT(isa,                                                          \
                                     specrt__blocks_bits(p, first / 4, 4) + (uint8_t)(16 - zero) - \
                                         specrt__blocks_clear(high + first / 8),                   \
                                     at, scale, offset);                                           \
    }

/* Codes that are ready. */
#define SPECRT__BLOCKS_MADE(isa, s, g, at, scale, offset)                                          \
    SPECRT__BLOCKS_WEIGHT(                                                                         \
        isa, specrt__blocks_bits((const uint8_t *)(s)->codes + 32 * (g) + ((at)&16), 0, 8), at,    \
        scale, offset)

#define SPECRT__BLOCKS_q4_0(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 18 * (g) + 2, (at) / 16 * 4, 8, (at)&8,                     \
                                 (s)->scales[4 * (g)], 0)
#define SPECRT__BLOCKS_q4_1(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 20 * (g) + 4, (at) / 16 * 4, 0, (at)&8,                     \
                                 (s)->scales[4 * (g)], (s)->scales[4 * (g) + 1])
#define SPECRT__BLOCKS_iq4_nl(isa, b, s, g, at)                                                    \
    specrt__blocks_levels_##isa((b) + 18 * (g) + 2, (at) / 16 * 4, (at)&8, (s)->scales[4 * (g)])
#define SPECRT__BLOCKS_q5_0(isa, b, s, g, at)                                                      \
    specrt__blocks_fives_##isa((b) + 22 * (g) + 6, (b) + 22 * (g) + 2, (at)&16, 16, (at)&8,        \
                               (s)->scales[4 * (g)], 0)
#define SPECRT__BLOCKS_q5_1(isa, b, s, g, at)                                                      \
    specrt__blocks_fives_##isa((b) + 24 * (g) + 8, (b) + 24 * (g) + 4, (at)&16, 0, (at)&8,         \
                               (s)->scales[4 * (g)], (s)->scales[4 * (g) + 1])
#define SPECRT__BLOCKS_q4_k(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 16 + (g) / 2 * 32 + ((at)&16), (g) % 2 * 4, 0, (at)&8,      \
                                 (s)->scales[g], (s)->scales[16 + (g)])
#define SPECRT__BLOCKS_q5_k(isa, b, s, g, at)                                                      \
    SPECRT__BLOCKS_MADE(isa, s, g, at, (s)->scales[g], (s)->scales[16 + (g)])
#define SPECRT__BLOCKS_q6_k(isa, b, s, g, at)                                                      \
    SPECRT__BLOCKS_MADE(isa, s, g, at, (s)->scales[2 * (g) + (at) / 16], 0)

/* --- kernels --- */

/* Groups at a time. Two of q4_k and q5_k share their bytes; 256 columns are an even number of groups. */
#define SPECRT__BLOCKS_STEP_q4_0   1
#define SPECRT__BLOCKS_STEP_q4_1   1
#define SPECRT__BLOCKS_STEP_iq4_nl 1
#define SPECRT__BLOCKS_STEP_q5_0   1
#define SPECRT__BLOCKS_STEP_q5_1   1
#define SPECRT__BLOCKS_STEP_q4_k   2
#define SPECRT__BLOCKS_STEP_q5_k   2
#define SPECRT__BLOCKS_STEP_q6_k   2

/* With clang and AVX-512, one group of q4_0 at a time was a tenth slower: a group is a few instructions. */
#if defined(__clang__)
#define SPECRT__BLOCKS_LOOP_avx512 _Pragma("clang loop unroll_count(2)")
#else
#define SPECRT__BLOCKS_LOOP_avx512
#endif
#define SPECRT__BLOCKS_LOOP_avx2
#define SPECRT__BLOCKS_LOOP_neon
#define SPECRT__BLOCKS_LOOP_wasm

/* Group g of four rows against one hidden row. */
#define SPECRT__BLOCKS_GROUP(isa, V, L, format, n_bytes, hidden)                                   \
    SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                           \
        SPECRT__SIMD_UNROLL for (int at = p * L; at < 32; at += 16) {                              \
        V x = SPECRT__SIMD_OP(isa, load)((hidden) + at);                                           \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r][p] = SPECRT__SIMD_OP(isa, fma)(    \
            SPECRT__BLOCKS_##format(isa, rows[r] + n_bytes * i, &ready[r], g, at), x, sums[r][p]); \
    }

#define SPECRT__BLOCKS_FOUR(isa, target, V, L, format, name, n_bytes)                              \
    target static void specrt__blocks_four_##format##_##isa(                                       \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        V sums[4][16 / L];                                                                         \
        specrt__blocks_ready ready[4];                                                             \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                            \
            SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[r][p] =                      \
                SPECRT__SIMD_OP(isa, splat)(0);                                                    \
        for (int64_t i = 0, left = n_cols / 32; left > 0; i++, left -= 8) {                        \
            int n_groups = left < 8 ? (int)left : 8;                                               \
            for (int r = 0; r < 4; r++) {                                                          \
                for (int line = 0; line < n_bytes; line += 64)                                     \
                    SPECRT__SIMD_PREFETCH(next[r] + n_bytes * i + line);                           \
                SPECRT__BLOCKS_READY_##format(isa, L, rows[r] + n_bytes * i, n_groups, &ready[r]); \
            }                                                                                      \
            SPECRT__BLOCKS_LOOP_##isa for (int first = 0; first < n_groups;                        \
                                           first += SPECRT__BLOCKS_STEP_##format)                  \
                SPECRT__SIMD_UNROLL for (int g = first; g < first + SPECRT__BLOCKS_STEP_##format;  \
                                         g++, hidden += 32)                                        \
                    SPECRT__BLOCKS_GROUP(isa, V, L, format, n_bytes, hidden)                       \
        }                                                                                          \
        SPECRT__SIMD_OP(isa, reduce)(sums, out);                                                   \
    }

/* Group g of four rows. */
#define SPECRT__BLOCKS_STORE(isa, L, format, out)                                                  \
    SPECRT__SIMD_UNROLL for (int at = 0; at < 32; at += L)                                         \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                            \
            SPECRT__SIMD_OP(isa, store)((out) + r * SPECRT__BLOCKS_COLS + at,                      \
                                        SPECRT__BLOCKS_##format(isa, rows[r], &ready[r], g, at));

#define SPECRT__BLOCKS_EXPAND(isa, target, V, L, format, name, n_bytes)                            \
    target static void specrt__blocks_expand_##format##_##isa(                                     \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols, float *out) {      \
        specrt__blocks_ready ready[4];                                                             \
        int n_groups = (int)(n_cols / 32);                                                         \
        for (int r = 0; r < 4; r++) {                                                              \
            for (int line = 0; line < n_bytes; line += 64) SPECRT__SIMD_PREFETCH(next[r] + line);  \
            SPECRT__BLOCKS_READY_##format(isa, L, rows[r], n_groups, &ready[r]);                   \
        }                                                                                          \
        for (int first = 0; first < n_groups; first += SPECRT__BLOCKS_STEP_##format)               \
            SPECRT__SIMD_UNROLL for (int g = first; g < first + SPECRT__BLOCKS_STEP_##format;      \
                                     g++, out += 32) {                                             \
                SPECRT__BLOCKS_STORE(isa, L, format, out)                                          \
            }                                                                                      \
    }

#define SPECRT__BLOCKS_KERNELS(isa, target, V, L)                                                  \
    SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_FOUR, isa, target, V, L)                                    \
    SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_EXPAND, isa, target, V, L)                                  \
    SPECRT__BLOCKS_TABLE(isa)

#endif

#endif
