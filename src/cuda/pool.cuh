/* pool.cuh : owns, on the device, who wants a token, and the slots of packed rows, as pool.c does on the
 * host. */
#ifndef CUDA_POOL_CUH
#define CUDA_POOL_CUH

#include "cuda/launch.cuh"
#include "cuda/block.cuh"

enum {
    SPECRT__POOL_THREADS =
        512,               /* half of a multiprocessor, so that it runs beside a layer's blocks */
    SPECRT__POOL_EACH = 4, /* tokens of a thread that are looked up together */
    SPECRT__POOL_BATCH = 4096 /* tokens taken at once: a cycle has at most 1,151 */
};

/* --- membership --- */

static __device__ int32_t specrt__pool_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static __device__ bool specrt__pool_valid(const specrt_cuda_state *s, int32_t id) {
    return id >= 0 && id < s->params.n_ids && !(s->wants[id] & SPECRT__CUDA_INVALID);
}

/* A token that a source names for sequence b is its level's from here on. Twin: specrt__source_route */
static __device__ void specrt__pool_name(const specrt__cuda_taken &taken, int32_t b, int32_t n_ids,
                                         int32_t id) {
    if (taken.named) atomicOr(&taken.named[(int64_t)b * n_ids + id], 1u << taken.level);
}

/* A source has named n_rows tokens for a pass of n rows. The first source of a level begins its sums, so that
 * it may come again. A thread calls. */
static __device__ void specrt__pool_tally(const specrt__cuda_taken &taken, int32_t b, int32_t n,
                                          int32_t n_rows) {
    if (!taken.named) return;
    specrt__cuda_tally *tally = &taken.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + taken.level];
    if (!taken.levels) SPECRT__CLEAR(tally, 1);
    tally->n = n;
    tally->n_rows += n_rows;
    tally->n_shared += n_rows;
}

/* The state of this block, in shared memory; the batch's tokens too. */
static __device__ specrt_cuda_state *specrt__pool_open(const specrt_cuda_state *from) {
    __shared__ specrt_cuda_state s;
    if (specrt__block_thread() == 0) s = *from;
    __syncthreads();
    return &s;
}

static __device__ void specrt__pool_close(const specrt_cuda_state *s, specrt_cuda_state *to) {
    __syncthreads();
    if (specrt__block_thread() == 0) *to = *s;
}

static __device__ int32_t *specrt__pool_batch(void) {
    __shared__ int32_t batch[SPECRT__POOL_BATCH];
    return batch;
}

/* Every thread may change what is wanted of kEach tokens, -1: none; those of a call are distinct. Tokens
 * that come to be packed or cease to be are listed, once. Twin: specrt__pool_change. */
template <int kEach>
static __device__ void specrt__pool_change_all(specrt_cuda_state *s, const int32_t *ids, int drop,
                                               int want) {
    const int kGained = 20, kLost = 40; /* bits of sums, above those that are listed */
    uint64_t sums = 0, before;
    int old[kEach];
    bool lists[kEach];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++)
        old[j] = ids[j] >= 0 ? s->wants[ids[j]] : (int)SPECRT__CUDA_FIXED;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int now = (old[j] & ~drop) | want;
        bool had = (old[j] & SPECRT__CUDA_PACKED) != 0, has = (now & SPECRT__CUDA_PACKED) != 0;
        bool turns = had != has && !(old[j] & SPECRT__CUDA_FIXED);
        lists[j] = turns && !(old[j] & SPECRT__CUDA_CHANGED);
        if (ids[j] >= 0) s->wants[ids[j]] = (uint8_t)(lists[j] ? now | SPECRT__CUDA_CHANGED : now);
        sums += (uint64_t)lists[j] | (uint64_t)(turns && has) << kGained |
                (uint64_t)(turns && had) << kLost;
    }
    uint64_t total = specrt__block_scan(sums, &before);
    int32_t place = s->n_changed + (int32_t)(before & ((1 << kGained) - 1));
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++)
        if (lists[j]) s->changed[place++] = ids[j];
    __syncthreads();
    if (specrt__block_thread() == 0) {
        s->n_wanted += (int32_t)(total >> kGained & ((1 << (kLost - kGained)) - 1));
        s->n_wanted -= (int32_t)(total >> kLost);
        s->n_changed += (int32_t)(total & ((1 << kGained) - 1));
    }
    __syncthreads();
}

static __device__ void specrt__pool_change(specrt_cuda_state *s, int32_t id, int drop, int want) {
    specrt__pool_change_all<1>(s, &id, drop, want);
}

/* Gives a token a slot, whose row is to be packed. */
static __device__ void specrt__pool_place(specrt_cuda_state *s, int32_t id, int32_t slot,
                                          int32_t fresh) {
    s->slots[id] = slot;
    s->ids[slot] = id;
    s->fresh[fresh] = slot;
}

/* Of the tokens that changed those that nobody wants leave holes; those that need a slot move to the front
 * of the list. @return how many those are. */
static __device__ int32_t specrt__pool_sort_out(specrt_cuda_state *s, int32_t *n_holes) {
    const int kEach = SPECRT__POOL_EACH, kLeave = 16; /* bit of sums, above those that enter */
    int32_t n_entering = 0, n_left = 0, n = s->n_changed;
    int32_t ids[SPECRT__POOL_EACH], slots[SPECRT__POOL_EACH];
    for (int32_t begin = 0; begin < n; begin += kEach * specrt__block_threads()) {
        uint32_t sums = 0, before;
        uint8_t wants[SPECRT__POOL_EACH];
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = begin + specrt__block_place(kEach, j);
            ids[j] = i < n ? s->changed[i] : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            wants[j] = ids[j] >= 0 ? s->wants[ids[j]] : 0;
            slots[j] = ids[j] >= 0 ? s->slots[ids[j]] : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool wanted = (wants[j] & SPECRT__CUDA_PACKED) != 0;
            if (ids[j] >= 0) s->wants[ids[j]] = (uint8_t)(wants[j] & ~SPECRT__CUDA_CHANGED);
            if (!wanted || slots[j] >= 0) ids[j] = slots[j] >= 0 && !wanted ? ids[j] : -1;
            if (ids[j] >= 0) sums += wanted ? 1u : 1u << kLeave;
        }
        uint32_t total = specrt__block_scan(sums, &before);
        int32_t *enter = s->changed + n_entering + (before & ((1 << kLeave) - 1));
        int32_t *hole = s->holes + n_left + (before >> kLeave);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            if (ids[j] >= 0 && slots[j] < 0) *enter++ = ids[j];
            if (ids[j] < 0 || slots[j] < 0) continue;
            *hole++ = slots[j];
            s->ids[slots[j]] = s->slots[ids[j]] = -1;
        }
        n_entering += (int32_t)(total & ((1 << kLeave) - 1));
        n_left += (int32_t)(total >> kLeave);
    }
    __syncthreads();
    *n_holes = n_left;
    return n_entering;
}

/* Holes beyond the new end go. @return how many are left. */
static __device__ int32_t specrt__pool_lower(specrt_cuda_state *s, int32_t n_holes, int32_t end) {
    int32_t n_kept = 0, before;
    for (int32_t begin = 0; begin < n_holes; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), slot = i < n_holes ? s->holes[i] : end;
        int32_t n = specrt__block_rank(slot < end, &before);
        if (slot < end) s->holes[n_kept + before] = slot;
        n_kept += n;
    }
    __syncthreads();
    return n_kept;
}

/* Rows beyond the new end that stay move into holes, from number `n_fresh` on: they are packed anew, which
 * needs no copy within the buffer. */
static __device__ void specrt__pool_move(specrt_cuda_state *s, int32_t end, int32_t n_fresh) {
    int32_t n_rows = s->n_rows, before;
    for (int32_t begin = end; begin < n_rows; begin += specrt__block_threads()) {
        int32_t slot = begin + specrt__block_thread(), id = slot < n_rows ? s->ids[slot] : -1;
        int32_t n = specrt__block_rank(id >= 0, &before), place = n_fresh + before;
        if (id >= 0) specrt__pool_place(s, id, s->holes[place], place);
        n_fresh += n;
    }
    __syncthreads();
}

/* New tokens take holes first, then the end. Beyond the capacity, which sources do not exceed, they are
 * refused and counted. Twin: specrt__pool_sync, but for the copying, which s->fresh lists. */
static __device__ void specrt__pool_sync(specrt_cuda_state *s) {
    int32_t n_holes, n_rows = s->n_rows, n_entering = specrt__pool_sort_out(s, &n_holes);
    int32_t n_free = n_holes + s->params.capacity - n_rows, n_fresh = n_entering;
    if (n_fresh > n_free) n_fresh = n_free;
    int32_t end = n_rows - n_holes + n_fresh;
    if (end < n_rows) n_holes = specrt__pool_lower(s, n_holes, end);
    for (int32_t i = specrt__block_thread(); i < n_fresh; i += specrt__block_threads())
        specrt__pool_place(s, s->changed[i], i < n_holes ? s->holes[i] : n_rows + i - n_holes, i);
    if (end < n_rows) {
        specrt__pool_move(s, end, n_fresh);
        n_fresh = n_holes;
    }
    if (specrt__block_thread() != 0) return;
    s->n_refused += n_entering > n_free ? n_entering - n_free : 0;
    s->n_changed = 0;
    s->n_rows = end;
    s->n_fresh = n_fresh;
    s->n_copied += n_fresh;
}

/* --- the host's wishes --- */

/* The host's numbers of wishes posted and taken: thread 0's, who asks for them before anything else, since
 * they come from the host's memory, and needs them last. */
typedef struct specrt__pool_posts {
    uint32_t posted, taken;
} specrt__pool_posts;

static __device__ specrt__pool_posts specrt__pool_ask(const specrt_cuda_state *s) {
    specrt__pool_posts posts = {0, 0};
    volatile specrt__cuda_mailbox *mailbox = s->mailbox;
    if (!mailbox || specrt__block_thread() > 0) return posts;
    posts.posted = mailbox->posted;
    posts.taken = mailbox->taken;
    return posts;
}

/* One kind of wish: the last about a token holds.
 *   ids [n] : -1: a wish that is passed over;  bits [n] : the bit, and 256 to set it */
static __device__ __noinline__ void specrt__pool_take_bit(specrt_cuda_state *s, const int32_t *ids,
                                                          const int32_t *bits, int32_t n, int bit) {
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        if (ids[i] >= 0 && (bits[i] & 255) == bit) atomicMax(&s->marks[ids[i]], i);
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? ids[i] : -1;
        if (id >= 0 && s->marks[id] != i) id = -1;
        specrt__pool_change(s, id, bit, i < n && bits[i] >> 8 ? bit : 0);
    }
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        if (ids[i] >= 0) atomicMin(&s->marks[ids[i]], -1);
    __syncthreads();
}

/* What the host posted since the last cycle. */
static __device__ void specrt__pool_take(specrt_cuda_state *s, specrt__pool_posts posts) {
    __shared__ specrt__pool_posts shared;
    int32_t *ids = specrt__pool_batch(), *bits = ids + SPECRT__CUDA_CHANGES;
    if (!s->mailbox) return;
    if (specrt__block_thread() == 0) {
        shared = posts;
        if (posts.posted != posts.taken) __threadfence_system();
    }
    __syncthreads();
    uint32_t n = shared.posted - shared.taken;
    if (n == 0 || n > SPECRT__CUDA_CHANGES) return;
    for (uint32_t i = (uint32_t)specrt__block_thread(); i < n; i += blockDim.x) {
        const volatile specrt__cuda_change *c =
            &s->mailbox->changes[(shared.taken + i) % SPECRT__CUDA_CHANGES];
        int32_t id = c->id, bit = c->bit, on = c->on;
        ids[i] = specrt__pool_valid(s, id) ? id : -1;
        bits[i] = bit | (on != 0) << 8;
    }
    __syncthreads();
    specrt__pool_take_bit(s, ids, bits, (int32_t)n, SPECRT__CUDA_PINNED);
    specrt__pool_take_bit(s, ids, bits, (int32_t)n, SPECRT__CUDA_RETRIEVE);
    if (specrt__block_thread() == 0) {
        __threadfence_system();
        ((volatile specrt__cuda_mailbox *)s->mailbox)->taken = posts.posted;
    }
}

#endif
