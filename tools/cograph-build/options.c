/* options.c : the command line of cograph-build. */
#include "build.h"

#include <string.h>
#include "counts/input.h"

static int parse_table(cograph_options *o, int argc, char **argv) {
    const cli_option options[] = {
        sl_cli_heading("Input"),
        COUNTS_INPUT_TEXT(*o),
        COUNTS_INPUT_IDS(*o),
        sl_cli_string("breaks", "IDS|FILE", &o->breaks,
                      "with --tokenizer none: ids that separate texts, such as 0,128000-128255"),

        sl_cli_heading("Edges"),
        sl_cli_int("successors", "N", &o->rule.max_degree, 1, COUNTS_MAX_VOCAB,
                   "keep the N likeliest successors of each token (default 1024)"),
        sl_cli_int("successor-count", "N", &o->rule.min_count, 1, INT32_MAX,
                   "keep successors that followed their token at least N times (default 1)"),
        sl_cli_int("max-degree", "N", &o->rule.rule_degree, 1, COUNTS_MAX_VOCAB,
                   "EvoSpec's rule: mark the N likeliest successors (default 64)"),
        sl_cli_int("min-count", "N", &o->rule.rule_count, 1, INT32_MAX,
                   "EvoSpec's rule: that followed their token at least N times (default 5)"),
        sl_cli_real("tau", "P", &o->rule.rule_share, 0, 1,
                    "EvoSpec's rule: with a share of at least P (default 1e-4)"),

        sl_cli_heading("Scale"),
        sl_cli_int("memory", "MIB", &o->memory_mib, PAIRS_MIN_MEMORY >> 20, 1 << 24,
                   "memory for counts, before they are written to disk (default 1024)"),
        sl_cli_string("temp", "FOLDER", &o->temp,
                      "folder for these counts (default: that of the output)"),
        sl_cli_string(
            "shard", "I/N", &o->shard,
            "count batches I, I+N, ... (default with --counts-out: the scheduler's rank)"),
        sl_cli_string("counts-out", "FILE", &o->counts_out,
                      "write a count file of pairs; - is stdout"),
        sl_cli_strings("merge", "FILE...", &o->merge,
                       "add count files of pairs, without tokenizer or corpus; - is stdin"),
        {0}};
    const cli_tool tool = {
        "cograph-build",
        "cograph-build --tokenizer tokenizer.json --corpus chat.jsonl code/ -o model.specb",
        "Counts which tokens follow each token in a corpus and writes the successor graph into a\n"
        "bundle, for the sources successor and retrieve (EvoSpec).",
        "cograph-build --tokenizer T --corpus PATH... [options] -o BUNDLE", options};
    return sl_cli_parse(&tool, argc, argv, &o->common, NULL);
}

static int check_input(const cograph_options *o) {
    bool ids = o->tokenizer && strcmp(o->tokenizer, "none") == 0;
    const counts_input input = COUNTS_INPUT(*o);
    if ((o->n_vocab || o->breaks) && !ids)
        return sl_cli_usage("--n-vocab and --breaks: expected --tokenizer none with them");
    return sl_counts_input_check(&input);
}

static int check_output(const cograph_options *o) {
    if (!o->common.output && !o->counts_out && !o->common.json)
        return sl_cli_usage("expected -o FILE, --counts-out FILE or --json");
    return sl_cli_one_stdout(&o->common, (const char *const[]){o->common.output, o->counts_out}, 2);
}

int cograph_options_parse(cograph_options *o, int argc, char **argv) {
    *o = (cograph_options){.messages = "assistant",
                           .memory_mib = 1024,
                           .rule = {.max_degree = 1024,
                                    .min_count = 1,
                                    .rule_degree = 64,
                                    .rule_count = 5,
                                    .rule_share = 1e-4}};
    int code = parse_table(o, argc, argv);
    if (code < 0) code = check_input(o);
    if (code < 0) code = check_output(o);
    if (code >= 0) return code;
    bool counts_only = o->counts_out && !o->common.output && !o->common.json;
    return sl_shard_choose(o->shard, counts_only, o->corpus.n > 0, "graph", &o->part);
}

void cograph_options_free(cograph_options *o) {
    sl_cli_list_free(&o->corpus);
    sl_cli_list_free(&o->merge);
}
