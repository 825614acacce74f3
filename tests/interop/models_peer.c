/* models_peer.c : our side of models_interop.py.
 *   models_peer dump FILE              every key and tensor as JSON
 *   models_peer decode FILE TENSOR OUT the tensor's rows as raw f32
 *   models_peer copy FILE OUT          the model, read and written again */
#include "model/model.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

static json_object *text_json(gguf_string s) {
    return json_object_new_string_len(s.s, (int)s.n);
}

static json_object *kv_json(const gguf *g, const gguf_kv *kv, const char *key) {
    int64_t n;
    double real;
    gguf_string text;
    if (sl_gguf_get_int(g, key, &n)) return json_object_new_int64(n);
    if (sl_gguf_get_real(g, key, &real)) return json_object_new_double(real);
    if (sl_gguf_get_string(g, key, &text)) return text_json(text);
    gguf_string *strings = sl_gguf_get_strings(g, key, &n);
    json_object *array = json_object_new_array();
    for (int64_t i = 0; i < n; i++) json_object_array_add(array, text_json(strings[i]));
    free(strings);
    for (uint64_t i = 0; kv->elem == GGUF_I32 && i < kv->count; i++) {
        int32_t item;
        memcpy(&item, kv->value + 4 * i, 4);
        json_object_array_add(array, json_object_new_int(item));
    }
    return array;
}

/* Names may hold what makes no key; these files' do not. */
static json_object *kvs_json(const gguf *g) {
    json_object *object = json_object_new_object();
    int64_t n;
    const gguf_kv *kvs = sl_gguf_kvs(g, &n);
    for (int64_t i = 0; i < n; i++) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)kvs[i].key.n, kvs[i].key.s);
        json_object_object_add(object, key, kv_json(g, &kvs[i], key));
    }
    return object;
}

static void add_tensor(json_object *list, const char *name, const char *type, const int64_t *dims,
                       int32_t n_dims, const uint8_t *data, size_t bytes) {
    json_object *t = json_object_new_object(), *shape = json_object_new_array();
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)specrt_hash64(data, bytes, 0));
    for (int32_t i = 0; i < n_dims; i++)
        json_object_array_add(shape, json_object_new_int64(dims[i]));
    json_object_object_add(t, "type", json_object_new_string(type));
    json_object_object_add(t, "dims", shape);
    json_object_object_add(t, "bytes", json_object_new_uint64(bytes));
    json_object_object_add(t, "xxh64", json_object_new_string(hex));
    json_object_object_add(list, name, t);
}

static specrt_status dump(const model *m) {
    json_object *root = json_object_new_object(), *tensors = json_object_new_object();
    int64_t n = 0;
    const gguf_tensor *g = m->g ? sl_gguf_tensors(m->g, &n) : NULL;
    for (int64_t i = 0; g && i < n; i++)
        add_tensor(tensors, g[i].name, sl_gguf_type_name(g[i].type), g[i].dims, g[i].n_dims,
                   g[i].data, g[i].bytes);
    const st_tensor *s = m->s ? sl_st_tensors(m->s, &n) : NULL;
    for (int64_t i = 0; s && i < n; i++)
        add_tensor(tensors, s[i].name, s[i].dtype, s[i].shape, s[i].n_dims, s[i].data, s[i].bytes);
    json_object_object_add(root, "tensors", tensors);
    json_object_object_add(root, "kvs", m->g ? kvs_json(m->g) : NULL);
    puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN));
    json_object_put(root);
    return SPECRT_STATUS_OK;
}

static specrt_status decode(const model *m, const char *tensor, const char *path,
                            specrt_error *err) {
    specrt_head_desc rows;
    out_file out;
    TRY(sl_model_matrix(m, tensor, &rows, err));
    TRY(sl_out_open(&out, path, true, err));
    float *row = malloc((size_t)rows.n_cols * sizeof *row);
    const uint8_t *at = rows.rows;
    specrt_status status = row ? SPECRT_STATUS_OK : SPECRT_STATUS_NO_MEMORY;
    for (int64_t i = 0; !status && i < rows.n_rows; i++) {
        status = specrt_row_decode(rows.dtype, at, rows.n_cols, row);
        at += specrt_row_bytes(rows.dtype, rows.n_cols);
        if (!status) status = sl_out_write(&out, row, (size_t)rows.n_cols * sizeof *row, err);
    }
    free(row);
    return status ? (sl_out_abort(&out), status) : sl_out_commit(&out, err);
}

static specrt_status copy(const model *m, const char *path, specrt_error *err) {
    static const char *const metadata[] = {"format", "pt"};
    int64_t n = 0;
    out_file out;
    const st_tensor *tensors = m->s ? sl_st_tensors(m->s, &n) : NULL;
    TRY(sl_out_open(&out, path, true, err));
    specrt_status status = m->g ? sl_gguf_rewrite(m->g, NULL, 0, &out, err)
                                : sl_st_write(tensors, (int)n, metadata, 1, &out, err);
    return status ? (sl_out_abort(&out), status) : sl_out_commit(&out, err);
}

int main(int argc, char **argv) {
    model m;
    specrt_error err = {SPECRT_STATUS_BAD_ARG, "usage: models_peer dump|decode|copy FILE ..."};
    const char *verb = argc > 2 ? argv[1] : "";
    specrt_status status = argc > 2 ? sl_model_open(argv[2], &m, &err) : SPECRT_STATUS_BAD_ARG;
    if (!status) {
        if (strcmp(verb, "dump") == 0)
            status = dump(&m);
        else if (strcmp(verb, "decode") == 0 && argc == 5)
            status = decode(&m, argv[3], argv[4], &err);
        else if (strcmp(verb, "copy") == 0 && argc == 4)
            status = copy(&m, argv[3], &err);
        else
            status = SPECRT_STATUS_BAD_ARG;
        sl_model_close(&m);
    }
    if (status) fprintf(stderr, "%s\n", err.msg);
    return status ? 1 : 0;
}
