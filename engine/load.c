/* load.c : a GGUF file to an engine_model. Every tensor's shape is checked against the metadata. */
#include "engine_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a load passes around. */
typedef struct loader {
    engine_model *m;
    const char *path;
    char arch[32]; /* metadata prefix */
    specrt_error *err;
} loader;

static specrt_status bad(const loader *l, const char *what, const char *detail) {
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: %s", l->path, what, detail);
}

/* ---- metadata ----------------------------------------------------------------------------------- */

static bool get_int(const loader *l, const char *key, int64_t min, int64_t max, int32_t *out) {
    char full[96];
    int64_t value;
    snprintf(full, sizeof full, "%s.%s", l->arch, key);
    if (!gguf_get_int(l->m->file, full, &value) || value < min || value > max) return false;
    *out = (int32_t)value;
    return true;
}

static specrt_status need_int(const loader *l, const char *key, int64_t min, int64_t max,
                              int32_t *out) {
    char detail[96];
    if (get_int(l, key, min, max, out)) return SPECRT_STATUS_OK;
    snprintf(detail, sizeof detail, "missing or outside %lld to %lld", (long long)min,
             (long long)max);
    char full[96];
    snprintf(full, sizeof full, "%s.%s", l->arch, key);
    return bad(l, full, detail);
}

static float get_real(const loader *l, const char *key, double fallback) {
    char full[96];
    double value;
    snprintf(full, sizeof full, "%s.%s", l->arch, key);
    return (float)(gguf_get_real(l->m->file, full, &value) ? value : fallback);
}

static specrt_status read_arch(loader *l) {
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    gguf_string name;
    if (!gguf_get_string(l->m->file, "general.architecture", &name))
        return bad(l, "general.architecture", "missing; expected a language model");
    for (int i = 0; i < 3; i++)
        if (name.n == strlen(names[i]) && memcmp(name.s, names[i], name.n) == 0) {
            l->m->config.arch = (engine_arch)i;
            l->m->rope_adjacent = i == ENGINE_LLAMA;
            strcpy(l->arch, names[i]);
            return SPECRT_STATUS_OK;
        }
    return specrt_error_set(
        l->err, SPECRT_STATUS_UNSUPPORTED,
        "%s: general.architecture: '%.*s' is not supported; expected llama, qwen2 "
        "or qwen3",
        l->path, name.n < 40 ? (int)name.n : 40, name.s);
}

static specrt_status read_config(loader *l) {
    engine_config *k = &l->m->config;
    specrt_status s = read_arch(l);
    if (!s) s = need_int(l, "block_count", 1, 1024, &k->n_layers);
    if (!s) s = need_int(l, "embedding_length", 1, 1 << 20, &k->d_model);
    if (!s) s = need_int(l, "feed_forward_length", 1, 1 << 20, &k->d_ffn);
    if (!s) s = need_int(l, "attention.head_count", 1, 1 << 14, &k->n_heads);
    if (!s) s = need_int(l, "context_length", 1, 1 << 24, &k->n_context);
    if (s) return s;
    k->n_kv_heads = k->n_heads;
    get_int(l, "attention.head_count_kv", 1, k->n_heads, &k->n_kv_heads);
    k->d_head = k->d_model / k->n_heads;
    get_int(l, "attention.key_length", 1, 1 << 12, &k->d_head);
    k->rms_epsilon = get_real(l, "attention.layer_norm_rms_epsilon", 1e-5);
    k->rope_base = get_real(l, "rope.freq_base", 10000);
    if (k->d_head < 2 || k->d_head % 2) return bad(l, "attention.key_length", "is not even");
    if (k->n_heads % k->n_kv_heads)
        return bad(l, "attention.head_count_kv", "does not divide attention.head_count");
    return SPECRT_STATUS_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------ */

static specrt_status mismatch(const loader *l, const char *name, const gguf_tensor *t,
                              int64_t n_cols, int64_t n_rows) {
    char detail[160];
    if (!t)
        snprintf(detail, sizeof detail, "missing; expected [%lld, %lld]", (long long)n_rows,
                 (long long)n_cols);
    else
        snprintf(detail, sizeof detail,
                 "expected [%lld, %lld], found [%lld, %lld] of %d dimensions", (long long)n_rows,
                 (long long)n_cols, (long long)t->dims[1], (long long)t->dims[0], t->n_dims);
    return bad(l, name, detail);
}

/* A vector in f32, where the file keeps norms and biases. NULL in *out when absent and optional. */
static specrt_status get_vector(const loader *l, const char *name, int64_t n, bool optional,
                                const float **out) {
    const gguf_tensor *t = gguf_find_tensor(l->m->file, name);
    *out = NULL;
    if (!t && optional) return SPECRT_STATUS_OK;
    if (!t || t->dims[0] != n || t->dims[1] != 1 || t->n_dims > 2)
        return mismatch(l, name, t, n, 1);
    if (t->type != SPECRT_DTYPE_F32) return bad(l, name, "expected f32");
    if ((uintptr_t)t->data % sizeof(float)) return bad(l, name, "is not aligned");
    const float *v = (const float *)(const void *)t->data;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i])) return bad(l, name, "holds a NaN or infinity");
    *out = v;
    return SPECRT_STATUS_OK;
}

static bool computed_as_stored(uint32_t type) {
    return type == SPECRT_DTYPE_F32 || type == SPECRT_DTYPE_F16 || type == SPECRT_DTYPE_BF16 ||
           type == SPECRT_DTYPE_Q8_0;
}

/* Decode a matrix of another format to f32. */
static specrt_status decode_matrix(const loader *l, const gguf_tensor *t, engine_matrix *w) {
    size_t stride = specrt_row_bytes((specrt_dtype)t->type, t->dims[0]);
    if (stride == 0) return bad(l, t->name, "has a type that is not supported");
    float *rows = (float *)malloc((size_t)t->dims[1] * (size_t)t->dims[0] * sizeof *rows);
    if (!rows)
        return specrt_error_set(l->err, SPECRT_STATUS_NO_MEMORY, "%s: %s: no memory to decode it",
                                l->path, t->name);
    for (int64_t i = 0; i < t->dims[1]; i++)
        specrt_row_decode((specrt_dtype)t->type, t->data + (size_t)i * stride, t->dims[0],
                          rows + i * t->dims[0]);
    w->owned = rows;
    w->segment.rows = rows;
    w->segment.dtype = SPECRT_DTYPE_F32;
    return SPECRT_STATUS_OK;
}

static specrt_status get_matrix(const loader *l, const char *name, int64_t n_cols, int64_t n_rows,
                                engine_matrix *w) {
    const gguf_tensor *t = gguf_find_tensor(l->m->file, name);
    if (!t || t->n_dims != 2 || t->dims[0] != n_cols || t->dims[1] != n_rows)
        return mismatch(l, name, t, n_cols, n_rows);
    w->n_cols = (int32_t)n_cols;
    w->segment.n_rows = (int32_t)n_rows;
    w->segment.rows = t->data;
    w->segment.dtype = (specrt_dtype)t->type;
    if (!computed_as_stored(t->type)) {
        specrt_status status = decode_matrix(l, t, w);
        if (status) return status;
    }
    w->segment.row_stride = specrt_row_bytes(w->segment.dtype, n_cols);
    if (w->segment.row_stride == 0) return bad(l, name, "has rows that are no whole blocks");
    return SPECRT_STATUS_OK;
}

/* "blk.3.attn_q.weight" and, when `biased`, its optional bias. */
static specrt_status get_layer_matrix(const loader *l, int32_t layer, const char *name,
                                      int64_t n_cols, int64_t n_rows, engine_matrix *w) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.bias", layer, name);
    specrt_status status = get_vector(l, full, n_rows, true, &w->segment.bias);
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return status ? status : get_matrix(l, full, n_cols, n_rows, w);
}

static specrt_status get_layer_vector(const loader *l, int32_t layer, const char *name, int64_t n,
                                      bool optional, const float **out) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return get_vector(l, full, n, optional, out);
}

static specrt_status load_layer(const loader *l, int32_t i) {
    const engine_config *k = &l->m->config;
    engine_layer *w = &l->m->layers[i];
    int64_t d = k->d_model, q = (int64_t)k->n_heads * k->d_head;
    int64_t kv = (int64_t)k->n_kv_heads * k->d_head;
    bool normless = k->arch != ENGINE_QWEN3;
    specrt_status s = get_layer_vector(l, i, "attn_norm", d, false, &w->attn_norm);
    if (!s) s = get_layer_vector(l, i, "ffn_norm", d, false, &w->ffn_norm);
    if (!s) s = get_layer_vector(l, i, "attn_q_norm", k->d_head, normless, &w->q_norm);
    if (!s) s = get_layer_vector(l, i, "attn_k_norm", k->d_head, normless, &w->k_norm);
    if (!s) s = get_layer_matrix(l, i, "attn_q", d, q, &w->q);
    if (!s) s = get_layer_matrix(l, i, "attn_k", d, kv, &w->k);
    if (!s) s = get_layer_matrix(l, i, "attn_v", d, kv, &w->v);
    if (!s) s = get_layer_matrix(l, i, "attn_output", q, d, &w->o);
    if (!s) s = get_layer_matrix(l, i, "ffn_gate", d, k->d_ffn, &w->gate);
    if (!s) s = get_layer_matrix(l, i, "ffn_up", d, k->d_ffn, &w->up);
    if (!s) s = get_layer_matrix(l, i, "ffn_down", k->d_ffn, d, &w->down);
    return s;
}

/* RoPE frequencies (Su et al. 2021), divided by Llama-3's factors where the file has them. */
static specrt_status load_rope(const loader *l) {
    const engine_config *k = &l->m->config;
    int32_t half = k->d_head / 2;
    const float *factors;
    specrt_status status = get_vector(l, "rope_freqs.weight", half, true, &factors);
    if (status) return status;
    l->m->rope_frequency = (float *)malloc((size_t)half * sizeof(float));
    if (!l->m->rope_frequency)
        return specrt_error_set(l->err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", l->path);
    for (int32_t i = 0; i < half; i++)
        l->m->rope_frequency[i] = (float)(pow((double)k->rope_base, -2.0 * i / k->d_head) /
                                          (factors ? (double)factors[i] : 1.0));
    return SPECRT_STATUS_OK;
}

static specrt_status load_ends(const loader *l) {
    engine_model *m = l->m;
    engine_config *k = &m->config;
    const gguf_tensor *e = gguf_find_tensor(m->file, "token_embd.weight");
    if (!e || e->n_dims != 2 || e->dims[1] < 1 || e->dims[1] > 1 << 24)
        return bad(l, "token_embd.weight", "missing or not a matrix");
    k->n_vocab = (int32_t)e->dims[1];
    k->tied = gguf_find_tensor(m->file, "output.weight") == NULL;
    specrt_status s = get_matrix(l, "token_embd.weight", k->d_model, k->n_vocab, &m->embedding);
    if (!s) s = get_vector(l, "output_norm.weight", k->d_model, false, &m->output_norm);
    if (s) return s;
    m->head = m->embedding;
    m->head.owned = NULL;
    return k->tied ? SPECRT_STATUS_OK
                   : get_matrix(l, "output.weight", k->d_model, k->n_vocab, &m->head);
}

static specrt_status load(loader *l, int threads) {
    engine_model *m = l->m;
    specrt_status s = gguf_open(l->path, &m->file, l->err);
    if (!s) s = read_config(l);
    if (!s) s = load_ends(l);
    if (!s) s = load_rope(l);
    if (s) return s;
    m->pool = parallel_pool_create(threads);
    m->layers = (engine_layer *)calloc((size_t)m->config.n_layers, sizeof *m->layers);
    if (!m->pool || !m->layers)
        return specrt_error_set(l->err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", l->path);
    for (int32_t i = 0; i < m->config.n_layers && !s; i++) s = load_layer(l, i);
    if (s) return s;
    specrt_head_desc head;
    specrt_desc desc = {.user = m->pool, .parallel_for = parallel_pool_for};
    engine_head(m, &head);
    return specrt_head_bind(NULL, &head, &desc, &m->compute_owner, l->err);
}

specrt_status engine_open(const char *path, int threads, engine_model **out, specrt_error *err) {
    loader l = {(engine_model *)calloc(1, sizeof(engine_model)), path, "", err};
    *out = NULL;
    if (!l.m) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", path);
    specrt_status status = load(&l, threads);
    if (status == SPECRT_STATUS_OK)
        *out = l.m;
    else
        engine_close(l.m);
    return status;
}

void engine_close(engine_model *m) {
    if (!m) return;
    for (int32_t i = 0; m->layers && i < m->config.n_layers; i++) {
        engine_layer *w = &m->layers[i];
        engine_matrix *all[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) free(all[j]->owned);
    }
    free(m->layers);
    free(m->embedding.owned);
    free(m->head.owned);
    free(m->rope_frequency);
    specrt_head_close(m->compute_owner);
    parallel_pool_free(m->pool);
    gguf_close(m->file);
    free(m);
}

const engine_config *engine_get_config(const engine_model *m) {
    return &m->config;
}

static void describe(const engine_matrix *w, specrt_head_desc *out) {
    *out = (specrt_head_desc){.rows = w->segment.rows,
                              .dtype = w->segment.dtype,
                              .n_rows = w->segment.n_rows,
                              .n_cols = w->n_cols,
                              .row_stride = w->segment.row_stride,
                              .bias = w->segment.bias};
}

void engine_head(const engine_model *m, specrt_head_desc *out) {
    describe(&m->head, out);
}
void engine_embedding(const engine_model *m, specrt_head_desc *out) {
    describe(&m->embedding, out);
}
