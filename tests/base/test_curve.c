/* test_curve.c : means and intervals, against their definitions. */
#include "base/curve.h"
#include "base/order.h"
#include "fixture.h"
#include "test.h"

static double chance(uint64_t *state) {
    return (double)(fixture_random(state) >> 11) / 9007199254740992.0;
}

TEST(compare, "less, equal, greater, of numbers whose difference does not fit") {
    static const double real[] = {-1.5, -0.25, 0.25};
    static const int32_t whole[] = {INT32_MIN, -1, INT32_MAX};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            CHECK_INT(sl_order_real(&real[i], &real[j]), (i > j) - (i < j));
            CHECK_INT(sl_order_i32(&whole[i], &whole[j]), (i > j) - (i < j));
        }
}

TEST(median, "of odd and even numbers of values") {
    double five[] = {9, 1, 7, 3, 4}, four[] = {8, 2, 6, 1}, one[] = {4};
    CHECK_NEAR(sl_median_of(five, 5), 4, 0);
    CHECK_NEAR(sl_median_of(four, 4), 4, 0);
    CHECK_NEAR(sl_median_of(one, 1), 4, 0);
    CHECK(isnan(sl_median_of(one, 0)));
}

/* Of five values the middle half is three quarters of the second and the fourth, and all of the third. */
TEST(midmean, "the mean of the middle half, and where it begins") {
    double five[] = {1000, 3, 1, 2, -7}, seven[] = {1, 1, 1, 5, 9, 9, 9}, one[] = {4};
    CHECK_NEAR(sl_midmean_of(five, 5), (0.75 * 1 + 2 + 0.75 * 3) / 2.5, 1e-12);
    CHECK_NEAR(sl_midmean_of(seven, 7), (1.25 * 1 + 5 + 1.25 * 9) / 3.5, 1e-12);
    CHECK_NEAR(sl_midmean_of(one, 1), 4, 0);
    CHECK(isnan(sl_midmean_of(one, 0)));
}

/* Prompts of unlike lengths and accept lengths: 95 of 100 intervals hold the truth, by a wide margin for
 * chance. */
TEST(interval, "of ratios: nominal coverage") {
    static const int counts[] = {5, 12, 40};
    uint64_t state = 11;
    double half;
    for (size_t k = 0; k < 3; k++) {
        int held = 0;
        for (int round = 0; round < 2000; round++) {
            double tokens[40], cycles[40];
            for (int i = 0; i < counts[k]; i++) {
                cycles[i] = 20 + 20 * chance(&state);
                tokens[i] = cycles[i] * (2 + chance(&state) + chance(&state)); /* mean 3 */
            }
            double ratio = sl_ratio_of_sums(tokens, cycles, counts[k], &half);
            held += ratio - half <= 3 && 3 <= ratio + half;
        }
        CHECK(held > 1840 && held < 1960); /* 92 to 98% */
    }
    const double two[] = {4, 8}, ones[] = {2, 2};
    CHECK_NEAR(sl_ratio_of_sums(two, ones, 2, &half), 3, 1e-12);
    CHECK_NEAR(half, 12.71, 1e-9); /* deviations -2 and 2 around a ratio of 3 */
    sl_ratio_of_sums(two, ones, 1, &half);
    CHECK(isnan(half));
}

TEST(student, "intervals by Student's t of 1, 20, 21 and 200 degrees of freedom") {
    static const struct {
        int freedom;
        double t;
    } known[] = {{1, 12.706}, {5, 2.571}, {20, 2.086}, {21, 2.080}, {200, 1.972}};
    for (int k = 0; k < 5; k++) {
        double a[256], ones[256], half, squares = 0;
        int n = known[k].freedom + 1;
        for (int i = 0; i < n; i++) {
            ones[i] = 1;
            a[i] = i % 2 ? 3 : 1;
        }
        double mean = sl_ratio_of_sums(a, ones, n, &half);
        for (int i = 0; i < n; i++) squares += (a[i] - mean) * (a[i] - mean);
        CHECK_NEAR(half / sqrt(squares / (n - 1) / n), known[k].t, 0.01);
    }
}
