/* proof.c : how many rows a sketch must name before its bound proves a state's ten best to be the head's
 * (docs/METHODS.md, "Certified"), for the states that recall is measured with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/io.h"
#include "base/parallel.h"

typedef struct proving {
    const specrt_sketch *view;
    const state_set *states;
    double *basis, *lift;     /* [rank, n_cols] */
    int32_t *sums;            /* [threads, n_blocks, 16] */
    double *scratch;          /* [threads, n_cols + 2 * rank] */
    int32_t *needed, *beyond; /* [n_measured] rows to name; rows that may be among the ten best */
} proving;

static double dot(const double *a, const double *b, int32_t n) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) sum += a[j] * b[j];
    return sum;
}

/* What a state is scanned with, and what its scores may be off by, times the four lengths of a row. */
typedef struct sharpened {
    double unit, base, errors[4];
    int32_t q[SPECRT_MAX_SKETCH_RANK];
} sharpened;

static void sharpen(const proving *p, const float *h, double *rest, sharpened *out) {
    int32_t d = p->view->header->n_cols, rank = p->view->header->rank;
    double *z = rest + d, *y = z + rank, most = 0, off = 0, whole = 0;
    out->base = 0;
    for (int32_t j = 0; j < d; j++) {
        rest[j] = (double)h[j];
        whole += rest[j] * rest[j];
        out->base += (double)p->view->mean[j] * rest[j];
    }
    for (int32_t k = 0; k < rank; k++) z[k] = dot(p->basis + (int64_t)k * d, rest, d);
    for (int32_t k = 0; k < rank; k++)
        for (int32_t j = 0; j < d; j++) rest[j] -= p->lift[(int64_t)k * d + j] * z[k];
    for (int32_t k = 0; k < rank; k++) {
        y[k] = z[k] + dot(p->basis + (int64_t)k * d, rest, d);
        most = fmax(most, fabs(y[k]));
    }
    out->unit = most / 127;
    for (int32_t k = 0; k < rank; k++) {
        out->q[k] = most > 0 ? (int32_t)lrint(y[k] / out->unit) : 0;
        off += pow(y[k] - out->unit * out->q[k], 2);
    }
    out->errors[0] = sqrt(dot(rest, rest, d));
    out->errors[1] = sqrt(dot(y, y, rank));
    out->errors[2] = sqrt(off);
    out->errors[3] = (d + 64) * 1.2e-7 * sqrt(whole);
}

static void prove_state(void *arg, int64_t state, int worker) {
    const proving *p = arg;
    const specrt_sketch *v = p->view;
    int32_t n = v->header->n_rows, d = v->header->n_cols, rank = v->header->rank;
    size_t padded = ((size_t)n + 15) / 16 * 16;
    int32_t *sums = p->sums + (size_t)worker * padded;
    float least = INFINITY;
    sharpened s;
    sharpen(p, p->states->states + state * d, p->scratch + worker * (d + 2 * rank), &s);
    memset(sums, 0, padded * sizeof *sums);
    sketch_add(v, s.q, 0, rank, sums);
    p->needed[state] = p->beyond[state] = 0;
    for (int32_t i = 0; i < n; i++) {
        float score = v->scales[i] * (float)sums[i];
        double bound = s.base + s.unit * (double)score;
        for (size_t k = 0; k < 4; k++) bound += s.errors[k] * (double)v->bounds[4 * (size_t)i + k];
        if (bound < (double)p->states->least[state]) continue;
        p->beyond[state]++;
        if (score < least) least = score;
    }
    for (int32_t i = 0; i < n; i++) p->needed[state] += v->scales[i] * (float)sums[i] >= least;
}

static void sum_up(const proving *p, sketch_recall_table *t) {
    double n = p->states->n_measured;
    t->certified_rows = 0;
    for (int32_t i = 0; i < p->states->n_measured; i++) {
        t->certified_rows += p->beyond[i] / n;
        for (int w = 0; w < t->n_rows; w++) t->proven[w] += (p->needed[i] <= t->rows[w]) / n;
    }
}

specrt_status proof_measure(const sketch *s, const state_set *states, int threads,
                            sketch_recall_table *out, specrt_error *err) {
    const specrt_sketch *v = &s->view;
    size_t d = (size_t)v->header->n_cols, r = (size_t)v->header->rank, n_states;
    n_states = (size_t)states->n_measured;
    proving p = {.view = v, .states = states};
    p.basis = malloc(r * d * sizeof *p.basis);
    p.lift = malloc(r * d * sizeof *p.lift);
    p.sums =
        malloc((size_t)threads * (((size_t)v->header->n_rows + 15) / 16 * 16) * sizeof *p.sums);
    p.scratch = malloc((size_t)threads * (d + 2 * r) * sizeof *p.scratch);
    p.needed = malloc(n_states * sizeof *p.needed);
    p.beyond = malloc(n_states * sizeof *p.beyond);
    bool good = p.basis && p.lift && p.sums && p.scratch && p.needed && p.beyond;
    if (good) {
        sketch_widen(v->basis, r * d, p.basis);
        sketch_widen(v->lift, r * d, p.lift);
        parallel_for(threads, states->n_measured, prove_state, &p);
        sum_up(&p, out);
    }
    free(p.basis);
    free(p.lift);
    free(p.sums);
    free(p.scratch);
    free(p.needed);
    free(p.beyond);
    return good ? SPECRT_STATUS_OK : error_no_memory_for(err, "the bound");
}
