/* memory.h : arrays, where an error says what there was no room for. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

/* sl_new() : zeros for n items of `size` bytes into *array, a pointer of any type, owned; also where n is 0.
 *   what : of "out of memory for WHAT"
 * @return OK, or NO_MEMORY and *array is NULL */
static inline specrt_status sl_new(void *array, size_t n, size_t size, const char *what,
                                   specrt_error *err) {
    void *memory = calloc(n ? n : 1, size);
    memcpy(array, &memory, sizeof memory);
    return memory ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "%s", what);
}

#endif
