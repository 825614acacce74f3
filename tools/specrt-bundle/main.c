/* main.c : specrt-bundle, one verb a file. */
#include "verbs.h"

static const cli_verb verbs[] = {
    {"info", "show sections, tokenizer, head, ranks and provenance", info_main},
    {"verify", "check all checksums and contents; optionally tokenizer and model", verify_main},
    {"merge", "join the sections of several bundles in one", merge_main},
    {"extract", "write the raw bytes of one section", extract_main},
    {"unpack", "store all sections raw: they are mapped, not decompressed", unpack_main},
    {"pack", "store all sections with zstd again", pack_main},
    {"export", "write a token map for SGLang, EAGLE-3 or llama.cpp, or a cut drafter", export_main},
    {"import", "write a bundle from such a token map", import_main},
    {"map", "write a token map in another format", map_main},
    {"drift", "compare coverage of today's text with that at calibration", drift_main},
    {"check", "say which engines load a drafter, and how", check_main},
};

static const cli_tool tool = {
    .name = "specrt-bundle",
    .example = "specrt-bundle info model.specb",
    .summary =
        "Shows, checks, splits and joins bundles (.specb), and converts them for other engines.",
    .usage = "specrt-bundle VERB ... [options]"};

int main(int argc, char **argv) {
    return sl_cli_dispatch(&tool, verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
