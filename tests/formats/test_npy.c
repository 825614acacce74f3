/* test_npy.c : .npy headers as NumPy writes them, and every way to get them wrong. */
#include "formats/npy.h"
#include "folder.h"

static char file[4096];

/* A version-1 file: header text, then `n_values` bytes of 1, 2, 3, ... */
static size_t make(const char *dict, size_t n_values) {
    size_t n = strlen(dict);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (char)(n & 255), file[9] = (char)(n >> 8);
    memcpy(file + 10, dict, n);
    for (size_t i = 0; i < n_values; i++) file[10 + n + i] = (char)(i + 1);
    return 10 + n + n_values;
}

TEST(read, "kinds, sizes, shapes and key order") {
    npy_array a;
    const uint8_t *values;
    specrt_error err;
    size_t n = make("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }   \n", 16);
    REQUIRE(sl_npy_values(file, n, "x", &a, &values, &err) == SPECRT_STATUS_OK);
    CHECK(a.kind == 'i' && a.item_bytes == 8 && a.n_dims == 1 && a.n == 2 && !a.fortran);
    CHECK_INT(sl_npy_int(&a, values, 1), 0x100F0E0D0C0B0A09);
    n = make("{'shape':(2, 3),'fortran_order':True,'descr':'<u2'}", 12);
    REQUIRE(sl_npy_values(file, n, "x", &a, &values, &err) == SPECRT_STATUS_OK);
    CHECK(a.kind == 'u' && a.fortran && a.n_dims == 2 && a.shape[1] == 3 && a.n == 6);
    CHECK_INT(sl_npy_int(&a, values, 5), 0x0C0B);
    n = make("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", 1);
    REQUIRE(sl_npy_values(file, n, "x", &a, &values, &err) == SPECRT_STATUS_OK);
    CHECK(a.n_dims == 0 && a.n == 1 && sl_npy_int(&a, values, 0) == 1);
    n = make("{'descr': '<i4', 'fortran_order': False, 'shape': (0,), }", 0);
    CHECK(sl_npy_values(file, n, "x", &a, &values, &err) == SPECRT_STATUS_OK && a.n == 0);
}

TEST(signs, "integers of every width") {
    const uint8_t ones[8] = {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    for (int bytes = 1; bytes <= 8; bytes *= 2) {
        npy_array a = {.kind = 'i', .item_bytes = bytes};
        CHECK_INT(sl_npy_int(&a, ones, 0), -2);
    }
    npy_array a = {.kind = 'u', .item_bytes = 8};
    CHECK(sl_npy_int(&a, ones, 0) == INT64_MAX);
    a.item_bytes = 4;
    CHECK_INT(sl_npy_int(&a, ones, 0), 0xFFFFFFFE);
}

TEST(version_2, "long headers are version 2: a 4-byte length") {
    npy_array a;
    const char *dict = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
    size_t n = strlen(dict);
    memcpy(file, "\x93NUMPY\x02\x00", 8);
    file[8] = (char)n, file[9] = file[10] = file[11] = 0;
    memcpy(file + 12, dict, n);
    REQUIRE(sl_npy_header(file, 12 + n, "x", &a, NULL) == SPECRT_STATUS_OK);
    CHECK(a.n == 3 && a.header_bytes == 12 + n);
    file[6] = 3;
    CHECK(sl_npy_header(file, 12 + n, "x", &a, NULL) == SPECRT_STATUS_OK);
    file[6] = 4;
    CHECK(sl_npy_header(file, 12 + n, "x", &a, NULL) == SPECRT_STATUS_UNSUPPORTED);
}

TEST(hostile, "bad headers and cut files") {
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "{'descr': '<i8', 'fortran_order': False}",
        "{'descr': '>i8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<i3', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|b8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<i8', 'fortran_order': No, 'shape': (1,)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1 1)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<i8', 'descr': '<i8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), 'x': 1}",
    };
    npy_array a;
    const uint8_t *values;
    specrt_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_INT(sl_npy_values(file, make(bad[i], 8), "x", &a, &values, &err),
                  SPECRT_STATUS_BAD_INPUT);
        CHECK(values == NULL && a.n == 0 && strncmp(err.msg, "x: ", 3) == 0);
    }
    size_t n = make("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", 16);
    CHECK_INT(sl_npy_values(file, n - 1, "x", &a, &values, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_INT(sl_npy_values(file, n + 1, "x", &a, &values, &err), SPECRT_STATUS_BAD_INPUT);
    for (size_t cut = 0; cut < n; cut++) { /* exact buffers, so that asan sees an overread */
        char *copy = (char *)malloc(cut ? cut : 1);
        memcpy(copy, file, cut);
        CHECK_INT(sl_npy_values(copy, cut, "x", &a, &values, &err), SPECRT_STATUS_BAD_INPUT);
        free(copy);
    }
}

TEST(write, "what is written reads back") {
    const char *path = in_folder("npy");
    const int64_t values[3] = {5, -7, INT64_MAX};
    out_file out;
    file_view view;
    npy_array a;
    const uint8_t *read;
    REQUIRE(sl_out_open(&out, path, true, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_npy_write('i', 8, values, 3, &out, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(view.n, 128 + 24); /* what numpy.save writes */
    const char dict[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }    ";
    CHECK(memcmp(view.bytes, "\x93NUMPY\1\0v\0", 10) == 0 && view.bytes[127] == '\n');
    CHECK(memcmp(view.bytes + 10, dict, sizeof dict - 1) == 0);
    REQUIRE(sl_npy_values(view.bytes, view.n, path, &a, &read, NULL) == SPECRT_STATUS_OK);
    for (int i = 0; i < 3; i++) CHECK_INT(sl_npy_int(&a, read, i), values[i]);
    sl_file_unmap(&view);
    clear_folder();
}
