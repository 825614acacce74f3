/* auto.h : the controller of draft length */
#ifndef ADAPT_AUTO_H
#define ADAPT_AUTO_H

#include "core/base.h"

enum { SPECRT__AUTO_BINS = 8 };
#define SPECRT__AUTO_ONE    65536
#define SPECRT__AUTO_FORGET 6     /* counters halve in 44 observations */
#define SPECRT__AUTO_FIRST  39322 /* of a first token, before any was seen: 0.6 */
#define SPECRT__AUTO_COVER  62259 /* of a list: 0.95 */
#define SPECRT__AUTO_WEIGHT 4     /* of what is supposed, in observations */
#define SPECRT__AUTO_TRUST  16    /* the same of a drafter that is as right as the target is sure */
#define SPECRT__AUTO_ANSWER 256   /* tokens that an answer is supposed to have at most */
#define SPECRT__AUTO_LENT   (2 * SPECRT__AUTO_ONE) /* passes, once, to begin with */

/* Seen and hits in 1 / 65,536, so that forgetting does not round. */
typedef struct specrt__auto_tally {
    int32_t seen, hits;
} specrt__auto_tally;

struct specrt_auto {
    specrt_env env;
    int32_t num_steps, n_lists, rows[SPECRT_AUTO_MAX_LISTS]; /* rows[0] 0: the whole policy */
    int64_t costs[SPECRT_AUTO_MAX_LISTS][SPECRT_TREE_MAX_STEPS + 1];
    int64_t sunk[SPECRT_AUTO_MAX_LISTS]
                [SPECRT_TREE_MAX_STEPS + 1]; /* of costs, by a block's pass */
    double plain;                            /* a plain pass, in the unit of the costs */
    int64_t read;
    bool keeps_chains;
    specrt__auto_tally
        levels[SPECRT_TREE_MAX_STEPS]; /* accepted, of those reached that the list held */
    specrt__auto_tally covers[SPECRT_AUTO_MAX_LISTS]; /* held, of tokens emitted */
    specrt__auto_tally bins[SPECRT__AUTO_BINS]; /* accepted, of chain tokens by their probability */
    specrt__auto_tally sure[SPECRT__AUTO_BINS]; /* accepted, by the target's probability */
    int64_t paths[SPECRT_TREE_MAX_STEPS]; /* that the l tokens before this one were all drafted */
    int64_t balance;                      /* passes that drafting may still lose */
    int32_t waited, interval;             /* plain cycles since the last probe, and until */
    int32_t n_unread;                     /* tokens that the first pass reads, the prompt's apart */
    int64_t n_prompt, n_left;             /* of the prompt, unread; that may repay reading them */
    bool told;                            /* plain cycles come with the target's probabilities */
    bool skips;                           /* the next choice is a plain cycle, asked for */
    bool chosen, probes;                  /* of the cycle at hand */
    int32_t n_block;                      /* positions of its block; 0: there is none */
    specrt_auto_choice choice;
    int64_t rate;  /* tokens by pass that the best choice is thought to give */
    int64_t path;  /* that what is drafted is accepted */
    float logprob; /* of what is drafted */
    specrt_auto_stats stats;
};

/* An observation of some weight, at most 1, of which a share hit. */
static inline void specrt__auto_weigh(specrt__auto_tally *t, int64_t weight, int64_t share) {
    t->seen += (int32_t)(weight - (t->seen * weight >> (16 + SPECRT__AUTO_FORGET)));
    t->hits += (int32_t)((weight * share >> 16) - (t->hits * weight >> (16 + SPECRT__AUTO_FORGET)));
}

static inline void specrt__auto_count(specrt__auto_tally *t, bool hit) {
    specrt__auto_weigh(t, SPECRT__AUTO_ONE, hit ? SPECRT__AUTO_ONE : 0);
}

/* --- within a draft --- */

/* The pass of a block of n positions was made for the draft at hand. */
SPECRT__INTERNAL void specrt__auto_block(specrt_auto *a, int32_t n);

SPECRT__INTERNAL int32_t specrt__auto_bin(float before, float logprob);

#endif
