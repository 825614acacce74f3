/* http.h : one request of an HTTP API, by the program curl, which knows TLS, proxies and certificates. */
#ifndef SPECRT_HTTP_H
#define SPECRT_HTTP_H

#include <json-c/json.h>
#include <stdbool.h>
#include "specrt.h"

typedef struct http_request {
    const char *url, *key; /* key: of the header "Authorization: Bearer"; NULL: none */
    const char *body;      /* JSON to post; NULL: a GET */
    int seconds;           /* an answer must be whole by then */
} http_request;

/* http_json() : the JSON object that a server answers with; owned.
 *   again : written: whether the same request may succeed later (no connection, a cut or wrong answer,
 *           status 408, 429 or 5xx)
 * @return IO: no curl, no answer, a status of 400 or more; BAD_INPUT: no JSON object. The message names the
 * URL and what the server said. */
specrt_status http_json(const http_request *r, json_object **out, bool *again, specrt_error *err);

#endif
