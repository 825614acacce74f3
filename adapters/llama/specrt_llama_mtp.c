/* specrt_llama_mtp.c : the MTP layers ("NextN") of a model as its drafter: of which architectures, and what
 * llama.cpp's graphs of them are like. Read from llama.cpp 0.5.0-dev, which aborts where a graph's layers
 * are not as it expects, so they are checked here first. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <string.h>

/* The drafter's own state for the next level is its node h_nextn, and so is the target's for a pair, but for
 * architectures whose target names it result_norm and has it of its outputs alone. */
static const struct {
    const char *architecture;
    const char *hidden; /* the node that its head multiplies */
    bool takes_several; /* else its graph aborts where there is more than one MTP layer */
    bool of_outputs;    /* the target's state is result_norm */
    const char *target; /* its architecture, where it is another */
} known[] = {{"qwen35", "mtp_shared_head_norm", false, false, NULL},
             {"qwen35moe", "mtp_shared_head_norm", false, false, NULL},
             {"qwen3next", "h_nextn", false, false, NULL},
             {"glm4moe", "mtp_shared_head_norm", false, true, NULL},
             {"step35", "mtp_shared_head_norm", true, false, NULL},
             {"gemma4-assistant", "result_norm", true, false, "gemma4"}};

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

static specrt_status check_layers(const char *target, const char *draft, int32_t n_mtp, int k,
                                  specrt_error *err) {
    if (k == N_KNOWN)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "drafter: architecture %s: its MTP layers are not supported",
                                draft);
    if (strcmp(target, known[k].target ? known[k].target : draft) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: architecture: expected the target's %s, found %s: MTP "
                                "layers draft for their own model",
                                target, draft);
    if (n_mtp == 1 || known[k].takes_several) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "drafter: %s.nextn_predict_layers: expected 1, found %d", draft,
                            (int)n_mtp);
}

static specrt_status check_width(int32_t draft, int32_t target, specrt_error *err) {
    if (draft == target) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "drafter: its MTP layer reads states of %d columns; expected the "
                            "target's %d: MTP layers draft for their own model",
                            (int)draft, (int)target);
}

/* k : of `known` */
static specrt_status check_pair(const struct llama_model *target, const struct llama_model *draft,
                                int32_t n_mtp, int *k, specrt_error *err) {
    char of_target[64], of_draft[64];
    architecture_of(target, of_target);
    architecture_of(draft, of_draft);
    *k = find_known(of_draft);
    TRY(check_layers(of_target, of_draft, n_mtp, *k, err));
    return check_width(llama_model_n_embd_out(draft), llama_model_n_embd_out(target), err);
}

specrt_status specrt_llama_mtp_node(const struct llama_model *target,
                                    const struct llama_model *draft, int32_t n_mtp,
                                    const char **node, specrt_error *err) {
    int k;
    TRY(check_pair(target, draft, n_mtp, &k, err));
    if (known[k].target)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "drafter: architecture %s: it has its states after its head; "
                                "specrt-llama drafts with it",
                                known[k].architecture);
    *node = known[k].hidden;
    return SPECRT_STATUS_OK;
}

specrt_status specrt_llama_mtp_open(specrt_llama *s, const struct llama_model *target,
                                    const struct llama_model *draft, specrt_error *err) {
    int k;
    TRY(check_pair(target, draft, s->head->n_mtp, &k, err));
    int32_t d = llama_model_n_embd_out(draft);
    specrt_llama_pairs_kind kind = {.d_pair = d,
                                    .own = "h_nextn",
                                    .hidden = known[k].hidden,
                                    .shift = 1,
                                    .shares = known[k].target != NULL};
    s->taps.d_target = d;
    specrt_llama_taps_name(&s->taps, 0, known[k].of_outputs ? "result_norm" : "h_nextn");
    s->is_mtp = true;
    s->outputs_all = known[k].of_outputs;
    return specrt_llama_pairs_open(s, &kind, err);
}

#endif
