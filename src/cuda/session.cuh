/* session.cuh : owns retrieval's part on the host, and a batch of sessions from create to close. */
#ifndef CUDA_SESSION_CUH
#define CUDA_SESSION_CUH

#include "core/base.h"
#include "core/os.h"
#include "core/pool.h"
#include "sources/retrieve.h"
#include "decode/policy.h"
#include "decode/tree.h"
#include "decode/verify.h"
#include "decode/session.h"
#include "cuda/launch.cuh"
#include "cuda/pool.cuh"
#include "cuda/ring.cuh"
#include "cuda/batch.cuh"
#include "cuda/shared.cuh"
#include "cuda/device.cuh"
#include "cuda/load.cuh"
#include "cuda/side.cuh"
#include "cuda/order.cuh"
#include "cuda/session_make.cuh"

/* --- retrieval's part on the host --- */

/* What both sides map of it. */
static specrt_status specrt__session_make_rings(specrt_cuda_session *s, specrt_error *err) {
    const specrt_policy *policy = s->policy->policy;
    specrt__device_memory *m = &s->memory;
    size_t n = (size_t)s->batch.n, width = (size_t)s->ring.width;
    SPECRT__TRY(specrt__device_clear(m, n, &s->ring.caches, err));
    SPECRT__TRY(specrt__device_map(m, n, &s->rings, &s->ring.rings, err));
    if (specrt__device_retrieval(policy)->prompt != SPECRT__RETRIEVE_PROMPT_OFF) {
        SPECRT__TRY(specrt__device_map(m, 1, &s->prompt, &s->device_prompt, err));
        SPECRT__TRY(specrt__device_map(m, specrt__session_words(policy->head->n_ids), &s->residents,
                                       &s->device_residents, err));
    }
    if (width == 0) return SPECRT_STATUS_OK;
    return specrt__device_map(m, n * SPECRT__RETRIEVE_RECORDS * width, &s->queries,
                              &s->ring.queries, err);
}

static specrt_status specrt__session_make_retrieval(specrt_cuda_session *s, specrt_error *err) {
    const specrt_policy *policy = s->policy->policy;
    const specrt_env *env = &policy->env;
    size_t n = (size_t)s->batch.n, width = (size_t)s->ring.width;
    const specrt__retrieve_params *shared = specrt__device_retrieval(policy);
    if (!shared) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__session_make_rings(s, err));
    s->pool = specrt__pool_create(policy->head, policy->head->n_ids, 0, env);
    s->retrievers = specrt__device_host<specrt__retrieve *>(env, n, err);
    s->n_begun = specrt__device_host<uint32_t>(env, n, err);
    if (s->retrievers) SPECRT__CLEAR(s->retrievers, n);
    if (!s->pool || !s->retrievers || !s->n_begun)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    SPECRT__CLEAR(s->n_begun, n);
    specrt__session_mark(s->pool, policy);
    specrt__retrieve_params params = *shared;
    params.async = true; /* as many records as the ring has */
    for (size_t i = 0; i < n; i++) {
        specrt__retrieve *r = specrt__retrieve_create(s->pool, &params, s->n_logits, env);
        if (!r) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
        s->retrievers[i] = r;
        r->records = s->rings[i].records;
        if (width > 0) r->queries = s->queries + i * SPECRT__RETRIEVE_RECORDS * width;
    }
    return SPECRT_STATUS_OK;
}

/* Who has the caches: serve(), perhaps on a thread of its own, or prefill(). */
static bool specrt__session_claims(specrt_cuda_session *s) {
    return __atomic_exchange_n(&s->serving, 1u, __ATOMIC_ACQUIRE) == 0;
}

SPECRT_CUDA_API int32_t specrt_cuda_session_serve(specrt_cuda_session *s) {
    int32_t n = 0;
    if (!s || !s->rings || specrt__os_load(&s->warming) || !specrt__session_claims(s)) return 0;
    for (int32_t i = 0; i < s->batch.n; i++)
        n += specrt__ring_serve(&s->rings[i], s->retrievers[i], &s->n_begun[i]);
    specrt__os_store(&s->serving, 0);
    return n;
}

/* --- from create to close --- */

/* Whether rows are read in the head: where that is asked for, or a level would read no fewer copies of them
 * than the head has. */
static bool specrt__session_stocks(const specrt_cuda_session *s,
                                   const specrt_cuda_session_params *params) {
    int64_t n_copies = (int64_t)s->batch.n * s->capacity;
    if (s->capacity == 0 || params->stock == 2) return false;
    return params->stock || (s->batch.n > 1 && n_copies >= s->policy->head.n_rows);
}

/* What a path of a block needs to go on. */
static specrt_status specrt__session_check_confidence(specrt_cuda_session *s,
                                                      const specrt_cuda_session_params *params,
                                                      specrt_error *err) {
    double p = (double)params->p_min;
    s->least = -INFINITY;
    if (!(p >= 0 && p <= (s->n_block > 0 ? 1 : 0)))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "cuda: p_min: expected 0%s, found %g",
                                s->n_block > 0 ? " to 1" : " without n_block", p);
    if (p == 0) return SPECRT_STATUS_OK;
    s->least = logf(params->p_min);
    s->confidence = params->confidence;
    if (!s->confidence) return SPECRT_STATUS_OK;
    /* sigmoid(x) rounds to 1 where exp(-x) is at most half of what 1 is rounded to. */
    s->least = (float)(-log(1 / p - 1 + DBL_EPSILON / 2) - (double)params->confidence_bias);
    return SPECRT_STATUS_OK;
}

/* Rows of a beam share the logits of a position, so none may have rows of its own. */
static specrt_status specrt__session_check_block(specrt_cuda_session *s,
                                                 const specrt_cuda_session_params *params,
                                                 specrt_error *err) {
    s->n_block = params->n_block;
    if (s->n_block < 0 || s->n_block > s->tree.num_steps)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: n_block: expected 0 to the %d levels of the tree "
                                "(num_steps), found %d",
                                (int)s->tree.num_steps, (int)s->n_block);
    SPECRT__TRY(specrt__session_check_confidence(s, params, err));
    for (int32_t i = 0; i < s->policy->n_routed && s->n_block > 0 && s->tree.topk > 1; i++)
        if (s->policy->routed[i].kind == SPECRT__DEVICE_CLUSTERS &&
            s->policy->routed[i].clusters.per_row)
            return specrt_error_set(
                err, SPECRT_STATUS_UNSUPPORTED,
                "cuda: n_block: expected 0 for trees of policy '%.160s' with beam=per_row, found "
                "%d; use a session on the CPU",
                s->policy->policy->text, (int)s->n_block);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_check_params(specrt_cuda_session *s,
                                                  const specrt_cuda_session_params *params,
                                                  specrt_error *err) {
    const specrt_policy *policy = s->policy->policy;
    specrt_dtype hidden = params->hidden;
    specrt_session_params twin;
    specrt_tree_params tree;
    SPECRT__CLEAR(&twin, 1);
    twin.tree = params->tree;
    twin.sampling = params->sampling;
    twin.draft = params->draft;
    twin.draft_temperature = params->draft_temperature;
    s->n_logits = params->n_logits;
    s->n_vocab = policy->n_vocab < s->n_logits ? policy->n_vocab : s->n_logits;
    SPECRT__TRY(specrt__session_check_columns(policy, s->n_logits, err));
    SPECRT__TRY(specrt__session_shape(&twin, &tree, err));
    s->batch.n = params->n_batch ? params->n_batch : 1;
    s->hidden = hidden;
    SPECRT__TRY(specrt__tree_resolve(&tree, &s->tree, err));
    SPECRT__TRY(specrt__session_check_block(s, params, err));
    SPECRT__TRY(specrt__verify_check(s->n_logits, s->n_vocab, &params->sampling, err));
    if (s->batch.n < 1 || s->batch.n > SPECRT__CUDA_MAX_BATCH)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: n_batch: expected 1 to %d, found %d", SPECRT__CUDA_MAX_BATCH,
                                (int)s->batch.n);
    if (hidden != SPECRT_DTYPE_F32 && hidden != SPECRT_DTYPE_F16 && hidden != SPECRT_DTYPE_BF16)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: hidden: expected f32, f16 or bf16, found %d", (int)hidden);
    if (s->tree.topk > policy->info.bound)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: topk: expected at most the %d rows of policy '%s', found %d",
                                (int)policy->info.bound, policy->text, (int)s->tree.topk);
    s->capacity = policy->info.n_packed;
    s->ring.width = policy->info.hidden_width;
    const specrt__window_params *window = specrt__device_window(policy);
    s->k_best = window ? window->kver : 0;
    if (window && window->kpre > s->k_best) s->k_best = window->kpre;
    if (specrt__device_retrieval(policy)) s->k_best = SPECRT__RETRIEVE_TOP;
    s->layout.n_segments = (policy->fixed.n_rows > 0) + (s->capacity > 0);
    s->layout.n_segments += specrt__session_stocks(s, params);
    s->n_kept = s->layout.n_segments;
    for (int32_t i = 0; i < s->policy->n_routed; i++) {
        const specrt__device_source *r = &s->policy->routed[i];
        s->layout.n_segments += 1 + (r->always.max_rows > 0);
        if (r->kind == SPECRT__DEVICE_CLUSTERS && hidden != SPECRT_DTYPE_F32)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "cuda: hidden: expected f32, which routers read, found %s",
                                    specrt_dtype_name(hidden));
    }
    return SPECRT_STATUS_OK;
}

/* Whether a routed source chooses by what a pass is fed. */
static bool specrt__session_foresees(const specrt_cuda_session *s, int32_t at) {
    const specrt__device_source *r = &s->policy->routed[at];
    return r->kind == SPECRT__DEVICE_CLUSTERS && r->clusters.kind == SPECRT_ROUTER_DYNASPEC;
}

static bool specrt__session_foresees_any(const specrt_cuda_session *s) {
    for (int32_t i = 0; i < s->policy->n_routed; i++)
        if (specrt__session_foresees(s, i)) return true;
    return false;
}

static specrt_status specrt__session_make_batch(specrt_cuda_session *s,
                                                const specrt_cuda_session_params *params,
                                                specrt_error *err) {
    SPECRT__TRY(specrt__session_check_params(s, params, err));
    SPECRT__TRY(specrt__load_all(err));
    SPECRT__TRY(specrt__side_open(&s->side, err));
    if (specrt__session_foresees_any(s)) SPECRT__TRY(specrt__side_open(&s->ahead, err));
    SPECRT__TRY(specrt__session_make_retrieval(s, err));
    SPECRT__TRY(specrt__session_make_states(s, err));
    SPECRT__TRY(specrt__session_make_trees(s, err));
    SPECRT__TRY(specrt__session_make_samplings(s, &params->sampling, err));
    SPECRT__TRY(specrt__session_make_verifier(s, s->tree.num_draft_tokens, &params->sampling,
                                              &s->verifier, err));
    SPECRT__TRY(specrt__session_make_verifier(s, 1, &params->sampling, &s->drawer, err));
    SPECRT__TRY(specrt__session_stocks(s, params) ? specrt__session_make_shared(s, err)
                                                  : specrt__session_make_packings(s, err));
    SPECRT__TRY(specrt__session_make_routes(s, err));
    SPECRT__TRY(specrt__session_make_segments(s, err));
    SPECRT__TRY(specrt__session_make_distributions(s, params, err));
    SPECRT__TRY(specrt__session_make_scratch(s, err));
    return SPECRT_STATUS_OK;
}

static unsigned specrt__session_blocks(int32_t n) {
    return specrt__launch_blocks(n, SPECRT__SESSION_THREADS);
}

/* New rows are copied, or those that sequences share are found anew. */
static specrt_status specrt__session_pack_rows(specrt_cuda_session *s, int32_t first, int32_t n,
                                               void *stream) {
    if (s->capacity == 0) return SPECRT_STATUS_OK;
    if (s->shared.max_rows > 0) return specrt__shared_update(s->shared, s->batch.states, stream);
    return specrt__cuda_pack(&s->policy->head, s->packings + first, n, s->capacity, s->row_stride,
                             stream);
}

/* The stream goes on when both sides are done, and no level is routed ahead. */
static specrt_status specrt__session_join(specrt_cuda_session *s, void *stream) {
    s->n_ahead = s->n_led = 0;
    SPECRT__TRY(specrt__side_join(&s->ahead, stream));
    return specrt__side_join(&s->side, stream);
}

/* Sequences as they were before their first token.
 *   step : what the numbers of their generations go on by */
static specrt_status specrt__session_empty(specrt_cuda_session *s, int32_t first, int32_t n,
                                           uint64_t step, void *stream) {
    const specrt_cuda_policy *p = s->policy;
    specrt__batch_part part = specrt__batch_of(s->batch, first, n);
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_begin_kernel, specrt__session_blocks(n),
                               SPECRT__SESSION_THREADS, 0, stream, part, step));
    if (s->ring.caches)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__ring_begin_kernel, (unsigned)n,
                                   specrt__block_size(SPECRT__SESSION_THREADS), 0, stream,
                                   specrt__device_retrieval(p->policy)->keep,
                                   s->ring.caches + first, s->ring.rings + first));
    SPECRT__TRY(
        specrt__cuda_state_begin(n, p->terminators, p->policy->n_terminators, part.states, stream));
    return specrt__session_pack_rows(s, first, n, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_create(const specrt_cuda_policy *policy,
                                                         const specrt_cuda_session_params *params,
                                                         specrt_cuda_session **out,
                                                         specrt_error *err) {
    if (out) *out = NULL;
    if (!policy || !params || !out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "cuda: policy, params, out: expected pointers, found NULL");
    if (!specrt__device_is_current(policy)) return specrt__device_refuse(policy, "cuda", err);
    const specrt_env *env = &policy->policy->env;
    specrt_cuda_session *s =
        (specrt_cuda_session *)specrt__base_alloc(env, sizeof(specrt_cuda_session));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "cuda: out of memory");
    SPECRT__CLEAR(s, 1);
    s->policy = policy;
    specrt_status status = specrt__session_make_batch(s, params, err);
    if (status == SPECRT_STATUS_OK) {
        status = specrt__session_empty(s, 0, s->batch.n, 0, NULL);
        if (status != SPECRT_STATUS_OK && specrt_cuda_check(err) == SPECRT_STATUS_OK)
            specrt_error_set(err, status, "cuda: session: first launch: %s",
                             specrt_status_name(status));
    }
    if (status == SPECRT_STATUS_OK) status = specrt__device_settle(err);
    specrt__order_create(&s->order, s->batch.n);
    if (status == SPECRT_STATUS_OK)
        *out = s;
    else
        specrt_cuda_session_close(s);
    return status;
}

SPECRT_CUDA_API void specrt_cuda_session_close(specrt_cuda_session *s) {
    if (!s) return;
    specrt_env env = s->policy->policy->env;
    int before = specrt__device_switch(s->policy->device);
    (void)cudaDeviceSynchronize();
    for (int32_t i = 0; i < s->batch.n && s->retrievers; i++) {
        if (!s->retrievers[i]) continue;
        s->retrievers[i]->limit = s->retrievers[i]->done; /* no task is out */
        specrt__retrieve_close(s->retrievers[i]);
    }
    specrt__base_free(&env, s->retrievers);
    specrt__base_free(&env, s->n_begun);
    specrt__pool_free(s->pool);
    specrt__device_release(&s->memory);
    specrt__side_close(&s->side);
    specrt__side_close(&s->ahead);
    (void)specrt__device_switch(before);
    specrt__base_free(&env, s);
}

SPECRT_CUDA_API void specrt_cuda_session_get_view(const specrt_cuda_session *s,
                                                  specrt_cuda_view *out) {
    if (!out) return;
    SPECRT__CLEAR(out, 1);
    if (!s) return;
    out->beam = s->batch.beams;
    out->draft = s->batch.drafts;
    out->verdict = s->batch.verdicts;
    out->states = s->batch.states;
    out->n_batch = s->batch.n;
    out->topk = s->tree.topk;
    out->num_steps = s->tree.num_steps;
    out->num_draft_tokens = s->tree.num_draft_tokens;
    out->n_logits = s->n_logits;
    out->width = s->ring.width;
    out->n_bytes = s->memory.n_bytes;
    out->side = s->side.stream;
}

#endif
