/* io.c : see io.h. Temporary files are kept in a small table that the signal handler can walk. */
#include "specrt_tools.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/child.h"
#include "base/error.h"
#include "base/leftovers.h"

enum { MAX_TEMPS = 64 };
/* Written with signals blocked, read in the handler. */
static char *volatile temps[MAX_TEMPS];

static void block_signals(sigset_t *old) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, old);
}

int sl_temp_keep(char *temp, int create(char *temp)) {
    int slot = 0, fd = 0;
    while (slot < MAX_TEMPS && temps[slot]) slot++;
    if (slot == MAX_TEMPS) return errno = EMFILE, -1;
    sigset_t old;
    block_signals(&old);
    if (create) fd = create(temp);
    if (fd >= 0) temps[slot] = temp;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return fd;
}

void sl_temp_forget(const char *temp) {
    for (int i = 0; i < MAX_TEMPS; i++)
        if (temps[i] == temp) temps[i] = NULL;
}

/* Folders, which have to be empty, after all files. */
static void remove_temps(void) {
    for (int i = 0; i < MAX_TEMPS; i++)
        if (temps[i]) unlink(temps[i]);
    for (int i = 0; i < MAX_TEMPS; i++)
        if (temps[i]) rmdir(temps[i]);
}

/* The signal is blocked here and has its default action again, so that the process dies of it on return. */
static void on_closed_pipe(int signal_number) {
    remove_temps();
    sl_child_end_all();
    raise(signal_number);
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    remove_temps();
    sl_child_end_all();
    static const char newline[] = "\n";
    if (write(STDERR_FILENO, newline, 1)) {
    } /* leaves a progress line behind */
    _exit(130);
}

void sl_io_guard_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(1);
}

void sl_io_cleanup_on_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigfillset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction hup; /* nohup has it ignored, and means it */
    if (sigaction(SIGHUP, NULL, &hup) != 0 || hup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    /* Parents that ignore SIGPIPE, as some CI systems do, do not mean an error message for every `head`. */
    action.sa_handler = on_closed_pipe;
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGPIPE, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file beyond `ulimit -f` is a write error with a message */
}

static specrt_status io_error(specrt_error *err, const char *path, const char *what) {
    specrt_status status = errno == ENOMEM ? SPECRT_STATUS_NO_MEMORY : SPECRT_STATUS_IO;
    return specrt_error_set(err, status, "%s: %s: %s", path, what, strerror(errno));
}

/* A pipe or device has no size to map. */
static specrt_status read_all(int fd, const char *path, file_view *out, specrt_error *err) {
    const size_t most = (size_t)1 << 30; /* some devices never end */
    size_t capacity = 1 << 16, n = 0;
    uint8_t *bytes = (uint8_t *)malloc(capacity);
    while (bytes) {
        ssize_t got = read(fd, bytes + n, capacity - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        if (got == 0) {
            *out = (file_view){bytes, n, false};
            return SPECRT_STATUS_OK;
        }
        n += (size_t)got;
        if (n == most) {
            free(bytes);
            return specrt_error_set(err, SPECRT_STATUS_IO,
                                    "%s: over 1 GiB from a pipe or device; expected a file", path);
        }
        if (n == capacity) {
            uint8_t *grown = (uint8_t *)realloc(bytes, capacity *= 2);
            if (!grown) break;
            bytes = grown;
        }
    }
    if (!bytes) errno = ENOMEM;
    specrt_status status = io_error(err, path, "cannot read");
    free(bytes);
    return status;
}

static specrt_status map_fd(int fd, const char *path, file_view *out, specrt_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return io_error(err, path, "cannot read");
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return io_error(err, path, "cannot read");
    }
    if (!S_ISREG(st.st_mode)) return read_all(fd, path, out, err);
    if (st.st_size == 0) return SPECRT_STATUS_OK;
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return io_error(err, path, "cannot map");
    *out = (file_view){(const uint8_t *)bytes, (size_t)st.st_size, true};
    return SPECRT_STATUS_OK;
}

/* Git leaves a line of text where it has not fetched a large file. */
static specrt_status refuse_pointer(const char *path, file_view *view, specrt_error *err) {
    static const char start[] = "version https://git-lfs.github.com/spec/v1";
    if (view->n < sizeof start - 1 || memcmp(view->bytes, start, sizeof start - 1) != 0)
        return SPECRT_STATUS_OK;
    sl_file_unmap(view);
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "%s: expected a file, found a Git LFS pointer to it; run git lfs pull "
                            "in its repository",
                            path);
}

specrt_status sl_file_map(const char *path, file_view *out, specrt_error *err) {
    *out = (file_view){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_error(err, path, "cannot open");
    specrt_status status = map_fd(fd, path, out, err);
    close(fd);
    return status ? status : refuse_pointer(path, out, err);
}

specrt_status sl_file_map_regular(const char *path, file_view *out, specrt_error *err) {
    struct stat st;
    *out = (file_view){0};
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a file, found a pipe or device", path);
    return sl_file_map(path, out, err);
}

void sl_file_unmap(file_view *view) {
    void *bytes = (void *)(uintptr_t)view->bytes;
    if (view->mapped)
        munmap(bytes, view->n);
    else
        free(bytes);
    *view = (file_view){0};
}

/* Make the temporary file with the permissions a plain create would have given. */
static specrt_status open_temp(out_file *out, const char *path, specrt_error *err) {
    size_t n = strlen(path) + sizeof TEMP_SUFFIX;
    out->temp = (char *)malloc(n);
    if (!out->temp) return sl_error_no_memory(err, path);
    snprintf(out->temp, n, "%s" TEMP_SUFFIX, path);
    sl_leftovers_remove(sl_folder_open(path), path);
    int fd = sl_temp_keep(out->temp, sl_leftovers_create);
    if (fd < 0) return io_error(err, path, "cannot create");
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    out->f = fdopen(fd, "wb");
    return out->f ? SPECRT_STATUS_OK : io_error(err, path, "cannot create");
}

static specrt_status open_through(out_file *out, const char *path, specrt_error *err) {
    int fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
    out->f = fd < 0 ? NULL : fdopen(fd, "wb");
    return out->f ? SPECRT_STATUS_OK : io_error(err, path, "cannot open for writing");
}

/* Whether `path` is a symbolic link; keeps errno. */
static bool is_link(const char *path) {
    struct stat st;
    int error = errno;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    errno = error;
    return link;
}

/* What stands at `path`; *through: it is no regular file, so it cannot be replaced by a rename. */
static specrt_status look_at(const char *path, bool force, bool *through, specrt_error *err) {
    struct stat st;
    bool exists = stat(path, &st) == 0;
    *through = strcmp(path, "-") == 0 || (exists && !S_ISREG(st.st_mode));
    if (!exists && is_link(path))
        return specrt_error_set(
            err, SPECRT_STATUS_IO,
            "%s: expected a file, found a link %s; remove the link, or create the file that it "
            "names",
            path, errno == ELOOP ? "in a circle of links" : "to a file that does not exist");
    if (exists && S_ISDIR(st.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: expected a file, found a folder", path);
    if (exists && !*through && !force)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: exists; use -f to replace it",
                                path);
    return SPECRT_STATUS_OK;
}

bool sl_io_is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool sl_io_is_one(const char *a, const char *b) {
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Where a link leads: the file is replaced, not the link. Owned; NULL: no memory. */
static char *behind_links(const char *path) {
    char *real = is_link(path) ? realpath(path, NULL) : NULL;
    return real ? real : strdup(path);
}

specrt_status sl_out_check(const char *path, bool force, specrt_error *err) {
    bool through;
    TRY(look_at(path, force, &through, err));
    if (through) return SPECRT_STATUS_OK;
    int folder = sl_folder_open(path);
    if (folder < 0 || faccessat(folder, ".", W_OK, AT_EACCESS) != 0) {
        specrt_status status = io_error(err, path, "cannot create");
        if (folder >= 0) close(folder);
        return status;
    }
    close(folder);
    return SPECRT_STATUS_OK;
}

specrt_status sl_out_open(out_file *out, const char *path, bool force, specrt_error *err) {
    bool through;
    *out = (out_file){0};
    TRY(look_at(path, force, &through, err));
    out->path = behind_links(path);
    if (!out->path) return sl_error_no_memory(err, path);
    specrt_status status = through ? open_through(out, path, err) : open_temp(out, out->path, err);
    if (status != SPECRT_STATUS_OK) sl_out_abort(out);
    return status;
}

specrt_status sl_out_write(out_file *out, const void *data, size_t n, specrt_error *err) {
    if (n == 0 || fwrite(data, 1, n, out->f) == n) return SPECRT_STATUS_OK;
    return io_error(err, out->path, "cannot write");
}

bool sl_out_is_stdout(const char *path) {
    return path && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0);
}

specrt_status sl_out_flush_stdout(specrt_error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return SPECRT_STATUS_OK;
    return io_error(err, "stdout", "cannot write");
}

int sl_folder_open(const char *path) {
    char *folder = behind_links(path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash) slash[slash == folder] = '\0';
    int fd = folder ? open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    return fd;
}

/* The rename is durable once the folder that holds the name is synced too. */
static void sync_folder(const char *path) {
    int fd = sl_folder_open(path);
    if (fd >= 0) fsync(fd), close(fd);
}

static specrt_status take_name(out_file *out, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    sigset_t old;
    block_signals(&old);
    if (rename(out->temp, out->path) != 0)
        status = io_error(err, out->path, "cannot replace");
    else
        sl_temp_forget(out->temp), free(out->temp), out->temp = NULL, sync_folder(out->path);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return status;
}

specrt_status sl_out_commit(out_file *out, specrt_error *err) {
    bool written = fflush(out->f) == 0 && (!out->temp || fsync(fileno(out->f)) == 0);
    specrt_status status = SPECRT_STATUS_OK;
    if (!written) status = io_error(err, out->path, "cannot write");
    /* Renamed before it is closed, which gives up the lock. */
    if (written && out->temp) status = take_name(out, err);
    if (fclose(out->f) != 0 && status == SPECRT_STATUS_OK)
        status = io_error(err, out->path, "cannot write");
    out->f = NULL;
    sl_out_abort(out);
    return status;
}

void sl_out_abort(out_file *out) {
    if (out->f) fclose(out->f);
    if (out->temp) {
        unlink(out->temp);
        sl_temp_forget(out->temp);
    }
    free(out->temp);
    free(out->path);
    *out = (out_file){0};
}

specrt_status sl_out_bytes(const char *path, bool force, const void *data, size_t n,
                           specrt_error *err) {
    out_file out;
    specrt_status status = sl_out_open(&out, path, force, err);
    if (status != SPECRT_STATUS_OK) return status;
    status = sl_out_write(&out, data, n, err);
    if (status == SPECRT_STATUS_OK) return sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}
