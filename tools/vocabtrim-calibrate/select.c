/* select.c : see select.h. */
#include "select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/order.h"

/* The groups of a ranking, in its order. */
enum { TERMINATOR, SPECIAL, KEPT, NORMAL, RESERVED };

static bool is_kept(int32_t id, const int32_t *keep, int32_t n_keep) {
    int32_t low = 0, high = n_keep;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (keep[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_keep && keep[low] == id;
}

static int group_of(const counts_vocab *v, int32_t id, const int32_t *keep, int32_t n_keep) {
    switch (v->types[id]) {
    case COUNTS_TERMINATOR: return TERMINATOR;
    case COUNTS_SPECIAL: return SPECIAL;
    default:
        if (is_kept(id, keep, n_keep)) return KEPT;
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

/* Tokens by id and split over all domains; *completions: of the calibration part. */
static void sum_domains(const counts *c, const double *weights, uint64_t *scores[COUNTS_SPLITS],
                        uint64_t *completions) {
    double unit = weights ? smallest_weight(weights, c->n_domains) : 1;
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        double weight = weights ? weights[i] / unit : 1;
        for (int32_t j = 0; j < d->n_rows; j++)
            for (int s = 0; s < COUNTS_SPLITS; s++)
                add_saturating(&scores[s][d->rows[j].id], weighted(d->rows[j].n[s], weight));
        add_saturating(completions, weighted(d->n_completions[COUNTS_CALIBRATION], weight));
    }
}

/* A ranking's entries by id; completions end with the highest terminator. */
static void list_entries(const counts_vocab *v, const uint64_t *scores, uint64_t completions,
                         const int32_t *keep, int32_t n_keep, entry *entries) {
    entry *end = NULL;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        entries[id] = (entry){scores[id], id, group_of(v, id, keep, n_keep)};
        if (entries[id].group == TERMINATOR) end = &entries[id];
    }
    if (end) add_saturating(&end->count, completions);
}

static void fill(calibrate_ranking *r, const entry *entries, uint64_t *scores[COUNTS_SPLITS]) {
    specrt_ranks_header *h = &r->header;
    for (int32_t i = 0; i < h->n_ranked; i++) {
        int32_t id = entries[i].id;
        h->n_terminators += entries[i].group == TERMINATOR;
        h->n_forced += entries[i].group <= KEPT;
        h->n_valid += entries[i].group != RESERVED;
        r->ids[i] = id;
        r->counts[i] = entries[i].count;
        r->position[id] = i;
        for (int s = 0; s < COUNTS_SPLITS; s++) {
            r->covered[s][i + 1] = r->covered[s][i];
            add_saturating(&r->covered[s][i + 1], scores[s][id]);
        }
    }
    h->n_tokens = r->covered[COUNTS_CALIBRATION][h->n_ranked];
    r->n_seen = h->n_ranked;
    while (r->n_seen > 0 && r->covered[COUNTS_CALIBRATION][r->n_seen - 1] == h->n_tokens)
        r->n_seen--;
}

/* What occurred once, whatever its weight, and how much was held out. @return false: no memory. */
static bool count_unseen(const counts *c, const double *weights, calibrate_ranking *r) {
    uint64_t *plain = (uint64_t *)calloc((size_t)c->vocab.n_vocab, sizeof *plain), n = 0,
             n_once = 0;
    if (!plain) return false;
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        if (weights && !(weights[i] > 0)) continue;
        for (int32_t j = 0; j < d->n_rows; j++)
            add_saturating(&plain[d->rows[j].id], d->rows[j].n[COUNTS_CALIBRATION]);
        add_saturating(&r->n_held_out, d->n_tokens[COUNTS_HOLDOUT]);
    }
    for (int32_t id = 0; id < c->vocab.n_vocab; id++) {
        add_saturating(&n, plain[id]);
        n_once += plain[id] == 1;
    }
    r->unseen = n ? (double)n_once / (double)n : 1;
    free(plain);
    return true;
}

static bool allocate(calibrate_ranking *r, size_t n) {
    r->ids = (int32_t *)malloc(n * sizeof *r->ids);
    r->counts = (uint64_t *)malloc(n * sizeof *r->counts);
    r->position = (int32_t *)malloc(n * sizeof *r->position);
    for (int s = 0; s < COUNTS_SPLITS; s++)
        r->covered[s] = (uint64_t *)calloc(n + 1, sizeof *r->covered[s]);
    return r->ids && r->counts && r->position && r->covered[0] && r->covered[1];
}

specrt_status calibrate_ranking_create(const counts *c, const double *weights, const int32_t *keep,
                                       int32_t n_keep, calibrate_ranking *out, specrt_error *err) {
    size_t n = (size_t)c->vocab.n_vocab;
    uint64_t completions = 0, *scores[COUNTS_SPLITS];
    entry *entries = (entry *)malloc(n * sizeof *entries);
    for (int s = 0; s < COUNTS_SPLITS; s++) scores[s] = (uint64_t *)calloc(n, sizeof *scores[s]);
    *out =
        (calibrate_ranking){.header = {.n_vocab = c->vocab.n_vocab, .n_ranked = c->vocab.n_vocab}};
    bool ok =
        allocate(out, n) && entries && scores[0] && scores[1] && count_unseen(c, weights, out);
    if (ok) {
        sum_domains(c, weights, scores, &completions);
        list_entries(&c->vocab, scores[COUNTS_CALIBRATION], completions, keep, n_keep, entries);
        qsort(entries, n, sizeof *entries, by_rank);
        fill(out, entries, scores);
    } else {
        calibrate_ranking_free(out);
    }
    for (int s = 0; s < COUNTS_SPLITS; s++) free(scores[s]);
    free(entries);
    return ok ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
}

void calibrate_ranking_free(calibrate_ranking *r) {
    free(r->ids);
    free(r->counts);
    free(r->position);
    for (int s = 0; s < COUNTS_SPLITS; s++) free(r->covered[s]);
    *r = (calibrate_ranking){0};
}

/* ---- coverage ---- */

double calibrate_ranking_coverage(const calibrate_ranking *r, int split, int32_t size) {
    uint64_t all = r->covered[split][r->header.n_ranked];
    return all ? (double)r->covered[split][size] / (double)all : NAN;
}

double calibrate_ranking_estimate(const calibrate_ranking *r, int32_t size) {
    double known = calibrate_ranking_coverage(r, COUNTS_CALIBRATION, size) * (1 - r->unseen);
    int32_t n_new = r->header.n_valid - r->n_seen;
    if (size <= r->n_seen || n_new <= 0) return known;
    return known + r->unseen * fmin(1, (double)(size - r->n_seen) / n_new);
}

/* The first of the ascending sizes that a rank lies under; n_sizes: none. */
static int first_size_over(const int32_t *sizes, int n_sizes, int32_t rank) {
    int low = 0, high = n_sizes;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (sizes[middle] > rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void calibrate_ranking_coverage_domain(const calibrate_ranking *r, const counts_domain *d,
                                       int split, const int32_t *sizes, int n_sizes, double *out) {
    double all = (double)d->n_tokens[split], inside = 0;
    for (int k = 0; k < n_sizes; k++) out[k] = 0;
    for (int32_t j = 0; j < d->n_rows; j++) {
        int k = first_size_over(sizes, n_sizes, r->position[d->rows[j].id]);
        if (k < n_sizes) out[k] += (double)d->rows[j].n[split];
    }
    for (int k = 0; k < n_sizes; k++) {
        inside += out[k];
        out[k] = all > 0 ? inside / all : NAN;
    }
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

double select_deviation(double share, double n) {
    return sqrt(10 * share * (1 - share) / fmax(n, 1));
}

double select_mass_wants(double share) {
    return 160 * share / fmax(1 - share, 1e-12);
}

static double held_out_coverage(const calibrate_ranking *r, int32_t size) {
    return calibrate_ranking_coverage(r, COUNTS_HOLDOUT, size);
}

/* The smallest size from `low` on that covers the share; no kind of coverage ever falls. */
static int32_t smallest_size(const calibrate_ranking *r, double share, int32_t low,
                             double (*coverage)(const calibrate_ranking *r, int32_t size)) {
    int32_t high = r->header.n_valid;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (coverage(r, middle) >= share)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int32_t size_of_mass(const calibrate_ranking *r, double share) {
    int32_t size = r->header.n_forced;
    if (r->n_held_out) size = smallest_size(r, share, size, held_out_coverage);
    if ((double)r->n_held_out >= select_mass_needs(share)) return size;
    return smallest_size(r, share, size, calibrate_ranking_estimate);
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
    }
    /* Without forced ids a rule may ask for nothing, which no list can be. */
    if (*size < 1) *size = 1;
    return SPECRT_STATUS_OK;
}
