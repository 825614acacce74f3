/* window.h : MicroSpec's window */
#ifndef SOURCES_WINDOW_H
#define SOURCES_WINDOW_H

#include "core/base.h"
#include "core/pool.h"

enum { SPECRT__WINDOW_LRU, SPECRT__WINDOW_STREAM, SPECRT__WINDOW_FIFO };
enum { SPECRT__WINDOW_POSITIONS_ALL, SPECRT__WINDOW_POSITIONS_LAST, SPECRT__WINDOW_POSITIONS_TREE };
enum { SPECRT__WINDOW_MAX_K = 8 };
enum { SPECRT__WINDOW_BOTH, SPECRT__WINDOW_CTX, SPECRT__WINDOW_EXT };

typedef struct specrt__window_params {
    int32_t size; /* stream: elements; else distinct tokens */
    int32_t mode, positions, only;
    int32_t kpre, kver; /* at most SPECRT__WINDOW_MAX_K */
    int32_t emitted;    /* whether emitted tokens are pushed */
    int32_t min;        /* rows to fill up to, of all sources together */
} specrt__window_params;

typedef struct specrt__window {
    specrt_desc desc;
    specrt__window_params params;
    specrt__active_pool *pool;
    int32_t n_logits;
    /* Distinct tokens by recency: a doubly linked ring whose entry `list_size` stands between the
     * newest and the oldest. In the modes unique_* they are the window, in `stream` the set that is
     * being put together before it is appended. */
    int32_t list_size, n_list;
    int32_t *ids, *older, *newer; /* [list_size + 1] */
    int32_t *places;              /* [n_ids] place in the list; -1: none */
    /* The last elements of the stream, and how many of them are this token. */
    int32_t ring_begin, n_ring;
    int32_t *ring;   /* [size] */
    int32_t *counts; /* [n_ids] */
    int32_t n_seed;  /* the best tokens at the latest prompt position */
    int32_t seed[SPECRT_LOGITS_MAX_K];
    /* [n_frequent] borrowed; NULL: ascending ids, which in byte-pair vocabularies are bytes and
     * early merges */
    const int32_t *frequent;
    int32_t n_frequent, n_fill; /* n_fill: of the list, in use */
} specrt__window;

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__active_pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_desc *desc);

static inline void specrt__window_free(specrt__window *w) {
    if (!w) return;
    specrt_desc desc = w->desc;
    specrt__base_free(&desc, w);
}

SPECRT__INTERNAL void specrt__window_reset(specrt__window *w);

/* --- pushing --- */

SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id);
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id);

/* --- what is pushed --- */

SPECRT__INTERNAL void specrt__window_prefill(specrt__window *w, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows);

static inline int32_t specrt__window_frequent(const specrt__window *w, int32_t rank) {
    return w->frequent ? w->frequent[rank] : rank;
}

SPECRT__INTERNAL void specrt__window_fill(specrt__window *w);
SPECRT__INTERNAL void specrt__window_start(specrt__window *w, int32_t token);
SPECRT__INTERNAL void specrt__window_learn(specrt__window *w, const specrt_draft *draft,
                                           const specrt_verdict *verdict,
                                           const specrt_target_rows *rows);

/* Filled up in any case: a prompt may have grown since the last time, and other sources may have. */
static inline void specrt__window_observe(specrt__window *w, const specrt_draft *draft,
                                          const specrt_verdict *verdict,
                                          const specrt_target_rows *rows) {
    if (w->params.only != SPECRT__WINDOW_CTX) specrt__window_learn(w, draft, verdict, rows);
    specrt__window_fill(w);
}

#endif
