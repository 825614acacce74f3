/* sweep.c : see sweep.h. */
#include "sweep.h"

#include <math.h>
#include <stdlib.h>
#include "base/error.h"

enum { MAX_ROWS = 40 };

double speed_tau(const double *rates, int n_rates, double coverage) {
    double tau = 1, reached = 1;
    for (int i = 0; i < n_rates; i++) {
        reached *= rates[i] * coverage;
        tau += reached;
    }
    return tau;
}

double speed_c(const speed_model *m, int32_t size) {
    return (m->draft_params - (double)(m->n_rows - size) * m->d_draft) / m->target_params;
}

double speed_mbsu(double tau, double c, int gamma) {
    return tau / (c * gamma + 1);
}

/* The sizes, ascending and distinct. */
static int sizes_of(const specrt_ranks_header *h, int32_t chosen, int32_t sizes[MAX_ROWS]) {
    int n = 0;
    bool placed = false;
    for (int32_t size = 512;; size = size <= h->n_valid / 2 ? size * 2 : h->n_valid) {
        if (size > h->n_valid) size = h->n_valid;
        if (!placed && chosen <= size) {
            if (chosen < size) sizes[n++] = chosen;
            placed = true;
        }
        if (size >= h->n_forced) sizes[n++] = size;
        if (size == h->n_valid) return n;
    }
}

static sweep_row row_of(const calibrate_ranking *r, const speed_model *m, int32_t size) {
    sweep_row row = {.size = size, .tau = NAN, .c = NAN, .mbsu = NAN};
    for (int s = 0; s < COVERAGE_KINDS; s++)
        row.coverage[s] = calibrate_ranking_coverage(r, s, size);
    row.holdout = calibrate_ranking_interval(r, NULL, size);
    double coverage = row.coverage[COVERAGE_HOLDOUT];
    if (isnan(coverage)) coverage = row.coverage[COVERAGE_RANKED];
    if (m->n_rates) row.tau = speed_tau(m->rates, m->n_rates, coverage);
    if (m->n_rates && m->target_params > 0) {
        row.c = speed_c(m, size);
        row.mbsu = speed_mbsu(row.tau, row.c, m->n_rates);
    }
    return row;
}

/* The least coverage of held-out text, and the domain that has it. */
static double worst_coverage(const calibrate_ranking *r, const counts *c, int32_t size,
                             int *domain) {
    double worst = calibrate_ranking_coverage(r, COVERAGE_HOLDOUT, size), coverage;
    *domain = -1;
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        if (1000 * calibrate_ranking_held_out(r, d) < r->n_held_out) continue;
        calibrate_ranking_coverage_domain(r, d, COVERAGE_HOLDOUT, &size, 1, &coverage);
        if (coverage < worst) worst = coverage, *domain = i;
    }
    return worst;
}

sweep_worst sweep_worst_of(const calibrate_ranking *r, const counts *c, const speed_model *m,
                           int32_t size) {
    sweep_worst worst;
    worst.coverage = worst_coverage(r, c, size, &worst.domain);
    const counts_domain *d = worst.domain < 0 ? NULL : &c->domains[worst.domain];
    coverage_range range = calibrate_ranking_interval(r, d, size);
    worst.tau = speed_tau(m->rates, m->n_rates, worst.coverage);
    worst.range.low = speed_tau(m->rates, m->n_rates, range.low);
    worst.range.high = speed_tau(m->rates, m->n_rates, range.high);
    return worst;
}

typedef struct worst_of {
    const calibrate_ranking *r;
    const counts *c;
    const speed_model *m;
} worst_of;

static double worst_tau(const void *context, int32_t size) {
    const worst_of *w = (const worst_of *)context;
    int domain;
    return speed_tau(w->m->rates, w->m->n_rates, worst_coverage(w->r, w->c, size, &domain));
}

int32_t sweep_size_of_loss(const calibrate_ranking *r, const counts *c, const speed_model *m,
                           double loss) {
    const worst_of w = {r, c, m};
    double least = (1 - loss) * speed_tau(m->rates, m->n_rates, 1);
    int32_t low = r->header.n_forced > 1 ? r->header.n_forced : 1;
    return select_smallest(worst_tau, &w, least, low, r->header.n_valid);
}

specrt_status sweep_create(const calibrate_ranking *r, const speed_model *m, int32_t chosen,
                           sweep *out, specrt_error *err) {
    int32_t sizes[MAX_ROWS];
    int n = sizes_of(&r->header, chosen, sizes);
    *out = (sweep){.n_rows = n, .best = -1};
    out->rows = (sweep_row *)malloc((size_t)n * sizeof *out->rows);
    if (!out->rows) return sl_error_no_memory(err, NULL);
    for (int i = 0; i < n; i++) {
        const sweep_row *row = &out->rows[i];
        out->rows[i] = row_of(r, m, sizes[i]);
        if (sizes[i] == chosen) out->chosen = i;
        /* Of equals the smaller size. */
        if (!isnan(row->mbsu) && (out->best < 0 || row->mbsu > out->rows[out->best].mbsu))
            out->best = i;
    }
    return SPECRT_STATUS_OK;
}

void sweep_free(sweep *s) {
    free(s->rows);
    *s = (sweep){0};
}
