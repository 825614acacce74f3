/* http.c : see http.h. curl reads its options from stdin, so that no key is among its arguments. It writes
 * the body to a file and the status to stdout. */
#include "http.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
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

static void write_options(FILE *to, const http_request *r, const char *body_path) {
    fprintf(to, "silent\nmax-time = %d\nconnect-timeout = 10\nwrite-out = \"%%{http_code}\"\n",
            r->seconds);
    put_quoted(to, "url", "", r->url);
    put_quoted(to, "output", "", body_path);
    if (r->key) put_quoted(to, "header", "Authorization: Bearer ", r->key);
    if (r->body) fprintf(to, "header = \"Content-Type: application/json\"\n");
    if (r->body) put_quoted(to, "data-binary", "", r->body);
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

/* Runs curl. @return its exit code, or -1 where it cannot run; *status: of HTTP, 0: none */
static int run_curl(const http_request *r, const char *body_path, int *status) {
    FILE *options = tmpfile(), *said = tmpfile();
    int code = -1;
    pid_t child;
    *status = 0;
    if (options && said) {
        write_options(options, r, body_path);
        rewind(options);
        if (start(options, fileno(said), &child) == 0) {
            int ended = 0;
            while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;
            code = WIFEXITED(ended) && WEXITSTATUS(ended) != 127 ? WEXITSTATUS(ended) : -1;
            rewind(said);
            if (fscanf(said, "%d", status) != 1) *status = 0;
        }
    }
    if (options) fclose(options);
    if (said) fclose(said);
    return code;
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

specrt_status http_json(const http_request *r, json_object **out, bool *again, specrt_error *err) {
    char path[] = "/tmp/specrt-http-XXXXXX";
    int file = mkstemp(path), status;
    *again = false;
    if (file < 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot make this file: %s", path,
                                strerror(errno));
    close(file);
    int code = run_curl(r, path, &status);
    *out = code == 0 ? json_object_from_file(path) : NULL;
    unlink(path);
    specrt_status result = judge(r, code, status, *out, again, err);
    if (result == SPECRT_STATUS_OK) return result;
    json_object_put(*out);
    *out = NULL;
    return result;
}
