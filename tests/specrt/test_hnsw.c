/* test_hnsw.c : the index against brute force: exact where it must be, near elsewhere, the same for any
 * threads, refused when damaged. */
#include "starve.h"
#include "opened.h"

#include "tools/hnsw-build/index.h"
#include "tools/hnsw-build/recall.h"

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
    w->bundle = open_memory(w->bytes, n);
    return specrt_bundle_hnsw(w->bundle, w->head, &w->index, err);
}

static void world_rows(world *w, float *rows, int32_t n, int32_t dim) {
    memset(w, 0, sizeof *w);
    w->n_left_out[1] = 9; /* of an earlier call */
    w->rows = rows;
    w->desc = f32_rows(rows, n, dim);
    w->head = bind_head(NULL, &w->desc);
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
TEST(exact, "ef = n, three ways to store vectors, two metrics") {
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

TEST(recall, "4,000 rows, ef 128") {
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

TEST(one_row, "a single row, and arguments out of range") {
    int32_t id, ids[2] = {7, 7};
    float score, scores[2], query[4] = {1, 2, 3, 4};
    float *row = (float *)calloc(3 * 4, sizeof *row);
    row[5] = 2;
    world w;
    world_make(&w, row, 3, 4, &defaults, SPECRT_HNSW_INT8);
    CHECK_INT(w.n_left_out[1], 2);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, 0, &id, &score, w.scratch), 1);
    CHECK_INT(id, 1);
    CHECK_NEAR(score, 4, 1e-6);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 2, 2, ids, scores, w.scratch), 1);
    CHECK_INT(ids[1], 7); /* where no row was found */
    CHECK_INT(specrt_hnsw_search(&w.index, query, 0, 5, &id, &score, w.scratch), 0);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 6, 5, &id, &score, w.scratch), 0);
    const int32_t most = SPECRT_HNSW_MAX_EF;
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, most, &id, &score, w.scratch), 1);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 1, most + 1, &id, &score, w.scratch), 0);
    world_free(&w);
}

TEST(widest, "rows of 131,072 columns, as wide as rows may be, with as many links") {
    index_params params = defaults;
    params.m = SPECRT_HNSW_MAX_M;
    const int32_t dim = SPECRT_HNSW_MAX_DIM;
    float *rows = (float *)calloc(2 * (size_t)dim, sizeof *rows), score;
    int32_t id;
    rows[3] = rows[2 * dim - 1] = 1;
    world w;
    world_make(&w, rows, 2, dim, &params, SPECRT_HNSW_INT8);
    CHECK_INT(specrt_hnsw_search(&w.index, rows + dim, 1, 0, &id, &score, w.scratch), 1);
    CHECK_INT(id, 1);
    world_free(&w);
}

TEST(queries, "queries that are not finite, great or zero find something, in order") {
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

TEST(padding, "what pads int8 rows counts for nothing, even where a bundle has it other than 0") {
    enum { N = 60, DIM = 70, PADDED = 128 };
    int32_t ids[5], truth[5];
    float scores[5], expected[5], query[DIM];
    world w;
    world_make(&w, make_rows(N, DIM), N, DIM, &defaults, SPECRT_HNSW_INT8);
    REQUIRE(!specrt_bundle_hnsw(w.bundle, NULL, &w.index, NULL)); /* scores by codes alone */
    for (int j = 0; j < DIM; j++) query[j] = fixture_normal(&state);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 5, N, truth, expected, w.scratch), 5);
    uint8_t *codes = (uint8_t *)(uintptr_t)w.index.codes; /* of w.bytes */
    for (int32_t i = 0; i < N; i++) memset(codes + i * PADDED + DIM, 127, PADDED - DIM);
    CHECK_INT(specrt_hnsw_search(&w.index, query, 5, N, ids, scores, w.scratch), 5);
    CHECK(memcmp(ids, truth, sizeof ids) == 0 && memcmp(scores, expected, sizeof scores) == 0);
    world_free(&w);
}

/* What is asked of int8 rows: whole numbers, the same both ways, near the product of the rows. */
TEST(scores, "of nodes by nodes, against doubles") {
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

TEST(duplicates, "equal rows are indexed once; nearly equal ones are all found") {
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

/* More nodes than before. */
static void note_progress(void *user, int64_t done) {
    int64_t *before = user;
    CHECK(done > *before);
    *before = done;
}

TEST(threads, "the same bytes for 1, 2 and 7 threads") {
    static const int threads[] = {1, 2, 7};
    uint8_t *sections[3];
    size_t n[3];
    world w;
    world_rows(&w, make_rows(1500, 24), 1500, 24);
    for (int i = 0; i < 3; i++) {
        index_params params = defaults;
        int64_t done = 0;
        params.threads = threads[i];
        params.progress = note_progress;
        params.user = &done;
        sections[i] = section_of(&w, &params, SPECRT_HNSW_INT8, &n[i]);
        CHECK(n[i] == n[0] && memcmp(sections[i], sections[0], n[0]) == 0);
        CHECK_INT(done, 1500);
    }
    for (int i = 0; i < 3; i++) free(sections[i]);
    world_free(&w);
}

/* ---- the graph, against one that is built link by link ---- */

enum { M = 4, N_LEVELS = 8, N_GRID = 1300 }; /* more rows than two batches of the largest size */

typedef struct naive_link {
    bool is_spare;
    double score;
    int32_t node;
} naive_link;

typedef struct naive_list {
    naive_link links[4 * M + 1];
    int32_t n;
} naive_list;

typedef struct naive_graph {
    const world *w;
    int32_t order[N_GRID], level[N_GRID];
    naive_list lists[N_LEVELS][N_GRID], before[N_LEVELS][N_GRID]; /* a batch */
} naive_graph;

/* Rows of whole numbers up to 127, so that int8 rows are exact and many scores are equal. */
static float *make_grid(int32_t n, int32_t dim) {
    float *x = (float *)malloc((size_t)n * (size_t)dim * sizeof *x);
    for (int32_t i = 0; i < n; i++) {
        for (int j = 0; j < dim; j++) x[i * dim + j] = (float)(20 * (below(5) - 2));
        x[i * dim + below(dim)] = below(2) ? 127 : -127;
    }
    return x;
}

static double product(const world *w, int32_t a, int32_t b) {
    double sum = 0;
    for (int64_t j = 0; j < w->desc.n_cols; j++)
        sum += (double)w->rows[w->ids[a] * w->desc.n_cols + j] *
               (double)w->rows[w->ids[b] * w->desc.n_cols + j];
    return sum;
}

/* Chosen links first, then by score, then by node. */
static int by_place(const void *a, const void *b) {
    const naive_link *x = (const naive_link *)a, *y = (const naive_link *)b;
    if (x->is_spare != y->is_spare) return x->is_spare ? 1 : -1;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->node - y->node;
}

static void naive_cut(naive_list *list, int32_t most_chosen, int32_t most) {
    int32_t n_chosen = 0, n = 0;
    qsort(list->links, (size_t)list->n, sizeof *list->links, by_place);
    for (int32_t i = 0; i < list->n; i++) {
        n_chosen += !list->links[i].is_spare;
        if (n < most && (list->links[i].is_spare || n_chosen <= most_chosen))
            list->links[n++] = list->links[i];
    }
    list->n = n;
}

/* Malkov and Yashunin's heuristic: a link is spare if a better chosen one is nearer to its node. */
static bool is_shadowed(const naive_graph *g, const naive_list *list, naive_link c) {
    for (int32_t i = 0; i < list->n; i++)
        if (!list->links[i].is_spare && by_place(&list->links[i], &c) < 0 &&
            product(g->w, list->links[i].node, c.node) > c.score)
            return true;
    return false;
}

static void naive_choose(const naive_graph *g, int32_t node, int32_t level, int32_t n_there,
                         naive_list *list) {
    naive_link *all = (naive_link *)malloc((size_t)n_there * sizeof *all);
    int32_t n = 0, n_chosen = 0;
    for (int32_t i = 0; i < n_there; i++)
        if (g->order[i] != node && g->level[g->order[i]] >= level)
            all[n++] = (naive_link){false, product(g->w, node, g->order[i]), g->order[i]};
    qsort(all, (size_t)n, sizeof *all, by_place);
    for (int32_t i = 0; i < n && n_chosen < M; i++) {
        all[i].is_spare = is_shadowed(g, list, all[i]);
        n_chosen += !all[i].is_spare;
        if (list->n - n_chosen < M || !all[i].is_spare) list->links[list->n++] = all[i];
    }
    free(all);
    naive_cut(list, M, M);
}

/* A link back: it may make links spare that are worse. */
static void naive_admit(naive_graph *g, int32_t target, int32_t level, naive_link c) {
    naive_list *list = &g->lists[level][target], *before = &g->before[level][target];
    int32_t cap = level ? M : 2 * M;
    for (int32_t i = 0; i < before->n; i++)
        if (before->links[i].node == c.node) return;
    c.is_spare = is_shadowed(g, list, c);
    for (int32_t i = 0; i < list->n && !c.is_spare; i++)
        if (by_place(&list->links[i], &c) > 0 &&
            product(g->w, list->links[i].node, c.node) > list->links[i].score)
            list->links[i].is_spare = true;
    list->links[list->n++] = c;
    naive_cut(list, cap, 2 * cap);
}

static void naive_batch(naive_graph *g, int32_t begin, int32_t size) {
    for (int32_t i = begin; i < begin + size; i++)
        for (int32_t node = g->order[i], l = 0; l <= g->level[node]; l++)
            naive_choose(g, node, l, begin + size, &g->lists[l][node]);
    memcpy(g->before, g->lists, sizeof g->before);
    for (int32_t i = begin + size - 1; i >= begin; i--)
        for (int32_t node = g->order[i], l = 0; l <= g->level[node]; l++)
            for (int32_t k = 0; k < g->before[l][node].n; k++) {
                naive_link c = g->before[l][node].links[k];
                naive_admit(g, c.node, l, (naive_link){false, c.score, node});
            }
    for (int32_t l = 0; l < N_LEVELS; l++)
        for (int32_t i = 0; i < g->w->n; i++) {
            int32_t cap = l ? M : 2 * M;
            naive_cut(&g->lists[l][i], cap, cap);
        }
}

/* By hash, but for the entry. */
static void naive_order(naive_graph *g, uint64_t seed) {
    uint64_t hashes[N_GRID];
    int32_t n = g->w->n, entry = -1;
    for (int32_t i = 0; i < n; i++) hashes[i] = specrt_hash64(&g->w->ids[i], 4, seed);
    for (int32_t i = 0; i < n; i++) {
        int32_t place = 0;
        for (int32_t k = 0; k < n; k++) place += hashes[k] < hashes[i];
        g->order[place] = i;
    }
    for (int32_t i = 0; i < n; i++)
        if (entry < 0 || g->level[g->order[i]] > g->level[g->order[entry]]) entry = i;
    for (int32_t node = g->order[entry]; entry >= 0; entry--)
        g->order[entry] = entry ? g->order[entry - 1] : node;
}

static void check_links(const naive_graph *g, const hnsw_index *built) {
    int32_t n_repaired = 0;
    for (int32_t l = 0; l < N_LEVELS; l++)
        for (int32_t i = 0; i < g->w->n; i++) {
            const naive_list *list = &g->lists[l][i];
            const int32_t *links =
                l ? built->links + (built->starts[i] + l - 1) * M : built->links0 + i * 2 * M;
            for (int32_t k = 0; g->level[i] >= l && k < (l ? M : 2 * M); k++)
                if (k < list->n)
                    CHECK_INT(links[k], list->links[k].node);
                else
                    n_repaired += links[k] >= 0;
        }
    CHECK_INT(built->n_repaired, n_repaired);
}

/* With candidates without end all searches are exact, so the links are those of brute force. */
TEST(insertion, "links, levels and order, against brute force") {
    world w;
    hnsw_index built;
    int32_t n = test_brief() ? 300 : N_GRID, n_on_level[N_LEVELS] = {0};
    world_rows(&w, make_grid(n, 12), n, 12);
    const index_params params = {.m = M, .ef_construction = n, .seed = 1, .threads = 2};
    REQUIRE(!index_build(&w.desc, w.ids, w.n, &params, &built, NULL));
    naive_graph *g = (naive_graph *)calloc(1, sizeof *g);
    g->w = &w;
    for (int32_t i = 0; i < w.n; i++) {
        g->level[i] = built.starts[i + 1] - built.starts[i];
        REQUIRE(g->level[i] < N_LEVELS);
        for (int32_t l = 0; l <= g->level[i]; l++) n_on_level[l]++;
    }
    for (int32_t l = 1; l < 4; l++) /* a share of 1 / m; three deviations */
        CHECK_NEAR(n_on_level[l], n * pow(M, -l), 3 * sqrt(n * pow(M, -l)));
    naive_order(g, params.seed);
    CHECK_INT(built.header.entry, g->order[0]);
    CHECK_INT(built.header.max_level, g->level[g->order[0]]);
    for (int32_t begin = 1, size; begin < w.n; begin += size) {
        size = begin < 512 ? begin : 512;
        if (size > w.n - begin) size = w.n - begin;
        naive_batch(g, begin, size);
    }
    check_links(g, &built);
    free(g);
    index_free(&built);
    world_free(&w);
}

/* ---- what measures an index ---- */

/* Of 37 queries, the truth by brute force; what is found of it, where some truths are no rows. */
TEST(measure, "truth and recall, against brute force") {
    static const int32_t sizes[] = {200, 7};
    for (int i = 0; i < 2; i++) {
        world w;
        hnsw_recall_set set;
        hnsw_recall_step step;
        const int32_t n = sizes[i], k = n < RECALL_K ? n : RECALL_K, ef = 200, dim = 16;
        world_make(&w, make_rows(n, dim), n, dim, &defaults, SPECRT_HNSW_NONE);
        REQUIRE(!hnsw_recall_synthetic(&w.desc, w.ids, w.n, 37, 5, &set, NULL));
        REQUIRE(!hnsw_recall_truth(&set, w.head, &w.desc, w.ids, w.n, NULL));
        CHECK_INT(set.n, 37);
        for (int32_t q = 0; q < set.n; q++) {
            int32_t truth[RECALL_K];
            brute_force(&w, set.queries + q * dim, k, truth);
            for (int32_t r = 0; r < RECALL_K; r++)
                CHECK_INT(set.truth[q * RECALL_K + r], r < k ? truth[r] : -1);
        }
        REQUIRE(!hnsw_recall_measure(&set, &w.index, ef, &step, NULL));
        CHECK_INT(step.ef, ef);
        CHECK_NEAR(step.recall, 1, 0);
        CHECK(step.queries_per_second > 0);
        for (int32_t q = 0; q < 10; q++) set.truth[q * RECALL_K + q % k] = n; /* no row's */
        REQUIRE(!hnsw_recall_measure(&set, &w.index, ef, &step, NULL));
        CHECK_NEAR(step.recall, 1 - 10 / (37.0 * k), 1e-12);
        hnsw_recall_free(&set);
        world_free(&w);
    }
}

/* ---- without memory ---- */

static int build_all(void *arg) {
    const world *w = (const world *)arg;
    index_params params = defaults;
    hnsw_index built = {.ids = NULL};
    size_t n;
    int32_t *ids, n_ids, n_left_out[3];
    params.metric = INDEX_DISTANCES;
    specrt_status status = index_rows(&w->desc, NULL, &ids, &n_ids, n_left_out, NULL);
    if (!status) status = index_build(&w->desc, ids, n_ids, &params, &built, NULL);
    built.header.vectors = SPECRT_HNSW_F16;
    void *bytes = status ? NULL : index_bytes(&built, &w->desc, &n);
    if (!status && !bytes) status = SPECRT_STATUS_NO_MEMORY;
    free(bytes);
    free(ids);
    index_free(&built);
    return status;
}

static int measure_all(void *arg) {
    const world *w = (const world *)arg;
    hnsw_recall_set set = {.n = 0};
    hnsw_recall_step step;
    specrt_status status = hnsw_recall_synthetic(&w->desc, w->ids, w->n, 3, 1, &set, NULL);
    if (!status) status = hnsw_recall_truth(&set, w->head, &w->desc, w->ids, w->n, NULL);
    if (!status) status = hnsw_recall_measure(&set, &w->index, 16, &step, NULL);
    hnsw_recall_free(&set);
    return status;
}

TEST(no_memory, "every allocation that fails") {
    world w;
    world_make(&w, make_rows(40, 8), 40, 8, &defaults, SPECRT_HNSW_NONE);
    test_starve(build_all, &w, SPECRT_STATUS_NO_MEMORY);
    test_starve(measure_all, &w, SPECRT_STATUS_NO_MEMORY);
    world_free(&w);
}

/* --- damage --- */

static void opens(world *w, const uint8_t *section, size_t n, specrt_status status,
                  const char *what) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(open_section(w, section, n, &err), status);
    CHECK_HAS(err.msg, what);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
    w->bundle = NULL;
    w->bytes = NULL;
}

static void refuses(world *w, const uint8_t *section, size_t n, const char *what) {
    opens(w, section, n, SPECRT_STATUS_BUNDLE_CONTENT, what);
}

TEST(damage, "every field out of range") {
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
                   {0, 1, "n_nodes: "},
                   {4, 1 << 30, "n_rows, dim: "},
                   {8, 201, "n_nodes: "},
                   {8, 199, "size: expected the bytes of its header's counts"},
                   {12, 1, "m: expected 2 to"},
                   {16, 32, "max_level, entry: "},
                   {16, 0, "starts: "},
                   {16, 31, "entry: expected a node on the highest level"},
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
                   {links0 + 199 * 32, 200, "links: expected links to nodes"},
                   {links, 1 << 20, "links: expected links to nodes"},
                   {links, low, "links: expected links within a level"}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        memcpy(bad, good, n);
        memcpy(bad + damages[i].at, &damages[i].value, 4);
        refuses(&w, bad, n, damages[i].what);
    }
    memcpy(bad, good, n);
    memcpy(bad + 40, &(int32_t){SPECRT_HNSW_MAX_EF}, 4); /* ef */
    opens(&w, bad, n, SPECRT_STATUS_OK, "");
    memcpy(bad + 40, &(int32_t){1}, 4);
    opens(&w, bad, n, SPECRT_STATUS_OK, "");
    memcpy(bad + 4, &(int32_t){1}, 4);
    opens(&w, bad, n, SPECRT_STATUS_BUNDLE_MISMATCH, "expected a head [200, 1], found [200, 8]");
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

TEST(circles, "links that lead in circles, or nowhere, find less and end") {
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

TEST(other_head, "another width, no head") {
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
