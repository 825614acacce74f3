/* recall.c : what a scan finds, for every rank and number of rows, by the plain sums of docs/METHODS.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/io.h"
#include "base/parallel.h"

typedef struct measuring {
    const sketch *s;
    const state_set *states;
    const sketch_recall_table *table;
    int32_t *sums;   /* [threads, n_blocks, 16] */
    float *scores;   /* [threads, n_rows] */
    int32_t *places; /* [n_rows] of each row */
    int32_t *hits;   /* [states, ranks, rows] */
} measuring;

/* z = basis h in 8 bits; a common factor does not change who is best. */
static void project(const specrt_sketch *v, const float *h, int32_t *q) {
    int32_t rank = v->header->rank, d = v->header->n_cols;
    float z[SPECRT_MAX_SKETCH_RANK], row[1024], most = 0;
    for (int32_t k = 0; k < rank; k++) {
        const uint16_t *b = v->basis + (size_t)k * (size_t)d;
        double sum = 0;
        for (int32_t j = 0; j < d; j += 1024) {
            int32_t n = d - j < 1024 ? d - j : 1024;
            specrt_row_decode(SPECRT_DTYPE_F16, b + j, n, row);
            for (int32_t i = 0; i < n; i++) sum += (double)row[i] * (double)h[j + i];
        }
        z[k] = (float)sum;
        most = fabsf(z[k]) > most ? fabsf(z[k]) : most;
    }
    for (int32_t k = 0; k < rank; k++) q[k] = most > 0 ? (int32_t)lrintf(z[k] * 127 / most) : 0;
}

/* How many rows score above the one at a place. */
static int32_t n_above(const float *scores, int32_t n, int32_t place) {
    int32_t above = 0;
    for (int32_t i = 0; i < n; i++) above += scores[i] > scores[place];
    return above;
}

static void measure_state(void *arg, int64_t state, int worker) {
    const measuring *m = arg;
    const specrt_sketch *v = &m->s->view;
    int32_t n = v->header->n_rows, q[SPECRT_MAX_SKETCH_RANK], begin = 0;
    size_t padded = ((size_t)n + 15) / 16 * 16;
    int32_t *sums = m->sums + (size_t)worker * padded;
    float *scores = m->scores + (size_t)worker * (size_t)n;
    project(v, m->states->states + state * m->states->dim, q);
    memset(sums, 0, padded * sizeof *sums);
    for (int r = 0; r < m->table->n_ranks; begin = m->table->ranks[r++]) {
        int32_t *hits = m->hits + ((size_t)state * BUILD_MAX_RANKS + (size_t)r) * BUILD_MAX_ROWS;
        sketch_add(v, q, begin, m->table->ranks[r], sums);
        for (int32_t i = 0; i < n; i++) scores[i] = v->scales[i] * (float)sums[i];
        for (int k = 0; k < BUILD_K; k++) {
            int32_t row = m->states->best[state * BUILD_K + k];
            int32_t above = row < n ? n_above(scores, n, m->places[row]) : n;
            for (int w = 0; w < m->table->n_rows; w++) hits[w] += above < m->table->rows[w];
        }
    }
}

/* Powers of two up to the section's rank, and that; rows likewise. */
static void choose(sketch_recall_table *t, const specrt_sketch_header *h) {
    for (int32_t r = 8; r < h->rank && t->n_ranks < BUILD_MAX_RANKS - 1; r *= 2)
        t->ranks[t->n_ranks++] = r;
    t->ranks[t->n_ranks++] = h->rank;
    for (int32_t m = 64; m <= 4096 && m < h->n_rows; m *= 2) t->rows[t->n_rows++] = m;
    if (t->n_rows == 0) t->rows[t->n_rows++] = h->n_rows;
}

/* Sums the hits; the cheapest good choice in bytes read for a state. */
static void judge(sketch_recall_table *t, const measuring *m, double enough, size_t row_bytes) {
    double least = INFINITY, n = (double)m->states->n_measured * BUILD_K;
    t->best_rank = t->best_rows = -1;
    for (int r = 0; r < t->n_ranks; r++)
        for (int w = 0; w < t->n_rows; w++) {
            int64_t hits = 0;
            for (size_t i = 0; i < (size_t)m->states->n_measured; i++)
                hits += m->hits[(i * BUILD_MAX_RANKS + (size_t)r) * BUILD_MAX_ROWS + (size_t)w];
            t->recall[r][w] = (double)hits / n;
            double code = (m->s->view.header->four_bits ? 0.5 : 1) * t->ranks[r] + 4;
            double bytes =
                (double)m->s->view.header->n_rows * code + (double)t->rows[w] * (double)row_bytes;
            if (t->recall[r][w] < enough || bytes >= least) continue;
            least = bytes;
            t->best_rank = r;
            t->best_rows = w;
        }
}

specrt_status sketch_recall_measure(const sketch *s, const state_set *states, double enough,
                                    size_t row_bytes, int threads, sketch_recall_table *out,
                                    specrt_error *err) {
    size_t n = (size_t)s->view.header->n_rows, padded = (n + 15) / 16 * 16;
    measuring m = {.s = s, .states = states, .table = out};
    *out = (sketch_recall_table){0};
    choose(out, s->view.header);
    m.sums = malloc((size_t)threads * padded * sizeof *m.sums);
    m.scores = malloc((size_t)threads * n * sizeof *m.scores);
    m.places = malloc(n * sizeof *m.places);
    m.hits = calloc((size_t)states->n_measured * BUILD_MAX_RANKS * BUILD_MAX_ROWS, sizeof *m.hits);
    bool good = m.sums && m.scores && m.places && m.hits;
    for (size_t i = 0; good && i < n; i++) m.places[s->view.rows[i]] = (int32_t)i;
    if (good) {
        parallel_for(threads, states->n_measured, measure_state, &m);
        judge(out, &m, enough, row_bytes);
    }
    free(m.sums);
    free(m.scores);
    free(m.places);
    free(m.hits);
    return good ? SPECRT_STATUS_OK : error_no_memory_for(err, "the measure");
}
