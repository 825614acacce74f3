/* costs.h : the curves of costs by number */
#ifndef ADAPT_COSTS_H
#define ADAPT_COSTS_H

#include "specrt_adapt.h"
#include "core/base.h"

enum { SPECRT__COSTS_CURVES = 9, SPECRT__COSTS_READ = 7 /* tokens that reading is told by */ };

/* A curve, and the name of its lines in a file, static: in the order of specrt_pass and of the times of each.
 * @return NULL: there are fewer */
SPECRT__INTERNAL specrt_curve *specrt__costs_curve(specrt_costs *c, int32_t i, const char **name);

/* spread of the curves; disturbed where it is too wide to choose by */
SPECRT__INTERNAL void specrt__costs_judge(specrt_costs *c);

/* Processors in use, by the load average of the last minute; 0: unknown */
SPECRT__INTERNAL double specrt__costs_load(void);

#endif
