/* scan.c : scans in scalar code, and the choice of kernels for this machine. */
#include "sources/scan.h"

/* The product of place i of a block; q: of a state, every n_states fours. */
static inline int32_t specrt__scan_dot(const specrt__scan_signs *rows, const uint8_t *codes, int i,
                                       const int8_t *q, int32_t n_states) {
    int32_t sum = 0;
    for (int32_t line = 0; line < rows->n_lines; line++)
        for (int32_t bit = 0; bit < 8; bit++, q += 4 * n_states)
            for (int j = 0; j < 4; j++) sum += (codes[64 * line + 4 * i + j] >> bit & 1) * q[j];
    return sum;
}

static void specrt__scan_signs_scalar(const specrt__scan_signs *rows, int32_t first,
                                      int32_t n_blocks, const specrt__scan_query *query,
                                      specrt__scan_hits *hits) {
    for (int32_t at = 16 * first; at < 16 * (first + n_blocks); at++) {
        const uint8_t *codes = rows->codes + (size_t)(at / 16) * rows->stride;
        float scale = specrt__scan_scale(rows->scales[at]);
        float constant = rows->constant_unit * (float)rows->constants[at];
        for (int s = 0; s < query->n_states; s++) {
            int32_t dot = specrt__scan_dot(rows, codes, at % 16, query->q + 4 * s, query->n_states);
            float score =
                fmaf((float)(2 * dot - query->offset[s]), query->unit[s] * scale, constant);
            if (!(score < query->least[s])) specrt__scan_keep(&hits[s], at, 1, &score);
        }
    }
}

static void specrt__scan_pairs_scalar(const specrt__scan_records *records, const int32_t *places,
                                      int32_t n, const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        sums[i] = 0;
        for (size_t j = 0; j < bytes; j++)
            for (size_t plane = 0; plane < 4; plane++)
                sums[i] += (record[j] >> 2 * plane & 3) * q[256 * (j / 64) + 64 * plane + j % 64];
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_scalar = {
    /* signs = */ specrt__scan_signs_scalar,
    /* pairs = */ specrt__scan_pairs_scalar,
};

SPECRT__INTERNAL const specrt__scan_kernels *specrt__scan_choose(void) {
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        return &specrt__scan_vnni;
    if (__builtin_cpu_supports("avx2")) return &specrt__scan_avx2;
#elif defined(SPECRT__SIMD_ARM64)
    return &specrt__scan_neon;
#endif
    return &specrt__scan_scalar;
}
