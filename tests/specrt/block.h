/* block.h : heads, sessions and selectors of the tests of blocks, and brute force in double over all rows */
#ifndef TESTS_SPECRT_BLOCK_H
#define TESTS_SPECRT_BLOCK_H

#include "specrt_block.h"
#include "specrt_tools.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

enum { V = 205, D = 32, RANK = 8, W1_ROWS = 230, N = 6, TOPK = 8, SIZE = 24 };

static uint64_t state = 3;
static float weights[V * D], bias[V], w1[W1_ROWS * RANK], w2[V * RANK];
static int32_t ids[V]; /* of a head that has some */
static specrt_bundle *bundle;
static uint8_t *bytes;

static inline void fill(float *x, int n, float scale) {
    for (int i = 0; i < n; i++) x[i] = scale * fixture_normal(&state);
}

/* A head's kinds: which of its parts it has. */
enum { PLAIN, MARKOV = 1, BIASED = 2, SHAPED = 4, OF_IDS = 8 };

typedef struct world {
    int kind;
    specrt_head_desc desc;
    specrt_markov_desc markov;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *s;
} world;

static inline void fill_all(void) {
    size_t n;
    if (bundle) return;
    fill(weights, V * D, 0.5f);
    fill(bias, V, 1);
    fill(w1, W1_ROWS * RANK, 1);
    fill(w2, V * RANK, 1);
    for (int i = 0; i < V; i++) ids[i] = i + i / 9; /* distinct, with gaps, below W1_ROWS */
    bytes = fixture_all_sections(V, D, D, &n);
    bundle = open_memory(bytes, n);
}

static inline void world_head(world *w, int kind) {
    fill_all();
    *w = (world){.kind = kind};
    w->desc = f32_rows(weights, V, D);
    w->markov.from = f32_rows(w1, W1_ROWS, RANK);
    w->markov.to = f32_rows(w2, V, RANK);
    if (kind & MARKOV) w->desc.markov = &w->markov;
    if (kind & BIASED) w->desc.bias = bias;
    if (kind & SHAPED) w->desc.logit_scale = 0.8f, w->desc.softcap = 5;
    if (kind & OF_IDS) w->desc.ids = ids;
    w->head = bind_head(NULL, &w->desc);
}

static inline void world_session(world *w, const char *policy, specrt_session_params params,
                                 const specrt_env *env) {
    static const int32_t frequent[] = {3, 10, 17, 24, 31, 38, 45, 52, 59, 66, 73, 80, 87, 94};
    const specrt_head_desc embedding = f32_rows(weights, V, D);
    specrt_policy_desc desc = {.text = policy, .embedding = &embedding};
    if (w->kind & OF_IDS && strcmp(policy, "full") != 0) desc.ids = frequent, desc.n_ids = 14;
    w->policy = create_policy(w->kind & OF_IDS ? NULL : bundle, w->head, &desc);
    if (params.n_logits == 0) params.n_logits = W1_ROWS;
    w->s = create_session(w->policy, &params, env);
}

static const specrt_session_params chain = {.tree = {N, 1, N + 1}, .n_block = N};

static inline void world_open(world *w, int kind, const char *policy,
                              specrt_session_params params) {
    world_head(w, kind);
    world_session(w, policy, params, NULL);
}

static inline void world_close(world *w) {
    close_all(w->s, w->policy, w->head);
}

/* --- the oracle: all rows in double --- */

/* The logit of a token's row; -inf: it has none. */
static inline double logit_of(const world *w, int32_t id, const float *hidden, int32_t previous) {
    int32_t row = id;
    if (w->kind & OF_IDS)
        for (row = 0; row < V && ids[row] != id;) row++;
    if (row >= V) return -INFINITY;
    double x = w->kind & BIASED ? (double)bias[row] : 0;
    for (int j = 0; j < D; j++) x += (double)weights[row * D + j] * (double)hidden[j];
    if (w->kind & SHAPED) x = 5 * tanh(0.8f * x / 5);
    for (int j = 0; w->kind & MARKOV && previous >= 0 && j < RANK; j++)
        x += (double)w2[row * RANK + j] * (double)w1[previous * RANK + j];
    return x;
}

/* Logs of probabilities over the members, [W1_ROWS]; -inf elsewhere. */
static inline void logprobs_of(const world *w, const bool *members, const float *hidden,
                               int32_t previous, double temperature, double *out) {
    double most = -INFINITY, sum = 0;
    for (int32_t id = 0; id < W1_ROWS; id++) {
        out[id] = members[id] ? logit_of(w, id, hidden, previous) / temperature : -INFINITY;
        if (out[id] > most) most = out[id];
    }
    for (int32_t id = 0; id < W1_ROWS; id++) sum += exp(out[id] - most);
    for (int32_t id = 0; id < W1_ROWS; id++) out[id] -= most + log(sum);
}

static inline int32_t best_of(const double *x, int n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Adds the tokens of a shortlist. @return how many rows have logits. */
static inline int add_members(const specrt_shortlist *shortlist, bool *members) {
    int n = 0;
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t r = 0; r < s->n_rows; r++) {
            bool masked = false;
            for (int32_t k = 0; k < s->n_masked; k++) masked |= s->masked[k] == r;
            if (!masked) members[s->ids[r]] = true, n++;
        }
    }
    return n;
}

static inline void check_draft_block(specrt_session *s, const specrt_block *block,
                                     specrt_draft *draft) {
    specrt_status status = specrt_session_draft_block(s, block, draft);
    if (status != SPECRT_STATUS_OK) fprintf(stderr, "%s\n", specrt_session_last_error(s)->msg);
    REQUIRE(status == SPECRT_STATUS_OK);
}

/* --- a selector --- */

typedef struct selector {
    const world *w;
    const bool *members;
    const float *hidden;
    int n_calls, fail_at, removes;
} selector;

/* What a pair of tokens gains. */
static inline double gain(int32_t previous, int32_t id) {
    return 3 * sin(previous * 7 + id * 13);
}

/* Checks what it is shown: the k best over the rows, best first. */
static inline int judge(void *user, int32_t position, int32_t previous, const int32_t *candidates,
                        int32_t k, float *logits) {
    selector *s = (selector *)user;
    double p[W1_ROWS];
    for (int32_t id = 0; id < W1_ROWS; id++)
        p[id] = s->members[id] ? logit_of(s->w, id, s->hidden + position * D, previous) : -INFINITY;
    for (int32_t i = 0; i < k; i++) {
        CHECK_INT(candidates[i], best_of(p, W1_ROWS));
        CHECK_NEAR((double)logits[i], p[candidates[i]], 1e-4);
        p[candidates[i]] = -INFINITY;
        logits[i] += (float)gain(previous, candidates[i]);
        if (s->removes && candidates[i] % 4) logits[i] = -INFINITY;
    }
    return ++s->n_calls == s->fail_at ? 7 : 0;
}

#endif
