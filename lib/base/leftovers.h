/* leftovers.h : temporary files whose writer was killed before it could remove them. */
#ifndef BASE_LEFTOVERS_H
#define BASE_LEFTOVERS_H

/* A writer holds a lock on its temporary file for as long as that has the name. */
#define TEMP_SUFFIX ".specrt-tmp-XXXXXX" /* of mkstemp() */

/* sl_leftovers_create() : make and lock PATH TEMP_SUFFIX, as mkstemp() does.
 *   temp : the name with its suffix, which becomes that of the file
 * @return a descriptor, or -1 with errno */
int sl_leftovers_create(char *temp);

/* sl_leftovers_create_folder() : the same for a folder. */
int sl_leftovers_create_folder(char *temp);

/* sl_leftovers_remove() : remove temporary files and folders of `path` that nobody writes any more.
 * Where locks may not reach every writer, on file systems of several machines, they stay.
 *   folder : a descriptor of the one that holds `path`, closed here; -1: none */
void sl_leftovers_remove(int folder, const char *path);

#endif
