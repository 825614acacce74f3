/* model.c : which file of a folder is the model, which tensor its head, and rows of either kind. */
#include "model/model.h"

#include <dirent.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/missing.h"
#include "model/checkpoint.h"
#include "tokenizer/tokenizer.h"

static const char *const gguf_heads[] = {"output.weight", NULL};
static const char *const gguf_embeddings[] = {"token_embd.weight", NULL};
static const char *const st_heads[] = {"lm_head.weight", "language_model.lm_head.weight",
                                       "model.language_model.lm_head.weight", NULL};
static const char *const st_embeddings[] = {"model.embed_tokens.weight",
                                            "model.language_model.embed_tokens.weight",
                                            "language_model.model.embed_tokens.weight", NULL};

/* --- finding the file --- */

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* 3 of "model-00003-of-00007.gguf"; 0 of other names. */
static int part_number(const char *name) {
    const char *of = strstr(name, "-of-");
    return of && of - name >= 6 && of[-6] == '-' ? atoi(of - 5) : 0;
}

/* How surely a file is the model of its folder, best first; 0: it is not. */
static int rank(const char *name) {
    if (ends_with(name, ".safetensors.index.json")) return 1;
    if (strcmp(name, "model.safetensors") == 0) return 2;
    if (ends_with(name, ".safetensors")) return part_number(name) ? 0 : 3;
    if (ends_with(name, ".gguf")) return part_number(name) > 1 ? 0 : 3;
    return 0;
}

static int is_model(const struct dirent *item) {
    return rank(item->d_name) > 0;
}

/* Of names [n], the one of the best rank; NULL when several share it. */
static const char *best_name(struct dirent *const *names, int n) {
    const char *best = NULL;
    bool several = false;
    for (int i = 0; i < n; i++) {
        int order = best ? rank(names[i]->d_name) - rank(best) : -1;
        several = order == 0 || (several && order > 0);
        if (order < 0) best = names[i]->d_name;
    }
    return several ? NULL : best;
}

/* Weights as torch saves them, which are not read: a pickle names code to run. */
static int is_pickle(const struct dirent *item) {
    return strncmp(item->d_name, "pytorch_model", 13) == 0 && ends_with(item->d_name, ".bin");
}

static bool has_pickles(const char *folder) {
    struct dirent **names = NULL;
    int n = scandir(folder, &names, is_pickle, NULL);
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    return n > 0;
}

static specrt_status choose(const char *folder, struct dirent *const *names, int n, char **path,
                            specrt_error *err) {
    if (n == 0 && has_pickles(folder))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%.120s: expected safetensors, found pytorch_model*.bin alone; convert them in this "
            "folder: python3 -c 'import glob, torch, safetensors.torch as s; s.save_file({k: "
            "v.clone().contiguous() for f in glob.glob(\"pytorch_model*.bin\") for k, v in "
            "torch.load(f, \"cpu\", weights_only=True).items()}, \"model.safetensors\")'",
            folder);
    if (n == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: no model inside; expected a .gguf, a .safetensors or the "
                                "model.safetensors.index.json of a sharded one",
                                folder);
    const char *best = best_name(names, n);
    if (!best)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %d models inside (%s, %s%s); name one of them", folder, n,
                                names[0]->d_name, names[1]->d_name, n > 2 ? ", ..." : "");
    const char *slash = ends_with(folder, "/") ? "" : "/";
    if (asprintf(path, "%s%s%s", folder, slash, best) >= 0) return SPECRT_STATUS_OK;
    *path = NULL;
    return sl_error_no_memory(err, folder);
}

static specrt_status resolve(const char *path, char **out, specrt_error *err) {
    struct stat info;
    struct dirent **names = NULL;
    if (stat(path, &info) != 0) return sl_missing(path, err);
    if (!S_ISDIR(info.st_mode)) {
        *out = strdup(path);
        return *out ? SPECRT_STATUS_OK : sl_error_no_memory(err, path);
    }
    int n = scandir(path, &names, is_model, alphasort);
    if (n < 0) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot list the folder", path);
    specrt_status status = choose(path, names, n, out, err);
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    return status;
}

/* --- config.json --- */

static int read_tied(json_object *config) {
    json_object *text, *tied;
    if (json_object_object_get_ex(config, "tie_word_embeddings", &tied))
        return json_object_get_boolean(tied);
    if (json_object_object_get_ex(config, "text_config", &text) &&
        json_object_object_get_ex(text, "tie_word_embeddings", &tied))
        return json_object_get_boolean(tied);
    return -1;
}

/* Asks the config.json beside a safetensors model whether its head is the embedding. */
static specrt_status read_config(model *m, specrt_error *err) {
    const char *slash = strrchr(m->path, '/');
    int folder = slash ? (int)(slash + 1 - m->path) : 0;
    char *path;
    if (asprintf(&path, "%.*sconfig.json", folder, m->path) < 0)
        return sl_error_no_memory(err, m->path);
    specrt_status status = SPECRT_STATUS_OK;
    if (access(path, F_OK) == 0) status = sl_checkpoint_read_json(path, &m->config, err);
    if (m->config) m->tied = read_tied(m->config);
    free(path);
    return status;
}

/* --- opening --- */

static specrt_status open_file(model *m, specrt_error *err) {
    file_view view;
    TRY(sl_file_map_regular(m->path, &view, err));
    bool is_gguf = sl_gguf_probe(view.bytes, view.n), is_st = sl_st_probe(view.bytes, view.n);
    sl_file_unmap(&view);
    if (is_gguf) return sl_gguf_open(m->path, &m->g, err);
    if (!is_st)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: not a model; expected GGUF, safetensors or the "
                                "index.json of sharded safetensors",
                                m->path);
    TRY(sl_st_open(m->path, &m->s, err));
    return read_config(m, err);
}

specrt_status sl_model_open(const char *path, model *out, specrt_error *err) {
    *out = (model){.tied = -1};
    specrt_status status = resolve(path, &out->path, err);
    if (!status) status = open_file(out, err);
    if (status) sl_model_close(out);
    return status;
}

void sl_model_close(model *m) {
    sl_gguf_close(m->g);
    sl_st_close(m->s);
    json_object_put(m->config);
    free(m->path);
    free(m->bias);
    *m = (model){.tied = -1};
}

/* --- tensors --- */

/* A tensor of either kind, as rows. */
typedef struct matrix {
    const void *data;
    int32_t n_dims;
    int64_t n_cols, n_rows;
    specrt_dtype dtype;
    bool readable; /* dtype is one that decodes to f32 */
    char type[32]; /* its name, for messages */
} matrix;

bool sl_model_decodes(specrt_dtype dtype) {
    return specrt_dtype_name(dtype) && dtype != SPECRT_DTYPE_I32 && dtype != SPECRT_DTYPE_I64;
}

static void from_gguf(const gguf_tensor *t, matrix *out) {
    *out =
        (matrix){.data = t->data, .n_dims = t->n_dims, .n_cols = t->dims[0], .n_rows = t->dims[1]};
    out->dtype = (specrt_dtype)t->type;
    out->readable = sl_model_decodes(out->dtype);
    snprintf(out->type, sizeof out->type, "%s (%" PRIu32 ")", sl_gguf_type_name(t->type), t->type);
}

static void from_st(const st_tensor *t, matrix *out) {
    int32_t n = t->n_dims;
    *out = (matrix){.data = t->data, .n_dims = n, .n_rows = 1};
    out->n_cols = n > 0 ? t->shape[n - 1] : 1;
    if (n > 1) out->n_rows = t->shape[n - 2];
    out->readable = sl_st_dtype(t->dtype, &out->dtype) && sl_model_decodes(out->dtype);
    snprintf(out->type, sizeof out->type, "%s", t->dtype);
}

static bool find(const model *m, const char *name, matrix *out) {
    const gguf_tensor *in_gguf = m->g ? sl_gguf_find_tensor(m->g, name) : NULL;
    const st_tensor *in_st = m->s ? sl_st_find(m->s, name) : NULL;
    if (in_gguf) from_gguf(in_gguf, out);
    if (in_st) from_st(in_st, out);
    return in_gguf || in_st;
}

static int64_t count_tensors(const model *m) {
    int64_t n = 0;
    if (m->g) sl_gguf_tensors(m->g, &n);
    if (m->s) sl_st_tensors(m->s, &n);
    return n;
}

static const char *tensor_name(const model *m, int64_t i) {
    int64_t n;
    return m->g ? sl_gguf_tensors(m->g, &n)[i].name : sl_st_tensors(m->s, &n)[i].name;
}

/* Adds to a text of at most `bytes`; what does not fit is left out. */
static __attribute__((format(printf, 3, 4))) void append(char *text, size_t bytes,
                                                         const char *format, ...) {
    va_list args;
    size_t used = strlen(text);
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* Names of the first tensors, for messages. */
static void list_tensors(const model *m, char *text, size_t bytes) {
    int64_t n = count_tensors(m);
    snprintf(text, bytes, "%s", n ? "it has " : "it has none");
    for (int64_t i = 0; i < n && i < 6; i++)
        append(text, bytes, "%s%.40s", i ? ", " : "", tensor_name(m, i));
    if (n > 6) append(text, bytes, " and %" PRId64 " more", n - 6);
}

/* "f32 f16 ... q6_k" */
static void list_types(char *text, size_t bytes) {
    text[0] = '\0';
    for (int i = 0; i < 64; i++)
        if (sl_model_decodes((specrt_dtype)i))
            append(text, bytes, "%s%s", text[0] ? " " : "", specrt_dtype_name((specrt_dtype)i));
}

static specrt_status check_type(const model *m, const char *name, const matrix *found,
                                specrt_error *err) {
    char types[128];
    if (found->readable) return SPECRT_STATUS_OK;
    list_types(types, sizeof types);
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: tensor \"%s\": type %s is not supported; supported: %s", m->path,
                            name, found->type, types);
}

specrt_status sl_model_matrix(const model *m, const char *name, specrt_head_desc *out,
                              specrt_error *err) {
    matrix found;
    char names[256];
    *out = (specrt_head_desc){0};
    if (!find(m, name, &found)) {
        list_tensors(m, names, sizeof names);
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: tensor \"%.100s\": missing; %s",
                                m->path, name, names);
    }
    if (found.n_dims != 2 || found.n_rows == 0 || found.n_cols == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor \"%s\": expected a matrix, found %" PRId32
                                " dimensions of %" PRId64 " rows, %" PRId64 " columns",
                                m->path, name, found.n_dims, found.n_rows, found.n_cols);
    TRY(check_type(m, name, &found, err));
    *out = (specrt_head_desc){
        .rows = found.data, .dtype = found.dtype, .n_rows = found.n_rows, .n_cols = found.n_cols};
    return SPECRT_STATUS_OK;
}

/* --- the head --- */

static const char *first_of(const model *m, const char *const *names) {
    matrix found;
    for (; *names; names++)
        if (find(m, *names, &found)) return *names;
    return NULL;
}

/* A config that ties them makes any stored head a copy; one that does not makes the embedding
 * something else than the head. */
static const char *head_name(const model *m) {
    const char *head = first_of(m, m->g ? gguf_heads : st_heads);
    const char *embedding = first_of(m, m->g ? gguf_embeddings : st_embeddings);
    if (m->tied == 1 && embedding) return embedding;
    if (head || m->tied == 0) return head;
    return embedding;
}

/* The tensor `name`, if it is there, as f32 [rows of the head]. */
static specrt_status take_bias(model *m, const char *name, specrt_head_desc *head,
                               specrt_error *err) {
    matrix bias;
    if (!find(m, name, &bias)) return SPECRT_STATUS_OK;
    if (bias.n_dims != 1 || bias.n_cols != head->n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor \"%s\": %" PRId64 " elements; expected %" PRId64
                                ", the rows of the head",
                                m->path, name, bias.n_cols, head->n_rows);
    TRY(check_type(m, name, &bias, err));
    float *values = calloc((size_t)bias.n_cols, sizeof *values);
    if (!values) return sl_error_no_memory(err, m->path);
    specrt_row_decode(bias.dtype, bias.data, bias.n_cols, values);
    free(m->bias);
    head->bias = m->bias = values;
    return SPECRT_STATUS_OK;
}

static specrt_status read_bias(model *m, const char *head_name, specrt_head_desc *head,
                               specrt_error *err) {
    char *name;
    if (!ends_with(head_name, ".weight")) return SPECRT_STATUS_OK;
    int stem = (int)(strlen(head_name) - strlen(".weight"));
    if (asprintf(&name, "%.*s.bias", stem, head_name) < 0) return sl_error_no_memory(err, m->path);
    specrt_status status = take_bias(m, name, head, err);
    free(name);
    return status;
}

specrt_status sl_model_head(model *m, const char *tensor, specrt_head_desc *out, const char **name,
                            specrt_error *err) {
    char names[256];
    const char *taken = tensor ? tensor : head_name(m);
    *out = (specrt_head_desc){0};
    if (!taken) {
        list_tensors(m, names, sizeof names);
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: no LM head; expected %s%s; name its tensor, or give the target whose head this "
            "drafter uses; %s",
            m->path, m->g ? gguf_heads[0] : st_heads[0],
            m->tied == 0 ? " (config.json does not tie the embedding)" : "", names);
    }
    TRY(sl_model_matrix(m, taken, out, err));
    if (name) *name = taken;
    return read_bias(m, taken, out, err);
}

specrt_status sl_model_embedding(const model *m, const char *tensor, specrt_head_desc *out,
                                 specrt_error *err) {
    char names[256];
    const char *taken = tensor ? tensor : first_of(m, m->g ? gguf_embeddings : st_embeddings);
    if (taken) return sl_model_matrix(m, taken, out, err);
    list_tensors(m, names, sizeof names);
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: no token embedding; expected %s; %s",
                            m->path, m->g ? gguf_embeddings[0] : st_embeddings[0], names);
}

/* --- a draft head's ids --- */

/* Target ids of the rows; seen : u8 [n_vocab], zeroed. Values have 64 bits: ids, or offsets from the row. */
static specrt_status take_ids(const model *m, const uint8_t *values, bool offsets, int64_t n_rows,
                              int64_t n_vocab, uint8_t *seen, int32_t *ids, specrt_error *err) {
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t value, base = offsets ? i : 0;
        memcpy(&value, values + 8 * i, 8);
        if (value < -base || value >= n_vocab - base)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: tensor \"d2t\": entry %" PRId64
                                    " leads outside the target's %" PRId64 " tokens",
                                    m->path, i, n_vocab);
        ids[i] = (int32_t)(base + value);
        if (seen[ids[i]]++)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: tensor \"d2t\": expected a token for each row, found "
                                    "token %" PRId32 " twice",
                                    m->path, ids[i]);
    }
    return SPECRT_STATUS_OK;
}

/* The values of d2t, borrowed; NULL: there is none. *fits: they are 64-bit integers, one for each row. */
static const uint8_t *find_d2t(const model *m, int64_t n_rows, bool *fits) {
    const st_tensor *t = m->s ? sl_st_find(m->s, "d2t") : NULL;
    const gguf_tensor *g = m->g ? sl_gguf_find_tensor(m->g, "d2t") : NULL;
    if (t) *fits = strcmp(t->dtype, "I64") == 0 && t->n_dims == 1 && t->shape[0] == n_rows;
    if (g) *fits = g->type == SPECRT_DTYPE_I64 && g->n_dims == 1 && g->dims[0] == n_rows;
    return t ? t->data : g ? g->data : NULL;
}

specrt_status sl_model_d2t(const model *m, int64_t n_rows, int64_t n_vocab, int32_t **ids,
                           specrt_error *err) {
    bool fits = false;
    const uint8_t *values = find_d2t(m, n_rows, &fits);
    *ids = NULL;
    if (!values) return SPECRT_STATUS_OK;
    if (!fits)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor \"d2t\": expected I64 [%" PRId64
                                "], one for each row of the head",
                                m->path, n_rows);
    int32_t *out = NULL;
    uint8_t *seen = NULL;
    bool ok = (out = calloc((size_t)n_rows, sizeof *out)) && (seen = calloc((size_t)n_vocab, 1));
    specrt_status status = ok ? take_ids(m, values, m->s != NULL, n_rows, n_vocab, seen, out, err)
                              : sl_error_no_memory(err, m->path);
    free(seen);
    if (status)
        free(out);
    else
        *ids = out;
    return status;
}

/* --- size --- */

static uint64_t elements(const int64_t *dims, int32_t n) {
    uint64_t product = 1;
    for (int32_t i = 0; i < n; i++) product *= (uint64_t)dims[i];
    return product;
}

uint64_t sl_model_n_params(const model *m) {
    int64_t n = count_tensors(m), unused;
    uint64_t sum = 0;
    for (int64_t i = 0; m->g && i < n; i++)
        sum += elements(sl_gguf_tensors(m->g, &unused)[i].dims, 4);
    for (int64_t i = 0; m->s && i < n; i++) {
        const st_tensor *t = &sl_st_tensors(m->s, &unused)[i];
        sum += elements(t->shape, t->n_dims);
    }
    const char *copy = m->tied == 1 && first_of(m, st_embeddings) ? first_of(m, st_heads) : NULL;
    if (m->s && copy) {
        const st_tensor *t = sl_st_find(m->s, copy);
        sum -= elements(t->shape, t->n_dims);
    }
    return sum;
}

specrt_status sl_model_blame(const model *m, specrt_status status, specrt_error *err) {
    if (status == SPECRT_STATUS_OK) return status;
    specrt_error why = *err;
    return specrt_error_set(err, status, "%s: %.400s", m->path, why.msg);
}

specrt_status sl_model_check_trace(const model *m, const char *trace, specrt_error *err) {
    specrt_trace_reader *reader;
    tokenizer *tok = NULL;
    uint8_t sha256[32];
    TRY(specrt_trace_open(trace, NULL, &reader, err));
    specrt_status status = m->g ? sl_tokenizer_of_model_if_known(m->path, &tok, err) : 0;
    if (tok) {
        sl_tokenizer_fingerprint(tok, sha256);
        status = specrt_trace_check(reader, sha256, 0, 0, err);
    }
    if (tok && status)
        specrt_error_set(err, status,
                         "%.200s: tokenizer: expected that of %.200s, found another; record with "
                         "this model and its drafter",
                         trace, m->path);
    sl_tokenizer_close(tok);
    specrt_trace_close(reader);
    return status;
}
