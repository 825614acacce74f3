/* llama_convert.c : a GGUF in another type of weights, by llama.cpp's own function, and a file with a key
 * changed, to be refused.
 *
 *     llama_convert f32|f16|bf16|q8_0|q4_0 IN.gguf OUT.gguf
 *     llama_convert KEY=VALUE IN.gguf OUT.gguf     KEY of "<architecture>.<key>", an f32; or
 *     llama_convert causal=false IN.gguf OUT.gguf
 *     llama_convert tokens=reversed IN.gguf OUT.gguf
 *     llama_convert cut=N IN.gguf OUT.gguf         without its last N tokens, and their rows
 *     llama_convert template=llama3 IN.gguf OUT.gguf
 *     llama_convert mamba IN.gguf OUT.gguf         recurrent: one layer of zeros, with IN's tokens
 *     llama_convert granite=SCALE IN.gguf OUT.gguf a llama as a Granite, which divides its logits
 *     llama_convert tiny=NOISE[,CAP] IN.gguf OUT.gguf
 *                                                  a llama of one layer and 24 of IN's tokens, its weights
 *                                                  drawn, so much noise added: a target (0), its drafters;
 *                                                  with a cap of its logits a Gemma 3 */
#include "drawn.h"
#include "ggml.h"
#include "gguf.h"
#include "inside.h"

static int requantise(enum llama_ftype type, const char *in, const char *out) {
    llama_model_quantize_params p = llama_model_quantize_default_params();
    p.ftype = type;
    p.allow_requantize = true;
    p.nthread = 1;
    p.pure = true;
    return (int)llama_model_quantize(in, out, &p);
}

static size_t count_tokens(const struct gguf_context *gguf) {
    return gguf_get_arr_n(gguf, gguf_find_key(gguf, "tokenizer.ggml.tokens"));
}

/* The first n, or all of them from the last on. */
static void set_tokens(struct gguf_context *gguf, size_t n, bool reversed) {
    int64_t key = gguf_find_key(gguf, "tokenizer.ggml.tokens");
    const char **tokens = (const char **)malloc(n * sizeof *tokens);
    if (!tokens) return;
    for (size_t i = 0; i < n; i++)
        tokens[i] = strdup(gguf_get_arr_str(gguf, key, reversed ? n - 1 - i : i));
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, n);
    for (size_t i = 0; i < n; i++) free((void *)(size_t)tokens[i]);
    free((void *)tokens);
}

static void cut_tokens(struct gguf_context *gguf, size_t n) {
    int64_t key = gguf_find_key(gguf, "tokenizer.ggml.token_type");
    int32_t *types = (int32_t *)malloc(n * sizeof *types);
    if (!types) return;
    memcpy(types, gguf_get_arr_data(gguf, key), n * sizeof *types);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, n);
    set_tokens(gguf, n, false);
    free(types);
}

/* A tensor without its last rows, if it has one for each token. */
static struct ggml_tensor without_rows(const struct ggml_tensor *t, size_t n_tokens, size_t n) {
    struct ggml_tensor cut = *t;
    if ((size_t)t->ne[1] == n_tokens) cut.ne[1] -= (int64_t)n;
    cut.nb[2] = cut.nb[3] = (size_t)cut.ne[1] * cut.nb[1];
    return cut;
}

/* The keys of another architecture in place of llama's; what they hold is the same. */
static void rename_keys(struct gguf_context *to, const struct gguf_context *from,
                        const char *arch) {
    gguf_set_kv(to, from);
    gguf_set_val_str(to, "general.architecture", arch);
    for (int64_t i = 0; i < gguf_get_n_kv(from); i++) {
        char name[128];
        const char *key = gguf_get_key(from, i);
        if (strncmp(key, "llama.", 6) != 0) continue;
        snprintf(name, sizeof name, "%s.%s", arch, key + 6);
        gguf_remove_key(to, key);
        if (gguf_get_kv_type(from, i) == GGUF_TYPE_UINT32)
            gguf_set_val_u32(to, name, gguf_get_val_u32(from, i));
        else if (gguf_get_kv_type(from, i) == GGUF_TYPE_FLOAT32)
            gguf_set_val_f32(to, name, gguf_get_val_f32(from, i));
    }
}

/* A copy of a file with one more key, or its tokens in another order, or fewer of them. */
static int with_key(const char *key, const char *value, const char *in, const char *out) {
    struct ggml_context *data = NULL;
    struct gguf_init_params how = {.no_alloc = false, .ctx = &data};
    struct gguf_context *from = gguf_init_from_file(in, how), *gguf = gguf_init_empty();
    char name[128];
    if (!from) return 1;
    if (strcmp(key, "granite") == 0)
        rename_keys(gguf, from, "granite");
    else
        gguf_set_kv(gguf, from);
    size_t n_tokens = count_tokens(from), n_cut = 0;
    if (strcmp(key, "cut") == 0) n_cut = (size_t)atoi(value);
    for (int64_t i = 0; i < gguf_get_n_tensors(from); i++) {
        const struct ggml_tensor t =
            without_rows(ggml_get_tensor(data, gguf_get_tensor_name(from, i)), n_tokens, n_cut);
        gguf_add_tensor(gguf, &t);
    }
    const char *arch = gguf_get_val_str(gguf, gguf_find_key(gguf, "general.architecture"));
    if (strcmp(key, "causal") == 0) {
        snprintf(name, sizeof name, "%s.attention.causal", arch);
        gguf_set_val_bool(gguf, name, strcmp(value, "true") == 0);
    } else if (strcmp(key, "tokens") == 0) {
        set_tokens(gguf, n_tokens, true);
    } else if (n_cut > 0) {
        cut_tokens(gguf, n_tokens - n_cut);
    } else if (strcmp(key, "template") == 0) {
        gguf_set_val_str(gguf, "tokenizer.chat_template", value);
    } else if (strcmp(key, "granite") == 0) {
        gguf_set_val_f32(gguf, "granite.logit_scale", strtof(value, NULL));
    } else {
        snprintf(name, sizeof name, "%s.%s", arch, key);
        gguf_set_val_f32(gguf, name, strtof(value, NULL));
    }
    bool written = gguf_write_to_file(gguf, out, false);
    gguf_free(gguf);
    gguf_free(from);
    ggml_free(data);
    return !written;
}

static void add(struct gguf_context *gguf, struct ggml_context *data, const char *name,
                int64_t n_cols, int64_t n_rows) {
    struct ggml_tensor *t = n_rows ? ggml_new_tensor_2d(data, GGML_TYPE_F32, n_cols, n_rows)
                                   : ggml_new_tensor_1d(data, GGML_TYPE_F32, n_cols);
    memset(t->data, 0, ggml_nbytes(t));
    ggml_set_name(t, name);
    gguf_add_tensor(gguf, t);
}

static void add_mamba(struct gguf_context *gguf, struct ggml_context *data, int64_t n_vocab) {
    enum { D = 8, INNER = 2 * D, STATE = 4, RANK = 2, KERNEL = 4 };
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {
        {"context_length", 64},     {"embedding_length", D},     {"block_count", 1},
        {"feed_forward_length", 0}, {"attention.head_count", 0}, {"ssm.conv_kernel", KERNEL},
        {"ssm.inner_size", INNER},  {"ssm.state_size", STATE},   {"ssm.time_step_rank", RANK}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char name[64];
        snprintf(name, sizeof name, "mamba.%s", keys[i].key);
        gguf_set_val_u32(gguf, name, keys[i].value);
    }
    gguf_set_val_f32(gguf, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    add(gguf, data, "token_embd.weight", D, n_vocab);
    add(gguf, data, "output_norm.weight", D, 0);
    add(gguf, data, "blk.0.attn_norm.weight", D, 0);
    add(gguf, data, "blk.0.ssm_in.weight", D, 2 * INNER);
    add(gguf, data, "blk.0.ssm_conv1d.weight", KERNEL, INNER);
    add(gguf, data, "blk.0.ssm_conv1d.bias", INNER, 0);
    add(gguf, data, "blk.0.ssm_x.weight", INNER, RANK + 2 * STATE);
    add(gguf, data, "blk.0.ssm_dt.weight", RANK, INNER);
    add(gguf, data, "blk.0.ssm_dt.bias", INNER, 0);
    add(gguf, data, "blk.0.ssm_a", STATE, INNER);
    add(gguf, data, "blk.0.ssm_d", INNER, 0);
    add(gguf, data, "blk.0.ssm_out.weight", INNER, D);
}

/* Small, so that it loads in no time. */
static int write_mamba(const char *in, const char *out) {
    struct gguf_init_params how = {.no_alloc = true};
    struct gguf_context *from = gguf_init_from_file(in, how), *gguf = gguf_init_empty();
    struct ggml_init_params memory = {.mem_size = (size_t)64 << 20};
    struct ggml_context *data = ggml_init(memory);
    if (!from || !data) return 1;
    gguf_set_kv(gguf, from);
    gguf_set_val_str(gguf, "general.architecture", "mamba");
    int64_t tokens = gguf_find_key(from, "tokenizer.ggml.tokens");
    add_mamba(gguf, data, (int64_t)gguf_get_arr_n(from, tokens));
    bool written = gguf_write_to_file(gguf, out, false);
    gguf_free(gguf);
    gguf_free(from);
    ggml_free(data);
    return !written;
}

/* Weights of scale / sqrt(columns) times what is drawn; norms stay near 1. */
static void add_drawn(struct gguf_context *gguf, struct ggml_context *data, const char *name,
                      int64_t n_cols, int64_t n_rows, double scale, double noise) {
    uint64_t base = 88172645463325252u, other = 362436069u;
    for (const char *c = name; *c; c++)
        base = base * 31 + (uint64_t)*c, other = other * 37 + (uint64_t)*c;
    add(gguf, data, name, n_cols, n_rows);
    struct ggml_tensor *t = ggml_get_tensor(data, name);
    float *x = (float *)t->data;
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        double value = drawn(&base) + noise * drawn(&other);
        x[i] = (float)(n_rows ? scale * value / sqrt((double)n_cols) : 1 + 0.1 * value);
    }
}

enum { TINY_VOCAB = 24, TINY_D = 32, TINY_FF = 64 };

/* cap : of the logits; 0: none, and a llama */
static void add_tiny_keys(struct gguf_context *gguf, const struct gguf_context *from, double cap) {
    const char *arch = cap > 0 ? "gemma3" : "llama";
    char name[64];
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"context_length", 64},
                {"embedding_length", TINY_D},
                {"block_count", 1},
                {"feed_forward_length", TINY_FF},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 2},
                {"rope.dimension_count", TINY_D / 2}};
    const char *tokens[TINY_VOCAB], *merge = "a b";
    int32_t types[TINY_VOCAB];
    int64_t texts = gguf_find_key(from, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < TINY_VOCAB; i++) {
        tokens[i] = gguf_get_arr_str(from, texts, i);
        types[i] = 1; /* normal */
    }
    gguf_set_val_str(gguf, "general.architecture", arch);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_set_val_f32(gguf, name, 1e-5f);
    if (cap > 0) gguf_set_val_f32(gguf, "gemma3.final_logit_softcapping", (float)cap);
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(gguf, "tokenizer.ggml.pre", "gpt-2");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, TINY_VOCAB);
    gguf_set_arr_str(gguf, "tokenizer.ggml.merges", &merge, 1);
    gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 0);
    gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", TINY_VOCAB - 1);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "%s.%s", arch, keys[i].key);
        gguf_set_val_u32(gguf, name, keys[i].value);
    }
}

/* So small that every distribution of its next tokens can be written down. */
static int write_tiny(double noise, double cap, const char *in, const char *out) {
    static const struct {
        const char *name;
        int64_t n_cols, n_rows;
        double scale;
    } weights[] = {{"token_embd.weight", TINY_D, TINY_VOCAB, 4},
                   {"output.weight", TINY_D, TINY_VOCAB, 3},
                   {"output_norm.weight", TINY_D, 0, 1},
                   {"blk.0.attn_norm.weight", TINY_D, 0, 1},
                   {"blk.0.attn_q.weight", TINY_D, TINY_D, 2},
                   {"blk.0.attn_k.weight", TINY_D, TINY_D, 2},
                   {"blk.0.attn_v.weight", TINY_D, TINY_D, 2},
                   {"blk.0.attn_output.weight", TINY_D, TINY_D, 2},
                   {"blk.0.ffn_norm.weight", TINY_D, 0, 1},
                   {"blk.0.ffn_gate.weight", TINY_D, TINY_FF, 2},
                   {"blk.0.ffn_up.weight", TINY_D, TINY_FF, 2},
                   {"blk.0.ffn_down.weight", TINY_FF, TINY_D, 2},
                   /* Gemma 3's alone: */
                   {"blk.0.attn_q_norm.weight", TINY_D / 2, 0, 1},
                   {"blk.0.attn_k_norm.weight", TINY_D / 2, 0, 1},
                   {"blk.0.post_attention_norm.weight", TINY_D, 0, 1},
                   {"blk.0.post_ffw_norm.weight", TINY_D, 0, 1}};
    struct gguf_init_params how = {.no_alloc = true};
    struct gguf_context *from = gguf_init_from_file(in, how), *gguf = gguf_init_empty();
    struct ggml_init_params memory = {.mem_size = (size_t)1 << 20};
    struct ggml_context *data = ggml_init(memory);
    if (!from || !data) return 1;
    add_tiny_keys(gguf, from, cap);
    size_t n = sizeof weights / sizeof *weights - (cap > 0 ? 0 : 4);
    for (size_t i = 0; i < n; i++)
        add_drawn(gguf, data, weights[i].name, weights[i].n_cols, weights[i].n_rows,
                  weights[i].scale, noise);
    bool written = gguf_write_to_file(gguf, out, false);
    gguf_free(gguf);
    gguf_free(from);
    ggml_free(data);
    return !written;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        enum llama_ftype type;
    } types[] = {{"f32", LLAMA_FTYPE_ALL_F32},
                 {"f16", LLAMA_FTYPE_MOSTLY_F16},
                 {"bf16", LLAMA_FTYPE_MOSTLY_BF16},
                 {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
                 {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0}};
    if (argc != 4) return fprintf(stderr, "llama_convert: expected TYPE IN OUT\n"), 2;
    llama_log_set(quiet, NULL);
    llama_backend_init();
    if (strcmp(argv[1], "mamba") == 0) return write_mamba(argv[2], argv[3]);
    char *equals = strchr(argv[1], '=');
    if (equals) {
        *equals = '\0';
        if (strcmp(argv[1], "tiny") == 0) {
            char *end;
            double noise = strtod(equals + 1, &end);
            return write_tiny(noise, *end == ',' ? strtod(end + 1, NULL) : 0, argv[2], argv[3]);
        }
        return with_key(argv[1], equals + 1, argv[2], argv[3]);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, argv[1]) == 0) return requantise(types[i].type, argv[2], argv[3]);
    fprintf(stderr, "llama_convert: unknown type %s\n", argv[1]);
    return 2;
}
