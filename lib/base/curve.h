/* curve.h : measured times as functions of a size, and what may be said about a mean. */
#ifndef BASE_CURVE_H
#define BASE_CURVE_H

enum { CURVE_MOST = 64 };

/* Seconds of a call by its size; straight between the measured sizes, and beyond them as before. */
typedef struct curve {
    int n;
    double x[CURVE_MOST]; /* ascending */
    double y[CURVE_MOST];
} curve;

/* sl_curve_add() : sizes come in any order, each once; at most CURVE_MOST of them. */
void sl_curve_add(curve *c, double x, double y);

/* sl_curve_make_monotone() : the nearest curve that never falls, by least squares (pool adjacent violators:
 * Ayer et al. 1955). More work takes no less time; where it seems to, the clock was disturbed. */
void sl_curve_make_monotone(curve *c);

double sl_curve_at(const curve *c, double x); /* above 0; an empty curve is 0 */

/* sl_ratio_of_sums() : sum of a [n] by sum of b [n], and half the width of its 95% interval over other
 * draws of the n pairs (linearised, Student's t). *half is NAN for n < 2. */
double sl_ratio_of_sums(const double *a, const double *b, int n, double *half);

/* sl_median_of() : of values [n], which get sorted; NaN for none. */
double sl_median_of(double *values, int n);

/* sl_quartile_of() : the lower one of values [n], which get sorted; NaN for none. */
double sl_quartile_of(double *values, int n);

/* sl_midmean_of() : the mean of the middle half of values [n], which get sorted; NaN for none. */
double sl_midmean_of(double *values, int n);

#endif
