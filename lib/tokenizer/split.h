/* split.h : cutting text into the pieces of a known tokenizer's regular expression. */
#ifndef TOKENIZER_SPLIT_H
#define TOKENIZER_SPLIT_H

#include "tokenizer/tokenizer_impl.h"

/* sl_tok_split() : the ends of the next 1..max pieces of text [n] from offset `from` < n, which is 0 or
 * the end of a piece. Pieces tile the text. Not for TOK_SPLIT_CUSTOM.
 * @return how many. */
size_t sl_tok_split(const tok_unicode *unicode, tok_split_kind kind, const uint8_t *text, size_t n,
                    size_t from, size_t *ends, size_t max);

#endif
