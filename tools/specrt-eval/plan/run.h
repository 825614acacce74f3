/* run.h : the decoding behind a plan. */
#ifndef SPECRT_EVAL_PLAN_RUN_H
#define SPECRT_EVAL_PLAN_RUN_H

#include "plan.h"

/* plan_add_run() : a policy under the widest tree of a width that the options allow; no run where they
 * allow none. @return NULL with the error. */
plan_run *plan_add_run(plan *p, int policy, int width, specrt_error *err);
void plan_free_runs(plan *p);

/* plan_decode() : every prompt under the runs from `first` on, and plainly. */
specrt_status plan_decode(plan *p, int first, bool plain_too, const char *phase, specrt_error *err);

/* plan_check() : decode the best ways under exactly their shapes. */
specrt_status plan_check(plan *p, specrt_error *err);

/* plan_read_tree() : p->recorded, of traces that hold the drafter's best tokens, else an error: before costs
 * are measured, which takes seconds. */
specrt_status plan_read_tree(plan *p, specrt_error *err);

/* plan_from_trace() : ways from recorded cycles and curves alone. */
specrt_status plan_from_trace(plan *p, specrt_error *err);

#endif
