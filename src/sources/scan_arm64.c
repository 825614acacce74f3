/* scan_arm64.c : scans with NEON. */
#include "sources/scan.h"
#include "core/simd_kernels.h"

#if defined(SPECRT__SIMD_ARM64)

/* Sums of 4 places by one state. Eight products of a line fit 16 bits. */
static inline int32x4_t specrt__scan_dot_neon(const specrt__scan_signs *rows, const uint8_t *codes,
                                              const int8_t *q, int32_t n_states) {
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64) {
        uint8x16_t all = vld1q_u8(codes);
        int16x8_t a = vdupq_n_s16(0), b = a;
        for (int bit = 0; bit < 8; bit++, q += 4 * n_states) {
            uint32_t four;
            memcpy(&four, q, sizeof four);
            int8x8_t z = vreinterpret_s8_u32(vdup_n_u32(four));
            uint8x16_t code = vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)-bit)), vdupq_n_u8(1));
            a = vmlal_s8(a, vget_low_s8(vreinterpretq_s8_u8(code)), z);
            b = vmlal_s8(b, vget_high_s8(vreinterpretq_s8_u8(code)), z);
        }
        low = vpadalq_s16(low, a);
        high = vpadalq_s16(high, b);
    }
    return vpaddq_s32(low, high);
}

static void specrt__scan_signs_neon(const specrt__scan_signs *rows, int32_t first, int32_t n_blocks,
                                    const specrt__scan_query *query, specrt__scan_hits *hits) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    for (int32_t part = 4 * first; part < 4 * (first + n_blocks); part++) {
        const uint8_t *codes = rows->codes + (size_t)(part / 4) * rows->stride + part % 4 * 16;
        float scales[4], constants[4], scores[4];
        for (int i = 0; i < 4; i++) {
            scales[i] = specrt__scan_scale(rows->scales[4 * part + i]);
            constants[i] = rows->constant_unit * (float)rows->constants[4 * part + i];
        }
        for (int s = 0; s < query->n_states; s++) {
            int32x4_t dot = specrt__scan_dot_neon(rows, codes, query->q + 4 * s, query->n_states);
            dot = vsubq_s32(vshlq_n_s32(dot, 1), vdupq_n_s32(query->offset[s]));
            float32x4_t x = vfmaq_f32(vld1q_f32(constants), vcvtq_f32_s32(dot),
                                      vmulq_n_f32(vld1q_f32(scales), query->unit[s]));
            uint32x4_t is = vmvnq_u32(vcltq_f32(x, vdupq_n_f32(query->least[s])));
            int hit = (int)vaddvq_u32(vandq_u32(is, vld1q_u32(bits)));
            if (!hit) continue;
            vst1q_f32(scores, x);
            specrt__scan_keep(&hits[s], 4 * part, hit, scores);
        }
    }
}

/* A quarter of a line of a record times a state. Four products of pairs fit 16 bits. */
static inline int32x4_t specrt__scan_quarter_neon(const uint8_t *codes, const int8_t *q) {
    uint8x16_t all = vld1q_u8(codes);
    int16x8_t a = vdupq_n_s16(0), b = a;
    for (int plane = 0; plane < 4; plane++, q += 64) {
        uint8x16_t code = vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)(-2 * plane))), vdupq_n_u8(3));
        int8x16_t x = vreinterpretq_s8_u8(code), z = vld1q_s8(q);
        a = vmlal_s8(a, vget_low_s8(x), vget_low_s8(z));
        b = vmlal_s8(b, vget_high_s8(x), vget_high_s8(z));
    }
    return vpadalq_s16(vpaddlq_s16(a), b);
}

static void specrt__scan_pairs_neon(const specrt__scan_records *records, const int32_t *places,
                                    int32_t n, const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        int32x4_t sum = vdupq_n_s32(0);
        for (size_t j = 0; j < bytes; j += 16) {
            if (j % 64 == 0) SPECRT__SIMD_PREFETCH(next + j);
            sum =
                vaddq_s32(sum, specrt__scan_quarter_neon(record + j, q + 256 * (j / 64) + j % 64));
        }
        sums[i] = vaddvq_s32(sum);
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_neon = {
    /* signs = */ specrt__scan_signs_neon,
    /* pairs = */ specrt__scan_pairs_neon,
};

#endif
