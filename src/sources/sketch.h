/* sketch.h : the low-rank copy of a head, and what is found with it */
#ifndef SOURCES_SKETCH_H
#define SOURCES_SKETCH_H

#include "core/base.h"
#include "core/head.h"
#include "sources/source.h"
#include "sources/scan.h"

/* --- the section --- */

/* Lines of a record. */
static inline int32_t specrt__sketch_lines(const specrt_sketch_header *h) {
    return (h->rank + 16) / 256;
}

/* Clusters of neighbouring places; none where n_clusters is 0. */
typedef struct specrt__sketch_clusters {
    int32_t n;
    specrt__scan_records centroids; /* [n] of their mean rows */
    const uint32_t *starts;         /* [n + 1] places */
} specrt__sketch_clusters;

static inline specrt__sketch_clusters specrt__sketch_clusters_of(const specrt_sketch *view) {
    specrt__sketch_clusters c;
    size_t bytes = 64 * (size_t)specrt__sketch_lines(view->header);
    c.n = view->header->n_clusters;
    c.centroids.n_lines = specrt__sketch_lines(view->header);
    c.centroids.bytes = view->records + (size_t)view->header->n_rows * bytes;
    c.starts = (const uint32_t *)(const void *)(c.centroids.bytes + (size_t)c.n * bytes);
    return c;
}

/* --- what sessions share --- */

enum {
    SPECRT__SKETCH_SIGNS,
    SPECRT__SKETCH_KEEP,
    SPECRT__SKETCH_SCAN,
    SPECRT__SKETCH_CLUSTERS,
    SPECRT__SKETCH_OPTIONS,
    SPECRT__SKETCH_PARTS = 4,  /* of a preview, for as many threads */
    SPECRT__SKETCH_SPARE = 512 /* keys beyond what is kept: a call's hits */
};

typedef struct specrt__sketch_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_sketch view;
    specrt_segment basis;
    const specrt__scan_kernels *scan;
    specrt__scan_signs
        signs; /* its constants with the head's bias stand behind this struct, if it has one */
    specrt__scan_records records;
    specrt__sketch_clusters clusters;
    int32_t n_probed;             /* clusters that a state previews; 0: all places */
    const float *center;          /* [rank] taken off z; behind this struct */
    int32_t rank, size, n_places; /* dimensions of a record; rows to name; places to preview */
    int32_t keep;                 /* places of a state that are refined, about */
} specrt__sketch_shared;

/* Blocks of 16 places. */
static inline int32_t specrt__sketch_n_blocks(const specrt__sketch_shared *s) {
    return (s->n_places + 15) / 16;
}

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view);

/* --- a session --- */

/* Keys of the best so far. */
typedef struct specrt__sketch_best {
    uint64_t *keys; /* specrt__shortlist_key() of places, or of tokens that count */
    int32_t n, size, room;
} specrt__sketch_best;

typedef struct specrt__sketch {
    specrt_env env;
    const specrt__sketch_shared *shared;
    specrt__scan_query *queries; /* [n_states], or as many as it takes with STATES in each */
    uint64_t *keys;              /* of the lists */
    specrt__sketch_best *kept;   /* [n_states, PARTS] places that a preview keeps */
    specrt__sketch_best *found;  /* [n_states] tokens */
    float *z;                    /* [n_states, rank] */
    float *units;                /* [n_states] of q_pairs */
    int32_t *sums;               /* [n_states] of q_pairs */
    uint64_t *weights;           /* [n_ids] of tokens found, in 2^-56; else 0 */
    uint64_t *merged;            /* [n_merged] tokens of all states */
    int32_t *ids, *places;       /* [bound], of a block's positions together */
    int32_t *blocks;    /* [n_blocks] of 16 places to preview, ascending: all, or a state's */
    uint8_t *probed;    /* [n_blocks of the sketch] whether they are among them; or NULL */
    uint64_t *clusters; /* [n_clusters] keys of a state's; or NULL */
    int8_t *q_signs;    /* [n_states + STATES, n_signs] of the queries */
    int8_t *q_pairs;    /* [n_states, n_lines, 4, 64] */
    uint8_t *rows;      /* [bound] decoded; NULL where the head is computed as stored */
    float *bias;        /* [bound] of decoded rows, or NULL */
    size_t row_stride;
    int32_t first, end;                  /* queries that are previewed together, of n_blocks */
    int32_t n, n_queries, n_blocks;      /* states of the level at hand, and its blocks */
    int32_t n_states, n_block;           /* those of any level, and of a block */
    int64_t n_read;                      /* bytes of the sketch, at the level at hand */
    const specrt__source_routed *routed; /* of the level at hand */
} specrt__sketch;

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with);

static inline void specrt__sketch_close(void *state) {
    specrt__sketch *s = (specrt__sketch *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* Keys that lists have room for. Guessed bounds let few more places pass than are kept; of tokens the bound
 * rises while they come. */
static inline int32_t specrt__sketch_kept_room(int32_t size) {
    return size + SPECRT__SKETCH_SPARE;
}
static inline int32_t specrt__sketch_found_room(int32_t size) {
    return 2 * size + SPECRT__SKETCH_SPARE;
}

/* What a state is scanned with, beside others: it is number i % n_states there. */
static inline specrt__scan_query *specrt__sketch_query(const specrt__sketch *s, int32_t i) {
    return &s->queries[i / s->queries->n_states];
}

SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s);

/* The token at a place. */
static inline int32_t specrt__sketch_token(const specrt__sketch *s, int32_t place) {
    int32_t row = s->shared->view.rows[place];
    return s->shared->head->desc.ids ? s->shared->head->desc.ids[row] : row;
}

/* --- the search (sketch_search.c) --- */

/* specrt__sketch_search() : the best tokens of every state, in `found`. The level's z and queries are set. */
SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s);

SPECRT__INTERNAL specrt_segment specrt__sketch_segment(specrt__sketch *s, int32_t n);
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__source_level *level);

/* --- routing --- */

extern const specrt__source specrt__sketch_source;

#endif
