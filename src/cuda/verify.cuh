/* verify.cuh : owns, on the device, what the target emits, and the launches. Every node draws at once, each
 * under the key of its position, then the path is walked. Chains sampled from the drafter are accepted or
 * rejected, node by node. */
#ifndef CUDA_VERIFY_CUH
#define CUDA_VERIFY_CUH

#include "core/base.h"
#include "decode/verify.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/head.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/pool.cuh"
#include "cuda/window.cuh"
#include "cuda/verify_distribution.cuh"
#include "cuda/verify_filter.cuh"

/* --- kernels --- */

/* Block i: how node i of all draws, before top_k and top_p.
 *   best u64 [., n_parts] -> distributions; tokens where nothing is drawn;  grid (n_batch * max_nodes), any
 *   block. Twin: specrt__verify_distribution */
static __global__ void specrt__verify_distribution_kernel(specrt__cuda_verifier v,
                                                          const specrt_cuda_draft *drafts,
                                                          const specrt_sampling *samplings,
                                                          const float *logits, int32_t n_parts) {
    int64_t at = blockIdx.x;
    int32_t sequence = (int32_t)at / v.params.max_nodes;
    if ((int32_t)at % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    specrt__cuda_distribution d;
    uint64_t best = 0;
    for (int32_t i = specrt__block_thread(); i < n_parts; i += specrt__block_threads())
        best = max(best, v.best[at * n_parts + i]);
    best = specrt__block_max(best);
    if (specrt__block_thread() > 0) return;
    bool filters = v.params.sampled == 2;
    d.best = best ? specrt__shortlist_key_id(best) : -1;
    d.max = d.best < 0 ? 0 : logits[at * v.params.n_logits + d.best];
    d.drawn = v.params.sampled && s->temperature > 0 && best > 0 && d.max < INFINITY;
    d.scale = specrt__verify_scale(s->temperature);
    d.top_k = filters && s->top_k > 0 && s->top_k < v.params.n_vocab;
    d.top_p = filters && s->top_p > 0 && s->top_p < 1;
    d.whole = !d.top_k && !d.top_p;
    d.least = filters && d.whole ? s->min_p : 0;
    d.order = 0;
    d.id = INT32_MAX;
    v.distributions[at] = d;
    v.tokens[at] = d.best;
}

/* Block (b, node): sums of the weights of blocks of logits [1024], as many as there are eight threads. Where
 * few are kept they are summed where they are found.
 *   grid (n_blocks / (threads / 8), n_batch * max_nodes), any block */
static __global__ void specrt__verify_sum_kernel(specrt__cuda_verifier v,
                                                 const specrt_cuda_draft *drafts,
                                                 const float *logits, int32_t n_blocks) {
    int64_t at = blockIdx.y;
    int32_t first = (int32_t)blockIdx.x * (specrt__block_threads() / SPECRT__VERIFY_LANES);
    if ((int32_t)at % v.params.max_nodes >= drafts[at / v.params.max_nodes].n) return;
    const specrt__cuda_distribution distribution = v.distributions[at];
    if (!distribution.drawn || !distribution.whole) return;
    specrt__verify_sum_blocks(distribution, logits + at * v.params.n_logits, v.params.n_vocab,
                              first, v.sums + at * n_blocks);
}

/* Block i: the token that node i of all draws.
 *   grid (n_batch * max_nodes), block SPECRT__VERIFY_THREADS at most.  Twin: specrt__verify_pick */
static __global__ void specrt__verify_pick_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  const specrt_sampling *samplings,
                                                  const float *logits, int32_t n_blocks) {
    __shared__ float weights[SPECRT__VERIFY_BLOCK];
    int64_t at = blockIdx.x;
    int32_t sequence = (int32_t)at / v.params.max_nodes, node = (int32_t)at % v.params.max_nodes;
    int32_t block, thread = specrt__block_thread(), token = 0;
    double before;
    if (node >= drafts[sequence].n) return;
    const specrt__cuda_distribution *distribution = &v.distributions[at];
    if (!distribution->drawn) return;
    const double *sums = v.sums + at * n_blocks;
    double total = specrt__verify_add(sums, n_blocks, (double)INFINITY, &block, &before);
    double target = total * specrt__verify_uniform(&samplings[sequence], SPECRT__VERIFY_DRAW,
                                                   drafts[sequence].positions[node] + 1, 0);
    specrt__verify_add(sums, n_blocks, target, &block, &before);
    int32_t begin = block * SPECRT__VERIFY_BLOCK;
    int32_t n = specrt__pool_least(v.params.n_vocab - begin, SPECRT__VERIFY_BLOCK);
    for (int32_t i = thread; i < n; i += specrt__block_threads())
        weights[i] = specrt__verify_kept(*distribution, logits[at * v.params.n_logits + begin + i],
                                         begin + i);
    __syncthreads();
    if (thread >= 32) return; /* one warp passes over what filters removed, 32 at a time */
    for (int32_t i = 0; i < n && before <= target; i += 32) {
        float weight = i + thread < n ? weights[i + thread] : 0;
        unsigned kept = __ballot_sync(0xffffffffu, weight > 0);
        for (; kept && before <= target; kept &= kept - 1) {
            int lane = __ffs((int)kept) - 1;
            token = begin + i + lane;
            before += (double)__shfl_sync(0xffffffffu, weight, lane);
        }
    }
    if (thread == 0) v.tokens[at] = token;
}

/* The path of a sequence: while a child has the token that its parent drew; none, if a node of it drew
 * nothing. A warp calls, of which a lane holds every 32nd node.
 *   tokens : of node i at i * step, -1: none.  Twin: specrt_verify_tree */
static __device__ void specrt__verify_walk(const specrt_cuda_draft *draft, const int32_t *tokens,
                                           int32_t step, int32_t max_nodes, specrt_verdict *out) {
    const int kEach = SPECRT_TREE_MAX_NODES / 32;
    int32_t n = specrt__pool_least(draft->n, max_nodes), lane = specrt__block_thread();
    int32_t n_out = 0, node = n > 0 ? 0 : -1, parents[kEach], drafted[kEach], drawn[kEach];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int32_t i = 32 * j + lane;
        parents[j] = i < n ? draft->parents[i] : -1;
        drafted[j] = i < n ? draft->tokens[i] : -1;
        drawn[j] = i < n ? tokens[i * step] : 0;
    }
    while (node >= 0) {
        int32_t token = -1, child = -1;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t x = __shfl_sync(0xffffffffu, drawn[j], node % 32);
            if (node / 32 == j) token = x;
        }
        if (token < 0) {
            n_out = 0;
            break;
        }
        if (lane == 0) {
            out->nodes[n_out] = node;
            out->tokens[n_out] = token;
        }
        n_out++;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool is_child = 32 * j + lane > node && parents[j] == node && drafted[j] == token;
            unsigned found = __ballot_sync(0xffffffffu, is_child);
            if (found && child < 0) child = 32 * j + __ffs((int)found) - 1;
        }
        node = child;
    }
    if (lane > 0) return;
    out->n = n_out;
    out->end = SPECRT_END_NONE;
}

/* Block b: the path of sequence b.  grid (n_batch), block 32 */
static __global__ void specrt__verify_walk_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  specrt_verdict *verdicts) {
    int64_t b = blockIdx.x;
    specrt__verify_walk(&drafts[b], v.tokens + b * v.params.max_nodes, 1, v.params.max_nodes,
                        &verdicts[b]);
}

/* As specrt__shortlist_rank_kernel, of the target's logits at the nodes of drafts; the last block of a
 * sequence follows the best tokens. */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__verify_rank_kernel(specrt__shortlist_ranks r, const specrt_cuda_draft *drafts,
                               specrt_verdict *verdicts) {
    int64_t b = blockIdx.z;
    if (specrt__shortlist_rank(r) && threadIdx.x < 32)
        specrt__verify_walk(&drafts[b], r.ids + b * r.row_step * r.k, r.k, r.max_n, &verdicts[b]);
}

/* --- sampled chains --- */

/* Of x [n] the place at which the running sum passes the target, or the last above 0. Each warp adds up a
 * 32nd of what is left, its lanes side by side; that in which the target lies is left then. */
static __device__ int32_t specrt__verify_find(const float *x, int32_t n, double target) {
    __shared__ double sums[SPECRT__BLOCK_WARPS], before;
    __shared__ int32_t first, end;
    int32_t thread = specrt__block_thread(), n_warps = specrt__block_threads() / 32;
    if (thread == 0) before = 0, first = 0, end = n;
    __syncthreads();
    while (end - first > 32) {
        int32_t width = (end - first + SPECRT__BLOCK_WARPS - 1) / SPECRT__BLOCK_WARPS;
        for (int32_t part = thread / 32; part < SPECRT__BLOCK_WARPS; part += n_warps) {
            int32_t begin = first + part * width, stop = specrt__pool_least(begin + width, end);
            double sum = 0;
            for (int32_t i = begin + thread % 32; i < stop; i += 32) sum += (double)x[i];
            for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
            if (thread % 32 == 0) sums[part] = sum;
        }
        __syncthreads();
        if (thread == 0) {
            double sum = before;
            int32_t part = 0;
            for (int32_t i = 0; i < SPECRT__BLOCK_WARPS && sum <= target; i++) {
                if (!(sums[i] > 0)) continue;
                part = i;
                before = sum;
                sum += sums[i];
            }
            first += part * width;
            end = specrt__pool_least(first + width, end);
        }
        __syncthreads();
    }
    int32_t found = first;
    double sum = before;
    for (int32_t i = first; i < end && sum <= target; i++) {
        if (!(x[i] > 0)) continue;
        found = i;
        sum += (double)x[i];
    }
    __syncthreads();
    return found;
}

/* What a sequence's levels are drawn from. */
typedef struct specrt__verify_shortlist {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments] */
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS], n_segments;
    const float *logits; /* of all sequences; in the kernel of its own */
    float temperature;
} specrt__verify_shortlist;

/* The next values of a thread, from x[first] on, whose loads are under way together; behind the last: none */
template <typename T>
static __device__ void specrt__verify_fetch(const T *x, int32_t first, int32_t n, T none, T *out) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
        int32_t i = first + j * specrt__block_threads();
        out[j] = i < n ? x[i] : none;
    }
}

/* The tokens of columns [0, n), to ids; -1: it has none. @return the greatest key of logit and column; 0:
 * there is none. */
static __device__ uint64_t specrt__verify_name(const specrt__verify_shortlist &from,
                                               const float *logits, int32_t n, int32_t *ids) {
    const specrt__cuda_segment *segment = from.segments + (int64_t)blockIdx.x * from.n_segments;
    int32_t threads = specrt__block_threads(), tokens[SPECRT__VERIFY_SOME];
    float row[SPECRT__VERIFY_SOME];
    uint64_t best = 0;
    for (int32_t s = 0; s < from.n_segments; s++, segment++) {
        int32_t n_rows = segment->n_rows ? *segment->n_rows : segment->max_rows;
        int32_t start = from.starts[s], end = s + 1 < from.n_segments ? from.starts[s + 1] : n;
        for (int32_t first = start + specrt__block_thread(); first < end;
             first += SPECRT__VERIFY_SOME * threads) {
            specrt__verify_fetch(logits, first, end, -INFINITY, row);
            specrt__verify_fetch(segment->ids, first - start, n_rows, -1, tokens);
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
                int32_t i = first + j * threads;
                if (i < end) ids[i] = tokens[j];
                if (tokens[j] >= 0 && row[j] > -INFINITY)
                    best = max(best, specrt__shortlist_key(row[j], i));
            }
        }
    }
    return specrt__block_max(best);
}

/* The distribution of a level: logits of columns [0, n) to probs, ids to tokens. @return their sum; 0: there
 * is none. Twin: specrt_verifier_propose. */
static __device__ double specrt__verify_soften(const specrt__verify_shortlist &from, int32_t n,
                                               int32_t *ids, float *probs) {
    const float *logits = from.logits;
    float scale = specrt__verify_scale(from.temperature), row[SPECRT__VERIFY_SOME];
    int32_t thread = specrt__block_thread(), threads = specrt__block_threads();
    int32_t step = SPECRT__VERIFY_SOME * threads, tokens[SPECRT__VERIFY_SOME];
    uint64_t best = specrt__verify_name(from, logits, n, ids);
    double sum = 0;
    if (best == 0) return 0;
    int32_t place = specrt__shortlist_key_id(best);
    float max = logits[place];
    for (int32_t first = thread; first < n; first += step) {
        specrt__verify_fetch<int32_t>(ids, first, n, -1, tokens);
        specrt__verify_fetch(logits, first, n, -INFINITY, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            bool counts = tokens[j] >= 0 && max < INFINITY;
            row[j] = counts ? specrt__verify_weight(row[j], max, scale) : (float)(i == place);
            if (i < n) probs[i] = row[j], sum += (double)row[j];
        }
    }
    double each = 1 / specrt__block_sum(sum);
    sum = 0;
    for (int32_t first = thread; first < n; first += step) {
        specrt__verify_fetch<float>(probs, first, n, 0, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            row[j] = (float)((double)row[j] * each);
            if (i < n) probs[i] = row[j], sum += (double)row[j];
        }
    }
    return specrt__block_sum(sum);
}

/* Block b: the token that sequence b drafts at its level, drawn from the distribution that is noted.
 *   step : from the logits of a sequence to those of the next
 *   ids i32, logprobs f32 [n_batch];  grid (n_batch), any block.  Twin: specrt_verifier_propose */
static __global__ void __launch_bounds__(SPECRT__VERIFY_DISTRIBUTION_THREADS)
    specrt__verify_propose_kernel(specrt__verify_shortlist from, int64_t step,
                                  const specrt__cuda_tree *trees, const specrt_sampling *samplings,
                                  specrt__cuda_distributions distributions, int32_t *ids,
                                  float *logprobs) {
    const specrt__cuda_tree *t = &trees[blockIdx.x];
    if (t->n_beam == 0 || t->level >= distributions.n_steps) return;
    int64_t at = (int64_t)blockIdx.x * distributions.n_steps + t->level;
    int32_t *tokens = distributions.ids + at * distributions.n_columns;
    float *probs = distributions.probs + at * distributions.n_columns;
    from.logits += (int64_t)blockIdx.x * step;
    double sum = specrt__verify_soften(from, distributions.n_columns, tokens, probs);
    double u = specrt__verify_uniform(&samplings[blockIdx.x], SPECRT__VERIFY_DRAFT,
                                      (int64_t)t->cycle, t->level);
    __syncthreads();
    int32_t i = specrt__verify_find(probs, sum > 0 ? distributions.n_columns : 0, u * sum);
    if (specrt__block_thread() > 0) return;
    ids[blockIdx.x] = sum > 0 ? tokens[i] : 0;
    logprobs[blockIdx.x] = sum > 0 ? logf(probs[i]) : -INFINITY;
    distributions.chances[at] = sum > 0 ? probs[i] : 0;
    distributions.sampled[at] = sum > 0 ? tokens[i] : -1;
}

/* What the distribution of a node gives a token. */
static __device__ float specrt__verify_mass(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id) {
    return distribution.drawn ? specrt__verify_kept(distribution, logit, id)
                              : (float)(id == distribution.best);
}

/* The sum of what a node's distribution gives all tokens.
 *   at : its number of all;  n_blocks : sums of a node */
static __device__ double specrt__verify_total(const specrt__cuda_verifier &v, int64_t at,
                                              int32_t n_blocks) {
    double sum = 0;
    for (int32_t i = specrt__block_thread(); i < n_blocks; i += specrt__block_threads())
        sum += v.sums[at * n_blocks + i];
    sum = specrt__block_sum(sum);
    return v.distributions[at].drawn ? sum : 1;
}

/* Weights [n_vocab] of what a node's distribution gives beyond `total` times a draft's distribution; probs
 * NULL: of all it gives. @return their sum. Twin: specrt__verify_subtract. */
static __device__ double specrt__verify_rest(const specrt__cuda_distribution distribution,
                                             const float *logits, int32_t n_vocab,
                                             const int32_t *ids, const float *probs, int32_t n,
                                             double total, float *weights) {
    int32_t thread = specrt__block_thread(), threads = specrt__block_threads();
    int32_t step = SPECRT__VERIFY_SOME * threads, tokens[SPECRT__VERIFY_SOME];
    float row[SPECRT__VERIFY_SOME], left[SPECRT__VERIFY_SOME];
    double sum = 0;
    for (int32_t first = thread; first < n_vocab; first += step) {
        specrt__verify_fetch(logits, first, n_vocab, -INFINITY, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            if (i < n_vocab) weights[i] = specrt__verify_mass(distribution, row[j], i);
        }
    }
    __syncthreads();
    for (int32_t first = thread; first < n && probs; first += step) {
        specrt__verify_fetch(ids, first, n, -1, tokens);
        specrt__verify_fetch<float>(probs, first, n, 0, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            left[j] = row[j] > 0 ? weights[tokens[j]] - (float)((double)row[j] * total) : 0;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            if (row[j] > 0) weights[tokens[j]] = left[j] > 0 ? left[j] : 0;
    }
    __syncthreads();
    for (int32_t i = thread; i < n_vocab; i += threads) sum += (double)weights[i];
    return specrt__block_sum(sum);
}

/* Whether a draft is the chain that was sampled, or its beginning: any other would be judged by distributions
 * that its tokens do not come from.
 *   sampled : of each level, `level` of them.  Twin: specrt__session_check_sampled */
static __device__ bool specrt__verify_is_sampled(const specrt_cuda_draft *draft, int32_t max_nodes,
                                                 const int32_t *sampled, int32_t level) {
    bool own = draft->n >= 1 && draft->n <= max_nodes && draft->n <= level + 1;
    for (int32_t i = 1; own && i < draft->n; i++) own = draft->tokens[i] == sampled[i - 1];
    return own;
}

/* Block b: how many of sequence b's draws the target takes, and what it emits instead of the next; nothing,
 * if the draft is another or a node has no logit above -inf.
 *   grid (n_batch), any block.  Twins: specrt_verify_chain, specrt_session_verify */
static __global__ void __launch_bounds__(SPECRT__VERIFY_DISTRIBUTION_THREADS)
    specrt__verify_chain_kernel(specrt__cuda_verifier v, specrt__cuda_distributions distributions,
                                const specrt_cuda_draft *drafts, const specrt__cuda_tree *trees,
                                const specrt_sampling *samplings, const float *logits,
                                int32_t n_blocks, specrt_verdict *verdicts) {
    int64_t b = blockIdx.x, at = b * v.params.max_nodes;
    const specrt_cuda_draft *draft = &drafts[b];
    const specrt_sampling *s = &samplings[b];
    specrt_verdict *out = &verdicts[b];
    int64_t cycle = (int64_t)trees[b].cycle, level = b * distributions.n_steps;
    int32_t n = draft->n, n_vocab = v.params.n_vocab, i = 0, thread = specrt__block_thread();
    float *weights = distributions.weights + b * n_vocab;
    double total = 0;
    if (thread == 0) {
        out->n = 0;
        out->end = SPECRT_END_NONE;
    }
    if (!specrt__verify_is_sampled(draft, v.params.max_nodes, distributions.sampled + level,
                                   trees[b].level))
        return;
    logits += at * v.params.n_logits;
    for (;; i++, at++, level++, logits += v.params.n_logits) {
        if (v.distributions[at].best < 0) return;
        total = specrt__verify_total(v, at, n_blocks);
        if (i + 1 >= n) break;
        int32_t token = draft->tokens[i + 1];
        double p = (double)specrt__verify_mass(v.distributions[at], logits[token], token) / total;
        double u = specrt__verify_uniform(s, SPECRT__VERIFY_ACCEPT, cycle, i);
        if (!(u * (double)distributions.chances[level] < p)) break;
        if (thread == 0) out->tokens[i] = token, out->nodes[i] = i;
    }
    const float *probs = i + 1 < n ? distributions.probs + level * distributions.n_columns : NULL;
    double left =
        specrt__verify_rest(v.distributions[at], logits, n_vocab,
                            distributions.ids + (probs ? level * distributions.n_columns : 0),
                            probs, distributions.n_columns, total, weights);
    if (!(left > 1e-12 * total)) /* no more than rounding */
        left = specrt__verify_rest(v.distributions[at], logits, n_vocab, NULL, NULL, 0, total,
                                   weights);
    double u = specrt__verify_uniform(s, SPECRT__VERIFY_INSTEAD, cycle, i);
    int32_t token = specrt__verify_find(weights, n_vocab, u * left);
    if (thread > 0) return;
    out->tokens[i] = token;
    out->nodes[i] = i;
    out->n = i + 1;
}

/* out[i] = ids[in[i]].  grid (blocks of n), any block */
static __global__ void specrt__verify_remap_kernel(const int32_t *ids, int32_t n_ids,
                                                   const int32_t *in, int64_t n, int32_t *out) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] >= 0 && in[i] < n_ids ? ids[in[i]] : -1;
}

/* --- launches --- */

static bool specrt__verify_params_ok(const specrt__cuda_verifier_params *p) {
    return p && p->n_batch >= 1 && p->n_batch <= SPECRT__CUDA_MAX_BATCH && p->n_vocab >= 1 &&
           p->n_vocab <= p->n_logits && p->n_logits <= SPECRT_MAX_VOCAB && p->max_nodes >= 1 &&
           p->max_nodes <= SPECRT_TREE_MAX_NODES && p->sampled >= 0 && p->sampled <= 2 &&
           p->n_batch * p->max_nodes <= 65535;
}

static size_t specrt__verify_lay_out(void *memory, specrt__cuda_verifier *v) {
    size_t n = (size_t)v->params.n_batch * (size_t)v->params.max_nodes;
    size_t n_distributions = v->params.sampled ? n : 0;
    size_t n_parts = specrt__launch_blocks(v->params.n_vocab, SPECRT__VERIFY_PART);
    size_t n_blocks = specrt__launch_blocks(v->params.n_vocab, SPECRT__VERIFY_BLOCK);
    size_t n_ranking = specrt__cuda_topk_bytes(v->params.n_vocab, (int64_t)n, 1);
    specrt__launch_arena arena = {memory, 0};
    uint8_t *ranking;
    specrt__launch_carve(&arena, v->params.sampled ? 0 : n_ranking, &ranking);
    specrt__launch_carve(&arena, n_distributions * n_parts, &v->best);
    specrt__launch_carve(&arena, n_distributions * n_blocks, &v->sums);
    specrt__launch_carve(&arena, n_distributions, &v->distributions);
    specrt__launch_carve(&arena, n, &v->tokens);
    n_parts *= v->params.sampled == 2 ? n : 0;
    specrt__launch_carve(&arena, n_parts * SPECRT__VERIFY_CANDIDATES, &v->keys);
    specrt__launch_carve(&arena, 2 * n_parts, &v->estimates);
    specrt__launch_carve(&arena, n_parts, &v->least);
    specrt__launch_carve(&arena, n_parts, &v->n_keys);
    specrt__launch_carve(&arena, n_parts, &v->starts);
    v->scratch = ranking;
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_verifier_bytes(const specrt__cuda_verifier_params *params) {
    specrt__cuda_verifier v;
    if (!specrt__verify_params_ok(params)) return 0;
    v.params = *params;
    return specrt__verify_lay_out(NULL, &v);
}

SPECRT__KERNEL specrt_status specrt__cuda_verifier_place(const specrt__cuda_verifier_params *params,
                                                         void *memory, specrt__cuda_verifier *out) {
    if (!memory || !out || !specrt__verify_params_ok(params)) return SPECRT_STATUS_BAD_ARG;
    out->params = *params;
    specrt__verify_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

/* What top_k and top_p leave of the distributions; `again`: where a first look was not enough. */
static specrt_status specrt__verify_launch_filter(const specrt__cuda_verifier *v,
                                                  const specrt_cuda_draft *drafts,
                                                  const specrt_sampling *samplings,
                                                  const float *logits, bool again, void *stream) {
    const specrt__cuda_verifier_params *p = &v->params;
    if (p->sampled < 2) return SPECRT_STATUS_OK;
    return SPECRT__LAUNCH(specrt__verify_filter_kernel, (unsigned)(p->n_batch * p->max_nodes),
                          specrt__block_size(SPECRT__VERIFY_THREADS), 0, stream, *v, drafts,
                          samplings, logits,
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_PART),
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK), again);
}

/* The distributions of all nodes, and their sums. */
static specrt_status specrt__verify_lay_distributions(const specrt__cuda_verifier *verifier,
                                                      const specrt_cuda_draft *drafts,
                                                      const specrt_sampling *samplings,
                                                      const float *logits, void *stream) {
    if (!verifier || !specrt__verify_params_ok(&verifier->params) || !verifier->best ||
        !verifier->distributions || !verifier->tokens || !drafts || !samplings || !logits)
        return SPECRT_STATUS_BAD_ARG;
    const specrt__cuda_verifier_params *p = &verifier->params;
    unsigned n = (unsigned)(p->n_batch * p->max_nodes);
    unsigned n_parts = specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_PART);
    unsigned n_blocks = specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK);
    int threads = specrt__block_size(SPECRT__VERIFY_THREADS);
    dim3 sums(specrt__launch_blocks(n_blocks, threads / SPECRT__VERIFY_LANES), n);
    if (p->sampled == 2)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_candidates_kernel, dim3(n_parts, n),
                                   (int)SPECRT__VERIFY_THREADS, 0, stream, *verifier, drafts,
                                   samplings, logits));
    else
        SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_best_kernel, dim3(n_parts, n), threads, 0, stream,
                                   *verifier, drafts, logits));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_distribution_kernel, n, 32, 0, stream, *verifier,
                               drafts, samplings, logits, (int32_t)n_parts));
    SPECRT__TRY(specrt__verify_launch_filter(verifier, drafts, samplings, logits, false, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_sum_kernel, sums, threads, 0, stream, *verifier,
                               drafts, logits, (int32_t)n_blocks));
    return specrt__verify_launch_filter(verifier, drafts, samplings, logits, true, stream);
}

/* The nodes of a batch's drafts. */
static specrt__cuda_batch specrt__verify_nodes(const specrt_cuda_draft *drafts, int32_t n_batch,
                                               int32_t max_nodes) {
    return {n_batch, max_nodes, &drafts->n, sizeof *drafts / sizeof(int32_t)};
}

/* Greedy verification by a ranking, which reads the logits once: ids i32 [n_batch, row_step, k] get the
 * target's best at each node too. */
static specrt_status specrt__verify_greedily(const specrt__cuda_verifier_params *p,
                                             const specrt_cuda_draft *drafts, const float *logits,
                                             int32_t k, int32_t *ids, int32_t row_step,
                                             void *scratch, specrt_verdict *verdicts,
                                             void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    if (!drafts || !verdicts) return SPECRT_STATUS_BAD_ARG;
    specrt__cuda_batch nodes = specrt__verify_nodes(drafts, p->n_batch, p->max_nodes);
    SPECRT__TRY(
        specrt__shortlist_whole(&nodes, logits, p->n_vocab, k, ids, row_step, scratch, &r, &grid));
    r.row_size = p->n_logits;
    return SPECRT__LAUNCH(specrt__verify_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r, drafts, verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_verify(const specrt__cuda_verifier *verifier,
                                                 const specrt_cuda_draft *drafts,
                                                 const specrt_sampling *samplings,
                                                 const float *logits, specrt_verdict *verdicts,
                                                 void *stream) {
    if (!verdicts || !verifier || !samplings) return SPECRT_STATUS_BAD_ARG;
    const specrt__cuda_verifier_params *p = &verifier->params;
    if (!p->sampled)
        return specrt__verify_greedily(p, drafts, logits, 1, verifier->tokens, p->max_nodes,
                                       verifier->scratch, verdicts, stream);
    SPECRT__TRY(specrt__verify_lay_distributions(verifier, drafts, samplings, logits, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_pick_kernel, (unsigned)(p->n_batch * p->max_nodes),
                               specrt__block_size(SPECRT__VERIFY_THREADS), 0, stream, *verifier,
                               drafts, samplings, logits,
                               (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK)));
    return SPECRT__LAUNCH(specrt__verify_walk_kernel, (unsigned)p->n_batch, 32, 0, stream,
                          *verifier, drafts, verdicts);
}

static bool specrt__verify_distributions_ok(const specrt__cuda_distributions *distributions) {
    return distributions && distributions->n_steps >= 1 &&
           distributions->n_steps <= SPECRT_TREE_MAX_STEPS && distributions->n_columns >= 1 &&
           distributions->ids && distributions->probs && distributions->chances &&
           distributions->sampled && distributions->weights;
}

SPECRT__KERNEL specrt_status specrt__cuda_propose(const specrt__cuda_layout *layout,
                                                  const specrt__cuda_segment *segments,
                                                  int32_t n_batch, const float *logits,
                                                  int64_t step, const specrt__cuda_tree *trees,
                                                  const specrt_sampling *samplings,
                                                  const specrt__cuda_distributions *distributions,
                                                  int32_t *ids, float *logprobs, void *stream) {
    specrt__verify_shortlist from;
    SPECRT__CLEAR(&from, 1);
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!segments || !logits || !samplings || !ids || !logprobs ||
        !specrt__verify_distributions_ok(distributions) ||
        !(distributions->temperature > 0 && distributions->temperature <= 100) ||
        specrt__head_lay_out(layout, from.starts) != distributions->n_columns)
        return SPECRT_STATUS_BAD_ARG;
    from.segments = segments;
    from.n_segments = layout->n_segments;
    from.logits = logits;
    from.temperature = distributions->temperature;
    return SPECRT__LAUNCH(specrt__verify_propose_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__VERIFY_DISTRIBUTION_THREADS), 0, stream, from,
                          step, trees, samplings, *distributions, ids, logprobs);
}

SPECRT__KERNEL specrt_status specrt__cuda_verify_chain(
    const specrt__cuda_verifier *verifier, const specrt__cuda_distributions *distributions,
    const specrt_cuda_draft *drafts, const specrt__cuda_tree *trees,
    const specrt_sampling *samplings, const float *logits, specrt_verdict *verdicts, void *stream) {
    if (!verdicts || !trees || !specrt__verify_distributions_ok(distributions) || !verifier ||
        !verifier->params.sampled)
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__verify_lay_distributions(verifier, drafts, samplings, logits, stream));
    const specrt__cuda_verifier_params *p = &verifier->params;
    return SPECRT__LAUNCH(specrt__verify_chain_kernel, (unsigned)p->n_batch,
                          specrt__block_size(SPECRT__VERIFY_DISTRIBUTION_THREADS), 0, stream,
                          *verifier, *distributions, drafts, trees, samplings, logits,
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK),
                          verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_remap(const int32_t *ids, int32_t n_ids,
                                                const int32_t *in, int64_t n, int32_t *out,
                                                void *stream) {
    if (!ids || !in || !out || n_ids < 1 || n < 1 || n > INT32_MAX) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__verify_remap_kernel,
                          specrt__launch_blocks(n, SPECRT__VERIFY_THREADS), SPECRT__VERIFY_THREADS,
                          0, stream, ids, n_ids, in, n, out);
}

#endif
