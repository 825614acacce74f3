/* test_retrieve.c : EvoSpec's retrieval in sessions: what its index is asked, on a worker what at once,
 * across turns, and what is refused. The target's logits are its head times its hidden state, which
 * follows from the two tokens before, so the truth is at hand. */
#include "specrt_tools.h"
#include "core/pool.h"
#include "sources/arc.h"
#include "sources/retrieve.h"
#include "sources/window.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

#include "tools/hnsw-build/index.h"

enum { V = 300, D = 16, N_STATIC = 40, DEGREE = 6, N_PROMPT = 20, N_TOKENS = 200 };

static float weights[V * D], draft_weights[V * 8];
static uint64_t state = 5;

static specrt__retrieve *cache_of(const specrt_session *session) {
    return (specrt__retrieve *)specrt__session_state(session, SPECRT__POLICY_RETRIEVE);
}

static int32_t n_resident(const specrt_session *session) {
    const specrt__arc *arc = &cache_of(session)->arc;
    return arc->sizes[SPECRT__ARC_T1] + arc->sizes[SPECRT__ARC_T2];
}

static const specrt__window *window_of(const specrt_session *session) {
    return (const specrt__window *)specrt__session_state(session, SPECRT__POLICY_WINDOW);
}

static void hidden_of(int32_t before, int32_t last, float *out, int n) {
    uint64_t seed = (uint64_t)(before % 4 * 700 + last % 40 + 1) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < n; i++) out[i] = fixture_normal(&seed);
}

static void logits_of(const float *hidden, float *out) {
    for (int i = 0; i < V; i++) {
        out[i] = 0;
        for (int j = 0; j < D; j++) out[i] += weights[i * D + j] * hidden[j];
    }
}

/* --- a bundle --- */

static uint8_t *make_graph(size_t *n) {
    static uint64_t totals[V];
    static uint32_t offsets[V + 1], n_rule[V];
    static int32_t ids[V * DEGREE];
    static float counts[V * DEGREE];
    const specrt_cograph_header h = {.n_vocab = V, .n_edges = V * DEGREE, .max_degree = DEGREE};
    for (int32_t u = 0; u < V; u++) {
        totals[u] = 1000;
        offsets[u + 1] = (uint32_t)(u + 1) * DEGREE;
        n_rule[u] = (uint32_t)u % 5;
        for (int32_t i = 0; i < DEGREE; i++) {
            ids[u * DEGREE + i] = (u * 3 + i * 41) % V;
            counts[u * DEGREE + i] = (float)(90 - i);
        }
    }
    return fixture_graph_of(&h, totals, offsets, n_rule, ids, counts, n);
}

static uint8_t *make_index(const specrt_head_desc *rows, int32_t vectors, size_t *n) {
    index_params params = {.m = 8, .ef_construction = 60, .seed = 1, .threads = 1};
    int32_t *ids, n_ids, n_left_out[3];
    hnsw_index built;
    REQUIRE(!index_rows(rows, NULL, &ids, &n_ids, n_left_out, NULL));
    REQUIRE(!index_build(rows, ids, n_ids, &params, &built, NULL));
    built.header.vectors = vectors;
    built.header.ef = V;
    uint8_t *bytes = (uint8_t *)index_bytes(&built, rows, n);
    REQUIRE(bytes);
    index_free(&built);
    free(ids);
    return bytes;
}

typedef struct world {
    uint8_t *bytes;
    specrt_bundle *bundle;
    specrt_head *head, *draft_head; /* the target's, which drafts too; another */
    fixture_allocator allocator;
} world;

static specrt_head_desc target_rows(void) {
    return f32_rows(weights, V, D);
}

static void world_make(world *w, bool with_index, int32_t vectors) {
    specrt_ident ident = {.n_vocab = V, .n_normal = V, .head_rows = V, .head_cols = D};
    specrt_head_desc rows = target_rows(), draft_rows = rows;
    size_t n_graph, n_index, n_ranks, n;
    memset(w, 0, sizeof *w);
    state = 5;
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    for (int i = 0; i < V * 8; i++) draft_weights[i] = fixture_normal(&state);
    REQUIRE(!specrt_head_digest(&rows, &ident.head_digest, NULL));
    uint8_t *graph = make_graph(&n_graph), *index = make_index(&rows, vectors, &n_index);
    uint8_t *ranks = fixture_ranks(V, 2, N_STATIC, &n_ranks);
    fixture_section sections[] = {
        {"cograph", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, graph, n_graph, n_graph},
        {"hnsw", 1, SPECRT_SECTION_DEPENDS_HEAD, index, n_index, n_index},
        {"ident", 1, 0, &ident, sizeof ident, sizeof ident},
        {"ranks", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, ranks, n_ranks, n_ranks},
    };
    w->bytes = fixture_bundle(sections + (with_index ? 0 : 2), with_index ? 4 : 2, &n);
    specrt_env env = fixture_desc(&w->allocator);
    w->bundle = open_memory(w->bytes, n);
    REQUIRE(!specrt_head_bind(w->bundle, &rows, &env, &w->head, NULL));
    draft_rows.rows = draft_weights;
    draft_rows.n_cols = 8;
    REQUIRE(!specrt_head_bind(NULL, &draft_rows, &env, &w->draft_head, NULL));
    free(graph);
    free(index);
    free(ranks);
}

static void world_free(world *w) {
    specrt_head_close(w->head);
    specrt_head_close(w->draft_head);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
}

/* --- sessions --- */

/* A worker that the test moves by hand: tasks run when it says so. */
typedef struct hand {
    specrt_task *task;
    int n_submitted;
} hand;

static void hand_submit(void *user, specrt_task *task) {
    hand *h = (hand *)user;
    REQUIRE(!h->task);
    h->task = task;
    h->n_submitted++;
}

static void hand_run(hand *h) {
    specrt_task *task = h->task;
    h->task = NULL;
    if (task) task->run(task);
}

typedef struct run {
    specrt_policy *policy;
    specrt_session *session;
    int32_t stream[N_TOKENS + 32], n;
    bool told; /* the target's hidden states are given */
} run;

static void run_make(run *r, const world *w, const char *text, bool target, hand *h,
                     specrt_worker *thread) {
    specrt_policy_desc desc = {.text = text, .target = target ? w->head : NULL};
    specrt_session_params params = {.n_logits = V,
                                    .tree = {.num_steps = 3, .topk = 3, .num_draft_tokens = 8},
                                    .submit = h ? hand_submit : specrt_worker_submit,
                                    .submit_user = h ? (void *)h : thread};
    memset(r, 0, sizeof *r);
    r->told = true;
    r->policy = create_policy(w->bundle, target ? w->draft_head : w->head, &desc);
    r->session = create_session(r->policy, &params, NULL);
}

static void run_free(run *r) {
    close_both(r->session, r->policy);
}

/* As what: NULL: a new sequence. */
static void run_prompt_as(run *r, const specrt_request *request) {
    float hidden[D], logits[V];
    REQUIRE(!specrt_session_begin(r->session, request));
    for (r->n = 0; r->n < N_PROMPT; r->n++) r->stream[r->n] = 17 * r->n % 50;
    REQUIRE(!specrt_session_prefill(r->session, r->stream, N_PROMPT, NULL));
    hidden_of(r->stream[N_PROMPT - 2], r->stream[N_PROMPT - 1], hidden, D);
    logits_of(hidden, logits);
    REQUIRE(!specrt_session_draw(r->session, logits, &r->stream[r->n++]));
    REQUIRE(!specrt_session_start(r->session, r->stream[N_PROMPT]));
}

static void run_prompt(run *r) {
    run_prompt_as(r, NULL);
}

/* A cycle whose drafter knows the target's state where it is as wide. */
static void run_cycle(run *r) {
    static __thread float logits[SPECRT_TREE_MAX_NODES * V], states[SPECRT_TREE_MAX_NODES * D];
    int32_t root = r->stream[r->n - 1], before = r->stream[r->n - 2], last[8] = {root};
    int32_t previous[8] = {before}, width = (int32_t)r->policy->head->desc.n_cols, n = 1;
    float hidden[3 * D];
    specrt_beam beam;
    specrt_draft draft;
    specrt_verdict verdict;
    for (; n > 0; n = beam.n) {
        int32_t parents[8];
        for (int32_t i = 0; i < n; i++)
            hidden_of(previous[i], last[i], hidden + i * width, (int)width);
        REQUIRE(!specrt_session_expand(r->session, hidden, NULL, n, &beam));
        memcpy(parents, last, sizeof parents);
        for (int32_t i = 0; i < beam.n; i++) {
            previous[i] = parents[beam.parents[i]];
            last[i] = beam.tokens[i];
        }
    }
    specrt_session_finish(r->session, &draft);
    for (int32_t i = 0; i < draft.n; i++) {
        hidden_of(i ? draft.tokens[draft.parents[i]] : before, draft.tokens[i], states + i * D, D);
        logits_of(states + i * D, logits + i * V);
    }
    specrt_target_rows rows = {.logits = logits, .hidden = r->told ? states : NULL, .d_hidden = D};
    REQUIRE(!specrt_session_verify(r->session, &draft, logits, &verdict));
    REQUIRE(!specrt_session_observe(r->session, &draft, &verdict, &rows));
    memcpy(r->stream + r->n, verdict.tokens, (size_t)verdict.n * sizeof *r->stream);
    r->n += verdict.n;
}

static void check_plain(const run *r) {
    float hidden[D], logits[V];
    for (int32_t i = N_PROMPT; i < r->n; i++) {
        int32_t best;
        hidden_of(r->stream[i - 2], r->stream[i - 1], hidden, D);
        logits_of(hidden, logits);
        CHECK_INT(specrt_logits_topk(logits, V, 1, &best), 1);
        CHECK_INT(r->stream[i], best);
    }
}

static void check_same(const run *a, const run *b) {
    const specrt__arc *x = &cache_of(a->session)->arc, *y = &cache_of(b->session)->arc;
    CHECK_INT(cache_of(a->session)->n_events, cache_of(b->session)->n_events);
    CHECK_NEAR(x->p, y->p, 0);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_B2; list++) {
        int32_t i = specrt__arc_oldest(x, list), j = specrt__arc_oldest(y, list);
        CHECK_INT(x->sizes[list], y->sizes[list]);
        for (; i < V && j < V; i = x->newer[i], j = y->newer[j]) CHECK_INT(i, j);
    }
    for (int32_t i = 0; i < V; i++)
        CHECK_INT(specrt__pool_member(a->session->pool, i),
                  specrt__pool_member(b->session->pool, i));
}

/* --- tests --- */

TEST(lossless, "the output is the target's under every query and mode, and nothing is allocated") {
    static const char *const texts[] = {"static+retrieve:64",
                                        "static+retrieve:64@sem=hnsw_h",
                                        "static+retrieve:20@sem=hnsw_w",
                                        "retrieve:64@sem=hnsw_h@graph=off",
                                        "static+window:32@min=0+retrieve:32@sem=hnsw_w",
                                        "static:12+retrieve:64@prompt=tokens"};
    static const int32_t vectors[] = {SPECRT_HNSW_NONE, SPECRT_HNSW_F16, SPECRT_HNSW_INT8};
    specrt_worker *thread;
    fixture_allocator allocator = {0};
    specrt_env env = fixture_desc(&allocator);
    REQUIRE(!specrt_worker_create(&env, &thread, NULL));
    for (int i = 0; i < 36; i++) {
        char text[128];
        world w;
        run r;
        specrt_session_stats stats;
        bool async = i % 2 == 1, other = i / 2 % 3 == 1;
        snprintf(text, sizeof text, "%s%s", texts[i / 6], async ? "@mode=async" : "");
        world_make(&w, true, vectors[i % 3]);
        run_make(&r, &w, text, other, NULL, thread);
        CHECK_INT(specrt_policy_get_info(r.policy)->hidden_width, strstr(text, "hnsw_h") ? D : 0);
        int n_calls = w.allocator.n_calls;
        run_prompt(&r);
        while (r.n < N_TOKENS) run_cycle(&r);
        CHECK_INT(w.allocator.n_calls, n_calls);
        check_plain(&r);
        specrt_session_get_stats(r.session, &stats);
        CHECK(stats.n_events > 0);
        if (!async) CHECK(stats.n_lost == 0 && cache_of(r.session)->n_events == stats.n_events);
        run_free(&r);
        CHECK_INT(w.allocator.n_live, 2); /* the heads */
        world_free(&w);
    }
    CHECK(allocator.n_live > 0);
    specrt_worker_close(thread);
    CHECK_INT(allocator.n_live, 0);
}

/* With all rows searched, the index finds what the target's logits say: nothing changes. */
TEST(hidden_query, "an exact index finds the target's best logits") {
    world w;
    run r[4];
    world_make(&w, true, SPECRT_HNSW_INT8);
    for (int i = 0; i < 4; i++) {
        const char *text = i % 2 ? "static+retrieve:64@sem=hnsw_h" : "static+retrieve:64";
        run_make(&r[i], &w, text, i >= 2, NULL, NULL);
        r[i].told = i != 3; /* without the hidden states it goes on with the logits */
        run_prompt(&r[i]);
        while (r[i].n < N_TOKENS) run_cycle(&r[i]);
    }
    check_same(&r[0], &r[1]);
    check_same(&r[2], &r[3]);
    check_plain(&r[3]);
    for (int i = 0; i < 4; i++) run_free(&r[i]);
    world_free(&w);
}

TEST(row_query, "the ten rows with the greatest products with the missed token's own come in") {
    world w;
    run r;
    float logits[V];
    int32_t near[10];
    world_make(&w, true, SPECRT_HNSW_NONE);
    run_make(&r, &w, "retrieve:64@sem=hnsw_w@graph=off", true, NULL, NULL);
    run_prompt(&r);
    for (int32_t token = 60; token < 63; token++) {
        specrt_verdict verdict = {.n = 1, .tokens = {token}};
        specrt_draft draft;
        specrt_session_finish(r.session, &draft);
        REQUIRE(!specrt_session_observe(r.session, &draft, &verdict, NULL));
        logits_of(weights + token * D, logits);
        CHECK_INT(specrt_logits_topk(logits, V, 10, near), 10);
        for (int i = 0; i < 10; i++) CHECK(specrt__pool_member(r.session->pool, near[i]));
        CHECK(specrt__pool_member(r.session->pool, token));
    }
    CHECK(cache_of(r.session)->arc.sizes[SPECRT__ARC_T1] > 15);
    run_free(&r);
    world_free(&w);
}

/* Observes a verdict that an adversary chose. Tokens from 100 on are events whatever was retrieved. */
static void observe(run *r, int32_t i, int32_t last) {
    specrt_verdict verdict = {.n = 2, .tokens = {i * 7 % 50, last}, .nodes = {0, 1}};
    int32_t top[20];
    float hidden[2 * D];
    const int32_t tokens[2] = {r->session->tree->root, verdict.tokens[0]}, parents[2] = {-1, 0};
    const int32_t depths[2] = {0, 1};
    const float logprobs[2] = {0, -1};
    const specrt_draft draft = {2, tokens, parents, depths, NULL, logprobs, NULL, 0};
    REQUIRE(!specrt_session_finish(r->session, NULL));
    for (int k = 0; k < 10; k++) top[k] = 200 + k, top[10 + k] = (i * 31 + k * k) % 60;
    for (int32_t row = 0; row < 2; row++) hidden_of(i, row, hidden + row * D, D);
    specrt_target_rows rows = {.ids = top, .k = 10, .hidden = hidden, .d_hidden = D};
    REQUIRE(!specrt_session_observe(r->session, &draft, &verdict, &rows));
}

/* The same events make the same cache, whenever a worker finds the time. Nothing that is found is seen
 * before a cycle ends. */
TEST(async_same, "the same events make the same cache") {
    world w;
    run a, b;
    hand h = {NULL, 0};
    world_make(&w, true, SPECRT_HNSW_F16);
    run_make(&a, &w, "static:12+retrieve:16@graph=off", false, NULL, NULL);
    run_make(&b, &w, "static:12+retrieve:16@graph=off@mode=async", false, &h, NULL);
    run_prompt(&a);
    run_prompt(&b);
    for (int32_t i = 0; i < 200; i++) {
        observe(&a, i, 100 + i);
        uint32_t taken = cache_of(b.session)->taken;
        int32_t n_rows = specrt_session_shortlist(b.session)->n_rows;
        if (i % 7 == 3 || i % 11 < 3) hand_run(&h);
        CHECK_INT(specrt_session_shortlist(b.session)->n_rows, n_rows);
        CHECK_INT(cache_of(b.session)->taken, taken);
        observe(&b, i, 100 + i);
    }
    CHECK(h.n_submitted > 50);
    CHECK_INT(b.session->stats.n_lost, 0);
    hand_run(&h);
    specrt__retrieve *c = cache_of(b.session);
    for (specrt__retrieve_take(c); c->done != c->posted; specrt__retrieve_take(c)) {
        specrt__retrieve_work(c, c->done);
        c->limit = c->done;
    }
    check_same(&a, &b);
    run_free(&a);
    run_free(&b);
    world_free(&w);
}

TEST(async_lost, "a worker that never comes holds nothing up: events are lost, and counted") {
    world w;
    run r;
    hand h = {NULL, 0};
    world_make(&w, true, SPECRT_HNSW_F16);
    run_make(&r, &w, "static:12+retrieve:64@mode=async@sem=hnsw_h", false, &h, NULL);
    run_prompt(&r);
    for (int32_t i = 0; i < 40; i++) observe(&r, i, 100 + i);
    /* The state of each one's last node waits beside the others. */
    for (int32_t i = 0; i < 16; i++) {
        float hidden[D];
        hidden_of(i, 1, hidden, D);
        CHECK(memcmp(cache_of(r.session)->queries + i * D, hidden, sizeof hidden) == 0);
    }
    CHECK_INT(r.session->stats.n_events, 40);
    CHECK_INT(r.session->stats.n_lost, 24);
    CHECK_INT(h.n_submitted, 1);
    hand_run(&h); /* a task goes no further than what it was given */
    CHECK_INT(cache_of(r.session)->n_events, 1);
    observe(&r, 40, 140);
    CHECK_INT(h.n_submitted, 2);
    hand_run(&h);
    CHECK_INT(cache_of(r.session)->n_events, 17);
    for (int32_t i = 0; i < 8; i++) { /* cycles without an event wait for half of the records */
        CHECK_INT(h.n_submitted, 2);
        observe(&r, i, 3);
    }
    CHECK_INT(h.n_submitted, 3);
    hand_run(&h);
    run_free(&r);
    world_free(&w);
}

TEST(worker, "sessions share a worker, and may be closed while it works for them") {
    world w;
    run r[3];
    specrt_worker *thread;
    world_make(&w, true, SPECRT_HNSW_INT8);
    REQUIRE(!specrt_worker_create(NULL, &thread, NULL));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) {
            run_make(&r[i], &w, "static:12+retrieve:64@mode=async@sem=hnsw_w", false, NULL, thread);
            run_prompt(&r[i]);
        }
        for (int32_t k = 0; k < round; k++)
            for (int i = 0; i < 3; i++) observe(&r[i], k, 100 + k);
        run_prompt(&r[0]);
        for (int i = 0; i < 3; i++) run_free(&r[i]);
    }
    specrt_worker_close(thread);
    world_free(&w);
}

/* What a worker found comes in before the window is filled up: no more than the policy's bound, also where
 * the fill is for a tree wider than the window. */
TEST(bounded, "what a worker found is counted before the window is filled up") {
    world w;
    run r;
    hand h = {NULL, 0};
    world_make(&w, true, SPECRT_HNSW_F16);
    specrt_session_params params = {
        .n_logits = V, .tree = {.topk = 30}, .submit = hand_submit, .submit_user = &h};
    run_make(&r, &w, "window:1@min=0+retrieve:32@graph=off@mode=async", false, &h, NULL);
    specrt_session_close(r.session);
    r.session = create_session(r.policy, &params, NULL);
    run_prompt(&r);
    for (int32_t i = 0; i < 40; i++) {
        const specrt_request turn = {.begin = SPECRT_BEGIN_TURN};
        observe(&r, i, 100 + i);
        hand_run(&h);
        REQUIRE(!specrt_session_begin(r.session, &turn));
        root_prompt(r.session, 200 + i % 8);
        CHECK(specrt_session_shortlist(r.session)->n_rows <=
              specrt_policy_get_info(r.policy)->bound);
    }
    CHECK_INT(n_resident(r.session), 32);
    run_free(&r);
    world_free(&w);
}

TEST(narrow_index, "an index may name a search narrower than the ten that are asked of it") {
    world w;
    run r;
    fixture_allocator tight = {0, 0, 0};
    specrt_env env = fixture_desc(&tight);
    size_t n;
    world_make(&w, true, SPECRT_HNSW_F16);
    ((specrt_hnsw_header *)(uintptr_t)specrt_bundle_data(w.bundle, "hnsw", &n))->ef = 1;
    run_make(&r, &w, "retrieve:64@sem=hnsw_w@graph=off", false, NULL, NULL);
    specrt_session_close(r.session);
    r.session = create_session(r.policy, &(specrt_session_params){.n_logits = V}, &env);
    run_prompt(&r);
    for (int32_t i = 0; i < 8; i++) observe(&r, i, 100 + i);
    run_free(&r);
    world_free(&w);
}

TEST(turns, "what a turn of a conversation leaves, the next one finds; a new sequence does not") {
    static const char *const texts[] = {"static:12+window:8@min=0@kver=0+retrieve:10",
                                        "static:12+window:8@min=0@kver=0+retrieve:10@mode=async"};
    for (int i = 0; i < 2; i++) {
        world w;
        run r, once;
        specrt_worker *thread;
        REQUIRE(!specrt_worker_create(NULL, &thread, NULL));
        world_make(&w, true, SPECRT_HNSW_F16);
        run_make(&r, &w, texts[i], false, NULL, thread);
        run_make(&once, &w, texts[i], false, NULL, thread);
        run_prompt(&r);
        while (r.n < N_TOKENS) run_cycle(&r);
        specrt__retrieve_settle(cache_of(r.session));
        specrt__arc before = cache_of(r.session)->arc;
        int32_t n_window = window_of(r.session)->n_list;
        CHECK(i == 1 || before.sizes[SPECRT__ARC_B1] + before.sizes[SPECRT__ARC_B2] > 0);
        CHECK(n_window > 0);
        CHECK_INT(
            specrt_session_begin(r.session, &(specrt_request){SPECRT_BEGIN_TURN, .position = -1}),
            SPECRT_STATUS_BAD_ARG);
        const specrt_request turn = {.begin = SPECRT_BEGIN_TURN};
        CHECK_INT(specrt_session_begin(r.session, &turn), SPECRT_STATUS_OK);
        CHECK(memcmp(&before, &cache_of(r.session)->arc, sizeof before) == 0);
        CHECK_INT(window_of(r.session)->n_list, n_window);
        for (int32_t id = 0; id < V && i == 0; id++)
            if (specrt__arc_resident(&before, id)) CHECK(specrt__pool_member(r.session->pool, id));
        run_prompt_as(&r, &turn);
        CHECK_INT(r.session->position, N_PROMPT + 1);
        while (r.n < N_TOKENS) run_cycle(&r);
        check_plain(&r);
        specrt_session_begin(r.session, NULL);
        specrt_session_begin(once.session, NULL);
        check_same(&r, &once);
        run_free(&r);
        run_free(&once);
        specrt_worker_close(thread);
        world_free(&w);
    }
}

/* A prompt's tokens come in, the last of them where not all find room, and so do the target's best there.
 * They make way for the first event. */
TEST(prompt, "a prompt fills the cache before the first event") {
    static const int32_t tokens[] = {20, 3, 30, 21, 22, 23, 20, 34, 25, 26, 27, 28, 29, 0, 32, 33};
    static const int32_t best[32] = {100, 101, 30, 3, 0, 1, 299}, no_token[2] = {V, -1};
    world w;
    run r;
    specrt_target_rows rows = {.ids = best, .k = 2};
    world_make(&w, true, SPECRT_HNSW_F16);
    run_make(&r, &w, "static:12+retrieve:12@graph=off@prompt=tokens", false, NULL, NULL);
    const specrt__pool *pool = r.session->pool;
    CHECK_INT(specrt_policy_get_info(r.policy)->needs_prompt_logits, 0);
    REQUIRE(!specrt_session_begin(r.session, NULL));
    REQUIRE(!specrt_session_prefill(r.session, tokens, 16, &rows));
    const specrt__arc *arc = &cache_of(r.session)->arc;
    CHECK_INT(n_resident(r.session), 12);
    CHECK_INT(arc->lists[20], SPECRT__ARC_T2); /* it came twice */
    for (int i = 2; i < 16; i++) CHECK(specrt__pool_member(pool, tokens[i]) == (i >= 4));
    CHECK(arc->lists[3] == SPECRT__ARC_NONE && !specrt__pool_member(pool, 100));
    REQUIRE(!specrt_session_start(r.session, 33));
    observe(&r, 0, 100);
    CHECK_INT(cache_of(r.session)->n_blocked, 0);
    CHECK(specrt__pool_member(pool, 100));
    CHECK_INT(arc->lists[4], SPECRT__ARC_T1); /* of the last node's best, where it stands twice */
    run_free(&r);
    run_make(&r, &w, "static:12+retrieve:12@graph=off@prompt=best", false, NULL, NULL);
    CHECK_INT(specrt_policy_get_info(r.policy)->needs_prompt_logits, 1);
    REQUIRE(!specrt_session_begin(r.session, NULL));
    REQUIRE(!specrt_session_prefill(r.session, tokens, 3, &rows));
    static const int32_t members[] = {20, 30, 100, 101, 0, 1, 299};
    for (int i = 0; i < 6; i++) CHECK(specrt__pool_member(r.session->pool, members[i]));
    CHECK_INT(cache_of(r.session)->arc.sizes[SPECRT__ARC_T1], 5);
    rows.ids = no_token; /* the next prompt token is resident already, and nothing else comes in */
    REQUIRE(!specrt_session_prefill(r.session, tokens, 1, &rows));
    CHECK_INT(n_resident(r.session), 6);
    run_free(&r);
    world_free(&w);
}

/* The next turn's prompt waits for what is being retrieved, so that the order of events is kept. */
TEST(prompt_async, "a prompt comes after the events before it") {
    world w;
    run r[2];
    specrt_worker *thread;
    world_make(&w, true, SPECRT_HNSW_F16);
    REQUIRE(!specrt_worker_create(NULL, &thread, NULL));
    run_make(&r[0], &w, "static:12+retrieve:16@graph=off@prompt=tokens", false, NULL, NULL);
    run_make(&r[1], &w, "static:12+retrieve:16@graph=off@prompt=tokens@mode=async", false, NULL,
             thread);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 2; i++) {
            const specrt_request request = {.begin = SPECRT_BEGIN_TURN};
            run_prompt_as(&r[i], &request);
            for (int32_t k = 0; k < 9; k++) observe(&r[i], 10 * turn + k, 100 + 10 * turn + k);
            int32_t next = 60 + turn;
            REQUIRE(!specrt_session_begin(r[i].session, &request));
            REQUIRE(!specrt_session_prefill(r[i].session, &next, 1, NULL));
        }
        check_same(&r[0], &r[1]);
    }
    for (int i = 0; i < 2; i++) run_free(&r[i]);
    specrt_worker_close(thread);
    world_free(&w);
}

/* --- refusals --- */

static void check_refused(const specrt_bundle *bundle, const specrt_head *head,
                          const specrt_head *target, const char *text, specrt_status status,
                          const char *message) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_policy *policy;
    specrt_policy_desc desc = {.text = text, .target = target};
    CHECK_INT(specrt_policy_create(bundle, head, &desc, &policy, &err), status);
    CHECK(!policy);
    char expected[sizeof err.msg];
    snprintf(expected, sizeof expected, "policy '%s': %s", text, message);
    CHECK_STR(err.msg, expected);
}

TEST(refused_policies, "no index, another head, no rows to ask with") {
    world w, bare;
    world_make(&bare, false, SPECRT_HNSW_NONE);
    world_make(&w, true, SPECRT_HNSW_NONE);
    specrt_head_desc rows = target_rows();
    static float other_weights[V * D];
    for (int i = 0; i < V * D; i++) other_weights[i] = weights[V * D - 1 - i];
    rows.rows = other_weights;
    specrt_head *other = bind_head(NULL, &rows);
    check_refused(NULL, w.head, NULL, "retrieve@sem=hnsw_h", SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                  "retrieve: needs a bundle with section 'hnsw', or @sem=logits; "
                  "hnsw-build builds it");
    check_refused(bare.bundle, bare.head, NULL, "retrieve@sem=hnsw_h@graph=off",
                  SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                  "b.specb: has no section 'hnsw'; hnsw-build builds it");
    check_refused(bare.bundle, bare.head, NULL, "retrieve", SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                  "b.specb: has no section 'cograph'; cograph-build builds it");
    check_refused(w.bundle, w.draft_head, NULL, "retrieve@sem=hnsw_w", SPECRT_STATUS_BAD_ARG,
                  "retrieve: sem=hnsw_w searches with rows of the target's head: expected "
                  "it in specrt_policy_desc.target, found NULL");
    check_refused(
        w.bundle, w.draft_head, w.draft_head, "retrieve@sem=hnsw_h", SPECRT_STATUS_BUNDLE_MISMATCH,
        "b.specb: head: expected '' [300, 16], found [300, 8]; use the bundle made for this "
        "model: sketch, cluster and centroid are of the drafter's head");
    check_refused(w.bundle, w.head, other, "retrieve@sem=hnsw_h", SPECRT_STATUS_BUNDLE_MISMATCH,
                  "b.specb: head: expected the weights of '', found others (distance 1.51, at most "
                  "0.50); use the bundle made for this model: sketch, cluster and centroid are "
                  "of the drafter's head");
    specrt_head_close(other);
    world_free(&w);
    world_free(&bare);
}

static int no_hidden(void *user, const float **hidden, int32_t *width) {
    (void)user;
    *hidden = weights;
    *width = D + 1;
    return 0;
}
static int any_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                       const float **logits) {
    (void)user, (void)tokens, (void)n, (void)all;
    *logits = weights;
    return 0;
}
static int any_draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                     const float **draft_input) {
    (void)user, (void)level, (void)beam, (void)draft_input;
    *hidden = weights;
    return 0;
}
static int any_verify(void *user, const specrt_draft *draft, const float **logits) {
    return (void)user, (void)draft, *logits = weights, 0;
}
static int any_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    return (void)user, (void)draft, (void)verdict, 0;
}

TEST(refused_calls, "no worker, hidden states missing or of a wrong width") {
    world w;
    run r;
    specrt_error err;
    specrt_session *s;
    specrt_session_params none = {.n_logits = V};
    specrt_verdict verdict = {.n = 1, .tokens = {70}};
    int32_t prompt = 1;
    specrt_draft draft;
    world_make(&w, true, SPECRT_HNSW_F16);
    run_make(&r, &w, "static+retrieve:32@sem=hnsw_h@mode=async", false, NULL, NULL);
    CHECK_INT(specrt_session_create(r.policy, &none, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "session: policy 'static:40+retrieve:32@sem=hnsw_h@mode=async': expected "
                       "params.submit, which runs what mode=async leaves to another thread, found "
                       "NULL");
    run_prompt(&r);
    specrt_session_finish(r.session, &draft);
    specrt_target_rows rows = {.logits = weights, .hidden = weights, .d_hidden = D - 1};
    CHECK_INT(specrt_session_observe(r.session, &draft, &verdict, &rows), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(cache_of(r.session)->n_cycles, 0);
    specrt_host host = {.target_prefill = any_prefill,
                        .draft_step = any_draft,
                        .target_verify = any_verify,
                        .commit = any_commit};
    CHECK_INT(specrt_host_begin(r.session, &host, NULL, &prompt, 1, &verdict),
              SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_session_last_error(r.session)->msg,
              "host: target_hidden: expected a function, found NULL");
    host.target_hidden = no_hidden;
    const specrt_request turn = {.begin = SPECRT_BEGIN_TURN};
    CHECK_INT(specrt_host_begin(r.session, &host, &turn, &prompt, 1, &verdict), SPECRT_STATUS_OK);
    CHECK_INT(specrt_host_cycle(r.session, &host, &verdict), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_session_last_error(r.session)->msg,
              "host: target_hidden: expected 16 columns, which the index has, found 17");
    run_free(&r);
    world_free(&w);
}
