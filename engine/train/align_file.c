/* align_file.c : what was learnt, as safetensors: adapters in PEFT's names, or a whole head in EAGLE's. The
 * file's metadata has a digest of the drafter that it belongs to. */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "engine/train/align_impl.h"
#include "formats/safetensors.h"

enum { NAME_BYTES = 112 };

/* "base_model.model.layers.0.self_attn.q_proj.lora_A.weight", "layers.0.mlp.up_proj.weight", "fc.bias"; of an
 * independent drafter "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". */
static const char *name_of(const engine_align *a, int block, char out[NAME_BYTES]) {
    const align_block *b = &a->blocks[block];
    bool lora = a->params.mode == ENGINE_ALIGN_LORA;
    char layer[32];
    snprintf(layer, sizeof layer, "model.layers.%d", block / ALIGN_LORA_BLOCKS);
    snprintf(out, NAME_BYTES, "%s%s%s%s%s", lora ? "base_model.model." : "",
             !b->of_layer ? ""
             : a->d->own  ? layer
                          : a->d->prefix,
             b->of_layer ? "." : "", b->name, b->of_layer ? ".weight" : "");
    return out;
}

/* Where a row of a block is in the masters. A GGUF's Llama has the rows of its queries in another order than
 * the checkpoint that it was made from, pairs of a rotation side by side; files have the checkpoint's. */
static float *row_of(const engine_align *a, float *values, int block, int32_t row) {
    const align_block *b = &a->blocks[block];
    int32_t d = a->m->config.d_head, half = d / 2, in_head = row % d;
    if (a->d->own && a->m->rope_adjacent && block % ALIGN_LORA_BLOCKS == ALIGN_Q_B)
        row += 2 * (in_head % half) + in_head / half - in_head;
    return align_part(a, values, block) + (int64_t)row * b->n_cols;
}

static uint64_t digest_matrix(const engine_matrix *w, uint64_t digest) {
    size_t bytes = specrt_row_bytes(w->segment.dtype, w->n_cols);
    for (int32_t row = 0; row < w->segment.n_rows; row++)
        digest = specrt_hash64((const char *)w->segment.rows + (size_t)row * w->segment.row_stride,
                               bytes, digest);
    return digest;
}

/* Of the drafter as it was before it learnt. */
static const char *digest_of(const engine_align *a, char out[17]) {
    uint64_t digest = 0;
    for (int32_t layer = 0; layer < a->n_layers; layer++) {
        const engine_layer *w = layer ? &a->m->layers[layer] : &a->kept_layer;
        const engine_matrix *const all[] = {&w->q, &w->k, &w->v, &w->o, &w->up, &w->gate, &w->down};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            digest = digest_matrix(all[i], digest);
    }
    if (!a->d->own) digest = digest_matrix(&a->kept_fc, digest);
    snprintf(out, 17, "%016llx", (unsigned long long)digest);
    return out;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* What loaders of adapters ask for. */
static specrt_status save_config(const engine_align *a, const char *path, bool force,
                                 specrt_error *err) {
    char beside[4096];
    const char *slash = strrchr(path, '/');
    json_object *o = json_object_new_object(), *modules = json_object_new_array();
    json_object_array_add(modules, sl_json_text("q_proj"));
    json_object_array_add(modules, sl_json_text("v_proj"));
    sl_json_put(o, "peft_type", sl_json_text("LORA"));
    sl_json_put(o, "r", sl_json_whole((uint64_t)a->params.rank));
    sl_json_put(o, "lora_alpha", sl_json_real((double)a->params.alpha));
    sl_json_put(o, "lora_dropout", sl_json_real(0));
    sl_json_put(o, "bias", sl_json_text("none"));
    sl_json_put(o, "target_modules", modules);
    snprintf(beside, sizeof beside, "%.*sadapter_config.json", slash ? (int)(slash - path + 1) : 0,
             path);
    char *text = sl_json_to_text(o);
    if (!text) return sl_error_no_memory(err, beside);
    specrt_status status = sl_out_bytes(beside, force, text, strlen(text), err);
    free(text);
    return status;
}

/* What a file has, in the order of its rows. */
typedef struct snapshot {
    st_tensor *tensors;        /* [n_blocks] */
    char (*names)[NAME_BYTES]; /* likewise */
    float *values;             /* as the masters */
    int n;
} snapshot;

static void fill_snapshot(const engine_align *a, snapshot *s) {
    for (int i = 0; i < a->n_blocks; i++) {
        const align_block *b = &a->blocks[i];
        float *rows = align_part(a, s->values, i);
        if (b->n_rows == 0) continue;
        bool vector = a->params.mode == ENGINE_ALIGN_FULL && (i == ALIGN_NORM || i >= ALIGN_BIAS);
        st_tensor *t = &s->tensors[s->n++];
        for (int32_t row = 0; row < b->n_rows; row++)
            memcpy(rows + (int64_t)row * b->n_cols, row_of(a, a->values, i, row),
                   sizeof(float) * (size_t)b->n_cols);
        t->name = name_of(a, i, s->names[i]);
        snprintf(t->dtype, sizeof t->dtype, "F32");
        t->n_dims = vector ? 1 : 2;
        t->shape[0] = vector ? b->n_cols : b->n_rows;
        t->shape[1] = b->n_cols;
        t->data = (const uint8_t *)rows;
        t->bytes = sizeof(float) * (size_t)b->n_rows * (size_t)b->n_cols;
    }
}

static specrt_status write_snapshot(const engine_align *a, const snapshot *s, const char *path,
                                    bool force, specrt_error *err) {
    char digest[17], rank[16], alpha[32];
    const char *metadata[] = {"format", "pt", "specrt.drafter", digest_of(a, digest),
                              "r",      rank, "lora_alpha",     alpha};
    out_file out;
    snprintf(rank, sizeof rank, "%d", (int)a->params.rank);
    snprintf(alpha, sizeof alpha, "%.9g", (double)a->params.alpha);
    TRY(sl_out_open(&out, path, force, err));
    specrt_status status = sl_st_write(s->tensors, s->n, metadata,
                                       a->params.mode == ENGINE_ALIGN_LORA ? 4 : 2, &out, err);
    if (status == SPECRT_STATUS_OK) return sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}

static specrt_status save_values(const engine_align *a, const char *path, bool force,
                                 specrt_error *err) {
    snapshot s = {0};
    size_t n = (size_t)a->n_blocks;
    specrt_status status = sl_new(&s.tensors, n, sizeof *s.tensors, ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK) status = sl_new(&s.names, n, sizeof *s.names, ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK)
        status = sl_new(&s.values, (size_t)a->n_values, sizeof *s.values, ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK) {
        fill_snapshot(a, &s);
        status = write_snapshot(a, &s, path, force, err);
    }
    free(s.tensors);
    free(s.names);
    free(s.values);
    return status;
}

specrt_status engine_align_save(const engine_align *a, const char *path, bool force,
                                specrt_error *err) {
    TRY(save_values(a, path, force, err));
    return a->params.mode == ENGINE_ALIGN_LORA ? save_config(a, path, true, err) : SPECRT_STATUS_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

static specrt_status bad(const char *path, const char *what, const char *expected,
                         const char *found, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s: expected %s, found %s", path,
                            what, expected, found);
}

/* The header's "__metadata__"; NULL: it has none. The file was found well-formed before. */
static json_object *read_metadata(const char *path) {
    file_view file;
    json_object *header = NULL, *metadata = NULL;
    uint64_t n = 0;
    if (sl_file_map(path, &file, NULL) != SPECRT_STATUS_OK) return NULL;
    if (file.n < 8) {
        sl_file_unmap(&file);
        return NULL;
    }
    memcpy(&n, file.bytes, 8);
    if (n <= file.n - 8) header = sl_json_parse((const char *)file.bytes + 8, (size_t)n, NULL);
    if (header && json_object_object_get_ex(header, "__metadata__", &metadata))
        json_object_get(metadata);
    json_object_put(header);
    sl_file_unmap(&file);
    return metadata;
}

/* Adapters of other programs say nothing of the drafter: shapes must do. */
static specrt_status check_metadata(const engine_align *a, const char *path, specrt_error *err) {
    char ours[32];
    json_object *metadata = read_metadata(path), *value;
    specrt_status status = SPECRT_STATUS_OK;
    if (json_object_object_get_ex(metadata, "specrt.drafter", &value) &&
        strcmp(json_object_get_string(value), digest_of(a, ours)) != 0)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: is of another drafter; expected digest %s, found %s", path,
                                  ours, json_object_get_string(value));
    snprintf(ours, sizeof ours, "%.9g", (double)a->params.alpha);
    if (status == SPECRT_STATUS_OK && a->params.mode == ENGINE_ALIGN_LORA &&
        json_object_object_get_ex(metadata, "lora_alpha", &value) &&
        strcmp(json_object_get_string(value), ours) != 0)
        status = bad(path, "lora_alpha", ours, json_object_get_string(value), err);
    json_object_put(metadata);
    return status;
}

static specrt_status load_block(const engine_align *a, const st *s, int block, const char *path,
                                float *values, specrt_error *err) {
    const align_block *b = &a->blocks[block];
    char name[NAME_BYTES], expected[64], found[64] = "none";
    specrt_dtype dtype;
    const st_tensor *t = sl_st_find(s, name_of(a, block, name));
    int64_t n_cols = t && t->n_dims > 0 ? t->shape[t->n_dims - 1] : 0;
    int64_t n_rows = t && t->n_dims == 2 ? t->shape[0] : 1;
    if (b->n_rows == 0) return SPECRT_STATUS_OK;
    snprintf(expected, sizeof expected, "[%d, %d]", (int)b->n_rows, (int)b->n_cols);
    if (t)
        snprintf(found, sizeof found, "[%lld, %lld] of %s", (long long)n_rows, (long long)n_cols,
                 t->dtype);
    size_t row_bytes = t && n_cols == b->n_cols && sl_st_dtype(t->dtype, &dtype)
                           ? specrt_row_bytes(dtype, n_cols)
                           : 0;
    if (!t || t->n_dims < 1 || t->n_dims > 2 || n_rows != b->n_rows || row_bytes == 0)
        return bad(path, name, expected, found, err);
    for (int64_t row = 0; row < n_rows; row++)
        if (specrt_row_decode(dtype, t->data + (size_t)row * row_bytes, n_cols,
                              row_of(a, values, block, (int32_t)row)) != SPECRT_STATUS_OK)
            return bad(path, name, "a float type", t->dtype, err);
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        if (!isfinite(values[b->at + i])) return bad(path, name, "finite values", "others", err);
    return SPECRT_STATUS_OK;
}

specrt_status engine_align_load(engine_align *a, const char *path, specrt_error *err) {
    st *s;
    TRY(sl_st_open(path, &s, err));
    float *values = (float *)malloc((size_t)a->n_values * sizeof *values);
    specrt_status status = values ? check_metadata(a, path, err) : sl_error_no_memory(err, path);
    for (int i = 0; status == SPECRT_STATUS_OK && i < a->n_blocks; i++)
        status = load_block(a, s, i, path, values, err);
    if (status == SPECRT_STATUS_OK) memcpy(a->values, values, (size_t)a->n_values * sizeof *values);
    free(values);
    sl_st_close(s);
    return status;
}
