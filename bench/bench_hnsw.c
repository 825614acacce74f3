/* bench_hnsw.c : building an index and searching it on one thread, beside the honest alternative, a scan of
 * all rows as int8 whose best are scored exactly. Rows around 1,000 centres, bent along 48 directions, of
 * log-normal lengths (deviation 0.3); queries from the same mixture. Best of three, taken in turns.
 *   bench_hnsw [ROWS COLS [ROWS.f32 QUERIES.f32]]   the files are written for peers_hnsw.py */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <math.h>
#include <stdlib.h>
#include "../tests/fixture.h"
#include "machine.h"

#include "base/measure.h"
#include "base/parallel.h"
#include "tools/hnsw-build/index.h"
#include "tools/hnsw-build/recall.h"

enum { QUERIES = 500, CENTRES = 1000, RANK = 48, REPEATS = 3, RERANKED = 32, STEPS = 6 };
static const int32_t efs[STEPS] = {16, 32, 64, 128, 256, 512};

typedef struct scene {
    int32_t n, dim;
    float *rows, *centres, *directions;
    hnsw_recall_set set;
    specrt_head_desc desc;
    specrt_head *head;
    int32_t *ids, n_ids, n_left_out[3];
} scene;

static float *normals(size_t n, uint64_t *state) {
    float *x = (float *)malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++) x[i] = fixture_normal(state);
    return x;
}

/* A point of the mixture: its three parts are about as long. */
static void draw(const scene *s, uint64_t *state, float *x) {
    size_t dim = (size_t)s->dim, centre = (size_t)(fixture_random(state) >> 33) % CENTRES;
    for (size_t j = 0; j < dim; j++) x[j] = s->centres[centre * dim + j] + fixture_normal(state);
    for (size_t r = 0; r < RANK; r++) {
        float along = fixture_normal(state) / sqrtf(RANK);
        for (size_t j = 0; j < dim; j++) x[j] += along * s->directions[r * dim + j];
    }
}

static void make_scene(scene *s) {
    uint64_t state = 7;
    size_t dim = (size_t)s->dim;
    s->centres = normals(CENTRES * dim, &state);
    s->directions = normals(RANK * dim, &state);
    s->rows = (float *)malloc((size_t)s->n * dim * sizeof *s->rows);
    if (hnsw_recall_create(&s->set, s->dim, QUERIES, NULL) || !s->rows) exit(1);
    for (int32_t i = 0; i < s->n; i++) {
        float *row = s->rows + (size_t)i * dim, length = expf(0.3f * fixture_normal(&state));
        draw(s, &state, row);
        for (size_t j = 0; j < dim; j++) row[j] *= length;
    }
    for (int32_t q = 0; q < QUERIES; q++) draw(s, &state, s->set.queries + (size_t)q * dim);
    s->set.n = QUERIES;
    s->desc = (specrt_head_desc){
        .rows = s->rows, .dtype = SPECRT_DTYPE_F32, .n_rows = s->n, .n_cols = s->dim};
    if (specrt_head_bind(NULL, &s->desc, NULL, &s->head, NULL) ||
        index_rows(&s->desc, NULL, &s->ids, &s->n_ids, s->n_left_out, NULL) ||
        hnsw_recall_truth(&s->set, s->head, &s->desc, s->ids, s->n_ids, NULL))
        exit(1);
}

static void dump(const char *path, const float *x, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(x, sizeof *x, n, f) != n || fclose(f)) exit(1);
}

/* As an application would open it. */
static void open_section(const scene *s, const hnsw_index *built, specrt_hnsw *out) {
    size_t n_section, n;
    void *section = index_bytes(built, &s->desc, &n_section);
    fixture_section part = {"hnsw", 1, 0, section, n_section, n_section};
    specrt_bundle *bundle;
    specrt_error err;
    uint8_t *bytes = fixture_bundle(&part, 1, &n);
    if (specrt_bundle_open_memory(bytes, n, "b", NULL, &bundle, &err) ||
        specrt_bundle_hnsw(bundle, s->head, out, &err)) {
        puts(err.msg);
        exit(1);
    }
}

static void keep_best(hnsw_recall_step *best, const hnsw_recall_step *step) {
    if (step->queries_per_second > best->queries_per_second) *best = *step;
}

static void print_step(const char *name, const hnsw_recall_step *step) {
    printf("%-6s ef %4d   recall@10 %.4f   %8.0f queries/s\n", name, (int)step->ef, step->recall,
           step->queries_per_second);
    fflush(stdout);
}

static void bench_searches(const scene *s, const specrt_hnsw *index, const char *name) {
    hnsw_recall_step best[STEPS] = {{0, 0, 0}}, step;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < STEPS; i++) {
            if (hnsw_recall_measure(&s->set, index, efs[i], &step, NULL)) exit(1);
            keep_best(&best[i], &step);
        }
    for (int i = 0; i < STEPS; i++) print_step(name, &best[i]);
}

/* All rows as int8, the best of them exactly. */
static void scan(const specrt_hnsw *g, const float *query, int32_t *ids, void *scratch) {
    specrt__hnsw_scratch s = specrt__hnsw_begin(g, RERANKED, scratch);
    int32_t n = 0;
    float scores[4];
    specrt__hnsw_ask(g, &s, query);
    for (int32_t i = 0; i < g->header->n_nodes; i += 4) {
        int32_t nodes[4] = {i, i + 1, i + 2, i + 3}, left = g->header->n_nodes - i;
        specrt__hnsw_score_four(g, &s, nodes, left, scores);
        for (int32_t r = 0; r < 4 && r < left; r++)
            specrt__hnsw_keep(s.keys, &n, RERANKED, specrt__hnsw_key(scores[r], nodes[r]));
    }
    specrt__hnsw_rerank(g, &s, n);
    for (int32_t i = 0; i < RECALL_K; i++) ids[i] = specrt__shortlist_key_id(s.keys[i]);
}

static void bench_scan(const scene *s, const specrt_hnsw *index) {
    void *scratch = malloc(specrt_hnsw_scratch_bytes(index, RERANKED));
    int32_t found[RECALL_K];
    hnsw_recall_step best = {0, 0, 0};
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        int32_t hits = 0, n_true = 0, n = QUERIES / 5;
        double start = sl_measure_seconds();
        for (int32_t q = 0; q < n; q++) {
            scan(index, s->set.queries + (size_t)q * (size_t)s->dim, found, scratch);
            hits += hnsw_recall_hits(s->set.truth + q * RECALL_K, found, RECALL_K, &n_true);
        }
        hnsw_recall_step step = {s->n, (double)hits / n_true, n / (sl_measure_seconds() - start)};
        keep_best(&best, &step);
    }
    print_step("scan", &best);
    free(scratch);
}

int main(int argc, char **argv) {
    scene s = {.n = argc > 2 ? atoi(argv[1]) : 65536, .dim = argc > 2 ? atoi(argv[2]) : 256};
    int threads = sl_parallel_cores();
    index_params params = {.m = 32, .ef_construction = 200, .seed = 1, .threads = threads};
    static const int32_t kinds[] = {SPECRT_HNSW_INT8, SPECRT_HNSW_F16, SPECRT_HNSW_NONE};
    static const char *const names[] = {"int8", "f16", "f32"};
    hnsw_index built;
    specrt_hnsw index;
    make_scene(&s);
    if (argc > 4) {
        dump(argv[3], s.rows, (size_t)s.n * (size_t)s.dim);
        dump(argv[4], s.set.queries, QUERIES * (size_t)s.dim);
    }
    double start = sl_measure_seconds();
    if (index_build(&s.desc, s.ids, s.n_ids, &params, &built, NULL)) exit(1);
    printf("%d x %d, m 32, ef_construction 200: built in %.1f s on %d threads\n", s.n, s.dim,
           sl_measure_seconds() - start, threads);
    for (int i = 0; i < 3; i++) {
        built.header.vectors = kinds[i];
        open_section(&s, &built, &index);
        bench_searches(&s, &index, names[i]);
        if (index.codes) bench_scan(&s, &index);
    }
    return 0;
}
