/* pool.h : which tokens are wanted, and their packed rows */
#ifndef CORE_POOL_H
#define CORE_POOL_H

#include "core/head.h"
#include "core/shortlist.h"

/* --- packing --- */

typedef struct specrt__pool_packing {
    const specrt_head *head;
    const int32_t *ids; /* the token of each place; it has a row */
    int32_t n;
    uint8_t *rows;
    size_t row_stride;
    float *bias;          /* NULL when the head has none */
    const int32_t *slots; /* [n] the places to fill; NULL: 0 to n - 1 */
} specrt__pool_packing;

SPECRT__INTERNAL void specrt__pool_packing_task(void *arg, int64_t i);

/* Rows of the head, each to its place. */
static inline void specrt__pool_pack(specrt__pool_packing *packing) {
    specrt__shortlist_run(&packing->head->compute, specrt__shortlist_blocks(packing->n),
                          specrt__pool_packing_task, packing);
}

SPECRT__INTERNAL specrt_segment specrt__pool_gather(specrt__pool_packing *named, int32_t *places);

/* --- a stock: rows that several sessions hold, each packed once --- */

/* A place is taken while a session holds its token. */
struct specrt_stock {
    specrt_env env;
    const specrt_head *head;
    int32_t n_rows;     /* places */
    int32_t n_promised; /* rows that its sessions may hold: at most n_rows, unless those are all */
    int32_t n_sessions;
    int32_t n_held, n_used; /* n_used: the places that were ever taken are below it */
    int64_t n_packed;       /* rows read from the head, since creation */
    uint64_t version;       /* counts changes of what is held */
    int32_t *place_of;      /* [head's n_ids] of a token; -1: nobody holds it */
    int32_t *ids;           /* [n_rows] token of a place that is taken */
    int32_t *n_holders;     /* [n_rows] */
    int32_t *vacant;        /* [n_rows - n_held] a stack, lower places first */
    float *bias;            /* [n_rows], or NULL */
    uint8_t *rows;          /* [n_rows], aligned to 64 */
    size_t row_stride;
    /* The rows that the last batch multiplied for all of its states (>>stock). */
    uint64_t chosen;      /* the version that they were chosen for */
    int32_t chosen_least; /* by so many holders */
    int32_t n_shared, max_shared;
    int32_t *shared;     /* [max_shared] places, ascending */
    int32_t *shared_at;  /* [n_rows] where among them; -1 */
    int32_t *n_of_batch; /* [n_used] scratch: holders in a batch */
    float *logits;       /* [SPECRT__SHORTLIST_SHARED, max_shared] */
    int32_t n_costs;
    double *costs; /* [n_costs] */
};

/* --- membership: who wants a token, and the slots of packed rows --- */

/* A token has a bit for every source that wants it; it is packed while one of SPECRT__POOL_PACKED
 * wants it and no fixed segment holds it. */
enum {
    SPECRT__POOL_INVALID = 1, /* never proposed */
    SPECRT__POOL_FIXED = 2,   /* a row of a fixed segment */
    SPECRT__POOL_PINNED = 4,  /* terminators */
    SPECRT__POOL_FILL = 8,    /* makes up a least number of rows */
    SPECRT__POOL_SOURCE = 16, /* the first source's, whose bits end below CHANGED */
    SPECRT__POOL_MAX_SOURCES = 26,
    SPECRT__POOL_CHANGED = 1 << 30, /* listed in `changed` */
    SPECRT__POOL_PACKED = (SPECRT__POOL_CHANGED - 1) & ~(SPECRT__POOL_INVALID | SPECRT__POOL_FIXED)
};

/* Wishes may change any number of times; sync() then moves as few rows as the difference needs. */
typedef struct specrt__pool {
    specrt_env env;
    const specrt_head *head;
    int32_t n_ids,
        capacity;     /* tokens are below n_ids; sources never want more than capacity rows */
    int32_t n_fixed;  /* tokens with the bit FIXED */
    int32_t n_wanted; /* tokens that shall be packed */
    int32_t n_rows;   /* tokens that are, as of the last sync */
    int32_t n_changed;
    int32_t n_sources;         /* that have a bit */
    int64_t n_copied, n_moved; /* rows, since creation: from the head, and from slot to slot */
    int32_t *wants;            /* [n_ids] */
    int32_t *slots;            /* [n_ids] -1: none */
    int32_t *changed;          /* [n_ids] tokens to look at */
    int32_t *ids;              /* [capacity] token of a slot; -1 inside sync: a hole */
    int32_t *holes, *fresh;    /* [capacity] scratch of sync */
    float *bias;               /* [capacity], or NULL */
    uint8_t *rows;             /* [capacity], aligned to 64 */
    size_t row_stride;
    specrt_stock *stock; /* borrowed: rows and biases are its own, or NULL */
    int32_t *places;     /* [capacity] of a slot's row in the stock, else the head; NULL: packed */
} specrt__pool;

SPECRT__INTERNAL specrt__pool *specrt__pool_make(const specrt_head *head, int32_t n_ids,
                                                 int32_t capacity, specrt_stock *stock,
                                                 bool in_head, const specrt_env *env);

static inline specrt__pool *specrt__pool_create(const specrt_head *head, int32_t n_ids,
                                                int32_t capacity, const specrt_env *env) {
    return specrt__pool_make(head, n_ids, capacity, NULL, false, env);
}

SPECRT__INTERNAL void specrt__pool_free(specrt__pool *p);
SPECRT__INTERNAL void specrt__pool_reset(specrt__pool *p);

/* The bit of one more source that packs rows. Each asks once, when a session opens it, and wants and drops
 * tokens by the bit. */
static inline int32_t specrt__pool_register(specrt__pool *p) {
    return (int32_t)SPECRT__POOL_SOURCE << p->n_sources++;
}

/* Bits that no source takes back: INVALID and FIXED, before anything is wanted. */
static inline void specrt__pool_mark(specrt__pool *p, int32_t id, int32_t bit) {
    if (bit == SPECRT__POOL_FIXED && !(p->wants[id] & SPECRT__POOL_FIXED)) p->n_fixed++;
    p->wants[id] |= bit;
}

/* An id that a source may propose. */
static inline bool specrt__pool_valid(const specrt__pool *p, int32_t id) {
    return id >= 0 && id < p->n_ids && !(p->wants[id] & SPECRT__POOL_INVALID);
}

static inline bool specrt__pool_member(const specrt__pool *p, int32_t id) {
    return id >= 0 && id < p->n_ids &&
           (p->wants[id] & (SPECRT__POOL_FIXED | SPECRT__POOL_PACKED)) != 0;
}

static inline void specrt__pool_change(specrt__pool *p, int32_t id, int32_t wants) {
    int32_t fixed = p->wants[id] & SPECRT__POOL_FIXED;
    bool before = !fixed && (p->wants[id] & SPECRT__POOL_PACKED) != 0;
    bool after = !fixed && (wants & SPECRT__POOL_PACKED) != 0;
    p->n_wanted += (int32_t)after - (int32_t)before;
    if (before != after && !(wants & SPECRT__POOL_CHANGED)) {
        p->changed[p->n_changed++] = id;
        wants |= SPECRT__POOL_CHANGED;
    }
    p->wants[id] = wants;
}

/* The source of this bit wants a valid token, or no longer does. */
static inline void specrt__pool_want(specrt__pool *p, int32_t id, int32_t bit) {
    specrt__pool_change(p, id, p->wants[id] | bit);
}

static inline void specrt__pool_drop(specrt__pool *p, int32_t id, int32_t bit) {
    specrt__pool_change(p, id, p->wants[id] & ~bit);
}

SPECRT__INTERNAL void specrt__pool_sync(specrt__pool *p);
SPECRT__INTERNAL bool specrt__pool_arrange(specrt__pool *p, const uint8_t *ids, int32_t n);
SPECRT__INTERNAL void specrt__pool_segment(const specrt__pool *p, specrt_segment *out);

#endif
