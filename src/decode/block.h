/* block.h : what a session has for blocks and for Markov heads */
#ifndef DECODE_BLOCK_H
#define DECODE_BLOCK_H

#include "specrt_block.h"
#include "core/base.h"

/* Scratch of a session, one block of memory. */
typedef struct specrt__block {
    int32_t n;        /* positions at most; 0: none */
    float *positions; /* [n, bound] logits of each */
    float
        *states; /* [2, topk, n_cols] one state, and what the pass read, for every row of a beam */
    float *from; /* [topk, rank] w1 of the tokens before */
    float *bias; /* [topk, bound] */
    int32_t *places; /* [bound] of a shortlist's rows in w2 */
} specrt__block;

SPECRT__INTERNAL specrt_status specrt__block_check_params(specrt_session *s,
                                                          const specrt_session_params *params,
                                                          specrt_error *err);
SPECRT__INTERNAL bool specrt__block_make(specrt_session *s, int32_t n);

/* Adds to the logits of n rows what the Markov head says of the tokens before them, if the head has one. */
SPECRT__INTERNAL void specrt__block_add_markov(specrt_session *s, int32_t n);

/* A draft's levels, of a block. */
SPECRT__INTERNAL specrt_status specrt__block_grow(specrt_session *s, const specrt_block *block);

#endif
