/* clock.c : what cycles cost now, from the clock of cycles. Refuses nothing that it can count. */
#include "specrt_adapt.h"
#include "specrt_block.h"
#include "adapt/auto.h"
#include "adapt/costs.h"
#include "core/base.h"
#include "core/os.h"

#include <math.h>

/* A figure moves by 1/8 of what it was off by, and faster the longer it was not seen. */
#define SPECRT__CLOCK_LEAST_WEIGHT (1.0 / 8)
#define SPECRT__CLOCK_MOST_WEIGHT  0.5
#define SPECRT__CLOCK_MOST_OFF                                                                     \
    0.7 /* natural log: a pass that took twice as long or more counts as twice */
#define SPECRT__CLOCK_MOST_RIGHT 0.95 /* of drafted tokens, that may be accepted */
#define SPECRT__CLOCK_MOST_DRIFT 0.1  /* beyond which plain cycles are timed */

enum { SPECRT__CLOCK_AGE = 128, SPECRT__CLOCK_KNOWN = 8, SPECRT__CLOCK_ASKED = 3 };

SPECRT_API void specrt_clock_init(specrt_clock *c, const specrt_costs *costs,
                                  const specrt_tree_params *tree, double head) {
    if (!c || !costs || !tree) return;
    memset(c, 0, sizeof *c);
    c->costs = *costs;
    c->tree = *tree;
    c->head = head;
}

/* ---- the figures now ------------------------------------------------------------------------- */

static double specrt__clock_target_at(const specrt_clock *c, int32_t n) {
    int32_t i = n < SPECRT_TREE_MAX_NODES ? n : SPECRT_TREE_MAX_NODES;
    return specrt_curve_at(&c->costs.target, n) * exp(c->slow + c->target[i]);
}

/* The drafter's passes of drafts of n levels in so many slots, which first read n_read tokens in all. A block
 * has its levels in one pass. */
static double specrt__clock_passes_at(const specrt_clock *c, int32_t n_slots, int32_t n,
                                      int32_t n_read) {
    return specrt_costs_draft(&c->costs, n_read, n, n_slots * c->tree.topk) *
           exp(c->slow + c->draft);
}

static double specrt__clock_head_at(const specrt_clock *c) {
    return c->head * exp(c->slow + c->scoring);
}

static double specrt__clock_read_at(const specrt_clock *c) {
    return specrt_costs_read_token(&c->costs) * exp(c->slow + c->draft);
}

/* Seconds of drafting n levels in each of so many slots. */
static double specrt__clock_drafts_at(const specrt_clock *c, int32_t n_slots, int32_t n) {
    return specrt__clock_passes_at(c, n_slots, n, n_slots) + n * n_slots * specrt__clock_head_at(c);
}

/* What a block has spent before its first token is chosen. @return NULL: the drafter has none */
static const double *specrt__clock_sunk(const specrt_clock *c,
                                        double out[SPECRT_TREE_MAX_STEPS + 1]) {
    if (c->costs.n_block == 0) return NULL;
    out[0] = 0;
    for (int32_t n = 1; n <= c->tree.num_steps; n++) out[n] = specrt__clock_passes_at(c, 1, n, 1);
    return out;
}

SPECRT_API void specrt_clock_table(const specrt_clock *c, int32_t n_slots, double *cycles,
                                   double *read) {
    if (!c || !cycles || !read) return;
    cycles[0] = specrt__clock_target_at(c, n_slots);
    for (int32_t n = 1; n <= c->tree.num_steps; n++)
        cycles[n] = specrt__clock_drafts_at(c, n_slots, n) +
                    specrt__clock_target_at(c, n_slots * specrt_costs_nodes(&c->tree, n));
    *read = n_slots * specrt__clock_read_at(c);
}

SPECRT_API int specrt_clock_hopeless(const specrt_clock *c, char *line) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], read, tokens = 1, reached = 1;
    if (!c || !line || c->costs.disturbed) return 0;
    specrt_clock_table(c, 1, cycles, &read);
    for (int32_t n = 1; n <= c->tree.num_steps; n++) {
        reached *= SPECRT__CLOCK_MOST_RIGHT;
        tokens += reached;
        if (tokens * cycles[0] > cycles[n]) return 0;
    }
    int32_t n = c->tree.num_steps < 3 ? c->tree.num_steps : 3;
    snprintf(
        line, SPECRT_COSTS_TEXT,
        "drafting off: a pass of %d tokens costs %.2f passes here, its draft %.2f; too slow even "
        "if %.0f%% of drafted tokens are accepted",
        (int)specrt_costs_nodes(&c->tree, n),
        specrt__clock_target_at(c, specrt_costs_nodes(&c->tree, n)) / cycles[0],
        specrt__clock_drafts_at(c, 1, n) / cycles[0], 100 * SPECRT__CLOCK_MOST_RIGHT);
    return 1;
}

SPECRT_API specrt_status specrt_clock_auto(const specrt_clock *clock, int32_t keeps_chains,
                                           specrt_auto **out, specrt_error *err) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], sunk[SPECRT_TREE_MAX_STEPS + 1], read;
    specrt_auto_desc desc;
    const double *spent;
    SPECRT__NEED(clock);
    SPECRT__NEED(out);
    specrt_clock_table(clock, 1, cycles, &read);
    memset(&desc, 0, sizeof desc);
    desc.num_steps = clock->tree.num_steps;
    desc.n_lists = 1;
    desc.costs = cycles;
    desc.read = read;
    desc.keeps_chains = keeps_chains && clock->tree.topk == 1;
    SPECRT__TRY(specrt_auto_create(&desc, NULL, out, err));
    spent = specrt__clock_sunk(clock, sunk);
    return spent ? specrt_auto_set_sunk(*out, spent, err)
                 : SPECRT_STATUS_OK; /* fits: of the costs */
}

/* ---- learning -------------------------------------------------------------------------------- */

/* How far a time is from what was expected. */
static double specrt__clock_off_by(double seconds, double expected) {
    if (!(seconds > 0 && expected > 0)) return 0;
    double off = log(seconds / expected);
    return off > SPECRT__CLOCK_MOST_OFF    ? SPECRT__CLOCK_MOST_OFF
           : off < -SPECRT__CLOCK_MOST_OFF ? -SPECRT__CLOCK_MOST_OFF
                                           : off;
}

static double specrt__clock_weight_of(int32_t since) {
    double weight = (double)since / (int)SPECRT__CLOCK_AGE;
    return weight < SPECRT__CLOCK_LEAST_WEIGHT  ? SPECRT__CLOCK_LEAST_WEIGHT
           : weight > SPECRT__CLOCK_MOST_WEIGHT ? SPECRT__CLOCK_MOST_WEIGHT
                                                : weight;
}

/* Neighbouring sizes are off by the same causes; a plain pass has a token for each slot. */
static void specrt__clock_move_target(specrt_clock *c, const specrt_clock_cycle *y, double by) {
    int32_t n = y->n_tokens < SPECRT_TREE_MAX_NODES ? y->n_tokens : SPECRT_TREE_MAX_NODES;
    for (int32_t i = y->n_slots + 1; i <= SPECRT_TREE_MAX_NODES; i++)
        c->target[i] += ldexp(by, i < n ? i - n : n - i);
}

/* A pass with drafts. What it was off by is the shape's: plain cycles see the machine's speed. */
static void specrt__clock_see_draft(specrt_clock *c, const specrt_clock_cycle *y) {
    double weight = specrt__clock_weight_of(c->since_draft);
    double off = specrt__clock_off_by(y->target_seconds, specrt__clock_target_at(c, y->n_tokens));
    int32_t n_levels = c->costs.n_block > 0 ? y->n_block : y->n_passes;
    double passes = specrt__clock_passes_at(c, y->n_slots, n_levels, y->n_read);
    specrt__clock_move_target(c, y, weight * off);
    if (y->n_read <= SPECRT_TREE_MAX_NODES) /* not a whole prompt */
        c->draft += weight * specrt__clock_off_by(y->draft_seconds, passes);
    c->scoring +=
        weight * specrt__clock_off_by(y->head_seconds, y->n_scored * specrt__clock_head_at(c));
    c->drift += (off - c->drift) / 8;
    c->since_draft = 0;
    c->since_plain++;
}

/* Asked for, it counts half: the machine's speed has changed, or was not seen for long. */
static void specrt__clock_see_plain(specrt_clock *c, const specrt_clock_cycle *y) {
    double weight =
        c->asked > 0 ? SPECRT__CLOCK_MOST_WEIGHT : specrt__clock_weight_of(c->since_plain);
    c->slow +=
        weight * specrt__clock_off_by(y->target_seconds, specrt__clock_target_at(c, y->n_tokens));
    if (c->asked > 0) c->asked--;
    c->drift = 0;
    c->since_plain = 0;
    c->since_draft++;
}

SPECRT_API int specrt_clock_see(specrt_clock *c, const specrt_clock_cycle *y) {
    if (!c || !y) return 0;
    if (y->n_passes == 0)
        specrt__clock_see_plain(c, y);
    else
        specrt__clock_see_draft(c, y);
    if (fabs(c->drift) > SPECRT__CLOCK_MOST_DRIFT && c->since_plain > SPECRT__CLOCK_KNOWN)
        c->asked = SPECRT__CLOCK_ASKED;
    if (c->since_plain >= SPECRT__CLOCK_AGE) c->asked = 1;
    return c->asked > 0;
}

/* ---- in words -------------------------------------------------------------------------------- */

SPECRT_API void specrt_clock_explain(const specrt_clock *c, const specrt_auto_stats *s, char *out) {
    if (!c || !s || !out) return;
    int64_t n_drafts = s->n_cycles - s->n_plain, n_accepted = s->n_emitted - s->n_cycles;
    double n_cycles = s->n_cycles > 0 ? (double)s->n_cycles : 1;
    int32_t n =
        n_drafts > 0 ? (int32_t)((s->n_passes + n_drafts / 2) / n_drafts) : c->tree.num_steps;
    if (n < 1) n = 1;
    double plain = specrt__clock_target_at(c, 1);
    bool off = 2 * s->n_plain >= s->n_cycles;
    snprintf(
        out, SPECRT_COSTS_TEXT,
        "drafting %s in %.0f%% of cycles: a pass of %d tokens costs %.2f passes here, its draft "
        "%.2f; %lld tokens drafted, %lld accepted; estimated %.2fx plain decoding",
        off ? "off" : "on", 100 * (double)(off ? s->n_plain : n_drafts) / n_cycles,
        (int)specrt_costs_nodes(&c->tree, n),
        specrt__clock_target_at(c, specrt_costs_nodes(&c->tree, n)) / plain,
        specrt__clock_drafts_at(c, 1, n) / plain, (long long)s->n_passes, (long long)n_accepted,
        s->cost > 0 ? (double)s->n_emitted / s->cost : 1.0);
}

/* ---- a host that is timed -------------------------------------------------------------------- */

SPECRT_API double specrt_clock_seconds(void) {
    return specrt__os_seconds();
}

SPECRT_API void specrt_timer_begin(specrt_timer *t) {
    if (!t) return;
    t->began = t->drafted = 0;
    t->n_unread = 1;
    memset(&t->cycle, 0, sizeof t->cycle);
}

static int specrt__clock_time_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                                      const float **logits) {
    specrt_timer *t = (specrt_timer *)user;
    int32_t n_unread = t->began > 0 ? 1 : t->n_unread; /* batches of the same prompt add up */
    specrt_timer_begin(t);
    if (t->host.reads_late) t->n_unread = n_unread + n;
    return t->host.target_prefill(t->host.user, tokens, n, all, logits);
}

/* Between two passes of the drafter, and before the target's, a level is scored. */
static void specrt__clock_end_scoring(specrt_timer *t, double now) {
    if (t->drafted > 0) t->cycle.head_seconds += now - t->drafted;
    t->drafted = 0;
}

static void specrt__clock_end_pass(specrt_timer *t, double began) {
    t->drafted = t->now();
    t->cycle.draft_seconds += t->drafted - began;
    t->cycle.n_passes++;
}

static int specrt__clock_time_draft(void *user, int32_t level, const specrt_beam *beam,
                                    const float **hidden, const float **draft_input) {
    specrt_timer *t = (specrt_timer *)user;
    double began = t->now();
    specrt__clock_end_scoring(t, began);
    int code = t->host.draft_step(t->host.user, level, beam, hidden, draft_input);
    specrt__clock_end_pass(t, began);
    return code;
}

static int specrt__clock_time_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    specrt_timer *t = (specrt_timer *)user;
    double began = t->now();
    int code = t->host.draft_block(t->host.user, root, n, block);
    specrt__clock_end_pass(t, began);
    t->cycle.n_block = block->n > 0 && block->n < n ? block->n : n;
    return code;
}

static int specrt__clock_time_verify(void *user, const specrt_draft *draft, const float **logits) {
    specrt_timer *t = (specrt_timer *)user;
    specrt__clock_end_scoring(t, t->now());
    t->cycle.n_tokens = draft->n;
    return t->host.target_verify(t->host.user, draft, logits);
}

static int specrt__clock_time_hidden(void *user, const float **hidden, int32_t *width) {
    specrt_timer *t = (specrt_timer *)user;
    return t->host.target_hidden(t->host.user, hidden, width);
}

/* Tokens that the drafter's next first pass reads, as specrt_auto counts them. */
static int32_t specrt__clock_unread_after(const specrt_timer *t, int32_t n_accepted) {
    if (t->cycle.n_passes == 0) return t->n_unread + 1;
    if (!t->keeps_chains) return n_accepted + 1;
    return n_accepted == t->cycle.n_passes ? 2 : 1;
}

/* The cycle ends here; observe() and what the application does before the next draft count to the next. */
static int specrt__clock_time_commit(void *user, const specrt_draft *draft,
                                     const specrt_verdict *verdict) {
    specrt_timer *t = (specrt_timer *)user;
    double cycles[SPECRT_TREE_MAX_STEPS + 1], sunk[SPECRT_TREE_MAX_STEPS + 1], read;
    int code = t->host.commit(t->host.user, draft, verdict);
    double now = t->now();
    t->cycle.n_slots = 1;
    t->cycle.n_read = t->n_unread;
    t->cycle.n_scored = t->cycle.n_block > 0 ? t->cycle.n_block : t->cycle.n_passes;
    t->cycle.target_seconds = now - t->began - t->cycle.draft_seconds - t->cycle.head_seconds;
    t->n_unread = specrt__clock_unread_after(t, verdict->n - 1);
    if (t->began > 0 && specrt_clock_see(&t->clock, &t->cycle)) specrt_auto_skip(t->auto_draft);
    specrt_clock_table(&t->clock, 1, cycles, &read);
    const double *spent = specrt__clock_sunk(&t->clock, sunk);
    specrt_status status = specrt_auto_set_costs(t->auto_draft, cycles, read, NULL);
    if (status == SPECRT_STATUS_OK && spent) (void)specrt_auto_set_sunk(t->auto_draft, spent, NULL);
    t->began = now;
    memset(&t->cycle, 0, sizeof t->cycle);
    return code;
}

SPECRT_API void specrt_timer_host(specrt_timer *t, specrt_host *out) {
    if (!t || !out) return;
    if (!t->now) t->now = specrt_clock_seconds;
    specrt_timer_begin(t);
    *out = t->host;
    out->user = t;
    out->target_prefill = specrt__clock_time_prefill;
    if (out->draft_step) out->draft_step = specrt__clock_time_draft;
    if (out->draft_block) out->draft_block = specrt__clock_time_block;
    out->target_verify = specrt__clock_time_verify;
    out->commit = specrt__clock_time_commit;
    if (out->target_hidden) out->target_hidden = specrt__clock_time_hidden;
}
