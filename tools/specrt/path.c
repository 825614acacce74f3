/* path.c : the tools beside the running program. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

bool tool_path(const char *name, char *path) {
    char self[TOOL_PATH_BYTES] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    *strrchr(self, '/') = 0; /* the link is absolute */
    int n = snprintf(path, TOOL_PATH_BYTES, "%s/%s", self, name);
    return n < TOOL_PATH_BYTES && access(path, X_OK) == 0;
}
