/* costs.c : what passes take on this machine: curves by size, and what scoring by a policy takes. */
#include "specrt_adapt.h"
#include "specrt_block.h"
#include "adapt/costs.h"
#include "core/base.h"
#include "core/os.h"

enum { SPECRT__COSTS_HEAD_ROUNDS = 3, SPECRT__COSTS_WINDOW_TOKENS = 256 };
#define SPECRT__COSTS_CACHE_BYTES ((size_t)16 << 20)

/* --- curves --- */

static void specrt__curve_put(specrt_curve *c, int32_t i, int32_t size, double seconds, double low,
                              double high) {
    c->sizes[i] = size;
    c->seconds[i] = seconds;
    c->low[i] = low;
    c->high[i] = high;
}

SPECRT_API int32_t specrt_curve_add(specrt_curve *c, int32_t size, double seconds) {
    int32_t i;
    if (!c || c->n == SPECRT_CURVE_MAX_SIZES) return -1;
    for (i = c->n++; i > 0 && c->sizes[i - 1] > size; i--)
        specrt__curve_put(c, i, c->sizes[i - 1], c->seconds[i - 1], c->low[i - 1], c->high[i - 1]);
    specrt__curve_put(c, i, size, seconds, seconds, seconds);
    return i;
}

static void specrt__curve_pool(double *y, int32_t n_sizes) {
    double level[SPECRT_CURVE_MAX_SIZES];
    int32_t size[SPECRT_CURVE_MAX_SIZES], n = 0, at = 0;
    for (int32_t i = 0; i < n_sizes; i++) {
        level[n] = y[i];
        size[n++] = 1;
        for (; n > 1 && level[n - 2] > level[n - 1]; n--) {
            int32_t both = size[n - 2] + size[n - 1];
            level[n - 2] = (level[n - 2] * size[n - 2] + level[n - 1] * size[n - 1]) / both;
            size[n - 2] = both;
        }
    }
    for (int32_t b = 0; b < n; b++)
        for (int32_t k = 0; k < size[b]; k++) y[at++] = level[b];
}

SPECRT_API void specrt_curve_make_monotone(specrt_curve *c) {
    if (!c) return;
    specrt__curve_pool(c->seconds, c->n);
    specrt__curve_pool(c->low, c->n);
    specrt__curve_pool(c->high, c->n);
    for (int32_t i = 0; i < c->n; i++) { /* rounding moves them apart */
        if (c->low[i] > c->seconds[i]) c->low[i] = c->seconds[i];
        if (c->high[i] < c->seconds[i]) c->high[i] = c->seconds[i];
    }
}

SPECRT_API double specrt_curve_at(const specrt_curve *c, double size) {
    int32_t i = 1;
    if (!c || c->n == 0) return 0;
    double least = 0.1 * c->seconds[0], seconds;
    if (c->n == 1) {
        seconds = c->seconds[0] * size / c->sizes[0];
    } else {
        while (i + 1 < c->n && c->sizes[i] < size) i++;
        double slope = (c->seconds[i] - c->seconds[i - 1]) / (c->sizes[i] - c->sizes[i - 1]);
        seconds = c->seconds[i] + slope * (size - c->sizes[i]);
    }
    return seconds > least ? seconds : least;
}

SPECRT_API int32_t specrt_costs_width(int32_t i) {
    return i <= 0 ? 1 : i == 1 ? 4 : 10;
}

SPECRT_API const specrt_curve *specrt_costs_next(const specrt_costs *c, int32_t n) {
    int32_t i = 0;
    while (i + 1 < SPECRT_COSTS_WIDTHS && specrt_costs_width(i) < n) i++;
    return c ? &c->head_next[i] : NULL;
}

SPECRT_API int32_t specrt_costs_nodes(const specrt_tree_params *tree, int32_t n) {
    if (!tree) return 0;
    int32_t all = tree->topk + (n - 1) * tree->topk * tree->topk + 1;
    if (tree->topk == 1) return n + 1;
    return all < tree->num_draft_tokens ? all : tree->num_draft_tokens;
}

SPECRT_API double specrt_costs_read_token(const specrt_costs *c) {
    if (!c) return 0;
    int32_t n = c->n_block > 0 ? c->n_block : 1;
    double more =
        specrt_curve_at(&c->draft, n + SPECRT__COSTS_READ) - specrt_curve_at(&c->draft, n);
    return more > 0 ? more / (int)SPECRT__COSTS_READ : 0;
}

SPECRT_API double specrt_costs_draft(const specrt_costs *c, double n_read, int32_t n,
                                     int32_t width) {
    if (!c) return 0;
    if (c->n_block > 0)
        return specrt_curve_at(&c->draft, n) + (n_read - 1) * specrt_costs_read_token(c);
    return specrt_curve_at(&c->draft, n_read) + (n - 1) * specrt_curve_at(&c->draft, width);
}

/* In the order of passes and their times. */
SPECRT__INTERNAL specrt_curve *specrt__costs_curve(specrt_costs *c, int32_t i, const char **name) {
    static const char *const names[] = {"target",  "draft",  "first",        "next 1",    "next 4",
                                        "next 10", "prompt", "draft_prompt", "prompt_all"};
    specrt_curve *const curves[] = {&c->target,       &c->draft,        &c->head_first,
                                    &c->head_next[0], &c->head_next[1], &c->head_next[2],
                                    &c->prompt,       &c->draft_prompt, &c->prompt_all};
    if (i >= SPECRT__COSTS_CURVES) return NULL;
    *name = names[i];
    return curves[i];
}

/* --- the head --- */

/* The models' passes come between products, so rows are not in the processor's cache. */
static void specrt__costs_fill_cache(void) {
    char *bytes = (char *)malloc(SPECRT__COSTS_CACHE_BYTES);
    if (!bytes) return;
    memset(bytes, 1, SPECRT__COSTS_CACHE_BYTES);
    (void)*(volatile char *)bytes; /* so that no compiler leaves it out */
    free(bytes);
}

/* A prompt that fills every window: SPECRT__COSTS_WINDOW_TOKENS tokens, each with other ones. */
static specrt_status specrt__costs_read_prompt(specrt_session *s, int32_t n_vocab) {
    static const int32_t k = SPECRT_LOGITS_MAX_K;
    int32_t tokens[SPECRT__COSTS_WINDOW_TOKENS],
        best[SPECRT__COSTS_WINDOW_TOKENS * SPECRT_LOGITS_MAX_K];
    for (int32_t i = 0; i < SPECRT__COSTS_WINDOW_TOKENS * k; i++)
        best[i] = (int32_t)(i * 31LL % n_vocab);
    for (int32_t i = 0; i < SPECRT__COSTS_WINDOW_TOKENS; i++) tokens[i] = best[i * k];
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.ids = best;
    rows.k = k;
    specrt_status status = specrt_session_begin(s, NULL);
    if (status == SPECRT_STATUS_OK)
        status = specrt_session_prefill(s, tokens, SPECRT__COSTS_WINDOW_TOKENS, &rows);
    return status == SPECRT_STATUS_OK ? specrt_session_start(s, tokens[0]) : status;
}

/* All levels of a draft. @return seconds a level; 0: an error */
static double specrt__costs_time_levels(specrt_session *s, const float *hidden, int32_t num_steps) {
    specrt_beam beam;
    double sum = 0;
    int32_t n = 0;
    if (specrt_session_get_beam(s, &beam) != SPECRT_STATUS_OK) return 0;
    for (; n < num_steps && beam.n > 0; n++) {
        specrt__costs_fill_cache();
        double began = specrt__os_seconds();
        if (specrt_session_expand(s, hidden, hidden, beam.n, &beam) != SPECRT_STATUS_OK) return 0;
        sum += specrt__os_seconds() - began;
    }
    return n > 0 ? sum / n : 0;
}

/* A whole block. @return seconds a position; 0: an error */
static double specrt__costs_time_block(specrt_session *s, const float *hidden, int32_t n) {
    specrt_block block;
    specrt_draft draft;
    SPECRT__CLEAR(&block, 1);
    block.n = n;
    block.hidden = block.input = hidden;
    specrt__costs_fill_cache();
    double began = specrt__os_seconds();
    if (specrt_session_draft_block(s, &block, &draft) != SPECRT_STATUS_OK) return 0;
    return (specrt__os_seconds() - began) / n;
}

static double specrt__costs_time_session(specrt_session *s, const specrt_costs_drafts *d) {
    const int32_t n_block = d->params.n_block;
    size_t n = SPECRT_TREE_MAX_TOPK * (size_t)d->n_cols;
    double least = 0;
    float *hidden = (float *)malloc(n * sizeof *hidden);
    for (size_t i = 0; hidden && i < n; i++) hidden[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    for (int round = 0; hidden && round < SPECRT__COSTS_HEAD_ROUNDS; round++) {
        double seconds = 0;
        if (specrt__costs_read_prompt(s, d->policy.n_vocab) == SPECRT_STATUS_OK)
            seconds = n_block > 0 ? specrt__costs_time_block(s, hidden, n_block)
                                  : specrt__costs_time_levels(s, hidden, d->params.tree.num_steps);
        if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
    }
    free(hidden);
    return least;
}

static double specrt__costs_time_head(const specrt_costs_drafts *d, const char *text) {
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
        seconds = specrt__costs_time_session(session, d);
    specrt_session_close(session);
    specrt_policy_close(policy);
    return seconds;
}

SPECRT_API double specrt_costs_head(specrt_costs *c, const specrt_costs_drafts *d,
                                    const char *policy) {
    if (!c || !d || !policy) return 0;
    for (int32_t i = 0; i < c->n_heads; i++)
        if (strcmp(c->heads[i].policy, policy) == 0) return c->heads[i].seconds;
    double seconds = specrt__costs_time_head(d, policy);
    size_t n = strlen(policy);
    if (seconds > 0 && n < SPECRT_COSTS_TEXT && c->n_heads < SPECRT_COSTS_MAX_HEADS) {
        memcpy(c->heads[c->n_heads].policy, policy, n + 1);
        c->heads[c->n_heads++].seconds = seconds;
        c->changed = 1;
    }
    return seconds;
}
