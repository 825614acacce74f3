/* test_llama_costs.c : what decides whether to draft in llama.cpp, without llama.cpp and without a clock:
 * times are given. Tables, the policy, the file that keeps costs, and the figures that follow the time of
 * cycles. */
#include "adapters/llama/specrt_llama_costs.h"
#include "fixture.h"
#include "folder.h"
#include "test.h"

#include <math.h>

enum { STEPS = 4, V = 4096, D = 32 };
static const specrt_tree_params chain = {
    .num_steps = STEPS, .topk = 1, .num_draft_tokens = STEPS + 1};

static uint64_t state = 3;
static double chance(void) {
    return (double)(fixture_random(&state) >> 11) / 9007199254740992.0;
}

/* A pass of n tokens takes 1 + more (n - 1) hundredths of a second; the drafter a tenth of that. */
static specrt_llama_costs costs_of(double more, double draft) {
    specrt_llama_costs c = {.n_heads = 0};
    for (int32_t n = 1; n <= 16; n *= 2) {
        c.target.sizes[c.target.n] = c.draft.sizes[c.draft.n] = n;
        c.target.seconds[c.target.n++] = 0.01 * (1 + more * (n - 1));
        c.draft.seconds[c.draft.n++] = 0.01 * draft * (1 + 0.1 * (n - 1));
    }
    return c;
}

/* ---- at the start ---- */

static void test_curve(void) {
    const specrt_llama_curve c = {3, {1, 4, 8}, {1, 4, 6}}, one = {1, {2}, {3}}, none = {0};
    const specrt_llama_curve falls = {2, {1, 2}, {3, 2}};
    CHECK_NEAR(specrt_llama_curve_at(&c, 1), 1, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&c, 3), 3, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&c, 6), 5, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&c, 12), 8, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&one, 4), 6, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&none, 4), 0, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&falls, 5), 3, 1e-9);
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
    specrt_llama_costs costs = {.n_heads = 0};
    const specrt_llama_meter meter = {&c, meter_target, meter_draft};
    CHECK_INT(specrt_llama_costs_measure(&meter, STEPS + 1, &costs), 0);
    CHECK(!costs.disturbed && c.n_draft == 1 + 5 * 2);
    CHECK_INT(costs.target.n, 5);
    CHECK_INT(costs.target.sizes[4], 5);
    CHECK_INT(c.largest, 5);
    CHECK(costs.changed);
    for (int i = 0; i < 5; i++)
        CHECK_NEAR(costs.target.seconds[i], 0.01 * costs.target.sizes[i], 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&costs.draft, 8), 0.008, 1e-9);
    CHECK_INT(specrt_llama_costs_measure(&meter, 1000, &costs), 0);
    CHECK_INT(c.largest, 64);
    c = (calls){.fails_at = 3};
    CHECK_INT(specrt_llama_costs_measure(&meter, STEPS + 1, &costs), 7);
    CHECK_INT(c.n_target, 3);
}

/* A machine that was too busy: passes of 2 tokens take longer than those of 4, all of 8 far longer than 8. */
static int meter_busy(void *user, int32_t n, double *seconds) {
    *seconds = n == 2 ? 0.9 : n == 8 ? 5 : 0.01 * n;
    return ++*(int *)user, 0;
}

/* Such times are lowered to what can be. They are not kept, and no reason to draft nothing. */
static void test_disturbed(void) {
    int n_calls = 0;
    specrt_llama_costs costs = {.n_heads = 0};
    const specrt_llama_meter meter = {&n_calls, meter_busy, meter_busy};
    char line[SPECRT_LLAMA_TEXT];
    specrt_llama_clock clock;
    CHECK_INT(specrt_llama_costs_measure(&meter, 8, &costs), 0);
    CHECK(costs.disturbed && n_calls == 2 + 20 * 8);
    CHECK_NEAR(specrt_llama_curve_at(&costs.target, 2), 0.03, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&costs.target, 8), 0.08, 1e-9);
    CHECK_NEAR(specrt_llama_curve_at(&costs.draft, 8), 0.08, 1e-9);
    specrt_llama_clock_init(&clock, &costs, &chain, 0);
    CHECK(!specrt_llama_clock_hopeless(&clock, line));
    clock.costs.disturbed = false;
    CHECK(specrt_llama_clock_hopeless(&clock, line));
}

/* ---- the policy ---- */

static specrt_llama_drafts drafts_of(specrt_head **head) {
    static float rows[V * D];
    specrt_error err;
    for (int i = 0; i < V * D; i++) rows[i] = (float)chance() - 0.5f;
    const specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = D};
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, head, &err) == SPECRT_STATUS_OK);
    return (specrt_llama_drafts){.head = *head,
                                 .n_cols = D,
                                 .policy = {.n_vocab = V},
                                 .params = {.tree = chain, .n_logits = V}};
}

static void put_head(specrt_llama_costs *c, const char *policy, double seconds) {
    snprintf(c->heads[c->n_heads].policy, SPECRT_LLAMA_TEXT, "%s", policy);
    c->heads[c->n_heads++].seconds = seconds;
}

/* Without a bundle: microspec, and the whole head where it is too small to matter. */
static void test_policy(void) {
    specrt_head *head;
    specrt_llama_drafts drafts = drafts_of(&head);
    specrt_llama_costs c = costs_of(0.2, 0.05), d = c;
    put_head(&c, "full", 0.004);
    put_head(&c, "microspec", 0.0001);
    CHECK_STR(specrt_llama_costs_policy(&c, &drafts), "microspec");
    CHECK_INT(c.n_heads, 2); /* the others need a bundle */
    put_head(&d, "full", 0.0001);
    put_head(&d, "microspec", 0.00005);
    CHECK_STR(specrt_llama_costs_policy(&d, &drafts), "full");
    put_head(&d, "hybrid", 0.00001); /* a bundle that has it, by the same costs */
    d.heads[0].seconds = 0.004;
    CHECK_STR(specrt_llama_costs_policy(&d, &drafts), "hybrid");
    specrt_head_close(head);
}

/* A policy that does not open has no time; one that does has, and keeps it. */
static void test_head(void) {
    specrt_head *head;
    specrt_llama_drafts drafts = drafts_of(&head);
    specrt_llama_costs c = costs_of(0.2, 0.05);
    CHECK_NEAR(specrt_llama_costs_head(&c, &drafts, "static:64"), 0, 0);
    CHECK_NEAR(specrt_llama_costs_head(&c, &drafts, "no policy"), 0, 0);
    CHECK_INT(c.n_heads, 0);
    CHECK(!c.changed);
    double seconds = specrt_llama_costs_head(&c, &drafts, "window:512");
    CHECK(seconds > 0 && c.n_heads == 1 && c.changed);
    CHECK_NEAR(specrt_llama_costs_head(&c, &drafts, "window:512"), seconds, 0);
    CHECK_INT(c.n_heads, 1);
    specrt_head_close(head);
}

/* ---- the file ---- */

static specrt_llama_costs kept_costs(void) {
    specrt_llama_costs c = costs_of(0.37, 0.1);
    put_head(&c, "full", 0.00125);
    put_head(&c, "static:2048+window+successor:256", 1.0 / 3072);
    return c;
}

static bool same_costs(const specrt_llama_costs *a, const specrt_llama_costs *b) {
    bool same = a->target.n == b->target.n && a->draft.n == b->draft.n && a->n_heads == b->n_heads;
    for (int i = 0; same && i < a->target.n; i++)
        same = a->target.sizes[i] == b->target.sizes[i] &&
               fabs(a->target.seconds[i] / b->target.seconds[i] - 1) < 1e-8;
    for (int i = 0; same && i < a->draft.n; i++)
        same = fabs(a->draft.seconds[i] / b->draft.seconds[i] - 1) < 1e-8;
    for (int i = 0; same && i < a->n_heads; i++)
        same = strcmp(a->heads[i].policy, b->heads[i].policy) == 0 &&
               fabs(a->heads[i].seconds / b->heads[i].seconds - 1) < 1e-8;
    return same;
}

static void test_kept(void) {
    specrt_llama_costs c = kept_costs(), found;
    char why[SPECRT_LLAMA_TEXT];
    const char *path = in_folder("a.costs");
    c.changed = true;
    CHECK_INT(specrt_llama_cache_read(path, "m", "k", &found, why), 0);
    REQUIRE(specrt_llama_cache_write(path, "m", "k", &c));
    CHECK(!c.changed);
    CHECK_INT(specrt_llama_cache_read(path, "m", "k", &found, why), 1);
    CHECK(same_costs(&c, &found));
    CHECK_INT(specrt_llama_cache_read(path, "n", "k", &found, why), -1);
    CHECK_STR(why, "of another machine: expected n, found m");
    CHECK_INT(found.target.n, 0);
    CHECK_INT(specrt_llama_cache_read(path, "m", "l", &found, why), -1);
    CHECK_STR(why, "of other models or settings");
    CHECK(!specrt_llama_cache_write(in_folder("none/a.costs"), "m", "k", &c));
    CHECK_INT(clear_folder(), 1); /* and no part of it */
}

static size_t read_bytes(const char *path, char bytes[4096]) {
    FILE *f = fopen(path, "rb");
    REQUIRE(f != NULL);
    size_t n = fread(bytes, 1, 4096, f);
    fclose(f);
    return n;
}

static void write_bytes(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL);
    REQUIRE(fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

/* Cut anywhere, or with any byte changed, the file is damaged and never read as other costs. */
static void test_damaged(void) {
    specrt_llama_costs c = kept_costs(), found;
    char why[SPECRT_LLAMA_TEXT], bytes[4096];
    const char *path = in_folder("a.costs");
    REQUIRE(specrt_llama_cache_write(path, "m", "k", &c));
    size_t n = read_bytes(path, bytes);
    for (size_t i = 0; i < n; i++) {
        write_bytes(path, bytes, i);
        CHECK_INT(specrt_llama_cache_read(path, "m", "k", &found, why), -1);
        CHECK_STR(why, "damaged");
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 4;
        write_bytes(path, bytes, n);
        CHECK_INT(specrt_llama_cache_read(path, "m", "k", &found, why), -1);
        CHECK_INT(found.target.n, 0);
        bytes[i] ^= 4;
    }
    clear_folder();
}

/* A whole file, sealed by its checksum, whose lines are no costs. */
static void test_bad_lines(void) {
    static const char *bad[] = {"target 2 0.1\ntarget 2 0.1\n",
                                "target 1 -1\n",
                                "target 1 nan\n",
                                "target 0 0.1\n",
                                "draft 1 inf\n",
                                "head 0 full\n",
                                "what 1 2\n",
                                ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        specrt_llama_costs found;
        specrt_sha256 sha;
        uint8_t digest[32];
        char text[512], why[SPECRT_LLAMA_TEXT];
        int n = snprintf(text, sizeof text, "specrt costs 1\nmachine m\nkey k\n%s", bad[i]);
        specrt_sha256_init(&sha);
        specrt_sha256_update(&sha, text, (size_t)n);
        specrt_sha256_final(&sha, digest);
        n += snprintf(text + n, 8, "sum ");
        for (int k = 0; k < 8; k++) n += snprintf(text + n, 3, "%02x", digest[k]);
        text[n++] = '\n';
        write_bytes(in_folder("bad.costs"), text, (size_t)n);
        CHECK_INT(specrt_llama_cache_read(in_folder("bad.costs"), "m", "k", &found, why), -1);
        CHECK_STR(why, "damaged");
    }
    clear_folder();
}

/* Beside the bundle; in the user's cache folder without one, or nowhere. */
static void test_path(void) {
    char path[SPECRT_LLAMA_PATH], other[SPECRT_LLAMA_PATH];
    const char *bundle = in_folder("pair.specb");
    REQUIRE(specrt_llama_cache_path(bundle, "key", path));
    CHECK(strncmp(path, bundle, strlen(bundle)) == 0 && strstr(path, ".costs") != NULL);
    REQUIRE(specrt_llama_cache_path(bundle, "other key", other));
    CHECK(strcmp(path, other) != 0);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    REQUIRE(specrt_llama_cache_path(NULL, "key", path));
    CHECK(strncmp(path, in_folder("cache/specrt/"), strlen(in_folder("cache/specrt/"))) == 0);
    REQUIRE(specrt_llama_cache_path("/no/such/folder/pair.specb", "key", other));
    CHECK_STR(other, path);
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", in_folder("home/of/nobody"), 1);
    CHECK(!specrt_llama_cache_path(NULL, "key", path));
    clear_folder();
}

/* A file is used where it can be; else there is one line that says why not. */
static void test_find(void) {
    calls c = {0};
    specrt_llama_costs costs;
    const specrt_llama_meter meter = {&c, meter_target, meter_draft};
    char machine[SPECRT_LLAMA_TEXT], line[SPECRT_LLAMA_LINE];
    const char *path = in_folder("a.costs");
    specrt_llama_machine(machine);
    CHECK_INT(specrt_llama_costs_find(&meter, 4, path, "k", &costs, line), 0);
    CHECK_HAS(line, "costs: measured in 0.0 s, kept in /");
    CHECK(c.n_target > 4 && costs.changed);
    REQUIRE(specrt_llama_cache_write(path, machine, "k", &costs));
    c.n_target = 0;
    CHECK_INT(specrt_llama_costs_find(&meter, 4, path, "k", &costs, line), 0);
    CHECK_HAS(line, "costs: read from /");
    CHECK(c.n_target == 0 && !costs.changed);
    REQUIRE(specrt_llama_cache_write(path, "another one", "k", &costs));
    CHECK_INT(specrt_llama_costs_find(&meter, 4, path, "k", &costs, line), 0);
    CHECK_HAS(line, "a.costs: of another machine: expected ");
    CHECK_HAS(line, "found another one; measured again in 0.0 s");
    CHECK(c.n_target > 4 && costs.changed);
    write_bytes(path, "specrt", 6);
    CHECK_INT(specrt_llama_costs_find(&meter, 4, path, "k", &costs, line), 0);
    CHECK_HAS(line, "a.costs: damaged; measured again in 0.0 s");
    CHECK_INT(specrt_llama_costs_find(&meter, 4, NULL, "k", &costs, line), 0);
    CHECK_HAS(line, "kept in no file: there is no cache folder");
    const specrt_llama_meter busy = {&c.n_target, meter_busy, meter_busy};
    CHECK_INT(specrt_llama_costs_find(&busy, 8, NULL, "k", &costs, line), 0);
    CHECK_HAS(line, " s on a busy machine, not kept");
    CHECK_INT(specrt_llama_costs_find(&busy, 8, path, "k", &costs, line), 0);
    CHECK_HAS(line, "a.costs: damaged; measured again in 0.0 s on a busy machine, not kept");
    CHECK(specrt_llama_cache_write(path, machine, "k", &costs) && costs.changed);
    CHECK_INT(specrt_llama_cache_read(path, machine, "k", &costs, line), -1); /* as it was */
    clear_folder();
}

/* ---- tables ---- */

/* A draft of n levels: n passes of the drafter, n levels scored, a pass of the target over n + 1 tokens. */
static void test_table(void) {
    const specrt_llama_costs c = costs_of(0.5, 0.1);
    specrt_llama_clock clock;
    double cycles[STEPS + 1], read;
    specrt_llama_clock_init(&clock, &c, &chain, 0.0002);
    specrt_llama_clock_table(&clock, 1, cycles, &read);
    CHECK_NEAR(cycles[0], 0.01, 1e-9);
    CHECK_NEAR(cycles[1], 0.015 + 0.001 + 0.0002, 1e-9);
    CHECK_NEAR(cycles[4], 0.03 + 0.004 + 0.0008, 1e-9);
    CHECK_NEAR(read, 0.0001, 1e-9);
    /* Three slots that draft alike: one pass over all tokens, each of the drafter's too. */
    specrt_llama_clock_table(&clock, 3, cycles, &read);
    CHECK_NEAR(cycles[0], 0.02, 1e-9);
    CHECK_NEAR(cycles[2], 0.01 * (1 + 0.5 * 8) + 2 * 0.0012 + 6 * 0.0002, 1e-9);
    CHECK_NEAR(read, 0.0003, 1e-9);
    /* A tree of 2 levels with 3 branches has 1 + 3 + 9 nodes, at most 8 here. */
    const specrt_tree_params tree = {.num_steps = 2, .topk = 3, .num_draft_tokens = 8};
    specrt_llama_clock_init(&clock, &c, &tree, 0.0002);
    specrt_llama_clock_table(&clock, 1, cycles, &read);
    CHECK_NEAR(cycles[1], 0.025 + 0.001 + 0.0002, 1e-9);
    CHECK_NEAR(cycles[2], 0.045 + 0.001 + 0.0012 + 0.0004, 1e-9);
}

/* ---- while decoding ---- */

/* A machine whose time is given: passes of n tokens take target[n] seconds, of the drafter and a level
 * draft. */
typedef struct machine {
    double time, target[STEPS + 2], draft, score, noise;
    specrt_llama_timer timer;
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
    const specrt_llama_costs c = costs_of(more, draft);
    specrt_error err;
    memset(m, 0, sizeof *m);
    running = m;
    state = 3;
    set_target(m, more);
    m->draft = 0.01 * draft;
    m->score = score;
    specrt_llama_clock_init(&m->timer.clock, &c, &chain, score);
    REQUIRE(specrt_llama_clock_auto(&m->timer.clock, true, &m->timer.auto_draft, &err) ==
            SPECRT_STATUS_OK);
    m->timer.host = (specrt_host){.target_prefill = fake_prefill,
                                  .draft_step = fake_draft,
                                  .target_verify = fake_verify,
                                  .commit = fake_commit};
    m->timer.keeps_chains = true;
    m->timer.now = machine_now;
    m->host = specrt_llama_timed_host(&m->timer);
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

/* Where drafts are faster, cycles without one are few: those that time a plain pass. */
static void test_stays(void) {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    m.noise = 0.1;
    int drafts = drafts_in(&m, 0.8, 1000);
    CHECK(drafts >= 970 && drafts < 1000);
    machine_close(&m);
}

/* A machine that becomes slower as a whole changes no choice. */
static void test_busy(void) {
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
static void test_shape(void) {
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

/* The same of the drafter, and of its head. */
static void test_drafter_slows(void) {
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
static void test_wrong_start(void) {
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
static void test_never_slower(void) {
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

/* One slow pass is no reason to stop. */
static void test_outlier(void) {
    machine m;
    machine_open(&m, 0.1, 0.05, 0.0001);
    drafts_in(&m, 0.8, 300);
    m.time += 5;
    CHECK(drafts_in(&m, 0.8, 20) >= 17);
    m.host.target_prefill(m.host.user, NULL, 1, 0,
                          NULL); /* 1,000 seconds of a prompt do not count */
    const specrt_llama_clock before = m.timer.clock;
    run_cycle(&m, 0.8);
    CHECK(memcmp(&before, &m.timer.clock, sizeof before) == 0);
    machine_close(&m);
}

/* ---- in words ---- */

static void test_words(void) {
    const specrt_llama_costs slow = costs_of(2.0 / 3, 0.1), fast = costs_of(0.1, 0.1);
    specrt_llama_clock clock;
    char out[SPECRT_LLAMA_TEXT];
    const specrt_auto_stats off = {.n_cycles = 100,
                                   .n_emitted = 103,
                                   .n_plain = 97,
                                   .n_probes = 3,
                                   .n_passes = 9,
                                   .cost = 104};
    const specrt_auto_stats on = {
        .n_cycles = 100, .n_emitted = 280, .n_plain = 2, .n_passes = 294, .cost = 160};
    specrt_llama_clock_init(&clock, &slow, &chain, 0.00033);
    specrt_llama_clock_explain(&clock, &off, out);
    CHECK_STR(out, "drafting off in 97% of cycles: a pass of 4 tokens costs 3.00 passes here, its "
                   "draft 0.40; 9 tokens drafted, 3 accepted; estimated 0.99x plain decoding");
    specrt_llama_clock_init(&clock, &fast, &chain, 0.00033);
    specrt_llama_clock_explain(&clock, &on, out);
    CHECK_STR(out,
              "drafting on in 98% of cycles: a pass of 4 tokens costs 1.30 passes here, its draft "
              "0.40; 294 tokens drafted, 180 accepted; estimated 1.75x plain decoding");
    const specrt_auto_stats none = {.n_cycles = 0};
    specrt_llama_clock_explain(&clock, &none, out);
    CHECK_HAS(out, "0 tokens drafted, 0 accepted; estimated 1.00x plain decoding");
}

/* Drafts that cannot be faster, whatever is accepted: of a drafter slower than its target, or where a pass of
 * several tokens costs as much as so many passes. */
static void test_hopeless(void) {
    const specrt_llama_costs slow = costs_of(0.1, 1.1), steep = costs_of(1, 0.05),
                             good = costs_of(0.1, 0.3);
    specrt_llama_clock clock;
    char line[SPECRT_LLAMA_TEXT] = "";
    specrt_llama_clock_init(&clock, &good, &chain, 0);
    CHECK(!specrt_llama_clock_hopeless(&clock, line));
    CHECK_STR(line, "");
    specrt_llama_clock_init(&clock, &slow, &chain, 0);
    CHECK(specrt_llama_clock_hopeless(&clock, line));
    CHECK_STR(
        line,
        "drafting off: a pass of 4 tokens costs 1.30 passes here, its draft 3.30; too slow even "
        "if 95% of drafted tokens are accepted");
    specrt_llama_clock_init(&clock, &steep, &chain, 0);
    CHECK(specrt_llama_clock_hopeless(&clock, line));
    CHECK_HAS(line, "a pass of 4 tokens costs 4.00 passes here, its draft 0.15;");
}

static const test_case cases[] = {
    {"curve", "between measured sizes and beyond them", test_curve},
    {"measure", "sizes, rounds, and a model that fails", test_measure},
    {"disturbed", "times that cannot be", test_disturbed},
    {"policy", "by the same costs, with a bundle and without", test_policy},
    {"head", "only of policies that open", test_head},
    {"kept", "costs in a file, and whose they are", test_kept},
    {"damaged", "cut, or with one bit changed, at every byte", test_damaged},
    {"bad_lines", "a whole file that holds no costs", test_bad_lines},
    {"find", "from the file, or measured with one line", test_find},
    {"path", "beside the bundle, or in the user's cache folder", test_path},
    {"table", "chains, trees, several slots", test_table},
    {"stays", "drafts go on where they are faster", test_stays},
    {"busy", "a machine that slows as a whole changes no choice", test_busy},
    {"shape", "passes of several tokens become slow, and fast again", test_shape},
    {"drafter", "drafter or head become slow", test_drafter_slows},
    {"wrong_start", "costs that do not hold are found out", test_wrong_start},
    {"never_slower", "than plain decoding, by the given clock", test_never_slower},
    {"outlier", "one slow pass, or a prompt, is none", test_outlier},
    {"hopeless", "drafts that cannot be faster", test_hopeless},
    {"words", "the line that a person reads", test_words},
};
TEST_MAIN(cases)
