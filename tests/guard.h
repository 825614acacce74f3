/* guard.h : a malloc() for tests. Every block ends where a page begins that nobody may touch, and is
 * filled with bytes that make no sensible number: a test crashes or fails where the code reads behind
 * an array, uses what it has not set, or touches what it has freed. Blocks larger or more than these
 * limits are the C library's own. */
#ifndef TESTS_GUARD_H
#define TESTS_GUARD_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

#define GUARD_PAGE   ((size_t)4096)
#define GUARD_ALIGN  ((size_t)16)
#define GUARD_BYTES  ((size_t)2 << 30) /* of addresses, each used once */
#define GUARD_BLOCKS 16000             /* two mappings each, of the system's 65,530 */

static char *guard_begin, *guard_next;
static int guard_n;

/* A page of `bytes` and GUARD_ALIGN before them, rounded up; the block stands at its end. */
static inline size_t guard_round(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static inline void *guard_take(size_t bytes) {
    if (!guard_begin) {
        void *all =
            mmap(NULL, GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return NULL;
        guard_begin = guard_next = (char *)all;
    }
    if (bytes > GUARD_BYTES / 8 || __atomic_load_n(&guard_n, __ATOMIC_RELAXED) >= GUARD_BLOCKS)
        return NULL;
    size_t used = guard_round(bytes, GUARD_ALIGN),
           pages = guard_round(used + GUARD_ALIGN, GUARD_PAGE);
    char *at = __atomic_fetch_add(&guard_next, pages + GUARD_PAGE, __ATOMIC_RELAXED);
    if (at + pages + GUARD_PAGE > guard_begin + GUARD_BYTES) return NULL;
    if (mprotect(at, pages, PROT_READ | PROT_WRITE) != 0) return NULL;
    __atomic_fetch_add(&guard_n, 1, __ATOMIC_RELAXED);
    char *p = at + pages - used;
    memset(p, 0xc5, used);
    memcpy(p - GUARD_ALIGN, &bytes, sizeof bytes);
    return p;
}

static inline int guard_owns(const void *p) {
    return guard_begin && (const char *)p >= guard_begin &&
           (const char *)p < guard_begin + GUARD_BYTES;
}

static inline size_t guard_size(const void *p) {
    size_t bytes;
    memcpy(&bytes, (const char *)p - GUARD_ALIGN, sizeof bytes);
    return bytes;
}

void *malloc(size_t bytes) {
    void *p = guard_take(bytes);
    return p ? p : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    void *p = bytes && n > SIZE_MAX / bytes ? NULL : guard_take(n * bytes);
    return p ? memset(p, 0, n * bytes) : __libc_calloc(n, bytes);
}

void free(void *p) {
    if (!guard_owns(p)) {
        __libc_free(p);
        return;
    }
    int kept = errno;
    size_t pages = guard_round(guard_round(guard_size(p), GUARD_ALIGN) + GUARD_ALIGN, GUARD_PAGE);
    char *at = (char *)((uintptr_t)p - GUARD_ALIGN) - ((uintptr_t)p - GUARD_ALIGN) % GUARD_PAGE;
    madvise(at, pages, MADV_DONTNEED);
    mprotect(at, pages, PROT_NONE);
    __atomic_fetch_sub(&guard_n, 1, __ATOMIC_RELAXED);
    errno = kept;
}

void *realloc(void *p, size_t bytes) {
    if (p && !guard_owns(p)) return __libc_realloc(p, bytes);
    void *q = malloc(bytes);
    if (!q || !p) return q;
    size_t n = guard_size(p) < bytes ? guard_size(p) : bytes;
    memcpy(q, p, n);
    free(p);
    return q;
}

#endif
