/* scan_x86.c : scans with AVX2 and with AVX-512 VNNI. */
#include "sources/scan.h"
#include "core/simd_kernels.h"

#if defined(SPECRT__SIMD_X86)

#define SPECRT__SCAN_AVX2 __attribute__((target("avx2,fma")))
#define SPECRT__SCAN_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma")))

static inline int32_t specrt__scan_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return four;
}

/* --- AVX2 --- */

/* Sums of 8 places by one state. Eight products of a line fit 16 bits. */
SPECRT__SCAN_AVX2 static inline __m256i specrt__scan_dot_avx2(const uint8_t *codes, int32_t n_lines,
                                                              const int8_t *q, int32_t n_states) {
    __m256i sum = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    for (int32_t line = 0; line < n_lines; line++, codes += 64) {
        __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)codes);
        __m256i part = _mm256_setzero_si256();
        for (int bit = 0; bit < 8; bit++, q += 4 * n_states) {
            __m256i z = _mm256_set1_epi32(specrt__scan_four(q));
            __m256i code = _mm256_and_si256(_mm256_srli_epi16(all, bit), one);
            part = _mm256_add_epi16(part, _mm256_maddubs_epi16(code, z));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
    }
    return sum;
}

SPECRT__SCAN_AVX2 static void specrt__scan_signs_avx2(const specrt__scan_signs *rows, int32_t first,
                                                      int32_t n_blocks,
                                                      const specrt__scan_query *query,
                                                      specrt__scan_hits *hits) {
    for (int32_t half = 2 * first; half < 2 * (first + n_blocks); half++) {
        const uint8_t *codes = rows->codes + (size_t)(half / 2) * rows->stride + half % 2 * 32;
        const void *scales = rows->scales + 8 * (size_t)half;
        const void *constants = rows->constants + 8 * (size_t)half;
        __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)scales));
        __m256 scale = _mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_slli_epi32(bits, 20), _mm256_set1_epi32(SPECRT__SCAN_EXPONENT)));
        __m256i steps = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)constants));
        __m256 constant =
            _mm256_mul_ps(_mm256_set1_ps(rows->constant_unit), _mm256_cvtepi32_ps(steps));
        for (int s = 0; s < query->n_states; s++) {
            float scores[8];
            __m256i dot =
                specrt__scan_dot_avx2(codes, rows->n_lines, query->q + 4 * s, query->n_states);
            dot = _mm256_sub_epi32(_mm256_slli_epi32(dot, 1), _mm256_set1_epi32(query->offset[s]));
            __m256 x =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                                _mm256_mul_ps(_mm256_set1_ps(query->unit[s]), scale), constant);
            int hit =
                _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(query->least[s]), _CMP_NLT_UQ));
            if (!hit) continue;
            _mm256_storeu_ps(scores, x);
            specrt__scan_keep(&hits[s], 8 * half, hit, scores);
        }
    }
}

/* Half a line of a record times a state. Four products of pairs fit 16 bits. */
SPECRT__SCAN_AVX2 static inline __m256i specrt__scan_half_avx2(const uint8_t *codes,
                                                               const int8_t *q) {
    __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    __m256i sum = _mm256_setzero_si256(), mask = _mm256_set1_epi8(3);
    for (int plane = 0; plane < 4; plane++, q += 64) {
        __m256i code = _mm256_and_si256(_mm256_srli_epi16(all, 2 * plane), mask);
        __m256i z = _mm256_loadu_si256((const __m256i *)(const void *)q);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, z));
    }
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

SPECRT__SCAN_AVX2 static void specrt__scan_pairs_avx2(const specrt__scan_records *records,
                                                      const int32_t *places, int32_t n,
                                                      const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        __m256i sum = _mm256_setzero_si256();
        for (size_t j = 0; j < bytes; j += 64) {
            SPECRT__SIMD_PREFETCH(next + j);
            sum = _mm256_add_epi32(sum, specrt__scan_half_avx2(record + j, q + 4 * j));
            sum = _mm256_add_epi32(sum, specrt__scan_half_avx2(record + j + 32, q + 4 * j + 32));
        }
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        sums[i] = _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_avx2 = {
    /* signs = */ specrt__scan_signs_avx2,
    /* pairs = */ specrt__scan_pairs_avx2,
};

/* --- AVX-512 VNNI --- */

SPECRT__SIMD_UNASKED

/* Adds products of fours; with the intrinsic, gcc 12 moves the sums about and spills them. */
#if defined(__GNUC__)
#define SPECRT__SCAN_DOT(sums, codes, z)                                                           \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(z))
#else
#define SPECRT__SCAN_DOT(sums, codes, z) ((sums) = _mm512_dpbusd_epi32(sums, codes, z))
#endif

/* Blocks that one state is scanned with side by side, so that products need not wait for each other. */
enum { SPECRT__SCAN_TILE = 4 };

/* A line for n_states, a constant. Signs stay where their bits are, so that sum i counts 2^i times; the upper
 * halves come down first. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_line_vnni(__m512i line, const int8_t *q, int n_states, __m512i (*sums)[4]) {
    SPECRT__SIMD_UNROLL
    for (int bit = 0; bit < 8; bit++) {
        if (bit == 4) line = _mm512_srli_epi16(line, 4);
        __m512i code = _mm512_and_si512(line, _mm512_set1_epi8((char)(1 << bit % 4)));
        SPECRT__SIMD_UNROLL
        for (int s = 0; s < n_states; s++)
            SPECRT__SCAN_DOT(sums[s][bit % 4], code,
                             _mm512_set1_epi32(specrt__scan_four(q + 4 * (bit * n_states + s))));
    }
}

/* Sums that count 2^i times, which divides them, as one. */
SPECRT__SCAN_VNNI static inline __m512i specrt__scan_unite_vnni(const __m512i *sums) {
    __m512i low = _mm512_add_epi32(sums[0], _mm512_srai_epi32(sums[1], 1));
    return _mm512_add_epi32(
        low, _mm512_add_epi32(_mm512_srai_epi32(sums[2], 2), _mm512_srai_epi32(sums[3], 3)));
}

/* Keeps what is of interest to state s in a block. */
SPECRT__SCAN_VNNI static inline void specrt__scan_keep_vnni(const specrt__scan_signs *rows,
                                                            int32_t block,
                                                            const specrt__scan_query *query, int s,
                                                            __m512i dot, specrt__scan_hits *hits) {
    const void *scales = rows->scales + 16 * (size_t)block;
    const void *constants = rows->constants + 16 * (size_t)block;
    __m512i bits = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)scales));
    __m512 scale = _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(bits, 20), _mm512_set1_epi32(SPECRT__SCAN_EXPONENT)));
    __m512i steps = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)constants));
    __m512 constant = _mm512_mul_ps(_mm512_set1_ps(rows->constant_unit), _mm512_cvtepi32_ps(steps));
    dot = _mm512_sub_epi32(_mm512_slli_epi32(dot, 1), _mm512_set1_epi32(query->offset[s]));
    __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                               _mm512_mul_ps(_mm512_set1_ps(query->unit[s]), scale), constant);
    __mmask16 hit = _mm512_cmp_ps_mask(x, _mm512_set1_ps(query->least[s]), _CMP_NLT_UQ);
    if (!hit) return;
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i places = _mm512_add_epi32(_mm512_set1_epi32(16 * block), lanes);
    _mm512_storeu_si512(hits->places + hits->n, _mm512_maskz_compress_epi32(hit, places));
    _mm512_storeu_ps(hits->scores + hits->n, _mm512_maskz_compress_ps(hit, x));
    hits->n += __builtin_popcount(hit);
}

/* n_blocks for n_states; one of both is 1, and both are constants. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_tile_vnni(const specrt__scan_signs *rows, int32_t block, int n_blocks,
                       const specrt__scan_query *query, int n_states, specrt__scan_hits *hits) {
    __m512i sums[SPECRT__SCAN_STATES][4];
    const uint8_t *codes = rows->codes + (size_t)block * rows->stride;
    const int8_t *q = query->q;
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < n_states * n_blocks; s++) {
        SPECRT__SIMD_UNROLL
        for (int i = 0; i < 4; i++) sums[s][i] = _mm512_setzero_si512();
    }
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64, q += 32 * n_states) {
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < n_blocks; b++)
            specrt__scan_line_vnni(_mm512_loadu_si512(codes + (size_t)b * rows->stride), q,
                                   n_states, &sums[b]);
    }
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < n_states * n_blocks; s++)
        specrt__scan_keep_vnni(rows, block + s / n_states, query, s % n_states,
                               specrt__scan_unite_vnni(sums[s]), &hits[s % n_states]);
}

SPECRT__SCAN_VNNI static void specrt__scan_signs_vnni(const specrt__scan_signs *rows, int32_t first,
                                                      int32_t n_blocks,
                                                      const specrt__scan_query *query,
                                                      specrt__scan_hits *hits) {
    int32_t b = first, end = first + n_blocks;
    if (query->n_states > 1)
        for (; b < end; b++) specrt__scan_tile_vnni(rows, b, 1, query, SPECRT__SCAN_STATES, hits);
    for (; b + SPECRT__SCAN_TILE <= end; b += SPECRT__SCAN_TILE)
        specrt__scan_tile_vnni(rows, b, SPECRT__SCAN_TILE, query, 1, hits);
    for (; b < end; b++) specrt__scan_tile_vnni(rows, b, 1, query, 1, hits);
}

SPECRT__SCAN_VNNI static void specrt__scan_pairs_vnni(const specrt__scan_records *records,
                                                      const int32_t *places, int32_t n,
                                                      const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        __m512i sum = _mm512_setzero_si512();
        for (size_t j = 0; j < bytes; j += 64) {
            __m512i all = _mm512_loadu_si512(record + j), mask = _mm512_set1_epi8(3);
            SPECRT__SIMD_PREFETCH(next + j);
            SPECRT__SIMD_UNROLL
            for (size_t plane = 0; plane < 4; plane++, all = _mm512_srli_epi16(all, 2))
                SPECRT__SCAN_DOT(sum, _mm512_and_si512(all, mask),
                                 _mm512_loadu_si512(q + 4 * j + 64 * plane));
        }
        sums[i] = _mm512_reduce_add_epi32(sum);
    }
}

SPECRT__SIMD_ASKED

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_vnni = {
    /* signs = */ specrt__scan_signs_vnni,
    /* pairs = */ specrt__scan_pairs_vnni,
};

#endif
