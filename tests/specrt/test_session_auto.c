/* test_session_auto.c : sessions that draft by auto_draft: they draft from the rows that it chose, and tell
 * it what an application would. */
#include "specrt.h"
#include "adapt/auto.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

static uint64_t state = 7;

enum { V = 200, D = 8, FIXED = 120 };

/* A policy over a head by chance and the ranks of its rows. */
typedef struct scene {
    uint8_t *bytes;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
} scene;

static void open_scene(scene *c, const char *text) {
    static float weights[V * D];
    const specrt_policy_desc desc = {.text = text};
    size_t n;
    c->bytes = fixture_ranks_bundle(V, 2, FIXED, &n);
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    c->bundle = open_memory(c->bytes, n);
    c->head = bind_rows(NULL, weights, V, D);
    c->policy = create_policy(c->bundle, c->head, &desc);
}

static void close_scene(scene *c) {
    specrt_policy_close(c->policy);
    specrt_head_close(c->head);
    specrt_bundle_close(c->bundle);
    free(c->bytes);
}

TEST(lists, "a session drafts from the rows chosen") {
    scene c;
    specrt_error err;
    specrt_auto *auto_draft;
    double costs[2 * 4] = {1, 1.1, 1.2, 1.3, 1, 1.2, 1.4, 1.6};
    const int32_t rows[2] = {20, FIXED}, none[1] = {FIXED + 1};
    specrt_auto_desc desc = {.num_steps = 3, .n_lists = 2, .rows = rows, .costs = costs};
    open_scene(&c, "static:120+window:16@min=0");
    REQUIRE(specrt_auto_create(&desc, NULL, &auto_draft, NULL) == 0);
    specrt_session_params params = {.n_logits = V, .tree = {3, 1, 4}, .auto_draft = auto_draft};
    specrt_session *s = create_session(c.policy, &params, NULL);
    root(s, 5);
    float logits[4 * V];
    bool seen[2] = {false, false};
    for (int32_t i = 0; i < 4 * V; i++) logits[i] = fixture_normal(&state);
    for (int i = 0; i < 400; i++) {
        specrt_auto_choice choice;
        specrt_auto_choose(auto_draft, &choice);
        const specrt_shortlist *shortlist = specrt_session_shortlist(s);
        CHECK_INT(shortlist->segments[0].n_rows, rows[choice.list]);
        specrt_beam beam;
        specrt_session_get_beam(s, &beam);
        CHECK_INT(beam.n, choice.num_steps > 0);
        seen[choice.list] = true;
        for (int32_t k = 0; k < FIXED; k++)
            CHECK_INT(specrt_session_member(s, shortlist->segments[0].ids[k], 0) !=
                          SPECRT_MEMBER_NO,
                      k < rows[choice.list]);
        /* First what the short list has, then what it lacks. */
        int32_t at = i < 200 ? i % 10 : 30 + i % 60;
        int32_t tokens[4] = {s->tree->root, shortlist->segments[0].ids[at],
                             shortlist->segments[0].ids[at], 7};
        int32_t n = choice.num_steps + 1;
        const specrt_target_rows told = {.logits = logits};
        bool tells = i % 100 == 99; /* rarely: these logits say that nothing will be accepted */
        REQUIRE(specrt_session_observe_chain(s, tokens, n, choice.list == 1 || i < 200 ? n - 1 : 0,
                                             tokens[1], tells ? &told : NULL) == SPECRT_STATUS_OK);
        int64_t n_told = 0;
        for (int k = 0; k < SPECRT__AUTO_BINS; k++) n_told += auto_draft->sure[k].seen;
        CHECK_INT(n_told > 0 || auto_draft->told, i >= 99);
    }
    CHECK(seen[0] && seen[1]);
    specrt_session_close(s);
    params.tree.num_steps = 2;
    CHECK(specrt_session_create(c.policy, &params, NULL, &s, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "num_steps");
    specrt_auto_close(auto_draft);
    desc.n_lists = 1;
    desc.rows = none;
    REQUIRE(specrt_auto_create(&desc, NULL, &params.auto_draft, NULL) == 0);
    params.tree.num_steps = 3;
    CHECK(specrt_session_create(c.policy, &params, NULL, &s, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "rows of static");
    specrt_auto_close(params.auto_draft);
    close_scene(&c);
}

TEST(session_batch, "sessions of a batch with lists of other lengths") {
    static float hidden[2 * D];
    scene c;
    specrt_session *s[4];
    specrt_auto *autos[4];
    specrt_beam beams[2], beam;
    specrt_draft drafts[2];
    const double costs[2][2 * 4] = {{1, 1.1, 1.2, 1.3, 1, 2.1, 3.2, 4.3},
                                    {1, 2.1, 3.2, 4.3, 1, 1.1, 1.2, 1.3}};
    const int32_t rows[2] = {20, FIXED};
    open_scene(&c, "static:120");
    for (int i = 0; i < 2 * D; i++) hidden[i] = fixture_normal(&state);
    for (int i = 0; i < 4; i++) { /* every other one takes the long list, which costs less there */
        const specrt_auto_desc desc = {
            .num_steps = 3, .n_lists = 2, .rows = rows, .costs = costs[i % 2]};
        REQUIRE(specrt_auto_create(&desc, NULL, &autos[i], NULL) == 0);
        const specrt_session_params params = {
            .n_logits = V, .tree = {3, 1, 4}, .auto_draft = autos[i]};
        s[i] = create_session(c.policy, &params, NULL);
        root(s[i], 5 + i % 2);
        specrt_session_get_beam(s[i], &beam);
        REQUIRE(beam.n == 1);
        CHECK_INT(specrt_session_shortlist(s[i])->n_rows, rows[i % 2]);
    }
    REQUIRE(specrt_session_expand_batch(s, 2, hidden, NULL, 2, beams) == 0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(specrt_session_expand(s[2 + i], hidden + i * D, NULL, 1, &beam) == 0);
        CHECK_INT(beams[i].n, beam.n);
        specrt_session_finish(s[i], &drafts[0]);
        specrt_session_finish(s[2 + i], &drafts[1]);
        REQUIRE(drafts[0].n == 2 && drafts[1].n == 2);
        CHECK_INT(drafts[0].tokens[1], drafts[1].tokens[1]);
        CHECK(drafts[0].logprobs[1] == drafts[1].logprobs[1]);
    }
    for (int i = 0; i < 4; i++) specrt_session_close(s[i]), specrt_auto_close(autos[i]);
    close_scene(&c);
}

/* log p of a token under logits [V]. */
static float logprob_of(const float *logits, int32_t token) {
    double sum = 0;
    for (int32_t i = 0; i < V; i++) sum += exp((double)logits[i]);
    return (float)((double)logits[token] - log(sum));
}

/* A chain from hidden states by chance; the target likes what is drafted as much as it likes chance. */
static void draft_chain(specrt_session *s, specrt_draft *draft, float *logits) {
    specrt_beam beam;
    float hidden[D];
    specrt_session_get_beam(s, &beam);
    while (beam.n > 0) {
        for (int i = 0; i < D; i++) hidden[i] = 2 * fixture_normal(&state);
        REQUIRE(specrt_session_expand(s, hidden, NULL, 1, &beam) == 0);
    }
    specrt_session_finish(s, draft);
    for (int32_t i = 0; i < 4 * V; i++) logits[i] = 8 * fixture_normal(&state);
    for (int32_t i = 0; i + 1 < draft->n; i++)
        logits[i * V + draft->tokens[i + 1]] += 24 + 12 * fixture_normal(&state);
}

/* The first of two lists of the leading rows of a policy that holds a token; 2: none does. */
static int32_t first_list(const specrt_policy *policy, const int32_t rows[2], int32_t token) {
    const int32_t *ids = policy->fixed.ids;
    for (int32_t i = 0; i < policy->fixed.n_rows; i++)
        if (ids[i] == token) return i < rows[0] ? 0 : i < rows[1] ? 1 : 2;
    return 2;
}

/* What a session tells auto_draft: levels, what was accepted, how sure the drafter was of its chain, and the
 * target of every token that it emitted. auto_draft that is told the same by hand chooses the same. */
static void check_session_tells(int32_t n_lists, const char *text) {
    static float logits[4 * V];
    scene c;
    specrt_auto *auto_draft, *twin;
    const double costs[2 * 4] = {1, 1.05, 1.1, 1.15, 1, 1.06, 1.12, 1.18};
    const int32_t rows[2] = {20, FIXED};
    const specrt_auto_desc desc = {
        .num_steps = 3, .n_lists = n_lists, .rows = n_lists > 1 ? rows : NULL, .costs = costs};
    int n_by_length[5] = {0};
    open_scene(&c, text);
    REQUIRE(specrt_auto_create(&desc, NULL, &auto_draft, NULL) == 0);
    REQUIRE(specrt_auto_create(&desc, NULL, &twin, NULL) == 0);
    const specrt_session_params params = {
        .n_logits = V, .tree = {3, 1, 4}, .auto_draft = auto_draft};
    specrt_session *s = create_session(c.policy, &params, NULL);
    root(s, 5);
    for (int i = 0; i < 300; i++) {
        specrt_draft draft;
        specrt_verdict verdict;
        specrt_auto_stats stats[2];
        specrt_auto_choice choices[2];
        float certain[4];
        int32_t lists[4];
        draft_chain(s, &draft, logits);
        REQUIRE(specrt_session_verify(s, &draft, logits, &verdict) == 0);
        n_by_length[verdict.n]++;
        for (int32_t k = 0; k < verdict.n; k++) {
            certain[k] = logprob_of(logits + verdict.nodes[k] * V, verdict.tokens[k]);
            lists[k] = first_list(c.policy, rows, verdict.tokens[k]);
        }
        const specrt_auto_cycle cycle = {.n_passes = draft.n - 1,
                                         .n_accepted = verdict.n - 1,
                                         .logprobs = draft.logprobs + 1,
                                         .lists = n_lists > 1 ? lists : NULL,
                                         .target_logprobs = i % 3 ? certain : NULL};
        REQUIRE(specrt_auto_observe(twin, &cycle) == 0);
        const specrt_target_rows told = {.logits = i % 3 ? logits : NULL};
        REQUIRE(specrt_session_observe(s, &draft, &verdict, &told) == 0);
        specrt_auto_get_stats(auto_draft, &stats[0]);
        specrt_auto_get_stats(twin, &stats[1]);
        CHECK(memcmp(&stats[0], &stats[1], sizeof stats[0]) == 0);
        CHECK(memcmp(auto_draft->sure, twin->sure, sizeof twin->sure) == 0);
        CHECK(memcmp(auto_draft->covers, twin->covers, sizeof twin->covers) == 0);
        CHECK(memcmp(auto_draft->bins, twin->bins, sizeof twin->bins) == 0);
        specrt_auto_choose(auto_draft, &choices[0]);
        specrt_auto_choose(twin, &choices[1]);
        CHECK_INT(choices[0].num_steps, choices[1].num_steps);
    }
    for (int n = 1; n <= 4; n++) CHECK(n_by_length[n] > 0);
    specrt_session_close(s);
    specrt_auto_close(auto_draft);
    specrt_auto_close(twin);
    close_scene(&c);
}

TEST(session_tells, "a session tells auto_draft what a host would") {
    state = 2; /* few seeds give every length in so few cycles */
    check_session_tells(1, "full");
    check_session_tells(2, "static:120");
}

/* Of a chain that is not the session's own, auto_draft learns its length and no probabilities. */
TEST(told_chain, "what a session learns of a chain that it did not draft") {
    scene c;
    specrt_auto_stats before, after;
    specrt_auto *auto_draft;
    specrt_beam beam;
    float hidden[D] = {1};
    const double costs[] = {1, 1.01, 1.02, 1.03, 1, 1.02, 1.04, 1.06};
    const int32_t rows[] = {1, 100} /* as few as topk */, tokens[] = {5, 7};
    const specrt_auto_desc desc = {.num_steps = 3, .n_lists = 2, .rows = rows, .costs = costs};
    open_scene(&c, "static:120");
    REQUIRE(specrt_auto_create(&desc, NULL, &auto_draft, NULL) == 0);
    const specrt_session_params params = {
        .tree = {3, 1, 4}, .auto_draft = auto_draft, .n_logits = V + 8};
    specrt_session *s = create_session(c.policy, &params, NULL);
    root(s, 5);
    for (specrt_session_get_beam(s, &beam); beam.n > 0;)
        REQUIRE(specrt_session_expand(s, hidden, NULL, 1, &beam) == 0);
    REQUIRE(s->tree->level > 1);
    const specrt__auto_tally none[SPECRT__AUTO_BINS] = {{0, 0}};
    specrt_auto_get_stats(auto_draft, &before);
    CHECK_INT(specrt_session_observe_chain(s, tokens, 2, 1, V, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_observe_chain(s, tokens, 2, 1, V - 1, NULL), 0); /* V is padding */
    specrt_auto_get_stats(auto_draft, &after);
    CHECK_INT(after.n_passes, before.n_passes + 1);
    CHECK(memcmp(auto_draft->bins, none, sizeof none) == 0);
    specrt_session_close(s);
    specrt_auto_close(auto_draft);
    close_scene(&c);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

TEST(certainty, "the softmax over the 16 best; what is no number tells nothing") {
    float logits[V], sorted[V];
    for (int round = 0; round < 200; round++) {
        double sum = 0;
        int32_t token = fixture_below(&state, V);
        for (int32_t i = 0; i < V; i++) logits[i] = 4 * fixture_normal(&state);
        memcpy(sorted, logits, sizeof logits);
        qsort(sorted, V, sizeof *sorted, by_size);
        for (int i = 0; i < 16; i++) sum += exp((double)sorted[i]);
        CHECK_NEAR(specrt__session_certainty(logits, V, token), (double)logits[token] - log(sum),
                   1e-4);
    }
    logits[3] = -INFINITY;
    CHECK(specrt__session_certainty(logits, V, 3) == -INFINITY);
    logits[3] = NAN;
    CHECK(isnan(specrt__session_certainty(logits, V, 3)));
    for (int32_t i = 0; i < V; i++) logits[i] = NAN;
    CHECK(isnan(specrt__session_certainty(logits, V, 3)));
}
