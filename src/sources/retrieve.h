/* retrieve.h : EvoSpec's retrieval */
#ifndef SOURCES_RETRIEVE_H
#define SOURCES_RETRIEVE_H

#include "core/os.h"
#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/arc.h"

enum {
    SPECRT__RETRIEVE_TOP = 10, /* of the target, at the correction, and of the index */
    /* The target's best, the nearest of the index, and the corrected token. */
    SPECRT__RETRIEVE_SEEDS = 2 * SPECRT__RETRIEVE_TOP + 1,
    SPECRT__RETRIEVE_SUCCESSORS = 8, /* of each of them */
    SPECRT__RETRIEVE_INSERTIONS = 32,
    SPECRT__RETRIEVE_WARM_UP = 50, /* events before p moves */
    SPECRT__RETRIEVE_RECORDS = 16, /* that may wait for another thread */
    SPECRT__RETRIEVE_NEVER = INT32_MAX
};

enum { SPECRT__RETRIEVE_LOGITS, SPECRT__RETRIEVE_HNSW_H, SPECRT__RETRIEVE_HNSW_W };
enum {
    SPECRT__RETRIEVE_SEM,
    SPECRT__RETRIEVE_GRAPH,
    SPECRT__RETRIEVE_KEEP,
    SPECRT__RETRIEVE_MODE,
    SPECRT__RETRIEVE_PROMPT,
    SPECRT__RETRIEVE_OPTIONS
};
enum { SPECRT__RETRIEVE_PROMPT_OFF, SPECRT__RETRIEVE_PROMPT_TOKENS, SPECRT__RETRIEVE_PROMPT_BEST };

typedef struct specrt__retrieve_params {
    int32_t size;
    int32_t sem, prompt;
    bool keep; /* what was retrieved outlives specrt_session_begin() */
    bool async;
    specrt_cograph graph; /* header NULL: none */
    specrt_hnsw index;    /* likewise */
} specrt__retrieve_params;

typedef struct specrt__retrieve_shared {
    specrt_env env;
    specrt__retrieve_params params;
} specrt__retrieve_shared;

/* What the cache learns from a cycle, and what that changed. */
typedef struct specrt__retrieve_record {
    int32_t now; /* cycles before it */
    int32_t n_tokens, n_best, n_changes;
    bool event, told; /* told: the target's hidden state is among the queries */
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    int32_t best[SPECRT__RETRIEVE_TOP];
    int32_t changes[2 * SPECRT__RETRIEVE_INSERTIONS]; /* id: it came in; ~id: it left */
} specrt__retrieve_record;

typedef struct specrt__retrieve {
    specrt_task task; /* first, so that it leads back here */
    specrt_env env;
    specrt__retrieve_params params;
    specrt__pool *pool;
    int32_t bit; /* of the pool */
    int32_t n_logits;
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;
    int32_t n_cycles;
    /* Records are numbered, and number i is in place i % n_records:
     *
     *           taken          done           limit         posted        taken + n_records
     *     over    |  worked off  |  the task's   |   waiting    |    free   |
     *
     * The session writes records up to `posted`, gives them to a task up to `limit`, and takes over what they
     * changed up to `taken`; working them off moves `done`. A task is out while done is not limit. Until then
     * it alone writes done, last of all, and has what follows done; limit stays. So of all that changes the
     * two sides share but done, which says whose a record is. */
    uint32_t posted, limit, taken, n_records;
    bool due; /* records beyond limit have an event */
    uint32_t done;
    int32_t n_events;  /* corrections that could not have been drafted */
    int32_t n_blocked; /* candidates that found no room */
    /* [n_ids] the last event that a token was a candidate of; NEVER: it may not */
    int32_t *offered;
    specrt__arc arc;
    specrt__retrieve_record *records; /* [n_records] */
    float *queries;                   /* [n_records, width of the index]; NULL: no index */
    uint8_t *scratch;                 /* of searches */
} specrt__retrieve;

/* --- what a policy's sessions share --- */

/* Of the hidden states that it reads; 0: none. */
static inline int32_t specrt__retrieve_width(const specrt__retrieve_params *params) {
    return params->sem == SPECRT__RETRIEVE_HNSW_H ? params->index.header->dim : 0;
}

/* --- a session's --- */

SPECRT__INTERNAL void specrt__retrieve_bar(specrt__retrieve *r);
SPECRT__INTERNAL specrt__retrieve *specrt__retrieve_create(specrt__pool *pool,
                                                           const specrt__retrieve_params *params,
                                                           int32_t n_logits, const specrt_env *env);

/* Returns when no task is out. */
static inline void specrt__retrieve_settle(const specrt__retrieve *r) {
    while (specrt__os_load(&r->done) != r->limit) specrt__os_yield();
}

SPECRT__INTERNAL void specrt__retrieve_close(void *state);

/* --- working off --- */

SPECRT__INTERNAL void specrt__retrieve_work(specrt__retrieve *r, uint32_t number);

/* --- between cycles --- */

SPECRT__INTERNAL void specrt__retrieve_take(specrt__retrieve *r);

/* Works off what waits; no task is out. */
static inline void specrt__retrieve_finish(specrt__retrieve *r) {
    while (r->done != r->posted) specrt__retrieve_work(r, r->done);
    r->limit = r->done;
    r->due = false;
}

SPECRT__INTERNAL void specrt__retrieve_begin(void *state);
SPECRT__INTERNAL void specrt__retrieve_read(specrt__retrieve *r, int32_t token, const int32_t *best,
                                            int32_t n_best, specrt__pool *pool);
SPECRT__INTERNAL void specrt__retrieve_prefill(void *state, const int32_t *tokens, int32_t n,
                                               const specrt_target_rows *rows);
SPECRT__INTERNAL void specrt__retrieve_observe(void *state, const specrt__source_cycle *cycle);

extern const specrt__source specrt__retrieve_source;

#endif
