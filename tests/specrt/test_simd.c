/* test_simd.c : kernels against doubles and, bit for bit, against each other. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#define SPECRT_STATIC
#include "specrt.h"
#include "fixture.h"
#include "quantise.h"
#include "test.h"

/* --- kernels --- */

static const specrt_dtype formats[] = {SPECRT_DTYPE_F32,  SPECRT_DTYPE_F16,  SPECRT_DTYPE_BF16,
                                       SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_Q4_0, SPECRT_DTYPE_Q4_1,
                                       SPECRT_DTYPE_Q5_0, SPECRT_DTYPE_Q5_1, SPECRT_DTYPE_Q4_K,
                                       SPECRT_DTYPE_Q5_K, SPECRT_DTYPE_Q6_K, SPECRT_DTYPE_IQ4_NL};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* Those this machine can run, scalar first. */
static int families(const specrt__simd_kernels *out[3]) {
    int n = 0;
    out[n++] = &specrt__simd_kernels_scalar;
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = &specrt__simd_kernels_avx2;
    if (__builtin_cpu_supports("avx512bw")) out[n++] = &specrt__simd_kernels_avx512;
#elif defined(SPECRT__SIMD_ARM64)
    out[n++] = &specrt__simd_kernels_neon;
#elif defined(SPECRT__SIMD_WASM)
    out[n++] = &specrt__simd_kernels_wasm;
#endif
    return n;
}

enum { ROWS = 39, BATCH = 23, MAX_COLS = 1056 }; /* more than a kernel's callers take at once */

/* One shape in one format: rows at an odd address with an odd stride. */
typedef struct shape {
    specrt_segment segment;
    int64_t n_cols;
    uint8_t *block;
    float decoded[ROWS][MAX_COLS], hidden[BATCH * MAX_COLS], bias[ROWS];
} shape;

/* A row of any codes, its f16 scale and offset (or offset's code) below 2. */
static void random_blocks(specrt_dtype dtype, int64_t n_cols, uint64_t *seed, uint8_t *row) {
    size_t n = specrt_row_bytes(dtype, n_cols), step = specrt_row_bytes(dtype, 256) / 8;
    if (dtype == SPECRT_DTYPE_Q4_K || dtype == SPECRT_DTYPE_Q5_K || dtype == SPECRT_DTYPE_Q6_K)
        step *= 8;
    if (dtype == SPECRT_DTYPE_Q6_K) step = 210;
    for (size_t i = 0; i < n; i++) row[i] = (uint8_t)(fixture_random(seed) >> 40);
    for (size_t i = dtype == SPECRT_DTYPE_Q6_K ? 208 : 0; i < n; i += step) {
        row[i + 1] &= 0xbf;
        if (dtype != SPECRT_DTYPE_Q6_K) row[i + 3] &= 0xbf;
    }
}

static shape *shape_make(specrt_dtype dtype, int64_t n_cols, uint64_t seed) {
    shape *s = (shape *)calloc(1, sizeof *s);
    size_t row_bytes = specrt_row_bytes(dtype, n_cols), stride = row_bytes + 3;
    s->n_cols = n_cols;
    s->block = (uint8_t *)malloc(1 + ROWS * stride);
    for (int r = 0; r < ROWS; r++) {
        uint8_t *row = s->block + 1 + (size_t)r * stride;
        for (int64_t j = 0; j < n_cols; j++) s->decoded[r][j] = fixture_normal(&seed);
        if (specrt__simd_format(dtype) >= 0)
            quantise_row(dtype, s->decoded[r], n_cols, row);
        else
            random_blocks(dtype, n_cols, &seed, row);
        specrt_row_decode(dtype, row, n_cols, s->decoded[r]);
        s->bias[r] = fixture_normal(&seed);
    }
    for (int64_t i = 0; i < BATCH * n_cols; i++) s->hidden[i] = fixture_normal(&seed);
    s->segment = (specrt_segment){.rows = s->block + 1,
                                  .row_stride = stride,
                                  .dtype = dtype,
                                  .n_rows = ROWS,
                                  .bias = s->bias};
    return s;
}

static void shape_free(shape *s) {
    free(s->block);
    free(s);
}

static void check_close(const shape *s, const float *logits) {
    for (int h = 0; h < BATCH; h++)
        for (int r = 0; r < ROWS; r++) {
            double sum = s->bias[r], size = fabs(sum);
            for (int64_t j = 0; j < s->n_cols; j++) {
                double product = (double)s->decoded[r][j] * s->hidden[h * s->n_cols + j];
                sum += product;
                size += fabs(product);
            }
            /* Each lane adds n / 16 terms, then four more levels and the bias. */
            double bound = ((double)s->n_cols / 16 + 6) * ldexp(size, -24);
            CHECK_NEAR(logits[h * ROWS + r], sum, bound);
        }
}

/* Reading rows side by side or one after the other makes no difference to a bit. */
static void check_orders(const specrt__simd_kernels *kernels, const shape *s, const float *first) {
    specrt__simd_four *orders[] = {specrt__head_four_of(kernels, s->segment.dtype, false),
                                   specrt__head_four_of(kernels, s->segment.dtype, true)};
    const uint8_t *rows[4];
    float out[4];
    specrt__head_four(&s->segment, 4, 0, rows);
    for (int order = 0; order < 2; order++) {
        orders[order](rows, rows, s->hidden, s->n_cols, out);
        for (int r = 0; r < 4; r++) out[r] += s->bias[4 + r];
        CHECK(memcmp(out, first + 4, sizeof out) == 0);
    }
}

/* Any batch, split and instruction set gives the bits of one hidden row on the scalar kernel. */
static void check_shape(specrt_dtype dtype, int64_t n_cols) {
    const specrt__simd_kernels *family[3];
    float first[BATCH * ROWS], logits[BATCH * ROWS];
    shape *s = shape_make(dtype, n_cols, (uint64_t)n_cols * 977 + (uint64_t)dtype + 1);
    int n_families = families(family);
    for (int h = 0; h < BATCH; h++)
        specrt__head_products(family[0], &s->segment, 0, ROWS, n_cols, s->hidden + h * n_cols, 1,
                              first + h * ROWS, ROWS);
    check_close(s, first);
    for (int f = 0; f < n_families; f++) check_orders(family[f], s, first);
    for (int f = 0; f < n_families; f++)
        for (int n = 1; n <= BATCH; n++) {
            memset(logits, 0xff, sizeof logits);
            specrt__head_products(family[f], &s->segment, 0, 36, n_cols, s->hidden, n, logits,
                                  ROWS);
            specrt__head_products(family[f], &s->segment, 36, ROWS, n_cols, s->hidden, n, logits,
                                  ROWS);
            CHECK(memcmp(logits, first, (size_t)(n * ROWS) * sizeof *logits) == 0);
        }
    shape_free(s);
}

TEST(kernels, "every format, shape, batch and instruction set: right, and the same bits") {
    const int64_t cols[] = {1,  2,  15, 16,  17,  31,  32,  33,   48,
                            63, 64, 96, 100, 255, 256, 768, 1000, 1056};
    for (size_t f = 0; f < N_FORMATS; f++)
        for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
            if (specrt_row_bytes(formats[f], cols[c]) > 0) check_shape(formats[f], cols[c]);
}

/* A format's kernel equals the f32 kernel over decoded rows, bit for bit: decoding is exact. */
TEST(decoded_alike, "a stored row scores as its decoded row") {
    for (size_t f = 1; f < N_FORMATS; f++) {
        shape *s = shape_make(formats[f], 256, 5 + f);
        float a[ROWS], b[ROWS];
        specrt_segment plain = s->segment;
        plain.rows = s->decoded;
        plain.row_stride = sizeof s->decoded[0];
        plain.dtype = SPECRT_DTYPE_F32;
        specrt__head_products(specrt__simd_choose(), &s->segment, 0, ROWS, 256, s->hidden, 1, a,
                              ROWS);
        specrt__head_products(specrt__simd_choose(), &plain, 0, ROWS, 256, s->hidden, 1, b, ROWS);
        CHECK(memcmp(a, b, sizeof a) == 0);
        shape_free(s);
    }
}

/* Infinities and NaN in weights or hidden states come out as IEEE 754 says, in no other row. */
TEST(special_values, "infinities and NaN") {
    const specrt__simd_kernels *family[3];
    float rows[5][40] = {{0}}, hidden[40], logits[5];
    for (int j = 0; j < 40; j++) hidden[j] = 1;
    rows[0][3] = INFINITY;
    rows[1][39] = -INFINITY;
    rows[2][17] = NAN;
    rows[3][0] = INFINITY, rows[3][1] = -INFINITY;
    rows[4][5] = 2;
    specrt_segment s = {
        .rows = rows, .row_stride = sizeof rows[0], .dtype = SPECRT_DTYPE_F32, .n_rows = 5};
    for (int f = families(family) - 1; f >= 0; f--) {
        specrt__head_products(family[f], &s, 0, 5, 40, hidden, 1, logits, 5);
        CHECK(isinf(logits[0]) && logits[0] > 0);
        CHECK(isinf(logits[1]) && logits[1] < 0);
        CHECK(isnan(logits[2]) && isnan(logits[3]));
        CHECK(logits[4] == 2);
    }
}

TEST(sum_exp, "sums of exponentials against doubles") {
    const specrt__simd_kernels *family[3];
    int n_families = families(family);
    enum { MOST = 5000 };
    static float x[MOST];
    uint64_t seed = 11;
    for (int n = 1; n <= MOST; n += n < 70 ? 1 : 613) {
        float max = -INFINITY;
        double expected = 0;
        for (int i = 0; i < n; i++) {
            x[i] = 9 * fixture_normal(&seed);
            if (i % 17 == 3) x[i] = -INFINITY;
            if (i % 23 == 5) x[i] -= 150;
            if (x[i] > max) max = x[i];
        }
        for (int i = 0; i < n; i++) expected += exp((double)x[i] - max);
        if (n > 2) x[1] = NAN, expected = 0;
        for (int i = 0; i < n && n > 2; i++)
            if (i != 1) expected += exp((double)x[i] - max);
        double first = family[0]->sum_exp(x, n, max);
        CHECK_NEAR(first / expected, 1, 3e-7);
        for (int f = 1; f < n_families; f++) CHECK(family[f]->sum_exp(x, n, max) == first);
    }
}

/* Where the first block begins that has something great or NaN, or the rest that is shorter. */
TEST(find, "the search for great logits against a loop") {
    const specrt__simd_kernels *family[3];
    enum { N = 300 };
    float x[N];
    for (int f = families(family) - 1; f >= 0; f--)
        for (int n = 0; n <= N; n += 37)
            for (int at = 0; at < N; at++) {
                for (int i = 0; i < N; i++) x[i] = i % 5 == 2 ? -7.0f : -INFINITY;
                int expected = at < n / 16 * 16 ? at / 16 * 16 : n / 16 * 16;
                x[at] = NAN;
                CHECK_INT(family[f]->find(x, n, 1), expected);
                x[at] = 1;
                CHECK_INT(family[f]->find(x, n, 1), expected);
                CHECK_INT(family[f]->find(x, n, 1.5f), n / 16 * 16);
                CHECK_INT(family[f]->find(x, n, -INFINITY), 0);
            }
}

TEST(tile_i8, "rows of 8 bits against 64-bit sums, up to the greatest there may be") {
    enum { COLS = 160 };
    static int8_t rows[4][COLS];
    static int16_t x[COLS];
    const specrt__simd_kernels *family[3];
    const int8_t *at[4] = {rows[0], rows[1], rows[2], rows[3]};
    uint64_t seed = 5;
    for (int f = families(family) - 1; f >= 0; f--)
        for (int n = 32; n <= COLS; n += 32) {
            int32_t sums[4];
            for (int j = 0; j < n; j++) {
                x[j] = (int16_t)(n == 64 ? -32766 : (int)(fixture_random(&seed) >> 48) - 32768);
                for (int r = 0; r < 4; r++)
                    rows[r][j] =
                        (int8_t)(n == 64 ? -127 : (int)(fixture_random(&seed) >> 56) - 128);
            }
            family[f]->tile_i8(at, x, n, sums);
            for (int r = 0; r < 4; r++) {
                int64_t sum = 0;
                for (int j = 0; j < n; j++) sum += rows[r][j] * x[j];
                CHECK_INT(sums[r], sum);
            }
        }
}
