/* decode.h : one sequence decoded with a target, a drafter and a session; what an engine that
 * embeds specrt.h looks like. Without a drafter it decodes plainly, through the same target. */
#ifndef DECODE_H
#define DECODE_H

#include "engine.h"

/* Seconds since decoder_begin, by phase of a cycle. */
typedef struct decode_times {
    double prefill;
    double draft;  /* the drafter's layer */
    double head;   /* products with the active rows, their ranking, the tree */
    double target; /* the target's pass over the tree */
    double verify; /* drawing and descending */
    double update; /* sources learning, rows packed */
    double watch;  /* of decoder_watch(), no part of a cycle */
} decode_times;

typedef struct decoder decoder;

/* decoder_create() : all memory of a sequence.
 *   drafter, policy : borrowed; both NULL: plain decoding
 *   params   : trees and sampling; the sampling serves plain decoding too
 *   n_context : positions; 0: the model's
 * @return OK, NO_MEMORY, BAD_ARG. */
specrt_status decoder_create(const engine_model *target, const engine_drafter *drafter,
                             const specrt_policy *policy, const specrt_session_params *params,
                             int32_t n_context, decoder **out, specrt_error *err);
void decoder_free(decoder *d);

/* decoder_host() : its models as a host, borrowed, for its own session; NULL functions when plain. Call
 * decoder_reset() before each sequence. */
const specrt_host *decoder_host(const decoder *d);
void decoder_reset(decoder *d);

/* decoder_keep() : whether a new sequence keeps what the session's sources learnt (specrt_host_turn()). */
void decoder_keep(decoder *d, bool keep);

/* decoder_watch() : called in each cycle, verified but not learnt from yet, while the session's lists are
 * those it was drafted from.  logits : f32 [draft->n, n_vocab] of the target */
void decoder_watch(decoder *d,
                   void (*watch)(void *user, const specrt_draft *draft,
                                 const specrt_verdict *verdict, const float *logits),
                   void *user);

/* decoder_begin() : a new sequence from its prompt, i32 [n], n >= 1.
 * @return OK; BAD_ARG when it is empty, holds ids outside the vocabulary or fills the context;
 * BAD_INPUT when a model answers with NaN. */
specrt_status decoder_begin(decoder *d, const int32_t *prompt, int32_t n, specrt_error *err);

/* decoder_set_sequence() : keys the draws of the sequence that begins next, plain or not; each begin counts
 * on from the last (specrt_session_set_sequence). */
void decoder_set_sequence(decoder *d, uint64_t sequence);

/* decoder_next() : the next tokens, at least one.
 *   tokens : i32 [*n], borrowed until the next call; *n = 0 once the context is full */
specrt_status decoder_next(decoder *d, const int32_t **tokens, int32_t *n);

const decode_times *decoder_times(const decoder *d);
specrt_session *decoder_session(const decoder *d); /* borrowed; NULL when plain */

/* decoder_hidden() : of the target's last batch, f32 [n, d_model] after the final norm, borrowed. */
const float *decoder_hidden(const decoder *d);

#endif
