/* eagle3_head.c : an EAGLE-3 head for tests of what carries it to other engines.
 *     eagle3_head make TARGET.gguf OUT.safetensors STRIDE
 *         weights drawn by a fixed seed, LM head rows of every STRIDE-th token, as f16; 0: no head
 *     eagle3_head check TARGET.gguf HEAD.safetensors FOUND N
 *         whether llama.cpp's passes (tests/llama/llama_eagle3.c wrote FOUND) are our engine's, with
 *         logits of N tokens
 * The passes: three states of the target that are sin(0.7 i), tokens 11, 28, 45; each pass but the first is
 * fed the feature that the one before gave. FOUND is that feature, f32 [d], and logits, f32 [n_vocab], of
 * each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "drawn.h"
#include "engine/infer/engine.h"
#include "formats/safetensors.h"
#include "model/model.h"

enum { N_PASSES = 3, MOST = 20, MOST_COLS = 4096 };

static int fail(const char *what) {
    fprintf(stderr, "eagle3_head: %s\n", what);
    return 1;
}

typedef struct head {
    st_tensor tensors[MOST];
    int n;
    uint64_t state;
} head;

/* Rows of weights about 1 / sqrt(columns); a vector of weights about 1. */
static void add(head *h, const char *name, int64_t n_rows, int64_t n_cols) {
    size_t n = (size_t)((n_rows ? n_rows : 1) * n_cols);
    uint16_t *data = malloc(n * sizeof *data);
    for (size_t i = 0; data && i < n; i++) {
        double x =
            n_rows ? 1.5 * drawn(&h->state) / sqrt((double)n_cols) : 1 + 0.2 * drawn(&h->state);
        float value = (float)x;
        specrt_to_f16(&value, 1, &data[i]);
    }
    st_tensor *t = &h->tensors[h->n++];
    *t = (st_tensor){.name = name,
                     .dtype = "F16",
                     .n_dims = n_rows ? 2 : 1,
                     .shape = {n_rows ? n_rows : n_cols, n_cols},
                     .data = (const uint8_t *)data,
                     .bytes = n * sizeof *data};
}

/* The target's own rows of every stride-th token, and the offsets that say so. */
static void add_rows(head *h, const specrt_head_desc *from, int64_t stride) {
    int64_t n = (from->n_rows + stride - 1) / stride, d = from->n_cols;
    uint16_t *rows = malloc((size_t)(n * d) * sizeof *rows);
    int64_t *d2t = malloc((size_t)n * sizeof *d2t);
    float *row = malloc((size_t)d * sizeof *row);
    size_t row_bytes =
        from->row_stride ? from->row_stride : specrt_row_bytes(from->dtype, from->n_cols);
    for (int64_t i = 0; rows && d2t && row && i < n; i++) {
        const uint8_t *at = (const uint8_t *)from->rows + (size_t)(i * stride) * row_bytes;
        specrt_row_decode(from->dtype, at, d, row);
        specrt_to_f16(row, d, rows + i * d);
        d2t[i] = i * stride - i;
    }
    free(row);
    h->tensors[h->n++] = (st_tensor){.name = "lm_head.weight",
                                     .dtype = "F16",
                                     .n_dims = 2,
                                     .shape = {n, d},
                                     .data = (const uint8_t *)rows,
                                     .bytes = (size_t)(n * d) * sizeof *rows};
    h->tensors[h->n++] = (st_tensor){.name = "d2t",
                                     .dtype = "I64",
                                     .n_dims = 1,
                                     .shape = {n},
                                     .data = (const uint8_t *)d2t,
                                     .bytes = (size_t)n * sizeof *d2t};
}

static int make(const char *target, const char *path, int64_t stride) {
    specrt_error err;
    engine_model *m;
    specrt_head_desc rows;
    out_file out;
    head h = {.state = 7};
    if (engine_open(target, 1, &m, &err)) return fail(err.msg);
    const engine_config *k = engine_get_config(m);
    int64_t d = k->d_model, q = (int64_t)k->n_heads * k->d_head;
    int64_t kv = (int64_t)k->n_kv_heads * k->d_head;
    engine_head(m, &rows);
    add(&h, "fc.weight", d, 3 * d);
    add(&h, "midlayer.input_layernorm.weight", 0, d);
    add(&h, "midlayer.hidden_norm.weight", 0, d);
    add(&h, "midlayer.self_attn.q_proj.weight", q, 2 * d);
    add(&h, "midlayer.self_attn.k_proj.weight", kv, 2 * d);
    add(&h, "midlayer.self_attn.v_proj.weight", kv, 2 * d);
    add(&h, "midlayer.self_attn.o_proj.weight", d, q);
    add(&h, "midlayer.post_attention_layernorm.weight", 0, d);
    add(&h, "midlayer.mlp.gate_proj.weight", k->d_ffn, d);
    add(&h, "midlayer.mlp.up_proj.weight", k->d_ffn, d);
    add(&h, "midlayer.mlp.down_proj.weight", d, k->d_ffn);
    add(&h, "norm.weight", 0, d);
    if (stride > 0) add_rows(&h, &rows, stride);
    specrt_status status = sl_out_open(&out, path, true, &err);
    if (!status) {
        status = sl_st_write(h.tensors, h.n, NULL, 0, &out, &err);
        if (!status)
            status = sl_out_commit(&out, &err);
        else
            sl_out_abort(&out);
    }
    for (int i = 0; i < h.n; i++) free((void *)(uintptr_t)h.tensors[i].data);
    engine_close(m);
    return status ? fail(err.msg) : 0;
}

/* Greatest difference between two arrays, in shares of the greatest value. */
static double apart(const float *a, const float *b, int64_t n) {
    double most = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return size > 0 ? most / size : most;
}

/* Logits of this pass by the head's rows, where there is one: those that are not -inf must be of rows, so
 * many. @return how far they are apart; -1: they are of other tokens. */
static double compare_logits(const specrt_head_desc *rows, const float *hidden, const float *found,
                             int64_t n_vocab, int64_t n_listed) {
    float *listed = malloc((size_t)rows->n_rows * sizeof *listed);
    float *own = malloc((size_t)rows->n_rows * sizeof *own), row[MOST_COLS];
    size_t row_bytes = specrt_row_bytes(rows->dtype, rows->n_cols);
    int64_t n_finite = 0, n = 0;
    for (int64_t i = 0; i < n_vocab; i++) n_finite += isfinite(found[i]) != 0;
    for (int64_t r = 0; listed && own && r < rows->n_rows; r++) {
        double sum = 0;
        int64_t token = rows->ids ? rows->ids[r] : r;
        if (!isfinite(found[token])) continue;
        specrt_row_decode(rows->dtype, (const uint8_t *)rows->rows + (size_t)r * row_bytes,
                          rows->n_cols, row);
        for (int64_t j = 0; j < rows->n_cols; j++) sum += (double)row[j] * (double)hidden[j];
        own[n] = (float)sum;
        listed[n++] = found[token];
    }
    double result = n == n_finite && n == n_listed ? apart(listed, own, n) : -1;
    free(listed);
    free(own);
    return result;
}

static int check(const char *target, const char *path, const char *found_path, int64_t n_listed) {
    specrt_error err;
    engine_model *m;
    engine_drafter *drafter;
    engine_cache *cache;
    specrt_head_desc rows;
    if (engine_open(target, 1, &m, &err) || engine_drafter_open(path, m, &drafter, &err) ||
        engine_drafter_cache(drafter, 64, &cache, &err))
        return fail(err.msg);
    int64_t d = engine_get_config(m)->d_model, n_vocab = engine_get_config(m)->n_vocab;
    float *states = calloc((size_t)(3 * d), sizeof *states), *hidden = calloc((size_t)d, 4);
    float *query = calloc((size_t)d, 4), *found = calloc((size_t)(d + n_vocab), 4);
    FILE *f = fopen(found_path, "rb");
    if (!states || !hidden || !query || !found || !f || d > MOST_COLS)
        return fail("no memory or file");
    engine_drafter_head(drafter, &rows);
    for (int64_t i = 0; i < 3 * d; i++) states[i] = sinf(0.7f * (float)i);
    int code = 0;
    for (int i = 0; i < N_PASSES && !code; i++) {
        int32_t token = 17 * i + 11, width = (int32_t)(i ? d : 3 * d);
        if (fread(found, 4, (size_t)(d + n_vocab), f) != (size_t)(d + n_vocab))
            return fail("expected three passes");
        if (engine_draft(drafter, cache, &token, i ? hidden : states, width, 1, NULL, hidden,
                         query))
            return fail("our engine made no pass");
        double feature = apart(found, hidden, d);
        double logits = compare_logits(&rows, query, found + d, n_vocab, n_listed);
        printf("pass %d: feature %.2g, logits %.2g apart\n", i, feature, logits);
        code = !(feature < 0.01 && logits >= 0 && logits < 0.01);
    }
    fclose(f);
    free(states), free(hidden), free(query), free(found);
    engine_cache_close(cache);
    engine_drafter_close(drafter);
    engine_close(m);
    return code ? fail("another engine's passes differ") : 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0) return make(argv[2], argv[3], atoll(argv[4]));
    if (argc == 6 && strcmp(argv[1], "check") == 0)
        return check(argv[2], argv[3], argv[4], atoll(argv[5]));
    return fail("expected make TARGET OUT STRIDE, or check TARGET HEAD FOUND N");
}
