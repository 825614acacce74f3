/* token_map.c : maps in memory and reading them. A file is first taken apart into a raw list (and the
 * t2d mask, where it has one); then it is decided whether the list holds ids or offsets. */
#include "model/token_map.h"

#include <ctype.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "formats/gguf.h"
#include "base/io.h"
#include "formats/npy.h"
#include "formats/pt.h"
#include "formats/safetensors.h"
#include "base/utf8.h"
#include "model/vocab_groups.h"

static const char BLOCKS[] = "list of blocks"; /* the kind of exllamav3's */

enum { MAX_TEXT = 16 << 20 }; /* bytes of a JSON or text list: over a million ids */

typedef struct raw_map {
    const char *path, *kind;
    int64_t *values;  /* [n] owned; NULL: only a mask */
    uint64_t *counts; /* [n] owned; NULL: none */
    int64_t n;
    uint8_t *mask; /* t2d [n_mask] owned, 0 or 1; NULL: none */
    int64_t n_mask;
    int64_t bound;         /* ids are below it */
    bool only_absolute;    /* the format has no other reading */
    bool blocks;           /* entries of a text list are blocks of ids */
    uint8_t tokenizer[32]; /* sha256; all zero: not said */
} raw_map;

static specrt_status bad(const char *path, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s", path, what);
}

void sl_token_map_free(token_map *map) {
    free(map->ids);
    free(map->counts);
    *map = (token_map){0};
}

specrt_status sl_token_map_from_ranks(const specrt_ranks *ranks, int32_t size, token_map *out,
                                      specrt_error *err) {
    const specrt_ranks_header *h = ranks->header;
    *out = (token_map){0};
    if (size == 0) size = h->n_default;
    if (size < h->n_forced || size < 1 || size > h->n_valid)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "size %" PRId32 ": expected at least %" PRId32
                                " (the forced ids) and at most %" PRId32 " (the valid ids)",
                                size, h->n_forced, h->n_valid);
    *out = (token_map){.n = size, .n_vocab = h->n_vocab};
    bool ok = (out->ids = (int32_t *)malloc((size_t)size * sizeof *out->ids)) &&
              (out->counts = (uint64_t *)malloc((size_t)size * sizeof *out->counts));
    if (!ok) return sl_token_map_free(out), sl_error_no_memory(err, "token map");
    memcpy(out->ids, ranks->ids, (size_t)size * sizeof *out->ids);
    memcpy(out->counts, ranks->counts, (size_t)size * sizeof *out->counts);
    return SPECRT_STATUS_OK;
}

/* ---- raw lists -------------------------------------------------------------------------------- */

static specrt_status set_kind(raw_map *raw, const char *kind, int64_t n, specrt_error *err) {
    raw->kind = kind;
    if (n > 0 && n <= SPECRT_MAX_VOCAB) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s of %" PRId64 " entries; expected at %s", raw->path, kind, n,
                            n < 1 ? "least one" : "most 16777216, of a vocabulary");
}

static specrt_status alloc_values(raw_map *raw, const char *kind, int64_t n, specrt_error *err) {
    if (raw->values) return bad(raw->path, "a second list of ids beside d2t.npy", err);
    TRY(set_kind(raw, kind, n, err));
    raw->n = n;
    raw->values = (int64_t *)malloc((size_t)n * sizeof *raw->values);
    return raw->values ? SPECRT_STATUS_OK : sl_error_no_memory(err, raw->path);
}

/* d2t, or any list of integers, as stored in an array or tensor of one dimension. */
static specrt_status take_values(raw_map *raw, const char *kind, const npy_array *type,
                                 const void *values, specrt_error *err) {
    if (type->kind != 'i' && type->kind != 'u')
        return bad(raw->path, "d2t is no integer array; expected int64 or int32", err);
    TRY(alloc_values(raw, kind, type->n, err));
    for (int64_t i = 0; i < type->n; i++)
        raw->values[i] = sl_npy_int(type, (const uint8_t *)values, i);
    return SPECRT_STATUS_OK;
}

static specrt_status take_mask(raw_map *raw, const char *kind, const npy_array *type,
                               const void *values, specrt_error *err) {
    if (raw->mask) return bad(raw->path, "a second t2d mask", err);
    if (type->kind == 'f' || type->item_bytes != 1)
        return bad(raw->path, "t2d is no bool array", err);
    TRY(set_kind(raw, raw->kind ? raw->kind : kind, type->n, err));
    raw->mask = (uint8_t *)malloc((size_t)type->n);
    if (!raw->mask) return sl_error_no_memory(err, raw->path);
    raw->n_mask = type->n;
    for (int64_t i = 0; i < type->n; i++) raw->mask[i] = ((const uint8_t *)values)[i] != 0;
    return SPECRT_STATUS_OK;
}

/* ---- containers ------------------------------------------------------------------------------- */

static specrt_status take_pt_list(raw_map *raw, const pt_object *list, specrt_error *err) {
    TRY(alloc_values(raw, "torch list", list->n, err));
    for (int64_t i = 0; i < list->n; i++) {
        if (list->items[i].kind != PT_INT)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: entry %" PRId64 " of the list: expected an int, found %s",
                                    raw->path, i, sl_pt_kind_name(list->items[i].kind));
        raw->values[i] = list->items[i].i;
    }
    return SPECRT_STATUS_OK;
}

/* {id: count}; ids that were never seen are left out. */
static specrt_status take_pt_counts(raw_map *raw, const pt_object *dict, specrt_error *err) {
    TRY(alloc_values(raw, "torch dict of counts", dict->n / 2, err));
    raw->counts = (uint64_t *)malloc((size_t)raw->n * sizeof *raw->counts);
    if (!raw->counts) return sl_error_no_memory(err, raw->path);
    raw->n = 0;
    for (int64_t i = 0; i < dict->n; i += 2) {
        const pt_value *key = &dict->items[i], *count = key + 1;
        if (key->kind != PT_INT || count->kind != PT_INT || count->i < 0)
            return bad(
                raw->path,
                "dict without d2t or t2d; expected {\"d2t\", \"t2d\"} tensors or {id: count}", err);
        raw->values[raw->n] = key->i;
        raw->counts[raw->n] = (uint64_t)count->i;
        if (count->i > 0) raw->n++;
    }
    return set_kind(raw, raw->kind, raw->n, err);
}

static specrt_status take_pt_tensor(raw_map *raw, const char *kind, const pt *p,
                                    const pt_value *value, bool mask, specrt_error *err) {
    pt_tensor t;
    if (value->kind != PT_TENSOR)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s: expected a tensor, found %s",
                                raw->path, mask ? "t2d" : "d2t", sl_pt_kind_name(value->kind));
    TRY(sl_pt_tensor_get(p, value, &t, err));
    npy_array type = {.kind = t.kind, .item_bytes = t.item_bytes, .n = t.n};
    return mask ? take_mask(raw, kind, &type, t.values, err)
                : take_values(raw, kind, &type, t.values, err);
}

static specrt_status take_pt_root(raw_map *raw, const pt *p, specrt_error *err) {
    const pt_value *root = sl_pt_root(p), *d2t = sl_pt_find(root, "d2t"),
                   *t2d = sl_pt_find(root, "t2d");
    if (root->kind == PT_LIST) return take_pt_list(raw, root->object, err);
    if (root->kind == PT_TENSOR) return take_pt_tensor(raw, "torch tensor", p, root, false, err);
    if (root->kind != PT_DICT)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a list, tensor or dict, found %s", raw->path,
                                sl_pt_kind_name(root->kind));
    if (!d2t && !t2d) return take_pt_counts(raw, root->object, err);
    if (d2t) TRY(take_pt_tensor(raw, "torch d2t", p, d2t, false, err));
    return t2d ? take_pt_tensor(raw, "torch t2d", p, t2d, true, err) : SPECRT_STATUS_OK;
}

static specrt_status read_pt(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    pt *p;
    TRY(sl_pt_open_memory(bytes, n, raw->path, &p, err));
    specrt_status status = take_pt_root(raw, p, err);
    sl_pt_close(p);
    return status;
}

static specrt_status read_npy(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    npy_array array;
    const uint8_t *values;
    TRY(sl_npy_values(bytes, n, raw->path, &array, &values, err));
    if (array.n_dims != 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: array of %d dimensions; expected 1", raw->path, array.n_dims);
    return array.kind == 'b' ? take_mask(raw, "npy t2d", &array, values, err)
                             : take_values(raw, "npy array", &array, values, err);
}

static specrt_status take_st(raw_map *raw, const st *s, specrt_error *err) {
    const st_tensor *d2t = sl_st_find(s, "d2t"), *t2d = sl_st_find(s, "t2d");
    if (!d2t && !t2d) return bad(raw->path, "safetensors file without a tensor d2t or t2d", err);
    if (d2t) {
        bool wide = strcmp(d2t->dtype, "I64") == 0;
        npy_array type = {.kind = wide || strcmp(d2t->dtype, "I32") == 0 ? 'i' : 'f',
                          .item_bytes = wide ? 8 : 4,
                          .n = d2t->shape[0]};
        if (d2t->n_dims != 1) return bad(raw->path, "tensor d2t: expected one dimension", err);
        TRY(take_values(raw, "safetensors d2t", &type, d2t->data, err));
    }
    if (!t2d) return SPECRT_STATUS_OK;
    bool is_mask = strcmp(t2d->dtype, "BOOL") == 0 || strcmp(t2d->dtype, "U8") == 0;
    npy_array type = {.kind = is_mask ? 'b' : 'f', .item_bytes = 1, .n = t2d->shape[0]};
    if (t2d->n_dims != 1) return bad(raw->path, "tensor t2d: expected one dimension", err);
    return take_mask(raw, "safetensors t2d", &type, t2d->data, err);
}

static specrt_status read_st(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    st *s;
    TRY(sl_st_open_memory(bytes, n, raw->path, &s, err));
    specrt_status status = take_st(raw, s, err);
    sl_st_close(s);
    return status;
}

/* llama.cpp knows absolute ids only, and its vocabulary bounds them. */
static specrt_status take_gguf(raw_map *raw, const gguf *g, specrt_error *err) {
    const gguf_tensor *d2t = sl_gguf_find_tensor(g, "d2t");
    const gguf_kv *tokens = sl_gguf_find(g, "tokenizer.ggml.tokens");
    if (!d2t) return bad(raw->path, "GGUF without a tensor d2t", err);
    if ((d2t->type != SPECRT_DTYPE_I64 && d2t->type != SPECRT_DTYPE_I32) || d2t->n_dims != 1)
        return bad(raw->path, "tensor d2t: expected i64 of one dimension", err);
    if (tokens && raw->bound > (int64_t)tokens->count) raw->bound = (int64_t)tokens->count;
    raw->only_absolute = true;
    npy_array type = {
        .kind = 'i', .item_bytes = d2t->type == SPECRT_DTYPE_I64 ? 8 : 4, .n = d2t->dims[0]};
    return take_values(raw, "GGUF d2t", &type, d2t->data, err);
}

static specrt_status read_gguf(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    gguf *g;
    TRY(sl_gguf_open_memory(bytes, n, raw->path, &g, err));
    specrt_status status = take_gguf(raw, g, err);
    sl_gguf_close(g);
    return status;
}

/* The digest of a tokenizer from 64 digits; of any other text nothing. */
static void take_digest(raw_map *raw, const char *digits, size_t n) {
    for (size_t i = 0; i < 64; i++)
        if (n < 64 || !isxdigit((unsigned char)digits[i])) return;
    for (size_t i = 0; i < 32; i++) {
        const char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
        raw->tokenizer[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

/* A list, or MTPLX's object that has it as "ids". */
static specrt_status take_json(raw_map *raw, json_object *list, specrt_error *err) {
    json_object *digest, *ids;
    if (json_object_object_get_ex(list, "tokenizer_sha256", &digest) &&
        json_object_is_type(digest, json_type_string))
        take_digest(raw, json_object_get_string(digest),
                    (size_t)json_object_get_string_len(digest));
    if (json_object_object_get_ex(list, "ids", &ids)) list = ids;
    raw->only_absolute = true; /* nothing writes offsets in JSON */
    if (!json_object_is_type(list, json_type_array))
        return bad(raw->path, "JSON: expected a flat list of token ids", err);
    int64_t n = (int64_t)json_object_array_length(list);
    TRY(alloc_values(raw, "JSON list", n, err));
    for (int64_t i = 0; i < n; i++) {
        json_object *id = json_object_array_get_idx(list, (size_t)i);
        if (!json_object_is_type(id, json_type_int))
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: JSON entry %" PRId64
                                    " is no whole number; expected a flat "
                                    "list of token ids",
                                    raw->path, i);
        raw->values[i] = json_object_get_int64(id);
    }
    return SPECRT_STATUS_OK;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static specrt_status read_json(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    json_tokener *tokener = json_tokener_new_ex(8);
    if (!tokener) return sl_error_no_memory(err, raw->path);
    const char *text = (const char *)bytes;
    while (n > 0 && is_space(text[n - 1])) n--;
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    json_object *list = json_tokener_parse_ex(tokener, text, (int)n);
    specrt_status status;
    if (!list || json_tokener_get_parse_end(tokener) != n)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: expected JSON, found an error at byte %zu", raw->path,
                                  json_tokener_get_parse_end(tokener));
    else
        status = take_json(raw, list, err);
    json_object_put(list);
    json_tokener_free(tokener);
    return status;
}

/* The next number of a text list; separators are white space and commas, '#' starts a comment.
 * @return 1 a number, 0 the end, -1 something else. */
static int next_number(const char **at, const char *end, int64_t *line, int64_t *out) {
    const char *p = *at;
    while (p < end && (is_space(*p) || *p == ',' || *p == '#')) {
        if (*p == '#')
            while (p + 1 < end && p[1] != '\n') p++;
        if (*p == '\n') ++*line;
        p++;
    }
    *at = p;
    if (p == end) return 0;
    bool negative = *p == '-';
    int64_t x = 0;
    const char *digits = p += negative;
    for (; p < end && *p >= '0' && *p <= '9' && p - digits < 18; p++) x = x * 10 + (*p - '0');
    if (p == digits || (p < end && !is_space(*p) && *p != ',' && *p != '#')) return -1;
    *out = negative ? -x : x;
    *at = p;
    return 1;
}

/* What exllamav3's list says in its first lines, where we wrote it. */
static void read_comments(raw_map *raw, const char *text, size_t n) {
    static const char blocks[] = "# blocks of 16 token ids\n", digest[] = "# tokenizer_sha256 ";
    size_t at = sizeof blocks - 1, digits = at + sizeof digest - 1;
    if (n < at || memcmp(text, blocks, at) != 0) return;
    raw->blocks = true;
    if (n > digits && memcmp(text + at, digest, sizeof digest - 1) == 0)
        take_digest(raw, text + digits, n - digits);
}

/* The ids of the blocks. */
static specrt_status expand_blocks(raw_map *raw, specrt_error *err) {
    int64_t n = raw->n, *blocks = raw->values;
    if (n > SPECRT_MAX_VOCAB / VOCAB_BLOCK)
        return bad(raw->path, "more blocks than a vocabulary has", err);
    raw->values = NULL;
    specrt_status status = alloc_values(raw, BLOCKS, n * VOCAB_BLOCK, err);
    for (int64_t i = 0; i < raw->n && status == SPECRT_STATUS_OK; i++) {
        int64_t block = blocks[i / VOCAB_BLOCK];
        bool sums = block >= 0 && block <= INT32_MAX;
        raw->values[i] = sums ? block * VOCAB_BLOCK + i % VOCAB_BLOCK : -1;
    }
    raw->only_absolute = true;
    free(blocks);
    return status;
}

static specrt_status read_text(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    const char *at = (const char *)bytes, *end = at + n;
    int64_t line = 1, x;
    TRY(alloc_values(raw, "text list", (int64_t)n / 2 + 1, err)); /* a digit and a separator each */
    read_comments(raw, at, n);
    raw->n = 0;
    for (;;) {
        int found = next_number(&at, end, &line, &x);
        if (found == 0) break;
        if (found < 0) {
            int shown = end - at > 20 ? 20 : (int)(end - at);
            for (int i = 0; i < shown; i++)
                if (at[i] < ' ' || at[i] > '~') shown = i;
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s:%" PRId64 ": expected a token id, found '%.*s'", raw->path,
                                    line, shown, at);
        }
        raw->values[raw->n++] = x;
    }
    TRY(set_kind(raw, raw->kind, raw->n, err));
    return raw->blocks ? expand_blocks(raw, err) : SPECRT_STATUS_OK;
}

static specrt_status read_any(raw_map *raw, const void *bytes, size_t n, specrt_error *err) {
    const uint8_t *b = (const uint8_t *)bytes;
    /* The length that a safetensors header begins with may look like a pickle's first bytes. */
    if (sl_pt_probe(bytes, n) && !sl_st_probe(bytes, n)) return read_pt(raw, bytes, n, err);
    if (sl_npy_probe(bytes, n)) return read_npy(raw, bytes, n, err);
    if (sl_gguf_probe(bytes, n)) return read_gguf(raw, bytes, n, err);
    size_t mark = sl_utf8_mark(bytes, n), start = 0;
    b += mark, n -= mark;
    while (start < n && is_space((char)b[start])) start++;
    bool object = start < n && b[start] == '{' && (n < 9 || b[8] != '{');
    if (!object && sl_st_probe(b, n)) return read_st(raw, b, n, err);
    bool json = object || (start < n && b[start] == '[');
    bool text = start == n || (b[start] && strchr("#-,0123456789", b[start]));
    if (!json && !text)
        return bad(raw->path,
                   "no token map; expected a torch .pt, .npy, safetensors, GGUF, JSON or text list",
                   err);
    if (n > MAX_TEXT) return bad(raw->path, "over 16 MiB of text; no token map is so long", err);
    return json ? read_json(raw, b, n, err) : read_text(raw, b, n, err);
}

/* ---- ids or offsets --------------------------------------------------------------------------- */

typedef struct entry {
    int64_t id, at;
} entry;

static int by_id_then_place(const void *a, const void *b) {
    const entry *x = (const entry *)a, *y = (const entry *)b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* One way to read the list. */
typedef struct reading {
    bool offset;
    entry *sorted;    /* [n] by id; NULL: an id is out of range */
    int64_t outside;  /* the first entry out of range, or -1 */
    int64_t repeated; /* the first index in sorted whose id equals the one before, or -1 */
    int64_t n_repeated;
} reading;

static int64_t id_at(const raw_map *raw, bool offset, int64_t i) {
    return raw->values[i] + (offset ? i : 0);
}

static specrt_status try_reading(const raw_map *raw, bool offset, reading *out, specrt_error *err) {
    *out = (reading){offset, NULL, -1, -1, 0};
    for (int64_t i = 0; i < raw->n && out->outside < 0; i++) {
        bool sums = raw->values[i] == (int32_t)raw->values[i];
        if (!sums || id_at(raw, offset, i) < 0 || id_at(raw, offset, i) >= raw->bound)
            out->outside = i;
    }
    if (out->outside >= 0) return SPECRT_STATUS_OK;
    out->sorted = (entry *)malloc((size_t)raw->n * sizeof *out->sorted);
    if (!out->sorted) return sl_error_no_memory(err, raw->path);
    for (int64_t i = 0; i < raw->n; i++) out->sorted[i] = (entry){id_at(raw, offset, i), i};
    qsort(out->sorted, (size_t)raw->n, sizeof *out->sorted, by_id_then_place);
    for (int64_t i = raw->n - 1; i > 0; i--)
        if (out->sorted[i].id == out->sorted[i - 1].id) out->repeated = i, out->n_repeated++;
    return SPECRT_STATUS_OK;
}

static bool fits(const reading *r) {
    return r->sorted && r->repeated < 0;
}

/* Whether absolute ids may be meant: some scripts write an id twice. Offsets repeat where ids follow one
 * another, which in a list of any size are more than these. */
static bool may_be_meant(const reading *absolute, const raw_map *raw, bool dedupe) {
    return absolute->sorted && (dedupe || absolute->n_repeated <= 1 + raw->n / 256);
}

/* The ids are exactly those of t2d. */
static bool agrees(const raw_map *raw, const reading *r) {
    int64_t n_set = 0;
    if (!fits(r)) return false;
    for (int64_t i = 0; i < raw->n_mask; i++) n_set += raw->mask[i];
    bool same = n_set == raw->n;
    for (int64_t i = 0; i < raw->n && same; i++)
        same = r->sorted[i].id < raw->n_mask && raw->mask[r->sorted[i].id];
    return same;
}

static specrt_status explain(const raw_map *raw, const reading *r, specrt_error *err) {
    const char *as = r->offset ? "offsets" : "absolute ids";
    if (r->outside >= 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s read as %s: entry %" PRId64 " is %" PRId64
                                "; expected an id in [0, %" PRId64 ")",
                                raw->path, raw->kind, as, r->outside, raw->values[r->outside],
                                raw->bound);
    const entry *e = &r->sorted[r->repeated];
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s read as %s: id %" PRId64 " is listed at entries %" PRId64
                            " and %" PRId64 "; expected each id once (--dedupe keeps the first)",
                            raw->path, raw->kind, as, e->id, e[-1].at, e->at);
}

/* Decide between the two readings of raw->values. */
static specrt_status choose(const raw_map *raw, const token_map_options *o, const reading *absolute,
                            const reading *offset, const reading **out, specrt_error *err) {
    token_map_values values = raw->only_absolute && !o->values ? TOKEN_MAP_ABSOLUTE : o->values;
    if (raw->counts || values == TOKEN_MAP_BLOCKS) values = TOKEN_MAP_ABSOLUTE;
    *out = values == TOKEN_MAP_OFFSET ? offset : absolute;
    if (values == TOKEN_MAP_AUTO && raw->mask)
        *out = agrees(raw, offset) ? offset : absolute;
    else if (values == TOKEN_MAP_AUTO && fits(offset) && raw->n > 1 &&
             may_be_meant(absolute, raw, o->dedupe))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s reads both as absolute ids (last %" PRId64
                                "%s) and as offsets (last id %" PRId64
                                "); say which with --values absolute or --values offset",
                                raw->path, raw->kind, raw->values[raw->n - 1],
                                fits(absolute) ? "" : ", some twice", id_at(raw, true, raw->n - 1));
    else if (values == TOKEN_MAP_AUTO && fits(offset))
        *out = offset;
    if (raw->mask && !agrees(raw, *out))
        return bad(raw->path, "d2t and t2d name different ids; expected t2d to mark those of d2t",
                   err);
    /* Negative entries can only be offsets. */
    if (!values && !(*out)->sorted && raw->values[absolute->outside] < 0) *out = offset;
    bool may_drop = o->dedupe && (*out)->sorted;
    return fits(*out) || may_drop ? SPECRT_STATUS_OK : explain(raw, *out, err);
}

/* Keep the first of repeated ids, in the list's own order.
 *   drop : u8 [raw->n], zeroed */
static void keep_first(const raw_map *raw, const reading *r, uint8_t *drop, token_map *out) {
    for (int64_t i = 1; i < raw->n; i++)
        if (r->sorted[i].id == r->sorted[i - 1].id) drop[r->sorted[i].at] = 1;
    for (int64_t i = 0; i < raw->n; i++) {
        if (drop[i]) continue;
        out->ids[out->n] = (int32_t)id_at(raw, r->offset, i);
        if (raw->counts) out->counts[out->n] = raw->counts[i];
        out->n++;
    }
    out->n_dropped = (int32_t)(raw->n - out->n);
    out->was_offset = r->offset;
}

static specrt_status keep(const raw_map *raw, const reading *r, token_map *out, specrt_error *err) {
    size_t n = (size_t)raw->n;
    uint8_t *drop = NULL;
    bool ok = (drop = (uint8_t *)calloc(n, 1)) &&
              (out->ids = (int32_t *)calloc(n, sizeof *out->ids)) &&
              (out->counts = (uint64_t *)calloc(n, sizeof *out->counts));
    if (ok) keep_first(raw, r, drop, out);
    if (!raw->counts) free(out->counts), out->counts = NULL;
    free(drop);
    return ok ? SPECRT_STATUS_OK : sl_error_no_memory(err, raw->path);
}

static specrt_status from_mask(const raw_map *raw, token_map *out, specrt_error *err) {
    out->ids = (int32_t *)calloc((size_t)raw->n_mask, sizeof *out->ids);
    if (!out->ids) return sl_error_no_memory(err, raw->path);
    for (int64_t i = 0; i < raw->n_mask; i++)
        if (raw->mask[i]) out->ids[out->n++] = (int32_t)i;
    if (out->n == 0) return bad(raw->path, "t2d marks no token", err);
    if (out->ids[out->n - 1] < raw->bound) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: t2d marks id %" PRId32 "; expected an id in [0, %" PRId64 ")",
                            raw->path, out->ids[out->n - 1], raw->bound);
}

typedef struct counted {
    uint64_t count;
    int32_t id;
} counted;

static int by_count_then_id(const void *a, const void *b) {
    const counted *x = (const counted *)a, *y = (const counted *)b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static specrt_status sort_by_count(token_map *map, const char *path, specrt_error *err) {
    counted *all = (counted *)malloc((size_t)map->n * sizeof *all);
    if (!all) return sl_error_no_memory(err, path);
    for (int32_t i = 0; i < map->n; i++) all[i] = (counted){map->counts[i], map->ids[i]};
    qsort(all, (size_t)map->n, sizeof *all, by_count_then_id);
    for (int32_t i = 0; i < map->n; i++) {
        map->ids[i] = all[i].id;
        map->counts[i] = all[i].count;
    }
    free(all);
    return SPECRT_STATUS_OK;
}

static specrt_status resolve(raw_map *raw, const token_map_options *o, token_map *out,
                             specrt_error *err) {
    reading absolute = {0}, offset = {0};
    const reading *chosen;
    if (!raw->values) return from_mask(raw, out, err);
    if (o->values == TOKEN_MAP_BLOCKS && strcmp(raw->kind, BLOCKS) != 0)
        return bad(raw->path, "--values blocks: expected a text list of blocks", err);
    specrt_status status = try_reading(raw, false, &absolute, err);
    if (status == SPECRT_STATUS_OK) status = try_reading(raw, true, &offset, err);
    if (status == SPECRT_STATUS_OK) status = choose(raw, o, &absolute, &offset, &chosen, err);
    if (status == SPECRT_STATUS_OK) status = keep(raw, chosen, out, err);
    if (status == SPECRT_STATUS_OK && out->counts) status = sort_by_count(out, raw->path, err);
    free(absolute.sorted);
    free(offset.sorted);
    return status;
}

/* ---- entry points ----------------------------------------------------------------------------- */

static const token_map_options defaults;

static raw_map raw_start(const char *path, const token_map_options *o) {
    return (raw_map){.path = path,
                     .bound = o->n_vocab ? o->n_vocab : INT32_MAX,
                     .blocks = o->values == TOKEN_MAP_BLOCKS};
}

/* Resolve what was read (if it was) and free it. */
static specrt_status raw_finish(raw_map *raw, specrt_status status, const token_map_options *o,
                                token_map *out, specrt_error *err) {
    *out = (token_map){.kind = raw->kind};
    if (status == SPECRT_STATUS_OK) status = resolve(raw, o, out, err);
    if (raw->bound < INT32_MAX) out->n_vocab = (int32_t)raw->bound;
    if (raw->mask) out->n_vocab = (int32_t)raw->n_mask;
    memcpy(out->tokenizer_sha256, raw->tokenizer, sizeof raw->tokenizer);
    if (status != SPECRT_STATUS_OK) sl_token_map_free(out);
    free(raw->values);
    free(raw->counts);
    free(raw->mask);
    return status;
}

specrt_status sl_token_map_read_memory(const void *bytes, size_t n, const char *name,
                                       const token_map_options *options, token_map *out,
                                       specrt_error *err) {
    const token_map_options *o = options ? options : &defaults;
    raw_map raw = raw_start(name, o);
    return raw_finish(&raw, read_any(&raw, bytes, n, err), o, out, err);
}

specrt_status sl_token_map_read_st(const st *s, const char *name, const token_map_options *options,
                                   token_map *out, specrt_error *err) {
    const token_map_options *o = options ? options : &defaults;
    raw_map raw = raw_start(name, o);
    return raw_finish(&raw, take_st(&raw, s, err), o, out, err);
}

bool sl_token_map_values_of(const char *text, token_map_values *out) {
    *out = TOKEN_MAP_AUTO;
    if (!text) return true;
    if (strcmp(text, "absolute") == 0) *out = TOKEN_MAP_ABSOLUTE;
    if (strcmp(text, "offset") == 0) *out = TOKEN_MAP_OFFSET;
    if (strcmp(text, "blocks") == 0) *out = TOKEN_MAP_BLOCKS;
    return *out != TOKEN_MAP_AUTO;
}

static specrt_status read_file(raw_map *raw, const char *path, specrt_error *err) {
    file_view view;
    raw->path = path;
    TRY(sl_file_map(path, &view, err));
    specrt_status status = read_any(raw, view.bytes, view.n, err);
    sl_file_unmap(&view);
    return status;
}

static bool exists_in(const char *folder, const char *name, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

/* d2t.npy with t2d.npy beside it, or the weights of an EAGLE-3 checkpoint. */
static specrt_status read_folder(raw_map *raw, const char *folder, char *path, size_t bytes,
                                 specrt_error *err) {
    if (exists_in(folder, "d2t.npy", path, bytes)) {
        TRY(read_file(raw, path, err));
        return exists_in(folder, "t2d.npy", path, bytes) ? read_file(raw, path, err)
                                                         : SPECRT_STATUS_OK;
    }
    if (exists_in(folder, "model.safetensors", path, bytes) ||
        exists_in(folder, "pytorch_model.bin", path, bytes))
        return read_file(raw, path, err);
    return bad(folder, "folder without d2t.npy, model.safetensors or pytorch_model.bin", err);
}

specrt_status sl_token_map_read(const char *path, const token_map_options *options, token_map *out,
                                specrt_error *err) {
    const token_map_options *o = options ? options : &defaults;
    raw_map raw = raw_start(path, o);
    char inside[4096];
    struct stat info;
    specrt_status status = stat(path, &info) == 0 && S_ISDIR(info.st_mode)
                               ? read_folder(&raw, path, inside, sizeof inside, err)
                               : read_file(&raw, path, err);
    return raw_finish(&raw, status, o, out, err);
}
