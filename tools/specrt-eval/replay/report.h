/* report.h : a replay as an HTML page. */
#ifndef SPECRT_EVAL_REPLAY_REPORT_H
#define SPECRT_EVAL_REPLAY_REPORT_H

#include "replay.h"

/* replay_write_report() : tables and plots. @return OK, IO, BAD_ARG as sl_out_open(). */
specrt_status replay_write_report(const replay *r, const replay_params *params, const char *path,
                                  bool force, specrt_error *err);

#endif
