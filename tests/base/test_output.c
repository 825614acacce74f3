/* test_output.c : folders of several files, outputs behind links, and what signals and closed streams do. */
#include "base/io.h"
#include "base/json.h"
#include "base/measure.h"
#include "base/out_folder.h"
#include "folder.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *const names[] = {"one", "two", "stale"}; /* two are written */
static specrt_error err;

static void put(const char *name, const char *text) {
    REQUIRE(sl_out_bytes(in_folder(name), true, text, strlen(text), NULL) == SPECRT_STATUS_OK);
}

static void check_file(const char *name, const char *text) {
    file_view view;
    REQUIRE(sl_file_map(in_folder(name), &view, NULL) == SPECRT_STATUS_OK);
    CHECK(view.n == strlen(text) && (!view.n || memcmp(view.bytes, text, view.n) == 0));
    sl_file_unmap(&view);
}

/* Both files of a folder, which get their names if `status` is OK. */
static specrt_status write_in(const char *path, bool others, bool force, specrt_status status) {
    out_folder f;
    out_file *out;
    specrt_status opened = sl_out_folder_open(&f, path, names, 2, 2, others, force, &err);
    if (opened) return opened;
    for (int i = 0; i < 2 && !status; i++) {
        status = sl_out_folder_next(&f, &out, &err);
        if (!status) status = sl_out_write(out, names[i], 3, &err);
    }
    return sl_out_folder_finish(&f, status, &err);
}

static specrt_status write_both(const char *path, bool force, specrt_status status) {
    return write_in(path, false, force, status);
}

static int count_entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2; /* "." and ".." */
}

TEST(out_folder, "all files of a folder or none") {
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

TEST(stale, "what an earlier writer left goes with the folder, in an exchange and without one") {
    for (int shared = 0; shared < 2; shared++) {
        out_folder f;
        out_file *out;
        CHECK_INT(write_both(in_folder("new"), true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
        put("new/stale", "old");
        if (shared) put("new/other", "other");
        CHECK_INT(sl_out_folder_open(&f, in_folder("new"), names, 2, 3, shared, false, &err),
                  SPECRT_STATUS_BAD_ARG); /* nothing goes without -f */
        REQUIRE(sl_out_folder_open(&f, in_folder("new"), names, 2, 3, shared, true, &err) ==
                SPECRT_STATUS_OK);
        for (int i = 0; i < 2; i++) REQUIRE(sl_out_folder_next(&f, &out, &err) == SPECRT_STATUS_OK);
        CHECK_INT(sl_out_folder_finish(&f, SPECRT_STATUS_OK, &err), SPECRT_STATUS_OK);
        CHECK_INT(count_entries(in_folder("new")), 2 + shared);
        CHECK(access(in_folder("new/stale"), F_OK) != 0);
        CHECK_INT(count_entries(folder()), 1);
    }
    CHECK_INT(clear_folder(), 4);
}

/* A name that cannot be given: a folder of this name came while the files were written. */
TEST(out_folder_taken, "what got its name is taken back") {
    out_folder f;
    out_file *out;
    REQUIRE(sl_out_folder_open(&f, in_folder("new"), names, 2, 2, false, false, &err) ==
            SPECRT_STATUS_OK);
    for (int i = 0; i < 2; i++) REQUIRE(sl_out_folder_next(&f, &out, &err) == SPECRT_STATUS_OK);
    CHECK(mkdir(in_folder("new"), 0777) == 0 && mkdir(in_folder("new/two"), 0777) == 0);
    CHECK_INT(sl_out_folder_finish(&f, SPECRT_STATUS_OK, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "new/two: expected a file, found a folder");
    CHECK_INT(clear_folder(), 2); /* the folders */
}

TEST(out_folder_second, "another writer of a new folder is first: as where the folder was there") {
    for (int turn = 0; turn < 4; turn++) {
        bool force = turn > 0, foreign = turn > 1, others = turn > 2;
        out_folder f;
        out_file *out;
        REQUIRE(!sl_out_folder_open(&f, in_folder("new"), names, 2, 2, others, force, &err));
        for (int i = 0; i < 2; i++) REQUIRE(!sl_out_folder_next(&f, &out, &err));
        CHECK_INT(write_both(in_folder("new"), false, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
        if (foreign) put("new/other", "other");
        bool fits = force && (others || !foreign);
        CHECK_INT(sl_out_folder_finish(&f, SPECRT_STATUS_OK, &err),
                  fits ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ARG);
        if (turn == 0) CHECK_HAS(err.msg, "new/one: exists; use -f to replace it");
        if (turn == 2) CHECK_HAS(err.msg, "found other in it");
        check_file("new/one", fits ? "" : "one");
        CHECK_INT(count_entries(in_folder("new")), 2 + foreign);
        CHECK_INT(count_entries(folder()), 1);
        clear_folder();
    }
}

/* Beside other files; where the folder is the one that a process stands in; with the folder's permissions. */
TEST(out_folder_shared, "beside other files, and in place") {
    struct stat st;
    int start = open(".", O_RDONLY);
    REQUIRE(mkdir(in_folder("shared"), 0770) == 0 && chmod(in_folder("shared"), 0750) == 0);
    put("shared/other", "other");
    CHECK_INT(write_in(in_folder("shared"), true, false, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    CHECK_INT(write_in(in_folder("shared"), true, false, SPECRT_STATUS_OK), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(write_in(in_folder("shared"), true, true, SPECRT_STATUS_IO), SPECRT_STATUS_IO);
    check_file("shared/other", "other");
    check_file("shared/two", "two");
    CHECK_INT(count_entries(in_folder("shared")), 3);
    CHECK_INT(unlink(in_folder("shared/other")), 0);
    CHECK_INT(symlink("shared", in_folder("link")), 0);
    put("shared/two", "old");
    CHECK_INT(write_both(in_folder("link//"), true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    check_file("shared/two", "two");
    CHECK(stat(in_folder("shared"), &st) == 0 && (st.st_mode & 0777) == 0750);
    CHECK(lstat(in_folder("link"), &st) == 0 && S_ISLNK(st.st_mode));
    put("shared/two", "old");
    REQUIRE(chdir(in_folder("shared")) == 0);
    CHECK_INT(write_both(".", true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    CHECK(access("two", R_OK) == 0);
    REQUIRE(fchdir(start) == 0);
    close(start);
    check_file("shared/two", "two");
    CHECK_INT(clear_folder(), 4);
}

TEST(behind_link, "a link stays, with the permissions of a new file") {
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

/* Ends by a signal while the second file is written. */
static int stop_in_folder(int signal_number) {
    out_folder f;
    out_file *out;
    fclose(stderr);
    sl_io_cleanup_on_signals();
    if (sl_out_folder_open(&f, in_folder("new"), names, 2, 2, true, true, &err)) return 1;
    for (int i = 0; i < 2; i++)
        if (sl_out_folder_next(&f, &out, &err)) return 1;
    raise(signal_number);
    return 1;
}

static int interrupted_in_folder(void) {
    return stop_in_folder(SIGTERM);
}

static int killed_in_folder(void) {
    return stop_in_folder(SIGKILL);
}

/* An interrupt leaves nothing; what a killed writer leaves goes when the next one begins, in the folder and
 * beside it. */
TEST(stopped_folders, "nothing is left of folders that were begun") {
    const char *all = folder(), *path = in_folder("new");
    CHECK_INT(child_code(interrupted_in_folder), 130);
    CHECK_INT(count_entries(all), 0);
    CHECK_INT(child_code(killed_in_folder), 1000 + SIGKILL);
    CHECK_INT(count_entries(all), 1);
    CHECK_INT(write_both(path, false, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    CHECK_INT(count_entries(all), 1);
    put("new/other", "");
    CHECK_INT(child_code(killed_in_folder), 1000 + SIGKILL);
    CHECK_INT(count_entries(path), 4);
    CHECK_INT(unlink(in_folder("new/other")), 0);
    CHECK_INT(write_both(path, true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    CHECK_INT(count_entries(path), 2);
    CHECK_INT(clear_folder(), 3);
}

/* Writes the folder again and again, the same digit into both files. */
static void write_forever(void) {
    for (char digit = '0';; digit = digit == '9' ? '0' : (char)(digit + 1)) {
        out_folder f;
        out_file *out;
        if (sl_out_folder_open(&f, in_folder("new"), names, 2, 2, false, true, &err)) _exit(1);
        for (int i = 0; i < 2; i++)
            if (sl_out_folder_next(&f, &out, &err) || sl_out_write(out, &digit, 1, &err)) _exit(1);
        if (sl_out_folder_finish(&f, SPECRT_STATUS_OK, &err)) _exit(1);
    }
}

static char digit_of(const char *name) {
    file_view view;
    if (sl_file_map(in_folder(name), &view, NULL) != SPECRT_STATUS_OK) return 0;
    char digit = view.n == 1 ? (char)view.bytes[0] : 1;
    sl_file_unmap(&view);
    return digit;
}

TEST(killed_folders, "a folder is whole whenever its writer is killed") {
    int state;
    in_folder(""); /* made by the parent */
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) write_forever();
        usleep((useconds_t)(500 * i));
        kill(child, SIGKILL);
        REQUIRE(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
        CHECK_INT(digit_of("new/one"), digit_of("new/two"));
        CHECK(digit_of("new/one") != 1);
    }
    CHECK_INT(write_both(in_folder("new"), true, SPECRT_STATUS_OK), SPECRT_STATUS_OK);
    CHECK_INT(count_entries(folder()), 1);
    clear_folder();
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

TEST(signals, "streams that are closed, signals that are ignored") {
    CHECK_INT(child_code(open_after_guard), STDERR_FILENO + 1);
    CHECK_INT(child_code(hang_up), 130);
    CHECK_INT(child_code(hang_up_under_nohup), 7);
}

TEST(peak, "bytes of a block that is used") {
    const int64_t n = (int64_t)64 << 20, before = sl_measure_peak_bytes();
    volatile char *block = (volatile char *)malloc((size_t)n);
    REQUIRE(block);
    for (int64_t i = 0; i < n; i += 4096) block[i] = 1;
    int64_t peak = sl_measure_peak_bytes(); /* an earlier one hides some of the block */
    CHECK(peak > n && peak < before + 2 * n);
    free((void *)block);
}

TEST(json, "numbers and bytes as JSON") {
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
