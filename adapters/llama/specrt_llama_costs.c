/* specrt_llama_costs.c : chooses a policy by costs. */
#include "specrt_llama_costs.h"

/* The share of the full vocabulary's accept length that a policy retains, on prompts that chose nothing
 * (bench/results/held-out.md, Qwen2.5-Coder). */
static const struct candidate {
    const char *policy;
    double share;
} candidates[] = {
    {"full", 1.000},
    {"hybrid", 0.995},
    {"static:2048+window+successor:256", 0.942},
    {"window+successor:256", 0.918},
    {"microspec", 0.930},
};

/* The most tokens by time of chains of any length, where the whole vocabulary has 70% of the tokens. */
static double value_of(const specrt_costs *c, const specrt_costs_drafts *d, double head,
                       double share) {
    double best = 0, tokens = 1, reached = 1;
    for (int32_t n = 1; n <= d->params.tree.num_steps; n++) {
        reached *= 0.7;
        tokens += reached;
        double seconds =
            specrt_curve_at(&c->target, n + 1) + n * (specrt_curve_at(&c->draft, 1) + head);
        if (share * tokens / seconds > best) best = share * tokens / seconds;
    }
    return best;
}

const char *specrt_llama_costs_policy(specrt_costs *c, const specrt_costs_drafts *d) {
    const char *best = "microspec";
    double most = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        double head = specrt_costs_head(c, d, candidates[i].policy);
        double value = head > 0 ? value_of(c, d, head, candidates[i].share) : 0;
        if (value <= most) continue;
        most = value;
        best = candidates[i].policy;
    }
    return best;
}
