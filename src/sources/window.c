/* window.c : owns MicroSpec's window (section "MicroSpec" of docs/METHODS.md): which tokens the target
 * lately saw or thought likely. Every step takes constant time; nothing is allocated after creation.
 * Refuses nothing: tokens that may not be proposed are passed over. */
#include "sources/window.h"
#include "core/base.h"
#include "core/pool.h"

static void specrt__window_list_clear(specrt__window *w) {
    w->n_list = 0;
    w->older[w->list_size] = w->newer[w->list_size] = w->list_size;
}

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__active_pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_desc *desc) {
    bool stream = params->mode == SPECRT__WINDOW_STREAM;
    size_t n_ids = (size_t)pool->n_ids, size = (size_t)params->size;
    size_t list = (size < n_ids ? size : n_ids) + 1;
    size_t words = 3 * list + n_ids + (stream ? size + n_ids : 0);
    size_t bytes = sizeof(specrt__window) + words * sizeof(int32_t);
    specrt__window *w = (specrt__window *)specrt__base_alloc(desc, bytes);
    if (!w) return NULL;
    memset(w, 0, bytes);
    w->desc = *desc;
    w->params = *params;
    w->pool = pool;
    w->n_logits = n_logits;
    w->list_size = (int32_t)list - 1;
    w->ids = (int32_t *)(void *)(w + 1);
    w->older = w->ids + list;
    w->newer = w->older + list;
    w->places = w->newer + list;
    w->ring = stream ? w->places + n_ids : NULL;
    w->counts = stream ? w->ring + size : NULL;
    memset(w->places, 0xff, n_ids * sizeof *w->places);
    return w;
}

/* Empty; the pool was reset too. Only what the list and the ring name is not as created. */
SPECRT__INTERNAL void specrt__window_reset(specrt__window *w) {
    for (int32_t i = 0; i < w->n_list; i++) w->places[w->ids[i]] = -1;
    for (int32_t i = 0; i < w->n_ring; i++) w->counts[w->ring[i]] = 0;
    specrt__window_list_clear(w);
    w->ring_begin = w->n_ring = w->n_seed = w->n_fill = 0;
}

/* --- pushing --- */

/* To the new end of the list. @return the token that leaves it, or -1. */
SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id) {
    int32_t end = w->list_size, place = w->places[id], evicted = -1;
    if (place < 0 && w->n_list == w->list_size) {
        place = w->newer[end];
        evicted = w->ids[place];
        w->places[evicted] = -1;
    }
    if (place < 0) {
        place = w->n_list++;
    } else {
        w->newer[w->older[place]] = w->newer[place];
        w->older[w->newer[place]] = w->older[place];
    }
    w->ids[place] = id;
    w->places[id] = place;
    w->older[place] = w->older[end];
    w->newer[place] = end;
    w->newer[w->older[end]] = place;
    w->older[end] = place;
    return evicted;
}

/* One more element of the stream; the oldest leaves a full window. */
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id) {
    int32_t size = w->params.size;
    if (w->n_ring == size) {
        int32_t oldest = w->ring[w->ring_begin];
        if (--w->counts[oldest] == 0) specrt__active_drop(w->pool, oldest, SPECRT__ACTIVE_WINDOW);
        w->ring_begin = w->ring_begin + 1 == size ? 0 : w->ring_begin + 1;
        w->n_ring--;
    }
    int32_t end = w->ring_begin < size - w->n_ring ? w->ring_begin + w->n_ring
                                                   : w->ring_begin - (size - w->n_ring);
    w->ring[end] = id;
    w->n_ring++;
    if (w->counts[id]++ == 0) specrt__active_want(w->pool, id, SPECRT__ACTIVE_WINDOW);
}

/* A single element. */
static void specrt__window_push(specrt__window *w, int32_t id) {
    if (!specrt__active_valid(w->pool, id)) return;
    if (w->params.mode == SPECRT__WINDOW_STREAM) {
        specrt__window_append(w, id);
        return;
    }
    if (w->params.mode == SPECRT__WINDOW_FIFO && w->places[id] >= 0) return;
    int32_t evicted = specrt__window_touch(w, id);
    specrt__active_want(w->pool, id, SPECRT__ACTIVE_WINDOW);
    if (evicted >= 0) specrt__active_drop(w->pool, evicted, SPECRT__ACTIVE_WINDOW);
}

/* An element of a set. The stream takes sets as tuples without repetition, ordered by last
 * occurrence; of more than `size` elements only the last could stay, so the list may forget. */
static void specrt__window_add(specrt__window *w, int32_t id) {
    if (w->params.mode != SPECRT__WINDOW_STREAM)
        specrt__window_push(w, id);
    else if (specrt__active_valid(w->pool, id))
        specrt__window_touch(w, id);
}

/* The set is complete. */
static void specrt__window_flush(specrt__window *w) {
    if (w->params.mode != SPECRT__WINDOW_STREAM) return;
    for (int32_t at = w->newer[w->list_size]; at != w->list_size; at = w->newer[at]) {
        specrt__window_append(w, w->ids[at]);
        w->places[w->ids[at]] = -1;
    }
    specrt__window_list_clear(w);
}

/* --- what is pushed --- */

/* The k best tokens of the target at row i. @return how many are known. */
static int32_t specrt__window_best(const specrt__window *w, const specrt_target_rows *rows,
                                   int32_t i, int32_t k, int32_t *out) {
    if (!rows) return 0;
    if (rows->logits)
        return specrt_logits_topk(rows->logits + (int64_t)i * w->n_logits, w->n_logits, k, out);
    int32_t n = rows->ids && rows->k > 0 ? (rows->k < k ? rows->k : k) : 0;
    for (int32_t j = 0; j < n; j++) out[j] = rows->ids[(int64_t)i * rows->k + j];
    return n;
}

SPECRT__INTERNAL void specrt__window_prefill(specrt__window *w, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows) {
    bool ext = w->params.only == SPECRT__WINDOW_EXT;
    for (int32_t i = 0; i < n; i++) {
        if (!ext) specrt__window_push(w, tokens[i]);
        w->n_seed = specrt__window_best(w, rows, i, w->params.kpre, w->seed);
        for (int32_t j = 0; j < w->n_seed && !ext; j++) specrt__window_add(w, w->seed[j]);
    }
}

/* Tokens by frequency make up for a short window, and give way as it grows: the shortest prefix of the
 * list that reaches the least number of rows, found from the one before. */
SPECRT__INTERNAL void specrt__window_fill(specrt__window *w) {
    specrt__active_pool *pool = w->pool;
    int32_t n_wanted = w->params.min - pool->n_fixed;
    while (w->n_fill > 0) {
        int32_t id = specrt__window_frequent(w, w->n_fill - 1);
        if (specrt__active_valid(pool, id)) {
            specrt__active_drop(pool, id, SPECRT__ACTIVE_FILL);
            if (pool->n_wanted < n_wanted) {
                specrt__active_want(pool, id, SPECRT__ACTIVE_FILL);
                break;
            }
        }
        w->n_fill--;
    }
    while (w->n_fill < w->n_frequent && pool->n_wanted < n_wanted) {
        int32_t id = specrt__window_frequent(w, w->n_fill++);
        if (specrt__active_valid(pool, id)) specrt__active_want(pool, id, SPECRT__ACTIVE_FILL);
    }
}

/* The prompt is complete, and `token` follows it. */
SPECRT__INTERNAL void specrt__window_start(specrt__window *w, int32_t token) {
    if (w->params.only == SPECRT__WINDOW_EXT)
        for (int32_t j = 0; j < w->n_seed; j++) specrt__window_add(w, w->seed[j]);
    specrt__window_flush(w);
    if (w->params.emitted && w->params.only != SPECRT__WINDOW_CTX) specrt__window_push(w, token);
    specrt__window_fill(w);
}

static void specrt__window_add_row(specrt__window *w, const specrt_target_rows *rows,
                                   int32_t node) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    int32_t n = specrt__window_best(w, rows, node, w->params.kver, best);
    for (int32_t j = 0; j < n; j++) specrt__window_add(w, best[j]);
}

/* The tree, then the target's best at the verified positions, then what was emitted. */
SPECRT__INTERNAL void specrt__window_learn(specrt__window *w, const specrt_draft *draft,
                                           const specrt_verdict *verdict,
                                           const specrt_target_rows *rows) {
    for (int32_t i = 1; i < draft->n; i++) specrt__window_add(w, draft->tokens[i]);
    specrt__window_flush(w);
    if (w->params.positions == SPECRT__WINDOW_POSITIONS_TREE) {
        for (int32_t i = 0; i < draft->n; i++) specrt__window_add_row(w, rows, i);
    } else {
        int32_t first = w->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? verdict->n - 1 : 0;
        for (int32_t i = first; i < verdict->n; i++)
            specrt__window_add_row(w, rows, verdict->nodes[i]);
    }
    specrt__window_flush(w);
    for (int32_t i = 0; i < verdict->n && w->params.emitted; i++)
        specrt__window_push(w, verdict->tokens[i]);
}
