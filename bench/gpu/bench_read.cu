/* bench_read.cu : a kernel that reads memory and does nothing else, for the floor of whatever reads. */
#include <cuda_runtime.h>
#include <stdint.h>

#if defined(SPECRT_HARNESS)
#include "harness.h"
#endif

enum { THREADS = 512, EACH = 8 }; /* EACH: loads of 16 bytes of a thread that are under way */

/* Words of `n` lines, by all blocks in turn; *out is written if they are nothing but zeros, so that no
 * compiler leaves the reading out. */
static __global__ void __launch_bounds__(THREADS)
    read_all(const uint4 *lines, int64_t n, uint32_t *out) {
    uint32_t any = 0;
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += EACH * step) {
        uint4 some[EACH];
#if !defined(SPECRT_HARNESS)
#pragma unroll
#endif
        for (int j = 0; j < EACH; j++) some[j] = lines[i + j * step < n ? i + j * step : n - 1];
        for (int j = 0; j < EACH; j++) any |= some[j].x | some[j].y | some[j].z | some[j].w;
    }
    if (any == 0) *out = 1;
}

/* bench_read() : reads that many bytes of DEVICE memory, a multiple of 16, by n_blocks blocks. out: DEVICE */
extern "C" cudaError_t bench_read(const void *bytes, size_t n, unsigned n_blocks, uint32_t *out,
                                  cudaStream_t stream) {
    const uint4 *lines = (const uint4 *)bytes;
    int64_t n_lines = (int64_t)(n / sizeof *lines);
#if defined(SPECRT_HARNESS)
    return harness_start(read_all, n_blocks, THREADS, 0, stream, lines, n_lines, out);
#else
    read_all<<<n_blocks, THREADS, 0, stream>>>(lines, n_lines, out);
    return cudaGetLastError();
#endif
}
