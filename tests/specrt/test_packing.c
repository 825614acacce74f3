/* test_packing.c : membership and packed rows against sets written out; the scan for the best few. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
#include "fixture.h"
#include "test.h"

enum { N_IDS = 300, N_COLS = 64, CAPACITY = 90 };
static const int bits[3] = {SPECRT__ACTIVE_PINNED, SPECRT__ACTIVE_FILL, SPECRT__ACTIVE_WINDOW};

static uint64_t random_state = 99;
static int32_t random_below(int32_t n) {
    return (int32_t)((fixture_random(&random_state) >> 33) % (uint64_t)n);
}

static specrt_head *make_head(specrt_dtype dtype, const float *bias) {
    static uint8_t rows[N_IDS * N_COLS * 4];
    specrt_head *head;
    specrt_head_desc desc = {
        .rows = rows, .dtype = dtype, .n_rows = N_IDS, .n_cols = N_COLS, .bias = bias};
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(fixture_random(&random_state) & 63);
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &head, NULL) == SPECRT_STATUS_OK);
    return head;
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
static void check_slots(const specrt__active_pool *p, const bool *members) {
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
static void check_products(const specrt__active_pool *p) {
    static float packed[CAPACITY], whole[N_IDS];
    static int32_t all[N_IDS];
    float hidden[N_COLS];
    const specrt_head_desc *d = &p->head->desc;
    specrt_segment own,
        full = {d->rows, d->row_stride, all, d->bias, d->dtype, N_IDS, NULL, 0, NULL, 0};
    specrt__active_segment(p, &own);
    specrt_active few = {specrt_head_compute(p->head), &own, 1, own.n_rows, N_COLS};
    specrt_active many = {specrt_head_compute(p->head), &full, 1, N_IDS, N_COLS};
    for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    REQUIRE(specrt_active_logits(&few, hidden, 1, packed) == SPECRT_STATUS_OK);
    REQUIRE(specrt_active_logits(&many, hidden, 1, whole) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < own.n_rows; i++) REQUIRE(packed[i] == whole[own.ids[i]]);
}

/* Random wishes of three sources, with fixed and invalid ids among them. */
static void run_history(specrt_dtype dtype, const float *bias) {
    static bool wants[3][N_IDS], before[N_IDS], members[N_IDS];
    specrt_desc env = {.alloc = NULL};
    specrt_head *head = make_head(dtype, bias);
    specrt__active_pool *p = specrt__active_pool_create(head, N_IDS, CAPACITY, &env);
    REQUIRE(p && (uintptr_t)p->rows % 64 == 0);
    memset(wants, 0, sizeof wants);
    memset(before, 0, sizeof before);
    for (int32_t id = 0; id < N_IDS; id += 10) specrt__active_mark(p, id, SPECRT__ACTIVE_FIXED);
    int64_t n_copied = 0;
    for (int cycle = 0; cycle < 400; cycle++) {
        for (int i = random_below(80); i > 0; i--) {
            int32_t id = random_below(CAPACITY) * 3 % N_IDS, source = random_below(3);
            wants[source][id] = random_below(2) == 1;
            if (wants[source][id])
                specrt__active_want(p, id, bits[source]);
            else
                specrt__active_drop(p, id, bits[source]);
        }
        specrt__active_sync(p);
        for (int32_t id = 0; id < N_IDS; id++) {
            bool wanted = wants[0][id] || wants[1][id] || wants[2][id];
            CHECK(specrt__active_member(p, id) == (wanted || id % 10 == 0));
            members[id] = wanted && id % 10 != 0;
            n_copied += members[id] && !before[id];
        }
        check_slots(p, members);
        CHECK_INT(p->n_copied, n_copied);
        memcpy(before, members, sizeof before);
    }
    CHECK(p->n_moved > 0);
    if (dtype != SPECRT_DTYPE_Q4_0) check_products(p);
    specrt__active_pool_reset(p);
    specrt__active_sync(p);
    memset(members, 0, sizeof members);
    check_slots(p, members);
    CHECK(specrt__active_member(p, 10) && !specrt__active_member(p, 11));
    specrt__active_pool_free(p);
    specrt_head_close(head);
}

static void test_history(void) {
    static float bias[N_IDS];
    for (int i = 0; i < N_IDS; i++) bias[i] = (float)i / 7;
    run_history(SPECRT_DTYPE_F32, NULL);
    run_history(SPECRT_DTYPE_F16, bias);
    run_history(SPECRT_DTYPE_BF16, NULL);
    run_history(SPECRT_DTYPE_Q8_0, bias);
    run_history(SPECRT_DTYPE_Q4_0, bias);
}

/* Leaving and coming back before the next sync moves nothing; the full capacity fits. */
static void test_few_copies(void) {
    specrt_desc env = {.alloc = NULL};
    specrt_head *head = make_head(SPECRT_DTYPE_F16, NULL);
    specrt__active_pool *p = specrt__active_pool_create(head, N_IDS, CAPACITY, &env);
    for (int32_t id = 0; id < CAPACITY; id++) specrt__active_want(p, id, bits[2]);
    specrt__active_sync(p);
    CHECK_INT(p->n_copied, CAPACITY);
    for (int32_t id = 0; id < CAPACITY; id++) specrt__active_drop(p, id, bits[2]);
    for (int32_t id = CAPACITY; id > 0; id--) specrt__active_want(p, id, bits[2]);
    specrt__active_sync(p);
    CHECK_INT(p->n_rows, CAPACITY);
    CHECK_INT(p->n_copied, CAPACITY + 1);
    CHECK_INT(p->n_moved, 0);
    specrt__active_want(p, 5, bits[0]); /* a second source: nothing moves when the first lets go */
    specrt__active_drop(p, 5, bits[2]);
    specrt__active_sync(p);
    CHECK_INT(p->n_copied, CAPACITY + 1);
    specrt__active_mark(p, 200, SPECRT__ACTIVE_INVALID);
    CHECK(!specrt__active_valid(p, 200) && !specrt__active_valid(p, -1));
    CHECK(!specrt__active_valid(p, N_IDS) && specrt__active_valid(p, 201));
    specrt__active_pool_free(p);
    specrt__active_pool_free(NULL);
    specrt_head_close(head);
}

static void check_scan(const float *x, int32_t n, int32_t k) {
    int32_t ids[SPECRT_LOGITS_MAX_K], expected[SPECRT_LOGITS_MAX_K], n_expected = 0;
    for (; n_expected < k; n_expected++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++) {
            bool taken = false;
            for (int32_t j = 0; j < n_expected; j++) taken |= expected[j] == i;
            if (!taken && x[i] > -INFINITY && (best < 0 || x[i] > x[best])) best = i;
        }
        if (best < 0) break;
        expected[n_expected] = best;
    }
    REQUIRE(specrt_logits_topk(x, n, k, ids) == n_expected);
    for (int32_t j = 0; j < n_expected; j++) CHECK_INT(ids[j], expected[j]);
}

static void test_scan(void) {
    float x[400];
    for (int round = 0; round < 400; round++) {
        int32_t n = random_below(400);
        for (int32_t i = 0; i < n; i++) {
            x[i] = (float)random_below(round % 50 + 1); /* ties */
            if (round % 7 == 0 && random_below(3)) x[i] = random_below(2) ? NAN : -INFINITY;
        }
        if (round % 11 == 0 && n > 0) x[random_below(n)] = INFINITY;
        check_scan(x, n, random_below(SPECRT_LOGITS_MAX_K + 1));
    }
    int32_t ids[1];
    CHECK_INT(specrt_logits_topk(x, 400, SPECRT_LOGITS_MAX_K + 1, ids), 0);
    CHECK_INT(specrt_logits_topk(x, 400, -1, ids), 0);
}

static const test_case cases[] = {
    {"history", "rows, slots and copies follow random wishes, in every format", test_history},
    {"few_copies", "only the difference between two syncs is moved", test_few_copies},
    {"scan", "the best few of a row, ties, NaN and infinities", test_scan},
};
TEST_MAIN(cases)
