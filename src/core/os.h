/* os.h : what is asked of the operating system */
#ifndef CORE_OS_H
#define CORE_OS_H

#include "core/base.h"

/* What was written before a store is seen after the load that gives its value. */
#if defined(__GNUC__)
static inline uint32_t specrt__os_load(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void specrt__os_store(uint32_t *p, uint32_t value) {
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
#else /* Microsoft's volatile orders so */
static inline uint32_t specrt__os_load(const uint32_t *p) {
    return *(const volatile uint32_t *)p;
}

static inline void specrt__os_store(uint32_t *p, uint32_t value) {
    *(volatile uint32_t *)p = value;
}
#endif

typedef struct specrt__os_map {
    const void *bytes; /* NULL: nothing mapped */
    size_t n;
} specrt__os_map;

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err);
SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map);
SPECRT__INTERNAL void specrt__os_yield(void);
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n);

#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
/* For costs: a clock that does not go back, in seconds; processors in use; whether files can be created in a
 * folder; whether a folder is there, or was created; a file by its path in UTF-8; whether a file was replaced
 * as a whole. */
SPECRT__INTERNAL double specrt__os_seconds(void);
SPECRT__INTERNAL long specrt__os_processors(void);
SPECRT__INTERNAL bool specrt__os_can_write(const char *folder);
SPECRT__INTERNAL bool specrt__os_make_folder(const char *path);
SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n); /* the user's folder for caches */
SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode);
SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n);
#endif

#endif
