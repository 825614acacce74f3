/* speculative-specrt.hpp : the type draft-specrt of llama.cpp's own speculative loop, server included. It
 * does what draft-simple does, but the draft context stops before its LM head, and specrt scores the rows
 * that a policy names. A session a slot; llama.cpp verifies. The patch beside this file lets
 * common/speculative.cpp include it. Its words for contexts and errors are llama.cpp's. */
#ifndef LLAMA_SPECULATIVE_SPECRT_HPP
#define LLAMA_SPECULATIVE_SPECRT_HPP

#include "specrt_llama.h"

/* Of the draft context: result_norm is handed over and what follows, the head, left uncomputed. A pass may
 * come in several parts. */
static bool specrt_at_node(ggml_tensor *t, bool ask, void *user) {
    auto *states = (common_specrt_states *)user;
    if (states->runs_head) {
        return false;
    }
    if (ask) {
        states->reached_head |= strcmp(t->name, "result_output") == 0;
        return strcmp(t->name, "result_norm") == 0;
    }
    const size_t before = states->rows.size();
    states->rows.resize(before + ggml_nelements(t));
    ggml_backend_tensor_get(t, states->rows.data() + before, 0, ggml_nbytes(t));
    return false;
}

/* A slot: its session, and what the target verified last. */
struct common_specrt_slot {
    static constexpr int32_t n_top =
        SPECRT_LOGITS_MAX_K; // of the target's best tokens that sources learn from

    specrt_session *session = nullptr;
    bool started = false;  // the session has a root
    bool verified = false; // accept() has told it a cycle but for the last token
    llama_token root = LLAMA_TOKEN_NULL;
    llama_tokens tokens;       // that the target read: the root, then what was drafted
    std::vector<int32_t> rows; // of the target's batch, for each

    float logprob = 0; // of the path drafted so far

    static void check(specrt_status status, llama_token token) {
        if (status != SPECRT_STATUS_OK) {
            SPC_ERR("draft-specrt: token %d: %s\n", token, specrt_status_name(status));
        }
    }

    /* What the target read is verified. Its best tokens are taken now: its logits last until its next
     * pass. */
    void verify(llama_context *ctx, int32_t n_vocab, int32_t n_accepted) {
        std::vector<int32_t> top(tokens.size() * n_top, -1);
        specrt_target_rows told = {};
        for (size_t i = 0; i < rows.size(); ++i) {
            const float *logits = llama_get_logits_ith(ctx, rows[i]);
            if (logits) {
                specrt_logits_topk(logits, n_vocab, n_top, &top[i * n_top]);
            }
        }
        told.ids = top.data();
        told.k = n_top;
        check(specrt_session_observe_chain(session, tokens.data(), (int32_t)tokens.size(),
                                           n_accepted, -1, &told),
              root);
        verified = true;
    }

    /* The token that ends a cycle, or the prompt. */
    void learn(llama_token last) {
        const bool plain = started && !verified; // a cycle that nothing was told of
        check(plain ? specrt_session_observe_chain(session, &root, 1, 0, last, nullptr)
                    : specrt_session_start(session, last),
              last);
        started = true;
        verified = false;
        root = last;
        logprob = 0;
    }
};

struct common_speculative_impl_draft_specrt : public common_speculative_impl {
    common_params_speculative_draft params;
    common_batch batch;
    common_specrt_states *states; // of the draft context; the params own them
    specrt_llama_head rows = {};
    specrt_bundle *bundle = nullptr;
    specrt_head *head = nullptr;
    specrt_policy *policy = nullptr;
    int32_t n_vocab = 0;
    std::vector<common_specrt_slot> slots;
    std::vector<float> zeros; // a row of the draft model's input

    common_speculative_impl_draft_specrt(const common_params_speculative &p, uint32_t n_seq)
        : common_speculative_impl(COMMON_SPECULATIVE_TYPE_DRAFT_SPECRT, n_seq, p.draft.n_max),
          params(p.draft), states(p.draft.specrt_states.get()), slots(n_seq) {
        try {
            open();
        } catch (...) {
            close();
            throw;
        }
    }

    ~common_speculative_impl_draft_specrt() override { close(); }

    static void require(specrt_status status, const specrt_error &err) {
        if (status != SPECRT_STATUS_OK) {
            throw std::runtime_error(std::string("draft-specrt: ") + err.msg);
        }
    }

    void open() {
        const llama_model *model_tgt = llama_get_model(params.ctx_tgt);
        const llama_model *model_dft = llama_get_model(params.ctx_dft);
        specrt_error err = {};
        if (!common_speculative_are_compatible(model_tgt, model_dft)) {
            throw std::runtime_error(
                "draft-specrt: the draft model has another vocabulary than the target");
        }
        n_vocab = std::min(llama_vocab_n_tokens(llama_model_get_vocab(model_tgt)),
                           llama_vocab_n_tokens(llama_model_get_vocab(model_dft)));
        n_max = params.n_max = std::min(params.n_max, (int32_t)SPECRT_TREE_MAX_STEPS);
        batch = common_batch(params.ctx_dft);
        zeros.assign(llama_model_n_embd_inp(model_dft), 0.0f);
        require(specrt_llama_head_open(params.mparams.path.c_str(), &rows, &err), err);
        require(specrt_head_bind(nullptr, &rows.desc, nullptr, &head, &err), err);
        check_states();
        open_bundle(llama_model_get_vocab(model_tgt));
        open_sessions(llama_model_get_vocab(model_tgt));
        SPC_INF("draft-specrt: policy %s, at most %d of %d rows\n",
                specrt_policy_get_info(policy)->text, specrt_policy_get_info(policy)->bound,
                n_vocab);
    }

    void close() {
        for (auto &slot : slots) {
            specrt_session_close(slot.session);
        }
        specrt_policy_close(policy);
        specrt_head_close(head);
        specrt_bundle_close(bundle);
        specrt_llama_head_close(&rows);
    }

    /* A pass of a token a slot, with the head and without it: rows times states are its logits. */
    void check_states() {
        std::vector<float> logits;
        specrt_error err = {};
        const auto add_all = [&]() {
            batch.clear();
            for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
                batch.add((17 * id + 11) % n_vocab, 0, id, true);
            }
        };
        add_all();
        states->runs_head = true;
        const bool ran = decode(0);
        states->runs_head = false;
        for (uint32_t i = 0; ran && i < n_seq; ++i) {
            const float *row = llama_get_logits_ith(params.ctx_dft, i);
            logits.insert(logits.end(), row, row + n_vocab);
        }
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        add_all();
        if (!ran || !decode(n_seq)) {
            throw std::runtime_error(
                "draft-specrt: the draft model's pass does not end in result_norm and its head");
        }
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        require(specrt_head_check_states(&rows.desc, states->rows.data(), n_seq, logits.data(),
                                         n_vocab, nullptr, &err),
                err);
    }

    void open_bundle(const llama_vocab *vocab) {
        specrt_error err = {};
        uint8_t sha256[32];
        if (params.specrt_bundle.empty()) {
            return;
        }
        require(specrt_bundle_open(params.specrt_bundle.c_str(), nullptr, &bundle, &err), err);
        specrt_llama_fingerprint(vocab, sha256);
        require(specrt_bundle_check_tokenizer(bundle, sha256, &err), err);
    }

    void open_sessions(const llama_vocab *vocab) {
        specrt_error err = {};
        std::vector<int32_t> ends;
        for (int32_t id = 0; id < n_vocab && ends.size() < SPECRT_MAX_TERMINATORS; ++id) {
            if (llama_vocab_is_eog(vocab, id)) {
                ends.push_back(id);
            }
        }
        specrt_policy_desc desc = {};
        desc.text = params.specrt_policy.empty() ? nullptr : params.specrt_policy.c_str();
        desc.n_vocab = n_vocab;
        desc.terminators = ends.data();
        desc.n_terminators = (int32_t)ends.size();
        require(specrt_policy_create(bundle, head, &desc, &policy, &err), err);
        specrt_session_params session = {};
        session.tree.num_steps = params.n_max;
        session.tree.topk = 1;
        session.tree.num_draft_tokens = params.n_max + 1;
        session.n_logits = n_vocab;
        for (auto &slot : slots) {
            require(specrt_session_create(policy, &session, nullptr, &slot.session, &err), err);
        }
    }

    /* n : rows of states that are expected */
    bool decode(size_t n) {
        states->rows.clear();
        states->reached_head = false;
        const int ret = llama_process(params.ctx_dft, LLAMA_PROCESS_TYPE_DECODE, batch.get());
        llama_synchronize(params.ctx_dft);
        if (ret != 0) {
            SPC_ERR("draft-specrt: llama_process returned %d\n", ret);
            return false;
        }
        if (n > 0 && (states->reached_head || states->rows.size() != n * rows.desc.n_cols)) {
            SPC_ERR(
                "draft-specrt: expected %zu rows of result_norm and no head, found %zu values\n", n,
                states->rows.size());
            return false;
        }
        return true;
    }

    void begin(llama_seq_id seq_id, const llama_tokens &prompt) override {
        auto &slot = slots[seq_id];
        llama_tokens known; // images have no tokens
        std::copy_if(prompt.begin(), prompt.end(), std::back_inserter(known),
                     [&](llama_token id) { return id >= 0 && id < n_vocab; });
        specrt_session_begin(slot.session, SPECRT_BEGIN_NEW, 0);
        specrt_session_prefill(slot.session, known.data(), (int32_t)known.size(), nullptr);
        slot.started = slot.verified = false;
    }

    /* The drafter reads what the target read. */
    bool process(const common_batch &in) override {
        std::vector<bool> seen(n_seq);
        batch.clear();
        for (int32_t k = 0; k < in.size(); ++k) {
            const auto &t = in.tokens[k];
            if (t.id == LLAMA_TOKEN_NULL) {
                // an image's row, which the draft model cannot read: zeros, as draft-simple gives it
                batch.add_embd({zeros.data(), 1, zeros.size()}, t.pos.data(), t.seq_id, false);
                continue;
            }
            batch.add(t.id, t.pos[0], t.seq_id, false);
            if (!t.output) {
                continue;
            }
            auto &slot = slots[t.seq_id];
            if (!seen[t.seq_id]) {
                slot.tokens.clear();
                slot.rows.clear();
                seen[t.seq_id] = true;
            }
            slot.tokens.push_back(t.id);
            slot.rows.push_back(k);
        }
        return batch.size() == 0 || decode(0);
    }

    void draft(common_speculative_draft_params_vec &dparams) override {
        std::vector<llama_seq_id> live;
        batch.clear();
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            if (dparams[id].drafting) {
                slots[id].learn(dparams[id].id_last);
                batch.add(dparams[id].id_last, dparams[id].pos0, id, true);
                live.push_back(id);
            }
        }
        while (!live.empty() && decode(live.size())) {
            live = extend(dparams, live);
        }
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            auto &dp = dparams[id];
            if (dp.drafting && dp.result->size() < (size_t)params.n_min) {
                dp.result->clear();
            }
        }
    }

    /* One token for each live slot, from its row of states.
     * @return those that go on, which are in the batch */
    std::vector<llama_seq_id> extend(common_speculative_draft_params_vec &dparams,
                                     const std::vector<llama_seq_id> &live) {
        std::vector<llama_seq_id> next;
        batch.clear();
        for (size_t i = 0; i < live.size(); ++i) {
            auto &dp = dparams[live[i]];
            auto &slot = slots[live[i]];
            specrt_beam beam = {};
            const float *hidden = states->rows.data() + i * rows.desc.n_cols;
            if (specrt_session_expand(slot.session, hidden, nullptr, 1, &beam) !=
                    SPECRT_STATUS_OK ||
                beam.n == 0 || expf(beam.logprobs[0] - slot.logprob) < params.p_min) {
                continue;
            }
            slot.logprob = beam.logprobs[0];
            dp.result->push_back(beam.tokens[0]);
            const int32_t n = (int32_t)dp.result->size();
            if (n < params.n_max && (dp.n_max <= 0 || n < dp.n_max)) {
                batch.add(beam.tokens[0], dp.pos0 + n, live[i], true);
                next.push_back(live[i]);
            }
        }
        return next;
    }

    void accept(llama_seq_id seq_id, uint16_t n_accepted, bool /*is_other*/) override {
        auto &slot = slots[seq_id];
        if (slot.started && !slot.verified && n_accepted < slot.tokens.size() &&
            slot.tokens.size() <= SPECRT_TREE_MAX_NODES && slot.tokens[0] == slot.root) {
            slot.verify(params.ctx_tgt, n_vocab, n_accepted);
        }
    }
};

#endif
