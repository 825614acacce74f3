/* system.h : what Linux and macOS name differently. A program calls these instead. */
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

/* sl_pipe() : pipe() whose ends close in programs that are started. On macOS a program that another thread
 * starts in between inherits them. @return 0, or -1 with errno. */
int sl_pipe(int ends[2]);

/* sl_exchange() : Two names of one folder exchange their files, or folders, in one step. @return whether they
 * did. */
bool sl_exchange(const char *a, const char *b);

/* sl_is_local() : Whether the file system of an open file or folder is of this machine alone, where every
 * writer's lock is seen. */
bool sl_is_local(int fd);

/* sl_unnamed_file() : A file that has no name and closes in programs that are started, open to be written and
 * read; in memory on Linux. NULL with errno. */
FILE *sl_unnamed_file(void);

/* sl_modified() : When a file was last written. */
struct timespec sl_modified(const struct stat *file);

/* sl_program_name() : This program as it was started, on macOS without its folder. */
const char *sl_program_name(void);

/* sl_program_path() : The file of this program, with its folder, in path [n]. @return false: it is not known,
 * or longer. */
bool sl_program_path(char *path, size_t n);

/* sl_end_with_parent() : In a child: SIGTERM comes when the parent ends. macOS sends none. */
void sl_end_with_parent(void);

/* sl_find_last() : The last of n bytes that is `byte`, or NULL. */
void *sl_find_last(const void *bytes, int byte, size_t n);

/* sl_sort() : qsort() whose comparison takes `user`, too. */
void sl_sort(void *items, size_t n, size_t size, int compare(const void *, const void *, void *),
             void *user);

/* sl_read_ahead() and sl_large_pages() : Hints for a file that is read once, and for memory. */
void sl_read_ahead(int fd);
void sl_large_pages(void *memory, size_t bytes);

#endif
