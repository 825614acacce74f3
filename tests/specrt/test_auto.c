/* test_auto.c : the chooser against a search of all choices in double precision, the account of the guard
 * cycle by cycle, and texts that change. */
#include "specrt.h"
#include "specrt_block.h"
#include "adapt/auto.h"
#include "fixture.h"
#include "test.h"

enum { STEPS = 6, LISTS = 3 };

static uint64_t state = 7;
static double chance(void) {
    return (double)(fixture_random(&state) >> 11) / 9007199254740992.0;
}

static const int32_t places[LISTS] = {1, 2, 3};

/* A cycle of n levels costs (first + n level) plain passes, of list i so much more. */
static void fill_costs(double *costs, double first, double level, double list) {
    for (int i = 0; i < LISTS; i++)
        for (int n = 0; n <= STEPS; n++)
            *costs++ = 0.004 * (n ? 1 + first + n * (level + i * list) : 1);
}

static specrt_auto *make(double first, double level, double list) {
    double costs[LISTS * (STEPS + 1)];
    specrt_auto *a;
    specrt_error err;
    fill_costs(costs, first, level, list);
    const specrt_auto_desc desc = {
        .num_steps = STEPS, .n_lists = LISTS, .rows = places, .costs = costs, .read = 0.00001};
    REQUIRE(specrt_auto_create(&desc, NULL, &a, &err) == SPECRT_STATUS_OK);
    return a;
}

/* A cycle over a text whose tokens the drafter has right with probability p, and list i with one of
 * 1 - missed / (i + 1). @return levels drafted. */
static int32_t run_cycle(specrt_auto *a, double p, double missed, float logprob) {
    specrt_auto_choice choice;
    float logprobs[STEPS];
    int32_t lists[STEPS + 1], n = 0, accepted = 0;
    specrt_auto_choose(a, &choice);
    CHECK(!specrt_auto_should_continue(a, 0, 0));
    CHECK(!specrt_auto_should_continue(a, choice.num_steps, 0));
    while (n < choice.num_steps) {
        logprobs[n] = logprob * (float)(n + 1);
        n++;
        if (!specrt_auto_should_continue(a, n, logprobs[n - 1])) break;
    }
    for (bool alive = true; alive; accepted++) {
        double u = chance();
        int32_t list = 0;
        while (list < LISTS && u > 1 - missed / (list + 1)) list++;
        lists[accepted] = list;
        alive = accepted < n && list <= choice.list && chance() < p;
    }
    specrt_auto_cycle cycle = {n, accepted - 1, logprobs, lists, NULL};
    REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
    return n;
}

/* --- the choice --- */

static double rate_of(specrt__auto_tally t, double supposed) {
    return (t.hits / 65536.0 + SPECRT__AUTO_WEIGHT * supposed) /
           (t.seen / 65536.0 + SPECRT__AUTO_WEIGHT);
}

/* Tokens by cost of one choice, from the counters, in double precision. */
static double value_of(const specrt_auto *a, int list, int n) {
    double tokens = 1, reached = 1, next = SPECRT__AUTO_FIRST / 65536.0;
    double cover = rate_of(a->covers[list], SPECRT__AUTO_COVER / 65536.0);
    for (int i = 0; i < n; i++) {
        next = rate_of(a->levels[i], next);
        reached *= next * cover;
        tokens += reached;
    }
    return tokens / ((double)a->costs[list][n] / 65536.0);
}

TEST(choice, "the best of all lists and depths, by a search in doubles") {
    for (int round = 0; round < 60; round++) {
        specrt_auto *a = make(chance(), chance() * 0.5, chance() * 0.1);
        double p = chance(), missed = chance() * 0.5;
        for (int i = 0; i < 300; i++) {
            specrt_auto_choice choice;
            double best = 0, chosen = 0;
            specrt_auto_choose(a, &choice);
            for (int list = 0; list < LISTS; list++)
                for (int n = 1; n <= STEPS; n++) best = fmax(best, value_of(a, list, n));
            for (int n = 1; n <= STEPS; n++) chosen = fmax(chosen, value_of(a, choice.list, n));
            CHECK_NEAR((double)a->rate / 65536.0, best, 1e-3 * best);
            CHECK_NEAR(chosen, best, 1e-3 * best);
            run_cycle(a, p, missed, -0.1f);
        }
        specrt_auto_close(a);
    }
}

TEST(forgetting, "counters against sums with weights that fall by 1/64 of what is observed") {
    specrt__auto_tally t = {0, 0};
    double seen = 0, hits = 0;
    for (int i = 0; i < 2000; i++) {
        double weight = i % 3 ? 1 : chance(), share = chance() < (i < 1000 ? 0.9 : 0.2);
        if (i % 3 == 0) share = chance();
        if (i % 3)
            specrt__auto_count(&t, share > 0);
        else
            specrt__auto_weigh(&t, (int64_t)(weight * 65536), (int64_t)(share * 65536));
        seen += weight * (1 - seen / 64);
        hits += weight * (share - hits / 64);
        CHECK_NEAR(t.seen / 65536.0, seen, 0.01);
        CHECK_NEAR(t.hits / 65536.0, hits, 0.01);
        CHECK(t.hits >= 0 && t.hits <= t.seen);
    }
}

TEST(finds, "within 3% of the best depth where the distribution is known") {
    static const double accepted[] = {0.3, 0.6, 0.9};
    state = 7; /* at 0.3, which all but breaks even, counters are near enough for most seeds only */
    for (int i = 0; i < 3; i++) {
        specrt_auto *a = make(0.05, 0.2, 0.0);
        specrt_auto_stats stats;
        double p = accepted[i], best = 1;
        for (int n = 1; n <= STEPS; n++) {
            double tokens = (1 - pow(p, n + 1)) / (1 - p);
            best = fmax(best, tokens / (1.05 + 0.2 * n));
        }
        for (int k = 0; k < 6000; k++) run_cycle(a, p, 0, NAN);
        specrt_auto_get_stats(a, &stats);
        CHECK((double)stats.n_emitted / stats.cost > 0.97 * best);
        specrt_auto_close(a);
    }
}

/* --- the guard --- */

/* Whatever is accepted, tokens pay for the time but for 1% and what was lent. */
TEST(account, "time never exceeds 1.01 plain passes a token and what was lent") {
    for (int round = 0; round < 40; round++) {
        specrt_auto *a = make(chance() * 2, chance() * 2, chance() * 0.2);
        double p = chance();
        for (int i = 0; i < 3000; i++) {
            specrt_auto_stats stats;
            if (i % 200 == 0) p = chance() < 0.5 ? 0 : chance();
            if (i % 90 == 0) specrt_auto_begin(a);
            run_cycle(a, p, 0.1, (float)-chance());
            specrt_auto_get_stats(a, &stats);
            CHECK(stats.cost <= 1.01 * (double)stats.n_emitted +
                                    (double)SPECRT__AUTO_LENT / SPECRT__AUTO_ONE + 0.01);
            CHECK(a->balance >= 0);
        }
        specrt_auto_close(a);
    }
}

/* Cycles with a draft among the next n. */
static int drafts_in(specrt_auto *a, double p, int n) {
    int drafts = 0;
    for (int i = 0; i < n; i++) drafts += run_cycle(a, p, 0, NAN) > 0;
    return drafts;
}

TEST(stops, "drafting stops, is tried ever less, and starts again") {
    specrt_auto *a = make(0.2, 0.3, 0);
    drafts_in(a, 0, 100);
    CHECK(drafts_in(a, 0, 400) <= 6);
    int late = drafts_in(a, 0, 1500);
    CHECK(late >= 1 && late <= 4);
    drafts_in(a, 0.95, 700); /* at most 512 until the next look */
    CHECK(drafts_in(a, 0.95, 200) > 190);
    CHECK(drafts_in(a, 0, 1500) < 50); /* what was saved, then one percent */
    specrt_auto_close(a);
}

TEST(looks, "a new sequence is a reason to look") {
    specrt_auto *a = make(0.2, 0.3, 0);
    drafts_in(a, 0, 3000);
    CHECK_INT(a->interval, 512); /* the most */
    specrt_auto_begin(a);
    CHECK_INT(drafts_in(a, 0, 1), 1);
    specrt_auto_close(a);
}

/* The rule for a prompt that the drafter has not read: n tokens at a rate r save n (1 - 1 / r) passes, and an
 * answer of m tokens is supposed to have 4 m more, at most what is left. @return tokens before a draft */
static int plain_before(double prompt, double rate, int n_left) {
    for (int m = 0; m < n_left; m++)
        if (fmin(4 * m, n_left - m) * (1 - 1 / rate) > prompt) return m;
    return n_left;
}

TEST(prompt, "the drafter reads a prompt where the answer repays it, by arithmetic") {
    specrt_auto *a = make(0.05, 0.2, 0.0);
    specrt_auto_stats before, after;
    specrt_auto_choice choice;
    for (int k = 0; k < 3000; k++) run_cycle(a, 0.9, 0, NAN);
    for (int i = 0; i < 6; i++) { /* beyond what a probe may lose */
        const int64_t n_left = 50 << i / 2 * 2;
        const int counted = n_left < 256 ? (int)n_left : 256;
        const double read = (double)a->read / 65536;
        specrt_auto_begin(a);
        specrt_auto_choose(a, &choice);
        const double rate = (double)a->rate / 65536;
        int64_t prompt = (int64_t)((i % 2 ? 0.85 : 0.6) * counted * (1 - 1 / rate) / read);
        int most = plain_before((double)prompt * read, rate, counted);
        CHECK((most < counted) == (i % 2 == 0) && most > counted / 8);
        specrt_auto_unread(a, prompt, n_left);
        CHECK_INT(drafts_in(a, 0.9, most), 0);
        if (most == counted) continue;
        int64_t balance = a->balance;
        specrt_auto_get_stats(a, &before);
        CHECK_INT(drafts_in(a, 0.9, 2), 2);
        specrt_auto_get_stats(a, &after);
        double cost = after.cost - before.cost, paid = (double)(prompt + most) * read;
        CHECK(cost > 0.99 * paid && cost < 1.01 * paid + 2 * (1.05 + 0.2 * STEPS));
        CHECK((double)(a->balance - balance) >= -(most * read + 2 * (1.05 + 0.2 * STEPS)) * 65536);
    }
    specrt_auto_begin(a); /* nothing of it is left for a text that was read */
    CHECK_INT(drafts_in(a, 0.9, 1), 1);
    specrt_auto_close(a);
}

/* The end of an answer repays no prompt: what is not read by then stays unread. A probe reads none that it
 * cannot afford. */
TEST(unread, "an unread prompt that nothing repays stays so") {
    specrt_auto *a = make(0.05, 0.2, 0.0);
    specrt_auto_unread(a, 100000, 0);
    CHECK_INT(drafts_in(a, 0.9, 2000), 0);
    specrt_auto_begin(a);
    CHECK(drafts_in(a, 0, 2000) > 0);
    specrt_auto_begin(a);
    specrt_auto_unread(a, 100000, 0);
    CHECK_INT(drafts_in(a, 0, 2000), 0);
    specrt_auto_unread(a, -1, 0); /* no number of tokens */
    CHECK_INT(a->n_prompt, 100000);
    specrt_auto_close(a);
}

/* --- the target's certainty --- */

/* A cycle whose tokens the target gives probability p, and the drafter has right as often. */
static int32_t run_certain(specrt_auto *a, double p) {
    specrt_auto_choice choice;
    float certain[STEPS + 1];
    int32_t accepted = 0;
    specrt_auto_choose(a, &choice);
    for (int i = 0; i <= STEPS; i++) certain[i] = (float)log(p);
    while (accepted < choice.num_steps && chance() < p) accepted++;
    const specrt_auto_cycle cycle = {
        .n_passes = choice.num_steps, .n_accepted = accepted, .target_logprobs = certain};
    REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
    return choice.num_steps;
}

/* Plain cycles count for every level that a draft begun before them would have reached. */
TEST(supposes, "plain tokens count for every level, by sums in doubles") {
    specrt_auto *a = make(9, 9, 0); /* never drafts */
    double seen[STEPS] = {0}, hits[STEPS] = {0}, path[STEPS] = {0};
    for (int i = 0; i < 300; i++) {
        double p = i % 70 < 35 ? 0.9 : 0.3;
        specrt__auto_tally t = a->sure[specrt__auto_bin(0, (float)log(p))];
        double supposed = i % 70 < 35 ? 57344 / 65536.0 : 21299 / 65536.0;
        double share = (t.hits / 65536.0 + SPECRT__AUTO_TRUST * supposed) /
                       (t.seen / 65536.0 + SPECRT__AUTO_TRUST);
        path[0] = 1;
        for (int n = 0; n < STEPS; n++) {
            seen[n] += path[n] * (1 - seen[n] / 64);
            hits[n] += path[n] * (share - hits[n] / 64);
        }
        for (int n = STEPS - 1; n > 0; n--) path[n] = path[n - 1] * share;
        CHECK_INT(run_certain(a, p), 0);
        for (int n = 0; n < STEPS; n++) {
            CHECK_NEAR(a->levels[n].seen / 65536.0, seen[n], 0.01);
            CHECK_NEAR(a->levels[n].hits / 65536.0, hits[n], 0.01);
        }
    }
    specrt_auto_close(a);
}

/* Plain cycles before drafting sets in where a text turns sure, after one that was not. */
static int until_drafts(void) {
    specrt_auto *a = make(0.2, 0.3, 0);
    int n = 0;
    for (int i = 0; i < 3000 || a->waited > 0; i++) run_certain(a, 0.1);
    while (n < 2000 && run_certain(a, 0.95) == 0) n++;
    for (int i = 0; i < 3 && n < 2000; i++) n += run_certain(a, 0.95) ? 0 : 2000;
    specrt_auto_close(a);
    return n;
}

TEST(sure, "where a text turns sure, drafting sets in without a probe") {
    state = 5;
    CHECK(until_drafts() < 80);
}

TEST(probes, "where tokens tell that nothing would be accepted, next to nothing is tried") {
    specrt_auto *a = make(0.2, 0.3, 0);
    int drafts = 0;
    for (int i = 0; i < 40; i++) run_certain(a, 0.1);
    for (int i = 0; i < 2000; i++) {
        if (i % 50 == 0) specrt_auto_begin(a);
        drafts += run_certain(a, 0.1) > 0;
    }
    CHECK(drafts >= 2 &&
          drafts <= 8); /* each 512 cycles, and what follows one that gave something */
    specrt_auto_close(a);
}

TEST(drafter, "a drafter that is wrong where the target is sure is found out") {
    specrt_auto *a = make(0.2, 0.3, 0);
    int drafts = 0;
    for (int i = 0; i < 2000; i++) {
        specrt_auto_choice choice;
        const float certain[1] = {-0.001f};
        specrt_auto_choose(a, &choice);
        drafts += choice.num_steps > 0;
        const specrt_auto_cycle cycle = {.n_passes = choice.num_steps, .target_logprobs = certain};
        REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
    }
    CHECK(drafts >= 3 && drafts <= 25);
    specrt_auto_close(a);
}

/* --- within a draft --- */

TEST(confidence, "unsure tokens end a chain") {
    specrt_auto *a = make(0.05, 0.25, 0);
    int32_t sure = 0, unsure = 0;
    for (int i = 0; i < 400; i++) {
        bool good = i % 2;
        int32_t n = run_cycle(a, good ? 0.97 : 0.05, 0, good ? -0.01f : -3.5f);
        if (i >= 200) *(good ? &sure : &unsure) += n;
    }
    CHECK(sure > 350);   /* of 100 cycles */
    CHECK(unsure < 110); /* the first level tells */
    specrt_auto_close(a);
}

/* --- costs measured again --- */

/* Choices follow the new table and no other: after it both controllers, which saw the same, choose alike. */
TEST(new_costs, "choices follow a table that replaces the first") {
    double costs[LISTS * (STEPS + 1)];
    specrt_auto *a = make(0.05, 0.1, 0), *b = make(0.3, 0.9, 0);
    specrt_auto_choice of_a, of_b;
    specrt_error err;
    REQUIRE(specrt_auto_observe(a, &(specrt_auto_cycle){.n_passes = 0}) == SPECRT_STATUS_OK);
    REQUIRE(specrt_auto_observe(b, &(specrt_auto_cycle){.n_passes = 0}) == SPECRT_STATUS_OK);
    a->balance = b->balance;
    fill_costs(costs, 0.3, 0.9, 0);
    REQUIRE(specrt_auto_set_costs(a, costs, 0.00001, &err) == SPECRT_STATUS_OK);
    CHECK(memcmp(a->costs, b->costs, sizeof a->costs) == 0);
    CHECK_INT(a->read, b->read);
    for (int i = 0; i < 50; i++) {
        specrt_auto_choose(a, &of_a);
        specrt_auto_choose(b, &of_b);
        CHECK_INT(of_a.num_steps, of_b.num_steps);
        const specrt_auto_cycle cycle = {.n_passes = of_a.num_steps,
                                         .n_accepted = of_a.num_steps / 2};
        REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
        REQUIRE(specrt_auto_observe(b, &cycle) == SPECRT_STATUS_OK);
    }
    specrt_auto_close(a);
    specrt_auto_close(b);
}

TEST(bad_new_costs, "what is no cost is refused by name, and the table stays") {
    double costs[LISTS * (STEPS + 1)];
    specrt_auto *a = make(0.05, 0.1, 0), was = *a;
    specrt_error err;
    fill_costs(costs, 0.3, 0.9, 0);
    costs[LISTS * (STEPS + 1) - 1] = -1;
    CHECK_INT(specrt_auto_set_costs(a, costs, 0, &err), SPECRT_STATUS_BAD_ARG);
    CHECK(strstr(err.msg, "costs") != NULL);
    fill_costs(costs, 0.3, 0.9, 0);
    CHECK_INT(specrt_auto_set_costs(a, costs, NAN, &err), SPECRT_STATUS_BAD_ARG);
    CHECK(strstr(err.msg, "read") != NULL);
    CHECK(memcmp(a, &was, sizeof was) == 0);
    specrt_auto_close(a);
}

/* --- blocks --- */

/* A pass of 2 plain passes, whatever it drafts, then 0.1 a level. */
static specrt_auto *make_block(void) {
    double costs[STEPS + 1] = {1}, sunk[STEPS + 1] = {0};
    specrt_auto *a;
    for (int n = 1; n <= STEPS; n++) sunk[n] = 2, costs[n] = 3 + 0.1 * n;
    const specrt_auto_desc desc = {.num_steps = STEPS, .n_lists = 1, .costs = costs, .read = 0.25};
    REQUIRE(!specrt_auto_create(&desc, NULL, &a, NULL));
    REQUIRE(!specrt_auto_set_sunk(a, sunk, NULL));
    return a;
}

/* What a block's pass has computed is spent: a token that is nearly hopeless is worth 0.1 passes then, where
 * a level of its own would cost 2 more. */
TEST(block_sunk, "a block that was computed costs no more") {
    const double costs[STEPS + 1] = {1, 3.1, 5.2, 7.3, 9.4, 11.5, 13.6},
                               sunk[STEPS + 1] = {0, 2, 4, 6, 8, 10, 12};
    for (int is_block = 0; is_block < 2; is_block++) {
        specrt_auto *a = make_block();
        specrt_auto_choice choice;
        REQUIRE(!specrt_auto_set_costs(a, costs, 0, NULL));
        REQUIRE(!specrt_auto_set_sunk(a, sunk, NULL));
        specrt_auto_choose(a, &choice);
        a->choice.num_steps = STEPS; /* as if drafts were faster */
        a->probes = false;
        if (is_block) specrt__auto_block(a, STEPS);
        CHECK_INT(specrt_auto_should_continue(a, 1, -1), is_block);
        CHECK(!specrt_auto_should_continue(a, 2, -20));
        specrt_auto_close(a);
    }
}

/* A draft that ends inside its block costs the whole pass, and so does one without a token. Its drafter reads
 * every second time two tokens more. */
TEST(block_charged, "a draft that ends inside its block") {
    static const struct {
        int32_t n_block, n_passes;
        double cost;
    } cases[] = {{0, 0, 1},         {0, 2, 3.2}, {STEPS, 2, 3.2 + 1},
                 {STEPS, 0, 1 + 3}, {3, 3, 3.3}, {STEPS, 0, 1 + 3}};
    double costs[STEPS + 1] = {1}, sunk[STEPS + 1] = {0};
    for (int n = 1; n <= STEPS; n++) sunk[n] = n == STEPS ? 3 : 2, costs[n] = 3 + 0.1 * n;
    costs[STEPS] += 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        specrt_auto *a = make_block();
        specrt_auto_stats stats;
        REQUIRE(!specrt_auto_set_costs(a, costs, 0.25, NULL));
        REQUIRE(!specrt_auto_set_sunk(a, sunk, NULL));
        int32_t drafts = cases[i].n_block + cases[i].n_passes > 0, more = 2 * (int32_t)(i % 2);
        int32_t unread = a->n_unread += more;
        specrt__auto_block(a, cases[i].n_block);
        const specrt_auto_cycle cycle = {.n_passes = cases[i].n_passes};
        REQUIRE(!specrt_auto_observe(a, &cycle));
        specrt_auto_get_stats(a, &stats);
        CHECK_NEAR(stats.cost, cases[i].cost + drafts * more * 0.25, 1e-3);
        CHECK_INT(a->n_unread, drafts ? 1 : unread + 1);
        CHECK_INT(a->n_block, 0); /* the next cycle has a block of its own */
        specrt_auto_close(a);
    }
}

TEST(bad_sunk, "what is no part of the costs is refused, and changes nothing") {
    static const double bad[] = {-1, 99, NAN, INFINITY, 3.61};
    specrt_auto *a = make_block();
    const specrt_auto was = *a;
    specrt_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const double sunk[STEPS + 1] = {0, 1, 1, 1, 1, 1, bad[i]};
        CHECK_INT(specrt_auto_set_sunk(a, sunk, &err), SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, "auto: sunk: expected 0 to the cost, 0 without a draft, found ");
        CHECK(memcmp(a, &was, sizeof was) == 0);
    }
    const double plain[STEPS + 1] = {0.5, 1, 1, 1, 1, 1, 1};
    CHECK_INT(specrt_auto_set_sunk(a, plain, &err), SPECRT_STATUS_BAD_ARG);
    specrt_auto_close(a);
}

TEST(skip, "one plain cycle where drafts would be faster, then drafts again") {
    specrt_auto *a = make(0.05, 0.1, 0);
    for (int i = 0; i < 100; i++) run_cycle(a, 0.9, 0, NAN);
    CHECK_INT(drafts_in(a, 0.9, 20), 20);
    specrt_auto_skip(a);
    CHECK_INT(drafts_in(a, 0.9, 1), 0);
    CHECK_INT(drafts_in(a, 0.9, 20), 20);
    specrt_auto_close(a);
}

/* --- special cases --- */

/* Whole numbers give the same choices on every machine: a hash of what is chosen and counted, over texts that
 * turn and costs of every kind. */
static uint64_t hash_of_choices(int32_t n_lists, int32_t keeps_chains) {
    /* Sure, unsure, at the edges of bins, and unknown. */
    static const float logprobs[] = {0,     -0.02f, -0.0512933f, -0.1f,       -0.2231435f,
                                     -0.5f, -0.9f,  -1.3862944f, -2.0794415f, -2.9957323f,
                                     -3.5f, -8,     -INFINITY,   NAN};
    double costs[LISTS * (STEPS + 1)];
    uint64_t hash = 0;
    for (int round = 0; round < 24; round++) {
        specrt_auto *a;
        fill_costs(costs, 0.1 + 0.2 * (round % 3), 0.1 + 0.1 * (round % 3), 0.02 * (round % 3));
        const specrt_auto_desc desc = {.num_steps = STEPS,
                                       .n_lists = n_lists,
                                       .rows = n_lists > 1 ? places : NULL,
                                       .costs = costs,
                                       .read = 0.0002 * (round % 3),
                                       .keeps_chains = keeps_chains};
        REQUIRE(specrt_auto_create(&desc, NULL, &a, NULL) == SPECRT_STATUS_OK);
        for (int i = 0; i < 400; i++) {
            specrt_auto_choice choice;
            specrt_auto_stats stats;
            float before_first[STEPS + 1] = {-1}, *drafted = before_first + 1, certain[STEPS + 1];
            int32_t lists[STEPS + 1], n = 0, accepted = 0;
            specrt_auto_choose(a, &choice);
            for (int k = 0; k <= STEPS; k++) {
                lists[k] = fixture_below(&state, LISTS + 1) * (chance() < 0.3);
                certain[k] = logprobs[fixture_below(&state, i % 160 < 80 ? 5 : 14)];
            }
            while (n < choice.num_steps) {
                drafted[n] = (n ? drafted[n - 1] : 0) +
                             logprobs[fixture_below(&state, i % 90 < 60 ? 6 : 14)];
                n++;
                if (!specrt_auto_should_continue(a, n, drafted[n - 1])) break;
            }
            while (accepted < n && chance() < (i % 120 < 70 ? 0.85 : 0.05)) accepted++;
            const specrt_auto_cycle cycle = {n, accepted, i % 7 ? drafted : NULL,
                                             i % 5 ? lists : NULL,
                                             i % 200 < 150 && i % 11 ? certain : NULL};
            REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
            specrt_auto_get_stats(a, &stats);
            if (i % 170 == 169) specrt_auto_begin(a);
            const int64_t told[] = {choice.list,
                                    choice.num_steps,
                                    n,
                                    stats.n_plain,
                                    stats.n_probes,
                                    stats.n_passes,
                                    stats.n_emitted,
                                    (int64_t)(stats.cost * 65536)};
            hash = specrt_hash64(told, sizeof told, hash);
        }
        specrt_auto_close(a);
    }
    return hash;
}

TEST(repeats, "the same cycles give the same choices") {
    uint64_t hash = 0;
    state = 99;
    for (int32_t kind = 0; kind < 4; kind++) {
        uint64_t one = hash_of_choices(kind & 1 ? LISTS : 1, kind >> 1);
        hash = specrt_hash64(&one, sizeof one, hash);
    }
    CHECK(hash == 0xff22a6f0235e556au);
}

/* --- what is refused --- */

TEST(refusals, "tables that are no costs, cycles that are none") {
    double good[LISTS * (STEPS + 1)], zero[LISTS * (STEPS + 1)] = {0}, nan[LISTS * (STEPS + 1)];
    const double cheap[2] = {1, 1e-9}, dear[2] = {1, 1000001};
    const int32_t falling[LISTS] = {3, 2, 1}, twice[LISTS] = {1, 2, 2};
    fill_costs(good, 1, 1, 0);
    memcpy(nan, good, sizeof nan);
    nan[STEPS] = NAN;
    const struct {
        specrt_auto_desc desc;
        const char *what;
    } bad[] = {
        {{.num_steps = 0, .n_lists = 1, .costs = good}, "num_steps"},
        {{.num_steps = 33, .n_lists = 1, .costs = good}, "num_steps"},
        {{.num_steps = 2, .n_lists = 0, .costs = good}, "n_lists"},
        {{.num_steps = 2, .n_lists = 9, .costs = good, .rows = places}, "n_lists"},
        {{.num_steps = 2, .n_lists = 2, .costs = good}, "rows where above 1"},
        {{.num_steps = 2, .n_lists = LISTS, .costs = good, .rows = falling}, "rows"},
        {{.num_steps = 2, .n_lists = LISTS, .costs = good, .rows = twice}, "rows"},
        {{.num_steps = 2, .n_lists = 1}, "costs[0]"},
        {{.num_steps = 2, .n_lists = 1, .costs = zero}, "costs[0]"},
        {{.num_steps = STEPS, .n_lists = 1, .costs = nan}, "costs"},
        {{.num_steps = 2, .n_lists = 1, .costs = good, .read = -1}, "read"},
        {{.num_steps = 1, .n_lists = 1, .costs = cheap}, "costs"},
        {{.num_steps = 1, .n_lists = 1, .costs = dear}, "costs"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        specrt_auto *a;
        specrt_error err;
        CHECK(specrt_auto_create(&bad[i].desc, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, bad[i].what);
        CHECK(a == NULL);
    }
    const double limits[2 * SPECRT_AUTO_MAX_LISTS] = {1,   1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6,
                                                      1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6};
    const int32_t ascending[SPECRT_AUTO_MAX_LISTS] = {1, 2, 3, 4, 5, 6, 7, 8};
    const specrt_auto_desc most = {
        .num_steps = 1, .n_lists = SPECRT_AUTO_MAX_LISTS, .rows = ascending, .costs = limits};
    specrt_auto *a;
    REQUIRE(specrt_auto_create(&most, NULL, &a, NULL) == SPECRT_STATUS_OK);
    specrt_auto_close(a);
    double equal[SPECRT_TREE_MAX_STEPS + 1];
    for (int i = 0; i <= SPECRT_TREE_MAX_STEPS; i++) equal[i] = 1;
    const specrt_auto_desc longest = {
        .num_steps = SPECRT_TREE_MAX_STEPS, .n_lists = 1, .costs = equal};
    REQUIRE(specrt_auto_create(&longest, NULL, &a, NULL) == SPECRT_STATUS_OK);
    specrt_auto_close(a);
    a = make(1, 1, 0);
    const specrt_auto_cycle cycles[] = {{.n_passes = -1},
                                        {.n_passes = STEPS + 1},
                                        {.n_passes = 2, .n_accepted = 3},
                                        {.n_passes = 2, .n_accepted = -1}};
    for (int i = 0; i < 4; i++) CHECK(specrt_auto_observe(a, &cycles[i]) == SPECRT_STATUS_BAD_ARG);
    specrt_auto_close(a);
    specrt_auto_close(NULL);
}

/* A rate of nearly free drafts, and a level that nobody can afford: their product is beyond 64 bits. */
TEST(far_apart, "a rate and a cost whose product is beyond 64 bits") {
    const double costs[4] = {1, 1e-5, 8e5, 2};
    const specrt_auto_desc desc = {.num_steps = 3, .n_lists = 1, .costs = costs};
    specrt_auto_choice choice;
    specrt_auto *a;
    REQUIRE(specrt_auto_create(&desc, NULL, &a, NULL) == SPECRT_STATUS_OK);
    specrt_auto_choose(a, &choice);
    CHECK_INT(choice.num_steps, 3);
    CHECK_INT(specrt_auto_should_continue(a, 1, NAN), 0);
    specrt_auto_close(a);
}

TEST(memory, "nothing is allocated after create") {
    double costs[LISTS * (STEPS + 1)];
    fixture_allocator counted = {0, 0, 0}, scarce = {.fail_at = 1};
    specrt_env env = fixture_desc(&counted), none = fixture_desc(&scarce);
    specrt_auto *a;
    fill_costs(costs, 0.1, 0.1, 0);
    const specrt_auto_desc desc = {.num_steps = STEPS, .n_lists = 1, .costs = costs};
    CHECK(specrt_auto_create(&desc, &none, &a, NULL) == SPECRT_STATUS_NO_MEMORY && !a);
    REQUIRE(specrt_auto_create(&desc, &env, &a, NULL) == SPECRT_STATUS_OK);
    int n_calls = counted.n_calls;
    for (int i = 0; i < 100; i++) run_cycle(a, 0.5, 0, -1);
    CHECK_INT(counted.n_calls, n_calls);
    specrt_auto_close(a);
    CHECK_INT(counted.n_live, 0);
}

/* Whether a drafter is right says nothing where the chosen list lacks the token: the level and the target's
 * certainty are not counted, what the lists cover is. */
TEST(not_held, "tokens that no list holds") {
    const double costs[2 * 4] = {1, 1.1, 1.2, 1.3, 1, 1.2, 1.4, 1.6};
    const int32_t rows[2] = {20, 120};
    const specrt_auto_desc desc = {.num_steps = 3, .n_lists = 2, .rows = rows, .costs = costs};
    const float sure[2] = {-0.1f, -0.1f};
    specrt_auto *a;
    for (int32_t list = 0; list <= 2; list++) {
        const int32_t lists[2] = {list, list};
        const specrt_auto_cycle cycle = {
            .n_passes = 1, .lists = lists, .target_logprobs = sure}; /* rejected */
        REQUIRE(specrt_auto_create(&desc, NULL, &a, NULL) == 0);
        specrt_auto_choice choice;
        specrt_auto_choose(a, &choice);
        int64_t level = a->levels[0].seen, covered = a->covers[1].seen, told = 0;
        for (int k = 0; k < SPECRT__AUTO_BINS; k++) told -= a->sure[k].seen;
        REQUIRE(specrt_auto_observe(a, &cycle) == 0);
        for (int k = 0; k < SPECRT__AUTO_BINS; k++) told += a->sure[k].seen;
        CHECK((a->levels[0].seen > level) == (list <= choice.list));
        CHECK((told > 0) == (list <= choice.list));
        CHECK(a->covers[1].seen > covered);
        specrt_auto_close(a);
    }
}
