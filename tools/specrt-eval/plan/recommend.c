/* recommend.c : the recommended way, by specrt_advise() over whole requests. */
#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/text.h"
#include "plan.h"

/* ---- requests ---- */

double plan_prompt_seconds(const plan *p, const plan_turn *turns) {
    double sum = 0;
    for (int i = 0; i < p->n_prompts; i++) sum += turns[i].times.prefill;
    return p->n_prompts ? sum / p->n_prompts : 0;
}

static specrt_plain plain_of(const plan *p) {
    specrt_plain plain = {.token_seconds = 1 / p->plain_way.speed,
                          .answer_tokens = (double)p->options.max_tokens};
    if (p->traces.n) {
        plain.prompt_seconds = p->plain_way.prompt_seconds;
        plain.prompt_tokens = plain.prompt_seconds > 0 ? p->recorded_prompt : 0;
        return plain;
    }
    if (p->n_prompts == 0) return plain;
    plain.answer_tokens = 0;
    for (int i = 0; i < p->n_prompts; i++) {
        plain.answer_tokens += (p->plain[i].n_cycles + 1) / p->n_prompts;
        plain.prompt_tokens += (double)p->prompts[i].n / p->n_prompts;
    }
    plain.prompt_seconds = plan_prompt_seconds(p, p->plain);
    return plain;
}

static double request_seconds(const plan_way *c, const specrt_plain *plain, double speed) {
    return c->prompt_seconds + plain->answer_tokens / speed;
}

/* Half of a request's 95% interval, as a share: of its answer, whose speed has an interval. */
static double spread_of(const plan_way *c, const specrt_plain *plain) {
    double seconds = request_seconds(c, plain, c->speed);
    return (request_seconds(c, plain, c->low) - seconds) / seconds;
}

specrt_ratio plan_ratio(const plan *p, const plan_way *a, const plan_way *b) {
    const specrt_plain *plain = &p->plain_request;
    double share = hypot(spread_of(a, plain), spread_of(b, plain));
    specrt_ratio r = {request_seconds(b, plain, b->speed) / request_seconds(a, plain, a->speed),
                      NAN, NAN};
    if (!p->traces.n && p->n_prompts < SPECRT_ADVISE_REQUESTS) return r;
    r.low = r.value / (1 + share);
    r.high = r.value * (1 + share);
    return r;
}

/* ---- in its worst task ---- */

plan_way plan_at_worst(const plan_way *c) {
    plan_way worst = *c;
    double factor = retained_factor(&c->kept);
    worst.accept_length *= factor;
    worst.speed *= factor;
    worst.low *= factor;
    worst.high *= factor;
    return worst;
}

bool plan_by_task(const plan *p) {
    for (int i = 0; i < p->n_ways; i++)
        if (retained_by_task(&p->ways[i].kept)) return true;
    return false;
}

/* ---- the verdict ---- */

static void name_way(const plan *p, const plan_way *c, char out[PLAN_NAME]) {
    snprintf(out, PLAN_NAME, "--policy %s --num-steps %d --topk %d --num-draft-tokens %d",
             plan_name(p, c), (int)c->shape.num_steps, (int)c->shape.topk,
             (int)c->shape.num_draft_tokens);
}

/* Rows as stored stand for bytes. */
static specrt_way way_of(const plan *p, const plan_way *c) {
    plan_way worst = plan_at_worst(c);
    return (specrt_way){.bytes = c->rows * (1 - p->policies[c->policy].row_saved),
                        .accept_length = worst.accept_length,
                        .prompt_seconds = c->prompt_seconds,
                        .token_seconds = 1 / worst.speed,
                        .ratio = plan_ratio(p, &worst, &p->plain_way),
                        .task = retained_by_task(&c->kept) ? c->kept.task : NULL};
}

static void advise(plan *p, specrt_way *worst, const int *places, int n, uint8_t *ties) {
    char name[PLAN_NAME];
    specrt_error why;
    if (specrt_advise(worst, n, &p->plain_request, ties, &p->advice, &why)) {
        snprintf(p->advice_text, sizeof p->advice_text, "No verdict: %.500s.", why.msg);
        return;
    }
    for (int i = 0; i < n; i++) p->ways[places[i]].ties = ties[i];
    p->chosen = places[p->advice.chosen];
    name_way(p, &p->ways[p->chosen], name);
    worst[p->advice.chosen].name = name;
    specrt_advice_text(worst, &p->plain_request, &p->advice, p->advice_text, sizeof p->advice_text);
    sl_text_clean(p->advice_text);
}

specrt_status plan_recommend(plan *p, specrt_error *err) {
    specrt_way *worst = NULL;
    int *places = NULL, n = 0;
    uint8_t *ties = NULL;
    char why[SPECRT_COSTS_TEXT];
    size_t most = (size_t)p->n_ways;
    p->chosen = -1;
    p->plain_request = plain_of(p);
    if (specrt_costs_busy(&p->costs, why)) {
        snprintf(p->advice_text, sizeof p->advice_text, "No verdict: %s.", why);
        return SPECRT_STATUS_OK;
    }
    specrt_status status = sl_new(&worst, most, sizeof *worst, "a plan", err);
    if (status == SPECRT_STATUS_OK) status = sl_new(&places, most, sizeof *places, "a plan", err);
    if (status == SPECRT_STATUS_OK) status = sl_new(&ties, most, 1, "a plan", err);
    for (int i = 0; status == SPECRT_STATUS_OK && i < p->n_ways; i++) {
        if (p->ways[i].policy < 0) continue;
        worst[n] = way_of(p, &p->ways[i]);
        places[n++] = i;
    }
    if (status == SPECRT_STATUS_OK) advise(p, worst, places, n, ties);
    free(worst), free(places), free(ties);
    return status;
}
