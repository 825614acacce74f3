/* starve.h : for tests that let each allocation fail. Include it before test.h. It wraps the malloc() of
 * guard.h and does nothing where there is none. */
#ifndef TESTS_STARVE_H
#define TESTS_STARVE_H

#include <stdlib.h>

#define malloc  starve_malloc
#define calloc  starve_calloc
#define realloc starve_realloc
void *starve_malloc(size_t bytes);
void *starve_calloc(size_t n, size_t bytes);
void *starve_realloc(void *p, size_t bytes);
#include "test.h"
#undef malloc
#undef calloc
#undef realloc

#ifdef GUARD_PAGE
static long starve_left = -1; /* blocks until there is no memory; -1: there always is */

static inline int starve_refuses(void) {
    if (starve_left > 0) starve_left--;
    if (starve_left == 0) errno = ENOMEM;
    return starve_left == 0;
}

void *malloc(size_t bytes) {
    return starve_refuses() ? NULL : starve_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    return starve_refuses() ? NULL : starve_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes) {
    return starve_refuses() ? NULL : starve_realloc(p, bytes);
}
#endif

/* test_starve() : runs a function with memory for no block, for one, and so on until it succeeds. The
 * function frees what it made and returns a status: `no_memory` each time, at last 0. */
static inline void test_starve(int (*fn)(void *arg), void *arg, int no_memory) {
#ifdef GUARD_PAGE
    int status = no_memory;
    for (long n = 1; n < 1000 && status == no_memory; n++) {
        starve_left = n; /* the last one is refused */
        status = fn(arg);
        starve_left = -1;
    }
    CHECK_INT(status, 0);
#else
    (void)fn, (void)arg, (void)no_memory;
#endif
}

#endif
