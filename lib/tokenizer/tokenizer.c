/* tokenizer.c : opening a tokenizer of any kind, and what can be asked of it. */
#include "tokenizer/tokenizer_impl.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/missing.h"
#include "formats/gguf.h"

void sl_tokenizer_close(tokenizer *tok) {
    if (!tok) return;
    if (tok->custom.state_free) tok->custom.state_free(tok->custom.state);
    sl_tok_unicode_free(tok->unicode);
    void *owned[] = {tok->tokens,     tok->scores,      tok->pool,         tok->terminators,
                     tok->merges,     tok->index,       tok->pairs,        tok->merge_ids,
                     tok->byte_pairs, tok->merge_ranks, tok->raw[0].items, tok->raw[1].items};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
    free(tok);
}

/* ---- accessors ---- */

const char *sl_tokenizer_name(const tokenizer *tok) {
    return tok->name;
}

int32_t sl_tokenizer_n_vocab(const tokenizer *tok) {
    return tok->n_vocab;
}

int32_t sl_tokenizer_n_normal(const tokenizer *tok) {
    return tok->n_normal;
}

token_type sl_tokenizer_type(const tokenizer *tok, int32_t id) {
    if (id < 0 || id >= tok->n_vocab) return TOKEN_RESERVED;
    return (token_type)tok->tokens[id].type;
}

const uint8_t *sl_tokenizer_bytes(const tokenizer *tok, int32_t id, size_t *n) {
    bool hole = id < 0 || id >= tok->n_vocab || tok->tokens[id].n == 0;
    *n = hole ? 0 : tok->tokens[id].n;
    return hole ? NULL : tok->pool + tok->tokens[id].offset;
}

int32_t sl_tokenizer_find(const tokenizer *tok, const void *bytes, size_t n) {
    int32_t found = sl_tok_find_symbol(tok, bytes, n);
    if (found >= 0 && found < tok->n_vocab) return found;
    if (tok->chars && n == 1 && tok->byte_ids[*(const uint8_t *)bytes] != TOK_NONE)
        return tok->byte_ids[*(const uint8_t *)bytes];
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token *token = &tok->tokens[id];
        if (n && token->n == n && memcmp(tok->pool + token->offset, bytes, n) == 0) return id;
    }
    return TOK_NONE;
}

specrt_status sl_tokenizer_byte_tokens(const tokenizer *tok, int32_t **ids, int32_t *n,
                                       specrt_error *err) {
    int32_t count = 0;
    *ids = NULL;
    *n = 0;
    for (int32_t id = 0; id < tok->n_vocab; id++)
        count += tok->tokens[id].n == 1 && sl_tokenizer_type(tok, id) == TOKEN_NORMAL;
    if (count == 0) return SPECRT_STATUS_OK;
    *ids = (int32_t *)malloc((size_t)count * sizeof **ids);
    if (!*ids) return sl_error_no_memory(err, tok->name);
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (tok->tokens[id].n == 1 && sl_tokenizer_type(tok, id) == TOKEN_NORMAL)
            (*ids)[(*n)++] = id;
    return SPECRT_STATUS_OK;
}

const int32_t *sl_tokenizer_terminators(const tokenizer *tok, int32_t *n) {
    *n = tok->n_terminators;
    return tok->terminators;
}

void sl_tokenizer_fingerprint(const tokenizer *tok, uint8_t sha256[32]) {
    memcpy(sha256, tok->sha256, 32);
}

/* ---- which loader ---- */

static bool is_base64_line(const file_view *file) {
    size_t i = 0;
    while (i < file->n && i < 2 * TOK_MAX_TOKEN_BYTES && file->bytes[i] > ' ') i++;
    return i > 0 && i + 1 < file->n && file->bytes[i] == ' ' && file->bytes[i + 1] >= '0' &&
           file->bytes[i + 1] <= '9';
}

static bool is_tiktoken(const file_view *file) {
    bool gzip = file->n > 2 && file->bytes[0] == 0x1F && file->bytes[1] == 0x8B;
    return gzip || is_base64_line(file);
}

typedef struct tok_loader {
    bool (*recognise)(const file_view *file);
    specrt_status (*load)(tokenizer *tok, const file_view *file, specrt_error *err);
} tok_loader;

/* JSON begins with an object, perhaps behind white space. */
static bool is_json(const file_view *file) {
    size_t i = 0;
    while (i < file->n && i < 64 && strchr(" \t\r\n", file->bytes[i]) && file->bytes[i]) i++;
    return i < file->n && file->bytes[i] == '{';
}

static bool is_gguf(const file_view *file) {
    return sl_gguf_probe(file->bytes, file->n);
}

static const tok_loader loaders[] = {
    {is_gguf, sl_tok_load_gguf},
    {is_json, sl_tok_load_json},
    {is_tiktoken, sl_tok_load_tiktoken},
};

static specrt_status load(tokenizer *tok, const file_view *file, specrt_error *err) {
    for (size_t i = 0; i < sizeof loaders / sizeof loaders[0]; i++)
        if (loaders[i].recognise(file)) return loaders[i].load(tok, file, err);
    /* A SentencePiece model is a protobuf whose first field is a piece. */
    if (file->n > 2 && file->bytes[0] == 0x0A)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: looks like a SentencePiece model; give the model's "
                                "tokenizer.json or a GGUF of it",
                                tok->path);
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: not a tokenizer; expected a tiktoken rank file, a tokenizer.json "
                            "or a GGUF",
                            tok->path);
}

/* ---- folders ---- */

/* How likely a file of a model folder is the tokenizer to take; 0: not one. */
static int folder_rank(const char *name) {
    size_t n = strlen(name);
    if (strcmp(name, "tokenizer.json") == 0) return 4;
    if (strcmp(name, "tokenizer.model") == 0) return 3;
    if (n > 9 && strcmp(name + n - 9, ".tiktoken") == 0) return 2;
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) return 1;
    return 0;
}

/* A part of a split GGUF: NAME-00002-of-00003.gguf. The first holds the vocabulary. */
static bool is_part(const char *name) {
    size_t n = strlen(name);
    return n > 20 && strncmp(name + n - 14, "-of-", 4) == 0 && name[n - 20] == '-';
}

/* Whether files of one rank are one tokenizer: parts of one model are. */
static bool is_same(const char *a, const char *b) {
    return is_part(a) && is_part(b) && strlen(a) == strlen(b) &&
           strncmp(a, b, strlen(a) - 19) == 0 &&
           strcmp(a + strlen(a) - 10, b + strlen(b) - 10) == 0;
}

typedef struct found {
    char name[256];  /* of the best file, of parts the first; "": none */
    char other[256]; /* another tokenizer of its rank; "": none */
} found;

static void take(found *f, const char *name) {
    int better = folder_rank(name) - folder_rank(f->name);
    if (folder_rank(name) == 0 || better < 0) return;
    if (better > 0) f->other[0] = '\0';
    bool before = better > 0 || strcmp(name, f->name) < 0;
    if (better == 0 && !is_same(name, f->name))
        snprintf(f->other, sizeof f->other, "%s", before ? f->name : name);
    if (before) snprintf(f->name, sizeof f->name, "%s", name);
}

/* The best file of a folder. *path, owned, stays NULL if there is none. */
static specrt_status folder_pick(const char *folder, char **path, specrt_error *err) {
    found f = {"", ""};
    DIR *dir = opendir(folder);
    if (!dir) return SPECRT_STATUS_OK;
    for (struct dirent *e; (e = readdir(dir));) take(&f, e->d_name);
    closedir(dir);
    if (!f.name[0]) return SPECRT_STATUS_OK;
    if (f.other[0])
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected one tokenizer in this folder, found %s and %s; name "
                                "the file",
                                folder, f.name, f.other);
    if (asprintf(path, "%s/%s", folder, f.name) >= 0) return SPECRT_STATUS_OK;
    *path = NULL;
    return sl_error_no_memory(err, folder);
}

/* picked : nobody named it */
static specrt_status open_file(const char *path, bool picked, tokenizer *tok, specrt_error *err) {
    file_view file;
    specrt_status status = (picked ? sl_file_map_regular : sl_file_map)(path, &file, err);
    if (status) return status;
    tok->path = path;
    tok->unknown_id = TOK_NONE;
    status = load(tok, &file, err);
    if (!status) status = sl_tokenizer_finish(tok, err);
    tok->path = NULL;
    sl_file_unmap(&file);
    return status;
}

specrt_status sl_tokenizer_open(const char *path, tokenizer **out, specrt_error *err) {
    *out = NULL;
    struct stat st;
    char *inside = NULL;
    if (stat(path, &st) != 0) return sl_missing(path, err);
    bool is_folder = S_ISDIR(st.st_mode);
    if (is_folder) TRY(folder_pick(path, &inside, err));
    if (is_folder && !inside)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: no tokenizer in this folder; expected tokenizer.json, "
                                "tokenizer.model, *.tiktoken or *.gguf",
                                path);
    tokenizer *tok = calloc(1, sizeof *tok);
    specrt_status status = tok ? open_file(inside ? inside : path, is_folder, tok, err)
                               : sl_error_no_memory(err, path);
    free(inside);
    if (status)
        sl_tokenizer_close(tok);
    else
        *out = tok;
    return status;
}

/* Whether a GGUF holds a vocabulary, readable or not: what is damaged sl_tokenizer_open() names. */
static bool gguf_has_vocabulary(const file_view *file) {
    gguf *g;
    gguf_string model = {"", 0};
    if (sl_gguf_open_memory(file->bytes, file->n, "model", &g, NULL)) return true;
    sl_gguf_get_string(g, "tokenizer.ggml.model", &model);
    bool none = (model.n == 8 && memcmp(model.s, "no_vocab", 8) == 0) ||
                (model.n == 4 && memcmp(model.s, "none", 4) == 0);
    bool has = !none && (model.n > 0 || sl_gguf_find(g, "tokenizer.ggml.tokens"));
    sl_gguf_close(g);
    return has;
}

specrt_status sl_tokenizer_of_model(const char *path, tokenizer **out, specrt_error *err) {
    struct stat st;
    file_view file;
    char *inside = NULL;
    *out = NULL;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_folder) TRY(folder_pick(path, &inside, err));
    if (is_folder && !inside) return SPECRT_STATUS_OK;
    specrt_status status = sl_file_map_regular(inside ? inside : path, &file, err);
    bool has = false;
    if (!status) {
        has = is_gguf(&file) ? gguf_has_vocabulary(&file) : is_folder;
        sl_file_unmap(&file);
    }
    if (has) status = sl_tokenizer_open(inside ? inside : path, out, err);
    free(inside);
    return status;
}

specrt_status sl_tokenizer_of_model_if_known(const char *path, tokenizer **out, specrt_error *err) {
    specrt_error why = {SPECRT_STATUS_OK, ""};
    specrt_status status = sl_tokenizer_of_model(path, out, &why);
    if (status == SPECRT_STATUS_BAD_INPUT || status == SPECRT_STATUS_UNSUPPORTED)
        return SPECRT_STATUS_OK;
    if (status && err) *err = why;
    return status;
}

specrt_status sl_tokenizer_check_model(const char *path, const uint8_t sha256[32], const char *name,
                                       specrt_error *err) {
    static const uint8_t unknown[32];
    tokenizer *tok;
    uint8_t bytes[32];
    if (memcmp(sha256, unknown, 32) == 0) return SPECRT_STATUS_OK;
    specrt_status status = sl_tokenizer_of_model_if_known(path, &tok, err);
    if (!tok) return status;
    sl_tokenizer_fingerprint(tok, bytes);
    if (memcmp(bytes, sha256, 32) != 0)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: the model's own tokenizer is %s; expected %s", path,
                                  sl_tokenizer_name(tok), name);
    sl_tokenizer_close(tok);
    return status;
}
