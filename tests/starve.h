/* starve.h : for tests that let each allocation fail. Include it before test.h. It wraps the malloc() of
 * guard.h and does nothing where there is none. */
#ifndef TESTS_STARVE_H
#define TESTS_STARVE_H

#include <stdbool.h>
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

static bool starve_own = false; /* shared libraries, which may report nothing, always have memory */

#ifdef GUARD_PAGE
static long starve_left = -1; /* blocks until there is no memory; -1: there always is */
extern char __executable_start, etext;

static inline int starve_refuses(const void *caller) {
    bool is_own = (const char *)caller >= &__executable_start && (const char *)caller < &etext;
    if (starve_own && !is_own) return 0;
    if (starve_left > 0) starve_left--;
    if (starve_left == 0) errno = ENOMEM;
    return starve_left == 0;
}

void *malloc(size_t bytes) {
    return starve_refuses(__builtin_return_address(0)) ? NULL : starve_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    return starve_refuses(__builtin_return_address(0)) ? NULL : starve_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes) {
    return starve_refuses(__builtin_return_address(0)) ? NULL : starve_realloc(p, bytes);
}
#endif

/* test_starve() : runs a function with memory for no block, for one, and so on until there is enough. The
 * function frees what it made and returns a status: `no_memory` each time, at last 0; or
 * STARVE_DID_WITHOUT, where a block that was only to save memory is missing and all else is there. */
#define STARVE_DID_WITHOUT (-1)
static inline void test_starve(int (*fn)(void *arg), void *arg, int no_memory) {
#ifdef GUARD_PAGE
    bool is_refused = true;
    for (long n = 1; n < 100000 && is_refused; n++) {
        starve_left = n; /* the last one is refused */
        int status = fn(arg);
        is_refused = starve_left == 0;
        starve_left = -1;
        if (status != STARVE_DID_WITHOUT) CHECK_INT(status, is_refused ? no_memory : 0);
    }
    CHECK(!is_refused);
#else
    (void)fn, (void)arg, (void)no_memory, (void)starve_own;
#endif
}

#endif
