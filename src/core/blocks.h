/* blocks.h : owns the kernels of rows whose codes of 4 to 6 bits share scales: for one hidden row they are
 * multiplied as they are read, for more a row is decoded once. Refuses nothing; its callers checked. A
 * weight is what specrt_row_decode() gives: a code times a scale is exact in f32, so that fused with
 * its offset it is rounded once, as there. Sums are added as in >>simd, and so a product has the bits
 * of the decoded row's, for any batch and instruction set. */
#ifndef CORE_BLOCKS_H
#define CORE_BLOCKS_H

#include "core/simd.h"

/* Scalar kernels will do for a small program: the rows that it packs are never blocks. */
#if !defined(SPECRT_SMALL) &&                                                                      \
    (defined(SPECRT__SIMD_X86) || defined(SPECRT__SIMD_ARM64) || defined(SPECRT__SIMD_WASM))
#define SPECRT__BLOCKS_VECTORS
#endif

enum { SPECRT__BLOCKS_COLS = 256 }; /* a multiple of every format's block */

/*   four   : as a kernel of >>simd
 *   expand : n_cols <= SPECRT__BLOCKS_COLS of four rows to f32 [4, SPECRT__BLOCKS_COLS]; fetches as many
 *            of the next four into the cache */
typedef struct specrt__blocks_kernels {
    specrt_dtype dtype;
    specrt__simd_four *four;
    void (*expand)(const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols,
                   float *out);
} specrt__blocks_kernels;

extern const specrt__blocks_kernels specrt__blocks_kernels_scalar[];
extern const specrt__blocks_kernels specrt__blocks_kernels_avx2[];
extern const specrt__blocks_kernels specrt__blocks_kernels_avx512[];
extern const specrt__blocks_kernels specrt__blocks_kernels_neon[];
extern const specrt__blocks_kernels specrt__blocks_kernels_wasm[];

SPECRT__INTERNAL const specrt__blocks_kernels *
specrt__blocks_find(const specrt__simd_kernels *kernels, specrt_dtype dtype);

#endif
