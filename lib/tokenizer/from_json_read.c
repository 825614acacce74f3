/* from_json_read.c : JSON files parsed, and their members by type. */
#include "tokenizer/from_json.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"

#define MAX_FILE_BYTES ((size_t)512 << 20)
#define MAX_JSON_DEPTH 32

/* ---- typed members ---- */

specrt_status sl_tok_json_bad(const tokenizer *tok, const char *where, const char *key,
                              json_object *found, const char *expected, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s%s%s is %s; expected %s",
                            tok->path, where, *where && *key ? "." : "", key,
                            found ? json_type_to_name(json_object_get_type(found)) : "missing",
                            expected);
}

specrt_status sl_tok_json_bool(const tokenizer *tok, json_object *object, const char *where,
                               const char *key, bool required, bool *out, specrt_error *err) {
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    if (!value && !required) return SPECRT_STATUS_OK;
    if (!json_object_is_type(value, json_type_boolean))
        return sl_tok_json_bad(tok, where, key, value, "a boolean", err);
    *out = json_object_get_boolean(value);
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_json_string(const tokenizer *tok, json_object *object, const char *where,
                                 const char *key, bool required, const char **out, size_t *n,
                                 specrt_error *err) {
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    if (!value && !required) return SPECRT_STATUS_OK;
    if (!json_object_is_type(value, json_type_string))
        return sl_tok_json_bad(tok, where, key, value, "a string", err);
    *out = json_object_get_string(value);
    *n = (size_t)json_object_get_string_len(value);
    return SPECRT_STATUS_OK;
}

/* ---- parsing ---- */

/* The UTF-16 unit of an escape "\\u0000" at p, or -1. */
static int32_t escaped_unit(const char *p, const char *end) {
    int32_t unit = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        char c = p[i];
        bool digit = c >= '0' && c <= '9';
        bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!digit && !letter) return -1;
        unit = unit * 16 + (digit ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return unit;
}

/* json-c ends a member's name at a NUL and repairs half a surrogate pair: refused, for a token
 * spelled so would silently become another one. @return the first such escape, or NULL. */
static const char *find_bad_escape(const char *p, const char *end, const char **what) {
    while (p < end && (p = memchr(p, '\\', (size_t)(end - p)))) {
        int32_t unit = escaped_unit(p, end);
        bool high = unit >= 0xD800 && unit < 0xDC00, low = unit >= 0xDC00 && unit < 0xE000;
        int32_t next = high ? escaped_unit(p + 6, end) : -1;
        bool pair = next >= 0xDC00 && next < 0xE000;
        *what = unit == 0 ? "\\u0000" : "half a surrogate pair";
        if (unit == 0 || low || (high && !pair)) return p;
        p += pair ? 12 : unit >= 0 ? 6 : 2;
    }
    return NULL;
}

specrt_status sl_tok_json_parse(const tokenizer *tok, const file_view *file, json_object **out,
                                specrt_error *err) {
    const char *text = (const char *)file->bytes, *what;
    *out = NULL;
    if (file->n == 0 || file->n > MAX_FILE_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %zu bytes; expected 1 to %zu",
                                tok->path, file->n, MAX_FILE_BYTES);
    const char *bad = find_bad_escape(text, text + file->n, &what);
    if (bad)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: byte %zu: %s; expected whole characters other than NUL",
                                tok->path, (size_t)(bad - text), what);
    json_tokener *tokener = json_tokener_new_ex(MAX_JSON_DEPTH);
    if (!tokener) return sl_error_no_memory(err, tok->path);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    *out = json_tokener_parse_ex(tokener, text, (int)file->n);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t at = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (error == json_tokener_success) return SPECRT_STATUS_OK;
    json_object_put(*out);
    *out = NULL;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: byte %zu: not JSON: %s", tok->path,
                            at, sl_json_error(error));
}
