/* progress.h : one line on stderr, "phase  41%  118 MB/s  ETA 0:12", drawn at once, then at most 10 times a
 * second. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *phase, *unit; /* unit "B" scales to kB, MB, GB; else a count */
    uint64_t total;           /* 0: unknown */
    double started, drawn;
    bool on;
} progress;

/* mode: cli_common.progress. sl_progress_update may be called from one thread at a time. */
void sl_progress_begin(progress *p, int mode, const char *phase, const char *unit, uint64_t total);
void sl_progress_update(progress *p, uint64_t done);
void sl_progress_end(progress *p);

#endif
