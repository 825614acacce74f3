/* engines.h : what engines take for a drafter: a folder of its own form, a GGUF, or a list of ids. */
#ifndef SPECRT_BUNDLE_ENGINES_H
#define SPECRT_BUNDLE_ENGINES_H

#include <stdbool.h>
#include "specrt.h"

const char *engine_names(void); /* "vllm, sglang, ..." */
bool engine_is_known(const char *name);

/* engine_is_ordered() : "gemma4", which stands for the engines that load Gemma 4's drafters. NULL: false. */
bool engine_is_ordered(const char *name);

typedef struct engine_choice {
    const char *format; /* of a token map, static; NULL: a folder, for recut() */
    int32_t n_rows;     /* of the target's head, where the drafter says it; 0: not said */
} engine_choice;

/* engine_choose() : for a drafter, a GGUF or a folder of safetensors.
 *   target : NULL: not given. llama.cpp takes a GGUF of an EAGLE-3 folder where its target is given
 * @return UNSUPPORTED where the engine would draft wrong tokens with a list, or takes none; as
 * sl_model_open(). */
specrt_status engine_choose(const char *engine, const char *drafter, const char *target,
                            engine_choice *out, specrt_error *err);

#endif
