/* specrt_llama_costs.h : the policy that `auto` drafts from, by costs. Needs nothing of llama.cpp. */
#ifndef LLAMA_SPECRT_LLAMA_COSTS_H
#define LLAMA_SPECRT_LLAMA_COSTS_H

#include "specrt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* specrt_llama_costs_policy() : Of full, hybrid, sums with `successor`, and microspec, the policy that gives
 * most tokens for its time, of those that open. A head too small to matter is scored in full. Static text. */
const char *specrt_llama_costs_policy(specrt_costs *costs, const specrt_costs_drafts *drafts);

#ifdef __cplusplus
}
#endif

#endif
