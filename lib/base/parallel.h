/* parallel.h : threads over fixed blocks, so results do not depend on how many there are. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stdint.h>

/* sl_parallel_for() : task(arg, block, worker) for every block in [0, n_blocks); worker in
 * [0, threads). Blocks are handed out in ascending order; returns when all are done. */
void sl_parallel_for(int threads, int64_t n_blocks,
                     void (*task)(void *arg, int64_t block, int worker), void *arg);

/* sl_parallel_run() : task(arg, worker) once on each of `threads` workers. */
void sl_parallel_run(int threads, void (*task)(void *arg, int worker), void *arg);

/* A pool keeps its threads, for work too short to start some for. One caller at a time. */
typedef struct parallel_pool parallel_pool;

/* sl_parallel_pool_create() : `threads` workers, the caller among them. @return NULL: no memory. */
parallel_pool *sl_parallel_pool_create(int threads);
void sl_parallel_pool_free(parallel_pool *pool);
int sl_parallel_pool_threads(const parallel_pool *pool);

/* sl_parallel_pool_for() : task(arg, i) for every i in [0, n), in ascending order of start. The shape of
 * specrt_env.parallel_for, with the pool as its user. */
void sl_parallel_pool_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

int sl_parallel_cores(void);

#endif
