/* turn.c : turns the directions of each band by a random rotation, so that no number of a row's code stands
 * out. Seeded, and one thread's work: the same for any number of them. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"

void dgeqrf_(const int *m, const int *n, double *a, const int *lda, double *tau, double *work,
             const int *lwork, int *info);
void dorgqr_(const int *m, const int *n, const int *k, double *a, const int *lda, const double *tau,
             double *work, const int *lwork, int *info);

static double uniform(uint64_t *state) {
    *state = specrt_hash64(state, sizeof *state, 17);
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

/* A rotation [n, n]: Q of a normal matrix's Q R. */
static bool rotation(int n, uint64_t *state, double *out, double *tau, double *work) {
    int info, size = 64 * n;
    for (int i = 0; i < n * n; i++)
        out[i] = sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
    dgeqrf_(&n, &n, out, &n, tau, work, &size, &info);
    if (info == 0) dorgqr_(&n, &n, &n, out, &n, tau, work, &size, &info);
    return info == 0;
}

/* rows [n, d] becomes turn rows. */
static void apply(const double *turn, int n, int d, double *rows, double *copy) {
    memcpy(copy, rows, (size_t)n * (size_t)d * sizeof *rows);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, d, n, 1, turn, n, copy, d, 0, rows,
                d);
}

specrt_status turn_bands(const band_list *list, int32_t n_cols, uint64_t seed, double *down,
                         double *lift, specrt_error *err) {
    size_t most = 0, d = (size_t)n_cols;
    for (int32_t i = 0; i < list->n; i++)
        most = (size_t)list->bands[i].rank > most ? (size_t)list->bands[i].rank : most;
    double *turn = malloc(most * most * sizeof *turn), *work = malloc(64 * most * sizeof *work);
    double *tau = malloc(most * sizeof *tau), *copy = malloc(most * d * sizeof *copy);
    bool good = turn && work && tau && copy;
    uint64_t state = seed;
    for (int32_t i = 0; good && i < list->n; i++) {
        int n = list->bands[i].rank;
        good = rotation(n, &state, turn, tau, work);
        if (!good) break;
        apply(turn, n, n_cols, down, copy);
        apply(turn, n, n_cols, lift, copy);
        down += (size_t)n * d;
        lift += (size_t)n * d;
    }
    free(turn);
    free(work);
    free(tau);
    free(copy);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the rotations");
}
