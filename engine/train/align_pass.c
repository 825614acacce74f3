/* align_pass.c : the layers of a drafter over kept rows, forward as in forward.c and backward from the hidden
 * states that the head multiplies. In the last layer only rows whose output is wanted go through attention
 * and FFN; the others are keys and values, to which gradients flow as well. Through the layers below, which
 * only an independent drafter has, every row goes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/train/align_impl.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static float *carve(void *block, size_t *at, int64_t n, int64_t width) {
    float *rows = block ? (float *)block + *at : NULL;
    *at += (size_t)n * (size_t)width;
    return rows;
}

static int64_t widest(const engine_align *a) {
    const engine_config *k = &a->m->config;
    int64_t width = k->d_ffn, q = (int64_t)k->n_heads * k->d_head;
    if (q > width) width = q;
    return 3 * (int64_t)k->d_model > width ? 3 * (int64_t)k->d_model : width;
}

/* Lay the arrays out over `block`; with NULL only count. @return floats needed. */
static size_t lay_arrays(const engine_align *a, align_rows *r, void *block) {
    const engine_config *k = &a->m->config;
    int64_t n = r->n_rows, m = r->n_queries, d = k->d_model, ffn = k->d_ffn;
    int64_t in = a->layer.q.n_cols, q = (int64_t)k->n_heads * k->d_head;
    int64_t kv = (int64_t)k->n_kv_heads * k->d_head;
    bool full = a->params.mode == ENGINE_ALIGN_FULL;
    int64_t rank = full ? 0 : a->params.rank, all = n > m ? n : m;
    int64_t streams = a->d->own || full ? a->n_layers : 0;
    bool below = full || streams > 1;
    size_t at = 0;
    r->stream = carve(block, &at, streams * n, d),
    r->dstream = carve(block, &at, streams ? n : 0, d);
    r->raw_q = carve(block, &at, a->layer.q_norm ? m : 0, q);
    r->raw_k = carve(block, &at, a->layer.k_norm ? n : 0, kv);
    r->x = carve(block, &at, n, in);
    r->k = carve(block, &at, n, kv), r->v = carve(block, &at, n, kv);
    r->dk = carve(block, &at, n, kv), r->dv = carve(block, &at, n, kv);
    r->low_v = carve(block, &at, n, rank), r->dlow = carve(block, &at, all, rank);
    r->dx = carve(block, &at, below ? n : 0, in);
    r->xq = carve(block, &at, m, in), r->dxq = carve(block, &at, below ? m : 0, in);
    r->q = carve(block, &at, m, q), r->dq = carve(block, &at, m, q);
    r->low_q = carve(block, &at, m, rank);
    r->weights = carve(block, &at, k->n_kv_heads, r->n_keys);
    r->mixed = carve(block, &at, m, q), r->dmixed = carve(block, &at, m, q);
    r->h1 = carve(block, &at, m, d), r->h2 = carve(block, &at, m, d);
    r->out = carve(block, &at, m, d), r->dh = carve(block, &at, m, d);
    r->normed = carve(block, &at, m, d), r->dnormed = carve(block, &at, m, d);
    r->gate = carve(block, &at, m, ffn), r->up = carve(block, &at, m, ffn);
    r->act = carve(block, &at, m, ffn), r->dact = carve(block, &at, m, ffn);
    r->dgate = carve(block, &at, m, ffn), r->dup = carve(block, &at, m, ffn);
    r->moved = carve(block, &at, all, widest(a));
    return at;
}

/* @return the most keys that one of these sees, or `most`. */
static int32_t most_seen(const engine_align_query *queries, int32_t n, int32_t most) {
    for (int32_t i = 0; i < n; i++) {
        int32_t seen = queries[i].n + queries[i].n_path;
        if (seen > most) most = seen;
    }
    return most;
}

static specrt_status reserve(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows, grown = *r;
    int32_t n_keys = most_seen(rows->queries, rows->n_queries, 1), n_queries = rows->n_queries;
    if (rows->all) {
        n_keys = most_seen(rows->all, rows->n, n_keys);
        if (rows->n > n_queries) n_queries = rows->n;
    }
    if (rows->n <= r->n_rows && n_queries <= r->n_queries && n_keys <= r->n_keys)
        return SPECRT_STATUS_OK;
    if (rows->n > grown.n_rows) grown.n_rows = rows->n + rows->n / 4;
    if (n_queries > grown.n_queries) grown.n_queries = n_queries + (rows->all ? n_queries / 4 : 0);
    if (n_keys > grown.n_keys) grown.n_keys = n_keys + n_keys / 4;
    grown.bytes = lay_arrays(a, &grown, NULL) * sizeof(float);
    grown.block = malloc(grown.bytes);
    if (!grown.block) return SPECRT_STATUS_NO_MEMORY;
    lay_arrays(a, &grown, grown.block);
    free(r->block);
    *r = grown;
    return SPECRT_STATUS_OK;
}

/* ---- one row --------------------------------------------------------------------------------- */

/* Rotates heads [n] of a row to a position, or back (backward). */
static void rotate(const engine_model *m, float *row, int32_t n, int32_t position, bool back) {
    int32_t d = m->config.d_head;
    for (int32_t i = 0; i < d / 2; i++) {
        double angle = (double)position * (double)m->rope_frequency[i];
        float c = (float)cos(angle), s = (float)sin(angle);
        if (back) s = -s;
        for (int32_t h = 0; h < n; h++) {
            float *head = row + (int64_t)h * d;
            float *x = m->rope_adjacent ? &head[2 * i] : &head[i];
            float *y = m->rope_adjacent ? &head[2 * i + 1] : &head[i + d / 2];
            float was = *x;
            *x = was * c - *y * s;
            *y = was * s + *y * c;
        }
    }
}

/* dx += of RMSNorm: y = x s w, s = 1 / rms(x). dx, dw: NULL, or added to. */
static void norm_back(const float *x, const float *weight, const float *dy, int32_t n,
                      float epsilon, float *dx, float *dw) {
    double sum = 0, along = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    double s = 1.0 / sqrt(sum / n + (double)epsilon);
    for (int32_t i = 0; i < n; i++) along += (double)dy[i] * weight[i] * x[i];
    along *= s * s * s / n;
    for (int32_t i = 0; dx && i < n; i++)
        dx[i] += (float)((double)dy[i] * weight[i] * s - along * x[i]);
    for (int32_t i = 0; dw && i < n; i++) dw[i] += (float)((double)dy[i] * x[i] * s);
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention {
    engine_align *a;
    const engine_align_rows *rows;
} attention;

static int32_t key_row(const engine_align_query *q, int32_t i) {
    return i < q->n ? q->first + i : q->path + i - q->n;
}

/* Softmax of a query's scores, head h of query m. @return it, in the key head's scratch. */
static float *weigh(engine_align *a, const engine_align_query *query, int64_t m, int32_t h,
                    int64_t kv) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int32_t d = k->d_head, n = query->n + query->n_path;
    int64_t kv_row = (int64_t)k->n_kv_heads * d;
    const float *q = r->q + (m * k->n_heads + h) * d;
    float *w = r->weights + kv * r->n_keys, best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) {
        w[i] = k->score_scale * align_dot(q, r->k + key_row(query, i) * kv_row + kv * d, d);
        if (w[i] > best) best = w[i];
    }
    for (int32_t i = 0; i < n; i++) sum += w[i] = expf(w[i] - best);
    for (int32_t i = 0; i < n; i++) w[i] /= sum;
    return w;
}

/* One key head and the queries that share it. */
static void attend_task(void *arg, int64_t kv) {
    const attention *at = (const attention *)arg;
    align_rows *r = &at->a->rows;
    const engine_config *k = &at->a->m->config;
    int32_t d = k->d_head, group = k->n_heads / k->n_kv_heads;
    int64_t q_row = (int64_t)k->n_heads * d, kv_row = (int64_t)k->n_kv_heads * d;
    for (int32_t m = 0; m < at->rows->n_queries; m++) {
        const engine_align_query *query = &at->rows->queries[m];
        int32_t n = query->n + query->n_path;
        for (int32_t h = (int32_t)kv * group; h < ((int32_t)kv + 1) * group; h++) {
            const float *w = weigh(at->a, query, m, h, kv);
            float *out = r->mixed + m * q_row + (int64_t)h * d;
            memset(out, 0, (size_t)d * sizeof *out);
            for (int32_t i = 0; i < n; i++)
                align_add(w[i], r->v + key_row(query, i) * kv_row + kv * d, d, out);
        }
    }
}

/* dv += w dout; dscore = w (dw - sum w dw); dq, dk from the scores. */
static void attend_back_head(engine_align *a, const engine_align_query *query, int64_t m, int32_t h,
                             int64_t kv) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int32_t d = k->d_head, n = query->n + query->n_path;
    int64_t at = m * k->n_heads * d + (int64_t)h * d, kv_row = (int64_t)k->n_kv_heads * d;
    const float *w = weigh(a, query, m, h, kv);
    const float *dout = r->dmixed + at;
    /* sum w dw = dout . out */
    float along = align_dot(dout, r->mixed + at, d);
    for (int32_t i = 0; i < n; i++) {
        int64_t row = key_row(query, i) * kv_row + kv * d;
        float dw = align_dot(dout, r->v + row, d);
        align_add(w[i], dout, d, r->dv + row);
        float dscore = w[i] * (dw - along) * k->score_scale;
        align_add(dscore, r->k + row, d, r->dq + at);
        align_add(dscore, r->q + at, d, r->dk + row);
    }
}

static void attend_back_task(void *arg, int64_t kv) {
    const attention *at = (const attention *)arg;
    const engine_config *k = &at->a->m->config;
    int32_t group = k->n_heads / k->n_kv_heads;
    for (int32_t m = 0; m < at->rows->n_queries; m++)
        for (int32_t h = (int32_t)kv * group; h < ((int32_t)kv + 1) * group; h++)
            attend_back_head(at->a, &at->rows->queries[m], m, h, kv);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y += scale b (a x), and a x for the way back. */
static void add_lora(engine_align *a, int block, const float *x, int32_t n, float *low, float *y) {
    align_rows *r = &a->rows;
    block = align_lora_block(a, block);
    const align_block *down = &a->blocks[block], *up = &a->blocks[block + 1];
    engine_matrix wa = align_matrix(align_part(a, a->values, block), down->n_rows, down->n_cols);
    engine_matrix wb = align_matrix(align_part(a, a->values, block + 1), up->n_rows, up->n_cols);
    align_product(a, &wa, x, n, low);
    align_product(a, &wb, low, n, r->moved);
    align_add(a->scale, r->moved, n * up->n_rows, y);
}

/* What the layer at hand reads, of an independent drafter. */
static float *stream_of(const engine_align *a) {
    return a->rows.stream + (int64_t)a->at * a->rows.n_rows * a->m->config.d_model;
}

/* What fc reads, [n, n_cols]. EAGLE-3's stands behind the embedding. */
static const float *features_of(const engine_align *a, const engine_align_rows *rows) {
    int64_t n_cols = a->fc.n_cols, width = engine_align_width(a);
    if (!a->d->eagle3) return rows->inputs;
    for (int64_t i = 0; i < rows->n; i++)
        memcpy(a->rows.moved + i * n_cols, rows->inputs + (i + 1) * width - n_cols,
               (size_t)n_cols * sizeof(float));
    return a->rows.moved;
}

/* Fused with the masters: EAGLE-1/2 reads what fc gives, EAGLE-3 the norms of the embedding and of that. */
static void fuse(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int64_t d = k->d_model, width = engine_align_width(a);
    align_product(a, &a->fc, features_of(a, rows), rows->n, r->stream);
    if (!a->d->eagle3) memcpy(r->x, r->stream, (size_t)(rows->n * d) * sizeof(float));
    for (int64_t i = 0; a->d->eagle3 && i < rows->n; i++) {
        float *x = r->x + i * 2 * d;
        engine_norm(rows->inputs + i * width, a->norms[0], 1, k->d_model, k->rms_epsilon, x);
        engine_norm(r->stream + i * d, a->norms[1], 1, k->d_model, k->rms_epsilon, x + d);
    }
}

/* What queries, keys and values are made of: kept as it was, fused anew, or what the layer below gave. */
static void make_inputs(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int32_t in = a->layer.q.n_cols, width = engine_align_width(a);
    bool full = a->params.mode == ENGINE_ALIGN_FULL, kept = !full && !a->d->own;
    if (full) fuse(a, rows);
    if (a->d->own)
        engine_norm(stream_of(a), a->layer.attn_norm, rows->n, k->d_model, k->rms_epsilon, r->x);
    for (int64_t i = 0; kept && i < rows->n; i++)
        memcpy(r->x + i * in, rows->inputs + i * width, (size_t)in * sizeof(float));
    for (int64_t i = 0; i < rows->n_queries; i++)
        memcpy(r->xq + i * in, r->x + (int64_t)rows->queries[i].row * in,
               (size_t)in * sizeof(float));
}

/* Norms of heads, as Qwen3 has them: rows [n, n_heads * d_head] in place, and what they were in `raw`. */
static void norm_heads(const engine_align *a, const float *weight, float *rows, int32_t n,
                       int32_t n_heads, float *raw) {
    const engine_config *k = &a->m->config;
    if (!weight) return;
    memcpy(raw, rows, sizeof(float) * (size_t)n * (size_t)n_heads * (size_t)k->d_head);
    engine_norm(raw, weight, n * n_heads, k->d_head, k->rms_epsilon, rows);
}

static void make_attention(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    bool lora = a->params.mode == ENGINE_ALIGN_LORA;
    int32_t kv = k->n_kv_heads * k->d_head, q = k->n_heads * k->d_head;
    align_product(a, &a->layer.k, r->x, rows->n, r->k);
    align_product(a, &a->layer.v, r->x, rows->n, r->v);
    align_product(a, &a->layer.q, r->xq, rows->n_queries, r->q);
    if (lora) add_lora(a, ALIGN_V_A, r->x, rows->n, r->low_v, r->v);
    if (lora) add_lora(a, ALIGN_Q_A, r->xq, rows->n_queries, r->low_q, r->q);
    norm_heads(a, a->layer.q_norm, r->q, rows->n_queries, k->n_heads, r->raw_q);
    norm_heads(a, a->layer.k_norm, r->k, rows->n, k->n_kv_heads, r->raw_k);
    for (int64_t i = 0; i < rows->n; i++)
        rotate(a->m, r->k + i * kv, k->n_kv_heads, rows->positions[i], false);
    for (int64_t i = 0; i < rows->n_queries; i++)
        rotate(a->m, r->q + i * q, k->n_heads, rows->positions[rows->queries[i].row], false);
    attention at = {a, rows};
    sl_parallel_pool_for(a->pool, k->n_kv_heads, attend_task, &at);
}

/* The residual of a query: the layer's input before its norm, or what EAGLE-3 keeps beside it. */
static const float *residual(const engine_align *a, const engine_align_rows *rows, int64_t i) {
    int64_t width = engine_align_width(a), d = a->m->config.d_model;
    if (a->d->own || engine_align_pairs(a)) return stream_of(a) + rows->queries[i].row * d;
    if (!a->d->eagle3) return a->rows.xq + i * d;
    return rows->inputs + rows->queries[i].row * width + width - d;
}

static void make_output(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int32_t m = rows->n_queries, d = k->d_model;
    int64_t n_ffn = (int64_t)m * k->d_ffn, n = (int64_t)m * d;
    align_product(a, &a->layer.o, r->mixed, m, r->h1);
    for (int64_t i = 0; i < m; i++) align_add(1, residual(a, rows, i), d, r->h1 + i * d);
    engine_norm(r->h1, a->layer.ffn_norm, m, d, k->rms_epsilon, r->normed);
    align_product(a, &a->layer.gate, r->normed, m, r->gate);
    align_product(a, &a->layer.up, r->normed, m, r->up);
    for (int64_t i = 0; i < n_ffn; i++) r->act[i] = r->gate[i] * sigmoid(r->gate[i]) * r->up[i];
    align_product(a, &a->layer.down, r->act, m, r->h2);
    for (int64_t i = 0; i < n; i++) r->h2[i] += r->h1[i];
}

/* A layer to go through. @return its rows: below the last layer each is a query. */
static engine_align_rows enter_layer(engine_align *a, int32_t layer,
                                     const engine_align_rows *rows) {
    engine_align_rows of = *rows;
    a->at = layer;
    if (a->d->own) a->layer = a->m->layers[layer];
    if (layer + 1 < a->n_layers) of.queries = rows->all, of.n_queries = rows->n;
    return of;
}

static void go_through(engine_align *a, const engine_align_rows *rows) {
    make_inputs(a, rows);
    make_attention(a, rows);
    make_output(a, rows);
}

/* The norm before the head; NULL: none. */
static const float *final_norm(const engine_align *a) {
    return a->d->own ? a->m->output_norm : a->norms[2];
}

specrt_status engine_align_forward(engine_align *a, const engine_align_rows *rows,
                                   const float **hidden) {
    specrt_status status = reserve(a, rows);
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    size_t row = sizeof(float) * (size_t)k->d_model, n = (size_t)rows->n;
    if (status != SPECRT_STATUS_OK) return status;
    if (a->d->own) memcpy(r->stream, rows->inputs, n * row);
    for (int32_t layer = 0; layer < a->n_layers; layer++) {
        engine_align_rows of = enter_layer(a, layer, rows);
        if (layer > 0) memcpy(stream_of(a), r->h2, n * row);
        go_through(a, &of);
    }
    if (final_norm(a))
        engine_norm(r->h2, final_norm(a), rows->n_queries, k->d_model, k->rms_epsilon, r->out);
    else
        memcpy(r->out, r->h2, (size_t)rows->n_queries * row);
    *hidden = r->out;
    return SPECRT_STATUS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient of a trained matrix; with LoRA these are frozen. */
static void add_outer(engine_align *a, int block, const float *dy, const float *x, int32_t n) {
    const align_block *b = &a->blocks[block];
    if (a->params.mode != ENGINE_ALIGN_FULL) return;
    align_outer(a, dy, b->n_rows, x, b->n_cols, n, 1, align_part(a, a->gradients, block));
}

static void ffn_back(engine_align *a, int32_t m) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int64_t n_ffn = (int64_t)m * k->d_ffn, d = k->d_model;
    bool full = a->params.mode == ENGINE_ALIGN_FULL;
    memset(r->dact, 0, (size_t)n_ffn * sizeof(float));
    align_product_back(a, &a->layer.down, r->dh, m, r->dact);
    add_outer(a, ALIGN_DOWN, r->dh, r->act, m);
    for (int64_t i = 0; i < n_ffn; i++) {
        float s = sigmoid(r->gate[i]), g = r->gate[i];
        r->dup[i] = r->dact[i] * g * s;
        r->dgate[i] = r->dact[i] * r->up[i] * s * (1 + g * (1 - s));
    }
    memset(r->dnormed, 0, (size_t)(m * d) * sizeof(float));
    align_product_back(a, &a->layer.gate, r->dgate, m, r->dnormed);
    align_product_back(a, &a->layer.up, r->dup, m, r->dnormed);
    add_outer(a, ALIGN_GATE, r->dgate, r->normed, m);
    add_outer(a, ALIGN_UP, r->dup, r->normed, m);
    for (int64_t i = 0; i < m; i++)
        norm_back(r->h1 + i * d, a->layer.ffn_norm, r->dnormed + i * d, k->d_model, k->rms_epsilon,
                  r->dh + i * d, full ? align_part(a, a->gradients, ALIGN_NORM) : NULL);
}

/* Rows [n, n_heads * d_head] of gradients, in place, to before norm_heads(). */
static void norm_heads_back(const engine_align *a, const float *weight, const float *raw, int32_t n,
                            int32_t n_heads, float *dy) {
    const engine_config *k = &a->m->config;
    size_t bytes = sizeof(float) * (size_t)k->d_head;
    for (int64_t at = 0; weight && at < (int64_t)n * n_heads * k->d_head; at += k->d_head) {
        memcpy(a->rows.moved, dy + at, bytes);
        memset(dy + at, 0, bytes);
        norm_back(raw + at, weight, a->rows.moved, k->d_head, k->rms_epsilon, dy + at, NULL);
    }
}

static void attention_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int32_t q = k->n_heads * k->d_head, kv = k->n_kv_heads * k->d_head, m = rows->n_queries;
    memset(r->dmixed, 0, (size_t)m * (size_t)q * sizeof(float));
    memset(r->dq, 0, (size_t)m * (size_t)q * sizeof(float));
    memset(r->dk, 0, (size_t)rows->n * (size_t)kv * sizeof(float));
    memset(r->dv, 0, (size_t)rows->n * (size_t)kv * sizeof(float));
    align_product_back(a, &a->layer.o, r->dh, m, r->dmixed);
    add_outer(a, ALIGN_O, r->dh, r->mixed, m);
    attention at = {a, rows};
    sl_parallel_pool_for(a->pool, k->n_kv_heads, attend_back_task, &at);
    for (int64_t i = 0; i < m; i++)
        rotate(a->m, r->dq + i * q, k->n_heads, rows->positions[rows->queries[i].row], true);
    for (int64_t i = 0; i < rows->n; i++)
        rotate(a->m, r->dk + i * kv, k->n_kv_heads, rows->positions[i], true);
    norm_heads_back(a, a->layer.q_norm, r->raw_q, m, k->n_heads, r->dq);
    norm_heads_back(a, a->layer.k_norm, r->raw_k, rows->n, k->n_kv_heads, r->dk);
}

/* db += scale dy (a x)^T; da += scale (b^T dy) x^T; dx, unless NULL: += scale a^T (b^T dy). */
static void lora_back(engine_align *a, int block, const float *dy, const float *low, const float *x,
                      int32_t n, float *dx) {
    align_rows *r = &a->rows;
    block = align_lora_block(a, block);
    const align_block *down = &a->blocks[block], *up = &a->blocks[block + 1];
    engine_matrix wb = align_matrix(align_part(a, a->values, block + 1), up->n_rows, up->n_cols);
    align_outer(a, dy, up->n_rows, low, up->n_cols, n, a->scale,
                align_part(a, a->gradients, block + 1));
    memset(r->dlow, 0, (size_t)n * (size_t)down->n_rows * sizeof(float));
    align_product_back(a, &wb, dy, n, r->dlow);
    for (int64_t i = 0; i < (int64_t)n * down->n_rows; i++) r->dlow[i] *= a->scale;
    align_outer(a, r->dlow, down->n_rows, x, down->n_cols, n, 1,
                align_part(a, a->gradients, block));
    engine_matrix wa = align_matrix(align_part(a, a->values, block), down->n_rows, down->n_cols);
    if (dx) align_product_back(a, &wa, r->dlow, n, dx);
}

/* dx += of queries, keys and values; dxq, of the queries' own rows, joins them. */
static void products_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    int32_t m = rows->n_queries, in = a->layer.q.n_cols;
    align_product_back(a, &a->layer.q, r->dq, m, r->dxq);
    align_product_back(a, &a->layer.k, r->dk, rows->n, r->dx);
    align_product_back(a, &a->layer.v, r->dv, rows->n, r->dx);
    for (int64_t i = 0; i < m; i++)
        align_add(1, r->dxq + i * in, in, r->dx + (int64_t)rows->queries[i].row * in);
}

/* The residual's part of what the layer reads. */
static void residual_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    int32_t d = a->m->config.d_model;
    memset(r->dstream, 0, (size_t)rows->n * (size_t)d * sizeof(float));
    for (int64_t i = 0; i < rows->n_queries; i++)
        align_add(1, r->dh + i * d, d, r->dstream + (int64_t)rows->queries[i].row * d);
}

/* To what the layer reads: through its norm, and along the residual. */
static void stream_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int64_t d = k->d_model;
    products_back(a, rows);
    residual_back(a, rows);
    for (int64_t i = 0; i < rows->n; i++)
        norm_back(stream_of(a) + i * d, a->layer.attn_norm, r->dx + i * d, k->d_model,
                  k->rms_epsilon, r->dstream + i * d, NULL);
}

/* To what fc gives: EAGLE-1/2's layer reads it as it is, EAGLE-3's through a norm, beside the embedding. */
static void fused_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int64_t d = k->d_model, width = engine_align_width(a);
    if (!a->d->eagle3) align_add(1, r->dx, (int32_t)(rows->n * d), r->dstream);
    for (int64_t i = 0; a->d->eagle3 && i < rows->n; i++) {
        const float *dx = r->dx + i * 2 * d;
        norm_back(rows->inputs + i * width, a->norms[0], dx, k->d_model, k->rms_epsilon, NULL,
                  align_part(a, a->gradients, ALIGN_NORMS));
        norm_back(r->stream + i * d, a->norms[1], dx + d, k->d_model, k->rms_epsilon,
                  r->dstream + i * d, align_part(a, a->gradients, ALIGN_NORMS + 1));
    }
}

/* To the matrices of queries, keys and values, and through the residual to what fuses the inputs. */
static void inputs_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    int32_t m = rows->n_queries, d = a->m->config.d_model;
    float *bias = a->fc.segment.bias ? align_part(a, a->gradients, ALIGN_BIAS) : NULL;
    size_t in = (size_t)a->layer.q.n_cols * sizeof(float);
    add_outer(a, ALIGN_Q, r->dq, r->xq, m);
    add_outer(a, ALIGN_K, r->dk, r->x, rows->n);
    add_outer(a, ALIGN_V, r->dv, r->x, rows->n);
    memset(r->dxq, 0, (size_t)m * in);
    memset(r->dx, 0, (size_t)rows->n * in);
    products_back(a, rows);
    residual_back(a, rows);
    fused_back(a, rows);
    add_outer(a, ALIGN_FC, r->dstream, features_of(a, rows), rows->n);
    for (int64_t i = 0; bias && i < rows->n; i++) align_add(1, r->dstream + i * d, d, bias);
}

/* Through the norm before the head. */
static void output_back(engine_align *a, int32_t n_queries, const float *dh) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->m->config;
    int64_t d = k->d_model, n = n_queries * d;
    bool full = a->params.mode == ENGINE_ALIGN_FULL;
    if (!final_norm(a)) {
        memcpy(r->dh, dh, (size_t)n * sizeof(float));
        return;
    }
    memset(r->dh, 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n_queries; i++)
        norm_back(r->h2 + i * d, final_norm(a), dh + i * d, k->d_model, k->rms_epsilon,
                  r->dh + i * d, full ? align_part(a, a->gradients, ALIGN_NORMS + 2) : NULL);
}

/* From r->dh, of what the layer gives, to what is trained of it, and to r->dstream below it. */
static void layer_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    size_t n = (size_t)rows->n, m = (size_t)rows->n_queries, in = (size_t)a->layer.q.n_cols;
    bool below = a->at > 0;
    ffn_back(a, rows->n_queries);
    attention_back(a, rows);
    if (a->params.mode == ENGINE_ALIGN_FULL) {
        inputs_back(a, rows);
        return;
    }
    if (below) memset(r->dxq, 0, m * in * sizeof(float));
    if (below) memset(r->dx, 0, n * in * sizeof(float));
    lora_back(a, ALIGN_Q_A, r->dq, r->low_q, r->xq, rows->n_queries, below ? r->dxq : NULL);
    lora_back(a, ALIGN_V_A, r->dv, r->low_v, r->x, rows->n, below ? r->dx : NULL);
    if (below) stream_back(a, rows);
}

/* A pass leaves the last layer's rows behind; those of the others are computed again. */
void engine_align_backward(engine_align *a, const engine_align_rows *rows, const float *dh) {
    align_rows *r = &a->rows;
    size_t row = sizeof(float) * (size_t)a->m->config.d_model;
    for (int32_t layer = a->n_layers - 1; layer >= 0; layer--) {
        bool is_here = a->at == layer;
        engine_align_rows of = enter_layer(a, layer, rows);
        if (!is_here) go_through(a, &of);
        if (layer + 1 == a->n_layers)
            output_back(a, rows->n_queries, dh);
        else
            memcpy(r->dh, r->dstream, (size_t)rows->n * row);
        layer_back(a, &of);
    }
}
