/* load.c : a GGUF file to an engine_model. Every tensor's shape is checked against the metadata. */
#include "engine/infer/engine_impl.h"
#include "base/error.h"
#include "engine/infer/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What sets an architecture apart from Llama. */
typedef struct architecture {
    const char *name;                       /* and prefix of its metadata */
    bool rope_adjacent;                     /* of GGUF's llama: see engine_model */
    bool head_norms;                        /* of queries and keys */
    bool post_norms, gelu, embedding_scale; /* the last: sqrt(d_model) */
    int32_t window_period;                  /* where the file names none; 0: no windows */
} architecture;

static const architecture architectures[] = {
    {.name = "llama", .rope_adjacent = true},
    {.name = "qwen2"},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .head_norms = true,
     .post_norms = true,
     .gelu = true,
     .embedding_scale = true,
     .window_period = 6},
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

/* What a load passes around. */
typedef struct loader {
    engine_model *m;
    engine_weights *file; /* the model's */
    const char *path;
    const architecture *arch;
    specrt_error *err;
} loader;

static specrt_status bad(const loader *l, const char *what, const char *detail) {
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: %s", l->path, what, detail);
}

/* ---- metadata -------------------------------------------------------------------------------- */

enum { KEY_BYTES = 96 };

/* "gemma3.block_count" of "block_count". */
static const char *key_of(const loader *l, const char *key, char out[KEY_BYTES]) {
    snprintf(out, KEY_BYTES, "%s.%s", l->arch->name, key);
    return out;
}

static bool get_int(const loader *l, const char *key, int64_t min, int64_t max, int32_t *out) {
    char full[KEY_BYTES];
    int64_t value;
    if (!sl_gguf_get_int(l->file->file.g, key_of(l, key, full), &value) || value < min ||
        value > max)
        return false;
    *out = (int32_t)value;
    return true;
}

static specrt_status need_int(const loader *l, const char *key, int64_t min, int64_t max,
                              int32_t *out) {
    char detail[96], full[KEY_BYTES];
    if (get_int(l, key, min, max, out)) return SPECRT_STATUS_OK;
    snprintf(detail, sizeof detail, "missing or outside %lld to %lld", (long long)min,
             (long long)max);
    return bad(l, key_of(l, key, full), detail);
}

/* A number that may be absent, but not another one. */
static specrt_status may_int(const loader *l, const char *key, int64_t min, int64_t max,
                             int32_t fallback, int32_t *out) {
    char full[KEY_BYTES], found[32] = "another type";
    int64_t value;
    *out = fallback;
    if (get_int(l, key, min, max, out) || !sl_gguf_find(l->file->file.g, key_of(l, key, full)))
        return SPECRT_STATUS_OK;
    if (sl_gguf_get_int(l->file->file.g, full, &value))
        snprintf(found, sizeof found, "%lld", (long long)value);
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected a number from %lld to %lld, found %s", l->path, full,
                            (long long)min, (long long)max, found);
}

/* A positive number; `fallback` where the key is absent. */
static specrt_status get_real(const loader *l, const char *key, double fallback, float *out) {
    char full[KEY_BYTES];
    double value;
    if (!sl_gguf_get_real(l->file->file.g, key_of(l, key, full), &value)) value = fallback;
    *out = (float)value;
    if (*out > 0 && isfinite(*out)) return SPECRT_STATUS_OK;
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected a positive number, found %g", l->path, full, value);
}

/* Positions of global layers may be divided by a factor, as in Gemma 3 from 4B on. */
static specrt_status read_rope_scaling(const loader *l) {
    char key[KEY_BYTES];
    gguf_string type = {"none", 4};
    sl_gguf_get_string(l->file->file.g, key_of(l, "rope.scaling.type", key), &type);
    if (type.n == 4 && memcmp(type.s, "none", 4) == 0) return SPECRT_STATUS_OK;
    if (type.n == 6 && memcmp(type.s, "linear", 6) == 0)
        return get_real(l, "rope.scaling.factor", 1, &l->m->config.rope_scale);
    return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: %s: '%.*s' is not supported; expected none, linear, or Llama-3's, "
                            "which is a tensor",
                            l->path, key, type.n < 40 ? (int)type.n : 40, type.s);
}

/* Variants of the architecture that would run and answer wrongly. */
static specrt_status refuse_variants(const loader *l) {
    const engine_config *k = &l->m->config;
    const char *arch = l->arch->name;
    char key[KEY_BYTES];
    int32_t n = k->d_head;
    double cap = 0;
    if (get_int(l, "rope.dimension_count", 0, INT32_MAX, &n) && n != k->d_head)
        return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: %s.rope.dimension_count: expected the %d of a head, found %d",
                                l->path, arch, (int)k->d_head, (int)n);
    if (get_int(l, "expert_count", 1, INT32_MAX, &n))
        return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: %s.expert_count: expected a dense model, found %d experts",
                                l->path, arch, (int)n);
    sl_gguf_get_real(l->file->file.g, key_of(l, "attn_logit_softcapping", key), &cap);
    if (cap != 0)
        return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: %s: expected scores of attention as they are, found a cap "
                                "of %g",
                                l->path, key, cap);
    return SPECRT_STATUS_OK;
}

static specrt_status read_arch(loader *l) {
    gguf_string name;
    if (!sl_gguf_get_string(l->file->file.g, "general.architecture", &name))
        return bad(l, "general.architecture", "missing; expected a language model");
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const architecture *a = &architectures[i];
        if (name.n != strlen(a->name) || memcmp(name.s, a->name, name.n) != 0) continue;
        l->arch = a;
        l->m->rope_adjacent = a->rope_adjacent;
        return SPECRT_STATUS_OK;
    }
    return specrt_error_set(
        l->err, SPECRT_STATUS_UNSUPPORTED,
        "%s: general.architecture: '%.*s' is not supported; expected llama, qwen2, qwen3 "
        "or gemma3",
        l->path, name.n < 40 ? (int)name.n : 40, name.s);
}

void engine_llama_layer(engine_config *k) {
    k->embedding_scale = k->rope_scale = 1;
    k->score_scale = 1.0f / sqrtf((float)k->d_head);
    k->softcap = k->window_rope_base = 0;
    k->window = k->window_period = 0;
    k->gelu = false;
}

/* What sets the architecture apart, and what the file says of it. */
static specrt_status read_variant(const loader *l) {
    enum { LAYERS_OF_27B = 62 };
    engine_config *k = &l->m->config;
    const architecture *a = l->arch;
    char key[KEY_BYTES];
    double cap = 0;
    engine_llama_layer(k);
    k->gelu = a->gelu;
    if (a->embedding_scale) k->embedding_scale = sqrtf((float)k->d_model);
    sl_gguf_get_real(l->file->file.g, key_of(l, "final_logit_softcapping", key), &cap);
    if (cap != 0) TRY(get_real(l, "final_logit_softcapping", 0, &k->softcap));
    TRY(read_rope_scaling(l));
    if (!a->window_period) return SPECRT_STATUS_OK;
    /* Gemma 3 27B divides scores by the root of another width than d_head, which no key tells. */
    if (k->n_layers == LAYERS_OF_27B)
        k->score_scale = 1.0f / sqrtf((float)(k->d_model / k->n_heads));
    TRY(may_int(l, "attention.sliding_window", 0, INT32_MAX, 0, &k->window));
    TRY(may_int(l, "attention.sliding_window_pattern", 1, 1024, a->window_period,
                &k->window_period));
    return get_real(l, "rope.freq_base_swa", 10000, &k->window_rope_base);
}

static specrt_status read_config(loader *l) {
    engine_config *k = &l->m->config;
    TRY(read_arch(l));
    TRY(need_int(l, "block_count", 1, 1024, &k->n_layers));
    TRY(need_int(l, "embedding_length", 1, 1 << 20, &k->d_model));
    TRY(need_int(l, "feed_forward_length", 1, 1 << 20, &k->d_ffn));
    TRY(need_int(l, "attention.head_count", 1, 1 << 14, &k->n_heads));
    TRY(need_int(l, "context_length", ENGINE_LEAST_CONTEXT, ENGINE_MOST_CONTEXT, &k->n_context));
    k->n_kv_heads = k->n_heads;
    get_int(l, "attention.head_count_kv", 1, k->n_heads, &k->n_kv_heads);
    k->d_head = k->d_model / k->n_heads;
    get_int(l, "attention.key_length", 1, 1 << 12, &k->d_head);
    TRY(get_real(l, "attention.layer_norm_rms_epsilon", 1e-5, &k->rms_epsilon));
    TRY(get_real(l, "rope.freq_base", 10000, &k->rope_base));
    if (k->d_head < 2 || k->d_head % 2) return bad(l, "attention.key_length", "is not even");
    if (k->n_heads % k->n_kv_heads)
        return bad(l, "attention.head_count_kv", "does not divide attention.head_count");
    TRY(read_variant(l));
    return refuse_variants(l);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* "blk.3.attn_q.weight" and its bias, if any. */
static specrt_status get_layer_matrix(const loader *l, int32_t layer, const char *name,
                                      int64_t n_cols, int64_t n_rows, engine_matrix *w) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.bias", layer, name);
    TRY(engine_weights_vector(l->file, full, n_rows, true, &w->segment.bias, l->err));
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return engine_weights_matrix(l->file, full, n_rows, n_cols, w, l->err);
}

static specrt_status get_layer_vector(const loader *l, int32_t layer, const char *name, int64_t n,
                                      bool optional, const float **out) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return engine_weights_vector(l->file, full, n, optional, out, l->err);
}

static specrt_status load_layer(const loader *l, int32_t i, engine_layer *w) {
    const engine_config *k = &l->m->config;
    int64_t d = k->d_model, q = (int64_t)k->n_heads * k->d_head;
    int64_t kv = (int64_t)k->n_kv_heads * k->d_head;
    const architecture *a = l->arch;
    TRY(get_layer_vector(l, i, "attn_norm", d, false, &w->attn_norm));
    TRY(get_layer_vector(l, i, "ffn_norm", d, false, &w->ffn_norm));
    TRY(get_layer_vector(l, i, "post_attention_norm", d, !a->post_norms, &w->attn_post_norm));
    TRY(get_layer_vector(l, i, "post_ffw_norm", d, !a->post_norms, &w->ffn_post_norm));
    TRY(get_layer_vector(l, i, "attn_q_norm", k->d_head, !a->head_norms, &w->q_norm));
    TRY(get_layer_vector(l, i, "attn_k_norm", k->d_head, !a->head_norms, &w->k_norm));
    TRY(get_layer_matrix(l, i, "attn_q", d, q, &w->q));
    TRY(get_layer_matrix(l, i, "attn_k", d, kv, &w->k));
    TRY(get_layer_matrix(l, i, "attn_v", d, kv, &w->v));
    TRY(get_layer_matrix(l, i, "attn_output", q, d, &w->o));
    TRY(get_layer_matrix(l, i, "ffn_gate", d, k->d_ffn, &w->gate));
    TRY(get_layer_matrix(l, i, "ffn_up", d, k->d_ffn, &w->up));
    return get_layer_matrix(l, i, "ffn_down", k->d_ffn, d, &w->down);
}

/* RoPE (Su et al. 2021). */
float *engine_rope_frequencies(int32_t d_head, float base, float scale, const float *factors) {
    int32_t half = d_head / 2;
    float *f = (float *)malloc((size_t)half * sizeof *f);
    for (int32_t i = 0; f && i < half; i++)
        f[i] = (float)(pow((double)base, -2.0 * i / d_head) /
                       ((double)scale * (factors ? (double)factors[i] : 1.0)));
    return f;
}

static specrt_status load_rope(const loader *l) {
    engine_model *m = l->m;
    const engine_config *k = &m->config;
    const float *factors;
    TRY(engine_weights_vector(l->file, "rope_freqs.weight", k->d_head / 2, true, &factors, l->err));
    for (int32_t i = 0; factors && i < k->d_head / 2; i++)
        if (!(factors[i] > 0)) return bad(l, "rope_freqs.weight", "expected positive factors");
    m->rope_frequency = engine_rope_frequencies(k->d_head, k->rope_base, k->rope_scale, factors);
    if (k->window)
        m->window_frequency = engine_rope_frequencies(k->d_head, k->window_rope_base, 1, NULL);
    if (!m->rope_frequency || (k->window && !m->window_frequency))
        return sl_error_no_memory(l->err, l->path);
    return SPECRT_STATUS_OK;
}

/* The embedding, the head and the norm between. */
static specrt_status load_ends(const loader *l) {
    engine_model *m = l->m;
    engine_config *k = &m->config;
    const gguf_tensor *e = sl_gguf_find_tensor(l->file->file.g, "token_embd.weight");
    if (!e || e->n_dims != 2 || e->dims[1] < 1 || e->dims[1] > SPECRT_MAX_VOCAB)
        return bad(l, "token_embd.weight", "missing or not a matrix");
    k->n_vocab = (int32_t)e->dims[1];
    k->tied = !engine_weights_has(l->file, "output.weight");
    TRY(engine_weights_matrix(l->file, "token_embd.weight", k->n_vocab, k->d_model, &m->embedding,
                              l->err));
    TRY(engine_weights_vector(l->file, "output_norm.weight", k->d_model, false, &m->output_norm,
                              l->err));
    m->head = m->embedding;
    return k->tied ? SPECRT_STATUS_OK
                   : engine_weights_matrix(l->file, "output.weight", k->n_vocab, k->d_model,
                                           &m->head, l->err);
}

/* The last layers may be MTP modules, which are no layers of the model. */
static specrt_status leave_tail(const loader *l) {
    engine_config *k = &l->m->config;
    int32_t n_tail;
    TRY(may_int(l, "nextn_predict_layers", 0, k->n_layers - 1, 0, &n_tail));
    k->n_layers -= n_tail;
    return SPECRT_STATUS_OK;
}

specrt_status engine_load_tail(const char *path, engine_weights *file, int32_t layer,
                               engine_model *body, specrt_error *err) {
    loader l = {.m = body, .file = file, .path = path, .err = err};
    TRY(read_config(&l));
    body->config.n_layers = 1;
    body->config.window = 0;
    TRY(load_rope(&l));
    return load_layer(&l, layer, body->layers);
}

static specrt_status load(loader *l, parallel_pool *lent, int threads) {
    engine_model *m = l->m;
    TRY(engine_weights_open(l->file, l->path, l->err));
    if (!l->file->file.g) return bad(l, "file", "expected a GGUF");
    TRY(read_config(l));
    TRY(leave_tail(l));
    TRY(load_ends(l));
    TRY(load_rope(l));
    m->borrows_pool = lent != NULL;
    m->pool = lent ? lent : sl_parallel_pool_create(threads);
    m->layers = (engine_layer *)calloc((size_t)m->config.n_layers, sizeof *m->layers);
    if (!m->pool || !m->layers) return sl_error_no_memory(l->err, l->path);
    for (int32_t i = 0; i < m->config.n_layers; i++) TRY(load_layer(l, i, &m->layers[i]));
    specrt_head_desc head;
    specrt_env env;
    engine_lend(m, &env);
    engine_head(m, &head);
    TRY(specrt_head_bind(NULL, &head, NULL, &m->serial_owner, l->err));
    return specrt_head_bind(NULL, &head, &env, &m->compute_owner, l->err);
}

/* One allocation, which begins with the model. */
typedef struct model_and_file {
    engine_model m;
    engine_weights file;
} model_and_file;

static specrt_status open_model(const char *path, parallel_pool *lent, int threads,
                                engine_model **out, specrt_error *err) {
    model_and_file *both = (model_and_file *)calloc(1, sizeof *both);
    *out = NULL;
    if (!both) return sl_error_no_memory(err, path);
    loader l = {.m = &both->m, .file = &both->file, .path = path, .err = err};
    both->m.file = &both->file;
    specrt_status status = load(&l, lent, threads);
    if (status == SPECRT_STATUS_OK)
        *out = l.m;
    else
        engine_close(l.m);
    return status;
}

specrt_status engine_open(const char *path, int threads, engine_model **out, specrt_error *err) {
    return open_model(path, NULL, threads, out, err);
}

specrt_status engine_open_beside(const char *path, const engine_model *other, engine_model **out,
                                 specrt_error *err) {
    return open_model(path, other->pool, 0, out, err);
}

void engine_lend(const engine_model *m, specrt_env *out) {
    *out = (specrt_env){.user = m->pool, .parallel_for = sl_parallel_pool_for};
}

void engine_close(engine_model *m) {
    if (!m) return;
    specrt_head_close(m->compute_owner);
    specrt_head_close(m->serial_owner);
    if (!m->borrows_pool) sl_parallel_pool_free(m->pool);
    engine_weights_close(m->file);
    free(m->layers);
    free(m->rope_frequency);
    free(m->window_frequency);
    free(m);
}

const engine_config *engine_get_config(const engine_model *m) {
    return &m->config;
}

void engine_matrix_desc(const engine_matrix *w, specrt_head_desc *out) {
    *out = (specrt_head_desc){.rows = w->segment.rows,
                              .dtype = w->segment.dtype,
                              .n_rows = w->segment.n_rows,
                              .n_cols = w->n_cols,
                              .row_stride = w->segment.row_stride,
                              .bias = w->segment.bias};
}

void engine_head(const engine_model *m, specrt_head_desc *out) {
    engine_matrix_desc(&m->head, out);
    out->softcap = m->config.softcap;
}
void engine_embedding(const engine_model *m, specrt_head_desc *out) {
    engine_matrix_desc(&m->embedding, out);
}
