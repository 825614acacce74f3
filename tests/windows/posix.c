/* posix.c : what tests ask of POSIX, on Windows. In a file of its own, for the sake of windows.h's names. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "folder.h"
#include "sys/mman.h"

long sysconf(int what) {
    SYSTEM_INFO info;
    (void)what;
    GetSystemInfo(&info);
    return (long)info.dwPageSize;
}

void *mmap(void *at, size_t n, int access, int flags, int file, long offset) {
    (void)access, (void)flags, (void)file, (void)offset;
    return VirtualAlloc(at, n, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
}

int mprotect(void *at, size_t n, int access) {
    DWORD before;
    return VirtualProtect(at, n, access ? PAGE_READWRITE : PAGE_NOACCESS, &before) ? 0 : -1;
}

int munmap(void *at, size_t n) {
    (void)n;
    return VirtualFree(at, 0, MEM_RELEASE) ? 0 : -1;
}

const char *windows_path(const char *name) {
    static char paths[8][1024];
    static int turn;
    wchar_t wide[MAX_PATH];
    char *path = paths[turn++ % 8];
    int n = 0;
    if (GetTempPathW(MAX_PATH, wide) > 0)
        n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, 700, NULL, NULL);
    snprintf(path + (n > 0 ? n - 1 : 0), 300, "specrt-%lu-%s", GetCurrentProcessId(), name);
    if (strcmp(name, ".") == 0) path[n > 0 ? n - 1 : 0] = 0;
    return path;
}

void windows_remove(const char *path) {
    wchar_t wide[1024];
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 1024) == 0 || !DeleteFileW(wide)) abort();
}
