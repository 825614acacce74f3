/* test_pool.c : membership and packed rows against sets written out; ranges chosen whole, over tokens that
 * others hold too. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/cluster.h"
#include "opened.h"
#include "zeroed.h"

enum { N_IDS = 400, N_COLS = 96, CAPACITY = 90 };

static uint64_t random_state = 99;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* --- membership and packed rows --- */

static specrt_head *make_head(specrt_dtype dtype, const float *bias) {
    static uint8_t rows[N_IDS * N_COLS * 4];
    specrt_head_desc desc = {
        .rows = rows, .dtype = dtype, .n_rows = N_IDS, .n_cols = N_COLS, .bias = bias};
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(fixture_random(&random_state) & 63);
    return bind_head(NULL, &desc);
}

/* What row `id` must look like once packed. */
static void expected_row(const specrt_head *head, int32_t id, uint8_t *out) {
    const specrt_head_desc *d = &head->desc;
    const uint8_t *row = (const uint8_t *)d->rows + (size_t)id * d->row_stride;
    float values[N_COLS];
    if (d->dtype != SPECRT_DTYPE_Q4_0) {
        memcpy(out, row, specrt_row_bytes(d->dtype, N_COLS));
        return;
    }
    REQUIRE(specrt_row_decode(d->dtype, row, N_COLS, values) == SPECRT_STATUS_OK);
    for (int i = 0; i < N_COLS; i++) {
        uint16_t half = specrt__base_to_f16(values[i]);
        memcpy(out + 2 * i, &half, 2);
    }
}

/* The slots hold exactly `members`, each row once and right. */
static void check_slots(const specrt__pool *p, const bool *members) {
    uint8_t row[N_COLS * 4];
    int32_t n = 0;
    for (int32_t id = 0; id < N_IDS; id++) {
        n += members[id];
        REQUIRE((p->slots[id] >= 0) == members[id]);
        if (members[id]) REQUIRE(p->ids[p->slots[id]] == id);
    }
    REQUIRE(p->n_rows == n && p->n_wanted == n);
    for (int32_t slot = 0; slot < n; slot++) {
        expected_row(p->head, p->ids[slot], row);
        REQUIRE(memcmp(p->rows + (size_t)slot * p->row_stride, row, p->row_stride) == 0);
        if (p->bias) REQUIRE(p->bias[slot] == p->head->desc.bias[p->ids[slot]]);
    }
}

/* Products with the packed rows are those with the head's own, bit for bit. */
static void check_products(const specrt__pool *p) {
    static float packed[CAPACITY], whole[N_IDS];
    static int32_t all[N_IDS];
    float hidden[N_COLS];
    const specrt_head_desc *d = &p->head->desc;
    specrt_segment own,
        full = {d->rows, d->row_stride, all, d->bias, d->dtype, N_IDS, NULL, 0, NULL, 0};
    specrt__pool_segment(p, &own);
    specrt_shortlist few = {specrt_head_compute(p->head), &own, 1, own.n_rows, N_COLS, NULL};
    specrt_shortlist many = {specrt_head_compute(p->head), &full, 1, N_IDS, N_COLS, NULL};
    for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    REQUIRE(specrt_shortlist_logits(&few, hidden, 1, packed) == SPECRT_STATUS_OK);
    REQUIRE(specrt_shortlist_logits(&many, hidden, 1, whole) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < own.n_rows; i++) REQUIRE(packed[i] == whole[own.ids[i]]);
}

/* Random wishes of terminators, of the fill, and of the first and the last of as many sources as there may
 * be, with fixed and invalid ids among them. */
static void run_history(specrt_dtype dtype, const float *bias) {
    static bool wants[4][N_IDS], before[N_IDS], members[N_IDS];
    int32_t bits[4] = {SPECRT__POOL_PINNED, SPECRT__POOL_FILL};
    specrt_head *head = make_head(dtype, bias);
    specrt__pool *p = specrt__pool_create(head, N_IDS, CAPACITY, &zeroed);
    REQUIRE(p && (uintptr_t)p->rows % 64 == 0);
    bits[2] = specrt__pool_register(p);
    for (int i = 1; i < SPECRT__POOL_MAX_SOURCES; i++) bits[3] = specrt__pool_register(p);
    memset(wants, 0, sizeof wants);
    memset(before, 0, sizeof before);
    for (int32_t id = 1; id < N_IDS; id += 10) specrt__pool_mark(p, id, SPECRT__POOL_FIXED);
    int64_t n_copied = 0;
    for (int cycle = 0; cycle < 400; cycle++) {
        for (int i = random_below(80); i > 0; i--) {
            int32_t id = random_below(CAPACITY) * 3 % N_IDS, source = random_below(4);
            wants[source][id] = random_below(2) == 1;
            if (wants[source][id])
                specrt__pool_want(p, id, bits[source]);
            else
                specrt__pool_drop(p, id, bits[source]);
        }
        specrt__pool_sync(p);
        for (int32_t id = 0; id < N_IDS; id++) {
            bool wanted = wants[0][id] || wants[1][id] || wants[2][id] || wants[3][id];
            CHECK(specrt__pool_member(p, id) == (wanted || id % 10 == 1));
            members[id] = wanted && id % 10 != 1;
            n_copied += members[id] && !before[id];
        }
        check_slots(p, members);
        CHECK_INT(p->n_copied, n_copied);
        memcpy(before, members, sizeof before);
    }
    CHECK(p->n_moved > 0);
    if (dtype != SPECRT_DTYPE_Q4_0) check_products(p);
    specrt__pool_reset(p);
    specrt__pool_sync(p);
    memset(members, 0, sizeof members);
    check_slots(p, members);
    CHECK(specrt__pool_member(p, 11) && !specrt__pool_member(p, 10));
    CHECK(!specrt__pool_member(p, -1) && !specrt__pool_member(p, N_IDS));
    specrt__pool_free(p);
    specrt_head_close(head);
}

TEST(history, "rows, slots and copies follow random wishes, in every format") {
    static float bias[N_IDS];
    for (int i = 0; i < N_IDS; i++) bias[i] = (float)i / 7;
    run_history(SPECRT_DTYPE_F32, NULL);
    run_history(SPECRT_DTYPE_F16, bias);
    run_history(SPECRT_DTYPE_BF16, NULL);
    run_history(SPECRT_DTYPE_Q8_0, bias);
    run_history(SPECRT_DTYPE_Q4_0, bias);
}

/* Random wishes, packed and in place: the same slots, and the same logits bit for bit. */
static void run_in_place(specrt_dtype dtype, const float *bias) {
    static float packed[CAPACITY], placed[CAPACITY];
    float hidden[N_COLS];
    specrt_head *head = make_head(dtype, bias);
    specrt__pool *pools[2] = {
        specrt__pool_create(head, N_IDS, CAPACITY, &zeroed),
        specrt__pool_make(head, N_IDS, CAPACITY, NULL, true, &zeroed),
    };
    specrt_segment s[2];
    for (int cycle = 0; cycle < 200; cycle++) {
        for (int i = random_below(60); i > 0; i--) {
            int32_t id = random_below(CAPACITY) * 3 % N_IDS, bit = SPECRT__POOL_FILL;
            bool want = random_below(2) == 1;
            for (int k = 0; k < 2; k++)
                want ? specrt__pool_want(pools[k], id, bit) : specrt__pool_drop(pools[k], id, bit);
        }
        for (int k = 0; k < 2; k++)
            specrt__pool_sync(pools[k]), specrt__pool_segment(pools[k], &s[k]);
        REQUIRE(s[0].n_rows == s[1].n_rows && s[1].rows == head->desc.rows);
        REQUIRE(memcmp(s[0].ids, s[1].ids, (size_t)s[0].n_rows * sizeof *s[0].ids) == 0);
        specrt_shortlist few[2] = {
            {specrt_head_compute(head), &s[0], 1, s[0].n_rows, N_COLS, NULL},
            {specrt_head_compute(head), &s[1], 1, s[1].n_rows, N_COLS, NULL},
        };
        for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
        if (s[0].n_rows == 0) continue;
        REQUIRE(specrt_shortlist_logits(&few[0], hidden, 1, packed) == SPECRT_STATUS_OK);
        REQUIRE(specrt_shortlist_logits(&few[1], hidden, 1, placed) == SPECRT_STATUS_OK);
        REQUIRE(memcmp(packed, placed, (size_t)s[0].n_rows * sizeof *packed) == 0);
    }
    CHECK(pools[0]->n_copied > 0 && pools[0]->n_moved > 0);
    CHECK_INT(pools[1]->n_copied, 0);
    for (int k = 0; k < 2; k++) specrt__pool_free(pools[k]);
    specrt_head_close(head);
}

TEST(in_place, "rows in the head give what packed ones give") {
    static float bias[N_IDS];
    for (int i = 0; i < N_IDS; i++) bias[i] = (float)i / 7;
    run_in_place(SPECRT_DTYPE_F32, bias);
    run_in_place(SPECRT_DTYPE_F16, NULL);
    run_in_place(SPECRT_DTYPE_BF16, bias);
    run_in_place(SPECRT_DTYPE_Q8_0, NULL);
}

/* Leaving and coming back before the next sync moves nothing; the full capacity fits. */
TEST(few_copies, "only the difference between two syncs is moved") {
    specrt_head *head = make_head(SPECRT_DTYPE_F16, NULL);
    specrt__pool *p = specrt__pool_create(head, N_IDS, CAPACITY, &zeroed);
    int32_t bit = specrt__pool_register(p), other = specrt__pool_register(p);
    for (int32_t id = 0; id < CAPACITY; id++) specrt__pool_want(p, id, bit);
    specrt__pool_sync(p);
    CHECK_INT(p->n_copied, CAPACITY);
    for (int32_t id = 0; id < CAPACITY; id++) specrt__pool_drop(p, id, bit);
    for (int32_t id = CAPACITY; id > 0; id--) specrt__pool_want(p, id, bit);
    specrt__pool_sync(p);
    CHECK_INT(p->n_rows, CAPACITY);
    CHECK_INT(p->n_copied, CAPACITY + 1);
    CHECK_INT(p->n_moved, 0);
    specrt__pool_want(p, 5, other); /* a second source: nothing moves when the first lets go */
    specrt__pool_drop(p, 5, bit);
    specrt__pool_sync(p);
    CHECK_INT(p->n_copied, CAPACITY + 1);
    specrt__pool_mark(p, 200, SPECRT__POOL_INVALID);
    CHECK(!specrt__pool_valid(p, 200) && !specrt__pool_valid(p, -1));
    CHECK(!specrt__pool_valid(p, N_IDS) && specrt__pool_valid(p, 201));
    specrt__pool_free(p);
    specrt__pool_free(NULL);
    specrt_head_close(head);
}

/* --- routed ranges: each token is scored once --- */

enum { MAX_ROWS = 300, N_RANGES = 4, ROUNDS = 40 };

typedef struct world {
    float rows[N_IDS * N_COLS];
    specrt_head *head;
    specrt__pool *pool;
    specrt__source_routed *routed;
    int32_t order[N_IDS]; /* ranges lie in a shuffled copy of the head, as clusters do */
    float shuffled[N_IDS * N_COLS];
} world;

static void world_make(world *w) {
    specrt_env env = {0};
    for (int i = 0; i < N_IDS * N_COLS; i++) w->rows[i] = fixture_normal(&random_state);
    w->head = bind_rows(NULL, w->rows, N_IDS, N_COLS);
    w->pool = specrt__pool_create(w->head, N_IDS, CAPACITY, &env);
    w->routed = (specrt__source_routed *)calloc(1, sizeof *w->routed);
    REQUIRE(w->pool && w->routed);
    w->routed->pool = w->pool;
    w->routed->levels = (uint32_t *)calloc(N_IDS, sizeof(uint32_t));
    w->routed->masked = (int32_t *)calloc(MAX_ROWS, sizeof(int32_t));
    w->routed->max_rows = MAX_ROWS;
    for (int32_t i = 0; i < N_IDS; i++) w->order[i] = i;
    for (int32_t i = N_IDS - 1; i > 0; i--) {
        int32_t j = random_below(i + 1), t = w->order[i];
        w->order[i] = w->order[j], w->order[j] = t;
    }
    for (int32_t i = 0; i < N_IDS; i++)
        memcpy(w->shuffled + i * N_COLS, w->rows + w->order[i] * N_COLS, N_COLS * sizeof(float));
}

static void world_free(world *w) {
    free(w->routed->levels);
    free(w->routed->masked);
    free(w->routed);
    specrt__pool_free(w->pool);
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
        int32_t id = random_below(N_IDS);
        if (specrt__pool_valid(w->pool, id)) specrt__pool_want(w->pool, id, SPECRT__POOL_SOURCE);
    }
    specrt__pool_sync(w->pool);
    for (int32_t id = 0; id < N_IDS; id++) member[id] = specrt__pool_member(w->pool, id);
    specrt__pool_segment(w->pool, &segments[0]);
    w->routed->level = level;
    w->routed->n_segments = w->routed->n_rows = w->routed->n_masked = 0;
    for (int i = 0; i < N_RANGES; i++) {
        int32_t first = random_below(N_IDS - 60);
        specrt_segment s = range_of(w, first, 1 + random_below(60));
        REQUIRE(specrt__source_route(w->routed, &s));
        for (int32_t r = 0; r < s.n_rows; r++)
            if (specrt__pool_valid(w->pool, s.ids[r])) member[s.ids[r]] = true;
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

TEST(union, "overlapping ranges rank as a plain softmax over the union") {
    enum { K = 20 };
    static world w;
    world_make(&w);
    for (int32_t id = 0; id < N_IDS; id += 17) specrt__pool_mark(w.pool, id, SPECRT__POOL_INVALID);
    for (int32_t round = 0; round < ROUNDS; round++) {
        bool member[N_IDS], seen[N_IDS] = {false};
        specrt_segment segments[1 + N_RANGES];
        specrt_shortlist shortlist = {&w.head->compute, segments, 0, 0, N_COLS, NULL};
        float hidden[N_COLS], logits[CAPACITY + MAX_ROWS], logprobs[K];
        int32_t ids[K];
        choose(&w, round % 32, member, segments, &shortlist.n_segments);
        if (round % 32 == 31) memset(w.routed->levels, 0, N_IDS * sizeof(uint32_t));
        for (int i = 0; i < shortlist.n_segments; i++) shortlist.n_rows += segments[i].n_rows;
        for (int j = 0; j < N_COLS; j++) hidden[j] = fixture_normal(&random_state);
        REQUIRE(specrt_shortlist_logits(&shortlist, hidden, 1, logits) == SPECRT_STATUS_OK);
        REQUIRE(specrt_shortlist_topk(&shortlist, logits, 1, K, ids, logprobs) == SPECRT_STATUS_OK);
        for (int i = 0; i < K; i++) {
            CHECK(member[ids[i]] && !seen[ids[i]]);
            seen[ids[i]] = true;
            CHECK_NEAR(logprobs[i], logprob_of(&w, member, hidden, ids[i]), 1e-4);
        }
        specrt__pool_reset(w.pool);
    }
    world_free(&w);
}

TEST(bounds, "what does not fit is refused whole; levels count apart") {
    static world w;
    world_make(&w);
    specrt_segment s = range_of(&w, 0, 200);
    CHECK(specrt__source_route(w.routed, &s));
    CHECK_INT(w.routed->n_masked, 0);
    s.n_rows = MAX_ROWS - 200 + 1;
    CHECK(!specrt__source_route(w.routed, &s));
    CHECK_INT(w.routed->n_segments, 1);
    s.n_rows = MAX_ROWS - 200;
    CHECK(specrt__source_route(w.routed, &s));
    CHECK_INT(w.routed->segments[1].n_masked, MAX_ROWS - 200);
    w.routed->level = 1;
    w.routed->n_segments = w.routed->n_rows = w.routed->n_masked = 0;
    s.n_rows = 0;
    CHECK(specrt__source_route(w.routed, &s));
    CHECK_INT(w.routed->n_segments, 0);
    s.n_rows = 50;
    CHECK(specrt__source_route(w.routed, &s));
    CHECK_INT(w.routed->n_masked, 0);
    world_free(&w);
    /* All that a policy may route: clusters by three routers, what always comes with each, other lists. */
    CHECK(3 * (SPECRT__CLUSTER_MOST + 1) + 3 <= SPECRT__SOURCE_MAX_SEGMENTS);
}
