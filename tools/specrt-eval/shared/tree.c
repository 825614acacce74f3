/* tree.c : the one place that decides whether a verb drafts chains or trees, and of which size. The runtime
 * alone knows EAGLE-2's tree, which stands for 0 in its parameters and in a trace. */
#include "eval.h"

#include "base/error.h"

/* A CPU's pass over a tree costs nearly as many products as the tree has nodes: short chains are fastest. */
enum { CHAIN_STEPS = 3 };

specrt_status eval_tree(const specrt_tree_params *asked, specrt_tree_params *out,
                        specrt_error *err) {
    specrt_tree *tree;
    *out = *asked;
    specrt_status status = specrt_tree_create(asked, NULL, &tree, err);
    if (status == SPECRT_STATUS_OK) *out = *specrt_tree_get_params(tree);
    specrt_tree_close(tree);
    return status;
}

static specrt_status check_asked(const eval_options *o, specrt_error *err) {
    if (!o->tree || (o->topk != 1 && !o->sampled_drafts)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--tree: expected no %s, which drafts a chain; drop one of them",
                            o->topk == 1 ? "--topk 1" : "--sampled-drafts");
}

/* More nodes than a chain has were meant for a tree. */
static specrt_status check_chain(const specrt_tree_params *chain, specrt_error *err) {
    if (chain->num_draft_tokens <= chain->num_steps + 1) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--num-draft-tokens: expected at most %d, the nodes of a chain of "
                            "--num-steps %d, found %d; a tree needs --tree or --topk above 1",
                            (int)chain->num_steps + 1, (int)chain->num_steps,
                            (int)chain->num_draft_tokens);
}

specrt_status eval_choose_tree(eval_options *o, bool tree_by_default, specrt_error *err) {
    specrt_tree_params tree = {.num_steps = (int32_t)o->num_steps,
                               .topk = (int32_t)o->topk,
                               .num_draft_tokens = (int32_t)o->num_draft_tokens};
    bool tree_wanted = (o->tree || tree_by_default) && !o->sampled_drafts;
    TRY(check_asked(o, err));
    if (tree.topk == 0 && !tree_wanted) tree.topk = 1;
    bool chain = tree.topk == 1, whole = tree.num_draft_tokens == 0;
    TRY(eval_tree(&tree, &tree, err));
    if (chain && whole) tree.num_draft_tokens = tree.num_steps + 1;
    o->auto_tree = tree;
    if (chain && !tree_by_default && o->num_steps == 0) tree.num_steps = CHAIN_STEPS;
    if (chain && whole) tree.num_draft_tokens = tree.num_steps + 1;
    o->num_steps = tree.num_steps;
    o->topk = tree.topk;
    o->num_draft_tokens = tree.num_draft_tokens;
    return chain ? check_chain(&tree, err) : SPECRT_STATUS_OK;
}
