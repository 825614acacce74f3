/* folder.h : a folder for the files of a test, made when first asked for. */
#ifndef FOLDER_H
#define FOLDER_H

#include "test.h"

#include <ftw.h>
#include <stdbool.h>
#include <unistd.h>

static char folder_path[] = "/tmp/specrt-test-XXXXXX";
static bool folder_made;

static inline const char *folder(void) {
    if (!folder_made) {
        strcpy(strrchr(folder_path, '-'), "-XXXXXX");
        REQUIRE(mkdtemp(folder_path) != NULL);
        folder_made = true;
    }
    return folder_path;
}

/* @return the path of a file in it, one of 32 in turns. */
static inline const char *in_folder(const char *name) {
    static char paths[32][400];
    static int turn;
    char *path = paths[turn++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", folder(), name);
    return path;
}

static int folder_count; /* of what was removed */
static int folder_remove(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type;
    folder_count += at->level > 0;
    return remove(path);
}

/* Removes it with all that it holds, so that a temporary file does not go unseen.
 * @return how many files and folders it held. */
static inline int clear_folder(void) {
    folder_count = 0;
    if (folder_made) CHECK_INT(nftw(folder_path, folder_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
    folder_made = false;
    return folder_count;
}

#endif
