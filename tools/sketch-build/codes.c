/* codes.c : signs and pairs of bits of every row, as the bytes of the section. A row's scale is the one that
 * loses least of its numbers, each weighed by what an error counts in its direction. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { CODES_BLOCK = 64, Q8_BLOCK = 32 };

void sketch_free(sketch *s) {
    free(s->bytes);
    *s = (sketch){0};
}

/* --- the layout --- */

static size_t to_line(size_t at) {
    return (at + 63) / 64 * 64;
}

/* Points the view into the section. @return its bytes; base NULL: the header alone is read. */
static size_t lay_out(const specrt_sketch_header *h, uint8_t *base, specrt_sketch *v) {
    size_t n = (size_t)h->n_rows, n_places = (n + 15) / 16 * 16;
    size_t row = specrt_row_bytes((specrt_dtype)h->basis_dtype, h->n_cols);
    size_t center = (sizeof *h + (size_t)h->rank * row + 3) / 4 * 4;
    size_t rows = center + 4 * (size_t)h->n_cols, scales = rows + 4 * n;
    size_t signs = to_line(scales + 2 * n_places);
    size_t records = signs + n_places * (size_t)h->n_signs / 8;
    size_t record = (size_t)(h->rank + 16) / 4, clusters = (size_t)h->n_clusters;
    if (base)
        *v = (specrt_sketch){.header = (const void *)base,
                             .basis = base + sizeof *h,
                             .center = (const void *)(base + center),
                             .rows = (const void *)(base + rows),
                             .scales = base + scales,
                             .constants = (const void *)(base + scales + n_places),
                             .signs = base + signs,
                             .records = base + records};
    return records + n * record + (clusters > 0 ? clusters * (record + 4) + 4 : 0);
}

/* Where sign k of a place stands, and in which bit. */
static const uint8_t *sign_at(const specrt_sketch *v, size_t place, size_t k, int *bit) {
    *bit = (int)(k % 32 / 4);
    return v->signs + 64 * (place / 16 * (size_t)(v->header->n_signs / 32) + k / 32) +
           place % 16 * 4 + k % 4;
}

const uint8_t *sketch_record(const specrt_sketch *v, int32_t place) {
    return v->records + (size_t)place * (size_t)(v->header->rank + 16) / 4;
}

const uint32_t *sketch_starts(const specrt_sketch *v) {
    return (const void *)sketch_record(v, v->header->n_rows + v->header->n_clusters);
}

/* Where pair k of a record stands, and from which bit on. */
static size_t pair_at(int32_t rank, size_t k, int *bit) {
    size_t line = k / 256, width = line == (size_t)rank / 256 ? 60 : 64;
    *bit = (int)(k % 256 / width) * 2;
    return 64 * line + k % 256 % width;
}

void sketch_read_signs(const specrt_sketch *v, int32_t place, float *out) {
    int bit;
    for (int32_t k = 0; k < v->header->n_signs; k++) {
        const uint8_t *at = sign_at(v, (size_t)place, (size_t)k, &bit);
        out[k] = (float)(2 * (*at >> bit & 1) - 1);
    }
}

void sketch_read_pairs(const specrt_sketch *v, int32_t place, float *out) {
    int bit;
    for (int32_t k = 0; k < v->header->rank; k++) {
        size_t at = pair_at(v->header->rank, (size_t)k, &bit);
        out[k] = (float)(2 * (sketch_record(v, place)[at] >> bit & 3) - 3);
    }
}

/* --- numbers as they are stored --- */

static float of_bits(uint32_t bits) {
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float sketch_scale(uint8_t stored) {
    return of_bits(((uint32_t)stored << 20) + (96u << 23));
}

/* The nearest of x, 0 to 1.875. */
static uint8_t to_scale(double x) {
    int64_t steps = ((int64_t)bits_of((float)x) + (1 << 19)) / (1 << 20) - (96 << 3);
    return (uint8_t)(steps < 0 ? 0 : steps > 255 ? 255 : steps);
}

float sketch_bf16(const uint8_t *bytes) {
    return of_bits((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
}

/* To the nearest, and not endless. */
static void put_bf16(uint8_t *bytes, double x) {
    uint32_t bits = bits_of((float)fmax(fmin(x, 3e38), -3e38));
    bits += 0x7fff + (bits >> 16 & 1);
    bytes[0] = (uint8_t)(bits >> 16);
    bytes[1] = (uint8_t)(bits >> 24);
}

/* --- a row's numbers --- */

/* The odd number of two bits that is nearest to x / scale. */
static int odd_of(double x, double inverse) {
    double q = 2 * floor(x * inverse / 2) + 1;
    return q > 3 ? 3 : q < -3 ? -3 : (int)q;
}

/* The scale of pairs that loses least: a few rounds of Lloyd's from the normal distribution's best. */
static double pair_scale(const double *x, const double *weights, int32_t n) {
    double square = 0, total = 0;
    for (int32_t k = 0; k < n; k++) {
        square += weights[k] * x[k] * x[k];
        total += weights[k];
    }
    double scale = total > 0 ? 0.498 * sqrt(square / total) : 0;
    for (int round = 0; round < 6 && scale > 0; round++) {
        double along = 0, sum = 0;
        for (int32_t k = 0; k < n; k++) {
            int q = odd_of(x[k], 1 / scale);
            along += weights[k] * x[k] * q;
            sum += weights[k] * q * q;
        }
        scale = along / sum;
    }
    return scale;
}

static double sign_scale(const double *x, const double *weights, int32_t n) {
    double sum = 0, total = 0;
    for (int32_t k = 0; k < n; k++) {
        sum += weights[k] * fabs(x[k]);
        total += weights[k];
    }
    return total > 0 ? sum / total : 0;
}

/* --- all rows --- */

typedef struct coding {
    const row_order *o;
    const basis *b;
    const specrt_sketch *view;
    double *rows, *codes;      /* [threads, CODES_BLOCK, n_cols], [.., rank] */
    float *scratch;            /* [threads, n_cols] */
    float *scales, *constants; /* [n_rows] of the preview, before they are rounded */
} coding;

/* The record of numbers x. */
static void code_pairs(const basis *b, const double *x, double constant, uint8_t *record) {
    double scale = pair_scale(x, b->weights, b->rank);
    uint8_t *end = record + (b->rank + 16) / 4;
    int bit;
    for (int32_t k = 0; k < b->rank; k++) {
        uint8_t *at = record + pair_at(b->rank, (size_t)k, &bit);
        *at = (uint8_t)(*at | (odd_of(x[k], scale > 0 ? 1 / scale : 0) + 3) / 2 << bit);
    }
    put_bf16(end - 4, scale * b->unit);
    put_bf16(end - 2, constant);
}

static void code_row(const coding *c, int32_t place, const double *x, double constant) {
    const specrt_sketch *v = c->view;
    const basis *b = c->b;
    int32_t n_signs = v->header->n_signs, bit;
    c->scales[place] = (float)(sign_scale(x, b->weights, n_signs) * b->unit);
    c->constants[place] = (float)constant;
    for (int32_t k = 0; k < n_signs; k++) {
        uint8_t *at = (uint8_t *)(uintptr_t)sign_at(v, (size_t)place, (size_t)k, &bit);
        *at = (uint8_t)(*at | (x[k] > 0) << bit);
    }
    code_pairs(b, x, constant, (uint8_t *)(uintptr_t)sketch_record(v, place));
}

static void code_block(void *arg, int64_t block, int worker) {
    const coding *c = arg;
    int32_t d = c->o->n_cols, rank = c->b->rank, first = (int32_t)block * CODES_BLOCK;
    int32_t n = c->o->n - first < CODES_BLOCK ? c->o->n - first : CODES_BLOCK;
    double *rows = c->rows + (size_t)worker * CODES_BLOCK * (size_t)d;
    double *codes = c->codes + (size_t)worker * CODES_BLOCK * (size_t)rank;
    double constants[CODES_BLOCK];
    basis_apply(c->b, c->o, first, n, c->scratch + (size_t)worker * (size_t)d, rows, codes,
                constants);
    for (int32_t i = 0; i < n; i++)
        code_row(c, first + i, codes + (size_t)i * (size_t)rank, constants[i]);
}

/* The preview's scales and constants, in units of the greatest. */
static void round_all(const coding *c, specrt_sketch_header *h) {
    float scale = 0, constant = 0;
    for (int32_t i = 0; i < c->o->n; i++) {
        scale = fmaxf(scale, c->scales[i]);
        constant = fmaxf(constant, fabsf(c->constants[i]));
    }
    h->scale_unit = scale / 1.875f;
    h->constant_unit = constant / 127;
    for (int32_t i = 0; i < c->o->n; i++) {
        double x = scale > 0 ? (double)c->scales[i] * 1.875 / (double)scale : 0;
        ((uint8_t *)(uintptr_t)c->view->scales)[i] = to_scale(x);
        ((int8_t *)(uintptr_t)c->view->constants)[i] =
            (int8_t)(constant > 0 ? lrintf(127 * c->constants[i] / constant) : 0);
    }
}

/* One row of the basis, in f16 or in blocks of 32 columns that share a scale. */
static void put_basis(const float *row, int32_t n, specrt_dtype dtype, uint8_t *out) {
    if (dtype == SPECRT_DTYPE_F16) {
        specrt_to_f16(row, n, (uint16_t *)(void *)out);
        return;
    }
    for (int32_t j = 0; j < n; j += Q8_BLOCK, out += 2 + Q8_BLOCK) {
        float most = 0;
        for (int32_t i = j; i < j + Q8_BLOCK; i++) most = fmaxf(most, fabsf(row[i]));
        float scale = most / 127, stored;
        uint16_t half;
        specrt_to_f16(&scale, 1, &half);
        memcpy(out, &half, sizeof half);
        specrt_row_decode(SPECRT_DTYPE_F16, out, 1, &stored);
        for (int32_t i = 0; i < Q8_BLOCK; i++) {
            float q = stored > 0 ? row[j + i] / stored : 0;
            out[2 + i] = (uint8_t)(int8_t)lrintf(fmaxf(fminf(q, 127), -127));
        }
    }
}

static void fill_clusters(const coding *c, const row_clusters *clusters) {
    size_t record = (size_t)(c->b->rank + 16) / 4, dim = (size_t)c->b->rank + 1;
    uint8_t *at = (uint8_t *)(uintptr_t)sketch_record(c->view, c->o->n);
    for (int32_t m = 0; m < clusters->n; m++, at += record) {
        const double *mean = clusters->means + (size_t)m * dim;
        code_pairs(c->b, mean, mean[dim - 1], at);
    }
    if (clusters->n > 0)
        memcpy((void *)(uintptr_t)sketch_starts(c->view), clusters->starts,
               ((size_t)clusters->n + 1) * sizeof *clusters->starts);
}

static void fill(const coding *c, int threads) {
    const specrt_sketch *v = c->view;
    size_t d = (size_t)c->b->n_cols, n = (size_t)c->o->n;
    specrt_dtype dtype = (specrt_dtype)v->header->basis_dtype;
    uint8_t *at = (uint8_t *)(uintptr_t)v->basis;
    for (size_t k = 0; k < (size_t)c->b->rank; k++, at += specrt_row_bytes(dtype, (int64_t)d))
        put_basis(c->b->basis + k * d, (int32_t)d, dtype, at);
    memcpy((void *)(uintptr_t)v->center, c->b->center, d * sizeof *v->center);
    memcpy((void *)(uintptr_t)v->rows, c->o->rows, n * sizeof *v->rows);
    sl_parallel_for(threads, (c->o->n + CODES_BLOCK - 1) / CODES_BLOCK, code_block, (void *)c);
    round_all(c, (specrt_sketch_header *)(uintptr_t)v->header);
}

specrt_status sketch_make(const row_order *o, const basis *b, const row_clusters *clusters,
                          int32_t n_signs, bool whitened, int threads, sketch *out,
                          specrt_error *err) {
    const specrt_sketch_header h = {.n_rows = o->n,
                                    .n_cols = o->n_cols,
                                    .rank = b->rank,
                                    .n_signs = n_signs,
                                    .whitened = whitened,
                                    .n_clusters = clusters->n,
                                    .basis_dtype = o->n_cols % Q8_BLOCK ? SPECRT_DTYPE_F16
                                                                        : SPECRT_DTYPE_Q8_0};
    size_t blocks = (size_t)threads * CODES_BLOCK, d = (size_t)o->n_cols, n = (size_t)o->n;
    coding c = {.o = o, .b = b, .view = &out->view};
    *out = (sketch){.n_bytes = lay_out(&h, NULL, NULL)};
    out->bytes = calloc(1, out->n_bytes);
    sl_arrays owned = {0};
    c.rows = sl_array(&owned, blocks * d, sizeof *c.rows);
    c.codes = sl_array(&owned, blocks * (size_t)b->rank, sizeof *c.codes);
    c.scratch = sl_array(&owned, (size_t)threads * d, sizeof *c.scratch);
    c.scales = sl_array(&owned, n, sizeof *c.scales);
    c.constants = sl_array(&owned, n, sizeof *c.constants);
    bool good = out->bytes && !owned.failed;
    if (good) {
        memcpy(out->bytes, &h, sizeof h);
        lay_out(&h, out->bytes, &out->view);
        fill(&c, threads);
        fill_clusters(&c, clusters);
    }
    sl_arrays_free(&owned);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the codes");
}
