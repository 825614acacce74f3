/* network.c : see network.h. */
#include "network.h"

#include <math.h>
#include <string.h>
#include "base/memory.h"
#include "product.h"

enum { ROWS_AT_ONCE = 32, WEIGHTS_AT_ONCE = 1 << 14 };

void network_free(network *net) {
    sl_arrays_free(&net->owned);
    *net = (network){0};
}

static float *zeros(network *net, int64_t rows, int64_t columns) {
    return sl_array(&net->owned, (size_t)rows * (size_t)columns, sizeof(float));
}

/* Uniform with the deviation that keeps a layer's outputs as large as its inputs. */
static void draw(float *w, int64_t n, int32_t n_in, uint64_t seed) {
    float width = sqrtf(3 / (float)n_in);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = specrt_hash64(&i, sizeof i, seed);
        w[i] = width * ((float)(bits >> 40) * 0x1p-23f - 1);
    }
}

bool network_create(network *net, const network_shape *shape, uint64_t seed, parallel_pool *pool) {
    const network_shape *s = shape;
    int64_t n1 = (int64_t)s->n_hidden * s->n_in, n2 = (int64_t)s->n_out * s->n_hidden;
    *net = (network){.shape = *s, .pool = pool, .n_weights = n1 + s->n_hidden + n2 + s->n_out};
    net->weights = zeros(net, net->n_weights, 1);
    net->gradient = zeros(net, net->n_weights, 1);
    net->first = zeros(net, net->n_weights, 1);
    net->second = zeros(net, net->n_weights, 1);
    net->x = zeros(net, s->n_batch, s->n_in);
    net->targets = zeros(net, s->n_batch, s->n_out);
    net->sums = zeros(net, s->n_batch, s->n_hidden);
    net->hidden = zeros(net, s->n_batch, s->n_hidden);
    net->scores = zeros(net, s->n_batch, s->n_out);
    net->back = zeros(net, s->n_batch, s->n_hidden);
    net->losses = sl_array(&net->owned, (size_t)s->n_batch, sizeof *net->losses);
    if (net->owned.failed) {
        network_free(net);
        return false;
    }
    net->w1 = net->weights;
    net->b1 = net->w1 + n1;
    net->w2 = net->b1 + s->n_hidden;
    net->b2 = net->w2 + n2;
    draw(net->w1, n1, s->n_in, seed);
    draw(net->w2, n2, s->n_hidden, seed + 1);
    return true;
}

/* --- rows of a batch, some at a time --- */

typedef struct rows_job {
    network *net;
    int32_t n;
} rows_job;

static void for_rows(network *net, int32_t n, void (*task)(void *arg, int64_t block)) {
    rows_job job = {net, n};
    sl_parallel_pool_for(net->pool, (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, task, &job);
}

static int64_t rows_end(const rows_job *job, int64_t block) {
    int64_t end = (block + 1) * ROWS_AT_ONCE;
    return end < job->n ? end : job->n;
}

static float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

static void activate(void *arg, int64_t block) {
    const rows_job *job = arg;
    network *net = job->net;
    int64_t h = net->shape.n_hidden;
    for (int64_t i = block * ROWS_AT_ONCE * h; i < rows_end(job, block) * h; i++) {
        net->sums[i] += net->b1[i % h];
        net->hidden[i] =
            net->sums[i] * sigmoid(net->sums[i]) + (net->shape.residual ? net->x[i] : 0);
    }
}

static void add_bias(void *arg, int64_t block) {
    const rows_job *job = arg;
    network *net = job->net;
    int64_t m = net->shape.n_out;
    for (int64_t i = block * ROWS_AT_ONCE * m; i < rows_end(job, block) * m; i++)
        net->scores[i] += net->b2[i % m];
}

void network_forward(network *net, int32_t n) {
    const network_shape *s = &net->shape;
    matrix_view x = {net->x, s->n_in, 1}, w1 = {net->w1, 1, s->n_in};
    matrix_view hidden = {net->hidden, s->n_hidden, 1}, w2 = {net->w2, 1, s->n_hidden};
    product(net->pool, x, w1, n, s->n_hidden, s->n_in, net->sums);
    for_rows(net, n, activate);
    product(net->pool, hidden, w2, n, s->n_out, s->n_hidden, net->scores);
    for_rows(net, n, add_bias);
}

/* --- loss --- */

/* -sum_m y_m log p_m; its gradient is p sum(y) - y. */
static double softmax_loss(float *scores, const float *y, int32_t n) {
    double sum = 0, loss = 0, mass = 0;
    float most = scores[0];
    for (int32_t m = 1; m < n; m++) most = scores[m] > most ? scores[m] : most;
    for (int32_t m = 0; m < n; m++) sum += exp((double)scores[m] - (double)most);
    for (int32_t m = 0; m < n; m++) mass += (double)y[m];
    for (int32_t m = 0; m < n; m++) {
        double log_p = (double)scores[m] - (double)most - log(sum);
        loss -= (double)y[m] * log_p;
        scores[m] = (float)(exp(log_p) * mass - (double)y[m]);
    }
    return loss;
}

/* sum_m log(1 + e^s_m) - y_m s_m */
static double sigmoid_loss(float *scores, const float *y, int32_t n) {
    double loss = 0;
    for (int32_t m = 0; m < n; m++) {
        double s = (double)scores[m], small = exp(-fabs(s));
        loss += (s > 0 ? s : 0) + log1p(small) - (double)y[m] * s;
        scores[m] = (float)((s > 0 ? 1 : small) / (1 + small) - (double)y[m]);
    }
    return loss;
}

static void lose(void *arg, int64_t block) {
    const rows_job *job = arg;
    network *net = job->net;
    int32_t m = net->shape.n_out;
    for (int64_t i = block * ROWS_AT_ONCE; i < rows_end(job, block); i++) {
        float *scores = net->scores + i * m;
        const float *y = net->targets + i * m;
        net->losses[i] =
            net->shape.softmax ? softmax_loss(scores, y, m) : sigmoid_loss(scores, y, m);
        for (int32_t j = 0; j < m; j++) scores[j] /= (float)job->n;
    }
}

double network_loss(network *net, int32_t n) {
    double sum = 0;
    for_rows(net, n, lose);
    for (int32_t i = 0; i < n; i++) sum += net->losses[i];
    return sum / n;
}

/* --- gradient --- */

/* silu'(z) = p + z p (1 - p) with p = sigmoid(z) */
static void deactivate(void *arg, int64_t block) {
    const rows_job *job = arg;
    network *net = job->net;
    int64_t h = net->shape.n_hidden;
    for (int64_t i = block * ROWS_AT_ONCE * h; i < rows_end(job, block) * h; i++) {
        float z = net->sums[i], p = sigmoid(z);
        net->back[i] *= p + z * p * (1 - p);
    }
}

static void sum_rows(const float *x, int32_t n, int32_t width, float *out) {
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        for (int32_t j = 0; j < width; j++) out[j] += x[i * width + j];
}

void network_backward(network *net, int32_t n) {
    const network_shape *s = &net->shape;
    float *g1 = net->gradient, *g2 = g1 + (net->w2 - net->w1);
    matrix_view errors = {net->scores, s->n_out, 1}, errors_t = {net->scores, 1, s->n_out};
    matrix_view w2 = {net->w2, s->n_hidden, 1}, hidden = {net->hidden, s->n_hidden, 1};
    matrix_view back_t = {net->back, 1, s->n_hidden}, x = {net->x, s->n_in, 1};
    product(net->pool, errors_t, hidden, s->n_out, s->n_hidden, n, g2);
    sum_rows(net->scores, n, s->n_out, g1 + (net->b2 - net->w1));
    product(net->pool, errors, w2, n, s->n_hidden, s->n_out, net->back);
    for_rows(net, n, deactivate);
    product(net->pool, back_t, x, s->n_hidden, s->n_in, n, g1);
    sum_rows(net->back, n, s->n_hidden, g1 + (net->b1 - net->w1));
}

/* --- step --- */

typedef struct step_job {
    network *net;
    float rate, decay, correct1, correct2;
} step_job;

static void step_block(void *arg, int64_t block) {
    const step_job *job = arg;
    network *net = job->net;
    int64_t end = (block + 1) * WEIGHTS_AT_ONCE;
    int64_t b1 = net->b1 - net->weights, w2 = net->w2 - net->weights, b2 = net->b2 - net->weights;
    if (end > net->n_weights) end = net->n_weights;
    for (int64_t i = block * WEIGHTS_AT_ONCE; i < end; i++) {
        float g = net->gradient[i];
        bool is_bias = (i >= b1 && i < w2) || i >= b2;
        net->first[i] = 0.9f * net->first[i] + 0.1f * g;
        net->second[i] = 0.999f * net->second[i] + 0.001f * g * g;
        float change =
            net->first[i] * job->correct1 / (sqrtf(net->second[i] * job->correct2) + 1e-8f);
        net->weights[i] -= job->rate * (change + (is_bias ? 0 : job->decay * net->weights[i]));
    }
}

void network_step(network *net, double rate, double decay) {
    double n = (double)++net->n_steps;
    step_job job = {net, (float)rate, (float)decay, (float)(1 / (1 - pow(0.9, n))),
                    (float)(1 / (1 - pow(0.999, n)))};
    sl_parallel_pool_for(net->pool, (net->n_weights + WEIGHTS_AT_ONCE - 1) / WEIGHTS_AT_ONCE,
                         step_block, &job);
}
