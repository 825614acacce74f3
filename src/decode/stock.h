/* stock.h : a stock, and products of several sequences with its rows */
#ifndef DECODE_STOCK_H
#define DECODE_STOCK_H

#include "core/head.h"
#include "core/pool.h"

/* --- making --- */

SPECRT__INTERNAL specrt_status specrt__stock_check_room(const specrt_stock *stock,
                                                        const specrt_head *head, int32_t n_rows,
                                                        specrt_error *err);

/* --- which rows are shared --- */

/* A sequence of a batch, and where its rows of the stock go. */
typedef struct specrt__stock_member {
    const specrt_shortlist *shortlist;
    const specrt_segment *segment; /* the rows, of those of the shortlist */
    const float *hidden;           /* f32 [n, n_cols] */
    float *logits;    /* f32 [n, n_rows of the shortlist], the segment's first column */
    int32_t n, first; /* first: of its states in the batch */
    int64_t block;    /* of its first block of rows */
} specrt__stock_member;

/* --- products --- */

SPECRT__INTERNAL bool specrt__stock_multiply(specrt_stock *stock,
                                             const specrt__stock_member *members, int32_t n,
                                             const float *hidden, int32_t n_states);

#endif
