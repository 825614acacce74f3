/* vectors.h : unit rows of a head, kept as int8, and the dot products of k-means. Every figure is the same
 * on any instruction set: int8 products are whole numbers, f32 ones are summed in one order. */
#ifndef CLUSTER_BUILD_VECTORS_H
#define CLUSTER_BUILD_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/memory.h"
#include "specrt.h"

/* CLONES : a plain loop, compiled for each width of vectors. Not under ThreadSanitizer, which is not ready
 * when clones are chosen, and not with clang, which keeps clones from other files. A level of the
 * architecture, known from gcc 12 on, is met by CPUs of any maker; a model's name by its own maker's. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CLONES
#endif

/* The products of a few rows with a panel of centroids. */
typedef struct dot_kernels {
    const char *name;
    int width;      /* centroids of a panel */
    int elem_bytes; /* of a panel: 1: value + 128, as unsigned; 2: the value */
    /* rows: int8 [n_cols] each; panel: groups of 4 / elem_bytes columns, each [width][group]
     *   sums : i32 [DOT_ROWS, width], of products with the panel's elements as they are stored */
    void (*tile)(const int8_t *const *rows, const void *panel, int32_t n_cols, int32_t *sums);
} dot_kernels;

enum { DOT_ROWS = 6, DOT_MAX_WIDTH = 64, DOT_PAD = 16 /* n_cols of int8 rows is a multiple */ };

/* dot_choose() : the fastest this CPU has, or the one named ("vnni", "avx2", "plain"); NULL: not here. */
const dot_kernels *dot_choose(const char *name);

/* dot_f32() : the product of two rows, lane by lane, then the lanes as a tree. */
float dot_f32(const float *a, const float *b, int32_t n);

/* Vectors of length 1 rounded to int8: x ~ scale q. */
typedef struct unit_rows {
    int32_t n, n_cols;
    int32_t stride;   /* n_cols padded with zeros */
    int8_t *q;        /* [n, stride] */
    float *scales;    /* [n] */
    float *residuals; /* [n] |x - scale q| */
    int32_t *sums;    /* [n] of q */
    sl_arrays owned;  /* these */
} unit_rows;

/* unit_rows_create() : room for n rows. @return false: no memory. */
bool unit_rows_create(unit_rows *u, int32_t n, int32_t n_cols);
void unit_rows_free(unit_rows *u);

/* unit_rows_set() : row i from x f32 [n_cols], scaled to length 1 by `inverse`. */
void unit_rows_set(unit_rows *u, int32_t i, const float *x, float inverse);

/* Unit rows laid out for the kernels. */
typedef struct panels {
    const dot_kernels *kernels;
    int32_t n, n_cols, n_panels;
    size_t panel_bytes;
    void *bytes;    /* [n_panels] */
    float *scales;  /* [n_panels * width] 0 beyond n */
    float residual; /* the greatest of all */
} panels;

bool panels_create(panels *p, int32_t n, int32_t n_cols, const dot_kernels *kernels);
void panels_free(panels *p);
void panels_fill(panels *p, const unit_rows *u); /* u->n <= the n of create, which it becomes */

/* panels_width() : columns of a row of similarities: n, rounded up to whole panels. */
int32_t panels_width(const panels *p);

/* panels_similarities() : of rows [begin, end) with all of the panel's, beyond n -inf.
 *   out : f32 [end - begin, panels_width()] */
void panels_similarities(const panels *p, const unit_rows *rows, int32_t begin, int32_t end,
                         float *out);

/* panels_noise() : how far apart rounding may set the similarities of row i with two centroids whose
 * exact ones are equal: six standard deviations. */
float panels_noise(const panels *p, const unit_rows *rows, int32_t i);

#endif
