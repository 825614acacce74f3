/* gguf.h : read GGUF v2/v3 models (split ones too), memory-mapped, and write them. Every size,
 * offset and count of the file is checked before use. */
#ifndef FORMATS_GGUF_H
#define FORMATS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
} gguf_type;

typedef struct gguf_string {
    const char *s; /* borrowed from the mapping, not NUL-terminated */
    size_t n;
} gguf_string;

typedef struct gguf_kv {
    gguf_string key;
    gguf_type type;
    gguf_type elem;       /* of an array; else the same as type */
    uint64_t count;       /* elements; 1 for scalars */
    const uint8_t *value; /* little-endian bytes in the mapping, unaligned; checked to its end */
    size_t value_bytes;
} gguf_kv;

typedef struct gguf_tensor {
    char name[64];
    int32_t n_dims;
    int64_t dims[4]; /* dims[0] is the row length; unused ones are 1 */
    uint32_t type;   /* ggml type: specrt_dtype where that lists it */
    uint64_t offset; /* in the data section of its file */
    const uint8_t *data;
    size_t bytes; /* of an unknown type: up to the next tensor */
} gguf_tensor;

typedef struct gguf gguf;

/* sl_gguf_open() : open a file or the first part of a split model ("-00001-of-00003.gguf"). */
specrt_status sl_gguf_open(const char *path, gguf **out, specrt_error *err);
/* sl_gguf_open_memory() : one file's bytes, borrowed; for tests and fuzzing. */
specrt_status sl_gguf_open_memory(const void *bytes, size_t n, const char *name, gguf **out,
                                  specrt_error *err);
void sl_gguf_close(gguf *g);

bool sl_gguf_probe(const void *bytes, size_t n); /* starts like a GGUF */

const gguf_kv *sl_gguf_find(const gguf *g, const char *key); /* NULL: absent */
const gguf_kv *sl_gguf_kvs(const gguf *g, int64_t *n);
bool sl_gguf_get_int(const gguf *g, const char *key, int64_t *out); /* any integer or bool type */
bool sl_gguf_get_real(const gguf *g, const char *key, double *out);
bool sl_gguf_get_string(const gguf *g, const char *key, gguf_string *out);
/* sl_gguf_get_strings() : an array of strings as owned [*n]; free() it. NULL: absent or not one. */
gguf_string *sl_gguf_get_strings(const gguf *g, const char *key, int64_t *n);

const gguf_tensor *sl_gguf_tensors(const gguf *g, int64_t *n);
const gguf_tensor *sl_gguf_find_tensor(const gguf *g, const char *name);
const char *sl_gguf_type_name(uint32_t type); /* of a tensor: "iq4_xs"; "unknown" */

/* sl_gguf_rewrite() : write `g` to `out` with tensors replaced, dropped or added and everything else
 * (metadata, order, alignment) untouched, except that a split model becomes one file.
 *   edits : [n_edits]; a name that exists is replaced, one that does not is appended; data NULL
 *           drops it
 * @return BAD_ARG for an edit that contradicts itself; a failed `out` is the caller's to abort. */
specrt_status sl_gguf_rewrite(const gguf *g, const gguf_tensor *edits, int n_edits, out_file *out,
                              specrt_error *err);

/* sl_gguf_write() : a new file of these keys and tensors, in the given order; values and data as of a file
 * that was read. */
specrt_status sl_gguf_write(const gguf_kv *kvs, int n_kvs, const gguf_tensor *tensors,
                            int n_tensors, out_file *out, specrt_error *err);

#endif
