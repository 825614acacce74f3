/* own.h : our engine behind backend.h. */
#ifndef BACKEND_OWN_H
#define BACKEND_OWN_H

#include "engine/backend/backend.h"
#include "engine/train/controller.h"

/* own_open() : target and drafter by engine/infer, checked against each other but for their tokenizers. Where
 * several sequences run at the same time, each has one thread.
 * @return as engine_open() and engine_drafter_open(); BAD_ARG: a tree that caches cannot hold */
specrt_status own_open(const backend_desc *desc, backend **out, specrt_error *err);

/* own_over() : the same over models that are open, borrowed.
 *   drafter : NULL: none
 *   n_context : positions of a sequence; 0: the model's */
specrt_status own_over(const engine_model *target, const engine_drafter *drafter, int32_t n_context,
                       backend **out, specrt_error *err);

/* Its target, borrowed; NULL: the backend is another engine's. */
const engine_model *own_target(const backend *b);

/* own_sequence() : with a drafter of its own instead of the backend's; NULL: that. */
specrt_status own_sequence(backend *b, const engine_drafter *drafter, sequence **out,
                           specrt_error *err);

/* own_align() : the drafter of a sequence learns from every cycle of a session's (controller.h). What is
 * emitted stays the target's own; a run with steps in line is the same every time. Before the first text.
 *   controller : of that drafter, borrowed
 *   sampled : drafts are */
void own_align(sequence *s, engine_controller *controller, const specrt_session *session,
               bool sampled);

#endif
