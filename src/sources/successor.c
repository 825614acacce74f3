/* successor.c : owns the successor source (docs/methods/successor.md): at every level, the
 * tokens that likeliest follow those being extended, scored where they lie in the head, by an indexed
 * product. Refuses graphs of a larger vocabulary than the head's. Tokens that are members anyway take
 * no place. */
#include "sources/successor.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "sources/source.h"

static specrt_status specrt__successor_share(const specrt__source_request *request,
                                             specrt__source_shared *out, specrt_error *err) {
    const specrt_head *head = request->head;
    specrt_cograph graph;
    if (!request->bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "successor: needs a bundle with section 'cograph'; "
                                "cograph-build builds it");
    SPECRT__TRY(specrt_bundle_cograph(request->bundle, &graph, err));
    if (!head->row_of && graph.header->n_vocab > head->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "successor: the graph has %d tokens, the head %lld rows; "
                                "use the bundle made for this model",
                                (int)graph.header->n_vocab, (long long)head->desc.n_rows);
    specrt__successor_shared *s =
        (specrt__successor_shared *)specrt__base_alloc(&head->compute.env, sizeof *s);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    s->env = head->compute.env;
    s->head = head;
    s->graph = graph;
    s->size = request->size < graph.header->n_vocab ? request->size : graph.header->n_vocab;
    out->data = s;
    out->bound = out->more = s->size;
    out->reads_tokens = true;
    return SPECRT_STATUS_OK;
}

static void specrt__successor_unshare(void *shared) {
    specrt__successor_shared *s = (specrt__successor_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

SPECRT__INTERNAL void *specrt__successor_open(void *opaque, const specrt__source_session *with) {
    const specrt__successor_shared *shared = (const specrt__successor_shared *)opaque;
    const specrt_head *head = shared->head;
    bool decodes = specrt__head_packed_dtype(head) != head->desc.dtype;
    size_t n_ids = (size_t)head->n_ids, size = (size_t)shared->size;
    size_t n_places = size * (size_t)with->n_block;
    size_t n_found = (size_t)shared->graph.header->max_degree;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    if (n_found > size) n_found = size; /* a token adds no more */
    n_found *= (size_t)with->n_states;
    if (n_found > n_ids) n_found = n_ids;
    size_t words = 2 * n_found + n_ids + 3 * n_places;
    size_t at_rows = (size_t)specrt__base_align(sizeof(specrt__successor) + 4 * words, 64);
    uint64_t bytes = 0;
    if (decodes && !specrt__base_mul(stride, n_places, &bytes)) return NULL;
    if (!specrt__base_add(bytes, at_rows + 64, &bytes)) return NULL;
    specrt__successor *s = (specrt__successor *)specrt__base_alloc(with->env, bytes);
    if (!s) return NULL;
    memset(s, 0, at_rows);
    s->env = *with->env;
    s->shared = shared;
    uint8_t *at = (uint8_t *)(s + 1);
    s->keys = SPECRT__CARVE(uint64_t, &at, n_found);
    s->scores = SPECRT__CARVE(float, &at, n_ids);
    s->ids = SPECRT__CARVE(int32_t, &at, n_places);
    s->places = SPECRT__CARVE(int32_t, &at, n_places);
    if (head->desc.bias) s->bias = SPECRT__CARVE(float, &at, n_places);
    if (decodes) s->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->row_stride = stride;
    return s;
}

/* The first `size` new successors of one token, which are in order. @return how many. */
static int32_t specrt__successor_chain(const specrt__successor *s, int32_t token,
                                       const specrt__source_routed *out, int32_t *found) {
    const int32_t *ids;
    const float *counts;
    int32_t n = specrt_cograph_successors(&s->shared->graph, token, &ids, &counts), n_ids = 0;
    for (int32_t i = 0; i < n && n_ids < s->shared->size; i++) {
        if (!specrt__source_is_new(out, ids[i]) || s->scores[ids[i]] > 0) continue;
        s->scores[ids[i]] = 1;
        found[n_ids++] = ids[i];
    }
    for (int32_t i = 0; i < n_ids; i++) s->scores[found[i]] = 0;
    return n_ids;
}

/* Adds the new successors of a token on a path of this probability to what was found. Half a pair is
 * taken off each count: what followed a rare token once need not do so again. */
static int32_t specrt__successor_add(specrt__successor *s, int32_t token, float weight,
                                     const specrt__source_routed *out, int32_t n_found) {
    const int32_t *ids;
    const float *counts;
    int32_t n = specrt_cograph_successors(&s->shared->graph, token, &ids, &counts), n_new = 0;
    if (n == 0) return n_found;
    float scale = weight / (float)s->shared->graph.totals[token];
    for (int32_t i = 0; i < n && n_new < s->shared->size; i++) {
        float score = scale * (counts[i] - 0.5f);
        if (!specrt__source_is_new(out, ids[i])) continue;
        if (!(score > FLT_MIN)) score = FLT_MIN;
        n_new++;
        if (!(s->scores[ids[i]] > 0)) s->keys[n_found++] = (uint32_t)ids[i];
        s->scores[ids[i]] += score;
    }
    return n_found;
}

/* The best `size` over all tokens of the level. @return how many. */
static int32_t specrt__successor_union(specrt__successor *s, const specrt__source_level *level,
                                       const specrt__source_routed *out, int32_t *found) {
    int32_t n_found = 0, size = s->shared->size;
    for (int32_t i = 0; i < level->n; i++)
        n_found = specrt__successor_add(
            s, level->tokens[i], expf(level->logprobs[i] - level->logprobs[0]), out, n_found);
    for (int32_t i = 0; i < n_found; i++) {
        int32_t id = (int32_t)s->keys[i];
        s->keys[i] = (uint64_t)specrt__base_bits(s->scores[id]) << 32 | (uint32_t)~id;
        s->scores[id] = 0;
    }
    if (n_found > size) specrt__shortlist_select(s->keys, n_found, size);
    if (n_found > size) n_found = size;
    for (int32_t i = 0; i < n_found; i++) found[i] = (int32_t) ~(uint32_t)s->keys[i];
    return n_found;
}

static void specrt__successor_route(void *state, const specrt__source_level *level,
                                    specrt__source_routed *out) {
    specrt__successor *s = (specrt__successor *)state;
    size_t at = (size_t)(level->again ? s->n_used : 0);
    int32_t *ids = s->ids + at;
    int32_t n = level->n == 1 || level->each
                    ? specrt__successor_chain(s, level->tokens[0], out, ids)
                    : specrt__successor_union(s, level, out, ids);
    specrt__pool_packing found = {s->shared->head,
                                  ids,
                                  n,
                                  s->rows ? s->rows + at * s->row_stride : NULL,
                                  s->row_stride,
                                  s->bias ? s->bias + at : NULL,
                                  NULL};
    specrt_segment segment = specrt__pool_gather(&found, s->places + at);
    specrt__source_route(out, &segment);
    s->n_used = (int32_t)at + n;
}

SPECRT__INTERNAL const specrt__source specrt__successor_source = {
    SPECRT__SOURCE_HAS_NO_OPTIONS,
    /* share = */ specrt__successor_share,
    /* unshare = */ specrt__successor_unshare,
    /* open = */ specrt__successor_open,
    /* close = */ specrt__successor_close,
    /* route = */ specrt__successor_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
