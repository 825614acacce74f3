/* child.h : programs that this one runs. A child never outlives its parent: an interrupt of the parent ends
 * its children and waits for them; where the parent is killed, Linux sends the child SIGTERM. */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "specrt.h"

enum { CHILD_FDS = 8, CHILD_MOST = 512 }; /* children that run at a time */

/* sl_child_beside() : a program in the folder of this one.
 *   path : [n] written
 * @return whether it is there, fits and may be run */
bool sl_child_beside(const char *name, char *path, size_t n);

/* sl_child_start() : run a program. The thread that starts a child must wait for it: Linux takes the end of
 * that thread for the end of the parent.
 *   words : the command, ended by NULL; words[0] is a path, or a name that PATH finds
 *   fds   : [n] descriptors of the child by number, at most CHILD_FDS; -1: the parent's own
 *   child : written
 * @return IO: the program cannot run; the message names it */
specrt_status sl_child_start(const char *const *words, const int *fds, int n, pid_t *child,
                             specrt_error *err);

/* sl_child_wait() : wait for a child. @return its exit code; 128 + n where signal n ended it */
int sl_child_wait(pid_t child);

/* sl_child_end() : send a child SIGTERM and wait for it. */
void sl_child_end(pid_t child);

/* sl_child_end_all() : send all children SIGTERM, after ten seconds SIGKILL, and wait for them. A signal's
 * handler may call it. */
void sl_child_end_all(void);

#endif
