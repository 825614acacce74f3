/* cli.h : flags, help, messages and exit codes, the same in every tool. */
#ifndef BASE_CLI_H
#define BASE_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "specrt.h"

enum { /* exit codes (design section 8) */
       CLI_OK = 0,
       CLI_IO = 1, /* I/O or memory */
       CLI_USAGE = 2,
       CLI_INVALID = 3, /* invalid input */
       CLI_BELOW = 4,   /* built, but under a --min-... gate */
       CLI_INTERRUPTED = 130
};

/* A growable list of borrowed strings (flags that repeat, positional arguments). */
typedef struct cli_list {
    const char **items;
    int n;
} cli_list;
void sl_cli_list_free(cli_list *list);

typedef enum cli_kind { CLI_FLAG, CLI_STRING, CLI_STRINGS, CLI_INT, CLI_REAL } cli_kind;

/* One flag. `target` is bool*, const char**, cli_list*, int64_t* (32k is 32,768) or double* by kind; its
 * value before parsing is the default. A CLI_STRING of a FILE, DIR, FOLDER, PATH or T has none (NULL), and is
 * given once at most. A value may be given as "--name V" or "--name=V". */
typedef struct cli_option {
    const char *name;  /* without dashes: "holdout" */
    char letter;       /* short form, 0: none */
    const char *also;  /* other spellings as they are typed, "-md --draft"; NULL: none */
    const char *value; /* "FILE" in the help; NULL for a flag */
    cli_kind kind;
    void *target;
    double min, max;  /* inclusive bounds of numbers; both 0: none */
    const char *help; /* broken into lines when printed; a name of NULL makes it a heading */
} cli_option;

/* Rows of a table, by what the option takes; a heading stands above those that follow. */
cli_option sl_cli_heading(const char *text);
cli_option sl_cli_flag(const char *name, bool *target, const char *help);
cli_option sl_cli_string(const char *name, const char *value, const char **target,
                         const char *help);
cli_option sl_cli_strings(const char *name, const char *value, cli_list *target, const char *help);
cli_option sl_cli_int(const char *name, const char *value, int64_t *target, double min, double max,
                      const char *help);
cli_option sl_cli_real(const char *name, const char *value, double *target, double min, double max,
                       const char *help);
cli_option sl_cli_letter(char letter, cli_option option);         /* the same, with a short form */
cli_option sl_cli_also(const char *spellings, cli_option option); /* the same, with other names */

/* What every tool takes. */
typedef struct cli_common {
    const char *output; /* -o; NULL: none */
    bool force;         /* -f */
    int64_t threads;    /* --threads; resolved: never 0 after sl_cli_parse */
    int64_t seed;
    bool json, quiet, verbose;
    int progress; /* -1: on a terminal only; 0 never; 1 always */
} cli_common;

typedef struct cli_tool {
    const char *name;    /* "vocabtrim-calibrate" */
    const char *example; /* one command line, first in the help */
    const char *summary; /* what it reads and writes; long lines are broken when printed */
    const char *usage;   /* "vocabtrim-calibrate --tokenizer T --corpus PATH... -o FILE" */
    /* the tool's own, ended by an all-zero entry; its names and letters go before the common ones */
    const cli_option *options;
} cli_tool;

/* sl_cli_parse() : parse argv; handles -h and --version itself, installs the interrupt handler.
 *   rest : positional arguments; a tool that takes none passes NULL and they are a usage error
 * @return -1 to go on, else the exit code to return from main, and every list is empty. */
int sl_cli_parse(const cli_tool *tool, int argc, char **argv, cli_common *common, cli_list *rest);

/* sl_cli_rename() : messages of tools that are parsed later begin with this name; static. */
void sl_cli_rename(const char *name);

/* One verb of a tool: it gets its own argv, its name first, and returns the exit code. */
typedef int cli_verb_main(int argc, char **argv);
typedef struct cli_verb {
    const char *name, *what;
    cli_verb_main *run;
} cli_verb;

/* sl_cli_dispatch() : run the verb that argv[1] names; help and version come before any verb. What it printed
 * has reached stdout when it returns 0.
 *   tool  : of the help, which lists the verbs [n] below its summary; without options
 * @return the exit code */
int sl_cli_dispatch(const cli_tool *tool, const cli_verb *verbs, int n, int argc, char **argv);

/* Messages on stderr, each one line behind "tool: ", shown as sl_text_clean() does. sl_cli_info is silent
 * under -q. */
void sl_cli_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sl_cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sl_cli_one_stdout() : no two outputs may be one file, and stdout takes one of them or the object of --json.
 *   paths : [n], NULL: not given; "-" and devices may repeat
 * @return -1, or CLI_USAGE after saying which */
int sl_cli_one_stdout(const cli_common *common, const char *const *paths, int n);

/* sl_cli_print_json() : what --json prints: the text as a line of stdout, which it has reached.
 *   text : owned, released here; NULL: out of memory */
specrt_status sl_cli_print_json(char *text, specrt_error *err);

/* sl_cli_table() : where a table goes: stderr when one of the outputs [n] goes to stdout. */
FILE *sl_cli_table(const char *const *paths, int n);

/* sl_cli_fail() : print the error and give the exit code of its status. */
int sl_cli_fail(const specrt_error *err);
/* sl_cli_usage() : print "tool: ..." and the hint to -h. @return CLI_USAGE. */
int sl_cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
