/* space.c : see space.h. Products are product.h's, the same bits for any number of threads. */
#include "space.h"

#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/parallel.h"
#include "product.h"
#include "specrt_tools.h"

enum { SPACE_ROWS = 1536 }; /* of a product */
#define RIDGE 0.001

/* States without their mean, f32 [n, d]; NULL: no memory. */
static float *centered(const example_set *set, int64_t d) {
    float *x = malloc((size_t)(set->n * d) * sizeof *x);
    double *mean = calloc((size_t)d, sizeof *mean);
    if (x && mean) {
        specrt_row_decode(SPECRT_DTYPE_F16, set->states, set->n * d, x);
        for (int64_t i = 0; i < set->n * d; i++) mean[i % d] += (double)x[i] / (double)set->n;
        for (int64_t i = 0; i < set->n * d; i++) x[i] = (float)((double)x[i] - mean[i % d]);
    }
    free(mean);
    return x;
}

/* The lower factor of c [d, d], in place, zeros above. @return false: c has no factor. */
static bool factorise(double *c, int64_t d) {
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double sum = c[i * d + j];
            for (int64_t k = 0; k < j; k++) sum -= c[i * d + k] * c[j * d + k];
            if (j == i && !(sum > 0)) return false;
            c[i * d + j] = j == i ? sqrt(sum) : sum / c[j * d + j];
        }
        for (int64_t j = i + 1; j < d; j++) c[i * d + j] = 0;
    }
    return true;
}

/* L [d, d] of the states. */
static specrt_status make_factor(const example_set *set, int64_t d, parallel_pool *pool,
                                 float *factor, specrt_error *err) {
    float *x = centered(set, d);
    double *c = malloc((size_t)(d * d) * sizeof *c), trace = 0;
    bool good = x && c;
    if (good) {
        matrix_view transposed = {x, 1, d}, states = {x, d, 1};
        product(pool, transposed, states, (int32_t)d, (int32_t)d, (int32_t)set->n, factor);
        for (int64_t i = 0; i < d; i++) trace += (double)factor[i * d + i];
        for (int64_t i = 0; i < d * d; i++) c[i] = (double)factor[i];
        for (int64_t i = 0; i < d; i++) c[i * d + i] += RIDGE * trace / (double)d;
    }
    bool varies = good && factorise(c, d);
    for (int64_t i = 0; i < d * d && varies; i++) factor[i] = (float)(c[i] / sqrt(trace));
    free(x);
    free(c);
    if (!good) return sl_error_no_memory_for(err, "the states");
    if (varies) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "trace: the hidden states span no space; record more");
}

typedef struct projection {
    const row_set *r;
    space *out;
    float *given, *made; /* [SPACE_ROWS, n_cols] */
    int32_t first;
} projection;

static void read_row(void *arg, int64_t i) {
    const projection *p = arg;
    rows_read(p->r, p->first + (int32_t)i, p->given + i * p->r->head.n_cols);
}

/* Of length 1, but for rounding. */
static void keep_row(void *arg, int64_t i) {
    const projection *p = arg;
    row_set *rows = &p->out->rows;
    int64_t d = rows->head.n_cols;
    int32_t row = p->first + (int32_t)i;
    float *x = p->made + i * d;
    uint16_t *halves = p->out->matrix + row * d;
    double square = 0;
    for (int64_t j = 0; j < d; j++) square += (double)x[j] * (double)x[j];
    for (int64_t j = 0; j < d; j++) x[j] = (float)((double)x[j] / sqrt(square));
    specrt_to_f16(x, d, halves);
    specrt_row_decode(SPECRT_DTYPE_F16, halves, d, x);
    square = 0;
    for (int64_t j = 0; j < d; j++) square += (double)x[j] * (double)x[j];
    rows->ids[row] = row;
    rows->inverses[row] = (float)(1 / sqrt(square));
    unit_rows_set(&rows->units, row, x, rows->inverses[row]);
}

static bool project(const row_set *r, const float *factor, parallel_pool *pool, space *out) {
    int64_t d = r->head.n_cols;
    size_t n = (size_t)SPACE_ROWS * (size_t)d;
    projection p = {.r = r, .out = out};
    matrix_view rows = {p.given = malloc(n * sizeof *p.given), d, 1}, by = {factor, d, 1};
    p.made = malloc(n * sizeof *p.made);
    bool good = p.given && p.made;
    for (; good && p.first < r->n; p.first += SPACE_ROWS) {
        int32_t m = r->n - p.first < SPACE_ROWS ? r->n - p.first : SPACE_ROWS;
        sl_parallel_pool_for(pool, m, read_row, &p);
        product(pool, rows, by, m, (int32_t)d, (int32_t)d, p.made);
        sl_parallel_pool_for(pool, m, keep_row, &p);
    }
    free(p.given);
    free(p.made);
    return good;
}

static specrt_status fill(const row_set *r, const example_set *set, parallel_pool *pool,
                          float *factor, space *out, specrt_error *err) {
    TRY(make_factor(set, r->head.n_cols, pool, factor, err));
    return project(r, factor, pool, out) ? SPECRT_STATUS_OK
                                         : sl_error_no_memory_for(err, "the rows");
}

specrt_status space_open(const row_set *r, const example_set *set, int threads, space *out,
                         specrt_error *err) {
    size_t n = (size_t)r->n, d = (size_t)r->head.n_cols;
    float *factor = malloc(d * d * sizeof *factor);
    parallel_pool *pool = sl_parallel_pool_create(threads);
    *out = (space){.matrix = malloc(n * d * sizeof *out->matrix)};
    row_set *rows = &out->rows;
    rows->head = (specrt_head_desc){.rows = out->matrix,
                                    .dtype = SPECRT_DTYPE_F16,
                                    .n_rows = r->n,
                                    .n_cols = r->head.n_cols,
                                    .row_stride = d * sizeof *out->matrix};
    rows->n = r->n;
    rows->ids = malloc(n * sizeof *rows->ids);
    rows->inverses = malloc(n * sizeof *rows->inverses);
    bool good = factor && pool && out->matrix && rows->ids && rows->inverses &&
                unit_rows_create(&rows->units, r->n, (int32_t)d);
    specrt_status status =
        good ? fill(r, set, pool, factor, out, err) : sl_error_no_memory_for(err, "the rows");
    if (pool) sl_parallel_pool_free(pool);
    free(factor);
    if (status) space_close(out);
    return status;
}

void space_close(space *s) {
    rows_close(&s->rows);
    free(s->matrix);
    *s = (space){0};
}
