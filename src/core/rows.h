/* rows.h : decoding of rows that are stored in blocks */
#ifndef CORE_ROWS_H
#define CORE_ROWS_H

#include "core/base.h"

/* ---- one block each: bytes in ggml's layout to f32 -------------------------------------------- */

SPECRT__INTERNAL void specrt__rows_decode_blocks(specrt_dtype dtype, const uint8_t *row,
                                                 int64_t n_cols, float *out);

#endif
