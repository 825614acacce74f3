/* kmeans.c : Lloyd's iterations over unit rows: assignment, sums, repair of empty clusters.
 *
 * A row's similarities to all centroids come from int8 products. Those within rounding noise of the
 * best are computed again in f32, so the nearest centroid is found as if all had been. Sums are
 * whole numbers: adding and taking away rows that moved leaves what summing all would. */
#include "kmeans_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "io.h"
#include "parallel.h"

#define FIXED_ONE 68719476736.0f /* 2^36: 2^24 unit rows stay below 2^63 */

double kmeans_random(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t key[2] = {a, b};
    return (double)(specrt_hash64(key, sizeof key, seed) >> 11) / 9007199254740992.0;
}

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

/* --- sums --- */

typedef float floats __attribute__((vector_size(32)));
typedef int64_t wholes __attribute__((vector_size(64)));

/* sums += sign * x * inverse, in steps of 2^-36. */
CLONES static void add_fixed(int64_t *sums, const float *x, float inverse, int sign, int32_t n) {
    int32_t j = 0;
    for (; j + 8 <= n; j += 8) {
        floats values;
        wholes total;
        memcpy(&values, x + j, sizeof values);
        memcpy(&total, sums + j, sizeof total);
        values = values * inverse * FIXED_ONE;
        total += sign * __builtin_convertvector(values, wholes);
        memcpy(sums + j, &total, sizeof total);
    }
    for (; j < n; j++) sums[j] += sign * (int64_t)(x[j] * inverse * FIXED_ONE);
}

/* Lists the rows that move by old and by new cluster (-1: none). @return how many. */
static int32_t list_moves(kmeans_work *w) {
    int32_t m = w->k->n_clusters, n_moved = 0;
    for (int list = 0; list < 2; list++) {
        int32_t *starts = w->starts + list * (m + 1), *order = w->order + list * w->r->n;
        const int32_t *cluster = list ? w->next : w->k->clusters;
        memset(starts, 0, ((size_t)m + 1) * sizeof *starts);
        for (int32_t i = 0; i < w->r->n; i++)
            if (w->next[i] != w->k->clusters[i] && cluster[i] >= 0) starts[cluster[i] + 1]++;
        for (int32_t c = 0; c < m; c++) starts[c + 1] += starts[c];
        n_moved = starts[m];
        for (int32_t i = 0; i < w->r->n; i++)
            if (w->next[i] != w->k->clusters[i] && cluster[i] >= 0) order[starts[cluster[i]]++] = i;
        for (int32_t c = m; c > 0; c--) starts[c] = starts[c - 1];
        starts[0] = 0;
    }
    return n_moved;
}

static void sum_cluster(void *arg, int64_t cluster, int worker) {
    kmeans_work *w = arg;
    int32_t m = w->k->n_clusters, n_cols = w->k->n_cols, c = (int32_t)cluster;
    int64_t *sums = w->sums + (size_t)c * (size_t)n_cols;
    float *scratch = w->scratch + (size_t)worker * w->scratch_floats;
    float *centroid = w->k->centroids + (size_t)c * (size_t)n_cols;
    double square = 0;
    for (int list = 0; list < 2; list++) {
        const int32_t *starts = w->starts + list * (m + 1), *order = w->order + list * w->r->n;
        for (int32_t i = starts[c]; i < starts[c + 1]; i++) {
            const float *x = rows_f32(w->r, order[i], scratch);
            add_fixed(sums, x, w->r->inverses[order[i]], list ? 1 : -1, n_cols);
        }
    }
    for (int32_t j = 0; j < n_cols; j++) square += (double)sums[j] * (double)sums[j];
    for (int32_t j = 0; j < n_cols && square > 0; j++)
        centroid[j] = (float)((double)sums[j] / sqrt(square));
}

int32_t kmeans_place(kmeans_work *w) {
    int32_t n_moved = list_moves(w);
    parallel_for(w->options->threads, w->k->n_clusters, sum_cluster, w);
    memcpy(w->k->clusters, w->next, (size_t)w->r->n * sizeof *w->next);
    memset(w->k->sizes, 0, (size_t)w->k->n_clusters * sizeof *w->k->sizes);
    for (int32_t i = 0; i < w->r->n; i++) w->k->sizes[w->next[i]]++;
    return n_moved;
}

/* Sum over clusters of their sum's length: of all rows' similarity to the centroid that they make. */
static double own_objective(const kmeans_work *w) {
    int32_t n_cols = w->k->n_cols;
    double total = 0;
    for (int32_t c = 0; c < w->k->n_clusters; c++) {
        double square = 0;
        for (int32_t j = 0; j < n_cols; j++) {
            double x = (double)w->sums[(size_t)c * (size_t)n_cols + (size_t)j];
            square += x * x;
        }
        total += sqrt(square);
    }
    return total / (double)FIXED_ONE;
}

/* Of all rows' similarity to `given` centroids, from the sums of those that they were given to. */
static double objective(const kmeans_work *w, const float *given) {
    size_t n = (size_t)w->k->n_clusters * (size_t)w->k->n_cols;
    double total = 0;
    for (size_t j = 0; j < n; j++) total += (double)w->sums[j] * (double)given[j];
    return total / (double)FIXED_ONE;
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

/* An empty cluster takes the worst row of the largest. The objective can only gain. */
static void repair(kmeans_work *w) {
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

static specrt_status no_memory(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "k-means: out of memory");
}

static bool start(kmeans_work *w) {
    kmeans *k = w->k;
    size_t n = (size_t)w->r->n, m = (size_t)k->n_clusters, n_cols = (size_t)k->n_cols;
    k->clusters = malloc(n * sizeof *k->clusters);
    k->sizes = calloc(m, sizeof *k->sizes);
    k->centroids = malloc(m * n_cols * sizeof *k->centroids);
    k->objectives = malloc((size_t)(w->options->n_iterations + 1) * sizeof *k->objectives);
    w->nearest = malloc(n * sizeof *w->nearest);
    w->sums = calloc(m * n_cols, sizeof *w->sums);
    w->next = malloc(n * sizeof *w->next);
    w->order = malloc(2 * n * sizeof *w->order);
    w->starts = malloc(2 * (m + 1) * sizeof *w->starts);
    if (!k->clusters || !k->sizes || !k->centroids || !k->objectives || !w->nearest || !w->sums ||
        !w->next || !w->order || !w->starts)
        return false;
    memset(k->clusters, 0xff, n * sizeof *k->clusters);
    if (!unit_rows_create(&w->units, k->n_clusters, k->n_cols) ||
        !panels_create(&w->panels, k->n_clusters, k->n_cols, w->kernels))
        return false;
    size_t width = (size_t)panels_width(&w->panels);
    w->scratch_floats = (KMEANS_GROUP + 1) * width + n_cols;
    w->scratch = malloc((size_t)w->options->threads * w->scratch_floats * sizeof *w->scratch);
    return w->scratch != NULL;
}

static void finish(kmeans_work *w) {
    unit_rows_free(&w->units);
    panels_free(&w->panels);
    free(w->nearest);
    free(w->sums);
    free(w->next);
    free(w->order);
    free(w->starts);
    free(w->scratch);
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
    double started = cli_seconds();
    if (o->initial)
        memcpy(k->centroids, o->initial,
               (size_t)k->n_clusters * (size_t)k->n_cols * sizeof *k->centroids);
    else
        TRY(seed_centroids(w->r, o, w->kernels, k->centroids, err));
    normalise(k->centroids, k->n_clusters, k->n_cols);
    k->seconds_seeding = cli_seconds() - started;
    return SPECRT_STATUS_OK;
}

static specrt_status iterate(kmeans_work *w, specrt_error *err) {
    const kmeans_options *o = w->options;
    kmeans *k = w->k;
    int32_t n_tasks = (w->r->n + KMEANS_BLOCK - 1) / KMEANS_BLOCK;
    size_t n = (size_t)k->n_clusters * (size_t)k->n_cols;
    float *before = malloc(n * sizeof *before);
    if (!before) return no_memory(err);
    for (bool more = true; more && k->n_iterations < o->n_iterations;) {
        int32_t i = k->n_iterations++;
        kmeans_round(w);
        parallel_for(o->threads, n_tasks, assign_block, w);
        memcpy(before, k->centroids, n * sizeof *before);
        int32_t moved = kmeans_place(w);
        k->objectives[i] = objective(w, before);
        repair(w);
        if (o->each) o->each(o->user, i, k->objectives[i], moved);
        more = moved > 0 && (i == 0 || k->objectives[i] - k->objectives[i - 1] >=
                                           o->tolerance * k->objectives[i]);
    }
    free(before);
    k->objective = own_objective(w);
    return SPECRT_STATUS_OK;
}

static specrt_status run(kmeans_work *w, specrt_error *err) {
    kmeans *k = w->k;
    if (!start(w)) return no_memory(err);
    TRY(seed(w, err));
    double started = cli_seconds();
    TRY(iterate(w, err));
    k->objective_free = k->objective;
    if (w->options->balanced) {
        TRY(balance(w, err));
        k->objective = own_objective(w);
    }
    k->seconds = cli_seconds() - started;
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
    *k = (kmeans){0};
}
