/* speculative-specrt-context.hpp : the draft context of the type draft-specrt, for speculative-specrt.hpp:
 * what it must be before it is made, and where its passes end. */
#ifndef LLAMA_SPECULATIVE_SPECRT_CONTEXT_HPP
#define LLAMA_SPECULATIVE_SPECRT_CONTEXT_HPP

#include "specrt_llama.h"

/* Of the draft context: what the head multiplies is handed over and what follows, the head, left
 * uncomputed. A pass may come in several parts. */
static bool specrt_at_node(ggml_tensor *t, bool ask, void *user) {
    auto *states = (common_specrt_states *)user;
    if (states->runs_head) {
        return false;
    }
    if (ask) {
        states->reached_head |= strcmp(t->name, "result_output") == 0;
        return strcmp(t->name, states->node) == 0;
    }
    const size_t before = states->rows.size();
    states->rows.resize(before + ggml_nelements(t));
    ggml_backend_tensor_get(t, states->rows.data() + before, 0, ggml_nbytes(t));
    return false;
}

bool common_specrt_is_mtp(const std::string &path) {
    specrt_llama_head rows = {};
    specrt_llama_head_open(path.c_str(), &rows, nullptr);
    const bool has = rows.n_mtp > 0;
    specrt_llama_head_close(&rows);
    return has;
}

/* Before the draft context is made: of MTP layers and block drafters, whether they may draft, and what their
 * context needs. Of a draft model open() says what is wrong with it.
 * @return false: states.why says why */
static bool specrt_prepare(const common_params &params, const llama_model *target,
                           const llama_model *draft, llama_context_params &cparams) {
    if (!params.speculative.has_specrt()) {
        return true;
    }
    common_specrt_states &states = *params.speculative.draft.specrt_states;
    specrt_llama_head rows = {};
    specrt_error err = {};
    states.path = params.model.path;
    specrt_status status = specrt_llama_head_open(states.path.c_str(), &rows, &err);
    const int32_t n_mtp = rows.n_mtp;
    states.is_mtp = n_mtp > 0;
    states.is_block = specrt_llama_is_block(draft);
    if (states.is_block && status == SPECRT_STATUS_OK) {
        specrt_llama_block_kind kind = {};
        status = specrt_llama_block_read(&rows, target, draft, &kind, &err);
        cparams.n_outputs_max = params.n_parallel * (kind.first + 1); // of check_states()
    }
    specrt_llama_head_close(&rows);
    if (!states.is_mtp && !states.is_block && draft != target) {
        return true;
    }
    if (states.is_mtp) {
        cparams.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
        status = specrt_llama_mtp_node(target, draft, n_mtp, &states.node, &err);
    } else if (!states.is_block && status == SPECRT_STATUS_OK) {
        status = specrt_error_set(&err, SPECRT_STATUS_BAD_ARG,
                                  "%s: it has no MTP layers to draft with; expected -md FILE",
                                  states.path.c_str());
    }
    if (status != SPECRT_STATUS_OK) {
        states.why = err.msg;
    }
    return status == SPECRT_STATUS_OK;
}

#endif
