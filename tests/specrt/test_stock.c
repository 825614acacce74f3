/* test_stock.c : rows that several sessions hold. Whoever holds what, counts are right and rows are the
 * head's; batches of any size draft bit for bit as sessions with rows of their own, one after another; a
 * stock that is full refuses, one that is let go of is empty; nothing is allocated on the way. */
#include "specrt_tools.h"
#include "core/head.h"
#include "core/pool.h"
#include "decode/session.h"
#include "base/parallel.h"
#include "opened.h"
#include "specrt/root.h"
#include "zeroed.h"

enum { V = 700, D = 64, MAX_N = 70, WIDE = 5, N_STEPS = 4, N_BEST = 8 };

static uint64_t random_state = 17;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* --- heads --- */

typedef struct world {
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_stock *stock;
    uint8_t *bytes;
    uint8_t rows[V * D * 4];
    float bias[V];
} world;

static void fill_rows(world *w, specrt_dtype dtype) {
    for (int i = 0; i < V * D; i++) {
        float x = fixture_normal(&random_state);
        if (dtype == SPECRT_DTYPE_F32) memcpy(w->rows + 4 * i, &x, 4);
        if (dtype == SPECRT_DTYPE_F16) specrt_to_f16(&x, 1, (uint16_t *)(void *)w->rows + i);
    }
    if (dtype != SPECRT_DTYPE_Q4_0) return;
    for (size_t i = 0; i < V * D / 32; i++) { /* a scale, and 16 bytes of codes */
        uint16_t scale = (uint16_t)(0x2c00 + random_below(0x400));
        for (int j = 2; j < 18; j++) w->rows[18 * i + (size_t)j] = (uint8_t)random_below(256);
        memcpy(w->rows + 18 * i, &scale, 2);
    }
}

static void world_open(world *w, specrt_dtype dtype, bool biased, const char *policy,
                       const specrt_env *env) {
    size_t n;
    memset(w, 0, sizeof *w);
    w->bytes = fixture_ranks_bundle(V - 1, 2, 60, &n);
    fill_rows(w, dtype);
    for (int i = 0; i < V; i++) w->bias[i] = fixture_normal(&random_state);
    specrt_head_desc desc = {.rows = w->rows, .dtype = dtype, .n_rows = V, .n_cols = D};
    specrt_policy_desc wanted = {.text = policy};
    if (biased) desc.bias = w->bias;
    w->bundle = open_memory(w->bytes, n);
    REQUIRE(specrt_head_bind(w->bundle, &desc, env, &w->head, NULL) == SPECRT_STATUS_OK);
    w->policy = create_policy(w->bundle, w->head, &wanted);
}

static void world_close(world *w) {
    specrt_stock_close(w->stock);
    specrt_policy_close(w->policy);
    specrt_head_close(w->head);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
}

/* --- counts --- */

/* What is held is what the sessions have, each row once and the head's own bytes. */
static void check_stock(const world *w, specrt_session *const *sessions, int32_t n) {
    static int32_t holders[V], vacant[V];
    static uint8_t row[D * 4];
    const specrt_stock *k = w->stock;
    int32_t n_held = 0;
    specrt_stock_stats stats;
    int64_t n_holds = 0;
    memset(holders, 0, sizeof holders);
    memset(vacant, 0, sizeof vacant);
    for (int32_t i = 0; i < n; i++) {
        const specrt__pool *p = sessions[i]->pool;
        n_holds += p->n_rows;
        for (int32_t slot = 0; slot < p->n_rows; slot++) {
            REQUIRE(k->place_of[p->ids[slot]] == p->places[slot]);
            holders[p->ids[slot]]++;
        }
    }
    for (int32_t id = 0; id < V; id++) {
        int32_t place = k->place_of[id];
        REQUIRE((place >= 0) == (holders[id] > 0));
        if (place < 0) continue;
        n_held++;
        REQUIRE(k->ids[place] == id && k->n_holders[place] == holders[id] && place < k->n_used);
        specrt__head_pack(w->head, id, row);
        REQUIRE(memcmp(k->rows + (size_t)place * k->row_stride, row, k->row_stride) == 0);
        if (k->bias) REQUIRE(k->bias[place] == w->bias[id]);
    }
    for (int32_t i = 0; i < k->n_rows - k->n_held; i++) {
        REQUIRE(k->n_holders[k->vacant[i]] == 0 && vacant[k->vacant[i]]++ == 0);
    }
    specrt_stock_get_stats(k, &stats);
    CHECK_INT(stats.n_held, n_held);
    CHECK_INT(stats.n_holds, n_holds);
    CHECK_INT(stats.n_sessions, n);
    CHECK(stats.n_packed >= n_held); /* each once at least */
}

/* --- batches --- */

/* By which shared products pay as measured, whenever two hold a row, and never. */
enum { COSTS_DEFAULT, COSTS_ALWAYS, COSTS_NEVER, N_COSTS };

static void open_stock(world *w, int costs, int32_t n_rows) {
    double of_states[64];
    specrt_stock_params params = {.n_rows = n_rows, .costs = of_states, .n_costs = 64};
    for (int i = 0; i < 64; i++) of_states[i] = costs == COSTS_ALWAYS ? 1 : (i + 1.0) * (i + 1.0);
    if (costs == COSTS_DEFAULT) params.n_costs = 0;
    REQUIRE(specrt_stock_create(w->head, &params, &zeroed, &w->stock, NULL) == SPECRT_STATUS_OK);
}

static const specrt_session_params kinds[] = {
    {.n_logits = V, .tree = {N_STEPS, 1, N_STEPS + 1}},
    {.n_logits = V, .tree = {N_STEPS, WIDE, 20}},
    {.n_logits = V,
     .tree = {N_STEPS, 1, N_STEPS + 1},
     .sampling = {.temperature = 0.8f, .seed = 4, .session = 1},
     .draft = SPECRT_DRAFT_SAMPLED},
};

/* Each session twice: its rows in the stock, and its own. Texts have a part in common. */
static void open_sessions(world *w, const specrt_session_params *kind, specrt_session **held,
                          specrt_session **own, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t text[24];
        specrt_session_params params = *kind;
        params.sampling.session = (uint64_t)(i + 1);
        params.stock = w->stock;
        held[i] = create_session(w->policy, &params, NULL);
        params.stock = NULL;
        own[i] = create_session(w->policy, &params, NULL);
        for (int j = 0; j < 24; j++) text[j] = j < 12 ? 5 * j : random_below(V - 1);
        for (int k = 0; k < 2; k++) {
            specrt_session *s = k ? own[i] : held[i];
            REQUIRE(specrt_session_begin(s, NULL) == SPECRT_STATUS_OK);
            REQUIRE(specrt_session_prefill(s, text, 24, NULL) == SPECRT_STATUS_OK);
            REQUIRE(specrt_session_start(s, text[23]) == SPECRT_STATUS_OK);
        }
    }
}

static void check_same_level(const specrt_session *a, const specrt_session *b,
                             const specrt_beam *beam_a, const specrt_beam *beam_b, int32_t n) {
    size_t n_logits = (size_t)n * (size_t)a->shortlist.n_rows, n_beam = (size_t)beam_a->n;
    REQUIRE(a->shortlist.n_rows == b->shortlist.n_rows && beam_a->n == beam_b->n);
    REQUIRE(memcmp(a->logits, b->logits, n_logits * sizeof *a->logits) == 0);
    REQUIRE(memcmp(beam_a->tokens, beam_b->tokens, n_beam * sizeof *beam_a->tokens) == 0);
    REQUIRE(memcmp(beam_a->logprobs, beam_b->logprobs, n_beam * sizeof *beam_a->logprobs) == 0);
}

/* A pass of a part of the sessions, in any order. @return the rows that were shared. */
static int32_t check_pass(world *w, specrt_session **held, specrt_session **own, int32_t n) {
    static float hidden[MAX_N * WIDE * D];
    specrt_session *batch[MAX_N], *alone[MAX_N];
    specrt_beam beams[MAX_N], beam;
    int32_t n_batch = 0, n_hidden = 0, first = 0, skip = 1 + random_below(4), n_rows[MAX_N];
    for (int32_t i = 0, at = random_below(n); i < n; i++, at = (at + 1) % n) {
        if ((skip > 1 && random_below(skip) == 1) || held[at]->tree->n_beam == 0 ||
            held[at]->tree->level == N_STEPS)
            continue;
        batch[n_batch] = held[at];
        alone[n_batch++] = own[at];
        n_hidden += held[at]->tree->n_beam;
    }
    if (n_batch == 0) return 0;
    for (int i = 0; i < n_hidden * D; i++) hidden[i] = fixture_normal(&random_state);
    for (int32_t i = 0; i < n_batch; i++) n_rows[i] = batch[i]->tree->n_beam;
    REQUIRE(specrt_session_expand_batch(batch, n_batch, hidden, NULL, n_hidden, beams) ==
            SPECRT_STATUS_OK);
    for (int32_t i = 0; i < n_batch; i++) {
        REQUIRE(specrt_session_expand(alone[i], hidden + first * D, NULL, n_rows[i], &beam) ==
                SPECRT_STATUS_OK);
        check_same_level(batch[i], alone[i], &beams[i], &beam, n_rows[i]);
        first += n_rows[i];
    }
    return w->stock->n_shared;
}

/* A cycle ends: of what was drafted some is taken, and the target's best are by chance. */
static void check_observe(specrt_session *a, specrt_session *b) {
    int32_t best[SPECRT_TREE_MAX_NODES * N_BEST];
    specrt_draft draft, same;
    specrt_verdict verdict = {.n = 1};
    specrt_target_rows rows = {.ids = best, .k = N_BEST};
    specrt_session_finish(a, &draft);
    specrt_session_finish(b, &same);
    REQUIRE(draft.n == same.n &&
            memcmp(draft.tokens, same.tokens, (size_t)draft.n * sizeof *draft.tokens) == 0);
    for (int32_t i = 0; i < draft.n * N_BEST; i++)
        best[i] = random_below(3) ? random_below(60) : random_below(V - 1);
    verdict.tokens[0] = random_below(V - 1);
    if (draft.n > 1 && random_below(2)) {
        verdict.n = 2;
        verdict.tokens[0] = draft.tokens[1];
        verdict.nodes[1] = 1;
        verdict.tokens[1] = random_below(V - 1);
    }
    REQUIRE(specrt_session_observe(a, &draft, &verdict, &rows) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_observe(b, &draft, &verdict, &rows) == SPECRT_STATUS_OK);
}

static void check_stats(const specrt_session *a, const specrt_session *b) {
    specrt_session_stats x, y;
    specrt_session_get_stats(a, &x);
    specrt_session_get_stats(b, &y);
    CHECK(x.n_copied <= y.n_copied); /* what another held was there */
    x.n_copied = y.n_copied;
    CHECK(memcmp(&x, &y, sizeof x) == 0);
}

/* Sessions that live through some cycles, some of which begin anew. @return shared rows of all passes. */
static int64_t run_batches(world *w, const specrt_session_params *kind, int costs, int32_t n) {
    specrt_session *held[MAX_N], *own[MAX_N];
    int64_t n_shared = 0;
    open_stock(w, costs, 0);
    open_sessions(w, kind, held, own, n);
    check_stock(w, held, n);
    for (int cycle = 0; cycle < (test_brief() ? 2 : 4); cycle++) {
        for (int level = 0; level < N_STEPS + 1; level++) n_shared += check_pass(w, held, own, n);
        for (int32_t i = 0; i < n; i++)
            if (random_below(4)) check_observe(held[i], own[i]);
        check_stock(w, held, n);
        int32_t again = random_below(n), token = random_below(V - 1);
        root(held[again], token);
        root(own[again], token);
        check_stock(w, held, n);
    }
    for (int32_t i = 0; i < n; i++) {
        check_stats(held[i], own[i]);
        specrt_session_close(own[i]);
        specrt_session_begin(held[i], NULL);
    }
    for (int32_t i = 0; i < n; i++) CHECK_INT(held[i]->pool->n_rows, held[0]->pool->n_rows);
    CHECK_INT(w->stock->n_held, held[0]->pool->n_rows); /* what ends a generation, if anything */
    for (int32_t i = 0; i < n; i++) specrt_session_close(held[i]);
    CHECK_INT(w->stock->n_held, 0);
    CHECK_INT(w->stock->n_sessions, 0);
    CHECK_INT(w->stock->n_promised, 0);
    specrt_stock_close(w->stock);
    w->stock = NULL;
    return n_shared;
}

TEST(batches, "any batch drafts as sessions with rows of their own") {
    static const char *const policies[] = {"window:90@min=120", "static:60+window:80@kver=8",
                                           "static:20+retrieve:40@graph=off@prompt=tokens",
                                           "static:60/25/9+window:40@min=0"};
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_Q4_0,
                                          SPECRT_DTYPE_F32};
    static const int32_t sizes[] = {1, 2, 3, 7, 15, 33, 65, MAX_N};
    int64_t n_shared[N_COSTS] = {0};
    static world w;
    for (int p = 0; p < 4; p++) {
        world_open(&w, dtypes[p], p != 1, policies[p], NULL);
        for (int i = 0; i < 8; i++)
            for (int kind = 0; kind < 3; kind++) {
                int costs = (i + p + kind) % N_COSTS;
                if (test_brief() && (i + kind) % 3 != 0) continue;
                n_shared[costs] += run_batches(&w, &kinds[kind], costs, sizes[i]);
            }
        world_close(&w);
    }
    CHECK(n_shared[COSTS_DEFAULT] > 0 && n_shared[COSTS_ALWAYS] > 0);
    CHECK_INT(n_shared[COSTS_NEVER], 0);
}

/* --- on threads --- */

typedef struct lent {
    void (*task)(void *arg, int64_t i);
    void *arg;
} lent;

static void lent_task(void *opaque, int64_t i, int worker) {
    const lent *l = (const lent *)opaque;
    (void)worker;
    l->task(l->arg, i);
}

static void lend(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    lent l = {task, arg};
    (void)user;
    sl_parallel_for(3, n, lent_task, &l);
}

TEST(threads, "also on lent threads") {
    static world w;
    specrt_env env = {.parallel_for = lend};
    world_open(&w, SPECRT_DTYPE_F16, true, "window:300@min=300", &env);
    CHECK(run_batches(&w, &kinds[0], COSTS_DEFAULT, 33) > 0);
    CHECK(run_batches(&w, &kinds[1], COSTS_ALWAYS, 9) > 0);
    world_close(&w);
}

/* --- limits --- */

/* As many sessions as there is room for, whatever they hold; the next when one has gone. */
TEST(full, "a full stock refuses the next session, not a row") {
    static world w;
    specrt_session *s[3];
    specrt_session_params params = {.n_logits = V, .tree = {2, 1, 3}};
    specrt_error err;
    int32_t text[100];
    world_open(&w, SPECRT_DTYPE_F32, true, "window:100@min=0", NULL);
    int32_t bound = specrt_policy_get_info(w.policy)->bound;
    open_stock(&w, COSTS_DEFAULT, 2 * bound);
    params.stock = w.stock;
    for (int i = 0; i < 2; i++) {
        s[i] = create_session(w.policy, &params, NULL);
        for (int32_t j = 0; j < 100; j++) text[j] = 50 + 300 * i + j;
        REQUIRE(specrt_session_begin(s[i], NULL) == SPECRT_STATUS_OK);
        REQUIRE(specrt_session_prefill(s[i], text, 100, NULL) == SPECRT_STATUS_OK);
        REQUIRE(specrt_session_start(s[i], text[0]) == SPECRT_STATUS_OK);
    }
    check_stock(&w, s, 2);
    CHECK_INT(w.stock->n_held, s[0]->pool->n_rows + s[1]->pool->n_rows - 1); /* one ends both */
    CHECK_INT(specrt_session_create(w.policy, &params, NULL, &s[2], &err), SPECRT_STATUS_BAD_ARG);
    CHECK(s[2] == NULL);
    CHECK_HAS(err.msg, "found 0 of");
    CHECK_HAS(err.msg, "n_rows 0");
    check_stock(&w, s, 2);
    specrt_session_close(s[0]);
    CHECK(specrt_session_create(w.policy, &params, NULL, &s[0], NULL) == SPECRT_STATUS_OK);
    check_stock(&w, s, 2);
    for (int i = 0; i < 2; i++) specrt_session_close(s[i]);
    CHECK_INT(w.stock->n_held, 0);
    world_close(&w);
}

TEST(refused, "what is no stock, and another head's") {
    static world w, other;
    static const double bad[3] = {1, 0, INFINITY};
    const specrt_stock_params refused[] = {{.n_rows = -1},
                                           {.n_rows = SPECRT_MAX_VOCAB + 1},
                                           {.n_costs = 1},
                                           {.costs = bad, .n_costs = 3},
                                           {.costs = bad + 1, .n_costs = 1},
                                           {.costs = bad + 2, .n_costs = 1},
                                           {.costs = bad, .n_costs = -1},
                                           {.costs = bad, .n_costs = 65}};
    specrt_stock *stock;
    specrt_session *s;
    specrt_error err;
    world_open(&w, SPECRT_DTYPE_F32, false, "window:40", NULL);
    world_open(&other, SPECRT_DTYPE_F32, false, "window:40", NULL);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(specrt_stock_create(w.head, &refused[i], NULL, &stock, &err),
                  SPECRT_STATUS_BAD_ARG);
        CHECK(stock == NULL);
        CHECK_HAS(err.msg, "stock: ");
    }
    open_stock(&w, COSTS_DEFAULT, 0);
    specrt_session_params params = {.n_logits = V, .tree = {2, 1, 3}, .stock = w.stock};
    CHECK_INT(specrt_session_create(other.policy, &params, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "another head");
    specrt_policy *indexed;
    indexed = create_policy(NULL, w.head, &(specrt_policy_desc){.text = "window:40@rows=indexed"});
    CHECK_INT(specrt_session_create(indexed, &params, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected rows=packed with params.stock");
    specrt_policy_close(indexed);
    specrt_stock_close(NULL);
    world_close(&w);
    world_close(&other);
}

TEST(memory, "memory is asked for in create, and given back where there is too little of it") {
    static world w;
    fixture_allocator a = {0};
    specrt_env env = fixture_desc(&a);
    specrt_session *s[4] = {NULL};
    specrt_session_params params = {.n_logits = V, .tree = {2, 1, 3}};
    specrt_beam beams[4];
    static float hidden[4 * D];
    double costs[64];
    const specrt_stock_params always = {.costs = costs, .n_costs = 64};
    size_t bytes;
    specrt_status status = SPECRT_STATUS_NO_MEMORY;
    world_open(&w, SPECRT_DTYPE_Q4_0, true, "window:90@min=60", NULL);
    a.fail_at = 1;
    CHECK_INT(specrt_stock_create(w.head, NULL, &env, &w.stock, NULL), SPECRT_STATUS_NO_MEMORY);
    CHECK(w.stock == NULL && a.n_live == 0);
    a.fail_at = 0;
    for (int i = 0; i < 64; i++) costs[i] = 1;
    REQUIRE(specrt_stock_create(w.head, &always, &env, &w.stock, NULL) == SPECRT_STATUS_OK);
    memcpy(&bytes, (uint8_t *)w.stock - FIXTURE_HEAD, sizeof bytes); /* rows are its end */
    CHECK(w.stock->rows + V * w.stock->row_stride <= (uint8_t *)w.stock + bytes);
    params.stock = w.stock;
    for (int fail = 1; status == SPECRT_STATUS_NO_MEMORY; fail++) {
        a.n_calls = 0, a.fail_at = fail;
        status = specrt_session_create(w.policy, &params, &env, &s[0], NULL);
        a.fail_at = 0;
        CHECK_INT(w.stock->n_sessions, s[0] != NULL);
        CHECK_INT(w.stock->n_promised, s[0] ? s[0]->pool->capacity : 0);
    }
    for (int i = 1; i < 4; i++) s[i] = create_session(w.policy, &params, &env);
    int64_t n_calls = a.n_calls;
    for (int i = 0; i < 4; i++) root(s[i], 7 * i);
    REQUIRE(specrt_session_expand_batch(s, 4, hidden, NULL, 4, beams) == SPECRT_STATUS_OK);
    for (int i = 0; i < 4; i++) specrt_session_begin(s[i], NULL);
    CHECK_INT(a.n_calls, n_calls);
    CHECK(w.stock->n_shared > 0);
    for (int i = 0; i < 4; i++) specrt_session_close(s[i]);
    world_close(&w);
    CHECK_INT(a.n_live, 0);
}
