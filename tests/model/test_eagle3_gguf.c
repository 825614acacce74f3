/* test_eagle3_gguf.c : an EAGLE-3 head small enough to know by heart, as llama.cpp's GGUF. */
#include "model/checkpoint.h"
#include "model/eagle3_gguf.h"
#include "st_build.h"
#include "gguf_build.h"

enum { D = 4, D_TARGET = 6, N_VOCAB = 7, MOST = 16 };

/* What differs from the head that is good. */
typedef struct change {
    const char *config;  /* of config.json; NULL: there is none */
    const char *tensor;  /* of that name: NULL: all are good */
    int64_t rows, cols;  /* its shape instead; 0, 0: it is left out */
    int32_t n_dims;      /* instead, the last one of size 1 */
    const char *dtype;   /* its type instead; NULL: F32 */
    uint32_t n_layers;   /* of the target; 0: 10 */
    uint32_t n_context;  /* of the target; 0: 100M, more than any vocabulary */
    uint32_t d_target;   /* 0: D_TARGET */
    const char *without; /* a key that the target lacks */
} change;

static const struct {
    const char *name;
    int64_t rows, cols;
} layout[] = {
    {"fc.weight", D, 3 * D_TARGET},
    {"midlayer.input_layernorm.weight", D, 0},
    {"midlayer.hidden_norm.weight", D, 0},
    {"midlayer.self_attn.q_proj.weight", 8, 2 * D},
    {"midlayer.self_attn.k_proj.weight", 4, 2 * D},
    {"midlayer.self_attn.v_proj.weight", 4, 2 * D},
    {"midlayer.self_attn.o_proj.weight", D, 8},
    {"midlayer.post_attention_layernorm.weight", D, 0},
    {"midlayer.mlp.gate_proj.weight", 5, D},
    {"midlayer.mlp.up_proj.weight", 5, D},
    {"midlayer.mlp.down_proj.weight", D, 5},
    {"norm.weight", D, 0},
    {"lm_head.weight", 3, D},
    {"embed_tokens.weight", N_VOCAB, D},
};
enum { N_LAYOUT = sizeof layout / sizeof layout[0] };

static bool is_changed(const change *c, const char *name) {
    return c->tensor && strcmp(c->tensor, name) == 0;
}

/* Tensor i begins with 100 i; d2t: tokens 1, 4 and 6. */
static void put_head(const change *c) {
    static const int64_t offsets[] = {1, 3, 4};
    st_tensor tensors[MOST];
    int n = 0;
    for (int i = 0; i < N_LAYOUT; i++) {
        bool changed = is_changed(c, layout[i].name);
        if (changed && !c->rows) continue;
        tensors[n] = f32_from(100 * i, layout[i].name, changed ? c->rows : layout[i].rows,
                              changed ? c->cols : layout[i].cols);
        if (changed && c->dtype) strcpy(tensors[n].dtype, c->dtype);
        if (changed && c->n_dims) tensors[n].n_dims = c->n_dims, tensors[n].shape[2] = 1;
        n++;
    }
    if (!is_changed(c, "lm_head.weight"))
        tensors[n++] = (st_tensor){.name = "d2t",
                                   .dtype = "I64",
                                   .n_dims = 1,
                                   .shape = {3},
                                   .data = (const uint8_t *)offsets,
                                   .bytes = sizeof offsets};
    put_st("head.safetensors", tensors, n);
    remove(in_folder("config.json"));
    if (c->config) put_json("config.json", c->config);
}

static bool has_key(const change *c, const char *key) {
    return !c->without || strcmp(c->without, key) != 0;
}

static void put_target(const change *c) {
    static const char *const tokens[] = {"a", "b", "c", "d", "e", "f", "g", NULL};
    specrt_error err;
    gguf *g;
    out_file out;
    int64_t n;
    uint32_t d = c->d_target ? c->d_target : D_TARGET;
    st_tensor cells = f32_from(1700, "", N_VOCAB, d);
    gguf_tensor rows = {.name = "output.weight", .n_dims = 2, .dims = {d, N_VOCAB, 1, 1}};
    rows.data = cells.data, rows.bytes = cells.bytes;
    begin();
    put_string("general.architecture", "llama");
    put_string("general.name", "target");
    put_int("llama.embedding_length", d);
    put_int("llama.block_count", c->n_layers ? c->n_layers : 10);
    put_int("llama.context_length", c->n_context ? c->n_context : 100000000);
    if (has_key(c, "llama.attention.head_count")) put_int("llama.attention.head_count", 2);
    put_key("llama.rope.freq_base", GGUF_F32), put((float[]){500}, 4);
    if (has_key(c, "tokenizer.ggml.tokens")) put_strings("tokenizer.ggml.tokens", tokens);
    REQUIRE(sl_gguf_open_memory(file, n_file, "metadata", &g, &err) == SPECRT_STATUS_OK);
    const gguf_kv *kvs = sl_gguf_kvs(g, &n);
    REQUIRE(sl_out_open(&out, in_folder("target.gguf"), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_write(kvs, (int)n, &rows, 1, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    sl_gguf_close(g);
}

/* @return the head as a GGUF with the rows of tokens 6 and 1 of the list; NULL: err says why there is none */
static gguf *convert(change c, specrt_error *err) {
    int32_t ids[] = {6, -1, 2, 1, N_VOCAB}, n = 5;
    gguf *g = NULL;
    put_head(&c);
    put_target(&c);
    err->msg[0] = '\0';
    if (sl_eagle3_gguf_write(in_folder("head.safetensors"), in_folder("target.gguf"), ids, &n,
                             in_folder("out.gguf"), true, err) != SPECRT_STATUS_OK)
        return NULL;
    REQUIRE(sl_gguf_open(in_folder("out.gguf"), &g, err) == SPECRT_STATUS_OK);
    CHECK_INT(ids[0], 6);
    CHECK_INT(ids[n - 1], 1);
    return g;
}

static int64_t key(const gguf *g, const char *name) {
    int64_t value = -1;
    CHECK(sl_gguf_get_int(g, name, &value));
    return value;
}

/* A matrix [rows, cols], or a vector, whose rows are those of an f32 tensor that begins with `first`. */
static void check_tensor(const gguf *g, const char *name, int first, int64_t rows, int64_t cols,
                         const int *order) {
    const gguf_tensor *t = sl_gguf_find_tensor(g, name);
    if (!t) fprintf(stderr, "no %s\n", name);
    REQUIRE(t);
    CHECK_INT(t->n_dims, rows ? 2 : 1);
    CHECK_INT(t->dims[0], cols);
    CHECK_INT(t->dims[1], rows ? rows : 1);
    CHECK_INT(t->type, SPECRT_DTYPE_F32);
    for (int64_t i = 0; i < (rows ? rows : 1); i++)
        for (int64_t k = 0; k < cols; k++) {
            float x;
            memcpy(&x, t->data + 4 * (i * cols + k), 4);
            CHECK_INT(x, first + (order ? order[i] : i) * cols + k);
        }
}

TEST(keys, "what llama.cpp's loader asks for") {
    specrt_error err;
    double real;
    gguf_string arch;
    gguf *g = convert((change){0}, &err);
    CHECK_STR(err.msg, "");
    REQUIRE(g);
    CHECK(sl_gguf_get_string(g, "general.architecture", &arch) && arch.n == 6 &&
          memcmp(arch.s, "eagle3", 6) == 0);
    CHECK_INT(key(g, "eagle3.block_count"), 1);
    CHECK_INT(key(g, "eagle3.context_length"), 100000000);
    CHECK_INT(key(g, "eagle3.embedding_length"), D);
    CHECK_INT(key(g, "eagle3.feed_forward_length"), 5);
    CHECK_INT(key(g, "eagle3.attention.head_count"), 2);
    CHECK_INT(key(g, "eagle3.attention.head_count_kv"), 1);
    CHECK_INT(key(g, "eagle3.attention.key_length"), 4);
    CHECK_INT(key(g, "eagle3.attention.value_length"), 4);
    CHECK_INT(key(g, "eagle3.rope.dimension_count"), 4);
    CHECK_INT(key(g, "eagle3.vocab_size"), N_VOCAB);
    CHECK_INT(key(g, "eagle3.target_hidden_size"), D_TARGET);
    const gguf_kv *layers = sl_gguf_find(g, "eagle3.target_layers"),
                  *tokens = sl_gguf_find(g, "tokenizer.ggml.tokens");
    REQUIRE(layers && layers->elem == GGUF_I32 && layers->count == 3);
    CHECK(memcmp(layers->value, (int32_t[]){2, 5, 7}, 12) == 0);
    CHECK(tokens && tokens->count == N_VOCAB);
    CHECK(!sl_gguf_find(g, "general.name") && !sl_gguf_find(g, "llama.block_count"));
    CHECK(sl_gguf_get_real(g, "eagle3.attention.layer_norm_rms_epsilon", &real));
    CHECK_NEAR(real, 1e-5, 1e-12);
    CHECK(sl_gguf_get_real(g, "eagle3.rope.freq_base", &real));
    CHECK_NEAR(real, 500, 0);
    sl_gguf_close(g);
    change other = {.config = "{\"rms_norm_eps\":0.5,\"rope_theta\":7}", .n_layers = 5};
    other.n_context = UINT32_MAX;
    g = convert(other, &err);
    REQUIRE(g);
    CHECK_INT(key(g, "eagle3.context_length"), 0);
    CHECK(sl_gguf_get_real(g, "eagle3.attention.layer_norm_rms_epsilon", &real));
    CHECK_NEAR(real, 0.5, 0);
    CHECK(sl_gguf_get_real(g, "eagle3.rope.freq_base", &real));
    CHECK_NEAR(real, 7, 0);
    CHECK(memcmp(sl_gguf_find(g, "eagle3.target_layers")->value, (int32_t[]){2, 2, 2}, 12) == 0);
    sl_gguf_close(g);
    clear_folder();
}

/* Rows of queries and keys are in llama.cpp's order: pairs that turn together side by side. */
TEST(tensors, "names, shapes and rows") {
    static const int turned[] = {0, 2, 1, 3, 4, 6, 5, 7}, kept[] = {2, 0};
    specrt_error err;
    gguf *g = convert((change){0}, &err);
    REQUIRE(g);
    check_tensor(g, "fc.weight", 0, D, 3 * D_TARGET, NULL);
    check_tensor(g, "blk.0.attn_norm.weight", 100, 0, D, NULL);
    check_tensor(g, "blk.0.attn_norm_2.weight", 200, 0, D, NULL);
    check_tensor(g, "blk.0.attn_q.weight", 300, 8, 2 * D, turned);
    check_tensor(g, "blk.0.attn_k.weight", 400, 4, 2 * D, turned);
    check_tensor(g, "blk.0.attn_v.weight", 500, 4, 2 * D, NULL);
    check_tensor(g, "blk.0.attn_output.weight", 600, D, 8, NULL);
    check_tensor(g, "blk.0.ffn_norm.weight", 700, 0, D, NULL);
    check_tensor(g, "blk.0.ffn_gate.weight", 800, 5, D, NULL);
    check_tensor(g, "blk.0.ffn_up.weight", 900, 5, D, NULL);
    check_tensor(g, "blk.0.ffn_down.weight", 1000, D, 5, NULL);
    check_tensor(g, "output_norm.weight", 1100, 0, D, NULL);
    check_tensor(g, "output.weight", 1200, 2, D, kept);
    check_tensor(g, "token_embd.weight", 1300, N_VOCAB, D, NULL);
    const gguf_tensor *d2t = sl_gguf_find_tensor(g, "d2t");
    REQUIRE(d2t && d2t->type == SPECRT_DTYPE_I64 && d2t->dims[0] == 2);
    CHECK(memcmp(d2t->data, (int64_t[]){6, 1}, 16) == 0);
    sl_gguf_close(g);
    g = convert((change){.tensor = "embed_tokens.weight"}, &err); /* the target's */
    REQUIRE(g);
    CHECK(!sl_gguf_find_tensor(g, "token_embd.weight"));
    sl_gguf_close(g);
    clear_folder();
}

TEST(no_head, "without a head of its own the rows are the target's, of all tokens") {
    static const int all[] = {6, 2, 1};
    specrt_error err;
    CHECK(!convert((change){.tensor = "lm_head.weight"}, &err));
    CHECK_HAS(err.msg, "lm_head.weight: missing, and the target's head has another width");
    change c = {.tensor = "lm_head.weight", .d_target = D};
    c.config = "{\"target_hidden_size\":6}";
    gguf *g = convert(c, &err);
    CHECK_STR(err.msg, "");
    REQUIRE(g);
    check_tensor(g, "output.weight", 1700, 3, D, all);
    sl_gguf_close(g);
    clear_folder();
}

TEST(refused, "what does not fit is named") {
    static const char heads[] = "num_attention_heads: does not divide the rows of q_proj",
                      fc[] = "fc.weight", k[] = "midlayer.self_attn.k_proj.weight",
                      gate[] = "midlayer.mlp.gate_proj.weight",
                      norm[] = "midlayer.hidden_norm.weight",
                      o[] = "midlayer.self_attn.o_proj.weight";
    static const struct {
        change c;
        const char *wrong;
    } rows[] = {
        {{.config = "{\"num_attention_heads\":3}"}, heads},
        {{.config = "{\"num_attention_heads\":8}"}, heads}, /* an odd width of a head */
        {{.config = "{\"num_attention_heads\":9}"}, heads},
        {{.config = "{\"num_attention_heads\":0}"}, heads},
        {{.config = "{\"num_attention_heads\":1e9}"}, heads},
        {{.without = "llama.attention.head_count"}, heads},
        {{.tensor = k, .rows = 6, .cols = 8}, heads},
        {{.tensor = k, .rows = 12, .cols = 8}, heads},
        {{.config = "{\"target_hidden_size\":5}"}, "fc.weight: expected three states"},
        {{.tensor = fc, .rows = 4, .cols = 1}, "fc.weight: expected three states"},
        {{.tensor = fc}, "found none beside tensors of a drafter"},
        {{.tensor = fc, .rows = 4, .cols = 18, .n_dims = 3},
         "found none beside tensors of a drafter"},
        {{.tensor = fc, .rows = 4}, "found none beside tensors of a drafter"},
        {{.tensor = gate}, "midlayer.mlp.gate_proj.weight: expected a matrix"},
        {{.tensor = gate, .rows = 1, .cols = 4}, "up_proj.weight: expected [1, 4]"},
        {{.tensor = gate, .rows = 5, .cols = 5}, "gate_proj.weight: expected [5, 4] in f32"},
        {{.tensor = norm, .rows = 5}, "hidden_norm.weight: expected [1, 4] in f32, f16 or bf16"},
        {{.tensor = norm, .rows = 4, .cols = 1}, "hidden_norm.weight: expected [1, 4]"},
        {{.tensor = norm, .rows = 4, .dtype = "I32"}, "found another shape or type"},
        {{.tensor = o, .rows = 4, .cols = 7}, "o_proj.weight: expected [4, 8]"},
        {{.tensor = o, .rows = 5, .cols = 8}, "o_proj.weight: expected [4, 8]"},
        {{.tensor = "norm.weight"}, "norm.weight: expected [1, 4] in f32, f16 or bf16, found none"},
        {{.n_layers = 4}, "target: expected at least 5 layers"},
        {{.config = "{\"rope_scaling\":{}}"}, "rope_scaling: expected none"},
        {{.without = "tokenizer.ggml.tokens"}, "tokenizer.ggml.tokens: expected the target's"},
        {{.tensor = "embed_tokens.weight", .rows = 7, .cols = 5}, "embed_tokens.weight: expected"},
    };
    specrt_error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(!convert(rows[i].c, &err));
        CHECK_HAS(err.msg, rows[i].wrong);
    }
    int32_t ids[] = {0, 2}, n = 2;
    put_head(&(change){0});
    put_target(&(change){0});
    CHECK_INT(sl_eagle3_gguf_write(in_folder("head.safetensors"), in_folder("target.gguf"), ids, &n,
                                   in_folder("out.gguf"), true, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "has a row for no token of the list");
    st_tensor other = f32("fc.weight", 2, 2);
    checkpoint_id id;
    CHECK_INT(sl_checkpoint_identify_path(in_folder("head.safetensors"), &id, &err),
              SPECRT_STATUS_OK);
    CHECK_INT(id.kind, CHECKPOINT_EAGLE3);
    put_st("head.safetensors", &other, 1);
    CHECK_INT(sl_checkpoint_identify_path(in_folder("head.safetensors"), &id, &err),
              SPECRT_STATUS_BAD_INPUT);
    clear_folder();
}
