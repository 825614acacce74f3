/* test_costs.c : curves, passes that are measured without a clock, and what scoring takes. */
#include "costs.h"

#include <math.h>

static void test_curve(void) {
    const specrt_curve c = {3, {2, 4, 8}, {2, 4, 6}}, one = {1, {2}, {3}}, none = {0};
    CHECK_NEAR(specrt_curve_at(&c, 1), 1, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 3), 3, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 6.5), 5.25, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 12), 8, 1e-9);
    CHECK_NEAR(specrt_curve_at(&one, 4), 6, 1e-9);
    CHECK_NEAR(specrt_curve_at(&none, 4), 0, 1e-9);
    CHECK_NEAR(specrt_curve_at(&one, 0), 0.3, 1e-9); /* at least a tenth */
}

/* Sizes come in any order; times that fall are pooled, a full curve keeps its points. */
static void test_monotone(void) {
    specrt_curve c = {0};
    specrt_curve_add(&c, 4, 3);
    specrt_curve_add(&c, 1, 1);
    specrt_curve_add(&c, 8, 5);
    specrt_curve_add(&c, 2, 4);
    specrt_curve_make_monotone(&c);
    CHECK(c.n == 4 && c.sizes[0] == 1 && c.sizes[1] == 2 && c.sizes[3] == 8);
    CHECK_NEAR(c.seconds[0], 1, 1e-9);
    CHECK_NEAR(c.seconds[1], 3.5, 1e-9);
    CHECK_NEAR(c.seconds[2], 3.5, 1e-9);
    CHECK_NEAR(c.seconds[3], 5, 1e-9);
    for (int32_t i = c.n; i <= SPECRT_CURVE_MAX_SIZES; i++) specrt_curve_add(&c, 10 + i, 6);
    CHECK_INT(c.n, SPECRT_CURVE_MAX_SIZES);
    CHECK_INT(c.sizes[c.n - 1], 9 + SPECRT_CURVE_MAX_SIZES);
}

/* The nearest curve that never falls, by the means of all runs of points (Barlow et al. 1972). */
static void test_nearest(void) {
    uint64_t state = 5;
    for (int turn = 0; turn < 200; turn++) {
        specrt_curve c = {0};
        double y[12], sum[13] = {0};
        for (int i = 0; i < 12; i++) {
            y[i] = 1 + i * 0.3 + fixture_below(&state, 1000) * 0.003;
            sum[i + 1] = sum[i] + y[i];
            specrt_curve_add(&c, i + 1, y[i]);
        }
        specrt_curve_make_monotone(&c);
        for (int i = 0; i < 12; i++) {
            double most = 0;
            for (int from = 0; from <= i; from++) {
                double least = INFINITY;
                for (int to = i; to < 12; to++)
                    least = fmin(least, (sum[to + 1] - sum[from]) / (to + 1 - from));
                most = fmax(most, least);
            }
            CHECK_NEAR(c.seconds[i], most, 1e-9);
        }
    }
}

/* The next measured width of a product, or the last. */
static void test_widths(void) {
    const specrt_costs c = {.n_heads = 0};
    CHECK(specrt_costs_width(0) == 1 && specrt_costs_width(1) == 4 && specrt_costs_width(2) == 10);
    CHECK(specrt_costs_next(&c, 1) == &c.head_next[0]);
    CHECK(specrt_costs_next(&c, 2) == &c.head_next[1]);
    CHECK(specrt_costs_next(&c, 4) == &c.head_next[1]);
    CHECK(specrt_costs_next(&c, 5) == &c.head_next[2]);
    CHECK(specrt_costs_next(&c, 12) == &c.head_next[2]);
}

/* Sizes that were asked of a model. */
typedef struct calls {
    int n_target, n_draft, fails_at;
    int32_t largest;
} calls;

static int meter_target(void *user, int32_t n, double *seconds) {
    calls *c = (calls *)user;
    *seconds = 0.01 * n + (c->n_target % 3 ? 0.5 : 0); /* disturbed, but for the best round */
    if (n > c->largest) c->largest = n;
    return ++c->n_target == c->fails_at ? 7 : 0;
}

static int meter_draft(void *user, int32_t n, double *seconds) {
    calls *c = (calls *)user;
    c->n_draft++;
    *seconds = 0.001 * n;
    return 0;
}

/* Every size up to what one draft verifies, the best of several rounds. */
static void test_measure(void) {
    calls c = {0};
    specrt_costs costs = {.n_heads = 0};
    const specrt_meter meter = {&c, meter_target, meter_draft};
    specrt_error err;
    CHECK_INT(specrt_costs_measure(&meter, COSTS_STEPS + 1, &costs, &err), SPECRT_STATUS_OK);
    CHECK_HAS(costs.machine, " processors");
    CHECK(!costs.disturbed && c.n_draft == 1 + 5 * 2);
    CHECK_INT(costs.target.n, 5);
    CHECK_INT(costs.target.sizes[4], 5);
    CHECK_INT(c.largest, 5);
    CHECK(costs.changed);
    for (int i = 0; i < 5; i++)
        CHECK_NEAR(costs.target.seconds[i], 0.01 * costs.target.sizes[i], 1e-9);
    CHECK_NEAR(specrt_curve_at(&costs.draft, 8), 0.008, 1e-9);
    CHECK_INT(specrt_costs_measure(&meter, 1000, &costs, &err), SPECRT_STATUS_OK);
    CHECK_INT(c.largest, 64);
    c = (calls){.fails_at = 3};
    CHECK_INT(specrt_costs_measure(&meter, COSTS_STEPS + 1, &costs, &err), SPECRT_STATUS_HOST);
    CHECK_STR(err.msg, "costs: expected passes of both models, found that one failed with 7");
    CHECK(c.n_target == 3 && costs.target.n == 0);
    CHECK_INT(specrt_costs_measure(&meter, 0, &costs, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "costs: most: expected 1 token or more, found 0");
}

/* A machine that was too busy: passes of 2 tokens take longer than those of 4, all of 8 far longer than 8. */
static int meter_busy(void *user, int32_t n, double *seconds) {
    *seconds = n == 2 ? 0.9 : n == 8 ? 5 : 0.01 * n;
    return ++*(int *)user, 0;
}

/* Such times are lowered to what can be. They are marked. */
static void test_disturbed(void) {
    int n_calls = 0;
    specrt_costs costs = {.n_heads = 0};
    const specrt_meter meter = {&n_calls, meter_busy, meter_busy};
    CHECK_INT(specrt_costs_measure(&meter, 8, &costs, NULL), SPECRT_STATUS_OK);
    CHECK(costs.disturbed && n_calls == 2 + 20 * 8);
    CHECK_NEAR(specrt_curve_at(&costs.target, 2), 0.03, 1e-9);
    CHECK_NEAR(specrt_curve_at(&costs.target, 8), 0.08, 1e-9);
    CHECK_NEAR(specrt_curve_at(&costs.draft, 8), 0.08, 1e-9);
}

/* A policy that does not open has no time; one that does has, and keeps it. */
static void test_head(void) {
    specrt_head *head;
    specrt_costs_drafts drafts = drafts_of(&head);
    specrt_costs c = costs_of(0.2, 0.05);
    CHECK_NEAR(specrt_costs_head(&c, &drafts, "static:64"), 0, 0);
    CHECK_NEAR(specrt_costs_head(&c, &drafts, "no policy"), 0, 0);
    CHECK_INT(c.n_heads, 0);
    CHECK(!c.changed);
    double seconds = specrt_costs_head(&c, &drafts, "window:512");
    CHECK(seconds > 0 && c.n_heads == 1 && c.changed);
    CHECK_NEAR(specrt_costs_head(&c, &drafts, "window:512"), seconds, 0);
    CHECK_INT(c.n_heads, 1);
    specrt_head_close(head);
}

static const test_case cases[] = {
    {"curve", "between measured sizes and beyond them", test_curve},
    {"monotone", "more work takes no less time", test_monotone},
    {"nearest", "by least squares", test_nearest},
    {"widths", "of products of the head", test_widths},
    {"measure", "sizes, rounds, and a model that fails", test_measure},
    {"disturbed", "times that cannot be", test_disturbed},
    {"head", "only of policies that open", test_head},
};
TEST_MAIN(cases)
