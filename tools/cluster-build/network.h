/* network.h : the two layers of a trained router, their gradient, and AdamW.
 *
 *     DynaSpec  scores = w2 silu(w1 x + b1) + b2
 *     CORAL     scores = w2 (silu(w1 x + b1) + x) + b2
 *
 * x is scaled already (specrt_router_kind says how). Results do not depend on the number of threads. */
#ifndef CLUSTER_BUILD_NETWORK_H
#define CLUSTER_BUILD_NETWORK_H

#include <stdbool.h>
#include "base/memory.h"
#include "base/parallel.h"
#include "specrt_tools.h"

typedef struct network_shape {
    bool residual; /* CORAL's; n_hidden is n_in */
    bool softmax;  /* one of the clusters; else each on its own */
    int32_t n_in, n_hidden, n_out;
    int32_t n_batch; /* rows at once at most */
} network_shape;

typedef struct network {
    network_shape shape;
    parallel_pool *pool; /* borrowed */
    int64_t n_weights;
    float *weights;           /* [n_weights] w1 [n_hidden, n_in], b1, w2 [n_out, n_hidden], b2 */
    float *w1, *b1, *w2, *b2; /* inside of it */
    float *gradient, *first, *second; /* [n_weights] and its moments */
    int64_t n_steps;
    float *x;             /* [n_batch, n_in] to fill in */
    float *targets;       /* [n_batch, n_out] to fill in: probability of each cluster */
    float *sums, *hidden; /* [n_batch, n_hidden] before and after the activation */
    float *scores;        /* [n_batch, n_out] */
    float *back;          /* [n_batch, n_hidden] gradient by `sums` */
    double *losses;       /* [n_batch] */
    sl_arrays owned;      /* these */
} network;

/* network_create() : random weights from the seed, biases 0. @return false: no memory. */
bool network_create(network *net, const network_shape *shape, uint64_t seed, parallel_pool *pool);
void network_free(network *net);

/* network_forward() : scores of the first n rows of x. */
void network_forward(network *net, int32_t n);

/* network_loss() : after network_forward(); the mean over rows of the cross entropy of their targets:
 * with softmax over the clusters, else summed over them. Leaves its gradient in place of the scores. */
double network_loss(network *net, int32_t n);

/* network_backward() : after network_loss(), the gradient by all weights. */
void network_backward(network *net, int32_t n);

/* network_step() : AdamW (Loshchilov and Hutter 2019), betas .9 and .999; biases do not decay. */
void network_step(network *net, double rate, double decay);

#endif
