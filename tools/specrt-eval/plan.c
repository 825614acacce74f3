/* plan.c : specrt-eval plan. Which policy and which tree are fastest on this machine, for these models and
 * prompts, and does it pay at all? */
#include "plan.h"

#include <stdlib.h>
#include <string.h>
#include "io.h"
#include "plan_run.h"

static specrt_status no_memory(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a plan");
}

specrt_status plan_no_tree(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "no tree is within --topk (1, 4 or 10), --num-steps and "
                            "--num-draft-tokens");
}

/* ---- policies ---- */

static specrt_status add_policy(void *user, const char *text, specrt_error *err) {
    plan *p = (plan *)user;
    plan_policy *grown =
        (plan_policy *)realloc(p->policies, (size_t)(p->n_policies + 1) * sizeof *p->policies);
    if (!grown) return no_memory(err);
    p->policies = grown;
    plan_policy *k = &grown[p->n_policies];
    *k = (plan_policy){.full = strcmp(text, "full") == 0};
    snprintf(k->name, sizeof k->name, "%s", text);
    TRY(models_policy(&p->models, text, &k->policy, err));
    for (int i = 0; i < p->n_policies; i++)
        if (strcmp(specrt_policy_text(grown[i].policy), specrt_policy_text(k->policy)) == 0) {
            specrt_policy_close(k->policy);
            return SPECRT_STATUS_OK;
        }
    p->n_policies++;
    return SPECRT_STATUS_OK;
}

/* What the bundle lacks is left out. */
static specrt_status add_if_there(plan *p, const char *text, specrt_error *err) {
    specrt_status status = add_policy(p, text, err);
    return status == SPECRT_STATUS_BUNDLE_SECTION_MISSING ? SPECRT_STATUS_OK : status;
}

static specrt_status add_defaults(plan *p, specrt_error *err) {
    static const char *const others[] = {"static",
                                         "microspec",
                                         "static:2048+retrieve",
                                         "static:512+window+successor:256",
                                         "centroid",
                                         "dynaspec",
                                         "coral",
                                         "sketch:128"};
    specrt_head_desc head;
    char text[32];
    engine_drafter_head(p->models.drafter, &head);
    for (int32_t size = 1024; size <= head.n_rows / 2; size *= 2) {
        snprintf(text, sizeof text, "static:%d", (int)size);
        TRY(add_if_there(p, text, err));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        TRY(add_if_there(p, others[i], err));
    return SPECRT_STATUS_OK;
}

static specrt_status add_policies(plan *p, specrt_error *err) {
    const cli_list *given = &p->options.policies;
    TRY(add_policy(p, "full", err));
    if (given->n == 0) return add_defaults(p, err);
    return each_policy(given, add_policy, p, err);
}

/* ---- prompts: first turns that fit ---- */

static specrt_status add_prompts(plan *p, const prompt_list *prompts, specrt_error *err) {
    int64_t context = p->options.n_context ? p->options.n_context
                                           : engine_get_config(p->models.target)->n_context;
    p->prompts = (id_list *)calloc((size_t)prompts->n, sizeof *p->prompts);
    if (!p->prompts) return no_memory(err);
    for (int i = 0; i < prompts->n; i++) {
        id_list *ids = &p->prompts[p->n_prompts];
        TRY(chat_prompt(p->chat, &prompts->items[i], ids));
        if ((int64_t)ids->n + p->options.max_tokens + SPECRT_TREE_MAX_NODES <= context && ids->n)
            p->n_prompts++;
        else
            cli_warn("%s: left out: %zu tokens do not fit", prompts->items[i].place, ids->n),
                ids->n = 0;
    }
    if (p->n_prompts == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "no prompt could be decoded");
    p->plain = (plan_turn *)calloc((size_t)p->n_prompts, sizeof *p->plain);
    return p->plain ? SPECRT_STATUS_OK : no_memory(err);
}

/* ---- the plan ---- */

static specrt_status measure_costs(plan *p, specrt_error *err) {
    plan_machine machine;
    TRY(plan_cpu_create(&p->models, &machine, err));
    specrt_status status = plan_measure(&machine, &p->costs);
    plan_cpu_free(&machine);
    return status == SPECRT_STATUS_OK
               ? status
               : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "a call could not be measured");
}

static double rows_of(const plan *p, const plan_run *run) {
    double rows = 0, cycles = 0;
    for (int i = 0; i < p->n_prompts; i++) {
        rows += run->turns[i].n_rows;
        cycles += run->turns[i].n_cycles;
    }
    return cycles > 0 ? rows / cycles : 0;
}

/* Trees of one policy, those that could beat the best so far if every draft were accepted. */
static specrt_status add_trees(plan *p, int policy, double rows, specrt_error *err) {
    for (int w = 1; w < PLAN_WIDTHS; w++)
        if (rows > 0 && 1.1 * plan_bound(p, w, rows) < p->best.speed)
            p->n_skipped++;
        else if (!plan_add_run(p, policy, w, err))
            return err->status;
    return SPECRT_STATUS_OK;
}

static const plan_choice *best_of_policy(const plan *p, int policy, bool chain) {
    for (int i = 0; i < p->n_choices; i++)
        if (p->choices[i].policy == policy && (p->choices[i].shape.topk == 1) == chain)
            return &p->choices[i];
    return NULL;
}

/* Whether others' trees deserve a trial: not where those of the policy with the fastest chain stay far
 * behind it. */
static bool trees_matter(const plan *p, int policy) {
    const plan_choice *chain = best_of_policy(p, policy, true);
    const plan_choice *tree = best_of_policy(p, policy, false);
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

/* Chains are cheap to try, and tell which trees are worth it. */
static specrt_status run_all(plan *p, specrt_error *err) {
    int fastest = -1;
    for (int i = 0; i < p->n_policies; i++)
        if (!plan_add_run(p, i, 0, err)) return err->status;
    TRY(plan_decode(p, 0, true, "chains", err));
    TRY(plan_decide(p, err));
    for (int i = p->n_choices - 1; i >= 0; i--)
        if (p->choices[i].policy >= 0) fastest = p->choices[i].policy;
    if (fastest >= 0) TRY(run_trees(p, fastest, -1, err));
    if (trees_matter(p, fastest))
        TRY(run_trees(p, -1, fastest, err));
    else
        p->n_skipped += (PLAN_WIDTHS - 1) * (p->n_policies - 1);
    return p->n_runs > 0 ? SPECRT_STATUS_OK : plan_no_tree(err);
}

static specrt_status make_plan(plan *p, const prompt_list *prompts, specrt_error *err) {
    const eval_options *o = &p->options;
    double began = cli_seconds();
    if (!o->draft || strcmp(o->draft, "none") == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "expected --draft FILE, an EAGLE head or a small GGUF");
    if (o->sampled_drafts)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--sampled-drafts: a plan is for the drafter's best tokens");
    if (p->report) TRY(out_check(p->report, o->common.force, err));
    TRY(models_open(o, (int)o->common.threads, &p->models, err));
    TRY(chat_create(o->template_name, p->models.tok, &p->chat, err));
    TRY(add_policies(p, err));
    if (prompts->n) TRY(add_prompts(p, prompts, err));
    TRY(measure_costs(p, err));
    TRY(p->traces.n ? plan_from_trace(p, err) : run_all(p, err));
    p->seconds = cli_seconds() - began;
    if (p->n_check) TRY(plan_check(p, err));
    if (o->common.json)
        plan_print_json(p);
    else
        plan_print_table(p);
    return p->report ? plan_write_report(p, p->report, o->common.force, err) : SPECRT_STATUS_OK;
}

static void close_plan(plan *p, int n_prompts) {
    plan_free_runs(p);
    for (int i = 0; i < p->n_policies; i++) specrt_policy_close(p->policies[i].policy);
    for (int i = 0; p->prompts && i < n_prompts; i++) free(p->prompts[i].ids);
    free(p->policies), free(p->prompts), free(p->plain), free(p->choices);
    chat_free(p->chat);
    models_close(&p->models);
    cli_list_free(&p->options.policies);
    cli_list_free(&p->options.prompts);
    cli_list_free(&p->traces);
}

int plan_main(int argc, char **argv) {
    plan p = {.options = {.max_tokens = 48}};
    eval_options *o = &p.options;
    prompt_list prompts = {0};
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        {"policy", 0, "SPEC", CLI_STRINGS, &o->policies, 0, 0,
         "repeat, or a comma list; full is always among them (default: a dozen the bundle allows)"},
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        {"trace", 0, "FILE", CLI_STRINGS, &p.traces, 0, 0,
         "what is accepted comes from recorded cycles; prompts serve --check alone"},
        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Output"},
        {"check", 0, "N", CLI_INT, &p.n_check, 1, 100,
         "decode the N best choices under exactly their trees, and say how far off the plan was"},
        {"report", 0, "FILE", CLI_STRING, &p.report, 0, 0, "an HTML page with plots"},
        {0},
    };
    const cli_tool tool = {
        "specrt-eval plan",
        "specrt-eval plan --target target.gguf --draft draft.safetensors --bundle model.specb\n"
        "      --prompts questions.jsonl",
        "Measures what head, drafter and target cost on this machine, by rows and nodes, and "
        "what drafts are accepted; recommends policy, --num-steps, --topk and --num-draft-tokens "
        "with the speed to expect, and says where speculation or pruning does not pay. The "
        "tree's flags bound what is considered.",
        "specrt-eval plan --target FILE --draft FILE --prompts FILE...", options};
    int code = cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = prompts_of(o, &prompts, &err);
    if (status == SPECRT_STATUS_OK && prompts.n == 0 && (p.traces.n == 0 || p.n_check))
        status =
            specrt_error_set(&err, SPECRT_STATUS_BAD_ARG, "expected --prompts FILE or --prompt");
    if (status == SPECRT_STATUS_OK) status = make_plan(&p, &prompts, &err);
    close_plan(&p, prompts.n);
    prompts_free(&prompts);
    return status == SPECRT_STATUS_OK ? CLI_OK : cli_fail(&err);
}
