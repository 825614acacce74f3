/* raw.h : tokens that are found in text as they stand, before it is split: user-defined and added
 * ones. The rules are those of `tokenizers`: leftmost, longest, then the token's options. */
#ifndef TOKENIZER_RAW_H
#define TOKENIZER_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tokenizer/tokenizer.h"

#define TOK_RAW_SINGLE_WORD 1u /* not inside a word */
#define TOK_RAW_LSTRIP      2u /* takes the white space before it along */
#define TOK_RAW_RSTRIP      4u
#define TOK_RAW_NORMALIZED  8u  /* looked for in normalised text, in its own normalised form */
#define TOK_RAW_HIDDEN      16u /* a special token: yields nothing, but hides what it overlaps */

typedef struct tok_raw {
    int32_t id;
    uint32_t flags;
    uint32_t offset, n; /* bytes in the pool */
} tok_raw;

typedef struct tok_raw_set {
    tok_raw *items; /* [n] by first byte, longest first */
    size_t n, capacity;
    int32_t begin[257];   /* range of items by first byte */
    uint64_t pairs[1024]; /* a bit for each two bytes that a token begins with */
} tok_raw_set;

/* sl_tok_add_raw() : look for text [n], which stands for `id`. */
specrt_status sl_tok_add_raw(tokenizer *tok, int32_t id, const void *text, size_t n, unsigned flags,
                             specrt_error *err);

/* sl_tok_raw_finish() : sort and normalise; after the normaliser is known. */
specrt_status sl_tok_raw_finish(tokenizer *tok, specrt_error *err);

/* A search through one text. */
typedef struct tok_raw_scan {
    const tokenizer *tok;
    const tok_raw_set *set;
    const uint8_t *text;
    size_t n, at, taken; /* where to search on; end of the last token found */
} tok_raw_scan;

/* sl_tok_raw_next() : the next token; text up to *begin and after the last *end is no token's. @return
 * its id, or -1 at the end. */
int32_t sl_tok_raw_next(tok_raw_scan *scan, size_t *begin, size_t *end);

#endif
