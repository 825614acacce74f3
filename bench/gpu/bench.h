/* bench.h : what the GPU's benchmarks share: shapes, times, lines of the table and of the JSON, heads.
 * Included once specrt.h is. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>

#include "fixture.h"
#include "gpu.h"

enum {
    BENCH_MAX_N = 640,
    BENCH_SEQUENCES = 10,
    BENCH_K = 10
}; /* states, of so many sequences; of each the best tokens */

/* A model's head; --tiny makes it one that a CPU gets through. */
typedef struct bench_shape {
    const char *name;
    int32_t n_rows, n_cols;
} bench_shape;

extern bool bench_tiny;
extern cudaStream_t bench_stream;
extern double bench_bandwidth; /* bytes a second of a kernel that only reads */
extern size_t bench_cache;     /* bytes of L2 */
extern FILE *bench_json;

void bench_must(specrt_status status, const char *what);

/* What is timed: a call and its argument. */
typedef void bench_work(void *arg);

/* bench_time() : the median of many runs, in seconds, between two events, less what two events with nothing
 * between them take, each after a read of more than the L2 cache holds: in a decoding loop a drafter's layer
 * lies between one product and the next.
 *   prepare : comes before each run, outside the time; NULL: nothing
 *   spread : the distance of the quartiles as a share of the median; NULL: not asked for
 * bench_time_graph() : the same of the run captured once and replayed, where the host would be slower. */
double bench_time(bench_work *run, bench_work *prepare, void *arg, double *spread);
double bench_time_graph(bench_work *run, bench_work *prepare, void *arg, double *spread);

/* bench_read() : reads n bytes of DEVICE memory, a multiple of 16, by as many blocks; see bench_read.cu. */
cudaError_t bench_read(const void *bytes, size_t n, unsigned n_blocks, uint32_t *out,
                       cudaStream_t stream);

/* bench_wall() : seconds of a run by the host's clock, of 200 one after the other; graph: launched as one. */
double bench_wall(bench_work *run, void *arg, bool graph);

/* A line of the table and of the JSON. */
typedef struct bench_result {
    const char *what, *model, *dtype;
    int64_t rows;
    int32_t n;
    double seconds, spread; /* spread 0: not known */
    double bytes;           /* that must be moved: the floor; 0: none */
    double limit;           /* seconds that the goal allows; 0: no goal */
    const char *goal;
} bench_result;
void bench_report(const bench_result *r);

/* Rows of a head by chance, and what multiplies them. */
typedef struct bench_product {
    specrt__cuda_layout layout;
    specrt__cuda_segment *segment; /* DEVICE [BENCH_SEQUENCES] */
    specrt__cuda_head head;
    specrt_dtype hidden_dtype;
    int32_t n, k;
    void *hidden; /* DEVICE [BENCH_MAX_N, n_cols] of hidden_dtype */
    void *wide;   /* likewise f32, what sessions have by default */
    float *logits, *logprobs;
    int32_t *ids, *numbers;   /* numbers: 0, 1, 2... */
    int32_t *places, *groups; /* all rows shuffled; shuffled in groups that lie side by side */
    void *scratch;
} bench_product;

void bench_make(bench_product *p, const bench_shape *shape, specrt_dtype dtype);
void bench_free(bench_product *p);

/* bench_take() : the rows to multiply: the first, or those that `places` names. */
void bench_take(bench_product *p, int32_t rows, const int32_t *places);

bench_work bench_run_logits;    /* the product */
bench_work bench_run_shortlist; /* with log-softmax and top-k */

/* bench_rows() : DEVICE rows of a type by chance, no two alike. */
void *bench_rows(specrt_dtype dtype, int64_t n_rows, int64_t n_cols);

/* bench_gemm() : cuBLASLt's product, for sessions to be lent; NULL: built without it. */
extern specrt_cuda_gemm bench_gemm;

/* bench_cycles() : draft cycles of policies, and when one has learnt. */
void bench_cycles(const bench_shape *shape);

#endif
