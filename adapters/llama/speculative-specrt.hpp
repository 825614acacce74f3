/* speculative-specrt.hpp : the type draft-specrt of llama.cpp's own speculative loop, server included. It
 * does what draft-simple does, with MTP layers what draft-mtp does, and with a block drafter what
 * draft-dflash and draft-dspark do, but the draft context stops before its LM head, and specrt scores the
 * rows that a policy names. A session and a controller of draft length for each slot, one clock for all of
 * them; llama.cpp verifies. The patch beside this file lets common/speculative.cpp include it. Its words for
 * contexts and errors are llama.cpp's. */
#ifndef LLAMA_SPECULATIVE_SPECRT_HPP
#define LLAMA_SPECULATIVE_SPECRT_HPP

#include "specrt_llama.h"
#include "speculative-specrt-block.hpp"
#include "speculative-specrt-context.hpp"
#include "speculative-specrt-slot.hpp"

/* The time between two drafts, of all slots. */
struct common_specrt_cycle {
    int64_t began = 0;     // us; 0: there was none
    bool is_whole = false; // the target had one pass, of tokens that slots generate
    specrt_clock_cycle seen = {};
};

struct common_speculative_impl_draft_specrt : public common_speculative_impl {
    common_params_speculative_draft params;
    common_batch batch;
    common_specrt_states *states; // of the draft context; the params own them
    specrt_llama_head rows = {};
    specrt_bundle *bundle = nullptr;
    specrt_head *head = nullptr;
    specrt_policy *policy = nullptr;
    int32_t n_target = 0; // tokens of the target, as many as its logits
    int32_t n_vocab = 0;  // tokens of both models
    std::vector<common_specrt_slot> slots;
    std::vector<float> zeros;    // a row of the draft model's input
    size_t d_pair = 0;           // of MTP layers: the width of the states that they read
    common_specrt_blocks blocks; // of a block drafter

    bool is_auto = false;
    specrt_clock clock = {};
    common_specrt_cycle cycle;

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
        n_target = llama_vocab_n_tokens(llama_model_get_vocab(model_tgt));
        n_vocab = std::min(n_target, llama_vocab_n_tokens(llama_model_get_vocab(model_dft)));
        n_max = params.n_max = std::min(params.n_max, (int32_t)SPECRT_TREE_MAX_STEPS - 1);
        batch = common_batch(params.ctx_dft);
        zeros.assign(llama_model_n_embd_inp(model_dft), 0.0f);
        require(specrt_llama_head_open(states->path.c_str(), &rows, &err), err);
        if (states->is_mtp) {
            open_pairs(model_dft);
        } else if (states->is_block) {
            open_blocks();
        } else if (rows.n_target_layers > 0) {
            throw std::runtime_error(
                "draft-specrt: " + states->path +
                ": expected a draft model, MTP layers or a block drafter, found "
                "an EAGLE-3 head; specrt-llama drafts with it");
        }
        require(specrt_llama_head_number(&rows, n_target, &err), err);
        require(specrt_head_bind(nullptr, &rows.desc, nullptr, &head, &err), err);
        check_states();
        open_bundle(llama_model_get_vocab(model_tgt));
        open_sessions(llama_model_get_vocab(model_tgt));
        SPC_INF("draft-specrt: policy %s, at most %d of %d rows%s\n",
                specrt_policy_get_info(policy)->text, specrt_policy_get_info(policy)->bound,
                n_vocab, is_auto ? "; auto, by the clock" : "");
    }

    /* Both contexts hand over the states that tokens are paired with. */
    void open_pairs(const llama_model *model_dft) {
        d_pair = llama_model_n_embd_out(model_dft);
        zeros.assign(d_pair, 0.0f);
        llama_set_embeddings_nextn(params.ctx_tgt, true, /*masked*/ false);
        llama_set_embeddings_nextn(params.ctx_dft, true, /*masked*/ true);
        for (auto &slot : slots) {
            slot.pending = zeros;
        }
    }

    /* A drafter without a head of its own takes the target's. */
    void open_blocks() {
        specrt_error err = {};
        blocks.open(rows, params, n_seq);
        n_max = params.n_max = blocks.n_max(params.n_max);
        zeros.assign(blocks.width(), 0.0f);
        if (!rows.desc.rows) {
            require(specrt_llama_head_share(&rows, states->path_target.c_str(), &err), err);
        }
    }

    /* state : of the target or of the draft context, before the token; only MTP layers read it */
    void add(llama_token id, llama_pos pos, llama_seq_id seq_id, bool output, const float *state) {
        const int32_t at = batch.add(id, pos, seq_id, output);
        if (states->is_mtp) {
            batch.set_embd(at, {state, 1, d_pair});
        }
    }

    void close() {
        for (auto &slot : slots) {
            specrt_session_close(slot.session);
            specrt_auto_close(slot.auto_draft);
        }
        specrt_policy_close(policy);
        specrt_head_close(head);
        specrt_bundle_close(bundle);
        specrt_llama_head_close(&rows);
    }

    llama_token sample_root(llama_seq_id id) const { return (17 * id + 11) % n_vocab; }

    /* A pass of a token a slot, or of a block that drafts one.
     * @return rows of each slot; those of the last one draft */
    int32_t sample_pass(bool output) {
        batch.clear();
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            if (states->is_block) {
                blocks.add(batch, sample_root(id), 0, id, 1, output);
            } else {
                add(sample_root(id), 0, id, true, zeros.data());
            }
        }
        return batch.size() / (int32_t)n_seq;
    }

    /* With the head and without it: rows times states are its logits. */
    void check_states() {
        std::vector<float> logits, hidden;
        specrt_error err = {};
        const int32_t each = sample_pass(true), last = each - 1;
        states->runs_head = true;
        const bool ran = decode(0);
        states->runs_head = false;
        for (uint32_t i = 0; ran && i < n_seq; ++i) {
            const float *row = llama_get_logits_ith(params.ctx_dft, i * each + last);
            logits.insert(logits.end(), row, row + n_vocab);
            specrt_llama_block_unbias(&rows, sample_root(i), &logits[i * n_vocab], n_vocab);
        }
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        sample_pass(false);
        if (!ran || !decode(n_seq * each)) {
            throw std::runtime_error(
                "draft-specrt: the draft model's pass does not end in its last norm and its head");
        }
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        for (uint32_t i = 0; i < n_seq; ++i) {
            const float *row = states->rows.data() + (i * each + last) * rows.desc.n_cols;
            hidden.insert(hidden.end(), row, row + rows.desc.n_cols);
        }
        require(specrt_head_check_states(&rows.desc, hidden.data(), n_seq, logits.data(), n_vocab,
                                         nullptr, &err),
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
        for (int32_t id = 0; id < n_target && ends.size() < SPECRT_MAX_TERMINATORS; ++id) {
            if (llama_vocab_is_eog(vocab, id)) {
                ends.push_back(id);
            }
        }
        specrt_costs_drafts drafts = {};
        drafts.bundle = bundle;
        drafts.head = head;
        drafts.n_cols = rows.desc.n_cols;
        drafts.policy.n_vocab = n_target;
        drafts.policy.terminators = ends.data();
        drafts.policy.n_terminators = (int32_t)ends.size();
        drafts.params.tree.num_steps = params.n_max;
        drafts.params.tree.topk = 1;
        drafts.params.tree.num_draft_tokens = params.n_max + 1;
        drafts.params.n_logits = n_target;
        drafts.params.n_block = states->is_block ? params.n_max : 0;

        const std::string text = params.specrt_policy.empty() ? "auto" : params.specrt_policy;
        is_auto = text == "auto" || text.rfind("auto+", 0) == 0;
        const std::string named = !is_auto ? text : text.size() > 5 ? text.substr(5) : "";
        const std::string chosen = is_auto ? open_clock(drafts, named) : named;
        drafts.policy.text = chosen.c_str();
        require(specrt_policy_create(bundle, head, &drafts.policy, &policy, &err), err);
        // tokens are read off the beam, which is empty after a tree's last level
        drafts.params.tree.num_steps++;
        drafts.params.tree.num_draft_tokens++;
        for (auto &slot : slots) {
            require(specrt_session_create(policy, &drafts.params, nullptr, &slot.session, &err),
                    err);
            if (is_auto) {
                require(specrt_clock_auto(&clock, false, &slot.auto_draft, &err), err);
            }
        }
    }

    /* ---- auto ---- */

    /* Costs from their file, or measured. @return the policy: the named one, or the best by these costs */
    std::string open_clock(const specrt_costs_drafts &drafts, const std::string &named) {
        specrt_costs costs = {};
        specrt_error err;
        char path[SPECRT_COSTS_PATH], key[SPECRT_COSTS_KEY], line[SPECRT_COSTS_LINE],
            why[SPECRT_COSTS_TEXT];
        const auto &tree = drafts.params.tree;
        const specrt_llama_setting setting = {llama_get_model(params.ctx_tgt),
                                              llama_get_model(params.ctx_dft),
                                              llama_n_threads(params.ctx_tgt),
                                              (int32_t)llama_n_ctx(params.ctx_tgt),
                                              (int32_t)n_seq,
                                              tree};
        specrt_llama_key(&setting, key);
        const char *beside = params.specrt_bundle.empty() ? nullptr : params.specrt_bundle.c_str();
        specrt_costs_path(beside, key, path);
        const specrt_meter meter = {
            this, time_pass, {most_tokens(), states->is_block ? -params.n_max : 8, 0, 0}};
        const specrt_status status = specrt_costs_find(&meter, path, key, &costs, line, &err);
        llama_memory_clear(llama_get_memory(params.ctx_tgt), false);
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        require(status, err);
        SPC_INF("draft-specrt: %s\n", line);
        const std::string policy_text =
            named.empty() ? specrt_advise_untried(&costs, &drafts) : named;
        const double scoring = specrt_costs_head(&costs, &drafts, policy_text.c_str());
        if (path[0] && costs.changed && specrt_costs_write(&costs, path, &err)) {
            SPC_WRN("draft-specrt: costs: %s\n", err.msg);
        }
        specrt_clock_init(&clock, &costs, &tree, scoring);
        if (specrt_clock_hopeless(&clock, why)) {
            throw std::runtime_error(std::string("draft-specrt: ") + why + "; plain decoding");
        }
        return policy_text;
    }

    /* Of the largest pass that is timed. */
    int32_t most_tokens() const {
        return std::min<int32_t>(n_seq * (params.n_max + 1), SPECRT_TREE_MAX_NODES);
    }

    /* n tokens behind nothing, as many for a slot as a draft has, or all for the first one. @return 0 or 1 */
    int time_tokens(llama_context *ctx, int32_t n, int32_t per_slot, double *seconds) {
        common_batch timed(ctx);
        for (int32_t i = 0; i < n; ++i) {
            timed.add((977 * i + 11) % n_vocab, i % per_slot, i / per_slot,
                      ctx == params.ctx_tgt || i == n - 1);
            if (states->is_mtp && ctx == params.ctx_dft) {
                timed.set_embd(i, {zeros.data(), 1, d_pair});
            }
        }
        llama_memory_clear(llama_get_memory(ctx), false);
        const int64_t start = ggml_time_us();
        const int ret = llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, timed.get());
        llama_synchronize(ctx);
        *seconds = 1e-6 * (double)(ggml_time_us() - start);
        return ret != 0;
    }

    /* A block of n positions behind one token, or a whole one behind so many more tokens. @return 0 or 1 */
    int time_block(int32_t n, double *seconds) {
        const int32_t n_block = std::min(n, params.n_max), n_read = 1 + n - n_block;
        llama_memory_clear(llama_get_memory(params.ctx_dft), false);
        batch.clear();
        for (int32_t i = 0; i < n_read; ++i) {
            blocks.add_states(batch, zeros.data(), i, 0);
        }
        const int64_t start = ggml_time_us();
        const bool read = decode(0);
        batch.clear();
        blocks.add(batch, sample_root(0), n_read, 0, n_block, false);
        const bool drafted = read && decode(batch.size());
        *seconds = 1e-6 * (double)(ggml_time_us() - start);
        return !drafted;
    }

    static int time_pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
        auto *impl = (common_speculative_impl_draft_specrt *)user;
        if (pass == SPECRT_PASS_DRAFT && impl->states->is_block) {
            return impl->time_block(n, seconds);
        }
        return pass == SPECRT_PASS_TARGET
                   ? impl->time_tokens(impl->params.ctx_tgt, n, impl->params.n_max + 1, seconds)
                   : impl->time_tokens(impl->params.ctx_dft, n, n, seconds);
    }

    /* The clock learns from the cycle that ends now. @return whether a plain one is to follow */
    bool end_cycle(int64_t now) {
        auto &seen = cycle.seen;
        const double all = 1e-6 * (double)(now - cycle.began);
        bool asks = false;
        seen.target_seconds = all - seen.draft_seconds - seen.head_seconds;
        if (cycle.began > 0 && cycle.is_whole) {
            asks = specrt_clock_see(&clock, &seen);
        }
        cycle = {};
        cycle.began = now;
        return asks;
    }

    /* How much each of so many slots may draft. */
    void choose(common_specrt_slot &slot, int32_t n_slots, bool skips) {
        double cycles[SPECRT_TREE_MAX_STEPS + 1], read;
        specrt_auto_choice choice = {};
        slot.n_levels = params.n_max;
        if (!slot.auto_draft) {
            return;
        }
        specrt_clock_table(&clock, n_slots, cycles, &read);
        specrt_auto_set_costs(slot.auto_draft, cycles, read, nullptr);
        if (skips || !slot.reads) {
            specrt_auto_skip(slot.auto_draft);
        }
        specrt_auto_choose(slot.auto_draft, &choice);
        slot.n_levels = choice.num_steps;
    }

    /* Of an answer so far, in words and numbers; false: this slot has no controller. */
    bool report(llama_seq_id seq_id, common_specrt_report &out) const {
        const auto &slot = slots[seq_id];
        if (!slot.auto_draft) {
            return false;
        }
        char line[SPECRT_COSTS_TEXT];
        specrt_auto_stats stats;
        specrt_auto_get_stats(slot.auto_draft, &stats);
        stats.n_cycles -= slot.begun.n_cycles;
        stats.n_emitted -= slot.begun.n_emitted;
        stats.n_plain -= slot.begun.n_plain;
        stats.n_probes -= slot.begun.n_probes;
        stats.n_passes -= slot.begun.n_passes;
        stats.cost -= slot.begun.cost;
        specrt_clock_explain(&clock, &stats, line);
        out = {stats.n_cycles, stats.n_plain, stats.n_emitted, stats.cost, line};
        return true;
    }

    /* ---- passes ---- */

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
            SPC_ERR("draft-specrt: expected %zu rows of %s and no head, found %zu values\n", n,
                    states->node, states->rows.size());
            return false;
        }
        return true;
    }

    /* A prompt begins: the drafter need not read it where the controller would draft nothing. */
    void begin_prompt(common_specrt_slot &slot) {
        specrt_auto_choice choice = {};
        slot.in_prompt = true;
        if (!slot.auto_draft || reads_target()) {
            return;
        }
        specrt_auto_begin(slot.auto_draft);
        specrt_auto_choose(slot.auto_draft, &choice);
        slot.reads = choice.num_steps > 0;
    }

    void begin(llama_seq_id seq_id, const llama_tokens &prompt) override {
        auto &slot = slots[seq_id];
        if (!slot.in_prompt) {
            begin_prompt(slot);
        }
        slot.in_prompt = false;
        llama_tokens known; // images have no tokens
        std::copy_if(prompt.begin(), prompt.end(), std::back_inserter(known),
                     [&](llama_token id) { return id >= 0 && id < n_target; });
        slot.begin(known, (int64_t)(prompt.size() - known.size()));
        cycle.is_whole = false;
        if (slot.auto_draft) {
            specrt_auto_begin(slot.auto_draft);
            specrt_auto_get_stats(slot.auto_draft, &slot.begun);
        }
    }

    /* Whether the drafter reads states of the target, as the target goes on. */
    bool reads_target() const { return states->is_mtp || states->is_block; }

    /* The position that the drafter reads next. */
    llama_pos next_of(llama_seq_id id) const {
        return llama_memory_seq_pos_max(llama_get_memory(params.ctx_dft), id) + 1;
    }

    /* Tokens by position from `next` to `end` - 1, into the batch, which is decoded where it is full. */
    bool read(const llama_tokens &tokens, llama_pos &next, llama_pos end, llama_seq_id id) {
        for (; next < end; ++next) {
            if (batch.size() >= (int32_t)llama_n_batch(params.ctx_dft) - (int32_t)n_seq) {
                if (!decode(0)) {
                    return false;
                }
                batch.clear();
            }
            if (tokens[next] == LLAMA_TOKEN_NULL) {
                // an image's row, which the draft model cannot read: zeros, as draft-simple gives it
                batch.add_embd({zeros.data(), 1, zeros.size()}, &next, id, false);
            } else {
                batch.add(tokens[next], next, id, false);
            }
        }
        return true;
    }

    /* The drafter reads prompts as the target does, if it is to draft after them. What slots generate it
     * reads when it drafts: a slot that decodes plainly costs nothing here. */
    bool process(const common_batch &in) override {
        std::vector<bool> seen(n_seq);
        std::vector<llama_pos> next(n_seq);
        int32_t n_slots = 0;
        bool generates = true;
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            next[id] = next_of(id);
        }
        for (int32_t k = 0; k < in.size(); ++k) {
            generates &= in.tokens[k].output;
        }
        batch.clear();
        for (int32_t k = 0; k < in.size(); ++k) {
            const auto &t = in.tokens[k];
            auto &slot = slots[t.seq_id];
            slot.history.resize(t.pos[0], LLAMA_TOKEN_NULL);
            slot.history.push_back(t.id);
            if (!t.output && !slot.in_prompt) {
                begin_prompt(slot);
            }
            if (!generates && slot.reads && !reads_target() &&
                !read(slot.history, next[t.seq_id], t.pos[0] + 1, t.seq_id)) {
                return false;
            }
            if (t.id == LLAMA_TOKEN_NULL || !t.output) {
                continue;
            }
            if (!seen[t.seq_id]) {
                slot.tokens.clear();
                slot.rows.clear();
                seen[t.seq_id] = true;
                n_slots++;
            }
            slot.tokens.push_back(t.id);
            slot.rows.push_back(k);
        }
        cycle.is_whole = generates && cycle.seen.n_tokens == 0;
        cycle.seen.n_slots = n_slots;
        cycle.seen.n_tokens += in.size();
        return states->is_mtp     ? read_pairs(in)
               : states->is_block ? read_states(in)
                                  : batch.size() == 0 || decode(0);
    }

    /* MTP layers read what the target reads at once, each token with the target's state before it. A
     * sequence's tokens follow each other in the batch, as draft-mtp expects, too. */
    bool read_pairs(const common_batch &in) {
        if (in.size() == 0 || !in.has_token() || in.has_embd()) {
            return true; // an image, which draft-mtp does not read either
        }
        const int64_t start = ggml_time_us();
        const float *found = llama_get_embeddings_nextn(params.ctx_tgt);
        std::vector<bool> seen(n_seq);
        for (int32_t k = 0; k < in.size(); ++k) {
            const auto &t = in.tokens[k];
            auto &slot = slots[t.seq_id];
            if (!seen[t.seq_id]) {
                slot.after.clear();
            }
            add(t.id, t.pos[0], t.seq_id, false,
                t.pos[0] == 0    ? zeros.data()
                : seen[t.seq_id] ? found + (k - 1) * d_pair
                                 : slot.pending.data());
            seen[t.seq_id] = true;
            slot.after.insert(slot.after.end(), found + k * d_pair, found + (k + 1) * d_pair);
        }
        const bool good = decode(0);
        for (uint32_t id = 0; id < n_seq; ++id) {
            if (seen[id]) {
                slots[id].wait(slots[id].after.size() / d_pair - 1, d_pair);
            }
        }
        cycle.seen.draft_seconds += 1e-6 * (double)(ggml_time_us() - start);
        return good;
    }

    /* Block drafters read the target's states at once, too, those of images among them. */
    bool read_states(const common_batch &in) {
        if (in.size() == 0 || !blocks.takes(in)) {
            return true;
        }
        const int64_t start = ggml_time_us();
        const int32_t most = (int32_t)llama_n_ubatch(params.ctx_dft);
        bool good = true;
        for (int32_t first = 0; good && first < in.size(); first += most) {
            batch.clear();
            blocks.add_states_of(batch, params.ctx_tgt, in, first,
                                 std::min(most, in.size() - first));
            good = decode(0);
        }
        cycle.seen.draft_seconds += 1e-6 * (double)(ggml_time_us() - start);
        return good;
    }

    static bool is_text(const common_speculative_draft_params &dp) {
        return (llama_pos)dp.prompt->size() == dp.pos0;
    }

    void draft(common_speculative_draft_params_vec &dparams) override {
        std::vector<llama_seq_id> live;
        const bool skips = end_cycle(ggml_time_us());
        const int32_t n_slots = (int32_t)std::count_if(dparams.begin(), dparams.end(),
                                                       [](const auto &dp) { return dp.drafting; });
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            if (dparams[id].drafting) {
                slots[id].learn(params.ctx_tgt, n_target, dparams[id].id_last);
                choose(slots[id], n_slots, skips);
                if (slots[id].n_levels > 0 && (!states->is_block || is_text(dparams[id]))) {
                    live.push_back(id);
                }
            }
        }
        if (states->is_block) {
            draft_blocks(dparams, live);
        } else {
            draft_tokens(dparams, live);
        }
        for (llama_seq_id id = 0; id < (llama_seq_id)n_seq; ++id) {
            auto &dp = dparams[id];
            if (dp.drafting && dp.result->size() < (size_t)params.n_min) {
                dp.result->clear();
            }
        }
    }

    void draft_tokens(common_speculative_draft_params_vec &dparams,
                      std::vector<llama_seq_id> live) {
        live = catch_up(dparams, live);
        while (!live.empty() && timed_decode(live.size())) {
            live = extend(dparams, live);
        }
    }

    /* One pass for all slots, whose blocks are as long as the longest draft. */
    void draft_blocks(common_speculative_draft_params_vec &dparams,
                      const std::vector<llama_seq_id> &live) {
        int32_t n = 0;
        for (const auto id : live) {
            n = std::max(n, slots[id].n_levels);
        }
        batch.clear();
        for (const auto id : live) {
            blocks.add(batch, dparams[id].id_last, dparams[id].pos0, id, n, false);
        }
        cycle.seen.n_read = (int32_t)live.size();
        cycle.seen.n_block = n;
        if (live.empty() || !timed_decode(batch.size())) {
            return;
        }
        const int64_t start = ggml_time_us();
        for (size_t i = 0; i < live.size(); ++i) {
            const auto &dp = dparams[live[i]];
            auto &slot = slots[live[i]];
            specrt_block block = {};
            block.n = dp.n_max > 0 ? std::min(slot.n_levels, dp.n_max) : slot.n_levels;
            block.p_min = params.p_min;
            blocks.place(block, rows, states->rows.data(), i * batch.size() / live.size());
            cycle.seen.n_scored += block.n;
            slot.draft(block, *dp.result);
        }
        cycle.seen.head_seconds += 1e-6 * (double)(ggml_time_us() - start);
    }

    /* What the drafter has not read of each slot, then the token that it drafts after, are in the batch.
     * @return slots that draft: not those whose text is unknown, as that of images is */
    std::vector<llama_seq_id> catch_up(common_speculative_draft_params_vec &dparams,
                                       const std::vector<llama_seq_id> &live) {
        std::vector<llama_seq_id> ready;
        const int64_t start = ggml_time_us();
        llama_pos least = std::numeric_limits<llama_pos>::max(), most = 0, n_read = 0;
        batch.clear();
        for (const auto id : live) {
            const auto &dp = dparams[id];
            llama_pos next = next_of(id);
            least = std::min(least, dp.pos0 - next);
            most = std::max(most, dp.pos0 - next);
            n_read += dp.pos0 - next + 1;
            if (states->is_mtp ? next == dp.pos0
                               : is_text(dp) && read(*dp.prompt, next, dp.pos0, id)) {
                ready.push_back(id);
            }
        }
        // llama.cpp reads sequences of unequal length in parts: states would come in another order
        if (least < most) {
            if (!decode(0)) {
                ready.clear();
            }
            batch.clear();
        }
        for (const auto id : ready) {
            add(dparams[id].id_last, dparams[id].pos0, id, true, slots[id].pending.data());
        }
        cycle.seen.n_read = n_read;
        cycle.seen.draft_seconds = 1e-6 * (double)(ggml_time_us() - start);
        return ready;
    }

    bool timed_decode(size_t n) {
        const int64_t start = ggml_time_us();
        const bool ok = decode(n);
        cycle.seen.draft_seconds += 1e-6 * (double)(ggml_time_us() - start);
        cycle.seen.n_passes++;
        return ok;
    }

    /* One token for each live slot, from its row of states.
     * @return those that go on, which are in the batch */
    std::vector<llama_seq_id> extend(common_speculative_draft_params_vec &dparams,
                                     const std::vector<llama_seq_id> &live) {
        std::vector<llama_seq_id> next;
        const int64_t start = ggml_time_us();
        batch.clear();
        for (size_t i = 0; i < live.size(); ++i) {
            auto &dp = dparams[live[i]];
            auto &slot = slots[live[i]];
            specrt_beam beam = {};
            const float *hidden = states->rows.data() + i * rows.desc.n_cols;
            cycle.seen.n_scored++;
            slot.check(specrt_session_expand(slot.session, hidden, nullptr, 1, &beam));
            if (beam.n == 0 || expf(beam.logprobs[0] - slot.logprob) < params.p_min) {
                continue;
            }
            slot.logprob = beam.logprobs[0];
            slot.logprobs.push_back(slot.logprob);
            dp.result->push_back(beam.tokens[0]);
            const int32_t n = (int32_t)dp.result->size();
            if (n < slot.n_levels && (dp.n_max <= 0 || n < dp.n_max) &&
                (!slot.auto_draft ||
                 specrt_auto_should_continue(slot.auto_draft, n, slot.logprob))) {
                add(beam.tokens[0], dp.pos0 + n, live[i], true,
                    states->is_mtp ? llama_get_embeddings_nextn_ith(params.ctx_dft, (int32_t)i)
                                   : nullptr);
                next.push_back(live[i]);
            }
        }
        cycle.seen.head_seconds += 1e-6 * (double)(ggml_time_us() - start);
        return next;
    }

    void accept(llama_seq_id seq_id, uint16_t n_accepted, bool /*is_other*/) override {
        auto &slot = slots[seq_id];
        if (states->is_mtp && !slot.after.empty()) {
            slot.wait(std::min<size_t>(n_accepted, slot.after.size() / d_pair - 1), d_pair);
        }
        if (slot.started && !slot.verified && n_accepted < slot.tokens.size() &&
            slot.tokens.size() <= SPECRT_TREE_MAX_NODES && slot.tokens[0] == slot.root) {
            slot.verify(params.ctx_tgt, n_target, n_accepted);
        }
    }
};

#endif
