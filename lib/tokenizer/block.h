/* block.h : the ASCII classes of 64 bytes of text, a bit for each byte. */
#ifndef TOKENIZER_BLOCK_H
#define TOKENIZER_BLOCK_H

#include <stdint.h>

#define TOK_BLOCK 64

/* Bit i speaks of byte i. */
typedef struct tok_block {
    uint64_t high; /* not ASCII */
    uint64_t letter, upper, number;
    uint64_t space, newline, blank; /* blank: ' ' alone */
    uint64_t apostrophe, slash;
} tok_block;

#ifdef __SSE2__
#include <emmintrin.h>
#define TOK_HAVE_BLOCKS 1

/* Bytes in [first, first + count): shifted to the bottom of the signed range, where one comparison
 * tells them. */
static inline __m128i tok_in_range(__m128i v, char first, char count) {
    __m128i shifted = _mm_add_epi8(v, _mm_set1_epi8((char)(-128 - first)));
    return _mm_cmplt_epi8(shifted, _mm_set1_epi8((char)(-128 + count)));
}

static inline uint64_t tok_bits(__m128i v, int at) {
    return (uint64_t)(uint32_t)_mm_movemask_epi8(v) << at;
}

static inline __m128i tok_is(__m128i v, char c) {
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

static inline tok_block tok_block_load(const uint8_t *text) {
    tok_block b = {0};
    for (int at = 0; at < TOK_BLOCK; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(text + at));
        __m128i folded = _mm_or_si128(v, _mm_set1_epi8(0x20)), blank = tok_is(v, ' ');
        b.high |= tok_bits(v, at);
        b.letter |= tok_bits(tok_in_range(folded, 'a', 26), at);
        b.upper |= tok_bits(tok_in_range(v, 'A', 26), at);
        b.number |= tok_bits(tok_in_range(v, '0', 10), at);
        b.space |= tok_bits(_mm_or_si128(tok_in_range(v, '\t', 5), blank), at);
        b.newline |= tok_bits(_mm_or_si128(tok_is(v, '\n'), tok_is(v, '\r')), at);
        b.blank |= tok_bits(blank, at);
        b.apostrophe |= tok_bits(tok_is(v, '\''), at);
        b.slash |= tok_bits(tok_is(v, '/'), at);
    }
    return b;
}
#endif

#endif
