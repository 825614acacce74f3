/* test_engine.c : the CPU engine against a naive double-precision transformer, and its promise that
 * results do not depend on batching. */
#include "formats/safetensors.h"
#include "tiny.h"

static void random_tokens(int32_t *tokens, int32_t n, int32_t n_vocab) {
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)((random_real() + 1) / 2 * n_vocab);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const tiny shapes[] = {
    {"llama", 2, 32, 4, 2, 8, 48, 50, .tied = true},
    {"llama", 3, 40, 4, 1, 10, 72, 37, .scaled = true},
    {"qwen2", 2, 32, 4, 4, 8, 40, 41, .biased = true},
    {"qwen3", 2, 24, 3, 1, 16, 40, 29, .tied = true, .normed = true},
    {"gemma3", 7, 24, 4, 2, 16, 40, 37, .tied = true, .normed = true, .gemma = true, .window = 5,
     .period = 3, .rope_scale = 8, .window_base = 500, .softcap = 4},
    {"gemma3", 8, 24, 4, 1, 10, 40, 31, .tied = true, .normed = true, .gemma = true, .window = 6},
    {"gemma3", 62, 24, 3, 1, 16, 40, 30, .tied = true, .normed = true, .gemma = true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0], LLAMA = 1, GEMMA = 4 };

TEST(oracle, "logits equal a double-precision transformer") {
    for (int s = 0; s < N_SHAPES; s++) {
        enum { N = 20 };
        static double expected[N * 64];
        static float logits[N * 64];
        int32_t tokens[N];
        tiny_model m;
        specrt_error err;
        engine_cache *c;
        make_tiny(&m, shapes[s], 42 + (uint64_t)s);
        engine_model *e = open_tiny(&m, 2);
        REQUIRE(engine_cache_create(e, 0, &c, &err) == SPECRT_STATUS_OK);
        random_tokens(tokens, N, m.k.vocab);
        oracle(&m, tokens, N, expected);
        REQUIRE(engine_forward(c, tokens, N, NULL, NULL, logits) == SPECRT_STATUS_OK);
        for (int i = 0; i < N * m.k.vocab; i++) CHECK_NEAR((double)logits[i], expected[i], 1e-4);
        engine_cache_close(c);
        engine_close(e);
        free_tiny(&m);
    }
}

/* One at a time, in chunks, as a prefill and in a tree, with 1 to 3 threads: the same bits. */
static void check_bitwise(int shape) {
    enum { N = 13, V = 37 };
    tiny_model m;
    make_tiny(&m, shapes[shape], 7);
    int32_t tokens[N];
    static float alone[N][V], other[N][V], last[V];
    random_tokens(tokens, N, V);
    for (int threads = 1; threads <= 3; threads++) {
        engine_model *e = open_tiny(&m, threads);
        engine_cache *c;
        specrt_error err;
        const int32_t first = 0;
        REQUIRE(engine_cache_create(e, 64, &c, &err) == SPECRT_STATUS_OK);
        for (int i = 0; i < N; i++) {
            REQUIRE(engine_forward(c, &tokens[i], 1, NULL, NULL,
                                   threads == 1 ? alone[i] : other[i]) == SPECRT_STATUS_OK);
            engine_keep(c, &first, 1);
        }
        if (threads > 1) CHECK(memcmp(alone, other, sizeof alone) == 0);
        engine_cache_truncate(c, 0);
        REQUIRE(engine_forward(c, tokens, N, NULL, NULL, other[0]) == SPECRT_STATUS_OK);
        CHECK(memcmp(alone, other, sizeof alone) == 0);
        REQUIRE(engine_prefill(c, tokens, N, NULL, last, NULL, NULL) == SPECRT_STATUS_OK);
        CHECK(memcmp(alone[N - 1], last, sizeof last) == 0);
        engine_cache_close(c);
        engine_close(e);
    }
    free_tiny(&m);
}

TEST(bitwise, "alone, chain, prefill, any thread count: the same bits") {
    check_bitwise(LLAMA);
    check_bitwise(GEMMA);
}

/* A file of blocks gives the bits of its f32 copy, alone and in batches, and its rows stay as they are. */
TEST(blocks, "a quantised model equals its f32 copy, and is not copied") {
    enum { N = 13, V = 40 };
    tiny_model m;
    static float logits[4][N * V];
    int32_t tokens[N];
    make_tiny(&m, (tiny){.arch = "llama", 2, 64, 4, 2, 16, 96, V, .tied = true}, 5);
    quantise_tiny(&m);
    random_tokens(tokens, N, V);
    for (int copy = 0; copy < 2; copy++) {
        engine_model *e = open_tiny(&m, 2);
        specrt_head_desc head;
        engine_cache *c;
        specrt_error err;
        const int32_t first = 0;
        engine_head(e, &head);
        CHECK_INT(head.dtype, copy ? SPECRT_DTYPE_F32 : SPECRT_DTYPE_Q4_1);
        REQUIRE(engine_cache_create(e, 64, &c, &err) == SPECRT_STATUS_OK);
        REQUIRE(engine_forward(c, tokens, N, NULL, NULL, logits[2 * copy]) == SPECRT_STATUS_OK);
        engine_cache_truncate(c, 0);
        for (int i = 0; i < N; i++) {
            REQUIRE(engine_forward(c, &tokens[i], 1, NULL, NULL, logits[2 * copy + 1] + i * V) ==
                    SPECRT_STATUS_OK);
            engine_keep(c, &first, 1);
        }
        engine_cache_close(c);
        engine_close(e);
        for (int i = 0; i < m.n_tensors; i++) free(m.tensors[i].blocks), m.tensors[i].blocks = NULL;
    }
    for (int i = 1; i < 4; i++) CHECK(memcmp(logits[0], logits[i], sizeof logits[0]) == 0);
    free_tiny(&m);
}

/* A random tree after a committed prefix: each node equals the chain that leads to it, and a kept
 * path leaves the cache as if its chain had been decoded. */
static specrt_status grow(engine_cache *c, const int32_t *tokens, const int32_t *parents, int32_t n,
                          float *logits) {
    int32_t V = shapes[LLAMA].vocab, first = n / 3; /* in two passes, as a drafter adds levels */
    specrt_status status = engine_forward(c, tokens, first, parents, NULL, logits);
    if (status) return status;
    return engine_forward(c, tokens + first, n - first, parents + first, NULL, logits + first * V);
}

static void check_tree(int shape) {
    enum { PREFIX = 5, N = 40, V = 37 };
    tiny_model m;
    specrt_error err;
    engine_cache *c, *chain;
    make_tiny(&m, shapes[shape], 11);
    engine_model *e = open_tiny(&m, 2);
    REQUIRE(engine_cache_create(e, 128, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_cache_create(e, 128, &chain, &err) == SPECRT_STATUS_OK);
    int32_t prefix[PREFIX], tokens[N], parent[N];
    uint64_t masks[N];
    static float tree[N][V], line[N][V], after[V], expected[V];
    random_tokens(prefix, PREFIX, V);
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)((random_real() + 1) / 2 * V);
        parent[i] = i ? (int32_t)((random_real() + 1) / 2 * i) : -1;
        masks[i] = (i ? masks[parent[i]] : 0) | UINT64_C(1) << i;
    }
    REQUIRE(engine_prefill(c, prefix, PREFIX, NULL, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    REQUIRE(grow(c, tokens, parent, N, tree[0]) == SPECRT_STATUS_OK);
    int32_t deepest = 0, path[N], path_tokens[N], n_path = 0;
    for (int32_t i = 0; i < N; i++) {
        int32_t nodes[N], n = 0;
        for (int32_t j = 0; j <= i; j++)
            if (masks[i] >> j & 1) path_tokens[n] = tokens[j], nodes[n++] = j;
        engine_cache_truncate(chain, 0);
        REQUIRE(engine_prefill(chain, prefix, PREFIX, NULL, NULL, NULL, NULL) == SPECRT_STATUS_OK);
        REQUIRE(engine_forward(chain, path_tokens, n, NULL, NULL, line[0]) == SPECRT_STATUS_OK);
        CHECK(memcmp(tree[i], line[n - 1], sizeof tree[i]) == 0);
        if (n > n_path) memcpy(path, nodes, sizeof nodes), n_path = n, deepest = i;
    }
    engine_keep(c, path, n_path);
    CHECK_INT(engine_cache_length(c), PREFIX + n_path);
    for (int32_t i = 0; i < n_path; i++) path_tokens[i] = tokens[path[i]];
    engine_cache_truncate(chain, PREFIX);
    REQUIRE(engine_prefill(chain, path_tokens, n_path, NULL, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(c, &tokens[deepest], 1, NULL, NULL, after) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(chain, &tokens[deepest], 1, NULL, NULL, expected) == SPECRT_STATUS_OK);
    CHECK(memcmp(after, expected, sizeof after) == 0);
    engine_cache_close(c);
    engine_cache_close(chain);
    engine_close(e);
    free_tiny(&m);
}

TEST(tree, "tree nodes equal chains; a kept path equals its chain") {
    check_tree(LLAMA);
    check_tree(GEMMA); /* windows end inside the prefix, and inside paths */
}

TEST(limits, "bad batches are refused") {
    tiny_model m;
    specrt_error err;
    engine_cache *c;
    make_tiny(&m, shapes[0], 3);
    engine_model *e = open_tiny(&m, 1);
    CHECK(engine_cache_create(e, 257, &c, &err) == SPECRT_STATUS_BAD_ARG);
    REQUIRE(engine_cache_create(e, 4, &c, &err) == SPECRT_STATUS_OK);
    const int32_t tokens[] = {1, 2, 3, 4, 5}, outside[] = {50};
    const int32_t orphan[] = {-1, -2}, future[] = {-1, 1};
    CHECK(engine_forward(c, tokens, 5, NULL, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(engine_forward(c, tokens, 0, NULL, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(engine_forward(c, outside, 1, NULL, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(engine_forward(c, tokens, 2, orphan, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(engine_forward(c, tokens, 2, future, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(engine_prefill(c, tokens, 4, NULL, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    CHECK(engine_forward(c, tokens, 1, NULL, NULL, NULL) == SPECRT_STATUS_BAD_ARG);
    engine_cache_close(c);
    engine_close(e);
    free_tiny(&m);
}

/* Opens must fail with this status and name what is wrong. */
static void check_refused(const tiny_model *m, const char *skip, specrt_status status,
                          const char *says) {
    engine_model *e;
    specrt_error err = {0};
    const char *path = write_tiny(m, skip);
    CHECK_INT(engine_open(path, 1, &e, &err), status);
    unlink(path);
    if (!strstr(err.msg, says)) fprintf(stderr, "message: %s\n", err.msg);
    CHECK(strstr(err.msg, says) != NULL);
    CHECK(e == NULL);
}

TEST(bad_models, "bad files are refused by name") {
    tiny_model m;
    tiny k = shapes[0];
    make_tiny(&m, k, 5);
    check_refused(&m, "blk.1.ffn_up.weight", SPECRT_STATUS_BAD_INPUT,
                  "blk.1.ffn_up.weight: missing");
    tensor *last = &m.tensors[m.n_tensors - 1];
    last->is_whole = true;
    check_refused(&m, NULL, SPECRT_STATUS_UNSUPPORTED, "its type cannot be decoded");
    last->is_whole = false;
    m.tensors[1].data[3] = NAN; /* output_norm */
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT, "output_norm.weight");
    m.k.ffn = 47;
    m.tensors[1].data[3] = 1;
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "blk.0.ffn_gate.weight: expected [47, 32], found [48, 32]");
    m.k = k;
    m.odd_key = "llama.rope.freq_base";
    m.odd_number = -1;
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "llama.rope.freq_base: expected a positive number, found -1");
    m.odd_key = "llama.rope.scaling.type";
    m.odd_text = "yarn";
    check_refused(&m, NULL, SPECRT_STATUS_UNSUPPORTED, "'yarn' is not supported");
    m.odd_key = "llama.attention.layer_norm_rms_epsilon", m.odd_text = NULL, m.odd_number = 0;
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT, "layer_norm_rms_epsilon: expected a positive");
    m.odd_key = "llama.attn_logit_softcapping", m.odd_number = 50;
    check_refused(&m, NULL, SPECRT_STATUS_UNSUPPORTED, "attn_logit_softcapping: expected scores");
    m.odd_key = NULL;
    m.k.heads = 3; /* of two key heads */
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "attention.head_count_kv: does not divide attention.head_count");
    m.k.heads = k.heads, m.k.d_head = 7;
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT, "attention.key_length: is not even");
    m.k = k, m.k.arch = "mamba";
    check_refused(&m, NULL, SPECRT_STATUS_UNSUPPORTED, "mamba");
    free_tiny(&m);
    make_tiny(&m, shapes[LLAMA], 5);
    REQUIRE(strcmp(m.tensors[3].name, "rope_freqs.weight") == 0);
    for (int i = 0; i < 3; i++) {
        m.tensors[3].data[4] = (float[]){0, -1, NAN}[i];
        check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT, "rope_freqs.weight: e");
    }
    free_tiny(&m);
}

static void check_gemma_refused(tiny_model *m, const char *key, const char *text, float number,
                                specrt_status status, const char *says) {
    m->odd_key = key;
    m->odd_text = text;
    m->odd_number = number;
    check_refused(m, NULL, status, says);
    m->odd_key = NULL;
}

TEST(bad_gemma, "what a Gemma 3 file says wrongly is refused by name") {
    tiny_model m;
    make_tiny(&m, shapes[GEMMA], 5);
    check_refused(&m, "blk.2.post_ffw_norm.weight", SPECRT_STATUS_BAD_INPUT,
                  "blk.2.post_ffw_norm.weight: missing; expected [24]");
    check_refused(&m, "blk.2.attn_q_norm.weight", SPECRT_STATUS_BAD_INPUT,
                  "blk.2.attn_q_norm.weight: missing; expected [16]");
    m.k.window = -1; /* as unsigned */
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "gemma3.attention.sliding_window: expected a number from 0 to 2147483647, found "
                  "4294967295");
    m.k.window = 5, m.k.period = 1025;
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "gemma3.attention.sliding_window_pattern: expected a number from 1 to 1024, "
                  "found 1025");
    m.k.period = 0, m.k.window_base = m.k.softcap = 0;
    check_gemma_refused(&m, "gemma3.attention.sliding_window_pattern", "half", 0,
                        SPECRT_STATUS_BAD_INPUT, "from 1 to 1024, found another type");
    check_gemma_refused(&m, "gemma3.rope.freq_base_swa", NULL, -2, SPECRT_STATUS_BAD_INPUT,
                        "gemma3.rope.freq_base_swa: expected a positive number, found -2");
    check_gemma_refused(&m, "gemma3.final_logit_softcapping", NULL, -30, SPECRT_STATUS_BAD_INPUT,
                        "gemma3.final_logit_softcapping: expected a positive number, found -30");
    check_gemma_refused(&m, "gemma3.attn_logit_softcapping", NULL, 50, SPECRT_STATUS_UNSUPPORTED,
                        "gemma3.attn_logit_softcapping: expected scores of attention as they are, "
                        "found a cap of 50");
    m.k.rope_scale = 0;
    check_gemma_refused(&m, "gemma3.rope.scaling.type", "yarn", 0, SPECRT_STATUS_UNSUPPORTED,
                        "gemma3.rope.scaling.type: 'yarn' is not supported");
    m.k.rope_scale = 1e39; /* infinite in f32 */
    check_refused(&m, NULL, SPECRT_STATUS_BAD_INPUT,
                  "gemma3.rope.scaling.factor: expected a positive number, found inf");
    free_tiny(&m);
}

/* ---- EAGLE heads ----------------------------------------------------------------------------- */

static const struct {
    const char *ours, *theirs; /* names in tiny_model and in a checkpoint */
} eagle_names[] = {
    {"blk.0.attn_q.weight", "midlayer.self_attn.q_proj.weight"},
    {"blk.0.attn_k.weight", "midlayer.self_attn.k_proj.weight"},
    {"blk.0.attn_v.weight", "midlayer.self_attn.v_proj.weight"},
    {"blk.0.attn_output.weight", "midlayer.self_attn.o_proj.weight"},
    {"blk.0.ffn_gate.weight", "midlayer.mlp.gate_proj.weight"},
    {"blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight"},
    {"blk.0.ffn_down.weight", "midlayer.mlp.down_proj.weight"},
    {"blk.0.ffn_norm.weight", "midlayer.post_attention_layernorm.weight"},
    {"embedding_norm", "midlayer.input_layernorm.weight"},
    {"feature_norm", "midlayer.hidden_norm.weight"},
    {"final_norm", "norm.weight"},
    {"fc", "fc.weight"},
    {"head", "lm_head.weight"},
};
enum { N_EAGLE_NAMES = sizeof eagle_names / sizeof eagle_names[0], DRAFT_VOCAB = 9 };

/* The heads and widths of its target, so that no config.json is needed. */
static void make_eagle3(tiny_model *m, tiny k) {
    int q = k.heads * k.d_head, kv = k.kv_heads * k.d_head;
    *m = (tiny_model){.k = k};
    m->k.arch = "eagle3"; /* half rotation */
    add_tensor(m, "blk.0.attn_q.weight", q, 2 * k.d, 0, 0.3);
    add_tensor(m, "blk.0.attn_k.weight", kv, 2 * k.d, 0, 0.3);
    add_tensor(m, "blk.0.attn_v.weight", kv, 2 * k.d, 0, 0.3);
    add_tensor(m, "blk.0.attn_output.weight", k.d, q, 0, 0.4);
    add_tensor(m, "blk.0.ffn_gate.weight", k.ffn, k.d, 0, 0.4);
    add_tensor(m, "blk.0.ffn_up.weight", k.ffn, k.d, 0, 0.4);
    add_tensor(m, "blk.0.ffn_down.weight", k.d, k.ffn, 0, 0.4);
    add_tensor(m, "blk.0.ffn_norm.weight", 1, k.d, 1, 0.3);
    add_tensor(m, "embedding_norm", 1, k.d, 1, 0.3);
    add_tensor(m, "feature_norm", 1, k.d, 1, 0.3);
    add_tensor(m, "final_norm", 1, k.d, 1, 0.3);
    add_tensor(m, "fc", k.d, 3 * k.d, 0, 0.3);
    add_tensor(m, "head", DRAFT_VOCAB, k.d, 0, 0.4);
}

/* d2t: i64 [DRAFT_VOCAB]; NULL: leaves the head out, too, which comes last */
static const char *write_eagle3(const tiny_model *m, const int64_t *d2t) {
    static char path[64];
    st_tensor tensors[N_EAGLE_NAMES + 1];
    int n = d2t ? N_EAGLE_NAMES + 1 : N_EAGLE_NAMES - 1;
    out_file out;
    specrt_error err;
    for (int i = 0; i < N_EAGLE_NAMES; i++) {
        const tensor *t = &m->tensors[i];
        CHECK_STR(t->name, eagle_names[i].ours);
        tensors[i] = (st_tensor){.name = eagle_names[i].theirs,
                                 .dtype = "F32",
                                 .n_dims = t->rows > 1 ? 2 : 1,
                                 .shape = {t->rows > 1 ? t->rows : t->cols, t->cols},
                                 .data = (const uint8_t *)t->data,
                                 .bytes = (size_t)t->rows * (size_t)t->cols * 4};
    }
    tensors[N_EAGLE_NAMES] = (st_tensor){.name = "d2t",
                                         .dtype = "I64",
                                         .n_dims = 1,
                                         .shape = {DRAFT_VOCAB},
                                         .data = (const uint8_t *)d2t,
                                         .bytes = 8 * DRAFT_VOCAB};
    snprintf(path, sizeof path, "/tmp/specrt-eagle3-%d.safetensors", (int)getpid());
    REQUIRE(sl_out_open(&out, path, true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_write(tensors, n, NULL, 0, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    return path;
}

/* Features g [n][d] in; hidden and query out, by the definition (methods of EAGLE-3). */
static void oracle_eagle3(const tiny_model *m, const tiny_model *target, const int32_t *tokens,
                          int n, double x[MAX_N][MAX_WIDTH], double query[MAX_N][MAX_WIDTH]) {
    static double in[MAX_N][MAX_WIDTH];
    const float *embedding = weights(target, -1, "token_embd.weight");
    int d = m->k.d;
    for (int t = 0; t < n; t++) {
        double e[MAX_WIDTH];
        for (int i = 0; i < d; i++) e[i] = (double)embedding[tokens[t] * d + i];
        norm(e, weights(m, -1, "embedding_norm"), d, in[t]);
        norm(x[t], weights(m, -1, "feature_norm"), d, in[t] + d);
    }
    oracle_attention(m, 0, n, in, 2 * d, x);
    oracle_ffn(m, 0, n, x);
    for (int t = 0; t < n; t++) norm(x[t], weights(m, -1, "final_norm"), d, query[t]);
}

TEST(eagle3, "an EAGLE-3 head equals its definition in double") {
    enum { N = 9, D = 24 };
    static const tiny shape = {"qwen3", 6, D, 3, 1, 16, 40, 29, .tied = true, .normed = true};
    static float taps[ENGINE_MAX_BATCH][3 * D], hidden[N][D], query[N][D];
    static double x[MAX_N][MAX_WIDTH], expected[MAX_N][MAX_WIDTH];
    int64_t d2t[DRAFT_VOCAB];
    int32_t tokens[N + 1], layers[ENGINE_MAX_TAPS];
    tiny_model target, eagle;
    specrt_error err = {0};
    engine_cache *c, *draft;
    engine_drafter *d;
    for (int i = 0; i < DRAFT_VOCAB; i++) d2t[i] = 2 * i; /* row i stands for token 3 i */
    make_tiny(&target, shape, 99);
    make_eagle3(&eagle, shape);
    engine_model *e = open_tiny(&target, 2);
    const char *path = write_eagle3(&eagle, d2t);
    specrt_status status = engine_drafter_open(path, e, &d, &err);
    unlink(path);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    REQUIRE(engine_cache_create(e, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_cache(d, 0, &draft, &err) == SPECRT_STATUS_OK);
    random_tokens(tokens, N + 1, shape.vocab);
    CHECK_INT(engine_drafter_features(d, layers), 3);
    CHECK(layers[0] == 2 && layers[1] == 3 && layers[2] == 3);
    static const int32_t first[] = {0, 2, 3};
    const float *embedding = weights(&target, -1, "token_embd.weight");
    engine_tap(c, first, 3, taps[0]);
    REQUIRE(engine_forward(c, tokens, N, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    for (int t = 0; t < N; t++)
        CHECK(memcmp(taps[t], embedding + tokens[t] * D, sizeof(float) * D) == 0);
    engine_cache_truncate(c, 0);
    engine_tap(c, layers, 3, taps[0]);
    REQUIRE(engine_forward(c, tokens, N, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    for (int t = 0; t < N; t++) {
        double in[3 * D];
        for (int i = 0; i < 3 * D; i++) in[i] = (double)taps[t][i];
        CHECK(memcmp(taps[t] + D, taps[t] + 2 * D, sizeof(float) * D) == 0); /* both layer 3 */
        mat_vec(weights(&eagle, -1, "fc"), in, D, 3 * D, NULL, x[t]);
    }
    oracle_eagle3(&eagle, &target, tokens + 1, N, x, expected);
    REQUIRE(engine_draft(d, draft, tokens + 1, taps[0], 3 * D, N, NULL, hidden[0], query[0]) ==
            SPECRT_STATUS_OK);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++) {
            CHECK_NEAR((double)hidden[t][i], x[t][i], 1e-4);
            CHECK_NEAR((double)query[t][i], expected[t][i], 1e-4);
        }
    specrt_head_desc head;
    engine_drafter_head(d, &head);
    CHECK_INT(head.n_rows, DRAFT_VOCAB);
    for (int i = 0; i < DRAFT_VOCAB; i++) CHECK_INT(head.ids[i], 3 * i);
    CHECK(engine_draft(d, draft, tokens, taps[0], 2 * D, 1, NULL, hidden[0], query[0]) ==
          SPECRT_STATUS_BAD_ARG);
    engine_cache_close(draft);
    engine_cache_close(c);
    engine_drafter_close(d);
    d2t[DRAFT_VOCAB - 1] = 21; /* token 29 of 29 */
    path = write_eagle3(&eagle, d2t);
    CHECK(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "d2t");
    unlink(path);
    engine_close(e);
    free_tiny(&target);
    free_tiny(&eagle);
}

TEST(eagle3_decode, "a head of few tokens drafts without loss") {
    static const tiny shape = {"qwen3", 6, 24, 3, 1, 16, 40, 29, .tied = true, .normed = true};
    int64_t d2t[DRAFT_VOCAB];
    tiny_model target, eagle;
    specrt_error err = {0};
    engine_drafter *d;
    for (int i = 0; i < DRAFT_VOCAB; i++) d2t[i] = 26 - 4 * i; /* 26, 23, ... 2 */
    make_tiny(&target, shape, 99);
    make_eagle3(&eagle, shape);
    engine_model *e = open_tiny(&target, 2);
    for (int own = 0; own < 2; own++) {
        specrt_head_desc head;
        const char *path = write_eagle3(&eagle, own ? d2t : NULL);
        REQUIRE(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_OK);
        unlink(path);
        engine_drafter_head(d, &head);
        CHECK_INT(head.n_rows, own ? DRAFT_VOCAB : shape.vocab);
        CHECK((head.ids != NULL) == (own == 1));
        check_lossless(e, d);
        engine_drafter_close(d);
    }
    engine_close(e);
    free_tiny(&target);
    free_tiny(&eagle);
}

enum { ROUNDS = 5, ANSWER = 40 };

/* The same answer over and over, by chains of a drafter that learns, or stays where params is NULL.
 * @return the cycles of the last one. */
static int64_t decode_rounds(const engine_model *e, engine_drafter *drafter,
                             const engine_controller_params *params, const int32_t *expected,
                             engine_controller_stats *stats) {
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    specrt_session_params session = {.tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4}};
    specrt_session_stats sums = {0};
    specrt_head_desc desc;
    specrt_error err = {0};
    engine_controller *c = NULL;
    int32_t n_vocab = engine_get_config(e)->n_vocab;
    engine_drafter_head(drafter, &desc);
    specrt_head *head = bind_head(NULL, &desc);
    specrt_policy_desc p = {.text = "full", .n_vocab = n_vocab};
    specrt_policy *policy = create_policy(NULL, head, &p);
    over o = over_models(e, drafter, policy, &session, 0, 0);
    decoder *d = o.decoder;
    if (params)
        REQUIRE(engine_controller_create(drafter, head, n_vocab, 64, params, &c, &err) ==
                SPECRT_STATUS_OK);
    own_align(o.sequence, c, decoder_session(d), false);
    for (int round = 0; round < ROUNDS; round++) {
        const specrt_verdict *v;
        REQUIRE(decoder_begin(d, NULL, prompt, 8, &err) == SPECRT_STATUS_OK);
        for (int32_t n = 0; n < ANSWER; n += v->n) {
            REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK && v->n > 0);
            for (int32_t i = 0; i < v->n && n + i < ANSWER; i++)
                CHECK_INT(v->tokens[i], expected[n + i]);
        }
        specrt_session_get_stats(decoder_session(d), &sums);
    }
    if (c) engine_controller_get_stats(c, stats);
    over_free(&o);
    engine_controller_free(c);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return sums.n_cycles;
}

/* Tokens of the answer first, in their order, then others. */
static void list_head(const int32_t *answer, int32_t n_vocab, int64_t *d2t) {
    bool taken[64] = {false};
    int n = 0;
    for (int i = 0; i < ANSWER + n_vocab && n < DRAFT_VOCAB; i++) {
        int32_t id = i < ANSWER ? answer[i] : i - ANSWER;
        if (!taken[id]) d2t[n] = id - n, n++;
        taken[id] = true;
    }
}

/* An EAGLE-3 pair from end to end: inputs of two halves, a head of few tokens, and a norm before it. Steps at
 * a rate of 0 find the divergence that was seen; at another the drafter learns the answer, with lists, a
 * guard and several domains too, and no token changes. */
TEST(eagle3_align, "an EAGLE-3 head learns while it drafts") {
    static const tiny shape = {"qwen3", 6, 24, 3, 1, 16, 40, 29, .tied = true, .normed = true};
    engine_controller_params params = ENGINE_CONTROLLER_DEFAULTS;
    engine_controller_stats stats;
    int32_t answer[ANSWER];
    int64_t d2t[DRAFT_VOCAB];
    tiny_model target, eagle;
    specrt_error err = {0};
    engine_drafter *d;
    make_tiny(&target, shape, 99);
    make_eagle3(&eagle, shape);
    engine_model *e = open_tiny(&target, 2);
    decode_tokens(e, NULL, NULL, answer, ANSWER);
    list_head(answer, 29, d2t);
    const char *path = write_eagle3(&eagle, d2t);
    REQUIRE(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    int64_t frozen = decode_rounds(e, d, NULL, answer, &stats);
    params.align.rank = 4, params.align.alpha = 4, params.align.rate = 0;
    params.gate.n_batch = 1, params.gate.beta = 0, params.gate.epsilon = 0;
    CHECK(decode_rounds(e, d, &params, answer, &stats) == frozen);
    CHECK(stats.n_steps > ROUNDS && stats.n_kept == stats.n_learnt);
    CHECK_NEAR(stats.loss, stats.divergence, 2e-3 * stats.divergence);
    params.align.rate = 0.02f, params.gate.n_batch = 8;
    CHECK(decode_rounds(e, d, &params, answer, &stats) < frozen);
    params.guard = 1;
    CHECK(decode_rounds(e, d, &params, answer, &stats) < frozen);
    CHECK_INT(stats.n_looks, ROUNDS - 1);
    params.align.rate = 1e9f, params.guard = 0;
    decode_rounds(e, d, &params, answer, &stats);
    params.align.mode = ENGINE_ALIGN_FULL, params.interval = 1; /* OSD */
    params.align.rate = 0;
    CHECK(decode_rounds(e, d, &params, answer, &stats) == frozen);
    CHECK(stats.n_steps == ROUNDS - 1 && stats.n_learnt > ROUNDS);
    params.align.rate = 0.01f;
    CHECK(decode_rounds(e, d, &params, answer, &stats) < frozen);
    engine_drafter_close(d);
    engine_close(e);
    free_tiny(&target);
    free_tiny(&eagle);
}

/* Logits of a drafter's head are those of its own passes, cap included; its probabilities are the model's. */
static void check_capped(engine_model *e, engine_drafter *d) {
    enum { N = 5, D = 24, V = 37 };
    static const int32_t tokens[N] = {3, 1, 4, 1, 5};
    float hidden[N * D], logits[N * V];
    double rms;
    specrt_head_desc head;
    specrt_error err = {0};
    engine_cache *c;
    REQUIRE(engine_cache_create(e, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(c, tokens, N, NULL, hidden, logits) == SPECRT_STATUS_OK);
    engine_drafter_head(d, &head);
    CHECK(head.softcap == 4);
    CHECK_INT(specrt_head_check_states(&head, hidden, N, logits, V, &rms, &err), SPECRT_STATUS_OK);
    CHECK(rms < 1e-5);
    head.softcap = 0;
    CHECK_INT(specrt_head_check_states(&head, hidden, N, logits, V, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    engine_cache_close(c);
}

TEST(gemma_decode, "a Gemma 3 that drafts for itself, without loss") {
    tiny_model m;
    specrt_error err = {0};
    engine_drafter *d;
    make_tiny(&m, shapes[GEMMA], 99);
    engine_model *e = open_tiny(&m, 2);
    const char *path = write_tiny(&m, NULL);
    REQUIRE(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    check_capped(e, d);
    check_lossless(e, d);
    engine_drafter_close(d);
    engine_close(e);
    free_tiny(&m);
}

enum { PADDED = 29, TOKENS = 18, HOT = 48 }; /* columns of logits, those that are tokens */

/* An answer at a temperature where each column is drawn sooner or later; without a drafter plainly. */
static void decode_hot(const engine_model *e, const engine_drafter *drafter,
                       const specrt_sampling *sampling, int32_t *out) {
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    const specrt_policy_desc desc = {.text = "full", .n_vocab = TOKENS};
    const specrt_session_params params = {.tree = {.num_steps = 3, .topk = 3}};
    const specrt_request request = {.max_tokens = HOT, .sampling = sampling};
    const specrt_verdict *v;
    specrt_head_desc rows;
    specrt_head *head = NULL;
    specrt_policy *policy = NULL;
    specrt_error err;
    if (drafter) {
        engine_drafter_head(drafter, &rows);
        head = bind_head(NULL, &rows);
        policy = create_policy(NULL, head, &desc);
    }
    over o = over_models(e, drafter, policy, &params, TOKENS, 0);
    decoder *d = o.decoder;
    REQUIRE(decoder_begin(d, &request, prompt, 8, &err) == SPECRT_STATUS_OK);
    do {
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK);
        for (int32_t i = 0; i < v->n; i++) CHECK((*out++ = v->tokens[i]) < TOKENS);
    } while (v->end == SPECRT_END_NONE);
    over_free(&o);
    specrt_policy_close(policy);
    specrt_head_close(head);
}

/* Columns behind the vocabulary are emitted by nobody, with drafts or without. Draws have the key that the
 * request names: one key one answer, another key another. */
TEST(padded_sampling, "padding is drawn by nobody; keys are the request's") {
    static const tiny shape = {"llama", 2, 24, 3, 1, 8, 40, PADDED, .tied = true};
    const specrt_sampling keys[3] = {
        {.temperature = 100, .seed = 1, .session = 1},
        {.temperature = 100, .seed = 1, .session = 2},
        {.temperature = 100, .seed = 1, .session = 1, .generation = 1}};
    int32_t plain[3][HOT], drafted[HOT];
    tiny_model m;
    engine_drafter *d;
    specrt_error err;
    make_tiny(&m, shape, 99);
    engine_model *e = open_tiny(&m, 1);
    const char *path = write_tiny(&m, NULL);
    REQUIRE(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    for (int i = 0; i < 3; i++) {
        decode_hot(e, NULL, &keys[i], plain[i]);
        decode_hot(e, d, &keys[i], drafted);
        CHECK(memcmp(plain[i], drafted, sizeof drafted) == 0);
        for (int j = 0; j < i; j++) CHECK(memcmp(plain[i], plain[j], sizeof plain[i]) != 0);
    }
    engine_drafter_close(d);
    engine_close(e);
    free_tiny(&m);
}
