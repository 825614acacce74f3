/* select.c : see select.h. */
#include "select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"

/* The groups of a ranking, in its order. */
enum { TERMINATOR, SPECIAL, KEPT, NORMAL, RESERVED };

static int group_of(const counts_vocab *v, int32_t id, const int32_t *keep, int32_t n_keep) {
    switch (v->types[id]) {
    case COUNTS_TERMINATOR: return TERMINATOR;
    case COUNTS_SPECIAL: return SPECIAL;
    default:
        if (n_keep && bsearch(&id, keep, (size_t)n_keep, sizeof id, sl_order_i32)) return KEPT;
        return v->types[id] == COUNTS_RESERVED ? RESERVED : NORMAL;
    }
}

select_limits select_limits_of(const counts_vocab *v, const int32_t *keep, int32_t n_keep) {
    select_limits limits = {0};
    for (int32_t id = 0; id < v->n_vocab; id++) {
        int group = group_of(v, id, keep, n_keep);
        limits.n_terminators += group == TERMINATOR;
        limits.n_forced += group <= KEPT;
        limits.n_valid += group != RESERVED;
    }
    return limits;
}

/* ---- ranking ---- */

typedef struct entry {
    uint64_t count;
    int32_t id, group;
} entry;

static int by_rank(const void *left, const void *right) {
    const entry *a = (const entry *)left, *b = (const entry *)right;
    int order = sl_order_i32(&a->group, &b->group);
    if (!order && a->group == NORMAL) order = (a->count < b->count) - (a->count > b->count);
    return order ? order : sl_order_i32(&a->id, &b->id);
}

/* Each domain's share is rounded by itself: then sums are exact and their order is free. */
static uint64_t weighted(uint64_t n, double weight) {
    if (weight == 1) return n;
    double x = nearbyint(weight * (double)n);
    return x < 9e18 ? (uint64_t)x : (uint64_t)9e18;
}

static void add_saturating(uint64_t *sum, uint64_t x) {
    if (__builtin_add_overflow(*sum, x, sum)) *sum = UINT64_MAX;
}

static double smallest_weight(const double *weights, int n) {
    double smallest = 0;
    for (int i = 0; i < n; i++)
        if (weights[i] > 0 && (smallest == 0 || weights[i] < smallest)) smallest = weights[i];
    return smallest;
}

/* Tokens by id: of all text, and by fold. */
typedef struct scores {
    uint64_t *all, *folds[COUNTS_MAX_FOLDS]; /* [n_vocab], owned */
    entry *entries;                          /* [n_vocab] ranked by all text, owned */
    entry *parted, *ranked;                  /* [n_vocab] of rank_rest(), owned */
    sl_arrays owned;                         /* these */
    uint64_t completions;
} scores;

static bool scores_create(scores *s, int n_folds, size_t n_vocab) {
    *s = (scores){0};
    s->all = (uint64_t *)sl_array(&s->owned, n_vocab, sizeof *s->all);
    s->entries = (entry *)sl_array(&s->owned, n_vocab, sizeof *s->entries);
    s->parted = (entry *)sl_array(&s->owned, n_vocab, sizeof *s->parted);
    s->ranked = (entry *)sl_array(&s->owned, n_vocab, sizeof *s->ranked);
    for (int f = 0; f < n_folds; f++)
        s->folds[f] = (uint64_t *)sl_array(&s->owned, n_vocab, sizeof *s->folds[f]);
    return !s->owned.failed;
}

/* All text is rounded without regard to its folds, so they do not change the ranking. */
static void sum_domain(const counts_domain *d, double weight, scores *s) {
    uint64_t n = 0;
    for (int32_t j = 0; j < d->n_rows; j++) {
        const counts_row *row = &d->rows[j];
        add_saturating(&s->folds[row->fold][row->id], weighted(row->n, weight));
        n += row->n;
        if (j + 1 < d->n_rows && d->rows[j + 1].id == row->id) continue;
        add_saturating(&s->all[row->id], weighted(n, weight));
        n = 0;
    }
    add_saturating(&s->completions, weighted(d->n_completions, weight));
}

static void sum_domains(const counts *c, const double *weights, scores *s) {
    double unit = weights ? smallest_weight(weights, c->n_domains) : 1;
    for (int i = 0; i < c->n_domains; i++)
        sum_domain(&c->domains[i], weights ? weights[i] / unit : 1, s);
}

/* A ranking's entries by id; completions end with the highest terminator. */
static void list_entries(const counts_vocab *v, const uint64_t *text, uint64_t completions,
                         const int32_t *keep, int32_t n_keep, entry *entries) {
    entry *end = NULL;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        entries[id] = (entry){text[id], id, group_of(v, id, keep, n_keep)};
        if (entries[id].group == TERMINATOR) end = &entries[id];
    }
    if (end) add_saturating(&end->count, completions);
}

static bool curve_create(rank_curve *curve, size_t n) {
    curve->position = (int32_t *)malloc(n * sizeof *curve->position);
    curve->covered = (uint64_t *)calloc(n + 1, sizeof *curve->covered);
    return curve->position && curve->covered;
}

/* @return the tokens of the text. */
static uint64_t curve_fill(rank_curve *curve, const entry *entries, const uint64_t *text,
                           int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        curve->position[entries[i].id] = i;
        curve->covered[i + 1] = curve->covered[i];
        add_saturating(&curve->covered[i + 1], text[entries[i].id]);
    }
    return curve->covered[n];
}

static void fill(calibrate_ranking *r, const scores *s) {
    specrt_ranks_header *h = &r->header;
    for (int32_t i = 0; i < h->n_ranked; i++) {
        const entry *e = &s->entries[i];
        h->n_terminators += e->group == TERMINATOR;
        h->n_forced += e->group <= KEPT;
        h->n_valid += e->group != RESERVED;
        r->ids[i] = e->id;
        r->counts[i] = e->count;
    }
    h->n_tokens = curve_fill(&r->all, s->entries, s->all, h->n_ranked);
    r->n_seen = h->n_ranked;
    while (r->n_seen > 0 && r->all.covered[r->n_seen - 1] == h->n_tokens) r->n_seen--;
}

/* The entries for all text but a fold's, in s->ranked: those that the fold lacks keep their order, the others
 * are sorted and merged into them. @return whether both the fold and the rest have text. */
static bool rank_rest(const uint64_t *text, size_t n, scores *s) {
    const uint64_t *all = s->all;
    size_t n_kept = 0, n_moved = 0, i = 0;
    bool has_rest = false;
    entry *moved = s->parted + n;
    for (size_t k = 0; k < n; k++) {
        entry e = s->entries[k];
        uint64_t inside = text[e.id];
        has_rest |= all[e.id] > inside;
        if (inside) {
            e.count = all[e.id] > inside ? all[e.id] - inside : 0;
            *--moved = e;
            n_moved++;
        } else {
            s->parted[n_kept++] = e;
        }
    }
    qsort(moved, n_moved, sizeof *moved, by_rank);
    for (size_t k = 0, j = 0; k < n; k++) {
        bool keeps = j == n_moved || (i < n_kept && by_rank(&s->parted[i], &moved[j]) < 0);
        s->ranked[k] = keeps ? s->parted[i++] : moved[j++];
    }
    return n_moved && has_rest;
}

/* @return false: no memory. */
static bool rank_fold(int fold, scores *s, calibrate_ranking *r) {
    size_t n = (size_t)r->header.n_vocab;
    if (!rank_rest(s->folds[fold], n, s)) return true;
    if (!curve_create(&r->folds[fold], n)) return false;
    curve_fill(&r->folds[fold], s->ranked, s->folds[fold], r->header.n_vocab);
    return true;
}

/* What occurred once, whatever its weight, and how much was held out. @return false: no memory. */
static bool count_unseen(const counts *c, const double *weights, calibrate_ranking *r) {
    uint64_t *plain = (uint64_t *)calloc((size_t)c->vocab.n_vocab, sizeof *plain), n = 0,
             n_once = 0;
    if (!plain) return false;
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        if (weights && !(weights[i] > 0)) continue;
        for (int32_t j = 0; j < d->n_rows; j++) add_saturating(&plain[d->rows[j].id], d->rows[j].n);
        add_saturating(&r->n_held_out, calibrate_ranking_held_out(r, d));
    }
    for (int32_t id = 0; id < c->vocab.n_vocab; id++) {
        add_saturating(&n, plain[id]);
        n_once += plain[id] == 1;
    }
    r->unseen = n ? (double)n_once / (double)n : 1;
    free(plain);
    return true;
}

static bool rank_all(const counts *c, const double *weights, const int32_t *keep, int32_t n_keep,
                     scores *s, calibrate_ranking *r) {
    size_t n = (size_t)c->vocab.n_vocab;
    r->ids = (int32_t *)malloc(n * sizeof *r->ids);
    r->counts = (uint64_t *)malloc(n * sizeof *r->counts);
    if (!r->ids || !r->counts || !curve_create(&r->all, n)) return false;
    sum_domains(c, weights, s);
    list_entries(&c->vocab, s->all, s->completions, keep, n_keep, s->entries);
    qsort(s->entries, n, sizeof *s->entries, by_rank);
    fill(r, s);
    for (int fold = 0; fold < r->n_folds; fold++)
        if (sl_counts_holds_out(c, fold) && !rank_fold(fold, s, r)) return false;
    return count_unseen(c, weights, r);
}

specrt_status calibrate_ranking_create(const counts *c, const double *weights, const int32_t *keep,
                                       int32_t n_keep, calibrate_ranking *out, specrt_error *err) {
    scores s;
    int32_t n = c->vocab.n_vocab;
    *out = (calibrate_ranking){.header = {.n_vocab = n, .n_ranked = n},
                               .n_folds = sl_counts_n_folds(c)};
    bool ok =
        scores_create(&s, out->n_folds, (size_t)n) && rank_all(c, weights, keep, n_keep, &s, out);
    sl_arrays_free(&s.owned);
    if (!ok) calibrate_ranking_free(out);
    return ok ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
}

static void curve_free(rank_curve *curve) {
    free(curve->position);
    free(curve->covered);
}

void calibrate_ranking_free(calibrate_ranking *r) {
    free(r->ids);
    free(r->counts);
    curve_free(&r->all);
    for (int fold = 0; fold < r->n_folds; fold++) curve_free(&r->folds[fold]);
    *r = (calibrate_ranking){0};
}

/* ---- coverage ---- */

double calibrate_ranking_coverage(const calibrate_ranking *r, int kind, int32_t size) {
    double all = 0, covered = 0;
    int32_t n = r->header.n_ranked;
    if (kind == COVERAGE_RANKED) {
        all = (double)r->all.covered[n];
        covered = (double)r->all.covered[size];
    }
    for (int fold = 0; kind == COVERAGE_HOLDOUT && fold < r->n_folds; fold++) {
        if (!r->folds[fold].position) continue;
        all += (double)r->folds[fold].covered[n];
        covered += (double)r->folds[fold].covered[size];
    }
    return all > 0 ? covered / all : NAN;
}

uint64_t calibrate_ranking_held_out(const calibrate_ranking *r, const counts_domain *d) {
    uint64_t n = 0;
    for (int32_t j = 0; j < d->n_rows; j++)
        if (r->folds[d->rows[j].fold].position) n += d->rows[j].n;
    return n;
}

double calibrate_ranking_estimate(const calibrate_ranking *r, int32_t size) {
    double known = calibrate_ranking_coverage(r, COVERAGE_RANKED, size) * (1 - r->unseen);
    int32_t n_new = r->header.n_valid - r->n_seen;
    if (size <= r->n_seen || n_new <= 0) return known;
    return known + r->unseen * fmin(1, (double)(size - r->n_seen) / n_new);
}

void calibrate_ranking_coverage_domain(const calibrate_ranking *r, const counts_domain *d, int kind,
                                       const int32_t *sizes, int n_sizes, double *out) {
    double all = 0, inside = 0;
    for (int k = 0; k < n_sizes; k++) out[k] = 0;
    for (int32_t j = 0; j < d->n_rows; j++) {
        const counts_row *row = &d->rows[j];
        const rank_curve *curve = kind == COVERAGE_RANKED ? &r->all : &r->folds[row->fold];
        if (!curve->position) continue;
        int k = 0; /* most tokens are of low ranks */
        while (k < n_sizes && sizes[k] <= curve->position[row->id]) k++;
        if (k < n_sizes) out[k] += (double)row->n;
        all += (double)row->n;
    }
    for (int k = 0; k < n_sizes; k++) {
        inside += out[k];
        out[k] = all > 0 ? inside / all : NAN;
    }
}

coverage_range calibrate_ranking_interval(const calibrate_ranking *r, const counts_domain *d,
                                          int32_t size) {
    double all[COUNTS_MAX_FOLDS] = {0}, covered[COUNTS_MAX_FOLDS] = {0};
    for (int fold = 0; !d && fold < r->n_folds; fold++) {
        if (!r->folds[fold].position) continue;
        all[fold] = (double)r->folds[fold].covered[r->header.n_ranked];
        covered[fold] = (double)r->folds[fold].covered[size];
    }
    for (int32_t j = 0; d && j < d->n_rows; j++) {
        const counts_row *row = &d->rows[j];
        if (!r->folds[row->fold].position) continue;
        all[row->fold] += (double)row->n;
        if (r->folds[row->fold].position[row->id] < size) covered[row->fold] += (double)row->n;
    }
    uint64_t n_tokens = d ? calibrate_ranking_held_out(r, d) : r->n_held_out;
    return sl_coverage_range(covered, all, r->n_folds, (double)n_tokens);
}

/* ---- size ---- */

static specrt_status size_error(const select_limits *limits, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s; expected %" PRId32 " (terminators, specials and kept ids; at "
                            "least 1) to %" PRId32 " (ids that are no placeholders)",
                            what, limits->n_forced > 1 ? limits->n_forced : 1, limits->n_valid);
}

specrt_status select_size_check(const select_limits *limits, double size, specrt_error *err) {
    char what[64];
    if (size >= 1 && size >= limits->n_forced && size <= limits->n_valid) return SPECRT_STATUS_OK;
    snprintf(what, sizeof what, "--size %.0f", size);
    return size_error(limits, what, err);
}

double select_mass_needs(double share) {
    return 3 / fmax(1 - share, 1e-12);
}

int32_t select_smallest(double (*value)(const void *context, int32_t size), const void *context,
                        double least, int32_t low, int32_t high) {
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (value(context, middle) >= least)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static double held_out_coverage(const void *ranking, int32_t size) {
    return calibrate_ranking_coverage((const calibrate_ranking *)ranking, COVERAGE_HOLDOUT, size);
}

static double estimated_coverage(const void *ranking, int32_t size) {
    return calibrate_ranking_estimate((const calibrate_ranking *)ranking, size);
}

static int32_t size_of_mass(const calibrate_ranking *r, double share) {
    int32_t size = r->header.n_forced, most = r->header.n_valid;
    if (r->n_held_out) size = select_smallest(held_out_coverage, r, share, size, most);
    if ((double)r->n_held_out >= select_mass_needs(share)) return size;
    return select_smallest(estimated_coverage, r, share, size, most);
}

static int32_t size_of_min_count(const calibrate_ranking *r, double least) {
    int32_t size = r->header.n_forced;
    while (size < r->header.n_valid && (double)r->counts[size] >= least) size++;
    return size;
}

static specrt_status size_of_budget(const select_limits *limits, double mib, size_t row_bytes,
                                    int32_t *size, specrt_error *err) {
    char what[128];
    double rows = floor(mib * 1048576.0 / (double)row_bytes);
    *size = rows < limits->n_valid ? (int32_t)rows : limits->n_valid;
    if (*size >= 1 && *size >= limits->n_forced) return SPECRT_STATUS_OK;
    snprintf(what, sizeof what, "--budget-mib %g fits %.0f rows of %zu bytes", mib, rows,
             row_bytes);
    return size_error(limits, what, err);
}

specrt_status select_size(const calibrate_ranking *r, select_rule rule, double value,
                          size_t row_bytes, int32_t *size, specrt_error *err) {
    const specrt_ranks_header *h = &r->header;
    select_limits limits = {h->n_terminators, h->n_forced, h->n_valid};
    switch (rule) {
    case SELECT_SIZE: {
        specrt_status status = select_size_check(&limits, value, err);
        *size = status == SPECRT_STATUS_OK ? (int32_t)value : 0;
        return status;
    }
    case SELECT_MASS: *size = size_of_mass(r, value); break;
    case SELECT_MIN_COUNT: *size = size_of_min_count(r, value); break;
    case SELECT_BUDGET: return size_of_budget(&limits, value, row_bytes, size, err);
    case SELECT_LOSS: break;
    }
    /* Without forced ids a rule may ask for nothing, which no list can be. */
    if (*size < 1) *size = 1;
    return SPECRT_STATUS_OK;
}
