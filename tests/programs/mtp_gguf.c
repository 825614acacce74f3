/* mtp_gguf.c : an MTP module as GGUF files carry it.
 *     mtp_gguf TARGET.gguf MODULE.safetensors OUT.gguf whole|alone
 *         the target with the module behind its layers, or the module with the target's metadata alone
 * The target is of GGUF's llama architecture, whose rows of queries and keys turn in adjacent pairs; the
 * module's, as Hugging Face has them, half a head apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats/gguf.h"
#include "formats/safetensors.h"

enum { MOST_TENSORS = 512, MOST_KEYS = 128 };

static const struct {
    const char *ours, *theirs;
    const char *n_heads; /* whose rows turn */
} names[] = {
    {"attn_norm", "layers.0.input_layernorm", NULL},
    {"attn_q", "layers.0.self_attn.q_proj", "llama.attention.head_count"},
    {"attn_k", "layers.0.self_attn.k_proj", "llama.attention.head_count_kv"},
    {"attn_v", "layers.0.self_attn.v_proj", NULL},
    {"attn_output", "layers.0.self_attn.o_proj", NULL},
    {"ffn_norm", "layers.0.post_attention_layernorm", NULL},
    {"ffn_gate", "layers.0.mlp.gate_proj", NULL},
    {"ffn_up", "layers.0.mlp.up_proj", NULL},
    {"ffn_down", "layers.0.mlp.down_proj", NULL},
    {"nextn.eh_proj", "fc", NULL},
    {"nextn.enorm", "pre_fc_norm_embedding", NULL},
    {"nextn.hnorm", "pre_fc_norm_hidden", NULL},
    {"nextn.shared_head_norm", "norm", NULL},
};
enum { N_NAMES = sizeof names / sizeof names[0] };

static void fail(const char *what) {
    fprintf(stderr, "mtp_gguf: %s\n", what);
    exit(1);
}

/* Rows of heads, half apart to side by side. */
static const uint8_t *turned(const st_tensor *t, int64_t n_heads) {
    int64_t n_rows = t->shape[0], d_head = n_rows / n_heads;
    size_t row = t->bytes / (size_t)n_rows;
    uint8_t *out = malloc(t->bytes);
    for (int64_t i = 0; out && i < n_rows; i++) {
        int64_t in_head = i % d_head, from = i - in_head + in_head / 2 + in_head % 2 * (d_head / 2);
        memcpy(out + (size_t)i * row, t->data + (size_t)from * row, row);
    }
    if (!out) fail("no memory");
    return out;
}

static gguf_tensor converted(const gguf *target, const st *module, int i, int64_t layer) {
    char name[96];
    specrt_dtype dtype;
    int64_t n_heads = 0;
    snprintf(name, sizeof name, "mtp.%s.weight", names[i].theirs);
    const st_tensor *t = sl_st_find(module, name);
    if (!t || !sl_st_dtype(t->dtype, &dtype)) fail(name);
    gguf_tensor made = {.n_dims = t->n_dims,
                        .dims = {t->shape[t->n_dims - 1], t->n_dims > 1 ? t->shape[0] : 1, 1, 1},
                        .type = dtype,
                        .data = t->data,
                        .bytes = t->bytes};
    if (names[i].n_heads && !sl_gguf_get_int(target, names[i].n_heads, &n_heads))
        fail(names[i].n_heads);
    if (n_heads) made.data = turned(t, n_heads);
    snprintf(made.name, sizeof made.name, "blk.%d.%s.weight", (int)layer, names[i].ours);
    return made;
}

int main(int argc, char **argv) {
    static const uint32_t one = 1;
    static gguf_tensor tensors[MOST_TENSORS];
    static gguf_kv kvs[MOST_KEYS];
    gguf *target;
    st *module;
    out_file out;
    specrt_error err;
    int64_t n_layers, n_kvs, n = 0;
    if (argc != 5) fail("expected TARGET.gguf MODULE.safetensors OUT.gguf whole|alone");
    if (sl_gguf_open(argv[1], &target, &err) || sl_st_open(argv[2], &module, &err)) fail(err.msg);
    if (!sl_gguf_get_int(target, "llama.block_count", &n_layers)) fail("llama.block_count");
    const gguf_kv *theirs = sl_gguf_kvs(target, &n_kvs);
    if (n_kvs >= MOST_KEYS) fail("too many keys");
    memcpy(kvs, theirs, (size_t)n_kvs * sizeof *kvs);
    uint32_t n_all = (uint32_t)n_layers + 1;
    for (int64_t i = 0; i < n_kvs; i++)
        if (kvs[i].key.n == 17 && memcmp(kvs[i].key.s, "llama.block_count", 17) == 0)
            kvs[i].value = (const uint8_t *)&n_all;
    kvs[n_kvs++] = (gguf_kv){
        {"llama.nextn_predict_layers", 26}, GGUF_U32, GGUF_U32, 1, (const uint8_t *)&one, 4};
    const gguf_tensor *all = sl_gguf_tensors(target, &n);
    if (strcmp(argv[4], "whole") != 0) n = 0;
    if (n + N_NAMES > MOST_TENSORS) fail("too many tensors");
    memcpy(tensors, all, (size_t)n * sizeof *tensors);
    for (int i = 0; i < N_NAMES; i++) tensors[n++] = converted(target, module, i, n_layers);
    if (sl_out_open(&out, argv[3], true, &err) ||
        sl_gguf_write(kvs, (int)n_kvs, tensors, (int)n, &out, &err) || sl_out_commit(&out, &err))
        fail(err.msg);
    for (int i = 0; i < N_NAMES; i++)
        if (names[i].n_heads) free((void *)tensors[n - N_NAMES + i].data);
    sl_gguf_close(target);
    sl_st_close(module);
    return 0;
}
