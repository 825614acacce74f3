/* test_mtp_cut.c : GGUF files with MTP layers, cut to a list: whole models, sidecars, and what is refused. */
#include <math.h>
#include "base/io.h"
#include "folder.h"
#include "gguf_build.h"
#include "model/token_map.h"
#include "test.h"

enum { N_VOCAB = 40, N = 4, N_COLS = 32 };
static const int32_t ids[N] = {31, 2, 39, 7};
static const token_map map = {.ids = (int32_t *)(uintptr_t)ids, .n = N};
static const char own[] = "blk.2.nextn.shared_head_head.weight";
static specrt_error err;

/* A row's logit for a fixed state tells every row of every tensor from the others. */
static float logit(const gguf_tensor *t, int64_t row) {
    float cells[N_COLS], sum = 0;
    memcpy(cells, t->data + (size_t)row * sizeof cells, sizeof cells);
    for (int c = 0; c < N_COLS; c++) sum += cells[c] * (float)(c + 1);
    return sum;
}

/* A model of three layers, the last `n_mtp` of them MTP, with these tensors, and a d2t of n_d2t ids. */
static void put_model(const char *const *names, int n_names, uint32_t n_mtp, int64_t n_rows,
                      int n_d2t) {
    static float cells[4][N_VOCAB * N_COLS];
    static const int64_t d2t[] = {7, 38, 39, 31, 2};
    gguf_tensor tensors[5];
    gguf *g;
    int64_t n = 0;
    out_file out;
    for (int i = 0; i < n_names; i++) {
        for (int c = 0; c < N_VOCAB * N_COLS; c++) cells[i][c] = sinf((float)(c + 7000 * i));
        tensors[i] = (gguf_tensor){.n_dims = 2,
                                   .dims = {N_COLS, n_rows, 1, 1},
                                   .type = SPECRT_DTYPE_F32,
                                   .data = (const uint8_t *)cells[i],
                                   .bytes = (size_t)n_rows * N_COLS * sizeof(float)};
        snprintf(tensors[i].name, sizeof tensors[i].name, "%s", names[i]);
    }
    tensors[n_names] = (gguf_tensor){.name = "d2t",
                                     .n_dims = 1,
                                     .dims = {n_d2t, 1, 1, 1},
                                     .type = SPECRT_DTYPE_I64,
                                     .data = (const uint8_t *)d2t,
                                     .bytes = (size_t)n_d2t * sizeof *d2t};
    begin();
    put_string("general.architecture", "qwen35");
    put_int("qwen35.block_count", 3);
    put_int("qwen35.nextn_predict_layers", n_mtp);
    REQUIRE(sl_gguf_open_memory(file, n_file, "metadata", &g, &err) == SPECRT_STATUS_OK);
    const gguf_kv *kvs = sl_gguf_kvs(g, &n);
    REQUIRE(sl_out_open(&out, in_folder("in"), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_write(kvs, (int)n, tensors, n_names + (n_d2t > 0), &out, &err) ==
            SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    sl_gguf_close(g);
}

static specrt_status cut(void) {
    return sl_token_map_write(&map, "gguf", in_folder("out"), in_folder("in"), true, &err);
}

/* `name` of the output has the logits that `from` of the input has at the ids, of its d2t rows if any. */
static void check_cut(const char *name, const char *from, const int32_t *rows) {
    gguf *in, *out;
    REQUIRE(sl_gguf_open(in_folder("in"), &in, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_open(in_folder("out"), &out, &err) == SPECRT_STATUS_OK);
    const gguf_tensor *whole = sl_gguf_find_tensor(in, from),
                      *d2t = sl_gguf_find_tensor(out, "d2t"),
                      *head = sl_gguf_find_tensor(out, name);
    REQUIRE(whole && head && head->dims[1] == N);
    REQUIRE(d2t && d2t->type == SPECRT_DTYPE_I64 && d2t->dims[0] == N);
    for (int i = 0; i < N; i++) {
        int64_t id;
        memcpy(&id, d2t->data + 8 * i, 8);
        CHECK_INT(id, ids[i]);
        CHECK(logit(head, i) == logit(whole, rows[i]));
    }
    sl_gguf_close(in);
    sl_gguf_close(out);
}

/* The target's head, or its embedding where they are tied, must come out as it was. */
static void check_untouched(const char *name) {
    gguf *in, *out;
    REQUIRE(sl_gguf_open(in_folder("in"), &in, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_open(in_folder("out"), &out, &err) == SPECRT_STATUS_OK);
    const gguf_tensor *a = sl_gguf_find_tensor(in, name), *b = sl_gguf_find_tensor(out, name);
    REQUIRE(a && b && a->bytes == b->bytes);
    CHECK(memcmp(a->data, b->data, a->bytes) == 0);
    sl_gguf_close(in);
    sl_gguf_close(out);
}

TEST(whole, "the target keeps its head, each MTP layer gets a cut one") {
    static const char *const names[] = {"blk.0.ln1.weight", "token_embd.weight", "output.weight",
                                        own};
    put_model(names, 4, 1, N_VOCAB, 0);
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut(own, own, ids);
    check_untouched("output.weight");
    put_model(names, 3, 1, N_VOCAB, 0); /* the head is shared with the target */
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut(own, "output.weight", ids);
    check_untouched("output.weight");
    put_model(names, 2, 2, N_VOCAB, 0); /* tied to the embedding, two MTP layers */
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut(own, "token_embd.weight", ids);
    check_cut("blk.1.nextn.shared_head_head.weight", "token_embd.weight", ids);
    check_untouched("token_embd.weight");
    CHECK_INT(clear_folder(), 2);
}

TEST(sidecar, "the drafter's own heads are cut") {
    static const char *const names[] = {"token_embd.weight", "output.weight", own};
    static const int32_t rows[N] = {3, 4, 2, 0}; /* of d2t */
    put_model(names, 3, 1, N_VOCAB, 0);
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut("output.weight", "output.weight", ids);
    check_cut(own, own, ids);
    put_model(names, 1, 1, N_VOCAB, 0);
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut("output.weight", "token_embd.weight", ids);
    check_untouched("token_embd.weight");
    put_model(names + 1, 1, 1, 5, 5); /* cut before */
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut("output.weight", "output.weight", rows);
    static const char *const first[] = {"blk.0.nextn.shared_head_head.weight"};
    put_model(first, 1, 3, N_VOCAB, 0); /* nothing but MTP layers */
    REQUIRE(cut() == SPECRT_STATUS_OK);
    check_cut(first[0], first[0], ids);
    CHECK_INT(clear_folder(), 2);
}

TEST(refused, "files that would draft wrong tokens") {
    static const char *const names[] = {"output.weight"};
    put_model(names, 1, 1, N_VOCAB, 5);
    CHECK_INT(cut(), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "in: output.weight: expected 5 rows, as d2t has entries, found 40");
    put_model(names, 1, 4, N_VOCAB, 0);
    CHECK_INT(cut(), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg,
              "nextn_predict_layers: expected at most 8 and at most block_count, 3, found 4");
    put_model(names, 1, 0, N_VOCAB, 0);
    CHECK_INT(cut(), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "architecture 'qwen35' without MTP layers");
    put_model(names, 1, 1, 39, 0);
    CHECK_INT(cut(), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "has no row for token 39; its head has 39 rows");
    put_model(names, 0, 1, N_VOCAB, 0);
    CHECK_INT(cut(), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "has no output.weight");
    CHECK_INT(clear_folder(), 1);
}
