/* distribution.h : the oracle of sampling tests. A target's distribution by the definition, in double and by
 * a full sort; a toy target whose every continuation has an exact probability; and how far counts are from a
 * distribution. */
#ifndef DISTRIBUTION_H
#define DISTRIBUTION_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "fixture.h"

enum { DISTRIBUTION_MAX_VOCAB = 128256 };

typedef struct distribution_row {
    double x;
    int id;
} distribution_row;

static inline int distribution_by_rank(const void *a, const void *b) {
    const distribution_row *x = (const distribution_row *)a, *y = (const distribution_row *)b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* p [n]: temperature, top-k, top-p, min-p, each on what the one before left. */
static inline void distribution_of(const float *logits, int n, const specrt_sampling *s,
                                   double *p) {
    static __thread distribution_row rows[DISTRIBUTION_MAX_VOCAB];
    int kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double total = 0, cut = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        rows[i] = (distribution_row){logits[i] == logits[i] ? (double)logits[i] : -INFINITY, i};
        p[i] = 0;
    }
    qsort(rows, (size_t)n, sizeof *rows, distribution_by_rank);
    if (s->temperature == 0) {
        p[rows[0].id] = 1;
        return;
    }
    double best = rows[0].x;
    for (int i = 0; i < n; i++) rows[i].x = exp((rows[i].x - best) / (double)s->temperature);
    for (int i = 0; i < kept; i++) total += rows[i].x;
    for (int i = 0; i < kept; i++) {
        bool in_nucleus = s->top_p == 0 || s->top_p == 1 || cut < (double)s->top_p * total;
        cut += rows[i].x;
        if (in_nucleus && rows[i].x >= (double)s->min_p) sum += p[rows[i].id] = rows[i].x;
    }
    for (int i = 0; i < n; i++) p[i] /= sum;
}

/* Whether the token is the one at which the running sum of p [n], in the order of ids, passes u. */
static inline bool distribution_picks(const double *p, int n, double u, int token) {
    const double rounding = 1e-5; /* of float weights */
    double before = 0;
    if (token < 0 || token >= n || p[token] == 0) return false;
    for (int i = 0; i < token; i++) before += p[i];
    return before - rounding <= u && u <= before + p[token] + rounding;
}

/* --- a toy target: logits follow from the last two tokens --- */

enum { TOY_V = 8, TOY_CELLS = TOY_V * TOY_V * TOY_V, TOY_KINDS = 3 };

static inline void toy_make(int kind, int before, int last, float *out) {
    uint64_t target = (uint64_t)(before * TOY_V + last + 3) * 0x9E3779B97F4A7C15u;
    uint64_t other = target ^ (uint64_t)kind * 0xD6E8FEB86659FD93u;
    for (int i = 0; i < TOY_V; i++) {
        out[i] = 1.5f * fixture_normal(&target);
        if (kind > 0) out[i] = 0.6f * out[i] + 1.2f * fixture_normal(&other);
    }
}

/* Logits f32 [TOY_V] after two tokens; kind 0 is the target, others disagree with it. Kept, since a
 * distribution asks for the same few millions of times. */
static inline void toy_logits(int kind, int before, int last, float *out) {
    static __thread float kept[TOY_KINDS][TOY_V * TOY_V][TOY_V];
    static __thread bool made[TOY_KINDS][TOY_V * TOY_V];
    int context = before * TOY_V + last;
    if (!made[kind][context]) toy_make(kind, before, last, kept[kind][context]);
    made[kind][context] = true;
    memcpy(out, kept[kind][context], sizeof kept[kind][context]);
}

/* Probabilities [TOY_CELLS] of the three tokens after two; cell = (a * TOY_V + b) * TOY_V + c. */
static inline void toy_joint(int before, int last, const specrt_sampling *s, double *p) {
    for (int cell = 0; cell < TOY_CELLS; cell++) {
        int t[5] = {before, last, cell / TOY_V / TOY_V, cell / TOY_V % TOY_V, cell % TOY_V};
        p[cell] = 1;
        for (int n = 2; n < 5; n++) {
            float logits[TOY_V];
            double row[TOY_V];
            toy_logits(0, t[n - 2], t[n - 1], logits);
            distribution_of(logits, TOY_V, s, row);
            p[cell] *= row[t[n]];
        }
    }
}

/* --- goodness of fit --- */

typedef struct distribution_fit {
    double chi; /* the chi-square statistic */
    double tv; /* total variation; both in standard deviations above what chance gives on average */
} distribution_fit;

/* Counts against probabilities [n_cells]; cells that expect fewer than 5 are pooled. A count where
 * there can be none is infinitely far. */
static inline distribution_fit distribution_fit_of(const int *seen, const double *p, int n_cells,
                                                   int n) {
    double chi2 = 0, tv = 0, chance = 0, variance = 0, pooled_seen = 0, pooled = 0;
    int n_free = -1;
    for (int i = 0; i < n_cells; i++) {
        double expected = n * p[i], off = seen[i] - expected;
        if (p[i] == 0 && seen[i] > 0) return (distribution_fit){INFINITY, INFINITY};
        tv += fabs(off) / 2 / n;
        /* |off| is half-normal: its mean is sqrt(2 / pi) of a deviation, its variance 1 - 2 / pi */
        chance += sqrt(0.6366 * p[i] * (1 - p[i]) / n) / 2;
        variance += 0.3634 * p[i] * (1 - p[i]) / n / 4;
        if (expected < 5) {
            pooled_seen += seen[i];
            pooled += expected;
            continue;
        }
        chi2 += off * off / expected;
        n_free++;
    }
    if (pooled > 0) {
        chi2 += (pooled_seen - pooled) * (pooled_seen - pooled) / pooled;
        n_free++;
    }
    if (n_free < 1) return (distribution_fit){0, 0};
    return (distribution_fit){(chi2 - n_free) / sqrt(2.0 * n_free), (tv - chance) / sqrt(variance)};
}

/* What honest sampling gives, at fixed seeds; and what no honest sampling would. */
static inline bool distribution_holds(distribution_fit fit) {
    return fit.chi < 4.5 && fit.tv < 4.5;
}

static inline bool distribution_broken(distribution_fit fit) {
    return fit.chi > 20 && fit.tv > 20;
}

#endif
