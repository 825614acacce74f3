/* test_gpu_topk.c : rankings on the device against the CPU's: the same ids, log-probabilities within 1e-5. */
#include <stdbool.h>
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "gpu.h"

enum { MAX_COLUMNS = 70000, BATCH = 2, MAX_N = 3, MAX_SEGMENTS = 3, MOST_K = 256 };

GPU_RANDOM(23)

/* How the CPU ranks: by any head's. */
static const specrt_compute *compute_of(specrt_head **head) {
    static float row[1];
    *head = bind_rows(NULL, row, 1, 1);
    return specrt_head_compute(*head);
}

/* How logits come: as they do, all in a few values, all alike, mostly -inf or all, with infinity and NaN. */
enum { NORMAL, FEW, EQUAL, MASKED, NOTHING, WILD, DISTRIBUTIONS };

static float draw_logit(int distribution) {
    float x = fixture_normal(&random_state);
    if (distribution == FEW) return floorf(2 * x);
    if (distribution == EQUAL) return -0.0f;
    if (distribution == NOTHING) return -INFINITY;
    if (distribution == MASKED) return random_below(20) ? -INFINITY : 8 * x;
    if (distribution == WILD && random_below(50) == 0) return NAN;
    if (distribution == WILD && random_below(400) == 0)
        return random_below(2) ? INFINITY : -INFINITY;
    return 8 * x;
}

/* Logits of a sequence as the twin has them: without the columns beyond each segment's count. */
static int32_t gather(const float *row, const int32_t *max_rows, const int32_t *n_rows,
                      int32_t n_segments, float *out) {
    int32_t n = 0;
    for (int32_t s = 0; s < n_segments; row += max_rows[s++])
        for (int32_t i = 0; i < n_rows[s]; i++) out[n++] = row[i];
    return n;
}

static void check_row(const specrt_shortlist *shortlist, const float *logits, int32_t k,
                      const int32_t *ids, const float *logprobs) {
    int32_t want_ids[MOST_K], n = shortlist->n_rows < k ? shortlist->n_rows : k;
    float want[MOST_K];
    bool finite = true;
    if (n > 0)
        REQUIRE(specrt_shortlist_topk(shortlist, logits, 1, n, want_ids, want) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < shortlist->n_rows; i++) finite = finite && !isnan(logits[i]);
    for (int32_t i = 0; i < n; i++) {
        REQUIRE(ids[i] == want_ids[i]);
        if (!finite) continue; /* the CPU's sum is not defined then */
        if (isinf(want[i]) || isnan(want[i]))
            REQUIRE(isnan(want[i]) || logprobs[i] == want[i]);
        else
            REQUIRE(fabsf(logprobs[i] - want[i]) <= 1e-5f + 1e-6f * fabsf(want[i]));
    }
    for (int32_t i = n; i < k; i++) REQUIRE(ids[i] == -1 && logprobs[i] == -INFINITY);
}

static void run_case(int32_t n_segments, const int32_t *max_rows, int32_t max_n, int32_t k,
                     int distribution) {
    static float logits[BATCH * MAX_N * MAX_COLUMNS], row[MAX_COLUMNS];
    static int32_t ids[BATCH][MAX_COLUMNS];
    static float logprobs[BATCH * MAX_N * MOST_K];
    static int32_t found[BATCH * MAX_N * MOST_K];
    int32_t n_rows[BATCH][MAX_SEGMENTS], counts[BATCH] = {max_n, random_below(max_n + 1)},
                                         width = 0;
    specrt__cuda_segment segments[BATCH * MAX_SEGMENTS];
    specrt__cuda_layout layout = {n_segments, 32, {0}, {0}, {0}};
    void *device_ids[BATCH], *device_rows[BATCH];
    memset(segments, 0, sizeof segments);
    for (int32_t s = 0; s < n_segments; s++) {
        layout.dtypes[s] = SPECRT_DTYPE_F16;
        layout.max_rows[s] = max_rows[s];
        width += max_rows[s];
    }
    for (int b = 0; b < BATCH; b++) {
        for (int32_t i = 0; i < width; i++) { /* distinct, in any order */
            int32_t j = random_below(i + 1);
            ids[b][i] = ids[b][j];
            ids[b][j] = 7 * i + 2;
        }
        for (int32_t s = 0; s < n_segments; s++)
            n_rows[b][s] = random_below(3) ? max_rows[s] : random_below(max_rows[s] + 1);
        device_ids[b] = gpu_copy(ids[b], sizeof ids[b]);
        device_rows[b] = gpu_copy(n_rows[b], sizeof n_rows[b]);
        for (int32_t s = 0, first = 0; s < n_segments; first += max_rows[s++]) {
            specrt__cuda_segment *segment = &segments[b * n_segments + s];
            segment->ids = (int32_t *)device_ids[b] + first;
            segment->n_rows = (int32_t *)device_rows[b] + s;
            segment->max_rows = max_rows[s];
        }
    }
    for (int32_t i = 0; i < BATCH * max_n * width; i++) logits[i] = draw_logit(distribution);
    size_t bytes = specrt__cuda_topk_bytes(width, BATCH * max_n, k);
    void *device_segments = gpu_copy(segments, sizeof segments),
         *n = gpu_copy(counts, sizeof counts);
    void *in = gpu_copy(logits, (size_t)(BATCH * max_n * width) * 4), *scratch = gpu_zeros(bytes);
    int32_t *out_ids = gpu_alloc(sizeof found);
    float *out = gpu_alloc(sizeof logprobs);
    specrt_head *head;
    const specrt_compute *compute = compute_of(&head);
    REQUIRE(bytes > 0);
    specrt__cuda_batch batch = {BATCH, max_n, n, 1};
    REQUIRE(specrt__cuda_topk(&layout, device_segments, &batch, in, k, out_ids, out, scratch,
                              NULL) == SPECRT_STATUS_OK);
    gpu_get(found, out_ids, sizeof found);
    gpu_get(logprobs, out, sizeof logprobs);
    for (int b = 0; b < BATCH; b++)
        for (int32_t h = 0; h < counts[b]; h++) {
            specrt_segment twin[MAX_SEGMENTS];
            int32_t at = b * max_n + h, first = 0;
            memset(twin, 0, sizeof twin);
            for (int32_t s = 0; s < n_segments; first += max_rows[s++]) {
                twin[s].ids = ids[b] + first;
                twin[s].n_rows = n_rows[b][s];
            }
            int32_t n_columns =
                gather(logits + (size_t)at * (size_t)width, max_rows, n_rows[b], n_segments, row);
            specrt_shortlist shortlist = {compute, twin, n_segments, n_columns, 32, NULL};
            check_row(&shortlist, row, k, found + at * k, logprobs + at * k);
        }
    specrt_head_close(head);
    for (int b = 0; b < BATCH; b++) gpu_free(device_ids[b]), gpu_free(device_rows[b]);
    void *used[] = {device_segments, n, in, scratch, out_ids, out};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free(used[i]);
}

TEST(segments, "ids and log-probabilities over up to three segments, of any distribution") {
    static const int32_t shapes[][MAX_SEGMENTS] = {{1, 1, 1}, {300, 5, 33}, {2048, 1, 2047}};
    static const int32_t ks[] = {1, 10, 33};
    for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++)
        for (int i = 0; i < 3; i++)
            run_case(1 + (distribution + i) % 3, shapes[i], 1 + (distribution + i) % MAX_N,
                     ks[(distribution + 2 * i) % 3], distribution);
}

TEST(most, "the most that can be asked for, and more than there is") {
    static const int32_t whole[] = {5000}, few[] = {100, 3};
    static const int32_t many[] = {MAX_COLUMNS}; /* whose parts have more keys than a block holds */
    for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++) {
        run_case(1, whole, 1, 256, distribution);
        run_case(2, few, 2, 200, distribution);
    }
    run_case(1, many, 1, 256, NORMAL);
    run_case(1, many, 1, 256, FEW);
}

static void run_target(int32_t n_vocab, int32_t k, int distribution) {
    static float logits[BATCH * MAX_N * MAX_COLUMNS];
    static int32_t ids[BATCH * SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K];
    static float sums[BATCH * SPECRT_TREE_MAX_NODES];
    int32_t counts[2 * BATCH] = {1, 9, MAX_N, 9};
    for (int32_t i = 0; i < BATCH * MAX_N * n_vocab; i++) logits[i] = draw_logit(distribution);
    void *in = gpu_copy(logits, (size_t)(BATCH * MAX_N * n_vocab) * 4),
         *n = gpu_copy(counts, sizeof counts);
    void *scratch = gpu_zeros(specrt__cuda_topk_bytes(n_vocab, BATCH * MAX_N, k));
    int32_t *out = gpu_alloc(sizeof ids);
    float *total = gpu_alloc(sizeof sums);
    specrt__cuda_batch batch = {BATCH, MAX_N, n, 2};
    REQUIRE(specrt__cuda_target_topk(&batch, in, n_vocab, k, out, total, scratch, NULL) ==
            SPECRT_STATUS_OK);
    gpu_get(ids, out, sizeof ids);
    gpu_get(sums, total, sizeof sums);
    for (int b = 0; b < BATCH; b++)
        for (int32_t h = 0; h < counts[2 * b]; h++) {
            const float *row = logits + (b * MAX_N + h) * n_vocab;
            int32_t want[SPECRT_LOGITS_MAX_K], at = b * SPECRT_TREE_MAX_NODES + h;
            int32_t n_want = specrt_logits_topk(row, n_vocab, k, want);
            double sum = 0, most = -INFINITY;
            for (int32_t i = 0; i < k; i++) REQUIRE(ids[at * k + i] == (i < n_want ? want[i] : -1));
            for (int32_t i = 0; i < n_vocab; i++) most = row[i] > most ? row[i] : most;
            for (int32_t i = 0; i < n_vocab; i++)
                sum += row[i] > -INFINITY ? exp(row[i] - most) : 0;
            if (!isinf(most)) CHECK_NEAR(sums[at], most + log(sum), 1e-5 * (1 + fabs(most)));
        }
    gpu_free(in), gpu_free(n), gpu_free(scratch), gpu_free(out), gpu_free(total);
}

TEST(target, "the best of a whole vocabulary and its log-sum-exp") {
    for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++) {
        run_target(1 + random_below(50), 10, distribution);
        run_target(2049, 3, distribution);
        run_target(4500, 16, distribution);
    }
}

TEST(refusals, "bad arguments give a status") {
    int32_t ids[4];
    float x[4] = {0};
    CHECK(specrt__cuda_topk_bytes(0, 1, 1) == 0 && specrt__cuda_topk_bytes(10, 1, 257) == 0);
    const specrt__cuda_batch one = {1, 1, NULL, 0}, none = {0, 1, NULL, 0}, many = {1, 65, NULL, 0};
#define TRY(batch, n_vocab, k)                                                                     \
    CHECK_INT(specrt__cuda_target_topk(batch, x, n_vocab, k, ids, NULL, x, NULL),                  \
              SPECRT_STATUS_BAD_ARG)
    TRY(NULL, 4, 1);
    TRY(&none, 4, 1);
    TRY(&many, 4, 1);
    TRY(&one, 0, 1);
    TRY(&one, 4, 0);
#undef TRY
}
