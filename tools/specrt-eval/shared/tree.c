/* tree.c : the tree that options or a trace ask for. The runtime alone knows what stands for 0. */
#include "eval.h"

specrt_status eval_tree(const specrt_tree_params *asked, specrt_tree_params *out,
                        specrt_error *err) {
    specrt_tree *tree;
    *out = *asked;
    specrt_status status = specrt_tree_create(asked, NULL, &tree, err);
    if (status == SPECRT_STATUS_OK) *out = *specrt_tree_get_params(tree);
    specrt_tree_close(tree);
    return status;
}
