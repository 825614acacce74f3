/* child.c : see child.h. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/system.h"
#include "specrt_tools.h"

/* Read by the handler of a signal, which may run in any thread. 0: a free slot. */
static pid_t children[CHILD_MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of free slots */

/* Puts `now` into a slot that has `was`. */
static void change_slot(pid_t was, pid_t now) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CHILD_MOST && !found; i++) {
        found = __atomic_load_n(&children[i], __ATOMIC_RELAXED) == was;
        if (found) __atomic_store_n(&children[i], now, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
}

bool sl_child_beside(const char *name, char *path, size_t n) {
    if (!sl_program_path(path, n)) return false;
    size_t folder = (size_t)(strrchr(path, '/') + 1 - path);
    int written = snprintf(path + folder, n - folder, "%s", name);
    return (size_t)written < n - folder && access(path, X_OK) == 0;
}

/* ---- starting --------------------------------------------------------------------------------- */

/* The descriptors first leave the numbers that they are to have. */
static bool take_fds(const int *fds, int n) {
    int moved[CHILD_FDS];
    for (int i = 0; i < n; i++) {
        moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, CHILD_FDS);
        if (fds[i] >= 0 && moved[i] < 0) return false;
    }
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0 && dup2(moved[i], i) < 0) return false;
    return true;
}

/* What the parent catches would run the parent's handler here. Ignored signals stay ignored. */
static void reset_signals(const sigset_t *mask) {
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct sigaction action;
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        if (sigaction(caught[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            signal(caught[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

/* The child, up to the program. A failure goes to the parent as errno. */
static void become(const char *const *words, const int *fds, int n, const sigset_t *mask,
                   pid_t parent, int failure) {
    failure = fcntl(failure, F_DUPFD_CLOEXEC, CHILD_FDS);
    sl_end_with_parent();
    if (getppid() != parent) _exit(130); /* the parent ended before that call */
    if (take_fds(fds, n)) {
        reset_signals(mask);
        execvp(words[0], (char *const *)(uintptr_t)words);
    }
    int error = errno;
    if (write(failure, &error, sizeof error) < 0) _exit(126);
    _exit(127);
}

static pid_t start(const char *const *words, const int *fds, int n, const int failure[2]) {
    sigset_t all, old;
    pid_t parent = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    pid_t child = fork();
    if (child == 0) become(words, fds, n, &old, parent, failure[1]);
    if (child > 0) change_slot(0, child);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return child;
}

/* The other end closes when the program runs. @return 0, or why it does not */
static int read_failure(int fd) {
    int error = 0;
    ssize_t n;
    while ((n = read(fd, &error, sizeof error)) < 0 && errno == EINTR) continue;
    return n == (ssize_t)sizeof error ? error : 0;
}

static specrt_status failed(const char *program, int error, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot run: %s", program, strerror(error));
}

specrt_status sl_child_start(const char *const *words, const int *fds, int n, pid_t *child,
                             specrt_error *err) {
    int failure[2], error;
    if (sl_pipe(failure) != 0) return failed(words[0], errno, err);
    *child = start(words, fds, n, failure);
    error = *child < 0 ? errno : 0;
    close(failure[1]);
    if (*child > 0) error = read_failure(failure[0]);
    close(failure[0]);
    if (error && *child > 0) sl_child_wait(*child);
    return error ? failed(words[0], error, err) : SPECRT_STATUS_OK;
}

/* ---- ending ----------------------------------------------------------------------------------- */

int sl_child_wait(pid_t child) {
    int status = 0;
    siginfo_t info;
    /* The slot is free before the number is, so that no handler sends a signal to another process. */
    while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
    change_slot(child, 0);
    if (waitpid(child, &status, 0) < 0) return 128 + SIGTERM; /* a handler waited for it */
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void sl_child_end(pid_t child) {
    kill(child, SIGTERM);
    sl_child_wait(child);
}

/* Whether the child still runs; it is waited for where it does not. */
static bool runs(pid_t child) {
    return child > 0 && waitpid(child, NULL, WNOHANG) == 0;
}

void sl_child_end_all(void) {
    const struct timespec moment = {0, 10000000};
    for (int i = 0; i < CHILD_MOST; i++)
        if (children[i] > 0) kill(children[i], SIGTERM);
    for (int i = 0, n_moments = 0; i < CHILD_MOST; i++) {
        for (; runs(children[i]) && n_moments < 1000; n_moments++) nanosleep(&moment, NULL);
        if (!runs(children[i])) continue;
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
}
