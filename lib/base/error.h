/* error.h : the errors that every library reports in the same words. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "specrt.h"

/* sl_error_no_memory() : "NAME: out of memory".
 *   name : of the file or step that asked for it; NULL: none
 * @return NO_MEMORY */
specrt_status sl_error_no_memory(specrt_error *err, const char *name);

/* sl_error_no_memory_for() : "out of memory for WHAT", a printf-style text. @return NO_MEMORY */
specrt_status sl_error_no_memory_for(specrt_error *err, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

#endif
