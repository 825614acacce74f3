/* values.c : finds where JSON values begin and end, in one pass and bounded memory, so that
 * an array of any size streams. It follows strings and brackets only; whether a value is right is
 * for json-c to say. Where brackets do not match, or a line breaks inside a string, the value is
 * given up and reading goes on at the next line that looks like the one the value began on: same
 * indentation, same first byte. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"

enum {
    AHEAD = 1 << 18,
    MAX_INDENT = 4096,
    MAX_BRACKETS = 100000, /* of a long record: parsed, they take up to 800 bytes each */
    MAX_COMMAS = 1000000,
};

#define ONES  UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)

/* The high bit of every byte of w that equals c; exact up to the first such byte. */
static uint64_t bytes_equal(uint64_t w, char c) {
    uint64_t x = w ^ (ONES * (uint8_t)c);
    return (x - ONES) & ~x & HIGHS;
}

/* plain_run() : bytes before a quote, a backslash or a line feed. */
static size_t plain_run(const char *p, size_t n) {
    size_t i = 0;
    for (uint64_t w; n - i >= sizeof w; i += sizeof w) {
        memcpy(&w, p + i, sizeof w);
        uint64_t hits = bytes_equal(w, '"') | bytes_equal(w, '\\') | bytes_equal(w, '\n');
        if (hits) return i + (size_t)__builtin_ctzll(hits) / 8;
    }
    while (i < n && p[i] != '"' && p[i] != '\\' && p[i] != '\n') i++;
    return i;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool ends_scalar(char c) {
    return is_blank(c) || c == ',' || c == '{' || c == '}' || c == '[' || c == ']' || c == '"';
}

static const char *open_bracket(corpus_value_scanner *v, char c) {
    bool key_due = v->depth > 0 && v->is_object[v->depth - 1] && (v->last == '{' || v->last == ',');
    if (key_due) return "malformed JSON (a bracket where a key is due)";
    if (v->depth == CORPUS_MAX_DEPTH) return "malformed JSON (nested too deep)";
    v->is_object[v->depth++] = c == '{';
    return NULL;
}

static const char *close_bracket(corpus_value_scanner *v, char c) {
    if (v->depth == 0 || v->is_object[v->depth - 1] != (c == '}'))
        return "malformed JSON (brackets do not match)";
    v->depth--;
    return NULL;
}

/* scan_string() : inside a string. @return the bytes taken; v->in_string falls at its end. */
static size_t scan_string(corpus_value_scanner *v, const char *p, size_t n, const char **fault) {
    size_t i = 0;
    while (i < n) {
        if (v->escaped) {
            v->escaped = false;
            i++;
            continue;
        }
        i += plain_run(p + i, n - i);
        if (i == n) break;
        if (p[i] == '\n') {
            *fault = "malformed JSON (a line break inside a string)";
            break;
        }
        if (p[i++] == '"') {
            v->in_string = false;
            v->last = '"';
            break;
        }
        v->escaped = true;
    }
    return i;
}

/* scan_value() : go on with a value. @return the bytes taken; *done when they end it. */
static size_t scan_value(corpus_value_scanner *v, const char *p, size_t n, bool *done,
                         const char **fault) {
    size_t i = 0;
    *done = false;
    *fault = NULL;
    while (i < n && !*done) {
        if (v->in_string) {
            i += scan_string(v, p + i, n - i, fault);
            if (*fault) return i;
            *done = v->depth == 0 && !v->in_string;
            continue;
        }
        char c = p[i];
        if (v->in_scalar) {
            if (ends_scalar(c)) return *done = true, i;
            i++;
            continue;
        }
        switch (c) {
        case '"': v->in_string = true; break;
        case '{':
        case '[': *fault = open_bracket(v, c); break;
        case '}':
        case ']':
            *fault = close_bracket(v, c);
            *done = v->depth == 0;
            break;
        default: v->in_scalar = v->depth == 0; break;
        }
        if (*fault) return i;
        if (!is_blank(c)) v->last = c;
        i++;
    }
    return i;
}

bool sl_corpus_record_is_crowded(const char *text, size_t n) {
    corpus_value_scanner v = {0};
    const char *fault = NULL;
    size_t n_brackets = 0, n_commas = 0;
    for (size_t i = 0; i < n && !fault;) {
        if (v.in_string) {
            i += scan_string(&v, text + i, n - i, &fault);
            continue;
        }
        char c = text[i++];
        v.in_string = c == '"';
        n_brackets += c == '{' || c == '[';
        n_commas += c == ',';
    }
    return n_brackets > MAX_BRACKETS || n_commas > MAX_COMMAS;
}

bool sl_corpus_lines_are_values(const char *head, size_t n) {
    size_t at = 0;
    while (at < n && is_blank(head[at])) at++;
    const char *newline = n > at ? (const char *)memchr(head + at, '\n', n - at) : NULL;
    if (!newline) return true;
    size_t end = (size_t)(newline - head);
    corpus_value_scanner v = {0};
    while (at < end) {
        bool done;
        const char *fault;
        v.depth = 0, v.in_scalar = false, v.last = '\0';
        at += scan_value(&v, head + at, end - at, &done, &fault);
        if (fault) return true;
        if (!done) return v.depth == 0 || v.in_string;
        while (at < end && (is_blank(head[at]) || head[at] == ',')) at++;
    }
    return true;
}

specrt_status sl_corpus_values_add(corpus_value_list *list, corpus_value_span span) {
    if (!sl_reserve(&list->spans, &list->capacity, list->n + 1, sizeof *list->spans))
        return SPECRT_STATUS_NO_MEMORY;
    list->spans[list->n++] = span;
    return SPECRT_STATUS_OK;
}

void sl_corpus_values_begin(corpus_value_scanner *v, uint64_t at) {
    memset(v, 0, sizeof *v);
    v->at = v->line_at = at;
    v->line_blank = true;
}

/* line_of() : asked with rising offsets, so it counts each byte once. */
static uint64_t line_of(corpus_value_scanner *v, const corpus_window *w, uint64_t at) {
    if (v->counted_to < w->base || v->counted_to > at) {
        v->counted_to = w->base;
        v->n_lines = w->n_lines_before;
    }
    v->n_lines +=
        sl_corpus_count_lines(w->bytes + (v->counted_to - w->base), (size_t)(at - v->counted_to));
    v->counted_to = at;
    return v->n_lines + 1;
}

static void begin_value(corpus_value_scanner *v, char opener) {
    v->value_at = v->at;
    v->indent = v->line_blank && v->at - v->line_at <= MAX_INDENT ? v->at - v->line_at : 0;
    v->opener = opener;
    v->open = true;
    v->in_string = v->escaped = v->in_scalar = false;
    v->last = '\0';
    v->depth = 0;
    v->line_blank = false;
}

/* give_up() : note a broken value. Reading resumes at the line of the fault, if that is a later
 * one, for it may itself begin the next value. */
static specrt_status give_up(corpus_value_scanner *v, const corpus_window *w, const char *fault,
                             corpus_value_list *out) {
    specrt_status status = SPECRT_STATUS_OK;
    size_t value = (size_t)(v->value_at - w->base), at = (size_t)(v->at - w->base);
    if (v->mode == VALUES_SCAN)
        status = sl_corpus_values_add(out, (corpus_value_span){value, at - value, fault, at});
    v->fault = fault;
    v->fault_line = line_of(v, w, v->at);
    v->mode = VALUES_RESYNC;
    v->open = false;
    size_t from = v->value_at > w->base ? value : 0;
    const char *newline = (const char *)sl_find_last(w->bytes + from, '\n', at - from);
    v->line_blank = newline != NULL; /* at the start of a line */
    if (newline) v->at = w->base + (uint64_t)(newline - w->bytes) + 1;
    return status;
}

/* read_value() : go on with a value to its end, a fault, or the end of what the window has. */
static specrt_status read_value(corpus_value_scanner *v, const corpus_window *w,
                                corpus_value_list *out) {
    bool done;
    const char *fault;
    size_t at = (size_t)(v->at - w->base), value = (size_t)(v->value_at - w->base);
    v->at += scan_value(v, w->bytes + at, w->n - at, &done, &fault);
    if (fault) return give_up(v, w, fault, out);
    bool skipping = v->mode == VALUES_SKIP;
    if (!done && v->mode == VALUES_SCAN && v->at - v->value_at > CORPUS_CAP_BYTES) {
        v->mode = VALUES_SKIP;
        return sl_corpus_values_add(
            out, (corpus_value_span){value, CORPUS_CAP_BYTES, RECORD_TOO_LONG, value});
    }
    if (!done) return SPECRT_STATUS_OK;
    v->open = false;
    v->mode = VALUES_SCAN;
    if (skipping) return SPECRT_STATUS_OK;
    return sl_corpus_values_add(out, (corpus_value_span){value, v->at - v->value_at, NULL, 0});
}

/* between_values() : one byte at the top level. */
static void between_values(corpus_value_scanner *v, const corpus_window *w) {
    char c = w->bytes[v->at - w->base];
    if (is_blank(c) || c == ',' || c == '\x1E') {
        v->at++;
        if (c == '\n') v->line_at = v->at;
        v->line_blank = c == '\n' || (v->line_blank && is_blank(c));
    } else if (c == '[' && !v->in_array) {
        v->in_array = true;
        v->array_line = line_of(v, w, v->at);
        v->line_blank = false;
        v->at++;
    } else if (c == ']' && v->in_array) {
        v->in_array = false;
        v->line_blank = false;
        v->at++;
    } else
        begin_value(v, c);
}

/* resync() : look at one line, or leave one. */
static void resync(corpus_value_scanner *v, const corpus_window *w) {
    const char *p = w->bytes + (v->at - w->base), *end = w->bytes + w->n;
    if (!v->line_blank) {
        const char *newline = (const char *)memchr(p, '\n', (size_t)(end - p));
        v->line_blank = newline != NULL;
        v->at += (uint64_t)((newline ? newline + 1 : end) - p);
        return;
    }
    size_t i = 0;
    while (p + i < end && i < v->indent && (p[i] == ' ' || p[i] == '\t')) i++;
    bool closes = v->in_array && p + i < end && p[i] == ']';
    if (p + i < end && (closes || (i == v->indent && p[i] == v->opener))) {
        v->mode = VALUES_SCAN;
        v->line_at = v->at;
        v->at += i;
    } else
        v->line_blank = false;
}

static specrt_status at_end(corpus_value_scanner *v, const corpus_window *w, const corpus_stream *s,
                            corpus_value_list *out, specrt_error *err) {
    if (v->in_array && v->mode == VALUES_RESYNC)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s:%llu: %s; the rest of the array cannot be read", s->name,
                                (unsigned long long)v->fault_line, v->fault);
    if (v->in_array)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: the array that begins on line %llu is not closed; the file is "
                                "cut short",
                                s->name, (unsigned long long)v->array_line);
    if (!v->open || v->mode == VALUES_SKIP) return SPECRT_STATUS_OK;
    size_t value = (size_t)(v->value_at - w->base);
    v->open = false;
    const char *fault = v->in_scalar ? NULL : "malformed JSON (the file ends inside it)";
    return sl_corpus_values_add(out, (corpus_value_span){value, v->at - v->value_at, fault, value});
}

specrt_status sl_corpus_values_frame(corpus_value_scanner *v, corpus_window *w, corpus_stream *s,
                                     corpus_value_list *out, specrt_error *err) {
    uint64_t start = v->at;
    specrt_status status = SPECRT_STATUS_OK;
    out->n = 0;
    sl_corpus_window_drop(w, start);
    while (status == SPECRT_STATUS_OK) {
        bool whole = !v->open || v->mode == VALUES_SKIP;
        if (whole && v->at - start >= CORPUS_BATCH_BYTES) break;
        if (v->at + v->indent + 1 >= w->base + w->n)
            status = sl_corpus_window_fill(w, s, v->at + v->indent + AHEAD, err);
        if (status != SPECRT_STATUS_OK) return status;
        if (v->at >= w->base + w->n) return at_end(v, w, s, out, err);
        if (v->mode == VALUES_RESYNC)
            resync(v, w);
        else if (v->open)
            status = read_value(v, w, out);
        else
            between_values(v, w);
    }
    if (status == SPECRT_STATUS_NO_MEMORY) sl_error_no_memory(err, s->name);
    return status;
}
