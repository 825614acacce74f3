/* test_safetensors.c : files built by hand, good and hostile, sharded models, and what we write. */
#include "formats/safetensors.h"
#include "folder.h"
#include "test.h"

#include <unistd.h>

static uint8_t file[1 << 16]; /* the file under test */

/* A file of this header and n data bytes 0, 1, 2, ... @return its size. */
static size_t build(const char *header, size_t n_data) {
    uint64_t n = strlen(header);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < n_data; i++) file[8 + n + i] = (uint8_t)i;
    return 8 + n + n_data;
}

static specrt_status open_built(const char *header, size_t n_data, st **out, specrt_error *err) {
    return sl_st_open_memory(file, build(header, n_data), "x.safetensors", out, err);
}

/* The header is refused, in words that hold `say`. */
static void refuse(const char *header, size_t n_data, const char *say) {
    st *s;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(open_built(header, n_data, &s, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK(s == NULL);
    CHECK_HAS(err.msg, "x.safetensors: ");
    CHECK_HAS(err.msg, say);
}

#define F32_2 "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

TEST(read, "tensors, scalars, empty ones, metadata and escapes") {
    st *s;
    specrt_error err;
    int64_t n;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}, \"b\" : {\"dtype\":\"BF16\","
                         "\"shape\":[2,3],\"data_offsets\":[2,14]},\"a\\u00e9/\":{\"data_offsets\":"
                         "[0,2],\"shape\":[],\"dtype\":\"I16\"},\"z\":{\"dtype\":\"F4\","
                         "\"shape\":[0,4],\"data_offsets\":[14,14]}}   ";
    REQUIRE(open_built(header, 14, &s, &err) == SPECRT_STATUS_OK);
    const st_tensor *tensors = sl_st_tensors(s, &n);
    CHECK_INT(n, 3);
    CHECK_STR(tensors[0].name, "a\xc3\xa9/");
    CHECK_INT(tensors[0].n_dims, 0);
    CHECK_INT(tensors[0].bytes, 2);
    const st_tensor *b = sl_st_find(s, "b");
    REQUIRE(b);
    CHECK_STR(b->dtype, "BF16");
    CHECK_INT(b->n_dims, 2);
    CHECK_INT(b->shape[1], 3);
    CHECK_INT(b->data[0], 2);
    CHECK_INT(sl_st_find(s, "z")->bytes, 0);
    CHECK(sl_st_find(s, "c") == NULL);
    sl_st_close(s);
    REQUIRE(open_built("{}", 0, &s, &err) == SPECRT_STATUS_OK);
    CHECK(sl_st_find(s, "a") == NULL);
    sl_st_close(s);
    sl_st_close(NULL);
}

TEST(layout, "holes, overlaps, sizes that do not fit") {
    refuse("{\"a\":" F32_2 "}", 7, "ends at byte 8 of the data, which has 7");
    refuse("{\"a\":" F32_2 "}", 9, "1 bytes after the last tensor");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "begin at 4");
    refuse("{\"a\":" F32_2 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
           "\"b\": data_offsets begin at 4; expected 8");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
           "span 4 bytes; expected 8");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
           "expected [begin, end] with begin <= end");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
           "expected [begin, end] with begin <= end");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
           0, "shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
           "at most 8");
}

TEST(fields, "wrong, missing, repeated and unknown fields") {
    refuse("{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
           "unknown dtype \"F33\"");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "non-negative");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "integers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4,
           "integers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}", 4, "nesting");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
           "expected an array");
    refuse("{\"a\":{\"dtype\":null,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "expected a string");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "expected dtype, shape and data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"extra\":[]}}", 0, "unknown field \"extra\"");
    refuse("{\"a\":{\"shape\":[],\"dtype\":\"F32\",\"shape\":[]}}", 0, "shape occurs twice");
    refuse("{\"a\":" F32_2 ",\"\\u0061\":" F32_2 "}", 8, "\"a\": occurs twice");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__\": occurs twice");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "expected a string");
    refuse("{\"a\\u0000b\":" F32_2 "}", 8, "NUL");
    refuse("{\"a\xff\":" F32_2 "}", 8, "utf-8");
}

TEST(syntax, "broken JSON") {
    refuse("", 0, "start with '{'");
    refuse(" {}", 0, "start with '{'");
    refuse("[]", 0, "start with '{'");
    refuse("{", 0, "expected a string");
    refuse("{\"a\"}", 0, "':'");
    refuse("{\"a\":3}", 0, "expected an object");
    refuse("{\"a\":" F32_2 ",}", 8, "expected a string");
    refuse("{\"a\":" F32_2 " \"b\":" F32_2 "}", 8, "','");
    refuse("{\"a\":" F32_2 "} x", 8, "after the last");
    refuse("{\"a", 0, "cut off");
}

TEST(prefix, "every truncation, a huge header length") {
    st *s;
    specrt_error err;
    size_t n = build("{\"a\":" F32_2 "}", 8);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc(cut + 1); /* so that a sanitizer sees reads beyond the end */
        REQUIRE(exact);
        memcpy(exact + 1, file, cut);
        CHECK_INT(sl_st_open_memory(exact + 1, cut, "x", &s, &err), SPECRT_STATUS_BAD_INPUT);
        if (cut == 11) CHECK_HAS(err.msg, "header; expected 54 bytes of it, found 3");
        free(exact);
    }
    CHECK_INT(sl_st_open_memory(NULL, 0, "x", &s, &err), SPECRT_STATUS_BAD_INPUT);
    memset(file, 0xff, 8);
    CHECK_INT(sl_st_open_memory(file, n, "x", &s, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "header length");
}

/* --- files --- */

static void put_file(const char *name, const void *bytes, size_t n) {
    specrt_error err;
    REQUIRE(sl_out_bytes(in_folder(name), true, bytes, n, &err) == SPECRT_STATUS_OK);
}

static void put_text(const char *name, const char *text) {
    put_file(name, text, strlen(text));
}

static void refuse_index(const char *text, specrt_status status, const char *say) {
    st *s;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    put_text("x.json", text);
    CHECK_INT(sl_st_open(in_folder("x.json"), &s, &err), status);
    CHECK_HAS(err.msg, say);
}

TEST(sharded, "an index, its shards and hostile ones") {
    st *s;
    specrt_error err;
    int64_t n;
    put_file("1", file,
             build("{\"a\":" F32_2 ",\"spare\":{\"dtype\":\"U8\",\"shape\":[0],"
                   "\"data_offsets\":[8,8]}}",
                   8));
    put_file("2", file,
             build("{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3));
    put_text("x.json", " {\"metadata\":{\"total_size\":1.5e3,\"odd\":[\"}\",{}]},\n"
                       "\"weight_map\":{\"b\":\"2\",\"a\":\"1\"}, \"more\":null}");
    REQUIRE(sl_st_open(in_folder("x.json"), &s, &err) == SPECRT_STATUS_OK);
    CHECK_STR(sl_st_tensors(s, &n)[1].name, "b");
    CHECK_INT(n, 2);
    CHECK_INT(sl_st_find(s, "b")->data[2], 2);
    CHECK(sl_st_find(s, "spare") == NULL);
    sl_st_close(s);
    refuse_index("{}", SPECRT_STATUS_BAD_INPUT, "weight_map\": missing");
    refuse_index("{\"weight_map\":[]}", SPECRT_STATUS_BAD_INPUT, "expected an object");
    refuse_index("{\"weight_map\":{\"a\":1}}", SPECRT_STATUS_BAD_INPUT, "expected a string");
    refuse_index("{\"weight_map\":{\"a\":\"2\"}}", SPECRT_STATUS_BAD_INPUT, "\"a\": missing");
    refuse_index("{\"weight_map\":{\"a\":\"1\",\"a\":\"1\"}}", SPECRT_STATUS_BAD_INPUT,
                 "\"a\": occurs twice");
    refuse_index("{\"weight_map\":{\"a\":\"3\"}}", SPECRT_STATUS_IO, "/3: cannot open");
    refuse_index("{\"weight_map\":{\"a\":\"../1\"}}", SPECRT_STATUS_BAD_INPUT, "plain file name");
    refuse_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", SPECRT_STATUS_BAD_INPUT,
                 "plain file name");
    refuse_index("{\"weight_map\":{\"a\":\"..\"}}", SPECRT_STATUS_BAD_INPUT, "plain file name");
    refuse_index("{\"weight_map\":{},\"weight_map\":{}}", SPECRT_STATUS_BAD_INPUT, "occurs twice");
    refuse_index("{\"metadata\":[[", SPECRT_STATUS_BAD_INPUT, "ends in a value");
    REQUIRE(symlink("/dev/null", in_folder("3")) == 0);
    refuse_index("{\"weight_map\":{\"a\":\"3\"}}", SPECRT_STATUS_IO, "found a pipe or device");
    CHECK_INT(clear_folder(), 4);
}

TEST(write, "what we write we read") {
    const uint8_t ids[16] = {7}, flags[3] = {1, 0, 1};
    const st_tensor tensors[] = {
        {"d2t", "I64", 1, {2}, ids, 16},
        {"with \"quotes\" / and \xc3\xa9", "BOOL", 1, {3}, flags, 3},
        {"scalar", "F32", 0, {0}, ids, 4},
    };
    const char *const metadata[] = {"format", "pt", "made by", "specrt"};
    specrt_error err;
    out_file out;
    st *s;
    file_view view;
    uint64_t n_header;
    const char *path = in_folder("written.safetensors");
    REQUIRE(sl_out_open(&out, path, true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_write(tensors, 3, metadata, 2, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &view, &err) == SPECRT_STATUS_OK);
    memcpy(&n_header, view.bytes, 8);
    CHECK_INT(n_header % 8, 0);
    CHECK(memcmp(view.bytes + 8, "{\"__metadata__\":{\"format\":\"pt\",", 30) == 0);
    sl_file_unmap(&view);
    REQUIRE(sl_st_open(path, &s, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 3; i++) {
        const st_tensor *t = sl_st_find(s, tensors[i].name);
        REQUIRE(t);
        CHECK_STR(t->dtype, tensors[i].dtype);
        CHECK_INT(t->n_dims, tensors[i].n_dims);
        CHECK_INT(t->bytes, tensors[i].bytes);
        CHECK(memcmp(t->data, tensors[i].data, t->bytes) == 0);
    }
    sl_st_close(s);
    CHECK_INT(clear_folder(), 1);
}

TEST(write_refusals, "tensors that contradict themselves") {
    const uint8_t ids[16] = {7};
    st_tensor tensors[] = {{"a", "I64", 1, {2}, ids, 16}, {"a", "I64", 1, {2}, ids, 16}};
    specrt_error err;
    out_file out;
    REQUIRE(sl_out_open(&out, in_folder("never"), true, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_st_write(tensors, 2, NULL, 0, &out, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "given twice");
    tensors[0].bytes = 15;
    CHECK_INT(sl_st_write(tensors, 1, NULL, 0, &out, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "do not agree");
    sl_out_abort(&out);
    CHECK_INT(clear_folder(), 0);
}

TEST(real, "the sample drafter") {
    st *s;
    specrt_error err;
    specrt_dtype dtype;
    int64_t n;
    REQUIRE(sl_st_open(test_data("weights/pair128k/draft.safetensors"), &s, &err) ==
            SPECRT_STATUS_OK);
    sl_st_tensors(s, &n);
    CHECK_INT(n, 10);
    const st_tensor *fc = sl_st_find(s, "fc.weight");
    REQUIRE(fc);
    CHECK_INT(fc->shape[0], 256);
    CHECK_INT(fc->shape[1], 512);
    CHECK(sl_st_dtype(fc->dtype, &dtype) && dtype == SPECRT_DTYPE_F16);
    CHECK(!sl_st_dtype("BOOL", &dtype));
    CHECK(!sl_st_dtype("f16", &dtype));
    sl_st_close(s);
}
