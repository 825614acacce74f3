/* align_pass.c : the layer of an EAGLE head over kept rows, forward as in forward.c and backward from the
 * hidden states that the head multiplies. Only rows whose output is wanted go through attention and FFN; the
 * others are keys and values, to which gradients flow as well. */
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
    const engine_config *k = &a->d->body.config;
    int64_t width = k->d_ffn, q = (int64_t)k->n_heads * k->d_head;
    if (q > width) width = q;
    return 3 * (int64_t)k->d_model > width ? 3 * (int64_t)k->d_model : width;
}

/* Lay the arrays out over `block`; with NULL only count. @return floats needed. */
static size_t lay_arrays(const engine_align *a, align_rows *r, void *block) {
    const engine_config *k = &a->d->body.config;
    int64_t n = r->n_rows, m = r->n_queries, d = k->d_model, ffn = k->d_ffn;
    int64_t in = a->layer.q.n_cols, q = (int64_t)k->n_heads * k->d_head;
    int64_t kv = (int64_t)k->n_kv_heads * k->d_head;
    bool full = a->params.mode == ENGINE_ALIGN_FULL;
    int64_t rank = full ? 0 : a->params.rank, all = n > m ? n : m;
    size_t at = 0;
    r->x = carve(block, &at, n, in);
    r->k = carve(block, &at, n, kv), r->v = carve(block, &at, n, kv);
    r->dk = carve(block, &at, n, kv), r->dv = carve(block, &at, n, kv);
    r->low_v = carve(block, &at, n, rank), r->dlow = carve(block, &at, all, rank);
    r->dx = carve(block, &at, full ? n : 0, in);
    r->xq = carve(block, &at, m, in), r->dxq = carve(block, &at, full ? m : 0, in);
    r->q = carve(block, &at, m, q), r->dq = carve(block, &at, m, q);
    r->low_q = carve(block, &at, m, rank);
    r->weights = carve(block, &at, m * k->n_heads, r->n_keys);
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

static specrt_status reserve(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows, grown = *r;
    int32_t n_keys = 1;
    for (int32_t i = 0; i < rows->n_queries; i++) {
        int32_t seen = rows->queries[i].n + rows->queries[i].n_path;
        if (seen > n_keys) n_keys = seen;
    }
    if (rows->n <= r->n_rows && rows->n_queries <= r->n_queries && n_keys <= r->n_keys)
        return SPECRT_STATUS_OK;
    if (rows->n > grown.n_rows) grown.n_rows = rows->n + rows->n / 4;
    if (rows->n_queries > grown.n_queries) grown.n_queries = rows->n_queries;
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

/* dx += of RMSNorm: y = x s w, s = 1 / rms(x). dw: NULL, or added to. */
static void norm_back(const float *x, const float *weight, const float *dy, int32_t n,
                      float epsilon, float *dx, float *dw) {
    double sum = 0, along = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    double s = 1.0 / sqrt(sum / n + (double)epsilon);
    for (int32_t i = 0; i < n; i++) along += (double)dy[i] * weight[i] * x[i];
    along *= s * s * s / n;
    for (int32_t i = 0; i < n; i++) dx[i] += (float)((double)dy[i] * weight[i] * s - along * x[i]);
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

/* One key head and the queries that share it. */
static void attend_task(void *arg, int64_t kv) {
    const attention *at = (const attention *)arg;
    align_rows *r = &at->a->rows;
    const engine_config *k = &at->a->d->body.config;
    int32_t d = k->d_head, group = k->n_heads / k->n_kv_heads;
    int64_t q_row = (int64_t)k->n_heads * d, kv_row = (int64_t)k->n_kv_heads * d;
    for (int32_t m = 0; m < at->rows->n_queries; m++) {
        const engine_align_query *query = &at->rows->queries[m];
        int32_t n = query->n + query->n_path;
        for (int32_t h = (int32_t)kv * group; h < ((int32_t)kv + 1) * group; h++) {
            float *w = r->weights + ((int64_t)m * k->n_heads + h) * r->n_keys;
            float *out = r->mixed + m * q_row + (int64_t)h * d, best = -INFINITY, sum = 0;
            for (int32_t i = 0; i < n; i++) {
                w[i] = k->score_scale * align_dot(r->q + m * q_row + (int64_t)h * d,
                                                  r->k + key_row(query, i) * kv_row + kv * d, d);
                if (w[i] > best) best = w[i];
            }
            for (int32_t i = 0; i < n; i++) sum += w[i] = expf(w[i] - best);
            memset(out, 0, (size_t)d * sizeof *out);
            for (int32_t i = 0; i < n; i++)
                align_add(w[i] /= sum, r->v + key_row(query, i) * kv_row + kv * d, d, out);
        }
    }
}

/* dv += w dout; dscore = w (dw - sum w dw); dq, dk from the scores. */
static void attend_back_head(engine_align *a, const engine_align_query *query, int64_t m, int32_t h,
                             int64_t kv) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->d->body.config;
    int32_t d = k->d_head, n = query->n + query->n_path;
    int64_t at = m * k->n_heads * d + (int64_t)h * d, kv_row = (int64_t)k->n_kv_heads * d;
    float *w = r->weights + (m * k->n_heads + h) * r->n_keys;
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
    const engine_config *k = &at->a->d->body.config;
    int32_t group = k->n_heads / k->n_kv_heads;
    for (int32_t m = 0; m < at->rows->n_queries; m++)
        for (int32_t h = (int32_t)kv * group; h < ((int32_t)kv + 1) * group; h++)
            attend_back_head(at->a, &at->rows->queries[m], m, h, kv);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y += scale b (a x), and a x for the way back. */
static void add_lora(engine_align *a, int block, const float *x, int32_t n, float *low, float *y) {
    align_rows *r = &a->rows;
    const align_block *down = &a->blocks[block], *up = &a->blocks[block + 1];
    engine_matrix wa = align_matrix(align_part(a, a->values, block), down->n_rows, down->n_cols);
    engine_matrix wb = align_matrix(align_part(a, a->values, block + 1), up->n_rows, up->n_cols);
    align_product(a, &wa, x, n, low);
    align_product(a, &wb, low, n, r->moved);
    align_add(a->scale, r->moved, n * up->n_rows, y);
}

/* What queries, keys and values are made of: kept as it was, or fused anew. */
static void make_inputs(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    int32_t in = a->layer.q.n_cols, width = engine_align_width(a);
    if (a->params.mode == ENGINE_ALIGN_FULL) {
        a->fc.segment.bias = a->d->fc.segment.bias ? align_part(a, a->values, ALIGN_BIAS) : NULL;
        align_product(a, &a->fc, rows->inputs, rows->n, r->x);
    }
    for (int64_t i = 0; a->params.mode != ENGINE_ALIGN_FULL && i < rows->n; i++)
        memcpy(r->x + i * in, rows->inputs + i * width, (size_t)in * sizeof(float));
    for (int64_t i = 0; i < rows->n_queries; i++)
        memcpy(r->xq + i * in, r->x + (int64_t)rows->queries[i].row * in,
               (size_t)in * sizeof(float));
}

static void make_attention(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->d->body.config;
    bool lora = a->params.mode == ENGINE_ALIGN_LORA;
    int32_t kv = k->n_kv_heads * k->d_head, q = k->n_heads * k->d_head;
    align_product(a, &a->layer.k, r->x, rows->n, r->k);
    align_product(a, &a->layer.v, r->x, rows->n, r->v);
    align_product(a, &a->layer.q, r->xq, rows->n_queries, r->q);
    if (lora) add_lora(a, ALIGN_V_A, r->x, rows->n, r->low_v, r->v);
    if (lora) add_lora(a, ALIGN_Q_A, r->xq, rows->n_queries, r->low_q, r->q);
    for (int64_t i = 0; i < rows->n; i++)
        rotate(&a->d->body, r->k + i * kv, k->n_kv_heads, rows->positions[i], false);
    for (int64_t i = 0; i < rows->n_queries; i++)
        rotate(&a->d->body, r->q + i * q, k->n_heads, rows->positions[rows->queries[i].row], false);
    attention at = {a, rows};
    sl_parallel_pool_for(a->pool, k->n_kv_heads, attend_task, &at);
}

/* The residual of a query: the layer's input, or what EAGLE-3 keeps beside it. */
static const float *residual(const engine_align *a, const engine_align_rows *rows, int64_t i) {
    int64_t width = engine_align_width(a), d = a->d->body.config.d_model;
    if (!a->d->eagle3) return a->rows.xq + i * d;
    return rows->inputs + rows->queries[i].row * width + width - d;
}

static void make_output(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->d->body.config;
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
    if (a->d->eagle3)
        engine_norm(r->h2, a->d->final_norm, m, d, k->rms_epsilon, r->out);
    else
        memcpy(r->out, r->h2, (size_t)n * sizeof(float));
}

specrt_status engine_align_forward(engine_align *a, const engine_align_rows *rows,
                                   const float **hidden) {
    specrt_status status = reserve(a, rows);
    if (status != SPECRT_STATUS_OK) return status;
    make_inputs(a, rows);
    make_attention(a, rows);
    make_output(a, rows);
    *hidden = a->rows.out;
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
    const engine_config *k = &a->d->body.config;
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

static void attention_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->d->body.config;
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
        rotate(&a->d->body, r->dq + i * q, k->n_heads, rows->positions[rows->queries[i].row], true);
    for (int64_t i = 0; i < rows->n; i++)
        rotate(&a->d->body, r->dk + i * kv, k->n_kv_heads, rows->positions[i], true);
}

/* db += scale dy (a x)^T; da += scale (b^T dy) x^T. */
static void lora_back(engine_align *a, int block, const float *dy, const float *low, const float *x,
                      int32_t n) {
    align_rows *r = &a->rows;
    const align_block *down = &a->blocks[block], *up = &a->blocks[block + 1];
    engine_matrix wb = align_matrix(align_part(a, a->values, block + 1), up->n_rows, up->n_cols);
    align_outer(a, dy, up->n_rows, low, up->n_cols, n, a->scale,
                align_part(a, a->gradients, block + 1));
    memset(r->dlow, 0, (size_t)n * (size_t)down->n_rows * sizeof(float));
    align_product_back(a, &wb, dy, n, r->dlow);
    align_outer(a, r->dlow, down->n_rows, x, down->n_cols, n, a->scale,
                align_part(a, a->gradients, block));
}

/* To the matrices of queries, keys and values, and through the residual to what fuses the inputs. */
static void inputs_back(engine_align *a, const engine_align_rows *rows) {
    align_rows *r = &a->rows;
    int32_t m = rows->n_queries, d = a->d->body.config.d_model;
    float *bias = a->d->fc.segment.bias ? align_part(a, a->gradients, ALIGN_BIAS) : NULL;
    add_outer(a, ALIGN_Q, r->dq, r->xq, m);
    add_outer(a, ALIGN_K, r->dk, r->x, rows->n);
    add_outer(a, ALIGN_V, r->dv, r->x, rows->n);
    memcpy(r->dxq, r->dh, (size_t)m * (size_t)d * sizeof(float));
    memset(r->dx, 0, (size_t)rows->n * (size_t)d * sizeof(float));
    align_product_back(a, &a->layer.q, r->dq, m, r->dxq);
    align_product_back(a, &a->layer.k, r->dk, rows->n, r->dx);
    align_product_back(a, &a->layer.v, r->dv, rows->n, r->dx);
    for (int64_t i = 0; i < m; i++)
        align_add(1, r->dxq + i * d, d, r->dx + (int64_t)rows->queries[i].row * d);
    add_outer(a, ALIGN_FC, r->dx, rows->inputs, rows->n);
    for (int64_t i = 0; bias && i < rows->n; i++) align_add(1, r->dx + i * d, d, bias);
}

void engine_align_backward(engine_align *a, const engine_align_rows *rows, const float *dh) {
    align_rows *r = &a->rows;
    const engine_config *k = &a->d->body.config;
    int64_t d = k->d_model, n = rows->n_queries * d;
    if (a->d->eagle3) {
        memset(r->dh, 0, (size_t)n * sizeof(float));
        for (int64_t i = 0; i < rows->n_queries; i++)
            norm_back(r->h2 + i * d, a->d->final_norm, dh + i * d, k->d_model, k->rms_epsilon,
                      r->dh + i * d, NULL);
    } else {
        memcpy(r->dh, dh, (size_t)n * sizeof(float));
    }
    ffn_back(a, rows->n_queries);
    attention_back(a, rows);
    if (a->params.mode == ENGINE_ALIGN_FULL) {
        inputs_back(a, rows);
        return;
    }
    lora_back(a, ALIGN_Q_A, r->dq, r->low_q, r->xq, rows->n_queries);
    lora_back(a, ALIGN_V_A, r->dv, r->low_v, r->x, rows->n);
}
