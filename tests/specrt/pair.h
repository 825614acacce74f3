/* pair.h : a toy pair for decoding loops. A hidden state follows from two tokens; the drafter's logits are
 * its products with all rows, the target's are these, disturbed. Includes after specrt.h. */
#ifndef PAIR_H
#define PAIR_H

#include "fixture.h"

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

#endif
