/* from_json_files.c : the files beside a tokenizer.json that say which ids end a text. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "tokenizer/from_json.h"

/* A JSON file in the tokenizer's folder; NULL in *out if there is none. */
static specrt_status open_beside(const tokenizer *tok, const char *name, json_object **out,
                                 specrt_error *err) {
    const char *slash = strrchr(tok->path, '/');
    char path[PATH_MAX];
    file_view file;
    *out = NULL;
    int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - tok->path) + 1 : 0,
                     tok->path, name);
    if ((size_t)n >= sizeof path || sl_file_map(path, &file, NULL)) return SPECRT_STATUS_OK;
    tokenizer beside = {.path = path};
    specrt_status status = sl_tok_json_parse(&beside, &file, out, err);
    sl_file_unmap(&file);
    return status;
}

static specrt_status add_id(tokenizer *tok, json_object *value, const char *file,
                            specrt_error *err) {
    int64_t id = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
    if (id < 0 || id >= tok->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s beside it: eos_token_id is %.40s; expected an id below %d",
                                tok->path, file, json_object_get_string(value), tok->n_vocab);
    return sl_tok_add_terminator(tok, (int32_t)id, err);
}

/* eos_token_id, a number or a list, of the file or of its text_config.
 *   found : whether it is there */
static specrt_status read_ids(tokenizer *tok, const char *file, bool *found, specrt_error *err) {
    json_object *root = NULL, *inner = NULL, *value = NULL;
    TRY(open_beside(tok, file, &root, err));
    json_object_object_get_ex(root, "eos_token_id", &value);
    if (!value && json_object_object_get_ex(root, "text_config", &inner))
        json_object_object_get_ex(inner, "eos_token_id", &value);
    specrt_status status = SPECRT_STATUS_OK;
    *found = value != NULL;
    bool list = json_object_is_type(value, json_type_array);
    size_t n = list ? json_object_array_length(value) : value != NULL;
    for (size_t i = 0; i < n && !status; i++)
        status = add_id(tok, list ? json_object_array_get_idx(value, i) : value, file, err);
    json_object_put(root);
    return status;
}

/* eos_token: its text, or an object with its content. */
static specrt_status read_name(tokenizer *tok, specrt_error *err) {
    json_object *root = NULL, *value = NULL;
    TRY(open_beside(tok, "tokenizer_config.json", &root, err));
    json_object_object_get_ex(root, "eos_token", &value);
    if (json_object_is_type(value, json_type_object))
        json_object_object_get_ex(value, "content", &value);
    int32_t id = TOK_NONE;
    if (json_object_is_type(value, json_type_string))
        id = sl_tokenizer_find(tok, json_object_get_string(value),
                               (size_t)json_object_get_string_len(value));
    json_object_put(root);
    return id == TOK_NONE ? SPECRT_STATUS_OK : sl_tok_add_terminator(tok, id, err);
}

specrt_status sl_tok_json_side_files(tokenizer *tok, specrt_error *err) {
    bool found;
    TRY(read_name(tok, err));
    TRY(read_ids(tok, "generation_config.json", &found, err));
    /* As in generation itself, the model's own setting counts where that file has none. */
    return found ? SPECRT_STATUS_OK : read_ids(tok, "config.json", &found, err);
}
