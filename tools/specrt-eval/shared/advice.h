/* advice.h : the one rule by which plan and compare recommend a policy. A policy counts by its worst task: a
 * mean over tasks hides the task where a policy loses most, and an application has one task. Figures over a
 * few prompts leave several policies that may be the fastest. Of these, the one that scores the fewest rows
 * is recommended: each policy that scores fewer is slower than the fastest, as far as the figures tell. */
#ifndef SPECRT_EVAL_SHARED_ADVICE_H
#define SPECRT_EVAL_SHARED_ADVICE_H

#include <stdbool.h>

/* A policy's accept length as a share of the full vocabulary's. All zeros: not known. */
typedef struct retained {
    double mean;  /* over all prompts */
    double worst; /* in the task where the share is lowest */
    int n_tasks;
    char task[32]; /* the worst one's name, cut */
} retained;

/* advice_add_task() : count one task's share.
 * advice_by_task() : whether there are two tasks or more; else `worst` says no more than `mean`.
 * advice_factor() : a policy's speed in its worst task, as a share of its mean speed. A cycle takes as long
 * in every task, so this is the ratio of the two shares of accept length; 1 unless advice_by_task(). */
void advice_add_task(retained *r, const char *task, double share);
bool advice_by_task(const retained *r);
double advice_factor(const retained *r);

/* ADVICE_BY_MEAN : what to say where it is not by the worst task. */
#define ADVICE_BY_MEAN                                                                             \
    "These prompts name fewer than two tasks, so the mean over all prompts decides, not the "      \
    "worst task."

typedef struct candidate {
    double speed; /* tokens per second in the worst task */
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
