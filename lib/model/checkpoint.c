/* checkpoint.c : see checkpoint.h. */
#include "model/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/json.h"

enum { MAX_CONFIG = 16 << 20 };

/* ---- config.json ------------------------------------------------------------------------------ */

static specrt_status parse_object(const char *path, const file_view *text, json_object **out,
                                  specrt_error *err) {
    *out = text->n <= MAX_CONFIG ? sl_json_parse(text->bytes, text->n, NULL) : NULL;
    if (json_object_is_type(*out, json_type_object)) return SPECRT_STATUS_OK;
    json_object_put(*out);
    *out = NULL;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: expected a JSON object", path);
}

specrt_status sl_checkpoint_read_json(const char *path, json_object **out, specrt_error *err) {
    file_view text;
    *out = NULL;
    TRY(sl_file_map_regular(path, &text, err));
    specrt_status status = parse_object(path, &text, out, err);
    sl_file_unmap(&text);
    return status;
}

/* Of speculators, and of models that read more than text, its dimensions stand in an object of their own. */
static json_object *find_layer(json_object *config) {
    static const char *const keys[] = {"transformer_layer_config", "text_config"};
    json_object *layer;
    for (int i = 0; i < 2; i++)
        if (json_object_object_get_ex(config, keys[i], &layer) &&
            json_object_is_type(layer, json_type_object))
            return layer;
    return config;
}

static specrt_status read_config_at(checkpoint *c, const char *path, bool needed,
                                    specrt_error *err) {
    if (needed || access(path, F_OK) == 0) {
        TRY(sl_file_map(path, &c->text, err));
        TRY(parse_object(path, &c->text, &c->config, err));
    } else if (!(c->config = json_object_new_object())) {
        return sl_error_no_memory(err, path);
    }
    c->layer = find_layer(c->config);
    return SPECRT_STATUS_OK;
}

static specrt_status read_config(checkpoint *c, bool needed, specrt_error *err) {
    const char *slash = strrchr(c->m.path, '/');
    char *path;
    c->folder = slash ? strndup(c->m.path, (size_t)(slash + 1 - c->m.path)) : strdup("./");
    if (!c->folder || asprintf(&path, "%sconfig.json", c->folder) < 0)
        return sl_error_no_memory(err, c->m.path);
    specrt_status status = read_config_at(c, path, needed, err);
    free(path);
    return status;
}

/* A key of the whole, else of the layer's own object. */
json_object *sl_checkpoint_value(const checkpoint *c, const char *key) {
    json_object *value = NULL;
    if (!json_object_object_get_ex(c->config, key, &value))
        json_object_object_get_ex(c->layer, key, &value);
    return value;
}

int64_t sl_checkpoint_number(const checkpoint *c, const char *key) {
    json_object *value = sl_checkpoint_value(c, key);
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
}

bool sl_checkpoint_is_set(const checkpoint *c, const char *key) {
    return json_object_get_boolean(sl_checkpoint_value(c, key));
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static bool has(const st *s, const char *ending) {
    int64_t n;
    const st_tensor *t = sl_st_tensors(s, &n);
    size_t length = strlen(ending);
    for (int64_t i = 0; i < n; i++) {
        size_t own = strlen(t[i].name);
        if (own >= length && strcmp(t[i].name + own - length, ending) == 0) return true;
    }
    return false;
}

bool sl_checkpoint_has(const checkpoint *c, const char *ending) {
    return has(c->m.s, ending);
}

const char *sl_checkpoint_eagle3_layer(const model *m) {
    if (!m->s) return NULL;
    if (has(m->s, "midlayer.self_attn.q_proj.weight")) return "midlayer";
    return has(m->s, "layers.0.hidden_norm.weight") ? "layers.0" : NULL;
}

static specrt_status expect_dims(const checkpoint *c, const st_tensor *t, int32_t n_dims,
                                 const char *what, specrt_error *err) {
    if (!t || (t->n_dims == n_dims && t->shape[0] >= 1 && t->shape[0] <= SPECRT_MAX_VOCAB))
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: tensor \"%s\": expected %s of 1 to %d rows, found %" PRId32
                            " dimensions, %" PRId64 " first",
                            c->m.path, t->name, what, SPECRT_MAX_VOCAB, t->n_dims,
                            t->n_dims ? t->shape[0] : 0);
}

static specrt_status find_tensors(checkpoint *c, specrt_error *err) {
    char own_head[MTP_NAME];
    checkpoint_id id;
    TRY(sl_checkpoint_identify(&c->m, &id, err));
    c->kind = id.kind;
    c->words = id.words;
    c->tail = id.tail;
    c->block = id.block;
    sl_mtp_tail_head(&c->tail, false, 0, own_head);
    c->head = sl_st_find(c->m.s, c->tail.own_head ? own_head : "lm_head.weight");
    if (c->tail.tied) c->head = NULL;
    c->d2t = sl_st_find(c->m.s, "d2t");
    c->t2d = sl_st_find(c->m.s, "t2d");
    TRY(expect_dims(c, c->head, 2, "a matrix", err));
    TRY(expect_dims(c, c->d2t, 1, "a list", err));
    TRY(expect_dims(c, c->t2d, 1, "a list", err));
    c->n_rows = c->head ? c->head->shape[0] : 0;
    c->n_vocab = sl_checkpoint_number(c, "vocab_size");
    if (c->n_vocab < 1 || c->n_vocab > SPECRT_MAX_VOCAB) c->n_vocab = c->t2d ? c->t2d->shape[0] : 0;
    return SPECRT_STATUS_OK;
}

specrt_status sl_checkpoint_map(const checkpoint *c, token_map_values values, token_map *out,
                                specrt_error *err) {
    const token_map_options options = {.values = values, .n_vocab = (int32_t)c->n_vocab};
    *out = (token_map){0};
    return c->d2t ? sl_token_map_read_st(c->m.s, c->m.path, &options, out, err) : SPECRT_STATUS_OK;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static specrt_status open_parts(const char *path, bool needs_config, checkpoint *c,
                                specrt_error *err) {
    TRY(sl_model_open(path, &c->m, err));
    if (!c->m.s)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a drafter in safetensors, found a GGUF", c->m.path);
    TRY(read_config(c, needs_config, err));
    return find_tensors(c, err);
}

specrt_status sl_checkpoint_open(const char *path, bool needs_config, checkpoint *out,
                                 specrt_error *err) {
    *out = (checkpoint){0};
    specrt_status status = open_parts(path, needs_config, out, err);
    if (status != SPECRT_STATUS_OK) sl_checkpoint_close(out);
    return status;
}

void sl_checkpoint_close(checkpoint *c) {
    json_object_put(c->config);
    sl_file_unmap(&c->text);
    free(c->folder);
    sl_model_close(&c->m);
    *c = (checkpoint){0};
}
