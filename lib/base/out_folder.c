/* out_folder.c : see out_folder.h. */
#include "specrt_tools.h"
#include "base/out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static specrt_status failed(const char *path, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s: %s", path, what, strerror(errno));
}

static bool is_ours(const out_folder *f, const char *name) {
    for (int i = 0; i < f->n_names; i++)
        if (strcmp(f->names[i], name) == 0) return true;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static specrt_status check_entries(const out_folder *f, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    DIR *folder = opendir(f->path);
    if (!folder) return failed(f->path, "cannot list the folder", err);
    for (struct dirent *e; status == SPECRT_STATUS_OK && (e = readdir(folder)) != NULL;)
        if (!is_ours(f, e->d_name))
            status = specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                      "%s: expected a new or empty folder, found %.100s in it, "
                                      "which this command does not write",
                                      f->path, e->d_name);
    closedir(folder);
    return status;
}

specrt_status sl_out_folder_open(out_folder *f, const char *path, const char *const *names, int n,
                                 bool force, specrt_error *err) {
    struct stat info;
    *f = (out_folder){.path = path, .names = names, .n_names = n, .force = force};
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISDIR(info.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: expected a folder, found a file",
                                path);
    if (exists) return check_entries(f, err);
    if (mkdir(path, 0777) != 0) return failed(path, "cannot make the folder", err);
    f->made = true;
    return SPECRT_STATUS_OK;
}

static specrt_status path_of(const out_folder *f, int i, char path[4096], specrt_error *err) {
    int n = snprintf(path, 4096, "%s/%s", f->path, f->names[i]);
    if (n < 4096) return SPECRT_STATUS_OK;
    errno = ENAMETOOLONG;
    return failed(f->path, "cannot create", err);
}

specrt_status sl_out_folder_next(out_folder *f, out_file **out, specrt_error *err) {
    char path[4096];
    *out = &f->files[f->n];
    TRY(path_of(f, f->n, path, err));
    TRY(sl_out_open(*out, path, f->force, err));
    f->n++;
    return SPECRT_STATUS_OK;
}

/* Files that have their names go only where nothing was before. */
static void take_back(out_folder *f, int n_named) {
    char path[4096];
    for (int i = 0; i < f->n; i++) sl_out_abort(&f->files[i]);
    if (!f->made) return;
    for (int i = 0; i < n_named; i++)
        if (path_of(f, i, path, NULL) == SPECRT_STATUS_OK) unlink(path);
    rmdir(f->path);
}

specrt_status sl_out_folder_finish(out_folder *f, specrt_status status, specrt_error *err) {
    int n_named = 0;
    for (; status == SPECRT_STATUS_OK && n_named < f->n; n_named++)
        status = sl_out_commit(&f->files[n_named], err);
    if (status != SPECRT_STATUS_OK) take_back(f, n_named);
    return status;
}
