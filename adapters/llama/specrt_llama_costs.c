/* specrt_llama_costs.c : measures passes at the start, and chooses a policy by them. */
#include "specrt_llama_costs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_SECONDS 1.2 /* no round begins later */
#define MOST_SECONDS   2.0 /* no size of the first round follows */
#define DISTURBED      1.5 /* times what a pass can take: the machine did something else */

enum {
    N_ROUNDS = 5,
    MOST_ROUNDS = 20,
    HEAD_ROUNDS = 3,
    WINDOW_TOKENS = 256,
    CACHE_BYTES = 16 << 20
};

double specrt_llama_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double specrt_llama_curve_at(const specrt_llama_curve *c, int32_t size) {
    int32_t i = 1;
    if (c->n == 0) return 0;
    if (c->n == 1) return c->seconds[0] * size / c->sizes[0];
    if (size <= c->sizes[0]) return c->seconds[0];
    while (i < c->n - 1 && c->sizes[i] < size) i++;
    double slope = (c->seconds[i] - c->seconds[i - 1]) / (double)(c->sizes[i] - c->sizes[i - 1]);
    if (slope < 0) slope = 0; /* noise: a larger pass is never faster */
    return c->seconds[i - 1] + slope * (double)(size - c->sizes[i - 1]);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Sizes below `most`, and that. */
static void add_sizes(specrt_llama_curve *c, int32_t most) {
    static const int32_t sizes[SPECRT_LLAMA_SIZES] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    for (c->n = 0; c->n < SPECRT_LLAMA_SIZES - 1 && sizes[c->n] < most; c->n++)
        c->sizes[c->n] = sizes[c->n];
    c->sizes[c->n++] = most < sizes[SPECRT_LLAMA_SIZES - 1] ? most : sizes[SPECRT_LLAMA_SIZES - 1];
}

/* One pass of each size. The first round may end early; then the curve has fewer sizes. */
static int time_curve(void *user, int (*pass)(void *, int32_t, double *), specrt_llama_curve *c,
                      bool first, double began) {
    for (int32_t i = 0; i < c->n; i++) {
        double seconds;
        if (first && i > 1 && specrt_llama_seconds() - began > MOST_SECONDS) c->n = i;
        if (i == c->n) return 0;
        int code = pass(user, c->sizes[i], &seconds);
        if (code != 0) return code;
        if (first || seconds < c->seconds[i]) c->seconds[i] = seconds;
    }
    return 0;
}

/* A pass takes no longer than a larger one, and no longer than passes of fewer tokens that do its work.
 * @return whether one did, by more than noise */
static bool mend(specrt_llama_curve *c) {
    bool disturbed = false;
    for (int32_t i = c->n - 2; i >= 0; i--)
        if (c->seconds[i] > DISTURBED * c->seconds[i + 1])
            c->seconds[i] = c->seconds[i + 1], disturbed = true;
    for (int32_t i = 1; i < c->n; i++) {
        double most = c->seconds[i - 1] * c->sizes[i] / c->sizes[i - 1];
        if (c->seconds[i] > DISTURBED * most) c->seconds[i] = most, disturbed = true;
    }
    return disturbed;
}

static bool is_disturbed(specrt_llama_curve target, specrt_llama_curve draft) {
    return mend(&target) | mend(&draft);
}

int specrt_llama_costs_measure(const specrt_llama_meter *m, int32_t most, specrt_llama_costs *out) {
    double began = specrt_llama_seconds(), unused;
    int code = m->target(m->user, 1, &unused); /* reads the weights from disk, if need be */
    if (code == 0) code = m->draft(m->user, 1, &unused);
    add_sizes(&out->target, most);
    out->draft = (specrt_llama_curve){.n = 2, .sizes = {1, 8}};
    for (int round = 0; round < MOST_ROUNDS && code == 0; round++) {
        if (round > 0 && specrt_llama_seconds() - began > ROUNDS_SECONDS) break;
        if (round >= N_ROUNDS && !is_disturbed(out->target, out->draft)) break;
        code = time_curve(m->user, m->draft, &out->draft, round == 0, began);
        if (code == 0) code = time_curve(m->user, m->target, &out->target, round == 0, began);
    }
    out->changed = true;
    out->disturbed = mend(&out->target) | mend(&out->draft);
    return code;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* The models' passes come between products, so rows are not in the processor's cache. */
static void fill_cache(void) {
    static volatile char last;
    char *bytes = (char *)malloc(CACHE_BYTES);
    if (!bytes) return;
    memset(bytes, 1, CACHE_BYTES);
    last = bytes[CACHE_BYTES - 1];
    (void)last;
    free(bytes);
}

/* A prompt that fills every window: WINDOW_TOKENS tokens, each with SPECRT_LOGITS_MAX_K others. */
static specrt_status read_prompt(specrt_session *s, int32_t n_vocab) {
    static const int32_t k = SPECRT_LOGITS_MAX_K;
    int32_t tokens[WINDOW_TOKENS], best[WINDOW_TOKENS * SPECRT_LOGITS_MAX_K];
    for (int32_t i = 0; i < WINDOW_TOKENS * k; i++) best[i] = (int32_t)(i * 31LL % n_vocab);
    for (int32_t i = 0; i < WINDOW_TOKENS; i++) tokens[i] = best[i * k];
    const specrt_target_rows rows = {.ids = best, .k = k};
    specrt_status status = specrt_session_begin(s, NULL);
    if (status == SPECRT_STATUS_OK)
        status = specrt_session_prefill(s, tokens, WINDOW_TOKENS, &rows);
    return status == SPECRT_STATUS_OK ? specrt_session_start(s, tokens[0]) : status;
}

/* All levels of a draft. @return seconds a level; 0: an error */
static double time_levels(specrt_session *s, const float *hidden, int32_t num_steps) {
    specrt_beam beam;
    double sum = 0;
    int32_t n = 0;
    if (specrt_session_get_beam(s, &beam) != SPECRT_STATUS_OK) return 0;
    for (; n < num_steps && beam.n > 0; n++) {
        fill_cache();
        double began = specrt_llama_seconds();
        if (specrt_session_expand(s, hidden, hidden, beam.n, &beam) != SPECRT_STATUS_OK) return 0;
        sum += specrt_llama_seconds() - began;
    }
    return n > 0 ? sum / n : 0;
}

static double time_session(specrt_session *s, const specrt_llama_drafts *d) {
    size_t n = SPECRT_TREE_MAX_TOPK * (size_t)d->n_cols;
    double least = 0;
    float *hidden = (float *)malloc(n * sizeof *hidden);
    for (size_t i = 0; hidden && i < n; i++) hidden[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    for (int round = 0; hidden && round < HEAD_ROUNDS; round++) {
        double seconds = 0;
        if (read_prompt(s, d->policy.n_vocab) == SPECRT_STATUS_OK)
            seconds = time_levels(s, hidden, d->params.tree.num_steps);
        if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
    }
    free(hidden);
    return least;
}

static double time_head(const specrt_llama_drafts *d, const char *text) {
    specrt_policy_desc desc = d->policy;
    specrt_session_params params = d->params;
    specrt_policy *policy = NULL;
    specrt_session *session = NULL;
    specrt_error err;
    double seconds = 0;
    desc.text = text;
    params.auto_draft = NULL;
    if (specrt_policy_create(d->bundle, d->head, &desc, &policy, &err) == SPECRT_STATUS_OK &&
        specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK)
        seconds = time_session(session, d);
    specrt_session_close(session);
    specrt_policy_close(policy);
    return seconds;
}

double specrt_llama_costs_head(specrt_llama_costs *c, const specrt_llama_drafts *d,
                               const char *policy) {
    for (int32_t i = 0; i < c->n_heads; i++)
        if (strcmp(c->heads[i].policy, policy) == 0) return c->heads[i].seconds;
    double seconds = time_head(d, policy);
    size_t n = strlen(policy);
    if (seconds > 0 && n < SPECRT_LLAMA_TEXT && c->n_heads < SPECRT_LLAMA_HEADS) {
        memcpy(c->heads[c->n_heads].policy, policy, n + 1);
        c->heads[c->n_heads++].seconds = seconds;
        c->changed = true;
    }
    return seconds;
}

/* ---- the policy ------------------------------------------------------------------------------ */

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
static double value_of(const specrt_llama_costs *c, const specrt_llama_drafts *d, double head,
                       double share) {
    double best = 0, tokens = 1, reached = 1;
    for (int32_t n = 1; n <= d->params.tree.num_steps; n++) {
        reached *= 0.7;
        tokens += reached;
        double seconds = specrt_llama_curve_at(&c->target, n + 1) +
                         n * (specrt_llama_curve_at(&c->draft, 1) + head);
        if (share * tokens / seconds > best) best = share * tokens / seconds;
    }
    return best;
}

const char *specrt_llama_costs_policy(specrt_llama_costs *c, const specrt_llama_drafts *d) {
    const char *best = "microspec";
    double most = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        double head = specrt_llama_costs_head(c, d, candidates[i].policy);
        double value = head > 0 ? value_of(c, d, head, candidates[i].share) : 0;
        if (value <= most) continue;
        most = value;
        best = candidates[i].policy;
    }
    return best;
}
