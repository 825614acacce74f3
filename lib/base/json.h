/* json.h : short names for building the JSON that tools print and store. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

void sl_json_put(json_object *to, const char *key, json_object *value);
json_object *sl_json_text(const char *text); /* NULL is null; what is no UTF-8 becomes U+FFFD */
json_object *sl_json_lines(char *text); /* an array; the text is cut into its lines; NULL: none */
json_object *sl_json_whole(uint64_t n);
json_object *sl_json_real(double x); /* NaN is null; nine digits read better than seventeen */
json_object *sl_json_reals(const double *x, int n);     /* an array */
json_object *sl_json_ids(const int32_t *ids, size_t n); /* an array */
json_object *sl_json_range(double low, double high);    /* [low, high] */
json_object *sl_json_hex(const uint8_t *bytes, int n);  /* at most 32 */
json_object *sl_json_hex64(uint64_t x);                 /* 16 digits, the highest first */

/* sl_json_get(), sl_json_get_text() : what an object has under a key, borrowed; NULL where `o` is no object
 * (null, say), or has no such key, or null, or for the second call no text there. */
json_object *sl_json_get(json_object *o, const char *key);
const char *sl_json_get_text(json_object *o, const char *key);
json_object *sl_json_get_type(json_object *o, const char *key,
                              json_type type); /* NULL for others */

size_t sl_json_length(json_object *o); /* items of an array; 0: it is none */

/* sl_json_parse() : the first value of a text of n bytes, owned; NULL: there is none, or null.
 *   end : bytes up to its end, written; may be NULL */
json_object *sl_json_parse(const void *text, size_t n, size_t *end);

/* sl_json_bad_escape() : the first escape in JSON text of NUL, which ends a member's name in json-c, or of
 * half a surrogate pair, which json-c repairs; NULL: none.
 *   unit : of UTF-16, written */
const char *sl_json_bad_escape(const char *p, const char *end, int32_t *unit);

/* sl_json_base_name() : the last component of a path; where the rest of it lies concerns nobody else. */
json_object *sl_json_base_name(const char *path);

/* sl_json_to_text() : the object on one line of UTF-8, owned; the object is released. NULL: no memory. */
char *sl_json_to_text(json_object *o);

/* sl_json_error() : what is wrong with text that json-c did not parse; static. */
const char *sl_json_error(enum json_tokener_error error);

/* sl_json_print() : the object as one line on stdout; it is released. @return false: no memory. */
bool sl_json_print(json_object *o);

#endif
