/* successor.cuh : owns, on the device, the tokens that likeliest follow those of a level. One block a
 * sequence reads the rows of the level all at once, a warp a row; then sums of scores are taken row by
 * row, in the twin's order. */
#ifndef CUDA_SUCCESSOR_CUH
#define CUDA_SUCCESSOR_CUH

#include "core/base.h"
#include "core/shortlist.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/pool.cuh"
#include "cuda/window.cuh"

enum { SPECRT__SUCCESSOR_THREADS = 512 }; /* a warp for each row of a level, up to 16 */

/* Scratch of sequences. */
typedef struct specrt__successor_scratch {
    int32_t degree; /* places of a row of the level */
    uint64_t *keys; /* [n_batch, max_n * degree] */
    uint64_t *best; /* [n_batch, size] */
    int32_t *ids;   /* [n_batch, max_n * degree] new successors of each row; -1: no more */
    float *scores;  /* likewise */
} specrt__successor_scratch;

/* What a level is asked with. */
typedef struct specrt__successor_query {
    specrt__cuda_cograph graph;
    const specrt_cuda_state *state;
    const uint32_t *levels;
    int32_t level, degree;
    int32_t *ids; /* of the sequence, as in its scratch */
    float *scores;
} specrt__successor_query;

/* Whether a token would be a new row at this level. */
static __device__ bool specrt__successor_is_new(const specrt__successor_query *q, int32_t id) {
    if (!specrt__pool_valid(q->state, id)) return false;
    if (q->state->wants[id] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED)) return false;
    return !q->levels || !(q->levels[id] >> q->level & 1);
}

/* The first new successors of a token, which are distinct, on a path of this probability, to the places of
 * its row. A warp calls. Twin: specrt__successor_add. */
static __device__ void specrt__successor_read(const specrt__successor_query *q, int32_t row,
                                              int32_t token, float weight) {
    int32_t lane = specrt__block_thread() % 32, n_new = 0;
    bool known = token >= 0 && token < q->graph.n_vocab;
    uint32_t first = known ? q->graph.offsets[token] : 0;
    uint32_t end = known ? q->graph.offsets[token + 1] : 0;
    float scale = end > first ? weight / (float)q->graph.totals[token] : 0;
    int32_t *ids = q->ids + (int64_t)row * q->degree;
    float *scores = q->scores + (int64_t)row * q->degree;
    for (; first < end && n_new < q->degree; first += 32) {
        uint32_t edge = first + (uint32_t)lane;
        int32_t id = edge < end ? q->graph.ids[edge] : -1;
        float score = edge < end ? scale * (q->graph.counts[edge] - 0.5f) : 0;
        bool is_new = id >= 0 && specrt__successor_is_new(q, id);
        unsigned ballot = __ballot_sync(0xffffffffu, is_new);
        int32_t place = n_new + __popc(ballot & ((1u << lane) - 1));
        if (is_new && place < q->degree) {
            ids[place] = id;
            scores[place] = score > FLT_MIN ? score : FLT_MIN;
        }
        n_new += __popc(ballot);
    }
    for (int32_t place = n_new + lane; place < q->degree; place += 32) ids[place] = -1;
}

/* The first place of each token gets its scores of all rows, in their order; what comes later has -2 - that
 * place for its id. */
static __device__ void specrt__successor_merge(const specrt__successor_query *q, int32_t n) {
    int32_t n_places = n * q->degree, thread = specrt__block_thread();
    unsigned *marks = (unsigned *)q->state->marks;
    for (int32_t i = thread; i < n_places; i += specrt__block_threads())
        if (q->ids[i] >= 0) atomicMin(&marks[q->ids[i]], (unsigned)i);
    __syncthreads();
    for (int32_t i = thread; i < n_places; i += specrt__block_threads()) {
        int32_t place = q->ids[i] >= 0 ? (int32_t)marks[q->ids[i]] : i;
        if (place != i) q->ids[i] = -2 - place;
    }
    __syncthreads();
    for (int32_t row = 1; row < n; row++) {
        int32_t end = (row + 1) * q->degree;
        for (int32_t i = end - q->degree + thread; i < end; i += specrt__block_threads()) {
            int32_t place = -2 - q->ids[i];
            if (place >= 0) q->scores[place] = __fadd_rn(q->scores[place], q->scores[i]);
        }
        __syncthreads();
    }
}

/* Keys of the tokens that were found, in the order of finding. @return how many. */
static __device__ int32_t specrt__successor_keys(const specrt__successor_query *q, int32_t n_places,
                                                 uint64_t *keys) {
    int32_t each = (n_places + specrt__block_threads() - 1) / specrt__block_threads();
    int32_t first = each * specrt__block_thread(), n = 0, place;
    int32_t end = specrt__pool_least(first + each, n_places);
    for (int32_t i = first; i < end; i++) n += q->ids[i] >= 0;
    int32_t n_found = specrt__block_scan(n, &place);
    for (int32_t i = first; i < end; i++) {
        int32_t id = q->ids[i];
        if (id < 0) continue;
        keys[place++] = (uint64_t)__float_as_uint(q->scores[i]) << 32 | (uint32_t)~id;
        q->state->marks[id] = -1;
    }
    __syncthreads();
    return n_found;
}

/* Block b: the best `size` over all tokens of sequence b's level.
 *   grid (n_batch), any block.
 *   Twins: specrt__successor_union, and specrt__successor_chain for one row, whose result it has */
static __global__ void
specrt__successor_kernel(specrt__cuda_cograph graph, int32_t max_n, const int32_t *row_of,
                         const specrt_cuda_beam *beams, specrt__cuda_taken taken,
                         specrt__successor_scratch s, specrt__cuda_choice c) {
    const specrt_cuda_beam *beam = &beams[blockIdx.x];
    int64_t at = (int64_t)blockIdx.x * max_n * s.degree, out = (int64_t)blockIdx.x * c.max_rows;
    const specrt_cuda_state *state = &taken.states[blockIdx.x];
    const uint32_t *levels = taken.levels;
    if (levels) levels += (int64_t)blockIdx.x * state->params.n_ids;
    specrt__successor_query q = {graph,    state,      levels,       taken.level,
                                 s.degree, s.ids + at, s.scores + at};
    int32_t n = specrt__pool_least(beam->n, max_n), n_warps = specrt__block_threads() / 32;
    for (int32_t i = specrt__block_thread() / 32; i < n; i += n_warps)
        specrt__successor_read(&q, i, beam->tokens[i], expf(beam->logprobs[i] - beam->logprobs[0]));
    __syncthreads();
    specrt__successor_merge(&q, n);
    int32_t n_found = specrt__successor_keys(&q, n * s.degree, s.keys + at);
    uint64_t least = specrt__shortlist_least(s.keys + at, n_found, c.max_rows);
    n_found = specrt__shortlist_collect(s.keys + at, n_found, c.max_rows, least, s.best + out);
    for (int32_t i = specrt__block_thread(); i < n_found; i += specrt__block_threads()) {
        int32_t id = specrt__shortlist_key_id(s.best[out + i]);
        c.ids[out + i] = id;
        c.places[out + i] = row_of ? row_of[id] : id;
        specrt__pool_name(taken, (int32_t)blockIdx.x, state->params.n_ids, id);
    }
    if (specrt__block_thread() > 0) return;
    c.n_rows[blockIdx.x] = n_found;
    specrt__pool_tally(taken, (int32_t)blockIdx.x, n, n_found);
}

/* --- launches --- */

static size_t specrt__successor_lay_out(const specrt__cuda_cograph *graph, int32_t n_batch,
                                        int32_t max_n, int32_t size, void *memory,
                                        specrt__successor_scratch *out) {
    out->degree = graph->max_degree < size ? (int32_t)graph->max_degree : size;
    size_t n = (size_t)n_batch * (size_t)max_n * (size_t)out->degree;
    specrt__launch_arena arena = {memory, 0};
    specrt__launch_carve(&arena, n, &out->keys);
    specrt__launch_carve(&arena, (size_t)n_batch * (size_t)size, &out->best);
    specrt__launch_carve(&arena, n, &out->ids);
    specrt__launch_carve(&arena, n, &out->scores);
    return arena.bytes;
}

static bool specrt__successor_sizes_ok(const specrt__cuda_cograph *graph, int32_t n_batch,
                                       int32_t max_n, int32_t size) {
    return graph && n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH && max_n >= 1 &&
           max_n <= SPECRT_TREE_MAX_TOPK && graph->n_vocab >= 1 &&
           graph->n_vocab <= SPECRT_MAX_VOCAB && size >= 1 && size <= graph->n_vocab &&
           graph->max_degree >= 1;
}

SPECRT__KERNEL size_t specrt__cuda_successors_bytes(const specrt__cuda_cograph *graph,
                                                    int32_t n_batch, int32_t max_n, int32_t size) {
    specrt__successor_scratch scratch;
    if (!specrt__successor_sizes_ok(graph, n_batch, max_n, size)) return 0;
    return specrt__successor_lay_out(graph, n_batch, max_n, size, NULL, &scratch);
}

SPECRT__KERNEL specrt_status specrt__cuda_successors(
    const specrt__cuda_cograph *graph, int32_t n_batch, int32_t max_n, const int32_t *row_of,
    const specrt_cuda_beam *beams, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream) {
    specrt__successor_scratch s;
    SPECRT__TRY(specrt__window_check_choice(choice));
    if (!specrt__successor_sizes_ok(graph, n_batch, max_n, choice->max_rows))
        return SPECRT_STATUS_BAD_ARG;
    if (!graph->totals || !graph->offsets || !graph->ids || !graph->counts || !beams || !taken ||
        !taken->states || !scratch || taken->level < 0 || taken->level >= SPECRT_TREE_MAX_STEPS)
        return SPECRT_STATUS_BAD_ARG;
    specrt__successor_lay_out(graph, n_batch, max_n, choice->max_rows, scratch, &s);
    return SPECRT__LAUNCH(specrt__successor_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__SUCCESSOR_THREADS), 0, stream, *graph, max_n,
                          row_of, beams, *taken, s, *choice);
}

#endif
