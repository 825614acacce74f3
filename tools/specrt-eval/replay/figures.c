/* figures.c : from sums over sequences to figures and their intervals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "impl.h"

int replay_n_domains(const replay *r) {
    return r->n_domains;
}

const char *replay_domain(const replay *r, int domain) {
    return r->domains[domain];
}

const char *replay_policy_text(const replay *r, int policy) {
    return r->ways[policy + 1].text;
}

const specrt_tree_params *replay_tree(const replay *r, int tree) {
    return &r->trees[tree];
}

bool replay_is_cut(const replay *r) {
    return r->cut;
}

bool replay_knows_drafter(const replay *r) {
    return r->levels[0].reached[0] > 0;
}

const char *replay_span_name(int span) {
    static const char *const names[REPLAY_SPANS] = {"0-32",    "32-64",   "64-128",
                                                    "128-256", "256-512", "512-"};
    return names[span];
}

const char *replay_recall_name(int i) {
    static const char *const names[REPLAY_RECALLS] = {"target_1", "target_all", "draft_10",
                                                      "draft_all"};
    return names[i];
}

/* ---- intervals ---- */

/* Cornish and Fisher's expansion; exact forms where it is too coarse. */
double replay_student_quantile(int64_t df) {
    const double z = 1.959963984540054, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    double n = (double)df;
    if (df == 1) return 12.706204736432095;
    if (df == 2) return 4.302652729911275;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

replay_figure replay_ratio(const replay_pair *pairs, int64_t n) {
    double y = 0, x = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) y += pairs[i].y, x += pairs[i].x;
    replay_figure f = {x > 0 ? y / x : NAN, NAN, NAN};
    if (n < 2 || !(x > 0)) return f;
    for (int64_t i = 0; i < n; i++) {
        double residual = pairs[i].y - f.value * pairs[i].x;
        squares += residual * residual;
    }
    double error = sqrt(squares * (double)n / (double)(n - 1)) / x;
    f.low = f.value - replay_student_quantile(n - 1) * error;
    f.high = f.value + replay_student_quantile(n - 1) * error;
    return f;
}

/* ---- figures ---- */

typedef enum pair_kind { COVERAGE, ROWS, MASS, ACCEPT, KINDS } pair_kind;

static replay_pair pair_of(const replay *r, const replay_way *e, int tree, int64_t i,
                           pair_kind kind) {
    const replay_shared *shared = &r->shared[i];
    const replay_sums *sums = &e->sums[i];
    const replay_walked *walked = &e->walked[i * r->n_trees + tree];
    switch (kind) {
    case COVERAGE: return (replay_pair){sums->n_covered, shared->n_tokens};
    case ROWS: return (replay_pair){(double)sums->n_rows, sums->n_cycles};
    case MASS: return (replay_pair){sums->mass, shared->n_tokens};
    default: return (replay_pair){walked->n_emitted, walked->n_cycles};
    }
}

static replay_figure figure_of(const replay *r, const replay_way *e, int tree, int domain,
                               pair_kind kind, replay_pair *pairs) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_sequences; i++) {
        if (domain >= 0 && r->shared[i].domain != domain) continue;
        pairs[n++] = pair_of(r, e, tree, i, kind);
    }
    return replay_ratio(pairs, n);
}

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

static void count_shared(const replay *r, const replay_way *e, int domain, replay_figures *out) {
    double known = 0, wanted[REPLAY_RECALLS] = {0}, held[REPLAY_RECALLS] = {0};
    for (int64_t i = 0; i < r->n_sequences; i++) {
        const replay_shared *s = &r->shared[i];
        if (domain >= 0 && s->domain != domain) continue;
        out->n_sequences++;
        out->n_cycles += s->n_cycles;
        out->n_tokens += s->n_tokens;
        out->prompt_tokens += s->n_prompt;
        known += s->mass;
        for (int k = 0; k < REPLAY_RECALLS; k++) {
            wanted[k] += (double)s->wanted[k];
            held[k] += (double)e->sums[i].held[k];
        }
    }
    out->prompt_tokens = ratio(out->prompt_tokens, (double)out->n_sequences);
    out->mass_known = known > 0 ? ratio(known, (double)out->n_tokens) : NAN;
    for (int k = 0; k < REPLAY_RECALLS; k++) out->recall[k] = ratio(held[k], wanted[k]);
}

static void count_levels(const replay *r, const replay_way *e, int tree, replay_figures *out) {
    for (int i = 0; i < REPLAY_POSITIONS; i++) {
        const replay_levels *levels = &e->levels[tree];
        bool there = i < r->trees[tree].num_steps;
        out->acceptance[i] =
            there ? ratio((double)levels->accepted[i], (double)levels->reached[i]) : NAN;
    }
    for (int k = 0; k < REPLAY_SPANS; k++) {
        const replay_span *s = &e->spans[k];
        out->span_coverage[k] = ratio((double)s->n_covered, (double)s->n_tokens);
        out->span_accept_length[k] = ratio((double)s->n_emitted[tree], (double)s->n_cycles[tree]);
    }
}

/* What a list cannot have is no part of an interval. */
static replay_figure clip(replay_figure f, double low, double high) {
    if (f.low < low) f.low = low;
    if (f.high > high) f.high = high;
    return f;
}

static void hide_estimates(replay_figures *out) {
    out->accept_length = (replay_figure){NAN, NAN, NAN};
    for (int i = 0; i < REPLAY_POSITIONS; i++) out->acceptance[i] = NAN;
    for (int i = 0; i < REPLAY_SPANS; i++) out->span_accept_length[i] = NAN;
}

void replay_figures_of(const replay *r, int policy, int tree, int domain, replay_figures *out) {
    const replay_way *e = &r->ways[policy + 1];
    replay_pair *pairs = (replay_pair *)malloc((size_t)r->n_sequences * sizeof *pairs);
    memset(out, 0, sizeof *out);
    if (!pairs) return;
    count_shared(r, e, domain, out);
    count_levels(r, e, tree, out);
    out->coverage = clip(figure_of(r, e, tree, domain, COVERAGE, pairs), 0, 1);
    out->shortlist_rows = clip(figure_of(r, e, tree, domain, ROWS, pairs), 0, r->infos[0]->n_vocab);
    out->mass = clip(figure_of(r, e, tree, domain, MASS, pairs), 0, 1);
    if (isnan(out->mass_known)) out->mass = (replay_figure){NAN, NAN, NAN};
    out->accept_length =
        clip(figure_of(r, e, tree, domain, ACCEPT, pairs), 1, r->trees[tree].num_steps + 1);
    out->exact_coverage = e->exact_coverage && !(e->reads_draft_input && r->untold);
    out->exact_rows = e->exact_rows;
    out->exact_accept_length = e->recorded && tree == 0;
    bool told = r->infos[0]->draft != SPECRT_DRAFT_SAMPLED && replay_knows_drafter(r);
    if (!out->exact_accept_length && !told) hide_estimates(out);
    for (int i = 0; domain >= 0 && i < REPLAY_POSITIONS; i++) out->acceptance[i] = NAN;
    for (int i = 0; domain >= 0 && i < REPLAY_SPANS; i++)
        out->span_coverage[i] = out->span_accept_length[i] = NAN;
    free(pairs);
}
