/* head_quantise.h : a whole LM head in fewer bits, by the rules of ggml's quantiser. */
#ifndef MODEL_HEAD_QUANTISE_H
#define MODEL_HEAD_QUANTISE_H

#include <stdbool.h>
#include "specrt_tools.h"

/* sl_quantises() : whether rows can be written in a type, one of these. */
#define SL_QUANTISED "q8_0, q4_0, q4_1 or iq4_nl"
bool sl_quantises(specrt_dtype dtype);

/* sl_quantise_row() : One row as ggml writes it without an importance matrix, the scale of 32 columns in f16.
 *   dtype : one that sl_quantises()
 *   x     : f32 [n_cols], finite; n_cols is a multiple of 32
 *   row   : u8 [specrt_row_bytes(dtype, n_cols)], written */
void sl_quantise_row(specrt_dtype dtype, const float *x, int64_t n_cols, uint8_t *row);

/* sl_head_quantise() : A copy of a head's rows in another type; all else of *out is that of *in, borrowed.
 *   rows : receives the copy, which out->rows borrows; owned, to free()
 * @return OK; NO_MEMORY; UNSUPPORTED: another type, or rows that are no whole blocks; BAD_INPUT: a weight
 * beyond f16. */
specrt_status sl_head_quantise(const specrt_head_desc *in, specrt_dtype dtype,
                               specrt_head_desc *out, uint8_t **rows, specrt_error *err);

#endif
