/* costs.h : what the passes of an engine cost, by specrt_costs_measure(). */
#ifndef BACKEND_COSTS_H
#define BACKEND_COSTS_H

#include "engine/backend/backend.h"
#include "specrt_adapt.h"

/* sequence_meter() : a sequence's passes, to close by specrt_meter_close(). The drafter reads prompts late,
 * so that its part is timed by itself. The sequence's text is lost.
 *   head : the drafter's, borrowed; NULL: products are not timed
 *   tree : the largest draft, no member 0
 *   n_before : tokens before a pass; 0: 64 */
specrt_status sequence_meter(sequence *s, const specrt_head *head, const specrt_tree_params *tree,
                             int32_t n_before, specrt_meter *out, specrt_error *err);

/* sequence_costs() : all that sequence_meter() times, measured for about so many seconds.
 * @return OK; NO_MEMORY; HOST with what the engine says. */
specrt_status sequence_costs(sequence *s, const specrt_head *head, const specrt_tree_params *tree,
                             int32_t n_before, double seconds, specrt_costs *out,
                             specrt_error *err);

#endif
