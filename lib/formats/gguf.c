/* gguf.c : GGUF v2 and v3. A part is one mapped file; a model is one part, or all of a split.
 * Opening walks every byte of the metadata once, so the accessors trust what it recorded. */
#include "specrt_tools.h"
#include "formats/gguf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

/* ggml refuses more, and so do we. */
#define MAX_STRING  ((uint64_t)1 << 30)
#define MAX_ELEMS   ((uint64_t)1 << 30)
#define MAX_NESTING 4

typedef struct part {
    char *path;
    file_view view;
    bool owned; /* opened here, so closed here */
    uint32_t version, alignment;
    gguf_kv *kvs;
    const gguf_kv **by_key; /* sorted */
    int64_t n_kvs;
} part;

struct gguf {
    part *parts; /* the first one's metadata is the model's */
    int64_t n_parts;
    gguf_tensor *tensors; /* of all parts, in file order */
    const gguf_tensor **by_name;
    int64_t n_tensors;
};

/* What a tensor type is called and how it packs elements; those of specrt_dtype and the others. */
typedef struct type_info {
    uint32_t type;
    int64_t block_elems;
    uint64_t block_bytes;
    const char *name;
} type_info;

static const type_info type_infos[] = {{10, 256, 84, "q2_k"},       {11, 256, 110, "q3_k"},
                                       {16, 256, 66, "iq2_xxs"},    {17, 256, 74, "iq2_xs"},
                                       {18, 256, 98, "iq3_xxs"},    {19, 256, 50, "iq1_s"},
                                       {21, 256, 110, "iq3_s"},     {22, 256, 82, "iq2_s"},
                                       {23, 256, 136, "iq4_xs"},    {24, 1, 1, "i8"},
                                       {25, 1, 2, "i16"},           {28, 1, 8, "f64"},
                                       {29, 256, 56, "iq1_m"},      {34, 256, 54, "tq1_0"},
                                       {35, 256, 66, "tq2_0"},      {39, 32, 17, "mxfp4"},
                                       {40, 64, 36, "nvfp4"},       {41, 128, 18, "q1_0"},
#define TYPE_INFO(name, number, elems, bytes, text) {number, elems, bytes, text},
                                       SPECRT_DTYPE_LIST(TYPE_INFO)
#undef TYPE_INFO
};

static const type_info *find_type(uint32_t type) {
    for (size_t i = 0; i < sizeof type_infos / sizeof *type_infos; i++)
        if (type_infos[i].type == type) return &type_infos[i];
    return NULL;
}

const char *sl_gguf_type_name(uint32_t type) {
    const type_info *info = find_type(type);
    return info ? info->name : "unknown";
}

/* --- reading --- */

typedef struct reader {
    const uint8_t *base, *at, *end;
    const char *path;
    char where[128]; /* the field being read, for messages */
    specrt_error *err;
} reader;

static void set_where(reader *r, const char *what, gguf_string name) {
    snprintf(r->where, sizeof r->where, "%s \"%.*s\"", what, (int)(name.n < 80 ? name.n : 80),
             name.s);
}

__attribute__((format(printf, 2, 3))) static specrt_status bad(const reader *r, const char *format,
                                                               ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: %s", r->path, r->where, text);
}

/* @return the next n bytes, or NULL and the error is set. */
static const uint8_t *take(reader *r, uint64_t n) {
    uint64_t left = (uint64_t)(r->end - r->at);
    if (n > left) {
        bad(r, "the file ends; expected %" PRIu64 " more bytes at offset %zu, found %" PRIu64, n,
            (size_t)(r->at - r->base), left);
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n;
    return p;
}

static specrt_status take_u32(reader *r, uint32_t *out) {
    const uint8_t *p = take(r, sizeof *out);
    if (!p) return SPECRT_STATUS_BAD_INPUT;
    memcpy(out, p, sizeof *out);
    return SPECRT_STATUS_OK;
}

static specrt_status take_u64(reader *r, uint64_t *out) {
    const uint8_t *p = take(r, sizeof *out);
    if (!p) return SPECRT_STATUS_BAD_INPUT;
    memcpy(out, p, sizeof *out);
    return SPECRT_STATUS_OK;
}

static specrt_status take_string(reader *r, gguf_string *out) {
    uint64_t n;
    TRY(take_u64(r, &n));
    if (n > MAX_STRING) return bad(r, "a string of %" PRIu64 " bytes; at most 1 GiB", n);
    const uint8_t *p = take(r, n);
    if (!p) return SPECRT_STATUS_BAD_INPUT;
    *out = (gguf_string){(const char *)p, (size_t)n};
    return SPECRT_STATUS_OK;
}

static const uint8_t scalar_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static specrt_status take_type(reader *r, gguf_type *out) {
    uint32_t type;
    TRY(take_u32(r, &type));
    if (type > GGUF_F64) return bad(r, "value type %" PRIu32 "; expected 0 to 12", type);
    *out = (gguf_type)type;
    return SPECRT_STATUS_OK;
}

static specrt_status skip_scalars(reader *r, gguf_type type, uint64_t count) {
    const uint8_t *p = take(r, count * scalar_bytes[type]);
    if (!p) return SPECRT_STATUS_BAD_INPUT;
    if (type != GGUF_BOOL) return SPECRT_STATUS_OK;
    for (uint64_t i = 0; i < count; i++)
        if (p[i] > 1) return bad(r, "a bool of %d; expected 0 or 1", p[i]);
    return SPECRT_STATUS_OK;
}

/* Walks `count` values of one type. Nested arrays, which nobody uses, are only stepped over. */
static specrt_status skip_values(reader *r, gguf_type type, uint64_t count, int depth) {
    if (count > MAX_ELEMS) return bad(r, "an array of %" PRIu64 " elements; at most 2^30", count);
    if (scalar_bytes[type]) return skip_scalars(r, type, count);
    if (depth > MAX_NESTING) return bad(r, "arrays nested deeper than %d", MAX_NESTING);
    for (uint64_t i = 0; i < count; i++) {
        gguf_string s;
        gguf_type elem;
        uint64_t n;
        if (type == GGUF_STRING) {
            TRY(take_string(r, &s));
            continue;
        }
        TRY(take_type(r, &elem));
        TRY(take_u64(r, &n));
        TRY(skip_values(r, elem, n, depth + 1));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status take_kv(reader *r, gguf_kv *kv) {
    TRY(take_string(r, &kv->key));
    set_where(r, "key", kv->key);
    TRY(take_type(r, &kv->type));
    kv->elem = kv->type;
    kv->count = 1;
    if (kv->type == GGUF_ARRAY) {
        TRY(take_type(r, &kv->elem));
        TRY(take_u64(r, &kv->count));
    }
    kv->value = r->at;
    TRY(skip_values(r, kv->elem, kv->count, 0));
    kv->value_bytes = (size_t)(r->at - kv->value);
    return SPECRT_STATUS_OK;
}

static int key_order(gguf_string a, gguf_string b) {
    int order = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int kv_order(const void *a, const void *b) {
    return key_order((*(const gguf_kv *const *)a)->key, (*(const gguf_kv *const *)b)->key);
}

static const gguf_kv *part_find(const part *p, const char *key) {
    const gguf_kv sought = {.key = {key, strlen(key)}}, *want = &sought;
    const gguf_kv **found = bsearch(&want, p->by_key, (size_t)p->n_kvs, sizeof want, kv_order);
    return found ? *found : NULL;
}

static specrt_status take_kvs(reader *r, part *p, uint64_t n) {
    /* A pair takes 13 bytes at least, so the file bounds what is allocated. */
    if (n > (uint64_t)(r->end - r->at) / 13)
        return bad(r, "%" PRIu64 " key-value pairs do not fit in the file", n);
    p->kvs = calloc(n + 1, sizeof *p->kvs);
    p->by_key = calloc(n + 1, sizeof *p->by_key);
    if (!p->kvs || !p->by_key) return sl_error_no_memory(r->err, r->path);
    for (uint64_t i = 0; i < n; i++) {
        snprintf(r->where, sizeof r->where, "key-value pair %" PRIu64 " of %" PRIu64, i + 1, n);
        TRY(take_kv(r, &p->kvs[i]));
        p->by_key[i] = &p->kvs[i];
    }
    p->n_kvs = (int64_t)n;
    qsort(p->by_key, n, sizeof *p->by_key, kv_order);
    for (uint64_t i = 1; i < n; i++)
        if (kv_order(&p->by_key[i - 1], &p->by_key[i]) == 0) {
            set_where(r, "key", p->by_key[i]->key);
            return bad(r, "occurs twice");
        }
    return SPECRT_STATUS_OK;
}

static specrt_status take_alignment(reader *r, part *p) {
    const gguf_kv *kv = part_find(p, "general.alignment");
    p->alignment = 32;
    if (!kv) return SPECRT_STATUS_OK;
    snprintf(r->where, sizeof r->where, "key \"general.alignment\"");
    if (kv->type != GGUF_U32) return bad(r, "value type %d; expected %d (u32)", kv->type, GGUF_U32);
    memcpy(&p->alignment, kv->value, sizeof p->alignment);
    if (p->alignment == 0 || (p->alignment & (p->alignment - 1)))
        return bad(r, "%" PRIu32 "; expected a power of two", p->alignment);
    return SPECRT_STATUS_OK;
}

static specrt_status take_tensor_name(reader *r, gguf_tensor *t) {
    gguf_string name;
    TRY(take_string(r, &name));
    set_where(r, "tensor", name);
    if (name.n >= sizeof t->name)
        return bad(r, "a name of %zu bytes; at most %zu", name.n, sizeof t->name - 1);
    if (name.n == 0) return bad(r, "an empty name");
    if (memchr(name.s, 0, name.n)) return bad(r, "a NUL in the name");
    memcpy(t->name, name.s, name.n);
    return SPECRT_STATUS_OK;
}

static specrt_status take_dims(reader *r, gguf_tensor *t) {
    uint32_t n_dims;
    int64_t n_elems = 1;
    TRY(take_u32(r, &n_dims));
    if (n_dims > 4) return bad(r, "%" PRIu32 " dimensions; at most 4", n_dims);
    t->n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t dim = 1;
        if (i < n_dims) TRY(take_u64(r, &dim));
        if (dim > INT64_MAX || __builtin_mul_overflow(n_elems, (int64_t)dim, &n_elems))
            return bad(r, "dimension %" PRIu32 " of %" PRIu64 " overflows the element count", i,
                       dim);
        t->dims[i] = (int64_t)dim;
    }
    return SPECRT_STATUS_OK;
}

/* Bytes of a tensor of a known type, whose dims' product is known not to overflow.
 * @return NULL, or what is wrong with it. */
static const char *tensor_bytes(const type_info *info, const int64_t dims[4], size_t *bytes) {
    uint64_t n_elems =
        (uint64_t)dims[0] * (uint64_t)dims[1] * (uint64_t)dims[2] * (uint64_t)dims[3];
    if (dims[0] % info->block_elems) return "row length is no multiple of the type's block";
    if (__builtin_mul_overflow(n_elems / (uint64_t)info->block_elems, info->block_bytes, bytes))
        return "size overflows";
    return NULL;
}

static specrt_status take_tensor(reader *r, gguf_tensor *t) {
    TRY(take_tensor_name(r, t));
    TRY(take_dims(r, t));
    TRY(take_u32(r, &t->type));
    TRY(take_u64(r, &t->offset));
    const type_info *info = find_type(t->type);
    const char *wrong = info ? tensor_bytes(info, t->dims, &t->bytes) : NULL;
    if (wrong) return bad(r, "%s (%" PRId64 " of %s)", wrong, t->dims[0], info->name);
    return SPECRT_STATUS_OK;
}

/* A tensor of an unknown type reaches to the next one. */
static uint64_t extent(const gguf_tensor *t, bool last, uint64_t data_bytes) {
    uint64_t next = last ? data_bytes : t[1].offset;
    return next > t->offset ? next - t->offset : 0;
}

/* Turns offsets into pointers. `tensors` are one part's; ggml stores them in order, and refuses
 * other files, so no tensor may start before the end of the one before it. */
static specrt_status place_tensors(reader *r, uint32_t alignment, gguf_tensor *tensors, int64_t n) {
    uint64_t size = (uint64_t)(r->end - r->base), mask = (uint64_t)alignment - 1, taken = 0;
    uint64_t start = ((uint64_t)(r->at - r->base) + mask) & ~mask;
    if (start > size) start = size;
    for (int64_t i = 0; i < n; i++) {
        gguf_tensor *t = &tensors[i];
        set_where(r, "tensor", (gguf_string){t->name, strlen(t->name)});
        if (!find_type(t->type)) t->bytes = extent(t, i + 1 == n, size - start);
        if (t->offset & mask)
            return bad(r, "offset %" PRIu64 "; expected a multiple of %" PRIu32, t->offset,
                       alignment);
        if (t->offset < taken)
            return bad(r,
                       "offset %" PRIu64 "; expected at least %" PRIu64
                       ", the end of the tensor before it",
                       t->offset, taken);
        if (t->offset > size - start || t->bytes > size - start - t->offset)
            return bad(r,
                       "%zu bytes at offset %" PRIu64 " of the data, which has %" PRIu64
                       " (is the download complete?)",
                       t->bytes, t->offset, size - start);
        t->data = r->base + start + t->offset;
        taken = t->offset + t->bytes;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status take_tensors(reader *r, gguf *g, const part *p, uint64_t n) {
    if (n > (uint64_t)(r->end - r->at) / 25) /* the least a tensor's description takes */
        return bad(r, "%" PRIu64 " tensors do not fit in the file", n);
    size_t total = (size_t)g->n_tensors + n;
    gguf_tensor *grown = realloc(g->tensors, (total + 1) * sizeof *grown);
    if (!grown) return sl_error_no_memory(r->err, r->path);
    g->tensors = grown;
    gguf_tensor *mine = grown + g->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        snprintf(r->where, sizeof r->where, "tensor %" PRIu64 " of %" PRIu64, i + 1, n);
        memset(&mine[i], 0, sizeof mine[i]);
        TRY(take_tensor(r, &mine[i]));
    }
    g->n_tensors = (int64_t)total;
    return place_tensors(r, p->alignment, mine, (int64_t)n);
}

static specrt_status take_header(reader *r, part *p, uint64_t *n_tensors, uint64_t *n_kvs) {
    snprintf(r->where, sizeof r->where, "header");
    const uint8_t *magic = take(r, 4);
    if (!magic) return SPECRT_STATUS_BAD_INPUT;
    if (!sl_gguf_probe(magic, 4)) return bad(r, "no GGUF file; expected it to start with \"GGUF\"");
    TRY(take_u32(r, &p->version));
    if (p->version && (p->version & 0xFFFF) == 0)
        return bad(r, "a big-endian GGUF; convert it to little-endian first");
    if (p->version == 1) return bad(r, "GGUF version 1 is obsolete; convert the model again");
    if (p->version != 2 && p->version != 3)
        return bad(r, "GGUF version %" PRIu32 "; expected 2 or 3", p->version);
    TRY(take_u64(r, n_tensors));
    return take_u64(r, n_kvs);
}

/* Reads the part whose view is set. */
static specrt_status read_part(gguf *g, part *p, specrt_error *err) {
    uint64_t n_tensors = 0, n_kvs = 0;
    const uint8_t *bytes = p->view.n ? p->view.bytes : (const uint8_t *)"";
    reader r = {bytes, bytes, bytes + p->view.n, p->path, "", err};
    TRY(take_header(&r, p, &n_tensors, &n_kvs));
    TRY(take_kvs(&r, p, n_kvs));
    TRY(take_alignment(&r, p));
    snprintf(r.where, sizeof r.where, "header");
    return take_tensors(&r, g, p, n_tensors);
}

static part *add_part(gguf *g, const char *path) {
    part *p = sl_more(&g->parts, (size_t)g->n_parts, sizeof *p);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->path = strdup(path);
    if (!p->path) return NULL;
    g->n_parts++;
    return p;
}

static specrt_status open_part(gguf *g, const char *path, specrt_error *err) {
    part *p = add_part(g, path);
    if (!p) return sl_error_no_memory(err, path);
    TRY(sl_file_map(path, &p->view, err));
    p->owned = true;
    return read_part(g, p, err);
}

/* --- split models --- */

static bool kv_int(const gguf_kv *kv, int64_t *out) {
    uint64_t bits = 0;
    if (!kv || kv->type == GGUF_F32 || kv->type == GGUF_F64 || !scalar_bytes[kv->type])
        return false;
    memcpy(&bits, kv->value, kv->value_bytes);
    switch (kv->type) {
    case GGUF_I8: *out = (int8_t)bits; return true;
    case GGUF_I16: *out = (int16_t)bits; return true;
    case GGUF_I32: *out = (int32_t)bits; return true;
    case GGUF_U64:
        if (bits > INT64_MAX) return false;
        break;
    default: break;
    }
    *out = (int64_t)bits;
    return true;
}

static specrt_status expect_split(const part *p, const char *key, int64_t expected,
                                  specrt_error *err) {
    int64_t found;
    if (!kv_int(part_find(p, key), &found))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: key \"%s\": missing; expected %" PRId64, p->path, key,
                                expected);
    if (found != expected)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: key \"%s\": expected %" PRId64 ", found %" PRId64
                                "; do all parts belong to one model?",
                                p->path, key, expected, found);
    return SPECRT_STATUS_OK;
}

/* The numbered ending of part `no` (from 0), of one length for all parts. */
static void split_ending(char ending[40], int64_t no, int64_t count) {
    snprintf(ending, 40, "-%05d-of-%05d.gguf", (int)no + 1, (int)count);
}

static specrt_status open_other_parts(gguf *g, int64_t count, specrt_error *err) {
    char ending[40];
    split_ending(ending, 0, count);
    size_t n = strlen(g->parts[0].path), n_ending = strlen(ending);
    if (n < n_ending || strcmp(g->parts[0].path + n - n_ending, ending) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: the first of %" PRId64
                                " parts; expected its name to end in \"%s\" to find the others",
                                g->parts[0].path, count, ending);
    for (int64_t no = 1; no < count; no++) {
        specrt_error why = {SPECRT_STATUS_OK, ""};
        char *path = strdup(g->parts[0].path);
        if (!path) return sl_error_no_memory(err, NULL);
        split_ending(ending, no, count);
        memcpy(path + n - n_ending, ending, n_ending);
        specrt_status status = open_part(g, path, &why);
        free(path);
        if (status)
            return specrt_error_set(err, status, "part %" PRId64 " of %" PRId64 ": %s", no + 1,
                                    count, why.msg);
        TRY(expect_split(&g->parts[no], "split.no", no, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_split(gguf *g, specrt_error *err) {
    int64_t count = 1, no = 0;
    const part *first = &g->parts[0];
    if (!kv_int(part_find(first, "split.count"), &count) || count == 1) return SPECRT_STATUS_OK;
    if (count < 1 || count > UINT16_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: key \"split.count\": %" PRId64 "; expected 1 to 65535",
                                first->path, count);
    if (kv_int(part_find(first, "split.no"), &no) && no > 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: part %" PRId64 " of a split model; open its part 1",
                                first->path, no + 1);
    if (!first->owned)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: one of %" PRId64 " parts of a model; open it as a file",
                                first->path, count);
    TRY(open_other_parts(g, count, err));
    for (int64_t i = 0; i < g->n_parts; i++) {
        TRY(expect_split(&g->parts[i], "split.count", count, err));
        TRY(expect_split(&g->parts[i], "split.tensors.count", g->n_tensors, err));
    }
    return SPECRT_STATUS_OK;
}

/* --- opening --- */

static int tensor_order(const void *a, const void *b) {
    return strcmp((*(const gguf_tensor *const *)a)->name, (*(const gguf_tensor *const *)b)->name);
}

static specrt_status index_tensors(gguf *g, specrt_error *err) {
    size_t n = (size_t)g->n_tensors;
    g->by_name = calloc(n + 1, sizeof *g->by_name);
    if (!g->by_name) return sl_error_no_memory(err, g->parts[0].path);
    for (size_t i = 0; i < n; i++) g->by_name[i] = &g->tensors[i];
    qsort(g->by_name, n, sizeof *g->by_name, tensor_order);
    for (size_t i = 1; i < n; i++)
        if (tensor_order(&g->by_name[i - 1], &g->by_name[i]) == 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: tensor \"%s\": occurs twice",
                                    g->parts[0].path, g->by_name[i]->name);
    return SPECRT_STATUS_OK;
}

static specrt_status finish_open(gguf *g, specrt_status status, gguf **out, specrt_error *err) {
    if (!status) status = open_split(g, err);
    if (!status) status = index_tensors(g, err);
    if (status)
        sl_gguf_close(g);
    else
        *out = g;
    return status;
}

specrt_status sl_gguf_open(const char *path, gguf **out, specrt_error *err) {
    gguf *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return sl_error_no_memory(err, path);
    return finish_open(g, open_part(g, path, err), out, err);
}

specrt_status sl_gguf_open_memory(const void *bytes, size_t n, const char *name, gguf **out,
                                  specrt_error *err) {
    gguf *g = calloc(1, sizeof *g);
    part *p = g ? add_part(g, name) : NULL;
    *out = NULL;
    if (!p) {
        sl_gguf_close(g);
        return sl_error_no_memory(err, name);
    }
    p->view = (file_view){bytes, n, false};
    return finish_open(g, read_part(g, p, err), out, err);
}

void sl_gguf_close(gguf *g) {
    if (!g) return;
    for (int64_t i = 0; i < g->n_parts; i++) {
        part *p = &g->parts[i];
        if (p->owned) sl_file_unmap(&p->view);
        free(p->path);
        free(p->kvs);
        free(p->by_key);
    }
    free(g->parts);
    free(g->tensors);
    free(g->by_name);
    free(g);
}

bool sl_gguf_probe(const void *bytes, size_t n) {
    return n >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

/* --- access --- */

const gguf_kv *sl_gguf_find(const gguf *g, const char *key) {
    return part_find(&g->parts[0], key);
}

const gguf_kv *sl_gguf_kvs(const gguf *g, int64_t *n) {
    *n = g->parts[0].n_kvs;
    return g->parts[0].kvs;
}

bool sl_gguf_get_int(const gguf *g, const char *key, int64_t *out) {
    return kv_int(sl_gguf_find(g, key), out);
}

bool sl_gguf_get_real(const gguf *g, const char *key, double *out) {
    const gguf_kv *kv = sl_gguf_find(g, key);
    float single;
    if (!kv) return false;
    if (kv->type == GGUF_F32) {
        memcpy(&single, kv->value, sizeof single);
        *out = (double)single;
    } else if (kv->type == GGUF_F64) {
        memcpy(out, kv->value, sizeof *out);
    } else {
        return false;
    }
    return true;
}

static gguf_string next_string(const uint8_t **at) {
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    gguf_string s = {(const char *)*at + sizeof n, (size_t)n};
    *at += sizeof n + n;
    return s;
}

bool sl_gguf_get_string(const gguf *g, const char *key, gguf_string *out) {
    const gguf_kv *kv = sl_gguf_find(g, key);
    if (!kv || kv->type != GGUF_STRING) return false;
    const uint8_t *at = kv->value;
    *out = next_string(&at);
    return true;
}

gguf_string *sl_gguf_get_strings(const gguf *g, const char *key, int64_t *n) {
    const gguf_kv *kv = sl_gguf_find(g, key);
    *n = 0;
    if (!kv || kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING) return NULL;
    gguf_string *strings = malloc((kv->count + 1) * sizeof *strings);
    if (!strings) return NULL;
    const uint8_t *at = kv->value;
    for (uint64_t i = 0; i < kv->count; i++) strings[i] = next_string(&at);
    *n = (int64_t)kv->count;
    return strings;
}

const gguf_tensor *sl_gguf_tensors(const gguf *g, int64_t *n) {
    *n = g->n_tensors;
    return g->tensors;
}

static int order_by_name(const void *name, const void *tensor) {
    return strcmp(name, (*(const gguf_tensor *const *)tensor)->name);
}

const gguf_tensor *sl_gguf_find_tensor(const gguf *g, const char *name) {
    const gguf_tensor **found =
        bsearch(name, g->by_name, (size_t)g->n_tensors, sizeof *found, order_by_name);
    return found ? *found : NULL;
}

/* --- writing --- */

typedef struct writer {
    out_file *out;
    uint64_t at; /* bytes written */
    specrt_error *err;
} writer;

static specrt_status put(writer *w, const void *data, size_t n) {
    w->at += n;
    return sl_out_write(w->out, data, n, w->err);
}

static specrt_status put_u32(writer *w, uint32_t value) {
    return put(w, &value, sizeof value);
}

static specrt_status put_u64(writer *w, uint64_t value) {
    return put(w, &value, sizeof value);
}

static specrt_status put_string(writer *w, gguf_string s) {
    TRY(put_u64(w, s.n));
    return put(w, s.s, s.n);
}

static specrt_status put_padding(writer *w, uint32_t alignment) {
    static const uint8_t zeros[64];
    uint64_t n = -w->at & ((uint64_t)alignment - 1);
    for (; n > sizeof zeros; n -= sizeof zeros) TRY(put(w, zeros, sizeof zeros));
    return put(w, zeros, (size_t)n);
}

static specrt_status put_kv(writer *w, const gguf_kv *kv) {
    TRY(put_string(w, kv->key));
    TRY(put_u32(w, kv->type));
    if (kv->type == GGUF_ARRAY) {
        TRY(put_u32(w, kv->elem));
        TRY(put_u64(w, kv->count));
    }
    return put(w, kv->value, kv->value_bytes);
}

static specrt_status put_tensor_info(writer *w, const gguf_tensor *t, uint64_t offset) {
    TRY(put_string(w, (gguf_string){t->name, strlen(t->name)}));
    TRY(put_u32(w, (uint32_t)t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++) TRY(put_u64(w, (uint64_t)t->dims[i]));
    TRY(put_u32(w, t->type));
    return put_u64(w, offset);
}

/* The parts of a split model become one file, so the keys that number them go. */
static bool keeps(const gguf *g, const gguf_kv *kv) {
    return g->n_parts == 1 || kv->key.n < 6 || memcmp(kv->key.s, "split.", 6) != 0;
}

static specrt_status put_counts(writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_kvs) {
    TRY(put(w, "GGUF", 4));
    TRY(put_u32(w, version));
    TRY(put_u64(w, n_tensors));
    return put_u64(w, n_kvs);
}

static specrt_status put_kvs(writer *w, const gguf *g, uint64_t n_tensors) {
    const part *p = &g->parts[0];
    uint64_t n = 0;
    for (int64_t i = 0; i < p->n_kvs; i++) n += keeps(g, &p->kvs[i]);
    TRY(put_counts(w, p->version, n_tensors, n));
    for (int64_t i = 0; i < p->n_kvs; i++)
        if (keeps(g, &p->kvs[i])) TRY(put_kv(w, &p->kvs[i]));
    return SPECRT_STATUS_OK;
}

static specrt_status put_tensors(writer *w, const gguf_tensor *tensors, size_t n,
                                 uint32_t alignment) {
    uint64_t offset = 0, mask = (uint64_t)alignment - 1;
    for (size_t i = 0; i < n; i++) {
        TRY(put_tensor_info(w, &tensors[i], offset));
        offset += (tensors[i].bytes + mask) & ~mask;
    }
    if (n > 0) TRY(put_padding(w, alignment)); /* a vocabulary alone ends with its metadata */
    for (size_t i = 0; i < n; i++) {
        TRY(put(w, tensors[i].data, tensors[i].bytes));
        TRY(put_padding(w, alignment));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status check_edit(const gguf *g, const gguf_tensor *edits, int i, specrt_error *err) {
    const gguf_tensor *edit = &edits[i];
    const type_info *info = find_type(edit->type);
    size_t bytes = 0;
    const char *wrong = NULL;
    for (int j = 0; j < i; j++)
        if (strcmp(edits[j].name, edit->name) == 0) wrong = "edited twice";
    if (!edit->data && !sl_gguf_find_tensor(g, edit->name)) wrong = "to be dropped, but not there";
    if (edit->data && !info) wrong = "type is not known";
    if (edit->data && info && !wrong) wrong = tensor_bytes(info, edit->dims, &bytes);
    if (edit->data && !wrong && bytes != edit->bytes) wrong = "size does not follow from its shape";
    if (!wrong) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: tensor \"%s\": %s", g->parts[0].path,
                            edit->name, wrong);
}

/* The tensors of the result, in `plan`. @return how many. */
static size_t plan_tensors(const gguf *g, const gguf_tensor *edits, int n_edits,
                           gguf_tensor *plan) {
    size_t n = 0;
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const gguf_tensor *t = &g->tensors[i];
        for (int j = 0; j < n_edits; j++)
            if (strcmp(edits[j].name, g->tensors[i].name) == 0) t = &edits[j];
        if (t->data) plan[n++] = *t;
    }
    for (int j = 0; j < n_edits; j++)
        if (!sl_gguf_find_tensor(g, edits[j].name)) plan[n++] = edits[j];
    return n;
}

specrt_status sl_gguf_rewrite(const gguf *g, const gguf_tensor *edits, int n_edits, out_file *out,
                              specrt_error *err) {
    writer w = {out, 0, err};
    for (int i = 0; i < n_edits; i++) TRY(check_edit(g, edits, i, err));
    gguf_tensor *plan = calloc((size_t)g->n_tensors + (size_t)n_edits + 1, sizeof *plan);
    if (!plan) return sl_error_no_memory(err, g->parts[0].path);
    size_t n = plan_tensors(g, edits, n_edits, plan);
    specrt_status status = put_kvs(&w, g, n);
    if (!status) status = put_tensors(&w, plan, n, g->parts[0].alignment);
    free(plan);
    return status;
}

specrt_status sl_gguf_write(const gguf_kv *kvs, int n_kvs, const gguf_tensor *tensors,
                            int n_tensors, out_file *out, specrt_error *err) {
    enum { VERSION = 3, ALIGNMENT = 32 };
    writer w = {out, 0, err};
    TRY(put_counts(&w, VERSION, (uint64_t)n_tensors, (uint64_t)n_kvs));
    for (int i = 0; i < n_kvs; i++) TRY(put_kv(&w, &kvs[i]));
    return put_tensors(&w, tensors, (size_t)n_tensors, ALIGNMENT);
}
