/* test_block_session.c : what sessions that draft blocks emit is the target's, however they are driven; what
 * they need and refuse. */
#include "specrt/block.h"
#include "specrt/distribution.h"

/* --- what is emitted --- */

enum { TINY = TOY_V, BLOCK = 3, LENGTH = 60 };
static float identity[TINY * TINY], tiny_w1[TINY * 2], tiny_w2[TINY * 2];
static const specrt_markov_desc tiny_markov = {
    {.rows = tiny_w1, .dtype = SPECRT_DTYPE_F32, .n_rows = TINY, .n_cols = 2},
    {.rows = tiny_w2, .dtype = SPECRT_DTYPE_F32, .n_rows = TINY, .n_cols = 2}};

static void tiny_open(world *w, const char *policy, const specrt_session_params *params) {
    static const int32_t order[] = {3, 1, 0, 2, 6, 5, 4, 7};
    uint64_t own = 9;
    *w = (world){0};
    for (int i = 0; i < TINY; i++) identity[i * TINY + i] = 1;
    for (int i = 0; i < TINY * 2; i++) tiny_w1[i] = fixture_normal(&own);
    for (int i = 0; i < TINY * 2; i++) tiny_w2[i] = fixture_normal(&own);
    w->desc = (specrt_head_desc){.rows = identity,
                                 .dtype = SPECRT_DTYPE_F32,
                                 .n_rows = TINY,
                                 .n_cols = TINY,
                                 .markov = &tiny_markov};
    w->head = bind_head(NULL, &w->desc);
    specrt_policy_desc desc = {.text = policy};
    if (strcmp(policy, "full") != 0) desc.ids = order, desc.n_ids = TINY;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_policy_create(NULL, w->head, &desc, &w->policy, &err);
    CHECK_STR(err.msg, "");
    REQUIRE(w->policy && !specrt_session_create(w->policy, params, NULL, &w->s, NULL));
}

/* The states of a block behind two tokens: each guesses well what a drafter would. */
static void tiny_states(int32_t before, int32_t last, float *hidden) {
    toy_logits(0, before, last, hidden);
    for (int i = 1; i < BLOCK; i++)
        toy_logits(i, (before + i) % TINY, (last + 2 * i) % TINY, hidden + i * TINY);
}

/* A selector of the small vocabulary. */
static int tiny_judge(void *user, int32_t position, int32_t previous, const int32_t *candidates,
                      int32_t k, float *logits) {
    (void)user;
    for (int32_t i = 0; i < k; i++) logits[i] += (float)((candidates[i] + previous + position) % 3);
    return 0;
}

typedef struct tiny_way {
    const char *policy;
    specrt_tree_params tree;
    int by_position, selects, cuts;
} tiny_way;

static const tiny_way tiny_ways[] = {
    {"full", {BLOCK, 1, BLOCK + 1}, 0, 0, 0},
    {"static:5", {BLOCK, 1, BLOCK + 1}, 0, 0, 1},
    {"static:4/5/6+window:6@min=3", {BLOCK, 1, BLOCK + 1}, 1, 0, 0},
    {"static:2+window:6@min=2", {BLOCK, 1, BLOCK + 1}, 0, 1, 1},
    {"full", {BLOCK, 3, 9}, 0, 0, 0},
    {"static:5", {BLOCK, 3, 9}, 1, 1, 1},
};

/* One sequence of n tokens behind 1 and 2. fault: the distributions are told wrong. */
static void tiny_decode(world *w, const tiny_way *way, int32_t *stream, int n, bool fault) {
    static const float confidence[TINY + 2] = {0.3f, -0.2f, 0.4f, 0, 0.1f, 0, -0.3f, 0, 0.5f, 0.2f};
    float hidden[BLOCK * TINY], logits[SPECRT_TREE_MAX_NODES * TINY];
    specrt_verdict verdict;
    stream[0] = 1, stream[1] = 2;
    REQUIRE(!specrt_session_begin(w->s, NULL));
    REQUIRE(!specrt_session_prefill(w->s, stream, 2, NULL));
    toy_logits(0, 1, 2, logits);
    REQUIRE(!specrt_session_first(w->s, logits, &verdict));
    stream[2] = verdict.tokens[0];
    for (int at = 3; at < n; at += verdict.n) {
        specrt_block block = {.n = BLOCK, .hidden = hidden, .by_position = way->by_position};
        specrt_target_rows rows = {.logits = logits};
        specrt_draft draft;
        if (way->selects) block.select = tiny_judge, block.k = 4;
        if (way->cuts) block.confidence = confidence, block.p_min = 0.45f;
        tiny_states(stream[at - 2], stream[at - 1], hidden);
        check_draft_block(w->s, &block, &draft);
        for (int i = 0; fault && i + 1 < draft.n; i++) {
            float *q = w->s->distribution_probs + i * w->s->bound; /* as if nothing was added */
            for (int32_t j = 0; j < w->s->distributions[i].n; j++)
                q[j] = 1.0f / (float)w->s->distributions[i].n;
        }
        for (int i = 0; i < draft.n; i++)
            toy_logits(0, i == 0 ? stream[at - 2] : draft.tokens[draft.parents[i]], draft.tokens[i],
                       logits + i * TINY);
        REQUIRE(!specrt_session_accept(w->s, &draft, &rows, &verdict));
        memcpy(stream + at, verdict.tokens, (size_t)verdict.n * sizeof *stream);
    }
}

TEST(plain, "greedy or not, what the best tokens draft changes no token") {
    const specrt_sampling samplings[] = {{0}, {.temperature = 1, .seed = 4, .session = 1}};
    int n_accepted = 0;
    for (size_t i = 0; i < sizeof tiny_ways / sizeof *tiny_ways; i++)
        for (int k = 0; k < 2; k++) {
            const specrt_session_params params = {.tree = tiny_ways[i].tree,
                                                  .sampling = samplings[k],
                                                  .n_logits = TINY,
                                                  .n_block = BLOCK};
            int32_t stream[LENGTH + SPECRT_TREE_MAX_NODES];
            specrt_session_stats stats;
            world w;
            tiny_open(&w, tiny_ways[i].policy, &params);
            tiny_decode(&w, &tiny_ways[i], stream, LENGTH, false);
            specrt_verifier *v = create_verifier(TINY, TINY, &samplings[k]);
            for (int at = 2; at < LENGTH; at++) {
                float logits[TINY];
                toy_logits(0, stream[at - 2], stream[at - 1], logits);
                CHECK_INT(stream[at], specrt_verifier_draw(v, logits, at));
            }
            specrt_session_get_stats(w.s, &stats);
            n_accepted += (int)(stats.n_emitted - stats.n_cycles);
            specrt_verifier_close(v);
            world_close(&w);
        }
    CHECK(n_accepted > 100);
}

/* Three tokens across cycles, of sampled drafts, against the target's exact probabilities. */
static distribution_fit sampled_fit(const tiny_way *way, bool fault) {
    static int seen[TOY_CELLS];
    static double p[TOY_CELLS];
    const int n = test_brief() ? 4000 : 30000;
    const specrt_session_params params = {.tree = way->tree,
                                          .sampling = {.temperature = 1, .seed = 8, .session = 1},
                                          .draft = SPECRT_DRAFT_SAMPLED,
                                          .n_logits = TINY,
                                          .n_block = BLOCK};
    world w;
    memset(seen, 0, sizeof seen);
    tiny_open(&w, way->policy, &params);
    for (int i = 0; i < n; i++) {
        int32_t stream[5 + SPECRT_TREE_MAX_NODES];
        tiny_decode(&w, way, stream, 5, fault);
        seen[(stream[2] * TINY + stream[3]) * TINY + stream[4]]++;
    }
    world_close(&w);
    toy_joint(1, 2, &params.sampling, p);
    return distribution_fit_of(seen, p, TOY_CELLS, n);
}

TEST(distribution, "sampled tokens are the target's") {
    for (int i = 0; i < 4; i++) {
        distribution_fit fit = sampled_fit(&tiny_ways[i], false);
        if (!distribution_holds(fit)) fprintf(stderr, "%d: %.1f %.1f\n", i, fit.chi, fit.tv);
        CHECK(distribution_holds(fit));
    }
    CHECK(test_brief() || distribution_broken(sampled_fit(&tiny_ways[0], true)));
}

/* --- the whole loop --- */

typedef struct tiny_host {
    int32_t stream[LENGTH + 2], n, n_blocks;
    float hidden[BLOCK * TINY], logits[SPECRT_TREE_MAX_NODES * TINY];
    int fails;
    const specrt_session *s; /* that chooses how many positions are asked for; NULL: any */
    int32_t asked, n_cut;    /* in this cycle; drafts that are shorter than their block */
    double cost;             /* of all cycles, by auto's table */
} tiny_host;

static const double auto_costs[] = {1, 1.1, 1.5, 1.9}, auto_sunk[] = {0, 0.1, 0.2, 0.3};

static int host_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                        const float **logits) {
    tiny_host *h = (tiny_host *)user;
    for (int32_t i = 0; i < n; i++) {
        h->stream[h->n++] = tokens[i];
        toy_logits(0, h->n > 1 ? h->stream[h->n - 2] : 0, tokens[i],
                   h->logits + (all ? i : 0) * TINY);
    }
    *logits = h->logits;
    return 0;
}

static int host_block(void *user, int32_t from, int32_t n, specrt_block *block) {
    tiny_host *h = (tiny_host *)user;
    CHECK(n >= 1 && n <= BLOCK);
    if (h->s) CHECK_INT(n, h->s->choice.num_steps);
    h->asked = n;
    tiny_states(h->stream[h->n - 1], from, h->hidden);
    block->n = BLOCK;
    block->hidden = h->hidden;
    return ++h->n_blocks == h->fails ? 1 : 0;
}

static int host_verify(void *user, const specrt_draft *draft, const float **logits) {
    tiny_host *h = (tiny_host *)user;
    h->n_cut += draft->n - 1 < h->asked;
    h->cost += auto_costs[draft->n - 1] + auto_sunk[h->asked] - auto_sunk[draft->n - 1];
    h->asked = 0;
    for (int i = 0; i < draft->n; i++)
        toy_logits(0, i == 0 ? h->stream[h->n - 1] : draft->tokens[draft->parents[i]],
                   draft->tokens[i], h->logits + i * TINY);
    *logits = h->logits;
    return 0;
}

static int host_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    tiny_host *h = (tiny_host *)user;
    for (int32_t i = 0; i < verdict->n; i++) h->stream[h->n++] = draft->tokens[verdict->nodes[i]];
    return 0;
}

/* The target's own tokens. */
static void check_stream(const tiny_host *h) {
    for (int at = 2; at < h->n; at++) {
        float logits[TINY];
        int32_t best;
        toy_logits(0, h->stream[at - 2], h->stream[at - 1], logits);
        specrt_logits_topk(logits, TINY, 1, &best);
        CHECK_INT(h->stream[at], best);
    }
}

TEST(host, "a host's blocks are drafted") {
    const int32_t prompt[] = {1, 2};
    const specrt_request request = {.max_tokens = LENGTH - 4};
    const specrt_session_params params = {
        .tree = {BLOCK, 1, BLOCK + 1}, .n_logits = TINY, .n_block = BLOCK};
    for (int fails = 0; fails < 2; fails++) {
        tiny_host h = {.fails = fails ? 3 : 0};
        specrt_host host = {.user = &h,
                            .n_context = fails ? 0 : 40,
                            .target_prefill = host_prefill,
                            .target_verify = host_verify,
                            .commit = host_commit,
                            .draft_block = host_block};
        specrt_generation generation = {0};
        world w;
        tiny_open(&w, "full", &params);
        specrt_status status = specrt_generate(w.s, &host, &request, prompt, 2, &generation);
        CHECK_INT(status, fails ? SPECRT_STATUS_HOST : SPECRT_STATUS_OK);
        CHECK(h.n_blocks > 2);
        check_stream(&h);
        if (fails)
            CHECK_STR(specrt_session_last_error(w.s)->msg, "host: draft_block: returned 1");
        else
            CHECK_INT(generation.end, SPECRT_END_CONTEXT);
        host.draft_block = NULL;
        CHECK_INT(specrt_generate(w.s, &host, &request, prompt, 2, &generation),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(specrt_session_last_error(w.s)->msg, "host: draft_step");
        world_close(&w);
    }
}

/* With `auto`, a host is asked for the positions that were chosen, and a draft ends inside its block where
 * more tokens are not worth their nodes. Tokens stay the target's. */
TEST(asks, "hosts are asked for what auto chose") {
    const specrt_auto_desc desc = {.num_steps = BLOCK, .n_lists = 1, .costs = auto_costs};
    const int32_t prompt[] = {1, 2};
    const specrt_request request = {.max_tokens = LENGTH - 4};
    specrt_session_params params = {
        .tree = {BLOCK, 1, BLOCK + 1}, .n_logits = TINY, .n_block = BLOCK};
    specrt_auto_stats stats;
    specrt_generation generation = {0};
    world w;
    REQUIRE(!specrt_auto_create(&desc, NULL, &params.auto_draft, NULL));
    REQUIRE(!specrt_auto_set_sunk(params.auto_draft, auto_sunk, NULL));
    tiny_open(&w, "full", &params);
    tiny_host h = {.s = w.s};
    const specrt_host host = {.user = &h,
                              .target_prefill = host_prefill,
                              .target_verify = host_verify,
                              .commit = host_commit,
                              .draft_block = host_block};
    CHECK_INT(specrt_generate(w.s, &host, &request, prompt, 2, &generation), SPECRT_STATUS_OK);
    check_stream(&h);
    specrt_auto_get_stats(params.auto_draft, &stats);
    CHECK(h.n_blocks > 2 && h.n_cut > 0);
    CHECK_INT(stats.n_cycles - stats.n_plain, h.n_blocks);
    CHECK_NEAR(stats.cost, h.cost, 1e-3 * h.cost); /* of a block, the whole pass */
    world_close(&w);
    specrt_auto_close(params.auto_draft);
}

/* --- what stays as it is --- */

/* Tasks in the opposite order. */
static void backwards(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    (void)user;
    while (n-- > 0) task(arg, n);
}

TEST(same, "no step allocates; a copy of the session, and other threads, draft the same") {
    static const char *const text = "static:20+window:40@min=24+successor:6+sketch:8+centroid:1";
    static uint8_t saved[1 << 16];
    float hidden[N * D];
    fixture_allocator counted = {0};
    specrt_env env = fixture_desc(&counted), threads = {.parallel_for = backwards};
    specrt_session_params params = chain;
    world a, b;
    size_t n_bytes;
    params.tree = (specrt_tree_params){N, 3, 20};
    world_head(&a, MARKOV | BIASED);
    world_session(&a, text, params, &env);
    world_head(&b, MARKOV | BIASED);
    specrt_head_close(b.head);
    REQUIRE(!specrt_head_bind(NULL, &b.desc, &threads, &b.head, NULL));
    world_session(&b, text, params, NULL);
    root(a.s, 9);
    root(b.s, 9);
    int n_calls = counted.n_calls;
    for (int turn = 0; turn < 12; turn++) {
        specrt_block block = {.n = N, .hidden = hidden, .input = hidden, .by_position = turn % 2};
        specrt_draft x, y;
        fill(hidden, N * D, 0.6f);
        check_draft_block(a.s, &block, &x);
        check_draft_block(b.s, &block, &y);
        REQUIRE(x.n == y.n && x.n > 1);
        CHECK(!memcmp(x.tokens, y.tokens, 4 * (size_t)x.n));
        CHECK(!memcmp(x.logprobs, y.logprobs, 4 * (size_t)x.n));
        CHECK_INT(specrt_session_save(a.s, saved, sizeof saved, &n_bytes), SPECRT_STATUS_BAD_ORDER);
        const int32_t told[] = {x.tokens[0], x.tokens[1]};
        REQUIRE(!specrt_session_observe_chain(a.s, told, 2, 1, 50 + turn, NULL));
        REQUIRE(!specrt_session_save(a.s, saved, sizeof saved, &n_bytes));
        REQUIRE(!specrt_session_load(b.s, saved, n_bytes));
    }
    CHECK_INT(counted.n_calls, n_calls);
    world_close(&a);
    world_close(&b);
    CHECK_INT(counted.n_live, 0);
}

TEST(auto, "`auto` chooses how many positions are drafted") {
    const double costs[] = {1, 1.1, 1.2, 5, 9, 12, 15};
    const specrt_auto_desc desc = {.num_steps = N, .n_lists = 1, .costs = costs};
    specrt_session_params params = chain;
    float hidden[N * D];
    bool plain = false;
    world w;
    REQUIRE(!specrt_auto_create(&desc, NULL, &params.auto_draft, NULL));
    world_open(&w, MARKOV, "static:40", params);
    root(w.s, 11);
    for (int turn = 0; turn < 40; turn++) {
        specrt_block block = {.n = N, .hidden = hidden};
        specrt_draft draft;
        int32_t most = w.s->choice.num_steps;
        fill(hidden, N * D, 0.6f);
        check_draft_block(w.s, &block, &draft);
        CHECK(draft.n - 1 <= most);
        plain |= most == 0 && draft.n == 1;
        REQUIRE(!specrt_session_observe_chain(w.s, draft.tokens, draft.n, 0, 30, NULL));
    }
    CHECK(plain); /* nothing is ever accepted */
    world_close(&w);
    specrt_auto_close(params.auto_draft);
}

/* --- wrong use --- */

static void check_refused(specrt_session *s, const specrt_block *block, specrt_status status,
                          const char *why) {
    specrt_draft draft;
    CHECK_INT(specrt_session_draft_block(s, block, &draft), status);
    CHECK_HAS(specrt_session_last_error(s)->msg, why);
    CHECK(draft.n == 0 && draft.tokens == NULL);
}

TEST(refused, "wrong blocks are refused") {
    float hidden[N * D] = {0}, logits[4];
    int32_t found[4];
    specrt_draft draft;
    specrt_beam beam;
    world w, without;
    world_open(&w, MARKOV, "static:40", chain);
    world_open(&without, PLAIN, "static:40", (specrt_session_params){.tree = {N, 1, N + 1}});
    const specrt_block good = {.n = N, .hidden = hidden};
    check_refused(w.s, &good, SPECRT_STATUS_BAD_ORDER,
                  "draft_block: expected specrt_session_begin");
    root(w.s, 9);
    root(without.s, 9);
    check_refused(without.s, &good, SPECRT_STATUS_BAD_ARG, "n: expected 1 to 0 positions");
#define REFUSED(field, value, why)                                                                 \
    do {                                                                                           \
        specrt_block bad = good;                                                                   \
        bad.field = value;                                                                         \
        check_refused(w.s, &bad, SPECRT_STATUS_BAD_ARG, why);                                      \
    } while (0)
    REFUSED(n, 0, "n: expected 1 to 6 positions (specrt_session_params.n_block), found 0");
    REFUSED(n, N + 1, "n: expected 1 to 6 positions");
    REFUSED(hidden, NULL, "hidden");
    REFUSED(by_position, 2, "by_position: expected 0 or 1, found 2");
    REFUSED(p_min, 1.5f, "p_min: expected 0 to 1, found 1.5");
    REFUSED(p_min, NAN, "p_min: expected 0 to 1");
    REFUSED(select, judge, "k: expected 1 (topk) to 256 candidates, found 0");
#undef REFUSED
    CHECK_INT(specrt_session_draft_block(w.s, NULL, &draft), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(w.s)->msg, "block");
    CHECK_INT(specrt_session_draft_block(w.s, &good, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(w.s)->msg, "draft");
    CHECK_INT(specrt_session_draft_block(NULL, &good, &draft), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(w.s, hidden, NULL, 1, 0, found, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(w.s, hidden, NULL, 1, 257, found, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(w.s)->msg, "k: expected 1 to 256, found 257");
    CHECK_INT(specrt_session_block_topk(w.s, hidden, NULL, 0, 4, found, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(NULL, hidden, NULL, 1, 4, found, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(w.s, NULL, NULL, 1, 4, found, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(w.s, hidden, NULL, 1, 4, NULL, logits),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_block_topk(w.s, hidden, NULL, 1, 4, found, NULL),
              SPECRT_STATUS_BAD_ARG);
    REQUIRE(!specrt_session_block_topk(w.s, hidden, NULL, 1, 4, found, logits)); /* unharmed */
    check_refused(w.s, &good, SPECRT_STATUS_BAD_ORDER, "the first pass of a cycle");
    root(w.s, 9);
    REQUIRE(!specrt_session_expand(w.s, hidden, NULL, 1, &beam));
    check_refused(w.s, &good, SPECRT_STATUS_BAD_ORDER, "the first pass of a cycle");
    root(w.s, 9);
    check_draft_block(w.s, &good, &draft);
    check_refused(w.s, &good, SPECRT_STATUS_BAD_ORDER, "specrt_session_accept()");
    world_close(&w);
    world_close(&without);
}

TEST(failed, "a selector that fails ends the generation") {
    bool members[W1_ROWS] = {false};
    float hidden[N * D];
    world w;
    world_open(&w, MARKOV, "static:40", chain);
    fill(hidden, N * D, 0.5f);
    root(w.s, 9);
    add_members(specrt_session_shortlist(w.s), members);
    selector s = {&w, members, hidden, .fail_at = 3};
    specrt_block block = {.n = N, .hidden = hidden, .select = judge, .user = &s, .k = 5};
    check_refused(w.s, &block, SPECRT_STATUS_HOST, "draft_block: select: returned 7");
    check_refused(w.s, &block, SPECRT_STATUS_BAD_ORDER, "the generation has ended");
    root(w.s, 9);
    specrt_draft draft;
    check_draft_block(w.s, &block, &draft);
    CHECK_INT(draft.n, N + 1);
    world_close(&w);
}

static int takes_all_out(void *user, int32_t position, int32_t previous, const int32_t *candidates,
                         int32_t k, float *logits) {
    (void)user, (void)position, (void)previous, (void)candidates;
    for (int32_t i = 0; i < k; i++) logits[i] = -INFINITY;
    return 0;
}

/* A level without a token has no sample: that of an earlier cycle does not pass for it. */
TEST(stale, "a sample of an earlier cycle is refused") {
    const specrt_session_params params = {.tree = {BLOCK, 1, BLOCK + 1},
                                          .sampling = {.temperature = 1, .session = 1},
                                          .draft = SPECRT_DRAFT_SAMPLED,
                                          .n_logits = TINY,
                                          .n_block = BLOCK};
    float hidden[BLOCK * TINY], logits[2 * TINY] = {0};
    specrt_draft draft;
    specrt_verdict verdict;
    world w;
    tiny_open(&w, "full", &params);
    tiny_states(2, 5, hidden);
    specrt_block block = {.n = BLOCK, .hidden = hidden};
    root(w.s, 5);
    check_draft_block(w.s, &block, &draft);
    REQUIRE(draft.n == BLOCK + 1);
    const int32_t tokens[] = {5, draft.tokens[1]}, parents[] = {-1, 0};
    root(w.s, 5);
    block.select = takes_all_out, block.k = 4;
    check_draft_block(w.s, &block, &draft);
    CHECK_INT(draft.n, 1);
    draft = (specrt_draft){.n = 2, .tokens = tokens, .parents = parents};
    CHECK_INT(specrt_session_verify(w.s, &draft, logits, &verdict), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(w.s)->msg, "expected the chain that the session sampled");
    world_close(&w);
}

/* Of states that are no numbers, masked rows are the greatest: none of these tokens is drafted. */
TEST(numbers, "states that are no numbers draft nothing") {
    float hidden[N * D];
    specrt_session_params params = chain;
    params.tree = (specrt_tree_params){N, 3, 20};
    for (int i = 0; i < N * D; i++) hidden[i] = NAN;
    for (int turn = 0; turn < 3; turn++) {
        specrt_block block = {.n = N, .hidden = hidden, .input = hidden, .by_position = turn};
        specrt_draft draft;
        specrt_beam beam;
        world w;
        world_open(&w, PLAIN, "static:40+centroid:6", params);
        root(w.s, 9);
        if (turn < 2) {
            check_draft_block(w.s, &block, &draft);
        } else {
            REQUIRE(!specrt_session_expand(w.s, hidden, hidden, 1, &beam));
            REQUIRE(!specrt_session_finish(w.s, &draft));
        }
        CHECK_INT(draft.n, 1);
        world_close(&w);
    }
}

TEST(heads, "wrong Markov heads and sizes are refused") {
    specrt_error err;
    specrt_head *head = NULL;
    world w;
    specrt_session *s;
    specrt_session_params params = chain;
    world_open(&w, MARKOV, "static:40", chain);
#define REFUSED(field, value, status, why)                                                         \
    do {                                                                                           \
        specrt_markov_desc bad = w.markov;                                                         \
        specrt_head_desc desc = w.desc;                                                            \
        bad.field = value;                                                                         \
        desc.markov = &bad;                                                                        \
        CHECK_INT(specrt_head_bind(NULL, &desc, NULL, &head, &err), status);                       \
        CHECK_HAS(err.msg, why);                                                                   \
        CHECK(head == NULL);                                                                       \
    } while (0)
    REFUSED(to.n_rows, V - 1, SPECRT_STATUS_BAD_ARG, "one of to for each of the head's 205 rows");
    REFUSED(from.n_rows, V - 1, SPECRT_STATUS_BAD_ARG, "a row of from for each of 205 token ids");
    REFUSED(from.n_cols, RANK / 2, SPECRT_STATUS_BAD_ARG, "one rank, found 4 of from and 8 of to");
    REFUSED(to.rows, NULL, SPECRT_STATUS_BAD_ARG, "markov: to: expected");
    REFUSED(from.dtype, SPECRT_DTYPE_I32, SPECRT_STATUS_UNSUPPORTED, "markov: from: type");
#undef REFUSED
    params.n_logits = W1_ROWS;
    params.n_block = N + 1;
    CHECK_INT(specrt_session_create(w.policy, &params, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "session: n_block: expected 0 to the 6 levels of the tree (num_steps), "
                       "found 7");
    params.n_block = -1;
    CHECK_INT(specrt_session_create(w.policy, &params, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    world_close(&w);
}

TEST(memory, "a session without memory is none, wherever it runs out") {
    fixture_allocator counted = {0};
    specrt_env env = fixture_desc(&counted);
    specrt_session_params params = chain;
    specrt_session *s;
    world w;
    params.tree = (specrt_tree_params){N, 3, 20};
    world_open(&w, MARKOV, "static:20+sketch:8", params);
    params.n_logits = W1_ROWS;
    for (counted.fail_at = 1;; counted.fail_at++) {
        counted.n_calls = 0;
        specrt_status status = specrt_session_create(w.policy, &params, &env, &s, NULL);
        if (status == SPECRT_STATUS_OK) break;
        CHECK_INT(status, SPECRT_STATUS_NO_MEMORY);
        CHECK_INT(counted.n_live, 0);
    }
    CHECK(counted.fail_at > 6);
    specrt_session_close(s);
    CHECK_INT(counted.n_live, 0);
    world_close(&w);
}
