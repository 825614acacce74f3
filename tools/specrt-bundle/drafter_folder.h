/* drafter_folder.h : a drafter's folder written anew, with other tensors and another config.json. */
#ifndef SPECRT_BUNDLE_DRAFTER_FOLDER_H
#define SPECRT_BUNDLE_DRAFTER_FOLDER_H

#include "model/checkpoint.h"

typedef struct drafter_folder {
    const checkpoint *c; /* that it is made from; its config is written where it changed */
    bool config_changed, weights_changed;
    st_tensor *tensors; /* [n_tensors] sorted here where they changed */
    int n_tensors;
    const int32_t *list; /* [n_list] for token_map.pt; NULL: none */
    int32_t n_list;
} drafter_folder;

/* drafter_folder_write() : config.json, model.safetensors, and what stands beside them and is as good for the
 * new drafter. What did not change keeps its bytes. @return IO, NO_MEMORY, BAD_ARG. Nothing is left behind
 * then. */
specrt_status drafter_folder_write(drafter_folder *f, const char *output, bool force,
                                   specrt_error *err);

#endif
