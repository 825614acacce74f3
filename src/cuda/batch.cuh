/* batch.cuh : owns what sessions do with each sequence of a batch beside the state of other sections:
 * where it stands, what came of a cycle, which rows of a level count. A thread is a sequence, in any
 * grid of blocks; in one kernel a row, in one a warp is the sequence. */
#ifndef CUDA_BATCH_CUH
#define CUDA_BATCH_CUH

#include "core/base.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"
#include "cuda/tree.cuh"
#include "cuda/ring.cuh"

/* What shortlists read. */
typedef struct specrt__batch_costs {
    bool packs;          /* rows are copied; not so where they are shared */
    int32_t n_fixed;     /* rows that all sequences share */
    int64_t row, n_read; /* bytes of a row, and of a level's weights and codes */
    int64_t markov;      /* of a row of a Markov head; 0: there is none */
} specrt__batch_costs;

/* Sequences of a batch, side by side: all DEVICE [n], but for what says otherwise. */
typedef struct specrt__batch_part {
    int32_t n;
    specrt_cuda_state *states;
    specrt__cuda_tree *trees;
    specrt_cuda_beam *beams;
    specrt_cuda_draft *drafts;
    specrt_verdict *verdicts, *learns; /* learns: what observe() learns from */
    specrt_sampling *samplings;
    specrt_session_stats *stats;
    /* Bit i of [n, n_ids]: routed at level i of this cycle; NULL: nothing routes. */
    uint32_t *routed;
    int32_t n_ids, n_vocab;      /* n_vocab: what the target emits is below it */
    specrt__cuda_tally *tallies; /* [n, SPECRT_TREE_MAX_STEPS] of this cycle; NULL likewise */
    specrt__batch_costs costs;
} specrt__batch_part;

/* n of them, from number `first` on. */
static specrt__batch_part specrt__batch_of(specrt__batch_part all, int32_t first, int32_t n) {
    specrt__batch_part part = all;
    part.n = n;
    part.states += first;
    part.trees += first;
    part.beams += first;
    part.drafts += first;
    part.verdicts += first;
    part.learns += first;
    part.samplings += first;
    part.stats += first;
    if (!all.routed) return part;
    part.routed += (int64_t)first * all.n_ids;
    part.tallies += (int64_t)first * SPECRT_TREE_MAX_STEPS;
    return part;
}

static __device__ int32_t specrt__batch_index(void) {
    return (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
}

/* Position 0, nothing drafted or emitted. Twin: specrt_session_begin.
 *   step : what the number of the generation goes on by */
static __global__ void specrt__batch_begin_kernel(specrt__batch_part all, uint64_t step) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    specrt__cuda_tree *tree = &all.trees[b];
    SPECRT__CLEAR(&all.stats[b], 1);
    all.samplings[b].generation += step;
    tree->position = 0;
    tree->cycle = 0;
    tree->level = tree->n_candidates = tree->n_beam = 0;
    all.beams[b].n = all.drafts[b].n = all.verdicts[b].n = 0;
}

/* One sequence has n more prompt tokens, of which the next launch takes *count. */
static __global__ void specrt__batch_advance_kernel(specrt__cuda_tree *tree, int32_t n,
                                                    int32_t *count) {
    if (specrt__batch_index() != 0) return;
    tree->position += n;
    *count = n;
}

/* Drafts that are a root alone, before the position to draw. */
static __global__ void specrt__batch_ask_kernel(specrt__batch_part all, specrt_cuda_draft *asked) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    asked[b].n = 1;
    asked[b].tokens[0] = asked[b].depths[0] = 0;
    asked[b].parents[0] = -1;
    asked[b].masks[0] = 1;
    asked[b].logprobs[0] = 0;
    asked[b].positions[0] = all.trees[b].position - 1;
}

/* tokens: -1 where nothing was drawn. */
static __global__ void specrt__batch_answer_kernel(int32_t n, const specrt_verdict *verdicts,
                                                   int32_t *tokens) {
    int32_t b = specrt__batch_index();
    if (b < n) tokens[b] = verdicts[b].n > 0 ? verdicts[b].tokens[0] : -1;
}

/* Whether the level that would have drafted a token could; beyond the last that drafted, that one. Twin:
 * specrt_session_member. */
static __device__ bool specrt__batch_member(const specrt_cuda_state *s, const uint32_t *routed,
                                            int32_t token, int32_t level, int32_t n_levels) {
    if (token < 0 || token >= s->params.n_ids) return false;
    if (s->wants[token] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED)) return true;
    if (!routed || n_levels == 0) return false;
    return routed[token] >> (level < n_levels ? level : n_levels - 1) & 1;
}

/* The passes of sequence b's tree, into its sums or a copy of them. Twin: specrt_session_route.
 * @return the rows that were routed, mean. */
static __device__ int64_t specrt__batch_add_passes(const specrt__batch_part &all, int32_t b,
                                                   specrt_session_stats *stats) {
    const specrt__cuda_tally *tallies =
        all.tallies ? all.tallies + (int64_t)b * SPECRT_TREE_MAX_STEPS : NULL;
    int64_t n_kept = all.costs.n_fixed + all.states[b].n_rows, n_routed = 0, n_bytes = 0;
    int32_t n_levels = all.trees[b].level;
    bool block = all.trees[b].block != 0; /* what all of its positions score is multiplied once */
    int32_t n_products = block && !tallies ? 1 : n_levels;
    for (int32_t t = 0; t < n_levels || t < n_products; t++) {
        int64_t n_rows = n_kept + (tallies ? tallies[t].n_rows : 0);
        if (t < n_levels) n_bytes += n_rows * all.costs.markov;
        if (block && t > 0) n_rows -= n_kept;
        if (t < n_products) n_bytes += all.costs.n_read + n_rows * all.costs.row;
        if (tallies && tallies[t].n > 0)
            n_routed += tallies[t].n_shared + tallies[t].n_scored / tallies[t].n;
    }
    stats->n_bytes += n_bytes;
    stats->n_passes += n_levels;
    return n_levels > 0 ? n_routed / n_levels : 0;
}

/* A cycle of sequence b. Twin: the counting in specrt_session_observe. */
static __device__ void specrt__batch_count(const specrt__batch_part &all, int32_t b,
                                           int32_t n_emitted, int32_t n_covered) {
    specrt_session_stats *stats = &all.stats[b];
    int64_t n_routed = specrt__batch_add_passes(all, b, stats);
    if (n_emitted < 1) return;
    stats->n_cycles++;
    stats->n_emitted += n_emitted;
    stats->n_drafted += all.drafts[b].n - 1;
    stats->n_rows += all.costs.n_fixed + all.states[b].n_rows + n_routed;
    stats->n_by_length[n_emitted]++;
    stats->n_covered += n_covered;
}

/* Nothing is routed of a tree that has just begun. Lanes of a warp call. */
static __device__ void specrt__batch_forget(const specrt__batch_part &all, int32_t b,
                                            int32_t lane) {
    __syncwarp();
    for (int32_t t = lane; t < SPECRT_TREE_MAX_STEPS && all.tallies; t += 32)
        SPECRT__CLEAR(&all.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + t], 1);
}

/* The first token after the prompt is what a verdict says that has no draft; it is the root of the first
 * tree. What is no token roots none: the sequence rests. A warp is a sequence. Twin: specrt_session_start. */
static __global__ void specrt__batch_start_kernel(specrt__batch_part all, const int32_t *tokens) {
    int32_t b = specrt__batch_index() / 32, lane = specrt__batch_index() % 32;
    if (b >= all.n) return;
    if (lane == 0) {
        specrt__batch_count(all, b, 0, 0);
        all.drafts[b].n = 0;
        all.verdicts[b].n = tokens[b] >= 0 && tokens[b] < all.n_vocab;
        all.verdicts[b].tokens[0] = tokens[b];
        all.verdicts[b].nodes[0] = 0;
        all.verdicts[b].end = SPECRT_END_NONE;
        specrt__tree_root(&all.trees[b], &all.verdicts[b], &all.beams[b]);
    }
    specrt__batch_forget(all, b, lane);
}

/* Whether a verdict is a path of its draft from the root, and both are of tokens: an engine that verifies on
 * its own writes them. Lanes of a warp call. Twin: specrt_session_observe, which refuses others.
 *   max_nodes : of a draft */
static __device__ bool specrt__batch_is_path(const specrt_cuda_draft *draft,
                                             const specrt_verdict *verdict, int32_t max_nodes,
                                             int32_t n_vocab, int32_t lane) {
    int32_t n_nodes = draft->n, n = verdict->n;
    bool ok = n >= 1 && n <= n_nodes && n_nodes <= max_nodes && verdict->nodes[0] == 0;
    for (int32_t i = lane; i < n_nodes && ok; i += 32)
        ok = draft->tokens[i] >= 0 && draft->tokens[i] < n_vocab;
    for (int32_t i = lane; i < n && ok; i += 32) {
        int32_t node = verdict->nodes[i];
        ok = node >= i && node < n_nodes && verdict->tokens[i] >= 0 && verdict->tokens[i] < n_vocab;
        if (ok && i > 0)
            ok = node > verdict->nodes[i - 1] && draft->tokens[node] == verdict->tokens[i - 1];
    }
    return __ballot_sync(0xffffffffu, !ok) == 0;
}

/* What observe() learns from: verdicts of drafts, which are counted; then their next trees begin. Where there
 * was no draft, as after start(), or the verdict is no path of it, the tree stays. A warp is a sequence.
 * Twin: specrt_session_observe. */
static __global__ void specrt__batch_learn_kernel(specrt__batch_part all) {
    int32_t b = specrt__batch_index() / 32, lane = specrt__batch_index() % 32, n_covered = 0;
    if (b >= all.n) return;
    const specrt_verdict *verdict = &all.verdicts[b];
    const uint32_t *routed = all.routed ? all.routed + (int64_t)b * all.n_ids : NULL;
    bool known = specrt__batch_is_path(&all.drafts[b], verdict,
                                       all.trees[b].params.num_draft_tokens, all.n_vocab, lane);
    int32_t n_levels = all.trees[b].level, n_emitted = known ? verdict->n : 0;
    for (int32_t i = lane; i < n_emitted; i += 32) {
        int32_t token = verdict->tokens[i];
        all.learns[b].tokens[i] = token;
        all.learns[b].nodes[i] = verdict->nodes[i];
        n_covered += specrt__batch_member(&all.states[b], routed, token, i, n_levels);
    }
    for (int by = 16; by > 0; by /= 2) n_covered += __shfl_xor_sync(0xffffffffu, n_covered, by);
    if (lane == 0) all.learns[b].n = n_emitted;
    if (n_emitted == 0) return;
    __syncwarp(); /* all lanes have read the level of the tree, which is begun anew */
    if (lane == 0) {
        specrt__batch_count(all, b, n_emitted, n_covered);
        specrt__tree_root(&all.trees[b], verdict, &all.beams[b]);
    }
    specrt__batch_forget(all, b, lane);
}

/* Sums, and the tree at hand. caches [n] or NULL: nothing retrieves. Twin: specrt_session_get_stats */
static __global__ void specrt__batch_stats_kernel(specrt__batch_part all,
                                                  const specrt__ring_cache *caches,
                                                  specrt_session_stats *out) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    out[b] = all.stats[b];
    specrt__batch_add_passes(all, b, &out[b]);
    out[b].n_copied = all.costs.packs ? all.states[b].n_copied : 0;
    out[b].n_events = caches ? caches[b].n_events : 0;
    out[b].n_lost = caches ? caches[b].n_lost : 0;
}

/* Rows that a source chose for a level. */
typedef struct specrt__batch_choice {
    const int32_t *ids;        /* of sequence b from ids_step * b on */
    const int32_t *n_rows;     /* of sequence b at n_step * b; NULL: max_rows */
    const uint64_t *scored_by; /* [n_batch, max_rows]; NULL: by all */
    int64_t ids_step;
    int32_t n_step, max_rows;
} specrt__batch_choice;

/* Thread (r, b): bit r of the mask of sequence b: whether an earlier source has the token of row r at this
 * level, or another row of this one has, or none may. What is new is this level's from here on.
 *   masks [n_batch, words of max_rows]
 *   grid (blocks of max_rows, n_batch), block a multiple of 32.  Twin: specrt__source_route */
static __global__ void specrt__batch_claim_kernel(specrt__batch_part all, specrt__batch_choice c,
                                                  int32_t level, uint32_t *masks) {
    int32_t b = (int32_t)blockIdx.y, r = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    int32_t n = c.n_rows ? c.n_rows[(int64_t)b * c.n_step] : c.max_rows;
    int32_t id = r < n ? c.ids[b * c.ids_step + r] : -1, n_beam = all.beams[b].n;
    uint32_t *mine = all.routed + (int64_t)b * all.n_ids + (id < 0 ? 0 : id);
    bool masked = id >= 0 &&
                  (all.states[b].wants[id] != 0 || (atomicOr(mine, 1u << level) >> level & 1) != 0);
    uint32_t word = __ballot_sync(0xffffffffu, masked);
    if (threadIdx.x % 32 == 0 && r < c.max_rows)
        masks[(int64_t)b * ((c.max_rows + 31) / 32) + r / 32] = word;
    specrt__cuda_tally *tally = &all.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + level];
    if (r == 0) {
        tally->n = n_beam;
        tally->n_rows += n;
        if (!c.scored_by) tally->n_shared += n;
    }
    if (!c.scored_by) return;
    uint64_t every = n_beam < 64 ? ((uint64_t)1 << n_beam) - 1 : ~(uint64_t)0;
    uint64_t by = id < 0 ? 0 : c.scored_by[(int64_t)b * c.max_rows + r] & every;
    int32_t before, sum = specrt__block_scan(__popcll(by), &before);
    if (threadIdx.x == 0) atomicAdd(&tally->n_scored, sum);
}

#endif
