/* main.c : specrt-bundle, one verb a file. */
#include "verbs.h"

static const cli_verb verbs[] = {
    {"info", "what is inside: sections, tokenizer, head, ranks, provenance", info_main},
    {"verify", "check every checksum and content; optionally tokenizer and model", verify_main},
    {"merge", "the sections of several bundles in one", merge_main},
    {"extract", "the raw bytes of one section", extract_main},
    {"unpack", "store all sections raw, so that they are mapped and not decompressed", unpack_main},
    {"pack", "store all sections with zstd again", pack_main},
    {"export", "a token map for SGLang, EAGLE-3 or llama.cpp; a drafter cut to it", export_main},
    {"import", "a bundle from such a token map", import_main},
    {"map", "a token map in another format", map_main},
    {"drift", "how much of today's text the list still covers", drift_main},
    {"check", "whether engines load a drafter as it is meant", check_main},
};

static const cli_tool tool = {
    "specrt-bundle", "specrt-bundle info model.specb",
    "Looks into bundles (.specb), takes them apart and exchanges them with other engines.",
    "specrt-bundle VERB ... [options]", NULL};

int main(int argc, char **argv) {
    return sl_cli_dispatch(&tool, verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
