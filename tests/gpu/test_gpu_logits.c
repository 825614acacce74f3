/* test_gpu_logits.c : products on the device against the CPU's. */
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "gpu.h"

enum { MAX_ROWS = 160, MAX_COLS = 1344, BATCH = 2, MAX_STATES = 64 };

GPU_RANDOM(11)

/* A segment of each sequence, on both sides. */
typedef struct rows_case {
    uint8_t rows[MAX_ROWS * MAX_COLS * 4];
    float bias[MAX_ROWS];
    int32_t ids[MAX_ROWS], places[MAX_ROWS], masked[MAX_ROWS], n_masked, n_rows;
    uint32_t bitmap[(MAX_ROWS + 31) / 32];
    uint64_t takers[MAX_ROWS]; /* with masked rows: states that score each */
} rows_case;

typedef struct shape {
    specrt_dtype dtype, state_dtype;
    bool planes; /* q8_0 rows as the device packs them */
    int32_t n_cols, max_rows, max_n;
    size_t stride; /* of rows */
    bool places, bias, masked;
    bool nan; /* every third state has one */
} shape;

static void fill_rows(const shape *s, rows_case *c) {
    float values[MAX_COLS];
    memset(c, 0, sizeof *c);
    for (int32_t r = 0; r < s->max_rows; r++) {
        for (int32_t j = 0; j < s->n_cols; j++)
            values[j] = fixture_normal(&random_state) * (j % 17 == 3 ? 4.0f : 0.1f);
        quantise_row(s->dtype, values, s->n_cols, c->rows + (size_t)r * s->stride);
        c->bias[r] = fixture_normal(&random_state);
        c->ids[r] = 3 * r + 1;
        c->places[r] = random_below(s->max_rows);
        c->takers[r] = fixture_random(&random_state);
        if (random_below(5) == 0) {
            c->masked[c->n_masked++] = r;
            c->bitmap[r / 32] |= 1u << r % 32;
        }
    }
    c->n_rows = random_below(4) == 0 ? s->max_rows : random_below(s->max_rows + 1);
    while (c->n_masked > 0 && c->masked[c->n_masked - 1] >= c->n_rows) c->n_masked--;
}

/* States as the device sees them and as f32. */
static void fill_states(const shape *s, int64_t n, uint8_t *out, float *values) {
    size_t bytes = s->state_dtype == SPECRT_DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i++) {
        values[i] = fixture_normal(&random_state) * (i % 29 == 0 ? 50.0f : 1.0f);
        if (s->nan && i / s->n_cols % 3 == 1 && i % s->n_cols == s->n_cols / 2) values[i] = NAN;
        quantise_row(s->state_dtype, &values[i], 1, out + bytes * (size_t)i);
        specrt_row_decode(s->state_dtype, out + bytes * (size_t)i, 1, &values[i]);
    }
}

static specrt_segment cpu_segment(const shape *s, const rows_case *c) {
    specrt_segment out = {c->rows,
                          s->stride,
                          c->ids,
                          s->bias ? c->bias : NULL,
                          s->dtype,
                          c->n_rows,
                          c->masked,
                          s->masked ? c->n_masked : 0,
                          s->places ? c->places : NULL,
                          0};
    return out;
}

/* Rows as the device has them, whose bytes the CPU's are but for planes. */
static void *gpu_rows(const shape *s, const rows_case *c) {
    static uint8_t planes[MAX_ROWS * MAX_COLS * 4];
    for (int32_t r = 0; s->planes && r < s->max_rows; r++)
        gpu_planes(c->rows + (size_t)r * s->stride, s->n_cols, planes + (size_t)r * s->stride);
    return gpu_copy(s->planes ? planes : c->rows, (size_t)s->max_rows * s->stride);
}

static specrt_dtype gpu_dtype(const shape *s) {
    return s->planes ? SPECRT__CUDA_Q8_0_PLANES : s->dtype;
}

static specrt__cuda_segment gpu_segment(const shape *s, const rows_case *c) {
    specrt__cuda_segment out = {gpu_rows(s, c),
                                s->stride,
                                gpu_copy(c->ids, sizeof c->ids),
                                s->bias ? gpu_copy(c->bias, sizeof c->bias) : NULL,
                                s->places ? gpu_copy(c->places, sizeof c->places) : NULL,
                                s->masked ? gpu_copy(c->bitmap, sizeof c->bitmap) : NULL,
                                s->masked ? gpu_copy(c->takers, sizeof c->takers) : NULL,
                                gpu_copy(&c->n_rows, sizeof c->n_rows),
                                s->max_rows};
    return out;
}

static void free_segment(const specrt__cuda_segment *s) {
    const void *all[] = {s->rows, s->ids, s->bias, s->places, s->masked, s->scored_by, s->n_rows};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) gpu_free((void *)(uintptr_t)all[i]);
}

static float length_of(const float *x, int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrtf(sum);
}

/* Whether a logit of the device is close to the twin's for this row and state. */
static bool is_close(const shape *s, const rows_case *c, int32_t row, const float *state, float a,
                     float b) {
    float values[MAX_COLS];
    int32_t place = s->places ? c->places[row] : row;
    if (isinf(a) || isinf(b)) return a == b;
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    specrt_row_decode(s->dtype, c->rows + (size_t)place * s->stride, s->n_cols, values);
    float most = length_of(values, s->n_cols) * length_of(state, s->n_cols);
    bool rough = s->dtype == SPECRT_DTYPE_BF16 && s->state_dtype != SPECRT_DTYPE_BF16;
    return fabsf(a - b) <= (rough ? 2e-5f : 2e-6f) * most + 1e-6f * fabsf(b) + 1e-6f;
}

/* Two segments a sequence, of one type or two; all share the first where that is scored by all. */
static int32_t n_splits; /* 0: the product's own choice */

static void run_case(shape first, shape second) {
    static rows_case rows[BATCH][2];
    static uint8_t states[BATCH * MAX_STATES * MAX_COLS * 4];
    static float values[BATCH * MAX_STATES * MAX_COLS];
    static float expected[MAX_STATES * 2 * MAX_ROWS], logits[BATCH * MAX_STATES * 2 * MAX_ROWS];
    shape shapes[2] = {first, second};
    int32_t max_n = first.max_n, d = first.n_cols, width = first.max_rows + second.max_rows;
    specrt__cuda_segment segments[BATCH][2];
    specrt__cuda_layout layout = {2,
                                  d,
                                  {gpu_dtype(&first), gpu_dtype(&second)},
                                  {first.max_rows, second.max_rows},
                                  {!first.masked}};
    int32_t n[2 * BATCH] = {max_n, -1, random_below(max_n + 1), -1};
    size_t state_bytes = (size_t)d * (first.state_dtype == SPECRT_DTYPE_F32 ? 4 : 2);
    fill_states(&first, (int64_t)BATCH * max_n * d, states, values);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < 2; i++) {
            fill_rows(&shapes[i], &rows[b][i]);
            if (layout.shared[i]) rows[b][i] = rows[0][i];
            segments[b][i] = gpu_segment(&shapes[i], &rows[b][i]);
        }
    void *device_segments = gpu_copy(segments, sizeof segments), *counts = gpu_copy(n, sizeof n);
    void *hidden = gpu_copy(states, (size_t)(BATCH * max_n) * state_bytes);
    size_t bytes = (size_t)(BATCH * max_n * width) * sizeof(float);
    float *out = gpu_alloc(bytes);
    specrt__cuda_batch batch = {BATCH, max_n, counts, 2};
    REQUIRE(!specrt__cuda_split_logits(n_splits, &layout, device_segments, &batch, hidden,
                                       first.state_dtype, out, NULL));
    gpu_get(logits, out, bytes);
    specrt_head_desc desc = {.rows = rows[0][0].rows,
                             .dtype = first.dtype,
                             .n_rows = first.max_rows,
                             .n_cols = d,
                             .row_stride = first.stride};
    specrt_head *head = bind_head(NULL, &desc);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < 2; i++) {
            specrt_segment segment = cpu_segment(&shapes[i], &rows[b][i]);
            specrt_shortlist shortlist = {
                specrt_head_compute(head), &segment, 1, segment.n_rows, d, NULL};
            const float *x = values + b * max_n * d;
            if (n[2 * b] == 0 || segment.n_rows == 0) continue;
            specrt_shortlist_logits(&shortlist, x, n[2 * b], expected);
            for (int32_t h = 0; h < n[2 * b]; h++)
                for (int32_t r = 0; r < segment.n_rows; r++) {
                    float got = logits[(b * max_n + h) * width + (i ? first.max_rows : 0) + r];
                    float want = expected[h * segment.n_rows + r];
                    if (shapes[i].masked && !(rows[b][i].takers[r] >> h & 1)) want = -INFINITY;
                    bool close = is_close(&shapes[i], &rows[b][i], r, x + h * d, got, want);
                    if (!close)
                        fprintf(stderr, "type %d, states of %d, %d: row %d, state %d: %g, %g\n",
                                (int)shapes[i].dtype, (int)first.state_dtype, (int)max_n, (int)r,
                                (int)h, (double)got, (double)want);
                    REQUIRE(close);
                }
        }
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < 2; i++) free_segment(&segments[b][i]);
    gpu_free(device_segments), gpu_free(counts), gpu_free(hidden), gpu_free(out);
    specrt_head_close(head);
}

/* dtype SPECRT__CUDA_Q8_0_PLANES: q8_0 rows in planes. */
static shape make_shape(specrt_dtype dtype, specrt_dtype states, int32_t n_cols, int32_t max_rows,
                        int32_t max_n, int flags) {
    size_t pad = dtype == SPECRT_DTYPE_F32 ? 4 : 2;
    bool planes = dtype == SPECRT__CUDA_Q8_0_PLANES;
    shape s = {dtype, states,    planes,    n_cols,    max_rows,  max_n,
               0,     flags & 1, flags & 2, flags & 4, flags & 16};
    if (planes) s.dtype = SPECRT_DTYPE_Q8_0;
    s.stride = specrt_row_bytes(s.dtype, n_cols) + (flags & 8 ? pad : 0);
    if (planes && !(flags & 8)) s.stride = (s.stride + 15) / 16 * 16;
    return s;
}

enum { N_DTYPES = 5 };
static const specrt_dtype dtypes[N_DTYPES] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                              SPECRT_DTYPE_Q8_0, SPECRT__CUDA_Q8_0_PLANES};

static void run_states(int32_t max_n, int32_t max_rows) {
    for (int i = 0; i < N_DTYPES; i++)
        for (int k = 0; k < 3; k++) {
            int32_t n_cols = i >= 3 ? 32 * (1 + k * 4) : 40 * (1 + k * 3) + k;
            int flags = random_below(16);
            run_case(
                make_shape(dtypes[i], dtypes[k], n_cols, max_rows, max_n, flags),
                make_shape(dtypes[i], dtypes[k], n_cols, 1 + random_below(40), max_n, 15 - flags));
        }
}

TEST(f32, "f32 rows, of up to 16 states in one pass, then in two") {
    static const int32_t counts[] = {4, 16, 18, 19};
    for (int i = 0; i < 4; i++) {
        int32_t n_cols = i % 2 ? 161 : 1052; /* so wide that steps follow each other */
        run_case(make_shape(SPECRT_DTYPE_F32, dtypes[i % 3], n_cols, 45, counts[i], 6),
                 make_shape(SPECRT_DTYPE_F32, dtypes[i % 3], n_cols, 20, counts[i], 9));
    }
}

TEST(tiles, "1 to 64 states of each type with rows of each type at odd shapes") {
    static const int32_t counts[] = {1, 2, 3, 8, 10, 17, 64};
    for (int i = 0; i < 7; i++) run_states(counts[i], 45 + i);
    for (n_splits = 0; n_splits <= 8; n_splits = n_splits ? 2 * n_splits : 1)
        run_case(make_shape(SPECRT_DTYPE_F16, SPECRT_DTYPE_F16, 96, 150, 5, 0), /* fewer splits */
                 make_shape(SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_F16, 96, 20, 5, 1));
    n_splits = 0;
    run_case(make_shape(SPECRT_DTYPE_F16, SPECRT_DTYPE_F32, 96, 33, 64, 6),
             make_shape(SPECRT__CUDA_Q8_0_PLANES, SPECRT_DTYPE_F32, 96, 20, 64, 1));
    for (int i = 1; i < N_DTYPES; i++) { /* so wide that rows of four steps are under way */
        specrt_dtype states = dtypes[i] == SPECRT_DTYPE_BF16 ? SPECRT_DTYPE_BF16 : SPECRT_DTYPE_F16;
        run_case(make_shape(dtypes[i], states, 1344, 17, 9, 2),
                 make_shape(dtypes[i], states, 1344, 9, 9, 0));
    }
    run_case(
        make_shape(SPECRT__CUDA_Q8_0_PLANES, SPECRT_DTYPE_F32, 1312, 17, 9, 1), /* odd blocks */
        make_shape(SPECRT__CUDA_Q8_0_PLANES, SPECRT_DTYPE_F32, 1312, 40, 9, 8));
}

/* A state that is not a number has no logit that is one, whatever it is rounded to on the way; others do. */
TEST(nan, "states that are not numbers") {
    static const int32_t counts[] = {2, 3, 10, 20, 40};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < N_DTYPES; k++) {
            shape s = make_shape(dtypes[k], dtypes[(i + k) % 3], 64, 17, counts[i], 16);
            run_case(s, s);
        }
}

TEST(mixed, "segments of several types, and the states of the other's type") {
    for (int i = 0; i < N_DTYPES; i++)
        for (int k = 0; k < 2; k++)
            run_case(make_shape(dtypes[i], dtypes[i % 3], 64, 37, k ? 9 : 3, 2),
                     make_shape(dtypes[(i + 1) % N_DTYPES], dtypes[i % 3], 64, 21, k ? 9 : 3, 5));
}

TEST(refusals, "bad arguments give a status") {
    specrt__cuda_layout layout = {1, 64, {SPECRT_DTYPE_F16}, {8}, {0}}, bad;
    specrt__cuda_segment s;
    float x[64] = {0};
    memset(&s, 0, sizeof s);
    specrt__cuda_batch batch = {1, 1, NULL, 0};
#define TRY(layout, n, dtype)                                                                      \
    (batch.n_batch = (n), specrt__cuda_logits(layout, &s, &batch, x, dtype, x, NULL))
    CHECK_INT(TRY(NULL, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(&layout, 0, SPECRT_DTYPE_F32), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(TRY(&layout, 1, SPECRT_DTYPE_Q8_0), SPECRT_STATUS_UNSUPPORTED);
    bad = layout, bad.n_segments = SPECRT__CUDA_MAX_SEGMENTS + 1;
    CHECK_INT(TRY(&bad, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_BAD_ARG);
    bad = layout, bad.max_rows[0] = 0;
    CHECK_INT(TRY(&bad, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_BAD_ARG);
    bad = layout, bad.dtypes[0] = SPECRT_DTYPE_Q6_K;
    CHECK_INT(TRY(&bad, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_UNSUPPORTED);
    bad = layout, bad.n_cols = 1 << 20;
    CHECK_INT(TRY(&bad, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_UNSUPPORTED);
    batch.max_n = 65;
    CHECK_INT(TRY(&layout, 1, SPECRT_DTYPE_F32), SPECRT_STATUS_BAD_ARG);
#undef TRY
    batch.max_n = 1;
    for (int32_t splits = -1; splits <= 16; splits += splits == 3 ? 13 : 4)
        CHECK_INT(
            specrt__cuda_split_logits(splits, &layout, &s, &batch, x, SPECRT_DTYPE_F32, x, NULL),
            SPECRT_STATUS_BAD_ARG);
}
