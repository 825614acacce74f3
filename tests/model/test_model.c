/* test_model.c : which file, which tensor is the head, and models small enough to know by heart. */
#include "model/head_check.h"
#include "model/model.h"
#include "opened.h"
#include "st_build.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* The bytes of every tensor here; the longest is two rows of 256 numbers in iq4_xs, 272 bytes. */
static const float numbers[68] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static gguf_tensor in_gguf(const char *name, uint32_t type, int64_t cols, int64_t rows,
                           size_t bytes) {
    gguf_tensor t = {.n_dims = 2, .dims = {cols, rows, 1, 1}, .type = type, .bytes = bytes};
    snprintf(t.name, sizeof t.name, "%s", name);
    t.data = (const uint8_t *)numbers;
    return t;
}

static void put_gguf(const char *name, const gguf_tensor *tensors, int n) {
    static const uint8_t empty[24] = {'G', 'G', 'U', 'F', 3};
    specrt_error err;
    out_file out;
    gguf *g;
    REQUIRE(sl_gguf_open_memory(empty, sizeof empty, "empty", &g, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_open(&out, in_folder(name), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_rewrite(g, tensors, n, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    sl_gguf_close(g);
}

/* The head of the model is the tensor `expected`; NULL: it has none, as `say` says. */
static void check_head(const char *file, const char *expected, const char *say) {
    model m;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_head_desc head;
    const char *name = NULL;
    REQUIRE(sl_model_open(in_folder(file), &m, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_model_head(&m, NULL, &head, &name, &err),
              expected ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_INPUT);
    if (expected)
        CHECK_STR(name, expected);
    else
        CHECK_HAS(err.msg, say);
    sl_model_close(&m);
}

TEST(heads, "heads, tied embeddings and what config.json says") {
    st_tensor both[] = {f32("lm_head.weight", 4, 2), f32("model.embed_tokens.weight", 4, 2)};
    st_tensor vision = f32("model.language_model.embed_tokens.weight", 4, 2);
    st_tensor none = f32("fc.weight", 4, 2);
    put_st("model.safetensors", both, 2);
    check_head("model.safetensors", "lm_head.weight", NULL);
    put_json("config.json", "{\"tie_word_embeddings\":true}");
    check_head("model.safetensors", "model.embed_tokens.weight", NULL);
    put_json("config.json", "{\"text_config\":{\"tie_word_embeddings\":false}}");
    check_head("model.safetensors", "lm_head.weight", NULL);
    put_st("model.safetensors", both + 1, 1);
    check_head("model.safetensors", NULL, "config.json does not tie the embedding");
    put_json("config.json", "{}");
    check_head("model.safetensors", "model.embed_tokens.weight", NULL);
    put_st("model.safetensors", &vision, 1);
    check_head("model.safetensors", "model.language_model.embed_tokens.weight", NULL);
    put_st("model.safetensors", &none, 1);
    check_head("model.safetensors", NULL, "expected lm_head.weight; name its tensor, ");
    put_st("model.safetensors", NULL, 0);
    check_head("model.safetensors", NULL, "it has none");
    gguf_tensor tied[] = {in_gguf("token_embd.weight", SPECRT_DTYPE_F32, 2, 4, 32),
                          in_gguf("output.weight", SPECRT_DTYPE_F32, 2, 4, 32)};
    put_gguf("a.gguf", tied, 2);
    check_head("a.gguf", "output.weight", NULL);
    put_gguf("a.gguf", tied, 1);
    check_head("a.gguf", "token_embd.weight", NULL);
    clear_folder();
}

TEST(bias, "the head's bias comes along, of the right length") {
    st_tensor tensors[] = {f32("lm_head.weight", 3, 2), f32("lm_head.bias", 3, 0)};
    model m;
    specrt_error err;
    specrt_head_desc head;
    put_st("model.safetensors", tensors, 2);
    REQUIRE(sl_model_open(folder(), &m, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_model_head(&m, NULL, &head, NULL, &err) == SPECRT_STATUS_OK);
    REQUIRE(head.bias);
    CHECK_NEAR((double)head.bias[2], 2, 0);
    sl_model_close(&m);
    tensors[1].shape[0] = 2, tensors[1].bytes = 8;
    put_st("model.safetensors", tensors, 2);
    REQUIRE(sl_model_open(folder(), &m, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_model_head(&m, NULL, &head, NULL, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "\"lm_head.bias\": 2 elements; expected 3");
    sl_model_close(&m);
    clear_folder();
}

/* The first bad row is named, whoever finds it; rows that will not be used are not looked at. */
TEST(numbers, "a number that no head has is named by its row") {
    enum { ROWS = 3000, COLS = 3 };
    float *x = (float *)calloc(ROWS * COLS, sizeof *x), *bias = (float *)calloc(ROWS, sizeof *bias);
    uint8_t *skip = (uint8_t *)calloc(ROWS, 1);
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_head_desc head = f32_rows(x, ROWS, COLS);
    head.bias = bias;
    x[7] = -65504;
    CHECK_INT(sl_head_check(&head, "h", NULL, 3, &err), SPECRT_STATUS_OK);
    x[COLS * 2999 + 2] = 65505, x[COLS * 700] = INFINITY, bias[650] = NAN;
    for (int threads = 1; threads < 5; threads++) {
        CHECK_INT(sl_head_check(&head, "h", NULL, threads, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_STR(err.msg, "\"h\": row 650: expected a finite bias of 65504 at most, found nan");
    }
    skip[650] = 1;
    CHECK_INT(sl_head_check(&head, "h", skip, 2, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "\"h\": row 700: expected a finite weight of 65504 at most, found inf");
    skip[700] = skip[2999] = 1;
    CHECK_INT(sl_head_check(&head, "h", skip, 2, &err), SPECRT_STATUS_OK);
    free(x), free(bias), free(skip);
}

TEST(d2t, "the tokens of a head's rows: offsets in safetensors, ids in GGUF") {
    static const struct {
        int64_t d2t[3];
        int32_t ids[3];
        const char *wrong;
    } rows[] = {
        {{0, 3, 1}, {0, 4, 3}, NULL},
        {{4, -1, 0}, {4, 0, 2}, NULL},
        {{5, 0, 0}, {0}, "entry 0 leads outside the target's 5 tokens"},
        {{0, -2, 0}, {0}, "entry 1 leads outside the target's 5 tokens"},
        {{0, 0, 3}, {0}, "entry 2 leads outside the target's 5 tokens"},
        {{1, 0, 2}, {0}, "token 1 twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        st_tensor t = {.name = "d2t", .dtype = "I64", .n_dims = 1, .shape = {3}, .bytes = 24};
        model m;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        int32_t *ids;
        t.data = (const uint8_t *)rows[i].d2t;
        put_st("d.safetensors", &t, 1);
        REQUIRE(sl_model_open(in_folder("d.safetensors"), &m, &err) == SPECRT_STATUS_OK);
        CHECK_INT(sl_model_d2t(&m, 3, 5, &ids, &err),
                  rows[i].wrong ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK);
        CHECK_HAS(err.msg, rows[i].wrong ? rows[i].wrong : "");
        if (ids) CHECK(memcmp(ids, rows[i].ids, sizeof rows[i].ids) == 0);
        CHECK((ids == NULL) == (rows[i].wrong != NULL));
        free(ids);
        CHECK_INT(sl_model_d2t(&m, 4, 5, &ids, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, "expected I64 [4], one for each row of the head");
        sl_model_close(&m);
    }
    static const int64_t absolute[] = {4, 0, 3};
    gguf_tensor g = in_gguf("d2t", SPECRT_DTYPE_I64, 3, 1, 24);
    model m;
    specrt_error err;
    int32_t *ids;
    g.n_dims = 1, g.data = (const uint8_t *)absolute;
    put_gguf("d.gguf", &g, 1);
    REQUIRE(sl_model_open(in_folder("d.gguf"), &m, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_model_d2t(&m, 3, 5, &ids, &err) == SPECRT_STATUS_OK);
    CHECK(ids[0] == 4 && ids[1] == 0 && ids[2] == 3);
    free(ids);
    CHECK_INT(sl_model_d2t(&m, 3, 4, &ids, &err), SPECRT_STATUS_BAD_INPUT);
    sl_model_close(&m);
    clear_folder();
}

TEST(matrices, "rows of a tensor, and what has none") {
    gguf_tensor tensors[] = {
        in_gguf("m", SPECRT_DTYPE_F32, 2, 4, 32), in_gguf("iq", 23, 256, 2, 272),
        in_gguf("ids", SPECRT_DTYPE_I64, 2, 2, 32), in_gguf("v", SPECRT_DTYPE_F32, 2, 1, 8)};
    model m;
    specrt_error err;
    specrt_head_desc rows;
    float row[2];
    tensors[3].n_dims = 1;
    put_gguf("a.gguf", tensors, 4);
    REQUIRE(sl_model_open(in_folder("a.gguf"), &m, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_model_matrix(&m, "m", &rows, &err) == SPECRT_STATUS_OK);
    CHECK_INT(rows.n_rows, 4);
    CHECK_INT(rows.n_cols, 2);
    specrt_row_decode(rows.dtype, (const uint8_t *)rows.rows + 3 * sizeof row, 2, row);
    CHECK_NEAR((double)row[1], 7, 0);
    CHECK_INT(sl_model_matrix(&m, "iq", &rows, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "type iq4_xs (23) is not supported; supported: f32 f16 q4_0");
    CHECK_HAS(err.msg, "q6_k iq4_nl bf16");
    CHECK_INT(sl_model_matrix(&m, "ids", &rows, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(sl_model_matrix(&m, "v", &rows, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected a matrix, found 1 dimension");
    CHECK_INT(sl_model_matrix(&m, "n", &rows, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "\"n\": missing; it has m, iq, ids, v");
    CHECK_INT(sl_model_n_params(&m), 8 + 512 + 4 + 2);
    sl_model_close(&m);
    gguf_tensor many[7];
    for (int i = 0; i < 7; i++) {
        many[i] = in_gguf("", SPECRT_DTYPE_F32, 2, 4, 32);
        memset(many[i].name, 'a' + i, i < 5 ? 4 : 60);
    }
    put_gguf("a.gguf", many, 7);
    REQUIRE(sl_model_open(in_folder("a.gguf"), &m, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_model_matrix(&m, "n", &rows, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "it has aaaa, bbbb, cccc, dddd, eeee, ffff");
    CHECK_HAS(err.msg, "ffff and 1 more");
    sl_model_close(&m);
    clear_folder();
}

TEST(n_params, "a tied embedding counts once") {
    st_tensor both[] = {f32("lm_head.weight", 4, 2), f32("model.embed_tokens.weight", 4, 2),
                        f32("norm.weight", 5, 0)};
    model m;
    specrt_error err;
    put_st("model.safetensors", both, 3);
    REQUIRE(sl_model_open(folder(), &m, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_model_n_params(&m), 21);
    sl_model_close(&m);
    put_json("config.json", "{\"tie_word_embeddings\":true}");
    REQUIRE(sl_model_open(folder(), &m, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_model_n_params(&m), 13);
    sl_model_close(&m);
    clear_folder();
}

static void check_folder(const char *expected, const char *say) {
    model m;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(sl_model_open(folder(), &m, &err),
              expected ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_INPUT);
    if (expected)
        CHECK_STR(m.path, in_folder(expected));
    else
        CHECK_HAS(err.msg, say);
    sl_model_close(&m);
}

TEST(folders, "the model inside a folder") {
    st_tensor head = f32("lm_head.weight", 4, 2);
    model m;
    specrt_error err;
    check_folder(NULL, "no model inside");
    put_gguf("a.gguf", NULL, 0);
    check_folder("a.gguf", NULL);
    put_gguf("a-00002-of-00002.gguf", NULL, 0);
    check_folder("a.gguf", NULL);
    put_gguf("b.gguf", NULL, 0);
    check_folder(NULL, "2 models inside (a.gguf, b.gguf); name one of them");
    put_st("model.safetensors", &head, 1);
    check_folder("model.safetensors", NULL);
    put_json("model.safetensors.index.json",
             "{\"weight_map\":{\"lm_head.weight\":\"model.safetensors\"}}");
    check_folder("model.safetensors.index.json", NULL);
    put_json("config.json", "{");
    check_folder(NULL, "config.json: expected a JSON object");
    REQUIRE(remove(in_folder("config.json")) == 0);
    REQUIRE(symlink("/dev/null", in_folder("config.json")) == 0);
    CHECK_INT(sl_model_open(folder(), &m, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "config.json: expected a file, found a pipe or device");
    CHECK_INT(sl_model_open(in_folder("config.json"), &m, &err), SPECRT_STATUS_IO);
    clear_folder();
}

TEST(not_models, "missing, empty and foreign files") {
    model m;
    specrt_error err;
    CHECK_INT(sl_model_open(in_folder("missing"), &m, &err), SPECRT_STATUS_IO);
    put_json("other", "");
    CHECK_INT(sl_model_open(in_folder("other"), &m, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "not a model; expected GGUF");
    put_json("other", "PK\3\4 a zip archive of some other framework");
    CHECK_INT(sl_model_open(in_folder("other"), &m, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "not a model; expected GGUF");
    put_json("other", "GGUF");
    CHECK_INT(sl_model_open(in_folder("other"), &m, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "header: the file ends");
    sl_model_close(&m);
    clear_folder();
}

TEST(real, "the sample pair") {
    model m;
    specrt_error err;
    specrt_head_desc head;
    const char *name;
    REQUIRE(sl_model_open(test_data("weights/pair128k/target.gguf"), &m, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_model_head(&m, NULL, &head, &name, &err) == SPECRT_STATUS_OK);
    CHECK_STR(name, "token_embd.weight");
    CHECK_INT(head.n_rows, 128256);
    CHECK_INT(head.n_cols, 256);
    CHECK_INT(head.dtype, SPECRT_DTYPE_Q8_0);
    CHECK(head.bias == NULL);
    CHECK_INT(sl_model_n_params(&m),
              128256 * 256 + 256 + 6 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 768 + 2 * 256));
    sl_model_close(&m);
    REQUIRE(sl_model_open(test_data("weights/pair128k/draft.safetensors"), &m, &err) ==
            SPECRT_STATUS_OK);
    CHECK_INT(m.tied, 1);
    CHECK_INT(sl_model_head(&m, NULL, &head, &name, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "uses; it has fc.bias, fc.weight, ");
    CHECK_INT(sl_model_head(&m, "fc.weight", &head, &name, &err), SPECRT_STATUS_OK);
    CHECK_INT(head.n_cols, 512);
    sl_model_close(&m);
}

TEST(foreign, "Llama2.c's own format is none of ours, and says so") {
    model m;
    specrt_error err;
    const char *path = test_data("weights/stories260K/stories260K.bin");
    CHECK_INT(sl_model_open(path, &m, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "stories260K.bin: not a model; expected GGUF, safetensors");
}
