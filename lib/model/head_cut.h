/* head_cut.h : an LM head with the rows of a list of tokens alone, from any model file. */
#ifndef MODEL_HEAD_CUT_H
#define MODEL_HEAD_CUT_H

#include "base/io.h"
#include "formats/safetensors.h"

/* sl_head_cut_rows() : rows of the head of a model, `source`, as the tensor lm_head.weight [n, n_cols]: as
 * stored, quantised ones in f16.
 *   ids       : [n] the token of each row
 *   out->data : owned
 * @return as sl_model_open() and sl_model_head(); BAD_INPUT for a token without a row, and weights beyond
 * f16. */
specrt_status sl_head_cut_rows(const char *source, const int32_t *ids, int32_t n, st_tensor *out,
                               specrt_error *err);

/* sl_head_cut_gguf() : an eagle3 or dflash GGUF, or one with MTP layers, with its heads cut to the ids [n], a
 * Markov head, too, and with d2t; all else is as it was.
 *   target : a GGUF whose rows, as stored, a drafter without output.weight takes; else NULL
 * @return as sl_gguf_open(); BAD_INPUT for a token without a row, and a target of another width; BAD_ARG for
 * a target beside a head; UNSUPPORTED for other architectures, block drafters that no engine takes cut, and
 * a file without a head. */
specrt_status sl_head_cut_gguf(const char *drafter, const char *target, const int32_t *ids,
                               int32_t n, out_file *out, specrt_error *err);

#endif
