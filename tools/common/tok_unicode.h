/* tok_unicode.h : what a splitter asks of a code point, in a compact table. */
#ifndef TOK_UNICODE_H
#define TOK_UNICODE_H

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

/* tok_unicode_new() : from the categories of utf8proc. @return NULL: out of memory. */
tok_unicode *tok_unicode_new(void);
void tok_unicode_free(tok_unicode *table);

static inline unsigned tok_class(const tok_unicode *table, uint32_t cp) {
    return table->blocks[table->block_of[cp / UC_BLOCK]][cp % UC_BLOCK];
}

/* tok_decode() : the code point at p < end; a byte that is no part of valid UTF-8 stands for an
 * unassigned code point of one byte. */
static inline uint32_t tok_decode(const uint8_t *p, const uint8_t *end, int *len) {
    static const uint8_t lengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 3, 4};
    const uint32_t unassigned = 0x10FFFF;
    int n = lengths[p[0] >> 4];
    *len = 1;
    if (n == 1) return p[0];
    if (n == 0 || end - p < n) return unassigned;
    uint32_t cp = p[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return unassigned;
        cp = cp << 6 | (p[i] & 0x3Fu);
    }
    if (cp > 0x10FFFF) return unassigned;
    *len = n;
    return cp;
}

#endif
