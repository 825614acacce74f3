/* head.cuh : owns products of rows that tensor cores take, and the launches of all products. */
#ifndef CUDA_HEAD_CUH
#define CUDA_HEAD_CUH

#include "core/base.h"
#include "core/head.h"
#include "cuda/launch.cuh"
#include "cuda/head_rows.cuh"

/* --- other rows: tensor cores --- */

enum { SPECRT__HEAD_TILE_WARPS = 8 };

/* The pair (x, y) rounded to 16 bits, and what is left of it. What f16 does not reach is cut. */
template <bool kBf16>
static __device__ uint32_t specrt__head_round(float x, float y, float2 *rest) {
    uint32_t out = kBf16 ? specrt__launch_pack_bf16(x, y) : specrt__launch_pack_f16_cut(x, y);
    float2 back = kBf16 ? specrt__launch_unpack_bf16(out) : specrt__launch_unpack_f16(out);
    *rest = make_float2(x - back.x, y - back.y);
    return out;
}

/* Columns 8 * chunk on of a state as an operand, and what rounding leaves of them.
 *   kExact : states are of the operands' type, and nothing is left */
template <bool kBf16, bool kWhole, bool kExact>
static __device__ void specrt__head_operand(const specrt__head_states &x, int32_t state,
                                            int32_t chunk, uint32_t *pairs, uint32_t *rest) {
    float z[8];
    if (kExact) {
        specrt__head_eight eight =
            specrt__head_load<kWhole, false>(specrt__head_state_at(x, state), chunk, x.n_cols);
        for (int i = 0; i < 4; i++) pairs[i] = eight.pairs[i];
        return;
    }
    specrt__head_state<kWhole>(x, state, chunk, z);
    for (int i = 0; i < 4; i++) {
        float2 left, none;
        pairs[i] = specrt__head_round<kBf16>(z[2 * i], z[2 * i + 1], &left);
        rest[i] = specrt__head_round<kBf16>(left.x, left.y, &none);
    }
}

/* sums[kGroups * kTiles][4] += 16 rows of every group, of which a[] holds this lane's part, times kTiles * 8
 * states over columns 32 * step on. A lane brings 8 columns of rows lane / 4 and lane / 4 + 8 of a group and
 * of state lane / 4 of every tile: pairs 0 and 1 to one product, 2 and 3 to another, so that the order of
 * columns within the 32 is the lanes' own. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kWhole, bool kExact>
static __device__ void specrt__head_tile_step(const specrt__head_states &x,
                                              const specrt__head_eight (*a)[2], int32_t step,
                                              float (*sums)[4]) {
    const bool kBf16 = kDtype == SPECRT_DTYPE_BF16;
    int32_t lane = (int32_t)(threadIdx.x % 32);
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kTiles; t++) {
        int32_t state = 8 * t + lane / 4;
        if (t > 0 && 8 * t >= x.n) break;
        uint32_t pairs[4], rest[4];
        specrt__head_operand<kBf16, kWhole, kExact>(x, state < x.n ? state : x.n - 1,
                                                    4 * step + lane % 4, pairs, rest);
        SPECRT__LAUNCH_UNROLL
        for (int g = 0; g < kGroups; g++) {
            float part[4] = {0, 0, 0, 0}, *sum = sums[g * kTiles + t];
            SPECRT__LAUNCH_UNROLL
            for (int half = 0; half < 2; half++) {
                specrt__launch_operands both;
                for (int i = 0; i < 4; i++) both.a[i] = a[g][i % 2].pairs[2 * half + i / 2];
                for (int i = 0; i < 2; i++) both.b[i] = pairs[2 * half + i];
                specrt__launch_mma<kBf16>(both, kDtype == SPECRT_DTYPE_Q8_0 ? part : sum);
                if (kExact) continue;
                for (int i = 0; i < 2; i++) both.b[i] = rest[2 * half + i];
                specrt__launch_mma<kBf16>(both, kDtype == SPECRT_DTYPE_Q8_0 ? part : sum);
            }
            if (kDtype == SPECRT_DTYPE_Q8_0) SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 4; i++) sum[i] += part[i] * a[g][i / 2].scale;
        }
    }
}

/* Steps on to `end`. @return the next step.
 *   rows : [2 * kGroups] this lane's */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kWhole, bool kExact>
static __device__ int32_t specrt__head_tile_steps(const specrt__head_states &x,
                                                  const char *const *rows, bool planes,
                                                  int32_t step, int32_t end, float (*sums)[4]) {
    for (; step < end; step++) {
        specrt__head_eight a[kGroups][2];
        int32_t chunk = 4 * step + (int32_t)(threadIdx.x % 4);
        SPECRT__LAUNCH_UNROLL
        for (int r = 0; r < 2 * kGroups; r++)
            a[r / 2][r % 2] = kDtype == SPECRT_DTYPE_Q8_0
                                  ? specrt__head_load_codes(rows[r], chunk, x.n_cols, planes)
                                  : specrt__head_load<kWhole, true>(rows[r], chunk, x.n_cols);
        specrt__head_tile_step<kDtype, kTiles, kGroups, kWhole, kExact>(x, a, step, sums);
    }
    return step;
}

/* A lane's eight columns of a step, out of the 16 bytes that it took: all of them, or of codes the lower or
 * higher half. */
template <specrt_dtype kDtype>
static __device__ specrt__head_eight specrt__head_taken(uint4 word, uint32_t scales, int half) {
    if (kDtype != SPECRT_DTYPE_Q8_0) return {{word.x, word.y, word.z, word.w}, 1};
    return half == 0 ? specrt__head_codes(word.x, word.y, (uint16_t)(scales & 0xffff))
                     : specrt__head_codes(word.z, word.w, (uint16_t)(scales >> 16));
}

/* Columns that four lanes read with 16 bytes each, in steps of 32. */
template <specrt_dtype kDtype> struct specrt__head_word {
    enum { kSteps = kDtype == SPECRT_DTYPE_Q8_0 ? 2 : 1 };
};

/* The same of whole steps, with rows under way: from a multiple of kSteps on, as far as those go. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kExact>
static __device__ int32_t specrt__head_tile_run(const specrt__head_states &x,
                                                const char *const *rows, uint4 *places,
                                                uint32_t *scales, int32_t step, int32_t end,
                                                float (*sums)[4]) {
    const int kRows = 2 * kGroups, kSteps = specrt__head_word<kDtype>::kSteps;
    int32_t at = 4 * (step / kSteps) + (int32_t)(threadIdx.x % 4), stop = 4 * (end / kSteps);
    specrt__head_ring<32 * SPECRT__HEAD_TILE_WARPS, kRows, 1, (kSteps > 1)> ring = {places, scales,
                                                                                    x.n_cols, 0};
    specrt__head_begin(&ring, rows, at, 4, stop);
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (; at < stop; at += 4) {
        uint4 words[kRows];
        uint32_t pairs[kRows] = {0};
        specrt__head_take(&ring, rows, at, 4, stop, words, pairs);
        SPECRT__LAUNCH_UNROLL
        for (int half = 0; half < kSteps; half++, step++) {
            specrt__head_eight a[kGroups][2];
            SPECRT__LAUNCH_UNROLL
            for (int r = 0; r < kRows; r++)
                a[r / 2][r % 2] = specrt__head_taken<kDtype>(words[r], pairs[r], half);
            specrt__head_tile_step<kDtype, kTiles, kGroups, true, kExact>(x, a, step, sums);
        }
    }
    return step;
}

/* Groups of 16 rows of a warp: two where states have to be rounded, which they are for both. */
template <int kTiles, bool kExact> struct specrt__head_tile {
    enum { kGroups = kExact || kTiles > 4 ? 1 : 2 };
};

/* All columns of this warp's share: share `split` of n_splits. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kExact>
static __device__ void
specrt__head_tile_share(const specrt__head_product &p, int32_t n, const specrt__cuda_segment &s,
                        const char *const *rows, uint4 *places, uint32_t *scales, int32_t split,
                        int32_t n_splits, float (*sums)[4]) {
    const int kSteps = specrt__head_word<kDtype>::kSteps;
    const specrt__head_states x = specrt__head_states_of(p, n);
    const bool planes = p.layout.dtypes[blockIdx.y] == SPECRT__CUDA_Q8_0_PLANES;
    int32_t n_steps = (x.n_cols + 31) / 32, n_words = (n_steps + kSteps - 1) / kSteps;
    int32_t step = kSteps * (n_words * split / n_splits);
    int32_t end = kSteps * (n_words * (split + 1) / n_splits);
    int32_t whole = specrt__head_whole(p, s) / 32;
    if (end > n_steps) end = n_steps;
    if (whole > end) whole = end;
    step = specrt__head_tile_run<kDtype, kTiles, kGroups, kExact>(
        x, rows, places, scales, step, kDtype != SPECRT_DTYPE_Q8_0 || planes ? whole : step, sums);
    if (kDtype == SPECRT_DTYPE_Q8_0) /* in blocks, or a last one of planes */
        step = specrt__head_tile_steps<kDtype, kTiles, kGroups, true, kExact>(x, rows, planes, step,
                                                                              whole, sums);
    specrt__head_tile_steps<kDtype, kTiles, kGroups, false, kExact>(x, rows, planes, step, end,
                                                                    sums);
}

/* Block (i, s, b): logits[b, :, rows] as above, for kGroups * 16 rows of segment s a set of n_splits warps,
 * each of which takes its share of the columns; their sums are added in order.
 *   grid (rows / (16 * kGroups * sets), n_segments, n_batch), block 32 * SPECRT__HEAD_TILE_WARPS
 *   n_splits : a power of two up to SPECRT__HEAD_TILE_WARPS
 *   CPU twin: specrt_shortlist_logits() */
template <specrt_dtype kDtype, int kTiles, bool kExact>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_TILE_WARPS, 2)
    specrt__head_tiles(specrt__head_product p, int32_t n_splits) {
    const int kGroups = specrt__head_tile<kTiles, kExact>::kGroups, kRows = 16 * kGroups;
    const int kPlaces = SPECRT__HEAD_LOADS * 32 * SPECRT__HEAD_TILE_WARPS;
    static_assert(kPlaces * 16 >= SPECRT__HEAD_TILE_WARPS * kRows * 8 * kTiles * 4,
                  "sums have to fit where rows were under way");
    __shared__ uint4 places[kPlaces];
    __shared__ uint32_t scales[kDtype == SPECRT_DTYPE_Q8_0 ? kPlaces : 1];
    float(*shared)[kRows][8 * kTiles] = (float(*)[kRows][8 * kTiles])(void *)places;
    int32_t b = specrt__head_set(p), n = specrt__head_count(p, b);
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt__cuda_segment s = specrt__head_segment(p);
    int32_t n_rows = specrt__head_rows(s), n_block = kRows * SPECRT__HEAD_TILE_WARPS / n_splits;
    int32_t first = specrt__head_part(p) * n_block;
    if (specrt__head_type(p.layout.dtypes[blockIdx.y]) != kDtype || n <= 0 || first >= n_rows)
        return;
    float sums[kGroups * kTiles][4];
    const char *rows[2 * kGroups];
    for (int i = 0; i < 2 * kGroups; i++) {
        int32_t row = first + kRows * (warp / n_splits) + lane / 4 + 8 * i;
        rows[i] = specrt__head_row_at(s, row < n_rows ? row : n_rows - 1);
    }
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4 * kGroups * kTiles; i++) sums[i / 4][i % 4] = 0;
    specrt__head_tile_share<kDtype, kTiles, kGroups, kExact>(p, n, s, rows, places, scales,
                                                             warp % n_splits, n_splits, sums);
    __syncthreads(); /* rows of other warps are taken */
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kGroups * kTiles; t++) SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++)
        shared[warp][t / kTiles * 16 + lane / 4 + i / 2 * 8]
              [8 * (t % kTiles) + lane % 4 * 2 + i % 2] = sums[t][i];
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n_block * 8 * kTiles; i += (int32_t)blockDim.x) {
        int32_t row = i % n_block, state = i / n_block;
        float sum = 0;
        if (first + row >= n_rows || state >= n) continue;
        for (int32_t w = 0; w < n_splits; w++)
            sum += shared[row / kRows * n_splits + w][row % kRows][state];
        specrt__head_put(p, s, first + row, state, sum);
    }
}

/* --- launches --- */

/* The columns of a layout, in all and before each segment; 0: it is not one. */
static int32_t specrt__head_lay_out(const specrt__cuda_layout *layout, int32_t *starts) {
    int64_t n = 0;
    if (!layout || layout->n_segments < 1 || layout->n_segments > SPECRT__CUDA_MAX_SEGMENTS)
        return 0;
    for (int32_t i = 0; i < layout->n_segments; i++) {
        starts[i] = (int32_t)n;
        if (layout->max_rows[i] < 1 || layout->max_rows[i] > SPECRT_MAX_VOCAB) return 0;
        n += layout->max_rows[i];
    }
    return n <= INT32_MAX ? (int32_t)n : 0;
}

/* The most rows of segments of a type; 0: there are none. */
static int32_t specrt__head_most(const specrt__cuda_layout *layout, specrt_dtype dtype) {
    int32_t most = 0;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (specrt__head_type(layout->dtypes[i]) == dtype && layout->max_rows[i] > most)
            most = layout->max_rows[i];
    return most;
}

/* n_blocks for the rows of each segment and set of states. Groups of all sequences' states are the fastest
 * dimension, so that rows are still in a cache when the next group reads them. */
static dim3 specrt__head_grid(const specrt__head_product &p, unsigned n_blocks, int32_t n_batch) {
    unsigned n_segments = (unsigned)p.layout.n_segments;
    return p.n_groups ? dim3(n_blocks * (unsigned)p.n_groups, n_segments, 1)
                      : dim3(n_blocks, n_segments, (unsigned)n_batch);
}

/* Warps that share a row's columns: as few as leave four blocks to a multiprocessor. The fewer they are, the
 * more warps of a block read the same part of the states; with fewer blocks many would stand idle.
 *   rows : of a block whose warps share none */
static int32_t specrt__head_splits(int32_t n_rows, int32_t rows, int32_t n_batch) {
    int32_t n_splits = 1;
    uint64_t enough = 4 * (uint64_t)specrt__launch_multiprocessors();
    while (n_splits < SPECRT__HEAD_TILE_WARPS &&
           specrt__launch_blocks(n_rows, rows / n_splits) * (uint64_t)n_batch < enough)
        n_splits *= 2;
    return n_splits;
}

template <specrt_dtype kDtype, int kTiles, bool kExact>
static specrt_status specrt__head_launch_tile(const specrt__head_product &p, int32_t n_batch,
                                              void *stream) {
    int32_t rows = 16 * specrt__head_tile<kTiles, kExact>::kGroups * SPECRT__HEAD_TILE_WARPS;
    int32_t most = specrt__head_most(&p.layout, kDtype);
    int32_t n_splits = p.n_splits ? p.n_splits : specrt__head_splits(most, rows, n_batch);
    dim3 grid = specrt__head_grid(p, specrt__launch_blocks(most, rows / n_splits), n_batch);
    return SPECRT__LAUNCH((specrt__head_tiles<kDtype, kTiles, kExact>), grid,
                          32 * SPECRT__HEAD_TILE_WARPS, 0, stream, p, n_splits);
}

template <specrt_dtype kDtype, int kTiles>
static specrt_status specrt__head_launch_tiles(const specrt__head_product &p, int32_t n_batch,
                                               void *stream) {
    if (p.dtype == (kDtype == SPECRT_DTYPE_BF16 ? SPECRT_DTYPE_BF16 : SPECRT_DTYPE_F16))
        return specrt__head_launch_tile<kDtype, kTiles, true>(p, n_batch, stream);
    return specrt__head_launch_tile<kDtype, kTiles, false>(p, n_batch, stream);
}

template <specrt_dtype kDtype>
static specrt_status specrt__head_run(const specrt__head_product &p, int32_t n_batch,
                                      void *stream) {
    if (specrt__head_most(&p.layout, kDtype) == 0) return SPECRT_STATUS_OK;
    if (p.max_n <= 16) return specrt__head_launch_tiles<kDtype, 2>(p, n_batch, stream);
    return specrt__head_launch_tiles<kDtype, 8>(p, n_batch, stream);
}

template <int kStates>
static specrt_status specrt__head_launch_f32(const specrt__head_product &p, int32_t n_batch,
                                             void *stream) {
    const int32_t per_block = SPECRT__HEAD_F32_WARPS * specrt__head_f32_part<kStates>::kRows;
    int32_t most = specrt__head_most(&p.layout, SPECRT_DTYPE_F32);
    dim3 grid = specrt__head_grid(p, specrt__launch_blocks(most, per_block), n_batch);
    return SPECRT__LAUNCH((specrt__head_f32<kStates>), grid, 32 * SPECRT__HEAD_F32_WARPS, 0, stream,
                          p);
}

/* Up to 16 states at a time, with which rows are still read as fast as they come. */
static specrt_status specrt__head_run_f32(specrt__head_product p, int32_t n_batch, void *stream) {
    const int32_t kFew = 2, kMost = 16;
    if (specrt__head_most(&p.layout, SPECRT_DTYPE_F32) == 0) return SPECRT_STATUS_OK;
    for (p.first = 0; p.first < p.max_n; p.first += kMost)
        if (p.max_n - p.first <= kFew)
            SPECRT__TRY(specrt__head_launch_f32<kFew>(p, n_batch, stream));
        else
            SPECRT__TRY(specrt__head_launch_f32<kMost>(p, n_batch, stream));
    return SPECRT_STATUS_OK;
}

/* Segments of all types, one type after another. */
static specrt_status specrt__head_run_all(const specrt__head_product &p, int32_t n_batch,
                                          void *stream) {
    SPECRT__TRY(specrt__head_run_f32(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_F16>(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_BF16>(p, n_batch, stream));
    return specrt__head_run<SPECRT_DTYPE_Q8_0>(p, n_batch, stream);
}

/* Of segments that a product leaves out. */
#define SPECRT__HEAD_NONE SPECRT_DTYPE_FORCE_INT

/* Segments that sequences share, with all their states at once, and the others. */
static specrt_status specrt__head_run_batch(specrt__head_product p, int32_t n_batch, void *stream) {
    specrt__head_product joined = p;
    for (int32_t i = 0; i < p.layout.n_segments; i++)
        if (n_batch > 1 && p.layout.shared[i])
            p.layout.dtypes[i] = SPECRT__HEAD_NONE;
        else
            joined.layout.dtypes[i] = SPECRT__HEAD_NONE;
    joined.n = NULL;
    joined.n_states = n_batch * p.max_n;
    joined.n_each = p.max_n;
    joined.max_n = SPECRT__CUDA_MAX_STATES;
    if (joined.max_n > joined.n_states) joined.max_n = joined.n_states;
    joined.n_groups = (int32_t)specrt__launch_blocks(joined.n_states, joined.max_n);
    SPECRT__TRY(specrt__head_run_all(joined, joined.n_groups, stream));
    return specrt__head_run_all(p, n_batch, stream);
}

static bool specrt__head_is_state(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_F32 || dtype == SPECRT_DTYPE_F16 || dtype == SPECRT_DTYPE_BF16;
}

static specrt_status specrt__head_check_batch(const specrt__cuda_batch *batch) {
    return batch && batch->n_batch >= 1 && batch->n_batch <= SPECRT__CUDA_MAX_BATCH &&
                   batch->max_n >= 1 && batch->max_n <= SPECRT__CUDA_MAX_STATES
               ? SPECRT_STATUS_OK
               : SPECRT_STATUS_BAD_ARG;
}

/* The rows of a pass. */
static specrt__cuda_batch specrt__head_beam_rows(const specrt_cuda_beam *beams, int32_t n_batch,
                                                 int32_t max_n) {
    return {n_batch, max_n, &beams->n, sizeof *beams / sizeof(int32_t)};
}

/* States of a batch, all of them from the first on. */
static void specrt__head_take_states(specrt__head_product *p, const specrt__cuda_batch *batch,
                                     const void *hidden, specrt_dtype dtype) {
    p->hidden = hidden;
    p->dtype = dtype;
    p->max_n = batch->max_n;
    p->n = batch->n;
    p->n_step = batch->n_step;
}

/* A product with one segment of rows that all sequences have. */
static specrt__head_product specrt__head_of_rows(const void *rows, specrt_dtype dtype,
                                                 int32_t n_rows, int32_t n_cols) {
    specrt__head_product p;
    SPECRT__CLEAR(&p, 1);
    p.layout.n_segments = 1;
    p.layout.n_cols = n_cols;
    p.layout.dtypes[0] = dtype;
    p.layout.max_rows[0] = p.own.max_rows = p.n_columns = n_rows;
    p.own.rows = rows;
    p.own.row_stride = specrt_row_bytes(dtype, n_cols);
    return p;
}

/* specrt__cuda_logits() of segments [first, end).
 *   p : zeros, but for what it adds to, and its step: rows of hidden from state to state, where a batch's
 *       max_n is 1 */
static specrt_status specrt__head_logits(specrt__head_product p, const specrt__cuda_layout *layout,
                                         int32_t first, int32_t end,
                                         const specrt__cuda_segment *segments,
                                         const specrt__cuda_batch *batch, const void *hidden,
                                         specrt_dtype dtype, float *logits, void *stream) {
    p.n_columns = specrt__head_lay_out(layout, p.starts);
    if (p.n_columns == 0 || !segments || !hidden || !logits) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__head_check_batch(batch));
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (specrt__head_stored_bytes(layout->dtypes[i], layout->n_cols) == 0)
            return SPECRT_STATUS_UNSUPPORTED;
    p.segments = segments;
    p.layout = *layout;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (i < first || i >= end) p.layout.dtypes[i] = SPECRT__HEAD_NONE;
    p.logits = logits;
    specrt__head_take_states(&p, batch, hidden, dtype);
    return specrt__head_run_batch(p, batch->n_batch, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_logits(const specrt__cuda_layout *layout,
                                                 const specrt__cuda_segment *segments,
                                                 const specrt__cuda_batch *batch,
                                                 const void *hidden, specrt_dtype dtype,
                                                 float *logits, void *stream) {
    return specrt__cuda_split_logits(0, layout, segments, batch, hidden, dtype, logits, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_split_logits(int32_t n_splits,
                                                       const specrt__cuda_layout *layout,
                                                       const specrt__cuda_segment *segments,
                                                       const specrt__cuda_batch *batch,
                                                       const void *hidden, specrt_dtype dtype,
                                                       float *logits, void *stream) {
    specrt__head_product p;
    if (n_splits < 0 || n_splits > SPECRT__HEAD_TILE_WARPS || (n_splits & (n_splits - 1)))
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(&p, 1);
    p.n_splits = n_splits;
    return specrt__head_logits(p, layout, 0, SPECRT__CUDA_MAX_SEGMENTS, segments, batch, hidden,
                               dtype, logits, stream);
}

#endif
