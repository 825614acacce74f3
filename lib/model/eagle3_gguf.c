/* eagle3_gguf.c : tensors under llama.cpp's names, what its loader asks for as keys, and the tokenizer. */
#include "model/eagle3_gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "model/checkpoint.h"
#include "model/head_rows.h"
#include "model/token_pick.h"

enum { MOST_KEYS = 20, MOST_TENSORS = 16, KEY_BYTES = 64 };

typedef struct eagle3 {
    const char *path, *target_path;
    checkpoint c;
    gguf *target;
    const char *prefix; /* of the layer's tensors */
    int64_t d, d_target, d_head, n_heads, n_kv_heads, d_ffn, n_context, n_layers;
    double rms_epsilon, rope_base;
    model target_model;    /* open where its head drafts */
    specrt_head_desc head; /* its own, or the target's; borrowed */
    int32_t *rows_of;      /* [n_vocab] owned, by token; -1: none */
    int64_t n_vocab;       /* tokens of the target */
    /* The file to be. */
    gguf_kv *kvs;
    int n_kvs;
    uint8_t values[MOST_KEYS][16]; /* of the keys that are not the target's */
    gguf_tensor tensors[MOST_TENSORS];
    void *owned[MOST_TENSORS]; /* their data, where made here */
    int n_tensors;
    specrt_error *err;
} eagle3;

static specrt_status bad(const eagle3 *e, const char *what, const char *detail) {
    return specrt_error_set(e->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: %s", e->path, what, detail);
}

/* ---- what is read -------------------------------------------------------------------------------- */

/* "<the target's architecture>.<key>" */
static const char *target_key(const eagle3 *e, const char *key, char out[128]) {
    gguf_string arch = {"", 0};
    sl_gguf_get_string(e->target, "general.architecture", &arch);
    snprintf(out, 128, "%.*s.%s", (int)(arch.n < 40 ? arch.n : 40), arch.s, key);
    return out;
}

/* The number under a name of config.json, else under the target's key, else none. */
static double number_of(const eagle3 *e, const char *name, const char *key, double none) {
    char full[128];
    int64_t whole;
    double real;
    json_object *value = sl_checkpoint_value(&e->c, name);
    if (value) return json_object_get_double(value);
    if (!key) return none;
    if (sl_gguf_get_int(e->target, target_key(e, key, full), &whole)) return (double)whole;
    return sl_gguf_get_real(e->target, full, &real) ? real : none;
}

/* The same as a count; 0 for what is none. */
static int64_t count_of(const eagle3 *e, const char *name, const char *key) {
    double x = number_of(e, name, key, 0);
    return x >= 1 && x <= INT32_MAX ? (int64_t)x : 0;
}

/* A tensor of a number of rows (0: a vector), in a type that GGUF has. */
static specrt_status find(const eagle3 *e, const char *name, int64_t n_rows, int64_t n_cols,
                          const st_tensor **out, specrt_dtype *dtype) {
    const st_tensor *t = *out = sl_st_find(e->c.m.s, name);
    int n_dims = n_rows ? 2 : 1;
    if (t && t->n_dims == n_dims && t->shape[n_dims - 1] == n_cols &&
        (!n_rows || t->shape[0] == n_rows) && sl_st_dtype(t->dtype, dtype) &&
        sl_model_decodes(*dtype))
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        e->err, SPECRT_STATUS_BAD_INPUT,
        "%s: %s: expected [%" PRId64 ", %" PRId64 "] in f32, f16 or bf16, found %s", e->path, name,
        n_rows ? n_rows : 1, n_cols, t ? "another shape or type" : "none");
}

/* Rows and columns of a matrix, whose other sizes follow from these. */
static specrt_status shape_of(const eagle3 *e, const char *name, int64_t *n_rows, int64_t *n_cols) {
    const st_tensor *t = sl_st_find(e->c.m.s, name);
    if (!t || t->n_dims != 2 || t->shape[0] < 1 || t->shape[1] < 1 ||
        t->shape[0] > SPECRT_MAX_VOCAB || t->shape[1] > SPECRT_MAX_VOCAB)
        return bad(e, name, "expected a matrix");
    *n_rows = t->shape[0];
    *n_cols = t->shape[1];
    return SPECRT_STATUS_OK;
}

/* Without a head of its own the drafter takes the target's, as it does in llama.cpp. */
static specrt_status open_head(eagle3 *e) {
    const st_tensor *t;
    int64_t n_rows, n_cols;
    if (!e->c.head) {
        TRY(sl_model_open(e->target_path, &e->target_model, e->err));
        TRY(sl_model_head(&e->target_model, NULL, &e->head, NULL, e->err));
        if (e->head.n_cols == e->d) return SPECRT_STATUS_OK;
        return bad(e, "lm_head.weight", "missing, and the target's head has another width");
    }
    TRY(shape_of(e, "lm_head.weight", &n_rows, &n_cols));
    TRY(find(e, "lm_head.weight", n_rows, e->d, &t, &e->head.dtype));
    e->head.rows = t->data;
    e->head.n_rows = n_rows;
    e->head.n_cols = n_cols;
    return SPECRT_STATUS_OK;
}

static specrt_status read_sizes(eagle3 *e) {
    char q[64], k[64], gate[64];
    int64_t q_rows, k_rows, in, fused;
    snprintf(q, sizeof q, "%s.self_attn.q_proj.weight", e->prefix);
    snprintf(k, sizeof k, "%s.self_attn.k_proj.weight", e->prefix);
    snprintf(gate, sizeof gate, "%s.mlp.gate_proj.weight", e->prefix);
    TRY(shape_of(e, "fc.weight", &e->d, &fused));
    TRY(shape_of(e, q, &q_rows, &in));
    TRY(shape_of(e, k, &k_rows, &in));
    TRY(shape_of(e, gate, &e->d_ffn, &in));
    TRY(open_head(e));
    e->d_target = count_of(e, "target_hidden_size", "embedding_length");
    e->n_layers = count_of(e, "", "block_count");
    e->n_context = count_of(e, "", "context_length");
    e->n_heads = count_of(e, "num_attention_heads", "attention.head_count");
    e->d_head = e->n_heads > 0 ? q_rows / e->n_heads : 0;
    e->n_kv_heads = e->d_head > 0 ? k_rows / e->d_head : 0;
    e->rms_epsilon = number_of(e, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
    e->rope_base = number_of(e, "rope_theta", "rope.freq_base", 10000);
    if (fused != 3 * e->d_target)
        return bad(e, "fc.weight",
                   "expected three states of the target a row; use the head "
                   "trained for this model");
    if (e->n_layers < 5)
        return bad(e, "target", "expected at least 5 layers, of which EAGLE-3 reads three");
    if (e->n_kv_heads < 1 || e->d_head % 2 || e->d_head * e->n_heads != q_rows ||
        e->d_head * e->n_kv_heads != k_rows || e->n_heads % e->n_kv_heads)
        return bad(e, "num_attention_heads", "does not divide the rows of q_proj and k_proj");
    if (sl_checkpoint_value(&e->c, "rope_scaling"))
        return specrt_error_set(e->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: config.json: rope_scaling: expected none; convert this head "
                                "with llama.cpp's own converter, then cut that",
                                e->path);
    return SPECRT_STATUS_OK;
}

/* Which row a token has. */
static specrt_status read_d2t(eagle3 *e) {
    const gguf_kv *tokens = sl_gguf_find(e->target, "tokenizer.ggml.tokens");
    int32_t *d2t = NULL;
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->count < 1 ||
        tokens->count > SPECRT_MAX_VOCAB)
        return specrt_error_set(e->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: tokenizer.ggml.tokens: expected the target's tokens",
                                e->target_path);
    e->n_vocab = (int64_t)tokens->count;
    TRY(sl_model_d2t(&e->c.m, e->head.n_rows, e->n_vocab, &d2t, e->err));
    specrt_status status =
        sl_token_rows(d2t, e->head.n_rows, e->n_vocab, e->path, &e->rows_of, e->err);
    free(d2t);
    return status;
}

static specrt_status open_files(eagle3 *e) {
    TRY(sl_checkpoint_open(e->path, false, &e->c, e->err));
    e->prefix = sl_checkpoint_eagle3_layer(&e->c.m);
    if (!e->prefix || e->c.kind != CHECKPOINT_EAGLE3)
        return bad(e, "file", "expected an EAGLE-3 head, safetensors");
    TRY(sl_gguf_open(e->target_path, &e->target, e->err));
    TRY(read_sizes(e));
    return read_d2t(e);
}

/* ---- what is written ----------------------------------------------------------------------------- */

static void add_key(eagle3 *e, const char *key, gguf_type type, gguf_type elem, uint64_t count,
                    const void *value, size_t n_bytes) {
    uint8_t *room = e->values[e->n_kvs];
    memcpy(room, value, n_bytes);
    e->kvs[e->n_kvs++] = (gguf_kv){{key, strlen(key)}, type, elem, count, room, n_bytes};
}

static void add_whole(eagle3 *e, const char *key, int64_t value) {
    uint32_t x = (uint32_t)value;
    add_key(e, key, GGUF_U32, GGUF_U32, 1, &x, sizeof x);
}

static void add_real(eagle3 *e, const char *key, double value) {
    float x = (float)value;
    add_key(e, key, GGUF_F32, GGUF_F32, 1, &x, sizeof x);
}

static bool is_tokenizer(const gguf_kv *kv) {
    return kv->key.n > 10 && memcmp(kv->key.s, "tokenizer.", 10) == 0;
}

static specrt_status make_keys(eagle3 *e) {
    static const uint8_t name[14] = {6, 0, 0, 0, 0, 0, 0, 0, 'e', 'a', 'g', 'l', 'e', '3'};
    const int32_t layers[3] = {2, (int32_t)(e->n_layers / 2), (int32_t)e->n_layers - 3};
    int64_t n;
    const gguf_kv *theirs = sl_gguf_kvs(e->target, &n);
    e->kvs = (gguf_kv *)malloc((size_t)(n + MOST_KEYS) * sizeof *e->kvs);
    if (!e->kvs) return sl_error_no_memory(e->err, e->path);
    add_key(e, "general.architecture", GGUF_STRING, GGUF_STRING, 1, name, sizeof name);
    add_whole(e, "eagle3.block_count", 1);
    add_whole(e, "eagle3.context_length", e->n_context);
    add_whole(e, "eagle3.embedding_length", e->d);
    add_whole(e, "eagle3.feed_forward_length", e->d_ffn);
    add_whole(e, "eagle3.attention.head_count", e->n_heads);
    add_whole(e, "eagle3.attention.head_count_kv", e->n_kv_heads);
    add_whole(e, "eagle3.attention.key_length", e->d_head);
    add_whole(e, "eagle3.attention.value_length", e->d_head);
    add_whole(e, "eagle3.rope.dimension_count", e->d_head);
    add_whole(e, "eagle3.vocab_size", e->n_vocab);
    add_whole(e, "eagle3.target_hidden_size", e->d_target);
    add_key(e, "eagle3.target_layers", GGUF_ARRAY, GGUF_I32, 3, layers, sizeof layers);
    add_real(e, "eagle3.attention.layer_norm_rms_epsilon", e->rms_epsilon);
    add_real(e, "eagle3.rope.freq_base", e->rope_base);
    for (int64_t i = 0; i < n; i++)
        if (is_tokenizer(&theirs[i])) e->kvs[e->n_kvs++] = theirs[i];
    return SPECRT_STATUS_OK;
}

/* Places of a tensor in the file; data that was made here is freed with it. */
static void add_tensor(eagle3 *e, const char *name, specrt_dtype dtype, int64_t n_rows,
                       int64_t n_cols, const void *data, void *owned) {
    gguf_tensor *t = &e->tensors[e->n_tensors];
    *t = (gguf_tensor){.n_dims = n_rows ? 2 : 1,
                       .dims = {n_cols, n_rows ? n_rows : 1, 1, 1},
                       .type = dtype,
                       .data = (const uint8_t *)data,
                       .bytes = (n_rows ? (size_t)n_rows : 1) * specrt_row_bytes(dtype, n_cols)};
    snprintf(t->name, sizeof t->name, "%s", name);
    e->owned[e->n_tensors++] = owned;
}

/* Norms are f32 in every GGUF. */
static specrt_status add_vector(eagle3 *e, const char *from, const char *to) {
    const st_tensor *t;
    specrt_dtype dtype;
    TRY(find(e, from, 0, e->d, &t, &dtype));
    float *x = (float *)malloc((size_t)e->d * sizeof *x);
    if (!x) return sl_error_no_memory(e->err, e->path);
    specrt_row_decode(dtype, t->data, e->d, x);
    add_tensor(e, to, SPECRT_DTYPE_F32, 0, e->d, x, x);
    return SPECRT_STATUS_OK;
}

static specrt_status add_matrix(eagle3 *e, const char *from, const char *to, int64_t n_rows,
                                int64_t n_cols) {
    const st_tensor *t;
    specrt_dtype dtype;
    TRY(find(e, from, n_rows, n_cols, &t, &dtype));
    add_tensor(e, to, dtype, n_rows, n_cols, t->data, NULL);
    return SPECRT_STATUS_OK;
}

/* Rows i and i + d_head / 2 of a head turn together (Su et al. 2021); llama.cpp's graph of this architecture
 * wants them side by side. */
static specrt_status add_turned(eagle3 *e, const char *from, const char *to, int64_t n_heads) {
    const st_tensor *t;
    specrt_dtype dtype;
    int64_t half = e->d_head / 2, n_rows = n_heads * e->d_head;
    TRY(find(e, from, n_rows, 2 * e->d, &t, &dtype));
    size_t row_bytes = specrt_row_bytes(dtype, 2 * e->d);
    uint8_t *rows = (uint8_t *)malloc((size_t)n_rows * row_bytes);
    if (!rows) return sl_error_no_memory(e->err, e->path);
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t in_head = i % e->d_head;
        int64_t row = i - in_head + in_head / 2 + in_head % 2 * half;
        memcpy(rows + (size_t)i * row_bytes, t->data + (size_t)row * row_bytes, row_bytes);
    }
    add_tensor(e, to, dtype, n_rows, 2 * e->d, rows, rows);
    return SPECRT_STATUS_OK;
}

/* The listed rows of the LM head, and which tokens they are. */
static specrt_status add_head(eagle3 *e, const int32_t *ids, int32_t n) {
    size_t row_bytes = specrt_row_bytes(e->head.dtype, e->d);
    uint8_t *rows = (uint8_t *)malloc((size_t)n * row_bytes);
    int64_t *d2t = (int64_t *)malloc((size_t)n * sizeof *d2t);
    for (int32_t i = 0; rows && d2t && i < n; i++) {
        memcpy(rows + (size_t)i * row_bytes, sl_head_row(&e->head, e->rows_of[ids[i]]), row_bytes);
        d2t[i] = ids[i];
    }
    add_tensor(e, "output.weight", e->head.dtype, n, e->d, rows, rows);
    add_tensor(e, "d2t", SPECRT_DTYPE_I64, 0, n, d2t, d2t);
    return rows && d2t ? SPECRT_STATUS_OK : sl_error_no_memory(e->err, e->path);
}

static specrt_status make_tensors(eagle3 *e, const int32_t *ids, int32_t n) {
    enum { NAME = 96 };
    char name[NAME];
    int64_t q = e->n_heads * e->d_head, kv = e->n_kv_heads * e->d_head, vocab, width;
#define LAYER(what) (snprintf(name, NAME, "%s.%s.weight", e->prefix, what), name)
    TRY(add_matrix(e, "fc.weight", "fc.weight", e->d, 3 * e->d_target));
    TRY(add_vector(e, LAYER("input_layernorm"), "blk.0.attn_norm.weight"));
    TRY(add_vector(e, LAYER("hidden_norm"), "blk.0.attn_norm_2.weight"));
    TRY(add_turned(e, LAYER("self_attn.q_proj"), "blk.0.attn_q.weight", e->n_heads));
    TRY(add_turned(e, LAYER("self_attn.k_proj"), "blk.0.attn_k.weight", e->n_kv_heads));
    TRY(add_matrix(e, LAYER("self_attn.v_proj"), "blk.0.attn_v.weight", kv, 2 * e->d));
    TRY(add_matrix(e, LAYER("self_attn.o_proj"), "blk.0.attn_output.weight", e->d, q));
    TRY(add_vector(e, LAYER("post_attention_layernorm"), "blk.0.ffn_norm.weight"));
    TRY(add_matrix(e, LAYER("mlp.gate_proj"), "blk.0.ffn_gate.weight", e->d_ffn, e->d));
    TRY(add_matrix(e, LAYER("mlp.up_proj"), "blk.0.ffn_up.weight", e->d_ffn, e->d));
    TRY(add_matrix(e, LAYER("mlp.down_proj"), "blk.0.ffn_down.weight", e->d, e->d_ffn));
#undef LAYER
    TRY(add_vector(e, "norm.weight", "output_norm.weight"));
    /* Without an embedding of its own the head takes the target's. */
    if (sl_st_find(e->c.m.s, "embed_tokens.weight")) {
        TRY(shape_of(e, "embed_tokens.weight", &vocab, &width));
        TRY(add_matrix(e, "embed_tokens.weight", "token_embd.weight", vocab, e->d));
    }
    return add_head(e, ids, n);
}

/* The tokens that the head has a row for, in their order. */
static specrt_status keep_ids(const eagle3 *e, int32_t *ids, int32_t *n) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < *n; i++)
        if (ids[i] >= 0 && ids[i] < e->n_vocab && e->rows_of[ids[i]] >= 0) ids[n_kept++] = ids[i];
    *n = n_kept;
    return n_kept ? SPECRT_STATUS_OK : bad(e, "d2t", "has a row for no token of the list");
}

static specrt_status write_file(const eagle3 *e, const char *path, bool force) {
    out_file out;
    TRY(sl_out_open(&out, path, force, e->err));
    specrt_status status = sl_gguf_write(e->kvs, e->n_kvs, e->tensors, e->n_tensors, &out, e->err);
    if (status == SPECRT_STATUS_OK) return sl_out_commit(&out, e->err);
    sl_out_abort(&out);
    return status;
}

specrt_status sl_eagle3_gguf_write(const char *head, const char *target, int32_t *ids, int32_t *n,
                                   const char *path, bool force, specrt_error *err) {
    eagle3 e = {.path = head, .target_path = target, .err = err};
    specrt_status status = open_files(&e);
    if (status == SPECRT_STATUS_OK) status = keep_ids(&e, ids, n);
    if (status == SPECRT_STATUS_OK) status = make_keys(&e);
    if (status == SPECRT_STATUS_OK) status = make_tensors(&e, ids, *n);
    if (status == SPECRT_STATUS_OK) status = write_file(&e, path, force);
    for (int i = 0; i < e.n_tensors; i++) free(e.owned[i]);
    free(e.kvs);
    free(e.rows_of);
    sl_gguf_close(e.target);
    if (e.target_model.path) sl_model_close(&e.target_model);
    sl_checkpoint_close(&e.c);
    return status;
}
