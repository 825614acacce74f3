/* main.c : specrt-eval. A verb is a file here or a folder; shared/ has what verbs have in common.
 *
 *     options, shared/models.c -> engine, sequences, policies -> shared/run.c (engine/backend/decoder.h)
 *     shared/prompts.c, shared/chat.c -> token ids --------------^
 *     decode.c: text     generate.c: JSON Lines     record.c: traces     replay/: policies over traces
 *     compare/: policies in turns, tables, a page   plan/: costs and acceptance, a recommendation
 */
#include "shared/eval.h"

int main(int argc, char **argv) {
    return eval_main(argc, argv);
}
