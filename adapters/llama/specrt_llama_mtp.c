/* specrt_llama_mtp.c : the MTP layers ("NextN") of a model as its drafter: of which architectures, and what
 * llama.cpp's graphs of them are like. Read from llama.cpp 0.5.0-dev, which aborts where a graph's layers
 * are not as it expects, so they are checked here first. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdio.h>
#include <string.h>

/* The drafter's own state for the next level is its node h_nextn, and so is the target's for a pair, but for
 * architectures whose target names it result_norm and has it of its outputs alone. */
static const struct {
    const char *architecture;
    const char *hidden; /* the node that its head multiplies */
    bool takes_several; /* else its graph aborts where there is more than one MTP layer */
    bool of_outputs;    /* the target's state is result_norm */
} known[] = {{"qwen35", "mtp_shared_head_norm", false, false},
             {"qwen35moe", "mtp_shared_head_norm", false, false},
             {"qwen3next", "h_nextn", false, false},
             {"glm4moe", "mtp_shared_head_norm", false, true},
             {"step35", "mtp_shared_head_norm", true, false}};

enum { N_KNOWN = sizeof known / sizeof *known };

static void architecture_of(const struct llama_model *model, char out[64]) {
    out[0] = '\0';
    llama_model_meta_val_str(model, "general.architecture", out, 64);
}

static int find_known(const char *architecture) {
    int k = 0;
    while (k < N_KNOWN && strcmp(known[k].architecture, architecture) != 0) k++;
    return k;
}

static specrt_status check_layers(const specrt_llama *s, const char *target, const char *draft,
                                  int k, specrt_error *err) {
    if (k == N_KNOWN)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "drafter: architecture %s: its MTP layers are not supported",
                                draft);
    if (strcmp(target, draft) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: architecture: expected the target's %s, found %s: MTP "
                                "layers draft for their own model",
                                target, draft);
    if (s->head->n_mtp == 1 || known[k].takes_several) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "drafter: %s.nextn_predict_layers: expected 1, found %d", draft,
                            (int)s->head->n_mtp);
}

specrt_status specrt_llama_mtp_open(specrt_llama *s, const struct llama_model *target,
                                    const struct llama_model *draft, specrt_error *err) {
    char of_target[64], of_draft[64];
    architecture_of(target, of_target);
    architecture_of(draft, of_draft);
    int k = find_known(of_draft);
    TRY(check_layers(s, of_target, of_draft, k, err));
    int32_t d = llama_model_n_embd_out(draft), d_target = llama_model_n_embd_out(target);
    if (d != d_target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: its MTP layer reads states of %d columns; expected the "
                                "target's %d: MTP layers draft for their own model",
                                (int)d, (int)d_target);
    specrt_llama_pairs kind = {.n_nodes = 1,
                               .d_target = d,
                               .d_pair = d,
                               .own = "h_nextn",
                               .hidden = known[k].hidden,
                               .shift = 1};
    const char *node = known[k].of_outputs ? "result_norm" : "h_nextn";
    snprintf(kind.nodes[0], sizeof kind.nodes[0], "%s", node);
    snprintf(kind.named, sizeof kind.named, "%s", node);
    s->is_mtp = true;
    s->outputs_all = known[k].of_outputs;
    return specrt_llama_pairs_open(s, &kind, err);
}

#endif
