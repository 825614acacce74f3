/* pair.h : a toy pair for decoding loops. A hidden state follows from two tokens; the drafter's logits are
 * its products with all rows, the target's are these, disturbed. Includes after specrt.h. */
#ifndef PAIR_H
#define PAIR_H

#include "fixture.h"
#include "test.h"

enum { PAIR_V = 300, PAIR_D = 16 };

typedef struct pair {
    int32_t
        n_last; /* states of the last token: few return to few tokens, so that windows learn something */
    float noise; /* of the target's logits */
} pair;

static float pair_weights[PAIR_V * PAIR_D], pair_bias[PAIR_V];

/* pair_head() : fills weights and bias, always with the same values. */
static inline specrt_head_desc pair_head(void) {
    uint64_t state = 5;
    for (int i = 0; i < PAIR_V * PAIR_D; i++) pair_weights[i] = fixture_normal(&state);
    for (int i = 0; i < PAIR_V; i++) pair_bias[i] = fixture_normal(&state);
    return (specrt_head_desc){.rows = pair_weights,
                              .dtype = SPECRT_DTYPE_F32,
                              .n_rows = PAIR_V,
                              .n_cols = PAIR_D,
                              .bias = pair_bias};
}

/* pair_score() : a row's logit after a state f32 [PAIR_D], by the definition. */
static inline double pair_score(int32_t row, const float *hidden) {
    double sum = (double)pair_bias[row];
    for (int j = 0; j < PAIR_D; j++)
        sum += (double)pair_weights[row * PAIR_D + j] * (double)hidden[j];
    return sum;
}

/* pair_hidden() : the state after two tokens, f32 [PAIR_D]. */
static inline void pair_hidden(const pair *p, int32_t before, int32_t last, float *out) {
    uint64_t state = (uint64_t)(before % 5 * 1000 + last % p->n_last + 1) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < PAIR_D; i++) out[i] = 0.7f * fixture_normal(&state);
}

/* pair_target() : the target's logits there, f32 [PAIR_V]. */
static inline void pair_target(const pair *p, int32_t before, int32_t last, float *logits) {
    uint64_t state = (uint64_t)(before * PAIR_V + last + 1) * 0xD6E8FEB86659FD93u;
    float h[PAIR_D];
    pair_hidden(p, before, last, h);
    for (int i = 0; i < PAIR_V; i++)
        logits[i] = (float)pair_score(i, h) + p->noise * fixture_normal(&state);
}

/* pair_draft() : one tree of a session: the state of a row follows from its last two tokens. */
static inline void pair_draft(const pair *p, specrt_session *s, int32_t before, int32_t root,
                              specrt_draft *draft) {
    int32_t last[SPECRT_TREE_MAX_TOPK] = {root}, previous[SPECRT_TREE_MAX_TOPK] = {before};
    int32_t n = 1, parents_last[SPECRT_TREE_MAX_TOPK];
    float hidden[SPECRT_TREE_MAX_TOPK * PAIR_D];
    specrt_beam beam;
    while (n > 0) {
        for (int32_t i = 0; i < n; i++) pair_hidden(p, previous[i], last[i], hidden + i * PAIR_D);
        REQUIRE(specrt_session_expand(s, hidden, NULL, n, &beam) == SPECRT_STATUS_OK);
        memcpy(parents_last, last, sizeof last);
        n = beam.n;
        for (int32_t i = 0; i < n; i++) {
            previous[i] = parents_last[beam.parents[i]];
            last[i] = beam.tokens[i];
        }
    }
    specrt_session_finish(s, draft);
}

/* pair_verify() : a draft verified by the target. logits: [SPECRT_TREE_MAX_NODES, PAIR_V], to fill. */
static inline void pair_verify(const pair *p, specrt_session *s, int32_t before,
                               const specrt_draft *draft, float *logits, specrt_verdict *out) {
    for (int32_t i = 0; i < draft->n; i++)
        pair_target(p, i == 0 ? before : draft->tokens[draft->parents[i]], draft->tokens[i],
                    logits + i * PAIR_V);
    REQUIRE(specrt_session_verify(s, draft, logits, out) == SPECRT_STATUS_OK);
}

#endif
