/* parallel.c : see parallel.h. Blocks are claimed from a shared counter; but for a pool's, threads live
 * for one call. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
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

void sl_parallel_run(int threads, void (*task)(void *arg, int worker), void *arg) {
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

void sl_parallel_for(int threads, int64_t n_blocks,
                     void (*task)(void *arg, int64_t block, int worker), void *arg) {
    block_queue q = {task, arg, n_blocks, 0};
    sl_parallel_run((int)(n_blocks < threads ? n_blocks : threads), run_blocks, &q);
}

/* ---- pool ---- */

/* A thread spins so long for what is about to happen, since the loops of an engine follow closely, and
 * then sleeps: where other programs want the cores, spinning would keep the work from those who have it. */
enum { POOL_SPIN_NS = 50000 };

/* The state: how many workers are inside the loop, whether more may enter, whether the pool ends; above
 * these the number of the loop. */
enum { POOL_INSIDE = 0xffff, POOL_OPEN = 1 << 16, POOL_STOP = 1 << 17, POOL_NUMBER = 1 << 18 };

typedef struct bell {
    pthread_cond_t rung;
    int sleepers;
} bell;

struct parallel_pool {
    int threads;
    pthread_t *ids; /* [threads - 1] */
    pthread_mutex_t lock;
    bell start, end; /* for the workers, and for the caller */
    uint64_t state;
    /* Of this loop; written while nobody is inside. */
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t n, next;
};

static void pool_work(parallel_pool *pool) {
    for (;;) {
        int64_t i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->n) return;
        pool->task(pool->arg, i);
    }
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t pool_state(const parallel_pool *pool) {
    return __atomic_load_n(&pool->state, __ATOMIC_SEQ_CST);
}

/* A loop other than the one seen, that may be entered; or the end. */
static bool has_begun(uint64_t state, uint64_t seen) {
    return state & POOL_STOP || (state & POOL_OPEN && state / POOL_NUMBER != seen);
}

static bool is_empty(uint64_t state, uint64_t seen) {
    (void)seen;
    return (state & POOL_INSIDE) == 0;
}

static void pool_wait(parallel_pool *pool, bell *b, bool (*ready)(uint64_t state, uint64_t seen),
                      uint64_t seen) {
    int64_t begin = clock_ns();
    do {
        for (int i = 0; i < 32; i++) {
            if (ready(pool_state(pool), seen)) return;
            relax();
        }
    } while (clock_ns() - begin < POOL_SPIN_NS);
    pthread_mutex_lock(&pool->lock);
    __atomic_fetch_add(&b->sleepers, 1, __ATOMIC_SEQ_CST);
    while (!ready(pool_state(pool), seen)) pthread_cond_wait(&b->rung, &pool->lock);
    __atomic_fetch_sub(&b->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->lock);
}

/* The state has changed. Whoever counted itself among the sleepers too late for this sees the change
 * before it sleeps. */
static void pool_ring(parallel_pool *pool, bell *b) {
    if (__atomic_load_n(&b->sleepers, __ATOMIC_SEQ_CST) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&pool->lock);
}

/* A loop may close between being seen and being entered. */
static bool pool_enter(parallel_pool *pool, uint64_t *seen) {
    for (;;) {
        pool_wait(pool, &pool->start, has_begun, *seen);
        uint64_t state = pool_state(pool);
        if (state & POOL_STOP) return false;
        if (has_begun(state, *seen) &&
            __atomic_compare_exchange_n(&pool->state, &state, state + 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            *seen = state / POOL_NUMBER;
            return true;
        }
    }
}

static void *pool_thread(void *opaque) {
    parallel_pool *pool = (parallel_pool *)opaque;
    uint64_t seen = 0;
    while (pool_enter(pool, &seen)) {
        pool_work(pool);
        uint64_t left = __atomic_sub_fetch(&pool->state, 1, __ATOMIC_SEQ_CST);
        if (is_empty(left, 0)) pool_ring(pool, &pool->end);
    }
    return NULL;
}

parallel_pool *sl_parallel_pool_create(int threads) {
    parallel_pool *pool = (parallel_pool *)calloc(1, sizeof *pool);
    if (!pool) return NULL;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    pool->ids = (pthread_t *)calloc((size_t)threads, sizeof *pool->ids);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start.rung, NULL);
    pthread_cond_init(&pool->end.rung, NULL);
    pool->threads = 1;
    while (pool->ids && pool->threads < threads &&
           pthread_create(&pool->ids[pool->threads - 1], NULL, pool_thread, pool) == 0)
        pool->threads++;
    return pool;
}

void sl_parallel_pool_free(parallel_pool *pool) {
    if (!pool) return;
    __atomic_fetch_or(&pool->state, POOL_STOP, __ATOMIC_SEQ_CST);
    pool_ring(pool, &pool->start);
    for (int i = 0; i < pool->threads - 1; i++) pthread_join(pool->ids[i], NULL);
    pthread_cond_destroy(&pool->start.rung);
    pthread_cond_destroy(&pool->end.rung);
    pthread_mutex_destroy(&pool->lock);
    free(pool->ids);
    free(pool);
}

int sl_parallel_pool_threads(const parallel_pool *pool) {
    return pool->threads;
}

/* The caller works too and waits for those alone who entered: a worker that gets no core, or comes when
 * all is done, holds nobody up. */
void sl_parallel_pool_for(void *opaque, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    parallel_pool *pool = (parallel_pool *)opaque;
    if (pool->threads == 1 || n < 2) {
        for (int64_t i = 0; i < n; i++) task(arg, i);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->n = n;
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    uint64_t number = pool_state(pool) / POOL_NUMBER + 1;
    __atomic_store_n(&pool->state, number * POOL_NUMBER | POOL_OPEN, __ATOMIC_SEQ_CST);
    pool_ring(pool, &pool->start);
    pool_work(pool);
    __atomic_fetch_and(&pool->state, ~(uint64_t)POOL_OPEN, __ATOMIC_SEQ_CST);
    pool_wait(pool, &pool->end, is_empty, 0);
}

int sl_parallel_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}
