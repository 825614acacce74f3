/* scan.cuh : owns the scan of a sketch's records: projected states in 8 bits, and the pairs of bits of all
 * places times them. Where the CPU previews all places by signs, the device has the bandwidth for all
 * records. Sums are whole numbers, so that scores are the CPU's, bit for bit, given the same projection. */
#ifndef CUDA_SCAN_CUH
#define CUDA_SCAN_CUH

#include "core/shortlist.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"

enum {
    SPECRT__SCAN_GROUP = 16, /* places of a product */
    SPECRT__SCAN_WARPS = 8,
    SPECRT__SCAN_GROUPS = 4, /* of a warp, whose lines are read together */
    SPECRT__SCAN_SHIFT = 52, /* of keys, to their bin: sign, exponent and 3 bits of a score */
    SPECRT__SCAN_BINS = 1 << (64 - SPECRT__SCAN_SHIFT)
};

/* Scratch of a level; rows are n_batch * max_n states. */
typedef struct specrt__scan_level {
    float *z;        /* [rows, rank] */
    uint32_t *order; /* [rows, 16 n_groups] scores as numbers that order them; 0: not to be named */
    uint64_t *best;  /* [rows, n_groups] the greatest key of each group: order and name; or 0 */
    uint32_t *counts; /* [rows, SPECRT__SCAN_BINS] += groups by their best's */
    int32_t n_groups, max_n, n_step;
    const int32_t *n;         /* states of sequence b: n[b * n_step]; NULL: max_n */
    specrt__cuda_taken taken; /* who may not be named */
} specrt__scan_level;

static __device__ int32_t specrt__scan_count(const specrt__scan_level &level, int32_t b) {
    int32_t n = level.n ? level.n[(int64_t)b * level.n_step] : level.max_n;
    return n < level.max_n ? n : level.max_n;
}

/* Where a byte of a line's plane stands among the operands of a state: byte 16 t + 4 i + j of plane p is
 * byte j of a word for lane t, of product 4 i + p. */
template <int kTiles> static __device__ int32_t specrt__scan_operand(int32_t at, int32_t state) {
    int32_t line = at / 256, plane = at / 64 % 4, byte = at % 64;
    int32_t product = 16 * line + byte % 16 / 4 * 4 + plane;
    return 4 * ((product * kTiles + state / 8) * 32 + state % 8 * 4 + byte / 16) + byte % 4;
}

/* Where dimension k of a state lies among [n_lines, 4, 64].  Twin: specrt__scan_record_at() */
static __device__ int32_t specrt__scan_place_of(int32_t n_lines, int32_t k) {
    int32_t line = k / 256, width = line == n_lines - 1 ? 60 : 64, in_line = k - 256 * line;
    return 256 * line + in_line / width * 64 + in_line % width;
}

/* A state in 8 bits by one warp: z is about unit * q. What is not finite counts as 0.
 *   CPU twin: specrt__sketch_round()
 * @return the unit;  *sum : of q */
template <int kTiles>
static __device__ float specrt__scan_round(const float *z, const float *center, int32_t rank,
                                           int32_t state, int8_t *q, int32_t *sum) {
    int32_t lane = (int32_t)(threadIdx.x % 32), n_lines = (rank + 16) / 256, own = 0;
    float most = 0;
    for (int32_t i = lane; i < rank; i += 32) {
        float x = fabsf(__fsub_rn(z[i], center[i]));
        if (x <= FLT_MAX && x > most) most = x;
    }
    for (int by = 16; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, by);
        if (other > most) most = other;
    }
    float unit = __fdiv_rn(most, 127.0f), inverse = unit > 0 ? __fdiv_rn(1.0f, unit) : 0;
    for (int32_t i = lane; i < rank; i += 32) {
        float x = __fsub_rn(z[i], center[i]);
        int32_t rounded = __float2int_rn((fabsf(x) <= FLT_MAX ? x : 0.0f) * inverse);
        int32_t at = specrt__scan_place_of(n_lines, i);
        q[specrt__scan_operand<kTiles>(at, state)] = (int8_t)rounded;
        own += rounded;
    }
    for (int32_t i = lane; i < 16; i += 32) /* what meets scales and constants */
        q[specrt__scan_operand<kTiles>(256 * (n_lines - 1) + 64 * (i / 4) + 60 + i % 4, state)] = 0;
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(0xffffffffu, own, by);
    *sum = own;
    return unit;
}

/* A thread's two places, eight apart. */
typedef struct specrt__scan_two {
    int32_t first, names[2]; /* tokens; -1: not to be named */
    float scales[2], constants[2];
} specrt__scan_two;

/* The token of a place; -1: there is none, or sequence b has it already, or may not have it. */
static __device__ int32_t specrt__scan_token(const specrt__cuda_sketch &s,
                                             const specrt__scan_level &level, int32_t b,
                                             int32_t row) {
    const specrt__cuda_taken *taken = &level.taken;
    const specrt_cuda_state *state = taken->states ? &taken->states[b] : NULL;
    int32_t id = row < 0 || !s.ids ? row : s.ids[row];
    if (id < 0 || id >= (state ? state->params.n_ids : s.n_ids)) return -1;
    uint32_t held = state ? state->wants[id] % SPECRT__CUDA_CHANGED : 0;
    uint32_t routed =
        taken->levels ? taken->levels[(int64_t)b * s.n_ids + id] >> taken->level & 1 : 0;
    return held | routed ? -1 : id;
}

/* Four lanes that have the same places: two look up one each, the last one has their scales and constants. */
static __device__ void specrt__scan_look_up(const specrt__cuda_sketch &s,
                                            const specrt__scan_level &level, int32_t b,
                                            const uint32_t *ends, specrt__scan_two *two) {
    int32_t lane = (int32_t)(threadIdx.x % 32), place = two->first + lane % 2 * 8;
    int32_t row = place < s.n_places ? s.rows[place] : -1;
    int32_t name = specrt__scan_token(s, level, b, row);
    float bias = s.bias && row >= 0 ? s.bias[row] : 0.0f;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t end = __shfl_sync(0xffffffffu, ends[i], lane / 4 * 4 + 3);
        two->names[i] = __shfl_sync(0xffffffffu, name, lane / 4 * 4 + i);
        two->scales[i] = __uint_as_float(end << 16);
        two->constants[i] = __fadd_rn(__uint_as_float(end & 0xffff0000u),
                                      __shfl_sync(0xffffffffu, bias, lane / 4 * 4 + i));
    }
}

/* A line of 16 places times states. A lane has 16 bytes of rows lane / 4 and lane / 4 + 8.
 *   q : of the line, behind it as many for each lane */
template <int kTiles>
static __device__ void specrt__scan_line(uint4 low, uint4 high, const int32_t *q,
                                         int32_t (*sums)[4]) {
    uint32_t rows[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
    SPECRT__LAUNCH_UNROLL
    for (int product = 0; product < 16; product++) {
        uint32_t a = rows[0][product / 4] >> 2 * (product % 4) & 0x03030303u;
        uint32_t b = rows[1][product / 4] >> 2 * (product % 4) & 0x03030303u;
        SPECRT__LAUNCH_UNROLL
        for (int t = 0; t < kTiles; t++)
            specrt__launch_mma_s8(a, b, (uint32_t)q[(product * kTiles + t) * 32], sums[t]);
    }
}

/* Their scores for one state, and the greatest key of their group, which is counted. Lanes of the same rest
 * by four share a state and a group.
 *   sums : of pairs, twice, less three times the state's
 *   row  : the state's; below 0: nobody asks */
static __device__ void specrt__scan_put(const specrt__scan_level &level,
                                        const specrt__scan_two &two, float unit,
                                        const int32_t *sums, int64_t row) {
    uint32_t order[2];
    uint64_t greatest = 0;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        float score = __fmaf_rn((float)sums[i], __fmul_rn(unit, two.scales[i]), two.constants[i]);
        order[i] = specrt__shortlist_order(score);
        if (order[i] == 0) order[i] = 1; /* NaN: the last, as on the CPU */
        if (two.names[i] < 0) order[i] = 0;
        uint64_t key = (uint64_t)order[i] << 32 | (uint32_t)~two.names[i]; /* of none: 0 */
        if (key > greatest) greatest = key;
    }
    for (int by = 4; by < 32; by *= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, greatest, by);
        if (other > greatest) greatest = other;
    }
    if (row < 0) return;
    int64_t first = row * level.n_groups;
    uint32_t *out = level.order + SPECRT__SCAN_GROUP * first + two.first;
    out[0] = order[0];
    out[8] = order[1];
    if (two.first % SPECRT__SCAN_GROUP != 0) return;
    level.best[first + two.first / SPECRT__SCAN_GROUP] = greatest;
    if (greatest > 0)
        atomicAdd(
            &level.counts[row * SPECRT__SCAN_BINS + (int64_t)(greatest >> SPECRT__SCAN_SHIFT)], 1u);
}

/* 16 bytes of a line of a place's record; of places beyond, those of the last. */
static __device__ uint4 specrt__scan_load(const specrt__cuda_sketch &s, int32_t place,
                                          int32_t line) {
    int32_t n_lines = (s.rank + 16) / 256, last = s.n_places - 1;
    size_t at = (size_t)(place < last ? place : last) * (size_t)n_lines + (size_t)line;
    const uint4 *lines = (const uint4 *)(const void *)s.records + 4 * at;
    return specrt__launch_read_once(lines + threadIdx.x % 4);
}

/* Those of a lane's two places in each group of a warp. */
static __device__ void specrt__scan_load_all(const specrt__cuda_sketch &s, int32_t first,
                                             int32_t line, uint4 *low, uint4 *high) {
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < SPECRT__SCAN_GROUPS; g++) {
        low[g] = specrt__scan_load(s, first + SPECRT__SCAN_GROUP * g, line);
        high[g] = specrt__scan_load(s, first + SPECRT__SCAN_GROUP * g + 8, line);
    }
}

/* The scores of one group, which `two` stands in. */
template <int kTiles>
static __device__ void
specrt__scan_group(const specrt__scan_level &level, const specrt__scan_two &two, const float *units,
                   const int32_t *offsets, int32_t (*sums)[4], int32_t n, size_t row, bool beyond) {
    int32_t lane = (int32_t)(threadIdx.x % 32);
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2 * kTiles; i++) {
        int32_t h = i / 2 * 8 + lane % 4 * 2 + i % 2, column[2];
        if (i / 2 * 8 >= n) continue;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < 2; j++) column[j] = 2 * sums[i / 2][2 * j + i % 2] + offsets[h];
        specrt__scan_put(level, two, units[h], column, h < n && !beyond ? (int64_t)row + h : -1);
    }
}

/* Block (i, j, b): order[b, 8 kTiles * j + 0 : 8 kTiles, places of 32 groups] and their best. A warp takes
 * four groups, whose lines it reads together; four lanes read a line of a place.
 *   grid (n_groups / 32, max_n / (8 kTiles), n_batch), block 32 * SPECRT__SCAN_WARPS
 *   dynamic shared memory: q of the states, 2,048 kTiles bytes for each line of a record
 *   CPU twin: the pairs of specrt__scan_scalar */
template <int kTiles>
static __global__ void __launch_bounds__(32 * SPECRT__SCAN_WARPS, 2)
    specrt__scan_places(specrt__cuda_sketch s, specrt__scan_level level) {
    SPECRT__LAUNCH_DYNAMIC(int32_t, q);
    __shared__ float units[8 * kTiles];
    __shared__ int32_t offsets[8 * kTiles];
    const int32_t kGroups = SPECRT__SCAN_GROUPS;
    int32_t b = (int32_t)blockIdx.z, h0 = (int32_t)blockIdx.y * 8 * kTiles;
    int32_t n = specrt__scan_count(level, b) - h0, warp = (int32_t)(threadIdx.x / 32);
    int32_t lane = (int32_t)(threadIdx.x % 32), n_lines = (s.rank + 16) / 256;
    int32_t group = ((int32_t)blockIdx.x * SPECRT__SCAN_WARPS + warp) * kGroups;
    int32_t first = SPECRT__SCAN_GROUP * group + lane / 4, sums[kGroups][kTiles][4];
    size_t row = (size_t)b * (size_t)level.max_n + (size_t)h0;
    uint32_t ends[kGroups][2];
    uint4 low[kGroups], high[kGroups];
    if (n <= 0) return;
    specrt__scan_load_all(s, first, 0, low, high);
    for (int32_t h = warp; h < 8 * kTiles; h += SPECRT__SCAN_WARPS) {
        int32_t sum, state = h < n ? h : n - 1;
        float unit = specrt__scan_round<kTiles>(level.z + (row + (size_t)state) * (size_t)s.rank,
                                                s.center, s.rank, h, (int8_t *)q, &sum);
        if (lane == 0) units[h] = unit, offsets[h] = -3 * sum;
    }
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kGroups * kTiles * 4; i++)
        sums[i / (4 * kTiles)][i / 4 % kTiles][i % 4] = 0;
    __syncthreads();
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (int32_t line = 0; line < n_lines; line++) {
        SPECRT__LAUNCH_UNROLL
        for (int g = 0; g < kGroups; g++) {
            specrt__scan_line<kTiles>(low[g], high[g], q + line * 16 * kTiles * 32 + lane, sums[g]);
            ends[g][0] = low[g].w;
            ends[g][1] = high[g].w;
        }
        if (line + 1 < n_lines) specrt__scan_load_all(s, first, line + 1, low, high);
    }
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < kGroups; g++) {
        specrt__scan_two two;
        two.first = first + SPECRT__SCAN_GROUP * g;
        specrt__scan_look_up(s, level, b, ends[g], &two);
        specrt__scan_group<kTiles>(level, two, units, offsets, sums[g], n, row,
                                   group + g >= level.n_groups);
    }
}

#endif
