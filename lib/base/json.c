/* json.c : see json.h. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

void sl_json_put(json_object *to, const char *key, json_object *value) {
    json_object_object_add(to, key, value);
}

/* Names of files and quoted input may be any bytes, JSON may not: a copy with U+FFFD for what is no UTF-8;
 * NULL: no memory. */
static char *repaired(const char *text, size_t n) {
    char *copy = (char *)malloc(3 * n + 1);
    uint64_t n_replaced = 0;
    if (copy) copy[sl_utf8_repair(text, n, copy, &n_replaced)] = '\0';
    return copy;
}

static json_object *text_of(const char *text, size_t n) {
    char *copy = repaired(text, n);
    json_object *o = copy ? json_object_new_string(copy) : NULL;
    free(copy);
    return o;
}

json_object *sl_json_text(const char *text) {
    return text ? text_of(text, strlen(text)) : NULL;
}

json_object *sl_json_lines(char *text) {
    json_object *lines = json_object_new_array();
    char *rest;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        json_object_array_add(lines, sl_json_text(line));
    return lines;
}

json_object *sl_json_whole(uint64_t n) {
    return json_object_new_uint64(n);
}

json_object *sl_json_real(double x) {
    char text[32];
    if (isnan(x)) return NULL;
    snprintf(text, sizeof text, "%.9g", x);
    return json_object_new_double_s(x, text);
}

json_object *sl_json_reals(const double *x, int n) {
    json_object *array = json_object_new_array();
    for (int i = 0; i < n; i++) json_object_array_add(array, sl_json_real(x[i]));
    return array;
}

json_object *sl_json_ids(const int32_t *ids, size_t n) {
    json_object *list = json_object_new_array();
    for (size_t i = 0; i < n; i++) json_object_array_add(list, json_object_new_int(ids[i]));
    return list;
}

json_object *sl_json_range(double low, double high) {
    return sl_json_reals((const double[2]){low, high}, 2);
}

json_object *sl_json_hex(const uint8_t *bytes, int n) {
    char text[65];
    for (int i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_object_new_string_len(text, 2 * n);
}

json_object *sl_json_hex64(uint64_t x) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(x >> (56 - 8 * i));
    return sl_json_hex(bytes, 8);
}

json_object *sl_json_get(json_object *o, const char *key) {
    json_object *value = NULL;
    json_object_object_get_ex(o, key, &value);
    return value;
}

json_object *sl_json_get_type(json_object *o, const char *key, json_type type) {
    json_object *value = sl_json_get(o, key);
    return json_object_is_type(value, type) ? value : NULL;
}

const char *sl_json_get_text(json_object *o, const char *key) {
    json_object *value = sl_json_get(o, key);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

size_t sl_json_length(json_object *o) {
    return json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;
}

json_object *sl_json_parse(const void *text, size_t n, size_t *end) {
    json_tokener *tokener = n > 0 && n < INT32_MAX ? json_tokener_new() : NULL;
    json_object *o = tokener ? json_tokener_parse_ex(tokener, (const char *)text, (int)n) : NULL;
    if (end) *end = tokener ? json_tokener_get_parse_end(tokener) : 0;
    if (tokener) json_tokener_free(tokener);
    return o;
}

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

const char *sl_json_bad_escape(const char *p, const char *end, int32_t *unit) {
    while (p < end && (p = (const char *)memchr(p, '\\', (size_t)(end - p)))) {
        *unit = escaped_unit(p, end);
        bool high = *unit >= 0xD800 && *unit < 0xDC00, low = *unit >= 0xDC00 && *unit < 0xE000;
        int32_t next = high ? escaped_unit(p + 6, end) : -1;
        bool pair = next >= 0xDC00 && next < 0xE000;
        if (*unit == 0 || low || (high && !pair)) return p;
        p += pair ? 12 : *unit >= 0 ? 6 : 2;
    }
    return NULL;
}

json_object *sl_json_base_name(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/') start--;
    return text_of(path + start, n - start);
}

/* Escapes what JSON lets stand and a terminal obeys: DEL, which json-c leaves, and the C1 controls. Frees
 * `text`; NULL: no memory. */
static char *escaped(char *text) {
    char *copy = text ? (char *)malloc(6 * strlen(text) + 1) : NULL, *out = copy;
    for (const char *p = text; copy && *p; p++) {
        bool c1 = (uint8_t)p[0] == 0xC2 && (uint8_t)p[1] < 0xA0;
        if (c1 || *p == 0x7F)
            out += sprintf(out, "\\u%04x", (unsigned)(uint8_t)p[c1]), p += c1;
        else
            *out++ = *p;
    }
    if (copy) *out = '\0';
    free(text);
    return copy;
}

char *sl_json_to_text(json_object *o) {
    const char *text =
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = text ? escaped(repaired(text, strlen(text))) : NULL; /* a file's JSON, keys */
    json_object_put(o);
    return copy;
}

bool sl_json_print(json_object *o) {
    char *text = sl_json_to_text(o);
    if (text) puts(text);
    free(text);
    return text != NULL;
}

const char *sl_json_error(enum json_tokener_error error) {
    return error == json_tokener_continue ? "it ends too early" : json_tokener_error_desc(error);
}
