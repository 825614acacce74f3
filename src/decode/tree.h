/* tree.h : the draft tree */
#ifndef DECODE_TREE_H
#define DECODE_TREE_H

#include "core/base.h"

typedef struct specrt__tree_candidate {
    int32_t token;
    int32_t parent;   /* candidate index; -1: the root */
    int32_t beam_row; /* of the level after its own; -1: it did not get there */
    float logprob;    /* cumulative */
} specrt__tree_candidate;

struct specrt_tree {
    specrt_env env;
    specrt_tree_params params;
    int32_t root, level, n_candidates, n_beam;
    specrt__tree_candidate *candidates; /* [topk + (num_steps - 1) * topk^2] */
    int32_t *beam;                      /* [topk] candidate indices */
    int32_t *beam_tokens, *beam_parents;
    float *beam_logprobs;
    int32_t chosen[SPECRT_TREE_MAX_NODES]; /* candidate of each node but the root */
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
    float logprobs[SPECRT_TREE_MAX_NODES];
    int32_t beam_rows[SPECRT_TREE_MAX_NODES];
};

SPECRT__INTERNAL specrt_status specrt__tree_resolve(const specrt_tree_params *in,
                                                    specrt_tree_params *out, specrt_error *err);

/* Rounding may lift a probability above 1; a child must not pass its parent. NaN never wins. */
SPECRT__BOTH static inline float specrt__tree_add(float path, float logprob) {
    return logprob != logprob ? -INFINITY : path + (logprob < 0 ? logprob : 0);
}

/* The node of a candidate among chosen [n], which ascends; node 0 for the root's -1. */
static inline int32_t specrt__tree_node(const specrt_tree *t, int32_t candidate, int32_t n) {
    int32_t node = n;
    while (node > 0 && t->chosen[node - 1] != candidate) node--;
    return node;
}

#endif
