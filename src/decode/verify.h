/* verify.h : the verifier, and the distribution that it draws by */
#ifndef DECODE_VERIFY_H
#define DECODE_VERIFY_H

#include "core/base.h"

enum { SPECRT__VERIFY_BLOCK = 1024 }; /* weights of one partial sum, a multiple of 16 */

/* What a random number is for: part of its key. */
enum { SPECRT__VERIFY_DRAW, SPECRT__VERIFY_DRAFT, SPECRT__VERIFY_ACCEPT, SPECRT__VERIFY_INSTEAD };

struct specrt_verifier {
    specrt_env env;
    specrt_sampling sampling;
    int32_t n_logits; /* columns of the target's logits */
    int32_t n_vocab, n_blocks;
    double total;   /* of the weights */
    double *sums;   /* [n_blocks] of each block of weights */
    float *weights; /* [n_vocab] unnormalised probabilities, 0 for what a filter removed */
    float *values;  /* [n_vocab] weights of the kept, by place */
    int32_t *kept;  /* [n_vocab] ids that a filter keeps; a heap meanwhile */
};

SPECRT__INTERNAL specrt_status specrt__verify_check(int32_t n_logits, int32_t n_vocab,
                                                    const specrt_sampling *s, specrt_error *err);

/* The random number in [0, 1) of a purpose at two places. */
SPECRT__BOTH static inline double specrt__verify_uniform(const specrt_sampling *s, int purpose,
                                                         int64_t a, int64_t b) {
    const uint64_t key[] = {s->seed,           s->session,  s->generation,
                            (uint64_t)purpose, (uint64_t)a, (uint64_t)b};
    return specrt__base_uniform(key, 6);
}

/* --- weights --- */

SPECRT__INTERNAL double specrt__verify_sum(const float *x, int32_t n);

static inline int32_t specrt__verify_block(const specrt_verifier *v, int32_t block) {
    int32_t left = v->n_vocab - block * SPECRT__VERIFY_BLOCK;
    return left < SPECRT__VERIFY_BLOCK ? left : SPECRT__VERIFY_BLOCK;
}

/* --- filters --- */

/* @return false for logits that are none: NaN, or nothing above -inf. */
SPECRT__INTERNAL bool specrt__verify_distribution(specrt_verifier *v, const float *logits);

/* specrt__verify_pick() : the token at which the running sum of weights passes u times the total; u in [0,
 * 1). */
SPECRT__INTERNAL int32_t specrt__verify_pick(const specrt_verifier *v, double u);

/* --- draw-and-descend --- */

/* The first node whose parent is not before it; 0: there is none. Parents must be known. */
SPECRT__INTERNAL int32_t specrt__verify_stray(const specrt_draft *draft);

/* --- rejection sampling --- */

SPECRT__INTERNAL bool specrt__verify_subtract(specrt_verifier *v,
                                              const specrt_draft_distribution *distribution);

#endif
