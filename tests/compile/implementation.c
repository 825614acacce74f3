/* implementation.c : the implementation, in a file of its own. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
