/* answers.c : see answers.h. Every line begins with BEGINNING, because sl_json_to_text() keeps the order of
 * keys: this is how a file of answers differs from any other. */
#include "answers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "specrt_tools.h"

static const char BEGINNING[] = "{\"prompt\":\"";

static bool begins(const char *text, size_t n) {
    return strncmp(text, BEGINNING, n < sizeof BEGINNING - 1 ? n : sizeof BEGINNING - 1) == 0;
}

static specrt_status failed(const answers *a, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot %s: %s", a->path, what,
                            strerror(errno));
}

static specrt_status refuse_content(const answers *a, int64_t line, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s:%lld: expected an answer that `specrt ask` wrote, found another "
                            "text; name another file",
                            a->path, (long long)line);
}

/* Whether this is a file to append to. Only a run that has the lock may take the file for its own. */
static specrt_status check(answers *a, const cli_list *inputs, bool create, specrt_error *err) {
    struct stat own, other;
    char head[sizeof BEGINNING];
    if (fstat(a->fd, &own) != 0) return failed(a, "read", err);
    if (!S_ISREG(own.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "-o %s: expected a file, to which a second run can add answers; "
                                "found a device or a pipe",
                                a->path);
    for (int i = 0; i < inputs->n; i++)
        if (stat(inputs->items[i], &other) == 0 && other.st_dev == own.st_dev &&
            other.st_ino == own.st_ino)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "-o %s: expected another file than --prompts %s", a->path,
                                    inputs->items[i]);
    bool taken = flock(a->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (taken || stat(a->path, &other) != 0 || other.st_ino != own.st_ino) /* or removed by it */
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: another specrt ask writes this file; wait for its end",
                                a->path);
    ssize_t n = pread(a->fd, head, sizeof head, 0);
    if (n < 0) return failed(a, "read", err);
    a->is_new = create && n == 0;
    return begins(head, (size_t)n) ? SPECRT_STATUS_OK : refuse_content(a, 1, err);
}

specrt_status answers_open(answers *a, const cli_list *inputs, bool create, specrt_error *err) {
    if (a->fd >= 0) return SPECRT_STATUS_OK;
    a->fd =
        open(a->path,
             O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (create ? O_CREAT : 0), 0666);
    if (a->fd < 0 && errno == ENOENT && !create) return sl_out_check(a->path, false, err);
    return a->fd < 0 ? failed(a, "write", err) : check(a, inputs, create, err);
}

/* Removes what follows the whole lines. */
static specrt_status cut(answers *a, specrt_error *err) {
    return ftruncate(a->fd, a->whole) == 0 ? SPECRT_STATUS_OK : failed(a, "write", err);
}

/* Only the last line may lack its end: of a whole answer the end is written, the beginning of one goes. The
 * beginning of a single line may be anybody's. */
static specrt_status read_line(answers *a, const char *line, size_t n, int64_t number,
                               answers_take *take, void *arg, specrt_error *err) {
    json_object *o = json_tokener_parse(line);
    bool ends = line[n - 1] == '\n';
    if (begins(line, n) && !o && !ends && number > 1) return cut(a, err);
    specrt_status status =
        begins(line, n) && o ? take(arg, o, number, err) : refuse_content(a, number, err);
    json_object_put(o);
    a->whole += (off_t)n;
    return status == SPECRT_STATUS_OK && !ends ? answers_add(a, "\n", err) : status;
}

specrt_status answers_read(answers *a, answers_take *take, void *arg, specrt_error *err) {
    FILE *f = fopen(a->path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    specrt_status status = f ? SPECRT_STATUS_OK : failed(a, "read", err);
    for (int64_t number = 1; status == SPECRT_STATUS_OK && (n = getline(&line, &room, f)) > 0;
         number++)
        status = read_line(a, line, (size_t)n, number, take, arg, err);
    free(line);
    if (f) fclose(f);
    return status;
}

specrt_status answers_add(answers *a, const char *line, specrt_error *err) {
    size_t n = strlen(line), at = 0;
    while (at < n) {
        ssize_t got = write(a->fd, line + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            specrt_status status = failed(a, "write", err);
            specrt_error ignored;
            cut(a, &ignored);
            return status;
        }
        at += (size_t)got;
    }
    a->whole += (off_t)n;
    return SPECRT_STATUS_OK;
}

void answers_close(answers *a) {
    if (a->fd < 0) return;
    if (a->is_new && a->whole == 0) unlink(a->path);
    close(a->fd);
}
