/* main.c : one command over all tools. `prepare` is a verb of its own; every other verb is a tool. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

static const struct {
    const char *verb, *tool;
} tools[] = {
    {"calibrate", "vocabtrim-calibrate"},
    {"graph", "cograph-build"},
    {"clusters", "cluster-build"},
    {"sketch", "sketch-build"},
    {"index", "hnsw-build"},
    {"bundle", "specrt-bundle"},
    {"eval", "specrt-eval"},
    {"llama", "specrt-llama"},
};

/* Becomes the tool of a verb. Returns only where that fails. */
static int run_tool(int argc, char **argv) {
    (void)argc;
    size_t i = 0;
    while (strcmp(tools[i].verb, argv[0]) != 0) i++;
    char path[TOOL_PATH_BYTES];
    if (!tool_path(tools[i].tool, path)) return CLI_USAGE;
    argv[0] = path;
    execv(path, argv);
    sl_cli_warn("%s: cannot run: %s", path, strerror(errno));
    return CLI_IO;
}

static const cli_verb verbs[] = {
    {"prepare", "from a target, a drafter and text to a drafter that an engine loads",
     prepare_main},
    {"ask", "collect a served model's answers, for calibrate to count", ask_main},
    {"calibrate", "token ranks into a bundle (vocabtrim-calibrate)", run_tool},
    {"graph", "which tokens follow which (cograph-build)", run_tool},
    {"clusters", "clusters of the head and their routers (cluster-build)", run_tool},
    {"sketch", "a low-rank copy of the head (sketch-build)", run_tool},
    {"index", "a search index of the head (hnsw-build)", run_tool},
    {"bundle", "inspect, merge, export and check bundles (specrt-bundle)", run_tool},
    {"eval", "decode, record, compare, replay and plan (specrt-eval)", run_tool},
    {"llama", "decode in llama.cpp under any policy (specrt-llama)", run_tool},
};

static const cli_tool tool = {
    .name = "specrt",
    .example = "specrt prepare --target llama3/ --drafter eagle3/ --text chat.jsonl --for vllm "
               "--size 8192 -o out",
    .summary = "Vocabulary-pruned speculative decoding: one command over all tools.",
    .usage = "specrt VERB ... [options]"};

int main(int argc, char **argv) {
    return sl_cli_dispatch(&tool, verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
