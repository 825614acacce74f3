/* specrt_cuda.h : sessions on a GPU. cuda/specrt_kernels.cu implements it; `make cuda` builds
 * libspecrt_cuda.a and .so from it. The conventions of specrt.h hold.
 *
 * FUNCTIONS, by task (prefix specrt_cuda_):
 *     check the device    open, check
 *     create a policy     policy_create, policy_close
 *     run a batch         session_create, _begin, _prefill, _draw, _start, _route_ahead, _expand,
 *                         _draft_block, _finish, _verify, _observe, _serve, _get_view, _get_stats,
 *                         _last_error, _close
 *     lend a product      session_set_gemm
 *
 * CONVENTIONS
 *     Memory     `stream` is a cudaStream_t as void *; NULL: the legacy default stream. DEVICE marks pointers
 *                to GPU memory. All other pointers are to host memory. The header needs no CUDA header.
 *     Devices    A policy and its sessions belong to the device that is current in policy_create(). With
 *                another current device a session's calls return BAD_ARG and start nothing; get_view, serve
 *                and close work. Neither create nor close while any stream of the process is captured.
 *     Launches   A session's calls check their arguments, start kernels and return. They neither allocate nor
 *                wait, and a CUDA graph can capture them; comments name exceptions. A status other than OK
 *                means that not all kernels were started. specrt_cuda_check() reports faults of running ones.
 *     Batches    Arrays are [n_batch, ...], one entry per sequence. A count of 0 skips a sequence.
 *     Order      A call that comes too early, too late or twice returns BAD_ORDER and starts nothing:
 *                begin -> prefill... -> draw, start -> (expand... -> finish -> verify -> observe)...
 *                with draft_block in place of expand and finish where a block drafts.
 *                prefill and start check their sequences. The calls for all sequences check the cycle;
 *                sequences that have not started draft and emit nothing (n = 0). The host does not see what a
 *                graph launches. Once a call was captured, calls of its half of the order (begin to start, or
 *                expand to observe) may come any time, except that expand still counts its levels.
 *     Contents   The host does not see DEVICE memory, so that its contents are no errors. They have these
 *                results, where a session on the CPU returns BAD_INPUT or BAD_ARG:
 *                    NaN logits                           count as -inf
 *                    no logit above -inf                  draw: -1; verify: verdict.n = 0
 *                    start: a token outside [0, n_vocab)  the sequence drafts nothing until its begin
 *                    prefill: such a token                it is not learned
 *                    verify: a sampled draft of your own  verdict.n = 0
 *                    observe: a verdict of your own that  nothing is learned, and the tree stays
 *                    is no path of its draft
 *     Results    They equal those of the CPU twin that a comment names: integers exactly, products up to the
 *                order of summation. They do not depend on the order of threads.
 *
 * Both kinds of session have the same calls in the same order:
 *
 *     specrt_session_                      specrt_cuda_session_         on the device
 *     create                               create                       with a specrt_cuda_policy
 *     begin(s, request)                    begin(s, i)                  i = -1: all; always a new sequence
 *     prefill(s, tokens, n, rows)          prefill(s, i, tokens, n, logits)
 *     draw(s, logits, &token)              draw(s, logits, tokens)      writes tokens
 *     start(s, token)                      start(s, i, tokens)          i = -1: all
 *     none                                 route_ahead(s, input)        DynaSpec's router, beside the drafter
 *     expand(s, hidden, input, n, &beam)   expand(s, hidden, input)     the next beam is view.beam
 *     draft_block(s, &block, &draft)       draft_block(s, hidden, n)    in place of expand and finish
 *     finish(s, &draft)                    finish(s)                    the tree is view.draft
 *     verify(s, &draft, logits, &verdict)  verify(s, logits)            the verdict is view.verdict
 *     observe(s, &draft, &verdict, rows)   observe(s, hidden)           logits are those of verify()
 *     get_stats(s, &stats)                 get_stats(s, stats)          writes the sums of all sequences
 *     last_error(s)                        last_error(s)                of calls that were refused
 *     shortlist, member                    get_view                     view.states is the membership
 *     params.submit                        serve(s)                     runs retrieval's host part
 *     first, accept, route, observe_chain  none                         the host ends answers
 *     none                                 set_gemm                     your library's products
 */
#ifndef SPECRT_CUDA_H
#define SPECRT_CUDA_H

#include "specrt.h"

// >>cuda
// Policies and batches of sessions on a GPU.

#ifdef __cplusplus
extern "C" {
#endif

#define SPECRT_CUDA_API extern /* external linkage, also with SPECRT_STATIC */

/* ---- the device ---- */

/* specrt_cuda_open() : Whether the current device can run this library's kernels.
 * @return OK; NO_DEVICE; DEVICE_ARCH with the device's architecture and the compiled ones; DEVICE if the
 * device fails, for example without free memory. */
SPECRT_CUDA_API specrt_status specrt_cuda_open(specrt_error *err);

/* specrt_cuda_check() : Reports and clears the CUDA runtime's last error, which may stem from any earlier
 * launch. Built with SPECRT_CUDA_DEBUG, every launch waits for its end, and the message names the kernel.
 * @return OK; DEVICE with the runtime's text. */
SPECRT_CUDA_API specrt_status specrt_cuda_check(specrt_error *err);

/* ---- results of a session, in DEVICE memory ---- */

/* specrt_beam of one sequence. n = 0: the sequence drafts nothing. */
typedef struct specrt_cuda_beam {
    int32_t n;                             /* rows */
    int32_t tokens[SPECRT_TREE_MAX_TOPK];  /* [n] */
    int32_t parents[SPECRT_TREE_MAX_TOPK]; /* [n] */
    float logprobs[SPECRT_TREE_MAX_TOPK];  /* [n] of the path, natural log */
} specrt_cuda_beam;

/* specrt_draft of one sequence. */
typedef struct specrt_cuda_draft {
    int32_t n;                                /* nodes */
    int32_t tokens[SPECRT_TREE_MAX_NODES];    /* [n] */
    int32_t parents[SPECRT_TREE_MAX_NODES];   /* [n] */
    int32_t depths[SPECRT_TREE_MAX_NODES];    /* [n] */
    float logprobs[SPECRT_TREE_MAX_NODES];    /* [n] of the path, natural log */
    int64_t positions[SPECRT_TREE_MAX_NODES]; /* [n] in the sequence */
    uint64_t masks[SPECRT_TREE_MAX_NODES];    /* [n] bit j: node j is this node or an ancestor */
} specrt_cuda_draft;

typedef struct specrt_cuda_state specrt_cuda_state; /* membership of one sequence; see >>kernels */

/* ---- sessions: a batch of sequences in lockstep ----
 *
 *     specrt_cuda_session_begin(s, -1, stream);
 *     for each sequence, for each chunk of its prompt:
 *         specrt_cuda_session_prefill(s, i, tokens, n, logits, stream);
 *     specrt_cuda_session_draw(s, logits, tokens, stream);       // after the last prompt tokens
 *     specrt_cuda_session_start(s, -1, tokens, stream);
 *     for each cycle:
 *         num_steps times:
 *             specrt_cuda_session_route_ahead(s, input, stream); // optional
 *             your drafter reads view.beam and input, writes hidden
 *             specrt_cuda_session_expand(s, hidden, input, stream);
 *         specrt_cuda_session_finish(s, stream);
 *         your target reads view.draft, writes logits
 *         specrt_cuda_session_verify(s, logits, stream);
 *         specrt_cuda_session_observe(s, target_hidden, stream);
 *         your caches keep view.verdict's nodes; copy it to the host when you need its tokens
 *
 * A pass has topk rows per sequence, of which the beam's n count. A tree has num_draft_tokens nodes, of which
 * the draft's n count. One thread at a time may call; sessions of one policy share its memory.
 *
 * GRAPHS. observe() learns on a stream of the session, and the next expand() waits for it. A graph must
 * contain both: capture from the observe() of one cycle to the verify() of the next. The graph may be
 * launched directly after start(). A call that breaks this rule returns CAPTURE and starts nothing. End the
 * capture and discard the graph: its observe() has not happened. The next call waits for an observe() outside
 * of it. */

typedef struct specrt_cuda_policy
    specrt_cuda_policy; /* what all sessions of a policy share on the device */

/* Matrices that are on the device already. Zero-initialise it. */
typedef struct specrt_cuda_policy_desc {
    /* DEVICE [n_rows, n_cols] the head's rows in its own type (f32, f16, bf16 or q8_0), borrowed for the
     * policy's life. NULL: a copy, decoded to f16 if no product takes the type; q8_0 is reordered for fast
     * reads */
    const void *rows;
    size_t row_stride; /* bytes; 0: contiguous */
    /* DEVICE [n_vocab, n_embed] the embedding that a router reads, borrowed for the policy's life. NULL: a
     * copy */
    const void *embedding;
    size_t embedding_stride; /* bytes; 0: contiguous */
} specrt_cuda_policy_desc;

/* specrt_cuda_policy_create() : Copies packed rows, routers, graphs, lists and a Markov head to the device:
 * of w1 and w2 a row for each token, in f32 where they are not f16 or bf16. Waits for the device.
 *   policy : borrowed for the result's life, with its head and bundle
 * @return OK; NO_DEVICE; DEVICE_ARCH; DEVICE; NO_MEMORY with the bytes; UNSUPPORTED with the source, or for a
 * head with logit_scale or softcap. */
SPECRT_CUDA_API specrt_status specrt_cuda_policy_create(const specrt_policy *policy,
                                                        const specrt_cuda_policy_desc *desc,
                                                        specrt_cuda_policy **out,
                                                        specrt_error *err);
SPECRT_CUDA_API void specrt_cuda_policy_close(specrt_cuda_policy *policy);

/* What to create. Zero-initialise it. */
typedef struct specrt_cuda_session_params {
    specrt_tree_params tree; /* of all sequences */
    /* Sequence i has the session number sampling.session + i, so sessions with one seed need numbers that are
     * n_batch apart. The first begin() of a sequence takes generation number sampling.generation, each later
     * one the next */
    specrt_sampling sampling;
    int32_t n_batch; /* sequences; 0: 1 */
    /* Columns of the target's logits; required. Ids at or above the policy's n_vocab are padding: never
     * emitted or accepted */
    int32_t n_logits;
    specrt_dtype hidden; /* of draft hidden states: f32, f16, bf16; f32 if a router reads them */
    specrt_draft_kind draft; /* sampled: chains, which need 8 more bytes per row and level */
    float draft_temperature; /* of sampled drafts, in (0, 100]; 0: the target's */
    /* 1: rows of windows and caches are read from the head, once for all sequences that hold them. 2: each
     * sequence has packed copies. 0: 1 where copies of several sequences were as many rows as the head has:
     * from V / W sequences on, with W of V rows each, so 50 for 3,072 of 151,936. Results are the same. CPU
     * twin: specrt_session_params.stock */
    int32_t stock;
    /* Most positions of draft_block(), at most tree.num_steps; 0: none. Not for trees of a policy with
     * beam=per_row */
    int32_t n_block;
    /* draft_block() ends a draft before the first position of less confidence, 0 to 1; 0: never. Confidence
     * is that of specrt_block: in a tree a path's own; with `confidence` NULL the best path's probability */
    float p_min;
    float confidence_bias; /* as specrt_block.confidence_bias */
    /* DEVICE f32 [n_cols + rank of the Markov head], borrowed for the session's life; NULL: none */
    const float *confidence;
} specrt_cuda_session_params;

typedef struct specrt_cuda_session specrt_cuda_session; /* a batch of sequences */

/* specrt_cuda_session_create() : Allocates everything, and loads all kernels, so that the first cycle of a
 * process can be captured in any mode. Later calls neither allocate nor wait, except prefill() with
 * retrieve@prompt.
 *   policy : borrowed for the session's life
 * @return OK; BAD_ARG with the field; NO_MEMORY with the bytes; DEVICE. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_create(const specrt_cuda_policy *policy,
                                                         const specrt_cuda_session_params *params,
                                                         specrt_cuda_session **out,
                                                         specrt_error *err);

/* specrt_cuda_session_last_error() : The last call on this session that was refused, or whose gemm failed,
 * with one line for a person. Borrowed; the next refusal replaces it. Status OK: none was. For DEVICE see
 * specrt_cuda_check().
 * @return NULL for a session that is NULL. */
SPECRT_CUDA_API const specrt_error *
specrt_cuda_session_last_error(const specrt_cuda_session *session);

/* specrt_cuda_session_close() : Waits for the device and frees the session. */
SPECRT_CUDA_API void specrt_cuda_session_close(specrt_cuda_session *session);

/* Where a session's results are. Addresses never change.
 *
 * An engine that verifies chains on its own, as vLLM does, calls finish() and writes what its target read
 * to `draft` (tokens and n; n = 0: no cycle). It calls verify(), which ranks the target's tokens, and writes
 * what it emitted to `verdict` (n, tokens, nodes) before it calls observe(). It writes on the stream of these
 * calls. */
typedef struct specrt_cuda_view {
    const specrt_cuda_beam *beam;    /* DEVICE [n_batch] rows of the next pass */
    const specrt_cuda_draft *draft;  /* DEVICE [n_batch] trees to verify */
    const specrt_verdict *verdict;   /* DEVICE [n_batch] what is emitted */
    const specrt_cuda_state *states; /* DEVICE [n_batch] membership, for tests and tools */
    int32_t n_batch;                 /* sequences */
    int32_t topk;                    /* rows of a pass per sequence */
    int32_t num_steps;               /* passes per cycle */
    int32_t num_draft_tokens;        /* nodes per sequence */
    int32_t n_logits;                /* columns of the target's logits */
    int32_t width;                   /* columns of hidden states that observe() reads; 0: none */
    size_t n_bytes;                  /* device memory of this session */
    void *side; /* cudaStream_t that learns and packs, for tools that time it */
} specrt_cuda_view;

/* specrt_cuda_session_get_view() : Where the results are. */
SPECRT_CUDA_API void specrt_cuda_session_get_view(const specrt_cuda_session *session,
                                                  specrt_cuda_view *out);

/* specrt_cuda_session_begin() : Begins a new sequence at position 0, with the next generation number. It may
 * come at any time. The other sequences continue their cycle. CPU twin: specrt_session_begin().
 *   i : the sequence; -1: all
 * @return OK, BAD_ARG. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_begin(specrt_cuda_session *session, int32_t i,
                                                        void *stream);

/* specrt_cuda_session_prefill() : The next prompt tokens of a sequence. CPU twin: specrt_session_prefill().
 * With retrieve@prompt=tokens or best, it waits for the stream and cannot be captured; another thread may be
 * in serve().
 *   i : the sequence
 *   tokens : DEVICE i32 [n] target ids
 *   n : 0 or more
 *   logits : DEVICE f32 [n, n_logits], read if the policy's needs_prompt_logits is 1; NULL: not computed
 * @return OK, BAD_ARG; BAD_ORDER before the sequence's begin(), and after its start(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_prefill(specrt_cuda_session *session, int32_t i,
                                                          const int32_t *tokens, int32_t n,
                                                          const float *logits, void *stream);

/* specrt_cuda_session_draw() : The tokens that plain decoding emits next. CPU twin: specrt_session_draw().
 *   logits : DEVICE f32 [n_batch, n_logits]
 *   tokens : DEVICE i32 [n_batch], written; -1: no logit is above -inf. Those of sequences whose prompt was
 *       not read have no meaning
 * @return OK, BAD_ARG; BAD_ORDER while no sequence has read a prompt. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_draw(specrt_cuda_session *session,
                                                       const float *logits, int32_t *tokens,
                                                       void *stream);

/* specrt_cuda_session_start() : Roots the first tree in the first token after the prompt. CPU twin:
 * specrt_session_start().
 *   i : the sequence; -1: all
 *   tokens : DEVICE i32 [n_batch]
 * @return OK, BAD_ARG; BAD_ORDER without a prompt of the sequence, after its start(), and between the first
 * expand() of other sequences and their finish(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_start(specrt_cuda_session *session, int32_t i,
                                                        const int32_t *tokens, void *stream);

/* specrt_cuda_session_route_ahead() : Starts DynaSpec's router on another stream, beside the drafter's pass
 * (as in the paper). expand() waits for it and scores the same rows as without this call. Policies without
 * DynaSpec do nothing. A graph must contain this call and its expand(), or neither.
 *   draft_input : DEVICE as for expand, unchanged until expand has run; NULL: unknown
 * @return OK, BAD_ARG; BAD_ORDER as expand(), and for a second call in one pass. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_route_ahead(specrt_cuda_session *session,
                                                              const void *draft_input,
                                                              void *stream);

/* specrt_cuda_session_expand() : Scores a drafter pass and grows the trees. CPU twin:
 * specrt_session_expand().
 *   draft_hidden : DEVICE [n_batch, topk, n_cols] of params.hidden, in the order of the beam; at first the
 *       root's. Where it, its rows or the head's are not aligned to 16 bytes, or q8_0 rows are lent, products
 *       take numbers one by one and are slow: specrt_env.log of the head is told, once a session
 *   draft_input : DEVICE [n_batch, topk, n_cols] of params.hidden, which DynaSpec routes by; NULL: unknown
 * @return OK, BAD_ARG, CAPTURE; HOST from gemm; BAD_ORDER after num_steps passes, and from finish() to
 * observe(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_expand(specrt_cuda_session *session,
                                                         const void *draft_hidden,
                                                         const void *draft_input, void *stream);

/* specrt_cuda_session_draft_block() : Drafts from a block drafter's states, in place of expand() and
 * finish(). The next call is verify(). CPU twin: specrt_session_draft_block(), without a selector, and with
 * by_position where sources route; then `input` is unknown. Kernels of a block:
 *     one product and one ranking
 *     Markov head     for each position three in place of the ranking
 *     sampled drafts  for each position two in place of a ranking, and one at the end
 *     confidence      a product, and with a Markov head one for each position
 *     routes          for each position those of a pass, a product, a ranking, and a copy of its states
 *   draft_hidden : DEVICE [n_batch, n, n_cols] of params.hidden, aligned as for expand(); position 0 proposes
 *       what follows the root. Those of sequences that have not started are read, too
 *   n : positions, 1 to params.n_block
 * @return OK, BAD_ARG, CAPTURE; HOST from gemm; BAD_ORDER after expand(), and from finish() to
 * observe(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_draft_block(specrt_cuda_session *session,
                                                              const void *draft_hidden, int32_t n,
                                                              void *stream);

/* A product that set_gemm() lends: logits[i][j] = hidden[i] . rows[j] + bias[j], with sums in f32. All
 * pointers are DEVICE memory. In cuBLASLt's words A is `rows` transposed, B is `hidden`, D is `logits`, and
 * bias is the epilogue's. States are those of all sequences: n_batch of them in the first pass,
 * n_batch * topk in others, n_batch * n of a block. Those that do not count may have any contents. */
typedef struct specrt_cuda_product {
    int32_t n_states;     /* more than set_gemm()'s `above` */
    int32_t n_rows;       /* the policy's fixed rows, the same in every call of a session */
    int64_t n_cols;       /* of rows and hidden */
    specrt_dtype dtype;   /* of rows and hidden: f32, f16 or bf16 */
    const void *rows;     /* [n_rows, n_cols] */
    size_t row_stride;    /* bytes from row to row */
    const float *bias;    /* f32 [n_rows]; NULL: none */
    const void *hidden;   /* [n_states, n_cols] */
    size_t hidden_stride; /* bytes from state to state */
    float *logits;        /* f32 [n_states, n_rows], written; nothing between its rows is */
    size_t logits_stride; /* numbers from row to row, at least n_rows */
} specrt_cuda_product;

/* Starts such a product on a stream, which may be captured, and neither waits nor allocates there.
 *   user : as for set_gemm()
 *   product : borrowed for the call
 * @return 0; any other value ends expand() or draft_block() with HOST, and the call may come again. */
typedef int (*specrt_cuda_gemm)(void *user, const specrt_cuda_product *product, void *stream);

/* specrt_cuda_session_set_gemm() : Lends a product, such as cuBLASLt's, for many states. From now on expand()
 * and draft_block() call it where more than `above` states meet the rows of `full` or `static`, which are
 * one range of memory; all else is multiplied as before. A graph keeps what was lent in its capture.
 *   gemm : NULL: no longer
 *   user : first argument of gemm
 *   above : 1 or more; 0 without gemm. bench/gpu times both products at several numbers of states
 * @return OK; BAD_ARG; UNSUPPORTED for a policy without such rows, or of another type than params.hidden. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_set_gemm(specrt_cuda_session *session,
                                                           specrt_cuda_gemm gemm, void *user,
                                                           int32_t above);

/* specrt_cuda_session_finish() : Writes view.draft, unless the last expand() has. CPU twin:
 * specrt_session_finish().
 * @return OK, BAD_ARG, CAPTURE; BAD_ORDER for a second call in one cycle. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_finish(specrt_cuda_session *session,
                                                         void *stream);

/* specrt_cuda_session_verify() : Writes view.verdict, whose end is always NONE, and keeps the target's best
 * tokens for observe(). It may be called again. CPU twin: specrt_session_verify().
 *   logits : DEVICE f32 [n_batch, num_draft_tokens, n_logits] of the target
 * @return OK, BAD_ARG; BAD_ORDER before finish(). */
SPECRT_CUDA_API specrt_status specrt_cuda_session_verify(specrt_cuda_session *session,
                                                         const float *logits, void *stream);

/* specrt_cuda_session_observe() : Learns from the cycle and roots the next trees. Skips a sequence without a
 * verdict since its start(). CPU twin: specrt_session_observe().
 *   hidden : DEVICE f32 [n_batch, num_draft_tokens, width] of the target at the nodes, if view.width is not
 *       0, borrowed until the next expand or finish has run; NULL: unknown
 * @return OK, BAD_ARG, CAPTURE; BAD_ORDER before verify() and for a second call in one cycle. Right after
 * start() it may come, so that a loop can begin with it. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_observe(specrt_cuda_session *session,
                                                          const float *hidden, void *stream);

/* specrt_cuda_session_get_stats() : Sums since begin. CPU twin: specrt_session_get_stats(), but n_copied also
 * counts rows that were packed again to close a gap, and n_bytes counts one scan per level.
 *   stats : DEVICE [n_batch], written
 * @return OK, BAD_ARG, CAPTURE. */
SPECRT_CUDA_API specrt_status specrt_cuda_session_get_stats(specrt_cuda_session *session,
                                                            specrt_session_stats *stats,
                                                            void *stream);

/* specrt_cuda_session_serve() : Runs retrieval's host part: processes observed cycles from shared memory and
 * posts the changes for the next observe(). It calls no CUDA function and never waits. Call it between
 * cycles, or repeatedly on a thread of its own. When it runs decides when retrieval learns, as with
 * mode=async, but not what.
 * @return how many cycles were processed; 0 if no source retrieves. */
SPECRT_CUDA_API int32_t specrt_cuda_session_serve(specrt_cuda_session *session);

#ifdef __cplusplus
}
#endif

#endif
