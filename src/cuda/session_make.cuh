/* session_make.cuh : owns batches of sequences whose state never leaves the device: which kernel runs
 * when, on which of two streams. Everything is allocated in create; a cycle's launches are the same
 * every time, so a graph can hold them. Retrieval's cache stays on the host: cycles go there, and
 * wishes come back, through memory that both sides map. */
#ifndef CUDA_SESSION_MAKE_CUH
#define CUDA_SESSION_MAKE_CUH

#include "core/base.h"
#include "core/pool.h"
#include "sources/window.h"
#include "sources/retrieve.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "cuda/launch.cuh"
#include "cuda/head_rows.cuh"
#include "cuda/ring.cuh"
#include "cuda/batch.cuh"
#include "cuda/shared.cuh"
#include "cuda/device.cuh"
#include "cuda/side.cuh"
#include "cuda/order.cuh"

enum { SPECRT__SESSION_THREADS = 128 };

/* What a routed source chooses, DEVICE. */
typedef struct specrt__session_route {
    specrt__cuda_choice choice; /* max_rows is the bound */
    int32_t *level_rows;        /* LEVELS, of which all is known: [SPECRT_TREE_MAX_STEPS] */
    uint32_t *masks,
        *always_masks; /* [n_batch, words of bound], [n_batch, words of always]; or NULL */
    void *scratch;
} specrt__session_route;

/* What a Markov head adds to a level: products of rows of w1, those of a beam's tokens, with the rows of w2
 * that a shortlist names; all DEVICE. */
typedef struct specrt__session_markov {
    specrt__cuda_layout layout; /* n_segments 0: there is none */
    specrt__cuda_segment *segments[SPECRT_TREE_MAX_STEPS];
    specrt__cuda_packing *packings; /* [n_batch] from a beam's tokens to `from` */
    uint8_t *from;                  /* [n_batch, topk, rank] of w1's type */
    float *logits;      /* [n_batch, topk, n_columns] of a block's position; NULL: no blocks */
    float *confidences; /* [n_batch, topk] likewise; NULL: none are asked for */
} specrt__session_markov;

struct specrt_cuda_session {
    const specrt_cuda_policy *policy;
    specrt__device_memory memory;
    specrt_tree_params tree;
    int32_t n_logits, n_vocab; /* columns of the target's logits; tokens are below n_vocab */
    int32_t k_best;            /* of the target's best at a node; 0: none */
    int32_t n_block;           /* positions of a block; 0: none */
    float least;               /* what specrt__tree_position has of a block */
    const float *confidence;   /* the application's; NULL: none, or nothing asks */
    float *confidences;        /* DEVICE [n_batch, n_block] without a Markov head's part */
    int32_t capacity;          /* packed rows of a sequence */
    specrt__order order;
    specrt_dtype hidden;
    specrt__batch_part batch;
    specrt_cuda_draft *asked;       /* DEVICE [n_batch] what draw() has the verifier look at */
    specrt__cuda_packing *packings; /* DEVICE [n_batch] */
    void *state_memory;             /* DEVICE of the states */
    specrt__shared shared;          /* in place of the copies that follow; max_rows 0: not so */
    void *rows;                     /* DEVICE [n_batch, capacity], row_stride bytes each */
    float *bias;                    /* DEVICE [n_batch, capacity]; NULL: none */
    size_t row_stride;
    specrt__cuda_verifier verifier, drawer;
    specrt__cuda_distributions
        distributions; /* of sampled chains; n_steps 0: drafts are the best */
    /* Shortlists; a level's segments are DEVICE [n_batch, n_segments]. */
    specrt__cuda_layout layout;
    specrt__cuda_segment *segments[SPECRT_TREE_MAX_STEPS];
    specrt__session_markov markov;
    int32_t n_columns;
    bool narrow, told;     /* products read rows a number at a time; the application knows */
    specrt_cuda_gemm gemm; /* of fixed rows with more than gemm_above states; NULL: none */
    void *gemm_user;
    int32_t gemm_above;
    specrt__session_route routes[SPECRT__DEVICE_ROUTED];
    int32_t n_kept; /* segments before those of routes */
    /* One state of a block for all rows of a beam, as routes of a pass read them; DEVICE [n_batch, topk,
     * n_cols], and what copies it there. NULL: no route of a block reads states */
    uint8_t *states;
    specrt__cuda_packing *repeats; /* [n_batch] */
    float *logits;                 /* DEVICE [n_batch, topk or n_block, n_columns] */
    int32_t *ids;                  /* DEVICE [n_batch, topk or n_block, topk] */
    float *logprobs;               /* DEVICE likewise */
    int32_t *best;                 /* DEVICE [n_batch, SPECRT_TREE_MAX_NODES, k_best] */
    int32_t *count;                /* DEVICE [1] prompt tokens of a launch */
    void *scratch;                 /* DEVICE, of top-k */
    /* Learning, packing and the successors of a level, from observe() or expand() to the next product. */
    specrt__side side;
    /* Routes that follow from what a pass is fed, from route_ahead() to its product; not open: none do. */
    specrt__side ahead;
    int32_t n_ahead; /* levels up to the last that was routed so; 0: none of this cycle */
    int32_t n_led;   /* levels up to the last whose successors were found beside a pass; likewise */
    /* Retrieval; rings NULL: none. */
    specrt__ring_view ring;
    specrt__ring_records *rings;   /* [n_batch] as the host sees them */
    float *queries;                /* likewise */
    specrt__pool *pool;            /* for its marks */
    specrt__retrieve **retrievers; /* [n_batch] */
    uint32_t *n_begun;             /* [n_batch] the rings', as the host last saw them */
    uint32_t warming;              /* 1: prefill() wants the caches next */
    uint32_t serving;              /* 1: a thread has the caches */
    specrt__ring_prompt *prompt, *device_prompt; /* NULL: prompts are not read */
    uint32_t *residents, *device_residents;      /* the host's answer to it */
};

/* --- making a batch --- */

enum { SPECRT__SESSION_SPREAD = 256 }; /* bytes that what sequences own is aligned to */

static size_t specrt__session_spread(size_t bytes) {
    return (size_t)specrt__base_align(bytes, SPECRT__SESSION_SPREAD);
}

static void *specrt__session_at(void *base, size_t i, size_t bytes) {
    return (uint8_t *)base + i * bytes;
}

/* Memory of any kind, zeroed: n pieces of these bytes. */
static specrt_status specrt__session_clear(specrt_cuda_session *s, size_t n, size_t bytes,
                                           void **out, specrt_error *err) {
    uint8_t *block = NULL;
    specrt_status status = specrt__device_clear(&s->memory, n * bytes, &block, err);
    *out = block;
    return status;
}

/* The states' parameters: the policy's window, as specrt_session has it. */
static specrt__cuda_state_params specrt__session_state_params(const specrt_cuda_session *s) {
    const specrt_policy *policy = s->policy->policy;
    const specrt__window_params *w = specrt__device_window(policy);
    const specrt__retrieve_params *r = specrt__device_retrieval(policy);
    specrt__cuda_state_params p;
    SPECRT__CLEAR(&p, 1);
    p.n_ids = policy->head->n_ids;
    p.capacity = s->capacity;
    p.keep = r && r->keep;
    if (!w) return p;
    p.size = w->size;
    p.mode = w->mode;
    p.positions = w->positions;
    p.only = w->only;
    p.kpre = w->kpre;
    p.kver = w->kver;
    p.emitted = w->emitted;
    p.min = w->min < s->tree.topk ? s->tree.topk : w->min;
    if (p.min > policy->bound) p.min = policy->bound;
    p.frequent = s->policy->frequent;
    p.n_frequent = policy->n_frequent;
    if (!p.frequent && p.n_frequent > p.n_ids) p.n_frequent = p.n_ids; /* others have no row */
    return p;
}

/* The bytes of a sequence's state. */
static size_t specrt__session_state_bytes(const specrt_cuda_session *s) {
    specrt__cuda_state_params params = specrt__session_state_params(s);
    return specrt__session_spread(specrt__cuda_state_bytes(&params));
}

/* The state of sequence i, as it is on the device before anything is learnt. */
static specrt_status specrt__session_state(const specrt_cuda_session *s, size_t i,
                                           specrt_cuda_state *out) {
    specrt__cuda_state_params params = specrt__session_state_params(s);
    SPECRT__TRY(specrt__cuda_state_place(
        &params, specrt__session_at(s->state_memory, i, specrt__session_state_bytes(s)), out));
    out->n_fixed = s->policy->n_fixed;
    if (s->ring.caches) out->mailbox = &s->ring.caches[i].mailbox;
    return SPECRT_STATUS_OK;
}

/* Membership of all sequences, with the policy's marks. */
static specrt_status specrt__session_fill_states(specrt_cuda_session *s, specrt_cuda_state *host,
                                                 specrt_error *err) {
    size_t n = (size_t)s->batch.n, n_ids = (size_t)s->policy->policy->head->n_ids;
    for (size_t i = 0; i < n; i++) {
        SPECRT__TRY(specrt__session_state(s, i, &host[i]));
        cudaError_t error =
            cudaMemcpy(host[i].wants, s->policy->marks, n_ids, cudaMemcpyDeviceToDevice);
        if (error != cudaSuccess) return specrt__device_fail(error, n_ids, err);
    }
    return specrt__device_upload(&s->memory, host, n, &s->batch.states, err);
}

static specrt_status specrt__session_make_states(specrt_cuda_session *s, specrt_error *err) {
    size_t n = (size_t)s->batch.n;
    const specrt_env *env = &s->policy->policy->env;
    SPECRT__TRY(specrt__session_clear(s, n, specrt__session_state_bytes(s), &s->state_memory, err));
    specrt_cuda_state *host = specrt__device_host<specrt_cuda_state>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    specrt_status status = specrt__session_fill_states(s, host, err);
    specrt__base_free(env, host);
    return status;
}

static specrt_status specrt__session_make_trees(specrt_cuda_session *s, specrt_error *err) {
    size_t n = (size_t)s->batch.n,
           bytes = specrt__session_spread(specrt__cuda_tree_bytes(&s->tree));
    const specrt_env *env = &s->policy->policy->env;
    specrt_status status = SPECRT_STATUS_OK;
    void *memory;
    SPECRT__TRY(specrt__session_clear(s, n, bytes, &memory, err));
    specrt__cuda_tree *host = specrt__device_host<specrt__cuda_tree>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    for (size_t i = 0; i < n && status == SPECRT_STATUS_OK; i++)
        status =
            specrt__cuda_tree_place(&s->tree, 0, specrt__session_at(memory, i, bytes), &host[i]);
    if (status == SPECRT_STATUS_OK)
        status = specrt__device_upload(&s->memory, host, n, &s->batch.trees, err);
    specrt__base_free(env, host);
    return status;
}

/* Who draws by which key. The first begin() of the application takes a generation's number, as later ones do:
 * it is counted from one before sampling.generation. */
static specrt_status specrt__session_make_samplings(specrt_cuda_session *s,
                                                    const specrt_sampling *sampling,
                                                    specrt_error *err) {
    size_t n = (size_t)s->batch.n;
    const specrt_env *env = &s->policy->policy->env;
    specrt_sampling *host = specrt__device_host<specrt_sampling>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        host[i] = *sampling;
        host[i].session += i;
        host[i].generation--;
    }
    specrt_status status = specrt__device_upload(&s->memory, host, n, &s->batch.samplings, err);
    specrt__base_free(env, host);
    return status;
}

/* What verifies trees, and what draws first tokens. */
static specrt_status specrt__session_make_verifier(specrt_cuda_session *s, int32_t max_nodes,
                                                   const specrt_sampling *sampling,
                                                   specrt__cuda_verifier *out, specrt_error *err) {
    specrt__cuda_verifier_params p;
    bool filters = sampling->top_k > 0 || sampling->top_p > 0 || sampling->min_p > 0;
    void *memory;
    p.n_batch = s->batch.n;
    p.n_logits = s->n_logits;
    p.n_vocab = s->n_vocab;
    p.max_nodes = max_nodes;
    p.sampled = sampling->temperature > 0 ? (filters ? 2 : 1) : 0;
    size_t bytes = specrt__cuda_verifier_bytes(&p);
    if (bytes == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: n_batch: expected at most %d trees of %d nodes, found %d",
                                65535 / (int)max_nodes, (int)max_nodes, (int)s->batch.n);
    SPECRT__TRY(specrt__session_clear(s, 1, bytes, &memory, err));
    return specrt__cuda_verifier_place(&p, memory, out);
}

/* What chains are sampled from. Columns are known. */
static specrt_status specrt__session_make_distributions(specrt_cuda_session *s,
                                                        const specrt_cuda_session_params *params,
                                                        specrt_error *err) {
    specrt__device_memory *m = &s->memory;
    specrt__cuda_distributions *distributions = &s->distributions;
    size_t n_batch = (size_t)s->batch.n, n = n_batch * (size_t)s->tree.num_steps;
    size_t n_all = n * (size_t)s->n_columns;
    if (params->draft != SPECRT_DRAFT_SAMPLED) return SPECRT_STATUS_OK;
    distributions->temperature =
        params->draft_temperature > 0 ? params->draft_temperature : params->sampling.temperature;
    distributions->n_steps = s->tree.num_steps;
    distributions->n_columns = s->n_columns;
    SPECRT__TRY(specrt__device_clear(m, n_all, &distributions->ids, err));
    SPECRT__TRY(specrt__device_clear(m, n_all, &distributions->probs, err));
    SPECRT__TRY(specrt__device_clear(m, n, &distributions->chances, err));
    SPECRT__TRY(specrt__device_clear(m, n, &distributions->sampled, err));
    return specrt__device_clear(m, n_batch * (size_t)s->n_vocab, &distributions->weights, err);
}

/* What to pack of sequence i, and where. */
static specrt_status specrt__session_packing(const specrt_cuda_session *s, size_t i,
                                             specrt__cuda_packing *out) {
    size_t m = (size_t)s->capacity;
    specrt_cuda_state state;
    SPECRT__TRY(specrt__session_state(s, i, &state));
    out->ids = state.ids;
    out->slots = state.fresh;
    out->n = &s->batch.states[i].n_fresh;
    out->rows = specrt__session_at(s->rows, i, m * s->row_stride);
    out->bias = s->bias ? s->bias + i * m : NULL;
    return SPECRT_STATUS_OK;
}

/* Packed rows of every sequence. */
static specrt_status specrt__session_make_packings(specrt_cuda_session *s, specrt_error *err) {
    const specrt__cuda_head *head = &s->policy->head;
    size_t n = (size_t)s->batch.n, m = (size_t)s->capacity;
    const specrt_env *env = &s->policy->policy->env;
    specrt_status status = SPECRT_STATUS_OK;
    s->row_stride =
        (size_t)specrt__base_align(specrt__head_stored_bytes(head->dtype, head->n_cols), 16);
    SPECRT__TRY(specrt__session_clear(s, n * m, s->row_stride, &s->rows, err));
    if (head->bias) SPECRT__TRY(specrt__device_clear(&s->memory, n * m, &s->bias, err));
    specrt__cuda_packing *host = specrt__device_host<specrt__cuda_packing>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    for (size_t i = 0; i < n && status == SPECRT_STATUS_OK; i++)
        status = specrt__session_packing(s, i, &host[i]);
    if (status == SPECRT_STATUS_OK)
        status = specrt__device_upload(&s->memory, host, n, &s->packings, err);
    specrt__base_free(env, host);
    return status;
}

static size_t specrt__session_words(int32_t n_rows) {
    return ((size_t)n_rows + 31) / 32;
}

/* Lists of rows that stay in the head. A product takes as many states at once as it can: a row that is read
 * for each such group, and for each of its holders otherwise, is shared where these are more. */
static specrt_status specrt__session_make_shared(specrt_cuda_session *s, specrt_error *err) {
    specrt__device_memory *m = &s->memory;
    specrt__shared *j = &s->shared;
    size_t n = (size_t)s->batch.n, n_own = n * (size_t)s->capacity;
    int32_t n_groups =
        (int32_t)specrt__launch_blocks(s->batch.n * s->tree.topk, SPECRT__CUDA_MAX_STATES);
    j->n_batch = s->batch.n;
    j->n_ids = s->policy->policy->head->n_ids;
    j->capacity = s->capacity;
    j->least = n_groups + 1 > 2 ? n_groups + 1 : 2;
    j->row_of = s->policy->head.row_of;
    size_t max_rows = n_own / (size_t)j->least + 1; /* as many at most: each has so many holders */
    j->max_rows = max_rows < (size_t)j->n_ids ? (int32_t)max_rows : j->n_ids;
    SPECRT__TRY(specrt__device_clear(m, (size_t)j->n_ids + specrt__shared_chunks(j->n_ids),
                                     &j->holders, err));
    j->n_chosen = j->holders + j->n_ids;
    SPECRT__TRY(specrt__device_clear(m, (size_t)j->max_rows, &j->ids, err));
    SPECRT__TRY(specrt__device_clear(m, (size_t)j->max_rows, &j->places, err));
    SPECRT__TRY(specrt__device_clear(m, 1, &j->n_rows, err));
    SPECRT__TRY(specrt__device_clear(m, n * specrt__session_words(j->max_rows), &j->masks, err));
    SPECRT__TRY(specrt__device_clear(m, n_own, &j->own_ids, err));
    SPECRT__TRY(specrt__device_clear(m, n_own, &j->own_places, err));
    return specrt__device_clear(m, n, &j->n_own, err);
}

/* Those of sequence i: shared ones, then its own. */
static int32_t specrt__session_list_shared(const specrt_cuda_session *s, size_t i,
                                           specrt__cuda_segment *out) {
    const specrt__shared *j = &s->shared;
    const specrt__cuda_head *head = &s->policy->head;
    SPECRT__CLEAR(out, 2);
    for (int k = 0; k < 2; k++) {
        out[k].rows = head->rows;
        out[k].row_stride = head->row_stride;
        out[k].bias = head->bias;
    }
    out[0].ids = j->ids;
    out[0].places = j->places;
    out[0].masked = j->masks + i * specrt__session_words(j->max_rows);
    out[0].n_rows = j->n_rows;
    out[0].max_rows = j->max_rows;
    out[1].ids = j->own_ids + i * (size_t)s->capacity;
    out[1].places = j->own_places + i * (size_t)s->capacity;
    out[1].n_rows = j->n_own + i;
    out[1].max_rows = s->capacity;
    return 2;
}

/* What routed source `at` chooses for sequence i at a level. @return how many segments. */
static int32_t specrt__session_list_routed(const specrt_cuda_session *s, int32_t at, size_t i,
                                           int32_t level, specrt__cuda_segment *out) {
    const specrt__device_source *r = &s->policy->routed[at];
    const specrt__session_route *route = &s->routes[at];
    const specrt__cuda_choice *c = &route->choice;
    int32_t n = 0;
    if (r->always.max_rows > 0) {
        out[n] = r->always;
        out[n++].masked = route->always_masks + i * specrt__session_words(r->always.max_rows);
    }
    out[n] = r->rows;
    out[n].max_rows = r->bound;
    if (route->masks) out[n].masked = route->masks + i * specrt__session_words(r->bound);
    if (r->kind == SPECRT__DEVICE_LEVELS) {
        out[n].n_rows = route->level_rows + level;
        return n + 1;
    }
    out[n].n_rows = c->n_rows + i;
    out[n].ids = c->ids + i * (size_t)r->bound;
    out[n].places = c->places + i * (size_t)r->bound;
    if (c->scored_by) out[n].scored_by = c->scored_by + i * (size_t)r->bound;
    return n + 1;
}

/* Fixed rows, which all sequences share, then each one's packed rows, then routed ones. */
static specrt_status specrt__session_list(const specrt_cuda_session *s, size_t i, int32_t level,
                                          specrt__cuda_segment *out) {
    specrt__cuda_packing packing;
    int32_t n = 0;
    SPECRT__TRY(specrt__session_packing(s, i, &packing));
    if (s->policy->fixed.max_rows > 0) out[n++] = s->policy->fixed;
    if (s->shared.max_rows > 0) {
        n += specrt__session_list_shared(s, i, out + n);
    } else if (s->capacity > 0) {
        SPECRT__CLEAR(&out[n], 1);
        out[n].rows = packing.rows;
        out[n].row_stride = s->row_stride;
        out[n].ids = packing.ids;
        out[n].bias = packing.bias;
        out[n].n_rows = &s->batch.states[i].n_rows;
        out[n++].max_rows = s->capacity;
    }
    for (int32_t at = 0; at < s->policy->n_routed; at++)
        n += specrt__session_list_routed(s, at, i, level, out + n);
    return SPECRT_STATUS_OK;
}

/* A row for each token in place of a segment's own, which their logits know what is masked of. */
static void specrt__session_by_token(const specrt__cuda_head *rows, specrt__cuda_segment *s) {
    s->rows = rows->rows;
    s->row_stride = rows->row_stride;
    s->places = s->ids;
    s->bias = NULL;
    s->masked = NULL;
    s->scored_by = NULL;
}

/* The shortlists of a level.
 *   rows : those of tokens in place of the head's; NULL: the head's
 *   host [n_batch, n_segments] : while they are made */
static specrt_status specrt__session_make_level(specrt_cuda_session *s, int32_t level,
                                                const specrt__cuda_head *rows,
                                                specrt__cuda_segment *host,
                                                specrt__cuda_segment **out, specrt_error *err) {
    size_t n = (size_t)s->batch.n, n_segments = (size_t)s->layout.n_segments;
    for (size_t i = 0; i < n; i++)
        SPECRT__TRY(specrt__session_list(s, i, level, host + i * n_segments));
    for (size_t i = 0; i < n * n_segments && rows; i++) specrt__session_by_token(rows, &host[i]);
    return specrt__device_upload(&s->memory, host, n * n_segments, out, err);
}

/* The shortlists of a Markov head. host : as above */
static specrt_status specrt__session_make_markov(specrt_cuda_session *s, specrt__cuda_segment *host,
                                                 specrt_error *err) {
    const specrt__cuda_head *to = &s->policy->to;
    specrt_status status = SPECRT_STATUS_OK;
    if (!to->rows) return SPECRT_STATUS_OK;
    s->markov.layout = s->layout;
    s->markov.layout.n_cols = to->n_cols;
    for (int32_t i = 0; i < s->layout.n_segments; i++) s->markov.layout.dtypes[i] = to->dtype;
    for (int32_t t = 0; t < s->tree.num_steps && status == SPECRT_STATUS_OK; t++)
        status = specrt__session_make_level(s, t, to, host, &s->markov.segments[t], err);
    return status;
}

static specrt_status specrt__session_make_segments(specrt_cuda_session *s, specrt_error *err) {
    size_t n_segments = (size_t)s->layout.n_segments, n = (size_t)s->batch.n * n_segments;
    const specrt_env *env = &s->policy->policy->env;
    specrt_status status = SPECRT_STATUS_OK;
    specrt__cuda_segment *host = specrt__device_host<specrt__cuda_segment>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    for (int32_t t = 0; t < s->tree.num_steps && status == SPECRT_STATUS_OK; t++)
        status = specrt__session_make_level(s, t, NULL, host, &s->segments[t], err);
    s->layout.n_cols = s->policy->head.n_cols;
    int32_t n_fixed = s->policy->fixed.max_rows > 0;
    s->layout.shared[0] = n_fixed > 0;
    if (s->shared.max_rows > 0) s->layout.shared[n_fixed] = 1;
    for (size_t i = 0; i < n_segments && status == SPECRT_STATUS_OK; i++) {
        size_t at = (uintptr_t)host[i].rows | host[i].row_stride;
        s->layout.dtypes[i] = specrt__device_type(s->policy, host[i].rows);
        s->narrow = s->narrow || at % 16 != 0 || s->layout.dtypes[i] == SPECRT_DTYPE_Q8_0;
        s->layout.max_rows[i] = host[i].max_rows;
        s->n_columns += host[i].max_rows;
    }
    if (status == SPECRT_STATUS_OK) status = specrt__session_make_markov(s, host, err);
    specrt__base_free(env, host);
    return status;
}

/* Scratch of a routed source; 0: it needs none. */
static size_t specrt__session_route_bytes(const specrt_cuda_session *s,
                                          const specrt__device_source *r) {
    if (r->kind == SPECRT__DEVICE_CLUSTERS)
        return specrt__cuda_router_bytes(&r->clusters, s->batch.n, s->tree.topk);
    if (r->kind == SPECRT__DEVICE_SUCCESSORS)
        return specrt__cuda_successors_bytes(&r->graph, s->batch.n, s->tree.topk, r->bound);
    if (r->kind == SPECRT__DEVICE_SKETCH)
        return specrt__cuda_sketch_bytes(&r->sketch, s->batch.n, s->tree.topk);
    return 0;
}

/* Rows of each level, where those follow from the level alone. */
static specrt_status specrt__session_make_levels(specrt_cuda_session *s,
                                                 const specrt__device_source *r,
                                                 specrt__session_route *route, specrt_error *err) {
    int32_t rows[SPECRT_TREE_MAX_STEPS];
    for (int32_t t = 0; t < SPECRT_TREE_MAX_STEPS; t++)
        rows[t] = r->levels[t < r->n_levels ? t : r->n_levels - 1] - r->n_always;
    return specrt__device_upload(&s->memory, rows, SPECRT_TREE_MAX_STEPS, &route->level_rows, err);
}

static specrt_status specrt__session_make_route(specrt_cuda_session *s,
                                                const specrt__device_source *r,
                                                specrt__session_route *route, specrt_error *err) {
    specrt__device_memory *m = &s->memory;
    specrt__cuda_choice *c = &route->choice;
    size_t n = (size_t)s->batch.n, bound = n * (size_t)r->bound;
    c->max_rows = r->bound;
    if (!specrt__device_names(r))
        SPECRT__TRY(
            specrt__device_clear(m, n * specrt__session_words(r->bound), &route->masks, err));
    SPECRT__TRY(specrt__device_clear(m, n * specrt__session_words(r->always.max_rows),
                                     &route->always_masks, err));
    if (r->kind == SPECRT__DEVICE_LEVELS) return specrt__session_make_levels(s, r, route, err);
    SPECRT__TRY(specrt__device_clear(m, n, &c->n_rows, err));
    SPECRT__TRY(specrt__device_clear(m, bound, &c->ids, err));
    SPECRT__TRY(specrt__device_clear(m, bound, &c->places, err));
    if (r->kind == SPECRT__DEVICE_CLUSTERS && r->clusters.per_row)
        SPECRT__TRY(specrt__device_clear(m, bound, &c->scored_by, err));
    return specrt__session_clear(s, 1, specrt__session_route_bytes(s, r), &route->scratch, err);
}

static specrt_status specrt__session_make_routes(specrt_cuda_session *s, specrt_error *err) {
    const specrt_cuda_policy *p = s->policy;
    size_t n = (size_t)s->batch.n;
    s->batch.n_ids = p->policy->head->n_ids;
    s->batch.n_vocab = s->n_vocab;
    s->batch.costs.packs = s->shared.max_rows == 0;
    s->batch.costs.n_fixed = p->policy->fixed.n_rows;
    s->batch.costs.row =
        (int64_t)specrt_row_bytes(specrt__head_type(p->head.dtype), p->head.n_cols);
    if (p->to.rows) {
        const specrt_head_desc *to = &p->policy->head->markov.to;
        s->batch.costs.markov = (int64_t)specrt_row_bytes(to->dtype, to->n_cols);
    }
    if (p->n_routed == 0) return SPECRT_STATUS_OK;
    for (int32_t i = 0; i < p->n_routed; i++) {
        SPECRT__TRY(specrt__session_make_route(s, &p->routed[i], &s->routes[i], err));
        s->batch.costs.n_read += p->routed[i].n_read;
    }
    SPECRT__TRY(
        specrt__device_clear(&s->memory, n * (size_t)s->batch.n_ids, &s->batch.routed, err));
    return specrt__device_clear(&s->memory, n * SPECRT_TREE_MAX_STEPS, &s->batch.tallies, err);
}

/* Rows that are scored at once of a sequence, at most. */
static int32_t specrt__session_rows(const specrt_cuda_session *s) {
    return s->n_block > s->tree.topk ? s->n_block : s->tree.topk;
}

/* The most that a ranking takes: of a pass, of a tree's nodes, of a part of a prompt. */
static size_t specrt__session_ranking_bytes(const specrt_cuda_session *s) {
    int32_t k = s->k_best > 0 ? s->k_best : 1, n_nodes = s->batch.n * s->tree.num_draft_tokens;
    size_t passes =
        specrt__cuda_topk_bytes(s->n_columns, s->batch.n * specrt__session_rows(s), s->tree.topk);
    size_t nodes = specrt__cuda_topk_bytes(
        s->n_logits, n_nodes < SPECRT_TREE_MAX_NODES ? SPECRT_TREE_MAX_NODES : n_nodes, k);
    return passes > nodes ? passes : nodes;
}

/* Where rows of w1 go, and what becomes of a block's positions. */
static specrt_status specrt__session_make_from(specrt_cuda_session *s, specrt_error *err) {
    const specrt_env *env = &s->policy->policy->env;
    specrt__session_markov *m = &s->markov;
    size_t n = (size_t)s->batch.n, k = (size_t)s->tree.topk, bytes = k * s->policy->from.row_stride;
    if (m->layout.n_segments == 0) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__device_clear(&s->memory, n * bytes, &m->from, err));
    SPECRT__TRY(specrt__device_clear(&s->memory, s->n_block > 0 ? n * k * (size_t)s->n_columns : 0,
                                     &m->logits, err));
    if (s->confidence) SPECRT__TRY(specrt__device_clear(&s->memory, n * k, &m->confidences, err));
    specrt__cuda_packing *host = specrt__device_host<specrt__cuda_packing>(env, n, err);
    if (!host) return SPECRT_STATUS_NO_MEMORY;
    SPECRT__CLEAR(host, n);
    for (size_t i = 0; i < n; i++) {
        host[i].ids = s->batch.beams[i].tokens;
        host[i].n = &s->batch.beams[i].n;
        host[i].rows = m->from + i * bytes;
    }
    specrt_status status = specrt__device_upload(&s->memory, host, n, &m->packings, err);
    specrt__base_free(env, host);
    return status;
}

/* Whether a routed source chooses by what a pass gives. */
static bool specrt__session_reads_states(const specrt_cuda_session *s) {
    for (int32_t i = 0; i < s->policy->n_routed; i++)
        if (s->policy->routed[i].kind == SPECRT__DEVICE_CLUSTERS ||
            s->policy->routed[i].kind == SPECRT__DEVICE_SKETCH)
            return true;
    return false;
}

/* Row b of a table, for every row of the beam of sequence b. */
static specrt_status specrt__session_make_repeats(specrt_cuda_session *s, specrt_error *err) {
    const specrt_env *env = &s->policy->policy->env;
    size_t n = (size_t)s->batch.n, k = (size_t)s->tree.topk;
    size_t bytes = specrt_row_bytes(s->hidden, s->layout.n_cols);
    int32_t *ids = NULL;
    if (s->n_block == 0 || !specrt__session_reads_states(s)) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__device_clear(&s->memory, n * k * bytes, &s->states, err));
    specrt__cuda_packing *host = specrt__device_host<specrt__cuda_packing>(env, n, err);
    int32_t *numbers = specrt__device_host<int32_t>(env, n * k, err);
    for (size_t i = 0; numbers && i < n * k; i++) numbers[i] = (int32_t)(i / k);
    specrt_status status = host && numbers
                               ? specrt__device_upload(&s->memory, numbers, n * k, &ids, err)
                               : SPECRT_STATUS_NO_MEMORY;
    for (size_t i = 0; status == SPECRT_STATUS_OK && i < n; i++) {
        SPECRT__CLEAR(&host[i], 1);
        host[i].ids = ids + i * k;
        host[i].n = &s->batch.beams[i].n;
        host[i].rows = s->states + i * k * bytes;
    }
    if (status == SPECRT_STATUS_OK)
        status = specrt__device_upload(&s->memory, host, n, &s->repeats, err);
    specrt__base_free(env, numbers);
    specrt__base_free(env, host);
    return status;
}

static specrt_status specrt__session_make_scratch(specrt_cuda_session *s, specrt_error *err) {
    specrt__device_memory *m = &s->memory;
    specrt__batch_part *b = &s->batch;
    size_t n = (size_t)b->n, k = (size_t)s->tree.topk;
    size_t n_rows = n * (size_t)specrt__session_rows(s);
    SPECRT__TRY(specrt__device_clear(m, n, &b->beams, err));
    SPECRT__TRY(specrt__device_clear(m, n, &b->drafts, err));
    SPECRT__TRY(specrt__device_clear(m, n, &b->verdicts, err));
    SPECRT__TRY(specrt__device_clear(m, n, &b->learns, err));
    SPECRT__TRY(specrt__device_clear(m, n, &b->stats, err));
    SPECRT__TRY(specrt__device_clear(m, n, &s->asked, err));
    SPECRT__TRY(specrt__device_clear(m, n_rows * (size_t)s->n_columns, &s->logits, err));
    SPECRT__TRY(specrt__device_clear(m, n_rows * k, &s->ids, err));
    SPECRT__TRY(specrt__device_clear(m, n_rows * k, &s->logprobs, err));
    SPECRT__TRY(
        specrt__device_clear(m, n * SPECRT_TREE_MAX_NODES * (size_t)s->k_best, &s->best, err));
    s->ring.best = s->best;
    s->ring.k_best = s->k_best;
    SPECRT__TRY(specrt__device_clear(m, 1, &s->count, err));
    SPECRT__TRY(specrt__session_make_from(s, err));
    SPECRT__TRY(specrt__session_make_repeats(s, err));
    if (s->confidence)
        SPECRT__TRY(specrt__device_clear(m, n * (size_t)s->n_block, &s->confidences, err));
    return specrt__session_clear(s, 1, specrt__session_ranking_bytes(s), &s->scratch, err);
}

#endif
