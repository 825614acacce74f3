/* specrt_kernels.cu : the decoding cycle on a GPU. The launch functions are declared and documented in
 * specrt.h under >>cuda; a kernel stands in the section that its CPU twin has in the header. Launches
 * check their arguments, take a stream, and neither wait nor allocate. Counts live on the device: a grid is
 * sized for the bound and its blocks return early, so that a cycle can be captured as a graph. Sums run in
 * a fixed order and no float is added atomically: results do not depend on scheduling.
 *
 * Compiles with nvcc, and with a C++11 compiler under SPECRT_HARNESS (tests/gpu/harness.h).
 *
 * Kernels:
 *     specrt__active_pack_rows       rows of the head to their places in packed segments
 */
#if defined(__NVCC__)
#pragma nv_diag_suppress 1675 /* gcc's pragmas */
#pragma nv_diag_suppress 177  /* what of the implementation is not used */
#endif

/* The implementation too, for what kernels share with their twins and sessions with policies. */
#define SPECRT_STATIC
#define SPECRT_NO_ZSTD
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#define CUDA_NO_HALF /* __half without another name */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// >>launch (uses:)
// Owns how kernels are launched, and one wrapper for each thing that hardware has and the harness has
// not. Nothing else in this file depends on the compiler.

#if defined(SPECRT_HARNESS)
#include "harness.h"
#endif

static inline specrt_status specrt__launch_status(cudaError_t error) {
    return error == cudaSuccess ? SPECRT_STATUS_OK : SPECRT_STATUS_DEVICE;
}

#if defined(SPECRT_CUDA_DEBUG)
/* The first kernel that failed since this thread's last specrt_cuda_check(), and how. */
static thread_local const char *specrt__launch_culprit;
static thread_local cudaError_t specrt__launch_error;

/* Waits for a kernel, so that what it did wrong is told of it; not while its stream is being captured. */
static specrt_status specrt__launch_finish(const char *kernel, void *stream, cudaError_t error) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (error == cudaSuccess) error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        error = cudaStreamSynchronize((cudaStream_t)stream);
    if (error != cudaSuccess && !specrt__launch_culprit) {
        specrt__launch_culprit = kernel;
        specrt__launch_error = error;
    }
    return specrt__launch_status(error);
}
#else
#define specrt__launch_finish(kernel, stream, error) specrt__launch_status(error)
#endif

/* Starts a kernel: a specrt_status. A kernel with template arguments stands in parentheses. */
#if defined(SPECRT_HARNESS)
#define SPECRT__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
    specrt__launch_finish(#kernel, stream,                                                         \
                          harness_start(kernel, grid, block, shared_bytes, stream, __VA_ARGS__))
#define SPECRT__LAUNCH_DYNAMIC(type, name) type *name = (type *)(void *)harness_dynamic()
#else
#define SPECRT__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
    (kernel<<<grid, block, shared_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__),                   \
     specrt__launch_finish(#kernel, stream, cudaGetLastError()))
#define SPECRT__LAUNCH_DYNAMIC(type, name)                                                         \
    extern __shared__ __align__(16) unsigned char specrt__launch_bytes[];                          \
    type *name = (type *)(void *)specrt__launch_bytes
#endif

static inline unsigned specrt__launch_blocks(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

/* --- the device --- */

/* Asked for, to learn whether there is code for the device. */
static __global__ void specrt__launch_probe(int32_t *out) {
    *out = 1;
}

#define SPECRT__LAUNCH_TEXT(...) #__VA_ARGS__
#define SPECRT__LAUNCH_LIST(...) SPECRT__LAUNCH_TEXT(__VA_ARGS__)
#if !defined(__CUDA_ARCH_LIST__)
#define __CUDA_ARCH_LIST__ unknown
#endif

SPECRT_CUDA_API specrt_status specrt_cuda_open(specrt_error *err) {
    int n = 0, device = 0, major = 0, minor = 0;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        (void)cudaGetLastError();
        return specrt_error_set(err, SPECRT_STATUS_NO_DEVICE,
                                "cuda: expected a GPU and its driver, found none: %s",
                                error == cudaSuccess ? "no device" : cudaGetErrorString(error));
    }
    if (cudaFuncGetAttributes(&attributes, (const void *)specrt__launch_probe) == cudaSuccess)
        return SPECRT_STATUS_OK;
    (void)cudaGetLastError();
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return specrt_error_set(err, SPECRT_STATUS_DEVICE_ARCH,
                            "cuda: architecture: expected one of %s, found %d%d0; build with make "
                            "cuda CUDA_ARCH=%d%d",
                            SPECRT__LAUNCH_LIST(__CUDA_ARCH_LIST__), major, minor, major, minor);
}

SPECRT_CUDA_API specrt_status specrt_cuda_check(specrt_error *err) {
    const char *culprit = "";
    cudaError_t error = cudaGetLastError();
#if defined(SPECRT_CUDA_DEBUG)
    if (specrt__launch_culprit) culprit = specrt__launch_culprit, error = specrt__launch_error;
    specrt__launch_culprit = NULL;
#endif
    if (error == cudaSuccess) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_DEVICE, "cuda: %s%s%s", culprit,
                            *culprit ? ": " : "", cudaGetErrorString(error));
}

// >>active (uses: launch base simd)
// Owns the packing of rows.

/* The bytes of a row whose type is computed as stored, and packed as it is; 0: not such a row. */
static size_t specrt__active_stored_bytes(specrt_dtype dtype, int64_t n_cols) {
    if (specrt__simd_format(dtype) < 0 || n_cols > INT32_MAX) return 0;
    return specrt_row_bytes(dtype, n_cols);
}

enum { SPECRT__ACTIVE_PACK_THREADS = 128 };

/* Block (i, b): rows[slot, :] = head[row_of[ids[slot]], :] where slot = slots[i], the i-th place to fill of
 * sequence b, and its bias.
 *   grid (max_n, n_batch), block SPECRT__ACTIVE_PACK_THREADS
 *   Unit : 16, 4 or 2 bytes; divides addresses, strides and row_bytes
 *   CPU twin: specrt__active_pack() */
template <typename Unit>
static __global__ void specrt__active_pack_rows(specrt_cuda_head head,
                                                const specrt_cuda_packing *packings,
                                                size_t row_bytes, size_t row_stride) {
    specrt_cuda_packing p = packings[blockIdx.y];
    int32_t i = (int32_t)blockIdx.x, n_units = (int32_t)(row_bytes / sizeof(Unit));
    if (i >= *p.n) return;
    int32_t slot = p.slots ? p.slots[i] : i, id = p.ids[slot];
    int32_t row = head.row_of ? head.row_of[id] : id;
    const Unit *from = (const Unit *)((const char *)head.rows + (size_t)row * head.row_stride);
    Unit *to = (Unit *)((char *)p.rows + (size_t)slot * row_stride);
    for (int32_t j = (int32_t)threadIdx.x; j < n_units; j += (int32_t)blockDim.x)
        to[j] = __ldg(from + j);
    if (p.bias && threadIdx.x == 0) p.bias[slot] = head.bias ? head.bias[row] : 0.0f;
}

SPECRT_CUDA_API specrt_status specrt_cuda_pack(const specrt_cuda_head *head,
                                               const specrt_cuda_packing *packings, int32_t n_batch,
                                               int32_t max_n, size_t row_stride, void *stream) {
    if (!head || !head->rows || !packings || max_n < 1) return SPECRT_STATUS_BAD_ARG;
    if (n_batch < 1 || n_batch > SPECRT_CUDA_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    size_t bytes = specrt__active_stored_bytes(head->dtype, head->n_cols);
    if (bytes == 0) return SPECRT_STATUS_UNSUPPORTED;
    if (head->row_stride < bytes || row_stride < bytes) return SPECRT_STATUS_BAD_ARG;
    uint64_t all = (uintptr_t)head->rows | head->row_stride | row_stride | bytes;
    dim3 grid((unsigned)max_n, (unsigned)n_batch), block(SPECRT__ACTIVE_PACK_THREADS);
    if (all % sizeof(uint4) == 0)
        return SPECRT__LAUNCH(specrt__active_pack_rows<uint4>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    if (all % sizeof(uint32_t) == 0)
        return SPECRT__LAUNCH(specrt__active_pack_rows<uint32_t>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    if (all % sizeof(uint16_t) != 0) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__active_pack_rows<uint16_t>, grid, block, 0, stream, *head,
                          packings, bytes, row_stride);
}
