/* test_child.c : programs that end when the one that runs them ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/io.h"
#include "test.h"

static pid_t start(const char *const *words, const int *fds, int n) {
    pid_t child;
    specrt_error err;
    REQUIRE(sl_child_start(words, fds, n, &child, &err) == SPECRT_STATUS_OK);
    return child;
}

static int run_shell(const char *command) {
    const char *const words[] = {"sh", "-c", command, NULL};
    return sl_child_wait(start(words, NULL, 0));
}

TEST(codes, "exit codes and signals of children") {
    CHECK_INT(run_shell("exit 0"), 0);
    CHECK_INT(run_shell("exit 7"), 7);
    CHECK_INT(run_shell("kill -9 $$"), 128 + 9);
}

TEST(no_program, "a program that cannot run is named") {
    static const char *const missing[] = {"/nonexistent/tool", NULL}, *const folder[] = {"/", NULL};
    pid_t child;
    specrt_error err;
    CHECK(sl_child_start(missing, NULL, 0, &child, &err) == SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "/nonexistent/tool: cannot run: No such file or directory");
    CHECK(sl_child_start(folder, NULL, 0, &child, &err) == SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "/: cannot run: Permission denied");
}

TEST(descriptors, "descriptors change places, and one that is not named is not there") {
    static const char *const words[] = {
        "sh", "-c", "echo one >&1; echo three >&3; ls /dev/fd/ | grep -c '[4-7]' >&1", NULL};
    char path[2][32], text[32] = "";
    int fds[4], n = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/test_child.XXXXXX");
        fds[2 * i + 1] = mkostemp(path[i], O_CLOEXEC);
        REQUIRE(fds[2 * i + 1] >= 0);
        unlink(path[i]);
    }
    fds[0] = fds[2] = -1;
    n = fds[1]; /* 1 becomes the second file, 3 the first one */
    fds[1] = fds[3];
    fds[3] = n;
    CHECK_INT(sl_child_wait(start(words, fds, 4)), 0);
    CHECK(pread(fds[1], text, sizeof text - 1, 0) > 0);
    CHECK_HAS(text, "one\n");
    memset(text, 0, sizeof text);
    CHECK(pread(fds[3], text, sizeof text - 1, 0) == 6);
    CHECK_STR(text, "three\n");
    close(fds[1]);
    close(fds[3]);
}

TEST(many, "many threads' worth of children at once, each waited for") {
    static const char *const words[] = {"sleep", "1000", NULL};
    pid_t children[40];
    for (int i = 0; i < 40; i++) children[i] = start(words, NULL, 0);
    for (int i = 0; i < 40; i++) {
        sl_child_end(children[i]);
        CHECK(kill(children[i], 0) < 0 && errno == ESRCH);
    }
}

/* The end of a pipe that the child of a child has open, too: it closes when all of them are gone. */
static bool is_closed(int fd) {
    char byte;
    while (read(fd, &byte, 1) > 0) continue;
    return true;
}

/* A parent with a child, which says that it runs; then the parent gets a signal.
 * @return how the parent ended: its exit code, or minus the signal */
static int end_parent(int number, const char *command) {
    const char *const words[] = {"sh", "-c", command, NULL};
    int ends[2], state;
    char byte;
    REQUIRE(pipe(ends) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t child;
        const int fds[] = {-1, ends[1]};
        signal(SIGHUP, SIG_DFL); /* tests may run under nohup */
        sl_io_cleanup_on_signals();
        close(ends[0]);
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        if (sl_child_start(words, fds, 2, &child, NULL) != SPECRT_STATUS_OK) _exit(1);
        close(ends[1]);
        _exit(sl_child_wait(child));
    }
    close(ends[1]);
    REQUIRE(read(ends[0], &byte, 1) == 1);
    kill(parent, number);
    REQUIRE(waitpid(parent, &state, 0) == parent);
    CHECK(is_closed(ends[0])); /* else the test hangs until the child's thousand seconds are over */
    close(ends[0]);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

TEST(interrupts, "a child ends with its parent, however the parent ends") {
    CHECK_INT(end_parent(SIGTERM, "echo; exec sleep 1000"), 130);
    CHECK_INT(end_parent(SIGINT, "echo; exec sleep 1000"), 130);
    CHECK_INT(end_parent(SIGHUP, "echo; exec sleep 1000"), 130);
    CHECK_INT(end_parent(SIGKILL, "echo; exec sleep 1000"), -SIGKILL);
}

TEST(beside, "a program in the same folder is found") {
    char path[4096];
    CHECK(sl_child_beside("test_child", path, sizeof path));
    CHECK(path[0] == '/' && access(path, X_OK) == 0);
    CHECK(!sl_child_beside("test_child", path, strlen(path))); /* the end does not fit */
    CHECK(!sl_child_beside("test_child", path, 4));
    CHECK(!sl_child_beside("no such program", path, sizeof path));
}
