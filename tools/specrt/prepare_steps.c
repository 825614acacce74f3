/* prepare_steps.c : the commands of `specrt prepare`, in their order. */
#include <json-c/json.h>
#include <string.h>
#include "base/json.h"
#include "estimate.h"
#include "prepare.h"

/* ---- sections --------------------------------------------------------------------------------- */

/* Behind a section's name in --with; NULL: not there. */
static const char *find_section(const prepare *p, const char *section) {
    size_t n = strlen(section);
    for (const char *s = p->with; *s; s += strcspn(s, ","), s += *s == ',')
        if (strcspn(s, ",@") == n && strncmp(s, section, n) == 0) return s + n;
    return NULL;
}

bool prepare_wants(const prepare *p, const char *section) {
    return find_section(p, section) != NULL;
}

static void add_seed(const prepare *p, step *s) {
    if (p->common.seed != 1) step_option(s, "--seed", p->seed_text);
}

/* "sketch@min-recall=0.95" in --with is the option --min-recall=0.95 of sketch-build. */
static void add_settings(prepare *p, step *s) {
    const char *at = find_section(p, s->name);
    char *to = p->settings; /* twice as long as --with */
    while (at && *at == '@') {
        int n = (int)strcspn(++at, "@,");
        step_word(s, to);
        to += sprintf(to, "--%.*s", n, at) + 1;
        at += n;
    }
}

const char *const prepare_sections[N_SECTIONS] = {"graph",    "sketch", "clusters",
                                                  "dynaspec", "coral",  "index"};

static unsigned bit_of(const char *section) {
    for (int i = 0; i < N_SECTIONS; i++)
        if (strcmp(prepare_sections[i], section) == 0) return 1u << i;
    return 0;
}

bool prepare_has(const prepare *p, const char *section) {
    return p->built & bit_of(section);
}

/* Our tools go without the policies of a section that cannot be made. */
int prepare_add(prepare *p, step *s) {
    add_seed(p, s);
    add_settings(p, s);
    step_words(s, "-f", "-o", p->bundle, NULL);
    s->outputs[0] = p->bundle;
    s->optional = p->engine == FOR_SPECRT && bit_of(s->name);
    int code = step_run(&p->steps, s);
    if (code == CLI_OK && !s->left_out) p->built |= bit_of(s->name);
    return code;
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
    step_words(&s, "specrt-bundle", "check", p->drafter, "--target", p->target, "--for",
               p->engine_name, NULL);
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
    step_words(&s, "specrt", "ask", "--endpoint", p->endpoint, NULL);
    step_option(&s, "--model", p->model);
    step_word(&s, "--prompts");
    for (int i = 0; i < p->prompts.n; i++) step_word(&s, p->prompts.items[i]);
    add_seed(p, &s);
    step_option(&s, "-o", p->answers);
    return step_run(&p->steps, &s);
}

/* The folder of outputs may be in a folder of the text. */
static void add_corpus(const prepare *p, step *s) {
    step_words(s, "--tokenizer", p->target, "--corpus", NULL);
    for (int i = 0; i < p->text.n; i++) step_word(s, p->text.items[i]);
    if (p->asks) step_word(s, p->answers);
    for (int i = 0; i < p->fill.n; i++) step_word(s, p->fill.items[i]);
    step_option(s, "--format", p->format);
    step_option(s, "--exclude", p->common.output);
}

/* The model whose head the ranks are bound to. An EAGLE-3 head may have fewer rows than are ranked. */
static const char *ranked_model(const prepare *p) {
    bool binds = p->engine == FOR_SPECRT && p->has_head && p->kind != CHECKPOINT_EAGLE3;
    return binds ? prepare_head(p) : NULL;
}

/* Sections of an earlier run may be of other text. */
int prepare_ranks(prepare *p) {
    step s = {.name = "ranks",
              .what = "count the tokens of the text",
              .fresh = true,
              .seconds = estimate_ranks(&p->text) + estimate_ranks(&p->fill)};
    step_word(&s, "vocabtrim-calibrate");
    add_corpus(p, &s);
    if (p->mass > 0) step_option(&s, "--mass", p->mass_text);
    if (p->loss > 0) step_option(&s, "--accept-loss", p->loss_text);
    if (p->size) step_option(&s, "--size", p->size_text);
    if (p->by_language) step_word(&s, "--by-language");
    if (p->balance) step_word(&s, "--balance");
    step_option(&s, "--model", ranked_model(p));
    snprintf(p->weights, sizeof p->weights, "%s:%d", p->answers, PREPARE_WEIGHT);
    if (p->asks && p->fill.n) step_option(&s, "--weights", p->weights);
    step_option(&s, "--report", p->report);
    s.outputs[1] = p->report;
    return prepare_add(p, &s);
}

int prepare_graph(prepare *p) {
    step s = {.name = "graph",
              .what = "count which tokens follow which",
              .seconds = estimate_graph(&p->text) + estimate_graph(&p->fill)};
    step_word(&s, "cograph-build");
    add_corpus(p, &s);
    return prepare_add(p, &s);
}

/* Sections of the head that drafts: the drafter's own, else the target's. */
const char *prepare_head(const prepare *p) {
    bool is_own =
        p->kind == CHECKPOINT_EAGLE3 || p->kind == CHECKPOINT_MODEL || p->kind == CHECKPOINT_BLOCK;
    return is_own && !p->id.headless ? p->drafter : p->target;
}

int prepare_sketch(prepare *p) {
    step s = {.name = "sketch",
              .what = "copy the head in one and two bits",
              .seconds = estimate_sketch(prepare_head(p))};
    step_words(&s, "sketch-build", "--model", prepare_head(p), NULL);
    if (p->traced) step_words(&s, "--trace", p->trace, "--min-recall", "0.9", NULL);
    return prepare_add(p, &s);
}

int prepare_clusters(prepare *p) {
    step s = {.name = "clusters",
              .what = "cluster the rows of the head",
              .seconds = estimate_clusters(prepare_head(p))};
    step_words(&s, "cluster-build", "--model", prepare_head(p), "--tokenizer", p->target, NULL);
    return prepare_add(p, &s);
}

/* ---- what the engine loads -------------------------------------------------------------------- */

bool prepare_takes_rows(const prepare *p) {
    return p->way == WAY_CUT && p->id.headless;
}

static int run_cut(prepare *p) {
    step s = {.name = "cut", .what = "cut the drafter's head to these tokens", .outputs = {p->cut}};
    if (p->way == WAY_LIST) s.what = "write these tokens as the engine reads them";
    s.seconds = estimate_copy(p->drafter);
    step_words(&s, "specrt-bundle", "export", p->bundle, "--drafter", p->drafter,
               p->cut_is_gguf ? "--format" : "--for", p->cut_is_gguf ? "gguf" : p->engine_name,
               NULL);
    if (prepare_takes_rows(p) || (p->cut_is_gguf && !p->id.is_gguf))
        step_option(&s, "--target", p->target);
    step_words(&s, "-f", "-o", p->cut, NULL);
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
    step s = {.name = "check", .what = "what the engine would load wrongly", .prints = STEP_SHOWN};
    step_words(&s, "specrt-bundle", "check", p->cut, "--target", p->target, "--for", p->engine_name,
               NULL);
    if (has_all_rows(p)) step_option(&s, "--bundle", p->bundle);
    int code = step_run(&p->steps, &s);
    p->found = code == CLI_INVALID;
    return p->found ? CLI_OK : code;
}

/* ---- all of them ------------------------------------------------------------------------------ */

static bool is_due(const prepare *p, const prepare_step *s) {
    return s->wanted && (p->runs || !s->decodes);
}

int prepare_each(prepare *p, const prepare_step *all, int n) {
    int code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        if (!is_due(p, &all[i])) continue;
        p->steps.n_steps = p->steps.n_done;
        for (int k = i; k < n; k++) p->steps.n_steps += is_due(p, &all[k]);
        code = all[i].run(p);
    }
    return code;
}

int prepare_run(prepare *p) {
    if (p->engine == FOR_SPECRT) return prepare_own_run(p);
    const prepare_step all[] = {
        {true, false, run_drafter},
        {p->asks, false, run_ask},
        {true, false, prepare_ranks},
        {prepare_wants(p, "graph"), false, prepare_graph},
        {prepare_wants(p, "sketch"), false, prepare_sketch},
        {prepare_wants(p, "clusters"), false, prepare_clusters},
        {p->way != WAY_BUNDLE, false, run_cut},
        {p->way != WAY_BUNDLE, false, run_check},
    };
    return prepare_each(p, all, sizeof all / sizeof all[0]);
}
