/* main.c : specrt-eval. A verb is a file here or a folder; shared/ has what verbs have in common.
 *
 *     options, shared/models.c -> target, drafter, policies -> shared/run.c (engine/infer/decode.h)
 *     shared/prompts.c, shared/chat.c -> token ids ------------^
 *     decode.c: text     generate.c: JSON Lines     record.c: traces     replay/: policies over traces
 *     compare/: policies in turns, tables, a page   plan/: costs and acceptance, a recommendation
 */
#include "shared/eval.h"

static const cli_verb verbs[] = {
    {"decode", "write answers to prompts, with accept length and times", decode_main},
    {"generate", "answer prompts with the target alone: text to calibrate on", generate_main},
    {"compare", "compare policies: accept length, coverage, time", compare_main},
    {"plan", "find the fastest policy and tree on this machine", plan_main},
    {"record", "record cycles in a trace: hidden states, best tokens, trees", record_main},
    {"replay", "estimate policies from traces, without a model", replay_main},
};

static const cli_tool tool = {"specrt-eval",
                              "specrt-eval compare --target target.gguf --draft draft.safetensors\n"
                              "      --policy full,microspec --prompts questions.jsonl",
                              "Decodes with a target, a drafter and any policy, and measures. "
                              "Output tokens are plain decoding's.",
                              "specrt-eval VERB ... [options]", NULL};

int main(int argc, char **argv) {
    return sl_cli_dispatch(&tool, verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
