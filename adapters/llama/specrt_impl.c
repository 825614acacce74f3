/* specrt_impl.c : the runtime, for programs that have the adapter and nothing else of specrt. */
#define SPECRT_IMPLEMENTATION
#ifndef SPECRT_TOOLS
#define SPECRT_TOOLS /* specrt_adapt.h: costs and the clock */
#endif
#include "specrt.h"
