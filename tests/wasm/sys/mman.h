/* sys/mman.h : for tests in WebAssembly: the pages of fixture.h, which nothing protects there. The C library
 * has the same names, and refuses PROT_NONE. */
#ifndef WASM_SYS_MMAN_H
#define WASM_SYS_MMAN_H

#include <stddef.h>

enum { PROT_NONE, PROT_READ, PROT_WRITE, MAP_PRIVATE = 0, MAP_ANONYMOUS = 0 };
#define MAP_FAILED ((void *)0)
#define mmap       wasm_mmap
#define mprotect   wasm_mprotect
#define munmap     wasm_munmap

void *mmap(void *at, size_t n, int access, int flags, int file, long offset);
int mprotect(void *at, size_t n, int access);
int munmap(void *at, size_t n);

#endif
