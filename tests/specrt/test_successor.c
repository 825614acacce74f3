/* test_successor.c : what successor:k adds to a level, against brute force over the graph, and its
 * logits against those of packed rows. */
#include "specrt_tools.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

enum { N_IDS = 121, N_COLS = 256, N_STATIC = 20, SIZE = 12, TOPK = 5, DEGREE = 40 };

static uint64_t state = 5;
static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

typedef struct world {
    uint8_t *bytes; /* of the bundle */
    float rows[N_IDS * N_COLS], bias[N_IDS];
    uint8_t q4[N_IDS * N_COLS / 32 * 18]; /* the same rows, in a format that is decoded */
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    specrt_cograph graph;
} world;

/* A graph of random rows, some of them empty, by count descending. */
static uint8_t *graph_make(size_t *n) {
    specrt_cograph_header h = {
        .n_vocab = N_IDS - 1, .max_degree = DEGREE, .min_count = 1, .rule_degree = 64};
    uint64_t totals[N_IDS] = {0};
    uint32_t offsets[N_IDS] = {0}, n_rule[N_IDS] = {0};
    int32_t *ids = (int32_t *)calloc(N_IDS * DEGREE, sizeof *ids);
    float *counts = (float *)calloc(N_IDS * DEGREE, sizeof *counts);
    for (int32_t u = 0; u < h.n_vocab; u++) {
        int32_t degree = u % 5 ? below(DEGREE) : 0, id = below(7);
        bool rare = u % 2; /* half a pair is much of such counts */
        float count = rare ? (float)(degree + 1 + below(3)) : 1000;
        for (int32_t i = 0; i < degree; i++, id = (id + 7) % h.n_vocab) {
            count -= rare ? 1 : (float)(1 + below(20));
            ids[h.n_edges] = id;
            counts[h.n_edges++] = count;
            totals[u] += (uint64_t)count + 3;
        }
        offsets[u + 1] = (uint32_t)h.n_edges;
    }
    uint8_t *bytes = fixture_graph_of(&h, totals, offsets, n_rule, ids, counts, n);
    free(ids);
    free(counts);
    return bytes;
}

static void world_make(world *w, specrt_dtype dtype, const char *policy) {
    static const char *const tags[] = {"cograph", "ranks"};
    size_t sizes[2], n;
    uint8_t *parts[] = {graph_make(&sizes[0]), fixture_ranks(N_IDS - 1, 1, N_STATIC, &sizes[1])};
    w->bytes = fixture_join(tags, parts, sizes, 2, &n);
    for (int i = 0; i < N_IDS * N_COLS; i++) w->rows[i] = fixture_normal(&state);
    for (int i = 0; i < N_IDS; i++) w->bias[i] = fixture_normal(&state);
    for (size_t i = 0; i < sizeof w->q4; i++)
        w->q4[i] = i % 18 == 1 ? 0x2c : (uint8_t)fixture_random(&state);
    specrt_head_desc desc = {.rows = dtype == SPECRT_DTYPE_F32 ? (void *)w->rows : (void *)w->q4,
                             .dtype = dtype,
                             .n_rows = N_IDS,
                             .n_cols = N_COLS,
                             .bias = w->bias};
    specrt_policy_desc pd = {.text = policy, .n_vocab = N_IDS - 1};
    specrt_session_params params = {.n_logits = N_IDS,
                                    .tree = {.num_steps = 4, .topk = TOPK, .num_draft_tokens = 12}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    w->bundle = open_memory(w->bytes, n);
    REQUIRE(!specrt_bundle_cograph(w->bundle, &w->graph, &err));
    w->head = bind_head(w->bundle, &desc);
    w->policy = create_policy(w->bundle, w->head, &pd);
    w->session = create_session(w->policy, &params, NULL);
}

static void world_free(world *w) {
    close_all(w->session, w->policy, w->head);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
}

/* The sum of path probabilities times p(v | u), in double precision; 0 for members. */
static void score_all(const world *w, const int32_t *tokens, const float *logprobs, int32_t n,
                      double *scores) {
    for (int32_t v = 0; v < N_IDS; v++) scores[v] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t *ids;
        const float *counts;
        int32_t m = specrt_cograph_successors(&w->graph, tokens[i], &ids, &counts), n_new = 0;
        for (int32_t j = 0; j < m && n_new < SIZE; j++) {
            if (specrt__pool_member(w->session->pool, ids[j])) continue;
            if (!specrt__pool_valid(w->session->pool, ids[j])) continue;
            n_new++;
            scores[ids[j]] += exp((double)logprobs[i]) * ((double)counts[j] - 0.5) /
                              (double)w->graph.totals[tokens[i]];
        }
    }
}

/* The routed segment holds the best by score, none twice, no member, and no more than SIZE. */
static void check_level(const world *w, const int32_t *tokens, const float *logprobs, int32_t n) {
    const specrt_shortlist *shortlist = specrt_session_shortlist(w->session);
    double scores[N_IDS], worst = INFINITY;
    bool held[N_IDS] = {false};
    int32_t n_found = 0, n_rows = 0;
    score_all(w, tokens, logprobs, n, scores);
    for (int32_t v = 0; v < N_IDS; v++) n_found += scores[v] > 0;
    if (shortlist->n_segments > 1) {
        const specrt_segment *s = &shortlist->segments[1];
        n_rows = s->n_rows;
        CHECK_INT(s->n_masked, 0);
        for (int32_t i = 0; i < s->n_rows; i++) {
            CHECK(!held[s->ids[i]] && scores[s->ids[i]] > 0);
            held[s->ids[i]] = true;
            if (scores[s->ids[i]] < worst) worst = scores[s->ids[i]];
        }
    }
    CHECK_INT(n_rows, n_found < SIZE ? n_found : SIZE);
    for (int32_t v = 0; v < N_IDS; v++)
        CHECK(held[v] || scores[v] <= worst * (1 + 1e-5) || scores[v] == 0);
}

/* Every row's logit by the definition, whatever segment it lies in. */
static void check_logits(const world *w, specrt_dtype dtype, const float *hidden, int32_t n) {
    const specrt_shortlist *shortlist = specrt_session_shortlist(w->session);
    float *logits = (float *)malloc((size_t)n * (size_t)shortlist->n_rows * sizeof *logits);
    int32_t column = 0;
    REQUIRE(!specrt_shortlist_logits(shortlist, hidden, n, logits));
    for (int32_t i = 0; i < shortlist->n_segments; i++)
        for (int32_t r = 0; r < shortlist->segments[i].n_rows; r++, column++) {
            int32_t id = shortlist->segments[i].ids[r];
            float row[N_COLS];
            const void *from = dtype == SPECRT_DTYPE_F32
                                   ? (const void *)(w->rows + id * N_COLS)
                                   : (const void *)(w->q4 + id * (N_COLS / 32 * 18));
            REQUIRE(!specrt_row_decode(dtype, from, N_COLS, row));
            for (int32_t h = 0; h < n; h++) {
                double sum = w->bias[id];
                for (int j = 0; j < N_COLS; j++) sum += (double)row[j] * hidden[h * N_COLS + j];
                CHECK_NEAR(logits[h * shortlist->n_rows + column], sum, 2e-2);
            }
        }
    free(logits);
}

static void draft_some(world *w, specrt_dtype dtype) {
    static float hidden[TOPK * N_COLS];
    for (int32_t first = 0; first < N_IDS - 1; first += 3) {
        static const float sure = 0;
        specrt_beam beam = {1, &first, NULL, &sure};
        int32_t tokens[TOPK];
        float logprobs[TOPK];
        root(w->session, first);
        while (beam.n > 0) {
            int32_t n = beam.n;
            memcpy(tokens, beam.tokens, (size_t)n * sizeof *tokens);
            memcpy(logprobs, beam.logprobs, (size_t)n * sizeof *logprobs);
            for (int i = 0; i < n * N_COLS; i++) hidden[i] = 0.1f * fixture_normal(&state);
            REQUIRE(!specrt_session_expand(w->session, hidden, NULL, n, &beam));
            check_level(w, tokens, logprobs, n);
            check_logits(w, dtype, hidden, n);
        }
    }
}

TEST(levels, "rows and logits of every level, f32 and decoded heads") {
    static world w;
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_Q4_0};
    for (int i = 0; i < 2; i++) {
        world_make(&w, dtypes[i], "static:20+successor:12");
        CHECK_STR(specrt_policy_get_info(w.policy)->text, "static:20+successor:12");
        CHECK_INT(specrt_policy_get_info(w.policy)->bound, N_STATIC + SIZE);
        draft_some(&w, dtypes[i]);
        world_free(&w);
    }
}

/* Paths whose probabilities are too small for a float count by what they are to each other. */
TEST(unlikely, "paths of e^-100") {
    static world w;
    static const float hidden[2 * N_COLS], logprobs[2] = {-100, -101};
    world_make(&w, SPECRT_DTYPE_F32, "static:20+successor:12");
    for (int32_t first = 0; first + 3 < N_IDS - 1; first += 7) {
        const int32_t tokens[2] = {first, first + 3};
        specrt_beam beam = {2, tokens, NULL, logprobs};
        root(w.session, first);
        REQUIRE(specrt_session_route(w.session, 0, &beam, hidden, NULL));
        check_level(&w, tokens, logprobs, 2);
    }
    world_free(&w);
}

TEST(select, "the k greatest, against their definition") {
    uint64_t keys[300];
    for (int round = 0; round < 2000; round++) {
        int32_t n = 1 + below(300), k = 1 + below(n);
        for (int32_t i = 0; i < n; i++) keys[i] = (uint64_t)(uint32_t)below(40) << 32 | (uint32_t)i;
        specrt__shortlist_select(keys, n, k);
        uint64_t least = UINT64_MAX;
        for (int32_t i = 0; i < k; i++) least = keys[i] < least ? keys[i] : least;
        for (int32_t i = k; i < n; i++) CHECK(keys[i] < least);
    }
}

TEST(missing, "a bundle without the graph, no bundle") {
    static float rows[N_IDS * 32];
    size_t n;
    specrt_error err;
    specrt_policy *policy;
    specrt_policy_desc pd = {.text = "static:20+successor"};
    uint8_t *bytes = fixture_ranks_bundle(N_IDS, 1, N_STATIC, &n);
    specrt_bundle *bundle = open_memory(bytes, n);
    specrt_head *head = bind_rows(NULL, rows, N_IDS, 32);
    CHECK_INT(specrt_policy_create(bundle, head, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_STR(
        err.msg,
        "policy 'static:20+successor': b.specb: has no section 'cograph'; cograph-build builds it");
    pd.text = "window:100+successor";
    CHECK_INT(specrt_policy_create(NULL, head, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_HAS(err.msg, "cograph-build");
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    free(bytes);
}

/* A graph has no tokens beyond a head that has a row for each of its own; a head of few rows may. */
TEST(narrow_head, "a graph of more tokens than the head has rows") {
    static float rows[(N_IDS - 1) * 32];
    static int32_t ids[N_IDS - 2];
    const specrt_policy_desc pd = {.text = "successor:12"};
    size_t n_graph, n;
    uint8_t *graph = graph_make(&n_graph);
    const fixture_section section = {"cograph", 1, 16, graph, n_graph, n_graph};
    uint8_t *bytes = fixture_bundle(&section, 1, &n);
    specrt_bundle *bundle = open_memory(bytes, n);
    for (int32_t i = 0; i < N_IDS - 2; i++) ids[i] = i;
    for (int i = 0; i < 3; i++) { /* a row too few, few rows, as many rows as tokens */
        const specrt_head_desc desc = {.rows = rows,
                                       .dtype = SPECRT_DTYPE_F32,
                                       .n_rows = i < 2 ? N_IDS - 2 : N_IDS - 1,
                                       .n_cols = 32,
                                       .ids = i == 1 ? ids : NULL};
        specrt_policy *policy;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        specrt_head *head = bind_head(NULL, &desc);
        specrt_policy_create(bundle, head, &pd, &policy, &err);
        CHECK_INT(err.status, i ? SPECRT_STATUS_OK : SPECRT_STATUS_BUNDLE_MISMATCH);
        CHECK_HAS(err.msg, i ? "" : "successor: the graph has 120 tokens, the head 119 rows");
        specrt_policy_close(policy);
        specrt_head_close(head);
    }
    specrt_bundle_close(bundle);
    free(bytes);
    free(graph);
}
