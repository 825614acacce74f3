/* path.c : the tools beside the running program. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

static const char *how_to_get(const char *name) {
    if (strcmp(name, "specrt-llama") == 0) return "`make llama` in a checkout builds it";
    if (strcmp(name, "sketch-build") == 0)
        return "the Python wheel leaves it out; `make tools` in a checkout builds it";
    return "`make tools` in a checkout builds it";
}

bool tool_path(const char *name, char *path) {
    char self[TOOL_PATH_BYTES] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0) {
        *strrchr(self, '/') = 0; /* the link is absolute */
        int n = snprintf(path, TOOL_PATH_BYTES, "%s/%s", self, name);
        if (n < TOOL_PATH_BYTES && access(path, X_OK) == 0) return true;
    }
    sl_cli_usage("%s: expected this tool in the folder of specrt, found none; %s", name,
                 how_to_get(name));
    return false;
}
