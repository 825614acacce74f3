/* block_drafter.h : what a block drafter (DFlash, DFlash 2, DSpark) says of itself: the size of its blocks,
 * the target's layers that it reads, and what has a row for each row of its LM head. */
#ifndef MODEL_BLOCK_DRAFTER_H
#define MODEL_BLOCK_DRAFTER_H

#include "model/model.h"

#define BLOCK_DRAFTER_TAPS 8 /* most layers that are listed */

typedef struct block_drafter {
    int64_t size;       /* positions of a block; 0: not said */
    int64_t other_size; /* what a second key says, else the same */
    int64_t n_drafts;   /* tokens that a block drafts: size, or one less; 0: not said */
    int64_t n_taps;     /* layers of the target whose states fc reads; 0: not said */
    int64_t least_tap, greatest_tap; /* of these layers, the first layer being 0 */
    bool markov; /* has a Markov head, whose second matrix has a row for each row of the LM head */
    bool selector; /* of DFlash 2: two matrices by target id */
    bool headless; /* has no LM head: drafts are scored with the target's */
    const char
        *no_cut; /* why no engine scores a cut head of such a drafter, static; NULL: one does */
    int64_t taps[BLOCK_DRAFTER_TAPS]; /* the first of these layers, in the file's order */
    int64_t mask; /* the token at the positions behind the first; 0: not said (in a GGUF never) */
} block_drafter;

/* sl_block_drafter_gguf() : by the keys "dflash.*". */
void sl_block_drafter_gguf(const gguf *g, block_drafter *out);

/* sl_block_drafter_st() : by config.json, in the forms of z-lab (dflash_config), DeepSpec (keys of the whole)
 * and speculators. `config` may be NULL. */
void sl_block_drafter_st(const st *s, struct json_object *config, block_drafter *out);

#endif
