/* test_router.c : routers against double precision, and what they bring into a level against brute force. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/cluster.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

enum { N_IDS = 205, N_COLS = 24, N_EMBED = 10, M = 13, TOPK = 6, N_HIDDEN = 20, LEVELS = 4 };
enum { MAX_WEIGHTS = 4096 };

static uint64_t state = 11;
static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

typedef struct world {
    uint8_t *bytes; /* of the bundle */
    float rows[N_IDS * N_COLS], bias[N_IDS], embedding[N_IDS * N_EMBED];
    double w1[MAX_WEIGHTS], b1[MAX_WEIGHTS], w2[MAX_WEIGHTS], b2[M];
    int32_t cluster_of[N_IDS]; /* -1: none */
    int32_t n_shared;          /* ids below it are in every cluster */
    specrt_clusters_header header;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
} world;

static specrt_clusters_header header_of(int32_t router) {
    specrt_clusters_header h = fixture_router(router, N_IDS, N_COLS, M, LEVELS);
    if (router == SPECRT_ROUTER_DYNASPEC) h.n_embed = N_EMBED, h.n_hidden = N_HIDDEN;
    if (router == SPECRT_ROUTER_CORAL) h.n_hidden = N_COLS;
    return h;
}

/* n random weights as they are stored, and as numbers. */
static uint8_t *put_weights(uint8_t *at, double *values, int32_t n) {
    for (int32_t i = 0; i < n; i++, at += 2) {
        float x = 0.4f * fixture_normal(&state);
        uint16_t half;
        specrt_to_f16(&x, 1, &half);
        memcpy(at, &half, 2);
        values[i] = (double)specrt__base_f16(half);
    }
    return at;
}

/* A section of skewed clusters that leave every tenth row out. */
static uint8_t *make_section(world *w, int32_t router, size_t *n) {
    specrt_clusters_header h = header_of(router);
    int32_t schedule[LEVELS] = {6, 4, 2, 1}, width = h.n_hidden ? h.n_hidden : h.n_state;
    uint8_t *bytes = (uint8_t *)calloc(1, 1 << 16), *at = bytes + sizeof h;
    uint32_t *offsets = (uint32_t *)(void *)at;
    int32_t *ids = (int32_t *)(void *)(offsets + M + 1);
    for (int32_t id = 0; id < N_IDS; id++) {
        w->cluster_of[id] = id % 10 == 3 ? -1 : below(1 + below(M));
        if (id % 10 != 3 && id < 3 * M) w->cluster_of[id] = id % M;
    }
    for (int32_t m = 0; m < M; m++) {
        offsets[m] = (uint32_t)h.n_members;
        for (int32_t id = 0; id < N_IDS; id++)
            if (w->cluster_of[id] == m || id < w->n_shared) ids[h.n_members++] = id;
    }
    offsets[M] = (uint32_t)h.n_members;
    at = (uint8_t *)(ids + h.n_members);
    memcpy(at, schedule, sizeof schedule);
    at += sizeof schedule;
    at = put_weights(at, w->w1, h.n_hidden * (h.n_embed + h.n_state));
    at = put_weights(at, w->b1, h.n_hidden);
    at = put_weights(at, w->w2, M * width);
    at = put_weights(at, w->b2, M);
    memcpy(bytes, &h, sizeof h);
    w->header = h;
    *n = (size_t)(at - bytes);
    return bytes;
}

static void open_world(world *w, int32_t router, const char *policy, const specrt_env *env) {
    const char *tags[] = {"cluster", "centroid", "cluster", "group"};
    size_t sizes[2], n;
    uint8_t *parts[] = {make_section(w, router, &sizes[0]), fixture_ranks(N_IDS, 1, 20, &sizes[1])};
    w->bytes = fixture_join((const char *[]){tags[router], "ranks"}, parts, sizes, 2, &n);
    for (int i = 0; i < N_IDS * N_COLS; i++) w->rows[i] = fixture_normal(&state);
    for (int i = 0; i < N_IDS; i++) w->bias[i] = fixture_normal(&state);
    for (int i = 0; i < N_IDS * N_EMBED; i++) w->embedding[i] = fixture_normal(&state);
    specrt_head_desc desc = {.rows = w->rows,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = N_IDS,
                             .n_cols = N_COLS,
                             .bias = w->bias};
    specrt_head_desc embedding = f32_rows(w->embedding, N_IDS, N_EMBED);
    specrt_policy_desc pd = {.text = policy, .n_vocab = N_IDS, .embedding = &embedding};
    specrt_session_params params = {.n_logits = N_IDS,
                                    .tree = {.num_steps = 6, .topk = TOPK, .num_draft_tokens = 30}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    w->bundle = open_memory(w->bytes, n);
    REQUIRE(!specrt_head_bind(w->bundle, &desc, env, &w->head, &err));
    specrt_status status = specrt_policy_create(w->bundle, w->head, &pd, &w->policy, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(!status);
    w->session = create_session(w->policy, &params, NULL);
}

static void close_world(world *w) {
    close_all(w->session, w->policy, w->head);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
}

/* --- the network in double precision --- */

static void rms(const float *x, int32_t n, double *out) {
    double square = 0;
    for (int32_t j = 0; j < n; j++) square += (double)x[j] * (double)x[j];
    for (int32_t j = 0; j < n; j++) out[j] = square > 0 ? (double)x[j] / sqrt(square / n) : 0;
}

static void score(const world *w, int32_t token, const float *draft_input, const float *hidden,
                  double *out) {
    const specrt_clusters_header *h = &w->header;
    double x[N_EMBED + N_COLS], y[64];
    const double *last = x;
    int32_t n_in = h->n_embed + h->n_state, width = h->n_state;
    if (h->n_embed) rms(w->embedding + token * N_EMBED, N_EMBED, x);
    rms(h->router == SPECRT_ROUTER_DYNASPEC ? draft_input : hidden, N_COLS, x + h->n_embed);
    for (int32_t j = 0; j < N_COLS && h->router == SPECRT_ROUTER_CENTROID; j++)
        x[j] = (double)hidden[j];
    for (int32_t i = 0; i < h->n_hidden; i++) {
        y[i] = w->b1[i];
        for (int32_t j = 0; j < n_in; j++) y[i] += w->w1[i * n_in + j] * x[j];
        y[i] /= 1 + exp(-y[i]);
        if (h->router == SPECRT_ROUTER_CORAL) y[i] += x[i];
        last = y;
        width = h->n_hidden;
    }
    for (int32_t m = 0; m < M; m++) {
        out[m] = w->b2[m];
        for (int32_t j = 0; j < width; j++) out[m] += w->w2[m * width + j] * last[j];
    }
}

static void to_probs(const world *w, double *scores) {
    double sum = 0;
    for (int32_t m = 0; m < M; m++) {
        scores[m] = w->header.softmax ? exp(scores[m]) : 1 / (1 + exp(-scores[m]));
        sum += scores[m];
    }
    for (int32_t m = 0; m < M && w->header.softmax; m++) scores[m] /= sum;
}

typedef struct level {
    int32_t n, tokens[TOPK];
    float logprobs[TOPK], draft_input[TOPK * N_COLS], hidden[TOPK * N_COLS];
} level;

static specrt__source_level random_level(level *l, int32_t t, int32_t n) {
    l->n = n;
    for (int32_t i = 0; i < n; i++) {
        l->tokens[i] = below(N_IDS);
        l->logprobs[i] = -fabsf(fixture_normal(&state));
        for (int32_t j = 0; j < N_COLS; j++) {
            l->draft_input[i * N_COLS + j] = 3 * fixture_normal(&state);
            l->hidden[i * N_COLS + j] = fixture_normal(&state);
        }
    }
    specrt__source_level out = {.level = t,
                                .n = n,
                                .tokens = l->tokens,
                                .logprobs = l->logprobs,
                                .draft_input = l->draft_input,
                                .draft_hidden = l->hidden};
    return out;
}

TEST(forward, "every router's scores in double precision") {
    const char *policies[] = {NULL, "centroid", "cluster", "group"};
    for (int32_t router = 1; router <= 3; router++) {
        static world w;
        level l;
        open_world(&w, router, policies[router], NULL);
        specrt__cluster *s = (specrt__cluster *)w.session->states[0];
        for (int round = 0; round < 20; round++) {
            specrt__source_level at = random_level(&l, 0, 1 + round % TOPK);
            specrt__cluster_forward(s, &w.head->compute, &at);
            for (int32_t i = 0; i < at.n; i++) {
                double expected[M];
                score(&w, l.tokens[i], l.draft_input + i * N_COLS, l.hidden + i * N_COLS, expected);
                for (int32_t m = 0; m < M; m++) CHECK_NEAR(s->scores[i * M + m], expected[m], 2e-4);
            }
        }
        close_world(&w);
    }
}

/* --- the choice --- */

/* Marks the k best clusters that are not marked yet. */
static void mark_best(const double *probs, int32_t k, bool *marked) {
    bool seen[M] = {false};
    for (int32_t i = 0; i < k && i < M; i++) {
        int32_t best = -1;
        for (int32_t m = 0; m < M; m++)
            if (!seen[m] && (best < 0 || probs[m] > probs[best])) best = m;
        seen[best] = marked[best] = true;
    }
}

/* The clusters that a level should have, as members by token. */
static void expect(const world *w, const specrt__source_level *l, int32_t k, bool *member) {
    double totals[M] = {0};
    bool marked[M] = {false};
    for (int32_t i = 0; i < l->n; i++) {
        double probs[M];
        score(w, l->tokens[i], l->draft_input + i * N_COLS, l->draft_hidden + i * N_COLS, probs);
        to_probs(w, probs);
        for (int32_t m = 0; m < M; m++) totals[m] += probs[m] * exp((double)l->logprobs[i]);
    }
    mark_best(totals, k, marked);
    for (;;) { /* rows for any topk */
        int32_t n = 0, n_marked = 0;
        for (int32_t id = 0; id < N_IDS; id++)
            n += w->cluster_of[id] >= 0 && marked[w->cluster_of[id]];
        for (int32_t m = 0; m < M; m++) n_marked += marked[m];
        if (n >= SPECRT_TREE_MAX_TOPK || n_marked == M) break;
        double rest[M];
        for (int32_t m = 0; m < M; m++) rest[m] = marked[m] ? -1 : totals[m];
        mark_best(rest, 1, marked);
    }
    for (int32_t id = 0; id < N_IDS; id++)
        member[id] = w->cluster_of[id] >= 0 && marked[w->cluster_of[id]];
}

/* What the session routes at a level: as often as each token stands in its segments. */
static int32_t route(world *w, const specrt__source_level *l, int32_t *count) {
    specrt__source_routed *r = w->session->routed;
    int32_t n = 0;
    memset(count, 0, N_IDS * sizeof *count);
    memset(r->levels, 0, N_IDS * sizeof *r->levels);
    r->level = l->level;
    r->n_segments = r->n_rows = r->n_masked = 0;
    const specrt_clusters_header *h = &w->header;
    int64_t n_weights = h->n_hidden * (int64_t)(h->n_embed + h->n_state) +
                        M * (int64_t)(h->n_hidden ? h->n_hidden : h->n_state),
            n_read = r->n_read;
    w->policy->sources[0].source->route(w->session->states[0], l, r);
    CHECK_INT(r->n_read - n_read, 2 * n_weights);
    for (int32_t i = 0; i < r->n_segments; i++) {
        const specrt_segment *s = &r->segments[i];
        for (int32_t j = 0; j < s->n_rows; j++, n++) {
            const float *row =
                (const float *)(const void *)((const uint8_t *)s->rows + (size_t)j * s->row_stride);
            CHECK(memcmp(row, w->rows + s->ids[j] * N_COLS, N_COLS * sizeof *row) == 0);
            CHECK(s->bias[j] == w->bias[s->ids[j]]);
            count[s->ids[j]]++;
        }
    }
    CHECK(n <= specrt_policy_get_info(w->policy)->bound);
    return n;
}

static void check_levels(int32_t router, const char *policy, const int32_t *k) {
    static world w;
    level l;
    open_world(&w, router, policy, NULL);
    const specrt__cluster_shared *shared =
        (const specrt__cluster_shared *)w.policy->sources[0].shared.data;
    for (int t = 0; t < 6; t++) CHECK_INT(shared->levels[t], k[t]);
    for (int round = 0; round < 60; round++) {
        int32_t t = round % 6, far = SPECRT_TREE_MAX_STEPS - 1 - round % 26, count[N_IDS];
        bool member[N_IDS];
        specrt__source_level at = random_level(&l, t, t ? 1 + below(TOPK) : 1);
        /* scores whose exponentials are beyond a float */
        for (int32_t i = 0; round % 5 == 4 && i < TOPK * N_COLS; i++) l.hidden[i] *= 8;
        route(&w, &at, count);
        expect(&w, &at, k[t], member);
        for (int32_t id = 0; id < N_IDS; id++) CHECK_INT(count[id], member[id]);
        at.level = far; /* as the last that the schedule knows */
        route(&w, &at, count);
        expect(&w, &at, k[5], member);
        for (int32_t id = 0; id < N_IDS; id++) CHECK_INT(count[id], member[id]);
    }
    close_world(&w);
}

/* Every row scores its own best clusters, with rows for any topk, and those alone. */
static void check_rows(int32_t router, const char *policy, int32_t k) {
    static world w;
    static float logits[TOPK * 2 * N_IDS];
    level l;
    open_world(&w, router, policy, NULL);
    for (int round = 0; round < 40; round++) {
        int32_t count[N_IDS];
        specrt__source_level at = random_level(&l, round % 6, 1 + below(TOPK));
        route(&w, &at, count);
        const specrt__source_routed *r = w.session->routed;
        specrt_shortlist shortlist = {&w.head->compute, r->segments, r->n_segments,
                                      r->n_rows,        N_COLS,      NULL};
        REQUIRE(!specrt_shortlist_logits(&shortlist, l.hidden, at.n, logits));
        for (int32_t i = 0; i < at.n; i++) {
            specrt__source_level alone = at;
            alone.n = 1;
            alone.tokens += i;
            alone.logprobs += i;
            alone.draft_input += i * N_COLS;
            alone.draft_hidden += i * N_COLS;
            bool member[N_IDS], seen[N_IDS] = {false};
            const float *x = logits + i * r->n_rows;
            expect(&w, &alone, k, member);
            for (int32_t s = 0; s < r->n_segments; s++)
                for (int32_t j = 0; j < r->segments[s].n_rows; j++, x++) {
                    int32_t id = r->segments[s].ids[j];
                    double dot = (double)w.bias[id];
                    if (!(*x > -INFINITY)) continue;
                    seen[id] = true;
                    for (int32_t c = 0; c < N_COLS; c++)
                        dot += (double)w.rows[id * N_COLS + c] * (double)alone.draft_hidden[c];
                    CHECK_NEAR((double)*x, dot, 1e-4);
                }
            for (int32_t id = 0; id < N_IDS; id++) {
                const specrt__pool *p = w.session->pool;
                bool other = specrt__pool_member(p, id) || !specrt__pool_valid(p, id);
                CHECK_INT(seen[id], member[id] && !other);
            }
        }
    }
    close_world(&w);
}

TEST(choice, "levels hold the best clusters, by table, schedule, size and beam") {
    const int32_t table[] = {6, 4, 2, 1, 1, 1}, scaled[] = {12, 8, 4, 2, 2, 2};
    const int32_t harmonic[] = {12, 12, 2, 1, 1, 1};
    const int32_t flat[] = {5, 5, 5, 5, 5, 5}, one[] = {1, 1, 1, 1, 1, 1},
                  all[] = {13, 13, 13, 13, 13, 13};
    check_levels(SPECRT_ROUTER_DYNASPEC, "cluster@always=0", table);
    check_levels(SPECRT_ROUTER_DYNASPEC, "cluster:12@always=0", scaled);
    check_levels(SPECRT_ROUTER_DYNASPEC, "cluster:12@always=0@schedule=harmonic", harmonic);
    check_levels(SPECRT_ROUTER_CORAL, "group:5@always=0@schedule=flat", flat);
    check_levels(SPECRT_ROUTER_CENTROID, "centroid:5@always=0@schedule=flat", flat);
    check_levels(SPECRT_ROUTER_CENTROID, "centroid:1@always=0@schedule=flat", one);
    check_levels(SPECRT_ROUTER_CENTROID, "centroid:16384@always=0@schedule=flat", all);
    check_levels(SPECRT_ROUTER_CORAL, "group:38%@always=0@schedule=flat", flat);
    check_levels(SPECRT_ROUTER_CENTROID, "centroid:4%@always=0@schedule=flat", one);
    check_levels(SPECRT_ROUTER_CENTROID, "centroid:100%@always=0@schedule=flat", all);
}

TEST(per_row, "every row scores its own clusters alone") {
    check_rows(SPECRT_ROUTER_DYNASPEC, "cluster:3@always=0@schedule=flat@beam=per_row", 3);
    check_rows(SPECRT_ROUTER_CORAL, "group:1@always=0@schedule=flat@beam=per_row", 1);
    check_rows(SPECRT_ROUTER_CENTROID, "centroid:5@always=0@schedule=flat@beam=per_row", 5);
}

TEST(always_and_cap, "frequent tokens come along, the cap holds") {
    static world w;
    level l;
    int32_t count[N_IDS];
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "cluster:13@cap=40@always=9", NULL);
    CHECK(specrt_policy_get_info(w.policy)->bound >= 49);
    for (int round = 0; round < 30; round++) {
        specrt__source_level at = random_level(&l, round % 3, 1 + round % TOPK);
        CHECK_INT(route(&w, &at, count), 49);
        for (int32_t i = 1; i < 10; i++) CHECK(count[(7 * i + 3) % N_IDS] >= 1);
        const specrt__source_routed *r = w.session->routed;
        int32_t n_masked = 0, n_twice = 0, n_ends = 0;
        for (int32_t i = 0; i < r->n_segments; i++) n_masked += r->segments[i].n_masked;
        for (int32_t id = 0; id < N_IDS; id++) n_twice += count[id] == 2;
        for (int32_t id = 0; id < N_IDS; id++)
            n_ends += count[id] == 1 && specrt__pool_member(w.session->pool, id);
        n_ends += specrt__pool_valid(w.session->pool, (7 * (N_IDS - 1) + 3) % N_IDS)
                      ? 0
                      : count[(7 * (N_IDS - 1) + 3) % N_IDS];
        CHECK_INT(n_masked, n_twice + n_ends);
    }
    close_world(&w);
}

TEST(shared_rows, "rows that every cluster has are scored once") {
    static world w;
    level l;
    int32_t count[N_IDS];
    w.n_shared = 1; /* n_members stays within n_rows */
    open_world(&w, SPECRT_ROUTER_CENTROID, "centroid:5@always=0@schedule=flat", NULL);
    for (int round = 0; round < 30; round++) {
        specrt__source_level at = random_level(&l, round % 3, 1 + round % TOPK);
        route(&w, &at, count);
        const specrt__source_routed *r = w.session->routed;
        for (int32_t i = 0; i < r->n_segments; i++)
            for (int32_t j = 0; j < r->segments[i].n_masked; j++)
                count[r->segments[i].ids[r->segments[i].masked[j]]]--;
        for (int32_t id = 0; id < w.n_shared; id++) {
            bool is_fixed = specrt__pool_member(w.session->pool, id);
            CHECK_INT(count[id], specrt__pool_valid(w.session->pool, id) && !is_fixed);
        }
    }
    close_world(&w);
}

TEST(per_row_and_cap, "clusters that several rows take count once under the cap") {
    static world w;
    level l;
    int32_t count[N_IDS];
    const char *policy = "centroid:2@always=0@schedule=flat@beam=per_row";
    open_world(&w, SPECRT_ROUTER_CENTROID, policy, NULL);
    specrt__cluster_shared *shared = (specrt__cluster_shared *)w.policy->sources[0].shared.data;
    for (int round = 0; round < 40; round++) {
        specrt__source_level at = random_level(&l, round % 6, 1 + below(TOPK));
        shared->cap = 0;
        int32_t whole = route(&w, &at, count);
        shared->cap = 70 + 10 * (round % 8);
        CHECK_INT(route(&w, &at, count), whole < shared->cap ? whole : shared->cap);
        for (int32_t id = 0; id < N_IDS; id++) CHECK(count[id] <= 1);
    }
    close_world(&w);
}

/* A head whose rows lie cluster by cluster, behind those in none, or from the first on, is routed where it
 * lies. */
static void check_in_place(int32_t first) {
    static world w, moved;
    static float rows[N_IDS * N_COLS], bias[N_IDS];
    level l;
    int32_t ids[N_IDS], n = 0, expected[N_IDS], count[N_IDS];
    open_world(&w, SPECRT_ROUTER_CENTROID, "centroid:5@always=9", NULL);
    for (int32_t m = 0; m <= M; m++)
        for (int32_t id = 0; id < N_IDS; id++)
            if (w.cluster_of[id] == (first + m + 1) % (M + 1) - 1) ids[n++] = id;
    for (int32_t i = 0; i < N_IDS; i++) {
        memcpy(rows + i * N_COLS, w.rows + ids[i] * N_COLS, N_COLS * sizeof *rows);
        bias[i] = w.bias[ids[i]];
    }
    specrt_head_desc desc = {.rows = rows,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = N_IDS,
                             .n_cols = N_COLS,
                             .bias = bias,
                             .ids = ids};
    specrt_policy_desc pd = {.text = "centroid:5@always=9", .n_vocab = N_IDS};
    specrt_session_params params = {.n_logits = N_IDS,
                                    .tree = {.num_steps = 6, .topk = TOPK, .num_draft_tokens = 30}};
    moved = w;
    moved.head = bind_head(w.bundle, &desc);
    moved.policy = create_policy(w.bundle, moved.head, &pd);
    moved.session = create_session(moved.policy, &params, NULL);
    CHECK_INT(specrt_policy_get_info(moved.policy)->bound, specrt_policy_get_info(w.policy)->bound);
    for (int round = 0; round < 20; round++) {
        specrt__source_level at = random_level(&l, round % 6, 1 + round % TOPK);
        route(&w, &at, expected);
        route(&moved, &at, count);
        const specrt__source_routed *r = moved.session->routed;
        for (int32_t id = 0; id < N_IDS; id++) CHECK_INT(count[id], expected[id]);
        for (int32_t i = 1; i < r->n_segments; i++)
            CHECK(r->segments[i].rows >= (void *)rows &&
                  r->segments[i].rows < (void *)(rows + N_IDS * N_COLS));
    }
    close_all(moved.session, moved.policy, moved.head);
    close_world(&w);
}

TEST(in_place, "a head that lies cluster by cluster is not copied") {
    check_in_place(-1);
    check_in_place(0);
}

TEST(untold, "a hidden state that is not told reads as 0") {
    static world w;
    level l;
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "dynaspec", NULL);
    CHECK_STR(specrt_policy_get_info(w.policy)->text, "cluster");
    specrt__cluster *s = (specrt__cluster *)w.session->states[0];
    specrt__source_level at = random_level(&l, 0, 1);
    double expected[M];
    l.tokens[0] = 0; /* has an embedding as all others have */
    at.draft_input = NULL;
    memset(l.draft_input, 0, sizeof l.draft_input);
    specrt__cluster_forward(s, &w.head->compute, &at);
    score(&w, l.tokens[0], l.draft_input, l.hidden, expected);
    for (int32_t m = 0; m < M; m++) CHECK_NEAR(s->scores[m], expected[m], 2e-4);
    close_world(&w);
}

TEST(no_allocation, "routing never allocates") {
    static world w;
    level l;
    int32_t count[N_IDS];
    fixture_allocator a = {0, 0, 0};
    specrt_env env = fixture_desc(&a);
    open_world(&w, SPECRT_ROUTER_CORAL, "coral", &env);
    int n_calls = a.n_calls;
    for (int round = 0; round < 10; round++) {
        specrt__source_level at = random_level(&l, round % 6, 1 + round % TOPK);
        route(&w, &at, count);
    }
    CHECK_INT(a.n_calls, n_calls);
    close_world(&w);
    CHECK_INT(a.n_live, 0);
}

TEST(memory, "memory that runs out at any point leaves nothing behind") {
    static world w;
    specrt_status status = SPECRT_STATUS_NO_MEMORY;
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "cluster", NULL);
    for (int fail_at = 1; status == SPECRT_STATUS_NO_MEMORY; fail_at++) {
        fixture_allocator a = {.fail_at = fail_at};
        specrt_env env = fixture_desc(&a);
        const specrt_head_desc rows = f32_rows(w.rows, N_IDS, N_COLS);
        const specrt_head_desc embedding = f32_rows(w.embedding, N_IDS, N_EMBED);
        const specrt_policy_desc pd = {
            .text = "cluster", .n_vocab = N_IDS, .embedding = &embedding};
        specrt_head *head = NULL;
        specrt_policy *policy = NULL;
        specrt_session *s = NULL;
        const specrt_session_params params = {.n_logits = N_IDS};
        status = specrt_head_bind(NULL, &rows, &env, &head, NULL);
        if (head) status = specrt_policy_create(w.bundle, head, &pd, &policy, NULL);
        if (policy) status = specrt_session_create(policy, &params, NULL, &s, NULL);
        CHECK((s != NULL) == (status == SPECRT_STATUS_OK));
        close_all(s, policy, head);
        CHECK_INT(a.n_live, 0);
    }
    CHECK_INT(status, SPECRT_STATUS_OK);
    close_world(&w);
}

TEST(batch, "each sequence of a batch is routed by what its own rows are fed") {
    static world w;
    specrt_session *s[4];
    const specrt_session_params params = {.n_logits = N_IDS,
                                          .tree = {.num_steps = 6, .topk = TOPK}};
    specrt_beam beams[2], beam;
    level l;
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "cluster@always=0", NULL);
    for (int i = 0; i < 4; i++) {
        s[i] = create_session(w.policy, &params, NULL);
        root(s[i], 7 + 20 * (i % 2));
    }
    random_level(&l, 0, 2);
    REQUIRE(!specrt_session_expand_batch(s, 2, l.hidden, l.draft_input, 2, beams));
    for (int i = 0; i < 2; i++) {
        REQUIRE(!specrt_session_expand(s[2 + i], l.hidden + i * N_COLS, l.draft_input + i * N_COLS,
                                       1, &beam));
        REQUIRE(beam.n == beams[i].n);
        CHECK(memcmp(beam.tokens, beams[i].tokens, (size_t)beam.n * sizeof *beam.tokens) == 0);
        CHECK(memcmp(beam.logprobs, beams[i].logprobs, (size_t)beam.n * sizeof(float)) == 0);
    }
    for (int i = 0; i < 4; i++) specrt_session_close(s[i]);
    close_world(&w);
}

/* In a tree that an application grows for itself. */
TEST(no_token, "a pass may be fed what is no token") {
    static world w;
    float hidden[N_COLS] = {0}, logprob = 0;
    int32_t tokens[] = {-1, INT32_MIN, INT32_MAX, N_IDS};
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "cluster", NULL);
    for (int32_t i = 0; i < 4; i++) {
        static float scores[M];
        const specrt__cluster *s = (const specrt__cluster *)w.session->states[0];
        specrt_beam beam = {.n = 1, .tokens = &tokens[i], .logprobs = &logprob};
        root(w.session, 0);
        CHECK(specrt_session_route(w.session, 0, &beam, hidden, NULL) != NULL);
        if (i > 0) CHECK(memcmp(scores, s->scores, sizeof scores) == 0); /* all read the same */
        memcpy(scores, s->scores, sizeof scores);
    }
    close_world(&w);
}

static void refuses(world *w, specrt_policy_desc pd, const specrt_bundle *bundle,
                    const specrt_head *head, const char *what) {
    specrt_policy *policy;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    (void)w;
    CHECK(specrt_policy_create(bundle, head, &pd, &policy, &err) != SPECRT_STATUS_OK);
    CHECK(policy == NULL);
    CHECK_HAS(err.msg, what);
}

TEST(refusals, "heads, embeddings and bundles that do not fit") {
    static world w;
    open_world(&w, SPECRT_ROUTER_DYNASPEC, "cluster", NULL);
    specrt_head_desc embedding = f32_rows(w.embedding, N_IDS, N_EMBED - 1);
    specrt_policy_desc pd = {.text = "cluster", .n_vocab = N_IDS};
    refuses(&w, pd, w.bundle, w.head, "embedding of 10 columns, found 0; set specrt_policy_desc");
    pd.embedding = &embedding;
    refuses(&w, pd, w.bundle, w.head, "embedding of 10 columns, found 9");
    embedding.n_cols = N_EMBED;
    embedding.n_rows = 0;
    refuses(&w, pd, w.bundle, w.head,
            "policy 'cluster': embedding: expected 1 to 16777216 rows in memory");
    embedding.n_rows = N_IDS;
    embedding.row_stride = 4 * N_EMBED - 1;
    refuses(&w, pd, w.bundle, w.head,
            "policy 'cluster': embedding: row_stride: expected at least 40 bytes");
    embedding.dtype = SPECRT_DTYPE_I32;
    refuses(&w, pd, w.bundle, w.head, "expected a float row format, found i32");
    refuses(&w, pd, NULL, w.head, "needs a bundle with section 'cluster'; cluster-build");
    pd.text = "centroid:4";
    refuses(&w, pd, w.bundle, w.head,
            "no section 'centroid'; cluster-build --router centroid builds it");
    pd.text = "cluster@beam=some";
    refuses(&w, pd, w.bundle, w.head, "expected level or per_row, found 'some'");
    specrt_head *head = bind_rows(NULL, w.rows, N_IDS, N_COLS - 1);
    pd.text = "cluster";
    refuses(&w, pd, w.bundle, head, "expected a head [205, 24], found [205, 23]");
    specrt_head_close(head);
    for (int32_t id = 3; id < 5;
         id++) { /* a head with one row: of a token in no cluster, then in one */
        specrt_head_desc single = {
            .rows = w.rows, .dtype = SPECRT_DTYPE_F32, .n_rows = 1, .n_cols = N_COLS, .ids = &id};
        specrt_policy *policy = NULL;
        head = bind_head(NULL, &single);
        embedding.dtype = SPECRT_DTYPE_F32;
        embedding.row_stride = 0;
        if (id == 3)
            refuses(&w, pd, w.bundle, head, "expected the head to have rows for some of its");
        if (id == 4) CHECK_INT(specrt_policy_create(w.bundle, head, &pd, &policy, NULL), 0);
        specrt_policy_close(policy);
        specrt_head_close(head);
    }
    close_world(&w);
}

static int larger(const void *a, const void *b) {
    return *(const int32_t *)b - *(const int32_t *)a;
}

TEST(bound, "the most rows that a level can have, against the sizes in order") {
    for (int round = 0; round < 300; round++) {
        int32_t starts[41] = {0}, sizes[40], n_clusters = 1 + below(40), sum = 0;
        for (int32_t m = 0; m < n_clusters; m++) {
            sizes[m] = 1 + below(round % 2 ? 400 : 5);
            starts[m + 1] = starts[m] + sizes[m];
        }
        const int32_t total = starts[n_clusters];
        const specrt_clusters_header header = {.n_clusters = n_clusters, .n_members = total};
        specrt__cluster_shared s = {.view.header = &header, .starts = starts};
        qsort(sizes, (size_t)n_clusters, sizeof *sizes, larger);
        for (int32_t n = 1; n <= n_clusters; n++) {
            sum += sizes[n - 1];
            int32_t expected = sum > sizes[0] + 64 ? sum : sizes[0] + 64;
            if (expected > total) expected = total;
            s.cap = 0;
            CHECK_INT(specrt__cluster_bound(&s, n), expected);
            s.cap = 100;
            CHECK_INT(specrt__cluster_bound(&s, n), expected < 100 ? expected : 100);
        }
    }
}
