/* own.h : our engine behind backend.h. */
#ifndef BACKEND_OWN_H
#define BACKEND_OWN_H

#include "backend.h"
#include "engine/train/controller.h"

/* own_open() : target and drafter by engine/infer, checked against each other but for their tokenizers.
 * @return as engine_open() and engine_drafter_open() */
specrt_status own_open(const backend_desc *desc, backend **out, specrt_error *err);

/* Its models, borrowed. */
const engine_model *own_target(const backend *b);
const engine_drafter *own_drafter(const backend *b);

/* own_sequence() : with a drafter of its own instead of the backend's; NULL: that. */
specrt_status own_sequence(backend *b, const engine_drafter *drafter, sequence **out,
                           specrt_error *err);

/* own_align() : the drafter of a sequence learns from every cycle of a session's (controller.h). What is
 * emitted stays the target's own; a run with steps in line is the same every time. Before the first text.
 *   controller : of that drafter, borrowed
 *   sampled : drafts are */
void own_align(sequence *s, engine_controller *controller, const specrt_session *session,
               bool sampled);
double own_align_seconds(const sequence *s); /* of the controller, since the last reset */

#endif
