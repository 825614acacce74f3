/* input.h : what a run reads besides the corpus. */
#ifndef VOCABTRIM_CALIBRATE_INPUT_H
#define VOCABTRIM_CALIBRATE_INPUT_H

#include "calibrate.h"

/* input_open_counts() : the vocabulary to count in, from the tokenizer or from count files, and the
 * counts of --merge.
 *   tok : NULL when there is no text to tokenise
 * The caller closes it and frees c, also after errors. */
specrt_status input_open_counts(const calibrate_options *o, tokenizer **tok, counts *c,
                                specrt_error *err);

/* input_open_model() : --model's head, checked against the vocabulary; the caller closes it. */
specrt_status input_open_model(const calibrate_options *o, const counts_vocab *v, model *m,
                               specrt_head_desc *head, const char **name, specrt_error *err);

/* input_row_bytes() : of one row as the runtime packs it. */
size_t input_row_bytes(const specrt_head_desc *head);

/* input_speed() : rates and parameters, from the command line and else from the model.
 *   head : NULL without a model */
specrt_status input_speed(const calibrate_options *o, const model *m, const specrt_head_desc *head,
                          int32_t n_vocab, speed_model *out, specrt_error *err);

#endif
