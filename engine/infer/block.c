/* block.c : block drafters from safetensors: DFlash (arXiv 2602.06036) and DSpark, which is DFlash with a
 * Markov head and a confidence head. Layers are Qwen3's. One pass reads the text's last token and masks. The
 * cache has the target's features, each at the position of its token in the text. */
#include "engine/infer/drafter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"

static specrt_status bad(const drafter_loader *l, const char *field, const char *expected,
                         int64_t found) {
    return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                            "%s: config.json: %s: expected %s, found %" PRId64, l->path, field,
                            expected, found);
}

/* ---- loading --------------------------------------------------------------------------------- */

bool engine_block_is_drafter(const drafter_loader *l) {
    checkpoint_id id;
    const model *m = &l->d->file.file;
    if (m->g || !m->config) return false; /* other kinds need no config.json */
    return sl_checkpoint_identify(m, &id, NULL) == SPECRT_STATUS_OK && id.kind == CHECKPOINT_BLOCK;
}

/* Kinds whose passes are others than the ones here. */
static specrt_status refuse_variants(const drafter_loader *l, const block_drafter *b) {
    json_object *config = l->d->file.file.config, *own = sl_json_get(config, "dflash_config");
    const char *what = b->no_cut;
    if (b->selector) what = "expected DFlash or DSpark, found a selector (DFlash 2)";
    if (json_object_get_boolean(sl_json_get(config, "use_sliding_window")) ||
        json_object_get_boolean(sl_json_get(own, "use_swa")))
        what = "use_sliding_window: expected layers that see the whole context";
    if (json_object_get_boolean(sl_json_get(config, "is_causal")) ||
        json_object_get_boolean(sl_json_get(own, "causal")))
        what = "is_causal: expected a block that sees itself in both directions";
    if (!what) return SPECRT_STATUS_OK;
    return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED, "%s: %s", l->path, what);
}

/* A file counts a layer by its output, which is the input of the next. */
static specrt_status read_taps(const drafter_loader *l, const block_drafter *b) {
    engine_drafter *d = l->d;
    char expected[64];
    int32_t n_layers = d->target->config.n_layers;
    if (b->n_taps < 1 || b->n_taps > ENGINE_MAX_TAPS)
        return bad(l, "target_layer_ids", "1 to 8 layers", b->n_taps);
    snprintf(expected, sizeof expected, "the target's layers 0 to %d", (int)n_layers - 1);
    if (b->least_tap < 0) return bad(l, "target_layer_ids", expected, b->least_tap);
    if (b->greatest_tap >= n_layers) return bad(l, "target_layer_ids", expected, b->greatest_tap);
    d->n_taps = (int32_t)b->n_taps;
    for (int32_t i = 0; i < d->n_taps; i++) d->taps[i] = (int32_t)b->taps[i] + 1;
    return SPECRT_STATUS_OK;
}

static specrt_status read_block(const drafter_loader *l, const block_drafter *b) {
    engine_block *block = &l->d->block;
    if (b->size < 2 || b->size > ENGINE_MAX_BATCH)
        return bad(l, "block_size", "2 to 64 positions", b->size);
    if (b->mask < 0 || b->mask >= l->d->target->config.n_vocab)
        return bad(l, "mask_token_id", "a token of the target", b->mask);
    block->size = (int32_t)b->size;
    block->first = (int32_t)(b->size - b->n_drafts);
    block->mask = (int32_t)b->mask;
    return read_taps(l, b);
}

/* w1 by target id, w2 by row of the head. */
static specrt_status load_markov(drafter_loader *l) {
    static const char from[] = "markov_head.markov_w1.weight",
                      to[] = "markov_head.markov_w2.weight";
    engine_weights *file = &l->d->file;
    engine_block *block = &l->d->block;
    engine_matrix w1 = {0}, w2 = {0};
    int64_t n_rows, rank;
    engine_weights_shape(file, from, &n_rows, &rank);
    TRY(engine_weights_matrix(file, from, l->d->target->config.n_vocab, rank, &w1, l->err));
    TRY(engine_weights_matrix(file, to, l->d->body.head.segment.n_rows, rank, &w2, l->err));
    engine_matrix_desc(&w1, &block->markov.from);
    engine_matrix_desc(&w2, &block->markov.to);
    return SPECRT_STATUS_OK;
}

static specrt_status load_confidence(drafter_loader *l) {
    static const char proj[] = "confidence_head.proj.weight", bias[] = "confidence_head.proj.bias";
    engine_block *block = &l->d->block;
    const float *value;
    int64_t width = l->d->body.config.d_model + block->markov.from.n_cols;
    TRY(engine_weights_vector(&l->d->file, bias, 1, true, &value, l->err));
    if (value) block->confidence_bias = *value;
    return engine_weights_vector(&l->d->file, proj, width, true, &block->confidence, l->err);
}

static specrt_status load_layers(drafter_loader *l) {
    engine_model *body = &l->d->body;
    int32_t n = body->config.n_layers;
    free(body->layers);
    body->layers = (engine_layer *)calloc((size_t)n, sizeof *body->layers);
    if (!body->layers) return sl_error_no_memory(l->err, l->path);
    for (int32_t i = 0; i < n; i++) {
        snprintf(l->layer, sizeof l->layer, "layers.%d", (int)i);
        TRY(drafter_load_layer(l, &body->layers[i]));
    }
    return SPECRT_STATUS_OK;
}

/* Its own embedding and head, else the target's. */
static specrt_status load_ends(drafter_loader *l) {
    engine_drafter *d = l->d;
    const engine_config *k = &d->body.config;
    if (engine_weights_has(&d->file, "embed_tokens.weight"))
        TRY(engine_weights_matrix(&d->file, "embed_tokens.weight", k->n_vocab, k->d_model,
                                  &d->body.embedding, l->err));
    return drafter_load_head(l, "lm_head.weight");
}

specrt_status engine_block_load(drafter_loader *l) {
    engine_drafter *d = l->d;
    json_object *config = d->file.file.config;
    engine_config *k = &d->body.config;
    block_drafter b;
    sl_block_drafter_st(d->file.file.s, config, &b);
    TRY(refuse_variants(l, &b));
    TRY(drafter_read_config(l));
    TRY(read_block(l, &b));
    k->n_layers = json_object_get_int(sl_json_get(drafter_shape(l), "num_hidden_layers"));
    if (k->n_layers < 1 || k->n_layers > 1024)
        return bad(l, "num_hidden_layers", "1 to 1024", k->n_layers);
    TRY(load_layers(l));
    TRY(engine_weights_matrix(&d->file, "fc.weight", k->d_model, (int64_t)d->n_taps * k->d_model,
                              &d->fc, l->err));
    TRY(engine_weights_vector(&d->file, "hidden_norm.weight", k->d_model, false, &d->feature_norm,
                              l->err));
    TRY(engine_weights_vector(&d->file, "norm.weight", k->d_model, false, &d->final_norm, l->err));
    TRY(load_ends(l));
    if (b.markov) TRY(load_markov(l));
    return load_confidence(l);
}

engine_block engine_drafter_block(const engine_drafter *d) {
    return d->block;
}

/* ---- drafting -------------------------------------------------------------------------------- */

specrt_status engine_block_read(const engine_drafter *d, engine_cache *c, const float *features,
                                int32_t n) {
    const engine_config *k = &c->m->config;
    int32_t nodes[ENGINE_MAX_BATCH];
    if (d->block.size == 0) return SPECRT_STATUS_BAD_ARG;
    engine_cache_truncate(c, engine_cache_length(c)); /* the last block is of no use any more */
    specrt_status status = engine_begin(c, n, NULL);
    if (status != SPECRT_STATUS_OK) return status;
    engine_product(c->m, &d->fc, features, n, c->normed);
    engine_norm(c->normed, d->feature_norm, n, k->d_model, k->rms_epsilon, c->normed);
    for (int32_t i = 0; i < k->n_layers; i++) engine_layer_inject(c, i, c->normed);
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
    return SPECRT_STATUS_OK;
}

specrt_status engine_block_draft(const engine_drafter *d, engine_cache *c, int32_t token, int32_t n,
                                 float *states) {
    const engine_block *b = &d->block;
    const engine_config *k = &c->m->config;
    int32_t tokens[ENGINE_MAX_BATCH], room = c->n_context - c->length;
    int32_t size = b->size < room ? b->size : room; /* a state does not depend on n otherwise */
    if (n < 1 || n > size - b->first || !engine_tokens_valid(d->target, &token, 1))
        return SPECRT_STATUS_BAD_ARG;
    specrt_status status = engine_begin_block(c, size);
    if (status != SPECRT_STATUS_OK) return status;
    for (int32_t i = 0; i < size; i++) tokens[i] = i ? b->mask : token;
    engine_embed(c->m, tokens, size, c->x);
    for (int32_t i = 0; i < k->n_layers; i++) engine_layer_forward(c, i, NULL);
    engine_norm(c->x + (int64_t)b->first * k->d_model, d->final_norm, n, k->d_model, k->rms_epsilon,
                states);
    return SPECRT_STATUS_OK;
}
