/* http.c : see http.h. curl reads its options from stdin, so that no key is among its arguments, and the body
 * from descriptor 3, since a line of options has a limit. Both are files in memory. curl writes the answer
 * and, as the last line, the status to a pipe, which is read up to the limit of the answer. */
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/child.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "base/text.h"
#include "specrt_tools.h"

/* What curl gave. */
typedef struct reply {
    char *text; /* [n], owned, with a NUL behind it; NULL: no memory */
    size_t n;
    bool too_long;        /* the text is not all */
    int code, status;     /* of curl, of HTTP */
    const char *location; /* where a redirect leads, borrowed from the text */
} reply;

/* ---- asking ---- */

/* A value between quotes, as curl reads it. */
static void put_quoted(FILE *to, const char *name, const char *before, const char *value) {
    fprintf(to, "%s = \"%s", name, before);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\') fputc('\\', to);
        if (*c != '\n' && *c != '\r') fputc(*c, to);
    }
    fprintf(to, "\"\n");
}

static void write_options(FILE *to, const http_request *r) {
    fprintf(to,
            "silent\ngloboff\nmax-time = %d\nconnect-timeout = 10\n"
            "write-out = \"\\n%%{http_code} %%{redirect_url}\"\n",
            r->seconds);
    put_quoted(to, "url", "", r->url);
    if (r->key && *r->key) put_quoted(to, "header", "Authorization: Bearer ", r->key);
    if (r->body) fprintf(to, "header = \"Content-Type: application/json\"\n");
    if (r->body) fprintf(to, "data-binary = \"@/dev/fd/3\"\n");
}

/* All that a pipe brings, but one byte more than the limit at most. */
static void read_pipe(int fd, size_t most, reply *out) {
    FILE *from = fdopen(fd, "r");
    size_t room = 0, got = 1;
    while (from && got > 0 && out->n <= most) {
        room = room ? 2 * room : 1 << 16;
        char *grown = (char *)realloc(out->text, room + 1);
        if (!grown) free(out->text);
        out->text = grown;
        if (!grown) break;
        got = fread(out->text + out->n, 1, room - out->n, from);
        out->n += got;
        out->text[out->n] = 0;
    }
    if (from) fclose(from);
    if (!from) close(fd);
    out->too_long = out->n > most || got > 0;
}

/* Cuts the line of the status off. */
static void take_status(reply *out) {
    char *last = (char *)sl_find_last(out->text, '\n', out->n), *end;
    if (!last) return;
    out->status = (int)strtol(last + 1, &end, 10);
    out->location = end + (*end == ' ');
    out->n = (size_t)(last - out->text);
    *last = 0;
}

static specrt_status run_curl(const http_request *r, FILE *options, FILE *body, reply *out,
                              specrt_error *err) {
    static const char *const words[] = {"curl", "-q", "--config", "-", NULL};
    enum { STATUS_LINE = 4096 };
    int pipe_fds[2];
    pid_t child;
    if (sl_pipe(pipe_fds) != 0) return sl_error_no_memory(err, r->url);
    int fds[] = {fileno(options), pipe_fds[1], -1, fileno(body)};
    specrt_status status = sl_child_start(words, fds, 4, &child, err);
    close(pipe_fds[1]);
    if (status != SPECRT_STATUS_OK) {
        close(pipe_fds[0]);
        specrt_error why = *err;
        return specrt_error_set(err, status,
                                "%.300s; expected this program in PATH: install the package curl",
                                why.msg);
    }
    read_pipe(pipe_fds[0], r->most + STATUS_LINE, out);
    if (out->too_long) sl_child_end(child);
    if (!out->too_long) out->code = sl_child_wait(child);
    if (!out->text) return sl_error_no_memory(err, r->url);
    if (!out->too_long) take_status(out);
    return SPECRT_STATUS_OK;
}

static specrt_status send_request(const http_request *r, reply *out, specrt_error *err) {
    FILE *options = sl_unnamed_file(), *body = sl_unnamed_file();
    bool ok = options && body;
    if (ok) {
        write_options(options, r);
        fputs(r->body ? r->body : "", body);
        ok = fflush(options) == 0 && fflush(body) == 0;
        rewind(options);
    }
    specrt_status status =
        ok ? run_curl(r, options, body, out, err) : sl_error_no_memory_for(err, "a request");
    if (options) fclose(options);
    if (body) fclose(body);
    return status;
}

/* ---- judging ---- */

void http_quote(const char *text, size_t n, char out[HTTP_QUOTE]) {
    size_t k = n < HTTP_QUOTE - 4 ? n : HTTP_QUOTE - 4;
    for (size_t i = 0; i < k; i++) out[i] = text[i] ? text[i] : '?';
    strcpy(out + k, k < n ? "..." : "");
    sl_text_clean(out);
}

/* The server's own words for what is wrong (error.message, detail or message), else what it sent. */
static void quote_message(json_object *o, const reply *sent, char out[HTTP_QUOTE]) {
    static const char *const keys[] = {"message", "detail", "error"};
    json_object *error = sl_json_get(o, "error");
    if (json_object_is_type(error, json_type_object)) o = error;
    const char *text = NULL;
    for (int i = 0; i < 3 && !text; i++) text = sl_json_get_text(o, keys[i]);
    http_quote(text ? text : sent->text, text ? strlen(text) : sent->n, out);
}

static specrt_status judge_curl(const http_request *r, int code, http_fault *fault,
                                specrt_error *err) {
    static const char *const early = "a connection that ended early", *const log =
                                                                          "read the server's log";
    const struct {
        int code;
        bool again;
        const char *what, *fix;
    } all[] = {{3, false, "no URL", "correct --endpoint"},
               {5, true, "no such proxy", "correct https_proxy or http_proxy"},
               {6, true, "no such host", "correct --endpoint"},
               {7, true, "no connection", "start the server, or correct --endpoint"},
               {28, true, "none in time", "raise --timeout, or lower --parallel"},
               {18, true, early, log},
               {52, true, early, log},
               {55, true, early, log},
               {56, true, early, log},
               {92, true, early, log},
               {1, false, "one that is no HTTP", "correct --endpoint"},
               {8, false, "one that is no HTTP", "correct --endpoint"},
               {35, false, "no TLS", "write http:// where the server has none"},
               {60, false, "an unknown certificate", "name its authority in CURL_CA_BUNDLE"},
               {47, false, "too many redirects", "correct --endpoint"},
               {0, false, "none", "`man curl` lists the codes"}};
    size_t k = 0;
    while (all[k].code && all[k].code != code) k++;
    *fault = (http_fault){HTTP_CURL - code, all[k].again};
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "%s: expected an answer within %d s, found %s (curl's exit code %d); "
                            "%s",
                            r->url, r->seconds, all[k].what, code, all[k].fix);
}

static specrt_status judge_status(const http_request *r, const reply *sent, json_object *o,
                                  http_fault *fault, specrt_error *err) {
    char quote[HTTP_QUOTE];
    int status = sent->status;
    *fault = (http_fault){status, status == 408 || status == 429 || status >= 500};
    if (status >= 300 && status < 400 && *sent->location)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected status 200, found %d, a redirect to %.200s; name "
                                "that address by --endpoint",
                                r->url, status, sent->location);
    quote_message(o, sent, quote);
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: expected status 200, found %d%s: %s",
                            r->url, status,
                            status == 404 ? " (--endpoint usually ends in /v1)" : "", quote);
}

static specrt_status judge(const http_request *r, const reply *sent, json_object *o,
                           http_fault *fault, specrt_error *err) {
    char quote[HTTP_QUOTE];
    http_quote(sent->text, sent->n, quote);
    if (sent->too_long || sent->n > r->most) {
        fault->kind = HTTP_TOO_LONG;
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected an answer of at most %zu bytes, found more; raise "
                                "--max-tokens where the model wrote them; the server sent: %s",
                                r->url, r->most, quote);
    }
    if (sent->code != 0) return judge_curl(r, sent->code, fault, err);
    if (sent->status < 200 || sent->status > 299) return judge_status(r, sent, o, fault, err);
    if (json_object_is_type(o, json_type_object)) return SPECRT_STATUS_OK;
    fault->kind = HTTP_NO_JSON;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: expected a JSON object, found another text; name an "
                            "OpenAI-compatible API by --endpoint; the server sent: %s",
                            r->url, quote);
}

/* The only JSON value of a text, owned; NULL: none, or null. */
static json_object *parse(const char *text, size_t n) {
    size_t end;
    json_object *o = sl_json_parse(text, n, &end);
    if (o && end + strspn(text + end, " \t\r\n") == n) return o;
    json_object_put(o);
    return NULL;
}

specrt_status http_json(const http_request *r, json_object **out, http_fault *fault,
                        specrt_error *err) {
    reply sent = {.location = ""};
    *fault = (http_fault){HTTP_LOCAL, false};
    *out = NULL;
    specrt_status status = send_request(r, &sent, err);
    if (status == SPECRT_STATUS_OK) {
        *out = sent.too_long || sent.code ? NULL : parse(sent.text, sent.n);
        status = judge(r, &sent, *out, fault, err);
    }
    free(sent.text);
    if (status == SPECRT_STATUS_OK) return status;
    json_object_put(*out);
    *out = NULL;
    return status;
}
