/* block_gguf.c : a DSpark drafter's folder as the GGUF that llama.cpp reads.
 *     block_gguf TARGET.gguf FOLDER OUT.gguf [CHANGE]
 *         the tokenizer is the target's. The sample's drafter has no embedding and no head: llama.cpp takes
 *         the target's. CHANGE: no-mask, no-size, layers=N (the last tap), late (not from the anchor), hyper,
 *         scale (a scale of the Markov head), gated (a tensor that llama.cpp does not know) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/block_drafter.h"
#include "specrt_tools.h"

enum { MOST_TENSORS = 128, MOST_KEYS = 128, MOST_WORDS = 64 };

static const struct {
    const char *ours, *theirs; /* %d: a layer */
} names[] = {
    {"blk.%d.attn_norm.weight", "layers.%d.input_layernorm.weight"},
    {"blk.%d.attn_q.weight", "layers.%d.self_attn.q_proj.weight"},
    {"blk.%d.attn_k.weight", "layers.%d.self_attn.k_proj.weight"},
    {"blk.%d.attn_v.weight", "layers.%d.self_attn.v_proj.weight"},
    {"blk.%d.attn_output.weight", "layers.%d.self_attn.o_proj.weight"},
    {"blk.%d.attn_q_norm.weight", "layers.%d.self_attn.q_norm.weight"},
    {"blk.%d.attn_k_norm.weight", "layers.%d.self_attn.k_norm.weight"},
    {"blk.%d.ffn_norm.weight", "layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.ffn_gate.weight", "layers.%d.mlp.gate_proj.weight"},
    {"blk.%d.ffn_up.weight", "layers.%d.mlp.up_proj.weight"},
    {"blk.%d.ffn_down.weight", "layers.%d.mlp.down_proj.weight"},
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "hidden_norm.weight"},
    {"output_norm.weight", "norm.weight"},
    {"markov_w1.weight", "markov_head.markov_w1.weight"},
    {"markov_w2.weight", "markov_head.markov_w2.weight"},
    {"conf_proj.weight", "confidence_head.proj.weight"},
    {"conf_proj.bias", "confidence_head.proj.bias"},
};
enum { N_NAMES = sizeof names / sizeof names[0], N_OF_LAYERS = 11 };

typedef struct made {
    gguf_tensor tensors[MOST_TENSORS];
    gguf_kv kvs[MOST_KEYS];
    int32_t words[MOST_WORDS]; /* values of kvs */
    int n_tensors, n_kvs, n_words;
} made;

static void fail(const char *what) {
    fprintf(stderr, "block_gguf: %s\n", what);
    exit(1);
}

static void add_key(made *m, const char *key, uint32_t type, uint32_t elem, const int32_t *values,
                    int n) {
    int32_t *at = m->words + m->n_words;
    if (m->n_words + n > MOST_WORDS || m->n_kvs == MOST_KEYS) fail("too many keys");
    memcpy(at, values, (size_t)n * sizeof *at);
    m->n_words += n;
    m->kvs[m->n_kvs++] = (gguf_kv){{key, strlen(key)},
                                   type,
                                   elem,
                                   (uint64_t)n,
                                   (const uint8_t *)at,
                                   elem == GGUF_BOOL ? 1 : 4 * (size_t)n};
}

static void add_number(made *m, const char *key, int64_t value) {
    add_key(m, key, GGUF_U32, GGUF_U32, &(int32_t){(int32_t)value}, 1);
}

/* Vectors as f32, which llama.cpp's products by element want. */
static void add_tensor(made *m, const char *name, const st_tensor *t) {
    specrt_dtype dtype;
    if (!t || !sl_st_dtype(t->dtype, &dtype) || m->n_tensors == MOST_TENSORS) fail(name);
    gguf_tensor *to = &m->tensors[m->n_tensors++];
    int64_t n = t->shape[t->n_dims - 1];
    *to = (gguf_tensor){.n_dims = t->n_dims,
                        .dims = {n, t->n_dims > 1 ? t->shape[0] : 1, 1, 1},
                        .type = dtype,
                        .data = t->data,
                        .bytes = t->bytes};
    snprintf(to->name, sizeof to->name, "%s", name);
    if (t->n_dims > 1) return;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) fail("no memory");
    specrt_row_decode(dtype, t->data, n, values);
    to->type = SPECRT_DTYPE_F32;
    to->data = (const uint8_t *)values;
    to->bytes = (size_t)n * sizeof *values;
}

static void add_tensors(made *m, const st *file, int64_t n_layers) {
    char ours[64], theirs[96];
    for (int i = 0; i < N_NAMES; i++)
        for (int layer = 0; layer < (i < N_OF_LAYERS ? (int)n_layers : 1); layer++) {
            snprintf(ours, sizeof ours, names[i].ours, layer);
            snprintf(theirs, sizeof theirs, names[i].theirs, layer);
            add_tensor(m, ours, sl_st_find(file, theirs));
        }
}

static int64_t number(json_object *config, const char *key) {
    return json_object_get_int64(sl_json_get(config, key));
}

static void add_keys(made *m, json_object *config, const block_drafter *b) {
    static const char *const keys[][2] = {{"dflash.block_count", "num_hidden_layers"},
                                          {"dflash.embedding_length", "hidden_size"},
                                          {"dflash.feed_forward_length", "intermediate_size"},
                                          {"dflash.attention.head_count", "num_attention_heads"},
                                          {"dflash.attention.head_count_kv", "num_key_value_heads"},
                                          {"dflash.attention.key_length", "head_dim"},
                                          {"dflash.attention.value_length", "head_dim"},
                                          {"dflash.rope.dimension_count", "head_dim"}};
    const float base = (float)json_object_get_double(sl_json_get(config, "rope_theta")),
                eps = (float)json_object_get_double(sl_json_get(config, "rms_norm_eps"));
    int32_t bits, taps[BLOCK_DRAFTER_TAPS];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_number(m, keys[i][0], number(config, keys[i][1]));
    add_number(m, "dflash.context_length", 2048);
    memcpy(&bits, &base, sizeof bits);
    add_key(m, "dflash.rope.freq_base", GGUF_F32, GGUF_F32, &bits, 1);
    memcpy(&bits, &eps, sizeof bits);
    add_key(m, "dflash.attention.layer_norm_rms_epsilon", GGUF_F32, GGUF_F32, &bits, 1);
    for (int64_t i = 0; i < b->n_taps; i++) taps[i] = (int32_t)b->taps[i] + 1;
    add_key(m, "dflash.target_layers", GGUF_ARRAY, GGUF_I32, taps, (int)b->n_taps);
    if (b->size) add_number(m, "dflash.block_size", b->size);
    if (b->mask) add_number(m, "tokenizer.ggml.mask_token_id", b->mask);
}

static void change(made *m, const char *how, block_drafter *b) {
    static const char scale[] = "markov_w2.scale", gate[] = "markov_gate.weight";
    if (strcmp(how, "no-mask") == 0) b->mask = 0;
    if (strcmp(how, "no-size") == 0) b->size = 0;
    if (strncmp(how, "layers=", 7) == 0) b->taps[b->n_taps - 1] = atoi(how + 7) - 1;
    if (strcmp(how, "hyper") == 0) add_number(m, "dflash.hyper_connection.count", 4);
    if (strcmp(how, "late") == 0)
        add_key(m, "dflash.sample_from_anchor", GGUF_BOOL, GGUF_BOOL, &(int32_t){0}, 1);
    bool scaled = strcmp(how, "scale") == 0;
    if (!scaled && strcmp(how, "gated") != 0) return;
    static const float one = 1;
    gguf_tensor *t = &m->tensors[m->n_tensors++];
    *t = (gguf_tensor){.n_dims = 1,
                       .dims = {1, 1, 1, 1},
                       .type = SPECRT_DTYPE_F32,
                       .data = (const uint8_t *)&one,
                       .bytes = sizeof one};
    snprintf(t->name, sizeof t->name, "%s", scaled ? scale : gate);
}

/* The tokenizer's keys, and what a file is called. */
static void copy_keys(made *m, const gguf *target) {
    int64_t n;
    const gguf_kv *theirs = sl_gguf_kvs(target, &n);
    m->kvs[m->n_kvs++] = (gguf_kv){{"general.architecture", 20},
                                   GGUF_STRING,
                                   GGUF_STRING,
                                   1,
                                   (const uint8_t *)"\6\0\0\0\0\0\0\0dflash",
                                   14};
    for (int64_t i = 0; i < n; i++)
        if (strncmp(theirs[i].key.s, "tokenizer.", 10) == 0 && m->n_kvs < MOST_KEYS)
            m->kvs[m->n_kvs++] = theirs[i];
}

int main(int argc, char **argv) {
    static made m;
    char path[4096];
    gguf *target;
    model file;
    block_drafter b;
    out_file out;
    specrt_error err;
    if (argc < 4 || argc > 5) fail("expected TARGET.gguf FOLDER OUT.gguf [CHANGE]");
    snprintf(path, sizeof path, "%s/model.safetensors", argv[2]);
    if (sl_gguf_open(argv[1], &target, &err) || sl_model_open(argv[2], &file, &err)) fail(err.msg);
    if (!file.config) fail("expected a config.json");
    sl_block_drafter_st(file.s, file.config, &b);
    copy_keys(&m, target);
    add_tensors(&m, file.s, number(file.config, "num_hidden_layers"));
    if (argc == 5) change(&m, argv[4], &b);
    add_keys(&m, file.config, &b);
    if (sl_out_open(&out, argv[3], true, &err) ||
        sl_gguf_write(m.kvs, m.n_kvs, m.tensors, m.n_tensors, &out, &err) ||
        sl_out_commit(&out, &err))
        fail(err.msg);
    for (int i = 0; i < m.n_tensors; i++)
        if (m.tensors[i].n_dims == 1 && strcmp(m.tensors[i].name, "markov_w2.scale") != 0 &&
            strcmp(m.tensors[i].name, "markov_gate.weight") != 0)
            free((void *)(uintptr_t)m.tensors[i].data);
    sl_model_close(&file);
    sl_gguf_close(target);
    return 0;
}
