/* weights.h : matrices and vectors of known shapes out of a model file of either kind. */
#ifndef INFER_WEIGHTS_H
#define INFER_WEIGHTS_H

#include "engine/infer/engine_impl.h"
#include "model/model.h"

/* An open file and what was decoded from it. Zero-initialise before engine_weights_open. */
typedef struct engine_weights {
    model file;
    void **decoded; /* [n_decoded] owned */
    int n_decoded;
} engine_weights;

specrt_status engine_weights_open(engine_weights *w, const char *path, specrt_error *err);
void engine_weights_close(engine_weights *w);

bool engine_weights_has(const engine_weights *w, const char *name);

/* engine_weights_shape() : rows and columns of a matrix; false, and 0 for both, where there is none. */
bool engine_weights_shape(const engine_weights *w, const char *name, int64_t *n_rows,
                          int64_t *n_cols);

/* engine_weights_matrix() : [n_rows, n_cols] as rows, where they lie in the file.
 * @return BAD_INPUT naming the tensor, the shape expected and the shape found. */
specrt_status engine_weights_matrix(engine_weights *w, const char *name, int64_t n_rows,
                                    int64_t n_cols, engine_matrix *out, specrt_error *err);

/* engine_weights_vector() : f32 [n], all finite; *out is NULL when an optional one is absent. */
specrt_status engine_weights_vector(engine_weights *w, const char *name, int64_t n, bool optional,
                                    const float **out, specrt_error *err);

#endif
