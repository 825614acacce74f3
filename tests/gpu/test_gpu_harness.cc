/* test_gpu_harness.cc : the harness itself: barriers, warp operations, what it refuses. */
#include <cuda_runtime.h>
#include "harness.h"

#define TEST_ON_GPU
#include "../test.h"
#include <sys/wait.h>
#include <unistd.h>

extern "C" int harness_late;

namespace {

/* Runs a kernel. */
template <typename... Arguments>
cudaError_t start(void (*kernel)(Arguments...), dim3 grid, dim3 block, size_t shared_bytes,
                  void *stream, Arguments... arguments) {
    cudaError_t error = harness_start(kernel, grid, block, shared_bytes, stream, arguments...);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

/* Sums 0 to blockDim - 1 by shuffles, then over warps through shared memory. */
void sum_block(int *out) {
    __shared__ int sums[32];
    int thread = (int)threadIdx.x, n_warps = ((int)blockDim.x + 31) / 32;
    unsigned mask = __ballot_sync(0xffffffffu, 1);
    int value = thread;
    for (int by = 16; by > 0; by /= 2) {
        int other = (thread % 32) + by;
        int got = __shfl_sync(mask, value, mask >> (other & 31) & 1 ? other & 31 : thread % 32);
        if (other < 32 && (mask >> other & 1)) value += got;
    }
    if (thread % 32 == 0) sums[thread / 32] = value;
    __syncthreads();
    int total = 0;
    for (int i = 0; i < n_warps; i++) total += sums[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

TEST(sums, "shuffles and barriers at odd block sizes") {
    static const int sizes[] = {1, 31, 32, 33, 100, 256, 1024};
    static int out[3 * 1024];
    for (int size : sizes) {
        REQUIRE(start(sum_block, 3, size, 0, NULL, out) == cudaSuccess);
        for (int i = 0; i < 3 * size; i++) REQUIRE(out[i] == size * (size - 1) / 2);
    }
}

/* Halves of a warp on ways of their own, some lanes gone, a slow reader of an earlier result. */
void split_warp(int *out) {
    int lane = (int)threadIdx.x;
    if (lane == 5 || lane == 30) return;
    int swapped = __shfl_xor_sync(0xffffffffu, lane, lane == 4 || lane == 31 ? 0 : 1);
    if (lane < 16) {
        int source = lane == 3 ? 3 : (lane + 2) & 15;
        out[lane] = 100 * swapped + __shfl_sync(0x0000ffffu, lane, source);
    } else {
        unsigned odd = __ballot_sync(0xffff0000u, lane & 1);
        unsigned same = __match_any_sync(0xffff0000u, lane / 4);
        bool right = odd == 0xaaaa0000u && same == (0xfu << lane / 4 * 4 & ~(1u << 30));
        out[lane] = 100 * swapped + right;
    }
}

TEST(split, "halves of a warp apart, lanes that have left") {
    int out[32];
    REQUIRE(start(split_warp, 1, 32, 0, NULL, out) == cudaSuccess);
    for (int lane = 0; lane < 32; lane++) {
        int swapped = lane == 4 || lane == 31 ? lane : lane ^ 1;
        int rest = lane >= 16 ? 1 : lane == 3 ? 3 : (lane + 2) & 15;
        if (lane != 5 && lane != 30) CHECK_INT(out[lane], 100 * swapped + rest);
    }
}

void vote(int *out) {
    int n = __syncthreads_count((int)threadIdx.x % 3 == 0);
    int all = __syncthreads_and(threadIdx.x < 70), any = __syncthreads_or(threadIdx.x == 69);
    out[threadIdx.x] = n * 4 + all * 2 + any;
}

TEST(votes, "barriers that count") {
    int out[70];
    REQUIRE(start(vote, 1, 70, 0, NULL, out) == cudaSuccess);
    for (int i = 0; i < 70; i++) CHECK_INT(out[i], 24 * 4 + 2 + 1);
}

void every_block(int *counts) {
    if (threadIdx.x == 0)
        atomicAdd(&counts[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)], 1);
}

TEST(blocks, "every block of a grid runs once") {
    for (unsigned x = 1; x < 8; x++)
        for (unsigned y = 1; y < 4; y++) {
            int counts[8 * 4 * 2] = {0};
            start(every_block, dim3(x, y, 2), 3, 0, NULL, counts);
            for (unsigned i = 0; i < x * y * 2; i++) REQUIRE(counts[i] == 1);
        }
}

/* --- what ends the program --- */

void half_barrier(int *out) {
    if (threadIdx.x < 8) __syncthreads();
    __syncwarp();
    out[0] = 1;
}
void disagree(int *out) {
    if (threadIdx.x < 8)
        __syncwarp();
    else
        out[0] = __shfl_sync(0xffffffffu, 1, 0);
}
void read_absent(int *out) {
    if (threadIdx.x < 8) out[0] = __shfl_sync(0xffu, 1, 9);
}
void wait_for_absent(int *out) {
    if (threadIdx.x < 8)
        __syncwarp();
    else
        __syncthreads();
    out[0] = 1;
}

/* Whether a kernel ends its process by SIGABRT. */
bool dies(void (*kernel)(int *)) {
    int status, out;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        start(kernel, 1, 32, 0, NULL, &out);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

TEST(refusals, "what hardware leaves undefined ends the program") {
    int out;
    CHECK(dies(half_barrier));
    CHECK(dies(disagree));
    CHECK(dies(read_absent));
    CHECK(dies(wait_for_absent));
    CHECK(start(vote, 1, 1025, 0, NULL, &out) != cudaSuccess);
    CHECK(start(vote, 0, 32, 0, NULL, &out) != cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess && cudaGetLastError() == cudaSuccess);
}

/* --- what ThreadSanitizer reports: run by name (make tsan-gpu), each must fail there --- */

/* A thread reads what its neighbour wrote, and nothing stands between. */
void race_in_block(int *out) {
    __shared__ int words[32];
    words[threadIdx.x] = 1;
    __shfl_sync(0xffffffffu, 1, 0); /* orders nothing */
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}

/* Blocks are not ordered, unless by fences. */
void race_of_blocks(int *out) {
    if (threadIdx.x == 0) out[0] += 1;
}

void test_race(void (*kernel)(int *), unsigned blocks) {
    int out[32] = {0};
    REQUIRE(start(kernel, blocks, 32, 0, NULL, out) == cudaSuccess);
}

TEST(race_in_block, "threads that nothing orders") {
    test_race(race_in_block, 1);
}

TEST(race_of_blocks, "blocks that nothing orders") {
    test_race(race_of_blocks, 2);
}

/* Nor does this race: the block that comes last reads what the others wrote. */
void fenced(int *out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[2 + blockIdx.x] = 5;
        __threadfence();
        last = atomicAdd(&out[0], 1) == (int)gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) atomicAdd(&out[1], out[2 + threadIdx.x]);
}

TEST(fences, "blocks that fences order") {
    int out[10] = {0};
    REQUIRE(start(fenced, 8, 32, 0, NULL, out) == cudaSuccess);
    CHECK_INT(out[1], 40);
}

/* --- copies that are waited for --- */

/* Eight copies, of which all but the last two are waited for, or none: what was there before is 0. */
void copy_eight(const int *in, int *out, bool waits) {
    __shared__ int places[8][32];
    for (int i = 0; i < 8; i++) places[i][threadIdx.x] = 0;
    for (int i = 0; i < 8; i++) {
        harness_copy(&places[i][threadIdx.x], &in[i], sizeof *in);
        harness_copied();
    }
    if (waits) harness_wait(2);
    for (int i = 0; i < 8; i++) out[i * 32 + (int)threadIdx.x] = places[i][threadIdx.x];
    harness_wait(0);
}

TEST(copies, "that are there at once, or not before they are waited for") {
    int in[8], out[8 * 32];
    for (int i = 0; i < 8; i++) in[i] = i + 1;
    for (int waits = 0; waits < 2; waits++) {
        int n_early = 0, n_waited = waits ? 6 : 0;
        REQUIRE(start(copy_eight, 1, 32, 0, NULL, (const int *)in, out, waits > 0) == cudaSuccess);
        for (int i = 0; i < 8 * 32; i++) {
            REQUIRE(out[i] == i / 32 + 1 || (out[i] == 0 && i / 32 >= n_waited));
            n_early += i / 32 >= n_waited && out[i] != 0;
        }
        CHECK(n_early > 0 && n_early < 32 * (8 - n_waited));
    }
}

/* --- kernels that are loaded --- */

void write_one(int *out) {
    if (threadIdx.x == 0) out[0] = 1;
}

void add_one(int *out) {
    if (threadIdx.x == 0) out[0] += 1;
}

/* What nobody asked for before is loaded by its launch, which a strict capture refuses. */
TEST(loads, "kernels that nobody asked for are loaded late") {
    static int out[1];
    cudaFuncAttributes attributes;
    cudaStream_t stream;
    cudaGraph_t graph;
    int n_late = harness_late;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    for (int asked = 0; asked < 2; asked++) {
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
        cudaError_t error = harness_start(add_one, 1, 32, 0, stream, out);
        CHECK_INT(error, asked ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
        REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        cudaGraphDestroy(graph);
        if (asked) break;
        cudaGetLastError();
        REQUIRE(cudaFuncGetAttributes(&attributes, (const void *)add_one) == cudaSuccess);
    }
    CHECK_INT(harness_late, n_late);
    REQUIRE(start(write_one, 1, 32, 0, NULL, out) == cudaSuccess);
    CHECK_INT(harness_late, n_late + 1);
    cudaStreamDestroy(stream);
}

} // namespace
