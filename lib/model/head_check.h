/* sl_head_check.h : what builders ask of the numbers in a head before they spend minutes on it. */
#ifndef MODEL_HEAD_CHECK_H
#define MODEL_HEAD_CHECK_H

#include "specrt.h"

/* The greatest number of f16, in which copies of rows are kept. Weights of a head are below 100. */
#define HEAD_MOST 65504.0f

/* sl_head_check() : that every weight and bias is finite and at most HEAD_MOST.
 *   name : of its tensor, for messages
 *   skip : u8 [n_rows] rows that will not be used; NULL: all will be
 * @return BAD_INPUT naming tensor, the first such row and what was found there; NO_MEMORY. */
specrt_status sl_head_check(const specrt_head_desc *head, const char *name, const uint8_t *skip,
                            int threads, specrt_error *err);

#endif
