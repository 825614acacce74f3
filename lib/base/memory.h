/* memory.h : arrays, where an error says what there was no room for. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdbool.h>
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

/* sl_reserve() : room for `need` items of `size` bytes in *array, a pointer of any type, owned. What grows at
 * least doubles. @return false: no memory, and the array is as it was */
static inline bool sl_reserve(void *array, size_t *capacity, size_t need, size_t size) {
    void *items;
    memcpy(&items, array, sizeof items);
    if (need <= *capacity) return true;
    if (need < 2 * *capacity) need = 2 * *capacity;
    items = realloc(items, need * size);
    if (!items) return false;
    memcpy(array, &items, sizeof items);
    *capacity = need;
    return true;
}

/* sl_more() : the place of item n in *array, a pointer of any type, owned, which grew by this function from 0
 * items on: its room is the next power of two. @return NULL: no memory, and the array is as it was */
static inline void *sl_more(void *array, size_t n, size_t size) {
    void *items;
    memcpy(&items, array, sizeof items);
    if ((n & (n - 1)) == 0) {
        items = realloc(items, (n ? 2 * n : 1) * size);
        if (!items) return NULL;
        memcpy(array, &items, sizeof items);
    }
    return (char *)items + n * size;
}

/* Arrays that are freed together. Zero-initialise. */
typedef struct sl_arrays {
    void **items; /* [n] owned, and so is each */
    size_t n;
    bool failed; /* there was no memory for one of them */
} sl_arrays;

/* sl_array() : zeros for n items of `size` bytes, one of the arrays; also where n is 0. NULL: no memory. */
static inline void *sl_array(sl_arrays *arrays, size_t n, size_t size) {
    void **at = (void **)sl_more(&arrays->items, arrays->n, sizeof *at);
    if (at) {
        *at = calloc(n ? n : 1, size);
        arrays->n++;
    }
    if (!at || !*at) arrays->failed = true;
    return at ? *at : NULL;
}

static inline void sl_arrays_free(sl_arrays *arrays) {
    for (size_t i = 0; i < arrays->n; i++) free(arrays->items[i]);
    free((void *)arrays->items);
    *arrays = (sl_arrays){0};
}

#endif
