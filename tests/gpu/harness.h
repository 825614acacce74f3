/* harness.h : CUDA's kernel language for a plain C++11 compiler; cuda/specrt_kernels.cu runs on a CPU.
 *
 * A thread of a block is a fibre that runs until it meets a barrier or a warp operation, then lets the
 * others go on; blocks run one after another. Threads and blocks come in another shuffled order at every
 * launch, so that code that needs an order fails. What hardware leaves undefined ends the program with a
 * message: a barrier that a live thread never reaches, warp operations of one warp that do not agree, a
 * lane read that takes no part. Nothing runs at once, but ThreadSanitizer (make tsan-gpu) sees every fibre
 * as a thread of its own, which only barriers, __syncwarp() and fences order, and blocks apart: it reports
 * what two threads touch with nothing between. */
#ifndef HARNESS_H
#define HARNESS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <vector>

#undef __shared__
#if defined(HARNESS_CORES)
#define __shared__ static thread_local /* blocks that nothing orders run on threads of their own */
#else
#define __shared__ static /* one block runs at a time */
#endif
#undef __noinline__
#define __noinline__
#undef __launch_bounds__
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

enum { HARNESS_LANE_BYTES = 64 };

/* harness_warp() : waits until every live lane of `mask` has come to the same operation.
 *   in : what this lane brings, at most HARNESS_LANE_BYTES
 * @return what every lane brought, [32, HARNESS_LANE_BYTES], until this lane's next operation. */
const unsigned char *harness_warp(unsigned mask, const char *operation, const void *in,
                                  size_t bytes);
extern const char HARNESS_SYNCWARP[]; /* the one operation that orders memory */
/* The lanes of `mask` that took part in this lane's last operation. */
unsigned harness_warp_live(unsigned mask);
/* harness_block() : waits for all live threads of the block; how many of them brought `yes`, and how many
 * there are in `*n`. */
int harness_block(int yes, int *n);
/* harness_fence() : orders what this thread did before all that fences after it. */
void harness_fence(void);
unsigned char *harness_dynamic(void);
/* harness_copy() : copies at once or not before the wait, by chance; both are what hardware may do.
 * harness_copied() : ends a group of this thread's copies. harness_wait() : for all groups but the last n. */
void harness_copy(void *to, const void *from, size_t bytes);
void harness_copied(void);
void harness_wait(int n);
/* A size for blocks of kernels that take any: a multiple of 32, mostly small, at most `most`. */
int harness_threads(int most);
[[noreturn]] void harness_fail(const char *format, ...);

/* Memory for runtime.cc, of a device or of both; tests/gpu/ptx looks at what happens to it. */
void *harness_allocate(size_t bytes, bool mapped);
void harness_release(void *p);
void harness_move(void *to, const void *from, size_t bytes);
void harness_fill(void *p, int value, size_t bytes);

/* What comes before something: of each lane, a stream or a node of a graph, how many operations. */
typedef std::vector<uint32_t> harness_past;
/* harness_operation() : the next one, number past[lane] of its lane, comes after `past` and nothing else. */
void harness_operation(size_t lane, const harness_past &past);

/* What a launch does; runtime.cc decides when. */
typedef struct harness_launch {
    dim3 grid, block;
    size_t shared_bytes;
    std::function<void()> thread;
    const void *kernel;
} harness_launch;
void harness_run(const harness_launch &launch);
cudaError_t harness_submit(const harness_launch &launch, cudaStream_t stream);

template <typename... Parameters, typename... Arguments>
cudaError_t harness_start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                          void *stream, Arguments... arguments) {
    harness_launch launch = {grid, block, shared_bytes, [=]() { kernel(arguments...); },
                             (const void *)kernel};
    return harness_submit(launch, (cudaStream_t)stream);
}

/* --- the block --- */

static inline void __syncthreads(void) {
    int n;
    harness_block(0, &n);
}
static inline int __syncthreads_count(int yes) {
    int n;
    return harness_block(yes != 0, &n);
}
static inline int __syncthreads_or(int yes) {
    return __syncthreads_count(yes) > 0;
}
static inline int __syncthreads_and(int yes) {
    int n, count = harness_block(yes != 0, &n);
    return count == n;
}
static inline void __threadfence(void) {
    harness_fence();
}
static inline void __threadfence_block(void) {
    harness_fence();
}
static inline void __threadfence_system(void) {
    harness_fence();
}

/* --- the warp --- */

static inline int harness_lane(void) {
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

template <typename T> T harness_read(unsigned mask, const unsigned char *all, int lane) {
    T out;
    if (!(harness_warp_live(mask) >> lane & 1))
        harness_fail("lane %d reads lane %d, which takes no part", harness_lane(), lane);
    memcpy(&out, all + lane * HARNESS_LANE_BYTES, sizeof out);
    return out;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    harness_warp(mask, HARNESS_SYNCWARP, "", 1);
}

template <typename T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned char *all = harness_warp(mask, "__shfl_sync", &value, sizeof value);
    int lane = harness_lane();
    return harness_read<T>(mask, all, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    const unsigned char *all = harness_warp(mask, "__shfl_xor_sync", &value, sizeof value);
    int lane = harness_lane(), source = lane ^ with;
    return (source & ~(width - 1)) > lane ? value : harness_read<T>(mask, all, source);
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned char *all = harness_warp(mask, "__shfl_up_sync", &value, sizeof value);
    int lane = harness_lane(), source = lane - (int)by;
    return source < (lane & ~(width - 1)) ? value : harness_read<T>(mask, all, source);
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned char *all = harness_warp(mask, "__shfl_down_sync", &value, sizeof value);
    int lane = harness_lane(), source = lane + (int)by;
    return source > (lane | (width - 1)) ? value : harness_read<T>(mask, all, source);
}

static inline unsigned __ballot_sync(unsigned mask, int yes) {
    int value = yes != 0;
    const unsigned char *all = harness_warp(mask, "__ballot_sync", &value, sizeof value);
    unsigned live = harness_warp_live(mask), out = 0;
    for (int lane = 0; lane < 32; lane++)
        if ((live >> lane & 1) && harness_read<int>(mask, all, lane)) out |= 1u << lane;
    return out;
}
static inline int __any_sync(unsigned mask, int yes) {
    return __ballot_sync(mask, yes) != 0;
}
static inline int __all_sync(unsigned mask, int yes) {
    return __ballot_sync(mask, !yes) == 0;
}
template <typename T> unsigned __match_any_sync(unsigned mask, T value) {
    const unsigned char *all = harness_warp(mask, "__match_any_sync", &value, sizeof value);
    unsigned live = harness_warp_live(mask), out = 0;
    for (int lane = 0; lane < 32; lane++)
        if ((live >> lane & 1) && harness_read<T>(mask, all, lane) == value) out |= 1u << lane;
    return out;
}

/* --- memory --- */

template <typename T> T __ldg(const T *p) {
    return *p;
}

/* Atomic, and no more than that: it orders nothing else. */
#define HARNESS_ATOMIC(name, type, change)                                                         \
    static inline type name(type *p, type value) {                                                 \
        type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                           \
        while (!__atomic_compare_exchange_n(p, &old, (type)(change), false, __ATOMIC_RELAXED,      \
                                            __ATOMIC_RELAXED)) {                                   \
        }                                                                                          \
        return old;                                                                                \
    }
#define HARNESS_ATOMICS(type)                                                                      \
    HARNESS_ATOMIC(atomicMin, type, value < old ? value : old)                                     \
    HARNESS_ATOMIC(atomicMax, type, value > old ? value : old)                                     \
    HARNESS_ATOMIC(atomicOr, type, old | value)                                                    \
    HARNESS_ATOMIC(atomicAnd, type, old &value)                                                    \
    HARNESS_ATOMIC(atomicXor, type, old ^ value)                                                   \
    HARNESS_ATOMIC(atomicExch, type, value)                                                        \
    static inline type atomicCAS(type *p, type expected, type value) {                             \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED,                  \
                                    __ATOMIC_RELAXED);                                             \
        return expected;                                                                           \
    }
HARNESS_ATOMICS(int)
HARNESS_ATOMICS(unsigned)
HARNESS_ATOMICS(unsigned long long)
static inline float atomicExch(float *p, float value) {
    float old;
    __atomic_exchange(p, &value, &old, __ATOMIC_RELAXED);
    return old;
}
HARNESS_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)value)
HARNESS_ATOMIC(atomicAdd, unsigned, old + value)
HARNESS_ATOMIC(atomicAdd, unsigned long long, old + value)
HARNESS_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
HARNESS_ATOMIC(atomicSub, unsigned, old - value)

/* --- numbers --- */

template <typename To, typename From> To harness_bits(From value) {
    To out;
    static_assert(sizeof(To) == sizeof(From), "bits of another size");
    memcpy(&out, &value, sizeof out);
    return out;
}
static inline unsigned __float_as_uint(float x) {
    return harness_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
    return harness_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
    return harness_bits<float>(x);
}
static inline float __int_as_float(int x) {
    return harness_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return harness_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return harness_bits<double>(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline unsigned __brev(unsigned x) {
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= (x >> i & 1) << (31 - i);
    return out;
}
static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (int8_t)(a >> i) * (int8_t)(b >> i);
    return sum;
}
static inline int __float2int_rn(float x) {
    return (int)lrintf(x);
}
static inline float __int2float_rn(int x) {
    return (float)x;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
#define __expf(x) expf(x)
#define __logf(x) logf(x)
template <typename T> T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T> T max(T a, T b) {
    return a < b ? b : a;
}

#endif
