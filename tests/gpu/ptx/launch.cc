/* launch.cc : what nvcc's host code calls to name its kernels and to start them; memory of runtime.cc. */
#include "ptx.h"
#include "memory.h"
#include <cuda_runtime.h>
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

/* What nvcc's stub of a kernel stands for. */
std::map<const void *, std::string> &kernels() {
    static std::map<const void *, std::string> all;
    return all;
}

/* Static and dynamic shared memory that a block gets unless the program asks for more. */
const uint32_t SHARED_UNASKED = 48 << 10;

cudaError_t check_launch(const ptx::program &code, const dim3 &block, size_t shared_bytes) {
    uint64_t n = (uint64_t)block.x * block.y * block.z;
    if (code.most_threads && n > (uint64_t)code.most_threads) {
        ptx::report_launch(code.name, "%u threads, where its launch bounds allow %d", (unsigned)n,
                           code.most_threads);
        return cudaErrorInvalidValue;
    }
    if (code.shared_bytes + shared_bytes > SHARED_UNASKED) {
        ptx::report_launch(code.name, "%u bytes of shared memory, where nobody asked for over %u",
                           (unsigned)(code.shared_bytes + shared_bytes), SHARED_UNASKED);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

} // namespace

void harness_run(const harness_launch &launch) {
    launch.thread(); /* all of them */
}

void harness_fail(const char *format, ...) {
    va_list x;
    va_start(x, format);
    fputs("ptx: ", stderr);
    vfprintf(stderr, format, x);
    va_end(x);
    fputc('\n', stderr);
    abort();
}

void *harness_allocate(size_t bytes, bool mapped) {
    void *p = NULL;
    if (posix_memalign(&p, 256, bytes ? bytes : 1) != 0) return NULL;
    if (bytes <= 1 << 30) memset(p, 0xcd, bytes); /* more would take all that memory */
    ptx::allocate(p, bytes, mapped);
    return p;
}

void harness_operation(size_t lane, const harness_past &past) {
    ptx::begin_operation(lane, past);
}

void harness_release(void *p) {
    if (p && !ptx::release(p)) ptx::report_launch("cudaFree", "memory that was not allocated");
    free(p);
}

void harness_move(void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
    ptx::host_writes(to, bytes);
}

void harness_fill(void *p, int value, size_t bytes) {
    memset(p, value, bytes);
    ptx::host_writes(p, bytes);
}

extern "C" {

/* Not in a header: nvcc writes their declarations into what it makes. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *, const char *name, int, uint3 *,
                            uint3 *, dim3 *, dim3 *, int *);
unsigned __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
cudaError_t __cudaGetKernel(cudaKernel_t *, const void *);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);

void **__cudaRegisterFatBinary(void *) {
    static void *handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}

void __cudaRegisterFunction(void **, const char *stub, char *, const char *name, int, uint3 *,
                            uint3 *, dim3 *, dim3 *, int *) {
    kernels()[stub] = name;
}

/* The stubs' own launches, of which specrt makes none. */
unsigned __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *) {
    return 1;
}
cudaError_t __cudaGetKernel(cudaKernel_t *, const void *) {
    return cudaErrorUnknown;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t) {
    return cudaErrorUnknown;
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
    auto found = kernels().find(stub);
    const ptx::program *code = found == kernels().end() ? NULL : ptx::decode(found->second);
    if (!code) return cudaErrorInvalidDeviceFunction;
    cudaError_t error = check_launch(*code, block, shared_bytes);
    if (error != cudaSuccess) return error;
    std::vector<char> params(code->param_bytes);
    for (size_t k = 0; k < code->params.size(); k++)
        memcpy(&params[code->params[k].offset], arguments[k], code->params[k].bytes);
    harness_launch launch = {grid, block, shared_bytes,
                             [=]() {
                                 const uint32_t blocks[] = {grid.x, grid.y, grid.z};
                                 const uint32_t threads[] = {block.x, block.y, block.z};
                                 ptx::run_grid(*code, blocks, threads, (uint32_t)shared_bytes,
                                               params.data());
                             },
                             stub};
    return harness_submit(launch, stream);
}

} // extern "C"
