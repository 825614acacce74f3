/* codes.c : every row's code and the four lengths that bound its error, as the section's bytes.
 * In double: the bounds are promises. */
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "build.h"
#include "base/error.h"
#include "base/io.h"
#include "base/parallel.h"

enum { CODES_BLOCK = 64 };

void sketch_free(sketch *s) {
    free(s->bytes);
    *s = (sketch){0};
}

/* --- the layout --- */

/* Points the view into the section. @return its bytes; header filled in. */
static size_t lay_out(const specrt_sketch_header *h, uint8_t *base, specrt_sketch *v) {
    size_t n = (size_t)h->n_rows, d = (size_t)h->n_cols, r = (size_t)h->rank;
    size_t mean = sizeof *h + 4 * r * d, rows = mean + 4 * d, scales = rows + 4 * n;
    size_t codes = (scales + 20 * n + 63) / 64 * 64;
    size_t end = codes + (n + 15) / 16 * 16 * r / (h->four_bits ? 2 : 1);
    if (!base) return end;
    *v = (specrt_sketch){.header = (const void *)base,
                         .basis = (const void *)(base + sizeof *h),
                         .lift = (const void *)(base + sizeof *h + 2 * r * d),
                         .mean = (const void *)(base + mean),
                         .rows = (const void *)(base + rows),
                         .scales = (const void *)(base + scales),
                         .bounds = (const void *)(base + scales + 4 * n),
                         .codes = base + codes};
    return end;
}

/* One number of a code, of 4 bits in the upper half from the fifth of every eight dimensions on. */
static void put_code(const specrt_sketch *v, int32_t place, int32_t k, int number) {
    size_t step = v->header->four_bits ? 8 : 4, n_lines = (size_t)v->header->rank / step;
    size_t line = (size_t)(place / 16) * n_lines + (size_t)k / step;
    uint8_t *at = (uint8_t *)(uintptr_t)v->codes + 64 * line + (size_t)(place % 16 * 4 + k % 4);
    if (v->header->four_bits)
        *at = (uint8_t)(*at | (8 + number) << (k % 8 / 4 * 4));
    else
        *at = (uint8_t)(128 + number);
}

void sketch_add(const specrt_sketch *v, const int32_t *q, int32_t begin, int32_t end,
                int32_t *sums) {
    bool four_bits = v->header->four_bits;
    int32_t step = four_bits ? 8 : 4, mask = four_bits ? 15 : 255, zero = four_bits ? 8 : 128;
    int32_t n_blocks = (v->header->n_rows + 15) / 16, n_lines = v->header->rank / step;
    for (int32_t b = 0; b < n_blocks; b++, sums += 16)
        for (int32_t k = begin; k < end; k += 4) {
            const uint8_t *line =
                v->codes + 64 * ((size_t)b * (size_t)n_lines + (size_t)(k / step));
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < 4; j++)
                    sums[i] += ((line[4 * i + j] >> k % step & mask) - zero) * q[k + j];
        }
}

/* --- a block of rows --- */

typedef struct coding {
    const row_order *o;
    const specrt_sketch *view;
    double *basis, *lift; /* [rank, n_cols] as they are stored */
    double *rows, *codes; /* [threads, CODES_BLOCK, n_cols], [.., rank] */
    float *scratch;       /* [threads, n_cols] */
} coding;

static double length(const double *x, int32_t n) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) sum += x[j] * x[j];
    return sqrt(sum);
}

/* The next float above, and a little for the rounding of sums. */
static float up(double x) {
    return nextafterf((float)(x * 1.000001), INFINITY);
}

/* Rounds a code [rank] in its place and fills its scale and two lengths. */
static void round_code(const coding *c, int32_t place, const double *code) {
    int32_t rank = c->view->header->rank, greatest = c->view->header->four_bits ? 7 : 127;
    float *bounds = (float *)(uintptr_t)c->view->bounds + 4 * (size_t)place;
    double most = 0, off = 0, rounded = 0;
    for (int32_t j = 0; j < rank; j++) most = fabs(code[j]) > most ? fabs(code[j]) : most;
    float scale = (float)(most / greatest);
    if (!(scale >= FLT_MIN)) scale = 0;
    ((float *)(uintptr_t)c->view->scales)[place] = scale;
    for (int32_t j = 0; j < rank; j++) {
        double q = scale > 0 ? rint(code[j] / (double)scale) : 0;
        q = q > greatest ? greatest : q < -greatest ? -greatest : q;
        put_code(c->view, place, j, (int)q);
        off += pow(code[j] - q * (double)scale, 2);
        rounded += pow(q * (double)scale, 2);
    }
    bounds[1] = up(sqrt(off));
    bounds[2] = up(sqrt(rounded));
}

static void code_block(void *arg, int64_t block, int worker) {
    const coding *c = arg;
    int32_t d = c->o->n_cols, rank = c->view->header->rank, first = (int32_t)block * CODES_BLOCK;
    int32_t n = c->o->n - first < CODES_BLOCK ? c->o->n - first : CODES_BLOCK;
    double *rows = c->rows + (size_t)worker * CODES_BLOCK * (size_t)d;
    double *codes = c->codes + (size_t)worker * CODES_BLOCK * (size_t)rank;
    float *row = c->scratch + (size_t)worker * (size_t)d;
    float *bounds = (float *)(uintptr_t)c->view->bounds + 4 * (size_t)first;
    for (int32_t i = 0; i < n; i++) {
        double square = 0, *x = rows + (size_t)i * (size_t)d;
        order_read(c->o, first + i, row);
        for (int32_t j = 0; j < d; j++) {
            square += (double)row[j] * (double)row[j];
            x[j] = (double)row[j] - (double)c->o->mean[j];
        }
        bounds[4 * i + 3] = up(sqrt(square));
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rank, d, 1, rows, d, c->lift, d, 0,
                codes, rank);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, d, rank, -1, codes, rank, c->basis, d,
                1, rows, d);
    for (int32_t i = 0; i < n; i++) {
        bounds[4 * i] = up(length(rows + (size_t)i * (size_t)d, d));
        round_code(c, first + i, codes + (size_t)i * (size_t)rank);
    }
}

/* --- the whole --- */

void sketch_widen(const uint16_t *halves, size_t n, double *out) {
    float values[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t left = n - i < 256 ? n - i : 256;
        specrt_row_decode(SPECRT_DTYPE_F16, halves + i, (int64_t)left, values);
        for (size_t j = 0; j < left; j++) out[i + j] = (double)values[j];
    }
}

static void fill(const coding *c, const basis *b, int threads) {
    const specrt_sketch *v = c->view;
    size_t d = (size_t)b->n_cols, n = (size_t)b->rank * d;
    memcpy((void *)(uintptr_t)v->basis, b->basis, n * sizeof *b->basis);
    memcpy((void *)(uintptr_t)v->lift, b->lift, n * sizeof *b->lift);
    memcpy((void *)(uintptr_t)v->mean, c->o->mean, d * sizeof *v->mean);
    memcpy((void *)(uintptr_t)v->rows, c->o->rows, (size_t)c->o->n * sizeof *v->rows);
    sketch_widen(b->basis, n, c->basis);
    sketch_widen(b->lift, n, c->lift);
    sl_parallel_for(threads, (c->o->n + CODES_BLOCK - 1) / CODES_BLOCK, code_block, (void *)c);
}

specrt_status sketch_make(const row_order *o, const basis *b, bool whitened, bool four_bits,
                          int threads, sketch *out, specrt_error *err) {
    specrt_sketch_header h = {.n_rows = o->n,
                              .n_cols = o->n_cols,
                              .rank = b->rank,
                              .whitened = whitened,
                              .four_bits = four_bits};
    size_t d = (size_t)o->n_cols, r = (size_t)b->rank, blocks = (size_t)threads * CODES_BLOCK;
    coding c = {.o = o, .view = &out->view};
    *out = (sketch){.n_bytes = lay_out(&h, NULL, NULL)};
    out->bytes = calloc(1, out->n_bytes);
    c.basis = malloc(r * d * sizeof *c.basis);
    c.lift = malloc(r * d * sizeof *c.lift);
    c.rows = malloc(blocks * d * sizeof *c.rows);
    c.codes = malloc(blocks * r * sizeof *c.codes);
    c.scratch = malloc((size_t)threads * d * sizeof *c.scratch);
    bool good = out->bytes && c.basis && c.lift && c.rows && c.codes && c.scratch;
    if (good) {
        memcpy(out->bytes, &h, sizeof h);
        lay_out(&h, out->bytes, &out->view);
        fill(&c, b, threads);
    }
    free(c.basis);
    free(c.lift);
    free(c.rows);
    free(c.codes);
    free(c.scratch);
    return good ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the codes");
}
