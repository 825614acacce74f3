/* figures.c : from tokens and samples to figures. Counts are pooled over cycles; speeds are means over
 * turns, as Spec-Bench has it, and speed-ups ratios of such means. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/order.h"
#include "compare.h"

enum { RESAMPLES = 1000 };

static double rate(const turn_sample *s) {
    return s->seconds > 0 ? (double)s->n_tokens / s->seconds : 0;
}

/* The figures that get intervals, and these. */
enum { HEADLINES = 7 };
static const struct {
    size_t value, ends;
} headlines[HEADLINES] = {
#define HEADLINE(name)                                                                             \
    { offsetof(figures, name), offsetof(figures, name##_ci) }
    HEADLINE(accept_length), HEADLINE(accept_full),  HEADLINE(tokens_per_second),
    HEADLINE(speedup_plain), HEADLINE(speedup_full), HEADLINE(speedup_request),
    HEADLINE(speedup_short),
};

static double accept_length(const turn_sample *samples, const int *turns, int n) {
    int64_t emitted = 0, cycles = 0;
    for (int i = 0; i < n; i++) {
        emitted += samples[turns[i]].stats.n_emitted;
        cycles += samples[turns[i]].stats.n_cycles;
    }
    return cycles > 0 ? (double)emitted / (double)cycles : 1;
}

/* A mean over turns; NULL: the first n. */
static double speed(const turn_sample *samples, const int *turns, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += rate(&samples[turns ? turns[i] : i]);
    return sum / n;
}

/* Whole requests: their prompts, and their answers at a share of the mean speed. */
static double request_seconds(const turn_sample *samples, const int *turns, int n, double share) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const turn_sample *s = &samples[turns[i]];
        sum += s->times.prefill + s->seconds / share;
    }
    return sum;
}

static double short_seconds(const turn_sample *samples, const int *turns, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += samples[turns[i]].times.prefill + samples[turns[i]].seconds_short;
    return sum;
}

/* Over a domain's turns; -1: all. */
static double domain_accept(const comparison *c, int way, int domain) {
    const turn_sample *s = c->ways[way].samples;
    int64_t emitted = 0, cycles = 0;
    for (int i = 0; i < c->n_turns; i++) {
        if (domain >= 0 && s[i].domain != domain) continue;
        emitted += s[i].stats.n_emitted;
        cycles += s[i].stats.n_cycles;
    }
    return cycles > 0 ? (double)emitted / (double)cycles : NAN;
}

retained compare_retained(const comparison *c, int way) {
    retained r = {domain_accept(c, way, -1) / domain_accept(c, FULL, -1), NAN, 0, ""};
    for (int d = 0; d < c->n_domains; d++) {
        double share = domain_accept(c, way, d) / domain_accept(c, FULL, d);
        if (!isnan(share)) retained_add_task(&r, c->domains[d], share);
    }
    return r;
}

/* In their order, over turns [n]. */
static void headlines_of(const comparison *c, int way, const int *turns, int n,
                         double out[HEADLINES]) {
    const turn_sample *mine = c->ways[way].samples, *full = c->ways[FULL].samples,
                      *plain = c->ways[PLAIN].samples;
    double length = accept_length(mine, turns, n), mean = speed(mine, turns, n);
    out[0] = length;
    out[1] = length / accept_length(full, turns, n);
    out[2] = mean;
    out[3] = mean / speed(plain, turns, n);
    out[4] = mean / speed(full, turns, n);
    out[5] = request_seconds(plain, turns, n, 1) / request_seconds(mine, turns, n, 1);
    out[6] = short_seconds(plain, turns, n) / short_seconds(mine, turns, n);
}

static interval interval_of(double *values) {
    qsort(values, RESAMPLES, sizeof *values, sl_order_real);
    return (interval){values[RESAMPLES * 25 / 1000], values[RESAMPLES * 975 / 1000 - 1]};
}

/* Draw n_prompts whole prompts with replacement; prompt p is turns [starts[p], starts[p + 1]).
 * @return turns drawn. The draws depend on the seed and r alone, so every policy gets the same. */
static int draw_prompts(const int *turns, const int *starts, int n_prompts, uint64_t seed, int r,
                        int *drawn) {
    int n = 0;
    for (int i = 0; i < n_prompts; i++) {
        int key[2] = {r, i};
        int p = (int)(specrt_hash64(key, sizeof key, seed) % (uint64_t)n_prompts);
        for (int t = starts[p]; t < starts[p + 1]; t++) drawn[n++] = turns[t];
    }
    return n;
}

/* Turns of a prompt stand together. @return how many prompts. */
static int group_turns(const turn_sample *samples, const int *turns, int n, int *starts) {
    int n_prompts = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || samples[turns[i]].prompt != samples[turns[i - 1]].prompt)
            starts[n_prompts++] = i;
    starts[n_prompts] = n;
    return n_prompts;
}

/* Room for one draw. @return owned; NULL for fewer than two prompts, which have no interval */
static int *room_for_draws(const int *starts, int n_prompts) {
    int most = 0;
    for (int p = 0; p < n_prompts; p++)
        if (starts[p + 1] - starts[p] > most) most = starts[p + 1] - starts[p];
    return n_prompts > 1 ? (int *)malloc((size_t)n_prompts * (size_t)most * sizeof(int)) : NULL;
}

static void resample(const comparison *c, int way, const int *turns, const int *starts,
                     figures *out) {
    double values[HEADLINES][RESAMPLES], one[HEADLINES];
    int n_prompts = (int)out->n_prompts, *drawn = room_for_draws(starts, n_prompts);
    for (int r = 0; drawn && r < RESAMPLES; r++) {
        int n = draw_prompts(turns, starts, n_prompts, (uint64_t)c->options.common.seed, r, drawn);
        headlines_of(c, way, drawn, n, one);
        for (int i = 0; i < HEADLINES; i++) values[i][r] = one[i];
    }
    for (int i = 0; i < HEADLINES; i++) {
        const interval ends = drawn ? interval_of(values[i]) : (interval){NAN, NAN};
        memcpy((char *)out + headlines[i].ends, &ends, sizeof ends);
    }
    free(drawn);
}

specrt_ratio compare_ratio(const comparison *c, int a, double share, int b, double other_share) {
    const turn_sample *mine = c->ways[a].samples, *other = c->ways[b].samples;
    int *turns = (int *)malloc(2 * ((size_t)c->n_turns + 1) * sizeof *turns), *drawn = NULL;
    int *starts = turns ? turns + c->n_turns : NULL, n_prompts = 0;
    specrt_ratio ratio = {NAN, NAN, NAN};
    double values[RESAMPLES];
    for (int i = 0; turns && i < c->n_turns; i++) turns[i] = i;
    if (turns) {
        ratio.value = request_seconds(other, turns, c->n_turns, other_share) /
                      request_seconds(mine, turns, c->n_turns, share);
        n_prompts = group_turns(mine, turns, c->n_turns, starts);
        drawn = room_for_draws(starts, n_prompts);
    }
    bool known = drawn && n_prompts >= SPECRT_ADVISE_REQUESTS;
    for (int r = 0; known && r < RESAMPLES; r++) {
        int n = draw_prompts(turns, starts, n_prompts, (uint64_t)c->options.common.seed, r, drawn);
        values[r] =
            request_seconds(other, drawn, n, other_share) / request_seconds(mine, drawn, n, share);
    }
    if (known) {
        interval ends = interval_of(values);
        ratio.low = ends.low, ratio.high = ends.high;
    }
    free(drawn);
    free(turns);
    return ratio;
}

static void add_lists(list_sums *to, const list_sums *s) {
    to->n_positions += s->n_positions;
    to->mass += s->mass;
    for (int i = 0; i < WATCH_TOPS; i++) {
        to->wanted[i] += s->wanted[i];
        to->held[i] += s->held[i];
        to->beyond[i] += s->beyond[i];
        to->brought[i] += s->brought[i];
    }
}

static void add_sample(turn_sample *sum, const turn_sample *s) {
    sum->n_tokens += s->n_tokens;
    sum->n_loop += s->n_loop;
    run_add_times(&sum->times, &s->times);
    sum->event_update += s->event_update;
    add_lists(&sum->lists, &s->lists);
    run_add_stats(&sum->stats, &s->stats, 1);
}

int compare_num_steps(const comparison *c) {
    specrt_tree_params tree = {.num_steps = (int32_t)c->options.num_steps};
    eval_tree(&tree, &tree, NULL);
    return tree.num_steps;
}

/* A cycle that emitted n tokens accepted n - 1 drafts. */
static void acceptance_of(const specrt_session_stats *s, int num_steps,
                          double out[COMPARE_POSITIONS]) {
    int64_t reached = s->n_cycles;
    for (int i = 0; i < COMPARE_POSITIONS; i++) {
        if (i == num_steps) reached = 0;
        int64_t accepted = 0;
        for (int n = i + 2; n <= SPECRT_TREE_MAX_NODES; n++) accepted += s->n_by_length[n];
        out[i] = reached ? (double)accepted / (double)reached : NAN;
        reached = accepted;
    }
}

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

static void watched_of(const turn_sample *sum, figures *out) {
    const list_sums *l = &sum->lists;
    double cycles = (double)sum->stats.n_cycles, events = (double)sum->stats.n_events;
    out->mass = ratio(l->mass, (double)l->n_positions);
    for (int i = 0; i < WATCH_TOPS; i++) {
        out->recall[i] = ratio((double)l->held[i], (double)l->wanted[i]);
        out->recall_beyond[i] = ratio((double)l->brought[i], (double)l->beyond[i]);
    }
    out->events = ratio(events, cycles);
    out->update_event = ratio(sum->event_update, events);
    out->update_other = ratio(sum->times.update - sum->event_update, cycles - events);
}

static void means_of(const turn_sample *sum, int n_turns, int num_steps, figures *out) {
    double tokens = (double)sum->n_tokens, emitted = (double)sum->stats.n_emitted;
    double cycles = sum->stats.n_cycles ? (double)sum->stats.n_cycles : tokens - n_turns;
    if (cycles < 1) cycles = 1; /* the first token of a turn is no cycle */
    out->n_turns = n_turns;
    out->n_tokens = sum->n_tokens;
    out->coverage = emitted > 0 ? (double)sum->stats.n_covered / emitted : NAN;
    out->shortlist_rows = sum->stats.n_cycles ? (double)sum->stats.n_rows / cycles : NAN;
    out->bytes_pass = ratio((double)sum->stats.n_bytes, (double)sum->stats.n_passes);
    out->rows_copied = sum->stats.n_cycles ? (double)sum->stats.n_copied / cycles : NAN;
    out->loop_share = tokens > 0 ? (double)sum->n_loop / tokens : 0;
    out->draft = sum->times.draft / cycles;
    out->head = sum->times.head / cycles;
    out->target = sum->times.target / cycles;
    out->verify = sum->times.verify / cycles;
    out->update = sum->times.update / cycles;
    out->cycle = out->draft + out->head + out->target + out->verify + out->update;
    out->align = sum->times.align / cycles;
    out->prefill = sum->times.prefill / n_turns;
    acceptance_of(&sum->stats, num_steps, out->acceptance);
    watched_of(sum, out);
}

/* As the papers' end-to-end throughput: the prompt's time among the seconds. */
static double speed_with_prompt(const turn_sample *samples, const int *turns, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const turn_sample *s = &samples[turns[i]];
        double seconds = s->seconds + s->times.prefill;
        if (seconds > 0) sum += (double)s->n_tokens / seconds;
    }
    return sum / n;
}

double compare_span(const comparison *c, int way, int span) {
    const span_sums *s = &c->ways[way].watch.spans[span];
    return ratio((double)s->n_emitted, (double)s->n_cycles);
}

void figures_of(const comparison *c, int way, int domain, figures *out) {
    const turn_sample *samples = c->ways[way].samples;
    turn_sample sum = {0};
    int *turns = (int *)malloc(2 * ((size_t)c->n_turns + 1) * sizeof *turns), n = 0;
    int *starts = turns ? turns + c->n_turns : NULL; /* [n_turns + 1] at most */
    memset(out, 0, sizeof *out);
    for (int i = 0; turns && i < c->n_turns; i++) {
        if (domain >= 0 && samples[i].domain != domain) continue;
        turns[n++] = i;
        add_sample(&sum, &samples[i]);
    }
    if (n) {
        double values[HEADLINES];
        headlines_of(c, way, turns, n, values);
        means_of(&sum, n, compare_num_steps(c), out);
        for (int i = 0; i < HEADLINES; i++)
            memcpy((char *)out + headlines[i].value, &values[i], sizeof values[i]);
        out->tokens_per_second_prompt = speed_with_prompt(samples, turns, n);
        out->n_prompts = group_turns(samples, turns, n, starts);
        if (domain < 0) out->kept = compare_retained(c, way);
        out->accept_worst = retained_by_task(&out->kept) ? out->kept.worst : NAN;
        out->bytes_extra = (double)c->ways[way].bytes_extra;
        resample(c, way, turns, starts, out);
    }
    free(turns);
}
