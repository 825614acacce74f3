/* head_rows.h : where the rows of a head are. */
#ifndef MODEL_HEAD_ROWS_H
#define MODEL_HEAD_ROWS_H

#include "specrt.h"

static inline size_t sl_head_stride(const specrt_head_desc *head) {
    return head->row_stride ? head->row_stride : specrt_row_bytes(head->dtype, head->n_cols);
}

static inline const uint8_t *sl_head_row(const specrt_head_desc *head, int64_t row) {
    return (const uint8_t *)head->rows + (size_t)row * sl_head_stride(head);
}

#endif
