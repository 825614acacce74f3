/* simd.h : owns the kernels: dot products, the sum of exponentials and the search for great logits, for
 * every instruction set. Refuses nothing; its callers checked. Rows and vectors may have any alignment.
 * The arithmetic is one definition for all formats, batches and instruction sets: a column is
 * decoded to f32 (exactly, for f32, f16, bf16 and q8_0), column j is fused into lane j % 16, and
 * the lanes are added as a tree. So a logit has the same bits whatever it is batched with. (Without
 * a fused instruction about one operation in 2^29 rounds differently.) Instructions that take a
 * bfloat16 or 8-bit hidden state (dpbf16, dpbusd) are not used: they would round it. */
#ifndef CORE_SIMD_H
#define CORE_SIMD_H

#include "core/base.h"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) ||                                     \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error                                                                                             \
    "specrt.h: compile the implementation without -ffast-math or parts of it; it tells NaN, rounds"
#endif

/* With these instructions clang makes of `a > b ? a : b` one that gives anything for NaN. */
#if defined(__wasm_relaxed_simd__)
#error "specrt.h: compile the implementation without -mrelaxed-simd; it tells NaN on purpose"
#endif

/* Which vector instructions there may be. */
#if !defined(SPECRT_NO_SIMD) && defined(__GNUC__) && defined(__x86_64__)
#define SPECRT__SIMD_X86
#elif !defined(SPECRT_NO_SIMD) && defined(__GNUC__) && defined(__aarch64__)
#define SPECRT__SIMD_ARM64
#elif !defined(SPECRT_NO_SIMD) && defined(__wasm_simd128__)
#define SPECRT__SIMD_WASM
#endif

enum {
    SPECRT__SIMD_F32,
    SPECRT__SIMD_F16,
    SPECRT__SIMD_BF16,
    SPECRT__SIMD_Q8_0,
    SPECRT__SIMD_FORMATS
};

enum {
    SPECRT__SIMD_MOST = 6, /* hidden rows of the widest tile */
    SPECRT__SIMD_SCAN = 16 /* logits that find() tells from others */
};

/* Four rows against one hidden row.
 *   next   : four rows to fetch into the cache meanwhile
 *   hidden : f32 [n_cols]
 *   out    : f32 [4] */
typedef void specrt__simd_four(const uint8_t *const *rows, const uint8_t *const *next,
                               const float *hidden, int64_t n_cols, float *out);

/* Four rows, read side by side, against a few hidden rows: adds to sums that are kept for later columns.
 *   next   : four stretches, each to be fetched meanwhile: `step` bytes for every 32 columns
 *   hidden : pointers to f32 [32 n_blocks]
 *   from, sums : f32 [hidden rows, 4, 16], those before and after; may be the same */
typedef void specrt__simd_tile(const uint8_t *const *rows, const uint8_t *const *next, int64_t step,
                               const float *const *hidden, int64_t n_blocks, const float *from,
                               float *sums);

/* Adds the 16 lanes of a tile's sums: sums f32 [n, 4, 16], out f32 n rows of 4, `stride` apart. */
typedef void specrt__simd_lanes(const float *sums, int32_t n, float *out, size_t stride);

/* Products of four rows of 8-bit numbers with a vector of 16-bit ones: whole numbers, so that every
 * instruction set gives the same, as long as the sizes of a row's terms add up to less than 2^31.
 *   n_cols : a multiple of 32
 *   out    : i32 [4] */
typedef void specrt__simd_tile_i8(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                  int32_t *out);

typedef struct specrt__simd_kernels {
    const char *name;
    specrt__simd_four *four[SPECRT__SIMD_FORMATS];   /* rows side by side */
    specrt__simd_four *stream[SPECRT__SIMD_FORMATS]; /* the same, made for rows from memory */
    specrt__simd_tile *tile[SPECRT__SIMD_FORMATS][SPECRT__SIMD_MOST - 1]; /* of 2, 3, ... */
    int n_hidden[SPECRT__SIMD_FORMATS]; /* of the widest tile, 3 at least */
    specrt__simd_lanes *lanes;
    specrt__simd_tile_i8 *tile_i8;
    double (*sum_exp)(const float *x, int64_t n, float max); /* of exp(x - max); NaN counts 0 */
    /* The first multiple of SPECRT__SIMD_SCAN from which on some of as many are at least `bound`, NaN or
     * infinite, or fewer are left */
    int64_t (*find)(const float *x, int64_t n, float bound);
} specrt__simd_kernels;

extern const specrt__simd_kernels specrt__simd_kernels_scalar;
extern const specrt__simd_kernels specrt__simd_kernels_avx2;
extern const specrt__simd_kernels specrt__simd_kernels_avx512;
extern const specrt__simd_kernels specrt__simd_kernels_neon;
extern const specrt__simd_kernels specrt__simd_kernels_wasm;

SPECRT__INTERNAL int specrt__simd_format(specrt_dtype dtype);
SPECRT__INTERNAL const specrt__simd_kernels *specrt__simd_choose(void);

#endif
