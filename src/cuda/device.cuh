/* device.cuh : owns memory of the device, and what a policy's sessions share there. Refuses policies with
 * sources that only the CPU has, and devices without code for them. */
#ifndef CUDA_DEVICE_CUH
#define CUDA_DEVICE_CUH

#include "core/base.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/ranks.h"
#include "sources/cluster.h"
#include "sources/successor.h"
#include "sources/sketch.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "cuda/launch.cuh"
#include "cuda/head_rows.cuh"
#include "cuda/head.cuh"

enum {
    /* Segments of every level, also of a Markov head, what each routed source has, and the rest. */
    SPECRT__DEVICE_ROUTED = SPECRT__POLICY_KINDS, /* sources that may be routed */
    SPECRT__DEVICE_MAX_BLOCKS = 2 * SPECRT_TREE_MAX_STEPS + 12 * (int)SPECRT__DEVICE_ROUTED + 35
};

/* Memory that was allocated together with what owns it. */
typedef struct specrt__device_memory {
    void *blocks[SPECRT__DEVICE_MAX_BLOCKS];
    bool mapped[SPECRT__DEVICE_MAX_BLOCKS]; /* of the host */
    int n;
    size_t n_bytes; /* of the device */
} specrt__device_memory;

static specrt_status specrt__device_fail(cudaError_t error, size_t bytes, specrt_error *err) {
    (void)cudaGetLastError();
    if (error == cudaErrorMemoryAllocation)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "cuda: expected %zu bytes of free device memory, found less",
                                bytes);
    return specrt_error_set(err, SPECRT_STATUS_DEVICE, "cuda: %s", cudaGetErrorString(error));
}

/* Device memory, owned; *out is NULL for 0 bytes. */
static specrt_status specrt__device_allocate(specrt__device_memory *memory, size_t bytes,
                                             void **out, specrt_error *err) {
    *out = NULL;
    if (bytes == 0) return SPECRT_STATUS_OK;
    cudaError_t error =
        memory->n < SPECRT__DEVICE_MAX_BLOCKS ? cudaMalloc(out, bytes) : cudaErrorMemoryAllocation;
    if (error != cudaSuccess) return specrt__device_fail(error, bytes, err);
    memory->mapped[memory->n] = false;
    memory->blocks[memory->n++] = *out;
    memory->n_bytes += bytes;
    return SPECRT_STATUS_OK;
}

/* n elements of it, zeroed. */
template <typename T>
static specrt_status specrt__device_clear(specrt__device_memory *memory, size_t n, T **out,
                                          specrt_error *err) {
    void *block;
    SPECRT__TRY(specrt__device_allocate(memory, n * sizeof(T), &block, err));
    *out = (T *)block;
    cudaError_t error = n > 0 ? cudaMemset(block, 0, n * sizeof(T)) : cudaSuccess;
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, n * sizeof(T), err);
}

/* A copy of the host's n elements. */
template <typename T, typename U>
static specrt_status specrt__device_upload(specrt__device_memory *memory, const T *host, size_t n,
                                           U **out, specrt_error *err) {
    void *copy;
    *out = NULL;
    SPECRT__TRY(specrt__device_allocate(memory, n * sizeof(T), &copy, err));
    cudaError_t error =
        n > 0 ? cudaMemcpy(copy, host, n * sizeof(T), cudaMemcpyHostToDevice) : cudaSuccess;
    *out = (T *)copy;
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, n * sizeof(T), err);
}

/* n elements in memory of the host that kernels reach too, zeroed. */
template <typename T>
static specrt_status specrt__device_map(specrt__device_memory *memory, size_t n, T **host,
                                        T **device, specrt_error *err) {
    void *block = NULL, *seen = NULL;
    cudaError_t error =
        memory->n < SPECRT__DEVICE_MAX_BLOCKS
            ? cudaHostAlloc(&block, n * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable)
            : cudaErrorMemoryAllocation;
    if (error != cudaSuccess) return specrt__device_fail(error, n * sizeof(T), err);
    memory->mapped[memory->n] = true;
    memory->blocks[memory->n++] = block;
    *host = (T *)block;
    SPECRT__CLEAR(*host, n);
    error = cudaHostGetDevicePointer(&seen, block, 0);
    *device = (T *)seen;
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, n * sizeof(T), err);
}

/* n elements of the host's own memory. NULL: out of memory, which *err says. */
template <typename T>
static T *specrt__device_host(const specrt_env *env, size_t n, specrt_error *err) {
    T *p = (T *)specrt__base_alloc(env, n * sizeof(T));
    if (!p) specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    return p;
}

static void specrt__device_release(specrt__device_memory *memory) {
    while (memory->n > 0) {
        int i = --memory->n;
        if (memory->mapped[i])
            cudaFreeHost(memory->blocks[i]);
        else
            cudaFree(memory->blocks[i]);
    }
}

/* --- what sessions share --- */

/* A routed source: what it chooses from at each level. */
enum {
    SPECRT__DEVICE_LEVELS, /* a static list with sizes by level */
    SPECRT__DEVICE_CLUSTERS,
    SPECRT__DEVICE_SUCCESSORS,
    SPECRT__DEVICE_SKETCH
};

typedef struct specrt__device_source {
    int kind;
    int32_t bound;               /* rows that it chooses for a level at most */
    int64_t n_read;              /* bytes of weights and codes that it chooses by */
    specrt__cuda_segment rows;   /* to choose from */
    specrt__cuda_segment always; /* CLUSTERS: rows of every level; max_rows 0: none */
    const int32_t *levels;       /* LEVELS: rows, CLUSTERS: clusters of each level; host */
    int32_t n_levels, n_always;  /* LEVELS: n_always rows of each level are fixed */
    specrt__cuda_router clusters;
    specrt__cuda_cograph graph;
    specrt__cuda_sketch sketch;
} specrt__device_source;

/* Whether a source names only tokens that nobody has, and notes them itself. */
static bool specrt__device_names(const specrt__device_source *r) {
    return r->kind == SPECRT__DEVICE_SUCCESSORS || r->kind == SPECRT__DEVICE_SKETCH;
}

struct specrt_cuda_policy {
    const specrt_policy *policy;
    int device; /* that was current when it was made, and has all of it */
    specrt__device_memory memory;
    specrt__cuda_head head;
    specrt__cuda_head from, to; /* of a Markov head, each with a row by token; rows NULL: none */
    specrt__cuda_segment fixed; /* max_rows 0: none */
    const uint8_t *marks;       /* DEVICE [n_ids] wants of an empty session */
    const int32_t *frequent;    /* DEVICE [n_frequent], or NULL as on the host */
    const int32_t *terminators; /* DEVICE */
    int32_t n_fixed;            /* tokens marked so */
    /* In the order in which they cover tokens, as on the host. */
    int32_t n_routed;
    specrt__device_source routed[SPECRT__DEVICE_ROUTED];
};

/* Whether the current device has the policy's memory. Kernels on another one would read it unasked. */
static bool specrt__device_is_current(const specrt_cuda_policy *p) {
    int device = -1;
    return cudaGetDevice(&device) == cudaSuccess && device == p->device;
}

/* Whose that is not. */
static specrt_status specrt__device_refuse(const specrt_cuda_policy *p, const char *call,
                                           specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: device: expected number %d, where the policy is, found another; "
                            "call cudaSetDevice(%d)",
                            call, p->device, p->device);
}

/* Makes a device the current one. @return the one before, for a second call. */
static int specrt__device_switch(int device) {
    int before = device;
    if (cudaGetDevice(&before) == cudaSuccess && before != device) (void)cudaSetDevice(device);
    return before;
}

/* Rows of the host's head as kernels take them: through a buffer, since they may be apart, or decoded.
 *   out : whose rows are written, of its type, with the head's columns */
static specrt_status specrt__device_copy_rows(const specrt_head *head, const specrt__cuda_head *out,
                                              void *rows, specrt_error *err) {
    const size_t stride = out->row_stride;
    const int64_t n_rows = head->desc.n_rows, n_most = 1 + (int64_t)((4u << 20) / stride);
    const specrt_env *env = &head->compute.env;
    const bool splits = out->dtype == SPECRT__CUDA_Q8_0_PLANES;
    cudaError_t error = cudaSuccess;
    uint8_t *buffer = (uint8_t *)specrt__base_alloc(env, (size_t)(n_most + 1) * stride), *row;
    if (!buffer) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    SPECRT__CLEAR(buffer, (size_t)n_most * stride);
    for (int64_t first = 0; first < n_rows && error == cudaSuccess; first += n_most) {
        int64_t n = n_rows - first < n_most ? n_rows - first : n_most;
        for (int64_t i = 0; i < n; i++) {
            row = buffer + (size_t)i * stride;
            specrt__head_pack(head, first + i, splits ? buffer + (size_t)n_most * stride : row);
            if (splits)
                specrt__head_split(buffer + (size_t)n_most * stride, (int32_t)out->n_cols, row);
        }
        error = cudaMemcpy((uint8_t *)rows + (size_t)first * stride, buffer, (size_t)n * stride,
                           cudaMemcpyHostToDevice);
    }
    specrt__base_free(env, buffer);
    return error == cudaSuccess ? SPECRT_STATUS_OK
                                : specrt__device_fail(error, (size_t)n_most * stride, err);
}

/* Bytes between rows of a copy: q8_0 in planes is aligned, others stand side by side. */
static size_t specrt__device_stride(specrt_dtype dtype, int64_t n_cols) {
    size_t bytes = specrt_row_bytes(dtype, n_cols);
    return dtype == SPECRT_DTYPE_Q8_0 ? (size_t)specrt__base_align(bytes, 16) : bytes;
}

/* Rows on the device that the application has. h: their type and, side by side, their stride. */
static specrt_status specrt__device_borrow(const char *field, const void *rows, size_t row_stride,
                                           specrt_dtype stored, specrt__cuda_head *h,
                                           specrt_error *err) {
    size_t bytes = h->row_stride, unit = h->dtype == SPECRT_DTYPE_F32 ? 4 : 2;
    if (h->dtype != stored)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: %s: expected NULL for rows of %s, which are decoded, found "
                                "some",
                                field, specrt_dtype_name(stored));
    h->rows = rows;
    if (row_stride != 0) h->row_stride = row_stride;
    if (h->row_stride >= bytes && ((uintptr_t)rows | h->row_stride) % unit == 0)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "cuda: %s: expected rows of %zu bytes or more, aligned to %zu, found "
                            "%zu bytes a row at %p",
                            field, bytes, unit, h->row_stride, rows);
}

/* The head: the application's rows, or a copy. */
static specrt_status specrt__device_bind(specrt_cuda_policy *p, const specrt_cuda_policy_desc *desc,
                                         specrt_error *err) {
    const specrt_head *head = p->policy->head;
    specrt_dtype dtype = specrt__head_packed_dtype(head);
    size_t stride = specrt_row_bytes(dtype, head->desc.n_cols), n_rows = (size_t)head->desc.n_rows;
    void *rows = NULL;
    p->head.dtype = dtype;
    p->head.n_rows = (int32_t)head->desc.n_rows;
    p->head.n_cols = head->desc.n_cols;
    p->head.row_stride = stride;
    if (desc->rows) {
        SPECRT__TRY(specrt__device_borrow("rows", desc->rows, desc->row_stride, head->desc.dtype,
                                          &p->head, err));
    } else {
        p->head.dtype = specrt__head_packed_type(dtype);
        p->head.row_stride = specrt__device_stride(dtype, head->desc.n_cols);
        SPECRT__TRY(specrt__device_allocate(&p->memory, n_rows * p->head.row_stride, &rows, err));
        SPECRT__TRY(specrt__device_copy_rows(head, &p->head, rows, err));
        p->head.rows = rows;
    }
    if (head->desc.bias)
        SPECRT__TRY(specrt__device_upload(&p->memory, head->desc.bias, n_rows, &p->head.bias, err));
    if (!head->row_of) return SPECRT_STATUS_OK;
    return specrt__device_upload(&p->memory, head->row_of, (size_t)head->n_ids, &p->head.row_of,
                                 err);
}

/* Whether a segment is a range of the head itself, from its row *first on. */
static bool specrt__device_in_head(const specrt_cuda_policy *p, const specrt_segment *s,
                                   size_t *first) {
    const specrt_head_desc *head = &p->policy->head->desc;
    uintptr_t at = (uintptr_t)s->rows, begin = (uintptr_t)head->rows;
    *first = at < begin ? 0 : (at - begin) / head->row_stride;
    return at >= begin && *first < (size_t)head->n_rows && s->dtype == head->dtype;
}

/* The type of a segment's rows: the head's own, or packed. */
static specrt_dtype specrt__device_type(const specrt_cuda_policy *p, const void *rows) {
    uintptr_t at = (uintptr_t)rows, begin = (uintptr_t)p->head.rows;
    bool own = at >= begin && at - begin < (size_t)p->head.n_rows * p->head.row_stride;
    return own ? p->head.dtype : specrt__head_packed_type(p->head.dtype);
}

/* A host segment's packed rows, of q8_0 as planes. */
static specrt_status specrt__device_upload_rows(specrt_cuda_policy *p, const specrt_segment *s,
                                                specrt__cuda_segment *out, specrt_error *err) {
    const specrt_env *env = &p->policy->env;
    const int32_t n_cols = (int32_t)p->head.n_cols;
    const uint8_t *rows = (const uint8_t *)s->rows, *copy = NULL;
    size_t n = (size_t)s->n_rows, stride = specrt__device_stride(s->dtype, n_cols);
    uint8_t *split = NULL;
    out->row_stride = s->row_stride;
    if (s->dtype == SPECRT_DTYPE_Q8_0) {
        split = specrt__device_host<uint8_t>(env, n * stride, err);
        if (!split) return SPECRT_STATUS_NO_MEMORY;
        SPECRT__CLEAR(split, n * stride);
        for (size_t i = 0; i < n; i++)
            specrt__head_split(rows + i * s->row_stride, n_cols, split + i * stride);
        rows = split;
        out->row_stride = stride;
    }
    specrt_status status = specrt__device_upload(&p->memory, rows, n * out->row_stride, &copy, err);
    out->rows = copy;
    specrt__base_free(env, split);
    return status;
}

/* A host segment's rows, ids and biases, all of them. */
static specrt_status specrt__device_place(specrt_cuda_policy *p, const specrt_segment *s,
                                          specrt__cuda_segment *out, specrt_error *err) {
    size_t n = (size_t)s->n_rows, first;
    SPECRT__CLEAR(out, 1);
    out->max_rows = s->n_rows;
    SPECRT__TRY(specrt__device_upload(&p->memory, s->ids, n, &out->ids, err));
    if (specrt__device_in_head(p, s, &first)) {
        out->rows = (const uint8_t *)p->head.rows + first * p->head.row_stride;
        out->row_stride = p->head.row_stride;
        out->bias = p->head.bias ? p->head.bias + first : NULL;
        return SPECRT_STATUS_OK;
    }
    SPECRT__TRY(specrt__device_upload_rows(p, s, out, err));
    if (!s->bias) return SPECRT_STATUS_OK;
    return specrt__device_upload(&p->memory, s->bias, n, &out->bias, err);
}

/* A matrix of a Markov head, a row for each of n tokens, which is 0 where a token has none. Types that no
 * product takes for states are decoded to f32.
 *   row_of : [n]; NULL: a token is its row */
static specrt_status specrt__device_upload_by_token(specrt_cuda_policy *p,
                                                    const specrt_head_desc *m,
                                                    const int32_t *row_of, int32_t n,
                                                    specrt__cuda_head *out, specrt_error *err) {
    const specrt_env *env = &p->policy->env;
    const bool decodes = !specrt__head_is_state(m->dtype);
    const uint8_t *copy = NULL;
    out->dtype = decodes ? SPECRT_DTYPE_F32 : m->dtype;
    out->n_rows = n;
    out->n_cols = m->n_cols;
    out->row_stride = specrt_row_bytes(out->dtype, m->n_cols);
    uint8_t *host = specrt__device_host<uint8_t>(env, (size_t)n * out->row_stride, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    SPECRT__CLEAR(host, (size_t)n * out->row_stride);
    for (int32_t i = 0; i < n; i++) {
        int32_t row = row_of ? row_of[i] : i;
        void *to = host + (size_t)i * out->row_stride;
        if (row < 0 || row >= m->n_rows) continue;
        if (decodes)
            specrt_row_decode(m->dtype, specrt__head_row(m, row), m->n_cols, (float *)to);
        else
            memcpy(to, specrt__head_row(m, row), out->row_stride);
    }
    specrt_status status =
        specrt__device_upload(&p->memory, host, (size_t)n * out->row_stride, &copy, err);
    out->rows = copy;
    specrt__base_free(env, host);
    return status;
}

/* Roots may be tokens that the head has not. */
static specrt_status specrt__device_upload_markov(specrt_cuda_policy *p, specrt_error *err) {
    const specrt_head *head = p->policy->head;
    int32_t n_roots = p->policy->n_vocab > head->n_ids ? p->policy->n_vocab : head->n_ids;
    if (!head->desc.markov) return SPECRT_STATUS_OK;
    SPECRT__TRY(
        specrt__device_upload_by_token(p, &head->markov.from, NULL, n_roots, &p->from, err));
    return specrt__device_upload_by_token(p, &head->markov.to, head->row_of, head->n_ids, &p->to,
                                          err);
}

/* Which tokens no sequence may propose, and which are fixed. */
static specrt_status specrt__device_upload_marks(specrt_cuda_policy *p, specrt_error *err) {
    const specrt_env *env = &p->policy->env;
    specrt__pool *pool = specrt__pool_create(p->policy->head, p->policy->head->n_ids, 0, env);
    if (!pool) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    specrt__session_mark(pool, p->policy);
    p->n_fixed = pool->n_fixed;
    uint8_t *marks =
        (uint8_t *)pool->wants; /* in their place: a byte is behind the word it is of */
    for (int32_t i = 0; i < pool->n_ids; i++) marks[i] = (uint8_t)pool->wants[i];
    specrt_status status =
        specrt__device_upload(&p->memory, marks, (size_t)pool->n_ids, &p->marks, err);
    specrt__pool_free(pool);
    return status;
}

/* --- routed sources --- */

/* The head's rows, which a source scores where they lie. */
static specrt__cuda_segment specrt__device_head_rows(const specrt_cuda_policy *p) {
    specrt__cuda_segment s;
    SPECRT__CLEAR(&s, 1);
    s.rows = p->head.rows;
    s.row_stride = p->head.row_stride;
    s.bias = p->head.bias;
    return s;
}

static specrt_status specrt__device_route_levels(specrt_cuda_policy *p, specrt__device_source *r,
                                                 const specrt__ranks_list *list,
                                                 specrt_error *err) {
    specrt_segment rest = list->segment;
    rest.rows = (const uint8_t *)rest.rows + (size_t)list->n_always * rest.row_stride;
    rest.ids += list->n_always;
    if (rest.bias) rest.bias += list->n_always;
    rest.n_rows = r->bound = rest.n_rows - list->n_always;
    r->kind = SPECRT__DEVICE_LEVELS;
    r->levels = list->levels;
    r->n_levels = list->n_levels;
    r->n_always = list->n_always;
    return specrt__device_place(p, &rest, &r->rows, err);
}

/* A router's layer: f16 rows and f32 biases. */
static specrt_status specrt__device_layer(specrt_cuda_policy *p, const specrt_segment *s,
                                          const uint16_t **weights, const float **bias,
                                          specrt_error *err) {
    size_t n = (size_t)s->n_rows;
    if (n == 0) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__device_upload(&p->memory, (const uint16_t *)s->rows,
                                      n * (s->row_stride / sizeof **weights), weights, err));
    return specrt__device_upload(&p->memory, s->bias, n, bias, err);
}

/* What a router knows a token by: the application's rows, or a copy, decoded where it must be. */
static specrt_status specrt__device_embed(specrt_cuda_policy *p, const specrt_head_desc *host,
                                          const specrt_cuda_policy_desc *desc,
                                          specrt__cuda_head *out, specrt_error *err) {
    specrt_head *rows;
    void *copy;
    if (!host->rows) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt_head_bind(NULL, host, &p->policy->env, &rows, err));
    out->dtype = specrt__head_packed_dtype(rows);
    out->n_rows = (int32_t)host->n_rows;
    out->n_cols = host->n_cols;
    out->row_stride = specrt_row_bytes(out->dtype, host->n_cols);
    specrt_status status;
    if (desc->embedding) {
        status = specrt__device_borrow("embedding", desc->embedding, desc->embedding_stride,
                                       host->dtype, out, err);
    } else {
        status =
            specrt__device_allocate(&p->memory, (size_t)host->n_rows * out->row_stride, &copy, err);
        if (status == SPECRT_STATUS_OK) status = specrt__device_copy_rows(rows, out, copy, err);
        out->rows = copy;
    }
    specrt_head_close(rows);
    return status;
}

static specrt_status specrt__device_route_clusters(specrt_cuda_policy *p, specrt__device_source *r,
                                                   const specrt__cluster_shared *c,
                                                   const specrt_cuda_policy_desc *desc,
                                                   specrt_error *err) {
    const specrt_clusters_header *h = c->view.header;
    specrt_segment rows = c->rows;
    int32_t most = 0;
    for (int32_t t = 0; t < SPECRT_TREE_MAX_STEPS; t++)
        if (c->levels[t] > most) most = c->levels[t];
    rows.n_rows = c->starts[h->n_clusters];
    r->kind = SPECRT__DEVICE_CLUSTERS;
    r->bound = specrt__cluster_bound(c, most) - c->always.n_rows;
    r->levels = c->levels;
    r->n_levels = SPECRT_TREE_MAX_STEPS;
    r->clusters.kind = h->router;
    r->clusters.softmax = h->softmax;
    r->clusters.n_clusters = h->n_clusters;
    r->clusters.n_embed = h->n_embed;
    r->clusters.n_state = h->n_state;
    r->clusters.n_hidden = h->n_hidden;
    r->clusters.per_row = c->per_row;
    r->clusters.cap = c->cap;
    SPECRT__TRY(specrt__device_place(p, &rows, &r->rows, err));
    r->clusters.ids = r->rows.ids;
    SPECRT__TRY(specrt__device_upload(&p->memory, c->starts, ((size_t)h->n_clusters + 1),
                                      &r->clusters.starts, err));
    r->n_read = (int64_t)(c->w1.row_stride * (size_t)c->w1.n_rows +
                          c->w2.row_stride * (size_t)c->w2.n_rows);
    SPECRT__TRY(specrt__device_layer(p, &c->w1, &r->clusters.w1, &r->clusters.b1, err));
    SPECRT__TRY(specrt__device_layer(p, &c->w2, &r->clusters.w2, &r->clusters.b2, err));
    SPECRT__TRY(specrt__device_embed(p, &c->embedding, desc, &r->clusters.embedding, err));
    if (c->always.n_rows == 0) return SPECRT_STATUS_OK;
    return specrt__device_place(p, &c->always, &r->always, err);
}

static specrt_status specrt__device_route_successors(specrt_cuda_policy *p,
                                                     specrt__device_source *r,
                                                     const specrt__successor_shared *s,
                                                     specrt_error *err) {
    const specrt_cograph *g = &s->graph;
    specrt__cuda_cograph *out = &r->graph;
    size_t n = (size_t)g->header->n_vocab, e = (size_t)g->header->n_edges;
    r->kind = SPECRT__DEVICE_SUCCESSORS;
    r->bound = s->size;
    r->rows = specrt__device_head_rows(p);
    out->n_vocab = g->header->n_vocab;
    out->max_degree = g->header->max_degree;
    SPECRT__TRY(specrt__device_upload(&p->memory, g->totals, n, &out->totals, err));
    SPECRT__TRY(specrt__device_upload(&p->memory, g->offsets, n + 1, &out->offsets, err));
    if (e == 0) { /* nothing is read of either */
        const int32_t id = -1;
        const float count = 0;
        SPECRT__TRY(specrt__device_upload(&p->memory, &id, 1, &out->ids, err));
        return specrt__device_upload(&p->memory, &count, 1, &out->counts, err);
    }
    SPECRT__TRY(specrt__device_upload(&p->memory, g->ids, e, &out->ids, err));
    return specrt__device_upload(&p->memory, g->counts, e, &out->counts, err);
}

/* The basis in f16. */
static specrt_status specrt__device_upload_basis(specrt_cuda_policy *p,
                                                 const specrt__sketch_shared *s,
                                                 const uint16_t **out, specrt_error *err) {
    const specrt_env *env = &p->policy->env;
    size_t n_cols = (size_t)s->view.header->n_cols, n = n_cols * (size_t)s->rank;
    float *row = (float *)specrt__base_alloc(env, n_cols * sizeof *row);
    uint16_t *halves = (uint16_t *)specrt__base_alloc(env, n * sizeof *halves);
    specrt_status status =
        row && halves ? SPECRT_STATUS_OK
                      : specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "sketch: out of memory");
    for (int32_t k = 0; k < s->rank && !status; k++) {
        const uint8_t *at = (const uint8_t *)s->view.basis + (size_t)k * s->basis.row_stride;
        specrt_row_decode(s->basis.dtype, at, (int64_t)n_cols, row);
        specrt_to_f16(row, (int64_t)n_cols, halves + (size_t)k * n_cols);
    }
    if (!status) status = specrt__device_upload(&p->memory, halves, n, out, err);
    if (row) specrt__base_free(env, row);
    if (halves) specrt__base_free(env, halves);
    return status;
}

static specrt_status specrt__device_route_sketch(specrt_cuda_policy *p, specrt__device_source *r,
                                                 const specrt__sketch_shared *s,
                                                 specrt_error *err) {
    const specrt_sketch_header *h = s->view.header;
    specrt__cuda_sketch *out = &r->sketch;
    size_t n = (size_t)h->n_rows, bytes = (size_t)(h->rank + 16) / 4;
    r->kind = SPECRT__DEVICE_SKETCH;
    r->bound = s->size;
    r->rows = specrt__device_head_rows(p);
    r->n_read = 2 * (int64_t)h->n_cols * h->rank + (int64_t)s->n_places * (int64_t)bytes;
    out->n_cols = h->n_cols;
    out->n_ids = p->policy->head->n_ids;
    out->rank = h->rank;
    out->n_places = s->n_places;
    out->size = s->size;
    out->bias = p->head.bias;
    out->row_of = p->head.row_of;
    SPECRT__TRY(specrt__device_upload_basis(p, s, &out->basis, err));
    SPECRT__TRY(specrt__device_upload(&p->memory, s->center, (size_t)h->rank, &out->center, err));
    SPECRT__TRY(specrt__device_upload(&p->memory, s->view.rows, n, &out->rows, err));
    SPECRT__TRY(specrt__device_upload(&p->memory, s->view.records, n * bytes, &out->records, err));
    if (!p->policy->head->desc.ids) return SPECRT_STATUS_OK;
    return specrt__device_upload(&p->memory, p->policy->head->desc.ids, n, &out->ids, err);
}

/* What sessions share of these, or NULL: the policy has none. */
static const specrt__window_params *specrt__device_window(const specrt_policy *policy) {
    const void *shared = specrt__policy_shared(policy, SPECRT__POLICY_WINDOW);
    return shared ? &((const specrt__window_shared *)shared)->params : NULL;
}

static const specrt__retrieve_params *specrt__device_retrieval(const specrt_policy *policy) {
    const void *shared = specrt__policy_shared(policy, SPECRT__POLICY_RETRIEVE);
    return shared ? &((const specrt__retrieve_shared *)shared)->params : NULL;
}

static specrt_status specrt__device_route_kind(specrt_cuda_policy *p, int kind, const void *shared,
                                               const specrt_cuda_policy_desc *desc,
                                               specrt_error *err) {
    specrt__device_source *r = &p->routed[p->n_routed++];
    if (kind == SPECRT__POLICY_STATIC)
        return specrt__device_route_levels(p, r, (const specrt__ranks_list *)shared, err);
    if (kind == SPECRT__POLICY_SUCCESSOR)
        return specrt__device_route_successors(p, r, (const specrt__successor_shared *)shared, err);
    if (kind == SPECRT__POLICY_SKETCH)
        return specrt__device_route_sketch(p, r, (const specrt__sketch_shared *)shared, err);
    return specrt__device_route_clusters(p, r, (const specrt__cluster_shared *)shared, desc, err);
}

/* Sources are told apart by kind: a program may hold a second copy of the runtime, with tables of its own.
 * `sketch` is the last that kernels know. */
static specrt_status specrt__device_route(specrt_cuda_policy *p,
                                          const specrt_cuda_policy_desc *desc, specrt_error *err) {
    const specrt_policy *host = p->policy;
    for (int i = 0; i < host->n_sources; i++) {
        if (host->sources[i].kind > (int)SPECRT__POLICY_SKETCH)
            return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                    "cuda: policy '%.160s': expected sources with kernels, found "
                                    "one without; use a session on the CPU",
                                    host->text);
        if (!host->sources[i].source->route) continue;
        SPECRT__TRY(specrt__device_route_kind(p, host->sources[i].kind,
                                              host->sources[i].shared.data, desc, err));
        /* Lists of which the head has the same rows at every level: all are fixed. */
        if (p->routed[p->n_routed - 1].bound == 0) p->n_routed--;
    }
    return SPECRT_STATUS_OK;
}

/* Copies and clearing go by the default stream, for which those of applications do not wait. */
static specrt_status specrt__device_settle(specrt_error *err) {
    cudaError_t error = cudaStreamSynchronize(NULL);
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, 0, err);
}

static specrt_status specrt__device_make_policy(specrt_cuda_policy *p,
                                                const specrt_cuda_policy_desc *desc,
                                                specrt_error *err) {
    const specrt_policy *host = p->policy;
    SPECRT__TRY(specrt_cuda_open(err));
    cudaError_t error = cudaGetDevice(&p->device);
    if (error != cudaSuccess) return specrt__device_fail(error, 0, err);
    SPECRT__TRY(specrt__device_bind(p, desc, err));
    SPECRT__TRY(specrt__device_upload_markov(p, err));
    SPECRT__TRY(specrt__device_upload_marks(p, err));
    if (host->fixed.n_rows > 0) SPECRT__TRY(specrt__device_place(p, &host->fixed, &p->fixed, err));
    if (host->frequent)
        SPECRT__TRY(specrt__device_upload(&p->memory, host->frequent, (size_t)host->n_frequent,
                                          &p->frequent, err));
    SPECRT__TRY(specrt__device_route(p, desc, err));
    SPECRT__TRY(specrt__device_upload(&p->memory, host->terminators, (size_t)host->n_terminators,
                                      &p->terminators, err));
    return specrt__device_settle(err);
}

SPECRT_CUDA_API specrt_status specrt_cuda_policy_create(const specrt_policy *policy,
                                                        const specrt_cuda_policy_desc *desc,
                                                        specrt_cuda_policy **out,
                                                        specrt_error *err) {
    specrt_cuda_policy_desc defaults;
    SPECRT__CLEAR(&defaults, 1);
    if (out) *out = NULL;
    if (!policy || !out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: policy, out: expected pointers, found NULL");
    const specrt_head_desc *head = &policy->head->desc;
    if (!specrt__head_is_plain(head))
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "cuda: head: expected logits that are its products, found a "
                                "logit_scale of %g and a softcap of %g; use a session on the CPU",
                                (double)head->logit_scale, (double)head->softcap);
    if (policy->in_head)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "cuda: policy '%.160s': expected rows=packed, found rows=indexed; "
                                "specrt_cuda_session_params.stock reads rows in the head",
                                policy->text);
    specrt_cuda_policy *p =
        (specrt_cuda_policy *)specrt__base_alloc(&policy->env, sizeof(specrt_cuda_policy));
    if (!p) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    SPECRT__CLEAR(p, 1);
    p->policy = policy;
    specrt_status status = specrt__device_make_policy(p, desc ? desc : &defaults, err);
    if (status == SPECRT_STATUS_OK)
        *out = p;
    else
        specrt_cuda_policy_close(p);
    return status;
}

SPECRT_CUDA_API void specrt_cuda_policy_close(specrt_cuda_policy *policy) {
    if (!policy) return;
    specrt_env env = policy->policy->env;
    int before = specrt__device_switch(policy->device);
    specrt__device_release(&policy->memory);
    (void)specrt__device_switch(before);
    specrt__base_free(&env, policy);
}

#endif
