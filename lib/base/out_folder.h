/* out_folder.h : several files of one folder, all complete before any of them gets its name. */
#ifndef BASE_OUT_FOLDER_H
#define BASE_OUT_FOLDER_H

#include "base/io.h"

enum { OUT_FOLDER_FILES = 24 };

typedef struct out_folder {
    const char *path;         /* borrowed */
    const char *const *names; /* [n_names] borrowed */
    int n_names, n;           /* files begun */
    bool made, force;
    out_file files[OUT_FOLDER_FILES];
} out_folder;

/* sl_out_folder_open() : the folder, made if it is missing.
 *   names : [n] what will be written, at most OUT_FOLDER_FILES. A folder with anything else in it is
 *           refused: a reader would take both for one thing
 * @return IO, BAD_ARG naming what is there. */
specrt_status sl_out_folder_open(out_folder *f, const char *path, const char *const *names, int n,
                                 bool force, specrt_error *err);

/* sl_out_folder_next() : begin the file of the next of those names; borrowed. @return as sl_out_open(). */
specrt_status sl_out_folder_next(out_folder *f, out_file **out, specrt_error *err);

/* sl_out_folder_finish() : give all files their names if status is OK, else, and on failure, take back what
 * was written and a folder that was made. @return the status, or what went wrong. */
specrt_status sl_out_folder_finish(out_folder *f, specrt_status status, specrt_error *err);

#endif
