/* plan.h : what specrt-eval plan measures and makes of it.
 *
 *     a sequence's passes, timed -> specrt_costs, monotone curves
 *     plan_run (a policy decodes, each cycle's tree is looked at) -> tokens a cycle of many shapes
 *     both -> plan_way: tokens per second of a policy and shape, with an interval */
#ifndef SPECRT_EVAL_PLAN_H
#define SPECRT_EVAL_PLAN_H

#include "../shared/retained.h"
#include "specrt_adapt.h"
#include "../shared/eval.h"
#include "base/curve.h"
#include "engine/infer/auto.h"

/* ---- what drafts give ------------------------------------------------------------------------ */

enum {
    PLAN_SHAPES = 48,
    PLAN_CHAIN = 8 /* levels of the longest chain, unless more are asked for */
};

/* plan_shapes() : those that one run of the widest tree tells about, the run's own the last.
 *   width : index of specrt_costs_width()
 *   most  : bounds; 0: none  @return how many. */
int plan_shapes(int width, const specrt_tree_params *most, specrt_tree_params out[PLAN_SHAPES]);
specrt_status plan_no_tree(specrt_error *err); /* the options leave none */

/* plan_tree_tokens() : what a cycle would have emitted under a shape with fewer levels or nodes than the
 * draft's: nodes rank by log-probability, so that a smaller tree is a prefix of the ranking. */
int plan_tree_tokens(const specrt_draft *draft, const specrt_verdict *verdict,
                     const specrt_tree_params *shape);

/* Cycles of a shorter chain in those of a longer one. */
typedef struct plan_tally {
    double tokens, cycles; /* emitted, in as many cycles */
    int open;              /* tokens of a cycle that has not ended */
} plan_tally;

/* plan_tally_chain() : what chains of num_steps, one after the other, make of a chain of `ran` drafts of
 * which `accepted` were. One that reaches behind the last draft goes on in the next call. */
void plan_tally_chain(plan_tally *t, int ran, int accepted, int num_steps);

/* One prompt under one policy and widest tree. */
typedef struct plan_turn {
    double n_cycles, n_rows;       /* cycles, and the sum of their shortlist rows */
    plan_tally tally[PLAN_SHAPES]; /* of each shape */
    double seconds;
    decoder_times times;
} plan_turn;

typedef struct plan_run {
    int policy; /* of the plan's */
    int width;
    int n_shapes;
    specrt_tree_params shapes[PLAN_SHAPES];
    decoder *decoder;
    plan_turn *turns; /* [n_prompts] */
    plan_turn *turn;  /* at hand */
} plan_run;

typedef struct plan_way {
    int policy; /* -1: plain decoding */
    specrt_tree_params shape;
    double accept_length, accept_half; /* half of the 95% interval */
    double cycle;                      /* seconds */
    double rows;
    double prompt_seconds;   /* of reading a prompt, in the mean; 0: not known */
    bool ties;               /* of a policy: as fast as the fastest, within the error */
    retained kept;           /* of the full vocabulary's accept length */
    double speed, low, high; /* tokens per second, over all prompts */
    double measured, cycle_found, accept_found; /* by --check; NAN: not checked */
} plan_way;

/* ---- the plan -------------------------------------------------------------------------------- */

typedef struct plan_policy {
    char name[160];
    specrt_policy *policy;
    bool full;        /* the whole head as it is stored */
    double row_saved; /* share of a row's bytes that a copy of the head saves; 0: as stored */
} plan_policy;

typedef struct plan {
    eval_options options;
    double measure;         /* seconds, costs */
    const char *costs_file; /* costs are read, not measured; NULL: none */
    const char *costs_out;  /* they are written there; NULL: nowhere */
    int64_t n_check;
    cli_list traces;             /* acceptance comes from them; none: the policies decode */
    specrt_tree_params recorded; /* the traces' own */
    double recorded_prompt;      /* their tokens of a prompt, in the mean */
    eval_models models;
    chat *chat;
    specrt_costs costs;
    plan_policy *policies;
    int n_policies;
    prompt_list asked;
    id_list *prompts;   /* [n_prompts] those that fit */
    const char **tasks; /* [n_prompts] their domains, borrowed from `asked` */
    int n_prompts;
    plan_turn *plain; /* [n_prompts] */
    plan_run *runs;
    int n_runs;
    plan_way *ways; /* [n_ways] best first; plain is among them */
    int n_ways;
    plan_way best, plain_way, full_way; /* full_way.policy -1: it did not run */
    int chosen;                         /* of the ways that draft; -1: no verdict */
    specrt_plain plain_request;
    specrt_advice advice;
    char advice_text[640];
    int n_skipped; /* runs of trees that could not have won */
    double seconds;
} plan;

double plan_cycle_midmean(const plan_turn *turns, int n); /* over prompts, seconds */

/* plan_choose_from_curves() : times and speed of a way whose accept length and rows are given. */
void plan_choose_from_curves(const plan *p, int width, plan_way *c);

/* plan_all_rows() : of the head.
 * plan_head_share() : of a cycle by the curves, the head's share where so many rows are scored.
 * plan_small_head() : the most rows whose share is at most PLAN_SMALL_SHARE: fewer gain nothing. */
#define PLAN_SMALL_SHARE 0.02
double plan_all_rows(const plan *p);
double plan_head_share(const plan *p, const plan_way *c, double rows);
double plan_small_head(const plan *p, const plan_way *c);

/* plan_bound() : the most tokens per second that any shape of a width may reach, every draft
 * accepted. */
double plan_bound(const plan *p, int width, double rows);

/* plan_decide() : ways from runs, best first. */
specrt_status plan_decide(plan *p, specrt_error *err);

/* plan_rank() : the best way, plain decoding and the full vocabulary's. */
void plan_rank(plan *p);

/* plan_first_tokens() : tokens that the first pass of a draft reads. That is what was emitted; where the
 * drafter keeps a chain, the root alone, and the last token before the root where the chain was accepted
 * whole. */
double plan_first_tokens(const specrt_costs *c, const specrt_tree_params *s, double emitted);

/* plan_rank_curves() : the same where ways came from a trace; plain decoding by the target's curve. */
void plan_rank_curves(plan *p);

/* plan_for_auto() : names in the costs the policy that is fastest by the curves alone, which is all that
 * auto's table knows, and its rows; none that reads a router or a sketch beside them, or no policy at all. */
void plan_for_auto(plan *p);

/* plan_check_shapes() : Asks for models that can draft the longest shape. @return BAD_ARG where the options
 * leave no tree. */
specrt_status plan_check_shapes(plan *p, specrt_error *err);

/* plan_prompt_seconds() : of reading a prompt, in the mean over turns [n_prompts].
 * plan_ratio() : the speed of a over whole requests to that of b. */
enum { PLAN_NAME = 320 };
double plan_prompt_seconds(const plan *p, const plan_turn *turns);
specrt_ratio plan_ratio(const plan *p, const plan_way *a, const plan_way *b);

/* plan_recommend() : of ranked ways the one to draft with, and the verdict in words. */
specrt_status plan_recommend(plan *p, specrt_error *err);

/* plan_at_worst() : a way with speed and interval in its worst task.
 * plan_by_task() : whether prompts name two tasks or more. */
plan_way plan_at_worst(const plan_way *c);
bool plan_by_task(const plan *p);

const char *plan_name(const plan *p, const plan_way *c);
void plan_advice(const plan *p, FILE *f); /* the recommendation in plain words */

void plan_print_table(const plan *p);
void plan_print_json(const plan *p);

#endif
