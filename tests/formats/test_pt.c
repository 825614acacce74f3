/* test_pt.c : torch files made by torch (tests/golden/maps), and every pickle and archive that must be
 * refused. */
#include "formats/pt.h"
#include "formats/zip.h"
#include "folder.h"

static file_view view;
static specrt_error err;

static pt *open_golden(const char *name) {
    char path[128];
    pt *p;
    snprintf(path, sizeof path, "tests/golden/maps/%s", name);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    specrt_status status = sl_pt_open_memory(view.bytes, view.n, name, &p, &err);
    if (status != SPECRT_STATUS_OK) test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(p);
    return p;
}

static void close_golden(pt *p) {
    sl_pt_close(p);
    sl_file_unmap(&view);
}

TEST(torch_list, "lists that torch and Python wrote") {
    static const int64_t expected[] = {128000, 5, 70000, 300, 0};
    pt *p = open_golden("list.pt");
    const pt_value *root = sl_pt_root(p);
    REQUIRE(root->kind == PT_LIST && root->object->n == 5);
    for (int i = 0; i < 5; i++) CHECK_INT(root->object->items[i].i, expected[i]);
    close_golden(p);
    p = open_golden("list.pkl"); /* protocol 4, no archive */
    REQUIRE(sl_pt_root(p)->kind == PT_LIST && sl_pt_root(p)->object->n == 3);
    CHECK_INT(sl_pt_root(p)->object->items[2].i, 3);
    close_golden(p);
}

TEST(torch_tensors, "tensors, checkpoints and counts that torch wrote") {
    static const int64_t offsets[] = {2, 2, 5, 8};
    static const char *const names[] = {"vocab_mapping.pt", "pytorch_model.bin"};
    for (int f = 0; f < 2; f++) {
        pt *p = open_golden(names[f]);
        const pt_value *d2t = sl_pt_find(sl_pt_root(p), "d2t"),
                       *t2d = sl_pt_find(sl_pt_root(p), "t2d");
        pt_tensor t;
        REQUIRE(d2t && t2d && d2t->kind == PT_TENSOR && !sl_pt_find(sl_pt_root(p), "d2"));
        REQUIRE(sl_pt_tensor_get(p, d2t, &t, &err) == SPECRT_STATUS_OK);
        CHECK(t.kind == 'i' && t.item_bytes == 8);
        CHECK_INT(t.n, 4);
        CHECK(memcmp(t.values, offsets, sizeof offsets) == 0);
        REQUIRE(sl_pt_tensor_get(p, t2d, &t, &err) == SPECRT_STATUS_OK);
        CHECK(t.kind == 'b' && t.item_bytes == 1 && t.n == 13);
        CHECK(memcmp(t.values, "\0\0\1\1\0\0\0\1\0\0\0\1\0", 13) == 0);
        close_golden(p);
    }
    pt *p = open_golden("d2t.pt");
    CHECK(sl_pt_root(p)->kind == PT_TENSOR);
    close_golden(p);
    p = open_golden("token_freq.pt");
    CHECK(sl_pt_root(p)->kind == PT_DICT && sl_pt_root(p)->object->n == 10);
    CHECK_INT(sl_pt_root(p)->object->items[3].i, 10);
    close_golden(p);
}

TEST(refused_files, "older torch files and floats are named") {
    static const struct {
        const char *file, *text;
    } cases[] = {{"legacy.pt", "before version 1.6"}, {"float.pt", "BINFLOAT"}};
    for (int i = 0; i < 2; i++) {
        char path[128];
        pt *p;
        snprintf(path, sizeof path, "tests/golden/maps/%s", cases[i].file);
        REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(sl_pt_open_memory(view.bytes, view.n, path, &p, &err), SPECRT_STATUS_UNSUPPORTED);
        CHECK(p == NULL && strstr(err.msg, cases[i].text));
        sl_file_unmap(&view);
    }
}

static specrt_status open_pickle(const char *bytes, size_t n) {
    char *copy = (char *)malloc(n ? n : 1); /* exact, so that asan sees an overread */
    pt *p;
    memcpy(copy, bytes, n);
    specrt_status status = sl_pt_open_memory(copy, n, "x", &p, &err);
    sl_pt_close(p);
    free(copy);
    return status;
}
#define PICKLE(text) open_pickle(text, sizeof(text) - 1)

TEST(pickle_accepts, "all that plain data needs") {
    CHECK(PICKLE("\x80\x02N.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x02]q\0K\1a.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x05\x95\3\0\0\0\0\0\0\0]\x94.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x04](\x8a\2\1\2J\xff\xff\xff\xffM\1\1\x88\x89"
                 "e.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x02}X\1\0\0\0aq\0h\0s.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x02"
                 "ccollections\nOrderedDict\n)R(K\1K\2u}b.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x04\x8c\x0b"
                 "collections\x94\x8c\x07"
                 "Counter\x94\x93}\x85R.") == SPECRT_STATUS_OK);
    CHECK(PICKLE("\x80\x02]q\0h\0a.") == SPECRT_STATUS_OK); /* a list inside itself */
}

TEST(pickle_code, "anything that is code is refused by name") {
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } cases[] = {
#define CASE(bytes, text) {bytes, sizeof(bytes) - 1, text}
        CASE("\x80\x02"
             "cos\nsystem\nX\2\0\0\0ls\x85R.",
             "os.system"),
        CASE("\x80\x04\x8c\x05posix\x8c\x06system\x93.", "posix.system"),
        CASE("\x80\x02"
             "c__builtin__\neval\n.",
             "__builtin__.eval"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v3\n.",
             "torch._utils._rebuild_tensor_v3"),
        CASE("\x80\x02(K\1o.", "(OBJ)"),
        CASE("\x80\x02N)\x81.", "(NEWOBJ)"),
        CASE("\x80\x02(I1\n.", "(INT)"),
        CASE("\x80\x02K\1"
             "0.",
             "(POP)"),
        CASE("\x80\x02"
             "i os\n system\n.",
             "(INST)"),
        CASE("\x80\x02\xff.", "unknown"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(open_pickle(cases[i].bytes, cases[i].n), SPECRT_STATUS_UNSUPPORTED);
        CHECK(strstr(err.msg, cases[i].text) != NULL);
    }
}

TEST(pickle_broken, "broken pickles") {
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } cases[] = {
#define CASE(bytes, text) {bytes, sizeof(bytes) - 1, "x: pickle: " text}
        CASE("\x80\x02", "cut off"),
        CASE("\x80\x02.", "does not end with one value"),
        CASE("\x80\x02NN.", "does not end with one value"),
        CASE("\x80\x02(N.", "does not end with one value"),
        CASE("\x80\x02N.N", "bytes after its end"),
        CASE("\x80\x02\x80\x06N.", "unknown protocol; expected 2 to 5"),
        CASE("\x80\x02K", "cut off"),
        CASE("\x80\x02J\1\2\3", "cut off"),
        CASE("\x80\x02\x8a\x09\1\2\3\4\5\6\7\x08\x09.", "an integer of more than 64 bits"),
        CASE("\x80\x02X\xff\xff\xff\xff", "cut off"),
        CASE("\x80\x02X\4\0\0\0abc", "cut off"),
        CASE("\x80\x02t.", "TUPLE without MARK"),
        CASE("\x80\x02N\x87.", "stack underflow"),
        CASE("\x80\x02(N\x85N\x86.", "does not end with one value"),
        CASE("\x80\x02Na.", "stack underflow"),
        CASE("\x80\x02NK\1a.", "items for something that cannot hold them"),
        CASE("\x80\x02]K\1e.", "items without MARK"),
        CASE("\x80\x02](K\1u.", "items for something that cannot hold them"),
        CASE("\x80\x02}(K\1u.", "items for something that cannot hold them"),
        CASE("\x80\x02}K\1s.", "stack underflow"),
        CASE("\x80\x02h\0.", "unknown memo number"),
        CASE("\x80\x02Nq\1.", "memo numbers out of order"),
        CASE("\x80\x02Nr\xff\xff\xff\xff.", "memo numbers out of order"),
        CASE("\x80\x02q\0.", "stack underflow"),
        CASE("\x80\x02\x94.", "stack underflow"),
        CASE("\x80\x02"
             "cos\nsystem",
             "cut off"),
        CASE("\x80\x02"
             "cos",
             "cut off"),
        CASE("\x80\x04K\1K\2\x93.", "a name is no string"),
        CASE("\x80\x02N)R.", "a call of no known function"),
        CASE("\x80\x02"
             "ccollections\nOrderedDict\nNR.",
             "a call of no known function"),
        CASE("\x80\x02"
             "ccollections\nOrderedDict\nN\x85R.",
             "a call with unexpected arguments"),
        CASE("\x80\x02"
             "ccollections\nCounter\nN\x85R.",
             "a call with unexpected arguments"),
        CASE("\x80\x02"
             "ctorch\nLongStorage\n)R.",
             "a call with unexpected arguments"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n)R.",
             "a call with unexpected arguments"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n(NK\0))tR.",
             "a call with unexpected arguments"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_parameter\nN\x85R.",
             "a call with unexpected arguments"),
        CASE("\x80\x02NQ.", "a reference that is no tensor storage"),
        CASE("\x80\x02)Q.", "a reference that is no tensor storage"),
        CASE("\x80\x02(NNNNNtQ.", "a reference that is no tensor storage"),
        CASE("\x80\x02NNb.", "BUILD of something else than a dict"),
        CASE("\x80\x04\x93.", "stack underflow"),
        CASE("\x80\x02NR.", "stack underflow"),
        CASE("\x80\x02Q.", "stack underflow"),
        CASE("\x80\x02}b.", "stack underflow"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(open_pickle(cases[i].bytes, cases[i].n), SPECRT_STATUS_BAD_INPUT);
        CHECK_STR(err.msg, cases[i].text);
    }
    char deep[200] = "\x80\x02";
    memset(deep + 2, '(', 198);
    CHECK_INT(open_pickle(deep, sizeof deep), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "x: pickle: nested too deeply");
}

TEST(pickle_limits, "bounded work: many objects, and a pickle that is too long") {
    size_t n = (8u << 20) + 1;
    char *bytes = (char *)malloc(n);
    pt *p;
    REQUIRE(bytes != NULL);
    memset(bytes, ']', n);
    memcpy(bytes, "\x80\x02", 2);
    CHECK_INT(sl_pt_open_memory(bytes, 2u << 20, "x", &p, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK(strstr(err.msg, "too many objects"));
    CHECK_INT(sl_pt_open_memory(bytes, n, "x", &p, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK(strstr(err.msg, "at most"));
    free(bytes);
}

/* ---- archives --------------------------------------------------------------------------------- */

/* What `write` writes, as bytes to free. */
static uint8_t *written(size_t *n, specrt_status (*write)(out_file *out)) {
    const char *path = in_folder("written");
    out_file out;
    file_view file;
    REQUIRE(sl_out_open(&out, path, true, NULL) == SPECRT_STATUS_OK);
    REQUIRE(write(&out) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &file, NULL) == SPECRT_STATUS_OK);
    uint8_t *bytes = (uint8_t *)malloc(file.n);
    REQUIRE(bytes != NULL);
    memcpy(bytes, file.bytes, *n = file.n);
    sl_file_unmap(&file);
    clear_folder();
    return bytes;
}

enum { N_LIST = 2001 }; /* two full batches of the pickle and a single one */
static int n_list;
static int32_t list_id(int i) {
    return i * 97 % 131072;
}

static specrt_status write_list(out_file *out) {
    int32_t ids[N_LIST];
    for (int i = 0; i < n_list; i++) ids[i] = list_id(i);
    return sl_pt_write_list(ids, n_list, out, &err);
}

static uint8_t *written_list(size_t *n, int n_ids) {
    n_list = n_ids;
    return written(n, write_list);
}

static specrt_status write_tensors(out_file *out) {
    static const int64_t d2t[3] = {0, 4, 300};
    static const uint8_t t2d[5] = {1, 0, 0, 1, 1};
    const pt_tensor tensors[2] = {{"d2t", 'i', 8, 3, d2t}, {"t2d", 'b', 1, 5, t2d}};
    return sl_pt_write_tensors(tensors, 2, out, &err);
}

enum { N_COUNTS = 1001 };
static uint64_t count_of(int i) {
    return i == 0 ? (uint64_t)1 << 40 : i == 1 ? (uint64_t)INT32_MAX + 1 : (uint64_t)i * 70;
}

static specrt_status write_counts(out_file *out) {
    int32_t ids[N_COUNTS];
    uint64_t counts[N_COUNTS];
    for (int i = 0; i < N_COUNTS; i++) ids[i] = list_id(i), counts[i] = count_of(i);
    return sl_pt_write_counts(ids, counts, N_COUNTS, out, &err);
}

TEST(write_counts, "counts beyond 32 bits, of many ids") {
    size_t n;
    pt *p;
    uint8_t *bytes = written(&n, write_counts);
    REQUIRE(sl_pt_open_memory(bytes, n, "x", &p, &err) == SPECRT_STATUS_OK);
    const pt_value *root = sl_pt_root(p);
    REQUIRE(root->kind == PT_DICT && root->object->n == 2 * (int64_t)N_COUNTS);
    for (int i = 0; i < N_COUNTS; i++) {
        CHECK_INT(root->object->items[2 * i].i, list_id(i));
        CHECK_INT(root->object->items[2 * i + 1].i, (int64_t)count_of(i));
    }
    sl_pt_close(p);
    free(bytes);
}

TEST(write_list, "a list reads back; same bytes every time") {
    static const int lengths[] = {0, 1, 2, 1000, N_LIST};
    size_t n, n_again;
    pt *p;
    for (int k = 0; k < 5; k++) {
        uint8_t *bytes = written_list(&n, lengths[k]), *again = written_list(&n_again, lengths[k]);
        CHECK(n == n_again && memcmp(bytes, again, n) == 0);
        REQUIRE(sl_pt_open_memory(bytes, n, "x", &p, &err) == SPECRT_STATUS_OK);
        const pt_value *root = sl_pt_root(p);
        REQUIRE(root->kind == PT_LIST && root->object->n == lengths[k]);
        for (int i = 0; i < lengths[k]; i++) CHECK_INT(root->object->items[i].i, list_id(i));
        sl_pt_close(p);
        free(bytes);
        free(again);
    }
}

/* Numbers in their shortest form. */
static specrt_status write_sizes(out_file *out) {
    static const int32_t ids[] = {0, 255, 256, 65535, 65536, INT32_MAX};
    static const uint64_t counts[] = {1, 1, 1, 1, (uint64_t)INT32_MAX + 1, (uint64_t)1 << 39};
    return sl_pt_write_counts(ids, counts, 6, out, &err);
}

TEST(write_sizes, "numbers of one byte to six") {
    static const char pickled[] = "K\0K\1K\xffK\1M\0\1K\1M\xff\xffK\1J\0\0\1\0\x8a\5\0\0\0\x80\0"
                                  "J\xff\xff\xff\x7f\x8a\6\0\0\0\0\x80\0";
    size_t n;
    uint8_t *bytes = written(&n, write_sizes);
    CHECK(memmem(bytes, n, pickled, sizeof pickled - 1) != NULL);
    free(bytes);
}

TEST(write_tensors, "tensors read back, aligned to 64") {
    size_t n;
    pt *p;
    pt_tensor t;
    uint8_t *bytes = written(&n, write_tensors);
    REQUIRE(sl_pt_open_memory(bytes, n, "x", &p, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_pt_find(sl_pt_root(p), "d2t") && sl_pt_find(sl_pt_root(p), "t2d"));
    REQUIRE(sl_pt_tensor_get(p, sl_pt_find(sl_pt_root(p), "d2t"), &t, &err) == SPECRT_STATUS_OK);
    CHECK(t.n == 3 && ((const uint8_t *)t.values - bytes) % 64 == 0);
    CHECK(memcmp(t.values, (int64_t[]){0, 4, 300}, 24) == 0);
    REQUIRE(sl_pt_tensor_get(p, sl_pt_find(sl_pt_root(p), "t2d"), &t, &err) == SPECRT_STATUS_OK);
    CHECK(t.n == 5 && t.kind == 'b' && memcmp(t.values, "\1\0\0\1\1", 5) == 0);
    sl_pt_close(p);
    free(bytes);
}

/* A cut archive never opens. A flipped byte either is noticed or changes nothing that is read. */
TEST(archive_damage, "cut and flipped archives") {
    size_t n;
    pt *p;
    pt_tensor t;
    uint8_t *bytes = written(&n, write_tensors);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *copy = (uint8_t *)malloc(cut ? cut : 1);
        memcpy(copy, bytes, cut);
        CHECK(sl_pt_open_memory(copy, cut, "x", &p, &err) != SPECRT_STATUS_OK && !p);
        free(copy);
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x41;
        if (sl_pt_open_memory(bytes, n, "x", &p, &err) == SPECRT_STATUS_OK) {
            const pt_value *d2t = sl_pt_find(sl_pt_root(p), "d2t");
            if (d2t && sl_pt_tensor_get(p, d2t, &t, &err) == SPECRT_STATUS_OK)
                CHECK(memcmp(t.values, (int64_t[]){0, 4, 300}, 24) == 0);
            sl_pt_close(p);
        }
        bytes[i] ^= 0x41;
    }
    free(bytes);
}

/* Edits of the directory that must be named. `at` counts from the first central header. */
TEST(archive_hostile, "edited directories") {
    static const struct {
        size_t at, n;
        const char *bytes, *text;
        specrt_status status;
    } cases[] = {
        {10, 2, "\x08\0", "compressed (method 8)", SPECRT_STATUS_UNSUPPORTED},
        {8, 1, "\x01", "encrypted", SPECRT_STATUS_BAD_INPUT},
        {20, 4, "\xff\xff\xff\x7f", "entry data is outside", SPECRT_STATUS_BAD_INPUT},
        {24, 4, "\1\0\0\0", "two sizes", SPECRT_STATUS_BAD_INPUT},
        {42, 4, "\xff\xff\xff\x7f", "entry offset is outside", SPECRT_STATUS_BAD_INPUT},
        {28, 2, "\xff\xff", "cut off", SPECRT_STATUS_BAD_INPUT},
        {16, 4, "\0\0\0\0", "CRC", SPECRT_STATUS_BAD_INPUT},
        {54, 1, "B", "without data.pkl", SPECRT_STATUS_BAD_INPUT},
        {0, 1, "Q", "cut off", SPECRT_STATUS_BAD_INPUT},
    };
    size_t n;
    pt *p;
    uint8_t *bytes = written_list(&n, N_LIST), *copy = (uint8_t *)malloc(n);
    size_t central = bytes[n - 6] | (size_t)bytes[n - 5] << 8;
    REQUIRE(copy && memcmp(bytes + central, "PK\1\2", 4) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(copy, bytes, n);
        memcpy(copy + central + cases[i].at, cases[i].bytes, cases[i].n);
        CHECK_INT(sl_pt_open_memory(copy, n, "x", &p, &err), cases[i].status);
        if (!strstr(err.msg, cases[i].text)) test_fail(__FILE__, (int)i, err.msg);
    }
    memcpy(copy, bytes, n);
    memset(copy + n - 14, 0xff, 4); /* 65535 entries in a directory of a few bytes */
    CHECK_INT(sl_pt_open_memory(copy, n, "x", &p, &err), SPECRT_STATUS_BAD_INPUT);
    memcpy(copy, bytes, n);
    copy[n - 7] = 0x40; /* a directory of 1 GiB */
    CHECK_INT(sl_pt_open_memory(copy, n, "x", &p, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "directory is outside the file");
    free(copy);
    free(bytes);
}

/* As written beyond 4 GiB: sizes and offsets of the directory and of its last entry are in 64 bits. */
TEST(archive_zip64, "sizes in 64 bits") {
    enum { END = 22, EXTRA = 34, END64 = 56, LOCATOR = 20 };
    static const int fields[3] = {24, 20, 42}; /* size, stored size, offset */
    size_t n;
    pt *p;
    uint8_t *bytes = written_list(&n, N_LIST);
    uint8_t *big = (uint8_t *)calloc(n + EXTRA + END64 + LOCATOR, 1), *extra = big + n - END;
    uint8_t *end64 = extra + EXTRA, *locator = end64 + END64, *end = locator + LOCATOR;
    REQUIRE(big != NULL);
    memcpy(big, bytes, n - END);
    memcpy(end, bytes + n - END, END);
    uint8_t *entry = extra;
    while (memcmp(entry, "PK\1\2", 4) != 0) entry--;
    entry[30] = EXTRA;
    memcpy(extra, "FB\2\0..\1\0\x18", 9); /* another field goes first */
    for (int i = 0; i < 3; i++) {
        memcpy(extra + 10 + 8 * i, entry + fields[i], 4);
        memset(entry + fields[i], 0xff, 4);
    }
    memcpy(end64, "PK\6\6", 4);
    memcpy(end64 + 32, end + 10, 2); /* entries, bytes and offset of the directory */
    memcpy(end64 + 40, end + 12, 4);
    memcpy(end64 + 48, end + 16, 4);
    end64[40] = (uint8_t)(end64[40] + EXTRA);
    memset(end + 8, 0xff, 12);
    memcpy(locator, "PK\6\7", 4);
    memcpy(locator + 8, (uint64_t[]){(uint64_t)(end64 - big)}, 8);
    CHECK_INT(sl_pt_open_memory(big, n + EXTRA + END64 + LOCATOR, "x", &p, &err), SPECRT_STATUS_OK);
    CHECK_INT(sl_pt_root(p)->object->n, N_LIST);
    sl_pt_close(p);
    memcpy(locator + 8, (uint64_t[]){n + EXTRA + END64 + LOCATOR}, 8); /* behind the file */
    CHECK_INT(sl_pt_open_memory(big, n + EXTRA + END64 + LOCATOR, "x", &p, &err),
              SPECRT_STATUS_BAD_INPUT);
    free(big);
    free(bytes);
}
