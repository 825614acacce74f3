/* pool.c : owns membership: which sources want a token, the slots of packed rows, and the rows of a stock
 * that several sessions hold. A change of wishes moves as few rows as the difference needs. */
#include "core/pool.h"
#include "core/base.h"
#include "core/os.h"
#include "core/head.h"
#include "core/shortlist.h"

/* --- packing --- */

SPECRT__INTERNAL void specrt__pool_packing_task(void *arg, int64_t i) {
    const specrt__pool_packing *p = (const specrt__pool_packing *)arg;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = p->n - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    for (int32_t r = begin; r < end; r++) {
        int32_t slot = p->slots ? p->slots[r] : r;
        int32_t row = specrt__head_row_of(p->head, p->ids[slot]);
        if (r + 1 < end) {
            int32_t next = p->slots ? p->slots[r + 1] : r + 1;
            specrt__head_fetch(p->head, specrt__head_row_of(p->head, p->ids[next]));
        }
        specrt__head_pack(p->head, row, p->rows + (size_t)slot * p->row_stride);
        if (p->bias) p->bias[slot] = p->head->desc.bias[row];
    }
}

/* A segment of these tokens: packed where there is room for rows, else the head's own rows by number.
 *   places : [n] room for those numbers */
SPECRT__INTERNAL specrt_segment specrt__pool_gather(specrt__pool_packing *named, int32_t *places) {
    const specrt_head *head = named->head;
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.ids = named->ids;
    s.n_rows = named->n;
    s.dtype = specrt__head_packed_dtype(head);
    s.rows = named->rows ? named->rows : head->desc.rows;
    s.row_stride = named->rows ? named->row_stride : head->desc.row_stride;
    s.bias = named->rows ? named->bias : head->desc.bias;
    s.places = named->rows ? NULL : places;
    if (named->rows) specrt__pool_pack(named);
    for (int32_t i = 0; i < s.n_rows && s.places; i++)
        places[i] = specrt__head_row_of(head, s.ids[i]);
    return s;
}

/* --- a stock: rows that several sessions hold, each packed once --- */

/* A session's hold of a token. @return its place; *fresh: the row must be packed first. */
static int32_t specrt__pool_hold(specrt_stock *stock, int32_t id, bool *fresh) {
    int32_t place = stock->place_of[id];
    *fresh = place < 0;
    if (*fresh) {
        place = stock->vacant[stock->n_rows - ++stock->n_held];
        stock->place_of[id] = place;
        stock->ids[place] = id;
        if (place >= stock->n_used) stock->n_used = place + 1;
    }
    stock->n_holders[place]++;
    stock->version++;
    return place;
}

static void specrt__pool_release(specrt_stock *stock, int32_t place) {
    stock->version++;
    if (--stock->n_holders[place] > 0) return;
    stock->place_of[stock->ids[place]] = -1;
    stock->vacant[stock->n_rows - stock->n_held--] = place;
}

/* --- membership: who wants a token, and the slots of packed rows --- */

/* Its rows in a stock that has promised them, or, where that is NULL, its own; or, in_head, where they are in
 * the head, whose rows must be multiplied as they are.
 * @return NULL when memory or the address space do not hold it. */
SPECRT__INTERNAL specrt__pool *specrt__pool_make(const specrt_head *head, int32_t n_ids,
                                                 int32_t capacity, specrt_stock *stock,
                                                 bool in_head, const specrt_env *env) {
    size_t packed_bytes = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    bool placed = stock || in_head;
    size_t n = (size_t)n_ids, m = (size_t)capacity, stride = placed ? 0 : packed_bytes;
    size_t words = 3 * n + (placed || head->desc.bias ? 4 : 3) * m;
    size_t at_rows = (size_t)specrt__base_align(sizeof(specrt__pool) + 4 * words, 64);
    uint64_t bytes;
    if (!specrt__base_mul(stride, m, &bytes) || !specrt__base_add(bytes, at_rows + 64, &bytes))
        return NULL;
    specrt__pool *p = (specrt__pool *)specrt__base_alloc(env, bytes);
    if (!p) return NULL;
    specrt__os_advise_huge(p, (size_t)bytes);
    memset(p, 0, sizeof *p);
    p->env = *env;
    p->head = head;
    p->n_ids = n_ids;
    p->capacity = capacity;
    p->row_stride = stride;
    p->stock = stock;
    p->wants = (int32_t *)(void *)(p + 1);
    p->slots = p->wants + n;
    p->changed = p->slots + n;
    p->ids = p->changed + n;
    p->holes = p->ids + m;
    p->fresh = p->holes + m;
    p->places = placed ? p->fresh + m : NULL;
    p->bias = head->desc.bias && !placed ? (float *)(void *)(p->fresh + m) : NULL;
    p->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)p + at_rows, 64);
    memset(p->wants, 0, n * sizeof *p->wants);
    memset(p->slots, 0xff, n * sizeof *p->slots);
    if (stock) stock->n_sessions++, stock->n_promised += capacity;
    return p;
}

/* Leaves no row packed; gives back what it holds of a stock. */
static void specrt__pool_vacate(specrt__pool *p) {
    for (int32_t slot = 0; slot < p->n_rows; slot++) {
        p->slots[p->ids[slot]] = -1;
        if (p->stock) specrt__pool_release(p->stock, p->places[slot]);
    }
    p->n_rows = 0;
}

SPECRT__INTERNAL void specrt__pool_free(specrt__pool *p) {
    if (!p) return;
    specrt_env env = p->env;
    specrt__pool_vacate(p);
    if (p->stock) p->stock->n_sessions--, p->stock->n_promised -= p->capacity;
    specrt__base_free(&env, p);
}

/* As created, but for tokens marked invalid or fixed. */
SPECRT__INTERNAL void specrt__pool_reset(specrt__pool *p) {
    const int32_t keep = SPECRT__POOL_INVALID | SPECRT__POOL_FIXED;
    for (int32_t i = 0; i < p->n_ids; i++) p->wants[i] &= keep;
    specrt__pool_vacate(p);
    p->n_wanted = p->n_changed = 0;
}

/* Slots of tokens that nobody wants any more become holes. @return how many. */
static int32_t specrt__pool_leave(specrt__pool *p) {
    int32_t n_holes = 0;
    for (int32_t i = 0; i < p->n_changed; i++) {
        int32_t id = p->changed[i];
        if (p->slots[id] < 0 || (p->wants[id] & SPECRT__POOL_PACKED)) continue;
        p->holes[n_holes++] = p->slots[id];
        if (p->stock) specrt__pool_release(p->stock, p->places[p->slots[id]]);
        p->ids[p->slots[id]] = -1;
        p->slots[id] = -1;
    }
    return n_holes;
}

/* New tokens take holes first, then the end. @return how many. */
static int32_t specrt__pool_enter(specrt__pool *p, int32_t *n_holes) {
    int32_t n_fresh = 0;
    for (int32_t i = 0; i < p->n_changed; i++) {
        int32_t id = p->changed[i];
        p->wants[id] &= ~SPECRT__POOL_CHANGED;
        if (p->slots[id] >= 0 || !(p->wants[id] & SPECRT__POOL_PACKED)) continue;
        int32_t slot = *n_holes > 0 ? p->holes[--*n_holes] : p->n_rows++;
        p->slots[id] = slot;
        p->ids[slot] = id;
        p->fresh[n_fresh++] = slot;
    }
    p->n_changed = 0;
    return n_fresh;
}

/* The last rows move into the holes that are left. */
static void specrt__pool_compact(specrt__pool *p, int32_t n_holes) {
    while (n_holes > 0) {
        int32_t last = p->n_rows - 1, hole = p->holes[n_holes - 1];
        if (hole >= p->n_rows) {
            n_holes--;
            continue;
        }
        p->n_rows--;
        if (p->ids[last] < 0) continue;
        if (p->places)
            p->places[hole] = p->places[last];
        else
            memcpy(p->rows + (size_t)hole * p->row_stride, p->rows + (size_t)last * p->row_stride,
                   p->row_stride);
        if (p->bias) p->bias[hole] = p->bias[last];
        p->ids[hole] = p->ids[last];
        p->slots[p->ids[hole]] = hole;
        p->n_moved++;
        n_holes--;
    }
}

/* Holds the rows of slots in `fresh`, which becomes the list of places to pack: rows that nobody held.
 * @return how many. */
static int32_t specrt__pool_hold_all(specrt__pool *p, int32_t n_fresh) {
    int32_t n_packed = 0;
    bool fresh;
    for (int32_t i = 0; i < n_fresh; i++) {
        int32_t slot = p->fresh[i];
        p->places[slot] = specrt__pool_hold(p->stock, p->ids[slot], &fresh);
        if (fresh) p->fresh[n_packed++] = p->places[slot];
    }
    p->stock->n_packed += n_packed;
    return n_packed;
}

/* The rows of slots in `fresh` stay where they are in the head. */
static void specrt__pool_point(specrt__pool *p, int32_t n_fresh) {
    for (int32_t i = 0; i < n_fresh; i++)
        p->places[p->fresh[i]] = specrt__head_row_of(p->head, p->ids[p->fresh[i]]);
}

/* Pack what is wanted now. Only rows that were not there at the last sync are read from the head, of a stock
 * those that no session held. */
SPECRT__INTERNAL void specrt__pool_sync(specrt__pool *p) {
    const specrt_stock *stock = p->stock;
    int32_t n_holes = specrt__pool_leave(p), n_fresh = specrt__pool_enter(p, &n_holes);
    specrt__pool_packing packing = {p->head,       p->ids,  n_fresh, p->rows,
                                    p->row_stride, p->bias, p->fresh};
    if (stock) {
        packing.n = specrt__pool_hold_all(p, n_fresh);
        packing.ids = stock->ids;
        packing.rows = stock->rows;
        packing.row_stride = stock->row_stride;
        packing.bias = stock->bias;
    } else if (p->places) {
        specrt__pool_point(p, n_fresh);
        packing.n = 0;
    }
    specrt__pool_pack(&packing);
    p->n_copied += packing.n;
    specrt__pool_compact(p, n_holes);
}

/* Packs what is wanted now in this order of slots, whatever was packed before.
 *   ids : n words of 4 bytes, unaligned
 * @return false, with nothing packed, unless they are the tokens that are wanted, each once. */
SPECRT__INTERNAL bool specrt__pool_arrange(specrt__pool *p, const uint8_t *ids, int32_t n) {
    specrt__pool_vacate(p);
    for (int32_t i = 0; i < p->n_changed; i++) p->wants[p->changed[i]] &= ~SPECRT__POOL_CHANGED;
    p->n_changed = 0;
    if (n != p->n_wanted || n > p->capacity) return false;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)specrt__base_load32(ids + 4 * (size_t)i);
        if (!specrt__pool_member(p, id)) return false;
        if (p->wants[id] & (SPECRT__POOL_FIXED | SPECRT__POOL_CHANGED)) return false;
        p->wants[id] |= SPECRT__POOL_CHANGED;
        p->changed[p->n_changed++] = id;
    }
    specrt__pool_sync(p); /* gives slots in the order of changes */
    return true;
}

/* The wanted rows as a segment. */
SPECRT__INTERNAL void specrt__pool_segment(const specrt__pool *p, specrt_segment *out) {
    const specrt_head_desc *head = &p->head->desc;
    bool in_head = p->places && !p->stock;
    out->rows = p->stock ? p->stock->rows : in_head ? head->rows : p->rows;
    out->row_stride = p->stock ? p->stock->row_stride : in_head ? head->row_stride : p->row_stride;
    out->ids = p->ids;
    out->bias = p->stock ? p->stock->bias : in_head ? head->bias : p->bias;
    out->dtype = specrt__head_packed_dtype(p->head);
    out->n_rows = p->n_rows;
    out->masked = NULL;
    out->n_masked = 0;
    out->places = p->places;
    out->scored_by = 0;
}
