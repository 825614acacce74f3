/* bench_gpu.c : how fast the CUDA file's functions are on the GPU at hand, beside the floor that measured
 * copy bandwidth sets, cuBLAS (-DBENCH_CUBLAS) and full vocabularies. Prints a table; writes JSON.
 *
 *     bench_gpu OUT.json
 *
 * Times are medians of single launches between two events, with the L2 cache swept before each: in a
 * decoding loop, a drafter's layer lies between one product and the next. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
#include "../fixture.h"
#include "gpu.h"
#if defined(BENCH_CUBLAS)
#include <cublas_v2.h>
#endif

enum { REPEATS = 31, MAX_N = 10, STEPS = 6, NODES = 60, SWEEP = 256 << 20 };

static cudaStream_t stream;
static cudaEvent_t before, after;
static char *sweep; /* DEVICE */
static double copy; /* bytes a second, read or written */
static FILE *json;
static int n_results;

/* What is timed: a call and its argument. */
typedef void work(void *arg);

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Seconds. */
static double time_of(work *run, void *arg) {
    float ms[REPEATS];
    run(arg);
    for (int i = 0; i < REPEATS; i++) {
        gpu_check(cudaMemsetAsync(sweep, i, SWEEP, stream), "sweep");
        gpu_check(cudaEventRecord(before, stream), "event");
        run(arg);
        gpu_check(cudaEventRecord(after, stream), "event");
        gpu_check(cudaStreamSynchronize(stream), "synchronize");
        gpu_check(cudaEventElapsedTime(&ms[i], before, after), "elapsed");
    }
    qsort(ms, REPEATS, sizeof *ms, by_time);
    return (double)ms[REPEATS / 2] / 1e3;
}

static void must(specrt_status status, const char *what) {
    if (status == SPECRT_STATUS_OK) return;
    fprintf(stderr, "bench_gpu: %s: %s\n", what, specrt_status_name(status));
    exit(1);
}

/* A line of the table and of the JSON. bytes: that must be moved; 0: no floor. */
static void report(const char *what, const char *model, const char *dtype, int64_t rows, int32_t n,
                   double seconds, double bytes) {
    double floor_us = bytes / copy * 1e6, us = seconds * 1e6;
    printf("%-22s %-10s %-5s %8lld %3d %10.1f %10.1f %6.1f%%\n", what, model, dtype,
           (long long)rows, (int)n, us, floor_us, 100 * floor_us / us);
    fprintf(json,
            "%s\n  {\"what\": \"%s\", \"model\": \"%s\", \"dtype\": \"%s\", \"rows\": %lld, "
            "\"n\": %d, \"us\": %.2f, \"floor_us\": %.2f}",
            n_results++ ? "," : "", what, model, dtype, (long long)rows, (int)n, us, floor_us);
}

/* --- a head by itself --- */

typedef struct shape {
    const char *name;
    int32_t n_rows, n_cols;
} shape;
static const shape shapes[] = {{"llama-3-8b", 128256, 4096}, {"qwen", 151936, 3584}};

typedef struct product {
    specrt_cuda_layout layout;
    specrt_cuda_segment *segment; /* DEVICE */
    specrt_cuda_head head;
    int32_t n, k;
    void *hidden; /* DEVICE f16 [MAX_N, n_cols] */
    float *logits, *logprobs;
    int32_t *ids, *places;
    void *scratch, *packed;
    specrt_cuda_packing *packing;
} product;

static void run_logits(void *arg) {
    product *p = (product *)arg;
    must(specrt_cuda_logits(&p->layout, p->segment, 1, p->hidden, SPECRT_DTYPE_F16, p->n, NULL, 0,
                            p->logits, stream),
         "logits");
}

static void run_shortlist(void *arg) {
    product *p = (product *)arg;
    run_logits(arg);
    must(specrt_cuda_topk(&p->layout, p->segment, 1, p->logits, p->n, NULL, 0, p->k, p->ids,
                          p->logprobs, p->scratch, stream),
         "topk");
}

static void run_pack(void *arg) {
    product *p = (product *)arg;
    must(specrt_cuda_pack(&p->head, p->packing, 1, p->layout.max_rows[0], p->head.row_stride,
                          stream),
         "pack");
}

static void run_copy(void *arg) {
    product *p = (product *)arg;
    size_t bytes = (size_t)p->layout.max_rows[0] * p->head.row_stride;
    gpu_check(cudaMemcpyAsync(p->packed, p->head.rows, bytes, cudaMemcpyDeviceToDevice, stream),
              "copy");
}

#if defined(BENCH_CUBLAS)
static cublasHandle_t cublas;
static void run_cublas(void *arg) {
    product *p = (product *)arg;
    const float one = 1, zero = 0;
    int m = p->layout.max_rows[0], k = (int)p->layout.n_cols;
    cublasGemmEx(cublas, CUBLAS_OP_T, CUBLAS_OP_N, m, p->n, k, &one, p->head.rows, CUDA_R_16F, k,
                 p->hidden, CUDA_R_16F, k, &zero, p->logits, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                 CUBLAS_GEMM_DEFAULT);
}
#endif

/* The first `rows` rows, side by side, or here and there. */
static void take_rows(product *p, int32_t rows, bool indexed) {
    specrt_cuda_segment s = {.rows = p->head.rows,
                             .row_stride = p->head.row_stride,
                             .ids = p->places,
                             .places = indexed ? p->places : NULL,
                             .max_rows = rows};
    p->layout.n_segments = 1;
    p->layout.max_rows[0] = rows;
    gpu_put(p->segment, &s, sizeof s);
}

/* Rubbish of a format is as fast as weights, but for NaNs: bytes that are small numbers in each. */
static void make_product(product *p, const shape *s, specrt_dtype dtype) {
    size_t row_bytes = specrt_row_bytes(dtype, s->n_cols), n = (size_t)s->n_rows;
    int32_t *places = (int32_t *)malloc(n * sizeof *places), count = s->n_rows;
    uint64_t state = 9;
    memset(p, 0, sizeof *p);
    for (int32_t i = 0; i < s->n_rows; i++) places[i] = i;
    for (int32_t i = s->n_rows - 1; i > 0; i--) {
        int32_t j = (int32_t)(fixture_random(&state) % (uint64_t)(i + 1)), t = places[i];
        places[i] = places[j], places[j] = t;
    }
    void *rows = gpu_alloc(n * row_bytes);
    gpu_check(cudaMemset(rows, 0x11, n * row_bytes), "memset");
    p->head = (specrt_cuda_head){.rows = rows,
                                 .dtype = dtype,
                                 .n_rows = s->n_rows,
                                 .n_cols = s->n_cols,
                                 .row_stride = row_bytes};
    p->layout.n_cols = s->n_cols;
    p->layout.dtypes[0] = dtype;
    p->k = MAX_N;
    p->segment = (specrt_cuda_segment *)gpu_alloc(sizeof(specrt_cuda_segment));
    p->hidden = gpu_alloc(MAX_N * (size_t)s->n_cols * 2);
    gpu_check(cudaMemset(p->hidden, 0x11, MAX_N * (size_t)s->n_cols * 2), "memset");
    p->logits = (float *)gpu_alloc(n * MAX_N * sizeof(float));
    p->logprobs = (float *)gpu_alloc(MAX_N * MAX_N * sizeof(float));
    p->ids = (int32_t *)gpu_alloc(MAX_N * MAX_N * sizeof(int32_t));
    p->places = (int32_t *)gpu_copy(places, n * sizeof *places);
    p->scratch = gpu_alloc(specrt_cuda_topk_bytes(s->n_rows, MAX_N, MAX_N));
    p->packed = gpu_alloc(65536 * row_bytes);
    specrt_cuda_packing packing = {
        .ids = p->places, .n = (int32_t *)gpu_copy(&count, sizeof count), .rows = p->packed};
    p->packing = (specrt_cuda_packing *)gpu_copy(&packing, sizeof packing);
    free(places);
}

static void free_product(product *p) {
    specrt_cuda_packing packing;
    gpu_get(&packing, p->packing, sizeof packing);
    gpu_free((void *)(uintptr_t)packing.n);
    gpu_free((void *)(uintptr_t)p->head.rows);
    gpu_free(p->segment), gpu_free(p->hidden), gpu_free(p->logits), gpu_free(p->logprobs);
    gpu_free(p->ids), gpu_free(p->places), gpu_free(p->scratch), gpu_free(p->packed);
    gpu_free(p->packing);
}

static void bench_sizes(const shape *s, specrt_dtype dtype) {
    static const int32_t sizes[] = {1024, 2048, 3072, 4096, 8192, 16384, 32768, 65536};
    const char *name = specrt_dtype_name(dtype);
    product p;
    make_product(&p, s, dtype);
    for (int i = 0; i <= 8; i++) {
        int32_t rows = i < 8 ? sizes[i] : s->n_rows;
        double bytes = (double)rows * (double)p.head.row_stride;
        for (p.n = 1; p.n <= MAX_N; p.n += MAX_N - 1) {
            take_rows(&p, rows, false);
            report("product", s->name, name, rows, p.n, time_of(run_logits, &p), bytes);
            report("product+topk", s->name, name, rows, p.n, time_of(run_shortlist, &p), bytes);
#if defined(BENCH_CUBLAS)
            if (dtype == SPECRT_DTYPE_F16)
                report("cublas", s->name, name, rows, p.n, time_of(run_cublas, &p), bytes);
#endif
            take_rows(&p, rows, true);
            report("product, indexed", s->name, name, rows, p.n, time_of(run_logits, &p), bytes);
        }
        if (rows > 65536) continue;
        take_rows(&p, rows, false);
        int32_t count = rows;
        specrt_cuda_packing packing;
        gpu_get(&packing, p.packing, sizeof packing);
        gpu_put((void *)(uintptr_t)packing.n, &count, sizeof count);
        report("pack", s->name, name, rows, 0, time_of(run_pack, &p), 2 * bytes);
        report("copy", s->name, name, rows, 0, time_of(run_copy, &p), 2 * bytes);
    }
    free_product(&p);
}

/* --- whole draft cycles --- */

/* A session whose drafter is as many bytes as EAGLE-2's layer for Llama-3-8B: 61,440 rows of 4,096. */
typedef struct cycle {
    specrt_cuda_session *session;
    specrt_cuda_view view;
    product layer;
    void *hidden;  /* DEVICE f16 [n_batch, topk, n_cols] */
    float *target; /* DEVICE f32 [n_batch, NODES, n_logits] */
    bool observes;
} cycle;

static void run_draft(void *arg) {
    cycle *c = (cycle *)arg;
    if (c->observes) must(specrt_cuda_session_observe(c->session, stream), "observe");
    for (int32_t level = 0; level < STEPS; level++) {
        run_logits(&c->layer);
        must(specrt_cuda_session_expand(c->session, level, c->hidden, NULL, stream), "expand");
    }
    must(specrt_cuda_session_finish(c->session, stream), "finish");
}

static void run_observe(void *arg) {
    cycle *c = (cycle *)arg;
    must(specrt_cuda_session_observe(c->session, stream), "observe");
    must(specrt_cuda_session_finish(c->session, stream), "finish"); /* waits for the other stream */
}

static void run_verify(void *arg) {
    cycle *c = (cycle *)arg;
    must(specrt_cuda_session_verify(c->session, c->target, NULL, stream), "verify");
}

static void bench_policy(const specrt_bundle *bundle, const specrt_head *head, const void *rows,
                         const char *text, int32_t n_batch) {
    specrt_policy_desc wanted = {.text = text};
    specrt_cuda_policy_desc desc = {.rows = rows};
    specrt_cuda_session_params params = {
        .tree = {STEPS, MAX_N, NODES}, .n_batch = n_batch, .hidden = SPECRT_DTYPE_F16};
    specrt_policy *policy;
    specrt_cuda_policy *shared;
    specrt_error err = {0};
    char name[96];
    cycle c;
    memset(&c, 0, sizeof c);
    if (specrt_policy_create(bundle, head, &wanted, &policy, &err) ||
        specrt_cuda_policy_create(policy, &desc, &shared, &err) ||
        specrt_cuda_session_create(shared, &params, &c.session, &err)) {
        fprintf(stderr, "bench_gpu: %s\n", err.msg);
        exit(1);
    }
    const shape layer = {"layer", 61440, 4096};
    make_product(&c.layer, &layer, SPECRT_DTYPE_F16);
    take_rows(&c.layer, layer.n_rows, false);
    c.layer.n = MAX_N;
    specrt_cuda_session_get_view(c.session, &c.view);
    size_t n = (size_t)n_batch, n_logits = (size_t)c.view.n_logits;
    float *random = (float *)malloc(n_logits * sizeof *random);
    uint64_t state = 3;
    for (size_t i = 0; i < n_logits; i++) random[i] = fixture_normal(&state);
    c.hidden = gpu_alloc(n * MAX_N * 4096 * 2);
    gpu_check(cudaMemset(c.hidden, 0x11, n * MAX_N * 4096 * 2), "memset");
    c.target = (float *)gpu_alloc(n * NODES * n_logits * sizeof(float));
    for (size_t i = 0; i < n * NODES; i++)
        gpu_put(c.target + i * n_logits, random, n_logits * sizeof *random);
    int32_t *tokens = (int32_t *)gpu_alloc(n * sizeof(int32_t));
    gpu_check(cudaMemset(tokens, 0, n * sizeof(int32_t)), "memset");
    must(specrt_cuda_session_start(c.session, -1, tokens, stream), "start");
    int32_t bound = specrt_policy_bound(policy);
    for (int on = 0; on < 2; on++) {
        c.observes = on;
        snprintf(name, sizeof name, "draft%s x%d", on ? "" : ", no learning", (int)n_batch);
        report(name, text, "f16", bound, MAX_N, time_of(run_draft, &c), 0);
    }
    report("verify", text, "f16", bound, NODES, time_of(run_verify, &c), 0);
    report("observe alone", text, "f16", bound, NODES, time_of(run_observe, &c), 0);
    specrt_cuda_session_close(c.session);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
    free_product(&c.layer);
    gpu_free(c.hidden), gpu_free(c.target), gpu_free(tokens);
    free(random);
}

static void bench_cycles(void) {
    static const char *const policies[] = {"full", "static:32768", "microspec"};
    const shape *s = &shapes[0];
    size_t n, bytes = (size_t)s->n_rows * (size_t)s->n_cols * 2;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_error err;
    void *weights = calloc(1, bytes), *rows = gpu_alloc(bytes);
    uint8_t *ranks = fixture_ranks_bundle(s->n_rows, 2, 32768, &n);
    specrt_head_desc desc = {
        .rows = weights, .dtype = SPECRT_DTYPE_F16, .n_rows = s->n_rows, .n_cols = s->n_cols};
    gpu_check(cudaMemset(rows, 0x11, bytes), "memset");
    if (specrt_bundle_open_memory(ranks, n, "ranks", NULL, &bundle, &err) ||
        specrt_head_bind(bundle, &desc, NULL, &head, &err)) {
        fprintf(stderr, "bench_gpu: %s\n", err.msg);
        exit(1);
    }
    for (int32_t n_batch = 1; n_batch <= 8; n_batch *= 8)
        for (int i = 0; i < 3; i++) bench_policy(bundle, head, rows, policies[i], n_batch);
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    gpu_free(rows);
    free(weights);
    free(ranks);
}

/* --- */

static void run_copy_all(void *arg) {
    gpu_check(
        cudaMemcpyAsync(arg, (char *)arg + (1u << 30), 1u << 30, cudaMemcpyDeviceToDevice, stream),
        "copy");
}

int main(int argc, char **argv) {
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16, SPECRT_DTYPE_Q8_0,
                                          SPECRT_DTYPE_F32};
    specrt_error err;
    struct cudaDeviceProp device;
    if (argc != 2 || !(json = fopen(argv[1], "w")))
        return fprintf(stderr, "usage: bench_gpu OUT.json\n"), 2;
    if (specrt_cuda_open(&err)) return fprintf(stderr, "bench_gpu: %s\n", err.msg), 77;
    gpu_check(cudaGetDeviceProperties(&device, 0), "device");
    gpu_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    gpu_check(cudaEventCreateWithFlags(&before, cudaEventDefault), "event");
    gpu_check(cudaEventCreateWithFlags(&after, cudaEventDefault), "event");
    sweep = (char *)gpu_alloc(SWEEP);
    void *both = gpu_alloc(2u << 30);
    copy = 2.0 * (double)(1u << 30) / time_of(run_copy_all, both);
    gpu_free(both);
#if defined(BENCH_CUBLAS)
    cublasCreate(&cublas);
    cublasSetStream(cublas, stream);
#endif
    printf("%s, copies at %.0f GB/s (read and written), L2 of %d MiB\n", device.name, copy / 1e9,
           device.l2CacheSize >> 20);
    printf("%-22s %-10s %-5s %8s %3s %10s %10s %7s\n", "what", "model", "dtype", "rows", "n", "us",
           "floor us", "floor");
    fprintf(json, "{\"device\": \"%s\", \"copy_gb_per_s\": %.1f, \"l2_bytes\": %d, \"results\": [",
            device.name, copy / 1e9, device.l2CacheSize);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) bench_sizes(&shapes[0], dtypes[i]);
    bench_sizes(&shapes[1], SPECRT_DTYPE_F16);
    bench_cycles();
    fprintf(json, "\n]}\n");
    return fclose(json) != 0;
}
