/* shortlist.h : ranking keys, and products of segments */
#ifndef CORE_SHORTLIST_H
#define CORE_SHORTLIST_H

#include "core/base.h"
#include "core/head.h"

enum { SPECRT__SHORTLIST_BLOCK = 128 }; /* rows of one task, a multiple of a tile's four */

SPECRT__INTERNAL void specrt__shortlist_run(const specrt_compute *compute, int64_t n,
                                            void (*task)(void *arg, int64_t i), void *arg);

static inline int64_t specrt__shortlist_blocks(int32_t n_rows) {
    return ((int64_t)n_rows + SPECRT__SHORTLIST_BLOCK - 1) / SPECRT__SHORTLIST_BLOCK;
}

/* --- logits --- */

/* Whether hidden row h has logits of a segment. */
static inline bool specrt__shortlist_scored(const specrt_segment *s, int32_t h) {
    return s->scored_by == 0 || (h < 64 && (s->scored_by >> h & 1));
}

typedef struct specrt__shortlist_product {
    const specrt_shortlist *shortlist;
    const float *hidden;
    int32_t n;
    float *logits;
    int32_t first; /* of the segments to multiply */
} specrt__shortlist_product;

SPECRT__INTERNAL void specrt__shortlist_multiply(const specrt__shortlist_product *p,
                                                 const specrt_segment *s, int32_t begin,
                                                 int32_t end, float *logits);
SPECRT__INTERNAL void specrt__shortlist_complete(const specrt_shortlist *shortlist, int32_t first,
                                                 const float *hidden, int32_t n, float *logits);

/* --- logits of rows that several sequences share --- */

enum { SPECRT__SHORTLIST_SHARED = 64 }; /* hidden rows of one product: 32 KB of a task's stack */

/* A shortlist's first segment times the hidden rows of several sequences, each with a place of its own for
 * its logits. */
typedef struct specrt__shortlist_shared {
    const specrt_shortlist *shortlist;
    const float *hidden;  /* f32 [n, n_cols] */
    int32_t n;            /* at most SPECRT__SHORTLIST_SHARED */
    float *const *logits; /* [n] f32 [n_rows of the segment] */
} specrt__shortlist_shared;

SPECRT__INTERNAL void specrt__shortlist_shared_task(void *arg, int64_t i);

static inline void specrt__shortlist_share(specrt__shortlist_shared *product) {
    const specrt_shortlist *shortlist = product->shortlist;
    specrt__shortlist_run(shortlist->compute, specrt__shortlist_blocks(shortlist->segments->n_rows),
                          specrt__shortlist_shared_task, product);
}

/* --- the best k --- */

enum { SPECRT__SHORTLIST_MAX_K = 256 };

/* Orders a logit as an unsigned number: NaN below all, -0 as 0. */
SPECRT__BOTH static inline uint32_t specrt__shortlist_order(float logit) {
    uint32_t bits = specrt__base_bits(logit + 0.0f);
    uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return logit != logit ? 0 : order;
}

/* Orders candidates as one number: by logit, then by lower id. */
SPECRT__BOTH static inline uint64_t specrt__shortlist_key(float logit, int32_t id) {
    return (uint64_t)specrt__shortlist_order(logit) << 32 | (uint32_t)~id;
}

SPECRT__BOTH static inline int32_t specrt__shortlist_key_id(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

SPECRT__BOTH static inline float specrt__shortlist_key_logit(uint64_t key) {
    uint32_t order = (uint32_t)(key >> 32);
    return specrt__base_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

SPECRT__INTERNAL specrt_status specrt__shortlist_rank(const specrt_shortlist *shortlist,
                                                      const float *logits, int32_t n, int32_t k,
                                                      int32_t *ids, float *logprobs, float *best);

/* The ids of all rows, in the order of their logits. */
static inline void specrt__shortlist_ids(const specrt_shortlist *shortlist, int32_t *ids) {
    for (int32_t i = 0; i < shortlist->n_segments; ids += shortlist->segments[i++].n_rows)
        memcpy(ids, shortlist->segments[i].ids,
               (size_t)shortlist->segments[i].n_rows * sizeof *ids);
}

SPECRT__INTERNAL void specrt__shortlist_select(uint64_t *keys, int32_t n, int32_t k);

/* The best of a row of logits, by lower id among equals; -1: one is NaN, or none is above -inf. */
SPECRT__INTERNAL int32_t specrt__shortlist_argmax(const float *logits, int32_t n);

/* The k best tokens of the target at position i, at most SPECRT_LOGITS_MAX_K. @return how many are known. */
SPECRT__INTERNAL int32_t specrt__shortlist_target_best(const specrt_target_rows *rows, int32_t i,
                                                       int32_t n_logits, int32_t k, int32_t *ids);

#endif
