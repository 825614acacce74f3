/* shared.cuh : owns which packed rows of a batch are multiplied once for all of its sequences: those that
 * enough of them hold. Rows are read where they lie in the head; nothing is copied. What a sequence
 * does not hold of the shared rows is masked for it, and what it holds beyond them it lists as its own.
 * Twin: >>stock of the header. Tokens ascend and slots keep their order, whichever thread ran first. */
#ifndef CUDA_SHARED_CUH
#define CUDA_SHARED_CUH

#include "core/base.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"

enum {
    SPECRT__SHARED_THREADS = 512,
    SPECRT__SHARED_EACH = 4,
#if defined(SPECRT_HARNESS)
    SPECRT__SHARED_CHUNK = 64 /* so that small vocabularies have several */
#else
    SPECRT__SHARED_CHUNK = 2048 /* tokens of a block that chooses */
#endif
};

/* All pointers are DEVICE. max_rows 0: sequences have copies of their rows, and there is none of this. */
typedef struct specrt__shared {
    int32_t n_batch, n_ids, capacity;
    int32_t max_rows, least; /* shared rows at most, and by how many a row must be held */
    const int32_t *row_of;   /* the head's; NULL: a token is its row */
    int32_t *holders;        /* [n_ids] how many hold a token; below 0: it is shared */
    int32_t *n_chosen;       /* [chunks] tokens of each that enough hold; behind holders */
    int32_t *ids, *places;   /* [max_rows] tokens, and their rows in the head */
    int32_t *n_rows;         /* [1] */
    uint32_t *masks;         /* [n_batch, words of max_rows] */
    int32_t *own_ids, *own_places, *n_own; /* [n_batch, capacity], [n_batch] */
} specrt__shared;

static __device__ int32_t specrt__shared_place(const specrt__shared &j, int32_t id) {
    return j.row_of ? j.row_of[id] : id;
}

static unsigned specrt__shared_chunks(int32_t n_ids) {
    return specrt__launch_blocks(n_ids, SPECRT__SHARED_CHUNK);
}

/* Thread (r, b): slot r of sequence b. holders and n_chosen are 0. Whoever makes a token's holders enough
 * counts the token, so that no block has to look at tokens of others.
 *   grid (blocks of capacity, n_batch) */
static __global__ void specrt__shared_count_kernel(specrt__shared j,
                                                   const specrt_cuda_state *states) {
    const specrt_cuda_state *s = &states[blockIdx.y];
    int32_t r = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= s->n_rows) return;
    int32_t id = s->ids[r];
    if (atomicAdd(&j.holders[id], 1) + 1 == j.least)
        atomicAdd(&j.n_chosen[id / SPECRT__SHARED_CHUNK], 1);
}

/* How many tokens of lower chunks enough hold. */
static __device__ int32_t specrt__shared_before(const specrt__shared &j, int32_t chunk) {
    int32_t n = 0, before;
    for (int32_t i = specrt__block_thread(); i < chunk; i += specrt__block_threads())
        n += j.n_chosen[i];
    return specrt__block_scan(n, &before);
}

/* Block i: the tokens of chunk i that enough hold, ascending; those beyond max_rows are not shared.
 *   grid (chunks), any block */
static __global__ void __launch_bounds__(SPECRT__SHARED_THREADS)
    specrt__shared_choose_kernel(specrt__shared j) {
    const int kEach = SPECRT__SHARED_EACH;
    int32_t chunk = (int32_t)blockIdx.x, begin = chunk * SPECRT__SHARED_CHUNK;
    int32_t end = specrt__pool_least(begin + SPECRT__SHARED_CHUNK, j.n_ids);
    int32_t n = specrt__shared_before(j, chunk), step = kEach * specrt__block_threads();
    for (int32_t first = begin; first < end; first += step) {
        bool takes[kEach];
        int32_t before[kEach];
        for (int i = 0; i < kEach; i++) {
            int32_t id = first + specrt__block_place(kEach, i);
            takes[i] = id < end && j.holders[id] >= j.least;
        }
        int32_t n_more = specrt__block_ranks<kEach>(takes, before);
        for (int i = 0; i < kEach; i++) {
            int32_t id = first + specrt__block_place(kEach, i), at = n + before[i];
            if (!takes[i] || at >= j.max_rows) continue;
            j.ids[at] = id;
            j.places[at] = specrt__shared_place(j, id);
            j.holders[id] = -1;
        }
        n += n_more;
    }
    if (end == j.n_ids && specrt__block_thread() == 0)
        *j.n_rows = specrt__pool_least(n, j.max_rows);
}

/* Which shared rows a sequence does not hold, 32 a warp at a time. */
static __device__ void specrt__shared_mask(const specrt__shared &j, const specrt_cuda_state *s,
                                           uint32_t *masks) {
    int32_t n = *j.n_rows, threads = specrt__block_threads();
    for (int32_t first = 0; first < n; first += threads) {
        int32_t i = first + specrt__block_thread();
        uint32_t word = __ballot_sync(0xffffffffu, i < n && s->slots[j.ids[i]] < 0);
        if (i % 32 == 0 && i < n) masks[i / 32] = word;
    }
}

/* Block b: the mask of sequence b, and the rows that it holds beyond the shared ones. */
static __global__ void __launch_bounds__(SPECRT__SHARED_THREADS)
    specrt__shared_split_kernel(specrt__shared j, const specrt_cuda_state *states) {
    int32_t b = (int32_t)blockIdx.x, n_words = (j.max_rows + 31) / 32, n = 0;
    const specrt_cuda_state *s = &states[b];
    int32_t *ids = j.own_ids + (int64_t)b * j.capacity;
    int32_t *places = j.own_places + (int64_t)b * j.capacity;
    int32_t n_rows = s->n_rows, threads = specrt__block_threads();
    specrt__shared_mask(j, s, j.masks + (int64_t)b * n_words);
    for (int32_t first = 0; first < n_rows; first += threads) {
        int32_t r = first + specrt__block_thread(), id = r < n_rows ? s->ids[r] : -1, before;
        bool own = id >= 0 && j.holders[id] >= 0;
        int32_t n_more = specrt__block_rank(own, &before);
        if (own) ids[n + before] = id, places[n + before] = specrt__shared_place(j, id);
        n += n_more;
    }
    if (specrt__block_thread() == 0) j.n_own[b] = n;
}

/* What the sequences hold now. */
static specrt_status specrt__shared_update(const specrt__shared &j, const specrt_cuda_state *states,
                                           void *stream) {
    const int threads = 128;
    dim3 grid(specrt__launch_blocks(j.capacity, threads), (unsigned)j.n_batch);
    unsigned n_chunks = specrt__shared_chunks(j.n_ids);
    SPECRT__TRY(specrt__launch_clear(j.holders, (size_t)j.n_ids + n_chunks, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__shared_count_kernel, grid, threads, 0, stream, j, states));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__shared_choose_kernel, n_chunks,
                               specrt__block_size(SPECRT__SHARED_THREADS), 0, stream, j));
    return SPECRT__LAUNCH(specrt__shared_split_kernel, (unsigned)j.n_batch,
                          specrt__block_size(SPECRT__SHARED_THREADS), 0, stream, j, states);
}

#endif
