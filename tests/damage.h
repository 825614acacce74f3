/* damage.h : what a reader says of a good file with damage at every byte, and without memory. How often
 * the reader says what is approved text. Each file has a digest, too, of all messages with their numbers
 * and of all that was read. */
#ifndef DAMAGE_H
#define DAMAGE_H

#include "starve.h"

#include <json-c/json.h>
#include "approved.h"
#include "specrt_tools.h"

/* Reads the bytes, and adds what it has read to `content` (damage_add()). */
typedef specrt_status (*damage_reader)(const void *bytes, size_t n, uint64_t *content,
                                       specrt_error *err);

typedef struct damage_said {
    char text[160];
    int n;
} damage_said;

static struct {
    damage_said said[200];
    int n_said;
    uint64_t digest, first; /* of all that was read; of the first one, undamaged */
} damage;

static int damage_changes = 5; /* fewer where a reader is slow */

static inline void damage_add(uint64_t *content, const void *bytes, size_t n) {
    *content = specrt_hash64(bytes, n, *content);
}

static inline void damage_add_int(uint64_t *content, int64_t value) {
    damage_add(content, &value, sizeof value);
}

/* What stands for a part of a message that begins at p: words that have digits, and what is quoted. */
static inline const char *damage_part(const char *p, size_t *length) {
    static const char *const quotes[][2] = {{"(", ")"},
                                            {"\"", "\""},
                                            {"'", "'"},
                                            {" is ", ";"},
                                            {"regex \"", "\" uses"},
                                            {"mentions ", ";"},
                                            {" found ", ";"},
                                            {" role ", ";"},
                                            {" from: ", ";"}};
    for (int i = 8; i >= 0; i--) {
        size_t n = strlen(quotes[i][0]);
        const char *end = strncmp(p, quotes[i][0], n) == 0 ? strstr(p + n, quotes[i][1]) : NULL;
        *length = end ? (size_t)(end - p) + 1 : 0;
        if (end) return "~";
    }
    *length = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (*length > 0 && strcspn(p, "0123456789") < *length) return "#";
    return NULL;
}

static inline void damage_shorten(const char *message, char out[160]) {
    size_t n = 0, length;
    for (const char *p = message; *p && n < 150; p += length) {
        const char *instead = damage_part(p, &length);
        if (!instead) length = 1;
        out[n++] = instead ? *instead : *p >= ' ' && *p < 0x7f ? *p : '?';
    }
    out[n] = '\0';
}

/* Cuts off words of json-c and PCRE2, which differ by version. */
static inline void damage_cut_words(char *message) {
    char *compile = strstr(message, "does not compile");
    if (compile) strcpy(compile, "does not");
    for (int e = json_tokener_error_depth; e <= json_tokener_error_parse_utf8_string; e++) {
        char *words = strstr(message, json_tokener_error_desc((enum json_tokener_error)e));
        if (words) strcpy(words, "..."); /* all are longer */
    }
}

/* For readers of files alone. */
static inline void damage_write_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

/* Cuts off the folder before a file's name, since it has another name each time. */
static inline void damage_cut_folder(char *message, const char *name) {
    const char *after = strstr(message, name);
    if (after) memmove(message, after, strlen(after) + 1);
}

static inline int damage_compare_said(const void *a, const void *b) {
    return strcmp(((const damage_said *)a)->text, ((const damage_said *)b)->text);
}

static inline void damage_count(const char *text) {
    int i = 0;
    while (i < damage.n_said && strcmp(damage.said[i].text, text) != 0) i++;
    if (i == damage.n_said) {
        REQUIRE(damage.n_said < 200);
        strcpy(damage.said[damage.n_said++].text, text);
        damage.said[i].n = 0;
    }
    damage.said[i].n++;
}

/* Reads a copy that ends where its memory does. */
static inline void damage_try(const void *bytes, size_t n, damage_reader read) {
    specrt_error err = {0};
    uint64_t content = 0;
    char text[160] = "read";
    void *copy = malloc(n + (n == 0));
    REQUIRE(copy);
    if (n > 0) memcpy(copy, bytes, n);
    specrt_status status = read(copy, n, &content, &err);
    free(copy);
    damage_cut_words(err.msg);
    if (status) damage_shorten(err.msg, text);
    damage_count(text);
    if (status) content = specrt_hash64(err.msg, strlen(err.msg), (uint64_t)status);
    if (damage.digest == 0) damage.first = content;
    damage.digest = specrt_hash64(&content, sizeof content, damage.digest);
}

typedef struct damage_good {
    const void *bytes;
    size_t n;
    damage_reader read;
    uint64_t content;
} damage_good;

static inline int damage_without_memory(void *arg) {
    const damage_good *good = (const damage_good *)arg;
    specrt_error err = {0};
    uint64_t content = 0;
    specrt_status status = good->read(good->bytes, good->n, &content, &err);
    return status || content != good->content ? (int)status : STARVE_DID_WITHOUT;
}

/* damage_everywhere() : each byte changed in up to five ways, written twice, and the last one of the file. A
 * seed that is no good file is damaged alone. */
static inline void damage_everywhere(const char *name, const void *good, size_t n,
                                     damage_reader read) {
    uint8_t *bytes = (uint8_t *)malloc(n + 1);
    REQUIRE(bytes);
    damage.n_said = 0;
    damage.digest = 0;
    damage_try(good, n, read);
    damage_good whole = {good, n, read, damage.first};
    starve_own = true;
    if (strcmp(damage.said[0].text, "read") == 0)
        test_starve(damage_without_memory, &whole, SPECRT_STATUS_NO_MEMORY);
    for (size_t at = 0; at < n; at++) {
        const uint8_t old = ((const uint8_t *)good)[at];
        const uint8_t changed[] = {old ^ 1, 0, old ^ 0x80, old ^ 0x20, 0xff};
        memcpy(bytes, good, n);
        for (int i = 0; i < damage_changes; i++) {
            bytes[at] = changed[i];
            damage_try(bytes, n, read);
        }
        memcpy(bytes, good, at + 1);
        damage_try(bytes, at, read);
        memcpy(bytes + at + 1, (const uint8_t *)good + at, n - at);
        damage_try(bytes, n + 1, read);
    }
    free(bytes);
    qsort(damage.said, (size_t)damage.n_said, sizeof damage.said[0], damage_compare_said);
    fprintf(approved_out(), "== %s: %zu bytes, digest %016llx\n", name, n,
            (unsigned long long)damage.digest);
    for (int i = 0; i < damage.n_said; i++)
        fprintf(approved_out(), "%6d %s\n", damage.said[i].n, damage.said[i].text);
}

/* damage_seeds() : the same for seeds of a fuzzer, up to a NULL. */
static inline void damage_seeds(const char *fuzzer, const char *const *names, damage_reader read) {
    for (; *names; names++) {
        char path[200];
        file_view view;
        snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", fuzzer, *names);
        REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
        damage_everywhere(*names, view.bytes, view.n, read);
        sl_file_unmap(&view);
    }
}

#endif
