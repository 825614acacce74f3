/* os.c : owns what is asked of the operating system: read-only mappings of regular files, large pages,
 * the clock, files of costs, numbers that two threads share, a worker thread where asked for. POSIX and
 * Windows, where paths are UTF-8, and SPECRT_NO_FILES, where every path is refused. Refuses to map folders,
 * pipes and devices. */
#include "core/os.h"
#include "core/base.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#endif

#if defined(SPECRT_NO_FILES)

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    return specrt_error_set(
        err, SPECRT_STATUS_IO,
        "%s: expected bytes in memory (SPECRT_NO_FILES), found a path; call the "
        "function that ends with _open_memory",
        path);
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    memset(map, 0, sizeof *map);
}

SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
    (void)memory, (void)n;
}

/* No system is known that would let other threads go on. */
SPECRT__INTERNAL void specrt__os_yield(void) {}

#elif defined(_WIN32)

/* A path in UTF-8, as Windows takes it, owned; NULL: no UTF-8, or no memory. */
static wchar_t *specrt__os_wide(const char *path) {
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *wide = n > 0 ? (wchar_t *)malloc((size_t)n * sizeof(wchar_t)) : NULL;
    if (wide) MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, n);
    return wide;
}

static specrt_status specrt__os_refused(const char *path, specrt_error *err) {
    char why[200] = "";
    unsigned long code = GetLastError();
    FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                       FORMAT_MESSAGE_MAX_WIDTH_MASK,
                   NULL, code, 0, why, sizeof why, NULL);
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s(Windows' error %lu)", path, why, code);
}

/* An empty file gives OK with bytes NULL and n 0. */
static specrt_status specrt__os_map_handle(HANDLE file, const char *path, specrt__os_map *out,
                                           specrt_error *err) {
    LARGE_INTEGER n;
    if (GetFileType(file) != FILE_TYPE_DISK)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a regular file, found a pipe or device", path);
    if (!GetFileSizeEx(file, &n)) return specrt__os_refused(path, err);
    if (n.QuadPart == 0) return SPECRT_STATUS_OK;
    if ((uint64_t)n.QuadPart > SIZE_MAX)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: size: expected less than the address space, found more", path);
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *bytes = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    specrt_status status = bytes ? SPECRT_STATUS_OK : specrt__os_refused(path, err);
    if (mapping) CloseHandle(mapping); /* the view stays */
    out->bytes = bytes;
    out->n = bytes ? (size_t)n.QuadPart : 0;
    return status;
}

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    wchar_t *wide = specrt__os_wide(path);
    if (!wide) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: expected a path in UTF-8", path);
    HANDLE file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE) return specrt__os_refused(path, err);
    specrt_status status = specrt__os_map_handle(file, path, out, err);
    CloseHandle(file); /* the view stays */
    return status;
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    if (map->bytes) UnmapViewOfFile(map->bytes);
    memset(map, 0, sizeof *map);
}

/* Large pages are a privilege there. */
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
    (void)memory, (void)n;
}

/* Let other threads go on: another one's work is awaited. */
SPECRT__INTERNAL void specrt__os_yield(void) {
    SwitchToThread();
}

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
#if defined(_WIN32)
SPECRT__INTERNAL double specrt__os_seconds(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
}
#else
#include <time.h>

SPECRT__INTERNAL double specrt__os_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

#if defined(SPECRT_NO_FILES)

SPECRT__INTERNAL long specrt__os_processors(void) {
    return 1; /* no system is known that counts them */
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    (void)folder;
    return false;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    (void)path;
    return false;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    (void)out, (void)n;
    return false;
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    (void)path, (void)mode;
    return NULL;
}

SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n) {
    (void)path, (void)bytes, (void)n;
    return false;
}

#elif defined(_WIN32)

SPECRT__INTERNAL long specrt__os_processors(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (long)info.dwNumberOfProcessors;
}

/* Attributes of a path; INVALID_FILE_ATTRIBUTES: nothing is there. */
static unsigned long specrt__os_attributes(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    unsigned long bits = wide ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
    free(wide);
    return bits;
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    unsigned long bits = specrt__os_attributes(folder);
    return bits != INVALID_FILE_ATTRIBUTES && (bits & FILE_ATTRIBUTE_DIRECTORY);
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    bool made = wide && (CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
    free(wide);
    return made;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    wchar_t wide[MAX_PATH];
    unsigned long length = GetEnvironmentVariableW(L"LOCALAPPDATA", wide, MAX_PATH);
    return length > 0 && length < MAX_PATH &&
           WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, (int)n, NULL, NULL) > 0;
}

static long specrt__os_process(void) {
    return (long)GetCurrentProcessId();
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    wchar_t *wide = specrt__os_wide(path), wide_mode[4] = {0};
    for (int i = 0; i < 3 && mode[i]; i++) wide_mode[i] = (wchar_t)mode[i];
    FILE *f = wide ? _wfopen(wide, wide_mode) : NULL;
    free(wide);
    return f;
}

static bool specrt__os_remove(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    bool removed = wide && DeleteFileW(wide);
    free(wide);
    return removed;
}

static bool specrt__os_rename(const char *from, const char *to) {
    wchar_t *old = specrt__os_wide(from), *name = specrt__os_wide(to);
    bool renamed = old && name && MoveFileExW(old, name, MOVEFILE_REPLACE_EXISTING);
    free(old);
    free(name);
    return renamed;
}
#else

SPECRT__INTERNAL long specrt__os_processors(void) {
    return sysconf(_SC_NPROCESSORS_ONLN);
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    return access(folder, W_OK) == 0;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && cache[0];
    if (!given && !(home && home[0])) return false;
    int length = given ? snprintf(out, n, "%s", cache) : snprintf(out, n, "%s/.cache", home);
    return (size_t)length < n;
}

static long specrt__os_process(void) {
    return (long)getpid();
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    return fopen(path, mode);
}

static bool specrt__os_remove(const char *path) {
    return remove(path) == 0;
}

static bool specrt__os_rename(const char *from, const char *to) {
    return rename(from, to) == 0;
}
#endif

#if !defined(SPECRT_NO_FILES)
/* Under another name first, so that no reader meets half a file. */
SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n) {
    char part[1100];
    int length = snprintf(part, sizeof part, "%s.%ld.tmp", path, specrt__os_process());
    FILE *f = length < (int)sizeof part ? specrt__os_fopen(part, "wb") : NULL;
    if (!f) return false;
    bool written = fwrite(bytes, 1, n, f) == n;
    written = fclose(f) == 0 && written && specrt__os_rename(part, path);
    if (!written) specrt__os_remove(part);
    return written;
}
#endif
#endif

/* --- a worker thread --- */
#if defined(SPECRT_WORKER)
#if defined(_WIN32)
typedef HANDLE specrt__os_thread;
typedef SRWLOCK specrt__os_lock;
typedef CONDITION_VARIABLE specrt__os_signal;
#define SPECRT__OS_THREAD(name, arg)  static DWORD WINAPI name(void *arg)
#define SPECRT__OS_LOCK(lock)         AcquireSRWLockExclusive(lock)
#define SPECRT__OS_UNLOCK(lock)       ReleaseSRWLockExclusive(lock)
#define SPECRT__OS_WAIT(signal, lock) SleepConditionVariableSRW(signal, lock, INFINITE, 0)
#define SPECRT__OS_WAKE(signal)       WakeConditionVariable(signal)
#else
#include <pthread.h>
typedef pthread_t specrt__os_thread;
typedef pthread_mutex_t specrt__os_lock;
typedef pthread_cond_t specrt__os_signal;
#define SPECRT__OS_THREAD(name, arg)  static void *name(void *arg)
#define SPECRT__OS_LOCK(lock)         pthread_mutex_lock(lock)
#define SPECRT__OS_UNLOCK(lock)       pthread_mutex_unlock(lock)
#define SPECRT__OS_WAIT(signal, lock) pthread_cond_wait(signal, lock)
#define SPECRT__OS_WAKE(signal)       pthread_cond_signal(signal)
#endif

struct specrt_worker {
    specrt_env env;
    specrt__os_thread thread;
    specrt__os_lock lock; /* over all below */
    specrt__os_signal more;
    specrt_task *first, *last; /* that wait */
    bool closing;
};

SPECRT__OS_THREAD(specrt__os_work, arg) {
    specrt_worker *w = (specrt_worker *)arg;
    SPECRT__OS_LOCK(&w->lock);
    while (w->first || !w->closing) {
        specrt_task *task = w->first;
        if (!task) {
            SPECRT__OS_WAIT(&w->more, &w->lock);
            continue;
        }
        w->first = task->next;
        SPECRT__OS_UNLOCK(&w->lock);
        task->run(task);
        SPECRT__OS_LOCK(&w->lock);
    }
    SPECRT__OS_UNLOCK(&w->lock);
    return 0;
}

SPECRT_API void specrt_worker_submit(void *worker, specrt_task *task) {
    specrt_worker *w = (specrt_worker *)worker;
    if (!w || !task) return;
    task->next = NULL;
    SPECRT__OS_LOCK(&w->lock);
    if (w->first)
        w->last->next = task;
    else
        w->first = task;
    w->last = task;
    SPECRT__OS_WAKE(&w->more);
    SPECRT__OS_UNLOCK(&w->lock);
}

#if defined(_WIN32)
static bool specrt__os_worker_start(specrt_worker *w, char *why, size_t n) {
    InitializeSRWLock(&w->lock);
    InitializeConditionVariable(&w->more);
    w->thread = CreateThread(NULL, 0, specrt__os_work, w, 0, NULL);
    if (!w->thread) snprintf(why, n, "Windows' error %lu", GetLastError());
    return w->thread != NULL;
}

static void specrt__os_worker_join(specrt_worker *w) {
    WaitForSingleObject(w->thread, INFINITE);
    CloseHandle(w->thread);
}
#else
static void specrt__os_worker_end(specrt_worker *w) {
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
}

static bool specrt__os_worker_start(specrt_worker *w, char *why, size_t n) {
    pthread_mutex_init(&w->lock, NULL); /* neither fails without attributes */
    pthread_cond_init(&w->more, NULL);
    int code = pthread_create(&w->thread, NULL, specrt__os_work, w);
    if (code == 0) return true;
    snprintf(why, n, "%s", strerror(code));
    specrt__os_worker_end(w);
    return false;
}

static void specrt__os_worker_join(specrt_worker *w) {
    pthread_join(w->thread, NULL);
    specrt__os_worker_end(w);
}
#endif

SPECRT_API specrt_status specrt_worker_create(const specrt_env *env, specrt_worker **out,
                                              specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    char why[100];
    SPECRT__NEED(out);
    *out = NULL;
    specrt_worker *w = (specrt_worker *)specrt__base_alloc(&own, sizeof(specrt_worker));
    if (!w) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "worker: out of memory");
    memset(w, 0, sizeof *w);
    w->env = own;
    if (!specrt__os_worker_start(w, why, sizeof why)) {
        specrt__base_free(&own, w);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "worker: expected a new thread, found: %s", why);
    }
    *out = w;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_worker_close(specrt_worker *worker) {
    if (!worker) return;
    SPECRT__OS_LOCK(&worker->lock);
    worker->closing = true;
    SPECRT__OS_WAKE(&worker->more);
    SPECRT__OS_UNLOCK(&worker->lock);
    specrt__os_worker_join(worker);
    specrt_env env = worker->env;
    specrt__base_free(&env, worker);
}
#endif
