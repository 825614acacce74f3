/* main.c : specrt-llama, the verbs of specrt-eval over llama.cpp. Where no verb is named, options have
 * llama.cpp's names, and are written as those of decode, of compare (--bench) or of record (--record). */
#include "specrt_tools.h"
#include "backend.h"

#include <stdlib.h>
#include <string.h>
#include "../specrt-eval/shared/eval.h"
#include "base/error.h"
#include "base/io.h"
#include "engine/backend/own.h"

const eval_engine eval_engines[] = {{"llama", llama_open}, {"specrt", own_open}, {NULL, NULL}};

/* ---- llama.cpp's names ---------------------------------------------------------------------------- */

typedef struct spelling {
    char letter;
    const char *name, *also, *value, *help;
    const char *to;       /* of the verb; NULL: not passed on as it is */
    const char *verbs;    /* initials of those that get the fallback; NULL: there is none */
    const char *fallback; /* where it is not given */
} spelling;

enum { TARGET, DRAFT, LAYERS, LAYERS_DRAFT, TOPK, NODES, FILES, RECORD, N_PREDICT, COSTS };

/* clang-format off */
static const spelling spellings[] = {
    {'m', "model", NULL, "FILE", "the target, a GGUF", "--target", NULL, NULL},
    {0, "model-draft", "-md", "FILE", "the drafter, a GGUF of the same vocabulary, an EAGLE-3 head, MTP "
     "layers or a block drafter; none: the target's own MTP layers", "--draft", NULL, NULL},
    {0, "gpu-layers", "-ngl --n-gpu-layers", "N", "of the target on a GPU", NULL, NULL, NULL},
    {0, "gpu-layers-draft", "-ngld --n-gpu-layers-draft", "N", "of the drafter: all of them or 0", NULL, NULL,
     NULL},
    {0, "topk", NULL, "N", "branches of a draft tree; 1, the default, is a chain", "--topk", "dcr", "1"},
    {0, "num-draft-tokens", NULL, "N", "nodes to verify, root included (a whole chain; of a tree 32)",
     "--num-draft-tokens", NULL, NULL},
    {'f', "file", NULL, "FILE", "a prompt from a file; repeats", "--prompt", NULL, NULL},
    {0, "record", NULL, "FILE", "every cycle to a trace, for specrt-eval replay and plan; best with --policy "
     "full", "--output", NULL, NULL},
    {'n', "predict", "--n-predict", "N", "tokens of an answer (128); -1: until it ends", "--max-tokens", NULL,
     NULL},
    {0, "costs", NULL, "FILE", "no answers: what head, drafter and target cost here, for specrt-eval plan "
     "--costs", "--output", NULL, NULL},
    {'p', "prompt", NULL, "TEXT", "a prompt; repeats", "--prompt", NULL, NULL},
    {'c', "ctx-size", NULL, "N", "positions (the target's, at most 4096)", "--context", NULL, NULL},
    {'t', "threads", NULL, "N", "of llama.cpp (all cores)", "--threads", NULL, NULL},
    {0, "bundle", NULL, "FILE", "what policies need beyond the drafter", "--bundle", NULL, NULL},
    {0, "policy", NULL, "SPEC", "auto (the default), auto+SPEC: as many tokens as are faster than plain "
     "decoding, or none; full, microspec, static:N+window...: always --num-steps; with --bench any number of "
     "them", "--policy", "dc", "auto"},
    {0, "num-steps", "--draft-max --draft", "N", "passes of the drafter, or tokens of its block (4)",
     "--num-steps", "dcr", "4"},
    {0, "draft-p-min", "--spec-draft-p-min", "P", "no pass follows where the best path is less probable; 0, "
     "the default: all do", "--draft-p-min", NULL, NULL},
    {0, "prompts", NULL, "FILE", "JSON Lines (.gz, .zst) as specrt-eval takes them", "--prompts", NULL, NULL},
    {0, "limit", NULL, "N", "so many prompts of each such file, spread over it", "--limit", NULL, NULL},
    {0, "system-prompt", "-sys", "TEXT", "with -cnv", "--system", NULL, NULL},
    {0, "temp", "--temperature", "T", "0, the default: greedy", "--temperature", NULL, NULL},
    {0, "top-k", NULL, "N", "sample from the N best; 0: off", "--top-k", NULL, NULL},
    {0, "top-p", NULL, "P", "from the best of mass P; 0: off", "--top-p", NULL, NULL},
    {0, "min-p", NULL, "P", "relative to the best; 0: off", "--min-p", NULL, NULL},
    {'s', "seed", NULL, "N", "of sampling (default 1)", "--seed", NULL, NULL},
    {0, "auto-costs", NULL, "FILE", "what auto chooses by instead of the clock, of specrt-eval plan "
     "--costs-out", "--costs", NULL, NULL},
    {0, "rounds", NULL, "N", "of --bench, the best counts (5)", "--rounds", "c", "5"},
};
/* clang-format on */

enum { N_SPELLINGS = sizeof spellings / sizeof *spellings };

/* ---- --costs -------------------------------------------------------------------------------------- */

/* As many tokens as prompts and half their answers have on average; 0: no prompt is given. */
static specrt_status typical_length(const eval_options *o, const eval_models *m, int32_t *out,
                                    specrt_error *err) {
    prompt_list prompts = {0};
    id_list ids = {0};
    chat *c = NULL;
    size_t n = 0;
    specrt_status status = prompts_of(o, &prompts, err);
    if (status == SPECRT_STATUS_OK) status = chat_create(o, m->tok, &c, err);
    for (int i = 0; status == SPECRT_STATUS_OK && i < prompts.n; i++) {
        status = chat_prompt(c, &prompts.items[i], &ids);
        n += ids.n;
    }
    size_t typical = prompts.n ? n / (size_t)prompts.n + (size_t)o->max_tokens / 2 : 0;
    *out = typical < INT32_MAX / 2 ? (int32_t)typical : INT32_MAX / 2;
    chat_free(c);
    free(ids.ids);
    sl_prompts_free(&prompts);
    return status;
}

static specrt_status measure(const eval_options *o, specrt_error *err) {
    eval_models m;
    specrt_costs found;
    int32_t n_before = 0;
    TRY(models_open(o, 1, &m, err));
    specrt_status status = typical_length(o, &m, &n_before, err);
    if (status == SPECRT_STATUS_OK) status = eval_measure(&m, o, 20, n_before, &found, err);
    if (status == SPECRT_STATUS_OK)
        status = auto_costs_write(&found, o->common.output, o->common.force, err);
    models_close(&m);
    return status;
}

static int measure_main(int argc, char **argv) {
    eval_options o = {
        .max_tokens = 128,
        .auto_tree = {.num_steps = 8, .topk = 10, .num_draft_tokens = 60}}; /* plan's longest */
    specrt_error err = {0};
    const cli_option options[] = {EVAL_TARGET(o), EVAL_DRAFT(o), EVAL_PROMPTS(o), {0}};
    const cli_tool tool = {"specrt-llama", "", "", "", options};
    int code = sl_cli_parse(&tool, argc, argv, &o.common, NULL);
    if (code >= 0) return code;
    specrt_status status = measure(&o, &err);
    eval_options_free(&o);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}

/* ---- as a verb ------------------------------------------------------------------------------------ */

typedef struct command {
    cli_common common;
    bool bench, conversation;
    cli_list given[N_SPELLINGS];
    char **texts;      /* of -f, owned */
    const char **args; /* of the verb [n] */
    int n;
} command;

static void add(command *c, const char *option, const char *value) {
    c->args[c->n++] = option;
    if (value) c->args[c->n++] = value;
}

static const char *last(const command *c, int i) {
    return c->given[i].n ? c->given[i].items[c->given[i].n - 1] : NULL;
}

/* The whole file, without its last line feed. */
static specrt_status read_file(const char *path, char **out, specrt_error *err) {
    file_view view;
    TRY(sl_file_map(path, &view, err));
    size_t n = view.n && view.bytes[view.n - 1] == '\n' ? view.n - 1 : view.n;
    *out = n ? strndup((const char *)view.bytes, n) : strdup("");
    sl_file_unmap(&view);
    return *out ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "prompts");
}

static specrt_status read_files(command *c, specrt_error *err) {
    cli_list *files = &c->given[FILES];
    c->texts = (char **)calloc((size_t)files->n + 1, sizeof *c->texts);
    if (!c->texts) return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < files->n; i++) {
        TRY(read_file(files->items[i], &c->texts[i], err));
        files->items[i] = c->texts[i];
    }
    return SPECRT_STATUS_OK;
}

/* Values that llama.cpp reads otherwise. NULL: as if it were not given. */
static const char *value_of(int i, const char *value) {
    bool is_zero = strcmp(value, "0") == 0;
    if (i == N_PREDICT && (is_zero || strcmp(value, "-1") == 0)) return "1000000000";
    return is_zero && spellings[i].letter ? NULL : value; /* -c 0, -t 0 */
}

static void add_given(command *c, const char *verb) {
    for (int i = 0; i < N_SPELLINGS; i++) {
        const spelling *s = &spellings[i];
        if (c->given[i].n == 0 && s->verbs && strchr(s->verbs, *verb)) add(c, s->to, s->fallback);
        for (int k = 0; s->to && k < c->given[i].n; k++) {
            const char *value = value_of(i, c->given[i].items[k]);
            if (value) add(c, s->to, value);
        }
    }
}

static void add_common(command *c) {
    static const char *const flags[] = {"--json",  "--quiet",    "--verbose",
                                        "--force", "--progress", "--no-progress"};
    const bool set[] = {c->common.json,  c->common.quiet,         c->common.verbose,
                        c->common.force, c->common.progress == 1, c->common.progress == 0};
    for (size_t i = 0; i < sizeof set; i++)
        if (set[i]) add(c, flags[i], NULL);
}

static int run_verb(command *c, specrt_error *err) {
    const char *verb = c->bench          ? "compare"
                       : last(c, RECORD) ? "record"
                       : last(c, COSTS)  ? "measure"
                                         : "decode";
    const char *topk = last(c, TOPK), *layers = last(c, LAYERS), *more = last(c, LAYERS_DRAFT);
    if (read_files(c, err) != SPECRT_STATUS_OK) return sl_cli_fail(err);
    llama_set_layers(layers ? atoi(layers) : -1, more ? atoi(more) : -1);
    add(c, "specrt-llama", verb);
    add_given(c, verb);
    add_common(c);
    if (!last(c, DRAFT)) add(c, "--draft", last(c, TARGET));
    if (!c->conversation) add(c, "--chat-template", "none");
    if (topk && strcmp(topk, "1") != 0 && !last(c, NODES)) add(c, "--num-draft-tokens", "32");
    sl_cli_rename("specrt-llama");
    char **args = (char **)(uintptr_t)c->args;
    return last(c, COSTS) ? measure_main(c->n - 1, args + 1) : eval_main(c->n, args);
}

static int parse(command *c, int argc, char **argv) {
    cli_option table[N_SPELLINGS + 4] = {
        sl_cli_flag("bench", &c->bench,
                    "plain decoding, drafts by llama.cpp's whole head, `full` and the policies in "
                    "turns: speed, and whether tokens are plain decoding's"),
        sl_cli_also("-cnv",
                    sl_cli_flag("conversation", &c->conversation,
                                "prompts are a user's messages, in the target's template"))};
    for (int i = 0; i < N_SPELLINGS; i++) {
        const spelling *s = &spellings[i];
        table[2 + i] = sl_cli_strings(s->name, s->value, &c->given[i], s->help);
        table[2 + i].letter = s->letter;
        table[2 + i].also = s->also;
    }
    const cli_tool tool = {
        "specrt-llama", "specrt-llama -m target.gguf -md draft.gguf -p \"The patient has\" -n 64",
        "Answers prompts with llama.cpp, drafting with few rows of the drafter's head. The output "
        "is the target's own; where two logits nearly tie, a token may differ from plain "
        "decoding's, as with llama.cpp's own drafts. With a verb (decode, compare, record, plan, "
        "generate, replay) it is specrt-eval --engine llama.",
        "specrt-llama -m FILE [-md FILE] -p TEXT [options]", table};
    int code = sl_cli_parse(&tool, argc, argv, &c->common, NULL);
    if (code < 0 && !last(c, TARGET)) code = sl_cli_usage("expected -m FILE, the target");
    if (code < 0 && (c->bench != 0) + (last(c, RECORD) != NULL) + (last(c, COSTS) != NULL) > 1)
        code = sl_cli_usage("expected one of --bench, --record and --costs, found more");
    return code;
}

int main(int argc, char **argv) {
    command c = {.n = 0};
    specrt_error err = {0};
    if (argc > 1 && argv[1][0] != '-') return eval_main(argc, argv);
    int code = parse(&c, argc, argv);
    if (code < 0) {
        c.args = (const char **)calloc(2 * (size_t)(argc + N_SPELLINGS) + 16, sizeof *c.args);
        code = c.args ? run_verb(&c, &err) : CLI_IO;
    }
    for (int i = 0; c.texts && i < c.given[FILES].n; i++) free(c.texts[i]);
    for (int i = 0; i < N_SPELLINGS; i++) sl_cli_list_free(&c.given[i]);
    free(c.texts);
    free((void *)c.args);
    return code;
}
