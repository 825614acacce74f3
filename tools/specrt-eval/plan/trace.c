/* trace.c : a plan whose acceptance comes from recorded cycles, replayed; nothing is decoded. */
#include <math.h>
#include <stdlib.h>
#include "run.h"
#include "../replay/replay.h"
#include "base/error.h"

typedef struct trial { /* the shapes of one width */
    specrt_tree_params trees[PLAN_SHAPES];
    int n, width;
} trial;

static int32_t lesser(int64_t bound, int32_t recorded) {
    return bound && bound < recorded ? (int32_t)bound : recorded;
}

/* No larger than what was recorded. */
static trial trial_of(const plan *p, int width, const specrt_tree_params *recorded) {
    const eval_options *o = &p->options;
    const specrt_tree_params most = {lesser(o->num_steps, recorded->num_steps), (int32_t)o->topk,
                                     lesser(o->num_draft_tokens, recorded->num_draft_tokens)};
    specrt_tree_params shapes[PLAN_SHAPES];
    trial t = {.width = width};
    if (specrt_costs_width(width) <= recorded->topk) t.n = plan_shapes(width, &most, shapes);
    for (int s = 0; s < t.n; s++)
        t.trees[s] =
            (specrt_tree_params){shapes[s].num_steps, shapes[s].topk, shapes[s].num_draft_tokens};
    return t;
}

static specrt_status replay_policy(const plan *p, const trial *t, int policy, replay **out,
                                   specrt_error *err) {
    const char *text = p->policies[policy].name;
    /* The file whose head the drafter's states are multiplied with. */
    bool own_head = p->models.info->is_model;
    const replay_params params = {.traces = p->traces.items,
                                  .n_traces = p->traces.n,
                                  .policies = &text,
                                  .n_policies = 1,
                                  .trees = t->trees,
                                  .n_trees = t->n,
                                  .bundle = p->options.bundle,
                                  .model = own_head ? p->options.draft : p->options.target,
                                  .threads = (int)p->options.common.threads};
    return replay_run(&params, out, err);
}

static double accept_of(const replay *r, int tree, int task) {
    replay_figures f;
    replay_figures_of(r, 0, tree, task, &f);
    return f.accept_length.value;
}

static retained retained_of(const replay *r, const replay *full, int tree) {
    retained kept = {accept_of(r, tree, -1) / accept_of(full, tree, -1), NAN, 0, ""};
    for (int d = 0; d < replay_n_domains(r); d++) {
        double share = accept_of(r, tree, d) / accept_of(full, tree, d);
        if (!isnan(share)) retained_add_task(&kept, replay_domain(r, d), share);
    }
    return kept;
}

/* The fastest shape stands for all. */
static void add_way(plan *p, const trial *t, int policy, const replay *r, const replay *full) {
    int tree_of_best = 0;
    plan_way best = {.speed = 0};
    for (int i = 0; i < t->n; i++) {
        replay_figures f;
        replay_figures_of(r, 0, i + 1, -1, &f);
        const specrt_tree_params *tree = &t->trees[i];
        plan_way c = {.policy = policy,
                      .shape = {tree->num_steps, tree->topk, tree->num_draft_tokens},
                      .rows = f.shortlist_rows.value,
                      .accept_length = f.accept_length.value,
                      .accept_half = 0.5 * (f.accept_length.high - f.accept_length.low)};
        plan_choose_from_curves(p, t->width, &c);
        if (c.speed <= best.speed) continue;
        best = c;
        tree_of_best = i + 1;
    }
    if (best.speed == 0) return;
    best.kept = retained_of(r, full, tree_of_best);
    p->ways[p->n_ways++] = best;
}

/* What replay cannot follow (a source that needs more than the trace holds) is left out by name. */
static specrt_status try_policy(plan *p, const trial *t, int policy, const replay *full,
                                specrt_error *err) {
    replay *r = NULL;
    specrt_status status = replay_policy(p, t, policy, &r, err);
    if (status == SPECRT_STATUS_OK) {
        add_way(p, t, policy, r, full);
    } else if (status == SPECRT_STATUS_BAD_ARG || status == SPECRT_STATUS_UNSUPPORTED) {
        sl_cli_warn("%s: left out: %s", p->policies[policy].name, err->msg);
        status = SPECRT_STATUS_OK;
    }
    replay_free(r);
    return status;
}

specrt_status plan_read_tree(plan *p, specrt_error *err) {
    const trial none = {.n = 0};
    replay *r;
    TRY(replay_policy(p, &none, 0, &r, err)); /* of the first policy, `full` */
    replay_figures f;
    replay_figures_of(r, 0, 0, -1, &f);
    p->recorded_prompt = f.prompt_tokens;
    p->recorded = *replay_tree(r, 0);
    bool told = replay_knows_drafter(r);
    replay_free(r);
    return told
               ? SPECRT_STATUS_OK
               : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: expected the drafter's best tokens; record with --draft-top "
                                  "above 0",
                                  p->traces.items[0]);
}

/* The first policy is `full`, which the others are compared with. */
static specrt_status try_policies(plan *p, const trial *t, specrt_error *err) {
    replay *full = NULL;
    specrt_status status = replay_policy(p, t, 0, &full, err);
    if (status == SPECRT_STATUS_OK) add_way(p, t, 0, full, full);
    for (int i = 1; status == SPECRT_STATUS_OK && i < p->n_policies; i++)
        status = try_policy(p, t, i, full, err);
    replay_free(full);
    return status;
}

specrt_status plan_from_trace(plan *p, specrt_error *err) {
    int n_shapes = 0;
    p->ways =
        (plan_way *)malloc((size_t)(SPECRT_COSTS_WIDTHS * p->n_policies + 1) * sizeof *p->ways);
    if (!p->ways) return sl_error_no_memory_for(err, "a plan");
    p->n_ways = 0;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) {
        const trial t = trial_of(p, w, &p->recorded);
        n_shapes += t.n;
        if (t.n) TRY(try_policies(p, &t, err));
    }
    if (n_shapes == 0) return plan_no_tree(err);
    plan_rank_curves(p);
    return SPECRT_STATUS_OK;
}
