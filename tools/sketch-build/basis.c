/* basis.c : which directions a sketch keeps. The rows' alone: eigenvectors of their second moment G. With
 * states of second moment C = L L': those of L' G L, which lose least of the products
 * (docs/methods/sketch.md). Panels of a moment are summed one after another, so threads do not change a
 * bit. Sums are double: OpenBLAS adds in another order on another CPU, which in float changed a byte in
 * four. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"

void dsyevr_(const char *jobz, const char *range, const char *uplo, const int *n, double *a,
             const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
             const double *abstol, int *m, double *w, double *z, const int *ldz, int *isuppz,
             double *work, const int *lwork, int *iwork, const int *liwork, int *info);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info);

enum { MOMENT_ROWS = 1024, MOMENT_PANELS = 8 };

/* --- second moments --- */

typedef struct moment {
    const row_order *o;
    int32_t first, n; /* rows of the block at hand */
    int64_t d;
    double *block; /* [MOMENT_ROWS, d] */
    double *sums;  /* [d, d] upper half, until finish() */
    float *rows;   /* [threads, d] */
} moment;

static void read_row(void *arg, int64_t i, int worker) {
    const moment *m = arg;
    double *out = m->block + i * m->d, weight = sqrt((double)m->o->weights[m->first + i]);
    order_read_centered(m->o, m->first + (int32_t)i, m->rows + worker * m->d, out);
    for (int64_t j = 0; j < m->d; j++) out[j] *= weight;
}

static void add_panel(void *arg, int64_t panel, int worker) {
    const moment *m = arg;
    int64_t begin = m->d * panel / MOMENT_PANELS, end = m->d * (panel + 1) / MOMENT_PANELS;
    (void)worker;
    if (end > begin)
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(end - begin),
                    (int)(m->d - begin), m->n, 1, m->block + begin, (int)m->d, m->block + begin,
                    (int)m->d, 1, m->sums + begin * m->d + begin, (int)m->d);
}

/* Both halves, over n. */
static void finish(const moment *m, double n) {
    for (int64_t i = 0; i < m->d; i++)
        for (int64_t j = i; j < m->d; j++) {
            double *x = &m->sums[i * m->d + j];
            *x /= n;
            m->sums[j * m->d + i] = *x;
        }
}

/* out [d, d]: zeros at first, as in moment_of_states(). */
static specrt_status moment_of_rows(const row_order *o, int threads, int shows, double *out,
                                    specrt_error *err) {
    moment m = {.o = o, .d = o->n_cols, .sums = out};
    progress bar;
    m.block = malloc((size_t)(MOMENT_ROWS * m.d) * sizeof *m.block);
    m.rows = malloc((size_t)(threads * m.d) * sizeof *m.rows);
    sl_progress_begin(&bar, shows, "moments", "", (uint64_t)o->n);
    bool good = m.block && m.rows;
    for (; good && m.first < o->n; m.first += m.n) {
        m.n = o->n - m.first < MOMENT_ROWS ? o->n - m.first : MOMENT_ROWS;
        sl_parallel_for(threads, m.n, read_row, &m);
        sl_parallel_for(threads, MOMENT_PANELS, add_panel, &m);
        sl_progress_update(&bar, (uint64_t)(m.first + m.n));
    }
    sl_progress_end(&bar);
    if (good) finish(&m, o->n);
    free(m.block);
    free(m.rows);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the moments");
}

/* Takes their mean off the states that choose. */
static void center_states(const state_set *s, float *center) {
    int32_t n = s->n - s->n_measured;
    float *states = s->states + s->n_measured * s->dim;
    for (int64_t j = 0; j < s->dim; j++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++) sum += (double)states[i * s->dim + j];
        center[j] = (float)(sum / n);
        for (int32_t i = 0; i < n; i++) states[i * s->dim + j] -= center[j];
    }
}

/* A little of the mean is added to the diagonal: states are few, and none may be lost. */
static specrt_status moment_of_states(const state_set *s, double ridge, int threads, double *out,
                                      specrt_error *err) {
    moment m = {.d = s->dim, .n = s->n - s->n_measured, .sums = out};
    int64_t n = m.n * m.d;
    double trace = 0;
    m.block = malloc((size_t)n * sizeof *m.block);
    if (!m.block) return sl_error_no_memory_for(err, "the moments");
    for (int64_t i = 0; i < n; i++) m.block[i] = (double)s->states[s->n_measured * m.d + i];
    sl_parallel_for(threads, MOMENT_PANELS, add_panel, &m);
    finish(&m, m.n);
    free(m.block);
    for (int64_t i = 0; i < m.d; i++) trace += out[i * m.d + i];
    for (int64_t i = 0; i < m.d; i++) out[i * m.d + i] += ridge * trace / (double)m.d;
    return SPECRT_STATUS_OK;
}

/* --- eigenvectors --- */

/* The `rank` greatest of a symmetric [d, d], which is lost; vectors [rank, d], greatest first. */
static specrt_status eigen(double *a, int d, int rank, double *values, double *vectors,
                           specrt_error *err) {
    int from = d - rank + 1, found, info, want = -1, iwant;
    double zero = 0, size;
    sl_arrays owned = {0};
    int *support = sl_array(&owned, 2 * (size_t)rank, sizeof *support);
    double *all = sl_array(&owned, (size_t)d, sizeof *all);
    dsyevr_("V", "I", "U", &d, a, &d, &zero, &zero, &from, &d, &zero, &found, all, vectors, &d,
            support, &size, &want, &iwant, &want, &info);
    want = (int)size;
    double *work = sl_array(&owned, (size_t)want, sizeof *work);
    int *iwork = sl_array(&owned, (size_t)iwant, sizeof *iwork);
    bool good = !owned.failed;
    if (good)
        dsyevr_("V", "I", "U", &d, a, &d, &zero, &zero, &from, &d, &zero, &found, all, vectors, &d,
                support, work, &want, iwork, &iwant, &info);
    good = good && info == 0 && found == rank;
    for (int i = 0; good && i < rank / 2; i++) /* LAPACK's come in ascending order */
        for (int j = 0; j < d; j++) {
            double t = vectors[(size_t)i * (size_t)d + (size_t)j];
            double *other = &vectors[(size_t)(rank - 1 - i) * (size_t)d + (size_t)j];
            vectors[(size_t)i * (size_t)d + (size_t)j] = *other;
            *other = t;
        }
    for (int i = 0; good && i < rank; i++) values[i] = all[rank - 1 - i];
    sl_arrays_free(&owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "%d directions of %d", rank, d);
}

/* --- the basis --- */

typedef struct plan {
    int d, rank;
    double *g, *c;        /* [d, d] moments of rows and, or NULL, of states: then its factor L */
    double *values, *v;   /* [rank], [rank, d] */
    double *basis, *lift; /* [rank, d] */
    sl_arrays owned;
} plan;

/* v, the best directions, as basis and lift: z = basis h, h ~ lift' z. */
static specrt_status directions(plan *p, specrt_error *err) {
    int d = p->d, rank = p->rank, info = 0;
    size_t n = (size_t)rank * (size_t)d;
    if (p->c) {
        dpotrf_("U", &d, p->c, &d, &info); /* columns first: our lower L */
        if (info != 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "trace: the hidden states span no space; record more");
        cblas_dtrmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, d, d, 1,
                    p->c, d, p->g, d);
        cblas_dtrmm(CblasRowMajor, CblasLeft, CblasLower, CblasTrans, CblasNonUnit, d, d, 1, p->c,
                    d, p->g, d);
    }
    TRY(eigen(p->g, d, rank, p->values, p->v, err));
    memcpy(p->basis, p->v, n * sizeof *p->v);
    memcpy(p->lift, p->v, n * sizeof *p->v);
    if (!p->c) return SPECRT_STATUS_OK;
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, rank, d, 1, p->c,
                d, p->basis, d);
    cblas_dtrmm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, rank, d, 1, p->c,
                d, p->lift, d);
    return SPECRT_STATUS_OK;
}

/* The share of a direction in scores, of which none is too small to divide by. */
static double importance(const plan *p, int k) {
    double share = p->values[k] / p->values[0];
    return share > 1e-6 ? share : 1e-6;
}

/* Rows' numbers become about as large in every direction, states' as large as the direction counts. */
static void store(const plan *p, basis *out) {
    size_t d = (size_t)p->d;
    double most = 0;
    for (int k = 0; k < p->rank; k++)
        for (size_t j = 0; j < d; j++)
            most = fmax(most, sqrt(importance(p, k)) * fabs(p->basis[(size_t)k * d + j]));
    out->unit = most;
    for (int k = 0; k < p->rank; k++) {
        double deviation = sqrt(importance(p, k));
        out->weights[k] = importance(p, k);
        for (size_t j = (size_t)k * d; j < (size_t)(k + 1) * d; j++) {
            out->basis[j] = (float)(p->basis[j] * deviation / most);
            out->codes[j] = p->lift[j] / deviation;
        }
    }
}

static specrt_status fill(plan *p, const row_order *o, const state_set *states, int threads,
                          const cli_common *common, basis *out, specrt_error *err) {
    openblas_set_num_threads(1);
    TRY(moment_of_rows(o, threads, common->progress, p->g, err));
    if (states) center_states(states, out->center);
    if (states) TRY(moment_of_states(states, 0.001, threads, p->c, err));
    TRY(directions(p, err));
    if (!(p->values[0] > 0))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "head: expected rows that differ, found all alike");
    store(p, out);
    return SPECRT_STATUS_OK;
}

specrt_status basis_make(const row_order *o, const state_set *states, int32_t rank, int threads,
                         const cli_common *common, basis *out, specrt_error *err) {
    size_t d = (size_t)o->n_cols, n = (size_t)rank * d;
    plan p = {.d = o->n_cols, .rank = rank < o->n_cols ? rank : o->n_cols};
    *out = (basis){.rank = rank, .n_cols = o->n_cols};
    out->basis = sl_array(&out->owned, n, sizeof *out->basis);
    out->codes = sl_array(&out->owned, n, sizeof *out->codes);
    out->weights = sl_array(&out->owned, (size_t)rank, sizeof *out->weights);
    out->center = sl_array(&out->owned, d, sizeof *out->center);
    p.g = sl_array(&p.owned, d * d, sizeof *p.g);
    if (states) p.c = sl_array(&p.owned, d * d, sizeof *p.c);
    p.values = sl_array(&p.owned, (size_t)rank, sizeof *p.values);
    p.v = sl_array(&p.owned, n, sizeof *p.v);
    p.basis = sl_array(&p.owned, n, sizeof *p.basis);
    p.lift = sl_array(&p.owned, n, sizeof *p.lift);
    specrt_status status = out->owned.failed || p.owned.failed
                               ? sl_error_no_memory_for(err, "the basis")
                               : fill(&p, o, states, threads, common, out, err);
    sl_arrays_free(&p.owned);
    return status;
}

void basis_apply(const basis *b, const row_order *o, int32_t first, int32_t n, float *row,
                 double *rows, double *x, double *constants) {
    int32_t d = b->n_cols;
    for (int32_t i = 0; i < n; i++) {
        double *at = rows + (size_t)i * (size_t)d, sum = 0;
        order_read_centered(o, first + i, row, at);
        for (int32_t j = 0; j < d; j++) sum += at[j] * (double)b->center[j];
        constants[i] = sum;
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, b->rank, d, 1, rows, d, b->codes, d, 0,
                x, b->rank);
}

void basis_free(basis *b) {
    sl_arrays_free(&b->owned);
    *b = (basis){0};
}
