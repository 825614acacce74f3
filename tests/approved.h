/* approved.h : text that a test prints and someone approved: NAME.exact, which ACCEPT=1 writes anew, to be
 * read as a diff. */
#ifndef APPROVED_H
#define APPROVED_H

#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "test.h"

static struct {
    FILE *f;
    char *text;
    size_t n;
} approved;

/* approved_out() : what is printed here is compared. */
static inline FILE *approved_out(void) {
    if (!approved.f) approved.f = open_memstream(&approved.text, &approved.n);
    REQUIRE(approved.f);
    return approved.f;
}

/* approved_begin_stdout() : what is printed on stdout is compared, too, until it is what was returned. */
static inline FILE *approved_begin_stdout(void) {
    FILE *out = stdout;
    stdout = approved_out();
    return out;
}

/* Whether the line from p to `end` occurs before. */
static inline bool approved_is_repeated(const char *text, const char *p, const char *end) {
    for (const char *q = text, *q_end; q < p; q = q_end + 1) {
        q_end = (const char *)memchr(q, '\n', (size_t)(p - q));
        if (q_end - q == end - p && memcmp(q, p, (size_t)(end - p)) == 0) return true;
    }
    return false;
}

/* approved_condense() : of lines that were printed before, how many follow each other; pages that have most
 * of their lines in common are approved once. */
static inline void approved_condense(void) {
    REQUIRE(fclose(approved_out()) == 0);
    char *text = approved.text;
    const char *last = text + approved.n;
    int n_repeated = 0;
    approved.f = NULL;
    for (const char *p = text, *end; p < last; p = end + 1) {
        end = (const char *)memchr(p, '\n', (size_t)(last - p));
        if (!end) end = last;
        bool repeated = approved_is_repeated(text, p, end);
        if (!repeated && n_repeated > 0)
            fprintf(approved_out(), "(%d lines as before)\n", n_repeated);
        n_repeated = repeated ? n_repeated + 1 : 0;
        if (!repeated) fprintf(approved_out(), "%.*s\n", (int)(end - p), p);
    }
    if (n_repeated > 0) fprintf(approved_out(), "(%d lines as before)\n", n_repeated);
    free(text);
}

/* The lines of one text that the other one lacks, up to ten. */
static inline void approved_print_more(const char *text, size_t n, const char *other,
                                       size_t n_other, char sign) {
    int count = 0;
    for (const char *p = text, *end; p < text + n; p = end + 1) {
        end = (const char *)memchr(p, '\n', (size_t)(text + n - p));
        if (!end) end = text + n;
        if (memmem(other, n_other, p, (size_t)(end - p)) != NULL) continue;
        if (count++ < 10) printf("%c %.*s\n", sign, (int)(end - p), p);
    }
}

/* approved_compare() : all that was printed with a file. */
static inline void approved_compare(const char *path) {
    file_view view = {0};
    REQUIRE(fclose(approved_out()) == 0);
    approved.f = NULL;
    if (getenv("ACCEPT")) CHECK_INT(sl_out_bytes(path, true, approved.text, approved.n, NULL), 0);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    const char *text = (const char *)view.bytes;
    if (view.n != approved.n || memcmp(text, approved.text, view.n) != 0) {
        approved_print_more(text, view.n, approved.text, approved.n, '-');
        approved_print_more(approved.text, approved.n, text, view.n, '+');
        test_fail(path, 0, "as approved; ACCEPT=1 writes it anew");
    }
    sl_file_unmap(&view);
    free(approved.text);
}

#endif
