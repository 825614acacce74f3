/* test_gpu_sketch.c : the tokens that a sketch names, on the device and by the CPU. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/active.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/scan.h"
#include "sources/sketch.h"
#include "cuda/kernels.h"
#include "fixture.h"
#include "gpu.h"

enum { MAX_ROWS = 9000, MAX_COLS = 272, BATCH = 2, MAX_N = 10 };

static uint64_t random_state;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* Codes as they come, all alike (every score a tie), or of three values. */
enum { NORMAL, EQUAL, FEW, DISTRIBUTIONS };

typedef struct world {
    int32_t n_rows, n_cols, rank, n_ids;
    bool four_bits, exact; /* exact: the projection picks columns, and is the same on both sides */
    uint16_t basis[MAX_COLS * MAX_COLS];
    uint8_t codes[(MAX_ROWS + 15) / 16 * 16 * MAX_COLS];
    int32_t rows[MAX_ROWS], ids[MAX_ROWS], row_of[2 * MAX_ROWS];
    float scales[MAX_ROWS + 16], bias[MAX_ROWS];
    uint8_t wants[2 * MAX_ROWS];
    float weights[MAX_ROWS * MAX_COLS]; /* of the head; only its shape matters, but to proofs */
    float mean[MAX_COLS], bounds[4 * MAX_ROWS];
    uint16_t lift[MAX_COLS * MAX_COLS];
} world;

static void world_make(world *w, int distribution, bool four_bits, bool exact, int members) {
    specrt_sketch_header h = {.n_rows = w->n_rows, .rank = w->rank, .four_bits = four_bits};
    size_t n_codes = ((size_t)w->n_rows + 15) / 16 * specrt__sketch_stride(&h);
    w->four_bits = four_bits;
    w->exact = exact;
    w->n_ids = 2 * w->n_rows;
    memset(w->basis, 0, sizeof w->basis);
    for (int32_t k = 0; k < w->rank; k++)
        for (int32_t j = 0; j < w->n_cols; j++) {
            float x = exact ? (float)(j == (k * 5 + 1) % w->n_cols) : fixture_normal(&random_state);
            w->basis[k * w->n_cols + j] = specrt__base_to_f16(x);
        }
    for (size_t i = 0; i < n_codes; i++) {
        int c = distribution == NORMAL  ? random_below(256)
                : distribution == EQUAL ? 0x77
                                        : 0x66 + random_below(3);
        w->codes[i] = (uint8_t)c;
    }
    memset(w->row_of, 0xff, sizeof w->row_of);
    for (int32_t i = 0; i < w->n_rows; i++) {
        int32_t j = random_below(i + 1);
        w->rows[i] = w->rows[j];
        w->rows[j] = i;
        w->ids[i] = 2 * i + random_below(2);
        w->row_of[w->ids[i]] = i;
        w->bias[i] = distribution == EQUAL ? 0.5f : 20 * fixture_normal(&random_state);
        w->scales[i] = distribution == EQUAL ? 0.25f : 0.1f + fabsf(fixture_normal(&random_state));
    }
    for (int32_t i = 0; i < w->n_ids; i++)
        w->wants[i] = (uint8_t)(random_below(100) < members ? 1 << random_below(6) : 0);
}

/* The twin's state, over arrays of the world. */
static specrt__sketch *twin_open(const world *w, const specrt_head *head, int32_t n_places,
                                 int32_t size, bool biased) {
    static specrt_sketch_header header;
    size_t n_bias = biased ? ((size_t)w->n_rows + 15) / 16 * 16 : 0;
    specrt__sketch_shared *s = calloc(1, sizeof *s + n_bias * sizeof(float));
    header = (specrt_sketch_header){
        .n_rows = w->n_rows, .n_cols = w->n_cols, .rank = w->rank, .four_bits = w->four_bits};
    s->head = head;
    s->view.header = &header;
    s->view.basis = w->basis;
    s->view.rows = w->rows;
    s->view.scales = w->scales;
    s->view.codes = w->codes;
    s->rank = w->rank;
    s->n_places = n_places;
    s->size = size;
    s->basis = specrt__sketch_basis(&s->view, w->rank);
    s->scan = specrt__scan_choose();
    s->desc = head->compute.desc;
    specrt__sketch_fill_rows(s, n_bias);
    specrt__source_session with = {.topk = MAX_N, .desc = &head->compute.desc};
    return specrt__sketch_open(s, &with);
}

static void twin_close(specrt__sketch *s) {
    free((void *)(uintptr_t)s->shared);
    specrt__sketch_close(s);
}

/* The same tokens; of a projection whose sums run otherwise here, most of them. */
static void check_names(const world *w, specrt__sketch *s, const specrt__active_level *level,
                        const int32_t *ids, const int32_t *places, int32_t n) {
    static uint8_t seen[2 * MAX_ROWS];
    int32_t n_common = 0;
    s->n_queries = specrt__sketch_ask(s);
    for (int32_t i = 0; i < s->n; i++) specrt__sketch_round(s, i);
    specrt__sketch_search(s);
    int32_t n_want = specrt__sketch_join(s, level);
    REQUIRE(n == n_want);
    memset(seen, 0, sizeof seen);
    for (int32_t i = 0; i < n; i++) seen[s->ids[i]] = 1;
    for (int32_t i = 0; i < n; i++) {
        REQUIRE(ids[i] >= 0 && ids[i] < w->n_ids && places[i] == w->row_of[ids[i]]);
        REQUIRE(w->wants[ids[i]] == 0 && seen[ids[i]] < 2);
        n_common += seen[ids[i]] == 1;
        seen[ids[i]] = 2;
    }
    REQUIRE(n_common >= (w->exact ? n : n * 9 / 10));
}

typedef struct sizes {
    int32_t n_places, size, max_n;
    bool biased;
} sizes;

static specrt_head *bind_head(const world *w, bool biased) {
    specrt_head *head;
    specrt_head_desc desc = {.rows = w->weights,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = w->n_rows,
                             .n_cols = w->n_cols,
                             .bias = biased ? w->bias : NULL,
                             .ids = w->ids};
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &head, NULL) == SPECRT_STATUS_OK);
    return head;
}

static specrt__cuda_sketch upload(const world *w, sizes z) {
    return (specrt__cuda_sketch){.basis = gpu_copy(w->basis, sizeof w->basis),
                                 .rows = gpu_copy(w->rows, sizeof w->rows),
                                 .scales = gpu_copy(w->scales, sizeof w->scales),
                                 .bias = z.biased ? gpu_copy(w->bias, sizeof w->bias) : NULL,
                                 .codes = gpu_copy(w->codes, sizeof w->codes),
                                 .ids = gpu_copy(w->ids, sizeof w->ids),
                                 .row_of = gpu_copy(w->row_of, sizeof w->row_of),
                                 .n_cols = w->n_cols,
                                 .n_ids = w->n_ids,
                                 .stored_rank = w->rank,
                                 .rank = w->rank,
                                 .four_bits = w->four_bits,
                                 .n_places = z.n_places,
                                 .size = z.size};
}

static void discard(const specrt__cuda_sketch *s) {
    const void *all[] = {s->basis, s->rows, s->scales, s->bias, s->codes, s->ids, s->row_of};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) gpu_free((void *)(uintptr_t)all[i]);
}

static void run_case(const world *w, sizes z) {
    static float hidden[BATCH * MAX_N * MAX_COLS];
    static int32_t ids[BATCH * MAX_ROWS], places[BATCH * MAX_ROWS], again[BATCH * MAX_ROWS];
    int32_t counts[BATCH] = {z.max_n, random_below(z.max_n + 1)}, n_rows[BATCH], d = w->n_cols;
    float logprobs[BATCH * MAX_N];
    specrt_cuda_state states[BATCH];
    specrt_head *head = bind_head(w, z.biased);
    for (int i = 0; i < BATCH * z.max_n * d; i++)
        hidden[i] = specrt__base_f16(specrt__base_to_f16(fixture_normal(&random_state)));
    for (int i = 0; i < BATCH * z.max_n; i++)
        logprobs[i] = -3 * fabsf(fixture_normal(&random_state));
    memset(states, 0, sizeof states);
    for (int b = 0; b < BATCH; b++) {
        states[b].params.n_ids = w->n_ids;
        states[b].wants = gpu_copy(w->wants, (size_t)w->n_ids);
    }
    static uint32_t levels[BATCH * 2 * MAX_ROWS]; /* of another source's: bit 3 counts */
    for (int i = 0; i < BATCH * w->n_ids; i += 23) levels[i] = 1u << (3 + i % 2);
    int32_t bound = z.size;
    specrt__cuda_sketch s = upload(w, z);
    size_t bytes = specrt__cuda_sketch_bytes(&s, BATCH, z.max_n);
    REQUIRE(bytes > 0 && (size_t)(BATCH * bound) * 4 <= sizeof ids);
    void *in = gpu_copy(hidden, sizeof hidden), *paths = gpu_copy(logprobs, sizeof logprobs);
    void *taken = gpu_copy(levels, sizeof levels);
    void *all = gpu_copy(states, sizeof states), *n = gpu_alloc(BATCH * (size_t)z.max_n * 4);
    for (int b = 0; b < BATCH; b++) gpu_put((int32_t *)n + b * z.max_n, &counts[b], 4);
    void *scratch = gpu_zeros(bytes);
    int32_t *out_ids = gpu_zeros(sizeof ids), *out_places = gpu_zeros(sizeof places);
    int32_t *out_n = gpu_zeros(sizeof n_rows);
    specrt__cuda_batch batch = {BATCH, z.max_n, n, z.max_n};
    specrt__cuda_taken others = {all, taken, 3};
    specrt__cuda_choice choice = {bound, out_ids, out_places, out_n, NULL};
    for (int i = 0; i < 2; i++) { /* the same rows in the same order, whatever ran first */
        REQUIRE(specrt__cuda_sketch_route(&s, &batch, in, SPECRT_DTYPE_F32, paths, &others, scratch,
                                          &choice, NULL) == SPECRT_STATUS_OK);
        gpu_get(i ? ids : again, out_ids, sizeof ids);
    }
    CHECK(memcmp(ids, again, sizeof ids) == 0);
    gpu_get(places, out_places, sizeof places);
    gpu_get(n_rows, out_n, sizeof n_rows);

    specrt__active_pool *pool = specrt__active_pool_create(head, w->n_ids, 1, &head->compute.desc);
    specrt__active_routed *routed = calloc(1, sizeof *routed);
    memcpy(pool->wants, w->wants, (size_t)w->n_ids);
    routed->pool = pool;
    routed->levels = calloc((size_t)w->n_ids, sizeof *routed->levels);
    routed->level = 3;
    specrt__sketch *twin = twin_open(w, head, z.n_places, z.size, z.biased);
    twin->routed = routed;
    for (int b = 0; b < BATCH; b++) {
        const float *h = hidden + b * z.max_n * d;
        memcpy(routed->levels, levels + b * w->n_ids, (size_t)w->n_ids * sizeof *levels);
        specrt__active_level level = {3, counts[b], NULL, logprobs + b * z.max_n, NULL, h};
        specrt_active basis = {&head->compute, &twin->shared->basis, 1, w->rank, d, NULL};
        twin->n = counts[b];
        if (counts[b] == 0) {
            CHECK_INT(n_rows[b], 0);
            continue;
        }
        specrt_active_logits(&basis, h, counts[b], twin->z);
        check_names(w, twin, &level, ids + b * bound, places + b * bound, n_rows[b]);
    }
    twin_close(twin);
    free(routed->levels), free(routed);
    specrt__active_pool_free(pool);
    specrt_head_close(head);
    const void *used[] = {
        in,   paths, all, n, scratch, out_ids, out_places, out_n, states[0].wants, states[1].wants,
        taken};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free((void *)(uintptr_t)used[i]);
    discard(&s);
}

static void test_names(void) {
    static world w;
    for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++)
        for (int variant = 0; variant < 4; variant++) {
            if (test_brief() && (distribution + variant) % 3) continue; /* each of both once */
            w.n_rows = 333 + 50 * distribution + variant;
            w.n_cols = 24;
            w.rank = variant & 1 ? 24 : 12;
            world_make(&w, distribution, variant & 1, true, variant == 3 ? 95 : 20);
            run_case(&w, (sizes){w.n_rows, 40, 1, variant > 1});
            run_case(&w, (sizes){w.n_rows - 7, 33, 3, variant == 1});
            run_case(&w, (sizes){w.n_rows / 2, 7, 7, false});
        }
}

/* More places than a block takes, states of any projection, and more dimensions than are read at once. */
static void test_many(void) {
    static world w;
    for (int four_bits = 0; four_bits < 2; four_bits++) {
        w.n_rows = 777;
        w.n_cols = w.rank = four_bits ? 272 : 140;
        world_make(&w, NORMAL, four_bits, true, 20);
        run_case(&w, (sizes){w.n_rows, 30, 9, true});
    }
    w.n_rows = 8999;
    w.n_cols = w.rank = 32;
    world_make(&w, NORMAL, false, true, 10);
    run_case(&w, (sizes){w.n_rows, 500, 2, false});
    world_make(&w, NORMAL, true, false, 10);
    run_case(&w, (sizes){w.n_rows, 64, test_brief() ? 3 : 10, false});
    world_make(&w, EQUAL, false, true, 10);
    run_case(&w, (sizes){w.n_rows, 20, 1, false});
}

/* Odd shapes by chance, as many as there is time for: few places or many, all of a magnitude or not. */
static void test_random(void) {
    static world w;
    int n_runs = getenv("SPECRT_TEST_LONG") ? 200 : test_brief() ? 2 : 8;
    for (int i = 0; i < n_runs; i++) {
        bool four_bits = random_below(2);
        int32_t step = four_bits ? 8 : 4;
        w.n_rows = 1 + random_below(i % 4 == 3 ? MAX_ROWS : 700);
        w.n_cols = w.rank = step * (1 + random_below(MAX_COLS / 4 / step));
        world_make(&w, random_below(DISTRIBUTIONS), four_bits, true,
                   random_below(2) * random_below(101));
        sizes z = {1 + random_below(w.n_rows), 0, 1 + random_below(MAX_N), random_below(2)};
        z.size = 1 + random_below(z.n_places < 300 ? z.n_places : 300);
        run_case(&w, z);
    }
}

static void test_refusals(void) {
    static uint8_t x[64] __attribute__((aligned(16)));
    void *p = x;
    specrt__cuda_sketch bad, s = {.basis = p,
                                  .rows = p,
                                  .scales = p,
                                  .codes = p,
                                  .n_cols = 8,
                                  .n_ids = 16,
                                  .stored_rank = 8,
                                  .rank = 8,
                                  .n_places = 16,
                                  .size = 4};
    CHECK(specrt__cuda_sketch_bytes(&s, 1, 1) > 0);
#define BAD(field, value) (bad = s, bad.field = (value), specrt__cuda_sketch_bytes(&bad, 1, 1) == 0)
    CHECK(BAD(rank, 6) && BAD(rank, 12) && BAD(rank, 0) && BAD(stored_rank, 5000));
    CHECK(BAD(n_places, 0) && BAD(size, 17) && BAD(n_ids, 0) && BAD(n_cols, 0));
    CHECK(BAD(codes, x + 4) && BAD(basis, NULL));
#undef BAD
    CHECK(specrt__cuda_sketch_bytes(&s, 0, 1) == 0 && specrt__cuda_sketch_bytes(&s, 1, 65) == 0);
    const specrt__cuda_batch one = {1, 1, NULL, 0};
    const specrt__cuda_taken deep = {NULL, NULL, SPECRT_TREE_MAX_STEPS};
    specrt__cuda_choice choice = {s.size, p, p, p, NULL}, small = {s.size - 1, p, p, p, NULL};
#define TRY(hidden, dtype, taken, choice)                                                          \
    specrt__cuda_sketch_route(&s, &one, hidden, dtype, NULL, taken, p, choice, NULL)
    CHECK_INT(TRY(p, SPECRT_DTYPE_Q8_0, NULL, &choice), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(TRY(NULL, SPECRT_DTYPE_F32, NULL, &choice), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(p, SPECRT_DTYPE_F32, &deep, &choice), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(p, SPECRT_DTYPE_F32, NULL, &small), SPECRT_STATUS_BAD_ARG);
#undef TRY
}

/* Sketches of bands run on the CPU alone: a session on the device says so, and leaves nothing behind. */
static void test_bands(void) {
    enum { V = 32, D = 8, RANK = 16 };
    const size_t rows = 64 + 2 * RANK * D + 4 * D, scales = (rows + 8 * V + 63) / 64 * 64;
    const size_t size = scales + 64 + V * RANK / 4;
    static float weights[V * D];
    uint8_t *bytes = calloc(1, size), *file;
    specrt_sketch_header h = {.n_rows = V, .n_cols = D, .rank = RANK, .n_bands = 1};
    h.bands[0].rank = RANK;
    h.bands[0].bits = 2;
    memcpy(bytes, &h, sizeof h);
    for (int32_t i = 0; i < V; i++) memcpy(bytes + rows + 4 * (size_t)i, &i, 4);
    fixture_section part = {"sketch", 2, SPECRT_SECTION_DEPENDS_HEAD, bytes, size, size};
    specrt_head_desc desc = {.rows = weights, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = D};
    specrt_policy_desc wanted = {.text = "sketch:5"};
    size_t n;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_cuda_policy *shared = NULL;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    file = fixture_bundle(&part, 1, &n);
    REQUIRE(!specrt_bundle_open_memory(file, n, "b", NULL, &bundle, &err));
    REQUIRE(!specrt_head_bind(bundle, &desc, NULL, &head, &err));
    REQUIRE(!specrt_policy_create(bundle, head, &wanted, &policy, &err));
    CHECK_INT(specrt_cuda_policy_create(policy, NULL, &shared, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "sketch: expected codes of one width on the device, found 1 bands");
    CHECK(shared == NULL);
    specrt_policy_close(policy);
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    free(file);
    free(bytes);
}

static const test_case cases[] = {
    {"names", "8 and 4 bits, a bias, ties, members, one state and several", test_names},
    {"many", "several blocks of places, any projection, many dimensions", test_many},
    {"random", "shapes by chance", test_random},
    {"refusals", "bad arguments give a status", test_refusals},
    {"bands", "a sketch of several widths is refused by name", test_bands},
};
GPU_TEST_MAIN(cases, 31)
