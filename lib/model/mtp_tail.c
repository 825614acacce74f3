/* mtp_tail.c : see mtp_tail.h. */
#include "model/mtp_tail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_mtp_tail_prefix(const mtp_tail *t, bool is_gguf, int32_t i, char out[MTP_NAME]) {
    if (t->first < 0)
        snprintf(out, MTP_NAME, "mtp.");
    else
        snprintf(out, MTP_NAME, "%s%" PRId32 ".", is_gguf ? "blk." : "model.layers.", t->first + i);
}

void sl_mtp_tail_head(const mtp_tail *t, bool is_gguf, int32_t i, char out[MTP_NAME]) {
    sl_mtp_tail_prefix(t, is_gguf, i, out);
    size_t n = strlen(out);
    snprintf(out + n, MTP_NAME - n, "%s",
             is_gguf ? "nextn.shared_head_head.weight" : "shared_head.head.weight");
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* An integer of the model's own architecture, at least 0; 0: none. */
static int64_t arch_int(const gguf *g, const char *key) {
    gguf_string arch = {"", 0};
    char name[96];
    int64_t value = 0;
    sl_gguf_get_string(g, "general.architecture", &arch);
    snprintf(name, sizeof name, "%.*s.%s", (int)(arch.n > 40 ? 40 : arch.n), arch.s, key);
    return sl_gguf_get_int(g, name, &value) && value > 0 ? value : 0;
}

/* Whether a file has the target's first layer: a sidecar has MTP layers alone. */
static bool has_first_layer(const gguf *g) {
    int64_t n;
    const gguf_tensor *t = sl_gguf_tensors(g, &n);
    for (int64_t i = 0; i < n; i++)
        if (strncmp(t[i].name, "blk.0.", 6) == 0) return true;
    return false;
}

specrt_status sl_mtp_tail_gguf(const gguf *g, const char *path, mtp_tail *out, specrt_error *err) {
    int64_t n = arch_int(g, "nextn_predict_layers"), n_layers = arch_int(g, "block_count");
    char head[MTP_NAME];
    *out = (mtp_tail){0};
    if (n == 0) return SPECRT_STATUS_OK;
    if (n > MTP_MOST_LAYERS || n > n_layers || n_layers > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: nextn_predict_layers: expected at most %d and at most "
                                "block_count, %" PRId64 ", found %" PRId64,
                                path, MTP_MOST_LAYERS, n_layers, n);
    out->n_layers = (int32_t)n;
    out->first = (int32_t)(n_layers - n);
    sl_mtp_tail_head(out, true, 0, head);
    out->own_head = sl_gguf_find_tensor(g, head);
    out->tied = !out->own_head && !sl_gguf_find_tensor(g, "output.weight") &&
                sl_gguf_find_tensor(g, "token_embd.weight");
    out->is_whole = out->first > 0 && has_first_layer(g);
    return SPECRT_STATUS_OK;
}

/* ---- safetensors ------------------------------------------------------------------------------ */

/* The number N of "model.layers.N.eh_proj.weight"; -1: another name. */
static int32_t numbered(const char *name) {
    static const char before[] = "model.layers.";
    char *end;
    if (strncmp(name, before, sizeof before - 1) != 0) return -1;
    long n = strtol(name + sizeof before - 1, &end, 10);
    return n >= 0 && n < 100000 && strcmp(end, ".eh_proj.weight") == 0 ? (int32_t)n : -1;
}

static bool is_layer_of_mtp(const char *name) {
    return strncmp(name, "mtp.layers.", 11) == 0 && strstr(name, ".input_layernorm.weight");
}

static void count_layers(const st *s, mtp_tail *out) {
    int64_t n;
    const st_tensor *t = sl_st_tensors(s, &n);
    bool qwen = sl_st_find(s, "mtp.fc.weight");
    for (int64_t i = 0; i < n; i++) {
        int32_t layer = numbered(t[i].name);
        bool first = strncmp(t[i].name, "model.layers.0.", 15) == 0;
        out->is_whole = out->is_whole || first;
        out->n_layers += qwen ? is_layer_of_mtp(t[i].name) : layer >= 0;
        if (!qwen && layer >= 0 && (out->n_layers == 1 || layer < out->first)) out->first = layer;
    }
    if (qwen) out->first = -1;
    if (qwen && out->n_layers == 0) out->n_layers = 1;
}

specrt_status sl_mtp_tail(const model *m, mtp_tail *out, specrt_error *err) {
    static const char *const embeddings[] = {"model.embed_tokens.weight",
                                             "model.language_model.embed_tokens.weight"};
    char head[MTP_NAME];
    if (m->g) return sl_mtp_tail_gguf(m->g, m->path, out, err);
    *out = (mtp_tail){0};
    count_layers(m->s, out);
    if (out->n_layers == 0) return SPECRT_STATUS_OK;
    sl_mtp_tail_head(out, false, 0, head);
    out->own_head = sl_st_find(m->s, head);
    bool embedding = sl_st_find(m->s, embeddings[0]) || sl_st_find(m->s, embeddings[1]);
    out->tied = !out->own_head && m->tied != 0 && embedding &&
                (m->tied == 1 || !sl_st_find(m->s, "lm_head.weight"));
    return SPECRT_STATUS_OK;
}
