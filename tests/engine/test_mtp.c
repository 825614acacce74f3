/* test_mtp.c : MTP modules of every family of names against their definition in double, over recurrent
 * steps; drafts without loss; and files that do not fit. */
#include "formats/safetensors.h"
#include "tiny.h"

enum { D = 24, LAYERS = 2, N = 9, STEPS = 4 };

/* A model of LAYERS layers whose file goes on with a module, which is written as safetensors, too. */
static const tiny shapes[] = {
    {"qwen3", LAYERS, D, 3, 1, 16, 40, 29, .tied = true, .normed = true, .tail = 1},
    {"qwen2", LAYERS, D, 4, 2, 8, 40, 31, .biased = true, .tail = 1},
    {"llama", LAYERS, D, 4, 2, 6, 40, 33,
     .tail = 1}, /* pairs of adjacent columns turn: GGUF alone */
};

enum { PROJECTION, EMBEDDING_NORM, STATE_NORM, FINAL_NORM, EMBEDDING, HEAD, N_PARTS };
static const char *const parts[N_PARTS] = {
    "nextn.eh_proj.weight",          "nextn.enorm.weight",        "nextn.hnorm.weight",
    "nextn.shared_head_norm.weight", "nextn.embed_tokens.weight", "nextn.shared_head_head.weight"};

typedef struct family {
    const char *layer, *names[N_PARTS]; /* in safetensors; NULL: the target's */
    bool raw_state;
} family;

static const family deepseek = {
    "model.layers.2.",
    {"model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight", "model.layers.2.hnorm.weight",
     "model.layers.2.shared_head.norm.weight", "model.layers.2.embed_tokens.weight",
     "model.layers.2.shared_head.head.weight"},
    .raw_state = true};
static const family qwen = {"mtp.layers.0.",
                            {"mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight",
                             "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight", NULL, NULL},
                            .raw_state = false};

/* own : with an embedding and a head of its own */
static void make_pair(tiny_model *m, const tiny *k, bool own) {
    make_tiny(m, *k, 7);
    add_layer_tensor(m, LAYERS, parts[PROJECTION], k->d, 2 * k->d, 0, 0.3);
    add_layer_tensor(m, LAYERS, parts[EMBEDDING_NORM], 1, k->d, 1, 0.3);
    add_layer_tensor(m, LAYERS, parts[STATE_NORM], 1, k->d, 1, 0.3);
    add_layer_tensor(m, LAYERS, parts[FINAL_NORM], 1, k->d, 1, 0.3);
    if (!own) return;
    add_layer_tensor(m, LAYERS, parts[EMBEDDING], k->vocab, k->d, 0, 1);
    add_layer_tensor(m, LAYERS, parts[HEAD], k->vocab, k->d, 0, 0.5);
}

static const tensor *find_tensor(const tiny_model *m, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", LAYERS, name);
    for (int i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, full) == 0) return &m->tensors[i];
    return NULL;
}

/* `skip` leaves out the part that has this name. @return the path, to unlink. */
static const char *write_safetensors(const tiny_model *m, const family *f, const char *skip) {
    static char path[64], names[N_LAYER_NAMES][96];
    st_tensor tensors[N_LAYER_NAMES + N_PARTS];
    int n = 0;
    out_file out;
    specrt_error err;
    for (int i = 0; i < N_LAYER_NAMES + N_PARTS; i++) {
        bool layer = i < N_LAYER_NAMES;
        const tensor *t = find_tensor(m, layer ? layer_names[i][0] : parts[i - N_LAYER_NAMES]);
        const char *name = layer ? names[i] : f->names[i - N_LAYER_NAMES];
        if (layer) snprintf(names[i], sizeof names[i], "%s%s", f->layer, layer_names[i][1]);
        if (!t || !name || (skip && strcmp(name, skip) == 0)) continue;
        tensors[n++] = (st_tensor){.name = (char *)name,
                                   .dtype = "F32",
                                   .n_dims = t->rows > 1 ? 2 : 1,
                                   .shape = {t->rows > 1 ? t->rows : t->cols, t->cols},
                                   .data = (const uint8_t *)t->data,
                                   .bytes = (size_t)t->rows * (size_t)t->cols * 4};
    }
    snprintf(path, sizeof path, "/tmp/specrt-mtp-%d.safetensors", (int)getpid());
    REQUIRE(sl_out_open(&out, path, true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_write(tensors, n, NULL, 0, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    return path;
}

/* f : NULL: the GGUF of the whole model */
static const char *write_pair(const tiny_model *m, const family *f, const char *skip) {
    return f ? write_safetensors(m, f, skip) : write_tiny(m, skip);
}

/* x: states [n], of which it makes what the layer gives; query: what the head reads. */
static void oracle_mtp(const tiny_model *m, const int32_t *tokens, int n,
                       double x[MAX_N][MAX_WIDTH], double query[MAX_N][MAX_WIDTH]) {
    static double in[MAX_N][MAX_WIDTH];
    const float *own = weights(m, LAYERS, parts[EMBEDDING]);
    const float *embedding = own ? own : weights(m, -1, "token_embd.weight");
    for (int t = 0; t < n; t++) {
        double pair[2 * D], e[D];
        for (int i = 0; i < D; i++) e[i] = (double)embedding[tokens[t] * D + i];
        norm(e, weights(m, LAYERS, parts[EMBEDDING_NORM]), D, pair);
        norm(x[t], weights(m, LAYERS, parts[STATE_NORM]), D, pair + D);
        mat_vec(weights(m, LAYERS, parts[PROJECTION]), pair, D, 2 * D, NULL, x[t]);
        norm(x[t], weights(m, LAYERS, "attn_norm.weight"), D, in[t]);
    }
    oracle_attention(m, LAYERS, n, in, D, x);
    oracle_ffn(m, LAYERS, n, x);
    for (int t = 0; t < n; t++) norm(x[t], weights(m, LAYERS, parts[FINAL_NORM]), D, query[t]);
}

/* N states of the target, committed, then STEPS - 1 of the module's own: each step computed anew from all. */
static void check_steps(const engine_drafter *d, const tiny_model *m, bool raw_state) {
    static const int32_t nodes[N] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static double states[MAX_N][MAX_WIDTH], x[MAX_N][MAX_WIDTH], query[MAX_N][MAX_WIDTH];
    float features[N][D], hidden[N][D], read[N][D];
    int32_t tokens[N + STEPS];
    engine_cache *c;
    specrt_error err;
    for (int t = 0; t < N + STEPS; t++) tokens[t] = (int32_t)((random_real() + 1) / 2 * m->k.vocab);
    for (int i = 0; i < N * D; i++)
        states[i / D][i % D] = (double)(features[i / D][i % D] = (float)random_real());
    REQUIRE(engine_drafter_cache(d, 0, &c, &err) == SPECRT_STATUS_OK);
    for (int step = 0, n = N; step < STEPS; step++, n++) {
        int32_t rows = step ? 1 : N, last = rows - 1;
        REQUIRE(engine_draft(d, c, tokens + n - rows, features[0], D, rows, NULL, hidden[0],
                             read[0]) == SPECRT_STATUS_OK);
        if (!step) engine_keep(c, nodes, N);
        memcpy(x, states, sizeof x);
        oracle_mtp(m, tokens, n, x, query);
        for (int i = 0; i < D; i++) {
            double next = raw_state ? x[n - 1][i] : query[n - 1][i];
            CHECK_NEAR((double)read[last][i], query[n - 1][i], 1e-4);
            CHECK_NEAR((double)hidden[last][i], next, 1e-4);
            states[n][i] = next;
            features[0][i] = hidden[last][i];
        }
    }
    CHECK(engine_draft(d, c, tokens, features[0], 3 * D, 1, NULL, hidden[0], read[0]) ==
          SPECRT_STATUS_BAD_ARG);
    engine_cache_close(c);
}

/* The target's layers are the first ones alone. */
static void check_target(const engine_model *e, const tiny_model *m) {
    int32_t tokens[N];
    float logits[N * 40];
    static double expected[N * 40];
    engine_cache *c;
    specrt_error err;
    CHECK_INT(engine_get_config(e)->n_layers, LAYERS);
    for (int t = 0; t < N; t++) tokens[t] = t;
    REQUIRE(engine_cache_create(e, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(c, tokens, N, NULL, NULL, logits) == SPECRT_STATUS_OK);
    oracle(m, tokens, N, expected);
    for (int i = 0; i < N * m->k.vocab; i++) CHECK_NEAR((double)logits[i], expected[i], 1e-3);
    engine_cache_close(c);
}

static void check_pair(const tiny *shape, const family *f, bool own) {
    tiny_model m;
    engine_drafter *d;
    specrt_head_desc head, targets;
    specrt_error err = {0};
    make_pair(&m, shape, own);
    engine_model *e = open_tiny(&m, 2);
    check_target(e, &m);
    const char *path = write_pair(&m, f, NULL);
    specrt_status status = engine_drafter_open(path, e, &d, &err);
    unlink(path);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    CHECK(!engine_drafter_is_model(d));
    engine_drafter_head(d, &head);
    engine_head(e, &targets);
    CHECK_INT(head.n_rows, shape->vocab);
    CHECK((head.rows == targets.rows) == !(own && (!f || f->names[HEAD])));
    check_steps(d, &m, f && f->raw_state);
    check_lossless(e, d);
    engine_drafter_close(d);
    engine_close(e);
    free_tiny(&m);
}

TEST(families, "a module equals its definition, and drafts without loss") {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_pair(&shapes[i], NULL, i == 0);
        if (strcmp(shapes[i].arch, "llama") == 0) continue;
        check_pair(&shapes[i], &deepseek, i == 1);
        check_pair(&shapes[i], &qwen, false);
    }
}

static void check_refused(const engine_model *target, const tiny_model *m, const family *f,
                          const char *skip, const char *why) {
    engine_drafter *d;
    specrt_error err;
    const char *path = write_pair(m, f, skip);
    CHECK(engine_drafter_open(path, target, &d, &err) == SPECRT_STATUS_BAD_INPUT);
    unlink(path);
    CHECK_HAS(err.msg, why);
}

TEST(bad_files, "files that do not fit are refused by name") {
    tiny wide = shapes[0], other = shapes[0];
    tiny_model m, another;
    make_pair(&m, &shapes[0], true);
    engine_model *e = open_tiny(&m, 1);
    for (int i = EMBEDDING_NORM; i <= FINAL_NORM; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", LAYERS, parts[i]);
        check_refused(e, &m, NULL, name, name);
        check_refused(e, &m, &deepseek, deepseek.names[i], deepseek.names[i]);
        check_refused(e, &m, &qwen, qwen.names[i], qwen.names[i]);
    }
    check_refused(e, &m, &qwen, "mtp.fc.weight", "expected"); /* what it is, is not known */
    wide.d = 32;
    make_pair(&another, &wide, false);
    check_refused(e, &another, NULL, "blk.0.attn_norm.weight",
                  "embedding_length: expected the target's 24, found 32");
    check_refused(e, &another, &qwen, NULL, "mtp.fc.weight: expected [24, 48], found [32, 64]");
    free_tiny(&another);
    other.vocab = 30;
    make_pair(&another, &other, true);
    check_refused(e, &another, NULL, NULL,
                  "embed_tokens.weight: expected [29, 24], found [30, 24]");
    check_refused(e, &another, &deepseek, "model.layers.2.embed_tokens.weight",
                  "shared_head.head.weight: expected a matrix of 1 to 29 rows");
    free_tiny(&another);
    engine_close(e);
    free_tiny(&m);
}

/* A draft model with fewer ids than the target reads the others as one that it knows. */
TEST(fewer_ids, "a draft model with fewer ids than the target") {
    static const tiny target = {"llama", 2, D, 4, 2, 6, 40, 33, .tied = true},
                      few = {"llama", 1, D, 4, 2, 6, 40, 30, .tied = true};
    static const int32_t tokens[][2] = {{29, 30}, {29, 0}, {29, 32}};
    tiny_model m, draft;
    specrt_error err;
    engine_drafter *d;
    engine_cache *c;
    float hidden[3][2 * D], query[2 * D];
    make_tiny(&m, target, 7);
    make_tiny(&draft, few, 8);
    engine_model *e = open_tiny(&m, 1);
    const char *path = write_tiny(&draft, NULL);
    REQUIRE(engine_drafter_open(path, e, &d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    REQUIRE(engine_drafter_cache(d, 0, &c, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 3; i++) {
        engine_cache_truncate(c, 0);
        REQUIRE(engine_draft(d, c, tokens[i], NULL, 0, 2, NULL, hidden[i], query) ==
                SPECRT_STATUS_OK);
        CHECK(memcmp(hidden[i], hidden[0], sizeof hidden[0]) == 0);
    }
    CHECK_INT(engine_draft(d, c, tokens[0], NULL, 0, 0, NULL, hidden[0], query),
              SPECRT_STATUS_BAD_ARG);
    engine_cache_close(c);
    engine_drafter_close(d);
    engine_close(e);
    free_tiny(&m);
    free_tiny(&draft);
}
