/* head_share.h : what share of the bytes that a draft reads is its head: the most that a shorter list can
 * save. */
#ifndef MODEL_HEAD_SHARE_H
#define MODEL_HEAD_SHARE_H

#include "model/checkpoint.h"

/* Bytes of weights, as stored, that a pass over one token reads. Embeddings are looked up: not counted. */
typedef struct head_share {
    double target; /* a pass of the target; 0: its weights are not there */
    double layers; /* a pass of the drafter but for its heads */
    double head;   /* the LM head that drafts, and a Markov head */
    double draft;  /* head, as a share of a draft step, or of a block, whose pass reads it once */
    double cycle;  /* the same of a cycle: the target's pass and all draft steps; NAN: not known */
} head_share;

/* sl_head_share() : of a pair, from the sizes of tensors alone.
 *   target : file or folder. One without weights (config.json alone) leaves target 0 and cycle NAN, as does
 *       one with experts, of which a pass reads a part. A drafter with experts leaves layers and shares NAN
 *   id : what the drafter is
 *   n_drafts : tokens of a draft
 * @return as sl_model_open(); BAD_INPUT for a drafter without a head whose target has none to show. */
specrt_status sl_head_share(const char *target, const char *drafter, const checkpoint_id *id,
                            int64_t n_drafts, head_share *out, specrt_error *err);

#endif
