/* bench_head.c : logits and top-k over a static list, beside plain reading of as many bytes and, where
 * it is installed, OpenBLAS. Best of many, taken in turns. Sizes in MB = 10^6 bytes. */
#include "specrt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "cli.h"
#include "parallel.h"

enum { N_VOCAB = 128256, MAX_BATCH = 60, TOPK = 10 };

static int n_threads = 1;

typedef struct lent {
    void (*task)(void *arg, int64_t i);
    void *arg;
} lent;

static void lent_block(void *opaque, int64_t block, int worker) {
    const lent *l = (const lent *)opaque;
    (void)worker;
    l->task(l->arg, block);
}

static void run_threads(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    lent l = {task, arg};
    (void)user;
    parallel_for(n_threads, n, lent_block, &l);
}

/* --- the peers --- */

typedef void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                      const float *x, int incx, float beta, float *y, int incy);
typedef void (*set_threads)(int n);

static sgemv find_openblas(void) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    sgemv found = NULL;
    set_threads limit = NULL;
    if (!library) return NULL;
    *(void **)&limit = dlsym(library, "openblas_set_num_threads");
    *(void **)&found = dlsym(library, "cblas_sgemv");
    if (limit) limit(1);
    return found;
}

typedef struct reading {
    const uint8_t *bytes;
    size_t n_block;
    uint64_t sums[64];
} reading;

typedef uint64_t vector __attribute__((vector_size(64), aligned(1)));

/* Four streams at once, in the widest registers there are. */
__attribute__((target_clones("avx512f", "avx2", "default"))) static void
read_block(void *arg, int64_t block, int worker) {
    reading *r = (reading *)arg;
    size_t quarter = r->n_block / 4;
    vector sum[4] = {{0}};
    for (size_t i = 0; i + sizeof(vector) <= quarter; i += sizeof(vector))
        for (size_t s = 0; s < 4; s++) {
            const uint8_t *p = r->bytes + (size_t)block * r->n_block + s * quarter + i;
            __builtin_prefetch(p + 1024);
            sum[s] += *(const vector *)(const void *)p;
        }
    sum[0] += sum[1] + sum[2] + sum[3];
    r->sums[worker] += sum[0][0] ^ sum[0][7];
}

/* --- one shape --- */

typedef struct bench {
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_static *list;
    const specrt_active *active;
    uint8_t *rows;
    float *hidden, *logits;
} bench;

static bench bench_make(const specrt_bundle *bundle, specrt_dtype dtype, int32_t size,
                        int64_t n_cols) {
    bench b = {0};
    size_t row_bytes = specrt_row_bytes(dtype, n_cols), n_bytes = row_bytes * N_VOCAB;
    uint64_t random = 1;
    specrt_desc env = {.parallel_for = run_threads};
    specrt_error err;
    b.rows = (uint8_t *)malloc(n_bytes);
    b.hidden = (float *)malloc(MAX_BATCH * (size_t)n_cols * sizeof(float));
    b.logits = (float *)malloc(MAX_BATCH * (size_t)size * sizeof(float));
    for (size_t i = 0; i + 8 <= n_bytes; i += 8) { /* every half below 1 */
        uint64_t x = fixture_random(&random) & 0x3bff3bff3bff3bffu;
        memcpy(b.rows + i, &x, 8);
    }
    for (int64_t i = 0; i < MAX_BATCH * n_cols; i++) b.hidden[i] = fixture_normal(&random);
    specrt_head_desc desc = {.rows = b.rows, .dtype = dtype, .n_rows = N_VOCAB, .n_cols = n_cols};
    if (specrt_head_bind(NULL, &desc, &env, &b.head, &err) != SPECRT_STATUS_OK ||
        specrt_static_create(bundle, b.head, size, &b.list, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "%s\n", err.msg), exit(1);
    b.active = specrt_static_active(b.list);
    return b;
}

static void bench_free(bench *b) {
    specrt_static_close(b->list);
    specrt_head_close(b->head);
    free(b->rows), free(b->hidden), free(b->logits);
}

static void keep_least(double *best, double start) {
    double seconds = cli_seconds() - start;
    if (seconds < *best) *best = seconds;
}

static void bench_shape(const specrt_bundle *bundle, specrt_dtype dtype, int32_t size,
                        int64_t n_cols, sgemv blas) {
    static const int batches[] = {1, 10, MAX_BATCH};
    static int32_t ids[MAX_BATCH * TOPK];
    static float logprobs[MAX_BATCH * TOPK];
    bench b = bench_make(bundle, dtype, size, n_cols);
    const specrt_segment *s = b.active->segments;
    size_t n_bytes = s->row_stride * (size_t)size;
    double best[3] = {1e9, 1e9, 1e9}, topk = 1e9, read = 1e9, peer = 1e9;
    for (int repeat = 0; repeat < 9; repeat++) {
        reading r = {.bytes = (const uint8_t *)s->rows, .n_block = n_bytes / 128 & ~(size_t)63};
        double start = cli_seconds();
        parallel_for(n_threads, 128, read_block, &r);
        keep_least(&read, start);
        for (int i = 0; i < 3; i++) {
            start = cli_seconds();
            specrt_active_logits(b.active, b.hidden, batches[i], b.logits);
            keep_least(&best[i], start);
        }
        start = cli_seconds();
        specrt_active_topk(b.active, b.logits, 10, TOPK, ids, logprobs);
        keep_least(&topk, start);
        start = cli_seconds();
        if (blas && dtype == SPECRT_DTYPE_F32 && n_threads == 1) {
            blas(101, 111, size, (int)n_cols, 1, (const float *)s->rows, (int)n_cols, b.hidden, 1,
                 0, b.logits, 1);
            keep_least(&peer, start);
        }
    }
    printf("%-5s %6d x %-5d %6.0f MB | read %5.1f GB/s | n=1 %7.2f ms %5.1f GB/s (%3.0f%%) | n=10 "
           "%7.2f ms | n=60 %7.2f ms | top-10 of 10 rows %.2f ms",
           specrt_dtype_name(s->dtype), (int)size, (int)n_cols, 1e-6 * (double)n_bytes,
           1e-9 * (double)n_bytes / read, 1e3 * best[0], 1e-9 * (double)n_bytes / best[0],
           100 * read / best[0], 1e3 * best[1], 1e3 * best[2], 1e3 * topk);
    if (peer < 1e9) printf(" | OpenBLAS sgemv %.2f ms", 1e3 * peer);
    printf("\n");
    bench_free(&b);
}

int main(void) {
    static const specrt_dtype types[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                         SPECRT_DTYPE_Q8_0};
    size_t n;
    uint8_t *bytes = fixture_ranks_bundle(N_VOCAB, 256, 32768, &n);
    sgemv blas = find_openblas();
    specrt_bundle *bundle;
    if (specrt_bundle_open_memory(bytes, n, "bench", NULL, &bundle, NULL) != 0) return 1;
    if (!blas) printf("libopenblas.so.0 is not installed: no peer\n");
    for (n_threads = 1; n_threads <= 2 && n_threads <= parallel_cores(); n_threads++) {
        printf("%d thread%s\n", n_threads, n_threads > 1 ? "s" : "");
        for (int t = 0; t < 4; t++) {
            bench_shape(bundle, types[t], N_VOCAB - 1, 1024, blas);
            bench_shape(bundle, types[t], 32768, 2048, blas);
            bench_shape(bundle, types[t], 3072, 4096, blas);
        }
    }
    specrt_bundle_close(bundle);
    free(bytes);
    return 0;
}
