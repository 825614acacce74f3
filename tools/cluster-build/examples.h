/* examples.h : what a router learns from: at each position of recorded drafts what it would have read, and
 * what the target held likely there. */
#ifndef CLUSTER_BUILD_EXAMPLES_H
#define CLUSTER_BUILD_EXAMPLES_H

#include <stdbool.h>
#include "specrt.h"

/* Rows of all arrays are examples; owned. */
typedef struct example_set {
    int64_t n, capacity;
    int32_t n_state, n_top; /* n_top 0: not known yet */
    int32_t *tokens;        /* [n] that the drafter's pass reads */
    uint16_t *states;       /* f16 [n, n_state] */
    int32_t *top;           /* [n, n_top] the target's best, best first; -1: none */
    float *mass;            /* [n, n_top] their probabilities */
    int32_t *levels;        /* [n] of the drafter's pass in its cycle */
    uint64_t *documents;    /* [n] a digest of the prompt */
    int64_t n_holdout;      /* the first ones, after examples_split() */
} example_set;

/* The models that examples are of. */
typedef struct examples_model {
    const uint8_t *sha256; /* of the tokenizer; NULL: unknown */
    int32_t n_state;       /* width of the drafter's states */
    int32_t n_ids;         /* ids of the head's rows are below it */
    /* states are what the drafter's head multiplied (CORAL); else what fed the pass (DynaSpec): the
     * pass before, at a cycle's first level the target where it drew the token */
    bool output;
} examples_model;

/* examples_read() : adds the positions of a trace where the drafter made a pass; -1 stands in top for ids
 * beyond the model's.
 * @return TRACE_MISMATCH naming both sides, BAD_INPUT naming a state that is not finite. */
specrt_status examples_read(const char *path, const examples_model *of, example_set *out,
                            specrt_error *err);

/* examples_add() : room for one more, at the index given. @return NO_MEMORY. */
specrt_status examples_add(example_set *set, int64_t *at, specrt_error *err);

/* examples_split() : holds a share of the documents out, chosen by their digests and the seed, at least
 * one, and puts their examples first.
 * @return BAD_INPUT: too few examples or documents, or states that are all the same. */
specrt_status examples_split(example_set *set, double share, uint64_t seed, specrt_error *err);

/* examples_shuffle() : gives each example that is not held out another's best tokens, drawn by the seed: what
 * is learnt from them is how often clusters are meant, and nothing of the states. */
void examples_shuffle(example_set *set, uint64_t seed);

void examples_free(example_set *set);

#endif
