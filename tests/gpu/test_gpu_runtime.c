/* test_gpu_runtime.c : the harness's streams, events and graphs fail what a device may fail: work that
 * nothing orders comes in both orders, what an event orders in one. */
#include "gpu.h"

enum { ROUNDS = 64 };

static cudaStream_t make_stream(void) {
    cudaStream_t s;
    gpu_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
    return s;
}

static cudaEvent_t make_event(void) {
    cudaEvent_t e;
    gpu_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreate");
    return e;
}

/* One stream writes a byte, the other copies it; fork and join go by the events that are not NULL. */
static void write_and_copy(cudaStream_t a, cudaStream_t b, cudaEvent_t fork, cudaEvent_t join,
                           unsigned char *bytes, int value) {
    cudaMemsetAsync(bytes, value, 1, a);
    if (fork) cudaEventRecord(fork, a), cudaStreamWaitEvent(b, fork, 0);
    cudaMemcpyAsync(bytes + 1, bytes, 1, cudaMemcpyDeviceToDevice, b);
    if (join) cudaEventRecord(join, b), cudaStreamWaitEvent(a, join, 0);
}

TEST(streams, "run in any order that events allow") {
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t e = make_event();
    unsigned char *bytes = (unsigned char *)gpu_alloc(2), host[2];
    int n_late = 0;
    gpu_put(bytes, "\0\0", 2);
    for (int i = 1; i <= ROUNDS; i++) {
        write_and_copy(a, b, NULL, NULL, bytes, i);
        gpu_get(host, bytes, 2);
        n_late += host[1] == i;
        write_and_copy(a, b, e, NULL, bytes, i + 100);
        gpu_get(host, bytes, 2);
        CHECK_INT(host[1], i + 100);
    }
    CHECK(n_late > 0 && n_late < ROUNDS);
    gpu_free(bytes);
    cudaEventDestroy(e);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

TEST(default, "the default stream neither waits for others nor do they for it") {
    cudaStream_t a = make_stream();
    unsigned char *bytes = (unsigned char *)gpu_alloc(2), host[2];
    int n_late = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        cudaMemset(bytes, i, 1);
        cudaMemcpyAsync(bytes + 1, bytes, 1, cudaMemcpyDeviceToDevice, a);
        gpu_get(host, bytes, 2);
        CHECK_INT(host[0], i);
        n_late += host[1] == i;
    }
    CHECK(n_late > 0 && n_late < ROUNDS);
    gpu_free(bytes);
    cudaStreamDestroy(a);
}

TEST(graphs, "replay, and refuse what cannot be captured") {
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t fork = make_event(), join = make_event();
    unsigned char *bytes = (unsigned char *)gpu_alloc(2), host[2];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *more;
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    write_and_copy(a, b, fork, join, bytes, 7);
    CHECK(cudaMalloc(&more, 1) != cudaSuccess);
    CHECK(cudaStreamSynchronize(a) != cudaSuccess);
    REQUIRE(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    for (int i = 0; i < ROUNDS; i++) {
        gpu_put(bytes, "\0\0", 2);
        cudaGraphLaunch(exec, a);
        gpu_get(host, bytes, 2);
        CHECK_INT(host[1], 7);
    }
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    write_and_copy(a, b, fork, NULL, bytes, 7); /* b does not come back */
    CHECK_INT(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
    cudaGraphExecDestroy(exec);
    gpu_free(bytes);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
