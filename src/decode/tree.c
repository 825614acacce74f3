/* tree.c : owns the candidates of one draft: expansion level by level and the choice of nodes to verify.
 * Refuses trees beyond the limits. Cumulative log-probabilities never rise along a path, and ties go
 * to the lower candidate index, so a chosen node's parent is chosen too (methods of EAGLE-2, where
 * ties could orphan a node). */
#include "decode/tree.h"
#include "core/base.h"

SPECRT__INTERNAL specrt_status specrt__tree_resolve(const specrt_tree_params *in,
                                                    specrt_tree_params *out, specrt_error *err) {
    memset(out, 0, sizeof *out);
    if (in) *out = *in;
    if (out->num_steps == 0) out->num_steps = 6;
    if (out->topk == 0) out->topk = 10;
    if (out->num_draft_tokens == 0) out->num_draft_tokens = 60;
    if (out->num_steps < 1 || out->num_steps > SPECRT_TREE_MAX_STEPS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: num_steps: expected 1 to %d, found %d",
                                SPECRT_TREE_MAX_STEPS, (int)out->num_steps);
    if (out->topk < 1 || out->topk > SPECRT_TREE_MAX_TOPK)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: topk: expected 1 to %d, found %d", SPECRT_TREE_MAX_TOPK,
                                (int)out->topk);
    if (out->num_draft_tokens < 2 || out->num_draft_tokens > SPECRT_TREE_MAX_NODES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: num_draft_tokens: expected 2 to %d, found %d",
                                SPECRT_TREE_MAX_NODES, (int)out->num_draft_tokens);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_tree_create(const specrt_tree_params *params, const specrt_env *env,
                                            specrt_tree **out, specrt_error *err) {
    specrt_tree_params p;
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__TRY(specrt__tree_resolve(params, &p, err));
    size_t k = (size_t)p.topk, n = k + (size_t)(p.num_steps - 1) * k * k;
    size_t bytes = sizeof(specrt_tree) + n * sizeof(specrt__tree_candidate) +
                   k * (3 * sizeof(int32_t) + sizeof(float));
    specrt_tree *t = (specrt_tree *)specrt__base_alloc(&own, bytes);
    if (!t) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "tree: out of memory");
    memset(t, 0, sizeof *t);
    t->env = own;
    t->params = p;
    t->candidates = (specrt__tree_candidate *)(void *)(t + 1);
    t->beam = (int32_t *)(void *)(t->candidates + n);
    t->beam_tokens = t->beam + k;
    t->beam_parents = t->beam_tokens + k;
    t->beam_logprobs = (float *)(void *)(t->beam_parents + k);
    *out = t;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_tree_close(specrt_tree *tree) {
    if (!tree) return;
    specrt_env env = tree->env;
    specrt__base_free(&env, tree);
}

SPECRT_API const specrt_tree_params *specrt_tree_get_params(const specrt_tree *tree) {
    return tree ? &tree->params : NULL;
}

SPECRT_API void specrt_tree_begin(specrt_tree *tree, int32_t root) {
    if (!tree) return;
    tree->root = root;
    tree->level = tree->n_candidates = 0;
    tree->n_beam = 1; /* the root */
}

/* The m best of candidates [first, n), by (logprob descending, index ascending), none at -inf.
 * @return how many. */
static int32_t specrt__tree_best(const specrt_tree *t, int32_t first, int32_t m, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = first; i < t->n_candidates; i++) {
        float x = t->candidates[i].logprob;
        if (!(x > -INFINITY) || (n == m && x <= t->candidates[out[m - 1]].logprob)) continue;
        int32_t at = n < m ? n++ : m - 1;
        for (; at > 0 && t->candidates[out[at - 1]].logprob < x; at--) out[at] = out[at - 1];
        out[at] = i;
    }
    return n;
}

SPECRT_API specrt_status specrt_tree_expand(specrt_tree *t, const int32_t *ids,
                                            const float *logprobs, int32_t n, int32_t k,
                                            specrt_beam *beam) {
    if (beam) memset(beam, 0, sizeof *beam);
    if (!t || !beam || (k > 0 && (!ids || !logprobs)) || n != t->n_beam || k < 0 ||
        k > t->params.topk || t->level == t->params.num_steps)
        return SPECRT_STATUS_BAD_ARG;
    int32_t first = t->n_candidates;
    for (int32_t r = 0; r < n; r++) {
        int32_t parent = t->level == 0 ? -1 : t->beam[r];
        float path = parent < 0 ? 0 : t->candidates[parent].logprob;
        for (int32_t j = 0; j < k; j++) {
            specrt__tree_candidate *c = &t->candidates[t->n_candidates++];
            c->token = ids[r * k + j];
            c->parent = parent;
            c->beam_row = -1;
            c->logprob = specrt__tree_add(path, logprobs[r * k + j]);
        }
    }
    t->n_beam =
        ++t->level < t->params.num_steps ? specrt__tree_best(t, first, t->params.topk, t->beam) : 0;
    for (int32_t i = 0; i < t->n_beam; i++) {
        specrt__tree_candidate *c = &t->candidates[t->beam[i]];
        c->beam_row = i;
        t->beam_tokens[i] = c->token;
        t->beam_parents[i] = (t->beam[i] - first) / k;
        t->beam_logprobs[i] = c->logprob;
    }
    beam->n = t->n_beam;
    beam->tokens = t->beam_tokens;
    beam->parents = t->beam_parents;
    beam->logprobs = t->beam_logprobs;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_tree_finish(specrt_tree *t, specrt_draft *draft) {
    if (draft) memset(draft, 0, sizeof *draft);
    if (!t || !draft) return;
    int32_t n = specrt__tree_best(t, 0, t->params.num_draft_tokens - 1, t->chosen);
    for (int32_t i = 1; i < n; i++) { /* into candidate order: parents first, levels together */
        int32_t x = t->chosen[i], at = i;
        for (; at > 0 && t->chosen[at - 1] > x; at--) t->chosen[at] = t->chosen[at - 1];
        t->chosen[at] = x;
    }
    t->tokens[0] = t->root;
    t->parents[0] = -1;
    t->depths[0] = 0;
    t->masks[0] = 1;
    t->logprobs[0] = 0;
    t->beam_rows[0] = t->level > 0 ? 0 : -1;
    for (int32_t i = 1; i <= n; i++) {
        const specrt__tree_candidate *c = &t->candidates[t->chosen[i - 1]];
        int32_t parent = specrt__tree_node(t, c->parent, i - 1);
        t->tokens[i] = c->token;
        t->parents[i] = parent;
        t->depths[i] = t->depths[parent] + 1;
        t->masks[i] = t->masks[parent] | (uint64_t)1 << i;
        t->logprobs[i] = c->logprob;
        t->beam_rows[i] = t->depths[i] < t->level ? c->beam_row : -1;
    }
    draft->n = n + 1;
    draft->tokens = t->tokens;
    draft->parents = t->parents;
    draft->depths = t->depths;
    draft->masks = t->masks;
    draft->logprobs = t->logprobs;
    draft->beam_rows = t->beam_rows;
    draft->cycle = 0;
}
