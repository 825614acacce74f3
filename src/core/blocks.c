/* blocks.c : finds the kernels of a type of blocks. */
#include "core/blocks.h"

/* The kernels of a type of blocks, of the instruction set that `kernels` are of. */
SPECRT__INTERNAL const specrt__blocks_kernels *
specrt__blocks_find(const specrt__simd_kernels *kernels, specrt_dtype dtype) {
    const specrt__blocks_kernels *k = specrt__blocks_kernels_scalar;
#if !defined(SPECRT__BLOCKS_VECTORS)
    (void)kernels;
#elif defined(SPECRT__SIMD_X86)
    if (kernels == &specrt__simd_kernels_avx2) k = specrt__blocks_kernels_avx2;
    if (kernels == &specrt__simd_kernels_avx512) k = specrt__blocks_kernels_avx512;
#elif defined(SPECRT__SIMD_ARM64)
    if (kernels == &specrt__simd_kernels_neon) k = specrt__blocks_kernels_neon;
#else
    if (kernels == &specrt__simd_kernels_wasm) k = specrt__blocks_kernels_wasm;
#endif
    while (k->dtype != dtype) k++;
    return k;
}
