/* test_ranks.c : static lists: which rows, in which order, within which limits. */
#include "specrt_tools.h"
#include "sources/ranks.h"
#include "base/parallel.h"
#include "opened.h"

#include <pthread.h>
#include <stdbool.h>

enum { N_VOCAB = 600, N_COLS = 256, N_FORCED = 5, N_DEFAULT = 100 };

/* A bundle of ranks over N_VOCAB ids and a head of more rows (padding) in some format. */
typedef struct setup {
    uint8_t *bytes, *rows;
    float *bias;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_head_desc desc;
} setup;

static setup setup_make(specrt_dtype dtype, bool bias, const specrt_env *env) {
    setup s = {.desc = {.dtype = dtype, .n_rows = N_VOCAB + 8, .n_cols = N_COLS}};
    size_t n, n_rows = (size_t)s.desc.n_rows, n_bytes = n_rows * specrt_row_bytes(dtype, N_COLS);
    uint64_t seed = 3;
    s.bytes = fixture_ranks_bundle(N_VOCAB, N_FORCED, N_DEFAULT, &n);
    REQUIRE(specrt_bundle_open_memory(s.bytes, n, "r.specb", env, &s.bundle, NULL) == 0);
    s.rows = (uint8_t *)malloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++) s.rows[i] = (uint8_t)fixture_random(&seed);
    /* Random bytes with tame scales: every 16-bit word below 0x3c00 is a half under 1. */
    for (size_t i = 1; i < n_bytes; i += 2) s.rows[i] &= 0x3b;
    if (bias) {
        s.bias = (float *)malloc(n_rows * sizeof(float));
        for (size_t i = 0; i < n_rows; i++) s.bias[i] = fixture_normal(&seed);
    }
    s.desc.rows = s.rows;
    s.desc.bias = s.bias;
    REQUIRE(specrt_head_bind(s.bundle, &s.desc, env, &s.head, NULL) == 0);
    return s;
}

static void setup_free(setup *s) {
    specrt_head_close(s->head);
    specrt_bundle_close(s->bundle);
    free(s->bytes), free(s->rows), free(s->bias);
}

static specrt_status create(const specrt_bundle *bundle, const specrt_head *head, int32_t size,
                            specrt__ranks_list **out, specrt_error *err) {
    specrt__ranks_order order;
    specrt_status status = specrt__ranks_of_bundle(bundle, &order, err);
    *out = NULL;
    return status ? status : specrt__ranks_create(&order, head, size, out, err);
}

static int32_t id_of_rank(int32_t rank) {
    return (7 * rank + 3) % N_VOCAB;
}

/* Rows of the list are the head's, by rank: byte for byte, or decoded and rounded to halves. */
static void check_rows(const setup *s, const specrt_shortlist *shortlist, int32_t size) {
    const specrt_segment *segment = shortlist->segments;
    float expected[N_COLS], got[N_COLS];
    size_t row_bytes = specrt_row_bytes(s->desc.dtype, N_COLS);
    CHECK_INT(shortlist->n_segments, 1);
    CHECK_INT(shortlist->n_rows, size);
    CHECK_INT(segment->n_rows, size);
    CHECK_INT(shortlist->n_cols, N_COLS);
    CHECK((uintptr_t)segment->rows % 64 == 0);
    bool copied = segment->dtype == s->desc.dtype;
    CHECK(copied || segment->dtype == SPECRT_DTYPE_F16);
    for (int32_t r = 0; r < size; r++) {
        int32_t id = id_of_rank(r);
        const uint8_t *row = s->rows + (size_t)id * row_bytes;
        const uint8_t *packed = (const uint8_t *)segment->rows + (size_t)r * segment->row_stride;
        CHECK_INT(segment->ids[r], id);
        if (segment->bias) CHECK(segment->bias[r] == s->bias[id]);
        if (copied) CHECK(memcmp(packed, row, row_bytes) == 0);
        if (copied) continue;
        specrt_row_decode(s->desc.dtype, row, N_COLS, expected);
        specrt_row_decode(SPECRT_DTYPE_F16, packed, N_COLS, got);
        for (int j = 0; j < N_COLS; j++)
            CHECK_NEAR(got[j], expected[j], 0.0005 * fabs((double)expected[j]) + 6e-8);
    }
}

TEST(packed, "rows, ids and bias of every size and format") {
    const specrt_dtype types[] = {SPECRT_DTYPE_F32,  SPECRT_DTYPE_F16,  SPECRT_DTYPE_BF16,
                                  SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_Q4_0, SPECRT_DTYPE_Q5_1,
                                  SPECRT_DTYPE_Q4_K, SPECRT_DTYPE_Q6_K};
    const int32_t sizes[] = {N_FORCED, 6, 127, 128, 129, N_VOCAB - 1};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        setup s = setup_make(types[t], t % 2, NULL);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            specrt__ranks_list *list;
            specrt_error err;
            CHECK_INT(create(s.bundle, s.head, sizes[i], &list, &err), 0);
            REQUIRE(list);
            CHECK((list->shortlist.segments->bias != NULL) == (t % 2 == 1));
            check_rows(&s, &list->shortlist, sizes[i]);
            specrt__ranks_free(list);
        }
        setup_free(&s);
    }
    specrt__ranks_free(NULL);
}

TEST(owned, "the list outlives the bundle and its rows the head's: it owns what it scores") {
    setup s = setup_make(SPECRT_DTYPE_F16, true, NULL);
    specrt__ranks_list *list;
    float hidden[N_COLS], before[N_DEFAULT], after[N_DEFAULT];
    for (int j = 0; j < N_COLS; j++) hidden[j] = (float)(j % 7) - 3;
    REQUIRE(create(s.bundle, s.head, 0, &list, NULL) == 0);
    CHECK_INT(list->shortlist.n_rows, N_DEFAULT);
    specrt_shortlist_logits(&list->shortlist, hidden, 1, before);
    memset(s.rows, 0, (N_VOCAB + 8) * specrt_row_bytes(SPECRT_DTYPE_F16, N_COLS));
    memset(s.bytes, 0, 64);
    specrt_bundle_close(s.bundle), s.bundle = NULL;
    specrt_shortlist_logits(&list->shortlist, hidden, 1, after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    specrt__ranks_free(list);
    setup_free(&s);
}

TEST(top_tokens, "the whole chain against a softmax over the prefix, in doubles") {
    enum { SIZE = 64, K = 10 };
    setup s = setup_make(SPECRT_DTYPE_F16, true, NULL);
    specrt__ranks_list *list;
    uint64_t seed = 9;
    float hidden[N_COLS], row[N_COLS], logits[SIZE], logprobs[K];
    double exact[SIZE], total = 0;
    int32_t ids[K];
    for (int j = 0; j < N_COLS; j++) hidden[j] = fixture_normal(&seed) / 4;
    REQUIRE(create(s.bundle, s.head, SIZE, &list, NULL) == 0);
    const specrt_shortlist *shortlist = &list->shortlist;
    CHECK_INT(specrt_shortlist_logits(shortlist, hidden, 1, logits), SPECRT_STATUS_OK);
    CHECK_INT(specrt_shortlist_topk(shortlist, logits, 1, K, ids, logprobs), SPECRT_STATUS_OK);
    for (int r = 0; r < SIZE; r++) {
        int32_t id = id_of_rank(r);
        specrt_row_decode(SPECRT_DTYPE_F16, s.rows + (size_t)id * 2 * N_COLS, N_COLS, row);
        exact[r] = s.bias[id];
        for (int j = 0; j < N_COLS; j++) exact[r] += (double)row[j] * hidden[j];
        total += exp(exact[r]);
    }
    for (int k = 0; k < K; k++) {
        int best = 0;
        for (int r = 0; r < SIZE; r++)
            if (exact[r] > exact[best]) best = r;
        CHECK_INT(ids[k], id_of_rank(best));
        CHECK_NEAR(logprobs[k], exact[best] - log(total), 1e-4);
        exact[best] = -INFINITY;
    }
    specrt__ranks_free(list);
    setup_free(&s);
}

TEST(limits, "sizes out of range are told the range") {
    setup s = setup_make(SPECRT_DTYPE_F16, false, NULL);
    const int32_t bad[] = {-1, 1, N_FORCED - 1, N_VOCAB, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        specrt__ranks_list *list = (specrt__ranks_list *)(void *)&s;
        specrt_error err;
        CHECK_INT(create(s.bundle, s.head, bad[i], &list, &err), SPECRT_STATUS_BAD_ARG);
        CHECK(!list);
        CHECK_HAS(err.msg, "r.specb: static: size: expected 5 (5 forced tokens) to 599, or none "
                           "for the default 100, found");
    }
    setup_free(&s);
}

TEST(missing, "a bundle without ranks") {
    static const float rows[32];
    size_t n;
    uint8_t *bytes = fixture_bundle(NULL, 0, &n);
    specrt_head_desc desc = {.rows = rows, .n_rows = 1, .n_cols = 32};
    specrt__ranks_list *list;
    specrt_error err;
    specrt_bundle *bundle = open_memory(bytes, n);
    specrt_head *head = bind_head(bundle, &desc);
    CHECK_INT(create(bundle, head, 0, &list, &err), SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_HAS(err.msg, "has no section 'ranks'; vocabtrim-calibrate builds it");
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    free(bytes);
}

/* A head with too few rows: lists that stay inside it work, others name the token. */
TEST(short_head, "ids beyond the head") {
    setup s = setup_make(SPECRT_DTYPE_F16, false, NULL);
    specrt_head_desc desc = s.desc;
    specrt__ranks_list *list;
    specrt_error err;
    desc.n_rows = 500;
    specrt_head *head = bind_head(NULL, &desc);
    CHECK_INT(create(s.bundle, head, 71, &list, &err), SPECRT_STATUS_OK);
    specrt__ranks_free(list); /* rank 71 is token 500 */
    CHECK_INT(create(s.bundle, head, 72, &list, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "token 500: expected an id below the head's 500 rows");
    CHECK(!list);
    specrt_head_close(head);
    setup_free(&s);
}

TEST(memory, "a failing allocator") {
    fixture_allocator a = {0};
    specrt_env env = fixture_desc(&a);
    setup s = setup_make(SPECRT_DTYPE_Q4_0, true, &env);
    specrt__ranks_list *list;
    specrt_error err;
    int live = a.n_live;
    a.fail_at = a.n_calls + 1;
    CHECK_INT(create(s.bundle, s.head, 0, &list, &err), SPECRT_STATUS_NO_MEMORY);
    CHECK(!list);
    CHECK_INT(a.n_live, live);
    CHECK_INT(create(s.bundle, s.head, 0, &list, &err), SPECRT_STATUS_OK);
    CHECK_INT(a.n_live, live + 1);
    specrt__ranks_free(list);
    CHECK_INT(a.n_live, live);
    setup_free(&s);
    CHECK_INT(a.n_live, 0);
}

static void run_backwards(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    *(int *)user += 1;
    while (n-- > 0) task(arg, n);
}

TEST(packing_lent, "packing on lent threads") {
    int calls = 0;
    specrt_env env = {.user = &calls, .parallel_for = run_backwards};
    setup s = setup_make(SPECRT_DTYPE_Q6_K, true, &env);
    specrt__ranks_list *list;
    REQUIRE(create(s.bundle, s.head, 400, &list, NULL) == 0);
    CHECK_INT(calls, 1);
    check_rows(&s, &list->shortlist, 400);
    specrt__ranks_free(list);
    setup_free(&s);
}

/* Rows of each level behind those of all: as many as its size says, of the last one's beyond the sizes. */
TEST(levels, "a size for every level") {
    const int32_t sizes[] = {50, 20, 30, 40}, expected[] = {30, 0, 10, 20, 20, 20};
    setup s = setup_make(SPECRT_DTYPE_F16, true, NULL);
    specrt__ranks_list *list;
    const specrt_env zeroed = {0};
    specrt__pool *pool = specrt__pool_create(s.head, N_VOCAB, 1, &zeroed);
    REQUIRE(create(s.bundle, s.head, 60, &list, NULL) == 0);
    specrt__ranks_set_levels(list, s.head, list->segment.ids, sizes, 4);
    CHECK_INT(list->n_always, 20);
    for (int32_t level = 0; level < 6; level++) {
        uint32_t levels[N_VOCAB] = {0};
        int32_t masked[100];
        specrt__source_routed routed = {
            .pool = pool, .levels = levels, .masked = masked, .max_rows = 100, .level = level};
        const specrt__source_level at = {.level = level, .n = 1};
        specrt__ranks_levels.route(list, &at, &routed);
        CHECK_INT(routed.n_rows, expected[level]);
        for (int32_t i = 0; i < expected[level]; i++) {
            CHECK_INT(routed.segments[0].ids[i], id_of_rank(20 + i));
            CHECK(routed.segments[0].bias[i] == s.bias[id_of_rank(20 + i)]);
        }
    }
    specrt__pool_free(pool);
    specrt__ranks_free(list);
    setup_free(&s);
}

/* One list, many threads. */
typedef struct reader {
    const specrt_shortlist *shortlist;
    float logits[2 * N_DEFAULT];
    int32_t ids[20];
} reader;

static void *reader_run(void *opaque) {
    reader *r = (reader *)opaque;
    float hidden[2 * N_COLS], logprobs[20];
    for (int j = 0; j < 2 * N_COLS; j++) hidden[j] = (float)(j % 11) / 8 - 0.5f;
    for (int i = 0; i < 50; i++) {
        specrt_shortlist_logits(r->shortlist, hidden, 2, r->logits);
        specrt_shortlist_topk(r->shortlist, r->logits, 2, 10, r->ids, logprobs);
    }
    return NULL;
}

TEST(shared, "one list, many threads") {
    setup s = setup_make(SPECRT_DTYPE_BF16, false, NULL);
    specrt__ranks_list *list;
    pthread_t threads[4];
    static reader readers[4];
    REQUIRE(create(s.bundle, s.head, 0, &list, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        readers[i].shortlist = &list->shortlist;
        pthread_create(&threads[i], NULL, reader_run, &readers[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++) {
        CHECK(memcmp(readers[0].logits, readers[i].logits, sizeof readers[0].logits) == 0);
        CHECK(memcmp(readers[0].ids, readers[i].ids, sizeof readers[0].ids) == 0);
    }
    specrt__ranks_free(list);
    setup_free(&s);
}
