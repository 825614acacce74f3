/* simd_wasm.c : the kernels with WebAssembly's vectors of 128 bits, which have no fused instruction: a
 * product of floats is exact as a double, and so is rounded with the sum, as in >>simd_scalar. */
#include "core/simd_kernels.h"
#include "core/blocks_kernels.h"

#if defined(SPECRT__SIMD_WASM)

typedef struct specrt__simd_sums_wasm {
    v128_t part[4];
} specrt__simd_sums_wasm;

static inline specrt__simd_v4x2 specrt__simd_pair_wasm(v128_t lo, v128_t hi) {
    specrt__simd_v4x2 v;
    v.lo = lo, v.hi = hi;
    return v;
}

static inline specrt__simd_v4x2 specrt__simd_splat_wasm(float x) {
    return specrt__simd_pair_wasm(wasm_f32x4_splat(x), wasm_f32x4_splat(x));
}

static inline specrt__simd_v4x2 specrt__simd_load_wasm(const float *p) {
    return specrt__simd_pair_wasm(wasm_v128_load(p), wasm_v128_load(p + 4));
}

static inline void specrt__simd_store_wasm(float *p, specrt__simd_v4x2 v) {
    wasm_v128_store(p, v.lo), wasm_v128_store(p + 4, v.hi);
}

static inline specrt__simd_v4x2 specrt__simd_f32_wasm(const uint8_t *row, int64_t i, int at) {
    row += 128 * i + 4 * at;
    return specrt__simd_pair_wasm(wasm_v128_load(row), wasm_v128_load(row + 16));
}

/* Four halves, each with its sign to the left: as floats they are 2^112 times too small, and the greatest
 * exponent is that of infinities and NaN. */
static inline v128_t specrt__simd_halves_wasm(v128_t h) {
    v128_t bits = wasm_v128_and(wasm_i32x4_shl(h, 13), wasm_u32x4_const_splat(0x8fffe000u));
    v128_t x = wasm_f32x4_mul(bits, wasm_f32x4_const_splat(5.1922968585348276e33f));
    v128_t above = wasm_f32x4_ge(wasm_f32x4_abs(x), wasm_f32x4_const_splat(65536));
    return wasm_v128_or(x, wasm_v128_and(above, wasm_u32x4_const_splat(0x7f800000u)));
}

static inline specrt__simd_v4x2 specrt__simd_f16_wasm(const uint8_t *row, int64_t i, int at) {
    row += 64 * i + 2 * at;
    return specrt__simd_pair_wasm(specrt__simd_halves_wasm(wasm_i32x4_load16x4(row)),
                                  specrt__simd_halves_wasm(wasm_i32x4_load16x4(row + 8)));
}

static inline specrt__simd_v4x2 specrt__simd_bf16_wasm(const uint8_t *row, int64_t i, int at) {
    row += 64 * i + 2 * at;
    return specrt__simd_pair_wasm(wasm_i32x4_shl(wasm_u32x4_load16x4(row), 16),
                                  wasm_i32x4_shl(wasm_u32x4_load16x4(row + 8), 16));
}

/* Eight whole numbers as floats. */
static inline specrt__simd_v4x2 specrt__simd_floats_wasm(v128_t i16) {
    return specrt__simd_pair_wasm(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(i16)),
                                  wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(i16)));
}

static inline specrt__simd_v4x2 specrt__simd_mul_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_mul(a.lo, b.lo), wasm_f32x4_mul(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_q8_0_wasm(const uint8_t *row, int64_t i, int at) {
    const uint8_t *block = row + 34 * i;
    return specrt__simd_mul_wasm(
        specrt__simd_splat_wasm(specrt__base_f16(specrt__base_load16(block))),
        specrt__simd_floats_wasm(wasm_i16x8_load8x8(block + 2 + at)));
}

/* The upper two floats as doubles. */
static inline v128_t specrt__simd_upper_wasm(v128_t x) {
    return wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(x, x, 1, 1));
}

static inline v128_t specrt__simd_fused_wasm(v128_t a, v128_t b, v128_t c) {
    v128_t lo = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b));
    v128_t hi = wasm_f64x2_mul(specrt__simd_upper_wasm(a), specrt__simd_upper_wasm(b));
    lo = wasm_f32x4_demote_f64x2_zero(wasm_f64x2_add(lo, wasm_f64x2_promote_low_f32x4(c)));
    hi = wasm_f32x4_demote_f64x2_zero(wasm_f64x2_add(hi, specrt__simd_upper_wasm(c)));
    return wasm_i64x2_shuffle(lo, hi, 0, 2);
}

static inline specrt__simd_v4x2 specrt__simd_fma_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b,
                                                      specrt__simd_v4x2 c) {
    return specrt__simd_pair_wasm(specrt__simd_fused_wasm(a.lo, b.lo, c.lo),
                                  specrt__simd_fused_wasm(a.hi, b.hi, c.hi));
}

static inline specrt__simd_v4x2 specrt__simd_sub_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_sub(a.lo, b.lo), wasm_f32x4_sub(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_max_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_pmax(b.lo, a.lo), wasm_f32x4_pmax(b.hi, a.hi));
}

static inline int specrt__simd_any_reach_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return !wasm_i32x4_all_true(
        wasm_v128_and(wasm_f32x4_lt(a.lo, b.lo), wasm_f32x4_lt(a.hi, b.hi)));
}

static inline v128_t specrt__simd_exponent_wasm(v128_t z) {
    return wasm_i32x4_shl(wasm_i32x4_add(z, wasm_i32x4_const_splat(127)), 23);
}

static inline specrt__simd_v4x2 specrt__simd_pow2_wasm(specrt__simd_v4x2 z) {
    return specrt__simd_pair_wasm(specrt__simd_exponent_wasm(z.lo),
                                  specrt__simd_exponent_wasm(z.hi));
}

static inline void specrt__simd_reduce_wasm(specrt__simd_v4x2 (*rows)[2], float *out) {
    for (int r = 0; r < 4; r++) {
        v128_t lo = wasm_f32x4_add(rows[r][0].lo, rows[r][1].lo);
        v128_t x = wasm_f32x4_add(lo, wasm_f32x4_add(rows[r][0].hi, rows[r][1].hi));
        v128_t y = wasm_f32x4_add(x, wasm_i64x2_shuffle(x, x, 1, 1));
        out[r] = wasm_f32x4_extract_lane(y, 0) + wasm_f32x4_extract_lane(y, 1);
    }
}

static inline specrt__simd_sums_wasm specrt__simd_zeros_wasm(void) {
    specrt__simd_sums_wasm d;
    for (int i = 0; i < 4; i++) d.part[i] = wasm_f64x2_const_splat(0);
    return d;
}

static inline specrt__simd_sums_wasm specrt__simd_add_wasm(specrt__simd_sums_wasm d,
                                                           specrt__simd_v4x2 v) {
    d.part[0] = wasm_f64x2_add(d.part[0], wasm_f64x2_promote_low_f32x4(v.lo));
    d.part[1] = wasm_f64x2_add(d.part[1], specrt__simd_upper_wasm(v.lo));
    d.part[2] = wasm_f64x2_add(d.part[2], wasm_f64x2_promote_low_f32x4(v.hi));
    d.part[3] = wasm_f64x2_add(d.part[3], specrt__simd_upper_wasm(v.hi));
    return d;
}

static inline void specrt__simd_lanes_wasm(specrt__simd_sums_wasm d, double *out) {
    for (int i = 0; i < 4; i++) wasm_v128_store(out + 2 * i, d.part[i]);
}

static void specrt__simd_tile_i8_wasm(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                      int32_t *out) {
    for (int r = 0; r < 4; r++) {
        v128_t sum = wasm_i32x4_const_splat(0);
        for (int64_t j = 0; j < n_cols; j += 8)
            sum = wasm_i32x4_add(
                sum, wasm_i32x4_dot_i16x8(wasm_i16x8_load8x8(rows[r] + j), wasm_v128_load(x + j)));
        sum = wasm_i32x4_add(sum, wasm_i64x2_shuffle(sum, sum, 1, 1));
        out[r] = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
    }
}

SPECRT__SIMD_KERNELS(wasm, , specrt__simd_v4x2, 8, 3, 3)

/* --- blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

static inline specrt__simd_v4x2 specrt__blocks_floats_wasm(specrt__blocks_codes codes, int at) {
    v128_t q = (v128_t)codes;
    return specrt__simd_floats_wasm(at ? wasm_i16x8_extend_high_i8x16(q)
                                       : wasm_i16x8_extend_low_i8x16(q));
}

static inline float specrt__blocks_half_wasm(const uint8_t *p) {
    return specrt__base_f16(specrt__base_load16(p));
}

static inline void specrt__blocks_halves_wasm(const uint8_t *p, float *out) {
    wasm_v128_store(out, specrt__simd_halves_wasm(wasm_i32x4_load16x4(p)));
}

static inline specrt__blocks_codes specrt__blocks_look_wasm(specrt__blocks_codes places) {
    return (specrt__blocks_codes)wasm_i8x16_swizzle(wasm_v128_load(specrt__rows_levels),
                                                    (v128_t)places);
}

SPECRT__BLOCKS_NIBBLES(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_LEVELS(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_FIVES(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_JOINED(wasm, )
SPECRT__BLOCKS_KERNELS(wasm, , specrt__simd_v4x2, 8)

#endif

#endif
