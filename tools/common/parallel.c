/* parallel.c : see parallel.h. Threads live for one call; blocks are claimed from a shared counter. */
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
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

/* Workers spin this often for the next loop before they sleep: passes of an engine follow closely. */
enum { POOL_SPINS = 4000 };

struct parallel_pool {
    int threads;
    pthread_t *ids; /* [threads - 1] */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t n, next;
    uint64_t round; /* loops handed out; guarded by lock when it changes */
    int busy;       /* workers still in this round */
    bool stop;
};

static void pool_work(parallel_pool *pool) {
    for (;;) {
        int64_t i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->n) return;
        pool->task(pool->arg, i);
    }
}

static uint64_t pool_wait(parallel_pool *pool, uint64_t seen) {
    for (int spin = 0; spin < POOL_SPINS; spin++) {
        uint64_t round = __atomic_load_n(&pool->round, __ATOMIC_ACQUIRE);
        if (round != seen) return round;
    }
    pthread_mutex_lock(&pool->lock);
    while (pool->round == seen) pthread_cond_wait(&pool->wake, &pool->lock);
    uint64_t round = pool->round;
    pthread_mutex_unlock(&pool->lock);
    return round;
}

static void *pool_thread(void *opaque) {
    parallel_pool *pool = (parallel_pool *)opaque;
    uint64_t seen = 0;
    for (;;) {
        seen = pool_wait(pool, seen);
        if (pool->stop) return NULL;
        pool_work(pool);
        __atomic_fetch_sub(&pool->busy, 1, __ATOMIC_RELEASE);
    }
}

static void pool_start_round(parallel_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->round, pool->round + 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

parallel_pool *parallel_pool_create(int threads) {
    parallel_pool *pool = (parallel_pool *)calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->ids = (pthread_t *)calloc((size_t)threads, sizeof *pool->ids);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->threads = 1;
    while (pool->ids && pool->threads < threads &&
           pthread_create(&pool->ids[pool->threads - 1], NULL, pool_thread, pool) == 0)
        pool->threads++;
    return pool;
}

void parallel_pool_free(parallel_pool *pool) {
    if (!pool) return;
    pool->stop = true;
    pool_start_round(pool);
    for (int i = 0; i < pool->threads - 1; i++) pthread_join(pool->ids[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->ids);
    free(pool);
}

int parallel_pool_threads(const parallel_pool *pool) {
    return pool->threads;
}

void parallel_pool_for(void *opaque, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    parallel_pool *pool = (parallel_pool *)opaque;
    if (pool->threads == 1 || n < 2) {
        for (int64_t i = 0; i < n; i++) task(arg, i);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->n = n;
    pool->next = 0;
    pool->busy = pool->threads - 1;
    pool_start_round(pool);
    pool_work(pool);
    while (__atomic_load_n(&pool->busy, __ATOMIC_ACQUIRE)) sched_yield();
}

int parallel_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}
