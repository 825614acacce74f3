/* bench_kmeans.c : iterations of k-means over the rows of a head, beside the machine's peak of int8
 * products. Rows around 2,000 centres of Zipfian weight, of log-normal lengths, if no file brings them.
 *   bench_kmeans [THREADS [ROWS COLS ROWS.f32 CLUSTERS INITIAL.f32 OUT.f32]]
 * OUT.f32 receives the centroids, for peers_kmeans.py. */
#include <math.h>
#include <stdlib.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "machine.h"
#include "base/parallel.h"

#include "tools/cluster-build/vectors.h"

#include "tools/cluster-build/kmeans_impl.h"
#include "tools/cluster-build/rows.h"

enum { CENTRES = 2000, ITERATIONS = 10 };

/* A random centre; the i-th has a weight of about 1 / i. */
static size_t draw_centre(uint64_t *state) {
    double u = (double)(fixture_random(state) >> 11) / 9007199254740992.0;
    return (size_t)pow(CENTRES, u) - 1;
}

static float *make_rows(int32_t n, int32_t n_cols) {
    uint64_t state = 7;
    size_t dim = (size_t)n_cols;
    float *centres = malloc(CENTRES * dim * sizeof *centres);
    float *rows = malloc((size_t)n * dim * sizeof *rows);
    if (!centres || !rows) exit(1);
    for (size_t i = 0; i < CENTRES * dim; i++) centres[i] = fixture_normal(&state);
    for (int32_t i = 0; i < n; i++) {
        const float *centre = centres + draw_centre(&state) * dim;
        float length = expf(0.3f * fixture_normal(&state)), *row = rows + (size_t)i * dim;
        for (size_t j = 0; j < dim; j++)
            row[j] = length * (centre[j] + 1.2f * fixture_normal(&state));
    }
    free(centres);
    return rows;
}

static float *load(const char *path, size_t n) {
    float *x = malloc(n * sizeof *x);
    FILE *f = fopen(path, "rb");
    if (!x || !f || fread(x, sizeof *x, n, f) != n) {
        fprintf(stderr, "bench_kmeans: %s: expected %zu floats\n", path, n);
        exit(1);
    }
    fclose(f);
    return x;
}

static void dump(const char *path, const float *x, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(x, sizeof *x, n, f) != n || fclose(f)) exit(1);
}

int main(int argc, char **argv) {
    bool given = argc > 7;
    int threads = argc > 1 ? atoi(argv[1]) : sl_parallel_cores();
    int32_t n = given ? atoi(argv[2]) : 65536, n_cols = given ? atoi(argv[3]) : 256;
    kmeans_options o = {.n_clusters = given ? atoi(argv[5]) : 256,
                        .n_iterations = ITERATIONS,
                        .tolerance = -1,
                        .seed = 1,
                        .threads = threads};
    size_t n_centroids = (size_t)o.n_clusters * (size_t)n_cols;
    float *rows = given ? load(argv[4], (size_t)n * (size_t)n_cols) : make_rows(n, n_cols);
    specrt_head_desc head = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = n, .n_cols = n_cols};
    row_set set;
    kmeans k;
    double peak = machine_peak_int8(), start = sl_measure_seconds();
    if (rows_open(&head, NULL, threads, &set, NULL)) return 1;
    double opened = sl_measure_seconds() - start;
    if (given) o.initial = load(argv[6], n_centroids);
    if (kmeans_run(&set, &o, &k, NULL)) return 1;
    double ops = 2.0 * set.n * n_cols * o.n_clusters * k.n_iterations / k.seconds;
    printf("%d x %d, k %d, %d threads: rows read and rounded %.3f s, seeding %.3f s, %d iterations "
           "%.3f s, objective %.6f",
           set.n, n_cols, o.n_clusters, threads, opened, k.seconds_seeding, k.n_iterations,
           k.seconds, k.objective / set.n);
    printf(", %.0f G int8 op/s", ops / 1e9);
    if (peak > 0) printf(", %.0f%% of %.0f a core", 100 * ops / (peak * threads), peak / 1e9);
    putchar('\n');
    if (given) dump(argv[7], k.centroids, n_centroids);
    return 0;
}
