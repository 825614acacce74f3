/* estimate.c : accept length from recorded cycles. A token could be drafted where the list holds it,
 * the drafter ranks it among the topk best of the list, and its path is likely enough for the tree; then
 * a sequence is walked in the cycles that this makes. docs/methods/replay.md has the reasons. */
#include <math.h>
#include "impl.h"

/* ---- what a tree has room for ---- */

void replay_order_nodes(const specrt_trace_record *r, int32_t order[REPLAY_NODES]) {
    for (int32_t i = 0; i < r->n_nodes; i++) {
        int32_t at = i;
        for (; at > 0 && r->tree_logprobs[order[at - 1]] < r->tree_logprobs[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

float replay_threshold(const specrt_tree_params *tree, const replay_cycle *c,
                       const int32_t order[REPLAY_NODES]) {
    const specrt_trace_record *r = &c->r;
    int32_t n_kept = 1, n_children[REPLAY_NODES] = {0}, n_at_depth[REPLAY_NODES] = {0};
    bool beam[REPLAY_NODES] = {true};
    if (!r->tree_logprobs || tree->topk == 1) return -INFINITY;
    for (int32_t j = 0; j < r->n_nodes; j++) {
        int32_t i = order[j], parent = r->tree_parents[i];
        if (i == 0 || c->depths[i] > tree->num_steps || !beam[parent] ||
            n_children[parent]++ >= tree->topk)
            continue;
        beam[i] = n_at_depth[c->depths[i]]++ < tree->topk;
        if (++n_kept == tree->num_draft_tokens) return r->tree_logprobs[i];
    }
    return -INFINITY;
}

/* ---- rows ---- */

static float logsumexp_of(const specrt_trace_record *r, const specrt_trace_info *info, int32_t i) {
    const float *logits = r->draft_logits + (int64_t)i * info->n_draft_top;
    double sum = 0;
    if (r->draft_logsumexp) return r->draft_logsumexp[i];
    for (int j = 0; j < info->n_draft_top; j++) sum += exp((double)logits[j] - (double)logits[0]);
    return (float)(log(sum) + (double)logits[0]);
}

static void place_row(const specrt_trace_info *info, const replay_cycle *c, int32_t i) {
    const specrt_trace_record *r = &c->r;
    replay_row *row = &c->rows[i];
    const int32_t *ids = r->draft_ids ? r->draft_ids + (int64_t)i * info->n_draft_top : NULL;
    row->known = ids && info->n_draft_top > 0 && ids[0] >= 0;
    row->place = 0;
    while (row->known && row->place < info->n_draft_top && ids[row->place] != r->tokens[i])
        row->place++;
}

/* The log-probability of the token's path; of accepted ones as the tree had it. */
static float path_of(const specrt_trace_info *info, const replay_cycle *c, int32_t i) {
    const specrt_trace_record *r = &c->r;
    const replay_row *row = &c->rows[i];
    if (!r->tree_logprobs) return 0;
    if (i + 1 < r->n) return r->tree_logprobs[r->nodes[i + 1]];
    if (!row->known || row->place == info->n_draft_top || !r->draft_logits) return -INFINITY;
    return r->tree_logprobs[r->nodes[i]] +
           r->draft_logits[(int64_t)i * info->n_draft_top + row->place] - logsumexp_of(r, info, i);
}

void estimate_rows(const specrt_tree_params *trees, int n_trees, const specrt_trace_info *info,
                   const replay_cycle *c, replay_levels levels[]) {
    const specrt_trace_record *r = &c->r;
    int32_t order[REPLAY_NODES];
    if (r->tree_logprobs) replay_order_nodes(r, order);
    for (int32_t i = 0; i < r->n; i++) place_row(info, c, i);
    for (int t = 0; t < n_trees; t++) {
        float threshold = replay_threshold(&trees[t], c, order);
        bool alive = true;
        for (int32_t i = 0; i < r->n; i++) {
            replay_row *row = &c->rows[i];
            bool kept = t == 0 && i + 1 < r->n && !c->rescored; /* it was in the recorded tree */
            row->room[t] = kept         ? INFINITY
                           : row->known ? path_of(info, c, i) - threshold
                                        : -INFINITY;
            if (isnan(row->room[t])) row->room[t] = -INFINITY; /* neither is known */
            if (!alive || !row->known || i >= trees[t].num_steps) continue;
            alive = kept || (row->room[t] >= 0 && row->place < trees[t].topk);
            levels[t].reached[i]++;
            levels[t].accepted[i] += alive;
        }
    }
}

/* ---- walking ---- */

static double rate_at(const replay_levels *levels, int32_t level) {
    while (level > 0 && levels->reached[level] == 0) level--;
    return levels->reached[level] ? (double)levels->accepted[level] / (double)levels->reached[level]
                                  : 0;
}

double replay_chance(const replay_levels *levels, int32_t seen, int32_t level,
                     replay_drafted drafted) {
    if (drafted == DRAFTED_YES) return 1;
    if (drafted == DRAFTED_NEVER || level == seen) return 0;
    double here = rate_at(levels, level), there = rate_at(levels, seen);
    if (drafted == DRAFTED_UNKNOWN) return here;
    return level < seen && here > there ? (here - there) / (1 - there) : 0;
}

int32_t walk_step(replay_walk *w, const specrt_tree_params *tree, const replay_levels *levels,
                  int32_t level, replay_drafted drafted) {
    w->n++;
    if (w->level < tree->num_steps) {
        double chance = replay_chance(levels, level, w->level, drafted);
        bool accepted = chance >= 1;
        if (chance > 0 && chance < 1) {
            w->carry += chance;
            accepted = w->carry >= 1;
            if (accepted) w->carry -= 1;
        }
        if (accepted) {
            w->level++;
            return 0;
        }
    }
    int32_t n = w->n;
    w->n_emitted += n;
    w->n_cycles++;
    w->level = w->n = 0;
    return n;
}
