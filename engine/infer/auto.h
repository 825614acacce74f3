/* auto.h : the tools' policy word `auto`: from costs to the table of specrt_auto. */
#ifndef INFER_AUTO_H
#define INFER_AUTO_H

#include <stdbool.h>
#include "specrt_adapt.h"

/* auto_costs_read() : costs of any machine from a file, the head's by rows among them.
 * @return as specrt_costs_read(); BAD_INPUT: it has none of the head. */
specrt_status auto_costs_read(const char *path, specrt_costs *out, specrt_error *err);

/* auto_is_named() : of `auto` and `auto+POLICY`, not of NULL (no policy was named). */
bool auto_is_named(const char *text);

/* auto_costs_write() : a file of costs; one that is there needs force. */
specrt_status auto_costs_write(const specrt_costs *costs, const char *path, bool force,
                               specrt_error *err);

/* auto_policy() : the policy that is drafted from: POLICY; of `auto` alone what the costs name. Any other
 * text is returned itself. Without a text, or costs that name a policy: microspec, which needs no bundle.
 * Borrowed from both, or static. */
const char *auto_policy(const char *text, const specrt_costs *costs);

/* auto_policy_file() : `file`, of these costs, where they named that policy; NULL: text names it, or nothing
 * does. */
const char *auto_policy_file(const char *text, const specrt_costs *costs, const char *file);

/* auto_policy_opened() : what opening a policy returned. An error names the file that named the policy too.
 *   file : of auto_policy_file()
 * @return status */
specrt_status auto_policy_opened(specrt_status status, const char *file, specrt_error *err);

/* auto_costs_fit() : whether costs in `file` are of the kind of drafter that there is.
 * @return OK; BAD_INPUT: one drafts blocks, the other token by token.
 *   n_block : of the drafter, as in specrt_costs */
specrt_status auto_costs_fit(const specrt_costs *costs, int32_t n_block, const char *file,
                             specrt_error *err);

/* auto_head() : seconds of the head's products of a draft of n levels, of `rows` rows each. A block has one
 * product of its positions, with the rows of all.
 *   topk : hidden rows of the next products */
double auto_head(const specrt_costs *costs, double rows, int32_t n, int32_t topk);

/* What specrt_auto is made from, borrowed for the call. */
typedef struct auto_desc {
    const specrt_costs *costs;
    const specrt_tree_params
        *tree;            /* its num_steps is the most levels; a chain has a node a level */
    const int32_t *rows;  /* i32 [n_lists] of the head that a product reads, by list */
    const int32_t *lists; /* i32 [n_lists] rows of specrt_auto_desc; NULL: the whole policy */
    int32_t n_lists;
} auto_desc;

/* auto_table() : costs and read of specrt_auto_desc, and what specrt_auto_set_sunk() takes.
 *   cycles : f64 [n_lists, num_steps + 1], written
 *   sunk : as cycles; zeros where the drafter has no blocks
 * @return read */
double auto_table(const auto_desc *desc, double *cycles, double *sunk);

/* auto_open() : @return as specrt_auto_create() */
specrt_status auto_open(const auto_desc *desc, specrt_auto **out, specrt_error *err);

/* auto_lists() : leading rows of a policy's `static` that auto chooses from: all, half of them and so on,
 * down to 512 and never without what ends a generation; ascending.
 * @return how many; 0: the policy has no such source, or another for each level. */
int32_t auto_lists(const specrt_policy *policy, int32_t rows[SPECRT_AUTO_MAX_LISTS]);

/* auto_create() : for sessions of a policy that draft such trees. */
specrt_status auto_create(const specrt_costs *costs, const specrt_tree_params *tree,
                          const specrt_policy *policy, specrt_auto **out, specrt_error *err);

#endif
