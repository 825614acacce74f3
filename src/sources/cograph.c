/* cograph.c : owns the view of the successor graph (section 6.2 of EvoSpec's appendix;
 * docs/methods/successor.md): which tokens follow a token. Refuses a section whose offsets, order, ids
 * or counts are not what the format says. Invariant of a view: every row lies in the arrays, its ids
 * are below n_vocab, its counts positive. */
#include "core/bundle.h"

/* Offsets in the section, for sizes that were checked. */
static void specrt__cograph_lay_out(specrt_cograph *g) {
    size_t n = (size_t)g->header->n_vocab;
    g->totals = (const uint64_t *)(const void *)(g->header + 1);
    g->offsets = (const uint32_t *)(const void *)(g->totals + n);
    g->n_rule = g->offsets + n + 1;
    g->ids = (const int32_t *)(const void *)(g->n_rule + n);
    g->counts = (const float *)(const void *)(g->ids + g->header->n_edges);
}

/* NULL, or what is wrong with the sizes. */
static const char *specrt__cograph_check_sizes(const specrt_cograph_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (h->n_vocab < 1 || h->n_vocab > SPECRT_MAX_VOCAB)
        return "n_vocab: expected 1 to 16777216, found another";
    if (h->n_edges > UINT32_MAX) return "n_edges: expected at most 4294967295, found more";
    if (n - sizeof *h != (uint64_t)h->n_vocab * 16 + 4 + h->n_edges * 8)
        return "size: expected the bytes of n_vocab and n_edges, found others";
    if (h->max_degree < 1 || h->max_degree > h->n_vocab || h->rule_degree < 0)
        return "max_degree, rule_degree: expected 1 to n_vocab, and 0 or more, found others";
    return NULL;
}

/* NULL, or what is wrong with the successors of one token. */
static const char *specrt__cograph_check_row(const specrt_cograph *g, int32_t token) {
    uint32_t begin = g->offsets[token], end = g->offsets[token + 1];
    if (end < begin || end > g->header->n_edges)
        return "offsets: expected ascending offsets, found one below its predecessor";
    if (end - begin > (uint32_t)g->header->max_degree)
        return "offsets: expected rows of at most max_degree edges, found a longer one";
    if (g->n_rule[token] > end - begin)
        return "n_rule: expected at most the edges of its row, found more";
    for (uint32_t i = begin; i < end; i++) {
        if (g->ids[i] < 0 || g->ids[i] >= g->header->n_vocab)
            return "ids: expected ids below n_vocab, found another";
        if (!(g->counts[i] > 0 && g->counts[i] <= FLT_MAX))
            return "counts: expected positive finite counts, found another";
        if (i == begin) continue;
        if (g->counts[i] > g->counts[i - 1] ||
            (g->counts[i] == g->counts[i - 1] && g->ids[i] <= g->ids[i - 1]))
            return "ids: expected successors ordered by count and id, found others";
    }
    return end > begin && g->totals[token] == 0
               ? "totals: expected a positive total for a row with edges, found 0"
               : NULL;
}

SPECRT_API specrt_status specrt_bundle_cograph(const specrt_bundle *bundle, specrt_cograph *out,
                                               specrt_error *err) {
    size_t n;
    specrt_cograph view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    view.header = (const specrt_cograph_header *)specrt_bundle_data(bundle, "cograph", &n);
    if (!view.header) return specrt__bundle_missing(bundle, "cograph", err);
    const char *wrong = specrt__cograph_check_sizes(view.header, n);
    if (wrong) return specrt__bundle_bad(bundle, "cograph", wrong, err);
    specrt__cograph_lay_out(&view);
    if (view.offsets[0] != 0 || view.offsets[view.header->n_vocab] != view.header->n_edges)
        wrong = "offsets: expected 0 first and n_edges last, found others";
    for (int32_t i = 0; i < view.header->n_vocab && !wrong; i++)
        wrong = specrt__cograph_check_row(&view, i);
    if (wrong) return specrt__bundle_bad(bundle, "cograph", wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}

SPECRT_API int32_t specrt_cograph_successors(const specrt_cograph *graph, int32_t token,
                                             const int32_t **ids, const float **counts) {
    if (ids) *ids = NULL;
    if (counts) *counts = NULL;
    if (!graph || !ids || !counts || token < 0 || token >= graph->header->n_vocab) return 0;
    uint32_t begin = graph->offsets[token];
    *ids = graph->ids + begin;
    *counts = graph->counts + begin;
    return (int32_t)(graph->offsets[token + 1] - begin);
}
