/* test_measure.c : costs of machines that are made up: with a cache, busy, or broken. */
#include "specrt_adapt.h"
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdbool.h>

/* Its cache holds 20,000 rows: those of the last product, but for what the target's pass evicts. */
typedef struct machine {
    double right,
        busy; /* the chance of a pass that nothing disturbs; what others are multiplied by */
    int32_t n_passes, fails_at, largest[SPECRT_PASSES];
    uint64_t chance;
} machine;

static double head_time(int32_t n_rows, int32_t n, bool first) {
    double bytes = first || n_rows > 20000 ? 20e-9 : 9e-9;
    return 1e-6 + n_rows * (bytes + 6e-9 * (n - 1));
}

static double chance(uint64_t *state) {
    return (double)(fixture_random(state) >> 11) / 9007199254740992.0;
}

static int pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    machine *m = (machine *)user;
    if (n > m->largest[pass]) m->largest[pass] = n;
    if (pass == SPECRT_PASS_TARGET) seconds[0] = 1e-3 + 2e-4 * n;
    if (pass == SPECRT_PASS_DRAFT) seconds[0] = 1e-4 + 1e-5 * n;
    for (int32_t w = 0; w < 4 && pass == SPECRT_PASS_HEAD; w++)
        seconds[w] = head_time(n, w ? specrt_costs_width(w - 1) : 1, w == 0);
    for (int32_t i = 0; i < 3 && pass == SPECRT_PASS_PROMPT; i++) seconds[i] = 1e-4 * n * (i + 1);
    for (int32_t i = 0; i < SPECRT_PASS_TIMES; i++)
        if (chance(&m->chance) >= m->right) seconds[i] *= m->busy;
    return ++m->n_passes == m->fails_at ? 7 : 0;
}

static specrt_costs costs;

static specrt_status measure(machine *m, int32_t n_rows, int all) {
    const specrt_meter meter = {m, pass, {60, 10, n_rows, 200}};
    return specrt_costs_measure(&meter, 20, all, &costs, NULL);
}

TEST(few, "what auto asks: few sizes, no more rounds than needed, no other passes") {
    machine m = {.chance = 5, .right = 1};
    char line[SPECRT_COSTS_TEXT] = "x";
    REQUIRE(measure(&m, 1000, 0) == SPECRT_STATUS_OK);
    CHECK_HAS(costs.machine, " processors");
    CHECK(costs.target.n == 12 && costs.draft.n == 2 && costs.head_first.n == 0);
    CHECK_INT(m.n_passes, 2 + 5 * 14);
    CHECK(m.largest[0] == 60 && m.largest[1] == 8 && m.largest[2] == 0 && m.largest[3] == 0);
    CHECK(costs.changed && !costs.disturbed && costs.spread == 0 && costs.seconds >= 0);
    CHECK(costs.error == 0 && costs.prompt.n == 0);
    CHECK(specrt_costs_busy(&costs, line) == 0 && !line[0]);
    const specrt_meter one = {&m, pass, {1, 1, 0, 0}};
    CHECK_INT(specrt_costs_measure(&one, 0, 0, &costs, NULL), SPECRT_STATUS_OK);
    CHECK(costs.target.n == 1 && costs.draft.n == 1 && !costs.disturbed);
}

/* The most nodes are no size that is held back, too: of 40 there are as many sizes as of 39. */
TEST(most, "as many nodes as a pass takes") {
    for (int32_t most = 39; most <= 41; most++) {
        machine m = {.chance = 5, .right = 1};
        const specrt_meter meter = {&m, pass, {most, 1, 0, 0}};
        REQUIRE(specrt_costs_measure(&meter, 0, 1, &costs, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(costs.target.n, most > 40 ? 18 : 17);
    }
}

static void check_head(const specrt_curve *c, int32_t n, bool first) {
    for (int32_t rows = 256; rows <= 128000; rows = rows * 9 / 8)
        if (rows < 19000 || rows > 22000) /* beside the edge */
            CHECK_NEAR(specrt_curve_at(c, rows) / head_time(rows, n, first), 1, 0.12);
}

TEST(all, "a machine with a cache, disturbed now and then") {
    machine m = {.chance = 5, .right = 0.86, .busy = 10};
    REQUIRE(measure(&m, 128000, 1) == SPECRT_STATUS_OK);
    CHECK(m.largest[0] == 60 && m.largest[1] == 10 && m.largest[2] == 128000 && m.largest[3] == 64);
    check_head(&costs.head_first, 1, true);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
        check_head(&costs.head_next[w], specrt_costs_width(w), false);
    for (int32_t n = 1; n <= 60; n++)
        CHECK_NEAR(specrt_curve_at(&costs.target, n), 1e-3 + 2e-4 * n, 1e-6);
    CHECK_NEAR(specrt_curve_at(&costs.draft, 5), 1.5e-4, 1e-8);
    CHECK(costs.prompt.n == 2 && costs.prompt.sizes[1] == 64);
    CHECK_NEAR(costs.prompt.seconds[1], 64e-4, 1e-9);
    CHECK_NEAR(costs.draft_prompt.seconds[1], 2 * 64e-4, 1e-9);
    CHECK_NEAR(costs.prompt_all.seconds[0], 3 * 16e-4, 1e-9);
    CHECK(costs.error < 0.01 && costs.worst > 0.07); /* at the edge */
    CHECK(costs.head_next[0].n > 21);                /* sizes about which were added */
}

static void check_rises(const specrt_curve *c, double last) {
    CHECK_NEAR(c->sizes[c->n - 1], last, 0);
    for (int i = 0; i < c->n; i++) {
        CHECK(c->low[i] <= c->seconds[i] && c->seconds[i] <= c->high[i]);
        CHECK(i == 0 || (c->sizes[i] > c->sizes[i - 1] && c->seconds[i] >= c->seconds[i - 1]));
    }
}

TEST(noise, "whatever the clock says, curves rise and reach the whole head, and an end is found") {
    static const int32_t sizes[] = {1, 256, 257, 258, 513, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        machine m = {.chance = 5, .right = 0.5, .busy = 300};
        REQUIRE(measure(&m, sizes[i], 1) == SPECRT_STATUS_OK);
        check_rises(&costs.head_first, sizes[i]);
        for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) check_rises(&costs.head_next[w], sizes[i]);
        check_rises(&costs.target, 60);
        CHECK(isfinite(costs.worst));
    }
}

TEST(disturbed, "disturbed where the interval is too wide to choose by, and only there") {
    char line[SPECRT_COSTS_TEXT];
    machine often = {.chance = 5, .right = 0.4, .busy = 1.5},
            little = {.chance = 5, .right = 0.4, .busy = 1.05};
    REQUIRE(measure(&often, 0, 0) == SPECRT_STATUS_OK);
    CHECK(costs.disturbed && costs.spread > 0.25);
    CHECK_INT(often.n_passes, 2 + 20 * 14); /* it went on, for the rounds to agree */
    costs.busy = 1.8;
    CHECK_INT(specrt_costs_busy(&costs, line), 1);
    CHECK_HAS(line, "too busy to tell: costs differ by ");
    CHECK_HAS(line, "; wait until the machine is idle, or measure for more seconds");
    CHECK_HAS(line, "; the load was 2 on ");
    REQUIRE(measure(&little, 0, 0) == SPECRT_STATUS_OK);
    CHECK(!costs.disturbed && costs.spread > 0 && costs.spread < 0.25);
    CHECK(costs.target.high[0] > costs.target.low[0]);
}

/* Three rounds in four that are disturbed do not move the quartile. */
static int every_fourth(void *user, specrt_pass pass, int32_t n, double *seconds) {
    int32_t *calls = (int32_t *)user;
    seconds[0] = (pass ? 0.001 : 0.01) * n * (++*calls % 4 ? 1.2 : 1);
    return 0;
}

TEST(quartile, "most rounds disturbed") {
    int32_t calls = 0;
    const specrt_meter meter = {&calls, every_fourth, {2, 1, 0, 0}};
    REQUIRE(specrt_costs_measure(&meter, 20, 1, &costs, NULL) == SPECRT_STATUS_OK);
    for (int i = 0; i < 2; i++) CHECK_NEAR(costs.target.seconds[i], 0.01 * (i + 1), 1e-9);
    CHECK_NEAR(costs.target.low[0], 0.01, 1e-9);
    CHECK_NEAR(costs.target.high[0], 0.012, 1e-9);
}

/* A pass of 2 tokens takes longer than those of 4, all of 8 far longer than 8. */
static int impossible(void *user, specrt_pass pass, int32_t n, double *seconds) {
    (void)user, (void)pass;
    seconds[0] = n == 2 ? 0.9 : n == 8 ? 5 : 0.01 * n;
    return 0;
}

/* One pass of a large tree, which has few rounds. */
static int impossible_tree(void *user, specrt_pass pass, int32_t n, double *seconds) {
    (void)user;
    seconds[0] = pass == SPECRT_PASS_TARGET && n == 24 ? 9 : 0.01 * n;
    return 0;
}

TEST(impossible, "times that cannot be") {
    const specrt_meter meter = {NULL, impossible, {8, 8, 0, 0}};
    CHECK_INT(specrt_costs_measure(&meter, 20, 0, &costs, NULL), SPECRT_STATUS_OK);
    CHECK(costs.disturbed);
    CHECK_NEAR(specrt_curve_at(&costs.target, 2), 0.03, 1e-9);
    CHECK_NEAR(specrt_curve_at(&costs.target, 8), 0.08, 1e-9);
    CHECK_NEAR(specrt_curve_at(&costs.draft, 8), 0.08, 1e-9);
    const specrt_meter tree = {NULL, impossible_tree, {32, 8, 0, 0}};
    CHECK_INT(specrt_costs_measure(&tree, 20, 0, &costs, NULL), SPECRT_STATUS_OK);
    CHECK(!costs.disturbed);
    CHECK_NEAR(specrt_curve_at(&costs.target, 24), 0.32, 1e-9); /* what 32 takes */
}

enum { LONG_DRAFT = 65 }; /* where drafts of more than one token are counted */

/* Time that passes: what is late is left out, but for what the verdict on the machine needs. */
static int slow(void *user, specrt_pass pass, int32_t n, double *seconds) {
    int32_t *calls = (int32_t *)user;
    for (double began = specrt_clock_seconds(); specrt_clock_seconds() - began < 0.002;) {
    }
    seconds[0] = 0.002;
    calls[pass != SPECRT_PASS_DRAFT ? n : n == 1 ? 0 : LONG_DRAFT]++;
    return 0;
}

/* The same, but the first pass of each size after the round that warms up takes longer. */
static int slow_at_first(void *user, specrt_pass pass, int32_t n, double *seconds) {
    const int32_t *calls = (const int32_t *)user;
    slow(user, pass, n, seconds);
    if (calls[pass == SPECRT_PASS_DRAFT ? 0 : n] < 3) seconds[0] *= 1.3;
    return 0;
}

TEST(late, "a budget that is spent") {
    int32_t calls[LONG_DRAFT + 1] = {0};
    const specrt_meter meter = {calls, slow, {64, 8, 0, 0}};
    REQUIRE(specrt_costs_measure(&meter, 0.01, 0, &costs, NULL) == SPECRT_STATUS_OK);
    CHECK(costs.target.n >= 2 && costs.target.n < 10 && costs.draft.n == 2);
    CHECK(calls[1] == 1 + 2 && calls[2] == 1 && calls[4] == 2 && calls[64] == 0);
    CHECK_INT(calls[0], calls[1]); /* a draft of one token decides, and one of 8 does not */
    CHECK_INT(calls[LONG_DRAFT], 1);
    int32_t more[LONG_DRAFT + 1] = {
        0}; /* two rounds disagree: what decides has others, until they agree */
    const specrt_meter first = {more, slow_at_first, {64, 8, 0, 0}};
    REQUIRE(specrt_costs_measure(&first, 0.01, 0, &costs, NULL) == SPECRT_STATUS_OK);
    CHECK(more[1] > 1 + 2 && more[1] <= 1 + 5 && more[4] == more[1] - 1 && more[2] <= 1);
    CHECK(!costs.disturbed && more[64] == 0 && more[0] == more[1] && more[LONG_DRAFT] == 1);
    char line[SPECRT_COSTS_TEXT];
    costs.disturbed = 1;
    specrt_costs_busy(&costs, line);
    CHECK_HAS(line, "too busy to tell: more work took less time; wait until the machine is idle");
}

/* Blocks of at most `user` positions, behind what is more. */
static int block_pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    const int32_t most = *(const int32_t *)user, read = n > most ? n - most : 0;
    seconds[0] = pass ? 0.02 + 0.001 * (n - read) + 0.0001 * read : 0.01 * n;
    CHECK(pass <= SPECRT_PASS_DRAFT && n <= (pass ? most + 7 : 16));
    return 0;
}

TEST(block, "every size once, whole blocks among them") {
    for (int32_t most = 1; most <= 12; most++)
        for (int all = 0; all < 2; all++) {
            const specrt_meter meter = {
                .user = &most, .pass = block_pass, .most = {16, -most, 0, 0}};
            REQUIRE(specrt_costs_measure(&meter, 20, all, &costs, NULL) == SPECRT_STATUS_OK);
            check_rises(&costs.draft, most + 7);
            CHECK(costs.n_block == most && !costs.disturbed && costs.head_first.n == 0);
            for (int32_t n = 1; n <= most; n++)
                CHECK_NEAR(specrt_curve_at(&costs.draft, n), 0.02 + 0.001 * n, 1e-9);
            CHECK_NEAR(specrt_curve_at(&costs.draft, most + 7), 0.0207 + 0.001 * most, 1e-9);
            CHECK(costs.draft.n >= (all && most > 2 ? 4 : 2));
        }
}

TEST(fails, "a model that fails, and a meter of nothing") {
    specrt_error err;
    machine m = {.chance = 5, .right = 1, .fails_at = 9};
    const specrt_meter meter = {&m, pass, {60, 8, 0, 0}}, none = {&m, pass, {0, 1, 0, 0}};
    CHECK_INT(specrt_costs_measure(&meter, 0, 0, &costs, &err), SPECRT_STATUS_HOST);
    CHECK_STR(err.msg, "costs: expected passes of both models, found that one failed with 7");
    CHECK(m.n_passes == 9 && costs.target.n == 0);
    CHECK_INT(specrt_costs_measure(&none, 0, 0, &costs, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "costs: meter: expected passes of 1 token or more of target and drafter, "
                       "found 0 and 1");
}
