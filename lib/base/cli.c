/* cli.c : see cli.h. Options are tables; this file walks them for parsing and for the help. */
#include "base/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"

/* One process runs one tool; these serve the message functions. */
static const char *tool_name = "specrt", *other_name; /* other_name: whatever tools are called */
static bool tool_quiet;

static void say(const char *prefix, const char *format, va_list args) {
    char *line = NULL;
    bool made = vasprintf(&line, format, args) >= 0;
    if (made) sl_text_clean(line);
    fprintf(stderr, "%s: %s%s\n", tool_name, prefix, made ? line : "out of memory");
    if (made) free(line);
}

static void say_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

void sl_cli_info(const char *format, ...) {
    if (tool_quiet) return;
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

void sl_cli_warn(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("warning: ", format, args);
    va_end(args);
}

int sl_cli_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
    fprintf(stderr, "%s: -h shows the options\n", tool_name);
    return CLI_USAGE;
}

static int check_distinct(const char *const *paths, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (paths[i] && paths[j] && strcmp(paths[i], paths[j]) == 0 &&
                strcmp(paths[i], "-") != 0 && strncmp(paths[i], "/dev/", 5) != 0)
                return sl_cli_usage("%s: given for two outputs; expected a file for each",
                                    paths[i]);
    return -1;
}

int sl_cli_one_stdout(const cli_common *common, const char *const *paths, int n) {
    int n_stdout = common->json;
    for (int i = 0; i < n; i++) n_stdout += sl_out_is_stdout(paths[i]);
    if (n_stdout > 1)
        return sl_cli_usage(
            "expected at most one output on stdout, found more; name a file for each other one");
    return check_distinct(paths, n);
}

specrt_status sl_cli_print_json(char *text, specrt_error *err) {
    if (!text) return sl_error_no_memory(err, NULL);
    puts(text);
    free(text);
    return sl_out_flush_stdout(err);
}

FILE *sl_cli_table(const char *const *paths, int n) {
    for (int i = 0; i < n; i++)
        if (sl_out_is_stdout(paths[i])) return stderr;
    return stdout;
}

int sl_cli_fail(const specrt_error *err) {
    say_line("%s", err->msg);
    switch (err->status) {
    case SPECRT_STATUS_IO:
    case SPECRT_STATUS_NO_MEMORY: return CLI_IO;
    case SPECRT_STATUS_BAD_ARG: return CLI_USAGE;
    default: return CLI_INVALID;
    }
}

void sl_cli_list_free(cli_list *list) {
    free(list->items);
    *list = (cli_list){0};
}

static int list_add(cli_list *list, const char *item) {
    const char **at = (const char **)sl_more(&list->items, (size_t)list->n, sizeof *at);
    if (!at) return sl_cli_usage("out of memory"), CLI_IO;
    *at = item;
    list->n++;
    return -1;
}

/* ---- tables ---------------------------------------------------------------------------------- */

cli_option sl_cli_heading(const char *text) {
    return (cli_option){.help = text};
}

cli_option sl_cli_flag(const char *name, bool *target, const char *help) {
    return (cli_option){.name = name, .kind = CLI_FLAG, .target = target, .help = help};
}

cli_option sl_cli_string(const char *name, const char *value, const char **target,
                         const char *help) {
    return (cli_option){
        .name = name, .value = value, .kind = CLI_STRING, .target = (void *)target, .help = help};
}

cli_option sl_cli_strings(const char *name, const char *value, cli_list *target, const char *help) {
    return (cli_option){
        .name = name, .value = value, .kind = CLI_STRINGS, .target = target, .help = help};
}

static cli_option number(cli_kind kind, const char *name, const char *value, void *target,
                         double min, double max, const char *help) {
    return (cli_option){.name = name,
                        .value = value,
                        .kind = kind,
                        .target = target,
                        .min = min,
                        .max = max,
                        .help = help};
}

cli_option sl_cli_int(const char *name, const char *value, int64_t *target, double min, double max,
                      const char *help) {
    return number(CLI_INT, name, value, target, min, max, help);
}

cli_option sl_cli_real(const char *name, const char *value, double *target, double min, double max,
                       const char *help) {
    return number(CLI_REAL, name, value, target, min, max, help);
}

cli_option sl_cli_letter(char letter, cli_option option) {
    option.letter = letter;
    return option;
}

cli_option sl_cli_also(const char *spellings, cli_option option) {
    option.also = spellings;
    return option;
}

/* ---- the help -------------------------------------------------------------------------------- */

enum { HELP_INDENT = 31, HELP_COLUMNS = 100 };

/* From column `indent` on, where the cursor is; broken at newlines, and between words where a line
 * is full. */
static void help_text(const char *text, int indent) {
    int room = HELP_COLUMNS - indent;
    for (size_t n = strcspn(text, "\n"); *text; n = strcspn(text, "\n")) {
        size_t end = n;
        while (end > 0 && (end > (size_t)room || (end < n && text[end] != ' '))) end--;
        if (end == 0) end = n; /* one long word */
        printf("%.*s\n", (int)end, text);
        text += end + (text[end] != '\0');
        if (*text && *text != '\n') printf("%*s", indent, "");
    }
}

static void help_option(const cli_option *o) {
    char left[64];
    if (!o->name) {
        printf("\n%s\n", o->help);
        return;
    }
    snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->value ? " " : "",
             o->value ? o->value : "");
    printf("  %-28s ", left);
    if (strlen(left) > HELP_INDENT - 3) printf("\n%*s", HELP_INDENT, "");
    help_text(o->help, HELP_INDENT);
    if (o->also) printf("%*salso %s\n", HELP_INDENT, "", o->also);
}

static bool option_ends(const cli_option *o) {
    return !o->name && !o->help;
}

static const cli_option *find(const cli_option *table, const char *name, size_t n, char letter);

/* A common option, but for its letter or all of it where the tool has that for itself. */
static void help_common(const cli_tool *tool, const cli_option *o) {
    cli_option left = *o;
    if (o->name && find(tool->options, o->name, strlen(o->name), '\0')) return;
    if (o->letter && find(tool->options, NULL, 0, o->letter)) left.letter = '\0';
    help_option(&left);
}

static void help(const cli_tool *tool, const cli_option *common) {
    printf("Example:\n  %s\n\n", tool->example);
    help_text(tool->summary, 0);
    printf("\nUsage: %s\n", tool->usage);
    for (const cli_option *o = tool->options; o && !option_ends(o); o++) help_option(o);
    for (const cli_option *o = common; !option_ends(o); o++) help_common(tool, o);
    printf(
        "\nExit codes: 0 ok, 1 I/O or memory, 2 usage, 3 invalid input, 4 below a quality gate,\n"
        "130 interrupted.\n");
}

/* ---- parsing --------------------------------------------------------------------------------- */

static const cli_option *find(const cli_option *table, const char *name, size_t n, char letter) {
    for (const cli_option *o = table; o && !option_ends(o); o++) {
        if (!o->name) continue;
        if (letter ? o->letter == letter : strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

/* Whether a word of "-md --draft" is the argument. */
static bool has_spelling(const cli_option *o, const char *arg, size_t n) {
    for (const char *word = o->also; word; word = strchr(word, ' ')) {
        word += *word == ' ';
        if (strncmp(word, arg, n) == 0 && (word[n] == ' ' || word[n] == '\0')) return true;
    }
    return false;
}

static const cli_option *find_spelling(const cli_option *table, const char *arg, size_t n) {
    for (const cli_option *o = table; o && !option_ends(o); o++)
        if (has_spelling(o, arg, n)) return o;
    return NULL;
}

static bool out_of_bounds(const cli_option *o, double x) {
    return (o->min != 0 || o->max != 0) && !(x >= o->min && x <= o->max);
}

/* Decimal digits; a k multiplies by 1,024, as 32k tokens are 32,768 in the literature. */
static bool read_whole(const char *value, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(value, &end, 10);
    if (end == value || errno) return false;
    if (*end == 'k' && __builtin_mul_overflow(*out, 1024, out)) return false;
    return *end == '\0' || strcmp(end, "k") == 0;
}

static int store_number(const cli_option *o, const char *value) {
    char *end;
    if (o->kind == CLI_INT) {
        int64_t x;
        if (!read_whole(value, &x) || out_of_bounds(o, (double)x)) goto bad;
        *(int64_t *)o->target = x;
    } else {
        double x = strtod(value, &end);
        if (end == value || *end || !isfinite(x) || out_of_bounds(o, x)) goto bad;
        *(double *)o->target = x;
    }
    return -1;
bad:
    if (o->min == 0 && o->max == 0)
        return sl_cli_usage("--%s: expected %s, found '%s'", o->name,
                            o->kind == CLI_INT ? "a whole number" : "a number", value);
    return sl_cli_usage("--%s: expected %s from %.15g to %.15g, found '%s'", o->name,
                        o->kind == CLI_INT ? "a whole number" : "a number", o->min, o->max, value);
}

/* T is a tokenizer's. */
static bool names_files(const char *value) {
    static const char *const words[] = {"FILE", "DIR", "FOLDER", "PATH"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(value, words[i])) return true;
    return strcmp(value, "T") == 0;
}

/* A second file or folder would hide the first; other values may override a script's. */
static int store_string(const cli_option *o, const char *value) {
    const char **target = (const char **)o->target;
    if (*target && names_files(o->value))
        return sl_cli_usage("--%s: expected one %s, found '%s' and '%s'", o->name, o->value,
                            *target, value);
    *target = value;
    return -1;
}

static int store(const cli_option *o, const char *value) {
    bool is_text = o->kind == CLI_STRING || o->kind == CLI_STRINGS;
    if (is_text && !*value) return sl_cli_usage("--%s: expected %s, found ''", o->name, o->value);
    switch (o->kind) {
    case CLI_FLAG: *(bool *)o->target = true; return -1;
    case CLI_STRING: return store_string(o, value);
    case CLI_STRINGS: return list_add((cli_list *)o->target, value);
    case CLI_INT:
    case CLI_REAL: return store_number(o, value);
    }
    return -1;
}

/* One argument that starts with '-': "--name", "--name=V", "--name V", "-x", "-x V", "-xV". */
static int parse_option(const cli_option *const tables[2], char **argv, int *i) {
    const char *arg = argv[*i], *value = NULL;
    bool is_long = arg[1] == '-';
    const char *name = arg + 2, *equals = is_long ? strchr(name, '=') : NULL;
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *o = find_spelling(tables[0], arg, (size_t)(name + n - arg));
    bool is_letter = !o && !is_long;
    for (int t = 0; t < 2 && !o; t++) o = find(tables[t], name, n, is_long ? '\0' : arg[1]);
    if (!o) return sl_cli_usage("unknown option '%s'", arg);
    if (equals)
        value = equals + 1;
    else if (is_letter && arg[2])
        value = arg + 2;
    if (o->kind == CLI_FLAG)
        return value ? sl_cli_usage("--%s: expected no value, found '%s'", o->name, value)
                     : store(o, NULL);
    if (!value) value = argv[*i + 1] ? argv[++*i] : NULL;
    if (!value) return sl_cli_usage("--%s: expected %s", o->name, o->value);
    int code = store(o, value);
    /* A list takes every word up to the next option: --corpus a b c. */
    while (code < 0 && o->kind == CLI_STRINGS && argv[*i + 1] &&
           (argv[*i + 1][0] != '-' || argv[*i + 1][1] == '\0'))
        code = store(o, argv[++*i]);
    return code;
}

/* Where a tool is not to go on, it is not to free anything either. */
static void drop_lists(const cli_tool *tool, cli_list *rest) {
    for (const cli_option *o = tool->options; o && !option_ends(o); o++)
        if (o->kind == CLI_STRINGS) sl_cli_list_free((cli_list *)o->target);
    if (rest) sl_cli_list_free(rest);
}

int sl_cli_parse(const cli_tool *tool, int argc, char **argv, cli_common *common, cli_list *rest) {
    bool progress = false, no_progress = false, want_help = false, want_version = false;
    *common = (cli_common){.seed = 1};
    const cli_option common_options[] = {
        sl_cli_heading("Common options (in any whole number, 32k is 32,768)"),
        sl_cli_letter('o', sl_cli_string("output", "FILE", &common->output, "write FILE")),
        sl_cli_letter('f', sl_cli_flag("force", &common->force, "replace an existing file")),
        sl_cli_int("threads", "N", &common->threads, 0, 1024, "threads; 0 (default): all cores"),
        sl_cli_int("seed", "N", &common->seed, 0, 9e15, "random seed (default 1)"),
        sl_cli_flag("json", &common->json, "print one JSON object on stdout"),
        sl_cli_letter('q', sl_cli_flag("quiet", &common->quiet, "print errors and warnings only")),
        sl_cli_letter('v', sl_cli_flag("verbose", &common->verbose, "print more detail")),
        sl_cli_flag("progress", &progress, "show progress (default: on a terminal)"),
        sl_cli_flag("no-progress", &no_progress, "never show progress"),
        sl_cli_letter('h', sl_cli_flag("help", &want_help, "print this text")),
        sl_cli_flag("version", &want_version, "print the version"),
        {0}};
    const cli_option *tables[2] = {tool->options, common_options};
    tool_name = other_name ? other_name : tool->name;
    sl_io_guard_streams();
    sl_io_cleanup_on_signals();
    int code = -1;
    bool only_names = false; /* after "--" */
    for (int i = 1; i < argc && code < 0 && !want_help; i++) {
        if (!only_names && strcmp(argv[i], "--") == 0)
            only_names = true;
        else if (!only_names && argv[i][0] == '-' && argv[i][1])
            code = parse_option(tables, argv, &i);
        else if (rest)
            code = list_add(rest, argv[i]);
        else
            code = sl_cli_usage("unexpected argument '%s'", argv[i]);
    }
    if (want_help || want_version) {
        drop_lists(tool, rest);
        if (want_help)
            help(tool, common_options);
        else
            printf("%s %s\n", tool->name, SPECRT_VERSION_STRING);
        return fflush(stdout) == 0 ? CLI_OK : CLI_IO;
    }
    if (code >= 0) return drop_lists(tool, rest), code;
    tool_quiet = common->quiet;
    common->progress = no_progress ? 0 : progress ? 1 : common->quiet ? 0 : -1;
    if (common->threads == 0) common->threads = sl_parallel_cores();
    return -1;
}

void sl_cli_rename(const char *name) {
    other_name = name;
}

/* ---- verbs ----------------------------------------------------------------------------------- */

enum { MAX_SUMMARY = 2048, MAX_NAMES = 256 };

/* "one, two or three". */
static void name_verbs(const cli_verb *verbs, int n, char out[MAX_NAMES]) {
    size_t used = 0;
    for (int i = 0; i < n && used < MAX_NAMES; i++)
        used += (size_t)snprintf(out + used, MAX_NAMES - used, "%s%s",
                                 i == 0       ? ""
                                 : i == n - 1 ? " or "
                                              : ", ",
                                 verbs[i].name);
}

static void list_verbs(const cli_tool *tool, const cli_verb *verbs, int n, char out[MAX_SUMMARY]) {
    size_t used =
        (size_t)snprintf(out, MAX_SUMMARY, "%s\n\nVerbs, each with its own -h:", tool->summary);
    for (int i = 0; i < n && used < MAX_SUMMARY; i++)
        used += (size_t)snprintf(out + used, MAX_SUMMARY - used, "\n  %-9s %s", verbs[i].name,
                                 verbs[i].what);
}

/* Flags before any verb: the help and the version. */
static int run_without_verb(const cli_tool *tool, const cli_verb *verbs, int n, int argc,
                            char **argv) {
    char summary[MAX_SUMMARY], names[MAX_NAMES];
    cli_tool with_verbs = *tool;
    cli_common common;
    cli_list rest = {0};
    list_verbs(tool, verbs, n, summary);
    name_verbs(verbs, n, names);
    with_verbs.summary = summary;
    tool_name = tool->name;
    const char *verb = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    int code = verb ? -1 : sl_cli_parse(&with_verbs, argc, argv, &common, &rest);
    if (code < 0 && rest.n) verb = rest.items[0];
    if (verb) code = sl_cli_usage("unknown verb '%s'; expected %s", verb, names);
    sl_cli_list_free(&rest);
    return code < 0 ? sl_cli_usage("expected a verb: %s", names) : code;
}

int sl_cli_dispatch(const cli_tool *tool, const cli_verb *verbs, int n, int argc, char **argv) {
    specrt_error err;
    int i = 0;
    while (argc > 1 && i < n && strcmp(argv[1], verbs[i].name) != 0) i++;
    int code = argc > 1 && i < n ? verbs[i].run(argc - 1, argv + 1)
                                 : run_without_verb(tool, verbs, n, argc, argv);
    return sl_out_flush_stdout(&err) && code == CLI_OK ? sl_cli_fail(&err) : code;
}
