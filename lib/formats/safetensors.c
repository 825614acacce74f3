/* safetensors.c : headers are walked member by member, and json-c sees one string or short array at
 * a time: it would keep only the last of two equal keys, and a hostile header would make it build
 * a tree of a hundred times its size. */
#include "specrt_tools.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

enum {
    MAX_HEADER = 100000000, /* the reference reader's limit; for an index too */
    MAX_NUMBERS = 1024      /* bytes of a shape */
};

/* One file. Its tensors' names are its own. */
typedef struct shard {
    char *path;
    file_view view;
    bool owned;         /* opened here, so closed here */
    st_tensor *tensors; /* sorted by name */
    int64_t n_tensors;
} shard;

struct st {
    shard *shards;
    int64_t n_shards;
    st_tensor *tensors; /* sorted by name; of an index, those it lists */
    int64_t n_tensors;
};

typedef struct dtype_info {
    const char *name;
    uint64_t bits;
    int row; /* specrt_dtype, -1: none */
} dtype_info;

static const dtype_info dtype_infos[] = {
    {"F32", 32, SPECRT_DTYPE_F32},
    {"F16", 16, SPECRT_DTYPE_F16},
    {"BF16", 16, SPECRT_DTYPE_BF16},
    {"I32", 32, SPECRT_DTYPE_I32},
    {"I64", 64, SPECRT_DTYPE_I64},
    {"BOOL", 8, -1},
    {"U8", 8, -1},
    {"I8", 8, -1},
    {"I16", 16, -1},
    {"U16", 16, -1},
    {"U32", 32, -1},
    {"U64", 64, -1},
    {"F64", 64, -1},
    {"C64", 64, -1},
    {"F8_E4M3", 8, -1},
    {"F8_E5M2", 8, -1},
    {"F8_E8M0", 8, -1},
    {"F8_E4M3FNUZ", 8, -1},
    {"F8_E5M2FNUZ", 8, -1},
    {"F4", 4, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
};

static const dtype_info *find_dtype(const char *name) {
    for (size_t i = 0; i < sizeof dtype_infos / sizeof *dtype_infos; i++)
        if (strcmp(dtype_infos[i].name, name) == 0) return &dtype_infos[i];
    return NULL;
}

bool sl_st_dtype(const char *dtype, specrt_dtype *out) {
    const dtype_info *info = find_dtype(dtype);
    if (!info || info->row < 0) return false;
    *out = (specrt_dtype)info->row;
    return true;
}

/* --- walking JSON --- */

typedef struct walker {
    const char *base, *at, *end;
    json_tokener *tok;
    const char *path, *where; /* the member being read, for messages */
    specrt_error *err;
} walker;

__attribute__((format(printf, 2, 3))) static specrt_status bad(const walker *w, const char *format,
                                                               ...) {
    char text[192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT, "%s: header: \"%.100s\": %s (byte %zu)",
                     w->path, w->where, text, (size_t)(w->at - w->base));
    return SPECRT_STATUS_BAD_INPUT;
}

static char peek(walker *w) {
    while (w->at < w->end && memchr(" \t\r\n", *w->at, 4)) w->at++;
    return (char)(w->at < w->end ? *w->at : '\0');
}

static bool skip(walker *w, char c) {
    if (peek(w) != c) return false;
    w->at++;
    return true;
}

/* The value at hand, of a kind and of at most max_bytes; NULL and the error is set. */
static json_object *take_value(walker *w, json_type type, size_t max_bytes) {
    if (peek(w) != (type == json_type_string ? '"' : '[')) {
        bad(w, "expected %s", type == json_type_string ? "a string" : "an array");
        return NULL;
    }
    size_t n = (size_t)(w->end - w->at);
    json_tokener_reset(w->tok);
    json_object *value = json_tokener_parse_ex(w->tok, w->at, (int)(n < max_bytes ? n : max_bytes));
    if (!value) {
        enum json_tokener_error why = json_tokener_get_error(w->tok);
        bad(w, "%s",
            why == json_tokener_continue ? "too long or cut off" : json_tokener_error_desc(why));
        return NULL;
    }
    w->at += json_tokener_get_parse_end(w->tok);
    return value;
}

static specrt_status take_string(walker *w, char **out) {
    json_object *value = take_value(w, json_type_string, MAX_HEADER);
    if (!value) return SPECRT_STATUS_BAD_INPUT;
    const char *text = json_object_get_string(value);
    bool nul = strlen(text) != (size_t)json_object_get_string_len(value);
    *out = nul ? NULL : strdup(text);
    json_object_put(value);
    if (nul) return bad(w, "a NUL in a string");
    return *out ? SPECRT_STATUS_OK : sl_error_no_memory(w->err, w->path);
}

/* Non-negative integers, at most `max` of them. */
static specrt_status take_numbers(walker *w, int64_t *out, int max, int32_t *n) {
    json_object *value = take_value(w, json_type_array, MAX_NUMBERS);
    if (!value) return SPECRT_STATUS_BAD_INPUT;
    size_t length = json_object_array_length(value);
    bool fine = length <= (size_t)max;
    for (size_t i = 0; fine && i < length; i++) {
        json_object *item = json_object_array_get_idx(value, i);
        fine = json_object_is_type(item, json_type_int) && json_object_get_int64(item) >= 0 &&
               json_object_get_uint64(item) <= INT64_MAX;
        out[i] = fine ? json_object_get_int64(item) : 0;
    }
    json_object_put(value);
    *n = (int32_t)length;
    return fine ? SPECRT_STATUS_OK : bad(w, "expected at most %d non-negative integers", max);
}

/* The next member's key, owned by the caller; NULL after the last. The '{' has been skipped. */
static specrt_status next_key(walker *w, bool first, char **key) {
    *key = NULL;
    if (skip(w, '}')) return SPECRT_STATUS_OK;
    if (!first && !skip(w, ',')) return bad(w, "expected ',' or '}'");
    TRY(take_string(w, key));
    if (skip(w, ':')) return SPECRT_STATUS_OK;
    free(*key);
    *key = NULL;
    return bad(w, "expected ':' after a key");
}

static specrt_status walk_init(walker *w, const char *path, const char *text, size_t n,
                               specrt_error *err) {
    *w = (walker){text, text, text + n, json_tokener_new_ex(2), path, "", err};
    if (!w->tok) return sl_error_no_memory(err, path);
    json_tokener_set_flags(w->tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
                                       JSON_TOKENER_VALIDATE_UTF8);
    return SPECRT_STATUS_OK;
}

/* --- one file --- */

/* A tensor and where its bytes are in the data section. */
typedef struct entry {
    st_tensor tensor;
    uint64_t begin, end;
} entry;

typedef struct entry_list {
    entry *items;
    int64_t n;
} entry_list;

/* One member of a tensor's description. */
static specrt_status take_field(walker *w, const char *key, entry *e, unsigned *seen) {
    unsigned field = strcmp(key, "dtype") == 0 ? 1 : strcmp(key, "shape") == 0 ? 2 : 4;
    if (field == 4 && strcmp(key, "data_offsets") != 0)
        return bad(w, "unknown field \"%.40s\"; expected dtype, shape and data_offsets", key);
    if (*seen & field) return bad(w, "%s occurs twice", key);
    *seen |= field;
    if (field == 1) {
        char *dtype = NULL;
        TRY(take_string(w, &dtype));
        const dtype_info *info = find_dtype(dtype);
        if (info) strcpy(e->tensor.dtype, info->name);
        specrt_status status = info ? SPECRT_STATUS_OK : bad(w, "unknown dtype \"%.40s\"", dtype);
        free(dtype);
        return status;
    }
    if (field == 2) return take_numbers(w, e->tensor.shape, ST_MAX_DIMS, &e->tensor.n_dims);
    int64_t offsets[2];
    int32_t n;
    TRY(take_numbers(w, offsets, 2, &n));
    if (n != 2 || offsets[0] > offsets[1])
        return bad(w, "data_offsets: expected [begin, end] with begin <= end");
    e->begin = (uint64_t)offsets[0];
    e->end = (uint64_t)offsets[1];
    return SPECRT_STATUS_OK;
}

/* Bytes that dtype and shape ask for; false when they overflow or are no whole number. */
static bool shape_bytes(const st_tensor *t, uint64_t *bytes) {
    uint64_t n = find_dtype(t->dtype)->bits;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n)) return false;
    *bytes = n / 8;
    return n % 8 == 0;
}

static specrt_status take_entry(walker *w, entry *e) {
    unsigned seen = 0;
    uint64_t bytes;
    if (!skip(w, '{')) return bad(w, "expected an object");
    for (bool first = true;; first = false) {
        char *key;
        TRY(next_key(w, first, &key));
        if (!key) break;
        specrt_status status = take_field(w, key, e, &seen);
        free(key);
        TRY(status);
    }
    if (seen != 7) return bad(w, "expected dtype, shape and data_offsets");
    if (!shape_bytes(&e->tensor, &bytes)) return bad(w, "shape: its size is no number of bytes");
    if (e->end - e->begin != bytes)
        return bad(w,
                   "data_offsets span %" PRIu64 " bytes; expected %" PRIu64 " of dtype and shape",
                   e->end - e->begin, bytes);
    e->tensor.bytes = (size_t)bytes;
    return SPECRT_STATUS_OK;
}

/* "__metadata__" says nothing that tools want. */
static specrt_status skip_metadata(walker *w) {
    if (!skip(w, '{')) return bad(w, "expected an object");
    for (bool first = true;; first = false) {
        char *key, *value = NULL;
        TRY(next_key(w, first, &key));
        if (!key) return SPECRT_STATUS_OK;
        free(key);
        TRY(take_string(w, &value));
        free(value);
    }
}

static specrt_status take_entries(walker *w, entry_list *list) {
    bool metadata = false;
    if (!skip(w, '{')) return bad(w, "expected an object");
    for (bool first = true;; first = false) {
        char *key;
        w->where = "";
        TRY(next_key(w, first, &key));
        if (!key) break;
        w->where = key;
        if (strcmp(key, "__metadata__") == 0) {
            specrt_status status = metadata ? bad(w, "occurs twice") : skip_metadata(w);
            metadata = true;
            w->where = "";
            free(key);
            TRY(status);
            continue;
        }
        entry *e = sl_more(&list->items, (size_t)list->n, sizeof *e);
        if (!e) {
            free(key);
            return sl_error_no_memory(w->err, w->path);
        }
        list->n++;
        memset(e, 0, sizeof *e);
        e->tensor.name = key;
        TRY(take_entry(w, e));
    }
    w->where = "";
    return peek(w) || w->at < w->end ? bad(w, "expected nothing after the last '}'")
                                     : SPECRT_STATUS_OK;
}

static int tensor_order(const void *a, const void *b) {
    return strcmp(((const st_tensor *)a)->name, ((const st_tensor *)b)->name);
}

/* Sorts tensors, or items that begin with one, by name. */
static specrt_status sort_names(const char *path, void *items, int64_t n, size_t item_bytes,
                                specrt_error *err) {
    const char *p = items;
    if (n > 1) qsort(items, (size_t)n, item_bytes, tensor_order);
    for (int64_t i = 1; i < n; i++, p += item_bytes)
        if (tensor_order(p, p + item_bytes) == 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: tensor \"%.100s\": occurs twice", path,
                                    ((const st_tensor *)(const void *)p)->name);
    return SPECRT_STATUS_OK;
}

static int entry_order(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int by_begin = (x->begin > y->begin) - (x->begin < y->begin);
    return by_begin ? by_begin : (x->end > y->end) - (x->end < y->end);
}

/* Tensors must tile the data section: no hole, no overlap, nothing left over. */
static specrt_status place_entries(const shard *s, entry_list *list, const uint8_t *data,
                                   uint64_t n, specrt_error *err) {
    uint64_t at = 0;
    if (list->n > 1) qsort(list->items, (size_t)list->n, sizeof *list->items, entry_order);
    for (int64_t i = 0; i < list->n; i++) {
        entry *e = &list->items[i];
        if (e->begin != at)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: tensor \"%.100s\": data_offsets begin at %" PRIu64
                                    "; expected %" PRIu64 ", where the one before it ends",
                                    s->path, e->tensor.name, e->begin, at);
        if (e->end > n)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: tensor \"%.100s\": ends at byte %" PRIu64
                                    " of the data, which has %" PRIu64
                                    " (is the download complete?)",
                                    s->path, e->tensor.name, e->end, n);
        e->tensor.data = data + e->begin;
        at = e->end;
    }
    if (at != n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %" PRIu64 " bytes after the last tensor; expected none",
                                s->path, n - at);
    return SPECRT_STATUS_OK;
}

static specrt_status check_prefix(const shard *s, uint64_t *header_bytes, specrt_error *err) {
    const file_view *v = &s->view;
    if (v->n < 8)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %zu bytes; expected a safetensors file", s->path, v->n);
    memcpy(header_bytes, v->bytes, sizeof *header_bytes);
    if (*header_bytes > MAX_HEADER)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: header length %" PRIu64
                                "; expected a safetensors file, whose header has at most %d bytes",
                                s->path, *header_bytes, MAX_HEADER);
    if (*header_bytes > v->n - 8)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: truncated in the header; expected %" PRIu64
                                " bytes of it, found %zu",
                                s->path, *header_bytes, v->n - 8);
    if (*header_bytes == 0 || v->bytes[8] != '{')
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: header: expected it to start with '{'", s->path);
    return SPECRT_STATUS_OK;
}

/* Hands the entries' tensors, and so their names, to the shard. */
static specrt_status adopt_entries(shard *s, entry_list *list, specrt_error *err) {
    s->tensors = calloc((size_t)list->n + 1, sizeof *s->tensors);
    if (!s->tensors) return sl_error_no_memory(err, s->path);
    for (int64_t i = 0; i < list->n; i++) s->tensors[i] = list->items[i].tensor;
    s->n_tensors = list->n;
    list->n = 0;
    return sort_names(s->path, s->tensors, s->n_tensors, sizeof *s->tensors, err);
}

/* Reads the shard whose view is set. */
static specrt_status read_shard(shard *s, specrt_error *err) {
    uint64_t n = 0;
    walker w;
    entry_list list = {0};
    TRY(check_prefix(s, &n, err));
    TRY(walk_init(&w, s->path, (const char *)s->view.bytes + 8, (size_t)n, err));
    specrt_status status = take_entries(&w, &list);
    json_tokener_free(w.tok);
    if (!status) status = sort_names(s->path, list.items, list.n, sizeof *list.items, err);
    if (!status) status = place_entries(s, &list, s->view.bytes + 8 + n, s->view.n - 8 - n, err);
    if (!status) status = adopt_entries(s, &list, err);
    for (int64_t i = 0; i < list.n; i++) free((void *)(uintptr_t)list.items[i].tensor.name);
    free(list.items);
    return status;
}

static shard *add_shard(st *s, const char *path) {
    shard *added = sl_more(&s->shards, (size_t)s->n_shards, sizeof *added);
    if (!added) return NULL;
    memset(added, 0, sizeof *added);
    added->path = strdup(path);
    if (!added->path) return NULL;
    s->n_shards++;
    return added;
}

static specrt_status adopt_shard(st *s, const shard *from, specrt_error *err) {
    s->tensors = calloc((size_t)from->n_tensors + 1, sizeof *s->tensors);
    if (!s->tensors) return sl_error_no_memory(err, from->path);
    memcpy(s->tensors, from->tensors, (size_t)from->n_tensors * sizeof *s->tensors);
    s->n_tensors = from->n_tensors;
    return SPECRT_STATUS_OK;
}

/* --- sharded models --- */

static const st_tensor *find_in(const st_tensor *tensors, int64_t n, const char *name) {
    st_tensor key = {.name = name};
    return n ? bsearch(&key, tensors, (size_t)n, sizeof *tensors, tensor_order) : NULL;
}

/* The shard of a file name in the index, opened on first sight. */
static specrt_status find_shard(st *s, const walker *w, const char *file, const shard **out) {
    const char *slash = strrchr(w->path, '/');
    int folder = slash ? (int)(slash - w->path + 1) : 0;
    for (int64_t i = s->n_shards - 1; i >= 0; i--) /* the last one is the likeliest */
        if (strcmp(s->shards[i].path + folder, file) == 0) return *out = &s->shards[i], 0;
    if (!*file || strchr(file, '/') || strcmp(file, "..") == 0 || strcmp(file, ".") == 0)
        return bad(w, "file \"%.60s\"; expected a plain file name", file);
    size_t n = (size_t)folder + strlen(file) + 1;
    char *path = malloc(n);
    if (!path) return sl_error_no_memory(w->err, w->path);
    snprintf(path, n, "%.*s%s", folder, w->path, file);
    shard *added = add_shard(s, path);
    free(path);
    if (!added) return sl_error_no_memory(w->err, w->path);
    TRY(sl_file_map_regular(added->path, &added->view, w->err));
    added->owned = true;
    *out = added;
    return read_shard(added, w->err);
}

/* One member of weight_map. */
static specrt_status take_mapping(st *s, walker *w, const char *name) {
    const shard *from = NULL;
    char *file = NULL;
    TRY(take_string(w, &file));
    specrt_status status = find_shard(s, w, file, &from);
    free(file);
    TRY(status);
    const st_tensor *found = find_in(from->tensors, from->n_tensors, name);
    if (!found)
        return specrt_error_set(w->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor \"%.100s\": missing; \"%s\" says it is there",
                                from->path, name, w->path);
    st_tensor *at = sl_more(&s->tensors, (size_t)s->n_tensors, sizeof *at);
    if (!at) return sl_error_no_memory(w->err, w->path);
    *at = *found;
    s->n_tensors++;
    return SPECRT_STATUS_OK;
}

static specrt_status take_weight_map(st *s, walker *w) {
    if (!skip(w, '{')) return bad(w, "expected an object");
    for (bool first = true;; first = false) {
        char *name;
        TRY(next_key(w, first, &name));
        if (!name) return SPECRT_STATUS_OK;
        specrt_status status = take_mapping(s, w, name);
        free(name);
        TRY(status);
    }
}

/* Steps over a value of any kind, balancing brackets outside strings. */
static specrt_status skip_value(walker *w) {
    int64_t depth = 0;
    for (char c = peek(w); c; c = peek(w)) {
        if (depth == 0 && (c == ',' || c == '}')) return SPECRT_STATUS_OK;
        if (c == '"') {
            char *text = NULL;
            TRY(take_string(w, &text));
            free(text);
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        w->at++;
    }
    return bad(w, "the file ends in a value");
}

static specrt_status read_index(st *s, walker *w) {
    bool found = false;
    w->where = "weight_map";
    if (!skip(w, '{')) return bad(w, "expected an object around it");
    for (bool first = true;; first = false) {
        char *key;
        TRY(next_key(w, first, &key));
        if (!key) break;
        bool map = strcmp(key, "weight_map") == 0;
        free(key);
        if (map && found) return bad(w, "occurs twice");
        TRY(map ? take_weight_map(s, w) : skip_value(w));
        found = found || map;
    }
    if (!found) return bad(w, "missing; expected the index of a sharded model");
    return sort_names(w->path, s->tensors, s->n_tensors, sizeof *s->tensors, w->err);
}

static specrt_status open_index(st *s, const char *path, const file_view *view, specrt_error *err) {
    walker w;
    if (view->n > MAX_HEADER)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected an index of at most %d bytes, found %zu", path,
                                MAX_HEADER, view->n);
    TRY(walk_init(&w, path, (const char *)view->bytes, view->n, err));
    specrt_status status = read_index(s, &w);
    json_tokener_free(w.tok);
    return status;
}

/* --- opening --- */

/* JSON text, whose first eight bytes would be far too long a header. */
static bool is_index(const uint8_t *bytes, size_t n) {
    uint64_t header_bytes = UINT64_MAX;
    size_t i = 0;
    if (n >= sizeof header_bytes) memcpy(&header_bytes, bytes, sizeof header_bytes);
    while (i < n && memchr(" \t\r\n", bytes[i], 4)) i++;
    return header_bytes > MAX_HEADER && i < n && bytes[i] == '{';
}

bool sl_st_probe(const void *bytes, size_t n) {
    uint64_t header_bytes;
    if (n < 9 || is_index(bytes, n)) return is_index(bytes, n);
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    return header_bytes <= MAX_HEADER && ((const char *)bytes)[8] == '{';
}

static specrt_status open_view(st *s, const char *path, file_view *view, bool owned,
                               specrt_error *err) {
    if (owned && is_index(view->bytes, view->n)) {
        specrt_status status = open_index(s, path, view, err);
        sl_file_unmap(view);
        return status;
    }
    shard *only = add_shard(s, path);
    if (!only) return sl_error_no_memory(err, path);
    only->view = *view;
    only->owned = owned;
    TRY(read_shard(only, err));
    return adopt_shard(s, only, err);
}

static specrt_status open_any(const char *path, file_view *view, bool owned, st **out,
                              specrt_error *err) {
    *out = NULL;
    st *s = calloc(1, sizeof *s);
    specrt_status status = s ? open_view(s, path, view, owned, err) : sl_error_no_memory(err, path);
    if (status)
        sl_st_close(s);
    else
        *out = s;
    return status;
}

specrt_status sl_st_open(const char *path, st **out, specrt_error *err) {
    file_view view;
    *out = NULL;
    TRY(sl_file_map(path, &view, err));
    return open_any(path, &view, true, out, err);
}

specrt_status sl_st_open_memory(const void *bytes, size_t n, const char *name, st **out,
                                specrt_error *err) {
    file_view view = {bytes, n, false};
    return open_any(name, &view, false, out, err);
}

void sl_st_close(st *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->n_shards; i++) {
        shard *each = &s->shards[i];
        for (int64_t j = 0; j < each->n_tensors; j++)
            free((void *)(uintptr_t)each->tensors[j].name);
        if (each->owned) sl_file_unmap(&each->view);
        free(each->tensors);
        free(each->path);
    }
    free(s->shards);
    free(s->tensors);
    free(s);
}

const st_tensor *sl_st_tensors(const st *s, int64_t *n) {
    *n = s->n_tensors;
    return s->tensors;
}

const st_tensor *sl_st_find(const st *s, const char *name) {
    return find_in(s->tensors, s->n_tensors, name);
}

const st_tensor *sl_st_find_prefix(const st *s, const char *prefix) {
    for (int64_t i = 0; i < s->n_tensors; i++)
        if (strncmp(s->tensors[i].name, prefix, strlen(prefix)) == 0) return &s->tensors[i];
    return NULL;
}

/* --- writing --- */

static specrt_status check_tensors(const st_tensor *tensors, int n, const out_file *out,
                                   specrt_error *err) {
    for (int i = 0; i < n; i++) {
        uint64_t bytes = 0;
        const st_tensor *t = &tensors[i];
        bool twice = false;
        for (int j = 0; j < i; j++) twice = twice || strcmp(tensors[j].name, t->name) == 0;
        bool fits = find_dtype(t->dtype) && shape_bytes(t, &bytes) && bytes == t->bytes;
        if (twice || !fits)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: tensor \"%.100s\": %s",
                                    out->path, t->name,
                                    twice ? "given twice" : "dtype, shape and bytes do not agree");
    }
    return SPECRT_STATUS_OK;
}

static json_object *describe_tensor(const st_tensor *t, uint64_t begin) {
    json_object *info = json_object_new_object(), *shape = json_object_new_array(),
                *offsets = json_object_new_array();
    for (int32_t i = 0; i < t->n_dims; i++)
        json_object_array_add(shape, json_object_new_int64(t->shape[i]));
    json_object_array_add(offsets, json_object_new_uint64(begin));
    json_object_array_add(offsets, json_object_new_uint64(begin + t->bytes));
    json_object_object_add(info, "dtype", json_object_new_string(t->dtype));
    json_object_object_add(info, "shape", shape);
    json_object_object_add(info, "data_offsets", offsets);
    return info;
}

static json_object *describe(const st_tensor *tensors, int n, const char *const *metadata,
                             int n_metadata) {
    uint64_t at = 0;
    json_object *header = json_object_new_object(), *pairs = json_object_new_object();
    for (int i = 0; i < n_metadata; i++)
        json_object_object_add(pairs, metadata[2 * i], json_object_new_string(metadata[2 * i + 1]));
    if (n_metadata > 0)
        json_object_object_add(header, "__metadata__", pairs);
    else
        json_object_put(pairs);
    for (int i = 0; i < n; at += tensors[i++].bytes)
        json_object_object_add(header, tensors[i].name, describe_tensor(&tensors[i], at));
    return header;
}

static specrt_status put_header(json_object *header, out_file *out, specrt_error *err) {
    size_t n;
    const char *text = json_object_to_json_string_length(
        header, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    if (!text) return sl_error_no_memory(err, out->path);
    uint64_t padded = (n + 7) & ~(uint64_t)7;
    TRY(sl_out_write(out, &padded, sizeof padded, err));
    TRY(sl_out_write(out, text, n, err));
    return sl_out_write(out, "       ", (size_t)padded - n, err);
}

specrt_status sl_st_write(const st_tensor *tensors, int n, const char *const *metadata,
                          int n_metadata, out_file *out, specrt_error *err) {
    TRY(check_tensors(tensors, n, out, err));
    json_object *header = describe(tensors, n, metadata, n_metadata);
    specrt_status status = put_header(header, out, err);
    json_object_put(header);
    for (int i = 0; !status && i < n; i++)
        status = sl_out_write(out, tensors[i].data, tensors[i].bytes, err);
    return status;
}
