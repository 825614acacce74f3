/* path.c : the tools beside the running program. */
#include <string.h>
#include "base/child.h"
#include "tool.h"

static const char *how_to_get(const char *name) {
    if (strcmp(name, "specrt-llama") == 0) return "`make llama` in a checkout builds it";
    if (strcmp(name, "sketch-build") == 0)
        return "the Python wheel leaves it out; `make tools` in a checkout builds it";
    return "`make tools` in a checkout builds it";
}

bool tool_path(const char *name, char *path) {
    if (sl_child_beside(name, path, TOOL_PATH_BYTES)) return true;
    sl_cli_usage("%s: expected this tool in the folder of specrt, found none; %s", name,
                 how_to_get(name));
    return false;
}
