/* options.c : the command line of cograph-build. */
#include "build.h"

#include <inttypes.h>
#include <string.h>
#include "mpi_run.h"

static int parse_table(build_options *o, int argc, char **argv) {
    const cli_option options[] = {
        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Input"},
        {"tokenizer", 0, "T", CLI_STRING, (void *)&o->tokenizer, 0, 0,
         "GGUF, tokenizer.json, tiktoken ranks; none: the corpus holds token ids"},
        {"corpus", 0, "PATH...", CLI_STRINGS, &o->corpus, 0, 0,
         "files and folders: text, code, .jsonl, .json, also .gz .zst; .bin .npy ids; - is stdin"},
        {"messages", 0, "WHICH", CLI_STRING, (void *)&o->messages, 0, 0,
         "of conversations: assistant (default: what the target would write) or all"},
        {"field", 0, "NAME", CLI_STRING, (void *)&o->field, 0, 0,
         "take this field of each JSON record"},
        {"strict", 0, NULL, CLI_FLAG, &o->strict, 0, 0, "a bad record is an error, not skipped"},
        {"id-bytes", 0, "2|4", CLI_INT, &o->id_bytes, 0, 0, "width of the ids of .bin files"},
        {"n-vocab", 0, "N", CLI_INT, &o->n_vocab, 1, COUNTS_MAX_VOCAB,
         "vocabulary of --tokenizer none"},
        {"breaks", 0, "IDS|FILE", CLI_STRING, (void *)&o->breaks, 0, 0,
         "with --tokenizer none: ids that no pair spans, such as 0,128000-128255"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "What is kept"},
        {"successors", 0, "N", CLI_INT, &o->rule.max_degree, 1, COUNTS_MAX_VOCAB,
         "the N likeliest successors of each token (default 1024)"},
        {"successor-count", 0, "N", CLI_INT, &o->rule.min_count, 1, INT32_MAX,
         "that followed it at least N times (default 1)"},
        {"max-degree", 0, "N", CLI_INT, &o->rule.rule_degree, 1, COUNTS_MAX_VOCAB,
         "EvoSpec's rule, marked in each row: the N likeliest (default 64)"},
        {"min-count", 0, "N", CLI_INT, &o->rule.rule_count, 1, INT32_MAX,
         "that followed it at least N times (default 5)"},
        {"tau", 0, "P", CLI_REAL, &o->rule.rule_share, 0, 1,
         "and made up share P of what followed it (default 1e-4)"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Scale"},
        {"memory", 0, "MIB", CLI_INT, &o->memory_mib, PAIRS_MIN_MEMORY >> 20, 1 << 24,
         "of counts, before they go to disk (default 1024)"},
        {"temp", 0, "FOLDER", CLI_STRING, (void *)&o->temp, 0, 0,
         "where they go (default: beside the output)"},
        {"shard", 0, "I/N", CLI_STRING, (void *)&o->shard, 0, 0,
         "count batches I, I+N, ... (default with --counts-out: the scheduler's rank)"},
        {"counts-out", 0, "FILE", CLI_STRING, (void *)&o->counts_out, 0, 0,
         "write a count file of pairs; - is stdout"},
        {"merge", 0, "FILE...", CLI_STRINGS, &o->merge, 0, 0,
         "add count files of pairs, needs neither tokenizer nor corpus; - is stdin"},
        {0}};
    const cli_tool tool = {
        "cograph-build",
        "cograph-build --tokenizer tokenizer.json --corpus chat.jsonl code/ -o model.specb",
        "Counts which tokens follow each token in a corpus and writes the successor graph into a\n"
        "bundle, for the sources successor and retrieve (EvoSpec).",
        "cograph-build --tokenizer T --corpus PATH... [options] -o BUNDLE", options};
    return cli_parse(&tool, argc, argv, &o->common, NULL);
}

static int check_input(const build_options *o) {
    bool ids = o->tokenizer && strcmp(o->tokenizer, "none") == 0, both[2] = {false, false};
    if (strcmp(o->messages, "assistant") != 0 && strcmp(o->messages, "all") != 0)
        return cli_usage("--messages: expected assistant or all, found '%s'", o->messages);
    if (o->id_bytes != 0 && o->id_bytes != 2 && o->id_bytes != 4)
        return cli_usage("--id-bytes: expected 2 or 4, found %" PRId64, o->id_bytes);
    if (!o->corpus.n && !o->merge.n) return cli_usage("give --corpus, or --merge with count files");
    if (o->corpus.n && !o->tokenizer)
        return cli_usage("--corpus needs --tokenizer (none for files of token ids)");
    if (ids && o->corpus.n && !o->n_vocab) return cli_usage("--tokenizer none needs --n-vocab");
    if ((o->n_vocab || o->breaks) && !ids)
        return cli_usage("--n-vocab and --breaks go with --tokenizer none");
    if (o->field && strpbrk(o->field, "\t\n"))
        return cli_usage("--field: a name without tabs and line ends is expected");
    for (int i = 0; i < o->corpus.n; i++) both[0] |= strcmp(o->corpus.items[i], "-") == 0;
    for (int i = 0; i < o->merge.n; i++) both[1] |= strcmp(o->merge.items[i], "-") == 0;
    if (both[0] && both[1]) return cli_usage("--corpus - and --merge - cannot both read stdin");
    return -1;
}

static bool is_stdout(const char *path) {
    return path && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0);
}

static int check_output(const build_options *o) {
    if (!o->common.output && !o->counts_out && !o->common.json)
        return cli_usage("nothing to write; give -o, --counts-out or --json");
    if (is_stdout(o->common.output) + is_stdout(o->counts_out) + o->common.json > 1)
        return cli_usage("more than one output goes to stdout");
    return cli_distinct((const char *const[]){o->common.output, o->counts_out}, 2);
}

static int choose_shard(build_options *o) {
    bool counts_only = o->counts_out && !o->common.output && !o->common.json;
    int code = -1;
    o->part = (struct shard){0, 1};
    if (o->shard)
        code = shard_parse(o->shard, &o->part);
    else if (mpi_n_ranks() == 1 && counts_only && o->corpus.n)
        code = shard_from_scheduler(&o->part);
    if (code < 0 && o->shard && o->part.n > 1 && !counts_only)
        cli_warn("the graph will hold shard %s of the corpus only; --counts-out and --merge put "
                 "shards together",
                 o->shard);
    o->part.index += o->part.n * mpi_rank();
    o->part.n *= mpi_n_ranks();
    return code;
}

int options_parse(build_options *o, int argc, char **argv) {
    *o = (build_options){.messages = "assistant",
                         .memory_mib = 1024,
                         .rule = {.max_degree = 1024,
                                  .min_count = 1,
                                  .rule_degree = 64,
                                  .rule_count = 5,
                                  .rule_share = 1e-4}};
    int code = parse_table(o, argc, argv);
    if (code < 0) code = check_input(o);
    if (code < 0) code = check_output(o);
    return code < 0 ? choose_shard(o) : code;
}

void options_free(build_options *o) {
    cli_list_free(&o->corpus);
    cli_list_free(&o->merge);
}
