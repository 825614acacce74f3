/* static_program.c : program.c with an implementation of its own. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "program.c"
