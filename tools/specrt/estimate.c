/* estimate.c : see estimate.h. */
#include "estimate.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "model/model.h"
#include "tool.h"

static double cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (double)n : 1;
}

/* ---- what files hold ---- */

/* Compressed text is three to five times as long when it is read. */
static double bytes_of_file(const char *path, const struct stat *s) {
    const char *ending = strrchr(path, '.');
    bool packed = ending && (strcmp(ending, ".gz") == 0 || strcmp(ending, ".zst") == 0);
    return (packed ? 4.0 : 1.0) * (double)s->st_size;
}

static double bytes_of(const char *path, int depth) {
    struct stat s;
    double sum = 0;
    if (stat(path, &s) != 0) return 0;
    if (!S_ISDIR(s.st_mode)) return bytes_of_file(path, &s);
    DIR *folder = depth < 16 ? opendir(path) : NULL;
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[TOOL_PATH_BYTES];
        int n = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && n < (int)sizeof name) sum += bytes_of(name, depth + 1);
    }
    closedir(folder);
    return sum;
}

static double bytes_of_all(const cli_list *paths) {
    double sum = 0;
    for (int i = 0; i < paths->n; i++) sum += bytes_of(paths->items[i], 0);
    return sum;
}

/* ---- what takes how long ---- */

double estimate_ranks(const cli_list *text) {
    return bytes_of_all(text) / 90e6 / cores();
}

double estimate_graph(const cli_list *text) {
    return bytes_of_all(text) / 15e6 / cores();
}

double estimate_copy(const char *path) {
    return bytes_of(path, 0) / 500e6;
}

static bool head_of(const char *path, double *n_rows, double *n_cols) {
    model m;
    specrt_head_desc head;
    const char *name;
    specrt_error err;
    if (sl_model_open(path, &m, &err) != SPECRT_STATUS_OK) return false;
    bool found = sl_model_head(&m, NULL, &head, &name, &err) == SPECRT_STATUS_OK;
    *n_rows = found ? (double)head.n_rows : 0;
    *n_cols = found ? (double)head.n_cols : 0;
    sl_model_close(&m);
    return found;
}

/* The covariance of the rows, and their codes. */
double estimate_sketch(const char *path) {
    double n, d;
    return head_of(path, &n, &d) ? (n * 37e-6 + n * d * d * 4e-11) / cores() : 0;
}

double estimate_clusters(const char *path) {
    double n, d;
    return head_of(path, &n, &d) ? (n * 40e-6 + n * d * 27e-9) / cores() : 0;
}

double estimate_decode(const char *path, double n_tokens) {
    return n_tokens * bytes_of(path, 0) / 3e9 / cores();
}

const char *estimate_text(double seconds) {
    static char text[64];
    if (seconds <= 0) return "";
    if (seconds < 90)
        snprintf(text, sizeof text, "about %.0f s", seconds < 1 ? 1.0 : seconds);
    else
        snprintf(text, sizeof text, "about %.0f min", seconds / 60);
    return text;
}
