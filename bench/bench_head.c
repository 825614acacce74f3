/* bench_head.c : logits and top-k over packed rows, on one core, beside the machine's floors (reading as
 * many bytes, multiplying as much), OpenBLAS where it is installed, and what a list costs that is not
 * packed: gathered every time, or read in place. Best of many, taken in turns. MB = 10^6 bytes.
 *   bench_head [--json] */
#include "specrt.h"

#include <dlfcn.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "machine.h"

enum { N_BATCHES = 4, MAX_BATCH = 60, TOPK = 10, SPREAD = 4 };
static const int batches[N_BATCHES] = {1, 4, 10, MAX_BATCH};

/* --- OpenBLAS --- */

typedef void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);
typedef void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                      const float *x, int incx, float beta, float *y, int incy);

typedef struct blas {
    sgemm gemm;
    sgemv gemv; /* NULL: not installed */
} blas;

static blas find_openblas(void) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    void (*limit)(int) = NULL;
    blas b = {0};
    if (!library) return b;
    *(void **)&limit = dlsym(library, "openblas_set_num_threads");
    *(void **)&b.gemm = dlsym(library, "cblas_sgemm");
    *(void **)&b.gemv = dlsym(library, "cblas_sgemv");
    if (limit) limit(1);
    return b;
}

/* hidden [n, n_cols] times rows [n_rows, n_cols] transposed. */
static void run_openblas(const blas *b, const float *rows, int n_rows, int n_cols,
                         const float *hidden, int n, float *logits) {
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
    if (n == 1)
        b->gemv(ROW_MAJOR, PLAIN, n_rows, n_cols, 1, rows, n_cols, hidden, 1, 0, logits, 1);
    else
        b->gemm(ROW_MAJOR, PLAIN, TRANSPOSED, n, n_rows, n_cols, 1, hidden, n_cols, rows, n_cols, 0,
                logits, n_rows);
}

/* --- one shape --- */

/* A head of SPREAD times as many rows as the list, which takes every SPREAD-th or so. */
typedef struct shape {
    specrt_head *head;
    specrt_segment packed, in_place;
    specrt_shortlist shortlist;
    uint8_t *rows;   /* [SPREAD * n_rows] of the head */
    uint8_t *buffer; /* [n_rows] */
    int32_t *ids;
    float *hidden, *logits;
    size_t row_bytes;
} shape;

static void *take(size_t bytes) {
    size_t page = 4096;
    void *p = aligned_alloc(page, (bytes + page - 1) & ~(page - 1));
    if (!p) fprintf(stderr, "bench_head: out of memory\n"), exit(1);
    return p;
}

static void gather(const shape *s) {
    for (int32_t i = 0; i < s->packed.n_rows; i++)
        memcpy(s->buffer + (size_t)i * s->row_bytes, s->rows + (size_t)s->ids[i] * s->row_bytes,
               s->row_bytes);
}

static shape shape_make(specrt_dtype dtype, int32_t n_rows, int64_t n_cols) {
    shape s = {.row_bytes = specrt_row_bytes(dtype, n_cols)};
    size_t n_bytes = s.row_bytes * (size_t)n_rows;
    uint64_t random = 1;
    specrt_error err;
    s.rows = (uint8_t *)take(SPREAD * n_bytes);
    s.buffer = (uint8_t *)take(n_bytes);
    madvise(s.buffer, n_bytes, MADV_HUGEPAGE); /* as packed lists do */
    s.ids = (int32_t *)take((size_t)n_rows * sizeof *s.ids);
    s.hidden = (float *)take(MAX_BATCH * (size_t)n_cols * sizeof(float));
    s.logits = (float *)take(MAX_BATCH * (size_t)n_rows * sizeof(float));
    /* Every half is below 1, and in no type a denormal, which some CPUs multiply 10 times slower. */
    for (size_t i = 0; i < SPREAD * n_bytes / 8; i++) {
        uint64_t x = (fixture_random(&random) & 0x3bff3bff3bff3bffu) | 0x3000300030003000u;
        memcpy(s.rows + 8 * i, &x, 8);
    }
    for (int32_t i = 0; i < n_rows; i++)
        s.ids[i] = SPREAD * i + (int32_t)(fixture_random(&random) >> 33) % SPREAD;
    for (int64_t i = 0; i < MAX_BATCH * n_cols; i++) s.hidden[i] = fixture_normal(&random);
    specrt_head_desc desc = {
        .rows = s.rows, .dtype = dtype, .n_rows = SPREAD * n_rows, .n_cols = n_cols};
    if (specrt_head_bind(NULL, &desc, NULL, &s.head, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "bench_head: %s\n", err.msg), exit(1);
    s.packed = (specrt_segment){.rows = s.buffer,
                                .row_stride = s.row_bytes,
                                .ids = s.ids,
                                .dtype = dtype,
                                .n_rows = n_rows};
    s.in_place = s.packed;
    s.in_place.rows = s.rows;
    s.in_place.places = s.ids;
    s.shortlist = (specrt_shortlist){specrt_head_compute(s.head), NULL, 1, n_rows, n_cols, NULL};
    gather(&s);
    return s;
}

static void shape_free(shape *s) {
    specrt_head_close(s->head);
    free(s->rows), free(s->buffer), free(s->ids), free(s->hidden), free(s->logits);
}

static void product(shape *s, const specrt_segment *segment, int n, double *best) {
    s->shortlist.segments = segment;
    double start = sl_measure_seconds();
    specrt_shortlist_logits(&s->shortlist, s->hidden, n, s->logits);
    keep_least(best, start);
}

/* Seconds, 1e9 where it was not measured. */
typedef struct times {
    double read, product[N_BATCHES], openblas[N_BATCHES], in_place, gathered, topk;
} times;

static void measure(shape *s, const blas *b, times *t) {
    static int32_t ids[MAX_BATCH * TOPK];
    static float logprobs[MAX_BATCH * TOPK];
    machine_read_time(s->buffer, s->row_bytes * (size_t)s->packed.n_rows, &t->read);
    for (int i = 0; i < N_BATCHES; i++) {
        product(s, &s->packed, batches[i], &t->product[i]);
        double start = sl_measure_seconds();
        if (!b->gemv || s->packed.dtype != SPECRT_DTYPE_F32) continue;
        run_openblas(b, (const float *)(void *)s->buffer, s->packed.n_rows,
                     (int)s->shortlist.n_cols, s->hidden, batches[i], s->logits);
        keep_least(&t->openblas[i], start);
    }
    product(s, &s->in_place, 1, &t->in_place);
    double start = sl_measure_seconds();
    gather(s);
    specrt_shortlist_logits((s->shortlist.segments = &s->packed, &s->shortlist), s->hidden, 1,
                            s->logits);
    keep_least(&t->gathered, start);
    specrt_shortlist_logits(&s->shortlist, s->hidden, TOPK, s->logits);
    start = sl_measure_seconds();
    specrt_shortlist_topk(&s->shortlist, s->logits, 10, TOPK, ids, logprobs);
    keep_least(&t->topk, start);
}

/* --- the report --- */

static void print(const shape *s, const times *t, double peak) {
    double bytes = (double)s->row_bytes * s->packed.n_rows;
    double flops = 2.0 * s->packed.n_rows * (double)s->shortlist.n_cols;
    printf("%-5s %6d x %-5d %5.0f MB %-6s read %5.1f GB/s | 1: %8.3f ms %5.1f GB/s %3.0f%% |",
           specrt_dtype_name(s->packed.dtype), (int)s->packed.n_rows, (int)s->shortlist.n_cols,
           1e-6 * bytes, machine_level((size_t)bytes), 1e-9 * bytes / t->read, 1e3 * t->product[0],
           1e-9 * bytes / t->product[0], 100 * t->read / t->product[0]);
    for (int i = 1; i < N_BATCHES; i++)
        printf(" %d: %.2fx %3.0f%%", batches[i], t->product[i] / t->product[0],
               100 * flops * batches[i] / t->product[i] / peak);
    printf(" | in place %.2fx gathered %.2fx | top-%d of 10: %.3f ms", t->in_place / t->product[0],
           t->gathered / t->product[0], TOPK, 1e3 * t->topk);
    if (t->openblas[0] < 1e9) printf(" | OpenBLAS");
    for (int i = 0; i < N_BATCHES && t->openblas[0] < 1e9; i++)
        printf(" %d: %.2fx", batches[i], t->openblas[i] / t->product[i]);
    printf("\n");
}

static json_object *seconds(const double *x, int n) {
    json_object *list = json_object_new_array();
    for (int i = 0; i < n; i++)
        json_object_array_add(list, x[i] < 1e9 ? json_object_new_double(x[i]) : NULL);
    return list;
}

static json_object *row(const shape *s, const times *t) {
    json_object *o = json_object_new_object();
    size_t bytes = s->row_bytes * (size_t)s->packed.n_rows;
    json_object_object_add(o, "type", json_object_new_string(specrt_dtype_name(s->packed.dtype)));
    json_object_object_add(o, "n_rows", json_object_new_int(s->packed.n_rows));
    json_object_object_add(o, "n_cols", json_object_new_int64(s->shortlist.n_cols));
    json_object_object_add(o, "bytes", json_object_new_int64((int64_t)bytes));
    json_object_object_add(o, "resident", json_object_new_string(machine_level(bytes)));
    json_object_object_add(o, "read", json_object_new_double(t->read));
    json_object_object_add(o, "product", seconds(t->product, N_BATCHES));
    json_object_object_add(o, "openblas", seconds(t->openblas, N_BATCHES));
    json_object_object_add(o, "in_place", json_object_new_double(t->in_place));
    json_object_object_add(o, "gathered", json_object_new_double(t->gathered));
    json_object_object_add(o, "topk", json_object_new_double(t->topk));
    return o;
}

/* --- by hidden rows --- */

/* The least a product can take: reading its rows once, or its multiplications. */
static double least(const shape *s, double read, int n, double peak) {
    double flops = 2.0 * s->packed.n_rows * (double)s->shortlist.n_cols * n / peak;
    return read > flops ? read : flops;
}

static void print_by_hidden(specrt_dtype dtype, int32_t n_rows, int64_t n_cols, double peak) {
    enum { MOST = 16 };
    shape s = shape_make(dtype, n_rows, n_cols);
    double read = 1e9, best[MOST + 1];
    for (int n = 1; n <= MOST; n++) best[n] = 1e9;
    int repeats = (int)(1e9 / ((double)s.row_bytes * n_rows) / MOST) + 5;
    for (int repeat = 0; repeat < repeats; repeat++) {
        machine_read_time(s.buffer, s.row_bytes * (size_t)n_rows, &read);
        for (int n = 1; n <= MOST; n++) product(&s, &s.packed, n, &best[n]);
    }
    printf("%-5s %6d x %-5d", specrt_dtype_name(dtype), (int)n_rows, (int)n_cols);
    for (int n = 1; n <= MOST; n++)
        printf(" %d: %.3f %.1fx", n, 1e3 * best[n], best[n] / least(&s, read, n, peak));
    printf("\n");
    shape_free(&s);
}

int main(int argc, char **argv) {
    static const specrt_dtype types[] = {SPECRT_DTYPE_F32,    SPECRT_DTYPE_F16,  SPECRT_DTYPE_BF16,
                                         SPECRT_DTYPE_Q8_0,   SPECRT_DTYPE_Q4_0, SPECRT_DTYPE_Q4_1,
                                         SPECRT_DTYPE_IQ4_NL, SPECRT_DTYPE_Q4_K, SPECRT_DTYPE_Q5_K,
                                         SPECRT_DTYPE_Q6_K};
    enum { N_TYPES = sizeof types / sizeof types[0] };
    static const int shapes[][2] = {{3072, 256}, {3072, 4096}, {32768, 1024}, {32768, 4096}};
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    blas b = find_openblas();
    double peak = machine_peak();
    json_object *rows = json_object_new_array(), *out = json_object_new_object();
    if (!json)
        printf(
            "one core: %.0f GFLOP/s of f32; products for %d, %d, %d and %d hidden rows: times of "
            "the first, share of the peak\n",
            1e-9 * peak, batches[0], batches[1], batches[2], batches[3]);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = 0; type < N_TYPES; type++) {
            shape s = shape_make(types[type], shapes[i][0], shapes[i][1]);
            times t;
            for (double *x = (double *)&t; x < (double *)(&t + 1); x++) *x = 1e9;
            int repeats = (int)(4e9 / ((double)s.row_bytes * shapes[i][0]) / MAX_BATCH) + 7;
            for (int repeat = 0; repeat < repeats; repeat++) measure(&s, &b, &t);
            if (json)
                json_object_array_add(rows, row(&s, &t));
            else
                print(&s, &t, peak);
            shape_free(&s);
        }
    if (!json) printf("products by hidden rows: ms, and how often the least it could take\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && !json; i++)
        for (int type = 0; type < N_TYPES; type++)
            print_by_hidden(types[type], shapes[i][0], shapes[i][1], peak);
    json_object_object_add(out, "peak_flops", json_object_new_double(peak));
    json_object_object_add(out, "batches", json_object_new_array());
    for (int i = 0; i < N_BATCHES; i++)
        json_object_array_add(json_object_object_get(out, "batches"),
                              json_object_new_int(batches[i]));
    json_object_object_add(out, "rows", rows);
    if (json) printf("%s\n", json_object_to_json_string_ext(out, JSON_C_TO_STRING_PRETTY));
    json_object_put(out);
    return 0;
}
