/* drafter.h : the inside of a drafter, for engine/ only. */
#ifndef INFER_DRAFTER_H
#define INFER_DRAFTER_H

#include "engine/infer/engine_impl.h"
#include "engine/infer/weights.h"

struct engine_drafter {
    engine_model *own; /* an independent drafter; NULL: an EAGLE head, and then */
    engine_model body; /* one layer; pool and compute are the target's */
    const engine_model *target;
    engine_weights file;
    char prefix[16]; /* of the layer's tensors: "layers.0", or EAGLE-3's "midlayer" */
    bool eagle3;
    engine_matrix fc; /* EAGLE-1/2 [d, 2d]; EAGLE-3 [d, 3d] */
    const float *embedding_norm, *feature_norm, *final_norm; /* EAGLE-3, [d] */
    int32_t *d2t; /* owned; NULL: the head is the whole vocabulary's */
};

#endif
