/* specrt_llama_eagle3.c : an EAGLE-3 head as drafter: which states it reads, and whether it is the
 * target's. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdlib.h>

specrt_status specrt_llama_eagle3_open(specrt_llama *s, const struct llama_model *target,
                                       const struct llama_model *draft, specrt_error *err) {
    char text[32] = "0";
    TRY(specrt_llama_check_taps(s->head, target, "eagle3.target_layers", err));
    int32_t d_target = llama_model_n_embd(target);
    llama_model_meta_val_str(draft, "eagle3.target_hidden_size", text, sizeof text);
    if (atoi(text) != d_target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: eagle3.target_hidden_size: expected the target's %d, "
                                "found %s",
                                (int)d_target, text);
    specrt_llama_pairs_kind kind = {.d_pair = llama_model_n_embd(draft),
                                    .own = "eagle3_prenorm-0",
                                    .hidden = "result_norm",
                                    .encodes = true,
                                    .keeps_all = true};
    s->taps.d_target = d_target;
    for (int k = 0; k < s->head->n_target_layers; k++)
        specrt_llama_taps_layer(&s->taps, k, s->head->target_layers[k]);
    return specrt_llama_pairs_open(s, &kind, err);
}

#endif
