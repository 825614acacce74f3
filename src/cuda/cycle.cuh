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
#include "cuda/session_make.cuh"
#include "cuda/session.cuh"

/* The sequences that a call is about: number i, or all for -1. @return how many; 0: out of range, or another
 * device is current. */
static int32_t specrt__session_range(const specrt_cuda_session *s, int32_t i, int32_t *first) {
    *first = i < 0 ? 0 : i;
    if (i < -1 || i >= s->batch.n || !specrt__device_is_current(s->policy)) return 0;
    return i < 0 ? s->batch.n : 1;
}

/* The stream goes on when both sides are done, and no level is routed ahead. */
static specrt_status specrt__session_join(specrt_cuda_session *s, void *stream) {
    s->n_ahead = 0;
    SPECRT__TRY(specrt__side_join(&s->ahead, stream));
    return specrt__side_join(&s->side, stream);
}

static unsigned specrt__session_blocks(int32_t n) {
    return specrt__launch_blocks(n, SPECRT__SESSION_THREADS);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_get_stats(specrt_cuda_session *s,
                                                            specrt_session_stats *stats,
                                                            void *stream) {
    if (!stats || !specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    return SPECRT__LAUNCH(specrt__batch_stats_kernel, specrt__session_blocks(s->batch.n),
                          SPECRT__SESSION_THREADS, 0, stream, s->batch, s->ring.caches, stats);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_begin(specrt_cuda_session *s, int32_t i,
                                                        void *stream) {
    int32_t first, n = specrt__session_range(s, i, &first);
    const specrt_cuda_policy *p = s->policy;
    if (n == 0) return SPECRT_STATUS_BAD_ARG;
    specrt__batch_part part = specrt__batch_of(s->batch, first, n);
    s->level = 0;
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_begin_kernel, specrt__session_blocks(n),
                               SPECRT__SESSION_THREADS, 0, stream, part, s->batch.n));
    if (s->ring.caches)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__ring_begin_kernel, (unsigned)n,
                                   specrt__block_size(SPECRT__SESSION_THREADS), 0, stream,
                                   specrt__device_retrieval(p->policy)->keep,
                                   s->ring.caches + first, s->ring.rings + first));
    SPECRT__TRY(
        specrt__cuda_state_begin(n, p->terminators, p->policy->n_terminators, part.states, stream));
    return specrt__session_pack_rows(s, first, n, stream);
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
    return SPECRT__LAUNCH(specrt__ring_match_kernel, 1, specrt__block_size(SPECRT__WINDOW_THREADS),
                          0, stream, s->device_residents, s->ring.caches + i, s->batch.states + i);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_prefill(specrt_cuda_session *s, int32_t i,
                                                          const int32_t *tokens, int32_t n,
                                                          const float *logits, void *stream) {
    const int32_t most = SPECRT_TREE_MAX_NODES;
    int32_t waiting = 0, first;
    if (i < 0 || specrt__session_range(s, i, &first) == 0 || !tokens || n < 0)
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__side_join(&s->side, stream));
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

SPECRT_CUDA_API specrt_status specrt_cuda_session_draw(specrt_cuda_session *s, const float *logits,
                                                       int32_t *tokens, void *stream) {
    unsigned blocks = specrt__session_blocks(s->batch.n);
    if (!logits || !tokens || !specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__side_join(&s->side, stream)); /* which may be reading what it learns from */
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_ask_kernel, blocks, SPECRT__SESSION_THREADS, 0, stream,
                               s->batch, s->asked));
    SPECRT__TRY(specrt__cuda_verify(&s->drawer, s->asked, s->batch.samplings, logits,
                                    s->batch.learns, stream));
    return SPECRT__LAUNCH(specrt__batch_answer_kernel, blocks, SPECRT__SESSION_THREADS, 0, stream,
                          s->batch.n, s->batch.learns, tokens);
}

/* Nothing is routed of the trees to come. */
static specrt_status specrt__session_clear_routed(specrt__batch_part part, void *stream) {
    if (!part.routed) return SPECRT_STATUS_OK;
    return specrt__launch_clear(part.routed, (size_t)part.n * (size_t)part.n_ids, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_start(specrt_cuda_session *s, int32_t i,
                                                        const int32_t *tokens, void *stream) {
    int32_t first, n = specrt__session_range(s, i, &first);
    if (n == 0 || !tokens) return SPECRT_STATUS_BAD_ARG;
    specrt__batch_part part = specrt__batch_of(s->batch, first, n);
    s->level = 0;
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_start_kernel, specrt__session_blocks(32 * n),
                               SPECRT__SESSION_THREADS, 0, stream, part, tokens + first));
    SPECRT__TRY(specrt__session_clear_routed(part, stream));
    SPECRT__TRY(specrt__cuda_state_start(n, part.verdicts, part.states, stream));
    return specrt__session_pack_rows(s, first, n, stream);
}

/* Learning and packing, beside the drafter's first pass. */
static specrt_status specrt__session_learn(specrt_cuda_session *s, const float *hidden) {
    unsigned n = (unsigned)s->batch.n;
    if (s->rings)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__ring_tell_kernel, n,
                                   specrt__block_size(SPECRT__SESSION_THREADS), 0, s->side.stream,
                                   s->batch.learns, s->batch.states, hidden,
                                   s->tree.num_draft_tokens, s->ring));
    if (s->capacity == 0) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__cuda_state_observe(s->batch.n, s->batch.drafts, s->batch.learns,
                                           s->k_best > 0 ? s->best : NULL, s->k_best,
                                           s->batch.states, s->side.stream));
    return specrt__session_pack_rows(s, 0, s->batch.n, s->side.stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_observe(specrt_cuda_session *s,
                                                          const float *hidden, void *stream) {
    if (!specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    s->level = 0;
    SPECRT__TRY(specrt__session_join(s, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__batch_learn_kernel, specrt__session_blocks(32 * s->batch.n),
                               SPECRT__SESSION_THREADS, 0, stream, s->batch));
    SPECRT__TRY(specrt__side_fork(&s->side, stream));
    SPECRT__TRY(specrt__session_clear_routed(s->batch, stream)); /* beside what is learnt */
    specrt_status status = specrt__session_learn(s, hidden);
    SPECRT__TRY(specrt__side_end(&s->side));
    return status;
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

/* Tokens that a source names which are no members yet. */
static specrt_status specrt__session_route_tokens(specrt_cuda_session *s, int32_t at, int32_t level,
                                                  const void *hidden, void *stream) {
    const specrt__device_source *r = &s->policy->routed[at];
    const specrt__session_route *route = &s->routes[at];
    specrt__cuda_batch beam = specrt__head_beam_rows(s->batch.beams, s->batch.n, s->tree.topk);
    specrt__cuda_taken taken = {s->batch.states, s->batch.routed, level};
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

SPECRT_CUDA_API specrt_status specrt_cuda_session_route_ahead(specrt_cuda_session *s,
                                                              const void *draft_input,
                                                              void *stream) {
    specrt_status status = SPECRT_STATUS_OK;
    if (s->level == s->tree.num_steps || s->n_ahead > s->level) return SPECRT_STATUS_BAD_ARG;
    if (!specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    bool any = specrt__session_foresees_any(s);
    if (any) SPECRT__TRY(specrt__side_fork(&s->ahead, stream));
    for (int32_t i = 0; i < s->policy->n_routed && status == SPECRT_STATUS_OK; i++)
        if (specrt__session_foresees(s, i))
            status =
                specrt__session_route_clusters(s, i, s->level, NULL, draft_input, s->ahead.stream);
    if (any) SPECRT__TRY(specrt__side_end(&s->ahead));
    if (status == SPECRT_STATUS_OK) s->n_ahead = s->level + 1;
    return status;
}

/* What was routed ahead is waited for. Where a graph holds half of it, this level is routed anew. */
static specrt_status specrt__session_join_ahead(specrt_cuda_session *s, void *stream) {
    specrt_status status = specrt__side_join(&s->ahead, stream);
    if (status != SPECRT_STATUS_OK) s->n_ahead = 0;
    return status;
}

/* What the routed sources choose for a level. Routers of clusters do not ask who is a member already, so
 * they need not wait for it. */
static specrt_status specrt__session_route_level(specrt_cuda_session *s, int32_t level,
                                                 const void *draft_hidden, const void *draft_input,
                                                 void *stream) {
    const specrt_cuda_policy *p = s->policy;
    SPECRT__TRY(specrt__session_join_ahead(s, stream));
    for (int32_t i = 0; i < p->n_routed; i++) {
        bool there = s->n_ahead > level && specrt__session_foresees(s, i);
        if (p->routed[i].kind == SPECRT__DEVICE_CLUSTERS && !there)
            SPECRT__TRY(
                specrt__session_route_clusters(s, i, level, draft_hidden, draft_input, stream));
    }
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    for (int32_t i = 0; i < p->n_routed; i++) {
        SPECRT__TRY(specrt__session_route_tokens(s, i, level, draft_hidden, stream));
        SPECRT__TRY(specrt__session_claim(s, i, level, stream));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_expand(specrt_cuda_session *s, int32_t level,
                                            const void *draft_hidden, const void *draft_input,
                                            void *stream) {
    specrt__cuda_batch beam = specrt__head_beam_rows(s->batch.beams, s->batch.n, s->tree.topk);
    const specrt__cuda_segment *segments = s->segments[level];
    int32_t k = s->tree.topk;
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__session_route_level(s, level, draft_hidden, draft_input, stream));
    SPECRT__TRY(specrt__cuda_logits(&s->layout, segments, &beam, draft_hidden, s->hidden, s->logits,
                                    stream));
    if (s->distributions.n_steps == 0) {
        SPECRT__TRY(specrt__shortlist_shortlist(&s->layout, segments, &beam, s->logits, k, s->ids,
                                                s->logprobs, s->scratch, &r, &grid));
        return specrt__tree_rank(&r, grid, s->batch.trees, s->batch.beams, stream);
    }
    SPECRT__TRY(specrt__cuda_propose(&s->layout, segments, s->batch.n, s->logits, s->batch.trees,
                                     s->batch.samplings, &s->distributions, s->ids, s->logprobs,
                                     stream));
    return specrt__cuda_tree_expand(s->batch.n, k, s->ids, s->logprobs, s->batch.trees,
                                    s->batch.beams, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_expand(specrt_cuda_session *s,
                                                         const void *draft_hidden,
                                                         const void *draft_input, void *stream) {
    if (s->level == s->tree.num_steps || !draft_hidden) return SPECRT_STATUS_BAD_ARG;
    if (!specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__session_expand(s, s->level, draft_hidden, draft_input, stream));
    s->level++;
    return SPECRT_STATUS_OK;
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_finish(specrt_cuda_session *s, void *stream) {
    if (!specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__session_join(s, stream)); /* where nothing was drafted */
    return specrt__cuda_tree_finish(s->batch.n, s->batch.trees, s->batch.drafts, stream);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_verify(specrt_cuda_session *s,
                                                         const float *logits, void *stream) {
    bool ranks = s->k_best > 0, sampled = s->verifier.params.sampled > 0; /* then rank apart */
    if (!logits || !specrt__device_is_current(s->policy)) return SPECRT_STATUS_BAD_ARG;
    if (s->distributions.n_steps > 0)
        SPECRT__TRY(specrt__cuda_verify_chain(&s->verifier, &s->distributions, s->batch.drafts,
                                              s->batch.trees, s->batch.samplings, logits,
                                              s->batch.verdicts, stream));
    else if (sampled || !ranks)
        SPECRT__TRY(specrt__cuda_verify(&s->verifier, s->batch.drafts, s->batch.samplings, logits,
                                        s->batch.verdicts, stream));
    else
        SPECRT__TRY(specrt__verify_greedily(&s->verifier.params, s->batch.drafts, logits, s->k_best,
                                            s->best, SPECRT_TREE_MAX_NODES, s->scratch,
                                            s->batch.verdicts, stream));
    if (!ranks || !sampled) return SPECRT_STATUS_OK;
    specrt__cuda_batch nodes =
        specrt__verify_nodes(s->batch.drafts, s->batch.n, s->tree.num_draft_tokens);
    return specrt__cuda_target_topk(&nodes, logits, s->n_logits, s->k_best, s->best, NULL,
                                    s->scratch, stream);
}

#endif
