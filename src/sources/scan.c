/* scan.c : scans in scalar code, and the choice of kernels for this machine. */
#include "sources/scan.h"

/* --- codes of 8 or 4 bits --- */

/* The product of place i of a block; q: of a state, every n_states fours. */
static inline int32_t specrt__scan_dot(const specrt__scan_rows *rows, const uint8_t *codes, int i,
                                       const int8_t *q, int32_t n_states) {
    int32_t sum = 0, n_parts = rows->four_bits ? 2 : 1;
    for (int32_t four = 0; four < n_parts * rows->n_lines; four++, q += 4 * n_states) {
        const uint8_t *line = codes + 64 * (four / n_parts) + 4 * i;
        for (int j = 0; j < 4; j++) {
            int code = rows->four_bits ? line[j] >> 4 * (four % 2) & 15 : line[j];
            sum += code * q[j];
        }
    }
    return sum;
}

SPECRT__INTERNAL void specrt__scan_scalar(const specrt__scan_rows *rows, int32_t first,
                                          int32_t n_blocks, const specrt__scan_query *query,
                                          specrt__scan_hits *hits) {
    for (int32_t b = first; b < first + n_blocks; b++)
        for (int s = 0; s < query->n_states; s++) {
            const uint8_t *codes = rows->codes + (size_t)b * rows->stride;
            float scores[16];
            int hit = 0;
            for (int i = 0; i < 16; i++) {
                int32_t sum = specrt__scan_dot(rows, codes, i, query->q + 4 * s, query->n_states);
                float x = (float)(sum - query->offset[s]),
                      scale = query->unit[s] * rows->scales[16 * b + i];
                scores[i] = rows->bias ? fmaf(x, scale, rows->bias[16 * b + i]) : x * scale + 0.0f;
                hit |= !(scores[i] < query->least[s]) << i;
            }
            specrt__scan_keep(&hits[s], 16 * b, hit, scores);
        }
}

/* --- bands --- */

/* The product of place i of a block; q: of a state, every n_states fours. */
static inline int32_t specrt__scan_dot_band(const specrt__scan_band *band, const uint8_t *codes,
                                            int i, const int8_t *q, int32_t n_states) {
    int32_t sum = 0, mask = (1 << band->bits) - 1;
    for (int32_t line = 0; line < band->n_lines; line++)
        for (int32_t shift = 0; shift < 8; shift += band->bits, q += 4 * n_states)
            for (int j = 0; j < 4; j++)
                sum += (codes[64 * line + 4 * i + j] >> shift & mask) * q[j];
    return sum;
}

SPECRT__INTERNAL void specrt__scan_add_scalar(const specrt__scan_band *band, int32_t first,
                                              int32_t n_blocks, const specrt__scan_query *query,
                                              float *sums) {
    const uint8_t *codes = band->codes + 64 * (size_t)first * (size_t)band->n_lines;
    const uint16_t *scales = band->scales + 16 * (size_t)first;
    for (int32_t at = 0; at < 16 * n_blocks; at++) {
        const uint8_t *block = codes + 64 * (size_t)(at / 16) * (size_t)band->n_lines;
        for (int s = 0; s < query->n_states; s++) {
            float *sum = sums + s * SPECRT__SCAN_MOST + at;
            int32_t dot =
                specrt__scan_dot_band(band, block, at % 16, query->q + 4 * s, query->n_states);
            float scale = query->unit[s] * specrt__scan_scale(scales[at]);
            *sum = fmaf((float)(2 * dot - query->offset[s]), scale, *sum);
        }
    }
}

SPECRT__INTERNAL void specrt__scan_pick_scalar(const float *sums, int32_t first, int32_t n_blocks,
                                               float least, specrt__scan_hits *hits) {
    for (int32_t at = 0; at < 16 * n_blocks; at++)
        if (!(sums[at] < least)) specrt__scan_keep(hits, 16 * first + at, 1, sums + at);
}

/* --- the choice --- */

SPECRT__INTERNAL specrt__scan_kernel *specrt__scan_choose(void) {
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        return specrt__scan_vnni;
    if (__builtin_cpu_supports("avx2")) return specrt__scan_avx2;
#elif defined(SPECRT__SIMD_ARM64)
    return specrt__scan_neon;
#endif
    return specrt__scan_scalar;
}

SPECRT__INTERNAL const specrt__scan_adder *specrt__scan_choose_adder(void) {
    static const specrt__scan_adder scalar = {specrt__scan_add_scalar, specrt__scan_pick_scalar};
#if defined(SPECRT__SIMD_X86)
    static const specrt__scan_adder avx2 = {specrt__scan_add_avx2, specrt__scan_pick_avx2};
    static const specrt__scan_adder vnni = {specrt__scan_add_bands_vnni, specrt__scan_pick_vnni};
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni")) return &vnni;
    if (__builtin_cpu_supports("avx2")) return &avx2;
#elif defined(SPECRT__SIMD_ARM64)
    static const specrt__scan_adder neon = {specrt__scan_add_neon, specrt__scan_pick_neon};
    return &neon;
#endif
    return &scalar;
}
