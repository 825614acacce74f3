/* runtime.cc : what specrt_kernels.cu and its tests call of the CUDA runtime, on the harness. Streams run
 * what they are given at once, in order. */
#include <cuda_runtime.h>
#include "harness.h"

#include <stdlib.h>

namespace {
cudaError_t last_error = cudaSuccess;

cudaError_t check(const harness_launch &l) {
    uint64_t n_threads = (uint64_t)l.block.x * l.block.y * l.block.z;
    if (n_threads < 1 || n_threads > 1024 || l.block.z > 64) return cudaErrorInvalidConfiguration;
    if (l.grid.x < 1 || l.grid.y < 1 || l.grid.z < 1) return cudaErrorInvalidConfiguration;
    if (l.grid.x > 0x7fffffffu || l.grid.y > 65535 || l.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (l.shared_bytes > 48 << 10) return cudaErrorInvalidValue; /* what needs no asking */
    return cudaSuccess;
}
} // namespace

cudaError_t harness_submit(const harness_launch &launch, cudaStream_t stream) {
    (void)stream;
    cudaError_t error = check(launch);
    if (error == cudaSuccess)
        harness_run(launch);
    else
        last_error = error;
    return error;
}

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

/* Fresh memory holds rubbish, as on a device. */
cudaError_t CUDARTAPI cudaMalloc(void **p, size_t bytes) {
    *p = NULL;
    if (posix_memalign(p, 256, bytes ? bytes : 1) != 0) return cudaErrorMemoryAllocation;
    memset(*p, 0xcd, bytes);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    (void)kind;
    if (bytes) memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    (void)stream;
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

} // extern "C"
