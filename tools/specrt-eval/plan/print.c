/* print.c : a plan in words, as a table and as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "plan.h"

/* ---- in words ---- */

/* Choices that the figures cannot tell from the recommended one. */
static void put_rivals(FILE *f, const plan *p) {
    const plan_way *chosen = &p->ways[p->chosen];
    const char *before = "As fast within the error: ";
    for (int i = 0, n = 0; i < p->n_ways && n < 4; i++) {
        const plan_way *c = &p->ways[i];
        if (!c->ties || c->policy == chosen->policy) continue;
        fprintf(f, "%s%s", before, plan_name(p, c));
        before = ", ";
        n++;
    }
    if (before[0] == ',') fprintf(f, "; %s scores the fewest rows.\n", plan_name(p, chosen));
}

static void put_retained(FILE *f, const plan *p, const plan_way *chosen) {
    if (!plan_by_task(p))
        fputs(RETAINED_BY_MEAN "\n", f);
    else
        fprintf(f,
                "Its accept length is %.1f%% of the full vocabulary's, %.1f%% in the worst task "
                "(%s).\n",
                100 * chosen->kept.mean, 100 * chosen->kept.worst, sl_text_name(chosen->kept.task));
}

/* Beside the full vocabulary's best shape; value NaN: it is that, or did not run. */
static specrt_ratio pruned_of(const plan *p) {
    plan_way chosen = plan_at_worst(&p->ways[p->chosen]);
    if (p->full_way.policy < 0 || chosen.policy == p->full_way.policy)
        return (specrt_ratio){NAN, NAN, NAN};
    return plan_ratio(p, &chosen, &p->full_way);
}

/* Of the chosen draft's cycle. */
static void put_head(FILE *f, const plan *p, const plan_way *drafted) {
    double all = plan_all_rows(p), small = plan_small_head(p, drafted);
    fprintf(f, "Scoring all %.0f rows takes %.0f%% of a cycle", all,
            100 * plan_head_share(p, drafted, all));
    if (small < 1)
        fputs(", and any list more than 2%.\n", f);
    else if (small < all)
        fprintf(f, ", %.0f rows 2%%; a shorter list gains nothing.\n", small);
    else
        fputs("; no list gains anything.\n", f);
}

/* From how many sequences on copies of windows are more rows than the head has: there a CUDA session whose
 * params.stock is 0 reads the head instead. */
static void put_batch(FILE *f, const plan *p, const plan_way *chosen) {
    const specrt_policy_info *info = specrt_policy_get_info(p->policies[chosen->policy].policy);
    double all = plan_all_rows(p);
    if (!info || !info->learns || info->n_packed >= all) return;
    fprintf(f,
            "On a GPU, a batch of %.0f or more sequences reads rows of windows in the head; "
            "in a smaller batch each sequence copies up to %d rows.\n",
            ceil(all / info->n_packed), (int)info->n_packed);
}

void plan_advice(const plan *p, FILE *f) {
    fprintf(f, "%s\n", p->advice_text);
    if (p->chosen < 0) return;
    const plan_way *chosen = &p->ways[p->chosen];
    put_retained(f, p, chosen);
    eval_put_head(f, plan_name(p, chosen));
    specrt_ratio pruned = pruned_of(p);
    retained_put_speed(f, &pruned);
    put_rivals(f, p);
    put_head(f, p, chosen);
    put_batch(f, p, chosen);
    if (p->costs_out)
        fprintf(f, "With %s auto drafts from %s.\n", sl_text_name(p->costs_out), p->costs.policy);
}

/* ---- table ---- */

static void print_draft(const specrt_costs *k) {
    if (k->n_block > 0)
        printf("\ndrafter's block, ms by positions; beyond %d by what it reads first",
               (int)k->n_block);
    else
        printf("\ndrafter's layer, ms by tokens");
    for (int i = 0; i < k->draft.n; i++)
        printf("  %d: %.3f", (int)k->draft.sizes[i], 1e3 * k->draft.seconds[i]);
}

static void print_costs(const plan *p) {
    const specrt_costs *k = &p->costs;
    printf(k->n_block > 0 ? "head, ms for 1 position, then for the next one alone, and for %d and "
                            "%d in one product"
                          : "head, ms for 1 row after the target's pass, at the next levels for 1 "
                            "(%d, %d)",
           (int)specrt_costs_width(1), (int)specrt_costs_width(2));
    for (int i = 0; i < k->head_first.n; i++) {
        int32_t x = k->head_first.sizes[i];
        double at[SPECRT_COSTS_WIDTHS]; /* another engine's may be at other sizes */
        for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
            at[w] = 1e3 * specrt_curve_at(&k->head_next[w], x);
        printf("  %d: %.3f, %.3f (%.3f, %.3f)", (int)x, 1e3 * k->head_first.seconds[i], at[0],
               at[1], at[2]);
    }
    print_draft(k);
    printf("\ntarget, ms by nodes");
    for (int i = 0; i < k->target.n; i++)
        printf("  %d: %.2f", (int)k->target.sizes[i], 1e3 * k->target.seconds[i]);
    if (k->prompt.n > 0)
        printf("\nprompts, ms by tokens: target, target with all logits (drafter)");
    for (int i = 0; i < k->prompt.n; i++) {
        int32_t x = k->prompt.sizes[i];
        printf("  %d: %.1f, %.1f (%.1f)", (int)x, 1e3 * k->prompt.seconds[i],
               1e3 * specrt_curve_at(&k->prompt_all, x),
               1e3 * specrt_curve_at(&k->draft_prompt, x));
    }
    if (p->costs_file)
        printf("\nmeasured by another engine: %s\n\n", sl_text_name(p->costs_file));
    else
        printf("\nat sizes that were held back these curves are off by %.0f%%, at worst %.0f%%\n\n",
               100 * k->error, 100 * k->worst);
}

static void print_retained(const retained *r) {
    char mean[16] = "", worst[16] = "";
    if (r->mean > 0) snprintf(mean, sizeof mean, "%.1f", 100 * r->mean);
    if (retained_by_task(r)) snprintf(worst, sizeof worst, "%.1f", 100 * r->worst);
    printf(" %9s %6s", mean, worst);
}

/* Over whole requests, beside plain decoding. */
static double request_ratio(const plan *p, const plan_way *c) {
    return plan_ratio(p, c, &p->plain_way).value;
}

static void print_way(const plan *p, const plan_way *c, int width) {
    printf("%-*s", width, plan_name(p, c));
    if (c->policy < 0)
        printf(" %5s %5s %6s %7s %7s", "", "", "", "", "");
    else
        printf(" %5d %5d %6d %7.2f %7.0f", (int)c->shape.num_steps, (int)c->shape.topk,
               (int)c->shape.num_draft_tokens, c->accept_length, c->rows);
    printf(" %8.2f %8.0f", 1e3 * c->cycle, c->speed);
    if (isnan(c->low))
        printf(" %13s", "-");
    else
        printf(" %6.0f-%-6.0f", c->low, c->high);
    printf(" %7.2f %7.2f", c->speed / p->plain_way.speed, request_ratio(p, c));
    print_retained(&c->kept);
    if (!isnan(c->measured))
        printf(" %8.0f %7.2f %6.1f%%", c->measured, c->accept_found,
               100 * (c->speed / c->measured - 1));
    putchar('\n');
}

void plan_print_table(const plan *p) {
    size_t width = 8;
    for (int i = 0; i < p->n_policies; i++)
        if (strlen(p->policies[i].name) > width) width = strlen(p->policies[i].name);
    print_costs(p);
    printf("%-*s steps  topk  nodes  accept    rows ms/cycle    tok/s      95%%      x plain x "
           "whole %% of "
           "full  worst%s\n",
           (int)width, "policy", p->n_check ? "    found  accept  error" : "");
    for (int i = 0; i < p->n_ways; i++) print_way(p, &p->ways[i], (int)width);
    printf(p->traces.n ? "\nreplayed; %.0f s" : "\n%.0f s", p->seconds);
    if (p->n_prompts) printf(", %d prompts", p->n_prompts);
    if (p->n_skipped)
        printf("; %d trees not tried, which could not win or whose like stayed behind chains",
               p->n_skipped);
    printf("\n\n");
    plan_advice(p, stdout);
}

/* ---- JSON ---- */

static json_object *json_curve(const specrt_curve *c, const char *size) {
    json_object *points = json_object_new_array();
    for (int i = 0; i < c->n; i++) {
        json_object *o = json_object_new_object();
        sl_json_put(o, size, sl_json_whole((uint64_t)c->sizes[i]));
        sl_json_put(o, "seconds", sl_json_real(c->seconds[i]));
        sl_json_put(o, "ci95", sl_json_range(c->low[i], c->high[i]));
        json_object_array_add(points, o);
    }
    return points;
}

static json_object *json_costs(const specrt_costs *k) {
    json_object *o = json_object_new_object(), *heads = json_object_new_array();
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) {
        json_object *head = json_object_new_object();
        sl_json_put(head, "topk", sl_json_whole((uint64_t)specrt_costs_width(w)));
        sl_json_put(head, "points", json_curve(&k->head_next[w], "rows"));
        json_object_array_add(heads, head);
    }
    sl_json_put(o, "head_first", json_curve(&k->head_first, "rows"));
    sl_json_put(o, "head", heads);
    sl_json_put(o, "draft", json_curve(&k->draft, "tokens"));
    sl_json_put(o, "target", json_curve(&k->target, "nodes"));
    sl_json_put(o, "prompt", json_curve(&k->prompt, "tokens"));
    sl_json_put(o, "prompt_all", json_curve(&k->prompt_all, "tokens"));
    sl_json_put(o, "draft_prompt", json_curve(&k->draft_prompt, "tokens"));
    if (k->n_block > 0) sl_json_put(o, "n_block", sl_json_whole((uint64_t)k->n_block));
    if (k->keeps_chains) sl_json_put(o, "keeps_chains", json_object_new_boolean(true));
    if (k->policy[0]) sl_json_put(o, "policy", sl_json_text(k->policy));
    if (k->policy_rows) sl_json_put(o, "policy_rows", sl_json_whole((uint64_t)k->policy_rows));
    sl_json_put(o, "error_median", sl_json_real(k->error));
    sl_json_put(o, "error_worst", sl_json_real(k->worst));
    sl_json_put(o, "spread", sl_json_real(k->spread));
    sl_json_put(o, "disturbed", json_object_new_boolean(k->disturbed));
    sl_json_put(o, "seconds", sl_json_real(k->seconds));
    return o;
}

static json_object *json_way(const plan *p, const plan_way *c) {
    json_object *o = json_object_new_object();
    bool plain = c->policy < 0, by_task = retained_by_task(&c->kept);
    char text[EVAL_CANONICAL];
    sl_json_put(o, "policy", sl_json_text(plan_name(p, c)));
    sl_json_put(
        o, "policy_text",
        sl_json_text(
            plain ? NULL : eval_policy_text(p->policies[c->policy].policy, plan_name(p, c), text)));
    sl_json_put(o, "num_steps", sl_json_whole((uint64_t)c->shape.num_steps));
    sl_json_put(o, "topk", sl_json_whole((uint64_t)c->shape.topk));
    sl_json_put(o, "num_draft_tokens", sl_json_whole((uint64_t)c->shape.num_draft_tokens));
    sl_json_put(o, "accept_length", sl_json_real(c->accept_length));
    sl_json_put(o, "accept_full", sl_json_real(c->kept.mean > 0 ? c->kept.mean : NAN));
    sl_json_put(o, "worst_domain", sl_json_text(by_task ? c->kept.task : NULL));
    sl_json_put(o, "worst_accept_full", sl_json_real(by_task ? c->kept.worst : NAN));
    sl_json_put(o, "shortlist_rows", sl_json_real(plain ? NAN : c->rows));
    sl_json_put(o, "cycle_ms", sl_json_real(1e3 * c->cycle));
    sl_json_put(o, "tokens_per_second", sl_json_real(c->speed));
    sl_json_put(o, "ci95", sl_json_range(c->low, c->high));
    sl_json_put(o, "speedup_plain", sl_json_real(c->speed / p->plain_way.speed));
    sl_json_put(o, "speedup_request", sl_json_real(request_ratio(p, c)));
    sl_json_put(o, "measured_tokens_per_second", sl_json_real(c->measured));
    sl_json_put(o, "measured_accept_length", sl_json_real(c->accept_found));
    sl_json_put(o, "measured_cycle_ms", sl_json_real(1e3 * c->cycle_found));
    return o;
}

static json_object *json_outcome(const specrt_ratio *r) {
    return sl_json_text(isnan(r->value) ? NULL : specrt_outcome_name(specrt_ratio_outcome(r)));
}

static json_object *json_words(const plan *p) {
    char *text = NULL;
    size_t n = 0;
    FILE *words = open_memstream(&text, &n);
    if (!words) return NULL;
    plan_advice(p, words);
    fclose(words);
    json_object *lines = sl_json_lines(text);
    free(text);
    return lines;
}

static void put_advice(json_object *o, const plan *p) {
    const plan_way *chosen = p->chosen < 0 ? NULL : &p->ways[p->chosen];
    const specrt_ratio none = {NAN, NAN, NAN};
    plan_way worst = chosen ? plan_at_worst(chosen) : p->plain_way;
    specrt_ratio plain = chosen ? plan_ratio(p, &worst, &p->plain_way) : none;
    specrt_ratio pruned = chosen ? pruned_of(p) : none;
    bool drafts = chosen && p->advice.outcome != SPECRT_OUTCOME_SLOWER;
    sl_json_put(o, "recommended", chosen ? json_way(p, drafts ? chosen : &p->plain_way) : NULL);
    sl_json_put(o, "recommended_policy", chosen ? json_way(p, chosen) : NULL);
    sl_json_put(o, "recommended_by", sl_json_text(plan_by_task(p) ? "worst_domain" : "mean"));
    sl_json_put(o, "outcome", json_outcome(&plain));
    sl_json_put(o, "pruning_outcome", json_outcome(&pruned));
    sl_json_put(o, "advice", json_words(p));
    sl_json_put(o, "head_share",
                sl_json_real(chosen ? plan_head_share(p, chosen, plan_all_rows(p)) : NAN));
    sl_json_put(o, "small_head_rows", sl_json_real(chosen ? plan_small_head(p, chosen) : NAN));
}

void plan_print_json(const plan *p) {
    json_object *o = json_object_new_object(), *ways = json_object_new_array();
    sl_json_put(o, "target", sl_json_base_name(p->options.target));
    sl_json_put(o, "drafter", sl_json_base_name(p->options.draft));
    sl_json_put(o, "threads", sl_json_whole((uint64_t)p->options.common.threads));
    sl_json_put(o, "temperature", sl_json_real(p->options.temperature));
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)p->n_prompts));
    sl_prompts_put_json(&p->asked, o);
    chat_put_json(p->chat, o);
    sl_json_put(o, "seconds", sl_json_real(p->seconds));
    sl_json_put(o, "costs", json_costs(&p->costs));
    put_advice(o, p);
    for (int i = 0; i < p->n_ways; i++) json_object_array_add(ways, json_way(p, &p->ways[i]));
    sl_json_put(o, "choices", ways);
    sl_json_put(o, "runs_skipped", sl_json_whole((uint64_t)p->n_skipped));
    sl_json_print(o);
}
