/* test_gpu_real.c : products and rankings of published models' sizes (long=1, on a GPU), of which
 * rows drawn by chance are compared with sums of doubles; else the same of sizes that the harness gets
 * through. */
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "gpu.h"

enum { BLOCK = 1024, MAX_N = 64, K = 10 };

GPU_RANDOM(41)

/* A head of one block of rows over and over, a little more than whole rows long, so that each row differs. */
typedef struct real_head {
    specrt_dtype dtype; /* q8_0 in planes: of what pack_rows() made */
    int32_t n_rows, n_cols;
    size_t row_bytes, stride, period; /* stride: between rows; period: bytes of the block */
    uint8_t *block;                   /* [period], and a row more */
    uint8_t *rows;                    /* DEVICE [n_rows, n_cols] */
} real_head;

static real_head make_head(specrt_dtype dtype, int32_t n_rows, int32_t n_cols) {
    size_t bytes = specrt_row_bytes(dtype, n_cols);
    real_head h = {dtype, n_rows, n_cols, bytes, bytes, 0, NULL, NULL};
    int64_t n = (int64_t)(n_rows < BLOCK ? n_rows : BLOCK) * n_cols + 32;
    size_t total = (size_t)n_rows * h.row_bytes;
    float *values = (float *)malloc((size_t)n * sizeof *values);
    h.period = specrt_row_bytes(dtype, n);
    h.block = (uint8_t *)malloc(h.period + h.row_bytes);
    h.rows = (uint8_t *)gpu_alloc(total);
    REQUIRE(values && h.block);
    for (int64_t i = 0; i < n; i++) values[i] = 0.05f * fixture_normal(&random_state);
    quantise_row(dtype, values, n, h.block);
    memcpy(h.block + h.period, h.block, h.row_bytes);
    for (size_t at = 0; at < total; at += h.period)
        gpu_put(h.rows + at, h.block, total - at < h.period ? total - at : h.period);
    free(values);
    return h;
}

/* Packs all rows, which are then `stride` bytes apart; q8_0 becomes planes. */
static void pack_rows(real_head *h, size_t stride) {
    int32_t *ids = (int32_t *)malloc((size_t)h->n_rows * sizeof *ids);
    REQUIRE(ids);
    for (int32_t i = 0; i < h->n_rows; i++) ids[i] = i;
    specrt__cuda_head head = {h->rows, NULL, NULL, h->dtype, h->n_rows, h->n_cols, h->row_bytes};
    specrt__cuda_packing all = {.ids = (int32_t *)gpu_copy(ids, (size_t)h->n_rows * sizeof *ids),
                                .n = (int32_t *)gpu_copy(&h->n_rows, sizeof h->n_rows),
                                .rows = gpu_alloc((size_t)h->n_rows * stride)};
    void *packing = gpu_copy(&all, sizeof all);
    REQUIRE(!specrt__cuda_pack(&head, packing, 1, h->n_rows, stride, NULL));
    gpu_check(cudaStreamSynchronize(NULL), "pack");
    gpu_free(h->rows), gpu_free((void *)(uintptr_t)all.ids);
    gpu_free((void *)(uintptr_t)all.n), gpu_free(packing);
    free(ids);
    h->rows = (uint8_t *)all.rows;
    h->stride = stride;
    if (h->dtype == SPECRT_DTYPE_Q8_0) h->dtype = SPECRT__CUDA_Q8_0_PLANES;
}

/* The same in memory as sessions pack them: rows begin at multiples of 16 bytes. */
static void pack_rows_closely(real_head *h) {
    pack_rows(h, (h->row_bytes + 15) / 16 * 16);
}

static void free_head(real_head *h) {
    free(h->block);
    gpu_free(h->rows);
}

/* Row r as numbers. */
static void read_row(const real_head *h, int32_t r, float *out) {
    specrt_dtype dtype = h->dtype == SPECRT__CUDA_Q8_0_PLANES ? SPECRT_DTYPE_Q8_0 : h->dtype;
    specrt_row_decode(dtype, h->block + (size_t)r * h->row_bytes % h->period, h->n_cols, out);
}

/* A logit of row x and state y [n] against the sum of doubles; rounded: states lose bits on the way. */
static void check_logit(const float *x, const float *y, int32_t n, bool rounded, float found) {
    double sum = 0, xx = 0, yy = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    CHECK_NEAR((double)found, sum, (rounded ? 2e-5 : 2e-6) * sqrt(xx * yy) + 1e-6);
}

/* n states of a type, also as numbers [n, n_cols]. */
static void *make_states(specrt_dtype dtype, int32_t n, int32_t n_cols, float *values) {
    size_t count = (size_t)n * (size_t)n_cols, bytes = specrt_row_bytes(dtype, (int64_t)count);
    uint8_t *stored = (uint8_t *)malloc(bytes);
    REQUIRE(stored);
    for (size_t i = 0; i < count; i++) values[i] = fixture_normal(&random_state);
    quantise_row(dtype, values, (int64_t)count, stored);
    specrt_row_decode(dtype, stored, (int64_t)count, values);
    void *out = gpu_copy(stored, bytes);
    free(stored);
    return out;
}

/* The best of whole rows of logits, on the device and by the twin. */
static void check_topk(const float *device, const float *logits, int32_t n, int32_t n_columns) {
    specrt__cuda_batch batch = {1, n, NULL, 0};
    static int32_t found[SPECRT_TREE_MAX_NODES * K];
    int32_t expected[K], *ids = (int32_t *)gpu_alloc(sizeof found);
    void *scratch = gpu_zeros(specrt__cuda_topk_bytes(n_columns, n, K));
    REQUIRE(!specrt__cuda_target_topk(&batch, device, n_columns, K, ids, NULL, scratch, NULL));
    gpu_get(found, ids, sizeof found);
    for (int32_t h = 0; h < n; h++) {
        int32_t k =
            specrt_logits_topk(logits + (size_t)h * (size_t)n_columns, n_columns, K, expected);
        for (int32_t i = 0; i < k; i++) CHECK_INT(found[h * K + i], expected[i]);
    }
    gpu_free(ids), gpu_free(scratch);
}

/* n states of a type times the first rows of a head. */
static void check_product(const real_head *h, int32_t n_rows, int32_t n, specrt_dtype dtype) {
    size_t n_cols = (size_t)h->n_cols, bytes = (size_t)n_rows * (size_t)n * sizeof(float);
    float *values = (float *)malloc((size_t)n * n_cols * sizeof *values);
    float *row = (float *)malloc(n_cols * sizeof *row), *found = (float *)malloc(bytes);
    float *logits = (float *)gpu_alloc(bytes);
    REQUIRE(values && row && found);
    void *states = make_states(dtype, n, h->n_cols, values);
    specrt__cuda_segment segment = {.rows = h->rows, .row_stride = h->stride, .max_rows = n_rows};
    specrt__cuda_layout layout = {1, h->n_cols, {h->dtype}, {n_rows}, {0}};
    specrt__cuda_segment *segments = (specrt__cuda_segment *)gpu_copy(&segment, sizeof segment);
    specrt__cuda_batch batch = {1, n, NULL, 0};
    REQUIRE(!specrt__cuda_logits(&layout, segments, &batch, states, dtype, logits, NULL));
    gpu_get(found, logits, bytes);
    bool rounded = h->dtype == SPECRT_DTYPE_BF16 && dtype != SPECRT_DTYPE_BF16;
    int32_t n_sets =
        n_rows < 1024 ? n_rows : 1024; /* a row of each, and so of every part of the grid */
    for (int32_t i = 0; i < n_sets && test_failures == 0; i++) {
        int64_t first = (int64_t)n_rows * i / n_sets, end = (int64_t)n_rows * (i + 1) / n_sets;
        int32_t r =
            (int32_t)(first + (int64_t)(fixture_random(&random_state) % (uint64_t)(end - first)));
        if (i == n_sets - 1) r = n_rows - 1;
        read_row(h, r, row);
        for (int32_t j = 0; j < n; j++)
            check_logit(row, values + (size_t)j * n_cols, h->n_cols, rounded,
                        found[(size_t)j * (size_t)n_rows + (size_t)r]);
    }
    if (test_failures > 0)
        fprintf(stderr, "%s rows: %d of %d columns, %d states of %s\n",
                h->dtype == SPECRT__CUDA_Q8_0_PLANES ? "planes" : specrt_dtype_name(h->dtype),
                (int)n_rows, (int)h->n_cols, (int)n, specrt_dtype_name(dtype));
    check_topk(logits, found, n, n_rows);
    free(values), free(row), free(found);
    gpu_free(logits), gpu_free(states), gpu_free(segments);
}

/* All rows with states of their own type, some with f32 ones. */
static void check_counts(const real_head *h, int32_t n_part) {
    static const int32_t counts[] = {1, 10, MAX_N};
    specrt_dtype own = h->dtype == SPECRT_DTYPE_BF16 ? SPECRT_DTYPE_BF16 : SPECRT_DTYPE_F16;
    for (int i = 0; i < 3; i++) {
        check_product(h, h->n_rows, counts[i], own);
        check_product(h, n_part, counts[i], SPECRT_DTYPE_F32);
    }
}

static void check_shape(specrt_dtype dtype, int32_t n_rows, int32_t n_cols, int32_t n_part) {
    real_head h = make_head(dtype, n_rows, n_cols);
    check_counts(&h, n_part);
    if (dtype == SPECRT_DTYPE_Q8_0) {
        pack_rows_closely(&h);
        check_counts(&h, n_part);
    }
    free_head(&h);
}

TEST(shapes, "1, 10 and 64 states times heads of each type, and their best rows") {
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16, SPECRT_DTYPE_Q8_0,
                                          SPECRT_DTYPE_F32};
    bool real = gpu_long();
    for (int i = 0; i < 4; i++) {
        check_shape(dtypes[i], real ? 128256 : 300, real ? 4096 : 64, real ? 8192 : 129);
        if (test_quick() && i > 0) continue;
        check_shape(dtypes[i], real ? 151936 : 77, real ? 3584 : 96, real ? 3072 : 40);
    }
}

/* Ten states of the rows' own kind times a head as Qwen2.5-0.5B has, which tests/gpu/ptx gets through in
 * seconds. */
static void check_whole(specrt_dtype dtype, specrt_dtype states) {
    bool real = gpu_long();
    real_head h = make_head(dtype, real ? 151936 : 301, real ? 896 : 64);
    check_product(&h, h.n_rows, 10, states);
    if (dtype == SPECRT_DTYPE_Q8_0) {
        pack_rows_closely(&h);
        check_product(&h, h.n_rows, 10, states);
    }
    free_head(&h);
}
TEST(whole_f16, "all rows of a vocabulary") {
    check_whole(SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
}
TEST(whole_bf16, "the same") {
    check_whole(SPECRT_DTYPE_BF16, SPECRT_DTYPE_BF16);
}
TEST(whole_q8_0, "the same, in blocks and in planes") {
    check_whole(SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_F16);
}
TEST(whole_f32, "the same") {
    check_whole(SPECRT_DTYPE_F32, SPECRT_DTYPE_F32);
}

TEST(whole_far, "few rows over more than 4 GiB, where a byte offset of 32 bits does not reach") {
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F16, SPECRT_DTYPE_Q8_0};
    bool real = gpu_long();
    for (int i = 0; i < 2; i++) {
        real_head h = make_head(dtypes[i], real ? 1500 : 33, real ? 4096 : 64);
        pack_rows(&h, real ? 3 << 20 : 1024);
        check_product(&h, h.n_rows, 1, SPECRT_DTYPE_F16);
        free_head(&h);
    }
}
