/* test_shortlist.c : products and ranking over a list of segments, against brute force. */
#include <stdlib.h>

/* Whatever the header would allocate behind specrt_env's back is counted too. */
static int n_mallocs;
static void *counted_malloc(size_t n) {
    n_mallocs++;
    return malloc(n);
}
#define malloc(n) counted_malloc(n)
#include "specrt_tools.h"
#include "core/base.h"
#include "core/shortlist.h"
#undef malloc

#include "base/parallel.h"
#include "opened.h"

enum { N_COLS = 96 };

static uint64_t random_state = 99;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* Three segments of different types over distinct ids in no order, one with a bias. */
typedef struct list {
    specrt_head *head;
    specrt_segment segments[3];
    specrt_shortlist shortlist;
    float *rows[3], *bias;
    int32_t *ids;
} list;

static list *list_make(const int32_t sizes[3], const specrt_env *env, uint64_t seed) {
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
    specrt_head_desc desc = f32_rows(l->rows, 1, 1);
    REQUIRE(specrt_head_bind(NULL, &desc, env, &l->head, NULL) == SPECRT_STATUS_OK);
    l->shortlist = (specrt_shortlist){&l->head->compute, l->segments, 3, n, N_COLS, NULL};
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

TEST(logits, "segments of several types and sizes against doubles") {
    const int32_t shapes[][3] = {{1, 0, 0}, {3, 5, 2}, {0, 0, 7}, {128, 129, 127}, {300, 1, 513}};
    for (size_t t = 0; t < sizeof shapes / sizeof shapes[0]; t++) {
        enum { N = 5 };
        list *l = list_make(shapes[t], NULL, t + 1);
        const uint64_t scored_by[3] = {0, t % 2 ? 0x19 : 0, 0x6}; /* bit h: hidden row h; 0: all */
        for (int s = 0; s < 3; s++) l->segments[s].scored_by = scored_by[s];
        int32_t n_rows = l->shortlist.n_rows;
        uint64_t seed = 77;
        float hidden[N * N_COLS], *logits = (float *)calloc((size_t)n_rows * N + 1, sizeof(float));
        for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
        logits[n_rows * N] = 12345;
        CHECK_INT(specrt_shortlist_logits(&l->shortlist, hidden, N, logits), SPECRT_STATUS_OK);
        for (int h = 0; h < N; h++) {
            const float *out = logits + h * n_rows;
            for (int s = 0; s < 3; out += shapes[t][s++])
                for (int32_t r = 0; r < shapes[t][s]; r++) {
                    double sum = s == 2 ? (double)l->segments[2].bias[r] : 0.0;
                    if (scored_by[s] && !(scored_by[s] >> h & 1)) {
                        CHECK(out[r] == -INFINITY);
                        continue;
                    }
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
TEST(shared, "rows of several sequences") {
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
        specrt_shortlist shortlist = {&l->head->compute, &segments[s], 1, ROWS, N_COLS, NULL};
        specrt__shortlist_shared shared = {&shortlist, hidden, N, each};
        REQUIRE(!specrt_shortlist_logits(&shortlist, hidden, N, expected));
        specrt__shortlist_share(&shared);
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
TEST(shape, "scaled and capped logits and their probabilities by the definition") {
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
        l->head = bind_head(NULL, &desc);
        l->shortlist.compute = &l->head->compute;
        l->segments[1].masked = masked, l->segments[1].n_masked = 2;
        for (int i = 0; i < N * N_COLS; i++) hidden[i] = fixture_normal(&seed);
        REQUIRE(specrt_shortlist_logits(&l->shortlist, hidden, N, products) == SPECRT_STATUS_OK);
        l->shortlist.head = l->head;
        REQUIRE(specrt_shortlist_logits(&l->shortlist, hidden, N, logits) == SPECRT_STATUS_OK);
        REQUIRE(specrt_shortlist_topk(&l->shortlist, logits, N, K, ids, logprobs) ==
                SPECRT_STATUS_OK);
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

TEST(parallel, "lent threads and any order of tasks give the same bits") {
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
        specrt_env env = {.parallel_for = runs[r]};
        list *l = list_make(sizes, &env, 9);
        logits[r] = (float *)calloc(N * (size_t)n_rows, sizeof(float));
        CHECK_INT(specrt_shortlist_logits(&l->shortlist, hidden, N, logits[r]), SPECRT_STATUS_OK);
        CHECK_INT(specrt_shortlist_topk(&l->shortlist, logits[r], N, K, ids[r], logprobs[r]),
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

/* log p by the definition, in long double; infinite logits by the limit, but -inf of what is masked. */
static long double logprob(const candidate *sorted, int32_t n, int32_t i) {
    float max = sorted[0].logit, x = sorted[i].logit;
    long double sum = 0;
    if (!(x > -INFINITY)) return -INFINITY;
    for (int32_t k = 0; k < n; k++)
        if (!isnan(sorted[k].logit))
            sum += sorted[k].logit == max ? 1
                   : isinf(max)           ? 0
                                          : expl((long double)sorted[k].logit - max);
    return (x == max ? 0 : (long double)x - max) - logl(sum);
}

static void check_topk(const list *l, const float *logits, int32_t k) {
    int32_t n = l->shortlist.n_rows, ids[256];
    float logprobs[256];
    candidate *all = (candidate *)calloc((size_t)n, sizeof *all);
    for (int32_t i = 0; i < n; i++) all[i] = (candidate){logits[i], l->ids[i]};
    qsort(all, (size_t)n, sizeof *all, better);
    CHECK_INT(specrt_shortlist_topk(&l->shortlist, logits, 1, k, ids, logprobs), SPECRT_STATUS_OK);
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

TEST(topk, "ranking and log-softmax by the definition, ties, NaN, infinities") {
    const int32_t shapes[][3] = {{1, 0, 0}, {3, 5, 2}, {20, 0, 21}, {300, 1, 413}};
    for (size_t t = 0; t < sizeof shapes / sizeof shapes[0]; t++) {
        list *l = list_make(shapes[t], NULL, t + 1);
        float *logits = (float *)calloc((size_t)l->shortlist.n_rows + 64, sizeof(float));
        for (int i = 0; i < 64; i++) logits[l->shortlist.n_rows + i] = INFINITY; /* of no row */
        for (int kind = 0; kind < 12; kind++) {
            logits_fill(logits, l->shortlist.n_rows, kind, (uint64_t)kind + 3);
            for (int32_t k = 1; k <= l->shortlist.n_rows && k <= 256; k += k < 12 ? 1 : 61)
                check_topk(l, logits, k);
            if (l->shortlist.n_rows >= 256) check_topk(l, logits, 256);
        }
        free(logits);
        list_free(l);
    }
}

TEST(order, "the order of rows and segments decides nothing") {
    const int32_t sizes[3] = {40, 30, 20}, turned[3] = {20, 30, 40};
    list *a = list_make(sizes, NULL, 1), *b = list_make(turned, NULL, 2);
    float x[90], y[90], logprobs_a[30], logprobs_b[30];
    int32_t ids_a[30], ids_b[30];
    for (int i = 0; i < 90; i++) x[i] = (float)(a->ids[i] % 7), y[i] = (float)(b->ids[i] % 7);
    specrt_shortlist_topk(&a->shortlist, x, 1, 30, ids_a, logprobs_a);
    specrt_shortlist_topk(&b->shortlist, y, 1, 30, ids_b, logprobs_b);
    CHECK(memcmp(ids_a, ids_b, sizeof ids_a) == 0);
    for (int i = 0; i < 30; i++) CHECK_NEAR(logprobs_a[i], logprobs_b[i], 1e-6);
    list_free(a), list_free(b);
}

TEST(arguments, "sizes out of range") {
    const int32_t sizes[3] = {200, 100, 20};
    list *l = list_make(sizes, NULL, 1);
    static float x[320], hidden[N_COLS], logprobs[320];
    int32_t ids[320];
    const specrt_shortlist *a = &l->shortlist;
    CHECK_INT(specrt_shortlist_logits(a, hidden, 0, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_logits(a, hidden, -3, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_logits(a, NULL, 1, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_logits(a, hidden, 1, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_logits(NULL, hidden, 1, x), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(NULL, x, 1, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, NULL, 1, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, x, 0, 1, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, x, 1, 0, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, x, 1, 257, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, x, 1, 1, NULL, logprobs), SPECRT_STATUS_BAD_ARG);
    l->shortlist.n_rows = 100, l->shortlist.n_segments = 1, l->segments[0].n_rows = 100;
    CHECK_INT(specrt_shortlist_topk(a, x, 1, 101, ids, logprobs), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_shortlist_topk(a, x, 1, 100, ids, logprobs), SPECRT_STATUS_OK);
    list_free(l);
}

TEST(no_allocation, "step functions allocate nothing") {
    const int32_t sizes[3] = {200, 100, 20};
    fixture_allocator allocator = {0};
    specrt_env env = fixture_desc(&allocator);
    list *l = list_make(sizes, &env, 1);
    static float logits[3 * 320], hidden[3 * N_COLS], logprobs[3 * 256];
    int32_t ids[3 * 256], calls = allocator.n_calls, mallocs = n_mallocs;
    for (int i = 0; i < 10; i++) {
        CHECK_INT(specrt_shortlist_logits(&l->shortlist, hidden, 3, logits), SPECRT_STATUS_OK);
        CHECK_INT(specrt_shortlist_topk(&l->shortlist, logits, 3, 256, ids, logprobs),
                  SPECRT_STATUS_OK);
    }
    CHECK_INT(allocator.n_calls, calls);
    CHECK_INT(n_mallocs, mallocs);
    list_free(l);
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

TEST(scan, "the best few of a row, ties, NaN and infinities") {
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

/* What the target is known to think best: of logits, of lists longer or shorter than asked for. */
TEST(target_best, "the target's best tokens, by logits or lists") {
    enum { N = 3, N_LOGITS = 7, K = 4 };
    float logits[N * N_LOGITS];
    int32_t lists[N * K], ids[K + 1], expected[K];
    for (int32_t i = 0; i < N * N_LOGITS; i++) logits[i] = (float)random_below(5);
    for (int32_t i = 0; i < N * K; i++) lists[i] = random_below(N_LOGITS);
    const specrt_target_rows known = {.logits = logits, .ids = lists, .k = K};
    const specrt_target_rows listed = {.ids = lists, .k = K}, none = {.k = K},
                             empty = {.ids = lists};
    for (int32_t i = 0; i < N; i++)
        for (int32_t k = 1; k <= K + 1; k++) {
            int32_t n = k < K ? k : K;
            CHECK_INT(specrt__shortlist_target_best(&known, i, N_LOGITS, n, ids), n);
            specrt_logits_topk(logits + i * N_LOGITS, N_LOGITS, n, expected);
            CHECK(memcmp(ids, expected, (size_t)n * sizeof *ids) == 0);
            memset(ids, 0xff, sizeof ids);
            CHECK_INT(specrt__shortlist_target_best(&listed, i, N_LOGITS, k, ids), n);
            CHECK(memcmp(ids, lists + i * K, (size_t)n * sizeof *ids) == 0);
            CHECK_INT(ids[n], -1);
        }
    CHECK_INT(specrt__shortlist_target_best(NULL, 0, N_LOGITS, K, ids), 0);
    CHECK_INT(specrt__shortlist_target_best(&none, 0, N_LOGITS, K, ids), 0);
    CHECK_INT(specrt__shortlist_target_best(&empty, 0, N_LOGITS, K, ids), 0);
}
