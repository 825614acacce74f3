/* from_json.c : Hugging Face tokenizer.json with a BPE model: vocabulary, merges, added tokens; the files
 * beside it. */
#include "tokenizer/from_json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"

#define MAX_FILE_BYTES ((size_t)512 << 20)
#define MAX_JSON_DEPTH 32

/* ---- typed members ---- */

specrt_status sl_tok_json_bad(const tokenizer *tok, const char *where, const char *key,
                              json_object *found, const char *expected, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s%s%s is %s; expected %s",
                            tok->path, where, *where && *key ? "." : "", key,
                            found ? json_type_to_name(json_object_get_type(found)) : "missing",
                            expected);
}

specrt_status sl_tok_json_bool(const tokenizer *tok, json_object *object, const char *where,
                               const char *key, bool required, bool *out, specrt_error *err) {
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    if (!value && !required) return SPECRT_STATUS_OK;
    if (!json_object_is_type(value, json_type_boolean))
        return sl_tok_json_bad(tok, where, key, value, "a boolean", err);
    *out = json_object_get_boolean(value);
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_json_string(const tokenizer *tok, json_object *object, const char *where,
                                 const char *key, bool required, const char **out, size_t *n,
                                 specrt_error *err) {
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    if (!value && !required) return SPECRT_STATUS_OK;
    if (!json_object_is_type(value, json_type_string))
        return sl_tok_json_bad(tok, where, key, value, "a string", err);
    *out = json_object_get_string(value);
    *n = (size_t)json_object_get_string_len(value);
    return SPECRT_STATUS_OK;
}

/* ---- parsing ---- */

static specrt_status parse(const tokenizer *tok, const file_view *file, json_object **out,
                           specrt_error *err) {
    const char *text = (const char *)file->bytes;
    int32_t unit;
    *out = NULL;
    if (file->n == 0 || file->n > MAX_FILE_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %zu bytes; expected 1 to %zu",
                                tok->path, file->n, MAX_FILE_BYTES);
    /* A token spelled so would silently become another one. */
    const char *bad = sl_json_bad_escape(text, text + file->n, &unit);
    if (bad)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: byte %zu: %s; expected whole characters other than NUL",
                                tok->path, (size_t)(bad - text),
                                unit == 0 ? "\\u0000" : "half a surrogate pair");
    json_tokener *tokener = json_tokener_new_ex(MAX_JSON_DEPTH);
    if (!tokener) return sl_error_no_memory(err, tok->path);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    *out = json_tokener_parse_ex(tokener, text, (int)file->n);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t at = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (error == json_tokener_success) return SPECRT_STATUS_OK;
    json_object_put(*out);
    *out = NULL;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: byte %zu: not JSON: %s", tok->path,
                            at, sl_json_error(error));
}

/* ---- the files beside it that say which ids end a text ---- */

/* A JSON file in the tokenizer's folder; NULL in *out if there is none. */
static specrt_status open_beside(const tokenizer *tok, const char *name, json_object **out,
                                 specrt_error *err) {
    const char *slash = strrchr(tok->path, '/');
    char path[PATH_MAX];
    file_view file;
    *out = NULL;
    int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - tok->path) + 1 : 0,
                     tok->path, name);
    if ((size_t)n >= sizeof path || sl_file_map_regular(path, &file, NULL)) return SPECRT_STATUS_OK;
    tokenizer beside = {.path = path};
    specrt_status status = parse(&beside, &file, out, err);
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

/* End-of-text ids from generation_config.json (or config.json) and tokenizer_config.json beside the file. */
static specrt_status read_side_files(tokenizer *tok, specrt_error *err) {
    bool found;
    TRY(read_name(tok, err));
    TRY(read_ids(tok, "generation_config.json", &found, err));
    /* As in generation itself, the model's own setting counts where that file has none. */
    return found ? SPECRT_STATUS_OK : read_ids(tok, "config.json", &found, err);
}

/* ---- the model ---- */

static specrt_status read_id(const tokenizer *tok, json_object *value, const char *where,
                             const char *key, int32_t *out, specrt_error *err) {
    if (!json_object_is_type(value, json_type_int))
        return sl_tok_json_bad(tok, where, key, value, "an id", err);
    int64_t id = json_object_get_int64(value);
    if (id < 0 || id >= TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: \"%.60s\" has id %" PRId64 "; expected 0 to %d", tok->path,
                                where, key, id, TOK_MAX_VOCAB - 1);
    *out = (int32_t)id;
    return SPECRT_STATUS_OK;
}

typedef struct loader {
    tokenizer *tok;
    json_object *root, *model, *vocab;
    tok_spelling spelling;
    uint8_t *in_model; /* [TOK_MAX_VOCAB] added tokens whose id is the model's, until it comes by */
    specrt_error *err;
} loader;

static specrt_status check_empty(const loader *l, const char *key, const char *why) {
    const char *text = "";
    size_t n = 0;
    specrt_status status =
        sl_tok_json_string(l->tok, l->model, "model", key, false, &text, &n, l->err);
    if (status || n == 0) return status;
    return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED, "%s: model.%s is \"%.20s\"; %s",
                            l->tok->path, key, text, why);
}

static specrt_status check_dropout(const loader *l) {
    json_object *value = NULL;
    json_object_object_get_ex(l->model, "dropout", &value);
    if (!value ||
        (json_object_is_type(value, json_type_double) && json_object_get_double(value) == 0) ||
        (json_object_is_type(value, json_type_int) && json_object_get_int64(value) == 0))
        return SPECRT_STATUS_OK;
    return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: model.dropout makes tokens random; expected null", l->tok->path);
}

static specrt_status check_model(loader *l) {
    const char *type = "BPE";
    size_t n = 3;
    if (!json_object_object_get_ex(l->root, "model", &l->model) ||
        !json_object_is_type(l->model, json_type_object))
        return sl_tok_json_bad(l->tok, "", "model", l->model, "an object", l->err);
    specrt_status status =
        sl_tok_json_string(l->tok, l->model, "model", "type", false, &type, &n, l->err);
    if (status) return status;
    if (n != 3 || memcmp(type, "BPE", 3))
        return specrt_error_set(l->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: model.type is %.40s; supported: BPE", l->tok->path, type);
    status = check_dropout(l);
    if (!status)
        status = check_empty(l, "continuing_subword_prefix", "no such prefix is supported");
    if (!status) status = check_empty(l, "end_of_word_suffix", "no such suffix is supported");
    if (status) return status;
    if (!json_object_object_get_ex(l->model, "vocab", &l->vocab) ||
        !json_object_is_type(l->vocab, json_type_object))
        return sl_tok_json_bad(l->tok, "model", "vocab", l->vocab, "an object of token: id",
                               l->err);
    return SPECRT_STATUS_OK;
}

/* ---- added tokens ---- */

/* Every token's definition goes through here, for a message that names it. */
static specrt_status define(loader *l, int32_t id, const char *text, const void *bytes, size_t n,
                            token_type type, unsigned flags) {
    if (id < l->tok->n_vocab && l->tok->tokens[id].n)
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: id %d is \"%.60s\" and another token; expected one",
                                l->tok->path, id, text);
    return sl_tok_set_token(l->tok, id, bytes, n, type, flags, l->err);
}

static specrt_status set_plain(loader *l, int32_t id, const char *text, size_t n, token_type type) {
    return define(l, id, text, text, n, type, 0);
}

/* An added token that is no special one may be a token of the model too, that merges make. */
static specrt_status set_added(loader *l, int32_t id, const char *text, size_t n, bool special,
                               bool in_model) {
    uint8_t bytes[2 * TOK_MAX_TOKEN_BYTES];
    token_type type = sl_tok_special_type(text, n);
    size_t n_bytes =
        special || !in_model || n > sizeof bytes ? 0 : sl_tok_unspell(l->spelling, text, n, bytes);
    if (n_bytes) return define(l, id, text, bytes, n_bytes, type, TOK_FLAG_MERGED);
    return set_plain(l, id, text, n, type);
}

static specrt_status read_added(loader *l, json_object *object, const char *where) {
    static const struct {
        const char *key;
        unsigned flag;
    } options[] = {{"single_word", TOK_RAW_SINGLE_WORD},
                   {"lstrip", TOK_RAW_LSTRIP},
                   {"rstrip", TOK_RAW_RSTRIP},
                   {"normalized", TOK_RAW_NORMALIZED}};
    const char *text = NULL;
    size_t n = 0;
    bool special = false;
    unsigned flags = 0;
    json_object *id_value = NULL, *in_model = NULL;
    if (!json_object_is_type(object, json_type_object))
        return sl_tok_json_bad(l->tok, where, "", object, "an object", l->err);
    specrt_status status =
        sl_tok_json_string(l->tok, object, where, "content", true, &text, &n, l->err);
    if (!status)
        status = sl_tok_json_bool(l->tok, object, where, "special", false, &special, l->err);
    for (size_t i = 0; !status && i < sizeof options / sizeof options[0]; i++) {
        bool on = strcmp(options[i].key, "normalized") == 0 && !special;
        status = sl_tok_json_bool(l->tok, object, where, options[i].key, false, &on, l->err);
        if (on) flags |= options[i].flag;
    }
    if (status || n == 0) return status;
    /* As in `tokenizers`, the model's id counts where both have one. */
    if (!json_object_object_get_ex(l->vocab, text, &in_model))
        json_object_object_get_ex(object, "id", &id_value);
    int32_t id;
    status =
        read_id(l->tok, in_model ? in_model : id_value, where, in_model ? text : "id", &id, l->err);
    if (!status) status = set_added(l, id, text, n, special, in_model != NULL);
    if (!status && in_model) l->in_model[id] = true;
    if (special) flags |= TOK_RAW_HIDDEN;
    return status ? status : sl_tok_add_raw(l->tok, id, text, n, flags, l->err);
}

static specrt_status add_added_tokens(loader *l) {
    json_object *list = NULL;
    json_object_object_get_ex(l->root, "added_tokens", &list);
    if (!list) return SPECRT_STATUS_OK;
    if (!json_object_is_type(list, json_type_array))
        return sl_tok_json_bad(l->tok, "", "added_tokens", list, "an array", l->err);
    specrt_status status = SPECRT_STATUS_OK;
    for (size_t i = 0; !status && i < json_object_array_length(list); i++) {
        char where[40];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        status = read_added(l, json_object_array_get_idx(list, i), where);
    }
    return status;
}

/* ---- vocabulary ---- */

static specrt_status add_token(loader *l, const char *text, int32_t id) {
    uint8_t bytes[2 * TOK_MAX_TOKEN_BYTES];
    size_t n = strlen(text);
    int byte = l->tok->byte_fallback ? sl_tok_byte_token(text, n) : -1;
    if (byte >= 0) {
        bytes[0] = (uint8_t)byte;
        return define(l, id, text, bytes, 1, TOKEN_NORMAL, TOK_FLAG_BYTE);
    }
    if (n > sizeof bytes) return set_plain(l, id, text, n, TOKEN_RESERVED); /* which refuses it */
    size_t n_bytes = sl_tok_unspell(l->spelling, text, n, bytes);
    if (n_bytes) return define(l, id, text, bytes, n_bytes, TOKEN_NORMAL, 0);
    return set_plain(l, id, text, n, TOKEN_RESERVED);
}

/* After the added tokens, which say what some of these are. The unknown token is none of them where
 * a file forgets it, and special all the same. */
static specrt_status add_vocabulary(loader *l) {
    const char *unknown = "";
    size_t n = 0;
    TRY(sl_tok_json_string(l->tok, l->model, "model", "unk_token", false, &unknown, &n, l->err));
    json_object_object_foreach(l->vocab, text, value) {
        int32_t id;
        TRY(read_id(l->tok, value, "model.vocab", text, &id, l->err));
        bool is_unknown = n && strcmp(text, unknown) == 0;
        if (is_unknown) l->tok->unknown_id = id;
        if (is_unknown && !l->in_model[id])
            TRY(set_plain(l, id, text, n, TOKEN_SPECIAL));
        else if (!l->in_model[id])
            TRY(add_token(l, text, id));
        l->in_model[id] = false;
    }
    if (n && l->tok->unknown_id == TOK_NONE)
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: model.unk_token is \"%.40s\"; expected a token of model.vocab",
                                l->tok->path, unknown);
    return sl_tok_index(l->tok, l->err);
}

/* ---- merges ---- */

/* "a b" or ["a", "b"], into one string with the length of its first half. */
static specrt_status read_merge(const loader *l, json_object *value, size_t index, char *whole,
                                size_t capacity, size_t *n_left, size_t *n_whole) {
    bool pair = json_object_is_type(value, json_type_array) && json_object_array_length(value) == 2;
    const char *parts[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    for (size_t i = 0; pair && i < 2; i++) {
        json_object *part = json_object_array_get_idx(value, i);
        if (!json_object_is_type(part, json_type_string)) pair = false;
        parts[i] = json_object_get_string(part);
        n[i] = (size_t)json_object_get_string_len(part);
    }
    if (json_object_is_type(value, json_type_string)) {
        parts[0] = json_object_get_string(value);
        size_t length = (size_t)json_object_get_string_len(value);
        const char *space = memchr(parts[0], ' ', length);
        n[0] = space ? (size_t)(space - parts[0]) : 0;
        parts[1] = space ? space + 1 : NULL;
        n[1] = space ? length - n[0] - 1 : 0;
        pair = space && !memchr(parts[1], ' ', n[1]);
    }
    if (!pair || n[0] == 0 || n[1] == 0 || n[0] + n[1] >= capacity)
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: model.merges[%zu]; expected \"a b\" or [\"a\", \"b\"]",
                                l->tok->path, index);
    memcpy(whole, parts[0], n[0]);
    memcpy(whole + n[0], parts[1], n[1]);
    *n_left = n[0];
    *n_whole = n[0] + n[1];
    return SPECRT_STATUS_OK;
}

/* The id of a token as model.vocab spells it; by its bytes where it can be, which is quicker. */
static specrt_status find_token(const loader *l, const char *text, size_t n, size_t index,
                                int32_t *id) {
    char name[4 * TOK_MAX_TOKEN_BYTES];
    uint8_t bytes[4 * TOK_MAX_TOKEN_BYTES];
    json_object *value = NULL;
    *id = sl_tok_find_symbol(l->tok, bytes, sl_tok_unspell(l->spelling, text, n, bytes));
    if (*id != TOK_NONE) return SPECRT_STATUS_OK;
    memcpy(name, text, n); /* read_merge() has seen that it fits */
    name[n] = 0;
    if (!json_object_object_get_ex(l->vocab, name, &value))
        return specrt_error_set(l->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: model.merges[%zu]: \"%.60s\" is no token; expected one of "
                                "model.vocab",
                                l->tok->path, index, name);
    return read_id(l->tok, value, "model.vocab", name, id, l->err);
}

static specrt_status add_merge(loader *l, json_object *value, size_t index) {
    char whole[4 * TOK_MAX_TOKEN_BYTES];
    size_t n_left = 0, n = 0;
    int32_t ids[3];
    specrt_status status = read_merge(l, value, index, whole, sizeof whole, &n_left, &n);
    if (!status) status = find_token(l, whole, n_left, index, &ids[0]);
    if (!status) status = find_token(l, whole + n_left, n - n_left, index, &ids[1]);
    if (!status) status = find_token(l, whole, n, index, &ids[2]);
    if (status) return status;
    /* Special tokens never come of text, nor does what no text spells. */
    for (int i = 0; i < 3; i++) {
        const tok_token *token = &l->tok->tokens[ids[i]];
        if (token->type != TOKEN_NORMAL && !(token->flags & TOK_FLAG_MERGED)) return status;
    }
    return sl_tok_add_merge(l->tok, ids[0], ids[1], ids[2], l->err);
}

static specrt_status add_merges(loader *l) {
    json_object *list = NULL;
    if (!json_object_object_get_ex(l->model, "merges", &list) ||
        !json_object_is_type(list, json_type_array))
        return sl_tok_json_bad(l->tok, "model", "merges", list, "an array", l->err);
    specrt_status status = SPECRT_STATUS_OK;
    size_t n = json_object_array_length(list);
    for (size_t i = 0; !status && i < n; i++)
        status = add_merge(l, json_object_array_get_idx(list, i), i);
    return status;
}

/* ---- the whole ---- */

static specrt_status read_settings(loader *l) {
    tokenizer *tok = l->tok;
    json_object *normalizer = NULL, *pre_tokenizer = NULL;
    json_object_object_get_ex(l->root, "normalizer", &normalizer);
    json_object_object_get_ex(l->root, "pre_tokenizer", &pre_tokenizer);
    specrt_status status = sl_tok_json_normalizer(tok, normalizer, l->err);
    if (!status) status = sl_tok_json_pre_tokenizer(tok, pre_tokenizer, &l->spelling, l->err);
    tok->merge_order = TOK_MERGE_LISTED;
    tok->chars = l->spelling != TOK_SPELL_BYTE_LEVEL;
    if (!status)
        status = sl_tok_json_bool(tok, l->model, "model", "byte_fallback", false,
                                  &tok->byte_fallback, l->err);
    if (!status)
        status =
            sl_tok_json_bool(tok, l->model, "model", "fuse_unk", false, &tok->fuse_unknown, l->err);
    if (!status)
        status = sl_tok_json_bool(tok, l->model, "model", "ignore_merges", false,
                                  &tok->ignore_merges, l->err);
    return status;
}

static specrt_status load(loader *l) {
    l->in_model = calloc(TOK_MAX_VOCAB, 1);
    if (!l->in_model) return sl_error_no_memory(l->err, l->tok->path);
    specrt_status status = check_model(l);
    if (!status) status = read_settings(l);
    if (!status) status = add_added_tokens(l);
    if (!status) status = add_vocabulary(l);
    if (!status) status = add_merges(l);
    if (!status) status = sl_tok_add_named_terminators(l->tok, l->err);
    if (!status) status = read_side_files(l->tok, l->err);
    return status;
}

/* A known splitter tells the kind, though not the model; paths are no names. */
static const char *family(const tokenizer *tok) {
    switch (tok->split) {
    case TOK_SPLIT_GPT2: return "gpt2";
    case TOK_SPLIT_LLAMA3: return "llama3";
    case TOK_SPLIT_CL100K: return "cl100k";
    case TOK_SPLIT_QWEN2: return "qwen2";
    case TOK_SPLIT_QWEN35: return "qwen35";
    case TOK_SPLIT_O200K: return "o200k";
    case TOK_SPLIT_DEEPSEEK_LLM: return "deepseek-llm";
    case TOK_SPLIT_FALCON: return "falcon";
    default: return tok->chars ? "SentencePiece" : "byte-level";
    }
}

specrt_status sl_tok_load_json(tokenizer *tok, const file_view *file, specrt_error *err) {
    loader l = {.tok = tok, .err = err};
    TRY(parse(tok, file, &l.root, err));
    specrt_status status;
    if (json_object_is_type(l.root, json_type_object))
        status = load(&l);
    else
        status = sl_tok_json_bad(tok, "the file", "", l.root, "an object", err);
    json_object_put(l.root);
    free(l.in_model);
    snprintf(tok->name, sizeof tok->name, "%s-style BPE (tokenizer.json)", family(tok));
    return status;
}
