/* error.c : see error.h. */
#include "base/error.h"

specrt_status error_no_memory(specrt_error *err, const char *name) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s%sout of memory", name ? name : "",
                            name ? ": " : "");
}

specrt_status error_no_memory_for(specrt_error *err, const char *what) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory for %s", what);
}
