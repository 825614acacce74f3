/* auto.c : owns counters of what was accepted and covered, the account of the guard, and what cycles cost.
 * Refuses tables that are no costs.
 *
 * Fixed point. A number x is kept as the whole number 65,536 x, and SPECRT__AUTO_ONE is 1: probabilities,
 * tokens, counters, costs in plain passes of the target, and rates in tokens by plain pass.
 *
 *     a b    a * b >> 16          a / b    a * SPECRT__AUTO_ONE / b
 *
 * Whole numbers give the same choices on every machine. Floats would not: a compiler may fuse a product
 * with a sum, and a choice between near equals would turn. (One comparison of doubles, in _pays(), has no
 * sum.) An observation adds its weight of at most 1 to a counter, which loses 1/64 of itself for each whole
 * one. So counters stay within 64, and half of a full one is of the last 44 observations. Of n seen with h
 * hits the rate is (h + w p) / (n + w): p is what is supposed, as if it had been seen w times.
 *
 * Nothing overflows 63 bits in texts of fewer than 2^26 tokens. A cost is at most a million passes (2^36
 * here) and at least 1 here, so a rate of at most 33 tokens by cost is below 2^38. The greatest product is
 * that of a prompt and what reading a token of it costs, 2^24 2^36. _gains() multiplies a rate by a cost
 * only where the cost is below 32 tokens, 2^21 here. */
#include "specrt_block.h"
#include "adapt/auto.h"
#include "core/base.h"

#define SPECRT__AUTO_EXCESS 655 /* a cycle may cost 1% more than plain decoding */
#define SPECRT__AUTO_SAVED  (8 * SPECRT__AUTO_ONE) /* passes kept of what was gained */
#define SPECRT__AUTO_MARGIN 2048 /* by which drafts must beat plain decoding: 1 / 32, where told */
#define SPECRT__AUTO_LEAST  8    /* plain cycles between probes */
#define SPECRT__AUTO_MOST   512

static int64_t specrt__auto_rate_by(const specrt__auto_tally *t, int64_t supposed, int64_t weight) {
    weight *= SPECRT__AUTO_ONE;
    return (t->hits * (int64_t)SPECRT__AUTO_ONE + weight * supposed) / (t->seen + weight);
}

static int64_t specrt__auto_rate(const specrt__auto_tally *t, int64_t supposed) {
    return specrt__auto_rate_by(t, supposed, SPECRT__AUTO_WEIGHT);
}

/* Of a token that the list holds, accepted at a level (0: the first); deeper ones like those before them
 * until seen otherwise. */
static int64_t specrt__auto_next(const specrt_auto *a, int32_t level, int64_t before) {
    return specrt__auto_rate(&a->levels[level], level == 0 ? SPECRT__AUTO_FIRST : before);
}

/* --- the choice --- */

static int64_t specrt__auto_cost(const specrt_auto *a, int32_t list, int32_t n_steps) {
    return a->costs[list][n_steps] + (n_steps > 0 ? (a->n_unread - 1) * a->read : 0);
}

/* What the pass of a block has cost beyond the block of n_steps positions that costs know. */
static int64_t specrt__auto_spent(const specrt_auto *a, int32_t n_steps) {
    const int64_t *sunk = a->sunk[a->choice.list];
    if (a->n_block <= n_steps) return 0;
    return sunk[a->n_block] - sunk[n_steps] + (n_steps == 0 ? (a->n_unread - 1) * a->read : 0);
}

/* Reading the prompt, once, before the first draft. */
static int64_t specrt__auto_prompt(const specrt_auto *a) {
    return a->n_prompt * a->read;
}

/* Tokens by cost of drafts of 1, 2, ... levels from a list, as long as acceptance stays as it was lately. */
static void specrt__auto_rates(const specrt_auto *a, int32_t list,
                               int64_t rates[SPECRT_TREE_MAX_STEPS + 1]) {
    int64_t cover = specrt__auto_rate(&a->covers[list], SPECRT__AUTO_COVER);
    int64_t reached = SPECRT__AUTO_ONE, tokens = SPECRT__AUTO_ONE, next = 0;
    if (a->n_lists == 1) cover = SPECRT__AUTO_ONE; /* then levels count all */
    for (int32_t n = 1; n <= a->num_steps; n++) {
        next = specrt__auto_next(a, n - 1, next);
        reached = reached * (next * cover >> 16) >> 16;
        tokens += reached;
        rates[n] = tokens * SPECRT__AUTO_ONE / a->costs[list][n];
    }
}

/* The list and depth that emit most by cost. */
static void specrt__auto_best(specrt_auto *a) {
    int64_t rates[SPECRT_TREE_MAX_STEPS + 1];
    a->rate = 0;
    for (int32_t list = 0; list < a->n_lists; list++) {
        specrt__auto_rates(a, list, rates);
        for (int32_t n = 1; n <= a->num_steps; n++) {
            if (rates[n] <= a->rate) continue;
            a->rate = rates[n];
            a->choice.list = list;
            a->choice.num_steps = n;
        }
    }
}

/* A draft of which nothing is accepted must leave the account above 0; none that pays less than plain
 * decoding is taken for one that does. */
static int32_t specrt__auto_afford(const specrt_auto *a, int32_t n_steps, bool pays) {
    int64_t most = a->balance + SPECRT__AUTO_ONE + SPECRT__AUTO_EXCESS;
    int64_t rates[SPECRT_TREE_MAX_STEPS + 1];
    if (!pays) most -= specrt__auto_prompt(a);
    if (n_steps == 0 || specrt__auto_cost(a, a->choice.list, n_steps) <= most) return n_steps;
    specrt__auto_rates(a, a->choice.list, rates);
    for (n_steps--; n_steps > 0; n_steps--)
        if (specrt__auto_cost(a, a->choice.list, n_steps) <= most &&
            (!pays || rates[n_steps] > SPECRT__AUTO_ONE))
            return n_steps;
    return 0;
}

/* Tokens that the answer may have after those emitted while the prompt is unread: at most four times as many,
 * as most answers end long before their limit, and as rates are those of earlier texts at first. */
static int64_t specrt__auto_ahead(const specrt_auto *a) {
    int64_t most = 4 * (int64_t)(a->n_unread - 1);
    return a->n_left < most ? a->n_left : most;
}

/* What the drafter must read first is to pay within 64 passes, and the prompt within the answer: at a rate r,
 * n tokens save n (1 - 1 / r) passes. Where plain cycles tell when to begin again, a doubt is no reason to
 * draft. */
static bool specrt__auto_pays(const specrt_auto *a) {
    int64_t least = SPECRT__AUTO_ONE + ((a->n_unread - 1) * a->read >> SPECRT__AUTO_FORGET);
    int64_t prompt = specrt__auto_prompt(a);
    if (a->told) least += SPECRT__AUTO_MARGIN;
    if (a->rate <= least) return false;
    return prompt == 0 || (double)specrt__auto_ahead(a) * (double)(a->rate - SPECRT__AUTO_ONE) >
                              (double)prompt * (double)a->rate / SPECRT__AUTO_ONE;
}

SPECRT_API void specrt_auto_choose(specrt_auto *a, specrt_auto_choice *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!a || !out) return;
    if (!a->chosen) {
        specrt__auto_best(a);
        bool pays = specrt__auto_pays(a);
        int32_t n_steps = pays ? a->num_steps : a->choice.num_steps;
        if (pays)
            a->interval = SPECRT__AUTO_LEAST;
        else if (a->waited < (a->told ? SPECRT__AUTO_MOST : a->interval))
            n_steps = 0;
        if (a->skips) n_steps = 0;
        a->skips = false;
        a->choice.num_steps = specrt__auto_afford(a, n_steps, pays);
        a->probes = !pays && a->choice.num_steps > 0;
        a->path = SPECRT__AUTO_ONE;
        a->logprob = 0;
        a->chosen = true;
    }
    *out = a->choice;
}

/* --- within a draft --- */

/* By a token's probability in the list, from unlikely to sure. */
static const float specrt__auto_edges[SPECRT__AUTO_BINS - 1] = {
    -2.9957323f, -2.0794415f, -1.3862944f, -0.9162907f, -0.5108256f, -0.2231435f, -0.0512933f};
static const int32_t specrt__auto_middles[SPECRT__AUTO_BINS] = {1638,  5734,  12288, 21299,
                                                                32768, 45875, 57344, 63897};

/* The bin of a token, -1 where it has no probability. */
SPECRT__INTERNAL int32_t specrt__auto_bin(float before, float logprob) {
    float x = logprob - before;
    int32_t bin = 0;
    if (x != x) return -1;
    while (bin < SPECRT__AUTO_BINS - 1 && x >= specrt__auto_edges[bin]) bin++;
    return bin;
}

/* Whether any number of further levels emits more than their time would elsewhere. The positions of a block
 * were computed together: more of them cost their scoring and the target's nodes alone. */
static int specrt__auto_gains(const specrt_auto *a, int32_t n) {
    int64_t cover = specrt__auto_rate(&a->covers[a->choice.list], SPECRT__AUTO_COVER);
    int64_t rate = a->rate > SPECRT__AUTO_ONE ? a->rate : SPECRT__AUTO_ONE, reached = a->path;
    const int64_t *costs = a->costs[a->choice.list], *sunk = a->sunk[a->choice.list];
    int64_t gain = 0, next = 0;
    if (a->n_lists == 1) cover = SPECRT__AUTO_ONE;
    for (int32_t i = 0; i < n; i++) next = specrt__auto_next(a, i, next);
    for (int32_t i = n; i < a->choice.num_steps; i++) {
        int64_t more = costs[i + 1] - costs[n];
        if (a->n_block > 0) more -= sunk[i + 1] - sunk[n];
        next = specrt__auto_next(a, i, next);
        reached = reached * (next * cover >> 16) >> 16;
        gain += reached;
        /* gain / more > rate, which is 1 or more. */
        if (more < gain && (more < 0 || gain * SPECRT__AUTO_ONE > rate * more)) return 1;
    }
    return 0;
}

SPECRT__INTERNAL void specrt__auto_block(specrt_auto *a, int32_t n) {
    if (a) a->n_block = n < a->num_steps ? n : a->num_steps;
}

SPECRT_API int specrt_auto_should_continue(specrt_auto *a, int32_t n, float logprob) {
    if (!a) return 0;
    int32_t bin = specrt__auto_bin(a->logprob, logprob);
    if (n < 1 || n >= a->choice.num_steps) return 0;
    if (a->probes) return 1;
    if (bin >= 0)
        a->path = a->path * specrt__auto_rate(&a->bins[bin], specrt__auto_middles[bin]) >> 16;
    else
        a->path = a->path * specrt__auto_rate(&a->levels[n - 1], SPECRT__AUTO_FIRST) >> 16;
    a->logprob = logprob;
    return specrt__auto_gains(a, n);
}

/* --- a cycle --- */

/* Whether the chosen list holds emitted token i. */
static bool specrt__auto_holds(const specrt_auto *a, const specrt_auto_cycle *c, int32_t i) {
    return a->n_lists == 1 || !c->lists || c->lists[i] <= a->choice.list;
}

/* The bin of emitted token i by the target's probability, -1 where that is not known. */
static int32_t specrt__auto_sureness(const specrt_auto_cycle *c, int32_t i) {
    return c->target_logprobs ? specrt__auto_bin(0, c->target_logprobs[i]) : -1;
}

/* A plain token, with which a draft might have begun, or which it might have reached from one of those
 * before it: each level sees it as far as they would have been accepted. */
static void specrt__auto_suppose(specrt_auto *a, const specrt_auto_cycle *c) {
    int32_t bin = specrt__auto_sureness(c, 0);
    bool held = specrt__auto_holds(a, c, 0);
    int64_t share = 0;
    a->told = bin >= 0;
    if (!a->told) return;
    if (held)
        share = specrt__auto_rate_by(&a->sure[bin], specrt__auto_middles[bin], SPECRT__AUTO_TRUST);
    a->paths[0] = SPECRT__AUTO_ONE;
    for (int32_t i = 0; i < a->num_steps && held; i++)
        specrt__auto_weigh(&a->levels[i], a->paths[i], share);
    for (int32_t i = a->num_steps - 1; i > 0; i--) a->paths[i] = a->paths[i - 1] * share >> 16;
}

static void specrt__auto_learn(specrt_auto *a, const specrt_auto_cycle *c) {
    for (int32_t i = 0; c->lists && i <= c->n_accepted; i++)
        for (int32_t list = 0; list < a->n_lists; list++)
            specrt__auto_count(&a->covers[list], c->lists[i] <= list);
    for (int32_t i = 0; i < c->n_passes && i <= c->n_accepted; i++) {
        bool hit = i < c->n_accepted;
        int32_t bin = -1;
        if (c->logprobs) bin = specrt__auto_bin(i > 0 ? c->logprobs[i - 1] : 0, c->logprobs[i]);
        if (bin >= 0) specrt__auto_count(&a->bins[bin], hit);
        if (!specrt__auto_holds(a, c, i)) continue;
        specrt__auto_count(&a->levels[i], hit);
        bin = specrt__auto_sureness(c, i);
        if (bin >= 0) specrt__auto_count(&a->sure[bin], hit);
    }
    if (c->n_passes == 0)
        specrt__auto_suppose(a, c);
    else
        memset(a->paths, 0, sizeof a->paths);
}

/* A probe that gave something is followed by another. */
static void specrt__auto_wait(specrt_auto *a, const specrt_auto_cycle *c) {
    if (c->n_passes == 0) {
        a->waited++;
    } else if (a->probes && c->n_accepted == 0) {
        a->waited = 0;
        a->interval = 2 * a->interval < SPECRT__AUTO_MOST ? 2 * a->interval : SPECRT__AUTO_MOST;
    }
}

SPECRT_API specrt_status specrt_auto_observe(specrt_auto *a, const specrt_auto_cycle *c) {
    specrt_auto_choice choice;
    if (!a || !c || c->n_passes < 0 || c->n_passes > a->num_steps || c->n_accepted < 0 ||
        c->n_accepted > c->n_passes)
        return SPECRT_STATUS_BAD_ARG;
    specrt_auto_choose(a, &choice);
    const bool drafts = c->n_passes > 0 || a->n_block > 0;
    int64_t cost =
        specrt__auto_cost(a, choice.list, c->n_passes) + specrt__auto_spent(a, c->n_passes);
    specrt__auto_learn(a, c);
    specrt__auto_wait(a, c);
    a->stats.n_cycles++;
    a->stats.n_emitted += c->n_accepted + 1;
    a->stats.n_plain += c->n_passes == 0;
    a->stats.n_probes += a->probes && c->n_passes > 0;
    a->stats.n_passes += c->n_passes;
    a->stats.cost += (double)cost / SPECRT__AUTO_ONE;
    if (drafts) {
        a->stats.cost += (double)specrt__auto_prompt(a) / SPECRT__AUTO_ONE;
        a->n_prompt = 0;
    }
    a->n_left = a->n_left > c->n_accepted + 1 ? a->n_left - c->n_accepted - 1 : 0;
    a->balance += (c->n_accepted + 1) * (int64_t)(SPECRT__AUTO_ONE + SPECRT__AUTO_EXCESS) - cost;
    if (a->balance > SPECRT__AUTO_SAVED) a->balance = SPECRT__AUTO_SAVED;
    if (!drafts)
        a->n_unread++;
    else if (a->keeps_chains)
        a->n_unread = c->n_accepted == c->n_passes ? 2 : 1;
    else
        a->n_unread = c->n_accepted + 1;
    a->chosen = false;
    a->n_block = 0;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_auto_begin(specrt_auto *a) {
    if (!a) return;
    a->n_unread = 1;
    a->n_prompt = a->n_left = 0;
    if (!a->told) a->waited = a->interval; /* another text: look again */
    memset(a->paths, 0, sizeof a->paths);
    a->chosen = false;
    a->n_block = 0;
}

SPECRT_API void specrt_auto_unread(specrt_auto *a, int64_t n, int64_t n_left) {
    if (!a || n < 0) return;
    a->n_prompt = n < SPECRT_MAX_VOCAB ? n : SPECRT_MAX_VOCAB; /* sums of costs fit */
    a->n_left = n_left > 0 && n_left < SPECRT__AUTO_ANSWER ? n_left : SPECRT__AUTO_ANSWER;
    a->chosen = false;
}

SPECRT_API void specrt_auto_get_stats(const specrt_auto *a, specrt_auto_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (a && out) *out = a->stats;
}

/* --- from costs --- */

static specrt_status specrt__auto_refuse(const char *field, const char *expected, double found,
                                         specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "auto: %s: expected %s, found %g", field,
                            expected, found);
}

/* In plain passes; at most so many that sums of them fit. */
static bool specrt__auto_passes(double cost, double plain, int64_t *out) {
    double passes = cost / plain;
    if (!(passes >= 0 && passes <= 1e6)) return false;
    *out = (int64_t)(passes * SPECRT__AUTO_ONE + 0.5);
    return true;
}

static specrt_status specrt__auto_take_costs(specrt_auto *a, const specrt_auto_desc *d,
                                             specrt_error *err) {
    double plain = d->costs ? d->costs[0] : 0;
    if (!(plain > 0)) return specrt__auto_refuse("costs[0]", "a plain pass's, above 0", plain, err);
    for (int32_t list = 0; list < d->n_lists; list++)
        for (int32_t n = 0; n <= d->num_steps; n++) {
            double cost = d->costs[list * (d->num_steps + 1) + n];
            int64_t *out = &a->costs[list][n];
            if (!specrt__auto_passes(n ? cost : plain, plain, out) || *out == 0)
                return specrt__auto_refuse("costs", "above 0, at most a million plain passes", cost,
                                           err);
        }
    a->plain = plain;
    if (specrt__auto_passes(d->read, plain, &a->read)) return SPECRT_STATUS_OK;
    return specrt__auto_refuse("read", "0 to a million plain passes", d->read, err);
}

SPECRT_API specrt_status specrt_auto_set_costs(specrt_auto *a, const double *costs, double read,
                                               specrt_error *err) {
    SPECRT__NEED(a);
    SPECRT__NEED(costs);
    specrt_auto was = *a;
    specrt_auto_desc desc;
    SPECRT__CLEAR(&desc, 1);
    desc.num_steps = a->num_steps;
    desc.n_lists = a->n_lists;
    desc.costs = costs;
    desc.read = read;
    specrt_status status = specrt__auto_take_costs(a, &desc, err);
    if (status != SPECRT_STATUS_OK) *a = was;
    return status;
}

SPECRT_API specrt_status specrt_auto_set_sunk(specrt_auto *a, const double *sunk,
                                              specrt_error *err) {
    SPECRT__NEED(a);
    SPECRT__NEED(sunk);
    specrt_auto was = *a;
    for (int32_t list = 0; list < a->n_lists; list++)
        for (int32_t n = 0; n <= a->num_steps; n++) {
            double spent = *sunk++;
            int64_t *out = &a->sunk[list][n], most = n ? a->costs[list][n] : 0;
            if (specrt__auto_passes(spent, a->plain, out) && *out <= most) continue;
            *a = was;
            return specrt__auto_refuse("sunk", "0 to the cost, 0 without a draft", spent, err);
        }
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_auto_skip(specrt_auto *a) {
    if (a) a->skips = true;
}

static specrt_status specrt__auto_take(specrt_auto *a, const specrt_auto_desc *d,
                                       specrt_error *err) {
    if (d->num_steps < 1 || d->num_steps > SPECRT_TREE_MAX_STEPS)
        return specrt__auto_refuse("num_steps", "1 to 32", d->num_steps, err);
    if (d->n_lists < 1 || d->n_lists > SPECRT_AUTO_MAX_LISTS || (d->n_lists > 1 && !d->rows))
        return specrt__auto_refuse("n_lists", "1 to 8, and rows where above 1", d->n_lists, err);
    for (int32_t i = 0; d->rows && i < d->n_lists; i++) {
        if (d->rows[i] <= (i ? d->rows[i - 1] : 0))
            return specrt__auto_refuse("rows", "above 0, ascending", d->rows[i], err);
        a->rows[i] = d->rows[i];
    }
    a->num_steps = d->num_steps;
    a->n_lists = d->n_lists;
    a->keeps_chains = d->keeps_chains != 0;
    a->balance = SPECRT__AUTO_LENT;
    a->interval = SPECRT__AUTO_LEAST;
    specrt_auto_begin(a);
    return specrt__auto_take_costs(a, d, err);
}

SPECRT_API specrt_status specrt_auto_create(const specrt_auto_desc *desc, const specrt_env *env,
                                            specrt_auto **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(desc);
    specrt_auto *a = (specrt_auto *)specrt__base_alloc(&own, sizeof *a);
    if (!a) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "auto: out of memory");
    SPECRT__CLEAR(a, 1);
    a->env = own;
    specrt_status status = specrt__auto_take(a, desc, err);
    if (status == SPECRT_STATUS_OK)
        *out = a;
    else
        specrt_auto_close(a);
    return status;
}

SPECRT_API void specrt_auto_close(specrt_auto *a) {
    if (!a) return;
    specrt_env env = a->env;
    specrt__base_free(&env, a);
}
