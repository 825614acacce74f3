/* test_cli.c : flags and their errors, and files that appear complete or not at all. */
#include "cli.h"
#include "io.h"
#include "parallel.h"
#include "test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t number;
static double real;
static bool flag;
static const char *string;
static cli_list strings;

static int parse(cli_common *common, cli_list *rest, int argc, const char **argv) {
    static const cli_option options[] = {
        {"number", 'n', "N", CLI_INT, &number, 1, 10, "a number"},
        {"real", 0, "X", CLI_REAL, &real, 0, 0, "a real"},
        {"flag", 'F', NULL, CLI_FLAG, &flag, 0, 0, "a flag"},
        {"string", 's', "S", CLI_STRING, (void *)&string, 0, 0, "a string"},
        {"list", 0, "S", CLI_STRINGS, &strings, 0, 0, "a list"},
        {0}};
    static const cli_tool tool = {"tool", "tool -n 1", "Tests.", "tool [options]", options};
    const char *full[16] = {"tool"};
    for (int i = 0; i < argc; i++) full[i + 1] = argv[i];
    return cli_parse(&tool, argc + 1, (char **)(uintptr_t)full, common, rest);
}

#define PARSE(common, rest, ...)                                                                   \
    parse(common, rest, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),             \
          (const char *[]){__VA_ARGS__})

static void test_parse_values(void) {
    cli_common c;
    cli_list rest = {0};
    CHECK_INT(PARSE(&c, &rest, "-n5", "--real=2.5", "-F", "file", "--string", "x", "--list", "a",
                    "b", "--list", "c", "--threads", "3", "--", "-odd"),
              -1);
    CHECK_INT(number, 5);
    CHECK(real == 2.5);
    CHECK(flag);
    CHECK_STR(string, "x");
    REQUIRE(strings.n == 3);
    CHECK_STR(strings.items[2], "c");
    REQUIRE(rest.n == 2);
    CHECK_STR(rest.items[1], "-odd");
    CHECK_INT(c.threads, 3);
    cli_list_free(&strings);
    cli_list_free(&rest);
}

/* Bad usage exits with 2; messages go to stderr, which the test closes off. */
static void test_parse_errors(void) {
    cli_common c;
    int saved = dup(STDERR_FILENO);
    REQUIRE(freopen("/dev/null", "w", stderr) != NULL);
    int codes[] = {PARSE(&c, NULL, "-n", "11"), PARSE(&c, NULL, "-n", "x"),
                   PARSE(&c, NULL, "-n"),       PARSE(&c, NULL, "--real=nan"),
                   PARSE(&c, NULL, "--what"),   PARSE(&c, NULL, "stray"),
                   PARSE(&c, NULL, "--flag=1")};
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) CHECK_INT(codes[i], CLI_USAGE);
}

static char folder[64];
static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int turn;
    if (!folder[0]) {
        strcpy(folder, "/tmp/specrt-test-XXXXXX");
        REQUIRE(mkdtemp(folder) != NULL);
    }
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void test_out_file(void) {
    specrt_error err;
    out_file out;
    file_view view;
    const char *path = in_folder("out");
    REQUIRE(out_open(&out, path, false, &err) == SPECRT_STATUS_OK);
    CHECK(out_write(&out, "hello", 5, &err) == SPECRT_STATUS_OK);
    CHECK(access(path, F_OK) != 0); /* not before commit */
    REQUIRE(out_commit(&out, &err) == SPECRT_STATUS_OK);
    REQUIRE(file_map(path, &view, &err) == SPECRT_STATUS_OK);
    CHECK(view.n == 5 && memcmp(view.bytes, "hello", 5) == 0);
    file_unmap(&view);
    CHECK(out_open(&out, path, false, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(out_check(path, false, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(out_check(path, true, &err) == SPECRT_STATUS_OK);
    CHECK(out_check("/nonexistent/x", true, &err) == SPECRT_STATUS_IO);
    REQUIRE(out_open(&out, path, true, &err) == SPECRT_STATUS_OK);
    out_abort(&out); /* the old content stays */
    REQUIRE(file_map(path, &view, &err) == SPECRT_STATUS_OK);
    CHECK_INT(view.n, 5);
    file_unmap(&view);
    unlink(path);
    CHECK_INT(rmdir(folder), 0); /* no temporary file is left */
    folder[0] = '\0';
}

static void test_disk_full(void) {
    specrt_error err;
    CHECK(out_bytes("/dev/full", false, "x", 1, &err) == SPECRT_STATUS_IO);
    CHECK(strstr(err.msg, "/dev/full") != NULL);
    CHECK(out_bytes("/nonexistent/x", false, "x", 1, &err) == SPECRT_STATUS_IO);
    file_view view;
    CHECK(file_map("/nonexistent/x", &view, &err) == SPECRT_STATUS_IO);
    CHECK(file_map("/tmp", &view, &err) == SPECRT_STATUS_IO);
}

static void test_interrupt(void) {
    const char *path = in_folder("cut");
    pid_t child = fork();
    if (child == 0) {
        out_file out;
        io_cleanup_on_signals();
        if (freopen("/dev/null", "w", stderr) &&
            out_open(&out, path, false, NULL) == SPECRT_STATUS_OK)
            raise(SIGINT);
        _exit(1);
    }
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state));
    CHECK_INT(WEXITSTATUS(state), CLI_INTERRUPTED);
    CHECK_INT(rmdir(folder), 0);
    folder[0] = '\0';
}

static void add_block(void *arg, int64_t block, int worker) {
    (void)worker;
    __atomic_fetch_add((int64_t *)arg, block + 1, __ATOMIC_RELAXED);
}

static void test_parallel(void) {
    for (int threads = 1; threads <= 7; threads += 3) {
        int64_t sum = 0;
        parallel_for(threads, 1000, add_block, &sum);
        CHECK_INT(sum, 500500);
    }
}

typedef struct counted {
    int32_t runs[16]; /* of each i */
    int64_t sum;      /* read by the caller without atomics, when the loop is over */
} counted;

static void count_run(void *arg, int64_t i) {
    counted *c = (counted *)arg;
    __atomic_fetch_add(&c->runs[i], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->sum, i + 1, __ATOMIC_RELAXED);
}

/* More threads than cores, and pauses in which they fall asleep. */
static void test_pool(void) {
    for (int threads = 1; threads <= 8; threads += 7) {
        parallel_pool *pool = parallel_pool_create(threads);
        REQUIRE(pool);
        CHECK_INT(parallel_pool_threads(pool), threads);
        for (int loop = 0; loop < 3000; loop++) {
            counted c = {{0}, 0};
            int n = loop % 17;
            parallel_pool_for(pool, n, count_run, &c);
            REQUIRE(c.sum == n * (n + 1) / 2);
            for (int i = 0; i < 16; i++) REQUIRE(c.runs[i] == (i < n));
            if (loop % 100 == 0) usleep(300);
        }
        parallel_pool_free(pool);
    }
    parallel_pool *idle = parallel_pool_create(3);
    parallel_pool_free(idle);
}

static const test_case cases[] = {
    {"parse_values", "every spelling of a flag", test_parse_values},
    {"parse_errors", "bad flags exit with 2", test_parse_errors},
    {"out_file", "output appears at commit, or the old stays", test_out_file},
    {"disk_full", "errors name the file", test_disk_full},
    {"interrupt", "a signal leaves no temporary file and exits 130", test_interrupt},
    {"parallel", "each block runs once for any number of threads", test_parallel},
    {"pool", "loops of a pool run each task once and are over when they return", test_pool},
};
TEST_MAIN(cases)
