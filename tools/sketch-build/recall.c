/* recall.c : what a scan finds, for every rank and number of rows, by the plain sums of docs/METHODS.md. */
#include <cblas.h>
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
    int32_t *hits;   /* [states, ranks, rows] of the ten best */
    int32_t *firsts; /* [states, ranks, rows] of the best */
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

/* Counts who of a state's best are among the first, by scores of all places at a rank's number. */
static void count_hits(const measuring *m, int64_t state, int r, const float *scores) {
    int32_t n = m->s->view.header->n_rows;
    size_t at = ((size_t)state * BUILD_MAX_RANKS + (size_t)r) * BUILD_MAX_ROWS;
    for (int k = 0; k < BUILD_K; k++) {
        int32_t row = m->states->best[state * BUILD_K + k];
        int32_t above = row < n ? n_above(scores, n, m->places[row]) : n;
        for (size_t w = 0; w < (size_t)m->table->n_rows; w++) {
            m->hits[at + w] += above < m->table->rows[w];
            if (k == 0) m->firsts[at + w] += above < m->table->rows[w];
        }
    }
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
        sketch_add(v, q, begin, m->table->ranks[r], sums);
        for (int32_t i = 0; i < n; i++) scores[i] = v->scales[i] * (float)sums[i];
        count_hits(m, state, r, scores);
    }
}

/* --- bands: products of whole numbers below 2^24, which f32 adds up exactly, or nearly --- */

/* z = basis (h - center), each band in 8 bits of a unit of its own. */
static void project_bands(const specrt_sketch *v, const float *h, float *q, float *units) {
    int32_t d = v->header->n_cols, k = 0;
    float row[1024];
    for (int32_t b = 0; b < v->header->n_bands; b++) {
        double most = 0;
        int32_t first = k;
        for (; k < first + v->bands[b].rank; k++) {
            const uint16_t *direction = v->basis + (size_t)k * (size_t)d;
            double sum = 0;
            for (int32_t j = 0; j < d; j += 1024) {
                int32_t n = d - j < 1024 ? d - j : 1024;
                specrt_row_decode(SPECRT_DTYPE_F16, direction + j, n, row);
                for (int32_t i = 0; i < n; i++)
                    sum += (double)row[i] * ((double)h[j + i] - (double)v->center[j + i]);
            }
            q[k] = (float)sum;
            most = fmax(most, fabs(sum));
        }
        units[b] = (float)(most / 127);
        for (int32_t i = first; i < k; i++) q[i] = most > 0 ? rintf(q[i] / units[b]) : 0;
    }
}

/* Some states at a time, so that codes are read out once for all of them. */
enum { BAND_STATES = 32, BAND_ROWS = 512 };

typedef struct band_scratch {
    float *scores; /* [BAND_STATES, n_rows] */
    float *q;      /* [BAND_STATES, rank] */
    float *codes;  /* [BAND_ROWS, greatest rank of a band] */
    float *sums;   /* [BAND_STATES, BAND_ROWS] */
    float units[BAND_STATES][SPECRT_MAX_SKETCH_BANDS];
} band_scratch;

/* Adds band b, whose directions start at `first`, to the scores of n states. */
static void add_band(const specrt_sketch *v, int b, int32_t first, int n, band_scratch *s) {
    const specrt_sketch_band *band = &v->bands[b];
    int32_t n_rows = v->header->n_rows, rank = v->header->rank;
    for (int32_t at = 0; at < n_rows; at += BAND_ROWS) {
        int32_t rows = n_rows - at < BAND_ROWS ? n_rows - at : BAND_ROWS;
        for (int32_t i = 0; i < rows; i++)
            bands_read(band, at + i, s->codes + (int64_t)i * band->rank);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rows, band->rank, 1, s->q + first,
                    rank, s->codes, band->rank, 0, s->sums, BAND_ROWS);
        for (int i = 0; i < n; i++)
            for (int32_t j = 0; j < rows; j++) {
                uint32_t bits = (uint32_t)band->scales[at + j] << 16;
                float scale, *score = &s->scores[(int64_t)i * n_rows + at + j];
                memcpy(&scale, &bits, sizeof scale);
                *score = fmaf(s->sums[i * BAND_ROWS + j], s->units[i][b] * scale, *score);
            }
    }
}

typedef struct band_measuring {
    const measuring *m;
    band_scratch *scratch; /* [threads] */
} band_measuring;

static void measure_batch(void *arg, int64_t batch, int worker) {
    const band_measuring *b = arg;
    const specrt_sketch *v = &b->m->s->view;
    const state_set *states = b->m->states;
    band_scratch *s = &b->scratch[worker];
    int64_t first = batch * BAND_STATES, left = states->n_measured - first;
    int n = left < BAND_STATES ? (int)left : BAND_STATES;
    size_t n_rows = (size_t)v->header->n_rows;
    for (int i = 0; i < n; i++) {
        project_bands(v, states->states + (first + i) * states->dim,
                      s->q + (size_t)i * (size_t)v->header->rank, s->units[i]);
        memcpy(s->scores + (size_t)i * n_rows, v->constants, n_rows * sizeof(float));
    }
    for (int32_t band = 0, at = 0; band < v->header->n_bands; at += v->bands[band++].rank) {
        add_band(v, band, at, n, s);
        for (int i = 0; i < n; i++)
            count_hits(b->m, first + i, band, s->scores + (size_t)i * n_rows);
    }
}

static specrt_status measure_bands(const measuring *m, int threads, specrt_error *err) {
    const specrt_sketch *v = &m->s->view;
    size_t rank = (size_t)v->header->rank, n_rows = (size_t)v->header->n_rows;
    band_measuring b = {m, calloc((size_t)threads, sizeof(band_scratch))};
    bool good = b.scratch != NULL;
    for (int i = 0; b.scratch && i < threads; i++) {
        band_scratch *s = &b.scratch[i];
        s->scores = malloc(BAND_STATES * n_rows * sizeof(float));
        s->q = malloc(BAND_STATES * rank * sizeof(float));
        s->codes = malloc(BAND_ROWS * rank * sizeof(float));
        s->sums = malloc(BAND_STATES * BAND_ROWS * sizeof(float));
        good = good && s->scores && s->q && s->codes && s->sums;
    }
    openblas_set_num_threads(1);
    if (good)
        sl_parallel_for(threads, (m->states->n_measured + BAND_STATES - 1) / BAND_STATES,
                        measure_batch, &b);
    for (int i = 0; b.scratch && i < threads; i++) {
        free(b.scratch[i].scores);
        free(b.scratch[i].q);
        free(b.scratch[i].codes);
        free(b.scratch[i].sums);
    }
    free(b.scratch);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the measure");
}

/* --- the table --- */

/* Powers of two up to the section's rank, and that; of bands, the first so many. Bytes with a scale. */
static void choose_ranks(sketch_recall_table *t, const specrt_sketch_header *h) {
    double bytes = BANDS_CONSTANT;
    for (int32_t i = 0, rank = 0; i < h->n_bands; i++) {
        t->ranks[t->n_ranks] = rank += h->bands[i].rank;
        t->bytes[t->n_ranks++] = bytes += h->bands[i].rank * h->bands[i].bits / 8.0 + BANDS_SCALE;
    }
    if (h->n_bands) return;
    for (int32_t r = 8; r < h->rank && t->n_ranks < BUILD_MAX_RANKS - 1; r *= 2)
        t->ranks[t->n_ranks++] = r;
    t->ranks[t->n_ranks++] = h->rank;
    for (int r = 0; r < t->n_ranks; r++) t->bytes[r] = (h->four_bits ? 0.5 : 1) * t->ranks[r] + 4;
}

static void choose(sketch_recall_table *t, const specrt_sketch_header *h) {
    choose_ranks(t, h);
    for (int32_t m = 64; m <= 4096 && m < h->n_rows; m *= 2) t->rows[t->n_rows++] = m;
    if (t->n_rows == 0) t->rows[t->n_rows++] = h->n_rows;
}

/* Sums the hits; the cheapest good choice in bytes read for a state. */
static void judge(sketch_recall_table *t, const measuring *m, double enough, size_t row_bytes) {
    double least = INFINITY, n = (double)m->states->n_measured * BUILD_K;
    t->best_rank = t->best_rows = -1;
    for (int r = 0; r < t->n_ranks; r++)
        for (int w = 0; w < t->n_rows; w++) {
            int64_t hits = 0, firsts = 0;
            for (size_t i = 0; i < (size_t)m->states->n_measured; i++) {
                size_t at = (i * BUILD_MAX_RANKS + (size_t)r) * BUILD_MAX_ROWS + (size_t)w;
                hits += m->hits[at];
                firsts += m->firsts[at];
            }
            t->recall[r][w] = (double)hits / n;
            t->recall_best[r][w] = (double)firsts / m->states->n_measured;
            double bytes = (double)m->s->view.header->n_rows * t->bytes[r] +
                           (double)t->rows[w] * (double)row_bytes;
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
    m.firsts =
        calloc((size_t)states->n_measured * BUILD_MAX_RANKS * BUILD_MAX_ROWS, sizeof *m.firsts);
    bool good = m.sums && m.scores && m.places && m.hits && m.firsts;
    specrt_status status = good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the measure");
    for (size_t i = 0; good && i < n; i++) m.places[s->view.rows[i]] = (int32_t)i;
    if (good && s->view.header->n_bands)
        status = measure_bands(&m, threads, err);
    else if (good)
        sl_parallel_for(threads, states->n_measured, measure_state, &m);
    if (!status) judge(out, &m, enough, row_bytes);
    free(m.sums);
    free(m.scores);
    free(m.places);
    free(m.hits);
    free(m.firsts);
    return status;
}
