/* test_ids.c : token ids of .bin and .npy files. */
#include "gather.h"

static size_t make_npy(uint8_t *out, int version, const char *descr, const char *shape,
                       const void *data, size_t n) {
    char dict[128];
    int length = snprintf(dict, sizeof dict,
                          "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version, out[7] = 0;
    size_t at = version == 1 ? 10 : 12;
    memset(out + 8, 0, 4);
    out[8] = (uint8_t)length;
    memcpy(out + at, dict, (size_t)length);
    memcpy(out + at + (size_t)length, data, n);
    return at + (size_t)length + n;
}

static void check_ids(const char *name, const void *bytes, size_t n, int id_bytes, int32_t n_vocab,
                      const char *want) {
    corpus_options options = {.token_ids = true, .id_bytes = id_bytes, .n_vocab = n_vocab};
    specrt_error err = {0};
    corpus *c;
    corpus_batch batch = {0};
    bool end = false;
    char out[512] = "";
    size_t at = 0;
    specrt_status status = sl_corpus_open_memory(name, bytes, n, &options, &c, &err);
    while (status == SPECRT_STATUS_OK && !end) {
        status = sl_corpus_next(c, &batch, &end, &err);
        for (int64_t i = 0; i < batch.n_docs; i++) {
            for (size_t j = 0; j < batch.docs[i].n_ids && at < 400; j++)
                at += (size_t)sprintf(out + at, "%d ", batch.docs[i].ids[j]);
            at += (size_t)sprintf(out + at, "; ");
        }
    }
    if (err.status)
        CHECK_HAS(err.msg, want);
    else
        CHECK_STR(out, want);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
}

TEST(far, "an id far in a file is named by its index there") {
    enum { N = 1 << 20 };
    uint16_t *ids = (uint16_t *)calloc(N, sizeof *ids);
    REQUIRE(ids);
    ids[N - 3] = 9;
    corpus_options options = {.token_ids = true, .id_bytes = 2, .n_vocab = 9};
    gathered g = gather_memory("x.bin", ids, N * sizeof *ids, &options);
    CHECK_HAS(g.err.msg, "x.bin: id 9 at index 1048573; expected 0 to 8");
    gather_free(&g);
    free(ids);
}

TEST(ids, ".bin and .npy") {
    static const uint16_t u16[] = {1, 2, 65535, 4};
    static const uint16_t wide[] = {1, 0, 65535, 65535};
    static const int32_t i32[] = {1, 2, 3, 40, 5, -6};
    static const int64_t i64[] = {7, INT64_C(1) << 32};
    uint8_t file[512];
    check_ids("x.bin", u16, 8, 2, 0, "1 2 65535 4 ; ");
    check_ids("x.bin", wide, 8, 4, 0, "x.bin: id 4294967295 at index 1"); /* the wrong width */
    check_ids("x.bin", u16, 8, 2, 5, "x.bin: id 65535 at index 2; expected 0 to 4");
    check_ids("x.bin", u16, 7, 2, 0, "x.bin: the last id is cut short");
    check_ids("x.bin", u16, 8, 0, 0, "--id-bytes");
    check_ids("x.txt", "hello", 5, 2, 0, "x.txt: no token ids");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(4,)", u16, 8), 0, 0, "1 2 65535 4 ; ");
    check_ids("x.npy", file, make_npy(file, 2, "<i4", "(2, 2)", i32, 16), 0, 0, "1 2 ; 3 40 ; ");
    check_ids("x.npy", file, make_npy(file, 1, "<i4", "(6,)", i32, 24), 0, 0, "id -6 at index 5");
    check_ids("x.npy", file, make_npy(file, 1, "<i8", "(1,)", i64, 8), 0, 0, "7 ; ");
    check_ids("x.npy", file, make_npy(file, 1, "<i8", "(2,)", i64, 16), 0, 0,
              "id 4294967296 at index 1");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(3,)", u16, 8), 0, 0, "1 2 65535 ; ");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(5,)", u16, 8), 0, 0,
              "x.npy: the file is cut short; expected 78 bytes, found 76");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(2, 1, 2)", u16, 8), 0, 0,
              "has another shape");
    size_t m, n = make_npy(file, 1, "<u2", "(5,)", u16, 8);
    uint8_t *packed = pack("gz", file, n, n, &m);
    check_ids("x.npy.gz", packed, m, 0, 0,
              "the file is cut short; expected 10 bytes of ids, found 8");
    free(packed);
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(1, 33554433)", u16, 8), 0, 0,
              "rows are longer than 64 MiB");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(1, 33554432)", u16, 8), 0, 0,
              "the file is cut short");
    check_ids("x.npy", file, make_npy(file, 1, "<f4", "(2,)", u16, 8), 0, 0, "holds another type");
    check_ids("x.npy", file, make_npy(file, 1, ">u2", "(4,)", u16, 8), 0, 0, "x.npy: .npy");
    check_ids("x.npy", file, 20, 0, 0, "x.npy: .npy header is cut off");
}

/* Ids that count up, in documents of 64 KiB, or of a row each; over several batches. */
static void check_long(const char *name, const uint8_t *bytes, size_t n, int32_t n_ids,
                       size_t per_doc, bool continues) {
    const corpus_options options = {.token_ids = true, .id_bytes = 4};
    corpus *c;
    corpus_batch batch = {0};
    bool end = false;
    int32_t id = 0, wrong = 0;
    REQUIRE(sl_corpus_open_memory(name, bytes, n, &options, &c, NULL) == SPECRT_STATUS_OK);
    while (!end) {
        REQUIRE(sl_corpus_next(c, &batch, &end, NULL) == SPECRT_STATUS_OK);
        for (int64_t i = 0; i < batch.n_docs; i++) {
            const corpus_doc *doc = &batch.docs[i];
            wrong += doc->unit_hash != specrt_hash64(doc->ids, 4 * doc->n_ids, 0);
            wrong += doc->continues != (continues && id > 0);
            wrong += doc->n_ids != per_doc && id + (int32_t)doc->n_ids != n_ids;
            for (size_t j = 0; j < doc->n_ids; j++) wrong += doc->ids[j] != id++;
        }
    }
    CHECK_INT(id, n_ids);
    CHECK_INT(wrong, 0);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
}

TEST(long, "ids of several batches") {
    enum { N = 700000 };
    int32_t *ids = (int32_t *)malloc(N * sizeof *ids);
    uint8_t *file = (uint8_t *)malloc(N * sizeof *ids + 256);
    for (int32_t i = 0; i < N; i++) ids[i] = i;
    check_long("x.bin", (const uint8_t *)ids, N * sizeof *ids, N, 16384, true);
    size_t n = make_npy(file, 1, "<i4", "(700000,)", ids, N * sizeof *ids);
    check_long("x.npy", file, n, N, 16384, true);
    n = make_npy(file, 1, "<i4", "(7000, 100)", ids, N * sizeof *ids);
    check_long("x.npy", file, n, N, 100, false);
    n = make_npy(file, 1, "<i4", "(2, 350000)", ids, N * sizeof *ids);
    check_long("x.npy", file, n, N, 350000, false);
    free(ids), free(file);
}
