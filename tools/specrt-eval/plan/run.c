/* run.c : policies decode a few prompts under wide trees; what narrower ones would have emitted is read
 * off each cycle's tree. */
#include <stdlib.h>
#include "run.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"

/* Accepted tokens of a chain. Where the answer's end cut it, its last token may be a drafted one. */
static int32_t chain_accepted(const specrt_draft *draft, const specrt_verdict *verdict) {
    int32_t n = verdict->n;
    return n < draft->n && draft->tokens[n] == verdict->tokens[n - 1] ? n : n - 1;
}

static void see_cycle(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                      const float *logits) {
    const plan_run *run = (const plan_run *)user;
    (void)logits;
    plan_turn *t = run->turn;
    for (int s = 0; s < run->n_shapes; s++) {
        const specrt_tree_params *shape = &run->shapes[s];
        if (shape->topk == 1) {
            plan_tally_chain(&t->tally[s], draft->n - 1, chain_accepted(draft, verdict),
                             shape->num_steps);
            continue;
        }
        t->tally[s].tokens += plan_tree_tokens(draft, verdict, shape);
        t->tally[s].cycles++;
    }
}

static specrt_status open_run(plan *p, plan_run *run, specrt_error *err) {
    eval_options o = p->options;
    const specrt_tree_params *s = &run->shapes[run->n_shapes - 1];
    o.num_steps = s->num_steps;
    o.topk = s->topk;
    o.num_draft_tokens = s->num_draft_tokens;
    specrt_session_params params = models_session(&p->models, &o, 0);
    run->turns = (plan_turn *)calloc((size_t)p->n_prompts, sizeof *run->turns);
    if (!run->turns) return sl_error_no_memory_for(err, "a plan");
    return models_decoder(&p->models, p->models.sequences[0], p->policies[run->policy].policy,
                          &params, &run->decoder, err);
}

static specrt_tree_params asked(const plan *p) {
    return (specrt_tree_params){(int32_t)p->options.num_steps, (int32_t)p->options.topk,
                                (int32_t)p->options.num_draft_tokens};
}

specrt_status plan_check_shapes(plan *p, specrt_error *err) {
    const specrt_tree_params most = asked(p);
    specrt_tree_params shapes[PLAN_SHAPES];
    int32_t *steps = &p->options.auto_tree.num_steps;
    int all = 0;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) {
        int n = plan_shapes(w, &most, shapes);
        for (int i = 0; i < n; i++)
            if (shapes[i].num_steps > *steps) *steps = shapes[i].num_steps;
        all += n;
    }
    return all > 0 ? SPECRT_STATUS_OK : plan_no_tree(err);
}

plan_run *plan_add_run(plan *p, int policy, int width, specrt_error *err) {
    const specrt_tree_params most = asked(p);
    plan_run *run = (plan_run *)sl_more(&p->runs, (size_t)p->n_runs, sizeof *run);
    if (!run) return sl_error_no_memory_for(err, "a plan"), NULL;
    *run = (plan_run){.policy = policy, .width = width};
    run->n_shapes = plan_shapes(width, &most, run->shapes);
    p->n_runs++;
    if (run->n_shapes == 0) p->n_runs--;
    return run->n_shapes && open_run(p, run, err) != SPECRT_STATUS_OK ? NULL : run;
}

void plan_free_runs(plan *p) {
    for (int i = 0; i < p->n_runs; i++) {
        decoder_free(p->runs[i].decoder);
        free(p->runs[i].turns);
    }
    free(p->runs);
    p->runs = NULL;
    p->n_runs = 0;
}

/* ---- decoding ---- */

/* Draws are those of the prompt's number, whatever the order of the runs. */
static specrt_status answer(const plan *p, decoder *d, int i, run_result *result,
                            specrt_error *err) {
    const specrt_sampling sampling = eval_sampling(&p->options, i, 0);
    const specrt_request request = {.max_tokens = p->options.max_tokens, .sampling = &sampling};
    return run_prompt(&p->models, d, &request, &p->prompts[i], NULL, NULL, result, err);
}

static specrt_status run_turn(plan *p, plan_run *run, int i, run_result *result,
                              specrt_error *err) {
    plan_turn *t = run->turn = &run->turns[i];
    *t = (plan_turn){0};
    decoder_watch(run->decoder, see_cycle, run);
    TRY(answer(p, run->decoder, i, result, err));
    t->n_cycles = (double)result->stats.n_cycles;
    t->n_rows = (double)result->stats.n_rows;
    t->seconds = result->seconds;
    t->times = result->times;
    return SPECRT_STATUS_OK;
}

static specrt_status run_plain(plan *p, decoder *plain, int i, run_result *result,
                               specrt_error *err) {
    plan_turn *t = &p->plain[i];
    TRY(answer(p, plain, i, result, err));
    *t = (plan_turn){.n_cycles = (double)result->tokens.n - 1,
                     .seconds = result->seconds,
                     .times = result->times};
    return SPECRT_STATUS_OK;
}

/* Prompt by prompt all of them, in an order that rotates, so that drift of the machine hits all alike. */
specrt_status plan_decode(plan *p, int first, bool plain_too, const char *phase,
                          specrt_error *err) {
    specrt_session_params params = models_session(&p->models, &p->options, 0);
    int n = p->n_runs - first + plain_too;
    decoder *plain = NULL;
    run_result result = {.seconds = 0};
    progress bar;
    specrt_status status = SPECRT_STATUS_OK;
    if (plain_too)
        status = models_decoder(&p->models, p->models.sequences[0], NULL, &params, &plain, err);
    sl_progress_begin(&bar, p->options.common.progress, phase, "prompts", (uint64_t)p->n_prompts);
    for (int i = 0; status == SPECRT_STATUS_OK && i < p->n_prompts; i++) {
        for (int k = 0; status == SPECRT_STATUS_OK && k < n; k++) {
            int at = (k + i) % n;
            status = at < p->n_runs - first ? run_turn(p, &p->runs[first + at], i, &result, err)
                                            : run_plain(p, plain, i, &result, err);
        }
        sl_progress_update(&bar, (uint64_t)i + 1);
    }
    sl_progress_end(&bar);
    decoder_free(plain);
    free(result.tokens.ids);
    return status;
}

/* ---- checking ---- */

static void take_found(const plan *p, plan_way *c, const plan_turn *turns, int shape) {
    double cycles = 0, tokens = 0;
    for (int i = 0; i < p->n_prompts; i++) {
        const plan_turn *t = &turns[i];
        cycles += t->n_cycles;
        tokens += shape < 0 ? t->n_cycles : t->tally[shape].tokens;
    }
    c->accept_found = tokens / cycles;
    c->cycle_found = plan_cycle_midmean(turns, p->n_prompts);
    c->measured = c->accept_found / c->cycle_found;
}

static specrt_status add_exact_run(plan *p, const plan_way *c, specrt_error *err) {
    plan_run *run = (plan_run *)sl_more(&p->runs, (size_t)p->n_runs, sizeof *run);
    if (!run) return sl_error_no_memory_for(err, "a plan");
    p->n_runs++;
    *run = (plan_run){.policy = c->policy, .n_shapes = 1, .shapes = {c->shape}};
    return open_run(p, run, err);
}

specrt_status plan_check(plan *p, specrt_error *err) {
    int first = p->n_runs, n = p->n_ways < p->n_check ? p->n_ways : (int)p->n_check;
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; status == SPECRT_STATUS_OK && i < n; i++)
        if (p->ways[i].policy >= 0) status = add_exact_run(p, &p->ways[i], err);
    if (status == SPECRT_STATUS_OK) status = plan_decode(p, first, true, "check", err);
    for (int i = 0, k = first; status == SPECRT_STATUS_OK && i < p->n_ways; i++)
        if (p->ways[i].policy < 0)
            take_found(p, &p->ways[i], p->plain, -1);
        else if (i < n)
            take_found(p, &p->ways[i], p->runs[k++].turns, 0);
    return status;
}
