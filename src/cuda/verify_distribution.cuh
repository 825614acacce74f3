/* verify_distribution.cuh : owns, on the device, what the target emits: greedy, or drawn with the same
 * numbers as the twin draws. Every node draws at once, each under the key of its position, then the path is
 * walked. The distribution of a node is what its filters keep of its logits; weights are computed from logits
 * again wherever they are needed, by the twin's operations in the twin's order, so they are the same
 * bits. Chains sampled from the drafter are accepted or rejected, node by node. */
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
        1024,                   /* it reads all logits of a node, and more than once */
    SPECRT__VERIFY_PART = 8192, /* logits of a block that looks for the best */
    SPECRT__VERIFY_BINS = 2048,
    SPECRT__VERIFY_LANES = 8 /* of a sum, as in the twin */
};

/* How a node's token is drawn: a token is kept when it stands at or before (order, id) by (logit descending,
 * id ascending) and weighs `least` or more. */
struct specrt__cuda_distribution {
    int32_t best; /* -1: no logit is above -inf */
    int32_t id;
    uint32_t order;
    bool drawn; /* else the best is taken */
    float max, scale, least;
};

/* --- weights --- */

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
static __device__ float specrt__verify_kept(const specrt__cuda_distribution *distribution,
                                            const float *logits, int32_t id) {
    uint32_t order = specrt__shortlist_order(logits[id]);
    if (order < distribution->order || (order == distribution->order && id > distribution->id))
        return 0;
    float weight = specrt__verify_weight(logits[id], distribution->max, distribution->scale);
    return weight < distribution->least ? 0 : weight;
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

/* The bin of a histogram where the sum from its upper end reaches a goal, the last if it does not. `above` is
 * what lies above the bins, *above then what lies above that bin. */
template <typename T>
static __device__ int32_t specrt__verify_reach(const T *bins, int32_t n_bins, T goal, T *above) {
    __shared__ T sums[32], reached;
    __shared__ int32_t bin;
    int32_t thread = specrt__block_thread(), width = n_bins / 32;
    if (thread < 32) {
        sums[thread] = 0;
        for (int32_t i = 0; i < width; i++) sums[thread] += bins[n_bins - 1 - thread * width - i];
    }
    __syncthreads();
    if (thread == 0) {
        T sum = *above;
        int32_t group = 0, i = 0;
        for (; group < 31 && sum + sums[group] < goal; group++) sum += sums[group];
        for (i = n_bins - 1 - group * width; i % width > 0 && sum + bins[i] < goal; i--)
            sum += bins[i];
        reached = sum;
        bin = i;
    }
    __syncthreads();
    *above = reached;
    int32_t out = bin;
    __syncthreads();
    return out;
}

/* Tokens that a filter looks at: those kept so far that have this weight, or any when it is negative. */
static __device__ bool specrt__verify_among(const specrt__cuda_distribution *distribution,
                                            const float *logits, int32_t i, float weight) {
    if (weight < 0) return logits[i] > -INFINITY;
    return specrt__verify_kept(distribution, logits, i) == weight;
}

/* The order of the k-th of such tokens by (logit descending, id ascending), found digit by digit. *rest: its
 * place among those of the same order, *n_same: how many those are. Beyond the last token all are kept. */
static __device__ uint32_t specrt__verify_kth(const specrt__cuda_distribution *distribution,
                                              const float *logits, int32_t n_vocab, float weight,
                                              int32_t k, int32_t *rest, int32_t *n_same) {
    __shared__ int32_t bins[SPECRT__VERIFY_BINS];
    uint32_t prefix = 0;
    int32_t above = 0, bin = 0;
    for (int shift = 21; shift >= -1; shift -= 11) { /* digits of 11, 11 and 10 bits */
        int low = shift > 0 ? shift : 0, top = shift + 11;
        for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_BINS;
             i += specrt__block_threads())
            bins[i] = 0;
        __syncthreads();
        for (int32_t i = specrt__block_thread(); i < n_vocab; i += specrt__block_threads()) {
            uint32_t order = specrt__shortlist_order(logits[i]);
            if (top < 32 && order >> top != prefix >> top) continue;
            if (!specrt__verify_among(distribution, logits, i, weight)) continue;
            atomicAdd(&bins[order >> low & ((1u << (top - low)) - 1)], 1);
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

/* The id of the k-th token of an order. */
static __device__ int32_t specrt__verify_tie(const specrt__cuda_distribution *distribution,
                                             const float *logits, int32_t n_vocab, float weight,
                                             uint32_t order, int32_t k) {
    __shared__ int32_t id;
    for (int32_t begin = 0; begin < n_vocab && k > 0; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), before;
        bool same = i < n_vocab && specrt__shortlist_order(logits[i]) == order &&
                    specrt__verify_among(distribution, logits, i, weight);
        int32_t n = specrt__block_rank(same, &before);
        if (same && before == k - 1) id = i;
        k -= n;
    }
    __syncthreads();
    return id;
}

/* Of the tokens that `weight` names only the k best are kept, and all that are better. Those that an earlier
 * cut removed stay away. */
static __device__ void specrt__verify_cut(specrt__cuda_distribution *distribution,
                                          const float *logits, int32_t n_vocab, float weight,
                                          int32_t k) {
    int32_t rest, n_same;
    uint32_t order = specrt__verify_kth(distribution, logits, n_vocab, weight, k, &rest, &n_same);
    int32_t id = order == distribution->order ? distribution->id : INT32_MAX;
    if (rest < n_same) id = specrt__verify_tie(distribution, logits, n_vocab, weight, order, rest);
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
static __device__ void specrt__verify_weigh(const specrt__cuda_distribution *distribution,
                                            const float *logits, int32_t n_vocab, uint32_t prefix,
                                            int shift, double *masses) {
    __shared__ unsigned long long units[SPECRT__VERIFY_MASSES];
    int32_t thread = specrt__block_thread();
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) units[i] = 0;
    __syncthreads();
    for (int32_t i = thread; i < n_vocab; i += specrt__block_threads()) {
        uint32_t bits = __float_as_uint(specrt__verify_kept(distribution, logits, i));
        if (bits == 0 || bits >> shift >> 10 != prefix >> shift >> 10) continue;
        atomicAdd(&units[bits >> shift & (SPECRT__VERIFY_MASSES - 1)],
                  (unsigned long long)((bits & 0x7fffffu) | 0x800000u));
    }
    __syncthreads();
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) {
        uint32_t bits = prefix | (uint32_t)i << shift;
        masses[i] = ldexp((double)units[i], (int)(bits >> 23) - 150);
    }
    __syncthreads();
}

/* The fewest of the best whose weights reach a share of all that is kept: the weight in which the mass is
 * reached, then how many of that weight. Twin: specrt__verify_nucleus. */
static __device__ void specrt__verify_nucleus(specrt__cuda_distribution *distribution,
                                              const float *logits, int32_t n_vocab, float top_p) {
    __shared__ double masses[SPECRT__VERIFY_MASSES];
    double mass = 0, above = 0, n;
    uint32_t prefix = 0;
    int32_t n_same = 0;
    for (int shift = 20; shift >= 0; shift -= 10) {
        specrt__verify_weigh(distribution, logits, n_vocab, prefix, shift, masses);
        if (shift == 20) {
            double all = 0;
            for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_MASSES;
                 i += specrt__block_threads())
                all += masses[i];
            mass = (double)top_p * specrt__block_sum(all);
        }
        int32_t bin = specrt__verify_reach<double>(masses, SPECRT__VERIFY_MASSES, mass, &above);
        prefix |= (uint32_t)bin << shift;
    }
    float weight = __uint_as_float(prefix);
    for (int32_t begin = 0; begin < n_vocab; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        n_same += __syncthreads_count(i < n_vocab &&
                                      specrt__verify_kept(distribution, logits, i) == weight);
    }
    n = ceil((mass - above) / (double)weight);
    if (!(n < n_same)) n = n_same;
    specrt__verify_cut(distribution, logits, n_vocab, weight, n > 1 ? (int32_t)n : 1);
}

#endif
