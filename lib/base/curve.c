/* curve.c : intervals of ratios, and means that single values do not move. */
#include "base/curve.h"

#include <math.h>
#include <stdlib.h>
#include "base/order.h"

/* Student's t at 97.5%, by degrees of freedom. */
static double quantile(int freedom) {
    static const double t[] = {12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
                               2.20,  2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09};
    int n = (int)(sizeof t / sizeof *t);
    return freedom <= n ? t[freedom - 1] : 1.96 + 2.6 / freedom;
}

double sl_ratio_of_sums(const double *a, const double *b, int n, double *half) {
    double sum_a = 0, sum_b = 0, squares = 0;
    for (int i = 0; i < n; i++) sum_a += a[i], sum_b += b[i];
    double ratio = sum_a / sum_b;
    for (int i = 0; i < n; i++) squares += (a[i] - ratio * b[i]) * (a[i] - ratio * b[i]);
    *half = n < 2 ? NAN : quantile(n - 1) * sqrt(squares * n / (n - 1)) / sum_b;
    return ratio;
}

double sl_median_of(double *values, int n) {
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, sl_order_real);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double sl_midmean_of(double *values, int n) {
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, sl_order_real);
    double from = n / 4.0, to = n - from, sum = 0;
    for (int i = 0; i < n; i++) {
        double share =
            fmin(i + 1, to) - fmax(i, from); /* of value i that lies in the middle half */
        if (share > 0) sum += share * values[i];
    }
    return sum / (to - from);
}
