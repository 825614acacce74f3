/* test_token_map.c : maps written and read in every format, ids told from offsets, and drafters cut. */
#include "formats/gguf.h"
#include "base/io.h"
#include "formats/npy.h"
#include "formats/pt.h"
#include "formats/safetensors.h"
#include "folder.h"
#include "test.h"
#include "model/token_map.h"

#include <sys/stat.h>
#include <unistd.h>

enum { N_VOCAB = 500, N = 6, N_COLS = 32 };
/* As offsets both would collide or leave the vocabulary. */
static const int32_t ranked[N] = {499, 7, 300, 5, 2, 255};
static const int32_t rising[N] = {2, 5, 7, 255, 300, 499};
static specrt_error err;

static void put_file(const char *name, const void *bytes, size_t n) {
    REQUIRE(sl_out_bytes(in_folder(name), true, bytes, n, &err) == SPECRT_STATUS_OK);
}

static void check_ids(const token_map *map, const int32_t *ids, int32_t n) {
    CHECK_INT(map->n, n);
    for (int32_t i = 0; i < n && i < map->n; i++) CHECK_INT(map->ids[i], ids[i]);
}

/* Nothing is behind the text. */
static specrt_status read_text(const char *text, token_map_options o, token_map *out) {
    size_t n = strlen(text);
    char *copy = (char *)memcpy(malloc(n), text, n);
    specrt_status status = sl_token_map_read_memory(copy, n, "x", &o, out, &err);
    free(copy);
    return status;
}

/* ---- lists in every format -------------------------------------------------------------------- */

static const token_map sample = {.ids = (int32_t *)(uintptr_t)ranked, .n = N, .n_vocab = N_VOCAB};

TEST(round_trip, "every list and pair format reads back") {
    static const struct {
        const char *format, *name;
        const int32_t *ids;
    } cases[] = {
        {"sglang-pt", "a.pt", ranked},   {"vllm-json", "a.json", rising},
        {"text", "a.txt", ranked},       {"npy", "npy", rising},
        {"eagle3-pt", "map.pt", rising}, {"safetensors", "a.safetensors", rising},
    };
    const token_map_options o = {.n_vocab = N_VOCAB};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = in_folder(cases[i].name);
        token_map map;
        err.msg[0] = '\0';
        CHECK_INT(sl_token_map_write(&sample, cases[i].format, path, NULL, false, &err), 0);
        CHECK_INT(sl_token_map_read(path, &o, &map, &err), 0);
        CHECK_STR(err.msg, "");
        check_ids(&map, cases[i].ids, N);
        CHECK_INT(map.n_vocab, N_VOCAB);
        CHECK(map.n_dropped == 0 && map.counts == NULL);
        sl_token_map_free(&map);
        CHECK_INT(sl_token_map_write(&sample, cases[i].format, path, NULL, false, &err),
                  SPECRT_STATUS_BAD_ARG); /* it exists */
        CHECK_INT(sl_token_map_write(&sample, cases[i].format, path, NULL, true, &err), 0);
    }
    CHECK_INT(clear_folder(), 8);
}

TEST(written_bytes, "the bytes themselves, for the formats a person can check") {
    file_view view;
    CHECK_INT(sl_token_map_write(&sample, "vllm-json", in_folder("a"), NULL, false, &err), 0);
    REQUIRE(sl_file_map(in_folder("a"), &view, NULL) == SPECRT_STATUS_OK);
    CHECK(view.n == 25 && memcmp(view.bytes, "[2, 5, 7, 255, 300, 499]\n", 25) == 0);
    sl_file_unmap(&view);
    CHECK_INT(sl_token_map_write(&sample, "text", in_folder("a"), NULL, true, &err), 0);
    REQUIRE(sl_file_map(in_folder("a"), &view, NULL) == SPECRT_STATUS_OK);
    CHECK(view.n == 18 && memcmp(view.bytes, "499\n7\n300\n5\n2\n255\n", 18) == 0);
    sl_file_unmap(&view);
    CHECK_INT(clear_folder(), 1);
}

TEST(default_names, "a file name for each format") {
    char name[64];
    CHECK_INT(sl_token_map_default_name("sglang-pt", 32768, name, sizeof name, &err), 0);
    CHECK_STR(name, "freq_32768.pt");
    CHECK_INT(sl_token_map_default_name("npy", 5, name, sizeof name, &err), 0);
    CHECK_STR(name, "vocab_mapping_5");
    CHECK_INT(sl_token_map_default_name("onnx", 5, name, sizeof name, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, sl_token_map_formats());
}

TEST(write_refuses, "bad maps, formats and places leave nothing") {
    static const int32_t twice[] = {1, 2, 1}, high[] = {1, 500}, low[] = {-1, 3};
    const struct {
        token_map map;
        const char *format, *path, *drafter, *text;
        specrt_status status;
    } cases[] = {
        {{.ids = (int32_t *)(uintptr_t)twice, .n = 3},
         "text",
         "a",
         NULL,
         "id 1 is listed twice",
         SPECRT_STATUS_BAD_INPUT},
        {{.ids = (int32_t *)(uintptr_t)high, .n = 2, .n_vocab = 500},
         "sglang-pt",
         "a",
         NULL,
         "id 500 is out of range; expected [0, 500)",
         SPECRT_STATUS_BAD_INPUT},
        {{.ids = (int32_t *)(uintptr_t)low, .n = 2, .n_vocab = 500},
         "vllm-json",
         "a",
         NULL,
         "id -1 is out of range",
         SPECRT_STATUS_BAD_INPUT},
        {{.ids = (int32_t *)(uintptr_t)high, .n = 0},
         "text",
         "a",
         NULL,
         "at least one id",
         SPECRT_STATUS_BAD_ARG},
        {{.ids = (int32_t *)(uintptr_t)high, .n = 2},
         "eagle3-pt",
         "a",
         NULL,
         "vocabulary",
         SPECRT_STATUS_BAD_ARG},
        {sample, "gguf", "a", NULL, "--drafter", SPECRT_STATUS_BAD_ARG},
        {sample, "text", "a", "model.gguf", "holds no weights", SPECRT_STATUS_BAD_ARG},
        {sample, "gguf", "a", "/nonexistent.gguf", "/nonexistent.gguf", SPECRT_STATUS_IO},
        {sample, "safetensors", "a", "/nonexistent", "/nonexistent", SPECRT_STATUS_IO},
        {sample, "csv", "a", NULL, "unknown format 'csv'", SPECRT_STATUS_BAD_ARG},
        {sample, "npy", "no/such", NULL, "cannot make the folder", SPECRT_STATUS_IO},
        {sample, "text", "no/such", NULL, "no/such", SPECRT_STATUS_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(sl_token_map_write(&cases[i].map, cases[i].format, in_folder(cases[i].path),
                                     cases[i].drafter, false, &err),
                  cases[i].status);
        CHECK_HAS(err.msg, cases[i].text);
    }
    static const char *const devices[] = {"sglang-pt", "vllm-json", "text", "eagle3-pt",
                                          "safetensors"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        CHECK_INT(sl_token_map_write(&sample, devices[i], "/dev/full", NULL, false, &err),
                  SPECRT_STATUS_IO);
    put_file("file", "x", 1); /* npy needs a folder; one file of two must not be left */
    CHECK_INT(sl_token_map_write(&sample, "npy", in_folder("file"), NULL, true, &err),
              SPECRT_STATUS_BAD_ARG);
    REQUIRE(mkdir(in_folder("npy"), 0777) == 0);
    put_file("npy/t2d.npy", "x", 1);
    CHECK_INT(sl_token_map_write(&sample, "npy", in_folder("npy"), NULL, false, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK(access(in_folder("npy/d2t.npy"), F_OK) != 0);
    CHECK_INT(clear_folder(), 3);
}

TEST(speculators, "speculators looks for the size in its files' names, and cuts counts itself") {
    const uint64_t counts[N] = {0, 3, 9, 9, 0, 0};
    const token_map counted = {.ids = (int32_t *)(uintptr_t)ranked,
                               .n = N,
                               .n_vocab = N_VOCAB,
                               .counts = (uint64_t *)(uintptr_t)counts};
    token_map map;
    CHECK_INT(sl_token_map_check("speculators", in_folder("s"), false, &err), 0);
    CHECK_INT(sl_token_map_write(&sample, "speculators", in_folder("s"), NULL, false, &err), 0);
    CHECK_INT(sl_token_map_read(in_folder("s/d2t-6.npy"),
                                &(token_map_options){.values = TOKEN_MAP_OFFSET}, &map, &err),
              0);
    check_ids(&map, rising, N);
    sl_token_map_free(&map);
    CHECK(access(in_folder("s/t2d-6.npy"), R_OK) == 0);
    sl_token_map_remove("speculators", in_folder("s"), N);
    CHECK(access(in_folder("s"), F_OK) != 0);
    CHECK_INT(sl_token_map_write(&sample, "token-freq", in_folder("f"), NULL, false, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected counts");
    CHECK_INT(sl_token_map_write(&counted, "token-freq", in_folder("f"), NULL, false, &err), 0);
    CHECK_INT(sl_token_map_read(in_folder("f"), NULL, &map, &err), 0);
    /* Forced ids lead although they were not counted, and none reads as never seen. */
    static const int32_t by_count[N] = {5, 7, 300, 499, 2, 255};
    check_ids(&map, by_count, N);
    CHECK_INT((int64_t)map.counts[0], 9);
    CHECK_INT((int64_t)map.counts[N - 1], 1);
    sl_token_map_free(&map);
    CHECK_INT(clear_folder(), 1);
}

TEST(from_ranks, "the first ranks of a bundle") {
    const specrt_ranks_header h = {500, N, 2, 1, 5, 4, 100};
    const uint64_t counts[N] = {9, 8, 7, 6, 5, 4};
    const specrt_ranks ranks = {&h, ranked, counts};
    token_map map;
    REQUIRE(sl_token_map_from_ranks(&ranks, 0, &map, &err) == SPECRT_STATUS_OK);
    check_ids(&map, ranked, 4);
    CHECK(map.n_vocab == 500 && map.counts[3] == 6);
    sl_token_map_free(&map);
    REQUIRE(sl_token_map_from_ranks(&ranks, 5, &map, &err) == SPECRT_STATUS_OK);
    check_ids(&map, ranked, 5);
    sl_token_map_free(&map);
    CHECK_INT(sl_token_map_from_ranks(&ranks, 1, &map, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(sl_token_map_from_ranks(&ranks, 6, &map, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "at least 2 (the forced ids) and at most 5");
}

/* ---- files of the neighbours ------------------------------------------------------------------ */

TEST(torch_files, "what torch wrote") {
    static const int32_t list[] = {128000, 5, 70000, 300, 0}, pickle[] = {5, 4, 3};
    static const int32_t pair[] = {2, 3, 7, 11}, unsorted[] = {9, 2, 12, 0, 5};
    static const int32_t by_count[] = {300, 2, 7, 70000};
    static const struct {
        const char *file;
        const int32_t *ids;
        int32_t n, n_vocab;
        const char *kind;
    } cases[] = {
        {"list.pt", list, 5, 0, "torch list"},
        {"list.pkl", pickle, 3, 0, "torch list"},
        {"vocab_mapping.pt", pair, 4, 13, "torch d2t"},
        {"pytorch_model.bin", pair, 4, 13, "torch d2t"},
        {"d2t.pt", unsorted, 5, 0, "torch tensor"},
        {"token_freq.pt", by_count, 4, 0, "torch dict of counts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[128];
        token_map map;
        const token_map_options o = {.values = i < 2 ? TOKEN_MAP_ABSOLUTE : TOKEN_MAP_AUTO};
        snprintf(path, sizeof path, "tests/golden/maps/%s", cases[i].file);
        err.msg[0] = '\0';
        CHECK_INT(sl_token_map_read(path, &o, &map, &err), 0);
        CHECK_STR(err.msg, "");
        check_ids(&map, cases[i].ids, cases[i].n);
        CHECK_INT(map.n_vocab, cases[i].n_vocab);
        CHECK_STR(map.kind, cases[i].kind);
        if (i == 5) CHECK(map.counts && map.counts[0] == 10 && map.counts[3] == 1);
        sl_token_map_free(&map);
    }
}

TEST(folders, "a folder with an EAGLE-3 checkpoint stands for it") {
    token_map map;
    CHECK_INT(sl_token_map_read("tests/golden/maps", NULL, &map, &err), 0);
    CHECK_INT(map.n, 4);
    sl_token_map_free(&map);
    CHECK_INT(sl_token_map_read("tests/golden", NULL, &map, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "folder without d2t.npy");
    CHECK_INT(sl_token_map_read("/nonexistent", NULL, &map, &err), SPECRT_STATUS_IO);
}

/* ---- ids or offsets --------------------------------------------------------------------------- */

TEST(values, "absolute, offset and both") {
    static const struct {
        const char *text;
        token_map_values values;
        int32_t n_vocab;
        int32_t ids[4];
        int32_t n; /* 0: refused */
        const char *message;
    } cases[] = {
        {"5 3 9", 0, 10, {5, 3, 9}, 3, NULL},          /* as offsets 9 would be 11 */
        {"3 5 9", 0, 11, {3, 5, 9}, 3, NULL},          /* 9 + 2 is out of range */
        {"3 5 9", 0, 12, {0}, 0, "--values absolute"}, /* 3 6 11 fits as well */
        {"3 5 9", TOKEN_MAP_ABSOLUTE, 12, {3, 5, 9}, 3, NULL},
        {"3 5 9", TOKEN_MAP_OFFSET, 12, {3, 6, 11}, 3, NULL},
        {"3 5 9", 0, 0, {0}, 0, "reads both as absolute ids (last 9) and as offsets (last id 11)"},
        {"1 2 2 3", 0, 9, {0}, 0, "absolute ids (last 3, some twice) and as offsets (last id 6)"},
        {"1 2 2 3", TOKEN_MAP_OFFSET, 9, {1, 3, 4, 6}, 4, NULL},
        {"1 2 2 3", 0, 6, {0}, 0, "id 2 is listed at entries 1 and 2"}, /* 3 + 3 is out of range */
        {"2 2 5 5", 0, 0, {2, 3, 7, 8}, 4, NULL}, /* ids are repeated once, offsets often */
        {"9 1 -2", 0, 0, {9, 2, 0}, 3, NULL},     /* negative: only offsets */
        {"0 0 0", 0, 3, {0, 1, 2}, 3, NULL},      /* the identity, as EAGLE stores it */
        {"5 4 3", 0, 10, {5, 4, 3}, 3, NULL},     /* as offsets all are 5 */
        {"7", 0, 8, {7}, 1, NULL},                /* both readings say the same */
        {"3 5 9",
         TOKEN_MAP_OFFSET,
         11,
         {0},
         0,
         "read as offsets: entry 2 is 9; expected an id in [0, 11)"},
        {"1 12", 0, 12, {0}, 0, "read as absolute ids: entry 1 is 12"},
        {"-9 1 1", 0, 12, {0}, 0, "read as offsets: entry 0 is -9"},
        {"4 4 2 5", TOKEN_MAP_ABSOLUTE, 9, {0}, 0, "id 4 is listed at entries 0 and 1"},
        {"6 5 6", 0, 9, {0}, 0, "id 6 is listed at entries 0 and 2"},
        {"9999999999 1", 0, 0, {0}, 0, "entry 0 is 9999999999"},
        {"7 3 4 # 6   \n289", TOKEN_MAP_ABSOLUTE, 300, {7, 3, 4, 289}, 4, NULL}, /* 16 bytes */
        {"-9999999999 1", 0, 0, {0}, 0, "entry 0 is -9999999999"},
        {"\xEF\xBB\xBF"
         "5 3 9",
         0,
         10,
         {5, 3, 9},
         3,
         NULL},
        {"\xEF\xBB\xBF[5, 3, 9]", 0, 10, {5, 3, 9}, 3, NULL},
        {"\r\n 5,3\t#9 8\n#7\n9#1", 0, 10, {5, 3, 9}, 3, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        token_map map;
        const token_map_options o = {.values = cases[i].values, .n_vocab = cases[i].n_vocab};
        specrt_status status = read_text(cases[i].text, o, &map);
        if (cases[i].n) {
            if (status) test_fail(__FILE__, (int)i, err.msg);
            check_ids(&map, cases[i].ids, cases[i].n);
        } else {
            CHECK_INT(status, SPECRT_STATUS_BAD_INPUT);
            CHECK_HAS(err.msg, cases[i].message);
            CHECK(map.ids == NULL && map.n == 0);
        }
        sl_token_map_free(&map);
    }
}

TEST(dedupe, "FR-Spec lists hold BOS twice and one entry too many") {
    static const int32_t ids[] = {8, 5, 3, 9};
    token_map map;
    CHECK_INT(read_text("8 5 3 8 9", (token_map_options){.n_vocab = 10}, &map),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "--dedupe");
    CHECK_INT(read_text("2 2 5 5", (token_map_options){.n_vocab = 10, .dedupe = true}, &map),
              SPECRT_STATUS_BAD_INPUT); /* offsets, or ids to be kept once */
    CHECK_INT(read_text("8 5 3 8 9", (token_map_options){.n_vocab = 10, .dedupe = true}, &map), 0);
    check_ids(&map, ids, 4);
    CHECK_INT(map.n_dropped, 1);
    sl_token_map_free(&map);
}

TEST(mask_decides, "t2d decides between the readings, and must agree with one") {
    static const int64_t d2t[] = {3, 5, 9};
    static const uint8_t absolute[12] = {[3] = 1, [5] = 1, [9] = 1};
    static const uint8_t offset[12] = {[3] = 1, [6] = 1, [11] = 1};
    static const uint8_t neither[12] = {[3] = 1, [6] = 1, [10] = 1};
    const struct {
        const uint8_t *t2d;
        int32_t last;
    } cases[] = {{absolute, 9}, {offset, 11}, {neither, -1}};
    for (int i = 0; i < 3; i++) {
        const pt_tensor tensors[2] = {{"d2t", 'i', 8, 3, d2t}, {"t2d", 'b', 1, 12, cases[i].t2d}};
        out_file out;
        token_map map;
        REQUIRE(sl_out_open(&out, in_folder("a"), true, &err) == SPECRT_STATUS_OK);
        REQUIRE(sl_pt_write_tensors(tensors, 2, &out, &err) == SPECRT_STATUS_OK);
        REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
        specrt_status status = sl_token_map_read(in_folder("a"), NULL, &map, &err);
        CHECK_INT(status, cases[i].last < 0 ? SPECRT_STATUS_BAD_INPUT : 0);
        if (status) CHECK_HAS(err.msg, "d2t and t2d name different ids");
        if (!status) CHECK_INT(map.ids[2], cases[i].last);
        sl_token_map_free(&map);
    }
    CHECK_INT(clear_folder(), 1);
}

TEST(npy_files, "d2t.npy and t2d.npy") {
    static const uint8_t t2d[] = {0, 1, 1, 0, 1, 1, 1};
    static const int32_t ids[] = {1, 2, 4, 5, 6}, d2t[] = {1, 1, 2, 2, 2};
    out_file out;
    token_map map;
    REQUIRE(sl_out_open(&out, in_folder("t2d.npy"), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_npy_write('b', 1, t2d, 7, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_token_map_read(in_folder("t2d.npy"), NULL, &map, &err), 0); /* the mask alone */
    check_ids(&map, ids, 5);
    sl_token_map_free(&map);
    CHECK_INT(
        sl_token_map_read(in_folder("t2d.npy"), &(token_map_options){.n_vocab = 4}, &map, &err),
        SPECRT_STATUS_BAD_INPUT);
    REQUIRE(sl_out_open(&out, in_folder("d2t.npy"), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_npy_write('i', 4, d2t, 5, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_token_map_read(folder(), NULL, &map, &err), 0);
    check_ids(&map, ids, 5);
    sl_token_map_free(&map);
    CHECK_INT(clear_folder(), 2);
}

TEST(hostile, "bad files, each named") {
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } cases[] = {
#define CASE(bytes, text) {bytes, sizeof(bytes) - 1, text}

        CASE("", "of 0 entries"),
        CASE(" \n# nothing\n", "of 0 entries"),
        CASE("1\n2\nx\n", "x:3: expected a token id, found 'x'"),
        CASE("1 2.5", "x:1: expected a token id, found '2.5'"),
        CASE("1 9999999999999999999", "x:1: expected a token id"),
        CASE("1 -", "x:1: expected a token id, found '-'"),
        CASE("hello", "no token map; expected a torch .pt"),
        CASE("\x7f"
             "ELF",
             "no token map"),
        CASE("[]", "of 0 entries"),
        CASE("[1, 2", "expected JSON, found"),
        CASE("[1, 2] 3", "expected JSON, found"),
        CASE("[1, 2,]", "expected JSON, found"),
        CASE("[1, 2.0]", "entry 1 is no whole number"),
        CASE("[1, \"2\"]", "entry 1 is no whole number"),
        CASE("[1, [2]]", "entry 1 is no whole number"),
        CASE("[[[[[[[[[[[[[[", "expected JSON, found"),
        CASE("{\"a\": 1}", "flat list"),
        CASE("[1, 99999999999999999999]", "entry 1 is"),
        CASE("PK\3\4", "no end record"),
        CASE("\x93NUMPY", "header is cut off"),
        CASE("GGUF", "x:"),
        CASE("\x80\x02}.", "of 0 entries"),
        CASE("\x80\x02N.", "found None"),
        CASE("\x80\x02]X\1\0\0\0"
             "aa.",
             "entry 0 of the list: expected an int, found string"),
        CASE("\x80\x02}X\1\0\0\0"
             "aK\1s.",
             "dict without d2t"),
        CASE("\x80\x02}X\3\0\0\0"
             "d2tK\1s.",
             "d2t: expected a tensor, found int"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        token_map map;
        CHECK_INT(sl_token_map_read_memory(cases[i].bytes, cases[i].n, "x", NULL, &map, &err),
                  SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, cases[i].text);
        CHECK(map.ids == NULL);
    }
}

/* ---- drafters --------------------------------------------------------------------------------- */

/* A GGUF by hand: architecture, tokens, and f32 matrices [rows, N_COLS] whose values tell their row. */
typedef struct bytes {
    uint8_t b[1 << 18];
    size_t n;
} bytes;

static void put(bytes *to, const void *data, size_t n) {
    REQUIRE(to->n + n <= sizeof to->b);
    if (n > 0) memcpy(to->b + to->n, data, n);
    to->n += n;
}

static void put_number(bytes *to, uint64_t x, size_t n) {
    put(to, &x, n);
}

static void put_string(bytes *to, const char *text) {
    put_number(to, strlen(text), 8);
    put(to, text, strlen(text));
}

static float cell(int tensor, int64_t row, int64_t column) {
    return (float)(tensor * 100000 + row * N_COLS + column);
}

/* All that stands before the tensors. */
static void put_metadata(bytes *g, const char *arch, int n_tokens, int n_tensors) {
    g->n = 0;
    put(g, "GGUF\3\0\0\0", 8);
    put_number(g, (uint64_t)n_tensors, 8);
    put_number(g, 2, 8);
    put_string(g, "general.architecture"), put_number(g, GGUF_STRING, 4), put_string(g, arch);
    put_string(g, "tokenizer.ggml.tokens"), put_number(g, GGUF_ARRAY, 4);
    put_number(g, GGUF_STRING, 4), put_number(g, (uint64_t)n_tokens, 8);
    for (int i = 0; i < n_tokens; i++) put_string(g, "t");
}

/* names: "output.weight" and the like, each with its rows; a d2t of `d2t` when n_d2t > 0. */
static void put_drafter(const char *file, const char *arch, int n_tokens, const char *const *names,
                        const int *rows, int n_names, const int64_t *d2t, int n_d2t) {
    static bytes g;
    uint64_t offset = 0;
    put_metadata(&g, arch, n_tokens, n_names + (n_d2t > 0));
    for (int i = 0; i < n_names; i++) {
        bool vector = strcmp(names[i], "output.bias") == 0;
        put_string(&g, names[i]), put_number(&g, vector ? 1 : 2, 4);
        if (!vector) put_number(&g, N_COLS, 8);
        put_number(&g, (uint64_t)rows[i], 8);
        put_number(&g, SPECRT_DTYPE_F32, 4), put_number(&g, offset, 8);
        offset += ((uint64_t)rows[i] * 4 * (vector ? 1 : N_COLS) + 31) / 32 * 32;
    }
    if (n_d2t) {
        put_string(&g, "d2t"), put_number(&g, 1, 4), put_number(&g, (uint64_t)n_d2t, 8);
        put_number(&g, SPECRT_DTYPE_I64, 4), put_number(&g, offset, 8);
    }
    while (g.n % 32) put_number(&g, 0, 1);
    for (int i = 0; i < n_names; i++) {
        int columns = strcmp(names[i], "output.bias") == 0 ? 1 : N_COLS;
        for (int r = 0; r < rows[i]; r++)
            for (int c = 0; c < columns; c++) put(&g, (float[]){cell(i, r, c)}, 4);
        while (g.n % 32) put_number(&g, 0, 1);
    }
    put(&g, d2t, (size_t)n_d2t * 8);
    while (g.n % 32) put_number(&g, 0, 1);
    put_file(file, g.b, g.n);
}

static void check_rows(const gguf *g, const char *name, int tensor, const int32_t *rows, int n) {
    const gguf_tensor *t = sl_gguf_find_tensor(g, name);
    REQUIRE(t && t->n_dims == 2 && t->dims[0] == N_COLS);
    CHECK_INT(t->dims[1], n);
    for (int i = 0; i < n; i++) {
        float row[N_COLS];
        memcpy(row, t->data + (size_t)i * sizeof row, sizeof row);
        for (int c = 0; c < N_COLS; c++) CHECK(row[c] == cell(tensor, rows[i], c));
    }
}

TEST(gguf_drafter, "a drafter cut to the map") {
    static const char *const names[] = {"token_embd.weight", "output.weight", "output.bias"};
    static const int rows[] = {8, 500, 500};
    put_drafter("d.gguf", "eagle3", 500, names, rows, 3, NULL, 0);
    REQUIRE(sl_token_map_write(&sample, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), false,
                               &err) == SPECRT_STATUS_OK);
    gguf *g;
    token_map map;
    REQUIRE(sl_gguf_open(in_folder("o.gguf"), &g, &err) == SPECRT_STATUS_OK);
    check_rows(g, "output.weight", 1, ranked, N); /* the map's order, rows untouched */
    check_rows(g, "token_embd.weight", 0, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    const gguf_tensor *d2t = sl_gguf_find_tensor(g, "d2t"),
                      *bias = sl_gguf_find_tensor(g, "output.bias");
    REQUIRE(d2t && d2t->type == SPECRT_DTYPE_I64 && d2t->n_dims == 1 && d2t->dims[0] == N);
    REQUIRE(bias && bias->dims[0] == N);
    for (int i = 0; i < N; i++) {
        int64_t id;
        float b;
        memcpy(&id, d2t->data + 8 * i, 8);
        memcpy(&b, bias->data + 4 * i, 4);
        CHECK_INT(id, ranked[i]);
        CHECK(b == cell(2, ranked[i], 0));
    }
    sl_gguf_close(g);
    REQUIRE(sl_token_map_read(in_folder("o.gguf"), NULL, &map, &err) == SPECRT_STATUS_OK);
    check_ids(&map, ranked, N);
    CHECK_INT(map.n_vocab, 500);
    sl_token_map_free(&map);
    CHECK_INT(clear_folder(), 2);
}

/* A drafter that was trimmed before keeps only the rows it has; one without a head of its own, or of an
 * architecture that ignores d2t, is refused. */
TEST(gguf_other_heads, "trimmed, headless and foreign drafters") {
    static const char *const head[] = {"output.weight"}, *const embedding[] = {"token_embd.weight"};
    static const int64_t d2t[] = {9, 2, 300, 499, 0};
    static const int rows_5[] = {5}, rows_500[] = {500};
    static const int32_t ids[] = {0, 300, 9}, rows[] = {4, 2, 0}, missing[] = {0, 7};
    token_map map = {.ids = (int32_t *)(uintptr_t)ids, .n = 3};
    gguf *g;
    put_drafter("d.gguf", "eagle3", 500, head, rows_5, 1, d2t, 5);
    CHECK_INT(
        sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), false, &err), 0);
    REQUIRE(sl_gguf_open(in_folder("o.gguf"), &g, &err) == SPECRT_STATUS_OK);
    check_rows(g, "output.weight", 0, rows, 3);
    sl_gguf_close(g);
    map = (token_map){.ids = (int32_t *)(uintptr_t)missing, .n = 2};
    CHECK_INT(
        sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "has no row for token 7; its head has 5 rows chosen by its own d2t");
    put_drafter("d.gguf", "eagle3", 500, embedding, rows_500, 1, NULL, 0);
    CHECK_INT(
        sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "has no output.weight");
    put_drafter("d.gguf", "llama", 500, head, rows_500, 1, NULL, 0);
    CHECK_INT(
        sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "architecture 'llama' without MTP layers: llama.cpp reads d2t of eagle3 "
                       "and dflash drafters");
    put_drafter("d.gguf", "eagle3", 400, head, rows_500, 1, NULL, 0);
    CHECK_INT(
        sl_token_map_write(&sample, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "its vocabulary has 400 tokens, the map names id 499");
    put_drafter("d.gguf", "eagle3", 500, head, rows_5, 1, NULL, 0);
    CHECK_INT(
        sl_token_map_write(&sample, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "has no row for token 499; its head has 5 rows");
    CHECK_INT(clear_folder(), 2);
}

/* Both heads of DSpark lose the same rows, through a d2t, too. What takes a token of the target stays. */
TEST(gguf_block, "both heads of a block drafter") {
    static const char *const names[] = {"output.weight", "markov_w1.weight", "markov_w2.weight"};
    static const int whole[] = {500, 500, 500}, cut[] = {5, 500, 5}, other[] = {500, 500, 499};
    static const int64_t d2t[] = {9, 2, 300, 499, 0};
    static const int32_t ids[] = {0, 300, 9}, rows[] = {4, 2, 0};
    const token_map map = {.ids = (int32_t *)(uintptr_t)ids, .n = 3};
    for (int i = 0; i < 2; i++) {
        gguf *g;
        put_drafter("d.gguf", "dflash", 500, names, i ? cut : whole, 3, d2t, i ? 5 : 0);
        REQUIRE(sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true,
                                   &err) == SPECRT_STATUS_OK);
        REQUIRE(sl_gguf_open(in_folder("o.gguf"), &g, &err) == SPECRT_STATUS_OK);
        check_rows(g, names[0], 0, i ? rows : ids, 3);
        check_rows(g, names[2], 2, i ? rows : ids, 3);
        CHECK_INT(sl_gguf_find_tensor(g, names[1])->dims[1], 500);
        CHECK_INT(sl_gguf_find_tensor(g, "d2t")->dims[0], 3);
        sl_gguf_close(g);
    }
    put_drafter("d.gguf", "dflash", 500, names, other, 3, NULL, 0);
    CHECK_INT(
        sl_token_map_write(&map, "gguf", in_folder("o.gguf"), in_folder("d.gguf"), true, &err),
        SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "markov_w2.weight: expected 500 rows, as the LM head has, found 499");
    CHECK_INT(clear_folder(), 2);
}

TEST(gguf_offsets, "GGUF holds absolute ids; a list of offsets there is an error, not a guess") {
    static const char *const head[] = {"output.weight"};
    static const int64_t offsets[] = {2, 2, 5}, both[] = {3, 5, 9};
    static const int rows[] = {3};
    token_map map;
    put_drafter("d.gguf", "eagle3", 500, head, rows, 1, offsets, 3);
    CHECK_INT(sl_token_map_read(in_folder("d.gguf"), NULL, &map, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "GGUF d2t read as absolute ids: id 2 is listed at entries 0 and 1");
    put_drafter("d.gguf", "eagle3", 500, head, rows, 1, both, 3);
    CHECK_INT(sl_token_map_read(in_folder("d.gguf"), NULL, &map, &err), 0);
    check_ids(&map, (int32_t[]){3, 5, 9}, 3);
    sl_token_map_free(&map);
    CHECK_INT(clear_folder(), 1);
}

TEST(safetensors_head, "head rows in the order of d2t") {
    static const char *const head[] = {"output.weight"};
    static const int rows[] = {500};
    st *s;
    put_drafter("d.gguf", "llama", 500, head, rows, 1, NULL, 0);
    REQUIRE(sl_token_map_write(&sample, "safetensors", in_folder("o"), in_folder("d.gguf"), false,
                               &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_open(in_folder("o"), &s, &err) == SPECRT_STATUS_OK);
    const st_tensor *t = sl_st_find(s, "lm_head.weight"), *t2d = sl_st_find(s, "t2d");
    REQUIRE(t && t->n_dims == 2 && t->shape[0] == N && t->shape[1] == N_COLS);
    CHECK_STR(t->dtype, "F32");
    for (int i = 0; i < N; i++) {
        float x;
        memcpy(&x, t->data + (size_t)i * N_COLS * 4, 4);
        CHECK(x == cell(0, rising[i], 0)); /* the order of d2t */
    }
    REQUIRE(t2d && t2d->shape[0] == N_VOCAB);
    sl_st_close(s);
    CHECK_INT(clear_folder(), 2);
}

/* A head of N_VOCAB rows in q8_0: a scale, then codes that quantised_code() tells. */
static int8_t quantised_code(int row, int column) {
    return (int8_t)((row * 7 + column * 3) % 255 - 127);
}

static void put_quantised(const char *file, uint16_t scale) {
    static bytes g;
    put_metadata(&g, "llama", N_VOCAB, 1);
    put_string(&g, "output.weight"), put_number(&g, 2, 4);
    put_number(&g, N_COLS, 8), put_number(&g, N_VOCAB, 8);
    put_number(&g, SPECRT_DTYPE_Q8_0, 4), put_number(&g, 0, 8);
    while (g.n % 32) put_number(&g, 0, 1);
    for (int r = 0; r < N_VOCAB; r++) {
        put_number(&g, scale, 2);
        for (int c = 0; c < N_COLS; c++) put(&g, (int8_t[]){quantised_code(r, c)}, 1);
    }
    while (g.n % 32) put_number(&g, 0, 1);
    put_file(file, g.b, g.n);
}

/* Weights of a quantised head are written in f16, to nearest; those beyond it are refused. */
TEST(safetensors_quantised, "rows of a quantised head in f16") {
    const float third = 1365.0f / 4096; /* 0x3555 in f16 */
    st *s;
    put_quantised("d.gguf", 0x3555);
    REQUIRE(sl_token_map_write(&sample, "safetensors", in_folder("o"), in_folder("d.gguf"), false,
                               &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_open(in_folder("o"), &s, &err) == SPECRT_STATUS_OK);
    const st_tensor *t = sl_st_find(s, "lm_head.weight");
    REQUIRE(t && t->n_dims == 2 && t->shape[0] == N && t->shape[1] == N_COLS);
    CHECK_STR(t->dtype, "F16");
    for (int i = 0; i < N * N_COLS; i++) {
        uint16_t found, expected;
        memcpy(&found, t->data + 2 * i, 2);
        specrt_to_f16(&(float){third * (float)quantised_code(rising[i / N_COLS], i % N_COLS)}, 1,
                      &expected);
        CHECK_INT(found, expected);
    }
    sl_st_close(s);
    for (int i = 0; i < 2; i++) { /* the greatest of f16 as a scale, and infinity */
        put_quantised("d.gguf", i ? 0x7c00 : 0x7bff);
        CHECK_INT(sl_token_map_write(&sample, "safetensors", in_folder("no"), in_folder("d.gguf"),
                                     false, &err),
                  SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, "d.gguf: a weight of token 2 is");
        CHECK_HAS(err.msg, "expected at most 65504, since q8_0 rows are written in f16");
    }
    CHECK_INT(clear_folder(), 2);
}
