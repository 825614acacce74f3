/* rows.h : decoding of rows that are stored in blocks */
#ifndef CORE_ROWS_H
#define CORE_ROWS_H

#include "core/base.h"

/* The weights of 16 codes of iq4_nl with a scale of 1: close where weights are many. */
extern const int8_t specrt__rows_levels[16];

/* ---- one block each: bytes in ggml's layout to f32 -------------------------------------------- */

SPECRT__INTERNAL void specrt__rows_decode_blocks(specrt_dtype dtype, const uint8_t *row,
                                                 int64_t n_cols, float *out);

#endif
