/* index.c : see index.h. Nodes are inserted in batches that double in size up to a limit. Every node of a
 * batch searches the graph as it was before the batch, and the batch itself exhaustively; then the links
 * back are merged, target by target. Nothing depends on who does what, or when. */
#include "index.h"
#include "specrt_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "model/head_rows.h"

enum { MAX_BATCH = 512 /* at most SPECRT_HNSW_MAX_EF */, PAD = 64 /* columns of a row as int8 */ };

/* A node and its score, better ones first; ties to the lower node. */
typedef struct candidate {
    float score;
    int32_t node;
} candidate;

typedef struct worker {
    void *scratch; /* of searches */
    float *row;    /* [n_cols] */
    int32_t nodes[SPECRT_HNSW_MAX_EF];
    float scores[SPECRT_HNSW_MAX_EF];
    candidate found[SPECRT_HNSW_MAX_EF];                                   /* best first */
    candidate chosen[2 * SPECRT_HNSW_MAX_M], spare[2 * SPECRT_HNSW_MAX_M]; /* likewise */
    int32_t n_chosen, n_spare;
} worker;

/* A link back to be, and the next one to the same list. */
typedef struct edge {
    int32_t source, next; /* -1: the last */
    float score;
} edge;

/* What wants to be in the links of a target on one level. */
typedef struct group {
    int32_t target, level, first; /* edge */
} group;

typedef struct building {
    const specrt_head_desc *rows;
    const index_params *params;
    hnsw_index *index;
    int32_t n;
    float *offsets; /* [n] lengths, then the coordinate that makes all equally long; or NULL */
    specrt_hnsw view;
    worker *workers;
    index_hashed *keys;  /* [n] nodes by hash */
    int32_t *order;      /* [n] of insertion */
    int32_t begin, size; /* of the batch, in the order */
    edge *edges;
    group *groups;
    int32_t *group_of; /* [n + n_lists] lists on level 0, then the others; -1: no group */
    int32_t n_edges, n_groups;
    float *scores0, *scores; /* of links */
    int32_t *n_chosen;       /* [n + n_lists] of a list's links; the others are spare */
    sl_arrays owned;
} building;

static uint64_t hash_of(uint64_t seed, int32_t node) {
    return specrt_hash64(&node, sizeof node, seed);
}

/* ---- what is searched ---- */

/* Rounds to codes times a scale. */
static void quantise(const float *x, int64_t n, int8_t *codes, float *scale) {
    float most = 0;
    for (int64_t j = 0; j < n; j++) most = fmaxf(most, fabsf(x[j]));
    *scale = most / 127;
    for (int64_t j = 0; j < n; j++) codes[j] = (int8_t)lrintf(x[j] / most * 127);
}

static void copy_row(void *opaque, int64_t i, int index) {
    building *b = (building *)opaque;
    hnsw_index *x = b->index;
    float *row = b->workers[index].row;
    double sum = 0;
    specrt_row_decode(b->rows->dtype, sl_head_row(b->rows, x->ids[i]), b->rows->n_cols, row);
    quantise(row, b->rows->n_cols, x->codes + i * x->n_cols, &x->scales[i]);
    for (int64_t j = 0; j < b->rows->n_cols; j++) sum += (double)row[j] * (double)row[j];
    if (b->offsets) b->offsets[i] = (float)sqrt(sum);
}

/* One more coordinate makes all rows equally long. */
static void lengthen(building *b) {
    float longest = 0;
    for (int32_t i = 0; i < b->n; i++) longest = fmaxf(longest, b->offsets[i]);
    for (int32_t i = 0; i < b->n; i++)
        b->offsets[i] = sqrtf(fmaxf(0, longest * longest - b->offsets[i] * b->offsets[i]));
}

/* ---- links ---- */

static int32_t level_of(const building *b, int32_t node) {
    return b->index->starts[node + 1] - b->index->starts[node];
}

static size_t list_of(const building *b, int32_t node, int32_t level) {
    return (size_t)(level ? b->n + b->index->starts[node] + level - 1 : node);
}

static int32_t *links_of(const building *b, int32_t node, int32_t level, int32_t *cap) {
    size_t m = (size_t)b->index->header.m, list = list_of(b, node, level);
    *cap = (int32_t)(level ? m : 2 * m);
    return level ? b->index->links + (list - (size_t)b->n) * m : b->index->links0 + list * 2 * m;
}

static float *scores_of(const building *b, int32_t node, int32_t level) {
    size_t m = (size_t)b->index->header.m, list = list_of(b, node, level);
    return level ? b->scores + (list - (size_t)b->n) * m : b->scores0 + list * 2 * m;
}

/* The chosen links, and spare ones in the places that are left. */
static void put_links(const building *b, const worker *w, int32_t node, int32_t level) {
    int32_t cap, *links = links_of(b, node, level, &cap);
    float *scores = scores_of(b, node, level);
    for (int32_t i = 0; i < cap; i++) {
        int32_t rest = i - w->n_chosen;
        const candidate *c = rest < 0 ? &w->chosen[i] : &w->spare[rest];
        links[i] = rest < w->n_spare ? c->node : -1;
        scores[i] = rest < w->n_spare ? c->score : 0;
    }
    b->n_chosen[list_of(b, node, level)] = w->n_chosen;
}

static void get_links(const building *b, worker *w, int32_t node, int32_t level) {
    int32_t cap, n_chosen = b->n_chosen[list_of(b, node, level)];
    const int32_t *links = links_of(b, node, level, &cap);
    const float *scores = scores_of(b, node, level);
    w->n_chosen = w->n_spare = 0;
    for (int32_t i = 0; i < cap && links[i] >= 0; i++) {
        candidate *c = i < n_chosen ? &w->chosen[w->n_chosen++] : &w->spare[w->n_spare++];
        *c = (candidate){scores[i], links[i]};
    }
}

static bool is_better(candidate a, candidate b) {
    return a.score > b.score || (a.score == b.score && a.node < b.node);
}

/* Adds a candidate to those found, of which the best stay. */
static void insert(candidate *found, int32_t *n, int32_t cap, candidate c) {
    if (*n == cap && !is_better(c, found[cap - 1])) return;
    int32_t at = *n < cap ? (*n)++ : cap - 1;
    for (; at > 0 && is_better(c, found[at - 1]); at--) found[at] = found[at - 1];
    found[at] = c;
}

/* The heuristic of Malkov and Yashunin: a candidate is chosen if it is nearer to the base than to any
 * better one that is; the best of the others fill the places left. From w->found [n]. */
static void choose_links(const building *b, worker *w, int32_t n, int32_t cap) {
    w->n_chosen = w->n_spare = 0;
    for (int32_t i = 0; i < n && w->n_chosen < cap; i++) {
        candidate c = w->found[i];
        if (specrt_hnsw_any_above(&b->view, c.node, w->nodes, w->n_chosen, c.score, w->scratch)) {
            insert(w->spare, &w->n_spare, cap, c);
        } else {
            w->nodes[w->n_chosen] = c.node;
            w->chosen[w->n_chosen++] = c;
        }
    }
    if (w->n_spare > cap - w->n_chosen) w->n_spare = cap - w->n_chosen;
}

/* One more link beside those chosen and spare. */
static void admit(const building *b, worker *w, int32_t cap, candidate c) {
    int32_t n_better = 0, n_chosen = 0;
    for (int32_t i = 0; i < w->n_chosen; i++) {
        w->nodes[i] = w->chosen[i].node;
        n_better += is_better(w->chosen[i], c);
    }
    if (specrt_hnsw_any_above(&b->view, c.node, w->nodes, n_better, c.score, w->scratch)) {
        insert(w->spare, &w->n_spare, cap, c);
        return;
    }
    specrt_hnsw_scores(&b->view, c.node, w->nodes, w->n_chosen, w->scores, w->scratch);
    for (int32_t i = 0; i < w->n_chosen; i++) {
        candidate other = w->chosen[i];
        if (i >= n_better && w->scores[i] > other.score)
            insert(w->spare, &w->n_spare, cap, other);
        else
            w->chosen[n_chosen++] = other;
    }
    w->n_chosen = n_chosen;
    insert(w->chosen, &w->n_chosen, cap, c);
}

/* ---- a batch: links of the new nodes ---- */

/* Scores w->nodes beside a node, and adds them to those found. */
static void add_nodes(const building *b, worker *w, int32_t node, int32_t n, int32_t cap,
                      int32_t *n_found) {
    specrt_hnsw_scores(&b->view, node, w->nodes, n, w->scores, w->scratch);
    for (int32_t i = 0; i < n; i++)
        insert(w->found, n_found, cap, (candidate){w->scores[i], w->nodes[i]});
}

static void link_node(void *opaque, int64_t i, int index) {
    building *b = (building *)opaque;
    worker *w = &b->workers[index];
    int32_t node = b->order[b->begin + i], ef = b->params->ef_construction;
    for (int32_t level = level_of(b, node); level >= 0; level--) {
        int32_t n_batch = 0,
                n = specrt_hnsw_nearest(&b->view, node, level, ef, w->nodes, w->scores, w->scratch);
        for (int32_t k = 0; k < n; k++) w->found[k] = (candidate){w->scores[k], w->nodes[k]};
        for (int32_t k = 0; k < b->size; k++) {
            int32_t other = b->order[b->begin + k];
            if (other != node && level_of(b, other) >= level) w->nodes[n_batch++] = other;
        }
        add_nodes(b, w, node, n_batch, ef, &n);
        choose_links(b, w, n, b->index->header.m);
        put_links(b, w, node, level);
    }
}

/* ---- a batch: links back ---- */

static void add_edge(building *b, int32_t source, int32_t target, int32_t level, float score) {
    int32_t *at = &b->group_of[list_of(b, target, level)];
    if (*at < 0) {
        *at = b->n_groups++;
        b->groups[*at] = (group){target, level, -1};
    }
    group *g = &b->groups[*at];
    b->edges[b->n_edges] = (edge){source, g->first, score};
    g->first = b->n_edges++;
}

static void list_edges(building *b) {
    for (int32_t i = 0; i < b->n_groups; i++)
        b->group_of[list_of(b, b->groups[i].target, b->groups[i].level)] = -1;
    b->n_edges = b->n_groups = 0;
    for (int32_t i = 0; i < b->size; i++) {
        int32_t node = b->order[b->begin + i], cap;
        for (int32_t level = 0; level <= level_of(b, node); level++) {
            const int32_t *links = links_of(b, node, level, &cap);
            const float *scores = scores_of(b, node, level);
            for (int32_t k = 0; k < b->index->header.m && links[k] >= 0; k++)
                add_edge(b, node, links[k], level, scores[k]);
        }
    }
}

static bool is_linked(const int32_t *links, int32_t cap, int32_t node) {
    for (int32_t i = 0; i < cap; i++)
        if (links[i] == node) return true;
    return false;
}

/* All links back to one target on one level. */
static void link_back(void *opaque, int64_t i, int index) {
    building *b = (building *)opaque;
    worker *w = &b->workers[index];
    const group *g = &b->groups[i];
    int32_t cap;
    const int32_t *links = links_of(b, g->target, g->level, &cap);
    get_links(b, w, g->target, g->level);
    for (int32_t at = g->first; at >= 0; at = b->edges[at].next) {
        const edge *e = &b->edges[at];
        if (!is_linked(links, cap, e->source)) admit(b, w, cap, (candidate){e->score, e->source});
    }
    put_links(b, w, g->target, g->level);
}

/* ---- order and levels ---- */

/* A random order, but for the entry: the first of those on the highest level. */
static void make_order(building *b) {
    index_hashed *keys = b->keys;
    int32_t first = 0;
    for (int32_t i = 0; i < b->n; i++)
        keys[i] = (index_hashed){hash_of(b->params->seed, b->index->ids[i]), i};
    qsort(keys, (size_t)b->n, sizeof *keys, index_by_hash);
    for (int32_t i = 0; i < b->n; i++) {
        b->order[i] = keys[i].row;
        if (level_of(b, b->order[i]) > level_of(b, b->order[first])) first = i;
    }
    int32_t entry = b->order[first];
    memmove(b->order + 1, b->order, (size_t)first * sizeof *b->order);
    b->order[0] = b->index->header.entry = entry;
    b->index->header.max_level = level_of(b, entry);
}

static void make_levels(building *b) {
    for (int32_t i = 0; i < b->n; i++) {
        uint64_t hash = hash_of(b->params->seed + 1, b->index->ids[i]);
        double u = ((double)(hash >> 11) + 1) / 9007199254740992.0;
        double level = floor(-log(u) / log(b->params->m));
        if (level > SPECRT_HNSW_MAX_LEVEL) level = SPECRT_HNSW_MAX_LEVEL;
        b->index->starts[i + 1] = b->index->starts[i] + (int32_t)level;
    }
    b->index->header.n_lists = b->index->starts[b->n];
}

/* ---- reachability ---- */

/* Marks what level 0 reaches from a node; queue: scratch [n]. */
static void reach(const building *b, int32_t from, uint8_t *seen, int32_t *queue) {
    int32_t head = 0, tail = 0, cap;
    seen[from] = 1;
    queue[tail++] = from;
    while (head < tail) {
        const int32_t *links = links_of(b, queue[head++], 0, &cap);
        for (int32_t k = 0; k < cap && links[k] >= 0; k++)
            if (!seen[links[k]]) seen[links[k]] = 1, queue[tail++] = links[k];
    }
}

/* A link to an unreachable node from the nearest reachable one that has a place left; where none of those
 * near has, any that has one. */
static void repair_node(const building *b, worker *w, int32_t node, const uint8_t *seen) {
    int32_t cap, n;
    n = specrt_hnsw_nearest(&b->view, node, 0, b->params->ef_construction, w->nodes, w->scores,
                            w->scratch);
    for (int32_t i = 0; i < n + b->n; i++) {
        int32_t from = i < n ? w->nodes[i] : i - n;
        int32_t *links = links_of(b, from, 0, &cap);
        if (!seen[from] || links[cap - 1] >= 0) continue;
        while (*links >= 0) links++;
        *links = node;
        return;
    }
}

static bool repair(building *b) {
    uint8_t *seen = (uint8_t *)calloc((size_t)b->n, 1);
    int32_t *queue = (int32_t *)malloc((size_t)b->n * sizeof *queue);
    bool ok = seen && queue;
    if (ok) reach(b, b->index->header.entry, seen, queue);
    for (int32_t i = 0; i < b->n && ok; i++) {
        if (seen[i]) continue;
        repair_node(b, &b->workers[0], i, seen);
        reach(b, i, seen, queue);
        b->index->n_repaired++;
    }
    free(seen);
    free(queue);
    return ok;
}

/* ---- building ---- */

/* Searches see the index under construction through the runtime's own view. */
static void make_view(building *b) {
    hnsw_index *x = b->index;
    x->header.vectors = SPECRT_HNSW_INT8;
    b->view = (specrt_hnsw){.header = &x->header,
                            .ids = x->ids,
                            .starts = x->starts,
                            .links0 = x->links0,
                            .links = x->links,
                            .codes = x->codes,
                            .scales = x->scales,
                            .offsets = b->offsets,
                            .n_cols = x->n_cols};
}

/* @return false: no memory */
static bool allocate(building *b, const int32_t *ids) {
    size_t n = (size_t)b->n, m = (size_t)b->params->m;
    hnsw_index *x = b->index;
    sl_arrays *kept = &x->owned, *owned = &b->owned;
    x->ids = (int32_t *)sl_array(kept, n, sizeof *x->ids);
    x->starts = (int32_t *)sl_array(kept, n + 1, sizeof *x->starts);
    if (kept->failed) return false;
    memcpy(x->ids, ids, n * sizeof *ids);
    make_levels(b);
    size_t n_lists = (size_t)x->header.n_lists;
    x->links0 = (int32_t *)sl_array(kept, n * 2 * m, sizeof *x->links0);
    x->links = (int32_t *)sl_array(kept, n_lists * m, sizeof *x->links);
    x->codes = (int8_t *)sl_array(kept, n, (size_t)x->n_cols);
    x->scales = (float *)sl_array(kept, n, sizeof *x->scales);
    if (b->params->metric == INDEX_DISTANCES)
        b->offsets = (float *)sl_array(owned, n, sizeof *b->offsets);
    b->order = (int32_t *)sl_array(owned, n, sizeof *b->order);
    size_t n_edges = (size_t)MAX_BATCH * m * (SPECRT_HNSW_MAX_LEVEL + 1);
    b->edges = (edge *)sl_array(owned, n_edges, sizeof *b->edges);
    b->groups = (group *)sl_array(owned, n_edges, sizeof *b->groups);
    b->group_of = (int32_t *)sl_array(owned, n + n_lists, sizeof *b->group_of);
    b->n_chosen = (int32_t *)sl_array(owned, n + n_lists, sizeof *b->n_chosen);
    b->scores0 = (float *)sl_array(owned, n * 2 * m, sizeof *b->scores0);
    b->scores = (float *)sl_array(owned, n_lists * m, sizeof *b->scores);
    b->keys = (index_hashed *)sl_array(owned, n, sizeof *b->keys);
    b->workers = (worker *)sl_array(owned, (size_t)b->params->threads, sizeof *b->workers);
    if (kept->failed || owned->failed) return false;
    make_view(b);
    size_t scratch = specrt_hnsw_scratch_bytes(&b->view, b->params->ef_construction);
    for (int i = 0; i < b->params->threads; i++) {
        b->workers[i].scratch = sl_array(owned, 1, scratch);
        b->workers[i].row = (float *)sl_array(owned, (size_t)b->rows->n_cols, sizeof(float));
    }
    return !owned->failed;
}

/* No links yet. */
static void clear(building *b) {
    size_t n = (size_t)b->n, m = (size_t)b->params->m, n_lists = (size_t)b->index->header.n_lists;
    hnsw_index *x = b->index;
    memset(x->links0, 0xff, n * 2 * m * sizeof *x->links0);
    memset(x->links, 0xff, n_lists * m * sizeof *x->links);
    memset(b->group_of, 0xff, (n + n_lists) * sizeof *b->group_of);
}

static void insert_all(building *b) {
    for (b->begin = 1; b->begin < b->n; b->begin += b->size) {
        b->size = b->begin < MAX_BATCH ? b->begin : MAX_BATCH;
        if (b->size > b->n - b->begin) b->size = b->n - b->begin;
        sl_parallel_for(b->params->threads, b->size, link_node, b);
        list_edges(b);
        sl_parallel_for(b->params->threads, b->n_groups, link_back, b);
        if (b->params->progress) b->params->progress(b->params->user, b->begin + b->size);
    }
}

/* @return false: no memory */
static bool build(building *b, const int32_t *ids) {
    if (!allocate(b, ids)) return false;
    clear(b);
    make_order(b);
    sl_parallel_for(b->params->threads, b->n, copy_row, b);
    if (b->offsets) lengthen(b);
    insert_all(b);
    return repair(b);
}

specrt_status index_build(const specrt_head_desc *rows, const int32_t *ids, int32_t n,
                          const index_params *params, hnsw_index *out, specrt_error *err) {
    building b = {.rows = rows, .params = params, .index = out, .n = n};
    *out = (hnsw_index){.header = {.n_rows = (int32_t)rows->n_rows,
                                   .dim = (int32_t)rows->n_cols,
                                   .n_nodes = n,
                                   .m = params->m,
                                   .metric = params->metric,
                                   .ef_construction = params->ef_construction,
                                   .ef = params->ef_construction}};
    out->n_cols = (rows->n_cols + PAD - 1) / PAD * PAD;
    bool good = build(&b, ids);
    sl_arrays_free(&b.owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the index");
}

void index_free(hnsw_index *index) {
    sl_arrays_free(&index->owned);
    *index = (hnsw_index){.header = {0}};
}
