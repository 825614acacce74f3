/* main.c : specrt-bundle, one verb a file. */
#include "verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct verb {
    const char *name, *what;
    verb_main *run;
} verbs[] = {
    {"info", "what is inside: sections, tokenizer, head, ranks, provenance", info_main},
    {"verify", "check every checksum and content; optionally tokenizer and model", verify_main},
    {"merge", "the sections of several bundles in one", merge_main},
    {"extract", "the raw bytes of one section", extract_main},
    {"unpack", "store all sections raw, so that they are mapped and not decompressed", unpack_main},
    {"pack", "store all sections with zstd again", pack_main},
    {"export", "a token map for SGLang, vLLM, EAGLE-3 or llama.cpp", export_main},
    {"import", "a bundle from such a token map", import_main},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

#define VERB_NAMES "info, verify, merge, extract, unpack, pack, export or import"

/* Flags before any verb: the help and the version. */
static int run_without_verb(int argc, char **argv) {
    char summary[1024] =
        "Looks into bundles (.specb), takes them apart and exchanges them with other "
        "engines.\n\nVerbs, each with a -h of its own:\n";
    for (int i = 0; i < N_VERBS; i++) {
        size_t n = strlen(summary);
        snprintf(summary + n, sizeof summary - n, "  %-9s %s%s", verbs[i].name, verbs[i].what,
                 i + 1 < N_VERBS ? "\n" : "");
    }
    const cli_tool tool = {"specrt-bundle", "specrt-bundle info model.specb", summary,
                           "specrt-bundle VERB ... [options]", NULL};
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

int verb_start(const cli_tool *tool, int argc, char **argv, cli_common *common, cli_list *rest,
               int least, int most, const char *what) {
    *rest = (cli_list){0};
    int code = cli_parse(tool, argc, argv, common, rest);
    if (code < 0 && (rest->n < least || rest->n > most))
        code =
            cli_usage("expected %s, found %d argument%s", what, rest->n, rest->n == 1 ? "" : "s");
    if (code >= 0) cli_list_free(rest);
    return code;
}

json_object *verb_provenance(const specrt_bundle *bundle) {
    size_t n;
    const char *text = (const char *)specrt_bundle_data(bundle, "prov", &n);
    json_tokener *tokener = text && n < INT_MAX ? json_tokener_new() : NULL;
    if (!tokener) return NULL;
    json_object *value = json_tokener_parse_ex(tokener, text, (int)n);
    json_tokener_free(tokener);
    if (json_object_is_type(value, json_type_object)) return value;
    json_object_put(value);
    return NULL;
}

const char *verb_tag(const specrt_bundle_section *section) {
    static char tags[4][9];
    static int turn;
    char *tag = tags[turn++ % 4];
    memcpy(tag, section->tag, 8);
    return tag;
}
