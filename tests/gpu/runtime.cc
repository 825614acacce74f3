/* runtime.cc : what specrt_kernels.cu and its tests call of the CUDA runtime, on the harness.
 *
 * A stream is a queue. Nothing in it runs before something waits, and then the heads of all queues run
 * in random order as far as events allow, so that work that an event was forgotten between fails. A
 * captured graph runs in random order as far as its edges allow. A kernel is loaded when it is first asked
 * for, which a capture of mode Global refuses. Streams are those that the default one does not wait for, nor
 * they for it; what clears memory or copies to it returns before it is done. */
#include <cuda_runtime.h>
#include "harness.h"

#include <deque>
#include <memory>
#include <set>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

extern "C" {
/* How many allocations succeed from now on; below 0: all. */
int harness_allocations_left = -1;
/* The same of all calls here that may fail: allocations, copies, streams, events, launches. */
int harness_calls_left = -1;
/* How many kernels run from now on; the next one fails once it runs, and so does what comes after it, until
 * this is below 0. */
int harness_kernels_left = -1;
/* 0: as ever; 1: there is no device; 2: it is none that code was made for; 3: it is another's alone. */
int harness_device;
/* Allocations, streams and events that were not given back. */
int harness_live;
/* Kernels that their first launch had to load, since no cudaFuncGetAttributes() had. */
int harness_late;
/* Kernels that were launched on streams of the application, or put into graphs; and on streams with a
 * priority. */
int harness_launches[2];
/* Their blocks, of all and of the last. */
uint64_t harness_blocks;
unsigned harness_grid[3];
}

namespace {
typedef std::function<void()> work;

/* A mark in a stream; what waits for it holds on to it. */
typedef std::shared_ptr<bool> mark;

/* What is in the past of a mark, from when it is reached on. */
typedef std::shared_ptr<harness_past> past_of_mark;

typedef struct operation {
    work run;
    mark after;        /* NULL: ready once it is at the head */
    past_of_mark past; /* of the mark; NULL: none */
    harness_past host; /* what the host had waited for */
} operation;

typedef struct node {
    work run;
    std::vector<size_t> after;
    size_t lane; /* of a graph to launch */
} node;
} // namespace

struct CUgraph_st {
    std::vector<node> nodes;
    std::vector<CUstream_st *> streams; /* that are part of the capture; the first began it */
    std::shared_ptr<bool> ended;        /* the capture has */
    cudaStreamCaptureMode mode;
};

struct CUgraphExec_st {
    std::vector<node> nodes;
};

struct CUstream_st {
    int device;
    bool beside; /* it has a priority */
    size_t lane;
    harness_past past;
    std::deque<operation> queue;
    CUgraph_st *capture;         /* NULL: not being captured */
    std::vector<size_t> pending; /* nodes that the next one follows */
};

struct CUevent_st {
    mark reached; /* of the last record */
    past_of_mark past;
    std::shared_ptr<double> when; /* it was, in milliseconds */
    CUgraph_st *capture;          /* that it was recorded in, or NULL */
    std::shared_ptr<bool> ended;  /* that capture has */
    std::vector<size_t> pending;
};

namespace {
cudaError_t last_error = cudaSuccess;
int current_device; /* of two, whose default stream and memory are the same here */
CUstream_st default_stream;
std::vector<CUstream_st *> streams(1, &default_stream);
uint32_t dice = 1;

uint32_t roll(size_t n) {
    dice = dice * 1664525u + 1013904223u;
    return (uint32_t)((dice >> 8) % n);
}

cudaError_t failed(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

double clock_ms() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

bool broken; /* by a kernel */

/* What a call has to report that is due to nothing it was asked for. */
cudaError_t fault() {
    broken = broken && harness_kernels_left >= 0;
    if (broken) return cudaErrorLaunchFailure;
    if (harness_calls_left == 0) return cudaErrorUnknown;
    if (harness_calls_left > 0) harness_calls_left--;
    return cudaSuccess;
}

bool capturing() {
    for (CUstream_st *s : streams)
        if (s->capture) return true;
    return false;
}

/* Whether a kernel may be loaded, if it has yet to be. */
bool load(const void *kernel) {
    static std::set<const void *> loaded;
    if (loaded.count(kernel)) return true;
    for (CUstream_st *s : streams)
        if (s->capture && s->capture->mode == cudaStreamCaptureModeGlobal) return false;
    loaded.insert(kernel);
    harness_late++;
    return true;
}

CUstream_st *of(CUstream_st *s) {
    return s ? s : &default_stream;
}

/* --- which operations come before which --- */

harness_past host_past; /* what it has waited for */
CUstream_st *running;

size_t new_lane() {
    static size_t n = 1; /* 0: the default stream's */
    return n++;
}

void come_after(harness_past *past, const harness_past &other) {
    if (past->size() < other.size()) past->resize(other.size());
    for (size_t i = 0; i < other.size(); i++) (*past)[i] = std::max((*past)[i], other[i]);
}

void begin_operation(size_t lane, harness_past *past) {
    if (past->size() <= lane) past->resize(lane + 1);
    (*past)[lane]++;
    harness_operation(lane, *past);
}

/* Runs the head of some queue. @return false when none is ready. */
bool step() {
    std::vector<CUstream_st *> ready;
    for (CUstream_st *s : streams)
        if (!s->queue.empty() && (!s->queue.front().after || *s->queue.front().after))
            ready.push_back(s);
    if (ready.empty()) return false;
    CUstream_st *s = ready[roll(ready.size())];
    operation next = s->queue.front();
    s->queue.pop_front();
    come_after(&s->past, next.host);
    if (next.past) come_after(&s->past, *next.past);
    if (!next.run) return true;
    running = s;
    begin_operation(s->lane, &s->past);
    next.run();
    return true;
}

void drain() {
    while (step()) {
    }
    for (CUstream_st *s : streams) come_after(&host_past, s->past);
    for (CUstream_st *s : streams)
        if (!s->queue.empty()) harness_fail("a stream waits for what never comes");
}

/* In the stream that runs now, which comes after all of its nodes then. */
void run_graph(const std::vector<node> &nodes) {
    std::vector<char> done(nodes.size(), 0);
    std::vector<harness_past> pasts(nodes.size(), running->past);
    CUstream_st *s = running;
    for (size_t left = nodes.size(); left > 0; left--) {
        std::vector<size_t> ready;
        for (size_t i = 0; i < nodes.size(); i++) {
            bool is = !done[i];
            for (size_t j : nodes[i].after) is = is && done[j];
            if (is) ready.push_back(i);
        }
        size_t i = ready[roll(ready.size())];
        for (size_t j : nodes[i].after) come_after(&pasts[i], pasts[j]);
        begin_operation(nodes[i].lane, &pasts[i]);
        if (nodes[i].run) nodes[i].run();
        come_after(&s->past, pasts[i]);
        done[i] = 1;
    }
}

void add_node(CUstream_st *s, const work &run) {
    node n = {run, s->pending, 0};
    s->capture->nodes.push_back(n);
    s->pending.assign(1, s->capture->nodes.size() - 1);
}

/* Runs what is in a stream's queue. */
void finish(CUstream_st *s) {
    while (!of(s)->queue.empty())
        if (!step()) harness_fail("a stream waits for what never comes");
    come_after(&host_past, of(s)->past);
}

cudaError_t submit(CUstream_st *s, const work &run) {
    if (!s && capturing()) return failed(cudaErrorStreamCaptureImplicit);
    operation o = {run, mark(), past_of_mark(), host_past};
    if (s && s->capture)
        add_node(s, run);
    else
        of(s)->queue.push_back(o);
    return cudaSuccess;
}

cudaError_t allocate(void **p, size_t bytes, bool mapped) {
    *p = NULL;
    if (capturing()) return failed(cudaErrorStreamCaptureUnsupported);
    if (harness_allocations_left == 0) return failed(cudaErrorMemoryAllocation);
    if (harness_allocations_left > 0) harness_allocations_left--;
    cudaError_t error = fault();
    if (error != cudaSuccess) return failed(error);
    *p = harness_allocate(bytes, mapped);
    if (!*p) return failed(cudaErrorMemoryAllocation);
    harness_live++;
    return cudaSuccess;
}

cudaError_t check(const harness_launch &l) {
    uint64_t n_threads = (uint64_t)l.block.x * l.block.y * l.block.z;
    if (n_threads < 1 || n_threads > 1024 || l.block.z > 64) return cudaErrorInvalidConfiguration;
    if (l.grid.x < 1 || l.grid.y < 1 || l.grid.z < 1) return cudaErrorInvalidConfiguration;
    if (l.grid.x > 0x7fffffffu || l.grid.y > 65535 || l.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (l.shared_bytes > 48 << 10) return cudaErrorInvalidValue; /* what needs no asking */
    return cudaSuccess;
}
} // namespace

cudaError_t harness_submit(const harness_launch &launch, cudaStream_t stream) {
    cudaError_t error = check(launch);
    if (stream && stream->device != current_device) error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) error = fault();
    if (error == cudaSuccess && !load(launch.kernel)) error = cudaErrorStreamCaptureUnsupported;
    if (error != cudaSuccess) return failed(error);
    const dim3 grid = launch.grid;
    harness_launches[of(stream)->beside]++;
    harness_blocks += (uint64_t)grid.x * grid.y * grid.z;
    harness_grid[0] = grid.x, harness_grid[1] = grid.y, harness_grid[2] = grid.z;
    return submit(stream, [=]() {
        broken = broken || harness_kernels_left == 0;
        if (harness_kernels_left > 0) harness_kernels_left--;
        if (!broken) harness_run(launch);
    });
}

extern "C" {

/* --- errors and the device --- */

cudaError_t CUDARTAPI cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void) {
    return last_error;
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess                 ? "no error"
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorLaunchFailure    ? "unspecified launch failure"
           : error == cudaErrorNoDevice         ? "no CUDA-capable device is detected"
                                                : "an error of the harness";
}

cudaError_t CUDARTAPI cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
    if (device < 0 || device > 1) return failed(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count) {
    *count = harness_device == 1 ? 0 : 2;
    return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
             : attribute == cudaDevAttrCanMapHostMemory     ? 1
             : attribute == cudaDevAttrMultiProcessorCount  ? 1
                                                            : 0;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel) {
    int n_late = harness_late;
    memset(out, 0, sizeof *out);
    out->binaryVersion = 90;
    cudaError_t error = harness_device == 2   ? cudaErrorNoKernelImageForDevice
                        : harness_device == 3 ? cudaErrorDevicesUnavailable
                                              : fault();
    if (error == cudaSuccess && !load(kernel)) error = cudaErrorStreamCaptureUnsupported;
    harness_late = n_late;
    return failed(error);
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
    if (capturing()) return failed(cudaErrorStreamCaptureUnsupported);
    drain();
    return failed(broken ? fault() : cudaSuccess);
}

/* --- memory --- */

cudaError_t CUDARTAPI cudaMalloc(void **p, size_t bytes) {
    return allocate(p, bytes, false);
}

cudaError_t CUDARTAPI cudaFree(void *p) {
    drain();
    harness_live -= p != NULL;
    harness_release(p);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    return allocate(p, bytes, true);
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    (void)flags;
    *device = host;
    return failed(fault());
}

cudaError_t CUDARTAPI cudaFreeHost(void *p) {
    return cudaFree(p);
}

cudaError_t CUDARTAPI cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (capturing()) return failed(cudaErrorStreamCaptureImplicit);
    cudaError_t error = fault();
    if (error != cudaSuccess) return failed(error);
    if (kind == cudaMemcpyHostToDevice) { /* the host's bytes may change once it returns */
        const char *bytes_now = (const char *)from;
        std::vector<char> staged(bytes_now, bytes_now + bytes);
        return submit(NULL, [=]() {
            if (bytes) harness_move(to, staged.data(), bytes);
        });
    }
    cudaMemcpyAsync(to, from, bytes, kind, NULL);
    if (kind == cudaMemcpyDeviceToHost) finish(NULL);
    return failed(broken ? fault() : cudaSuccess);
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    (void)kind;
    return submit(stream, [=]() {
        if (bytes) harness_move(to, from, bytes);
    });
}

cudaError_t CUDARTAPI cudaMemset(void *p, int value, size_t bytes) {
    cudaError_t error = capturing() ? cudaErrorStreamCaptureImplicit : fault();
    return error == cudaSuccess ? cudaMemsetAsync(p, value, bytes, NULL) : failed(error);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    return submit(stream, [=]() {
        if (bytes) harness_fill(p, value, bytes);
    });
}

/* --- streams and events --- */

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                                   int priority) {
    if (priority < -5 || priority > 0) return failed(cudaErrorInvalidValue);
    cudaError_t error = cudaStreamCreateWithFlags(stream, flags);
    if (error == cudaSuccess) (*stream)->beside = priority < 0;
    return error;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    if (flags != cudaStreamNonBlocking) return failed(cudaErrorInvalidValue); /* no other here */
    *stream = NULL;
    cudaError_t error = fault();
    if (error != cudaSuccess) return failed(error);
    *stream = new CUstream_st();
    (*stream)->device = current_device;
    (*stream)->lane = new_lane();
    streams.push_back(*stream);
    harness_live++;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
    drain();
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream) streams.erase(streams.begin() + (long)i);
    delete stream;
    harness_live--;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
    if (stream ? stream->capture != NULL : capturing())
        return failed(cudaErrorStreamCaptureUnsupported);
    finish(stream);
    return failed(broken ? fault() : cudaSuccess);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = NULL;
    cudaError_t error = fault();
    if (error != cudaSuccess) return failed(error);
    *event = new CUevent_st();
    harness_live++;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
    delete event;
    harness_live--;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    event->capture = stream ? stream->capture : NULL;
    event->reached = mark(new bool(false));
    event->past = past_of_mark(new harness_past());
    event->when = std::shared_ptr<double>(new double(0));
    if (event->capture) {
        event->ended = event->capture->ended;
        event->pending = stream->pending;
        return cudaSuccess;
    }
    mark reached = event->reached;
    past_of_mark past = event->past;
    std::shared_ptr<double> when = event->when;
    return submit(stream, [=]() {
        *past = running->past;
        *reached = true;
        *when = clock_ms();
    });
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    if (!begin->reached || !*begin->reached || !end->reached || !*end->reached)
        return failed(cudaErrorNotReady);
    *ms = (float)(*end->when - *begin->when);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (!event->capture && stream && stream->capture)
        return failed(cudaErrorStreamCaptureIsolation);
    if (event->capture && *event->ended) return failed(cudaErrorCapturedEvent);
    if (!event->capture) {
        operation o = {work(), event->reached, event->past, harness_past()};
        const char *ptx = getenv("SPECRT_PTX"); /* with a fault that faults.py plants */
        bool forgotten = ptx && strstr(ptx, ",forget=1");
        if (event->reached && !forgotten) of(stream)->queue.push_back(o);
        return cudaSuccess;
    }
    if (!stream->capture) { /* it joins */
        stream->capture = event->capture;
        stream->pending.clear();
        event->capture->streams.push_back(stream);
    }
    stream->pending.insert(stream->pending.end(), event->pending.begin(), event->pending.end());
    return cudaSuccess;
}

/* --- graphs --- */

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    stream->capture = new CUgraph_st();
    stream->capture->mode = mode;
    stream->capture->ended = std::shared_ptr<bool>(new bool(false));
    stream->capture->streams.push_back(stream);
    stream->pending.clear();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    *status =
        stream && stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Whether node i comes before what the stream that began would add. */
static bool precedes(const CUgraph_st *g, size_t i, const std::vector<size_t> &ends) {
    for (size_t end : ends)
        if (end == i || precedes(g, i, g->nodes[end].after)) return true;
    return false;
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    CUgraph_st *g = stream->capture;
    cudaError_t error = cudaSuccess;
    for (CUstream_st *s : g->streams)
        for (size_t end : s->pending)
            if (!precedes(g, end, stream->pending)) error = cudaErrorStreamCaptureUnjoined;
    for (CUstream_st *s : g->streams) {
        s->capture = NULL;
        s->pending.clear();
    }
    *g->ended = true;
    *graph = error == cudaSuccess ? g : NULL;
    if (error != cudaSuccess) delete g;
    return failed(error);
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                    unsigned long long flags) {
    (void)flags;
    *exec = new CUgraphExec_st();
    (*exec)->nodes = graph->nodes;
    for (node &n : (*exec)->nodes) n.lane = new_lane();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return submit(stream, [=]() { run_graph(exec->nodes); });
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {
    drain();
    delete exec;
    return cudaSuccess;
}

} // extern "C"
