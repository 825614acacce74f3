/* specrt_llama_clock.c : what cycles cost now, from the clock of cycles. */
#include "specrt_llama_costs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A figure moves by 1/8 of what it was off by, and faster the longer it was not seen. */
#define LEAST_WEIGHT (1.0 / 8)
#define MOST_WEIGHT  0.5
#define MOST_OFF     0.7  /* natural log: a pass that took twice as long or more counts as twice */
#define MOST_RIGHT   0.95 /* of drafted tokens, that may be accepted */
#define MOST_DRIFT   0.1  /* beyond which plain cycles are timed */

enum { AGE = 128, KNOWN = 8, ASKED = 3 };

void specrt_llama_clock_init(specrt_llama_clock *c, const specrt_llama_costs *costs,
                             const specrt_tree_params *tree, double head) {
    memset(c, 0, sizeof *c);
    c->costs = *costs;
    c->tree = *tree;
    c->head = head;
}

/* ---- the figures now ------------------------------------------------------------------------- */

static double target_at(const specrt_llama_clock *c, int32_t n) {
    int32_t i = n < SPECRT_TREE_MAX_NODES ? n : SPECRT_TREE_MAX_NODES;
    return specrt_llama_curve_at(&c->costs.target, n) * exp(c->slow + c->target[i]);
}

static double draft_at(const specrt_llama_clock *c, int32_t n) {
    return specrt_llama_curve_at(&c->costs.draft, n) * exp(c->slow + c->draft);
}

static double head_at(const specrt_llama_clock *c) {
    return c->head * exp(c->slow + c->scoring);
}

static double read_at(const specrt_llama_clock *c) {
    double more = (draft_at(c, 8) - draft_at(c, 1)) / 7;
    return more > 0 ? more : 0;
}

/* Nodes of a draft of n levels. */
static int32_t nodes_of(const specrt_tree_params *t, int32_t n) {
    int32_t all = t->topk + (n - 1) * t->topk * t->topk + 1;
    if (t->topk == 1) return n + 1;
    return all < t->num_draft_tokens ? all : t->num_draft_tokens;
}

/* Seconds of drafting n levels in each of so many slots. */
static double drafts_at(const specrt_llama_clock *c, int32_t n_slots, int32_t n) {
    return draft_at(c, n_slots) + (n - 1) * draft_at(c, n_slots * c->tree.topk) +
           n * n_slots * head_at(c);
}

void specrt_llama_clock_table(const specrt_llama_clock *c, int32_t n_slots, double *cycles,
                              double *read) {
    cycles[0] = target_at(c, n_slots);
    for (int32_t n = 1; n <= c->tree.num_steps; n++)
        cycles[n] = drafts_at(c, n_slots, n) + target_at(c, n_slots * nodes_of(&c->tree, n));
    *read = n_slots * read_at(c);
}

bool specrt_llama_clock_hopeless(const specrt_llama_clock *c, char line[SPECRT_LLAMA_TEXT]) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], read, tokens = 1, reached = 1;
    if (c->costs.disturbed) return false;
    specrt_llama_clock_table(c, 1, cycles, &read);
    for (int32_t n = 1; n <= c->tree.num_steps; n++) {
        reached *= MOST_RIGHT;
        tokens += reached;
        if (tokens * cycles[0] > cycles[n]) return false;
    }
    int32_t n = c->tree.num_steps < 3 ? c->tree.num_steps : 3;
    snprintf(
        line, SPECRT_LLAMA_TEXT,
        "drafting off: a pass of %d tokens costs %.2f passes here, its draft %.2f; too slow even "
        "if %.0f%% of drafted tokens are accepted",
        (int)nodes_of(&c->tree, n), target_at(c, nodes_of(&c->tree, n)) / cycles[0],
        drafts_at(c, 1, n) / cycles[0], 100 * MOST_RIGHT);
    return true;
}

specrt_status specrt_llama_clock_auto(const specrt_llama_clock *c, bool keeps_chains,
                                      specrt_auto **out, specrt_error *err) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], read;
    specrt_llama_clock_table(c, 1, cycles, &read);
    specrt_auto_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_steps = c->tree.num_steps;
    desc.n_lists = 1;
    desc.costs = cycles;
    desc.read = read;
    desc.keeps_chains = keeps_chains && c->tree.topk == 1;
    return specrt_auto_create(&desc, NULL, out, err);
}

/* ---- learning -------------------------------------------------------------------------------- */

/* How far a time is from what was expected. */
static double off_by(double seconds, double expected) {
    if (!(seconds > 0 && expected > 0)) return 0;
    double off = log(seconds / expected);
    return off > MOST_OFF ? MOST_OFF : off < -MOST_OFF ? -MOST_OFF : off;
}

static double weight_of(int32_t since) {
    double weight = (double)since / AGE;
    return weight < LEAST_WEIGHT ? LEAST_WEIGHT : weight > MOST_WEIGHT ? MOST_WEIGHT : weight;
}

/* Neighbouring sizes are off by the same causes; a plain pass has a token for each slot. */
static void move_target(specrt_llama_clock *c, const specrt_llama_cycle *y, double by) {
    int32_t n = y->n_tokens < SPECRT_TREE_MAX_NODES ? y->n_tokens : SPECRT_TREE_MAX_NODES;
    for (int32_t i = y->n_slots + 1; i <= SPECRT_TREE_MAX_NODES; i++)
        c->target[i] += ldexp(by, i < n ? i - n : n - i);
}

/* A pass with drafts. What it was off by is the shape's: plain cycles see the machine's speed. */
static void see_draft(specrt_llama_clock *c, const specrt_llama_cycle *y) {
    double weight = weight_of(c->since_draft);
    double off = off_by(y->target_seconds, target_at(c, y->n_tokens));
    double passes =
        draft_at(c, y->n_read) + (y->n_passes - 1) * draft_at(c, y->n_slots * c->tree.topk);
    move_target(c, y, weight * off);
    c->draft += weight * off_by(y->draft_seconds, passes);
    c->scoring += weight * off_by(y->head_seconds, y->n_scored * head_at(c));
    c->drift += (off - c->drift) / 8;
    c->since_draft = 0;
    c->since_plain++;
}

/* Asked for, it counts half: the machine's speed has changed, or was not seen for long. */
static void see_plain(specrt_llama_clock *c, const specrt_llama_cycle *y) {
    double weight = c->asked > 0 ? MOST_WEIGHT : weight_of(c->since_plain);
    c->slow += weight * off_by(y->target_seconds, target_at(c, y->n_tokens));
    if (c->asked > 0) c->asked--;
    c->drift = 0;
    c->since_plain = 0;
    c->since_draft++;
}

bool specrt_llama_clock_see(specrt_llama_clock *c, const specrt_llama_cycle *y) {
    if (y->n_passes == 0)
        see_plain(c, y);
    else
        see_draft(c, y);
    if (fabs(c->drift) > MOST_DRIFT && c->since_plain > KNOWN) c->asked = ASKED;
    if (c->since_plain >= AGE) c->asked = 1;
    return c->asked > 0;
}

/* ---- in words -------------------------------------------------------------------------------- */

void specrt_llama_clock_explain(const specrt_llama_clock *c, const specrt_auto_stats *s,
                                char out[SPECRT_LLAMA_TEXT]) {
    int64_t n_drafts = s->n_cycles - s->n_plain, n_accepted = s->n_emitted - s->n_cycles;
    double n_cycles = s->n_cycles > 0 ? (double)s->n_cycles : 1;
    int32_t n =
        n_drafts > 0 ? (int32_t)((s->n_passes + n_drafts / 2) / n_drafts) : c->tree.num_steps;
    if (n < 1) n = 1;
    double plain = target_at(c, 1);
    bool off = 2 * s->n_plain >= s->n_cycles;
    snprintf(
        out, SPECRT_LLAMA_TEXT,
        "drafting %s in %.0f%% of cycles: a pass of %d tokens costs %.2f passes here, its draft "
        "%.2f; %lld tokens drafted, %lld accepted; estimated %.2fx plain decoding",
        off ? "off" : "on", 100 * (double)(off ? s->n_plain : n_drafts) / n_cycles,
        (int)nodes_of(&c->tree, n), target_at(c, nodes_of(&c->tree, n)) / plain,
        drafts_at(c, 1, n) / plain, (long long)s->n_passes, (long long)n_accepted,
        s->cost > 0 ? (double)s->n_emitted / s->cost : 1.0);
}

/* ---- a host that is timed -------------------------------------------------------------------- */

void specrt_llama_timer_begin(specrt_llama_timer *t) {
    t->began = t->drafted = 0;
    t->n_unread = 1;
    memset(&t->cycle, 0, sizeof t->cycle);
}

static int timed_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                         const float **logits) {
    specrt_llama_timer *t = (specrt_llama_timer *)user;
    specrt_llama_timer_begin(t);
    return t->host.target_prefill(t->host.user, tokens, n, all, logits);
}

/* Between two passes of the drafter, and before the target's, a level is scored. */
static void end_scoring(specrt_llama_timer *t, double now) {
    if (t->drafted > 0) t->cycle.head_seconds += now - t->drafted;
    t->drafted = 0;
}

static int timed_draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                       const float **draft_input) {
    specrt_llama_timer *t = (specrt_llama_timer *)user;
    double began = t->now();
    end_scoring(t, began);
    int code = t->host.draft_step(t->host.user, level, beam, hidden, draft_input);
    t->drafted = t->now();
    t->cycle.draft_seconds += t->drafted - began;
    t->cycle.n_passes++;
    return code;
}

static int timed_verify(void *user, const specrt_draft *draft, const float **logits) {
    specrt_llama_timer *t = (specrt_llama_timer *)user;
    end_scoring(t, t->now());
    t->cycle.n_tokens = draft->n;
    return t->host.target_verify(t->host.user, draft, logits);
}

static int timed_hidden(void *user, const float **hidden, int32_t *width) {
    specrt_llama_timer *t = (specrt_llama_timer *)user;
    return t->host.target_hidden(t->host.user, hidden, width);
}

/* Tokens that the drafter's next first pass reads, as specrt_auto counts them. */
static int32_t unread_after(const specrt_llama_timer *t, int32_t n_accepted) {
    if (t->cycle.n_passes == 0) return t->n_unread + 1;
    if (!t->keeps_chains) return n_accepted + 1;
    return n_accepted == t->cycle.n_passes ? 2 : 1;
}

/* The cycle ends here; observe() and what the application does before the next draft count to the next. */
static int timed_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    specrt_llama_timer *t = (specrt_llama_timer *)user;
    double cycles[SPECRT_TREE_MAX_STEPS + 1], read;
    int code = t->host.commit(t->host.user, draft, verdict);
    double now = t->now();
    t->cycle.n_slots = 1;
    t->cycle.n_read = t->n_unread;
    t->cycle.n_scored = t->cycle.n_passes;
    t->cycle.target_seconds = now - t->began - t->cycle.draft_seconds - t->cycle.head_seconds;
    t->n_unread = unread_after(t, verdict->n - 1);
    if (t->began > 0 && specrt_llama_clock_see(&t->clock, &t->cycle))
        specrt_auto_skip(t->auto_draft);
    specrt_llama_clock_table(&t->clock, 1, cycles, &read);
    (void)specrt_auto_set_costs(t->auto_draft, cycles, read, NULL);
    t->began = now;
    memset(&t->cycle, 0, sizeof t->cycle);
    return code;
}

specrt_host specrt_llama_timed_host(specrt_llama_timer *t) {
    specrt_host host = t->host;
    if (!t->now) t->now = specrt_llama_seconds;
    specrt_llama_timer_begin(t);
    host.user = t;
    host.target_prefill = timed_prefill;
    host.draft_step = timed_draft;
    host.target_verify = timed_verify;
    host.commit = timed_commit;
    if (host.target_hidden) host.target_hidden = timed_hidden;
    return host;
}
