/* drawn.h : numbers for the weights of small test models. */
#ifndef TESTS_DRAWN_H
#define TESTS_DRAWN_H

#include <stdint.h>

/* The next of a sequence in [-1, 1). */
static inline double drawn(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / 1073741824.0 - 1;
}

#endif
