/* measure.h : what a process has used of time and memory. */
#ifndef BASE_MEASURE_H
#define BASE_MEASURE_H

#include <stdint.h>

double sl_measure_seconds(void);     /* monotonic */
int64_t sl_measure_peak_bytes(void); /* peak resident set of this process */

#endif
