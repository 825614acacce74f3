/* out_folder.c : see out_folder.h. Files are written into a temporary folder, which takes the name of the
 * folder, or changes places with it. */
#include "specrt_tools.h"
#include "base/out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/leftovers.h"
#include "base/system.h"

static specrt_status failed(const char *path, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s: %s", path, what, strerror(errno));
}

/* Owned; NULL: no memory. */
static char *join(const char *folder, const char *between, const char *name) {
    char *path;
    return asprintf(&path, "%s%s%s", folder, between, name) < 0 ? NULL : path;
}

/* ---- what is there ---------------------------------------------------------------------------- */

static bool is_ours(const out_folder *f, const char *name) {
    for (int i = 0; i < f->n_known; i++)
        if (strcmp(f->names[i], name) == 0) return true;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Whether there is anything else; its name is in the error then. */
static bool has_others(const out_folder *f, specrt_error *err) {
    bool found = false;
    DIR *folder = opendir(f->path);
    for (struct dirent *e; folder && !found && (e = readdir(folder)) != NULL;)
        if ((found = !is_ours(f, e->d_name)))
            specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                             "%s: expected a new or empty folder, found %.100s in it, which this "
                             "command does not write",
                             f->path, e->d_name);
    if (folder) closedir(folder);
    return found;
}

/* shared : whether there is anything else, which may stay. */
static specrt_status check_folder(const out_folder *f, bool *shared, specrt_error *err) {
    specrt_error what;
    specrt_status status = SPECRT_STATUS_OK;
    *shared = has_others(f, &what);
    if (*shared && !f->others) return specrt_error_set(err, what.status, "%s", what.msg);
    for (int i = 0; i < f->n_known && status == SPECRT_STATUS_OK; i++) {
        char *path = join(f->path, "/", f->names[i]);
        if (!path) return sl_error_no_memory(err, f->path);
        status = sl_out_check(path, f->force, err);
        free(path);
    }
    return status;
}

/* A folder in which a process stands, or on which a file system is mounted, is not replaced. */
static bool can_be_replaced(const char *path) {
    struct stat own, here, parent;
    char *up = join(path, "/", "..");
    bool ok = up && stat(path, &own) == 0 && stat(".", &here) == 0 && stat(up, &parent) == 0 &&
              own.st_dev == parent.st_dev &&
              !(own.st_dev == here.st_dev && own.st_ino == here.st_ino);
    free(up);
    return ok;
}

/* ---- the temporary folder --------------------------------------------------------------------- */

/* PATH, PATH/ : what the name begins with; what killed writers of such a name left goes. */
static specrt_status make_temp(out_folder *f, const char *between, specrt_error *err) {
    char *prefix = join(f->path, between, "");
    free(f->temp);
    f->temp = prefix ? join(prefix, "", TEMP_SUFFIX) : NULL;
    if (f->temp) sl_leftovers_remove(sl_folder_open(f->temp), prefix);
    free(prefix);
    if (!f->temp) return sl_error_no_memory(err, f->path);
    f->lock = sl_temp_keep(f->temp, sl_leftovers_create_folder);
    return f->lock >= 0 ? SPECRT_STATUS_OK : failed(f->path, "cannot make the folder", err);
}

/* As the folder that it replaces, or as mkdir() makes one. */
static void set_mode(const out_folder *f) {
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    fchmod(f->lock, f->exists && stat(f->path, &info) == 0 ? info.st_mode & 07777 : 0777 & ~mask);
}

static specrt_status open_temp(out_folder *f, bool beside, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_IO;
    f->beside = beside;
    if (beside) status = make_temp(f, "", err);
    /* The folder may be writable where its parent is not. */
    if (status == SPECRT_STATUS_IO && f->exists) {
        f->beside = false;
        status = make_temp(f, "/", err);
    }
    if (status == SPECRT_STATUS_OK) set_mode(f);
    return status;
}

/* Where links lead, or the path without its last slashes; owned. */
static char *plain_path(const char *path, bool exists) {
    char *plain = exists ? realpath(path, NULL) : strdup(path);
    for (size_t n = plain ? strlen(plain) : 0; n > 1 && plain[n - 1] == '/'; n--) plain[n - 1] = 0;
    return plain;
}

static specrt_status open_folder(out_folder *f, const char *path, specrt_error *err) {
    struct stat info;
    bool shared;
    f->exists = stat(path, &info) == 0;
    if (f->exists && !S_ISDIR(info.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: expected a folder, found a file",
                                path);
    f->path = plain_path(path, f->exists);
    if (!f->path) return sl_error_no_memory(err, path);
    if (!f->exists) return open_temp(f, true, err);
    sl_leftovers_remove(open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "/"); /* in it */
    TRY(check_folder(f, &shared, err));
    return open_temp(f, !shared && can_be_replaced(f->path), err);
}

/* ---- finishing -------------------------------------------------------------------------------- */

/* Whatever of the temporary folder has not got its name. */
static void close_folder(out_folder *f) {
    for (int i = 0; i < f->n; i++) {
        sl_out_abort(&f->files[i]);
        if (!f->named[i]) continue;
        unlink(f->named[i]);
        sl_temp_forget(f->named[i]);
        free(f->named[i]);
    }
    if (f->temp) {
        rmdir(f->temp);
        sl_temp_forget(f->temp);
    }
    if (f->lock >= 0) close(f->lock);
    free(f->temp);
    free(f->path);
    *f = (out_folder){.lock = -1};
}

specrt_status sl_out_folder_open(out_folder *f, const char *path, const char *const *names, int n,
                                 int n_known, bool others, bool force, specrt_error *err) {
    *f = (out_folder){.names = names,
                      .n_names = n,
                      .n_known = n_known,
                      .lock = -1,
                      .others = others,
                      .force = force};
    specrt_status status = open_folder(f, path, err);
    if (status != SPECRT_STATUS_OK) close_folder(f);
    return status;
}

specrt_status sl_out_folder_next(out_folder *f, out_file **out, specrt_error *err) {
    *out = &f->files[f->n];
    char *path = join(f->temp, "/", f->names[f->n]);
    specrt_status status =
        path ? sl_out_open(*out, path, false, err) : sl_error_no_memory(err, f->path);
    free(path);
    if (status == SPECRT_STATUS_OK) f->n++;
    return status;
}

/* The complete file stays one that an interrupt removes. */
static specrt_status complete(out_folder *f, int i, specrt_error *err) {
    f->named[i] = strdup(f->files[i].path);
    if (!f->named[i]) return sl_error_no_memory(err, f->path);
    if (sl_temp_keep(f->named[i], NULL) < 0) return failed(f->path, "too many files", err);
    return sl_out_commit(&f->files[i], err);
}

static specrt_status move_files(out_folder *f, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; i < f->n && status == SPECRT_STATUS_OK; i++) {
        char *path = join(f->path, "/", f->names[i]);
        if (!path) return sl_error_no_memory(err, f->path);
        if (rename(f->named[i], path) != 0) status = failed(path, "cannot replace", err);
        free(path);
    }
    return status;
}

/* What was there is in the temporary folder afterwards. */
static specrt_status give_name(out_folder *f, specrt_error *err) {
    bool shared = false;
    if (!f->exists && rename(f->temp, f->path) == 0) return SPECRT_STATUS_OK;
    if (!f->exists && errno != ENOTEMPTY && errno != EEXIST)
        return failed(f->path, "cannot replace", err);
    if (!f->exists) TRY(check_folder(f, &shared, err)); /* another writer was first */
    if (f->beside && !shared && sl_exchange(f->temp, f->path)) return SPECRT_STATUS_OK;
    return move_files(f, err);
}

/* Of an earlier writer; after an exchange the temporary folder has them. */
static void remove_stale(const out_folder *f) {
    const char *const folders[2] = {f->path, f->temp};
    for (int i = f->n_names; i < f->n_known; i++)
        for (int k = 0; k < 2; k++) {
            char *path = join(folders[k], "/", f->names[i]);
            if (path) unlink(path);
            free(path);
        }
}

static void sync_folders(const out_folder *f) {
    int folders[2] = {open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), sl_folder_open(f->path)};
    for (int i = 0; i < 2; i++)
        if (folders[i] >= 0) fsync(folders[i]), close(folders[i]);
}

specrt_status sl_out_folder_finish(out_folder *f, specrt_status status, specrt_error *err) {
    sigset_t all, old;
    for (int i = 0; status == SPECRT_STATUS_OK && i < f->n; i++) status = complete(f, i, err);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    if (status == SPECRT_STATUS_OK) {
        status = give_name(f, err);
        if (status == SPECRT_STATUS_OK) remove_stale(f);
        sync_folders(f);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    close_folder(f);
    return status;
}
