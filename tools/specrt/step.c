/* step.c : see step.h. The record of a step is FOLDER/steps/NAME.key: the digest of its command, of the sizes
 * and times of the files that the command names, and of the steps before it. */
#include "step.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "estimate.h"
#include "tool.h"

extern char **environ;

void step_word(step *s, const char *word) {
    if (s->n < STEP_WORDS - 1) s->words[s->n++] = word; /* the last one stays NULL, for execve() */
}

void step_option(step *s, const char *name, const char *value) {
    if (!value) return;
    step_word(s, name);
    step_word(s, value);
}

static bool record_path(const steps *all, const char *name, const char *ending, char *path) {
    int n = snprintf(path, TOOL_PATH_BYTES, "%s/steps/%s%s", all->folder, name, ending);
    return n < TOOL_PATH_BYTES;
}

/* ---- what a step depends on ---- */

static void add_text(specrt_sha256 *sha, const char *text) {
    specrt_sha256_update(sha, text, strlen(text) + 1);
}

static void add_stamp(specrt_sha256 *sha, const struct stat *s) {
    int64_t stamp[3] = {s->st_size, s->st_mtim.tv_sec, s->st_mtim.tv_nsec};
    specrt_sha256_update(sha, stamp, sizeof stamp);
}

/* The files of a folder in the order of their names; those of its folders count by the folder's own time. */
static void add_folder(specrt_sha256 *sha, const char *path) {
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[TOOL_PATH_BYTES];
        struct stat s;
        int length = snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && length < (int)sizeof file && stat(file, &s) == 0) {
            add_text(sha, entries[i]->d_name);
            add_stamp(sha, &s);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

static bool is_ours(const steps *all, const char *path) {
    size_t n = strlen(all->folder);
    return strncmp(path, all->folder, n) == 0 && path[n] == '/';
}

/* The outputs of earlier steps are known by those steps. */
static void add_step(steps *all, const step *s) {
    add_text(&all->chain, SPECRT_VERSION_STRING);
    for (int i = 0; i < s->n; i++) {
        struct stat file;
        add_text(&all->chain, s->words[i]);
        if (i == 0 || is_ours(all, s->words[i]) || stat(s->words[i], &file) != 0) continue;
        if (S_ISDIR(file.st_mode))
            add_folder(&all->chain, s->words[i]);
        else
            add_stamp(&all->chain, &file);
    }
}

static void key_of(const specrt_sha256 *chain, char text[65]) {
    specrt_sha256 copy = *chain;
    uint8_t digest[32];
    specrt_sha256_final(&copy, digest);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static bool is_done(const steps *all, const step *s, const char *key) {
    char path[TOOL_PATH_BYTES], found[65] = "";
    if (all->changed || (s->output && access(s->output, R_OK) != 0)) return false;
    FILE *f = record_path(all, s->name, ".key", path) ? fopen(path, "r") : NULL;
    if (!f) return false;
    bool same = fread(found, 1, 64, f) == 64 && strcmp(found, key) == 0;
    fclose(f);
    return same;
}

/* ---- running a tool ---- */

static int wait_for(pid_t child, const char *name) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return CLI_IO;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM) return CLI_INTERRUPTED;
    sl_cli_warn("%s: ended by signal %d", name, WTERMSIG(status));
    return CLI_IO;
}

static int run(steps *all, step *s) {
    char path[TOOL_PATH_BYTES], result[TOOL_PATH_BYTES];
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (!tool_path(s->words[0], path)) return CLI_USAGE;
    if (!record_path(all, s->name, ".json", result))
        return sl_cli_usage("%s: expected a shorter path", all->folder);
    posix_spawn_file_actions_init(&actions);
    if (s->shows)
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    else
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, result,
                                         O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int failed = posix_spawn(&child, path, &actions, NULL, (char **)s->words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        sl_cli_warn("%s: cannot run: %s", path, strerror(failed));
        return CLI_IO;
    }
    return wait_for(child, s->words[0]);
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

static int print_command(const step *s) {
    char *line = step_line(s);
    specrt_error err;
    if (!line) return sl_error_no_memory(&err, s->name), sl_cli_fail(&err);
    printf("  ");
    sl_text_lines(line, stdout);
    free(line);
    return CLI_OK;
}

static int keep_record(const steps *all, const step *s, const char *key) {
    char path[TOOL_PATH_BYTES];
    specrt_error err;
    record_path(all, s->name, ".key", path); /* run() has checked the length of a longer one */
    return sl_out_bytes(path, true, key, 64, &err) == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}

int step_run(steps *all, step *s) {
    char key[65];
    add_step(all, s);
    key_of(&all->chain, key);
    bool done = is_done(all, s, key);
    const char *time = done ? "done before" : all->dry ? estimate_text(s->seconds) : "";
    sl_cli_info("[%d/%d] %s: %s%s%s%s", ++all->n_done, all->n_steps, s->name, s->what,
                *time ? " (" : "", time, *time ? ")" : "");
    if (done) return CLI_OK;
    all->changed = true;
    all->seconds += s->seconds;
    if (all->dry) return print_command(s);
    if (!s->shows) step_word(s, "--json");
    if (!all->verbose) step_word(s, "-q");
    int code = run(all, s);
    return code == CLI_OK ? keep_record(all, s, key) : code;
}

json_object *step_result(const steps *all, const char *name) {
    char path[TOOL_PATH_BYTES];
    return record_path(all, name, ".json", path) ? json_object_from_file(path) : NULL;
}
