/* check_file.c : GGUF drafters whose heads are cut, and lists for engines that gather rows themselves. */
#include "check.h"

#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "model/vocab_groups.h"

static const char *const RECUT =
    "specrt-bundle export BUNDLE --drafter FILE --for llama.cpp -o OUT.gguf, from the whole file";
static const char *const RELIST =
    "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o FILE, with a bundle of this target";

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* Engines that read a cut head at all. */
static void check_arch(exam *e, const gguf *g, const checkpoint_id *id) {
    gguf_string arch = {"", 0};
    sl_gguf_get_string(g, "general.architecture", &arch);
    if (id->block.no_cut)
        exam_find(e, "architecture", "llama.cpp", "draft with the whole file", "%s",
                  id->block.no_cut);
    if (id->kind == CHECKPOINT_EAGLE3 || id->kind == CHECKPOINT_BLOCK || !e->q->engine) return;
    exam_find(
        e, "architecture", "llama.cpp",
        id->tail.n_layers ? "build llama.cpp with its pull request 29143"
                          : "draft with the whole file in specrt-llama --policy static:N",
        "architecture %.*s: releases of llama.cpp read d2t of eagle3 and dflash alone, and do "
        "not load this file",
        (int)(arch.n > 40 ? 40 : arch.n), arch.s);
}

/* Ids of the tokenizer in it; 0 where it has none. */
static int64_t count_tokens(const gguf *g) {
    const gguf_kv *tokens = sl_gguf_find(g, "tokenizer.ggml.tokens");
    return tokens ? (int64_t)tokens->count : 0;
}

/* A head of another length than d2t. */
static void check_length(exam *e, const gguf *g, const char *name, int64_t n) {
    const gguf_tensor *head = sl_gguf_find_tensor(g, name);
    if (head && head->n_dims == 2 && head->dims[1] != n)
        exam_find(e, "d2t-length", NULL, RECUT,
                  "tensor \"d2t\" has %" PRId64 " entries, and %s has %" PRId64 " rows", n, name,
                  head->dims[1]);
}

/* The name of the head that the list is for; NULL: there is none. */
static const char *check_heads(exam *e, const gguf *g, const mtp_tail *tail, int64_t n,
                               char name[MTP_NAME]) {
    const gguf_tensor *output = sl_gguf_find_tensor(g, "output.weight");
    for (int32_t i = tail->n_layers - 1; i >= 0; i--) {
        sl_mtp_tail_head(tail, true, i, name);
        check_length(e, g, name, n);
    }
    int64_t n_tokens = count_tokens(g);
    if (tail->is_whole && output && output->dims[1] == n && (!n_tokens || n < n_tokens))
        exam_find(e, "target-head", NULL, RECUT,
                  "tensor \"output.weight\" is cut, which the model's own layers score with");
    if (tail->own_head) return name;
    if (!tail->is_whole && output) {
        check_length(e, g, "output.weight", n);
        return "output.weight";
    }
    exam_find(e, "tied-head", NULL, RECUT,
              "there is a d2t of %" PRId64 " entries and no head that is cut: drafts are scored by "
              "the whole %s",
              n, output ? "output.weight" : "embedding, which is tied to the head");
    return NULL;
}

/* Engines that read a drafter's folder of safetensors alone. */
static void check_container(exam *e) {
    if (e->q->engine)
        exam_find(e, "gguf", "vllm sglang specforge speculators",
                  "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT, from the folder",
                  "is a GGUF: this engine loads drafters as folders of safetensors");
}

static specrt_status examine_gguf(exam *e, model *m, specrt_error *err) {
    const gguf_tensor *d2t = sl_gguf_find_tensor(m->g, "d2t");
    char name[MTP_NAME];
    specrt_error why;
    checkpoint_id id;
    TRY(sl_checkpoint_identify(m, &id, err));
    e->kind = id.words;
    check_container(e);
    if (id.kind == CHECKPOINT_BLOCK) exam_block(e, m, &id.block, count_tokens(m->g));
    if (!d2t) return SPECRT_STATUS_OK;
    check_arch(e, m->g, &id);
    if (sl_token_map_read(e->q->drafter, NULL, &e->map, &why) != SPECRT_STATUS_OK) {
        exam_find(e, "d2t-content", NULL, RECUT, "%s", why.msg);
        return SPECRT_STATUS_OK;
    }
    const char *head = check_heads(e, m->g, &id.tail, d2t->dims[0], name);
    return head ? exam_rows(e, m, head, err) : SPECRT_STATUS_OK;
}

specrt_status exam_gguf(exam *e, specrt_error *err) {
    model m;
    TRY(sl_model_open(e->q->drafter, &m, err));
    specrt_status status = examine_gguf(e, &m, err);
    sl_model_close(&m);
    return status;
}

/* ---- lists ------------------------------------------------------------------------------------ */

static bool is_for(const exam *e, const char *engine) {
    return e->q->engine && strcmp(e->q->engine, engine) == 0;
}

/* What does not fit as a whole is no list; what reads as offsets, too, is meant as ids by these engines. */
static specrt_status read_list(exam *e, specrt_error *err) {
    token_map_options o = {.values = is_for(e, "exllamav3") ? TOKEN_MAP_BLOCKS : TOKEN_MAP_AUTO};
    specrt_error why;
    specrt_status status = sl_token_map_read(e->q->drafter, &o, &e->map, &why);
    o.values = TOKEN_MAP_ABSOLUTE;
    if (status == SPECRT_STATUS_BAD_INPUT && !is_for(e, "exllamav3"))
        status = sl_token_map_read(e->q->drafter, &o, &e->map, &why);
    if (status == SPECRT_STATUS_OK) return SPECRT_STATUS_OK;
    if (status != SPECRT_STATUS_BAD_INPUT) return specrt_error_set(err, status, "%s", why.msg);
    exam_find(e, "list", NULL, RELIST, "%s", why.msg);
    return SPECRT_STATUS_OK;
}

static void check_range(exam *e) {
    int32_t n = 0, first = 0;
    for (int32_t i = e->map.n - 1; i >= 0; i--)
        if (e->t.n_vocab && e->map.ids[i] >= e->t.n_vocab) {
            n++;
            first = e->map.ids[i];
        }
    if (n > 0)
        exam_find(e, "ids-range", NULL, RELIST,
                  "%" PRId32 " ids are no rows of the target's head, which has %" PRId64
                  " (%" PRId32 ")",
                  n, e->t.n_vocab, first);
}

/* See engines.c. */
static void check_sglang(exam *e) {
    if (e->t.n_mtp < 1 || !is_for(e, "sglang")) return;
    if (e->t.tied)
        exam_find(e, "tied-head", "sglang", "start SGLang without a list for this target",
                  "the head is tied to the embedding: SGLang scores MTP layers by the whole of it "
                  "and takes wrong tokens from a list");
    if (e->t.n_mtp > 1)
        exam_find(e, "mtp-layers", "sglang", "start SGLang without a list for this target",
                  "of %" PRId64
                  " MTP layers SGLang scores each by the whole head: the list is left "
                  "out",
                  e->t.n_mtp);
}

specrt_status exam_list(exam *e, specrt_error *err) {
    TRY(read_list(e, err));
    e->kind = e->map.kind ? e->map.kind : "a list";
    if (is_for(e, "exllamav3") && e->map.n > 0 && !sl_vocab_groups_whole(e->map.ids, e->map.n))
        exam_find(e, "groups", "exllamav3", RELIST,
                  "blocks are no whole groups of %d ids, ascending: exllamav3 refuses them",
                  VOCAB_GROUP);
    check_range(e);
    if (e->map.n_vocab && e->t.n_vocab && e->map.n_vocab != e->t.n_vocab)
        exam_find(e, "t2d-length", "specforge speculators",
                  "specrt-bundle export BUNDLE --format F --n-vocab N -o FILE",
                  "t2d has %" PRId32 " entries; expected %" PRId64
                  ", the rows of the target's head",
                  e->map.n_vocab, e->t.n_vocab);
    check_sglang(e);
    return SPECRT_STATUS_OK;
}
