/* test_gpu_route.c : levels routed on the device against the CPU's sources: clusters by every kind of router,
 * with limits and empty clusters, and successors of a graph. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/cluster.h"
#include "sources/successor.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "gpu.h"

enum { N_IDS = 900, N_COLS = 6, MAX_EMBED = 1056, BATCH = 2, MAX_N = 11, MAX_CLUSTERS = 280 };

/* The harness's; not on a GPU. */
extern unsigned harness_grid[3] __attribute__((weak));

GPU_RANDOM(21)

static float head_rows[N_IDS][N_COLS];
static uint8_t embedding[N_IDS * (MAX_EMBED * 4 + 8)];
static specrt_head *head;
static specrt__pool *pool;

static int by_number(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* --- what a level is asked with --- */

typedef struct level_input {
    specrt_cuda_beam beams[BATCH];
    float states[BATCH][MAX_N][N_COLS];
} level_input;

static void draw_level(level_input *in) {
    for (int b = 0; b < BATCH; b++) {
        specrt_cuda_beam *beam = &in->beams[b];
        beam->n = b == 0 ? 1 + random_below(MAX_N) : random_below(3);
        for (int i = 0; i < MAX_N; i++) {
            beam->tokens[i] = random_below(N_IDS);
            beam->logprobs[i] = -0.3f * (float)i - (float)random_below(3);
            for (int j = 0; j < N_COLS; j++) in->states[b][i][j] = fixture_normal(&random_state);
        }
    }
}

static specrt__source_routed *make_routed(int32_t max_rows) {
    specrt__source_routed *r = (specrt__source_routed *)calloc(1, sizeof *r);
    r->pool = pool;
    r->levels = (uint32_t *)calloc(N_IDS, sizeof(uint32_t));
    r->masked = (int32_t *)calloc((size_t)max_rows, sizeof(int32_t));
    r->max_rows = max_rows;
    r->level = 1;
    return r;
}

static void free_routed(specrt__source_routed *r) {
    free(r->levels);
    free(r->masked);
    free(r);
}

/* What a source adds on the CPU, as ids in order. @return how many.
 *   taken : [N_IDS] as the source finds it; NULL: zeros
 *   takers : u64 [N_IDS] by token: which rows of the level score it; NULL: not asked for */
static int32_t route_on_cpu(const specrt__source *routed, void *state, const level_input *in, int b,
                            const uint32_t *taken, int32_t *ids, uint64_t *takers) {
    const specrt_cuda_beam *beam = &in->beams[b];
    specrt__source_level level = {.level = 1,
                                  .n = beam->n,
                                  .tokens = beam->tokens,
                                  .logprobs = beam->logprobs,
                                  .draft_input = in->states[b][0],
                                  .draft_hidden = in->states[b][0]};
    specrt__source_routed *r = make_routed(2 * N_IDS);
    int32_t n = 0;
    if (taken) memcpy(r->levels, taken, N_IDS * sizeof *taken);
    if (beam->n > 0) routed->route(state, &level, r);
    for (int32_t i = 0; i < r->n_segments; i++)
        for (int32_t j = 0; j < r->segments[i].n_rows; j++) {
            uint64_t by = r->segments[i].scored_by;
            ids[n++] = r->segments[i].ids[j];
            if (takers) takers[ids[n - 1]] = by ? by : ~(uint64_t)0;
        }
    free_routed(r);
    qsort(ids, (size_t)n, sizeof *ids, by_number);
    return n;
}

/* What the device gave: row_ids[place] is the token of a place. */
static specrt__cuda_choice make_output(int32_t max_rows) {
    size_t bytes = (size_t)(BATCH * max_rows) * sizeof(int32_t);
    specrt__cuda_choice out = {max_rows, (int32_t *)gpu_alloc(bytes), (int32_t *)gpu_alloc(bytes),
                               (int32_t *)gpu_alloc(BATCH * sizeof(int32_t)),
                               (uint64_t *)gpu_alloc(2 * bytes)};
    return out;
}

static void compare_output(const specrt__cuda_choice *out, int b, const int32_t *row_ids,
                           const int32_t *expected, int32_t n) {
    int32_t n_rows[BATCH], *ids = (int32_t *)malloc((size_t)out->max_rows * 2 * sizeof(int32_t));
    int32_t *places = ids + out->max_rows;
    size_t at = (size_t)(b * out->max_rows);
    gpu_get(n_rows, out->n_rows, sizeof n_rows);
    gpu_get(ids, out->ids + at, (size_t)out->max_rows * sizeof *ids);
    gpu_get(places, out->places + at, (size_t)out->max_rows * sizeof *ids);
    CHECK_INT(n_rows[b], n);
    for (int32_t i = 0; i < n && i < n_rows[b]; i++) CHECK_INT(row_ids[places[i]], ids[i]);
    qsort(ids, (size_t)n, sizeof *ids, by_number);
    for (int32_t i = 0; i < n && i < n_rows[b]; i++) CHECK_INT(ids[i], expected[i]);
    free(ids);
}

static void compare_takers(const specrt__cuda_choice *out, int b, const uint64_t *expected,
                           int32_t n) {
    size_t at = (size_t)(b * out->max_rows);
    for (int32_t i = 0; i < n; i++) {
        uint64_t takers;
        int32_t id;
        gpu_get(&id, out->ids + at + i, sizeof id);
        gpu_get(&takers, out->scored_by + at + i, sizeof takers);
        CHECK(takers == expected[id]);
    }
}

static void free_output(specrt__cuda_choice *out) {
    gpu_free(out->scored_by);
    gpu_free(out->ids);
    gpu_free(out->places);
    gpu_free(out->n_rows);
}

/* --- clusters --- */

typedef struct cluster_case {
    specrt_clusters_header header;
    specrt_dtype dtype; /* of the embedding */
    size_t stride;
    uint32_t offsets[MAX_CLUSTERS + 1];
    int32_t ids[N_IDS];
    uint16_t w1[64 * (MAX_EMBED + N_COLS)], b1[64], w2[MAX_CLUSTERS * 64], b2[MAX_CLUSTERS];
    specrt__cluster_shared *shared;
    specrt__cuda_router router;
} cluster_case;

static void draw_halves(uint16_t *out, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        float x = fixture_normal(&random_state);
        specrt_to_f16(&x, 1, out + i);
    }
}

/* Rows of every type, some apart. */
static void draw_embedding(cluster_case *c) {
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                          SPECRT_DTYPE_Q8_0};
    float row[MAX_EMBED];
    c->dtype = dtypes[random_below(4)];
    c->header.n_embed =
        c->dtype == SPECRT_DTYPE_Q8_0 ? 32 * (1 + random_below(33)) : 1 + random_below(MAX_EMBED);
    c->stride = specrt_row_bytes(c->dtype, c->header.n_embed) + (size_t)random_below(3) * 4;
    for (size_t i = 0; i < N_IDS; i++) {
        for (int j = 0; j < MAX_EMBED; j++) row[j] = fixture_normal(&random_state);
        quantise_row(c->dtype, row, c->header.n_embed, embedding + i * c->stride);
    }
}

/* Clusters of very different sizes. */
static void draw_clusters(cluster_case *c, int32_t kind, int32_t n_clusters, int32_t n_hidden) {
    int32_t n = 0, n_state = N_COLS;
    memset(c, 0, sizeof *c);
    c->header.n_rows = N_IDS;
    c->header.n_cols = N_COLS;
    c->header.n_clusters = n_clusters;
    c->header.router = kind;
    c->header.softmax = random_below(2);
    c->header.n_state = n_state;
    if (kind == SPECRT_ROUTER_DYNASPEC) draw_embedding(c);
    c->header.n_hidden = kind == SPECRT_ROUTER_CENTROID ? 0
                         : kind == SPECRT_ROUTER_CORAL  ? n_state
                                                        : n_hidden;
    for (int32_t m = 0; m < n_clusters; m++) {
        int32_t left = N_IDS - n - (n_clusters - m - 1), size = 1 + random_below(4);
        if (random_below(5) == 0) size = 1 + random_below(700);
        if (m == n_clusters - 1 || size > left) size = left;
        c->offsets[m] = (uint32_t)n;
        for (int32_t i = 0; i < size; i++, n++) c->ids[n] = n * 7 % N_IDS;
        qsort(c->ids + n - size, (size_t)size, sizeof *c->ids, by_number);
    }
    c->offsets[n_clusters] = (uint32_t)n;
    c->header.n_members = n;
    draw_halves(c->w1, c->header.n_hidden * (c->header.n_embed + n_state));
    draw_halves(c->b1, c->header.n_hidden);
    draw_halves(c->w2, n_clusters * 64);
    draw_halves(c->b2, n_clusters);
}

static void share_clusters(cluster_case *c) {
    specrt_clusters view = {&c->header, c->offsets, c->ids, NULL, c->w1, c->b1, c->w2, c->b2};
    c->shared = specrt__cluster_allocate(&view, head, 0, c->header.n_members);
    REQUIRE(c->shared);
    specrt__cluster_pack(c->shared, NULL, 0, -1);
    if (c->header.n_embed == 0) return;
    c->shared->embedding.rows = embedding;
    c->shared->embedding.dtype = c->dtype;
    c->shared->embedding.n_rows = N_IDS;
    c->shared->embedding.n_cols = c->header.n_embed;
    c->shared->embedding.row_stride = c->stride;
}

static void send_clusters(cluster_case *c) {
    const specrt_clusters_header *h = &c->header;
    specrt__cuda_router *r = &c->router;
    size_t n = (size_t)h->n_clusters;
    r->kind = h->router;
    r->softmax = h->softmax;
    r->n_clusters = h->n_clusters;
    r->n_embed = h->n_embed;
    r->n_state = h->n_state;
    r->n_hidden = h->n_hidden;
    r->w1 = (uint16_t *)gpu_copy(c->w1, sizeof c->w1);
    r->w2 = (uint16_t *)gpu_copy(c->w2, sizeof c->w2);
    r->b1 = (float *)gpu_copy(c->shared->w1.bias, (size_t)h->n_hidden * sizeof(float));
    r->b2 = (float *)gpu_copy(c->shared->w2.bias, n * sizeof(float));
    r->starts = (int32_t *)gpu_copy(c->shared->starts, (n + 1) * sizeof(int32_t));
    r->ids = (int32_t *)gpu_copy(c->shared->ids, (size_t)h->n_members * sizeof(int32_t));
    if (h->n_embed == 0) return;
    r->embedding.rows = gpu_copy(embedding, sizeof embedding);
    r->embedding.dtype = c->dtype;
    r->embedding.n_rows = N_IDS;
    r->embedding.n_cols = h->n_embed;
    r->embedding.row_stride = c->stride;
}

static void free_clusters(cluster_case *c) {
    const specrt__cuda_router *r = &c->router;
    const void *used[] = {r->w1, r->w2, r->b1, r->b2, r->starts, r->ids, r->embedding.rows};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free((void *)(uintptr_t)used[i]);
    specrt__cluster_unshare(c->shared);
}

static void run_clusters(cluster_case *c, int32_t n_take) {
    static level_input in;
    int32_t ids[2 * N_IDS];
    specrt__source_session with = {
        .topk = MAX_N, .n_block = 1, .n_states = MAX_N, .env = &c->shared->env};
    void *state = specrt__cluster_open(c->shared, &with);
    void *scratch = gpu_alloc(specrt__cuda_router_bytes(&c->router, BATCH, MAX_N));
    specrt__cuda_choice out = make_output(N_IDS);
    for (int i = 0; i < SPECRT_TREE_MAX_STEPS; i++) c->shared->levels[i] = n_take;
    uint64_t takers[N_IDS];
    c->shared->per_row = c->router.per_row != 0;
    c->shared->cap = c->router.cap;
    draw_level(&in);
    level_input *d = (level_input *)gpu_copy(&in, sizeof in);
    specrt__cuda_choice choice = out;
    if (!c->router.per_row) choice.scored_by = NULL;
    CHECK_INT(specrt__cuda_route(&c->router, BATCH, MAX_N, n_take, d->beams, d->states[0][0],
                                 scratch, &choice, NULL),
              SPECRT_STATUS_OK);
    if (harness_grid) CHECK(harness_grid[0] * harness_grid[1] <= 8); /* rows are listed, at last */
    for (int b = 0; b < BATCH; b++) {
        int32_t n = route_on_cpu(&specrt__cluster_source, state, &in, b, NULL, ids, takers);
        compare_output(&out, b, c->shared->ids, ids, n);
        if (c->router.per_row) compare_takers(&out, b, takers, n);
    }
    specrt__cluster_close(state);
    gpu_free(scratch);
    gpu_free(d);
    free_output(&out);
}

static void test_clusters(void) {
    static cluster_case c;
    for (int i = 0; i < 9; i++) {
        int32_t n_clusters = i % 4 == 3 ? MAX_CLUSTERS : 1 + random_below(40);
        draw_clusters(&c, SPECRT_ROUTER_CENTROID + i % 3, n_clusters, 1 + random_below(64));
        share_clusters(&c);
        send_clusters(&c);
        for (int j = i % 2; j < 6; j += 2) {
            c.router.per_row = j % 3 == 2;
            c.router.cap = j < 3 ? 0 : 1 + random_below(90);
            run_clusters(&c, 1 + random_below(j ? 6 : 60));
        }
        free_clusters(&c);
    }
}

/* --- successors --- */

enum { DEGREE = 290 };

typedef struct graph_case {
    specrt_cograph_header header;
    uint64_t totals[N_IDS];
    uint32_t offsets[N_IDS + 1];
    int32_t ids[N_IDS * DEGREE];
    float counts[N_IDS * DEGREE];
    int32_t row_of[N_IDS];
} graph_case;

static void draw_graph(graph_case *g) {
    memset(g, 0, sizeof *g);
    g->header.n_vocab = N_IDS;
    g->header.max_degree = DEGREE;
    for (int32_t u = 0; u < N_IDS; u++) {
        int32_t degree = u % 5 ? random_below(DEGREE + 1) : 0, id = random_below(N_IDS);
        float count = 20000;
        for (int32_t i = 0; i < degree; i++, id = (id + 7) % N_IDS) {
            count -= (float)random_below(50);
            g->ids[g->header.n_edges] = id;
            g->counts[g->header.n_edges++] = count;
            g->totals[u] += (uint64_t)count + 3;
        }
        g->offsets[u + 1] = (uint32_t)g->header.n_edges;
        g->row_of[u] = u;
    }
}

/*   taken : [BATCH, N_IDS] the levels that another source has a token at; NULL: none */
static void run_successors(const graph_case *g, const specrt__cuda_cograph *graph,
                           specrt_cuda_state *states, int32_t size, bool mapped,
                           const uint32_t *taken) {
    static level_input in;
    specrt__successor_shared shared = {specrt__base_env(NULL), head, {0}, size};
    int32_t ids[N_IDS], *row_of = (int32_t *)gpu_copy(g->row_of, sizeof g->row_of);
    shared.graph.header = &g->header;
    shared.graph.totals = g->totals;
    shared.graph.offsets = g->offsets;
    shared.graph.ids = g->ids;
    shared.graph.counts = g->counts;
    specrt__source_session with = {
        .topk = MAX_N, .n_block = 1, .n_states = MAX_N, .env = &shared.env};
    void *state = specrt__successor_open(&shared, &with);
    uint32_t *levels = taken ? (uint32_t *)gpu_copy(taken, (size_t)BATCH * N_IDS * 4) : NULL;
    void *scratch = gpu_alloc(specrt__cuda_successors_bytes(graph, BATCH, MAX_N, size));
    specrt__cuda_choice out = make_output(size);
    draw_level(&in);
    for (int i = 1; i < in.beams[0].n; i += 3) in.beams[0].tokens[i] = in.beams[0].tokens[0];
    level_input *d = (level_input *)gpu_copy(&in, sizeof in);
    specrt__cuda_taken others = {.states = states, .levels = levels, .level = 1};
    CHECK_INT(specrt__cuda_successors(graph, BATCH, MAX_N, mapped ? row_of : NULL, d->beams,
                                      &others, scratch, &out, NULL),
              SPECRT_STATUS_OK);
    for (int b = 0; b < BATCH; b++) {
        int32_t n = route_on_cpu(&specrt__successor_source, state, &in, b,
                                 taken ? taken + b * N_IDS : NULL, ids, NULL);
        compare_output(&out, b, g->row_of, ids, n);
    }
    specrt__successor_close(state);
    gpu_free(scratch);
    gpu_free(levels);
    gpu_free(d);
    gpu_free(row_of);
    free_output(&out);
}

/* Membership of a few tokens, alike in both sequences. */
static specrt_cuda_state *make_states(void **memory) {
    specrt__cuda_state_params p = {.n_ids = N_IDS, .capacity = 0};
    specrt_cuda_state host[BATCH];
    for (int b = 0; b < BATCH; b++) {
        memory[b] = gpu_alloc(specrt__cuda_state_bytes(&p));
        REQUIRE(specrt__cuda_state_place(&p, memory[b], &host[b]) == SPECRT_STATUS_OK);
        gpu_put_marks(host[b].wants, pool->wants, N_IDS);
    }
    specrt_cuda_state *states = (specrt_cuda_state *)gpu_copy(host, sizeof host);
    CHECK_INT(specrt__cuda_state_begin(BATCH, NULL, 0, states, NULL), SPECRT_STATUS_OK);
    return states;
}

static void check_marks(const specrt_cuda_state *states) {
    specrt_cuda_state s;
    int32_t marks[N_IDS];
    gpu_get(&s, states, sizeof s);
    gpu_get(marks, s.marks, sizeof marks);
    for (int32_t i = 0; i < N_IDS; i++) CHECK_INT(marks[i], -1);
}

static void test_successors(void) {
    static graph_case g;
    static uint32_t taken[BATCH * N_IDS];
    void *memory[BATCH];
    specrt_cuda_state *states = make_states(memory);
    for (int i = 0; i < 4; i++) {
        draw_graph(&g);
        specrt__cuda_cograph graph = {N_IDS,
                                      DEGREE,
                                      (uint64_t *)gpu_copy(g.totals, sizeof g.totals),
                                      (uint32_t *)gpu_copy(g.offsets, sizeof g.offsets),
                                      (int32_t *)gpu_copy(g.ids, sizeof g.ids),
                                      (float *)gpu_copy(g.counts, sizeof g.counts)};
        for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
            taken[k] = 1u << random_below(3) | (uint32_t)random_below(2) << 31;
        for (int j = 0; j < 4; j++)
            run_successors(&g, &graph, states, 1 + j * j * 22, j & 1, i % 2 ? taken : NULL);
        const void *used[] = {graph.totals, graph.offsets, graph.ids, graph.counts};
        for (int k = 0; k < 4; k++) gpu_free((void *)(uintptr_t)used[k]);
        check_marks(states);
    }
    for (int b = 0; b < BATCH; b++) gpu_free(memory[b]);
    gpu_free(states);
}

/* A graph that lists a token twice for another: it comes once. */
static void test_damaged(void) {
    static const uint64_t totals[2] = {10, 0};
    static const uint32_t offsets[3] = {0, 3, 3};
    static const int32_t edges[3] = {1, 1, 0};
    static const float counts[3] = {5, 3, 2};
    void *memory[BATCH];
    specrt_cuda_state *states = make_states(memory);
    specrt__cuda_cograph graph = {2,
                                  3,
                                  (uint64_t *)gpu_copy(totals, sizeof totals),
                                  (uint32_t *)gpu_copy(offsets, sizeof offsets),
                                  (int32_t *)gpu_copy(edges, sizeof edges),
                                  (float *)gpu_copy(counts, sizeof counts)};
    level_input in;
    int32_t n_rows[BATCH];
    memset(&in, 0, sizeof in);
    in.beams[0].n = 2;
    level_input *d = (level_input *)gpu_copy(&in, sizeof in);
    specrt__cuda_choice out = make_output(2);
    void *scratch = gpu_alloc(specrt__cuda_successors_bytes(&graph, BATCH, MAX_N, 2));
    specrt__cuda_taken members = {.states = states};
    CHECK_INT(specrt__cuda_successors(&graph, BATCH, MAX_N, NULL, d->beams, &members, scratch, &out,
                                      NULL),
              SPECRT_STATUS_OK);
    gpu_get(n_rows, out.n_rows, sizeof n_rows);
    CHECK_INT(n_rows[0], 1);
    CHECK_INT(n_rows[1], 0);
    check_marks(states);
    const void *used[] = {graph.totals, graph.offsets, graph.ids, graph.counts, scratch, d,
                          states,       memory[0],     memory[1]};
    for (int k = 0; k < 9; k++) gpu_free((void *)(uintptr_t)used[k]);
    free_output(&out);
}

TEST(refusals, "bad arguments give a status") {
    specrt__cuda_router r = {.kind = SPECRT_ROUTER_CENTROID, .n_clusters = 4, .n_state = 8};
    specrt__cuda_cograph g = {.n_vocab = 10, .max_degree = 3};
    int32_t some[4];
    CHECK(specrt__cuda_router_bytes(&r, 1, 4) > 0);
    CHECK_INT(specrt__cuda_router_bytes(&r, 1, 65), 0);
    specrt__cuda_choice choice = {4, some, some, some, NULL};
    specrt__cuda_taken nobody = {.level = 0};
    CHECK_INT(specrt__cuda_route(&r, 1, 4, 2, NULL, NULL, some, &choice, NULL),
              SPECRT_STATUS_BAD_ARG);
    r.kind = SPECRT_ROUTER_NONE;
    CHECK_INT(specrt__cuda_router_bytes(&r, 1, 4), 0);
    CHECK(specrt__cuda_successors_bytes(&g, 1, 4, 10) > 0);
    CHECK_INT(specrt__cuda_successors_bytes(&g, 1, 4, 11), 0);
    CHECK_INT(specrt__cuda_successors(&g, 1, 4, NULL, NULL, &nobody, some, &choice, NULL),
              SPECRT_STATUS_BAD_ARG);
}

static void with_head(void (*fn)(void)) {
    specrt_env env = specrt__base_env(NULL);
    head = bind_rows(NULL, head_rows, N_IDS, N_COLS);
    pool = specrt__pool_create(head, N_IDS, 0, &env);
    for (int i = 0; i < N_IDS; i += 13) specrt__pool_mark(pool, i, SPECRT__POOL_FIXED);
    for (int i = 5; i < N_IDS; i += 29) specrt__pool_mark(pool, i, SPECRT__POOL_INVALID);
    fn();
    specrt__pool_free(pool);
    specrt_head_close(head);
}

TEST(clusters, "the clusters of the CPU's routers") {
    with_head(test_clusters);
}
TEST(successors, "the successors of the CPU's source") {
    with_head(test_successors);
}
TEST(damaged, "a graph that names a token twice") {
    with_head(test_damaged);
}
