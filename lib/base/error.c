/* error.c : see error.h. */
#include "specrt_tools.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

specrt_status sl_error_no_memory(specrt_error *err, const char *name) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s%sout of memory", name ? name : "",
                            name ? ": " : "");
}

specrt_status sl_error_no_memory_for(specrt_error *err, const char *what, ...) {
    char text[sizeof err->msg];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory for %s", text);
}
