/* unicode.h : what a splitter asks of a code point, in a compact table. */
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Properties; a code point has any number of them. */
enum {
    UC_LETTER = 1,  /* \p{L} */
    UC_NUMBER = 2,  /* \p{N} */
    UC_SPACE = 4,   /* \s: the White_Space property */
    UC_NEWLINE = 8, /* CR and LF */
    UC_MARK = 16,   /* \p{M} */
    UC_UPPER = 32,  /* \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}: may stand before a word's small letters */
    UC_LOWER = 64,  /* \p{Ll} \p{Lm} \p{Lo} \p{M} */
    UC_PUNCT = 128, /* \p{P} */
    UC_UNSTABLE = 256, /* may change under NFC, alone or after what precedes it */
    UC_MARKS = 512,    /* punctuation as `tokenizers` has it: ASCII's, and \p{P} of Unicode 8 */
};

#define UC_BLOCK 256

typedef struct tok_unicode {
    uint16_t block_of[0x110000 / UC_BLOCK]; /* index into blocks */
    uint16_t (*blocks)[UC_BLOCK];           /* distinct ones; the first is U+0000..U+00FF */
} tok_unicode;

/* sl_tok_unicode_new() : from the categories of utf8proc. @return NULL: out of memory. */
tok_unicode *sl_tok_unicode_new(void);
void sl_tok_unicode_free(tok_unicode *table);

static inline unsigned tok_class(const tok_unicode *table, uint32_t cp) {
    return table->blocks[table->block_of[cp / UC_BLOCK]][cp % UC_BLOCK];
}

/* tok_decode() : the code point at p < end; a byte that is no part of valid UTF-8 stands for an
 * unassigned code point of one byte. */
static inline uint32_t tok_decode(const uint8_t *p, const uint8_t *end, int *len) {
    const uint32_t unassigned = 0x10FFFF;
#define TAIL(i)    (p[i] & 0x3Fu)
#define IS_TAIL(i) ((p[i] & 0xC0) == 0x80)
    *len = 1;
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xC0 || p[0] >= 0xF8 || end - p < 2 || !IS_TAIL(1)) return unassigned;
    if (p[0] < 0xE0) return *len = 2, (p[0] & 0x1Fu) << 6 | TAIL(1);
    if (end - p < 3 || !IS_TAIL(2)) return unassigned;
    if (p[0] < 0xF0) return *len = 3, (p[0] & 0x0Fu) << 12 | TAIL(1) << 6 | TAIL(2);
    if (end - p < 4 || !IS_TAIL(3)) return unassigned;
    uint32_t cp = (p[0] & 0x07u) << 18 | TAIL(1) << 12 | TAIL(2) << 6 | TAIL(3);
    if (cp > 0x10FFFF) return unassigned;
    return *len = 4, cp;
#undef TAIL
#undef IS_TAIL
}

#endif
