/* os.c : owns what is asked of the operating system: read-only mappings of regular files, large pages,
 * the clock, files of costs, numbers that two threads share, a worker thread where asked for. Refuses to map
 * folders, pipes and devices; elsewhere than on POSIX it maps nothing, and bundles are opened from memory. */
#include "core/os.h"
#include "core/base.h"

#if defined(_WIN32)

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: files are not mapped on this system; read it and use "
                            "specrt_bundle_open_memory()",
                            path);
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    (void)map;
}

SPECRT__INTERNAL void specrt__os_yield(void) {}

#else

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if !defined(O_CLOEXEC)
#error "specrt.h: include its implementation before other headers, or add -D_DEFAULT_SOURCE"
#endif

/* An empty file gives OK with bytes NULL and n 0. */
static specrt_status specrt__os_map_fd(int fd, const char *path, specrt__os_map *out,
                                       specrt_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a regular file, found a folder, pipe or device",
                                path);
    if (info.st_size == 0) return SPECRT_STATUS_OK;
    if ((uint64_t)info.st_size > SIZE_MAX)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: size: expected less than the address space, found more", path);
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    out->bytes = bytes;
    out->n = (size_t)info.st_size;
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    /* Without O_NONBLOCK the open of a named pipe would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    specrt_status status = specrt__os_map_fd(fd, path, out, err);
    close(fd); /* the mapping stays */
    return status;
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    /* The mapping was made read-only; munmap wants a plain pointer. */
    if (map->bytes) munmap((void *)(uintptr_t)map->bytes, map->n);
    memset(map, 0, sizeof *map);
}

/* Large pages, where the system gives them on request: more bandwidth for big heads. To be asked
 * before the memory is first written. */
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t huge = (uintptr_t)2 << 20;
    uintptr_t begin = ((uintptr_t)memory + huge - 1) / huge * huge;
    uintptr_t end = ((uintptr_t)memory + n) / huge * huge;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)n;
#endif
}

/* Let other threads go on: another one's work is awaited. */
SPECRT__INTERNAL void specrt__os_yield(void) {
    sched_yield();
}

#endif

/* --- for costs --- */
#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
#include <time.h>
#if defined(_WIN32)
#include <direct.h>
#include <errno.h>
#include <io.h>
#include <process.h>

SPECRT__INTERNAL double specrt__os_seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC); /* C11's; Microsoft's C has it in any mode */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

SPECRT__INTERNAL long specrt__os_processors(void) {
    const char *n = getenv("NUMBER_OF_PROCESSORS");
    return n ? atol(n) : 1;
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    return _access(folder, 2) == 0;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    return _mkdir(path) == 0 || errno == EEXIST;
}

static long specrt__os_process(void) {
    return _getpid();
}

/* Here rename() replaces nothing. */
static bool specrt__os_rename(const char *from, const char *to) {
    remove(to);
    return rename(from, to) == 0;
}
#else

SPECRT__INTERNAL double specrt__os_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

SPECRT__INTERNAL long specrt__os_processors(void) {
    return sysconf(_SC_NPROCESSORS_ONLN);
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    return access(folder, W_OK) == 0;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static long specrt__os_process(void) {
    return (long)getpid();
}

static bool specrt__os_rename(const char *from, const char *to) {
    return rename(from, to) == 0;
}
#endif

SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n) {
    char part[1100];
    int length = snprintf(part, sizeof part, "%s.%ld.tmp", path, specrt__os_process());
    FILE *f = length < (int)sizeof part ? fopen(part, "wb") : NULL;
    if (!f) return false;
    bool written = fwrite(bytes, 1, n, f) == n;
    written = fclose(f) == 0 && written && specrt__os_rename(part, path);
    if (!written) remove(part);
    return written;
}
#endif

#if defined(SPECRT_WORKER)
#include <pthread.h>

struct specrt_worker {
    specrt_env env;
    pthread_t thread;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t more;
    specrt_task *first, *last; /* that wait */
    bool closing;
};

static void *specrt__os_work(void *arg) {
    specrt_worker *w = (specrt_worker *)arg;
    pthread_mutex_lock(&w->lock);
    while (w->first || !w->closing) {
        specrt_task *task = w->first;
        if (!task) {
            pthread_cond_wait(&w->more, &w->lock);
            continue;
        }
        w->first = task->next;
        pthread_mutex_unlock(&w->lock);
        task->run(task);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

SPECRT_API void specrt_worker_submit(void *worker, specrt_task *task) {
    specrt_worker *w = (specrt_worker *)worker;
    if (!w || !task) return;
    task->next = NULL;
    pthread_mutex_lock(&w->lock);
    if (w->first)
        w->last->next = task;
    else
        w->first = task;
    w->last = task;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}

static void specrt__os_worker_free(specrt_worker *w) {
    specrt_env env = w->env;
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    specrt__base_free(&env, w);
}

SPECRT_API specrt_status specrt_worker_create(const specrt_env *env, specrt_worker **out,
                                              specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    specrt_worker *w = (specrt_worker *)specrt__base_alloc(&own, sizeof(specrt_worker));
    if (!w) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "worker: out of memory");
    memset(w, 0, sizeof *w);
    w->env = own;
    pthread_mutex_init(&w->lock, NULL); /* neither fails without attributes */
    pthread_cond_init(&w->more, NULL);
    int code = pthread_create(&w->thread, NULL, specrt__os_work, w);
    if (code != 0) {
        specrt__os_worker_free(w);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "worker: expected a new thread, found: %s", strerror(code));
    }
    *out = w;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_worker_close(specrt_worker *worker) {
    if (!worker) return;
    pthread_mutex_lock(&worker->lock);
    worker->closing = true;
    pthread_cond_signal(&worker->more);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    specrt__os_worker_free(worker);
}
#endif
