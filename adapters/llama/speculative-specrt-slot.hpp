/* speculative-specrt-slot.hpp : a slot of the type draft-specrt, for speculative-specrt.hpp. */
#ifndef LLAMA_SPECULATIVE_SPECRT_SLOT_HPP
#define LLAMA_SPECULATIVE_SPECRT_SLOT_HPP

#include "specrt_llama.h"

/* A slot: its session, and what the target verified last. */
struct common_specrt_slot {
    static constexpr int32_t n_top =
        SPECRT_LOGITS_MAX_K; // of the target's best tokens that sources learn from

    specrt_session *session = nullptr;
    bool started = false;   // the session has a root
    bool verified = false;  // accept() has told it a cycle but for the last token
    bool in_prompt = false; // the target reads its prompt
    bool reads = true;      // so does the drafter; otherwise nothing is drafted after it
    llama_token root = LLAMA_TOKEN_NULL;
    llama_tokens tokens;  // that the target read: the root, then what was drafted
    llama_tokens history; // all that the target read, by position; LLAMA_TOKEN_NULL: an image's
    std::vector<int32_t> rows; // of the target's batch, for each

    float logprob = 0; // of the path drafted so far

    // With MTP layers: the target's state before the next token, and after each that it read last.
    std::vector<float> pending, after;

    /* What follows is paired with the state after token i of those read last. */
    void wait(size_t i, size_t d) {
        pending.assign(after.begin() + i * d, after.begin() + (i + 1) * d);
    }

    /* The session's call, or what it says is wrong. */
    void check(specrt_status status) const {
        if (status != SPECRT_STATUS_OK) {
            SPC_ERR("draft-specrt: %s\n", specrt_session_last_error(session)->msg);
        }
    }

    /* Tokens [n] of a prompt, of which images have `n_unknown` others. */
    void begin(const llama_tokens &prompt, int64_t n_unknown) {
        specrt_request request = {};
        request.position = n_unknown; // a prompt of images alone has been read, too
        check(specrt_session_begin(session, &request));
        check(specrt_session_prefill(session, prompt.data(), (int32_t)prompt.size(), nullptr));
        started = verified = false;
    }

    /* A draft from the states of a block. */
    void draft(const specrt_block &block, llama_tokens &out) {
        specrt_draft chain = {};
        check(specrt_session_draft_block(session, &block, &chain));
        for (int32_t i = 1; i < chain.n; ++i) {
            logprobs.push_back(chain.logprobs[i]);
            out.push_back(chain.tokens[i]);
        }
    }

    /* Of auto; NULL: every draft has the same length. */
    specrt_auto *auto_draft = nullptr;
    int32_t n_levels = 0;          // that may be drafted in the cycle at hand
    int32_t n_accepted = 0;        // of the cycle that was verified
    std::vector<float> logprobs;   // of the chain, by level
    std::vector<float> certain;    // of the target's tokens, by row
    std::vector<int32_t> top;      // [rows, n_top] the target's best tokens
    std::vector<float> top_logits; // theirs
    specrt_auto_stats begun = {};  // when this answer began

    /* The target's best tokens, taken while its logits last: until its next pass. */
    void see_target(llama_context *ctx, int32_t n_vocab) {
        top.assign(tokens.size() * n_top, -1);
        top_logits.assign(tokens.size() * n_top, -INFINITY);
        for (size_t i = 0; i < rows.size(); ++i) {
            const float *logits = llama_get_logits_ith(ctx, rows[i]);
            if (!logits) {
                continue;
            }
            int32_t *best = &top[i * n_top];
            const int32_t n = specrt_logits_topk(logits, n_vocab, n_top, best);
            for (int32_t k = 0; k < n; ++k) {
                top_logits[i * n_top + k] = logits[best[k]];
            }
        }
    }

    /* The natural log of the target's probability of a token, over its best ones; NAN: not among them. */
    float certainty(size_t row, llama_token token) const {
        float sum = 0, found = NAN;
        for (size_t k = row * n_top; k < (row + 1) * n_top && k < top.size() && top[k] >= 0; ++k) {
            sum += expf(top_logits[k] - top_logits[row * n_top]);
            if (top[k] == token) {
                found = top_logits[k] - top_logits[row * n_top];
            }
        }
        return found - logf(sum);
    }

    /* What the target read is verified. */
    void verify(llama_context *ctx, int32_t n_vocab, int32_t accepted) {
        see_target(ctx, n_vocab);
        specrt_target_rows told = {};
        told.ids = top.data();
        told.k = n_top;
        check(specrt_session_observe_chain(session, tokens.data(), (int32_t)tokens.size(), accepted,
                                           -1, &told));
        n_accepted = accepted;
        verified = true;
    }

    /* The controller learns from the cycle that `last` ends. */
    void observe(llama_token last) {
        const int32_t accepted = verified ? n_accepted : 0;
        specrt_auto_cycle cycle = {};
        certain.assign(accepted + 1, NAN);
        for (int32_t i = 0; i <= accepted && i < (int32_t)rows.size(); ++i) {
            certain[i] = certainty(i, i < accepted ? tokens[i + 1] : last);
        }
        cycle.n_passes = verified ? (int32_t)tokens.size() - 1 : 0;
        cycle.n_accepted = accepted;
        cycle.logprobs = (int32_t)logprobs.size() >= cycle.n_passes ? logprobs.data() : nullptr;
        cycle.target_logprobs = certain.data();
        if (specrt_auto_observe(auto_draft, &cycle) != SPECRT_STATUS_OK) {
            SPC_ERR("draft-specrt: token %d: a cycle that auto does not learn from\n", last);
        }
    }

    /* The token that ends a cycle, or the prompt. */
    void learn(llama_context *ctx, int32_t n_vocab, llama_token last) {
        const bool plain = started && !verified; // a cycle that nothing was told of
        if (plain && auto_draft) {
            tokens.resize(std::min<size_t>(tokens.size(), 1));
            rows.resize(tokens.size());
            see_target(ctx, n_vocab);
        }
        if (started && auto_draft) {
            observe(last);
        }
        check(plain ? specrt_session_observe_chain(session, &root, 1, 0, last, nullptr)
                    : specrt_session_start(session, last));
        started = true;
        verified = false;
        root = last;
        logprob = 0;
        logprobs.clear();
    }
};

#endif
