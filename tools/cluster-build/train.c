/* train.c : see train.h. Examples are drawn in an order that the seed decides and summed in that order, so
 * the same weights come of any number of threads. */
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "model/head_rows.h"

void train_curve_free(train_curve *curve) {
    free(curve->loss);
    free(curve->holdout);
    *curve = (train_curve){0};
}

/* --- batches --- */

typedef struct batch_job {
    const train_world *world;
    network *net;
    train_loss loss;
    const int64_t *order; /* of the examples; NULL: as they are */
    int64_t begin;
} batch_job;

/* As the runtime does it: x / root mean square; zeros stay. */
static void scale_rms(float *x, int64_t n) {
    double square = 0;
    for (int64_t j = 0; j < n; j++) square += (double)x[j] * (double)x[j];
    float scale = square > 0 ? (float)(1 / sqrt(square / (double)n)) : 0;
    for (int64_t j = 0; j < n; j++) x[j] *= scale;
}

static void fill_input(const train_world *w, int64_t example, float *x) {
    const example_set *set = w->examples;
    const specrt_head_desc *e = &w->embedding;
    if (e->n_cols > 0) {
        int64_t token = set->tokens[example] < e->n_rows ? set->tokens[example] : 0;
        specrt_row_decode(e->dtype, sl_head_row(e, token), e->n_cols, x);
        scale_rms(x, e->n_cols);
        x += e->n_cols;
    }
    specrt_row_decode(SPECRT_DTYPE_F16, set->states + example * set->n_state, set->n_state, x);
    scale_rms(x, set->n_state);
}

static void fill_targets(const train_world *w, int64_t example, train_loss loss, float *y) {
    const example_set *set = w->examples;
    memset(y, 0, (size_t)w->n_clusters * sizeof *y);
    for (int32_t j = 0; j < (loss == TRAIN_BEST ? 1 : set->n_top); j++) {
        int32_t id = set->top[example * set->n_top + j];
        int32_t cluster = id < 0 ? -1 : w->cluster_of[id];
        if (cluster < 0) continue;
        if (loss == TRAIN_MASS)
            y[cluster] += set->mass[example * set->n_top + j];
        else
            y[cluster] = 1;
    }
}

static void fill_row(void *arg, int64_t i) {
    const batch_job *job = arg;
    int64_t example = job->order ? job->order[job->begin + i] : job->begin + i;
    const network_shape *s = &job->net->shape;
    fill_input(job->world, example, job->net->x + i * s->n_in);
    fill_targets(job->world, example, job->loss, job->net->targets + i * s->n_out);
}

/* Fills in examples [begin, end) and scores them. @return how many. */
static int32_t score_batch(batch_job *job, int64_t begin, int64_t end) {
    int64_t n = end - begin < job->net->shape.n_batch ? end - begin : job->net->shape.n_batch;
    job->begin = begin;
    sl_parallel_pool_for(job->net->pool, n, fill_row, job);
    network_forward(job->net, (int32_t)n);
    return (int32_t)n;
}

int32_t train_scores(const train_world *world, network *net, int64_t begin, int64_t end) {
    batch_job job = {world, net, TRAIN_BEST, NULL, 0};
    return score_batch(&job, begin, end);
}

/* --- epochs --- */

typedef struct training {
    const train_world *world;
    const train_options *options;
    network *net;
    train_curve *curve;
    batch_job job;
    int64_t *order; /* [n] of which the first n_holdout are not drawn */
    float *best;    /* [n_weights] */
    int64_t n_steps;
} training;

/* The order of an epoch: each example changes places with one drawn of those not yet placed. */
static void shuffle(training *t, int32_t epoch) {
    int64_t first = t->world->examples->n_holdout, n = t->world->examples->n;
    for (int64_t i = 0; i < n; i++) t->order[i] = i;
    for (int64_t i = first; i < n; i++) {
        uint64_t draw = specrt_hash64(&i, sizeof i, t->options->seed + (uint64_t)epoch);
        int64_t j = i + (int64_t)(draw % (uint64_t)(n - i)), other = t->order[j];
        t->order[j] = t->order[i];
        t->order[i] = other;
    }
}

/* Begins with scores that say how often each cluster is meant. */
static void set_prior(training *t) {
    const example_set *set = t->world->examples;
    int32_t m = t->net->shape.n_out;
    double n = (double)(set->n - set->n_holdout);
    float *y = t->net->targets;
    memset(t->net->b2, 0, (size_t)m * sizeof *t->net->b2);
    for (int64_t i = set->n_holdout; i < set->n; i++) {
        fill_targets(t->world, i, t->options->loss, y);
        for (int32_t j = 0; j < m; j++) t->net->b2[j] += y[j];
    }
    for (int32_t j = 0; j < m; j++) {
        double p = ((double)t->net->b2[j] + 0.5) / (n + 1);
        t->net->b2[j] = (float)(t->net->shape.softmax ? log(p) : log(p / (1 - p)));
    }
}

/* From the full rate to none along half a cosine, after a short rise. */
static double rate_at(const training *t) {
    double total = (double)t->n_steps * t->options->n_epochs, done = (double)t->net->n_steps;
    double rise = total * 0.02;
    if (done < rise) return t->options->rate * (done + 1) / (rise + 1);
    return t->options->rate * 0.5 * (1 + cos(acos(-1.0) * done / total));
}

static double train_epoch(training *t, int32_t epoch) {
    int64_t first = t->world->examples->n_holdout, n = t->world->examples->n;
    double sum = 0;
    shuffle(t, epoch);
    t->job.order = t->order;
    for (int64_t at = first; at < n;) {
        int32_t rows = score_batch(&t->job, at, n);
        sum += network_loss(t->net, rows) * rows;
        network_backward(t->net, rows);
        network_step(t->net, rate_at(t), t->options->decay);
        at += rows;
    }
    return sum / (double)(n - first);
}

static double holdout_loss(training *t) {
    int64_t n = t->world->examples->n_holdout;
    double sum = 0;
    t->job.order = NULL;
    for (int64_t at = 0; at < n;) {
        int32_t rows = score_batch(&t->job, at, n);
        sum += network_loss(t->net, rows) * rows;
        at += rows;
    }
    return sum / (double)n;
}

static specrt_status train_epochs(training *t, specrt_error *err) {
    const train_options *o = t->options;
    train_curve *c = t->curve;
    for (int32_t epoch = 0; epoch < o->n_epochs && epoch - c->best <= o->patience; epoch++) {
        c->loss[epoch] = train_epoch(t, epoch);
        c->holdout[epoch] = holdout_loss(t);
        c->n = epoch + 1;
        if (!isfinite(c->loss[epoch]) || !isfinite(c->holdout[epoch]))
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "training: epoch %" PRId32
                                    ": expected a finite loss, found none; lower --rate",
                                    epoch + 1);
        if (epoch == 0 || c->holdout[epoch] < c->holdout[c->best]) {
            c->best = epoch;
            memcpy(t->best, t->net->weights, (size_t)t->net->n_weights * sizeof *t->best);
        }
        if (o->each) o->each(o->user, epoch, c->loss[epoch], c->holdout[epoch]);
    }
    return SPECRT_STATUS_OK;
}

/* What is stored is what is measured. */
static specrt_status keep_best(training *t, specrt_error *err) {
    for (int64_t i = 0; i < t->net->n_weights; i++) {
        uint16_t half;
        if (!(fabsf(t->best[i]) < 65504))
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_INPUT,
                "training: expected weights in the range of f16, found a larger one; lower --rate");
        specrt_to_f16(&t->best[i], 1, &half);
        specrt_row_decode(SPECRT_DTYPE_F16, (const uint8_t *)&half, 1, &t->net->weights[i]);
    }
    return SPECRT_STATUS_OK;
}

/* A 64th of the examples: enough steps of small sets, few of large ones. */
static int32_t batch_size(const training *t) {
    int64_t n = (t->world->examples->n - t->world->examples->n_holdout) / 64;
    if (t->options->n_batch > 0) return t->options->n_batch;
    return n < 32 ? 32 : n > 4096 ? 4096 : (int32_t)n;
}

specrt_status train_run(const train_world *world, const train_options *options, network *net,
                        train_curve *curve, specrt_error *err) {
    const train_options *o = options;
    training t = {.world = world, .options = o, .net = net, .curve = curve};
    int64_t n = world->examples->n - world->examples->n_holdout;
    network_shape shape = {.residual = o->residual,
                           .softmax = o->loss == TRAIN_BEST,
                           .n_in = (int32_t)world->embedding.n_cols + world->examples->n_state,
                           .n_out = world->n_clusters,
                           .n_batch = batch_size(&t)};
    shape.n_hidden = o->residual ? shape.n_in : o->n_hidden;
    *curve = (train_curve){0};
    if (!network_create(net, &shape, o->seed, o->pool)) return sl_error_no_memory(err, "training");
    t.job = (batch_job){world, net, o->loss, NULL, 0};
    t.n_steps = (n + shape.n_batch - 1) / shape.n_batch;
    t.order = malloc((size_t)world->examples->n * sizeof *t.order);
    t.best = malloc((size_t)net->n_weights * sizeof *t.best);
    curve->loss = calloc((size_t)o->n_epochs, sizeof *curve->loss);
    curve->holdout = calloc((size_t)o->n_epochs, sizeof *curve->holdout);
    specrt_status status = t.order && t.best && curve->loss && curve->holdout
                               ? SPECRT_STATUS_OK
                               : sl_error_no_memory(err, "training");
    if (!status) {
        set_prior(&t);
        status = train_epochs(&t, err);
    }
    if (!status) status = keep_best(&t, err);
    free(t.order);
    free(t.best);
    return status;
}
