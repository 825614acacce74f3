/* specrt_cuda.h : the same on a GPU: cuda/specrt_kernels.cu, built by `make cuda` into libspecrt_cuda.a
 * and .so. No CUDA type stands here: a stream is a cudaStream_t passed as void * (NULL: the default
 * stream), and memory that is called DEVICE is ordinary pointers to memory of the GPU; what is not
 * called so is the host's.
 *
 * Launch functions check their arguments, start kernels on a stream and return: they neither allocate nor
 * wait, and a CUDA graph can capture them. Counts live on the device; grids are sized for the bound given on
 * the host, and what is beyond a count ends at once. A status other than OK means that nothing, or not
 * all, was started; what goes wrong later, the runtime reports with a later call (specrt_cuda_check()).
 *
 * Everything comes in batches: arrays are [n_batch, ...], a sequence each, independent of one another;
 * a count per sequence is DEVICE i32 [n_batch], and 0 passes a sequence over. Results equal those of
 * the CPU twin that each function names: whole numbers exactly, products but for the order of their sums.
 * Nothing depends on which thread ran first.
 *
 * Sessions of both kinds have the same calls, in the same order. The CPU's gives back what a cycle says; the
 * device's leaves it where specrt_cuda_view points, and takes the stream last, and first the number of a
 * sequence where a call is about one.
 *
 *     specrt_session_      specrt_cuda_session_     but that on the device
 *     create               create                   its policy is a specrt_cuda_policy
 *     begin(s, kind, at)   begin(s, i)              i = -1: all sequences
 *     prefill(s, tokens, n, rows)
 *                          prefill(s, i, tokens, n, logits)
 *                                                   rows are logits, which the session ranks itself
 *     draw(s, logits)      draw(s, logits, tokens)  tokens are written there
 *     start(s, token)      start(s, i, tokens)      i = -1: all sequences
 *     none                 route_ahead(s, input)    DynaSpec's clusters, beside the drafter's pass, on a
 *                                                   stream of its own
 *     expand(s, hidden, input, n, &beam)
 *                          expand(s, hidden, input) n and the next beam stand in view.beam
 *     finish(s, &draft)    finish(s)                in view.draft
 *     verify(s, &draft, logits, &verdict)
 *                          verify(s, logits)        in view.verdict
 *     observe(s, &draft, &verdict, rows)
 *                          observe(s, hidden)       of rows the hidden states; verify() read the logits
 *     get_stats(s, &stats) get_stats(s, stats)      of every sequence, written there
 *     close                close                    waits for the device
 *     params.submit        serve(s)                 who runs retrieval's part on the host
 *     shortlist, member    get_view: states         membership, as it is on the device
 *     begin with BEGIN_TURN, set_sequence, route
 *                          none                     sequences begin anew; trees are the session's own */
#ifndef SPECRT_CUDA_H
#define SPECRT_CUDA_H

#include "specrt.h"

// >>cuda

#ifdef __cplusplus
extern "C" {
#endif

/* Linked, even where the rest of this file is static. */
#define SPECRT_CUDA_API extern

/* ---- the device ------------------------------------------------------------------------------------- */

/* specrt_cuda_open() : whether the current device can run this library's kernels.
 * @return OK; NO_DEVICE; DEVICE_ARCH naming the device's architecture and those that were compiled; DEVICE,
 * when there is one that cannot be used, as when its memory is full. */
SPECRT_CUDA_API specrt_status specrt_cuda_open(specrt_error *err);

/* specrt_cuda_check() : what the runtime has to report, and forgets it. Built with SPECRT_CUDA_DEBUG, every
 * launch waits for its end, and the message names the kernel; otherwise it may be of any launch before.
 * @return OK or DEVICE with the runtime's text. */
SPECRT_CUDA_API specrt_status specrt_cuda_check(specrt_error *err);

/* ---- what a session shows -------------------------------------------------------------------------- */

/* A cycle's drafter pass: specrt_beam, DEVICE [n_batch], one each. n = 0: the sequence does not draft. */
typedef struct specrt_cuda_beam {
    int32_t n;
    int32_t tokens[SPECRT_TREE_MAX_TOPK], parents[SPECRT_TREE_MAX_TOPK];
    float logprobs[SPECRT_TREE_MAX_TOPK];
} specrt_cuda_beam;

/* specrt_draft, DEVICE [n_batch], one each. */
typedef struct specrt_cuda_draft {
    int32_t n;
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    float logprobs[SPECRT_TREE_MAX_NODES];
    int64_t positions[SPECRT_TREE_MAX_NODES]; /* in the sequence */
    uint64_t masks[SPECRT_TREE_MAX_NODES];
} specrt_cuda_draft;

/* Membership of a sequence; see >>kernels. */
typedef struct specrt_cuda_state specrt_cuda_state;

/* ---- sessions -----------------------------------------------------------------------------------------
 * What specrt_session is for one sequence, for a batch of them in lockstep, with all of it on the device, by
 * the same calls in the same order (see the top of this section):
 *
 *     specrt_cuda_session_begin(s, -1, stream);
 *     for each sequence, for each chunk of its prompt:
 *         specrt_cuda_session_prefill(s, i, tokens, n, logits, stream);
 *     specrt_cuda_session_draw(s, logits, tokens, stream);       // after the last prompt tokens
 *     specrt_cuda_session_start(s, -1, tokens, stream);
 *     for each cycle:
 *         num_steps times:
 *             specrt_cuda_session_route_ahead(s, input, stream); // if you like
 *             your drafter reads view.beam and input, writes hidden
 *             specrt_cuda_session_expand(s, hidden, input, stream);
 *         specrt_cuda_session_finish(s, stream);
 *         your target reads view.draft, writes logits
 *         specrt_cuda_session_verify(s, logits, stream);
 *         specrt_cuda_session_observe(s, target_hidden, stream);
 *         your caches keep view.verdict's nodes; copy it to the host when you want its tokens
 *
 * Every pass has topk rows a sequence, of which the beam's n count; a tree num_draft_tokens nodes, of
 * which the draft's n count. observe() forks: what it learns and packs runs on the session's own stream,
 * and the first expand() that follows waits for it immediately before it multiplies. A graph must hold both
 * ends of that: capture a cycle from the observe() of the one before to its own verify(). It may be launched
 * at once after start(), where observe() has nothing to do. A call that would join a graph to an observe()
 * outside of it, or the other way round, returns CAPTURE and starts nothing: end the capture; the graph is
 * not to be used. After that a captured observe() has not happened, one that was not is waited for by
 * the next call. One thread at a time; sessions of one policy share its memory.
 *
 * What retrieve's mode says, specrt_cuda_session_serve() decides here. */

/* What all sessions of a policy share, on the device. */
typedef struct specrt_cuda_policy specrt_cuda_policy;

typedef struct specrt_cuda_policy_desc { /* zero-initialise it */
    /* DEVICE [n_rows, n_cols] the head's rows, borrowed for the policy's life, in the type that the bound
     * head has and that products take: f32, f16, bf16 or q8_0. NULL: a copy is made, decoded to f16 where
     * it must be, of q8_0 in the order that is read the fastest */
    const void *rows;
    size_t row_stride; /* bytes; 0: side by side */
    /* DEVICE likewise the embedding's, where a router reads it; NULL: a copy is made */
    const void *embedding;
    size_t embedding_stride; /* bytes; 0: side by side */
} specrt_cuda_policy_desc;

/* specrt_cuda_policy_create() : copies what a policy packed, routers, graphs and lists to the device.
 * Waits for the device.
 *   policy : borrowed for the life of the result, with its head and bundle
 *   desc   : NULL: all defaults
 * @return OK; NO_DEVICE, DEVICE_ARCH, DEVICE; NO_MEMORY naming the bytes; UNSUPPORTED naming the source, or
 * a head whose logits are scaled or capped; BAD_ARG naming rows that are not as they should be. */
SPECRT_CUDA_API specrt_status specrt_cuda_policy_create(const specrt_policy *policy,
                                                        const specrt_cuda_policy_desc *desc,
                                                        specrt_cuda_policy **out,
                                                        specrt_error *err);
SPECRT_CUDA_API void specrt_cuda_policy_close(specrt_cuda_policy *policy);

typedef struct specrt_cuda_session_params {
    specrt_tree_params tree;
    specrt_sampling sampling; /* sequence i draws with sampling.sequence + i; see session_begin */
    int32_t n_batch;          /* sequences; 0: 1 */
    int32_t n_logits;         /* as specrt_session_params */
    /* of the drafter's states: f32, f16 or bf16; f32 where routers read them */
    specrt_dtype hidden;
    specrt_draft_kind
        draft; /* sampled: chains, for whose distributions 8 bytes a row and level are kept */
    float draft_temperature; /* of sampled drafts, to 100; 0: the target's */
    /* 1: rows that windows and caches hold are read where they lie in the head, without a copy for each
     * sequence; those that several hold are read once for all. 0: each sequence has packed copies. CPU twin:
     * specrt_session_params.stock */
    int32_t stock;
} specrt_cuda_session_params;

typedef struct specrt_cuda_session specrt_cuda_session;

/* specrt_cuda_session_create() : everything the batch needs; the other calls neither allocate nor wait, but
 * for one, prefill() where retrieve@prompt reads along.
 * @return OK, BAD_ARG naming the field, NO_MEMORY naming the bytes, DEVICE. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_create(const specrt_cuda_policy *policy,
                                                         const specrt_cuda_session_params *params,
                                                         specrt_cuda_session **out,
                                                         specrt_error *err);

/* specrt_cuda_session_close() : waits for the device. */
SPECRT_CUDA_API void specrt_cuda_session_close(specrt_cuda_session *session);

/* Where the models find what a session says, and what for; the addresses never change. */
typedef struct specrt_cuda_view {
    const specrt_cuda_beam *beam;    /* DEVICE [n_batch] rows of the next pass */
    const specrt_cuda_draft *draft;  /* DEVICE [n_batch] */
    const specrt_verdict *verdict;   /* DEVICE [n_batch] */
    const specrt_cuda_state *states; /* DEVICE [n_batch] membership: for tests and tools */
    int32_t n_batch, topk, num_steps, num_draft_tokens, n_logits;
    int32_t width;  /* columns of the target's hidden states that observe() reads; 0: none */
    size_t n_bytes; /* of device memory, this session's alone */
    void *side;     /* cudaStream_t that learns and packs: for tools that take its time */
} specrt_cuda_view;
SPECRT_CUDA_API void specrt_cuda_session_get_view(const specrt_cuda_session *session,
                                                  specrt_cuda_view *out);

/* specrt_cuda_session_begin() : sequence i, or all for -1, forgets everything. Its draws are keyed by the
 * next number: sampling.sequence + i at first, then n_batch more each time. CPU twin:
 * specrt_session_begin(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_begin(specrt_cuda_session *session, int32_t i,
                                                        void *stream);

/* specrt_cuda_session_prefill() : the next prompt tokens of sequence i. CPU twin: specrt_session_prefill().
 * With retrieve@prompt=tokens or best, whose cache is the host's, it waits for the stream, and works off the
 * sequence's cycles before: not to be captured. Another thread may be in specrt_cuda_session_serve().
 *   tokens : DEVICE i32 [n]
 *   logits : DEVICE f32 [n, n_logits], read where the policy's needs_prompt_logits; NULL: not computed there
 *   */
SPECRT_CUDA_API specrt_status specrt_cuda_session_prefill(specrt_cuda_session *session, int32_t i,
                                                          const int32_t *tokens, int32_t n,
                                                          const float *logits, void *stream);

/* specrt_cuda_session_draw() : the tokens that plain decoding emits next. CPU twin: specrt_session_draw().
 *   logits : DEVICE f32 [n_batch, n_logits]
 *   tokens : DEVICE i32 [n_batch], written */
SPECRT_CUDA_API specrt_status specrt_cuda_session_draw(specrt_cuda_session *session,
                                                       const float *logits, int32_t *tokens,
                                                       void *stream);

/* specrt_cuda_session_start() : the first token after the prompt, of sequence i, or of all for -1; it is the
 * root of the first tree. CPU twin: specrt_session_start().
 *   tokens : DEVICE i32 [n_batch], whatever i is */
SPECRT_CUDA_API specrt_status specrt_cuda_session_start(specrt_cuda_session *session, int32_t i,
                                                        const int32_t *tokens, void *stream);

/* specrt_cuda_session_route_ahead() : begins, once the stream has view.beam and what the next pass reads, to
 * choose DynaSpec's clusters for it, on a stream of the session's own beside the drafter, as that paper does.
 * expand() waits for them before the product, and has the rows that it would choose itself. Other sources
 * wait for what the pass gives. A graph must hold both this call and
 * that expand(), or neither.
 *   draft_input : DEVICE as for expand, unchanged until that has run; NULL: not told
 * @return OK, also where no source can; BAD_ARG after num_steps passes, or a second time for one; what
 * launches return. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_route_ahead(specrt_cuda_session *session,
                                                              const void *draft_input,
                                                              void *stream);

/* specrt_cuda_session_expand() : scores a drafter pass and grows the trees. CPU twin:
 * specrt_session_expand().
 *   draft_hidden : DEVICE [n_batch, topk, n_cols] of params.hidden, rows as the beam's; first the root's
 *   draft_input : DEVICE likewise, what the pass read, for sources that route by it; NULL: not known
 * @return OK; BAD_ARG, as after num_steps passes; CAPTURE, see above; what launches return. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_expand(specrt_cuda_session *session,
                                                         const void *draft_hidden,
                                                         const void *draft_input, void *stream);

/* specrt_cuda_session_finish() : the trees to verify. CPU twin: specrt_session_finish(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_finish(specrt_cuda_session *session,
                                                         void *stream);

/* specrt_cuda_session_verify() : what is emitted, and the target's best tokens to learn from. CPU twin:
 * specrt_session_verify().
 *   logits : DEVICE f32 [n_batch, num_draft_tokens, n_logits] */
SPECRT_CUDA_API specrt_status specrt_cuda_session_verify(specrt_cuda_session *session,
                                                         const float *logits, void *stream);

/* specrt_cuda_session_observe() : learns from the cycle, and roots the next trees in the last tokens
 * emitted. A sequence that verified nothing since its start() is passed over. CPU twin:
 * specrt_session_observe().
 *   hidden : DEVICE f32 [n_batch, num_draft_tokens, width] of the target at the drafts' nodes, where the
 *            view's width is not 0, borrowed until the next expand or finish has run; NULL: not told */
SPECRT_CUDA_API specrt_status specrt_cuda_session_observe(specrt_cuda_session *session,
                                                          const float *hidden, void *stream);

/* specrt_cuda_session_get_stats() : each sequence's sums since begin. CPU twin: specrt_session_get_stats(),
 * but that n_copied counts rows twice which were packed again to close a gap, and n_bytes one scan a level.
 *   stats : DEVICE [n_batch], written */
SPECRT_CUDA_API specrt_status specrt_cuda_session_get_stats(specrt_cuda_session *session,
                                                            specrt_session_stats *stats,
                                                            void *stream);

/* specrt_cuda_session_serve() : retrieval's part on the host: works off the cycles that observe() has told
 * of, through memory that host and device share, and posts what they change, for the next observe() to
 * take over. Calls nothing of the runtime and waits for nobody; call it between cycles, or again and again
 * on a thread of its own. As specrt_session_params.submit, it decides when retrieval learns, not what.
 * @return how many cycles it worked off; 0 where nothing retrieves. */
SPECRT_CUDA_API int32_t specrt_cuda_session_serve(specrt_cuda_session *session);

#ifdef __cplusplus
}
#endif

#endif
