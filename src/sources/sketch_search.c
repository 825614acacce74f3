/* sketch_search.c : owns how a sketch is searched: signs preview all rows, or those of the clusters whose
 * centroids score best; records of those that score best refine the scores, and the best of these are
 * named. */
#include "sources/sketch.h"
#include "core/shortlist.h"
#include "core/head.h"
#include "core/simd_kernels.h"
#include "sources/scan.h"

/* --- lists of the best --- */

static void specrt__sketch_clear(specrt__sketch_best *list, int32_t size, int32_t room) {
    list->n = 0;
    list->size = size;
    list->room = room;
}

/* Keeps the best. @return the score from which on others are of interest. */
static float specrt__sketch_trim(specrt__sketch_best *list) {
    uint64_t least = UINT64_MAX;
    if (list->n < list->size) return -INFINITY;
    if (list->n > list->size) specrt__shortlist_select(list->keys, list->n, list->size);
    list->n = list->size;
    for (int32_t i = 0; i < list->n; i++) least = list->keys[i] < least ? list->keys[i] : least;
    return specrt__shortlist_key_logit(least);
}

/* --- scores by records --- */

enum { SPECRT__SKETCH_BATCH = 256 };

static float specrt__sketch_bf16(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return specrt__base_float((uint32_t)half << 16);
}

/* What the row of a record scores for state i, by the sum of its codes, before the head's bias. */
static float specrt__sketch_score(const specrt__sketch *s, int32_t i,
                                  const specrt__scan_records *records, int32_t at, int32_t sum,
                                  float bias) {
    const uint8_t *end = records->bytes + ((size_t)at + 1) * 64 * (size_t)records->n_lines;
    return fmaf((float)(2 * sum - 3 * s->sums[i]), s->units[i] * specrt__sketch_bf16(end - 4),
                specrt__sketch_bf16(end - 2) + bias);
}

/* State i as records are multiplied with it. */
static const int8_t *specrt__sketch_pairs(const specrt__sketch *s, int32_t i) {
    return s->q_pairs + (size_t)i * (size_t)(s->shared->rank + 16);
}

/* --- the clusters --- */

/* Marks the blocks of the clusters whose mean rows score best for state i. */
static void specrt__sketch_mark(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    int32_t places[SPECRT__SKETCH_BATCH], sums[SPECRT__SKETCH_BATCH], n;
    for (int32_t m = 0; m < shared->clusters.n; m += n) {
        n = shared->clusters.n - m < SPECRT__SKETCH_BATCH ? shared->clusters.n - m
                                                          : SPECRT__SKETCH_BATCH;
        for (int32_t j = 0; j < n; j++) places[j] = m + j;
        shared->scan->pairs(&shared->clusters.centroids, places, n, specrt__sketch_pairs(s, i),
                            sums);
        for (int32_t j = 0; j < n; j++)
            s->clusters[m + j] = specrt__shortlist_key(
                specrt__sketch_score(s, i, &shared->clusters.centroids, m + j, sums[j], 0), m + j);
    }
    specrt__shortlist_select(s->clusters, shared->clusters.n, shared->n_probed);
    for (int32_t j = 0; j < shared->n_probed; j++) {
        int32_t m = specrt__shortlist_key_id(s->clusters[j]);
        uint32_t first = shared->clusters.starts[m] / 16,
                 last = (shared->clusters.starts[m + 1] - 1) / 16;
        memset(s->probed + first, 1, last - first + 1);
    }
}

/* Lists the blocks that state i previews: those of its clusters. */
static void specrt__sketch_probe(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    int32_t n_blocks = specrt__sketch_n_blocks(shared);
    memset(s->probed, 0, (size_t)n_blocks);
    specrt__sketch_mark(s, i);
    s->n_blocks = 0;
    for (int32_t b = 0; b < n_blocks; b++)
        if (s->probed[b]) s->blocks[s->n_blocks++] = b;
    s->n_read += 64 * (int64_t)shared->clusters.centroids.n_lines * shared->clusters.n;
}

/* Neighbours among listed blocks [at, end), as many as a scan covers. */
static int32_t specrt__sketch_run(const specrt__sketch *s, int32_t at, int32_t end) {
    int32_t n = 1;
    while (n < SPECRT__SCAN_BLOCKS && at + n < end && s->blocks[at + n] == s->blocks[at] + n) n++;
    return n;
}

/* --- the preview --- */

/* Takes what is of interest to a state. @return its new bound. */
static float specrt__sketch_collect(specrt__sketch_best *list, const specrt__scan_hits *hits,
                                    int32_t n_places, float least) {
    if (list->n + hits->n > list->room) least = specrt__sketch_trim(list);
    for (int32_t i = 0; i < hits->n; i++)
        if (hits->places[i] < n_places && !(hits->scores[i] < least))
            list->keys[list->n++] = specrt__shortlist_key(hits->scores[i], hits->places[i]);
    return least;
}

/* Scans blocks for a query, number `at`. Places of each state are added to every PARTS-th of `kept`. */
static void specrt__sketch_scan(const specrt__sketch *s, specrt__scan_query *query, int32_t at,
                                int32_t block, int32_t n_blocks, specrt__sketch_best *kept) {
    specrt__scan_hits hits[SPECRT__SCAN_STATES];
    int32_t first = at * query->n_states;
    for (int32_t k = 0; k < query->n_states; k++) hits[k].n = 0;
    s->shared->scan->signs(&s->shared->signs, block, n_blocks, query, hits);
    for (int32_t k = 0; k < query->n_states && first + k < s->n; k++)
        query->least[k] = specrt__sketch_collect(&kept[(first + k) * SPECRT__SKETCH_PARTS],
                                                 &hits[k], s->shared->n_places, query->least[k]);
}

/* Sets the scores that about `keep` places reach, for the states of a query, by the middle four of every 64
 * blocks: frequent rows come first and score high, so that the first ones would promise too much. Of
 * clusters, whose rows score alike, by one of every 16. Scores stay at -inf where the sample is too small. */
static void specrt__sketch_guess(specrt__sketch *s, int32_t at) {
    specrt__scan_query *query = &s->queries[at];
    int32_t n_blocks = s->n_blocks, n_each = s->shared->clusters.n > 0 ? 1 : 4, n;
    int32_t n_sampled = n_blocks < 34 ? 0 : (n_blocks + 15 * n_each / 2) / (16 * n_each) * n_each;
    float share = (float)s->shared->keep * (float)n_sampled / (float)n_blocks;
    int32_t k = (int32_t)share + 1, first = at * query->n_states;
    int32_t room = specrt__sketch_kept_room(s->shared->keep);
    int32_t end = first + query->n_states < s->n ? first + query->n_states : s->n;
    for (int32_t i = first; i < end; i++)
        specrt__sketch_clear(&s->kept[i * SPECRT__SKETCH_PARTS],
                             k < s->shared->keep ? k : s->shared->keep, room);
    for (int32_t i = 0; i < n_sampled; i += n_each)
        for (int32_t j = 16 * i + 15 * n_each / 2, last = j + n_each; j < last; j += n) {
            n = specrt__sketch_run(s, j, last);
            specrt__sketch_scan(s, query, at, s->blocks[j], n, s->kept);
        }
    for (int32_t i = first; i < end; i++)
        query->least[i - first] = specrt__sketch_trim(&s->kept[i * SPECRT__SKETCH_PARTS]);
}

/* The first state of a query. */
static int32_t specrt__sketch_first_of(const specrt__sketch *s, int32_t query) {
    int32_t first = query * s->queries->n_states;
    return first < s->n ? first : s->n;
}

/* Part `part` of the blocks, for the states that are previewed together. Signs pass the cache once. */
static void specrt__sketch_preview_part(void *arg, int64_t part) {
    const specrt__sketch *s = (const specrt__sketch *)arg;
    specrt__scan_query queries[SPECRT_TREE_MAX_TOPK];
    specrt__sketch_best *kept = s->kept + part;
    int64_t n_blocks = s->n_blocks;
    int32_t end = (int32_t)(n_blocks * (part + 1) / SPECRT__SKETCH_PARTS), n;
    memcpy(queries, s->queries + s->first, (size_t)(s->end - s->first) * sizeof *queries);
    for (int32_t i = specrt__sketch_first_of(s, s->first); i < specrt__sketch_first_of(s, s->end);
         i++)
        specrt__sketch_clear(&kept[i * SPECRT__SKETCH_PARTS], s->shared->keep,
                             specrt__sketch_kept_room(s->shared->keep));
    for (int32_t b = (int32_t)(n_blocks * part / SPECRT__SKETCH_PARTS); b < end; b += n) {
        n = specrt__sketch_run(s, b, end);
        for (int32_t i = s->first; i < s->end; i++)
            specrt__sketch_scan(s, &queries[i - s->first], i, s->blocks[b], n, kept);
    }
}

/* The places that a state keeps, of all parts, in the first part's list. */
static void specrt__sketch_gather(specrt__sketch_best *all) {
    for (int part = 1; part < SPECRT__SKETCH_PARTS; part++)
        for (int32_t j = 0; j < all[part].n; j++) {
            if (all->n == all->room) specrt__sketch_trim(all);
            all->keys[all->n++] = all[part].keys[j];
        }
    if (all->n > all->size) specrt__sketch_trim(all);
}

/* The places that each state of those keeps.
 * @return false where a state has too few: its bound was guessed far too high. The bound is dropped. */
static bool specrt__sketch_gather_all(specrt__sketch *s) {
    bool enough = true;
    for (int32_t i = specrt__sketch_first_of(s, s->first); i < specrt__sketch_first_of(s, s->end);
         i++) {
        specrt__sketch_best *all = &s->kept[i * SPECRT__SKETCH_PARTS];
        float *least = &specrt__sketch_query(s, i)->least[i % s->queries->n_states];
        specrt__sketch_gather(all);
        if (all->n >= all->size / 2) continue;
        enough = enough && !(*least > -INFINITY);
        *least = -INFINITY;
    }
    return enough;
}

/* The places that states keep, of the queries [first, end) together. */
static void specrt__sketch_preview(specrt__sketch *s, int32_t first, int32_t end) {
    const specrt__sketch_shared *shared = s->shared;
    int64_t block = 64 * shared->signs.n_lines + 32;
    bool all = shared->keep >= shared->n_places || shared->keep >= 16 * s->n_blocks;
    s->first = first;
    s->end = end;
    for (int32_t i = first; i < end && !all; i++) specrt__sketch_guess(s, i);
    do {
        specrt__shortlist_run(&shared->head->compute, SPECRT__SKETCH_PARTS,
                              specrt__sketch_preview_part, s);
        s->n_read += s->n_blocks * block;
    } while (!specrt__sketch_gather_all(s));
}

/* --- the refinement --- */

/* Adds the tokens of a batch that count. Tokens lie all over memory. @return the new bound. */
static float specrt__sketch_name(const specrt__sketch *s, int32_t i, const int32_t *places,
                                 const int32_t *sums, int32_t n, float least) {
    const specrt__sketch_shared *shared = s->shared;
    specrt__sketch_best *found = &s->found[i];
    const float *bias = shared->head->desc.bias;
    for (int32_t j = 0; j < n; j++) {
        float score = specrt__sketch_score(s, i, &shared->records, places[j], sums[j],
                                           bias ? bias[shared->view.rows[places[j]]] : 0);
        if (score < least) continue;
        int32_t id = specrt__sketch_token(s, places[j]);
        if (!specrt__source_is_new(s->routed, id)) continue;
        found->keys[found->n++] = specrt__shortlist_key(score, id);
        if (found->n == found->room) least = specrt__sketch_trim(found);
    }
    return least;
}

/* The best tokens of state i, of the places that it keeps. */
static void specrt__sketch_refine(void *arg, int64_t i) {
    const specrt__sketch *s = (const specrt__sketch *)arg;
    const specrt__sketch_best *kept = &s->kept[i * SPECRT__SKETCH_PARTS];
    const int8_t *q = specrt__sketch_pairs(s, (int32_t)i);
    int32_t places[SPECRT__SKETCH_BATCH], sums[SPECRT__SKETCH_BATCH], n;
    float least = -INFINITY;
    specrt__sketch_clear(&s->found[i], s->shared->size, specrt__sketch_found_room(s->shared->size));
    for (int32_t at = 0; at < kept->n; at += n) {
        n = kept->n - at < SPECRT__SKETCH_BATCH ? kept->n - at : SPECRT__SKETCH_BATCH;
        for (int32_t j = 0; j < n; j++) places[j] = specrt__shortlist_key_id(kept->keys[at + j]);
        s->shared->scan->pairs(&s->shared->records, places, n, q, sums);
        least = specrt__sketch_name(s, (int32_t)i, places, sums, n, least);
    }
    (void)specrt__sketch_trim(&s->found[i]);
}

SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s) {
    int64_t record = 64 * s->shared->records.n_lines;
    if (s->shared->n_probed == 0) specrt__sketch_preview(s, 0, s->n_queries);
    for (int32_t i = 0; i < s->n && s->shared->n_probed > 0; i++) { /* each its own clusters */
        specrt__sketch_probe(s, i);
        specrt__sketch_preview(s, i, i + 1);
    }
    for (int32_t i = 0; i < s->n; i++) s->n_read += record * s->kept[i * SPECRT__SKETCH_PARTS].n;
    specrt__shortlist_run(&s->shared->head->compute, s->n, specrt__sketch_refine, s);
}
