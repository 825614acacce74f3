/* weights.c : see weights.h. */
#include "engine/infer/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"

specrt_status engine_weights_open(engine_weights *w, const char *path, specrt_error *err) {
    return sl_model_open(path, &w->file, err);
}

void engine_weights_close(engine_weights *w) {
    for (int i = 0; i < w->n_decoded; i++) free(w->decoded[i]);
    free(w->decoded);
    sl_model_close(&w->file);
}

/* What both kinds of file say of a tensor. */
typedef struct tensor {
    const uint8_t *data;
    int32_t n_dims;
    int64_t n_rows, n_cols; /* n_rows is 1 for vectors */
    specrt_dtype dtype;
    bool known; /* the type can be decoded */
} tensor;

static bool can_decode(specrt_dtype dtype, int64_t n_cols) {
    return sl_model_decodes(dtype) && specrt_row_bytes(dtype, n_cols) > 0;
}

static bool find_gguf(const gguf *g, const char *name, tensor *out) {
    const gguf_tensor *t = sl_gguf_find_tensor(g, name);
    if (!t) return false;
    *out = (tensor){t->data, t->n_dims, t->dims[1], t->dims[0], (specrt_dtype)t->type, false};
    out->known = can_decode(out->dtype, out->n_cols);
    return true;
}

static bool find_safetensors(const st *s, const char *name, tensor *out) {
    const st_tensor *t = sl_st_find(s, name);
    if (!t) return false;
    *out = (tensor){.data = t->data, .n_dims = t->n_dims, .n_rows = 1, .n_cols = t->shape[0]};
    if (t->n_dims == 2) out->n_rows = t->shape[0], out->n_cols = t->shape[1];
    out->known = sl_st_dtype(t->dtype, &out->dtype) && can_decode(out->dtype, out->n_cols);
    return true;
}

static bool find(const engine_weights *w, const char *name, tensor *out) {
    return w->file.g ? find_gguf(w->file.g, name, out) : find_safetensors(w->file.s, name, out);
}

bool engine_weights_has(const engine_weights *w, const char *name) {
    tensor t;
    return find(w, name, &t);
}

bool engine_weights_shape(const engine_weights *w, const char *name, int64_t *n_rows,
                          int64_t *n_cols) {
    tensor t;
    bool found = find(w, name, &t) && t.n_dims == 2;
    *n_rows = found ? t.n_rows : 0;
    *n_cols = found ? t.n_cols : 0;
    return found;
}

static specrt_status check(const engine_weights *w, const char *name, int n_dims, int64_t n_rows,
                           int64_t n_cols, tensor *t, specrt_error *err) {
    char shape[64];
    snprintf(shape, sizeof shape, n_dims == 2 ? "[%lld, %lld]" : "[%lld]",
             (long long)(n_dims == 2 ? n_rows : n_cols), (long long)n_cols);
    if (!find(w, name, t))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s: missing; expected %s",
                                w->file.path, name, shape);
    bool fits = t->n_dims == n_dims || (n_dims == 1 && t->n_dims == 2); /* [1, n] is a vector */
    if (!fits || t->n_rows != n_rows || t->n_cols != n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: expected %s, found [%lld, %lld] of %d dimensions",
                                w->file.path, name, shape, (long long)t->n_rows,
                                (long long)t->n_cols, t->n_dims);
    if (!t->known)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: %s: its type cannot be decoded; expected f32, f16, bf16 or a "
                                "block format of specrt",
                                w->file.path, name);
    return SPECRT_STATUS_OK;
}

/* Rows decoded to f32, owned by the weights. */
static float *decode(engine_weights *w, const tensor *t) {
    size_t stride = specrt_row_bytes(t->dtype, t->n_cols);
    void **kept = (void **)sl_more(&w->decoded, (size_t)w->n_decoded, sizeof *kept);
    float *rows =
        kept ? (float *)malloc((size_t)t->n_rows * (size_t)t->n_cols * sizeof *rows) : NULL;
    if (!rows) return NULL;
    *kept = rows;
    w->n_decoded++;
    for (int64_t i = 0; i < t->n_rows; i++)
        if (specrt_row_decode(t->dtype, t->data + (size_t)i * stride, t->n_cols,
                              rows + i * t->n_cols))
            return NULL;
    return rows;
}

specrt_status engine_weights_matrix(engine_weights *w, const char *name, int64_t n_rows,
                                    int64_t n_cols, engine_matrix *out, specrt_error *err) {
    tensor t;
    TRY(check(w, name, 2, n_rows, n_cols, &t, err));
    out->n_cols = (int32_t)n_cols;
    out->segment.n_rows = (int32_t)n_rows;
    out->segment.rows = t.data;
    out->segment.dtype = t.dtype;
    out->segment.row_stride = specrt_row_bytes(out->segment.dtype, n_cols);
    return SPECRT_STATUS_OK;
}

specrt_status engine_weights_vector(engine_weights *w, const char *name, int64_t n, bool optional,
                                    const float **out, specrt_error *err) {
    tensor t;
    *out = NULL;
    if (optional && !engine_weights_has(w, name)) return SPECRT_STATUS_OK;
    TRY(check(w, name, 1, 1, n, &t, err));
    const float *v = decode(w, &t);
    if (!v) return sl_error_no_memory_for(err, "%s of %s", name, w->file.path);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: %s: element %lld is not finite", w->file.path, name,
                                    (long long)i);
    *out = v;
    return SPECRT_STATUS_OK;
}
