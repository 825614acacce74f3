/* launch.cuh : owns how kernels are launched, and one wrapper for each thing that hardware has and the
 * harness has not. Nothing else in this file depends on the compiler. */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

#include "cuda/kernels.h"
#include "core/base.h"

#define CUDA_NO_HALF /* __half without another name */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#if defined(SPECRT_HARNESS)
#include "harness.h"
#endif

static inline specrt_status specrt__launch_status(cudaError_t error) {
    if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread)
        return SPECRT_STATUS_CAPTURE;
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

/* Starts a kernel. @return what became of it alone, which the runtime keeps for specrt_cuda_check(); the
 * runtime's last error may be that of any call before, also one of the application's. */
#if defined(SPECRT_HARNESS)
#define specrt__launch_start               harness_start
#define SPECRT__LAUNCH_DYNAMIC(type, name) type *name = (type *)(void *)harness_dynamic()
#define SPECRT__LAUNCH_UNROLL
#define SPECRT__LAUNCH_UNROLL_BY(n)
#else
template <typename T> struct specrt__launch_same {
    typedef T type; /* not deduced: arguments are converted to what the kernel takes */
};

template <typename... Parameters>
static cudaError_t specrt__launch_start(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        size_t shared_bytes, void *stream,
                                        typename specrt__launch_same<Parameters>::type... x) {
    void *addresses[] = {(void *)&x...};
    return cudaLaunchKernel((const void *)kernel, grid, block, addresses, shared_bytes,
                            (cudaStream_t)stream);
}

#define SPECRT__LAUNCH_DYNAMIC(type, name)                                                         \
    extern __shared__ __align__(16) unsigned char specrt__launch_bytes[];                          \
    type *name = (type *)(void *)specrt__launch_bytes
#define SPECRT__LAUNCH_UNROLL       _Pragma("unroll")
#define SPECRT__LAUNCH_PRAGMA(text) _Pragma(#text)
#define SPECRT__LAUNCH_UNROLL_BY(n) SPECRT__LAUNCH_PRAGMA(unroll n)
#endif

/* The same: a specrt_status. A kernel with template arguments stands in parentheses. */
#define SPECRT__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
    specrt__launch_finish(                                                                         \
        #kernel, stream,                                                                           \
        specrt__launch_start(kernel, grid, block, shared_bytes, stream, __VA_ARGS__))

/* Zeroes n elements on the device, in the stream's turn. */
template <typename T> static specrt_status specrt__launch_clear(T *x, size_t n, void *stream) {
    return specrt__launch_status(cudaMemsetAsync(x, 0, n * sizeof *x, (cudaStream_t)stream));
}

static inline unsigned specrt__launch_blocks(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

/* Multiprocessors of the current device; 1, where that is not told. A thread asks once for a device. */
static int32_t specrt__launch_multiprocessors(void) {
    static thread_local int known = -1, n = 1;
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device == known) return n;
    if (cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || n < 1)
        n = 1;
    known = device;
    return n;
}

/* Blocks for each of n_batch sequences with up to n things to do in turn: in all as many as run at once. */
static unsigned specrt__launch_share(int32_t n, int32_t n_batch) {
    int32_t most = 8 * specrt__launch_multiprocessors() / n_batch;
    if (most < 1) most = 1;
    return (unsigned)(n < most ? n : most);
}

/* --- a block of memory as arrays --- */

/* Where the next array begins in a block; with base NULL only that is counted. */
typedef struct specrt__launch_arena {
    void *base;
    size_t bytes;
} specrt__launch_arena;

/* The next n elements. What comes after them begins a line. */
template <typename T> static void specrt__launch_carve(specrt__launch_arena *a, size_t n, T **out) {
    *out = a->base ? (T *)(void *)((uint8_t *)a->base + a->bytes) : NULL;
    a->bytes = (size_t)specrt__base_align(a->bytes + n * sizeof(T), 256);
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
    error = cudaFuncGetAttributes(&attributes, (const void *)specrt__launch_probe);
    if (error == cudaSuccess) return SPECRT_STATUS_OK;
    (void)cudaGetLastError();
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
        error != cudaErrorUnsupportedPtxVersion) /* it is full, or another's alone */
        return specrt_error_set(err, SPECRT_STATUS_DEVICE, "cuda: %s", cudaGetErrorString(error));
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

/* --- numbers of 16 bits, in pairs: the lower half first --- */

static __device__ float2 specrt__launch_unpack_f16(uint32_t pair) {
    return make_float2(__half2float(__ushort_as_half((unsigned short)(pair & 0xffff))),
                       __half2float(__ushort_as_half((unsigned short)(pair >> 16))));
}

static __device__ float2 specrt__launch_unpack_bf16(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

static __device__ uint32_t specrt__launch_pack_f16(float x, float y) {
    return (uint32_t)__half_as_ushort(__float2half_rn(x)) |
           (uint32_t)__half_as_ushort(__float2half_rn(y)) << 16;
}

static __device__ uint32_t specrt__launch_pack_bf16(float x, float y) {
    __nv_bfloat162 both = __floats2bfloat162_rn(x, y); /* at once: one alone is converted slowly */
    return (uint32_t)__bfloat16_as_ushort(both.x) | (uint32_t)__bfloat16_as_ushort(both.y) << 16;
}

/* The same, but the greatest number in place of those that f16 does not reach; NaN stays NaN. */
static __device__ uint32_t specrt__launch_pack_f16_cut(float x, float y) {
    const float kMost = 65504.0f;
#if defined(__CUDA_ARCH__)
    __half2 most = __float2half2_rn(kMost), least = __float2half2_rn(-kMost);
    __half2 both = __hmax2_nan(__hmin2_nan(__floats2half2_rn(x, y), most), least);
    return (uint32_t)__half_as_ushort(__low2half(both)) |
           (uint32_t)__half_as_ushort(__high2half(both)) << 16;
#else
    x = x > kMost ? kMost : x < -kMost ? -kMost : x;
    y = y > kMost ? kMost : y < -kMost ? -kMost : y;
    return specrt__launch_pack_f16(x, y);
#endif
}

/* a - b, where f16 holds it. */
static __device__ uint32_t specrt__launch_sub_f16(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
#else
    float2 x = specrt__launch_unpack_f16(a), y = specrt__launch_unpack_f16(b);
    return specrt__launch_pack_f16(x.x - y.x, x.y - y.y);
#endif
}

/* Two bytes of four, the lower or the higher ones, each below a byte of `above`, whose bytes are alike. */
static __device__ uint32_t specrt__launch_spread(uint32_t four, bool higher, uint32_t above) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(four, above, higher ? 0x4342 : 0x4140);
#else
    four >>= higher ? 16 : 0;
    return (four & 0xff) | (four & 0xff00) << 8 | (above & 0xff00ff00u);
#endif
}

/* --- instructions that the harness has not --- */

/* Operands of a 16 x 8 x 16 product: lane l holds of A rows l / 4 and l / 4 + 8 and of B column l / 4,
 * each at the pairs l % 4 and l % 4 + 4 of the inner dimension. */
typedef struct specrt__launch_operands {
    uint32_t a[4], b[2]; /* a: row, row + 8, then the same at the later pair */
} specrt__launch_operands;

#if defined(SPECRT_HARNESS) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)

static __device__ float2 specrt__launch_pair(bool bf16, uint32_t pair) {
    return bf16 ? specrt__launch_unpack_bf16(pair) : specrt__launch_unpack_f16(pair);
}

#if defined(SPECRT_HARNESS)
#define SPECRT__LAUNCH_FETCH(word, lane)                                                           \
    harness_read<specrt__launch_operands>(0xffffffffu, all, lane).word
#else
#define SPECRT__LAUNCH_FETCH(word, lane) __shfl_sync(0xffffffffu, x.word, lane)
#endif

/* The scalar body: a lane asks those that hold its rows and columns. */
static __device__ __noinline__ void specrt__launch_mma_scalar(bool bf16, specrt__launch_operands x,
                                                              float *c) {
    int lane = (int)threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#if defined(SPECRT_HARNESS)
    const unsigned char *all = harness_warp(0xffffffffu, "mma", &x, sizeof x);
#endif
    for (int k = 0; k < 8; k++) {
        float2 a[2], b[2];
        for (int i = 0; i < 2; i++) {
            uint32_t pair = SPECRT__LAUNCH_FETCH(a[k / 4 * 2 + i], 4 * row + k % 4);
            a[i] = specrt__launch_pair(bf16, pair);
            pair = SPECRT__LAUNCH_FETCH(b[k / 4], 4 * (column + i) + k % 4);
            b[i] = specrt__launch_pair(bf16, pair);
        }
        for (int i = 0; i < 4; i++) c[i] += a[i / 2].x * b[i % 2].x + a[i / 2].y * b[i % 2].y;
    }
}

#endif

/* c[4] += A B with sums in f32: of rows lane / 4 and lane / 4 + 8 the columns lane % 4 * 2 and the next.
 * Operands are f16 or bf16. All lanes of a warp take part. */
template <bool kBf16>
static __device__ void specrt__launch_mma(specrt__launch_operands x, float *c) {
#if defined(SPECRT_HARNESS) || !defined(__CUDA_ARCH__)
    specrt__launch_mma_scalar(kBf16, x, c);
#elif __CUDA_ARCH__ >= 800
    if (kBf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]),
                       "r"(x.b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]),
                       "r"(x.b[1]));
#else
    if (kBf16) /* came with sm_80 */
        specrt__launch_mma_scalar(kBf16, x, c);
    else
        for (int half = 0; half < 2; half++)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                         "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                         : "r"(x.a[2 * half]), "r"(x.a[2 * half + 1]), "r"(x.b[half]));
#endif
}

/* Reads what nobody reads again, past the first cache, which is left to what is read often; with it comes
 * the other half of the line. Nobody writes it while the kernel runs. */
static __device__ uint4 specrt__launch_read_once(const uint4 *p) {
#if defined(__CUDA_ARCH__)
    uint4 x;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
        : "l"(p));
    return x;
#else
    return *p;
#endif
}

/* Begins to copy 16 bytes to shared memory, where this thread alone reads them, after a wait. It may have
 * read what stood there just before. Other than a load into a register, no compiler moves it to its use.
 *   kCached : neighbours read the rest of the line */
template <bool kCached> static __device__ void specrt__launch_copy(uint4 *to, const uint4 *from) {
#if defined(SPECRT_HARNESS)
    harness_copy(to, from, sizeof *to);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if (kCached)
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from)
                     : "memory");
#else
    *to = specrt__launch_read_once(from);
#endif
}

/* The same of 4 bytes. */
static __device__ void specrt__launch_copy_word(uint32_t *to, const uint32_t *from) {
#if defined(SPECRT_HARNESS)
    harness_copy(to, from, sizeof *to);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
#else
    *to = __ldg(from);
#endif
}

/* What this thread began to copy since the last call is a group, which may be empty. */
static __device__ void specrt__launch_copied(void) {
#if defined(SPECRT_HARNESS)
    harness_copied();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all groups but the kLeft last ones. */
template <int kLeft> static __device__ void specrt__launch_wait(void) {
#if defined(SPECRT_HARNESS)
    harness_wait(kLeft);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

/* c[4] += A B in whole numbers of 8 bits, 16 x 8 x 16: as above, of four numbers where that has a pair. All
 * lanes of a warp take part.
 *   a : row, row + 8 */
static __device__ void specrt__launch_mma_s8(uint32_t a0, uint32_t a1, uint32_t b, int32_t *c) {
#if defined(SPECRT_HARNESS)
    int lane = (int)threadIdx.x % 32;
    uint4 x = make_uint4(a0, a1, b, 0);
    const unsigned char *all = harness_warp(0xffffffffu, "mma", &x, sizeof x);
    for (int k = 0; k < 4; k++) {
        uint4 rows = harness_read<uint4>(0xffffffffu, all, lane / 4 * 4 + k);
        for (int i = 0; i < 4; i++) {
            x = harness_read<uint4>(0xffffffffu, all, lane % 4 * 8 + i % 2 * 4 + k);
            c[i] = __dp4a((int)(i < 2 ? rows.x : rows.y), (int)x.z, c[i]);
        }
    }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    for (int half = 0; half < 2; half++)
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[2 * half]), "+r"(c[2 * half + 1])
            : "r"(half ? a1 : a0), "r"(b));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#endif
}

/* Orders what this thread has seen and written before what it does next, for threads of other blocks that
 * fence likewise; what its block's barriers ordered before, too. Lighter than __threadfence(), which orders
 * all threads' accesses in one row. */
static __device__ void specrt__launch_fence(void) {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
    __threadfence();
#endif
}

/* Asks for memory that is needed soon; any address will do. */
static __device__ void specrt__launch_prefetch(const void *p) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}

#endif
