/* sketch.c : owns what `sketch` names: the rows that a low-rank copy of the head finds best for the
 * drafter's own states. Low rank with rescoring: SVD-softmax (Shim et al. 2017) previews and refines,
 * SpecVocab names rows. */
#include "sources/sketch.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/simd_kernels.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/scan.h"

/* --- what sessions share --- */

static const specrt__source_option specrt__sketch_options[] = {
    {"signs", NULL, 0, SPECRT_MAX_SKETCH_RANK, 0},
    {"keep", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"scan", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"clusters", NULL, 0, SPECRT_MAX_CLUSTERS, 0},
};
SPECRT__SOURCE_FITS(specrt__sketch_options, SPECRT__SKETCH_OPTIONS);

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
    if (options[SPECRT__SKETCH_SIGNS] > h->n_signs)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: signs: expected at most the section's %d, found %d; "
                                "build it with sketch-build --signs %d",
                                (int)h->n_signs, (int)options[SPECRT__SKETCH_SIGNS],
                                (int)options[SPECRT__SKETCH_SIGNS]);
    if (options[SPECRT__SKETCH_CLUSTERS] > 0 && h->n_clusters == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: clusters: the section has none; build it with "
                                "sketch-build --clusters N");
    if (options[SPECRT__SKETCH_SCAN] > 0 && h->n_clusters > 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: scan: expected rows by frequency, found them in clusters; "
                                "use clusters=N");
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view) {
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.rows = view->basis;
    s.dtype = (specrt_dtype)view->header->basis_dtype;
    s.row_stride = specrt_row_bytes(s.dtype, view->header->n_cols);
    s.n_rows = view->header->rank;
    return s;
}

/* Constants of places with the head's bias in them. @return their unit. */
static float specrt__sketch_add_bias(const specrt__sketch_shared *s, int8_t *constants) {
    const specrt_sketch *v = &s->view;
    const float *bias = s->head->desc.bias;
    float most = 0, unit = v->header->constant_unit;
    for (int32_t i = 0; i < v->header->n_rows; i++)
        most = fmaxf(most, fabsf(unit * (float)v->constants[i] + bias[v->rows[i]]));
    float inverse = most > 0 && most <= FLT_MAX ? 127 / most : 0;
    for (int32_t i = 0; i < v->header->n_rows; i++) {
        float x = (unit * (float)v->constants[i] + bias[v->rows[i]]) * inverse;
        constants[i] = (int8_t)lrintf(fmaxf(fminf(x, 127), -127));
    }
    return inverse > 0 ? most / 127 : 0;
}

/* What is scanned. */
static void specrt__sketch_fill(specrt__sketch_shared *s, const int32_t *options) {
    const specrt_sketch *v = &s->view;
    const specrt_sketch_header *h = v->header;
    float *center = (float *)(void *)(s + 1);
    int8_t *constants = (int8_t *)(center + h->rank);
    specrt_shortlist basis = {&s->head->compute, &s->basis, 1, h->rank, h->n_cols, NULL};
    int32_t n_signs = options[SPECRT__SKETCH_SIGNS], n_probed = options[SPECRT__SKETCH_CLUSTERS];
    specrt_shortlist_logits(&basis, v->center, 1, center);
    s->center = center;
    s->signs.codes = v->signs;
    s->signs.stride = 64 * (size_t)(h->n_signs / 32);
    s->signs.n_lines = n_signs == 0 ? h->n_signs / 32 : (n_signs + 31) / 32;
    s->signs.scales = v->scales;
    s->signs.constants = s->head->desc.bias ? constants : v->constants;
    s->signs.constant_unit =
        s->head->desc.bias ? specrt__sketch_add_bias(s, constants) : h->constant_unit;
    s->records.bytes = v->records;
    s->records.n_lines = specrt__sketch_lines(h);
    s->clusters = specrt__sketch_clusters_of(v);
    s->n_probed = n_probed < s->clusters.n ? n_probed : 0;
}

/* Places that are refined where the policy's text says none: one of 16, which finds nearly all of the best.
 * */
static int32_t specrt__sketch_keep(int32_t n_places, int32_t size) {
    int32_t keep = n_places / 16;
    return keep < 4 * size ? 4 * size : keep;
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
    int32_t n = view.header->n_rows, n_places = options[SPECRT__SKETCH_SCAN];
    size_t n_constants = head->desc.bias ? ((size_t)n + 15) / 16 * 16 : 0;
    size_t bytes = sizeof(specrt__sketch_shared) + 4 * (size_t)view.header->rank + n_constants;
    specrt__sketch_shared *s =
        (specrt__sketch_shared *)specrt__base_alloc(&head->compute.env, bytes);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    memset(s, 0, bytes);
    s->env = head->compute.env;
    s->head = head;
    s->view = view;
    s->rank = view.header->rank;
    s->n_places = n_places == 0 || n_places > n ? n : n_places;
    s->size = request->size < s->n_places ? request->size : s->n_places;
    s->keep = options[SPECRT__SKETCH_KEEP];
    if (s->keep == 0) s->keep = specrt__sketch_keep(s->n_places, s->size);
    if (s->keep < s->size) s->keep = s->size;
    if (s->keep > s->n_places) s->keep = s->n_places;
    s->basis = specrt__sketch_basis(&view);
    s->scan = specrt__scan_choose();
    specrt__sketch_fill(s, options);
    out->bound = out->more = s->size;
    out->reads_states = true;
    out->data = s;
    return SPECRT_STATUS_OK;
}

static void specrt__sketch_unshare(void *shared) {
    specrt__sketch_shared *s = (specrt__sketch_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* --- a session --- */

/* Tokens that so many states may name in all. */
static uint64_t specrt__sketch_most(const specrt__sketch_shared *shared, int32_t n_states) {
    uint64_t n = (uint64_t)shared->n_places, named = (uint64_t)shared->size * (uint64_t)n_states;
    return named > n ? n : named;
}

/* Where the arrays lie behind the struct; base NULL: to learn the bytes. */
static uint64_t specrt__sketch_allot(specrt__sketch *s, uint8_t *base) {
    const specrt__sketch_shared *shared = s->shared;
    uint64_t k = (uint64_t)s->n_states, rank = (uint64_t)shared->rank;
    uint64_t bound = specrt__sketch_most(shared, s->n_block);
    uint64_t at = sizeof *s, n, n_signs = 32 * (uint64_t)shared->signs.n_lines;
    uint64_t n_blocks = (uint64_t)specrt__sketch_n_blocks(shared);
    uint64_t n_clusters = shared->n_probed > 0 ? (uint64_t)shared->clusters.n : 0;
    bool decodes = specrt__head_packed_dtype(shared->head) != shared->head->desc.dtype;
#define SPECRT__SKETCH_ALLOT(field, type, count)                                                   \
    n = (count);                                                                                   \
    s->field = base && n ? (type *)(void *)(base + at) : NULL;                                     \
    at = specrt__base_align(at + n * sizeof(type), 64)
    at = specrt__base_align(at, 64);
    SPECRT__SKETCH_ALLOT(queries, specrt__scan_query, k);
    SPECRT__SKETCH_ALLOT(
        keys, uint64_t,
        k * (SPECRT__SKETCH_PARTS * (uint64_t)specrt__sketch_kept_room(shared->keep) +
             (uint64_t)specrt__sketch_found_room(shared->size)));
    SPECRT__SKETCH_ALLOT(kept, specrt__sketch_best, k * SPECRT__SKETCH_PARTS);
    SPECRT__SKETCH_ALLOT(found, specrt__sketch_best, k);
    SPECRT__SKETCH_ALLOT(z, float, k *rank);
    SPECRT__SKETCH_ALLOT(units, float, k);
    SPECRT__SKETCH_ALLOT(sums, int32_t, k);
    SPECRT__SKETCH_ALLOT(weights, uint64_t, (uint64_t)shared->head->n_ids);
    SPECRT__SKETCH_ALLOT(merged, uint64_t, specrt__sketch_most(shared, s->n_states));
    SPECRT__SKETCH_ALLOT(ids, int32_t, bound);
    SPECRT__SKETCH_ALLOT(places, int32_t, bound);
    SPECRT__SKETCH_ALLOT(blocks, int32_t, n_blocks);
    SPECRT__SKETCH_ALLOT(probed, uint8_t, n_clusters > 0 ? n_blocks : 0);
    SPECRT__SKETCH_ALLOT(clusters, uint64_t, n_clusters);
    SPECRT__SKETCH_ALLOT(q_signs, int8_t, (k + SPECRT__SCAN_STATES) * n_signs);
    SPECRT__SKETCH_ALLOT(q_pairs, int8_t, k * (rank + 16));
    SPECRT__SKETCH_ALLOT(rows, uint8_t, decodes ? bound * s->row_stride : 0);
    SPECRT__SKETCH_ALLOT(bias, float, decodes && shared->head->desc.bias ? bound : 0);
#undef SPECRT__SKETCH_ALLOT
    return at + 64;
}

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with) {
    specrt__sketch plan, *s;
    memset(&plan, 0, sizeof plan);
    plan.env = *with->env;
    plan.shared = (const specrt__sketch_shared *)opaque;
    plan.n_states = with->n_states;
    plan.n_block = with->n_block;
    plan.row_stride = specrt_row_bytes(specrt__head_packed_dtype(plan.shared->head),
                                       plan.shared->head->desc.n_cols);
    uint64_t bytes = specrt__sketch_allot(&plan, NULL);
    s = (specrt__sketch *)specrt__base_alloc(with->env, bytes);
    if (!s) return NULL;
    memset(s, 0, (size_t)bytes);
    *s = plan;
    specrt__sketch_allot(s, (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)s, 64));
    uint64_t *keys = s->keys;
    for (int32_t i = 0; i < with->n_states; i++) {
        for (int part = 0; part < SPECRT__SKETCH_PARTS; part++) {
            s->kept[i * SPECRT__SKETCH_PARTS + part].keys = keys;
            keys += specrt__sketch_kept_room(s->shared->keep);
        }
        s->found[i].keys = keys;
        keys += specrt__sketch_found_room(s->shared->size);
    }
    s->n_blocks = specrt__sketch_n_blocks(s->shared);
    for (int32_t b = 0; b < s->n_blocks; b++) s->blocks[b] = b;
    return s;
}

/* --- hidden states in 8 bits --- */

/* Queries for the level's states. @return how many. */
static int32_t specrt__sketch_ask(specrt__sketch *s) {
    int32_t n_states = s->n == 1 || s->shared->n_probed > 0 ? 1 : SPECRT__SCAN_STATES;
    int32_t n = (s->n + n_states - 1) / n_states;
    size_t bytes = 32 * (size_t)(s->shared->signs.n_lines * n_states);
    for (int32_t i = 0; i < n; i++) {
        memset(&s->queries[i], 0, sizeof s->queries[i]);
        s->queries[i].n_states = n_states;
        s->queries[i].q = s->q_signs + (size_t)i * bytes;
        for (int k = 0; k < n_states; k++) s->queries[i].least[k] = INFINITY;
    }
    memset(s->q_signs, 0, (size_t)n * bytes);
    return n;
}

/* The unit in which z [n] fits 8 bits; what is no number becomes 0. */
static float specrt__sketch_unit(float *z, int32_t n) {
    float most = 0;
    for (int32_t j = 0; j < n; j++) {
        if (!(fabsf(z[j]) <= FLT_MAX)) z[j] = 0;
        most = fabsf(z[j]) > most ? fabsf(z[j]) : most;
    }
    return most / 127;
}

/* The 8-bit copies of state i. */
static void specrt__sketch_round_state(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    specrt__scan_query *query = specrt__sketch_query(s, i);
    int32_t k = i % query->n_states, n_signs = 32 * shared->signs.n_lines, n = shared->rank;
    float *z = s->z + (size_t)i * (size_t)n;
    int8_t *pairs = s->q_pairs + (size_t)i * (size_t)(n + 16);
    for (int32_t j = 0; j < n; j++) z[j] -= shared->center[j];
    float unit = specrt__sketch_unit(z, n), inverse = unit > 0 ? 1 / unit : 0;
    s->units[i] = unit;
    s->sums[i] = 0;
    for (int32_t j = 0; j < n; j++) {
        int8_t q = (int8_t)lrintf(z[j] * inverse);
        pairs[specrt__scan_record_at(shared->records.n_lines, j)] = q;
        s->sums[i] += q;
    }
    query->unit[k] = specrt__sketch_unit(z, n_signs);
    inverse = query->unit[k] > 0 ? 1 / query->unit[k] : 0;
    for (int32_t j = 0; j < n_signs; j++) {
        int8_t q = (int8_t)lrintf(z[j] * inverse);
        *specrt__scan_at(query, k, j) = q;
        query->offset[k] += q;
    }
    query->unit[k] *= shared->view.header->scale_unit;
    query->least[k] = -INFINITY;
}

SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s) {
    s->n_queries = specrt__sketch_ask(s);
    for (int32_t i = 0; i < s->n; i++) specrt__sketch_round_state(s, i);
}

/* --- the tokens of a level --- */

/* The weight, in 2^-56, of a share e of a sum; of any that is found, at least 1. */
static uint64_t specrt__sketch_weight(uint64_t e, double scale) {
    uint64_t weight = e > 0 ? (uint64_t)((double)e * scale) : 0;
    return weight > 0 ? weight : 1;
}

/* Adds what a state found, weighed by its path, in 2^-40, and its own estimate of the next token (of a capped
 * head without the cap, which a score less its constant does not tell). All in whole numbers: in which order
 * does not matter.
 * @return tokens in merged. */
static int32_t specrt__sketch_weigh(specrt__sketch *s, const specrt__sketch_best *found,
                                    uint64_t path, int32_t n_merged) {
    float most = -INFINITY, scale = s->shared->head->desc.logit_scale;
    uint64_t sum = 0;
    for (int32_t j = 0; j < found->n; j++) {
        float score = specrt__shortlist_key_logit(found->keys[j]);
        most = score > most ? score : most;
    }
    for (int32_t j = 0; j < found->n; j++) {
        uint64_t e =
            specrt__base_decay(scale * (most - specrt__shortlist_key_logit(found->keys[j])));
        s->ids[j] = specrt__shortlist_key_id(found->keys[j]);
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
    specrt__pool_packing named = {s->shared->head, s->ids,  n,   s->rows,
                                  s->row_stride,   s->bias, NULL};
    return specrt__pool_gather(&named, s->places);
}

/* All that the states found, each token once. @return how many. */
static int32_t specrt__sketch_unite(specrt__sketch *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++)
        for (int32_t j = 0; j < s->found[i].n; j++) {
            int32_t id = specrt__shortlist_key_id(s->found[i].keys[j]);
            if (s->weights[id] == 0) s->ids[n++] = id;
            s->weights[id] = 1;
        }
    for (int32_t i = 0; i < n; i++) s->weights[s->ids[i]] = 0;
    return n;
}

/* The level's tokens: the best over all states by probability. @return how many. */
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__source_level *level) {
    int32_t n = 0, bound = s->shared->size;
    float most = -INFINITY;
    if (level->each) return specrt__sketch_unite(s);
    if (s->n == 1) {
        for (; n < s->found->n; n++) s->ids[n] = specrt__shortlist_key_id(s->found->keys[n]);
        return n;
    }
    for (int32_t i = 0; i < s->n; i++) most = level->logprobs[i] > most ? level->logprobs[i] : most;
    for (int32_t i = 0; i < s->n; i++)
        n = specrt__sketch_weigh(s, &s->found[i], specrt__base_decay(most - level->logprobs[i]), n);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)s->merged[i];
        s->merged[i] = specrt__shortlist_key((float)s->weights[id], id);
        s->weights[id] = 0;
    }
    if (n > bound) specrt__shortlist_select(s->merged, n, bound);
    if (n > bound) n = bound;
    for (int32_t i = 0; i < n; i++) s->ids[i] = specrt__shortlist_key_id(s->merged[i]);
    return n;
}

/* --- routing --- */

static void specrt__sketch_route(void *state, const specrt__source_level *level,
                                 specrt__source_routed *out) {
    specrt__sketch *s = (specrt__sketch *)state;
    const specrt__sketch_shared *shared = s->shared;
    specrt_shortlist basis = {
        &shared->head->compute, &shared->basis, 1, shared->rank, shared->head->desc.n_cols, NULL};
    s->routed = out;
    s->n = level->n;
    s->n_read = (int64_t)shared->basis.row_stride * shared->rank;
    specrt_shortlist_logits(&basis, level->draft_hidden, s->n, s->z);
    specrt__sketch_round(s);
    specrt__sketch_search(s);
    specrt_segment segment = specrt__sketch_segment(s, specrt__sketch_join(s, level));
    specrt__source_route(out, &segment);
    out->n_read += s->n_read;
}

SPECRT__INTERNAL const specrt__source specrt__sketch_source = {
    /* options = */ specrt__sketch_options,
    /* n_options = */ SPECRT__SKETCH_OPTIONS,
    /* share = */ specrt__sketch_share,
    /* unshare = */ specrt__sketch_unshare,
    /* open = */ specrt__sketch_open,
    /* close = */ specrt__sketch_close,
    /* route = */ specrt__sketch_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
