/* sketch.h : the low-rank copy of a head, and what is found with it */
#ifndef SOURCES_SKETCH_H
#define SOURCES_SKETCH_H

#include "core/base.h"
#include "core/head.h"
#include "sources/source.h"
#include "sources/scan.h"

/* --- the section --- */

/* Dimensions of 64 bytes of codes. */
static inline int32_t specrt__sketch_step(const specrt_sketch_header *h) {
    return h->four_bits ? 8 : 4;
}

/* Bytes of the codes of 16 places, of one width. */
static inline size_t specrt__sketch_stride(const specrt_sketch_header *h) {
    return 64 * (size_t)(h->rank / specrt__sketch_step(h));
}

/* --- what sessions share --- */

enum { SPECRT__SKETCH_RANK, SPECRT__SKETCH_SCAN, SPECRT__SKETCH_OPTIONS };

extern const specrt__active_option specrt__sketch_options[];

enum {
    SPECRT__SKETCH_PARTS = 4, /* of a scan, for as many threads */
    SPECRT__SKETCH_SPARE = 32 /* beyond 2 * size, for a sample of a small size */
};

typedef struct specrt__sketch_shared {
    specrt_desc desc;
    const specrt_head *head;
    specrt_sketch view;
    specrt_segment basis; /* its first `rank` rows */
    specrt__scan_kernel *scan;
    const specrt__scan_adder *adder; /* of bands */
    /* Its bias, of bands with their constants, stands behind this struct. Of bands only the bias counts. */
    specrt__scan_rows rows;
    specrt__scan_band bands[SPECRT_MAX_SKETCH_BANDS];
    const float *center; /* [rank] of bands, taken off z; stands behind the bias; NULL: one width */
    int32_t n_bands;     /* to scan; 0: one width */
    int32_t size, rank, n_places; /* rows to name; dimensions and places to scan */
} specrt__sketch_shared;

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view, int32_t rank);
SPECRT__INTERNAL void specrt__sketch_fill_rows(specrt__sketch_shared *s, size_t n_bias);

/* --- a session --- */

/* The greatest scores met so far: keys [n_sorted] are specrt__active_key() of tokens that count, not in
 * order; behind them stand newer ones, scores with their places. */
typedef struct specrt__sketch_found {
    uint64_t *keys; /* [2 * size of the policy + SPARE] */
    int32_t n, n_sorted;
    int32_t size, room; /* to keep; to hold before the others go */
} specrt__sketch_found;

typedef struct specrt__sketch {
    specrt_desc desc;
    const specrt__sketch_shared *shared;
    /* [topk], or as many as it takes with STATES in each; of bands [n_bands, topk], and the first's know
     * `least` */
    specrt__scan_query *queries;
    uint64_t *keys;              /* [topk, PARTS, 2 * size + SPARE] */
    specrt__sketch_found *found; /* [topk, PARTS] */
    float *z;                    /* [topk, rank] */
    uint64_t *weights;           /* [n_ids] of tokens found, in 2^-56; else 0 */
    uint64_t *merged;            /* [n_merged] tokens of all states */
    int32_t *ids, *places;       /* [bound] */
    int8_t *q;                   /* [topk + STATES, rank] of the queries */
    uint8_t *rows;               /* [bound] decoded; NULL where the head is computed as stored */
    float *bias;                 /* [bound] of decoded rows, or NULL */
    size_t row_stride;
    int32_t n, n_queries, topk;          /* states of the level at hand */
    int64_t n_read;                      /* bytes of codes and more, at the level at hand */
    const specrt__active_routed *routed; /* of the level at hand */
} specrt__sketch;

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with);

static inline void specrt__sketch_close(void *state) {
    specrt__sketch *s = (specrt__sketch *)state;
    specrt_desc desc = s->desc;
    specrt__base_free(&desc, s);
}

/* What a state is scanned with, beside others: it is number i % n_states there. */
static inline specrt__scan_query *specrt__sketch_query(const specrt__sketch *s, int32_t i) {
    return &s->queries[i / s->queries->n_states];
}

SPECRT__INTERNAL int32_t specrt__sketch_ask(specrt__sketch *s);
SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s, int32_t i);

/* The token at a place, or -1. */
static inline int32_t specrt__sketch_token(const specrt__sketch *s, int32_t place) {
    if (place >= s->shared->n_places) return -1;
    int32_t row = s->shared->view.rows[place];
    return s->shared->head->desc.ids ? s->shared->head->desc.ids[row] : row;
}

SPECRT__INTERNAL int64_t specrt__sketch_scanned(const specrt__sketch_shared *shared);
SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s);
SPECRT__INTERNAL specrt_segment specrt__sketch_segment(specrt__sketch *s, int32_t n);
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__active_level *level);

/* --- routing --- */

extern const specrt__source specrt__sketch_source;

#endif
