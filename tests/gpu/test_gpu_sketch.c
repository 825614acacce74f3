/* test_gpu_sketch.c : the tokens that a sketch names, on the device and by the CPU. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/scan.h"
#include "sources/sketch.h"
#include "cuda/kernels.h"
#include "gpu.h"

enum {
    MAX_ROWS = 9000,
    MAX_COLS = 40,
    MAX_LINES = 3,
    MAX_RANK = 256 * MAX_LINES,
    BATCH = 2,
    MAX_N = 10
};

GPU_RANDOM(31)

/* Pairs as they come, all alike (every score a tie), or of two values. */
enum { NORMAL, EQUAL, FEW, DISTRIBUTIONS };

typedef struct world {
    int32_t n_rows, n_cols, n_lines, rank, n_ids;
    bool exact; /* the projection picks columns, and is the same on both sides */
    uint16_t basis[MAX_RANK * MAX_COLS];
    uint8_t records[MAX_ROWS * 64 * MAX_LINES], scales[MAX_ROWS + 16];
    uint8_t signs[(MAX_ROWS + 16) * 4];
    int8_t constants[MAX_ROWS + 16];
    int32_t rows[MAX_ROWS], ids[MAX_ROWS], row_of[2 * MAX_ROWS];
    float center[MAX_COLS], projected[MAX_RANK], bias[MAX_ROWS];
    uint8_t wants[2 * MAX_ROWS];
    float weights[MAX_ROWS * MAX_COLS]; /* of the head; only its shape matters */
} world;

static void put_bf16(uint8_t *at, float x) {
    uint32_t bits = specrt__base_bits(x);
    at[0] = (uint8_t)(bits >> 16);
    at[1] = (uint8_t)(bits >> 24);
}

static void world_make(world *w, int distribution, bool exact, int members) {
    size_t bytes = 64 * (size_t)w->n_lines;
    w->exact = exact;
    w->rank = 256 * w->n_lines - 16;
    w->n_ids = 2 * w->n_rows;
    memset(w->basis, 0, sizeof w->basis);
    for (int32_t k = 0; k < w->rank; k++)
        for (int32_t j = 0; j < w->n_cols; j++) {
            float x = exact ? (float)(j == (k * 5 + 1) % w->n_cols) : fixture_normal(&random_state);
            w->basis[k * w->n_cols + j] = specrt__base_to_f16(x);
        }
    for (int32_t j = 0; j < w->n_cols; j++) w->center[j] = exact ? (float)(j % 3) / 4 : 0;
    for (size_t i = 0; i < (size_t)w->n_rows * bytes; i++)
        w->records[i] = (uint8_t)(distribution == NORMAL  ? random_below(256)
                                  : distribution == EQUAL ? 0x77
                                                          : 0x66 + random_below(2));
    memset(w->row_of, 0xff, sizeof w->row_of);
    for (int32_t i = 0; i < w->n_rows; i++) {
        int32_t j = random_below(i + 1);
        uint8_t *end = w->records + (size_t)(i + 1) * bytes;
        w->rows[i] = w->rows[j];
        w->rows[j] = i;
        w->ids[i] = 2 * i + random_below(2);
        w->row_of[w->ids[i]] = i;
        w->bias[i] = distribution == EQUAL ? 0.5f : 20 * fixture_normal(&random_state);
        put_bf16(end - 4,
                 distribution == EQUAL ? 0.25f : 0.1f + fabsf(fixture_normal(&random_state)));
        put_bf16(end - 2, distribution == EQUAL ? 1 : fixture_normal(&random_state));
    }
    for (int32_t i = 0; i < w->n_ids; i++)
        w->wants[i] = (uint8_t)(random_below(100) < members ? 1 << random_below(6) : 0);
}

/* The twin's state, over arrays of the world; it refines all places, as the device does. */
static specrt__sketch *twin_open(world *w, const specrt_head *head, int32_t n_places,
                                 int32_t size) {
    static specrt_sketch_header header;
    specrt__sketch_shared *s = calloc(1, sizeof *s);
    header = (specrt_sketch_header){.n_rows = w->n_rows,
                                    .n_cols = w->n_cols,
                                    .rank = w->rank,
                                    .n_signs = 32,
                                    .basis_dtype = SPECRT_DTYPE_F16};
    s->head = head;
    s->view.header = &header;
    s->view.basis = w->basis;
    s->view.rows = w->rows;
    s->rank = w->rank;
    s->n_places = s->keep = n_places;
    s->size = size;
    s->basis = specrt__sketch_basis(&s->view);
    s->scan = specrt__scan_choose();
    s->env = head->compute.env;
    s->signs = (specrt__scan_signs){w->signs, 64, 1, w->scales, w->constants, 0};
    s->records = (specrt__scan_records){w->records, w->n_lines};
    specrt_shortlist basis = {&head->compute, &s->basis, 1, w->rank, w->n_cols, NULL};
    REQUIRE(specrt_shortlist_logits(&basis, w->center, 1, w->projected) == SPECRT_STATUS_OK);
    s->center = w->projected;
    specrt__source_session with = {
        .topk = MAX_N, .n_block = 1, .n_states = MAX_N, .env = &head->compute.env};
    return specrt__sketch_open(s, &with);
}

static void twin_close(specrt__sketch *s) {
    free((void *)(uintptr_t)s->shared);
    specrt__sketch_close(s);
}

/* The same tokens; of a projection whose sums run otherwise here, most of them. */
static void check_names(const world *w, specrt__sketch *s, const specrt__source_level *level,
                        const int32_t *ids, const int32_t *places, int32_t n) {
    static uint8_t seen[2 * MAX_ROWS];
    int32_t n_common = 0;
    specrt__sketch_round(s);
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

static specrt_head *head_of(const world *w, bool biased) {
    specrt_head_desc desc = {.rows = w->weights,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = w->n_rows,
                             .n_cols = w->n_cols,
                             .bias = biased ? w->bias : NULL,
                             .ids = w->ids};
    return bind_head(NULL, &desc);
}

static specrt__cuda_sketch upload(const world *w, sizes z) {
    return (specrt__cuda_sketch){.basis = gpu_copy(w->basis, sizeof w->basis),
                                 .center = gpu_copy(w->projected, sizeof w->projected),
                                 .rows = gpu_copy(w->rows, sizeof w->rows),
                                 .bias = z.biased ? gpu_copy(w->bias, sizeof w->bias) : NULL,
                                 .records = gpu_copy(w->records, sizeof w->records),
                                 .ids = gpu_copy(w->ids, sizeof w->ids),
                                 .row_of = gpu_copy(w->row_of, sizeof w->row_of),
                                 .n_cols = w->n_cols,
                                 .n_ids = w->n_ids,
                                 .rank = w->rank,
                                 .n_places = z.n_places,
                                 .size = z.size};
}

static void discard(const specrt__cuda_sketch *s) {
    const void *all[] = {s->basis, s->center, s->rows, s->bias, s->records, s->ids, s->row_of};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) gpu_free((void *)(uintptr_t)all[i]);
}

static void run_case(world *w, sizes z) {
    static float hidden[BATCH * MAX_N * MAX_COLS];
    static int32_t ids[BATCH * MAX_ROWS], places[BATCH * MAX_ROWS], again[BATCH * MAX_ROWS];
    int32_t counts[BATCH] = {z.max_n, random_below(z.max_n + 1)}, n_rows[BATCH], d = w->n_cols;
    float logprobs[BATCH * MAX_N];
    specrt_cuda_state states[BATCH];
    specrt_head *head = head_of(w, z.biased);
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
    specrt__sketch *twin = twin_open(w, head, z.n_places, z.size);
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
    specrt__cuda_taken others = {.states = all, .levels = taken, .level = 3};
    specrt__cuda_choice choice = {bound, out_ids, out_places, out_n, NULL};
    for (int i = 0; i < 2; i++) { /* the same rows in the same order, whatever ran first */
        REQUIRE(specrt__cuda_sketch_route(&s, &batch, in, SPECRT_DTYPE_F32, paths, &others, scratch,
                                          &choice, NULL) == SPECRT_STATUS_OK);
        gpu_get(i ? ids : again, out_ids, sizeof ids);
    }
    CHECK(memcmp(ids, again, sizeof ids) == 0);
    gpu_get(places, out_places, sizeof places);
    gpu_get(n_rows, out_n, sizeof n_rows);

    specrt__pool *pool = specrt__pool_create(head, w->n_ids, 1, &head->compute.env);
    specrt__source_routed *routed = calloc(1, sizeof *routed);
    for (int32_t i = 0; i < w->n_ids; i++) pool->wants[i] = w->wants[i];
    routed->pool = pool;
    routed->levels = calloc((size_t)w->n_ids, sizeof *routed->levels);
    routed->level = 3;
    twin->routed = routed;
    for (int b = 0; b < BATCH; b++) {
        const float *h = hidden + b * z.max_n * d;
        memcpy(routed->levels, levels + b * w->n_ids, (size_t)w->n_ids * sizeof *levels);
        specrt__source_level level = {
            .level = 3, .n = counts[b], .logprobs = logprobs + b * z.max_n, .draft_hidden = h};
        specrt_shortlist basis = {&head->compute, &twin->shared->basis, 1, w->rank, d, NULL};
        twin->n = counts[b];
        if (counts[b] == 0) {
            CHECK_INT(n_rows[b], 0);
            continue;
        }
        specrt_shortlist_logits(&basis, h, counts[b], twin->z);
        check_names(w, twin, &level, ids + b * bound, places + b * bound, n_rows[b]);
    }
    twin_close(twin);
    free(routed->levels), free(routed);
    specrt__pool_free(pool);
    specrt_head_close(head);
    const void *used[] = {
        in,   paths, all, n, scratch, out_ids, out_places, out_n, states[0].wants, states[1].wants,
        taken};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free((void *)(uintptr_t)used[i]);
    discard(&s);
}

TEST(names, "records of one line and two, a bias, ties, members, one state and several") {
    static world w;
    for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++)
        for (int variant = 0; variant < 4; variant++) {
            if (test_brief() && (distribution + variant) % 3) continue; /* each of both once */
            w.n_rows = 333 + 50 * distribution + variant;
            w.n_cols = 24;
            w.n_lines = 1 + variant % 2;
            world_make(&w, distribution, true, variant == 3 ? 95 : 20);
            run_case(&w, (sizes){w.n_rows, 40, 1, variant > 1});
            if (test_quick()) continue;
            run_case(&w, (sizes){w.n_rows - 7, 33, 3, variant == 1});
            run_case(&w, (sizes){w.n_rows / 2, 7, 7, false});
        }
}

TEST(many, "more places than a block takes, states of any projection, and more lines than one") {
    static world w;
    w.n_rows = 777;
    w.n_cols = 40;
    w.n_lines = 3;
    world_make(&w, NORMAL, true, 20);
    run_case(&w, (sizes){w.n_rows, 30, 9, true});
    LEFT_TO_ALL();
    w.n_rows = 8999;
    w.n_cols = 32;
    w.n_lines = 1;
    world_make(&w, NORMAL, true, 10);
    run_case(&w, (sizes){w.n_rows, 500, 2, false});
    world_make(&w, NORMAL, false, 10);
    run_case(&w, (sizes){w.n_rows, 64, test_brief() ? 3 : 10, false});
    world_make(&w, EQUAL, true, 10);
    run_case(&w, (sizes){w.n_rows, 20, 1, false});
}

/* Odd shapes by chance, as many as there is time for: few places or many, all of a magnitude or not. */
TEST(random, "shapes by chance") {
    static world w;
    int n_runs = gpu_long() ? 200 : test_brief() ? 2 : 8;
    for (int i = 0; i < n_runs; i++) {
        w.n_rows = 1 + random_below(i % 4 == 3 ? MAX_ROWS : 700);
        w.n_cols = 4 * (1 + random_below(MAX_COLS / 4));
        w.n_lines = 1 + random_below(MAX_LINES);
        world_make(&w, random_below(DISTRIBUTIONS), true, random_below(2) * random_below(101));
        sizes z = {1 + random_below(w.n_rows), 0, 1 + random_below(MAX_N), random_below(2)};
        z.size = 1 + random_below(z.n_places < 300 ? z.n_places : 300);
        run_case(&w, z);
    }
}

TEST(refusals, "bad arguments give a status") {
    static uint8_t x[64] __attribute__((aligned(16)));
    void *p = x;
    specrt__cuda_sketch bad, s = {.basis = p,
                                  .center = p,
                                  .rows = p,
                                  .records = p,
                                  .n_cols = 8,
                                  .n_ids = 16,
                                  .rank = 240,
                                  .n_places = 16,
                                  .size = 4};
    CHECK(specrt__cuda_sketch_bytes(&s, 1, 1) > 0);
#define BAD(field, value) (bad = s, bad.field = (value), specrt__cuda_sketch_bytes(&bad, 1, 1) == 0)
    CHECK(BAD(rank, 239) && BAD(rank, 256) && BAD(rank, 0) && BAD(rank, 4336));
    CHECK(BAD(n_places, 0) && BAD(size, 17) && BAD(n_ids, 0) && BAD(n_cols, 0));
    CHECK(BAD(records, x + 4) && BAD(basis, NULL) && BAD(center, NULL));
#undef BAD
    CHECK(specrt__cuda_sketch_bytes(&s, 0, 1) == 0 && specrt__cuda_sketch_bytes(&s, 1, 65) == 0);
    const specrt__cuda_batch one = {1, 1, NULL, 0};
    const specrt__cuda_taken deep = {.level = SPECRT_TREE_MAX_STEPS};
    specrt__cuda_choice choice = {s.size, p, p, p, NULL}, small = {s.size - 1, p, p, p, NULL};
#define TRY(hidden, dtype, taken, choice)                                                          \
    specrt__cuda_sketch_route(&s, &one, hidden, dtype, NULL, taken, p, choice, NULL)
    CHECK_INT(TRY(p, SPECRT_DTYPE_Q8_0, NULL, &choice), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(TRY(NULL, SPECRT_DTYPE_F32, NULL, &choice), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(p, SPECRT_DTYPE_F32, &deep, &choice), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(p, SPECRT_DTYPE_F32, NULL, &small), SPECRT_STATUS_BAD_ARG);
#undef TRY
}
