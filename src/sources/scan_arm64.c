/* scan_arm64.c : scans with NEON. */
#include "sources/scan.h"
#include "core/simd_kernels.h"

#if defined(SPECRT__SIMD_ARM64)

/* Sums of 4 places. */
static inline int32x4_t specrt__scan_dot_neon(const specrt__scan_rows *rows, const uint8_t *codes,
                                              const int8_t *q, int32_t n_states) {
    int32x4_t a = vdupq_n_s32(0), b = a, c = a, d = a;
    int n_parts = rows->four_bits ? 2 : 1;
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64) {
        uint8x16_t both = vld1q_u8(codes);
        for (int part = 0; part < n_parts; part++, q += 4 * n_states) {
            uint32_t four;
            memcpy(&four, q, sizeof four);
            int16x8_t z = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
            uint8x16_t code = part              ? vshrq_n_u8(both, 4)
                              : rows->four_bits ? vandq_u8(both, vdupq_n_u8(15))
                                                : both;
            int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(code)));
            int16x8_t high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(code)));
            a = vmlal_s16(a, vget_low_s16(low), vget_low_s16(z));
            b = vmlal_high_s16(b, low, z);
            c = vmlal_s16(c, vget_low_s16(high), vget_low_s16(z));
            d = vmlal_high_s16(d, high, z);
        }
    }
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

SPECRT__INTERNAL void specrt__scan_neon(const specrt__scan_rows *rows, int32_t first,
                                        int32_t n_blocks, const specrt__scan_query *query,
                                        specrt__scan_hits *hits) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    for (int32_t part = 4 * first; part < 4 * (first + n_blocks); part++) {
        const uint8_t *codes = rows->codes + (size_t)(part / 4) * rows->stride + part % 4 * 16;
        float32x4_t scale = vld1q_f32(rows->scales + 4 * part);
        float32x4_t bias = rows->bias ? vld1q_f32(rows->bias + 4 * part) : vdupq_n_f32(0);
        for (int s = 0; s < query->n_states; s++) {
            float scores[4];
            int32x4_t sum = specrt__scan_dot_neon(rows, codes, query->q + 4 * s, query->n_states);
            float32x4_t x = vcvtq_f32_s32(vsubq_s32(sum, vdupq_n_s32(query->offset[s])));
            x = vfmaq_f32(bias, x, vmulq_n_f32(scale, query->unit[s]));
            uint32x4_t is = vmvnq_u32(vcltq_f32(x, vdupq_n_f32(query->least[s])));
            int hit = (int)vaddvq_u32(vandq_u32(is, vld1q_u32(bits)));
            if (!hit) continue;
            vst1q_f32(scores, x);
            specrt__scan_keep(&hits[s], 4 * part, hit, scores);
        }
    }
}

/* --- bands --- */

/* Products of 16 codes of at most 4 bits with a four, added in pairs to 16 bits, which hold eight of them. */
static inline void specrt__scan_multiply_neon(uint8x16_t code, int8x8_t z, int16x8_t *sums) {
    int8x16_t x = vreinterpretq_s8_u8(code);
    sums[0] = vmlal_s8(sums[0], vget_low_s8(x), z);
    sums[1] = vmlal_s8(sums[1], vget_high_s8(x), z);
}

/* Sums of 4 places; of 8 bits the upper halves count 16 times. */
static inline int32x4_t specrt__scan_dot_band_neon(const specrt__scan_band *band,
                                                   const uint8_t *codes, const int8_t *q,
                                                   int32_t n_states) {
    int32x4_t a = vdupq_n_s32(0), b = a, upper_a = a, upper_b = a;
    uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << (band->bits == 8 ? 4 : band->bits)) - 1));
    for (int32_t line = 0; line < band->n_lines; line++, codes += 64) {
        uint8x16_t all = vld1q_u8(codes);
        int16x8_t parts[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};
        for (int shift = 0; shift < 8; shift += band->bits, q += 4 * n_states) {
            uint32_t four;
            memcpy(&four, q, sizeof four);
            int8x8_t z = vreinterpret_s8_u32(vdup_n_u32(four));
            specrt__scan_multiply_neon(vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)-shift)), mask), z,
                                       parts);
            if (band->bits < 8) continue;
            int16x8_t upper[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};
            specrt__scan_multiply_neon(vshrq_n_u8(all, 4), z, upper);
            upper_a = vpadalq_s16(upper_a, upper[0]);
            upper_b = vpadalq_s16(upper_b, upper[1]);
        }
        a = vpadalq_s16(a, parts[0]);
        b = vpadalq_s16(b, parts[1]);
    }
    a = vaddq_s32(a, vshlq_n_s32(upper_a, 4));
    b = vaddq_s32(b, vshlq_n_s32(upper_b, 4));
    return vpaddq_s32(a, b);
}

SPECRT__INTERNAL void specrt__scan_add_neon(const specrt__scan_band *band, int32_t first,
                                            int32_t n_blocks, const specrt__scan_query *query,
                                            float *sums) {
    for (int32_t part = 0; part < 4 * n_blocks; part++) {
        size_t block = (size_t)(first + part / 4), at = 16 * block + (size_t)(part % 4 * 4);
        const uint8_t *codes = band->codes + 64 * block * (size_t)band->n_lines + part % 4 * 16;
        float32x4_t scales = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(band->scales + at), 16));
        for (int s = 0; s < query->n_states; s++) {
            float *sum = sums + s * SPECRT__SCAN_MOST + 4 * part;
            int32x4_t dot =
                specrt__scan_dot_band_neon(band, codes, query->q + 4 * s, query->n_states);
            dot = vsubq_s32(vshlq_n_s32(dot, 1), vdupq_n_s32(query->offset[s]));
            vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot),
                                     vmulq_n_f32(scales, query->unit[s])));
        }
    }
}

SPECRT__INTERNAL void specrt__scan_pick_neon(const float *sums, int32_t first, int32_t n_blocks,
                                             float least, specrt__scan_hits *hits) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    for (int32_t at = 0; at < 16 * n_blocks; at += 4) {
        uint32x4_t is = vmvnq_u32(vcltq_f32(vld1q_f32(sums + at), vdupq_n_f32(least)));
        int hit = (int)vaddvq_u32(vandq_u32(is, vld1q_u32(bits)));
        specrt__scan_keep(hits, 16 * first + at, hit, sums + at);
    }
}

#endif
