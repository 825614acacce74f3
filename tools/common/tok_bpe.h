/* tok_bpe.h : byte-pair merging of one piece. */
#ifndef TOK_BPE_H
#define TOK_BPE_H

#include "tokenizer_impl.h"

/* Pieces up to here are merged by scanning arrays, longer ones by a heap. */
#define TOK_SHORT_PIECE 48

typedef struct tok_heap_item {
    uint32_t rank, at;   /* the pair that begins at `at`... */
    int32_t left, right; /* ...as long as it is this one */
} tok_heap_item;

/* Work space of long pieces; zero-initialise. */
typedef struct tok_bpe_scratch {
    int32_t *symbols; /* of all arrays below, one allocation */
    uint32_t *before, *after;
    tok_heap_item *heap;
    size_t capacity; /* symbols */
    size_t n_heap, heap_capacity;
} tok_bpe_scratch;

/* tok_bpe() : the ids of a piece of 1..n bytes.
 *   out : [n], at least as many as there can be ids
 * @return how many; SIZE_MAX when memory ran out. */
size_t tok_bpe(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
               int32_t *out);

/* The two ways on their own, for tests; the same ids. n <= TOK_SHORT_PIECE for the first. */
size_t tok_bpe_short(const tokenizer *tok, const uint8_t *piece, size_t n, int32_t *out);
size_t tok_bpe_long(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
                    int32_t *out);

void tok_bpe_scratch_free(tok_bpe_scratch *scratch);

#endif
