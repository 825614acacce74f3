/* pt.c : see pt.h. First the pickle machine, then tensors, then the archive, then the writer. */
#include "specrt_tools.h"
#include "formats/pt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/zip.h"

enum {
    MAX_PICKLE = 8 << 20, /* a list of 1.6 million ids; vocabularies have a quarter of a million */
    MAX_OBJECTS = 1 << 20,
    MAX_MARKS = 64,
    MAX_WRITTEN_TENSORS = 4
};

struct pt {
    const char *path;
    zip_reader zip;
    const char *folder; /* of every entry in the archive */
    size_t folder_bytes;
    pt_value root;
    pt_object *objects; /* all of them, for freeing */
    int64_t n_objects;
};

typedef struct machine {
    pt *p;
    const uint8_t *at, *end;
    pt_value *stack;
    int64_t n_stack;
    pt_value *memo;
    int64_t n_memo;
    int64_t marks[MAX_MARKS];
    int n_marks;
    specrt_error *err;
    specrt_status status;
} machine;

/* Names a pickle may mention. Storages carry the type of their elements. */
typedef enum global_role { STORAGE, REBUILD_TENSOR, REBUILD_PARAMETER, ORDERED_DICT, COUNTER } role;
static const struct global {
    const char *module, *name;
    role role;
    char kind;
    int item_bytes;
} globals[] = {
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR, 0, 0},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, 0, 0},
    {"collections", "OrderedDict", ORDERED_DICT, 0, 0},
    {"collections", "Counter", COUNTER, 0, 0},
    {"torch", "LongStorage", STORAGE, 'i', 8},
    {"torch", "IntStorage", STORAGE, 'i', 4},
    {"torch", "ShortStorage", STORAGE, 'i', 2},
    {"torch", "CharStorage", STORAGE, 'i', 1},
    {"torch", "ByteStorage", STORAGE, 'u', 1},
    {"torch", "BoolStorage", STORAGE, 'b', 1},
    {"torch", "HalfStorage", STORAGE, 'f', 2},
    {"torch", "BFloat16Storage", STORAGE, 'f', 2},
    {"torch", "FloatStorage", STORAGE, 'f', 4},
    {"torch", "DoubleStorage", STORAGE, 'f', 8},
};

static const char *opcode_name(uint8_t op) {
    static const struct {
        uint8_t op;
        const char *name;
    } names[] = {
        {'0', "POP"},
        {'1', "POP_MARK"},
        {'2', "DUP"},
        {'B', "BINBYTES"},
        {'C', "SHORT_BINBYTES"},
        {'F', "FLOAT"},
        {'G', "BINFLOAT"},
        {'I', "INT"},
        {'L', "LONG"},
        {'P', "PERSID"},
        {'S', "STRING"},
        {'T', "BINSTRING"},
        {'U', "SHORT_BINSTRING"},
        {'V', "UNICODE"},
        {'d', "DICT"},
        {'g', "GET"},
        {'i', "INST"},
        {'l', "LIST"},
        {'o', "OBJ"},
        {'p', "PUT"},
        {0x81, "NEWOBJ"},
        {0x82, "EXT1"},
        {0x83, "EXT2"},
        {0x84, "EXT4"},
        {0x8b, "LONG4"},
        {0x8d, "BINUNICODE8"},
        {0x8e, "BINBYTES8"},
        {0x8f, "EMPTY_SET"},
        {0x90, "ADDITEMS"},
        {0x91, "FROZENSET"},
        {0x92, "NEWOBJ_EX"},
        {0x96, "BYTEARRAY8"},
        {0x97, "NEXT_BUFFER"},
        {0x98, "READONLY_BUFFER"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].op == op) return names[i].name;
    return "unknown";
}

const char *sl_pt_kind_name(pt_kind kind) {
    static const char *const names[] = {"None", "bool", "int",     "string",  "tuple",
                                        "list", "dict", "a class", "storage", "tensor"};
    return names[kind];
}

/* ---- the machine ------------------------------------------------------------------------------ */

static bool fail(machine *m, const char *what) {
    m->status =
        specrt_error_set(m->err, SPECRT_STATUS_BAD_INPUT, "%s: pickle: %s", m->p->path, what);
    return false;
}

static bool append(machine *m, pt_value **items, int64_t *n, pt_value value) {
    pt_value *at = (pt_value *)sl_more(items, (size_t)*n, sizeof *at);
    if (!at) return m->status = sl_error_no_memory(m->err, m->p->path), false;
    *at = value;
    ++*n;
    return true;
}

static bool push(machine *m, pt_value value) {
    return append(m, &m->stack, &m->n_stack, value);
}

static bool push_int(machine *m, pt_kind kind, int64_t i) {
    return push(m, (pt_value){kind, i, NULL});
}

static pt_object *new_object(machine *m) {
    if (m->p->n_objects == MAX_OBJECTS) return fail(m, "too many objects"), NULL;
    pt_object *o = (pt_object *)calloc(1, sizeof *o);
    if (!o) return m->status = sl_error_no_memory(m->err, m->p->path), NULL;
    o->next = m->p->objects;
    m->p->objects = o;
    m->p->n_objects++;
    return o;
}

static bool push_object(machine *m, pt_kind kind) {
    pt_object *o = new_object(m);
    return o && push(m, (pt_value){kind, 0, o});
}

/* Values above the innermost mark. */
static int64_t available(const machine *m) {
    return m->n_stack - (m->n_marks ? m->marks[m->n_marks - 1] : 0);
}

static bool need(machine *m, int64_t n) {
    return available(m) >= n || fail(m, "stack underflow");
}

static bool take(machine *m, size_t n, const uint8_t **out) {
    if ((size_t)(m->end - m->at) < n) return fail(m, "cut off");
    *out = m->at;
    m->at += n;
    return true;
}

/* Little-endian, n <= 8 bytes; with the sign extended if asked. */
static bool take_int(machine *m, size_t n, bool is_signed, int64_t *out) {
    const uint8_t *p;
    if (!take(m, n, &p)) return false;
    uint64_t x = 0;
    for (size_t i = n; i-- > 0;) x = x << 8 | p[i];
    if (is_signed && n > 0 && n < 8 && p[n - 1] >> 7) x |= UINT64_MAX << (8 * n);
    *out = (int64_t)x;
    return true;
}

static bool op_int(machine *m, size_t n, bool is_signed) {
    int64_t x;
    return take_int(m, n, is_signed, &x) && push_int(m, PT_INT, x);
}

static bool op_long(machine *m) {
    int64_t n;
    if (!take_int(m, 1, false, &n)) return false;
    if (n > 8) return fail(m, "an integer of more than 64 bits");
    return op_int(m, (size_t)n, true);
}

static bool op_string(machine *m, size_t length_bytes) {
    int64_t n;
    const uint8_t *text;
    if (!take_int(m, length_bytes, false, &n) || !take(m, (size_t)n, &text)) return false;
    if (!push_object(m, PT_STRING)) return false;
    pt_object *o = m->stack[m->n_stack - 1].object;
    o->text = (const char *)text, o->n = n;
    return true;
}

static bool op_mark(machine *m) {
    if (m->n_marks == MAX_MARKS) return fail(m, "nested too deeply");
    m->marks[m->n_marks++] = m->n_stack;
    return true;
}

/* The top n values go to the end of the object. */
static bool move_top(machine *m, pt_object *o, int64_t n) {
    bool fits = true;
    m->n_stack -= n;
    for (int64_t i = 0; fits && i < n; i++)
        fits = append(m, &o->items, &o->n, m->stack[m->n_stack + i]);
    return fits;
}

static bool make_tuple(machine *m, int64_t n) {
    pt_object *o = new_object(m);
    return o && move_top(m, o, n) && push(m, (pt_value){PT_TUPLE, 0, o});
}

static bool op_tuple(machine *m) {
    if (m->n_marks == 0) return fail(m, "TUPLE without MARK");
    int64_t n = available(m);
    m->n_marks--;
    return make_tuple(m, n);
}

/* The top n values go into the list or dict below them. */
static bool extend(machine *m, pt_kind kind, int64_t n) {
    if (!need(m, n + 1)) return false;
    pt_value into = m->stack[m->n_stack - n - 1];
    if (into.kind != kind || (kind == PT_DICT && n % 2 != 0))
        return fail(m, "items for something that cannot hold them");
    return move_top(m, into.object, n);
}

static bool op_extend(machine *m, pt_kind kind) {
    if (m->n_marks == 0) return fail(m, "items without MARK");
    int64_t n = available(m);
    m->n_marks--;
    return extend(m, kind, n);
}

/* Picklers number the memo in order, so it stays as small as the pickle. */
static bool op_put(machine *m, size_t n) {
    int64_t at = m->n_memo;
    if ((n > 0 && !take_int(m, n, false, &at)) || !need(m, 1)) return false;
    pt_value top = m->stack[m->n_stack - 1];
    if (at > m->n_memo) return fail(m, "memo numbers out of order");
    if (at == m->n_memo) return append(m, &m->memo, &m->n_memo, top);
    m->memo[at] = top;
    return true;
}

static bool op_get(machine *m, size_t n) {
    int64_t at;
    if (!take_int(m, n, false, &at)) return false;
    if (at >= m->n_memo) return fail(m, "unknown memo number");
    return push(m, m->memo[at]);
}

static bool same(const char *word, const char *text, size_t n) {
    return strlen(word) == n && memcmp(word, text, n) == 0;
}

static bool push_global(machine *m, const char *module, size_t module_bytes, const char *name,
                        size_t name_bytes) {
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (same(globals[i].module, module, module_bytes) &&
            same(globals[i].name, name, name_bytes))
            return push_int(m, PT_GLOBAL, (int64_t)i);
    m->status = specrt_error_set(m->err, SPECRT_STATUS_UNSUPPORTED,
                                 "%s: pickle mentions %.*s.%.*s; only lists, dicts and tensors of "
                                 "integers are read, and no code is run",
                                 m->p->path, (int)(module_bytes > 60 ? 60 : module_bytes), module,
                                 (int)(name_bytes > 60 ? 60 : name_bytes), name);
    return false;
}

static bool take_line(machine *m, const char **out, size_t *n) {
    const uint8_t *newline = (const uint8_t *)memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!newline) return fail(m, "cut off");
    *out = (const char *)m->at;
    *n = (size_t)(newline - m->at);
    m->at = newline + 1;
    return true;
}

static bool op_global(machine *m) {
    const char *module, *name;
    size_t module_bytes, name_bytes;
    return take_line(m, &module, &module_bytes) && take_line(m, &name, &name_bytes) &&
           push_global(m, module, module_bytes, name, name_bytes);
}

static bool op_stack_global(machine *m) {
    if (!need(m, 2)) return false;
    pt_value name = m->stack[m->n_stack - 1], module = m->stack[m->n_stack - 2];
    if (name.kind != PT_STRING || module.kind != PT_STRING) return fail(m, "a name is no string");
    m->n_stack -= 2;
    return push_global(m, module.object->text, (size_t)module.object->n, name.object->text,
                       (size_t)name.object->n);
}

static bool is_tuple_of_ints(const pt_value *v) {
    if (v->kind != PT_TUPLE) return false;
    for (int64_t i = 0; i < v->object->n; i++)
        if (v->object->items[i].kind != PT_INT) return false;
    return true;
}

/* (storage, offset, sizes, strides, ...) */
static bool is_tensor(const pt_object *a) {
    return a->n >= 4 && a->items[0].kind == PT_STORAGE && a->items[1].kind == PT_INT &&
           is_tuple_of_ints(&a->items[2]) && is_tuple_of_ints(&a->items[3]) &&
           a->items[2].object->n == a->items[3].object->n;
}

/* The few calls that only build data. */
static bool op_reduce(machine *m) {
    if (!need(m, 2)) return false;
    pt_value args = m->stack[m->n_stack - 1], f = m->stack[m->n_stack - 2];
    if (args.kind != PT_TUPLE || f.kind != PT_GLOBAL) return fail(m, "a call of no known function");
    const pt_object *a = args.object;
    m->n_stack -= 2;
    switch (globals[f.i].role) {
    case REBUILD_TENSOR:
        if (!is_tensor(a)) break;
        return push(m, (pt_value){PT_TENSOR, 0, args.object});
    case REBUILD_PARAMETER:
        if (a->n < 1 || a->items[0].kind != PT_TENSOR) break;
        return push(m, a->items[0]);
    case COUNTER:
        if (a->n == 1 && a->items[0].kind == PT_DICT) return push(m, a->items[0]);
        /* fall through */
    case ORDERED_DICT:
        if (a->n != 0) break;
        return push_object(m, PT_DICT);
    case STORAGE: break;
    }
    return fail(m, "a call with unexpected arguments");
}

/* ("storage", type, key, place, elements) */
static bool op_persistent(machine *m) {
    if (!need(m, 1)) return false;
    pt_value *v = &m->stack[m->n_stack - 1];
    const pt_value *a = v->kind == PT_TUPLE ? v->object->items : NULL;
    if (!a || v->object->n != 5 || a[0].kind != PT_STRING ||
        !same("storage", a[0].object->text, (size_t)a[0].object->n) || a[1].kind != PT_GLOBAL ||
        globals[a[1].i].role != STORAGE || a[2].kind != PT_STRING || a[4].kind != PT_INT)
        return fail(m, "a reference that is no tensor storage");
    v->kind = PT_STORAGE;
    return true;
}

/* State of a dict is metadata of a checkpoint: left out. */
static bool op_build(machine *m) {
    if (!need(m, 2)) return false;
    if (m->stack[m->n_stack - 2].kind != PT_DICT)
        return fail(m, "BUILD of something else than a dict");
    m->n_stack--;
    return true;
}

static bool op_protocol(machine *m) {
    int64_t version;
    if (!take_int(m, 1, false, &version)) return false;
    return (version >= 2 && version <= 5) || fail(m, "unknown protocol; expected 2 to 5");
}

static bool op_refused(machine *m, uint8_t op) {
    m->status = specrt_error_set(m->err, SPECRT_STATUS_UNSUPPORTED,
                                 "%s: pickle opcode 0x%02x (%s) is refused; only lists, dicts and "
                                 "tensors of integers are read",
                                 m->p->path, op, opcode_name(op));
    return false;
}

static bool step(machine *m, uint8_t op) {
    int64_t ignored;
    switch (op) {
    case 0x80: return op_protocol(m);
    case 0x95: return take_int(m, 8, false, &ignored); /* FRAME: a hint for buffering */
    case ']': return push_object(m, PT_LIST);
    case '}': return push_object(m, PT_DICT);
    case ')': return push_object(m, PT_TUPLE);
    case '(': return op_mark(m);
    case 't': return op_tuple(m);
    case 0x85:
    case 0x86:
    case 0x87: return need(m, op - 0x84) && make_tuple(m, op - 0x84);
    case 'a': return extend(m, PT_LIST, 1);
    case 'e': return op_extend(m, PT_LIST);
    case 's': return extend(m, PT_DICT, 2);
    case 'u': return op_extend(m, PT_DICT);
    case 'J': return op_int(m, 4, true);
    case 'K': return op_int(m, 1, false);
    case 'M': return op_int(m, 2, false);
    case 0x8a: return op_long(m);
    case 'N': return push_int(m, PT_NONE, 0);
    case 0x88: return push_int(m, PT_BOOL, 1);
    case 0x89: return push_int(m, PT_BOOL, 0);
    case 'X': return op_string(m, 4);
    case 0x8c: return op_string(m, 1);
    case 'q': return op_put(m, 1);
    case 'r': return op_put(m, 4);
    case 0x94: return op_put(m, 0);
    case 'h': return op_get(m, 1);
    case 'j': return op_get(m, 4);
    case 'c': return op_global(m);
    case 0x93: return op_stack_global(m);
    case 'R': return op_reduce(m);
    case 'Q': return op_persistent(m);
    case 'b': return op_build(m);
    default: return op_refused(m, op);
    }
}

static bool run(machine *m) {
    for (;;) {
        const uint8_t *op;
        if (!take(m, 1, &op)) return false;
        if (*op == '.') break;
        if (!step(m, *op)) return false;
    }
    if (m->n_stack != 1 || m->n_marks != 0) return fail(m, "does not end with one value");
    if (m->at != m->end) return fail(m, "bytes after its end");
    m->p->root = m->stack[0];
    return true;
}

static specrt_status run_pickle(pt *p, const uint8_t *bytes, size_t n, specrt_error *err) {
    machine m = {.p = p, .at = bytes, .end = bytes + n, .err = err};
    if (n > MAX_PICKLE)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: pickle of %zu bytes; expected at most %d", p->path, n,
                                MAX_PICKLE);
    run(&m);
    free(m.stack);
    free(m.memo);
    return m.status;
}

/* ---- the archive ------------------------------------------------------------------------------ */

bool sl_pt_probe(const void *bytes, size_t n) {
    const uint8_t *b = (const uint8_t *)bytes;
    return sl_zip_probe(bytes, n) || (n >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5);
}

static const zip_entry *find_entry(const pt *p, const char *name, size_t n) {
    return sl_zip_find(&p->zip, p->folder, p->folder_bytes, name, n);
}

static specrt_status open_archive(pt *p, const void *bytes, size_t n, specrt_error *err) {
    specrt_status status = sl_zip_open(bytes, n, p->path, &p->zip, err);
    if (status != SPECRT_STATUS_OK) return status;
    const zip_entry *pickle = NULL;
    if (p->zip.n > 0) { /* torch takes the folder from the first entry */
        const zip_entry *first = &p->zip.entries[0];
        const char *slash = (const char *)memchr(first->name, '/', first->name_bytes);
        p->folder = first->name;
        p->folder_bytes = slash ? (size_t)(slash - first->name) : 0;
        pickle = slash ? find_entry(p, "data.pkl", 8) : NULL;
    }
    if (!pickle)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a torch file, found a zip archive without data.pkl",
                                p->path);
    const zip_entry *order = find_entry(p, "byteorder", 9);
    if (order && !same("little", (const char *)order->data, order->bytes))
        return specrt_error_set(
            err, SPECRT_STATUS_UNSUPPORTED,
            "%s: byte order is not 'little'; save it on a little-endian machine", p->path);
    status = sl_zip_check(&p->zip, pickle, err);
    return status == SPECRT_STATUS_OK ? run_pickle(p, pickle->data, pickle->bytes, err) : status;
}

/* Files of torch before 1.6 are several pickles in a row; the first holds this number. */
static bool is_legacy(const uint8_t *bytes, size_t n) {
    static const uint8_t magic[14] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                      0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    return n >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

specrt_status sl_pt_open_memory(const void *bytes, size_t n, const char *name, pt **out,
                                specrt_error *err) {
    *out = NULL;
    pt *p = (pt *)calloc(1, sizeof *p);
    if (!p) return sl_error_no_memory(err, name);
    p->path = name;
    specrt_status status;
    if (sl_zip_probe(bytes, n))
        status = open_archive(p, bytes, n, err);
    else if (is_legacy((const uint8_t *)bytes, n))
        status = specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                  "%s: expected torch's zip format, found the one before version "
                                  "1.6; load the file in torch and save it again",
                                  name);
    else
        status = run_pickle(p, (const uint8_t *)bytes, n, err);
    if (status == SPECRT_STATUS_OK)
        *out = p;
    else
        sl_pt_close(p);
    return status;
}

void sl_pt_close(pt *p) {
    if (!p) return;
    while (p->objects) {
        pt_object *o = p->objects;
        p->objects = o->next;
        free(o->items);
        free(o);
    }
    sl_zip_close(&p->zip);
    free(p);
}

const pt_value *sl_pt_root(const pt *p) {
    return &p->root;
}

const pt_value *sl_pt_find(const pt_value *dict, const char *key) {
    if (dict->kind != PT_DICT) return NULL;
    const pt_value *items = dict->object->items;
    for (int64_t i = 0; i < dict->object->n; i += 2)
        if (items[i].kind == PT_STRING &&
            same(key, items[i].object->text, (size_t)items[i].object->n))
            return &items[i + 1];
    return NULL;
}

specrt_status sl_pt_tensor_get(const pt *p, const pt_value *value, pt_tensor *out,
                               specrt_error *err) {
    *out = (pt_tensor){0};
    const pt_value *a = value->object->items; /* storage, offset, sizes, strides */
    const pt_object *sizes = a[2].object;
    if (sizes->n != 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor of %" PRId64 " dimensions; expected 1", p->path,
                                sizes->n);
    int64_t offset = a[1].i, n = sizes->items[0].i, stride = a[3].object->items[0].i;
    const pt_value *storage = a[0].object->items; /* "storage", type, key, place, elements */
    const struct global *type = &globals[storage[1].i];
    char name[64];
    int length = snprintf(name, sizeof name, "data/%.*s",
                          (int)(storage[2].object->n > 50 ? 50 : storage[2].object->n),
                          storage[2].object->text);
    const zip_entry *e = find_entry(p, name, (size_t)length);
    if (!e || n < 0 || offset < 0 || (stride != 1 && n > 1) ||
        (uint64_t)offset > e->bytes / (uint64_t)type->item_bytes ||
        (uint64_t)n > e->bytes / (uint64_t)type->item_bytes - (uint64_t)offset)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tensor of %" PRId64 " elements does not lie in entry %s",
                                p->path, n, name);
    specrt_status status = sl_zip_check(&p->zip, e, err);
    if (status == SPECRT_STATUS_OK)
        *out =
            (pt_tensor){NULL, type->kind, type->item_bytes, n, e->data + offset * type->item_bytes};
    return status;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static void put_bytes(FILE *f, int64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) fputc((int)(x >> (8 * i) & 255), f);
}

/* Ints in their shortest form, as Python has them; long ones with their length. */
static void put_int(FILE *f, int64_t x) {
    int bytes = x >= 0 && x <= 255 ? 1 : x >= 0 && x <= 65535 ? 2 : 4;
    if (x > INT32_MAX) {
        for (bytes = 4; bytes < 8 && x >> (8 * bytes - 1); bytes++) {
        }
        fputc(0x8a, f);
        fputc(bytes, f);
    } else {
        fputc(bytes == 1 ? 'K' : bytes == 2 ? 'M' : 'J', f);
    }
    put_bytes(f, x, bytes);
}

static void put_string(FILE *f, const char *text) {
    size_t n = strlen(text); /* below 256 */
    fputc('X', f);
    for (int i = 0; i < 4; i++) fputc(i == 0 ? (int)n : 0, f);
    fwrite(text, 1, n, f);
}

enum { PICKLE_BATCH = 1000 }; /* as Python pickles lists */

static void put_list(FILE *f, const int32_t *ids, int64_t n) {
    fputs("\x80\x02]q", f);
    fputc(0, f);
    for (int64_t start = 0; start < n; start += PICKLE_BATCH) {
        int64_t end = n - start < PICKLE_BATCH ? n : start + PICKLE_BATCH;
        if (n > 1) fputc('(', f);
        for (int64_t i = start; i < end; i++) put_int(f, ids[i]);
        fputc(n > 1 ? 'e' : 'a', f);
    }
    fputc('.', f);
}

static void put_counts(FILE *f, const int32_t *ids, const uint64_t *counts, int64_t n) {
    fputs("\x80\x02}q", f);
    fputc(0, f);
    for (int64_t start = 0; start < n; start += PICKLE_BATCH) {
        int64_t end = n - start < PICKLE_BATCH ? n : start + PICKLE_BATCH;
        fputc('(', f);
        for (int64_t i = start; i < end; i++) {
            put_int(f, ids[i]);
            put_int(f, counts[i] < INT64_MAX ? (int64_t)counts[i] : INT64_MAX);
        }
        fputc('u', f);
    }
    fputc('.', f);
}

static void put_tensor(FILE *f, const pt_tensor *t, int index) {
    const char key[2] = {(char)('0' + index), '\0'};
    put_string(f, t->name);
    fputs("ctorch._utils\n_rebuild_tensor_v2\n((", f);
    put_string(f, "storage");
    fprintf(f, "ctorch\n%s\n", t->kind == 'b' ? "BoolStorage" : "LongStorage");
    put_string(f, key);
    put_string(f, "cpu");
    put_int(f, t->n);
    fputs("tQ", f); /* the storage */
    put_int(f, 0);  /* offset */
    put_int(f, t->n);
    fputc(0x85, f); /* sizes */
    put_int(f, 1);
    fputc(0x85, f); /* strides */
    fputs("\x89"
          "ccollections\nOrderedDict\n)RtR",
          f); /* no gradient, no hooks */
}

static void put_dict(FILE *f, const pt_tensor *tensors, int n) {
    fputs("\x80\x02}(", f);
    for (int i = 0; i < n; i++) put_tensor(f, &tensors[i], i);
    fputs("u.", f);
}

/* The pickle and what torch puts around it. */
static specrt_status write_archive(FILE *f, char **pickle, size_t *pickle_bytes,
                                   const pt_tensor *tensors, int n, out_file *out,
                                   specrt_error *err) {
    if (fclose(f) != 0) return sl_error_no_memory(err, out->path);
    zip_writer w = {.out = out};
    static const char *const data[MAX_WRITTEN_TENSORS] = {"archive/data/0", "archive/data/1",
                                                          "archive/data/2", "archive/data/3"};
    specrt_status status = sl_zip_add(&w, "archive/data.pkl", *pickle, *pickle_bytes, err);
    if (status == SPECRT_STATUS_OK) status = sl_zip_add(&w, "archive/byteorder", "little", 6, err);
    for (int i = 0; i < n && status == SPECRT_STATUS_OK; i++) {
        size_t bytes = (size_t)tensors[i].n * (size_t)tensors[i].item_bytes;
        status = sl_zip_add(&w, data[i], tensors[i].values, bytes, err);
    }
    if (status == SPECRT_STATUS_OK) status = sl_zip_add(&w, "archive/version", "3\n", 2, err);
    return status == SPECRT_STATUS_OK ? sl_zip_finish(&w, err) : status;
}

/* Tensors, or else ids, with or without counts. */
static specrt_status write_pickled(const int32_t *ids, const uint64_t *counts, int64_t n_ids,
                                   const pt_tensor *tensors, int n, out_file *out,
                                   specrt_error *err) {
    char *pickle = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&pickle, &bytes);
    if (!f) return sl_error_no_memory(err, out->path);
    if (tensors)
        put_dict(f, tensors, n);
    else if (counts)
        put_counts(f, ids, counts, n_ids);
    else
        put_list(f, ids, n_ids);
    specrt_status status = write_archive(f, &pickle, &bytes, tensors, n, out, err);
    free(pickle);
    return status;
}

specrt_status sl_pt_write_list(const int32_t *ids, int64_t n, out_file *out, specrt_error *err) {
    return write_pickled(ids, NULL, n, NULL, 0, out, err);
}

specrt_status sl_pt_write_counts(const int32_t *ids, const uint64_t *counts, int64_t n,
                                 out_file *out, specrt_error *err) {
    return write_pickled(ids, counts, n, NULL, 0, out, err);
}

specrt_status sl_pt_write_tensors(const pt_tensor *tensors, int n, out_file *out,
                                  specrt_error *err) {
    if (n > MAX_WRITTEN_TENSORS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected at most %d tensors, found more", out->path,
                                MAX_WRITTEN_TENSORS);
    return write_pickled(NULL, NULL, 0, tensors, n, out, err);
}
