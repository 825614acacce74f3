/* speculative-specrt-block.hpp : batches of a block drafter of the type draft-specrt, for
 * speculative-specrt.hpp. They are those of draft-dflash: states of the target become keys and values of the
 * draft context, and one pass over the last token and masks gives the states of a block. */
#ifndef LLAMA_SPECULATIVE_SPECRT_BLOCK_HPP
#define LLAMA_SPECULATIVE_SPECRT_BLOCK_HPP

#include "specrt_llama.h"

struct common_specrt_blocks {
    specrt_llama_block_kind kind = {};
    std::vector<uint32_t> layers; // of the target, whose inputs the drafter reads
    size_t d_target = 0;
    std::vector<float> inputs; // [tokens of a batch, width()]

    size_t width() const { return layers.size() * d_target; }

    /* Throws where the drafter is not the target's, or a pass has no room for the blocks of all slots. */
    void open(const specrt_llama_head &head, const common_params_speculative_draft &params,
              uint32_t n_seq) {
        const llama_model *target = llama_get_model(params.ctx_tgt);
        specrt_error err = {};
        if (specrt_llama_block_read(&head, target, llama_get_model(params.ctx_dft), &kind, &err) !=
            SPECRT_STATUS_OK) {
            throw std::runtime_error(std::string("draft-specrt: ") + err.msg);
        }
        const uint32_t n = std::max<uint32_t>(n_seq * (kind.first + n_max(params.n_max)),
                                              SPECRT_TREE_MAX_NODES); // that are timed
        if (n > llama_n_ubatch(params.ctx_dft)) {
            throw std::runtime_error(string_format("draft-specrt: -ub: expected %u or more for "
                                                   "blocks of %u slots, found %u; drafting off",
                                                   n, n_seq, llama_n_ubatch(params.ctx_dft)));
        }
        d_target = llama_model_n_embd(target);
        layers.assign(head.target_layers, head.target_layers + head.n_target_layers);
        for (const uint32_t layer : layers) {
            llama_set_embeddings_layer_inp(params.ctx_tgt, layer, true);
        }
        llama_set_causal_attn(params.ctx_dft, kind.is_causal);
    }

    /* Tokens of a draft. */
    int32_t n_max(int32_t asked) const { return std::min(asked, kind.size - kind.first); }

    /* One pass over the blocks of n tokens of some slots, in the order in which they are added. llama.cpp
     * wants blocks of equal length in a pass. */
    void add(common_batch &batch, llama_token root, llama_pos at, llama_seq_id id, int32_t n,
             bool output) const {
        for (int32_t i = 0; i < kind.first + n; ++i) {
            batch.add(i == 0 ? root : kind.mask, at + i, id, output);
        }
    }

    /* A position's states [width()], which last as long as the batch. Positions of M-RoPE are four. */
    void add_states(common_batch &batch, const float *from, llama_pos at, llama_seq_id id) const {
        const llama_pos positions[4] = {at, at, at, 0};
        batch.add_embd({from, 1, width()}, positions, id, false);
    }

    /* Whether the drafter reads a batch of the target: not an image whose rows have one position (M-RoPE), as
     * draft-dflash does not either. */
    static bool takes(const common_batch &in) {
        const bool is_image =
            in.has_embd() && in.size() > 1 && in.tokens.front().pos[0] == in.tokens.back().pos[0];
        return in.has_token() != in.has_embd() && !is_image;
    }

    /* The states of n tokens of the target's batch, from token `first` on. */
    void add_states_of(common_batch &batch, llama_context *target, const common_batch &in,
                       int32_t first, int32_t n) {
        inputs.resize(n * width());
        for (size_t k = 0; k < layers.size(); ++k) {
            const float *from =
                llama_get_embeddings_layer_inp(target, layers[k]) + first * d_target;
            for (int32_t i = 0; i < n; ++i) {
                std::copy_n(from + i * d_target, d_target, &inputs[i * width() + k * d_target]);
            }
        }
        for (int32_t i = 0; i < n; ++i) {
            const auto &t = in.tokens[first + i];
            add_states(batch, &inputs[i * width()], t.pos[0], t.seq_id);
        }
    }

    /* What specrt is to know of a block whose states begin at row `row` of those of a pass. */
    void place(specrt_block &block, const specrt_llama_head &head, const float *states,
               size_t row) const {
        block.hidden = states + (row + kind.first) * head.desc.n_cols;
        block.confidence = kind.trusts ? head.confidence : nullptr;
        block.confidence_bias = head.confidence_bias;
    }
};

#endif
