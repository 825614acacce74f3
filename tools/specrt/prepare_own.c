/* prepare_own.c : `specrt prepare --for specrt`: for our own runtime and tools a bundle with every section
 * that policies need, and a comparison of these policies on prompts that nothing was made from. */
#include <string.h>
#include "estimate.h"
#include "prepare.h"

/* One in so many prompts is for comparing, and neither counted nor recorded. */
#define EVERY_TEXT "5"
enum { EVERY = 5, NUMBER_BYTES = 24, POLICIES_BYTES = 512 };

void prepare_own_find(prepare *p) {
    model m;
    specrt_head_desc head;
    specrt_error err;
    if (sl_model_open(p->target, &m, &err) != SPECRT_STATUS_OK) return;
    p->runs = m.g != NULL;
    p->has_head = sl_model_head(&m, NULL, &head, NULL, &err) == SPECRT_STATUS_OK;
    sl_model_close(&m);
}

/* Of a target that the engine does not run. @return the exit code */
static int say_lists(const prepare *p) {
    sl_cli_warn("%s: the engine does not run it, so it answers no prompts: lists alone", p->target);
    if (p->text.n + p->fill.n > 0) return CLI_OK;
    return sl_cli_usage("expected --text or --fill, which can be counted without answers");
}

/* What the engine refuses is no failure of a target alone. */
static int run_try(prepare *p) {
    step s = {.name = "try", .what = "whether the engine runs it", .optional = p->drafts_itself};
    step_words(&s, "specrt-eval", "decode", "--target", p->target, NULL);
    if (!p->drafts_itself) step_words(&s, "--draft", p->drafter, "--policy", "full", NULL);
    step_words(&s, "--prompt", "Why?", "--max-tokens", "2", NULL);
    int code = step_run(&p->steps, &s);
    p->runs = !s.left_out;
    p->asks = p->asks && p->runs;
    return code == CLI_OK && !p->runs ? say_lists(p) : code;
}

/* ---- prompts ---------------------------------------------------------------------------------- */

/* A step of a drafter is quick beside the target's pass, unless the drafter is the target. */
static double passes_of(const prepare *p) {
    return p->drafts_itself ? 1.7 : 1;
}

/* The prompts for comparing, or the others.
 *   passes : of the target for each token */
static void add_prompts(const prepare *p, step *s, bool compares, double passes,
                        char limit[NUMBER_BYTES]) {
    int64_t compared = (p->limit + EVERY - 1) / EVERY,
            n = compares ? compared : p->limit - compared;
    snprintf(limit, NUMBER_BYTES, "%lld", (long long)n);
    step_word(s, "--prompts");
    for (int i = 0; i < p->prompts.n; i++) step_word(s, p->prompts.items[i]);
    step_words(s, compares ? "--every" : "--skip-every", EVERY_TEXT, "--limit", limit,
               "--max-tokens", p->tokens_text, "-f", "-o", s->outputs[0], NULL);
    s->seconds = estimate_decode(p->target, (double)(p->prompts.n * n * p->tokens) * passes);
}

static int run_answers(prepare *p) {
    char limit[NUMBER_BYTES];
    step s = {.name = "answers",
              .what = "let the target answer the prompts, for text of its own",
              .outputs = {p->answers}};
    step_words(&s, "specrt-eval", "generate", "--target", p->target, NULL);
    add_prompts(p, &s, false, 1, limit);
    return step_run(&p->steps, &s);
}

/* ---- sections --------------------------------------------------------------------------------- */

/* Of a chain, as decode and compare draft by default. */
static int run_states(prepare *p) {
    char limit[NUMBER_BYTES];
    step s = {.name = "states",
              .what = "record the target's answers, for what follows to learn from",
              .outputs = {p->trace}};
    step_words(&s, "specrt-eval", "record", "--target", p->target, "--draft", p->drafter,
               "--num-steps", "3", "--topk", "1", NULL);
    add_prompts(p, &s, false, passes_of(p), limit);
    return step_run(&p->steps, &s);
}

static int run_dynaspec(prepare *p) {
    step s = {.name = "dynaspec", .what = "cluster the head, and train what chooses clusters"};
    step_words(&s, "cluster-build", "--model", prepare_head(p), "--tokenizer", p->target,
               "--router", "dynaspec", "--embedding", p->target, "--trace", p->trace, NULL);
    return prepare_add(p, &s);
}

static int run_coral(prepare *p) {
    step s = {.name = "coral", .what = "the same with large groups"};
    step_words(&s, "cluster-build", "--model", prepare_head(p), "--tokenizer", p->target,
               "--router", "coral", "--trace", p->trace, NULL);
    return prepare_add(p, &s);
}

static int run_index(prepare *p) {
    step s = {.name = "index", .what = "index the head, to search it"};
    step_words(&s, "hnsw-build", "--model", prepare_head(p), "--trace", p->trace, NULL);
    return prepare_add(p, &s);
}

/* ---- the comparison --------------------------------------------------------------------------- */

static void add_policy(char list[POLICIES_BYTES], bool has, const char *policy) {
    size_t n = strlen(list);
    if (has) snprintf(list + n, POLICIES_BYTES - n, "%s%s", n ? "," : "", policy);
}

/* Policies that the bundle has the sections for. A target that drafts for itself is slow, and the last three
 * would keep all of its drafts. @return how many */
static int list_policies(const prepare *p, char list[POLICIES_BYTES]) {
    bool graph = prepare_has(p, "graph"), clusters = prepare_has(p, "clusters"),
         sketch = prepare_has(p, "sketch"), drafter = !p->drafts_itself;
    int n = 1;
    *list = 0;
    add_policy(list, true, "static,static:2048");
    add_policy(list, graph, "static:2048+retrieve,static:512+window+successor:256");
    add_policy(list, clusters, "centroid");
    add_policy(list, prepare_has(p, "dynaspec"), "dynaspec");
    add_policy(list, prepare_has(p, "coral"), "coral");
    add_policy(list, sketch, "sketch:128");
    add_policy(list, sketch && graph, "hybrid");
    add_policy(list, drafter, "microspec");
    add_policy(list, drafter && graph, "evospec");
    add_policy(list, drafter && clusters, "centroid+retrieve@graph=off");
    for (const char *c = list; *c; c++) n += *c == ',';
    return n;
}

static int run_compare(prepare *p) {
    char limit[NUMBER_BYTES], policies[POLICIES_BYTES];
    int n = list_policies(p, policies);
    step s = {.name = "compare",
              .what = "decode other prompts plainly and under each policy",
              .prints = STEP_TEXT,
              .outputs = {p->comparison, p->page}};
    step_words(&s, "specrt-eval", "compare", "--target", p->target, "--draft", p->drafter,
               "--bundle", p->bundle, "--policy", p->policies ? p->policies : policies, "--report",
               p->page, NULL);
    add_prompts(p, &s, true, 2 + passes_of(p) * n, limit);
    int code = step_run(&p->steps, &s);
    p->compared = code == CLI_OK;
    return code;
}

static int run_info(prepare *p) {
    step s = {.name = "info", .what = "what the bundle holds", .prints = STEP_TEXT};
    step_words(&s, "specrt-bundle", "info", p->bundle, NULL);
    return step_run(&p->steps, &s);
}

/* ---- all of them ------------------------------------------------------------------------------ */

/* An index is searched with the target's states, so it is of the target's head alone. */
int prepare_own_run(prepare *p) {
    bool dynaspec = prepare_wants(p, "dynaspec"), coral = prepare_wants(p, "coral"),
         sketch = prepare_wants(p, "sketch"), has_prompts = p->prompts.n > 0,
         index = prepare_wants(p, "index") && strcmp(prepare_head(p), p->target) == 0,
         compares = !(p->policies && strcmp(p->policies, "none") == 0);
    p->traced = has_prompts && (dynaspec || coral || sketch || index);
    p->asks = p->runs && has_prompts && p->text.n == 0;
    const prepare_step all[] = {
        {true, true, run_try},
        {p->asks, true, run_answers},
        {true, false, prepare_ranks},
        {prepare_wants(p, "graph"), false, prepare_graph},
        {prepare_wants(p, "clusters") && p->has_head, false, prepare_clusters},
        {p->traced, true, run_states},
        {p->traced && dynaspec, true, run_dynaspec},
        {p->traced && coral, true, run_coral},
        {p->traced && sketch, true, prepare_sketch},
        {p->traced && index, true, run_index},
        {has_prompts && compares, true, run_compare},
        {true, false, run_info},
    };
    int code = p->runs ? CLI_OK : say_lists(p);
    return code == CLI_OK ? prepare_each(p, all, sizeof all / sizeof all[0]) : code;
}
