/* ordered_head.c : see ordered_head.h. What engines do was read from vLLM 0.33, SGLang 0.5.23 and
 * transformers 5.24. */
#include "model/ordered_head.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"

enum { DEFAULT_CLUSTERS = 2048, DEFAULT_TOPK = 32 };

/* ---- what is there ---------------------------------------------------------------------------- */

static int64_t number(json_object *o, const char *key, int64_t otherwise) {
    json_object *value;
    if (!o || !json_object_object_get_ex(o, key, &value)) return otherwise;
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : otherwise;
}

static int flag(json_object *o, const char *key) {
    json_object *value;
    if (!o || !json_object_object_get_ex(o, key, &value)) return -1;
    return json_object_get_boolean(value);
}

static void read_config(json_object *config, ordered_head *out) {
    static const char *const keys[] = {"use_ordered_embeddings", "num_centroids",
                                       "centroid_intermediate_top_k"};
    json_object *text = NULL, *value;
    if (config) json_object_object_get_ex(config, "text_config", &text);
    for (int i = 0; text && i < 3; i++)
        out->is_inside = out->is_inside || json_object_object_get_ex(text, keys[i], &value);
    out->is_set = flag(config, keys[0]) == 1;
    out->n_clusters = number(config, keys[1], DEFAULT_CLUSTERS);
    out->topk = number(config, keys[2], DEFAULT_TOPK);
    out->n_vocab = number(text, "vocab_size", number(config, "vocab_size", 0));
    out->width = number(text, "hidden_size", number(config, "hidden_size", 0));
    out->tied = flag(config, "tie_word_embeddings");
    out->tied_inside = flag(text, "tie_word_embeddings");
}

void sl_ordered_head_read(const model *m, ordered_head *out) {
    *out = (ordered_head){.tied = -1, .tied_inside = -1};
    read_config(m->config, out);
    if (!m->s) return;
    out->centroids = sl_st_find(m->s, ORDERED_CENTROIDS);
    out->ordering = sl_st_find(m->s, ORDERED_TOKENS);
    const st_tensor *head = sl_st_find(m->s, "lm_head.weight");
    const st_tensor *embedding = sl_st_find(m->s, "model.embed_tokens.weight");
    bool is_copy = head && embedding && head->bytes == embedding->bytes &&
                   memcmp(head->data, embedding->data, head->bytes) == 0;
    out->has_head = head && !is_copy;
    out->dense = out->has_head ? head : embedding;
}

bool sl_ordered_head_is(const ordered_head *o) {
    return o->is_set || o->centroids || o->ordering;
}

int64_t sl_ordered_head_id(const ordered_head *o, int64_t place) {
    int64_t id;
    memcpy(&id, o->ordering->data + 8 * place, sizeof id);
    return id;
}

double sl_ordered_head_batch(int64_t n_vocab, int64_t n_clusters, int64_t topk) {
    double each = 3 * (double)topk * (double)n_vocab / (double)n_clusters;
    return (double)(n_vocab - n_clusters) / each;
}

/* ---- faults ----------------------------------------------------------------------------------- */

typedef struct examination {
    const ordered_head *o;
    ordered_head_found found;
    void *user;
} examination;

static const char *const EXPORT =
    "write it anew: specrt-bundle export BUNDLE --drafter DIR --for gemma4 -o OUT";

static __attribute__((format(printf, 5, 6))) void fault(const examination *e, const char *code,
                                                        const char *engines, const char *fix,
                                                        const char *format, ...) {
    char what[384];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    e->found(e->user, code, engines, fix, what);
}

static void check_presence(const examination *e) {
    const ordered_head *o = e->o;
    if (!o->is_set && (o->centroids || o->ordering))
        fault(e, "ordered-flag", NULL,
              "set \"use_ordered_embeddings\": true at the top of config.json, or take "
              "masked_embedding.* out",
              "tensors masked_embedding.*, and config.json does not set use_ordered_embeddings: "
              "vLLM does not load them, SGLang and transformers score the whole head");
    if (o->is_set && !(o->centroids && o->ordering))
        fault(e, "ordered-tensors", NULL, EXPORT,
              "config.json: use_ordered_embeddings, and no tensor \"%s\": SGLang drafts token 0, "
              "vLLM and transformers read memory that nothing set",
              o->centroids ? ORDERED_TOKENS : ORDERED_CENTROIDS);
    if (o->is_inside)
        fault(e, "ordered-keys", NULL, "move them to the top of config.json",
              "config.json: text_config has keys of an ordered head, which engines read at the "
              "top alone");
}

static bool is_plain_float(const st_tensor *t) {
    return strcmp(t->dtype, "BF16") == 0 || strcmp(t->dtype, "F16") == 0 ||
           strcmp(t->dtype, "F32") == 0;
}

static void check_types(const examination *e) {
    const ordered_head *o = e->o;
    if (o->ordering && strcmp(o->ordering->dtype, "I64") != 0)
        fault(e, "ordered-type", NULL, EXPORT, "tensor \"%s\" is %s; expected I64", ORDERED_TOKENS,
              o->ordering->dtype);
    if (o->centroids && !is_plain_float(o->centroids))
        fault(e, "ordered-type", NULL, EXPORT, "tensor \"%s\" is %s; expected BF16",
              ORDERED_CENTROIDS, o->centroids->dtype);
    if (o->dense && !is_plain_float(o->dense))
        fault(e, "ordered-quantised", "vllm", "keep the drafter's head in BF16",
              "tensor \"%s\" is %s: vLLM gathers rows of it as if they were not quantised",
              o->dense->name, o->dense->dtype);
}

static void check_counts(const examination *e) {
    const ordered_head *o = e->o;
    if (o->is_set && o->n_vocab < 1)
        fault(e, "vocab-size", NULL, "set it to the rows of the head",
              "config.json: vocab_size: expected 1 or more, found %" PRId64, o->n_vocab);
    if (o->is_set && (o->n_clusters < 1 || o->n_vocab % o->n_clusters))
        fault(e, "ordered-clusters", NULL, "build clusters whose number divides vocab_size",
              "config.json: num_centroids: %" PRId64 " does not divide vocab_size, %" PRId64
              ": SGLang does not start, vLLM and transformers fail at the first draft",
              o->n_clusters, o->n_vocab);
    if (o->is_set && (o->topk < 1 || o->topk > o->n_clusters))
        fault(e, "ordered-topk", NULL, "set it to 1 to num_centroids",
              "config.json: centroid_intermediate_top_k: expected 1 to %" PRId64 ", found %" PRId64,
              o->n_clusters, o->topk);
}

static void check_shapes(const examination *e) {
    const ordered_head *o = e->o;
    const st_tensor *c = o->centroids, *t = o->ordering, *d = o->dense;
    if (c && (c->n_dims != 2 || (o->is_set && c->shape[0] != o->n_clusters) ||
              (o->width && c->shape[1] != o->width)))
        fault(e, "ordered-shape", NULL, EXPORT,
              "tensor \"%s\": expected [%" PRId64 ", %" PRId64
              "], num_centroids and hidden_size, found %" PRId32 " dimensions [%" PRId64
              ", %" PRId64 "]",
              ORDERED_CENTROIDS, o->n_clusters, o->width, c->n_dims, c->n_dims ? c->shape[0] : 0,
              c->n_dims > 1 ? c->shape[1] : 0);
    if (t && (t->n_dims != 1 || (o->n_vocab && t->shape[0] != o->n_vocab)))
        fault(e, "ordered-shape", NULL, EXPORT,
              "tensor \"%s\": expected [%" PRId64 "], vocab_size, found %" PRId32
              " dimensions, %" PRId64 " first",
              ORDERED_TOKENS, o->n_vocab, t->n_dims, t->n_dims ? t->shape[0] : 0);
    if (sl_ordered_head_is(o) && d && (d->n_dims != 2 || (o->n_vocab && d->shape[0] != o->n_vocab)))
        fault(e, "ordered-shape", NULL, "give the drafter with its whole head, in natural order",
              "tensor \"%s\": expected vocab_size rows, %" PRId64 ", found %" PRId64, d->name,
              o->n_vocab, d->n_dims ? d->shape[0] : 0);
}

static void check_range(const examination *e) {
    const st_tensor *t = e->o->ordering;
    if (!t || strcmp(t->dtype, "I64") != 0 || t->n_dims != 1) return;
    int64_t n_vocab = e->o->n_vocab > 0 ? e->o->n_vocab : t->shape[0];
    for (int64_t i = 0; i < t->shape[0]; i++) {
        int64_t id = sl_ordered_head_id(e->o, i);
        if (id >= 0 && id < n_vocab) continue;
        fault(e, "ordered-range", NULL, EXPORT,
              "tensor \"%s\": place %" PRId64 ": expected a token from 0 to %" PRId64
              ", found %" PRId64,
              ORDERED_TOKENS, i, n_vocab - 1, id);
        return;
    }
}

/* vLLM and transformers look at the top, where nothing said means true; SGLang looks into text_config. */
static void check_tied(const examination *e) {
    const ordered_head *o = e->o;
    if (!sl_ordered_head_is(o)) return;
    if (!o->dense)
        fault(e, "ordered-head", NULL, "give the drafter with its whole head",
              "expected lm_head.weight or model.embed_tokens.weight, found neither: nothing to "
              "score");
    else if (o->has_head ? o->tied != 0 : o->tied == 0)
        fault(e, "ordered-tied", "vllm transformers",
              o->has_head ? "set it to false" : "set it to true",
              "config.json: tie_word_embeddings, at the top, says %s; the head is %s",
              o->has_head ? "that the embedding is the head" : "that it is not the embedding",
              o->dense->name);
    if (o->dense && (o->has_head ? o->tied_inside != 0 : o->tied_inside == 0))
        fault(e, "ordered-tied", "sglang", o->has_head ? "set it to false" : "set it to true",
              "config.json: tie_word_embeddings, in text_config, says %s; the head is %s",
              o->has_head ? "that the embedding is the head" : "that it is not the embedding",
              o->dense->name);
}

void sl_ordered_head_examine(const ordered_head *o, ordered_head_found found, void *user) {
    examination e = {o, found, user};
    check_presence(&e);
    check_counts(&e);
    check_types(&e);
    check_shapes(&e);
    check_range(&e);
    check_tied(&e);
}

typedef struct first_fault {
    specrt_status status;
    const char *path;
    specrt_error *err;
} first_fault;

static void keep_first(void *user, const char *code, const char *engines, const char *fix,
                       const char *what) {
    first_fault *f = user;
    (void)code, (void)engines;
    if (f->status == SPECRT_STATUS_OK)
        f->status =
            specrt_error_set(f->err, SPECRT_STATUS_BAD_INPUT, "%s: %s; %s", f->path, what, fix);
}

specrt_status sl_ordered_head_check(const ordered_head *o, const char *path, specrt_error *err) {
    first_fault f = {SPECRT_STATUS_OK, path, err};
    sl_ordered_head_examine(o, keep_first, &f);
    return f.status;
}
