/* npy.h : NumPy's .npy files, versions 1 to 3: a header and one array of little-endian numbers. */
#ifndef FORMATS_NPY_H
#define FORMATS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"

#define NPY_MAX_DIMS 8

typedef struct npy_array {
    char kind;      /* 'i' signed, 'u' unsigned, 'b' bool, 'f' float */
    int item_bytes; /* 1, 2, 4, 8 */
    bool fortran;   /* column-major; the same thing in one dimension */
    int n_dims;
    int64_t shape[NPY_MAX_DIMS];
    int64_t n;           /* product of shape; 1 without dimensions */
    size_t header_bytes; /* the values start here */
} npy_array;

bool sl_npy_probe(const void *bytes, size_t n); /* starts like a .npy */

/* sl_npy_header() : parse the start of a file; `n` may end anywhere after the header. `name` stands for
 * the path in messages. The size of the values is not checked. */
specrt_status sl_npy_header(const void *bytes, size_t n, const char *name, npy_array *out,
                            specrt_error *err);

/* sl_npy_values() : the values of a whole file, checked to be all there and nothing more; borrowed,
 * unaligned. */
specrt_status sl_npy_values(const void *bytes, size_t n, const char *name, npy_array *out,
                            const uint8_t **values, specrt_error *err);

/* sl_npy_int() : value i of an integer or bool array; a u64 above INT64_MAX reads as INT64_MAX. */
int64_t sl_npy_int(const npy_array *array, const uint8_t *values, int64_t i);

/* sl_npy_write() : a one-dimensional array [n] of the given kind, values little-endian. */
specrt_status sl_npy_write(char kind, int item_bytes, const void *values, int64_t n, out_file *out,
                           specrt_error *err);

#endif
