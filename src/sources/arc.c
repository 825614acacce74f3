/* arc.c : owns adaptive replacement caches over token ids (Megiddo and Modha, FAST 2003): T1 and T2 are
 * resident, B1 and B2 remember what left them, p says how much T1 deserves. The rule of replacement is
 * EvoSpec's; the paper's, over the same lists, stands in the tests. Every step takes constant time but
 * for eviction among young tokens. Refuses nothing: ids are in [0, n_ids). */
#include "sources/arc.h"

SPECRT__INTERNAL void specrt__arc_reset(specrt__arc *a, double p) {
    a->p = p;
    memset(a->sizes, 0, sizeof a->sizes);
    memset(a->lists, SPECRT__ARC_NONE, (size_t)a->n_ids);
    for (int32_t end = a->n_ids; end < a->n_ids + 5; end++) a->older[end] = a->newer[end] = end;
}

/* In memory of specrt__arc_bytes(), borrowed, aligned to 4. */
SPECRT__INTERNAL void specrt__arc_init(specrt__arc *a, int32_t n_ids, int32_t capacity,
                                       void *memory) {
    size_t n = (size_t)n_ids;
    a->n_ids = n_ids;
    a->capacity = capacity;
    a->older = (int32_t *)memory;
    a->newer = a->older + n + 5;
    a->births = a->newer + n + 5;
    a->lists = (uint8_t *)(void *)(a->births + n);
    specrt__arc_reset(a, 0);
}

/* From where it is to the newest end of a list; NONE: out of all. */
SPECRT__INTERNAL void specrt__arc_move(specrt__arc *a, int32_t id, int list) {
    int32_t end = a->n_ids + list;
    if (a->lists[id] != SPECRT__ARC_NONE) {
        a->newer[a->older[id]] = a->newer[id];
        a->older[a->newer[id]] = a->older[id];
        a->sizes[a->lists[id]]--;
    }
    a->lists[id] = (uint8_t)list;
    if (list == SPECRT__ARC_NONE) return;
    a->sizes[list]++;
    a->older[id] = a->older[end];
    a->newer[id] = end;
    a->newer[a->older[end]] = id;
    a->older[end] = id;
}

/* How far a hit among the ghosts of `own` moves p. */
static double specrt__arc_step(const specrt__arc *a, int own, int other) {
    double ratio = (double)a->sizes[other] / a->sizes[own];
    return ratio > 1 ? ratio : 1;
}

SPECRT__INTERNAL void specrt__arc_adapt(specrt__arc *a, int list) {
    if (list == SPECRT__ARC_B1) a->p += specrt__arc_step(a, SPECRT__ARC_B1, SPECRT__ARC_B2);
    if (list == SPECRT__ARC_B2) a->p -= specrt__arc_step(a, SPECRT__ARC_B2, SPECRT__ARC_B1);
    if (a->p > a->capacity) a->p = a->capacity;
    if (a->p < 0) a->p = 0;
}

/* --- EvoSpec's variant (its appendix A.3) --- */

/* The oldest of a list that has been resident for long enough, or -1. */
static int32_t specrt__arc_eligible(const specrt__arc *a, int list, int32_t now) {
    int32_t id = specrt__arc_oldest(a, list);
    while (id < a->n_ids && now - a->births[id] < SPECRT__ARC_RESIDENCY) id = a->newer[id];
    return id < a->n_ids ? id : -1;
}

/* @return the token that leaves, or -1 when all are too young. Ghosts are bounded each for itself. */
static int32_t specrt__arc_evict(specrt__arc *a, int32_t now) {
    int from = a->sizes[SPECRT__ARC_T1] > a->p ? SPECRT__ARC_T1 : SPECRT__ARC_T2;
    int32_t victim = specrt__arc_eligible(a, from, now);
    if (victim < 0) {
        from = from == SPECRT__ARC_T1 ? SPECRT__ARC_T2 : SPECRT__ARC_T1;
        victim = specrt__arc_eligible(a, from, now);
    }
    if (victim < 0) return -1;
    int ghosts = from == SPECRT__ARC_T1 ? SPECRT__ARC_B1 : SPECRT__ARC_B2;
    specrt__arc_move(a, victim, ghosts);
    if (a->sizes[ghosts] > a->capacity)
        specrt__arc_move(a, specrt__arc_oldest(a, ghosts), SPECRT__ARC_NONE);
    return victim;
}

/* Lets in a token that is not resident.
 *   adapts : whether a ghost moves p
 *   victim : the token that leaves for it, or -1
 * @return false when there is no room. */
SPECRT__INTERNAL bool specrt__arc_insert(specrt__arc *a, int32_t id, int32_t now, bool adapts,
                                         int32_t *victim) {
    /* Asked first: making room may drop it from the ghosts. */
    bool ghost = a->lists[id] != SPECRT__ARC_NONE;
    *victim = -1;
    if (adapts) specrt__arc_adapt(a, a->lists[id]);
    if (a->sizes[SPECRT__ARC_T1] + a->sizes[SPECRT__ARC_T2] == a->capacity) {
        *victim = specrt__arc_evict(a, now);
        if (*victim < 0) return false;
    }
    specrt__arc_move(a, id, ghost ? SPECRT__ARC_T2 : SPECRT__ARC_T1);
    a->births[id] = now;
    return true;
}
