/* arc.h : the adaptive cache of retrieval */
#ifndef SOURCES_ARC_H
#define SOURCES_ARC_H

#include "core/base.h"

enum { SPECRT__ARC_NONE, SPECRT__ARC_T1, SPECRT__ARC_T2, SPECRT__ARC_B1, SPECRT__ARC_B2 };

typedef struct specrt__arc {
    int32_t n_ids, capacity;
    double p;
    int32_t sizes[5]; /* by list */
    int32_t *older,
        *newer;      /* [n_ids + 5] rings; entry n_ids + list stands between newest and oldest */
    int32_t *births; /* [n_ids] when a resident came in */
    uint8_t *lists;  /* [n_ids] */
} specrt__arc;

static inline size_t specrt__arc_bytes(int32_t n_ids) {
    return (3 * (size_t)n_ids + 10) * sizeof(int32_t) + (size_t)n_ids;
}

SPECRT__INTERNAL void specrt__arc_reset(specrt__arc *a, double p);
SPECRT__INTERNAL void specrt__arc_init(specrt__arc *a, int32_t n_ids, int32_t capacity,
                                       void *memory);

static inline bool specrt__arc_resident(const specrt__arc *a, int32_t id) {
    return a->lists[id] == SPECRT__ARC_T1 || a->lists[id] == SPECRT__ARC_T2;
}

static inline int32_t specrt__arc_oldest(const specrt__arc *a, int list) {
    return a->newer[a->n_ids + list];
}

SPECRT__INTERNAL void specrt__arc_move(specrt__arc *a, int32_t id, int list);
SPECRT__INTERNAL void specrt__arc_adapt(specrt__arc *a, int list);

/* --- EvoSpec's variant (its appendix A.3) --- */

enum { SPECRT__ARC_RESIDENCY = 8 };

/* A resident is used. */
static inline void specrt__arc_touch(specrt__arc *a, int32_t id) {
    if (specrt__arc_resident(a, id)) specrt__arc_move(a, id, SPECRT__ARC_T2);
}

SPECRT__INTERNAL bool specrt__arc_insert(specrt__arc *a, int32_t id, int32_t now, bool adapts,
                                         int32_t *victim);

#endif
