/* machine.h : the floors that benchmarks are held against, measured in the same run: the best rate at
 * which one core reads given bytes, and its peaks of f32 and of int8 multiply-adds. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/measure.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

static inline void keep_least(double *best, double start) {
    double seconds = sl_measure_seconds() - start;
    if (seconds < *best) *best = seconds;
}

/* --- arithmetic --- */

enum { MACHINE_CHAINS = 16, MACHINE_STEPS = 1 << 17 };

/* Multiply-adds of independent registers. @return f32 operations. */
#ifdef __x86_64__
__attribute__((target("avx512f"))) static inline double machine_fma_avx512(float *out) {
    __m512 sums[MACHINE_CHAINS], x = _mm512_set1_ps(0.999f);
    for (int i = 0; i < MACHINE_CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < MACHINE_STEPS; n++)
#pragma GCC unroll 16
        for (int i = 0; i < MACHINE_CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], x, x);
    for (int i = 1; i < MACHINE_CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    *out = _mm512_cvtss_f32(sums[0]);
    return 2.0 * 16 * MACHINE_CHAINS * MACHINE_STEPS;
}

__attribute__((target("avx2,fma"))) static inline double machine_fma_avx2(float *out) {
    __m256 sums[12], x = _mm256_set1_ps(0.999f);
    for (int i = 0; i < 12; i++) sums[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < MACHINE_STEPS; n++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) sums[i] = _mm256_fmadd_ps(sums[i], x, x);
    for (int i = 1; i < 12; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    *out = _mm256_cvtss_f32(sums[0]);
    return 2.0 * 8 * 12 * MACHINE_STEPS;
}

static inline double machine_fma(float *out) {
    return __builtin_cpu_supports("avx512f") ? machine_fma_avx512(out) : machine_fma_avx2(out);
}
#else
static inline double machine_fma(float *out) {
    float sums[64];
    for (int i = 0; i < 64; i++) sums[i] = (float)i;
    for (int n = 0; n < MACHINE_STEPS; n++)
        for (int i = 0; i < 64; i++) sums[i] = __builtin_fmaf(sums[i], 0.999f, 0.999f);
    *out = sums[0];
    for (int i = 1; i < 64; i++) *out += sums[i];
    return 2.0 * 64 * MACHINE_STEPS;
}
#endif

/* f32 operations per second of one core, the best seen so far in short runs: a machine that is shared
 * has its moments. */
static inline double machine_peak(void) {
    static double best = 1e9;
    volatile float sink;
    float out;
    double flops = 0;
    for (int i = 0; i < 200; i++) {
        double start = sl_measure_seconds();
        flops = machine_fma(&out);
        keep_least(&best, start);
        sink = out;
    }
    (void)sink;
    return flops / best;
}

/* Sums of four products of bytes in independent registers. @return int8 operations; 0: no VNNI. */
#ifdef __x86_64__
__attribute__((target("avx512f,avx512vnni"))) static inline double machine_vnni(int *out) {
    __m512i sums[MACHINE_CHAINS], x = _mm512_set1_epi8(1);
    for (int i = 0; i < MACHINE_CHAINS; i++) sums[i] = _mm512_set1_epi32(i);
    for (int n = 0; n < MACHINE_STEPS; n++)
#pragma GCC unroll 16
        for (int i = 0; i < MACHINE_CHAINS; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
    for (int i = 1; i < MACHINE_CHAINS; i++) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
    *out = _mm512_cvtsi512_si32(sums[0]);
    return 2.0 * 64 * MACHINE_CHAINS * MACHINE_STEPS;
}

static inline double machine_int8(int *out) {
    bool there = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
    return there ? machine_vnni(out) : 0;
}
#else
static inline double machine_int8(int *out) {
    *out = 0;
    return 0;
}
#endif

/* int8 operations per second of one core, as machine_peak(). */
static inline double machine_peak_int8(void) {
    static double best = 1e9;
    volatile int sink;
    int out = 0;
    double ops = 0;
    for (int i = 0; i < 100; i++) {
        double start = sl_measure_seconds();
        ops = machine_int8(&out);
        keep_least(&best, start);
        sink = out;
    }
    (void)sink;
    return ops / best;
}

/* --- memory --- */

typedef uint64_t machine_vector __attribute__((vector_size(64), aligned(1)));

/* Reads every byte in n_streams pieces side by side, a constant once it is inlined. */
__attribute__((always_inline)) static inline uint64_t
machine_read_streams(const uint8_t *bytes, size_t n, size_t n_streams) {
    size_t piece = n / n_streams;
    machine_vector sum[4] = {{0}};
    for (size_t i = 0; i + 128 <= piece; i += 128)
#pragma GCC unroll 4
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *p = bytes + s * piece + i;
            sum[s] += *(const machine_vector *)(const void *)p +
                      *(const machine_vector *)(const void *)(p + 64);
        }
    sum[0] += sum[1] + sum[2] + sum[3];
    return sum[0][0] ^ sum[0][7];
}

__attribute__((target_clones("avx512f", "avx2", "default"))) static uint64_t
machine_read(const uint8_t *bytes, size_t n, int way) {
    return way == 0   ? machine_read_streams(bytes, n, 1)
           : way == 1 ? machine_read_streams(bytes, n, 2)
                      : machine_read_streams(bytes, n, 4);
}

/* Seconds of the fastest way to read them: a few, since none is best everywhere. */
static inline void machine_read_time(const void *bytes, size_t n, double *best) {
    volatile uint64_t sink;
    for (int way = 0; way < 3; way++) {
        double start = sl_measure_seconds();
        sink = machine_read((const uint8_t *)bytes, n, way);
        keep_least(best, start);
        (void)sink;
    }
}

/* Bytes of a cache of the first core as the kernel sees it (a guest may see less than the chip has); 0:
 * unknown. */
static inline size_t machine_cache(int index) {
    char path[80];
    size_t kb = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%zuK", &kb) != 1) kb = 0;
    fclose(f);
    return kb * 1024;
}

/* Where n bytes that are read over and over stay. */
static inline const char *machine_level(size_t n) {
    return n <= machine_cache(2) ? "L2" : n <= machine_cache(3) ? "L3" : "memory";
}

#endif
