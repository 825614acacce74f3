/* sketch_find.cuh : owns which tokens a level's states name: the best of each by score, and the best over
 * all states by probability. Probabilities are whole numbers, added in any order. */
#ifndef CUDA_SKETCH_FIND_CUH
#define CUDA_SKETCH_FIND_CUH

#include "core/base.h"
#include "core/shortlist.h"
#include "sources/sketch.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/pool.cuh"
#include "cuda/scan.cuh"

enum {
    SPECRT__SKETCH_THREADS = 1024,
    SPECRT__SKETCH_NAMERS = 8,   /* blocks of a state that look for what it names */
    SPECRT__SKETCH_NAMING = 512, /* their threads */
    SPECRT__SKETCH_CHUNK = 256,  /* groups side by side that come to the same of these blocks */
    SPECRT__SKETCH_SOME = 4096,  /* keys that shared memory holds */
    SPECRT__SKETCH_ITEMS = 4     /* groups or places of a thread, read together */
};

typedef struct specrt__sketch_level {
    specrt__scan_level scan;
    int32_t n_most;  /* groups that may hold what a state names: its size, or all */
    int32_t *groups; /* [rows, n_most] */
    uint64_t *keys;  /* [rows, 16 n_most] what may be named */
    uint64_t *found; /* [rows, size] keys of what is; 0: none */
    /* All 0 before a level but n_named, and so left. */
    uint32_t *tickets; /* [n_batch], then [rows] */
    int32_t *
        n_named; /* [rows, NAMERS] keys that each block found; more than it has room for: not all */
    uint64_t *weights; /* [n_batch, n_ids] of tokens found, in 2^-56 */
    uint32_t *finders; /* [n_batch, n_ids] MAX_STATES less the first state that found the token */
} specrt__sketch_level;

/* --- what one state finds --- */

/* Where keys that reach a least one come to stand, in order: as many as there is room for, but all count. */
typedef struct specrt__sketch_keys {
    uint64_t *out, least;
    int32_t n, room;
} specrt__sketch_keys;

/* Groups of a state whose greatest key reaches `least`, in order. @return how many. */
static __device__ int32_t specrt__sketch_take_groups(const specrt__sketch_level &level, size_t row,
                                                     uint64_t least) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    int32_t *groups = level.groups + row * (size_t)level.n_most, n = 0, before[kEach];
    bool take[kEach];
    for (int32_t first = 0; first < level.scan.n_groups; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            take[j] = i < level.scan.n_groups && best[i] >= least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && n + before[j] < level.n_most)
                groups[n + before[j]] = first + specrt__block_place(kEach, j);
        n += n_taken;
    }
    __syncthreads();
    return n < level.n_most ? n : level.n_most;
}

/* Adds the keys of n groups of a state. */
static __device__ void specrt__sketch_take_keys(const specrt__cuda_sketch &s,
                                                const specrt__sketch_level &level, size_t row,
                                                const int32_t *groups, int32_t n_groups,
                                                specrt__sketch_keys *keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    const uint32_t *order = level.scan.order + row * 16 * (size_t)level.scan.n_groups;
    uint32_t high[kEach];
    int32_t at[kEach], before[kEach]; /* at: places, rows, then tokens */
    bool take[kEach];
    for (int32_t first = 0; first < 16 * n_groups; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            at[j] = i < 16 * n_groups ? 16 * groups[i / 16] + i % 16 : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) high[j] = at[j] < 0 ? 0 : order[at[j]];
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            take[j] = high[j] > 0 && high[j] >= (uint32_t)(keys->least >> 32);
            if (take[j]) at[j] = s.rows[at[j]];
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            if (take[j] && s.ids) at[j] = s.ids[at[j]];
            take[j] = take[j] && ((uint64_t)high[j] << 32 | (uint32_t)~at[j]) >= keys->least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && keys->n + before[j] < keys->room)
                keys->out[keys->n + before[j]] = (uint64_t)high[j] << 32 | (uint32_t)~at[j];
        keys->n += n_taken;
    }
    __syncthreads();
}

/* The keys of the places that a state scores best, in order, by one block from all there are. The `size`
 * groups with the greatest keys have a key each that reaches the least of these: what does not is not among
 * the best. Keys are distinct, so no other group has any that does, and room for theirs is room for all.
 * @return how many. */
static __device__ int32_t specrt__sketch_find(const specrt__cuda_sketch &s,
                                              const specrt__sketch_level &level, size_t row,
                                              uint64_t *found) {
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    const int32_t *groups = level.groups + row * (size_t)level.n_most;
    int32_t room = 16 * level.n_most;
    specrt__sketch_keys keys = {level.keys + row * (size_t)room, 0, 0, room};
    keys.least = specrt__shortlist_least(best, level.scan.n_groups, s.size);
    int32_t n_groups = specrt__sketch_take_groups(level, row, keys.least);
    specrt__sketch_take_keys(s, level, row, groups, n_groups, &keys);
    uint64_t least = specrt__shortlist_least(keys.out, keys.n, s.size);
    return specrt__shortlist_collect(keys.out, keys.n, s.size, least, found);
}

/* --- the same by several blocks --- */

/* The least key of the lowest bin whose groups, with those of higher bins, are as many as a state names: so
 * many keys reach it, and not many more. At least 1. counts [SPECRT__SCAN_BINS] */
static __device__ uint64_t specrt__sketch_floor(const uint32_t *counts, int32_t size) {
    __shared__ int32_t bin;
    const int32_t kEach = 8;
    int32_t above = 0, before;
    if (threadIdx.x == 0) bin = 0;
    for (int32_t end = SPECRT__SCAN_BINS; end > 0 && above < size;
         end -= kEach * (int32_t)blockDim.x) {
        int32_t lowest = end - kEach * ((int32_t)threadIdx.x + 1), sum = 0;
        const uint4 *some = (const uint4 *)(const void *)(counts + (lowest < 0 ? 0 : lowest));
        uint4 low = some[0], high = some[1];
        if (lowest < 0) low = high = make_uint4(0, 0, 0, 0);
        const uint32_t falling[kEach] = {high.w, high.z, high.y, high.x,
                                         low.w,  low.z,  low.y,  low.x};
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) sum += (int32_t)falling[j];
        int32_t total = specrt__block_scan(sum, &before), n = above + before;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t upto = n + (int32_t)falling[j];
            if (n < size && upto >= size) bin = lowest + kEach - 1 - j;
            n = upto;
        }
        above += total;
    }
    __syncthreads();
    return bin > 0 ? (uint64_t)bin << SPECRT__SCAN_SHIFT : 1;
}

/* Keys of a state that reach the floor, of the groups that come to this block: every NAMERS-th chunk, since
 * the best lie side by side. */
static __device__ void specrt__sketch_look(const specrt__cuda_sketch &s,
                                           const specrt__sketch_level &level, size_t row,
                                           int32_t part, specrt__sketch_keys *keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    __shared__ int32_t groups[kEach * SPECRT__SKETCH_NAMING];
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    const int32_t kChunk = SPECRT__SKETCH_CHUNK, kParts = SPECRT__SKETCH_NAMERS;
    int32_t n_chunks = (level.scan.n_groups + kChunk - 1) / kChunk, before[kEach], group[kEach];
    int32_t n_mine = (n_chunks - part + kParts - 1) / kParts * kChunk;
    bool take[kEach];
    for (int32_t first = 0; first < n_mine; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            group[j] = (i / kChunk * kParts + part) * kChunk + i % kChunk;
            take[j] = i < n_mine && group[j] < level.scan.n_groups && best[group[j]] >= keys->least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j]) groups[before[j]] = group[j];
        __syncthreads();
        specrt__sketch_take_keys(s, level, row, groups, n_taken, keys);
    }
}

/* Block `part` of a state: its keys that may be named. */
static __device__ void specrt__sketch_name(const specrt__cuda_sketch &s,
                                           const specrt__sketch_level &level, size_t row,
                                           int32_t part) {
    int32_t room = 16 * level.n_most / SPECRT__SKETCH_NAMERS;
    size_t at = row * SPECRT__SKETCH_NAMERS + (size_t)part;
    specrt__sketch_keys keys = {level.keys + at * (size_t)room, 0, 0, room};
    keys.least = specrt__sketch_floor(level.scan.counts + row * (size_t)SPECRT__SCAN_BINS, s.size);
    specrt__sketch_look(s, level, row, part, &keys);
    if (threadIdx.x == 0) level.n_named[at] = keys.n;
}

/* What the blocks of a state found, side by side. @return how many; -1: some had no room, or `some` has not.
 *   some : [SPECRT__SKETCH_SOME] */
static __device__ int32_t specrt__sketch_bring(const specrt__sketch_level &level, size_t row,
                                               uint64_t *some) {
    const int32_t *n_named = level.n_named + row * SPECRT__SKETCH_NAMERS;
    int32_t room = 16 * level.n_most / SPECRT__SKETCH_NAMERS, ends[SPECRT__SKETCH_NAMERS], n = 0;
    const uint64_t *keys = level.keys + row * SPECRT__SKETCH_NAMERS * (size_t)room;
    bool fits = true;
    SPECRT__LAUNCH_UNROLL
    for (int part = 0; part < SPECRT__SKETCH_NAMERS; part++) {
        fits = fits && n_named[part] <= room;
        ends[part] = n += n_named[part];
    }
    if (!fits || n > SPECRT__SKETCH_SOME) return -1;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t at = i;
        SPECRT__LAUNCH_UNROLL
        for (int part = 0; part + 1 < SPECRT__SKETCH_NAMERS; part++)
            if (i >= ends[part]) at = (part + 1) * room + i - ends[part];
        some[i] = keys[at];
    }
    __syncthreads();
    return n;
}

/* The last block of a state: what it finds, and the counts are 0 again. @return how many. */
static __device__ int32_t specrt__sketch_choose(const specrt__cuda_sketch &s,
                                                const specrt__sketch_level &level, size_t row,
                                                uint64_t *some, uint64_t *found) {
    uint4 *counts = (uint4 *)(void *)(level.scan.counts + row * (size_t)SPECRT__SCAN_BINS);
    for (int32_t i = (int32_t)threadIdx.x; i < SPECRT__SCAN_BINS / 4; i += (int32_t)blockDim.x)
        counts[i] = make_uint4(0, 0, 0, 0);
    int32_t n = specrt__sketch_bring(level, row, some);
    if (n < 0) return specrt__sketch_find(s, level, row, found); /* where thousands are alike */
    return specrt__shortlist_collect(some, n, s.size, specrt__shortlist_least(some, n, s.size),
                                     found);
}

/* --- what they find together --- */

/* The probability of a state's path, of those of n, relative to the likeliest. */
static __device__ uint64_t specrt__sketch_path(const float *logprobs, int32_t n, int32_t h) {
    float most = -INFINITY;
    for (int32_t i = 0; i < n && logprobs; i++) most = logprobs[i] > most ? logprobs[i] : most;
    return specrt__base_decay(logprobs ? most - logprobs[h] : 0);
}

/* Adds the n keys that state h found, each by the path and the state's own estimate of the next token.
 *   weights, finders : the sequence's;  Twin: specrt__sketch_weigh */
static __device__ void specrt__sketch_add(const uint64_t *found, int32_t n, int32_t h,
                                          uint64_t path, uint64_t *weights, uint32_t *finders) {
    uint64_t greatest = 0, sum = 0, before;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        if (found[i] > greatest) greatest = found[i];
    float most = specrt__shortlist_key_logit(specrt__block_max(greatest));
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        sum += specrt__base_decay(most - specrt__shortlist_key_logit(found[i]));
    sum = specrt__block_scan(sum, &before);
    double share = sum > 0 ? (double)path * 65536.0 / (double)sum : 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t id = specrt__shortlist_key_id(found[i]);
        uint64_t e = specrt__base_decay(most - specrt__shortlist_key_logit(found[i]));
        uint64_t weight = e > 0 ? (uint64_t)((double)e * share) : 0;
        atomicAdd((unsigned long long *)&weights[id], weight > 0 ? weight : 1);
        atomicMax(&finders[id], (uint32_t)(SPECRT__CUDA_MAX_STATES - h));
    }
}

/* Keys of a sequence's tokens by their weights, in place of what its n states found: each once, where the
 * first of them found it. Weights and finders are 0 again.
 *   found : [n, size];  some : [SPECRT__SKETCH_SOME], where the keys stand if they fit
 * @return how many keys, or n * size with others that are 0; *keys: where. */
static __device__ int32_t specrt__sketch_join(uint64_t *found, int32_t n, int32_t size,
                                              uint64_t *weights, uint32_t *finders, uint64_t *some,
                                              const uint64_t **keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    int32_t n_out = 0, before[kEach];
    uint64_t key[kEach];
    bool take[kEach];
    for (int32_t first = 0; first < n * size; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            key[j] = i < n * size ? found[i] : 0;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j),
                    id = specrt__shortlist_key_id(key[j]);
            take[j] = key[j] && finders[id] == (uint32_t)(SPECRT__CUDA_MAX_STATES - i / size);
            key[j] = take[j] ? specrt__shortlist_key((float)weights[id], id) : 0;
            if (i < n * size) found[i] = key[j];
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && n_out + before[j] < SPECRT__SKETCH_SOME)
                some[n_out + before[j]] = key[j];
        n_out += n_taken;
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n * size; i += (int32_t)blockDim.x) {
        if (!found[i]) continue;
        weights[specrt__shortlist_key_id(found[i])] = 0;
        finders[specrt__shortlist_key_id(found[i])] = 0;
    }
    *keys = n_out <= SPECRT__SKETCH_SOME ? some : found;
    return n_out <= SPECRT__SKETCH_SOME ? n_out : n * size;
}

/* The best of n keys as rows of sequence b, in order.
 *   n_states : that the sequence has */
static __device__ void specrt__sketch_list(const specrt__cuda_sketch &s,
                                           const specrt__cuda_taken &taken, int32_t b,
                                           int32_t n_states, const uint64_t *keys, int32_t n,
                                           const specrt__cuda_choice &choice) {
    uint64_t least = specrt__shortlist_least(keys, n, s.size);
    int32_t *ids = choice.ids + (int64_t)b * s.size, n_out = 0, before;
    int32_t *places = choice.places + (int64_t)b * s.size;
    for (int32_t first = 0; first < n; first += (int32_t)blockDim.x) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool take = i < n && keys[i] >= least;
        int32_t n_taken = specrt__block_rank(take, &before), at = n_out + before;
        if (take && at < s.size) {
            ids[at] = specrt__shortlist_key_id(keys[i]);
            places[at] = s.row_of ? s.row_of[ids[at]] : ids[at];
            specrt__pool_name(taken, b, s.n_ids, ids[at]);
        }
        n_out += n_taken;
    }
    if (threadIdx.x > 0) return;
    choice.n_rows[b] = n_out < s.size ? n_out : s.size;
    specrt__pool_tally(taken, b, n_states, choice.n_rows[b]);
}

/* Block (i, h, b): part i of what state h of the sequence finds; a state's last block joins these, a
 * sequence's last one makes of them ids[b, :], places[b, :] and n_rows[b] of the level.
 *   grid (SPECRT__SKETCH_NAMERS, max_n, n_batch), any block up to SPECRT__SKETCH_NAMING
 *   CPU twins: specrt__sketch_search(), specrt__sketch_join() */
static __global__ void __launch_bounds__(SPECRT__SKETCH_NAMING, 2)
    specrt__sketch_name_all(specrt__cuda_sketch s, specrt__sketch_level level,
                            const float *logprobs, specrt__cuda_choice choice) {
    __shared__ uint64_t some[SPECRT__SKETCH_SOME];
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y, part = (int32_t)blockIdx.x;
    int32_t n = specrt__scan_count(level.scan, b), size = s.size;
    size_t first = (size_t)b * (size_t)level.scan.max_n, row = first + (size_t)h;
    uint64_t *all = level.found + first * (size_t)size, *found = all + (size_t)h * (size_t)size;
    uint64_t *weights = level.weights + (size_t)b * (size_t)s.n_ids;
    uint32_t *finders = level.finders + (size_t)b * (size_t)s.n_ids;
    const uint64_t *keys = found;
    if (n <= 0 && h == 0 && part == 0 && threadIdx.x == 0) choice.n_rows[b] = 0;
    if (h >= n) return;
    specrt__sketch_name(s, level, row, part);
    if (!specrt__block_last(&level.tickets[gridDim.z + row], SPECRT__SKETCH_NAMERS)) return;
    int32_t n_found = specrt__sketch_choose(s, level, row, some, found);
    if (n > 1) {
        if (logprobs) logprobs += (int64_t)b * level.scan.n_step;
        uint64_t path = specrt__sketch_path(logprobs, n, h);
        specrt__sketch_add(found, n_found, h, path, weights, finders);
        for (int32_t i = n_found + (int32_t)threadIdx.x; i < size; i += (int32_t)blockDim.x)
            found[i] = 0;
        if (!specrt__block_last(&level.tickets[b], n)) return;
        n_found = specrt__sketch_join(all, n, size, weights, finders, some, &keys);
    }
    specrt__sketch_list(s, level.scan.taken, b, n, keys, n_found, choice);
}

#endif
