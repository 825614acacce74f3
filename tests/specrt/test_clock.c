/* test_clock.c : whether to draft, by the time of cycles, without a clock: times are given. */
#include "specrt_block.h"
#include "adapt/auto.h"
#include "costs.h"

#include <math.h>

enum { STEPS = COSTS_STEPS };

static uint64_t state = 3;
static double chance(void) {
    return (double)(fixture_random(&state) >> 11) / 9007199254740992.0;
}

/* A draft of n levels: n passes of the drafter, n levels scored, a pass of the target over n + 1 tokens. */
TEST(table, "chains, trees, several slots") {
    const specrt_costs c = costs_of(0.5, 0.1);
    specrt_clock clock;
    double cycles[STEPS + 1], read;
    specrt_clock_init(&clock, &c, &chain, 0.0002);
    specrt_clock_table(&clock, 1, cycles, &read);
    CHECK_NEAR(cycles[0], 0.01, 1e-9);
    CHECK_NEAR(cycles[1], 0.015 + 0.001 + 0.0002, 1e-9);
    CHECK_NEAR(cycles[4], 0.03 + 0.004 + 0.0008, 1e-9);
    CHECK_NEAR(read, 0.0001, 1e-9);
    /* Three slots that draft alike: one pass over all tokens, each of the drafter's too. */
    specrt_clock_table(&clock, 3, cycles, &read);
    CHECK_NEAR(cycles[0], 0.02, 1e-9);
    CHECK_NEAR(cycles[2], 0.01 * (1 + 0.5 * 8) + 2 * 0.0012 + 6 * 0.0002, 1e-9);
    CHECK_NEAR(read, 0.0003, 1e-9);
    /* A tree of 2 levels with 3 branches has 1 + 3 + 9 nodes, at most 8 here. */
    const specrt_tree_params tree = {.num_steps = 2, .topk = 3, .num_draft_tokens = 8};
    specrt_clock_init(&clock, &c, &tree, 0.0002);
    specrt_clock_table(&clock, 1, cycles, &read);
    CHECK_NEAR(cycles[1], 0.025 + 0.001 + 0.0002, 1e-9);
    CHECK_NEAR(cycles[2], 0.045 + 0.001 + 0.0012 + 0.0004, 1e-9);
}

/* ---- while decoding ---- */

/* A machine whose time is given: passes of n tokens take target[n] seconds, of the drafter and a level
 * draft. */
typedef struct machine {
    double time, target[STEPS + 2], draft, score, noise;
    specrt_timer timer;
    specrt_host host; /* timed */
    int n_tokens;     /* of the target's last pass */
} machine;
static machine *running;

static double machine_now(void) {
    return running->time;
}

static void spend(double seconds) {
    running->time += seconds * (1 + running->noise * (2 * chance() - 1));
}

static int fake_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                        const float **logits) {
    (void)user, (void)tokens, (void)n, (void)all, (void)logits;
    spend(1000);
    return 0;
}

static int fake_draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **input) {
    (void)user, (void)level, (void)beam, (void)hidden, (void)input;
    spend(running->draft);
    return 0;
}

static int fake_verify(void *user, const specrt_draft *draft, const float **logits) {
    (void)user, (void)logits;
    spend(running->target[draft->n]);
    return 0;
}

static int fake_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    (void)user, (void)draft, (void)verdict;
    return 0;
}

static void set_target(machine *m, double more) {
    for (int n = 0; n <= STEPS + 1; n++) m->target[n] = 0.01 * (1 + more * (n - 1));
}

static void machine_open(machine *m, double more, double draft, double score) {
    const specrt_costs c = costs_of(more, draft);
    specrt_error err;
    memset(m, 0, sizeof *m);
    running = m;
    state = 3;
    set_target(m, more);
    m->draft = 0.01 * draft;
    m->score = score;
    specrt_clock_init(&m->timer.clock, &c, &chain, score);
    REQUIRE(specrt_clock_auto(&m->timer.clock, 1, &m->timer.auto_draft, &err) == SPECRT_STATUS_OK);
    m->timer.host = (specrt_host){.target_prefill = fake_prefill,
                                  .draft_step = fake_draft,
                                  .target_verify = fake_verify,
                                  .commit = fake_commit};
    m->timer.keeps_chains = 1;
    m->timer.now = machine_now;
    specrt_timer_host(&m->timer, &m->host);
    m->host.target_prefill(m->host.user, NULL, 1, 0, NULL);
}

/* A cycle as a session does it; the drafter is right with probability p, as the target is sure.
 * @return levels drafted */
static int32_t run_cycle(machine *m, double p) {
    specrt_auto_choice choice;
    specrt_auto *a = m->timer.auto_draft;
    float certain[STEPS + 1];
    int32_t n = 0, accepted = 0;
    specrt_auto_choose(a, &choice);
    while (n < choice.num_steps) {
        m->host.draft_step(m->host.user, n, NULL, NULL, NULL);
        spend(m->score);
        n++;
        if (!specrt_auto_should_continue(a, n, NAN)) break;
    }
    while (accepted < n && chance() < p) accepted++;
    for (int i = 0; i <= STEPS; i++) certain[i] = (float)log(p);
    const specrt_draft draft = {.n = n + 1};
    const specrt_verdict verdict = {.n = accepted + 1};
    m->host.target_verify(m->host.user, &draft, NULL);
    m->host.commit(m->host.user, &draft, &verdict);
    const specrt_auto_cycle cycle = {
        .n_passes = n, .n_accepted = accepted, .target_logprobs = certain};
    REQUIRE(specrt_auto_observe(a, &cycle) == SPECRT_STATUS_OK);
    return n;
}

static int drafts_in(machine *m, double p, int n) {
    int drafts = 0;
    for (int i = 0; i < n; i++) drafts += run_cycle(m, p) > 0;
    return drafts;
}

static void machine_close(machine *m) {
    specrt_auto_close(m->timer.auto_draft);
}

TEST(stays, "where drafts are faster, cycles without one are few: those that time a plain pass") {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    m.noise = 0.1;
    int drafts = drafts_in(&m, 0.8, 1000);
    CHECK(drafts >= 970 && drafts < 1000);
    machine_close(&m);
}

TEST(busy, "a machine that becomes slower as a whole changes no choice") {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    drafts_in(&m, 0.8, 200);
    for (int n = 0; n <= STEPS + 1; n++) m.target[n] *= 3;
    m.draft *= 3, m.score *= 3;
    CHECK(drafts_in(&m, 0.8, 1000) >= 950);
    CHECK_NEAR(exp(m.timer.clock.slow), 3, 0.3);
    machine_close(&m);
}

/* Passes of several tokens become slower, as those beside other sequences do, and drafting ends; then faster
 * again, and drafting begins again. */
TEST(shape, "passes of several tokens become slow, and fast again") {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    m.noise = 0.1;
    CHECK(drafts_in(&m, 0.8, 200) >= 190);
    set_target(&m, 1.2);
    drafts_in(&m, 0.8, 200);
    CHECK(drafts_in(&m, 0.8, 500) <= 25);
    set_target(&m, 0.1);
    drafts_in(&m, 0.8, 1200);
    CHECK(drafts_in(&m, 0.8, 500) >= 480);
    machine_close(&m);
}

TEST(drafter, "drafter or head become slow") {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    drafts_in(&m, 0.8, 200);
    m.draft = 0.012; /* slower than the target */
    drafts_in(&m, 0.8, 200);
    CHECK(drafts_in(&m, 0.8, 500) <= 25);
    machine_close(&m);
    machine_open(&m, 0.1, 0.05, 0.0001);
    drafts_in(&m, 0.8, 200);
    m.score = 0.012;
    drafts_in(&m, 0.8, 200);
    CHECK(drafts_in(&m, 0.8, 500) <= 25);
    machine_close(&m);
}

/* Costs measured on an idle machine that do not hold: drafts seemed slow, or fast. */
TEST(wrong_start, "costs that do not hold are found out") {
    machine m;
    machine_open(&m, 1.2, 0.05, 0.0001);
    set_target(&m, 0.1);
    drafts_in(&m, 0.8, 1500);
    CHECK(drafts_in(&m, 0.8, 300) >= 280);
    machine_close(&m);
    machine_open(&m, 0.1, 0.05, 0.0001);
    set_target(&m, 1.2);
    drafts_in(&m, 0.8, 200);
    CHECK(drafts_in(&m, 0.8, 500) <= 25);
    machine_close(&m);
}

/* Never slower than plain decoding by more than the guard allows, by the given clock: time passes 1 / 0.98
 * of it only by what was lent, whatever is accepted. */
TEST(never_slower, "than plain decoding, by the given clock") {
    for (int round = 0; round < 20; round++) {
        machine m;
        double more = chance(), p = chance();
        machine_open(&m, more, chance() * 0.5, 0.0001);
        m.noise = 0.05;
        double began = m.time, emitted = 0;
        specrt_auto_stats stats;
        for (int i = 0; i < 1000; i++) run_cycle(&m, i % 300 < 100 ? p : chance());
        specrt_auto_get_stats(m.timer.auto_draft, &stats);
        emitted = (double)stats.n_emitted;
        CHECK((m.time - began) / 0.01 <= emitted / 0.98 + 4);
        machine_close(&m);
    }
}

TEST(outlier, "one slow pass is no reason to stop") {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    drafts_in(&m, 0.8, 300);
    m.time += 5;
    CHECK(drafts_in(&m, 0.8, 20) >= 17);
    m.host.target_prefill(m.host.user, NULL, 1, 0,
                          NULL); /* 1,000 seconds of a prompt do not count */
    const specrt_clock before = m.timer.clock;
    run_cycle(&m, 0.8);
    CHECK(memcmp(&before, &m.timer.clock, sizeof before) == 0);
    machine_close(&m);
}

/* ---- in words ---- */

TEST(words, "the line that a person reads") {
    const specrt_costs slow = costs_of(2.0 / 3, 0.1), fast = costs_of(0.1, 0.1);
    specrt_clock clock;
    char out[SPECRT_COSTS_TEXT];
    const specrt_auto_stats off = {.n_cycles = 100,
                                   .n_emitted = 103,
                                   .n_plain = 97,
                                   .n_probes = 3,
                                   .n_passes = 9,
                                   .cost = 104};
    const specrt_auto_stats on = {
        .n_cycles = 100, .n_emitted = 280, .n_plain = 2, .n_passes = 294, .cost = 160};
    specrt_clock_init(&clock, &slow, &chain, 0.00033);
    specrt_clock_explain(&clock, &off, out);
    CHECK_STR(out, "drafting off in 97% of cycles: a pass of 4 tokens costs 3.00 passes here, its "
                   "draft 0.40; 9 tokens drafted, 3 accepted; estimated 0.99x plain decoding");
    specrt_clock_init(&clock, &fast, &chain, 0.00033);
    specrt_clock_explain(&clock, &on, out);
    CHECK_STR(out,
              "drafting on in 98% of cycles: a pass of 4 tokens costs 1.30 passes here, its draft "
              "0.40; 294 tokens drafted, 180 accepted; estimated 1.75x plain decoding");
    const specrt_auto_stats none = {.n_cycles = 0};
    specrt_clock_explain(&clock, &none, out);
    CHECK_HAS(out, "0 tokens drafted, 0 accepted; estimated 1.00x plain decoding");
}

/* Of a prompt that the drafter reads late, all batches wait for its first pass, whose time says nothing about
 * a pass over a few tokens. */
TEST(late, "a prompt that is read late is no pass of a few tokens") {
    machine m;
    machine_open(&m, 0.1, 0.1, 0);
    m.timer.host.reads_late = 1;
    m.host.target_prefill(m.host.user, NULL, 64, 0, NULL);
    m.host.target_prefill(m.host.user, NULL, 30, 0, NULL);
    CHECK_INT(m.timer.n_unread, 95);
    m.draft *= 50;
    CHECK(run_cycle(&m, 0.9) > 0);
    m.draft /= 50;
    CHECK(fabs(m.timer.clock.draft) < 0.05);
    CHECK(m.timer.n_unread <= 2);
    m.host.target_prefill(m.host.user, NULL, 5, 0, NULL); /* another text */
    CHECK_INT(m.timer.n_unread, 6);
    machine_close(&m);
}

/* Drafts that cannot be faster, whatever is accepted: of a drafter slower than its target, or where a pass of
 * several tokens costs as much as so many passes. */
TEST(hopeless, "drafts that cannot be faster") {
    const specrt_costs slow = costs_of(0.1, 1.1), steep = costs_of(1, 0.05),
                       good = costs_of(0.1, 0.3);
    specrt_clock clock;
    char line[SPECRT_COSTS_TEXT] = "";
    specrt_clock_init(&clock, &good, &chain, 0);
    CHECK(!specrt_clock_hopeless(&clock, line));
    CHECK_STR(line, "");
    specrt_clock_init(&clock, &slow, &chain, 0);
    CHECK(specrt_clock_hopeless(&clock, line));
    CHECK_STR(
        line,
        "drafting off: a pass of 4 tokens costs 1.30 passes here, its draft 3.30; too slow even "
        "if 95% of drafted tokens are accepted");
    specrt_clock_init(&clock, &steep, &chain, 0);
    CHECK(specrt_clock_hopeless(&clock, line));
    CHECK_HAS(line, "a pass of 4 tokens costs 4.00 passes here, its draft 0.15;");
    clock.costs.disturbed = 1; /* which proves nothing */
    CHECK(!specrt_clock_hopeless(&clock, line));
}

static int fake_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    REQUIRE(user == &chain);
    block->n = n;
    spend(0.25 * root);
    return 7;
}

TEST(block, "a block is a pass of the application's own function") {
    machine m;
    specrt_block block = {.n = 0};
    machine_open(&m, 0.1, 0.1, 0);
    CHECK(m.host.draft_step && !m.host.draft_block);
    m.timer.host.user = (void *)(uintptr_t)&chain;
    m.timer.host.draft_step = NULL;
    m.timer.host.draft_block = fake_block;
    specrt_timer_host(&m.timer, &m.host);
    CHECK(!m.host.draft_step);
    CHECK_INT(m.host.draft_block(m.host.user, 2, 4, &block), 7);
    CHECK_INT(block.n, 4);
    CHECK_INT(m.timer.cycle.n_passes, 1);
    CHECK_INT(m.timer.cycle.n_block, 4);
    CHECK_NEAR(m.timer.cycle.draft_seconds, 0.5, 1e-9);
    machine_close(&m);
}

/* Blocks: one pass of the drafter for all levels, which takes as long as it has positions. */
static specrt_costs block_costs(double more, double draft, double read) {
    specrt_costs c = costs_of(more, draft);
    c.n_block = STEPS;
    c.draft.n = 3; /* up to a whole block */
    specrt_curve_add(&c.draft, STEPS + 7, c.draft.seconds[2] + 7 * read);
    return c;
}

TEST(block_table, "one pass of the drafter for all levels") {
    const specrt_costs c = block_costs(0.5, 0.1, 0.0004);
    specrt_clock clock;
    double cycles[STEPS + 1], read;
    specrt_clock_init(&clock, &c, &chain, 0.0002);
    specrt_clock_table(&clock, 1, cycles, &read);
    CHECK_NEAR(cycles[0], 0.01, 1e-9);
    CHECK_NEAR(cycles[1], 0.015 + 0.001 + 0.0002, 1e-9);
    CHECK_NEAR(cycles[4], 0.03 + 0.0013 + 0.0008, 1e-9);
    CHECK_NEAR(read, 0.0004, 1e-9);
}

/* A pass takes draft seconds and a tenth of them for each further position; reading nothing. */
static int timed_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    (void)user, (void)root;
    CHECK(n >= 1 && n <= STEPS);
    block->n = n;
    spend(running->draft * (1 + 0.1 * (n - 1)));
    return 0;
}

static void block_open(machine *m, double more, double draft, double score) {
    const specrt_costs c = block_costs(more, draft, 0);
    machine_open(m, more, draft, score);
    specrt_auto_close(m->timer.auto_draft);
    specrt_clock_init(&m->timer.clock, &c, &chain, score);
    REQUIRE(!specrt_clock_auto(&m->timer.clock, 0, &m->timer.auto_draft, NULL));
    m->timer.host.draft_step = NULL;
    m->timer.host.draft_block = timed_block;
    m->timer.keeps_chains = 0;
    specrt_timer_host(&m->timer, &m->host);
    m->host.target_prefill(m->host.user, NULL, 1, 0, NULL);
}

/* @return positions that were asked for; ends : the draft has one token less */
static int32_t block_cycle(machine *m, double p, bool ends) {
    specrt_auto_choice choice;
    specrt_block block = {.n = 0};
    float certain[STEPS + 1];
    int32_t accepted = 0;
    specrt_auto_choose(m->timer.auto_draft, &choice);
    int32_t n = choice.num_steps;
    if (n > 0) {
        REQUIRE(!m->host.draft_block(m->host.user, 1, n, &block));
        specrt__auto_block(m->timer.auto_draft, n);
        spend(n * m->score);
    }
    if (ends && n > 0) n--;
    while (accepted < n && chance() < p) accepted++;
    for (int i = 0; i <= STEPS; i++) certain[i] = (float)log(p);
    const specrt_draft draft = {.n = n + 1};
    const specrt_verdict verdict = {.n = accepted + 1};
    m->host.target_verify(m->host.user, &draft, NULL);
    m->host.commit(m->host.user, &draft, &verdict);
    const specrt_auto_cycle cycle = {
        .n_passes = n, .n_accepted = accepted, .target_logprobs = certain};
    REQUIRE(!specrt_auto_observe(m->timer.auto_draft, &cycle));
    return choice.num_steps;
}

/* Times that are as expected teach nothing, however long blocks are and wherever drafts end; other times
 * are learnt, and end drafting. */
TEST(block_clock, "cycles of blocks by the clock") {
    machine m;
    int drafts = 0;
    block_open(&m, 0.1, 0.3, 0.0001);
    for (int i = 0; i < 300; i++) drafts += block_cycle(&m, 0.8, i % 3 == 0) > 0;
    CHECK(drafts >= 280);
    CHECK_NEAR(m.timer.clock.draft, 0, 1e-6);
    CHECK_NEAR(m.timer.clock.scoring, 0, 1e-6);
    CHECK_NEAR(m.timer.clock.target[3], 0, 1e-6);
    CHECK_INT(m.timer.auto_draft->sunk[0][STEPS], (int64_t)(0.39 * 65536 + 0.5));
    m.draft *= 10;
    for (int i = 0; i < 200; i++) block_cycle(&m, 0.8, false);
    CHECK(m.timer.clock.draft > 1.5);
    CHECK(m.timer.auto_draft->sunk[0][STEPS] > 65536); /* the table follows */
    drafts = 0;
    for (int i = 0; i < 300; i++) drafts += block_cycle(&m, 0.8, false) > 0;
    CHECK(drafts <= 20);
    machine_close(&m);
}
