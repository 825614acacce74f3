/* test_cli.c : flags and their errors, and files that appear complete or not at all. */
#include "base/cli.h"
#include "base/io.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/shard.h"
#include "folder.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t number;
static double real;
static bool flag;
static const char *string, *last, *input;
static cli_list strings;

static int parse(cli_common *common, cli_list *rest, int argc, const char **argv) {
    const cli_option options[] = {
        sl_cli_letter('n', sl_cli_int("number", "N", &number, 1, 10, "a number")),
        sl_cli_real("real", "X", &real, 0, 0, "a real"),
        sl_cli_letter('F', sl_cli_flag("flag", &flag, "a flag")),
        sl_cli_letter('s', sl_cli_string("string", "S", &string, "a string")),
        sl_cli_strings("list", "S", &strings, "a list"),
        sl_cli_string("input", "LIST|FILE", &input, "an input"),
        sl_cli_also("-sx --other",
                    sl_cli_letter('f', sl_cli_string("last", "S", &last, "of -f and -sx"))),
        sl_cli_heading("More"),
        sl_cli_real("of-a-name-that-is-long", "X", &real, 0, 0,
                    "a line as long as there is room for in columns 32 to 100 of the help; "
                    "the next is broken\nwhere it says"),
        {0}};
    const cli_tool tool = {"tool", "tool -n 1", "Tests.", "tool [options]", options};
    const char *full[16] = {"tool"};
    for (int i = 0; i < argc; i++) full[i + 1] = argv[i];
    return sl_cli_parse(&tool, argc + 1, (char **)(uintptr_t)full, common, rest);
}

#define PARSE(common, rest, ...)                                                                   \
    parse(common, rest, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),             \
          (const char *[]){__VA_ARGS__})

TEST(parse_values, "every spelling of a flag") {
    cli_common c;
    cli_list rest = {0};
    CHECK_INT(PARSE(&c, &rest, "-n5", "--real=2.5", "-F", "file", "--string", "x", "--list", "a",
                    "-", "--list=b", "c", "--threads", "3", "--", "-odd"),
              -1);
    CHECK_INT(number, 5);
    CHECK(real == 2.5);
    CHECK(flag);
    CHECK_STR(string, "x");
    REQUIRE(strings.n == 4);
    for (int i = 0; i < 4; i++)
        CHECK_STR(strings.items[i], ((const char *[]){"a", "-", "b", "c"})[i]);
    REQUIRE(rest.n == 2);
    CHECK_STR(rest.items[1], "-odd");
    CHECK_INT(c.threads, 3);
    sl_cli_list_free(&strings);
    sl_cli_list_free(&rest);
}

/* Other spellings go before letters, and the tool's own before what every tool takes. */
TEST(parse_spellings, "other names of a flag, and those that every tool has") {
    static const char *const spelt[][3] = {
        {"-sx", "a", "a"}, {"--other=b", "-F", "b"}, {"-f", "c", "c"}, {"--last", "d", "d"}};
    cli_common c;
    for (size_t i = 0; i < sizeof spelt / sizeof *spelt; i++) {
        string = NULL;
        CHECK_INT(PARSE(&c, NULL, spelt[i][0], spelt[i][1]), -1);
        CHECK_STR(last, spelt[i][2]);
        CHECK(!c.force && !string);
    }
    CHECK_INT(PARSE(&c, NULL, "-sy", "--force"), -1);
    CHECK_STR(string, "y");
    CHECK(c.force);
}

/* The last of two texts counts; two files are refused in parse_errors. */
TEST(parse_repeated, "the last text counts") {
    cli_common c;
    input = NULL;
    CHECK_INT(PARSE(&c, NULL, "-sa", "-sy", "--input", "a", "-o", "b"), -1);
    CHECK_STR(string, "y");
    CHECK_STR(input, "a");
    CHECK_STR(c.output, "b");
    input = NULL;
}

/* What is printed until loudly() is in `printed`. */
static char printed[8192];
static int quietly(int fd) {
    int saved = dup(fd);
    REQUIRE(freopen(in_folder("printed"), "w", fd == STDERR_FILENO ? stderr : stdout) != NULL);
    return saved;
}

static void loudly(int fd, int saved) {
    file_view view;
    fflush(fd == STDERR_FILENO ? stderr : stdout);
    dup2(saved, fd);
    close(saved);
    REQUIRE(sl_file_map(in_folder("printed"), &view, NULL) == SPECRT_STATUS_OK);
    snprintf(printed, sizeof printed, "%.*s", (int)view.n, (const char *)view.bytes);
    sl_file_unmap(&view);
    clear_folder();
}

TEST(parse_errors, "bad usage exits with 2 and keeps no list; messages go to stderr") {
    cli_common c;
    cli_list rest = {0};
    int saved = quietly(STDERR_FILENO);
    int codes[] = {PARSE(&c, NULL, "-n", "11"),
                   PARSE(&c, NULL, "-n", "x"),
                   PARSE(&c, NULL, "-n", "1k"),
                   PARSE(&c, NULL, "-n", "1K"),
                   PARSE(&c, NULL, "-n"),
                   PARSE(&c, NULL, "--real=nan"),
                   PARSE(&c, NULL, "--string="),
                   PARSE(&c, NULL, "--input", "a", "--input=b"),
                   PARSE(&c, NULL, "-oa", "--output", "a"),
                   PARSE(&c, NULL, "--what"),
                   PARSE(&c, NULL, "stray"),
                   PARSE(&c, NULL, "--flag=1"),
                   PARSE(&c, &rest, "a", "--list", "b", "--what"),
                   PARSE(&c, &rest, "a", "--list", "b", "--list=c", "-n", "0")};
    loudly(STDERR_FILENO, saved);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) CHECK_INT(codes[i], CLI_USAGE);
    CHECK_HAS(printed, "tool: --number: expected a whole number from 1 to 10, found '11'\n");
    CHECK_HAS(printed, "tool: --number: expected N\n");
    CHECK_HAS(printed, "tool: --real: expected a number, found 'nan'\n");
    CHECK_HAS(printed, "tool: --string: expected S, found ''\n");
    CHECK_HAS(printed, "tool: --input: expected one LIST|FILE, found 'a' and 'b'\n");
    CHECK_HAS(printed, "tool: --output: expected one FILE, found 'a' and 'a'\n");
    CHECK(strings.n == 0 && !strings.items && rest.n == 0 && !rest.items);
}

/* Columns 1 to 31 are of the options, the others of their help. */
TEST(help, "columns, long names, long lines, headings") {
    static const char *const lines[] = {
        "Example:\n  tool -n 1\n\nTests.\n\nUsage: tool [options]\n  -n, --number N               "
        "a number\n",
        "\n      --real X                 a real\n",
        "\n  -f, --last S                 of -f and -sx\n                               also -sx "
        "--other\n",
        "\n\nMore\n      --of-a-name-that-is-long X \n                               a line as "
        "long as",
        " 32 to 100 of the help;\n                               the next is broken\n"
        "                               where it says\n\nCommon options (in any whole number, "
        "32k is 32,768)\n",
        "\n      --force                  replace an existing file\n      --threads N ",
        "\n      --version                print the version\n\nExit codes: 0 ok, 1 I/O or memory, ",
    };
    cli_common c;
    int saved = quietly(STDOUT_FILENO);
    int helped = PARSE(&c, NULL, "-F", "-h", "--what");
    loudly(STDOUT_FILENO, saved);
    CHECK_INT(helped, CLI_OK);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK_HAS(printed, lines[i]);
    saved = quietly(STDOUT_FILENO);
    helped = PARSE(&c, NULL, "--version");
    loudly(STDOUT_FILENO, saved);
    CHECK_INT(helped, CLI_OK);
    CHECK_STR(printed, "tool " SPECRT_VERSION_STRING "\n");
}

TEST(common, "what common options mean together, and the messages that -q leaves") {
    static const struct {
        const char *a, *b;
        int progress;
    } given[] = {{"-F", "-v", -1},
                 {"--progress", "-q", 1},
                 {"--progress", "--no-progress", 0},
                 {"-q", "-v", 0}};
    cli_common c;
    int saved = quietly(STDERR_FILENO);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(PARSE(&c, NULL, given[i].a, given[i].b), -1);
        CHECK_INT(c.progress, given[i].progress);
        CHECK(c.threads >= 1 && c.seed == 1 && c.quiet == (i % 2 == 1));
        sl_cli_info("%d of\n4", i);
    }
    sl_cli_warn("last");
    loudly(STDERR_FILENO, saved);
    CHECK_STR(printed, "tool: 0 of?4\ntool: 2 of?4\ntool: warning: last\n");
}

TEST(exit_codes, "of each status") {
    static const struct {
        specrt_status status;
        int code;
    } cases[] = {{SPECRT_STATUS_IO, CLI_IO},
                 {SPECRT_STATUS_NO_MEMORY, CLI_IO},
                 {SPECRT_STATUS_BAD_ARG, CLI_USAGE},
                 {SPECRT_STATUS_BAD_INPUT, CLI_INVALID}};
    for (int i = 0; i < 4; i++) {
        specrt_error err = {cases[i].status, "x: why"};
        int saved = quietly(STDERR_FILENO);
        int code = sl_cli_fail(&err);
        loudly(STDERR_FILENO, saved);
        CHECK_INT(code, cases[i].code);
        CHECK_HAS(printed, ": x: why\n");
    }
}

TEST(shard, "--shard, and rank variables as schedulers set them") {
    static const char *const bad[] = {"3/3", "-1/3", "0/0", "1/3x", "x", "1"};
    static const struct {
        const char *set[8];
        int code, index, n;
    } ranks[] = {{{"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3"}, -1, 2, 3},
                 {{"OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "3"}, CLI_USAGE, 0, 1},
                 {{"PMI_RANK", "-1", "PMI_SIZE", "3"}, CLI_USAGE, 0, 1},
                 {{"PMI_RANK", "0", "PMI_SIZE", "1"}, -1, 0, 1},
                 {{"PMI_RANK", "1x", "PMI_SIZE", "3"}, -1, 0, 1},
                 {{"PMI_RANK", "1"}, -1, 0, 1},
                 {{"SLURM_ARRAY_TASK_ID", "9", "SLURM_ARRAY_TASK_COUNT", "4",
                   "SLURM_ARRAY_TASK_MIN", "5", "SLURM_ARRAY_TASK_STEP", "2"},
                  -1,
                  2,
                  4},
                 {{"SLURM_ARRAY_TASK_ID", "3", "SLURM_ARRAY_TASK_COUNT", "4",
                   "SLURM_ARRAY_TASK_MIN", "1", "SLURM_ARRAY_TASK_STEP", "0"},
                  -1,
                  3,
                  4}};
    shard s;
    cli_common c;
    CHECK_INT(PARSE(&c, NULL, "-F"), -1); /* not quiet */
    int saved = quietly(STDERR_FILENO);
    CHECK_INT(sl_shard_parse("1/3", &s), -1);
    CHECK(s.index == 1 && s.n == 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(sl_shard_parse(bad[i], &s), CLI_USAGE);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        for (int k = 0; k < 8 && ranks[i].set[k]; k += 2)
            setenv(ranks[i].set[k], ranks[i].set[k + 1], 1);
        CHECK_INT(sl_shard_choose(NULL, true, true, "counts", &s), ranks[i].code);
        CHECK(s.index == ranks[i].index && s.n == ranks[i].n);
        for (int all = 0; all < 2; all++) { /* only counts of a corpus are shared */
            CHECK_INT(sl_shard_choose(NULL, !all, all, "counts", &s), -1);
            CHECK(s.index == 0 && s.n == 1);
        }
        CHECK_INT(sl_shard_choose("1/2", true, true, "counts", &s), -1);
        CHECK(s.index == 1 && s.n == 2);
        for (int k = 0; k < 8 && ranks[i].set[k]; k += 2) unsetenv(ranks[i].set[k]);
    }
    loudly(STDERR_FILENO, saved);
    CHECK_HAS(printed, "expected I/N with 0 <= I < N, found '3/3'");
    CHECK_HAS(printed, "counting shard 2 of 3 (OMPI_COMM_WORLD_RANK); --shard 0/1 counts all\n");
    CHECK(!strstr(printed, "warning"));
    saved = quietly(STDERR_FILENO);
    CHECK_INT(sl_shard_choose("0/1", false, true, "bundle", &s), -1);
    CHECK_INT(sl_shard_choose("1/2", false, true, "bundle", &s), -1);
    loudly(STDERR_FILENO, saved);
    CHECK_HAS(printed, "warning: the bundle will contain shard 1/2 of the corpus only; ");
    CHECK(!strstr(printed, "0/1"));
}

static char verb_seen[32];
static int note_verb(int argc, char **argv) {
    snprintf(verb_seen, sizeof verb_seen, "%d %s %s", argc, argv[0], argc > 1 ? argv[1] : "");
    return CLI_BELOW;
}
static int never_verb(int argc, char **argv) {
    return argc < 0 && argv ? CLI_OK : CLI_IO;
}

static int dispatch(int argc, const char **argv) {
    static const cli_verb verbs[] = {
        {"one", "first", never_verb}, {"two", "second", note_verb}, {"six", "third", never_verb}};
    static const cli_tool tool = {"tool", "tool two", "Tests.", "tool VERB", NULL};
    return sl_cli_dispatch(&tool, verbs, 3, argc, (char **)(uintptr_t)argv);
}

TEST(dispatch, "the verb that is named runs, with its own argv") {
    CHECK_INT(dispatch(3, (const char *[]){"tool", "two", "x", NULL}), CLI_BELOW);
    CHECK_STR(verb_seen, "2 two x");
    int saved = quietly(STDERR_FILENO);
    int codes[] = {dispatch(2, (const char *[]){"tool", "three", NULL}),
                   dispatch(2, (const char *[]){"tool", "tw", NULL}),
                   dispatch(1, (const char *[]){"tool", NULL})};
    loudly(STDERR_FILENO, saved);
    for (int i = 0; i < 3; i++) CHECK_INT(codes[i], CLI_USAGE);
    CHECK_HAS(printed, "one, two or six");
    saved = quietly(STDOUT_FILENO);
    int helped = dispatch(2, (const char *[]){"tool", "-h", NULL});
    loudly(STDOUT_FILENO, saved);
    CHECK_INT(helped, CLI_OK);
    CHECK_HAS(printed, "Verbs, each with its own -h:\n  one       first\n");
    CHECK_HAS(printed, " replace an existing file\n      --threads N");
}

TEST(stdout, "one output goes there, and the table gives way") {
    cli_common c = {0};
    const char *const files[] = {"a", NULL, "b"}, *const dash[] = {NULL, "-"};
    const char *const both[] = {"/dev/stdout", "-"}, *const twice[] = {"a", "a"};
    CHECK_INT(sl_cli_one_stdout(&c, files, 3), -1);
    CHECK_INT(sl_cli_one_stdout(&c, dash, 2), -1);
    CHECK(sl_cli_table(files, 3) == stdout);
    CHECK(sl_cli_table(dash, 2) == stderr && sl_cli_table(both, 1) == stderr);
    int saved = quietly(STDERR_FILENO);
    int codes[] = {sl_cli_one_stdout(&c, both, 2), sl_cli_one_stdout(&c, twice, 2), 0};
    c.json = true;
    codes[2] = sl_cli_one_stdout(&c, dash, 2);
    loudly(STDERR_FILENO, saved);
    for (int i = 0; i < 3; i++) CHECK_INT(codes[i], CLI_USAGE);
    CHECK_INT(sl_cli_one_stdout(&c, files, 3), -1);
    CHECK_INT(sl_cli_print_json(NULL, NULL), SPECRT_STATUS_NO_MEMORY);
}

TEST(out_file, "output appears at commit, or the old stays") {
    specrt_error err;
    out_file out;
    file_view view;
    const char *path = in_folder("out");
    REQUIRE(sl_out_open(&out, path, false, &err) == SPECRT_STATUS_OK);
    CHECK(sl_out_write(&out, "hello", 5, &err) == SPECRT_STATUS_OK);
    CHECK(access(path, F_OK) != 0); /* not before commit */
    REQUIRE(sl_out_commit(&out, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &view, &err) == SPECRT_STATUS_OK);
    CHECK(view.n == 5 && memcmp(view.bytes, "hello", 5) == 0);
    sl_file_unmap(&view);
    CHECK(sl_out_open(&out, path, false, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(sl_out_check(path, false, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(sl_out_check(path, true, &err) == SPECRT_STATUS_OK);
    CHECK(sl_out_check("/nonexistent/x", true, &err) == SPECRT_STATUS_IO);
    REQUIRE(sl_out_open(&out, path, true, &err) == SPECRT_STATUS_OK);
    sl_out_abort(&out); /* the old content stays */
    REQUIRE(sl_file_map(path, &view, &err) == SPECRT_STATUS_OK);
    CHECK_INT(view.n, 5);
    sl_file_unmap(&view);
    CHECK_INT(clear_folder(), 1); /* no temporary file is left */
}

TEST(out_many, "as many as the signal handler can remove, and one more") {
    enum { MOST = 64 };
    specrt_error err;
    out_file out[MOST + 1];
    char name[32];
    for (int i = 0; i <= MOST; i++) {
        snprintf(name, sizeof name, "out%d", i);
        errno = 0;
        CHECK_INT(sl_out_open(&out[i], in_folder(name), false, &err),
                  i < MOST ? SPECRT_STATUS_OK : SPECRT_STATUS_IO);
    }
    CHECK_HAS(err.msg, "out64: cannot create: Too many open files");
    for (int i = 0; i < MOST; i++) sl_out_abort(&out[i]);
    CHECK_INT(clear_folder(), 0);
}

TEST(read_pipe, "more than a pipe and the first block of the reader hold") {
    enum { N = 300000 };
    int ends[2];
    char path[32];
    file_view view;
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < N; i++)
            if (write(ends[1], &(uint8_t){(uint8_t)(i % 251)}, 1) != 1) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    REQUIRE(view.n == N);
    for (int i = 0; i < N; i++) REQUIRE(view.bytes[i] == i % 251);
    sl_file_unmap(&view);
    close(ends[0]);
    CHECK(waitpid(child, NULL, 0) == child);
}

/* A task of which half was done in a million seconds, and one whose end is not known. */
TEST(progress, "share, speed and time left, and nothing where it is not to be shown") {
    static const uint64_t totals[] = {1500000000, 750000000, 0};
    static const uint64_t done[] = {750000000, 750000000, 1000};
    static const char *const expected[] = {"\r\033[Kread    0%  0 B/s\r",
                                           " 50%  750 B/s  ETA 16666:4", "100%  750 B/s\r",
                                           "1.0 kB  0 B/s\r"};
    progress p;
    int saved = quietly(STDERR_FILENO);
    for (int i = 0; i < 3; i++) {
        sl_progress_begin(&p, 1, "read", "B", totals[i]);
        sl_progress_update(&p, 1); /* too early */
        p.started -= 1e6, p.drawn -= 1e6;
        sl_progress_update(&p, done[i]);
        sl_progress_end(&p);
        sl_progress_update(&p, done[i]);
        sl_progress_begin(&p, 0, "never", "B", totals[i]);
        p.drawn -= 1e6;
        sl_progress_update(&p, done[i]);
    }
    loudly(STDERR_FILENO, saved);
    for (int i = 0; i < 4; i++) CHECK_HAS(printed, expected[i]);
    CHECK(!strstr(printed, "never"));
}

TEST(disk_full, "errors name the file") {
    specrt_error err;
    CHECK(sl_out_bytes("/dev/full", false, "x", 1, &err) == SPECRT_STATUS_IO);
    CHECK(strstr(err.msg, "/dev/full") != NULL);
    CHECK(sl_out_bytes("/nonexistent/x", false, "x", 1, &err) == SPECRT_STATUS_IO);
    file_view view;
    CHECK(sl_file_map("/nonexistent/x", &view, &err) == SPECRT_STATUS_IO);
    CHECK(sl_file_map("/tmp", &view, &err) == SPECRT_STATUS_IO);
}

TEST(interrupt, "a signal leaves no temporary file and exits 130") {
    const char *path = in_folder("cut");
    pid_t child = fork();
    if (child == 0) {
        out_file out;
        sl_io_cleanup_on_signals();
        if (freopen("/dev/null", "w", stderr) &&
            sl_out_open(&out, path, false, NULL) == SPECRT_STATUS_OK)
            raise(SIGINT);
        _exit(1);
    }
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state));
    CHECK_INT(WEXITSTATUS(state), CLI_INTERRUPTED);
    CHECK_INT(clear_folder(), 0);
}

/* Writing to a pipe whose reader is gone, in a process whose parent ignores SIGPIPE. */
static void write_to_closed_pipe(const char *path) {
    out_file out;
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    sl_io_cleanup_on_signals();
    if (sl_out_open(&out, path, false, NULL) == SPECRT_STATUS_OK && pipe(ends) == 0 &&
        close(ends[0]) == 0 && write(ends[1], "x", 1) == 1)
        _exit(0);
    _exit(1);
}

TEST(closed_pipe, "SIGPIPE leaves no temporary file and ends the process") {
    const char *path = in_folder("cut");
    pid_t child = fork();
    if (child == 0) write_to_closed_pipe(path);
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFSIGNALED(state));
    CHECK_INT(WTERMSIG(state), SIGPIPE);
    CHECK_INT(clear_folder(), 0);
}

/* Files of the test's folder whose name begins so. */
static int n_files(const char *start) {
    int n = 0;
    DIR *d = opendir(folder());
    REQUIRE(d != NULL);
    for (struct dirent *entry; (entry = readdir(d));)
        n += entry->d_name[0] != '.' && strncmp(entry->d_name, start, strlen(start)) == 0;
    closedir(d);
    return n;
}

/* A writer of `path` that is killed before it commits. */
static void write_and_die(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        out_file out;
        if (sl_out_open(&out, path, true, NULL) == SPECRT_STATUS_OK &&
            sl_out_write(&out, "half", 4, NULL) == SPECRT_STATUS_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    REQUIRE(WIFSIGNALED(state));
}

/* Names that look alike but are of other files. */
static const char *const alike[] = {"out.specrt-tmp-", "out.specrt-tmp-1234567",
                                    "out.specrt-tmp-..-...", "out.specrt-tmp",
                                    "about.specrt-tmp-123456"};
enum { N_ALIKE = sizeof alike / sizeof alike[0] };

TEST(leftovers, "what a killed writer left goes with the next") {
    out_file out;
    char path[128], other[128];
    strcpy(path, in_folder("out"));
    strcpy(other, in_folder("about"));
    write_and_die(path);
    write_and_die(other);
    REQUIRE(n_files("") == 2);
    for (int i = 0; i < N_ALIKE; i++)
        REQUIRE(sl_out_bytes(in_folder(alike[i]), true, "x", 1, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(symlink("about", in_folder("out.specrt-tmp-abcdef")), 0);
    REQUIRE(sl_out_open(&out, path, false, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(n_files("out.specrt-tmp"), N_ALIKE + 1); /* 4 alike, the link, this writer's */
    CHECK(sl_out_commit(&out, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(n_files("about.specrt-tmp"), 2); /* another output's leftover, and one alike */
    REQUIRE(sl_out_open(&out, other, false, NULL) == SPECRT_STATUS_OK);
    sl_out_abort(&out);
    CHECK_INT(n_files("about"), 0);
    CHECK_INT(clear_folder(), N_ALIKE + 1); /* but about's; the link, the output */
}

TEST(leftovers_live, "of two that write one file both succeed, and the later stays") {
    out_file first, second;
    file_view view;
    const char *path = in_folder("out");
    REQUIRE(sl_out_open(&first, path, false, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_out_open(&second, path, false, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(n_files("out.specrt-tmp-"), 2);
    CHECK(sl_out_write(&second, "second", 6, NULL) == SPECRT_STATUS_OK);
    CHECK(sl_out_commit(&second, NULL) == SPECRT_STATUS_OK);
    CHECK(sl_out_write(&first, "first", 5, NULL) == SPECRT_STATUS_OK);
    CHECK(sl_out_commit(&first, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(view.n, 5);
    sl_file_unmap(&view);
    CHECK_INT(clear_folder(), 1);
}

TEST(links, "a link that leads nowhere is no free name") {
    specrt_error err;
    const char *nowhere = in_folder("nowhere"), *circle = in_folder("circle");
    CHECK_INT(symlink("no such file", nowhere), 0);
    CHECK_INT(symlink("circle", circle), 0);
    for (int force = 0; force < 2; force++) {
        CHECK(sl_out_check(nowhere, force, &err) == SPECRT_STATUS_IO);
        CHECK(sl_out_bytes(nowhere, force, "x", 1, &err) == SPECRT_STATUS_IO);
        CHECK_HAS(err.msg,
                  "nowhere: expected a file, found a link to a file that does not exist; ");
        CHECK(sl_out_bytes(circle, force, "x", 1, &err) == SPECRT_STATUS_IO);
        CHECK_HAS(err.msg, "circle: expected a file, found a link in a circle of links; ");
    }
    CHECK_INT(clear_folder(), 2);
}

static void add_block(void *arg, int64_t block, int worker) {
    (void)worker;
    __atomic_fetch_add((int64_t *)arg, block + 1, __ATOMIC_RELAXED);
}

TEST(parallel, "each block runs once for any number of threads") {
    for (int threads = 1; threads <= 7; threads += 3) {
        int64_t sum = 0;
        sl_parallel_for(threads, 1000, add_block, &sum);
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

TEST(pool, "more threads than cores, and pauses in which they fall asleep") {
    for (int threads = 1; threads <= 8; threads += 7) {
        parallel_pool *pool = sl_parallel_pool_create(threads);
        REQUIRE(pool);
        CHECK_INT(sl_parallel_pool_threads(pool), threads);
        for (int loop = 0; loop < 3000; loop++) {
            counted c = {{0}, 0};
            int n = loop % 17;
            sl_parallel_pool_for(pool, n, count_run, &c);
            REQUIRE(c.sum == n * (n + 1) / 2);
            for (int i = 0; i < 16; i++) REQUIRE(c.runs[i] == (i < n));
            if (loop % 100 == 0) usleep(300);
        }
        sl_parallel_pool_free(pool);
    }
    parallel_pool *idle = sl_parallel_pool_create(3);
    sl_parallel_pool_free(idle);
}

typedef struct meeting {
    pthread_t of[2];
    int n;
} meeting;

static void meet(void *arg, int64_t i) {
    meeting *m = (meeting *)arg;
    m->of[i] = pthread_self();
    __atomic_fetch_add(&m->n, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&m->n, __ATOMIC_SEQ_CST) < 2) sched_yield();
}

TEST(pool_threads, "each of two tasks ends when both have begun, in every loop") {
    parallel_pool *pool = sl_parallel_pool_create(2);
    REQUIRE(pool);
    for (int loop = 0; loop < 100; loop++) {
        meeting m = {.n = 0};
        sl_parallel_pool_for(pool, 2, meet, &m);
        CHECK(!pthread_equal(m.of[0], m.of[1]));
    }
    sl_parallel_pool_free(pool);
}

TEST(pool_short, "loops so short that a worker often comes when one is over, and the next begins") {
    parallel_pool *pool = sl_parallel_pool_create(2);
    REQUIRE(pool);
    for (int loop = 0; loop < 50000; loop++) {
        counted c = {{0}, 0};
        sl_parallel_pool_for(pool, 2, count_run, &c);
        REQUIRE(c.sum == 3);
    }
    sl_parallel_pool_free(pool);
}
