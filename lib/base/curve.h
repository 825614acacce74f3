/* curve.h : what may be said about a mean. */
#ifndef BASE_CURVE_H
#define BASE_CURVE_H

/* sl_ratio_of_sums() : sum of a [n] by sum of b [n], and half the width of its 95% interval over other
 * draws of the n pairs (linearised, Student's t). *half is NAN for n < 2. */
double sl_ratio_of_sums(const double *a, const double *b, int n, double *half);

/* sl_median_of() : of values [n], which get sorted; NaN for none. */
double sl_median_of(double *values, int n);

/* sl_midmean_of() : the mean of the middle half of values [n], which get sorted; NaN for none. */
double sl_midmean_of(double *values, int n);

#endif
