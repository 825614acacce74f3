/* bench_gpu.c : how fast the CUDA file's functions are on the GPU at hand, beside the floor that reading
 * alone sets, the goals, cuBLASLt (-DBENCH_CUBLASLT) and full vocabularies. Prints a table; writes
 * JSON, an object a line.
 *
 *     bench_gpu OUT.jsonl [PART...]     all parts: sizes window sketch cycles
 *     bench_gpu --tiny OUT.jsonl        shapes for a look at the program itself, on the harness
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "specrt_adapt.h"
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "bench.h"
#if defined(BENCH_CUBLASLT)
#include <cublasLt.h>
#endif

bool bench_tiny;
cudaStream_t bench_stream;
double bench_bandwidth;
size_t bench_cache;
FILE *bench_json;

static cudaEvent_t before, after;
static int n_goals, n_met, n_wrong; /* n_wrong: products that cuBLASLt does not agree with */
static double empty_seconds;        /* between two events that nothing stands between */
static bench_product sweeper;

void bench_must(specrt_status status, const char *what) {
    specrt_error err = {0};
    if (status == SPECRT_STATUS_OK) return;
    specrt_cuda_check(&err);
    fprintf(stderr, "bench_gpu: %s: %s %s\n", what, specrt_status_name(status), err.msg);
    exit(1);
}

/* --- time --- */

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double bench_time(bench_work *run, bench_work *prepare, void *arg, double *spread) {
    enum { REPEATS = 31 };
    float ms[REPEATS];
    int n = bench_tiny ? 1 : REPEATS;
    if (prepare) prepare(arg);
    run(arg);
    for (int i = 0; i < n; i++) {
        if (prepare) prepare(arg);
        bench_run_logits(&sweeper);
        gpu_check(cudaEventRecord(before, bench_stream), "event");
        run(arg);
        gpu_check(cudaEventRecord(after, bench_stream), "event");
        gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
        gpu_check(cudaEventElapsedTime(&ms[i], before, after), "elapsed");
    }
    qsort(ms, (size_t)n, sizeof *ms, by_time);
    if (spread) *spread = (double)((ms[3 * n / 4] - ms[n / 4]) / ms[n / 2]);
    return fmax((double)ms[n / 2] / 1e3 - empty_seconds, 1e-9);
}

static void run_nothing(void *arg) {
    (void)arg;
}

typedef struct replay {
    cudaGraphExec_t graph;
    bench_work *prepare;
    void *arg;
} replay;

static void run_replay(void *arg) {
    replay *r = (replay *)arg;
    gpu_check(cudaGraphLaunch(r->graph, bench_stream), "graph");
}

static void prepare_replay(void *arg) {
    replay *r = (replay *)arg;
    if (r->prepare) r->prepare(r->arg);
}

static void capture(replay *r, bench_work *run, void *arg) {
    cudaGraph_t graph;
    gpu_check(cudaStreamBeginCapture(bench_stream, cudaStreamCaptureModeThreadLocal), "capture");
    run(arg);
    gpu_check(cudaStreamEndCapture(bench_stream, &graph), "capture");
    gpu_check(cudaGraphInstantiateWithFlags(&r->graph, graph, 0), "graph");
    gpu_check(cudaGraphDestroy(graph), "graph");
}

double bench_time_graph(bench_work *run, bench_work *prepare, void *arg, double *spread) {
    replay r = {NULL, prepare, arg};
    capture(&r, run, arg);
    double seconds = bench_time(run_replay, prepare_replay, &r, spread);
    gpu_check(cudaGraphExecDestroy(r.graph), "graph");
    return seconds;
}

double bench_wall(bench_work *run, void *arg, bool graph) {
    const int n = bench_tiny ? 2 : 200;
    replay r = {NULL, NULL, arg};
    run(arg);
    if (graph) capture(&r, run, arg);
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    double began = specrt_clock_seconds();
    for (int i = 0; i < n; i++) graph ? run_replay(&r) : run(arg);
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    double seconds = (specrt_clock_seconds() - began) / n;
    if (graph) gpu_check(cudaGraphExecDestroy(r.graph), "graph");
    return seconds;
}

/* A number, where it says something. */
static void print_count(int width, long long n) {
    if (n > 0)
        printf("%*lld ", width, n);
    else
        printf("%*s ", width, "-");
}

/* Goals are a GPU's: the harness is not judged by them. */
void bench_report(const bench_result *r) {
    double floor_us = r->bytes / bench_bandwidth * 1e6, us = r->seconds * 1e6;
    const char *verdict = r->seconds <= r->limit ? "pass" : "FAIL";
    if (r->limit == 0 || bench_tiny) verdict = "";
    n_goals += r->limit > 0;
    n_met += r->limit > 0 && r->seconds <= r->limit;
    printf("%-24s %-20s %-5s ", r->what, r->model, r->dtype);
    print_count(7, r->rows);
    print_count(6, r->n);
    printf("%9.1f ", us);
    if (r->spread > 0)
        printf("%5.0f%% ", 100 * r->spread);
    else
        printf("%6s ", "-");
    if (r->bytes > 0)
        printf("%9.1f %5.0f%% ", floor_us, 100 * floor_us / us);
    else
        printf("%9s %6s ", "-", "-");
    if (r->limit > 0) printf("%9.1f %s  %s", r->limit * 1e6, verdict, r->goal);
    printf("\n");
    fprintf(
        bench_json,
        "{\"what\": \"%s\", \"model\": \"%s\", \"dtype\": \"%s\", \"rows\": %lld, \"n\": %d, "
        "\"us\": %.2f, \"spread\": %.3f, \"floor_us\": %.2f, \"goal_us\": %.2f, \"goal\": \"%s\", "
        "\"verdict\": \"%s\"}\n",
        r->what, r->model, r->dtype, (long long)r->rows, (int)r->n, us, r->spread, floor_us,
        r->limit * 1e6, r->goal ? r->goal : "", verdict);
}

/* --- a head by itself --- */

/* A block of rows over and over, a little more than whole rows long, so that each copy is another's shift. */
void *bench_rows(specrt_dtype dtype, int64_t n_rows, int64_t n_cols) {
    int64_t n_block = (n_rows < 1024 ? n_rows : 1024) * n_cols + 32;
    size_t total = (size_t)n_rows * specrt_row_bytes(dtype, n_cols);
    size_t done = specrt_row_bytes(dtype, n_block);
    float *values = (float *)malloc((size_t)n_block * sizeof *values);
    uint8_t *block = (uint8_t *)malloc(done), *out = (uint8_t *)gpu_alloc(total);
    uint64_t state = gpu_seed(9);
    for (int64_t i = 0; i < n_block; i++) values[i] = 0.05f * fixture_normal(&state);
    quantise_row(dtype, values, n_block, block);
    if (done > total) done = total;
    gpu_put(out, block, done);
    for (size_t n; done < total; done += n) {
        n = total - done < done ? total - done : done;
        gpu_check(cudaMemcpy(out + done, out, n, cudaMemcpyDeviceToDevice), "copy");
    }
    free(values), free(block);
    return out;
}

/* 0 to n - 1, in groups that come in any order. */
static int32_t *shuffled(int32_t n, int32_t group, uint64_t *state) {
    int32_t n_groups = (n + group - 1) / group, at = 0;
    int32_t *order = (int32_t *)malloc((size_t)n_groups * sizeof *order);
    int32_t *out = (int32_t *)malloc((size_t)n * sizeof *out);
    for (int32_t i = 0; i < n_groups; i++) {
        int32_t j = (int32_t)(fixture_random(state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int32_t i = 0; i < n_groups; i++)
        for (int32_t j = order[i] * group; j < n && j < (order[i] + 1) * group; j++) out[at++] = j;
    void *device = gpu_copy(out, (size_t)n * sizeof *out);
    free(order), free(out);
    return (int32_t *)device;
}

/* Rows of q8_0 come in blocks and lie in planes, as policies have them. */
static void split_rows(bench_product *p) {
    size_t stride = (p->head.row_stride + 15) / 16 * 16;
    int32_t *count = (int32_t *)gpu_copy(&p->head.n_rows, sizeof p->head.n_rows);
    specrt__cuda_packing all = {
        .ids = p->numbers, .n = count, .rows = gpu_alloc((size_t)p->head.n_rows * stride)};
    specrt__cuda_packing *list = (specrt__cuda_packing *)gpu_copy(&all, sizeof all);
    bench_must(specrt__cuda_pack(&p->head, list, 1, p->head.n_rows, stride, bench_stream), "pack");
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    gpu_free((void *)(uintptr_t)p->head.rows), gpu_free(list), gpu_free(count);
    p->head.rows = all.rows;
    p->head.row_stride = stride;
    p->head.dtype = p->layout.dtypes[0] = SPECRT__CUDA_Q8_0_PLANES;
}

void bench_make(bench_product *p, const bench_shape *shape, specrt_dtype dtype) {
    size_t n = (size_t)shape->n_rows;
    uint64_t state = gpu_seed(9);
    memset(p, 0, sizeof *p);
    p->head = (specrt__cuda_head){.rows = bench_rows(dtype, shape->n_rows, shape->n_cols),
                                  .dtype = dtype,
                                  .n_rows = shape->n_rows,
                                  .n_cols = shape->n_cols,
                                  .row_stride = specrt_row_bytes(dtype, shape->n_cols)};
    p->layout.n_cols = shape->n_cols;
    p->layout.dtypes[0] = dtype;
    p->hidden_dtype = dtype == SPECRT_DTYPE_BF16 ? SPECRT_DTYPE_BF16 : SPECRT_DTYPE_F16;
    p->n = p->k = BENCH_K;
    p->segment = (specrt__cuda_segment *)gpu_alloc(BENCH_SEQUENCES * sizeof(specrt__cuda_segment));
    p->hidden = bench_rows(p->hidden_dtype, BENCH_MAX_N, shape->n_cols);
    p->wide = bench_rows(SPECRT_DTYPE_F32, BENCH_MAX_N, shape->n_cols);
    p->logits = (float *)gpu_alloc(n * BENCH_MAX_N * sizeof(float));
    p->logprobs = (float *)gpu_alloc(BENCH_MAX_N * BENCH_K * sizeof(float));
    p->ids = (int32_t *)gpu_alloc(BENCH_MAX_N * BENCH_K * sizeof(int32_t));
    p->numbers = shuffled(shape->n_rows, shape->n_rows, &state);
    if (dtype == SPECRT_DTYPE_Q8_0) split_rows(p);
    p->places = shuffled(shape->n_rows, 1, &state);
    p->groups = shuffled(shape->n_rows, 128, &state);
    p->scratch = gpu_zeros(specrt__cuda_topk_bytes(shape->n_rows, BENCH_MAX_N, BENCH_K));
    bench_take(p, shape->n_rows, NULL);
}

void bench_free(bench_product *p) {
    gpu_free((void *)(uintptr_t)p->head.rows);
    gpu_free(p->segment), gpu_free(p->hidden), gpu_free(p->wide);
    gpu_free(p->logits), gpu_free(p->logprobs);
    gpu_free(p->ids), gpu_free(p->numbers), gpu_free(p->places), gpu_free(p->groups);
    gpu_free(p->scratch);
}

static void take_segment(bench_product *p, const specrt__cuda_segment *s) {
    p->layout.n_segments = 1;
    p->layout.max_rows[0] = s->max_rows;
    p->layout.shared[0] = 1;
    for (int i = 0; i < BENCH_SEQUENCES; i++) gpu_put(p->segment + i, s, sizeof *s);
}

/* One sequence, or several of as many states as one can have. */
static specrt__cuda_batch batch_of(const bench_product *p) {
    int32_t most = BENCH_MAX_N / BENCH_SEQUENCES;
    specrt__cuda_batch batch = {(p->n + most - 1) / most, p->n < most ? p->n : most, NULL, 0};
    return batch;
}

void bench_take(bench_product *p, int32_t rows, const int32_t *places) {
    specrt__cuda_segment s = {.rows = p->head.rows,
                              .row_stride = p->head.row_stride,
                              .ids = p->numbers,
                              .places = places,
                              .max_rows = rows};
    take_segment(p, &s);
}

static int32_t n_splits; /* warps that share a row's columns; 0: the product chooses */

void bench_run_logits(void *arg) {
    bench_product *p = (bench_product *)arg;
    specrt__cuda_batch batch = batch_of(p);
    bench_must(specrt__cuda_split_logits(n_splits, &p->layout, p->segment, &batch, p->hidden,
                                         p->hidden_dtype, p->logits, bench_stream),
               "logits");
}

/* With 1, 2, 4 and 8 warps that share a row's columns, of which the product chooses one. */
static void report_splits(bench_product *p, bench_result r) {
    static const char *const names[] = {"product, 1 split", "product, 2 splits",
                                        "product, 4 splits", "product, 8 splits"};
    for (int i = 0; i < 4; i++) {
        n_splits = 1 << i;
        r.what = names[i];
        r.seconds = bench_time(bench_run_logits, NULL, p, &r.spread);
        bench_report(&r);
    }
    n_splits = 0;
}

void bench_run_shortlist(void *arg) {
    bench_product *p = (bench_product *)arg;
    bench_run_logits(arg);
    specrt__cuda_batch batch = batch_of(p);
    bench_must(specrt__cuda_topk(&p->layout, p->segment, &batch, p->logits, p->k, p->ids,
                                 p->logprobs, p->scratch, bench_stream),
               "topk");
}

/* --- cuBLASLt on the same rows --- */

#if defined(BENCH_CUBLASLT)

enum { LT_ALGORITHMS = 4, LT_WORKSPACE = 64 << 20 };

/* A product, and the ways to compute it that the library finds best. */
typedef struct lt_product {
    specrt_cuda_product product;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t rows, states, logits;
    cublasLtMatmulHeuristicResult_t found[LT_ALGORITHMS];
    int n_found, at;
} lt_product;

static cublasLtHandle_t lt;
static void *lt_workspace; /* DEVICE */

static void lt_must(cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "bench_gpu: cuBLASLt: status %d\n", (int)status);
    exit(1);
}

static void lt_open(lt_product *l, const specrt_cuda_product *p) {
    cublasLtMatmulPreference_t preference;
    cudaDataType_t type = p->dtype == SPECRT_DTYPE_BF16  ? CUDA_R_16BF
                          : p->dtype == SPECRT_DTYPE_F16 ? CUDA_R_16F
                                                         : CUDA_R_32F;
    cublasOperation_t turned = CUBLAS_OP_T;
    uint64_t k = (uint64_t)p->n_cols, rows = (uint64_t)p->n_rows, states = (uint64_t)p->n_states;
    uint64_t workspace = LT_WORKSPACE;
    size_t bytes = p->dtype == SPECRT_DTYPE_F32 ? 4 : 2;
    *l = (lt_product){.product = *p};
    if (!lt) lt_must(cublasLtCreate(&lt)), lt_workspace = gpu_alloc(LT_WORKSPACE);
    lt_must(cublasLtMatmulDescCreate(&l->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    lt_must(cublasLtMatmulDescSetAttribute(l->operation, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                           sizeof turned));
    lt_must(cublasLtMatrixLayoutCreate(&l->rows, type, k, rows, (int64_t)(p->row_stride / bytes)));
    lt_must(cublasLtMatrixLayoutCreate(&l->states, type, k, states,
                                       (int64_t)(p->hidden_stride / bytes)));
    lt_must(cublasLtMatrixLayoutCreate(&l->logits, CUDA_R_32F, rows, states,
                                       (int64_t)p->logits_stride));
    lt_must(cublasLtMatmulPreferenceCreate(&preference));
    lt_must(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    lt_must(cublasLtMatmulAlgoGetHeuristic(lt, l->operation, l->rows, l->states, l->logits,
                                           l->logits, preference, LT_ALGORITHMS, l->found,
                                           &l->n_found));
    cublasLtMatmulPreferenceDestroy(preference);
}

static void lt_close(lt_product *l) {
    cublasLtMatrixLayoutDestroy(l->rows), cublasLtMatrixLayoutDestroy(l->states);
    cublasLtMatrixLayoutDestroy(l->logits), cublasLtMatmulDescDestroy(l->operation);
}

static void run_lt(void *arg) {
    const float one = 1, zero = 0;
    lt_product *l = (lt_product *)arg;
    const specrt_cuda_product *p = &l->product;
    lt_must(cublasLtMatmul(lt, l->operation, &one, p->rows, l->rows, p->hidden, l->states, &zero,
                           p->logits, l->logits, p->logits, l->logits, &l->found[l->at].algo,
                           lt_workspace, LT_WORKSPACE, bench_stream));
}

static bool is_same(const specrt_cuda_product *a, const specrt_cuda_product *b) {
    return a->n_states == b->n_states && a->hidden_stride == b->hidden_stride &&
           a->rows == b->rows && a->hidden == b->hidden && a->logits == b->logits;
}

/* What a session's passes multiply by, each shape prepared once. Heads of this program have no bias. */
static int lend_lt(void *user, const specrt_cuda_product *p, void *stream) {
    enum { SHAPES = 4 };
    static lt_product shapes[SHAPES];
    static int n;
    int i = 0;
    (void)user;
    while (i < n && !is_same(&shapes[i].product, p)) i++;
    if (i == n) {
        if (n == SHAPES) { /* of a session that is closed */
            for (n = 0; n < SHAPES; n++) lt_close(&shapes[n]);
            n = i = 0;
        }
        lt_open(&shapes[n++], p);
    }
    if (p->bias || stream != bench_stream || shapes[i].n_found == 0) return 1;
    run_lt(&shapes[i]);
    return 0;
}

specrt_cuda_gemm bench_gemm = lend_lt;

/* Whether both multiply the same: every logit of ours against that of the library. */
static void lt_compare(lt_product *l, bench_product *p, int32_t rows) {
    size_t n = (size_t)rows * (size_t)p->n, wrong = n;
    float *ours = (float *)malloc(n * sizeof *ours), *theirs = (float *)malloc(n * sizeof *theirs);
    bench_run_logits(p);
    gpu_get(ours, p->logits, n * sizeof *ours);
    run_lt(l);
    gpu_get(theirs, p->logits, n * sizeof *theirs);
    for (size_t i = n; i-- > 0;)
        if (!(fabsf(ours[i] - theirs[i]) < 1e-3f)) wrong = i;
    if (wrong < n) {
        n_wrong++;
        printf("FAIL %d rows, %d states: row %d of state %d: cuBLASLt has %g, we %g\n", (int)rows,
               (int)p->n, (int)(wrong % (size_t)rows), (int)(wrong / (size_t)rows),
               (double)theirs[wrong], (double)ours[wrong]);
    }
    free(ours), free(theirs);
}

/* Seconds of the fastest of the ways that the library finds best; 0: it has none. */
static double time_lt(bench_product *p, int32_t rows) {
    const size_t bytes = (size_t)p->head.n_cols * 2;
    const specrt_cuda_product product = {.n_states = p->n,
                                         .n_rows = rows,
                                         .n_cols = p->head.n_cols,
                                         .dtype = p->head.dtype,
                                         .rows = p->head.rows,
                                         .row_stride = bytes,
                                         .hidden = p->hidden,
                                         .hidden_stride = bytes,
                                         .logits = p->logits,
                                         .logits_stride = (size_t)rows};
    lt_product l;
    double best = 0;
    if (p->head.dtype != SPECRT_DTYPE_F16 && p->head.dtype != SPECRT_DTYPE_BF16) return 0;
    lt_open(&l, &product);
    if (l.n_found > 0) lt_compare(&l, p, rows);
    for (l.at = 0; l.at < l.n_found; l.at++) {
        double seconds = bench_time(run_lt, NULL, &l, NULL);
        if (best == 0 || seconds < best) best = seconds;
    }
    lt_close(&l);
    return best;
}

#else

specrt_cuda_gemm bench_gemm;

static double time_lt(bench_product *p, int32_t rows) {
    (void)p, (void)rows;
    return 0;
}

#endif

/* --- products by size --- */

/* What MicroSpec's lists hold. */
static int32_t shortlist(void) {
    return bench_tiny ? 192 : 3072;
}

/* 85% of the floor for what the cache cannot hold, and cuBLASLt but for the clock's 2%. */
static void report_product(bench_result r, double lt_seconds) {
    bool large = r.bytes > (double)bench_cache && r.rows >= shortlist();
    r.what = "product";
    if (large) r.limit = r.bytes / bench_bandwidth / 0.85, r.goal = "85% of reading alone";
    if (lt_seconds > 0 && (r.limit == 0 || 1.02 * lt_seconds < r.limit))
        r.limit = 1.02 * lt_seconds, r.goal = "not slower than cuBLASLt";
    bench_report(&r);
    r.limit = 0;
    if (lt_seconds == 0) return;
    r.what = "cublaslt";
    r.seconds = lt_seconds;
    r.spread = 0;
    bench_report(&r);
}

/* What sessions bring by default: states that are rounded on the way. */
static void report_wide(bench_product *p, bench_result r) {
    void *hidden = p->hidden;
    specrt_dtype dtype = p->hidden_dtype;
    p->hidden = p->wide, p->hidden_dtype = SPECRT_DTYPE_F32;
    r.what = "product, f32 states";
    r.seconds = bench_time(bench_run_logits, NULL, p, &r.spread);
    bench_report(&r);
    p->hidden = hidden, p->hidden_dtype = dtype;
}

static void report_size(bench_product *p, bench_result r, double full) {
    bench_take(p, (int32_t)r.rows, NULL);
    double lt_seconds = time_lt(p, (int32_t)r.rows);
    r.seconds = bench_time(bench_run_logits, NULL, p, &r.spread);
    report_product(r, lt_seconds);
    if (r.n == 10 && p->head.dtype != SPECRT_DTYPE_F32) report_splits(p, r);
    report_wide(p, r);
    r.what = "product+softmax+topk";
    r.seconds = bench_time(bench_run_shortlist, NULL, p, &r.spread);
    if (r.rows == shortlist()) r.limit = full / 8, r.goal = "1/8 of the whole head";
    bench_report(&r);
    r.limit = 0;
    r.what = "product, by groups";
    bench_take(p, (int32_t)r.rows, p->groups);
    r.seconds = bench_time(bench_run_logits, NULL, p, &r.spread);
    bench_report(&r);
    r.what = "product, indexed";
    bench_take(p, (int32_t)r.rows, p->places);
    r.seconds = bench_time(bench_run_logits, NULL, p, &r.spread);
    bench_report(&r);
}

typedef struct packing {
    const bench_product *from;
    specrt__cuda_packing *list; /* DEVICE [1] */
    void *rows;                 /* DEVICE */
    int32_t n;
} packing;

static void run_pack(void *arg) {
    packing *p = (packing *)arg;
    bench_must(
        specrt__cuda_pack(&p->from->head, p->list, 1, p->n, p->from->head.row_stride, bench_stream),
        "pack");
}

static void run_copy(void *arg) {
    packing *p = (packing *)arg;
    size_t bytes = (size_t)p->n * p->from->head.row_stride;
    gpu_check(
        cudaMemcpyAsync(p->rows, p->from->head.rows, bytes, cudaMemcpyDeviceToDevice, bench_stream),
        "copy");
}

static void report_packing(bench_product *from, bench_result r) {
    int32_t n = (int32_t)r.rows;
    packing p = {.from = from, .n = n};
    p.rows = gpu_alloc((size_t)n * from->head.row_stride);
    int32_t *count = (int32_t *)gpu_copy(&n, sizeof n);
    specrt__cuda_packing list = {.ids = from->places, .n = count, .rows = p.rows};
    p.list = (specrt__cuda_packing *)gpu_copy(&list, sizeof list);
    r.n = 0;
    r.bytes *= 2;
    r.what = "copy";
    r.seconds = bench_time(run_copy, NULL, &p, &r.spread);
    bench_report(&r);
    if (n == shortlist()) r.limit = 1.3 * r.seconds, r.goal = "1.3 times a copy";
    r.what = "pack all";
    r.seconds = bench_time(run_pack, NULL, &p, &r.spread);
    bench_report(&r);
    gpu_free(p.rows), gpu_free(p.list), gpu_free(count);
}

static void bench_sizes(const bench_shape *shape, specrt_dtype dtype) {
    static const int32_t sizes[] = {65536, 32768, 16384, 8192, 4096, 3072, 2048, 1024};
    enum { COUNTS = 5 };
    static const int32_t large[COUNTS] = {1, 10, 64, 128, 640}, tiny[COUNTS] = {1, 10, 12, 64, 128};
    const int32_t *counts = bench_tiny ? tiny : large;
    double full[COUNTS] = {0};
    bench_product p;
    bench_make(&p, shape, dtype);
    for (int i = -1; i < 8; i++) {
        bench_result r = {.model = shape->name,
                          .dtype = specrt_dtype_name(dtype),
                          .rows = i < 0 ? shape->n_rows : sizes[i] >> (bench_tiny ? 4 : 0)};
        if (r.rows > shape->n_rows) continue;
        for (int j = 0; j < COUNTS; j++) {
            if (counts[j] > 64 && dtype == SPECRT_DTYPE_F32) continue; /* limited by arithmetic */
            r.n = p.n = counts[j];
            r.bytes = (double)r.rows * (double)p.head.row_stride;
            bench_take(&p, shape->n_rows, NULL);
            if (i < 0) full[j] = bench_time(bench_run_shortlist, NULL, &p, NULL);
            report_size(&p, r, full[j]);
        }
        if (i >= 0) report_packing(&p, r);
    }
    bench_free(&p);
}

/* --- the window --- */

enum { WINDOW_CYCLES = 40 };

typedef struct window {
    const bench_product *from;
    specrt_cuda_state *states;  /* DEVICE [1] */
    specrt__cuda_packing *list; /* DEVICE [1] */
    specrt_cuda_draft *draft;   /* DEVICE [1] */
    specrt_verdict *verdict;    /* DEVICE [1] */
    int32_t *best;              /* DEVICE [WINDOW_CYCLES, SPECRT_TREE_MAX_NODES, 8] */
    int32_t cycle, capacity;
} window;

static void run_window(void *arg) {
    window *w = (window *)arg;
    const int32_t *best = w->best + w->cycle++ % WINDOW_CYCLES * SPECRT_TREE_MAX_NODES * 8;
    bench_must(
        specrt__cuda_state_observe(1, w->draft, w->verdict, best, 8, w->states, bench_stream),
        "observe");
    bench_must(specrt__cuda_pack(&w->from->head, w->list, 1, w->capacity, w->from->head.row_stride,
                                 bench_stream),
               "pack");
}

/* What the target thought at 60 nodes of each cycle: as many tokens as are new, the others often seen. */
static int32_t *draw_best(int32_t n_ids, int32_t n_new) {
    size_t n = (size_t)WINDOW_CYCLES * SPECRT_TREE_MAX_NODES * 8;
    int32_t *best = (int32_t *)malloc(n * sizeof *best);
    uint64_t state = gpu_seed(31);
    for (size_t i = 0; i < n; i++) {
        int64_t cycle = (int64_t)(i / (SPECRT_TREE_MAX_NODES * 8)), at = (int64_t)(i % 480);
        bool is_new = i % (SPECRT_TREE_MAX_NODES * 8) < 480 && at * n_new / 480 * 480 / n_new == at;
        int32_t often = (int32_t)(fixture_random(&state) % (uint64_t)(n_ids / 200 + 1));
        int64_t fresh = n_ids / 100 + (cycle * n_new + at * n_new / 480) * 7;
        best[i] = is_new ? (int32_t)(fresh % n_ids) : often;
    }
    int32_t *out = (int32_t *)gpu_copy(best, n * sizeof *best);
    free(best);
    return out;
}

static void bench_window(const bench_shape *shape, int32_t n_new) {
    int32_t size = bench_tiny ? 128 : 3072, n_ids = shape->n_rows;
    specrt__cuda_state_params params = {.n_ids = n_ids,
                                        .capacity = size,
                                        .size = size,
                                        .positions = SPECRT__WINDOW_POSITIONS_TREE,
                                        .kpre = 8,
                                        .kver = 8,
                                        .emitted = 1,
                                        .min = size,
                                        .n_frequent = n_ids};
    static specrt_cuda_draft draft = {.n = 60};
    static specrt_verdict verdict = {.n = 4};
    specrt_cuda_state host;
    window w = {.capacity = size};
    bench_product p;
    bench_make(&p, shape, SPECRT_DTYPE_F16);
    for (int32_t i = 0; i < 60; i++) draft.tokens[i] = i, draft.parents[i] = i - 1;
    for (int32_t i = 0; i < 4; i++) verdict.tokens[i] = verdict.nodes[i] = i;
    void *memory = gpu_alloc(specrt__cuda_state_bytes(&params));
    bench_must(specrt__cuda_state_place(&params, memory, &host), "place");
    gpu_check(cudaMemset(host.wants, 0, (size_t)n_ids), "memset");
    w.from = &p;
    w.states = (specrt_cuda_state *)gpu_copy(&host, sizeof host);
    w.draft = (specrt_cuda_draft *)gpu_copy(&draft, sizeof draft);
    w.verdict = (specrt_verdict *)gpu_copy(&verdict, sizeof verdict);
    w.best = draw_best(n_ids, n_new);
    specrt__cuda_packing list = {.ids = host.ids,
                                 .slots = host.fresh,
                                 .n = &w.states->n_fresh,
                                 .rows = gpu_alloc((size_t)size * p.head.row_stride)};
    w.list = (specrt__cuda_packing *)gpu_copy(&list, sizeof list);
    bench_must(specrt__cuda_state_begin(1, NULL, 0, w.states, bench_stream), "begin");
    for (int i = 0; i < 4; i++) run_window(&w);
    gpu_get(&host, w.states, sizeof host);
    int64_t copied = host.n_copied, cycles = w.cycle;
    bench_result r = {.what = "window update + pack",
                      .model = shape->name,
                      .dtype = "f16",
                      .limit = 15e-6,
                      .goal = "15 us"};
    r.seconds = bench_time(run_window, NULL, &w, &r.spread);
    gpu_get(&host, w.states, sizeof host);
    r.rows = (host.n_copied - copied) / (w.cycle - cycles);
    r.bytes = 2 * (double)r.rows * (double)p.head.row_stride;
    bench_report(&r);
    gpu_free(memory), gpu_free(w.states), gpu_free(w.draft), gpu_free(w.verdict);
    gpu_free(w.best), gpu_free(list.rows), gpu_free(w.list);
    bench_free(&p);
}

/* --- the sketch --- */

typedef struct scan {
    bench_product *product;
    specrt__cuda_sketch sketch;
    specrt__cuda_choice choice;
    void *scratch;
} scan;

static void run_scan(void *arg) {
    scan *s = (scan *)arg;
    bench_product *p = s->product;
    specrt__cuda_batch batch = {1, p->n, NULL, 0};
    bench_must(specrt__cuda_sketch_route(&s->sketch, &batch, p->hidden, p->hidden_dtype, NULL, NULL,
                                         s->scratch, &s->choice, bench_stream),
               "sketch");
    bench_run_shortlist(p);
}

/* Records by chance, and the exact product with the rows that they name. */
static void report_scan(bench_product *p, bench_result r, int32_t rank) {
    int32_t size = bench_tiny ? 32 : 512, n = p->head.n_rows;
    size_t records = (size_t)n * (size_t)(rank + 16) / 4, bound = (size_t)size * sizeof(int32_t);
    char what[48];
    scan s = {.product = p};
    s.sketch = (specrt__cuda_sketch){
        .basis = (const uint16_t *)bench_rows(SPECRT_DTYPE_F16, rank, p->head.n_cols),
        .center = (const float *)bench_rows(SPECRT_DTYPE_F32, 1, rank),
        .rows = p->places,
        .records = (const uint8_t *)bench_rows(SPECRT_DTYPE_F32, 1, (int64_t)records / 4),
        .n_cols = (int32_t)p->head.n_cols,
        .n_ids = n,
        .rank = rank,
        .n_places = n,
        .size = size};
    s.choice.ids = (int32_t *)gpu_alloc(bound), s.choice.places = (int32_t *)gpu_alloc(bound);
    s.choice.n_rows = (int32_t *)gpu_alloc(sizeof(int32_t));
    s.choice.max_rows = size;
    s.scratch = gpu_zeros(specrt__cuda_sketch_bytes(&s.sketch, 1, p->n));
    specrt__cuda_segment segment = {.rows = p->head.rows,
                                    .row_stride = p->head.row_stride,
                                    .ids = s.choice.ids,
                                    .places = s.choice.places,
                                    .n_rows = s.choice.n_rows,
                                    .max_rows = size};
    take_segment(p, &segment);
    snprintf(what, sizeof what, "sketch of rank %d", (int)rank);
    r.what = what;
    r.rows = size;
    r.limit /= 8;
    r.goal = "1/8 of the whole head";
    r.bytes = (double)records + (double)size * (double)p->head.row_stride;
    r.seconds = bench_time(run_scan, NULL, &s, &r.spread);
    bench_report(&r);
    gpu_free((void *)(uintptr_t)s.sketch.basis), gpu_free((void *)(uintptr_t)s.sketch.center);
    gpu_free((void *)(uintptr_t)s.sketch.records);
    gpu_free(s.choice.ids), gpu_free(s.choice.places), gpu_free(s.choice.n_rows),
        gpu_free(s.scratch);
}

static void bench_sketch(const bench_shape *shape) {
    bench_product p;
    bench_make(&p, shape, SPECRT_DTYPE_F16);
    for (p.n = 1; p.n <= BENCH_K; p.n += BENCH_K - 1) {
        bench_take(&p, shape->n_rows, NULL);
        bench_result r = {.model = shape->name, .dtype = "f16", .n = p.n};
        r.limit = bench_time(bench_run_shortlist, NULL, &p, NULL);
        for (int32_t rank = 240; rank <= 496; rank += 256) report_scan(&p, r, rank);
    }
    bench_free(&p);
}

/* --- */

typedef struct region {
    char *bytes; /* DEVICE, two halves */
    size_t half;
    uint32_t *out; /* DEVICE */
    unsigned n_blocks;
} region;

static void run_region(void *arg) {
    region *r = (region *)arg;
    gpu_check(cudaMemcpyAsync(r->bytes, r->bytes + r->half, r->half, cudaMemcpyDeviceToDevice,
                              bench_stream),
              "copy");
}

static void read_region(void *arg) {
    region *r = (region *)arg;
    gpu_check(bench_read(r->bytes, 2 * r->half, r->n_blocks, r->out, bench_stream), "read");
}

/* What memory gives: to a kernel that only reads, by the count of blocks that suits it best, and to a copy.
 * @return the copy's bytes a second, read or written. */
static double measure_memory(void) {
    static const unsigned blocks[] = {2, 4, 8};
    region r = {.half = bench_tiny ? 1u << 20 : 1u << 30};
    int n = 1;
    gpu_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), "device");
    r.bytes = (char *)bench_rows(SPECRT_DTYPE_F16, (int64_t)(r.half / 4096), 4096);
    r.out = (uint32_t *)gpu_alloc(sizeof *r.out);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        r.n_blocks = blocks[i] * (unsigned)n;
        bench_bandwidth =
            fmax(bench_bandwidth, 2.0 * (double)r.half / bench_time(read_region, NULL, &r, NULL));
    }
    double copy = 2.0 * (double)r.half / bench_time(run_region, NULL, &r, NULL);
    gpu_free(r.bytes), gpu_free(r.out);
    return copy;
}

static void open_device(void) {
    static const bench_shape shape = {"sweep", 65536, 4096}, tiny = {"sweep", 64, 64};
    int cache = 0;
    specrt_error err;
    if (specrt_cuda_open(&err)) fprintf(stderr, "bench_gpu: %s\n", err.msg), exit(77);
    gpu_check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "device");
    gpu_check(cudaStreamCreateWithFlags(&bench_stream, cudaStreamNonBlocking), "stream");
    gpu_check(cudaEventCreateWithFlags(&before, cudaEventDefault), "event");
    gpu_check(cudaEventCreateWithFlags(&after, cudaEventDefault), "event");
    bench_make(&sweeper, bench_tiny ? &tiny : &shape, SPECRT_DTYPE_F16);
    sweeper.n = 1;
    empty_seconds = bench_time(run_nothing, NULL, NULL, NULL);
    double copy = measure_memory();
    bench_cache = (size_t)cache;
    printf("Reading alone reaches %.0f GB/s, and a copy reads and writes %.0f; the L2 cache has %d "
           "MiB. Times are medians,\nspread the distance of their quartiles. Beside each the "
           "floor: what its bytes take to be read, and that as a\nshare of the time. A goal is the "
           "most that a time may be; a line that has several is told once for each. states:\n"
           "that are scored or verified at once. Two events with nothing between, %.2f us, are "
           "taken off.\n",
           bench_bandwidth / 1e9, copy / 1e9, cache >> 20, empty_seconds * 1e6);
    printf("%-24s %-20s %-5s %7s %6s %9s %6s %9s %6s %9s\n", "what", "model or policy", "dtype",
           "rows", "states", "us", "spread", "floor us", "share", "goal us");
    fprintf(bench_json,
            "{\"what\": \"device\", \"read_gb_per_s\": %.1f, \"copy_gb_per_s\": %.1f, "
            "\"l2_bytes\": %d, \"empty_us\": %.2f}\n",
            bench_bandwidth / 1e9, copy / 1e9, cache, empty_seconds * 1e6);
}

/* What a lease that ends early may lose. */
static void bench_more_sizes(const bench_shape *shapes) {
    static const struct {
        int shape;
        specrt_dtype dtype;
    } more[] = {{1, SPECRT_DTYPE_F16}, {2, SPECRT_DTYPE_BF16}, {1, SPECRT_DTYPE_Q8_0},
                {1, SPECRT_DTYPE_F32}, {1, SPECRT_DTYPE_BF16}, {0, SPECRT_DTYPE_F16}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        bench_sizes(&shapes[more[i].shape], more[i].dtype);
}

/* Whether a part was asked for: all are where none is named. */
static bool asked(const char *part, char **parts) {
    for (int i = 0; parts[i]; i++)
        if (strcmp(parts[i], part) == 0) return true;
    return !parts[0];
}

int main(int argc, char **argv) {
    static const bench_shape real[] = {
        {"qwen", 151936, 3584}, {"llama-3-8b", 128256, 4096}, {"gemma-2-2b", 262144, 2304}};
    static const bench_shape tiny[] = {{"tiny", 260, 64}, {"odd", 233, 96}, {"even", 256, 96}};
    char **rest = argv + 1;
    bench_tiny = argc > 1 && strcmp(*rest, "--tiny") == 0;
    rest += bench_tiny;
    if (!*rest || !(bench_json = fopen(*rest++, "w")))
        return fprintf(stderr, "usage: bench_gpu [--tiny] OUT.jsonl [PART...]\n"), 2;
    const bench_shape *shapes = bench_tiny ? tiny : real;
    setvbuf(stdout, NULL, _IOLBF, 0), setvbuf(bench_json, NULL, _IOLBF, 0);
    open_device();
    if (asked("sizes", rest)) bench_sizes(&shapes[0], SPECRT_DTYPE_BF16);
    if (asked("cycles", rest)) bench_cycles(&shapes[1]);
    for (int i = 0; i < 2; i++) {
        if (asked("window", rest)) bench_window(&shapes[i], 16), bench_window(&shapes[i], 480);
        if (asked("sketch", rest)) bench_sketch(&shapes[i]);
    }
    if (asked("sizes", rest)) bench_more_sizes(shapes);
    if (bench_tiny)
        printf("bench_gpu: tiny shapes ran; goals are not judged by them\n");
    else
        printf("bench_gpu: %d of %d goals met; lines of the others say FAIL\n", n_met, n_goals);
    bench_free(&sweeper);
    cudaEventDestroy(before), cudaEventDestroy(after), cudaStreamDestroy(bench_stream);
    if (n_wrong > 0) printf("bench_gpu: %d products differ from cuBLASLt's\n", n_wrong);
    return fclose(bench_json) != 0 || n_wrong > 0;
}
