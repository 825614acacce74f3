/* folder.h : paths of files in the user's temporary folder, in UTF-8. */
#ifndef WINDOWS_FOLDER_H
#define WINDOWS_FOLDER_H

const char *windows_path(const char *name); /* one of 8 in turns */
void windows_remove(const char *path);      /* ends the program where it cannot */

#endif
