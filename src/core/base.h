/* base.h : what every part of the runtime is written with: statuses, memory, sizes, numbers */
#ifndef CORE_BASE_H
#define CORE_BASE_H

#include "specrt_tools.h"

/* The linkage of what several files of src/ share. In the single header, which is one file, it is static. */
#if !defined(SPECRT__INTERNAL)
#if defined(__cplusplus)
#define SPECRT__INTERNAL extern "C"
#elif defined(__GNUC__)
#define SPECRT__INTERNAL __attribute__((visibility("hidden")))
#else
#define SPECRT__INTERNAL
#endif
#endif

/* What kernels run too, from the same text: whole numbers, and float operations that no compiler fuses. */
#if defined(__CUDACC__)
#define SPECRT__BOTH __host__ __device__
#else
#define SPECRT__BOTH
#endif

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "specrt.h: bundles and weights are little-endian; so must the host be"
#endif

/* Forward any status that is not OK to the caller. */
#define SPECRT__TRY(expression)                                                                    \
    do {                                                                                           \
        specrt_status specrt__try = (expression);                                                  \
        if (specrt__try != SPECRT_STATUS_OK) return specrt__try;                                   \
    } while (0)

/* Refuses NULL for an argument that the call needs, by the names in the header. */
#define SPECRT__NEED(argument)                                                                     \
    do {                                                                                           \
        if (!(argument)) return specrt__base_refuse_null(err, __func__, #argument);                \
    } while (0)

SPECRT__INTERNAL specrt_status specrt__base_refuse_null(specrt_error *err, const char *function,
                                                        const char *argument);

/* Zeroes the n elements that a typed pointer points to. */
#define SPECRT__CLEAR(pointer, n) ((void)memset((pointer), 0, (size_t)(n) * sizeof *(pointer)))

/* --- memory and sizes --- */

/* NULL: out of memory, or of addresses. */
static inline void *specrt__base_alloc(const specrt_env *env, uint64_t bytes) {
    if (bytes > PTRDIFF_MAX) return NULL;
    if (env->alloc) return env->alloc(env->user, (size_t)bytes);
    return malloc(bytes ? (size_t)bytes : 1);
}

static inline void specrt__base_free(const specrt_env *env, void *ptr) {
    if (!ptr) return;
    if (env->free)
        env->free(env->user, ptr);
    else
        free(ptr);
}

/* What callers gave, or all defaults. */
static inline specrt_env specrt__base_env(const specrt_env *env) {
    specrt_env none;
    memset(&none, 0, sizeof none);
    return env ? *env : none;
}

/* *out = a * b, a + b; false when that overflows. */
static inline bool specrt__base_mul(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a * b;
    return b == 0 || a <= UINT64_MAX / b;
}

static inline bool specrt__base_add(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a + b;
    return a <= UINT64_MAX - b;
}

/* The next n elements of a block that is carved into arrays, those of the widest type first. */
#define SPECRT__CARVE(type, at, n) ((type *)specrt__base_carve(at, (uint64_t)(n) * sizeof(type)))

static inline void *specrt__base_carve(uint8_t **at, uint64_t bytes) {
    void *p = *at;
    *at += bytes;
    return p;
}

/* a rounded up to a multiple of a power of two; a is far from the end of its range. */
static inline uint64_t specrt__base_align(uint64_t a, uint64_t alignment) {
    return (a + alignment - 1) & ~(alignment - 1);
}

static inline uint16_t specrt__base_load16(const void *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

SPECRT__BOTH static inline uint32_t specrt__base_load32(const void *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint64_t specrt__base_load64(const void *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* --- half and bfloat16 --- */

SPECRT__BOTH static inline float specrt__base_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

SPECRT__BOTH static inline uint32_t specrt__base_bits(float x) {
    return specrt__base_load32(&x);
}

/* 2^40 e^-x in whole numbers, so that it and its sums are the same on any machine and in any order; 0 where x
 * is 27.7 or more, or NaN. Below 0 it is as at 0. */
SPECRT__BOTH static inline uint64_t specrt__base_decay(float x) {
    /* 2^32 ln(2)^k / k! of k = 1 to 9: the terms of 2^x */
    static const uint32_t terms[] = {2977044472u, 1031764991u, 238388332u, 41309550u, 5726720u,
                                     661577u,     65510u,      5676u,      437u};
    if (!(x < 27.7f)) return 0;
    uint64_t t = x > 0 ? (uint64_t)((double)x * (4294967296.0 * 1.4426950408889634)) : 0, sum = 0;
    uint64_t rest = ~t & 0xffffffffu; /* of 2^-t = 2^-floor 2^rest / 2, in 2^-32 */
    for (int k = 8; k >= 0; k--) sum = terms[k] + (sum * rest >> 32);
    return (((uint64_t)1 << 32) + (sum * rest >> 32)) << 7 >> (t >> 32);
}

static inline float specrt__base_bf16(uint16_t bits) {
    return specrt__base_float((uint32_t)bits << 16);
}

/* Exact for every half, subnormals, infinities and NaNs included. */
static inline float specrt__base_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return specrt__base_float(sign | 0x70000000u | magnitude << 13);
    if (magnitude >= 0x0400u) return specrt__base_float(sign | ((magnitude << 13) + 0x38000000u));
    float tiny = (float)magnitude * (1.0f / 16777216.0f); /* subnormal: units of 2^-24 */
    return sign ? -tiny : tiny;
}

/* Nearest half, ties to even; beyond 65504 infinity, as the hardware rounds. */
static inline uint16_t specrt__base_to_f16(float x) {
    uint32_t bits = specrt__base_bits(x), sign = bits >> 16 & 0x8000u,
             magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: adding 0.5 leaves units of 2^-24 in the low bits */
        float shifted = specrt__base_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (specrt__base_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

/* --- random numbers --- */

/* Uniform in [0, 1) from a key: rounds of SplitMix64's finaliser. Keys that differ in any word give
 * independent numbers, so whoever draws twice puts what for into the key. */
SPECRT__BOTH static inline double specrt__base_uniform(const uint64_t *key, int n) {
    uint64_t z = 0;
    for (int i = 0; i < n; i++) {
        z += key[i] + 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

#endif
