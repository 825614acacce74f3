/* step.c : see step.h. The record of a step is FOLDER/specrt-steps/NAME.key: the digest of its command, of
 * the sizes and times of the files that the command names, and of the steps before it. OUTPUT.stamp is the
 * digest of an output's size and time. */
#include "step.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/child.h"
#include "base/error.h"
#include "base/io.h"
#include "base/system.h"
#include "base/text.h"
#include "estimate.h"
#include "tool.h"

#define RECORDS "specrt-steps" /* the folder of records, and the mark of a folder of ours */

void step_word(step *s, const char *word) {
    if (s->n < STEP_WORDS - 1) s->words[s->n++] = word; /* the last one stays NULL, for execve() */
}

void step_words(step *s, ...) {
    va_list words;
    va_start(words, s);
    for (const char *word; (word = va_arg(words, const char *)) != NULL;) step_word(s, word);
    va_end(words);
}

void step_option(step *s, const char *name, const char *value) {
    if (!value) return;
    step_word(s, name);
    step_word(s, value);
}

static bool record_path(const steps *all, const char *name, const char *ending, char *path) {
    int n = snprintf(path, TOOL_PATH_BYTES, "%s/" RECORDS "/%s%s", all->folder, name, ending);
    return n < TOOL_PATH_BYTES;
}

/* ---- what a step depends on ---- */

static void add_text(specrt_sha256 *sha, const char *text) {
    specrt_sha256_update(sha, text, strlen(text) + 1);
}

static void add_stamp(specrt_sha256 *sha, const struct stat *s) {
    struct timespec modified = sl_modified(s);
    int64_t stamp[3] = {s->st_size, modified.tv_sec, modified.tv_nsec};
    specrt_sha256_update(sha, stamp, sizeof stamp);
}

/* Whether a path is this folder, or in it. */
static bool is_within(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* The size and time of a file; of a folder those of all files in it, by name.
 *   without : a folder that is passed over; NULL: none */
static void add_path(specrt_sha256 *sha, const char *path, const char *without, int depth) {
    struct dirent **entries;
    struct stat s;
    if (stat(path, &s) != 0) return;
    if (!S_ISDIR(s.st_mode)) {
        add_stamp(sha, &s);
        return;
    }
    int n = depth < 16 ? scandir(path, &entries, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        char file[TOOL_PATH_BYTES];
        int length = snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && length < (int)sizeof file &&
            !(without && is_within(file, without))) {
            add_text(sha, entries[i]->d_name);
            add_path(sha, file, without, depth + 1);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* The outputs of earlier steps are known by those steps. */
static void add_step(steps *all, const step *s) {
    add_text(&all->chain, SPECRT_VERSION_STRING);
    for (int i = 0; i < s->n; i++) {
        add_text(&all->chain, s->words[i]);
        if (i > 0 && !is_within(s->words[i], all->folder))
            add_path(&all->chain, s->words[i], all->folder, 0);
    }
}

static void key_of(const specrt_sha256 *chain, char text[65]) {
    specrt_sha256 copy = *chain;
    uint8_t digest[32];
    specrt_sha256_final(&copy, digest);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* What an output is now. */
static void stamp_of(const char *output, char text[65]) {
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    add_path(&sha, output, NULL, 0);
    key_of(&sha, text);
}

/* The record of an output that several steps write is the last one's. */
static const char *name_of(const char *output) {
    return strrchr(output, '/') + 1; /* it is in the folder */
}

static bool says(const steps *all, const char *name, const char *ending, const char *text) {
    char path[TOOL_PATH_BYTES], found[65] = "";
    FILE *f = record_path(all, name, ending, path) ? fopen(path, "r") : NULL;
    if (!f) return false;
    bool same = fread(found, 1, 64, f) == 64 && strcmp(found, text) == 0;
    fclose(f);
    return same;
}

/* An output that another program changed or removed is made again. */
static bool is_done(const steps *all, const step *s, const char *key) {
    char stamp[65];
    bool done = !all->changed && says(all, s->name, ".key", key);
    for (int i = 0; i < STEP_OUTPUTS && done && s->outputs[i]; i++) {
        stamp_of(s->outputs[i], stamp);
        done = says(all, name_of(s->outputs[i]), ".stamp", stamp);
    }
    return done;
}

/* ---- running a tool ---- */

/* What a tool prints, owned, until the tool ends; NULL: no memory, or far more than any tool prints. */
static char *read_all(int fd) {
    enum { MOST = 64 << 20 };
    char *text = NULL, part[4096];
    size_t n = 0;
    ssize_t got = 0;
    FILE *to = open_memstream(&text, &n);
    while (to && ftell(to) < MOST && (got = read(fd, part, sizeof part)) != 0)
        if (got > 0 && fwrite(part, 1, (size_t)got, to) < (size_t)got) break;
    bool whole = to && got == 0;
    if (to && fclose(to) == 0 && whole) return text;
    free(text);
    return NULL;
}

/* The exit code of a tool that has ended, for ours. */
static int code_of(int code, const char *name) {
    if (code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP)
        return CLI_INTERRUPTED;
    /* 4 is prepare's own word for a head that was not cut. */
    if (code < 128) return code == CLI_BELOW ? CLI_INVALID : code;
    sl_cli_warn("%s: ended by signal %d", name, code - 128);
    return CLI_IO;
}

/* What the tool prints goes to stderr, or is kept: *text, owned. */
static int run(step *s, char **text) {
    char path[TOOL_PATH_BYTES];
    const char *name = s->words[0];
    int ends[2], fds[2] = {-1, STDERR_FILENO};
    pid_t child;
    specrt_error err;
    *text = NULL;
    if (!tool_path(name, path)) return s->optional ? CLI_INVALID : CLI_USAGE;
    const bool keeps = s->prints != STEP_SHOWN;
    if (keeps && sl_pipe(ends) != 0) return sl_error_no_memory(&err, name), sl_cli_fail(&err);
    if (keeps) fds[1] = ends[1];
    s->words[0] = path;
    specrt_status status = sl_child_start(s->words, fds, 2, &child, &err);
    s->words[0] = name;
    if (keeps) close(ends[1]);
    if (keeps && status == SPECRT_STATUS_OK) *text = read_all(ends[0]);
    if (keeps) close(ends[0]);
    return status == SPECRT_STATUS_OK ? code_of(sl_child_wait(child), name) : sl_cli_fail(&err);
}

/* ---- a step ---- */

/* A word as sh reads it: between quotes where it has other characters than these. */
static void put_word(FILE *to, const char *word) {
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@+,-";
    if (*word && word[strspn(word, plain)] == 0) {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            fputs("'\\''", to);
        else
            fputc(*c, to);
    fputc('\'', to);
}

char *step_line(const step *s) {
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    for (int i = 0; to && i < s->n; i++) {
        if (i) fputc(' ', to);
        put_word(to, s->words[i]);
    }
    if (!to || fclose(to) == 0) return text;
    free(text);
    return NULL;
}

/* A tool as the user named this program, so that the line works where it is pasted. */
static void name_tool(const step *s, char path[TOOL_PATH_BYTES]) {
    const char *self = sl_program_name(), *slash = strrchr(self, '/');
    snprintf(path, TOOL_PATH_BYTES, "%.*s%s", slash ? (int)(slash + 1 - self) : 0, self,
             s->words[0]);
}

static int print_command(const step *s) {
    char *line = step_line(s);
    specrt_error err;
    if (!line) return sl_error_no_memory(&err, s->name), sl_cli_fail(&err);
    printf("  ");
    sl_text_lines(line, stdout);
    free(line);
    return CLI_OK;
}

static int keep(const steps *all, const char *name, const char *ending, const char *text) {
    char path[TOOL_PATH_BYTES];
    specrt_error err;
    record_path(all, name, ending, path); /* steps_open() has checked the length */
    specrt_status status =
        text ? sl_out_bytes(path, true, text, strlen(text), &err) : sl_error_no_memory(&err, path);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}

/* Options that change no output are no part of the record. */
static void add_common(const steps *all, step *s) {
    if (s->prints == STEP_JSON) step_word(s, "--json");
    if (!all->verbose) step_word(s, "-q");
    if (all->progress && s->prints != STEP_SHOWN) step_word(s, "--progress");
    if (all->threads) step_option(s, "--threads", all->threads);
}

static int keep_stamps(const steps *all, const step *s) {
    char stamp[65];
    int code = CLI_OK;
    for (int i = 0; i < STEP_OUTPUTS && code == CLI_OK && s->outputs[i]; i++) {
        stamp_of(s->outputs[i], stamp);
        code = keep(all, name_of(s->outputs[i]), ".stamp", stamp);
    }
    return code;
}

/* Where a step's text is kept. */
static const char *ending_of(const step *s) {
    return s->prints == STEP_TEXT ? ".txt" : ".json";
}

/* A step that was left out has a record, and no result. */
static bool was_left_out(const steps *all, const step *s) {
    json_object *result = s->optional ? step_result(all, s->name) : NULL;
    json_object_put(result);
    return s->optional && !result;
}

static int run_and_keep(const steps *all, step *s, const char *key) {
    char *text;
    add_common(all, s);
    if (s->fresh) unlink(s->outputs[0]);
    int code = run(s, &text);
    s->left_out = code == CLI_INVALID && s->optional;
    if (s->left_out) {
        sl_cli_warn("%s is left out", s->name);
        code = keep(all, s->name, ending_of(s), "null");
    } else if (code == CLI_OK && s->prints != STEP_SHOWN) {
        code = keep(all, s->name, ending_of(s), text);
    }
    if (code == CLI_OK) code = keep_stamps(all, s);
    if (code == CLI_OK) code = keep(all, s->name, ".key", key);
    if (code == CLI_INVALID && s->prints == STEP_JSON && text)
        s->findings = json_tokener_parse(text);
    free(text);
    return code;
}

/* A dry run tells every step's time; else who waits long is told. */
static const char *time_of(const steps *all, const step *s, bool done) {
    enum { LONG = 10 };
    if (done) return s->left_out ? "left out before" : "done before";
    return all->dry || s->seconds >= LONG ? estimate_text(s->seconds) : "";
}

int step_run(steps *all, step *s) {
    char key[65];
    add_step(all, s);
    key_of(&all->chain, key);
    bool done = is_done(all, s, key);
    s->left_out = done && was_left_out(all, s);
    const char *time = time_of(all, s, done);
    sl_cli_info("[%d/%d] %s: %s%s%s%s", ++all->n_done, all->n_steps, s->name, s->what,
                *time ? " (" : "", time, *time ? ")" : "");
    if (done) return CLI_OK;
    if (s->outputs[0]) all->changed = true; /* a check changes nothing that later steps read */
    all->seconds += s->seconds;
    if (!all->dry) return run_and_keep(all, s, key);
    char path[TOOL_PATH_BYTES];
    name_tool(s, path);
    s->words[0] = path;
    return print_command(s);
}

json_object *step_result(const steps *all, const char *name) {
    char path[TOOL_PATH_BYTES];
    return record_path(all, name, ".json", path) ? json_object_from_file(path) : NULL;
}

void step_print(const steps *all, const char *name) {
    char path[TOOL_PATH_BYTES], part[4096];
    FILE *from = record_path(all, name, ".txt", path) ? fopen(path, "r") : NULL;
    for (size_t n; from && (n = fread(part, 1, sizeof part, from)) > 0;) fwrite(part, 1, n, stdout);
    putchar('\n');
    if (from) fclose(from);
}

/* ---- the folder ---- */

/* The first entry of a folder, by name, other than this one; false: there is none. */
static bool find_other(const char *path, const char *than, char name[256]) {
    bool found = false;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, than) != 0 &&
            (!found || strcmp(entry->d_name, name) < 0))
            snprintf(name, 256, "%s", entry->d_name), found = true;
    if (folder) closedir(folder);
    return found;
}

static int fail(const char *path, const char *what, const char *why) {
    specrt_error err;
    specrt_error_set(&err, SPECRT_STATUS_IO, "%s: %s%s", path, what, why);
    return sl_cli_fail(&err);
}

static int make_folder(const char *path) {
    struct stat s;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode)))
        return CLI_OK;
    return fail(path, "cannot make this folder: ", strerror(errno));
}

int steps_check(const steps *all, bool force) {
    char name[256], records[TOOL_PATH_BYTES];
    struct stat s;
    if (strlen(all->folder) > TOOL_PATH_BYTES / 2)
        return sl_cli_usage("-o: expected a shorter path");
    if (stat(all->folder, &s) == 0 && !S_ISDIR(s.st_mode))
        return fail(all->folder, "expected a folder, found a file", "");
    snprintf(records, sizeof records, "%s/" RECORDS, all->folder);
    if (force || access(records, F_OK) == 0 || !find_other(all->folder, "", name)) return -1;
    return sl_cli_usage("%s: expected a new or empty folder, or one of an earlier run, found %s in "
                        "it; name another folder, or replace files in this one (-f)",
                        all->folder, sl_text_name(name));
}

int steps_open(steps *all) {
    char path[TOOL_PATH_BYTES];
    snprintf(path, sizeof path, "%s/" RECORDS, all->folder);
    if (all->dry) return print_command(&(step){.words = {"mkdir", "-p", path}, .n = 3});
    int code = make_folder(all->folder);
    if (code == CLI_OK) code = make_folder(path);
    if (code != CLI_OK) return code;
    all->lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all->lock < 0) return fail(path, "cannot open: ", strerror(errno));
    if (flock(all->lock, LOCK_EX | LOCK_NB) == 0) return CLI_OK;
    close(all->lock);
    all->lock = -1; /* steps_close() leaves the folder to the other run */
    return fail(all->folder, "another specrt prepare writes to this folder; wait for its end", "");
}

void steps_close(steps *all) {
    char path[TOOL_PATH_BYTES], name[256];
    snprintf(path, sizeof path, "%s/" RECORDS, all->folder);
    if (all->lock < 0) return;
    if (!find_other(all->folder, RECORDS, name) && rmdir(path) == 0) rmdir(all->folder);
    close(all->lock);
}
