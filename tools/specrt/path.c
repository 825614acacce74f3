/* path.c : the tools beside the running program. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

bool tool_path(const char *name, char *path) {
    ssize_t n = readlink("/proc/self/exe", path, TOOL_PATH_BYTES - 1);
    if (n < 0) return false;
    path[n] = 0;
    char *base = strrchr(path, '/') + 1; /* the link is absolute */
    size_t room = TOOL_PATH_BYTES - (size_t)(base - path);
    return (size_t)snprintf(base, room, "%s", name) < room && access(path, X_OK) == 0;
}
