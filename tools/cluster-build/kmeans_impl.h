/* kmeans_impl.h : what seed.c, balance.c, kmeans_sums.c and kmeans.c share. */
#ifndef CLUSTER_BUILD_KMEANS_IMPL_H
#define CLUSTER_BUILD_KMEANS_IMPL_H

#include "base/memory.h"
#include "kmeans.h"

enum {
    KMEANS_GROUP = 8 * DOT_ROWS,     /* rows whose similarities are computed together */
    KMEANS_BLOCK = 20 * KMEANS_GROUP /* rows of a task */
};

typedef struct kmeans_work {
    const row_set *r;
    const kmeans_options *options;
    kmeans *k;
    const dot_kernels *kernels;
    unit_rows units; /* of the centroids */
    panels panels;
    float *nearest; /* [r->n] similarity to the row's centroid, nearly */
    int64_t *sums;  /* [n_clusters, n_cols] of unit rows, in steps of 2^-36: exact in any order */
    int32_t *next;  /* [r->n] clusters to be */
    /* [2 * r->n] rows that move, by the cluster they leave, then by the one they join */
    int32_t *order;
    int32_t *starts; /* [2, n_clusters + 1] */
    float *scratch;  /* [threads, scratch_floats] */
    size_t scratch_floats;
    sl_arrays owned; /* these */
} kmeans_work;

/* kmeans_place() : give every row its cluster of w->next, then make sums, sizes and centroids those of
 * the rows. @return rows that moved. */
int32_t kmeans_place(kmeans_work *w);
/* kmeans_repair() : an empty cluster takes the row of the largest that suits it least. */
void kmeans_repair(kmeans_work *w);

/* kmeans_own_objective() : sum over clusters of their sum's length: of all rows' similarity to the centroid
 * that they make. kmeans_objective() : to `given` centroids, from the sums of the rows given to each. */
double kmeans_own_objective(const kmeans_work *w);
double kmeans_objective(const kmeans_work *w, const float *given);

/* kmeans_round() : the int8 copies of the centroids anew. */
void kmeans_round(kmeans_work *w);

/* seed_centroids() : the first centroids, f32 [n_clusters, n_cols]. */
specrt_status seed_centroids(const row_set *r, const kmeans_options *options,
                             const dot_kernels *kernels, float *out, specrt_error *err);

/* balance() : clusters of bounded sizes, from the centroids there are. */
specrt_status balance(kmeans_work *w, specrt_error *err);

/* spread() : copies of rows for the room that is left, at most one copy of a row. */
specrt_status spread(kmeans_work *w, specrt_error *err);

/* kmeans_random() : in [0, 1), by what it is for. */
double kmeans_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
