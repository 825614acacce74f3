/* llama_mtp_model.c : a small model with MTP layers ("NextN"), its weights drawn: two layers and a tail, of a
 * width of 64, with the tokens of another file. The tail has the embedding's say, so that its drafts are
 * often what the model says next, and not always.
 *
 *     llama_mtp_model ARCHITECTURE[,own][,tail][,none][,two] IN.gguf OUT.gguf
 *         own: the tail has a head of its own; tail: nothing but the tail; none: no tail;
 *         two: a second MTP layer */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "drawn.h"
#include "ggml.h"
#include "gguf.h"

enum {
    D = 64,
    WIDE = 96,
    HEAD = 32,
    HEADS = 2,
    WIDTH = HEADS * HEAD,
    FF = 96,
    EXPERTS = 4,
    FF_EXPERT = 48
};
enum { STATE = 32, GROUPS = 2, RANK = 4, INNER = RANK * STATE, CONV = 2 * GROUPS * STATE + INNER };

/* Architectures and layers, as bits. Where a model is partly recurrent its first layer is; else it is dense,
 * and the others have experts. */
enum {
    QWEN35 = 1,
    QWEN35MOE = 2,
    QWEN3NEXT = 4,
    GLM4MOE = 8,
    STEP35 = 16,
    GEMMA4 = 32,
    ASSISTANT = 64
};
enum { HYBRID = QWEN35 | QWEN35MOE | QWEN3NEXT, SIMPLE = GLM4MOE | STEP35, ANY = HYBRID | SIMPLE };
enum { GEMMAS = GEMMA4 | ASSISTANT, ATTENTION = SIMPLE | GEMMA4, EXPERT = ANY - QWEN35 };
enum { FIRST = 1, SECOND = 2, TAIL = 4, ALL = 7, LATER = SECOND | TAIL };

static const struct {
    const char *name;
    int architecture;
} architectures[] = {{"qwen35", QWEN35},
                     {"qwen35moe", QWEN35MOE},
                     {"qwen3next", QWEN3NEXT},
                     {"glm4moe", GLM4MOE},
                     {"step35", STEP35},
                     {"gemma4", GEMMA4},
                     {"gemma4-assistant", ASSISTANT}};

static const struct {
    const char *name;
    int architectures, layers;
    int64_t shape[3]; /* of one number: a norm, near 1 */
    double scale;     /* of a norm: what it is near, 0: 1 */
} weights[] = {{"attn_norm.weight", ANY | GEMMA4, ALL, {D}, 0},
               {"post_attention_norm.weight", HYBRID | GLM4MOE | GEMMA4, ALL, {D}, 0},
               {"ffn_norm.weight", STEP35 | GEMMA4, ALL, {D}, 0},
               {"attn_q.weight", HYBRID, LATER, {D, 2 * WIDTH}, 2},
               {"attn_k.weight", HYBRID, LATER, {D, HEAD}, 2},
               {"attn_v.weight", HYBRID, LATER, {D, HEAD}, 2},
               {"attn_output.weight", HYBRID, LATER, {WIDTH, D}, 1},
               {"attn_q_norm.weight", HYBRID, LATER, {HEAD}, 0},
               {"attn_k_norm.weight", HYBRID, LATER, {HEAD}, 0},
               {"attn_q.weight", ATTENTION, ALL, {D, WIDTH}, 2},
               {"attn_k.weight", ATTENTION, ALL, {D, HEAD}, 2},
               {"attn_v.weight", ATTENTION, ALL, {D, HEAD}, 2},
               {"attn_output.weight", ATTENTION, ALL, {WIDTH, D}, 1},
               {"attn_q_norm.weight", ATTENTION, ALL, {HEAD}, 0},
               {"attn_k_norm.weight", ATTENTION, ALL, {HEAD}, 0},
               {"attn_gate.weight", STEP35, ALL, {D, HEADS}, 2},
               {"attn_qkv.weight", HYBRID, FIRST, {D, CONV}, 2},
               {"attn_gate.weight", HYBRID, FIRST, {D, INNER}, 2},
               {"ssm_conv1d.weight", HYBRID, FIRST, {4, CONV}, 2},
               {"ssm_dt.bias", HYBRID, FIRST, {RANK}, 0.5},
               {"ssm_a", HYBRID, FIRST, {RANK}, -0.5},
               {"ssm_beta.weight", QWEN35 | QWEN35MOE, FIRST, {D, RANK}, 2},
               {"ssm_alpha.weight", QWEN35 | QWEN35MOE, FIRST, {D, RANK}, 2},
               {"ssm_ba.weight", QWEN3NEXT, FIRST, {D, 2 * RANK}, 2},
               {"ssm_norm.weight", HYBRID, FIRST, {STATE}, 0},
               {"ssm_out.weight", HYBRID, FIRST, {INNER, D}, 1},
               {"ffn_gate.weight", QWEN35 | GEMMA4, ALL, {D, FF}, 2},
               {"ffn_up.weight", QWEN35 | GEMMA4, ALL, {D, FF}, 2},
               {"ffn_down.weight", QWEN35 | GEMMA4, ALL, {FF, D}, 1},
               {"ffn_gate.weight", SIMPLE, FIRST, {D, FF}, 2},
               {"ffn_up.weight", SIMPLE, FIRST, {D, FF}, 2},
               {"ffn_down.weight", SIMPLE, FIRST, {FF, D}, 1},
               {"ffn_gate_inp.weight", QWEN35MOE | QWEN3NEXT, ALL, {D, EXPERTS}, 2},
               {"ffn_gate_exps.weight", QWEN35MOE | QWEN3NEXT, ALL, {D, FF_EXPERT, EXPERTS}, 2},
               {"ffn_up_exps.weight", QWEN35MOE | QWEN3NEXT, ALL, {D, FF_EXPERT, EXPERTS}, 2},
               {"ffn_down_exps.weight", QWEN35MOE | QWEN3NEXT, ALL, {FF_EXPERT, D, EXPERTS}, 1},
               {"ffn_gate_inp_shexp.weight", QWEN35MOE | QWEN3NEXT, ALL, {D}, 0.1},
               {"ffn_gate_shexp.weight", QWEN35MOE | QWEN3NEXT, ALL, {D, FF_EXPERT}, 2},
               {"ffn_up_shexp.weight", QWEN35MOE | QWEN3NEXT, ALL, {D, FF_EXPERT}, 2},
               {"ffn_down_shexp.weight", QWEN35MOE | QWEN3NEXT, ALL, {FF_EXPERT, D}, 1},
               {"ffn_gate_inp.weight", SIMPLE, LATER, {D, EXPERTS}, 2},
               {"exp_probs_b.bias", SIMPLE, LATER, {EXPERTS}, 0.1},
               {"ffn_gate_exps.weight", SIMPLE, LATER, {D, FF_EXPERT, EXPERTS}, 2},
               {"ffn_up_exps.weight", SIMPLE, LATER, {D, FF_EXPERT, EXPERTS}, 2},
               {"ffn_down_exps.weight", SIMPLE, LATER, {FF_EXPERT, D, EXPERTS}, 1},
               {"ffn_gate_shexp.weight", SIMPLE, LATER, {D, FF_EXPERT}, 2},
               {"ffn_up_shexp.weight", SIMPLE, LATER, {D, FF_EXPERT}, 2},
               {"ffn_down_shexp.weight", SIMPLE, LATER, {FF_EXPERT, D}, 1},
               {"post_ffw_norm.weight", GEMMA4, ALL, {D}, 0},
               {"layer_output_scale.weight", GEMMAS, ALL, {1}, 0},
               {"attn_norm.weight", ASSISTANT, ALL, {WIDE}, 0},
               {"attn_q.weight", ASSISTANT, ALL, {WIDE, WIDTH}, 2},
               {"attn_output.weight", ASSISTANT, ALL, {WIDTH, WIDE}, 1},
               {"attn_q_norm.weight", ASSISTANT, ALL, {HEAD}, 0},
               {"post_attention_norm.weight", ASSISTANT, ALL, {WIDE}, 0},
               {"ffn_norm.weight", ASSISTANT, ALL, {WIDE}, 0},
               {"ffn_gate.weight", ASSISTANT, ALL, {WIDE, FF}, 2},
               {"ffn_up.weight", ASSISTANT, ALL, {WIDE, FF}, 2},
               {"ffn_down.weight", ASSISTANT, ALL, {FF, WIDE}, 1},
               {"post_ffw_norm.weight", ASSISTANT, ALL, {WIDE}, 0},
               {"nextn.eh_proj.weight", ANY, TAIL, {2 * D, D}, 0.5},
               {"nextn.enorm.weight", ANY, TAIL, {D}, 0},
               {"nextn.hnorm.weight", ANY, TAIL, {D}, 0},
               {"nextn.shared_head_norm.weight", ANY, TAIL, {D}, 0}};

static const struct {
    const char *key;
    int architectures;
    uint32_t value;
} keys[] = {{"context_length", ANY | GEMMAS, 2048},
            {"embedding_length", ANY | GEMMA4, D},
            {"embedding_length", ASSISTANT, WIDE},
            {"embedding_length_out", ASSISTANT, D},
            {"embedding_length_per_layer_input", GEMMA4, 0},
            {"attention.key_length_swa", GEMMAS, HEAD},
            {"attention.value_length_swa", GEMMAS, HEAD},
            {"attention.shared_kv_layers", GEMMAS, 0},
            {"feed_forward_length", ANY | GEMMAS, FF},
            {"attention.head_count", ANY | GEMMAS, HEADS},
            {"attention.head_count_kv", ANY | GEMMAS, 1},
            {"attention.key_length", ANY | GEMMAS, HEAD},
            {"attention.value_length", ANY | GEMMAS, HEAD},
            {"rope.dimension_count", ANY | GEMMAS, HEAD},
            {"full_attention_interval", HYBRID, 2},
            {"ssm.conv_kernel", HYBRID, 4},
            {"ssm.state_size", HYBRID, STATE},
            {"ssm.group_count", HYBRID, GROUPS},
            {"ssm.time_step_rank", HYBRID, RANK},
            {"ssm.inner_size", HYBRID, INNER},
            {"expert_count", EXPERT, EXPERTS},
            {"expert_used_count", EXPERT, 2},
            {"expert_feed_forward_length", EXPERT, FF_EXPERT},
            {"expert_shared_feed_forward_length", EXPERT, FF_EXPERT},
            {"expert_shared_count", GLM4MOE, 1},
            {"leading_dense_block_count", SIMPLE, 1},
            {"attention.sliding_window", STEP35 | GEMMAS, 32}};

/* What a file is to hold. */
typedef struct plan {
    const char *name;
    int architecture;
    bool own, tail, none, two;
    struct gguf_context *gguf;
    struct ggml_context *data;
} plan;

static uint64_t seed_of(const char *name) {
    uint64_t state = 88172645463325252u;
    for (const char *c = name; *c; c++) state = state * 31 + (uint64_t)*c;
    return state;
}

/* Weights of scale / sqrt(columns) times what is drawn for the name. */
static float *add(plan *p, const char *name, const int64_t shape[3], double scale) {
    uint64_t state = seed_of(name);
    int n_dims = shape[2] ? 3 : shape[1] ? 2 : 1;
    struct ggml_tensor *t = ggml_new_tensor(p->data, GGML_TYPE_F32, n_dims, shape);
    float *x = (float *)t->data;
    double near = scale != 0 ? scale : 1;
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        x[i] = (float)(n_dims > 1 ? scale * drawn(&state) / sqrt((double)shape[0])
                                  : near * (1 + 0.1 * drawn(&state)));
    ggml_set_name(t, name);
    gguf_add_tensor(p->gguf, t);
    return x;
}

static void add_layer(plan *p, int i, int layer) {
    char name[96];
    for (size_t k = 0; k < sizeof weights / sizeof *weights; k++) {
        if (!(weights[k].architectures & p->architecture) || !(weights[k].layers & layer)) continue;
        snprintf(name, sizeof name, "blk.%d.%s", i, weights[k].name);
        float *x = add(p, name, weights[k].shape, weights[k].scale);
        /* The embedding comes first, the state behind it. */
        bool projects = strcmp(weights[k].name, "nextn.eh_proj.weight") == 0;
        for (int64_t d = 0; projects && d < D; d++) x[d * 2 * D + d] += 3;
    }
}

static void add_weights(plan *p, int64_t n_vocab) {
    const int64_t head[3] = {D, n_vocab}, norm[3] = {D};
    add(p, "token_embd.weight", head, 32);
    const float *output = add(p, "output.weight", head, 3);
    add(p, "output_norm.weight", norm, 0);
    if (!p->tail) add_layer(p, 0, FIRST);
    if (!p->tail) add_layer(p, 1, SECOND);
    if (!p->none && p->architecture != GEMMA4) add_layer(p, 2, TAIL);
    if (p->two) add_layer(p, 3, TAIL);
    float *own = p->own ? add(p, "blk.2.nextn.shared_head_head.weight", head, 0.3) : NULL;
    for (int64_t i = 0; own && i < D * n_vocab; i++) own[i] += output[i];
}

/* Gemma 4's drafter has the target's output rows and its embedding in the first columns, and noise behind. */
static void add_assistant(plan *p, int64_t n_vocab) {
    const int64_t head[3] = {WIDE, n_vocab}, norm[3] = {WIDE};
    const int64_t before[3] = {2 * D, WIDE}, after[3] = {WIDE, D};
    uint64_t state = seed_of("output.weight");
    float *rows = add(p, "token_embd.weight", head, 0.3);
    for (int64_t i = 0; i < n_vocab * D; i++)
        rows[i / D * WIDE + i % D] = (float)(3 * drawn(&state) / sqrt(D));
    add(p, "output_norm.weight", norm, 0);
    float *x = add(p, "nextn.pre_projection.weight", before, 0.5);
    for (int64_t d = 0; d < D; d++) x[d * 2 * D + d] += 3;
    add(p, "nextn.post_projection.weight", after, 2);
    add_layer(p, 0, FIRST);
    add_layer(p, 1, SECOND);
}

static void add_keys(plan *p) {
    char name[96];
    const int32_t sections[4] = {4, 4, 8, 0};
    const bool later =
        !(p->architecture & GEMMAS); /* windows: of Gemma 4's first layer, else of later */
    const bool pattern[4] = {!later, later, later, later};
    int n_mtp = p->none || p->architecture & GEMMAS ? 0 : p->two ? 2 : 1;
    gguf_set_val_str(p->gguf, "general.architecture", p->name);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!(keys[k].architectures & p->architecture)) continue;
        snprintf(name, sizeof name, "%s.%s", p->name, keys[k].key);
        gguf_set_val_u32(p->gguf, name, keys[k].value);
    }
    snprintf(name, sizeof name, "%s.block_count", p->name);
    gguf_set_val_u32(p->gguf, name, 2 + (uint32_t)n_mtp);
    snprintf(name, sizeof name, "%s.nextn_predict_layers", p->name);
    if (n_mtp) gguf_set_val_u32(p->gguf, name, (uint32_t)n_mtp);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", p->name);
    gguf_set_val_f32(p->gguf, name, 1e-5f);
    snprintf(name, sizeof name, "%s.rope.dimension_sections", p->name);
    if (p->architecture & (QWEN35 | QWEN35MOE))
        gguf_set_arr_data(p->gguf, name, GGUF_TYPE_INT32, sections, 4);
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", p->name);
    if (p->architecture & (STEP35 | GEMMAS))
        gguf_set_arr_data(p->gguf, name, GGUF_TYPE_BOOL, pattern, 2 + (size_t)n_mtp);
    if (p->architecture == ASSISTANT)
        gguf_set_val_u32(p->gguf, "gemma4-assistant.nextn_predict_layers", 2);
}

static bool read_plan(char *text, plan *p) {
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        for (size_t k = 0; k < sizeof architectures / sizeof *architectures; k++)
            if (strcmp(word, architectures[k].name) == 0) {
                p->name = architectures[k].name;
                p->architecture = architectures[k].architecture;
            }
        p->own |= strcmp(word, "own") == 0;
        p->tail |= strcmp(word, "tail") == 0;
        p->none |= strcmp(word, "none") == 0;
        p->two |= strcmp(word, "two") == 0;
    }
    return p->name != NULL;
}

int main(int argc, char **argv) {
    plan p = {.gguf = gguf_init_empty()};
    if (argc != 4 || !read_plan(argv[1], &p))
        return fprintf(stderr, "llama_mtp_model: expected ARCHITECTURE IN OUT\n"), 2;
    struct gguf_init_params how = {.no_alloc = true};
    struct gguf_context *from = gguf_init_from_file(argv[2], how);
    struct ggml_init_params memory = {.mem_size = (size_t)64 << 20};
    p.data = ggml_init(memory);
    if (!from || !p.data) return 1;
    gguf_set_kv(p.gguf, from);
    add_keys(&p);
    int64_t n_vocab = (int64_t)gguf_get_arr_n(from, gguf_find_key(from, "tokenizer.ggml.tokens"));
    if (p.architecture & GEMMAS) add(&p, "rope_freqs.weight", (const int64_t[3]){HEAD / 2}, 0);
    if (p.architecture == ASSISTANT)
        add_assistant(&p, n_vocab);
    else
        add_weights(&p, n_vocab);
    bool written = gguf_write_to_file(p.gguf, argv[3], false);
    gguf_free(p.gguf), gguf_free(from), ggml_free(p.data);
    return !written;
}
