/* balance.c : clusters of bounded, or of equal, sizes, and copies of rows for the room that is left. Rows and
 * clusters are paired by descending similarity while the cluster has room; rows left over look again among
 * the clusters that have some. */
#include "kmeans_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/parallel.h"

enum { NEAREST = 16, BALANCE_ROUNDS = 5 };

typedef struct wish {
    float similarity;
    int32_t row, cluster;
} wish;

typedef struct balancing {
    kmeans_work *w;
    int32_t *left; /* [n_left] rows without a cluster, ascending */
    int32_t n_left;
    int32_t *given;        /* [n] the cluster of each row, -1: none yet */
    const int32_t *before; /* [n] where each row is already; NULL: nowhere */
    wish *wishes;          /* [n_left, n_wishes] */
    int32_t n_wishes;
    int32_t *open; /* [n_open] clusters with room: those in the panels */
    int32_t n_open;
    int32_t *sizes;   /* [n_clusters] so far */
    int32_t room;     /* rows that every cluster has room for */
    int32_t n_larger; /* clusters that have room for one more */
    sl_arrays owned;
} balancing;

static int by_similarity(const void *a, const void *b) {
    const wish *x = a, *y = b;
    int order = (x->similarity < y->similarity) - (x->similarity > y->similarity);
    if (!order) order = sl_order_i32(&x->row, &y->row);
    return order ? order : sl_order_i32(&x->cluster, &y->cluster);
}

static bool has_room(const balancing *b, int32_t cluster) {
    return b->sizes[cluster] < b->room || (b->sizes[cluster] == b->room && b->n_larger > 0);
}

/* The n_wishes best of similarities [n_open], best first; fewer end with cluster -1. */
static void wish_for(const balancing *b, int32_t row, const float *similarities, wish *out) {
    int32_t n = 0;
    for (int32_t c = 0; c < b->n_open; c++) {
        if (b->before && b->before[row] == b->open[c]) continue;
        if (n == b->n_wishes && similarities[c] <= out[n - 1].similarity) continue;
        int32_t at = n < b->n_wishes ? n++ : n - 1;
        for (; at > 0 && out[at - 1].similarity < similarities[c]; at--) out[at] = out[at - 1];
        out[at] = (wish){similarities[c], row, b->open[c]};
    }
    for (; n < b->n_wishes; n++) out[n] = (wish){-INFINITY, row, -1};
}

static void wish_block(void *arg, int64_t block, int worker) {
    const balancing *b = arg;
    kmeans_work *w = b->w;
    float *similarities = w->scratch + (size_t)worker * w->scratch_floats;
    int32_t begin = (int32_t)block * KMEANS_BLOCK;
    int32_t end = begin + KMEANS_BLOCK < b->n_left ? begin + KMEANS_BLOCK : b->n_left;
    for (int32_t i = begin, n; i < end; i += n) {
        int32_t row = b->left[i];
        for (n = 1; n < KMEANS_GROUP && i + n < end && b->left[i + n] == row + n; n++) continue;
        panels_similarities(&w->panels, &w->r->units, row, row + n, similarities);
        for (int32_t k = 0; k < n; k++)
            wish_for(b, row + k, similarities + (size_t)k * (size_t)panels_width(&w->panels),
                     b->wishes + (size_t)(i + k) * (size_t)b->n_wishes);
    }
}

/* Lays out the centroids of the clusters that have room. */
static bool open_clusters(balancing *b) {
    kmeans_work *w = b->w;
    size_t n_cols = (size_t)w->k->n_cols;
    unit_rows some;
    b->n_open = 0;
    for (int32_t c = 0; c < w->k->n_clusters; c++)
        if (has_room(b, c)) b->open[b->n_open++] = c;
    if (!unit_rows_create(&some, b->n_open, w->k->n_cols)) return false;
    for (int32_t c = 0; c < b->n_open; c++)
        unit_rows_set(&some, c, w->k->centroids + (size_t)b->open[c] * n_cols, 1);
    panels_fill(&w->panels, &some);
    unit_rows_free(&some);
    b->n_wishes = b->n_open < NEAREST ? b->n_open : NEAREST;
    return true;
}

static void grant(balancing *b) {
    size_t n = (size_t)b->n_left * (size_t)b->n_wishes;
    qsort(b->wishes, n, sizeof *b->wishes, by_similarity);
    for (size_t i = 0; i < n; i++) {
        const wish *best = &b->wishes[i];
        if (best->cluster < 0 || b->given[best->row] >= 0 || !has_room(b, best->cluster)) continue;
        b->given[best->row] = best->cluster;
        b->n_larger -= b->sizes[best->cluster]++ == b->room;
    }
    int32_t n_left = 0;
    for (int32_t i = 0; i < b->n_left; i++)
        if (b->given[b->left[i]] < 0) b->left[n_left++] = b->left[i];
    b->n_left = n_left;
}

/* Places the rows left. Every pass places at least one, for each has a wish that can be met, unless the only
 * room is where it is already. */
static bool place_left(balancing *b) {
    for (int32_t before = -1; b->n_left > 0 && b->n_left != before;) {
        before = b->n_left;
        if (!open_clusters(b)) return false;
        sl_parallel_for(b->w->options->threads, (b->n_left + KMEANS_BLOCK - 1) / KMEANS_BLOCK,
                        wish_block, b);
        grant(b);
    }
    return true;
}

/* One assignment of all rows. */
static bool assign(balancing *b) {
    const row_set *r = b->w->r;
    const kmeans_options *o = b->w->options;
    int32_t m = b->w->k->n_clusters;
    b->room = o->room > 0 ? o->room : (int32_t)fmin(o->largest * r->n / m, r->n);
    b->n_larger = b->room >= (r->n + m - 1) / m ? 0 : r->n % m;
    b->n_left = r->n;
    b->given = b->w->next;
    memset(b->sizes, 0, (size_t)m * sizeof *b->sizes);
    for (int32_t i = 0; i < r->n; i++) {
        b->left[i] = i;
        b->given[i] = -1;
    }
    return place_left(b);
}

static bool balancing_create(balancing *b, kmeans_work *w) {
    size_t n = (size_t)w->r->n, m = (size_t)w->k->n_clusters;
    *b = (balancing){.w = w};
    b->left = sl_array(&b->owned, n, sizeof *b->left);
    b->wishes = sl_array(&b->owned, n * (m < NEAREST ? m : NEAREST), sizeof *b->wishes);
    b->open = sl_array(&b->owned, m, sizeof *b->open);
    b->sizes = sl_array(&b->owned, m, sizeof *b->sizes);
    return !b->owned.failed;
}

specrt_status balance(kmeans_work *w, specrt_error *err) {
    balancing b;
    bool good = balancing_create(&b, w);
    for (int round = 0; round < BALANCE_ROUNDS && good; round++) {
        good = assign(&b);
        if (!good) break;
        kmeans_place(w);
        kmeans_repair(w);
    }
    sl_arrays_free(&b.owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory(err, "k-means");
}

/* ---- copies ----------------------------------------------------------------------------------- */

static int32_t room_left(const kmeans_work *w) {
    int64_t room = (int64_t)w->options->room * w->k->n_clusters - w->r->n;
    return room < 0 ? 0 : room < w->r->n ? (int32_t)room : w->r->n;
}

/* Each of the rows worth most gets the nearest other cluster with room. */
static bool copy_rows(balancing *b) {
    kmeans *k = b->w->k;
    int32_t n = b->w->r->n;
    b->n_left = room_left(b->w);
    b->room = b->w->options->room;
    b->given = b->w->next;
    b->before = k->clusters;
    memcpy(b->sizes, k->sizes, (size_t)k->n_clusters * sizeof *b->sizes);
    memcpy(b->left, b->w->options->worth, (size_t)b->n_left * sizeof *b->left);
    qsort(b->left, (size_t)b->n_left, sizeof *b->left, sl_order_i32);
    for (int32_t i = 0; i < n; i++) b->given[i] = -1;
    k->copies = malloc(((size_t)b->n_left + 1) * sizeof *k->copies);
    if (!k->copies || !place_left(b)) return false;
    for (int32_t i = 0; i < n; i++)
        if (b->given[i] >= 0) k->copies[k->n_copies++] = (struct kmeans_copy){i, b->given[i]};
    memcpy(k->sizes, b->sizes, (size_t)k->n_clusters * sizeof *k->sizes);
    return true;
}

specrt_status spread(kmeans_work *w, specrt_error *err) {
    balancing b;
    bool good = balancing_create(&b, w) && copy_rows(&b);
    sl_arrays_free(&b.owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory(err, "k-means");
}
