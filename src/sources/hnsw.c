/* hnsw.c : owns the view of the index and the search in it: greedy down to level 1, best first on level 0,
 * over products as they are. Refuses links, levels and ids out of range, so that a search of a hostile
 * graph ends and stays within its arrays; a graph with cycles or unreachable nodes only finds less.
 * Rows as int8 meet a query of 16 bits, in whole numbers: only the rows' rounding is lost, and every
 * instruction set walks the same way. */
#include "sources/hnsw.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/simd.h"
#include "core/simd_kernels.h"
#include "core/head.h"
#include "core/shortlist.h"

enum {
    SPECRT__HNSW_AHEAD = 8, /* rows fetched into the cache before they are scored */
    SPECRT__HNSW_PAD_I8 = 64
};

static size_t specrt__hnsw_take(size_t *at, uint64_t n_bytes) {
    size_t place = *at;
    *at += (size_t)specrt__base_align(n_bytes, 64);
    return place;
}

static size_t specrt__hnsw_seen_bytes(const specrt_hnsw *g) {
    return ((size_t)g->header->n_nodes + 63) / 64 * 8;
}

static size_t specrt__hnsw_lay_out(const specrt_hnsw *g, int32_t ef, uint8_t *base,
                                   specrt__hnsw_scratch *s) {
    size_t k = (size_t)ef, wide = 2 * (size_t)g->header->m, width = wide > k ? wide : k, at = 0;
    size_t n_cols = (size_t)g->n_cols;
    s->seen = (uint64_t *)(void *)(base + specrt__hnsw_take(&at, specrt__hnsw_seen_bytes(g)));
    s->keys = (uint64_t *)(void *)(base + specrt__hnsw_take(&at, k * sizeof *s->keys));
    s->query = (float *)(void *)(base + specrt__hnsw_take(&at, n_cols * sizeof *s->query));
    s->codes = (int16_t *)(void *)(base + specrt__hnsw_take(&at, n_cols * sizeof *s->codes));
    s->scores = (float *)(void *)(base + specrt__hnsw_take(&at, width * sizeof *s->scores));
    s->nodes = (int32_t *)(void *)(base + specrt__hnsw_take(&at, width * sizeof *s->nodes));
    return at;
}

static int32_t specrt__hnsw_ef(const specrt_hnsw *g, int32_t ef) {
    if (ef == 0) ef = g->header->ef;
    return ef < 1 || ef > SPECRT_HNSW_MAX_EF ? 0 : ef;
}

SPECRT_API size_t specrt_hnsw_scratch_bytes(const specrt_hnsw *index, int32_t ef) {
    uint64_t anywhere = 0; /* offsets do not depend on it */
    specrt__hnsw_scratch s;
    ef = index ? specrt__hnsw_ef(index, ef) : 0;
    return ef ? specrt__hnsw_lay_out(index, ef, (uint8_t *)&anywhere, &s) : 0;
}

/* --- opening --- */

static const char *specrt__hnsw_check_sizes(const specrt_hnsw_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (h->n_rows < 1 || h->n_rows > SPECRT_MAX_VOCAB || h->dim < 1 || h->dim > SPECRT_HNSW_MAX_DIM)
        return "n_rows, dim: expected 1 to 16777216, and 1 to 131072, found others";
    if (h->n_nodes < 1 || h->n_nodes > h->n_rows)
        return "n_nodes: expected 1 to n_rows, found another";
    if (h->m < 2 || h->m > SPECRT_HNSW_MAX_M) return "m: expected 2 to 256, found another";
    if (h->max_level < 0 || h->max_level > SPECRT_HNSW_MAX_LEVEL || h->entry < 0 ||
        h->entry >= h->n_nodes)
        return "max_level, entry: expected 0 to 31, and a node, found others";
    if (h->vectors != SPECRT_HNSW_NONE && h->vectors != SPECRT_HNSW_F16 &&
        h->vectors != SPECRT_HNSW_INT8)
        return "vectors: expected none, f16 or int8, found another type";
    if (h->n_lists < 0 || (int64_t)h->n_lists > (int64_t)h->n_nodes * SPECRT_HNSW_MAX_LEVEL)
        return "n_lists: expected 0 to 31 per node, found another";
    if (h->ef < 1 || h->ef > SPECRT_HNSW_MAX_EF) return "ef: expected 1 to 4096, found another";
    return NULL;
}

/* The vectors begin at an offset. @return where they end. */
static uint64_t specrt__hnsw_view_vectors(const uint8_t *base, uint64_t at, specrt_hnsw *g) {
    const specrt_hnsw_header *h = g->header;
    uint64_t nodes = (uint64_t)h->n_nodes, dim = (uint64_t)h->dim;
    if (h->vectors == SPECRT_HNSW_INT8) {
        g->n_cols = (int64_t)specrt__base_align(dim, SPECRT__HNSW_PAD_I8);
        g->codes = (const int8_t *)(base + at);
        at += nodes * (uint64_t)g->n_cols;
        g->scales = (const float *)(const void *)(base + at);
        return at + nodes * sizeof(float);
    }
    g->n_cols = (int64_t)specrt__base_align(dim, 32);
    g->rows.dtype = SPECRT_DTYPE_F16;
    g->rows.row_stride = specrt_row_bytes(g->rows.dtype, g->n_cols);
    g->rows.rows = base + at;
    return at + nodes * (uint64_t)g->rows.row_stride;
}

/* Offsets in the section, whose size must be theirs. */
static bool specrt__hnsw_view(const uint8_t *base, size_t n, specrt_hnsw *g) {
    const specrt_hnsw_header *h = (const specrt_hnsw_header *)(const void *)base;
    size_t nodes = (size_t)h->n_nodes, m = (size_t)h->m;
    uint64_t words = 2 * (uint64_t)nodes + 1 + 2 * (uint64_t)nodes * m + (uint64_t)h->n_lists * m;
    uint64_t end = sizeof *h + 4 * words;
    g->header = h;
    g->ids = (const int32_t *)(const void *)(h + 1);
    g->starts = g->ids + nodes;
    g->links0 = g->starts + nodes + 1;
    g->links = g->links0 + 2 * nodes * m;
    if (end > n) return false;
    if (h->vectors != SPECRT_HNSW_NONE)
        end = specrt__hnsw_view_vectors(base, specrt__base_align(end, 64), g);
    return end == n;
}

static const char *specrt__hnsw_check_links(const specrt_hnsw *g, const int32_t *links, int32_t n,
                                            int32_t level) {
    for (int32_t i = 0; i < n && links[i] != -1; i++) {
        int32_t to = links[i];
        if (to < 0 || to >= g->header->n_nodes)
            return "links: expected links to nodes, found another";
        if (g->starts[to + 1] - g->starts[to] < level)
            return "links: expected links within a level, found one to a lower level";
    }
    return NULL;
}

static const char *specrt__hnsw_check_node(const specrt_hnsw *g, int32_t node) {
    const specrt_hnsw_header *h = g->header;
    const char *wrong =
        specrt__hnsw_check_links(g, g->links0 + (size_t)node * 2 * (size_t)h->m, 2 * h->m, 0);
    if (g->ids[node] < 0 || g->ids[node] >= h->n_rows || (node && g->ids[node] <= g->ids[node - 1]))
        return "ids: expected ascending rows, found others";
    for (int32_t list = g->starts[node]; list < g->starts[node + 1] && !wrong; list++)
        wrong = specrt__hnsw_check_links(g, g->links + (size_t)list * (size_t)h->m, h->m,
                                         list - g->starts[node] + 1);
    return wrong;
}

static const char *specrt__hnsw_check(const specrt_hnsw *g) {
    const specrt_hnsw_header *h = g->header;
    const char *wrong = NULL;
    if (g->starts[0] != 0 || g->starts[h->n_nodes] != h->n_lists)
        return "starts: expected 0 first and n_lists last, found others";
    for (int32_t i = 0; i < h->n_nodes; i++)
        if (g->starts[i + 1] < g->starts[i] || g->starts[i + 1] - g->starts[i] > h->max_level)
            return "starts: expected steps of 0 to max_level, found another";
    if (g->starts[h->entry + 1] - g->starts[h->entry] != h->max_level)
        return "entry: expected a node on the highest level, found a lower one";
    for (int32_t i = 0; i < h->n_nodes && !wrong; i++) wrong = specrt__hnsw_check_node(g, i);
    return wrong;
}

/* The head must be the one that was indexed, and serve where no vectors are stored. */
static specrt_status specrt__hnsw_bind(const specrt_bundle *bundle, specrt_hnsw *g,
                                       specrt_error *err) {
    const specrt_hnsw_header *h = g->header;
    const specrt_head_desc *head = g->head ? &g->head->desc : NULL;
    if (head && (head->n_rows < h->n_rows || head->n_cols != h->dim))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: hnsw: expected a head [%d, %d], found [%lld, %lld]; use the "
                                "bundle made for this model",
                                bundle->name, (int)h->n_rows, (int)h->dim, (long long)head->n_rows,
                                (long long)head->n_cols);
    if (h->vectors != SPECRT_HNSW_NONE) return SPECRT_STATUS_OK;
    if (!head)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "%s: hnsw: vectors: expected a head or stored vectors, found neither; "
            "rebuild it with --vectors int8",
            bundle->name);
    g->n_cols = h->dim;
    g->rows.rows = head->rows;
    g->rows.row_stride = head->row_stride;
    g->rows.dtype = head->dtype;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_bundle_hnsw(const specrt_bundle *bundle, const specrt_head *head,
                                            specrt_hnsw *out, specrt_error *err) {
    size_t n;
    specrt_hnsw view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    memset(&view, 0, sizeof view);
    const uint8_t *bytes = (const uint8_t *)specrt_bundle_data(bundle, "hnsw", &n);
    if (!bytes) return specrt__bundle_missing(bundle, "hnsw", err);
    const char *wrong =
        specrt__hnsw_check_sizes((const specrt_hnsw_header *)(const void *)bytes, n);
    if (!wrong && !specrt__hnsw_view(bytes, n, &view))
        wrong = "size: expected the bytes of its header's counts, found others";
    if (!wrong) wrong = specrt__hnsw_check(&view);
    if (wrong) return specrt__bundle_bad(bundle, "hnsw", wrong, err);
    view.head = head;
    SPECRT__TRY(specrt__hnsw_bind(bundle, &view, err));
    *out = view;
    return SPECRT_STATUS_OK;
}

/* --- search --- */

static specrt__hnsw_scratch specrt__hnsw_begin(const specrt_hnsw *g, int32_t ef, void *scratch) {
    specrt__hnsw_scratch s;
    specrt__hnsw_lay_out(g, ef, (uint8_t *)scratch, &s);
    s.kernels = g->head ? g->head->compute.kernels : specrt__simd_choose();
    return s;
}

/* The query, padded; for int8 rows as 16 bits, as many as no sum overflows with. A multiple of 127, so
 * that codes of a node stay what they are. One that is not finite is as zero. */
static void specrt__hnsw_ask(const specrt_hnsw *g, specrt__hnsw_scratch *s, const float *query) {
    int64_t dim = g->header->dim;
    int32_t most = (int32_t)(0x7fffffff / (128 * 127 * dim)) * 127;
    float max = 0;
    memset(s->query, 0, (size_t)g->n_cols * sizeof *s->query);
    memcpy(s->query, query, (size_t)dim * sizeof *s->query);
    if (!g->codes) return;
    memset(s->codes, 0, (size_t)g->n_cols * sizeof *s->codes);
    if (most > 258 * 127) most = 258 * 127;
    for (int64_t j = 0; j < dim; j++) max = fabsf(query[j]) > max ? fabsf(query[j]) : max;
    s->unit = max > 0 && max <= FLT_MAX ? max / (float)most : 0;
    float inverse = s->unit > 0 ? (float)most / max : 0;
    for (int64_t j = 0; j < dim && inverse > 0; j++) {
        float code = query[j] * inverse;
        s->codes[j] = (int16_t)(code == code ? lrintf(code) : 0);
    }
}

static void specrt__hnsw_fetch(const specrt_hnsw *g, int32_t node) {
    const int8_t *row = g->codes + (int64_t)node * g->n_cols;
    for (int64_t j = 0; j < g->n_cols; j += 64) SPECRT__SIMD_PREFETCH(row + j);
}

/* Scores of four nodes at most. */
static void specrt__hnsw_score_four(const specrt_hnsw *g, const specrt__hnsw_scratch *s,
                                    const int32_t *nodes, int32_t n, float *scores) {
    const int8_t *rows[4];
    int32_t sums[4];
    for (int32_t r = 0; r < 4; r++) rows[r] = g->codes + (int64_t)nodes[r < n ? r : 0] * g->n_cols;
    s->kernels->tile_i8(rows, s->codes, g->n_cols, sums);
    for (int32_t r = 0; r < n && r < 4; r++) {
        scores[r] = g->scales[nodes[r]] * s->unit * (float)sums[r];
        if (g->offsets) scores[r] += s->offset * g->offsets[nodes[r]];
    }
}

static void specrt__hnsw_score_codes(const specrt_hnsw *g, const specrt__hnsw_scratch *s,
                                     const int32_t *nodes, int32_t n, float *scores) {
    for (int32_t i = 0; i < n && i < SPECRT__HNSW_AHEAD; i++) specrt__hnsw_fetch(g, nodes[i]);
    for (int32_t i = 0; i < n; i += 4) {
        for (int32_t r = i + SPECRT__HNSW_AHEAD; r < i + SPECRT__HNSW_AHEAD + 4 && r < n; r++)
            specrt__hnsw_fetch(g, nodes[r]);
        specrt__hnsw_score_four(g, s, nodes + i, n - i, scores + i);
    }
}

/* Products of the n nodes in s->nodes with the query, into s->scores. */
static void specrt__hnsw_score(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t n) {
    specrt_segment rows = g->rows;
    int32_t places[2 * SPECRT_HNSW_MAX_M];
    if (g->codes) {
        specrt__hnsw_score_codes(g, s, s->nodes, n, s->scores);
        return;
    }
    rows.places = s->nodes;
    rows.n_rows = n;
    if (g->header->vectors == SPECRT_HNSW_NONE) {
        for (int32_t i = 0; i < n; i++) places[i] = g->ids[s->nodes[i]];
        rows.places = places;
    }
    specrt__head_products(s->kernels, &rows, 0, n, g->n_cols, s->query, 1, s->scores, 0);
}

static int32_t specrt__hnsw_node(uint64_t key) {
    return specrt__shortlist_key_id(key >> 1 | 0x80000000u);
}

/* Keeps a key if it is among the ef best so far. @return its place, or ef. */
static int32_t specrt__hnsw_keep(uint64_t *keys, int32_t *n, int32_t ef, uint64_t key) {
    if (*n == ef && key < keys[ef - 1]) return ef;
    uint64_t *at = keys;
    for (int32_t left = *n; left > 0;) {
        int32_t half = (left + 1) / 2;
        at = at[half - 1] > key ? at + half : at;
        left -= half;
    }
    if (*n < ef) ++*n;
    memmove(at + 1, at, (size_t)(keys + *n - 1 - at) * sizeof *keys);
    *at = key;
    return (int32_t)(at - keys);
}

static const int32_t *specrt__hnsw_links(const specrt_hnsw *g, int32_t node, int32_t level,
                                         int32_t *n) {
    size_t m = (size_t)g->header->m;
    *n = level ? g->header->m : 2 * g->header->m;
    return level ? g->links + ((size_t)g->starts[node] + (size_t)level - 1) * m
                 : g->links0 + (size_t)node * 2 * m;
}

/* The links of a node that were not seen before, into s->nodes. @return how many there are. */
static int32_t specrt__hnsw_unseen(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t node,
                                   int32_t level) {
    int32_t n_links, n = 0;
    const int32_t *links = specrt__hnsw_links(g, node, level, &n_links);
    for (int32_t i = 0; i < n_links && links[i] >= 0; i++) {
        uint64_t *word = &s->seen[links[i] >> 6], bit = 1ull << (links[i] & 63);
        s->nodes[n] = links[i];
        n += (*word & bit) == 0;
        *word |= bit;
    }
    return n;
}

/* The first place from one on that is not expanded, or n. */
static int32_t specrt__hnsw_open(const uint64_t *keys, int32_t at, int32_t n) {
    while (at < n && !(keys[at] & 1)) at++;
    return at;
}

/* Best-first search of one level from an entry (Malkov and Yashunin 2016, algorithm 2), into s->keys:
 *
 *     keys   closed  closed  open  closed  open       the best nodes so far, best first, at most ef
 *                            ^at                      all before it are closed
 *
 * A node is closed by scoring those of its links that were not scored before. Each turn closes the best open
 * one. A scored node that is among the ef best enters as open; one that enters before `at` takes `at` back.
 * A node that drops out need not be remembered: the worst of the ef only gets better. So the search ends when
 * all of them are closed, since none of their links is left to score, and it ends at all, since a node is
 * scored once. What it misses are better nodes that only worse ones lead to; a greater ef finds more of them.
 * Links of the node that is likely to be next are fetched while the present ones are scored.
 * @return how many nodes there are. */
static int32_t specrt__hnsw_explore(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t entry,
                                    int32_t level, int32_t ef) {
    int32_t n = 0, at = 0, n_links;
    memset(s->seen, 0, specrt__hnsw_seen_bytes(g));
    s->seen[entry >> 6] |= 1ull << (entry & 63);
    s->nodes[0] = entry;
    specrt__hnsw_score(g, s, 1);
    specrt__hnsw_keep(s->keys, &n, ef, specrt__hnsw_key(s->scores[0], entry));
    while ((at = specrt__hnsw_open(s->keys, at, n)) < n) {
        s->keys[at]--;
        int32_t n_unseen = specrt__hnsw_unseen(g, s, specrt__hnsw_node(s->keys[at]), level);
        int32_t next = specrt__hnsw_open(s->keys, at, n);
        if (next < n) {
            const int32_t *links =
                specrt__hnsw_links(g, specrt__hnsw_node(s->keys[next]), level, &n_links);
            for (int32_t i = 0; i < n_links; i += 16) SPECRT__SIMD_PREFETCH(links + i);
        }
        if (n_unseen == 0) continue;
        specrt__hnsw_score(g, s, n_unseen);
        for (int32_t i = 0; i < n_unseen; i++) {
            uint64_t key = specrt__hnsw_key(s->scores[i], s->nodes[i]);
            int32_t place = specrt__hnsw_keep(s->keys, &n, ef, key);
            if (place < at) at = place;
        }
    }
    return n;
}

/* From the entry down to a level, one best node at a time, then all ef. */
static int32_t specrt__hnsw_descend(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t level,
                                    int32_t ef) {
    int32_t node = g->header->entry;
    for (int32_t l = g->header->max_level; l > level; l--) {
        specrt__hnsw_explore(g, s, node, l, 1);
        node = specrt__hnsw_node(s->keys[0]);
    }
    return specrt__hnsw_explore(g, s, node, level, ef);
}

/* The n found, ranked anew by the head's own rows. */
static void specrt__hnsw_rerank(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t n) {
    const specrt_head_desc *head = &g->head->desc;
    specrt_segment rows;
    memset(&rows, 0, sizeof rows);
    rows.rows = head->rows;
    rows.row_stride = head->row_stride;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.places = s->nodes;
    rows.n_rows = n;
    for (int32_t i = 0; i < n; i++) s->nodes[i] = g->ids[specrt__hnsw_node(s->keys[i])];
    specrt__head_products(s->kernels, &rows, 0, n, head->n_cols, s->query, 1, s->scores, 0);
    for (int32_t i = 0; i < n; i++) {
        uint64_t key = specrt__shortlist_key(s->scores[i], s->nodes[i]);
        int32_t at = i;
        for (; at > 0 && s->keys[at - 1] < key; at--) s->keys[at] = s->keys[at - 1];
        s->keys[at] = key;
    }
}

SPECRT_API int32_t specrt_hnsw_search(const specrt_hnsw *index, const float *query, int32_t k,
                                      int32_t ef, int32_t *ids, float *scores, void *scratch) {
    if (!index || !query || !ids || !scores || !scratch) return 0;
    if (ef == 0) ef = index->header->ef > k ? index->header->ef : k;
    if (k < 1 || k > ef || ef > SPECRT_HNSW_MAX_EF) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, ef, scratch);
    specrt__hnsw_ask(index, &s, query);
    int32_t n = specrt__hnsw_descend(index, &s, 0, ef);
    bool exact = index->head != NULL;
    if (exact) specrt__hnsw_rerank(index, &s, n);
    for (int32_t i = 0; i < n && i < k; i++) {
        ids[i] =
            exact ? specrt__shortlist_key_id(s.keys[i]) : index->ids[specrt__hnsw_node(s.keys[i])];
        scores[i] = specrt__shortlist_key_logit(s.keys[i]);
    }
    return n < k ? n : k;
}

/* --- for builders --- */
#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)

static void specrt__hnsw_ask_node(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t node) {
    const int8_t *codes = g->codes + (int64_t)node * g->n_cols;
    for (int64_t j = 0; j < g->n_cols; j += SPECRT__HNSW_PAD_I8)
        for (int k = 0; k < SPECRT__HNSW_PAD_I8; k++) s->codes[j + k] = codes[j + k];
    s->unit = g->scales[node];
    s->offset = g->offsets ? g->offsets[node] : 0;
}

SPECRT_API int32_t specrt_hnsw_nearest(const specrt_hnsw *index, int32_t node, int32_t level,
                                       int32_t ef, int32_t *nodes, float *scores, void *scratch) {
    if (!index || !nodes || !scores || !scratch) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, ef, scratch);
    specrt__hnsw_ask_node(index, &s, node);
    int32_t n = specrt__hnsw_descend(index, &s, level, ef);
    for (int32_t i = 0; i < n; i++) {
        nodes[i] = specrt__hnsw_node(s.keys[i]);
        scores[i] = specrt__shortlist_key_logit(s.keys[i]);
    }
    return n;
}

SPECRT_API void specrt_hnsw_scores(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                   int32_t n, float *scores, void *scratch) {
    if (!index || !nodes || !scores || !scratch) return;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, 1, scratch);
    specrt__hnsw_ask_node(index, &s, node);
    specrt__hnsw_score_codes(index, &s, nodes, n, scores);
}

SPECRT_API int specrt_hnsw_any_above(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                     int32_t n, float bound, void *scratch) {
    if (!index || !nodes || !scratch) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, 1, scratch);
    float scores[4];
    specrt__hnsw_ask_node(index, &s, node);
    for (int32_t i = 0; i < n; i += 4) {
        specrt__hnsw_score_four(index, &s, nodes + i, n - i, scores);
        for (int32_t r = 0; r < 4 && i + r < n; r++)
            if (scores[r] > bound) return 1;
    }
    return 0;
}

#endif
