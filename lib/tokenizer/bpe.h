/* bpe.h : byte-pair merging of one piece. */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "tokenizer/tokenizer_impl.h"

/* Pieces up to here are merged by scanning arrays, longer ones by a heap. */
#define TOK_SHORT_PIECE 64

/* Work space of long pieces; zero-initialise. */
typedef struct tok_bpe_scratch {
    int32_t *symbols;                 /* [capacity], of one allocation with the next three */
    uint32_t *before, *after, *ranks; /* ranks[i] of the pair that begins at i */
    uint64_t *heap;
    size_t capacity, n_heap, heap_capacity;
} tok_bpe_scratch;

/* sl_tok_bpe() : the ids of a piece of 1..n bytes.
 *   out : [n], at least as many as there can be ids
 * @return how many; SIZE_MAX when memory ran out. */
size_t sl_tok_bpe(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
                  int32_t *out);

/* The two ways on their own, for tests; the same ids. n <= TOK_SHORT_PIECE for the first. */
size_t sl_tok_bpe_short(const tokenizer *tok, const uint8_t *piece, size_t n, int32_t *out);
size_t sl_tok_bpe_long(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece,
                       size_t n, int32_t *out);

void sl_tok_bpe_scratch_free(tok_bpe_scratch *scratch);

#endif
