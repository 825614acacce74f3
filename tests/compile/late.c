/* late.c : strict C whose first header shut the door; must stop with the fix in one line. */
#include <stdio.h>
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
