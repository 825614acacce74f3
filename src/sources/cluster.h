/* cluster.h : routers over clusters */
#ifndef SOURCES_CLUSTER_H
#define SOURCES_CLUSTER_H

#include "core/base.h"
#include "core/head.h"
#include "sources/source.h"

static inline int64_t specrt__cluster_inputs(const specrt_clusters_header *h) {
    return (int64_t)h->n_embed + h->n_state;
}

/* Inputs of w2. */
static inline int64_t specrt__cluster_width(const specrt_clusters_header *h) {
    return h->n_hidden > 0 ? h->n_hidden : h->n_state;
}

/* --- sources --- */

enum {
    SPECRT__CLUSTER_SCHEDULE,
    SPECRT__CLUSTER_BEAM,
    SPECRT__CLUSTER_CAP,
    SPECRT__CLUSTER_ALWAYS,
    SPECRT__CLUSTER_OPTIONS
};

enum {
    SPECRT__CLUSTER_MOST =
        400 /* clusters of a level: their ranges must fit beside other segments */
};

/* The head cluster by cluster, a copy of its most frequent rows, and the router. One block. */
typedef struct specrt__cluster_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_clusters view;
    specrt_head_desc embedding; /* rows NULL: not read */
    specrt_segment always;      /* the most frequent; masked is not used */
    specrt_segment rows; /* those of clusters: copies, or the head's own if they lie so there */
    int32_t *ids;        /* [n_always + n_members] */
    int32_t *starts;     /* [n_clusters + 1] in rows */
    int32_t levels[SPECRT_TREE_MAX_STEPS]; /* clusters */
    int32_t cap;
    bool
        per_row; /* clusters for each row of a level, which alone scores them; else for the level */
    specrt_segment w1, w2; /* the router's layers */
} specrt__cluster_shared;

SPECRT__INTERNAL specrt__cluster_shared *specrt__cluster_allocate(const specrt_clusters *c,
                                                                  const specrt_head *head,
                                                                  int32_t n_always,
                                                                  int32_t n_copies);
SPECRT__INTERNAL void specrt__cluster_pack(specrt__cluster_shared *s, const int32_t *always,
                                           int32_t n_always, int32_t first);
SPECRT__INTERNAL int32_t specrt__cluster_bound(const specrt__cluster_shared *s, int32_t n);

static inline void specrt__cluster_unshare(void *shared) {
    specrt__cluster_shared *s = (specrt__cluster_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* --- a session's router --- */

typedef struct specrt__cluster {
    specrt_env env;
    const specrt__cluster_shared *shared;
    float *inputs;    /* [n_states, n_embed + n_state] */
    float *hidden;    /* [n_states, n_hidden] */
    float *scores;    /* [n_states, n_clusters] then probabilities by path */
    float *totals;    /* [n_clusters] */
    uint64_t *heap;   /* [n_clusters] */
    uint64_t *takers; /* [n_clusters] the level's rows that score it; 0: all do */
    int32_t *taken;   /* [n_clusters] rows of each cluster in this level */
} specrt__cluster;

SPECRT__INTERNAL void *specrt__cluster_open(void *opaque, const specrt__source_session *with);

static inline void specrt__cluster_close(void *state) {
    specrt__cluster *s = (specrt__cluster *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

SPECRT__INTERNAL void specrt__cluster_forward(specrt__cluster *s, const specrt_compute *compute,
                                              const specrt__source_level *level);

/* --- the choice --- */

typedef struct specrt__cluster_choice {
    int32_t n,
        n_rows; /* clusters and rows taken at this level; of a block, rows of this position */
    bool each;
} specrt__cluster_choice;

extern const specrt__source specrt__cluster_source;

extern const specrt__source specrt__cluster_groups;

extern const specrt__source specrt__cluster_centroids;

#endif
