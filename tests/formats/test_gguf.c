/* test_gguf.c : files built byte by byte, good and hostile, split models, rewriting, real ones. */
#include "formats/gguf.h"
#include "folder.h"
#include "test.h"

#include <unistd.h>

/* --- a builder --- */

static uint8_t file[1 << 16];
static size_t n_file;

static void put(const void *data, size_t n) {
    memcpy(file + n_file, data, n);
    n_file += n;
}

static void put_u32(uint32_t x) {
    put(&x, sizeof x);
}

static void put_u64(uint64_t x) {
    put(&x, sizeof x);
}

static void put_text(const char *text) {
    put_u64(strlen(text));
    put(text, strlen(text));
}

static void start(uint32_t version, uint64_t n_tensors, uint64_t n_kvs) {
    n_file = 0;
    put("GGUF", 4);
    put_u32(version);
    put_u64(n_tensors);
    put_u64(n_kvs);
}

static void put_key(const char *key, uint32_t type) {
    put_text(key);
    put_u32(type);
}

static void put_kv_u32(const char *key, uint32_t value) {
    put_key(key, GGUF_U32);
    put_u32(value);
}

static void put_tensor(const char *name, uint32_t type, int64_t cols, int64_t rows,
                       uint64_t offset) {
    put_text(name);
    put_u32(2);
    put_u64((uint64_t)cols);
    put_u64((uint64_t)rows);
    put_u32(type);
    put_u64(offset);
}

static void put_data(size_t n) {
    while (n_file % 32) file[n_file++] = 0;
    for (size_t i = 0; i < n; i++) file[n_file++] = (uint8_t)i;
}

static gguf *open_built(void) {
    gguf *g;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    if (sl_gguf_open_memory(file, n_file, "x.gguf", &g, &err)) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(g);
    return g;
}

/* What was built is refused, in words that hold `say`. */
static void refuse(const char *say) {
    gguf *g;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    uint8_t *exact = malloc(n_file + 1); /* so that a sanitizer sees reads beyond the end */
    REQUIRE(exact);
    memcpy(exact + 1, file, n_file);
    CHECK_INT(sl_gguf_open_memory(exact + 1, n_file, "x.gguf", &g, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK(g == NULL);
    free(exact);
    CHECK_HAS(err.msg, "x.gguf: ");
    CHECK_HAS(err.msg, say);
}

/* --- reading --- */

/* One key of every type, and an array of strings, of numbers and of arrays. */
static void build_kvs(uint32_t version) {
    start(version, 0, 16);
    put_key("u8", GGUF_U8), put("\xff", 1);
    put_key("i8", GGUF_I8), put("\xff", 1);
    put_key("u16", GGUF_U16), put("\xfe\xff", 2);
    put_key("i16", GGUF_I16), put("\xfe\xff", 2);
    put_kv_u32("u32", 4000000000u);
    put_key("i32", GGUF_I32), put_u32((uint32_t)-5);
    put_key("f32", GGUF_F32), put(&(float){0.5f}, 4);
    put_key("bool", GGUF_BOOL), put("\1", 1);
    put_key("string", GGUF_STRING), put_text("h\xc3\xa9");
    put_key("u64", GGUF_U64), put_u64(UINT64_MAX);
    put_key("i64", GGUF_I64), put_u64((uint64_t)INT64_MIN);
    put_key("f64", GGUF_F64), put(&(double){-1e300}, 8);
    put_key("strings", GGUF_ARRAY), put_u32(GGUF_STRING), put_u64(3);
    put_text("a"), put_text(""), put_text("ccc");
    put_key("numbers", GGUF_ARRAY), put_u32(GGUF_I32), put_u64(2), put_u32(7), put_u32(8);
    put_key("nested", GGUF_ARRAY), put_u32(GGUF_ARRAY), put_u64(2);
    put_u32(GGUF_U8), put_u64(3), put("abc", 3), put_u32(GGUF_STRING), put_u64(1), put_text("x");
    put_kv_u32("last", 42);
}

static void check_int(const gguf *g, const char *key, int64_t expected) {
    int64_t found = 0;
    CHECK(sl_gguf_get_int(g, key, &found));
    CHECK_INT(found, expected);
}

static void check_kvs(const gguf *g) {
    int64_t n, found;
    double real;
    gguf_string s;
    check_int(g, "u8", 255);
    check_int(g, "i8", -1);
    check_int(g, "u16", 65534);
    check_int(g, "i16", -2);
    check_int(g, "u32", 4000000000);
    check_int(g, "i32", -5);
    check_int(g, "bool", 1);
    check_int(g, "i64", INT64_MIN);
    check_int(g, "last", 42);
    CHECK(!sl_gguf_get_int(g, "u64", &found)); /* does not fit */
    CHECK(!sl_gguf_get_int(g, "f32", &found));
    CHECK(!sl_gguf_get_int(g, "string", &found));
    CHECK(!sl_gguf_get_int(g, "numbers", &found));
    CHECK(!sl_gguf_get_int(g, "nothing", &found));
    CHECK(sl_gguf_get_real(g, "f32", &real) && real == 0.5);
    CHECK(sl_gguf_get_real(g, "f64", &real) && real == -1e300);
    CHECK(!sl_gguf_get_real(g, "u8", &real));
    CHECK(sl_gguf_get_string(g, "string", &s) && s.n == 3 && memcmp(s.s, "h\xc3\xa9", 3) == 0);
    CHECK(!sl_gguf_get_string(g, "strings", &s));
    CHECK_INT(sl_gguf_kvs(g, &n)[15].count, 1);
    CHECK_INT(n, 16);
    const gguf_kv *numbers = sl_gguf_find(g, "numbers");
    CHECK_INT(numbers->count, 2);
    CHECK_INT(numbers->elem, GGUF_I32);
    CHECK_INT(numbers->value_bytes, 8);
    CHECK_INT(sl_gguf_find(g, "nested")->value_bytes, 12 + 3 + 12 + 9);
}

TEST(kvs, "every value type, versions 2 and 3") {
    for (uint32_t version = 2; version <= 3; version++) {
        int64_t n;
        build_kvs(version);
        gguf *g = open_built();
        check_kvs(g);
        gguf_string *strings = sl_gguf_get_strings(g, "strings", &n);
        CHECK_INT(n, 3);
        CHECK(strings[1].n == 0 && strings[2].n == 3 && memcmp(strings[2].s, "ccc", 3) == 0);
        free(strings);
        CHECK(!sl_gguf_get_strings(g, "numbers", &n) && !sl_gguf_get_strings(g, "none", &n));
        sl_gguf_close(g);
    }
    sl_gguf_close(NULL);
}

TEST(tensors, "known, undecodable and unknown types") {
    int64_t n;
    start(3, 3, 0);
    put_tensor("b", SPECRT_DTYPE_F16, 8, 3, 0);
    put_tensor("a", 23, 256, 2, 64); /* iq4_xs: known, not decoded */
    put_tensor("c", 77, 5, 1, 352);  /* unknown: to the end */
    put_data(360);
    gguf *g = open_built();
    const gguf_tensor *tensors = sl_gguf_tensors(g, &n);
    CHECK_INT(n, 3);
    CHECK_INT(tensors[0].bytes, 48);
    CHECK_INT(tensors[1].bytes, 272);
    CHECK_INT(tensors[2].bytes, 8);
    CHECK_INT(sl_gguf_find_tensor(g, "a")->data[0], 64);
    CHECK_INT(sl_gguf_find_tensor(g, "a")->dims[1], 2);
    CHECK_INT(sl_gguf_find_tensor(g, "a")->dims[3], 1);
    CHECK_STR(sl_gguf_type_name(tensors[1].type), "iq4_xs");
    CHECK_STR(sl_gguf_type_name(SPECRT_DTYPE_Q6_K), "q6_k");
    CHECK_STR(sl_gguf_type_name(77), "unknown");
    CHECK(sl_gguf_find_tensor(g, "d") == NULL);
    sl_gguf_close(g);
}

TEST(alignment, "other than 32, and impossible ones") {
    start(3, 1, 1);
    put_kv_u32("general.alignment", 64);
    put_tensor("a", SPECRT_DTYPE_F32, 1, 1, 64);
    while (n_file % 64) file[n_file++] = 0;
    put_data(68);
    gguf *g = open_built();
    CHECK_INT(sl_gguf_find_tensor(g, "a")->data[0], 64);
    sl_gguf_close(g);
    for (uint32_t wrong = 0; wrong < 4; wrong += 3) {
        start(3, 0, 1);
        put_kv_u32("general.alignment", wrong);
        refuse("\"general.alignment\": ");
    }
    start(3, 0, 1);
    put_key("general.alignment", GGUF_U64), put_u64(32);
    refuse("\"general.alignment\": value type 10; expected 4 (u32)");
}

/* --- hostile files --- */

TEST(headers, "versions, byte order, counts") {
    static const struct {
        uint32_t version;
        const char *say;
    } wrong[] = {{1, "version 1 is obsolete"},
                 {0, "version 0; expected 2 or 3"},
                 {4, "version 4; expected 2 or 3"},
                 {0x03000000, "big-endian"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        start(wrong[i].version, 0, 0);
        refuse(wrong[i].say);
    }
    start(3, 0, UINT64_MAX);
    refuse("18446744073709551615 key-value pairs do not fit");
    start(3, UINT64_MAX, 0);
    refuse("18446744073709551615 tensors do not fit");
    memcpy(file, "GGML", 4);
    refuse("no GGUF file");
}

TEST(least, "a pair of 13 bytes and a tensor of 25 are the least that there can be") {
    for (uint64_t n = 1; n <= 2; n++) {
        start(3, 0, n);
        put_key("", GGUF_BOOL), put("\1", 1);
        if (n == 1) sl_gguf_close(open_built());
        if (n == 2) refuse("2 key-value pairs do not fit");
        start(3, n, 0);
        put_text("t"), put_u32(0), put_u32(77), put_u64(0);
        if (n == 1) sl_gguf_close(open_built());
        if (n == 2) refuse("2 tensors do not fit");
    }
}

static void refuse_truncations(void) {
    size_t n = n_file;
    for (size_t cut = 0; cut < n; cut++) {
        n_file = cut;
        refuse("");
    }
}

TEST(truncated, "every truncation") {
    build_kvs(3);
    refuse_truncations();
    start(3, 1, 0);
    put_tensor("weight", SPECRT_DTYPE_F32, 4, 2, 0);
    put_data(32);
    refuse_truncations();
}

TEST(hostile_kvs, "types, lengths, counts, nesting, duplicates") {
    start(3, 0, 1);
    put_key("k\n\033[31m", 13), put_u64(0);
    refuse("key \"k??[31m\": value type 13");
    start(3, 0, 1);
    put_key("k", GGUF_STRING), put_u64(UINT64_MAX), put_u64(0);
    refuse("key \"k\": a string of 18446744073709551615 bytes");
    start(3, 0, 1);
    put_key("k", GGUF_ARRAY), put_u32(GGUF_U64), put_u64((uint64_t)1 << 61), put_u64(0);
    refuse("key \"k\": an array of 2305843009213693952 elements");
    start(3, 0, 1);
    put_key("k", GGUF_ARRAY), put_u32(GGUF_U64), put_u64(2), put_u64(0);
    refuse("key \"k\": the file ends; expected 16 more bytes");
    start(3, 0, 1);
    put_key("k", GGUF_ARRAY), put_u32(GGUF_STRING), put_u64(1u << 30), put_u64(0);
    refuse("key \"k\": the file ends");
    start(3, 0, 1);
    put_key("k", GGUF_BOOL), put("\2", 1);
    refuse("key \"k\": a bool of 2");
    start(3, 0, 2);
    put_kv_u32("k", 1), put_kv_u32("k", 1);
    refuse("key \"k\": occurs twice");
    start(3, 0, 1);
    put_key("k", GGUF_ARRAY);
    for (int i = 0; i < 50; i++) put_u32(GGUF_ARRAY), put_u64(1);
    refuse("key \"k\": arrays nested deeper");
}

TEST(hostile_tensors, "names, dimensions, offsets, duplicates") {
    char name[65] = "";
    memset(name, 'n', 64);
    start(3, 1, 0);
    put_tensor(name, SPECRT_DTYPE_F32, 1, 1, 0), put_data(4);
    refuse("a name of 64 bytes");
    start(3, 1, 0);
    put_tensor("", SPECRT_DTYPE_F32, 1, 1, 0), put_data(4);
    refuse("empty name");
    start(3, 1, 0);
    put_text("t"), put_u32(5);
    for (int i = 0; i < 8; i++) put_u64(1);
    refuse("tensor \"t\": 5 dimensions");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, -1, 1, 0), put_data(4);
    refuse("tensor \"t\": dimension 0 of 18446744073709551615 overflows");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, (int64_t)1 << 40, (int64_t)1 << 40, 0), put_data(4);
    refuse("tensor \"t\": dimension 1");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, (int64_t)1 << 62, 1, 0), put_data(4);
    refuse("tensor \"t\": size overflows");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_Q6_K, 100, 1, 0), put_data(400);
    refuse("tensor \"t\": row length is no multiple of the type's block (100 of q6_k)");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, 1, 1, 4), put_data(40);
    refuse("tensor \"t\": offset 4; expected a multiple of 32");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, 2, 4, 32), put_data(63);
    refuse("tensor \"t\": 32 bytes at offset 32 of the data, which has 63");
    start(3, 1, 0);
    put_tensor("t", SPECRT_DTYPE_F32, 1, 1, UINT64_MAX - 31), put_data(40);
    refuse("tensor \"t\": 4 bytes at offset");
    start(3, 2, 0);
    put_tensor("t", SPECRT_DTYPE_F32, 1, 1, 0), put_tensor("u", SPECRT_DTYPE_F32, 1, 1, 0);
    put_data(4);
    refuse("tensor \"u\": offset 0; expected at least 4");
    start(3, 2, 0);
    put_tensor("t", SPECRT_DTYPE_F32, 1, 1, 0), put_tensor("t", SPECRT_DTYPE_F32, 1, 1, 32);
    put_data(36);
    refuse("tensor \"t\": occurs twice");
}

/* --- files --- */

static void save(const char *name) {
    specrt_error err;
    REQUIRE(sl_out_bytes(in_folder(name), true, file, n_file, &err) == SPECRT_STATUS_OK);
}

static const char *const part_names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                         "m-00003-of-00003.gguf"};

/* Part `no` of a model of three tensors t0, t1, t2 of 4 floats each. */
static void save_part(uint32_t no, uint32_t count, uint32_t n_tensors) {
    char name[8];
    snprintf(name, sizeof name, "t%u", no);
    start(3, 1, no == 0 ? 4 : 3);
    put_key("split.no", GGUF_U16), put(&no, 2);
    put_key("split.count", GGUF_U16), put(&count, 2);
    put_key("split.tensors.count", GGUF_I32), put_u32(n_tensors);
    if (no == 0) put_key("general.name", GGUF_STRING), put_text("whole");
    put_tensor(name, SPECRT_DTYPE_F32, 2, 2, 0);
    put_data(15), file[n_file++] = (uint8_t)no;
    save(part_names[no]);
}

static void refuse_split(specrt_status status, const char *say) {
    gguf *g;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(sl_gguf_open(in_folder(part_names[0]), &g, &err), status);
    CHECK(g == NULL);
    CHECK_HAS(err.msg, say);
}

static gguf *rewrite(const gguf *g, const gguf_tensor *edits, int n_edits) {
    gguf *again;
    specrt_error err;
    out_file out;
    REQUIRE(sl_out_open(&out, in_folder("rewritten.gguf"), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_rewrite(g, edits, n_edits, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_gguf_open(in_folder("rewritten.gguf"), &again, &err) == SPECRT_STATUS_OK);
    return again;
}

TEST(split, "three parts, rewritten as one file") {
    gguf *g;
    specrt_error err;
    int64_t n, unused;
    for (uint32_t no = 0; no < 3; no++) save_part(no, 3, 3);
    REQUIRE(sl_gguf_open(in_folder(part_names[0]), &g, &err) == SPECRT_STATUS_OK);
    CHECK_STR(sl_gguf_tensors(g, &n)[2].name, "t2");
    CHECK_INT(n, 3);
    CHECK_INT(sl_gguf_find_tensor(g, "t1")->data[15], 1);
    gguf *whole = rewrite(g, NULL, 0);
    CHECK_INT(sl_gguf_find_tensor(whole, "t2")->data[15], 2);
    CHECK(!sl_gguf_get_int(whole, "split.count", &unused));
    CHECK(sl_gguf_find(whole, "general.name") != NULL);
    sl_gguf_close(whole);
    sl_gguf_close(g);
    CHECK_INT(clear_folder(), 4);
}

TEST(split_refusals, "missing, swapped and foreign parts") {
    gguf *g;
    specrt_error err;
    for (uint32_t no = 0; no < 3; no++) save_part(no, 3, 3);
    CHECK_INT(sl_gguf_open(in_folder(part_names[1]), &g, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "part 2 of a split model; open its part 1");
    save_part(1, 4, 3);
    refuse_split(SPECRT_STATUS_BAD_INPUT, "key \"split.count\": expected 3, found 4");
    save_part(2, 3, 3), rename(in_folder(part_names[2]), in_folder(part_names[1]));
    refuse_split(SPECRT_STATUS_BAD_INPUT, "key \"split.no\": expected 1, found 2");
    unlink(in_folder(part_names[1]));
    refuse_split(SPECRT_STATUS_IO, "part 2 of 3: ");
    for (uint32_t no = 0; no < 3; no++) save_part(no, 3, 5);
    refuse_split(SPECRT_STATUS_BAD_INPUT, "key \"split.tensors.count\": expected 3, found 5");
    save_part(0, 2, 2);
    refuse_split(SPECRT_STATUS_BAD_INPUT, "expected its name to end in \"-00001-of-00002.gguf\"");
    save_part(0, 0, 3);
    refuse_split(SPECRT_STATUS_BAD_INPUT, "key \"split.count\": 0; expected 1 to 65535");
    save_part(0, 3, 3);
    CHECK_INT(sl_gguf_open_memory(file, n_file, "x", &g, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(clear_folder(), 3);
}

TEST(rewrite, "tensors replaced, dropped and added") {
    static const float rows[4] = {1, 2, 3, 4};
    static const int64_t ids[2] = {5, 6};
    gguf_tensor edits[3] = {
        {.name = "b", .n_dims = 4, .dims = {2, 2, 1, 1}, .type = SPECRT_DTYPE_F32},
        {.name = "a"},
        {.name = "d2t", .n_dims = 1, .dims = {2, 1, 1, 1}, .type = SPECRT_DTYPE_I64},
    };
    edits[0].data = (const uint8_t *)rows, edits[0].bytes = sizeof rows;
    edits[2].data = (const uint8_t *)ids, edits[2].bytes = sizeof ids;
    start(3, 3, 2);
    put_kv_u32("general.alignment", 64), put_kv_u32("k", 9);
    put_tensor("a", SPECRT_DTYPE_F32, 4, 4, 0);
    put_tensor("b", SPECRT_DTYPE_F16, 2, 100, 64);
    put_tensor("c", 77, 1, 1, 512); /* of a type we do not know */
    while (n_file % 64) file[n_file++] = 0;
    put_data(600);
    gguf *g = open_built();
    gguf *again = rewrite(g, edits, 3);
    int64_t n;
    const gguf_tensor *tensors = sl_gguf_tensors(again, &n);
    CHECK_INT(n, 3);
    CHECK_STR(tensors[0].name, "b");
    CHECK_STR(tensors[2].name, "d2t");
    CHECK(memcmp(tensors[0].data, rows, sizeof rows) == 0);
    CHECK_INT(tensors[1].offset, 64);
    CHECK_INT(tensors[1].data[80], (uint8_t)(512 + 80));
    CHECK_INT(tensors[2].n_dims, 1);
    CHECK(memcmp(tensors[2].data, ids, sizeof ids) == 0);
    CHECK_INT(sl_gguf_kvs(again, &n)[1].value[0], 9);
    sl_gguf_close(again);
    sl_gguf_close(g);
    CHECK_INT(clear_folder(), 1);
}

static void refuse_edit(const gguf *g, const gguf_tensor *edits, int n, const char *say) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    out_file out;
    REQUIRE(sl_out_open(&out, in_folder("never.gguf"), true, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_gguf_rewrite(g, edits, n, &out, &err), SPECRT_STATUS_BAD_ARG);
    sl_out_abort(&out);
    CHECK_HAS(err.msg, say);
}

TEST(rewrite_refusals, "edits that contradict themselves") {
    static const uint8_t data[8] = {0};
    gguf_tensor edit = {.name = "t", .n_dims = 1, .dims = {2, 1, 1, 1}, .data = data, .bytes = 8};
    gguf_tensor twice[2] = {edit, edit}, drop = {.name = "t"};
    start(3, 0, 0);
    gguf *g = open_built();
    refuse_edit(g, twice, 2, "edited twice");
    refuse_edit(g, &drop, 1, "not there");
    edit.bytes = 4;
    refuse_edit(g, &edit, 1, "size does not follow");
    edit.type = 77;
    refuse_edit(g, &edit, 1, "type is not known");
    sl_gguf_close(g);
    CHECK_INT(clear_folder(), 0);
}

/* --- real files --- */

static void check_vocabulary(const char *name, const char *model, int64_t n_tokens,
                             const char *last) {
    char path[64];
    int64_t n;
    gguf *g;
    gguf_string s;
    specrt_error err;
    snprintf(path, sizeof path, "tokenizers/gguf/ggml-vocab-%s.gguf", name);
    REQUIRE(sl_gguf_open(test_data(path), &g, &err) == SPECRT_STATUS_OK);
    CHECK(sl_gguf_get_string(g, "tokenizer.ggml.model", &s) && s.n == strlen(model) &&
          memcmp(s.s, model, s.n) == 0);
    gguf_string *tokens = sl_gguf_get_strings(g, "tokenizer.ggml.tokens", &n);
    REQUIRE(tokens);
    CHECK_INT(n, n_tokens);
    CHECK(tokens[n - 1].n == strlen(last) && memcmp(tokens[n - 1].s, last, strlen(last)) == 0);
    free(tokens);
    sl_gguf_close(g);
}

TEST(vocabularies, "real vocabulary files") {
    check_vocabulary("deepseek-llm", "gpt2", 102400, "[PAD102399]");
    check_vocabulary("falcon", "gpt2", 65024, "\xc4\xa0victoria");
    check_vocabulary("gpt-2", "gpt2", 50257, "<|endoftext|>");
    check_vocabulary("llama-spm", "llama", 32000, "\xe7\xbb\x99");
    check_vocabulary("phi-3", "llama", 32064, "[PAD32063]");
}

TEST(identity, "nothing edited, nothing changed: byte for byte") {
    static const char *const paths[] = {"tokenizers/gguf/ggml-vocab-gpt-2.gguf",
                                        "weights/pair128k/target.gguf"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        gguf *g;
        specrt_error err;
        file_view before, after;
        const char *path = test_data(paths[i]);
        REQUIRE(sl_gguf_open(path, &g, &err) == SPECRT_STATUS_OK);
        sl_gguf_close(rewrite(g, NULL, 0));
        sl_gguf_close(g);
        REQUIRE(sl_file_map(path, &before, &err) == SPECRT_STATUS_OK);
        REQUIRE(sl_file_map(in_folder("rewritten.gguf"), &after, &err) == SPECRT_STATUS_OK);
        CHECK_INT(before.n, after.n);
        CHECK(before.n == after.n && memcmp(before.bytes, after.bytes, before.n) == 0);
        sl_file_unmap(&before);
        sl_file_unmap(&after);
        CHECK_INT(clear_folder(), 1);
    }
}
