/* costs.h : costs and drafts that are made up, for tests of what reads or measures them. */
#ifndef TESTS_SPECRT_COSTS_H
#define TESTS_SPECRT_COSTS_H

#include "specrt_adapt.h"
#include "opened.h"

enum { COSTS_STEPS = 4, COSTS_V = 4096, COSTS_D = 32 };
static const specrt_tree_params chain = {
    .num_steps = COSTS_STEPS, .topk = 1, .num_draft_tokens = COSTS_STEPS + 1};

/* A pass of n tokens takes 1 + more (n - 1) hundredths of a second; the drafter's first `draft` of one. */
static inline specrt_costs costs_of(double more, double draft) {
    specrt_costs c = {.n_heads = 0};
    for (int32_t n = 1; n <= 16; n *= 2) {
        specrt_curve_add(&c.target, n, 0.01 * (1 + more * (n - 1)));
        specrt_curve_add(&c.draft, n, 0.01 * draft * (1 + 0.1 * (n - 1)));
    }
    return c;
}

static inline void put_head(specrt_costs *c, const char *policy, double seconds) {
    snprintf(c->heads[c->n_heads].policy, SPECRT_COSTS_TEXT, "%s", policy);
    c->heads[c->n_heads++].seconds = seconds;
}

/* Without a bundle. head: receives one, owned by the caller */
static inline specrt_costs_drafts drafts_of(specrt_head **head) {
    static float rows[COSTS_V * COSTS_D];
    uint64_t state = 3;
    for (int i = 0; i < COSTS_V * COSTS_D; i++) rows[i] = fixture_normal(&state);
    *head = bind_rows(NULL, rows, COSTS_V, COSTS_D);
    return (specrt_costs_drafts){.head = *head,
                                 .n_cols = COSTS_D,
                                 .policy = {.n_vocab = COSTS_V},
                                 .params = {.tree = chain, .n_logits = COSTS_V}};
}

#endif
