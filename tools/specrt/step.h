/* step.h : the steps of a preparation. A step runs one tool, which ends when this program ends. A step is
 * skipped when an earlier run finished the same command over the same files, and its outputs are as that run
 * left them. */
#ifndef SPECRT_STEP_H
#define SPECRT_STEP_H

#include <json-c/json.h>
#include "base/cli.h"
#include "specrt_tools.h"

enum { STEP_WORDS = 64, STEP_OUTPUTS = 2 };

typedef struct steps {
    const char
        *folder; /* borrowed: of all outputs; records of steps are in its folder specrt-steps */
    int n_steps, n_done;
    bool dry;            /* print commands, run nothing */
    bool verbose;        /* let tools print their messages */
    bool progress;       /* let tools show progress */
    const char *threads; /* of tools; NULL: their default */
    int lock;            /* a descriptor that keeps other runs out of the folder; -1: none */
    double seconds;      /* of a dry run: what the steps that are not done take */
    specrt_sha256 chain; /* of all steps so far: a step depends on those before it */
    bool changed;        /* a step ran, so that all later ones run */
} steps;

/* What becomes of what a tool prints. */
typedef enum step_prints {
    STEP_JSON, /* kept, for step_result() */
    STEP_TEXT, /* for people: kept, for step_print() */
    STEP_SHOWN /* for people: on stderr, as it comes */
} step_prints;

typedef struct step {
    const char *name, *what;       /* what: for people, behind the name */
    const char *words[STEP_WORDS]; /* [n] the command; words[0] names a tool */
    int n;
    const char *outputs[STEP_OUTPUTS]; /* in the folder: files and folders that the tool writes */
    step_prints prints;
    bool fresh;            /* outputs[0] is removed before the tool runs, which would add to it */
    bool optional;         /* what the tool refuses is left out, with a line */
    bool left_out;         /* it was, by this run or by an earlier one of the same command */
    json_object *findings; /* what the tool printed with exit code 3, owned; NULL: nothing */
    double seconds;        /* how long it takes, estimated; 0: unknown */
} step;

void step_word(step *s, const char *word);
void step_words(step *s, ...) __attribute__((sentinel));        /* several, up to NULL */
void step_option(step *s, const char *name, const char *value); /* nothing where value is NULL */

/* steps_check() : whether the folder may be written to.
 *   force : replace what another program put there
 * @return -1, or the exit code after a line that says why not */
int steps_check(const steps *all, bool force);

/* steps_open() : make the folder and keep other runs out of it. @return CLI_OK, or CLI_IO after a line. */
int steps_open(steps *all);
void steps_close(steps *all); /* a folder without any finished step is removed */

/* step_run() : run the step, or find that it has been run. Prints one line on stderr.
 * @return the tool's exit code, after the tool said what is wrong; CLI_IO with a line of its own */
int step_run(steps *all, step *s);

/* step_line() : the command as sh reads it, one line, owned; NULL: no memory. */
char *step_line(const step *s);

/* step_result() : the JSON object that a step printed, owned; NULL: none.
 * step_print() : the text that a step printed, on stdout, and an empty line. */
json_object *step_result(const steps *all, const char *name);
void step_print(const steps *all, const char *name);

#endif
