/* static_other.c : a second implementation in the same program, with names that stay in this file. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

const char *other_name(void);
const char *other_name(void) {
    return specrt_status_name(SPECRT_STATUS_IO);
}
