/* http.c : see http.h. curl reads its options from stdin, so that no key is among its arguments. It writes
 * the body and, as the last line, the status to stdout. Both are files without a name in TMPDIR. */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/text.h"
#include "specrt_tools.h"

extern char **environ;

/* A value between quotes, as curl reads it. */
static void put_quoted(FILE *to, const char *name, const char *before, const char *value) {
    fprintf(to, "%s = \"%s", name, before);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\') fputc('\\', to);
        if (*c != '\n') fputc(*c, to);
    }
    fprintf(to, "\"\n");
}

static void write_options(FILE *to, const http_request *r) {
    fprintf(to, "silent\nmax-time = %d\nconnect-timeout = 10\nwrite-out = \"\\n%%{http_code}\"\n",
            r->seconds);
    put_quoted(to, "url", "", r->url);
    if (r->key) put_quoted(to, "header", "Authorization: Bearer ", r->key);
    if (r->body) fprintf(to, "header = \"Content-Type: application/json\"\n");
    if (r->body) put_quoted(to, "data-binary", "", r->body);
}

/* A file that is gone when it is closed. */
static specrt_status open_unnamed(FILE **file, specrt_error *err) {
    const char *folder = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/specrt-http-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    *file = fd < 0 ? NULL : fdopen(fd, "w+");
    if (fd >= 0) unlink(path);
    if (fd >= 0 && !*file) close(fd);
    return *file ? SPECRT_STATUS_OK
                 : specrt_error_set(err, SPECRT_STATUS_IO,
                                    "%s: cannot make this file: %s; set TMPDIR to another folder",
                                    path, strerror(errno));
}

/* Starts curl with an unnamed file of options as its stdin and the other end of `out` as its stdout. */
static int start(FILE *options, int out, pid_t *child) {
    static const char *const words[] = {"curl", "--config", "-", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(options), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int failed = posix_spawnp(child, "curl", &actions, NULL, (char **)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Runs curl. @return its exit code, or -1 where it cannot run */
static int run_curl(const http_request *r, FILE *options, FILE *said) {
    pid_t child;
    int ended = 0;
    write_options(options, r);
    rewind(options);
    if (start(options, fileno(said), &child) != 0) return -1;
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(ended) && WEXITSTATUS(ended) != 127 ? WEXITSTATUS(ended) : -1;
}

/* What curl wrote, owned: the body, cut before the line of the status. NULL: no memory. */
static char *read_said(FILE *said, int *status) {
    long n = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : 0;
    char *text = (char *)calloc((size_t)n + 1, 1), *last;
    rewind(said);
    *status = 0;
    if (!text || fread(text, 1, (size_t)n, said) < (size_t)n ||
        !(last = (char *)memrchr(text, '\n', (size_t)n)))
        return text;
    *status = atoi(last + 1);
    *last = 0;
    return text;
}

/* The server's own words for what is wrong: error.message, detail or message. */
static const char *message_of(json_object *o) {
    json_object *error, *text;
    if (json_object_object_get_ex(o, "error", &error) &&
        json_object_is_type(error, json_type_object))
        o = error;
    static const char *const keys[] = {"message", "detail", "error"};
    for (int i = 0; i < 3; i++)
        if (json_object_object_get_ex(o, keys[i], &text))
            return sl_text_name(json_object_get_string(text));
    return "no message";
}

static specrt_status judge(const http_request *r, int code, int status, json_object *o, bool *again,
                           specrt_error *err) {
    if (code < 0)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "curl: expected this program in PATH; install the package curl");
    *again = code != 0 || status == 408 || status == 429 || status >= 500 || status < 400;
    if (code != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a whole answer within %d s, curl ended with code %d",
                                r->url, r->seconds, code);
    if (status >= 400)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: expected status 200, found %d: %.300s",
                                r->url, status, message_of(o));
    if (!json_object_is_type(o, json_type_object))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a JSON object as answer, found none", r->url);
    return SPECRT_STATUS_OK;
}

static specrt_status ask(const http_request *r, FILE *options, FILE *said, json_object **out,
                         bool *again, specrt_error *err) {
    int status, code = run_curl(r, options, said);
    char *body = read_said(said, &status);
    if (!body) return sl_error_no_memory(err, r->url);
    *out = code == 0 ? json_tokener_parse(body) : NULL;
    free(body);
    specrt_status result = judge(r, code, status, *out, again, err);
    if (result == SPECRT_STATUS_OK) return result;
    json_object_put(*out);
    *out = NULL;
    return result;
}

specrt_status http_json(const http_request *r, json_object **out, bool *again, specrt_error *err) {
    FILE *options = NULL, *said = NULL;
    *again = false;
    *out = NULL;
    specrt_status status = open_unnamed(&options, err);
    if (status == SPECRT_STATUS_OK) status = open_unnamed(&said, err);
    if (status == SPECRT_STATUS_OK) status = ask(r, options, said, out, again, err);
    if (options) fclose(options);
    if (said) fclose(said);
    return status;
}
