/* plan.c : specrt-eval plan. Which policy and which tree are fastest on this machine, for these models and
 * prompts, and does it pay at all? */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/measure.h"
#include "base/memory.h"
#include "run.h"

/* ---- policies ---- */

/* The curves of another engine, and of a recording, are those of the head as it is stored. */
static specrt_status check_head(const plan *p, const char *text, specrt_error *err) {
    if (!p->traces.n || !*eval_head_suffix(text)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "policy '%.60s': head: expected the drafter's head as stored with "
                            "--trace, since another's products are not timed",
                            text);
}

static specrt_status add_policy(void *user, const char *text, specrt_error *err) {
    plan *p = (plan *)user;
    TRY(check_head(p, text, err));
    plan_policy *k = (plan_policy *)sl_more(&p->policies, (size_t)p->n_policies, sizeof *k);
    if (!k) return sl_error_no_memory_for(err, "a plan");
    *k = (plan_policy){0};
    snprintf(k->name, sizeof k->name, "%s", text);
    TRY(models_policy(&p->models, text, &k->policy, err));
    k->full = specrt_policy_get_info(k->policy)->is_full && !*eval_head_suffix(text);
    k->row_saved = 1 - (double)models_row_bytes(&p->models, text) /
                           (double)models_row_bytes(&p->models, "full");
    for (int i = 0; i < p->n_policies; i++)
        if (eval_same_policy(p->policies[i].policy, p->policies[i].name, k->policy, k->name)) {
            specrt_policy_close(k->policy);
            return SPECRT_STATUS_OK;
        }
    p->n_policies++;
    return SPECRT_STATUS_OK;
}

/* The whole head in fewer bits, where that is fewer bytes: the rival of any list. */
static specrt_status add_heads(plan *p, specrt_error *err) {
    static const char *const copies[] = {"full@head=q8_0", "full@head=q4_0"};
    bool whole = p->models.info->head.n_cols % 32 == 0; /* blocks */
    for (size_t i = 0; !p->traces.n && whole && i < sizeof copies / sizeof *copies; i++)
        if (models_row_bytes(&p->models, copies[i]) < models_row_bytes(&p->models, "full"))
            TRY(add_policy(p, copies[i], err));
    return SPECRT_STATUS_OK;
}

/* What the bundle lacks is left out. */
static specrt_status add_if_there(plan *p, const char *text, specrt_error *err) {
    specrt_status status = add_policy(p, text, err);
    return status == SPECRT_STATUS_BUNDLE_SECTION_MISSING ? SPECRT_STATUS_OK : status;
}

static specrt_status add_defaults(plan *p, specrt_error *err) {
    static const char *const others[] = {"static", "static:2048+retrieve", "centroid",
                                         "static:512+window+successor:256", "sketch:128"};
    const char *preset;
    const int64_t n_rows = p->models.info->head.n_rows;
    char text[64];
    for (int32_t size = 1024; size <= n_rows / 2; size *= 2) {
        snprintf(text, sizeof text, "static:%d", (int)size);
        TRY(add_if_there(p, text, err));
    }
    /* With a window of what the prompt and the text bring. */
    for (int size = 2048; size <= n_rows / 2; size *= 4) {
        snprintf(text, sizeof text, "static:%d+window:1024@min=0", size);
        TRY(add_if_there(p, text, err));
    }
    for (int size = 512; size < 3072; size *= 2) { /* microspec of fewer rows */
        snprintf(text, sizeof text, "window:%d@kver=8@positions=tree@min=%d", size, size);
        TRY(add_if_there(p, text, err));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        TRY(add_if_there(p, others[i], err));
    for (int32_t i = 0; (preset = specrt_policy_preset(i, NULL, 0)) != NULL; i++)
        if (!strstr(preset, "-paper")) TRY(add_if_there(p, preset, err));
    return add_heads(p, err);
}

static specrt_status add_policies(plan *p, specrt_error *err) {
    const cli_list *given = &p->options.policies;
    TRY(add_policy(p, "full", err));
    if (given->n == 0) return add_defaults(p, err);
    return each_policy(given, add_policy, p, err);
}

/* ---- prompts: first turns that fit ---- */

static int64_t context_of(const plan *p) {
    return p->models.info->n_context;
}

static int64_t beside_prompt(const plan *p) {
    return p->options.max_tokens + SPECRT_TREE_MAX_NODES;
}

static specrt_status check_context(const plan *p, specrt_error *err) {
    if (context_of(p) > beside_prompt(p)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--context: expected at least %" PRId64
                            " positions, for a prompt, an answer of %" PRId64
                            " tokens and a tree, found %" PRId64 "; lower --max-tokens",
                            beside_prompt(p) + 1, p->options.max_tokens, context_of(p));
}

static specrt_status check_fits(const plan *p, const id_list *ids, specrt_error *err) {
    int64_t most = context_of(p) - beside_prompt(p);
    if (ids->n && (int64_t)ids->n <= most) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "prompt: expected 1 to %" PRId64 " tokens, so that its answer and a "
                            "tree fit the context of %" PRId64 ", found %zu",
                            most, context_of(p), ids->n);
}

static specrt_status add_prompts(plan *p, specrt_error *err) {
    prompt_list *prompts = &p->asked;
    TRY(sl_new(&p->prompts, (size_t)prompts->n, sizeof *p->prompts, "a plan", err));
    TRY(sl_new(&p->tasks, (size_t)prompts->n, sizeof *p->tasks, "a plan", err));
    for (int i = 0; i < prompts->n; i++) {
        id_list *ids = &p->prompts[p->n_prompts];
        TRY(chat_prompt(p->chat, &prompts->items[i], ids));
        if (check_fits(p, ids, err) == SPECRT_STATUS_OK)
            p->tasks[p->n_prompts++] = prompts->items[i].domain;
        else if (!sl_prompts_pass_over(prompts, &prompts->items[i], err))
            return err->status;
    }
    TRY(sl_prompts_account(prompts, p->n_prompts, err));
    return sl_new(&p->plain, (size_t)p->n_prompts, sizeof *p->plain, "a plan", err);
}

/* ---- the plan ---- */

static specrt_status measure_costs(plan *p, specrt_error *err) {
    if (p->costs_file) {
        TRY(auto_costs_read(p->costs_file, &p->costs, err));
        return auto_costs_fit(&p->costs, p->models.info->n_block, p->costs_file, err);
    }
    return eval_measure(&p->models, &p->options, p->measure, 0, &p->costs, err);
}

/* In the mean of a pass; a row in fewer bits is a part of one. */
static double rows_of(const plan *p, const plan_run *run) {
    double rows = 0, cycles = 0;
    for (int i = 0; i < p->n_prompts; i++) {
        rows += run->turns[i].n_rows;
        cycles += run->turns[i].n_cycles;
    }
    return cycles > 0 ? (1 - p->policies[run->policy].row_saved) * rows / cycles : 0;
}

/* Trees of one policy, those that could beat the best so far if every draft were accepted. */
static specrt_status add_trees(plan *p, int policy, double rows, specrt_error *err) {
    for (int w = 1; w < SPECRT_COSTS_WIDTHS; w++)
        if (rows > 0 && 1.1 * plan_bound(p, w, rows) < p->best.speed)
            p->n_skipped++;
        else if (!plan_add_run(p, policy, w, err))
            return err->status;
    return SPECRT_STATUS_OK;
}

static const plan_way *best_of_policy(const plan *p, int policy, bool chain) {
    for (int i = 0; i < p->n_ways; i++)
        if (p->ways[i].policy == policy && (p->ways[i].shape.topk == 1) == chain)
            return &p->ways[i];
    return NULL;
}

/* Whether others' trees deserve a trial: not where those of the policy with the fastest chain stay far
 * behind it. */
static bool trees_matter(const plan *p, int policy) {
    const plan_way *chain = best_of_policy(p, policy, true);
    const plan_way *tree = best_of_policy(p, policy, false);
    return !chain || (tree && tree->speed > 0.9 * chain->speed);
}

static specrt_status run_trees(plan *p, int only, int but, specrt_error *err) {
    int first = p->n_runs;
    for (int i = 0; i < p->n_policies; i++) {
        if (i == but || (only >= 0 && i != only)) continue;
        TRY(add_trees(p, i, i < first ? rows_of(p, &p->runs[i]) : 0, err));
    }
    if (p->n_runs == first) return SPECRT_STATUS_OK;
    TRY(plan_decode(p, first, false, "trees", err));
    return plan_decide(p, err);
}

static specrt_status check_answers(const plan *p, specrt_error *err) {
    for (int i = 0; i < p->n_prompts; i++)
        if (p->plain[i].n_cycles > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "prompts: expected an answer of 2 tokens or more, found %d of 1 token; "
        "no draft is made before the first; give other prompts, or --max-tokens",
        p->n_prompts);
}

/* Chains are cheap to try, and tell which trees are worth it. */
static specrt_status run_all(plan *p, specrt_error *err) {
    int fastest = -1;
    for (int i = 0; i < p->n_policies; i++)
        if (!plan_add_run(p, i, 0, err)) return err->status;
    TRY(plan_decode(p, 0, true, "chains", err));
    TRY(check_answers(p, err));
    TRY(plan_decide(p, err));
    for (int i = p->n_ways - 1; i >= 0; i--)
        if (p->ways[i].policy >= 0) fastest = p->ways[i].policy;
    if (fastest >= 0) TRY(run_trees(p, fastest, -1, err));
    if (trees_matter(p, fastest))
        TRY(run_trees(p, -1, fastest, err));
    else
        p->n_skipped += (SPECRT_COSTS_WIDTHS - 1) * (p->n_policies - 1);
    return p->n_runs > 0 ? SPECRT_STATUS_OK : plan_no_tree(err);
}

/* Decoding takes minutes, and other programs may have ended meanwhile. */
static specrt_status measure_again(plan *p, specrt_error *err) {
    if (!p->costs.disturbed) return SPECRT_STATUS_OK;
    TRY(measure_costs(p, err));
    return plan_decide(p, err);
}

/* No draft is longer than a block, and a block that the engine takes whole may be long. */
static void limit_steps(plan *p) {
    int64_t *steps = &p->options.num_steps, most = p->models.info->n_block;
    if (most > 0 && (*steps == 0 || *steps > most)) *steps = most;
}

static specrt_status make_plan(plan *p, specrt_error *err) {
    const eval_options *o = &p->options;
    double began = sl_measure_seconds();
    if (!o->draft || strcmp(o->draft, "none") == 0)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "expected --draft FILE, an EAGLE head, an MTP module, a block drafter or a small GGUF");
    if (o->sampled_drafts)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--sampled-drafts: expected none, since plan drafts the best tokens");
    if (p->costs_file && (p->traces.n == 0 || p->n_check))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--costs: expected --trace with it, and no --check, since the costs "
            "are another engine's");
    TRY(plan_check_shapes(p, err));
    if (p->costs_out) TRY(sl_out_check(p->costs_out, o->common.force, err));
    TRY(models_open(o, 1, &p->models, err));
    limit_steps(p);
    if (p->asked.n) TRY(check_context(p, err));
    TRY(chat_create(o, p->models.tok, &p->chat, err));
    TRY(add_policies(p, err));
    if (p->asked.n) TRY(add_prompts(p, err));
    if (p->traces.n) TRY(plan_read_tree(p, err));
    TRY(measure_costs(p, err));
    if (p->traces.n) {
        TRY(plan_from_trace(p, err));
    } else {
        TRY(run_all(p, err));
        TRY(measure_again(p, err));
    }
    TRY(plan_recommend(p, err));
    if (p->costs_out && p->costs.disturbed)
        sl_cli_warn("--costs-out %s: not written: the machine was too busy", p->costs_out);
    if (p->costs_out && !p->costs.disturbed) {
        plan_for_auto(p);
        TRY(auto_costs_write(&p->costs, p->costs_out, o->common.force, err));
    }
    p->seconds = sl_measure_seconds() - began;
    if (p->n_check) TRY(plan_check(p, err));
    if (p->asked.n) chat_announce(p->chat);
    if (o->common.json)
        plan_print_json(p);
    else
        plan_print_table(p);
    return SPECRT_STATUS_OK;
}

static void close_plan(plan *p) {
    plan_free_runs(p);
    for (int i = 0; i < p->n_policies; i++) specrt_policy_close(p->policies[i].policy);
    for (int i = 0; p->prompts && i < p->asked.n; i++) free(p->prompts[i].ids);
    free(p->policies), free(p->prompts), free((void *)p->tasks), free(p->plain), free(p->ways);
    sl_prompts_free(&p->asked);
    chat_free(p->chat);
    models_close(&p->models);
    eval_options_free(&p->options);
    sl_cli_list_free(&p->traces);
}

int plan_main(int argc, char **argv) {
    plan p = {.options = {.max_tokens = 48, .takes_heads = true}, .measure = 5};
    eval_options *o = &p.options;
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        EVAL_SHAPE(*o,
                   "try at most N draft steps per cycle, of DFlash and DSpark at most N positions "
                   "(chains 8 or a block, trees 6)",
                   "try only trees of N branches per node, 1, 4 or 10; 1: only chains (all three)",
                   "try at most N nodes, with the root (60)"),
        sl_cli_strings("policy", "SPEC", &o->policies,
                       "repeat, or a comma list; full is always added (default: some twenty, if "
                       "the bundle has their sections)"),
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        sl_cli_strings("trace", "FILE", &p.traces,
                       "take accepted tokens from recorded cycles; prompts are for --check only"),
        sl_cli_string(
            "costs", "FILE", &p.costs_file,
            "with --trace: costs of another engine, from specrt-llama --costs; nothing is timed"),
        sl_cli_real(
            "measure", "SECONDS", &p.measure, 0.1, 600,
            "time head, drafter and target for SECONDS, or up to 1.6 times as long (default: 5)"),
        sl_cli_heading("Output"),
        sl_cli_int("check", "N", &p.n_check, 1, 100,
                   "decode with the N best choices and print the plan's error"),
        sl_cli_string("costs-out", "FILE", &p.costs_out,
                      "write the costs and the recommended policy, for --policy auto"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval plan",
        "specrt-eval plan --target target.gguf --draft draft.safetensors --bundle model.specb\n"
        "      --prompts questions.jsonl",
        "Measures the costs of head, drafter and target on this machine, and the accept lengths of "
        "policies. Recommends a policy, --num-steps, --topk and --num-draft-tokens with the speed "
        "to expect, and says if plain decoding or the full vocabulary is faster. If prompts name "
        "tasks (domain, category or task), a policy is recommended by its worst task, so give "
        "prompts that no list or sketch was made from.",
        "specrt-eval plan --target FILE --draft FILE --prompts FILE...", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    bool asks = p.traces.n == 0 || p.n_check;
    specrt_status status = asks ? prompts_given(o, &p.asked, &err) : prompts_of(o, &p.asked, &err);
    if (status == SPECRT_STATUS_OK) status = make_plan(&p, &err);
    close_plan(&p);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
