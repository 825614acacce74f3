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

/* sweep_create() : 1k, 2k, 4k ... below the full vocabulary, the full vocabulary and `chosen`. The
 * hold-out coverage goes into tau where there is one. */
specrt_status sweep_create(const calibrate_ranking *r, const speed_model *m, int32_t chosen,
                           sweep *out, specrt_error *err);
void sweep_free(sweep *s);

#endif
