/* members.c : which rows are in which cluster, and what an ordered head has beside k-means: tokens in every
 * cluster, those that no slot is left for, and the clusters that a drafter brings. */
#include "build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "model/ordered_head.h"

#define WEIGHT_LEAST 0.001f /* of a row that was never counted */

void cluster_members_free(cluster_members *m) {
    free(m->offsets);
    free(m->rows);
    *m = (cluster_members){0};
}

static specrt_status members_create(cluster_members *m, int32_t n_clusters, int64_t n,
                                    specrt_error *err) {
    *m = (cluster_members){.n = (int32_t)n};
    TRY(sl_new(&m->offsets, (size_t)n_clusters + 1, sizeof *m->offsets, "the clusters", err));
    return sl_new(&m->rows, (size_t)n, sizeof *m->rows, "the clusters", err);
}

/* ---- slots ------------------------------------------------------------------------------------ */

static specrt_status check_slots(const cluster_build *b, specrt_error *err) {
    int64_t m = b->options->n_clusters, n_rows = b->head.n_rows, slots = n_rows / (m ? m : 1);
    if (m == 0 || n_rows % m)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--clusters: expected a divisor of the head's %" PRId64
                                " rows for --ordered, found %" PRId64,
                                n_rows, m);
    if (b->ids)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: its head has rows for some tokens (d2t): an ordered head has "
                                "one for every token",
                                b->options->model);
    if (b->options->n_hot >= slots)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--hot: expected fewer than the %" PRId64
                                " slots of a cluster, found %" PRId64 "; for a list alone: "
                                "specrt-bundle export --for gemma4 --hot %" PRId64,
                                slots, b->options->n_hot, slots);
    return SPECRT_STATUS_OK;
}

/* Rows by rank in the bundle that is written to; none where it has no ranks, and none are needed. */
static specrt_status read_ranks(cluster_build *b, uint8_t *seen, int32_t *n, specrt_error *err) {
    bool needed = b->options->n_hot || b->options->n_distinct;
    const char *path = b->options->common.output;
    specrt_bundle *bundle;
    specrt_ranks ranks;
    if (!path && needed)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--hot and --distinct: expected -o, a bundle with ranks");
    if (!path) return SPECRT_STATUS_OK;
    specrt_status status = specrt_bundle_open(path, NULL, &bundle, needed ? err : NULL);
    if (status) return needed ? status : SPECRT_STATUS_OK;
    status = specrt_bundle_ranks(bundle, &ranks, needed ? err : NULL);
    for (int32_t i = 0; !status && i < ranks.header->n_valid; i++) {
        int32_t row = ranks.ids[i];
        if (row >= b->head.n_rows) continue;
        b->order[(*n)++] = row;
        b->weights[row] = (float)sqrt((double)ranks.counts[i]) + WEIGHT_LEAST;
        seen[row] = 1;
    }
    specrt_bundle_close(bundle);
    return needed ? status : SPECRT_STATUS_OK;
}

/* All rows, those by rank first, and what they weigh in a centroid. */
static specrt_status make_order(cluster_build *b, specrt_error *err) {
    size_t n_rows = (size_t)b->head.n_rows;
    int32_t n = 0;
    uint8_t *seen;
    TRY(sl_new(&b->order, n_rows, sizeof *b->order, "the clusters", err));
    TRY(sl_new(&b->weights, n_rows, sizeof *b->weights, "the clusters", err));
    for (size_t row = 0; row < n_rows; row++) b->weights[row] = WEIGHT_LEAST;
    TRY(sl_new(&seen, n_rows, 1, "the clusters", err));
    specrt_status status = read_ranks(b, seen, &n, err);
    for (int32_t row = 0; row < b->head.n_rows; row++)
        if (!seen[row]) b->order[n++] = row;
    free(seen);
    return status;
}

/* The hot rows, and those beyond the slots there are, take no part in clustering. */
static void leave_out(cluster_build *b) {
    const cluster_options *o = b->options;
    int64_t n = b->head.n_rows, slots = n / o->n_clusters - o->n_hot;
    int64_t room = slots * o->n_clusters, n_kept = 0;
    if (o->n_distinct && o->n_distinct < room) room = o->n_distinct;
    for (int64_t i = 0; i < n; i++) {
        int32_t row = b->order[i];
        if (b->left_out[row]) continue;
        bool hot = b->n_hot < o->n_hot;
        if (!hot && n_kept++ < room) continue;
        b->n_hot += hot;
        b->n_rare += !hot;
        b->left_out[row] = hot ? ROW_HOT : ROW_RARE;
    }
}

specrt_status members_plan(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    if (!o->ordered) return SPECRT_STATUS_OK;
    TRY(check_slots(b, err));
    TRY(make_order(b, err));
    leave_out(b);
    return SPECRT_STATUS_OK;
}

specrt_status members_worth(const cluster_build *b, int32_t **out, specrt_error *err) {
    int32_t *place, n = 0;
    *out = NULL;
    TRY(sl_new(&place, (size_t)b->head.n_rows, sizeof *place, "the clusters", err));
    specrt_status status = sl_new(out, (size_t)b->rows.n, sizeof **out, "the clusters", err);
    for (int32_t i = 0; !status && i < b->rows.n; i++) place[b->rows.ids[i]] = i + 1;
    for (int32_t i = 0; !status && i < b->head.n_rows; i++)
        if (place[b->order[i]] > 0) (*out)[n++] = place[b->order[i]] - 1;
    free(place);
    return status;
}

/* ---- members ---------------------------------------------------------------------------------- */

specrt_status members_make(cluster_build *b, specrt_error *err) {
    const kmeans *k = &b->k;
    cluster_members *m = &b->members;
    int64_t n = (int64_t)b->rows.n + k->n_copies + (int64_t)k->n_clusters * b->n_hot;
    TRY(members_create(m, k->n_clusters, n, err));
    for (int32_t c = 0; c < k->n_clusters; c++)
        m->offsets[c + 1] = m->offsets[c] + k->sizes[c] + b->n_hot;
    for (int32_t row = 0; row < b->head.n_rows; row++)
        for (int32_t c = 0; b->left_out[row] == ROW_HOT && c < k->n_clusters; c++)
            m->rows[m->offsets[c]++] = row;
    for (int32_t i = 0; i < b->rows.n; i++) m->rows[m->offsets[k->clusters[i]]++] = b->rows.ids[i];
    for (int32_t i = 0; i < k->n_copies; i++)
        m->rows[m->offsets[k->copies[i].cluster]++] = b->rows.ids[k->copies[i].row];
    memmove(m->offsets + 1, m->offsets, (size_t)k->n_clusters * sizeof *m->offsets);
    m->offsets[0] = 0;
    for (int32_t c = 0; c < k->n_clusters; c++)
        qsort(m->rows + m->offsets[c], (size_t)(m->offsets[c + 1] - m->offsets[c]), sizeof *m->rows,
              sl_order_i32);
    return SPECRT_STATUS_OK;
}

/* ---- an ordered head's own -------------------------------------------------------------------- */

/* Ids of a cluster ascending, each once. @return how many */
static int32_t order_ids(int32_t *ids, int32_t n) {
    int32_t n_out = 0;
    qsort(ids, (size_t)n, sizeof *ids, sl_order_i32);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || ids[i] != ids[i - 1]) ids[n_out++] = ids[i];
    return n_out;
}

/* The same as k-means has them; of a token that is in several, the first. */
static specrt_status fill_clusters(cluster_build *b, specrt_error *err) {
    kmeans *k = &b->k;
    const cluster_members *m = &b->members;
    int32_t *of_row;
    TRY(sl_new(&k->clusters, (size_t)b->rows.n, sizeof *k->clusters, "the clusters", err));
    TRY(sl_new(&k->sizes, (size_t)k->n_clusters, sizeof *k->sizes, "the clusters", err));
    TRY(sl_new(&k->centroids, (size_t)k->n_clusters * (size_t)k->n_cols, sizeof *k->centroids,
               "the centroids", err));
    TRY(sl_new(&of_row, (size_t)b->head.n_rows, sizeof *of_row, "the clusters", err));
    for (int32_t c = k->n_clusters - 1; c >= 0; c--) {
        k->sizes[c] = m->offsets[c + 1] - m->offsets[c];
        for (int32_t i = m->offsets[c]; i < m->offsets[c + 1]; i++) of_row[m->rows[i]] = c;
    }
    for (int32_t i = 0; i < b->rows.n; i++) k->clusters[i] = of_row[b->rows.ids[i]];
    free(of_row);
    return SPECRT_STATUS_OK;
}

static specrt_status read_members(cluster_build *b, const ordered_head *o, specrt_error *err) {
    cluster_members *m = &b->members;
    int32_t n_clusters = (int32_t)o->n_clusters, n_each = (int32_t)(o->n_vocab / o->n_clusters);
    TRY(members_create(m, n_clusters, o->n_vocab, err));
    m->n = 0;
    for (int32_t c = 0; c < n_clusters; c++) {
        for (int32_t i = 0; i < n_each; i++)
            m->rows[m->n + i] = (int32_t)sl_ordered_head_id(o, (int64_t)c * n_each + i);
        m->n += order_ids(m->rows + m->n, n_each);
        m->offsets[c + 1] = m->n;
    }
    return SPECRT_STATUS_OK;
}

specrt_status members_read(cluster_build *b, specrt_error *err) {
    ordered_head o;
    sl_ordered_head_read(&b->source, &o);
    if (!sl_ordered_head_is(&o))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: no ordered head: expected \"use_ordered_embeddings\" in "
                                "config.json and tensors masked_embedding.*",
                                b->source.path);
    TRY(sl_ordered_head_check(&o, b->source.path, err));
    if (o.n_clusters > SPECRT_MAX_CLUSTERS || o.n_vocab != b->head.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: expected at most %d clusters and a row for each of %" PRId64
                                " tokens, found %" PRId64 " and %" PRId64,
                                b->source.path, SPECRT_MAX_CLUSTERS, o.n_vocab, o.n_clusters,
                                b->head.n_rows);
    b->k = (kmeans){.n_clusters = (int32_t)o.n_clusters, .n_cols = (int32_t)b->head.n_cols};
    TRY(read_members(b, &o, err));
    TRY(fill_clusters(b, err));
    specrt_dtype dtype;
    sl_st_dtype(o.centroids->dtype, &dtype);
    specrt_row_decode(dtype, o.centroids->data, o.n_clusters * b->head.n_cols, b->k.centroids);
    b->topk = (int32_t)o.topk;
    return SPECRT_STATUS_OK;
}
