/* recall.c : what a search finds, by places refined and rows named, by the plain sums of
 * docs/methods/sketch.md. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

/* Some states at a time, so that codes are read out once for all of them. */
enum { STATES_BATCH = 32, ROWS_BATCH = 512, BLOCK_PLACES = 16 };

typedef struct ranked {
    float score;
    int32_t cluster;
} ranked;

typedef struct scratch {
    float *preview, *refined; /* [STATES_BATCH, n_rows] scores */
    float *means;             /* [STATES_BATCH, n_clusters] those of mean rows */
    float *q;                 /* [2, STATES_BATCH, rank] in whole numbers: for signs, for pairs */
    float *codes;             /* [ROWS_BATCH, rank] */
    float *sums;              /* [STATES_BATCH, ROWS_BATCH] */
    ranked *ranked;           /* [n_clusters] of a state */
    uint8_t *blocks;          /* [places / BLOCK_PLACES, rounded up] that a state previews */
    float units[2][STATES_BATCH];
} scratch;

typedef struct measuring {
    const sketch *s;
    const state_set *states;
    const sketch_recall_table *table;
    float *basis;                 /* [rank, n_cols] as it is stored */
    int32_t *places;              /* [n_rows] of each row */
    int32_t *hits;                /* [states, keeps, rows] of the ten best */
    int32_t *firsts;              /* [states, keeps, rows] of the best */
    struct probed_recall *probed; /* [states, BUILD_MAX_PROBED] sums */
    scratch *scratch;             /* [threads] */
    sl_arrays owned;              /* all of these */
} measuring;

/* Whole numbers q of z [n]. @return their unit. */
static float round_to_8_bits(const float *z, int32_t n, float *q) {
    float most = 0;
    for (int32_t k = 0; k < n; k++) most = fmaxf(most, fabsf(z[k]));
    float unit = most / 127;
    for (int32_t k = 0; k < n; k++) q[k] = unit > 0 ? rintf(z[k] / unit) : 0;
    return unit;
}

/* z = basis (h - center) of state i of a batch, rounded for both parts. */
static void project(const measuring *m, const float *h, int i, scratch *s) {
    const specrt_sketch *v = &m->s->view;
    int32_t d = v->header->n_cols, rank = v->header->rank;
    float z[SPECRT_MAX_SKETCH_RANK];
    for (int32_t k = 0; k < rank; k++) {
        const float *row = m->basis + (size_t)k * (size_t)d;
        double sum = 0;
        for (int32_t j = 0; j < d; j++)
            sum += (double)row[j] * ((double)h[j] - (double)v->center[j]);
        z[k] = (float)sum;
    }
    s->units[0][i] = round_to_8_bits(z, v->header->n_signs, s->q + (size_t)i * (size_t)rank);
    s->units[1][i] = round_to_8_bits(z, rank, s->q + (size_t)(STATES_BATCH + i) * (size_t)rank);
}

/* Scores of n states by signs (part 0) or pairs (part 1), of the rows at places [first, end); centroids stand
 * behind the rows. */
static void score(const measuring *m, int part, int32_t first, int32_t end, int n, scratch *s,
                  float *scores) {
    const specrt_sketch *v = &m->s->view;
    const specrt_sketch_header *h = v->header;
    int32_t width = part ? h->rank : h->n_signs;
    for (int32_t at = first; at < end; at += ROWS_BATCH) {
        int32_t rows = end - at < ROWS_BATCH ? end - at : ROWS_BATCH;
        for (int32_t i = 0; i < rows; i++)
            (part ? sketch_read_pairs : sketch_read_signs)(v, at + i,
                                                           s->codes + (int64_t)i * width);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rows, width, 1,
                    s->q + (size_t)(part * STATES_BATCH) * (size_t)h->rank, h->rank, s->codes,
                    width, 0, s->sums, ROWS_BATCH);
        for (int32_t j = 0; j < rows; j++) {
            const uint8_t *next = sketch_record(v, at + j + 1);
            float scale =
                part ? sketch_bf16(next - 4) : h->scale_unit * sketch_scale(v->scales[at + j]);
            float constant =
                part ? sketch_bf16(next - 2) : h->constant_unit * (float)v->constants[at + j];
            for (int i = 0; i < n; i++)
                scores[(int64_t)i * (end - first) + at - first + j] =
                    fmaf(s->sums[i * ROWS_BATCH + j], s->units[part][i] * scale, constant);
        }
    }
}

/* How many rows score above the one at a place. */
static int32_t n_above(const float *scores, int32_t n, int32_t place) {
    int32_t above = 0;
    for (int32_t i = 0; i < n; i++) above += scores[i] > scores[place];
    return above;
}

/* Counts who of a state's best are kept and named. Rows that are not kept count against those that are, so
 * that the search finds a little more. */
static void count_hits(const measuring *m, int64_t state, const float *preview,
                       const float *refined) {
    const sketch_recall_table *t = m->table;
    int32_t n = m->s->view.header->n_rows;
    size_t at = (size_t)state * BUILD_MAX_KEEPS * BUILD_MAX_ROWS;
    for (int b = 0; b < BUILD_K; b++) {
        int32_t row = m->states->best[state * BUILD_K + b];
        if (row >= n) continue;
        int32_t by_signs = n_above(preview, n, m->places[row]);
        int32_t by_pairs = n_above(refined, n, m->places[row]);
        for (int k = 0; k < t->n_keeps; k++)
            for (int w = 0; w < t->n_rows; w++) {
                bool hit = by_signs < t->keeps[k] && by_pairs < t->rows[w];
                m->hits[at + (size_t)(k * BUILD_MAX_ROWS + w)] += hit;
                m->firsts[at + (size_t)(k * BUILD_MAX_ROWS + w)] += b == 0 && hit;
            }
    }
}

/* The best first; of equal ones the first, as in a search. */
static int by_score(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : x->cluster - y->cluster;
}

/* Counts who of a state's best are previewed with the clusters whose means score best. A search reads whole
 * blocks of places, so a cluster's neighbours come along. */
static void count_probed(const measuring *m, int64_t state, const float *means, scratch *s) {
    const specrt_sketch_header *h = m->s->view.header;
    const uint32_t *starts = sketch_starts(&m->s->view);
    memset(s->blocks, 0, (size_t)h->n_rows / BLOCK_PLACES + 1);
    for (int32_t c = 0; c < h->n_clusters; c++) s->ranked[c] = (ranked){means[c], c};
    qsort(s->ranked, (size_t)h->n_clusters, sizeof *s->ranked, by_score);
    int32_t at = 0, n_blocks = 0;
    for (int p = 0; p < m->table->n_probed; p++) {
        struct probed_recall *out = &m->probed[state * BUILD_MAX_PROBED + p];
        for (; at < m->table->probed[p].clusters; at++) {
            const uint32_t *range = &starts[s->ranked[at].cluster];
            for (uint32_t b = range[0] / BLOCK_PLACES; b <= (range[1] - 1) / BLOCK_PLACES; b++) {
                n_blocks += !s->blocks[b];
                s->blocks[b] = 1;
            }
        }
        out->places = BLOCK_PLACES * n_blocks;
        for (int b = 0; b < BUILD_K; b++) {
            int32_t row = m->states->best[state * BUILD_K + b];
            bool in = row < h->n_rows && s->blocks[m->places[row] / BLOCK_PLACES];
            out->recall += in;
            out->recall_best += b == 0 && in;
        }
    }
}

static void measure_batch(void *arg, int64_t batch, int worker) {
    const measuring *m = arg;
    const state_set *states = m->states;
    scratch *s = &m->scratch[worker];
    int64_t first = batch * STATES_BATCH, left = states->n_measured - first;
    int n = left < STATES_BATCH ? (int)left : STATES_BATCH;
    size_t n_rows = (size_t)m->s->view.header->n_rows;
    for (int i = 0; i < n; i++) project(m, states->states + (first + i) * states->dim, i, s);
    int32_t end = m->s->view.header->n_rows, n_clusters = m->s->view.header->n_clusters;
    score(m, 0, 0, end, n, s, s->preview);
    score(m, 1, 0, end, n, s, s->refined);
    score(m, 1, end, end + n_clusters, n, s, s->means);
    for (int i = 0; i < n; i++) {
        count_hits(m, first + i, s->preview + (size_t)i * n_rows, s->refined + (size_t)i * n_rows);
        count_probed(m, first + i, s->means + (size_t)i * (size_t)n_clusters, s);
    }
}

/* --- the table --- */

static double basis_bytes(const specrt_sketch_header *h) {
    return (double)specrt_row_bytes((specrt_dtype)h->basis_dtype, h->n_cols) * h->rank;
}

/* Keeps from a 64th of the rows to half of them; rows from 32 on. */
static void choose(sketch_recall_table *t, const specrt_sketch_header *h, size_t row_bytes) {
    double preview = (double)h->n_rows * (h->n_signs / 8 + 2) + basis_bytes(h);
    for (int32_t part = 64; part >= 2; part /= 2)
        if (h->n_rows / part > 0) t->keeps[t->n_keeps++] = h->n_rows / part;
    for (int32_t m = 32; m <= 1024 && m < h->n_rows; m *= 2) t->rows[t->n_rows++] = m;
    if (t->n_keeps == 0) t->keeps[t->n_keeps++] = h->n_rows;
    if (t->n_rows == 0) t->rows[t->n_rows++] = h->n_rows;
    for (int k = 0; k < t->n_keeps; k++)
        for (int w = 0; w < t->n_rows; w++)
            t->bytes[k][w] = preview + (double)t->keeps[k] * ((h->rank + 16) / 4) +
                             (double)t->rows[w] * (double)row_bytes;
}

/* From a 64th of the clusters to a quarter. */
static void choose_probed(sketch_recall_table *t, const specrt_sketch_header *h) {
    for (int32_t part = 64; part >= 4; part /= 2)
        if (h->n_clusters / part > 0) t->probed[t->n_probed++].clusters = h->n_clusters / part;
}

static void judge_probed(sketch_recall_table *t, const measuring *m) {
    const specrt_sketch_header *h = m->s->view.header;
    double n = m->states->n_measured;
    for (int p = 0; p < t->n_probed; p++) {
        struct probed_recall *out = &t->probed[p];
        for (int32_t i = 0; i < m->states->n_measured; i++) {
            const struct probed_recall *one = &m->probed[i * BUILD_MAX_PROBED + p];
            out->recall += one->recall / (n * BUILD_K);
            out->recall_best += one->recall_best / n;
            out->places += one->places / n;
        }
        out->bytes = basis_bytes(h) + (double)h->n_clusters * ((h->rank + 16) / 4) +
                     out->places * (h->n_signs / 8 + 2);
    }
}

/* Sums the hits; the cheapest good choice. */
static void judge(sketch_recall_table *t, const measuring *m, double enough) {
    double least = INFINITY, n = (double)m->states->n_measured * BUILD_K;
    t->best_keep = t->best_rows = -1;
    for (int k = 0; k < t->n_keeps; k++)
        for (int w = 0; w < t->n_rows; w++) {
            int64_t hits = 0, firsts = 0;
            for (size_t i = 0; i < (size_t)m->states->n_measured; i++) {
                size_t at = (i * BUILD_MAX_KEEPS + (size_t)k) * BUILD_MAX_ROWS + (size_t)w;
                hits += m->hits[at];
                firsts += m->firsts[at];
            }
            t->recall[k][w] = (double)hits / n;
            t->recall_best[k][w] = (double)firsts / m->states->n_measured;
            if (t->recall[k][w] < enough || t->bytes[k][w] >= least) continue;
            least = t->bytes[k][w];
            t->best_keep = k;
            t->best_rows = w;
        }
}

static void allocate(measuring *m, int threads) {
    const specrt_sketch_header *h = m->s->view.header;
    size_t rank = (size_t)h->rank, n = (size_t)h->n_rows, n_clusters = (size_t)h->n_clusters;
    size_t n_states = (size_t)m->states->n_measured;
    size_t cells = n_states * BUILD_MAX_KEEPS * BUILD_MAX_ROWS;
    m->basis = sl_array(&m->owned, rank * (size_t)h->n_cols, sizeof *m->basis);
    m->places = sl_array(&m->owned, n, sizeof *m->places);
    m->hits = sl_array(&m->owned, cells, sizeof *m->hits);
    m->firsts = sl_array(&m->owned, cells, sizeof *m->firsts);
    m->probed = sl_array(&m->owned, n_states * BUILD_MAX_PROBED, sizeof *m->probed);
    m->scratch = sl_array(&m->owned, (size_t)threads, sizeof *m->scratch);
    for (int i = 0; m->scratch && i < threads; i++) {
        scratch *s = &m->scratch[i];
        s->preview = sl_array(&m->owned, STATES_BATCH * n, sizeof(float));
        s->refined = sl_array(&m->owned, STATES_BATCH * n, sizeof(float));
        s->q = sl_array(&m->owned, 2 * STATES_BATCH * rank, sizeof(float));
        s->codes = sl_array(&m->owned, ROWS_BATCH * rank, sizeof(float));
        s->sums = sl_array(&m->owned, STATES_BATCH * ROWS_BATCH, sizeof(float));
        s->means = sl_array(&m->owned, STATES_BATCH * n_clusters, sizeof(float));
        s->ranked = sl_array(&m->owned, n_clusters, sizeof *s->ranked);
        s->blocks = sl_array(&m->owned, n / BLOCK_PLACES + 1, 1);
    }
}

static void read_basis(const measuring *m) {
    const specrt_sketch_header *h = m->s->view.header;
    specrt_dtype dtype = (specrt_dtype)h->basis_dtype;
    const uint8_t *at = m->s->view.basis;
    for (int32_t k = 0; k < h->rank; k++, at += specrt_row_bytes(dtype, h->n_cols))
        specrt_row_decode(dtype, at, h->n_cols, m->basis + (int64_t)k * h->n_cols);
    for (int32_t i = 0; i < h->n_rows; i++) m->places[m->s->view.rows[i]] = i;
}

specrt_status sketch_recall_measure(const sketch *s, const state_set *states, double enough,
                                    size_t row_bytes, int threads, sketch_recall_table *out,
                                    specrt_error *err) {
    measuring m = {.s = s, .states = states, .table = out};
    *out = (sketch_recall_table){0};
    choose(out, s->view.header, row_bytes);
    choose_probed(out, s->view.header);
    allocate(&m, threads);
    bool good = !m.owned.failed;
    openblas_set_num_threads(1);
    if (good) {
        read_basis(&m);
        sl_parallel_for(threads, (states->n_measured + STATES_BATCH - 1) / STATES_BATCH,
                        measure_batch, &m);
        judge(out, &m, enough);
        judge_probed(out, &m);
    }
    sl_arrays_free(&m.owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the measure");
}
