/* kmeans_sums.c : clusters as the sums of their rows, in whole numbers, and chance by number: what seeding,
 * assignment and balancing share. */
#include "specrt_tools.h"
#include "kmeans_impl.h"

#include <math.h>
#include <string.h>
#include "base/parallel.h"

#define FIXED_ONE 68719476736.0f /* 2^36: 2^24 unit rows stay below 2^63 */

double kmeans_random(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t key[2] = {a, b};
    return (double)(specrt_hash64(key, sizeof key, seed) >> 11) / 9007199254740992.0;
}

typedef float floats __attribute__((vector_size(32)));
typedef int64_t wholes __attribute__((vector_size(64)));

/* sums += sign * x * inverse, in steps of 2^-36. */
CLONES static void add_fixed(int64_t *sums, const float *x, float inverse, int sign, int32_t n) {
    int32_t j = 0;
    for (; j + 8 <= n; j += 8) {
        floats values;
        wholes total;
        memcpy(&values, x + j, sizeof values);
        memcpy(&total, sums + j, sizeof total);
        values = values * inverse * FIXED_ONE;
        total += sign * __builtin_convertvector(values, wholes);
        memcpy(sums + j, &total, sizeof total);
    }
    for (; j < n; j++) sums[j] += sign * (int64_t)(x[j] * inverse * FIXED_ONE);
}

/* Lists the rows that move by old and by new cluster (-1: none). @return how many. */
static int32_t list_moves(kmeans_work *w) {
    int32_t m = w->k->n_clusters, n_moved = 0;
    for (int list = 0; list < 2; list++) {
        int32_t *starts = w->starts + list * (m + 1), *order = w->order + list * w->r->n;
        const int32_t *cluster = list ? w->next : w->k->clusters;
        memset(starts, 0, ((size_t)m + 1) * sizeof *starts);
        for (int32_t i = 0; i < w->r->n; i++)
            if (w->next[i] != w->k->clusters[i] && cluster[i] >= 0) starts[cluster[i] + 1]++;
        for (int32_t c = 0; c < m; c++) starts[c + 1] += starts[c];
        n_moved = starts[m];
        for (int32_t i = 0; i < w->r->n; i++)
            if (w->next[i] != w->k->clusters[i] && cluster[i] >= 0) order[starts[cluster[i]]++] = i;
        for (int32_t c = m; c > 0; c--) starts[c] = starts[c - 1];
        starts[0] = 0;
    }
    return n_moved;
}

static void sum_cluster(void *arg, int64_t cluster, int worker) {
    kmeans_work *w = arg;
    int32_t m = w->k->n_clusters, n_cols = w->k->n_cols, c = (int32_t)cluster;
    int64_t *sums = w->sums + (size_t)c * (size_t)n_cols;
    float *scratch = w->scratch + (size_t)worker * w->scratch_floats;
    float *centroid = w->k->centroids + (size_t)c * (size_t)n_cols;
    double square = 0;
    for (int list = 0; list < 2; list++) {
        const int32_t *starts = w->starts + list * (m + 1), *order = w->order + list * w->r->n;
        for (int32_t i = starts[c]; i < starts[c + 1]; i++) {
            const float *x = rows_f32(w->r, order[i], scratch);
            add_fixed(sums, x, w->r->inverses[order[i]], list ? 1 : -1, n_cols);
        }
    }
    for (int32_t j = 0; j < n_cols; j++) square += (double)sums[j] * (double)sums[j];
    for (int32_t j = 0; j < n_cols && square > 0; j++)
        centroid[j] = (float)((double)sums[j] / sqrt(square));
}

int32_t kmeans_place(kmeans_work *w) {
    int32_t n_moved = list_moves(w);
    sl_parallel_for(w->options->threads, w->k->n_clusters, sum_cluster, w);
    memcpy(w->k->clusters, w->next, (size_t)w->r->n * sizeof *w->next);
    memset(w->k->sizes, 0, (size_t)w->k->n_clusters * sizeof *w->k->sizes);
    for (int32_t i = 0; i < w->r->n; i++) w->k->sizes[w->next[i]]++;
    return n_moved;
}

double kmeans_own_objective(const kmeans_work *w) {
    int32_t n_cols = w->k->n_cols;
    double total = 0;
    for (int32_t c = 0; c < w->k->n_clusters; c++) {
        double square = 0;
        for (int32_t j = 0; j < n_cols; j++) {
            double x = (double)w->sums[(size_t)c * (size_t)n_cols + (size_t)j];
            square += x * x;
        }
        total += sqrt(square);
    }
    return total / (double)FIXED_ONE;
}

double kmeans_objective(const kmeans_work *w, const float *given) {
    size_t n = (size_t)w->k->n_clusters * (size_t)w->k->n_cols;
    double total = 0;
    for (size_t j = 0; j < n; j++) total += (double)w->sums[j] * (double)given[j];
    return total / (double)FIXED_ONE;
}
