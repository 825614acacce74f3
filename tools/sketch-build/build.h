/* build.h : what the files of sketch-build share. */
#ifndef SKETCH_BUILD_BUILD_H
#define SKETCH_BUILD_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include "base/cli.h"
#include "model/model.h"
#include "specrt_tools.h"

enum { BUILD_K = 10, BUILD_MAX_RANKS = 12, BUILD_MAX_ROWS = 8, STATES_MOST = 65536 };

typedef struct sketch_options {
    cli_common common;
    const char *model, *tensor, *trace;
    const char *codes, *held_out;
    int64_t rank, n_states, bytes; /* bytes: of a row that a scan reads, in bands; 0: one width */
    double min_recall;
    bool four_bits, allow_below;
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

/* Bands by importance: directions, and the bits of each. */
enum {
    BANDS_CONSTANT = 4,
    BANDS_SCALE = 2
}; /* bytes that a scan reads of a row, and of each band */
typedef struct band_list {
    int32_t n, rank; /* of all */
    struct {
        int32_t rank, bits;
    } bands[SPECRT_MAX_SKETCH_BANDS];
} band_list;

/* widths_choose() : the widths of the first directions that lose least of a spectrum, for a budget of bytes.
 *   spectrum : [d] what each direction adds to the variance of scores, falling
 * @return OK, NO_MEMORY, BAD_ARG: the budget holds no line. */
specrt_status widths_choose(const double *spectrum, int32_t d, double bytes, band_list *out,
                            specrt_error *err);
/* widths_bytes() : what a scan of the first n_bands reads of a row. */
double widths_bytes(const band_list *list, int32_t n_bands);

/* turn_bands() : a random rotation of each band's directions.
 *   down, lift : [rank, n_cols], turned alike in place
 * @return OK, NO_MEMORY. */
specrt_status turn_bands(const band_list *list, int32_t n_cols, uint64_t seed, double *down,
                         double *lift, specrt_error *err);

/* z = basis h; row v is about mean + code_v basis, and code_v is (row_v - mean) lift'. */
typedef struct basis {
    int32_t rank, n_cols;
    uint16_t *basis, *lift; /* f16 [rank, n_cols], by importance; of bands lift is NULL */
    /* Of bands: z = basis (h - center), code_v = (row_v - mean) turned'. */
    band_list list; /* n 0: one width */
    float *center;  /* [n_cols] the mean of states, or zeros */
    double *turned; /* [rank, n_cols] */
} basis;

/* basis_make() : the best of its rank for the rows alone, or for their products with states.
 *   states : those that are not measured count, and of bands lose their mean here; NULL: none
 *   bytes  : of bands, whose rank and widths follow from them; 0: one width, of `rank`
 * @return OK, NO_MEMORY, BAD_INPUT: states that do not vary, or a head whose rows are all alike; BAD_ARG: of
 * widths_choose(). */
specrt_status basis_make(const row_order *o, const state_set *states, int32_t rank, int64_t bytes,
                         int threads, const cli_common *common, basis *out, specrt_error *err);
void basis_free(basis *b);

/* The section, laid out as specrt_sketch. */
typedef struct sketch {
    void *bytes; /* owned */
    size_t n_bytes;
    specrt_sketch view;
} sketch;

/* sketch_make() : codes of 8 or 4 bits and lengths of all rows. @return OK, NO_MEMORY. */
specrt_status sketch_make(const row_order *o, const basis *b, bool whitened, bool four_bits,
                          int threads, sketch *out, specrt_error *err);
/* bands_make() : the same of bands. */
specrt_status bands_make(const row_order *o, const basis *b, bool whitened, int threads,
                         sketch *out, specrt_error *err);
/* bands_read() : the numbers of a place in a band, odd and without its scale. */
void bands_read(const specrt_sketch_band *band, int32_t place, float *out);
void sketch_free(sketch *s);
/* sketch_add() : adds dimensions [begin, end) of every place times q to its sum, [n_blocks, 16]. */
void sketch_add(const specrt_sketch *v, const int32_t *q, int32_t begin, int32_t end,
                int32_t *sums);
void sketch_widen(const uint16_t *halves, size_t n, double *out); /* from f16 */

/* Share of the true best that are among the best `rows` by the first `rank` dimensions. */
typedef struct sketch_recall_table {
    int n_ranks, n_rows;
    int32_t ranks[BUILD_MAX_RANKS], rows[BUILD_MAX_ROWS];
    double recall[BUILD_MAX_RANKS][BUILD_MAX_ROWS];
    double recall_best[BUILD_MAX_RANKS][BUILD_MAX_ROWS]; /* of the very best */
    double bytes[BUILD_MAX_RANKS];                       /* of a row that a scan reads */
    int best_rank, best_rows; /* the fewest bytes that reach enough; -1: none do */
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
    int64_t bytes; /* of a row, in bands; 0: one width */
    double recall; /* of the ten best rows among 128 */
} sketch_facts;

enum { ADVICE_MOST = 512 };

/* advice_warn() : where states were too few.
 * advice_say() : which policy to run, and on which published models that was seen, a line in out
 * [ADVICE_MOST]. */
void advice_warn(const sketch_facts *f);
void advice_say(const sketch_facts *f, char *out);

#endif
