/* test_formats_damage.c : what the readers of model files say of damage in every place. */
#include "damage.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "formats/pt.h"
#include "formats/safetensors.h"
#include "formats/zip.h"
#include "gguf_build.h"

/* ---- GGUF ---- */

static specrt_status read_gguf(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    gguf *g;
    int64_t n_keys, n_tensors, i_value, n_strings;
    double real;
    gguf_string text;
    specrt_status status = sl_gguf_open_memory(bytes, n, "damaged", &g, err);
    if (status) return status;
    const gguf_kv *kvs = sl_gguf_kvs(g, &n_keys);
    const gguf_tensor *tensors = sl_gguf_tensors(g, &n_tensors);
    for (int64_t i = 0; i < n_keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(kvs[i].key.n < 63 ? kvs[i].key.n : 63),
                 kvs[i].key.s);
        damage_add(content, kvs[i].key.s, kvs[i].key.n);
        damage_add(content, kvs[i].value, kvs[i].value_bytes);
        damage_add_int(content, (int64_t)kvs[i].type * 100 + kvs[i].elem);
        if (sl_gguf_get_int(g, key, &i_value)) damage_add_int(content, i_value);
        if (sl_gguf_get_real(g, key, &real)) damage_add(content, &real, sizeof real);
        if (sl_gguf_get_string(g, key, &text)) damage_add(content, text.s, text.n);
        gguf_string *strings = sl_gguf_get_strings(g, key, &n_strings);
        for (int64_t k = 0; strings && k < n_strings; k++)
            damage_add(content, strings[k].s, strings[k].n);
        if (!strings && sl_gguf_find(g, key) == &kvs[i] && kvs[i].type == GGUF_ARRAY &&
            kvs[i].elem == GGUF_STRING && kvs[i].count > 0)
            status = SPECRT_STATUS_NO_MEMORY;
        free(strings);
    }
    for (int64_t i = 0; i < n_tensors; i++) {
        const gguf_tensor *t = &tensors[i];
        CHECK(sl_gguf_find_tensor(g, t->name) != NULL);
        damage_add(content, t->name, strlen(t->name));
        damage_add(content, t->dims, sizeof t->dims);
        damage_add(content, t->data, t->bytes);
        damage_add_int(content, t->type);
    }
    sl_gguf_close(g);
    return status;
}

static void put_tensor(const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                       uint64_t offset) {
    uint64_t n_tensors;
    put_text(name);
    put_u32(2);
    put(&cols, 8), put(&rows, 8);
    put_u32(type);
    put(&offset, 8);
    memcpy(&n_tensors, file + 8, 8);
    n_tensors++;
    memcpy(file + 8, &n_tensors, 8);
}

static void damage_gguf(void) {
    static const char *const tokens[] = {"a", "bc", NULL};
    const float scores[] = {0.5f, -1};
    const int32_t ints[] = {7, -8};
    const uint8_t yes = 1;
    const double real = 2.5;
    begin();
    put_string("general.name", "small");
    put_int("general.alignment", 64);
    put_strings("tokens", tokens);
    put_floats("scores", scores, 2);
    put_ints("ints", ints, 2);
    put_key("yes", GGUF_BOOL), put(&yes, 1);
    put_key("real", GGUF_F64), put(&real, 8);
    put_tensor("first", 0, 4, 2, 0);
    put_tensor("second", 8, 32, 1, 64); /* q8_0 */
    while (n_file % 64) put("", 1);
    for (int i = 0; i < 64 + 34; i++) put("x", 1);
    damage_everywhere("GGUF", file, n_file, read_gguf);
}

/* ---- safetensors ---- */

static specrt_status read_st(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    st *s;
    int64_t n_tensors;
    specrt_status status = sl_st_open_memory(bytes, n, "damaged", &s, err);
    if (status) return status;
    const st_tensor *tensors = sl_st_tensors(s, &n_tensors);
    for (int64_t i = 0; i < n_tensors; i++) {
        const st_tensor *t = &tensors[i];
        specrt_dtype dtype = (specrt_dtype)0;
        bool known = sl_st_dtype(t->dtype, &dtype);
        CHECK(sl_st_find(s, t->name) == t);
        damage_add(content, t->name, strlen(t->name));
        damage_add(content, t->dtype, strlen(t->dtype));
        damage_add(content, t->shape, (size_t)t->n_dims * sizeof t->shape[0]);
        damage_add(content, t->data, t->bytes);
        damage_add_int(content, known ? (int)dtype : -1);
    }
    sl_st_close(s);
    return SPECRT_STATUS_OK;
}

static void damage_st(void) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
        "\"data_offsets\":[0,12]},\"a.weight\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":"
        "[12,20]},\"e\\u00e9\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[20,20]}} ";
    const uint64_t n = sizeof header - 1;
    n_file = 0;
    put(&n, 8);
    put(header, n);
    put("01234567890123456789", 20);
    damage_everywhere("safetensors", file, n_file, read_st);
}

/* ---- torch.save and npy ---- */

static void add_value(uint64_t *content, const pt *p, const pt_value *v) {
    pt_tensor t;
    specrt_error err = {0};
    damage_add_int(content, v->kind);
    damage_add_int(content, v->kind == PT_INT || v->kind == PT_BOOL ? v->i : 0);
    if (v->kind == PT_STRING) damage_add(content, v->object->text, (size_t)v->object->n);
    if (v->kind == PT_TENSOR) {
        if (sl_pt_tensor_get(p, v, &t, &err))
            damage_add(content, err.msg, strlen(err.msg));
        else
            damage_add(content, t.values, (size_t)t.n * (size_t)t.item_bytes);
    }
    if (v->kind == PT_LIST || v->kind == PT_DICT || v->kind == PT_TUPLE)
        for (int64_t i = 0; i < v->object->n; i++) add_value(content, p, &v->object->items[i]);
}

static specrt_status read_pt(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    pt *p;
    specrt_status status = sl_pt_open_memory(bytes, n, "damaged", &p, err);
    if (status) return status;
    add_value(content, p, sl_pt_root(p));
    sl_pt_close(p);
    return SPECRT_STATUS_OK;
}

static zip_reader archive; /* whose data.pkl is damaged */

/* The same archive with this data.pkl. */
static specrt_status read_pickle(const void *bytes, size_t n, uint64_t *content,
                                 specrt_error *err) {
    char *memory, names[8][40];
    size_t n_memory;
    out_file out = {.f = open_memstream(&memory, &n_memory), .path = (char *)(uintptr_t) "memory"};
    zip_writer w = {.out = &out};
    REQUIRE(out.f);
    for (int64_t i = 0; i < archive.n; i++) {
        const zip_entry *e = &archive.entries[i];
        bool is_pickle = memmem(e->name, e->name_bytes, ".pkl", 4) != NULL;
        snprintf(names[i], sizeof names[i], "%.*s", (int)e->name_bytes, e->name);
        REQUIRE(
            !sl_zip_add(&w, names[i], is_pickle ? bytes : e->data, is_pickle ? n : e->bytes, NULL));
    }
    REQUIRE(!sl_zip_finish(&w, NULL) && fclose(out.f) == 0);
    specrt_status status = read_pt(memory, n_memory, content, err);
    free(memory);
    return status;
}

static void damage_pickle(const char *name) {
    char path[100];
    file_view view;
    snprintf(path, sizeof path, "tests/golden/maps/%s", name);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_zip_open(view.bytes, view.n, path, &archive, NULL) == SPECRT_STATUS_OK);
    damage_everywhere(name, archive.entries[0].data, archive.entries[0].bytes, read_pickle);
    if (strcmp(name, "list.pt") == 0)
        damage_everywhere("list.pt, the archive", view.bytes, view.n, read_pt);
    sl_zip_close(&archive);
    sl_file_unmap(&view);
}

static specrt_status read_npy(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    npy_array a;
    const uint8_t *values;
    specrt_status status = sl_npy_values(bytes, n, "damaged", &a, &values, err);
    if (status) return status;
    damage_add_int(content, a.kind * 1000 + a.item_bytes * 10 + a.n_dims);
    damage_add(content, a.shape, (size_t)a.n_dims * sizeof a.shape[0]);
    if (a.kind != 'f')
        for (int64_t i = 0; i < a.n; i++) damage_add_int(content, sl_npy_int(&a, values, i));
    return SPECRT_STATUS_OK;
}

static void damage_npy(void) {
    static const char header[] =
        "\x93NUMPY\1\0\x44\0{'descr': '<u4', 'fortran_order': False, 'shape': (2, 3), }        \n";
    n_file = 0;
    put(header, sizeof header - 1);
    put("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\xff", 24);
    damage_everywhere("npy", file, n_file, read_npy);
}

TEST(damage, "of every byte of a small file of each format") {
    LEFT_TO_ALL();
    damage_gguf();
    damage_st();
    damage_npy();
    damage_pickle("list.pt");
    damage_pickle("token_freq.pt");
    damage_pickle("vocab_mapping.pt");
    approved_compare("tests/formats/formats_damage.exact");
}
