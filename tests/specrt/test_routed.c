/* test_routed.c : ranges chosen whole, over tokens that others hold too: each token is scored once. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
#include "fixture.h"
#include "test.h"

enum { N_IDS = 400, N_COLS = 32, CAPACITY = 64, MAX_ROWS = 300, N_RANGES = 4, ROUNDS = 40 };

static uint64_t state = 11;
static int32_t below(int32_t n) {
    return (int32_t)((fixture_random(&state) >> 33) % (uint64_t)n);
}

typedef struct world {
    float rows[N_IDS * N_COLS];
    specrt_head *head;
    specrt__active_pool *pool;
    specrt__active_routed *routed;
    int32_t order[N_IDS]; /* ranges lie in a shuffled copy of the head, as clusters do */
    float shuffled[N_IDS * N_COLS];
} world;

static void world_make(world *w) {
    specrt_desc env = {0};
    for (int i = 0; i < N_IDS * N_COLS; i++) w->rows[i] = fixture_normal(&state);
    specrt_head_desc desc = {
        .rows = w->rows, .dtype = SPECRT_DTYPE_F32, .n_rows = N_IDS, .n_cols = N_COLS};
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &w->head, NULL) == SPECRT_STATUS_OK);
    w->pool = specrt__active_pool_create(w->head, N_IDS, CAPACITY, &env);
    w->routed = (specrt__active_routed *)calloc(1, sizeof *w->routed);
    REQUIRE(w->pool && w->routed);
    w->routed->pool = w->pool;
    w->routed->levels = (uint32_t *)calloc(N_IDS, sizeof(uint32_t));
    w->routed->masked = (int32_t *)calloc(MAX_ROWS, sizeof(int32_t));
    w->routed->max_rows = MAX_ROWS;
    for (int32_t i = 0; i < N_IDS; i++) w->order[i] = i;
    for (int32_t i = N_IDS - 1; i > 0; i--) {
        int32_t j = below(i + 1), t = w->order[i];
        w->order[i] = w->order[j], w->order[j] = t;
    }
    for (int32_t i = 0; i < N_IDS; i++)
        memcpy(w->shuffled + i * N_COLS, w->rows + w->order[i] * N_COLS, N_COLS * sizeof(float));
}

static void world_free(world *w) {
    free(w->routed->levels);
    free(w->routed->masked);
    free(w->routed);
    specrt__active_pool_free(w->pool);
    specrt_head_close(w->head);
}

static specrt_segment range_of(const world *w, int32_t first, int32_t n) {
    return (specrt_segment){.rows = w->shuffled + first * N_COLS,
                            .row_stride = N_COLS * sizeof(float),
                            .ids = w->order + first,
                            .dtype = SPECRT_DTYPE_F32,
                            .n_rows = n};
}

/* Packs some tokens, forbids others and routes overlapping ranges; `member` is the union. */
static void choose(world *w, int32_t level, bool member[N_IDS], specrt_segment *segments,
                   int32_t *n_segments) {
    memset(member, 0, N_IDS * sizeof *member);
    for (int i = 0; i < CAPACITY / 2; i++) {
        int32_t id = below(N_IDS);
        if (specrt__active_valid(w->pool, id))
            specrt__active_want(w->pool, id, SPECRT__ACTIVE_WINDOW);
    }
    specrt__active_sync(w->pool);
    for (int32_t id = 0; id < N_IDS; id++) member[id] = specrt__active_member(w->pool, id);
    specrt__active_segment(w->pool, &segments[0]);
    w->routed->level = level;
    w->routed->n_segments = w->routed->n_rows = w->routed->n_masked = 0;
    for (int i = 0; i < N_RANGES; i++) {
        int32_t first = below(N_IDS - 60);
        specrt_segment s = range_of(w, first, 1 + below(60));
        REQUIRE(specrt__active_route(w->routed, &s));
        for (int32_t r = 0; r < s.n_rows; r++)
            if (specrt__active_valid(w->pool, s.ids[r])) member[s.ids[r]] = true;
    }
    memcpy(segments + 1, w->routed->segments, N_RANGES * sizeof *segments);
    *n_segments = 1 + N_RANGES;
}

/* log p over the union, by the definition. */
static double logprob_of(const world *w, const bool *member, const float *hidden, int32_t id) {
    double sum = 0, own = 0;
    for (int32_t i = 0; i < N_IDS; i++) {
        double x = 0;
        for (int j = 0; j < N_COLS; j++) x += (double)w->rows[i * N_COLS + j] * hidden[j];
        if (i == id) own = x;
        if (member[i]) sum += exp(x);
    }
    return own - log(sum);
}

static void test_union(void) {
    enum { K = 20 };
    static world w;
    world_make(&w);
    for (int32_t id = 0; id < N_IDS; id += 17)
        specrt__active_mark(w.pool, id, SPECRT__ACTIVE_INVALID);
    for (int32_t round = 0; round < ROUNDS; round++) {
        bool member[N_IDS], seen[N_IDS] = {false};
        specrt_segment segments[1 + N_RANGES];
        specrt_active active = {&w.head->compute, segments, 0, 0, N_COLS};
        float hidden[N_COLS], logits[CAPACITY + MAX_ROWS], logprobs[K];
        int32_t ids[K];
        choose(&w, round % 32, member, segments, &active.n_segments);
        if (round % 32 == 31) memset(w.routed->levels, 0, N_IDS * sizeof(uint32_t));
        for (int i = 0; i < active.n_segments; i++) active.n_rows += segments[i].n_rows;
        for (int j = 0; j < N_COLS; j++) hidden[j] = fixture_normal(&state);
        REQUIRE(specrt_active_logits(&active, hidden, 1, logits) == SPECRT_STATUS_OK);
        REQUIRE(specrt_active_topk(&active, logits, 1, K, ids, logprobs) == SPECRT_STATUS_OK);
        for (int i = 0; i < K; i++) {
            CHECK(member[ids[i]] && !seen[ids[i]]);
            seen[ids[i]] = true;
            CHECK_NEAR(logprobs[i], logprob_of(&w, member, hidden, ids[i]), 1e-4);
        }
        specrt__active_pool_reset(w.pool);
    }
    world_free(&w);
}

/* Beyond its bounds nothing is added, and the same range at another level counts anew. */
static void test_bounds(void) {
    static world w;
    world_make(&w);
    specrt_segment s = range_of(&w, 0, 200);
    CHECK(specrt__active_route(w.routed, &s));
    CHECK_INT(w.routed->n_masked, 0);
    s.n_rows = MAX_ROWS - 200 + 1;
    CHECK(!specrt__active_route(w.routed, &s));
    CHECK_INT(w.routed->n_segments, 1);
    s.n_rows = MAX_ROWS - 200;
    CHECK(specrt__active_route(w.routed, &s));
    CHECK_INT(w.routed->segments[1].n_masked, MAX_ROWS - 200);
    w.routed->level = 1;
    w.routed->n_segments = w.routed->n_rows = w.routed->n_masked = 0;
    s.n_rows = 0;
    CHECK(specrt__active_route(w.routed, &s));
    CHECK_INT(w.routed->n_segments, 0);
    s.n_rows = 50;
    CHECK(specrt__active_route(w.routed, &s));
    CHECK_INT(w.routed->n_masked, 0);
    world_free(&w);
    /* All that a policy may route: clusters by three routers, what always comes with each, other lists. */
    CHECK(3 * (SPECRT__CLUSTER_MOST + 1) + 3 <= SPECRT__ACTIVE_MAX_SEGMENTS);
}

static const test_case cases[] = {
    {"union", "overlapping ranges rank as a plain softmax over the union", test_union},
    {"bounds", "what does not fit is refused whole; levels count apart", test_bounds},
};
TEST_MAIN(cases)
