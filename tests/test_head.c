/* test_head.c : kernels against doubles and against each other, the sketch, and binding. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
#include "fixture.h"
#include "test.h"

#include "gguf.h"

/* --- rows of every format, quantised here by the plainest rule --- */

static void put_half(uint8_t *out, float x) {
    uint16_t half = specrt__base_to_f16(x);
    memcpy(out, &half, 2);
}

static float absmax(const float *x, int n) {
    float most = 0;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* The nearest code of [-limit, limit] for x in steps of d. */
static int code(float x, float d, int limit) {
    long q = d > 0 ? lroundf(x / d) : 0;
    return q > limit ? limit : q < -limit ? -limit : (int)q;
}

static void put_q8_0(const float *x, uint8_t *out) {
    float d = absmax(x, 32) / 127;
    put_half(out, d);
    for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)code(x[i], d, 127);
}

static void put_q4_0(const float *x, uint8_t *out) {
    float d = absmax(x, 32) / 7;
    put_half(out, d);
    for (int i = 0; i < 16; i++)
        out[2 + i] = (uint8_t)((code(x[i], d, 7) + 8) | (code(x[i + 16], d, 7) + 8) << 4);
}

/* Sixteen scales of 8 bits, codes of 6 bits in two planes. */
static void put_q6_k(const float *x, uint8_t *out) {
    float d = absmax(x, 256) / 31 / 126; /* leaves the largest scale room to round up */
    memset(out, 0, 210);
    put_half(out + 208, d);
    for (int i = 0; i < 256; i++) {
        int scale = (int)ceilf(d > 0 ? absmax(x + i / 16 * 16, 16) / 31 / d : 0);
        int q = code(x[i], d * (float)scale, 31) + 32, half = i / 128, l = i % 32,
            quarter = i % 128 / 32;
        out[192 + i / 16] = (uint8_t)scale;
        uint8_t *low = out + 64 * half + l + (quarter & 1 ? 32 : 0);
        *low = (uint8_t)(*low | (q & 15) << (quarter < 2 ? 0 : 4));
        out[128 + 32 * half + l] = (uint8_t)(out[128 + 32 * half + l] | (q >> 4) << (2 * quarter));
    }
}

static void put_row(specrt_dtype dtype, const float *x, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = specrt__base_bits(x[i]);
        if (dtype == SPECRT_DTYPE_F32) memcpy(out + 4 * i, &x[i], 4);
        if (dtype == SPECRT_DTYPE_F16) put_half(out + 2 * i, x[i]);
        if (dtype == SPECRT_DTYPE_BF16) memcpy(out + 2 * i, (uint8_t *)&bits + 2, 2);
        if (dtype == SPECRT_DTYPE_Q8_0 && i % 32 == 0) put_q8_0(x + i, out + 34 * (i / 32));
        if (dtype == SPECRT_DTYPE_Q4_0 && i % 32 == 0) put_q4_0(x + i, out + 18 * (i / 32));
        if (dtype == SPECRT_DTYPE_Q6_K && i % 256 == 0) put_q6_k(x + i, out + 210 * (i / 256));
    }
}

/* A head of n_rows by n_cols in a format, from f32 values. */
static uint8_t *head_rows(specrt_dtype dtype, const float *values, int64_t n_rows, int64_t n_cols) {
    size_t row_bytes = specrt_row_bytes(dtype, n_cols);
    uint8_t *rows = (uint8_t *)malloc(row_bytes * (size_t)n_rows);
    for (int64_t r = 0; r < n_rows; r++)
        put_row(dtype, values + r * n_cols, n_cols, rows + (size_t)r * row_bytes);
    return rows;
}

static float *random_values(size_t n, uint64_t seed) {
    float *x = (float *)malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = fixture_normal(&seed);
    return x;
}

/* --- kernels --- */

static const specrt_dtype formats[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                       SPECRT_DTYPE_Q8_0};

/* Those this machine can run, scalar first. */
static int families(const specrt__simd_kernels *out[3]) {
    int n = 0;
    out[n++] = &specrt__simd_kernels_scalar;
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = &specrt__simd_kernels_avx2;
    if (__builtin_cpu_supports("avx512f")) out[n++] = &specrt__simd_kernels_avx512;
#endif
    return n;
}

enum { ROWS = 11, BATCH = 9, MAX_COLS = 1056 };

/* One shape in one format: rows at an odd address with an odd stride. */
typedef struct shape {
    specrt_segment segment;
    int64_t n_cols;
    uint8_t *block;
    float decoded[ROWS][MAX_COLS], hidden[BATCH * MAX_COLS], bias[ROWS];
} shape;

static shape *shape_make(specrt_dtype dtype, int64_t n_cols, uint64_t seed) {
    shape *s = (shape *)calloc(1, sizeof *s);
    size_t row_bytes = specrt_row_bytes(dtype, n_cols), stride = row_bytes + 3;
    s->n_cols = n_cols;
    s->block = (uint8_t *)malloc(1 + ROWS * stride);
    for (int r = 0; r < ROWS; r++) {
        uint8_t *row = s->block + 1 + (size_t)r * stride;
        for (int64_t j = 0; j < n_cols; j++) s->decoded[r][j] = fixture_normal(&seed);
        put_row(dtype, s->decoded[r], n_cols, row);
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
    for (int f = 0; f < n_families; f++)
        for (int n = 1; n <= BATCH; n++) {
            memset(logits, 0xff, sizeof logits);
            specrt__head_products(family[f], &s->segment, 0, 8, n_cols, s->hidden, n, logits, ROWS);
            specrt__head_products(family[f], &s->segment, 8, ROWS, n_cols, s->hidden, n, logits,
                                  ROWS);
            CHECK(memcmp(logits, first, (size_t)(n * ROWS) * sizeof *logits) == 0);
        }
    shape_free(s);
}

static void test_kernels(void) {
    const int64_t cols[] = {1,  2,  15, 16,  17,  31,  32,   33,  48,
                            63, 64, 96, 100, 255, 256, 1000, 1056};
    for (size_t f = 0; f < 4; f++)
        for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
            if (specrt_row_bytes(formats[f], cols[c]) > 0) check_shape(formats[f], cols[c]);
}

/* A format's kernel equals the f32 kernel over decoded rows, bit for bit: decoding is exact. */
static void test_decoded_alike(void) {
    for (size_t f = 1; f < 4; f++) {
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
static void test_special_values(void) {
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

static void test_sum_exp(void) {
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

/* --- the sketch --- */

/* docs/FORMAT.md once more, over decoded rows, as somebody else would write it. */
static void sketch_by_the_page(const float *values, int64_t n_rows, int64_t n_cols,
                               specrt_sketch *out) {
    for (int i = 0; i < 64; i++)
        for (int p = 0; p < 4; p++) {
            const float *row = values + (2 * i + 1) * n_rows / 128 * n_cols;
            double sum = 0;
            for (int64_t j = 0; j < n_cols; j++) {
                uint64_t z = ((uint64_t)j + 1) * 0x9E3779B97F4A7C15u;
                z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
                z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
                z = z ^ (z >> 31);
                sum += (z >> p & 1 ? -1.0 : 1.0) * row[j];
            }
            out->values[i][p] = (float)(sum / sqrt((double)n_cols));
        }
}

static void test_sketch(void) {
    const int64_t sizes[][2] = {{1, 1}, {5, 40}, {64, 256}, {1000, 257}, {300, 700}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n_rows = sizes[i][0], n_cols = sizes[i][1];
        float *values = random_values((size_t)(n_rows * n_cols), i + 1);
        specrt_head_desc desc = {
            .rows = values, .dtype = SPECRT_DTYPE_F32, .n_rows = n_rows, .n_cols = n_cols};
        specrt_sketch got, expected;
        CHECK_INT(specrt_head_sketch(&desc, &got, NULL), SPECRT_STATUS_OK);
        sketch_by_the_page(values, n_rows, n_cols, &expected);
        CHECK(memcmp(&got, &expected, sizeof got) == 0);
        CHECK(specrt_sketch_distance(&got, &expected) == 0);
        free(values);
    }
}

static float distance(specrt_dtype dtype, const float *values, const float *other, int64_t n_rows,
                      int64_t n_cols) {
    uint8_t *rows = head_rows(dtype, other, n_rows, n_cols);
    specrt_head_desc a = {
        .rows = values, .dtype = SPECRT_DTYPE_F32, .n_rows = n_rows, .n_cols = n_cols};
    specrt_head_desc b = {.rows = rows, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    specrt_sketch sa, sb;
    CHECK_INT(specrt_head_sketch(&a, &sa, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_head_sketch(&b, &sb, NULL), SPECRT_STATUS_OK);
    free(rows);
    CHECK(specrt_sketch_distance(&sa, &sb) == specrt_sketch_distance(&sb, &sa));
    return specrt_sketch_distance(&sa, &sb);
}

/* Quantisations of one head are near; every impostor is far, also when 80% of a row is common to all. */
static void test_distance(void) {
    enum { N_ROWS = 700, N_COLS = 256 };
    for (int mean = 0; mean <= 2; mean++) {
        float *w = random_values((N_ROWS + 1) * N_COLS, 3), *common = random_values(N_COLS, 4);
        float *other = random_values(N_ROWS * N_COLS, 5),
              *scaled = random_values(N_ROWS * N_COLS, 6);
        for (int i = 0; i < (N_ROWS + 1) * N_COLS; i++) w[i] += (float)mean * common[i % N_COLS];
        for (int i = 0; i < N_ROWS * N_COLS; i++) {
            other[i] += (float)mean * common[i % N_COLS];
            scaled[i] = 2 * w[i];
        }
        CHECK(distance(SPECRT_DTYPE_F32, w, w, N_ROWS, N_COLS) == 0);
        CHECK(distance(SPECRT_DTYPE_F16, w, w, N_ROWS, N_COLS) < 0.002f);
        CHECK(distance(SPECRT_DTYPE_BF16, w, w, N_ROWS, N_COLS) < 0.01f);
        CHECK(distance(SPECRT_DTYPE_Q8_0, w, w, N_ROWS, N_COLS) < 0.02f);
        CHECK(distance(SPECRT_DTYPE_Q6_K, w, w, N_ROWS, N_COLS) < 0.1f);
        CHECK(distance(SPECRT_DTYPE_Q4_0, w, w, N_ROWS, N_COLS) < 0.3f);
        CHECK(distance(SPECRT_DTYPE_F32, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_Q4_0, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_F32, w, other, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_F32, w, scaled, N_ROWS, N_COLS) > 0.7f);
        free(w), free(common), free(other), free(scaled);
    }
    specrt_sketch zero = {{{0}}}, constant = {{{0}}}, some = {{{1}}};
    for (int i = 0; i < 64; i++) constant.values[i][1] = 3;
    CHECK(specrt_sketch_distance(&zero, &zero) == 0);
    CHECK(specrt_sketch_distance(&zero, &constant) == 0);
    CHECK(specrt_sketch_distance(&zero, &some) > 1e30f);
}

/* The same on a trained embedding of 128,256 rows. */
static void test_distance_trained(void) {
    gguf *model;
    const char *path = test_data("weights/pair128k/target.gguf");
    REQUIRE(gguf_open(path, &model, NULL) == SPECRT_STATUS_OK);
    const gguf_tensor *t = gguf_find_tensor(model, "token_embd.weight");
    REQUIRE(t);
    enum { N_ROWS = 128255, N_COLS = 256 };
    float *w = (float *)malloc((size_t)(N_ROWS + 1) * N_COLS * sizeof *w);
    size_t row_bytes = specrt_row_bytes(t->type, N_COLS);
    for (int r = 0; r <= N_ROWS; r++)
        specrt_row_decode(t->type, t->data + (size_t)r * row_bytes, N_COLS, w + r * N_COLS);
    CHECK(distance(SPECRT_DTYPE_F16, w, w, N_ROWS, N_COLS) < 0.002f);
    CHECK(distance(SPECRT_DTYPE_Q6_K, w, w, N_ROWS, N_COLS) < 0.1f);
    CHECK(distance(SPECRT_DTYPE_Q4_0, w, w, N_ROWS, N_COLS) < 0.2f);
    CHECK(distance(SPECRT_DTYPE_Q4_0, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
    free(w);
    gguf_close(model);
}

/* --- binding --- */

static void test_bad_heads(void) {
    static const float rows[64];
    const specrt_head_desc good = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = 2, .n_cols = 32};
    specrt_head_desc d;
    specrt_head *head;
    specrt_error err;
    CHECK_INT(specrt_head_bind(NULL, &good, NULL, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
    specrt_head_close(NULL);
#define HEAD_BAD(change, status, message)                                                          \
    do {                                                                                           \
        d = good;                                                                                  \
        change;                                                                                    \
        CHECK_INT(specrt_head_bind(NULL, &d, NULL, &head, &err), status);                          \
        CHECK(!head);                                                                              \
        CHECK_HAS(err.msg, message);                                                               \
    } while (0)
    HEAD_BAD(d.rows = NULL, SPECRT_STATUS_BAD_ARG, "rows");
    HEAD_BAD(d.n_rows = 0, SPECRT_STATUS_BAD_ARG, "expected 1 to 16777216 rows in memory, found 0");
    HEAD_BAD(d.n_rows = -1, SPECRT_STATUS_BAD_ARG, "found -1");
    HEAD_BAD(d.n_rows = SPECRT_MAX_VOCAB + 1, SPECRT_STATUS_BAD_ARG, "found 16777217");
    HEAD_BAD(d.n_cols = 0, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.n_cols = -32, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.n_cols = INT64_MAX / 2, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.dtype = SPECRT_DTYPE_Q8_0; d.n_cols = 33, SPECRT_STATUS_BAD_ARG, "blocks of q8_0");
    HEAD_BAD(d.dtype = SPECRT_DTYPE_I32, SPECRT_STATUS_UNSUPPORTED, "found i32");
    HEAD_BAD(d.dtype = (specrt_dtype)99, SPECRT_STATUS_UNSUPPORTED, "type 99");
    HEAD_BAD(d.row_stride = 127, SPECRT_STATUS_BAD_ARG, "at least 128 bytes, found 127");
    HEAD_BAD(d.row_stride = SIZE_MAX / 2, SPECRT_STATUS_BAD_ARG, "row_stride");
#undef HEAD_BAD
}

/* A bundle that records this head, opened. */
static specrt_bundle *bundle_of(const specrt_head_desc *desc, int32_t n_vocab, uint8_t **bytes) {
    size_t n;
    specrt_bundle *bundle;
    specrt_ident ident = {.n_vocab = n_vocab};
    strcpy(ident.tokenizer_name, "words");
    strcpy(ident.head_name, "small");
    if (desc) {
        ident.head_rows = (int32_t)desc->n_rows;
        ident.head_cols = (int32_t)desc->n_cols;
        CHECK_INT(specrt_head_sketch(desc, &ident.head_sketch, NULL), SPECRT_STATUS_OK);
    }
    fixture_section s = {"ident", 1, 0, &ident, sizeof ident, sizeof ident};
    *bytes = fixture_bundle(&s, 1, &n);
    REQUIRE(specrt_bundle_open_memory(*bytes, n, "b.specb", NULL, &bundle, NULL) == 0);
    return bundle;
}

static specrt_status bind(const specrt_bundle *bundle, specrt_dtype dtype, const float *values,
                          int64_t n_rows, int64_t n_cols, specrt_error *err) {
    uint8_t *rows = head_rows(dtype, values, n_rows, n_cols);
    specrt_head_desc desc = {.rows = rows, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    specrt_head *head;
    specrt_status status = specrt_head_bind(bundle, &desc, NULL, &head, err);
    CHECK((status == SPECRT_STATUS_OK) == (head != NULL));
    specrt_head_close(head);
    free(rows);
    return status;
}

static void test_bind(void) {
    enum { N_ROWS = 300, N_COLS = 256 };
    float *w = random_values((N_ROWS + 1) * N_COLS, 8);
    uint8_t *f16 = head_rows(SPECRT_DTYPE_F16, w, N_ROWS, N_COLS), *bytes;
    specrt_head_desc desc = {
        .rows = f16, .dtype = SPECRT_DTYPE_F16, .n_rows = N_ROWS, .n_cols = N_COLS};
    specrt_bundle *bundle = bundle_of(&desc, N_ROWS - 7, &bytes);
    specrt_error err;
    for (int f = 0; f < 4; f++)
        CHECK_INT(bind(bundle, formats[f], w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_Q4_0, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_Q6_K, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w + N_COLS, N_ROWS, N_COLS, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "b.specb: head: expected the weights of 'small'");
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS + 1, N_COLS, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected 'small' [300, 256], found [301, 256]");
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS, N_COLS - 32, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    w[(2 * 5 + 1) * N_ROWS / 128 * N_COLS + 9] = NAN;
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "row 25");
    specrt_bundle_close(bundle);
    free(bytes), free(f16), free(w);
}

/* A bundle that knows only the tokenizer asks for enough rows. */
static void test_bind_vocabulary(void) {
    float *w = random_values(40 * 32, 8);
    uint8_t *bytes;
    specrt_bundle *bundle = bundle_of(NULL, 30, &bytes);
    specrt_error err;
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 30, 32, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 40, 32, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 29, 32, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "at least the 30 rows of tokenizer 'words', found 29");
    specrt_bundle_close(bundle);
    free(bytes), free(w);
}

static void test_bind_memory(void) {
    static const float rows[32];
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = 1, .n_cols = 32};
    specrt_head *head;
    specrt_error err;
    fixture_allocator a = {.fail_at = 1};
    specrt_desc env = fixture_desc(&a);
    CHECK_INT(specrt_head_bind(NULL, &desc, &env, &head, &err), SPECRT_STATUS_NO_MEMORY);
    CHECK(!head);
    CHECK_INT(specrt_head_bind(NULL, &desc, &env, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
    CHECK_INT(a.n_live, 0);
}

static const test_case cases[] = {
    {"kernels", "every format, shape, batch and instruction set: right, and the same bits",
     test_kernels},
    {"decoded_alike", "a stored row scores as its decoded row", test_decoded_alike},
    {"special_values", "infinities and NaN", test_special_values},
    {"sum_exp", "sums of exponentials against doubles", test_sum_exp},
    {"sketch", "the sketch as docs/FORMAT.md describes it", test_sketch},
    {"distance", "quantisations are near, other heads far", test_distance},
    {"distance_trained", "the same on trained weights", test_distance_trained},
    {"bad_heads", "descriptions that make no sense", test_bad_heads},
    {"bind", "quantised heads bind; shifted, padded and broken ones do not", test_bind},
    {"bind_vocabulary", "fewer rows than tokens", test_bind_vocabulary},
    {"bind_memory", "a failing allocator", test_bind_memory},
};
TEST_MAIN(cases)
