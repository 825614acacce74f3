/* head_rows.cuh : owns products of segments with hidden states. Rows are read as they lie, hidden states
 * as they come; sums are f32. f16, bf16 and q8_0 go to tensor cores, on which a state is the sum of two
 * halves, so that it keeps 16 (bf16) or 22 bits; of f32 a warp takes whole rows. */
#ifndef CUDA_HEAD_ROWS_CUH
#define CUDA_HEAD_ROWS_CUH

#include "core/simd.h"
#include "cuda/launch.cuh"

/* q8_0 is one type, however its rows lie. */
static __host__ __device__ specrt_dtype specrt__head_type(specrt_dtype dtype) {
    return dtype == SPECRT__CUDA_Q8_0_PLANES ? SPECRT_DTYPE_Q8_0 : dtype;
}

/* The type that rows of another have once they are packed. */
static specrt_dtype specrt__head_packed_type(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_Q8_0 ? SPECRT__CUDA_Q8_0_PLANES : dtype;
}

/* The bytes of a row whose type is computed as it is; 0: not such a row. */
static size_t specrt__head_stored_bytes(specrt_dtype dtype, int64_t n_cols) {
    dtype = specrt__head_type(dtype);
    if (specrt__simd_format(dtype) < 0 || n_cols > SPECRT__CUDA_MAX_COLS) return 0;
    return specrt_row_bytes(dtype, n_cols);
}

/* Where in a plane of codes the eight of columns 8 * chunk on begin: of two blocks in turn, but of a last
 * one without a second. */
static __host__ __device__ int32_t specrt__head_code_at(int32_t chunk, int32_t n_blocks) {
    int32_t block = chunk / 4, i = chunk % 4;
    return (block | 1) < n_blocks ? block / 2 * 64 + 16 * i + block % 2 * 8 : 32 * block + 8 * i;
}

/* A row of q8_0 in planes, from one in blocks. */
static void specrt__head_split(const uint8_t *row, int32_t n_cols, uint8_t *out) {
    const int32_t n_blocks = n_cols / 32;
    for (int32_t b = 0; b < n_blocks; b++, row += 34) {
        memcpy(out + n_cols + 2 * b, row, 2);
        for (int32_t i = 0; i < 4; i++)
            memcpy(out + specrt__head_code_at(4 * b + i, n_blocks), row + 2 + 8 * i, 8);
    }
}

/* --- eight columns at a time --- */

typedef struct specrt__head_eight {
    uint32_t pairs[4]; /* f16 or bf16, as the row; q8_0: codes as f16 */
    float scale;       /* of q8_0, else 1 */
} specrt__head_eight;

static __device__ uint32_t specrt__head_halves(const uint16_t *x, int32_t at, int32_t n) {
    return (uint32_t)(at < n ? x[at] : 0) | (uint32_t)(at + 1 < n ? x[at + 1] : 0) << 16;
}

/* Eight codes of 8 bits as f16: the last bits of 1024 + 128 + code are the code's. */
static __device__ specrt__head_eight specrt__head_codes(uint32_t low, uint32_t high,
                                                        uint16_t scale) {
    const uint32_t kMagic = 0x64806480u;
    specrt__head_eight out;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t four = (i < 2 ? low : high) ^ 0x80808080u;
        uint32_t two = specrt__launch_spread(four, i % 2 == 1, 0x64646464u);
        out.pairs[i] = specrt__launch_sub_f16(two, kMagic);
    }
    out.scale = __half2float(__ushort_as_half(scale));
    return out;
}

/* The i-th 16 bytes. kOnce: of rows, which pass once; states are read again for every row. */
template <bool kOnce> static __device__ uint4 specrt__head_read(const void *x, int32_t i) {
    return kOnce ? specrt__launch_read_once((const uint4 *)x + i) : __ldg((const uint4 *)x + i);
}

/* Columns 8 * chunk on of f16 or bf16, zeros beyond n_cols.
 *   kWhole : all eight are there, and the row is aligned to 16 bytes */
template <bool kWhole, bool kOnce>
static __device__ specrt__head_eight specrt__head_load(const void *row, int32_t chunk,
                                                       int32_t n_cols) {
    specrt__head_eight out;
    const uint16_t *x = (const uint16_t *)row;
    out.scale = 1;
    if (kWhole) {
        uint4 four = specrt__head_read<kOnce>(row, chunk);
        out.pairs[0] = four.x, out.pairs[1] = four.y, out.pairs[2] = four.z, out.pairs[3] = four.w;
    } else {
        for (int i = 0; i < 4; i++)
            out.pairs[i] = specrt__head_halves(x, 8 * chunk + 2 * i, n_cols);
    }
    return out;
}

/* The same of q8_0, whose rows are aligned to 2 bytes. */
static __device__ specrt__head_eight specrt__head_load_codes(const void *row, int32_t chunk,
                                                             int32_t n_cols, bool planes) {
    const uint16_t *x = (const uint16_t *)row, *scale = x + chunk / 4 * 17, *codes = scale + 1;
    if (planes) {
        scale = x + n_cols / 2 + chunk / 4;
        codes = x + specrt__head_code_at(chunk, n_cols / 32) / 2;
    } else {
        codes += chunk % 4 * 4;
    }
    return specrt__head_codes(codes[0] | (uint32_t)codes[1] << 16,
                              codes[2] | (uint32_t)codes[3] << 16, *scale);
}

template <specrt_dtype kDtype> static __device__ float2 specrt__head_unpack(uint32_t pair) {
    return kDtype == SPECRT_DTYPE_BF16 ? specrt__launch_unpack_bf16(pair)
                                       : specrt__launch_unpack_f16(pair);
}

/* Eight columns of f32 as numbers. */
static __device__ void specrt__head_words(const uint4 *words, float *out) {
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t four[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < 4; j++) out[4 * i + j] = __uint_as_float(four[j]);
    }
}

template <bool kWhole, bool kOnce>
static __device__ void specrt__head_floats(const float *x, int32_t chunk, int32_t n_cols,
                                           float *out) {
    if (kWhole) {
        uint4 words[2];
        for (int i = 0; i < 2; i++) words[i] = specrt__head_read<kOnce>(x, 2 * chunk + i);
        specrt__head_words(words, out);
        return;
    }
    for (int i = 0; i < 8; i++) out[i] = 8 * chunk + i < n_cols ? x[8 * chunk + i] : 0.0f;
}

/* The same as numbers. */
template <specrt_dtype kDtype, bool kWhole, bool kOnce>
static __device__ void specrt__head_numbers(const void *row, int32_t chunk, int32_t n_cols,
                                            float *out) {
    if (kDtype == SPECRT_DTYPE_F32) {
        specrt__head_floats<kWhole, kOnce>((const float *)row, chunk, n_cols, out);
        return;
    }
    specrt__head_eight eight = specrt__head_load<kWhole, kOnce>(row, chunk, n_cols);
    for (int i = 0; i < 4; i++) {
        float2 two = specrt__head_unpack<kDtype>(eight.pairs[i]);
        out[2 * i] = two.x, out[2 * i + 1] = two.y;
    }
}

/* --- what a product is given --- */

typedef struct specrt__head_product {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments] */
    specrt__cuda_segment own;             /* in place of segments, where they are NULL */
    specrt__cuda_layout layout;
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS]; /* first column of each segment */
    int32_t n_columns;
    const void *hidden; /* [n_batch, max_n, n_cols] */
    specrt_dtype dtype; /* of hidden */
    int32_t max_n, n_step;
    const int32_t *n; /* of sequence b: n[b * n_step]; NULL: max_n */
    int32_t first;    /* the state to begin with */
    int32_t n_states; /* of all sequences, in groups of max_n; 0: each sequence's own */
    int32_t n_each;   /* of them a sequence's, whose masks hold for its states */
    int32_t n_groups; /* of these states, whose blocks with the same rows come one after another */
    int32_t step;     /* rows of hidden from state to state; 0: 1 */
    float *logits;    /* [n_batch, max_n, n_columns] */
    int32_t row_step; /* rows of logits from sequence to sequence; 0: max_n */
    int activation;   /* of a router's layer */
    /* What is added to logits: of state i of sequence b the row of n_columns at
     * before + b * before_step + i * before_each. It may be these logits. NULL: nothing */
    const float *before;
    int64_t before_step, before_each;
    int32_t n_splits; /* warps that share a row's columns; 0: specrt__head_splits() */
} specrt__head_product;

/* x: a product. SILU: x / (1 + exp(-x)); RESIDUAL: that, and what it was made of. */
enum { SPECRT__HEAD_LINEAR, SPECRT__HEAD_SILU, SPECRT__HEAD_RESIDUAL };

static __device__ int32_t specrt__head_count(const specrt__head_product &p, int32_t sequence) {
    int32_t n = p.n ? p.n[(int64_t)sequence * p.n_step] : p.max_n;
    if (p.n_states) n = p.n_states - sequence * p.max_n;
    return n < p.max_n ? n : p.max_n;
}

/* What this block has: rows, a part of those of a segment; and states, a sequence's or a group of all. */
static __device__ int32_t specrt__head_part(const specrt__head_product &p) {
    return (int32_t)(p.n_groups ? blockIdx.x / (unsigned)p.n_groups : blockIdx.x);
}

static __device__ int32_t specrt__head_set(const specrt__head_product &p) {
    return (int32_t)(p.n_groups ? blockIdx.x % (unsigned)p.n_groups : blockIdx.z);
}

/* The segment of this block: y of its sequence. */
static __device__ specrt__cuda_segment specrt__head_segment(const specrt__head_product &p) {
    if (!p.segments) return p.own;
    int32_t sequence = p.n_states ? 0 : specrt__head_set(p);
    return p.segments[sequence * p.layout.n_segments + (int32_t)blockIdx.y];
}

static __device__ int32_t specrt__head_rows(const specrt__cuda_segment &s) {
    int32_t n = s.n_rows ? *s.n_rows : s.max_rows;
    return n < s.max_rows ? n : s.max_rows;
}

static __device__ const char *specrt__head_row_at(const specrt__cuda_segment &s, int32_t row) {
    return (const char *)s.rows + (size_t)(s.places ? s.places[row] : row) * s.row_stride;
}

/* How many of n_cols columns can be read eight at a time: none, unless rows and states are aligned. */
static __device__ int32_t specrt__head_whole(const specrt__head_product &p,
                                             const specrt__cuda_segment &s) {
    size_t state_bytes = (size_t)p.layout.n_cols * (p.dtype == SPECRT_DTYPE_F32 ? 4 : 2);
    bool aligned = ((uintptr_t)s.rows | s.row_stride | (uintptr_t)p.hidden | state_bytes) % 16 == 0;
    return aligned ? (int32_t)p.layout.n_cols / 8 * 8 : 0;
}

/* The states of this block's sequence, from the product's first on: in registers, whatever is written. */
typedef struct specrt__head_states {
    const char *first;
    int32_t n, bytes; /* that count, at least 1; from each to the next */
    int32_t n_cols;
    specrt_dtype dtype;
} specrt__head_states;

static __device__ specrt__head_states specrt__head_states_of(const specrt__head_product &p,
                                                             int32_t n) {
    int32_t n_cols = (int32_t)p.layout.n_cols,
            bytes = n_cols * (p.dtype == SPECRT_DTYPE_F32 ? 4 : 2) * (p.step ? p.step : 1);
    size_t at = (size_t)specrt__head_set(p) * (size_t)p.max_n + (size_t)p.first;
    return {(const char *)p.hidden + at * (size_t)bytes, n, bytes, n_cols, p.dtype};
}

static __device__ const char *specrt__head_state_at(const specrt__head_states &x, int32_t state) {
    return x.first + (int64_t)state * x.bytes;
}

/* Columns 8 * chunk on of a state. */
template <bool kWhole>
static __device__ void specrt__head_state(const specrt__head_states &x, int32_t state,
                                          int32_t chunk, float *out) {
    const void *from = specrt__head_state_at(x, state);
    if (x.dtype == SPECRT_DTYPE_F32)
        specrt__head_numbers<SPECRT_DTYPE_F32, kWhole, false>(from, chunk, x.n_cols, out);
    else if (x.dtype == SPECRT_DTYPE_F16)
        specrt__head_numbers<SPECRT_DTYPE_F16, kWhole, false>(from, chunk, x.n_cols, out);
    else
        specrt__head_numbers<SPECRT_DTYPE_BF16, kWhole, false>(from, chunk, x.n_cols, out);
}

/* Whether a row scores nothing for a sequence: of a shared segment row by row of states. */
static __device__ bool specrt__head_masked(const specrt__head_product &p,
                                           const specrt__cuda_segment &s, int32_t row, size_t at) {
    const uint32_t *masked = s.masked;
    if (!masked) return false;
    if (p.n_states)
        masked =
            p.segments[(int32_t)at / p.n_each * p.layout.n_segments + (int32_t)blockIdx.y].masked;
    return masked[row / 32] >> row % 32 & 1;
}

/* What is there of the logits of state number `at` of all. */
static __device__ const float *specrt__head_before(const specrt__head_product &p, int32_t at) {
    int32_t n_each = p.n_states ? p.n_each : p.max_n;
    return p.before + at / n_each * p.before_step + at % n_each * p.before_each;
}

static __device__ void specrt__head_put(const specrt__head_product &p,
                                        const specrt__cuda_segment &s, int32_t row, int32_t state,
                                        float logit) {
    size_t at = (size_t)specrt__head_set(p) * (size_t)(p.row_step ? p.row_step : p.max_n);
    at += (size_t)state;
    if (specrt__head_masked(p, s, row, at) || (s.scored_by && !(s.scored_by[row] >> state & 1)))
        logit = -INFINITY;
    else if (s.bias)
        logit += s.bias[s.places ? s.places[row] : row];
    if (p.before) logit += specrt__head_before(p, (int32_t)at)[p.starts[blockIdx.y] + row];
    if (p.activation != SPECRT__HEAD_LINEAR) logit /= 1 + expf(-logit);
    if (p.activation == SPECRT__HEAD_RESIDUAL) /* hidden f32 [., n_columns] */
        logit += ((const float *)p.hidden)[at * (size_t)p.n_columns + (size_t)row];
    p.logits[at * (size_t)p.n_columns + (size_t)(p.starts[blockIdx.y] + row)] = logit;
}

/* --- rows under way ---
 * A thread copies the 16 bytes that it needs of its rows to places of shared memory that are its own, some
 * steps before it takes them from there: SPECRT__HEAD_LOADS places in a ring, all under way while the first
 * is waited for. */

enum { SPECRT__HEAD_LOADS = 8 };

/* Of kThreads in a block, each with kRows rows, of each kEach times 16 bytes a step; kScales: and the scales
 * of the 64 columns that four lanes read then. */
template <int kThreads, int kRows, int kEach, bool kScales> struct specrt__head_ring {
    enum { kLoads = kRows * kEach, kSteps = SPECRT__HEAD_LOADS / kLoads };
    uint4 *places;    /* [SPECRT__HEAD_LOADS, threads] shared, from this thread's first on */
    uint32_t *scales; /* likewise, two f16 each */
    int32_t n_codes;  /* bytes of a row before its scales */
    int32_t step;     /* of kSteps, that is taken next */
};

/* 16 bytes number kEach * at on of every row go to the places of a step; ask: there are some. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void
specrt__head_ask(const specrt__head_ring<kThreads, kRows, kEach, kScales> &ring, int32_t step,
                 const char *const *rows, int32_t at, bool ask) {
    const int kLoads = kRows * kEach;
    if (ask) {
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < kLoads; i++)
            specrt__launch_copy<(kEach > 1)>(ring.places + (step * kLoads + i) * kThreads,
                                             (const uint4 *)(const void *)rows[i / kEach] +
                                                 kEach * at + i % kEach);
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < (kScales ? kRows : 0); i++)
            specrt__launch_copy_word(ring.scales + (step * kRows + i) * kThreads,
                                     (const uint32_t *)(const void *)(rows[i] + ring.n_codes) +
                                         at / 4);
    }
    specrt__launch_copied();
}

/* The first steps, `stride` apart from `at` on, as far as they are below `end`. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void specrt__head_begin(specrt__head_ring<kThreads, kRows, kEach, kScales> *ring,
                                          const char *const *rows, int32_t at, int32_t stride,
                                          int32_t end) {
    const int kSteps = specrt__head_ring<kThreads, kRows, kEach, kScales>::kSteps;
    ring->places += threadIdx.x;
    if (kScales) ring->scales += threadIdx.x;
    ring->step = 0;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kSteps; i++)
        specrt__head_ask(*ring, i, rows, at + i * stride, at + i * stride < end);
}

/* The step `at`, out [kRows * kEach] and scales [kRows], in whose places that kSteps later is asked for. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void specrt__head_take(specrt__head_ring<kThreads, kRows, kEach, kScales> *ring,
                                         const char *const *rows, int32_t at, int32_t stride,
                                         int32_t end, uint4 *out, uint32_t *scales) {
    const int kLoads = kRows * kEach;
    const int kSteps = specrt__head_ring<kThreads, kRows, kEach, kScales>::kSteps;
    specrt__launch_wait<kSteps - 1>();
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kLoads; i++) out[i] = ring->places[(ring->step * kLoads + i) * kThreads];
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < (kScales ? kRows : 0); i++)
        scales[i] = ring->scales[(ring->step * kRows + i) * kThreads];
    specrt__head_ask(*ring, ring->step, rows, at + kSteps * stride, at + kSteps * stride < end);
    ring->step = (ring->step + 1) & (kSteps - 1);
}

/* --- f32 rows, which would lose bits on tensor cores --- */

enum { SPECRT__HEAD_F32_WARPS = 4 };

/* Rows of a warp: with more states more, or reading states again for each took as long as the rows. */
template <int kStates> struct specrt__head_f32_part {
    enum { kRows = kStates > 2 ? 4 : 2 };
};

/* sums[kStates][kRows] += a chunk of eight columns, of which weights has the rows' part. */
template <int kStates, int kRows, bool kWhole>
static __device__ void specrt__head_f32_add(const specrt__head_states &x, const float (*weights)[8],
                                            int32_t chunk, float (*sums)[kRows]) {
    float z[8];
    SPECRT__LAUNCH_UNROLL
    for (int h = 0; h < kStates; h++) {
        if (h > 0 && h >= x.n) break;
        specrt__head_state<kWhole>(x, h, chunk, z);
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 8 * kRows; i++)
            sums[h][i / 8] = fmaf(weights[i / 8][i % 8], z[i % 8], sums[h][i / 8]);
    }
}

/* All chunks of this lane below `end`, with rows under way. @return the next chunk. */
template <int kStates, int kRows>
static __device__ int32_t specrt__head_f32_run(const specrt__head_states &x,
                                               const char *const *rows, uint4 *places,
                                               int32_t chunk, int32_t end, float (*sums)[kRows]) {
    specrt__head_ring<32 * SPECRT__HEAD_F32_WARPS, kRows, 2, false> ring = {places, NULL, 0, 0};
    specrt__head_begin(&ring, rows, chunk, 32, end);
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (; chunk < end; chunk += 32) {
        uint4 words[2 * kRows];
        float weights[kRows][8];
        specrt__head_take(&ring, rows, chunk, 32, end, words, (uint32_t *)NULL);
        SPECRT__LAUNCH_UNROLL
        for (int r = 0; r < kRows; r++) specrt__head_words(&words[2 * r], weights[r]);
        specrt__head_f32_add<kStates, kRows, true>(x, weights, chunk, sums);
    }
    return chunk;
}

/* Sums over lanes, each of which writes one of 32. */
template <int kStates, int kRows>
static __device__ void specrt__head_f32_put(const specrt__head_product &p,
                                            const specrt__cuda_segment &s, int32_t row,
                                            int32_t n_rows, int32_t n, const float (*sums)[kRows]) {
    const int kEach = (kStates * kRows + 31) / 32;
    int32_t lane = (int32_t)(threadIdx.x % 32);
    float own[kEach] = {0};
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kStates * kRows; i++) {
        float sum = sums[i / kRows][i % kRows];
        if (i / kRows >= n) break;
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == i % 32) own[i / 32] = sum;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int32_t h = (32 * j + lane) / kRows, r = lane % kRows;
        if (h < kStates && h < n && row + r < n_rows)
            specrt__head_put(p, s, row + r, p.first + h, own[j]);
    }
}

/* Block (i, s, b): logits[b, first : first + kStates, rows] = hidden[b, first : first + kStates, :] @
 * rows[:, :]^T for kRows rows of segment s a warp; lane l sums columns 8 l to 8 l + 7 of every 256, then
 * lanes in pairs.
 *   grid (rows / (warps * kRows), n_segments, n_batch), or specrt__head_grid() with groups; block 32 *
 *   SPECRT__HEAD_F32_WARPS
 *   CPU twin: specrt_shortlist_logits() */
template <int kStates>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_F32_WARPS)
    specrt__head_f32(specrt__head_product p) {
    const int kRows = specrt__head_f32_part<kStates>::kRows;
    __shared__ uint4 places[SPECRT__HEAD_LOADS * 32 * SPECRT__HEAD_F32_WARPS];
    int32_t b = specrt__head_set(p), n = specrt__head_count(p, b) - p.first;
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt__cuda_segment s = specrt__head_segment(p);
    int32_t row = (specrt__head_part(p) * SPECRT__HEAD_F32_WARPS + warp) * kRows;
    int32_t n_rows = specrt__head_rows(s);
    if (p.layout.dtypes[blockIdx.y] != SPECRT_DTYPE_F32 || n <= 0 || row >= n_rows) return;
    const specrt__head_states x = specrt__head_states_of(p, n);
    const char *rows[kRows];
    float sums[kStates][kRows], weights[kRows][8];
    for (int r = 0; r < kRows; r++)
        rows[r] = specrt__head_row_at(s, row + r < n_rows ? row + r : n_rows - 1);
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kStates * kRows; i++) sums[i / kRows][i % kRows] = 0;
    int32_t chunk = specrt__head_f32_run<kStates, kRows>(x, rows, places, lane,
                                                         specrt__head_whole(p, s) / 8, sums);
    for (; 8 * chunk < x.n_cols; chunk += 32) {
        for (int r = 0; r < kRows; r++)
            specrt__head_floats<false, true>((const float *)(const void *)rows[r], chunk, x.n_cols,
                                             weights[r]);
        specrt__head_f32_add<kStates, kRows, false>(x, weights, chunk, sums);
    }
    specrt__head_f32_put<kStates, kRows>(p, s, row, n_rows, n, sums);
}

#endif
