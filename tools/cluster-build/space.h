/* space.h : the rows of a head as a drafter's states tell them apart. */
#ifndef CLUSTER_BUILD_SPACE_H
#define CLUSTER_BUILD_SPACE_H

#include "examples.h"
#include "rows.h"

typedef struct space {
    row_set rows;     /* rows L' w of those given, in their order, with ids 0, 1, ... */
    uint16_t *matrix; /* f16 [rows.n, n_cols] of length 1, owned */
} space;

/* space_open() : with C = L L' the second moment of states h about their mean, products h x and h y of two
 * rows differ on average by as much as L' x and L' y are apart: rows near each other score alike. A
 * thousandth of C's mean is added to its diagonal: states are few.
 *   set : its states have the columns of r's head
 * @return NO_MEMORY; BAD_INPUT: states that do not vary. */
specrt_status space_open(const row_set *r, const example_set *set, int threads, space *out,
                         specrt_error *err);
void space_close(space *s);

#endif
