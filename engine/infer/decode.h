/* decode.h : one sequence decoded with a target, a drafter and a session; what an engine that
 * embeds specrt.h looks like. Without a drafter it decodes plainly, through the same target. */
#ifndef INFER_DECODE_H
#define INFER_DECODE_H

#include "engine/train/controller.h"

/* Seconds since engine_decoder_begin, by phase of a cycle. */
typedef struct engine_decode_times {
    double prefill;
    double draft;  /* the drafter's layer */
    double head;   /* products with the shortlist, their ranking, the tree */
    double target; /* the target's pass over the tree */
    double verify; /* drawing and descending */
    double update; /* sources learning, rows packed */
    double align;  /* the controller's: rows kept, steps in line, weights taken over */
    double watch;  /* of engine_decoder_watch(), no part of a cycle */
} engine_decode_times;

typedef struct engine_decoder engine_decoder;

/* engine_decoder_create() : Allocates a sequence.
 *   drafter, policy : borrowed; both NULL: plain decoding
 *   params : trees and sampling, which plain decoding has too; n_logits is filled in
 *   n_vocab : tokens are in [0, n_vocab), as for the policy; 0: all columns of the target's logits
 *   n_context : positions; 0: the model's
 * @return OK, NO_MEMORY, BAD_ARG. */
specrt_status engine_decoder_create(const engine_model *target, const engine_drafter *drafter,
                                    const specrt_policy *policy,
                                    const specrt_session_params *params, int32_t n_vocab,
                                    int32_t n_context, engine_decoder **out, specrt_error *err);
void engine_decoder_free(engine_decoder *d);

/* engine_decoder_host() : its models as a host, borrowed, for its own session; NULL functions when plain.
 * Call engine_decoder_reset() before each sequence. */
const specrt_host *engine_decoder_host(const engine_decoder *d);
void engine_decoder_reset(engine_decoder *d);

/* engine_decoder_align() : its drafter learns from every cycle (controller.h). What is emitted stays the
 * target's own; a run with steps in line is the same every time.
 *   controller : of the drafter that this decoder drafts with, borrowed; before the first sequence */
void engine_decoder_align(engine_decoder *d, engine_controller *controller);

/* engine_decoder_watch() : called in each cycle, verified but not learnt from yet, while the session's lists
 * are those it was drafted from.  logits : f32 [draft->n, n_logits] of the target, n_logits as in
 * engine_config.n_vocab */
void engine_decoder_watch(engine_decoder *d,
                          void (*watch)(void *user, const specrt_draft *draft,
                                        const specrt_verdict *verdict, const float *logits),
                          void *user);

/* engine_decoder_begin() : Reads a prompt, i32 [n], n >= 1: all of the conversation so far.
 *   request : as for specrt_host_begin(), at position 0; NULL: a new sequence. Plain decoding takes its
 *       sampling and max_tokens too, and its draws have a session's keys
 * @return OK; BAD_ARG when the prompt is empty, has ids outside the vocabulary or fills the context;
 * BAD_INPUT when a model answers with NaN. */
specrt_status engine_decoder_begin(engine_decoder *d, const specrt_request *request,
                                   const int32_t *prompt, int32_t n, specrt_error *err);

/* engine_decoder_next() : Emits the next tokens, at first the one that came with the prompt.
 *   out : borrowed until the next call; as from specrt_host_cycle(). Plain decoding knows no terminators
 * @return OK, and the statuses of specrt_host_cycle(). */
specrt_status engine_decoder_next(engine_decoder *d, const specrt_verdict **out, specrt_error *err);

const engine_decode_times *engine_decoder_times(const engine_decoder *d);
specrt_session *engine_decoder_session(const engine_decoder *d); /* borrowed; NULL when plain */

#endif
