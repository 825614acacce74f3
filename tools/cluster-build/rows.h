/* rows.h : the rows of a head that are clustered. */
#ifndef CLUSTER_BUILD_ROWS_H
#define CLUSTER_BUILD_ROWS_H

#include "specrt.h"
#include "vectors.h"

typedef struct row_set {
    specrt_head_desc head;                   /* borrowed; row_stride filled in */
    int32_t n;                               /* rows that are clustered */
    int32_t *ids;                            /* [n] their numbers in the head, ascending */
    float *inverses;                         /* [n] 1 / length */
    unit_rows units;                         /* [n] */
    int32_t n_reserved, n_zero, n_duplicate; /* rows left out */
} row_set;

/* rows_open() : all rows but those marked, those of zeros, and those that equal another, which is what
 * tokens look like that were never trained.
 *   head     : that sl_head_check() passed
 *   reserved : u8 [head->n_rows], NULL: none
 * @return OK, NO_MEMORY. */
specrt_status rows_open(const specrt_head_desc *head, const uint8_t *reserved, int threads,
                        row_set *out, specrt_error *err);
void rows_close(row_set *r);

/* rows_read() : row i as it is stored, f32 [n_cols]. */
void rows_read(const row_set *r, int32_t i, float *out);

/* rows_f32() : the same where it lies, or read into scratch [n_cols]. */
const float *rows_f32(const row_set *r, int32_t i, float *scratch);

#endif
