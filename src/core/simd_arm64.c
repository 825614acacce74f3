/* simd_arm64.c : the kernels with NEON. */
#include "core/simd_kernels.h"
#include "core/blocks_kernels.h"

#if defined(SPECRT__SIMD_ARM64)

typedef struct specrt__simd_sums_neon {
    float64x2_t part[4];
} specrt__simd_sums_neon;

static inline specrt__simd_v4x2 specrt__simd_pair_neon(float32x4_t lo, float32x4_t hi) {
    specrt__simd_v4x2 v;
    v.lo = lo, v.hi = hi;
    return v;
}

static inline specrt__simd_v4x2 specrt__simd_splat_neon(float x) {
    return specrt__simd_pair_neon(vdupq_n_f32(x), vdupq_n_f32(x));
}

static inline specrt__simd_v4x2 specrt__simd_load_neon(const float *p) {
    return specrt__simd_pair_neon(vld1q_f32(p), vld1q_f32(p + 4));
}

/* 16 bytes at any address. */
static inline uint8x16_t specrt__simd_16_neon(const uint8_t *p) {
    return vld1q_u8(p);
}

static inline void specrt__simd_store_neon(float *p, specrt__simd_v4x2 v) {
    vst1q_f32(p, v.lo), vst1q_f32(p + 4, v.hi);
}

static inline specrt__simd_v4x2 specrt__simd_f32_neon(const uint8_t *row, int64_t i, int at) {
    row += 128 * i + 4 * at;
    return specrt__simd_pair_neon(vreinterpretq_f32_u8(specrt__simd_16_neon(row)),
                                  vreinterpretq_f32_u8(specrt__simd_16_neon(row + 16)));
}

static inline specrt__simd_v4x2 specrt__simd_f16_neon(const uint8_t *row, int64_t i, int at) {
    float16x8_t h = vreinterpretq_f16_u8(specrt__simd_16_neon(row + 64 * i + 2 * at));
    return specrt__simd_pair_neon(vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h));
}

static inline specrt__simd_v4x2 specrt__simd_bf16_neon(const uint8_t *row, int64_t i, int at) {
    uint16x8_t h = vreinterpretq_u16_u8(specrt__simd_16_neon(row + 64 * i + 2 * at));
    return specrt__simd_pair_neon(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                                  vreinterpretq_f32_u32(vshll_high_n_u16(h, 16)));
}

static inline specrt__simd_v4x2 specrt__simd_q8_0_neon(const uint8_t *row, int64_t i, int at) {
    const uint8_t *block = row + 34 * i;
    int16x8_t q = vmovl_s8(vreinterpret_s8_u8(vld1_u8(block + 2 + at)));
    float32x4_t d =
        vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)specrt__base_load16(block))));
    return specrt__simd_pair_neon(vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)))),
                                  vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(q))));
}

static inline specrt__simd_v4x2 specrt__simd_fma_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b,
                                                      specrt__simd_v4x2 c) {
    return specrt__simd_pair_neon(vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_sub_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_mul_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_max_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vbslq_f32(vcgtq_f32(a.lo, b.lo), a.lo, b.lo),
                                  vbslq_f32(vcgtq_f32(a.hi, b.hi), a.hi, b.hi));
}

static inline int specrt__simd_any_reach_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return vminvq_u32(vandq_u32(vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi))) == 0;
}

static inline float32x4_t specrt__simd_exponent_neon(float32x4_t z) {
    uint32x4_t n = vaddq_u32(vreinterpretq_u32_f32(z), vdupq_n_u32(127));
    return vreinterpretq_f32_u32(vshlq_n_u32(n, 23));
}

static inline specrt__simd_v4x2 specrt__simd_pow2_neon(specrt__simd_v4x2 z) {
    return specrt__simd_pair_neon(specrt__simd_exponent_neon(z.lo),
                                  specrt__simd_exponent_neon(z.hi));
}

static inline void specrt__simd_reduce_neon(specrt__simd_v4x2 (*rows)[2], float *out) {
    for (int r = 0; r < 4; r++) {
        float32x4_t lo = vaddq_f32(rows[r][0].lo, rows[r][1].lo);
        float32x4_t x = vaddq_f32(lo, vaddq_f32(rows[r][0].hi, rows[r][1].hi));
        float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
        out[r] = vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
    }
}

static inline specrt__simd_sums_neon specrt__simd_zeros_neon(void) {
    specrt__simd_sums_neon d;
    for (int i = 0; i < 4; i++) d.part[i] = vdupq_n_f64(0);
    return d;
}

static inline specrt__simd_sums_neon specrt__simd_add_neon(specrt__simd_sums_neon d,
                                                           specrt__simd_v4x2 v) {
    d.part[0] = vaddq_f64(d.part[0], vcvt_f64_f32(vget_low_f32(v.lo)));
    d.part[1] = vaddq_f64(d.part[1], vcvt_high_f64_f32(v.lo));
    d.part[2] = vaddq_f64(d.part[2], vcvt_f64_f32(vget_low_f32(v.hi)));
    d.part[3] = vaddq_f64(d.part[3], vcvt_high_f64_f32(v.hi));
    return d;
}

static inline void specrt__simd_lanes_neon(specrt__simd_sums_neon d, double *out) {
    for (int i = 0; i < 4; i++) vst1q_f64(out + 2 * i, d.part[i]);
}

static void specrt__simd_tile_i8_neon(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                      int32_t *out) {
    for (int r = 0; r < 4; r++) {
        int32x4_t lo = vdupq_n_s32(0), hi = vdupq_n_s32(0);
        for (int64_t j = 0; j < n_cols; j += 8) {
            int16x8_t w = vmovl_s8(vld1_s8(rows[r] + j)), v = vld1q_s16(x + j);
            lo = vmlal_s16(lo, vget_low_s16(w), vget_low_s16(v));
            hi = vmlal_s16(hi, vget_high_s16(w), vget_high_s16(v));
        }
        out[r] = vaddvq_s32(vaddq_s32(lo, hi));
    }
}

SPECRT__SIMD_KERNELS(neon, , specrt__simd_v4x2, 8, 3, 3)

/* --- blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

static inline specrt__simd_v4x2 specrt__blocks_floats_neon(specrt__blocks_codes codes, int at) {
    int8x16_t q = (int8x16_t)codes;
    int16x8_t x = vmovl_s8(at ? vget_high_s8(q) : vget_low_s8(q));
    return specrt__simd_pair_neon(vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))),
                                  vcvtq_f32_s32(vmovl_high_s16(x)));
}

static inline float specrt__blocks_half_neon(const uint8_t *p) {
    return vgetq_lane_f32(
        vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)specrt__base_load16(p)))), 0);
}

static inline void specrt__blocks_halves_neon(const uint8_t *p, float *out) {
    vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))));
}

static inline specrt__blocks_codes specrt__blocks_look_neon(specrt__blocks_codes places) {
    return (specrt__blocks_codes)vqtbl1q_s8(vld1q_s8(specrt__rows_levels), (uint8x16_t)places);
}

SPECRT__BLOCKS_NIBBLES(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_LEVELS(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_FIVES(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_JOINED(neon, )
SPECRT__BLOCKS_KERNELS(neon, , specrt__simd_v4x2, 8)

#endif

#endif
