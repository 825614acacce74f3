/* way.c : from costs and runs to tokens per second of every shape, and the best way. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan.h"
#include "base/error.h"

/* ---- shapes ---- */

static bool within(const specrt_tree_params *s, const specrt_tree_params *most) {
    return (!most->num_steps || s->num_steps <= most->num_steps) &&
           (!most->topk || s->topk == most->topk) &&
           (!most->num_draft_tokens || s->num_draft_tokens <= most->num_draft_tokens);
}

int plan_shapes(int width, const specrt_tree_params *most, specrt_tree_params out[PLAN_SHAPES]) {
    static const int32_t nodes[] = {8, 12, 16, 24, 32, 48, 60};
    int32_t topk = specrt_costs_width(width), longest = topk == 1 ? PLAN_CHAIN : 6;
    int n = 0;
    if (topk == 1 && most->num_steps > longest) longest = most->num_steps;
    for (int32_t steps = topk == 1 ? 1 : 2; steps <= longest; steps++)
        for (size_t i = 0; i < (topk == 1 ? 1 : sizeof nodes / sizeof *nodes); i++) {
            specrt_tree_params s = {steps, topk, topk == 1 ? steps + 1 : nodes[i]};
            if (s.num_draft_tokens > topk + (steps - 1) * topk * topk + 1) continue;
            if (within(&s, most) && n < PLAN_SHAPES) out[n++] = s;
        }
    return n;
}

specrt_status plan_no_tree(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "no tree is within --topk (1, 4 or 10), --num-steps and "
                            "--num-draft-tokens");
}

int plan_tree_tokens(const specrt_draft *draft, const specrt_verdict *verdict,
                     const specrt_tree_params *shape) {
    int accepted = 0;
    for (int32_t i = 1; i < verdict->n && i <= shape->num_steps; i++) {
        int32_t node = verdict->nodes[i], before = 0;
        for (int32_t j = 1; j < draft->n; j++)
            before += draft->depths[j] <= shape->num_steps &&
                      (draft->logprobs[j] > draft->logprobs[node] ||
                       (draft->logprobs[j] == draft->logprobs[node] && j < node));
        if (before + 2 > shape->num_draft_tokens) break; /* the root and itself */
        accepted++;
    }
    return accepted + 1;
}

void plan_tally_chain(plan_tally *t, int ran, int accepted, int num_steps) {
    int n = t->open + accepted + 1, most = num_steps + 1;
    t->open = accepted == ran ? n % most : 0;
    t->tokens += n - t->open;
    t->cycles += (n - t->open + num_steps) / most;
}

/* ---- one shape ---- */

/* The probability that a draft of n is accepted whole, where each of its tokens is as likely as the one
 * before: 1 + p + ... + p^n is the accept length. */
static double accepted_whole(double accept_length, int32_t n) {
    double low = 0, high = 1;
    for (int i = 0; i < 40; i++) {
        double p = 0.5 * (low + high), sum = 1;
        for (int32_t k = 0; k < n; k++) sum = 1 + p * sum;
        *(sum < accept_length ? &low : &high) = p;
    }
    return pow(high, n);
}

double plan_first_tokens(const specrt_costs *c, const specrt_tree_params *s, double emitted) {
    return c->keeps_chains && s->topk == 1 ? 1 + accepted_whole(emitted, s->num_steps) : emitted;
}

static double curve_draft(const specrt_costs *c, const specrt_tree_params *s, double emitted) {
    return specrt_costs_draft(c, plan_first_tokens(c, s, emitted), s->num_steps, s->topk);
}

static double curve_head(const specrt_costs *c, const specrt_tree_params *s, int width,
                         double rows) {
    return auto_head(c, rows, s->num_steps, specrt_costs_width(width));
}

typedef struct phases { /* a run's phases by cycle, and its shape's by the curves */
    double draft, head, target, rest, rows;
    double spread; /* half of the 95% interval of its cycle, as a share */
} phases;

static double plan_cycle_seconds(const decoder_times *t) {
    return t->draft + t->head + t->target + t->verify + t->update;
}

/* A phase over prompts, but for those that other programs disturbed or that are unlike most: a mean of the
 * middle half, since a median jumps between two kinds of prompts, long and short ones. Answers of one token
 * have no cycle. */
static double phase_of(const plan_turn *turns, int n_turns, size_t phase, double *spread) {
    double *values = (double *)malloc((size_t)n_turns * sizeof *values), middle = NAN;
    int n = 0;
    for (int i = 0; values && i < n_turns; i++) {
        const plan_turn *t = &turns[i];
        if (t->n_cycles == 0) continue;
        double seconds = phase ? *(const double *)(const void *)((const char *)&t->times + phase)
                               : plan_cycle_seconds(&t->times);
        values[n++] = seconds / t->n_cycles;
    }
    if (n > 0) middle = sl_midmean_of(values, n);
    /* McGill et al. 1978: 1.57 interquartile ranges by the root of n */
    if (spread)
        *spread =
            n > 1 ? 1.57 * (values[(3 * n) / 4 - (n % 4 == 0)] - values[n / 4]) / sqrt(n) / middle
                  : NAN;
    free(values);
    return middle;
}

double plan_cycle_midmean(const plan_turn *turns, int n) {
    return phase_of(turns, n, 0, NULL);
}

#define PHASE(name) phase_of(run->turns, n_turns, offsetof(decoder_times, name), NULL)
static phases phases_of(const plan_run *run, int n_turns) {
    phases l = {PHASE(draft), PHASE(head), PHASE(target), PHASE(verify) + PHASE(update), 0, 0};
    double cycles = 0;
    for (int i = 0; i < n_turns; i++) {
        cycles += run->turns[i].n_cycles;
        l.rows += run->turns[i].n_rows;
    }
    l.rows /= cycles;
    phase_of(run->turns, n_turns, 0, &l.spread);
    return l;
}

static double accept_of(const plan_run *run, int n_turns, int shape, double *half) {
    double *pair = (double *)malloc(2 * (size_t)n_turns * sizeof *pair), accept = NAN;
    *half = NAN;
    for (int i = 0; pair && i < n_turns; i++) {
        pair[i] = run->turns[i].tally[shape].tokens;
        pair[n_turns + i] = run->turns[i].tally[shape].cycles;
    }
    if (pair) accept = sl_ratio_of_sums(pair, pair + n_turns, n_turns, half);
    free(pair);
    return accept;
}

static void set_speed(plan_way *c, double share) {
    c->speed = c->accept_length / c->cycle;
    c->low = c->speed / (1 + share);
    c->high = c->speed * (1 + share);
    c->measured = c->accept_found = c->cycle_found = NAN;
}

/* The curves give what changes with the shape, the run what they leave out: a source's own scan or
 * route per pass, longer contexts, caches that others emptied. */
static plan_way predict(const plan *p, const plan_run *run, int shape) {
    const specrt_costs *k = &p->costs;
    const specrt_tree_params *s = &run->shapes[shape], *ran = &run->shapes[run->n_shapes - 1];
    plan_way c = {.policy = run->policy, .shape = *s};
    phases l = phases_of(run, p->n_prompts);
    double half, emitted = accept_of(run, p->n_prompts, run->n_shapes - 1, &half);
    c.rows = l.rows;
    c.prompt_seconds = plan_prompt_seconds(p, run->turns);
    c.accept_length = accept_of(run, p->n_prompts, shape, &c.accept_half);
    double extra = (l.head - curve_head(k, ran, run->width, l.rows)) / ran->num_steps;
    double head = fmax(curve_head(k, s, run->width, l.rows) + s->num_steps * extra,
                       0.1 * l.head * s->num_steps / ran->num_steps);
    double draft = l.draft * curve_draft(k, s, c.accept_length) / curve_draft(k, ran, emitted);
    double target = l.target * specrt_curve_at(&k->target, s->num_draft_tokens) /
                    specrt_curve_at(&k->target, ran->num_draft_tokens);
    c.cycle = draft + head + target + l.rest;
    double accept = c.accept_half / c.accept_length;
    bool same = shape == run->n_shapes - 1;
    set_speed(&c, sqrt(accept * accept + l.spread * l.spread + (same ? 0 : k->error * k->error)));
    return c;
}

/* Of a recorded prompt: the target's part, and the drafter's first pass beyond what a draft's own is. */
static double curve_prompt(const plan *p, const plan_way *c) {
    const specrt_costs *k = &p->costs;
    double n = p->recorded_prompt;
    if (k->prompt.n == 0 || !(n > 0)) return 0;
    if (c->policy < 0) return specrt_curve_at(&k->prompt, n);
    bool all = specrt_policy_get_info(p->policies[c->policy].policy)->needs_prompt_logits;
    double draft = specrt_curve_at(&k->draft_prompt, n) - specrt_curve_at(&k->draft, 1);
    return specrt_curve_at(all ? &k->prompt_all : &k->prompt, n) + fmax(draft, 0);
}

void plan_choose_from_curves(const plan *p, int width, plan_way *c) {
    const specrt_costs *k = &p->costs;
    c->prompt_seconds = curve_prompt(p, c);
    double accept = c->accept_half / c->accept_length;
    c->cycle = curve_draft(k, &c->shape, c->accept_length) +
               curve_head(k, &c->shape, width, c->rows) +
               specrt_curve_at(&k->target, c->shape.num_draft_tokens);
    set_speed(c, sqrt(accept * accept + k->error * k->error));
}

double plan_head_share(const plan *p, const plan_way *c, double rows) {
    const specrt_costs *k = &p->costs;
    int width = 0;
    while (width < SPECRT_COSTS_WIDTHS - 1 && specrt_costs_width(width) != c->shape.topk) width++;
    double head = curve_head(k, &c->shape, width, rows);
    double rest = curve_draft(k, &c->shape, c->accept_length) +
                  specrt_curve_at(&k->target, c->shape.num_draft_tokens);
    return head / (head + rest);
}

double plan_all_rows(const plan *p) {
    const specrt_curve *k = &p->costs.head_first;
    return k->n > 0 ? k->sizes[k->n - 1] : 0;
}

double plan_small_head(const plan *p, const plan_way *c) {
    double low = 0, high = plan_all_rows(p);
    if (plan_head_share(p, c, high) <= PLAN_SMALL_SHARE) return high;
    for (int i = 0; i < 40; i++) {
        double rows = 0.5 * (low + high);
        *(plan_head_share(p, c, rows) > PLAN_SMALL_SHARE ? &high : &low) = rows;
    }
    return floor(low + 0.5);
}

double plan_bound(const plan *p, int width, double rows) {
    const specrt_tree_params most = {(int32_t)p->options.num_steps, 0,
                                     (int32_t)p->options.num_draft_tokens};
    specrt_tree_params shapes[PLAN_SHAPES];
    double best = 0;
    int n = plan_shapes(width, &most, shapes);
    for (int i = 0; i < n; i++) {
        const specrt_tree_params *s = &shapes[i];
        double cycle = curve_draft(&p->costs, s, 1) + curve_head(&p->costs, s, width, rows) +
                       specrt_curve_at(&p->costs.target, s->num_draft_tokens);
        best = fmax(best, (s->num_steps + 1) / cycle);
    }
    return best;
}

/* ---- the best way ---- */

static plan_way plain_way(const plan *p) {
    plan_way c = {.policy = -1, .shape = {0, 0, 1}, .accept_length = 1};
    double spread;
    c.cycle = phase_of(p->plain, p->n_prompts, 0, &spread);
    c.prompt_seconds = plan_prompt_seconds(p, p->plain);
    set_speed(&c, spread);
    return c;
}

static int faster_first(const void *a, const void *b) {
    const plan_way *x = (const plan_way *)a, *y = (const plan_way *)b;
    return (x->speed < y->speed) - (x->speed > y->speed);
}

void plan_rank(plan *p) {
    p->full_way = (plan_way){.policy = -1};
    for (int i = 0; i < p->n_ways; i++) {
        const plan_way *c = &p->ways[i];
        if (c->policy >= 0 && p->policies[c->policy].full &&
            (p->full_way.policy < 0 || c->speed > p->full_way.speed))
            p->full_way = *c;
    }
    qsort(p->ways, (size_t)p->n_ways, sizeof *p->ways, faster_first);
    p->best = p->ways[0];
}

void plan_rank_curves(plan *p) {
    plan_way c = {.policy = -1, .shape = {0, 0, 1}, .accept_length = 1};
    c.cycle = specrt_curve_at(&p->costs.target, 1);
    c.prompt_seconds = curve_prompt(p, &c);
    set_speed(&c, p->costs.error);
    p->plain_way = p->ways[p->n_ways++] = c;
    plan_rank(p);
}

/* Over a task's prompts of the run's own shape; NULL: all. NAN: none. */
static double task_accept(const plan *p, const plan_run *run, const char *task) {
    double tokens = 0, cycles = 0;
    for (int i = 0; i < p->n_prompts; i++) {
        if (task && strcmp(p->tasks[i], task) != 0) continue;
        tokens += run->turns[i].tally[run->n_shapes - 1].tokens;
        cycles += run->turns[i].tally[run->n_shapes - 1].cycles;
    }
    return cycles > 0 ? tokens / cycles : NAN;
}

static bool seen_before(const plan *p, int at) {
    for (int i = 0; i < at; i++)
        if (strcmp(p->tasks[i], p->tasks[at]) == 0) return true;
    return false;
}

static retained shares_of(const plan *p, const plan_run *run, const plan_run *full) {
    retained r = {task_accept(p, run, NULL) / task_accept(p, full, NULL), NAN, 0, ""};
    for (int i = 0; i < p->n_prompts; i++) {
        if (seen_before(p, i)) continue;
        double share = task_accept(p, run, p->tasks[i]) / task_accept(p, full, p->tasks[i]);
        if (!isnan(share)) retained_add_task(&r, p->tasks[i], share);
    }
    return r;
}

/* What a policy retains: of its first run, a chain, beside the full vocabulary's of the same width. */
static retained retained_of(const plan *p, int policy) {
    for (int i = 0; i < p->n_runs; i++)
        for (int k = 0; p->runs[i].policy == policy && k < p->n_runs; k++)
            if (p->policies[p->runs[k].policy].full && p->runs[k].width == p->runs[i].width)
                return shares_of(p, &p->runs[i], &p->runs[k]);
    return (retained){0};
}

/* The best shape of each run stands for it. */
specrt_status plan_decide(plan *p, specrt_error *err) {
    free(p->ways);
    p->ways = (plan_way *)malloc((size_t)(p->n_runs + 1) * sizeof *p->ways);
    if (!p->ways) return sl_error_no_memory_for(err, "a plan");
    p->n_ways = 0;
    p->plain_way = p->ways[p->n_ways++] = plain_way(p);
    for (int i = 0; i < p->n_runs; i++) {
        plan_way best = predict(p, &p->runs[i], 0);
        for (int s = 1; s < p->runs[i].n_shapes; s++) {
            plan_way c = predict(p, &p->runs[i], s);
            if (c.speed > best.speed) best = c;
        }
        best.kept = retained_of(p, best.policy);
        p->ways[p->n_ways++] = best;
    }
    plan_rank(p);
    return SPECRT_STATUS_OK;
}

/* A way at the curves' speed, where it beats the best so far. Curves do not know of what sources read to
 * choose rows by the drafter's states. */
static void try_for_auto(const plan *p, int width, plan_way c, plan_way *best) {
    if (c.policy < 0 || specrt_policy_get_info(p->policies[c.policy].policy)->by_states) return;
    if (*eval_head_suffix(plan_name(p, &c))) return;
    plan_choose_from_curves(p, width, &c);
    c = plan_at_worst(&c);
    if (c.speed > best->speed) *best = c;
}

void plan_for_auto(plan *p) {
    plan_way best = {.policy = -1};
    for (int i = 0; p->traces.n && i < p->n_ways; i++) /* by the curves as they are */
        for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
            if (p->ways[i].shape.topk == specrt_costs_width(w))
                try_for_auto(p, w, p->ways[i], &best);
    for (int i = 0; i < p->n_runs; i++)
        for (int s = 0; s < p->runs[i].n_shapes; s++) {
            const plan_run *run = &p->runs[i];
            plan_way c = {.policy = run->policy, .shape = run->shapes[s]};
            c.kept = retained_of(p, run->policy);
            c.rows = phases_of(run, p->n_prompts).rows;
            c.accept_length = accept_of(run, p->n_prompts, s, &c.accept_half);
            try_for_auto(p, run->width, c, &best);
        }
    p->costs.policy[0] = '\0';
    p->costs.policy_rows = 0;
    if (best.policy < 0) return;
    snprintf(p->costs.policy, sizeof p->costs.policy, "%s",
             specrt_policy_get_info(p->policies[best.policy].policy)->text);
    p->costs.policy_rows = (int32_t)ceil(best.rows);
}

const char *plan_name(const plan *p, const plan_way *c) {
    return c->policy < 0 ? "plain" : p->policies[c->policy].name;
}
