/* sys/mman.h : for tests on Windows: the pages of fixture.h. */
#ifndef WINDOWS_SYS_MMAN_H
#define WINDOWS_SYS_MMAN_H

#include <stddef.h>

enum { PROT_NONE, PROT_READ, PROT_WRITE, MAP_PRIVATE = 0, MAP_ANONYMOUS = 0, _SC_PAGESIZE = 0 };
#define MAP_FAILED ((void *)0)

long sysconf(int what);
void *mmap(void *at, size_t n, int access, int flags, int file, long offset);
int mprotect(void *at, size_t n, int access);
int munmap(void *at, size_t n);

#endif
