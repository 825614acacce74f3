/* check.c : specrt-bundle check: what engines would load otherwise than it is meant, without a word, each
 * with its fix. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/order.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "recut.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct request {
    const char *drafter, *target, *engine, *keep;
    const cli_common *common;
} request;

/* What the target's folder or file says; 0 and NULL where it says nothing. */
typedef struct target {
    int64_t n_vocab, width;
    tokenizer *tok;
    id_list ends; /* ids that end a text; ids owned */
} target;

/* A drafter under examination. */
typedef struct exam {
    const request *q;
    checkpoint c;
    target t;
    token_map map;   /* the ids of its rows; n = 0: rows are ids, or the list cannot be read */
    int32_t *sorted; /* [map.n] the same ascending; owned */
    json_object *findings; /* {code, engines, what, fix} */
} exam;

/* ---- findings --------------------------------------------------------------------------------- */

/* One that concerns these engines ("vllm sglang"; NULL: all). */
__attribute__((format(printf, 5, 6))) static void
find(exam *e, const char *code, const char *engines, const char *fix, const char *format, ...) {
    char what[512];
    va_list args;
    if (e->q->engine && engines && !strstr(engines, e->q->engine)) return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    json_object *o = json_object_new_object();
    sl_json_put(o, "code", sl_json_text(code));
    sl_json_put(o, "engines", sl_json_text(engines));
    sl_json_put(o, "what", sl_json_text(what));
    sl_json_put(o, "fix", sl_json_text(fix));
    json_object_array_add(e->findings, o);
}

static const char *const EXPORT = "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT";

/* ---- config.json ------------------------------------------------------------------------------ */

static void check_flags(exam *e) {
    const checkpoint *c = &e->c;
    bool biased = sl_checkpoint_has(c, "self_attn.q_proj.bias");
    if (sl_checkpoint_is_set(c, "bias") && !biased)
        find(e, "bias", "vllm",
             "remove \"bias\" from config.json; EAGLE and SGLang read fc.bias "
             "without it, too",
             "config.json: \"bias\": true is taken for biases of the attention, which the weights "
             "do not have: drafts come from memory that nothing set");
    if (sl_checkpoint_is_set(c, "attention_bias") && !biased)
        find(
            e, "attention-bias", NULL, "set \"attention_bias\": false in config.json",
            "config.json: \"attention_bias\": true, and the weights have no self_attn.q_proj.bias");
    if (c->kind != CHECKPOINT_MODEL && sl_checkpoint_is_set(c, "tie_word_embeddings"))
        find(e, "tied", "sglang", "set \"tie_word_embeddings\": false in config.json",
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
    if (e->q->engine && plain && e->c.kind != CHECKPOINT_MODEL)
        find(e, "architecture", "sglang specforge",
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
    if (bias && e->c.kind != CHECKPOINT_MODEL && !is_zero(bias))
        find(e, "fc-bias", "vllm",
             "train fc without a bias for vLLM; it costs some acceptance here",
             "tensor \"fc.bias\" is left out");
    if (e->c.kind == CHECKPOINT_EAGLE3 && sl_st_find(e->c.m.s, "layers.0.self_attn.q_proj.weight"))
        find(e, "layer-name", "sglang specforge", EXPORT,
             "tensors \"layers.0.*\" are left out: the layer of EAGLE-3 is read as \"midlayer.*\"");
}

/* ---- the head and its list -------------------------------------------------------------------- */

static void check_head(exam *e) {
    const checkpoint *c = &e->c;
    int64_t size = sl_checkpoint_number(c, "draft_vocab_size");
    if (c->kind != CHECKPOINT_EAGLE3) return;
    if (!c->head)
        find(e, "no-head", NULL, "convert the drafter with its head",
             "tensor \"lm_head.weight\" is missing: engines take the target's whole head");
    else if (size < 0 && c->n_rows < c->n_vocab)
        find(e, "draft-vocab-size", NULL, "set \"draft_vocab_size\" to the head's rows",
             "config.json: draft_vocab_size: missing; lm_head.weight has %" PRId64 " rows",
             c->n_rows);
    else if (size >= 0 && size != c->n_rows)
        find(e, "draft-vocab-size", NULL, "set \"draft_vocab_size\" to the head's rows",
             "config.json: draft_vocab_size: %" PRId64 "; lm_head.weight has %" PRId64 " rows",
             size, c->n_rows);
    if (c->head && !c->d2t && c->n_rows < c->n_vocab)
        find(e, "no-d2t", NULL,
             "add d2t and t2d from the mapping that the drafter was trained with",
             "tensor \"d2t\" is missing: row i of %" PRId64
             " passes for token i, and most drafts are refused",
             c->n_rows);
}

/* An identity over fewer rows than tokens is what a checkpoint holds whose list was never filled in. */
static void check_filled(exam *e) {
    const checkpoint *c = &e->c;
    if (is_zero(c->d2t) && c->d2t->shape[0] < c->n_vocab)
        find(e, "d2t-zero", NULL,
             "add d2t and t2d from the mapping that the drafter was trained with",
             "tensor \"d2t\" is all zeros: row i passes for token i");
}

static void check_order(exam *e) {
    for (int32_t i = 1; i < e->map.n; i++)
        if (e->map.ids[i] < e->map.ids[i - 1]) {
            find(e, "d2t-order", "specforge", EXPORT,
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
        find(e, "d2t-length", NULL, EXPORT,
             "tensor \"d2t\" has %" PRId64 " entries, and lm_head.weight has %" PRId64 " rows",
             c->d2t->shape[0], c->n_rows);
    check_filled(e);
    if (sl_checkpoint_map(c, TOKEN_MAP_AUTO, &e->map, &why) == SPECRT_STATUS_OK) {
        if (!e->map.was_offset)
            find(e, "d2t-absolute", NULL, EXPORT,
                 "tensor \"d2t\" holds token ids: engines take each for an offset from its row");
        check_order(e);
        return;
    }
    bool offsets = sl_checkpoint_map(c, TOKEN_MAP_OFFSET, &e->map, NULL) == SPECRT_STATUS_OK;
    find(e, offsets && !c->t2d ? "d2t-ambiguous" : "d2t-content", NULL, EXPORT, "%s",
         offsets && !c->t2d ? "tensor \"d2t\" reads as ids, too, and no t2d says which" : why.msg);
    check_order(e);
}

static void check_t2d(exam *e) {
    const checkpoint *c = &e->c;
    if (c->kind != CHECKPOINT_EAGLE3 || !c->d2t) return;
    if (!c->t2d)
        find(e, "no-t2d", "specforge speculators", EXPORT,
             "tensor \"t2d\" is missing, which training reads");
    else if (c->n_vocab && c->t2d->shape[0] != c->n_vocab)
        find(e, "t2d-length", "specforge speculators", EXPORT,
             "tensor \"t2d\" has %" PRId64 " entries; expected %" PRId64 ", vocab_size",
             c->t2d->shape[0], c->n_vocab);
    else if (strcmp(c->t2d->dtype, "BOOL") != 0)
        find(e, "t2d-type", "specforge", EXPORT, "tensor \"t2d\" is %s; expected BOOL",
             c->t2d->dtype);
}

/* ---- beside the target ------------------------------------------------------------------------ */

static void check_sizes(exam *e) {
    const checkpoint *c = &e->c;
    const st_tensor *fc = sl_st_find(c->m.s, "fc.weight");
    int64_t parts = c->kind == CHECKPOINT_EAGLE3 ? 3 : 2;
    if (e->t.n_vocab && c->n_vocab && e->t.n_vocab != c->n_vocab)
        find(e, "vocab-size", NULL, "take the drafter of this target",
             "config.json: vocab_size: %" PRId64 ", and the target has %" PRId64, c->n_vocab,
             e->t.n_vocab);
    if (e->t.width && fc && fc->n_dims == 2 && fc->shape[1] != parts * e->t.width)
        find(e, "width", NULL, "take the drafter of this target",
             "tensor \"fc.weight\" reads %" PRId64 " numbers; expected %" PRId64 ", %" PRId64
             " states of the target's width %" PRId64,
             fc->shape[1], parts * e->t.width, parts, e->t.width);
}

static specrt_status check_tokenizer(exam *e, specrt_error *err) {
    tokenizer *own;
    uint8_t ours[32], theirs[32];
    TRY(sl_tokenizer_of_model_if_known(e->q->drafter, &own, err));
    if (own && e->t.tok) {
        sl_tokenizer_fingerprint(own, ours);
        sl_tokenizer_fingerprint(e->t.tok, theirs);
        if (memcmp(ours, theirs, 32) != 0)
            find(e, "tokenizer", NULL, "take the drafter of this target",
                 "its tokenizer, %s, is another than the target's, %s",
                 sl_text_name(sl_tokenizer_name(own)), sl_text_name(sl_tokenizer_name(e->t.tok)));
    }
    sl_tokenizer_close(own);
    return SPECRT_STATUS_OK;
}

static specrt_status sort_map(exam *e, specrt_error *err) {
    size_t n = (size_t)e->map.n;
    if (n == 0) return SPECRT_STATUS_OK;
    e->sorted = (int32_t *)malloc(n * sizeof *e->sorted);
    if (!e->sorted) return sl_error_no_memory(err, e->q->drafter);
    memcpy(e->sorted, e->map.ids, n * sizeof *e->sorted);
    qsort(e->sorted, n, sizeof *e->sorted, sl_order_i32);
    return SPECRT_STATUS_OK;
}

/* How many of ids [n] the head has no row for, and the first of them. */
static int32_t count_missing(const exam *e, const int32_t *ids, int32_t n, int32_t *first) {
    int32_t missing = 0;
    for (int32_t i = n - 1; e->map.n > 0 && i >= 0; i--) {
        if (bsearch(&ids[i], e->sorted, (size_t)e->map.n, sizeof *ids, sl_order_i32)) continue;
        missing++;
        *first = ids[i];
    }
    return missing;
}

static void check_ends(exam *e) {
    int32_t first = 0, n = count_missing(e, e->t.ends.ids, (int32_t)e->t.ends.n, &first);
    if (n > 0)
        find(e, "terminators", NULL,
             "train for a list that has them: vocabtrim-calibrate puts them first",
             "%" PRId32 " of the target's %zu terminators have no row (%" PRId32
             "): the end of a text is never drafted",
             n, e->t.ends.n, first);
}

static specrt_status check_bytes(exam *e, specrt_error *err) {
    int32_t *ids, n, first = 0;
    TRY(sl_tokenizer_byte_tokens(e->t.tok, &ids, &n, err));
    int32_t missing = count_missing(e, ids, n, &first);
    free(ids);
    if (missing > 0)
        find(e, "bytes", NULL, "vocabtrim-calibrate --keep bytes, and train for that list",
             "%" PRId32 " of %" PRId32 " tokens of one byte have no row (%" PRId32
             "): what is spelt by bytes is not drafted",
             missing, n, first);
    return SPECRT_STATUS_OK;
}

/* ---- the target ------------------------------------------------------------------------------- */

static specrt_status add_end(target *t, int32_t id, specrt_error *err) {
    for (size_t i = 0; i < t->ends.n; i++)
        if (t->ends.ids[i] == id) return SPECRT_STATUS_OK;
    int32_t *grown = (int32_t *)realloc(t->ends.ids, (t->ends.n + 1) * sizeof *grown);
    if (!grown) return sl_error_no_memory(err, "terminators");
    t->ends.ids = grown;
    t->ends.ids[t->ends.n++] = id;
    return SPECRT_STATUS_OK;
}

/* eos_token_id is a number or a list. */
static specrt_status add_ends_of(target *t, json_object *config, specrt_error *err) {
    json_object *ends = NULL;
    json_object_object_get_ex(config, "eos_token_id", &ends);
    bool list = json_object_is_type(ends, json_type_array);
    size_t n =
        list ? json_object_array_length(ends) : (size_t)json_object_is_type(ends, json_type_int);
    for (size_t i = 0; i < n && i < SPECRT_MAX_TERMINATORS; i++) {
        json_object *id = list ? json_object_array_get_idx(ends, i) : ends;
        if (json_object_is_type(id, json_type_int)) TRY(add_end(t, json_object_get_int(id), err));
    }
    return SPECRT_STATUS_OK;
}

static int64_t number(json_object *config, const char *key) {
    json_object *value, *text;
    if (!json_object_object_get_ex(config, key, &value) &&
        !(json_object_object_get_ex(config, "text_config", &text) &&
          json_object_object_get_ex(text, key, &value)))
        return 0;
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

static specrt_status open_folder(target *t, const char *folder, specrt_error *err) {
    static const char *const names[] = {"config.json", "generation_config.json"};
    char path[4096];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        json_object *config;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (i > 0 && stat(path, &info) != 0) continue;
        TRY(sl_checkpoint_read_json(path, &config, err));
        if (i == 0) t->n_vocab = number(config, "vocab_size");
        if (i == 0) t->width = number(config, "hidden_size");
        specrt_status status = add_ends_of(t, config, err);
        json_object_put(config);
        TRY(status);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_file(target *t, const char *path, specrt_error *err) {
    model m;
    specrt_head_desc head;
    TRY(sl_model_open(path, &m, err));
    specrt_status status = sl_model_head(&m, NULL, &head, NULL, err);
    t->n_vocab = head.n_rows;
    t->width = head.n_cols;
    sl_model_close(&m);
    return status;
}

static specrt_status open_target(target *t, const char *path, specrt_error *err) {
    struct stat info;
    int32_t n = 0;
    if (!path) return SPECRT_STATUS_OK;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    TRY(folder ? open_folder(t, path, err) : open_file(t, path, err));
    TRY(sl_tokenizer_of_model_if_known(path, &t->tok, err));
    const int32_t *ends = t->tok ? sl_tokenizer_terminators(t->tok, &n) : NULL;
    for (int32_t i = 0; i < n; i++) TRY(add_end(t, ends[i], err));
    return SPECRT_STATUS_OK;
}

/* ---- the verb --------------------------------------------------------------------------------- */

static specrt_status examine(exam *e, specrt_error *err) {
    TRY(sl_checkpoint_open(e->q->drafter, true, &e->c, err));
    TRY(open_target(&e->t, e->q->target, err));
    if (e->q->keep && !e->t.tok)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: --keep bytes: expected a tokenizer in the target's folder, "
                                "found none that is read",
                                e->q->target);
    check_flags(e);
    check_architecture(e);
    check_names(e);
    check_head(e);
    check_d2t(e);
    check_t2d(e);
    check_sizes(e);
    TRY(sort_map(e, err));
    TRY(check_tokenizer(e, err));
    check_ends(e);
    return e->q->keep ? check_bytes(e, err) : SPECRT_STATUS_OK;
}

static void print_findings(const exam *e) {
    size_t n = json_object_array_length(e->findings);
    const char *keys[] = {"code", "engines", "what", "fix"}, *text[4];
    for (size_t i = 0; i < n; i++) {
        json_object *o = json_object_array_get_idx(e->findings, i), *value;
        for (int k = 0; k < 4; k++)
            text[k] = json_object_object_get_ex(o, keys[k], &value) && value
                          ? json_object_get_string(value)
                          : "every engine";
        printf("%s (%s): %s\n    fix: %s\n", text[0], text[1], text[2], text[3]);
    }
    if (n == 0)
        sl_cli_info("%s: %s, nothing found", e->q->drafter, sl_checkpoint_kind_name(e->c.kind));
}

/* @return the exit code */
static int report(const exam *e) {
    bool ok = json_object_array_length(e->findings) == 0;
    specrt_error err;
    if (!e->q->common->json) {
        print_findings(e);
    } else {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(e->q->drafter));
        sl_json_put(o, "kind", sl_json_text(sl_checkpoint_kind_name(e->c.kind)));
        sl_json_put(o, "engine", sl_json_text(e->q->engine));
        sl_json_put(o, "target", sl_json_text(e->q->target));
        sl_json_put(o, "ok", json_object_new_boolean(ok));
        sl_json_put(o, "findings", json_object_get(e->findings));
        sl_json_print(o);
    }
    if (sl_out_flush_stdout(&err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    return ok ? CLI_OK : CLI_INVALID;
}

static int start(const request *q) {
    specrt_error err;
    exam e = {.q = q, .findings = json_object_new_array()};
    specrt_status status = e.findings ? examine(&e, &err) : sl_error_no_memory(&err, q->drafter);
    int code = status == SPECRT_STATUS_OK ? report(&e) : sl_cli_fail(&err);
    json_object_put(e.findings);
    sl_token_map_free(&e.map);
    free(e.sorted);
    sl_tokenizer_close(e.t.tok);
    free(e.t.ends.ids);
    if (e.c.m.path) sl_checkpoint_close(&e.c);
    return code;
}

static int check(const request *q) {
    if (q->engine && !recut_is_engine(q->engine))
        return sl_cli_usage("--for: expected one of %s, found '%s'", recut_engines(), q->engine);
    if (q->keep && strcmp(q->keep, "bytes") != 0)
        return sl_cli_usage("--keep: expected bytes, found '%s'", q->keep);
    if (q->keep && !q->target)
        return sl_cli_usage("--keep bytes: expected the target (--target DIR)");
    return -1;
}

int check_main(int argc, char **argv) {
    request q = {0};
    const cli_option options[] = {
        sl_cli_string("target", "DIR", &q.target, "the model it drafts for: a folder or a GGUF"),
        sl_cli_string("for", "ENGINE", &q.engine,
                      "vllm sglang specforge speculators llama.cpp (default: what concerns any)"),
        sl_cli_string("keep", "bytes", &q.keep, "ask for a row for every token of one byte, too"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle check drafter/ --target llama3/ --for vllm",
        "Says what engines would load otherwise than it is meant, and never tell: each finding\n"
        "with its fix. Exit code 3 where there is one. docs/TOKEN_MAPS.md has what engines do.",
        "specrt-bundle check DIR [--target DIR] [--for ENGINE] [--keep bytes]", options};
    cli_common common;
    cli_list rest;
    int code = verb_start(&tool, argc, argv, &common, &rest, 1, 1, "one drafter");
    if (code >= 0) return code;
    q.drafter = rest.items[0];
    q.common = &common;
    code = check(&q);
    if (code < 0) code = start(&q);
    sl_cli_list_free(&rest);
    return code;
}
