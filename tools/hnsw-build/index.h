/* index.h : building a navigable graph over rows, the same for any number of threads. */
#ifndef HNSW_BUILD_INDEX_H
#define HNSW_BUILD_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include "base/memory.h"
#include "specrt_tools.h"

enum { INDEX_PRODUCTS, INDEX_DISTANCES }; /* specrt_hnsw_header.metric */

typedef struct index_params {
    int32_t m, ef_construction;
    int metric;
    uint64_t seed;
    int threads;
    void (*progress)(void *user, int64_t done); /* nodes inserted; NULL: silent */
    void *user;
} index_params;

typedef struct hnsw_index {
    specrt_hnsw_header header;              /* vectors, ef and recall are not set here */
    int32_t *ids, *starts, *links0, *links; /* as in the section */
    int8_t *codes;                          /* [n_nodes, n_cols] */
    float *scales;                          /* [n_nodes] */
    sl_arrays owned;                        /* these */
    int64_t n_cols;                         /* dim rounded up to 64 */
    int32_t n_repaired;                     /* nodes that no link led to */
} hnsw_index;

/* A row by its hash. */
typedef struct index_hashed {
    uint64_t hash;
    int32_t row;
} index_hashed;

/* index_by_hash() : for qsort(); rows of one hash are in order. */
int index_by_hash(const void *a, const void *b);

/* index_build() : over rows ids [n], ascending and distinct, of a matrix of any float format.
 * @return OK, NO_MEMORY. */
specrt_status index_build(const specrt_head_desc *rows, const int32_t *ids, int32_t n,
                          const index_params *params, hnsw_index *out, specrt_error *err);
void index_free(hnsw_index *index);

/* index_rows() : the rows worth indexing: not zero, of equal ones the first.
 *   rows : that sl_head_check() passed
 *   skip : u8 [n_rows] rows to leave out, or NULL
 *   ids  : owned
 *   n_left_out : [3] skipped, zero, duplicates */
specrt_status index_rows(const specrt_head_desc *rows, const uint8_t *skip, int32_t **ids,
                         int32_t *n, int32_t n_left_out[3], specrt_error *err);

/* index_bytes() : the section, with vectors of header.vectors; owned. NULL: no memory. */
void *index_bytes(const hnsw_index *index, const specrt_head_desc *rows, size_t *n_bytes);

#endif
