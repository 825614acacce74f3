/* figures.c : from samples to figures. Counts are pooled over cycles; speeds are means over turns,
 * as Spec-Bench has it, and speed-ups ratios of such means. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "compare.h"

enum { RESAMPLES = 1000 };

int64_t loop_tokens(const int32_t *tokens, size_t n) {
    enum { LONGEST = 64, LEAST = 8 };
    size_t run[LONGEST + 1] = {0};
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        bool repeats = false;
        for (size_t p = 1; p <= LONGEST && p <= i; p++) {
            run[p] = tokens[i] == tokens[i - p] ? run[p] + 1 : 0;
            if (run[p] >= LEAST && run[p] >= 2 * p) repeats = true;
        }
        count += repeats;
    }
    return count;
}

static double rate(const turn_sample *s) {
    return s->seconds > 0 ? (double)s->n_tokens / s->seconds : 0;
}

/* The four figures that get intervals, over turns [n]. */
typedef struct headline {
    double accept_length, tokens_per_second, speedup_plain, speedup_full;
} headline;

static headline headline_of(const comparison *c, int entrant, const int *turns, int n) {
    const turn_sample *mine = c->contestants[entrant].samples;
    double emitted = 0, cycles = 0, speed = 0, plain = 0, full = 0;
    for (int i = 0; i < n; i++) {
        const turn_sample *s = &mine[turns[i]];
        emitted += (double)s->stats.n_emitted;
        cycles += (double)s->stats.n_cycles;
        speed += rate(s);
        plain += rate(&c->contestants[PLAIN].samples[turns[i]]);
        full += rate(&c->contestants[FULL].samples[turns[i]]);
    }
    return (headline){cycles > 0 ? emitted / cycles : 1, speed / n, speed / plain, speed / full};
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static interval interval_of(double *values) {
    qsort(values, RESAMPLES, sizeof *values, ascending);
    return (interval){values[RESAMPLES * 25 / 1000], values[RESAMPLES * 975 / 1000 - 1]};
}

/* The same resamples for every policy: the draws depend on the seed alone. */
static void resample(const comparison *c, int entrant, const int *turns, int n, figures *out) {
    double values[4][RESAMPLES];
    int *drawn = (int *)malloc((size_t)n * sizeof *drawn);
    for (int r = 0; drawn && r < RESAMPLES; r++) {
        for (int i = 0; i < n; i++) {
            int at[2] = {r, i};
            uint64_t x = specrt_hash64(at, sizeof at, (uint64_t)c->options.common.seed);
            drawn[i] = turns[x % (uint64_t)n];
        }
        headline h = headline_of(c, entrant, drawn, n);
        values[0][r] = h.accept_length;
        values[1][r] = h.tokens_per_second;
        values[2][r] = h.speedup_plain;
        values[3][r] = h.speedup_full;
    }
    if (drawn) {
        out->accept_length_ci = interval_of(values[0]);
        out->tokens_per_second_ci = interval_of(values[1]);
        out->speedup_plain_ci = interval_of(values[2]);
        out->speedup_full_ci = interval_of(values[3]);
    }
    free(drawn);
}

static void add_stats(specrt_session_stats *to, const specrt_session_stats *s) {
    to->n_cycles += s->n_cycles;
    to->n_emitted += s->n_emitted;
    to->n_covered += s->n_covered;
    to->n_rows += s->n_rows;
    for (int i = 0; i <= SPECRT_TREE_MAX_NODES; i++) to->n_by_length[i] += s->n_by_length[i];
}

static void add_sample(turn_sample *sum, const turn_sample *s) {
    sum->n_tokens += s->n_tokens;
    sum->n_loop += s->n_loop;
    sum->times.prefill += s->times.prefill;
    sum->times.draft += s->times.draft;
    sum->times.head += s->times.head;
    sum->times.target += s->times.target;
    sum->times.verify += s->times.verify;
    sum->times.update += s->times.update;
    add_stats(&sum->stats, &s->stats);
}

/* A cycle that emitted n tokens accepted n - 1 drafts. */
static void acceptance_of(const specrt_session_stats *s, double out[COMPARE_POSITIONS]) {
    int64_t reached = s->n_cycles;
    for (int i = 0; i < COMPARE_POSITIONS; i++) {
        int64_t accepted = 0;
        for (int n = i + 2; n <= SPECRT_TREE_MAX_NODES; n++) accepted += s->n_by_length[n];
        out[i] = reached ? (double)accepted / (double)reached : NAN;
        reached = accepted;
    }
}

static void means_of(const turn_sample *sum, int n_turns, figures *out) {
    double tokens = (double)sum->n_tokens, emitted = (double)sum->stats.n_emitted;
    double cycles = sum->stats.n_cycles ? (double)sum->stats.n_cycles : tokens - n_turns;
    if (cycles < 1) cycles = 1; /* the first token of a turn is no cycle */
    out->n_turns = n_turns;
    out->n_tokens = sum->n_tokens;
    out->coverage = emitted > 0 ? (double)sum->stats.n_covered / emitted : NAN;
    out->active_rows = sum->stats.n_cycles ? (double)sum->stats.n_rows / cycles : NAN;
    out->loop_share = tokens > 0 ? (double)sum->n_loop / tokens : 0;
    out->draft = sum->times.draft / cycles;
    out->head = sum->times.head / cycles;
    out->target = sum->times.target / cycles;
    out->verify = sum->times.verify / cycles;
    out->update = sum->times.update / cycles;
    out->prefill = sum->times.prefill / n_turns;
    acceptance_of(&sum->stats, out->acceptance);
}

void figures_of(const comparison *c, int entrant, int domain, figures *out) {
    const turn_sample *samples = c->contestants[entrant].samples;
    turn_sample sum = {0};
    int *turns = (int *)malloc((size_t)c->n_turns * sizeof *turns + 1), n = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; turns && i < c->n_turns; i++) {
        if (domain >= 0 && samples[i].domain != domain) continue;
        turns[n++] = i;
        add_sample(&sum, &samples[i]);
    }
    if (n) {
        headline h = headline_of(c, entrant, turns, n);
        means_of(&sum, n, out);
        out->accept_length = h.accept_length;
        out->tokens_per_second = h.tokens_per_second;
        out->speedup_plain = h.speedup_plain;
        out->speedup_full = h.speedup_full;
        resample(c, entrant, turns, n, out);
    }
    free(turns);
}
