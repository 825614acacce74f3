/* text.c : see text.h. */
#include "base/text.h"

#include <math.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

const char *sl_text_count(uint64_t n) {
    static char buffers[8][32];
    static int turn;
    char digits[24], *out = buffers[turn++ % 8], *p = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *p++ = ',';
        *p++ = digits[i];
    }
    *p = '\0';
    return out;
}

void sl_text_number(double x, int width, int digits) {
    if (isnan(x))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, x);
}

/* What a terminal obeys, and what misleads its reader: controls, ends of lines, changes of direction. */
static bool is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029 ||
           (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Whether the character at p[0..n), n > 0, may be shown as it is; *len its bytes, 1 of what is no UTF-8. */
static bool is_shown(const uint8_t *p, size_t n, int *len, uint32_t *cp) {
    *len = 1;
    if (sl_utf8_valid((const char *)p, n < 4 ? n : 4) == 0) return false;
    *cp = utf8_next(p, len);
    return !is_control(*cp);
}

void sl_text_clean(char *text) {
    char *out = text;
    uint32_t cp;
    size_t n = strlen(text);
    for (int len; n > 0; text += len, n -= (size_t)len) {
        bool shown = is_shown((const uint8_t *)text, n, &len, &cp);
        if (shown) memmove(out, text, (size_t)len);
        if (!shown) *out = '?';
        out += shown ? len : 1;
    }
    *out = '\0';
}

const char *sl_text_name(const char *name) {
    enum { CAPACITY = 256 };
    static char buffers[8][CAPACITY];
    static int turn;
    char *out = buffers[turn++ % 8];
    size_t n = strnlen(name, CAPACITY);
    bool cut = n == CAPACITY;
    if (cut) {
        n = CAPACITY - sizeof "...";
        while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80) n--; /* not inside a character */
    }
    memcpy(out, name, n);
    strcpy(out + n, cut ? "..." : "");
    sl_text_clean(out);
    return out;
}

/* Columns of the character at p as sl_text_clean() shows it. */
static int columns_at(const char *p, int *len, bool *shown) {
    uint32_t cp = 0;
    *shown = is_shown((const uint8_t *)p, strnlen(p, 4), len, &cp);
    return *shown ? utf8proc_charwidth((utf8proc_int32_t)cp) : 1;
}

int sl_text_columns(const char *text) {
    bool shown;
    int n = 0, len;
    for (; *text; text += len) n += columns_at(text, &len, &shown);
    return n;
}

/* What fits into n_columns, to `out` unless that is NULL. @return the columns left. */
static int put_columns(const char *text, int n_columns, FILE *out) {
    bool shown;
    for (int len; *text; text += len) {
        int width = columns_at(text, &len, &shown);
        if (width > n_columns) break;
        if (out) fwrite(shown ? text : "?", 1, shown ? (size_t)len : 1, out);
        n_columns -= width;
    }
    return n_columns;
}

void sl_text_pad(const char *text, int n_columns, FILE *out) {
    int left = put_columns(text, n_columns, out);
    fprintf(out, "%*s", left, "");
}

void sl_text_pad_left(const char *text, int n_columns, FILE *out) {
    fprintf(out, "%*s", put_columns(text, n_columns, NULL), "");
    put_columns(text, n_columns, out);
}

void sl_text_lines(const char *text, FILE *out) {
    char *copy = strdup(text), *rest = copy;
    for (char *tab = copy; tab && (tab = strchr(tab, '\t'));) *tab = ' ';
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        sl_text_clean(line);
        fprintf(out, "%s\n", line);
    }
    free(copy);
}

void sl_text_token(const uint8_t *bytes, size_t n, char *out) {
    uint32_t cp;
    int len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        uint8_t byte = bytes[i];
        bool shown = is_shown(bytes + i, n - i, &len, &cp);
        if (byte == ' ')
            out += sprintf(out, "\xe2\x90\xa3");
        else if (byte == '\n' || byte == '\t' || byte == '\r')
            out += sprintf(out, "\\%c", byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r');
        else if (shown)
            memcpy(out, bytes + i, (size_t)len), out += len;
        else
            for (int k = 0; k < len; k++) out += sprintf(out, "\\x%02x", bytes[i + (size_t)k]);
    }
    *out = '\0';
}
