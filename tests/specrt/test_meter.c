/* test_meter.c : passes of a host whose clock the test sets, and whether calls are those of a session. */
#include "specrt_adapt.h"
#include "specrt_block.h"
#include "opened.h"

#include <stdbool.h>

enum { V = 500, D = 8, CONTEXT = 700 };

static double seconds_now;
static double now(void) {
    return seconds_now;
}

/* Caches as counts of tokens. */
typedef struct host {
    int32_t n_target,
        n_draft;   /* tokens that each has read and kept; the drafter's, with the root */
    int32_t level; /* of the draft that is open; -1: none */
    int32_t n_verified, longest, deepest, widest, n_resets, fails_at, n_calls;
    float logits[256 * V], hidden[SPECRT_TREE_MAX_TOPK * D];
} host;

static int called(host *h, double seconds) {
    seconds_now += seconds;
    return ++h->n_calls == h->fails_at ? 3 : 0;
}

static int prefill(void *user, const int32_t *tokens, int32_t n, int all, const float **logits) {
    host *h = (host *)user;
    CHECK(n > 0 && n <= 50 && h->level < 0);
    for (int32_t i = 0; i < n; i++) CHECK(tokens[i] >= 0 && tokens[i] < V);
    h->n_target += n;
    *logits = h->logits;
    return called(h, n * (all ? 0.5 : 0.25));
}

/* A second for each token that the first pass reads, a tenth for each row of the next. */
static int draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                 const float **input) {
    host *h = (host *)user;
    CHECK_INT(level, h->level + 1);
    h->level = level;
    if (level > h->deepest) h->deepest = level;
    if (beam->n > h->widest) h->widest = beam->n;
    for (int32_t i = 0; i < beam->n; i++) CHECK(beam->parents[i] == 0 && beam->tokens[i] < V);
    double seconds = level ? 0.1 * beam->n : h->n_target + 1 - h->n_draft;
    if (level == 0) {
        CHECK(beam->n == 1 && h->n_draft <= h->n_target);
        h->n_draft = h->n_target + 1;
    }
    *hidden = h->hidden;
    *input = NULL;
    return called(h, seconds);
}

/* Ten seconds, a tenth for each token that it reads first, and one for each position. */
static int blocks(void *user, int32_t root, int32_t n, specrt_block *block) {
    host *h = (host *)user;
    CHECK(h->level < 0 && root >= 0 && root < V && n >= 1 && n <= 7);
    h->level = n - 1;
    if (n > h->widest) h->widest = n;
    double seconds = 10 + 0.1 * (h->n_target - h->n_draft) + n;
    h->n_draft = h->n_target;
    block->n = n;
    block->hidden = h->hidden;
    return called(h, seconds);
}

static int verify(void *user, const specrt_draft *draft, const float **logits) {
    host *h = (host *)user;
    h->n_verified = draft->n;
    if (draft->n > h->longest) h->longest = draft->n;
    for (int32_t i = 0; i < draft->n; i++) {
        CHECK(draft->parents[i] == i - 1 && draft->depths[i] == i);
        CHECK(draft->masks[i] == ((uint64_t)2 << i) - 1);
    }
    CHECK(h->n_target + draft->n <= CONTEXT);
    *logits = h->logits;
    /* A plain pass finds caches as a draft left them. */
    return called(h, draft->n == 1 && h->level >= 0 ? 50 : 10 * draft->n);
}

static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    host *h = (host *)user;
    CHECK(h->n_verified == draft->n && verdict->n <= draft->n && verdict->n > 0);
    for (int32_t i = 0; i < verdict->n; i++) CHECK_INT(verdict->nodes[i], i);
    h->n_target += verdict->n;
    h->n_verified = 0;
    h->level = -1;
    return called(h, 100);
}

static void reset(void *user) {
    host *h = (host *)user;
    h->n_target = h->n_draft = 0;
    h->level = -1;
    h->n_resets++;
}

static host the_host;
static float weights[V * D];

static specrt_meter_desc desc_of(specrt_head **head, int64_t n_context) {
    uint64_t state = 3;
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    const specrt_head_desc rows = f32_rows(weights, V, D);
    *head = bind_head(NULL, &rows);
    the_host = (host){.level = -1};
    return (specrt_meter_desc){.host = {.user = &the_host,
                                        .n_context = n_context,
                                        .max_batch = 50,
                                        .target_prefill = prefill,
                                        .draft_step = draft,
                                        .target_verify = verify,
                                        .commit = commit},
                               .reset = reset,
                               .reset_user = &the_host,
                               .n_logits = V,
                               .tree = {.num_steps = 6, .topk = 10, .num_draft_tokens = 40},
                               .head = *head,
                               .rows = rows,
                               .now = now};
}

static double time_of(const specrt_meter *m, specrt_pass pass, int32_t n, int32_t i) {
    double seconds[SPECRT_PASS_TIMES] = {0};
    CHECK_INT(m->pass(m->user, pass, n, seconds), 0);
    return seconds[i];
}

TEST(passes, "in any order, each pass does its own work alone") {
    specrt_head *head;
    const specrt_meter_desc desc = desc_of(&head, CONTEXT);
    specrt_meter m;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK(m.most[0] == 40 && m.most[1] == 10 && m.most[2] == V && m.most[3] == 256);
    for (int round = 0; round < 60; round++) {
        CHECK_NEAR(time_of(&m, SPECRT_PASS_TARGET, 7, 0), 170, 1e-6);
        for (int32_t n = 1; n <= 10; n += 3) {
            CHECK_NEAR(time_of(&m, SPECRT_PASS_DRAFT, n, 0), n, 1e-6);
            if (n == 4) CHECK_NEAR(time_of(&m, SPECRT_PASS_TARGET, 1, 0), 110, 1e-6);
        }
        CHECK_NEAR(time_of(&m, SPECRT_PASS_HEAD, 300, round % 4), 0, 0); /* the clock stands */
        CHECK(the_host.n_target >= 64 && the_host.n_target < 64 + 256 + 40);
        if (round % 20) continue;
        CHECK_NEAR(time_of(&m, SPECRT_PASS_PROMPT, 100, 0), 25, 1e-6);
        CHECK_NEAR(time_of(&m, SPECRT_PASS_PROMPT, 100, 1), 101, 1e-6);
        CHECK_NEAR(time_of(&m, SPECRT_PASS_PROMPT, 100, 2), 50, 1e-6);
    }
    CHECK(the_host.deepest == 3 && the_host.widest == 10);
    int32_t n_resets = the_host.n_resets;
    specrt_meter_close(&m);
    CHECK(the_host.n_target == 0 && the_host.n_resets == n_resets + 1 && !m.user && !m.pass);
    specrt_head_close(head);
}

TEST(measured, "costs of a host, by its own clock") {
    static specrt_costs c;
    specrt_head *head;
    specrt_meter_desc desc = desc_of(&head, CONTEXT);
    specrt_meter m;
    desc.n_before = 200;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_costs_measure(&m, 20, 1, &c, NULL), SPECRT_STATUS_OK);
    CHECK(!c.disturbed && c.error < 1e-9 && c.worst < 1e-9);
    for (int32_t n = 1; n <= 40; n++) CHECK_NEAR(specrt_curve_at(&c.target, n), 100 + 10 * n, 1e-6);
    for (int32_t n = 1; n <= 10; n++) CHECK_NEAR(specrt_curve_at(&c.draft, n), n, 1e-6);
    CHECK_NEAR(specrt_curve_at(&c.prompt, 200), 50, 1e-6);
    CHECK_NEAR(specrt_curve_at(&c.prompt_all, 200), 100, 1e-6);
    CHECK_NEAR(specrt_curve_at(&c.draft_prompt, 200), 201, 1e-6);
    CHECK(the_host.longest == 40);
    specrt_meter_close(&m);
    specrt_head_close(head);
}

/* A drafter of blocks: one pass by positions, and what reading before it takes; products of its positions. */
TEST(blocks, "a drafter of blocks") {
    static specrt_costs c;
    specrt_head *head;
    specrt_meter_desc desc = desc_of(&head, CONTEXT);
    specrt_meter m;
    desc.host.draft_step = NULL;
    desc.host.draft_block = blocks;
    desc.n_block = 7;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(m.most[1], -7);
    for (int round = 0; round < 40; round++) {
        for (int32_t n = 1; n <= 14; n++)
            CHECK_NEAR(time_of(&m, SPECRT_PASS_DRAFT, n, 0),
                       n <= 7 ? 10.1 + n : 17.1 + 0.1 * (n - 7), 1e-6);
        CHECK_NEAR(time_of(&m, SPECRT_PASS_TARGET, 20, 0), 300, 1e-6);
        CHECK_NEAR(time_of(&m, SPECRT_PASS_TARGET, 1, 0), 110, 1e-6);
        CHECK_NEAR(time_of(&m, SPECRT_PASS_HEAD, 300, round % 4), 0, 0);
        if (round % 20 == 0) CHECK_NEAR(time_of(&m, SPECRT_PASS_PROMPT, 100, 1), 21, 1e-6);
    }
    CHECK_INT(the_host.widest, 7); /* no longer than a block */
    CHECK_INT(specrt_costs_measure(&m, 20, 1, &c, NULL), SPECRT_STATUS_OK);
    CHECK(c.n_block == 7 && !c.disturbed && c.draft.sizes[c.draft.n - 1] == 14);
    for (int32_t n = 1; n <= 7; n++) CHECK_NEAR(specrt_curve_at(&c.draft, n), 10.1 + n, 1e-6);
    CHECK_NEAR(specrt_curve_at(&c.draft, 14), 17.8, 1e-6);
    specrt_meter_close(&m);
    desc.n_block = 0; /* as long as the tree is deep */
    desc.now = NULL;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(m.most[1], -6);
    for (int32_t w = 0; w < 4; w++) CHECK(time_of(&m, SPECRT_PASS_HEAD, V, w) > 0);
    CHECK_INT(specrt_costs_measure(&m, 0.1, 0, &c, NULL), SPECRT_STATUS_OK);
    CHECK(c.n_block == 6 && c.draft.n == 3 && c.draft.sizes[1] == 6 && c.draft.sizes[2] == 13);
    specrt_meter_close(&m);
    specrt_head_close(head);
}

TEST(small, "a chain's drafter, a short context, no head: smaller passes, or none") {
    static specrt_costs c;
    specrt_head *head;
    specrt_meter_desc desc = desc_of(&head, 40);
    specrt_meter m;
    desc.tree = (specrt_tree_params){.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    desc.now = NULL;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK(m.most[0] == 4 && m.most[1] == 10 && m.most[3] == 20);
    CHECK(time_of(&m, SPECRT_PASS_HEAD, V, 0) > 0);
    CHECK(time_of(&m, SPECRT_PASS_HEAD, V, 1) > 0);
    CHECK(time_of(&m, SPECRT_PASS_HEAD, V, 2) == 0);
    specrt_meter_close(&m);
    desc.head = NULL;
    REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(m.most[2], 0);
    CHECK_INT(specrt_costs_measure(&m, 0.1, 1, &c, NULL), SPECRT_STATUS_OK);
    CHECK(the_host.longest == 4 && c.target.n == 4 && c.head_first.n == 0 && c.prompt.n == 1);
    specrt_meter_close(&m);
    specrt_head_close(head);
}

TEST(fails, "whichever call fails, its code comes back") {
    specrt_head *head;
    specrt_error err;
    specrt_meter m;
    static specrt_costs c;
    for (int32_t at = 1; at < 40; at++) {
        specrt_meter_desc desc = desc_of(&head, CONTEXT);
        the_host.fails_at = at;
        REQUIRE(specrt_meter_open(&desc, &m, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(specrt_costs_measure(&m, 0.1, 1, &c, &err), SPECRT_STATUS_HOST);
        CHECK_HAS(err.msg, "found that one failed with 3");
        CHECK_INT(the_host.n_calls, at);
        specrt_meter_close(&m);
        specrt_head_close(head);
    }
}

TEST(refused, "what no pass can be made of") {
    specrt_head *head;
    specrt_error err;
    specrt_meter m;
    specrt_meter_desc desc = desc_of(&head, 0);
    desc.n_logits = 0;
    CHECK_INT(specrt_meter_open(&desc, &m, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "meter: expected n_logits and tree.num_draft_tokens of 1 or more, n_before "
                       "of 0 or more, found 0, 40, 0");
    desc.n_logits = V;
    desc.n_block = 33;
    CHECK_INT(specrt_meter_open(&desc, &m, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "meter: n_block: expected 0 to 32 positions, found 33");
    desc.reset = NULL;
    CHECK_INT(specrt_meter_open(&desc, &m, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "meter: reset: expected a function, found NULL");
    desc.host.commit = NULL;
    CHECK_INT(specrt_meter_open(&desc, &m, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "meter: host.commit: ");
    CHECK(m.user == NULL);
    specrt_meter_close(&m);
    specrt_head_close(head);
}
