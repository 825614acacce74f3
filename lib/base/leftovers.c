/* leftovers.c : see leftovers.h. */
#include "base/leftovers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/system.h"

enum { N_RANDOM = 6, N_SUFFIX = sizeof TEMP_SUFFIX - 1, N_TRIES = 64 };

/* Another tool that looks for leftovers may have come between the file and its lock: its lock is in the
 * way, or the file is gone already. */
static bool was_taken(int fd) {
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return true;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

static int make_file(char *temp) {
    return mkostemp(temp, O_CLOEXEC);
}

static int make_folder(char *temp) {
    return mkdtemp(temp) ? open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static int create(char *temp, int make(char *temp)) {
    size_t n = strlen(temp);
    for (int i = 0; i < N_TRIES; i++) {
        memset(temp + n - N_RANDOM, 'X', N_RANDOM);
        int fd = make(temp);
        if (fd < 0 || !was_taken(fd)) return fd;
        remove(temp);
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

int sl_leftovers_create(char *temp) {
    return create(temp, make_file);
}

int sl_leftovers_create_folder(char *temp) {
    return create(temp, make_folder);
}

static bool is_temp_of(const char *name, const char *base, size_t n_base) {
    if (strlen(name) != n_base + N_SUFFIX || memcmp(name, base, n_base) != 0 ||
        memcmp(name + n_base, TEMP_SUFFIX, N_SUFFIX - N_RANDOM) != 0)
        return false;
    for (const char *p = name + n_base + N_SUFFIX - N_RANDOM; *p; p++)
        if (!isalnum((unsigned char)*p)) return false;
    return true;
}

/* The files of a folder, which has no folders. */
static void empty(int fd) {
    DIR *folder = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    if (folder) closedir(folder);
}

static void remove_unless_locked(int folder, const char *name) {
    struct stat st;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EISDIR)
        fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    bool ours = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
                flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (ours && S_ISDIR(st.st_mode)) empty(fd);
    if (ours) unlinkat(folder, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
    close(fd);
}

void sl_leftovers_remove(int fd, const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    DIR *folder = fd >= 0 && sl_is_local(fd) ? fdopendir(fd) : NULL;
    if (!folder) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (is_temp_of(entry->d_name, base, strlen(base)))
            remove_unless_locked(dirfd(folder), entry->d_name);
    closedir(folder);
}
