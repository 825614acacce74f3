/* st_build.h : small safetensors models in the folder of a test, whose weights count up. */
#ifndef ST_BUILD_H
#define ST_BUILD_H

#include "base/io.h"
#include "folder.h"
#include "formats/safetensors.h"
#include "test.h"

enum { ST_CELLS = 512 };

/* A tensor of f32 rows that begin with `first` and count up; without columns: a vector. */
static inline st_tensor f32_from(int first, const char *name, int64_t rows, int64_t cols) {
    static float cells[4 * ST_CELLS];
    for (int i = 0; i < 4 * ST_CELLS; i++) cells[i] = (float)i;
    st_tensor t = {.name = name, .dtype = "F32", .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    t.data = (const uint8_t *)(cells + first);
    t.bytes = (size_t)(rows * (cols ? cols : 1)) * sizeof(float);
    return t;
}

static inline st_tensor f32(const char *name, int64_t rows, int64_t cols) {
    return f32_from(0, name, rows, cols);
}

static inline void put_st(const char *name, const st_tensor *tensors, int n) {
    specrt_error err;
    out_file out;
    REQUIRE(sl_out_open(&out, in_folder(name), true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_write(tensors, n, NULL, 0, &out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
}

static inline void put_json(const char *name, const char *text) {
    specrt_error err;
    REQUIRE(sl_out_bytes(in_folder(name), true, text, strlen(text), &err) == SPECRT_STATUS_OK);
}

#endif
