/* json_path.h : values of JSON by the names of their fields, so that a test asks for what it is about, in
 * whatever order it is printed.
 *     a.b     the field b of a         a[0]      an element; a[-1] is the last one
 *     a[]     every element            a[k=v]    the elements whose field k has the value v, or a if it has
 *     a.#     how many were found
 * Several values, and those of an array, are one text with a blank between each two. A number has at most
 * four decimals, below 0.001 three digits. */
#ifndef JSON_PATH_H
#define JSON_PATH_H

#include <fnmatch.h>
#include <json-c/json.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MOST = 4096, JSON_TEXT = 32768 };

typedef struct json_found {
    json_object *at[JSON_MOST], *before[JSON_MOST];
    int n;
    char text[JSON_TEXT]; /* the values, or what is missing */
} json_found;

static inline void json_put_number(double x, FILE *out) {
    char digits[64];
    size_t n = (size_t)snprintf(digits, sizeof digits, fabs(x) >= 0.001 ? "%.4f" : "%.3g", x);
    if (fabs(x) >= 0.001) {
        while (digits[n - 1] == '0') n--;
        if (digits[n - 1] == '.') n--;
    }
    fwrite(digits, 1, n, out);
}

static inline void json_put_value(json_object *o, FILE *out) {
    if (json_object_is_type(o, json_type_double)) {
        json_put_number(json_object_get_double(o), out);
    } else if (json_object_is_type(o, json_type_string)) {
        fputs(json_object_get_string(o), out);
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++) {
            if (i > 0) fputc(' ', out);
            json_put_value(json_object_array_get_idx(o, i), out);
        }
    } else {
        fputs(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN), out);
    }
}

static inline bool json_has(json_object *o, const char *key, const char *value) {
    json_object *field;
    char text[1024] = "";
    if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &field))
        return false;
    FILE *out = fmemopen(text, sizeof text, "w");
    json_put_value(field, out);
    fclose(out);
    return strcmp(text, value) == 0;
}

static inline void json_keep(json_found *f, json_object *o) {
    if (f->n < JSON_MOST) f->at[f->n++] = o;
}

/* What is in brackets, of each of the n values before. */
static inline void json_pick(json_found *f, int n, char *inside) {
    char *value = strchr(inside, '=');
    if (value) *value++ = '\0';
    for (int i = 0; i < n; i++) {
        json_object *o = f->before[i];
        bool is_array = json_object_is_type(o, json_type_array);
        int size = is_array ? (int)json_object_array_length(o) : 0, k = atoi(inside);
        if (k < 0) k += size;
        if (value && !is_array && json_has(o, inside, value)) json_keep(f, o);
        for (int j = 0; j < size; j++) {
            json_object *element = json_object_array_get_idx(o, (size_t)j);
            if (value ? json_has(element, inside, value) : !*inside || j == k)
                json_keep(f, element);
        }
    }
}

/* One step of a path of n bytes. @return whether something is there. */
static inline bool json_step(json_found *f, const char *step, size_t n) {
    char word[1024];
    int before = f->n;
    snprintf(word, sizeof word, "%.*s", (int)n, step);
    memcpy(f->before, f->at, sizeof f->at[0] * (size_t)before);
    f->n = 0;
    if (*word == '[') {
        word[n - 1] = '\0';
        json_pick(f, before, word + 1);
        return f->n > 0;
    }
    for (int i = 0; i < before; i++) {
        json_object *field;
        if (!json_object_is_type(f->before[i], json_type_object) ||
            !json_object_object_get_ex(f->before[i], word, &field))
            return false;
        json_keep(f, field);
    }
    return f->n > 0;
}

/* json_find() : what is at a path, which ends at a "=" that is in no bracket, or where the text does.
 * @return that end; NULL where nothing is there, which f->text names */
static inline const char *json_find(json_found *f, json_object *root, const char *path) {
    const char *p = path, *end;
    bool count = false;
    f->n = 1;
    f->at[0] = root;
    for (; *p && *p != '='; p = end) {
        if (*p == '.') p++;
        const char *close = *p == '[' ? strchr(p, ']') : NULL;
        end = close ? close + 1 : p + strcspn(p, ".[=");
        count = *p == '#';
        if (end == p || (!count && !json_step(f, p, (size_t)(end - p)))) {
            snprintf(f->text, sizeof f->text, "nothing at %.*s", (int)(end - path), path);
            return NULL;
        }
    }
    f->text[0] = '\0'; /* nothing written ends nothing */
    FILE *out = fmemopen(f->text, sizeof f->text, "w");
    if (count) fprintf(out, "%d", f->n);
    for (int i = 0; !count && i < f->n; i++) {
        if (i > 0) fputc(' ', out);
        json_put_value(f->at[i], out);
    }
    fclose(out);
    return p;
}

/* json_matches() : whether a field is as "PATH=PATTERN" says; f->text is what it is. */
static inline bool json_matches(json_found *f, json_object *root, const char *path_and_pattern) {
    const char *end = json_find(f, root, path_and_pattern);
    return end && *end == '=' && fnmatch(end + 1, f->text, 0) == 0;
}

#ifdef TEST_H
/* CHECK_JSON(text, "PATH=PATTERN"...) : fields of a text of JSON, which is freed. */
#define CHECK_JSON(text, ...)                                                                      \
    json_check(__FILE__, __LINE__, text, (const char *const[]){__VA_ARGS__, NULL})

static inline void json_check(const char *file, int line, char *text, const char *const *fields) {
    static json_found found;
    char what[1024];
    json_object *root = json_tokener_parse(text);
    REQUIRE(root);
    for (; *fields; fields++) {
        if (json_matches(&found, root, *fields)) continue;
        snprintf(what, sizeof what, "%.400s, found %.400s", *fields, found.text);
        test_fail(file, line, what);
    }
    json_object_put(root);
    free(text);
}
#endif

#endif
