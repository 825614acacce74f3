/* kernels.h : single kernels, of which sessions are made, and which tests call one by one
 *
 *     membership           specrt__cuda_state_bytes, _place, _begin, _prefill, _start, _observe
 *     trees                specrt__cuda_tree_bytes, _place, _begin, _expand, _finish
 *     verification         specrt__cuda_verifier_bytes, _place; specrt__cuda_verify; of sampled chains
 *                          specrt__cuda_propose, _verify_chain
 *     routed sources       specrt__cuda_router_bytes, _route; _successors_bytes, _successors; _sketch_bytes,
 *                          _sketch_route
 *
 * On the device the state of something is a struct of DEVICE pointers: X_bytes() says how much memory they
 * need, X_place() puts them into it, X_begin() makes the state empty. */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "specrt_cuda.h"
#include "sources/window.h"

/* The linkage of launch functions. In the single file it is static. */
#if !defined(SPECRT__KERNEL)
#define SPECRT__KERNEL extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what several functions share ------------------------------------------------------------------- */

#define SPECRT__CUDA_MAX_BATCH    1024  /* sequences of a launch: a dimension of its grid */
#define SPECRT__CUDA_MAX_SEGMENTS 12    /* of a policy at most 11: a sum of all that routes */
#define SPECRT__CUDA_MAX_STATES   64    /* rows of a pass */
#define SPECRT__CUDA_MAX_COLS     65536 /* of a head */

/* q8_0 rows in planes, as specrt__cuda_pack() leaves them: n_cols codes, then n_cols / 32 scales. In blocks,
 * as files have them (SPECRT_DTYPE_Q8_0), 34 bytes hold 32 columns, which no wide load reads. Codes of two
 * blocks stand eight by eight in turn, 64 columns in 64 bytes; a last block without a second by itself. A
 * row has as many bytes as in blocks. Rows and strides aligned to 16 bytes are read as fast as others. */
#define SPECRT__CUDA_Q8_0_PLANES ((specrt_dtype)0x100008)

/* Rows of a shortlist: specrt_segment on the device. An array of them, [n_batch, n_segments], is DEVICE. */
typedef struct specrt__cuda_segment {
    const void *rows;          /* DEVICE [., n_cols] of the layout's dtype */
    size_t row_stride;         /* bytes between rows */
    const int32_t *ids;        /* DEVICE [max_rows] target ids */
    const float *bias;         /* DEVICE as rows, or NULL */
    const int32_t *places;     /* DEVICE [max_rows] as in specrt_segment, or NULL */
    const uint32_t *masked;    /* DEVICE [(max_rows + 31) / 32] bit i: row i scores -inf; or NULL */
    const uint64_t *scored_by; /* DEVICE [max_rows] bit h: hidden row h scores it; NULL: all do */
    const int32_t *n_rows;     /* DEVICE [1] at most max_rows; NULL: max_rows */
    int32_t max_rows;
} specrt__cuda_segment;

/* What the segments of all sequences have in common. Logits are [n_batch, n, n_columns], where n_columns is
 * the sum of max_rows, so that a graph can be captured; column = max_rows before + row, and columns beyond
 * a segment's n_rows are not written. */
typedef struct specrt__cuda_layout {
    int32_t n_segments; /* 1 to SPECRT__CUDA_MAX_SEGMENTS */
    int64_t n_cols;
    specrt_dtype dtypes[SPECRT__CUDA_MAX_SEGMENTS]; /* f32, f16, bf16, q8_0, also in planes */
    int32_t max_rows[SPECRT__CUDA_MAX_SEGMENTS];
    /* 1: all sequences have the first one's segment i, without scored_by, but each a mask of its own, or none
     * has one. It is read once for up to SPECRT__CUDA_MAX_STATES of all their states. */
    uint8_t shared[SPECRT__CUDA_MAX_SEGMENTS];
} specrt__cuda_layout;

/* Rows of a batch: up to max_n of each sequence, of which the first so many count. */
typedef struct specrt__cuda_batch {
    int32_t n_batch, max_n;
    const int32_t *n; /* DEVICE: of sequence b n[b * n_step], at most max_n; NULL: all max_n */
    int32_t n_step;
} specrt__cuda_batch;

/* The rows that a source chooses for a level; all pointers are DEVICE memory. */
typedef struct specrt__cuda_choice {
    int32_t max_rows;    /* of a sequence */
    int32_t *ids;        /* [n_batch, max_rows] tokens */
    int32_t *places;     /* [n_batch, max_rows] their rows in the head */
    int32_t *n_rows;     /* [n_batch] */
    uint64_t *scored_by; /* [n_batch, max_rows] bit h: row h of the level scores it; NULL: all do */
} specrt__cuda_choice;

/* ---- rows and products ------------------------------------------------------------------------------ */

/* A head on the device, as specrt_head_desc; all pointers are DEVICE memory, borrowed. */
typedef struct specrt__cuda_head {
    const void *rows;      /* [n_rows, n_cols] of dtype */
    const float *bias;     /* f32 [n_rows]; NULL: none */
    const int32_t *row_of; /* i32, by token: the row it has; NULL: its number */
    specrt_dtype dtype;    /* f32, f16, bf16, q8_0, also in planes; an embedding's in blocks */
    int32_t n_rows;
    int64_t n_cols;
    size_t row_stride; /* bytes between rows */
} specrt__cuda_head;

/* Packed rows of a sequence, and which of them to fill; all pointers are DEVICE memory. */
typedef struct specrt__cuda_packing {
    const int32_t *ids;   /* i32 [capacity] token of each place; it has a row */
    const int32_t *slots; /* i32 [*n] distinct places to fill; NULL: 0 to *n - 1 */
    const int32_t *n;     /* i32 [1] */
    void *rows;           /* [capacity] rows of the head's dtype, q8_0 in planes, aligned to 16 */
    float *bias;          /* f32 [capacity]; NULL: not packed */
} specrt__cuda_packing;

/* specrt__cuda_pack() : copies rows of a head, and their biases, to the places to fill: all of a segment, or
 * the few that are new since the last cycle. CPU twin: the packing in >>pool.
 *   packings   : DEVICE [n_batch]
 *   max_n      : of places to fill in a sequence
 *   row_stride : bytes between packed rows
 * @return OK, BAD_ARG (strides are even; of rows that become planes multiples of 16), UNSUPPORTED dtype or
 * columns, DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_pack(const specrt__cuda_head *head,
                                               const specrt__cuda_packing *packings,
                                               int32_t n_batch, int32_t max_n, size_t row_stride,
                                               void *stream);

/* specrt__cuda_logits() : products of hidden states with the rows of segments, biases included; -inf where
 * masked. CPU twin: specrt_shortlist_logits(), which it meets within 2e-6 of the product of the lengths of
 * row and state (bf16 rows with other states: 2e-5), whatever n. Tensor cores round sums towards 0: over
 * thousands of columns whose products have one sign it may be 1e-5. Rows with `places` are indexed, not
 * packed.
 *   segments : DEVICE [n_batch, layout->n_segments]; rows aligned to 16 bytes are read the faster, of q8_0
 *              those in planes
 *   batch    : max_n is 1 to SPECRT__CUDA_MAX_STATES. The logits of states that do not count are written for
 *              shared segments only, whatever they are
 *   hidden   : DEVICE [n_batch, max_n, n_cols] of dtype f32, f16 or bf16, finite; they meet f16 and q8_0
 *              rows cut to +-131,008
 *   logits   : DEVICE f32 [n_batch, max_n, n_columns]
 * @return OK, BAD_ARG, UNSUPPORTED dtypes or columns, DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_logits(const specrt__cuda_layout *layout,
                                                 const specrt__cuda_segment *segments,
                                                 const specrt__cuda_batch *batch,
                                                 const void *hidden, specrt_dtype dtype,
                                                 float *logits, void *stream);

/* specrt__cuda_split_logits() : the same where so many warps share a row's columns, for benchmarks.
 *   n_splits : 1, 2, 4 or 8; 0: chosen by rows and batch
 * @return as above; BAD_ARG for another number */
SPECRT__KERNEL specrt_status specrt__cuda_split_logits(int32_t n_splits,
                                                       const specrt__cuda_layout *layout,
                                                       const specrt__cuda_segment *segments,
                                                       const specrt__cuda_batch *batch,
                                                       const void *hidden, specrt_dtype dtype,
                                                       float *logits, void *stream);

/* specrt__cuda_topk() : the k best target ids of each row with log-probabilities over the row, ties to the
 * lower id. CPU twin: specrt_shortlist_topk(), whose ids it finds; log-probabilities within 1e-5.
 *   batch    : as there
 *   logits   : DEVICE f32 [n_batch, max_n, n_columns] as specrt__cuda_logits() left them
 *   k        : 1 to 256
 *   ids, logprobs : DEVICE i32, f32 [n_batch, max_n, k], best first; -1 and -inf where there are fewer
 *   scratch  : DEVICE, specrt__cuda_topk_bytes(n_columns, n_batch * max_n, k), aligned to 8 bytes; zeroed
 *              before its first use, then fit for rankings of any shape that it is large enough for
 * @return OK, BAD_ARG, DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_topk(const specrt__cuda_layout *layout,
                                               const specrt__cuda_segment *segments,
                                               const specrt__cuda_batch *batch, const float *logits,
                                               int32_t k, int32_t *ids, float *logprobs,
                                               void *scratch, void *stream);
SPECRT__KERNEL size_t specrt__cuda_topk_bytes(int64_t n_columns, int64_t n_rows, int32_t k);

/* specrt__cuda_target_topk() : the k best ids of each row of the target's logits, ties to the lower id; -inf
 * and NaN are never among them. CPU twin: specrt_logits_topk().
 *   batch     : as there
 *   logits    : DEVICE f32 [n_batch, max_n, n_vocab]
 *   ids       : DEVICE i32 [n_batch, SPECRT_TREE_MAX_NODES, k], best first, -1 where there are fewer
 *   logsumexp : DEVICE f32 [n_batch, SPECRT_TREE_MAX_NODES], or NULL
 *   scratch   : as above, of n_vocab columns
 * @return as above. */
SPECRT__KERNEL specrt_status specrt__cuda_target_topk(const specrt__cuda_batch *batch,
                                                      const float *logits, int32_t n_vocab,
                                                      int32_t k, int32_t *ids, float *logsumexp,
                                                      void *scratch, void *stream);

/* ---- membership, routing, trees, verification ------------------------------------------------------- */

/* Who wants a token: the bits of specrt_cuda_state.wants. */
enum {
    SPECRT__CUDA_INVALID = 1, /* never proposed */
    SPECRT__CUDA_FIXED = 2,   /* a row of a segment that all sequences share (static) */
    SPECRT__CUDA_PINNED = 4,  /* the host; terminators */
    SPECRT__CUDA_FILL = 8,    /* makes up a least number of rows */
    SPECRT__CUDA_WINDOW = 16,
    SPECRT__CUDA_RETRIEVE = 32, /* the host's adaptive cache (EvoSpec) */
    SPECRT__CUDA_LISTED = 64,
    SPECRT__CUDA_CHANGED = 128, /* the functions' own */
    SPECRT__CUDA_PACKED =
        SPECRT__CUDA_PINNED | SPECRT__CUDA_FILL | SPECRT__CUDA_WINDOW | SPECRT__CUDA_RETRIEVE
};

/* A wish of the host's: a token gets or loses PINNED or RETRIEVE. Others are passed over. */
typedef struct specrt__cuda_change {
    int32_t id;
    uint8_t bit, on;
    uint16_t reserved; /* 0 */
} specrt__cuda_change;

/* Wishes on their way to the device, in host memory that it can read and write (mapped, pinned). The host
 * writes change number i to changes[i % SPECRT__CUDA_CHANGES], then adds to `posted`, and never gets further
 * ahead of `taken` than SPECRT__CUDA_CHANGES; the next start or observe takes all that is posted. */
#define SPECRT__CUDA_CHANGES 1024
typedef struct specrt__cuda_mailbox {
    uint32_t posted, taken; /* by the host, by the device */
    specrt__cuda_change changes[SPECRT__CUDA_CHANGES];
} specrt__cuda_mailbox;

typedef struct specrt__cuda_state_params {
    int32_t n_ids;    /* tokens are below it; at most SPECRT_MAX_VOCAB */
    int32_t capacity; /* rows that may be packed; sources never want more */
    int32_t size;     /* of the window; 0: there is none, and what follows does not matter */
    int32_t mode, positions, only; /* SPECRT__WINDOW_*, as those of specrt__window_params */
    int32_t kpre, kver;            /* at most SPECRT_LOGITS_MAX_K */
    int32_t emitted;
    int32_t min;             /* rows to fill up to, FIXED ones included */
    const int32_t *frequent; /* DEVICE [n_frequent] distinct, borrowed; NULL: ascending ids */
    int32_t n_frequent;
    int32_t keep; /* of every source: whether RETRIEVE outlives begin */
} specrt__cuda_state_params;

/* Membership, packed rows and window of one sequence. An array of them, DEVICE [n_batch], is what functions
 * take: make it on the host with specrt__cuda_state_place() and copy it. Packed rows are dense: row i is that
 * of token ids[i] for i < n_rows. */
struct specrt_cuda_state {
    specrt__cuda_state_params params;
    specrt__cuda_mailbox *mailbox; /* as the device sees it; NULL: none */
    int32_t n_fixed;               /* tokens with the bit FIXED: set it with them */
    int32_t n_rows;                /* that shall be packed, once those of `fresh` are */
    int32_t n_fresh;
    int32_t n_wanted, n_changed;
    int32_t n_refused; /* wishes beyond capacity: of a host that asks for more than it said */
    int64_t n_copied;  /* rows that were listed as fresh since the sequence began */
    uint8_t *wants;    /* DEVICE [n_ids]; before begin the host sets INVALID and FIXED, else 0 */
    int32_t *slots;    /* DEVICE [n_ids] of packed tokens; -1: none */
    int32_t *ids;      /* DEVICE [capacity] token of each row */
    int32_t *fresh;    /* DEVICE [n_fresh] rows that must be packed from the head before use */
    int32_t *holes;    /* DEVICE [capacity] scratch */
    int32_t *changed;  /* DEVICE [n_ids] tokens that may need a row, or need none */
    int32_t *marks;    /* DEVICE [n_ids] scratch, -1 between calls */
    int32_t list_size, n_list;
    int32_t *list; /* DEVICE [list_size] distinct tokens, oldest first */
    int32_t ring_begin, n_ring;
    int32_t *ring;   /* DEVICE [size] the stream */
    int32_t *counts; /* DEVICE [n_ids] how often a token is in it */
    int32_t seed[SPECRT_LOGITS_MAX_K], n_seed, n_fill;
};

/* specrt__cuda_state_bytes() : device memory of one state; 0: parameters out of range. */
SPECRT__KERNEL size_t specrt__cuda_state_bytes(const specrt__cuda_state_params *params);

/* specrt__cuda_state_place() : *out (host) with its pointers into memory of that size, DEVICE, borrowed,
 * aligned to 256. `wants` is the host's to fill, `n_fixed` and `mailbox` are 0. */
SPECRT__KERNEL specrt_status specrt__cuda_state_place(const specrt__cuda_state_params *params,
                                                      void *memory, specrt_cuda_state *out);

/* specrt__cuda_state_begin() : forget everything but INVALID, FIXED and what is kept. Twin:
 * specrt_session_begin().
 *   states : DEVICE [n_batch]
 *   pinned : DEVICE i32 [n_pinned] distinct tokens that are always wanted; those of FIXED take no row */
SPECRT__KERNEL specrt_status specrt__cuda_state_begin(int32_t n_batch, const int32_t *pinned,
                                                      int32_t n_pinned, specrt_cuda_state *states,
                                                      void *stream);

/* specrt__cuda_state_prefill() : the next prompt tokens. Twin: specrt_session_prefill().
 *   tokens : DEVICE i32 [n_batch, max_n];  n : DEVICE i32 [n_batch]
 *   best   : DEVICE i32 [n_batch, max_n, k] the target's best tokens at each, -1: none; NULL: not known */
SPECRT__KERNEL specrt_status specrt__cuda_state_prefill(int32_t n_batch, const int32_t *tokens,
                                                        const int32_t *n, int32_t max_n,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream);

/* specrt__cuda_state_start() : the first token after the prompt, the last of the verdict's; what is fresh is
 * to be packed then. Twin: specrt_session_start().
 *   verdicts : DEVICE [n_batch]; n = 0: that sequence rests */
SPECRT__KERNEL specrt_status specrt__cuda_state_start(int32_t n_batch,
                                                      const specrt_verdict *verdicts,
                                                      specrt_cuda_state *states, void *stream);

/* specrt__cuda_state_observe() : learn from a cycle; what is fresh is to be packed then. Twin:
 * specrt_session_observe().
 *   drafts, verdicts : DEVICE [n_batch]; a verdict's n = 0: that sequence rests
 *   best : DEVICE i32 [n_batch, SPECRT_TREE_MAX_NODES, k] the target's best tokens at each node, -1: none;
 *          NULL: not known */
SPECRT__KERNEL specrt_status specrt__cuda_state_observe(int32_t n_batch,
                                                        const specrt_cuda_draft *drafts,
                                                        const specrt_verdict *verdicts,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream);

/* Candidates of one draft. An array of them, DEVICE [n_batch]; the trees of a batch have one shape. */
typedef struct specrt__cuda_tree {
    specrt_tree_params params;
    int32_t root, level, n_candidates, n_beam;
    int32_t block; /* 1: one product was for all positions of a block */
    /* in the sequence, of the token after the root; before the first, of the root */
    int64_t position;
    uint64_t cycle;                     /* trees begun */
    int32_t *tokens;                    /* DEVICE [topk + (num_steps - 1) topk^2] */
    int32_t *parents;                   /* DEVICE, candidates; -1: the root */
    float *logprobs;                    /* DEVICE, cumulative */
    int32_t beam[SPECRT_TREE_MAX_TOPK]; /* candidates */
} specrt__cuda_tree;

/* specrt__cuda_tree_bytes() : device memory of one tree; 0: parameters out of range. */
SPECRT__KERNEL size_t specrt__cuda_tree_bytes(const specrt_tree_params *params);

/* specrt__cuda_tree_place() : *out (host), its pointers into memory of that size, DEVICE, borrowed, aligned
 * to 256. position : of the first token after the prompt, which will be the first root
 *   params : 0 in a field: its default */
SPECRT__KERNEL specrt_status specrt__cuda_tree_place(const specrt_tree_params *params,
                                                     int64_t position, void *memory,
                                                     specrt__cuda_tree *out);

/* specrt__cuda_tree_begin() : new trees, each from the last token that its sequence emitted. Twin:
 * specrt_tree_begin().
 *   verdicts : DEVICE [n_batch]; n = 0: that sequence's beam is empty
 *   beams    : DEVICE [n_batch] the first pass: the root alone */
SPECRT__KERNEL specrt_status specrt__cuda_tree_begin(int32_t n_batch,
                                                     const specrt_verdict *verdicts,
                                                     specrt__cuda_tree *trees,
                                                     specrt_cuda_beam *beams, void *stream);

/* specrt__cuda_tree_expand() : the proposals of a pass. Twin: specrt_tree_expand().
 *   topk     : the trees'
 *   ids, logprobs : DEVICE i32, f32 [n_batch, topk, topk]: of each row of the last beam, best first; -inf:
 *              none
 *   beams    : DEVICE [n_batch] the rows of the next pass */
SPECRT__KERNEL specrt_status specrt__cuda_tree_expand(int32_t n_batch, int32_t topk,
                                                      const int32_t *ids, const float *logprobs,
                                                      specrt__cuda_tree *trees,
                                                      specrt_cuda_beam *beams, void *stream);

/* specrt__cuda_tree_finish() : the best nodes, with masks and positions. Twin: specrt_tree_finish().
 *   drafts : DEVICE [n_batch]; n = 0 where nothing was begun */
SPECRT__KERNEL specrt_status specrt__cuda_tree_finish(int32_t n_batch,
                                                      const specrt__cuda_tree *trees,
                                                      specrt_cuda_draft *drafts, void *stream);

/* Scratch of specrt__cuda_verify(). */
typedef struct specrt__cuda_verifier_params {
    int32_t n_batch;
    int32_t n_logits;  /* columns of the target's logits, from row to row */
    int32_t n_vocab;   /* tokens are below it; later columns are padding, and never read */
    int32_t max_nodes; /* 1 to SPECRT_TREE_MAX_NODES; times n_batch at most 65,535 */
    int32_t sampled;   /* 0: every sequence is greedy; 1: some may be sampled; 2: with filters */
} specrt__cuda_verifier_params;

typedef struct specrt__cuda_distribution
    specrt__cuda_distribution; /* of a row of logits; the functions' own */

typedef struct specrt__cuda_verifier {
    specrt__cuda_verifier_params params;
    void *scratch; /* DEVICE, of a ranking, where all are greedy; what follows where some are not */
    uint64_t *best;                           /* DEVICE [n_batch, max_nodes, parts of a row] */
    specrt__cuda_distribution *distributions; /* DEVICE [n_batch, max_nodes] */
    double *sums;                             /* DEVICE [n_batch, max_nodes, blocks of a row] */
    int32_t *tokens; /* DEVICE [n_batch, max_nodes] what the target draws at each node */
    /* Of filters, DEVICE [n_batch, max_nodes, parts of a row]; keys [., candidates of a part] */
    uint64_t *keys;
    double *estimates; /* [., 2] */
    uint32_t *least;   /* a part's keys are all of its tokens of this order or above */
    int32_t *n_keys;
    int32_t *starts; /* of a part's keys among those that filters look at */
} specrt__cuda_verifier;

/* Memory is DEVICE, zeroed, borrowed. */
SPECRT__KERNEL size_t specrt__cuda_verifier_bytes(const specrt__cuda_verifier_params *params);
SPECRT__KERNEL specrt_status specrt__cuda_verifier_place(const specrt__cuda_verifier_params *params,
                                                         void *memory, specrt__cuda_verifier *out);

/* specrt__cuda_verify() : draw-and-descend, greedy or sampled; the same tokens as the twin,
 * specrt_verify_tree(), given the same logits, for the same keys give the same draws. With filters, sums over
 * what they keep may differ in a double's last bit.
 *   verifier  : host
 *   drafts    : DEVICE [n_batch]; a draft that is a root alone draws the token after it
 *   samplings : DEVICE [n_batch]; its filters matter where the verifier was made for them
 *   logits    : DEVICE f32 [n_batch, max_nodes, n_logits]; NaN counts as -inf
 *   verdicts  : DEVICE [n_batch]; end is NONE; n = 0 for an empty draft, and where a node of the path has no
 *              logit above -inf, which the twin refuses */
SPECRT__KERNEL specrt_status specrt__cuda_verify(const specrt__cuda_verifier *verifier,
                                                 const specrt_cuda_draft *drafts,
                                                 const specrt_sampling *samplings,
                                                 const float *logits, specrt_verdict *verdicts,
                                                 void *stream);

/* What the levels of sampled chains were drawn from, as specrt_draft_distribution: of sequence b at level t
 * the columns of a shortlist, [n_batch, n_steps, n_columns]. All pointers are DEVICE memory. */
typedef struct specrt__cuda_distributions {
    int32_t n_steps, n_columns;
    float temperature; /* above 0, to 100 */
    int32_t *ids;      /* tokens; -1: the column has none */
    float *probs;      /* f32, 0 where nothing is drawn */
    float *chances;    /* f32 [n_batch, n_steps] of the token that was drawn */
    int32_t *sampled;  /* [n_batch, n_steps] that token; -1: none was drawn */
    float *weights;    /* f32 [n_batch, n_vocab] scratch of specrt__cuda_verify_chain() */
} specrt__cuda_distributions;

/* specrt__cuda_propose() : samples a token of each sequence from its shortlist, and notes the distribution.
 * CPU twin: specrt_verifier_propose() over the columns that have a token, in their order: the same
 * distribution and draw, but for the last bits of sums, so a draw differs where it lies that close to a
 * boundary.
 *   logits      : DEVICE f32 of the only row of a pass: n_columns of sequence b from b * step on
 *   trees       : DEVICE [n_batch] whose cycle and level are the draw's key; no beam: passed over
 *   samplings   : DEVICE [n_batch]
 *   distributions        : host
 *   ids, logprobs : DEVICE i32, f32 [n_batch] for specrt__cuda_tree_expand(); -inf: nothing to draw
 * @return OK, BAD_ARG, DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_propose(const specrt__cuda_layout *layout,
                                                  const specrt__cuda_segment *segments,
                                                  int32_t n_batch, const float *logits,
                                                  int64_t step, const specrt__cuda_tree *trees,
                                                  const specrt_sampling *samplings,
                                                  const specrt__cuda_distributions *distributions,
                                                  int32_t *ids, float *logprobs, void *stream);

/* specrt__cuda_verify_chain() : chain rejection sampling. Twin: specrt_verify_chain(), given drafts that
 * specrt__cuda_propose() drew; the same tokens but as there.
 *   verifier : host, made for sampling
 *   trees    : DEVICE [n_batch] whose cycle is the draws' key, and level the levels that were drawn
 *   others as in specrt__cuda_verify(), whose drafts are chains here; n = 0 also for a draft that is not the
 *   chain that was drawn, nor its beginning */
SPECRT__KERNEL specrt_status specrt__cuda_verify_chain(
    const specrt__cuda_verifier *verifier, const specrt__cuda_distributions *distributions,
    const specrt_cuda_draft *drafts, const specrt__cuda_tree *trees,
    const specrt_sampling *samplings, const float *logits, specrt_verdict *verdicts, void *stream);

/* specrt__cuda_remap() : out[i] = ids[in[i]], or -1 where in[i] is out of range: rows to target ids
 * (EAGLE-3's d2t made absolute). in, out : DEVICE i32 [n], may be the same;  ids : DEVICE i32 [n_ids] */
SPECRT__KERNEL specrt_status specrt__cuda_remap(const int32_t *ids, int32_t n_ids,
                                                const int32_t *in, int64_t n, int32_t *out,
                                                void *stream);

/* What routes a level to clusters of a head (specrt_clusters): shared by all sequences. The head lies cluster
 * by cluster, and so do its ids. */
typedef struct specrt__cuda_router {
    int32_t kind;    /* specrt_router_kind */
    int32_t softmax; /* as in specrt_clusters_header, and so what follows */
    int32_t n_clusters, n_embed, n_state, n_hidden;
    int32_t
        per_row; /* 1: clusters for each row of the level, which alone scores them; 0: for the level */
    int32_t cap;                 /* rows of a level at most; 0: no such limit */
    const uint16_t *w1, *w2;     /* DEVICE f16 [n_hidden, n_embed + n_state], [n_clusters, width] */
    const float *b1, *b2;        /* DEVICE f32 */
    const int32_t *starts;       /* DEVICE [n_clusters + 1] first row of each */
    const int32_t *ids;          /* DEVICE [starts[n_clusters]] token of each row */
    specrt__cuda_head embedding; /* of the target, by token; rows NULL: not read */
} specrt__cuda_router;

/* specrt__cuda_router_bytes() : scratch of specrt__cuda_route(); 0: sizes out of range. */
SPECRT__KERNEL size_t specrt__cuda_router_bytes(const specrt__cuda_router *router, int32_t n_batch,
                                                int32_t max_n);

/* specrt__cuda_route() : the clusters of a level, as rows of one segment. Twin: the cluster source; given
 * equal scores the same clusters.
 *   router : host;  max_n : rows of a pass at most
 *   n_take : clusters to take, at most 400; more come while they hold fewer than SPECRT_TREE_MAX_TOPK rows
 *   beams  : DEVICE [n_batch] what the pass was fed;  n = 0: n_rows is 0
 *   states : DEVICE f32 [n_batch, max_n, n_state] what the pass was fed (DynaSpec), or gave; NULL: 0
 *   scratch : DEVICE, specrt__cuda_router_bytes(), aligned to 256
 *   choice : written; what is beyond its max_rows is cut off; scored_by is not NULL where per_row is 1, and
 *            only there
 * @return OK, BAD_ARG, UNSUPPORTED embeddings (f32, f16, bf16 and q8_0 are read), DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_route(const specrt__cuda_router *router, int32_t n_batch,
                                                int32_t max_n, int32_t n_take,
                                                const specrt_cuda_beam *beams, const float *states,
                                                void *scratch, const specrt__cuda_choice *choice,
                                                void *stream);

/* Routed rows of a level. */
typedef struct specrt__cuda_tally {
    int32_t n;                /* rows of the pass */
    int32_t n_rows, n_shared; /* rows, and of these such as all of the pass score */
    int32_t n_scored;         /* products of the others */
} specrt__cuda_tally;

/* Tokens that a source need not name at a level: members, and what an earlier source brought. What it names
 * itself is noted for later ones. */
typedef struct specrt__cuda_taken {
    const specrt_cuda_state *states; /* DEVICE [n_batch]; NULL: no members */
    const uint32_t *levels;          /* DEVICE [n_batch, n_ids] bit `level`: brought; NULL: none */
    int32_t level;
    uint32_t *named; /* DEVICE [n_batch, n_ids] gets bit `level`; NULL: nothing is noted */
    specrt__cuda_tally *tallies; /* DEVICE [n_batch, SPECRT_TREE_MAX_STEPS], with `named` */
} specrt__cuda_taken;

/* specrt_cograph on the device; all pointers are DEVICE memory. */
typedef struct specrt__cuda_cograph {
    int32_t n_vocab, max_degree;
    const uint64_t *totals;
    const uint32_t *offsets;
    const int32_t *ids;
    const float *counts;
} specrt__cuda_cograph;

/* specrt__cuda_successors_bytes() : scratch of specrt__cuda_successors(); 0: sizes out of range. */
SPECRT__KERNEL size_t specrt__cuda_successors_bytes(const specrt__cuda_cograph *graph,
                                                    int32_t n_batch, int32_t max_n, int32_t size);

/* specrt__cuda_successors() : the tokens that likeliest follow those of a level and are no members yet. Twin:
 * the successor source; the same set where probabilities of paths are the same floats, and no damaged graph
 * lists a token twice for one other.
 *   graph  : host
 *   row_of : DEVICE i32 [n_ids] the head's row of each token; NULL: its number
 *   beams  : DEVICE [n_batch]
 *   taken  : its states are not NULL; their scratch is used
 *   scratch : DEVICE, specrt__cuda_successors_bytes() for a size of choice->max_rows, aligned to 256
 *   choice : written, max_rows tokens at most */
SPECRT__KERNEL specrt_status specrt__cuda_successors(
    const specrt__cuda_cograph *graph, int32_t n_batch, int32_t max_n, const int32_t *row_of,
    const specrt_cuda_beam *beams, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream);

/* ---- the sketch ------------------------------------------------------------------------------------- */

/* A sketch on the device: specrt_sketch, and how a source uses it. Pointers are DEVICE, borrowed. */
typedef struct specrt__cuda_sketch {
    const uint16_t *basis;  /* f16 [rank, n_cols] */
    const float *center;    /* f32 [rank] taken off z */
    const int32_t *rows;    /* [n_places] */
    const float *bias;      /* f32 by row of the head; NULL: none */
    const uint8_t *records; /* as the section, aligned to 16 bytes */
    const int32_t *ids;     /* i32 by row: its token; NULL: its number */
    const int32_t *row_of;  /* i32 by token, the inverse; NULL: its number */
    int32_t n_cols, n_ids;  /* tokens are below n_ids */
    int32_t rank;           /* 240, 496, 752... */
    int32_t n_places;       /* to scan */
    int32_t size;           /* tokens that a state names, and a level */
} specrt__cuda_sketch;

/* specrt__cuda_sketch_bytes() : scratch of one call, DEVICE; 0: arguments out of range. */
SPECRT__KERNEL size_t specrt__cuda_sketch_bytes(const specrt__cuda_sketch *sketch, int32_t n_batch,
                                                int32_t max_n);

/* specrt__cuda_sketch_route() : the tokens that a level's states name, for specrt__cuda_logits() to score as
 * a segment with places in the head. CPU twin: the source "sketch" with keep=n_places. From the same
 * projection each state finds the same tokens, and all of them name the same; the projection differs as in
 * specrt__cuda_logits().
 *   batch, hidden, dtype : as in specrt__cuda_logits()
 *   logprobs : DEVICE f32, logprobs[b * n_step + i] of state i, cumulative; NULL: all alike
 *   taken    : NULL: none
 *   choice   : written; max_rows is the sketch's size
 *   scratch  : DEVICE, specrt__cuda_sketch_bytes(), aligned to 16 bytes; all 0 before the first of the calls
 *              that use it, one after another, for the same sizes
 * @return OK, BAD_ARG, UNSUPPORTED dtype, DEVICE. */
SPECRT__KERNEL specrt_status specrt__cuda_sketch_route(
    const specrt__cuda_sketch *sketch, const specrt__cuda_batch *batch, const void *hidden,
    specrt_dtype dtype, const float *logprobs, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream);

#ifdef __cplusplus
}
#endif

#endif
