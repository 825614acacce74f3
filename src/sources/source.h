/* source.h : what a routed source is, and how it adds segments to a level */
#ifndef SOURCES_SOURCE_H
#define SOURCES_SOURCE_H

#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"

/* --- routed sources: segments chosen anew at every level of the tree --- */

/* What a source may route by. Nothing here depends on the tokens that the level will propose, which
 * keeps the shortlist a function of the prefix (docs/METHODS.md). */
typedef struct specrt__active_level {
    int32_t level;         /* 0: the first pass */
    int32_t n;             /* rows of the pass */
    const int32_t *tokens; /* [n] that the pass was fed, the root at level 0 */
    const float *logprobs; /* [n] cumulative */
    const float *fed;      /* f32 [n, n_cols] hidden states it was fed; NULL: not told */
    const float *hidden;   /* f32 [n, n_cols] the drafter's output */
    bool ahead;            /* the level's call of specrt__active_source.ahead was made */
} specrt__active_level;

enum { SPECRT__ACTIVE_MAX_SEGMENTS = 1280 }; /* three sources of 400 clusters, and the others' */

/* The segments of a level, as sources add them, and which tokens they brought at which level of this
 * cycle: a token is scored by the first segment that has it. */
typedef struct specrt__active_routed {
    const specrt__active_pool *pool; /* fixed and packed tokens come first */
    uint32_t *levels; /* [pool->n_ids] bit i: routed at level i; NULL: nothing routes */
    int32_t level;
    specrt_segment segments[SPECRT__ACTIVE_MAX_SEGMENTS];
    int32_t n_segments, n_rows, n_masked;
    int32_t max_rows; /* of a level: the policy's bound on what is routed */
    int64_t n_read;   /* bytes of weights and codes that this level's sources chose by */
    int32_t *masked;  /* [max_rows] */
} specrt__active_routed;

/* Whether a token would be a new row of the level. */
static inline bool specrt__active_is_new(const specrt__active_routed *r, int32_t id) {
    return specrt__active_valid(r->pool, id) && !specrt__active_member(r->pool, id) &&
           !(r->levels[id] >> r->level & 1);
}

/* Adds a segment without its mask, which is found here. @return false, and nothing is added, beyond
 * the bounds. Ids must be distinct within the segment. */
static inline bool specrt__active_route(specrt__active_routed *r, const specrt_segment *segment) {
    if (segment->n_rows < 1) return true;
    if (r->n_segments == SPECRT__ACTIVE_MAX_SEGMENTS || r->n_rows + segment->n_rows > r->max_rows)
        return false;
    specrt_segment *s = &r->segments[r->n_segments++];
    uint32_t bit = 1u << r->level;
    *s = *segment;
    s->masked = r->masked + r->n_masked;
    s->n_masked = 0;
    for (int32_t i = 0; i < s->n_rows; i++) {
        int32_t id = s->ids[i];
        if (specrt__active_is_new(r, id))
            r->levels[id] |= bit;
        else
            r->masked[r->n_masked + s->n_masked++] = i;
    }
    r->n_rows += s->n_rows;
    r->n_masked += s->n_masked;
    return true;
}

typedef struct specrt__active_option {
    const char *key;
    const char *names;          /* "off on": they stand for 0, 1...; NULL: it is a number */
    int32_t least, most, value; /* limits of a number; the default */
} specrt__active_option;

enum { SPECRT__ACTIVE_MAX_OPTIONS = 8 };

/* Does not compile unless a table has n options and a source has room for their values. */
#define SPECRT__ACTIVE_FITS(table, n)                                                              \
    typedef char table##_fit                                                                       \
        [sizeof table / sizeof *table == (n) && (n) <= (int)SPECRT__ACTIVE_MAX_OPTIONS ? 1 : -1]

/* What a routed source does; its section defines one, and >>policy lists it with its options. */
typedef struct specrt__active_source {
    /* What all sessions share, from size and options in the table's order.
     *   desc : the policy's
     *   *bound : the most rows it adds at a level
     * @return as specrt_policy_create. */
    specrt_status (*share)(const specrt_bundle *bundle, const specrt_head *head,
                           const specrt_policy_desc *desc, int32_t size, const int32_t *options,
                           void **shared, int32_t *bound, specrt_error *err);
    void (*unshare)(void *shared);
    /* Scratch of a session; NULL: out of memory. */
    void *(*open)(void *shared, int32_t topk, const specrt_desc *desc);
    void (*close)(void *state);
    /* Adds the level's segments with specrt__active_route. Never allocates. */
    void (*route)(void *state, const specrt__active_level *level, specrt__active_routed *out);
    /* What route can do before the level's `hidden` is there, where that may come first; NULL: nothing. */
    void (*ahead)(void *state, const specrt__active_level *level);
} specrt__active_source;

#endif
