/* train.h : a router's network from examples, and how well it routes those held out. */
#ifndef CLUSTER_BUILD_TRAIN_H
#define CLUSTER_BUILD_TRAIN_H

#include "examples.h"
#include "network.h"

typedef enum train_loss {
    TRAIN_TOP, /* each cluster: does it hold one of the target's best tokens (binary cross entropy) */
    TRAIN_MASS, /* each cluster: the target's probability of its tokens (binary cross entropy) */
    TRAIN_BEST  /* which cluster holds the target's best token (softmax cross entropy) */
} train_loss;

typedef struct train_options {
    bool residual; /* CORAL's network */
    train_loss loss;
    int32_t n_hidden, n_batch, n_epochs, patience; /* n_batch 0: by the number of examples */
    double rate, decay;
    uint64_t seed;
    parallel_pool *pool; /* borrowed, by the network too */
    void (*each)(void *user, int32_t epoch, double loss, double holdout);
    void *user;
} train_options;

enum { TRAIN_MAX_EPOCHS = 1000 };

typedef struct train_curve {
    int32_t n, best;        /* epochs, and the one whose weights were kept */
    double *loss, *holdout; /* [n] mean of the examples, owned */
} train_curve;
void train_curve_free(train_curve *curve);

/* What a router chooses among. */
typedef struct train_world {
    const example_set *examples;
    specrt_head_desc embedding; /* n_cols 0: not read */
    const int32_t *cluster_of;  /* of each token; -1: none */
    int32_t n_clusters;
    const int32_t *sizes;   /* [n_clusters] */
    const int32_t *rank_of; /* of each token in the static list; NULL: none */
} train_world;

/* train_run() : makes the network, trains it until `patience` epochs bring nothing on the examples held
 * out, and keeps the weights that were best there, rounded to f16.
 * @return NO_MEMORY; BAD_INPUT when the loss is no number any more. */
specrt_status train_run(const train_world *world, const train_options *options, network *net,
                        train_curve *curve, specrt_error *err);

/* train_scores() : scores of examples [begin, end), as many as fit the network's batch. @return how many. */
int32_t train_scores(const train_world *world, network *net, int64_t begin, int64_t end);

/* ---- route.c ---- */

/* Shares of the positions held out at one level of the draft: where the target's best token is in the
 * list, and of the target's probability that is there. */
typedef struct route_level {
    int64_t n;
    double rows;                  /* in the chosen clusters, mean */
    double recall, oracle, fixed; /* fixed: a static list of the mean size over all levels */
    double mass, mass_oracle, mass_fixed; /* among the target's best tokens recorded */
} route_level;

enum { ROUTE_LEVELS = 8 };

/* How the examples held out would be routed. */
typedef struct route_figures {
    int32_t n_levels;
    route_level levels[ROUTE_LEVELS]; /* the last is for all that follow too */
    route_level all;                  /* levels as often as they occur */
} route_figures;

/* route_costs() : mean rows of the k best clusters, into rows_of [n_clusters + 1]. */
specrt_status route_costs(const train_world *world, network *net, double *rows_of,
                          specrt_error *err);

/* route_measure() : with a schedule [n_schedule] of clusters by level. */
specrt_status route_measure(const train_world *world, network *net, const int32_t *schedule,
                            int32_t n_schedule, route_figures *out, specrt_error *err);

#endif
