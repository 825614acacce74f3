/* prepare_steps.c : the commands of `specrt prepare`, in their order. */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "estimate.h"
#include "prepare.h"

static bool is_first(const char *list, const char *word) {
    size_t n = strcspn(list, ",");
    return n == strlen(word) && strncmp(list, word, n) == 0;
}

bool prepare_wants(const prepare *p, const char *section) {
    for (const char *s = p->with; *s; s += strcspn(s, ","), s += *s == ',')
        if (is_first(s, section)) return true;
    return false;
}

static void add_seed(const prepare *p, step *s) {
    if (p->common.seed != 1) step_option(s, "--seed", p->seed_text);
}

/* ---- before anything is counted --------------------------------------------------------------- */

static bool flag_of(json_object *o, const char *key) {
    return json_object_get_boolean(sl_json_get(o, key));
}

/* A finding stops the work where the engine would draft wrong tokens, and the cut does not fix it. */
static int judge_findings(prepare *p, json_object *findings) {
    int code = CLI_OK;
    specrt_error err;
    for (size_t i = 0; findings && i < json_object_array_length(findings); i++) {
        json_object *f = json_object_array_get_idx(findings, i);
        bool fixed = flag_of(f, "export_fixes") && p->way != WAY_BUNDLE;
        if (!fixed && !flag_of(f, "wrong_drafts") && p->way == WAY_BUNDLE) { /* no later check */
            sl_cli_warn("%s: %s; %s", p->drafter, sl_json_get_text(f, "what"),
                        sl_json_get_text(f, "fix"));
            p->found = true;
        }
        if (fixed || !flag_of(f, "wrong_drafts")) continue;
        specrt_error_set(&err, SPECRT_STATUS_BAD_INPUT, "%s: %s; %s", p->drafter,
                         sl_json_get_text(f, "what"), sl_json_get_text(f, "fix"));
        code = sl_cli_fail(&err);
    }
    return code;
}

static int run_drafter(prepare *p) {
    step s = {.name = "drafter", .what = "check the drafter beside the target"};
    step_word(&s, "specrt-bundle");
    step_word(&s, "check");
    step_word(&s, p->drafter);
    step_option(&s, "--target", p->target);
    step_option(&s, "--for", p->engine_name);
    int code = step_run(&p->steps, &s);
    json_object *findings = sl_json_get(s.findings, "findings");
    if (findings) code = judge_findings(p, findings);
    json_object_put(s.findings);
    return code;
}

/* ---- text and bundle -------------------------------------------------------------------------- */

static int run_ask(prepare *p) {
    step s = {
        .name = "ask", .what = "let the served target answer the prompts", .outputs = {p->answers}};
    step_word(&s, "specrt");
    step_word(&s, "ask");
    step_option(&s, "--endpoint", p->endpoint);
    step_option(&s, "--model", p->model);
    step_word(&s, "--prompts");
    for (int i = 0; i < p->prompts.n; i++) step_word(&s, p->prompts.items[i]);
    add_seed(p, &s);
    step_option(&s, "-o", p->answers);
    return step_run(&p->steps, &s);
}

/* The folder of outputs may be in a folder of the text. */
static void add_corpus(const prepare *p, step *s) {
    step_option(s, "--tokenizer", p->target);
    step_word(s, "--corpus");
    for (int i = 0; i < p->text.n; i++) step_word(s, p->text.items[i]);
    if (p->endpoint) step_word(s, p->answers);
    step_option(s, "--format", p->format);
    step_option(s, "--exclude", p->common.output);
}

static int write_bundle(prepare *p, step *s) {
    step_word(s, "-f");
    step_option(s, "-o", p->bundle);
    s->outputs[0] = p->bundle;
    return step_run(&p->steps, s);
}

static int run_ranks(prepare *p) {
    step s = {.name = "ranks",
              .what = "count the tokens of the text",
              .seconds = estimate_ranks(&p->text)};
    step_word(&s, "vocabtrim-calibrate");
    add_corpus(p, &s);
    if (p->mass > 0) step_option(&s, "--mass", p->mass_text);
    if (p->size) step_option(&s, "--size", p->size_text);
    if (p->by_language) step_word(&s, "--by-language");
    if (p->balance) step_word(&s, "--balance");
    add_seed(p, &s);
    step_option(&s, "--report", p->report);
    s.outputs[1] = p->report;
    return write_bundle(p, &s);
}

static int run_graph(prepare *p) {
    step s = {.name = "graph",
              .what = "count which tokens follow which",
              .seconds = estimate_graph(&p->text)};
    step_word(&s, "cograph-build");
    add_corpus(p, &s);
    return write_bundle(p, &s);
}

/* Sections of the head that drafts: the drafter's own, else the target's. */
const char *prepare_head(const prepare *p) {
    bool is_own = p->kind == CHECKPOINT_EAGLE3 || p->kind == CHECKPOINT_MODEL;
    return is_own ? p->drafter : p->target;
}

static int run_sketch(prepare *p) {
    step s = {.name = "sketch",
              .what = "copy the head in one and two bits",
              .seconds = estimate_sketch(prepare_head(p))};
    step_word(&s, "sketch-build");
    step_option(&s, "--model", prepare_head(p));
    add_seed(p, &s);
    return write_bundle(p, &s);
}

static int run_clusters(prepare *p) {
    step s = {.name = "clusters",
              .what = "cluster the rows of the head",
              .seconds = estimate_clusters(prepare_head(p))};
    step_word(&s, "cluster-build");
    step_option(&s, "--model", prepare_head(p));
    step_option(&s, "--tokenizer", p->target);
    add_seed(p, &s);
    return write_bundle(p, &s);
}

/* ---- what the engine loads -------------------------------------------------------------------- */

static int run_cut(prepare *p) {
    step s = {.name = "cut", .what = "cut the drafter's head to these tokens", .outputs = {p->cut}};
    if (p->way == WAY_LIST) s.what = "write these tokens as the engine reads them";
    s.seconds = estimate_copy(p->drafter);
    step_word(&s, "specrt-bundle");
    step_word(&s, "export");
    step_word(&s, p->bundle);
    step_option(&s, "--drafter", p->drafter);
    step_option(&s, p->cut_is_gguf ? "--format" : "--for",
                p->cut_is_gguf ? "gguf" : p->engine_name);
    if (p->cut_is_gguf && !p->id.is_gguf) step_option(&s, "--target", p->target);
    step_word(&s, "-f");
    step_option(&s, "-o", p->cut);
    return step_run(&p->steps, &s);
}

/* The list is the bundle's, unless the drafter has no rows for some of its tokens, which the cut reports. */
static bool has_all_rows(const prepare *p) {
    json_object *cut = step_result(&p->steps, "cut");
    bool all = json_object_get_int64(sl_json_get(cut, "n_missing")) == 0;
    json_object_put(cut);
    return all;
}

static int run_check(prepare *p) {
    step s = {.name = "check", .what = "what the engine would load wrongly", .shows = true};
    step_word(&s, "specrt-bundle");
    step_word(&s, "check");
    step_word(&s, p->cut);
    step_option(&s, "--target", p->target);
    step_option(&s, "--for", p->engine_name);
    if (has_all_rows(p)) step_option(&s, "--bundle", p->bundle);
    int code = step_run(&p->steps, &s);
    p->found = code == CLI_INVALID;
    return p->found ? CLI_OK : code;
}

/* ---- all of them ------------------------------------------------------------------------------ */

int prepare_run(prepare *p) {
    const struct {
        bool wanted;
        int (*run)(prepare *);
    } all[] = {
        {true, run_drafter},
        {p->endpoint != NULL, run_ask},
        {true, run_ranks},
        {prepare_wants(p, "graph"), run_graph},
        {prepare_wants(p, "sketch"), run_sketch},
        {prepare_wants(p, "clusters"), run_clusters},
        {p->way != WAY_BUNDLE, run_cut},
        {p->way != WAY_BUNDLE, run_check},
    };
    enum { N = sizeof all / sizeof all[0] };
    int code = CLI_OK;
    for (int i = 0; i < N; i++) p->steps.n_steps += all[i].wanted;
    for (int i = 0; i < N && code == CLI_OK; i++)
        if (all[i].wanted) code = all[i].run(p);
    return code;
}
