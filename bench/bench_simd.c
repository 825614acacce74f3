/* bench_simd.c : products of packed rows by the kernels of every instruction set of this machine, in turns,
 * on one core: the least time of ROUNDS. Needs no other library, so that it runs in WebAssembly, too
 * (bench/wasm.sh). A line has kernels, type, hidden rows, milliseconds.
 *   bench_simd [ROUNDS] */
#define SPECRT_STATIC
#if !defined(SPECRT_TOOLS)
#define SPECRT_TOOLS /* its clock */
#endif
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2048, COLS = 1024, MOST = 10, N_TYPES = 6, MAX_FAMILIES = 3 };

static int families(const specrt__simd_kernels *out[MAX_FAMILIES]) {
    int n = 0;
    out[n++] = &specrt__simd_kernels_scalar;
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = &specrt__simd_kernels_avx2;
    if (__builtin_cpu_supports("avx512bw")) out[n++] = &specrt__simd_kernels_avx512;
#else
    if (specrt__simd_choose() != out[0]) out[n++] = specrt__simd_choose();
#endif
    return n;
}

/* Every half is below 1, and in no type a denormal, which some processors multiply 10 times slower. */
static void fill(uint8_t *bytes, size_t n) {
    uint64_t x = 1;
    for (size_t i = 0; i < n; i += 2) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint16_t half = (uint16_t)((x & 0x3bffu) | 0x3000u);
        memcpy(bytes + i, &half, 2);
    }
}

static void measure(specrt_dtype dtype, int rounds) {
    static const int batches[] = {1, 4, MOST};
    static float hidden[MOST * COLS], logits[MOST * ROWS];
    const specrt__simd_kernels *family[MAX_FAMILIES];
    double best[MAX_FAMILIES][3];
    size_t row_bytes = specrt_row_bytes(dtype, COLS);
    uint8_t *rows = (uint8_t *)malloc(ROWS * row_bytes);
    specrt_segment segment = {
        .rows = rows, .row_stride = row_bytes, .dtype = dtype, .n_rows = ROWS};
    int n = families(family);
    if (!rows) fprintf(stderr, "bench_simd: out of memory\n"), exit(1);
    fill(rows, ROWS * row_bytes);
    for (int i = 0; i < MOST * COLS; i++) hidden[i] = (float)(i % 31 - 15) / 16;
    for (int f = 0; f < n; f++) best[f][0] = best[f][1] = best[f][2] = 1e9;
    for (int round = 0; round < rounds; round++)
        for (int f = 0; f < n; f++)
            for (int b = 0; b < 3; b++) {
                double began = specrt_clock_seconds();
                specrt__head_products(family[f], &segment, 0, ROWS, COLS, hidden, batches[b],
                                      logits, ROWS);
                double seconds = specrt_clock_seconds() - began;
                if (seconds < best[f][b]) best[f][b] = seconds;
            }
    for (int f = 0; f < n; f++)
        for (int b = 0; b < 3; b++)
            printf("%-7s %-5s %2d %8.3f\n", family[f]->name, specrt_dtype_name(dtype), batches[b],
                   1e3 * best[f][b]);
    free(rows);
}

int main(int argc, char **argv) {
    static const specrt_dtype types[N_TYPES] = {SPECRT_DTYPE_F32,  SPECRT_DTYPE_F16,
                                                SPECRT_DTYPE_BF16, SPECRT_DTYPE_Q8_0,
                                                SPECRT_DTYPE_Q4_0, SPECRT_DTYPE_Q4_K};
    for (int type = 0; type < N_TYPES; type++) measure(types[type], argc > 1 ? atoi(argv[1]) : 30);
    return 0;
}
