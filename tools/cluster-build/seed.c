/* seed.c : the first centroids.
 *
 * k-means|| (Bahmani et al. 2012): a few rounds each take many rows at once, likelier the farther they
 * are from those taken before; k-means++ (Arthur and Vassilvitskii 2007) then chooses among them,
 * weighted by how many rows each stands for. A row's luck depends on its number alone, and distances
 * add up as whole numbers, so threads do not matter. */
#include "kmeans_impl.h"

#include <math.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { SEED_ROUNDS = 5, MOST_PER_ROUND = 2048, SEED_BATCH = 1024 };
enum { LUCK_FIRST, LUCK_ROUND, LUCK_CHOICE = LUCK_ROUND + SEED_ROUNDS, LUCK_FILL };

#define DISTANCE_ONE 1073741824.0f /* 2^30 */

typedef struct seeding {
    const row_set *r;
    const kmeans_options *options;
    int32_t n_taken, n_before; /* candidates: all, and before this round */
    int32_t *taken;            /* [n_taken] rows, ascending within a round */
    int32_t *nearest;          /* [r->n] candidate */
    int32_t *distances;        /* [r->n] 1 - similarity to it, in steps of 2^-30 */
    panels panels;             /* of the candidates of this round */
    float *scratch;            /* [threads, scratch_floats] */
    size_t scratch_floats;
    float *points;  /* [n_taken, n_cols] of length 1 */
    double *gaps;   /* [n_taken] weighted distance to the nearest chosen */
    int32_t chosen; /* the last */
} seeding;

static int32_t per_round(int32_t n_clusters) {
    int32_t n = n_clusters < MOST_PER_ROUND / 2 ? 2 * n_clusters : MOST_PER_ROUND;
    return n > n_clusters / 2 ? n : n_clusters / 2;
}

/* --- rounds --- */

static void approach_block(void *arg, int64_t block, int worker) {
    seeding *s = arg;
    int32_t begin = (int32_t)block * KMEANS_BLOCK, width = panels_width(&s->panels);
    int32_t end = begin + KMEANS_BLOCK < s->r->n ? begin + KMEANS_BLOCK : s->r->n;
    float *similarities = s->scratch + (size_t)worker * s->scratch_floats;
    for (int32_t i = begin; i < end; i += KMEANS_GROUP) {
        int32_t stop = i + KMEANS_GROUP < end ? i + KMEANS_GROUP : end;
        panels_similarities(&s->panels, &s->r->units, i, stop, similarities);
        for (int32_t row = i; row < stop; row++) {
            const float *x = similarities + (size_t)(row - i) * (size_t)width;
            int32_t best = 0;
            for (int32_t c = 1; c < s->panels.n; c++)
                if (x[c] > x[best]) best = c;
            float distance = fminf(fmaxf(1 - x[best], 0), 1.99f);
            if ((int32_t)(distance * DISTANCE_ONE) >= s->distances[row]) continue;
            s->distances[row] = (int32_t)(distance * DISTANCE_ONE);
            s->nearest[row] = s->n_before + best;
        }
    }
}

/* Distances to the candidates of this round too, a batch of them at a time. */
static specrt_status approach(seeding *s, const dot_kernels *kernels, specrt_error *err) {
    int32_t n_cols = s->r->units.n_cols, n_tasks = (s->r->n + KMEANS_BLOCK - 1) / KMEANS_BLOCK;
    specrt_status status = SPECRT_STATUS_OK;
    while (s->n_before < s->n_taken && !status) {
        int32_t n = s->n_taken - s->n_before < SEED_BATCH ? s->n_taken - s->n_before : SEED_BATCH;
        unit_rows batch;
        bool good =
            unit_rows_create(&batch, n, n_cols) && panels_create(&s->panels, n, n_cols, kernels);
        for (int32_t c = 0; c < n && good; c++) {
            int32_t row = s->taken[s->n_before + c];
            float *x = s->scratch;
            rows_read(s->r, row, x);
            unit_rows_set(&batch, c, x, s->r->inverses[row]);
        }
        if (good) {
            panels_fill(&s->panels, &batch);
            sl_parallel_for(s->options->threads, n_tasks, approach_block, s);
        } else {
            status = sl_error_no_memory(err, "k-means");
        }
        s->n_before += n;
        panels_free(&s->panels);
        unit_rows_free(&batch);
    }
    return status;
}

/* Takes about `wanted` rows, each with a chance in proportion to its distance. */
static void take(seeding *s, int round, int32_t wanted, int32_t capacity) {
    int64_t total = 0;
    for (int32_t i = 0; i < s->r->n; i++) total += s->distances[i];
    for (int32_t i = 0; i < s->r->n && s->n_taken < capacity; i++) {
        double chance = total > 0 ? (double)wanted * s->distances[i] / (double)total : 0;
        if (kmeans_random(s->options->seed, (uint64_t)(LUCK_ROUND + round), (uint64_t)i) < chance)
            s->taken[s->n_taken++] = i;
    }
}

/* Where chance took too few, the first rows that are left in an order of chance. */
static void fill(seeding *s, int32_t least) {
    for (uint64_t draw = 0; s->n_taken < least; draw++) {
        double u = kmeans_random(s->options->seed, LUCK_FILL, draw);
        int32_t i = (int32_t)(u * s->r->n);
        while (s->distances[i] < 0) i = (i + 1) % s->r->n;
        s->distances[i] = -1;
        s->taken[s->n_taken++] = i;
    }
}

static specrt_status take_all(seeding *s, const dot_kernels *kernels, int32_t capacity,
                              specrt_error *err) {
    double first = kmeans_random(s->options->seed, LUCK_FIRST, 0);
    for (int32_t i = 0; i < s->r->n; i++) s->distances[i] = INT32_MAX;
    s->taken[s->n_taken++] = (int32_t)(first * s->r->n);
    TRY(approach(s, kernels, err));
    for (int round = 0; round < SEED_ROUNDS; round++) {
        take(s, round, per_round(s->options->n_clusters), capacity);
        TRY(approach(s, kernels, err));
    }
    if (s->n_taken >= s->options->n_clusters) return SPECRT_STATUS_OK;
    for (int32_t c = 0; c < s->n_taken; c++) s->distances[s->taken[c]] = -1;
    fill(s, s->options->n_clusters);
    for (int32_t c = s->n_before; c < s->n_taken; c++) s->nearest[s->taken[c]] = c;
    return SPECRT_STATUS_OK;
}

/* --- k-means++ over the candidates --- */

static void closer_block(void *arg, int64_t block, int worker) {
    seeding *s = arg;
    int32_t n_cols = s->r->units.n_cols, begin = (int32_t)block * SEED_BATCH;
    int32_t end = begin + SEED_BATCH < s->n_taken ? begin + SEED_BATCH : s->n_taken;
    const float *centre = s->points + (size_t)s->chosen * (size_t)n_cols;
    (void)worker;
    for (int32_t c = begin; c < end; c++) {
        float dot = dot_f32(s->points + (size_t)c * (size_t)n_cols, centre, n_cols);
        double gap = 1 - (double)dot;
        if (c == s->chosen || gap < 0) gap = 0;
        if (gap < s->gaps[c]) s->gaps[c] = gap;
    }
}

/* The next centre: a candidate by weight and distance to those chosen; if all are at 0, any. */
static int32_t draw(const seeding *s, const int32_t *weights, int32_t turn) {
    double total = 0, sum = 0;
    for (int32_t c = 0; c < s->n_taken; c++) total += weights[c] * s->gaps[c];
    double at = total * kmeans_random(s->options->seed, LUCK_CHOICE, (uint64_t)turn);
    int32_t last = -1;
    for (int32_t c = 0; c < s->n_taken; c++) {
        if (weights[c] * s->gaps[c] <= 0) continue;
        last = c;
        sum += weights[c] * s->gaps[c];
        if (sum > at) return c;
    }
    for (int32_t c = 0; c < s->n_taken && last < 0; c++)
        if (s->gaps[c] > 0) last = c;
    return last >= 0 ? last : turn % s->n_taken;
}

static void choose_centres(seeding *s, const int32_t *weights, float *out) {
    int32_t n_cols = s->r->units.n_cols, n_tasks = (s->n_taken + SEED_BATCH - 1) / SEED_BATCH;
    for (int32_t c = 0; c < s->n_taken; c++) s->gaps[c] = 2;
    for (int32_t turn = 0; turn < s->options->n_clusters; turn++) {
        s->chosen = draw(s, weights, turn);
        memcpy(out + (size_t)turn * (size_t)n_cols, s->points + (size_t)s->chosen * (size_t)n_cols,
               (size_t)n_cols * sizeof *out);
        sl_parallel_for(s->options->threads, n_tasks, closer_block, s);
    }
}

static specrt_status reduce(seeding *s, float *out, specrt_error *err) {
    size_t n = (size_t)s->n_taken, n_cols = (size_t)s->r->units.n_cols;
    sl_arrays owned = {0};
    int32_t *weights = sl_array(&owned, n, sizeof *weights);
    s->points = sl_array(&owned, n * n_cols, sizeof *s->points);
    s->gaps = sl_array(&owned, n, sizeof *s->gaps);
    bool good = !owned.failed;
    for (int32_t c = 0; c < s->n_taken && good; c++) {
        float *x = s->points + (size_t)c * n_cols;
        rows_read(s->r, s->taken[c], x);
        for (size_t j = 0; j < n_cols; j++) x[j] *= s->r->inverses[s->taken[c]];
    }
    for (int32_t i = 0; i < s->r->n && good; i++) weights[s->nearest[i]]++;
    if (good) choose_centres(s, weights, out);
    sl_arrays_free(&owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory(err, "k-means");
}

specrt_status seed_centroids(const row_set *r, const kmeans_options *options,
                             const dot_kernels *kernels, float *out, specrt_error *err) {
    seeding s = {.r = r, .options = options};
    size_t n = (size_t)r->n, width = SEED_BATCH + DOT_MAX_WIDTH, n_cols = (size_t)r->units.n_cols;
    int64_t capacity = 1 + 2 * SEED_ROUNDS * (int64_t)per_round(options->n_clusters);
    if (capacity > r->n) capacity = r->n;
    s.scratch_floats = KMEANS_GROUP * width > n_cols ? KMEANS_GROUP * width : n_cols;
    sl_arrays owned = {0};
    s.taken = sl_array(&owned, n, sizeof *s.taken);
    s.nearest = sl_array(&owned, n, sizeof *s.nearest);
    s.distances = sl_array(&owned, n, sizeof *s.distances);
    s.scratch = sl_array(&owned, (size_t)options->threads * s.scratch_floats, sizeof *s.scratch);
    specrt_status status = owned.failed ? sl_error_no_memory(err, "k-means") : SPECRT_STATUS_OK;
    if (!status) status = take_all(&s, kernels, (int32_t)capacity, err);
    if (!status) status = reduce(&s, out, err);
    sl_arrays_free(&owned);
    return status;
}
