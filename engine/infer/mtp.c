/* mtp.c : multi-token prediction modules (DeepSeek-AI 2024, arXiv 2412.19437), the drafters that models bring
 * with them: norms of the next token's embedding and of the state before it, eh_proj of the two, embedding
 * first, one layer of the target's kind, and a norm before the head. */
#include "engine/infer/drafter.h"

#include <stdio.h>
#include "base/error.h"

/* How files of one family name what a module has beside its layer, after a prefix. */
struct mtp_names {
    const char *prefix; /* what comes before the layer's number, or all of it */
    bool numbered;
    const char *layer; /* the layer's own, after the prefix */
    const char *projection, *embedding_norm, *state_norm, *final_norm;
    const char *embedding, *head; /* of its own, which may be absent; NULL: never there */
    bool raw_state; /* the next step reads the state before the final norm, not after it */
};

static const mtp_names families[] = {
    {.prefix = "blk.", /* GGUF, as llama.cpp names and runs them */
     .numbered = true,
     .layer = "",
     .projection = ".nextn.eh_proj.weight",
     .embedding_norm = ".nextn.enorm.weight",
     .state_norm = ".nextn.hnorm.weight",
     .final_norm = ".nextn.shared_head_norm.weight",
     .embedding = ".nextn.embed_tokens.weight",
     .head = ".nextn.shared_head_head.weight"},
    {.prefix = "model.layers.", /* DeepSeek-V3, and GLM after it; as vLLM runs them */
     .numbered = true,
     .layer = "",
     .projection = ".eh_proj.weight",
     .embedding_norm = ".enorm.weight",
     .state_norm = ".hnorm.weight",
     .final_norm = ".shared_head.norm.weight",
     .embedding = ".embed_tokens.weight",
     .head = ".shared_head.head.weight",
     .raw_state = true},
    {.prefix = "mtp", /* Qwen3-Next and 3.5; as vLLM runs them */
     .layer = ".layers.0",
     .projection = ".fc.weight",
     .embedding_norm = ".pre_fc_norm_embedding.weight",
     .state_norm = ".pre_fc_norm_hidden.weight",
     .final_norm = ".norm.weight"},
};
enum { N_FAMILIES = sizeof families / sizeof families[0], MOST_LAYERS = 1024 };

static const char *name_of(const drafter_loader *l, const char *what, char out[DRAFTER_NAME]) {
    snprintf(out, DRAFTER_NAME, "%s%s", l->module, what);
    return out;
}

/* Of several modules the first one, which drafts every step. */
static bool find_module(drafter_loader *l) {
    char name[DRAFTER_NAME];
    for (int i = 0; i < N_FAMILIES; i++) {
        const mtp_names *f = l->mtp = &families[i];
        for (int n = 0; n < (f->numbered ? MOST_LAYERS : 1); n++) {
            snprintf(l->module, sizeof l->module, f->numbered ? "%s%d" : "%s", f->prefix, n);
            l->index = n;
            if (engine_weights_has(&l->d->file, name_of(l, f->projection, name))) return true;
        }
    }
    return false;
}

/* A whole model that is narrower or wider than the target drafts by itself, whatever its tail. */
bool engine_mtp_is_drafter(drafter_loader *l) {
    const engine_weights *file = &l->d->file;
    int64_t n_rows, width;
    if (!find_module(l)) return false;
    return !file->file.g || !engine_weights_has(file, "blk.0.attn_norm.weight") ||
           !engine_weights_shape(file, "token_embd.weight", &n_rows, &width) ||
           width == l->d->target->config.d_model;
}

/* Its own embedding, else the target's. */
static specrt_status load_embedding(drafter_loader *l) {
    engine_model *body = &l->d->body;
    const engine_config *k = &body->config;
    char name[DRAFTER_NAME];
    if (!l->mtp->embedding || !engine_weights_has(&l->d->file, name_of(l, l->mtp->embedding, name)))
        return SPECRT_STATUS_OK;
    return engine_weights_matrix(&l->d->file, name, k->n_vocab, k->d_model, &body->embedding,
                                 l->err);
}

/* Its own head; of a module that was cut alone the one beside it; else the target's, by a name that is in no
 * file. */
static const char *head_name(const drafter_loader *l, char out[DRAFTER_NAME]) {
    const engine_weights *file = &l->d->file;
    if (l->mtp->head && engine_weights_has(file, name_of(l, l->mtp->head, out))) return out;
    if (!engine_weights_has(file, "d2t")) return "";
    return file->file.g ? "output.weight" : "lm_head.weight";
}

specrt_status engine_mtp_load(drafter_loader *l) {
    engine_drafter *d = l->d;
    engine_weights *file = &d->file;
    const mtp_names *f = l->mtp;
    int64_t width = d->body.config.d_model;
    char name[DRAFTER_NAME];
    d->raw_state = f->raw_state;
    TRY(engine_weights_matrix(file, name_of(l, f->projection, name), width, 2 * width, &d->fc,
                              l->err));
    TRY(engine_weights_vector(file, name_of(l, f->embedding_norm, name), width, false,
                              &d->embedding_norm, l->err));
    TRY(engine_weights_vector(file, name_of(l, f->state_norm, name), width, false, &d->feature_norm,
                              l->err));
    TRY(engine_weights_vector(file, name_of(l, f->final_norm, name), width, false, &d->final_norm,
                              l->err));
    TRY(load_embedding(l));
    snprintf(l->layer, sizeof l->layer, "%s%s", l->module, f->layer);
    return drafter_load_head(l, head_name(l, name));
}
