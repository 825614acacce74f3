/* test_costs.c : curves, and what scoring takes. */
#include "costs.h"

#include <math.h>

TEST(curve, "between measured sizes and beyond them") {
    const specrt_curve c = {.n = 3, .sizes = {2, 4, 8}, .seconds = {2, 4, 6}},
                       one = {.n = 1, .sizes = {2}, .seconds = {3}}, none = {.n = 0};
    CHECK_NEAR(specrt_curve_at(&c, 1), 1, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 3), 3, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 6.5), 5.25, 1e-9);
    CHECK_NEAR(specrt_curve_at(&c, 12), 8, 1e-9);
    CHECK_NEAR(specrt_curve_at(&one, 4), 6, 1e-9);
    CHECK_NEAR(specrt_curve_at(&none, 4), 0, 1e-9);
    CHECK_NEAR(specrt_curve_at(&one, 0), 0.3, 1e-9); /* at least a tenth */
}

/* Sizes come in any order; times that fall are pooled, a full curve keeps its points. */
TEST(monotone, "more work takes no less time") {
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
    for (int32_t i = 0; i < 4; i++) CHECK(c.low[i] == c.seconds[i] && c.high[i] == c.seconds[i]);
    for (int32_t i = c.n; i < SPECRT_CURVE_MAX_SIZES; i++)
        CHECK_INT(specrt_curve_add(&c, 10 + i, 6), i);
    CHECK_INT(specrt_curve_add(&c, 99, 6), -1);
    CHECK_INT(c.n, SPECRT_CURVE_MAX_SIZES);
    CHECK_INT(c.sizes[c.n - 1], 9 + SPECRT_CURVE_MAX_SIZES);
}

TEST(ends, "ends of intervals rise, too, and enclose") {
    specrt_curve c = {2, {1, 2}, {2, 4}, {2, 1}, {9, 4}};
    CHECK_INT(specrt_curve_add(&c, 3, 3), 2);
    c.low[2] = 0.5;
    specrt_curve_make_monotone(&c);
    for (int i = 0; i < 3; i++) {
        CHECK(c.low[i] <= c.seconds[i] && c.seconds[i] <= c.high[i]);
        CHECK(i == 0 || (c.low[i] >= c.low[i - 1] && c.high[i] >= c.high[i - 1]));
    }
    CHECK_NEAR(c.low[0], 3.5 / 3, 1e-9);
    CHECK_NEAR(c.high[2], 16.0 / 3, 1e-9);
}

/* The nearest curve that never falls, by the means of all runs of points (Barlow et al. 1972). */
TEST(nearest, "by least squares") {
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

TEST(widths, "the next measured width of a product, or the last") {
    const specrt_costs c = {.n_heads = 0};
    CHECK(specrt_costs_width(0) == 1 && specrt_costs_width(1) == 4 && specrt_costs_width(2) == 10);
    CHECK(specrt_costs_next(&c, 1) == &c.head_next[0]);
    CHECK(specrt_costs_next(&c, 2) == &c.head_next[1]);
    CHECK(specrt_costs_next(&c, 4) == &c.head_next[1]);
    CHECK(specrt_costs_next(&c, 5) == &c.head_next[2]);
    CHECK(specrt_costs_next(&c, 12) == &c.head_next[2]);
}

TEST(head, "a policy that does not open has no time; one that does has, and keeps it") {
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

static void count_products(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    ++*(int *)user;
    for (int64_t i = 0; i < n; i++) task(arg, i);
}

TEST(block, "a position of a block that is scored at once, by a session that drafts blocks") {
    static float rows[COSTS_V * COSTS_D];
    int n_products = 0;
    const specrt_head_desc desc = f32_rows(rows, COSTS_V, COSTS_D);
    const specrt_env env = {.user = &n_products, .parallel_for = count_products};
    specrt_head *head;
    specrt_costs_drafts drafts = drafts_of(&head);
    specrt_costs c = costs_of(0.2, 0.05);
    specrt_head_close(head);
    REQUIRE(!specrt_head_bind(NULL, &desc, &env, &head, NULL));
    drafts.head = head;
    CHECK(specrt_costs_head(&c, &drafts, "full") > 0);
    int by_level = n_products;
    c.n_heads = n_products = 0;
    drafts.params.n_block = COSTS_STEPS;
    CHECK(specrt_costs_head(&c, &drafts, "full") > 0);
    CHECK(n_products > 0 && n_products < by_level);
    drafts.params.n_block = COSTS_STEPS + 1; /* more than the tree has levels */
    CHECK_NEAR(specrt_costs_head(&c, &drafts, "window:512"), 0, 0);
    CHECK_INT(c.n_heads, 1);
    specrt_head_close(head);
}
