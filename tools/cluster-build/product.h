/* product.h : matrix products in f32, the same bits for any number of threads and on any CPU. */
#ifndef CLUSTER_BUILD_PRODUCT_H
#define CLUSTER_BUILD_PRODUCT_H

#include <stdint.h>
#include "base/parallel.h"

/* Element (i, j) is x[i * row + j * col], so that a transpose is a view. */
typedef struct matrix_view {
    const float *x;
    int64_t row, col;
} matrix_view;

/* product() : c [m, n] = a [m, k] b [k, n]; each element is summed in ascending order of k, in blocks. */
void product(parallel_pool *pool, matrix_view a, matrix_view b, int32_t m, int32_t n, int32_t k,
             float *c);

#endif
