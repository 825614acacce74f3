/* harness.cc : runs the threads of a block as fibres on one thread of the machine. */
#include <cuda_runtime.h>
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

enum { MAX_THREADS = 1024, STACK_BYTES = 256 << 10 };

enum State { READY, IN_WARP, IN_BLOCK, DONE };

struct Fibre {
    ucontext_t context;
    unsigned char *stack;
    void *fake_stack; /* asan's */
    State state;
    uint3 thread;
    /* of the warp operation it waits in, or came from */
    unsigned mask, live;
    const char *operation;
    int result; /* of its warp; -1: none */
    int yes;    /* brought to the barrier */
};

/* What lanes brought to an operation, for as many of them as have yet to come to their next. */
struct Result {
    unsigned char values[32][HARNESS_LANE_BYTES];
    int n_readers;
};

struct Warp {
    unsigned char in[32][HARNESS_LANE_BYTES];
    Result results[33]; /* a lane reads one at most */
};

Fibre fibres[MAX_THREADS];
Warp warps[MAX_THREADS / 32];
ucontext_t scheduler;
const void *scheduler_stack;
size_t scheduler_bytes;
Fibre *current; /* NULL: no kernel runs */
int n_threads, n_live, n_waiting, barrier_count, barrier_live;
const harness_launch *launch_now;
unsigned char *dynamic;
uint64_t shuffle = 0x9E3779B97F4A7C15u;

int index_of(const Fibre *fibre) {
    return (int)(fibre - fibres);
}

/* --- switching --- */

/* What asan is told before a switch and after it. */
void leave(void **fake_stack, const void *stack, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#else
    (void)fake_stack, (void)stack, (void)bytes;
#endif
}

void arrive(void *fake_stack, const void **from, size_t *bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#else
    (void)fake_stack, (void)from, (void)bytes;
#endif
}

void resume(Fibre *fibre) {
    void *fake_stack = NULL;
    current = fibre;
    threadIdx = fibre->thread;
    leave(&fake_stack, fibre->stack, STACK_BYTES);
    swapcontext(&scheduler, &fibre->context);
    arrive(fake_stack, NULL, NULL);
    current = NULL;
}

void pause() {
    Fibre *fibre = current;
    leave(&fibre->fake_stack, scheduler_stack, scheduler_bytes);
    swapcontext(&fibre->context, &scheduler);
    arrive(fibre->fake_stack, &scheduler_stack, &scheduler_bytes);
}

void finish_warp(int warp, unsigned mask);
void finish_block();

void release(Fibre *fibre) {
    if (fibre->result >= 0) warps[index_of(fibre) / 32].results[fibre->result].n_readers--;
    fibre->result = -1;
}

/* A fibre serves one thread after another. */
void serve() {
    arrive(NULL, &scheduler_stack, &scheduler_bytes);
    for (;;) {
        Fibre *fibre = current;
        launch_now->thread();
        fibre->state = DONE;
        n_live--;
        release(fibre);
        int warp = index_of(fibre) / 32;
        for (int i = warp * 32; i < warp * 32 + 32 && i < n_threads; i++)
            if (fibres[i].state == IN_WARP) finish_warp(warp, fibres[i].mask);
        finish_block();
        pause();
    }
}

void prepare(Fibre *fibre) {
    if (fibre->stack) return;
    fibre->stack = (unsigned char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fibre->stack == MAP_FAILED) harness_fail("no memory for %d stacks", n_threads);
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = STACK_BYTES;
    fibre->context.uc_link = NULL;
    makecontext(&fibre->context, serve, 0);
}

/* --- waiting --- */

/* Lanes of `mask` whose threads exist and have not returned. */
unsigned live_lanes(int warp, unsigned mask) {
    unsigned live = 0;
    for (int lane = 0; lane < 32 && warp * 32 + lane < n_threads; lane++)
        if ((mask >> lane & 1) && fibres[warp * 32 + lane].state != DONE) live |= 1u << lane;
    return live;
}

/* Lets the lanes of `mask` go on once all have come. */
void finish_warp(int warp, unsigned mask) {
    unsigned live = live_lanes(warp, mask);
    const Fibre *first = NULL;
    for (int lane = 0; lane < 32; lane++) {
        Fibre *fibre = &fibres[warp * 32 + lane];
        if (!(live >> lane & 1)) continue;
        if (fibre->state != IN_WARP) return;
        if (!first) first = fibre;
        if (fibre->mask != mask || strcmp(fibre->operation, first->operation) != 0)
            harness_fail("warp %d: lane %d is in %s of mask %08x, lane %d in %s of %08x", warp,
                         index_of(first) % 32, first->operation, first->mask, lane,
                         fibre->operation, fibre->mask);
    }
    int result = 0;
    while (warps[warp].results[result].n_readers > 0) result++;
    warps[warp].results[result].n_readers = __builtin_popcount(live);
    for (int lane = 0; lane < 32; lane++) {
        if (!(live >> lane & 1)) continue;
        memcpy(warps[warp].results[result].values[lane], warps[warp].in[lane], HARNESS_LANE_BYTES);
        fibres[warp * 32 + lane].live = live;
        fibres[warp * 32 + lane].result = result;
        fibres[warp * 32 + lane].state = READY;
    }
}

void finish_block() {
    if (n_waiting == 0 || n_waiting < n_live) return;
    barrier_count = 0;
    barrier_live = n_waiting;
    for (int i = 0; i < n_threads; i++) {
        if (fibres[i].state != IN_BLOCK) continue;
        barrier_count += fibres[i].yes;
        fibres[i].state = READY;
    }
    n_waiting = 0;
}

void report_stuck() {
    for (int i = 0; i < n_threads; i++)
        if (fibres[i].state == IN_WARP)
            harness_fail("thread %d waits in %s of mask %08x for lanes that never come", i,
                         fibres[i].operation, fibres[i].mask);
    harness_fail("%d of %d live threads wait in __syncthreads", n_waiting, n_live);
}

/* --- order --- */

uint64_t next_random() {
    shuffle ^= shuffle << 13;
    shuffle ^= shuffle >> 7;
    shuffle ^= shuffle << 17;
    return shuffle;
}

/* A shuffled order of [0, n). */
void shuffled(int *order, int n) {
    for (int i = 0; i < n; i++) {
        int j = (int)(next_random() % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

void run_block(const int *order) {
    n_live = n_threads;
    n_waiting = 0;
    if (launch_now->shared_bytes) memset(dynamic, 0xff, launch_now->shared_bytes);
    for (int i = 0; i < n_threads; i++) {
        unsigned x = (unsigned)i, y = x / blockDim.x, z = y / blockDim.y;
        fibres[i].state = READY;
        fibres[i].result = -1;
        fibres[i].thread = make_uint3(x % blockDim.x, y % blockDim.y, z);
    }
    while (n_live > 0) {
        int n_ran = 0;
        for (int i = 0; i < n_threads; i++) {
            if (fibres[order[i]].state != READY) continue;
            n_ran++;
            resume(&fibres[order[i]]);
        }
        if (n_ran == 0) report_stuck();
    }
}

} // namespace

void harness_fail(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "harness: block (%u, %u, %u): ", blockIdx.x, blockIdx.y, blockIdx.z);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    fflush(stdout);
    abort();
}

const unsigned char *harness_warp(unsigned mask, const char *operation, const void *in,
                                  size_t bytes) {
    Fibre *fibre = current;
    int warp = index_of(fibre) / 32, lane = index_of(fibre) % 32;
    if (!(mask >> lane & 1)) harness_fail("lane %d is not in its own mask %08x", lane, mask);
    release(fibre);
    memcpy(warps[warp].in[lane], in, bytes);
    fibre->mask = mask;
    fibre->operation = operation;
    fibre->state = IN_WARP;
    finish_warp(warp, mask);
    if (fibre->state == IN_WARP) pause();
    return warps[warp].results[fibre->result].values[0];
}

unsigned harness_warp_live(unsigned mask) {
    return current->live & mask;
}

int harness_block(int yes, int *n) {
    Fibre *fibre = current;
    fibre->yes = yes;
    fibre->state = IN_BLOCK;
    n_waiting++;
    finish_block();
    if (fibre->state == IN_BLOCK) pause();
    *n = barrier_live;
    return barrier_count;
}

unsigned char *harness_dynamic(void) {
    return dynamic;
}

void harness_run(const harness_launch &launch) {
    int order[MAX_THREADS];
    uint64_t n_blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    uint64_t step = 1, first = next_random() % n_blocks;
    launch_now = &launch;
    gridDim = launch.grid;
    blockDim = launch.block;
    n_threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    for (int i = 0; i < n_threads; i++) prepare(&fibres[i]);
    dynamic = (unsigned char *)malloc(launch.shared_bytes ? launch.shared_bytes : 1);
    if (!dynamic) harness_fail("no memory");
    shuffled(order, n_threads);
    if (n_blocks > 2) /* every block once: a step that shares no factor with their number */
        for (uint64_t a = 1; a != 0;) {
            step = 1 + next_random() % (n_blocks - 1);
            uint64_t b = n_blocks;
            for (a = step; a != 0;) {
                uint64_t rest = b % a;
                b = a;
                a = rest;
            }
            a = b > 1;
        }
    for (uint64_t i = 0; i < n_blocks; i++) {
        uint64_t at = (first + i * step) % n_blocks;
        blockIdx.x = (unsigned)(at % gridDim.x);
        blockIdx.y = (unsigned)(at / gridDim.x % gridDim.y);
        blockIdx.z = (unsigned)(at / gridDim.x / gridDim.y);
        run_block(order);
    }
    free(dynamic);
    dynamic = NULL;
}

int harness_threads(int most) {
    const int sizes[] = {32, 64, 96, 160, 256, 512, 1024};
    int threads = sizes[next_random() % 7];
    return threads < most ? threads : most;
}
