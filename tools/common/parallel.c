/* parallel.c : see parallel.h. Threads live for one call; blocks are claimed from a shared counter. */
#include "parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_THREADS = 1024 };

typedef struct run {
    void (*task)(void *arg, int worker);
    void *arg;
    int worker;
} run;

static void *run_thread(void *opaque) {
    run *r = (run *)opaque;
    r->task(r->arg, r->worker);
    return NULL;
}

void parallel_run(int threads, void (*task)(void *arg, int worker), void *arg) {
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    pthread_t ids[MAX_THREADS];
    run runs[MAX_THREADS];
    int started = 1;
    /* Worker 0 is the caller. A thread that cannot start leaves its share to the others. */
    for (; started < threads; started++) {
        runs[started] = (run){task, arg, started};
        if (pthread_create(&ids[started], NULL, run_thread, &runs[started]) != 0) break;
    }
    task(arg, 0);
    for (int i = 1; i < started; i++) pthread_join(ids[i], NULL);
}

typedef struct block_queue {
    void (*task)(void *arg, int64_t block, int worker);
    void *arg;
    int64_t n_blocks, next;
} block_queue;

static void run_blocks(void *arg, int worker) {
    block_queue *q = (block_queue *)arg;
    for (;;) {
        int64_t block = __atomic_fetch_add(&q->next, 1, __ATOMIC_RELAXED);
        if (block >= q->n_blocks) return;
        q->task(q->arg, block, worker);
    }
}

void parallel_for(int threads, int64_t n_blocks, void (*task)(void *arg, int64_t block, int worker),
                  void *arg) {
    block_queue q = {task, arg, n_blocks, 0};
    parallel_run(n_blocks < threads ? (int)n_blocks : threads, run_blocks, &q);
}

int parallel_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}
