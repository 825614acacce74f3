/* output.h : what a run writes: all of it, or nothing. */
#ifndef VOCABTRIM_CALIBRATE_OUTPUT_H
#define VOCABTRIM_CALIBRATE_OUTPUT_H

#include "calibrate.h"

/* output_check() : refuse outputs that cannot be written before hours are spent on counting. */
specrt_status output_check(const calibrate_options *o, specrt_error *err);

/* output_check_ident() : refuse a bundle that is there for another tokenizer or head. */
specrt_status output_check_ident(const calibration *run, specrt_error *err);

/* output_counts() : --counts-out alone. */
specrt_status output_counts(const calibration *run, specrt_error *err);

/* output_all() : the table or --json, then every file. When one fails, this run's are removed.
 *   files : false: only the table or --json (below the quality gate) */
specrt_status output_all(const calibration *run, bool files, specrt_error *err);

#endif
