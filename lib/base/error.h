/* error.h : what every library does with a status, and the errors that all report in the same words. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "specrt.h"

/* Forward any status that is not OK to the caller. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        specrt_status try_status = (call);                                                         \
        if (try_status != SPECRT_STATUS_OK) return try_status;                                     \
    } while (0)

/* sl_error_no_memory() : "NAME: out of memory".
 *   name : of the file or step that asked for it; NULL: none
 * @return NO_MEMORY */
specrt_status sl_error_no_memory(specrt_error *err, const char *name);

/* sl_error_no_memory_for() : "out of memory for WHAT", a printf-style text. @return NO_MEMORY */
specrt_status sl_error_no_memory_for(specrt_error *err, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

#endif
