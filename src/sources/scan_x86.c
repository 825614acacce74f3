/* scan_x86.c : scans with AVX2 and with AVX-512 VNNI. */
#include "sources/scan.h"
#include "core/simd_kernels.h"

#if defined(SPECRT__SIMD_X86)

#define SPECRT__SCAN_AVX2 __attribute__((target("avx2,fma")))
#define SPECRT__SCAN_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma")))

/* Sums of 8 places. A pair of products fits 32 bits. */
SPECRT__SCAN_AVX2 static inline __m256i specrt__scan_dot_avx2(const specrt__scan_rows *rows,
                                                              const uint8_t *codes, const int8_t *q,
                                                              int32_t n_states) {
    __m256i low = _mm256_setzero_si256(), high = low, half = _mm256_set1_epi8(15);
    int n_parts = rows->four_bits ? 2 : 1;
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64) {
        __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes);
        for (int part = 0; part < n_parts; part++, q += 4 * n_states) {
            int32_t four;
            memcpy(&four, q, sizeof four);
            __m256i z = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
            __m256i code = part ? _mm256_srli_epi16(both, 4) : both;
            if (rows->four_bits) code = _mm256_and_si256(code, half);
            __m256i a = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(code));
            __m256i b = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(code, 1));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(a, z));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(b, z));
        }
    }
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8); /* hadd works in halves */
}

SPECRT__SCAN_AVX2 SPECRT__INTERNAL void specrt__scan_avx2(const specrt__scan_rows *rows,
                                                          int32_t first, int32_t n_blocks,
                                                          const specrt__scan_query *query,
                                                          specrt__scan_hits *hits) {
    for (int32_t half = 2 * first; half < 2 * (first + n_blocks); half++) {
        const uint8_t *codes = rows->codes + (size_t)(half / 2) * rows->stride + half % 2 * 32;
        __m256 scale = _mm256_loadu_ps(rows->scales + 8 * half);
        __m256 bias = rows->bias ? _mm256_loadu_ps(rows->bias + 8 * half) : _mm256_setzero_ps();
        for (int s = 0; s < query->n_states; s++) {
            float scores[8];
            __m256i sum = specrt__scan_dot_avx2(rows, codes, query->q + 4 * s, query->n_states);
            sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(query->offset[s]));
            __m256 x = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                       _mm256_mul_ps(_mm256_set1_ps(query->unit[s]), scale), bias);
            int hit =
                _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(query->least[s]), _CMP_NLT_UQ));
            if (!hit) continue;
            _mm256_storeu_ps(scores, x);
            specrt__scan_keep(&hits[s], 8 * half, hit, scores);
        }
    }
}

SPECRT__SIMD_UNASKED

/* Adds products of fours; with the intrinsic, gcc 12 moves the sums about and spills them. */
#if defined(__GNUC__)
#define SPECRT__SCAN_DOT(sums, codes, z)                                                           \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(z))
#else
#define SPECRT__SCAN_DOT(sums, codes, z) ((sums) = _mm512_dpbusd_epi32(sums, codes, z))
#endif

SPECRT__SCAN_VNNI static inline __m512i specrt__scan_four_vnni(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Four dimensions of the blocks of a tile times a state's. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_add_vnni(const __m512i *codes, const int8_t *q, __m512i *sums) {
    __m512i z = specrt__scan_four_vnni(q);
    SPECRT__SIMD_UNROLL
    for (int b = 0; b < SPECRT__SCAN_TILE; b++) SPECRT__SCAN_DOT(sums[b], codes[b], z);
}

/* Scores of a block. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) __m512
specrt__scan_score_vnni(const float *scales, const float *bias, float unit, __m512i sums) {
    __m512 scale = _mm512_mul_ps(_mm512_set1_ps(unit), _mm512_loadu_ps(scales));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, _mm512_loadu_ps(bias));
}

/* Keeps what is of interest to state s in a tile. */
SPECRT__SCAN_VNNI static __attribute__((noinline)) void
specrt__scan_keep_vnni(const specrt__scan_query *query, int s, int32_t place, const float *scales,
                       const float *bias, const __m512i *sums, specrt__scan_hits *hits) {
    int32_t n = hits->n;
    for (int32_t b = 0; b < 16 * SPECRT__SCAN_TILE; b += 16) {
        __m512 x = specrt__scan_score_vnni(scales + b, bias + b, query->unit[s], sums[b / 16]);
        __mmask16 hit = _mm512_cmp_ps_mask(x, _mm512_set1_ps(query->least[s]), _CMP_NLT_UQ);
        __m512i places = _mm512_add_epi32(
            _mm512_set1_epi32(place + b),
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        _mm512_storeu_si512(hits->places + n, _mm512_maskz_compress_epi32(hit, places));
        _mm512_storeu_ps(hits->scores + n, _mm512_maskz_compress_ps(hit, x));
        n += __builtin_popcount(hit);
    }
    hits->n = n;
}

/* Most tiles hold nothing of interest to a state: one branch asks. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_put_vnni(const specrt__scan_query *query, int s, int32_t place, const float *scales,
                      const float *bias, const __m512i *sums, specrt__scan_hits *hits) {
    __mmask16 dull = 0xffff;
    SPECRT__SIMD_UNROLL
    for (int b = 0; b < SPECRT__SCAN_TILE; b++) {
        __m512 x = specrt__scan_score_vnni(scales + 16 * b, bias + 16 * b, query->unit[s], sums[b]);
        dull = _mm512_mask_cmp_ps_mask(dull, x, _mm512_set1_ps(query->least[s]), _CMP_LT_OQ);
    }
    if (dull != 0xffff) {
        __m512i copy[SPECRT__SCAN_TILE]; /* the sums themselves stay in registers */
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < SPECRT__SCAN_TILE; b++) copy[b] = sums[b];
        specrt__scan_keep_vnni(query, s, place, scales, bias, copy, hits);
    }
}

/* A tile for n_states, a constant. */
#define SPECRT__SCAN_DEFINE(name, N)                                                               \
    SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void name(                      \
        const specrt__scan_rows *rows, int32_t block, const specrt__scan_query *query,             \
        bool four_bits, specrt__scan_hits *hits) {                                                 \
        __m512i sums[N][SPECRT__SCAN_TILE], lines[SPECRT__SCAN_TILE], codes[SPECRT__SCAN_TILE];    \
        size_t stride = rows->stride;                                                              \
        const uint8_t *line = rows->codes + (size_t)block * stride;                                \
        static const float zeros[16 * SPECRT__SCAN_TILE] = {0};                                    \
        const float *scales = rows->scales + 16 * (size_t)block;                                   \
        const float *bias = rows->bias ? rows->bias + 16 * (size_t)block : zeros;                  \
        const int8_t *q = query->q;                                                                \
        SPECRT__SIMD_UNROLL                                                                        \
        for (int s = 0; s < N; s++) {                                                              \
            SPECRT__SIMD_UNROLL                                                                    \
            for (int b = 0; b < SPECRT__SCAN_TILE; b++)                                            \
                sums[s][b] = _mm512_set1_epi32(-query->offset[s]);                                 \
        }                                                                                          \
        bool is_long = rows->n_lines > SPECRT__SCAN_AHEAD;                                         \
        int32_t n_lines = rows->n_lines, last = is_long ? n_lines - SPECRT__SCAN_AHEAD : n_lines;  \
        size_t tile = SPECRT__SCAN_TILE * stride;                                                  \
        size_t ahead = is_long ? 64 * (size_t)SPECRT__SCAN_AHEAD : 2 * tile;                       \
        for (int32_t g = 0; g < rows->n_lines; g++, line += 64, q += 4 * N) {                      \
            const uint8_t *fetched = line + ahead + (g < last ? 0 : tile - 64 * (size_t)n_lines);  \
            SPECRT__SIMD_UNROLL                                                                    \
            for (int b = 0; b < SPECRT__SCAN_TILE; b++) {                                          \
                SPECRT__SIMD_PREFETCH(fetched + (size_t)b * stride);                               \
                lines[b] = codes[b] = _mm512_loadu_si512(line + (size_t)b * stride);               \
                if (four_bits) codes[b] = _mm512_and_si512(lines[b], _mm512_set1_epi8(15));        \
            }                                                                                      \
            SPECRT__SIMD_UNROLL                                                                    \
            for (int s = 0; s < N; s++) specrt__scan_add_vnni(codes, q + 4 * s, sums[s]);          \
            if (!four_bits) continue;                                                              \
            q += 4 * N;                                                                            \
            SPECRT__SIMD_UNROLL                                                                    \
            for (int b = 0; b < SPECRT__SCAN_TILE; b++)                                            \
                codes[b] = _mm512_and_si512(_mm512_srli_epi16(lines[b], 4), _mm512_set1_epi8(15)); \
            SPECRT__SIMD_UNROLL                                                                    \
            for (int s = 0; s < N; s++) specrt__scan_add_vnni(codes, q + 4 * s, sums[s]);          \
        }                                                                                          \
        SPECRT__SIMD_UNROLL                                                                        \
        for (int s = 0; s < N; s++)                                                                \
            specrt__scan_put_vnni(query, s, 16 * block, scales, bias, sums[s], &hits[s]);          \
    }
SPECRT__SCAN_DEFINE(specrt__scan_one_vnni, 1)
SPECRT__SCAN_DEFINE(specrt__scan_several_vnni, SPECRT__SCAN_STATES)

/* A line for one state. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) __m512i
specrt__scan_line_vnni(const uint8_t *line, const int8_t *q, bool four_bits, __m512i sum) {
    __m512i codes = _mm512_loadu_si512(line), half = _mm512_set1_epi8(15);
    SPECRT__SIMD_PREFETCH(line + 4 * 64 * SPECRT__SCAN_AHEAD);
    if (four_bits)
        SPECRT__SCAN_DOT(sum, _mm512_and_si512(_mm512_srli_epi16(codes, 4), half),
                         specrt__scan_four_vnni(q + 4));
    if (four_bits) codes = _mm512_and_si512(codes, half);
    SPECRT__SCAN_DOT(sum, codes, specrt__scan_four_vnni(q));
    return sum;
}

/* One state and a block of many lines, which comes from memory: in order, or it comes slowly. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_long_vnni(const specrt__scan_rows *rows, int32_t block,
                       const specrt__scan_query *query, bool four_bits, specrt__scan_hits *hits) {
    __m512i sums[4];
    const uint8_t *line = rows->codes + (size_t)block * rows->stride;
    const int8_t *q = query->q;
    size_t place = 16 * (size_t)block;
    static const float zeros[16] = {0};
    float scores[16];
    SPECRT__SIMD_UNROLL
    for (int i = 0; i < 4; i++) sums[i] = _mm512_setzero_si512();
    int32_t g = 0, width = four_bits ? 8 : 4;
    for (; g + 4 <= rows->n_lines; g += 4) {
        SPECRT__SIMD_UNROLL
        for (int i = 0; i < 4; i++)
            sums[i] = specrt__scan_line_vnni(line + 64 * (g + i), q + width * (g + i), four_bits,
                                             sums[i]);
    }
    for (; g < rows->n_lines; g++)
        sums[0] = specrt__scan_line_vnni(line + 64 * g, q + width * g, four_bits, sums[0]);
    __m512i sum =
        _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
    sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(query->offset[0]));
    __m512 x = specrt__scan_score_vnni(
        rows->scales + place, rows->bias ? rows->bias + place : zeros, query->unit[0], sum);
    __mmask16 hit = _mm512_cmp_ps_mask(x, _mm512_set1_ps(query->least[0]), _CMP_NLT_UQ);
    if (!hit) return;
    _mm512_storeu_ps(scores, x);
    specrt__scan_keep(hits, (int32_t)place, hit, scores);
}

SPECRT__SCAN_VNNI SPECRT__INTERNAL void specrt__scan_vnni(const specrt__scan_rows *rows,
                                                          int32_t first, int32_t n_blocks,
                                                          const specrt__scan_query *query,
                                                          specrt__scan_hits *hits) {
    bool is_long = query->n_states == 1 && rows->n_lines >= SPECRT__SCAN_AHEAD;
    int32_t n_left = is_long ? 0 : n_blocks % SPECRT__SCAN_TILE;
    int32_t b = first, end = first + n_blocks - n_left;
    if (is_long && rows->four_bits)
        for (; b < end; b++) specrt__scan_long_vnni(rows, b, query, true, hits);
    else if (is_long)
        for (; b < end; b++) specrt__scan_long_vnni(rows, b, query, false, hits);
    else if (query->n_states == 1 && rows->four_bits)
        for (; b < end; b += SPECRT__SCAN_TILE) specrt__scan_one_vnni(rows, b, query, true, hits);
    else if (query->n_states == 1)
        for (; b < end; b += SPECRT__SCAN_TILE) specrt__scan_one_vnni(rows, b, query, false, hits);
    else if (rows->four_bits)
        for (; b < end; b += SPECRT__SCAN_TILE)
            specrt__scan_several_vnni(rows, b, query, true, hits);
    else
        for (; b < end; b += SPECRT__SCAN_TILE)
            specrt__scan_several_vnni(rows, b, query, false, hits);
    specrt__scan_avx2(rows, end, n_left, query, hits);
}

SPECRT__SIMD_ASKED

/* --- bands --- */

/* Sums of 8 places by one state. Up to eight products of fewer than 8 bits fit 16; of 8 the halves do. */
SPECRT__SCAN_AVX2 static inline __attribute__((always_inline)) __m256i
specrt__scan_dot_band_avx2(const uint8_t *codes, int32_t n_lines, int bits, const int8_t *q,
                           int32_t n_states) {
    __m256i sum = _mm256_setzero_si256(), upper = sum, ones = _mm256_set1_epi16(1);
    __m256i mask = _mm256_set1_epi8((char)((1 << (bits == 8 ? 4 : bits)) - 1));
    for (int32_t line = 0; line < n_lines; line++, codes += 64) {
        __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)codes);
        __m256i part = _mm256_setzero_si256();
        for (int shift = 0; shift < 8; shift += bits, q += 4 * n_states) {
            int32_t four;
            memcpy(&four, q, sizeof four);
            __m256i z = _mm256_set1_epi32(four);
            __m256i code = _mm256_and_si256(_mm256_srli_epi16(all, shift), mask);
            part = _mm256_add_epi16(part, _mm256_maddubs_epi16(code, z));
            if (bits < 8) continue;
            code = _mm256_and_si256(_mm256_srli_epi16(all, 4), mask);
            upper = _mm256_add_epi32(upper, _mm256_madd_epi16(_mm256_maddubs_epi16(code, z), ones));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, ones));
    }
    return _mm256_add_epi32(sum, _mm256_slli_epi32(upper, 4));
}

SPECRT__SCAN_AVX2 static inline __attribute__((always_inline)) void
specrt__scan_add_width_avx2(const specrt__scan_band *band, int bits, int32_t first,
                            int32_t n_blocks, const specrt__scan_query *query, float *sums) {
    for (int32_t half = 0; half < 2 * n_blocks; half++) {
        size_t block = (size_t)(first + half / 2), at = 16 * block + (size_t)(half % 2 * 8);
        const uint8_t *codes = band->codes + 64 * block * (size_t)band->n_lines + half % 2 * 32;
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(band->scales + at));
        __m256 scales = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
        for (int s = 0; s < query->n_states; s++) {
            float *sum = sums + s * SPECRT__SCAN_MOST + 8 * half;
            __m256i dot = specrt__scan_dot_band_avx2(codes, band->n_lines, bits, query->q + 4 * s,
                                                     query->n_states);
            dot = _mm256_sub_epi32(_mm256_slli_epi32(dot, 1), _mm256_set1_epi32(query->offset[s]));
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(query->unit[s]), scales);
            _mm256_storeu_ps(sum,
                             _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_loadu_ps(sum)));
        }
    }
}

SPECRT__SCAN_AVX2 SPECRT__INTERNAL void specrt__scan_add_avx2(const specrt__scan_band *band,
                                                              int32_t first, int32_t n_blocks,
                                                              const specrt__scan_query *query,
                                                              float *sums) {
    switch (band->bits) {
    case 1: specrt__scan_add_width_avx2(band, 1, first, n_blocks, query, sums); break;
    case 2: specrt__scan_add_width_avx2(band, 2, first, n_blocks, query, sums); break;
    case 4: specrt__scan_add_width_avx2(band, 4, first, n_blocks, query, sums); break;
    default: specrt__scan_add_width_avx2(band, 8, first, n_blocks, query, sums);
    }
}

SPECRT__SCAN_AVX2 SPECRT__INTERNAL void specrt__scan_pick_avx2(const float *sums, int32_t first,
                                                               int32_t n_blocks, float least,
                                                               specrt__scan_hits *hits) {
    for (int32_t at = 0; at < 16 * n_blocks; at += 8) {
        __m256 is = _mm256_cmp_ps(_mm256_loadu_ps(sums + at), _mm256_set1_ps(least), _CMP_NLT_UQ);
        specrt__scan_keep(hits, 16 * first + at, _mm256_movemask_ps(is), sums + at);
    }
}

SPECRT__SIMD_UNASKED

/* Adds a block's scores for a state. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_raise_vnni(const uint16_t *bf16, const specrt__scan_query *query, int s, __m512i dot,
                        float *sum) {
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)bf16);
    __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    dot = _mm512_sub_epi32(_mm512_slli_epi32(dot, 1), _mm512_set1_epi32(query->offset[s]));
    scale = _mm512_mul_ps(_mm512_set1_ps(query->unit[s]), scale);
    _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, _mm512_loadu_ps(sum)));
}

/* Leaves out the lowest bits; a shift must be a constant. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) __m512i
specrt__scan_shift_vnni(__m512i line, int bits) {
    if (bits == 1) return _mm512_srli_epi16(line, 1);
    return bits == 2 ? _mm512_srli_epi16(line, 2) : _mm512_srli_epi16(line, 4);
}

/* A line of each block of a tile for one state. Codes stay where their bits are, so that sum i of a block
 * counts 2^(i * bits) times; of 1 bit the upper halves come down first. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_line_one_vnni(const uint8_t *line, size_t stride, int bits, const int8_t *q,
                           __m512i (*dots)[4]) {
    int n_sums = bits == 8 ? 1 : bits == 4 ? 2 : 4;
    SPECRT__SIMD_UNROLL
    for (int b = 0; b < SPECRT__SCAN_TILE; b++) {
        __m512i codes = _mm512_loadu_si512(line + (size_t)b * stride);
        SPECRT__SIMD_PREFETCH(line + (size_t)(b + 2 * SPECRT__SCAN_TILE) * stride);
        SPECRT__SIMD_UNROLL
        for (int part = 0; part < 8 / bits; part++) {
            int at = part % n_sums;
            __m512i mask = _mm512_set1_epi8((char)(((1 << bits) - 1) << at * bits));
            if (part == 4) codes = _mm512_srli_epi16(codes, 4);
            __m512i kept = bits == 8 ? codes : _mm512_and_si512(codes, mask);
            SPECRT__SCAN_DOT(dots[b][at], kept, specrt__scan_four_vnni(q + 4 * part));
        }
    }
}

/* Sums that count 2^(i * bits) times, which divides them, as one. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) __m512i
specrt__scan_unite_vnni(const __m512i *dots, int bits) {
    __m512i first = dots[0];
    if (bits == 4) first = _mm512_add_epi32(first, _mm512_srai_epi32(dots[1], 4));
    if (bits == 2)
        first = _mm512_add_epi32(
            _mm512_add_epi32(first, _mm512_srai_epi32(dots[1], 2)),
            _mm512_add_epi32(_mm512_srai_epi32(dots[2], 4), _mm512_srai_epi32(dots[3], 6)));
    if (bits == 1)
        first = _mm512_add_epi32(
            _mm512_add_epi32(first, _mm512_srai_epi32(dots[1], 1)),
            _mm512_add_epi32(_mm512_srai_epi32(dots[2], 2), _mm512_srai_epi32(dots[3], 3)));
    return first;
}

/* A tile for one state; the bits are a constant. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_band_one_vnni(const specrt__scan_band *band, int bits, int32_t first, int32_t at,
                           const specrt__scan_query *query, float *sums) {
    __m512i dots[SPECRT__SCAN_TILE][4];
    size_t stride = 64 * (size_t)band->n_lines;
    const uint8_t *line = band->codes + (size_t)(first + at) * stride;
    const uint16_t *scales = band->scales + 16 * (size_t)(first + at);
    const int8_t *q = query->q;
    SPECRT__SIMD_UNROLL
    for (int b = 0; b < SPECRT__SCAN_TILE; b++) {
        SPECRT__SIMD_UNROLL
        for (int i = 0; i < 4; i++) dots[b][i] = _mm512_setzero_si512();
    }
    for (int32_t g = 0; g < band->n_lines; g++, line += 64, q += 32 / bits)
        specrt__scan_line_one_vnni(line, stride, bits, q, dots);
    SPECRT__SIMD_UNROLL
    for (int b = 0; b < SPECRT__SCAN_TILE; b++)
        specrt__scan_raise_vnni(scales + 16 * b, query, 0, specrt__scan_unite_vnni(dots[b], bits),
                                sums + 16 * (at + b));
}

/* A tile for several states; the bits are a constant. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_band_several_vnni(const specrt__scan_band *band, int bits, int32_t first, int32_t at,
                               const specrt__scan_query *query, float *sums) {
    __m512i dots[SPECRT__SCAN_STATES][SPECRT__SCAN_TILE], lines[SPECRT__SCAN_TILE],
        codes[SPECRT__SCAN_TILE];
    __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    size_t stride = 64 * (size_t)band->n_lines;
    const uint8_t *line = band->codes + (size_t)(first + at) * stride;
    const uint16_t *scales = band->scales + 16 * (size_t)(first + at);
    const int8_t *q = query->q;
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < SPECRT__SCAN_STATES; s++) {
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < SPECRT__SCAN_TILE; b++) dots[s][b] = _mm512_setzero_si512();
    }
    for (int32_t g = 0; g < band->n_lines; g++, line += 64) {
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < SPECRT__SCAN_TILE; b++) {
            SPECRT__SIMD_PREFETCH(line + (size_t)(b + 2 * SPECRT__SCAN_TILE) * stride);
            lines[b] = _mm512_loadu_si512(line + (size_t)b * stride);
        }
        SPECRT__SIMD_UNROLL
        for (int shift = 0; shift < 8; shift += bits, q += 4 * SPECRT__SCAN_STATES) {
            SPECRT__SIMD_UNROLL
            for (int b = 0; b < SPECRT__SCAN_TILE; b++) {
                codes[b] = bits == 8 ? lines[b] : _mm512_and_si512(lines[b], mask);
                lines[b] = specrt__scan_shift_vnni(lines[b], bits);
            }
            SPECRT__SIMD_UNROLL
            for (int s = 0; s < SPECRT__SCAN_STATES; s++)
                specrt__scan_add_vnni(codes, q + 4 * s, dots[s]);
        }
    }
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < SPECRT__SCAN_STATES; s++) {
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < SPECRT__SCAN_TILE; b++)
            specrt__scan_raise_vnni(scales + 16 * b, query, s, dots[s][b],
                                    sums + s * SPECRT__SCAN_MOST + 16 * (at + b));
    }
}

SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_add_width_vnni(const specrt__scan_band *band, int bits, int32_t first,
                            int32_t n_blocks, const specrt__scan_query *query, float *sums) {
    int32_t at = 0;
    if (query->n_states == 1)
        for (; at + SPECRT__SCAN_TILE <= n_blocks; at += SPECRT__SCAN_TILE)
            specrt__scan_band_one_vnni(band, bits, first, at, query, sums);
    else
        for (; at + SPECRT__SCAN_TILE <= n_blocks; at += SPECRT__SCAN_TILE)
            specrt__scan_band_several_vnni(band, bits, first, at, query, sums);
    if (at < n_blocks)
        specrt__scan_add_avx2(band, first + at, n_blocks - at, query, sums + 16 * at);
}

SPECRT__SCAN_VNNI SPECRT__INTERNAL void specrt__scan_add_bands_vnni(const specrt__scan_band *band,
                                                                    int32_t first, int32_t n_blocks,
                                                                    const specrt__scan_query *query,
                                                                    float *sums) {
    switch (band->bits) {
    case 1: specrt__scan_add_width_vnni(band, 1, first, n_blocks, query, sums); break;
    case 2: specrt__scan_add_width_vnni(band, 2, first, n_blocks, query, sums); break;
    case 4: specrt__scan_add_width_vnni(band, 4, first, n_blocks, query, sums); break;
    default: specrt__scan_add_width_vnni(band, 8, first, n_blocks, query, sums);
    }
}

SPECRT__SCAN_VNNI SPECRT__INTERNAL void specrt__scan_pick_vnni(const float *sums, int32_t first,
                                                               int32_t n_blocks, float least,
                                                               specrt__scan_hits *hits) {
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int32_t at = 0; at < 16 * n_blocks; at += 16) {
        __m512 x = _mm512_loadu_ps(sums + at);
        __mmask16 hit = _mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ);
        if (!hit) continue;
        __m512i places = _mm512_add_epi32(_mm512_set1_epi32(16 * first + at), lanes);
        _mm512_storeu_si512(hits->places + hits->n, _mm512_maskz_compress_epi32(hit, places));
        _mm512_storeu_ps(hits->scores + hits->n, _mm512_maskz_compress_ps(hit, x));
        hits->n += __builtin_popcount(hit);
    }
}

SPECRT__SIMD_ASKED

#endif
