/* tree.cuh : owns, on the device, the candidates of drafts: expansion, rerank, masks and positions. One
 * block a sequence. Ties go to the lower candidate, as in the twin, so a chosen node's parent is chosen
 * too. A chain is a tree with topk 1, whose block is one warp. */
#ifndef CUDA_TREE_CUH
#define CUDA_TREE_CUH

#include "core/base.h"
#include "core/shortlist.h"
#include "decode/tree.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/pool.cuh"
#include "cuda/window.cuh"

enum { SPECRT__TREE_THREADS = 256 };

/* The m best of the candidates [first, n) by (logprob descending, index ascending), none at -inf, into
 * best [m]. Keys of the best so far and of one round's candidates stand side by side, and a key's rank is
 * how many are greater. Twin: specrt__tree_best. @return how many. */
static __device__ int32_t specrt__tree_best(const specrt__cuda_tree *t, int32_t first, int32_t m,
                                            int32_t *best) {
    __shared__ uint64_t keys[SPECRT_TREE_MAX_TOPK + SPECRT__TREE_THREADS],
        kept[SPECRT_TREE_MAX_TOPK];
    int32_t n_best = 0, n = t->n_candidates, thread = specrt__block_thread();
    for (int32_t begin = first; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + thread;
        int32_t n_keys = n_best + specrt__pool_least(specrt__block_threads(), n - begin);
        float x = i < n ? t->logprobs[i] : -INFINITY;
        for (int32_t j = thread; j < n_best; j += specrt__block_threads()) keys[j] = kept[j];
        if (i < n) keys[n_best + thread] = x > -INFINITY ? specrt__shortlist_key(x, i) : 0;
        n_best += __syncthreads_count(x > -INFINITY);
        for (int32_t j = thread; j < n_keys; j += specrt__block_threads()) {
            int32_t rank = 0;
            for (int32_t other = 0; other < n_keys; other++) rank += keys[other] > keys[j];
            if (keys[j] > 0 && rank < m) kept[rank] = keys[j];
        }
        if (n_best > m) n_best = m;
        __syncthreads();
    }
    for (int32_t j = thread; j < n_best; j += specrt__block_threads())
        best[j] = specrt__shortlist_key_id(kept[j]);
    __syncthreads();
    return n_best;
}

/* A tree from the last token of a verdict, and its first pass. A thread calls. Twin: specrt_tree_begin */
static __device__ void specrt__tree_root(specrt__cuda_tree *t, const specrt_verdict *verdict,
                                         specrt_cuda_beam *beam) {
    int32_t n = specrt__pool_least(verdict->n, SPECRT_TREE_MAX_NODES);
    t->level = t->n_candidates = t->block = 0;
    t->n_beam = beam->n = n > 0;
    if (n < 1) return;
    t->root = beam->tokens[0] = verdict->tokens[n - 1];
    t->position += n;
    t->cycle++;
    beam->parents[0] = 0;
    beam->logprobs[0] = 0;
}

/* Block b: that of sequence b.  grid (n_batch), block 32 */
static __global__ void specrt__tree_begin_kernel(specrt__cuda_tree *trees,
                                                 const specrt_verdict *verdicts,
                                                 specrt_cuda_beam *beams) {
    if (specrt__block_thread() > 0) return;
    specrt__tree_root(&trees[blockIdx.x], &verdicts[blockIdx.x], &beams[blockIdx.x]);
}

/* What a level is of. */
typedef struct specrt__tree_position {
    int32_t at;  /* position of a block; -1: the level is a pass's */
    float least; /* confidence below which a path ends; -INFINITY: none does */
    /* Of row i of the beam of sequence b at b * step + i * each; NULL: confidence is the best path's
     * log-probability, of all rows */
    const float *confidences;
    int32_t step;
    int32_t
        each; /* 1: rows of a beam have their own proposals; 0: those of the first are for all */
} specrt__tree_position;

static inline specrt__tree_position specrt__tree_pass(void) {
    return {-1, -INFINITY, NULL, 0, 1};
}

/* The same of one sequence, whose confidences come first. */
static __device__ specrt__tree_position specrt__tree_position_of(specrt__tree_position p,
                                                                 int64_t b) {
    if (p.confidences) p.confidences += b * p.step;
    return p;
}

static __device__ bool specrt__tree_trusts(const specrt__tree_position &p, int32_t row) {
    return !p.confidences || p.confidences[row * p.each] >= p.least;
}

/* Whether the draft of a block has come to a position and any path goes on. All threads call. Twin:
 * specrt__block_trusts */
static __device__ bool specrt__tree_continues(const specrt__tree_position &p,
                                              specrt__cuda_tree *t) {
    bool any = false;
    if (specrt__block_thread() == 0) t->block = 1;
    for (int32_t i = specrt__block_thread(); i < t->n_beam; i += specrt__block_threads()) {
        float path = p.at > 0 ? t->logprobs[t->beam[0]] : 0;
        any |= p.confidences ? specrt__tree_trusts(p, i) : path >= p.least;
    }
    return __syncthreads_count(any && t->level == p.at) > 0;
}

/* Candidates [n_candidates, + n_beam * topk) of a sequence and the next pass, unless a block has ended.
 *   ids, logprobs [topk, topk]; each 0: [topk].  Twin: specrt_tree_expand */
static __device__ void specrt__tree_grow(const specrt__tree_position &p, specrt__cuda_tree *t,
                                         const int32_t *ids, const float *logprobs, int32_t topk,
                                         specrt_cuda_beam *beam) {
    if (p.at >= 0 && !specrt__tree_continues(p, t)) return;
    int32_t level = t->level, first = t->n_candidates, n = t->n_beam * topk;
    int32_t thread = specrt__block_thread();
    if (n == 0 || topk != t->params.topk || level >= t->params.num_steps) {
        __syncthreads(); /* all have read n_beam */
        if (thread == 0) beam->n = t->n_beam = 0;
        return;
    }
    for (int32_t i = thread; i < n; i += specrt__block_threads()) {
        int32_t parent = level == 0 ? -1 : t->beam[i / topk],
                at = i / topk * p.each * topk + i % topk;
        t->tokens[first + i] = ids[at];
        t->parents[first + i] = parent;
        t->logprobs[first + i] =
            specrt__tree_add(parent < 0 ? 0 : t->logprobs[parent],
                             specrt__tree_trusts(p, i / topk) ? logprobs[at] : -INFINITY);
    }
    __syncthreads();
    if (thread == 0) {
        t->n_candidates = first + n;
        t->level = level + 1;
    }
    __syncthreads();
    int32_t n_beam =
        level + 1 < t->params.num_steps ? specrt__tree_best(t, first, topk, t->beam) : 0;
    for (int32_t i = thread; i < n_beam; i += specrt__block_threads()) {
        int32_t candidate = t->beam[i];
        beam->tokens[i] = t->tokens[candidate];
        beam->parents[i] = (candidate - first) / topk;
        beam->logprobs[i] = t->logprobs[candidate];
    }
    if (thread == 0) beam->n = t->n_beam = n_beam;
}

/* Block b: that of sequence b.
 *   ids, logprobs [n_batch, topk, topk]; grid (n_batch), block SPECRT__TREE_THREADS or a warp */
static __global__ void specrt__tree_expand_kernel(specrt__tree_position position,
                                                  specrt__cuda_tree *trees, const int32_t *ids,
                                                  const float *logprobs, int32_t topk,
                                                  specrt_cuda_beam *beams) {
    int64_t b = blockIdx.x, at = b * topk * topk;
    specrt__tree_grow(specrt__tree_position_of(position, b), &trees[b], ids + at, logprobs + at,
                      topk, &beams[b]);
}

/* The node of a candidate among chosen [n], which ascends; 0 for the root's -1. */
static __device__ int32_t specrt__tree_node(const int32_t *chosen, int32_t n, int32_t candidate) {
    int32_t node = n;
    while (node > 0 && chosen[node - 1] != candidate) node--;
    return node;
}

/* Node i of a draft, from the candidates chosen [n], which ascend. */
static __device__ void specrt__tree_write(const specrt__cuda_tree *t, const int32_t *chosen,
                                          int32_t i, specrt_cuda_draft *draft) {
    int32_t candidate = i > 0 ? chosen[i - 1] : -1, depth = 0;
    uint64_t mask = 1;
    draft->tokens[i] = i > 0 ? t->tokens[candidate] : t->root;
    draft->logprobs[i] = i > 0 ? t->logprobs[candidate] : 0;
    draft->parents[i] = i > 0 ? specrt__tree_node(chosen, i - 1, t->parents[candidate]) : -1;
    for (int32_t at = i; at > 0; depth++) {
        mask |= (uint64_t)1 << at;
        at = specrt__tree_node(chosen, at - 1, t->parents[chosen[at - 1]]);
    }
    draft->depths[i] = depth;
    draft->masks[i] = mask;
    draft->positions[i] = t->position - 1 + depth;
}

/* The nodes of a tree, parents first, levels together. A block calls. Twin: specrt_tree_finish */
static __device__ void specrt__tree_choose(const specrt__cuda_tree *t, specrt_cuda_draft *draft) {
    __shared__ int32_t best[SPECRT_TREE_MAX_NODES], chosen[SPECRT_TREE_MAX_NODES];
    bool begun = t->level > 0 || t->n_beam > 0;
    int32_t n = specrt__tree_best(t, 0, t->params.num_draft_tokens - 1, best);
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; j++) rank += best[j] < best[i];
        chosen[rank] = best[i];
    }
    __syncthreads();
    for (int32_t i = specrt__block_thread(); i <= n && begun; i += specrt__block_threads())
        specrt__tree_write(t, chosen, i, draft);
    if (specrt__block_thread() == 0) draft->n = begun ? n + 1 : 0;
}

/* Block b: those of sequence b.  grid (n_batch), block SPECRT__TREE_THREADS */
static __global__ void specrt__tree_finish_kernel(const specrt__cuda_tree *trees,
                                                  specrt_cuda_draft *drafts) {
    specrt__tree_choose(&trees[blockIdx.x], &drafts[blockIdx.x]);
}

/* As specrt__shortlist_rank_kernel, of topk rows; the last block of a sequence goes on with its tree.
 *   drafts : after the last level the nodes are chosen, too; NULL: more levels come */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__tree_rank_kernel(specrt__shortlist_ranks r, specrt__tree_position position,
                             specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                             specrt_cuda_draft *drafts) {
    int64_t b = blockIdx.z, at = b * r.k * r.k;
    if (!specrt__shortlist_rank(r)) return;
    specrt__tree_grow(specrt__tree_position_of(position, b), &trees[b], r.ids + at, r.logprobs + at,
                      r.k, &beams[b]);
    if (!drafts) return;
    __syncthreads(); /* the tree has its beam */
    specrt__tree_choose(&trees[b], &drafts[b]);
}

/* As specrt__shortlist_rank_kernel, of a block's positions; the last block of a sequence makes its draft: a
 * position's best tokens and confidence are those of every path.
 *   first : position 0.  Twin: specrt_session_draft_block */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__tree_block_kernel(specrt__shortlist_ranks r, specrt__tree_position first,
                              specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                              specrt_cuda_draft *drafts) {
    int64_t b = blockIdx.z, at = b * r.row_step * r.k;
    if (!specrt__shortlist_rank(r)) return;
    specrt__tree_position p = specrt__tree_position_of(first, b);
    for (; p.at < r.max_n; p.at++, at += r.k) {
        specrt__tree_grow(p, &trees[b], r.ids + at, r.logprobs + at, r.k, &beams[b]);
        if (p.confidences) p.confidences++;
        __syncthreads();
    }
    specrt__tree_choose(&trees[b], &drafts[b]);
}

/* --- launches --- */

static size_t specrt__tree_lay_out(void *memory, specrt__cuda_tree *t) {
    size_t k = (size_t)t->params.topk, n = k + (size_t)(t->params.num_steps - 1) * k * k;
    specrt__launch_arena arena = {memory, 0};
    specrt__launch_carve(&arena, n, &t->tokens);
    specrt__launch_carve(&arena, n, &t->parents);
    specrt__launch_carve(&arena, n, &t->logprobs);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_tree_bytes(const specrt_tree_params *params) {
    specrt__cuda_tree t;
    if (specrt__tree_resolve(params, &t.params, NULL) != SPECRT_STATUS_OK) return 0;
    return specrt__tree_lay_out(NULL, &t);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_place(const specrt_tree_params *params,
                                                     int64_t position, void *memory,
                                                     specrt__cuda_tree *out) {
    if (!memory || !out || position < 0) return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(out, 1);
    SPECRT__TRY(specrt__tree_resolve(params, &out->params, NULL));
    out->position = position;
    specrt__tree_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_begin(int32_t n_batch,
                                                     const specrt_verdict *verdicts,
                                                     specrt__cuda_tree *trees,
                                                     specrt_cuda_beam *beams, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!verdicts || !beams) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_begin_kernel, (unsigned)n_batch, 32, 0, stream, trees,
                          verdicts, beams);
}

static specrt_status specrt__tree_expand(const specrt__tree_position &position, int32_t n_batch,
                                         int32_t topk, const int32_t *ids, const float *logprobs,
                                         specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                                         void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (topk < 1 || topk > SPECRT_TREE_MAX_TOPK || !ids || !logprobs || !beams)
        return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_expand_kernel, (unsigned)n_batch,
                          topk == 1 ? 32 : specrt__block_size(SPECRT__TREE_THREADS), 0, stream,
                          position, trees, ids, logprobs, topk, beams);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_expand(int32_t n_batch, int32_t topk,
                                                      const int32_t *ids, const float *logprobs,
                                                      specrt__cuda_tree *trees,
                                                      specrt_cuda_beam *beams, void *stream) {
    return specrt__tree_expand(specrt__tree_pass(), n_batch, topk, ids, logprobs, trees, beams,
                               stream);
}

/* specrt__cuda_topk() of topk rows for each beam, then specrt__cuda_tree_expand(), in one launch.
 *   r, grid : the ranking, as specrt__shortlist_shortlist() prepares it
 *   drafts  : as specrt__cuda_tree_finish() writes them; NULL: not after this level */
static specrt_status specrt__tree_rank(const specrt__shortlist_ranks *r, dim3 grid,
                                       const specrt__tree_position &position,
                                       specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                                       specrt_cuda_draft *drafts, void *stream) {
    return SPECRT__LAUNCH(specrt__tree_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0, stream,
                          *r, position, trees, beams, drafts);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_finish(int32_t n_batch,
                                                      const specrt__cuda_tree *trees,
                                                      specrt_cuda_draft *drafts, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!drafts) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_finish_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__TREE_THREADS), 0, stream, trees, drafts);
}

#endif
