/* cluster.cuh : owns, on the device, the choice of clusters: what the router reads, its layers,
 * probabilities and which clusters a level takes. A cluster's rank is how many are better, so clusters
 * stand in order whoever counts first; the taken ones become rows of one segment. */
#ifndef CUDA_CLUSTER_CUH
#define CUDA_CLUSTER_CUH

#include "core/base.h"
#include "core/shortlist.h"
#include "sources/cluster.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/head_rows.cuh"
#include "cuda/head.cuh"
#include "cuda/pool.cuh"
#include "cuda/window.cuh"

enum { SPECRT__CLUSTER_THREADS = 256 };

/* Scratch of a level; all DEVICE. */
typedef struct specrt__cluster_scratch {
    float *inputs;    /* [n_batch, max_n, n_embed + n_state] */
    float *hidden;    /* [n_batch, max_n, n_hidden] */
    float *scores;    /* [n_batch, max_n + 1, n_clusters] by row, then their sums */
    int32_t *order;   /* [n_batch, max_n + 1, n_clusters] best first */
    int32_t *taken;   /* [n_batch, n_clusters] rows */
    int32_t *begin;   /* [n_batch, n_clusters] where they come to stand */
    int32_t *list;    /* [n_batch, n_clusters] clusters with rows, ascending */
    int32_t *n_list;  /* [n_batch] */
    uint64_t *takers; /* [n_batch, n_clusters] rows of the level that score it; per_row */
} specrt__cluster_scratch;

/* --- forward --- */

static __device__ float specrt__cluster_value(specrt_dtype dtype, const void *row, int32_t i) {
    if (dtype == SPECRT_DTYPE_F32) return ((const float *)row)[i];
    if (dtype == SPECRT_DTYPE_Q8_0) { /* blocks of a f16 scale and 32 codes */
        const uint8_t *block = (const uint8_t *)row + i / 32 * 34;
        float scale = __half2float(__ushort_as_half(*(const uint16_t *)(const void *)block));
        return scale * (float)(int8_t)block[2 + i % 32];
    }
    uint16_t bits = ((const uint16_t *)row)[i];
    if (dtype == SPECRT_DTYPE_BF16) return __uint_as_float((uint32_t)bits << 16);
    return __half2float(__ushort_as_half(bits));
}

/* Twin: specrt__cluster_rms. */
static __device__ void specrt__cluster_rms(float *x, int32_t n) {
    double square = 0;
    __syncthreads();
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        square += (double)x[i] * (double)x[i];
    square = specrt__block_sum(square);
    float scale = square > 0 ? (float)(1 / sqrt(square / (double)n)) : 0;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) x[i] *= scale;
}

/* Block (i, b): what the router reads of row i of sequence b, [rms(embedding); rms(state)].
 *   states [n_batch, max_n, n_state] or NULL -> x [n_batch, max_n, n_embed + n_state]
 *   grid (max_n, n_batch), any block.  Twin: specrt__cluster_read */
static __global__ void specrt__cluster_read_kernel(specrt__cuda_router r,
                                                   const specrt_cuda_beam *beams,
                                                   const float *states, float *x) {
    int32_t i = (int32_t)blockIdx.x, thread = specrt__block_thread();
    int64_t at = (int64_t)blockIdx.y * gridDim.x + i;
    if (i >= beams[blockIdx.y].n) return;
    x += at * (r.n_embed + r.n_state);
    if (r.n_embed > 0) {
        int32_t token = beams[blockIdx.y].tokens[i];
        if (token < 0 || token >= r.embedding.n_rows) token = 0;
        const char *row = (const char *)r.embedding.rows + (size_t)token * r.embedding.row_stride;
        for (int32_t j = thread; j < r.n_embed; j += specrt__block_threads())
            x[j] = specrt__cluster_value(r.embedding.dtype, row, j);
        specrt__cluster_rms(x, r.n_embed);
        x += r.n_embed;
    }
    for (int32_t j = thread; j < r.n_state; j += specrt__block_threads())
        x[j] = states ? states[at * r.n_state + j] : 0;
    if (r.kind != SPECRT_ROUTER_CENTROID) specrt__cluster_rms(x, r.n_state);
}

/* Block (i, b): scores of row i to probabilities, times that of its path, in place.
 *   scores [n_batch, max_n + 1, n_clusters];  grid (max_n, n_batch), any block.
 *   Twin: specrt__cluster_weigh */
static __global__ void specrt__cluster_weigh_kernel(specrt__cuda_router r,
                                                    const specrt_cuda_beam *beams, float *scores) {
    __shared__ float most;
    int32_t i = (int32_t)blockIdx.x, n = r.n_clusters, thread = specrt__block_thread();
    if (i >= beams[blockIdx.y].n) return;
    float path = expf(beams[blockIdx.y].logprobs[i]), scale = path;
    scores += ((int64_t)blockIdx.y * (gridDim.x + 1) + i) * n;
    if (!r.softmax) {
        for (int32_t m = thread; m < n; m += specrt__block_threads())
            scores[m] = 1 / (1 + expf(-scores[m])) * scale;
        return;
    }
    uint64_t best = 0;
    double sum = 0;
    for (int32_t m = thread; m < n; m += specrt__block_threads()) {
        uint64_t key = specrt__shortlist_key(scores[m], m);
        if (key > best) best = key;
    }
    best = specrt__block_max(best);
    if (thread == 0) most = scores[specrt__shortlist_key_id(best)];
    __syncthreads();
    for (int32_t m = thread; m < n; m += specrt__block_threads()) {
        scores[m] = expf(scores[m] - most);
        sum += (double)scores[m];
    }
    scale = (float)(path / specrt__block_sum(sum));
    for (int32_t m = thread; m < n; m += specrt__block_threads()) scores[m] *= scale;
}

/* Thread m of sequence blockIdx.y: the sum of its probabilities over the rows, in order.
 *   scores as before;  grid (n_clusters / threads, n_batch) */
static __global__ void specrt__cluster_total_kernel(specrt__cuda_router r,
                                                    const specrt_cuda_beam *beams, int32_t max_n,
                                                    float *scores) {
    int32_t m = (int32_t)blockIdx.x * specrt__block_threads() + specrt__block_thread();
    if (m >= r.n_clusters) return;
    scores += (int64_t)blockIdx.y * (max_n + 1) * r.n_clusters + m;
    float sum = 0;
    for (int32_t i = 0; i < beams[blockIdx.y].n; i++) sum += scores[(int64_t)i * r.n_clusters];
    scores[(int64_t)max_n * r.n_clusters] = sum;
}

/* --- the choice --- */

static __device__ uint64_t specrt__cluster_key(float prob, int32_t m) {
    return (uint64_t)__float_as_uint(prob > 0 ? prob : 0) << 32 | (uint32_t)~m;
}

/* Block (c, i, b): the ranks of clusters [c * threads, + threads) in list first + i of sequence b, by
 * (probability descending, number ascending).
 *   scores -> order, both [n_batch, max_n + 1, n_clusters]
 *   grid (n_clusters / SPECRT__CLUSTER_THREADS, lists, n_batch), block SPECRT__CLUSTER_THREADS */
static __global__ void specrt__cluster_rank_kernel(specrt__cuda_router r,
                                                   const specrt_cuda_beam *beams, int32_t max_n,
                                                   int32_t first, const float *scores,
                                                   int32_t *order) {
    __shared__ uint64_t keys[SPECRT__CLUSTER_THREADS];
    int32_t list = first + (int32_t)blockIdx.y, thread = specrt__block_thread();
    int32_t m = (int32_t)blockIdx.x * SPECRT__CLUSTER_THREADS + thread, rank = 0;
    int64_t at = ((int64_t)blockIdx.z * (max_n + 1) + list) * r.n_clusters;
    if (list < max_n && list >= beams[blockIdx.z].n) return;
    uint64_t mine = m < r.n_clusters ? specrt__cluster_key(scores[at + m], m) : 0;
    for (int32_t begin = 0; begin < r.n_clusters; begin += SPECRT__CLUSTER_THREADS) {
        int32_t n = specrt__pool_least(SPECRT__CLUSTER_THREADS, r.n_clusters - begin);
        if (thread < n)
            keys[thread] = specrt__cluster_key(scores[at + begin + thread], begin + thread);
        __syncthreads();
        for (int32_t i = 0; i < n; i++) rank += keys[i] > mine;
        __syncthreads();
    }
    if (m < r.n_clusters) order[at + rank] = m;
}

typedef struct specrt__cluster_taking {
    int32_t *taken;    /* [n_clusters] */
    uint64_t *takers;  /* [n_clusters] */
    int32_t n, n_rows; /* clusters and rows taken at this level; all threads hold the same */
} specrt__cluster_taking;

/* The `n` first clusters of an order, then more while those hold fewer rows than a level proposes: always a
 * first part of the order, so that each cluster's rows follow as if all before it were taken.
 *   taker : bit of the row that they are for; 0: for all.  Twin: specrt__cluster_take */
static __device__ void specrt__cluster_take(const specrt__cuda_router *r, const int32_t *order,
                                            int32_t n, uint64_t taker, specrt__cluster_taking *t) {
    int32_t n_seen = 0, before;
    for (int32_t begin = 0; begin < r->n_clusters; begin += specrt__block_threads()) {
        int32_t at = begin + specrt__block_thread(), m = at < r->n_clusters ? order[at] : -1;
        int32_t held = m < 0 ? 0 : t->taken[m];
        int32_t rows = m < 0 || held > 0 ? 0 : r->starts[m + 1] - r->starts[m];
        specrt__block_scan(rows, &before);
        if (r->cap > 0 && rows > r->cap - t->n_rows - before) rows = r->cap - t->n_rows - before;
        if (rows < 0) rows = 0;
        specrt__block_rank(rows > 0, &before);
        if (t->n + before >= SPECRT__CLUSTER_MOST) rows = 0;
        int32_t n_here = specrt__block_scan(held + rows, &before);
        bool taken = m >= 0 && (at < n || n_seen + before < SPECRT_TREE_MAX_TOPK);
        if (!taken) rows = 0;
        if (rows > 0) t->taken[m] = rows;
        if (taken) t->takers[m] |= taker;
        t->n += __syncthreads_count(rows > 0);
        t->n_rows += specrt__block_scan(rows, &before);
        n_seen += n_here;
        if (__syncthreads_count(taken) < specrt__block_threads()) break;
    }
    __syncthreads();
}

/* Block b: the clusters of sequence b, and where their rows come to stand.
 *   order [n_batch, max_n + 1, n_clusters] -> taken, begins, takers, lists [n_batch, n_clusters], n_rows
 *   grid (n_batch), any block.  Twin: specrt__cluster_route */
static __global__ void specrt__cluster_take_kernel(specrt__cuda_router r,
                                                   const specrt_cuda_beam *beams, int32_t max_n,
                                                   int32_t n_take, specrt__cluster_scratch s,
                                                   int32_t max_rows, int32_t *n_rows) {
    int32_t n = beams[blockIdx.x].n, end = 0, n_list = 0, before;
    int64_t at = (int64_t)blockIdx.x * r.n_clusters;
    const int32_t *order = s.order + at * (max_n + 1);
    specrt__cluster_taking t = {s.taken + at, s.takers + at, 0, 0};
    for (int32_t m = specrt__block_thread(); m < r.n_clusters; m += specrt__block_threads())
        t.taken[m] = 0, t.takers[m] = 0;
    __syncthreads();
    for (int32_t i = 0; i < n && r.per_row; i++)
        specrt__cluster_take(&r, order + (int64_t)i * r.n_clusters, n_take, (uint64_t)1 << i, &t);
    if (n > 0 && !r.per_row)
        specrt__cluster_take(&r, order + (int64_t)max_n * r.n_clusters, n_take, 0, &t);
    for (int32_t first = 0; first < r.n_clusters; first += specrt__block_threads()) {
        int32_t m = first + specrt__block_thread(), rows = m < r.n_clusters ? t.taken[m] : 0;
        int32_t n_here = specrt__block_scan(rows, &before);
        if (m < r.n_clusters) s.begin[at + m] = end + before;
        end += n_here;
        n_here = specrt__block_rank(rows > 0, &before);
        if (rows > 0) s.list[at + n_list + before] = m;
        n_list += n_here;
    }
    if (specrt__block_thread() > 0) return;
    n_rows[blockIdx.x] = specrt__pool_least(end, max_rows);
    s.n_list[blockIdx.x] = n_list;
}

/* Rows and tokens of cluster m, which sequence b took, and who scores them. A block calls. */
static __device__ void specrt__cluster_list(const specrt__cuda_router &r,
                                            const specrt__cluster_scratch &s, int32_t b, int32_t m,
                                            const specrt__cuda_choice &c) {
    int32_t first = r.starts[m];
    int64_t at = (int64_t)b * r.n_clusters + m, out = (int64_t)b * c.max_rows + s.begin[at];
    int32_t n = specrt__pool_least(s.taken[at], c.max_rows - s.begin[at]);
    uint64_t takers = s.takers[at] ? s.takers[at] : ~(uint64_t)0;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        c.ids[out + i] = r.ids[first + i];
        c.places[out + i] = first + i;
        if (c.scored_by) c.scored_by[out + i] = takers;
    }
}

/* Block (i, b): cluster number i that sequence b took, then the next as many further as there are blocks.
 *   grid (any, n_batch), any block */
static __global__ void specrt__cluster_list_kernel(specrt__cuda_router r, specrt__cluster_scratch s,
                                                   specrt__cuda_choice c) {
    int32_t b = (int32_t)blockIdx.y;
    for (int32_t i = (int32_t)blockIdx.x; i < s.n_list[b]; i += (int32_t)gridDim.x)
        specrt__cluster_list(r, s, b, s.list[(int64_t)b * r.n_clusters + i], c);
}

/* --- launches --- */

static bool specrt__cluster_router_ok(const specrt__cuda_router *r, int32_t n_batch,
                                      int32_t max_n) {
    if (!r || n_batch < 1 || n_batch > SPECRT__CUDA_MAX_BATCH) return false;
    if (max_n < 1 || max_n > SPECRT_TREE_MAX_TOPK) return false;
    if (r->n_clusters < 1 || r->n_clusters > SPECRT_MAX_CLUSTERS || r->cap < 0) return false;
    if (r->n_state < 1 || r->n_embed < 0 || r->n_hidden < 0) return false;
    if (r->n_state > (1 << 20) || r->n_embed > (1 << 20) || r->n_hidden > (1 << 20)) return false;
    return r->kind >= SPECRT_ROUTER_CENTROID && r->kind <= SPECRT_ROUTER_CORAL;
}

static size_t specrt__cluster_lay_out(const specrt__cuda_router *r, int32_t n_batch, int32_t max_n,
                                      void *memory, specrt__cluster_scratch *out) {
    size_t b = (size_t)n_batch, n = b * (size_t)max_n, m = (size_t)r->n_clusters;
    size_t lists = b * (size_t)(max_n + 1) * m;
    specrt__launch_arena arena = {memory, 0};
    specrt__launch_carve(&arena, n * (size_t)(r->n_embed + r->n_state), &out->inputs);
    specrt__launch_carve(&arena, n * (size_t)r->n_hidden, &out->hidden);
    specrt__launch_carve(&arena, lists, &out->scores);
    specrt__launch_carve(&arena, lists, &out->order);
    specrt__launch_carve(&arena, b * m, &out->taken);
    specrt__launch_carve(&arena, b * m, &out->begin);
    specrt__launch_carve(&arena, b * m, &out->list);
    specrt__launch_carve(&arena, b, &out->n_list);
    specrt__launch_carve(&arena, b * m, &out->takers);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_router_bytes(const specrt__cuda_router *router, int32_t n_batch,
                                                int32_t max_n) {
    specrt__cluster_scratch scratch;
    if (!specrt__cluster_router_ok(router, n_batch, max_n)) return 0;
    return specrt__cluster_lay_out(router, n_batch, max_n, NULL, &scratch);
}

/* A router's layer: out [n_batch, row_step, n_out] of x [n_batch, max_n, n_in]. */
typedef struct specrt__cluster_dense {
    const uint16_t *weights; /* f16 [n_out, n_in] */
    const float *bias;       /* [n_out] */
    int32_t n_out, n_in;
    int activation;
    int32_t row_step;
} specrt__cluster_dense;

/* Twin: specrt__cluster_multiply */
static specrt_status specrt__cluster_multiply_batch(specrt__cluster_dense layer,
                                                    const specrt__cuda_batch *batch, const float *x,
                                                    float *out, void *stream) {
    specrt__head_product p =
        specrt__head_of_rows(layer.weights, SPECRT_DTYPE_F16, layer.n_out, layer.n_in);
    specrt__head_take_states(&p, batch, x, SPECRT_DTYPE_F32);
    p.own.bias = layer.bias;
    p.logits = out;
    p.row_step = layer.row_step;
    p.activation = layer.activation;
    return specrt__head_run<SPECRT_DTYPE_F16>(p, batch->n_batch, stream);
}

/* Probabilities of all clusters by row, and their sums. */
static specrt_status specrt__cluster_forward_batch(const specrt__cuda_router *r, int32_t n_batch,
                                                   int32_t max_n, const specrt_cuda_beam *beams,
                                                   const float *states,
                                                   const specrt__cluster_scratch *s, void *stream) {
    dim3 rows((unsigned)max_n, (unsigned)n_batch);
    specrt__cuda_batch batch = specrt__head_beam_rows(beams, n_batch, max_n);
    int32_t n_in = r->n_embed + r->n_state;
    int activation = r->kind == SPECRT_ROUTER_CORAL ? SPECRT__HEAD_RESIDUAL : SPECRT__HEAD_SILU;
    specrt__cluster_dense first = {r->w1, r->b1, r->n_hidden, n_in, activation, max_n};
    specrt__cluster_dense last = {
        r->w2,    r->b2, r->n_clusters, r->n_hidden > 0 ? r->n_hidden : n_in, SPECRT__HEAD_LINEAR,
        max_n + 1};
    SPECRT__TRY(SPECRT__LAUNCH(specrt__cluster_read_kernel, rows,
                               specrt__block_size(SPECRT__CLUSTER_THREADS), 0, stream, *r, beams,
                               states, s->inputs));
    if (r->n_hidden > 0)
        SPECRT__TRY(specrt__cluster_multiply_batch(first, &batch, s->inputs, s->hidden, stream));
    SPECRT__TRY(specrt__cluster_multiply_batch(
        last, &batch, r->n_hidden > 0 ? s->hidden : s->inputs, s->scores, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__cluster_weigh_kernel, rows,
                               specrt__block_size(SPECRT__CLUSTER_THREADS), 0, stream, *r, beams,
                               s->scores));
    dim3 totals(specrt__launch_blocks(r->n_clusters, SPECRT__CLUSTER_THREADS), (unsigned)n_batch);
    return SPECRT__LAUNCH(specrt__cluster_total_kernel, totals, (int)SPECRT__CLUSTER_THREADS, 0,
                          stream, *r, beams, max_n, s->scores);
}

static specrt_status specrt__cluster_arguments(const specrt__cuda_router *r, int32_t n_take,
                                               const void *beams, const void *scratch) {
    bool coral = r->kind == SPECRT_ROUTER_CORAL;
    if (!r->w2 || !r->b2 || !r->starts || !r->ids || (r->n_hidden > 0 && (!r->w1 || !r->b1)))
        return SPECRT_STATUS_BAD_ARG;
    if (coral && (r->n_hidden != r->n_state || r->n_embed > 0)) return SPECRT_STATUS_BAD_ARG;
    if (!beams || !scratch || n_take < 1 || n_take > SPECRT__CLUSTER_MOST)
        return SPECRT_STATUS_BAD_ARG;
    if (r->n_embed == 0) return SPECRT_STATUS_OK;
    if (!r->embedding.rows || r->embedding.n_rows < 1 || r->embedding.n_cols != r->n_embed)
        return SPECRT_STATUS_BAD_ARG;
    return r->embedding.dtype != SPECRT__CUDA_Q8_0_PLANES &&
                   specrt__head_stored_bytes(r->embedding.dtype, r->n_embed) > 0
               ? SPECRT_STATUS_OK
               : SPECRT_STATUS_UNSUPPORTED;
}

SPECRT__KERNEL specrt_status specrt__cuda_route(const specrt__cuda_router *router, int32_t n_batch,
                                                int32_t max_n, int32_t n_take,
                                                const specrt_cuda_beam *beams, const float *states,
                                                void *scratch, const specrt__cuda_choice *choice,
                                                void *stream) {
    specrt__cluster_scratch s;
    if (!specrt__cluster_router_ok(router, n_batch, max_n)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__window_check_choice(choice));
    SPECRT__TRY(specrt__cluster_arguments(router, n_take, beams, scratch));
    if ((router->per_row != 0) != (choice->scored_by != NULL)) return SPECRT_STATUS_BAD_ARG;
    specrt__cluster_lay_out(router, n_batch, max_n, scratch, &s);
    SPECRT__TRY(specrt__cluster_forward_batch(router, n_batch, max_n, beams, states, &s, stream));
    int32_t first = router->per_row ? 0 : max_n;
    unsigned n_parts = specrt__launch_blocks(router->n_clusters, SPECRT__CLUSTER_THREADS);
    SPECRT__TRY(SPECRT__LAUNCH(specrt__cluster_rank_kernel,
                               dim3(n_parts, (unsigned)(max_n + 1 - first), (unsigned)n_batch),
                               (int)SPECRT__CLUSTER_THREADS, 0, stream, *router, beams, max_n,
                               first, s.scores, s.order));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__cluster_take_kernel, (unsigned)n_batch,
                               specrt__block_size(SPECRT__CLUSTER_THREADS), 0, stream, *router,
                               beams, max_n, n_take, s, choice->max_rows, choice->n_rows));
    return SPECRT__LAUNCH(
        specrt__cluster_list_kernel,
        dim3(specrt__launch_share(router->n_clusters, n_batch), (unsigned)n_batch),
        specrt__block_size(128), 0, stream, *router, s, *choice);
}

#endif
