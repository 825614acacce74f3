/* posix.c : what tests ask of POSIX, in WebAssembly, which has neither protected pages nor threads. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sys/mman.h"

/* What longjmp() throws: the C library's is to be defined by the program. */
__asm__(".globl __c_longjmp\n.tagtype __c_longjmp i32\n__c_longjmp:\n");

void *mmap(void *at, size_t n, int access, int flags, int file, long offset) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (n + page - 1) / page * page;
    (void)at, (void)access, (void)flags, (void)file, (void)offset;
    at = aligned_alloc(page, all);
    return at ? memset(at, 0, all) : MAP_FAILED;
}

int mprotect(void *at, size_t n, int access) {
    (void)at, (void)n, (void)access;
    return 0;
}

int munmap(void *at, size_t n) {
    (void)n;
    free(at);
    return 0;
}

/* One thread after the other: each ends before its maker goes on. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *arg) {
    (void)attributes;
    *thread = (pthread_t)run(arg);
    return 0;
}

int pthread_join(pthread_t thread, void **result) {
    if (result) *result = (void *)thread;
    return 0;
}
