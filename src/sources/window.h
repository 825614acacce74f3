/* window.h : MicroSpec's window */
#ifndef SOURCES_WINDOW_H
#define SOURCES_WINDOW_H

#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"

enum { SPECRT__WINDOW_LRU, SPECRT__WINDOW_STREAM };
enum { SPECRT__WINDOW_POSITIONS_ALL, SPECRT__WINDOW_POSITIONS_LAST, SPECRT__WINDOW_POSITIONS_TREE };
enum { SPECRT__WINDOW_MAX_K = SPECRT_LOGITS_MAX_K };
enum { SPECRT__WINDOW_BOTH, SPECRT__WINDOW_CTX, SPECRT__WINDOW_EXT };
enum { SPECRT__WINDOW_PACKED, SPECRT__WINDOW_INDEXED };

enum {
    SPECRT__WINDOW_OPTION_MODE,
    SPECRT__WINDOW_OPTION_KPRE,
    SPECRT__WINDOW_OPTION_KVER,
    SPECRT__WINDOW_OPTION_POSITIONS,
    SPECRT__WINDOW_OPTION_ONLY,
    SPECRT__WINDOW_OPTION_EMITTED,
    SPECRT__WINDOW_OPTION_MIN,
    SPECRT__WINDOW_OPTION_ROWS,
    SPECRT__WINDOW_OPTIONS
};

typedef struct specrt__window_params {
    int32_t size; /* stream: elements; else distinct tokens */
    int32_t mode, positions, only;
    int32_t kpre, kver; /* at most SPECRT__WINDOW_MAX_K */
    int32_t emitted;    /* whether emitted tokens are pushed */
    int32_t min;        /* rows to fill up to, of all sources together */
    /* [n_frequent] what to fill up with, borrowed; NULL: ascending ids, which in byte-pair vocabularies
     * are bytes and early merges */
    const int32_t *frequent;
    int32_t n_frequent;
} specrt__window_params;

typedef struct specrt__window_shared {
    specrt_env env;
    specrt__window_params params;
} specrt__window_shared;

typedef struct specrt__window {
    specrt_env env;
    specrt__window_params params;
    specrt__pool *pool;
    int32_t bit; /* of the pool */
    int32_t n_logits;
    /* Distinct tokens by recency: a doubly linked ring whose entry `list_size` stands between the
     * newest and the oldest. In the mode unique_lru they are the window, in `stream` the set that is
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
    int32_t n_fill; /* of params.frequent, in use */
} specrt__window;

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_env *env);

SPECRT__INTERNAL void specrt__window_close(void *state);
SPECRT__INTERNAL void specrt__window_begin(void *state);

/* --- pushing --- */

SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id);
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id);

/* --- what is pushed --- */

SPECRT__INTERNAL void specrt__window_prefill(void *state, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows);
SPECRT__INTERNAL void specrt__window_start(void *state, int32_t token);
SPECRT__INTERNAL void specrt__window_observe(void *state, const specrt__source_cycle *cycle);

extern const specrt__source specrt__window_source;

#endif
