/* block.cuh : owns sums, ranks and selections over one block, in an order that depends on nothing but its
 * size. All its threads call, in blocks of a multiple of 32 threads, 1024 at most. */
#ifndef CUDA_BLOCK_CUH
#define CUDA_BLOCK_CUH

#include "cuda/launch.cuh"

enum { SPECRT__BLOCK_WARPS = 32 };

/* Threads for blocks of kernels that take any number; the harness tries others. Those of 1024 threads have
 * that as their launch bounds, since a thread may use 64 registers then and no more. */
static int specrt__block_size(int threads) {
#if defined(SPECRT_HARNESS)
    threads = harness_threads(threads);
#endif
    return threads;
}

static __device__ int specrt__block_thread(void) {
    return (int)threadIdx.x;
}

static __device__ int specrt__block_threads(void) {
    return (int)blockDim.x;
}

/* Where item j of `each` that a thread has stands among those of the block: lanes are neighbours. */
static __device__ int32_t specrt__block_place(int each, int j) {
    return (specrt__block_thread() / 32 * each + j) * 32 + specrt__block_thread() % 32;
}

/* What x sums up to over warps, in each of which all lanes hold the same; *before: over lower ones. Every
 * warp adds up all sums, by shuffles: reading them one after another takes longer than all else here. */
template <typename T> static __device__ T specrt__block_add_warps(T x, T *before) {
    __shared__ T sums[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, warp = specrt__block_thread() / 32;
    int n_warps = specrt__block_threads() / 32;
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    T sum = lane < n_warps ? sums[lane] : 0;
    for (int by = 1; by < n_warps; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    *before = __shfl_sync(0xffffffffu, sum, warp) - x;
    T total = __shfl_sync(0xffffffffu, sum, n_warps - 1);
    __syncthreads();
    return total;
}

/* How many of the block's flags are set, kEach a thread; before[j]: at lower places. */
template <int kEach>
static __device__ int32_t specrt__block_ranks(const bool *flags, int32_t *before) {
    int lane = specrt__block_thread() % 32;
    int32_t n = 0, below;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        unsigned ballot = __ballot_sync(0xffffffffu, flags[j]);
        before[j] = n + __popc(ballot & ((1u << lane) - 1));
        n += __popc(ballot);
    }
    int32_t total = specrt__block_add_warps(n, &below);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) before[j] += below;
    return total;
}

/* The same of one flag a thread. */
static __device__ int32_t specrt__block_rank(bool flag, int32_t *before) {
    return specrt__block_ranks<1>(&flag, before);
}

/* The sum of x over the block; *before: over lower threads. */
template <typename T> static __device__ T specrt__block_scan(T x, T *before) {
    int lane = specrt__block_thread() % 32;
    T sum = x, below;
    for (int by = 1; by < 32; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    T total = specrt__block_add_warps(__shfl_sync(0xffffffffu, sum, 31), &below);
    *before = below + sum - x;
    return total;
}

/* As many lanes as the block has warps, or more up to a power of two. */
static __device__ int specrt__block_width(void) {
    int width = 1;
    while (32 * width < specrt__block_threads()) width *= 2;
    return width;
}

/* The greatest x. */
static __device__ uint64_t specrt__block_max(uint64_t x) {
    __shared__ uint64_t greatest[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, n_warps = specrt__block_threads() / 32;
    for (int by = 16; by > 0; by /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, by));
    if (lane == 0) greatest[specrt__block_thread() / 32] = x;
    __syncthreads();
    x = greatest[lane % n_warps];
    for (int by = specrt__block_width() / 2; by > 0; by /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, by));
    __syncthreads();
    return x;
}

/* The sum of x: pairwise within a warp, then over warps. */
static __device__ double specrt__block_sum(double x) {
    __shared__ double sums[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, width = specrt__block_width();
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    if (lane == 0) sums[specrt__block_thread() / 32] = x;
    __syncthreads();
    x = 32 * (lane % width) < specrt__block_threads() ? sums[lane % width] : 0;
    for (int by = width / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    __syncthreads();
    return x;
}

/* Whether of n blocks with a ticket this one comes last, and then sees what the others wrote. The ticket is 0
 * before the first, and again after the last. */
static __device__ bool specrt__block_last(uint32_t *ticket, int32_t n) {
    __shared__ bool last;
    __syncthreads();
    if (specrt__block_thread() == 0) { /* for all: barriers stand on both sides */
        specrt__launch_fence();
        last = atomicAdd(ticket, 1u) == (uint32_t)n - 1;
        if (last) atomicExch(ticket, 0u);
        specrt__launch_fence();
    }
    __syncthreads();
    bool out = last;
    __syncthreads();
    return out;
}

#endif
