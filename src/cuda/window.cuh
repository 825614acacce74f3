/* window.cuh : owns, on the device, the window, as window.c does on the host. One block a session: it takes
 * what the host posted, moves the window by a whole batch of tokens at once, fills up, gives slots and lists
 * the rows that must be packed.
 *
 * The window is a list of distinct tokens, oldest first. Pushing tokens one after another leaves the last
 * `size` distinct ones by last occurrence, whatever was evicted in between. So a batch needs no order of
 * steps. For a window of 5, and the batch f c f g:
 *
 *     list            a  b  c  d  e       of the batch, last occurrences:  c  f  g   are marked
 *     not marked      a  b     d  e       their ranks are 0 1 2 3
 *     too many        4 + 3 - 5 = 2       ranks below 2 leave: a and b
 *     place           rank - 2            d  e
 *     behind them     the batch           d  e  c  f  g
 *
 * Ranks are prefix sums over the block, in the order of list and batch. They take the place of the sequence
 * numbers by which an LRU evicts: it is exact, nothing is locked, and nothing depends on the order that
 * threads run in.
 *
 * What takes time is looking up one thing after another, not how many: the state itself and the batch lie
 * in shared memory while a kernel runs, and slots are given by the list of tokens that changed. */
#ifndef CUDA_WINDOW_CUH
#define CUDA_WINDOW_CUH

#include "core/base.h"
#include "sources/window.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/pool.cuh"

/* --- pushing --- */

/* What lies in [p, p + bytes) is needed soon. */
static __device__ void specrt__window_fetch(const void *p, int32_t bytes) {
    for (int32_t i = 128 * specrt__block_thread(); i < bytes; i += 128 * specrt__block_threads())
        specrt__launch_prefetch((const char *)p + i);
}

/* All that a cycle looks up comes at once, not one after another as it is asked for: what the target
 * read since the last cycle left nothing of it in a cache. */
static __device__ void specrt__window_fetch_all(const specrt_cuda_state *s,
                                                const specrt_cuda_draft *draft,
                                                const specrt_verdict *verdict, const int32_t *best,
                                                int32_t stride) {
    specrt__window_fetch(draft, (int32_t)sizeof *draft);
    specrt__window_fetch(verdict, (int32_t)sizeof *verdict);
    if (best) specrt__window_fetch(best, SPECRT_TREE_MAX_NODES * stride * (int32_t)sizeof *best);
    for (int32_t i = specrt__block_thread(); i < s->n_list; i += specrt__block_threads()) {
        int32_t id = s->list[i];
        specrt__launch_prefetch(&s->marks[id]);
        specrt__launch_prefetch(&s->wants[id]);
        if (i < specrt__block_threads()) specrt__launch_prefetch(&s->slots[id]); /* it may leave */
    }
}

/* Of the batch the valid tokens, or with `listed` their last occurrences, move to its front in order, and
 * marks tell the place of each.
 *   listed : a bit of wants; 0: all occurrences
 *   *n_listed : how many of the tokens that are kept have it
 * @return how many are kept. */
static __device__ int32_t specrt__window_gather(specrt_cuda_state *s, int32_t n, int listed,
                                                int32_t *n_listed) {
    int32_t n_kept = 0, *batch = specrt__pool_batch();
    *n_listed = 0;
    for (int32_t i = specrt__block_thread(); i < n && listed; i += specrt__block_threads()) {
        int32_t id = batch[i];
        if (id >= 0 && id < s->params.n_ids) specrt__launch_prefetch(&s->slots[id]);
        if (specrt__pool_valid(s, id)) atomicMax(&s->marks[id], i);
    }
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? batch[i] : -1, before;
        bool keep = specrt__pool_valid(s, id) && (!listed || s->marks[id] == i);
        *n_listed += __syncthreads_count(keep && (s->wants[id] & listed));
        int32_t n_here = specrt__block_rank(keep, &before);
        if (keep) batch[n_kept + before] = id;
        n_kept += n_here;
    }
    __syncthreads();
    return n_kept;
}

static __device__ void specrt__window_unmark(specrt_cuda_state *s, const int32_t *ids, int32_t n) {
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        atomicMin(&s->marks[ids[i]], -1); /* places of one token all write it */
    __syncthreads();
}

/* The list's tokens from place `begin` on, as many as the block has places for, -1: marked, or beyond the
 * last. keep: which are tokens. */
static __device__ void specrt__window_unmarked(const specrt_cuda_state *s, int32_t begin,
                                               int32_t *ids, bool *keep) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        int32_t i = begin + specrt__block_place(SPECRT__POOL_EACH, j);
        ids[j] = i < s->n_list ? s->list[i] : -1;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        keep[j] = ids[j] >= 0 && s->marks[ids[j]] < 0;
        if (!keep[j]) ids[j] = -1;
    }
}

/* Of the list, tokens that are not marked close up, but for the n_evicted oldest of them, which leave. */
static __device__ void specrt__window_close_up(specrt_cuda_state *s, int32_t n_evicted, int drop) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_kept = 0, ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool keep[SPECRT__POOL_EACH];
    for (int32_t begin = 0; begin < s->n_list; begin += kEach * specrt__block_threads()) {
        specrt__window_unmarked(s, begin, ids, keep);
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(keep, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t place = n_kept + before[j] - n_evicted;
            if (!keep[j] || place < 0) continue;
            s->list[place] = ids[j];
            ids[j] = -1; /* it does not leave */
        }
        if (n_kept < n_evicted) specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, drop, 0);
        n_kept += n;
    }
    __syncthreads();
}

/* The batch's tokens to the new end of the list, as if pushed one after another. bit: of wants, that those
 * of the list have. Twin: specrt__window_touch. */
static __device__ __noinline__ void specrt__window_touch(specrt_cuda_state *s, int32_t n, int bit) {
    int32_t *batch = specrt__pool_batch(), n_again;
    int32_t n_new = specrt__window_gather(s, n, bit, &n_again);
    if (n_new == 0) return;
    int32_t n_old = s->n_list - n_again, n_evicted = n_old + n_new - s->list_size;
    int32_t skip = n_new > s->list_size ? n_new - s->list_size : 0;
    if (n_evicted < 0) n_evicted = 0;
    if (n_evicted > n_old) n_evicted = n_old;
    specrt__window_close_up(s, n_evicted, bit);
    n_old -= n_evicted;
    for (int32_t begin = skip; begin < n_new; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n_new ? batch[i] : -1;
        if (id >= 0) s->list[n_old + i - skip] = id;
        specrt__pool_change(s, id, 0, bit);
    }
    /* A window smaller than the batch: what it had of the batch's first tokens leaves too. */
    for (int32_t begin = 0; begin < skip; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        specrt__pool_change(s, i < skip ? batch[i] : -1, bit, 0);
    }
    specrt__window_unmark(s, batch, n_new);
    if (specrt__block_thread() == 0) s->n_list = n_old + n_new - skip;
    __syncthreads();
}

/* Place i of the stream's ring, from its oldest element. */
static __device__ int32_t *specrt__window_ring(const specrt_cuda_state *s, int32_t i) {
    int32_t left = s->params.size - s->ring_begin;
    return &s->ring[i < left ? s->ring_begin + i : i - left];
}

/* The oldest elements of the stream leave. */
static __device__ void specrt__window_forget(specrt_cuda_state *s, int32_t n) {
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        int32_t id = i < n ? *specrt__window_ring(s, i) : -1;
        bool last = id >= 0 && atomicSub(&s->counts[id], 1) == 1;
        specrt__pool_change(s, last ? id : -1, SPECRT__CUDA_WINDOW, 0);
    }
    if (specrt__block_thread() == 0) {
        s->ring_begin = n < s->params.size - s->ring_begin ? s->ring_begin + n
                                                           : n - (s->params.size - s->ring_begin);
        s->n_ring -= n;
    }
    __syncthreads();
}

/* Elements of the stream, valid ones, in order, which lose a bit. Twin: specrt__window_append, element by
 * element. */
static __device__ __noinline__ void specrt__window_append(specrt_cuda_state *s, const int32_t *ids,
                                                          int32_t n, int drop) {
    int32_t skip = n > s->params.size ? n - s->params.size : 0;
    ids += skip;
    n -= skip;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        atomicMax(&s->marks[ids[i]], i);
        atomicAdd(&s->counts[ids[i]], 1);
    }
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? ids[i] : -1;
        specrt__pool_change(s, id >= 0 && s->marks[id] == i ? id : -1, drop, SPECRT__CUDA_WINDOW);
    }
    specrt__window_unmark(s, ids, n);
    if (s->n_ring + n > s->params.size) specrt__window_forget(s, s->n_ring + n - s->params.size);
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        *specrt__window_ring(s, s->n_ring + i) = ids[i];
    __syncthreads();
    if (specrt__block_thread() == 0) s->n_ring += n;
    __syncthreads();
}

/* The batch, element by element. Twin: specrt__window_push. */
static __device__ void specrt__window_push(specrt_cuda_state *s, int32_t n) {
    int32_t n_listed, *batch = specrt__pool_batch();
    if (s->params.mode == SPECRT__WINDOW_LRU) {
        specrt__window_touch(s, n, SPECRT__CUDA_WINDOW);
        return;
    }
    n = specrt__window_gather(s, n, 0, &n_listed);
    specrt__window_append(s, batch, n, 0);
}

/* The batch as part of a set. Twin: specrt__window_add. */
static __device__ void specrt__window_add(specrt_cuda_state *s, int32_t n) {
    if (s->params.mode == SPECRT__WINDOW_STREAM)
        specrt__window_touch(s, n, SPECRT__CUDA_LISTED);
    else
        specrt__window_push(s, n);
}

/* The set is complete. Twin: specrt__window_flush. */
static __device__ void specrt__window_flush(specrt_cuda_state *s) {
    if (s->params.mode != SPECRT__WINDOW_STREAM) return;
    specrt__window_append(s, s->list, s->n_list, SPECRT__CUDA_LISTED);
    if (specrt__block_thread() == 0) s->n_list = 0;
    __syncthreads();
}

/* --- the least number of rows --- */

static __device__ int32_t specrt__window_frequent(const specrt_cuda_state *s, int32_t rank) {
    return s->params.frequent ? s->params.frequent[rank] : rank;
}

/* The tokens by frequency at ranks [begin, end), as many as the block has places for; -1: none. */
static __device__ void specrt__window_ranked(const specrt_cuda_state *s, int32_t begin, int32_t end,
                                             int32_t *ids) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        int32_t rank = begin + specrt__block_place(SPECRT__POOL_EACH, j);
        ids[j] = rank < end ? specrt__window_frequent(s, rank) : -1;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++)
        if (!specrt__pool_valid(s, ids[j])) ids[j] = -1;
}

/* Whether nobody but the prefix wants a token. */
static __device__ bool specrt__window_alone(const specrt_cuda_state *s, int32_t id) {
    return !(s->wants[id] & (SPECRT__CUDA_FIXED | (SPECRT__CUDA_PACKED & ~(int)SPECRT__CUDA_FILL)));
}

/* The last of the prefix leave, down to one without which there were too few rows; n_spare: more rows than
 * the least number. */
static __device__ __noinline__ void specrt__window_shrink(specrt_cuda_state *s, int32_t n_spare) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_fill = s->n_fill, n_before, ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool alone[SPECRT__POOL_EACH];
    for (int32_t n_staying = 0; n_fill > 0 && n_staying == 0;) {
        int32_t begin = n_fill - specrt__pool_least(n_fill, kEach * specrt__block_threads());
        int32_t n_mine = 0;
        specrt__window_ranked(s, begin, n_fill, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) alone[j] = ids[j] >= 0 && specrt__window_alone(s, ids[j]);
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(alone, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool stays = before[j] < n - n_spare;
            n_mine += stays && begin + specrt__block_place(kEach, j) < n_fill;
            if (stays) ids[j] = -1;
        }
        specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, SPECRT__CUDA_FILL, 0);
        n_staying = specrt__block_scan(n_mine, &n_before);
        n_fill = begin + n_staying;
        n_spare -= n;
    }
    if (specrt__block_thread() == 0) s->n_fill = n_fill;
    __syncthreads();
}

/* Further tokens by frequency, until the least number of rows is reached. */
static __device__ __noinline__ void specrt__window_grow(specrt_cuda_state *s) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_missing = s->params.min - s->n_fixed - s->n_wanted, n_fill = s->n_fill, n_before;
    int32_t ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool gains[SPECRT__POOL_EACH];
    if (n_fill >= s->params.n_frequent) return; /* nothing is written that others are reading */
    while (n_missing > 0 && n_fill < s->params.n_frequent) {
        int32_t n_taken = 0;
        specrt__window_ranked(s, n_fill, s->params.n_frequent, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            gains[j] =
                ids[j] >= 0 && !(s->wants[ids[j]] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED));
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(gains, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t rank = n_fill + specrt__block_place(kEach, j);
            bool taken = rank < s->params.n_frequent && before[j] < n_missing;
            n_taken += taken;
            if (!taken) ids[j] = -1;
        }
        specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, 0, SPECRT__CUDA_FILL);
        n_fill += specrt__block_scan(n_taken, &n_before);
        n_missing -= n;
    }
    if (specrt__block_thread() == 0) s->n_fill = n_fill;
    __syncthreads();
}

/* The shortest prefix of the tokens by frequency that reaches the least number of rows, found from the prefix
 * before, which mostly is the one. Twin: specrt__window_fill. */
static __device__ void specrt__window_fill(specrt_cuda_state *s) {
    __syncthreads();
    int32_t n_spare = s->n_fixed + s->n_wanted - s->params.min, n_fill = s->n_fill;
    int32_t last = n_fill > 0 ? specrt__window_frequent(s, n_fill - 1) : -1;
    bool fits = n_spare == 0 && specrt__pool_valid(s, last) && specrt__window_alone(s, last);
    __syncthreads();
    if (n_spare >= 0 && n_fill > 0 && !fits) specrt__window_shrink(s, n_spare);
    if (n_spare < 0) specrt__window_grow(s);
}

/* --- what is pushed --- */

/* Rows [begin, begin + n) of the target's best tokens, k a row, as a batch; tokens, when given, each before
 * its row. */
static __device__ int32_t specrt__window_read(const int32_t *tokens, const int32_t *best,
                                              int32_t stride, int32_t begin, int32_t n, int32_t k) {
    int32_t with = tokens ? 1 : 0, width = k + with, *batch = specrt__pool_batch();
    for (int32_t i = specrt__block_thread(); i < n * width; i += specrt__block_threads()) {
        int32_t row = begin + i / width, j = i % width - with;
        batch[i] = j < 0 ? tokens[row] : best[(int64_t)row * stride + j];
    }
    __syncthreads();
    return n * width;
}

/* Twin: specrt__window_prefill. */
static __device__ void specrt__window_learn(specrt_cuda_state *s, const int32_t *tokens, int32_t n,
                                            const int32_t *best, int32_t stride) {
    int32_t k = best ? specrt__pool_least(s->params.kpre, stride) : 0;
    int32_t step = SPECRT__POOL_BATCH / (k + 1);
    bool stream = s->params.mode == SPECRT__WINDOW_STREAM;
    if (n < 1) return;
    if (specrt__block_thread() < k)
        s->seed[specrt__block_thread()] = best[(int64_t)(n - 1) * stride + specrt__block_thread()];
    if (specrt__block_thread() == 0) s->n_seed = k;
    for (int32_t begin = 0; begin < n && s->params.only != SPECRT__WINDOW_EXT; begin += step) {
        int32_t here = specrt__pool_least(step, n - begin);
        int32_t with = stream ? 0 : k;
        specrt__window_push(s, specrt__window_read(tokens, best, stride, begin, here, with));
        if (!stream || k == 0) continue;
        specrt__window_add(s, specrt__window_read(NULL, best, stride, begin, here, k));
    }
    __syncthreads();
}

/* Twin: specrt__window_start. */
static __device__ void specrt__window_root(specrt_cuda_state *s, int32_t token) {
    int32_t *batch = specrt__pool_batch();
    if (s->params.only == SPECRT__WINDOW_EXT) {
        int32_t n = s->n_seed;
        for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
            batch[i] = s->seed[i];
        __syncthreads();
        specrt__window_add(s, n);
    }
    specrt__window_flush(s);
    if (!s->params.emitted || s->params.only == SPECRT__WINDOW_CTX) return;
    if (specrt__block_thread() == 0) batch[0] = token;
    __syncthreads();
    specrt__window_push(s, 1);
}

/* The verified positions' best tokens, behind n_batch others. A node out of range gives none. */
static __device__ int32_t specrt__window_read_nodes(specrt_cuda_state *s,
                                                    const specrt_cuda_draft *draft,
                                                    const specrt_verdict *verdict,
                                                    const int32_t *best, int32_t stride,
                                                    int32_t n_batch) {
    bool tree = s->params.positions == SPECRT__WINDOW_POSITIONS_TREE;
    int32_t k = best ? specrt__pool_least(s->params.kver, stride) : 0;
    int32_t first = s->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? verdict->n - 1 : 0;
    int32_t n = (tree ? draft->n : verdict->n - first) * k;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t row = first + i / k, node = tree ? row : verdict->nodes[row];
        bool known = node >= 0 && node < draft->n;
        specrt__pool_batch()[n_batch + i] = known ? best[(int64_t)node * stride + i % k] : -1;
    }
    __syncthreads();
    return n;
}

/* The batch is a set of a stream. @return 0, tokens of the next. */
static __device__ int32_t specrt__window_end(specrt_cuda_state *s, int32_t n) {
    specrt__window_add(s, n);
    specrt__window_flush(s);
    return 0;
}

/* A stream takes sets one by one; other windows are the same when all that is pushed comes at once. Twin:
 * specrt__window_observe. */
static __device__ void specrt__window_follow(specrt_cuda_state *s, const specrt_cuda_draft *draft,
                                             const specrt_verdict *verdict, const int32_t *best,
                                             int32_t stride) {
    bool sets = s->params.mode == SPECRT__WINDOW_STREAM;
    int32_t n = draft->n - 1, n_emitted = s->params.emitted ? verdict->n : 0;
    int32_t *batch = specrt__pool_batch();
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        batch[i] = draft->tokens[i + 1];
    __syncthreads();
    if (sets) n = specrt__window_end(s, n);
    n += specrt__window_read_nodes(s, draft, verdict, best, stride, n);
    if (sets) n = specrt__window_end(s, n);
    for (int32_t i = specrt__block_thread(); i < n_emitted; i += specrt__block_threads())
        batch[n + i] = verdict->tokens[i];
    __syncthreads();
    specrt__window_push(s, n + n_emitted);
}

/* --- kernels: block i is session i, of any multiple of 32 threads --- */

/* Everything is forgotten but INVALID, FIXED and, where that is kept, RETRIEVE; pinned i32 [n_pinned] are
 * wanted and get slots. Twin: specrt_session_begin. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_begin_kernel(specrt_cuda_state *states, const int32_t *pinned,
                                int32_t n_pinned) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    int keep = SPECRT__CUDA_INVALID | SPECRT__CUDA_FIXED;
    if (s->params.keep) keep |= SPECRT__CUDA_RETRIEVE;
    for (int32_t i = specrt__block_thread(); i < s->params.n_ids; i += specrt__block_threads()) {
        s->wants[i] &= (uint8_t)keep;
        s->slots[i] = s->marks[i] = -1;
        if (s->params.mode == SPECRT__WINDOW_STREAM) s->counts[i] = 0;
    }
    if (specrt__block_thread() == 0) {
        s->n_wanted = s->n_rows = s->n_fresh = s->n_changed = s->n_refused = 0;
        s->n_list = s->ring_begin = s->n_ring = s->n_seed = s->n_fill = 0;
        s->n_copied = 0;
    }
    __syncthreads();
    for (int32_t begin = 0; begin < s->params.n_ids && s->params.keep;
         begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        bool kept = i < s->params.n_ids && (s->wants[i] & SPECRT__CUDA_RETRIEVE);
        if (kept) s->wants[i] &= (uint8_t)~SPECRT__CUDA_RETRIEVE; /* it enters again */
        specrt__pool_change(s, kept ? i : -1, 0, SPECRT__CUDA_RETRIEVE);
    }
    for (int32_t begin = 0; begin < n_pinned; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n_pinned ? pinned[i] : -1;
        specrt__pool_change(s, id < s->params.n_ids ? id : -1, 0, SPECRT__CUDA_PINNED);
    }
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* tokens i32 [n_batch, max_n], of which ns[i] count; best i32 [n_batch, max_n, k] or NULL.
 * Twin: specrt_session_prefill. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_prefill_kernel(specrt_cuda_state *states, const int32_t *tokens,
                                  const int32_t *ns, int32_t max_n, const int32_t *best,
                                  int32_t k) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    int32_t n = specrt__pool_least(ns[blockIdx.x], max_n);
    int64_t at = (int64_t)blockIdx.x * max_n;
    if (s->params.size == 0) return;
    specrt__window_learn(s, tokens + at, n, best ? best + at * k : NULL, k);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* verdicts [n_batch], an empty one: that session rests. Twin: specrt_session_start. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_start_kernel(specrt_cuda_state *states, const specrt_verdict *verdicts) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    const specrt_verdict *verdict = &verdicts[blockIdx.x];
    if (verdict->n < 1) return;
    specrt__pool_posts posts = specrt__pool_ask(s);
    int32_t token = verdict->tokens[specrt__pool_least(verdict->n, SPECRT_TREE_MAX_NODES) - 1];
    if (s->params.size > 0) specrt__window_root(s, token);
    specrt__pool_take(s, posts);
    if (s->params.size > 0) specrt__window_fill(s);
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* drafts, verdicts [n_batch], an empty verdict: that session rests; best i32 [n_batch,
 * SPECRT_TREE_MAX_NODES, k] or NULL. Twin: specrt_session_observe. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_observe_kernel(specrt_cuda_state *states, const specrt_cuda_draft *drafts,
                                  const specrt_verdict *verdicts, const int32_t *best, int32_t k) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    const specrt_verdict *verdict = &verdicts[blockIdx.x];
    if (best) best += (int64_t)blockIdx.x * SPECRT_TREE_MAX_NODES * k;
    specrt__window_fetch_all(s, &drafts[blockIdx.x], verdict, best, k);
    if (verdict->n < 1) return;
    specrt__pool_posts posts = specrt__pool_ask(s);
    bool fills = s->params.size > 0;
    if (fills && s->params.only != SPECRT__WINDOW_CTX)
        specrt__window_follow(s, &drafts[blockIdx.x], verdict, best, k);
    specrt__pool_take(s, posts);
    if (fills) specrt__window_fill(s);
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* --- launches --- */

static inline specrt_status specrt__window_check(int32_t n_batch, const void *states) {
    return states && n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH ? SPECRT_STATUS_OK
                                                                       : SPECRT_STATUS_BAD_ARG;
}

static inline specrt_status specrt__window_check_choice(const specrt__cuda_choice *c) {
    return c && c->ids && c->places && c->n_rows && c->max_rows >= 1 ? SPECRT_STATUS_OK
                                                                     : SPECRT_STATUS_BAD_ARG;
}

static bool specrt__window_params_ok(const specrt__cuda_state_params *p) {
    if (!p || p->n_ids < 1 || p->n_ids > SPECRT_MAX_VOCAB) return false;
    if (p->capacity < 0 || p->capacity > p->n_ids) return false;
    if (p->size == 0) return true;
    return p->size > 0 && p->size <= SPECRT_MAX_VOCAB && p->mode >= SPECRT__WINDOW_LRU &&
           p->mode <= SPECRT__WINDOW_STREAM && p->positions >= SPECRT__WINDOW_POSITIONS_ALL &&
           p->positions <= SPECRT__WINDOW_POSITIONS_TREE && p->only >= SPECRT__WINDOW_BOTH &&
           p->only <= SPECRT__WINDOW_EXT && p->kpre >= 0 && p->kpre <= SPECRT__WINDOW_MAX_K &&
           p->kver >= 0 && p->kver <= SPECRT__WINDOW_MAX_K && p->n_frequent >= 0 &&
           (p->frequent || p->n_frequent <= p->n_ids);
}

/* The bytes that the arrays of a state take; they lie in memory, if there is some. */
static size_t specrt__window_lay_out(void *memory, specrt_cuda_state *s) {
    const specrt__cuda_state_params *p = &s->params;
    size_t n = (size_t)p->n_ids, m = (size_t)p->capacity;
    bool stream = p->size > 0 && p->mode == SPECRT__WINDOW_STREAM;
    specrt__launch_arena arena = {memory, 0};
    s->list_size = p->size < p->n_ids ? p->size : p->n_ids;
    specrt__launch_carve(&arena, n, &s->wants);
    specrt__launch_carve(&arena, n, &s->slots);
    specrt__launch_carve(&arena, n, &s->changed);
    specrt__launch_carve(&arena, n, &s->marks);
    specrt__launch_carve(&arena, m, &s->ids);
    specrt__launch_carve(&arena, m, &s->fresh);
    specrt__launch_carve(&arena, m, &s->holes);
    specrt__launch_carve(&arena, (size_t)s->list_size, &s->list);
    specrt__launch_carve(&arena, stream ? (size_t)p->size : 0, &s->ring);
    specrt__launch_carve(&arena, stream ? n : 0, &s->counts);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_state_bytes(const specrt__cuda_state_params *params) {
    specrt_cuda_state s;
    if (!specrt__window_params_ok(params)) return 0;
    s.params = *params;
    return specrt__window_lay_out(NULL, &s);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_place(const specrt__cuda_state_params *params,
                                                      void *memory, specrt_cuda_state *out) {
    if (!memory || !out || !specrt__window_params_ok(params)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(out, 1);
    out->params = *params;
    specrt__window_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_state_begin(int32_t n_batch, const int32_t *pinned,
                                                      int32_t n_pinned, specrt_cuda_state *states,
                                                      void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (n_pinned < 0 || (n_pinned > 0 && !pinned)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_begin_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, pinned,
                          n_pinned);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_prefill(int32_t n_batch, const int32_t *tokens,
                                                        const int32_t *n, int32_t max_n,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!tokens || !n || max_n < 1 || (best && k < 1)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_prefill_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, tokens, n,
                          max_n, best, k);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_start(int32_t n_batch,
                                                      const specrt_verdict *verdicts,
                                                      specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!verdicts) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_start_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_observe(int32_t n_batch,
                                                        const specrt_cuda_draft *drafts,
                                                        const specrt_verdict *verdicts,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!drafts || !verdicts || (best && k < 1)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_observe_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, drafts,
                          verdicts, best, k);
}

#endif
