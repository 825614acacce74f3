/* harness.cc : runs the threads of a block as fibres on one thread of the machine. ThreadSanitizer, which
 * does not look at this file itself, is told of fibres as threads, and of what orders them. */
#include <cuda_runtime.h>
#include "harness.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

/* There when ThreadSanitizer is linked. */
extern "C" {
void *__tsan_get_current_fiber(void) __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void *address) __attribute__((weak));
void __tsan_release(void *address) __attribute__((weak));
}

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
const char HARNESS_SYNCWARP[] = "__syncwarp";

namespace {

enum { MAX_THREADS = 1024, STACK_BYTES = 256 << 10, MAX_CORES = 2 };

enum State { READY, IN_WARP, IN_BLOCK, DONE };

/* Where the scheduler or a fibre goes on. */
struct Place {
    ucontext_t context;
    void *jump[5]; /* once it has begun */
    bool begun;
};

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
    int group;
};

struct Fibre {
    Place place;
    unsigned char *stack;
    void *fake_stack; /* asan's */
    void *fiber;      /* tsan's */
    State state;
    uint3 thread;
    /* of the warp operation it waits in, or came from */
    unsigned mask, live;
    const char *operation;
    int result;               /* of its warp; -1: none */
    int yes;                  /* brought to the barrier */
    std::vector<Copy> copies; /* begun, and not done */
    int n_groups;             /* of copies that have ended */
};

/* What lanes brought to an operation, for as many of them as have yet to come to their next. */
struct Result {
    unsigned char values[32][HARNESS_LANE_BYTES];
    int n_readers;
};

struct Warp {
    unsigned char in[32][HARNESS_LANE_BYTES];
    Result results[33]; /* a lane reads one at most */
    /* Masks of what the lanes' states say, since each lane that comes asks: those that exist and are
     * not DONE; those IN_WARP. */
    unsigned live, waiting;
};

/* What runs one block after another; under tsan there are several, so that blocks next to each other are not
 * ordered. The bytes are what tsan knows of as barriers. */
struct Core {
    Fibre fibres[MAX_THREADS];
    pthread_t thread;
    sem_t go;
    char barrier, warps[MAX_THREADS / 32], block;
};

Core cores[MAX_CORES];
Core *core = cores;
Fibre *fibres = cores[0].fibres;
Warp warps[MAX_THREADS / 32];
void *scheduler_fiber;
sem_t block_done;
char launch_begin, launch_end, fence;
Place scheduler;
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

/* --- what tsan is told --- */

bool under_tsan() {
    return __tsan_create_fiber != NULL;
}

/* What was done before a release comes before what is done after an acquire of the same address. */
void acquire(void *address) {
    if (under_tsan()) __tsan_acquire(address);
}

void publish(void *address) {
    if (under_tsan()) __tsan_release(address);
}

/* Goes on as another thread, which orders nothing. */
void become(void *fiber) {
    if (under_tsan()) __tsan_switch_to_fiber(fiber, 1);
}

/* As memcpy(), which tsan would look at. */
void copy(unsigned char *to, const void *from, size_t bytes) {
    volatile unsigned char *out = to;
    if (!under_tsan()) memcpy(to, from, bytes), bytes = 0;
    for (size_t i = 0; i < bytes; i++) out[i] = ((const unsigned char *)from)[i];
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

/* Goes on where a place was left: not by longjmp(), of which sanitizers think that it ends calls. */
[[noreturn]] __attribute__((noinline, no_sanitize_address)) void jump(Place *to) {
    __builtin_longjmp(to->jump, 1);
}

/* Leaves one place for another, until somebody leaves that for the first. swapcontext() asks the system for
 * the mask of signals each time, which took as long as the kernels did. */
__attribute__((noinline, no_sanitize_address)) void go(Place *from, Place *to) {
    if (__builtin_setjmp(from->jump) != 0) return;
    from->begun = true;
    if (to->begun) jump(to);
    setcontext(&to->context);
}

void resume(Fibre *fibre) {
    void *fake_stack = NULL;
    current = fibre;
    threadIdx = fibre->thread;
    leave(&fake_stack, fibre->stack, STACK_BYTES);
    become(fibre->fiber);
    go(&scheduler, &fibre->place);
    arrive(fake_stack, NULL, NULL);
    current = NULL;
}

void pause() {
    Fibre *fibre = current;
    leave(&fibre->fake_stack, scheduler_stack, scheduler_bytes);
    become(scheduler_fiber);
    go(&fibre->place, &scheduler);
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
        acquire(&launch_begin);
        acquire(&core->block);
        launch_now->thread();
        publish(&core->block);
        publish(&launch_end);
        fibre->state = DONE;
        n_live--;
        release(fibre);
        int warp = index_of(fibre) / 32;
        warps[warp].live &= ~(1u << index_of(fibre) % 32);
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
    getcontext(&fibre->place.context);
    fibre->place.context.uc_stack.ss_sp = fibre->stack;
    fibre->place.context.uc_stack.ss_size = STACK_BYTES;
    fibre->place.context.uc_link = NULL;
    makecontext(&fibre->place.context, serve, 0);
    if (under_tsan()) fibre->fiber = __tsan_create_fiber(0);
}

/* --- waiting --- */

/* Lets the lanes of `mask` go on once all have come. */
void finish_warp(int warp, unsigned mask) {
    unsigned live = mask & warps[warp].live;
    const Fibre *first = NULL;
    if (live & ~warps[warp].waiting) return;
    for (int lane = 0; lane < 32; lane++) {
        Fibre *fibre = &fibres[warp * 32 + lane];
        if (!(live >> lane & 1)) continue;
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
        copy(warps[warp].results[result].values[lane], warps[warp].in[lane], HARNESS_LANE_BYTES);
        fibres[warp * 32 + lane].live = live;
        fibres[warp * 32 + lane].result = result;
        fibres[warp * 32 + lane].state = READY;
    }
    warps[warp].waiting &= ~live;
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
    for (size_t i = 0; i < launch_now->shared_bytes; i++)
        ((volatile unsigned char *)dynamic)[i] = 0xff;
    for (int i = 0; i < n_threads; i++) {
        if (i % 32 == 0) warps[i / 32].live = warps[i / 32].waiting = 0;
        warps[i / 32].live |= 1u << i % 32;
        unsigned x = (unsigned)i, y = x / blockDim.x, z = y / blockDim.y;
        fibres[i].state = READY;
        fibres[i].result = -1;
        fibres[i].copies.clear();
        fibres[i].n_groups = 0;
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

/* --- cores --- */

const int *block_order;
unsigned char *dynamic_all; /* of all cores */

void *run_core(void *argument) {
    Core *own = (Core *)argument;
    publish(&own->block); /* shared memory is there */
    for (;;) {
        while (sem_wait(&own->go) != 0) {
        }
        scheduler_fiber = __tsan_get_current_fiber();
        run_block(block_order);
        sem_post(&block_done);
    }
    return NULL;
}

int count_cores() {
    static bool started;
    if (!under_tsan()) return 1;
    for (int i = 0; i < MAX_CORES && !started; i++) {
        if (i == 0) sem_init(&block_done, 0, 0);
        sem_init(&cores[i].go, 0, 0);
        if (pthread_create(&cores[i].thread, NULL, run_core, &cores[i]) != 0)
            harness_fail("no thread");
    }
    started = true;
    return MAX_CORES;
}

/* Runs the block of blockIdx. */
void run_on(int i, const int *order) {
    core = &cores[i];
    fibres = core->fibres;
    dynamic = dynamic_all + (size_t)i * launch_now->shared_bytes;
    if (!under_tsan()) {
        run_block(order);
        return;
    }
    block_order = order;
    sem_post(&core->go);
    while (sem_wait(&block_done) != 0) {
    }
}

/* All that a launch needs, or fails. */
void prepare_all(int n_cores) {
    for (int c = 0; c < n_cores; c++)
        for (int i = 0; i < n_threads; i++) prepare(&cores[c].fibres[i]);
    size_t bytes = (size_t)n_cores * launch_now->shared_bytes;
    dynamic_all = (unsigned char *)malloc(bytes ? bytes : 1);
    if (!dynamic_all) harness_fail("no memory");
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
    copy(warps[warp].in[lane], in, bytes);
    bool orders = operation == HARNESS_SYNCWARP;
    if (orders) publish(&core->warps[warp]);
    fibre->mask = mask;
    fibre->operation = operation;
    fibre->state = IN_WARP;
    warps[warp].waiting |= 1u << lane;
    finish_warp(warp, mask);
    if (fibre->state == IN_WARP) pause();
    if (orders) acquire(&core->warps[warp]);
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
    publish(&core->barrier);
    finish_block();
    if (fibre->state == IN_BLOCK) pause();
    acquire(&core->barrier);
    *n = barrier_live;
    return barrier_count;
}

void harness_fence(void) {
    acquire(&fence);
    publish(&fence);
}

void *harness_allocate(size_t bytes, bool mapped) {
    void *p = NULL;
    (void)mapped;
    if (posix_memalign(&p, 256, bytes ? bytes : 1) != 0) return NULL;
    memset(p, 0xcd, bytes); /* rubbish, as on a device */
    return p;
}

void harness_operation(size_t lane, const harness_past &past) {
    (void)lane, (void)past;
}

void harness_release(void *p) {
    free(p);
}

void harness_move(void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
}

void harness_fill(void *p, int value, size_t bytes) {
    memset(p, value, bytes);
}

void harness_copy(void *to, const void *from, size_t bytes) {
    if (next_random() >> 32 & 1) {
        memcpy(to, from, bytes);
        return;
    }
    Copy later = {to, from, bytes, current->n_groups};
    current->copies.push_back(later);
}

void harness_copied(void) {
    current->n_groups++;
}

void harness_wait(int n) {
    std::vector<Copy> left;
    for (const Copy &c : current->copies)
        if (c.group < current->n_groups - n)
            memcpy(c.to, c.from, c.bytes);
        else
            left.push_back(c);
    current->copies.swap(left);
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
    int n_cores = count_cores();
    prepare_all(n_cores);
    publish(&launch_begin);
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
        run_on((int)(i % (uint64_t)n_cores), order);
    }
    acquire(&launch_end);
    free(dynamic_all);
    dynamic_all = dynamic = NULL;
}

int harness_threads(int most) {
    const int sizes[] = {32, 64, 96, 160, 256, 512, 1024};
    int threads = sizes[next_random() % (under_tsan() ? 3 : 7)]; /* its barriers take long */
    return threads < most ? threads : most;
}
