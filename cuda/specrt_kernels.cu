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
 *     specrt__head_few               logits of 1 to 4 states, row by row
 *     specrt__head_tiles             logits of 5 to 64 states, on tensor cores
 *     specrt__active_rank_parts      the best k of each part of a row of logits, and its sum
 *     specrt__active_rank_join       the best k of a row, and log-probabilities
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
#define SPECRT__LAUNCH_UNROLL
#else
#define SPECRT__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
    (kernel<<<grid, block, shared_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__),                   \
     specrt__launch_finish(#kernel, stream, cudaGetLastError()))
#define SPECRT__LAUNCH_DYNAMIC(type, name)                                                         \
    extern __shared__ __align__(16) unsigned char specrt__launch_bytes[];                          \
    type *name = (type *)(void *)specrt__launch_bytes
#define SPECRT__LAUNCH_UNROLL _Pragma("unroll")
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
    return (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(x)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(y)) << 16;
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
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]), "r"(x.b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]), "r"(x.b[1]));
#else
    if (kBf16) { /* came with sm_80 */
        specrt__launch_mma_scalar(kBf16, x, c);
        return;
    }
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(x.a[2 * half]), "r"(x.a[2 * half + 1]), "r"(x.b[half]));
#endif
}

// >>block (uses: launch active)
// Owns sums, ranks and selections over one block, in an order that depends on nothing but its size. All
// its threads call, in blocks of a multiple of 32 threads, 1024 at most.

enum { SPECRT__BLOCK_WARPS = 32 };

static __device__ int specrt__block_thread(void) {
    return (int)threadIdx.x;
}

static __device__ int specrt__block_threads(void) {
    return (int)blockDim.x;
}

/* How many flags of the block are set; *before: of lower threads. */
static __device__ int32_t specrt__block_rank(bool flag, int32_t *before) {
    __shared__ int32_t sums[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, warp = specrt__block_thread() / 32;
    unsigned ballot = __ballot_sync(0xffffffffu, flag);
    int32_t below = __popc(ballot & ((1u << lane) - 1)), total = 0;
    if (lane == 0) sums[warp] = __popc(ballot);
    __syncthreads();
    for (int w = 0; w < specrt__block_threads() / 32; w++) {
        if (w < warp) below += sums[w];
        total += sums[w];
    }
    __syncthreads();
    *before = below;
    return total;
}

/* The greatest x. */
static __device__ uint64_t specrt__block_max(uint64_t x) {
    __shared__ uint64_t greatest[SPECRT__BLOCK_WARPS];
    for (int by = 16; by > 0; by /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, x, by);
        if (other > x) x = other;
    }
    if (specrt__block_thread() % 32 == 0) greatest[specrt__block_thread() / 32] = x;
    __syncthreads();
    for (int w = 0; w < specrt__block_threads() / 32; w++)
        if (greatest[w] > x) x = greatest[w];
    __syncthreads();
    return x;
}

/* The sum of x: pairwise within a warp, then warp by warp. */
static __device__ double specrt__block_sum(double x) {
    __shared__ double sums[SPECRT__BLOCK_WARPS];
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    if (specrt__block_thread() % 32 == 0) sums[specrt__block_thread() / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < specrt__block_threads() / 32; w++) x += sums[w];
    __syncthreads();
    return x;
}

/* Orders a logit as an unsigned number: NaN below all, -0 as 0. Twin: specrt__active_key. */
static __device__ uint32_t specrt__block_order(float logit) {
    uint32_t bits = __float_as_uint(logit + 0.0f);
    if (logit != logit) return 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ uint64_t specrt__block_key(float logit, int32_t id) {
    return (uint64_t)specrt__block_order(logit) << 32 | (uint32_t)~id;
}

static __device__ int32_t specrt__block_key_id(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

// >>head (uses: launch base simd)
// Owns products of segments with hidden states. Rows are read as they are stored, hidden states as they
// come; sums are f32. Few states: a warp takes whole rows. More: tensor cores, on which a state is the
// sum of two halves, so that it keeps 16 (bf16) or 22 bits.

/* The bytes of a row whose type is computed as stored, and packed as it is; 0: not such a row. */
static size_t specrt__head_stored_bytes(specrt_dtype dtype, int64_t n_cols) {
    if (specrt__simd_format(dtype) < 0 || n_cols > SPECRT_CUDA_MAX_COLS) return 0;
    return specrt_row_bytes(dtype, n_cols);
}

/* --- eight columns at a time --- */

typedef struct specrt__head_eight {
    uint32_t pairs[4]; /* f16 or bf16, as the row; q8_0: codes as f16 */
    float scale;       /* of q8_0, else 1 */
} specrt__head_eight;

static __device__ uint32_t specrt__head_halves(const uint16_t *x, int32_t at, int32_t n) {
    return (uint32_t)(at < n ? x[at] : 0) | (uint32_t)(at + 1 < n ? x[at + 1] : 0) << 16;
}

/* Two codes of 8 bits as f16: the last bits of 1024 + 128 + code are the code's. */
static __device__ uint32_t specrt__head_codes(uint32_t two) {
    uint32_t magic = ((two & 0xff) | (two & 0xff00) << 8) ^ 0x64806480u;
    float2 x = specrt__launch_unpack_f16(magic);
    return specrt__launch_pack_f16(x.x - 1152, x.y - 1152);
}

/* Columns 8 * chunk on of a row, zeros beyond n_cols.
 *   wide : the row is aligned to 16 bytes */
template <specrt_dtype kDtype>
static __device__ specrt__head_eight specrt__head_load(const void *row, int32_t chunk,
                                                       int32_t n_cols, bool wide) {
    specrt__head_eight out;
    const uint16_t *x = (const uint16_t *)row;
    out.scale = 1;
    if (kDtype == SPECRT_DTYPE_Q8_0) {
        const uint16_t *block = x + chunk / 4 * 17;
        bool in = 8 * chunk < n_cols;
        out.scale = in ? __half2float(__ushort_as_half(block[0])) : 0.0f;
        for (int i = 0; i < 4; i++)
            out.pairs[i] = in ? specrt__head_codes(block[1 + chunk % 4 * 4 + i]) : 0;
    } else if (wide && 8 * chunk + 8 <= n_cols) {
        uint4 four = __ldg((const uint4 *)row + chunk);
        out.pairs[0] = four.x, out.pairs[1] = four.y, out.pairs[2] = four.z, out.pairs[3] = four.w;
    } else {
        for (int i = 0; i < 4; i++)
            out.pairs[i] = specrt__head_halves(x, 8 * chunk + 2 * i, n_cols);
    }
    return out;
}

template <specrt_dtype kDtype> static __device__ float2 specrt__head_unpack(uint32_t pair) {
    return kDtype == SPECRT_DTYPE_BF16 ? specrt__launch_unpack_bf16(pair)
                                       : specrt__launch_unpack_f16(pair);
}

static __device__ void specrt__head_floats(const float *x, int32_t chunk, int32_t n_cols, bool wide,
                                           float *out) {
    if (wide && 8 * chunk + 8 <= n_cols) {
        float4 a = __ldg((const float4 *)x + 2 * chunk),
               b = __ldg((const float4 *)x + 2 * chunk + 1);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
    for (int i = 0; i < 8; i++) out[i] = 8 * chunk + i < n_cols ? x[8 * chunk + i] : 0.0f;
}

/* The same as numbers. */
template <specrt_dtype kDtype>
static __device__ void specrt__head_numbers(const void *row, int32_t chunk, int32_t n_cols,
                                            bool wide, float *out) {
    if (kDtype == SPECRT_DTYPE_F32) {
        specrt__head_floats((const float *)row, chunk, n_cols, wide, out);
        return;
    }
    specrt__head_eight eight = specrt__head_load<kDtype>(row, chunk, n_cols, wide);
    for (int i = 0; i < 4; i++) {
        float2 two = specrt__head_unpack<kDtype>(eight.pairs[i]);
        out[2 * i] = two.x * eight.scale;
        out[2 * i + 1] = two.y * eight.scale;
    }
}

/* --- what a product is given --- */

typedef struct specrt__head_product {
    const specrt_cuda_segment *segments; /* [n_batch, n_segments] */
    specrt_cuda_layout layout;
    int32_t starts[SPECRT_CUDA_MAX_SEGMENTS]; /* first column of each segment */
    int32_t n_columns;
    const void *hidden; /* [n_batch, max_n, n_cols] */
    specrt_dtype dtype; /* of hidden */
    int32_t max_n, n_step;
    const int32_t *n; /* of sequence b: n[b * n_step]; NULL: max_n */
    int32_t first;    /* the state to begin with */
    float *logits;    /* [n_batch, max_n, n_columns] */
} specrt__head_product;

static __device__ int32_t specrt__head_count(const specrt__head_product &p, int32_t sequence) {
    int32_t n = p.n ? p.n[(int64_t)sequence * p.n_step] : p.max_n;
    return n < p.max_n ? n : p.max_n;
}

static __device__ int32_t specrt__head_rows(const specrt_cuda_segment &s) {
    int32_t n = s.n_rows ? *s.n_rows : s.max_rows;
    return n < s.max_rows ? n : s.max_rows;
}

static __device__ const char *specrt__head_row_at(const specrt_cuda_segment &s, int32_t row) {
    return (const char *)s.rows + (size_t)(s.places ? s.places[row] : row) * s.row_stride;
}

static __device__ bool specrt__head_wide(const void *p, size_t stride) {
    return ((uintptr_t)p | stride) % 16 == 0;
}

/* Hidden state `state` of a sequence: its columns 8 * chunk on. */
static __device__ void specrt__head_state(const specrt__head_product &p, int32_t sequence,
                                          int32_t state, int32_t chunk, float *out) {
    int32_t n_cols = (int32_t)p.layout.n_cols;
    size_t at = ((size_t)sequence * (size_t)p.max_n + (size_t)state) * (size_t)n_cols;
    const void *from = (const char *)p.hidden + at * (p.dtype == SPECRT_DTYPE_F32 ? 4 : 2);
    bool wide = (uintptr_t)from % 16 == 0;
    if (p.dtype == SPECRT_DTYPE_F32)
        specrt__head_numbers<SPECRT_DTYPE_F32>(from, chunk, n_cols, wide, out);
    else if (p.dtype == SPECRT_DTYPE_F16)
        specrt__head_numbers<SPECRT_DTYPE_F16>(from, chunk, n_cols, wide, out);
    else
        specrt__head_numbers<SPECRT_DTYPE_BF16>(from, chunk, n_cols, wide, out);
}

static __device__ void specrt__head_put(const specrt__head_product &p, const specrt_cuda_segment &s,
                                        int32_t row, int32_t state, float logit) {
    size_t at = (size_t)blockIdx.z * (size_t)p.max_n + (size_t)state;
    if (s.masked && (s.masked[row / 32] >> row % 32 & 1))
        logit = -INFINITY;
    else if (s.bias)
        logit += s.bias[s.places ? s.places[row] : row];
    p.logits[at * (size_t)p.n_columns + (size_t)(p.starts[blockIdx.y] + row)] = logit;
}

/* --- few states --- */

enum { SPECRT__HEAD_FEW_WARPS = 4, SPECRT__HEAD_FEW_ROWS = 2, SPECRT__HEAD_FEW = 4 };

/* Block (i, s, b): logits[b, first : first + kStates, rows] = hidden[b, first : first + kStates, :] @
 * rows[:, :]^T for SPECRT__HEAD_FEW_ROWS rows of segment s a warp; lane l sums columns 8 l to 8 l + 7 of
 * every 256, then lanes in pairs.
 *   grid (rows / (warps * rows of each), n_segments, n_batch), block 32 * SPECRT__HEAD_FEW_WARPS
 *   CPU twin: specrt_active_logits() */
template <specrt_dtype kDtype, int kStates>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_FEW_WARPS)
    specrt__head_few(specrt__head_product p) {
    const int kRows = SPECRT__HEAD_FEW_ROWS;
    int32_t b = (int32_t)blockIdx.z, n = specrt__head_count(p, b) - p.first;
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt_cuda_segment s = p.segments[b * p.layout.n_segments + (int32_t)blockIdx.y];
    int32_t row = ((int32_t)blockIdx.x * SPECRT__HEAD_FEW_WARPS + warp) * kRows;
    int32_t n_rows = specrt__head_rows(s), n_cols = (int32_t)p.layout.n_cols;
    if (p.layout.dtypes[blockIdx.y] != kDtype || n <= 0 || row >= n_rows) return;
    const char *rows[SPECRT__HEAD_FEW_ROWS];
    bool wide = specrt__head_wide(s.rows, s.row_stride);
    float sums[kStates][SPECRT__HEAD_FEW_ROWS], x[8], w[8];
    for (int r = 0; r < kRows; r++)
        rows[r] = specrt__head_row_at(s, row + r < n_rows ? row + r : n_rows - 1);
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kStates * kRows; i++) sums[i / kRows][i % kRows] = 0;
    for (int32_t chunk = lane; 8 * chunk < n_cols; chunk += 32) {
        float weights[SPECRT__HEAD_FEW_ROWS][8];
        SPECRT__LAUNCH_UNROLL
        for (int r = 0; r < kRows; r++) {
            specrt__head_numbers<kDtype>(rows[r], chunk, n_cols, wide, w);
            SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 8; i++) weights[r][i] = w[i];
        }
        SPECRT__LAUNCH_UNROLL
        for (int h = 0; h < kStates; h++) {
            specrt__head_state(p, b, p.first + (h < n ? h : n - 1), chunk, x);
            SPECRT__LAUNCH_UNROLL
            for (int r = 0; r < kRows; r++) SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 8; i++) sums[h][r] = fmaf(weights[r][i], x[i], sums[h][r]);
        }
    }
    SPECRT__LAUNCH_UNROLL
    for (int h = 0; h < kStates; h++) SPECRT__LAUNCH_UNROLL
    for (int r = 0; r < kRows; r++) {
        float sum = sums[h][r];
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0 && h < n && row + r < n_rows)
            specrt__head_put(p, s, row + r, p.first + h, sum);
    }
}

/* --- more states: tensor cores --- */

enum { SPECRT__HEAD_TILE_WARPS = 8 };

static __device__ float specrt__head_cut(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

/* The pair (x, y) rounded to 16 bits, and what is left of it. What f16 does not reach is cut. */
template <bool kBf16>
static __device__ uint32_t specrt__head_round(float x, float y, float2 *rest) {
    uint32_t out = kBf16 ? specrt__launch_pack_bf16(x, y)
                         : specrt__launch_pack_f16(specrt__head_cut(x), specrt__head_cut(y));
    float2 back = kBf16 ? specrt__launch_unpack_bf16(out) : specrt__launch_unpack_f16(out);
    *rest = make_float2(x - back.x, y - back.y);
    return out;
}

/* sums[kTiles][4] += 16 rows times kTiles * 8 states over columns 32 * step on. A lane brings 8 columns of
 * rows lane / 4 and lane / 4 + 8 and of state lane / 4 of every tile: pairs 0 and 1 to one product, 2 and 3
 * to another, so that the order of columns within the 32 is the lanes' own. */
template <specrt_dtype kDtype, int kTiles>
static __device__ void specrt__head_tile_step(const specrt__head_product &p, int32_t n,
                                              const char *const *rows, bool wide, int32_t step,
                                              float (*sums)[4]) {
    const bool kBf16 = kDtype == SPECRT_DTYPE_BF16;
    int32_t lane = (int32_t)(threadIdx.x % 32), n_cols = (int32_t)p.layout.n_cols;
    int32_t chunk = 4 * step + lane % 4;
    specrt__head_eight a[2];
    specrt__launch_operands x;
    float z[8];
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) a[i] = specrt__head_load<kDtype>(rows[i], chunk, n_cols, wide);
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kTiles; t++) {
        int32_t state = p.first + 8 * t + lane / 4;
        float part[4] = {0, 0, 0, 0}, *to = kDtype == SPECRT_DTYPE_Q8_0 ? part : sums[t];
        specrt__head_state(p, (int32_t)blockIdx.z, state < n ? state : n - 1, chunk, z);
        SPECRT__LAUNCH_UNROLL
        for (int half = 0; half < 2; half++) {
            float2 rest[2];
            SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 4; i++) x.a[i] = a[i % 2].pairs[2 * half + i / 2];
            SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 2; i++)
                x.b[i] = specrt__head_round<kBf16>(z[4 * half + 2 * i], z[4 * half + 2 * i + 1],
                                                   &rest[i]);
            specrt__launch_mma<kBf16>(x, to);
            if (p.dtype == kDtype) continue; /* nothing is left */
            SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 2; i++) {
                float2 none;
                x.b[i] = specrt__head_round<kBf16>(rest[i].x, rest[i].y, &none);
            }
            specrt__launch_mma<kBf16>(x, to);
        }
        if (kDtype == SPECRT_DTYPE_Q8_0) SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 4; i++) sums[t][i] += part[i] * a[i / 2].scale;
    }
}

/* Block (i, s, b): logits[b, first : first + 8 kTiles, rows] as above, for 16 rows of segment s a group of
 * n_splits warps, each of which takes its share of the columns; their sums are added in order.
 *   grid (rows / (16 * groups), n_segments, n_batch), block 32 * SPECRT__HEAD_TILE_WARPS
 *   n_splits : a power of two up to SPECRT__HEAD_TILE_WARPS
 *   CPU twin: specrt_active_logits() */
template <specrt_dtype kDtype, int kTiles>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_TILE_WARPS)
    specrt__head_tiles(specrt__head_product p, int32_t n_splits) {
    __shared__ float shared[SPECRT__HEAD_TILE_WARPS][16][8 * kTiles];
    int32_t b = (int32_t)blockIdx.z, n = specrt__head_count(p, b);
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt_cuda_segment s = p.segments[b * p.layout.n_segments + (int32_t)blockIdx.y];
    int32_t n_rows = specrt__head_rows(s), n_block = 16 * SPECRT__HEAD_TILE_WARPS / n_splits;
    int32_t first = (int32_t)blockIdx.x * n_block;
    if (p.layout.dtypes[blockIdx.y] != kDtype || n <= p.first || first >= n_rows) return;
    bool wide = specrt__head_wide(s.rows, s.row_stride);
    float sums[kTiles][4];
    const char *rows[2];
    for (int i = 0; i < 2; i++) {
        int32_t row = first + 16 * (warp / n_splits) + lane / 4 + 8 * i;
        rows[i] = specrt__head_row_at(s, row < n_rows ? row : n_rows - 1);
    }
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4 * kTiles; i++) sums[i / 4][i % 4] = 0;
    int32_t n_steps = ((int32_t)p.layout.n_cols + 31) / 32, split = warp % n_splits;
    int32_t end = (int32_t)((int64_t)n_steps * (split + 1) / n_splits);
    for (int32_t step = (int32_t)((int64_t)n_steps * split / n_splits); step < end; step++)
        specrt__head_tile_step<kDtype, kTiles>(p, n, rows, wide, step, sums);
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kTiles; t++) SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++)
        shared[warp][lane / 4 + i / 2 * 8][8 * t + lane % 4 * 2 + i % 2] = sums[t][i];
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n_block * 8 * kTiles; i += (int32_t)blockDim.x) {
        int32_t row = i % n_block, state = i / n_block;
        float sum = 0;
        if (first + row >= n_rows || p.first + state >= n) continue;
        for (int32_t w = 0; w < n_splits; w++)
            sum += shared[row / 16 * n_splits + w][row % 16][state];
        specrt__head_put(p, s, first + row, p.first + state, sum);
    }
}

/* --- launches --- */

/* The columns of a layout, in all and before each segment; 0: it is not one. */
static int32_t specrt__head_lay_out(const specrt_cuda_layout *layout, int32_t *starts) {
    int64_t n = 0;
    if (!layout || layout->n_segments < 1 || layout->n_segments > SPECRT_CUDA_MAX_SEGMENTS)
        return 0;
    for (int32_t i = 0; i < layout->n_segments; i++) {
        starts[i] = (int32_t)n;
        if (layout->max_rows[i] < 1 || layout->max_rows[i] > SPECRT_MAX_VOCAB) return 0;
        n += layout->max_rows[i];
    }
    return n <= INT32_MAX ? (int32_t)n : 0;
}

/* The most rows of segments of a type; 0: there are none. */
static int32_t specrt__head_most(const specrt_cuda_layout *layout, specrt_dtype dtype) {
    int32_t most = 0;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (layout->dtypes[i] == dtype && layout->max_rows[i] > most) most = layout->max_rows[i];
    return most;
}

template <specrt_dtype kDtype, int kStates>
static specrt_status specrt__head_launch_few(const specrt__head_product &p, int32_t n_batch,
                                             void *stream) {
    const int32_t per_block = SPECRT__HEAD_FEW_WARPS * SPECRT__HEAD_FEW_ROWS;
    dim3 grid(specrt__launch_blocks(specrt__head_most(&p.layout, kDtype), per_block),
              (unsigned)p.layout.n_segments, (unsigned)n_batch);
    return SPECRT__LAUNCH((specrt__head_few<kDtype, kStates>), grid, 32 * SPECRT__HEAD_FEW_WARPS, 0,
                          stream, p);
}

template <specrt_dtype kDtype, int kTiles>
static specrt_status specrt__head_launch_tiles(const specrt__head_product &p, int32_t n_batch,
                                               void *stream) {
    /* Short segments need many warps to a row, or most of the device stands idle. */
    int32_t most = specrt__head_most(&p.layout, kDtype), n_splits = most < 8192 ? 8 : 4;
    dim3 grid(specrt__launch_blocks(most, 16 * SPECRT__HEAD_TILE_WARPS / n_splits),
              (unsigned)p.layout.n_segments, (unsigned)n_batch);
    return SPECRT__LAUNCH((specrt__head_tiles<kDtype, kTiles>), grid, 32 * SPECRT__HEAD_TILE_WARPS,
                          0, stream, p, n_splits);
}

/* Up to SPECRT__HEAD_FEW states at a time. */
template <specrt_dtype kDtype>
static specrt_status specrt__head_run_few(specrt__head_product p, int32_t n_batch, void *stream) {
    for (p.first = 0; p.first < p.max_n; p.first += SPECRT__HEAD_FEW) {
        int32_t left = p.max_n - p.first;
        if (left == 1)
            SPECRT__TRY((specrt__head_launch_few<kDtype, 1>(p, n_batch, stream)));
        else if (left == 2)
            SPECRT__TRY((specrt__head_launch_few<kDtype, 2>(p, n_batch, stream)));
        else
            SPECRT__TRY((specrt__head_launch_few<kDtype, SPECRT__HEAD_FEW>(p, n_batch, stream)));
    }
    return SPECRT_STATUS_OK;
}

template <specrt_dtype kDtype>
static specrt_status specrt__head_run(specrt__head_product p, int32_t n_batch, void *stream) {
    if (specrt__head_most(&p.layout, kDtype) == 0) return SPECRT_STATUS_OK;
    if (p.max_n <= SPECRT__HEAD_FEW) return specrt__head_run_few<kDtype>(p, n_batch, stream);
    if (p.max_n <= 8) return specrt__head_launch_tiles<kDtype, 1>(p, n_batch, stream);
    if (p.max_n <= 16) return specrt__head_launch_tiles<kDtype, 2>(p, n_batch, stream);
    if (p.max_n <= 32) return specrt__head_launch_tiles<kDtype, 4>(p, n_batch, stream);
    return specrt__head_launch_tiles<kDtype, 8>(p, n_batch, stream);
}

/* f32 rows would lose bits on tensor cores. */
template <>
specrt_status specrt__head_run<SPECRT_DTYPE_F32>(specrt__head_product p, int32_t n_batch,
                                                 void *stream) {
    if (specrt__head_most(&p.layout, SPECRT_DTYPE_F32) == 0) return SPECRT_STATUS_OK;
    return specrt__head_run_few<SPECRT_DTYPE_F32>(p, n_batch, stream);
}

static bool specrt__head_is_state(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_F32 || dtype == SPECRT_DTYPE_F16 || dtype == SPECRT_DTYPE_BF16;
}

SPECRT_CUDA_API specrt_status specrt_cuda_logits(const specrt_cuda_layout *layout,
                                                 const specrt_cuda_segment *segments,
                                                 int32_t n_batch, const void *hidden,
                                                 specrt_dtype dtype, int32_t max_n,
                                                 const int32_t *n, int32_t n_step, float *logits,
                                                 void *stream) {
    specrt__head_product p;
    memset(&p, 0, sizeof p);
    p.n_columns = specrt__head_lay_out(layout, p.starts);
    if (p.n_columns == 0 || !segments || !hidden || !logits) return SPECRT_STATUS_BAD_ARG;
    if (n_batch < 1 || n_batch > SPECRT_CUDA_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    if (max_n < 1 || max_n > SPECRT_CUDA_MAX_STATES) return SPECRT_STATUS_BAD_ARG;
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (specrt__head_stored_bytes(layout->dtypes[i], layout->n_cols) == 0)
            return SPECRT_STATUS_UNSUPPORTED;
    p.segments = segments;
    p.layout = *layout;
    p.hidden = hidden;
    p.dtype = dtype;
    p.max_n = max_n;
    p.n = n;
    p.n_step = n_step;
    p.logits = logits;
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_F32>(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_F16>(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_BF16>(p, n_batch, stream));
    return specrt__head_run<SPECRT_DTYPE_Q8_0>(p, n_batch, stream);
}

// >>active (uses: launch block head)
// Owns the packing of rows, and rankings: a number orders a logit and its token, so that what is found does
// not depend on where it stands.

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
    size_t bytes = specrt__head_stored_bytes(head->dtype, head->n_cols);
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

/* --- the greatest of many keys --- */

enum { SPECRT__ACTIVE_DIGITS = 256, SPECRT__ACTIVE_THREADS = 256 };

/* The digit, from the greatest down, at which `need` of the keys counted are reached. One warp calls.
 *   counts : [SPECRT__ACTIVE_DIGITS]
 *   *above : keys of greater digits */
static __device__ int32_t specrt__active_digit(const int32_t *counts, int32_t need,
                                               int32_t *above) {
    const int32_t kEach = SPECRT__ACTIVE_DIGITS / 32;
    int32_t lane = (int32_t)(threadIdx.x % 32), highest = SPECRT__ACTIVE_DIGITS - 1 - kEach * lane;
    int32_t sum = 0;
    for (int32_t i = 0; i < kEach; i++) sum += counts[highest - i];
    int32_t upto = sum;
    for (int by = 1; by < 32; by *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, upto, (unsigned)by);
        if (lane >= by) upto += other;
    }
    unsigned reached = __ballot_sync(0xffffffffu, upto >= need);
    int source = reached ? __ffs((int)reached) - 1 : 31;
    int32_t digit = highest, before = upto - sum;
    while (digit > highest - kEach + 1 && before + counts[digit] < need) before += counts[digit--];
    *above = __shfl_sync(0xffffffffu, before, source);
    return __shfl_sync(0xffffffffu, digit, source);
}

/* The least of the k greatest of n keys, found a digit of 8 bits at a time; at least 1, since a key of 0 is
 * none. More than k keys reach it only where keys are equal. */
static __device__ uint64_t specrt__active_least(const uint64_t *keys, int32_t n, int32_t k) {
    __shared__ int32_t counts[SPECRT__ACTIVE_DIGITS], digit, above;
    uint64_t prefix = 0, mask = 0;
    for (int shift = 56; shift >= 0 && n > k; shift -= 8) {
        for (int32_t i = (int32_t)threadIdx.x; i < SPECRT__ACTIVE_DIGITS; i += (int32_t)blockDim.x)
            counts[i] = 0;
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
            if ((keys[i] & mask) == prefix) atomicAdd(&counts[keys[i] >> shift & 255], 1);
        __syncthreads();
        if (threadIdx.x < 32) {
            int32_t higher, found = specrt__active_digit(counts, k, &higher);
            if (threadIdx.x == 0) digit = found, above = higher;
        }
        __syncthreads();
        k -= above;
        prefix |= (uint64_t)digit << shift;
        mask |= (uint64_t)255 << shift;
        bool whole = counts[digit] == k;
        __syncthreads();
        if (whole) break;
    }
    return prefix > 0 ? prefix : 1;
}

/* Those of n keys that reach `least`, in order, at most k of them. @return how many. */
static __device__ int32_t specrt__active_collect(const uint64_t *keys, int32_t n, int32_t k,
                                                 uint64_t least, uint64_t *out) {
    int32_t n_out = 0, before;
    for (int32_t first = 0; first < n; first += (int32_t)blockDim.x) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool take = i < n && keys[i] >= least;
        int32_t n_taken = specrt__block_rank(take, &before);
        if (take && n_out + before < k) out[n_out + before] = keys[i];
        n_out += n_taken;
    }
    __syncthreads();
    return n_out < k ? n_out : k;
}

/* n keys, descending; few, since each is compared with all. */
static __device__ void specrt__active_sort(const uint64_t *keys, int32_t n, uint64_t *out) {
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; j++) rank += keys[j] > keys[i] || (keys[j] == keys[i] && j < i);
        out[rank] = keys[i];
    }
    __syncthreads();
}

/* --- the best k of every row of logits --- */

enum { SPECRT__ACTIVE_PART = 2048 }; /* columns of a block */

typedef struct specrt__active_ranks {
    const specrt_cuda_segment *segments; /* [n_batch, n_segments]; NULL: column i is token i */
    int32_t starts[SPECRT_CUDA_MAX_SEGMENTS], n_segments;
    int32_t n_columns, n_parts, k;
    const float *logits; /* [n_batch, max_n, n_columns] */
    int32_t max_n, n_step;
    const int32_t *n;        /* as in specrt__head_product */
    uint64_t *keys;          /* [n_batch, max_n, n_parts, k] scratch */
    double *sums;            /* [n_batch, max_n, n_parts] of exp(logit - most) */
    float *most;             /* [n_batch, max_n, n_parts] */
    int32_t *ids, row_step;  /* [n_batch, row_step, k] */
    float *logprobs, *total; /* [n_batch, row_step, k]; [n_batch, row_step]; NULL: not asked for */
} specrt__active_ranks;

static __device__ bool specrt__active_counts(const specrt__active_ranks &r, int32_t b,
                                             int32_t row) {
    return row < (r.n ? r.n[(int64_t)b * r.n_step] : r.max_n);
}

/* The key of a column; 0: it is none. */
static __device__ uint64_t specrt__active_column(const specrt__active_ranks &r, int32_t b,
                                                 int32_t column, float logit) {
    int32_t s = 0;
    if (!r.segments) return logit > -INFINITY ? specrt__block_key(logit, column) : 0;
    while (s + 1 < r.n_segments && r.starts[s + 1] <= column) s++;
    const specrt_cuda_segment *segment = &r.segments[b * r.n_segments + s];
    int32_t row = column - r.starts[s];
    int32_t n_rows = segment->n_rows ? *segment->n_rows : segment->max_rows;
    return row < n_rows ? specrt__block_key(logit, segment->ids[row]) : 0;
}

static __device__ float specrt__active_logit(uint64_t key) {
    uint32_t order = (uint32_t)(key >> 32);
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

/* What a logit adds to a sum of exp(logit - most); most infinite: how many there are. */
static __device__ double specrt__active_exp(float logit, float most) {
    if (logit == most) return 1;
    return logit < most ? (double)expf(logit - most) : 0.0;
}

/* Block (i, h, b): of logits[b, h, i * PART : (i + 1) * PART] the k greatest keys, the greatest logit and the
 * sum of exponentials.
 *   grid (n_parts, max_n, n_batch), block SPECRT__ACTIVE_THREADS
 *   CPU twins: specrt_active_topk(), specrt_logits_topk() */
static __global__ void specrt__active_rank_parts(specrt__active_ranks r) {
    __shared__ uint64_t keys[SPECRT__ACTIVE_PART];
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y, thread = (int32_t)threadIdx.x;
    int32_t first = (int32_t)blockIdx.x * SPECRT__ACTIVE_PART, n = r.n_columns - first;
    size_t row = (size_t)b * (size_t)r.max_n + (size_t)h;
    size_t part = row * (size_t)r.n_parts + blockIdx.x;
    const float *logits = r.logits + row * (size_t)r.n_columns + first;
    uint64_t greatest = 0;
    double sum = 0;
    if (!specrt__active_counts(r, b, h)) return;
    if (n > SPECRT__ACTIVE_PART) n = SPECRT__ACTIVE_PART;
    for (int32_t i = thread; i < n; i += (int32_t)blockDim.x) {
        keys[i] = specrt__active_column(r, b, first + i, logits[i]);
        if (keys[i] > greatest) greatest = keys[i];
    }
    greatest = specrt__block_max(greatest);
    float most = greatest >> 32 ? specrt__active_logit(greatest) : -INFINITY;
    for (int32_t i = thread; i < n; i += (int32_t)blockDim.x)
        if (keys[i] >> 32) sum += specrt__active_exp(specrt__active_logit(keys[i]), most);
    sum = specrt__block_sum(sum);
    if (thread == 0) {
        r.most[part] = most;
        r.sums[part] = sum;
    }
    uint64_t least = specrt__active_least(keys, n, r.k), *out = r.keys + part * (size_t)r.k;
    int32_t n_out = specrt__active_collect(keys, n, r.k, least, out);
    for (int32_t i = n_out + thread; i < r.k; i += (int32_t)blockDim.x) out[i] = 0;
}

/* log(sum of exp) over all parts of a row, and the greatest logit. */
static __device__ double specrt__active_join_sums(const float *most, const double *sums,
                                                  int32_t n_parts, float *greatest) {
    uint64_t key = 0;
    double sum = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n_parts; i += (int32_t)blockDim.x) {
        uint64_t x = specrt__block_key(most[i], 0);
        if (x > key) key = x;
    }
    *greatest = specrt__active_logit(specrt__block_max(key));
    for (int32_t i = (int32_t)threadIdx.x; i < n_parts; i += (int32_t)blockDim.x)
        if (sums[i] > 0) sum += sums[i] * specrt__active_exp(most[i], *greatest);
    return log(specrt__block_sum(sum));
}

/* Block (h, b): ids[b, h, :] and logprobs[b, h, :], best first, from the parts of row h.
 *   grid (max_n, n_batch), block SPECRT__ACTIVE_THREADS; k <= SPECRT__ACTIVE_MAX_K */
static __global__ void specrt__active_rank_join(specrt__active_ranks r) {
    __shared__ uint64_t found[SPECRT__ACTIVE_MAX_K], best[SPECRT__ACTIVE_MAX_K];
    int32_t b = (int32_t)blockIdx.y, h = (int32_t)blockIdx.x, n = r.n_parts * r.k;
    if (!specrt__active_counts(r, b, h)) return;
    size_t part = ((size_t)b * (size_t)r.max_n + (size_t)h) * (size_t)r.n_parts;
    size_t out = (size_t)b * (size_t)r.row_step + (size_t)h;
    const uint64_t *keys = r.keys + part * (size_t)r.k;
    uint64_t least = specrt__active_least(keys, n, r.k);
    int32_t n_found = specrt__active_collect(keys, n, r.k, least, found);
    specrt__active_sort(found, n_found, best);
    float most;
    double total = specrt__active_join_sums(r.most + part, r.sums + part, r.n_parts, &most);
    for (int32_t i = (int32_t)threadIdx.x; i < r.k; i += (int32_t)blockDim.x) {
        float logit = i < n_found && best[i] >> 32 ? specrt__active_logit(best[i]) : -INFINITY;
        double logprob = (logit == most ? 0.0 : (double)logit - (double)most) - total;
        bool absent = i >= n_found || best[i] >> 32 == 0;
        r.ids[out * (size_t)r.k + (size_t)i] = i < n_found ? specrt__block_key_id(best[i]) : -1;
        if (r.logprobs)
            r.logprobs[out * (size_t)r.k + (size_t)i] = absent ? -INFINITY : (float)logprob;
    }
    if (r.total && threadIdx.x == 0) r.total[out] = (float)((double)most + total);
}

SPECRT_CUDA_API size_t specrt_cuda_topk_bytes(int64_t n_columns, int64_t n_rows, int32_t k) {
    if (n_columns < 1 || n_columns > INT32_MAX || k < 1 || k > SPECRT__ACTIVE_MAX_K) return 0;
    if (n_rows < 1 || n_rows > SPECRT_CUDA_MAX_BATCH * SPECRT_CUDA_MAX_STATES) return 0;
    int64_t n_parts = (n_columns + SPECRT__ACTIVE_PART - 1) / SPECRT__ACTIVE_PART;
    return (size_t)(n_rows * n_parts) *
           ((size_t)k * sizeof(uint64_t) + sizeof(double) + sizeof(float));
}

/* Fills in what both rankings need and starts them. */
static specrt_status specrt__active_launch_ranks(specrt__active_ranks r, int32_t n_batch,
                                                 void *scratch, void *stream) {
    if (n_batch < 1 || n_batch > SPECRT_CUDA_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    if (!r.logits || !r.ids || !scratch || (uintptr_t)scratch % 8 || r.max_n < 1 ||
        r.max_n > SPECRT_CUDA_MAX_STATES)
        return SPECRT_STATUS_BAD_ARG;
    if (specrt_cuda_topk_bytes(r.n_columns, (int64_t)n_batch * r.max_n, r.k) == 0)
        return SPECRT_STATUS_BAD_ARG;
    r.n_parts = (int32_t)specrt__launch_blocks(r.n_columns, SPECRT__ACTIVE_PART);
    size_t n = (size_t)n_batch * (size_t)r.max_n * (size_t)r.n_parts;
    r.keys = (uint64_t *)scratch;
    r.sums = (double *)(void *)(r.keys + n * (size_t)r.k);
    r.most = (float *)(void *)(r.sums + n);
    dim3 parts((unsigned)r.n_parts, (unsigned)r.max_n, (unsigned)n_batch);
    dim3 rows((unsigned)r.max_n, (unsigned)n_batch);
    SPECRT__TRY(
        SPECRT__LAUNCH(specrt__active_rank_parts, parts, SPECRT__ACTIVE_THREADS, 0, stream, r));
    return SPECRT__LAUNCH(specrt__active_rank_join, rows, SPECRT__ACTIVE_THREADS, 0, stream, r);
}

SPECRT_CUDA_API specrt_status specrt_cuda_topk(const specrt_cuda_layout *layout,
                                               const specrt_cuda_segment *segments, int32_t n_batch,
                                               const float *logits, int32_t max_n, const int32_t *n,
                                               int32_t n_step, int32_t k, int32_t *ids,
                                               float *logprobs, void *scratch, void *stream) {
    specrt__active_ranks r;
    memset(&r, 0, sizeof r);
    r.n_columns = specrt__head_lay_out(layout, r.starts);
    if (r.n_columns == 0 || !segments || !logprobs) return SPECRT_STATUS_BAD_ARG;
    r.segments = segments;
    r.n_segments = layout->n_segments;
    r.logits = logits;
    r.max_n = r.row_step = max_n;
    r.n = n;
    r.n_step = n_step;
    r.k = k;
    r.ids = ids;
    r.logprobs = logprobs;
    return specrt__active_launch_ranks(r, n_batch, scratch, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_target_topk(int32_t n_batch, const float *logits,
                                                      int32_t max_n, const int32_t *n,
                                                      int32_t n_step, int32_t n_vocab, int32_t k,
                                                      int32_t *ids, float *logsumexp, void *scratch,
                                                      void *stream) {
    specrt__active_ranks r;
    memset(&r, 0, sizeof r);
    if (n_vocab < 1 || n_vocab > SPECRT_MAX_VOCAB) return SPECRT_STATUS_BAD_ARG;
    r.n_columns = n_vocab;
    r.logits = logits;
    r.max_n = max_n;
    r.row_step = SPECRT_TREE_MAX_NODES;
    r.n = n;
    r.n_step = n_step;
    r.k = k;
    r.ids = ids;
    r.total = logsumexp;
    return specrt__active_launch_ranks(r, n_batch, scratch, stream);
}
