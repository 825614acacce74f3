/* coverage.c : see coverage.h. */
#include "counts/coverage.h"

#include <math.h>

/* Student's t, the 0.975 quantile, by degrees of freedom from 1. */
static const double student[COUNTS_MAX_FOLDS - 1] = {
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093};

/* Wilson's interval of a share of n independent tokens. */
static coverage_range wilson(double share, double n, double t) {
    double middle = share + t * t / (2 * n), scale = 1 + t * t / n;
    double half = t * sqrt(share * (1 - share) / n + t * t / (4 * n * n));
    return (coverage_range){fmax(0, (middle - half) / scale), fmin(1, (middle + half) / scale)};
}

coverage_range sl_coverage_range(const double *covered, const double *all, int n_folds,
                                 double n_tokens) {
    double n = 0, inside = 0, squares = 0;
    int g = 0; /* folds with text */
    for (int f = 0; f < n_folds; f++) {
        n += all[f];
        inside += covered[f];
        g += all[f] > 0;
    }
    if (g < 2) return (coverage_range){NAN, NAN};
    double share = inside / n;
    for (int f = 0; f < n_folds; f++) {
        double off = covered[f] - share * all[f];
        squares += off * off;
    }
    double variance = squares / (n * n) * g / (g - 1);
    double n_independent = variance > 0 ? share * (1 - share) / variance : n_tokens;
    return wilson(share, fmin(n_independent, n_tokens), student[g - 2]);
}
