/* budget.h : the tools' policy word `auto`: from curves (costs.h) to the table of specrt_auto. */
#ifndef ENGINE_BUDGET_H
#define ENGINE_BUDGET_H

#include "engine/costs.h"

/* budget_is_auto() : of `auto` and `auto+POLICY`, not of NULL (no policy was named). */
bool budget_is_auto(const char *text);

/* budget_policy() : the policy that is drafted from: POLICY, of `auto` alone microspec, which needs no
 * bundle; any other text itself, NULL too. Borrowed from the text, or static. */
const char *budget_policy(const char *text);

/* budget_cycles() : what cycles cost by the curves.
 *   tree : its num_steps is the most levels; a chain's target reads a node a level
 *   rows : i32 [n_lists] of the head, by list
 *   out  : f64 [n_lists, num_steps + 1] seconds */
void budget_cycles(const pass_costs *costs, const specrt_tree_params *tree, const int32_t *rows,
                   int32_t n_lists, double *out);

/* budget_read() : seconds of a drafter's pass for each token beyond the first. */
double budget_read(const pass_costs *costs);

/* budget_sizes() : of a policy that is `static:N` alone, the sizes of its lists where all that ends a
 * generation is ranked first: N, half of it and so on, down to 512; ascending. @return how many; 0: another
 * policy. */
int32_t budget_sizes(const char *text, int32_t sizes[SPECRT_AUTO_MAX_LISTS]);

/* budget_lists() : leading rows of a policy's `static` that auto chooses from: all, half of them and so on,
 * down to 512 and never without what ends a generation; ascending.
 * @return how many; 0: the policy has no such source, or another for each level. */
int32_t budget_lists(const specrt_policy *policy, int32_t rows[SPECRT_AUTO_MAX_LISTS],
                     specrt_error *err);

/* budget_create() : for sessions of a policy that draft such trees. */
specrt_status budget_create(const pass_costs *costs, const specrt_tree_params *tree,
                            const specrt_policy *policy, specrt_auto **out, specrt_error *err);

#endif
