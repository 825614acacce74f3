/* hnsw.h : search of an index, for builders and retrieval */
#ifndef SOURCES_HNSW_H
#define SOURCES_HNSW_H

#include "core/simd.h"
#include "core/shortlist.h"

typedef struct specrt__hnsw_scratch {
    const specrt__simd_kernels *kernels;
    uint64_t *seen; /* a bit of each node */
    uint64_t *keys; /* [ef] best first */
    float *query;   /* [n_cols] padded with zeros */
    int16_t *codes; /* [n_cols] times unit: the query */
    float *scores;  /* [2 m], or [ef] to score exactly */
    int32_t *nodes; /* [2 m], or [ef] */
    float unit, offset;
} specrt__hnsw_scratch;

/* --- search --- */

/* The better the greater, ties to the lower node; the lowest bit tells that it is not yet expanded. */
static inline uint64_t specrt__hnsw_key(float score, int32_t node) {
    uint64_t key = specrt__shortlist_key(score, node);
    return key >> 32 << 32 | (uint32_t)(key << 1) | 1;
}

#endif
