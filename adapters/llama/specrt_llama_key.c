/* specrt_llama_key.c : whose costs are measured. */
#include "specrt_llama_impl.h"

#include <stdio.h>

void specrt_llama_key(const specrt_llama_setting *t, char out[SPECRT_COSTS_KEY]) {
    char target[128] = "", draft[128] = "";
    llama_model_desc(t->target, target, sizeof target);
    llama_model_desc(t->draft, draft, sizeof draft);
    snprintf(out, SPECRT_COSTS_KEY,
             "target %s of %llu bytes, draft %s of %llu bytes, threads %d, context %d, slots %d, "
             "tree %d/%d/%d, llama.cpp %s, specrt %s",
             target, (unsigned long long)llama_model_size(t->target), draft,
             (unsigned long long)llama_model_size(t->draft), (int)t->n_threads, (int)t->n_context,
             (int)t->n_slots, (int)t->tree.num_steps, (int)t->tree.topk,
             (int)t->tree.num_draft_tokens, llama_version(), SPECRT_VERSION_STRING);
}

void specrt_llama_pair_key(const specrt_llama *s, char out[SPECRT_COSTS_KEY]) {
    const specrt_llama_setting setting = {.target = llama_get_model(s->target),
                                          .draft = llama_get_model(s->draft),
                                          .n_threads = llama_n_threads(s->target),
                                          .n_context = s->n_context,
                                          .n_slots = 1,
                                          .tree = s->tree};
    specrt_llama_key(&setting, out);
}
