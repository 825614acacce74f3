/* retained.h : what a policy keeps of the full vocabulary's accept length. A policy counts by its worst
 * task: a mean over tasks hides the task where a policy loses most, and an application has one task. */
#ifndef SPECRT_EVAL_SHARED_RETAINED_H
#define SPECRT_EVAL_SHARED_RETAINED_H

#include <stdbool.h>
#include <stdio.h>
#include "specrt_adapt.h"

/* A policy's accept length as a share of the full vocabulary's. All zeros: not known. */
typedef struct retained {
    double mean;  /* over all prompts */
    double worst; /* in the task where the share is lowest */
    int n_tasks;
    char task[32]; /* the worst one's name, cut */
} retained;

/* retained_add_task() : count one task's share.
 * retained_by_task() : whether there are two tasks or more; else `worst` says no more than `mean`.
 * retained_factor() : a policy's speed in its worst task, as a share of its mean speed. A cycle takes as long
 * in every task, so this is the ratio of the two shares of accept length; 1 unless retained_by_task(). */
void retained_add_task(retained *r, const char *task, double share);
bool retained_by_task(const retained *r);
double retained_factor(const retained *r);

/* retained_put_speed() : a sentence on its speed over whole requests beside drafts from all rows; nothing
 * where the ratio's value is NaN. */
void retained_put_speed(FILE *f, const specrt_ratio *r);

/* RETAINED_BY_MEAN : what to say where it is not by the worst task. */
#define RETAINED_BY_MEAN                                                                           \
    "These prompts name fewer than two tasks, so the mean over all prompts decides, not the "      \
    "worst task."

#endif
