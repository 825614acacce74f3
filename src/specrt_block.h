/* specrt_block.h : drafts of a drafter that gives the states of several positions in one pass: DFlash (arXiv
 * 2602.06036), DFlash 2, DSpark. The conventions of specrt.h hold, whose single header always has it.
 *
 * FUNCTIONS (prefix specrt_):
 *     draft from a block            session_draft_block; specrt_host.draft_block
 *     make a tree of your own of it session_block_topk
 *     choose how many positions     auto_set_sunk, and specrt_session_params.auto_draft
 *
 * A block takes the place of the passes of a draft: in the loop of >>decoding,
 *
 *     block.hidden = your drafter(root)                     // f32 [n, n_cols], one state for each position
 *     specrt_session_draft_block(s, &block, &draft);        // in place of get_beam, expand and finish
 *
 * verify, observe, accept and all else stay. The session's tree says what is drafted: topk 1 is a chain,
 * taken left to right; sampled drafts are chains whose distributions verification is shown; topk above 1 is a
 * tree over the distributions of the positions, the more probable nodes of which are kept (DDTree). Sessions
 * are created with specrt_session_params.n_block. docs/block-drafters.md has all of it. */
#ifndef SPECRT_BLOCK_H
#define SPECRT_BLOCK_H

#include "specrt.h"

// >>block
// Markov heads; drafts from the states of a block.

#ifdef __cplusplus
extern "C" {
#endif

/* ---- blocks: the states of several positions in one pass ---- */

/* A Markov head (DSpark): the logit of token v behind token p grows by to[v] . from[p], after logit_scale and
 * softcap. It belongs to a head (specrt_head_desc.markov) and is multiplied for the rows of the shortlist
 * alone, in every draft of a session: by expand, expand_batch and draft_block. Only rows and row_stride,
 * types and sizes are read of both. */
typedef struct specrt_markov_desc {
    specrt_head_desc from; /* w1 [at least every id of the head, rank]: row i is of target id i */
    specrt_head_desc to;   /* w2 [the head's n_rows, rank]: row i is of row i of the head */
} specrt_markov_desc;

#define SPECRT_BLOCK_MAX_K 256 /* most candidates of a position */

/* Judges the best tokens of a position anew, as the selector of DFlash 2 does.
 *   user : specrt_block.user
 *   position : 0 for the first state
 *   previous : the token before it on the path that is continued; the root at position 0
 *   ids : i32 [k] candidates, best first
 *   logits : f32 [k] their logits, the Markov head's part in them. The function changes them in place; -inf
 *       takes a candidate out
 * @return 0; any other value ends the call with HOST. */
typedef int (*specrt_selector)(void *user, int32_t position, int32_t previous, const int32_t *ids,
                               int32_t k, float *logits);

/* The states of a block, and how a draft is made of them. Zero-initialise it. Its arrays are borrowed. */
struct specrt_block {
    int32_t n;           /* positions, 1 to specrt_session_params.n_block */
    const float *hidden; /* f32 [n, n_cols] for the head; row 0 proposes what follows the root */
    const float *input;  /* f32 [n, n_cols] that the pass read (DynaSpec's router); NULL: unknown */
    /* 0: one union of rows, scored for all positions by one product. `sketch` and clusters choose for each
     * position what it would have alone; `successor` follows the root and the best tokens of positions.
     * 1: a list for each position, routed left to right by the tokens that were chosen before it */
    int32_t by_position;
    /* The draft ends before the first position of less confidence; 0: never. Confidence is
     * sigmoid(confidence . [state; from[previous]] + confidence_bias), and in a tree a path's own; with
     * `confidence` NULL it is the probability of the best path, as of specrt_host.p_min */
    float p_min;
    const float *confidence; /* f32 [n_cols + rank]; rank 0 without a Markov head. NULL: none */
    float confidence_bias;
    specrt_selector select; /* NULL: none */
    void *user;             /* first argument of select */
    int32_t k;              /* candidates that select is shown: topk to SPECRT_BLOCK_MAX_K */
};

/* specrt_session_draft_block() : Makes a draft of a block (the beams, expand and finish of a cycle).
 *   block : as above. With auto_draft, positions beyond the chosen number are not read
 *   draft : the chain or tree to verify, borrowed until the next start or observe; the root alone if the
 *       first position had too little confidence, or auto_draft chose no draft
 * @return OK; BAD_ARG with the field; HOST: select failed, and begin must come next. */
SPECRT_API specrt_status specrt_session_draft_block(specrt_session *session,
                                                    const specrt_block *block, specrt_draft *draft);

/* specrt_auto_set_sunk() : What the pass of a block takes, of the costs that it was created with or was given
 * last. Where a draft ends inside its block, this part is spent: further tokens must be worth the rest of
 * their costs, and the cycle is charged for the whole pass.
 *   sunk : f64 [n_lists, num_steps + 1] as costs of specrt_auto_desc, in the same unit, copied: from 0 to
 *       the cost; column 0 is 0. Zeros: the drafter has no blocks, as after specrt_auto_create()
 * @return OK; BAD_ARG: nothing has changed. */
SPECRT_API specrt_status specrt_auto_set_sunk(specrt_auto *a, const double *sunk,
                                              specrt_error *err);

/* specrt_session_block_topk() : The k best tokens of each position without the logits of all tokens: exact
 * for the rows of the policy's union, which `sketch` searches the head for. It is the only pass of its cycle;
 * a tree of your own may follow, as behind specrt_session_route(). Without the Markov head.
 *   hidden : f32 [n, n_cols]
 *   input : f32 [n, n_cols] as specrt_block.input; NULL: unknown
 *   n : 1 to specrt_session_params.n_block
 *   k : 1 to SPECRT_BLOCK_MAX_K
 *   ids : i32 [n, k], written: target ids, best first; -1 beyond the rows that were scored
 *   logits : f32 [n, k], written; -inf there */
SPECRT_API specrt_status specrt_session_block_topk(specrt_session *session, const float *hidden,
                                                   const float *input, int32_t n, int32_t k,
                                                   int32_t *ids, float *logits);

#ifdef __cplusplus
}
#endif

#endif
