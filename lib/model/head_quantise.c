/* head_quantise.c : rows in q8_0, q4_0, q4_1 and iq4_nl. Blocks of 32 columns have a scale in f16; q8_0
 * rounds to -127..127, q4_0 to -8..7, where the largest weight becomes -8, and q4_1 to 0..15 above the least
 * one. iq4_nl rounds to 16 levels that lie close near 0, and tries 16 scales. */
#include "model/head_quantise.h"
#include "model/head_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

enum { BLOCK = 32, LEVELS = 16 };
static const float most_f16 = 65504;

bool sl_quantises(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_Q8_0 || dtype == SPECRT_DTYPE_Q4_0 || dtype == SPECRT_DTYPE_Q4_1 ||
           dtype == SPECRT_DTYPE_IQ4_NL;
}

/* The weight of largest magnitude, with its sign; of equal ones the first. */
static float largest(const float *x) {
    float most = 0;
    for (int j = 0; j < BLOCK; j++)
        if (fabsf(x[j]) > fabsf(most)) most = x[j];
    return most;
}

/* @return its inverse; 0 for a scale so small that f16 has 0 for it */
static float put_scale(float scale, uint8_t *block) {
    uint16_t half;
    specrt_to_f16(&scale, 1, &half);
    memcpy(block, &half, sizeof half);
    return fabsf(scale) > 1e-30F ? 1 / scale : 0;
}

static void block_q8_0(const float *x, uint8_t *block) {
    float inverse = put_scale(fabsf(largest(x)) / 127, block);
    for (int j = 0; j < BLOCK; j++) block[2 + j] = (uint8_t)(int8_t)roundf(x[j] * inverse);
}

/* Nearest, of 0 to 15; half a step is added already. */
static uint8_t nibble(float x) {
    int q = (int)x;
    return (uint8_t)(q > 15 ? 15 : q);
}

static void block_q4_0(const float *x, uint8_t *block) {
    float inverse = put_scale(largest(x) / -8, block);
    for (int j = 0; j < BLOCK / 2; j++)
        block[2 + j] = (uint8_t)(nibble(x[j] * inverse + 8.5F) |
                                 nibble(x[j + BLOCK / 2] * inverse + 8.5F) << 4);
}

static void block_q4_1(const float *x, uint8_t *block) {
    float least = x[0], most = x[0];
    for (int j = 1; j < BLOCK; j++) least = fminf(least, x[j]), most = fmaxf(most, x[j]);
    float inverse = put_scale((most - least) / 15, block);
    put_scale(least, block + 2);
    for (int j = 0; j < BLOCK / 2; j++)
        block[4 + j] = (uint8_t)(nibble((x[j] - least) * inverse + 0.5F) |
                                 nibble((x[j + BLOCK / 2] - least) * inverse + 0.5F) << 4);
}

static const float levels[LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

/* Places of the nearest levels; of two as near the greater. */
static void nearest_levels(const float *x, float inverse, uint8_t places[BLOCK]) {
    memset(places, 0, BLOCK);
    for (int i = 1; i < LEVELS; i++)
        for (int j = 0; j < BLOCK; j++)
            places[j] = (uint8_t)(places[j] + (x[j] * inverse >= (levels[i - 1] + levels[i]) / 2));
}

/* The scale by least squares, where a weight counts as its square. Tried are scales that put the largest
 * weight at 127, above all levels, and at -134, -133 ... -120. */
static float best_scale(const float *x) {
    float most = largest(x), best = 0, scale = 0;
    uint8_t places[BLOCK];
    for (int step = -8; step < 8 && fabsf(most) > 1e-15F; step++) {
        float product = 0, square = 0;
        nearest_levels(x, (step < -7 ? -levels[0] : levels[0] + (float)step) / most, places);
        for (int j = 0; j < BLOCK; j++) {
            float weight = x[j] * x[j], level = levels[places[j]];
            product += weight * level * x[j];
            square += weight * level * level;
        }
        if (square > 0 && product * product > best * square)
            scale = product / square, best = scale * product;
    }
    return scale;
}

static void block_iq4_nl(const float *x, uint8_t *block) {
    uint8_t places[BLOCK];
    nearest_levels(x, put_scale(best_scale(x), block), places);
    for (int j = 0; j < BLOCK / 2; j++)
        block[2 + j] = (uint8_t)(places[j] | places[j + BLOCK / 2] << 4);
}

void sl_quantise_row(specrt_dtype dtype, const float *x, int64_t n_cols, uint8_t *row) {
    size_t bytes = specrt_row_bytes(dtype, BLOCK);
    for (int64_t j = 0; j < n_cols; j += BLOCK, row += bytes)
        (dtype == SPECRT_DTYPE_Q8_0   ? block_q8_0
         : dtype == SPECRT_DTYPE_Q4_0 ? block_q4_0
         : dtype == SPECRT_DTYPE_Q4_1 ? block_q4_1
                                      : block_iq4_nl)(x + j, row);
}

static specrt_status check(const specrt_head_desc *in, specrt_dtype dtype, specrt_error *err) {
    if (!sl_quantises(dtype))
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "head: type %s: expected " SL_QUANTISED, specrt_dtype_name(dtype));
    if (in->n_cols % BLOCK != 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "head: expected a multiple of 32 columns for %s, found %lld",
                                specrt_dtype_name(dtype), (long long)in->n_cols);
    return SPECRT_STATUS_OK;
}

static specrt_status write_rows(const specrt_head_desc *in, specrt_dtype dtype, float *row,
                                uint8_t *rows, specrt_error *err) {
    size_t bytes = specrt_row_bytes(dtype, in->n_cols);
    for (int64_t i = 0; i < in->n_rows; i++) {
        if (specrt_row_decode(in->dtype, sl_head_row(in, i), in->n_cols, row) != SPECRT_STATUS_OK)
            return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                    "head: type %d: expected a float row format", (int)in->dtype);
        for (int64_t j = 0; j < in->n_cols; j++)
            if (!(fabsf(row[j]) <= most_f16))
                return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                        "head: row %lld: expected weights up to %g, found %g",
                                        (long long)i, (double)most_f16, (double)row[j]);
        sl_quantise_row(dtype, row, in->n_cols, rows + (size_t)i * bytes);
    }
    return SPECRT_STATUS_OK;
}

specrt_status sl_head_quantise(const specrt_head_desc *in, specrt_dtype dtype,
                               specrt_head_desc *out, uint8_t **rows, specrt_error *err) {
    float *row = NULL;
    *rows = NULL;
    TRY(check(in, dtype, err));
    size_t bytes = specrt_row_bytes(dtype, in->n_cols);
    specrt_status status = sl_new(rows, (size_t)in->n_rows, bytes, "a quantised head", err);
    if (status == SPECRT_STATUS_OK)
        status = sl_new(&row, (size_t)in->n_cols, sizeof *row, "a quantised head", err);
    if (status == SPECRT_STATUS_OK) status = write_rows(in, dtype, row, *rows, err);
    free(row);
    if (status != SPECRT_STATUS_OK) {
        free(*rows);
        *rows = NULL;
        return status;
    }
    *out = *in;
    out->rows = *rows;
    out->dtype = dtype;
    out->row_stride = bytes;
    return SPECRT_STATUS_OK;
}
