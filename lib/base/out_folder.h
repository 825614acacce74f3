/* out_folder.h : several files of one folder, which appears whole or not at all. */
#ifndef BASE_OUT_FOLDER_H
#define BASE_OUT_FOLDER_H

#include "base/io.h"

enum { OUT_FOLDER_FILES = 24 };

typedef struct out_folder {
    char *path; /* owned */
    char *temp; /* where files are written: PATH.specrt-tmp-XXXXXX, owned; NULL: none */
    const char *const *names; /* [n_known] borrowed; the first n_names are written */
    int n_names, n_known, n;  /* n: files begun */
    int lock;                 /* the descriptor of temp */
    bool exists, beside;      /* path was there; temp is beside it, not in it */
    bool others, force;       /* as sl_out_folder_open() has them */
    out_file files[OUT_FOLDER_FILES];
    char *named[OUT_FOLDER_FILES]; /* files that are complete, in temp; owned */
} out_folder;

/* sl_out_folder_open() : begin a folder, which may be there.
 *   names  : [n_known] the first n are what will be written, at most OUT_FOLDER_FILES; the others are what an
 *            earlier writer may have left, which goes
 *   others : other files may be in it, and stay; else a folder with anything else is refused: a reader would
 *            take both for one thing
 *   force  : files of these names are replaced
 * @return IO, NO_MEMORY, BAD_ARG naming what is there. Nothing is left to close then. */
specrt_status sl_out_folder_open(out_folder *f, const char *path, const char *const *names, int n,
                                 int n_known, bool others, bool force, specrt_error *err);

/* sl_out_folder_next() : begin the file of the next of those names; borrowed. @return as sl_out_open(). */
specrt_status sl_out_folder_next(out_folder *f, out_file **out, specrt_error *err);

/* sl_out_folder_finish() : give the folder its name if status is OK, in place of one that was there; else,
 * and on failure, take back what was written. In a folder with other files, and where a folder cannot be
 * replaced, files get their names one after another. @return the status, or what went wrong. */
specrt_status sl_out_folder_finish(out_folder *f, specrt_status status, specrt_error *err);

#endif
