/* align.c : owns what waits to be learnt from: the gate, the buffers, the curriculum's weights, and the
 * gradient of the loss with respect to hidden states. Refuses settings out of range and values that are
 * not finite. Knows nothing of the drafter but its head: the layer's backward pass and the optimiser
 * are the application's. */
#include "core/base.h"
#include "core/head.h"
#include "specrt_tools.h"

typedef struct specrt__align_buffer {
    specrt_align_batch view; /* of the arrays below */
    bool out;
    uint64_t *contexts; /* [capacity] */
    int32_t *steps, *n_top;
    float *weights;
    int32_t *ids;    /* [capacity, width] */
    float *probs;    /* [capacity, width] */
    float *logits;   /* [width + 1] of the drafter, scratch */
    int32_t *places; /* [width + 1] rows of the head, scratch */
    float *row;      /* [n_cols] scratch */
} specrt__align_buffer;

struct specrt_align {
    specrt_env env;
    const specrt_head *head;
    specrt_compute compute; /* the head's, on the calling thread alone */
    specrt_align_params params;
    int32_t n_logits;
    size_t bytes;
    specrt__align_buffer buffers[2];
    int filling;
    bool full;    /* since before this cycle */
    int32_t *ids; /* [width + 1] of the position being looked at, then the token itself */
    float *probs; /* [width] */
    specrt_align_stats stats;
};

static specrt_status specrt__align_check(const specrt_align_params *p, int32_t n_logits,
                                         specrt_error *err) {
    const struct {
        const char *name;
        int32_t value, least, most;
    } counts[] = {{"n_logits", n_logits, 1, SPECRT_MAX_VOCAB},
                  {"n_batch", p->n_batch, 1, SPECRT_ALIGN_MAX_BATCH},
                  {"n_steps", p->n_steps, 1, SPECRT_TREE_MAX_NODES},
                  {"n_top", p->n_top, 1, SPECRT_ALIGN_MAX_TOP}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].most)
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG, "align: %s: expected %d to %d, found %d",
                counts[i].name, (int)counts[i].least, (int)counts[i].most, (int)counts[i].value);
    if (!(p->temperature > 0 && p->temperature <= 1000))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "align: temperature: expected above 0, to 1000, found %g",
                                (double)p->temperature);
    if (!(p->beta >= 0 && p->beta <= 1000) || !(p->epsilon >= 0))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "align: expected beta in [0, 1000] and epsilon of at least 0, "
                                "found %g and %g",
                                (double)p->beta, (double)p->epsilon);
    return SPECRT_STATUS_OK;
}

/* A cycle that fills a buffer goes into it as a whole. */
static int32_t specrt__align_capacity(const specrt_align *a) {
    return a->params.n_batch + a->params.n_steps - 1;
}

/* Tokens that a position may retain. */
static int32_t specrt__align_width(const specrt_align *a) {
    return a->params.n_top;
}

static uint64_t specrt__align_size(const specrt_align *a) {
    uint64_t n = (uint64_t)specrt__align_capacity(a), k = (uint64_t)specrt__align_width(a);
    uint64_t entry = sizeof(uint64_t) + 3 * sizeof(int32_t) + k * 2 * sizeof(float);
    uint64_t scratch = 2 * (k + 1) * sizeof(float) + (uint64_t)a->head->desc.n_cols * sizeof(float);
    return 2 * (n * entry + scratch) + (2 * k + 1) * sizeof(float);
}

static void specrt__align_carve(specrt_align *a, uint8_t *at) {
    int32_t n = specrt__align_capacity(a), k = specrt__align_width(a);
    for (int i = 0; i < 2; i++) a->buffers[i].contexts = SPECRT__CARVE(uint64_t, &at, n);
    for (int i = 0; i < 2; i++) {
        specrt__align_buffer *b = &a->buffers[i];
        b->steps = SPECRT__CARVE(int32_t, &at, n);
        b->n_top = SPECRT__CARVE(int32_t, &at, n);
        b->weights = SPECRT__CARVE(float, &at, n);
        b->ids = SPECRT__CARVE(int32_t, &at, (int64_t)n * k);
        b->probs = SPECRT__CARVE(float, &at, (int64_t)n *k);
        b->logits = SPECRT__CARVE(float, &at, k + 1);
        b->places = SPECRT__CARVE(int32_t, &at, k + 1);
        b->row = SPECRT__CARVE(float, &at, a->head->desc.n_cols);
        b->view.contexts = b->contexts;
        b->view.steps = b->steps;
        b->view.weights = b->weights;
        b->view.n_top = b->n_top;
        b->view.ids = b->ids;
        b->view.probs = b->probs;
    }
    a->ids = SPECRT__CARVE(int32_t, &at, k + 1);
    a->probs = SPECRT__CARVE(float, &at, k);
}

SPECRT_API specrt_status specrt_align_create(const specrt_head *head, int32_t n_logits,
                                             const specrt_align_params *params,
                                             const specrt_env *env, specrt_align **out,
                                             specrt_error *err) {
    static const specrt_align_params defaults = SPECRT_ALIGN_DEFAULTS;
    specrt_env own = specrt__base_env(env);
    specrt_align probe;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__CLEAR(&probe, 1);
    probe.env = own;
    probe.head = head;
    probe.params = params ? *params : defaults;
    probe.n_logits = n_logits;
    SPECRT__TRY(specrt__align_check(&probe.params, n_logits, err));
    uint64_t bytes = sizeof probe + specrt__align_size(&probe);
    uint8_t *block = (uint8_t *)specrt__base_alloc(&own, bytes);
    if (!block) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "align: out of memory");
    specrt_align *a = (specrt_align *)(void *)block;
    *a = probe;
    a->bytes = (size_t)bytes;
    a->compute = head->compute;
    a->compute.env.parallel_for = NULL;
    specrt__align_carve(a, block + sizeof *a);
    *out = a;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_align_close(specrt_align *align) {
    if (!align) return;
    specrt_env env = align->env;
    specrt__base_free(&env, align);
}

/* --- the two distributions over the retained support --- */

/* The k greatest finite logits of tokens that the head has rows for, best first, ties to the lower id.
 * @return how many; -1: a logit is NaN or +inf. */
static int32_t specrt__align_top(const specrt_align *a, const float *logits, int32_t *ids) {
    int32_t n = 0, k = a->params.n_top;
    for (int32_t i = 0; i < a->n_logits; i++) {
        float x = logits[i];
        if (n == k && x <= logits[ids[k - 1]]) continue;
        if (isnan(x) || x == INFINITY) return -1;
        if (x == -INFINITY || specrt__head_row_of(a->head, i) < 0) continue;
        int32_t at = n < k ? n++ : k - 1;
        for (; at > 0 && x > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return n;
}

/* Logits of the drafter for tokens [n] that the head has rows for. */
static void specrt__align_score(const specrt_align *a, const specrt__align_buffer *b,
                                const float *hidden, const int32_t *ids, int32_t n) {
    const specrt_head_desc *head = &a->head->desc;
    specrt_segment rows;
    specrt_shortlist few;
    for (int32_t i = 0; i < n; i++) b->places[i] = specrt__head_row_of(a->head, ids[i]);
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&few, 1);
    rows.rows = head->rows;
    rows.row_stride = head->row_stride;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.n_rows = n;
    rows.places = b->places;
    few.compute = &a->compute;
    few.segments = &rows;
    few.n_segments = 1;
    few.n_rows = n;
    few.n_cols = head->n_cols;
    few.head = a->head;
    specrt_shortlist_logits(&few, hidden, 1, b->logits);
}

/* log sum exp(x / t); NaN where an x is NaN. */
static double specrt__align_logsumexp(const float *x, int32_t n, double t) {
    double best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] <= best)) best = x[i];
    for (int32_t i = 0; i < n; i++) sum += exp((x[i] - best) / t);
    return best / t + log(sum);
}

/* KL(p || q), q the softmax of logits at t. */
static double specrt__align_divergence(const float *probs, const float *logits, int32_t n,
                                       double t) {
    double total = specrt__align_logsumexp(logits, n, t), sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (probs[i] > 0)
            sum += (double)probs[i] * (log((double)probs[i]) - (double)logits[i] / t + total);
    return sum;
}

/* The first step's cross-entropy against the token that was emitted: over the shortlist where a proposal's
 * log-probability tells its logsumexp, else over the retained tokens and that one. */
static double specrt__align_base_loss(const specrt_align *a, const specrt__align_buffer *b,
                                      const specrt_align_position *e, int32_t n) {
    if (specrt__head_row_of(a->head, e->token) < 0) return INFINITY;
    if (e->drafted >= 0 && specrt__head_row_of(a->head, e->drafted) >= 0) {
        const int32_t both[2] = {e->drafted, e->token};
        specrt__align_score(a, b, e->hidden, both, 1);
        double total = (double)b->logits[0] - (double)e->drafted_logprob;
        specrt__align_score(a, b, e->hidden, both + 1, 1);
        return total - (double)b->logits[0];
    }
    bool among = false;
    for (int32_t i = 0; i < n; i++) among = among || a->ids[i] == e->token;
    if (!among) a->ids[n] = e->token;
    specrt__align_score(a, b, e->hidden, a->ids, n + !among);
    double total = specrt__align_logsumexp(b->logits, n + !among, 1);
    for (int32_t i = 0; i < n; i++)
        if (a->ids[i] == e->token) return total - (double)b->logits[i];
    return total - (double)b->logits[n];
}

/* --- the gate and the buffer --- */

/* p over the retained tokens of a position, into a->ids and a->probs. @return how many; 0: none, or not
 * finite. */
static int32_t specrt__align_retain(const specrt_align *a, const float *logits) {
    double t = (double)a->params.temperature, sum = 0;
    int32_t n = specrt__align_top(a, logits, a->ids);
    for (int32_t i = 0; i < n; i++)
        sum += exp(((double)logits[a->ids[i]] - (double)logits[a->ids[0]]) / t);
    for (int32_t i = 0; i < n; i++)
        a->probs[i] =
            (float)(exp(((double)logits[a->ids[i]] - (double)logits[a->ids[0]]) / t) / sum);
    return n < 0 ? 0 : n;
}

static void specrt__align_keep(specrt_align *a, const specrt_align_position *e, int32_t n,
                               double base_loss) {
    specrt__align_buffer *b = &a->buffers[a->filling];
    size_t k = (size_t)specrt__align_width(a), at = (size_t)b->view.n;
    /* At j = 1 the weight is 1, whatever the loss: infinity times 0 is none. */
    double power = e->step > 1 ? (double)a->params.beta * base_loss * (e->step - 1) : 0;
    if (a->params.beta == 0) power = 0;
    b->contexts[at] = e->context;
    b->steps[at] = e->step;
    b->weights[at] = (float)exp(-(power > 0 ? power : 0));
    b->n_top[at] = n;
    memcpy(b->ids + at * k, a->ids, (size_t)n * sizeof *b->ids);
    memcpy(b->probs + at * k, a->probs, (size_t)n * sizeof *b->probs);
    b->view.n++;
    a->stats.n_kept++;
}

/* What the gate says of a covered position. @return 1 if it was kept. */
static int32_t specrt__align_look(specrt_align *a, const specrt_align_position *e,
                                  double *base_loss) {
    specrt__align_buffer *b = &a->buffers[a->filling];
    int32_t n = specrt__align_retain(a, e->logits);
    double divergence = NAN;
    if (n > 0) {
        specrt__align_score(a, b, e->hidden, a->ids, n);
        divergence =
            specrt__align_divergence(a->probs, b->logits, n, (double)a->params.temperature);
        if (e->step == 1) *base_loss = specrt__align_base_loss(a, b, e, n);
    }
    if (!(divergence < INFINITY)) {
        a->stats.n_invalid++;
        return 0;
    }
    a->stats.divergence += divergence;
    a->stats.n_rejected += e->rejected != 0;
    if (!e->rejected && !(divergence > (double)a->params.epsilon)) return 0;
    if (a->full) {
        a->stats.n_dropped++;
        return 0;
    }
    specrt__align_keep(a, e, n, *base_loss);
    return 1;
}

/* Whether all its tokens have logits, and a covered one what is compared. */
static bool specrt__align_valid(const specrt_align *a, const specrt_align_position *e) {
    return e->token >= 0 && e->token < a->n_logits && e->drafted < a->n_logits &&
           (!e->covered || (e->logits && e->hidden));
}

SPECRT_API int32_t specrt_align_observe(specrt_align *a, const specrt_align_position *positions,
                                        int32_t n) {
    double base_loss = 0;
    int32_t n_kept = 0;
    if (!a || (!positions && n > 0)) return -1;
    for (int32_t i = 0; i < n; i++)
        if (!specrt__align_valid(a, &positions[i]) ||
            positions[i].step <= (i ? positions[i - 1].step : 0))
            return -1;
    a->full = a->buffers[a->filling].view.n >= a->params.n_batch;
    for (int32_t i = 0; i < n && positions[i].step <= a->params.n_steps; i++) {
        a->stats.n_positions++;
        if (positions[i].covered)
            n_kept += specrt__align_look(a, &positions[i], &base_loss);
        else
            a->stats.n_missing++;
    }
    return n_kept;
}

SPECRT_API const specrt_align_batch *specrt_align_acquire(specrt_align *a) {
    if (!a) return NULL;
    specrt__align_buffer *full = &a->buffers[a->filling], *other = &a->buffers[1 - a->filling];
    if (full->view.n < a->params.n_batch || other->out) return NULL;
    full->out = true;
    a->filling = 1 - a->filling;
    a->stats.n_batches++;
    return &full->view;
}

static specrt__align_buffer *specrt__align_buffer_of(specrt_align *a,
                                                     const specrt_align_batch *batch) {
    return &a->buffers[batch == &a->buffers[1].view];
}

SPECRT_API void specrt_align_release(specrt_align *align, const specrt_align_batch *batch) {
    if (!align || !batch) return;
    specrt__align_buffer *b = specrt__align_buffer_of(align, batch);
    b->out = false;
    b->view.n = 0;
}

SPECRT_API void specrt_align_clear(specrt_align *align) {
    if (align) align->buffers[align->filling].view.n = 0;
}

SPECRT_API void specrt_align_get_stats(const specrt_align *align, specrt_align_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!align || !out) return;
    *out = align->stats;
    out->n_bytes = (int64_t)align->bytes;
}

/* --- the gradient --- */

/* dh = W[support]^T g with g_k = w T (q_k - p_k) of entry i, times how a logit follows its product.
 * @return its loss. */
static double specrt__align_entry(const specrt_align *a, const specrt__align_buffer *b, int32_t i,
                                  const float *hidden, float *dh) {
    const specrt_head_desc *head = &a->head->desc;
    int32_t n = b->n_top[i];
    size_t at = (size_t)i * (size_t)specrt__align_width(a);
    const int32_t *ids = b->ids + at;
    const float *probs = b->probs + at;
    double t = (double)a->params.temperature, w = (double)b->weights[i];
    specrt__align_score(a, b, hidden, ids, n);
    double total = specrt__align_logsumexp(b->logits, n, t);
    SPECRT__CLEAR(dh, head->n_cols);
    for (int32_t k = 0; k < n; k++) {
        double q = exp((double)b->logits[k] / t - total);
        float g = (float)(w * t * (q - (double)probs[k]) *
                          specrt__head_slope(head, (double)b->logits[k]));
        const uint8_t *row = (const uint8_t *)head->rows + (size_t)b->places[k] * head->row_stride;
        specrt_row_decode(head->dtype, row, head->n_cols, b->row);
        for (int64_t c = 0; c < head->n_cols; c++) dh[c] += g * b->row[c];
    }
    return w * t * t * specrt__align_divergence(probs, b->logits, n, t);
}

SPECRT_API specrt_status specrt_align_gradient(const specrt_align *align,
                                               const specrt_align_batch *batch, const float *hidden,
                                               float *dh, double *loss) {
    if (!align || !batch || !hidden || !dh) return SPECRT_STATUS_BAD_ARG;
    const specrt__align_buffer *b = &align->buffers[batch == &align->buffers[1].view];
    int64_t n_cols = align->head->desc.n_cols;
    double sum = 0;
    for (int32_t i = 0; i < batch->n; i++)
        sum += specrt__align_entry(align, b, i, hidden + i * n_cols, dh + i * n_cols);
    if (loss) *loss = sum;
    for (int64_t i = 0; i < batch->n * n_cols; i++)
        if (!isfinite(dh[i])) return SPECRT_STATUS_BAD_INPUT;
    return isfinite(sum) ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_INPUT;
}
