/* test_train.c : the training of routers: products and gradients against plain loops in double precision,
 * and what is learnt against labels that mean nothing. */
#include "fixture.h"
#include "test.h"

#include "../tools/cluster-build/product.c"

#include "../tools/cluster-build/network.c"

static uint64_t state = 20261121;

static void fill(float *x, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++) x[i] = scale * fixture_normal(&state);
}

/* --- products --- */

static void check_product(parallel_pool *pool, int32_t m, int32_t n, int32_t k, bool turned) {
    float *a = malloc((size_t)m * (size_t)k * sizeof *a),
          *b = malloc((size_t)k * (size_t)n * sizeof *b);
    float *c = malloc((size_t)m * (size_t)n * sizeof *c);
    matrix_view va = {a, turned ? 1 : k, turned ? m : 1}, vb = {b, turned ? 1 : n, turned ? k : 1};
    double worst = 0;
    fill(a, (int64_t)m * k, 1);
    fill(b, (int64_t)k * n, 1);
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

static void test_products(void) {
    parallel_pool *pool = parallel_pool_create(3);
    const int32_t shapes[][3] = {{1, 1, 1},    {6, 16, 256},  {7, 17, 257}, {5, 3, 600},
                                 {193, 33, 9}, {192, 128, 1}, {40, 130, 70}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int turned = 0; turned < 2; turned++)
            check_product(pool, shapes[i][0], shapes[i][1], shapes[i][2], turned);
    parallel_pool_free(pool);
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
    parallel_pool *pool = parallel_pool_create(2);
    network net;
    REQUIRE(network_create(&net, &shape, 5, pool));
    fill(net.x, ROWS * shape.n_in, 1);
    fill(net.b1, shape.n_hidden, 0.3f);
    fill(net.b2, shape.n_out, 0.3f);
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
    parallel_pool_free(pool);
}

static void test_gradients(void) {
    for (int residual = 0; residual < 2; residual++)
        for (int softmax = 0; softmax < 2; softmax++) check_gradient(residual, softmax);
}

/* One step from zero moments moves every weight by the rate against its gradient's sign, and decays. */
static void test_step(void) {
    network_shape shape = {false, false, 2, 3, 2, 4};
    parallel_pool *pool = parallel_pool_create(1);
    network net;
    REQUIRE(network_create(&net, &shape, 1, pool));
    float w = net.w1[0];
    net.gradient[0] = -0.5f;
    net.gradient[net.b2 - net.w1] = 2;
    network_step(&net, 0.1, 0.2);
    CHECK_NEAR((double)net.w1[0], (double)w + 0.1 - 0.1 * 0.2 * (double)w, 1e-6);
    CHECK_NEAR((double)net.b2[0], -0.1, 1e-6);
    network_free(&net);
    parallel_pool_free(pool);
}

static const test_case cases[] = {
    {"products", "blocked products equal plain loops, at every edge, transposed too",
     test_products},
    {"gradients", "loss and gradient of every router and loss against finite differences",
     test_gradients},
    {"step", "one step of AdamW", test_step},
};
TEST_MAIN(cases)
