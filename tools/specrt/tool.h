/* tool.h : what the files of the command `specrt` share. */
#ifndef SPECRT_TOOL_H
#define SPECRT_TOOL_H

#include <stddef.h>
#include "base/cli.h"

cli_verb_main prepare_main, ask_main;

/* tool_path() : where a tool of this name lies: in the folder of the running program.
 *   path : written, TOOL_PATH_BYTES at most
 * @return false: there is none, and a message said how to get it */
enum { TOOL_PATH_BYTES = 4096 };
bool tool_path(const char *name, char *path);

#endif
