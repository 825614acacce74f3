/* sketch.c */
#include "sources/sketch.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/simd_kernels.h"
#include "core/head.h"
#include "core/active.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/scan.h"

/* --- what sessions share --- */

SPECRT__INTERNAL const specrt__active_option specrt__sketch_options[] = {
    {"rank", NULL, 0, SPECRT_MAX_SKETCH_RANK, 0},
    {"scan", NULL, 0, SPECRT_MAX_VOCAB, 0},
};
SPECRT__ACTIVE_FITS(specrt__sketch_options, SPECRT__SKETCH_OPTIONS);

static specrt_status specrt__sketch_check_fit(const specrt_bundle *bundle,
                                              const specrt_sketch *view, const specrt_head *head,
                                              const int32_t *options, specrt_error *err) {
    const specrt_sketch_header *h = view->header;
    if (h->n_cols != head->desc.n_cols || h->n_rows != head->desc.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section 'sketch': expected a head [%d, %d], found [%lld, "
                                "%lld]; use the bundle made for this model",
                                bundle->name, (int)h->n_rows, (int)h->n_cols,
                                (long long)head->desc.n_rows, (long long)head->desc.n_cols);
    if (options[SPECRT__SKETCH_RANK] > h->rank)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: rank: expected at most the section's %d, found "
                                "%d; build it with sketch-build --rank %d",
                                (int)h->rank, (int)options[SPECRT__SKETCH_RANK],
                                (int)options[SPECRT__SKETCH_RANK]);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view, int32_t rank) {
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.rows = view->basis;
    s.row_stride = (size_t)view->header->n_cols * sizeof *view->basis;
    s.dtype = SPECRT_DTYPE_F16;
    s.n_rows = rank;
    return s;
}

/* What every place scores at any state: n_bias numbers. */
static void specrt__sketch_fill_bias(const specrt__sketch_shared *s, float *bias, size_t n_bias) {
    const specrt_sketch *v = &s->view;
    for (size_t i = 0; i < n_bias; i++) {
        bool is_row = i < (size_t)v->header->n_rows;
        bias[i] = is_row && v->constants ? v->constants[i] : 0;
        if (is_row && s->head->desc.bias) bias[i] += s->head->desc.bias[v->rows[i]];
    }
}

/* Bands to scan, the first so many, and what the center has in each direction. */
static void specrt__sketch_fill_bands(specrt__sketch_shared *s, float *center) {
    const specrt_sketch *v = &s->view;
    specrt_active basis = {&s->head->compute, &s->basis, 1, s->rank, v->header->n_cols, NULL};
    for (int32_t i = 0; i < s->n_bands; i++) {
        specrt__scan_band *band = &s->bands[i];
        band->codes = v->bands[i].codes;
        band->scales = v->bands[i].scales;
        band->bits = v->bands[i].bits;
        band->n_lines = v->bands[i].rank * band->bits / 32;
        s->rows.stride += 64 * (size_t)band->n_lines;
    }
    specrt_active_logits(&basis, v->center, 1, center);
    s->center = center;
}

/* The rows to scan, with n_bias numbers behind the struct. */
SPECRT__INTERNAL void specrt__sketch_fill_rows(specrt__sketch_shared *s, size_t n_bias) {
    const specrt_sketch *v = &s->view;
    float *bias = (float *)(void *)(s + 1);
    specrt__sketch_fill_bias(s, bias, n_bias);
    memset(&s->rows, 0, sizeof s->rows);
    s->rows.bias = n_bias ? bias : NULL;
    if (s->n_bands) {
        specrt__sketch_fill_bands(s, bias + n_bias);
        return;
    }
    s->rows.codes = v->codes;
    s->rows.stride = specrt__sketch_stride(v->header);
    s->rows.n_lines = s->rank / specrt__sketch_step(v->header);
    s->rows.four_bits = v->header->four_bits != 0;
    s->rows.scales = v->scales;
}

/* Dimensions to scan where `rank` are asked for, 0 all: whole lines, or whole bands, which it counts. */
static int32_t specrt__sketch_use(const specrt_sketch_header *h, int32_t rank, int32_t *n_bands) {
    int32_t step = specrt__sketch_step(h), used = 0;
    *n_bands = 0;
    if (!h->n_bands) return rank == 0 ? h->rank : (rank + step - 1) / step * step;
    while (*n_bands < h->n_bands && (rank == 0 || used < rank)) used += h->bands[(*n_bands)++].rank;
    return used;
}

static specrt_status specrt__sketch_share(const specrt__source_request *request,
                                          specrt__source_shared *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const specrt_head *head = request->head;
    const int32_t *options = request->options;
    specrt_sketch view;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "sketch: needs a bundle with section 'sketch'; "
                                "sketch-build builds it");
    SPECRT__TRY(specrt_bundle_sketch(bundle, &view, err));
    SPECRT__TRY(specrt__sketch_check_fit(bundle, &view, head, options, err));
    int32_t n = view.header->n_rows, rank = options[SPECRT__SKETCH_RANK];
    int32_t n_places = options[SPECRT__SKETCH_SCAN];
    size_t n_bias = head->desc.bias || view.constants ? ((size_t)n + 15) / 16 * 16 : 0;
    size_t n_center = view.center ? (size_t)view.header->rank : 0;
    specrt__sketch_shared *s = (specrt__sketch_shared *)specrt__base_alloc(
        &head->compute.desc, sizeof *s + (n_bias + n_center) * sizeof(float));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    memset(s, 0, sizeof *s);
    s->desc = head->compute.desc;
    s->head = head;
    s->view = view;
    s->rank = specrt__sketch_use(view.header, rank, &s->n_bands);
    s->n_places = n_places == 0 || n_places > n ? n : n_places;
    s->size = request->size < s->n_places ? request->size : s->n_places;
    s->basis = specrt__sketch_basis(&view, s->rank);
    s->scan = specrt__scan_choose();
    s->adder = specrt__scan_choose_adder();
    specrt__sketch_fill_rows(s, n_bias);
    out->bound = s->size;
    out->data = s;
    return SPECRT_STATUS_OK;
}

static void specrt__sketch_unshare(void *shared) {
    specrt__sketch_shared *s = (specrt__sketch_shared *)shared;
    specrt_desc desc = s->desc;
    specrt__base_free(&desc, s);
}

/* --- a session --- */

/* Tokens that a level's states may name in all. */
static uint64_t specrt__sketch_most(const specrt__sketch_shared *shared, int32_t topk) {
    uint64_t n = (uint64_t)shared->n_places, named = (uint64_t)shared->size * (uint64_t)topk;
    return named > n ? n : named;
}

/* Keys of a state and part. */
static uint64_t specrt__sketch_room(const specrt__sketch_shared *shared) {
    return 2 * (uint64_t)shared->size + SPECRT__SKETCH_SPARE;
}

/* Where the arrays lie behind the struct; base NULL: to learn the bytes. */
static uint64_t specrt__sketch_allot(specrt__sketch *s, uint8_t *base) {
    const specrt__sketch_shared *shared = s->shared;
    uint64_t k = (uint64_t)s->topk, r = (uint64_t)shared->rank, bound = (uint64_t)shared->size;
    uint64_t at = sizeof *s, n;
    bool decodes = specrt__head_packed_dtype(shared->head) != shared->head->desc.dtype;
#define SPECRT__SKETCH_ALLOT(field, type, count)                                                   \
    n = (count);                                                                                   \
    s->field = base && n ? (type *)(void *)(base + at) : NULL;                                     \
    at = specrt__base_align(at + n * sizeof(type), 64)
    at = specrt__base_align(at, 64);
    SPECRT__SKETCH_ALLOT(queries, specrt__scan_query,
                         k * (uint64_t)(shared->n_bands ? shared->n_bands : 1));
    SPECRT__SKETCH_ALLOT(keys, uint64_t, k * SPECRT__SKETCH_PARTS * specrt__sketch_room(shared));
    SPECRT__SKETCH_ALLOT(found, specrt__sketch_found, k * SPECRT__SKETCH_PARTS);
    SPECRT__SKETCH_ALLOT(z, float, k *r);
    SPECRT__SKETCH_ALLOT(weights, uint64_t, (uint64_t)shared->head->n_ids);
    SPECRT__SKETCH_ALLOT(merged, uint64_t, specrt__sketch_most(shared, s->topk));
    SPECRT__SKETCH_ALLOT(ids, int32_t, bound);
    SPECRT__SKETCH_ALLOT(places, int32_t, bound);
    SPECRT__SKETCH_ALLOT(q, int8_t, (k + SPECRT__SCAN_STATES) * r);
    SPECRT__SKETCH_ALLOT(rows, uint8_t, decodes ? bound * s->row_stride : 0);
    SPECRT__SKETCH_ALLOT(bias, float, decodes && shared->head->desc.bias ? bound : 0);
#undef SPECRT__SKETCH_ALLOT
    return at + 64;
}

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with) {
    specrt__sketch plan, *s;
    memset(&plan, 0, sizeof plan);
    plan.desc = *with->desc;
    plan.shared = (const specrt__sketch_shared *)opaque;
    plan.topk = with->topk;
    plan.row_stride = specrt_row_bytes(specrt__head_packed_dtype(plan.shared->head),
                                       plan.shared->head->desc.n_cols);
    uint64_t bytes = specrt__sketch_allot(&plan, NULL);
    s = (specrt__sketch *)specrt__base_alloc(with->desc, bytes);
    if (!s) return NULL;
    memset(s, 0, (size_t)bytes);
    *s = plan;
    specrt__sketch_allot(s, (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)s, 64));
    for (int32_t i = 0; i < with->topk * SPECRT__SKETCH_PARTS; i++)
        s->found[i].keys = s->keys + (uint64_t)i * specrt__sketch_room(s->shared);
    return s;
}

/* Query i for n_states, of which none are known yet, of dimensions from `first` on. */
static void specrt__sketch_clear_query(specrt__sketch *s, specrt__scan_query *query, int32_t i,
                                       int32_t n_states, int32_t first) {
    memset(query, 0, sizeof *query);
    query->n_states = n_states;
    query->q = s->q + (size_t)n_states * ((size_t)i * (size_t)s->shared->rank + (size_t)first);
    for (int k = 0; k < n_states; k++) query->least[k] = INFINITY;
}

/* Queries for the level's states. @return how many. */
SPECRT__INTERNAL int32_t specrt__sketch_ask(specrt__sketch *s) {
    int32_t n_states = s->n == 1 ? 1 : SPECRT__SCAN_STATES, n = (s->n + n_states - 1) / n_states;
    int32_t first = 0, band = 0;
    do {
        for (int32_t i = 0; i < n; i++)
            specrt__sketch_clear_query(s, &s->queries[band * s->topk + i], i, n_states, first);
        first += s->shared->view.bands[band].rank;
    } while (++band < s->shared->n_bands);
    memset(s->q, 0, (size_t)(n * n_states) * (size_t)s->shared->rank);
    return n;
}

/* The 8-bit copy of z [rank] in a query, for its state k. */
static void specrt__sketch_round_part(float *z, int32_t rank, int32_t zero,
                                      specrt__scan_query *query, int k) {
    float most = 0;
    int32_t sum = 0;
    for (int32_t j = 0; j < rank; j++) {
        if (!(fabsf(z[j]) <= FLT_MAX)) z[j] = 0;
        most = fabsf(z[j]) > most ? fabsf(z[j]) : most;
    }
    float unit = most / 127, inverse = most > 0 ? 127 / most : 0;
    for (int32_t j = 0; j < rank; j++) {
        int8_t q = (int8_t)lrintf(z[j] * inverse);
        *specrt__scan_at(query, k, j) = q;
        sum += q;
    }
    query->unit[k] = unit;
    query->offset[k] = zero * sum;
    query->least[k] = -INFINITY;
}

/* The 8-bit copy of a state's z, each band's in a unit of its own. */
SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    float *z = s->z + (size_t)i * (size_t)shared->rank;
    specrt__scan_query *query = specrt__sketch_query(s, i);
    int k = i % query->n_states;
    if (!shared->n_bands) {
        specrt__sketch_round_part(z, shared->rank, shared->rows.four_bits ? 8 : 128, query, k);
        return;
    }
    for (int32_t j = 0; j < shared->rank; j++) z[j] -= shared->center[j];
    for (int32_t b = 0; b < shared->n_bands; b++, query += s->topk) {
        const specrt_sketch_band *band = &shared->view.bands[b];
        specrt__sketch_round_part(z, band->rank, (1 << band->bits) - 1, query, k);
        z += band->rank;
    }
}

/* Nothing found yet, of which `size` are to be kept. */
static void specrt__sketch_clear(const specrt__sketch *s, specrt__sketch_found *found,
                                 int32_t size) {
    int32_t most = s->shared->size < size ? s->shared->size : size;
    found->n = found->n_sorted = 0;
    found->size = size;
    found->room = 2 * most + SPECRT__SKETCH_SPARE;
}

/* Keeps the best. Tokens lie all over memory and are looked up here, many at once.
 * @return the score from which on others are of interest. */
static float specrt__sketch_trim(const specrt__sketch *s, specrt__sketch_found *found) {
    const specrt__active_routed *out = s->routed;
    uint64_t least = UINT64_MAX;
    int32_t n = found->n_sorted;
    for (int32_t i = n; i < found->n; i++) {
        int32_t id = specrt__sketch_token(s, (int32_t)(uint32_t)found->keys[i]);
        float score = specrt__base_float((uint32_t)(found->keys[i] >> 32));
        SPECRT__SIMD_PREFETCH(out->levels + (id < 0 ? 0 : id));
        SPECRT__SIMD_PREFETCH(out->pool->wants + (id < 0 ? 0 : id));
        found->keys[i] = specrt__active_key(score, id);
    }
    for (int32_t i = n; i < found->n; i++)
        if (specrt__active_is_new(s->routed, specrt__active_key_id(found->keys[i])))
            found->keys[n++] = found->keys[i];
    if (n > found->size) specrt__active_select(found->keys, n, found->size);
    found->n = found->n_sorted = n < found->size ? n : found->size;
    if (n < found->size) return -INFINITY;
    for (int32_t i = 0; i < found->n; i++) least = found->keys[i] < least ? found->keys[i] : least;
    return specrt__active_key_logit(least);
}

/* Takes what is of interest to a state. @return its new bound. */
static float specrt__sketch_collect(const specrt__sketch *s, specrt__sketch_found *found,
                                    const specrt__scan_hits *hits, float least) {
    for (int32_t i = 0; i < hits->n; i++) {
        if (hits->scores[i] < least) continue;
        uint64_t score = specrt__base_bits(hits->scores[i]);
        SPECRT__SIMD_PREFETCH(s->shared->view.rows + hits->places[i]);
        found->keys[found->n++] = score << 32 | (uint32_t)hits->places[i];
        if (found->n == found->room) least = specrt__sketch_trim(s, found);
    }
    return least;
}

/* The same as a scan of one width by the bands, one after another. */
static void specrt__sketch_scan_bands(const specrt__sketch *s, const specrt__scan_query *query,
                                      int32_t at, int32_t block, int32_t n_blocks,
                                      specrt__scan_hits *hits) {
    const specrt__sketch_shared *shared = s->shared;
    const specrt__scan_adder *adder = shared->adder;
    float sums[SPECRT__SCAN_STATES * SPECRT__SCAN_MOST];
    size_t bytes = (size_t)n_blocks * 16 * sizeof *sums;
    for (int32_t k = 0; k < query->n_states; k++)
        memcpy(sums + k * SPECRT__SCAN_MOST, shared->rows.bias + 16 * (size_t)block, bytes);
    for (int32_t b = 0; b < shared->n_bands; b++)
        adder->add(&shared->bands[b], block, n_blocks, &s->queries[b * s->topk + at], sums);
    for (int32_t k = 0; k < query->n_states; k++)
        adder->pick(sums + k * SPECRT__SCAN_MOST, block, n_blocks, query->least[k], &hits[k]);
}

/* Scans blocks for a query, number `at`. Finds of each state are added to every PARTS-th of `found`. */
static void specrt__sketch_scan(const specrt__sketch *s, specrt__scan_query *query, int32_t at,
                                int32_t block, int32_t n_blocks, specrt__sketch_found *found) {
    specrt__scan_hits hits[SPECRT__SCAN_STATES];
    int32_t first = at * query->n_states;
    for (int32_t k = 0; k < query->n_states; k++) hits[k].n = 0;
    if (s->shared->n_bands)
        specrt__sketch_scan_bands(s, query, at, block, n_blocks, hits);
    else
        s->shared->scan(&s->shared->rows, block, n_blocks, query, hits);
    for (int32_t k = 0; k < query->n_states && first + k < s->n; k++)
        query->least[k] = specrt__sketch_collect(s, &found[(first + k) * SPECRT__SKETCH_PARTS],
                                                 &hits[k], query->least[k]);
}

/* Sets scores that a few more than `size` places reach, for the states of a query, by the middle four
 * of every 64 blocks (frequent rows come first and score high: the first ones would promise too much). What
 * falls short need not be looked at. They stay at -inf where the sample is too small to tell. */
static void specrt__sketch_guess(specrt__sketch *s, int32_t at) {
    specrt__scan_query *query = &s->queries[at];
    int32_t n_blocks = (s->shared->n_places + 15) / 16, n_sampled = (n_blocks + 30) / 64 * 4;
    float share = (float)s->shared->size * (float)n_sampled / (float)n_blocks;
    int32_t k = (int32_t)(share + 3 * sqrtf(share)) + 3, first = at * query->n_states;
    int32_t end = first + query->n_states < s->n ? first + query->n_states : s->n;
    for (int32_t i = first; i < end; i++)
        specrt__sketch_clear(s, &s->found[i * SPECRT__SKETCH_PARTS], k);
    for (int32_t b = 30; b + 3 < n_blocks; b += 64)
        specrt__sketch_scan(s, query, at, b, 4, s->found);
    for (int32_t i = first; i < end; i++)
        query->least[i - first] = specrt__sketch_trim(s, &s->found[i * SPECRT__SKETCH_PARTS]);
}

/* Part `part` of the places, for all states of the level. Codes pass through the cache once. */
static void specrt__sketch_scan_part(void *arg, int64_t part) {
    const specrt__sketch *s = (const specrt__sketch *)arg;
    specrt__scan_query queries[SPECRT_TREE_MAX_TOPK];
    specrt__sketch_found *found = s->found + part;
    int64_t n_blocks = ((int64_t)s->shared->n_places + 15) / 16;
    int32_t end = (int32_t)(n_blocks * (part + 1) / SPECRT__SKETCH_PARTS);
    int32_t step = s->n == 1 ? SPECRT__SCAN_BLOCKS : (int32_t)(32768 / s->shared->rows.stride);
    step -= step % SPECRT__SCAN_TILE;
    if (step < SPECRT__SCAN_TILE) step = SPECRT__SCAN_TILE;
    if (step > SPECRT__SCAN_BLOCKS) step = SPECRT__SCAN_BLOCKS;
    memcpy(queries, s->queries, (size_t)s->n_queries * sizeof *queries);
    for (int32_t i = 0; i < s->n; i++)
        specrt__sketch_clear(s, &found[i * SPECRT__SKETCH_PARTS], s->shared->size);
    for (int32_t b = (int32_t)(n_blocks * part / SPECRT__SKETCH_PARTS); b < end; b += step)
        for (int32_t i = 0; i < s->n_queries; i++)
            specrt__sketch_scan(s, &queries[i], i, b, end - b < step ? end - b : step, found);
    for (int32_t i = 0; i < s->n; i++) specrt__sketch_trim(s, &found[i * SPECRT__SKETCH_PARTS]);
}

/* The best of each state over all parts, in the first part's place. */
static void specrt__sketch_merge(const specrt__sketch *s, specrt__sketch_found *all) {
    for (int part = 1; part < SPECRT__SKETCH_PARTS; part++) {
        for (int32_t j = 0; j < all[part].n; j++) all->keys[all->n++] = all[part].keys[j];
        all->n_sorted = all->n;
        specrt__sketch_trim(s, all);
    }
}

/* Bytes that a scan reads: codes, scales, biases. */
SPECRT__INTERNAL int64_t specrt__sketch_scanned(const specrt__sketch_shared *shared) {
    int64_t of_bands = (int64_t)shared->rows.stride + 32 * shared->n_bands + 64;
    if (shared->n_bands) return ((int64_t)shared->n_places + 15) / 16 * of_bands;
    int64_t block = 64 * (shared->rows.n_lines + (shared->rows.bias ? 2 : 1));
    return ((int64_t)shared->n_places + 15) / 16 * block;
}

/* The best of every state. A guess that was too high shows in too few, and costs a second scan. */
SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s) {
    bool again = false;
    for (int round = 0; round == 0 || again; round++) {
        again = false;
        for (int32_t i = 0; i < s->n_queries && round == 0; i++) specrt__sketch_guess(s, i);
        specrt__active_run(&s->shared->head->compute, SPECRT__SKETCH_PARTS,
                           specrt__sketch_scan_part, s);
        s->n_read += specrt__sketch_scanned(s->shared);
        for (int32_t i = 0; i < s->n; i++) {
            specrt__sketch_found *all = &s->found[i * SPECRT__SKETCH_PARTS];
            float *least = &specrt__sketch_query(s, i)->least[i % s->queries->n_states];
            specrt__sketch_merge(s, all);
            bool few = all->n < all->size;
            again = again || (few && *least > -INFINITY);
            if (few) *least = -INFINITY;
        }
    }
}

/* The weight, in 2^-56, of a share e of a sum; of any that is found, at least 1. */
static uint64_t specrt__sketch_weight(uint64_t e, double scale) {
    uint64_t weight = e > 0 ? (uint64_t)((double)e * scale) : 0;
    return weight > 0 ? weight : 1;
}

/* Adds what a state found, weighed by its path, in 2^-40, and its own estimate of the next token (of a capped
 * head without the cap, which a score less its constant does not tell). All in whole numbers: in which order
 * does not matter.
 * @return tokens in merged. */
static int32_t specrt__sketch_weigh(specrt__sketch *s, const specrt__sketch_found *found,
                                    uint64_t path, int32_t n_merged) {
    float most = -INFINITY, scale = s->shared->head->desc.logit_scale;
    uint64_t sum = 0;
    for (int32_t j = 0; j < found->n; j++) {
        float score = specrt__active_key_logit(found->keys[j]);
        most = score > most ? score : most;
    }
    for (int32_t j = 0; j < found->n; j++) {
        uint64_t e = specrt__base_decay(scale * (most - specrt__active_key_logit(found->keys[j])));
        s->ids[j] = specrt__active_key_id(found->keys[j]);
        found->keys[j] = e;
        sum += e;
    }
    double share = sum > 0 ? (double)path * 65536.0 / (double)sum : 0;
    for (int32_t j = 0; j < found->n; j++) {
        uint64_t *weight = &s->weights[s->ids[j]];
        if (*weight == 0) s->merged[n_merged++] = (uint32_t)s->ids[j];
        *weight += specrt__sketch_weight(found->keys[j], share);
    }
    return n_merged;
}

/* The first n of ids as rows: those of the head by number, or decoded. */
SPECRT__INTERNAL specrt_segment specrt__sketch_segment(specrt__sketch *s, int32_t n) {
    const specrt_head *head = s->shared->head;
    specrt_segment segment;
    memset(&segment, 0, sizeof segment);
    segment.ids = s->ids;
    segment.n_rows = n;
    segment.dtype = specrt__head_packed_dtype(head);
    segment.rows = s->rows ? s->rows : head->desc.rows;
    segment.row_stride = s->rows ? s->row_stride : head->desc.row_stride;
    segment.places = s->rows ? NULL : s->places;
    segment.bias = s->rows ? s->bias : head->desc.bias;
    for (int32_t i = 0; i < n; i++) s->places[i] = specrt__head_row_of(head, s->ids[i]);
    if (s->rows) {
        specrt__active_packing packing = {head, s->ids, n, s->rows, s->row_stride, s->bias, NULL};
        specrt__active_pack(&packing);
    }
    return segment;
}

/* The level's tokens: the best over all states by probability. @return how many. */
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__active_level *level) {
    int32_t n = 0, bound = s->shared->size;
    float most = -INFINITY;
    if (s->n == 1) {
        for (; n < s->found->n; n++) s->ids[n] = specrt__active_key_id(s->found->keys[n]);
        return n;
    }
    for (int32_t i = 0; i < s->n; i++) most = level->logprobs[i] > most ? level->logprobs[i] : most;
    for (int32_t i = 0; i < s->n; i++)
        n = specrt__sketch_weigh(s, &s->found[i * SPECRT__SKETCH_PARTS],
                                 specrt__base_decay(most - level->logprobs[i]), n);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)s->merged[i];
        s->merged[i] = specrt__active_key((float)s->weights[id], id);
        s->weights[id] = 0;
    }
    if (n > bound) specrt__active_select(s->merged, n, bound);
    if (n > bound) n = bound;
    for (int32_t i = 0; i < n; i++) s->ids[i] = specrt__active_key_id(s->merged[i]);
    return n;
}

/* --- routing --- */

static int32_t specrt__sketch_name(specrt__sketch *s, const specrt__active_level *level) {
    const specrt_compute *compute = &s->shared->head->compute;
    specrt_active basis = {
        compute, &s->shared->basis, 1, s->shared->rank, s->shared->head->desc.n_cols, NULL};
    specrt_active_logits(&basis, level->draft_hidden, s->n, s->z);
    s->n_queries = specrt__sketch_ask(s);
    for (int32_t i = 0; i < s->n; i++) specrt__sketch_round(s, i);
    specrt__sketch_search(s);
    return specrt__sketch_join(s, level);
}

static void specrt__sketch_route(void *state, const specrt__active_level *level,
                                 specrt__active_routed *out) {
    specrt__sketch *s = (specrt__sketch *)state;
    s->routed = out;
    s->n = level->n;
    s->n_read = (int64_t)s->shared->basis.row_stride * s->shared->rank;
    int32_t n = specrt__sketch_name(s, level);
    specrt_segment segment = specrt__sketch_segment(s, n);
    specrt__active_route(out, &segment);
    out->n_read += s->n_read;
}

SPECRT__INTERNAL const specrt__source specrt__sketch_source = {
    specrt__sketch_share,         specrt__sketch_unshare, specrt__sketch_open,
    specrt__sketch_close,         specrt__sketch_route,   SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
