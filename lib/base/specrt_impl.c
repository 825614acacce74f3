/* specrt_impl.c : the runtime, once, for all tools. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
