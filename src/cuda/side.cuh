/* side.cuh : owns the second stream: what is begun on it runs beside the application's from a fork to the
 * next join. A graph holds both or neither. */
#ifndef CUDA_SIDE_CUH
#define CUDA_SIDE_CUH

#include "core/base.h"
#include "cuda/launch.cuh"
#include "cuda/device.cuh"

typedef struct specrt__side {
    cudaStream_t stream;
    cudaEvent_t fork, join;
    bool forked, captured; /* captured: the fork is in a graph, which has to hold the join too */
} specrt__side;

/* With priority: what runs beside the drafter's pass is short, and waited for after it. */
static specrt_status specrt__side_open(specrt__side *side, specrt_error *err) {
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(&side->stream, cudaStreamNonBlocking, greatest);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->fork, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->join, cudaEventDisableTiming);
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, 0, err);
}

static void specrt__side_close(specrt__side *side) {
    if (side->fork) (void)cudaEventDestroy(side->fork);
    if (side->join) (void)cudaEventDestroy(side->join);
    if (side->stream) (void)cudaStreamDestroy(side->stream);
}

static specrt_status specrt__side_captured(void *stream, bool *out) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    *out = capture != cudaStreamCaptureStatusNone;
    return specrt__launch_status(error);
}

/* What comes next on the side waits for what the stream has. */
static specrt_status specrt__side_fork(specrt__side *side, void *stream) {
    SPECRT__TRY(specrt__side_captured(stream, &side->captured));
    SPECRT__TRY(specrt__launch_status(cudaEventRecord(side->fork, (cudaStream_t)stream)));
    return specrt__launch_status(cudaStreamWaitEvent(side->stream, side->fork, 0));
}

/* All that a fork is for has been begun. */
static specrt_status specrt__side_end(specrt__side *side) {
    SPECRT__TRY(specrt__launch_status(cudaEventRecord(side->join, side->stream)));
    side->forked = true;
    return SPECRT_STATUS_OK;
}

/* Whether a join may come on a stream. A graph on one side only is refused, before the runtime invalidates
 * it.
 *   captured : the stream is */
static specrt_status specrt__side_check(specrt__side *side, bool captured) {
    if (!side->forked || captured == side->captured) return SPECRT_STATUS_OK;
    /* A captured fork that cannot be joined is a graph's that has ended without it. */
    if (side->captured) side->forked = false;
    return SPECRT_STATUS_CAPTURE;
}

/* The stream goes on when what was forked is done. */
static specrt_status specrt__side_join(specrt__side *side, void *stream) {
    bool captured;
    if (!side->forked) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__side_captured(stream, &captured));
    SPECRT__TRY(specrt__side_check(side, captured));
    specrt_status status =
        specrt__launch_status(cudaStreamWaitEvent((cudaStream_t)stream, side->join, 0));
    if (status == SPECRT_STATUS_OK || side->captured) side->forked = false;
    return status;
}

#endif
