/* test_train.c : the training of routers: products and gradients against plain loops in double precision,
 * and what is learnt against labels that mean nothing. */
#include "fixture.h"
#include "starve.h"
#include "test.h"

#include "tools/cluster-build/product.h"
#include "tools/cluster-build/vectors.h"

#include "tools/cluster-build/network.h"

#include "tools/cluster-build/examples.h"
#include "tools/cluster-build/train.h"
#include "tools/cluster-build/build.h"

static uint64_t state = 20261121;

static void fill_random(float *x, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++) x[i] = scale * fixture_normal(&state);
}

/* --- products --- */

static void check_product(parallel_pool *pool, int32_t m, int32_t n, int32_t k, bool turned) {
    float *a = malloc((size_t)m * (size_t)k * sizeof *a),
          *b = malloc((size_t)k * (size_t)n * sizeof *b);
    float *c = malloc((size_t)m * (size_t)n * sizeof *c);
    matrix_view va = {a, turned ? 1 : k, turned ? m : 1}, vb = {b, turned ? 1 : n, turned ? k : 1};
    double worst = 0;
    fill_random(a, (int64_t)m * k, 1);
    fill_random(b, (int64_t)k * n, 1);
    product(pool, va, vb, m, n, k, c);
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) {
            double sum = 0;
            for (int32_t l = 0; l < k; l++)
                sum += (double)a[i * va.row + l * va.col] * (double)b[l * vb.row + j * vb.col];
            worst = fmax(worst, fabs(sum - (double)c[i * n + j]));
        }
    CHECK_NEAR(worst, 0, 1e-6 * k);
    free(a);
    free(b);
    free(c);
}

TEST(products, "blocked products equal plain loops, at every edge, transposed too") {
    parallel_pool *pool = sl_parallel_pool_create(3);
    const int32_t sizes[][3] = {{1, 1, 1},    {6, 16, 256},  {7, 17, 257}, {5, 3, 600},
                                {193, 33, 9}, {192, 128, 1}, {40, 130, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turned = 0; turned < 2; turned++)
            check_product(pool, sizes[i][0], sizes[i][1], sizes[i][2], turned);
    sl_parallel_pool_free(pool);
}

/* --- the network --- */

/* The loss in double precision, from the definition. */
static double plain_loss(const network *net, const double *w, int32_t n) {
    const network_shape *s = &net->shape;
    const double *b1 = w + (net->b1 - net->w1), *w2 = w + (net->w2 - net->w1),
                 *b2 = w + (net->b2 - net->w1);
    double total = 0;
    for (int32_t row = 0; row < n; row++) {
        const float *x = net->x + row * s->n_in, *y = net->targets + row * s->n_out;
        double hidden[32], scores[32], sum = 0;
        for (int32_t i = 0; i < s->n_hidden; i++) {
            double z = b1[i];
            for (int32_t j = 0; j < s->n_in; j++) z += w[i * s->n_in + j] * (double)x[j];
            hidden[i] = z / (1 + exp(-z)) + (s->residual ? (double)x[i] : 0);
        }
        for (int32_t m = 0; m < s->n_out; m++) {
            scores[m] = b2[m];
            for (int32_t i = 0; i < s->n_hidden; i++)
                scores[m] += w2[m * s->n_hidden + i] * hidden[i];
            sum += exp(scores[m]);
        }
        for (int32_t m = 0; m < s->n_out; m++) {
            double p = s->softmax ? exp(scores[m]) / sum : 1 / (1 + exp(-scores[m])),
                   t = (double)y[m];
            total -= t * log(p) + (s->softmax ? 0 : (1 - t) * log(1 - p));
        }
    }
    return total / n;
}

static void check_gradient(bool residual, bool softmax) {
    enum { ROWS = 37 };
    network_shape shape = {residual, softmax, 11, residual ? 11 : 9, 7, ROWS};
    parallel_pool *pool = sl_parallel_pool_create(2);
    network net;
    REQUIRE(network_create(&net, &shape, 5, pool));
    fill_random(net.x, ROWS * shape.n_in, 1);
    fill_random(net.b1, shape.n_hidden, 0.3f);
    fill_random(net.b2, shape.n_out, 0.3f);
    for (int i = 0; i < ROWS * shape.n_out; i++)
        net.targets[i] = (float)(fixture_random(&state) >> 60) / 16;
    double *w = malloc((size_t)net.n_weights * sizeof *w);
    for (int64_t i = 0; i < net.n_weights; i++) w[i] = (double)net.weights[i];
    network_forward(&net, ROWS);
    CHECK_NEAR(network_loss(&net, ROWS), plain_loss(&net, w, ROWS), 1e-5);
    network_backward(&net, ROWS);
    for (int64_t i = 0; i < net.n_weights; i++) {
        double was = w[i], step = 1e-5, above;
        w[i] = was + step;
        above = plain_loss(&net, w, ROWS);
        w[i] = was - step;
        CHECK_NEAR((double)net.gradient[i], (above - plain_loss(&net, w, ROWS)) / (2 * step), 1e-5);
        w[i] = was;
    }
    free(w);
    network_free(&net);
    sl_parallel_pool_free(pool);
}

TEST(gradients, "loss and gradient of every router and loss against finite differences") {
    for (int residual = 0; residual < 2; residual++)
        for (int softmax = 0; softmax < 2; softmax++) check_gradient(residual, softmax);
}

/* One step from zero moments moves every weight by the rate against its gradient's sign, and decays. */
TEST(step, "one step of AdamW") {
    network_shape shape = {false, false, 2, 3, 2, 4};
    parallel_pool *pool = sl_parallel_pool_create(1);
    network net;
    REQUIRE(network_create(&net, &shape, 1, pool));
    float w = net.w1[0];
    net.gradient[0] = -0.5f;
    net.gradient[net.b2 - net.w1] = 2;
    network_step(&net, 0.1, 0.2);
    CHECK_NEAR((double)net.w1[0], (double)w + 0.1 - 0.1 * 0.2 * (double)w, 1e-6);
    CHECK_NEAR((double)net.b2[0], -0.1, 1e-6);
    network_free(&net);
    sl_parallel_pool_free(pool);
}

/* --- training --- */

enum { N_ROWS = 600, N_CLUSTERS = 12, N_STATE = 16, N_TOP = 4, N_DOCUMENTS = 40 };

/* The target's best tokens depend on the state: on which of its first columns is the greatest. */
typedef struct world {
    example_set set;
    int32_t cluster_of[N_ROWS], sizes[N_CLUSTERS], rank_of[N_ROWS];
    train_world train;
} world;

static void set_example(example_set *set, int64_t i, bool shuffled) {
    float x[N_STATE];
    int32_t best = 0;
    fill_random(x, N_STATE, 1);
    for (int32_t j = 1; j < N_CLUSTERS; j++)
        if (x[j] > x[best]) best = j;
    if (shuffled) best = (int32_t)(fixture_random(&state) >> 33) % N_CLUSTERS;
    specrt_to_f16(x, N_STATE, set->states + i * N_STATE);
    for (int32_t j = 0; j < N_TOP; j++) {
        int32_t id = (int32_t)(fixture_random(&state) >> 33) % (N_ROWS / N_CLUSTERS);
        set->top[i * N_TOP + j] = id * N_CLUSTERS + best;
        set->mass[i * N_TOP + j] = 0.4f / (float)(1 << j);
    }
    set->levels[i] = (int32_t)(i % 3);
    set->documents[i] = (uint64_t)(i % N_DOCUMENTS);
}

static void open_world(world *w, int64_t n, bool shuffled) {
    *w = (world){.set = {.n_state = N_STATE, .n_top = N_TOP}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        REQUIRE(!examples_add(&w->set, &at, &err));
        set_example(&w->set, at, shuffled);
    }
    for (int32_t id = 0; id < N_ROWS; id++) {
        w->cluster_of[id] = id % N_CLUSTERS;
        w->sizes[id % N_CLUSTERS]++;
        w->rank_of[id] = id;
    }
    w->train = (train_world){.examples = &w->set,
                             .cluster_of = w->cluster_of,
                             .n_clusters = N_CLUSTERS,
                             .sizes = w->sizes,
                             .rank_of = w->rank_of};
    REQUIRE(!examples_split(&w->set, 0.2, 9, &err));
}

static train_options options_for(parallel_pool *pool, train_loss loss) {
    train_options o = {.loss = loss,
                       .n_hidden = 32,
                       .n_epochs = 12,
                       .patience = 12,
                       .rate = 5e-3,
                       .decay = 0.01,
                       .seed = 3,
                       .pool = pool};
    return o;
}

/* Trains and measures with two clusters at the first level, one after. */
static route_figures learn(world *w, const train_options *o, uint64_t *digest) {
    const int32_t clusters[] = {2, 1};
    network net;
    train_curve curve;
    route_figures figures;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    REQUIRE(!train_run(&w->train, o, &net, &curve, &err));
    REQUIRE(!route_measure(&w->train, &net, clusters, 2, &figures, &err));
    CHECK(curve.holdout[curve.best] <= curve.holdout[0]);
    if (digest)
        *digest = specrt_hash64(net.weights, (size_t)net.n_weights * sizeof *net.weights, 0);
    network_free(&net);
    train_curve_free(&curve);
    return figures;
}

TEST(learns, "every router and loss learns what was planted, and nothing from shuffled labels") {
    parallel_pool *pool = sl_parallel_pool_create(2);
    for (int coral = 0; coral < 2; coral++)
        for (int loss = TRAIN_TOP; loss <= TRAIN_BEST; loss++) {
            train_options o = options_for(pool, (train_loss)loss);
            world w, control;
            o.residual = coral;
            open_world(&w, 2400, false);
            open_world(&control, 2400, true);
            route_figures f = learn(&w, &o, NULL), g = learn(&control, &o, NULL);
            CHECK(f.levels[0].recall > 0.9 && f.all.recall > 0.75);
            CHECK(f.all.recall > 3 * g.all.recall);
            CHECK_NEAR(f.levels[0].rows, 2.0 * N_ROWS / N_CLUSTERS, 1e-9);
            CHECK_NEAR(f.levels[2].rows, 1.0 * N_ROWS / N_CLUSTERS, 1e-9);
            CHECK_NEAR(f.all.oracle, 1, 1e-9);
            CHECK_NEAR(f.all.mass_oracle, 0.75, 1e-6);
            CHECK_NEAR(f.all.fixed, f.all.rows / N_ROWS, 0.06);
            examples_free(&w.set);
            examples_free(&control.set);
        }
    sl_parallel_pool_free(pool);
}

TEST(threads, "the same weights for any number of threads; others for another seed") {
    uint64_t digests[3];
    world w;
    open_world(&w, 700, false);
    for (int i = 0; i < 3; i++) {
        parallel_pool *pool = sl_parallel_pool_create(1 + 2 * i);
        train_options o = options_for(pool, TRAIN_TOP);
        o.n_epochs = 2;
        o.n_hidden = 200;
        if (i == 2) o.seed++;
        learn(&w, &o, &digests[i]);
        sl_parallel_pool_free(pool);
    }
    CHECK(digests[0] == digests[1]);
    CHECK(digests[0] != digests[2]);
    examples_free(&w.set);
}

TEST(split, "a document is held out whole, whatever the order of its examples") {
    world w;
    bool out[N_DOCUMENTS] = {false}, in[N_DOCUMENTS] = {false};
    int n_out = 0;
    open_world(&w, 1000, false);
    for (int64_t i = 0; i < w.set.n; i++)
        (i < w.set.n_holdout ? out : in)[w.set.documents[i]] = true;
    for (int i = 0; i < N_DOCUMENTS; i++) {
        CHECK(out[i] != in[i]);
        n_out += out[i];
    }
    CHECK_INT(n_out, N_DOCUMENTS / 5);
    examples_free(&w.set);
}

TEST(bad_examples, "too few examples, equal states, a loss that is no number") {
    world w;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    example_set none = {.n_state = N_STATE, .n_top = N_TOP};
    CHECK_INT(examples_split(&none, 0.1, 1, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "found 0 of 0");
    open_world(&w, 100, false);
    for (int64_t i = 0; i < w.set.n; i++) w.set.documents[i] = 7;
    CHECK_INT(examples_split(&w.set, 0.1, 1, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "found 100 of 1;");
    for (int64_t i = 0; i < w.set.n; i++) w.set.documents[i] = (uint64_t)i;
    memset(w.set.states, 0, (size_t)(w.set.n * N_STATE) * sizeof *w.set.states);
    CHECK_INT(examples_split(&w.set, 0.1, 1, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "found all the same");
    parallel_pool *pool = sl_parallel_pool_create(1);
    train_options o = options_for(pool, TRAIN_BEST);
    network net = {0};
    train_curve curve = {0};
    w.set.states[0] = 0x7c00; /* as examples_read() never lets it through */
    w.set.n_holdout = 1;
    CHECK_INT(train_run(&w.train, &o, &net, &curve, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected a finite loss");
    network_free(&net);
    train_curve_free(&curve);
    sl_parallel_pool_free(pool);
    examples_free(&w.set);
}

static int train_all(void *arg) {
    world *w = arg;
    const int32_t clusters[] = {2, 1};
    network net = {0};
    train_curve curve = {0};
    route_figures figures;
    double rows_of[N_CLUSTERS + 1];
    parallel_pool *pool = sl_parallel_pool_create(1);
    if (!pool) return SPECRT_STATUS_NO_MEMORY;
    train_options o = options_for(pool, TRAIN_TOP);
    o.n_epochs = 1;
    specrt_status status = examples_split(&w->set, 0.2, 9, NULL);
    if (!status) status = train_run(&w->train, &o, &net, &curve, NULL);
    if (!status) status = route_costs(&w->train, &net, rows_of, NULL);
    if (!status) status = route_measure(&w->train, &net, clusters, 2, &figures, NULL);
    network_free(&net);
    train_curve_free(&curve);
    sl_parallel_pool_free(pool);
    return status;
}

TEST(no_memory, "every allocation that fails") {
    world w;
    open_world(&w, 200, false);
    test_starve(train_all, &w, SPECRT_STATUS_NO_MEMORY);
    examples_free(&w.set);
}

/* --- schedules --- */

TEST(schedules, "named shapes, the greatest within a budget of rows") {
    double rows_of[65];
    schedule s;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    for (int k = 0; k <= 64; k++) rows_of[k] = 100.0 * k;
    const int32_t harmonic[] = {32, 32, 5, 4, 3, 2, 2, 2};
    REQUIRE(!schedule_make("harmonic", 78.0 / 6 * 100, rows_of, 64, &s, &err));
    CHECK(memcmp(s.clusters, harmonic, sizeof harmonic) == 0);
    CHECK_NEAR(s.rows, 78.0 / 6 * 100, 1e-9);
    for (int k = 0; k <= 64; k++) rows_of[k] = k * k;
    REQUIRE(!schedule_make("flat", 170, rows_of, 64, &s, &err));
    CHECK_INT(s.clusters[0], 13);
    REQUIRE(!schedule_make("harmonic", 1, rows_of, 64, &s, &err));
    CHECK_INT(s.clusters[7], 1);
    CHECK_INT(schedule_make("flat", 0.5, rows_of, 64, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "--mean-rows: expected room for one of the 64 clusters");
}
