/* kmeans.c : Lloyd's iterations over unit rows: assignment, sums, repair of empty clusters.
 *
 * A row's similarities to all centroids come from int8 products. Those within rounding noise of the
 * best are computed again in f32, so the nearest centroid is found as if all had been. Sums are
 * whole numbers: adding and taking away rows that moved leaves what summing all would. */
#include "specrt_tools.h"
#include "kmeans_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/parallel.h"

/* --- assignment --- */

CLONES static float greatest(const float *x, int32_t n) {
    float best[16];
    memcpy(best, x, sizeof best);
    for (int32_t i = 16; i < n; i += 16)
        for (int k = 0; k < 16; k++) best[k] = best[k] > x[i + k] ? best[k] : x[i + k];
    for (int k = 1; k < 16; k++) best[0] = best[0] > best[k] ? best[0] : best[k];
    return best[0];
}

/* Indices of x [n] that are at least `least`, ascending. */
CLONES static int32_t at_least(const float *x, int32_t n, float least, int32_t *out) {
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i += 16) {
        int any = 0;
        for (int k = 0; k < 16; k++) any |= x[i + k] >= least;
        for (int32_t k = i; any && k < i + 16; k++)
            if (x[k] >= least) out[n_out++] = k;
    }
    return n_out;
}

/* Of candidates [n] the one nearest to row i; ties go to the lower. */
static int32_t nearest_exactly(const kmeans_work *w, int32_t i, const int32_t *candidates,
                               int32_t n, float *scratch) {
    int32_t n_cols = w->k->n_cols, best = candidates[0];
    const float *x = rows_f32(w->r, i, scratch);
    float most = -INFINITY;
    for (int32_t c = 0; c < n; c++) {
        float dot = dot_f32(x, w->k->centroids + (size_t)candidates[c] * (size_t)n_cols, n_cols);
        if (!(dot > most)) continue;
        most = dot;
        best = candidates[c];
    }
    return best;
}

static void assign_group(kmeans_work *w, int32_t begin, int32_t end, float *scratch) {
    int32_t width = panels_width(&w->panels);
    float *similarities = scratch, *x = scratch + (size_t)KMEANS_GROUP * (size_t)width;
    int32_t *candidates = (int32_t *)(void *)(x + w->k->n_cols);
    panels_similarities(&w->panels, &w->r->units, begin, end, similarities);
    for (int32_t i = begin; i < end; i++, similarities += width) {
        float best = greatest(similarities, width);
        float least = best - panels_noise(&w->panels, &w->r->units, i);
        int32_t n = at_least(similarities, width, least, candidates);
        w->next[i] = n > 1 ? nearest_exactly(w, i, candidates, n, x) : candidates[0];
        w->nearest[i] = best;
    }
}

static void assign_block(void *arg, int64_t block, int worker) {
    kmeans_work *w = arg;
    int32_t begin = (int32_t)block * KMEANS_BLOCK, n = w->r->n;
    int32_t end = begin + KMEANS_BLOCK < n ? begin + KMEANS_BLOCK : n;
    for (int32_t i = begin; i < end; i += KMEANS_GROUP)
        assign_group(w, i, i + KMEANS_GROUP < end ? i + KMEANS_GROUP : end,
                     w->scratch + (size_t)worker * w->scratch_floats);
}

void kmeans_round(kmeans_work *w) {
    for (int32_t c = 0; c < w->k->n_clusters; c++)
        unit_rows_set(&w->units, c, w->k->centroids + (size_t)c * (size_t)w->k->n_cols, 1);
    panels_fill(&w->panels, &w->units);
}

/* --- empty clusters --- */

/* The row that suits its cluster `donor` least, but for those that go already. */
static int32_t worst_row(const kmeans_work *w, int32_t donor) {
    int32_t worst = -1;
    for (int32_t i = 0; i < w->r->n; i++)
        if (w->k->clusters[i] == donor && w->next[i] == donor &&
            (worst < 0 || w->nearest[i] < w->nearest[worst]))
            worst = i;
    return worst;
}

/* The objective can only gain. */
void kmeans_repair(kmeans_work *w) {
    int32_t *sizes = w->k->sizes, m = w->k->n_clusters, n_empty = 0;
    for (int32_t c = 0; c < m; c++) {
        int32_t donor = 0;
        if (sizes[c] > 0) continue;
        for (int32_t d = 1; d < m; d++)
            if (sizes[d] > sizes[donor]) donor = d;
        w->next[worst_row(w, donor)] = c;
        sizes[donor]--;
        sizes[c]++;
        n_empty++;
    }
    w->k->n_repaired += n_empty;
    if (n_empty > 0) kmeans_place(w);
}

/* --- the run --- */

static bool start(kmeans_work *w) {
    kmeans *k = w->k;
    size_t n = (size_t)w->r->n, m = (size_t)k->n_clusters, n_cols = (size_t)k->n_cols;
    k->clusters = malloc(n * sizeof *k->clusters);
    k->sizes = calloc(m, sizeof *k->sizes);
    k->centroids = malloc(m * n_cols * sizeof *k->centroids);
    k->objectives = malloc((size_t)(w->options->n_iterations + 1) * sizeof *k->objectives);
    w->nearest = sl_array(&w->owned, n, sizeof *w->nearest);
    w->sums = sl_array(&w->owned, m * n_cols, sizeof *w->sums);
    w->next = sl_array(&w->owned, n, sizeof *w->next);
    w->order = sl_array(&w->owned, 2 * n, sizeof *w->order);
    w->starts = sl_array(&w->owned, 2 * (m + 1), sizeof *w->starts);
    if (!k->clusters || !k->sizes || !k->centroids || !k->objectives || w->owned.failed)
        return false;
    memset(k->clusters, 0xff, n * sizeof *k->clusters);
    if (!unit_rows_create(&w->units, k->n_clusters, k->n_cols) ||
        !panels_create(&w->panels, k->n_clusters, k->n_cols, w->kernels))
        return false;
    size_t width = (size_t)panels_width(&w->panels);
    w->scratch_floats = (KMEANS_GROUP + 1) * width + n_cols;
    size_t n_floats = (size_t)w->options->threads * w->scratch_floats;
    w->scratch = sl_array(&w->owned, n_floats, sizeof *w->scratch);
    return w->scratch != NULL;
}

static void finish(kmeans_work *w) {
    unit_rows_free(&w->units);
    panels_free(&w->panels);
    sl_arrays_free(&w->owned);
}

static void normalise(float *centroids, int32_t n, int32_t n_cols) {
    for (int32_t c = 0; c < n; c++, centroids += n_cols) {
        double square = 0;
        for (int32_t j = 0; j < n_cols; j++) square += (double)centroids[j] * centroids[j];
        for (int32_t j = 0; j < n_cols && square > 0; j++)
            centroids[j] = (float)(centroids[j] / sqrt(square));
    }
}

static specrt_status seed(kmeans_work *w, specrt_error *err) {
    const kmeans_options *o = w->options;
    kmeans *k = w->k;
    double started = sl_measure_seconds();
    if (o->initial)
        memcpy(k->centroids, o->initial,
               (size_t)k->n_clusters * (size_t)k->n_cols * sizeof *k->centroids);
    else
        TRY(seed_centroids(w->r, o, w->kernels, k->centroids, err));
    normalise(k->centroids, k->n_clusters, k->n_cols);
    k->seconds_seeding = sl_measure_seconds() - started;
    return SPECRT_STATUS_OK;
}

static specrt_status iterate(kmeans_work *w, specrt_error *err) {
    const kmeans_options *o = w->options;
    kmeans *k = w->k;
    int32_t n_tasks = (w->r->n + KMEANS_BLOCK - 1) / KMEANS_BLOCK;
    size_t n = (size_t)k->n_clusters * (size_t)k->n_cols;
    float *before = malloc(n * sizeof *before);
    if (!before) return sl_error_no_memory(err, "k-means");
    for (bool more = true; more && k->n_iterations < o->n_iterations;) {
        int32_t i = k->n_iterations++;
        kmeans_round(w);
        sl_parallel_for(o->threads, n_tasks, assign_block, w);
        memcpy(before, k->centroids, n * sizeof *before);
        int32_t moved = kmeans_place(w);
        k->objectives[i] = kmeans_objective(w, before);
        kmeans_repair(w);
        if (o->each) o->each(o->user, i, k->objectives[i], moved);
        more = moved > 0 && (i == 0 || k->objectives[i] - k->objectives[i - 1] >=
                                           o->tolerance * k->objectives[i]);
    }
    free(before);
    k->objective = kmeans_own_objective(w);
    return SPECRT_STATUS_OK;
}

void kmeans_size_range(const kmeans *k, int32_t *least, int32_t *most) {
    *least = *most = k->sizes[0];
    for (int32_t c = 1; c < k->n_clusters; c++) {
        if (k->sizes[c] < *least) *least = k->sizes[c];
        if (k->sizes[c] > *most) *most = k->sizes[c];
    }
}

/* Whether a cluster has more rows than it may. */
static bool is_too_large(const kmeans_work *w) {
    int32_t least, most;
    kmeans_size_range(w->k, &least, &most);
    if (w->options->room > 0) return most > w->options->room;
    return w->options->largest > 0 &&
           (double)most * w->k->n_clusters > w->options->largest * w->r->n;
}

static specrt_status run(kmeans_work *w, specrt_error *err) {
    kmeans *k = w->k;
    if (!start(w)) return sl_error_no_memory(err, "k-means");
    TRY(seed(w, err));
    double started = sl_measure_seconds();
    TRY(iterate(w, err));
    k->objective_free = k->objective;
    if (is_too_large(w)) {
        TRY(balance(w, err));
        k->objective = kmeans_own_objective(w);
    }
    if (w->options->worth) TRY(spread(w, err));
    k->seconds = sl_measure_seconds() - started;
    return SPECRT_STATUS_OK;
}

specrt_status kmeans_run(const row_set *r, const kmeans_options *options, kmeans *out,
                         specrt_error *err) {
    kmeans_work w = {.r = r, .options = options, .k = out, .kernels = dot_choose(options->kernels)};
    *out = (kmeans){.n_clusters = options->n_clusters, .n_cols = (int32_t)r->head.n_cols};
    if (options->n_clusters < 1 || options->n_clusters > r->n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "clusters: expected 1 to %" PRId32
                                ", the rows there are to cluster, found %" PRId32,
                                r->n, options->n_clusters);
    specrt_status status = run(&w, err);
    finish(&w);
    if (status) kmeans_free(out);
    return status;
}

void kmeans_free(kmeans *k) {
    free(k->objectives);
    free(k->clusters);
    free(k->sizes);
    free(k->centroids);
    free(k->copies);
    *k = (kmeans){0};
}
