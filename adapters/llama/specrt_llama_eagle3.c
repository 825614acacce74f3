/* specrt_llama_eagle3.c : an EAGLE-3 head as drafter: which states it reads, and whether it is the
 * target's. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdio.h>
#include <stdlib.h>

enum { N_STATES = 3 };

static specrt_status check_layers(const specrt_llama *s, const struct llama_model *target,
                                  specrt_error *err) {
    int32_t n_layers = llama_model_n_layer(target);
    for (int k = 0; k < N_STATES; k++) {
        int32_t layer = s->head->target_layers[k];
        if (layer >= 1 && layer < n_layers) continue;
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: eagle3.target_layers: expected three from 1 on and below "
                                "the target's %d, found %d: is its file the one whose head was "
                                "opened, and the target its own?",
                                (int)n_layers, (int)layer);
    }
    return SPECRT_STATUS_OK;
}

specrt_status specrt_llama_eagle3_open(specrt_llama *s, const struct llama_model *target,
                                       const struct llama_model *draft, specrt_error *err) {
    char text[32] = "0";
    TRY(check_layers(s, target, err));
    int32_t d_target = llama_model_n_embd(target);
    llama_model_meta_val_str(draft, "eagle3.target_hidden_size", text, sizeof text);
    if (atoi(text) != d_target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: eagle3.target_hidden_size: expected the target's %d, "
                                "found %s",
                                (int)d_target, text);
    specrt_llama_pairs kind = {.n_nodes = N_STATES,
                               .d_target = d_target,
                               .d_pair = llama_model_n_embd(draft),
                               .own = "eagle3_prenorm-0",
                               .hidden = "result_norm",
                               .encodes = true,
                               .keeps_all = true};
    for (int k = 0; k < N_STATES; k++)
        snprintf(kind.nodes[k], sizeof kind.nodes[k], "l_out-%d",
                 (int)s->head->target_layers[k] - 1);
    snprintf(kind.named, sizeof kind.named, "%s, %s and %s", kind.nodes[0], kind.nodes[1],
             kind.nodes[2]);
    return specrt_llama_pairs_open(s, &kind, err);
}

#endif
