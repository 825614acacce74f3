/* eagle3_gguf.h : an EAGLE-3 head (Li et al. 2025) as the GGUF that llama.cpp's drafts of type draft-eagle3
 * load, with its LM head cut to a list. */
#ifndef MODEL_EAGLE3_GGUF_H
#define MODEL_EAGLE3_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include "specrt.h"

/* sl_eagle3_gguf_write() : the head with the target's tokenizer.
 *   head   : safetensors (f32, f16, bf16), with config.json beside it or none; what that does not say is as
 *            in target
 *   target : the GGUF that it was trained for; its head drafts where the drafter has none
 *   ids    : i32 [*n] the tokens to keep; those without a row in the head leave the list, and *n tells how
 *            many stay
 * @return OK; IO; NO_MEMORY; BAD_INPUT naming the tensor or key; UNSUPPORTED for a rope_scaling; BAD_ARG
 * where `path` exists and not `force`. */
specrt_status sl_eagle3_gguf_write(const char *head, const char *target, int32_t *ids, int32_t *n,
                                   const char *path, bool force, specrt_error *err);

#endif
