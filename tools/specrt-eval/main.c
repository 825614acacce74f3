/* main.c : specrt-eval, one verb a file.
 *
 *     options, models.c -> target, drafter, policies -> run.c (engine/decode.h)
 *     prompts.c, chat.c -> token ids ---------------------^
 *     decode.c: text     generate.c: JSON Lines     compare.c, figures.c: tables, compare_*.c
 *     plan.c, plan_*.c: costs and acceptance, a recommendation
 */
#include "eval.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct verb {
    const char *name, *what;
    verb_main *run;
} verbs[] = {
    {"decode", "write answers to prompts, with statistics", decode_main},
    {"generate", "let the target alone answer prompts: text to calibrate on", generate_main},
    {"compare", "policies side by side: accept length, coverage, time", compare_main},
    {"plan", "what is fastest on this machine, and whether it pays", plan_main},
    {"record", "cycles to a trace: hidden states, best tokens, trees", record_main},
    {"replay", "any number of policies over traces, without a model", replay_main},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

#define VERB_NAMES "decode, generate, compare, plan, record or replay"

/* Flags before any verb: the help and the version. */
static int run_without_verb(int argc, char **argv) {
    char summary[1024] = "Decodes with any policy on a real target and drafter, losslessly.\n\n"
                         "Verbs, each with a -h of its own:\n";
    for (int i = 0; i < N_VERBS; i++) {
        size_t n = strlen(summary);
        snprintf(summary + n, sizeof summary - n, "  %-9s %s%s", verbs[i].name, verbs[i].what,
                 i + 1 < N_VERBS ? "\n" : "");
    }
    const cli_tool tool = {"specrt-eval",
                           "specrt-eval compare --target target.gguf --draft draft.safetensors\n"
                           "      --policy full,microspec --prompts questions.jsonl",
                           summary, "specrt-eval VERB ... [options]", NULL};
    cli_common common;
    cli_list rest = {0};
    int code = cli_parse(&tool, argc, argv, &common, &rest);
    if (code < 0 && rest.n)
        code = cli_usage("unknown verb '%s'; expected " VERB_NAMES, rest.items[0]);
    cli_list_free(&rest);
    return code < 0 ? cli_usage("expected a verb: " VERB_NAMES) : code;
}

static int run(int argc, char **argv) {
    for (int i = 0; argc > 1 && i < N_VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 1, argv + 1);
    return run_without_verb(argc, argv);
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    specrt_error err;
    specrt_error_set(&err, SPECRT_STATUS_IO, "stdout: cannot write: %s", strerror(errno));
    return code == CLI_OK ? cli_fail(&err) : code;
}
