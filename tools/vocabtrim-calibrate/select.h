/* select.h : from counts to a ranked vocabulary and a size. Pure: no files, no output. */
#ifndef VOCABTRIM_CALIBRATE_SELECT_H
#define VOCABTRIM_CALIBRATE_SELECT_H

#include "counts/coverage.h"

/* Coverage of the text that was ranked, all of it; of held-out text: each fold by the list that the other
 * folds give, summed over the folds. */
enum { COVERAGE_RANKED, COVERAGE_HOLDOUT, COVERAGE_KINDS };

/* Ranks of all ids, and what they cover of a text, weighted; terminators excluded. */
typedef struct rank_curve {
    int32_t *position; /* [n_vocab] rank of an id, owned; NULL: no ranking of this fold */
    uint64_t *covered; /* [n_ranked + 1] tokens that the first k ranks cover, owned */
} rank_curve;

/* A ranking of the whole vocabulary, as section "ranks" stores it. */
typedef struct calibrate_ranking {
    specrt_ranks_header header; /* n_default is set by whoever chooses the size */
    int32_t *ids;               /* [n_ranked] by rank, owned */
    uint64_t *counts;           /* [n_ranked] by rank, weighted, owned */
    rank_curve all;             /* of the ranking above, and of all text */
    /* [n_folds] by the text of the other folds, and what that covers of the fold; of folds held out */
    rank_curve folds[COUNTS_MAX_FOLDS];
    int n_folds;
    int32_t n_seen;      /* the first so many cover all text */
    uint64_t n_held_out; /* tokens, whatever their weight */
    double unseen;       /* of further text, the share of ids that this text has not */
} calibrate_ranking;

/* How many ids every list must hold, and how many it may. */
typedef struct select_limits {
    int32_t n_terminators, n_forced, n_valid;
} select_limits;

/* select_limits_of() : terminators and other specials are forced, and `keep`; reserved placeholders
 * are not valid unless kept.
 *   keep : [n_keep] ids, ascending, distinct, in range */
select_limits select_limits_of(const counts_vocab *v, const int32_t *keep, int32_t n_keep);

/* calibrate_ranking_create() : forced ids first (terminators, other specials, kept ones, each ascending),
 * then by weighted count descending, ties by lower id, then reserved placeholders. The terminators
 * of completions are counted at the highest terminator id, where chat formats add theirs.
 *   weights : [c->n_domains], not all 0; scaled so that the smallest positive one is 1; NULL: all 1
 * @return OK or NO_MEMORY. */
specrt_status calibrate_ranking_create(const counts *c, const double *weights, const int32_t *keep,
                                       int32_t n_keep, calibrate_ranking *out, specrt_error *err);
void calibrate_ranking_free(calibrate_ranking *r);

/* calibrate_ranking_estimate() : what of further text the first `size` ranks should cover, without held-out
 * text: by Good and Turing as much is new as tokens occurred once, spread here over all
 * ids not seen. It knows nothing of tokens that come in bursts, nor that ids not seen come by merge order. */
double calibrate_ranking_estimate(const calibrate_ranking *r, int32_t size);

/* calibrate_ranking_coverage() : share of tokens in the first `size` ranks; NaN: no text of that kind. */
double calibrate_ranking_coverage(const calibrate_ranking *r, int kind, int32_t size);

/* calibrate_ranking_coverage_domain() : the same for one domain at several ascending sizes.
 *   out : f64 [n_sizes] */
void calibrate_ranking_coverage_domain(const calibrate_ranking *r, const counts_domain *d, int kind,
                                       const int32_t *sizes, int n_sizes, double *out);

/* calibrate_ranking_interval() : the 95% interval of coverage on held-out text (sl_coverage_range() over the
 * folds).
 *   d : of one domain; NULL: of all text */
coverage_range calibrate_ranking_interval(const calibrate_ranking *r, const counts_domain *d,
                                          int32_t size);

/* calibrate_ranking_held_out() : tokens of a domain that lie in folds held out. */
uint64_t calibrate_ranking_held_out(const calibrate_ranking *r, const counts_domain *d);

typedef enum select_rule {
    SELECT_SIZE,
    SELECT_MASS,
    SELECT_MIN_COUNT,
    SELECT_BUDGET,
    SELECT_LOSS, /* sweep.h */
} select_rule;

/* select_size_check() : the range of --size, before anything is counted.
 * @return OK, or BAD_ARG naming the range. */
specrt_status select_size_check(const select_limits *limits, double size, specrt_error *err);

/* select_mass_needs() : held-out tokens without which a share cannot be shown, since all of them may be
 * covered where it is not reached (3 / (1 - share)). */
double select_mass_needs(double share);

/* select_smallest() : the smallest size from `low` on whose value is at least `least`, or `high`.
 * Values never fall with the size. */
int32_t select_smallest(double (*value)(const void *context, int32_t size), const void *context,
                        double least, int32_t low, int32_t high);

/* select_size() : the size a rule asks for, forced ids included; all valid ones where it cannot be had.
 *   value     : size; share of held-out tokens, where there are too few to show it also of
 *               calibrate_ranking_estimate(); lowest count; MiB
 *   row_bytes : of one packed row, for SELECT_BUDGET
 * @return OK, or BAD_ARG naming the range. */
specrt_status select_size(const calibrate_ranking *r, select_rule rule, double value,
                          size_t row_bytes, int32_t *size, specrt_error *err);

#endif
