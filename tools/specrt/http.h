/* http.h : one request of an HTTP API, by the program curl, which knows TLS, proxies and certificates. */
#ifndef SPECRT_HTTP_H
#define SPECRT_HTTP_H

#include <json-c/json.h>
#include <stdbool.h>
#include "specrt.h"

typedef struct http_request {
    const char *url, *key; /* key: of the header "Authorization: Bearer"; NULL, "": none */
    const char *body;      /* JSON to post; NULL: a GET */
    int seconds;           /* an answer must be whole by then */
    size_t most;           /* bytes of an answer; a longer one is refused */
} http_request;

/* Why there is no answer. Faults of one kind have one cause, as a rule. */
typedef struct http_fault {
    int kind; /* a status of HTTP from 100 on, one of these, or HTTP_CURL minus curl's exit code */
    bool again; /* the same request may succeed later */
} http_fault;
enum { HTTP_LOCAL, HTTP_TOO_LONG, HTTP_NO_JSON, HTTP_NO_TEXT, HTTP_CURL = -1 };

/* http_json() : the JSON object that a server answers with; owned.
 *   fault : written where there is none. HTTP_LOCAL: no curl, no memory; the next request meets it, too
 * @return IO: no curl, no answer, another status than 200 to 299; BAD_INPUT: no JSON object, or a longer
 * answer. The message names the URL, what the server sent, and a fix. */
specrt_status http_json(const http_request *r, json_object **out, http_fault *fault,
                        specrt_error *err);

enum { HTTP_QUOTE = 204 };
/* http_quote() : the first 200 bytes of what a server sent, on one line without controls. */
void http_quote(const char *text, size_t n, char out[HTTP_QUOTE]);

#endif
