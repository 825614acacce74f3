/* sweep.h : what each size of the vocabulary would bring. docs/methods/vocabtrim.md derives the formulas. */
#ifndef VOCABTRIM_CALIBRATE_SWEEP_H
#define VOCABTRIM_CALIBRATE_SWEEP_H

#include "select.h"

/* A drafter beside its target, for estimates of speed. */
typedef struct speed_model {
    double *rates; /* [n_rates] acceptance by draft position with the full vocabulary, owned */
    int n_rates;   /* head evaluations of a cycle: gamma; 0: nothing is known */
    double target_params;
    double draft_params; /* all of the drafter's, its embedding and full head included */
    double d_draft;      /* parameters of one head row */
    int32_t n_rows;      /* rows of the full head */
    const char *source;  /* where the parameters come from, for people; static */
} speed_model;

/* Nothing above 3 is known without rates, nothing above 4 without parameters: NaN then. */
typedef struct sweep_row {
    int32_t size;
    double coverage[COVERAGE_KINDS];
    coverage_range holdout; /* 95% interval of coverage on held-out text */
    double tau;             /* expected accept length, bonus token included */
    double c;               /* drafter parameters at this size / target parameters */
    double mbsu;            /* memory-bound speed-up */
} sweep_row;

typedef struct sweep {
    sweep_row *rows; /* [n_rows] by ascending size, owned */
    int n_rows;
    int chosen; /* row of the chosen size */
    int best;   /* row of the highest MBSU; -1: none is known */
} sweep;

/* speed_tau() : 1 + sum over i of prod over j <= i of rates[j] * coverage. */
double speed_tau(const double *rates, int n_rates, double coverage);

/* speed_c() : parameters of the drafter with `size` head rows over the target's. */
double speed_c(const speed_model *m, int32_t size);

/* speed_mbsu() : tau / (c * gamma + 1). */
double speed_mbsu(double tau, double c, int gamma);

/* What a list covers least of held-out text. */
typedef struct sweep_worst {
    int domain; /* of those with a thousandth of the text; -1: all text is covered less */
    double coverage, tau;
    coverage_range range; /* 95% interval of tau */
} sweep_worst;

/* sweep_worst_of() : the domain of the least coverage, and the accept length that follows from the rates. */
sweep_worst sweep_worst_of(const calibrate_ranking *r, const counts *c, const speed_model *m,
                           int32_t size);

/* sweep_size_of_loss() : the smallest size whose accept length in the worst domain is at least 1 - loss of
 * the whole vocabulary's; all valid ids where nothing was held out. */
int32_t sweep_size_of_loss(const calibrate_ranking *r, const counts *c, const speed_model *m,
                           double loss);

/* sweep_create() : 512, 1k, 2k ... below the full vocabulary, the full vocabulary and `chosen`. The
 * hold-out coverage goes into tau where there is one. */
specrt_status sweep_create(const calibrate_ranking *r, const speed_model *m, int32_t chosen,
                           sweep *out, specrt_error *err);
void sweep_free(sweep *s);

#endif
