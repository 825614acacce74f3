// microspec.cpp : conversations under MicroSpec's policy, in C++17: a chain, a tree, the next turn, sampling,
// and a session that is saved and loaded. docs/tutorial-embed.md explains each step.
//
//     microspec
#define SPECRT_IMPLEMENTATION // before other headers
#include "specrt.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>
#include "toy.h"

struct closer {
    void operator()(specrt_head *head) const { specrt_head_close(head); }
    void operator()(specrt_policy *policy) const { specrt_policy_close(policy); }
    void operator()(specrt_session *session) const { specrt_session_close(session); }
};
template <class T> using owned = std::unique_ptr<T, closer>;

// A session, the caches of its models, and the text so far.
struct conversation {
    owned<specrt_session> session;
    toy models{};
    std::vector<int32_t> text;

    conversation(const specrt_policy *policy, specrt_tree_params tree) {
        specrt_session_params params{};
        specrt_session *made;
        specrt_error err;
        params.tree = tree;
        params.n_logits = TOY_VOCAB;
        if (specrt_session_create(policy, &params, nullptr, &made, &err)) toy_fail(err.msg);
        session.reset(made);
    }

    void check(specrt_status status) const { toy_check_session(session.get(), status); }

    // Reads what is new in the text and draws the first token of the answer. The target never read the last
    // token that it emitted, so that token leads the prompt.
    specrt_verdict begin(const specrt_sampling &sampling) {
        const auto kind = models.n ? SPECRT_BEGIN_TURN : SPECRT_BEGIN_NEW;
        const specrt_request request{kind, models.n, TOY_TOKENS, &sampling};
        const int32_t *prompt = text.data() + models.n;
        const int32_t n = static_cast<int32_t>(text.size()) - models.n;
        specrt_target_rows rows{};
        specrt_verdict verdict;
        rows.logits = toy_read(&models, prompt, nullptr, nullptr, n);
        toy_keep(&models, nullptr, n);
        check(specrt_session_begin(session.get(), &request));
        check(specrt_session_prefill(session.get(), prompt, n, &rows));
        check(specrt_session_first(session.get(), rows.logits + (n - 1) * TOY_VOCAB, &verdict));
        return verdict;
    }

    // Drafts level by level, verifies with the target, learns, and keeps the accepted path.
    specrt_verdict cycle() {
        specrt_beam beam;
        specrt_draft draft;
        specrt_target_rows rows{};
        specrt_verdict verdict;
        check(specrt_session_get_beam(session.get(), &beam));
        while (beam.n > 0) {
            const float *hidden = toy_draft(&models, beam.tokens, beam.parents, beam.n);
            check(specrt_session_expand(session.get(), hidden, nullptr, beam.n, &beam));
        }
        check(specrt_session_finish(session.get(), &draft));
        rows.logits = toy_read(&models, draft.tokens, draft.depths, draft.masks, draft.n);
        check(specrt_session_accept(session.get(), &draft, &rows, &verdict));
        toy_keep(&models, verdict.nodes, verdict.n);
        return verdict;
    }

    // Answers what the user wrote in TOY_TOKENS tokens, which must be those of plain decoding.
    void turn(const char *step, const std::vector<int32_t> &user, const specrt_sampling &sampling) {
        specrt_session_stats stats;
        text.insert(text.end(), user.begin(), user.end());
        const size_t n_before = text.size();
        for (specrt_verdict verdict = begin(sampling);; verdict = cycle()) {
            text.insert(text.end(), verdict.tokens, verdict.tokens + verdict.n);
            if (verdict.end != SPECRT_END_NONE) break;
        }
        toy_compare(&sampling, text.data(), static_cast<int32_t>(n_before), &text[n_before]);
        specrt_session_get_stats(session.get(), &stats);
        std::printf("%-14s accept length %.2f\n", step,
                    double(stats.n_emitted) / double(stats.n_cycles));
    }
};

int main() {
    specrt_error err;
    specrt_head *bound;
    specrt_policy *created;
    toy_init();

    // The head stays the application's. A window learns from the target, so no bundle is needed.
    specrt_head_desc rows{};
    rows.rows = toy_rows;
    rows.n_rows = TOY_VOCAB;
    rows.n_cols = TOY_WIDTH; // of f32, which is dtype 0
    specrt_policy_desc window{};
    window.text = "window:512@kpre=8@kver=8@positions=tree@min=512";
    if (specrt_head_bind(nullptr, &rows, nullptr, &bound, &err)) toy_fail(err.msg);
    const owned<specrt_head> head(bound);
    if (specrt_policy_create(nullptr, bound, &window, &created, &err)) toy_fail(err.msg);
    const owned<specrt_policy> policy(created);
    const specrt_sampling greedy{},
        noisy{0.7f, 0, 0, 0, 11, 1, 0}; // temperature, seed, session number

    conversation chain(created, {4, 1, 5}); // 4 passes of 1 token; 5 nodes with the root
    chain.turn("chain", {5, 17, 3}, greedy);
    conversation tree(created, {4, 4, 16}); // 4 passes of up to 4 tokens
    tree.turn("tree", {5, 17, 3}, greedy);
    tree.turn("second turn", {40, 8}, greedy); // the window and the statistics continue
    tree.turn("sampled turn", {7}, noisy);

    size_t size = 0;
    tree.check(specrt_session_save(tree.session.get(), nullptr, 0, &size));
    std::vector<uint8_t> bytes(size);
    tree.check(specrt_session_save(tree.session.get(), bytes.data(), size, &size));
    conversation moved(created, {4, 4, 16});
    moved.check(specrt_session_load(moved.session.get(), bytes.data(), size));
    moved.models = tree.models;
    moved.text = tree.text;
    moved.turn("moved session", {9, 9}, greedy);
    return 0;
}
