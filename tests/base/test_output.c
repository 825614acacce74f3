/* test_output.c : folders of several files, outputs behind links, and what signals and closed streams do. */
#include "base/io.h"
#include "base/json.h"
#include "base/measure.h"
#include "base/out_folder.h"
#include "folder.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *const names[] = {"one", "two"};
static specrt_error err;

static void put(const char *name, const char *text) {
    REQUIRE(sl_out_bytes(in_folder(name), true, text, strlen(text), NULL) == SPECRT_STATUS_OK);
}

static void check_file(const char *name, const char *text) {
    file_view view;
    REQUIRE(sl_file_map(in_folder(name), &view, NULL) == SPECRT_STATUS_OK);
    CHECK(view.n == strlen(text) && memcmp(view.bytes, text, view.n) == 0);
    sl_file_unmap(&view);
}

/* Both files of a folder, which get their names if `status` is OK. */
static specrt_status write_both(const char *path, bool force, specrt_status status) {
    out_folder f;
    out_file *out;
    specrt_status opened = sl_out_folder_open(&f, path, names, 2, force, &err);
    if (opened) return opened;
    for (int i = 0; i < 2 && !status; i++) {
        status = sl_out_folder_next(&f, &out, &err);
        if (!status) status = sl_out_write(out, names[i], 3, &err);
    }
    return sl_out_folder_finish(&f, status, &err);
}

static void test_out_folder(void) {
    struct stat st;
    const char *path = in_folder("new");
    CHECK_INT(write_both(path, false, SPECRT_STATUS_BAD_INPUT), SPECRT_STATUS_BAD_INPUT);
    CHECK(stat(path, &st) != 0); /* made, and taken back */
    CHECK_INT(write_both(path, false, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    check_file("new/one", "one");
    check_file("new/two", "two");
    CHECK_INT(write_both(path, false, SPECRT_STATUS_OK), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "new/one: exists; use -f to replace it");
    put("new/two", "old");
    CHECK_INT(write_both(path, true, SPECRT_STATUS_IO), SPECRT_STATUS_IO);
    check_file("new/two", "old");
    CHECK_INT(write_both(path, true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    check_file("new/two", "two");
    CHECK_INT(write_both(in_folder("new/one"), true, SPECRT_STATUS_OK), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "new/one: expected a folder, found a file");
    put("new/three", "");
    CHECK_INT(write_both(path, true, SPECRT_STATUS_OK), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "found three in it, which this command does not write");
    CHECK_INT(write_both(in_folder("no/folder"), true, SPECRT_STATUS_OK), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "no/folder: cannot make the folder: No such file");
    CHECK_INT(clear_folder(), 4);
}

/* A name that cannot be given: a folder is in the way of the second file. */
static void test_out_folder_taken(void) {
    out_folder f;
    out_file *out;
    REQUIRE(sl_out_folder_open(&f, in_folder("new"), names, 2, false, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 2; i++) REQUIRE(sl_out_folder_next(&f, &out, &err) == SPECRT_STATUS_OK);
    CHECK_INT(mkdir(in_folder("new/two"), 0777), 0);
    CHECK_INT(sl_out_folder_finish(&f, SPECRT_STATUS_OK, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "new/two: cannot replace: ");
    CHECK_INT(clear_folder(), 2); /* the folders */
}

/* The file behind a link is replaced, not the link; the file is as any program would create it. */
static void test_behind_link(void) {
    struct stat st;
    put("real", "old");
    CHECK_INT(symlink("real", in_folder("link")), 0);
    CHECK_INT(sl_out_bytes(in_folder("link"), false, "new", 3, &err), SPECRT_STATUS_BAD_ARG);
    mode_t mask = umask(027);
    put("link", "new");
    umask(mask);
    check_file("real", "new");
    CHECK(lstat(in_folder("link"), &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(stat(in_folder("real"), &st) == 0 && (st.st_mode & 0777) == 0640);
    CHECK_INT(clear_folder(), 2);
}

/* What a child does, by its exit code, or its signal and 1,000. */
static int child_code(int (*run)(void)) {
    int state;
    pid_t child = fork();
    if (child == 0) _exit(run());
    REQUIRE(waitpid(child, &state, 0) == child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + WTERMSIG(state);
}

static int open_after_guard(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++) close(fd);
    sl_io_guard_streams();
    return open("/dev/null", O_RDONLY);
}

static int hang_up_with(void (*handler)(int signal_number)) {
    fclose(stderr);
    signal(SIGHUP, handler);
    sl_io_cleanup_on_signals();
    raise(SIGXFSZ);
    raise(SIGHUP);
    return 7;
}

static int hang_up(void) {
    return hang_up_with(SIG_DFL);
}

static int hang_up_under_nohup(void) {
    return hang_up_with(SIG_IGN);
}

static void test_signals(void) {
    CHECK_INT(child_code(open_after_guard), STDERR_FILENO + 1);
    CHECK_INT(child_code(hang_up), 130);
    CHECK_INT(child_code(hang_up_under_nohup), 7);
}

static void test_peak(void) {
    const int64_t n = (int64_t)64 << 20, before = sl_measure_peak_bytes();
    volatile char *block = (volatile char *)malloc((size_t)n);
    REQUIRE(block);
    for (int64_t i = 0; i < n; i += 4096) block[i] = 1;
    int64_t peak = sl_measure_peak_bytes(); /* an earlier one hides some of the block */
    CHECK(peak > n && peak < before + 2 * n);
    free((void *)block);
}

static void test_json(void) {
    json_object *o = json_object_new_object();
    const double reals[] = {0.1, 1.0 / 3, 1e300};
    sl_json_put(o, "hex", sl_json_hex64(UINT64_C(0x0123456789abcdef)));
    sl_json_put(o, "bytes", sl_json_hex((const uint8_t *)"\x00\xff\x10", 3));
    sl_json_put(o, "reals", sl_json_reals(reals, 3));
    sl_json_put(o, "whole", sl_json_whole(UINT64_MAX));
    sl_json_put(o, "none", sl_json_text(NULL));
    char *text = sl_json_to_text(o);
    CHECK_STR(text, "{\"hex\":\"0123456789abcdef\",\"bytes\":\"00ff10\",\"reals\":[0.1,0.333333333,"
                    "1e+300],\"whole\":18446744073709551615,\"none\":null}");
    free(text);
}

static const test_case cases[] = {
    {"out_folder", "all files of a folder or none", test_out_folder},
    {"out_folder_taken", "what got its name is taken back", test_out_folder_taken},
    {"behind_link", "a link stays, with the permissions of a new file", test_behind_link},
    {"signals", "streams that are closed, signals that are ignored", test_signals},
    {"peak", "bytes of a block that is used", test_peak},
    {"json", "numbers and bytes as JSON", test_json},
};
TEST_MAIN(cases)
