/* costs.h : what measuring and files of costs share */
#ifndef ADAPT_COSTS_H
#define ADAPT_COSTS_H

#include "specrt_adapt.h"
#include "core/base.h"

/* The processor's name and how many there are. out: char [SPECRT_COSTS_TEXT] */
SPECRT__INTERNAL void specrt__costs_machine(char *out);

#endif
