/* ordered.h : a dense drafter's folder with an ordered head (model/ordered_head.h). */
#ifndef SPECRT_BUNDLE_ORDERED_H
#define SPECRT_BUNDLE_ORDERED_H

#include <json-c/json.h>
#include "model/ordered_head.h"

typedef struct ordered_request {
    const char *drafter, *output; /* folders; the drafter's safetensors will do */
    const specrt_bundle *bundle;  /* with section "centroid", or ranks for a list alone */
    int64_t n_clusters, topk,
        hot; /* 0: as the section has them; hot of all slots: a list alone, repeated in
                                    * every cluster (FR-Spec) */
    bool force;
} ordered_request;

/* What an ordering holds. */
typedef struct ordered_counts {
    int32_t n_clusters, topk, n_slots; /* n_slots: of a cluster */
    int32_t n_tokens;                  /* that have a slot */
    int32_t n_hot;                     /* in every cluster */
    double batch;                      /* sl_ordered_head_batch() */
} ordered_counts;

/* ordered_count() : of a head without a fault. @return NO_MEMORY */
specrt_status ordered_count(const ordered_head *o, ordered_counts *out, specrt_error *err);

/* ordered_json() : the counts as an object; NULL: no memory. */
json_object *ordered_json(const ordered_counts *n);

/* ordered_write() : config.json with its three keys, all tensors as they were, and two more, once they pass
 * sl_ordered_head_check(). *counts are of these.
 * @return BAD_ARG: sizes that do not fit the section or the drafter; BAD_INPUT, UNSUPPORTED: a drafter
 * without a whole head in f32, f16 or bf16; IO, NO_MEMORY. Nothing is left behind then. */
specrt_status ordered_write(const ordered_request *r, ordered_counts *counts, specrt_error *err);

#endif
