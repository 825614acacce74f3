/* answers.h : the file of a served model's answers, one JSON object per line. A run locks the file, reads
 * what earlier runs left, and appends. */
#ifndef SPECRT_ANSWERS_H
#define SPECRT_ANSWERS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <sys/types.h>
#include "base/cli.h"
#include "specrt.h"

typedef struct answers {
    const char *path;
    int fd;      /* -1: there is no file yet */
    bool is_new; /* this run made it */
    off_t whole; /* bytes of whole lines */
} answers;

/* answers_open() : the file at a->path, locked. What is no file of answers stays as it was.
 *   inputs : files that must not be the output
 *   create : make the file where there is none
 * @return BAD_ARG: an input, or no regular file; BAD_INPUT: other content; IO: another run has the lock */
specrt_status answers_open(answers *a, const cli_list *inputs, bool create, specrt_error *err);

typedef specrt_status answers_take(void *arg, json_object *answer, int64_t line, specrt_error *err);
/* answers_read() : pass every answer to `take`, which refuses what is none. An incomplete last line is
 * removed. */
specrt_status answers_read(answers *a, answers_take *take, void *arg, specrt_error *err);

/* answers_add() : append a line. One that cannot be written whole is removed. */
specrt_status answers_add(answers *a, const char *line, specrt_error *err);
void answers_close(answers *a); /* a new file without answers is removed */

#endif
