/* token_pick.h : the most frequent tokens that a head has rows for, and how much text they cover. */
#ifndef MODEL_TOKEN_PICK_H
#define MODEL_TOKEN_PICK_H

#include "specrt_tools.h"

typedef struct token_pick {
    int32_t *ids; /* [n] by rank; owned */
    int32_t n;
    int32_t n_missing;     /* ids that rank higher than one taken, and have no row */
    int32_t n_terminators; /* of those */
} token_pick;

/* sl_token_rows() : the inverse of a d2t.
 *   d2t    : i32 [n_rows]; NULL: rows are ids
 *   row_of : i32 [n_ids] the row of an id, owned; -1: none
 * @return NO_MEMORY for `path` */
specrt_status sl_token_rows(const int32_t *d2t, int64_t n_rows, int64_t n_ids, const char *path,
                            int32_t **row_of, specrt_error *err);

/* sl_token_pick() : ids by rank, without reserved placeholders.
 *   size   : how many; 0: the calibrated size, or fewer where fewer have rows
 *   row_of : i32 [n_ids] as sl_token_rows() gives it. Ids beyond n_ids have no row
 *   path   : of what has the rows, for messages
 * @return NO_MEMORY; BAD_ARG: a size below the forced ids, or above those with rows, which may be none */
specrt_status sl_token_pick(const specrt_ranks *ranks, int32_t size, const int32_t *row_of,
                            int32_t n_ids, const char *path, token_pick *out, specrt_error *err);

/* sl_token_coverage() : the share of the counted tokens whose ids are listed. Terminators are left out, as in
 * the calibrated coverage. *out is NaN where the ranking has no counts. @return NO_MEMORY */
specrt_status sl_token_coverage(const specrt_ranks *ranks, const int32_t *ids, int32_t n,
                                double *out, specrt_error *err);

#endif
