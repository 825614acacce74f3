/* simd_x86.c : the kernels with AVX2 and with AVX-512. */
#include "core/simd_kernels.h"
#include "core/blocks_kernels.h"

#if defined(SPECRT__SIMD_X86)

/* --- AVX2, FMA and F16C: 16 registers of 8 lanes --- */
typedef struct specrt__simd_sums_avx2 {
    __m256d lo, hi;
} specrt__simd_sums_avx2;

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_splat_avx2(float x) {
    return _mm256_set1_ps(x);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_load_avx2(const float *p) {
    return _mm256_loadu_ps(p);
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_store_avx2(float *p, __m256 v) {
    _mm256_storeu_ps(p, v);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_f32_avx2(const uint8_t *row, int64_t i,
                                                             int at) {
    return _mm256_loadu_ps((const float *)(const void *)(row + 128 * i + 4 * at));
}

SPECRT__SIMD_AVX2 static inline __m128i specrt__simd_16_avx2(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_f16_avx2(const uint8_t *row, int64_t i,
                                                             int at) {
    return _mm256_cvtph_ps(specrt__simd_16_avx2(row + 64 * i + 2 * at));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_bf16_avx2(const uint8_t *row, int64_t i,
                                                              int at) {
    __m256i bits = _mm256_cvtepu16_epi32(specrt__simd_16_avx2(row + 64 * i + 2 * at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_q8_0_avx2(const uint8_t *row, int64_t i,
                                                              int at) {
    const uint8_t *block = row + 34 * i;
    __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + at));
    __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)specrt__base_load16(block)));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_fma_avx2(__m256 a, __m256 b, __m256 c) {
    return _mm256_fmadd_ps(a, b, c);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_sub_avx2(__m256 a, __m256 b) {
    return _mm256_sub_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_mul_avx2(__m256 a, __m256 b) {
    return _mm256_mul_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_max_avx2(__m256 a, __m256 b) {
    return _mm256_max_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline int specrt__simd_any_reach_avx2(__m256 a, __m256 b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_pow2_avx2(__m256 z) {
    __m256i n = _mm256_add_epi32(_mm256_castps_si256(z), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}

/* 8 lanes to 4. */
SPECRT__SIMD_AVX2 static inline __m128 specrt__simd_fold_avx2(__m256 v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* Four rows of 4 lanes, transposed as they are added. */
SPECRT__SIMD_AVX2 static inline void specrt__simd_cross_avx2(__m128 a, __m128 b, __m128 c, __m128 d,
                                                             float *out) {
    __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd)));
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_reduce_avx2(__m256 (*rows)[2], float *out) {
    __m128 x[4];
    for (int r = 0; r < 4; r++)
        x[r] = specrt__simd_fold_avx2(_mm256_add_ps(rows[r][0], rows[r][1]));
    specrt__simd_cross_avx2(x[0], x[1], x[2], x[3], out);
}

SPECRT__SIMD_AVX2 static inline specrt__simd_sums_avx2 specrt__simd_zeros_avx2(void) {
    specrt__simd_sums_avx2 d;
    d.lo = d.hi = _mm256_setzero_pd();
    return d;
}

SPECRT__SIMD_AVX2 static inline specrt__simd_sums_avx2
specrt__simd_add_avx2(specrt__simd_sums_avx2 d, __m256 v) {
    d.lo = _mm256_add_pd(d.lo, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    d.hi = _mm256_add_pd(d.hi, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    return d;
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_lanes_avx2(specrt__simd_sums_avx2 d,
                                                             double *out) {
    _mm256_storeu_pd(out, d.lo);
    _mm256_storeu_pd(out + 4, d.hi);
}

/* The lanes of four rows, each added up. */
SPECRT__SIMD_AVX2 static inline void specrt__simd_reduce_i32_avx2(const __m256i *sums,
                                                                  int32_t *out) {
    __m256i ab = _mm256_hadd_epi32(sums[0], sums[1]), cd = _mm256_hadd_epi32(sums[2], sums[3]);
    __m256i x = _mm256_hadd_epi32(ab, cd);
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)(void *)out, y);
}

SPECRT__SIMD_AVX2 static void specrt__simd_tile_i8_avx2(const int8_t *const *rows, const int16_t *x,
                                                        int64_t n_cols, int32_t *out) {
    __m256i sums[4];
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r] = _mm256_setzero_si256();
    for (int64_t j = 0; j < n_cols; j += 16) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + j));
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {
            __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(rows[r] + j));
            __m256i w = _mm256_cvtepi8_epi16(q);
            sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(w, v));
        }
    }
    specrt__simd_reduce_i32_avx2(sums, out);
}

SPECRT__SIMD_KERNELS(avx2, SPECRT__SIMD_AVX2, __m256, 8, 3, 3)

/* --- AVX2: blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

SPECRT__SIMD_AVX2 static inline __m256 specrt__blocks_floats_avx2(specrt__blocks_codes codes,
                                                                  int at) {
    __m128i q = (__m128i)codes;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(at ? _mm_srli_si128(q, 8) : q));
}

SPECRT__SIMD_AVX2 static inline float specrt__blocks_half_avx2(const uint8_t *p) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)specrt__base_load16(p))));
}

SPECRT__SIMD_AVX2 static inline void specrt__blocks_halves_avx2(const uint8_t *p, float *out) {
    _mm_storeu_ps(out, _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

SPECRT__SIMD_AVX2 static inline specrt__blocks_codes
specrt__blocks_look_avx2(specrt__blocks_codes places) {
    __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)specrt__rows_levels);
    return (specrt__blocks_codes)_mm_shuffle_epi8(levels, (__m128i)places);
}

SPECRT__BLOCKS_NIBBLES(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_LEVELS(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_FIVES(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_JOINED(avx2, SPECRT__SIMD_AVX2)
SPECRT__BLOCKS_KERNELS(avx2, SPECRT__SIMD_AVX2, __m256, 8)

#endif

/* --- AVX-512 F and BW: 32 registers of 16 lanes --- */
SPECRT__SIMD_UNASKED

typedef struct specrt__simd_sums_avx512 {
    __m512d lo, hi;
} specrt__simd_sums_avx512;

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_splat_avx512(float x) {
    return _mm512_set1_ps(x);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_load_avx512(const float *p) {
    return _mm512_loadu_ps(p);
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_store_avx512(float *p, __m512 v) {
    _mm512_storeu_ps(p, v);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_f32_avx512(const uint8_t *row, int64_t i,
                                                                 int at) {
    return _mm512_loadu_ps(row + 128 * i + 4 * at);
}

SPECRT__SIMD_AVX512 static inline __m256i specrt__simd_32_avx512(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_f16_avx512(const uint8_t *row, int64_t i,
                                                                 int at) {
    return _mm512_cvtph_ps(specrt__simd_32_avx512(row + 64 * i + 2 * at));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_bf16_avx512(const uint8_t *row, int64_t i,
                                                                  int at) {
    __m512i bits = _mm512_cvtepu16_epi32(specrt__simd_32_avx512(row + 64 * i + 2 * at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_q8_0_avx512(const uint8_t *row, int64_t i,
                                                                  int at) {
    const uint8_t *block = row + 34 * i;
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + at));
    __m128 d = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)block));
    return _mm512_mul_ps(_mm512_broadcastss_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_fma_avx512(__m512 a, __m512 b, __m512 c) {
    return _mm512_fmadd_ps(a, b, c);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_sub_avx512(__m512 a, __m512 b) {
    return _mm512_sub_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_mul_avx512(__m512 a, __m512 b) {
    return _mm512_mul_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_max_avx512(__m512 a, __m512 b) {
    return _mm512_max_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline int specrt__simd_any_reach_avx512(__m512 a, __m512 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ) != 0;
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_pow2_avx512(__m512 z) {
    __m512i n = _mm512_add_epi32(_mm512_castps_si512(z), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}

SPECRT__SIMD_AVX512 static inline __m256 specrt__simd_upper_avx512(__m512 v) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

/* Parts of 128 bits: x0 + x2, x1 + x3, y0 + y2, y1 + y3. A blend goes where no shuffle can. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_halve_avx512(__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_reduce_avx512(__m512 (*rows)[1], float *out) {
    const __m512i others =
        _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    const __m512i firsts = _mm512_setr_epi32(0, 8, 4, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512 ab = specrt__simd_halve_avx512(rows[0][0], rows[1][0]);
    __m512 cd = specrt__simd_halve_avx512(rows[2][0], rows[3][0]);
    __m512 x = _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, ab, cd),
                             _mm512_permutex2var_ps(ab, others, cd)); /* of a, c, b, d */
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, x)));
}

SPECRT__SIMD_AVX512 static inline specrt__simd_sums_avx512 specrt__simd_zeros_avx512(void) {
    specrt__simd_sums_avx512 d;
    d.lo = d.hi = _mm512_setzero_pd();
    return d;
}

SPECRT__SIMD_AVX512 static inline specrt__simd_sums_avx512
specrt__simd_add_avx512(specrt__simd_sums_avx512 d, __m512 v) {
    d.lo = _mm512_add_pd(d.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    d.hi = _mm512_add_pd(d.hi, _mm512_cvtps_pd(specrt__simd_upper_avx512(v)));
    return d;
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_lanes_avx512(specrt__simd_sums_avx512 d,
                                                                 double *out) {
    _mm512_storeu_pd(out, d.lo);
    _mm512_storeu_pd(out + 8, d.hi);
}

SPECRT__SIMD_AVX512 static void specrt__simd_tile_i8_avx512(const int8_t *const *rows,
                                                            const int16_t *x, int64_t n_cols,
                                                            int32_t *out) {
    __m512i sums[4];
    __m256i halves[4];
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r] = _mm512_setzero_si512();
    for (int64_t j = 0; j < n_cols; j += 32) {
        __m512i v = _mm512_loadu_si512(x + j);
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {
            __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)(rows[r] + j));
            __m512i w = _mm512_cvtepi8_epi16(q);
            sums[r] = _mm512_add_epi32(sums[r], _mm512_madd_epi16(w, v));
        }
    }
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) halves[r] =
        _mm256_add_epi32(_mm512_castsi512_si256(sums[r]), _mm512_extracti64x4_epi64(sums[r], 1));
    specrt__simd_reduce_i32_avx2(halves, out);
}

SPECRT__SIMD_KERNELS(avx512, SPECRT__SIMD_AVX512, __m512, 16, 6, 5)

/* --- AVX-512: blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_floats_avx512(specrt__blocks_codes codes,
                                                                      int at) {
    (void)at;
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
}

#define specrt__blocks_half_avx512   specrt__blocks_half_avx2
#define specrt__blocks_halves_avx512 specrt__blocks_halves_avx2

/* Of the weights of all 16 codes each takes its own: by the low four bits of a lane. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_take_avx512(const uint8_t *p, int from,
                                                                    __m512 weights) {
    __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, (unsigned)from), weights);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_levels_avx512(const uint8_t *p, int from,
                                                                      int at, float scale) {
    __m512 levels = specrt__blocks_floats_avx512(
        specrt__blocks_bits((const uint8_t *)specrt__rows_levels, 0, 8), 0);
    (void)at;
    return specrt__blocks_take_avx512(p, from, _mm512_mul_ps(_mm512_set1_ps(scale), levels));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_nibbles_avx512(const uint8_t *p, int from,
                                                                       int zero, int at,
                                                                       float scale, float offset) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 weights =
        _mm512_fmadd_ps(_mm512_set1_ps(scale), _mm512_sub_ps(codes, _mm512_set1_ps((float)zero)),
                        _mm512_set1_ps(offset));
    (void)at;
    return specrt__blocks_take_avx512(p, from, weights);
}

/* The same of 32 codes, whose fifth bits are turned to bit 4. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_fives_avx512(const uint8_t *p,
                                                                     const uint8_t *high, int first,
                                                                     int zero, int at, float scale,
                                                                     float offset) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 s = _mm512_set1_ps(scale), o = _mm512_set1_ps(offset);
    __m512 low = _mm512_fmadd_ps(s, _mm512_sub_ps(codes, _mm512_set1_ps((float)zero)), o);
    __m512 upper = _mm512_fmadd_ps(s, _mm512_sub_ps(codes, _mm512_set1_ps((float)zero - 16)), o);
    __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i fifths = _mm512_rorv_epi32(_mm512_set1_epi32((int)specrt__base_load32(high)),
                                       _mm512_add_epi32(lane, _mm512_set1_epi32(first - 4)));
    (void)at;
    lanes = _mm512_srli_epi32(lanes, (unsigned)first / 4);
    lanes = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), lanes, fifths, 0xca); /* by bit */
    return _mm512_permutex2var_ps(low, lanes, upper);
}

SPECRT__SIMD_AVX512 static inline __m512i specrt__blocks_twice(const uint8_t *p) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Two numbers, each in half of the lanes. */
SPECRT__SIMD_AVX512 static inline __m512i specrt__blocks_halves_of(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi32(a), _mm256_set1_epi32(b), 1);
}

/* Groups 2 i and 2 i + 1 share bytes: low nibbles and bits 2 i, then high ones and bits 2 i + 1. */
SPECRT__SIMD_AVX512 static inline void specrt__blocks_codes_q5_k_avx512(const uint8_t *b,
                                                                        int8_t *codes) {
    const __m512i nibble = _mm512_set1_epi8(15), five = _mm512_set1_epi8(31);
    __m512i fifths = specrt__blocks_twice(b + 16);
    SPECRT__SIMD_UNROLL for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_srlv_epi32(specrt__blocks_twice(b + 48 + 32 * i),
                                        specrt__blocks_halves_of(0, 4));
        __m512i high = _mm512_rorv_epi32(fifths, specrt__blocks_halves_of(2 * i - 4, 2 * i - 3));
        low = _mm512_and_si512(_mm512_ternarylogic_epi32(nibble, low, high, 0xca), five);
        _mm512_storeu_si512((void *)(codes + 64 * i), low);
    }
}

/* Of each 128 columns groups 0 and 1 are low nibbles, 2 and 3 high ones; group g's two bits are 2 g on. */
SPECRT__SIMD_AVX512 static inline void specrt__blocks_codes_q6_k_avx512(const uint8_t *b,
                                                                        int8_t *codes) {
    const __m512i nibble = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);
    SPECRT__SIMD_UNROLL for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_loadu_si512((const void *)(b + i / 2 * 64));
        __m512i high = specrt__blocks_twice(b + 128 + i / 2 * 32);
        low = _mm512_srli_epi32(low, (unsigned)i % 2 * 4);
        high = _mm512_rorv_epi32(high, specrt__blocks_halves_of(i % 2 * 4 - 4, i % 2 * 4 - 2));
        low = _mm512_and_si512(_mm512_ternarylogic_epi32(nibble, low, high, 0xca), six);
        _mm512_storeu_si512((void *)(codes + 64 * i), _mm512_sub_epi8(low, _mm512_set1_epi8(32)));
    }
}

SPECRT__BLOCKS_KERNELS(avx512, SPECRT__SIMD_AVX512, __m512, 16)

#endif

SPECRT__SIMD_ASKED

#endif
