/* controller_step.c : one step of the optimiser, EvoSpec's over a batch of positions, OSD's over whole
 * sequences. Runs on the worker's thread while drafts go on with the weights they have. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/measure.h"
#include "engine/train/controller_impl.h"

bool controller_reserve(engine_controller *c, int32_t n) {
    if (n <= c->n_queries) return true;
    free(c->queries);
    free(c->dh);
    c->queries = (engine_align_query *)malloc((size_t)n * sizeof *c->queries);
    c->dh = (float *)malloc((size_t)n * (size_t)c->d_model * sizeof *c->dh);
    c->n_queries = c->queries && c->dh ? n : 0;
    return c->n_queries > 0;
}

bool controller_list_all(engine_controller *c, const int32_t *positions, int32_t n,
                         const kept_batch *b) {
    int32_t n_all = n + (b ? b->drafted.n : 0);
    if (!engine_align_needs_all(c->align)) return true;
    if (n_all > c->n_all) {
        free(c->all);
        c->n_all = n_all + n_all / 4;
        c->all = (engine_align_query *)malloc((size_t)c->n_all * sizeof *c->all);
        if (!c->all) c->n_all = 0;
    }
    if (!c->all) return false;
    for (int32_t i = 0; i < n; i++)
        c->all[i] = (engine_align_query){i, i - positions[i], positions[i] + 1, 0, 0};
    for (int32_t i = 0; b && i < b->n; i++) {
        const kept_place *p = &b->places[i];
        int32_t row = n + p->path + p->n_path - 1;
        if (p->n_path > 0)
            c->all[row] = (engine_align_query){row, p->first, p->n, n + p->path, p->n_path};
    }
    return true;
}

/* ---- EvoSpec: sparse distillation at the positions of a batch ------------------------------------ */

/* Drafted rows stand behind the committed ones. */
static bool join_rows(kept_batch *b, int32_t width) {
    kept_rows *past = &b->past, *drafted = &b->drafted;
    if (drafted->n == 0) return true;
    if (!kept_rows_reserve(past, drafted->n, width)) return false;
    memcpy(past->inputs + (int64_t)past->n * width, drafted->inputs,
           sizeof(float) * (size_t)drafted->n * (size_t)width);
    memcpy(past->positions + past->n, drafted->positions, sizeof(int32_t) * (size_t)drafted->n);
    return true;
}

static bool align_positions(engine_controller *c) {
    kept_batch *b = c->training;
    const specrt_align_batch *targets = b->targets;
    const float *hidden;
    int32_t n = targets->n;
    if (!controller_reserve(c, n) || !join_rows(b, c->width) ||
        !controller_list_all(c, b->past.positions, b->past.n, b))
        return false;
    for (int32_t i = 0; i < n; i++) {
        const kept_place *p = &b->places[targets->contexts[i]];
        c->queries[i] = (engine_align_query){p->n_path ? b->past.n + p->path + p->n_path - 1
                                                       : p->first + p->n - 1,
                                             p->first, p->n, b->past.n + p->path, p->n_path};
    }
    engine_align_rows rows = {.n = b->past.n + b->drafted.n,
                              .n_queries = n,
                              .inputs = b->past.inputs,
                              .positions = b->past.positions,
                              .queries = c->queries,
                              .all = c->all};
    if (engine_align_forward(c->align, &rows, &hidden) != SPECRT_STATUS_OK) return false;
    if (specrt_align_gradient(c->gate, targets, hidden, c->dh, &c->step_loss) != SPECRT_STATUS_OK)
        return false;
    c->step_n = n;
    engine_align_backward(c->align, &rows, c->dh);
    return engine_align_step(c->align, 1);
}

/* ---- OSD: cross-entropy over the whole vocabulary where drafts were refused ----------------------- */

/* logits -> softmax, in place. @return log sum exp. */
static double soften(float *x, int32_t n) {
    float best = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int32_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - best);
    for (int32_t i = 0; i < n; i++) x[i] = (float)(x[i] / sum);
    return (double)best + log(sum);
}

/* dh = W^T (q - p), p the target's distribution, both over all tokens that the drafter's head has.
 *   wanted : [n, d_model] hidden states that the target's head multiplies
 * @return the cross-entropy. */
static double dense_gradient(engine_controller *c, const float *wanted, const float *hidden,
                             int32_t n, float *dh) {
    const engine_drafter *d = c->align->d;
    const engine_matrix *head = &c->align->m->head;
    engine_matrix targets = d->target->head;
    int32_t n_vocab = head->segment.n_rows;
    targets.segment.n_rows = n_vocab;
    targets.segment.places = d->d2t;
    float *p = c->logits, *q = p + (int64_t)CONTROLLER_CHUNK * n_vocab;
    double loss = 0;
    align_product(c->align, &targets, wanted, n, p);
    align_product(c->align, head, hidden, n, q);
    for (int64_t i = 0; i < n; i++) {
        float *pi = p + i * n_vocab, *qi = q + i * n_vocab;
        double along = 0, total;
        soften(pi, n_vocab);
        for (int32_t v = 0; v < n_vocab; v++) along += (double)pi[v] * qi[v];
        total = soften(qi, n_vocab);
        loss += total - along;
        for (int32_t v = 0; v < n_vocab; v++) qi[v] -= pi[v];
    }
    memset(dh, 0, sizeof(float) * (size_t)n * (size_t)c->d_model);
    align_product_back(c->align, head, q, n, dh);
    return loss;
}

/* The positions [from, to) of one sequence. */
static bool align_sequence(engine_controller *c, int32_t from, int32_t to, double *loss) {
    const kept_batch *b = c->training;
    const kept_place *places = b->places + from;
    const float *hidden, *inputs = b->past.inputs + (int64_t)places[0].first * c->width;
    int32_t n = to - from, n_rows = 0, d = c->d_model;
    for (int32_t i = 0; i < n; i++) {
        c->queries[i] = (engine_align_query){places[i].n - 1, 0, places[i].n, 0, 0};
        if (places[i].n > n_rows) n_rows = places[i].n;
    }
    engine_align_rows rows = {.n = n_rows,
                              .n_queries = n,
                              .inputs = inputs,
                              .positions = b->past.positions + places[0].first,
                              .queries = c->queries};
    if (engine_align_forward(c->align, &rows, &hidden) != SPECRT_STATUS_OK) return false;
    for (int32_t at = 0; at < n; at += CONTROLLER_CHUNK) {
        int32_t k = n - at < CONTROLLER_CHUNK ? n - at : CONTROLLER_CHUNK;
        *loss += dense_gradient(c, b->wanted + (int64_t)(from + at) * d, hidden + (int64_t)at * d,
                                k, c->dh + (int64_t)at * d);
    }
    engine_align_backward(c->align, &rows, c->dh);
    return true;
}

static bool align_sequences(engine_controller *c) {
    const kept_batch *b = c->training;
    if (!controller_reserve(c, b->n > 0 ? b->n : 1)) return false;
    c->step_loss = 0;
    for (int32_t from = 0, to; from < b->n; from = to) {
        for (to = from + 1; to < b->n && b->places[to].first == b->places[from].first;) to++;
        if (!align_sequence(c, from, to, &c->step_loss)) return false;
    }
    c->step_n = b->n;
    return b->n == 0 || engine_align_step(c->align, 1 / (float)b->n);
}

void controller_step(engine_controller *c) {
    double began = sl_measure_seconds();
    c->step_loss = 0;
    c->step_made = c->gate ? align_positions(c) : align_sequences(c);
    c->step_seconds = sl_measure_seconds() - began;
}
