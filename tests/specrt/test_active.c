/* test_active.c : products and ranking over a list of segments, against brute force; membership and packed
 * rows against sets written out; ranges chosen whole, over tokens that others hold too. */
#include <stdlib.h>

/* Whatever the header would allocate behind specrt_desc's back is counted too. */
static int n_mallocs;
static void *counted_malloc(size_t n) {
    n_mallocs++;
    return malloc(n);
}
#define malloc(n) counted_malloc(n)
#include "specrt_tools.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/cluster.h"
#undef malloc

#include "fixture.h"
#include "base/parallel.h"
#include "test.h"

enum { N_IDS = 400, N_COLS = 96, CAPACITY = 90 };

static uint64_t random_state = 99;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* Three segments of different types over distinct ids in no order, one with a bias. */
typedef struct list {
    specrt_head *head;
    specrt_segment segments[3];
    specrt_active active;
    float *rows[3], *bias;
    int32_t *ids;
} list;

static list *list_make(const int32_t sizes[3], const specrt_desc *env, uint64_t seed) {
    list *l = (list *)calloc(1, sizeof *l);
    int32_t n = sizes[0] + sizes[1] + sizes[2], done = 0;
    l->ids = (int32_t *)calloc((size_t)n, sizeof *l->ids);
    l->bias = (float *)calloc((size_t)n, sizeof *l->bias);
    for (int32_t i = 0; i < n; i++) l->ids[i] = 3 * i + 1, l->bias[i] = fixture_normal(&seed);
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)(fixture_random(&seed) % (uint64_t)(i + 1)), t = l->ids[i];
        l->ids[i] = l->ids[j], l->ids[j] = t;
    }
    for (int s = 0; s < 3; s++) {
        size_t n_values = (size_t)sizes[s] * N_COLS;
        l->rows[s] = (float *)calloc(n_values + 1, sizeof(float));
        for (size_t i = 0; i < n_values; i++) {
            float x = fixture_normal(&seed);
            uint16_t half = specrt__base_to_f16(x);
            if (s == 1)
                memcpy((uint8_t *)l->rows[s] + 2 * i, &half, 2);
            else
                l->rows[s][i] = x;
        }
        specrt_dtype dtype = s == 1 ? SPECRT_DTYPE_F16 : SPECRT_DTYPE_F32;
        l->segments[s] = (specrt_segment){l->rows[s],    specrt_row_bytes(dtype, N_COLS),
                                          l->ids + done, s == 2 ? l->bias + done : NULL,
                                          dtype,         sizes[s],
                                          NULL,          0,
                                          NULL,          0};
        done += sizes[s];
    }
    specrt_head_desc desc = {.rows = l->rows, .n_rows = 1, .n_cols = 1, .dtype = SPECRT_DTYPE_F32};
    REQUIRE(specrt_head_bind(NULL, &desc, env, &l->head, NULL) == SPECRT_STATUS_OK);
    l->active = (specrt_active){&l->head->compute, l->segments, 3, n, N_COLS, NULL};
    return l;
}

static void list_free(list *l) {
    for (int s = 0; s < 3; s++) free(l->rows[s]);
    specrt_head_close(l->head);
    free(l->ids), free(l->bias), free(l);
}

/* --- logits --- */

static double value_at(const specrt_segment *s, int32_t row, int64_t col) {
    const uint8_t *p = (const uint8_t *)s->rows + (size_t)row * s->row_stride;
    if (s->dtype == SPECRT_DTYPE_F16) return specrt__base_f16(specrt__base_load16(p + 2 * col));
    return specrt__base_float(specrt__base_load32(p + 4 * col));
}

static void test_logits(void) {
    const int32_t shapes[][3] = {{1, 0, 0}, {3, 5, 2}, {0, 0, 7}, {128, 129, 127}, {300, 1, 513}};
    for (size_t t = 0; t < sizeof shapes / sizeof shapes[0]; t++) {
        enum { N = 5 };
        list *l = list_make(shapes[t], NULL, t + 1);
        int32_t n_rows = l->active.n_rows;
        uint64_t seed = 77;
        float hidden[N * N_COLS], *logits = (float *)calloc((size_t)n_rows * N + 1, sizeof(float));
        for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
        logits[n_rows * N] = 12345;
        CHECK_INT(specrt_active_logits(&l->active, hidden, N, logits), SPECRT_STATUS_OK);
        for (int h = 0; h < N; h++) {
            const float *out = logits + h * n_rows;
            for (int s = 0; s < 3; out += shapes[t][s++])
                for (int32_t r = 0; r < shapes[t][s]; r++) {
                    double sum = s == 2 ? (double)l->segments[2].bias[r] : 0.0;
                    for (int j = 0; j < N_COLS; j++)
                        sum += value_at(&l->segments[s], r, j) * hidden[h * N_COLS + j];
                    CHECK_NEAR(out[r], sum, 1e-4);
                }
        }
        CHECK(logits[n_rows * N] == 12345);
        free(logits);
        list_free(l);
    }
}

/* Rows that several sequences share: with and without a bias, side by side and here and there. */
static void test_shared(void) {
    enum { N = 3, ROWS = 301 };
    const int32_t sizes[3] = {ROWS, 1, ROWS};
    list *l = list_make(sizes, NULL, 6);
    uint64_t seed = 78;
    int32_t places[ROWS];
    float hidden[N * N_COLS], expected[N * ROWS], got[N * ROWS];
    float *const each[N] = {got, got + ROWS, got + 2 * ROWS};
    specrt_segment segments[3] = {l->segments[0], l->segments[2], l->segments[2]};
    for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
    for (int32_t i = 0; i < ROWS; i++) places[i] = 5 * i % ROWS;
    segments[2].places = places;
    for (int s = 0; s < 3; s++) {
        specrt_active active = {&l->head->compute, &segments[s], 1, ROWS, N_COLS, NULL};
        specrt__active_shared shared = {&active, hidden, N, each};
        REQUIRE(!specrt_active_logits(&active, hidden, N, expected));
        specrt__active_share(&shared);
        CHECK(memcmp(got, expected, sizeof got) == 0);
    }
    list_free(l);
}

/* Applications run tasks on their threads, in any order. */
static void run_backwards(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    (void)user;
    while (n-- > 0) task(arg, n);
}

typedef struct lent {
    void (*task)(void *arg, int64_t i);
    void *arg;
} lent;

static void lent_block(void *opaque, int64_t block, int worker) {
    (void)worker;
    const lent *l = (const lent *)opaque;
    l->task(l->arg, block);
}

static void run_threads(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    lent l = {task, arg};
    (void)user;
    sl_parallel_for(3, n, lent_block, &l);
}

/* Products of the list's rows, less what is masked, as a head of this scale and cap has them. */
static double shaped_at(const list *l, const specrt_head_desc *desc, int s, int32_t r,
                        const float *hidden) {
    const specrt_segment *segment = &l->segments[s];
    double x = s == 2 ? (double)segment->bias[r] : 0, cap = (double)desc->softcap;
    for (int32_t i = 0; i < segment->n_masked; i++)
        if (segment->masked[i] == r) return -INFINITY;
    for (int j = 0; j < N_COLS; j++) x += value_at(segment, r, j) * (double)hidden[j];
    if (desc->logit_scale != 0) x *= (double)desc->logit_scale;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* Logits that are scaled and capped, and probabilities of those; what is masked stays out, and the bits of
 * a head that does neither are the products'. */
static void test_shape(void) {
    enum { N = 3, K = 9, ROWS = 233 };
    static const float shapes[][2] = {{0, 0}, {1, 0}, {0.125f, 0}, {0, 5}, {2.5f, 30}};
    static const int32_t sizes[3] = {140, 60, 33}, masked[] = {4, 17};
    for (size_t t = 0; t < sizeof shapes / sizeof *shapes; t++) {
        list *l = list_make(sizes, NULL, 5);
        static float logits[N * ROWS], products[N * ROWS], logprobs[N * K];
        static double expected[N * ROWS];
        float hidden[N * N_COLS];
        int32_t ids[N * K];
        uint64_t seed = 78;
        specrt_head_desc desc = {.rows = l->rows[0],
                                 .dtype = SPECRT_DTYPE_F32,
                                 .n_rows = 1,
                                 .n_cols = N_COLS,
                                 .logit_scale = shapes[t][0],
                                 .softcap = shapes[t][1]};
        specrt_head_close(l->head);
        REQUIRE(specrt_head_bind(NULL, &desc, NULL, &l->head, NULL) == SPECRT_STATUS_OK);
        l->active.compute = &l->head->compute;
        l->segments[1].masked = masked, l->segments[1].n_masked = 2;
        for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
        REQUIRE(specrt_active_logits(&l->active, hidden, N, products) == SPECRT_STATUS_OK);
        l->active.head = l->head;
        REQUIRE(specrt_active_logits(&l->active, hidden, N, logits) == SPECRT_STATUS_OK);
        REQUIRE(specrt_active_topk(&l->active, logits, N, K, ids, logprobs) == SPECRT_STATUS_OK);
        if (t < 2) CHECK(memcmp(products, logits, sizeof logits) == 0);
        for (int h = 0, at = 0; h < N; h++) {
            double total = 0;
            for (int s = 0; s < 3; s++)
                for (int32_t r = 0; r < sizes[s]; r++, at++) {
                    expected[at] = shaped_at(l, &desc, s, r, hidden + h * N_COLS);
                    if (expected[at] > -INFINITY)
                        CHECK_NEAR((double)logits[at], expected[at], 1e-4);
                    else
                        CHECK(logits[at] == -INFINITY);
                    total += exp(expected[at]);
                }
            for (int k = 0; k < K; k++) {
                int column = 0;
                while (l->ids[column] != ids[h * K + k]) column++;
                CHECK_NEAR((double)logprobs[h * K + k], expected[h * ROWS + column] - log(total),
                           2e-4);
            }
        }
        list_free(l);
    }
}

static void test_parallel(void) {
    enum { N = 6, K = 20 };
    const int32_t sizes[3] = {700, 300, 129};
    const int32_t n_rows = 1129;
    void (*runs[])(void *, int64_t, void (*)(void *, int64_t), void *) = {NULL, run_backwards,
                                                                          run_threads};
    float hidden[N * N_COLS], *logits[3], logprobs[3][N * K];
    int32_t ids[3][N * K];
    uint64_t seed = 5;
    for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
    for (int r = 0; r < 3; r++) {
        specrt_desc env = {.parallel_for = runs[r]};
        list *l = list_make(sizes, &env, 9);
        logits[r] = (float *)calloc(N * (size_t)n_rows, sizeof(float));
        CHECK_INT(specrt_active_logits(&l->active, hidden, N, logits[r]), SPECRT_STATUS_OK);
        CHECK_INT(specrt_active_topk(&l->active, logits[r], N, K, ids[r], logprobs[r]),
                  SPECRT_STATUS_OK);
        list_free(l);
    }
    for (int r = 1; r < 3; r++) {
        CHECK(memcmp(logits[0], logits[r], N * (size_t)n_rows * sizeof(float)) == 0);
        CHECK(memcmp(ids[0], ids[r], sizeof ids[0]) == 0);
        CHECK(memcmp(logprobs[0], logprobs[r], sizeof logprobs[0]) == 0);
    }
    for (int r = 0; r < 3; r++) free(logits[r]);
}

/* --- the best k --- */

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

static int better(const void *a, const void *b) {
    const candidate *x = (const candidate *)a, *y = (const candidate *)b;
    if (isnan(x->logit) != isnan(y->logit)) return isnan(x->logit) ? 1 : -1;
    if (!isnan(x->logit) && x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* log p by the definition, in long double; infinite logits by the limit. */
static long double logprob(const candidate *sorted, int32_t n, int32_t i) {
    float max = sorted[0].logit, x = sorted[i].logit;
    long double sum = 0;
    if (isnan(x)) return -INFINITY;
    for (int32_t k = 0; k < n; k++)
        if (!isnan(sorted[k].logit))
            sum += sorted[k].logit == max ? 1
                   : isinf(max)           ? 0
                                          : expl((long double)sorted[k].logit - max);
    return (x == max ? 0 : (long double)x - max) - logl(sum);
}

static void check_topk(const list *l, const float *logits, int32_t k) {
    int32_t n = l->active.n_rows, ids[256];
    float logprobs[256];
    candidate *all = (candidate *)calloc((size_t)n, sizeof *all);
    for (int32_t i = 0; i < n; i++) all[i] = (candidate){logits[i], l->ids[i]};
    qsort(all, (size_t)n, sizeof *all, better);
    CHECK_INT(specrt_active_topk(&l->active, logits, 1, k, ids, logprobs), SPECRT_STATUS_OK);
    for (int32_t i = 0; i < k; i++) {
        long double expected = logprob(all, n, i);
        CHECK_INT(ids[i], all[i].id);
        if (isinf(expected))
            CHECK(isinf(logprobs[i]) && logprobs[i] < 0);
        else
            CHECK_NEAR(logprobs[i], (double)expected, 4e-7 + 1.2e-7 * fabs((double)expected));
    }
    free(all);
}

/* One kind of difficulty each. */
static void logits_fill(float *x, int32_t n, int kind, uint64_t seed) {
    for (int32_t i = 0; i < n; i++) {
        float normal = fixture_normal(&seed);
        switch (kind) {
        case 0: x[i] = 5 * normal; break;
        case 1: x[i] = roundf(normal); break; /* ties everywhere */
        case 2: x[i] = 3; break;
        case 3: x[i] = i % 2 ? 0.0f : -0.0f; break; /* equal too */
        case 4: x[i] = i % 5 == 0 ? NAN : normal; break;
        case 5: x[i] = i % 3 == 0 ? INFINITY : normal; break;
        case 6: x[i] = i % 3 == 0 ? -INFINITY : 40 * normal; break;
        case 7: x[i] = i % 7 ? -INFINITY : NAN; break;
        case 8: x[i] = NAN; break;
        case 9: x[i] = 1e38f * normal; break;
        case 10: x[i] = (float)i; break;  /* every one displaces the best */
        default: x[i] = (float)-i; break; /* none does */
        }
    }
}

static void test_topk(void) {
    const int32_t shapes[][3] = {{1, 0, 0}, {3, 5, 2}, {20, 0, 21}, {300, 1, 413}};
    for (size_t t = 0; t < sizeof shapes / sizeof shapes[0]; t++) {
        list *l = list_make(shapes[t], NULL, t + 1);
        float *logits = (float *)calloc((size_t)l->active.n_rows + 64, sizeof(float));
        for (int i = 0; i < 64; i++) logits[l->active.n_rows + i] = INFINITY; /* of no row */
        for (int kind = 0; kind < 12; kind++) {
            logits_fill(logits, l->active.n_rows, kind, (uint64_t)kind + 3);
            for (int32_t k = 1; k <= l->active.n_rows && k <= 256; k += k < 12 ? 1 : 61)
                check_topk(l, logits, k);
            if (l->active.n_rows >= 256) check_topk(l, logits, 256);
        }
        free(logits);
        list_free(l);
    }
}

/* The order of rows and segments decides nothing. */
static void test_order(void) {
    const int32_t sizes[3] = {40, 30, 20}, turned[3] = {20, 30, 40};
    list *a = list_make(sizes, NULL, 1), *b = list_make(turned, NULL, 2);
    float x[90], y[90], logprobs_a[30], logprobs_b[30];
    int32_t ids_a[30], ids_b[30];
    for (int i = 0; i < 90; i++) x[i] = (float)(a->ids[i] % 7), y[i] = (float)(b->ids[i] % 7);
    specrt_active_topk(&a->active, x, 1, 30, ids_a, logprobs_a);
    specrt_active_topk(&b->active, y, 1, 30, ids_b, logprobs_b);
    CHECK(memcmp(ids_a, ids_b, sizeof ids_a) == 0);
    for (int i = 0; i < 30; i++) CHECK_NEAR(logprobs_a[i], logprobs_b[i], 1e-6);
    list_free(a), list_free(b);
}

static void test_arguments(void) {
    const int32_t sizes[3] = {200, 100, 20};
    list *l = list_make(sizes, NULL, 1);
    static float x[320], hidden[N_COLS], logprobs[320];
    int32_t ids[320];
    const specrt_active *a = &l->active;
    CHECK_INT(specrt_active_logits(a, hidden, 0, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_logits(a, hidden, -3, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_logits(a, NULL, 1, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_logits(a, hidden, 1, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_logits(NULL, hidden, 1, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(NULL, x, 1, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, NULL, 1, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, x, 0, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, x, 1, 0, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, x, 1, 257, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, x, 1, 1, NULL, logprobs), SPECRT_STATUS_BAD_ARG);
    l->active.n_rows = 100, l->active.n_segments = 1, l->segments[0].n_rows = 100;
    CHECK_INT(specrt_active_topk(a, x, 1, 101, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_active_topk(a, x, 1, 100, ids, logprobs), SPECRT_STATUS_OK);
    list_free(l);
}

static void test_no_allocation(void) {
    const int32_t sizes[3] = {200, 100, 20};
    fixture_allocator allocator = {0};
    specrt_desc env = fixture_desc(&allocator);
    list *l = list_make(sizes, &env, 1);
    static float logits[3 * 320], hidden[3 * N_COLS], logprobs[3 * 256];
    int32_t ids[3 * 256], calls = allocator.n_calls, mallocs = n_mallocs;
    for (int i = 0; i < 10; i++) {
        CHECK_INT(specrt_active_logits(&l->active, hidden, 3, logits), SPECRT_STATUS_OK);
        CHECK_INT(specrt_active_topk(&l->active, logits, 3, 256, ids, logprobs), SPECRT_STATUS_OK);
    }
    CHECK_INT(allocator.n_calls, calls);
    CHECK_INT(n_mallocs, mallocs);
    list_free(l);
}

/* --- membership and packed rows --- */

static const int bits[3] = {SPECRT__ACTIVE_PINNED, SPECRT__ACTIVE_FILL, SPECRT__ACTIVE_WINDOW};

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
    specrt_active few = {specrt_head_compute(p->head), &own, 1, own.n_rows, N_COLS, NULL};
    specrt_active many = {specrt_head_compute(p->head), &full, 1, N_IDS, N_COLS, NULL};
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
    float x[900];
    for (int round = 0; round < 400; round++) {
        int32_t n = random_below(400);
        for (int32_t i = n; i < 900; i++) x[i] = INFINITY; /* must not be looked at */
        for (int32_t i = 0; i < n; i++) {
            x[i] = (float)random_below(round % 50 + 1); /* ties */
            if (round % 7 == 0 && random_below(3)) x[i] = random_below(2) ? NAN : -INFINITY;
        }
        if (round % 11 == 0 && n > 0) x[random_below(n)] = INFINITY;
        check_scan(x, n, random_below(SPECRT_LOGITS_MAX_K + 1));
        float *own = (float *)malloc((size_t)n * sizeof *own); /* with nothing behind it */
        memcpy(own, x, (size_t)n * sizeof *own);
        check_scan(own, n, 3);
        free(own);
    }
    int32_t ids[1];
    CHECK_INT(specrt_logits_topk(x, 400, SPECRT_LOGITS_MAX_K + 1, ids), 0);
    CHECK_INT(specrt_logits_topk(x, 400, -1, ids), 0);
}

/* --- routed ranges: each token is scored once --- */

enum { MAX_ROWS = 300, N_RANGES = 4, ROUNDS = 40 };

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
    for (int i = 0; i < N_IDS * N_COLS; i++) w->rows[i] = fixture_normal(&random_state);
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
        int32_t id = random_below(N_IDS);
        if (specrt__active_valid(w->pool, id))
            specrt__active_want(w->pool, id, SPECRT__ACTIVE_WINDOW);
    }
    specrt__active_sync(w->pool);
    for (int32_t id = 0; id < N_IDS; id++) member[id] = specrt__active_member(w->pool, id);
    specrt__active_segment(w->pool, &segments[0]);
    w->routed->level = level;
    w->routed->n_segments = w->routed->n_rows = w->routed->n_masked = 0;
    for (int i = 0; i < N_RANGES; i++) {
        int32_t first = random_below(N_IDS - 60);
        specrt_segment s = range_of(w, first, 1 + random_below(60));
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
        specrt_active active = {&w.head->compute, segments, 0, 0, N_COLS, NULL};
        float hidden[N_COLS], logits[CAPACITY + MAX_ROWS], logprobs[K];
        int32_t ids[K];
        choose(&w, round % 32, member, segments, &active.n_segments);
        if (round % 32 == 31) memset(w.routed->levels, 0, N_IDS * sizeof(uint32_t));
        for (int i = 0; i < active.n_segments; i++) active.n_rows += segments[i].n_rows;
        for (int j = 0; j < N_COLS; j++) hidden[j] = fixture_normal(&random_state);
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
    {"logits", "segments of several types and sizes against doubles", test_logits},
    {"shape", "scaled and capped logits and their probabilities by the definition", test_shape},
    {"parallel", "lent threads and any order of tasks give the same bits", test_parallel},
    {"topk", "ranking and log-softmax by the definition, ties, NaN, infinities", test_topk},
    {"shared", "rows of several sequences", test_shared},
    {"order", "the order of rows and segments decides nothing", test_order},
    {"arguments", "sizes out of range", test_arguments},
    {"no_allocation", "step functions allocate nothing", test_no_allocation},
    {"history", "rows, slots and copies follow random wishes, in every format", test_history},
    {"few_copies", "only the difference between two syncs is moved", test_few_copies},
    {"scan", "the best few of a row, ties, NaN and infinities", test_scan},
    {"union", "overlapping ranges rank as a plain softmax over the union", test_union},
    {"bounds", "what does not fit is refused whole; levels count apart", test_bounds},
};
TEST_MAIN(cases)
