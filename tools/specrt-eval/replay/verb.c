/* verb.c : specrt-eval replay: its options, its table and its JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../shared/eval.h"
#include "base/error.h"
#include "base/json.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/text.h"
#include "replay.h"

typedef struct replaying {
    cli_common common;
    cli_list traces, policies, trees;
    replay_params params;
    char **texts;               /* [n_policies] owned */
    specrt_tree_params *shapes; /* [n_trees] owned */
    replay *r;
} replaying;

/* ---- options ---- */

static specrt_status add_policy(void *user, const char *text, specrt_error *err) {
    replaying *a = (replaying *)user;
    size_t n = (size_t)a->params.n_policies;
    for (size_t i = 0; i < n; i++)
        if (strcmp(a->texts[i], text) == 0) return SPECRT_STATUS_OK;
    TRY(eval_fixed_policy(text, err));
    char **copy = (char **)sl_more(&a->texts, n, sizeof *copy);
    if (!copy || !(*copy = strdup(text))) return sl_error_no_memory_for(err, "a replay");
    a->params.n_policies++;
    return SPECRT_STATUS_OK;
}

static specrt_status add_tree(replaying *a, const char *text, specrt_error *err) {
    specrt_tree_params *tree = &a->shapes[a->params.n_trees++];
    int end = 0;
    int n =
        sscanf(text, "%d/%d/%d%n", &tree->num_steps, &tree->topk, &tree->num_draft_tokens, &end);
    if (n == 3 && !text[end] && tree->num_steps > 0 && tree->topk > 0 && tree->num_draft_tokens > 1)
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_ARG,
        "--tree: expected num_steps/topk/num_draft_tokens, as 6/10/60, found '%s'", text);
}

static specrt_status take_options(replaying *a, specrt_error *err) {
    replay_params *p = &a->params;
    if (a->traces.n == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "expected --trace FILE; specrt-eval record writes one");
    p->traces = a->traces.items;
    p->n_traces = a->traces.n;
    p->threads = (int)a->common.threads;
    p->progress = a->common.progress;
    TRY(each_policy(&a->policies, add_policy, a, err));
    if (a->policies.n == 0) TRY(add_policy(a, "full", err));
    if (a->policies.n == 0) TRY(add_policy(a, "microspec", err));
    p->policies = (const char *const *)a->texts;
    a->shapes = (specrt_tree_params *)calloc((size_t)a->trees.n + 1, sizeof *a->shapes);
    if (!a->shapes) return sl_error_no_memory_for(err, "a replay");
    for (int i = 0; i < a->trees.n; i++) TRY(add_tree(a, a->trees.items[i], err));
    p->trees = a->shapes;
    return SPECRT_STATUS_OK;
}

/* ---- table ---- */

/* An estimate, unless it is exact. */
static void put_marked(double x, int width, int digits, bool exact) {
    printf(" %c", exact || isnan(x) ? ' ' : '~');
    sl_text_number(x, width, digits);
}

static int name_width(const replaying *a) {
    int width = 8;
    for (int i = 0; i < a->params.n_policies; i++) {
        int n = (int)strlen(a->texts[i]);
        if (n > width) width = n;
    }
    return width;
}

static const char *name_of(const replaying *a, int policy) {
    return policy < 0 ? "oracle" : a->texts[policy];
}

static void print_row(const replaying *a, int policy, int width) {
    replay_figures f;
    replay_figures_of(a->r, policy, 0, -1, &f);
    printf("%-*s", width, name_of(a, policy));
    put_marked(f.accept_length.value, 5, 2, f.exact_accept_length);
    if (isnan(f.accept_length.low))
        printf("  %9s", "-    ");
    else
        printf("  %4.2f-%-4.2f", f.accept_length.low, f.accept_length.high);
    put_marked(100 * f.coverage.value, 6, 2, f.exact_coverage);
    if (isnan(f.coverage.low))
        printf("  %11s", "-     ");
    else
        printf("  %5.2f-%-5.2f", 100 * f.coverage.low, 100 * f.coverage.high);
    put_marked(f.shortlist_rows.value, 8, 1, f.exact_rows);
    sl_text_number(100 * f.mass.value, 7, 2);
    for (int k = 0; k < REPLAY_RECALLS; k++) sl_text_number(100 * f.recall[k], 7, 2);
    putchar('\n');
}

static void print_domains(const replaying *a, int width) {
    enum { MOST = 12 };
    int n = replay_n_domains(a->r) < MOST ? replay_n_domains(a->r) : MOST;
    if (n < 2) return;
    printf("\n%-*s", width, "covered, %");
    for (int d = 0; d < n; d++) putchar(' '), sl_text_pad_left(replay_domain(a->r, d), 10, stdout);
    for (int i = 0; i < a->params.n_policies; i++) {
        printf("\n%-*s", width, name_of(a, i));
        for (int d = 0; d < n; d++) {
            replay_figures f;
            replay_figures_of(a->r, i, 0, d, &f);
            sl_text_number(100 * f.coverage.value, 10, 2);
        }
    }
    if (n < replay_n_domains(a->r))
        printf("\n(%d more domains: --json has them)", replay_n_domains(a->r) - n);
    putchar('\n');
}

static void print_spans(const replaying *a, int width) {
    printf("\n%-*s  covered, %% %-*s  accept length\n%-*s", width, "tokens since", 6 * 8 - 12, "",
           width, a->params.stream ? "topic began" : "the prompt");
    for (int twice = 0; twice < 2; twice++) {
        for (int k = 0; k < REPLAY_SPANS; k++) printf(" %7s", replay_span_name(k));
        printf("  ");
    }
    for (int i = 0; i < a->params.n_policies; i++) {
        replay_figures f;
        replay_figures_of(a->r, i, 0, -1, &f);
        printf("\n%-*s", width, name_of(a, i));
        for (int k = 0; k < REPLAY_SPANS; k++) sl_text_number(100 * f.span_coverage[k], 7, 2);
        printf("  ");
        for (int k = 0; k < REPLAY_SPANS; k++) sl_text_number(f.span_accept_length[k], 7, 2);
    }
    putchar('\n');
}

static void print_acceptance(const replaying *a, int width) {
    int n_steps = replay_tree(a->r, 0)->num_steps;
    printf("\n%-*s", width, "accepted at");
    for (int k = 0; k < n_steps; k++) printf(" %5d.", k + 1);
    for (int i = -1; i < a->params.n_policies; i++) {
        replay_figures f;
        replay_figures_of(a->r, i, 0, -1, &f);
        printf("\n%-*s", width, name_of(a, i));
        for (int k = 0; k < n_steps; k++) sl_text_number(f.acceptance[k], 6, 3);
    }
    putchar('\n');
}

static void print_trees(const replaying *a, int width) {
    if (a->params.n_trees == 0) return;
    printf("\n%-*s", width, "accept length");
    for (int t = 0; t <= a->params.n_trees; t++) {
        char name[48];
        const specrt_tree_params *tree = replay_tree(a->r, t);
        snprintf(name, sizeof name, "%d/%d/%d", (int)tree->num_steps, (int)tree->topk,
                 (int)tree->num_draft_tokens);
        printf(" %9s", name);
    }
    for (int i = -1; i < a->params.n_policies; i++) {
        printf("\n%-*s", width, name_of(a, i));
        for (int t = 0; t <= a->params.n_trees; t++) {
            replay_figures f;
            replay_figures_of(a->r, i, t, -1, &f);
            sl_text_number(f.accept_length.value, 9, 2);
        }
    }
    putchar('\n');
}

static void print_table(const replaying *a) {
    int width = name_width(a);
    replay_figures f;
    replay_figures_of(a->r, -1, 0, -1, &f);
    printf("%s cycles of %s sequences, %s tokens%s\n\n", sl_text_count((uint64_t)f.n_cycles),
           sl_text_count((uint64_t)f.n_sequences), sl_text_count((uint64_t)f.n_tokens),
           replay_is_cut(a->r) ? ", up to where a trace was cut" : "");
    printf("%-*s %7s  %-9s %8s  %-11s %10s %7s  %-15s %-15s\n", width, "policy", "accept", "95%",
           "covered", "95%", "rows", "mass", "target's best,%", "drafter's best,%");
    for (int i = -1; i < a->params.n_policies; i++) print_row(a, i, width);
    print_trees(a, width);
    print_acceptance(a, width);
    print_domains(a, width);
    print_spans(a, width);
    printf("\n~ estimated, from another policy's cycles or states that are not kept: within %.0f%% "
           "where that was measured "
           "(docs/methods/replay.md)\n",
           100 * REPLAY_ERROR);
}

/* ---- JSON ---- */

static json_object *spans_json(const double *x) {
    json_object *o = json_object_new_object();
    for (int k = 0; k < REPLAY_SPANS; k++) sl_json_put(o, replay_span_name(k), sl_json_real(x[k]));
    return o;
}

static json_object *tree_json(const specrt_tree_params *tree) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "num_steps", sl_json_whole((uint64_t)tree->num_steps));
    sl_json_put(o, "topk", sl_json_whole((uint64_t)tree->topk));
    sl_json_put(o, "num_draft_tokens", sl_json_whole((uint64_t)tree->num_draft_tokens));
    return o;
}

static json_object *row_json(const replaying *a, int policy, int tree, int domain) {
    json_object *o = json_object_new_object(), *recall = json_object_new_object(),
                *ci = json_object_new_object();
    replay_figures f;
    replay_figures_of(a->r, policy, tree, domain, &f);
    sl_json_put(o, "policy", sl_json_text(name_of(a, policy)));
    sl_json_put(o, "policy_text", sl_json_text(replay_policy_text(a->r, policy)));
    sl_json_put(o, "domain", sl_json_text(domain < 0 ? "all" : replay_domain(a->r, domain)));
    sl_json_put(o, "tree", tree_json(replay_tree(a->r, tree)));
    sl_json_put(o, "n_sequences", sl_json_whole((uint64_t)f.n_sequences));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)f.n_cycles));
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)f.n_tokens));
    sl_json_put(o, "accept_length", sl_json_real(f.accept_length.value));
    sl_json_put(o, "estimated", json_object_new_boolean(!f.exact_accept_length));
    sl_json_put(o, "coverage", sl_json_real(f.coverage.value));
    sl_json_put(o, "coverage_estimated", json_object_new_boolean(!f.exact_coverage));
    sl_json_put(o, "shortlist_rows", sl_json_real(f.shortlist_rows.value));
    sl_json_put(o, "shortlist_rows_estimated", json_object_new_boolean(!f.exact_rows));
    sl_json_put(o, "mass", sl_json_real(f.mass.value));
    sl_json_put(o, "mass_known", sl_json_real(f.mass_known));
    for (int k = 0; k < REPLAY_RECALLS; k++)
        sl_json_put(recall, replay_recall_name(k), sl_json_real(f.recall[k]));
    sl_json_put(o, "recall", recall);
    sl_json_put(ci, "accept_length", sl_json_range(f.accept_length.low, f.accept_length.high));
    sl_json_put(ci, "coverage", sl_json_range(f.coverage.low, f.coverage.high));
    sl_json_put(ci, "shortlist_rows", sl_json_range(f.shortlist_rows.low, f.shortlist_rows.high));
    sl_json_put(ci, "mass", sl_json_range(f.mass.low, f.mass.high));
    sl_json_put(o, "ci95", ci);
    if (domain >= 0) return o;
    sl_json_put(o, "acceptance", sl_json_reals(f.acceptance, replay_tree(a->r, tree)->num_steps));
    sl_json_put(o, "coverage_since", spans_json(f.span_coverage));
    sl_json_put(o, "accept_length_since", spans_json(f.span_accept_length));
    return o;
}

static void print_json(const replaying *a) {
    json_object *o = json_object_new_object(), *rows = json_object_new_array();
    int n_domains = replay_n_domains(a->r);
    for (int i = -1; i < a->params.n_policies; i++)
        for (int t = 0; t <= a->params.n_trees; t++)
            for (int d = -1; d < (n_domains > 1 ? n_domains : 0); d++)
                json_object_array_add(rows, row_json(a, i, t, d));
    sl_json_put(o, "cut", json_object_new_boolean(replay_is_cut(a->r)));
    sl_json_put(o, "estimate_error", sl_json_real(REPLAY_ERROR));
    sl_json_put(o, "stream", json_object_new_boolean(a->params.stream));
    sl_json_put(o, "rows", rows);
    sl_json_print(o);
}

/* ---- the verb ---- */

/* The oracle is no policy here, though its share of the time counts. */
static void print_speed(const replaying *a, double seconds) {
    replay_figures f;
    replay_figures_of(a->r, -1, 0, -1, &f);
    double n = (double)f.n_cycles * a->params.n_policies;
    sl_cli_info("%s cycles under %d %s in %.2f s: %s cycles/s", sl_text_count((uint64_t)f.n_cycles),
                a->params.n_policies, a->params.n_policies == 1 ? "policy" : "policies", seconds,
                sl_text_count((uint64_t)(n / seconds)));
}

static specrt_status run(replaying *a, specrt_error *err) {
    TRY(take_options(a, err));
    double began = sl_measure_seconds();
    TRY(replay_run(&a->params, &a->r, err));
    print_speed(a, sl_measure_seconds() - began);
    if (replay_is_cut(a->r)) sl_cli_warn("a trace is cut short; the cycles before the cut count");
    if (!replay_knows_drafter(a->r))
        sl_cli_warn("the trace has no best tokens of the drafter, so accept lengths of other "
                    "policies and trees are unknown; record with --draft-top above 0");
    if (a->common.json)
        print_json(a);
    else
        print_table(a);
    return SPECRT_STATUS_OK;
}

static void close_replaying(replaying *a) {
    replay_free(a->r);
    for (int i = 0; i < a->params.n_policies; i++) free(a->texts[i]);
    free((void *)a->texts);
    free(a->shapes);
    sl_cli_list_free(&a->traces);
    sl_cli_list_free(&a->policies);
    sl_cli_list_free(&a->trees);
}

int replay_main(int argc, char **argv) {
    replaying a = {0};
    specrt_error err = {0};
    const cli_option options[] = {
        sl_cli_strings("trace", "FILE", &a.traces,
                       "trace of specrt-eval record or of an engine; repeat for more traces of one "
                       "drafter and tree"),
        sl_cli_strings(
            "policy", "SPEC", &a.policies,
            "repeat, or a comma list (full,microspec); SPEC@head=q4_0 or q8_0 ranks tokens by "
            "a copy of the head of --model in that type"),
        sl_cli_string("bundle", "FILE", &a.params.bundle,
                      "bundle with the sections that the policies need"),
        sl_cli_string("model", "FILE", &a.params.model,
                      "GGUF or safetensors of the head, for policies that read it"),
        sl_cli_string("embedding", "FILE", &a.params.embedding,
                      "model with the token embedding that dynaspec reads (default: --model)"),
        sl_cli_strings(
            "tree", "S/K/N", &a.trees,
            "also print the accept length of a smaller tree, num_steps/topk/num_draft_tokens"),
        sl_cli_flag("stream", &a.params.stream, "keep learned state from one sequence to the next"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval replay",
        "specrt-eval replay --trace run.trace --bundle model.specb\n"
        "      --policy static:8192,static:32768,microspec",
        "Runs policies over recorded cycles without a model.\n\n"
        "accept   tokens per cycle\n"
        "covered  share of emitted tokens that were in the shortlist vocabulary\n"
        "rows     number of LM-head rows scored per draft step\n"
        "mass     the target's probability in the shortlist vocabulary: a lower bound, from the\n"
        "         tokens that the trace has\n"
        "~        an estimate; docs/methods/replay.md has the reasons and the errors\n"
        "best     share of the best tokens that were in the shortlist vocabulary: the target's "
        "best\n"
        "         one, all of the target's in the trace, the drafter's 10 best, all of the "
        "drafter's",
        "specrt-eval replay --trace FILE... [--policy SPEC...] [--bundle FILE]", options};
    int code = sl_cli_parse(&tool, argc, argv, &a.common, NULL);
    if (code >= 0) return code;
    specrt_status status = run(&a, &err);
    close_replaying(&a);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
