/* build.h : what the files of sketch-build share. */
#ifndef SKETCH_BUILD_BUILD_H
#define SKETCH_BUILD_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include "base/cli.h"
#include "base/memory.h"
#include "model/model.h"
#include "specrt_tools.h"

enum {
    BUILD_K = 10,
    BUILD_MAX_KEEPS = 6,
    BUILD_MAX_ROWS = 6,
    BUILD_MAX_PROBED = 5,
    STATES_MOST = 65536
};

typedef struct sketch_options {
    cli_common common;
    const char *model, *tensor, *trace;
    const char *held_out;
    int64_t rank, n_signs, n_states, n_clusters;
    double min_recall;
    bool allow_below;
} sketch_options;

/* The head's rows, in the order in which they are stored: by rank where that is known, then by number. */
typedef struct row_order {
    specrt_head_desc head; /* borrowed; row_stride filled in */
    int32_t n, n_cols;
    int32_t *rows;  /* [n] */
    float *weights; /* [n] of each in the choice of a basis, by place; they sum to n */
    float *mean;    /* [n_cols] */
} row_order;

/* order_open() : ranks and counts of a bundle, where it has them; NULL: none.
 *   head : that sl_head_check() passed
 * @return OK, NO_MEMORY. */
specrt_status order_open(const specrt_head_desc *head, const specrt_bundle *ranks, int threads,
                         row_order *out, specrt_error *err);
void order_free(row_order *o);
void order_read(const row_order *o, int32_t place, float *out); /* f32 [n_cols] */
/* order_read_centered() : the same without the mean. scratch: [n_cols]; out: [n_cols] */
void order_read_centered(const row_order *o, int32_t place, float *scratch, double *out);

/* Hidden states of the drafter. What a basis is made for is not what it is measured with. */
typedef struct state_set {
    int32_t n, n_measured; /* the first so many; the others choose the basis */
    int64_t dim;
    float *states; /* [n, dim] */
    int32_t *best; /* [n_measured, BUILD_K] the rows with the greatest products, best first */
    float *least;  /* [n_measured] the last one's product */
} state_set;

/* states_from_trace(), states_synthetic() : n or fewer to measure with, and all others of a trace, up to
 * STATES_MOST; sums of rows under noise where nothing was recorded.
 * @return OK, NO_MEMORY, BAD_INPUT: another width, none, or none that differ. */
specrt_status states_from_trace(const char *path, int64_t dim, int32_t n, state_set *out,
                                specrt_error *err);
/* states_held_out() : all states of `path` to choose by, and n of another trace to measure with. */
specrt_status states_held_out(const char *path, const char *held_out, int64_t dim, int32_t n,
                              state_set *out, specrt_error *err);
specrt_status states_synthetic(const row_order *o, int32_t n, uint64_t seed, state_set *out,
                               specrt_error *err);
/* states_truth() : fills best and least by a full product. */
specrt_status states_truth(state_set *s, const row_order *o, int threads, specrt_error *err);
void states_free(state_set *s);

/* z = basis (h - center), by importance; the row at a place has the numbers x = codes (row - mean), which are
 * about as large in every direction, and scores unit * x . z beside its constant. */
typedef struct basis {
    int32_t rank, n_cols;
    float *basis;    /* [rank, n_cols] */
    float *center;   /* [n_cols] the mean of states, or zeros */
    double *codes;   /* [rank, n_cols] */
    double *weights; /* [rank] what an error of x counts in each direction */
    sl_arrays owned; /* these */
    double unit;
} basis;

/* basis_make() : the best for the rows alone, or for their products with states. Directions beyond those
 * there are stay zero.
 *   states : those that are not measured count, and lose their mean here; NULL: none
 * @return OK, NO_MEMORY, BAD_INPUT: states that do not vary, or a head whose rows are all alike. */
specrt_status basis_make(const row_order *o, const state_set *states, int32_t rank, int threads,
                         const cli_common *common, basis *out, specrt_error *err);
void basis_free(basis *b);
/* basis_apply() : numbers x of the rows at places [first, first + n), and their constants.
 *   row, rows : scratch, f32 [n_cols] and [n, n_cols]
 *   x         : [n, rank] */
void basis_apply(const basis *b, const row_order *o, int32_t first, int32_t n, float *row,
                 double *rows, double *x, double *constants);

/* Rows that score alike, at neighbouring places. */
typedef struct row_clusters {
    int32_t n;
    uint32_t *starts; /* [n + 1] places */
    double *means;    /* [n, rank + 1] numbers x of the mean row, and its constant */
} row_clusters;

/* clusters_make() : n clusters, or fewer where rows are equal, and o cluster by cluster.
 * @return OK, NO_MEMORY. */
specrt_status clusters_make(row_order *o, const basis *b, int32_t n, int threads,
                            const cli_common *common, row_clusters *out, specrt_error *err);
void clusters_free(row_clusters *c);

/* The section, laid out as specrt_sketch. */
typedef struct sketch {
    void *bytes; /* owned */
    size_t n_bytes;
    specrt_sketch view;
} sketch;

/* sketch_make() : signs and records of all rows, and records of the clusters' mean rows, if there are any.
 * @return OK, NO_MEMORY. */
specrt_status sketch_make(const row_order *o, const basis *b, const row_clusters *clusters,
                          int32_t n_signs, bool whitened, int threads, sketch *out,
                          specrt_error *err);
/* sketch_read_signs(), sketch_read_pairs() : the odd numbers of a place, [n_signs] and [rank], without
 * scale. */
void sketch_read_signs(const specrt_sketch *v, int32_t place, float *out);
void sketch_read_pairs(const specrt_sketch *v, int32_t place, float *out);
/* sketch_scale(), sketch_bf16() : numbers as they are stored. */
float sketch_scale(uint8_t stored);
float sketch_bf16(const uint8_t *bytes);
/* sketch_record() : that of a place. */
const uint8_t *sketch_record(const specrt_sketch *v, int32_t place);
/* sketch_starts() : the first places of clusters, and n_rows; read where there are clusters alone. */
const uint32_t *sketch_starts(const specrt_sketch *v);
void sketch_free(sketch *s);

/* Share of the true best that a search finds which refines `keeps` places and names `rows` rows. */
typedef struct sketch_recall_table {
    int n_keeps, n_rows;
    int32_t keeps[BUILD_MAX_KEEPS], rows[BUILD_MAX_ROWS];
    double recall[BUILD_MAX_KEEPS][BUILD_MAX_ROWS];
    double recall_best[BUILD_MAX_KEEPS][BUILD_MAX_ROWS]; /* of the very best */
    double bytes[BUILD_MAX_KEEPS][BUILD_MAX_ROWS];       /* that a pass of one state reads */
    int best_keep, best_rows; /* the fewest bytes that reach enough; -1: none do */
    /* of rows that are previewed with the clusters probed, by how many are; 0: no clusters */
    int n_probed;
    struct probed_recall {
        int32_t clusters;
        double recall, recall_best, places, bytes; /* the last two that are previewed, mean */
    } probed[BUILD_MAX_PROBED];
} sketch_recall_table;

specrt_status sketch_recall_measure(const sketch *s, const state_set *states, double enough,
                                    size_t row_bytes, int threads, sketch_recall_table *out,
                                    specrt_error *err);

/* What advice rests on. */
typedef struct sketch_facts {
    const char *trace; /* NULL: synthetic states */
    int32_t n_states;  /* that chose directions */
    int32_t n_measured;
    int32_t n_cols;
} sketch_facts;

enum { ADVICE_MOST = 512 };

/* advice_warn() : where states were too few.
 * advice_say() : which policy to compare, and where figures are; or what to do before that. A line in out
 * [ADVICE_MOST]. */
void advice_warn(const sketch_facts *f);
void advice_say(const sketch_facts *f, char *out);

#endif
