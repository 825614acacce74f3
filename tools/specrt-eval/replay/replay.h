/* replay.h : policies over recorded cycles, without a model. docs/methods/replay.md says what is exact
 * and how the rest is estimated. */
#ifndef SPECRT_EVAL_REPLAY_H
#define SPECRT_EVAL_REPLAY_H

#include <stdbool.h>
#include "specrt.h"

enum {
    REPLAY_POSITIONS = SPECRT_TREE_MAX_STEPS, /* draft positions */
    REPLAY_SPANS = 6,                         /* of tokens since the topic began */
    REPLAY_RECALLS = 4
};

/* The largest relative error of an estimated accept length that was measured. */
#define REPLAY_ERROR 0.06

/* All borrowed for the run. */
typedef struct replay_params {
    const char *const *traces; /* [n_traces] of one tokenizer and drafter, in order */
    int n_traces;
    const char *const *policies; /* [n_policies] */
    int n_policies;
    const specrt_tree_params *trees; /* [n_trees] to estimate beside the recorded one */
    int n_trees;
    const char *bundle;    /* NULL: none */
    const char *model;     /* whose head policies read, where one does; NULL: none */
    const char *embedding; /* whose token embedding DynaSpec's router reads; NULL: the model's */
    bool stream;           /* sequences follow each other: what policies learnt stays */
    int threads;
    int progress; /* as cli_common's */
} replay_params;

typedef struct replay replay;

/* replay_run() : one pass over the traces for all policies and trees.
 * @return OK; NO_MEMORY; BAD_ARG for a policy or tree, naming it; TRACE_*, BUNDLE_*. The same result for any
 * number of threads. */
specrt_status replay_run(const replay_params *params, replay **out, specrt_error *err);
void replay_free(replay *r);

int replay_n_domains(const replay *r);
const char *replay_domain(const replay *r, int domain);
const char *replay_policy_text(const replay *r, int policy); /* canonical; policy -1: "oracle" */
/* replay_tree() : tree 0 is the recorded one, tree i is params.trees[i - 1] with defaults filled in. */
const specrt_tree_params *replay_tree(const replay *r, int tree);
const char *replay_span_name(int span);
const char *replay_recall_name(int i);
bool replay_is_cut(const replay *r); /* a trace ended early */

/* replay_knows_drafter() : the traces keep the drafter's best tokens; without them accept length is told of
 * the recorded policy under its own tree alone, else NaN. */
bool replay_knows_drafter(const replay *r);

/* A figure with its 95% interval over sequences; NaN for fewer than two. */
typedef struct replay_figure {
    double value, low, high;
} replay_figure;

typedef struct replay_figures {
    int64_t n_sequences, n_cycles, n_tokens; /* as recorded */
    double prompt_tokens;                    /* of a sequence, in the mean; NaN: there is none */
    replay_figure coverage, shortlist_rows;
    replay_figure
        mass; /* of the target's distribution at temperature 1, at least; NaN: not recorded */
    double mass_known; /* what the trace keeps of it: no list can show more */
    double recall[REPLAY_RECALLS];
    replay_figure accept_length; /* tokens per cycle, the target's own included */
    /* The run's own figures, or what a run would give; else estimates. Of accept_length: and acceptance. */
    bool exact_accept_length, exact_coverage, exact_rows;
    /* of position i + 1, given that i was accepted; NaN: none */
    double acceptance[REPLAY_POSITIONS];
    /* NaN: no token was there */
    double span_coverage[REPLAY_SPANS], span_accept_length[REPLAY_SPANS];
} replay_figures;

/* replay_figures_of() : policy -1 is the oracle, whose lists hold every token; domain -1 takes all.
 * Acceptance and spans are of all domains only. */
void replay_figures_of(const replay *r, int policy, int tree, int domain, replay_figures *out);

/* Sequence by sequence: y over x, pooled. */
typedef struct replay_pair {
    double y, x;
} replay_pair;

/* replay_ratio() : sum of y over sum of x with a 95% interval: normal over sequences, with Student's
 * quantile and the linearised ratio's variance. */
replay_figure replay_ratio(const replay_pair *pairs, int64_t n);

#endif
