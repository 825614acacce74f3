/* safetensors.h : read safetensors models (sharded too), memory-mapped, and write small ones. */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"

#define ST_MAX_DIMS 8

typedef struct st_tensor {
    const char *name; /* owned by the st */
    char dtype[12];   /* "BF16" */
    int32_t n_dims;
    int64_t shape[ST_MAX_DIMS];
    const uint8_t *data;
    size_t bytes;
} st_tensor;

typedef struct st st;

/* sl_st_open() : a .safetensors file, or a model.safetensors.index.json of a sharded model. */
specrt_status sl_st_open(const char *path, st **out, specrt_error *err);
specrt_status sl_st_open_memory(const void *bytes, size_t n, const char *name, st **out,
                                specrt_error *err);
void sl_st_close(st *s);

bool sl_st_probe(const void *bytes, size_t n); /* starts like a safetensors file or an index */

const st_tensor *sl_st_tensors(const st *s, int64_t *n); /* sorted by name */
const st_tensor *sl_st_find(const st *s, const char *name);
const st_tensor *sl_st_find_prefix(const st *s, const char *prefix); /* the first that begins so */

/* sl_st_dtype() : the row format of a tensor's dtype; false when specrt has none for it. */
bool sl_st_dtype(const char *dtype, specrt_dtype *out);

/* sl_st_write() : tensors [n] in the given order; header padded to 8 bytes.
 *   metadata : [2 * n_metadata] key, value strings */
specrt_status sl_st_write(const st_tensor *tensors, int n, const char *const *metadata,
                          int n_metadata, out_file *out, specrt_error *err);

#endif
