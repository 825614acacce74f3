/* section.c : clusters and router as the bytes of a bundle's section. */
#include "build.h"

#include <stdlib.h>
#include <string.h>
#include "base/order.h"

void router_weights_free(router_weights *w) {
    free(w->w1);
    free(w->b1);
    free(w->w2);
    free(w->b2);
    *w = (router_weights){0};
}

const char *cluster_section_tag(specrt_router_kind router) {
    return router == SPECRT_ROUTER_CENTROID ? "centroid"
           : router == SPECRT_ROUTER_CORAL  ? "group"
                                            : "cluster";
}

/* --- bytes --- */

static uint8_t *put(uint8_t *at, const void *data, size_t n_bytes) {
    memcpy(at, data, n_bytes);
    return at + n_bytes;
}

static uint8_t *put_halves(uint8_t *at, const float *x, size_t n) {
    if (n > 0) specrt_to_f16(x, (int64_t)n, (uint16_t *)(void *)at);
    return at + 2 * n;
}

/* Offsets by cluster, then the head's ids by cluster, ascending. */
static uint8_t *put_members(uint8_t *at, const cluster_build *b) {
    int32_t m = b->k.n_clusters;
    uint32_t *offsets = (uint32_t *)(void *)at;
    int32_t *ids = (int32_t *)(void *)(offsets + m + 1);
    for (int32_t c = 0; c <= m; c++) offsets[c] = (uint32_t)b->members.offsets[c];
    for (int32_t i = 0; i < b->members.n; i++) ids[i] = build_id(b, b->members.rows[i]);
    for (int32_t c = 0; c < m && b->ids; c++)
        qsort(ids + offsets[c], offsets[c + 1] - offsets[c], sizeof *ids, sl_order_i32);
    return (uint8_t *)(ids + b->members.n);
}

void *cluster_section_bytes(const cluster_build *b, size_t *n_bytes) {
    const router_weights *w = &b->router;
    specrt_clusters_header h = {.n_rows = b->n_ids,
                                .n_cols = (int32_t)b->head.n_cols,
                                .n_clusters = b->k.n_clusters,
                                .n_members = b->members.n,
                                .router = w->kind,
                                .softmax = w->softmax,
                                .n_embed = w->n_embed,
                                .n_state = w->n_state,
                                .n_hidden = w->n_hidden,
                                .n_schedule = b->schedule.n};
    size_t m = (size_t)h.n_clusters, hidden = (size_t)h.n_hidden;
    size_t inputs = (size_t)(h.n_embed + h.n_state), width = hidden ? hidden : (size_t)h.n_state;
    size_t outputs = w->kind == SPECRT_ROUTER_NONE ? 0 : m;
    *n_bytes = sizeof h + 4 * (m + 1 + (size_t)h.n_members + (size_t)h.n_schedule) +
               2 * (hidden * (inputs + 1) + outputs * (width + 1));
    uint8_t *bytes = calloc(1, *n_bytes), *at = bytes;
    if (!bytes) return NULL;
    at = put(at, &h, sizeof h);
    at = put_members(at, b);
    at = put(at, b->schedule.clusters, (size_t)h.n_schedule * sizeof(int32_t));
    at = put_halves(at, w->w1, hidden * inputs);
    at = put_halves(at, w->b1, hidden);
    at = put_halves(at, w->w2, outputs * width);
    put_halves(at, w->b2, outputs);
    return bytes;
}
