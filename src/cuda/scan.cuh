/* scan.cuh : owns the 8-bit scan: projected states rounded, and the codes of all places times them. Sums
 * are whole numbers, so that scores are the CPU's, bit for bit, given the same projection. */
#ifndef CUDA_SCAN_CUH
#define CUDA_SCAN_CUH

#include "cuda/launch.cuh"
#include "cuda/block.cuh"

enum {
    SPECRT__SCAN_GROUP = 16, /* places whose codes lie together */
    SPECRT__SCAN_WARPS = 8,
    SPECRT__SCAN_PAIRS = 2,  /* of groups, one after another by each warp */
    SPECRT__SCAN_LOADS = 8,  /* under way */
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

/* Where four dimensions of a state stand among operands of products: those of four lines together, and of
 * these eight states, as lanes take them. */
template <bool kFourBits, int kTiles>
static __device__ int32_t specrt__scan_at_four(int32_t four, int32_t state) {
    const int32_t kParts = kFourBits ? 2 : 1; /* fours of a line */
    int32_t line = four / kParts, part = line / 4 * kParts + four % kParts;
    return (part * kTiles + state / 8) * 32 + state % 8 * 4 + line % 4;
}

static __device__ int32_t specrt__scan_code(float z, float inverse) {
    return __float2int_rn((fabsf(z) <= FLT_MAX ? z : 0.0f) * inverse);
}

/* A state in 8 bits by one warp: z is about unit * q. What is not finite, or beyond the rank, counts as 0.
 *   n_fours : of dimensions, to whole products
 *   CPU twin: the rounding in >>sketch
 * @return the unit;  *sum : of q */
template <bool kFourBits, int kTiles>
static __device__ float specrt__scan_round(const float *z, int32_t rank, int32_t n_fours,
                                           int32_t state, int32_t *q, int32_t *sum) {
    int32_t lane = (int32_t)(threadIdx.x % 32), own = 0;
    float most = 0;
    for (int32_t i = lane; i < rank; i += 32) {
        float x = fabsf(z[i]);
        if (x <= FLT_MAX && x > most) most = x;
    }
    for (int by = 16; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, by);
        if (other > most) most = other;
    }
    float inverse = most > 0 ? 127 / most : 0;
    for (int32_t i = lane; i < 4 * n_fours; i += 32) {
        int32_t rounded = i < rank ? specrt__scan_code(z[i], inverse) : 0;
        int32_t at = specrt__scan_at_four<kFourBits, kTiles>(i / 4, state);
        ((int8_t *)(q + at))[i % 4] = (int8_t)rounded;
        own += rounded;
    }
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(0xffffffffu, own, by);
    *sum = own;
    return most / 127;
}

/* A thread's four places. */
typedef struct specrt__scan_four {
    int32_t first, names[4]; /* tokens; -1: not to be named */
    float scales[4], bias[4];
} specrt__scan_four;

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

/* Four lanes that have the same places look up one each, and tell the others. */
static __device__ void specrt__scan_look_up(const specrt__cuda_sketch &s,
                                            const specrt__scan_level &level, int32_t b,
                                            specrt__scan_four *four) {
    int32_t lane = (int32_t)(threadIdx.x % 32), place = four->first + lane % 4;
    int32_t row = place < s.n_places ? s.rows[place] : -1;
    int32_t name = specrt__scan_token(s, level, b, row);
    float scale = row < 0 ? 0.0f : s.scales[place], bias = s.bias && row >= 0 ? s.bias[row] : 0.0f;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++) {
        four->names[i] = __shfl_sync(0xffffffffu, name, lane / 4 * 4 + i);
        four->scales[i] = __shfl_sync(0xffffffffu, scale, lane / 4 * 4 + i);
        four->bias[i] = __shfl_sync(0xffffffffu, bias, lane / 4 * 4 + i);
    }
}

/* Codes of four places times states: four dimensions of 8 bits less 128, or eight of 4 bits. A lane brings
 * line lane % 4; of places its first and second are rows lane / 4 and lane / 4 + 8 of sums[0], the others
 * of sums[1].
 *   q : of the four lines, behind it as many for each lane */
template <bool kFourBits, int kTiles>
static __device__ void specrt__scan_lines(uint4 codes, const int32_t *q,
                                          int32_t (*sums)[kTiles][4]) {
    uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w}, part[4];
    SPECRT__LAUNCH_UNROLL
    for (int half = 0; half < (kFourBits ? 2 : 1); half++) {
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 4; i++)
            part[i] = kFourBits ? words[i] >> 4 * half & 0x0f0f0f0fu : words[i] ^ 0x80808080u;
        SPECRT__LAUNCH_UNROLL
        for (int t = 0; t < kTiles; t++) {
            uint32_t states = (uint32_t)q[(half * kTiles + t) * 32];
            specrt__launch_mma_s8(part[0], part[1], states, sums[0][t]);
            specrt__launch_mma_s8(part[2], part[3], states, sums[1][t]);
        }
    }
}

/* Their scores for one state, and the greatest key of their group, which is counted. Lanes of the same rest
 * by four share a state, four lanes in a row of these a group.
 *   row : the state's; below 0: nobody asks */
static __device__ void specrt__scan_put(const specrt__scan_level &level,
                                        const specrt__scan_four &four, float unit,
                                        const int32_t *sums, int64_t row) {
    uint32_t order[4];
    uint64_t greatest = 0;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++) {
        float scale = __fmul_rn(unit, four.scales[i]);
        float score = __fmaf_rn((float)sums[i], scale, four.bias[i]);
        order[i] = specrt__block_order(score);
        if (order[i] == 0) order[i] = 1; /* NaN: the last, as on the CPU */
        if (four.names[i] < 0) order[i] = 0;
        uint64_t key = (uint64_t)order[i] << 32 | (uint32_t)~four.names[i]; /* of none: 0 */
        if (key > greatest) greatest = key;
    }
    for (int by = 4; by < 16; by *= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, greatest, by);
        if (other > greatest) greatest = other;
    }
    if (row < 0) return;
    int64_t first = row * level.n_groups;
    uint32_t *out = level.order + SPECRT__SCAN_GROUP * first + four.first;
    *(uint4 *)(void *)out = make_uint4(order[0], order[1], order[2], order[3]);
    if (four.first % SPECRT__SCAN_GROUP != 0) return;
    level.best[first + four.first / SPECRT__SCAN_GROUP] = greatest;
    if (greatest > 0)
        atomicAdd(
            &level.counts[row * SPECRT__SCAN_BINS + (int64_t)(greatest >> SPECRT__SCAN_SHIFT)], 1u);
}

/* 16 bytes of a line; beyond the last, where states are 0, none. */
static __device__ uint4 specrt__scan_load(const uint4 *codes, int32_t line, int32_t n_lines) {
    if (line >= n_lines) return make_uint4(0, 0, 0, 0);
    return specrt__launch_read_once(codes + 4 * line);
}

/* Block (i, j, b): order[b, 8 kTiles * j + 0 : 8 kTiles, places of 32 groups] and their best. A warp
 * takes two groups at a time: four lanes read the 64 bytes of a line, 16 bytes each, and eight times
 * four lanes four lines of both.
 *   grid (n_groups / 32, max_n / (8 kTiles), n_batch), block 32 * SPECRT__SCAN_WARPS
 *   dynamic shared memory: q of the states, specrt__scan_bytes()
 *   CPU twin: specrt__scan_scalar() */
template <bool kFourBits, int kTiles>
static __global__ void __launch_bounds__(32 * SPECRT__SCAN_WARPS, 2)
    specrt__scan_places(specrt__cuda_sketch s, specrt__scan_level level) {
    SPECRT__LAUNCH_DYNAMIC(int32_t, q);
    __shared__ float units[8 * kTiles];
    __shared__ int32_t offsets[8 * kTiles];
    const int32_t kParts = kFourBits ? 2 : 1, kLoads = SPECRT__SCAN_LOADS;
    int32_t b = (int32_t)blockIdx.z, h0 = (int32_t)blockIdx.y * 8 * kTiles;
    int32_t n = specrt__scan_count(level, b) - h0, warp = (int32_t)(threadIdx.x / 32);
    int32_t lane = (int32_t)(threadIdx.x % 32), sums[2][kTiles][4];
    int32_t n_lines = s.rank / (4 * kParts), n_loads = (n_lines + 3) / 4;
    size_t row = (size_t)b * (size_t)level.max_n + (size_t)h0;
    if (n <= 0) return;
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (int32_t pair = 0; pair < SPECRT__SCAN_PAIRS; pair++) {
        int32_t group = (int32_t)blockIdx.x * SPECRT__SCAN_PAIRS + pair;
        group = 2 * (group * SPECRT__SCAN_WARPS + warp) + lane / 16;
        bool beyond = group >= level.n_groups; /* the last once more, for nobody */
        if (beyond) group = level.n_groups - 1;
        specrt__scan_four four;
        four.first = SPECRT__SCAN_GROUP * group + lane / 4 % 4 * 4;
        size_t lines = (size_t)group * (size_t)(s.stored_rank / (4 * kParts));
        const uint4 *codes = (const uint4 *)(const void *)(s.codes + 64 * lines) + lane / 4 % 4;
        uint4 ahead[kLoads];
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kLoads; j++)
            ahead[j] = specrt__scan_load(codes, 4 * j + lane % 4, n_lines);
        specrt__scan_look_up(s, level, b, &four);
        for (int32_t h = warp; h < 8 * kTiles && pair == 0; h += SPECRT__SCAN_WARPS) {
            int32_t sum, state = h < n ? h : n - 1;
            float unit = specrt__scan_round<kFourBits, kTiles>(
                level.z + (row + (size_t)state) * (size_t)s.rank, s.rank, 4 * kParts * n_loads, h,
                q, &sum);
            if (lane == 0) units[h] = unit, offsets[h] = kFourBits ? -8 * sum : 0;
        }
        if (pair == 0) __syncthreads();
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 8 * kTiles; i++) sums[i / (4 * kTiles)][i / 4 % kTiles][i % 4] = 0;
        for (int32_t first = 0; first < n_loads; first += kLoads) {
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < kLoads; j++) {
                int32_t i = first + j;
                if (i >= n_loads) break;
                uint4 now = ahead[j];
                ahead[j] = specrt__scan_load(codes, 4 * (i + kLoads) + lane % 4, n_lines);
                specrt__scan_lines<kFourBits, kTiles>(now, q + i * kParts * kTiles * 32 + lane,
                                                      sums);
            }
        }
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 2 * kTiles; i++) {
            int32_t h = i / 2 * 8 + lane % 4 * 2 + i % 2, column[4];
            if (i / 2 * 8 >= n) continue;
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < 4; j++)
                column[j] = sums[j / 2][i / 2][j % 2 * 2 + i % 2] + offsets[h];
            specrt__scan_put(level, four, units[h], column,
                             h < n && !beyond ? (int64_t)row + h : -1);
        }
    }
}

#endif
