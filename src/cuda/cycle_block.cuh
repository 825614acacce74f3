/* cycle_block.cuh : owns drafts of a block: which kernels score, route and choose its positions. The calls
 * around it are those of every cycle. */
#ifndef CUDA_CYCLE_BLOCK_CUH
#define CUDA_CYCLE_BLOCK_CUH

#include "core/base.h"
#include "decode/policy.h"
#include "cuda/launch.cuh"
#include "cuda/head.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/tree.cuh"
#include "cuda/device.cuh"
#include "cuda/side.cuh"
#include "cuda/order.cuh"
#include "cuda/session_make.cuh"
#include "cuda/session.cuh"
#include "cuda/cycle.cuh"

/* Confidences of n positions by their states alone, and without the bias, which `least` has. */
static specrt_status specrt__session_trust(specrt_cuda_session *s, const void *hidden, int32_t n,
                                           void *stream) {
    const specrt__cuda_batch positions = {s->batch.n, n, NULL, 0};
    if (!s->confidence) return SPECRT_STATUS_OK;
    specrt__head_product p =
        specrt__head_of_rows(s->confidence, SPECRT_DTYPE_F32, 1, (int32_t)s->layout.n_cols);
    specrt__head_take_states(&p, &positions, hidden, s->hidden);
    p.logits = s->confidences;
    return specrt__head_run_f32(p, s->batch.n, stream);
}

/* Those of position i of n, to which the rows of w1 that a Markov head reads have been added. */
static specrt_status specrt__session_trust_each(specrt_cuda_session *s, int32_t i, int32_t n,
                                                const specrt__cuda_batch *beam, void *stream) {
    const specrt__cuda_head *from = &s->policy->from;
    if (!s->markov.confidences) return SPECRT_STATUS_OK;
    specrt__head_product p = specrt__head_of_rows(s->confidence + s->layout.n_cols,
                                                  SPECRT_DTYPE_F32, 1, (int32_t)from->n_cols);
    specrt__head_take_states(&p, beam, s->markov.from, from->dtype);
    p.step = beam->max_n == 1 ? s->tree.topk : 1;
    p.before = s->confidences + i;
    p.before_step = n;
    p.logits = s->markov.confidences;
    return specrt__head_run_f32(p, s->batch.n, stream);
}

/* Position i of a block of n. */
static specrt__tree_position specrt__session_position(const specrt_cuda_session *s, int32_t i,
                                                      int32_t n) {
    if (!s->markov.logits) return {i, s->least, s->confidence ? s->confidences + i : NULL, n, 0};
    return {i, s->least, s->markov.confidences, i == 0 ? 1 : s->tree.topk, 1};
}

/* Rows that position i of a block scores beside those of all positions, by the tokens before it, and their
 * logits. Twin: specrt__block_route */
static specrt_status specrt__session_route_position(specrt_cuda_session *s, const void *hidden,
                                                    int32_t i, int32_t n, void *stream) {
    const size_t bytes = specrt_row_bytes(s->hidden, s->layout.n_cols);
    const void *first = (const uint8_t *)hidden + (size_t)i * bytes;
    const specrt__cuda_batch roots = specrt__session_beam_rows(s, 0);
    specrt__cuda_head table;
    specrt__head_product p;
    if (s->policy->n_routed == 0) return SPECRT_STATUS_OK;
    SPECRT__CLEAR(&table, 1);
    table.rows = first;
    table.dtype = s->hidden;
    table.n_rows = s->batch.n;
    table.n_cols = s->layout.n_cols;
    table.row_stride = (size_t)n * bytes;
    if (s->states)
        SPECRT__TRY(specrt__cuda_pack(&table, s->repeats, s->batch.n, s->tree.topk, bytes, stream));
    SPECRT__TRY(specrt__session_route_level(s, i, s->states, NULL, stream));
    SPECRT__CLEAR(&p, 1);
    p.step = p.row_step = n;
    return specrt__head_logits(p, &s->layout, s->n_kept, s->layout.n_segments, s->segments[i],
                               &roots, first, s->hidden, s->logits + (int64_t)i * s->n_columns,
                               stream);
}

/* Positions one after another, where a token decides what the next one scores, and where each is drawn from
 * its own distribution. */
static specrt_status specrt__session_draft_each(specrt_cuda_session *s, const void *hidden,
                                                int32_t n, void *stream) {
    for (int32_t i = 0; i < n; i++) {
        const specrt__cuda_batch beam = specrt__session_beam_rows(s, s->markov.logits ? i : 0);
        const float *logits = s->logits + (int64_t)i * s->n_columns;
        int64_t step = (int64_t)n * s->n_columns;
        SPECRT__TRY(specrt__session_route_position(s, hidden, i, n, stream));
        SPECRT__TRY(
            specrt__session_add_markov(s, i, &beam, logits, step, 0, s->markov.logits, stream));
        if (s->markov.logits) logits = s->markov.logits, step = (int64_t)beam.max_n * s->n_columns;
        SPECRT__TRY(specrt__session_trust_each(s, i, n, &beam, stream));
        SPECRT__TRY(specrt__session_grow(s, s->segments[i], &beam, logits, step, i + 1 == n,
                                         specrt__session_position(s, i, n), stream));
    }
    if (s->distributions.n_steps == 0) return SPECRT_STATUS_OK;
    return specrt__cuda_tree_finish(s->batch.n, s->batch.trees, s->batch.drafts, stream);
}

/* One product of all positions. If no position waits for another, one ranking goes on with the trees. */
static specrt_status specrt__session_draft_block(specrt_cuda_session *s, const void *hidden,
                                                 int32_t n, void *stream) {
    const specrt__cuda_segment *segments = s->segments[0];
    const specrt__cuda_batch positions = {s->batch.n, n, NULL, 0};
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__side_join(&s->side, stream));
    SPECRT__TRY(specrt__session_multiply(s, segments, s->n_kept, &positions, hidden, 1, stream));
    SPECRT__TRY(specrt__session_trust(s, hidden, n, stream));
    if (s->markov.logits || s->distributions.n_steps > 0 || s->policy->n_routed > 0)
        return specrt__session_draft_each(s, hidden, n, stream);
    SPECRT__TRY(specrt__shortlist_shortlist(&s->layout, segments, &positions, s->logits,
                                            s->tree.topk, s->ids, s->logprobs, s->scratch, &r,
                                            &grid));
    return SPECRT__LAUNCH(specrt__tree_block_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r, specrt__session_position(s, 0, n), s->batch.trees,
                          s->batch.beams, s->batch.drafts);
}

SPECRT_CUDA_API specrt_status specrt_cuda_session_draft_block(specrt_cuda_session *s,
                                                              const void *draft_hidden, int32_t n,
                                                              void *stream) {
    specrt__order_call call;
    SPECRT__TRY(specrt__session_call(s, "draft_block", SPECRT__ORDER_CYCLES, draft_hidden != NULL,
                                     "draft_hidden", stream, &call));
    SPECRT__TRY(specrt__session_check_halves(s, call.captured));
    SPECRT__TRY(specrt__order_check_level(&call, s->tree.num_steps));
    if (call.cycle->level > 0)
        return specrt__order_refuse(&call, "expand() or finish(): the cycle has begun with a pass");
    if (n < 1 || n > s->n_block)
        return specrt_error_set(&s->order.error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: n: expected 1 to %d positions "
                                "(specrt_cuda_session_params.n_block), found %d",
                                (int)s->n_block, (int)n);
    specrt__session_tell_narrow(s, draft_hidden);
    SPECRT__TRY(specrt__session_draft_block(s, draft_hidden, n, stream));
    specrt__order_end_stage(&call, SPECRT__ORDER_DRAFTED);
    return SPECRT_STATUS_OK;
}

#endif
