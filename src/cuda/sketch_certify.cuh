/* sketch_certify.cuh : owns what `certified` adds: states sharpened, and the places that may hold a better
 * row. */
#ifndef CUDA_SKETCH_CERTIFY_CUH
#define CUDA_SKETCH_CERTIFY_CUH

#include "core/base.h"
#include "sources/sketch.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/active.cuh"
#include "cuda/scan.cuh"
#include "cuda/sketch_find.cuh"

/* --- certified: every row that might be among a state's best max_n --- */

static __device__ double specrt__sketch_hidden(const specrt__sketch_level &level, size_t at) {
    if (level.dtype == SPECRT_DTYPE_F32) return (double)((const float *)level.hidden)[at];
    uint32_t x = ((const uint16_t *)level.hidden)[at];
    return (double)(level.dtype == SPECRT_DTYPE_F16 ? specrt__launch_unpack_f16(x)
                                                    : specrt__launch_unpack_bf16(x))
        .x;
}

static __device__ double specrt__sketch_f16(uint16_t x) {
    return (double)specrt__launch_unpack_f16(x).x;
}

/* Block (i, h, b): rest[b, h, :] = hidden - z lift, a column a thread.
 *   grid (n_cols / SPECRT__SKETCH_PART, max_n, n_batch), block SPECRT__SKETCH_PART
 *   CPU twin, with the next two kernels: specrt__sketch_prove() */
static __global__ void specrt__sketch_leave(specrt__cuda_sketch s, specrt__sketch_level level) {
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y;
    int32_t j = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t row = (size_t)b * (size_t)level.scan.max_n + (size_t)h, n_cols = (size_t)s.n_cols;
    if (h >= specrt__scan_count(level.scan, b) || j >= s.n_cols) return;
    const float *z = level.scan.z + row * (size_t)s.rank;
    double rest = specrt__sketch_hidden(level, row * n_cols + (size_t)j);
    for (int32_t k = 0; k < s.rank; k++)
        rest -= specrt__sketch_f16(s.lift[(size_t)k * n_cols + (size_t)j]) * (double)z[k];
    level.rest[row * n_cols + (size_t)j] = rest;
}

/* Block (i, h, b): y[b, h, :] = z + basis rest, and z that in floats, a dimension a warp.
 *   grid (rank / warps, max_n, n_batch), block SPECRT__SKETCH_PART */
static __global__ void specrt__sketch_sharpen(specrt__cuda_sketch s, specrt__sketch_level level) {
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y;
    int32_t k = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    size_t row = (size_t)b * (size_t)level.scan.max_n + (size_t)h, n_cols = (size_t)s.n_cols;
    if (h >= specrt__scan_count(level.scan, b) || k >= s.rank) return;
    double sum = 0;
    for (int32_t j = (int32_t)(threadIdx.x % 32); j < s.n_cols; j += 32)
        sum += specrt__sketch_f16(s.basis[(size_t)k * n_cols + (size_t)j]) *
               level.rest[row * n_cols + (size_t)j];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 != 0) return;
    size_t at = row * (size_t)s.rank + (size_t)k;
    level.y[at] = (double)level.scan.z[at] + sum;
    level.scan.z[at] = (float)level.y[at];
}

/* What bounds the errors of a state's scores, as on the CPU. Exact products of the device differ from the
 * CPU's: sums run in another order, tensor cores round towards 0, states lose bits below 2^-25 to f16 and
 * are cut at 65504. So what rounding may take counts twice, and a state that would be cut proves
 * nothing. */
static __device__ void specrt__sketch_measure(const specrt__cuda_sketch &s,
                                              const specrt__sketch_level &level, size_t row) {
    int32_t thread = (int32_t)threadIdx.x, step = (int32_t)blockDim.x;
    const float *z = level.scan.z + row * (size_t)s.rank;
    double base = 0, state = 0, rest = 0, length = 0, off = 0;
    uint64_t most = 0, cut = 0;
    for (int32_t j = thread; j < s.n_cols; j += step) {
        size_t at = row * (size_t)s.n_cols + (size_t)j;
        double x = specrt__sketch_hidden(level, at);
        base += (double)s.mean[j] * x;
        state += x * x;
        rest += level.rest[at] * level.rest[at];
        if (!(fabs(x) <= 65504)) cut = 1;
    }
    for (int32_t k = thread; k < s.rank; k += step) {
        float x = fabsf(z[k]);
        if (x <= FLT_MAX && __float_as_uint(x) > most) most = __float_as_uint(x);
    }
    float greatest = __uint_as_float((uint32_t)specrt__block_max(most));
    float inverse = greatest > 0 ? 127 / greatest : 0, unit = greatest / 127;
    for (int32_t k = thread; k < s.rank; k += step) {
        double y = level.y[row * (size_t)s.rank + (size_t)k];
        double left = y - (double)unit * specrt__scan_code(z[k], inverse);
        length += y * y;
        off += left * left;
    }
    base = specrt__block_sum(base);
    state = sqrt(specrt__block_sum(state));
    rest = sqrt(specrt__block_sum(rest));
    length = sqrt(specrt__block_sum(length));
    off = sqrt(specrt__block_sum(off));
    cut = specrt__block_max(cut);
    if (thread > 0) return;
    specrt__sketch_proof *proof = &level.proofs[row];
    proof->base = base;
    proof->errors[0] = 1.000001 * rest;
    proof->errors[1] = 1.000001 * length;
    proof->errors[2] = 1.000001 * off + 1e-6 * length;
    proof->errors[3] = 2 * (s.n_cols + 64) * 1.2e-7 * state + 6e-8 * sqrt((double)s.n_cols);
    if (cut) proof->errors[3] = INFINITY;
}

/* Block (h, b): the proof of state h but for its kth, and what the state finds, as rows to score.
 *   grid (max_n, n_batch), any block */
static __global__ void __launch_bounds__(SPECRT__SKETCH_THREADS)
    specrt__sketch_prove_kernel(specrt__cuda_sketch s, specrt__sketch_level level) {
    int32_t b = (int32_t)blockIdx.y, h = (int32_t)blockIdx.x;
    size_t row = (size_t)b * (size_t)level.scan.max_n + (size_t)h, first = row * (size_t)s.size;
    specrt__cuda_segment *segment = &level.segments[row];
    if (threadIdx.x == 0) SPECRT__CLEAR(segment, 1); /* the product reads all of them */
    if (h >= specrt__scan_count(level.scan, b)) return;
    specrt__sketch_measure(s, level, row);
    int32_t n = specrt__sketch_find(s, level, row, level.found + first);
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        level.rows[first + (size_t)i] =
            s.rows[specrt__block_key_id(level.found[first + (size_t)i])];
    if (threadIdx.x > 0) return;
    level.n_found[row] = n;
    segment->rows = s.head.rows;
    segment->row_stride = s.head.row_stride;
    segment->bias = s.bias;
    segment->places = level.rows + first;
    segment->n_rows = &level.n_found[row];
    segment->max_rows = s.size;
}

/* Block (h, b): the max_n-th greatest exact logit of what state h found, less what a product may be off by,
 * once for the level's own, and once for this one.
 *   grid (max_n, n_batch), any block
 *   CPU twin: specrt__sketch_kth() */
static __global__ void specrt__sketch_least(specrt__cuda_sketch s, specrt__sketch_level level) {
    int32_t b = (int32_t)blockIdx.y, h = (int32_t)blockIdx.x, k = level.scan.max_n;
    size_t row = (size_t)b * (size_t)k + (size_t)h, first = row * (size_t)s.size;
    if (h >= specrt__scan_count(level.scan, b)) return;
    uint64_t *keys = level.keys + row * 16 * (size_t)level.n_most, lowest = 0;
    int32_t n = level.n_found[row];
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t place = specrt__block_key_id(level.found[first + (size_t)i]);
        double logit = (double)level.logits[first + (size_t)i];
        double off = 2 * level.proofs[row].errors[3] * (double)s.bounds[4 * (size_t)place + 3];
        keys[i] = specrt__block_key((float)(logit - off - 1e-6 * fabs(logit)), i);
    }
    __syncthreads();
    uint64_t least = specrt__active_least(keys, n, k);
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        if (keys[i] >= least && ~keys[i] > lowest) lowest = ~keys[i];
    lowest = specrt__block_max(lowest);
    if (threadIdx.x == 0)
        level.proofs[row].kth = n < k ? -INFINITY : (double)specrt__active_logit(~lowest);
}

/* Whether a place may be among the best of one of n states from number `row` on. */
static __device__ bool specrt__sketch_widens(const specrt__cuda_sketch &s,
                                             const specrt__sketch_level &level, size_t row,
                                             int32_t n, int32_t place) {
    double lengths[4], bias = s.bias ? 1e-6 * fabs((double)s.bias[s.rows[place]]) : 0;
    for (int i = 0; i < 4; i++) lengths[i] = (double)s.bounds[4 * (size_t)place + (size_t)i];
    for (size_t at = row; at < row + (size_t)n; at++) {
        uint32_t order = level.scan.order[at * 16 * (size_t)level.scan.n_groups + (size_t)place];
        if (order == 0) return false; /* to no state */
        const specrt__sketch_proof *proof = &level.proofs[at];
        double most = proof->base + (double)specrt__active_logit((uint64_t)order << 32) + bias;
        for (int i = 0; i < 4; i++) most += proof->errors[i] * lengths[i];
        if (!(most < proof->kth)) return true;
    }
    return false;
}

/* Block (i, b): marks[b, i, :] and taken[b, i] of the places of part i.
 *   grid (n_parts, n_batch), block SPECRT__SKETCH_PART
 *   CPU twin: specrt__sketch_widen() */
static __global__ void specrt__sketch_mark(specrt__cuda_sketch s, specrt__sketch_level level) {
    int32_t b = (int32_t)blockIdx.y, place = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t part = (size_t)b * (size_t)level.n_parts + blockIdx.x;
    bool joins =
        place < s.n_places && specrt__sketch_widens(s, level, (size_t)b * (size_t)level.scan.max_n,
                                                    specrt__scan_count(level.scan, b), place);
    uint32_t word = __ballot_sync(0xffffffffu, joins);
    int32_t n = __syncthreads_count(joins);
    if (threadIdx.x % 32 == 0)
        level.marks[part * (SPECRT__SKETCH_PART / 32) + threadIdx.x / 32] = word;
    if (threadIdx.x == 0) level.taken[part] = n;
}

/* Block (i, b): the places of part i that join the level, behind those of the parts before.
 *   grid (n_parts, n_batch), block SPECRT__SKETCH_PART */
static __global__ void specrt__sketch_gather(specrt__cuda_sketch s, specrt__sketch_level level,
                                             int32_t *ids, int32_t *places, int32_t *n_rows) {
    int32_t b = (int32_t)blockIdx.y, part = (int32_t)blockIdx.x, n = 0, before;
    int32_t place = part * SPECRT__SKETCH_PART + (int32_t)threadIdx.x;
    size_t first = (size_t)b * (size_t)level.n_parts;
    const uint32_t *marks = level.marks + (first + (size_t)part) * (SPECRT__SKETCH_PART / 32);
    for (int32_t i = (int32_t)threadIdx.x; i < part; i += (int32_t)blockDim.x)
        n += level.taken[first + (size_t)i];
    n = specrt__block_scan(n, &before);
    bool joins = marks[threadIdx.x / 32] >> threadIdx.x % 32 & 1;
    int32_t n_taken = specrt__block_rank(joins, &before);
    if (joins) {
        size_t at = (size_t)b * (size_t)s.bound + (size_t)(n + before);
        places[at] = s.rows[place];
        ids[at] = s.ids ? s.ids[places[at]] : places[at];
    }
    if (part == level.n_parts - 1 && threadIdx.x == 0) n_rows[b] = n + n_taken;
}

#endif
