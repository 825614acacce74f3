/* block_drafter.c : see block_drafter.h. */
#include "model/block_drafter.h"

#include <string.h>
#include "base/json.h"

/* from_anchor: the first position, which has the text's last token, drafts, too. */
static void finish(block_drafter *b, bool from_anchor) {
    if (b->size < 0) b->size = 0;
    if (b->other_size <= 0) b->other_size = b->size;
    b->n_drafts = from_anchor || b->size == 0 ? b->size : b->size - 1;
}

static void add_tap(block_drafter *b, int64_t layer) {
    if (b->n_taps < BLOCK_DRAFTER_TAPS) b->taps[b->n_taps] = layer;
    if (b->n_taps == 0 || layer < b->least_tap) b->least_tap = layer;
    if (b->n_taps == 0 || layer > b->greatest_tap) b->greatest_tap = layer;
    b->n_taps++;
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* llama.cpp counts inputs of layers: input i is the output of layer i - 1. */
static void read_taps_gguf(const gguf *g, block_drafter *b) {
    const gguf_kv *kv = sl_gguf_find(g, "dflash.target_layers");
    if (!kv || kv->type != GGUF_ARRAY || (kv->elem != GGUF_I32 && kv->elem != GGUF_U32)) return;
    for (uint64_t i = 0; i < kv->count; i++) {
        int32_t layer;
        memcpy(&layer, kv->value + 4 * i, sizeof layer);
        add_tap(b, (int64_t)layer - 1);
    }
}

void sl_block_drafter_gguf(const gguf *g, block_drafter *out) {
    int64_t n_hyper = 0, from_anchor = 1;
    *out = (block_drafter){0};
    out->markov = sl_gguf_find_tensor(g, "markov_w2.weight");
    out->selector = sl_gguf_find_tensor(g, "selector_hidden.weight");
    out->headless =
        !sl_gguf_find_tensor(g, "output.weight") && !sl_gguf_find_tensor(g, "token_embd.weight");
    sl_gguf_get_int(g, "dflash.hyper_connection.count", &n_hyper);
    if (n_hyper > 0)
        out->no_cut = "dflash.hyper_connection.count: expected none: llama.cpp does not spread the "
                      "logits of such a drafter (DeepSeek V4) by d2t";
    sl_gguf_get_int(g, "dflash.block_size", &out->size);
    sl_gguf_get_int(g, "dflash.sample_from_anchor", &from_anchor);
    read_taps_gguf(g, out);
    finish(out, out->markov && from_anchor != 0);
}

/* ---- safetensors ------------------------------------------------------------------------------ */

/* z-lab has the algorithm's keys in an object of their own. */
static json_object *find_own(json_object *config, const char *key) {
    json_object *value = sl_json_get(sl_json_get(config, "dflash_config"), key);
    return value ? value : sl_json_get(config, key);
}

static int64_t number(json_object *value) {
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

/* speculators count as llama.cpp does. */
static void read_taps(json_object *config, block_drafter *b) {
    json_object *ids = sl_json_get(config, "aux_hidden_state_layer_ids");
    int first = ids ? 1 : 0;
    if (!ids) ids = find_own(config, "target_layer_ids");
    for (size_t i = 0; i < sl_json_length(ids); i++) {
        json_object *id = json_object_array_get_idx(ids, i);
        bool whole = json_object_is_type(id, json_type_int);
        add_tap(b, whole ? (int64_t)json_object_get_int(id) - first : -1); /* -1: no layer */
    }
}

/* Kinds that the cut leaves alone, since no engine that runs them reads a d2t. */
static const char *refused_kind(const st *s, json_object *config) {
    json_object *kind = find_own(config, "markov_head_type");
    const char *name = kind ? json_object_get_string(kind) : NULL;
    if (sl_json_get(config, "hc_mult") || sl_st_find(s, "hc_head_fn"))
        return "hc_mult: expected none: engines do not spread the logits of drafters with hyper "
               "connections (DeepSeek V4) by d2t";
    if (sl_st_find(s, "markov_head.gate_proj.weight") || (name && strcmp(name, "gated") == 0))
        return "markov_head_type: expected vanilla, found gated: engines that read d2t have no "
               "gated Markov head";
    if (sl_st_find(s, "markov_head.joint_proj.weight") || (name && strcmp(name, "rnn") == 0))
        return "markov_head_type: expected vanilla, found rnn: engines that read d2t have no "
               "recurrent Markov head";
    if (name && strcmp(name, "vanilla") != 0)
        return "markov_head_type: expected vanilla, found another: engines that read d2t have no "
               "such Markov head";
    return NULL;
}

void sl_block_drafter_st(const st *s, json_object *config, block_drafter *out) {
    json_object *from_anchor = find_own(config, "sample_from_anchor");
    bool is_speculators = sl_json_get(config, "speculators_model_type") != NULL;
    *out = (block_drafter){0};
    out->markov = sl_st_find(s, "markov_head.markov_w1.weight");
    out->selector = sl_st_find(s, "candidate_selector.hidden_projection.weight");
    out->headless = !sl_st_find_prefix(s, "lm_head.");
    out->no_cut = refused_kind(s, config);
    out->size = number(find_own(config, "block_size"));
    out->other_size = number(sl_json_get(config, "block_size"));
    out->mask = number(find_own(config, "mask_token_id"));
    read_taps(config, out);
    finish(out,
           from_anchor ? json_object_get_boolean(from_anchor) : out->markov && !is_speculators);
}
