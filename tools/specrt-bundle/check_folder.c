/* check_folder.c : a drafter in safetensors, as engines load it. */
#include "check.h"

#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "recut.h"

static const char *const MAPPING =
    "add d2t and t2d from the mapping that the drafter was trained with";
static const char *const EXPORT = "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT";

/* ---- config.json ------------------------------------------------------------------------------ */

/* Whether it has a head for listed tokens. MTP layers and block drafters that nobody cut have none. */
static bool is_cut(const checkpoint *c) {
    int64_t size = sl_checkpoint_number(c, "draft_vocab_size");
    bool says_size = size >= 0 && size != c->n_vocab;
    bool optional = c->kind == CHECKPOINT_MTP || c->kind == CHECKPOINT_BLOCK;
    return c->kind == CHECKPOINT_EAGLE3 || (optional && (c->d2t || says_size));
}

static bool is_eagle(const checkpoint *c) {
    return c->kind == CHECKPOINT_EAGLE || c->kind == CHECKPOINT_EAGLE3;
}

static bool is_drafter(const checkpoint *c) {
    return c->kind == CHECKPOINT_EAGLE || is_cut(c);
}

static void check_flags(exam *e) {
    const checkpoint *c = &e->c;
    bool biased = sl_checkpoint_has(c, "self_attn.q_proj.bias");
    if (sl_checkpoint_is_set(c, "bias") && !biased)
        exam_find(
            e, "bias", "vllm",
            "remove \"bias\" from config.json; EAGLE and SGLang read fc.bias "
            "without it, too",
            "config.json: \"bias\": true is taken for biases of the attention, which the weights "
            "do not have: drafts come from memory that nothing set");
    if (sl_checkpoint_is_set(c, "attention_bias") && !biased)
        exam_find(
            e, "attention-bias", NULL, "set \"attention_bias\": false in config.json",
            "config.json: \"attention_bias\": true, and the weights have no self_attn.q_proj.bias");
    if (is_drafter(c) && sl_checkpoint_is_set(c, "tie_word_embeddings"))
        exam_find(
            e, "tied", "sglang", "set \"tie_word_embeddings\": false in config.json",
            "config.json: \"tie_word_embeddings\": true: the embedding, which is the target's, is "
            "taken for the head");
}

/* Both classes are named after the target by EAGLE's own files; only some engines add what is missing. */
static void check_architecture(exam *e) {
    json_object *list = NULL;
    const char *name = "";
    json_object_object_get_ex(e->c.config, "architectures", &list);
    if (json_object_is_type(list, json_type_array) && json_object_array_length(list) > 0)
        name = json_object_get_string(json_object_array_get_idx(list, 0));
    bool plain = name && strcmp(name, "LlamaForCausalLM") == 0;
    if (e->q->engine && plain && is_eagle(&e->c))
        exam_find(e, "architecture", "sglang specforge",
                  e->c.kind == CHECKPOINT_EAGLE3 ? "name LlamaForCausalLMEagle3"
                                                 : "name LlamaForCausalLMEagle",
                  "config.json: architectures: LlamaForCausalLM is loaded as a whole Llama");
}

static bool is_zero(const st_tensor *t) {
    for (size_t i = 0; i < t->bytes; i++)
        if (t->data[i]) return false;
    return true;
}

static void check_names(exam *e) {
    const st_tensor *bias = sl_st_find(e->c.m.s, "fc.bias");
    if (bias && is_eagle(&e->c) && !is_zero(bias))
        exam_find(e, "fc-bias", "vllm",
                  "train fc without a bias for vLLM; it costs some acceptance here",
                  "tensor \"fc.bias\" is left out");
    if (e->c.kind == CHECKPOINT_EAGLE3 && sl_st_find(e->c.m.s, "layers.0.self_attn.q_proj.weight"))
        exam_find(
            e, "layer-name", "sglang specforge", EXPORT,
            "tensors \"layers.0.*\" are left out: the layer of EAGLE-3 is read as \"midlayer.*\"");
}

/* ---- the head and its list -------------------------------------------------------------------- */

static void check_head(exam *e) {
    const checkpoint *c = &e->c;
    int64_t size = sl_checkpoint_number(c, "draft_vocab_size");
    if (!is_cut(c)) return;
    if (!c->head && c->tail.tied)
        exam_find(
            e, "tied-head", NULL, EXPORT,
            "the head is tied to the embedding and not cut: drafts are scored by the whole of "
            "it");
    else if (!c->head)
        exam_find(e, "no-head", NULL,
                  "specrt-bundle export BUNDLE --drafter DIR --for ENGINE --target TARGET -o OUT",
                  "tensor \"lm_head.weight\" is missing: engines take the target's whole head");
    else if (size < 0 && c->n_rows < c->n_vocab)
        exam_find(e, "draft-vocab-size", NULL, "set \"draft_vocab_size\" to the head's rows",
                  "config.json: draft_vocab_size: missing; lm_head.weight has %" PRId64 " rows",
                  c->n_rows);
    else if (size >= 0 && size != c->n_rows)
        exam_find(e, "draft-vocab-size", NULL, "set \"draft_vocab_size\" to the head's rows",
                  "config.json: draft_vocab_size: %" PRId64 "; lm_head.weight has %" PRId64 " rows",
                  size, c->n_rows);
    if (c->head && !c->d2t && c->n_rows < c->n_vocab)
        exam_find(e, "no-d2t", NULL, MAPPING,
                  "tensor \"d2t\" is missing: row i of %" PRId64
                  " passes for token i, and most drafts are refused",
                  c->n_rows);
}

/* An identity over fewer rows than tokens is what a checkpoint holds whose list was never filled in. */
static void check_filled(exam *e) {
    const checkpoint *c = &e->c;
    if (is_zero(c->d2t) && c->d2t->shape[0] < c->n_vocab)
        exam_find(e, "d2t-zero", NULL, MAPPING,
                  "tensor \"d2t\" is all zeros: row i passes for token i");
}

static void check_order(exam *e) {
    for (int32_t i = 1; i < e->map.n; i++)
        if (e->map.ids[i] < e->map.ids[i - 1]) {
            exam_find(e, "d2t-order", "specforge", EXPORT,
                      "tensor \"d2t\": row %" PRId32 " is token %" PRId32 " behind token %" PRId32
                      "; SpecForge wants them ascending",
                      i, e->map.ids[i], e->map.ids[i - 1]);
            return;
        }
}

/* Engines add the row's number to every entry. What fits only as it stands were ids. */
static void check_d2t(exam *e) {
    const checkpoint *c = &e->c;
    specrt_error why;
    if (!c->d2t) return;
    if (c->d2t->shape[0] != c->n_rows)
        exam_find(e, "d2t-length", NULL, MAPPING,
                  "tensor \"d2t\" has %" PRId64 " entries, and lm_head.weight has %" PRId64 " rows",
                  c->d2t->shape[0], c->n_rows);
    check_filled(e);
    if (sl_checkpoint_map(c, TOKEN_MAP_AUTO, &e->map, &why) == SPECRT_STATUS_OK) {
        if (!e->map.was_offset)
            exam_find(
                e, "d2t-absolute", NULL, EXPORT,
                "tensor \"d2t\" holds token ids: engines take each for an offset from its row");
        check_order(e);
        return;
    }
    bool offsets = sl_checkpoint_map(c, TOKEN_MAP_OFFSET, &e->map, NULL) == SPECRT_STATUS_OK;
    if (offsets && !c->t2d)
        exam_find(e, "d2t-ambiguous", NULL,
                  "say which by export --values absolute or offset, which adds t2d",
                  "tensor \"d2t\" reads as ids, too, and no t2d says which");
    else
        exam_find(e, "d2t-content", NULL, MAPPING, "%s", why.msg);
    check_order(e);
}

static void check_t2d(exam *e) {
    const checkpoint *c = &e->c;
    if (!is_cut(c) || !c->d2t) return;
    if (!c->t2d)
        exam_find(e, "no-t2d", "specforge speculators", EXPORT,
                  "tensor \"t2d\" is missing, which training reads");
    else if (c->n_vocab && c->t2d->shape[0] != c->n_vocab)
        exam_find(e, "t2d-length", "specforge speculators", EXPORT,
                  "tensor \"t2d\" has %" PRId64 " entries; expected %" PRId64 ", vocab_size",
                  c->t2d->shape[0], c->n_vocab);
    else if (strcmp(c->t2d->dtype, "BOOL") != 0)
        exam_find(e, "t2d-type", "specforge", EXPORT, "tensor \"t2d\" is %s; expected BOOL",
                  c->t2d->dtype);
}

/* ---- beside the target ------------------------------------------------------------------------ */

static void check_sizes(exam *e) {
    const checkpoint *c = &e->c;
    const st_tensor *fc = sl_st_find(c->m.s, "fc.weight");
    int64_t parts = c->kind == CHECKPOINT_EAGLE3 ? 3 : 2;
    if (is_cut(c) && !c->n_vocab)
        exam_find(e, "vocab-size", NULL, "set \"vocab_size\" to the target's",
                  "config.json: vocab_size: missing");
    if (e->q->engine && is_cut(c) && !recut_reads_config(e->q->engine, c))
        exam_find(e, "config-form", e->q->engine, "convert the drafter with speculators",
                  "config.json: its form, EAGLE's own or that of speculators, is not read by %s",
                  e->q->engine);
    if (e->t.n_vocab && c->n_vocab && e->t.n_vocab != c->n_vocab)
        exam_find(e, "vocab-size", NULL, "take the drafter of this target",
                  "config.json: vocab_size: %" PRId64 ", and the target has %" PRId64, c->n_vocab,
                  e->t.n_vocab);
    bool pairs = c->kind != CHECKPOINT_BLOCK; /* whose fc reads any number of states */
    if (pairs && e->t.width && fc && fc->n_dims == 2 && fc->shape[1] != parts * e->t.width)
        exam_find(e, "width", NULL, "take the drafter of this target",
                  "tensor \"fc.weight\" reads %" PRId64 " numbers; expected %" PRId64 ", %" PRId64
                  " states of the target's width %" PRId64,
                  fc->shape[1], parts * e->t.width, parts, e->t.width);
}

static void check_engine(exam *e) {
    const char *engine = e->q->engine, *reason = engine ? recut_refuses(engine, &e->c) : NULL;
    bool is_mtp = e->c.kind == CHECKPOINT_MTP;
    if (reason && is_cut(&e->c))
        exam_find(e, is_mtp ? "mtp-head" : "block-head", engine,
                  is_mtp
                      ? "docs/mtp.md has what this engine takes for MTP layers"
                      : "draft with the whole file; docs/block-drafters.md has what engines take",
                  "a cut head is of no use here: %s", reason);
}

specrt_status exam_folder(exam *e, specrt_error *err) {
    TRY(sl_checkpoint_open(e->q->drafter, true, &e->c, err));
    e->kind = e->c.words;
    check_flags(e);
    check_architecture(e);
    check_names(e);
    check_head(e);
    check_d2t(e);
    check_t2d(e);
    check_sizes(e);
    check_engine(e);
    TRY(exam_ordered(e, err));
    if (e->c.kind == CHECKPOINT_BLOCK) exam_block(e, &e->c.m, &e->c.block, e->c.n_vocab);
    return e->c.head ? exam_rows(e, &e->c.m, e->c.head->name, err) : SPECRT_STATUS_OK;
}
