/* advise.c : the one verdict on policies. Refuses times that are none. */
#include "specrt_adapt.h"
#include "specrt_tools.h"
#include "adapt/costs.h"
#include "core/base.h"

#include <math.h>

/* Most of an interval's width is how prompts differ, whatever the policy. So a way that is slower by more
 * than this share does not tie with the fastest one, however wide the intervals are. */
#define SPECRT__ADVISE_SLACK 0.05

SPECRT_API specrt_outcome specrt_ratio_outcome(const specrt_ratio *r) {
    if (r && r->low > 1) return SPECRT_OUTCOME_FASTER;
    if (r && r->high < 1) return SPECRT_OUTCOME_SLOWER;
    return SPECRT_OUTCOME_TIE;
}

SPECRT_API const char *specrt_outcome_name(specrt_outcome outcome) {
    if (outcome == SPECRT_OUTCOME_FASTER) return "faster";
    return outcome == SPECRT_OUTCOME_SLOWER ? "slower" : "a tie";
}

/* --- the choice --- */

/* The error of a difference is the root of the squares of both errors. An unknown one is no reason to tell
 * two ways apart. */
static int specrt__advise_ties(const specrt_ratio *r, const specrt_ratio *fastest) {
    double apart = fastest->value - r->value;
    if (apart > SPECRT__ADVISE_SLACK * fastest->value) return 0;
    return !(apart > hypot(r->high - r->value, fastest->value - fastest->low));
}

static int specrt__advise_prefers(const specrt_way *way, const specrt_way *chosen) {
    if (way->bytes != chosen->bytes) return way->bytes < chosen->bytes;
    return way->ratio.value > chosen->ratio.value;
}

static specrt_status specrt__advise_check(const specrt_way *ways, int32_t n,
                                          const specrt_plain *plain, specrt_error *err) {
    if (n < 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: n: expected at least one way, found %d", (int)n);
    if (!(plain->prompt_seconds >= 0 && plain->token_seconds > 0 && plain->answer_tokens > 0))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: plain: expected times and lengths above 0, found %g s for "
                                "a prompt, %g s for a token, %g tokens",
                                plain->prompt_seconds, plain->token_seconds, plain->answer_tokens);
    if (plain->answer_tokens < 2)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: plain: expected answers of 2 tokens or more, found %g; no "
                                "draft is made before the first token",
                                plain->answer_tokens);
    for (int32_t i = 0; i < n; i++)
        if (!(ways[i].ratio.value > 0 && ways[i].prompt_seconds >= 0 && ways[i].token_seconds > 0 &&
              ways[i].accept_length > 0))
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG,
                "advise: %s: expected a ratio, an accept length and times above "
                "0, found %g, %g, %g s and %g s",
                ways[i].name ? ways[i].name : "?", ways[i].ratio.value, ways[i].accept_length,
                ways[i].prompt_seconds, ways[i].token_seconds);
    return SPECRT_STATUS_OK;
}

/* What would reach plain decoding's time: a longer answer, over which the prompt's extra time is regained;
 * or a greater accept length, where a cycle takes as long. */
static void specrt__advise_reach(const specrt_way *way, const specrt_plain *plain,
                                 specrt_advice *out) {
    double extra = way->prompt_seconds - plain->prompt_seconds;
    double gain = plain->token_seconds - way->token_seconds;
    double left = plain->token_seconds * plain->answer_tokens - extra;
    if (extra <= gain * plain->answer_tokens) return;
    out->answer_tokens = gain > 0 ? extra / gain : INFINITY;
    out->accept_length = INFINITY;
    if (left > 0)
        out->accept_length = way->accept_length * way->token_seconds * plain->answer_tokens / left;
}

SPECRT_API specrt_status specrt_advise(const specrt_way *ways, int32_t n, const specrt_plain *plain,
                                       uint8_t *ties, specrt_advice *out, specrt_error *err) {
    SPECRT__NEED(ways);
    SPECRT__NEED(plain);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    specrt_status status = specrt__advise_check(ways, n, plain, err);
    if (status != SPECRT_STATUS_OK) return status;
    int32_t fastest = 0;
    for (int32_t i = 1; i < n; i++)
        if (ways[i].ratio.value > ways[fastest].ratio.value) fastest = i;
    out->chosen = fastest;
    out->n_ties = -1;
    for (int32_t i = 0; i < n; i++) {
        int is_tie = specrt__advise_ties(&ways[i].ratio, &ways[fastest].ratio);
        if (ties) ties[i] = (uint8_t)is_tie;
        out->n_ties += is_tie;
        if (is_tie && specrt__advise_prefers(&ways[i], &ways[out->chosen])) out->chosen = i;
    }
    out->outcome = specrt_ratio_outcome(&ways[out->chosen].ratio);
    specrt__advise_reach(&ways[out->chosen], plain, out);
    return SPECRT_STATUS_OK;
}

/* --- in words --- */

typedef struct specrt__advise_line {
    char *at;
    size_t left;
} specrt__advise_line;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
specrt__advise_put(specrt__advise_line *line, const char *format, ...) {
    va_list args;
    if (line->left == 0) return;
    va_start(args, format);
    int n = vsnprintf(line->at, line->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < line->left ? (size_t)n : line->left - 1;
    line->at += used;
    line->left -= used;
}

/* Why a draft is not faster, in the terms that can be changed. */
static void specrt__advise_put_reason(specrt__advise_line *line, const specrt_way *way,
                                      const specrt_plain *plain, const specrt_advice *a) {
    double cycle = way->accept_length * way->token_seconds / plain->token_seconds;
    specrt__advise_put(line, " A cycle takes %.2f plain passes and gives %.2f tokens", cycle,
                       way->accept_length);
    if (way->prompt_seconds > 1.01 * plain->prompt_seconds)
        specrt__advise_put(line, "; its prompts take %.2f times plain decoding's",
                           way->prompt_seconds / plain->prompt_seconds);
    specrt__advise_put(line, ".");
    int longer = a->answer_tokens > 0 && a->answer_tokens < 1e6;
    int better = a->accept_length > 0 && a->accept_length < 1e3;
    if (longer || better) specrt__advise_put(line, " It breaks even at");
    if (longer) specrt__advise_put(line, " answers of %.0f tokens", ceil(a->answer_tokens));
    if (longer && better) specrt__advise_put(line, ", or");
    if (better)
        specrt__advise_put(line, " an accept length of %.2f", ceil(100 * a->accept_length) / 100);
    if (longer || better) specrt__advise_put(line, ".");
}

SPECRT_API void specrt_advice_text(const specrt_way *ways, const specrt_plain *plain,
                                   const specrt_advice *a, char *out, size_t size) {
    static const char *const verdicts[] = {
        "Decode plainly: %s is slower, %.2f times plain decoding's speed",
        "Draft with %s or decode plainly: they are as fast within the error, a ratio of %.2f",
        "Draft with %s: it is faster, %.2f times plain decoding's speed",
        "Draft with %s or decode plainly: these requests are too few to tell, a ratio of %.2f"};
    specrt__advise_line line = {out, size};
    if (out && size) *out = 0;
    if (!ways || !plain || !a || !out) return;
    const specrt_way *way = &ways[a->chosen];
    const specrt_ratio *r = &way->ratio;
    int known = r->low == r->low;
    specrt__advise_put(&line, verdicts[known ? a->outcome + 1 : 3], way->name, r->value);
    if (known) specrt__advise_put(&line, " (95%%: %.2f to %.2f)", r->low, r->high);
    if (way->task) specrt__advise_put(&line, " in its worst task (%s),", way->task);
    if (plain->prompt_tokens > 0)
        specrt__advise_put(&line, " over whole requests (prompt %.0f, answer %.0f tokens)",
                           plain->prompt_tokens, plain->answer_tokens);
    else
        specrt__advise_put(&line, " over answers of %.0f tokens without their prompts",
                           plain->answer_tokens);
    specrt__advise_put(&line, ".");
    if (a->outcome != SPECRT_OUTCOME_FASTER) specrt__advise_put_reason(&line, way, plain, a);
    if (!known)
        specrt__advise_put(&line, " Give %d or more.", (int)SPECRT_ADVISE_REQUESTS);
    else if (a->outcome == SPECRT_OUTCOME_TIE)
        specrt__advise_put(&line, " More prompts narrow the interval.");
}

/* --- untried --- */

#define SPECRT__ADVISE_SMALL 0.02 /* of a cycle: lists gain nothing */

/* A cycle of three drafts, where a level is scored in so many seconds. */
static double specrt__advise_cycle(const specrt_costs *c, const specrt_costs_drafts *d,
                                   double scoring) {
    int32_t n = d->params.tree.num_steps;
    if (n < 1 || n > 3) n = 3;
    return specrt_curve_at(&c->target, n + 1) + specrt_costs_draft(c, 1, n, 1) + n * scoring;
}

SPECRT_API const char *specrt_advise_untried(specrt_costs *costs,
                                             const specrt_costs_drafts *drafts) {
    specrt_cograph graph;
    specrt_sketch sketch;
    if (!costs || !drafts) return NULL;
    const specrt_bundle *bundle = drafts->bundle;
    int has_graph = bundle && specrt_bundle_cograph(bundle, &graph, NULL) == SPECRT_STATUS_OK;
    int has_sketch = bundle && specrt_bundle_sketch(bundle, &sketch, NULL) == SPECRT_STATUS_OK;
    const char *policy = specrt_policy_untried(has_graph, has_sketch);
    double all = specrt_costs_head(costs, drafts, "full");
    double list = specrt_costs_head(costs, drafts, policy);
    if (list == 0) list = specrt_costs_head(costs, drafts, policy = specrt_policy_untried(0, 0));
    if (list == 0) return "full";
    double cycle = specrt__advise_cycle(costs, drafts, list);
    int is_small = specrt__advise_cycle(costs, drafts, all) <= (1 + SPECRT__ADVISE_SMALL) * cycle;
    return all > 0 && is_small ? "full" : policy;
}
