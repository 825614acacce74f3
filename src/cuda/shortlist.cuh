/* shortlist.cuh : owns the packing of rows, and rankings: a number orders a logit and its token, so that what
 * is found does not depend on where it stands. */
#ifndef CUDA_SHORTLIST_CUH
#define CUDA_SHORTLIST_CUH

#include "core/base.h"
#include "core/shortlist.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/head_rows.cuh"
#include "cuda/head.cuh"

enum { SPECRT__SHORTLIST_PACK_THREADS = 128 };

/* Block (i, b): rows[slot, :] = head[row_of[ids[slot]], :] where slot = slots[i], the i-th place to fill of
 * sequence b, and its bias; then the next as many places further as there are blocks.
 *   grid (any, n_batch), block SPECRT__SHORTLIST_PACK_THREADS
 *   Unit : 16, 4 or 2 bytes; divides addresses, strides and row_bytes
 *   CPU twin: specrt__pool_pack() */
template <typename Unit>
static __global__ void specrt__shortlist_pack_rows(specrt__cuda_head head,
                                                   const specrt__cuda_packing *packings,
                                                   size_t row_bytes, size_t row_stride) {
    specrt__cuda_packing p = packings[blockIdx.y];
    int32_t n = *p.n, n_units = (int32_t)(row_bytes / sizeof(Unit));
    for (int32_t i = (int32_t)blockIdx.x; i < n; i += (int32_t)gridDim.x) {
        int32_t slot = p.slots ? p.slots[i] : i, id = p.ids[slot];
        int32_t row = head.row_of ? head.row_of[id] : id;
        const Unit *from = (const Unit *)((const char *)head.rows + (size_t)row * head.row_stride);
        Unit *to = (Unit *)((char *)p.rows + (size_t)slot * row_stride);
        SPECRT__LAUNCH_UNROLL_BY(4) /* loads under way */
        for (int32_t j = (int32_t)threadIdx.x; j < n_units; j += (int32_t)blockDim.x)
            to[j] = __ldg(from + j);
        if (p.bias && threadIdx.x == 0) p.bias[slot] = head.bias ? head.bias[row] : 0.0f;
    }
}

/* Block (i, b): as above, of q8_0 rows in blocks, which become planes. Each thread takes eight codes, and a
 * scale.
 *   CPU twin: specrt__head_split() */
static __global__ void specrt__shortlist_split_rows(specrt__cuda_head head,
                                                    const specrt__cuda_packing *packings,
                                                    size_t row_stride) {
    specrt__cuda_packing p = packings[blockIdx.y];
    int32_t n = *p.n, n_cols = (int32_t)head.n_cols, n_blocks = n_cols / 32;
    for (int32_t i = (int32_t)blockIdx.x; i < n; i += (int32_t)gridDim.x) {
        int32_t slot = p.slots ? p.slots[i] : i, id = p.ids[slot];
        int32_t row = head.row_of ? head.row_of[id] : id;
        const uint16_t *from = (const uint16_t *)(const void *)((const char *)head.rows +
                                                                (size_t)row * head.row_stride);
        char *to = (char *)p.rows + (size_t)slot * row_stride;
        SPECRT__LAUNCH_UNROLL_BY(4) /* loads under way */
        for (int32_t j = (int32_t)threadIdx.x; j < 4 * n_blocks; j += (int32_t)blockDim.x) {
            const uint16_t *x = from + j / 4 * 17 + 1 + j % 4 * 4;
            uint2 codes = make_uint2(__ldg(x) | (uint32_t)__ldg(x + 1) << 16,
                                     __ldg(x + 2) | (uint32_t)__ldg(x + 3) << 16);
            *(uint2 *)(void *)(to + specrt__head_code_at(j, n_blocks)) = codes;
        }
        for (int32_t j = (int32_t)threadIdx.x; j < n_blocks; j += (int32_t)blockDim.x)
            ((uint16_t *)(void *)(to + n_cols))[j] = __ldg(from + 17 * j);
        if (p.bias && threadIdx.x == 0) p.bias[slot] = head.bias ? head.bias[row] : 0.0f;
    }
}

SPECRT__KERNEL specrt_status specrt__cuda_pack(const specrt__cuda_head *head,
                                               const specrt__cuda_packing *packings,
                                               int32_t n_batch, int32_t max_n, size_t row_stride,
                                               void *stream) {
    if (!head || !head->rows || !packings || max_n < 1) return SPECRT_STATUS_BAD_ARG;
    if (n_batch < 1 || n_batch > SPECRT__CUDA_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    size_t bytes = specrt__head_stored_bytes(head->dtype, head->n_cols);
    if (bytes == 0) return SPECRT_STATUS_UNSUPPORTED;
    if (head->row_stride < bytes || row_stride < bytes) return SPECRT_STATUS_BAD_ARG;
    uint64_t all = (uintptr_t)head->rows | head->row_stride | row_stride | bytes;
    dim3 grid(specrt__launch_share(max_n, n_batch), (unsigned)n_batch); /* mostly few are new */
    dim3 block(SPECRT__SHORTLIST_PACK_THREADS);
    if (all % sizeof(uint16_t) != 0) return SPECRT_STATUS_BAD_ARG;
    if (head->dtype == SPECRT_DTYPE_Q8_0)
        return row_stride % 16 != 0 ? SPECRT_STATUS_BAD_ARG
                                    : SPECRT__LAUNCH(specrt__shortlist_split_rows, grid, block, 0,
                                                     stream, *head, packings, row_stride);
    if (all % sizeof(uint4) == 0)
        return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint4>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    if (all % sizeof(uint32_t) == 0)
        return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint32_t>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint16_t>, grid, block, 0, stream, *head,
                          packings, bytes, row_stride);
}

/* --- the greatest of many keys --- */

enum { SPECRT__SHORTLIST_DIGITS = 256, SPECRT__SHORTLIST_THREADS = 256 };

/* The digit, from the greatest down, at which `need` of the keys counted are reached. One warp calls.
 *   counts : [SPECRT__SHORTLIST_DIGITS]
 *   *above : keys of greater digits */
static __device__ int32_t specrt__shortlist_digit(const int32_t *counts, int32_t need,
                                                  int32_t *above) {
    const int32_t kEach = SPECRT__SHORTLIST_DIGITS / 32;
    int32_t lane = (int32_t)(threadIdx.x % 32),
            highest = SPECRT__SHORTLIST_DIGITS - 1 - kEach * lane;
    int32_t sum = 0;
    for (int32_t i = 0; i < kEach; i++) sum += counts[highest - i];
    int32_t upto = sum;
    for (int by = 1; by < 32; by *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, upto, (unsigned)by);
        if (lane >= by) upto += other;
    }
    unsigned reached = __ballot_sync(0xffffffffu, upto >= need);
    int source = reached ? __ffs((int)reached) - 1 : 31;
    int32_t digit = highest, before = upto - sum;
    while (digit > highest - kEach + 1 && before + counts[digit] < need) before += counts[digit--];
    *above = __shfl_sync(0xffffffffu, before, source);
    return __shfl_sync(0xffffffffu, digit, source);
}

/* The least of the k greatest of n keys, found a digit of 8 bits at a time; at least 1, since a key of 0 is
 * none. More than k keys reach it only where keys are equal. */
static __device__ uint64_t specrt__shortlist_least(const uint64_t *keys, int32_t n, int32_t k) {
    const int32_t kEach = 4, step = (int32_t)blockDim.x; /* keys under way */
    __shared__ int32_t counts[SPECRT__SHORTLIST_DIGITS], digit, above;
    uint64_t prefix = 0, mask = 0;
    for (int shift = 56; shift >= 0 && n > k; shift -= 8) {
        for (int32_t i = (int32_t)threadIdx.x; i < SPECRT__SHORTLIST_DIGITS; i += step)
            counts[i] = 0;
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += kEach * step) {
            uint64_t some[kEach];
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < kEach; j++) some[j] = i + j * step < n ? keys[i + j * step] : 0;
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < kEach; j++)
                if (i + j * step < n && (some[j] & mask) == prefix)
                    atomicAdd(&counts[some[j] >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            int32_t higher, found = specrt__shortlist_digit(counts, k, &higher);
            if (threadIdx.x == 0) digit = found, above = higher;
        }
        __syncthreads();
        k -= above;
        prefix |= (uint64_t)digit << shift;
        mask |= (uint64_t)255 << shift;
        bool whole = counts[digit] == k;
        __syncthreads();
        if (whole) break;
    }
    return prefix > 0 ? prefix : 1;
}

/* Those of n keys that reach `least`, in order, at most k of them. @return how many. */
static __device__ int32_t specrt__shortlist_collect(const uint64_t *keys, int32_t n, int32_t k,
                                                    uint64_t least, uint64_t *out) {
    int32_t n_out = 0, before;
    for (int32_t first = 0; first < n; first += (int32_t)blockDim.x) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool take = i < n && keys[i] >= least;
        int32_t n_taken = specrt__block_rank(take, &before);
        if (take && n_out + before < k) out[n_out + before] = keys[i];
        n_out += n_taken;
    }
    __syncthreads();
    return n_out < k ? n_out : k;
}

/* The k greatest of n keys, descending, into best [SPECRT__SHORTLIST_MAX_K]. @return how many. */
static __device__ __noinline__ int32_t specrt__shortlist_choose(const uint64_t *keys, int32_t n,
                                                                int32_t k, uint64_t *best) {
    __shared__ uint64_t some[SPECRT__SHORTLIST_MAX_K];
    const int32_t kFew = 512; /* that are sooner compared with each other than counted by digits */
    if (n > kFew) {
        uint64_t least = specrt__shortlist_least(keys, n, k);
        n = specrt__shortlist_collect(keys, n, k, least, some);
        keys = some;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; j++) rank += keys[j] > keys[i] || (keys[j] == keys[i] && j < i);
        if (rank < k) best[rank] = keys[i];
    }
    __syncthreads();
    return n < k ? n : k;
}

/* --- the best k of every row of logits --- */

enum {
    SPECRT__SHORTLIST_EACH = 16,  /* columns of a thread */
    SPECRT__SHORTLIST_BLOCKS = 4, /* on a multiprocessor: with more, columns would not fit */
    SPECRT__SHORTLIST_PART = SPECRT__SHORTLIST_EACH * SPECRT__SHORTLIST_THREADS,
    SPECRT__SHORTLIST_GROUPS = 32, /* of threads, as many as a warp has lanes */
    SPECRT__SHORTLIST_TICKETS = SPECRT__CUDA_MAX_BATCH * (SPECRT__CUDA_MAX_STATES + 1)
};

typedef struct specrt__shortlist_ranks {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments]; NULL: column i is token i */
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS], n_segments;
    int32_t n_columns, n_parts, k;
    int32_t row_size;    /* floats from row to row of logits, of which n_columns are ranked */
    const float *logits; /* [n_batch, max_n, row_size] */
    int32_t max_n, n_step;
    const int32_t *n;        /* as in specrt__head_product */
    uint32_t *tickets;       /* [n_batch], then [n_batch, max_n]: 0 */
    uint64_t *keys;          /* [n_batch, max_n, n_parts, k] scratch */
    double *sums;            /* [n_batch, max_n, n_parts] of exp(logit - most) */
    int32_t *ids, row_step;  /* [n_batch, row_step, k] */
    float *logprobs, *total; /* [n_batch, row_step, k]; [n_batch, row_step]; NULL: not asked for */
} specrt__shortlist_ranks;

/* What a part of a row has, or all of it: the best keys, how many, and the sum of exp(logit - greatest). */
typedef struct specrt__shortlist_found {
    uint64_t *best; /* [SPECRT__SHORTLIST_MAX_K] */
    int32_t n;
    double sum;
} specrt__shortlist_found;

/* The token of a column; -1: it has none.
 *   segments [n_segments] of the sequence */
static __device__ int32_t specrt__shortlist_token(const specrt__cuda_segment *segments,
                                                  const int32_t *starts, int32_t n_segments,
                                                  int32_t column) {
    int32_t s = 0;
    while (s + 1 < n_segments && starts[s + 1] <= column) s++;
    int32_t row = column - starts[s];
    int32_t n_rows = segments[s].n_rows ? *segments[s].n_rows : segments[s].max_rows;
    return row < n_rows ? segments[s].ids[row] : -1;
}

/* What a logit adds to a sum of exp(logit - most); most infinite: how many there are. */
static __device__ double specrt__shortlist_exp(float logit, float most) {
    if (logit == most) return 1;
    return logit < most ? (double)expf(logit - most) : 0.0;
}

/* orders[j]: of column first + j * threads + thread; 0: it has no token, 1: NaN, which only a shortlist
 * knows. */
static __device__ void specrt__shortlist_read(const specrt__shortlist_ranks &r, int32_t b,
                                              int32_t first, const float *logits,
                                              uint32_t *orders) {
    __shared__ int32_t ends[SPECRT__CUDA_MAX_SEGMENTS]; /* of segments' tokens */
    const specrt__cuda_segment *segments = r.segments + b * r.n_segments;
    int32_t thread = (int32_t)threadIdx.x;
    float row[SPECRT__SHORTLIST_EACH]; /* loads under way */
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        int32_t column = first + j * SPECRT__SHORTLIST_THREADS + thread;
        row[j] = column < r.n_columns ? logits[column] : -INFINITY;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++)
        orders[j] = row[j] > -INFINITY ? specrt__shortlist_order(row[j]) : 0;
    if (!r.segments) return;
    if (thread < r.n_segments)
        ends[thread] = r.starts[thread] + (segments[thread].n_rows ? *segments[thread].n_rows
                                                                   : segments[thread].max_rows);
    __syncthreads();
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        int32_t column = first + j * SPECRT__SHORTLIST_THREADS + thread, s = 0;
        while (s + 1 < r.n_segments && r.starts[s + 1] <= column) s++;
        uint32_t order = specrt__shortlist_order(row[j]);
        bool has = column < r.n_columns && column < ends[s];
        orders[j] = !has ? 0 : order > 0 ? order : 1;
    }
}

/* The k-th greatest of what groups of threads have for their greatest, at least 1: k columns reach it,
 * and not many more. *greatest: of all. */
static __device__ uint32_t specrt__shortlist_floor(const uint32_t *orders, int32_t k,
                                                   uint32_t *greatest) {
    __shared__ uint32_t groups[SPECRT__SHORTLIST_GROUPS], sorted[SPECRT__SHORTLIST_GROUPS];
    const int kThreads = SPECRT__SHORTLIST_THREADS / SPECRT__SHORTLIST_GROUPS;
    int thread = specrt__block_thread();
    uint32_t most = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) most = max(most, orders[j]);
    for (int by = 1; by < kThreads; by *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, by));
    if (thread % kThreads == 0) groups[thread / kThreads] = most;
    __syncthreads();
    if (thread < SPECRT__SHORTLIST_GROUPS) {
        uint32_t mine = groups[thread];
        int rank = 0;
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < SPECRT__SHORTLIST_GROUPS; i++)
            rank += groups[i] > mine || (groups[i] == mine && i < thread);
        sorted[rank] = mine;
    }
    __syncthreads();
    *greatest = sorted[0];
    uint32_t least = k <= SPECRT__SHORTLIST_GROUPS ? sorted[k - 1] : 0;
    return least > 0 ? least : 1;
}

/* The greatest logit that keys [n], in order, tell of. */
static __device__ float specrt__shortlist_most(const specrt__shortlist_found &f) {
    return f.n > 0 && f.best[0] >> 32 ? specrt__shortlist_key_logit(f.best[0]) : -INFINITY;
}

/* Whether sums are asked for, which take longer than all else. */
static __device__ bool specrt__shortlist_sums(const specrt__shortlist_ranks &r) {
    return r.logprobs || r.total;
}

/* The part of a row that begins at column `first`.
 *   keys : [SPECRT__SHORTLIST_PART] */
static __device__ void specrt__shortlist_rank_part(const specrt__shortlist_ranks &r, int32_t b,
                                                   int32_t first, const float *logits,
                                                   uint64_t *keys, specrt__shortlist_found *out) {
    uint32_t orders[SPECRT__SHORTLIST_EACH], greatest;
    int32_t n_mine = 0, place;
    specrt__shortlist_read(r, b, first, logits, orders);
    uint32_t least = specrt__shortlist_floor(orders, r.k, &greatest);
    float most = specrt__shortlist_key_logit((uint64_t)greatest << 32);
    double sum = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        n_mine += orders[j] >= least;
        if (!specrt__shortlist_sums(r) || orders[j] <= 1) continue;
        sum += specrt__shortlist_exp(specrt__shortlist_key_logit((uint64_t)orders[j] << 32), most);
    }
    int32_t n = specrt__block_scan(n_mine, &place);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        if (orders[j] < least) continue;
        int32_t id = first + j * SPECRT__SHORTLIST_THREADS + (int32_t)threadIdx.x;
        if (r.segments)
            id = specrt__shortlist_token(r.segments + b * r.n_segments, r.starts, r.n_segments, id);
        keys[place++] = (uint64_t)(orders[j] > 1 ? orders[j] : 0) << 32 | (uint32_t)~id;
    }
    if (specrt__shortlist_sums(r)) out->sum = specrt__block_sum(sum);
    __syncthreads();
    out->n = specrt__shortlist_choose(keys, n, r.k, out->best);
}

/* All parts of a row, whose keys and sums are there.
 *   some : [SPECRT__SHORTLIST_PART] */
static __device__ void specrt__shortlist_join(const specrt__shortlist_ranks &r,
                                              const uint64_t *keys, const double *sums,
                                              uint64_t *some, specrt__shortlist_found *out) {
    int32_t n = r.n_parts * r.k, threads = (int32_t)blockDim.x;
    double sum = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n && n <= SPECRT__SHORTLIST_PART; i += threads)
        some[i] = keys[i];
    __syncthreads();
    out->n = specrt__shortlist_choose(n <= SPECRT__SHORTLIST_PART ? some : keys, n, r.k, out->best);
    float most = specrt__shortlist_most(*out);
    for (int32_t i = (int32_t)threadIdx.x; i < r.n_parts; i += threads) {
        uint64_t first = keys[(int64_t)i * r.k]; /* the part's greatest */
        if (specrt__shortlist_sums(r) && sums[i] > 0)
            sum += sums[i] * specrt__shortlist_exp(specrt__shortlist_key_logit(first), most);
    }
    if (specrt__shortlist_sums(r)) out->sum = specrt__block_sum(sum);
}

/* Row `at` of all: ids and log-probabilities, best first. */
static __device__ void specrt__shortlist_write(const specrt__shortlist_ranks &r, size_t at,
                                               const specrt__shortlist_found &f) {
    float most = specrt__shortlist_most(f);
    double total = log(f.sum);
    for (int32_t i = (int32_t)threadIdx.x; i < r.k; i += (int32_t)blockDim.x) {
        uint64_t key = i < f.n ? f.best[i] : 0;
        float logit = key >> 32 ? specrt__shortlist_key_logit(key) : -INFINITY;
        double logprob = (logit == most ? 0.0 : (double)logit - (double)most) - total;
        r.ids[at * (size_t)r.k + (size_t)i] = specrt__shortlist_key_id(key);
        if (r.logprobs)
            r.logprobs[at * (size_t)r.k + (size_t)i] =
                logit > -INFINITY ? (float)logprob : -INFINITY;
    }
    if (r.total && threadIdx.x == 0) r.total[at] = (float)((double)most + total);
}

/* Block (i, h, b): of logits[b, h, i * PART : (i + 1) * PART] the k greatest keys and the sum of
 * exponentials; the last block of a row joins what its parts have.
 *   grid (n_parts, max_n, n_batch), block SPECRT__SHORTLIST_THREADS; k <= SPECRT__SHORTLIST_MAX_K
 *   CPU twins: specrt_shortlist_topk(), specrt_logits_topk()
 * @return for all threads of the sequence's last block true: its rows are ranked, and what it was asked with
 *         is read no more. */
static __device__ bool specrt__shortlist_rank(const specrt__shortlist_ranks &r) {
    __shared__ uint64_t keys[SPECRT__SHORTLIST_PART], best[SPECRT__SHORTLIST_MAX_K];
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y;
    bool counts = h < (r.n ? r.n[(int64_t)b * r.n_step] : r.max_n);
    size_t row = (size_t)b * (size_t)r.max_n + (size_t)h, part = row * (size_t)r.n_parts;
    specrt__shortlist_found found = {best, 0, 0};
    if (counts)
        specrt__shortlist_rank_part(r, b, (int32_t)blockIdx.x * SPECRT__SHORTLIST_PART,
                                    r.logits + row * (size_t)r.row_size, keys, &found);
    if (r.n_parts > 1) {
        uint64_t *out = r.keys + (part + blockIdx.x) * (size_t)r.k;
        for (int32_t i = (int32_t)threadIdx.x; i < r.k; i += (int32_t)blockDim.x)
            out[i] = i < found.n ? best[i] : 0;
        if (threadIdx.x == 0) r.sums[part + blockIdx.x] = found.sum;
        if (!specrt__block_last(&r.tickets[gridDim.z + row], r.n_parts)) return false;
        if (counts)
            specrt__shortlist_join(r, r.keys + part * (size_t)r.k, r.sums + part, keys, &found);
    }
    if (counts) specrt__shortlist_write(r, (size_t)b * (size_t)r.row_step + (size_t)h, found);
    return specrt__block_last(&r.tickets[b], r.max_n);
}

static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__shortlist_rank_kernel(specrt__shortlist_ranks r) {
    specrt__shortlist_rank(r);
}

/* Scratch of a ranking of n rows. Tickets come first, whatever the shape. */
static size_t specrt__shortlist_lay_out(void *scratch, size_t n, specrt__shortlist_ranks *r) {
    specrt__launch_arena arena = {scratch, 0};
    r->n_parts = (int32_t)specrt__launch_blocks(r->n_columns, SPECRT__SHORTLIST_PART);
    specrt__launch_carve(&arena, SPECRT__SHORTLIST_TICKETS, &r->tickets);
    specrt__launch_carve(&arena, n * (size_t)r->n_parts * (size_t)r->k, &r->keys);
    specrt__launch_carve(&arena, n * (size_t)r->n_parts, &r->sums);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_topk_bytes(int64_t n_columns, int64_t n_rows, int32_t k) {
    if (n_columns < 1 || n_columns > INT32_MAX || k < 1 || k > SPECRT__SHORTLIST_MAX_K) return 0;
    if (n_rows < 1 || n_rows > SPECRT__CUDA_MAX_BATCH * SPECRT__CUDA_MAX_STATES) return 0;
    specrt__shortlist_ranks r;
    r.n_columns = (int32_t)n_columns;
    r.k = k;
    return specrt__shortlist_lay_out(NULL, (size_t)n_rows, &r);
}

/* Checks and fills in what all rankings have, for a kernel on *grid; r: the rest. */
static specrt_status specrt__shortlist_prepare(specrt__shortlist_ranks *r,
                                               const specrt__cuda_batch *batch, const float *logits,
                                               int32_t k, int32_t *ids, void *scratch, dim3 *grid) {
    r->row_size = r->n_columns;
    r->logits = logits;
    r->k = k;
    r->ids = ids;
    SPECRT__TRY(specrt__head_check_batch(batch));
    r->max_n = batch->max_n;
    r->n = batch->n;
    r->n_step = batch->n_step;
    if (!logits || !ids || !scratch || (uintptr_t)scratch % 8) return SPECRT_STATUS_BAD_ARG;
    int32_t n_rows = batch->n_batch * batch->max_n;
    if (specrt__cuda_topk_bytes(r->n_columns, n_rows, k) == 0) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_lay_out(scratch, (size_t)n_rows, r);
    *grid = dim3((unsigned)r->n_parts, (unsigned)batch->max_n, (unsigned)batch->n_batch);
    return SPECRT_STATUS_OK;
}

/* A ranking of a shortlist, as specrt__cuda_topk() is asked for it. */
static specrt_status specrt__shortlist_shortlist(const specrt__cuda_layout *layout,
                                                 const specrt__cuda_segment *segments,
                                                 const specrt__cuda_batch *batch,
                                                 const float *logits, int32_t k, int32_t *ids,
                                                 float *logprobs, void *scratch,
                                                 specrt__shortlist_ranks *r, dim3 *grid) {
    SPECRT__CLEAR(r, 1);
    r->n_columns = specrt__head_lay_out(layout, r->starts);
    if (r->n_columns == 0 || !segments || !logprobs) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__shortlist_prepare(r, batch, logits, k, ids, scratch, grid));
    r->segments = segments;
    r->n_segments = layout->n_segments;
    r->row_step = batch->max_n;
    r->logprobs = logprobs;
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_topk(const specrt__cuda_layout *layout,
                                               const specrt__cuda_segment *segments,
                                               const specrt__cuda_batch *batch, const float *logits,
                                               int32_t k, int32_t *ids, float *logprobs,
                                               void *scratch, void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__shortlist_shortlist(layout, segments, batch, logits, k, ids, logprobs,
                                            scratch, &r, &grid));
    return SPECRT__LAUNCH(specrt__shortlist_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r);
}

/* A ranking of whole rows of the target's logits. */
static specrt_status specrt__shortlist_whole(const specrt__cuda_batch *batch, const float *logits,
                                             int32_t n_vocab, int32_t k, int32_t *ids,
                                             int32_t row_step, void *scratch,
                                             specrt__shortlist_ranks *r, dim3 *grid) {
    SPECRT__CLEAR(r, 1);
    if (n_vocab < 1 || n_vocab > SPECRT_MAX_VOCAB) return SPECRT_STATUS_BAD_ARG;
    r->n_columns = n_vocab;
    r->row_step = row_step;
    return specrt__shortlist_prepare(r, batch, logits, k, ids, scratch, grid);
}

SPECRT__KERNEL specrt_status specrt__cuda_target_topk(const specrt__cuda_batch *batch,
                                                      const float *logits, int32_t n_vocab,
                                                      int32_t k, int32_t *ids, float *logsumexp,
                                                      void *scratch, void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__shortlist_whole(batch, logits, n_vocab, k, ids, SPECRT_TREE_MAX_NODES,
                                        scratch, &r, &grid));
    r.total = logsumexp;
    return SPECRT__LAUNCH(specrt__shortlist_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r);
}

#endif
