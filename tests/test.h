/* test.h : a small test frame, with main(). TEST(name, "what it shows") begins the function of a case. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers have their own; on a GPU its driver allocates, too; a static program has the C library's. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&       \
    !defined(TEST_ON_GPU) && !defined(NO_GUARD)
#include "guard.h"
#endif

typedef struct test_case {
    const char *name, *what;
    void (*fn)(void);
    int line;
    struct test_case *next;
} test_case;

static test_case *test_cases; /* in the order of the file */
static int test_failures;     /* of the running case */
static int test_argc;
static char **test_argv;
static const char *test_skipped;
static jmp_buf test_escape;

static inline void test_add(test_case *added) {
    test_case **at = &test_cases;
    while (*at && (*at)->line < added->line) at = &(*at)->next;
    added->next = *at;
    *at = added;
}

#define TEST(name, what)                                                                           \
    static void case_##name(void);                                                                 \
    static __attribute__((constructor)) void add_case_##name(void) {                               \
        static test_case added = {#name, what, case_##name, __LINE__, NULL};                       \
        test_add(&added);                                                                          \
    }                                                                                              \
    static void case_##name(void)

/* CHECK goes on after a failure, REQUIRE leaves the case. Both take an optional printf-style detail. */
#define CHECK(cond) ((cond) ? (void)0 : test_fail(__FILE__, __LINE__, #cond))
#define REQUIRE(cond)                                                                              \
    ((cond) ? (void)0 : (test_fail(__FILE__, __LINE__, #cond), longjmp(test_escape, 1)))
#define CHECK_INT(a, b)                                                                            \
    test_check_int(__FILE__, __LINE__, #a " == " #b, (long long)(a), (long long)(b))
#define CHECK_STR(a, b) test_check_str(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define CHECK_HAS(text, part)                                                                      \
    test_check_has(__FILE__, __LINE__, #text " holds " #part, (text), (part))
#define CHECK_NEAR(a, b, tolerance)                                                                \
    test_check_near(__FILE__, __LINE__, #a " ~ " #b, (a), (b), (tolerance))
#define SKIP(reason) ((void)(test_skipped = (reason)), longjmp(test_escape, 1))

/* test_setting() : the value of the program's argument NAME=VALUE, or NULL. */
static inline const char *test_setting(const char *name) {
    size_t n = strlen(name);
    for (int i = 1; i < test_argc; i++)
        if (strncmp(test_argv[i], name, n) == 0 && test_argv[i][n] == '=')
            return test_argv[i] + n + 1;
    return NULL;
}

/* test_brief() : a test takes so much of its data as reaches all of its code; EVERYTHING=1 takes all
 * (`make test-all`). test_quick() : so much as shows its basic promise, in `make test` of a plain build,
 * where tests/run.sh sets TEST_QUICK. LEFT_TO_ALL() : a case that is breadth alone. */
static inline int test_brief(void) {
    return getenv("EVERYTHING") == NULL;
}
static inline int test_quick(void) {
    return getenv("TEST_QUICK") != NULL;
}
#define LEFT_TO_ALL() (test_quick() ? SKIP("takes its time: make test-all") : (void)0)

static inline void test_fail(const char *file, int line, const char *what) {
    if (test_failures++ < 10) fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
}

static inline void test_check_int(const char *file, int line, const char *what, long long a,
                                  long long b) {
    if (a == b) return;
    if (test_failures++ < 10) fprintf(stderr, "%s:%d: %s: %lld, %lld\n", file, line, what, a, b);
}

static inline void test_check_str(const char *file, int line, const char *what, const char *a,
                                  const char *b) {
    if (a && b && strcmp(a, b) == 0) return;
    if (test_failures++ < 10)
        fprintf(stderr, "%s:%d: %s: \"%s\", \"%s\"\n", file, line, what, a ? a : "(null)",
                b ? b : "(null)");
}

static inline void test_check_has(const char *file, int line, const char *what, const char *text,
                                  const char *part) {
    if (text && strstr(text, part)) return;
    if (test_failures++ < 10)
        fprintf(stderr, "%s:%d: %s: \"%s\", \"%s\"\n", file, line, what, text ? text : "(null)",
                part);
}

static inline void test_check_near(const char *file, int line, const char *what, double a, double b,
                                   double tolerance) {
    if (fabs(a - b) <= tolerance) return;
    if (test_failures++ < 10)
        fprintf(stderr, "%s:%d: %s: %.9g, %.9g (tolerance %g)\n", file, line, what, a, b,
                tolerance);
}

/* test_data() : path of a file under the optional data folder ($SPECRT_DATA, else ../shared/data);
 * skips the case when it is missing. */
static inline const char *test_data(const char *relative) {
    static char paths[8][1024];
    static int turn;
    char *path = paths[turn++ % 8];
    const char *root = getenv("SPECRT_DATA");
    snprintf(path, sizeof paths[0], "%s/%s", root && *root ? root : "../shared/data", relative);
    FILE *f = fopen(path, "r");
    if (!f) SKIP("data folder is missing");
    fclose(f);
    return path;
}

#ifndef NO_TEST_MAIN /* in a benchmark that includes a header of tests */

/* What a program does before its cases, if anything. */
static void (*test_begins)(void);

/* Apart from main, whose variables a longjmp must not clobber. */
static __attribute__((noinline)) void test_run(void (*fn)(void)) {
    if (setjmp(test_escape) == 0) fn();
}

int main(int argc, char **argv) {
    const char *filter = NULL;
    int passed = 0, failed = 0, skipped = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            for (test_case *c = test_cases; c; c = c->next) printf("%-28s %s\n", c->name, c->what);
            return 0;
        }
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            filter = argv[++i];
        else if (!strchr(argv[i], '='))
            return fprintf(stderr, "usage: %s [--list] [--filter TEXT] [NAME=VALUE]\n", argv[0]), 2;
    }
    if (!test_cases) return fprintf(stderr, "%s: no cases\n", argv[0]), 2;
    test_argc = argc, test_argv = argv;
    if (test_begins) test_begins();
    for (test_case *c = test_cases; c; c = c->next) {
        if (filter && !strstr(c->name, filter)) continue;
        test_failures = 0;
        test_skipped = NULL;
        test_run(c->fn);
        if (test_failures)
            failed++, printf("FAIL %s: %s\n", c->name, c->what);
        else if (test_skipped)
            skipped++, printf("skipped %s: %s\n", c->name, test_skipped);
        else
            passed++;
    }
    if (filter && passed + failed + skipped == 0)
        return fprintf(stderr, "%s: no test's name holds '%s'\n", argv[0], filter), 2;
    const char *base = strrchr(argv[0], '/');
    printf("%s: %d passed, %d failed, %d skipped\n", base ? base + 1 : argv[0], passed, failed,
           skipped);
    return failed ? 1 : 0;
}

#endif

#endif
