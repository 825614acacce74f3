/* cycle.cuh : owns the calls of a cycle: which kernels run on which stream, and when streams wait for each
 * other. */
#ifndef CUDA_CYCLE_CUH
#define CUDA_CYCLE_CUH

#include "core/base.h"
#include "core/os.h"
#include "sources/retrieve.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/head.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/pool.cuh"
#include "cuda/tree.cuh"
#include "cuda/verify.cuh"
#include "cuda/ring.cuh"
#include "cuda/batch.cuh"
#include "cuda/device.cuh"
#include "cuda/side.cuh"
#include "cuda/order.cuh"
#include "cuda/session_make.cuh"
#include "cuda/session.cuh"

/* Whether a call's pointers are there, and the policy's device is the current one.
 *   given : the pointers that `names` names */
static specrt_status specrt__session_check(specrt_cuda_session *s, const char *call, bool given,
                                           const char *names) {
    if (!s || !given)
        return specrt_error_set(s ? &s->order.error : NULL, SPECRT_STATUS_BAD_ARG,
                                "%s: %s: expected a pointer, found NULL", call,
                                s ? names : "session");
    if (specrt__device_is_current(s->policy)) return SPECRT_STATUS_OK;
    return specrt__device_refuse(s->policy, call, &s->order.error);
}

/* Begins a call in the order of its kind. */
static specrt_status specrt__session_call(specrt_cuda_session *s, const char *call, int kind,
                                          bool given, const char *names, void *stream,
                                          specrt__order_call *out) {
    SPECRT__TRY(specrt__session_check(s, call, given, names));
    return specrt__order_call_begin(&s->order, call, kind, stream, out);
}

/* The sequences that a call is about: number i, or all for -1. */
static specrt_status specrt__session_range(specrt_cuda_session *s, const char *call, int32_t least,
                                           int32_t i, int32_t *first, int32_t *n) {
    *first = i < 0 ? 0 : i;
    *n = i < 0 ? s->batch.n : 1;
    if (i >= least && i < s->batch.n) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->order.error, SPECRT_STATUS_BAD_ARG,
                            "%s: i: expected a sequence of %d to %d, found %d", call, (int)least,
                            (int)s->batch.n - 1, (int)i);
}

SPECRT_CUDA_API const specrt_error *
specrt_cuda_session_last_error(const specrt_cuda_session *session) {
    return session ? &session->order.error : NULL;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_get_stats(specrt_cuda_session *s,
                                                            specrt_session_stats *stats,
                                                            void *stream) {
    SPECRT__TRY(specrt__session_check(s, "get_stats", stats != NULL, "stats"));
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    return SPECRT__LAUNCH(specrt__batch_stats_kernel, specrt__session_blocks(s->batch.n),
                          SPECRT__SESSION_THREADS, 0, stream, s->batch, s->ring.caches, stats);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_begin(specrt_cuda_session *s, int32_t i,
                                                        void *stream) {
    specrt__order_call call;
    int32_t first, n;
    SPECRT__TRY(specrt__session_call(s, "begin", SPECRT__ORDER_PROMPTS, true, NULL, stream, &call));
    SPECRT__TRY(specrt__session_range(s, "begin", -1, i, &first, &n));
    SPECRT__TRY(specrt__session_empty(s, first, n, 1, stream));
    specrt__order_move(&call, first, n, SPECRT__ORDER_PROMPT);
    return SPECRT_STATUS_OK;
}

/* At most SPECRT_TREE_MAX_NODES tokens, for which `best` has room. at : their place in the part of the prompt
 * that retrieval waits for */
static specrt_status specrt__session_read(specrt_cuda_session *s, int32_t i, const int32_t *tokens,
                                          int32_t n, const float *logits, int32_t at,
                                          void *stream) {
    const specrt_policy *policy = s->policy->policy;
    int32_t *best = s->best + (size_t)i * SPECRT_TREE_MAX_NODES * (size_t)s->k_best;
    bool knows = logits && policy->info.needs_prompt_logits;
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_advance_kernel, 1, 32, 0, stream, s->batch.trees + i,
                               n, s->count));
    specrt__cuda_batch positions = {1, n, NULL, 0};
    if (knows)
        SPECRT__TRY(specrt__cuda_target_topk(&positions, logits, s->n_logits, s->k_best, best, NULL,
                                             s->scratch, stream));
    if (s->prompt) {
        bool asks =
            knows && specrt__device_retrieval(policy)->prompt == SPECRT__RETRIEVE_PROMPT_BEST;
        SPECRT__TRY(SPECRT__LAUNCH(
            specrt__ring_ask_kernel, specrt__session_blocks(n), SPECRT__SESSION_THREADS, 0, stream,
            tokens, n, asks ? best : NULL, s->k_best, s->ring.caches + i, s->device_prompt, at));
    }
    if (!specrt__device_window(policy)) return SPECRT_STATUS_OK;
    return specrt__cuda_state_prefill(1, tokens, s->count, n, knows ? best : NULL, s->k_best,
                                      s->batch.states + i, stream);
}

/* Retrieval reads the n tokens that were read last, at most SPECRT__RING_PROMPT. */
static specrt_status specrt__session_warm(specrt_cuda_session *s, int32_t i, int32_t n,
                                          void *stream) {
    SPECRT__TRY(specrt__launch_status(cudaStreamSynchronize((cudaStream_t)stream)));
    specrt__os_store(&s->warming, 1);
    while (!specrt__session_claims(s)) specrt__os_yield();
    specrt__ring_answer(s->prompt, n, &s->rings[i], s->retrievers[i], &s->n_begun[i], s->residents);
    specrt__os_store(&s->serving, 0);
    specrt__os_store(&s->warming, 0);
    return SPECRT__LAUNCH(specrt__ring_match_kernel, 1, specrt__block_size(SPECRT__POOL_THREADS), 0,
                          stream, s->device_residents, s->ring.caches + i, s->batch.states + i);
}

/* Tokens in parts. */
static specrt_status specrt__session_read_all(specrt_cuda_session *s, int32_t i,
                                              const int32_t *tokens, int32_t n, const float *logits,
                                              void *stream) {
    const int32_t most = SPECRT_TREE_MAX_NODES;
    int32_t waiting = 0;
    for (int32_t at = 0; at < n; at += most) {
        int32_t here = n - at < most ? n - at : most;
        SPECRT__TRY(specrt__session_read(s, i, tokens + at, here,
                                         logits ? logits + (size_t)at * (size_t)s->n_logits : NULL,
                                         waiting, stream));
        waiting += here;
        if (!s->prompt || (at + here < n && waiting + most <= SPECRT__RING_PROMPT)) continue;
        SPECRT__TRY(specrt__session_warm(s, i, waiting, stream));
        waiting = 0;
    }
    return SPECRT_STATUS_OK;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_prefill(specrt_cuda_session *s, int32_t i,
                                                          const int32_t *tokens, int32_t n,
                                                          const float *logits, void *stream) {
    specrt__order_call call;
    int32_t first, n_here;
    SPECRT__TRY(specrt__session_call(s, "prefill", SPECRT__ORDER_PROMPTS, tokens || n == 0,
                                     "tokens", stream, &call));
    SPECRT__TRY(specrt__session_range(s, "prefill", 0, i, &first, &n_here));
    SPECRT__TRY(specrt__order_check_each(&call, i, 1, SPECRT__ORDER_PROMPT | SPECRT__ORDER_READ));
    if (n < 0)
        return specrt_error_set(&s->order.error, SPECRT_STATUS_BAD_ARG,
                                "prefill: n: expected 0 or more tokens, found %d", (int)n);
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    SPECRT__TRY(specrt__session_read_all(s, i, tokens, n, logits, stream));
    if (n > 0) specrt__order_move(&call, i, 1, SPECRT__ORDER_READ);
    return SPECRT_STATUS_OK;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_draw(specrt_cuda_session *s, const float *logits,
                                                       int32_t *tokens, void *stream) {
    specrt__order_call call;
    SPECRT__TRY(specrt__session_call(s, "draw", SPECRT__ORDER_PROMPTS, logits && tokens,
                                     "logits, tokens", stream, &call));
    SPECRT__TRY(specrt__order_check_any(&call, SPECRT__ORDER_READ | SPECRT__ORDER_STARTED));
    unsigned blocks = specrt__session_blocks(s->batch.n);
    SPECRT__TRY(specrt__side_join(&s->side, stream)); /* which may be reading what it learns from */
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_ask_kernel, blocks, SPECRT__SESSION_THREADS, 0, stream,
                               s->batch, s->asked));
    SPECRT__TRY(specrt__cuda_verify(&s->drawer, s->asked, s->batch.samplings, logits,
                                    s->batch.learns, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_answer_kernel, blocks, SPECRT__SESSION_THREADS, 0,
                               stream, s->batch.n, s->batch.learns, tokens));
    specrt__order_call_end(&call);
    return SPECRT_STATUS_OK;
}

/* Nothing is routed of the trees to come. */
static specrt_status specrt__session_clear_routed(specrt__batch_part part, void *stream) {
    if (!part.routed) return SPECRT_STATUS_OK;
    return specrt__launch_clear(part.routed, (size_t)part.n * (size_t)part.n_ids, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_start(specrt_cuda_session *s, int32_t i,
                                                        const int32_t *tokens, void *stream) {
    specrt__order_call call;
    int32_t first, n;
    SPECRT__TRY(specrt__session_call(s, "start", SPECRT__ORDER_PROMPTS, tokens != NULL, "tokens",
                                     stream, &call));
    SPECRT__TRY(specrt__session_range(s, "start", -1, i, &first, &n));
    SPECRT__TRY(specrt__order_check_each(&call, first, n, SPECRT__ORDER_READ));
    SPECRT__TRY(specrt__order_check_start(&call));
    specrt__batch_part part = specrt__batch_of(s->batch, first, n);
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_start_kernel, specrt__session_blocks(32 * n),
                               SPECRT__SESSION_THREADS, 0, stream, part, tokens + first));
    SPECRT__TRY(specrt__session_clear_routed(part, stream));
    SPECRT__TRY(specrt__cuda_state_start(n, part.verdicts, part.states, stream));
    SPECRT__TRY(specrt__session_pack_rows(s, first, n, stream));
    specrt__order_move(&call, first, n, SPECRT__ORDER_STARTED);
    return SPECRT_STATUS_OK;
}

/* Tokens that a source names which are no members yet. */
static specrt_status specrt__session_route_tokens(specrt_cuda_session *s, int32_t at, int32_t level,
                                                  const void *hidden, void *stream) {
    const specrt__device_source *r = &s->policy->routed[at];
    const specrt__session_route *route = &s->routes[at];
    specrt__cuda_batch beam = specrt__head_beam_rows(s->batch.beams, s->batch.n, s->tree.topk);
    specrt__cuda_taken taken = {s->batch.states, at > 0 ? s->batch.routed : NULL, level,
                                s->batch.routed, s->batch.tallies};
    if (r->kind == SPECRT__DEVICE_SUCCESSORS)
        return specrt__cuda_successors(&r->graph, beam.n_batch, beam.max_n, s->policy->head.row_of,
                                       s->batch.beams, &taken, route->scratch, &route->choice,
                                       stream);
    if (r->kind == SPECRT__DEVICE_SKETCH)
        return specrt__cuda_sketch_route(&r->sketch, &beam, hidden, s->hidden,
                                         s->batch.beams->logprobs, &taken, route->scratch,
                                         &route->choice, stream);
    return SPECRT_STATUS_OK;
}

/* Whether successors of a level follow from its beams and the members alone: of earlier sources it would have
 * to be known what they bring. */
static bool specrt__session_leads(const specrt_cuda_session *s) {
    return s->policy->n_routed > 0 && s->policy->routed[0].kind == SPECRT__DEVICE_SUCCESSORS;
}

/* Learning, packing and the first successors, beside the drafter's first pass. */
static specrt_status specrt__session_learn(specrt_cuda_session *s, const float *hidden) {
    unsigned n = (unsigned)s->batch.n;
    SPECRT__TRY(specrt__session_clear_routed(s->batch, s->side.stream));
    if (s->rings)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__ring_tell_kernel, n,
                                   specrt__block_size(SPECRT__SESSION_THREADS), 0, s->side.stream,
                                   s->batch.learns, s->batch.states, hidden,
                                   s->tree.num_draft_tokens, s->ring));
    if (s->capacity > 0)
        SPECRT__TRY(specrt__cuda_state_observe(s->batch.n, s->batch.drafts, s->batch.learns,
                                               s->k_best > 0 ? s->best : NULL, s->k_best,
                                               s->batch.states, s->side.stream));
    SPECRT__TRY(specrt__session_pack_rows(s, 0, s->batch.n, s->side.stream));
    return specrt__session_leads(s) ? specrt__session_route_tokens(s, 0, 0, NULL, s->side.stream)
                                    : SPECRT_STATUS_OK;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_observe(specrt_cuda_session *s,
                                                          const float *hidden, void *stream) {
    specrt__order_call call;
    SPECRT__TRY(
        specrt__session_call(s, "observe", SPECRT__ORDER_CYCLES, true, NULL, stream, &call));
    SPECRT__TRY(specrt__order_check_observe(&call));
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_learn_kernel, specrt__session_blocks(32 * s->batch.n),
                               SPECRT__SESSION_THREADS, 0, stream, s->batch));
    SPECRT__TRY(specrt__side_fork(&s->side, stream));
    specrt_status status = specrt__session_learn(s, hidden);
    SPECRT__TRY(specrt__side_end(&s->side));
    if (status != SPECRT_STATUS_OK) return status;
    s->n_led = 1;
    specrt__order_renew(&call, true);
    return SPECRT_STATUS_OK;
}

/* Rows that others hold already score nothing. */
static specrt_status specrt__session_claim(specrt_cuda_session *s, int32_t at, int32_t level,
                                           void *stream) {
    const specrt__device_source *r = &s->policy->routed[at];
    const specrt__session_route *route = &s->routes[at];
    unsigned n = (unsigned)s->batch.n, threads = SPECRT__SESSION_THREADS;
    const specrt__cuda_choice *c = &route->choice;
    specrt__batch_choice always = {r->always.ids, NULL, NULL, 0, 0, r->always.max_rows};
    specrt__batch_choice chosen = {c->ids, c->n_rows, c->scored_by, r->bound, 1, r->bound};
    if (r->kind == SPECRT__DEVICE_LEVELS)
        chosen = {r->rows.ids, route->level_rows + level, NULL, 0, 0, r->bound};
    if (r->always.max_rows > 0)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_claim_kernel,
                                   dim3(specrt__session_blocks(r->always.max_rows), n), threads, 0,
                                   stream, s->batch, always, level, route->always_masks));
    return SPECRT__LAUNCH(specrt__batch_claim_kernel, dim3(specrt__session_blocks(r->bound), n),
                          threads, 0, stream, s->batch, chosen, level, route->masks);
}

static specrt_status specrt__session_route_clusters(specrt_cuda_session *s, int32_t at,
                                                    int32_t level, const void *draft_hidden,
                                                    const void *draft_input, void *stream) {
    const specrt__device_source *r = &s->policy->routed[at];
    const specrt__session_route *route = &s->routes[at];
    int32_t n_take = r->levels[level < r->n_levels ? level : r->n_levels - 1];
    const void *states = r->clusters.kind == SPECRT_ROUTER_DYNASPEC ? draft_input : draft_hidden;
    return specrt__cuda_route(&r->clusters, s->batch.n, s->tree.topk, n_take, s->batch.beams,
                              (const float *)states, route->scratch, &route->choice, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_route_ahead(specrt_cuda_session *s,
                                                              const void *draft_input,
                                                              void *stream) {
    specrt_status status = SPECRT_STATUS_OK;
    specrt__order_call call;
    SPECRT__TRY(
        specrt__session_call(s, "route_ahead", SPECRT__ORDER_CYCLES, true, NULL, stream, &call));
    SPECRT__TRY(specrt__order_check_level(&call, s->tree.num_steps));
    int32_t level = call.cycle->level;
    if (s->n_ahead > level)
        return specrt__order_refuse(&call, "expand() before it: this level is being routed");
    bool any = specrt__session_foresees_any(s);
    if (any) SPECRT__TRY(specrt__side_fork(&s->ahead, stream));
    for (int32_t i = 0; i < s->policy->n_routed && status == SPECRT_STATUS_OK; i++)
        if (specrt__session_foresees(s, i))
            status =
                specrt__session_route_clusters(s, i, level, NULL, draft_input, s->ahead.stream);
    if (any) SPECRT__TRY(specrt__side_end(&s->ahead));
    if (status != SPECRT_STATUS_OK) return status;
    s->n_ahead = level + 1;
    specrt__order_call_end(&call);
    return SPECRT_STATUS_OK;
}

/* Whether a graph holds half of what must be in it whole. Then the level is routed anew. */
static specrt_status specrt__session_check_halves(specrt_cuda_session *s, bool captured) {
    specrt_status status = specrt__side_check(&s->ahead, captured);
    if (status == SPECRT_STATUS_OK) status = specrt__side_check(&s->side, captured);
    if (status != SPECRT_STATUS_OK) s->n_ahead = s->n_led = 0;
    return status;
}

/* What the routed sources choose for a level. Routers of clusters do not ask who is a member already, so
 * they need not wait for it. */
static specrt_status specrt__session_route_level(specrt_cuda_session *s, int32_t level,
                                                 const void *draft_hidden, const void *draft_input,
                                                 void *stream) {
    const specrt_cuda_policy *p = s->policy;
    SPECRT__TRY(specrt__side_join(&s->ahead, stream));
    for (int32_t i = 0; i < p->n_routed; i++) {
        bool there = s->n_ahead > level && specrt__session_foresees(s, i);
        if (p->routed[i].kind == SPECRT__DEVICE_CLUSTERS && !there)
            SPECRT__TRY(
                specrt__session_route_clusters(s, i, level, draft_hidden, draft_input, stream));
    }
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    for (int32_t i = specrt__session_leads(s) && s->n_led > level; i < p->n_routed; i++) {
        SPECRT__TRY(specrt__session_route_tokens(s, i, level, draft_hidden, stream));
        if (!specrt__device_names(&p->routed[i]))
            SPECRT__TRY(specrt__session_claim(s, i, level, stream));
    }
    return SPECRT_STATUS_OK;
}

/* The successors of the level to come, beside the drafter's pass. */
static specrt_status specrt__session_lead(specrt_cuda_session *s, int32_t level, void *stream) {
    if (!specrt__session_leads(s) || level >= s->tree.num_steps) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__side_fork(&s->side, stream));
    specrt_status status = specrt__session_route_tokens(s, 0, level, NULL, s->side.stream);
    SPECRT__TRY(specrt__side_end(&s->side));
    if (status == SPECRT_STATUS_OK) s->n_led = level + 1;
    return status;
}

/* What keeps products from reading 16 bytes at a time; NULL: nothing does. */
static const char *specrt__session_narrow(const specrt_cuda_session *s, const void *hidden) {
    size_t bytes = (size_t)s->layout.n_cols * (s->hidden == SPECRT_DTYPE_F32 ? 4 : 2);
    if ((uintptr_t)hidden % 16 != 0) return "draft_hidden aligned to 16 bytes";
    if (bytes % 16 != 0) return "states of a multiple of 16 bytes";
    if (s->narrow) return "rows aligned to 16 bytes, of q8_0 copied by the policy";
    return NULL;
}

/* Tells the application of it, once. */
static void specrt__session_tell_narrow(specrt_cuda_session *s, const void *hidden) {
    const specrt_env *env = &s->policy->policy->env;
    const char *expected = s->told || !env->log ? NULL : specrt__session_narrow(s, hidden);
    char line[128];
    if (!expected) return;
    s->told = true;
    snprintf(line, sizeof line, "expand: products are slow: expected %s, found others", expected);
    env->log(env->user, SPECRT_LOG_INFO, "cuda", line);
}

/* --- products --- */

/* The rows that the application's function may multiply: fixed ones, which are a range of memory. */
static bool specrt__session_has_gemm(const specrt_cuda_session *s) {
    return s->policy->fixed.max_rows > 0 && s->layout.dtypes[0] == s->hidden;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_set_gemm(specrt_cuda_session *s,
                                                           specrt_cuda_gemm gemm, void *user,
                                                           int32_t above) {
    SPECRT__TRY(specrt__session_check(s, "set_gemm", true, NULL));
    if (gemm ? above < 1 : above != 0)
        return specrt_error_set(&s->order.error, SPECRT_STATUS_BAD_ARG,
                                "set_gemm: above: expected %s, found %d",
                                gemm ? "1 state or more" : "0 without a function", (int)above);
    if (gemm && !specrt__session_has_gemm(s))
        return specrt_error_set(&s->order.error, SPECRT_STATUS_UNSUPPORTED,
                                "set_gemm: policy '%.160s': expected full or static with rows of "
                                "%s, the type of hidden, found others",
                                s->policy->policy->text, specrt_dtype_name(s->hidden));
    s->gemm = gemm;
    s->gemm_user = user;
    s->gemm_above = above;
    return SPECRT_STATUS_OK;
}

/* The product of the fixed rows, by the application's function. */
static specrt_status specrt__session_gemm(specrt_cuda_session *s, int32_t n_states,
                                          const void *hidden, int32_t step, void *stream) {
    const specrt__cuda_segment *fixed = &s->policy->fixed;
    const size_t bytes = specrt_row_bytes(s->hidden, s->layout.n_cols);
    const specrt_cuda_product product = {n_states,
                                         fixed->max_rows,
                                         s->layout.n_cols,
                                         s->hidden,
                                         fixed->rows,
                                         fixed->row_stride,
                                         fixed->bias,
                                         hidden,
                                         (size_t)step * bytes,
                                         s->logits,
                                         (size_t)s->n_columns};
    int code = s->gemm(s->gemm_user, &product, stream);
    if (code == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->order.error, SPECRT_STATUS_HOST,
                            "gemm: expected 0, found %d: the product of %d states failed", code,
                            (int)n_states);
}

/* Logits of segments [0, end), of states that are `step` rows of hidden apart. */
static specrt_status specrt__session_multiply(specrt_cuda_session *s,
                                              const specrt__cuda_segment *segments, int32_t end,
                                              const specrt__cuda_batch *batch, const void *hidden,
                                              int32_t step, void *stream) {
    int32_t n_states = batch->n_batch * batch->max_n;
    bool lends = s->gemm && n_states > s->gemm_above;
    specrt__head_product p;
    SPECRT__CLEAR(&p, 1);
    p.step = step;
    if (lends) SPECRT__TRY(specrt__session_gemm(s, n_states, hidden, step, stream));
    return specrt__head_logits(p, &s->layout, lends, end, segments, batch, hidden, s->hidden,
                               s->logits, stream);
}

/* What the Markov head adds to logits for the tokens of a beam.
 *   before : the logits; those of row i of sequence b at b * step + i * each
 *   logits : the sums, [n_batch, the beam's max_n, n_columns]; may be `before` */
static specrt_status specrt__session_add_markov(specrt_cuda_session *s, int32_t level,
                                                const specrt__cuda_batch *beam, const float *before,
                                                int64_t step, int64_t each, float *logits,
                                                void *stream) {
    const specrt__cuda_head *from = &s->policy->from;
    const specrt__session_markov *m = &s->markov;
    specrt__head_product p;
    if (m->layout.n_segments == 0) return SPECRT_STATUS_OK;
    SPECRT__CLEAR(&p, 1);
    p.step = beam->max_n == 1 ? s->tree.topk : 1;
    p.before = before;
    p.before_step = step;
    p.before_each = each;
    SPECRT__TRY(
        specrt__cuda_pack(from, m->packings, s->batch.n, s->tree.topk, from->row_stride, stream));
    return specrt__head_logits(p, &m->layout, 0, m->layout.n_segments, m->segments[level], beam,
                               m->from, from->dtype, logits, stream);
}

/* The rows of a pass: of the first, the root in the first of topk rows. */
static specrt__cuda_batch specrt__session_beam_rows(const specrt_cuda_session *s, int32_t level) {
    return specrt__head_beam_rows(s->batch.beams, s->batch.n, level == 0 ? 1 : s->tree.topk);
}

/* Ranks the logits of a beam; the trees go on by that, at the last level up to their drafts.
 *   step : from the logits of a sequence to those of the next */
static specrt_status specrt__session_rank(specrt_cuda_session *s,
                                          const specrt__cuda_segment *segments,
                                          const specrt__cuda_batch *beam, const float *logits,
                                          int64_t step, bool last,
                                          const specrt__tree_position &position, void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__shortlist_shortlist(&s->layout, segments, beam, logits, s->tree.topk,
                                            s->ids, s->logprobs, s->scratch, &r, &grid));
    r.row_step = s->tree.topk;
    r.row_size = (int32_t)(step / beam->max_n);
    return specrt__tree_rank(&r, grid, position, s->batch.trees, s->batch.beams,
                             last ? s->batch.drafts : NULL, stream);
}

/* What follows the logits of a level: the best, or a token that is drawn from them.
 *   others : as specrt__session_rank() */
static specrt_status specrt__session_grow(specrt_cuda_session *s,
                                          const specrt__cuda_segment *segments,
                                          const specrt__cuda_batch *beam, const float *logits,
                                          int64_t step, bool last,
                                          const specrt__tree_position &position, void *stream) {
    if (s->distributions.n_steps == 0)
        return specrt__session_rank(s, segments, beam, logits, step, last, position, stream);
    SPECRT__TRY(specrt__cuda_propose(&s->layout, segments, s->batch.n, logits, step, s->batch.trees,
                                     s->batch.samplings, &s->distributions, s->ids, s->logprobs,
                                     stream));
    return specrt__tree_expand(position, s->batch.n, s->tree.topk, s->ids, s->logprobs,
                               s->batch.trees, s->batch.beams, stream);
}

static specrt_status specrt__session_expand(specrt_cuda_session *s, int32_t level,
                                            const void *draft_hidden, const void *draft_input,
                                            void *stream) {
    const specrt__cuda_batch beam = specrt__session_beam_rows(s, level);
    const specrt__cuda_segment *segments = s->segments[level];
    SPECRT__TRY(specrt__session_route_level(s, level, draft_hidden, draft_input, stream));
    SPECRT__TRY(specrt__session_multiply(s, segments, s->layout.n_segments, &beam, draft_hidden,
                                         level == 0 ? s->tree.topk : 1, stream));
    int64_t step = (int64_t)beam.max_n * s->n_columns;
    SPECRT__TRY(specrt__session_add_markov(s, level, &beam, s->logits, step, s->n_columns,
                                           s->logits, stream));
    return specrt__session_grow(s, segments, &beam, s->logits, step, level + 1 == s->tree.num_steps,
                                specrt__tree_pass(), stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_expand(specrt_cuda_session *s,
                                                         const void *draft_hidden,
                                                         const void *draft_input, void *stream) {
    specrt__order_call call;
    SPECRT__TRY(specrt__session_call(s, "expand", SPECRT__ORDER_CYCLES, draft_hidden != NULL,
                                     "draft_hidden", stream, &call));
    SPECRT__TRY(specrt__session_check_halves(s, call.captured));
    SPECRT__TRY(specrt__order_check_level(&call, s->tree.num_steps));
    specrt__session_tell_narrow(s, draft_hidden);
    SPECRT__TRY(specrt__session_expand(s, call.cycle->level, draft_hidden, draft_input, stream));
    call.cycle->level++;
    specrt__order_call_end(&call);
    return specrt__session_lead(s, call.cycle->level, stream);
}

/* Whether the last expand() has written the drafts, for all that is known. */
static bool specrt__session_has_drafts(const specrt_cuda_session *s,
                                       const specrt__order_call *call) {
    return s->distributions.n_steps == 0 && (call->checks || call->captured) &&
           call->cycle->stage == SPECRT__ORDER_DRAFT && call->cycle->level == s->tree.num_steps;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_finish(specrt_cuda_session *s, void *stream) {
    specrt__order_call call;
    SPECRT__TRY(specrt__session_call(s, "finish", SPECRT__ORDER_CYCLES, true, NULL, stream, &call));
    SPECRT__TRY(specrt__order_check_stage(&call, SPECRT__ORDER_DRAFT));
    SPECRT__TRY(specrt__session_join(s, stream)); /* where nothing was drafted */
    if (!specrt__session_has_drafts(s, &call))
        SPECRT__TRY(specrt__cuda_tree_finish(s->batch.n, s->batch.trees, s->batch.drafts, stream));
    specrt__order_end_stage(&call, SPECRT__ORDER_DRAFTED);
    return SPECRT_STATUS_OK;
}

/* Verdicts of the drafts.
 *   ranks : the target's best are found on the way */
static specrt_status specrt__session_verify(specrt_cuda_session *s, const float *logits, bool ranks,
                                            void *stream) {
    const specrt__batch_part *b = &s->batch;
    if (ranks)
        return specrt__verify_greedily(&s->verifier.params, b->drafts, logits, s->k_best, s->best,
                                       SPECRT_TREE_MAX_NODES, s->scratch, b->verdicts, stream);
    if (s->distributions.n_steps > 0)
        return specrt__cuda_verify_chain(&s->verifier, &s->distributions, b->drafts, b->trees,
                                         b->samplings, logits, b->verdicts, stream);
    return specrt__cuda_verify(&s->verifier, b->drafts, b->samplings, logits, b->verdicts, stream);
}

/* The best of a greedy target are ranked once for both, unless padding may be among the best: it is never
 * emitted, but read with the rest. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_verify(specrt_cuda_session *s,
                                                         const float *logits, void *stream) {
    specrt__order_call call;
    SPECRT__TRY(specrt__session_call(s, "verify", SPECRT__ORDER_CYCLES, logits != NULL, "logits",
                                     stream, &call));
    SPECRT__TRY(specrt__order_check_stage(&call, SPECRT__ORDER_DRAFTED | SPECRT__ORDER_VERIFIED));
    bool once = s->k_best > 0 && s->verifier.params.sampled == 0 && s->n_vocab == s->n_logits;
    SPECRT__TRY(specrt__session_verify(s, logits, once, stream));
    if (s->k_best > 0 && !once) {
        specrt__cuda_batch nodes =
            specrt__verify_nodes(s->batch.drafts, s->batch.n, s->tree.num_draft_tokens);
        SPECRT__TRY(specrt__cuda_target_topk(&nodes, logits, s->n_logits, s->k_best, s->best, NULL,
                                             s->scratch, stream));
    }
    specrt__order_end_stage(&call, SPECRT__ORDER_VERIFIED);
    return SPECRT_STATUS_OK;
}

#endif
