/* gguf_build.h : the metadata of a GGUF built key by key, in `file`. It shares no code with the reader. */
#ifndef GGUF_BUILD_H
#define GGUF_BUILD_H

#include <stdint.h>
#include <string.h>
#include "formats/gguf.h"

static uint8_t file[1 << 14];
static size_t n_file;
static uint64_t n_kvs;

static inline void put(const void *data, size_t n) {
    memcpy(file + n_file, data, n);
    n_file += n;
}

static inline void put_u32(uint32_t x) {
    put(&x, 4);
}

static inline void put_text(const char *text) {
    uint64_t n = strlen(text);
    put(&n, 8);
    put(text, n);
}

static inline void begin(void) {
    n_file = n_kvs = 0;
    put("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
}

static inline void put_key(const char *key, uint32_t type) {
    put_text(key);
    put_u32(type);
    n_kvs++;
    memcpy(file + 16, &n_kvs, 8);
}

static inline void put_string(const char *key, const char *value) {
    put_key(key, GGUF_STRING);
    put_text(value);
}

static inline void put_int(const char *key, uint32_t value) {
    put_key(key, GGUF_U32);
    put_u32(value);
}

static inline void put_array(const char *key, uint32_t elem, uint64_t n) {
    put_key(key, GGUF_ARRAY);
    put_u32(elem);
    put(&n, 8);
}

/* Strings up to a NULL. */
static inline void put_strings(const char *key, const char *const *texts) {
    uint64_t n = 0;
    while (texts[n]) n++;
    put_array(key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++) put_text(texts[i]);
}

static inline void put_ints(const char *key, const int32_t *values, uint64_t n) {
    put_array(key, GGUF_I32, n);
    put(values, 4 * n);
}

static inline void put_floats(const char *key, const float *values, uint64_t n) {
    put_array(key, GGUF_F32, n);
    put(values, 4 * n);
}

#endif
