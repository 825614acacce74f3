/* list.c : paths to files. Folders are walked in byte order of names; hidden entries are
 * passed over, links are followed, and nothing is listed twice for one path, so links may form
 * loops. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"

/* Files and folders seen: a hash set of (device, inode). */
typedef struct inode_set {
    struct {
        dev_t dev;
        ino_t ino;
        bool used;
    } * slots;
    size_t n, capacity; /* a power of two */
} inode_set;

static size_t inode_slot(const inode_set *set, dev_t dev, ino_t ino) {
    uint64_t key[2] = {(uint64_t)dev, (uint64_t)ino};
    size_t i = (size_t)specrt_hash64(key, sizeof key, 0) & (set->capacity - 1);
    while (set->slots[i].used && (set->slots[i].dev != dev || set->slots[i].ino != ino))
        i = (i + 1) & (set->capacity - 1);
    return i;
}

static bool inode_grow(inode_set *set) {
    inode_set grown = {.capacity = set->capacity ? 2 * set->capacity : 256, .n = set->n};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots) return false;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i].used)
            grown.slots[inode_slot(&grown, set->slots[i].dev, set->slots[i].ino)] = set->slots[i];
    free(set->slots);
    *set = grown;
    return true;
}

/* inode_add() : *added is false if it was there. */
static specrt_status inode_add(inode_set *set, const struct stat *st, bool *added) {
    if (2 * set->n >= set->capacity && !inode_grow(set)) return SPECRT_STATUS_NO_MEMORY;
    size_t i = inode_slot(set, st->st_dev, st->st_ino);
    *added = !set->slots[i].used;
    set->n += *added;
    set->slots[i].dev = st->st_dev;
    set->slots[i].ino = st->st_ino;
    set->slots[i].used = true;
    return SPECRT_STATUS_OK;
}

static specrt_status cannot(const char *what, const char *path, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot %s: %s", path, what,
                            strerror(errno));
}

specrt_status sl_corpus_list_add(corpus_list *list, const char *path, int32_t domain, bool named,
                                 uint64_t n_bytes, specrt_error *err) {
    char *copy = strdup(path);
    if (!copy || !sl_more(&list->files, list->n, sizeof *list->files))
        return free(copy), sl_error_no_memory(err, path);
    bool same = list->n > 0 && list->files[list->n - 1].domain == domain;
    uint32_t ordinal = same ? list->files[list->n - 1].ordinal + 1 : 0;
    list->files[list->n++] = (corpus_file){copy, domain, ordinal, named, n_bytes, false};
    return SPECRT_STATUS_OK;
}

void sl_corpus_list_free(corpus_list *list) {
    for (size_t i = 0; i < list->n; i++) free(list->files[i].path);
    free(list->files);
    memset(list, 0, sizeof *list);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static specrt_status walk(corpus_list *list, const char *folder, int32_t domain, inode_set *seen,
                          specrt_error *err);

static specrt_status walk_entry(corpus_list *list, const char *path, int32_t domain,
                                inode_set *seen, specrt_error *err) {
    struct stat st;
    bool added;
    if (stat(path, &st) != 0) {
        if (errno != ENOENT || lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
            return cannot("open", path, err);
        specrt_status status = sl_corpus_list_add(list, path, domain, false, 0, err);
        if (status == SPECRT_STATUS_OK) list->files[list->n - 1].dangling = true;
        return status;
    }
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return SPECRT_STATUS_OK;
    if (inode_add(seen, &st, &added) != SPECRT_STATUS_OK) return sl_error_no_memory(err, path);
    if (!added) return SPECRT_STATUS_OK;
    if (S_ISDIR(st.st_mode)) return walk(list, path, domain, seen, err);
    if (access(path, R_OK) != 0) return cannot("open", path, err);
    return sl_corpus_list_add(list, path, domain, false, (uint64_t)st.st_size, err);
}

static specrt_status walk(corpus_list *list, const char *folder, int32_t domain, inode_set *seen,
                          specrt_error *err) {
    struct dirent **entries;
    int n = scandir(folder, &entries, is_shown, by_name);
    if (n < 0) return cannot("list", folder, err);
    size_t n_folder = strlen(folder);
    const char *slash = n_folder > 0 && folder[n_folder - 1] == '/' ? "" : "/";
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; i < n; i++) {
        size_t n_path = n_folder + strlen(entries[i]->d_name) + 2;
        char *path = status == SPECRT_STATUS_OK ? (char *)malloc(n_path) : NULL;
        if (path) {
            snprintf(path, n_path, "%s%s%s", folder, slash, entries[i]->d_name);
            status = walk_entry(list, path, domain, seen, err);
        } else if (status == SPECRT_STATUS_OK)
            status = sl_error_no_memory(err, folder);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static specrt_status walk_root(corpus_list *list, const char *path, int32_t domain,
                               const struct stat *st, specrt_error *err) {
    inode_set seen = {0};
    struct stat out;
    bool added;
    size_t before = list->n;
    specrt_status status = inode_add(&seen, st, &added);
    /* What is seen is not listed again. */
    if (status == SPECRT_STATUS_OK && list->exclude && stat(list->exclude, &out) == 0)
        status = inode_add(&seen, &out, &added);
    status = status == SPECRT_STATUS_OK ? walk(list, path, domain, &seen, err)
                                        : sl_error_no_memory(err, path);
    free(seen.slots);
    if (status == SPECRT_STATUS_OK && list->n == before)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected files, found a folder without any", path);
    return status;
}

specrt_status sl_corpus_list_path(corpus_list *list, const char *path, int32_t domain,
                                  specrt_error *err) {
    struct stat st;
    if (strcmp(path, "-") == 0) {
        for (size_t i = 0; i < list->n; i++)
            if (strcmp(list->files[i].path, "-") == 0)
                return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                        "-: standard input is given twice");
        list->has_pipe = true;
        return sl_corpus_list_add(list, path, domain, true, 0, err);
    }
    if (stat(path, &st) != 0 || access(path, R_OK) != 0) return cannot("open", path, err);
    if (S_ISDIR(st.st_mode)) return walk_root(list, path, domain, &st, err);
    bool regular = S_ISREG(st.st_mode);
    list->has_pipe |= !regular;
    return sl_corpus_list_add(list, path, domain, true, regular ? (uint64_t)st.st_size : 0, err);
}
