/* recut.c : see recut.h. Only tensors and keys that must change do: a drafter cut to all of its ids comes out
 * byte for byte. */
#include "recut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "model/checkpoint.h"
#include "model/head_cut.h"
#include "model/token_pick.h"
#include "drafter_folder.h"

/* How an engine wants a drafter. */
static const struct engine {
    const char *name;
    const char *layer;                   /* how EAGLE-3's layer is named; NULL: as it is */
    bool reads_plain, reads_speculators; /* kinds of config.json */
    bool takes_map;            /* a token map beside a drafter that scores by the target's head */
    bool bias_is_of_attention; /* of the key "bias", which EAGLE says of fc */
    /* Why it takes none of these with a cut head; NULL: it does. */
    const char *no_mtp, *no_block, *no_selector;
} engines[] = {
    {"vllm", NULL, true, true, false, true,
     "vLLM scores MTP layers with the target's whole head, whatever head they bring", NULL,
     "vLLM's selector takes the number of a row for a token, whatever d2t says"},
    {"sglang", "midlayer.", true, false, true, false, "SGLang takes a list for them",
     "SGLang scores blocks with the target's whole head, and reads no d2t of such a drafter", NULL},
    {"specforge", "midlayer.", true, false, false, false, "SpecForge does not read them",
     "SpecForge reads no d2t of such a drafter", NULL},
    {"speculators", "layers.0.", false, true, false, false,
     "speculators reads MTP layers with the whole vocabulary alone", NULL,
     "speculators wants the whole vocabulary of a drafter with a selector"},
    {"llama.cpp", NULL, true, true, false, false,
     "convert the model (convert_hf_to_gguf.py, --mtp for the layers alone) and cut the GGUF",
     "convert the drafter (convert_hf_to_gguf.py --target-model-dir TARGET) and cut the GGUF",
     NULL},
    {"specrt", NULL, true, true, false, false, NULL, NULL, "our engine runs no selector"},
};
enum { N_ENGINES = sizeof engines / sizeof engines[0] };

const char *recut_engines(void) {
    return "vllm, sglang, specforge, speculators, llama.cpp, specrt";
}

static const struct engine *find_engine(const char *name) {
    for (int i = 0; i < N_ENGINES; i++)
        if (strcmp(engines[i].name, name) == 0) return &engines[i];
    return NULL;
}

bool recut_is_engine(const char *name) {
    return find_engine(name) != NULL;
}

const char *recut_refuses(const char *engine, const checkpoint *c) {
    const struct engine *e = find_engine(engine);
    if (e && c->kind == CHECKPOINT_MTP) return e->no_mtp;
    if (!e || c->kind != CHECKPOINT_BLOCK) return NULL;
    if (c->block.no_cut) return c->block.no_cut;
    return c->block.selector && !e->no_block ? e->no_selector : e->no_block;
}

/* A cut under way. */
typedef struct work {
    const recut_request *r;
    recut_report *report;
    const struct engine *engine;
    specrt_error *err;
    checkpoint c;
    int32_t *row_of; /* [n_vocab] the row of the head that scores an id; -1: none */
    token_pick pick; /* by rank */
    int32_t *ids;    /* [n] the same ascending */
    int32_t n, n_vocab;
    int64_t n_rows;     /* of its head, or of the target's */
    const char *source; /* whose rows it takes for want of a head; NULL: its own */
    st_tensor *tensors; /* [n_tensors] of the output */
    int n_tensors;
    void **owned; /* [n_owned] memory that these point to */
    int n_owned;
    bool changed; /* any tensor */
} work;

static specrt_status refuse(const work *w, specrt_status status, const char *what) {
    return specrt_error_set(w->err, status, "%s: is %s: %s", w->c.m.path, w->c.words, what);
}

/* ---- what can be cut -------------------------------------------------------------------------- */

bool recut_reads_config(const char *engine, const checkpoint *c) {
    const struct engine *e = find_engine(engine);
    json_object *type;
    bool speculators = json_object_object_get_ex(c->config, "speculators_model_type", &type);
    return !e || (speculators ? e->reads_speculators : e->reads_plain);
}

static specrt_status check_config(const work *w) {
    if (recut_reads_config(w->engine->name, &w->c)) return SPECRT_STATUS_OK;
    bool plain = w->engine->reads_plain;
    return specrt_error_set(w->err, SPECRT_STATUS_UNSUPPORTED,
                            "%sconfig.json: is %s, which %s does not read; expected %s; convert "
                            "the drafter with speculators first",
                            w->c.folder, plain ? "that of speculators" : "EAGLE's own",
                            w->engine->name, plain ? "EAGLE's own" : "that of speculators");
}

/* Whether its head is cut, rather than a list written beside it. */
static bool is_cut(const work *w) {
    return w->c.kind != CHECKPOINT_MODEL && w->c.kind != CHECKPOINT_EAGLE;
}

/* An MTP layer that scores by the embedding takes its rows from there. */
static const char *source_of(const work *w) {
    if (!is_cut(w) || w->c.head) return NULL;
    return !w->r->target && w->c.tail.tied ? w->c.m.path : w->r->target;
}

/* A head under other names is quantised, and rows of the target would stand beside it. */
static specrt_status check_packed(const work *w) {
    const st_tensor *packed = sl_st_find_prefix(w->c.m.s, "lm_head.");
    if (!packed) return SPECRT_STATUS_OK;
    return specrt_error_set(w->err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: tensor \"%s\": expected lm_head.weight, a matrix of rows; "
                            "give the drafter with a head that is not packed",
                            w->c.m.path, packed->name);
}

static specrt_status check_head(const work *w) {
    const checkpoint *c = &w->c;
    if (is_cut(w) && !c->head && !c->tail.tied) TRY(check_packed(w));
    if (is_cut(w) && !c->head && !w->source)
        return refuse(
            w, SPECRT_STATUS_BAD_ARG,
            "expected its head as a tensor lm_head.weight, found none; where it drafts with "
            "the target's, name that (--target)");
    if (w->r->target && w->source != w->r->target)
        return refuse(w, SPECRT_STATUS_BAD_ARG,
                      "expected no --target: rows are taken of it where a drafter has no "
                      "lm_head.weight");
    if (w->n_vocab < 1)
        return specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT,
                                "%sconfig.json: vocab_size: expected the rows of the target's "
                                "vocabulary, found none; say --n-vocab",
                                c->folder);
    if (is_cut(w) && c->head && !c->d2t && c->n_rows < w->n_vocab)
        return specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: d2t: missing; expected one for the %" PRId64
                                " rows of %s, which are fewer than the target's "
                                "%" PRId32
                                "; take it from the mapping that the drafter was trained with",
                                c->m.path, c->n_rows, c->head->name, w->n_vocab);
    return SPECRT_STATUS_OK;
}

static specrt_status check_kind(const work *w) {
    const checkpoint *c = &w->c;
    const char *why = recut_refuses(w->engine->name, c);
    if (why) return refuse(w, SPECRT_STATUS_UNSUPPORTED, why);
    if (c->kind == CHECKPOINT_MODEL)
        return refuse(w, SPECRT_STATUS_UNSUPPORTED,
                      "engines want its whole vocabulary; expected an EAGLE or MTP drafter");
    if (c->kind == CHECKPOINT_EAGLE && !w->engine->takes_map)
        return refuse(
            w, SPECRT_STATUS_UNSUPPORTED,
            "it scores by the target's head, whole in this engine; SGLang takes a list for "
            "it (--for sglang), vLLM with the plug-in of the Python package");
    TRY(check_head(w));
    return check_config(w);
}

/* ---- which ids -------------------------------------------------------------------------------- */

static specrt_status find_rows(work *w) {
    const checkpoint *c = &w->c;
    token_map map;
    TRY(sl_checkpoint_map(c, w->r->values, &map, w->err));
    if (map.n > 0 && map.n != c->n_rows) {
        int32_t found = map.n;
        sl_token_map_free(&map);
        return specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: d2t has %" PRId32 " entries; expected %" PRId64
                                ", the rows of its head",
                                c->m.path, found, c->n_rows);
    }
    w->n_rows = c->head ? c->n_rows : w->n_vocab;
    specrt_status status = sl_token_rows(map.n > 0 ? map.ids : NULL, w->n_rows, w->n_vocab,
                                         c->m.path, &w->row_of, w->err);
    sl_token_map_free(&map);
    return status;
}

/* A bundle of another model: its text has tokens that the drafter knows no id of, or fewer ids than padding
 * explains. */
static specrt_status check_vocabulary(const work *w) {
    const specrt_ranks *ranks = &w->r->ranks;
    const specrt_ranks_header *h = ranks->header;
    int32_t last = 0;
    for (int32_t i = 0; i < h->n_ranked; i++)
        if (ranks->counts[i] > 0 && ranks->ids[i] > last) last = ranks->ids[i];
    if (last < w->n_vocab && w->n_vocab / 2 < h->n_vocab) return SPECRT_STATUS_OK;
    return specrt_error_set(w->err, SPECRT_STATUS_BUNDLE_MISMATCH,
                            "%s: expected a drafter of the bundle's vocabulary, %" PRId32
                            " ids, found one of %" PRId32
                            "; calibrate with the tokenizer of the drafter's target",
                            w->c.m.path, h->n_vocab, w->n_vocab);
}

/* The most frequent ids that have rows, and those ascending. */
static specrt_status select_ids(work *w) {
    token_pick *p = &w->pick;
    TRY(sl_token_pick(&w->r->ranks, w->r->size, w->row_of, w->n_vocab, w->c.m.path, p, w->err));
    w->n = p->n;
    TRY(sl_new(&w->ids, (size_t)w->n, sizeof *w->ids, w->r->output, w->err));
    memcpy(w->ids, p->ids, (size_t)w->n * sizeof *w->ids);
    qsort(w->ids, (size_t)w->n, sizeof *w->ids, sl_order_i32);
    return SPECRT_STATUS_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

/* Memory that lasts as long as the cut. */
static void *hold(work *w, size_t bytes) {
    void *p;
    if (sl_new(&p, bytes, 1, w->r->output, w->err) == SPECRT_STATUS_OK) w->owned[w->n_owned++] = p;
    return p;
}

/* Add a tensor, unless it is as it was. */
static void put(work *w, const st_tensor *was, const st_tensor *t) {
    bool same = was && strcmp(was->name, t->name) == 0 && strcmp(was->dtype, t->dtype) == 0 &&
                was->shape[0] == t->shape[0] && was->bytes == t->bytes &&
                (was->data == t->data || memcmp(was->data, t->data, t->bytes) == 0);
    w->tensors[w->n_tensors++] = same ? *was : *t;
    if (!same) w->changed = true;
}

/* A tensor with a value or a row for each row of the head; any type, if rows are whole bytes. */
static specrt_status put_cut(work *w, const st_tensor *t) {
    size_t row_bytes = t->bytes / (size_t)w->n_rows;
    st_tensor out = *t;
    if (row_bytes * (size_t)w->n_rows != t->bytes)
        return specrt_error_set(w->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: tensor \"%s\": rows of %s are no whole bytes", w->c.m.path,
                                t->name, t->dtype);
    uint8_t *rows = (uint8_t *)hold(w, (size_t)w->n * row_bytes);
    if (!rows) return SPECRT_STATUS_NO_MEMORY;
    for (int32_t i = 0; i < w->n; i++)
        memcpy(rows + (size_t)i * row_bytes, t->data + (size_t)w->row_of[w->ids[i]] * row_bytes,
               row_bytes);
    out.shape[0] = w->n;
    out.data = rows;
    out.bytes = (size_t)w->n * row_bytes;
    put(w, t, &out);
    return SPECRT_STATUS_OK;
}

/* Of a quantised head scales may stand beside the rows. */
static specrt_status put_head(work *w, const st_tensor *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->n_dims; i++) n *= t->shape[i];
    if (t->n_dims > 0 && t->shape[0] == w->n_rows) return put_cut(w, t);
    if (n != 1)
        return specrt_error_set(w->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: tensor \"%s\": expected %" PRId64
                                " rows, as its head has; give the drafter with a head that "
                                "is not packed",
                                w->c.m.path, t->name, w->n_rows);
    put(w, t, t);
    return SPECRT_STATUS_OK;
}

/* Offsets, in the type that they had. */
static specrt_status put_d2t(work *w, const st_tensor *was) {
    bool narrow = was && strcmp(was->dtype, "I32") == 0;
    size_t item = narrow ? 4 : 8;
    st_tensor out = {.name = "d2t", .dtype = "I64", .n_dims = 1, .shape = {w->n}};
    uint8_t *values = (uint8_t *)hold(w, (size_t)w->n * item);
    if (!values) return SPECRT_STATUS_NO_MEMORY;
    for (int32_t i = 0; i < w->n; i++) { /* little-endian: the low bytes come first */
        int64_t offset = (int64_t)w->ids[i] - i;
        memcpy(values + (size_t)i * item, &offset, item);
    }
    if (narrow) strcpy(out.dtype, "I32");
    out.data = values;
    out.bytes = (size_t)w->n * item;
    put(w, was, &out);
    return SPECRT_STATUS_OK;
}

static specrt_status put_t2d(work *w, const st_tensor *was) {
    st_tensor out = {.name = "t2d", .dtype = "BOOL", .n_dims = 1, .shape = {w->n_vocab}};
    uint8_t *values = (uint8_t *)hold(w, (size_t)w->n_vocab);
    if (!values) return SPECRT_STATUS_NO_MEMORY;
    for (int32_t i = 0; i < w->n; i++) values[w->ids[i]] = 1;
    out.data = values;
    out.bytes = (size_t)w->n_vocab;
    put(w, was, &out);
    return SPECRT_STATUS_OK;
}

/* The layer under the engine's name for it. */
static specrt_status put_renamed(work *w, const st_tensor *t) {
    static const char *const names[] = {"midlayer.", "layers.0."};
    st_tensor out = *t;
    for (int i = 0; w->engine->layer && i < 2; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(t->name, names[i], n) != 0 || strcmp(names[i], w->engine->layer) == 0) continue;
        size_t bytes = strlen(w->engine->layer) + strlen(t->name + n) + 1;
        char *name = (char *)hold(w, bytes);
        if (!name) return SPECRT_STATUS_NO_MEMORY;
        snprintf(name, bytes, "%s%s", w->engine->layer, t->name + n);
        out.name = name;
        break;
    }
    put(w, t, &out);
    return SPECRT_STATUS_OK;
}

/* Rows that the drafter has not. */
static specrt_status put_rows(work *w) {
    st_tensor head;
    int64_t width = sl_checkpoint_number(&w->c, "hidden_size");
    TRY(sl_head_cut_rows(w->source, w->ids, w->n, &head, w->err));
    w->owned[w->n_owned++] = (void *)(uintptr_t)head.data;
    if (width >= 0 && width != head.shape[1])
        return specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: rows of its head have %" PRId64 " numbers; expected %" PRId64
                                ", hidden_size of %sconfig.json",
                                w->source, head.shape[1], width, w->c.folder);
    put(w, NULL, &head);
    return SPECRT_STATUS_OK;
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

/* Of MTP layers those tensors alone, and the head that they score with. */
static specrt_status put_mtp(work *w, const st_tensor *t) {
    const mtp_tail *tail = &w->c.tail;
    char prefix[MTP_NAME];
    bool is_part = false;
    for (int32_t i = 0; i < tail->n_layers && !is_part; i++) {
        sl_mtp_tail_prefix(tail, false, i, prefix);
        is_part = begins(t->name, prefix);
    }
    if (is_part ? strstr(t->name, ".shared_head.head.") != NULL
                : w->c.head && !tail->own_head && begins(t->name, "lm_head."))
        return put_head(w, t);
    if (is_part)
        put(w, t, t);
    else
        w->changed = true;
    return SPECRT_STATUS_OK;
}

static specrt_status put_tensor(work *w, const st_tensor *t) {
    if (!is_cut(w)) return put(w, t, t), SPECRT_STATUS_OK;
    if (t == w->c.d2t) return put_d2t(w, t);
    if (t == w->c.t2d) return put_t2d(w, t);
    if (w->c.kind == CHECKPOINT_MTP) return put_mtp(w, t);
    if (begins(t->name, "lm_head.")) return put_head(w, t);
    if (w->c.kind == CHECKPOINT_EAGLE3) return put_renamed(w, t);
    if (begins(t->name, "markov_head.markov_w2.")) return put_head(w, t);
    put(w, t, t);
    return SPECRT_STATUS_OK;
}

static specrt_status make_tensors(work *w) {
    int64_t n;
    const st_tensor *t = sl_st_tensors(w->c.m.s, &n);
    if (n > 100000) return refuse(w, SPECRT_STATUS_UNSUPPORTED, "of over 100,000 tensors");
    TRY(sl_new(&w->tensors, (size_t)n + 3, sizeof *w->tensors, w->r->output, w->err));
    TRY(sl_new(&w->owned, (size_t)n + 3, sizeof *w->owned, w->r->output, w->err));
    for (int64_t i = 0; i < n; i++) TRY(put_tensor(w, &t[i]));
    if (w->source) TRY(put_rows(w));
    bool maps = is_cut(w) && w->n < w->n_vocab;
    if (maps && !w->c.d2t) TRY(put_d2t(w, NULL));
    if (maps && !w->c.t2d) TRY(put_t2d(w, NULL));
    return SPECRT_STATUS_OK;
}

/* ---- config.json ------------------------------------------------------------------------------ */

static bool set_number(json_object *o, const char *key, int64_t value) {
    json_object *was;
    if (json_object_object_get_ex(o, key, &was) && json_object_is_type(was, json_type_int) &&
        json_object_get_int64(was) == value)
        return false;
    json_object_object_add(o, key, json_object_new_int64(value));
    return true;
}

static bool clear_flag(json_object *o, const char *key) {
    json_object *was;
    if (!json_object_object_get_ex(o, key, &was) || !json_object_get_boolean(was)) return false;
    json_object_object_add(o, key, json_object_new_boolean(0));
    return true;
}

/* Engines choose their class by it; EAGLE's own drafters often name their target's. */
static bool set_architecture(work *w) {
    json_object *list, *first;
    const char *name =
        w->c.kind == CHECKPOINT_EAGLE3 ? "LlamaForCausalLMEagle3" : "LlamaForCausalLMEagle";
    if (w->c.kind == CHECKPOINT_MTP || w->c.kind == CHECKPOINT_BLOCK ||
        !json_object_object_get_ex(w->c.config, "architectures", &list) ||
        !json_object_is_type(list, json_type_array) || json_object_array_length(list) != 1)
        return false;
    first = json_object_array_get_idx(list, 0);
    if (!json_object_is_type(first, json_type_string) ||
        strcmp(json_object_get_string(first), "LlamaForCausalLM") != 0)
        return false;
    json_object_array_put_idx(list, 0, json_object_new_string(name));
    return true;
}

/* @return whether anything is another */
static bool edit_config(work *w) {
    checkpoint *c = &w->c;
    bool changed = set_architecture(w), biased = sl_checkpoint_has(c, "self_attn.q_proj.bias");
    bool says_size = sl_checkpoint_number(c, "draft_vocab_size") >= 0;
    if (is_cut(w) && (w->n < w->n_vocab || says_size))
        changed |= set_number(c->config, "draft_vocab_size", w->n);
    changed |= clear_flag(c->config, "tie_word_embeddings");
    changed |= clear_flag(c->layer, "tie_word_embeddings");
    if (!biased) changed |= clear_flag(c->layer, "attention_bias");
    if (!biased && w->engine->bias_is_of_attention && sl_checkpoint_is_set(c, "bias")) {
        json_object_object_del(c->config, "bias");
        changed = true;
    }
    return changed;
}

/* ---- all of it -------------------------------------------------------------------------------- */

static specrt_status run(work *w) {
    TRY(sl_checkpoint_open(w->r->drafter, true, &w->c, w->err));
    w->n_vocab = w->r->n_vocab ? w->r->n_vocab : (int32_t)w->c.n_vocab;
    w->source = source_of(w);
    TRY(check_kind(w));
    TRY(check_vocabulary(w));
    TRY(find_rows(w));
    TRY(select_ids(w));
    TRY(make_tensors(w));
    recut_report *p = w->report;
    p->n_rows = w->n;
    p->n_rows_before = w->c.head ? (int32_t)w->c.n_rows : w->n_vocab;
    p->n_vocab = w->n_vocab;
    p->n_missing = w->pick.n_missing;
    p->n_terminators = w->pick.n_terminators;
    p->has_map = w->c.kind == CHECKPOINT_EAGLE;
    p->same_weights = !w->changed;
    TRY(sl_token_coverage(&w->r->ranks, w->ids, w->n, &p->coverage, w->err));
    drafter_folder f = {.c = &w->c,
                        .config_changed = edit_config(w),
                        .weights_changed = w->changed,
                        .tensors = w->tensors,
                        .n_tensors = w->n_tensors,
                        .list = p->has_map ? w->pick.ids : NULL,
                        .n_list = w->n};
    return drafter_folder_write(&f, w->r->output, w->r->force, w->err);
}

specrt_status recut(const recut_request *r, recut_report *out, specrt_error *err) {
    work w = {.r = r, .report = out, .engine = find_engine(r->engine), .err = err};
    *out = (recut_report){0};
    specrt_status status = run(&w);
    for (int i = 0; i < w.n_owned; i++) free(w.owned[i]);
    free(w.owned);
    free(w.tensors);
    free(w.row_of);
    free(w.pick.ids);
    free(w.ids);
    if (w.c.m.path) sl_checkpoint_close(&w.c);
    return status;
}
