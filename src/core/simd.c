/* simd.c : chooses the kernels of a type, and those of this machine. */
#include "core/simd.h"

/* The kernels of a type here; -1 for those of >>blocks, which are decoded when packed. */
SPECRT__INTERNAL int specrt__simd_format(specrt_dtype dtype) {
    switch (dtype) {
    case SPECRT_DTYPE_F32: return SPECRT__SIMD_F32;
    case SPECRT_DTYPE_F16: return SPECRT__SIMD_F16;
    case SPECRT_DTYPE_BF16: return SPECRT__SIMD_BF16;
    case SPECRT_DTYPE_Q8_0: return SPECRT__SIMD_Q8_0;
    default: return -1;
    }
}

SPECRT__INTERNAL const specrt__simd_kernels *specrt__simd_choose(void) {
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx512bw")) return &specrt__simd_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &specrt__simd_kernels_avx2; /* no CPU has AVX2 without F16C */
#elif defined(SPECRT__SIMD_ARM64)
    return &specrt__simd_kernels_neon;
#elif defined(SPECRT__SIMD_WASM)
    return &specrt__simd_kernels_wasm;
#endif
    return &specrt__simd_kernels_scalar;
}
