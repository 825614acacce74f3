/* verify_filter.cuh : owns candidates, the few tokens of a node among which its filters end, so that its
 * logits are read once. With top_p alone all weights count: parts sum up theirs, each below its own greatest
 * logit. Where the error of that may decide, they are read again (docs/decisions/gpu.md has the bytes).
 *
 * A part takes every so many-th line of logits, so that parts are alike wherever frequent tokens stand. Each
 * lists its greatest, as it finds them, from some order on; all tokens of the greatest of these orders are
 * then known. Where they do not hold all that is kept, as where many tie, filters look at all logits. */
#ifndef CUDA_VERIFY_FILTER_CUH
#define CUDA_VERIFY_FILTER_CUH

#include "core/shortlist.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"
#include "cuda/verify_distribution.cuh"

enum {
    SPECRT__VERIFY_CANDIDATES = 128, /* of a part at most, about 2% of it */
    SPECRT__VERIFY_GROUPS = 128,     /* of a part's tokens */
    SPECRT__VERIFY_SURE = 64,        /* candidates of a part at least, if not too many tie */
    SPECRT__VERIFY_LINES = SPECRT__VERIFY_BLOCK / SPECRT__VERIFY_THREADS /* of a block of sums */
};

/* --- candidates --- */

/* The token that number j of a thread's logits belongs to; lanes are neighbours, and parts take turns at
 * lines. */
static __device__ int32_t specrt__verify_column(int j) {
    int32_t place = specrt__block_place(SPECRT__VERIFY_EACH, j);
    int32_t line = place / SPECRT__VERIFY_THREADS * (int32_t)gridDim.x + (int32_t)blockIdx.x;
    return line * SPECRT__VERIFY_THREADS + place % SPECRT__VERIFY_THREADS;
}

/* The same token's key. */
static __device__ uint64_t specrt__verify_key(uint32_t order, int j) {
    return (uint64_t)order << 32 | (uint32_t)~specrt__verify_column(j);
}

/* The greatest of each group, in order. A group has some columns of each 32, in lines that are far from each
 * other, so that great logits in a row are spread over all groups. */
static __device__ void specrt__verify_rank_groups(const uint32_t *orders, uint32_t *sorted) {
    __shared__ uint32_t groups[SPECRT__VERIFY_GROUPS];
    const int kEach = SPECRT__VERIFY_GROUPS / 32;
    int thread = specrt__block_thread();
    if (thread < SPECRT__VERIFY_GROUPS) groups[thread] = 0;
    __syncthreads();
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < kEach; g++) {
        uint32_t most = 0;
        SPECRT__LAUNCH_UNROLL
        for (int j = g; j < SPECRT__VERIFY_EACH; j += kEach) most = max(most, orders[j]);
        atomicMax(&groups[32 * g + thread % 32], most);
    }
    __syncthreads();
    if (thread < SPECRT__VERIFY_GROUPS) {
        uint32_t mine = groups[thread];
        int rank = 0;
        for (int i = 0; i < SPECRT__VERIFY_GROUPS; i++)
            rank += groups[i] > mine || (groups[i] == mine && i < thread);
        sorted[rank] = mine;
    }
    __syncthreads();
}

/* Lists the tokens of a part in the order of their ids, from some order on: of `sure` groups at least one
 * each; of fewer, where those are too many.
 *   keys : [SPECRT__VERIFY_CANDIDATES] */
static __device__ void specrt__verify_list(const uint32_t *orders, int32_t sure, uint64_t *keys,
                                           uint32_t *least, int32_t *n_keys) {
    __shared__ uint32_t sorted[SPECRT__VERIFY_GROUPS];
    uint32_t from;
    int32_t before[SPECRT__VERIFY_EACH], n;
    bool takes[SPECRT__VERIFY_EACH];
    specrt__verify_rank_groups(orders, sorted);
    do { /* no token has the last of these orders */
        from = sure > 0 ? max(sorted[sure - 1], 1u) : UINT32_MAX;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++) takes[j] = orders[j] >= from;
        n = specrt__block_ranks<SPECRT__VERIFY_EACH>(takes, before);
        sure /= 2;
    } while (n > SPECRT__VERIFY_CANDIDATES);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
        if (takes[j]) keys[before[j]] = specrt__verify_key(orders[j], j);
    if (specrt__block_thread() == 0) *least = from, *n_keys = n;
}

/* What a part's weights sum up to, were its own best the greatest, and the sum of each weight times what
 * stands in its exponent, which tells how far rounding goes.
 *   row : -inf where there is no token;  sums [2] */
static __device__ void specrt__verify_estimate(const float *row, uint64_t best, float temperature,
                                               double *sums) {
    float max = specrt__shortlist_key_logit(best), far = 0;
    float scale = specrt__verify_scale(temperature);
    double sum = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
        float weight = specrt__verify_weight(row[j], max, scale);
        sum += (double)weight;
        if (weight > 0) far += weight * (max - row[j]) * scale;
    }
    sum = specrt__block_sum(sum);
    double all = specrt__block_sum((double)far);
    if (specrt__block_thread() == 0) sums[0] = sum, sums[1] = all;
}

/* Block (p, node): the best of a part of a node's logits, every so many-th line of SPECRT__VERIFY_THREADS,
 * and its candidates where the node is cut by top_k or top_p. NaN and -inf are none.
 *   logits [n_batch, max_nodes, n_logits] -> best, keys, least, n_keys, estimates
 *   grid (parts, n_batch * max_nodes), block SPECRT__VERIFY_THREADS.  Twin: specrt__verify_collect */
static __global__ void __launch_bounds__(SPECRT__VERIFY_THREADS, 4)
    specrt__verify_candidates_kernel(specrt__cuda_verifier v, const specrt_cuda_draft *drafts,
                                     const specrt_sampling *samplings, const float *logits) {
    int32_t node = (int32_t)blockIdx.y, sequence = node / v.params.max_nodes;
    int32_t n_vocab = v.params.n_vocab;
    if (node % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    int64_t at = (int64_t)node * gridDim.x + blockIdx.x;
    uint32_t orders[SPECRT__VERIFY_EACH];
    float row[SPECRT__VERIFY_EACH]; /* loads under way */
    uint64_t best = 0;
    logits += (int64_t)node * v.params.n_logits;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
        row[j] = specrt__verify_column(j) < n_vocab ? logits[specrt__verify_column(j)] : -INFINITY;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
        orders[j] = row[j] > -INFINITY ? specrt__shortlist_order(row[j]) : 0;
        if (orders[j] > 0) best = max(best, specrt__verify_key(orders[j], j));
    }
    best = specrt__block_max(best);
    if (specrt__block_thread() == 0) v.best[at] = best;
    bool top_k = s->top_k > 0 && s->top_k < n_vocab;
    if (!(s->temperature > 0) || !(top_k || (s->top_p > 0 && s->top_p < 1))) return;
    if (!top_k) specrt__verify_estimate(row, best, s->temperature, v.estimates + 2 * at);
    int32_t sure = top_k ? specrt__pool_least(s->top_k, SPECRT__VERIFY_SURE) : SPECRT__VERIFY_SURE;
    specrt__verify_list(orders, sure, v.keys + at * SPECRT__VERIFY_CANDIDATES, &v.least[at],
                        &v.n_keys[at]);
}

/* A node's candidates that are all known, moved together: part by part, each in the order of ids.
 *   n_parts : of a node;  *least : all tokens of this order or above are among them */
static __device__ specrt__verify_tokens specrt__verify_gather(const specrt__cuda_verifier &v,
                                                              int64_t node, int32_t n_parts,
                                                              uint32_t *least) {
    int64_t at = node * n_parts;
    uint64_t *keys = v.keys + at * SPECRT__VERIFY_CANDIDATES, greatest = 0, most = 0;
    int32_t thread = specrt__block_thread(), n = 0, before;
    for (int32_t p = thread; p < n_parts; p += specrt__block_threads()) {
        greatest = max(greatest, (uint64_t)v.least[at + p]);
        most = max(most, (uint64_t)v.n_keys[at + p]);
    }
    *least = (uint32_t)specrt__block_max(greatest);
    int32_t width = (int32_t)specrt__block_max(most), n_places = n_parts * width;
    for (int32_t first = 0; first < n_places; first += specrt__block_threads()) {
        int32_t i = first + thread, part = i / width, j = i % width;
        bool in = i < n_places && j < v.n_keys[at + part];
        uint64_t key = in ? keys[part * SPECRT__VERIFY_CANDIDATES + j] : 0;
        bool take = key >> 32 >= *least;
        int32_t n_taken = specrt__block_rank(take, &before);
        if (i < n_places && j == 0) v.starts[at + part] = n + before;
        if (take) keys[n + before] = key; /* no later one is read from here */
        n += n_taken;
    }
    __syncthreads();
    if (thread == 0) v.least[at] = *least, v.n_keys[at] = n; /* for another look */
    return {NULL, keys, n};
}

/* The sum of a node's weights, from its parts', and by how much that may be wrong. A weight is wrong by 2^-23
 * of it, times the number in its exponent or 2; here the sum's, the estimate's and the shift to the node's
 * best are, each at most so much, and as much again for safety. */
static __device__ double specrt__verify_total_estimate(const specrt__cuda_verifier &v, int64_t node,
                                                       int32_t n_parts, double *error) {
    const specrt__cuda_distribution *d = &v.distributions[node];
    double sum = 0, far = 0;
    for (int32_t p = specrt__block_thread(); p < n_parts; p += specrt__block_threads()) {
        int64_t at = node * n_parts + p;
        if (v.best[at] == 0) continue;
        double max = (double)specrt__shortlist_key_logit(v.best[at]);
        double below = ((double)d->max - max) * (double)d->scale, share = exp(-below);
        sum += share * v.estimates[2 * at];
        far += share * (v.estimates[2 * at + 1] + below * v.estimates[2 * at]);
    }
    sum = specrt__block_sum(sum);
    far = specrt__block_sum(far);
    *error = far / (1 << 21) + sum / (1 << 20);
    return sum;
}

/* Of keys [begin, end) in the order of their ids the first whose id is at least this. */
static __device__ int32_t specrt__verify_first(const uint64_t *keys, int32_t begin, int32_t end,
                                               int32_t id) {
    while (begin < end) {
        int32_t middle = begin + (end - begin) / 2;
        if (specrt__shortlist_key_id(keys[middle]) < id)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Sums of what is kept of candidates, by the blocks of a vocabulary: a thread adds those of a block, in the
 * order of their ids. */
static __device__ void specrt__verify_sum_candidates(const specrt__cuda_verifier &v, int64_t node,
                                                     const specrt__verify_tokens &tokens,
                                                     int32_t n_parts, int32_t n_blocks) {
    const specrt__cuda_distribution distribution = v.distributions[node];
    const int32_t *starts = v.starts + node * n_parts;
    for (int32_t block = specrt__block_thread(); block < n_blocks;
         block += specrt__block_threads()) {
        double sum = 0;
        for (int32_t line = 0; line < SPECRT__VERIFY_LINES; line++) {
            int32_t from = block * SPECRT__VERIFY_BLOCK + line * SPECRT__VERIFY_THREADS;
            int32_t part = from / SPECRT__VERIFY_THREADS % n_parts;
            int32_t end = part + 1 < n_parts ? starts[part + 1] : tokens.n;
            int32_t i = specrt__verify_first(tokens.keys, starts[part], end, from);
            for (; i < end; i++) {
                int32_t id = specrt__shortlist_key_id(tokens.keys[i]);
                if (id >= from + SPECRT__VERIFY_THREADS) break;
                sum += (double)specrt__verify_kept(distribution,
                                                   specrt__shortlist_key_logit(tokens.keys[i]), id);
            }
        }
        v.sums[node * n_blocks + block] = sum;
    }
}

/* --- filters --- */

/* Cuts a node's distribution as its sampling says. @return false: the tokens may be too few, and nothing is
 * cut.
 *   total, error, least : as in specrt__verify_nucleus() */
static __device__ bool specrt__verify_filter(specrt__cuda_distribution *distribution,
                                             const specrt__verify_tokens &tokens,
                                             const specrt_sampling *s, double total, double error,
                                             uint32_t least) {
    if (distribution->top_k) {
        if (least > 1 && tokens.n < s->top_k) return false;
        specrt__verify_cut(distribution, tokens, -1, s->top_k);
        error = -1, least = 1;
    }
    return !distribution->top_p ||
           specrt__verify_nucleus(distribution, tokens, s->top_p, total, error, least);
}

/* Block i: what top_k and top_p keep of node i of all, and its sums. Where top_p cuts alone and an estimate
 * of all weights may not do, it is left to a second launch, after they are summed.
 *   grid (n_batch * max_nodes), any block.  Twin: specrt__verify_distribution */
static __global__ void __launch_bounds__(SPECRT__VERIFY_THREADS, 3)
    specrt__verify_filter_kernel(specrt__cuda_verifier v, const specrt_cuda_draft *drafts,
                                 const specrt_sampling *samplings, const float *logits,
                                 int32_t n_parts, int32_t n_blocks, bool again) {
    int64_t node = blockIdx.x, at = node * n_parts;
    int32_t sequence = (int32_t)node / v.params.max_nodes, n_vocab = v.params.n_vocab, block;
    if ((int32_t)node % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    specrt__cuda_distribution *distribution = &v.distributions[node];
    if (!distribution->drawn || !(distribution->top_k || distribution->top_p)) return;
    if (again && !distribution->whole) return;
    double *sums = v.sums + node * n_blocks, total = 0, error = 0, before;
    specrt__verify_tokens few = {NULL, v.keys + at * SPECRT__VERIFY_CANDIDATES, v.n_keys[at]};
    specrt__verify_tokens all = {logits + node * v.params.n_logits, NULL, n_vocab};
    uint32_t least = v.least[at];
    if (again)
        total = specrt__verify_add(sums, n_blocks, (double)INFINITY, &block, &before);
    else
        few = specrt__verify_gather(v, node, n_parts, &least);
    if (!again && !distribution->top_k)
        total = specrt__verify_total_estimate(v, node, n_parts, &error);
    specrt__verify_tokens tokens = few;
    bool enough = true;
    while (!specrt__verify_filter(distribution, tokens, s, total, error, least)) {
        if (!again && !distribution->top_k) {
            if (specrt__block_thread() == 0) distribution->whole = true;
            return;
        }
        tokens = all, enough = false, least = 1; /* which always is enough */
    }
    if (specrt__block_thread() == 0) distribution->least = s->min_p;
    __syncthreads();
    if (enough) specrt__verify_sum_candidates(v, node, few, n_parts, n_blocks);
    for (int32_t first = 0; first < n_blocks && !enough;
         first += specrt__block_threads() / SPECRT__VERIFY_LANES)
        specrt__verify_sum_blocks(*distribution, all.logits, n_vocab, first, sums);
}

#endif
