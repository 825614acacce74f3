/* coverage.h : how far a share of tokens may be off, judged by how much it differs between folds. */
#ifndef COUNTS_COVERAGE_H
#define COUNTS_COVERAGE_H

#include "counts/counts.h"

/* A 95% interval of a share; NaN where fewer than two folds have text. */
typedef struct coverage_range {
    double low, high;
} coverage_range;

/* sl_coverage_range() : the interval of sum(covered) / sum(all). A record's hash chooses its fold, so folds
 * differ by chance as further text of the same sources does. Wilson's interval for the number of independent
 * tokens that has the variance of this ratio over the folds, at most n_tokens, with Student's t of one degree
 * of freedom less than folds with text. Only additions, products, quotients and square roots, so that the
 * same counts give the same bits.
 *   covered, all : [n_folds] tokens of each fold, weighted; all of them 0: a fold without text
 *   n_tokens     : without weights */
coverage_range sl_coverage_range(const double *covered, const double *all, int n_folds,
                                 double n_tokens);

#endif
