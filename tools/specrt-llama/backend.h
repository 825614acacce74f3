/* backend.h : llama.cpp behind engine/backend/backend.h, over adapters/llama. */
#ifndef SPECRT_LLAMA_BACKEND_H
#define SPECRT_LLAMA_BACKEND_H

#include "engine/backend/backend.h"
#include "llama/specrt_llama.h"

/* llama_open() : a target, and a drafter that fits it. A `draft` that is the target's own file means the MTP
 * layers in it. Passes of both models share one context each, so there is one sequence at a time.
 * @return as specrt_llama_create(); IO; BAD_INPUT for a file that llama.cpp does not load. An error of the
 * target alone begins "target: " or with its file's name. */
specrt_status llama_open(const backend_desc *desc, backend **out, specrt_error *err);

/* llama_set_layers() : layers of both models on a GPU, for llama_open(); -1: llama.cpp's choice. */
void llama_set_layers(int64_t target, int64_t draft);

#endif
