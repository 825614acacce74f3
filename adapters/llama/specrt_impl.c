/* specrt_impl.c : the runtime, for programs that have the adapter and nothing else of specrt. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
