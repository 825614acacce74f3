/* test_align.c : the gate, the buffers, the curriculum and the gradient of the loss, against a scalar oracle
 * in double that sorts, sums and differentiates as the formulas stand. */
#include "specrt_tools.h"
#include <stdbool.h>
#include "opened.h"

enum { V = 97, D = 24, MOST = 8, N_CYCLES = 60, N_POSITIONS = N_CYCLES * MOST };

static uint64_t random_state;
static double random_real(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}
static float spread(double width) {
    return (float)(width * (random_real() - 0.5));
}

/* Memory that is counted. */
static int n_allocated;
static void *count_alloc(void *user, size_t bytes) {
    (void)user;
    n_allocated++;
    return malloc(bytes);
}
static void count_free(void *user, void *p) {
    (void)user;
    free(p);
}
static const specrt_env counting = {.alloc = count_alloc, .free = count_free};

typedef struct world {
    float rows[V * D], bias[V];
    int32_t ids[V];    /* of rows, when the head has a vocabulary of its own */
    int32_t n_rows;    /* of the head */
    double scale, cap; /* of its logits; cap 0: none */
    specrt_head *head;
    float logits[N_POSITIONS][V], hidden[N_POSITIONS][D];
    specrt_align_position positions[N_POSITIONS];
    int n_positions;
} world;

/* Every fourth token has no row when the head has ids of its own. */
static void world_make_shaped(world *w, bool own_ids, uint64_t seed, float scale, float cap) {
    random_state = seed;
    memset(w, 0, sizeof *w);
    for (int i = 0; i < V * D; i++) w->rows[i] = spread(2);
    for (int i = 0; i < V; i++) w->bias[i] = spread(1);
    for (int32_t i = 0; i < V; i++)
        if (!own_ids || i % 4) w->ids[w->n_rows++] = i;
    w->scale = (double)scale, w->cap = (double)cap;
    specrt_head_desc desc = {.rows = w->rows,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = w->n_rows,
                             .n_cols = D,
                             .bias = w->bias,
                             .ids = own_ids ? w->ids : NULL,
                             .logit_scale = scale,
                             .softcap = cap};
    w->head = bind_head(NULL, &desc);
}

static void world_make(world *w, bool own_ids, uint64_t seed) {
    world_make_shaped(w, own_ids, seed, 1, 0);
}

static double row_logit(const world *w, int row, const double *hidden) {
    double sum = (double)w->bias[row];
    for (int c = 0; c < D; c++) sum += (double)w->rows[row * D + c] * hidden[c];
    sum *= w->scale;
    return w->cap > 0 ? w->cap * tanh(sum / w->cap) : sum;
}

static int row_of(const world *w, int32_t id) {
    for (int i = 0; i < w->n_rows; i++)
        if (w->ids[i] == id) return i;
    return -1;
}

static void widen(const float *x, double *out) {
    for (int c = 0; c < D; c++) out[c] = (double)x[c];
}

/* One position, as its author would say it. */
typedef struct expectation {
    int n;           /* retained */
    int32_t ids[V];  /* best first */
    double probs[V]; /* p */
    double divergence, base_loss;
} expectation;

static double loss_of(const world *w, const expectation *e, const double *hidden, double t) {
    double q[V], total = 0, sum = 0;
    for (int i = 0; i < e->n; i++)
        total += q[i] = exp(row_logit(w, row_of(w, e->ids[i]), hidden) / t);
    for (int i = 0; i < e->n; i++) sum += e->probs[i] * log(e->probs[i] / (q[i] / total));
    return sum;
}

static void expect_distribution(const world *w, const float *logits, int n_top, double t,
                                expectation *e) {
    bool taken[V] = {false};
    double sum = 0;
    for (e->n = 0; e->n < n_top; e->n++) {
        int best = -1;
        for (int32_t i = 0; i < V; i++)
            if (!taken[i] && row_of(w, i) >= 0 && logits[i] > -INFINITY &&
                (best < 0 || logits[i] > logits[best]))
                best = i;
        if (best < 0) break;
        taken[best] = true;
        e->ids[e->n] = best;
        sum += e->probs[e->n] = exp((double)logits[best] / t);
    }
    for (int i = 0; i < e->n; i++) e->probs[i] /= sum;
}

static void expect_position(const world *w, const specrt_align_position *v,
                            const specrt_align_params *p, expectation *e) {
    double hidden[D], over = 0, own;
    bool among = false;
    widen(v->hidden, hidden);
    expect_distribution(w, v->logits, p->n_top, (double)p->temperature, e);
    e->divergence = loss_of(w, e, hidden, (double)p->temperature);
    own = row_logit(w, row_of(w, v->token), hidden);
    for (int i = 0; i < e->n; i++) {
        over += exp(row_logit(w, row_of(w, e->ids[i]), hidden));
        among = among || e->ids[i] == v->token;
    }
    e->base_loss = log(over + (among ? 0 : exp(own))) - own;
    if (v->drafted >= 0)
        e->base_loss =
            row_logit(w, row_of(w, v->drafted), hidden) - (double)v->drafted_logprob - own;
}

/* A cycle of a few positions; some are not covered, some refused. */
static int make_cycle(world *w, specrt_align_position *out) {
    int n = 1 + (int)(random_real() * MOST);
    for (int j = 0; j < n; j++) {
        int at = w->n_positions++;
        float *logits = w->logits[at], *hidden = w->hidden[at];
        for (int c = 0; c < D; c++) hidden[c] = spread(2);
        double wide[D];
        widen(hidden, wide);
        for (int32_t i = 0; i < V; i++) /* like the drafter's, more or less */
            logits[i] = spread(5) + (random_real() < 0.9 && row_of(w, i) >= 0
                                         ? (float)row_logit(w, row_of(w, i), wide)
                                         : -1);
        logits[3] = logits[5]; /* a tie */
        logits[7] = -INFINITY;
        int32_t token;
        do token = (int32_t)(random_real() * V);
        while (row_of(w, token) < 0);
        out[j] = (specrt_align_position){.context = 1000 + (uint64_t)at,
                                         .step = j + 1,
                                         .token = token,
                                         .covered = random_real() < 0.8,
                                         .rejected = j + 1 == n && random_real() < 0.5,
                                         .logits = logits,
                                         .hidden = hidden,
                                         .drafted = random_real() < 0.5 ? w->ids[at % 3] : -1,
                                         .drafted_logprob = -2.5f};
        if (j == 0) out[j].covered = 1;
    }
    return n;
}

/* ---- the gate ---- */

static void check_batch(const specrt_align_batch *batch, int n, const specrt_align_params *p,
                        const expectation *kept, const specrt_align_position *positions,
                        const double *weights) {
    CHECK_INT(batch->n, n);
    for (int i = 0; i < batch->n; i++) {
        const int32_t *ids = batch->ids + i * p->n_top;
        const float *probs = batch->probs + i * p->n_top;
        CHECK(batch->contexts[i] == positions[i].context);
        CHECK_INT(batch->steps[i], positions[i].step);
        CHECK_INT(batch->n_top[i], kept[i].n);
        CHECK_NEAR((double)batch->weights[i], weights[i], 1e-4 * weights[i] + 1e-9);
        for (int k = 0; k < kept[i].n; k++) {
            CHECK_INT(ids[k], kept[i].ids[k]);
            CHECK_NEAR((double)probs[k], kept[i].probs[k], 1e-6);
        }
    }
}

/* Cycle after cycle beside the oracle; a batch is checked and given back at once. */
static void run_gate(bool own_ids, const specrt_align_params *p) {
    static world w;
    static expectation kept[MOST * N_CYCLES];
    static specrt_align_position positions[MOST * N_CYCLES];
    static double weights[MOST * N_CYCLES];
    specrt_align *a;
    specrt_align_stats stats, sums = {0};
    int n_waiting = 0;
    world_make(&w, own_ids, 88172645463325252u);
    REQUIRE(specrt_align_create(w.head, V, p, &counting, &a, NULL) == SPECRT_STATUS_OK);
    n_allocated = 0;
    for (int c = 0; c < N_CYCLES; c++) {
        specrt_align_position cycle[MOST];
        int n = make_cycle(&w, cycle), n_kept = 0;
        double base_loss = 0;
        bool full = n_waiting >= p->n_batch;
        for (int j = 0; j < n && j < p->n_steps; j++) {
            expectation e;
            sums.n_positions++;
            bool missing = !cycle[j].covered;
            sums.n_missing += missing;
            if (missing) continue;
            expect_position(&w, &cycle[j], p, &e);
            if (j == 0) base_loss = e.base_loss;
            sums.divergence += e.divergence;
            sums.n_rejected += cycle[j].rejected;
            if (!cycle[j].rejected && !(e.divergence > (double)p->epsilon)) continue;
            if (full) sums.n_dropped++;
            if (full) continue;
            weights[n_waiting] = fmin(1, exp(-(double)p->beta * base_loss * j));
            kept[n_waiting] = e;
            positions[n_waiting++] = cycle[j];
            n_kept++;
        }
        sums.n_kept += n_kept;
        CHECK_INT(specrt_align_observe(a, cycle, n), n_kept);
        const specrt_align_batch *batch = specrt_align_acquire(a);
        CHECK((batch != NULL) == (n_waiting >= p->n_batch));
        if (!batch) continue;
        sums.n_batches++;
        check_batch(batch, n_waiting, p, kept, positions, weights);
        CHECK(specrt_align_acquire(a) == NULL);
        specrt_align_release(a, batch);
        n_waiting = 0;
    }
    specrt_align_get_stats(a, &stats);
    CHECK_INT(stats.n_positions, sums.n_positions);
    CHECK_INT(stats.n_missing, sums.n_missing);
    CHECK_INT(stats.n_invalid, 0);
    CHECK_INT(stats.n_rejected, sums.n_rejected);
    CHECK_INT(stats.n_kept, sums.n_kept);
    CHECK_INT(stats.n_dropped, sums.n_dropped);
    CHECK_INT(stats.n_batches, sums.n_batches);
    CHECK(stats.n_batches > 2);
    CHECK_NEAR(stats.divergence, sums.divergence, 1e-4 * sums.divergence);
    CHECK_INT(n_allocated, 0);
    specrt_align_close(a);
    specrt_head_close(w.head);
}

TEST(gate, "eligible, kept, weighted as the oracle says") {
    const specrt_align_params few = {8, 4, 16, 1, 0.3f, 0.4f};
    const specrt_align_params hot = {5, 6, 64, 2.5f, 0.7f, 0.05f};
    const specrt_align_params flat = {6, 8, 1, 1, 0, 0}, all = {32, 6, 256, 1, 0.3f, 0.1f};
    run_gate(false, &few);
    run_gate(true, &few);
    run_gate(true, &hot);
    run_gate(false, &flat);
    run_gate(true, &all);
}

TEST(bounds, "two buffers, then positions are dropped and counted") {
    static world w;
    const specrt_align_params p = {3, 6, 8, 1, 0.3f, 0};
    specrt_align *a;
    specrt_align_stats stats;
    specrt_align_position cycle[MOST];
    world_make(&w, false, 7);
    REQUIRE(specrt_align_create(w.head, V, &p, NULL, &a, NULL) == SPECRT_STATUS_OK);
    make_cycle(&w, cycle);
    cycle[0].rejected = 1;
    for (int i = 0; i < 3; i++) CHECK_INT(specrt_align_observe(a, cycle, 1), 1);
    const specrt_align_batch *first = specrt_align_acquire(a);
    REQUIRE(first != NULL);
    for (int i = 0; i < 3; i++) CHECK_INT(specrt_align_observe(a, cycle, 1), 1);
    CHECK(specrt_align_acquire(a) == NULL); /* full, but the other is out */
    for (int i = 0; i < 4; i++) CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    CHECK_INT(first->n, 3);
    specrt_align_release(a, first);
    const specrt_align_batch *second = specrt_align_acquire(a);
    REQUIRE(second != NULL);
    CHECK(second != first);
    CHECK_INT(specrt_align_observe(a, cycle, 1), 1);
    specrt_align_clear(a);
    CHECK_INT(second->n, 3);
    specrt_align_release(a, second);
    CHECK(specrt_align_acquire(a) == NULL);
    specrt_align_get_stats(a, &stats);
    CHECK_INT(stats.n_kept, 7);
    CHECK_INT(stats.n_dropped, 4);
    CHECK_INT(stats.n_batches, 2);
    specrt_align_close(a);
    specrt_align_close(NULL);
    specrt_head_close(w.head);
}

/* ---- the gradient ---- */

/* Central differences of the oracle's loss, coordinate by coordinate. */
static void check_gradient(const world *w, const specrt_align_batch *batch, int n_top, double t,
                           const float *hidden, const float *dh, double loss) {
    double sum = 0;
    for (int i = 0; i < batch->n; i++) {
        expectation e = {.n = batch->n_top[i]};
        double at[D], weight = (double)batch->weights[i] * t * t;
        for (int k = 0; k < e.n; k++) {
            e.ids[k] = batch->ids[i * n_top + k];
            e.probs[k] = (double)batch->probs[i * n_top + k];
        }
        widen(hidden + i * D, at);
        sum += weight * loss_of(w, &e, at, t);
        for (int c = 0; c < D; c++) {
            const double step = 1e-5, x = at[c];
            at[c] = x + step;
            double up = loss_of(w, &e, at, t);
            at[c] = x - step;
            double slope = weight * (up - loss_of(w, &e, at, t)) / (2 * step);
            at[c] = x;
            CHECK_NEAR((double)dh[i * D + c], slope, 2e-6 + 1e-5 * fabs(slope));
        }
    }
    CHECK_NEAR(loss, sum, 1e-5 * sum);
}

static void run_gradient(bool own_ids, float t, float scale, float cap) {
    static world w;
    const specrt_align_params p = {12, 6, 20, t, 0.3f, 0};
    specrt_align *a;
    specrt_align_position cycle[MOST];
    const specrt_align_batch *batch = NULL;
    float hidden[20 * D], dh[20 * D + 1];
    double loss;
    world_make_shaped(&w, own_ids, 99, scale, cap);
    REQUIRE(specrt_align_create(w.head, V, &p, &counting, &a, NULL) == SPECRT_STATUS_OK);
    for (int c = 0; c < N_CYCLES && !batch; c++) {
        specrt_align_observe(a, cycle, make_cycle(&w, cycle));
        batch = specrt_align_acquire(a);
    }
    REQUIRE(batch != NULL);
    for (int i = 0; i < 20 * D; i++) hidden[i] = spread(3);
    for (int i = 0; i <= 20 * D; i++) dh[i] = NAN;
    n_allocated = 0;
    CHECK_INT(specrt_align_gradient(a, batch, hidden, dh, &loss), SPECRT_STATUS_OK);
    CHECK(isnan(dh[batch->n * D])); /* nothing is written behind the last entry */
    check_gradient(&w, batch, p.n_top, (double)t, hidden, dh, loss);
    CHECK_INT(n_allocated, 0);
    hidden[5] = NAN;
    CHECK_INT(specrt_align_gradient(a, batch, hidden, dh, NULL), SPECRT_STATUS_BAD_INPUT);
    hidden[5] = INFINITY; /* what a cap makes of it is finite */
    if (cap == 0)
        CHECK_INT(specrt_align_gradient(a, batch, hidden, dh, NULL), SPECRT_STATUS_BAD_INPUT);
    specrt_align_close(a);
    specrt_head_close(w.head);
}

TEST(gradient, "dh against central differences in double") {
    run_gradient(false, 1, 1, 0);
    run_gradient(true, 1, 1, 0);
    run_gradient(false, 3, 1, 0);
    run_gradient(true, 0.5f, 1, 0);
    run_gradient(true, 1, 0.4f, 0);
    run_gradient(false, 2, 0.7f, 4);
}

/* ---- what is refused ---- */

TEST(invalid, "values that are not finite are counted and never kept") {
    static world w;
    specrt_align *a;
    specrt_align_stats stats;
    specrt_align_position cycle[MOST];
    world_make(&w, false, 3);
    REQUIRE(specrt_align_create(w.head, V, NULL, NULL, &a, NULL) == SPECRT_STATUS_OK);
    make_cycle(&w, cycle);
    cycle[0].rejected = 1;
    specrt_align_position bad = cycle[0];
    bad.token = V;
    CHECK_INT(specrt_align_observe(a, &bad, 1), -1);
    bad.token = -1;
    CHECK_INT(specrt_align_observe(a, &bad, 1), -1);
    bad = cycle[0];
    bad.drafted = V;
    CHECK_INT(specrt_align_observe(a, &bad, 1), -1);
    bad = cycle[0];
    bad.step = 0;
    CHECK_INT(specrt_align_observe(a, &bad, 1), -1);
    w.logits[0][40] = NAN;
    CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    w.logits[0][40] = INFINITY;
    CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    w.logits[0][40] = 0;
    w.hidden[0][2] = NAN;
    CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    w.hidden[0][2] = 0;
    w.logits[0][40] = 9;
    w.bias[40] =
        -INFINITY; /* the drafter never proposes the target's best: the divergence is infinite */
    CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    for (int i = 0; i < V; i++) w.logits[0][i] = -INFINITY;
    CHECK_INT(specrt_align_observe(a, cycle, 1), 0);
    specrt_align_get_stats(a, &stats);
    CHECK_INT(stats.n_positions, 5);
    CHECK_INT(stats.n_invalid, 5);
    CHECK_INT(stats.n_kept, 0);
    specrt_align_close(a);
    specrt_head_close(w.head);
}

static void *no_memory(void *user, size_t bytes) {
    (void)user, (void)bytes;
    return NULL;
}

TEST(params, "settings out of range, no memory") {
    static world w;
    static const struct {
        specrt_align_params p;
        const char *says;
    } bad[] = {
        {{0, 6, 64, 1, 0.3f, 0.1f}, "n_batch: expected 1 to 4096, found 0"},
        {{4097, 6, 64, 1, 0.3f, 0.1f}, "n_batch"},
        {{32, 0, 64, 1, 0.3f, 0.1f}, "n_steps"},
        {{32, 6, 257, 1, 0.3f, 0.1f}, "n_top: expected 1 to 256, found 257"},
        {{32, 6, 64, 0, 0.3f, 0.1f}, "temperature"},
        {{32, 6, 64, NAN, 0.3f, 0.1f}, "temperature"},
        {{32, 6, 64, 1001, 0.3f, 0.1f}, "temperature"},
        {{32, 6, 64, 1, 1001, 0.1f}, "beta"},
        {{32, 6, 64, 1, -1, 0.1f}, "beta"},
        {{32, 6, 64, 1, 0.3f, NAN}, "epsilon"},
    };
    const specrt_env none = {.alloc = no_memory};
    specrt_align *a;
    specrt_error err;
    world_make(&w, false, 3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_INT(specrt_align_create(w.head, V, &bad[i].p, NULL, &a, &err), SPECRT_STATUS_BAD_ARG);
        CHECK(a == NULL);
        CHECK_HAS(err.msg, bad[i].says);
    }
    const specrt_align_params most = {4096, SPECRT_TREE_MAX_NODES, 256, 1000, 1000, 0};
    REQUIRE(specrt_align_create(w.head, V, &most, NULL, &a, &err) == SPECRT_STATUS_OK);
    specrt_align_close(a);
    CHECK_INT(specrt_align_create(w.head, 0, NULL, NULL, &a, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_align_create(w.head, V, NULL, &none, &a, &err), SPECRT_STATUS_NO_MEMORY);
    specrt_head_close(w.head);
}
