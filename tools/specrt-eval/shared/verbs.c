/* verbs.c : the program, but for its engines. */
#include "eval.h"

#include <unistd.h>
#include "base/child.h"

static const cli_verb verbs[] = {
    {"decode", "write answers to prompts, with accept length and times", decode_main},
    {"generate", "answer prompts with the target alone: text to calibrate on", generate_main},
    {"compare", "compare policies: accept length, coverage, time", compare_main},
    {"plan", "find the fastest policy and tree on this machine", plan_main},
    {"record", "record cycles in a trace: hidden states, best tokens, trees", record_main},
    {"replay", "estimate policies from traces, without a model", replay_main},
};

static const cli_tool tool = {
    .name = "specrt-eval",
    .example = "specrt-eval compare --target target.gguf --draft draft.safetensors\n"
               "      --policy full,microspec --prompts questions.jsonl",
    .summary = "Decodes with a target, a drafter and any policy, and measures. "
               "Output tokens are plain decoding's. With llama.cpp a token may differ where two "
               "logits nearly tie.",
    .usage = "specrt-eval VERB ... [options]"};

/* The engine that arguments name, as the options' parser would find it; NULL: none. */
static const char *engine_of(char **argv) {
    const char *found = NULL;
    for (; *argv && strcmp(*argv, "--") != 0; argv++)
        if (strncmp(*argv, "--engine=", 9) == 0)
            found = *argv + 9;
        else if (strcmp(*argv, "--engine") == 0 && argv[1])
            found = *++argv;
    return found;
}

/* specrt-llama of the same folder takes over where this program lacks its engine. Returns where it is not
 * there either, of which models_open() tells. */
static void change_program(char **argv) {
    const char *name = engine_of(argv);
    char path[4096];
    if (!name || strcmp(name, "llama") != 0) return;
    for (const eval_engine *e = eval_engines; e->name; e++)
        if (strcmp(e->name, name) == 0) return;
    if (sl_child_beside("specrt-llama", path, sizeof path)) execv(path, argv);
}

int eval_main(int argc, char **argv) {
    change_program(argv);
    return sl_cli_dispatch(&tool, verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
