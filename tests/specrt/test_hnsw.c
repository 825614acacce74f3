/* test_hnsw.c : the index against brute force: exact where it must be, near elsewhere, the same for any
 * threads, refused when damaged. */
#include "fixture.h"
#include "test.h"

#include "tools/hnsw-build/index.h"

static uint64_t state = 9;
static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

/* Rows around a few centres, of different lengths. */
static float *make_rows(int32_t n, int32_t dim) {
    float *x = (float *)malloc((size_t)n * (size_t)dim * sizeof *x), centres[16][256];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < dim; j++) centres[i][j] = fixture_normal(&state);
    for (int32_t i = 0; i < n; i++) {
        const float *c = centres[below(16)];
        float length = expf(0.3f * fixture_normal(&state));
        for (int j = 0; j < dim; j++)
            x[i * dim + j] = length * (c[j] + 0.8f * fixture_normal(&state));
    }
    return x;
}

typedef struct world {
    float *rows;
    specrt_head_desc desc;
    specrt_head *head;
    int32_t *ids, n, n_left_out[3];
    uint8_t *bytes; /* of the bundle */
    specrt_bundle *bundle;
    specrt_hnsw index;
    void *scratch;
} world;

static const index_params defaults = {.m = 8, .ef_construction = 60, .seed = 1, .threads = 1};

static uint8_t *section_of(const world *w, const index_params *params, int32_t vectors, size_t *n) {
    hnsw_index built;
    REQUIRE(!index_build(&w->desc, w->ids, w->n, params, &built, NULL));
    built.header.vectors = vectors;
    built.header.ef = 64;
    uint8_t *bytes = (uint8_t *)index_bytes(&built, &w->desc, n);
    REQUIRE(bytes);
    index_free(&built);
    return bytes;
}

static specrt_status open_section(world *w, const uint8_t *section, size_t n_section,
                                  specrt_error *err) {
    size_t n;
    fixture_section part = {"hnsw", 1, 32, section, n_section, n_section};
    w->bytes = fixture_bundle(&part, 1, &n);
    REQUIRE(!specrt_bundle_open_memory(w->bytes, n, "b", NULL, &w->bundle, err));
    return specrt_bundle_hnsw(w->bundle, w->head, &w->index, err);
}

static void world_rows(world *w, float *rows, int32_t n, int32_t dim) {
    memset(w, 0, sizeof *w);
    w->rows = rows;
    w->desc =
        (specrt_head_desc){.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = n, .n_cols = dim};
    REQUIRE(!specrt_head_bind(NULL, &w->desc, NULL, &w->head, NULL));
    REQUIRE(!index_rows(&w->desc, NULL, &w->ids, &w->n, w->n_left_out, NULL));
}

static void world_make(world *w, float *rows, int32_t n, int32_t dim, const index_params *params,
                       int32_t vectors) {
    size_t n_section;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    world_rows(w, rows, n, dim);
    uint8_t *section = section_of(w, params, vectors, &n_section);
    CHECK_INT(open_section(w, section, n_section, &err), SPECRT_STATUS_OK);
    CHECK_STR(err.msg, "");
    free(section);
    REQUIRE(w->index.header);
    w->scratch = malloc(specrt_hnsw_scratch_bytes(&w->index, SPECRT_HNSW_MAX_EF));
    memset(w->scratch, 0xff, specrt_hnsw_scratch_bytes(&w->index, SPECRT_HNSW_MAX_EF));
}

static void world_free(world *w) {
    specrt_bundle_close(w->bundle);
    specrt_head_close(w->head);
    free(w->scratch);
    free(w->bytes);
    free(w->ids);
    free(w->rows);
}

/* The k indexed rows with the greatest products, in double precision. */
static void brute_force(const world *w, const float *query, int32_t k, int32_t *out) {
    double *scores = (double *)malloc((size_t)w->n * sizeof *scores);
    for (int32_t i = 0; i < w->n; i++) {
        const float *row = w->rows + (size_t)w->ids[i] * (size_t)w->desc.n_cols;
        scores[i] = 0;
        for (int64_t j = 0; j < w->desc.n_cols; j++) scores[i] += (double)row[j] * query[j];
    }
    for (int32_t r = 0; r < k; r++) {
        int32_t best = -1;
        for (int32_t i = 0; i < w->n; i++)
            if (!isnan(scores[i]) && (best < 0 || scores[i] > scores[best])) best = i;
        out[r] = w->ids[best];
        scores[best] = NAN;
    }
    free(scores);
}

/* Of queries somewhere between a row and nowhere. */
static double recall_of(world *w, int32_t ef, int n_queries) {
    int32_t found[10], truth[10], dim = (int32_t)w->desc.n_cols, hits = 0;
    float scores[10], query[256];
    for (int q = 0; q < n_queries; q++) {
        const float *near = w->rows + (size_t)w->ids[below(w->n)] * (size_t)dim;
        for (int j = 0; j < dim; j++) query[j] = near[j] + fixture_normal(&state);
        brute_force(w, query, 10, truth);
        CHECK_INT(specrt_hnsw_search(&w->index, query, 10, ef, found, scores, w->scratch), 10);
        for (int i = 0; i < 10; i++) {
            for (int k = 0; k < 10; k++) hits += found[i] == truth[k];
            CHECK(i == 0 || scores[i] <= scores[i - 1]);
        }
    }
    return hits / (10.0 * n_queries);
}

/* With ef = n every reachable node is seen, and every node is reachable. */
static void test_exact(void) {
    static const int32_t sizes[][2] = {{12, 4}, {100, 33}, {400, 32}};
    for (int i = 0; i < 3; i++)
        for (int metric = 0; metric < 2; metric++)
            for (int v = 0; v < 3; v++) {
                static const int32_t vectors[] = {SPECRT_HNSW_NONE, SPECRT_HNSW_F16,
                                                  SPECRT_HNSW_INT8};
                index_params params = defaults;
                params.m = 4;
                params.metric = metric;
                int32_t n = sizes[i][0], dim = sizes[i][1];
                world w;
                world_make(&w, make_rows(n, dim), n, dim, &params, vectors[v]);
                CHECK_NEAR(recall_of(&w, n, 10), 1, 0);
                world_free(&w);
            }
}

static void test_recall(void) {
    static const int32_t vectors[] = {SPECRT_HNSW_NONE, SPECRT_HNSW_F16, SPECRT_HNSW_INT8};
    for (int v = 0; v < 3; v++) {
        world w;
        index_params params = defaults;
        params.m = 16;
        world_make(&w, make_rows(4000, 48), 4000, 48, &params, vectors[v]);
        CHECK(recall_of(&w, 128, 40) >= 0.95);
        world_free(&w);
    }
}

static void test_one_row(void) {
    int32_t id;
    float score, query[4] = {1, 2, 3, 4};
    float *row = (float *)calloc(3 * 4, sizeof *row);
    row[5] = 2;
    world w;
    world_make(&w, row, 3, 4, &defaults, SPECRT_HNSW_INT8);
    CHECK_INT(w.n_left_out[1], 2);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, 0, &id, &score, w.scratch), 1);
    CHECK_INT(id, 1);
    CHECK_NEAR(score, 4, 1e-6);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 0, 5, &id, &score, w.scratch), 0);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 6, 5, &id, &score, w.scratch), 0);
    const int32_t most = SPECRT_HNSW_MAX_EF;
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, most, &id, &score, w.scratch), 1);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, most + 1, &id, &score, w.scratch), 0);
    world_free(&w);
}

/* As wide as rows may be. */
static void test_widest(void) {
    const int32_t dim = SPECRT_HNSW_MAX_DIM;
    float *rows = (float *)calloc(2 * (size_t)dim, sizeof *rows), score;
    int32_t id;
    rows[3] = rows[2 * dim - 1] = 1;
    world w;
    world_make(&w, rows, 2, dim, &defaults, SPECRT_HNSW_INT8);
    CHECK_INT(specrt_hnsw_search(&w.index, rows + dim, 1, 0, &id, &score, w.scratch), 1);
    CHECK_INT(id, 1);
    world_free(&w);
}

/* Queries that are not finite, great or zero find something, in order. */
static void test_queries(void) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e-38f, 0};
    int32_t ids[5], truth[5];
    float scores[5], query[16], scaled[16];
    world w;
    world_make(&w, make_rows(200, 16), 200, 16, &defaults, SPECRT_HNSW_INT8);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        for (int j = 0; j < 16; j++) query[j] = j == 3 ? odd[i] : fixture_normal(&state);
        CHECK_INT(specrt_hnsw_search(&w.index, query, 5, 200, ids, scores, w.scratch), 5);
    }
    for (int j = 0; j < 16; j++) {
        query[j] = fixture_normal(&state);
        scaled[j] = 1e-30f * query[j];
    }
    specrt_hnsw_search(&w.index, query, 5, 40, truth, scores, w.scratch);
    specrt_hnsw_search(&w.index, scaled, 5, 40, ids, scores, w.scratch);
    for (int i = 0; i < 5; i++) CHECK_INT(ids[i], truth[i]);
    world_free(&w);
}

/* What is asked of int8 rows: whole numbers, the same both ways, near the product of the rows. */
static void test_scores(void) {
    world w;
    enum { N = 59 }; /* behind the last one no node is asked for */
    float there[N], back;
    int32_t *nodes = (int32_t *)malloc(N * sizeof *nodes);
    world_make(&w, make_rows(N, 70), N, 70, &defaults, SPECRT_HNSW_INT8);
    for (int i = 0; i < N; i++) nodes[i] = i;
    specrt_hnsw_scores(&w.index, 7, nodes, N, there, w.scratch);
    CHECK_INT(specrt_hnsw_any_above(&w.index, 7, nodes, N, INFINITY, w.scratch), 0);
    for (int32_t i = 0; i < N; i++) {
        double sum = 0, a = 0, b = 0;
        for (int j = 0; j < 70; j++) {
            double x = w.rows[7 * 70 + j], y = w.rows[i * 70 + j];
            sum += x * y, a += x * x, b += y * y;
        }
        CHECK_NEAR(there[i], sum, 0.01 * sqrt(a * b));
        specrt_hnsw_scores(&w.index, i, nodes + 7, 1, &back, w.scratch);
        CHECK(back == there[i]);
        CHECK_INT(specrt_hnsw_any_above(&w.index, 7, &i, 1, there[i], w.scratch), 0);
        CHECK_INT(specrt_hnsw_any_above(&w.index, 7, nodes, i + 1, there[i] - 1, w.scratch), 1);
    }
    free(nodes);
    world_free(&w);
}

/* Equal rows are indexed once; nearly equal ones are all found. */
static void test_duplicates(void) {
    float *rows = make_rows(300, 16);
    for (int i = 1; i < 100; i++) memcpy(rows + 16 * i, rows, 16 * sizeof *rows);
    for (int i = 100; i < 200; i++) {
        memcpy(rows + 16 * i, rows, 16 * sizeof *rows);
        rows[16 * i + i % 16] += 1e-3f * (float)i;
    }
    memset(rows + 16 * 299, 0, 16 * sizeof *rows);
    world w;
    world_make(&w, rows, 300, 16, &defaults, SPECRT_HNSW_NONE);
    CHECK_INT(w.n, 200);
    CHECK_INT(w.n_left_out[1], 1);
    CHECK_INT(w.n_left_out[2], 99);
    CHECK_NEAR(recall_of(&w, 300, 20), 1, 0);
    world_free(&w);
}

static void test_threads(void) {
    static const int threads[] = {1, 2, 7};
    uint8_t *sections[3];
    size_t n[3];
    world w;
    world_rows(&w, make_rows(1500, 24), 1500, 24);
    for (int i = 0; i < 3; i++) {
        index_params params = defaults;
        params.threads = threads[i];
        sections[i] = section_of(&w, &params, SPECRT_HNSW_INT8, &n[i]);
        CHECK(n[i] == n[0] && memcmp(sections[i], sections[0], n[0]) == 0);
    }
    for (int i = 0; i < 3; i++) free(sections[i]);
    world_free(&w);
}

/* --- damage --- */

static void refuses(world *w, const uint8_t *section, size_t n, const char *what) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(open_section(w, section, n, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    CHECK_HAS(err.msg, what);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
    w->bundle = NULL;
    w->bytes = NULL;
}

static void test_damage(void) {
    size_t n;
    world w;
    world_rows(&w, make_rows(200, 8), 200, 8);
    index_params params = defaults;
    params.m = 4;
    uint8_t *good = section_of(&w, &params, SPECRT_HNSW_F16, &n), *bad = (uint8_t *)malloc(n);
    specrt_hnsw_header h;
    memcpy(&h, good, sizeof h);
    size_t ids = sizeof h, starts = ids + 800, links0 = starts + 804, links = links0 + 200 * 32;
    REQUIRE(h.n_lists > 0);
    const int32_t *first = (const int32_t *)(const void *)(good + starts);
    int32_t low = 0; /* a node of the lowest level */
    while (first[low + 1] > first[low]) low++;
    const struct {
        size_t at;
        int32_t value;
        const char *what;
    } damages[] = {{0, 0, "n_rows, dim: "},
                   {4, 1 << 30, "n_rows, dim: "},
                   {8, 201, "n_nodes: "},
                   {8, 199, "size: expected the bytes of its header's counts"},
                   {12, 1, "m: expected 2 to"},
                   {16, 32, "max_level, entry: "},
                   {16, 0, "starts: "},
                   {20, 200, "max_level, entry: "},
                   {20, -1, "max_level, entry: "},
                   {28, 2, "vectors: "},
                   {32, h.n_lists + 16, "size: expected the bytes of its header's counts"},
                   {32, -1, "n_lists: "},
                   {40, 0, "ef: "},
                   {ids, -1, "ids: "},
                   {ids + 4, 0, "ids: "},
                   {ids + 796, 200, "ids: "},
                   {starts, 1, "starts: expected 0 first and n_lists last"},
                   {starts + 400, -7, "starts: expected steps of 0 to max_level"},
                   {links0, 200, "links: expected links to nodes"},
                   {links0, -2, "links: expected links to nodes"},
                   {links, 1 << 20, "links: expected links to nodes"},
                   {links, low, "links: expected links within a level"}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        memcpy(bad, good, n);
        memcpy(bad + damages[i].at, &damages[i].value, 4);
        refuses(&w, bad, n, damages[i].what);
    }
    memcpy(bad, good, n);
    int32_t *at = (int32_t *)(void *)(bad + starts) + 100;
    while (at[0] == 0 || at[-1] != at[0] || at[1] != at[0]) at++;
    at[0]--; /* back by one list, and on again */
    refuses(&w, bad, n, "starts: expected steps of 0 to max_level");
    refuses(&w, good, n - 1, "size: expected the bytes of its header's counts");
    refuses(&w, good, 60, "size: expected at least its header");
    free(bad);
    free(good);
    world_free(&w);
}

/* Links that lead in circles, or nowhere, find less and end. */
static void test_circles(void) {
    size_t n;
    world w;
    specrt_error err;
    world_rows(&w, make_rows(200, 8), 200, 8);
    uint8_t *section = section_of(&w, &defaults, SPECRT_HNSW_F16, &n);
    int32_t *links0 = (int32_t *)(void *)(section + sizeof(specrt_hnsw_header) + 4 * (200 + 201));
    for (int32_t i = 0; i < 200; i++)
        for (int k = 0; k < 16; k++) links0[i * 16 + k] = k == 0 ? (i + 1) % 3 : k == 1 ? i : -1;
    REQUIRE(!open_section(&w, section, n, &err));
    w.scratch = malloc(specrt_hnsw_scratch_bytes(&w.index, 0));
    int32_t found[10];
    float scores[10], query[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int32_t count = specrt_hnsw_search(&w.index, query, 10, 0, found, scores, w.scratch);
    CHECK(count >= 1 && count <= 4);
    free(section);
    world_free(&w);
}

static void test_other_head(void) {
    size_t n;
    specrt_error err;
    world w, other;
    world_rows(&w, make_rows(60, 8), 60, 8);
    world_rows(&other, make_rows(60, 12), 60, 12);
    uint8_t *section = section_of(&w, &defaults, SPECRT_HNSW_NONE, &n);
    CHECK_INT(open_section(&other, section, n, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected a head [60, 8], found [60, 12]");
    CHECK_INT(specrt_bundle_hnsw(other.bundle, NULL, &w.index, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "hnsw: vectors: expected a head or stored vectors, found neither");
    free(section);
    world_free(&w);
    world_free(&other);
}

static const test_case cases[] = {
    {"exact", "ef = n, three ways to store vectors, two metrics", test_exact},
    {"recall", "4,000 rows, ef 128", test_recall},
    {"one_row", "a single row, and arguments out of range", test_one_row},
    {"widest", "rows of 131,072 columns", test_widest},
    {"queries", "not finite, great, small", test_queries},
    {"scores", "of nodes by nodes, against doubles", test_scores},
    {"duplicates", "equal, nearly equal and unusable rows", test_duplicates},
    {"threads", "the same bytes for 1, 2 and 7 threads", test_threads},
    {"damage", "every field out of range", test_damage},
    {"circles", "links in circles end", test_circles},
    {"other_head", "another width, no head", test_other_head},
};
TEST_MAIN(cases)
