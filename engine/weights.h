/* weights.h : matrices and vectors of known shapes out of a model file of either kind. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "engine_impl.h"
#include "model.h"

/* An open file and what was decoded from it. Zero-initialise before weights_open. */
typedef struct weights {
    model file;
    void **decoded; /* [n_decoded] owned */
    int n_decoded;
} weights;

specrt_status weights_open(weights *w, const char *path, specrt_error *err);
void weights_close(weights *w);

bool weights_has(const weights *w, const char *name);

/* weights_matrix() : [n_rows, n_cols] as rows; formats without kernels are decoded to f32.
 * @return BAD_INPUT naming the tensor, the shape expected and the shape found. */
specrt_status weights_matrix(weights *w, const char *name, int64_t n_rows, int64_t n_cols,
                             engine_matrix *out, specrt_error *err);

/* weights_vector() : f32 [n], all finite; *out is NULL when an optional one is absent. */
specrt_status weights_vector(weights *w, const char *name, int64_t n, bool optional,
                             const float **out, specrt_error *err);

#endif
