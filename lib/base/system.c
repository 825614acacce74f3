/* system.c : see system.h. */
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __linux__
#include <signal.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

int sl_pipe(int ends[2]) {
    return pipe2(ends, O_CLOEXEC);
}

bool sl_exchange(const char *a, const char *b) {
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

bool sl_is_local(int fd) {
    static const uint32_t local[] = {0xEF53,     0x58465342, 0x9123683E, 0x01021994, 0x858458F6,
                                     0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E};
    /* ext, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS, bcachefs */
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if ((uint32_t)fs.f_type == local[i]) return true;
    return false;
}

FILE *sl_unnamed_file(void) {
    int fd = memfd_create("specrt", MFD_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w+");
    if (fd >= 0 && !file) close(fd);
    return file;
}

struct timespec sl_modified(const struct stat *file) {
    return file->st_mtim;
}

const char *sl_program_name(void) {
    return program_invocation_name;
}

bool sl_program_path(char *path, size_t n) {
    ssize_t length = readlink("/proc/self/exe", path, n);
    if (length <= 0 || (size_t)length == n) return false;
    path[length] = '\0';
    return true;
}

void sl_end_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
}

void *sl_find_last(const void *bytes, int byte, size_t n) {
    return (void *)memrchr(bytes, byte, n);
}

void sl_sort(void *items, size_t n, size_t size, int compare(const void *, const void *, void *),
             void *user) {
    qsort_r(items, n, size, compare, user);
}

void sl_read_ahead(int fd) {
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

void sl_large_pages(void *memory, size_t bytes) {
    madvise(memory, bytes, MADV_HUGEPAGE);
}

#else /* macOS */
#include <mach-o/dyld.h>
#include <sys/mount.h>

int sl_pipe(int ends[2]) {
    if (pipe(ends) != 0) return -1;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return 0;
}

bool sl_exchange(const char *a, const char *b) {
    return renamex_np(a, b, RENAME_SWAP) == 0;
}

bool sl_is_local(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_flags & MNT_LOCAL;
}

FILE *sl_unnamed_file(void) {
    FILE *file = tmpfile();
    if (file) fcntl(fileno(file), F_SETFD, FD_CLOEXEC);
    return file;
}

struct timespec sl_modified(const struct stat *file) {
    return file->st_mtimespec;
}

const char *sl_program_name(void) {
    return getprogname();
}

bool sl_program_path(char *path, size_t n) {
    uint32_t most = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return _NSGetExecutablePath(path, &most) == 0 && strchr(path, '/');
}

void sl_end_with_parent(void) {}

void *sl_find_last(const void *bytes, int byte, size_t n) {
    const unsigned char *p = bytes;
    while (n > 0 && p[n - 1] != byte) n--;
    return n > 0 ? (void *)(p + n - 1) : NULL;
}

typedef struct ordering {
    int (*compare)(const void *, const void *, void *);
    void *user;
} ordering;

static int compare_by(void *user, const void *a, const void *b) {
    const ordering *by = user;
    return by->compare(a, b, by->user);
}

void sl_sort(void *items, size_t n, size_t size, int compare(const void *, const void *, void *),
             void *user) {
    ordering by = {compare, user};
    qsort_r(items, n, size, &by, compare_by);
}

void sl_read_ahead(int fd) {
    fcntl(fd, F_RDAHEAD, 1);
}

void sl_large_pages(void *memory, size_t bytes) {
    (void)memory, (void)bytes;
}
#endif
