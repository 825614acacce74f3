/* other.c : a second user beside program.c, with the declarations alone. */
#include "specrt.h"

const char *other_name(void);
const char *other_name(void) {
    return specrt_status_name(SPECRT_STATUS_IO);
}
