/* forward.c : the forward pass. Every function here treats the rows of a batch independently and sums
 * in an order that depends on nothing but the row, which makes results independent of batching. */
#include "specrt_tools.h"
#include "engine/infer/engine_impl.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic of one row ------------------------------------------------------------------- */

/* RMSNorm (Zhang & Sennrich 2019): out = x / rms(x) * weight. In place is fine. */
static void rms_norm(const float *x, const float *weight, int32_t n, float epsilon, float *out) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float scale = (float)(1.0 / sqrt(sum / n + epsilon));
    for (int32_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

/* Rotate one head [d]. GGUF's llama stores adjacent pairs, the others half rotation. */
static void rope_head(float *head, const float *cos_sin, int32_t d, bool adjacent) {
    for (int32_t i = 0; i < d / 2; i++) {
        float *a = adjacent ? &head[2 * i] : &head[i];
        float *b = adjacent ? &head[2 * i + 1] : &head[i + d / 2];
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x = *a, y = *b;
        *a = x * c - y * s;
        *b = x * s + y * c;
    }
}

void engine_product(const engine_model *m, const engine_matrix *w, const float *x, int32_t n,
                    float *out) {
    specrt_shortlist one = {
        specrt_head_compute(m->compute_owner), &w->segment, 1, w->segment.n_rows, w->n_cols, NULL};
    specrt_shortlist_logits(&one, x, n, out);
}

/* ---- the batch: depths, paths, positions ----------------------------------------------------- */

/* Number the batch after the nodes already open. @return false if that is not a forest that fits. */
static bool lay_out(engine_cache *c, const int32_t *parents, int32_t n) {
    int32_t first = c->n_open;
    if (first + n > ENGINE_MAX_OPEN) return false;
    for (int32_t node = first; node < first + n; node++) {
        int32_t parent = parents ? parents[node - first] : node - 1;
        if (parent < -1 || parent >= node) return false;
        int32_t depth = parent < 0 ? 0 : c->depth[parent] + 1;
        if (c->length + depth >= c->n_context) return false;
        if (depth) memcpy(c->path[node], c->path[parent], (size_t)depth);
        c->path[node][depth] = (uint8_t)node;
        c->depth[node] = depth;
    }
    c->n_open += n;
    c->n_batch = n;
    return true;
}

/* The open node of a row of the batch. */
static int32_t node_of(const engine_cache *c, int32_t row) {
    return c->n_open - c->n_batch + row;
}

static void prepare_rope(const engine_cache *c, const float *frequency, float *rope) {
    int32_t d = c->m->config.d_head;
    for (int32_t i = 0; i < c->n_batch; i++)
        for (int32_t j = 0; j < d / 2; j++) {
            double angle = (double)(c->length + c->depth[node_of(c, i)]) * (double)frequency[j];
            rope[(int64_t)i * d + 2 * j] = (float)cos(angle);
            rope[(int64_t)i * d + 2 * j + 1] = (float)sin(angle);
        }
}

/* ---- attention ------------------------------------------------------------------------------- */

static float *cache_row(const engine_cache *c, float *base, int32_t layer, int32_t kv_head,
                        int32_t slot) {
    const engine_config *k = &c->m->config;
    return base + (((int64_t)layer * k->n_kv_heads + kv_head) * c->n_slots + slot) * k->d_head;
}

/* Gemma 3's layers 0 to 4, 6 to 10, ... see a window only. */
static bool is_local(const engine_config *k, int32_t layer) {
    return k->window && (layer + 1) % k->window_period;
}

/* cos and sin of the row's position, by which a layer rotates. */
static const float *rope_of(const engine_cache *c, int32_t index, int32_t row) {
    const float *rope = is_local(&c->m->config, index) ? c->window_rope : c->rope;
    return rope + (int64_t)row * c->m->config.d_head;
}

/* Norm and rotate queries of the batch. */
static void turn_queries(engine_cache *c, const engine_layer *layer, int32_t index) {
    const engine_config *k = &c->m->config;
    for (int32_t i = 0; i < c->n_batch; i++)
        for (int32_t h = 0; h < k->n_heads; h++) {
            float *q = c->q + ((int64_t)i * k->n_heads + h) * k->d_head;
            if (layer->q_norm) rms_norm(q, layer->q_norm, k->d_head, k->rms_epsilon, q);
            rope_head(q, rope_of(c, index, i), k->d_head, c->m->rope_adjacent);
        }
}

/* Norm and rotate keys of the batch, and put keys and values into its slots. */
static void place_keys(engine_cache *c, const engine_layer *layer, int32_t index) {
    const engine_config *k = &c->m->config;
    for (int32_t i = 0; i < c->n_batch; i++) {
        int32_t slot = c->length + node_of(c, i);
        for (int32_t h = 0; h < k->n_kv_heads; h++) {
            float *key = c->k + ((int64_t)i * k->n_kv_heads + h) * k->d_head;
            const float *value = c->v + ((int64_t)i * k->n_kv_heads + h) * k->d_head;
            size_t bytes = sizeof(float) * (size_t)k->d_head;
            if (layer->k_norm) rms_norm(key, layer->k_norm, k->d_head, k->rms_epsilon, key);
            rope_head(key, rope_of(c, index, i), k->d_head, c->m->rope_adjacent);
            memcpy(cache_row(c, c->keys, index, h, slot), key, bytes);
            memcpy(cache_row(c, c->values, index, h, slot), value, bytes);
        }
    }
}

/* out += weights[j] * values[j], rows [n, d] in order, for one query or two that see the same keys: a
 * column's sum never depends on what goes together, so wider registers change no bit.
 *   weights : [n_queries] rows, `stride` apart; out : [n_queries, d] */
typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));
enum { LANES = 8 };

typedef struct mixture {
    const float *values, *weights;
    int64_t stride;
    int32_t n, d;
    float *out;
} mixture;

/* Columns four vectors at a time. @return where the others begin. */
static inline __attribute__((always_inline)) int32_t mix_wide(const mixture *m, bool two) {
    int32_t at = 0;
    for (; at + 4 * LANES <= m->d; at += 4 * LANES) {
        const float *values = m->values + at, *weights = m->weights;
        vector *x = (vector *)(m->out + at), *y = (vector *)(m->out + (two ? m->d : 0) + at);
        vector x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
        vector y0 = y[0], y1 = y[1], y2 = y[2], y3 = y[3];
        for (int32_t j = 0; j < m->n; j++, values += m->d) {
            const vector *row = (const vector *)values;
            float w = weights[j];
            x0 += w * row[0], x1 += w * row[1], x2 += w * row[2], x3 += w * row[3];
            if (!two) continue;
            w = weights[m->stride + j];
            y0 += w * row[0], y1 += w * row[1], y2 += w * row[2], y3 += w * row[3];
        }
        if (two) y[0] = y0, y[1] = y1, y[2] = y2, y[3] = y3;
        x[0] = x0, x[1] = x1, x[2] = x2, x[3] = x3;
    }
    return at;
}

/* The columns of one query from `at` on. */
static inline __attribute__((always_inline)) void mix_rest(const mixture *m, int32_t at,
                                                           const float *weights, float *out) {
    const float *values = m->values;
    for (int32_t j = 0; j < m->n; j++, values += m->d)
        for (int32_t i = at; i < m->d; i++) out[i] += weights[j] * values[i];
}

static inline __attribute__((always_inline)) void mix_queries(const mixture *m, int32_t n_queries) {
    int32_t at = n_queries == 2 ? mix_wide(m, true) : mix_wide(m, false);
    mix_rest(m, at, m->weights, m->out);
    if (n_queries == 2) mix_rest(m, at, m->weights + m->stride, m->out + m->d);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void mix_avx2(const mixture *m, int32_t n_queries) {
    mix_queries(m, n_queries);
}
#endif

static void mix(const mixture *m, int32_t n_queries) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        mix_avx2(m, n_queries);
        return;
    }
#endif
    mix_queries(m, n_queries);
}

/* Eight chains of comparisons, since one waits for itself. */
static float greatest(const float *x, int32_t n) {
    float best[8];
    int32_t i = 0;
    for (int32_t k = 0; k < 8; k++) best[k] = -INFINITY;
    for (; i + 8 <= n; i += 8)
        for (int32_t k = 0; k < 8; k++) best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
    for (; i < n; i++) best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int32_t k = 1; k < 8; k++) best[0] = best[k] > best[0] ? best[k] : best[0];
    return best[0];
}

/* The keys that a node sees: n committed ones, the last, and n_path open ones: its path or the block. */
typedef struct sight {
    int32_t n, n_path;
    const uint8_t *path;
} sight;

static sight sight_of(const engine_cache *c, int32_t layer, int32_t node) {
    const engine_config *k = &c->m->config;
    sight s = {c->length, c->both_ways ? c->n_open : c->depth[node] + 1, c->path[node]};
    int32_t unseen = is_local(k, layer) ? c->length + s.n_path - k->window : 0;
    if (unseen <= 0) return s;
    s.n = unseen < c->length ? c->length - unseen : 0;
    if (unseen <= c->length) return s;
    s.path += unseen - c->length;
    s.n_path -= unseen - c->length;
    return s;
}

/* Softmax of one query's scores over the keys it sees, the committed ones, then its path, in place and not
 * yet divided.
 *   scores : of the committed keys it sees, then of the open ones
 * @return their sum. */
static float weigh(const engine_cache *c, const sight *s, float *scores) {
    float *open = scores + s->n, scale = c->m->config.score_scale, sum = 0;
    float best = greatest(scores, s->n);
    for (int32_t i = 0; i < s->n_path; i++)
        best = open[s->path[i]] > best ? open[s->path[i]] : best;
    for (int32_t j = 0; j < s->n; j++) sum += scores[j] = expf(scale * (scores[j] - best));
    for (int32_t i = 0; i < s->n_path; i++)
        sum += open[s->path[i]] = expf(scale * (open[s->path[i]] - best));
    return sum;
}

/* The values that one or two heads of a node weigh, in order of position.
 *   values : [slots, d_head]; scores : [n_heads, stride], scratch; both from the first key that it sees
 *   out : [n_heads, d_head] */
static void mix_values(const engine_cache *c, const float *values, const sight *s, int32_t n_heads,
                       float *scores, int64_t stride, float *out) {
    int32_t d = c->m->config.d_head;
    mixture m = {values, scores, stride, s->n, d, out};
    float sums[2];
    for (int32_t h = 0; h < n_heads; h++) sums[h] = weigh(c, s, scores + h * stride);
    memset(out, 0, sizeof(float) * (size_t)n_heads * (size_t)d);
    mix(&m, n_heads);
    for (int32_t i = 0; i < s->n_path; i += m.n) { /* a chain's nodes lie side by side */
        int32_t slot = s->n + s->path[i];
        for (m.n = 1; i + m.n < s->n_path && s->path[i + m.n] == s->path[i] + m.n;) m.n++;
        m.values = values + (int64_t)slot * d;
        m.weights = scores + slot;
        mix(&m, n_heads);
    }
    for (int32_t h = 0; h < n_heads; h++)
        for (int32_t i = 0; i < d; i++) out[h * d + i] /= sums[h];
}

/* The queries that share a key head, of a few rows: one product with all keys, then each by itself.
 *   scratch : engine_attend_floats() of them */
static void attend(const engine_cache *c, int32_t layer, int32_t kv, int32_t first,
                   float *scratch) {
    const engine_config *k = &c->m->config;
    int32_t d = k->d_head, group = k->n_heads / k->n_kv_heads, n_committed = 0;
    int32_t left = c->n_batch - first, n = left < ENGINE_ATTEND_ROWS ? left : ENGINE_ATTEND_ROWS;
    sight seen[ENGINE_ATTEND_ROWS];
    for (int32_t i = 0; i < n; i++) {
        seen[i] = sight_of(c, layer, node_of(c, first + i));
        if (seen[i].n > n_committed) n_committed = seen[i].n;
    }
    int32_t from = c->length - n_committed, n_keys = n_committed + c->n_open;
    int64_t stride = (int64_t)k->n_heads * d, at = first * stride + (int64_t)kv * group * d;
    float *queries = scratch, *scores = scratch + (int64_t)ENGINE_ATTEND_ROWS * group * d;
    specrt_segment keys = {.rows = cache_row(c, c->keys, layer, kv, from),
                           .row_stride = (size_t)d * sizeof(float),
                           .dtype = SPECRT_DTYPE_F32,
                           .n_rows = n_keys};
    specrt_shortlist all = {specrt_head_compute(c->m->serial_owner), &keys, 1, n_keys, d, NULL};
    for (int32_t i = 0; i < n; i++)
        memcpy(queries + (int64_t)i * group * d, c->q + at + i * stride,
               sizeof(float) * (size_t)group * (size_t)d);
    specrt_shortlist_logits(&all, queries, n * group, scores);
    int32_t n_heads = group % 2 == 0 ? 2 : 1;
    for (int32_t i = 0; i < n * group; i += n_heads) {
        const sight *s = &seen[i / group];
        mix_values(c, cache_row(c, c->values, layer, kv, c->length - s->n), s, n_heads,
                   scores + (int64_t)i * n_keys + n_committed - s->n, n_keys,
                   c->attended + at + i / group * stride + (int64_t)(i % group) * d);
    }
}

size_t engine_attend_floats(const engine_model *m, int32_t n_slots) {
    size_t group = (size_t)(m->config.n_heads / m->config.n_kv_heads);
    return ENGINE_ATTEND_ROWS * group * ((size_t)m->config.d_head + (size_t)n_slots);
}

typedef struct attention {
    engine_cache *c;
    int32_t layer;
} attention;

/* Task t takes every n_attend-th block of rows and key head, with scratch of its own. */
static void attend_task(void *arg, int64_t task) {
    const attention *a = (const attention *)arg;
    engine_cache *c = a->c;
    int32_t n_kv = c->m->config.n_kv_heads;
    int32_t n_blocks = (c->n_batch + ENGINE_ATTEND_ROWS - 1) / ENGINE_ATTEND_ROWS;
    float *scratch = c->scores + (size_t)task * engine_attend_floats(c->m, c->n_slots);
    for (int32_t i = (int32_t)task; i < n_blocks * n_kv; i += c->n_attend)
        attend(c, a->layer, i % n_kv, i / n_kv * ENGINE_ATTEND_ROWS, scratch);
}

/* ---- layers ---------------------------------------------------------------------------------- */

void engine_norm(const float *x, const float *weight, int32_t n, int32_t width, float epsilon,
                 float *out) {
    for (int64_t i = 0; i < n; i++)
        rms_norm(x + i * width, weight, width, epsilon, out + i * width);
}

static void norm_rows(const engine_cache *c, const float *weight, float *out) {
    engine_norm(c->x, weight, c->n_batch, c->m->config.d_model, c->m->config.rms_epsilon, out);
}

/* c->x += delta, through a norm of its own where there is one. */
static void add_rows(engine_cache *c, const float *norm, float *delta) {
    const engine_config *k = &c->m->config;
    int64_t n = (int64_t)c->n_batch * k->d_model;
    if (norm) engine_norm(delta, norm, c->n_batch, k->d_model, k->rms_epsilon, delta);
    for (int64_t i = 0; i < n; i++) c->x[i] += delta[i];
}

/* Rows of attention's are free until it runs. */
static void add_lora(engine_cache *c, const engine_lora *l, const float *input, float *out) {
    if (!l) return;
    int64_t n = (int64_t)c->n_batch * l->b.segment.n_rows;
    engine_product(c->m, &l->a, input, c->n_batch, c->low);
    engine_product(c->m, &l->b, c->low, c->n_batch, c->attended);
    for (int64_t i = 0; i < n; i++) out[i] += l->scale * c->attended[i];
}

static void attention_block(engine_cache *c, int32_t index, const float *input) {
    const engine_model *m = c->m;
    const engine_layer *layer = &m->layers[index];
    if (!input) norm_rows(c, layer->attn_norm, c->normed), input = c->normed;
    engine_product(m, &layer->q, input, c->n_batch, c->q);
    engine_product(m, &layer->k, input, c->n_batch, c->k);
    engine_product(m, &layer->v, input, c->n_batch, c->v);
    add_lora(c, layer->q_lora, input, c->q);
    add_lora(c, layer->v_lora, input, c->v);
    turn_queries(c, layer, index);
    place_keys(c, layer, index);
    attention a = {c, index};
    sl_parallel_pool_for(m->pool, c->n_attend, attend_task, &a);
    engine_product(m, &layer->o, c->attended, c->n_batch, c->normed);
    add_rows(c, layer->attn_post_norm, c->normed);
}

/* gate *= up, after x sigmoid(x), or GELU's tanh form (Hendrycks & Gimpel 2016), .5 x (1 + tanh y), which is
 * x sigmoid(2 y). */
static void open_gate(float *gate, const float *up, int64_t n, bool gelu) {
    const float slope = 1.5957691f, bend = slope * 0.044715f; /* 2 sqrt(2 / pi) */
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i], y = gelu ? x * (slope + bend * x * x) : x;
        gate[i] = x / (1.0f + expf(-y)) * up[i];
    }
}

/* SwiGLU or GEGLU (Shazeer 2020): down(act(gate x) * up x). */
static void ffn_block(engine_cache *c, int32_t index) {
    const engine_model *m = c->m;
    const engine_layer *layer = &m->layers[index];
    norm_rows(c, layer->ffn_norm, c->normed);
    engine_product(m, &layer->gate, c->normed, c->n_batch, c->gate);
    engine_product(m, &layer->up, c->normed, c->n_batch, c->up);
    open_gate(c->gate, c->up, (int64_t)c->n_batch * m->config.d_ffn, m->config.gelu);
    engine_product(m, &layer->down, c->gate, c->n_batch, c->normed);
    add_rows(c, layer->ffn_post_norm, c->normed);
}

void engine_layer_inject(engine_cache *c, int32_t layer, const float *input) {
    const engine_layer *w = &c->m->layers[layer];
    engine_product(c->m, &w->k, input, c->n_batch, c->k);
    engine_product(c->m, &w->v, input, c->n_batch, c->v);
    place_keys(c, w, layer);
}

void engine_layer_forward(engine_cache *c, int32_t layer, const float *input) {
    attention_block(c, layer, input);
    ffn_block(c, layer);
}

bool engine_tokens_valid(const engine_model *m, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->config.n_vocab) return false;
    return true;
}

void engine_embed(const engine_model *m, const int32_t *tokens, int32_t n, float *out) {
    const specrt_segment *e = &m->embedding.segment;
    int32_t d = m->config.d_model;
    for (int32_t i = 0; i < n; i++, out += d) {
        specrt_row_decode(e->dtype, (const char *)e->rows + (size_t)tokens[i] * e->row_stride, d,
                          out);
        for (int32_t j = 0; j < d; j++) out[j] *= m->config.embedding_scale;
    }
}

/* What EAGLE-3 and block drafters read: row i of the tap is the residual before each tapped layer, side by
 * side. */
static void tap_layer(engine_cache *c, int32_t layer) {
    size_t d = (size_t)c->m->config.d_model, n_tap = (size_t)c->n_tap;
    for (size_t t = 0; t < n_tap; t++)
        for (size_t i = 0; c->tap_layers[t] == layer && i < (size_t)c->n_batch; i++)
            memcpy(c->tap + (i * n_tap + t) * d, c->x + i * d, d * sizeof(float));
}

specrt_status engine_begin(engine_cache *c, int32_t n, const int32_t *parents) {
    if (n < 1 || n > ENGINE_MAX_BATCH || !lay_out(c, parents, n)) return SPECRT_STATUS_BAD_ARG;
    c->both_ways = false;
    prepare_rope(c, c->m->rope_frequency, c->rope);
    if (c->m->window_frequency) prepare_rope(c, c->m->window_frequency, c->window_rope);
    return SPECRT_STATUS_OK;
}

specrt_status engine_begin_block(engine_cache *c, int32_t n) {
    engine_cache_truncate(c, c->length);
    specrt_status status = engine_begin(c, n, NULL);
    if (status != SPECRT_STATUS_OK) return status;
    for (int32_t i = 0; i < n; i++) memcpy(c->path[i], c->path[n - 1], (size_t)n);
    c->both_ways = true;
    return SPECRT_STATUS_OK;
}

specrt_status engine_forward(engine_cache *c, const int32_t *tokens, int32_t n,
                             const int32_t *parents, float *hidden, float *logits) {
    const engine_config *k = &c->m->config;
    if (!engine_tokens_valid(c->m, tokens, n)) return SPECRT_STATUS_BAD_ARG;
    specrt_status status = engine_begin(c, n, parents);
    if (status != SPECRT_STATUS_OK) return status;
    engine_embed(c->m, tokens, n, c->x);
    if (c->captured) memcpy(c->captured, c->x, sizeof(float) * (size_t)n * (size_t)k->d_model);
    for (int32_t layer = 0; layer < k->n_layers; layer++) {
        tap_layer(c, layer);
        engine_layer_forward(c, layer, NULL);
    }
    tap_layer(c, k->n_layers);
    norm_rows(c, c->m->output_norm, c->normed);
    if (hidden) memcpy(hidden, c->normed, sizeof(float) * (size_t)n * (size_t)k->d_model);
    if (logits) engine_score(c->m, c->normed, n, logits);
    return SPECRT_STATUS_OK;
}

void engine_score(const engine_model *m, const float *hidden, int32_t n, float *logits) {
    specrt_shortlist head = {specrt_head_compute(m->compute_owner),
                             &m->head.segment,
                             1,
                             m->head.segment.n_rows,
                             m->head.n_cols,
                             m->compute_owner};
    specrt_shortlist_logits(&head, hidden, n, logits);
}
