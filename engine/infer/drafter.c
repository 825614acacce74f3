/* drafter.c : EAGLE heads from safetensors, MTP modules from either kind of file (mtp.c), block drafters
 * (block.c), and whole small models from GGUF. A head is a model of one layer whose input is fused from an
 * embedding and a feature, so that the forward pass serves it unchanged. */
#include "engine/infer/drafter.h"
#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static specrt_status bad(const drafter_loader *l, const char *what, const char *detail) {
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: %s", l->path, what, detail);
}

static specrt_status get_matrix(const drafter_loader *l, const char *name, int64_t n_rows,
                                int64_t n_cols, engine_matrix *out) {
    return engine_weights_matrix(&l->d->file, name, n_rows, n_cols, out, l->err);
}

static specrt_status get_vector(const drafter_loader *l, const char *name, int64_t n,
                                const float **out) {
    return engine_weights_vector(&l->d->file, name, n, false, out, l->err);
}

static const char *layer_name(const drafter_loader *l, const char *name, char out[DRAFTER_NAME]) {
    snprintf(out, DRAFTER_NAME, "%s.%s", l->layer, name);
    return out;
}

static specrt_status get_layer_matrix(const drafter_loader *l, const char *name, int64_t n_rows,
                                      int64_t n_cols, engine_matrix *w) {
    char full[DRAFTER_NAME];
    return get_matrix(l, layer_name(l, name, full), n_rows, n_cols, w);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static int32_t json_int(json_object *config, const char *key, int32_t fallback) {
    json_object *value;
    return config && json_object_object_get_ex(config, key, &value) ? json_object_get_int(value)
                                                                    : fallback;
}

static float json_real(json_object *config, const char *key, float fallback) {
    json_object *value;
    return config && json_object_object_get_ex(config, key, &value)
               ? (float)json_object_get_double(value)
               : fallback;
}

static specrt_status check_target(const drafter_loader *l, const char *path, const char *key,
                                  int32_t expected, int32_t found) {
    if (found == expected) return SPECRT_STATUS_OK;
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected the target's %d, found %d; use the drafter trained "
                            "for this model",
                            path, key, (int)expected, (int)found);
}

json_object *drafter_shape(const drafter_loader *l) {
    json_object *config = l->d->file.file.config;
    json_object *layers = sl_json_get(config, "transformer_layer_config");
    return layers ? layers : config;
}

specrt_status drafter_read_config(drafter_loader *l) {
    char path[4096];
    const char *file = l->d->file.file.path, *slash = strrchr(file, '/');
    engine_config *k = &l->d->body.config;
    const engine_config *target = &l->d->target->config;
    json_object *config = drafter_shape(l);
    snprintf(path, sizeof path, "%.*sconfig.json", slash ? (int)(slash - file + 1) : 0, file);
    *k = *target;
    k->n_layers = 1;
    k->d_model = json_int(config, "hidden_size", target->d_model);
    k->n_heads = json_int(config, "num_attention_heads", target->n_heads);
    k->n_kv_heads =
        json_int(config, "num_key_value_heads", config ? k->n_heads : target->n_kv_heads);
    k->d_ffn = json_int(config, "intermediate_size", target->d_ffn);
    k->d_head = json_int(config, "head_dim",
                         config && k->n_heads > 0 ? k->d_model / k->n_heads : target->d_head);
    k->rms_epsilon = json_real(config, "rms_norm_eps", target->rms_epsilon);
    k->rope_base = json_real(sl_json_get(config, "rope_parameters"), "rope_theta",
                             json_real(config, "rope_theta", target->rope_base));
    k->n_vocab = json_int(config, "vocab_size", target->n_vocab);
    engine_llama_layer(k);
    k->embedding_scale = target->embedding_scale;
    TRY(check_target(l, path, "hidden_size", target->d_model, k->d_model));
    TRY(check_target(l, path, "vocab_size", target->n_vocab, k->n_vocab));
    if (!(k->rms_epsilon > 0 && k->rope_base > 0))
        return bad(l, "config.json", "expected positive rms_norm_eps and rope_theta");
    if (k->n_heads < 1 || k->n_kv_heads < 1 || k->n_heads % k->n_kv_heads || k->d_head < 2 ||
        k->d_head % 2 || k->d_ffn < 1)
        return bad(l, "config.json", "attention heads or widths do not fit each other");
    return SPECRT_STATUS_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

static specrt_status load_matrices(drafter_loader *l, engine_layer *w) {
    engine_drafter *d = l->d;
    const engine_config *k = &d->body.config;
    int64_t in = d->eagle3 ? 2 * (int64_t)k->d_model : k->d_model;
    int64_t q = (int64_t)k->n_heads * k->d_head, kv = (int64_t)k->n_kv_heads * k->d_head;
    char name[DRAFTER_NAME];
    TRY(get_layer_matrix(l, "self_attn.q_proj.weight", q, in, &w->q));
    TRY(get_layer_matrix(l, "self_attn.k_proj.weight", kv, in, &w->k));
    TRY(get_layer_matrix(l, "self_attn.v_proj.weight", kv, in, &w->v));
    TRY(get_layer_matrix(l, "self_attn.o_proj.weight", k->d_model, q, &w->o));
    TRY(get_layer_matrix(l, "mlp.gate_proj.weight", k->d_ffn, k->d_model, &w->gate));
    TRY(get_layer_matrix(l, "mlp.up_proj.weight", k->d_ffn, k->d_model, &w->up));
    TRY(get_layer_matrix(l, "mlp.down_proj.weight", k->d_model, k->d_ffn, &w->down));
    return get_vector(l, layer_name(l, "post_attention_layernorm.weight", name), k->d_model,
                      &w->ffn_norm);
}

static specrt_status load_d2t(const drafter_loader *l, const char *head, int64_t n) {
    int32_t n_vocab = l->d->target->config.n_vocab;
    TRY(sl_model_d2t(&l->d->file.file, n, n_vocab, &l->d->d2t, l->err));
    if (l->d->d2t || n == n_vocab) return SPECRT_STATUS_OK;
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                            "%s: d2t: missing; expected one for the %lld rows of "
                            "%s, which are fewer than the target's %d",
                            l->path, (long long)n, head, (int)n_vocab);
}

static void take_targets_head(engine_drafter *d) {
    d->body.head = d->target->head;
    d->body.config.softcap = d->target->config.softcap;
}

specrt_status drafter_load_head(drafter_loader *l, const char *name) {
    engine_drafter *d = l->d;
    int32_t n_vocab = d->target->config.n_vocab;
    int64_t n_rows, n_cols;
    if (!engine_weights_has(&d->file, name)) {
        take_targets_head(d);
        return load_d2t(l, name, n_vocab);
    }
    if (!engine_weights_shape(&d->file, name, &n_rows, &n_cols) || n_rows < 1 || n_rows > n_vocab)
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: expected a matrix of 1 to %d rows, the target's "
                                "vocabulary, found %lld",
                                l->path, name, (int)n_vocab, (long long)n_rows);
    TRY(get_matrix(l, name, n_rows, d->body.config.d_model, &d->body.head));
    return load_d2t(l, name, n_rows);
}

static specrt_status load_eagle3(drafter_loader *l) {
    engine_drafter *d = l->d;
    int64_t width = d->body.config.d_model;
    char name[DRAFTER_NAME];
    if (d->target->config.n_layers < 5)
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: reads the target's layers 2, L / 2 and L - 3 (EAGLE-3); "
                                "expected at least 5 layers, found %d",
                                l->path, (int)d->target->config.n_layers);
    d->n_taps = 3;
    d->taps[0] = 2;
    d->taps[1] = d->target->config.n_layers / 2;
    d->taps[2] = d->target->config.n_layers - 3;
    TRY(get_matrix(l, "fc.weight", width, 3 * width, &d->fc));
    TRY(get_vector(l, layer_name(l, "input_layernorm.weight", name), width, &d->embedding_norm));
    TRY(get_vector(l, layer_name(l, "hidden_norm.weight", name), width, &d->feature_norm));
    TRY(get_vector(l, "norm.weight", width, &d->final_norm));
    return drafter_load_head(l, "lm_head.weight");
}

static specrt_status load_eagle2(drafter_loader *l) {
    engine_drafter *d = l->d;
    int64_t width = d->body.config.d_model;
    take_targets_head(d);
    TRY(engine_weights_vector(&d->file, "fc.bias", width, true, &d->fc.segment.bias, l->err));
    return get_matrix(l, "fc.weight", width, 2 * width, &d->fc);
}

static specrt_status load_eagle(drafter_loader *l) {
    engine_drafter *d = l->d;
    const char *eagle3_layer = sl_checkpoint_eagle3_layer(&d->file.file);
    d->eagle3 = eagle3_layer != NULL;
    snprintf(d->prefix, sizeof d->prefix, "%s", d->eagle3 ? eagle3_layer : "layers.0");
    snprintf(l->layer, sizeof l->layer, "%s", d->prefix);
    TRY(drafter_read_config(l));
    TRY(d->eagle3 ? load_eagle3(l) : load_eagle2(l));
    return load_matrices(l, l->d->body.layers);
}

specrt_status drafter_load_layer(drafter_loader *l, engine_layer *w) {
    const engine_config *k = &l->d->body.config;
    char name[DRAFTER_NAME];
    TRY(load_matrices(l, w));
    const struct {
        const char *name;
        int64_t n;
        const float **out;
    } optional[] = {{"self_attn.q_proj.bias", w->q.segment.n_rows, &w->q.segment.bias},
                    {"self_attn.k_proj.bias", w->k.segment.n_rows, &w->k.segment.bias},
                    {"self_attn.v_proj.bias", w->v.segment.n_rows, &w->v.segment.bias},
                    {"self_attn.q_norm.weight", k->d_head, &w->q_norm},
                    {"self_attn.k_norm.weight", k->d_head, &w->k_norm}};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        TRY(engine_weights_vector(&l->d->file, layer_name(l, optional[i].name, name), optional[i].n,
                                  true, optional[i].out, l->err));
    return get_vector(l, layer_name(l, "input_layernorm.weight", name), k->d_model, &w->attn_norm);
}

/* Metadata of a GGUF name no vocabulary; its tokenizer is the caller's to check. */
static specrt_status load_mtp_gguf(drafter_loader *l) {
    engine_drafter *d = l->d;
    const engine_config *target = &d->target->config;
    engine_config *k = &d->body.config;
    TRY(engine_load_tail(l->path, &d->file, l->index, &d->body, l->err));
    k->n_vocab = target->n_vocab;
    k->n_context = target->n_context;
    k->embedding_scale = target->embedding_scale;
    TRY(check_target(l, l->path, "embedding_length", target->d_model, k->d_model));
    return engine_mtp_load(l);
}

static specrt_status load_mtp(drafter_loader *l) {
    engine_drafter *d = l->d;
    d->mtp = true;
    if (d->file.file.g) return load_mtp_gguf(l);
    TRY(drafter_read_config(l));
    TRY(engine_mtp_load(l));
    return drafter_load_layer(l, l->d->body.layers);
}

static specrt_status load_head(drafter_loader *l, specrt_status (*load_all)(drafter_loader *)) {
    engine_model *body = &l->d->body;
    const engine_model *target = l->d->target;
    body->pool = target->pool;
    body->compute_owner = target->compute_owner;
    body->serial_owner = target->serial_owner;
    body->embedding = target->embedding;
    body->layers = (engine_layer *)calloc(1, sizeof *body->layers);
    if (!body->layers) return sl_error_no_memory(l->err, l->path);
    TRY(load_all(l));
    const engine_config *k = &body->config;
    body->d_input = 2 * k->d_model;
    if (!body->rope_frequency)
        body->rope_frequency = engine_rope_frequencies(k->d_head, k->rope_base, 1, NULL);
    return body->rope_frequency ? SPECRT_STATUS_OK : sl_error_no_memory(l->err, l->path);
}

static specrt_status load(drafter_loader *l) {
    engine_weights *file = &l->d->file;
    TRY(engine_weights_open(file, l->path, l->err));
    if (engine_mtp_is_drafter(l)) return load_head(l, load_mtp);
    if (engine_block_is_drafter(l)) return load_head(l, engine_block_load);
    if (file->file.s) return load_head(l, load_eagle);
    engine_weights_close(file);
    *file = (engine_weights){0};
    return engine_open_beside(l->path, l->d->target, &l->d->own, l->err);
}

specrt_status engine_drafter_open(const char *path, const engine_model *target,
                                  engine_drafter **out, specrt_error *err) {
    engine_drafter *d = (engine_drafter *)calloc(1, sizeof *d);
    drafter_loader l = {.d = d, .path = path, .err = err};
    *out = NULL;
    if (!d) return sl_error_no_memory(err, path);
    d->target = target;
    specrt_status status = load(&l);
    if (status == SPECRT_STATUS_OK)
        *out = d;
    else
        engine_drafter_close(d);
    return status;
}

bool engine_drafter_is_model(const engine_drafter *d) {
    return d->own != NULL;
}

bool engine_drafter_is_gguf(const engine_drafter *d) {
    return d->own || d->file.file.g;
}

static const engine_model *model_of(const engine_drafter *d) {
    return d->own ? d->own : &d->body;
}

void engine_drafter_close(engine_drafter *d) {
    if (!d) return;
    engine_close(d->own);
    free(d->d2t);
    free(d->body.rope_frequency);
    free(d->body.layers);
    engine_weights_close(&d->file);
    free(d);
}

/* ---- drafting -------------------------------------------------------------------------------- */

int32_t engine_drafter_features(const engine_drafter *d, int32_t layers[ENGINE_MAX_TAPS]) {
    memcpy(layers, d->taps, (size_t)d->n_taps * sizeof *layers);
    return d->n_taps;
}

void engine_drafter_head(const engine_drafter *d, specrt_head_desc *out) {
    engine_head(model_of(d), out);
    out->ids = d->d2t;
    if (d->block.markov.from.rows) out->markov = &d->block.markov;
}

specrt_status engine_drafter_cache(const engine_drafter *d, int32_t n_context, engine_cache **out,
                                   specrt_error *err) {
    return engine_cache_create(model_of(d), n_context, out, err);
}

/* [a; b] side by side, rows of a batch. */
static void join(const float *a, const float *b, int32_t n, int32_t width, float *out) {
    size_t bytes = sizeof(float) * (size_t)width;
    for (int64_t i = 0; i < n; i++) {
        memcpy(out + 2 * i * width, a + i * width, bytes);
        memcpy(out + (2 * i + 1) * width, b + i * width, bytes);
    }
}

/* EAGLE-1/2: x = fc([embedding; feature]); the layer reads x itself. */
static void fuse_eagle2(const engine_drafter *d, engine_cache *c, const float *features) {
    join(c->normed, features, c->n_batch, c->m->config.d_model, c->input);
    engine_product(c->m, &d->fc, c->input, c->n_batch, c->x);
}

/* norm(a) and norm'(b) side by side in the input, rows of a batch. */
static void join_normed(const engine_drafter *d, engine_cache *c, const float *a, const float *b) {
    const engine_config *k = &c->m->config;
    for (int64_t i = 0; i < c->n_batch; i++) {
        float *pair = c->input + 2 * i * k->d_model;
        engine_norm(a + i * k->d_model, d->embedding_norm, 1, k->d_model, k->rms_epsilon, pair);
        engine_norm(b + i * k->d_model, d->feature_norm, 1, k->d_model, k->rms_epsilon,
                    pair + k->d_model);
    }
}

/* MTP: x = eh_proj([norm(embedding); norm'(state)]); the layer norms x itself. */
static void fuse_mtp(const engine_drafter *d, engine_cache *c, const float *features) {
    join_normed(d, c, c->normed, features);
    engine_product(c->m, &d->fc, c->input, c->n_batch, c->x);
}

/* EAGLE-3: x = the feature, fused where it is the target's; the layer reads
 * [norm(embedding); norm'(x)]. */
static void fuse_eagle3(const engine_drafter *d, engine_cache *c, const float *features,
                        int32_t width) {
    const engine_config *k = &c->m->config;
    int32_t n = c->n_batch;
    if (width != k->d_model)
        engine_product(c->m, &d->fc, features, n, c->x);
    else
        memcpy(c->x, features, sizeof(float) * (size_t)n * (size_t)width);
    join_normed(d, c, c->normed, c->x);
}

/* A target with more rows than the drafter may emit ids that it does not know: any known one will do. */
static specrt_status draft_independent(const engine_drafter *d, engine_cache *c,
                                       const int32_t *tokens, int32_t n, const int32_t *parents,
                                       float *hidden, float *head_input) {
    int32_t known[ENGINE_MAX_BATCH];
    if (n < 1 || n > ENGINE_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    for (int32_t i = 0; i < n; i++) known[i] = tokens[i] < d->own->config.n_vocab ? tokens[i] : 0;
    specrt_status status = engine_forward(c, known, n, parents, head_input, NULL);
    if (status == SPECRT_STATUS_OK)
        memcpy(hidden, head_input, sizeof(float) * (size_t)n * (size_t)d->own->config.d_model);
    return status;
}

/* EAGLE-3's pairs. A feature of the drafter's own, one in place of three, is none to learn from. */
static void capture_pairs(const engine_cache *c, const float *features, int32_t width) {
    int64_t d = c->m->config.d_model;
    for (int64_t i = 0; width == 3 * d && i < c->n_batch; i++) {
        float *pair = c->captured + i * 4 * d;
        memcpy(pair, c->normed + i * d, (size_t)d * sizeof(float));
        memcpy(pair + d, features + i * width, (size_t)width * sizeof(float));
    }
}

/* What alignment reads again: see engine_capture(). */
static void capture(const engine_drafter *d, const engine_cache *c, const float *features,
                    int32_t n_features) {
    size_t width = (size_t)c->m->config.d_model, n = (size_t)c->n_batch;
    if (c->capture_pairs && d->eagle3) {
        capture_pairs(c, features, n_features);
        return;
    }
    if (c->capture_pairs) {
        memcpy(c->captured, c->input, n * 2 * width * sizeof(float));
        return;
    }
    size_t stride = (d->eagle3 ? 3 : 1) * width, at = stride - width;
    for (size_t i = 0; i < n; i++) {
        memcpy(c->captured + i * stride, c->input + i * 2 * width, at * sizeof(float));
        memcpy(c->captured + i * stride + at, c->x + i * width, width * sizeof(float));
    }
}

specrt_status engine_draft(const engine_drafter *d, engine_cache *c, const int32_t *tokens,
                           const float *features, int32_t width, int32_t n, const int32_t *parents,
                           float *hidden, float *head_input) {
    if (d->own) return draft_independent(d, c, tokens, n, parents, hidden, head_input);
    const engine_config *k = &c->m->config;
    size_t bytes = sizeof(float) * (size_t)n * (size_t)k->d_model;
    if (d->block.size > 0) return SPECRT_STATUS_BAD_ARG;
    if (width != k->d_model && !(d->eagle3 && width == 3 * k->d_model))
        return SPECRT_STATUS_BAD_ARG;
    if (!engine_tokens_valid(d->target, tokens, n)) return SPECRT_STATUS_BAD_ARG;
    specrt_status status = engine_begin(c, n, parents);
    if (status != SPECRT_STATUS_OK) return status;
    engine_embed(c->m, tokens, n, c->normed);
    if (d->mtp)
        fuse_mtp(d, c, features);
    else if (d->eagle3)
        fuse_eagle3(d, c, features, width);
    else
        fuse_eagle2(d, c, features);
    if (c->captured) capture(d, c, features, width);
    engine_layer_forward(c, 0, d->mtp ? NULL : d->eagle3 ? c->input : c->x);
    if (d->final_norm)
        engine_norm(c->x, d->final_norm, n, k->d_model, k->rms_epsilon, head_input);
    else
        memcpy(head_input, c->x, bytes);
    memcpy(hidden, d->mtp && !d->raw_state ? head_input : c->x, bytes);
    return SPECRT_STATUS_OK;
}
