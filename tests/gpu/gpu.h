/* gpu.h : device memory for tests, on a GPU or on the harness, which defines what is called here. */
#ifndef GPU_H
#define GPU_H

#define TEST_ON_GPU
#include "opened.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

static inline void gpu_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, (int)error);
    exit(1);
}

/* gpu_alloc() : device memory of at least a byte; gpu_free() gives it back. */
static inline void *gpu_alloc(size_t bytes) {
    void *p = NULL;
    gpu_check(cudaMalloc(&p, bytes ? bytes : 1), "cudaMalloc");
    return p;
}

/* gpu_zeros() : the same, all 0. */
static inline void *gpu_zeros(size_t bytes) {
    void *p = gpu_alloc(bytes);
    gpu_check(cudaMemset(p, 0, bytes), "cudaMemset");
    gpu_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
    return p;
}

static inline void gpu_free(void *p) {
    gpu_check(cudaFree(p), "cudaFree");
}

/* gpu_put() : the host's bytes into device memory that is there; gpu_get() : back, once all is done. Copies
 * to the device may return before they are done, and streams of tests do not wait for them. */
static inline void gpu_put(void *device, const void *host, size_t bytes) {
    gpu_check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    gpu_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
}

/* gpu_put_marks() : a pool's marks, which are bytes on the device. */
static inline void gpu_put_marks(uint8_t *device, const int32_t *marks, int32_t n) {
    uint8_t *bytes = (uint8_t *)malloc((size_t)n);
    for (int32_t i = 0; i < n; i++) bytes[i] = (uint8_t)marks[i];
    gpu_put(device, bytes, (size_t)n);
    free(bytes);
}

/* gpu_copy() : device memory that holds what the host's does. */
static inline void *gpu_copy(const void *host, size_t bytes) {
    void *p = gpu_alloc(bytes);
    gpu_put(p, host, bytes);
    return p;
}

static inline void gpu_get(void *host, const void *device, size_t bytes) {
    gpu_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gpu_check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

/* gpu_planes() : a row of q8_0 in planes (SPECRT__CUDA_Q8_0_PLANES), from one in blocks. */
static inline void gpu_planes(const uint8_t *row, int32_t n_cols, uint8_t *out) {
    for (int32_t j = 0; j < n_cols; j++) {
        int32_t block = j / 32, at = j, first = block / 2 * 64;
        if (first + 64 <= n_cols) at = first + j % 32 / 8 * 16 + block % 2 * 8 + j % 8;
        out[at] = row[34 * block + 2 + j % 32];
        memcpy(out + n_cols + 2 * block, row + 34 * block, 2);
    }
}

/* gpu_long() : whether the argument long=1 asks for published sizes and more cases than the harness does in
 * seconds. */
static inline bool gpu_long(void) {
    return test_setting("long") != NULL;
}

/* gpu_seed() : of random data: the usual one, or what the argument seed=N makes of it. */
static inline uint64_t gpu_seed(uint64_t usual) {
    const char *text = test_setting("seed");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 0;
    for (int i = 0; i < 20; i++) seed = seed * 6364136223846793005u + 1442695040888963407u;
    return text && *text ? usual ^ seed : usual;
}

/* GPU_RANDOM() : `random_state`, of which a file's data is drawn, and random_below(n), from 0 to n - 1. */
#define GPU_RANDOM(usual)                                                                          \
    static uint64_t random_state;                                                                  \
    static __attribute__((unused)) int32_t random_below(int32_t n) {                               \
        return fixture_below(&random_state, n);                                                    \
    }                                                                                              \
    static void seed_random_state(void) {                                                          \
        random_state = gpu_seed(usual);                                                            \
    }                                                                                              \
    static void (*test_begins)(void) = seed_random_state;

#endif
