/* options.c : the command line of specrt-llama. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

typedef enum option_kind { FLAG, STRING, INT, REAL, POLICY, PROMPT } option_kind;

typedef struct option {
    const char *names; /* "-m --model", llama.cpp's where it has one */
    const char *value; /* NULL: a flag */
    option_kind kind;
    void *target; /* bool*, const char**, int*, double*, options* by kind */
    double min, max;
    source_kind source; /* of prompts */
    const char *help;
} option;

enum { MAX_OPTIONS = 40 };

static int usage(const char *what, const char *found) {
    fprintf(stderr, "specrt-llama: %s%s (-h shows the options)\n", what, found);
    return EXIT_USAGE;
}

/* fill() : the table. @return how many */
static int fill(options *o, option *t) {
    const option rows[] = {
        {"-m --model", "FILE", STRING, &o->target, 0, 0, 0, "the target, a GGUF"},
        {"-md --model-draft", "FILE", STRING, &o->draft, 0, 0, 0,
         "the drafter, a GGUF of the same vocabulary"},
        {"--bundle", "FILE", STRING, &o->bundle, 0, 0, 0, "what policies need beyond the drafter"},
        {"--policy", "SPEC", POLICY, o, 0, 0, 0,
         "what may be drafted: full, microspec (the default), static:N+window...; with --bench any "
         "number of them"},
        {"-p --prompt", "TEXT", PROMPT, o, 0, 0, SOURCE_TEXT, "a prompt; repeats"},
        {"-f --file", "FILE", PROMPT, o, 0, 0, SOURCE_FILE, "a prompt from a file; repeats"},
        {"--lines", "FILE", PROMPT, o, 0, 0, SOURCE_LINES, "a prompt a line, \\n for line feeds"},
        {"-cnv --conversation", NULL, FLAG, &o->conversation, 0, 0, 0,
         "prompts are a user's messages, in the target's chat template"},
        {"-sys --system-prompt", "TEXT", STRING, &o->system, 0, 0, 0, "with -cnv"},
        {"-n --predict --n-predict", "N", INT, &o->n_predict, -1, 1e9, 0,
         "tokens of an answer, 128; -1: until it ends"},
        {"-c --ctx-size", "N", INT, &o->n_context, 0, 1e9, 0,
         "positions; 0: the target's, at most 4096"},
        {"-t --threads", "N", INT, &o->n_threads, 0, 512, 0, "of llama.cpp; 0: its default"},
        {"-ngl --gpu-layers --n-gpu-layers", "N", INT, &o->n_gpu_layers, -1, 1e6, 0,
         "of the target on a GPU"},
        {"-ngld --gpu-layers-draft --n-gpu-layers-draft", "N", INT, &o->n_gpu_layers_draft, -1, 1e6,
         0, "of the drafter: all of them or 0"},
        {"--num-steps --draft-max --draft", "N", INT, &o->num_steps, 1, SPECRT_TREE_MAX_STEPS, 0,
         "passes of the drafter in a cycle, 4"},
        {"--topk", "N", INT, &o->topk, 1, SPECRT_TREE_MAX_TOPK, 0,
         "branches of a draft tree; 1, the default, is a chain"},
        {"--num-draft-tokens", "N", INT, &o->num_draft_tokens, 0, SPECRT_TREE_MAX_NODES, 0,
         "nodes to verify, root included; 0: a whole chain, of a tree 32"},
        {"--temp --temperature", "T", REAL, &o->temperature, 0, 100, 0, "0, the default: greedy"},
        {"--top-k", "N", INT, &o->top_k, 0, 1e9, 0, "sample from the N best; 0: off"},
        {"--top-p", "P", REAL, &o->top_p, 0, 1, 0, "from the best of mass P; 0: off"},
        {"--min-p", "P", REAL, &o->min_p, 0, 0.999, 0, "relative to the best; 0: off"},
        {"-s --seed", "N", INT, &o->seed, 0, 2e9, 0, "of sampling"},
        {"--bench", NULL, FLAG, &o->bench, 0, 0, 0,
         "plain decoding, drafts by llama.cpp's whole head, `full` and the policies in turns: "
         "speed, "
         "and whether tokens are plain decoding's"},
        {"--rounds", "N", INT, &o->rounds, 1, 1000, 0, "of --bench, the best counts; 5"},
        {"--json", NULL, FLAG, &o->json, 0, 0, 0, "one JSON object in place of text"},
        {"-q --quiet", NULL, FLAG, &o->quiet, 0, 0, 0, "no news on stderr"},
        {"-v --verbose", NULL, FLAG, &o->verbose, 0, 0, 0, "llama.cpp's log, too"},
    };
    memcpy(t, rows, sizeof rows);
    return (int)(sizeof rows / sizeof *rows);
}

static int help(const option *table, int n) {
    printf("example: specrt-llama -m target.gguf -md draft.gguf -p \"The patient has\" -n 64\n\n"
           "Answers prompts with llama.cpp, drafting with few rows of the drafter's head. The\n"
           "output is the target's own.\n\n");
    for (int i = 0; i < n; i++)
        printf("  %s%s%s\n        %s\n", table[i].names, table[i].value ? " " : "",
               table[i].value ? table[i].value : "", table[i].help);
    return 0;
}

/* Whether a name is one of "-m --model". */
static bool is_named(const char *names, const char *name) {
    size_t n = strlen(name);
    for (const char *at = names; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, n) == 0 && (at[n] == ' ' || at[n] == '\0')) return true;
    }
    return false;
}

static int set_number(const option *row, const char *value) {
    char *end, what[160];
    double x = strtod(value, &end);
    bool whole = row->kind != INT || x == (double)(long long)x;
    if (end != value && *end == '\0' && x >= row->min && x <= row->max && whole) {
        if (row->kind == INT)
            *(int *)row->target = (int)x;
        else
            *(double *)row->target = x;
        return -1;
    }
    snprintf(what, sizeof what, "%s: expected a number from %g to %g, found ", row->names, row->min,
             row->max);
    return usage(what, value);
}

static int add_source(options *o, source_kind kind, const char *value) {
    source *more = (source *)realloc(o->sources, (size_t)(o->n_sources + 1) * sizeof *more);
    if (!more) return EXIT_IO;
    o->sources = more;
    o->sources[o->n_sources++] = (source){kind, value};
    return -1;
}

static int add_policy(options *o, const char *value) {
    specrt_error err;
    if (o->n_policies == MAX_POLICIES) return usage("--policy: too many: ", value);
    if (specrt_policy_check(value, &err) != SPECRT_STATUS_OK) return usage(err.msg, "");
    o->policies[o->n_policies++] = value;
    return -1;
}

static int set(const option *row, const char *value) {
    switch (row->kind) {
    case FLAG: *(bool *)row->target = true; return -1;
    case STRING: *(const char **)row->target = value; return -1;
    case POLICY: return add_policy((options *)row->target, value);
    case PROMPT: return add_source((options *)row->target, row->source, value);
    default: return set_number(row, value);
    }
}

/* What one option alone does not tell. */
static int check(options *o) {
    if (!o->target) return usage("expected -m FILE, the target", "");
    if (!o->draft) return usage("expected -md FILE, the drafter", "");
    if (o->n_sources == 0) return usage("expected a prompt: -p TEXT, -f FILE or --lines FILE", "");
    if (o->n_policies > 1 && !o->bench) return usage("--policy: expected one without --bench", "");
    if (o->system && !o->conversation) return usage("-sys: expected -cnv with it", "");
    if (o->bench && o->temperature > 0)
        return usage("--bench compares greedy decoding; expected no --temp", "");
    if (o->num_draft_tokens == 0) o->num_draft_tokens = o->topk == 1 ? o->num_steps + 1 : 32;
    return -1;
}

int options_parse(int argc, char **argv, options *o) {
    option table[MAX_OPTIONS];
    *o = (options){.n_predict = 128,
                   .num_steps = 4,
                   .topk = 1,
                   .rounds = 5,
                   .n_gpu_layers = -1,
                   .n_gpu_layers_draft = -1};
    int n = fill(o, table);
    for (int i = 1; i < argc; i++) {
        int row = 0, code;
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return help(table, n);
        while (row < n && !is_named(table[row].names, argv[i])) row++;
        if (row == n) return usage("unknown option ", argv[i]);
        if (table[row].value && i + 1 == argc) return usage("expected a value after ", argv[i]);
        code = set(&table[row], table[row].value ? argv[++i] : NULL);
        if (code >= 0) return code;
    }
    return check(o);
}

void options_free(options *o) {
    free(o->sources);
    o->sources = NULL;
}
