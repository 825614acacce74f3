/* verify_distribution.cuh : owns, on the device, the distribution of a node: what its filters keep of its
 * logits. Weights are computed from logits again wherever they are needed, by the twin's operations in the
 * twin's order, so they are the same bits. Filters look at all tokens, or at few that are enough
 * (>>verify_filter). */
#ifndef CUDA_VERIFY_DISTRIBUTION_CUH
#define CUDA_VERIFY_DISTRIBUTION_CUH

#include "core/shortlist.h"
#include "decode/verify.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"

enum {
    SPECRT__VERIFY_THREADS = 256,
    SPECRT__VERIFY_DISTRIBUTION_THREADS =
        1024, /* it reads all logits of a node, and more than once */
    SPECRT__VERIFY_EACH = 16,
    SPECRT__VERIFY_PART = SPECRT__VERIFY_EACH * SPECRT__VERIFY_THREADS, /* logits of a block */
    SPECRT__VERIFY_BINS = 2048,
    SPECRT__VERIFY_LANES = 8 /* of a sum, as in the twin */
};

/* How a node's token is drawn: a token is kept when it stands at or before (order, id) by (logit descending,
 * id ascending) and weighs `least` or more. */
struct specrt__cuda_distribution {
    int32_t best; /* -1: no logit is above -inf */
    int32_t id;
    uint32_t order;
    bool drawn;        /* else the best is taken */
    bool top_k, top_p; /* what cuts it, beside `least` */
    bool whole;        /* its sums take a reading of all logits */
    float max, scale, least;
};

/* --- weights --- */

static __device__ float specrt__verify_scale(float temperature) {
    return temperature > 1e-30f ? 1 / temperature : 1e30f;
}

/* Twin: specrt__verify_exp16, of one logit; rounded as there, where nothing is fused. */
static __device__ float specrt__verify_weight(float x, float max, float scale) {
    const uint32_t limit = 0x42a00000u;
    uint32_t size = __float_as_uint(__fmul_rn(__fadd_rn(x, -max), scale)) & 0x7fffffffu;
    if (size >= limit) return 0;
    float t = -__uint_as_float(size);
    float z = __fadd_rn(__fmul_rn(t, 1.44269504f), 12582912.0f), n = __fadd_rn(z, -12582912.0f);
    float r = __fadd_rn(__fadd_rn(t, -__fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float y = __fadd_rn(__fmul_rn(r, 1 / 5040.0f), 1 / 720.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 120.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 24.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 6.0f);
    y = __fadd_rn(__fmul_rn(y, r), 0.5f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    return __fmul_rn(y, __uint_as_float((__float_as_uint(z) + 127) << 23));
}

/* Of a token, 0 if a filter removed it. */
static __device__ float specrt__verify_kept(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id) {
    uint32_t order = specrt__shortlist_order(logit);
    if (order < distribution.order || (order == distribution.order && id > distribution.id))
        return 0;
    float weight = specrt__verify_weight(logit, distribution.max, distribution.scale);
    return weight < distribution.least ? 0 : weight;
}

/* The sum of a block's kept weights, in the lanes of the twin; eight threads hold it. Warps call.
 *   logits : of tokens [begin, begin + n);  n : 0 or less: none.  Twin: specrt__verify_sum */
static __device__ double specrt__verify_sum(const specrt__cuda_distribution &distribution,
                                            const float *logits, int32_t begin, int32_t n) {
    int32_t lane = specrt__block_thread() % SPECRT__VERIFY_LANES;
    int32_t whole = n - n % SPECRT__VERIFY_LANES;
    double sum = 0;
    for (int32_t first = lane; first < whole; first += SPECRT__VERIFY_EACH * SPECRT__VERIFY_LANES) {
        float row[SPECRT__VERIFY_EACH]; /* loads under way */
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
            int32_t i = first + j * SPECRT__VERIFY_LANES;
            row[j] = i < whole ? logits[i] : -INFINITY;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
            sum += (double)specrt__verify_kept(distribution, row[j],
                                               begin + first + j * SPECRT__VERIFY_LANES);
    }
    for (int32_t i = whole; i < n && lane == 0; i++)
        sum += (double)specrt__verify_kept(distribution, logits[i], begin + i);
    for (int by = 1; by < SPECRT__VERIFY_LANES; by *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    return sum;
}

/* Sums of as many blocks as the thread block has eight threads, from `first` on. */
static __device__ void specrt__verify_sum_blocks(const specrt__cuda_distribution &distribution,
                                                 const float *logits, int32_t n_vocab,
                                                 int32_t first, double *sums) {
    int32_t block = first + specrt__block_thread() / SPECRT__VERIFY_LANES;
    int32_t begin = block * SPECRT__VERIFY_BLOCK;
    int32_t n = specrt__pool_least(n_vocab - begin, SPECRT__VERIFY_BLOCK);
    double sum = specrt__verify_sum(distribution, logits + begin, begin, n);
    if (n > 0 && specrt__block_thread() % SPECRT__VERIFY_LANES == 0) sums[block] = sum;
}

/* Of sums [n]: their sum, and with a target where the running sum passes it: *block, and in *before what
 * stands before that block. One thread adds, in order; all fetch. */
static __device__ double specrt__verify_add(const double *sums, int32_t n, double target,
                                            int32_t *block, double *before) {
    __shared__ double some[SPECRT__VERIFY_THREADS], shared_sum, shared_before;
    __shared__ int32_t shared_block;
    int32_t thread = specrt__block_thread();
    double sum = 0;
    *block = 0, *before = 0;
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        __syncthreads();
        if (begin + thread < n) some[thread] = sums[begin + thread];
        __syncthreads();
        int32_t n_here = specrt__pool_least(n - begin, specrt__block_threads());
        for (int32_t i = 0; i < n_here && thread == 0 && sum <= target; i++) {
            if (!(some[i] > 0)) continue;
            *block = begin + i;
            *before = sum;
            sum += some[i];
        }
    }
    if (thread == 0) shared_block = *block, shared_before = *before, shared_sum = sum;
    __syncthreads();
    *block = shared_block;
    *before = shared_before;
    sum = shared_sum;
    __syncthreads();
    return sum;
}

/* --- the best token --- */

/* Block (p, node): the greatest key of logits [p * PART, + PART) of a node of all; NaN and -inf
 * are none.
 *   logits [n_batch, max_nodes, n_logits] -> best u64 [n_batch, max_nodes, gridDim.x]
 *   grid (parts, n_batch * max_nodes), any block.  Twin: specrt_logits_topk */
static __global__ void specrt__verify_best_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  const float *logits) {
    int32_t at = (int32_t)blockIdx.y, n_vocab = v.params.n_vocab;
    if (at % v.params.max_nodes >= drafts[at / v.params.max_nodes].n) return;
    int32_t begin = (int32_t)blockIdx.x * SPECRT__VERIFY_PART;
    int32_t end = specrt__pool_least(n_vocab, begin + SPECRT__VERIFY_PART);
    uint64_t best = 0;
    logits += (int64_t)at * v.params.n_logits;
    for (int32_t i = begin + specrt__block_thread(); i < end; i += specrt__block_threads()) {
        uint64_t key = specrt__shortlist_key(logits[i], i);
        if (logits[i] > -INFINITY && key > best) best = key;
    }
    best = specrt__block_max(best);
    if (specrt__block_thread() == 0) v.best[(int64_t)at * gridDim.x + blockIdx.x] = best;
}

/* --- filters: one block a node --- */

/* Tokens that a filter looks at: all of a row of logits, or candidates, by their keys. */
struct specrt__verify_tokens {
    const float *logits;  /* [n] */
    const uint64_t *keys; /* [n] in any order; NULL: all tokens */
    int32_t n;
};

enum { SPECRT__VERIFY_SOME = 4 }; /* tokens of a thread whose loads are under way */

/* The next tokens of a thread, from `first` on; -inf behind the last. */
static __device__ void specrt__verify_read(const specrt__verify_tokens &tokens, int32_t first,
                                           float *logits, int32_t *ids) {
    int32_t step = specrt__block_threads();
    uint64_t keys[SPECRT__VERIFY_SOME];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME && !tokens.keys; j++) {
        ids[j] = first + j * step;
        logits[j] = ids[j] < tokens.n ? tokens.logits[ids[j]] : -INFINITY;
    }
    if (!tokens.keys) return;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
        keys[j] = first + j * step < tokens.n ? tokens.keys[first + j * step] : 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
        ids[j] = specrt__shortlist_key_id(keys[j]);
        logits[j] = keys[j] ? specrt__shortlist_key_logit(keys[j]) : -INFINITY;
    }
}

/* The lane at which the running sum of x over lanes, from *before on, reaches a goal, the last if none
 * does. *before: what lies before that lane. One warp calls. */
template <typename T>
static __device__ int32_t specrt__verify_cross(T x, T goal, T *before, bool *reached) {
    int lane = specrt__block_thread() % 32;
    T sum = x;
    for (int by = 1; by < 32; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    unsigned lanes = __ballot_sync(0xffffffffu, *before + sum >= goal);
    int source = lanes ? __ffs((int)lanes) - 1 : 31;
    T below = __shfl_sync(0xffffffffu, sum, source > 0 ? source - 1 : 0);
    if (source > 0) *before += below;
    *reached = lanes != 0;
    return source;
}

/* The bin of a histogram where the sum from its upper end reaches a goal, the last if it does not. `above` is
 * what lies above the bins, *above then what lies above that bin. Warps add up 32nds of the bins. */
template <typename T>
static __device__ int32_t specrt__verify_reach(const T *bins, int32_t n_bins, T goal, T *above) {
    __shared__ T sums[32], shared_above;
    __shared__ int32_t bin;
    int32_t thread = specrt__block_thread(), lane = thread % 32, width = n_bins / 32;
    for (int32_t group = thread / 32; group < 32; group += specrt__block_threads() / 32) {
        T sum = 0;
        for (int32_t i = lane; i < width; i += 32) sum += bins[n_bins - 1 - group * width - i];
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0) sums[group] = sum;
    }
    __syncthreads();
    if (thread < 32) {
        bool reached;
        T before = *above;
        int32_t last =
            n_bins - 1 - width * specrt__verify_cross(sums[lane], goal, &before, &reached);
        int32_t first = 0, source = 0;
        for (reached = false; first < width && !reached; first += 32) {
            T here = before, x = bins[last - first - lane];
            source = specrt__verify_cross(x, goal, &here, &reached);
            T row = here + __shfl_sync(0xffffffffu, x, 31);
            before = reached || first + 32 == width ? here : row;
        }
        if (lane == 0) bin = last - (first - 32) - source, shared_above = before;
    }
    __syncthreads();
    *above = shared_above;
    int32_t out = bin;
    __syncthreads();
    return out;
}

/* Whether a filter looks at a token: those kept so far that have this weight, or any when it is negative. */
static __device__ bool specrt__verify_among(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id, float weight) {
    if (weight < 0) return logit > -INFINITY;
    return specrt__verify_kept(distribution, logit, id) == weight;
}

/* The order of the k-th of such tokens by (logit descending, id ascending), found digit by digit. *rest: its
 * place among those of the same order, *n_same: how many those are. Beyond the last token all are kept.
 *   same : 0, or an order: then the complement of the k-th id among the tokens of that order */
static __device__ uint32_t specrt__verify_kth(const specrt__cuda_distribution distribution,
                                              const specrt__verify_tokens &tokens, float weight,
                                              uint32_t same, int32_t k, int32_t *rest,
                                              int32_t *n_same) {
    __shared__ int32_t bins[SPECRT__VERIFY_BINS];
    uint32_t prefix = 0;
    int32_t above = 0, bin = 0, ids[SPECRT__VERIFY_SOME];
    int32_t step = SPECRT__VERIFY_SOME * specrt__block_threads();
    float logits[SPECRT__VERIFY_SOME];
    for (int shift = 21; shift >= -1; shift -= 11) { /* digits of 11, 11 and 10 bits */
        int low = shift > 0 ? shift : 0, top = shift + 11;
        for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_BINS;
             i += specrt__block_threads())
            bins[i] = 0;
        __syncthreads();
        for (int32_t i = specrt__block_thread(); i < tokens.n; i += step) {
            specrt__verify_read(tokens, i, logits, ids);
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
                uint32_t order = specrt__shortlist_order(logits[j]);
                uint32_t x = same ? ~(uint32_t)ids[j] : order;
                if ((same && order != same) || (top < 32 && x >> top != prefix >> top)) continue;
                if (specrt__verify_among(distribution, logits[j], ids[j], weight))
                    atomicAdd(&bins[x >> low & ((1u << (top - low)) - 1)], 1);
            }
        }
        __syncthreads();
        bin = specrt__verify_reach<int32_t>(bins, SPECRT__VERIFY_BINS, k, &above);
        prefix |= (uint32_t)bin << low;
    }
    *rest = k - above;
    *n_same = bins[bin];
    __syncthreads();
    return prefix;
}

/* Of the tokens that `weight` names only the k best are kept, and all that are better. Those that an earlier
 * cut removed stay away. */
static __device__ void specrt__verify_cut(specrt__cuda_distribution *distribution,
                                          const specrt__verify_tokens &tokens, float weight,
                                          int32_t k) {
    int32_t rest, n_same;
    uint32_t order = specrt__verify_kth(*distribution, tokens, weight, 0, k, &rest, &n_same);
    int32_t id = order == distribution->order ? distribution->id : INT32_MAX;
    if (rest < n_same)
        id = (int32_t)~specrt__verify_kth(*distribution, tokens, weight, order, rest, &rest,
                                          &n_same);
    __syncthreads();
    if (specrt__block_thread() == 0) {
        distribution->order = order;
        distribution->id = id;
    }
    __syncthreads();
}

enum { SPECRT__VERIFY_MASSES = 1024 };

/* Sums of the kept weights whose upper bits are prefix's, by the ten bits from `shift` on. Those of a bin
 * share their exponent, so each is a whole number of units and the sum exact, whoever adds first. Weights
 * are at most 1, so the two bits above the first digit are 0. */
static __device__ void specrt__verify_weigh(const specrt__cuda_distribution distribution,
                                            const specrt__verify_tokens &tokens, uint32_t prefix,
                                            int shift, double *masses) {
    __shared__ unsigned long long units[SPECRT__VERIFY_MASSES];
    int32_t thread = specrt__block_thread(), ids[SPECRT__VERIFY_SOME];
    int32_t step = SPECRT__VERIFY_SOME * specrt__block_threads();
    float logits[SPECRT__VERIFY_SOME];
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) units[i] = 0;
    __syncthreads();
    for (int32_t i = thread; i < tokens.n; i += step) {
        specrt__verify_read(tokens, i, logits, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            float weight = specrt__verify_kept(distribution, logits[j], ids[j]);
            uint32_t bits = __float_as_uint(weight);
            if (bits == 0 || bits >> shift >> 10 != prefix >> shift >> 10) continue;
            atomicAdd(&units[bits >> shift & (SPECRT__VERIFY_MASSES - 1)],
                      (unsigned long long)((bits & 0x7fffffu) | 0x800000u));
        }
    }
    __syncthreads();
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) {
        uint32_t bits = prefix | (uint32_t)i << shift;
        masses[i] = ldexp((double)units[i], (int)(bits >> 23) - 150);
    }
    __syncthreads();
}

/* How many tokens are kept with a weight above 0. */
static __device__ int32_t specrt__verify_count(const specrt__cuda_distribution distribution,
                                               const specrt__verify_tokens &tokens, float weight) {
    int32_t n = 0, ids[SPECRT__VERIFY_SOME];
    float logits[SPECRT__VERIFY_SOME];
    for (int32_t i = specrt__block_thread(); i < tokens.n;
         i += SPECRT__VERIFY_SOME * specrt__block_threads()) {
        specrt__verify_read(tokens, i, logits, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            n += specrt__verify_kept(distribution, logits[j], ids[j]) == weight;
    }
    return (int32_t)specrt__block_sum((double)n);
}

/* The fewest of the best whose weights reach a share of all that is kept: the weight in which the mass is
 * reached, then how many of that weight. @return false: the tokens may be too few for that, and nothing is
 * cut. Twin: specrt__verify_nucleus.
 *   total, error : of all that is kept, and by how much that may be wrong; error negative: it is all here
 *   least : all tokens of this order or above are among them; 1: all that is kept is. Near to it a weight
 *           may belong to a lower order, too. */
static __device__ bool specrt__verify_nucleus(specrt__cuda_distribution *distribution,
                                              const specrt__verify_tokens &tokens, float top_p,
                                              double total, double error, uint32_t least) {
    __shared__ double masses[SPECRT__VERIFY_MASSES];
    double mass = (double)top_p * (total - error), above = 0, n;
    uint32_t prefix = 0;
    for (int shift = 20; shift >= 0; shift -= 10) {
        specrt__verify_weigh(*distribution, tokens, prefix, shift, masses);
        if (shift == 20 && error < 0) {
            double all = 0;
            for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_MASSES;
                 i += specrt__block_threads())
                all += masses[i];
            mass = (double)top_p * specrt__block_sum(all);
            error = 0;
        }
        int32_t bin = specrt__verify_reach<double>(masses, SPECRT__VERIFY_MASSES, mass, &above);
        prefix |= (uint32_t)bin << shift;
    }
    float weight = __uint_as_float(prefix);
    int32_t n_same = specrt__verify_count(*distribution, tokens, weight);
    n = ceil((mass - above) / (double)weight);
    float edge = specrt__verify_weight(specrt__shortlist_key_logit((uint64_t)least << 32),
                                       distribution->max, distribution->scale);
    if (least > 1 && !(n <= n_same && weight > 1.0001f * edge)) return false;
    if (ceil((mass + 2 * (double)top_p * error - above) / (double)weight) > n) return false;
    if (!(n < n_same)) n = n_same;
    specrt__verify_cut(distribution, tokens, weight, n > 1 ? (int32_t)n : 1);
    return true;
}

#endif
