/* bands.c : every row's constant and codes of several widths, as the bytes of section version 2. A row's
 * scale in a band is the one that loses least of its numbers: with directions turned and states whitened, an
 * error counts the same in each of them. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/io.h"
#include "base/parallel.h"

enum { BANDS_BLOCK = 64 };

/* --- the layout --- */

static size_t to_line(size_t at) {
    return (at + 63) / 64 * 64;
}

/* Points the view into the section. @return its bytes; base NULL: the header alone is read. */
static size_t lay_out(const specrt_sketch_header *h, uint8_t *base, specrt_sketch *v) {
    size_t n = (size_t)h->n_rows, d = (size_t)h->n_cols, blocks = (n + 15) / 16;
    size_t center = sizeof *h + 2 * (size_t)h->rank * d, rows = center + 4 * d;
    size_t at = rows + 8 * n;
    if (base)
        *v = (specrt_sketch){.header = (const void *)base,
                             .basis = (const void *)(base + sizeof *h),
                             .center = (const void *)(base + center),
                             .rows = (const void *)(base + rows),
                             .constants = (const void *)(base + rows + 4 * n)};
    for (int32_t i = 0; i < h->n_bands; i++) {
        size_t scales = to_line(at), codes = to_line(scales + 32 * blocks);
        if (base)
            v->bands[i] = (specrt_sketch_band){.rank = h->bands[i].rank,
                                               .bits = h->bands[i].bits,
                                               .scales = (const void *)(base + scales),
                                               .codes = base + codes};
        at = codes + blocks * 2 * (size_t)h->bands[i].rank * (size_t)h->bands[i].bits;
    }
    return at;
}

/* Where dimension k of a place stands, and from which bit on. */
static uint8_t *code_at(const specrt_sketch_band *band, size_t place, size_t k, int *shift) {
    size_t step = 32 / (size_t)band->bits, n_lines = (size_t)band->rank / step;
    *shift = (int)(k % step / 4) * band->bits;
    return (uint8_t *)(uintptr_t)band->codes + 64 * (place / 16 * n_lines + k / step) +
           place % 16 * 4 + k % 4;
}

void bands_read(const specrt_sketch_band *band, int32_t place, float *out) {
    int shift, mask = (1 << band->bits) - 1;
    for (int32_t k = 0; k < band->rank; k++) {
        const uint8_t *at = code_at(band, (size_t)place, (size_t)k, &shift);
        out[k] = (float)(2 * (*at >> shift & mask) - mask);
    }
}

/* --- a row's numbers in a band --- */

static float from_bf16(uint16_t x) {
    float out;
    uint32_t bits = (uint32_t)x << 16;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* To the nearest; a scale is neither negative nor endless. */
static uint16_t to_bf16(double x) {
    float near = (float)fmin(x, 3e38);
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    return bits >> 16 >= 0x7f80 ? 0x7f7f : (uint16_t)(bits >> 16);
}

/* The odd number of a width that is nearest to x / scale. */
static int odd_of(double x, double inverse, int most) {
    double q = 2 * floor(x * inverse / 2) + 1;
    return q > most ? most : q < -most ? -most : (int)q;
}

/* What a scale loses of n numbers; *better: the scale that fits the numbers it chose best. */
static double loss(const double *x, int32_t n, double scale, int most, double *better) {
    double off = 0, along = 0, square = 0, inverse = scale > 0 ? 1 / scale : 0;
    for (int32_t k = 0; k < n; k++) {
        double q = odd_of(x[k], inverse, most);
        off += (x[k] - q * scale) * (x[k] - q * scale);
        along += x[k] * q;
        square += q * q;
    }
    *better = along > 0 ? along / square : 0;
    return off;
}

/* From the normal distribution's best step and from the greatest number, a few rounds each (Lloyd's). */
static uint16_t best_scale(const double *x, int32_t n, int bits) {
    static const double steps[9] = {0, 0.798, 0.498, 0, 0.168, 0, 0, 0, 0.0154};
    int most = (1 << bits) - 1;
    double square = 0, greatest = 0, least = INFINITY;
    uint16_t best = 0;
    for (int32_t k = 0; k < n; k++) {
        square += x[k] * x[k];
        greatest = fmax(greatest, fabs(x[k]));
    }
    for (int from = 0; from < 2; from++) {
        double scale = from ? greatest / most : steps[bits] * sqrt(square / n), better;
        for (int round = 0; round < 5; round++, scale = better) {
            uint16_t stored = to_bf16(scale);
            double now = loss(x, n, (double)from_bf16(stored), most, &better);
            if (now >= least) continue;
            least = now;
            best = stored;
        }
    }
    return best;
}

static void code_band(const specrt_sketch_band *band, int32_t place, const double *x) {
    int most = (1 << band->bits) - 1, shift;
    uint16_t stored = best_scale(x, band->rank, band->bits);
    double scale = (double)from_bf16(stored), inverse = scale > 0 ? 1 / scale : 0;
    ((uint16_t *)(uintptr_t)band->scales)[place] = stored;
    for (int32_t k = 0; k < band->rank; k++) {
        int code = (odd_of(x[k], inverse, most) + most) / 2;
        uint8_t *at = code_at(band, (size_t)place, (size_t)k, &shift);
        *at = (uint8_t)(*at | code << shift);
    }
}

/* --- all rows --- */

typedef struct coding {
    const row_order *o;
    const basis *b;
    const specrt_sketch *view;
    double *rows, *codes; /* [threads, BANDS_BLOCK, n_cols], [.., rank] */
    float *scratch;       /* [threads, n_cols] */
} coding;

static void code_block(void *arg, int64_t block, int worker) {
    const coding *c = arg;
    int32_t d = c->o->n_cols, rank = c->b->rank, first = (int32_t)block * BANDS_BLOCK;
    int32_t n = c->o->n - first < BANDS_BLOCK ? c->o->n - first : BANDS_BLOCK;
    double *rows = c->rows + (size_t)worker * BANDS_BLOCK * (size_t)d;
    double *codes = c->codes + (size_t)worker * BANDS_BLOCK * (size_t)rank;
    float *row = c->scratch + (size_t)worker * (size_t)d;
    for (int32_t i = 0; i < n; i++) {
        double constant = 0, *x = rows + (size_t)i * (size_t)d;
        order_read(c->o, first + i, row);
        for (int32_t j = 0; j < d; j++) {
            x[j] = (double)row[j] - (double)c->o->mean[j];
            constant += x[j] * (double)c->b->center[j];
        }
        ((float *)(uintptr_t)c->view->constants)[first + i] = (float)constant;
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rank, d, 1, rows, d, c->b->turned, d, 0,
                codes, rank);
    for (int32_t i = 0; i < n; i++) {
        const double *x = codes + (size_t)i * (size_t)rank;
        for (int32_t w = 0; w < c->b->list.n; x += c->b->list.bands[w++].rank)
            code_band(&c->view->bands[w], first + i, x);
    }
}

static void fill(const coding *c, int threads) {
    const specrt_sketch *v = c->view;
    size_t d = (size_t)c->b->n_cols, n = (size_t)c->o->n;
    memcpy((void *)(uintptr_t)v->basis, c->b->basis, (size_t)c->b->rank * d * sizeof *v->basis);
    memcpy((void *)(uintptr_t)v->center, c->b->center, d * sizeof *v->center);
    memcpy((void *)(uintptr_t)v->rows, c->o->rows, n * sizeof *v->rows);
    sl_parallel_for(threads, (c->o->n + BANDS_BLOCK - 1) / BANDS_BLOCK, code_block, (void *)c);
}

specrt_status bands_make(const row_order *o, const basis *b, bool whitened, int threads,
                         sketch *out, specrt_error *err) {
    specrt_sketch_header h = {.n_rows = o->n,
                              .n_cols = o->n_cols,
                              .rank = b->rank,
                              .whitened = whitened,
                              .n_bands = b->list.n};
    size_t blocks = (size_t)threads * BANDS_BLOCK, d = (size_t)o->n_cols;
    coding c = {.o = o, .b = b, .view = &out->view};
    for (int32_t i = 0; i < b->list.n; i++) {
        h.bands[i].rank = (uint16_t)b->list.bands[i].rank;
        h.bands[i].bits = (uint16_t)b->list.bands[i].bits;
    }
    *out = (sketch){.n_bytes = lay_out(&h, NULL, NULL)};
    out->bytes = calloc(1, out->n_bytes);
    c.rows = malloc(blocks * d * sizeof *c.rows);
    c.codes = malloc(blocks * (size_t)b->rank * sizeof *c.codes);
    c.scratch = malloc((size_t)threads * d * sizeof *c.scratch);
    bool good = out->bytes && c.rows && c.codes && c.scratch;
    if (good) {
        memcpy(out->bytes, &h, sizeof h);
        lay_out(&h, out->bytes, &out->view);
        fill(&c, threads);
    }
    free(c.rows);
    free(c.codes);
    free(c.scratch);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the codes");
}
