/* cluster_section.c : owns the sections of clusters and their routers, as a bundle holds them. Refuses
 * sizes, ids and numbers that no builder writes. */
#include "sources/cluster.h"
#include "core/base.h"
#include "core/bundle.h"

static bool specrt__cluster_within(int32_t x, int32_t least, int32_t most) {
    return x >= least && x <= most;
}

/* Whether the widths are those of the router's kind. */
static bool specrt__cluster_widths_ok(const specrt_clusters_header *h) {
    const int32_t most = 65536;
    switch (h->router) {
    case SPECRT_ROUTER_NONE: return h->n_embed == 0 && h->n_state == 0 && h->n_hidden == 0;
    case SPECRT_ROUTER_CENTROID:
        return h->n_embed == 0 && h->n_state == h->n_cols && h->n_hidden == 0;
    case SPECRT_ROUTER_DYNASPEC:
        return specrt__cluster_within(h->n_embed, 0, most) &&
               specrt__cluster_within(h->n_state, 1, most) &&
               specrt__cluster_within(h->n_hidden, 1, most);
    case SPECRT_ROUTER_CORAL:
        return h->n_embed == 0 && h->n_state == h->n_cols && h->n_hidden == h->n_state;
    default: return false;
    }
}

/* NULL, or what is wrong with the sizes. */
static const char *specrt__cluster_check_sizes(const specrt_clusters_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (!specrt__cluster_within(h->n_rows, 1, SPECRT_MAX_VOCAB) ||
        !specrt__cluster_within(h->n_cols, 1, 65536))
        return "n_rows, n_cols: expected 1 to 16777216, and 1 to 65536, found others";
    if (!specrt__cluster_within(h->n_members, 1, h->n_rows) ||
        !specrt__cluster_within(h->n_clusters, 1,
                                h->n_members < SPECRT_MAX_CLUSTERS ? h->n_members
                                                                   : SPECRT_MAX_CLUSTERS))
        return "n_clusters, n_members: expected 1 to 16384, n_members from n_clusters to n_rows, "
               "found others";
    if (!specrt__cluster_widths_ok(h))
        return "n_embed, n_state, n_hidden: expected the widths of its router, found others";
    if (!specrt__cluster_within(h->n_schedule, 1, 32) || !specrt__cluster_within(h->softmax, 0, 1))
        return "n_schedule, softmax: expected 1 to 32, and 0 or 1, found others";
    uint64_t words = (uint64_t)h->n_clusters + 1 + (uint64_t)h->n_members + (uint64_t)h->n_schedule;
    uint64_t halves = (uint64_t)(h->n_hidden * (specrt__cluster_inputs(h) + 1));
    if (h->router != SPECRT_ROUTER_NONE)
        halves += (uint64_t)(h->n_clusters * (specrt__cluster_width(h) + 1));
    return n - sizeof *h == 4 * words + 2 * halves
               ? NULL
               : "size: expected the bytes of its header's counts, found others";
}

/* Offsets in the section, for sizes that were checked. */
static void specrt__cluster_lay_out(specrt_clusters *c) {
    const specrt_clusters_header *h = c->header;
    c->offsets = (const uint32_t *)(const void *)(h + 1);
    c->ids = (const int32_t *)(const void *)(c->offsets + h->n_clusters + 1);
    c->schedule = c->ids + h->n_members;
    if (h->router == SPECRT_ROUTER_NONE) return;
    const uint16_t *weights = (const uint16_t *)(const void *)(c->schedule + h->n_schedule);
    if (h->n_hidden > 0) {
        c->w1 = weights;
        c->b1 = c->w1 + h->n_hidden * specrt__cluster_inputs(h);
        weights = c->b1 + h->n_hidden;
    }
    c->w2 = weights;
    c->b2 = c->w2 + h->n_clusters * specrt__cluster_width(h);
}

/* NULL, or what is wrong with who is in which cluster. A row may be in several. */
static const char *specrt__cluster_check_ids(const specrt_clusters *c) {
    const specrt_clusters_header *h = c->header;
    if (c->offsets[0] != 0 || c->offsets[h->n_clusters] != (uint32_t)h->n_members)
        return "offsets: expected 0 first and n_members last, found others";
    for (int32_t m = 0; m < h->n_clusters; m++) {
        uint32_t begin = c->offsets[m], end = c->offsets[m + 1];
        if (end <= begin || end > (uint32_t)h->n_members)
            return "offsets: expected ascending offsets, found one at or below its predecessor";
        for (uint32_t i = begin; i < end; i++) {
            int32_t id = c->ids[i];
            if (id < 0 || id >= h->n_rows) return "ids: expected ids below n_rows, found another";
            if (i > begin && id <= c->ids[i - 1])
                return "ids: expected ascending ids in a cluster, found others";
        }
    }
    return NULL;
}

static const char *specrt__cluster_check_router(const specrt_clusters *c, size_t n) {
    const specrt_clusters_header *h = c->header;
    for (int32_t i = 0; i < h->n_schedule; i++)
        if (!specrt__cluster_within(c->schedule[i], 1, h->n_clusters))
            return "schedule: expected levels from 1 to n_clusters, found another";
    const uint16_t *end = (const uint16_t *)(const void *)((const uint8_t *)h + n);
    for (const uint16_t *w = (const uint16_t *)(const void *)(c->schedule + h->n_schedule); w < end;
         w++)
        if ((*w & 0x7c00) == 0x7c00) return "weights: expected finite numbers, found others";
    return NULL;
}

SPECRT_API specrt_status specrt_bundle_clusters(const specrt_bundle *bundle, const char *tag,
                                                specrt_clusters *out, specrt_error *err) {
    size_t n;
    specrt_clusters view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    SPECRT__NEED(tag);
    memset(&view, 0, sizeof view);
    view.header = (const specrt_clusters_header *)specrt_bundle_data(bundle, tag, &n);
    if (!view.header) return specrt__bundle_missing(bundle, tag, err);
    const char *wrong = specrt__cluster_check_sizes(view.header, n);
    if (wrong) return specrt__bundle_bad(bundle, tag, wrong, err);
    specrt__cluster_lay_out(&view);
    wrong = specrt__cluster_check_ids(&view);
    if (!wrong) wrong = specrt__cluster_check_router(&view, n);
    if (wrong) return specrt__bundle_bad(bundle, tag, wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}
