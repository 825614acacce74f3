/* advice.h : the one rule by which plan and compare recommend a policy. Figures over a few prompts leave
 * several policies that may be the fastest. Of these, the one that scores the fewest rows is recommended:
 * each policy that scores fewer is slower than the fastest, as far as the figures tell. */
#ifndef SPECRT_EVAL_SHARED_ADVICE_H
#define SPECRT_EVAL_SHARED_ADVICE_H

#include <stdbool.h>

typedef struct candidate {
    double speed; /* tokens per second */
    double rows;  /* of the head, scored per pass */
    int pays; /* beside the fastest: -1: slower beyond the 95% interval; 0: that cannot be told */
} candidate;

/* advice_ties() : whether a candidate may be as fast as the fastest one. Most of an interval's width is how
 * prompts differ, whatever the policy, so a candidate that is slower by more than 5% does not tie. */
bool advice_ties(const candidate *c, const candidate *fastest);

/* advice_prefers() : whether to recommend a candidate rather than `chosen`, which ties with the fastest. */
bool advice_prefers(const candidate *c, const candidate *chosen, const candidate *fastest);

/* advice_verdict() : whether something pays, in words.
 *   ratio : of its speed to that without it
 *   pays  : 1: faster beyond the 95% interval; 0: that cannot be told; -1: slower */
const char *advice_verdict(double ratio, int pays);

#endif
