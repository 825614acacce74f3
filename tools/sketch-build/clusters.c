/* clusters.c : rows that score alike, by k-means (Lloyd 1982) where a distance is the difference of two rows'
 * scores, as states make it on average. Sums are double and in a fixed order, as in basis.c. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"

enum { CLUSTERS_BLOCK = 64, CLUSTERS_ITERATIONS = 8 };

typedef struct kmeans {
    const row_order *o;
    const basis *b;
    int32_t dim;      /* rank + 1: the last is the constant */
    int32_t n;        /* clusters */
    float *points;    /* [n_rows, dim] by place, in units of scores */
    double *means;    /* [n, dim] */
    double *squares;  /* [n] half of each mean's square */
    int32_t *nearest; /* [n_rows] */
    int32_t *members; /* [n_rows] places, cluster by cluster, ascending */
    uint32_t *starts; /* [n + 1] */
    double *scratch;  /* [threads, CLUSTERS_BLOCK, room] */
    float *row;       /* [threads, n_cols] */
    sl_arrays owned;  /* all of these */
    size_t room;
} kmeans;

void clusters_free(row_clusters *c) {
    free(c->starts);
    free(c->means);
    *c = (row_clusters){0};
}

/* --- points --- */

static int32_t block_size(const kmeans *k, int64_t block) {
    int64_t left = k->o->n - block * CLUSTERS_BLOCK;
    return left < CLUSTERS_BLOCK ? (int32_t)left : CLUSTERS_BLOCK;
}

static void read_points(void *arg, int64_t block, int worker) {
    const kmeans *k = arg;
    const basis *b = k->b;
    int32_t first = (int32_t)block * CLUSTERS_BLOCK, n = block_size(k, block);
    double *x = k->scratch + (size_t)worker * k->room * CLUSTERS_BLOCK, constants[CLUSTERS_BLOCK];
    double *rows = x + (size_t)CLUSTERS_BLOCK * (size_t)b->rank;
    basis_apply(b, k->o, first, n, k->row + (size_t)worker * (size_t)b->n_cols, rows, x, constants);
    for (int32_t i = 0; i < n; i++) {
        float *point = k->points + (size_t)(first + i) * (size_t)k->dim;
        for (int32_t j = 0; j < b->rank; j++)
            point[j] = (float)(sqrt(b->weights[j]) * x[(size_t)i * (size_t)b->rank + (size_t)j]);
        point[b->rank] = (float)constants[i];
    }
}

/* --- Lloyd's iterations --- */

/* The nearest mean of each row of a block; of equal ones the first. */
static void assign(void *arg, int64_t block, int worker) {
    const kmeans *k = arg;
    int32_t first = (int32_t)block * CLUSTERS_BLOCK, n = block_size(k, block);
    double *x = k->scratch + (size_t)worker * k->room * CLUSTERS_BLOCK;
    double *products = x + (size_t)CLUSTERS_BLOCK * (size_t)k->dim;
    const float *points = k->points + (size_t)first * (size_t)k->dim;
    for (size_t i = 0; i < (size_t)n * (size_t)k->dim; i++) x[i] = (double)points[i];
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, k->n, k->dim, 1, x, k->dim, k->means,
                k->dim, 0, products, k->n);
    for (int32_t i = 0; i < n; i++, products += k->n) {
        int32_t best = 0;
        for (int32_t m = 1; m < k->n; m++)
            if (k->squares[m] - products[m] < k->squares[best] - products[best]) best = m;
        k->nearest[first + i] = best;
    }
}

static void list_members(kmeans *k) {
    memset(k->starts, 0, ((size_t)k->n + 1) * sizeof *k->starts);
    for (int32_t v = 0; v < k->o->n; v++) k->starts[k->nearest[v]]++;
    uint32_t end = 0;
    for (int32_t m = 0; m <= k->n; m++) k->starts[m] = end += k->starts[m];
    for (int32_t v = k->o->n; v-- > 0;) k->members[--k->starts[k->nearest[v]]] = v;
}

/* The mean of a cluster's rows; of none, what it was. */
static void average(void *arg, int64_t m, int worker) {
    const kmeans *k = arg;
    double *mean = k->means + m * k->dim, square = 0;
    uint32_t n = k->starts[m + 1] - k->starts[m];
    (void)worker;
    if (n > 0) memset(mean, 0, (size_t)k->dim * sizeof *mean);
    for (uint32_t i = k->starts[m]; i < k->starts[m + 1]; i++) {
        const float *point = k->points + (size_t)k->members[i] * (size_t)k->dim;
        for (int32_t j = 0; j < k->dim; j++) mean[j] += (double)point[j] / n;
    }
    for (int32_t j = 0; j < k->dim; j++) square += mean[j] * mean[j] / 2;
    k->squares[m] = square;
}

/* From rows at equal distances in the order of places: as many frequent ones as rare ones. */
static void seed(kmeans *k) {
    for (int32_t m = 0; m < k->n; m++) {
        int64_t place = (int64_t)m * k->o->n / k->n;
        for (int32_t j = 0; j < k->dim; j++)
            k->means[(int64_t)m * k->dim + j] = (double)k->points[place * k->dim + j];
        average(k, m, 0);
    }
}

static void iterate(kmeans *k, int threads, int shows) {
    int64_t n_blocks = ((int64_t)k->o->n + CLUSTERS_BLOCK - 1) / CLUSTERS_BLOCK;
    progress bar;
    openblas_set_num_threads(1);
    sl_parallel_for(threads, n_blocks, read_points, k);
    seed(k);
    sl_progress_begin(&bar, shows, "clusters", "", CLUSTERS_ITERATIONS);
    for (int i = 0; i < CLUSTERS_ITERATIONS; i++) {
        sl_parallel_for(threads, n_blocks, assign, k);
        list_members(k);
        sl_parallel_for(threads, k->n, average, k);
        sl_progress_update(&bar, (uint64_t)i + 1);
    }
    sl_progress_end(&bar);
}

/* --- the result --- */

/* Clusters that have rows, their means as numbers x. */
static void keep_full(const kmeans *k, row_clusters *out) {
    int32_t rank = k->b->rank;
    for (int32_t m = 0; m < k->n; m++) {
        if (k->starts[m] == k->starts[m + 1]) continue;
        const double *mean = k->means + (int64_t)m * k->dim;
        double *x = out->means + (int64_t)out->n * (rank + 1);
        for (int32_t j = 0; j < rank; j++) { /* directions that there are not weigh nothing */
            double weight = k->b->weights[j];
            x[j] = weight > 0 ? mean[j] / sqrt(weight) : 0;
        }
        x[rank] = mean[rank];
        out->starts[out->n++] = k->starts[m];
    }
    out->starts[out->n] = (uint32_t)k->o->n;
}

static specrt_status arrange(const kmeans *k, row_order *o, specrt_error *err) {
    int32_t *rows;
    float *weights;
    TRY(sl_new(&rows, (size_t)o->n, sizeof *rows, "the rows", err));
    specrt_status status = sl_new(&weights, (size_t)o->n, sizeof *weights, "the rows", err);
    for (int32_t i = 0; i < o->n && !status; i++) {
        rows[i] = o->rows[k->members[i]];
        weights[i] = o->weights[k->members[i]];
    }
    if (status) {
        free(rows);
        return status;
    }
    free(o->rows);
    free(o->weights);
    o->rows = rows;
    o->weights = weights;
    return SPECRT_STATUS_OK;
}

static specrt_status allot(kmeans *k, int threads, row_clusters *out, specrt_error *err) {
    size_t n = (size_t)k->n, n_rows = (size_t)k->o->n, dim = (size_t)k->dim;
    size_t d = (size_t)k->o->n_cols;
    k->room = dim + (n > d ? n : d);
    k->points = sl_array(&k->owned, n_rows * dim, sizeof *k->points);
    k->means = sl_array(&k->owned, n * dim, sizeof *k->means);
    k->squares = sl_array(&k->owned, n, sizeof *k->squares);
    k->nearest = sl_array(&k->owned, n_rows, sizeof *k->nearest);
    k->members = sl_array(&k->owned, n_rows, sizeof *k->members);
    k->starts = sl_array(&k->owned, n + 1, sizeof *k->starts);
    k->scratch =
        sl_array(&k->owned, (size_t)threads * CLUSTERS_BLOCK * k->room, sizeof *k->scratch);
    k->row = sl_array(&k->owned, (size_t)threads * d, sizeof *k->row);
    if (k->owned.failed) return sl_error_no_memory_for(err, "the clusters");
    TRY(sl_new(&out->means, n * dim, sizeof *out->means, "the clusters", err));
    return sl_new(&out->starts, n + 1, sizeof *out->starts, "the clusters", err);
}

specrt_status clusters_make(row_order *o, const basis *b, int32_t n, int threads,
                            const cli_common *common, row_clusters *out, specrt_error *err) {
    kmeans k = {.o = o, .b = b, .dim = b->rank + 1, .n = n};
    *out = (row_clusters){0};
    specrt_status status = allot(&k, threads, out, err);
    if (!status) iterate(&k, threads, common->progress);
    if (!status) keep_full(&k, out);
    if (!status) status = arrange(&k, o, err);
    sl_arrays_free(&k.owned);
    return status;
}
