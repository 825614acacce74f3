/* io.h : whole files in and out. Output appears under its final name complete or not at all. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "specrt.h"

/* A file mapped read-only (an empty file has bytes = NULL, n = 0). Pipes are read into memory. */
typedef struct file_view {
    const uint8_t *bytes;
    size_t n;
    bool mapped;
} file_view;

specrt_status sl_file_map(const char *path, file_view *out, specrt_error *err);
/* sl_file_map_regular() : of a model, or a file that nobody named. A pipe or device is refused: it may wait
 * for a writer without end, and cannot be read twice. */
specrt_status sl_file_map_regular(const char *path, file_view *out, specrt_error *err);
void sl_file_unmap(file_view *view);

/* An output being written: PATH.specrt-tmp-XXXXXX beside it, renamed by sl_out_commit after fsync. Of a link
 * the file it leads to is replaced; one that leads nowhere is refused. What killed writers of the same PATH
 * left is removed first. A path that exists and is no regular file (/dev/stdout, a pipe) is written
 * straight through; "-" is stdout. An interrupt or sl_out_abort removes the temporary file. */
typedef struct out_file {
    FILE *f;
    char *path, *temp; /* temp NULL: written through */
} out_file;

/* sl_io_is_file() : whether a path leads to a regular file, no folder, pipe or device. */
bool sl_io_is_file(const char *path);

/* sl_io_is_one() : whether two paths lead to one file or folder. */
bool sl_io_is_one(const char *a, const char *b);

/* sl_out_check() : what sl_out_open() would refuse, before the work that makes the output. */
specrt_status sl_out_check(const char *path, bool force, specrt_error *err);

/* sl_out_open() : @return IO naming the file; BAD_ARG "exists; use -f" unless force. */
specrt_status sl_out_open(out_file *out, const char *path, bool force, specrt_error *err);
specrt_status sl_out_write(out_file *out, const void *data, size_t n, specrt_error *err);
specrt_status sl_out_commit(out_file *out, specrt_error *err); /* on failure the file is aborted */
void sl_out_abort(out_file *out);                              /* a no-op after commit */

/* sl_out_bytes() : the three calls above for one buffer. */
specrt_status sl_out_bytes(const char *path, bool force, const void *data, size_t n,
                           specrt_error *err);

/* sl_out_is_stdout() : whether an output goes to stdout; NULL does not. */
bool sl_out_is_stdout(const char *path);
/* sl_out_flush_stdout() : @return IO when not all that was printed has reached stdout. */
specrt_status sl_out_flush_stdout(specrt_error *err);

/* sl_temp_keep() : note a file or an empty folder that an interrupt removes, with its files first.
 *   create : makes it and gives a descriptor, or -1; NULL: it is there
 * @return the descriptor, 0 without create, or -1 with errno: EMFILE where too many are noted */
int sl_temp_keep(char *temp, int create(char *temp));
/* sl_temp_forget() : an interrupt leaves it from now on; the same pointer. */
void sl_temp_forget(const char *temp);

/* sl_folder_open() : a descriptor of the folder that holds `path`, or -1. */
int sl_folder_open(const char *path);

/* sl_io_guard_streams() : a closed stdin, stdout or stderr stays unusable, so that no file opened later takes
 * its number and with it what is printed. Before anything is opened. */
void sl_io_guard_streams(void);

/* sl_io_cleanup_on_signals() : SIGINT, SIGTERM and SIGHUP remove temporary files, end the programs of child.h
 * and exit with 130; under nohup SIGHUP stays ignored. SIGPIPE does so, too, but ends the process by that
 * signal, without a message. A full `ulimit -f` becomes a write error. */
void sl_io_cleanup_on_signals(void);

#endif
