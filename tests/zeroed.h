/* zeroed.h : memory of zeros, in which a list of places that was not set names the first place, not none */
#ifndef TESTS_ZEROED_H
#define TESTS_ZEROED_H

#include <stdlib.h>
#include "specrt.h"

static inline void *zeroed_alloc(void *user, size_t bytes) {
    (void)user;
    return calloc(1, bytes);
}

static inline void zeroed_free(void *user, void *ptr) {
    (void)user;
    free(ptr);
}

static const specrt_env zeroed = {.alloc = zeroed_alloc, .free = zeroed_free};

#endif
