/* kmeans.h : spherical k-means over the rows of a head (Dhillon and Modha 2001; docs/methods/cluster.md). */
#ifndef CLUSTER_BUILD_KMEANS_H
#define CLUSTER_BUILD_KMEANS_H

#include "rows.h"

typedef struct kmeans_options {
    int32_t n_clusters;
    int32_t n_iterations; /* at most */
    double tolerance;     /* stop when the objective gains less than this share */
    double largest;       /* sizes at most so many times the mean: 1 makes them differ by at most
                           * one, 0 leaves them as they come */
    int32_t room;         /* rows of a cluster at most instead; 0: by `largest` */
    /* [rows->n] rows by how much a second cluster of theirs is worth, best first: what room is left is given
     * to their copies. NULL: every row is in one cluster. Borrowed. */
    const int32_t *worth;
    /* f32 [n_clusters, n_cols] to start from instead, of any length; borrowed */
    const float *initial;
    uint64_t seed;
    int threads;
    const char *kernels; /* see dot_choose(); NULL: the fastest */
    /* Called after every iteration with the objective; `moved` rows changed their cluster. */
    void (*each)(void *user, int32_t iteration, double objective, int32_t moved);
    void *user;
} kmeans_options;

typedef struct kmeans {
    int32_t n_clusters, n_cols;
    int32_t n_iterations;
    int32_t n_repaired; /* clusters that were empty at some time and got a row of the largest */
    double *objectives; /* [n_iterations] sum of rows' similarity to the centroid they were given */
    double objective; /* sum over rows of the similarity to their cluster's centroid, in the end */
    double objective_free; /* the same before sizes were bounded */
    int32_t *clusters;     /* [rows->n] */
    int32_t *sizes;        /* [n_clusters] copies included */
    int32_t n_copies;
    struct kmeans_copy {
        int32_t row, cluster;
    } * copies;       /* [n_copies] further clusters of rows, owned; NULL: none */
    float *centroids; /* [n_clusters, n_cols] of length 1: the direction of the sum of its rows */
    double seconds_seeding, seconds;
} kmeans;

/* kmeans_run() : the same result for any number of threads and any kernels.
 * @return OK, NO_MEMORY, BAD_ARG when there are more clusters than rows. */
specrt_status kmeans_run(const row_set *r, const kmeans_options *options, kmeans *out,
                         specrt_error *err);
/* kmeans_size_range() : rows of the smallest and of the largest cluster. */
void kmeans_size_range(const kmeans *k, int32_t *least, int32_t *most);
void kmeans_free(kmeans *k);

#endif
