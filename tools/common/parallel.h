/* parallel.h : threads over fixed blocks, so results do not depend on how many there are. */
#ifndef PARALLEL_H
#define PARALLEL_H

#include <stdint.h>

/* parallel_for() : task(arg, block, worker) for every block in [0, n_blocks); worker in
 * [0, threads). Blocks are handed out in ascending order; returns when all are done. */
void parallel_for(int threads, int64_t n_blocks, void (*task)(void *arg, int64_t block, int worker),
                  void *arg);

/* parallel_run() : task(arg, worker) once on each of `threads` workers. */
void parallel_run(int threads, void (*task)(void *arg, int worker), void *arg);

int parallel_cores(void);

#endif
