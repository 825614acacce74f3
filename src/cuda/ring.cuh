/* ring.cuh : owns the way of cycles to retrieval on the host, and of what that changes back, through
 * memory that both sides map. Neither waits for the other: a cycle that finds no room is lost to
 * retrieval, and counted. Prompts, which may be longer than any ring, go another way: the host waits
 * for each part of one.
 *
 * Record number i is in slot i % SPECRT__RETRIEVE_RECORDS, and belongs to one side at a time:
 *
 *             taken            done            posted        taken + SPECRT__RETRIEVE_RECORDS
 *     over    |   the device's   |  the host's   |    free    |
 *
 * The device writes a cycle into a free slot, then adds to `posted`. The host works it off, writes into the
 * record what changed, then adds to `done`. The device makes wishes of the changes, then adds to `taken`,
 * which it alone reads. Each number has one writer and only grows, and who reads it sees all that was
 * written before it: by __threadfence_system() on the device, by acquire and release on the host. So a
 * number that is read too early only makes a side do less this time, and nothing needs a lock. Numbers wrap
 * around: they are compared by their difference.
 *
 * A sequence that keeps nothing begins at the record that is posted next, `begun`. The device passes over
 * changes of earlier records; the host empties its cache when it comes to that one. */
#ifndef CUDA_RING_CUH
#define CUDA_RING_CUH

#include "core/base.h"
#include "core/os.h"
#include "sources/arc.h"
#include "sources/retrieve.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"

/* Cycles on their way to retrieval on the host, in memory that both sides map. Records are numbered: the
 * device writes `posted` after a record, the host `done` after it has written what the record changed. */
typedef struct specrt__ring_records {
    uint32_t posted, done;
    uint32_t begun; /* the first record of the sequence at hand */
    /* Sequences, but for those that go on with what is kept; written after `begun`. */
    uint32_t n_begun;
    specrt__retrieve_record records[SPECRT__RETRIEVE_RECORDS];
} specrt__ring_records;

/* Retrieval's part of a sequence, on the device. */
typedef struct specrt__ring_cache {
    uint32_t posted, taken, begun; /* of the ring */
    int32_t n_cycles, n_events, n_lost;
    specrt__cuda_mailbox mailbox;
} specrt__ring_cache;

/* Retrieval of a batch, as kernels see it. */
typedef struct specrt__ring_view {
    specrt__ring_cache *caches;  /* DEVICE [n_batch]; NULL: nothing retrieves */
    specrt__ring_records *rings; /* [n_batch] */
    float *queries; /* f32 [n_batch, SPECRT__RETRIEVE_RECORDS, width] states that records go with */
    int32_t width;  /* of the target's hidden states; 0: none is read */
    int32_t k_best;
    const int32_t
        *best; /* DEVICE [n_batch, SPECRT_TREE_MAX_NODES, k_best] of the target's at nodes */
} specrt__ring_view;

/* Record number `at` becomes wishes from place `posted` of the mailbox on, a thread a change: memory of the
 * host is asked for at once, not a change at a time. @return the place behind them. */
static __device__ uint32_t specrt__ring_take_record(specrt__ring_cache *cache,
                                                    const volatile specrt__ring_records *ring,
                                                    uint32_t at, uint32_t posted) {
    const volatile specrt__retrieve_record *record = &ring->records[at % SPECRT__RETRIEVE_RECORDS];
    int32_t n = record->n_changes;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t id = record->changes[i];
        specrt__cuda_change *c =
            &cache->mailbox.changes[(posted + (uint32_t)i) % SPECRT__CUDA_CHANGES];
        c->id = id >= 0 ? id : ~id;
        c->bit = SPECRT__CUDA_RETRIEVE;
        c->on = id >= 0;
        c->reserved = 0;
    }
    return posted + (uint32_t)n;
}

/* What the host made of its records becomes wishes. Records of another sequence are passed over. All threads
 * of a block call. Twin: specrt__retrieve_take. */
static __device__ void specrt__ring_take(specrt__ring_cache *cache,
                                         const volatile specrt__ring_records *ring) {
    __shared__ uint32_t done; /* one for all: the host may add to it between two looks */
    uint32_t taken = cache->taken, posted = cache->mailbox.posted, begun = cache->begun;
    if (specrt__block_thread() == 0) {
        done = ring->done;
        __threadfence_system();
    }
    __syncthreads();
    uint32_t end = done;
    for (; (int32_t)(end - taken) > 0; taken++)
        if ((int32_t)(taken - begun) >= 0)
            posted = specrt__ring_take_record(cache, ring, taken, posted);
    __syncthreads();
    if (specrt__block_thread() == 0) cache->taken = taken, cache->mailbox.posted = posted;
    __syncthreads();
}

/* Block b: a new sequence. What is kept goes on; else records before this one are another's, and what they
 * changed is passed over.
 *   grid (n_batch), any block
 *   Twin: specrt__retrieve_begin */
static __global__ void specrt__ring_begin_kernel(bool keep, specrt__ring_cache *caches,
                                                 specrt__ring_records *rings) {
    size_t b = blockIdx.x;
    if (keep) specrt__ring_take(&caches[b], &rings[b]);
    if (threadIdx.x != 0) return;
    caches[b].n_events = caches[b].n_lost = 0;
    if (keep) return;
    caches[b].n_cycles = 0;
    caches[b].mailbox.taken = caches[b].mailbox.posted;
    caches[b].begun = caches[b].posted;
    volatile specrt__ring_records *ring = &rings[b];
    ring->begun = caches[b].begun;
    __threadfence_system();
    ring->n_begun = ring->n_begun + 1;
}

/* Twin: specrt__retrieve_write. */
static __device__ void specrt__ring_write(const specrt__ring_cache *cache,
                                          const specrt_verdict *verdict, const int32_t *best,
                                          int32_t k_best, bool event, bool told,
                                          volatile specrt__retrieve_record *record) {
    const int32_t *row = best + (int64_t)verdict->nodes[verdict->n - 1] * k_best;
    int32_t n_best = 0;
    record->now = cache->n_cycles;
    record->n_tokens = verdict->n;
    for (int32_t i = 0; i < verdict->n; i++) record->tokens[i] = verdict->tokens[i];
    for (; n_best < SPECRT__RETRIEVE_TOP && row[n_best] >= 0; n_best++)
        record->best[n_best] = row[n_best];
    record->n_best = n_best;
    record->n_changes = 0;
    record->event = event;
    record->told = told;
}

/* Block b: the cycle of sequence b as a record, and what the host made of earlier ones. Before the window
 * learns, since what could have been drafted is asked here. Twin: specrt__retrieve_observe.
 *   learns, states [n_batch]; hidden f32 [n_batch, n_nodes, width] of the target, or NULL: not told
 *   grid (n_batch), any block */
static __global__ void specrt__ring_tell_kernel(const specrt_verdict *learns,
                                                const specrt_cuda_state *states,
                                                const float *hidden, int32_t n_nodes,
                                                specrt__ring_view v) {
    size_t b = blockIdx.x;
    const specrt_verdict *verdict = &learns[b];
    const specrt_cuda_state *s = &states[b];
    specrt__ring_cache *cache = &v.caches[b];
    volatile specrt__ring_records *ring = &v.rings[b];
    if (verdict->n < 1) return;
    int32_t token = verdict->tokens[verdict->n - 1];
    bool event = token >= 0 && token < s->params.n_ids && s->wants[token] == 0;
    bool told = event && hidden && v.width > 0;
    if (threadIdx.x == 0) {
        cache->n_cycles++;
        cache->n_events += event;
    }
    specrt__ring_take(cache, ring);
    bool room = cache->posted - cache->taken < SPECRT__RETRIEVE_RECORDS;
    size_t slot = cache->posted % SPECRT__RETRIEVE_RECORDS, width = (size_t)v.width;
    size_t row = b * (size_t)n_nodes + (size_t)verdict->nodes[verdict->n - 1];
    volatile float *query = v.queries + (b * SPECRT__RETRIEVE_RECORDS + slot) * width;
    for (size_t i = threadIdx.x; i < width && room && told; i += blockDim.x)
        query[i] = hidden[row * width + i];
    if (room && threadIdx.x == 0)
        specrt__ring_write(cache, verdict, v.best + b * SPECRT_TREE_MAX_NODES * (size_t)v.k_best,
                           v.k_best, event, told, &ring->records[slot]);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (room)
        ring->posted = ++cache->posted;
    else
        cache->n_lost += event;
}

/* --- prompts --- */

enum { SPECRT__RING_PROMPT = 512 }; /* tokens that the host waits for at a time */

/* A part of a sequence's prompt, which both sides map. */
typedef struct specrt__ring_prompt {
    int32_t n_cycles; /* of the sequence */
    int32_t reserved;
    int32_t tokens[SPECRT__RING_PROMPT];
    int32_t best[SPECRT__RING_PROMPT * SPECRT__RETRIEVE_TOP]; /* -1: none */
} specrt__ring_prompt;

/* A thread a token: n of them and the target's best there, best [n, k_best] or NULL, to place `at` on. */
static __global__ void specrt__ring_ask_kernel(const int32_t *tokens, int32_t n,
                                               const int32_t *best, int32_t k_best,
                                               const specrt__ring_cache *cache,
                                               specrt__ring_prompt *prompt, int32_t at) {
    int32_t i = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i == 0) prompt->n_cycles = cache->n_cycles;
    if (i >= n) return;
    prompt->tokens[at + i] = tokens[i];
    int32_t *row = prompt->best + (at + i) * SPECRT__RETRIEVE_TOP;
    for (int32_t j = 0; j < SPECRT__RETRIEVE_TOP; j++)
        row[j] = best && j < k_best ? best[(int64_t)i * k_best + j] : -1;
}

/* Members become what the host's cache holds, whatever was on its way from there. One block.
 *   residents : u32 [words of the ids] */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__ring_match_kernel(const uint32_t *residents, specrt__ring_cache *cache,
                              specrt_cuda_state *state) {
    const int kBit = SPECRT__CUDA_RETRIEVE;
    for (int32_t begin = 0; begin < state->params.n_ids; begin += specrt__block_threads()) {
        int32_t id = begin + specrt__block_thread();
        bool inside = id < state->params.n_ids;
        int want = inside && (residents[id / 32] >> id % 32 & 1) ? kBit : 0;
        bool differs = inside && (state->wants[id] & kBit) != want;
        specrt__pool_change(state, differs ? id : -1, kBit, want);
    }
    if (specrt__block_thread() != 0) return;
    cache->taken = cache->posted;
    cache->mailbox.taken = cache->mailbox.posted;
}

/* --- the host's side: one thread at a time --- */

/* A new sequence's cache is empty. */
static void specrt__ring_renew(const specrt__ring_records *ring, specrt__retrieve *r,
                               uint32_t *n_begun) {
    uint32_t n = specrt__os_load(&ring->n_begun);
    if (r->done != specrt__os_load(&ring->begun) || n == *n_begun) return;
    *n_begun = n;
    specrt__arc_reset(&r->arc, r->params.size / 2.0);
    specrt__retrieve_bar(r);
    r->n_events = r->n_blocked = 0;
}

/* Works off what was posted.
 *   n_begun : the ring's, as the host last saw it
 * @return how many cycles. */
static int32_t specrt__ring_serve(specrt__ring_records *ring, specrt__retrieve *r,
                                  uint32_t *n_begun) {
    uint32_t posted = specrt__os_load(&ring->posted);
    int32_t n = 0;
    for (; r->done != posted; n++) {
        specrt__ring_renew(ring, r, n_begun);
        specrt__retrieve_work(r, r->done);
        specrt__os_store(&ring->done, r->done);
    }
    return n;
}

/* n prompt tokens, once the device is done with them. Twin: specrt__retrieve_prefill.
 *   residents : the answer: a bit for each token, whether the cache holds it */
static void specrt__ring_answer(const specrt__ring_prompt *prompt, int32_t n,
                                specrt__ring_records *ring, specrt__retrieve *r, uint32_t *n_begun,
                                uint32_t *residents) {
    specrt__ring_serve(ring, r, n_begun);
    specrt__ring_renew(ring, r, n_begun);
    r->n_cycles = prompt->n_cycles;
    for (int32_t i = 0; i < n; i++) {
        const int32_t *best = prompt->best + i * SPECRT__RETRIEVE_TOP;
        int32_t n_best = 0;
        while (n_best < SPECRT__RETRIEVE_TOP && best[n_best] >= 0) n_best++;
        specrt__retrieve_read(r, prompt->tokens[i], best, n_best, NULL);
    }
    SPECRT__CLEAR(residents, (r->arc.n_ids + 31) / 32);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(&r->arc, list); id < r->arc.n_ids;
             id = r->arc.newer[id])
            residents[id / 32] |= 1u << id % 32;
}

#endif
