/* generated from src/ by `make single-header`; edit there */
/* specrt_kernels.cu : the decoding cycle on a GPU. Its calls are declared and documented in
 * specrt.h under >>cuda; a kernel stands in the file that is named as its CPU twin's.
 * Launches check their arguments, take a stream, and neither wait (but for prompts that retrieval reads)
 * nor allocate. Counts live on the device: a grid is sized for the bound and its blocks return early, so
 * that a cycle can be captured as a graph. Sums run in a fixed order and no float is added atomically:
 * results do not depend on scheduling.
 *
 * Compiles with nvcc, and with a C++11 compiler under SPECRT_HARNESS (tests/gpu/harness.h).
 *
 * Contents, each a file of src/cuda:
 *     device code      launch block | head active pool window cluster successor scan sketch tree verify, as
 *                      on the CPU | ring batch shared: retrieval's records, and what a session does with each
 *                      sequence
 *     host glue        device: what a policy shares | load: kernels, before a capture | side: the other
 *                      streams | order: of a batch's calls | session: what a batch allocates | cycle: its
 *                      calls
 *
 * Kernels:
 *     specrt__shortlist_pack_rows, _split_
 *                                    rows of the head to their places in packed segments
 *     specrt__head_tiles             logits, on tensor cores
 *     specrt__head_f32               logits of f32 rows
 *     specrt__shortlist_rank_kernel     the best k of rows of logits, and log-probabilities; the same goes
 *                                    before the next pass in specrt__tree_rank_kernel, before all levels
 *                                    of a block in specrt__tree_block_kernel, before the path in
 *                                    specrt__verify_rank_kernel
 *     specrt__window_begin_kernel, _prefill_, _start_, _observe_
 *                                    membership, the window, slots of packed rows and which to pack
 *     specrt__cluster_read_kernel, _weigh_, _total_
 *                                    probabilities of clusters; the layers are products of the head
 *     specrt__cluster_rank_kernel, _take_, _list_
 *                                    the clusters of a level, as rows
 *     specrt__successor_kernel       the tokens that follow those of a level
 *     specrt__scan_places            projected states in 8 bits times the sketch's codes, and how many
 *                                    groups of places have a best score of each magnitude
 *     specrt__sketch_name_all        the best of each state, and the tokens of a level
 *     specrt__tree_begin_kernel, _expand_, _finish_
 *                                    candidates, and of these nodes with masks and positions
 *     specrt__verify_best_kernel, _distribution_, _sum_, _pick_, _walk_
 *                                    what the target draws at every node, and the path
 *     specrt__verify_propose_kernel, _chain_
 *                                    sampled chains: a level's draw, and what of the draws is kept
 *     specrt__verify_remap_kernel    rows to target ids
 *     specrt__ring_tell_kernel       a cycle as a record for retrieval on the host, and what came of others
 *     specrt__ring_ask_kernel, _match_
 *                                    a part of a prompt to the host, and members as its cache has them
 *     specrt__shared_count_kernel, _choose_, _split_
 *                                    rows that several sequences hold, and what each holds besides
 *     specrt__batch_claim_kernel     which rows of a level no earlier source brought
 */
#if defined(__NVCC__)
#pragma nv_diag_suppress 1675 /* gcc's pragmas */
#pragma nv_diag_suppress 177  /* what of the implementation is not used */
#pragma nv_diag_suppress 128  /* what a template argument rules out */
#endif

/* The implementation too, for what kernels share with their twins and sessions with policies; all of it. */
#undef SPECRT_SMALL
#define SPECRT_STATIC
#define SPECRT_NO_ZSTD
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#if !defined(SPECRT__KERNEL)
#define SPECRT__KERNEL static __attribute__((unused)) /* some are for tests alone */
#endif

/* --- device code: kernels and, at the end of each file, the functions that launch them --- */

// >>kernels : src/cuda/kernels.h
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

// >>launch : src/cuda/launch.cuh
/* launch.cuh : owns how kernels are launched, and one wrapper for each thing that hardware has and the
 * harness has not. Nothing else in this file depends on the compiler. */

#define CUDA_NO_HALF /* __half without another name */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#if defined(SPECRT_HARNESS)
#include "harness.h"
#endif

static inline specrt_status specrt__launch_status(cudaError_t error) {
    if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread)
        return SPECRT_STATUS_CAPTURE;
    return error == cudaSuccess ? SPECRT_STATUS_OK : SPECRT_STATUS_DEVICE;
}

#if defined(SPECRT_CUDA_DEBUG)
/* The first kernel that failed since this thread's last specrt_cuda_check(), and how. */
static thread_local const char *specrt__launch_culprit;
static thread_local cudaError_t specrt__launch_error;

/* Waits for a kernel, so that what it did wrong is told of it; not while its stream is being captured. */
static specrt_status specrt__launch_finish(const char *kernel, void *stream, cudaError_t error) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (error == cudaSuccess) error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        error = cudaStreamSynchronize((cudaStream_t)stream);
    if (error != cudaSuccess && !specrt__launch_culprit) {
        specrt__launch_culprit = kernel;
        specrt__launch_error = error;
    }
    return specrt__launch_status(error);
}
#else
#define specrt__launch_finish(kernel, stream, error) specrt__launch_status(error)
#endif

/* Starts a kernel. @return what became of it alone, which the runtime keeps for specrt_cuda_check(); the
 * runtime's last error may be that of any call before, also one of the application's. */
#if defined(SPECRT_HARNESS)
#define specrt__launch_start               harness_start
#define SPECRT__LAUNCH_DYNAMIC(type, name) type *name = (type *)(void *)harness_dynamic()
#define SPECRT__LAUNCH_UNROLL
#define SPECRT__LAUNCH_UNROLL_BY(n)
#else
template <typename T> struct specrt__launch_same {
    typedef T type; /* not deduced: arguments are converted to what the kernel takes */
};

template <typename... Parameters>
static cudaError_t specrt__launch_start(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        size_t shared_bytes, void *stream,
                                        typename specrt__launch_same<Parameters>::type... x) {
    void *addresses[] = {(void *)&x...};
    return cudaLaunchKernel((const void *)kernel, grid, block, addresses, shared_bytes,
                            (cudaStream_t)stream);
}

#define SPECRT__LAUNCH_DYNAMIC(type, name)                                                         \
    extern __shared__ __align__(16) unsigned char specrt__launch_bytes[];                          \
    type *name = (type *)(void *)specrt__launch_bytes
#define SPECRT__LAUNCH_UNROLL       _Pragma("unroll")
#define SPECRT__LAUNCH_PRAGMA(text) _Pragma(#text)
#define SPECRT__LAUNCH_UNROLL_BY(n) SPECRT__LAUNCH_PRAGMA(unroll n)
#endif

/* The same: a specrt_status. A kernel with template arguments stands in parentheses. */
#define SPECRT__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                             \
    specrt__launch_finish(                                                                         \
        #kernel, stream,                                                                           \
        specrt__launch_start(kernel, grid, block, shared_bytes, stream, __VA_ARGS__))

/* Zeroes n elements on the device, in the stream's turn. */
template <typename T> static specrt_status specrt__launch_clear(T *x, size_t n, void *stream) {
    return specrt__launch_status(cudaMemsetAsync(x, 0, n * sizeof *x, (cudaStream_t)stream));
}

static inline unsigned specrt__launch_blocks(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

/* Multiprocessors of the current device; 1, where that is not told. A thread asks once for a device. */
static int32_t specrt__launch_multiprocessors(void) {
    static thread_local int known = -1, n = 1;
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device == known) return n;
    if (cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || n < 1)
        n = 1;
    known = device;
    return n;
}

/* Blocks for each of n_batch sequences with up to n things to do in turn: in all as many as run at once. */
static unsigned specrt__launch_share(int32_t n, int32_t n_batch) {
    int32_t most = 8 * specrt__launch_multiprocessors() / n_batch;
    if (most < 1) most = 1;
    return (unsigned)(n < most ? n : most);
}

/* --- a block of memory as arrays --- */

/* Where the next array begins in a block; with base NULL only that is counted. */
typedef struct specrt__launch_arena {
    void *base;
    size_t bytes;
} specrt__launch_arena;

/* The next n elements. What comes after them begins a line. */
template <typename T> static void specrt__launch_carve(specrt__launch_arena *a, size_t n, T **out) {
    *out = a->base ? (T *)(void *)((uint8_t *)a->base + a->bytes) : NULL;
    a->bytes = (size_t)specrt__base_align(a->bytes + n * sizeof(T), 256);
}

/* --- the device --- */

/* Asked for, to learn whether there is code for the device. */
static __global__ void specrt__launch_probe(int32_t *out) {
    *out = 1;
}

#define SPECRT__LAUNCH_TEXT(...) #__VA_ARGS__
#define SPECRT__LAUNCH_LIST(...) SPECRT__LAUNCH_TEXT(__VA_ARGS__)
#if !defined(__CUDA_ARCH_LIST__)
#define __CUDA_ARCH_LIST__ unknown
#endif

SPECRT_CUDA_API specrt_status specrt_cuda_open(specrt_error *err) {
    int n = 0, device = 0, major = 0, minor = 0;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        (void)cudaGetLastError();
        return specrt_error_set(err, SPECRT_STATUS_NO_DEVICE,
                                "cuda: expected a GPU and its driver, found none: %s",
                                error == cudaSuccess ? "no device" : cudaGetErrorString(error));
    }
    error = cudaFuncGetAttributes(&attributes, (const void *)specrt__launch_probe);
    if (error == cudaSuccess) return SPECRT_STATUS_OK;
    (void)cudaGetLastError();
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
        error != cudaErrorUnsupportedPtxVersion) /* it is full, or another's alone */
        return specrt_error_set(err, SPECRT_STATUS_DEVICE, "cuda: %s", cudaGetErrorString(error));
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return specrt_error_set(err, SPECRT_STATUS_DEVICE_ARCH,
                            "cuda: architecture: expected one of %s, found %d%d0; build with make "
                            "cuda CUDA_ARCH=%d%d",
                            SPECRT__LAUNCH_LIST(__CUDA_ARCH_LIST__), major, minor, major, minor);
}

SPECRT_CUDA_API specrt_status specrt_cuda_check(specrt_error *err) {
    const char *culprit = "";
    cudaError_t error = cudaGetLastError();
#if defined(SPECRT_CUDA_DEBUG)
    if (specrt__launch_culprit) culprit = specrt__launch_culprit, error = specrt__launch_error;
    specrt__launch_culprit = NULL;
#endif
    if (error == cudaSuccess) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_DEVICE, "cuda: %s%s%s", culprit,
                            *culprit ? ": " : "", cudaGetErrorString(error));
}

/* --- numbers of 16 bits, in pairs: the lower half first --- */

static __device__ float2 specrt__launch_unpack_f16(uint32_t pair) {
    return make_float2(__half2float(__ushort_as_half((unsigned short)(pair & 0xffff))),
                       __half2float(__ushort_as_half((unsigned short)(pair >> 16))));
}

static __device__ float2 specrt__launch_unpack_bf16(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

static __device__ uint32_t specrt__launch_pack_f16(float x, float y) {
    return (uint32_t)__half_as_ushort(__float2half_rn(x)) |
           (uint32_t)__half_as_ushort(__float2half_rn(y)) << 16;
}

static __device__ uint32_t specrt__launch_pack_bf16(float x, float y) {
    __nv_bfloat162 both = __floats2bfloat162_rn(x, y); /* at once: one alone is converted slowly */
    return (uint32_t)__bfloat16_as_ushort(both.x) | (uint32_t)__bfloat16_as_ushort(both.y) << 16;
}

/* The same, but the greatest number in place of those that f16 does not reach; NaN stays NaN. */
static __device__ uint32_t specrt__launch_pack_f16_cut(float x, float y) {
    const float kMost = 65504.0f;
#if defined(__CUDA_ARCH__)
    __half2 most = __float2half2_rn(kMost), least = __float2half2_rn(-kMost);
    __half2 both = __hmax2_nan(__hmin2_nan(__floats2half2_rn(x, y), most), least);
    return (uint32_t)__half_as_ushort(__low2half(both)) |
           (uint32_t)__half_as_ushort(__high2half(both)) << 16;
#else
    x = x > kMost ? kMost : x < -kMost ? -kMost : x;
    y = y > kMost ? kMost : y < -kMost ? -kMost : y;
    return specrt__launch_pack_f16(x, y);
#endif
}

/* a - b, where f16 holds it. */
static __device__ uint32_t specrt__launch_sub_f16(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
#else
    float2 x = specrt__launch_unpack_f16(a), y = specrt__launch_unpack_f16(b);
    return specrt__launch_pack_f16(x.x - y.x, x.y - y.y);
#endif
}

/* Two bytes of four, the lower or the higher ones, each below a byte of `above`, whose bytes are alike. */
static __device__ uint32_t specrt__launch_spread(uint32_t four, bool higher, uint32_t above) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(four, above, higher ? 0x4342 : 0x4140);
#else
    four >>= higher ? 16 : 0;
    return (four & 0xff) | (four & 0xff00) << 8 | (above & 0xff00ff00u);
#endif
}

/* --- instructions that the harness has not --- */

/* Operands of a 16 x 8 x 16 product: lane l holds of A rows l / 4 and l / 4 + 8 and of B column l / 4,
 * each at the pairs l % 4 and l % 4 + 4 of the inner dimension. */
typedef struct specrt__launch_operands {
    uint32_t a[4], b[2]; /* a: row, row + 8, then the same at the later pair */
} specrt__launch_operands;

#if defined(SPECRT_HARNESS) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)

static __device__ float2 specrt__launch_pair(bool bf16, uint32_t pair) {
    return bf16 ? specrt__launch_unpack_bf16(pair) : specrt__launch_unpack_f16(pair);
}

#if defined(SPECRT_HARNESS)
#define SPECRT__LAUNCH_FETCH(word, lane)                                                           \
    harness_read<specrt__launch_operands>(0xffffffffu, all, lane).word
#else
#define SPECRT__LAUNCH_FETCH(word, lane) __shfl_sync(0xffffffffu, x.word, lane)
#endif

/* The scalar body: a lane asks those that hold its rows and columns. */
static __device__ __noinline__ void specrt__launch_mma_scalar(bool bf16, specrt__launch_operands x,
                                                              float *c) {
    int lane = (int)threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#if defined(SPECRT_HARNESS)
    const unsigned char *all = harness_warp(0xffffffffu, "mma", &x, sizeof x);
#endif
    for (int k = 0; k < 8; k++) {
        float2 a[2], b[2];
        for (int i = 0; i < 2; i++) {
            uint32_t pair = SPECRT__LAUNCH_FETCH(a[k / 4 * 2 + i], 4 * row + k % 4);
            a[i] = specrt__launch_pair(bf16, pair);
            pair = SPECRT__LAUNCH_FETCH(b[k / 4], 4 * (column + i) + k % 4);
            b[i] = specrt__launch_pair(bf16, pair);
        }
        for (int i = 0; i < 4; i++) c[i] += a[i / 2].x * b[i % 2].x + a[i / 2].y * b[i % 2].y;
    }
}

#endif

/* c[4] += A B with sums in f32: of rows lane / 4 and lane / 4 + 8 the columns lane % 4 * 2 and the next.
 * Operands are f16 or bf16. All lanes of a warp take part. */
template <bool kBf16>
static __device__ void specrt__launch_mma(specrt__launch_operands x, float *c) {
#if defined(SPECRT_HARNESS) || !defined(__CUDA_ARCH__)
    specrt__launch_mma_scalar(kBf16, x, c);
#elif __CUDA_ARCH__ >= 800
    if (kBf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]),
                       "r"(x.b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x.a[0]), "r"(x.a[1]), "r"(x.a[2]), "r"(x.a[3]), "r"(x.b[0]),
                       "r"(x.b[1]));
#else
    if (kBf16) /* came with sm_80 */
        specrt__launch_mma_scalar(kBf16, x, c);
    else
        for (int half = 0; half < 2; half++)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                         "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                         : "r"(x.a[2 * half]), "r"(x.a[2 * half + 1]), "r"(x.b[half]));
#endif
}

/* Reads what nobody reads again, past the first cache, which is left to what is read often; with it comes
 * the other half of the line. Nobody writes it while the kernel runs. */
static __device__ uint4 specrt__launch_read_once(const uint4 *p) {
#if defined(__CUDA_ARCH__)
    uint4 x;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
        : "l"(p));
    return x;
#else
    return *p;
#endif
}

/* Begins to copy 16 bytes to shared memory, where this thread alone reads them, after a wait. It may have
 * read what stood there just before. Other than a load into a register, no compiler moves it to its use.
 *   kCached : neighbours read the rest of the line */
template <bool kCached> static __device__ void specrt__launch_copy(uint4 *to, const uint4 *from) {
#if defined(SPECRT_HARNESS)
    harness_copy(to, from, sizeof *to);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if (kCached)
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from)
                     : "memory");
#else
    *to = specrt__launch_read_once(from);
#endif
}

/* The same of 4 bytes. */
static __device__ void specrt__launch_copy_word(uint32_t *to, const uint32_t *from) {
#if defined(SPECRT_HARNESS)
    harness_copy(to, from, sizeof *to);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
#else
    *to = __ldg(from);
#endif
}

/* What this thread began to copy since the last call is a group, which may be empty. */
static __device__ void specrt__launch_copied(void) {
#if defined(SPECRT_HARNESS)
    harness_copied();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all groups but the kLeft last ones. */
template <int kLeft> static __device__ void specrt__launch_wait(void) {
#if defined(SPECRT_HARNESS)
    harness_wait(kLeft);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

/* c[4] += A B in whole numbers of 8 bits, 16 x 8 x 16: as above, of four numbers where that has a pair. All
 * lanes of a warp take part.
 *   a : row, row + 8 */
static __device__ void specrt__launch_mma_s8(uint32_t a0, uint32_t a1, uint32_t b, int32_t *c) {
#if defined(SPECRT_HARNESS)
    int lane = (int)threadIdx.x % 32;
    uint4 x = make_uint4(a0, a1, b, 0);
    const unsigned char *all = harness_warp(0xffffffffu, "mma", &x, sizeof x);
    for (int k = 0; k < 4; k++) {
        uint4 rows = harness_read<uint4>(0xffffffffu, all, lane / 4 * 4 + k);
        for (int i = 0; i < 4; i++) {
            x = harness_read<uint4>(0xffffffffu, all, lane % 4 * 8 + i % 2 * 4 + k);
            c[i] = __dp4a((int)(i < 2 ? rows.x : rows.y), (int)x.z, c[i]);
        }
    }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    for (int half = 0; half < 2; half++)
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[2 * half]), "+r"(c[2 * half + 1])
            : "r"(half ? a1 : a0), "r"(b));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#endif
}

/* Orders what this thread has seen and written before what it does next, for threads of other blocks that
 * fence likewise; what its block's barriers ordered before, too. Lighter than __threadfence(), which orders
 * all threads' accesses in one row. */
static __device__ void specrt__launch_fence(void) {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
    __threadfence();
#endif
}

/* Asks for memory that is needed soon; any address will do. */
static __device__ void specrt__launch_prefetch(const void *p) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}

// >>block : src/cuda/block.cuh
/* block.cuh : owns sums, ranks and selections over one block, in an order that depends on nothing but its
 * size. All its threads call, in blocks of a multiple of 32 threads, 1024 at most. */

enum { SPECRT__BLOCK_WARPS = 32 };

/* Threads for blocks of kernels that take any number; the harness tries others. Those of 1024 threads have
 * that as their launch bounds, since a thread may use 64 registers then and no more. */
static int specrt__block_size(int threads) {
#if defined(SPECRT_HARNESS)
    threads = harness_threads(threads);
#endif
    return threads;
}

static __device__ int specrt__block_thread(void) {
    return (int)threadIdx.x;
}

static __device__ int specrt__block_threads(void) {
    return (int)blockDim.x;
}

/* Where item j of `each` that a thread has stands among those of the block: lanes are neighbours. */
static __device__ int32_t specrt__block_place(int each, int j) {
    return (specrt__block_thread() / 32 * each + j) * 32 + specrt__block_thread() % 32;
}

/* What x sums up to over warps, in each of which all lanes hold the same; *before: over lower ones. Every
 * warp adds up all sums, by shuffles: reading them one after another takes longer than all else here. */
template <typename T> static __device__ T specrt__block_add_warps(T x, T *before) {
    __shared__ T sums[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, warp = specrt__block_thread() / 32;
    int n_warps = specrt__block_threads() / 32;
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    T sum = lane < n_warps ? sums[lane] : 0;
    for (int by = 1; by < n_warps; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    *before = __shfl_sync(0xffffffffu, sum, warp) - x;
    T total = __shfl_sync(0xffffffffu, sum, n_warps - 1);
    __syncthreads();
    return total;
}

/* How many of the block's flags are set, kEach a thread; before[j]: at lower places. */
template <int kEach>
static __device__ int32_t specrt__block_ranks(const bool *flags, int32_t *before) {
    int lane = specrt__block_thread() % 32;
    int32_t n = 0, below;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        unsigned ballot = __ballot_sync(0xffffffffu, flags[j]);
        before[j] = n + __popc(ballot & ((1u << lane) - 1));
        n += __popc(ballot);
    }
    int32_t total = specrt__block_add_warps(n, &below);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) before[j] += below;
    return total;
}

/* The same of one flag a thread. */
static __device__ int32_t specrt__block_rank(bool flag, int32_t *before) {
    return specrt__block_ranks<1>(&flag, before);
}

/* The sum of x over the block; *before: over lower threads. */
template <typename T> static __device__ T specrt__block_scan(T x, T *before) {
    int lane = specrt__block_thread() % 32;
    T sum = x, below;
    for (int by = 1; by < 32; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    T total = specrt__block_add_warps(__shfl_sync(0xffffffffu, sum, 31), &below);
    *before = below + sum - x;
    return total;
}

/* As many lanes as the block has warps, or more up to a power of two. */
static __device__ int specrt__block_width(void) {
    int width = 1;
    while (32 * width < specrt__block_threads()) width *= 2;
    return width;
}

/* The greatest x. */
static __device__ uint64_t specrt__block_max(uint64_t x) {
    __shared__ uint64_t greatest[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, n_warps = specrt__block_threads() / 32;
    for (int by = 16; by > 0; by /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, by));
    if (lane == 0) greatest[specrt__block_thread() / 32] = x;
    __syncthreads();
    x = greatest[lane % n_warps];
    for (int by = specrt__block_width() / 2; by > 0; by /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, by));
    __syncthreads();
    return x;
}

/* The sum of x: pairwise within a warp, then over warps. */
static __device__ double specrt__block_sum(double x) {
    __shared__ double sums[SPECRT__BLOCK_WARPS];
    int lane = specrt__block_thread() % 32, width = specrt__block_width();
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    if (lane == 0) sums[specrt__block_thread() / 32] = x;
    __syncthreads();
    x = 32 * (lane % width) < specrt__block_threads() ? sums[lane % width] : 0;
    for (int by = width / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    __syncthreads();
    return x;
}

/* Whether of n blocks with a ticket this one comes last, and then sees what the others wrote. The ticket is 0
 * before the first, and again after the last. */
static __device__ bool specrt__block_last(uint32_t *ticket, int32_t n) {
    __shared__ bool last;
    __syncthreads();
    if (specrt__block_thread() == 0) { /* for all: barriers stand on both sides */
        specrt__launch_fence();
        last = atomicAdd(ticket, 1u) == (uint32_t)n - 1;
        if (last) atomicExch(ticket, 0u);
        specrt__launch_fence();
    }
    __syncthreads();
    bool out = last;
    __syncthreads();
    return out;
}

// >>head_rows : src/cuda/head_rows.cuh
/* head_rows.cuh : owns products of segments with hidden states. Rows are read as they lie, hidden states
 * as they come; sums are f32. f16, bf16 and q8_0 go to tensor cores, on which a state is the sum of two
 * halves, so that it keeps 16 (bf16) or 22 bits; of f32 a warp takes whole rows. */

/* q8_0 is one type, however its rows lie. */
static __host__ __device__ specrt_dtype specrt__head_type(specrt_dtype dtype) {
    return dtype == SPECRT__CUDA_Q8_0_PLANES ? SPECRT_DTYPE_Q8_0 : dtype;
}

/* The type that rows of another have once they are packed. */
static specrt_dtype specrt__head_packed_type(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_Q8_0 ? SPECRT__CUDA_Q8_0_PLANES : dtype;
}

/* The bytes of a row whose type is computed as it is; 0: not such a row. */
static size_t specrt__head_stored_bytes(specrt_dtype dtype, int64_t n_cols) {
    dtype = specrt__head_type(dtype);
    if (specrt__simd_format(dtype) < 0 || n_cols > SPECRT__CUDA_MAX_COLS) return 0;
    return specrt_row_bytes(dtype, n_cols);
}

/* Where in a plane of codes the eight of columns 8 * chunk on begin: of two blocks in turn, but of a last
 * one without a second. */
static __host__ __device__ int32_t specrt__head_code_at(int32_t chunk, int32_t n_blocks) {
    int32_t block = chunk / 4, i = chunk % 4;
    return (block | 1) < n_blocks ? block / 2 * 64 + 16 * i + block % 2 * 8 : 32 * block + 8 * i;
}

/* A row of q8_0 in planes, from one in blocks. */
static void specrt__head_split(const uint8_t *row, int32_t n_cols, uint8_t *out) {
    const int32_t n_blocks = n_cols / 32;
    for (int32_t b = 0; b < n_blocks; b++, row += 34) {
        memcpy(out + n_cols + 2 * b, row, 2);
        for (int32_t i = 0; i < 4; i++)
            memcpy(out + specrt__head_code_at(4 * b + i, n_blocks), row + 2 + 8 * i, 8);
    }
}

/* --- eight columns at a time --- */

typedef struct specrt__head_eight {
    uint32_t pairs[4]; /* f16 or bf16, as the row; q8_0: codes as f16 */
    float scale;       /* of q8_0, else 1 */
} specrt__head_eight;

static __device__ uint32_t specrt__head_halves(const uint16_t *x, int32_t at, int32_t n) {
    return (uint32_t)(at < n ? x[at] : 0) | (uint32_t)(at + 1 < n ? x[at + 1] : 0) << 16;
}

/* Eight codes of 8 bits as f16: the last bits of 1024 + 128 + code are the code's. */
static __device__ specrt__head_eight specrt__head_codes(uint32_t low, uint32_t high,
                                                        uint16_t scale) {
    const uint32_t kMagic = 0x64806480u;
    specrt__head_eight out;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t four = (i < 2 ? low : high) ^ 0x80808080u;
        uint32_t two = specrt__launch_spread(four, i % 2 == 1, 0x64646464u);
        out.pairs[i] = specrt__launch_sub_f16(two, kMagic);
    }
    out.scale = __half2float(__ushort_as_half(scale));
    return out;
}

/* The i-th 16 bytes. kOnce: of rows, which pass once; states are read again for every row. */
template <bool kOnce> static __device__ uint4 specrt__head_read(const void *x, int32_t i) {
    return kOnce ? specrt__launch_read_once((const uint4 *)x + i) : __ldg((const uint4 *)x + i);
}

/* Columns 8 * chunk on of f16 or bf16, zeros beyond n_cols.
 *   kWhole : all eight are there, and the row is aligned to 16 bytes */
template <bool kWhole, bool kOnce>
static __device__ specrt__head_eight specrt__head_load(const void *row, int32_t chunk,
                                                       int32_t n_cols) {
    specrt__head_eight out;
    const uint16_t *x = (const uint16_t *)row;
    out.scale = 1;
    if (kWhole) {
        uint4 four = specrt__head_read<kOnce>(row, chunk);
        out.pairs[0] = four.x, out.pairs[1] = four.y, out.pairs[2] = four.z, out.pairs[3] = four.w;
    } else {
        for (int i = 0; i < 4; i++)
            out.pairs[i] = specrt__head_halves(x, 8 * chunk + 2 * i, n_cols);
    }
    return out;
}

/* The same of q8_0, whose rows are aligned to 2 bytes. */
static __device__ specrt__head_eight specrt__head_load_codes(const void *row, int32_t chunk,
                                                             int32_t n_cols, bool planes) {
    const uint16_t *x = (const uint16_t *)row, *scale = x + chunk / 4 * 17, *codes = scale + 1;
    if (planes) {
        scale = x + n_cols / 2 + chunk / 4;
        codes = x + specrt__head_code_at(chunk, n_cols / 32) / 2;
    } else {
        codes += chunk % 4 * 4;
    }
    return specrt__head_codes(codes[0] | (uint32_t)codes[1] << 16,
                              codes[2] | (uint32_t)codes[3] << 16, *scale);
}

template <specrt_dtype kDtype> static __device__ float2 specrt__head_unpack(uint32_t pair) {
    return kDtype == SPECRT_DTYPE_BF16 ? specrt__launch_unpack_bf16(pair)
                                       : specrt__launch_unpack_f16(pair);
}

/* Eight columns of f32 as numbers. */
static __device__ void specrt__head_words(const uint4 *words, float *out) {
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t four[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < 4; j++) out[4 * i + j] = __uint_as_float(four[j]);
    }
}

template <bool kWhole, bool kOnce>
static __device__ void specrt__head_floats(const float *x, int32_t chunk, int32_t n_cols,
                                           float *out) {
    if (kWhole) {
        uint4 words[2];
        for (int i = 0; i < 2; i++) words[i] = specrt__head_read<kOnce>(x, 2 * chunk + i);
        specrt__head_words(words, out);
        return;
    }
    for (int i = 0; i < 8; i++) out[i] = 8 * chunk + i < n_cols ? x[8 * chunk + i] : 0.0f;
}

/* The same as numbers. */
template <specrt_dtype kDtype, bool kWhole, bool kOnce>
static __device__ void specrt__head_numbers(const void *row, int32_t chunk, int32_t n_cols,
                                            float *out) {
    if (kDtype == SPECRT_DTYPE_F32) {
        specrt__head_floats<kWhole, kOnce>((const float *)row, chunk, n_cols, out);
        return;
    }
    specrt__head_eight eight = specrt__head_load<kWhole, kOnce>(row, chunk, n_cols);
    for (int i = 0; i < 4; i++) {
        float2 two = specrt__head_unpack<kDtype>(eight.pairs[i]);
        out[2 * i] = two.x, out[2 * i + 1] = two.y;
    }
}

/* --- what a product is given --- */

typedef struct specrt__head_product {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments] */
    specrt__cuda_segment own;             /* in place of segments, where they are NULL */
    specrt__cuda_layout layout;
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS]; /* first column of each segment */
    int32_t n_columns;
    const void *hidden; /* [n_batch, max_n, n_cols] */
    specrt_dtype dtype; /* of hidden */
    int32_t max_n, n_step;
    const int32_t *n; /* of sequence b: n[b * n_step]; NULL: max_n */
    int32_t first;    /* the state to begin with */
    int32_t n_states; /* of all sequences, in groups of max_n; 0: each sequence's own */
    int32_t n_each;   /* of them a sequence's, whose masks hold for its states */
    int32_t n_groups; /* of these states, whose blocks with the same rows come one after another */
    int32_t step;     /* rows of hidden from state to state; 0: 1 */
    float *logits;    /* [n_batch, max_n, n_columns] */
    int32_t row_step; /* rows of logits from sequence to sequence; 0: max_n */
    int activation;   /* of a router's layer */
    /* What is added to logits: of state i of sequence b the row of n_columns at
     * before + b * before_step + i * before_each. It may be these logits. NULL: nothing */
    const float *before;
    int64_t before_step, before_each;
    int32_t n_splits; /* warps that share a row's columns; 0: specrt__head_splits() */
} specrt__head_product;

/* x: a product. SILU: x / (1 + exp(-x)); RESIDUAL: that, and what it was made of. */
enum { SPECRT__HEAD_LINEAR, SPECRT__HEAD_SILU, SPECRT__HEAD_RESIDUAL };

static __device__ int32_t specrt__head_count(const specrt__head_product &p, int32_t sequence) {
    int32_t n = p.n ? p.n[(int64_t)sequence * p.n_step] : p.max_n;
    if (p.n_states) n = p.n_states - sequence * p.max_n;
    return n < p.max_n ? n : p.max_n;
}

/* What this block has: rows, a part of those of a segment; and states, a sequence's or a group of all. */
static __device__ int32_t specrt__head_part(const specrt__head_product &p) {
    return (int32_t)(p.n_groups ? blockIdx.x / (unsigned)p.n_groups : blockIdx.x);
}

static __device__ int32_t specrt__head_set(const specrt__head_product &p) {
    return (int32_t)(p.n_groups ? blockIdx.x % (unsigned)p.n_groups : blockIdx.z);
}

/* The segment of this block: y of its sequence. */
static __device__ specrt__cuda_segment specrt__head_segment(const specrt__head_product &p) {
    if (!p.segments) return p.own;
    int32_t sequence = p.n_states ? 0 : specrt__head_set(p);
    return p.segments[sequence * p.layout.n_segments + (int32_t)blockIdx.y];
}

static __device__ int32_t specrt__head_rows(const specrt__cuda_segment &s) {
    int32_t n = s.n_rows ? *s.n_rows : s.max_rows;
    return n < s.max_rows ? n : s.max_rows;
}

static __device__ const char *specrt__head_row_at(const specrt__cuda_segment &s, int32_t row) {
    return (const char *)s.rows + (size_t)(s.places ? s.places[row] : row) * s.row_stride;
}

/* How many of n_cols columns can be read eight at a time: none, unless rows and states are aligned. */
static __device__ int32_t specrt__head_whole(const specrt__head_product &p,
                                             const specrt__cuda_segment &s) {
    size_t state_bytes = (size_t)p.layout.n_cols * (p.dtype == SPECRT_DTYPE_F32 ? 4 : 2);
    bool aligned = ((uintptr_t)s.rows | s.row_stride | (uintptr_t)p.hidden | state_bytes) % 16 == 0;
    return aligned ? (int32_t)p.layout.n_cols / 8 * 8 : 0;
}

/* The states of this block's sequence, from the product's first on: in registers, whatever is written. */
typedef struct specrt__head_states {
    const char *first;
    int32_t n, bytes; /* that count, at least 1; from each to the next */
    int32_t n_cols;
    specrt_dtype dtype;
} specrt__head_states;

static __device__ specrt__head_states specrt__head_states_of(const specrt__head_product &p,
                                                             int32_t n) {
    int32_t n_cols = (int32_t)p.layout.n_cols,
            bytes = n_cols * (p.dtype == SPECRT_DTYPE_F32 ? 4 : 2) * (p.step ? p.step : 1);
    size_t at = (size_t)specrt__head_set(p) * (size_t)p.max_n + (size_t)p.first;
    return {(const char *)p.hidden + at * (size_t)bytes, n, bytes, n_cols, p.dtype};
}

static __device__ const char *specrt__head_state_at(const specrt__head_states &x, int32_t state) {
    return x.first + (int64_t)state * x.bytes;
}

/* Columns 8 * chunk on of a state. */
template <bool kWhole>
static __device__ void specrt__head_state(const specrt__head_states &x, int32_t state,
                                          int32_t chunk, float *out) {
    const void *from = specrt__head_state_at(x, state);
    if (x.dtype == SPECRT_DTYPE_F32)
        specrt__head_numbers<SPECRT_DTYPE_F32, kWhole, false>(from, chunk, x.n_cols, out);
    else if (x.dtype == SPECRT_DTYPE_F16)
        specrt__head_numbers<SPECRT_DTYPE_F16, kWhole, false>(from, chunk, x.n_cols, out);
    else
        specrt__head_numbers<SPECRT_DTYPE_BF16, kWhole, false>(from, chunk, x.n_cols, out);
}

/* Whether a row scores nothing for a sequence: of a shared segment row by row of states. */
static __device__ bool specrt__head_masked(const specrt__head_product &p,
                                           const specrt__cuda_segment &s, int32_t row, size_t at) {
    const uint32_t *masked = s.masked;
    if (!masked) return false;
    if (p.n_states)
        masked =
            p.segments[(int32_t)at / p.n_each * p.layout.n_segments + (int32_t)blockIdx.y].masked;
    return masked[row / 32] >> row % 32 & 1;
}

/* What is there of the logits of state number `at` of all. */
static __device__ const float *specrt__head_before(const specrt__head_product &p, int32_t at) {
    int32_t n_each = p.n_states ? p.n_each : p.max_n;
    return p.before + at / n_each * p.before_step + at % n_each * p.before_each;
}

static __device__ void specrt__head_put(const specrt__head_product &p,
                                        const specrt__cuda_segment &s, int32_t row, int32_t state,
                                        float logit) {
    size_t at = (size_t)specrt__head_set(p) * (size_t)(p.row_step ? p.row_step : p.max_n);
    at += (size_t)state;
    if (specrt__head_masked(p, s, row, at) || (s.scored_by && !(s.scored_by[row] >> state & 1)))
        logit = -INFINITY;
    else if (s.bias)
        logit += s.bias[s.places ? s.places[row] : row];
    if (p.before) logit += specrt__head_before(p, (int32_t)at)[p.starts[blockIdx.y] + row];
    if (p.activation != SPECRT__HEAD_LINEAR) logit /= 1 + expf(-logit);
    if (p.activation == SPECRT__HEAD_RESIDUAL) /* hidden f32 [., n_columns] */
        logit += ((const float *)p.hidden)[at * (size_t)p.n_columns + (size_t)row];
    p.logits[at * (size_t)p.n_columns + (size_t)(p.starts[blockIdx.y] + row)] = logit;
}

/* --- rows under way ---
 * A thread copies the 16 bytes that it needs of its rows to places of shared memory that are its own, some
 * steps before it takes them from there: SPECRT__HEAD_LOADS places in a ring, all under way while the first
 * is waited for. */

enum { SPECRT__HEAD_LOADS = 8 };

/* Of kThreads in a block, each with kRows rows, of each kEach times 16 bytes a step; kScales: and the scales
 * of the 64 columns that four lanes read then. */
template <int kThreads, int kRows, int kEach, bool kScales> struct specrt__head_ring {
    enum { kLoads = kRows * kEach, kSteps = SPECRT__HEAD_LOADS / kLoads };
    uint4 *places;    /* [SPECRT__HEAD_LOADS, threads] shared, from this thread's first on */
    uint32_t *scales; /* likewise, two f16 each */
    int32_t n_codes;  /* bytes of a row before its scales */
    int32_t step;     /* of kSteps, that is taken next */
};

/* 16 bytes number kEach * at on of every row go to the places of a step; ask: there are some. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void
specrt__head_ask(const specrt__head_ring<kThreads, kRows, kEach, kScales> &ring, int32_t step,
                 const char *const *rows, int32_t at, bool ask) {
    const int kLoads = kRows * kEach;
    if (ask) {
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < kLoads; i++)
            specrt__launch_copy<(kEach > 1)>(ring.places + (step * kLoads + i) * kThreads,
                                             (const uint4 *)(const void *)rows[i / kEach] +
                                                 kEach * at + i % kEach);
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < (kScales ? kRows : 0); i++)
            specrt__launch_copy_word(ring.scales + (step * kRows + i) * kThreads,
                                     (const uint32_t *)(const void *)(rows[i] + ring.n_codes) +
                                         at / 4);
    }
    specrt__launch_copied();
}

/* The first steps, `stride` apart from `at` on, as far as they are below `end`. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void specrt__head_begin(specrt__head_ring<kThreads, kRows, kEach, kScales> *ring,
                                          const char *const *rows, int32_t at, int32_t stride,
                                          int32_t end) {
    const int kSteps = specrt__head_ring<kThreads, kRows, kEach, kScales>::kSteps;
    ring->places += threadIdx.x;
    if (kScales) ring->scales += threadIdx.x;
    ring->step = 0;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kSteps; i++)
        specrt__head_ask(*ring, i, rows, at + i * stride, at + i * stride < end);
}

/* The step `at`, out [kRows * kEach] and scales [kRows], in whose places that kSteps later is asked for. */
template <int kThreads, int kRows, int kEach, bool kScales>
static __device__ void specrt__head_take(specrt__head_ring<kThreads, kRows, kEach, kScales> *ring,
                                         const char *const *rows, int32_t at, int32_t stride,
                                         int32_t end, uint4 *out, uint32_t *scales) {
    const int kLoads = kRows * kEach;
    const int kSteps = specrt__head_ring<kThreads, kRows, kEach, kScales>::kSteps;
    specrt__launch_wait<kSteps - 1>();
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kLoads; i++) out[i] = ring->places[(ring->step * kLoads + i) * kThreads];
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < (kScales ? kRows : 0); i++)
        scales[i] = ring->scales[(ring->step * kRows + i) * kThreads];
    specrt__head_ask(*ring, ring->step, rows, at + kSteps * stride, at + kSteps * stride < end);
    ring->step = (ring->step + 1) & (kSteps - 1);
}

/* --- f32 rows, which would lose bits on tensor cores --- */

enum { SPECRT__HEAD_F32_WARPS = 4 };

/* Rows of a warp: with more states more, or reading states again for each took as long as the rows. */
template <int kStates> struct specrt__head_f32_part {
    enum { kRows = kStates > 2 ? 4 : 2 };
};

/* sums[kStates][kRows] += a chunk of eight columns, of which weights has the rows' part. */
template <int kStates, int kRows, bool kWhole>
static __device__ void specrt__head_f32_add(const specrt__head_states &x, const float (*weights)[8],
                                            int32_t chunk, float (*sums)[kRows]) {
    float z[8];
    SPECRT__LAUNCH_UNROLL
    for (int h = 0; h < kStates; h++) {
        if (h > 0 && h >= x.n) break;
        specrt__head_state<kWhole>(x, h, chunk, z);
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < 8 * kRows; i++)
            sums[h][i / 8] = fmaf(weights[i / 8][i % 8], z[i % 8], sums[h][i / 8]);
    }
}

/* All chunks of this lane below `end`, with rows under way. @return the next chunk. */
template <int kStates, int kRows>
static __device__ int32_t specrt__head_f32_run(const specrt__head_states &x,
                                               const char *const *rows, uint4 *places,
                                               int32_t chunk, int32_t end, float (*sums)[kRows]) {
    specrt__head_ring<32 * SPECRT__HEAD_F32_WARPS, kRows, 2, false> ring = {places, NULL, 0, 0};
    specrt__head_begin(&ring, rows, chunk, 32, end);
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (; chunk < end; chunk += 32) {
        uint4 words[2 * kRows];
        float weights[kRows][8];
        specrt__head_take(&ring, rows, chunk, 32, end, words, (uint32_t *)NULL);
        SPECRT__LAUNCH_UNROLL
        for (int r = 0; r < kRows; r++) specrt__head_words(&words[2 * r], weights[r]);
        specrt__head_f32_add<kStates, kRows, true>(x, weights, chunk, sums);
    }
    return chunk;
}

/* Sums over lanes, each of which writes one of 32. */
template <int kStates, int kRows>
static __device__ void specrt__head_f32_put(const specrt__head_product &p,
                                            const specrt__cuda_segment &s, int32_t row,
                                            int32_t n_rows, int32_t n, const float (*sums)[kRows]) {
    const int kEach = (kStates * kRows + 31) / 32;
    int32_t lane = (int32_t)(threadIdx.x % 32);
    float own[kEach] = {0};
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kStates * kRows; i++) {
        float sum = sums[i / kRows][i % kRows];
        if (i / kRows >= n) break;
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == i % 32) own[i / 32] = sum;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int32_t h = (32 * j + lane) / kRows, r = lane % kRows;
        if (h < kStates && h < n && row + r < n_rows)
            specrt__head_put(p, s, row + r, p.first + h, own[j]);
    }
}

/* Block (i, s, b): logits[b, first : first + kStates, rows] = hidden[b, first : first + kStates, :] @
 * rows[:, :]^T for kRows rows of segment s a warp; lane l sums columns 8 l to 8 l + 7 of every 256, then
 * lanes in pairs.
 *   grid (rows / (warps * kRows), n_segments, n_batch), or specrt__head_grid() with groups; block 32 *
 *   SPECRT__HEAD_F32_WARPS
 *   CPU twin: specrt_shortlist_logits() */
template <int kStates>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_F32_WARPS)
    specrt__head_f32(specrt__head_product p) {
    const int kRows = specrt__head_f32_part<kStates>::kRows;
    __shared__ uint4 places[SPECRT__HEAD_LOADS * 32 * SPECRT__HEAD_F32_WARPS];
    int32_t b = specrt__head_set(p), n = specrt__head_count(p, b) - p.first;
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt__cuda_segment s = specrt__head_segment(p);
    int32_t row = (specrt__head_part(p) * SPECRT__HEAD_F32_WARPS + warp) * kRows;
    int32_t n_rows = specrt__head_rows(s);
    if (p.layout.dtypes[blockIdx.y] != SPECRT_DTYPE_F32 || n <= 0 || row >= n_rows) return;
    const specrt__head_states x = specrt__head_states_of(p, n);
    const char *rows[kRows];
    float sums[kStates][kRows], weights[kRows][8];
    for (int r = 0; r < kRows; r++)
        rows[r] = specrt__head_row_at(s, row + r < n_rows ? row + r : n_rows - 1);
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kStates * kRows; i++) sums[i / kRows][i % kRows] = 0;
    int32_t chunk = specrt__head_f32_run<kStates, kRows>(x, rows, places, lane,
                                                         specrt__head_whole(p, s) / 8, sums);
    for (; 8 * chunk < x.n_cols; chunk += 32) {
        for (int r = 0; r < kRows; r++)
            specrt__head_floats<false, true>((const float *)(const void *)rows[r], chunk, x.n_cols,
                                             weights[r]);
        specrt__head_f32_add<kStates, kRows, false>(x, weights, chunk, sums);
    }
    specrt__head_f32_put<kStates, kRows>(p, s, row, n_rows, n, sums);
}

// >>head : src/cuda/head.cuh
/* head.cuh : owns products of rows that tensor cores take, and the launches of all products. */

/* --- other rows: tensor cores --- */

enum { SPECRT__HEAD_TILE_WARPS = 8 };

/* The pair (x, y) rounded to 16 bits, and what is left of it. What f16 does not reach is cut. */
template <bool kBf16>
static __device__ uint32_t specrt__head_round(float x, float y, float2 *rest) {
    uint32_t out = kBf16 ? specrt__launch_pack_bf16(x, y) : specrt__launch_pack_f16_cut(x, y);
    float2 back = kBf16 ? specrt__launch_unpack_bf16(out) : specrt__launch_unpack_f16(out);
    *rest = make_float2(x - back.x, y - back.y);
    return out;
}

/* Columns 8 * chunk on of a state as an operand, and what rounding leaves of them.
 *   kExact : states are of the operands' type, and nothing is left */
template <bool kBf16, bool kWhole, bool kExact>
static __device__ void specrt__head_operand(const specrt__head_states &x, int32_t state,
                                            int32_t chunk, uint32_t *pairs, uint32_t *rest) {
    float z[8];
    if (kExact) {
        specrt__head_eight eight =
            specrt__head_load<kWhole, false>(specrt__head_state_at(x, state), chunk, x.n_cols);
        for (int i = 0; i < 4; i++) pairs[i] = eight.pairs[i];
        return;
    }
    specrt__head_state<kWhole>(x, state, chunk, z);
    for (int i = 0; i < 4; i++) {
        float2 left, none;
        pairs[i] = specrt__head_round<kBf16>(z[2 * i], z[2 * i + 1], &left);
        rest[i] = specrt__head_round<kBf16>(left.x, left.y, &none);
    }
}

/* sums[kGroups * kTiles][4] += 16 rows of every group, of which a[] holds this lane's part, times kTiles * 8
 * states over columns 32 * step on. A lane brings 8 columns of rows lane / 4 and lane / 4 + 8 of a group and
 * of state lane / 4 of every tile: pairs 0 and 1 to one product, 2 and 3 to another, so that the order of
 * columns within the 32 is the lanes' own. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kWhole, bool kExact>
static __device__ void specrt__head_tile_step(const specrt__head_states &x,
                                              const specrt__head_eight (*a)[2], int32_t step,
                                              float (*sums)[4]) {
    const bool kBf16 = kDtype == SPECRT_DTYPE_BF16;
    int32_t lane = (int32_t)(threadIdx.x % 32);
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kTiles; t++) {
        int32_t state = 8 * t + lane / 4;
        if (t > 0 && 8 * t >= x.n) break;
        uint32_t pairs[4], rest[4];
        specrt__head_operand<kBf16, kWhole, kExact>(x, state < x.n ? state : x.n - 1,
                                                    4 * step + lane % 4, pairs, rest);
        SPECRT__LAUNCH_UNROLL
        for (int g = 0; g < kGroups; g++) {
            float part[4] = {0, 0, 0, 0}, *sum = sums[g * kTiles + t];
            SPECRT__LAUNCH_UNROLL
            for (int half = 0; half < 2; half++) {
                specrt__launch_operands both;
                for (int i = 0; i < 4; i++) both.a[i] = a[g][i % 2].pairs[2 * half + i / 2];
                for (int i = 0; i < 2; i++) both.b[i] = pairs[2 * half + i];
                specrt__launch_mma<kBf16>(both, kDtype == SPECRT_DTYPE_Q8_0 ? part : sum);
                if (kExact) continue;
                for (int i = 0; i < 2; i++) both.b[i] = rest[2 * half + i];
                specrt__launch_mma<kBf16>(both, kDtype == SPECRT_DTYPE_Q8_0 ? part : sum);
            }
            if (kDtype == SPECRT_DTYPE_Q8_0) SPECRT__LAUNCH_UNROLL
            for (int i = 0; i < 4; i++) sum[i] += part[i] * a[g][i / 2].scale;
        }
    }
}

/* Steps on to `end`. @return the next step.
 *   rows : [2 * kGroups] this lane's */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kWhole, bool kExact>
static __device__ int32_t specrt__head_tile_steps(const specrt__head_states &x,
                                                  const char *const *rows, bool planes,
                                                  int32_t step, int32_t end, float (*sums)[4]) {
    for (; step < end; step++) {
        specrt__head_eight a[kGroups][2];
        int32_t chunk = 4 * step + (int32_t)(threadIdx.x % 4);
        SPECRT__LAUNCH_UNROLL
        for (int r = 0; r < 2 * kGroups; r++)
            a[r / 2][r % 2] = kDtype == SPECRT_DTYPE_Q8_0
                                  ? specrt__head_load_codes(rows[r], chunk, x.n_cols, planes)
                                  : specrt__head_load<kWhole, true>(rows[r], chunk, x.n_cols);
        specrt__head_tile_step<kDtype, kTiles, kGroups, kWhole, kExact>(x, a, step, sums);
    }
    return step;
}

/* A lane's eight columns of a step, out of the 16 bytes that it took: all of them, or of codes the lower or
 * higher half. */
template <specrt_dtype kDtype>
static __device__ specrt__head_eight specrt__head_taken(uint4 word, uint32_t scales, int half) {
    if (kDtype != SPECRT_DTYPE_Q8_0) return {{word.x, word.y, word.z, word.w}, 1};
    return half == 0 ? specrt__head_codes(word.x, word.y, (uint16_t)(scales & 0xffff))
                     : specrt__head_codes(word.z, word.w, (uint16_t)(scales >> 16));
}

/* Columns that four lanes read with 16 bytes each, in steps of 32. */
template <specrt_dtype kDtype> struct specrt__head_word {
    enum { kSteps = kDtype == SPECRT_DTYPE_Q8_0 ? 2 : 1 };
};

/* The same of whole steps, with rows under way: from a multiple of kSteps on, as far as those go. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kExact>
static __device__ int32_t specrt__head_tile_run(const specrt__head_states &x,
                                                const char *const *rows, uint4 *places,
                                                uint32_t *scales, int32_t step, int32_t end,
                                                float (*sums)[4]) {
    const int kRows = 2 * kGroups, kSteps = specrt__head_word<kDtype>::kSteps;
    int32_t at = 4 * (step / kSteps) + (int32_t)(threadIdx.x % 4), stop = 4 * (end / kSteps);
    specrt__head_ring<32 * SPECRT__HEAD_TILE_WARPS, kRows, 1, (kSteps > 1)> ring = {places, scales,
                                                                                    x.n_cols, 0};
    specrt__head_begin(&ring, rows, at, 4, stop);
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (; at < stop; at += 4) {
        uint4 words[kRows];
        uint32_t pairs[kRows] = {0};
        specrt__head_take(&ring, rows, at, 4, stop, words, pairs);
        SPECRT__LAUNCH_UNROLL
        for (int half = 0; half < kSteps; half++, step++) {
            specrt__head_eight a[kGroups][2];
            SPECRT__LAUNCH_UNROLL
            for (int r = 0; r < kRows; r++)
                a[r / 2][r % 2] = specrt__head_taken<kDtype>(words[r], pairs[r], half);
            specrt__head_tile_step<kDtype, kTiles, kGroups, true, kExact>(x, a, step, sums);
        }
    }
    return step;
}

/* Groups of 16 rows of a warp: two where states have to be rounded, which they are for both. */
template <int kTiles, bool kExact> struct specrt__head_tile {
    enum { kGroups = kExact || kTiles > 4 ? 1 : 2 };
};

/* All columns of this warp's share: share `split` of n_splits. */
template <specrt_dtype kDtype, int kTiles, int kGroups, bool kExact>
static __device__ void
specrt__head_tile_share(const specrt__head_product &p, int32_t n, const specrt__cuda_segment &s,
                        const char *const *rows, uint4 *places, uint32_t *scales, int32_t split,
                        int32_t n_splits, float (*sums)[4]) {
    const int kSteps = specrt__head_word<kDtype>::kSteps;
    const specrt__head_states x = specrt__head_states_of(p, n);
    const bool planes = p.layout.dtypes[blockIdx.y] == SPECRT__CUDA_Q8_0_PLANES;
    int32_t n_steps = (x.n_cols + 31) / 32, n_words = (n_steps + kSteps - 1) / kSteps;
    int32_t step = kSteps * (n_words * split / n_splits);
    int32_t end = kSteps * (n_words * (split + 1) / n_splits);
    int32_t whole = specrt__head_whole(p, s) / 32;
    if (end > n_steps) end = n_steps;
    if (whole > end) whole = end;
    step = specrt__head_tile_run<kDtype, kTiles, kGroups, kExact>(
        x, rows, places, scales, step, kDtype != SPECRT_DTYPE_Q8_0 || planes ? whole : step, sums);
    if (kDtype == SPECRT_DTYPE_Q8_0) /* in blocks, or a last one of planes */
        step = specrt__head_tile_steps<kDtype, kTiles, kGroups, true, kExact>(x, rows, planes, step,
                                                                              whole, sums);
    specrt__head_tile_steps<kDtype, kTiles, kGroups, false, kExact>(x, rows, planes, step, end,
                                                                    sums);
}

/* Block (i, s, b): logits[b, :, rows] as above, for kGroups * 16 rows of segment s a set of n_splits warps,
 * each of which takes its share of the columns; their sums are added in order.
 *   grid (rows / (16 * kGroups * sets), n_segments, n_batch), block 32 * SPECRT__HEAD_TILE_WARPS
 *   n_splits : a power of two up to SPECRT__HEAD_TILE_WARPS
 *   CPU twin: specrt_shortlist_logits() */
template <specrt_dtype kDtype, int kTiles, bool kExact>
static __global__ void __launch_bounds__(32 * SPECRT__HEAD_TILE_WARPS, 2)
    specrt__head_tiles(specrt__head_product p, int32_t n_splits) {
    const int kGroups = specrt__head_tile<kTiles, kExact>::kGroups, kRows = 16 * kGroups;
    const int kPlaces = SPECRT__HEAD_LOADS * 32 * SPECRT__HEAD_TILE_WARPS;
    static_assert(kPlaces * 16 >= SPECRT__HEAD_TILE_WARPS * kRows * 8 * kTiles * 4,
                  "sums have to fit where rows were under way");
    __shared__ uint4 places[kPlaces];
    __shared__ uint32_t scales[kDtype == SPECRT_DTYPE_Q8_0 ? kPlaces : 1];
    float(*shared)[kRows][8 * kTiles] = (float(*)[kRows][8 * kTiles])(void *)places;
    int32_t b = specrt__head_set(p), n = specrt__head_count(p, b);
    int32_t warp = (int32_t)(threadIdx.x / 32), lane = (int32_t)(threadIdx.x % 32);
    specrt__cuda_segment s = specrt__head_segment(p);
    int32_t n_rows = specrt__head_rows(s), n_block = kRows * SPECRT__HEAD_TILE_WARPS / n_splits;
    int32_t first = specrt__head_part(p) * n_block;
    if (specrt__head_type(p.layout.dtypes[blockIdx.y]) != kDtype || n <= 0 || first >= n_rows)
        return;
    float sums[kGroups * kTiles][4];
    const char *rows[2 * kGroups];
    for (int i = 0; i < 2 * kGroups; i++) {
        int32_t row = first + kRows * (warp / n_splits) + lane / 4 + 8 * i;
        rows[i] = specrt__head_row_at(s, row < n_rows ? row : n_rows - 1);
    }
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4 * kGroups * kTiles; i++) sums[i / 4][i % 4] = 0;
    specrt__head_tile_share<kDtype, kTiles, kGroups, kExact>(p, n, s, rows, places, scales,
                                                             warp % n_splits, n_splits, sums);
    __syncthreads(); /* rows of other warps are taken */
    SPECRT__LAUNCH_UNROLL
    for (int t = 0; t < kGroups * kTiles; t++) SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 4; i++)
        shared[warp][t / kTiles * 16 + lane / 4 + i / 2 * 8]
              [8 * (t % kTiles) + lane % 4 * 2 + i % 2] = sums[t][i];
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n_block * 8 * kTiles; i += (int32_t)blockDim.x) {
        int32_t row = i % n_block, state = i / n_block;
        float sum = 0;
        if (first + row >= n_rows || state >= n) continue;
        for (int32_t w = 0; w < n_splits; w++)
            sum += shared[row / kRows * n_splits + w][row % kRows][state];
        specrt__head_put(p, s, first + row, state, sum);
    }
}

/* --- launches --- */

/* The columns of a layout, in all and before each segment; 0: it is not one. */
static int32_t specrt__head_lay_out(const specrt__cuda_layout *layout, int32_t *starts) {
    int64_t n = 0;
    if (!layout || layout->n_segments < 1 || layout->n_segments > SPECRT__CUDA_MAX_SEGMENTS)
        return 0;
    for (int32_t i = 0; i < layout->n_segments; i++) {
        starts[i] = (int32_t)n;
        if (layout->max_rows[i] < 1 || layout->max_rows[i] > SPECRT_MAX_VOCAB) return 0;
        n += layout->max_rows[i];
    }
    return n <= INT32_MAX ? (int32_t)n : 0;
}

/* The most rows of segments of a type; 0: there are none. */
static int32_t specrt__head_most(const specrt__cuda_layout *layout, specrt_dtype dtype) {
    int32_t most = 0;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (specrt__head_type(layout->dtypes[i]) == dtype && layout->max_rows[i] > most)
            most = layout->max_rows[i];
    return most;
}

/* n_blocks for the rows of each segment and set of states. Groups of all sequences' states are the fastest
 * dimension, so that rows are still in a cache when the next group reads them. */
static dim3 specrt__head_grid(const specrt__head_product &p, unsigned n_blocks, int32_t n_batch) {
    unsigned n_segments = (unsigned)p.layout.n_segments;
    return p.n_groups ? dim3(n_blocks * (unsigned)p.n_groups, n_segments, 1)
                      : dim3(n_blocks, n_segments, (unsigned)n_batch);
}

/* Warps that share a row's columns: as few as leave four blocks to a multiprocessor. The fewer they are, the
 * more warps of a block read the same part of the states; with fewer blocks many would stand idle.
 *   rows : of a block whose warps share none */
static int32_t specrt__head_splits(int32_t n_rows, int32_t rows, int32_t n_batch) {
    int32_t n_splits = 1;
    uint64_t enough = 4 * (uint64_t)specrt__launch_multiprocessors();
    while (n_splits < SPECRT__HEAD_TILE_WARPS &&
           specrt__launch_blocks(n_rows, rows / n_splits) * (uint64_t)n_batch < enough)
        n_splits *= 2;
    return n_splits;
}

template <specrt_dtype kDtype, int kTiles, bool kExact>
static specrt_status specrt__head_launch_tile(const specrt__head_product &p, int32_t n_batch,
                                              void *stream) {
    int32_t rows = 16 * specrt__head_tile<kTiles, kExact>::kGroups * SPECRT__HEAD_TILE_WARPS;
    int32_t most = specrt__head_most(&p.layout, kDtype);
    int32_t n_splits = p.n_splits ? p.n_splits : specrt__head_splits(most, rows, n_batch);
    dim3 grid = specrt__head_grid(p, specrt__launch_blocks(most, rows / n_splits), n_batch);
    return SPECRT__LAUNCH((specrt__head_tiles<kDtype, kTiles, kExact>), grid,
                          32 * SPECRT__HEAD_TILE_WARPS, 0, stream, p, n_splits);
}

template <specrt_dtype kDtype, int kTiles>
static specrt_status specrt__head_launch_tiles(const specrt__head_product &p, int32_t n_batch,
                                               void *stream) {
    if (p.dtype == (kDtype == SPECRT_DTYPE_BF16 ? SPECRT_DTYPE_BF16 : SPECRT_DTYPE_F16))
        return specrt__head_launch_tile<kDtype, kTiles, true>(p, n_batch, stream);
    return specrt__head_launch_tile<kDtype, kTiles, false>(p, n_batch, stream);
}

template <specrt_dtype kDtype>
static specrt_status specrt__head_run(const specrt__head_product &p, int32_t n_batch,
                                      void *stream) {
    if (specrt__head_most(&p.layout, kDtype) == 0) return SPECRT_STATUS_OK;
    if (p.max_n <= 16) return specrt__head_launch_tiles<kDtype, 2>(p, n_batch, stream);
    return specrt__head_launch_tiles<kDtype, 8>(p, n_batch, stream);
}

template <int kStates>
static specrt_status specrt__head_launch_f32(const specrt__head_product &p, int32_t n_batch,
                                             void *stream) {
    const int32_t per_block = SPECRT__HEAD_F32_WARPS * specrt__head_f32_part<kStates>::kRows;
    int32_t most = specrt__head_most(&p.layout, SPECRT_DTYPE_F32);
    dim3 grid = specrt__head_grid(p, specrt__launch_blocks(most, per_block), n_batch);
    return SPECRT__LAUNCH((specrt__head_f32<kStates>), grid, 32 * SPECRT__HEAD_F32_WARPS, 0, stream,
                          p);
}

/* Up to 16 states at a time, with which rows are still read as fast as they come. */
static specrt_status specrt__head_run_f32(specrt__head_product p, int32_t n_batch, void *stream) {
    const int32_t kFew = 2, kMost = 16;
    if (specrt__head_most(&p.layout, SPECRT_DTYPE_F32) == 0) return SPECRT_STATUS_OK;
    for (p.first = 0; p.first < p.max_n; p.first += kMost)
        if (p.max_n - p.first <= kFew)
            SPECRT__TRY(specrt__head_launch_f32<kFew>(p, n_batch, stream));
        else
            SPECRT__TRY(specrt__head_launch_f32<kMost>(p, n_batch, stream));
    return SPECRT_STATUS_OK;
}

/* Segments of all types, one type after another. */
static specrt_status specrt__head_run_all(const specrt__head_product &p, int32_t n_batch,
                                          void *stream) {
    SPECRT__TRY(specrt__head_run_f32(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_F16>(p, n_batch, stream));
    SPECRT__TRY(specrt__head_run<SPECRT_DTYPE_BF16>(p, n_batch, stream));
    return specrt__head_run<SPECRT_DTYPE_Q8_0>(p, n_batch, stream);
}

/* Of segments that a product leaves out. */
#define SPECRT__HEAD_NONE SPECRT_DTYPE_FORCE_INT

/* Segments that sequences share, with all their states at once, and the others. */
static specrt_status specrt__head_run_batch(specrt__head_product p, int32_t n_batch, void *stream) {
    specrt__head_product joined = p;
    for (int32_t i = 0; i < p.layout.n_segments; i++)
        if (n_batch > 1 && p.layout.shared[i])
            p.layout.dtypes[i] = SPECRT__HEAD_NONE;
        else
            joined.layout.dtypes[i] = SPECRT__HEAD_NONE;
    joined.n = NULL;
    joined.n_states = n_batch * p.max_n;
    joined.n_each = p.max_n;
    joined.max_n = SPECRT__CUDA_MAX_STATES;
    if (joined.max_n > joined.n_states) joined.max_n = joined.n_states;
    joined.n_groups = (int32_t)specrt__launch_blocks(joined.n_states, joined.max_n);
    SPECRT__TRY(specrt__head_run_all(joined, joined.n_groups, stream));
    return specrt__head_run_all(p, n_batch, stream);
}

static bool specrt__head_is_state(specrt_dtype dtype) {
    return dtype == SPECRT_DTYPE_F32 || dtype == SPECRT_DTYPE_F16 || dtype == SPECRT_DTYPE_BF16;
}

static specrt_status specrt__head_check_batch(const specrt__cuda_batch *batch) {
    return batch && batch->n_batch >= 1 && batch->n_batch <= SPECRT__CUDA_MAX_BATCH &&
                   batch->max_n >= 1 && batch->max_n <= SPECRT__CUDA_MAX_STATES
               ? SPECRT_STATUS_OK
               : SPECRT_STATUS_BAD_ARG;
}

/* The rows of a pass. */
static specrt__cuda_batch specrt__head_beam_rows(const specrt_cuda_beam *beams, int32_t n_batch,
                                                 int32_t max_n) {
    return {n_batch, max_n, &beams->n, sizeof *beams / sizeof(int32_t)};
}

/* States of a batch, all of them from the first on. */
static void specrt__head_take_states(specrt__head_product *p, const specrt__cuda_batch *batch,
                                     const void *hidden, specrt_dtype dtype) {
    p->hidden = hidden;
    p->dtype = dtype;
    p->max_n = batch->max_n;
    p->n = batch->n;
    p->n_step = batch->n_step;
}

/* A product with one segment of rows that all sequences have. */
static specrt__head_product specrt__head_of_rows(const void *rows, specrt_dtype dtype,
                                                 int32_t n_rows, int32_t n_cols) {
    specrt__head_product p;
    SPECRT__CLEAR(&p, 1);
    p.layout.n_segments = 1;
    p.layout.n_cols = n_cols;
    p.layout.dtypes[0] = dtype;
    p.layout.max_rows[0] = p.own.max_rows = p.n_columns = n_rows;
    p.own.rows = rows;
    p.own.row_stride = specrt_row_bytes(dtype, n_cols);
    return p;
}

/* specrt__cuda_logits() of segments [first, end).
 *   p : zeros, but for what it adds to, and its step: rows of hidden from state to state, where a batch's
 *       max_n is 1 */
static specrt_status specrt__head_logits(specrt__head_product p, const specrt__cuda_layout *layout,
                                         int32_t first, int32_t end,
                                         const specrt__cuda_segment *segments,
                                         const specrt__cuda_batch *batch, const void *hidden,
                                         specrt_dtype dtype, float *logits, void *stream) {
    p.n_columns = specrt__head_lay_out(layout, p.starts);
    if (p.n_columns == 0 || !segments || !hidden || !logits) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__head_check_batch(batch));
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (specrt__head_stored_bytes(layout->dtypes[i], layout->n_cols) == 0)
            return SPECRT_STATUS_UNSUPPORTED;
    p.segments = segments;
    p.layout = *layout;
    for (int32_t i = 0; i < layout->n_segments; i++)
        if (i < first || i >= end) p.layout.dtypes[i] = SPECRT__HEAD_NONE;
    p.logits = logits;
    specrt__head_take_states(&p, batch, hidden, dtype);
    return specrt__head_run_batch(p, batch->n_batch, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_logits(const specrt__cuda_layout *layout,
                                                 const specrt__cuda_segment *segments,
                                                 const specrt__cuda_batch *batch,
                                                 const void *hidden, specrt_dtype dtype,
                                                 float *logits, void *stream) {
    return specrt__cuda_split_logits(0, layout, segments, batch, hidden, dtype, logits, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_split_logits(int32_t n_splits,
                                                       const specrt__cuda_layout *layout,
                                                       const specrt__cuda_segment *segments,
                                                       const specrt__cuda_batch *batch,
                                                       const void *hidden, specrt_dtype dtype,
                                                       float *logits, void *stream) {
    specrt__head_product p;
    if (n_splits < 0 || n_splits > SPECRT__HEAD_TILE_WARPS || (n_splits & (n_splits - 1)))
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(&p, 1);
    p.n_splits = n_splits;
    return specrt__head_logits(p, layout, 0, SPECRT__CUDA_MAX_SEGMENTS, segments, batch, hidden,
                               dtype, logits, stream);
}

// >>shortlist : src/cuda/shortlist.cuh
/* shortlist.cuh : owns the packing of rows, and rankings: a number orders a logit and its token, so that what
 * is found does not depend on where it stands. */

enum { SPECRT__SHORTLIST_PACK_THREADS = 128 };

/* Block (i, b): rows[slot, :] = head[row_of[ids[slot]], :] where slot = slots[i], the i-th place to fill of
 * sequence b, and its bias; then the next as many places further as there are blocks.
 *   grid (any, n_batch), block SPECRT__SHORTLIST_PACK_THREADS
 *   Unit : 16, 4 or 2 bytes; divides addresses, strides and row_bytes
 *   CPU twin: specrt__pool_pack() */
template <typename Unit>
static __global__ void specrt__shortlist_pack_rows(specrt__cuda_head head,
                                                   const specrt__cuda_packing *packings,
                                                   size_t row_bytes, size_t row_stride) {
    specrt__cuda_packing p = packings[blockIdx.y];
    int32_t n = *p.n, n_units = (int32_t)(row_bytes / sizeof(Unit));
    for (int32_t i = (int32_t)blockIdx.x; i < n; i += (int32_t)gridDim.x) {
        int32_t slot = p.slots ? p.slots[i] : i, id = p.ids[slot];
        int32_t row = head.row_of ? head.row_of[id] : id;
        const Unit *from = (const Unit *)((const char *)head.rows + (size_t)row * head.row_stride);
        Unit *to = (Unit *)((char *)p.rows + (size_t)slot * row_stride);
        SPECRT__LAUNCH_UNROLL_BY(4) /* loads under way */
        for (int32_t j = (int32_t)threadIdx.x; j < n_units; j += (int32_t)blockDim.x)
            to[j] = __ldg(from + j);
        if (p.bias && threadIdx.x == 0) p.bias[slot] = head.bias ? head.bias[row] : 0.0f;
    }
}

/* Block (i, b): as above, of q8_0 rows in blocks, which become planes. Each thread takes eight codes, and a
 * scale.
 *   CPU twin: specrt__head_split() */
static __global__ void specrt__shortlist_split_rows(specrt__cuda_head head,
                                                    const specrt__cuda_packing *packings,
                                                    size_t row_stride) {
    specrt__cuda_packing p = packings[blockIdx.y];
    int32_t n = *p.n, n_cols = (int32_t)head.n_cols, n_blocks = n_cols / 32;
    for (int32_t i = (int32_t)blockIdx.x; i < n; i += (int32_t)gridDim.x) {
        int32_t slot = p.slots ? p.slots[i] : i, id = p.ids[slot];
        int32_t row = head.row_of ? head.row_of[id] : id;
        const uint16_t *from = (const uint16_t *)(const void *)((const char *)head.rows +
                                                                (size_t)row * head.row_stride);
        char *to = (char *)p.rows + (size_t)slot * row_stride;
        SPECRT__LAUNCH_UNROLL_BY(4) /* loads under way */
        for (int32_t j = (int32_t)threadIdx.x; j < 4 * n_blocks; j += (int32_t)blockDim.x) {
            const uint16_t *x = from + j / 4 * 17 + 1 + j % 4 * 4;
            uint2 codes = make_uint2(__ldg(x) | (uint32_t)__ldg(x + 1) << 16,
                                     __ldg(x + 2) | (uint32_t)__ldg(x + 3) << 16);
            *(uint2 *)(void *)(to + specrt__head_code_at(j, n_blocks)) = codes;
        }
        for (int32_t j = (int32_t)threadIdx.x; j < n_blocks; j += (int32_t)blockDim.x)
            ((uint16_t *)(void *)(to + n_cols))[j] = __ldg(from + 17 * j);
        if (p.bias && threadIdx.x == 0) p.bias[slot] = head.bias ? head.bias[row] : 0.0f;
    }
}

SPECRT__KERNEL specrt_status specrt__cuda_pack(const specrt__cuda_head *head,
                                               const specrt__cuda_packing *packings,
                                               int32_t n_batch, int32_t max_n, size_t row_stride,
                                               void *stream) {
    if (!head || !head->rows || !packings || max_n < 1) return SPECRT_STATUS_BAD_ARG;
    if (n_batch < 1 || n_batch > SPECRT__CUDA_MAX_BATCH) return SPECRT_STATUS_BAD_ARG;
    size_t bytes = specrt__head_stored_bytes(head->dtype, head->n_cols);
    if (bytes == 0) return SPECRT_STATUS_UNSUPPORTED;
    if (head->row_stride < bytes || row_stride < bytes) return SPECRT_STATUS_BAD_ARG;
    uint64_t all = (uintptr_t)head->rows | head->row_stride | row_stride | bytes;
    dim3 grid(specrt__launch_share(max_n, n_batch), (unsigned)n_batch); /* mostly few are new */
    dim3 block(SPECRT__SHORTLIST_PACK_THREADS);
    if (all % sizeof(uint16_t) != 0) return SPECRT_STATUS_BAD_ARG;
    if (head->dtype == SPECRT_DTYPE_Q8_0)
        return row_stride % 16 != 0 ? SPECRT_STATUS_BAD_ARG
                                    : SPECRT__LAUNCH(specrt__shortlist_split_rows, grid, block, 0,
                                                     stream, *head, packings, row_stride);
    if (all % sizeof(uint4) == 0)
        return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint4>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    if (all % sizeof(uint32_t) == 0)
        return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint32_t>, grid, block, 0, stream, *head,
                              packings, bytes, row_stride);
    return SPECRT__LAUNCH(specrt__shortlist_pack_rows<uint16_t>, grid, block, 0, stream, *head,
                          packings, bytes, row_stride);
}

/* --- the greatest of many keys --- */

enum { SPECRT__SHORTLIST_DIGITS = 256, SPECRT__SHORTLIST_THREADS = 256 };

/* The digit, from the greatest down, at which `need` of the keys counted are reached. One warp calls.
 *   counts : [SPECRT__SHORTLIST_DIGITS]
 *   *above : keys of greater digits */
static __device__ int32_t specrt__shortlist_digit(const int32_t *counts, int32_t need,
                                                  int32_t *above) {
    const int32_t kEach = SPECRT__SHORTLIST_DIGITS / 32;
    int32_t lane = (int32_t)(threadIdx.x % 32),
            highest = SPECRT__SHORTLIST_DIGITS - 1 - kEach * lane;
    int32_t sum = 0;
    for (int32_t i = 0; i < kEach; i++) sum += counts[highest - i];
    int32_t upto = sum;
    for (int by = 1; by < 32; by *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, upto, (unsigned)by);
        if (lane >= by) upto += other;
    }
    unsigned reached = __ballot_sync(0xffffffffu, upto >= need);
    int source = reached ? __ffs((int)reached) - 1 : 31;
    int32_t digit = highest, before = upto - sum;
    while (digit > highest - kEach + 1 && before + counts[digit] < need) before += counts[digit--];
    *above = __shfl_sync(0xffffffffu, before, source);
    return __shfl_sync(0xffffffffu, digit, source);
}

/* The least of the k greatest of n keys, found a digit of 8 bits at a time; at least 1, since a key of 0 is
 * none. More than k keys reach it only where keys are equal. */
static __device__ uint64_t specrt__shortlist_least(const uint64_t *keys, int32_t n, int32_t k) {
    const int32_t kEach = 4, step = (int32_t)blockDim.x; /* keys under way */
    __shared__ int32_t counts[SPECRT__SHORTLIST_DIGITS], digit, above;
    uint64_t prefix = 0, mask = 0;
    for (int shift = 56; shift >= 0 && n > k; shift -= 8) {
        for (int32_t i = (int32_t)threadIdx.x; i < SPECRT__SHORTLIST_DIGITS; i += step)
            counts[i] = 0;
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += kEach * step) {
            uint64_t some[kEach];
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < kEach; j++) some[j] = i + j * step < n ? keys[i + j * step] : 0;
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < kEach; j++)
                if (i + j * step < n && (some[j] & mask) == prefix)
                    atomicAdd(&counts[some[j] >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            int32_t higher, found = specrt__shortlist_digit(counts, k, &higher);
            if (threadIdx.x == 0) digit = found, above = higher;
        }
        __syncthreads();
        k -= above;
        prefix |= (uint64_t)digit << shift;
        mask |= (uint64_t)255 << shift;
        bool whole = counts[digit] == k;
        __syncthreads();
        if (whole) break;
    }
    return prefix > 0 ? prefix : 1;
}

/* Those of n keys that reach `least`, in order, at most k of them. @return how many. */
static __device__ int32_t specrt__shortlist_collect(const uint64_t *keys, int32_t n, int32_t k,
                                                    uint64_t least, uint64_t *out) {
    int32_t n_out = 0, before;
    for (int32_t first = 0; first < n; first += (int32_t)blockDim.x) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool take = i < n && keys[i] >= least;
        int32_t n_taken = specrt__block_rank(take, &before);
        if (take && n_out + before < k) out[n_out + before] = keys[i];
        n_out += n_taken;
    }
    __syncthreads();
    return n_out < k ? n_out : k;
}

/* The k greatest of n keys, descending, into best [SPECRT__SHORTLIST_MAX_K]. @return how many. */
static __device__ __noinline__ int32_t specrt__shortlist_choose(const uint64_t *keys, int32_t n,
                                                                int32_t k, uint64_t *best) {
    __shared__ uint64_t some[SPECRT__SHORTLIST_MAX_K];
    const int32_t kFew = 512; /* that are sooner compared with each other than counted by digits */
    if (n > kFew) {
        uint64_t least = specrt__shortlist_least(keys, n, k);
        n = specrt__shortlist_collect(keys, n, k, least, some);
        keys = some;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; j++) rank += keys[j] > keys[i] || (keys[j] == keys[i] && j < i);
        if (rank < k) best[rank] = keys[i];
    }
    __syncthreads();
    return n < k ? n : k;
}

/* --- the best k of every row of logits --- */

enum {
    SPECRT__SHORTLIST_EACH = 16,  /* columns of a thread */
    SPECRT__SHORTLIST_BLOCKS = 4, /* on a multiprocessor: with more, columns would not fit */
    SPECRT__SHORTLIST_PART = SPECRT__SHORTLIST_EACH * SPECRT__SHORTLIST_THREADS,
    SPECRT__SHORTLIST_GROUPS = 32, /* of threads, as many as a warp has lanes */
    SPECRT__SHORTLIST_TICKETS = SPECRT__CUDA_MAX_BATCH * (SPECRT__CUDA_MAX_STATES + 1)
};

typedef struct specrt__shortlist_ranks {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments]; NULL: column i is token i */
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS], n_segments;
    int32_t n_columns, n_parts, k;
    int32_t row_size;    /* floats from row to row of logits, of which n_columns are ranked */
    const float *logits; /* [n_batch, max_n, row_size] */
    int32_t max_n, n_step;
    const int32_t *n;        /* as in specrt__head_product */
    uint32_t *tickets;       /* [n_batch], then [n_batch, max_n]: 0 */
    uint64_t *keys;          /* [n_batch, max_n, n_parts, k] scratch */
    double *sums;            /* [n_batch, max_n, n_parts] of exp(logit - most) */
    int32_t *ids, row_step;  /* [n_batch, row_step, k] */
    float *logprobs, *total; /* [n_batch, row_step, k]; [n_batch, row_step]; NULL: not asked for */
} specrt__shortlist_ranks;

/* What a part of a row has, or all of it: the best keys, how many, and the sum of exp(logit - greatest). */
typedef struct specrt__shortlist_found {
    uint64_t *best; /* [SPECRT__SHORTLIST_MAX_K] */
    int32_t n;
    double sum;
} specrt__shortlist_found;

/* The token of a column; -1: it has none.
 *   segments [n_segments] of the sequence */
static __device__ int32_t specrt__shortlist_token(const specrt__cuda_segment *segments,
                                                  const int32_t *starts, int32_t n_segments,
                                                  int32_t column) {
    int32_t s = 0;
    while (s + 1 < n_segments && starts[s + 1] <= column) s++;
    int32_t row = column - starts[s];
    int32_t n_rows = segments[s].n_rows ? *segments[s].n_rows : segments[s].max_rows;
    return row < n_rows ? segments[s].ids[row] : -1;
}

/* What a logit adds to a sum of exp(logit - most); most infinite: how many there are. */
static __device__ double specrt__shortlist_exp(float logit, float most) {
    if (logit == most) return 1;
    return logit < most ? (double)expf(logit - most) : 0.0;
}

/* orders[j]: of column first + j * threads + thread; 0: it has no token, 1: NaN, which only a shortlist
 * knows. */
static __device__ void specrt__shortlist_read(const specrt__shortlist_ranks &r, int32_t b,
                                              int32_t first, const float *logits,
                                              uint32_t *orders) {
    __shared__ int32_t ends[SPECRT__CUDA_MAX_SEGMENTS]; /* of segments' tokens */
    const specrt__cuda_segment *segments = r.segments + b * r.n_segments;
    int32_t thread = (int32_t)threadIdx.x;
    float row[SPECRT__SHORTLIST_EACH]; /* loads under way */
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        int32_t column = first + j * SPECRT__SHORTLIST_THREADS + thread;
        row[j] = column < r.n_columns ? logits[column] : -INFINITY;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++)
        orders[j] = row[j] > -INFINITY ? specrt__shortlist_order(row[j]) : 0;
    if (!r.segments) return;
    if (thread < r.n_segments)
        ends[thread] = r.starts[thread] + (segments[thread].n_rows ? *segments[thread].n_rows
                                                                   : segments[thread].max_rows);
    __syncthreads();
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        int32_t column = first + j * SPECRT__SHORTLIST_THREADS + thread, s = 0;
        while (s + 1 < r.n_segments && r.starts[s + 1] <= column) s++;
        uint32_t order = specrt__shortlist_order(row[j]);
        bool has = column < r.n_columns && column < ends[s];
        orders[j] = !has ? 0 : order > 0 ? order : 1;
    }
}

/* The k-th greatest of what groups of threads have for their greatest, at least 1: k columns reach it,
 * and not many more. *greatest: of all. */
static __device__ uint32_t specrt__shortlist_floor(const uint32_t *orders, int32_t k,
                                                   uint32_t *greatest) {
    __shared__ uint32_t groups[SPECRT__SHORTLIST_GROUPS], sorted[SPECRT__SHORTLIST_GROUPS];
    const int kThreads = SPECRT__SHORTLIST_THREADS / SPECRT__SHORTLIST_GROUPS;
    int thread = specrt__block_thread();
    uint32_t most = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) most = max(most, orders[j]);
    for (int by = 1; by < kThreads; by *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, by));
    if (thread % kThreads == 0) groups[thread / kThreads] = most;
    __syncthreads();
    if (thread < SPECRT__SHORTLIST_GROUPS) {
        uint32_t mine = groups[thread];
        int rank = 0;
        SPECRT__LAUNCH_UNROLL
        for (int i = 0; i < SPECRT__SHORTLIST_GROUPS; i++)
            rank += groups[i] > mine || (groups[i] == mine && i < thread);
        sorted[rank] = mine;
    }
    __syncthreads();
    *greatest = sorted[0];
    uint32_t least = k <= SPECRT__SHORTLIST_GROUPS ? sorted[k - 1] : 0;
    return least > 0 ? least : 1;
}

/* The greatest logit that keys [n], in order, tell of. */
static __device__ float specrt__shortlist_most(const specrt__shortlist_found &f) {
    return f.n > 0 && f.best[0] >> 32 ? specrt__shortlist_key_logit(f.best[0]) : -INFINITY;
}

/* Whether sums are asked for, which take longer than all else. */
static __device__ bool specrt__shortlist_sums(const specrt__shortlist_ranks &r) {
    return r.logprobs || r.total;
}

/* The part of a row that begins at column `first`.
 *   keys : [SPECRT__SHORTLIST_PART] */
static __device__ void specrt__shortlist_rank_part(const specrt__shortlist_ranks &r, int32_t b,
                                                   int32_t first, const float *logits,
                                                   uint64_t *keys, specrt__shortlist_found *out) {
    uint32_t orders[SPECRT__SHORTLIST_EACH], greatest;
    int32_t n_mine = 0, place;
    specrt__shortlist_read(r, b, first, logits, orders);
    uint32_t least = specrt__shortlist_floor(orders, r.k, &greatest);
    float most = specrt__shortlist_key_logit((uint64_t)greatest << 32);
    double sum = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        n_mine += orders[j] >= least;
        if (!specrt__shortlist_sums(r) || orders[j] <= 1) continue;
        sum += specrt__shortlist_exp(specrt__shortlist_key_logit((uint64_t)orders[j] << 32), most);
    }
    int32_t n = specrt__block_scan(n_mine, &place);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__SHORTLIST_EACH; j++) {
        if (orders[j] < least) continue;
        int32_t id = first + j * SPECRT__SHORTLIST_THREADS + (int32_t)threadIdx.x;
        if (r.segments)
            id = specrt__shortlist_token(r.segments + b * r.n_segments, r.starts, r.n_segments, id);
        keys[place++] = (uint64_t)(orders[j] > 1 ? orders[j] : 0) << 32 | (uint32_t)~id;
    }
    if (specrt__shortlist_sums(r)) out->sum = specrt__block_sum(sum);
    __syncthreads();
    out->n = specrt__shortlist_choose(keys, n, r.k, out->best);
}

/* All parts of a row, whose keys and sums are there.
 *   some : [SPECRT__SHORTLIST_PART] */
static __device__ void specrt__shortlist_join(const specrt__shortlist_ranks &r,
                                              const uint64_t *keys, const double *sums,
                                              uint64_t *some, specrt__shortlist_found *out) {
    int32_t n = r.n_parts * r.k, threads = (int32_t)blockDim.x;
    double sum = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n && n <= SPECRT__SHORTLIST_PART; i += threads)
        some[i] = keys[i];
    __syncthreads();
    out->n = specrt__shortlist_choose(n <= SPECRT__SHORTLIST_PART ? some : keys, n, r.k, out->best);
    float most = specrt__shortlist_most(*out);
    for (int32_t i = (int32_t)threadIdx.x; i < r.n_parts; i += threads) {
        uint64_t first = keys[(int64_t)i * r.k]; /* the part's greatest */
        if (specrt__shortlist_sums(r) && sums[i] > 0)
            sum += sums[i] * specrt__shortlist_exp(specrt__shortlist_key_logit(first), most);
    }
    if (specrt__shortlist_sums(r)) out->sum = specrt__block_sum(sum);
}

/* Row `at` of all: ids and log-probabilities, best first. */
static __device__ void specrt__shortlist_write(const specrt__shortlist_ranks &r, size_t at,
                                               const specrt__shortlist_found &f) {
    float most = specrt__shortlist_most(f);
    double total = log(f.sum);
    for (int32_t i = (int32_t)threadIdx.x; i < r.k; i += (int32_t)blockDim.x) {
        uint64_t key = i < f.n ? f.best[i] : 0;
        float logit = key >> 32 ? specrt__shortlist_key_logit(key) : -INFINITY;
        double logprob = (logit == most ? 0.0 : (double)logit - (double)most) - total;
        r.ids[at * (size_t)r.k + (size_t)i] = specrt__shortlist_key_id(key);
        if (r.logprobs)
            r.logprobs[at * (size_t)r.k + (size_t)i] =
                logit > -INFINITY ? (float)logprob : -INFINITY;
    }
    if (r.total && threadIdx.x == 0) r.total[at] = (float)((double)most + total);
}

/* Block (i, h, b): of logits[b, h, i * PART : (i + 1) * PART] the k greatest keys and the sum of
 * exponentials; the last block of a row joins what its parts have.
 *   grid (n_parts, max_n, n_batch), block SPECRT__SHORTLIST_THREADS; k <= SPECRT__SHORTLIST_MAX_K
 *   CPU twins: specrt_shortlist_topk(), specrt_logits_topk()
 * @return for all threads of the sequence's last block true: its rows are ranked, and what it was asked with
 *         is read no more. */
static __device__ bool specrt__shortlist_rank(const specrt__shortlist_ranks &r) {
    __shared__ uint64_t keys[SPECRT__SHORTLIST_PART], best[SPECRT__SHORTLIST_MAX_K];
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y;
    bool counts = h < (r.n ? r.n[(int64_t)b * r.n_step] : r.max_n);
    size_t row = (size_t)b * (size_t)r.max_n + (size_t)h, part = row * (size_t)r.n_parts;
    specrt__shortlist_found found = {best, 0, 0};
    if (counts)
        specrt__shortlist_rank_part(r, b, (int32_t)blockIdx.x * SPECRT__SHORTLIST_PART,
                                    r.logits + row * (size_t)r.row_size, keys, &found);
    if (r.n_parts > 1) {
        uint64_t *out = r.keys + (part + blockIdx.x) * (size_t)r.k;
        for (int32_t i = (int32_t)threadIdx.x; i < r.k; i += (int32_t)blockDim.x)
            out[i] = i < found.n ? best[i] : 0;
        if (threadIdx.x == 0) r.sums[part + blockIdx.x] = found.sum;
        if (!specrt__block_last(&r.tickets[gridDim.z + row], r.n_parts)) return false;
        if (counts)
            specrt__shortlist_join(r, r.keys + part * (size_t)r.k, r.sums + part, keys, &found);
    }
    if (counts) specrt__shortlist_write(r, (size_t)b * (size_t)r.row_step + (size_t)h, found);
    return specrt__block_last(&r.tickets[b], r.max_n);
}

static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__shortlist_rank_kernel(specrt__shortlist_ranks r) {
    specrt__shortlist_rank(r);
}

/* Scratch of a ranking of n rows. Tickets come first, whatever the shape. */
static size_t specrt__shortlist_lay_out(void *scratch, size_t n, specrt__shortlist_ranks *r) {
    specrt__launch_arena arena = {scratch, 0};
    r->n_parts = (int32_t)specrt__launch_blocks(r->n_columns, SPECRT__SHORTLIST_PART);
    specrt__launch_carve(&arena, SPECRT__SHORTLIST_TICKETS, &r->tickets);
    specrt__launch_carve(&arena, n * (size_t)r->n_parts * (size_t)r->k, &r->keys);
    specrt__launch_carve(&arena, n * (size_t)r->n_parts, &r->sums);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_topk_bytes(int64_t n_columns, int64_t n_rows, int32_t k) {
    if (n_columns < 1 || n_columns > INT32_MAX || k < 1 || k > SPECRT__SHORTLIST_MAX_K) return 0;
    if (n_rows < 1 || n_rows > SPECRT__CUDA_MAX_BATCH * SPECRT__CUDA_MAX_STATES) return 0;
    specrt__shortlist_ranks r;
    r.n_columns = (int32_t)n_columns;
    r.k = k;
    return specrt__shortlist_lay_out(NULL, (size_t)n_rows, &r);
}

/* Checks and fills in what all rankings have, for a kernel on *grid; r: the rest. */
static specrt_status specrt__shortlist_prepare(specrt__shortlist_ranks *r,
                                               const specrt__cuda_batch *batch, const float *logits,
                                               int32_t k, int32_t *ids, void *scratch, dim3 *grid) {
    r->row_size = r->n_columns;
    r->logits = logits;
    r->k = k;
    r->ids = ids;
    SPECRT__TRY(specrt__head_check_batch(batch));
    r->max_n = batch->max_n;
    r->n = batch->n;
    r->n_step = batch->n_step;
    if (!logits || !ids || !scratch || (uintptr_t)scratch % 8) return SPECRT_STATUS_BAD_ARG;
    int32_t n_rows = batch->n_batch * batch->max_n;
    if (specrt__cuda_topk_bytes(r->n_columns, n_rows, k) == 0) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_lay_out(scratch, (size_t)n_rows, r);
    *grid = dim3((unsigned)r->n_parts, (unsigned)batch->max_n, (unsigned)batch->n_batch);
    return SPECRT_STATUS_OK;
}

/* A ranking of a shortlist, as specrt__cuda_topk() is asked for it. */
static specrt_status specrt__shortlist_shortlist(const specrt__cuda_layout *layout,
                                                 const specrt__cuda_segment *segments,
                                                 const specrt__cuda_batch *batch,
                                                 const float *logits, int32_t k, int32_t *ids,
                                                 float *logprobs, void *scratch,
                                                 specrt__shortlist_ranks *r, dim3 *grid) {
    SPECRT__CLEAR(r, 1);
    r->n_columns = specrt__head_lay_out(layout, r->starts);
    if (r->n_columns == 0 || !segments || !logprobs) return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__shortlist_prepare(r, batch, logits, k, ids, scratch, grid));
    r->segments = segments;
    r->n_segments = layout->n_segments;
    r->row_step = batch->max_n;
    r->logprobs = logprobs;
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_topk(const specrt__cuda_layout *layout,
                                               const specrt__cuda_segment *segments,
                                               const specrt__cuda_batch *batch, const float *logits,
                                               int32_t k, int32_t *ids, float *logprobs,
                                               void *scratch, void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__shortlist_shortlist(layout, segments, batch, logits, k, ids, logprobs,
                                            scratch, &r, &grid));
    return SPECRT__LAUNCH(specrt__shortlist_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r);
}

/* A ranking of whole rows of the target's logits. */
static specrt_status specrt__shortlist_whole(const specrt__cuda_batch *batch, const float *logits,
                                             int32_t n_vocab, int32_t k, int32_t *ids,
                                             int32_t row_step, void *scratch,
                                             specrt__shortlist_ranks *r, dim3 *grid) {
    SPECRT__CLEAR(r, 1);
    if (n_vocab < 1 || n_vocab > SPECRT_MAX_VOCAB) return SPECRT_STATUS_BAD_ARG;
    r->n_columns = n_vocab;
    r->row_step = row_step;
    return specrt__shortlist_prepare(r, batch, logits, k, ids, scratch, grid);
}

SPECRT__KERNEL specrt_status specrt__cuda_target_topk(const specrt__cuda_batch *batch,
                                                      const float *logits, int32_t n_vocab,
                                                      int32_t k, int32_t *ids, float *logsumexp,
                                                      void *scratch, void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    SPECRT__TRY(specrt__shortlist_whole(batch, logits, n_vocab, k, ids, SPECRT_TREE_MAX_NODES,
                                        scratch, &r, &grid));
    r.total = logsumexp;
    return SPECRT__LAUNCH(specrt__shortlist_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r);
}

// >>pool : src/cuda/pool.cuh
/* pool.cuh : owns, on the device, who wants a token, and the slots of packed rows, as pool.c does on the
 * host. */

enum {
    SPECRT__POOL_THREADS =
        512,               /* half of a multiprocessor, so that it runs beside a layer's blocks */
    SPECRT__POOL_EACH = 4, /* tokens of a thread that are looked up together */
    SPECRT__POOL_BATCH = 4096 /* tokens taken at once: a cycle has at most 1,151 */
};

/* --- membership --- */

static __device__ int32_t specrt__pool_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static __device__ bool specrt__pool_valid(const specrt_cuda_state *s, int32_t id) {
    return id >= 0 && id < s->params.n_ids && !(s->wants[id] & SPECRT__CUDA_INVALID);
}

/* A token that a source names for sequence b is its level's from here on. Twin: specrt__source_route */
static __device__ void specrt__pool_name(const specrt__cuda_taken &taken, int32_t b, int32_t n_ids,
                                         int32_t id) {
    if (taken.named) atomicOr(&taken.named[(int64_t)b * n_ids + id], 1u << taken.level);
}

/* A source has named n_rows tokens for a pass of n rows. The first source of a level begins its sums, so that
 * it may come again. A thread calls. */
static __device__ void specrt__pool_tally(const specrt__cuda_taken &taken, int32_t b, int32_t n,
                                          int32_t n_rows) {
    if (!taken.named) return;
    specrt__cuda_tally *tally = &taken.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + taken.level];
    if (!taken.levels) SPECRT__CLEAR(tally, 1);
    tally->n = n;
    tally->n_rows += n_rows;
    tally->n_shared += n_rows;
}

/* The state of this block, in shared memory; the batch's tokens too. */
static __device__ specrt_cuda_state *specrt__pool_open(const specrt_cuda_state *from) {
    __shared__ specrt_cuda_state s;
    if (specrt__block_thread() == 0) s = *from;
    __syncthreads();
    return &s;
}

static __device__ void specrt__pool_close(const specrt_cuda_state *s, specrt_cuda_state *to) {
    __syncthreads();
    if (specrt__block_thread() == 0) *to = *s;
}

static __device__ int32_t *specrt__pool_batch(void) {
    __shared__ int32_t batch[SPECRT__POOL_BATCH];
    return batch;
}

/* Every thread may change what is wanted of kEach tokens, -1: none; those of a call are distinct. Tokens
 * that come to be packed or cease to be are listed, once. Twin: specrt__pool_change. */
template <int kEach>
static __device__ void specrt__pool_change_all(specrt_cuda_state *s, const int32_t *ids, int drop,
                                               int want) {
    const int kGained = 20, kLost = 40; /* bits of sums, above those that are listed */
    uint64_t sums = 0, before;
    int old[kEach];
    bool lists[kEach];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++)
        old[j] = ids[j] >= 0 ? s->wants[ids[j]] : (int)SPECRT__CUDA_FIXED;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int now = (old[j] & ~drop) | want;
        bool had = (old[j] & SPECRT__CUDA_PACKED) != 0, has = (now & SPECRT__CUDA_PACKED) != 0;
        bool turns = had != has && !(old[j] & SPECRT__CUDA_FIXED);
        lists[j] = turns && !(old[j] & SPECRT__CUDA_CHANGED);
        if (ids[j] >= 0) s->wants[ids[j]] = (uint8_t)(lists[j] ? now | SPECRT__CUDA_CHANGED : now);
        sums += (uint64_t)lists[j] | (uint64_t)(turns && has) << kGained |
                (uint64_t)(turns && had) << kLost;
    }
    uint64_t total = specrt__block_scan(sums, &before);
    int32_t place = s->n_changed + (int32_t)(before & ((1 << kGained) - 1));
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++)
        if (lists[j]) s->changed[place++] = ids[j];
    __syncthreads();
    if (specrt__block_thread() == 0) {
        s->n_wanted += (int32_t)(total >> kGained & ((1 << (kLost - kGained)) - 1));
        s->n_wanted -= (int32_t)(total >> kLost);
        s->n_changed += (int32_t)(total & ((1 << kGained) - 1));
    }
    __syncthreads();
}

static __device__ void specrt__pool_change(specrt_cuda_state *s, int32_t id, int drop, int want) {
    specrt__pool_change_all<1>(s, &id, drop, want);
}

/* Gives a token a slot, whose row is to be packed. */
static __device__ void specrt__pool_place(specrt_cuda_state *s, int32_t id, int32_t slot,
                                          int32_t fresh) {
    s->slots[id] = slot;
    s->ids[slot] = id;
    s->fresh[fresh] = slot;
}

/* Of the tokens that changed those that nobody wants leave holes; those that need a slot move to the front
 * of the list. @return how many those are. */
static __device__ int32_t specrt__pool_sort_out(specrt_cuda_state *s, int32_t *n_holes) {
    const int kEach = SPECRT__POOL_EACH, kLeave = 16; /* bit of sums, above those that enter */
    int32_t n_entering = 0, n_left = 0, n = s->n_changed;
    int32_t ids[SPECRT__POOL_EACH], slots[SPECRT__POOL_EACH];
    for (int32_t begin = 0; begin < n; begin += kEach * specrt__block_threads()) {
        uint32_t sums = 0, before;
        uint8_t wants[SPECRT__POOL_EACH];
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = begin + specrt__block_place(kEach, j);
            ids[j] = i < n ? s->changed[i] : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            wants[j] = ids[j] >= 0 ? s->wants[ids[j]] : 0;
            slots[j] = ids[j] >= 0 ? s->slots[ids[j]] : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool wanted = (wants[j] & SPECRT__CUDA_PACKED) != 0;
            if (ids[j] >= 0) s->wants[ids[j]] = (uint8_t)(wants[j] & ~SPECRT__CUDA_CHANGED);
            if (!wanted || slots[j] >= 0) ids[j] = slots[j] >= 0 && !wanted ? ids[j] : -1;
            if (ids[j] >= 0) sums += wanted ? 1u : 1u << kLeave;
        }
        uint32_t total = specrt__block_scan(sums, &before);
        int32_t *enter = s->changed + n_entering + (before & ((1 << kLeave) - 1));
        int32_t *hole = s->holes + n_left + (before >> kLeave);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            if (ids[j] >= 0 && slots[j] < 0) *enter++ = ids[j];
            if (ids[j] < 0 || slots[j] < 0) continue;
            *hole++ = slots[j];
            s->ids[slots[j]] = s->slots[ids[j]] = -1;
        }
        n_entering += (int32_t)(total & ((1 << kLeave) - 1));
        n_left += (int32_t)(total >> kLeave);
    }
    __syncthreads();
    *n_holes = n_left;
    return n_entering;
}

/* Holes beyond the new end go. @return how many are left. */
static __device__ int32_t specrt__pool_lower(specrt_cuda_state *s, int32_t n_holes, int32_t end) {
    int32_t n_kept = 0, before;
    for (int32_t begin = 0; begin < n_holes; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), slot = i < n_holes ? s->holes[i] : end;
        int32_t n = specrt__block_rank(slot < end, &before);
        if (slot < end) s->holes[n_kept + before] = slot;
        n_kept += n;
    }
    __syncthreads();
    return n_kept;
}

/* Rows beyond the new end that stay move into holes, from number `n_fresh` on: they are packed anew, which
 * needs no copy within the buffer. */
static __device__ void specrt__pool_move(specrt_cuda_state *s, int32_t end, int32_t n_fresh) {
    int32_t n_rows = s->n_rows, before;
    for (int32_t begin = end; begin < n_rows; begin += specrt__block_threads()) {
        int32_t slot = begin + specrt__block_thread(), id = slot < n_rows ? s->ids[slot] : -1;
        int32_t n = specrt__block_rank(id >= 0, &before), place = n_fresh + before;
        if (id >= 0) specrt__pool_place(s, id, s->holes[place], place);
        n_fresh += n;
    }
    __syncthreads();
}

/* New tokens take holes first, then the end. Beyond the capacity, which sources do not exceed, they are
 * refused and counted. Twin: specrt__pool_sync, but for the copying, which s->fresh lists. */
static __device__ void specrt__pool_sync(specrt_cuda_state *s) {
    int32_t n_holes, n_rows = s->n_rows, n_entering = specrt__pool_sort_out(s, &n_holes);
    int32_t n_free = n_holes + s->params.capacity - n_rows, n_fresh = n_entering;
    if (n_fresh > n_free) n_fresh = n_free;
    int32_t end = n_rows - n_holes + n_fresh;
    if (end < n_rows) n_holes = specrt__pool_lower(s, n_holes, end);
    for (int32_t i = specrt__block_thread(); i < n_fresh; i += specrt__block_threads())
        specrt__pool_place(s, s->changed[i], i < n_holes ? s->holes[i] : n_rows + i - n_holes, i);
    if (end < n_rows) {
        specrt__pool_move(s, end, n_fresh);
        n_fresh = n_holes;
    }
    if (specrt__block_thread() != 0) return;
    s->n_refused += n_entering > n_free ? n_entering - n_free : 0;
    s->n_changed = 0;
    s->n_rows = end;
    s->n_fresh = n_fresh;
    s->n_copied += n_fresh;
}

/* --- the host's wishes --- */

/* The host's numbers of wishes posted and taken: thread 0's, who asks for them before anything else, since
 * they come from the host's memory, and needs them last. */
typedef struct specrt__pool_posts {
    uint32_t posted, taken;
} specrt__pool_posts;

static __device__ specrt__pool_posts specrt__pool_ask(const specrt_cuda_state *s) {
    specrt__pool_posts posts = {0, 0};
    volatile specrt__cuda_mailbox *mailbox = s->mailbox;
    if (!mailbox || specrt__block_thread() > 0) return posts;
    posts.posted = mailbox->posted;
    posts.taken = mailbox->taken;
    return posts;
}

/* One kind of wish: the last about a token holds.
 *   ids [n] : -1: a wish that is passed over;  bits [n] : the bit, and 256 to set it */
static __device__ __noinline__ void specrt__pool_take_bit(specrt_cuda_state *s, const int32_t *ids,
                                                          const int32_t *bits, int32_t n, int bit) {
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        if (ids[i] >= 0 && (bits[i] & 255) == bit) atomicMax(&s->marks[ids[i]], i);
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? ids[i] : -1;
        if (id >= 0 && s->marks[id] != i) id = -1;
        specrt__pool_change(s, id, bit, i < n && bits[i] >> 8 ? bit : 0);
    }
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        if (ids[i] >= 0) atomicMin(&s->marks[ids[i]], -1);
    __syncthreads();
}

/* What the host posted since the last cycle. */
static __device__ void specrt__pool_take(specrt_cuda_state *s, specrt__pool_posts posts) {
    __shared__ specrt__pool_posts shared;
    int32_t *ids = specrt__pool_batch(), *bits = ids + SPECRT__CUDA_CHANGES;
    if (!s->mailbox) return;
    if (specrt__block_thread() == 0) {
        shared = posts;
        if (posts.posted != posts.taken) __threadfence_system();
    }
    __syncthreads();
    uint32_t n = shared.posted - shared.taken;
    if (n == 0 || n > SPECRT__CUDA_CHANGES) return;
    for (uint32_t i = (uint32_t)specrt__block_thread(); i < n; i += blockDim.x) {
        const volatile specrt__cuda_change *c =
            &s->mailbox->changes[(shared.taken + i) % SPECRT__CUDA_CHANGES];
        int32_t id = c->id, bit = c->bit, on = c->on;
        ids[i] = specrt__pool_valid(s, id) ? id : -1;
        bits[i] = bit | (on != 0) << 8;
    }
    __syncthreads();
    specrt__pool_take_bit(s, ids, bits, (int32_t)n, SPECRT__CUDA_PINNED);
    specrt__pool_take_bit(s, ids, bits, (int32_t)n, SPECRT__CUDA_RETRIEVE);
    if (specrt__block_thread() == 0) {
        __threadfence_system();
        ((volatile specrt__cuda_mailbox *)s->mailbox)->taken = posts.posted;
    }
}

// >>window : src/cuda/window.cuh
/* window.cuh : owns, on the device, the window, as window.c does on the host. One block a session: it takes
 * what the host posted, moves the window by a whole batch of tokens at once, fills up, gives slots and lists
 * the rows that must be packed.
 *
 * The window is a list of distinct tokens, oldest first. Pushing tokens one after another leaves the last
 * `size` distinct ones by last occurrence, whatever was evicted in between. So a batch needs no order of
 * steps. For a window of 5, and the batch f c f g:
 *
 *     list            a  b  c  d  e       of the batch, last occurrences:  c  f  g   are marked
 *     not marked      a  b     d  e       their ranks are 0 1 2 3
 *     too many        4 + 3 - 5 = 2       ranks below 2 leave: a and b
 *     place           rank - 2            d  e
 *     behind them     the batch           d  e  c  f  g
 *
 * Ranks are prefix sums over the block, in the order of list and batch. They take the place of the sequence
 * numbers by which an LRU evicts: it is exact, nothing is locked, and nothing depends on the order that
 * threads run in.
 *
 * What takes time is looking up one thing after another, not how many: the state itself and the batch lie
 * in shared memory while a kernel runs, and slots are given by the list of tokens that changed. */

/* --- pushing --- */

/* What lies in [p, p + bytes) is needed soon. */
static __device__ void specrt__window_fetch(const void *p, int32_t bytes) {
    for (int32_t i = 128 * specrt__block_thread(); i < bytes; i += 128 * specrt__block_threads())
        specrt__launch_prefetch((const char *)p + i);
}

/* All that a cycle looks up comes at once, not one after another as it is asked for: what the target
 * read since the last cycle left nothing of it in a cache. */
static __device__ void specrt__window_fetch_all(const specrt_cuda_state *s,
                                                const specrt_cuda_draft *draft,
                                                const specrt_verdict *verdict, const int32_t *best,
                                                int32_t stride) {
    specrt__window_fetch(draft, (int32_t)sizeof *draft);
    specrt__window_fetch(verdict, (int32_t)sizeof *verdict);
    if (best) specrt__window_fetch(best, SPECRT_TREE_MAX_NODES * stride * (int32_t)sizeof *best);
    for (int32_t i = specrt__block_thread(); i < s->n_list; i += specrt__block_threads()) {
        int32_t id = s->list[i];
        specrt__launch_prefetch(&s->marks[id]);
        specrt__launch_prefetch(&s->wants[id]);
        if (i < specrt__block_threads()) specrt__launch_prefetch(&s->slots[id]); /* it may leave */
    }
}

/* Of the batch the valid tokens, or with `listed` their last occurrences, move to its front in order, and
 * marks tell the place of each.
 *   listed : a bit of wants; 0: all occurrences
 *   *n_listed : how many of the tokens that are kept have it
 * @return how many are kept. */
static __device__ int32_t specrt__window_gather(specrt_cuda_state *s, int32_t n, int listed,
                                                int32_t *n_listed) {
    int32_t n_kept = 0, *batch = specrt__pool_batch();
    *n_listed = 0;
    for (int32_t i = specrt__block_thread(); i < n && listed; i += specrt__block_threads()) {
        int32_t id = batch[i];
        if (id >= 0 && id < s->params.n_ids) specrt__launch_prefetch(&s->slots[id]);
        if (specrt__pool_valid(s, id)) atomicMax(&s->marks[id], i);
    }
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? batch[i] : -1, before;
        bool keep = specrt__pool_valid(s, id) && (!listed || s->marks[id] == i);
        *n_listed += __syncthreads_count(keep && (s->wants[id] & listed));
        int32_t n_here = specrt__block_rank(keep, &before);
        if (keep) batch[n_kept + before] = id;
        n_kept += n_here;
    }
    __syncthreads();
    return n_kept;
}

static __device__ void specrt__window_unmark(specrt_cuda_state *s, const int32_t *ids, int32_t n) {
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        atomicMin(&s->marks[ids[i]], -1); /* places of one token all write it */
    __syncthreads();
}

/* The list's tokens from place `begin` on, as many as the block has places for, -1: marked, or beyond the
 * last. keep: which are tokens. */
static __device__ void specrt__window_unmarked(const specrt_cuda_state *s, int32_t begin,
                                               int32_t *ids, bool *keep) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        int32_t i = begin + specrt__block_place(SPECRT__POOL_EACH, j);
        ids[j] = i < s->n_list ? s->list[i] : -1;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        keep[j] = ids[j] >= 0 && s->marks[ids[j]] < 0;
        if (!keep[j]) ids[j] = -1;
    }
}

/* Of the list, tokens that are not marked close up, but for the n_evicted oldest of them, which leave. */
static __device__ void specrt__window_close_up(specrt_cuda_state *s, int32_t n_evicted, int drop) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_kept = 0, ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool keep[SPECRT__POOL_EACH];
    for (int32_t begin = 0; begin < s->n_list; begin += kEach * specrt__block_threads()) {
        specrt__window_unmarked(s, begin, ids, keep);
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(keep, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t place = n_kept + before[j] - n_evicted;
            if (!keep[j] || place < 0) continue;
            s->list[place] = ids[j];
            ids[j] = -1; /* it does not leave */
        }
        if (n_kept < n_evicted) specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, drop, 0);
        n_kept += n;
    }
    __syncthreads();
}

/* The batch's tokens to the new end of the list, as if pushed one after another. bit: of wants, that those
 * of the list have. Twin: specrt__window_touch. */
static __device__ __noinline__ void specrt__window_touch(specrt_cuda_state *s, int32_t n, int bit) {
    int32_t *batch = specrt__pool_batch(), n_again;
    int32_t n_new = specrt__window_gather(s, n, bit, &n_again);
    if (n_new == 0) return;
    int32_t n_old = s->n_list - n_again, n_evicted = n_old + n_new - s->list_size;
    int32_t skip = n_new > s->list_size ? n_new - s->list_size : 0;
    if (n_evicted < 0) n_evicted = 0;
    if (n_evicted > n_old) n_evicted = n_old;
    specrt__window_close_up(s, n_evicted, bit);
    n_old -= n_evicted;
    for (int32_t begin = skip; begin < n_new; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n_new ? batch[i] : -1;
        if (id >= 0) s->list[n_old + i - skip] = id;
        specrt__pool_change(s, id, 0, bit);
    }
    /* A window smaller than the batch: what it had of the batch's first tokens leaves too. */
    for (int32_t begin = 0; begin < skip; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        specrt__pool_change(s, i < skip ? batch[i] : -1, bit, 0);
    }
    specrt__window_unmark(s, batch, n_new);
    if (specrt__block_thread() == 0) s->n_list = n_old + n_new - skip;
    __syncthreads();
}

/* Place i of the stream's ring, from its oldest element. */
static __device__ int32_t *specrt__window_ring(const specrt_cuda_state *s, int32_t i) {
    int32_t left = s->params.size - s->ring_begin;
    return &s->ring[i < left ? s->ring_begin + i : i - left];
}

/* The oldest elements of the stream leave. */
static __device__ void specrt__window_forget(specrt_cuda_state *s, int32_t n) {
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        int32_t id = i < n ? *specrt__window_ring(s, i) : -1;
        bool last = id >= 0 && atomicSub(&s->counts[id], 1) == 1;
        specrt__pool_change(s, last ? id : -1, SPECRT__CUDA_WINDOW, 0);
    }
    if (specrt__block_thread() == 0) {
        s->ring_begin = n < s->params.size - s->ring_begin ? s->ring_begin + n
                                                           : n - (s->params.size - s->ring_begin);
        s->n_ring -= n;
    }
    __syncthreads();
}

/* Elements of the stream, valid ones, in order, which lose a bit. Twin: specrt__window_append, element by
 * element. */
static __device__ __noinline__ void specrt__window_append(specrt_cuda_state *s, const int32_t *ids,
                                                          int32_t n, int drop) {
    int32_t skip = n > s->params.size ? n - s->params.size : 0;
    ids += skip;
    n -= skip;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        atomicMax(&s->marks[ids[i]], i);
        atomicAdd(&s->counts[ids[i]], 1);
    }
    __syncthreads();
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n ? ids[i] : -1;
        specrt__pool_change(s, id >= 0 && s->marks[id] == i ? id : -1, drop, SPECRT__CUDA_WINDOW);
    }
    specrt__window_unmark(s, ids, n);
    if (s->n_ring + n > s->params.size) specrt__window_forget(s, s->n_ring + n - s->params.size);
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        *specrt__window_ring(s, s->n_ring + i) = ids[i];
    __syncthreads();
    if (specrt__block_thread() == 0) s->n_ring += n;
    __syncthreads();
}

/* The batch, element by element. Twin: specrt__window_push. */
static __device__ void specrt__window_push(specrt_cuda_state *s, int32_t n) {
    int32_t n_listed, *batch = specrt__pool_batch();
    if (s->params.mode == SPECRT__WINDOW_LRU) {
        specrt__window_touch(s, n, SPECRT__CUDA_WINDOW);
        return;
    }
    n = specrt__window_gather(s, n, 0, &n_listed);
    specrt__window_append(s, batch, n, 0);
}

/* The batch as part of a set. Twin: specrt__window_add. */
static __device__ void specrt__window_add(specrt_cuda_state *s, int32_t n) {
    if (s->params.mode == SPECRT__WINDOW_STREAM)
        specrt__window_touch(s, n, SPECRT__CUDA_LISTED);
    else
        specrt__window_push(s, n);
}

/* The set is complete. Twin: specrt__window_flush. */
static __device__ void specrt__window_flush(specrt_cuda_state *s) {
    if (s->params.mode != SPECRT__WINDOW_STREAM) return;
    specrt__window_append(s, s->list, s->n_list, SPECRT__CUDA_LISTED);
    if (specrt__block_thread() == 0) s->n_list = 0;
    __syncthreads();
}

/* --- the least number of rows --- */

static __device__ int32_t specrt__window_frequent(const specrt_cuda_state *s, int32_t rank) {
    return s->params.frequent ? s->params.frequent[rank] : rank;
}

/* The tokens by frequency at ranks [begin, end), as many as the block has places for; -1: none. */
static __device__ void specrt__window_ranked(const specrt_cuda_state *s, int32_t begin, int32_t end,
                                             int32_t *ids) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++) {
        int32_t rank = begin + specrt__block_place(SPECRT__POOL_EACH, j);
        ids[j] = rank < end ? specrt__window_frequent(s, rank) : -1;
    }
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__POOL_EACH; j++)
        if (!specrt__pool_valid(s, ids[j])) ids[j] = -1;
}

/* Whether nobody but the prefix wants a token. */
static __device__ bool specrt__window_alone(const specrt_cuda_state *s, int32_t id) {
    return !(s->wants[id] & (SPECRT__CUDA_FIXED | (SPECRT__CUDA_PACKED & ~(int)SPECRT__CUDA_FILL)));
}

/* The last of the prefix leave, down to one without which there were too few rows; n_spare: more rows than
 * the least number. */
static __device__ __noinline__ void specrt__window_shrink(specrt_cuda_state *s, int32_t n_spare) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_fill = s->n_fill, n_before, ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool alone[SPECRT__POOL_EACH];
    for (int32_t n_staying = 0; n_fill > 0 && n_staying == 0;) {
        int32_t begin = n_fill - specrt__pool_least(n_fill, kEach * specrt__block_threads());
        int32_t n_mine = 0;
        specrt__window_ranked(s, begin, n_fill, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) alone[j] = ids[j] >= 0 && specrt__window_alone(s, ids[j]);
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(alone, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool stays = before[j] < n - n_spare;
            n_mine += stays && begin + specrt__block_place(kEach, j) < n_fill;
            if (stays) ids[j] = -1;
        }
        specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, SPECRT__CUDA_FILL, 0);
        n_staying = specrt__block_scan(n_mine, &n_before);
        n_fill = begin + n_staying;
        n_spare -= n;
    }
    if (specrt__block_thread() == 0) s->n_fill = n_fill;
    __syncthreads();
}

/* Further tokens by frequency, until the least number of rows is reached. */
static __device__ __noinline__ void specrt__window_grow(specrt_cuda_state *s) {
    const int kEach = SPECRT__POOL_EACH;
    int32_t n_missing = s->params.min - s->n_fixed - s->n_wanted, n_fill = s->n_fill, n_before;
    int32_t ids[SPECRT__POOL_EACH], before[SPECRT__POOL_EACH];
    bool gains[SPECRT__POOL_EACH];
    if (n_fill >= s->params.n_frequent) return; /* nothing is written that others are reading */
    while (n_missing > 0 && n_fill < s->params.n_frequent) {
        int32_t n_taken = 0;
        specrt__window_ranked(s, n_fill, s->params.n_frequent, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            gains[j] =
                ids[j] >= 0 && !(s->wants[ids[j]] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED));
        int32_t n = specrt__block_ranks<SPECRT__POOL_EACH>(gains, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t rank = n_fill + specrt__block_place(kEach, j);
            bool taken = rank < s->params.n_frequent && before[j] < n_missing;
            n_taken += taken;
            if (!taken) ids[j] = -1;
        }
        specrt__pool_change_all<SPECRT__POOL_EACH>(s, ids, 0, SPECRT__CUDA_FILL);
        n_fill += specrt__block_scan(n_taken, &n_before);
        n_missing -= n;
    }
    if (specrt__block_thread() == 0) s->n_fill = n_fill;
    __syncthreads();
}

/* The shortest prefix of the tokens by frequency that reaches the least number of rows, found from the prefix
 * before, which mostly is the one. Twin: specrt__window_fill. */
static __device__ void specrt__window_fill(specrt_cuda_state *s) {
    __syncthreads();
    int32_t n_spare = s->n_fixed + s->n_wanted - s->params.min, n_fill = s->n_fill;
    int32_t last = n_fill > 0 ? specrt__window_frequent(s, n_fill - 1) : -1;
    bool fits = n_spare == 0 && specrt__pool_valid(s, last) && specrt__window_alone(s, last);
    __syncthreads();
    if (n_spare >= 0 && n_fill > 0 && !fits) specrt__window_shrink(s, n_spare);
    if (n_spare < 0) specrt__window_grow(s);
}

/* --- what is pushed --- */

/* Rows [begin, begin + n) of the target's best tokens, k a row, as a batch; tokens, when given, each before
 * its row. */
static __device__ int32_t specrt__window_read(const int32_t *tokens, const int32_t *best,
                                              int32_t stride, int32_t begin, int32_t n, int32_t k) {
    int32_t with = tokens ? 1 : 0, width = k + with, *batch = specrt__pool_batch();
    for (int32_t i = specrt__block_thread(); i < n * width; i += specrt__block_threads()) {
        int32_t row = begin + i / width, j = i % width - with;
        batch[i] = j < 0 ? tokens[row] : best[(int64_t)row * stride + j];
    }
    __syncthreads();
    return n * width;
}

/* Twin: specrt__window_prefill. */
static __device__ void specrt__window_learn(specrt_cuda_state *s, const int32_t *tokens, int32_t n,
                                            const int32_t *best, int32_t stride) {
    int32_t k = best ? specrt__pool_least(s->params.kpre, stride) : 0;
    int32_t step = SPECRT__POOL_BATCH / (k + 1);
    bool stream = s->params.mode == SPECRT__WINDOW_STREAM;
    if (n < 1) return;
    if (specrt__block_thread() < k)
        s->seed[specrt__block_thread()] = best[(int64_t)(n - 1) * stride + specrt__block_thread()];
    if (specrt__block_thread() == 0) s->n_seed = k;
    for (int32_t begin = 0; begin < n && s->params.only != SPECRT__WINDOW_EXT; begin += step) {
        int32_t here = specrt__pool_least(step, n - begin);
        int32_t with = stream ? 0 : k;
        specrt__window_push(s, specrt__window_read(tokens, best, stride, begin, here, with));
        if (!stream || k == 0) continue;
        specrt__window_add(s, specrt__window_read(NULL, best, stride, begin, here, k));
    }
    __syncthreads();
}

/* Twin: specrt__window_start. */
static __device__ void specrt__window_root(specrt_cuda_state *s, int32_t token) {
    int32_t *batch = specrt__pool_batch();
    if (s->params.only == SPECRT__WINDOW_EXT) {
        int32_t n = s->n_seed;
        for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
            batch[i] = s->seed[i];
        __syncthreads();
        specrt__window_add(s, n);
    }
    specrt__window_flush(s);
    if (!s->params.emitted || s->params.only == SPECRT__WINDOW_CTX) return;
    if (specrt__block_thread() == 0) batch[0] = token;
    __syncthreads();
    specrt__window_push(s, 1);
}

/* The verified positions' best tokens, behind n_batch others. A node out of range gives none. */
static __device__ int32_t specrt__window_read_nodes(specrt_cuda_state *s,
                                                    const specrt_cuda_draft *draft,
                                                    const specrt_verdict *verdict,
                                                    const int32_t *best, int32_t stride,
                                                    int32_t n_batch) {
    bool tree = s->params.positions == SPECRT__WINDOW_POSITIONS_TREE;
    int32_t k = best ? specrt__pool_least(s->params.kver, stride) : 0;
    int32_t first = s->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? verdict->n - 1 : 0;
    int32_t n = (tree ? draft->n : verdict->n - first) * k;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t row = first + i / k, node = tree ? row : verdict->nodes[row];
        bool known = node >= 0 && node < draft->n;
        specrt__pool_batch()[n_batch + i] = known ? best[(int64_t)node * stride + i % k] : -1;
    }
    __syncthreads();
    return n;
}

/* The batch is a set of a stream. @return 0, tokens of the next. */
static __device__ int32_t specrt__window_end(specrt_cuda_state *s, int32_t n) {
    specrt__window_add(s, n);
    specrt__window_flush(s);
    return 0;
}

/* A stream takes sets one by one; other windows are the same when all that is pushed comes at once. Twin:
 * specrt__window_observe. */
static __device__ void specrt__window_follow(specrt_cuda_state *s, const specrt_cuda_draft *draft,
                                             const specrt_verdict *verdict, const int32_t *best,
                                             int32_t stride) {
    bool sets = s->params.mode == SPECRT__WINDOW_STREAM;
    int32_t n = draft->n - 1, n_emitted = s->params.emitted ? verdict->n : 0;
    int32_t *batch = specrt__pool_batch();
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads())
        batch[i] = draft->tokens[i + 1];
    __syncthreads();
    if (sets) n = specrt__window_end(s, n);
    n += specrt__window_read_nodes(s, draft, verdict, best, stride, n);
    if (sets) n = specrt__window_end(s, n);
    for (int32_t i = specrt__block_thread(); i < n_emitted; i += specrt__block_threads())
        batch[n + i] = verdict->tokens[i];
    __syncthreads();
    specrt__window_push(s, n + n_emitted);
}

/* --- kernels: block i is session i, of any multiple of 32 threads --- */

/* Everything is forgotten but INVALID, FIXED and, where that is kept, RETRIEVE; pinned i32 [n_pinned] are
 * wanted and get slots. Twin: specrt_session_begin. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_begin_kernel(specrt_cuda_state *states, const int32_t *pinned,
                                int32_t n_pinned) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    int keep = SPECRT__CUDA_INVALID | SPECRT__CUDA_FIXED;
    if (s->params.keep) keep |= SPECRT__CUDA_RETRIEVE;
    for (int32_t i = specrt__block_thread(); i < s->params.n_ids; i += specrt__block_threads()) {
        s->wants[i] &= (uint8_t)keep;
        s->slots[i] = s->marks[i] = -1;
        if (s->params.mode == SPECRT__WINDOW_STREAM) s->counts[i] = 0;
    }
    if (specrt__block_thread() == 0) {
        s->n_wanted = s->n_rows = s->n_fresh = s->n_changed = s->n_refused = 0;
        s->n_list = s->ring_begin = s->n_ring = s->n_seed = s->n_fill = 0;
        s->n_copied = 0;
    }
    __syncthreads();
    for (int32_t begin = 0; begin < s->params.n_ids && s->params.keep;
         begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread();
        bool kept = i < s->params.n_ids && (s->wants[i] & SPECRT__CUDA_RETRIEVE);
        if (kept) s->wants[i] &= (uint8_t)~SPECRT__CUDA_RETRIEVE; /* it enters again */
        specrt__pool_change(s, kept ? i : -1, 0, SPECRT__CUDA_RETRIEVE);
    }
    for (int32_t begin = 0; begin < n_pinned; begin += specrt__block_threads()) {
        int32_t i = begin + specrt__block_thread(), id = i < n_pinned ? pinned[i] : -1;
        specrt__pool_change(s, id < s->params.n_ids ? id : -1, 0, SPECRT__CUDA_PINNED);
    }
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* tokens i32 [n_batch, max_n], of which ns[i] count; best i32 [n_batch, max_n, k] or NULL.
 * Twin: specrt_session_prefill. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_prefill_kernel(specrt_cuda_state *states, const int32_t *tokens,
                                  const int32_t *ns, int32_t max_n, const int32_t *best,
                                  int32_t k) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    int32_t n = specrt__pool_least(ns[blockIdx.x], max_n);
    int64_t at = (int64_t)blockIdx.x * max_n;
    if (s->params.size == 0) return;
    specrt__window_learn(s, tokens + at, n, best ? best + at * k : NULL, k);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* verdicts [n_batch], an empty one: that session rests. Twin: specrt_session_start. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_start_kernel(specrt_cuda_state *states, const specrt_verdict *verdicts) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    const specrt_verdict *verdict = &verdicts[blockIdx.x];
    if (verdict->n < 1) return;
    specrt__pool_posts posts = specrt__pool_ask(s);
    int32_t token = verdict->tokens[specrt__pool_least(verdict->n, SPECRT_TREE_MAX_NODES) - 1];
    if (s->params.size > 0) specrt__window_root(s, token);
    specrt__pool_take(s, posts);
    if (s->params.size > 0) specrt__window_fill(s);
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* drafts, verdicts [n_batch], an empty verdict: that session rests; best i32 [n_batch,
 * SPECRT_TREE_MAX_NODES, k] or NULL. Twin: specrt_session_observe. */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__window_observe_kernel(specrt_cuda_state *states, const specrt_cuda_draft *drafts,
                                  const specrt_verdict *verdicts, const int32_t *best, int32_t k) {
    specrt_cuda_state *s = specrt__pool_open(&states[blockIdx.x]);
    const specrt_verdict *verdict = &verdicts[blockIdx.x];
    if (best) best += (int64_t)blockIdx.x * SPECRT_TREE_MAX_NODES * k;
    specrt__window_fetch_all(s, &drafts[blockIdx.x], verdict, best, k);
    if (verdict->n < 1) return;
    specrt__pool_posts posts = specrt__pool_ask(s);
    bool fills = s->params.size > 0;
    if (fills && s->params.only != SPECRT__WINDOW_CTX)
        specrt__window_follow(s, &drafts[blockIdx.x], verdict, best, k);
    specrt__pool_take(s, posts);
    if (fills) specrt__window_fill(s);
    specrt__pool_sync(s);
    specrt__pool_close(s, &states[blockIdx.x]);
}

/* --- launches --- */

static inline specrt_status specrt__window_check(int32_t n_batch, const void *states) {
    return states && n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH ? SPECRT_STATUS_OK
                                                                       : SPECRT_STATUS_BAD_ARG;
}

static inline specrt_status specrt__window_check_choice(const specrt__cuda_choice *c) {
    return c && c->ids && c->places && c->n_rows && c->max_rows >= 1 ? SPECRT_STATUS_OK
                                                                     : SPECRT_STATUS_BAD_ARG;
}

static bool specrt__window_params_ok(const specrt__cuda_state_params *p) {
    if (!p || p->n_ids < 1 || p->n_ids > SPECRT_MAX_VOCAB) return false;
    if (p->capacity < 0 || p->capacity > p->n_ids) return false;
    if (p->size == 0) return true;
    return p->size > 0 && p->size <= SPECRT_MAX_VOCAB && p->mode >= SPECRT__WINDOW_LRU &&
           p->mode <= SPECRT__WINDOW_STREAM && p->positions >= SPECRT__WINDOW_POSITIONS_ALL &&
           p->positions <= SPECRT__WINDOW_POSITIONS_TREE && p->only >= SPECRT__WINDOW_BOTH &&
           p->only <= SPECRT__WINDOW_EXT && p->kpre >= 0 && p->kpre <= SPECRT__WINDOW_MAX_K &&
           p->kver >= 0 && p->kver <= SPECRT__WINDOW_MAX_K && p->n_frequent >= 0 &&
           (p->frequent || p->n_frequent <= p->n_ids);
}

/* The bytes that the arrays of a state take; they lie in memory, if there is some. */
static size_t specrt__window_lay_out(void *memory, specrt_cuda_state *s) {
    const specrt__cuda_state_params *p = &s->params;
    size_t n = (size_t)p->n_ids, m = (size_t)p->capacity;
    bool stream = p->size > 0 && p->mode == SPECRT__WINDOW_STREAM;
    specrt__launch_arena arena = {memory, 0};
    s->list_size = p->size < p->n_ids ? p->size : p->n_ids;
    specrt__launch_carve(&arena, n, &s->wants);
    specrt__launch_carve(&arena, n, &s->slots);
    specrt__launch_carve(&arena, n, &s->changed);
    specrt__launch_carve(&arena, n, &s->marks);
    specrt__launch_carve(&arena, m, &s->ids);
    specrt__launch_carve(&arena, m, &s->fresh);
    specrt__launch_carve(&arena, m, &s->holes);
    specrt__launch_carve(&arena, (size_t)s->list_size, &s->list);
    specrt__launch_carve(&arena, stream ? (size_t)p->size : 0, &s->ring);
    specrt__launch_carve(&arena, stream ? n : 0, &s->counts);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_state_bytes(const specrt__cuda_state_params *params) {
    specrt_cuda_state s;
    if (!specrt__window_params_ok(params)) return 0;
    s.params = *params;
    return specrt__window_lay_out(NULL, &s);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_place(const specrt__cuda_state_params *params,
                                                      void *memory, specrt_cuda_state *out) {
    if (!memory || !out || !specrt__window_params_ok(params)) return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(out, 1);
    out->params = *params;
    specrt__window_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_state_begin(int32_t n_batch, const int32_t *pinned,
                                                      int32_t n_pinned, specrt_cuda_state *states,
                                                      void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (n_pinned < 0 || (n_pinned > 0 && !pinned)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_begin_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, pinned,
                          n_pinned);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_prefill(int32_t n_batch, const int32_t *tokens,
                                                        const int32_t *n, int32_t max_n,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!tokens || !n || max_n < 1 || (best && k < 1)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_prefill_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, tokens, n,
                          max_n, best, k);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_start(int32_t n_batch,
                                                      const specrt_verdict *verdicts,
                                                      specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!verdicts) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_start_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_state_observe(int32_t n_batch,
                                                        const specrt_cuda_draft *drafts,
                                                        const specrt_verdict *verdicts,
                                                        const int32_t *best, int32_t k,
                                                        specrt_cuda_state *states, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, states));
    if (!drafts || !verdicts || (best && k < 1)) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__window_observe_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__POOL_THREADS), 0, stream, states, drafts,
                          verdicts, best, k);
}

// >>cluster : src/cuda/cluster.cuh
/* cluster.cuh : owns, on the device, the choice of clusters: what the router reads, its layers,
 * probabilities and which clusters a level takes. A cluster's rank is how many are better, so clusters
 * stand in order whoever counts first; the taken ones become rows of one segment. */

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

// >>successor : src/cuda/successor.cuh
/* successor.cuh : owns, on the device, the tokens that likeliest follow those of a level. One block a
 * sequence reads the rows of the level all at once, a warp a row; then sums of scores are taken row by
 * row, in the twin's order. */

enum { SPECRT__SUCCESSOR_THREADS = 512 }; /* a warp for each row of a level, up to 16 */

/* Scratch of sequences. */
typedef struct specrt__successor_scratch {
    int32_t degree; /* places of a row of the level */
    uint64_t *keys; /* [n_batch, max_n * degree] */
    uint64_t *best; /* [n_batch, size] */
    int32_t *ids;   /* [n_batch, max_n * degree] new successors of each row; -1: no more */
    float *scores;  /* likewise */
} specrt__successor_scratch;

/* What a level is asked with. */
typedef struct specrt__successor_query {
    specrt__cuda_cograph graph;
    const specrt_cuda_state *state;
    const uint32_t *levels;
    int32_t level, degree;
    int32_t *ids; /* of the sequence, as in its scratch */
    float *scores;
} specrt__successor_query;

/* Whether a token would be a new row at this level. */
static __device__ bool specrt__successor_is_new(const specrt__successor_query *q, int32_t id) {
    if (!specrt__pool_valid(q->state, id)) return false;
    if (q->state->wants[id] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED)) return false;
    return !q->levels || !(q->levels[id] >> q->level & 1);
}

/* The first new successors of a token, which are distinct, on a path of this probability, to the places of
 * its row. A warp calls. Twin: specrt__successor_add. */
static __device__ void specrt__successor_read(const specrt__successor_query *q, int32_t row,
                                              int32_t token, float weight) {
    int32_t lane = specrt__block_thread() % 32, n_new = 0;
    bool known = token >= 0 && token < q->graph.n_vocab;
    uint32_t first = known ? q->graph.offsets[token] : 0;
    uint32_t end = known ? q->graph.offsets[token + 1] : 0;
    float scale = end > first ? weight / (float)q->graph.totals[token] : 0;
    int32_t *ids = q->ids + (int64_t)row * q->degree;
    float *scores = q->scores + (int64_t)row * q->degree;
    for (; first < end && n_new < q->degree; first += 32) {
        uint32_t edge = first + (uint32_t)lane;
        int32_t id = edge < end ? q->graph.ids[edge] : -1;
        float score = edge < end ? scale * (q->graph.counts[edge] - 0.5f) : 0;
        bool is_new = id >= 0 && specrt__successor_is_new(q, id);
        unsigned ballot = __ballot_sync(0xffffffffu, is_new);
        int32_t place = n_new + __popc(ballot & ((1u << lane) - 1));
        if (is_new && place < q->degree) {
            ids[place] = id;
            scores[place] = score > FLT_MIN ? score : FLT_MIN;
        }
        n_new += __popc(ballot);
    }
    for (int32_t place = n_new + lane; place < q->degree; place += 32) ids[place] = -1;
}

/* The first place of each token gets its scores of all rows, in their order; what comes later has -2 - that
 * place for its id. */
static __device__ void specrt__successor_merge(const specrt__successor_query *q, int32_t n) {
    int32_t n_places = n * q->degree, thread = specrt__block_thread();
    unsigned *marks = (unsigned *)q->state->marks;
    for (int32_t i = thread; i < n_places; i += specrt__block_threads())
        if (q->ids[i] >= 0) atomicMin(&marks[q->ids[i]], (unsigned)i);
    __syncthreads();
    for (int32_t i = thread; i < n_places; i += specrt__block_threads()) {
        int32_t place = q->ids[i] >= 0 ? (int32_t)marks[q->ids[i]] : i;
        if (place != i) q->ids[i] = -2 - place;
    }
    __syncthreads();
    for (int32_t row = 1; row < n; row++) {
        int32_t end = (row + 1) * q->degree;
        for (int32_t i = end - q->degree + thread; i < end; i += specrt__block_threads()) {
            int32_t place = -2 - q->ids[i];
            if (place >= 0) q->scores[place] = __fadd_rn(q->scores[place], q->scores[i]);
        }
        __syncthreads();
    }
}

/* Keys of the tokens that were found, in the order of finding. @return how many. */
static __device__ int32_t specrt__successor_keys(const specrt__successor_query *q, int32_t n_places,
                                                 uint64_t *keys) {
    int32_t each = (n_places + specrt__block_threads() - 1) / specrt__block_threads();
    int32_t first = each * specrt__block_thread(), n = 0, place;
    int32_t end = specrt__pool_least(first + each, n_places);
    for (int32_t i = first; i < end; i++) n += q->ids[i] >= 0;
    int32_t n_found = specrt__block_scan(n, &place);
    for (int32_t i = first; i < end; i++) {
        int32_t id = q->ids[i];
        if (id < 0) continue;
        keys[place++] = (uint64_t)__float_as_uint(q->scores[i]) << 32 | (uint32_t)~id;
        q->state->marks[id] = -1;
    }
    __syncthreads();
    return n_found;
}

/* Block b: the best `size` over all tokens of sequence b's level.
 *   grid (n_batch), any block.
 *   Twins: specrt__successor_union, and specrt__successor_chain for one row, whose result it has */
static __global__ void
specrt__successor_kernel(specrt__cuda_cograph graph, int32_t max_n, const int32_t *row_of,
                         const specrt_cuda_beam *beams, specrt__cuda_taken taken,
                         specrt__successor_scratch s, specrt__cuda_choice c) {
    const specrt_cuda_beam *beam = &beams[blockIdx.x];
    int64_t at = (int64_t)blockIdx.x * max_n * s.degree, out = (int64_t)blockIdx.x * c.max_rows;
    const specrt_cuda_state *state = &taken.states[blockIdx.x];
    const uint32_t *levels = taken.levels;
    if (levels) levels += (int64_t)blockIdx.x * state->params.n_ids;
    specrt__successor_query q = {graph,    state,      levels,       taken.level,
                                 s.degree, s.ids + at, s.scores + at};
    int32_t n = specrt__pool_least(beam->n, max_n), n_warps = specrt__block_threads() / 32;
    for (int32_t i = specrt__block_thread() / 32; i < n; i += n_warps)
        specrt__successor_read(&q, i, beam->tokens[i], expf(beam->logprobs[i] - beam->logprobs[0]));
    __syncthreads();
    specrt__successor_merge(&q, n);
    int32_t n_found = specrt__successor_keys(&q, n * s.degree, s.keys + at);
    uint64_t least = specrt__shortlist_least(s.keys + at, n_found, c.max_rows);
    n_found = specrt__shortlist_collect(s.keys + at, n_found, c.max_rows, least, s.best + out);
    for (int32_t i = specrt__block_thread(); i < n_found; i += specrt__block_threads()) {
        int32_t id = specrt__shortlist_key_id(s.best[out + i]);
        c.ids[out + i] = id;
        c.places[out + i] = row_of ? row_of[id] : id;
        specrt__pool_name(taken, (int32_t)blockIdx.x, state->params.n_ids, id);
    }
    if (specrt__block_thread() > 0) return;
    c.n_rows[blockIdx.x] = n_found;
    specrt__pool_tally(taken, (int32_t)blockIdx.x, n, n_found);
}

/* --- launches --- */

static size_t specrt__successor_lay_out(const specrt__cuda_cograph *graph, int32_t n_batch,
                                        int32_t max_n, int32_t size, void *memory,
                                        specrt__successor_scratch *out) {
    out->degree = graph->max_degree < size ? (int32_t)graph->max_degree : size;
    size_t n = (size_t)n_batch * (size_t)max_n * (size_t)out->degree;
    specrt__launch_arena arena = {memory, 0};
    specrt__launch_carve(&arena, n, &out->keys);
    specrt__launch_carve(&arena, (size_t)n_batch * (size_t)size, &out->best);
    specrt__launch_carve(&arena, n, &out->ids);
    specrt__launch_carve(&arena, n, &out->scores);
    return arena.bytes;
}

static bool specrt__successor_sizes_ok(const specrt__cuda_cograph *graph, int32_t n_batch,
                                       int32_t max_n, int32_t size) {
    return graph && n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH && max_n >= 1 &&
           max_n <= SPECRT_TREE_MAX_TOPK && graph->n_vocab >= 1 &&
           graph->n_vocab <= SPECRT_MAX_VOCAB && size >= 1 && size <= graph->n_vocab &&
           graph->max_degree >= 1;
}

SPECRT__KERNEL size_t specrt__cuda_successors_bytes(const specrt__cuda_cograph *graph,
                                                    int32_t n_batch, int32_t max_n, int32_t size) {
    specrt__successor_scratch scratch;
    if (!specrt__successor_sizes_ok(graph, n_batch, max_n, size)) return 0;
    return specrt__successor_lay_out(graph, n_batch, max_n, size, NULL, &scratch);
}

SPECRT__KERNEL specrt_status specrt__cuda_successors(
    const specrt__cuda_cograph *graph, int32_t n_batch, int32_t max_n, const int32_t *row_of,
    const specrt_cuda_beam *beams, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream) {
    specrt__successor_scratch s;
    SPECRT__TRY(specrt__window_check_choice(choice));
    if (!specrt__successor_sizes_ok(graph, n_batch, max_n, choice->max_rows))
        return SPECRT_STATUS_BAD_ARG;
    if (!graph->totals || !graph->offsets || !graph->ids || !graph->counts || !beams || !taken ||
        !taken->states || !scratch || taken->level < 0 || taken->level >= SPECRT_TREE_MAX_STEPS)
        return SPECRT_STATUS_BAD_ARG;
    specrt__successor_lay_out(graph, n_batch, max_n, choice->max_rows, scratch, &s);
    return SPECRT__LAUNCH(specrt__successor_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__SUCCESSOR_THREADS), 0, stream, *graph, max_n,
                          row_of, beams, *taken, s, *choice);
}

// >>scan : src/cuda/scan.cuh
/* scan.cuh : owns the scan of a sketch's records: projected states in 8 bits, and the pairs of bits of all
 * places times them. Where the CPU previews all places by signs, the device has the bandwidth for all
 * records. Sums are whole numbers, so that scores are the CPU's, bit for bit, given the same projection. */

enum {
    SPECRT__SCAN_GROUP = 16, /* places of a product */
    SPECRT__SCAN_WARPS = 8,
    SPECRT__SCAN_GROUPS = 4, /* of a warp, whose lines are read together */
    SPECRT__SCAN_SHIFT = 52, /* of keys, to their bin: sign, exponent and 3 bits of a score */
    SPECRT__SCAN_BINS = 1 << (64 - SPECRT__SCAN_SHIFT)
};

/* Scratch of a level; rows are n_batch * max_n states. */
typedef struct specrt__scan_level {
    float *z;        /* [rows, rank] */
    uint32_t *order; /* [rows, 16 n_groups] scores as numbers that order them; 0: not to be named */
    uint64_t *best;  /* [rows, n_groups] the greatest key of each group: order and name; or 0 */
    uint32_t *counts; /* [rows, SPECRT__SCAN_BINS] += groups by their best's */
    int32_t n_groups, max_n, n_step;
    const int32_t *n;         /* states of sequence b: n[b * n_step]; NULL: max_n */
    specrt__cuda_taken taken; /* who may not be named */
} specrt__scan_level;

static __device__ int32_t specrt__scan_count(const specrt__scan_level &level, int32_t b) {
    int32_t n = level.n ? level.n[(int64_t)b * level.n_step] : level.max_n;
    return n < level.max_n ? n : level.max_n;
}

/* Where a byte of a line's plane stands among the operands of a state: byte 16 t + 4 i + j of plane p is
 * byte j of a word for lane t, of product 4 i + p. */
template <int kTiles> static __device__ int32_t specrt__scan_operand(int32_t at, int32_t state) {
    int32_t line = at / 256, plane = at / 64 % 4, byte = at % 64;
    int32_t product = 16 * line + byte % 16 / 4 * 4 + plane;
    return 4 * ((product * kTiles + state / 8) * 32 + state % 8 * 4 + byte / 16) + byte % 4;
}

/* Where dimension k of a state lies among [n_lines, 4, 64].  Twin: specrt__scan_record_at() */
static __device__ int32_t specrt__scan_place_of(int32_t n_lines, int32_t k) {
    int32_t line = k / 256, width = line == n_lines - 1 ? 60 : 64, in_line = k - 256 * line;
    return 256 * line + in_line / width * 64 + in_line % width;
}

/* A state in 8 bits by one warp: z is about unit * q. What is not finite counts as 0.
 *   CPU twin: specrt__sketch_round()
 * @return the unit;  *sum : of q */
template <int kTiles>
static __device__ float specrt__scan_round(const float *z, const float *center, int32_t rank,
                                           int32_t state, int8_t *q, int32_t *sum) {
    int32_t lane = (int32_t)(threadIdx.x % 32), n_lines = (rank + 16) / 256, own = 0;
    float most = 0;
    for (int32_t i = lane; i < rank; i += 32) {
        float x = fabsf(__fsub_rn(z[i], center[i]));
        if (x <= FLT_MAX && x > most) most = x;
    }
    for (int by = 16; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, by);
        if (other > most) most = other;
    }
    float unit = __fdiv_rn(most, 127.0f), inverse = unit > 0 ? __fdiv_rn(1.0f, unit) : 0;
    for (int32_t i = lane; i < rank; i += 32) {
        float x = __fsub_rn(z[i], center[i]);
        int32_t rounded = __float2int_rn((fabsf(x) <= FLT_MAX ? x : 0.0f) * inverse);
        int32_t at = specrt__scan_place_of(n_lines, i);
        q[specrt__scan_operand<kTiles>(at, state)] = (int8_t)rounded;
        own += rounded;
    }
    for (int32_t i = lane; i < 16; i += 32) /* what meets scales and constants */
        q[specrt__scan_operand<kTiles>(256 * (n_lines - 1) + 64 * (i / 4) + 60 + i % 4, state)] = 0;
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(0xffffffffu, own, by);
    *sum = own;
    return unit;
}

/* A thread's two places, eight apart. */
typedef struct specrt__scan_two {
    int32_t first, names[2]; /* tokens; -1: not to be named */
    float scales[2], constants[2];
} specrt__scan_two;

/* The token of a place; -1: there is none, or sequence b has it already, or may not have it. */
static __device__ int32_t specrt__scan_token(const specrt__cuda_sketch &s,
                                             const specrt__scan_level &level, int32_t b,
                                             int32_t row) {
    const specrt__cuda_taken *taken = &level.taken;
    const specrt_cuda_state *state = taken->states ? &taken->states[b] : NULL;
    int32_t id = row < 0 || !s.ids ? row : s.ids[row];
    if (id < 0 || id >= (state ? state->params.n_ids : s.n_ids)) return -1;
    uint32_t held = state ? state->wants[id] % SPECRT__CUDA_CHANGED : 0;
    uint32_t routed =
        taken->levels ? taken->levels[(int64_t)b * s.n_ids + id] >> taken->level & 1 : 0;
    return held | routed ? -1 : id;
}

/* Four lanes that have the same places: two look up one each, the last one has their scales and constants. */
static __device__ void specrt__scan_look_up(const specrt__cuda_sketch &s,
                                            const specrt__scan_level &level, int32_t b,
                                            const uint32_t *ends, specrt__scan_two *two) {
    int32_t lane = (int32_t)(threadIdx.x % 32), place = two->first + lane % 2 * 8;
    int32_t row = place < s.n_places ? s.rows[place] : -1;
    int32_t name = specrt__scan_token(s, level, b, row);
    float bias = s.bias && row >= 0 ? s.bias[row] : 0.0f;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t end = __shfl_sync(0xffffffffu, ends[i], lane / 4 * 4 + 3);
        two->names[i] = __shfl_sync(0xffffffffu, name, lane / 4 * 4 + i);
        two->scales[i] = __uint_as_float(end << 16);
        two->constants[i] = __fadd_rn(__uint_as_float(end & 0xffff0000u),
                                      __shfl_sync(0xffffffffu, bias, lane / 4 * 4 + i));
    }
}

/* A line of 16 places times states. A lane has 16 bytes of rows lane / 4 and lane / 4 + 8.
 *   q : of the line, behind it as many for each lane */
template <int kTiles>
static __device__ void specrt__scan_line(uint4 low, uint4 high, const int32_t *q,
                                         int32_t (*sums)[4]) {
    uint32_t rows[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
    SPECRT__LAUNCH_UNROLL
    for (int product = 0; product < 16; product++) {
        uint32_t a = rows[0][product / 4] >> 2 * (product % 4) & 0x03030303u;
        uint32_t b = rows[1][product / 4] >> 2 * (product % 4) & 0x03030303u;
        SPECRT__LAUNCH_UNROLL
        for (int t = 0; t < kTiles; t++)
            specrt__launch_mma_s8(a, b, (uint32_t)q[(product * kTiles + t) * 32], sums[t]);
    }
}

/* Their scores for one state, and the greatest key of their group, which is counted. Lanes of the same rest
 * by four share a state and a group.
 *   sums : of pairs, twice, less three times the state's
 *   row  : the state's; below 0: nobody asks */
static __device__ void specrt__scan_put(const specrt__scan_level &level,
                                        const specrt__scan_two &two, float unit,
                                        const int32_t *sums, int64_t row) {
    uint32_t order[2];
    uint64_t greatest = 0;
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2; i++) {
        float score = __fmaf_rn((float)sums[i], __fmul_rn(unit, two.scales[i]), two.constants[i]);
        order[i] = specrt__shortlist_order(score);
        if (order[i] == 0) order[i] = 1; /* NaN: the last, as on the CPU */
        if (two.names[i] < 0) order[i] = 0;
        uint64_t key = (uint64_t)order[i] << 32 | (uint32_t)~two.names[i]; /* of none: 0 */
        if (key > greatest) greatest = key;
    }
    for (int by = 4; by < 32; by *= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, greatest, by);
        if (other > greatest) greatest = other;
    }
    if (row < 0) return;
    int64_t first = row * level.n_groups;
    uint32_t *out = level.order + SPECRT__SCAN_GROUP * first + two.first;
    out[0] = order[0];
    out[8] = order[1];
    if (two.first % SPECRT__SCAN_GROUP != 0) return;
    level.best[first + two.first / SPECRT__SCAN_GROUP] = greatest;
    if (greatest > 0)
        atomicAdd(
            &level.counts[row * SPECRT__SCAN_BINS + (int64_t)(greatest >> SPECRT__SCAN_SHIFT)], 1u);
}

/* 16 bytes of a line of a place's record; of places beyond, those of the last. */
static __device__ uint4 specrt__scan_load(const specrt__cuda_sketch &s, int32_t place,
                                          int32_t line) {
    int32_t n_lines = (s.rank + 16) / 256, last = s.n_places - 1;
    size_t at = (size_t)(place < last ? place : last) * (size_t)n_lines + (size_t)line;
    const uint4 *lines = (const uint4 *)(const void *)s.records + 4 * at;
    return specrt__launch_read_once(lines + threadIdx.x % 4);
}

/* Those of a lane's two places in each group of a warp. */
static __device__ void specrt__scan_load_all(const specrt__cuda_sketch &s, int32_t first,
                                             int32_t line, uint4 *low, uint4 *high) {
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < SPECRT__SCAN_GROUPS; g++) {
        low[g] = specrt__scan_load(s, first + SPECRT__SCAN_GROUP * g, line);
        high[g] = specrt__scan_load(s, first + SPECRT__SCAN_GROUP * g + 8, line);
    }
}

/* The scores of one group, which `two` stands in. */
template <int kTiles>
static __device__ void
specrt__scan_group(const specrt__scan_level &level, const specrt__scan_two &two, const float *units,
                   const int32_t *offsets, int32_t (*sums)[4], int32_t n, size_t row, bool beyond) {
    int32_t lane = (int32_t)(threadIdx.x % 32);
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < 2 * kTiles; i++) {
        int32_t h = i / 2 * 8 + lane % 4 * 2 + i % 2, column[2];
        if (i / 2 * 8 >= n) continue;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < 2; j++) column[j] = 2 * sums[i / 2][2 * j + i % 2] + offsets[h];
        specrt__scan_put(level, two, units[h], column, h < n && !beyond ? (int64_t)row + h : -1);
    }
}

/* Block (i, j, b): order[b, 8 kTiles * j + 0 : 8 kTiles, places of 32 groups] and their best. A warp takes
 * four groups, whose lines it reads together; four lanes read a line of a place.
 *   grid (n_groups / 32, max_n / (8 kTiles), n_batch), block 32 * SPECRT__SCAN_WARPS
 *   dynamic shared memory: q of the states, 2,048 kTiles bytes for each line of a record
 *   CPU twin: the pairs of specrt__scan_scalar */
template <int kTiles>
static __global__ void __launch_bounds__(32 * SPECRT__SCAN_WARPS, 2)
    specrt__scan_places(specrt__cuda_sketch s, specrt__scan_level level) {
    SPECRT__LAUNCH_DYNAMIC(int32_t, q);
    __shared__ float units[8 * kTiles];
    __shared__ int32_t offsets[8 * kTiles];
    const int32_t kGroups = SPECRT__SCAN_GROUPS;
    int32_t b = (int32_t)blockIdx.z, h0 = (int32_t)blockIdx.y * 8 * kTiles;
    int32_t n = specrt__scan_count(level, b) - h0, warp = (int32_t)(threadIdx.x / 32);
    int32_t lane = (int32_t)(threadIdx.x % 32), n_lines = (s.rank + 16) / 256;
    int32_t group = ((int32_t)blockIdx.x * SPECRT__SCAN_WARPS + warp) * kGroups;
    int32_t first = SPECRT__SCAN_GROUP * group + lane / 4, sums[kGroups][kTiles][4];
    size_t row = (size_t)b * (size_t)level.max_n + (size_t)h0;
    uint32_t ends[kGroups][2];
    uint4 low[kGroups], high[kGroups];
    if (n <= 0) return;
    specrt__scan_load_all(s, first, 0, low, high);
    for (int32_t h = warp; h < 8 * kTiles; h += SPECRT__SCAN_WARPS) {
        int32_t sum, state = h < n ? h : n - 1;
        float unit = specrt__scan_round<kTiles>(level.z + (row + (size_t)state) * (size_t)s.rank,
                                                s.center, s.rank, h, (int8_t *)q, &sum);
        if (lane == 0) units[h] = unit, offsets[h] = -3 * sum;
    }
    SPECRT__LAUNCH_UNROLL
    for (int i = 0; i < kGroups * kTiles * 4; i++)
        sums[i / (4 * kTiles)][i / 4 % kTiles][i % 4] = 0;
    __syncthreads();
    SPECRT__LAUNCH_UNROLL_BY(1)
    for (int32_t line = 0; line < n_lines; line++) {
        SPECRT__LAUNCH_UNROLL
        for (int g = 0; g < kGroups; g++) {
            specrt__scan_line<kTiles>(low[g], high[g], q + line * 16 * kTiles * 32 + lane, sums[g]);
            ends[g][0] = low[g].w;
            ends[g][1] = high[g].w;
        }
        if (line + 1 < n_lines) specrt__scan_load_all(s, first, line + 1, low, high);
    }
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < kGroups; g++) {
        specrt__scan_two two;
        two.first = first + SPECRT__SCAN_GROUP * g;
        specrt__scan_look_up(s, level, b, ends[g], &two);
        specrt__scan_group<kTiles>(level, two, units, offsets, sums[g], n, row,
                                   group + g >= level.n_groups);
    }
}

// >>sketch_find : src/cuda/sketch_find.cuh
/* sketch_find.cuh : owns which tokens a level's states name: the best of each by score, and the best over
 * all states by probability. Probabilities are whole numbers, added in any order. */

enum {
    SPECRT__SKETCH_THREADS = 1024,
    SPECRT__SKETCH_NAMERS = 8,   /* blocks of a state that look for what it names */
    SPECRT__SKETCH_NAMING = 512, /* their threads */
    SPECRT__SKETCH_CHUNK = 256,  /* groups side by side that come to the same of these blocks */
    SPECRT__SKETCH_SOME = 4096,  /* keys that shared memory holds */
    SPECRT__SKETCH_ITEMS = 4     /* groups or places of a thread, read together */
};

typedef struct specrt__sketch_level {
    specrt__scan_level scan;
    int32_t n_most;  /* groups that may hold what a state names: its size, or all */
    int32_t *groups; /* [rows, n_most] */
    uint64_t *keys;  /* [rows, 16 n_most] what may be named */
    uint64_t *found; /* [rows, size] keys of what is; 0: none */
    /* All 0 before a level but n_named, and so left. */
    uint32_t *tickets; /* [n_batch], then [rows] */
    int32_t *
        n_named; /* [rows, NAMERS] keys that each block found; more than it has room for: not all */
    uint64_t *weights; /* [n_batch, n_ids] of tokens found, in 2^-56 */
    uint32_t *finders; /* [n_batch, n_ids] MAX_STATES less the first state that found the token */
} specrt__sketch_level;

/* --- what one state finds --- */

/* Where keys that reach a least one come to stand, in order: as many as there is room for, but all count. */
typedef struct specrt__sketch_keys {
    uint64_t *out, least;
    int32_t n, room;
} specrt__sketch_keys;

/* Groups of a state whose greatest key reaches `least`, in order. @return how many. */
static __device__ int32_t specrt__sketch_take_groups(const specrt__sketch_level &level, size_t row,
                                                     uint64_t least) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    int32_t *groups = level.groups + row * (size_t)level.n_most, n = 0, before[kEach];
    bool take[kEach];
    for (int32_t first = 0; first < level.scan.n_groups; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            take[j] = i < level.scan.n_groups && best[i] >= least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && n + before[j] < level.n_most)
                groups[n + before[j]] = first + specrt__block_place(kEach, j);
        n += n_taken;
    }
    __syncthreads();
    return n < level.n_most ? n : level.n_most;
}

/* Adds the keys of n groups of a state. */
static __device__ void specrt__sketch_take_keys(const specrt__cuda_sketch &s,
                                                const specrt__sketch_level &level, size_t row,
                                                const int32_t *groups, int32_t n_groups,
                                                specrt__sketch_keys *keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    const uint32_t *order = level.scan.order + row * 16 * (size_t)level.scan.n_groups;
    uint32_t high[kEach];
    int32_t at[kEach], before[kEach]; /* at: places, rows, then tokens */
    bool take[kEach];
    for (int32_t first = 0; first < 16 * n_groups; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            at[j] = i < 16 * n_groups ? 16 * groups[i / 16] + i % 16 : -1;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) high[j] = at[j] < 0 ? 0 : order[at[j]];
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            take[j] = high[j] > 0 && high[j] >= (uint32_t)(keys->least >> 32);
            if (take[j]) at[j] = s.rows[at[j]];
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            if (take[j] && s.ids) at[j] = s.ids[at[j]];
            take[j] = take[j] && ((uint64_t)high[j] << 32 | (uint32_t)~at[j]) >= keys->least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && keys->n + before[j] < keys->room)
                keys->out[keys->n + before[j]] = (uint64_t)high[j] << 32 | (uint32_t)~at[j];
        keys->n += n_taken;
    }
    __syncthreads();
}

/* The keys of the places that a state scores best, in order, by one block from all there are. The `size`
 * groups with the greatest keys have a key each that reaches the least of these: what does not is not among
 * the best. Keys are distinct, so no other group has any that does, and room for theirs is room for all.
 * @return how many. */
static __device__ int32_t specrt__sketch_find(const specrt__cuda_sketch &s,
                                              const specrt__sketch_level &level, size_t row,
                                              uint64_t *found) {
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    const int32_t *groups = level.groups + row * (size_t)level.n_most;
    int32_t room = 16 * level.n_most;
    specrt__sketch_keys keys = {level.keys + row * (size_t)room, 0, 0, room};
    keys.least = specrt__shortlist_least(best, level.scan.n_groups, s.size);
    int32_t n_groups = specrt__sketch_take_groups(level, row, keys.least);
    specrt__sketch_take_keys(s, level, row, groups, n_groups, &keys);
    uint64_t least = specrt__shortlist_least(keys.out, keys.n, s.size);
    return specrt__shortlist_collect(keys.out, keys.n, s.size, least, found);
}

/* --- the same by several blocks --- */

/* The least key of the lowest bin whose groups, with those of higher bins, are as many as a state names: so
 * many keys reach it, and not many more. At least 1. counts [SPECRT__SCAN_BINS] */
static __device__ uint64_t specrt__sketch_floor(const uint32_t *counts, int32_t size) {
    __shared__ int32_t bin;
    const int32_t kEach = 8;
    int32_t above = 0, before;
    if (threadIdx.x == 0) bin = 0;
    for (int32_t end = SPECRT__SCAN_BINS; end > 0 && above < size;
         end -= kEach * (int32_t)blockDim.x) {
        int32_t lowest = end - kEach * ((int32_t)threadIdx.x + 1), sum = 0;
        const uint4 *some = (const uint4 *)(const void *)(counts + (lowest < 0 ? 0 : lowest));
        uint4 low = some[0], high = some[1];
        if (lowest < 0) low = high = make_uint4(0, 0, 0, 0);
        const uint32_t falling[kEach] = {high.w, high.z, high.y, high.x,
                                         low.w,  low.z,  low.y,  low.x};
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) sum += (int32_t)falling[j];
        int32_t total = specrt__block_scan(sum, &before), n = above + before;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t upto = n + (int32_t)falling[j];
            if (n < size && upto >= size) bin = lowest + kEach - 1 - j;
            n = upto;
        }
        above += total;
    }
    __syncthreads();
    return bin > 0 ? (uint64_t)bin << SPECRT__SCAN_SHIFT : 1;
}

/* Keys of a state that reach the floor, of the groups that come to this block: every NAMERS-th chunk, since
 * the best lie side by side. */
static __device__ void specrt__sketch_look(const specrt__cuda_sketch &s,
                                           const specrt__sketch_level &level, size_t row,
                                           int32_t part, specrt__sketch_keys *keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    __shared__ int32_t groups[kEach * SPECRT__SKETCH_NAMING];
    const uint64_t *best = level.scan.best + row * (size_t)level.scan.n_groups;
    const int32_t kChunk = SPECRT__SKETCH_CHUNK, kParts = SPECRT__SKETCH_NAMERS;
    int32_t n_chunks = (level.scan.n_groups + kChunk - 1) / kChunk, before[kEach], group[kEach];
    int32_t n_mine = (n_chunks - part + kParts - 1) / kParts * kChunk;
    bool take[kEach];
    for (int32_t first = 0; first < n_mine; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            group[j] = (i / kChunk * kParts + part) * kChunk + i % kChunk;
            take[j] = i < n_mine && group[j] < level.scan.n_groups && best[group[j]] >= keys->least;
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j]) groups[before[j]] = group[j];
        __syncthreads();
        specrt__sketch_take_keys(s, level, row, groups, n_taken, keys);
    }
}

/* Block `part` of a state: its keys that may be named. */
static __device__ void specrt__sketch_name(const specrt__cuda_sketch &s,
                                           const specrt__sketch_level &level, size_t row,
                                           int32_t part) {
    int32_t room = 16 * level.n_most / SPECRT__SKETCH_NAMERS;
    size_t at = row * SPECRT__SKETCH_NAMERS + (size_t)part;
    specrt__sketch_keys keys = {level.keys + at * (size_t)room, 0, 0, room};
    keys.least = specrt__sketch_floor(level.scan.counts + row * (size_t)SPECRT__SCAN_BINS, s.size);
    specrt__sketch_look(s, level, row, part, &keys);
    if (threadIdx.x == 0) level.n_named[at] = keys.n;
}

/* What the blocks of a state found, side by side. @return how many; -1: some had no room, or `some` has not.
 *   some : [SPECRT__SKETCH_SOME] */
static __device__ int32_t specrt__sketch_bring(const specrt__sketch_level &level, size_t row,
                                               uint64_t *some) {
    const int32_t *n_named = level.n_named + row * SPECRT__SKETCH_NAMERS;
    int32_t room = 16 * level.n_most / SPECRT__SKETCH_NAMERS, ends[SPECRT__SKETCH_NAMERS], n = 0;
    const uint64_t *keys = level.keys + row * SPECRT__SKETCH_NAMERS * (size_t)room;
    bool fits = true;
    SPECRT__LAUNCH_UNROLL
    for (int part = 0; part < SPECRT__SKETCH_NAMERS; part++) {
        fits = fits && n_named[part] <= room;
        ends[part] = n += n_named[part];
    }
    if (!fits || n > SPECRT__SKETCH_SOME) return -1;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t at = i;
        SPECRT__LAUNCH_UNROLL
        for (int part = 0; part + 1 < SPECRT__SKETCH_NAMERS; part++)
            if (i >= ends[part]) at = (part + 1) * room + i - ends[part];
        some[i] = keys[at];
    }
    __syncthreads();
    return n;
}

/* The last block of a state: what it finds, and the counts are 0 again. @return how many. */
static __device__ int32_t specrt__sketch_choose(const specrt__cuda_sketch &s,
                                                const specrt__sketch_level &level, size_t row,
                                                uint64_t *some, uint64_t *found) {
    uint4 *counts = (uint4 *)(void *)(level.scan.counts + row * (size_t)SPECRT__SCAN_BINS);
    for (int32_t i = (int32_t)threadIdx.x; i < SPECRT__SCAN_BINS / 4; i += (int32_t)blockDim.x)
        counts[i] = make_uint4(0, 0, 0, 0);
    int32_t n = specrt__sketch_bring(level, row, some);
    if (n < 0) return specrt__sketch_find(s, level, row, found); /* where thousands are alike */
    return specrt__shortlist_collect(some, n, s.size, specrt__shortlist_least(some, n, s.size),
                                     found);
}

/* --- what they find together --- */

/* The probability of a state's path, of those of n, relative to the likeliest. */
static __device__ uint64_t specrt__sketch_path(const float *logprobs, int32_t n, int32_t h) {
    float most = -INFINITY;
    for (int32_t i = 0; i < n && logprobs; i++) most = logprobs[i] > most ? logprobs[i] : most;
    return specrt__base_decay(logprobs ? most - logprobs[h] : 0);
}

/* Adds the n keys that state h found, each by the path and the state's own estimate of the next token.
 *   weights, finders : the sequence's;  Twin: specrt__sketch_weigh */
static __device__ void specrt__sketch_add(const uint64_t *found, int32_t n, int32_t h,
                                          uint64_t path, uint64_t *weights, uint32_t *finders) {
    uint64_t greatest = 0, sum = 0, before;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        if (found[i] > greatest) greatest = found[i];
    float most = specrt__shortlist_key_logit(specrt__block_max(greatest));
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x)
        sum += specrt__base_decay(most - specrt__shortlist_key_logit(found[i]));
    sum = specrt__block_scan(sum, &before);
    double share = sum > 0 ? (double)path * 65536.0 / (double)sum : 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        int32_t id = specrt__shortlist_key_id(found[i]);
        uint64_t e = specrt__base_decay(most - specrt__shortlist_key_logit(found[i]));
        uint64_t weight = e > 0 ? (uint64_t)((double)e * share) : 0;
        atomicAdd((unsigned long long *)&weights[id], weight > 0 ? weight : 1);
        atomicMax(&finders[id], (uint32_t)(SPECRT__CUDA_MAX_STATES - h));
    }
}

/* Keys of a sequence's tokens by their weights, in place of what its n states found: each once, where the
 * first of them found it. Weights and finders are 0 again.
 *   found : [n, size];  some : [SPECRT__SKETCH_SOME], where the keys stand if they fit
 * @return how many keys, or n * size with others that are 0; *keys: where. */
static __device__ int32_t specrt__sketch_join(uint64_t *found, int32_t n, int32_t size,
                                              uint64_t *weights, uint32_t *finders, uint64_t *some,
                                              const uint64_t **keys) {
    const int kEach = SPECRT__SKETCH_ITEMS;
    int32_t n_out = 0, before[kEach];
    uint64_t key[kEach];
    bool take[kEach];
    for (int32_t first = 0; first < n * size; first += kEach * (int32_t)blockDim.x) {
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j);
            key[j] = i < n * size ? found[i] : 0;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t i = first + specrt__block_place(kEach, j),
                    id = specrt__shortlist_key_id(key[j]);
            take[j] = key[j] && finders[id] == (uint32_t)(SPECRT__CUDA_MAX_STATES - i / size);
            key[j] = take[j] ? specrt__shortlist_key((float)weights[id], id) : 0;
            if (i < n * size) found[i] = key[j];
        }
        int32_t n_taken = specrt__block_ranks<kEach>(take, before);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++)
            if (take[j] && n_out + before[j] < SPECRT__SKETCH_SOME)
                some[n_out + before[j]] = key[j];
        n_out += n_taken;
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n * size; i += (int32_t)blockDim.x) {
        if (!found[i]) continue;
        weights[specrt__shortlist_key_id(found[i])] = 0;
        finders[specrt__shortlist_key_id(found[i])] = 0;
    }
    *keys = n_out <= SPECRT__SKETCH_SOME ? some : found;
    return n_out <= SPECRT__SKETCH_SOME ? n_out : n * size;
}

/* The best of n keys as rows of sequence b, in order.
 *   n_states : that the sequence has */
static __device__ void specrt__sketch_list(const specrt__cuda_sketch &s,
                                           const specrt__cuda_taken &taken, int32_t b,
                                           int32_t n_states, const uint64_t *keys, int32_t n,
                                           const specrt__cuda_choice &choice) {
    uint64_t least = specrt__shortlist_least(keys, n, s.size);
    int32_t *ids = choice.ids + (int64_t)b * s.size, n_out = 0, before;
    int32_t *places = choice.places + (int64_t)b * s.size;
    for (int32_t first = 0; first < n; first += (int32_t)blockDim.x) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool take = i < n && keys[i] >= least;
        int32_t n_taken = specrt__block_rank(take, &before), at = n_out + before;
        if (take && at < s.size) {
            ids[at] = specrt__shortlist_key_id(keys[i]);
            places[at] = s.row_of ? s.row_of[ids[at]] : ids[at];
            specrt__pool_name(taken, b, s.n_ids, ids[at]);
        }
        n_out += n_taken;
    }
    if (threadIdx.x > 0) return;
    choice.n_rows[b] = n_out < s.size ? n_out : s.size;
    specrt__pool_tally(taken, b, n_states, choice.n_rows[b]);
}

/* Block (i, h, b): part i of what state h of the sequence finds; a state's last block joins these, a
 * sequence's last one makes of them ids[b, :], places[b, :] and n_rows[b] of the level.
 *   grid (SPECRT__SKETCH_NAMERS, max_n, n_batch), any block up to SPECRT__SKETCH_NAMING
 *   CPU twins: specrt__sketch_search(), specrt__sketch_join() */
static __global__ void __launch_bounds__(SPECRT__SKETCH_NAMING, 2)
    specrt__sketch_name_all(specrt__cuda_sketch s, specrt__sketch_level level,
                            const float *logprobs, specrt__cuda_choice choice) {
    __shared__ uint64_t some[SPECRT__SKETCH_SOME];
    int32_t b = (int32_t)blockIdx.z, h = (int32_t)blockIdx.y, part = (int32_t)blockIdx.x;
    int32_t n = specrt__scan_count(level.scan, b), size = s.size;
    size_t first = (size_t)b * (size_t)level.scan.max_n, row = first + (size_t)h;
    uint64_t *all = level.found + first * (size_t)size, *found = all + (size_t)h * (size_t)size;
    uint64_t *weights = level.weights + (size_t)b * (size_t)s.n_ids;
    uint32_t *finders = level.finders + (size_t)b * (size_t)s.n_ids;
    const uint64_t *keys = found;
    if (n <= 0 && h == 0 && part == 0 && threadIdx.x == 0) choice.n_rows[b] = 0;
    if (h >= n) return;
    specrt__sketch_name(s, level, row, part);
    if (!specrt__block_last(&level.tickets[gridDim.z + row], SPECRT__SKETCH_NAMERS)) return;
    int32_t n_found = specrt__sketch_choose(s, level, row, some, found);
    if (n > 1) {
        if (logprobs) logprobs += (int64_t)b * level.scan.n_step;
        uint64_t path = specrt__sketch_path(logprobs, n, h);
        specrt__sketch_add(found, n_found, h, path, weights, finders);
        for (int32_t i = n_found + (int32_t)threadIdx.x; i < size; i += (int32_t)blockDim.x)
            found[i] = 0;
        if (!specrt__block_last(&level.tickets[b], n)) return;
        n_found = specrt__sketch_join(all, n, size, weights, finders, some, &keys);
    }
    specrt__sketch_list(s, level.scan.taken, b, n, keys, n_found, choice);
}

// >>sketch : src/cuda/sketch.cuh
/* sketch.cuh : owns the launches of a sketch. */

/* --- launches --- */

static bool specrt__sketch_is_valid(const specrt__cuda_sketch *s) {
    if (!s || !s->basis || !s->center || !s->rows || !s->records) return false;
    if ((uintptr_t)s->records % 16 || s->n_cols < 1 || s->n_cols > SPECRT__CUDA_MAX_COLS)
        return false;
    if (s->rank < 240 || s->rank % 256 != 240 || s->rank > SPECRT_MAX_SKETCH_RANK) return false;
    return s->n_places >= 1 && s->n_places <= SPECRT_MAX_VOCAB && s->size >= 1 &&
           s->size <= s->n_places && s->n_ids >= 1 && s->n_ids <= SPECRT_MAX_VOCAB;
}

/* Where the arrays of a level lie; memory NULL: to learn the bytes. */
static size_t specrt__sketch_lay_out(const specrt__cuda_sketch *s, int32_t n_batch, int32_t max_n,
                                     void *memory, specrt__sketch_level *level) {
    size_t b = (size_t)n_batch, rows = b * (size_t)max_n, size = (size_t)s->size;
    size_t n_groups = specrt__launch_blocks(s->n_places, SPECRT__SCAN_GROUP);
    size_t n_most = size < n_groups ? size : n_groups, n_weights = b * (size_t)s->n_ids;
    specrt__launch_arena arena = {memory, 0};
    level->scan.n_groups = (int32_t)n_groups;
    level->n_most = (int32_t)n_most;
    specrt__launch_carve(&arena, rows * (size_t)s->rank, &level->scan.z);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_groups, &level->scan.order);
    specrt__launch_carve(&arena, rows * n_groups, &level->scan.best);
    specrt__launch_carve(&arena, rows * n_most, &level->groups);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_most, &level->keys);
    specrt__launch_carve(&arena, rows * size, &level->found);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_BINS, &level->scan.counts);
    specrt__launch_carve(&arena, b + rows, &level->tickets);
    specrt__launch_carve(&arena, rows * SPECRT__SKETCH_NAMERS, &level->n_named);
    specrt__launch_carve(&arena, n_weights, &level->weights);
    specrt__launch_carve(&arena, n_weights, &level->finders);
    return arena.bytes;
}

static bool specrt__sketch_is_batch(int32_t n_batch, int32_t max_n) {
    return n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH && max_n >= 1 &&
           max_n <= SPECRT__CUDA_MAX_STATES;
}

SPECRT__KERNEL size_t specrt__cuda_sketch_bytes(const specrt__cuda_sketch *sketch, int32_t n_batch,
                                                int32_t max_n) {
    specrt__sketch_level level;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(n_batch, max_n)) return 0;
    return specrt__sketch_lay_out(sketch, n_batch, max_n, NULL, &level);
}

/* z = basis hidden. */
static specrt_status specrt__sketch_project(const specrt__cuda_sketch *s,
                                            const specrt__cuda_batch *batch, const void *hidden,
                                            specrt_dtype dtype, float *z, void *stream) {
    specrt__head_product p = specrt__head_of_rows(s->basis, SPECRT_DTYPE_F16, s->rank, s->n_cols);
    specrt__head_take_states(&p, batch, hidden, dtype);
    p.logits = z;
    return specrt__head_run<SPECRT_DTYPE_F16>(p, batch->n_batch, stream);
}

template <int kTiles>
static specrt_status specrt__sketch_run_places(const specrt__cuda_sketch *s, int32_t n_batch,
                                               const specrt__scan_level *level, void *stream) {
    dim3 grid(specrt__launch_blocks(level->n_groups, SPECRT__SCAN_WARPS * SPECRT__SCAN_GROUPS),
              specrt__launch_blocks(level->max_n, 8 * kTiles), (unsigned)n_batch);
    size_t n_lines = (size_t)(s->rank + 16) / 256;
    return SPECRT__LAUNCH((specrt__scan_places<kTiles>), grid, 32 * SPECRT__SCAN_WARPS,
                          n_lines * 2048 * kTiles, stream, *s, *level);
}

/* More states read records once, as far as shared memory goes. */
static specrt_status specrt__sketch_run_scan(const specrt__cuda_sketch *s, int32_t n_batch,
                                             const specrt__scan_level *level, void *stream) {
    if (level->max_n <= 8 || s->rank > SPECRT_MAX_SKETCH_RANK / 2)
        return specrt__sketch_run_places<1>(s, n_batch, level, stream);
    return specrt__sketch_run_places<2>(s, n_batch, level, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_sketch_route(
    const specrt__cuda_sketch *sketch, const specrt__cuda_batch *batch, const void *hidden,
    specrt_dtype dtype, const float *logprobs, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream) {
    specrt__sketch_level level;
    SPECRT__CLEAR(&level, 1);
    SPECRT__TRY(specrt__head_check_batch(batch));
    int32_t n_batch = batch->n_batch, max_n = batch->max_n;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(n_batch, max_n))
        return SPECRT_STATUS_BAD_ARG;
    if (taken) level.scan.taken = *taken;
    if (!hidden || !scratch || (uintptr_t)scratch % 16 || level.scan.taken.level < 0 ||
        level.scan.taken.level >= SPECRT_TREE_MAX_STEPS || !choice || !choice->ids ||
        !choice->places || !choice->n_rows || choice->max_rows != sketch->size)
        return SPECRT_STATUS_BAD_ARG;
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    specrt__sketch_lay_out(sketch, n_batch, max_n, scratch, &level);
    level.scan.max_n = max_n;
    level.scan.n = batch->n;
    level.scan.n_step = batch->n_step;
    SPECRT__TRY(specrt__sketch_project(sketch, batch, hidden, dtype, level.scan.z, stream));
    SPECRT__TRY(specrt__sketch_run_scan(sketch, n_batch, &level.scan, stream));
    return SPECRT__LAUNCH(
        specrt__sketch_name_all, dim3(SPECRT__SKETCH_NAMERS, (unsigned)max_n, (unsigned)n_batch),
        specrt__block_size(SPECRT__SKETCH_NAMING), 0, stream, *sketch, level, logprobs, *choice);
}

// >>tree : src/cuda/tree.cuh
/* tree.cuh : owns, on the device, the candidates of drafts: expansion, rerank, masks and positions. One
 * block a sequence. Ties go to the lower candidate, as in the twin, so a chosen node's parent is chosen
 * too. A chain is a tree with topk 1, whose block is one warp. */

enum { SPECRT__TREE_THREADS = 256 };

/* The m best of the candidates [first, n) by (logprob descending, index ascending), none at -inf, into
 * best [m]. Keys of the best so far and of one round's candidates stand side by side, and a key's rank is
 * how many are greater. Twin: specrt__tree_best. @return how many. */
static __device__ int32_t specrt__tree_best(const specrt__cuda_tree *t, int32_t first, int32_t m,
                                            int32_t *best) {
    __shared__ uint64_t keys[SPECRT_TREE_MAX_TOPK + SPECRT__TREE_THREADS],
        kept[SPECRT_TREE_MAX_TOPK];
    int32_t n_best = 0, n = t->n_candidates, thread = specrt__block_thread();
    for (int32_t begin = first; begin < n; begin += specrt__block_threads()) {
        int32_t i = begin + thread;
        int32_t n_keys = n_best + specrt__pool_least(specrt__block_threads(), n - begin);
        float x = i < n ? t->logprobs[i] : -INFINITY;
        for (int32_t j = thread; j < n_best; j += specrt__block_threads()) keys[j] = kept[j];
        if (i < n) keys[n_best + thread] = x > -INFINITY ? specrt__shortlist_key(x, i) : 0;
        n_best += __syncthreads_count(x > -INFINITY);
        for (int32_t j = thread; j < n_keys; j += specrt__block_threads()) {
            int32_t rank = 0;
            for (int32_t other = 0; other < n_keys; other++) rank += keys[other] > keys[j];
            if (keys[j] > 0 && rank < m) kept[rank] = keys[j];
        }
        if (n_best > m) n_best = m;
        __syncthreads();
    }
    for (int32_t j = thread; j < n_best; j += specrt__block_threads())
        best[j] = specrt__shortlist_key_id(kept[j]);
    __syncthreads();
    return n_best;
}

/* A tree from the last token of a verdict, and its first pass. A thread calls. Twin: specrt_tree_begin */
static __device__ void specrt__tree_root(specrt__cuda_tree *t, const specrt_verdict *verdict,
                                         specrt_cuda_beam *beam) {
    int32_t n = specrt__pool_least(verdict->n, SPECRT_TREE_MAX_NODES);
    t->level = t->n_candidates = t->block = 0;
    t->n_beam = beam->n = n > 0;
    if (n < 1) return;
    t->root = beam->tokens[0] = verdict->tokens[n - 1];
    t->position += n;
    t->cycle++;
    beam->parents[0] = 0;
    beam->logprobs[0] = 0;
}

/* Block b: that of sequence b.  grid (n_batch), block 32 */
static __global__ void specrt__tree_begin_kernel(specrt__cuda_tree *trees,
                                                 const specrt_verdict *verdicts,
                                                 specrt_cuda_beam *beams) {
    if (specrt__block_thread() > 0) return;
    specrt__tree_root(&trees[blockIdx.x], &verdicts[blockIdx.x], &beams[blockIdx.x]);
}

/* What a level is of. */
typedef struct specrt__tree_position {
    int32_t at;  /* position of a block; -1: the level is a pass's */
    float least; /* confidence below which a path ends; -INFINITY: none does */
    /* Of row i of the beam of sequence b at b * step + i * each; NULL: confidence is the best path's
     * log-probability, of all rows */
    const float *confidences;
    int32_t step;
    int32_t
        each; /* 1: rows of a beam have their own proposals; 0: those of the first are for all */
} specrt__tree_position;

static inline specrt__tree_position specrt__tree_pass(void) {
    return {-1, -INFINITY, NULL, 0, 1};
}

/* The same of one sequence, whose confidences come first. */
static __device__ specrt__tree_position specrt__tree_position_of(specrt__tree_position p,
                                                                 int64_t b) {
    if (p.confidences) p.confidences += b * p.step;
    return p;
}

static __device__ bool specrt__tree_trusts(const specrt__tree_position &p, int32_t row) {
    return !p.confidences || p.confidences[row * p.each] >= p.least;
}

/* Whether the draft of a block has come to a position and any path goes on. All threads call. Twin:
 * specrt__block_trusts */
static __device__ bool specrt__tree_continues(const specrt__tree_position &p,
                                              specrt__cuda_tree *t) {
    bool any = false;
    if (specrt__block_thread() == 0) t->block = 1;
    for (int32_t i = specrt__block_thread(); i < t->n_beam; i += specrt__block_threads()) {
        float path = p.at > 0 ? t->logprobs[t->beam[0]] : 0;
        any |= p.confidences ? specrt__tree_trusts(p, i) : path >= p.least;
    }
    return __syncthreads_count(any && t->level == p.at) > 0;
}

/* Candidates [n_candidates, + n_beam * topk) of a sequence and the next pass, unless a block has ended.
 *   ids, logprobs [topk, topk]; each 0: [topk].  Twin: specrt_tree_expand */
static __device__ void specrt__tree_grow(const specrt__tree_position &p, specrt__cuda_tree *t,
                                         const int32_t *ids, const float *logprobs, int32_t topk,
                                         specrt_cuda_beam *beam) {
    if (p.at >= 0 && !specrt__tree_continues(p, t)) return;
    int32_t level = t->level, first = t->n_candidates, n = t->n_beam * topk;
    int32_t thread = specrt__block_thread();
    if (n == 0 || topk != t->params.topk || level >= t->params.num_steps) {
        __syncthreads(); /* all have read n_beam */
        if (thread == 0) beam->n = t->n_beam = 0;
        return;
    }
    for (int32_t i = thread; i < n; i += specrt__block_threads()) {
        int32_t parent = level == 0 ? -1 : t->beam[i / topk],
                at = i / topk * p.each * topk + i % topk;
        t->tokens[first + i] = ids[at];
        t->parents[first + i] = parent;
        t->logprobs[first + i] =
            specrt__tree_add(parent < 0 ? 0 : t->logprobs[parent],
                             specrt__tree_trusts(p, i / topk) ? logprobs[at] : -INFINITY);
    }
    __syncthreads();
    if (thread == 0) {
        t->n_candidates = first + n;
        t->level = level + 1;
    }
    __syncthreads();
    int32_t n_beam =
        level + 1 < t->params.num_steps ? specrt__tree_best(t, first, topk, t->beam) : 0;
    for (int32_t i = thread; i < n_beam; i += specrt__block_threads()) {
        int32_t candidate = t->beam[i];
        beam->tokens[i] = t->tokens[candidate];
        beam->parents[i] = (candidate - first) / topk;
        beam->logprobs[i] = t->logprobs[candidate];
    }
    if (thread == 0) beam->n = t->n_beam = n_beam;
}

/* Block b: that of sequence b.
 *   ids, logprobs [n_batch, topk, topk]; grid (n_batch), block SPECRT__TREE_THREADS or a warp */
static __global__ void specrt__tree_expand_kernel(specrt__tree_position position,
                                                  specrt__cuda_tree *trees, const int32_t *ids,
                                                  const float *logprobs, int32_t topk,
                                                  specrt_cuda_beam *beams) {
    int64_t b = blockIdx.x, at = b * topk * topk;
    specrt__tree_grow(specrt__tree_position_of(position, b), &trees[b], ids + at, logprobs + at,
                      topk, &beams[b]);
}

/* The node of a candidate among chosen [n], which ascends; 0 for the root's -1. */
static __device__ int32_t specrt__tree_node(const int32_t *chosen, int32_t n, int32_t candidate) {
    int32_t node = n;
    while (node > 0 && chosen[node - 1] != candidate) node--;
    return node;
}

/* Node i of a draft, from the candidates chosen [n], which ascend. */
static __device__ void specrt__tree_write(const specrt__cuda_tree *t, const int32_t *chosen,
                                          int32_t i, specrt_cuda_draft *draft) {
    int32_t candidate = i > 0 ? chosen[i - 1] : -1, depth = 0;
    uint64_t mask = 1;
    draft->tokens[i] = i > 0 ? t->tokens[candidate] : t->root;
    draft->logprobs[i] = i > 0 ? t->logprobs[candidate] : 0;
    draft->parents[i] = i > 0 ? specrt__tree_node(chosen, i - 1, t->parents[candidate]) : -1;
    for (int32_t at = i; at > 0; depth++) {
        mask |= (uint64_t)1 << at;
        at = specrt__tree_node(chosen, at - 1, t->parents[chosen[at - 1]]);
    }
    draft->depths[i] = depth;
    draft->masks[i] = mask;
    draft->positions[i] = t->position - 1 + depth;
}

/* The nodes of a tree, parents first, levels together. A block calls. Twin: specrt_tree_finish */
static __device__ void specrt__tree_choose(const specrt__cuda_tree *t, specrt_cuda_draft *draft) {
    __shared__ int32_t best[SPECRT_TREE_MAX_NODES], chosen[SPECRT_TREE_MAX_NODES];
    bool begun = t->level > 0 || t->n_beam > 0;
    int32_t n = specrt__tree_best(t, 0, t->params.num_draft_tokens - 1, best);
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; j++) rank += best[j] < best[i];
        chosen[rank] = best[i];
    }
    __syncthreads();
    for (int32_t i = specrt__block_thread(); i <= n && begun; i += specrt__block_threads())
        specrt__tree_write(t, chosen, i, draft);
    if (specrt__block_thread() == 0) draft->n = begun ? n + 1 : 0;
}

/* Block b: those of sequence b.  grid (n_batch), block SPECRT__TREE_THREADS */
static __global__ void specrt__tree_finish_kernel(const specrt__cuda_tree *trees,
                                                  specrt_cuda_draft *drafts) {
    specrt__tree_choose(&trees[blockIdx.x], &drafts[blockIdx.x]);
}

/* As specrt__shortlist_rank_kernel, of topk rows; the last block of a sequence goes on with its tree.
 *   drafts : after the last level the nodes are chosen, too; NULL: more levels come */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__tree_rank_kernel(specrt__shortlist_ranks r, specrt__tree_position position,
                             specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                             specrt_cuda_draft *drafts) {
    int64_t b = blockIdx.z, at = b * r.k * r.k;
    if (!specrt__shortlist_rank(r)) return;
    specrt__tree_grow(specrt__tree_position_of(position, b), &trees[b], r.ids + at, r.logprobs + at,
                      r.k, &beams[b]);
    if (!drafts) return;
    __syncthreads(); /* the tree has its beam */
    specrt__tree_choose(&trees[b], &drafts[b]);
}

/* As specrt__shortlist_rank_kernel, of a block's positions; the last block of a sequence makes its draft: a
 * position's best tokens and confidence are those of every path.
 *   first : position 0.  Twin: specrt_session_draft_block */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__tree_block_kernel(specrt__shortlist_ranks r, specrt__tree_position first,
                              specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                              specrt_cuda_draft *drafts) {
    int64_t b = blockIdx.z, at = b * r.row_step * r.k;
    if (!specrt__shortlist_rank(r)) return;
    specrt__tree_position p = specrt__tree_position_of(first, b);
    for (; p.at < r.max_n; p.at++, at += r.k) {
        specrt__tree_grow(p, &trees[b], r.ids + at, r.logprobs + at, r.k, &beams[b]);
        if (p.confidences) p.confidences++;
        __syncthreads();
    }
    specrt__tree_choose(&trees[b], &drafts[b]);
}

/* --- launches --- */

static size_t specrt__tree_lay_out(void *memory, specrt__cuda_tree *t) {
    size_t k = (size_t)t->params.topk, n = k + (size_t)(t->params.num_steps - 1) * k * k;
    specrt__launch_arena arena = {memory, 0};
    specrt__launch_carve(&arena, n, &t->tokens);
    specrt__launch_carve(&arena, n, &t->parents);
    specrt__launch_carve(&arena, n, &t->logprobs);
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_tree_bytes(const specrt_tree_params *params) {
    specrt__cuda_tree t;
    if (specrt__tree_resolve(params, &t.params, NULL) != SPECRT_STATUS_OK) return 0;
    return specrt__tree_lay_out(NULL, &t);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_place(const specrt_tree_params *params,
                                                     int64_t position, void *memory,
                                                     specrt__cuda_tree *out) {
    if (!memory || !out || position < 0) return SPECRT_STATUS_BAD_ARG;
    SPECRT__CLEAR(out, 1);
    SPECRT__TRY(specrt__tree_resolve(params, &out->params, NULL));
    out->position = position;
    specrt__tree_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_begin(int32_t n_batch,
                                                     const specrt_verdict *verdicts,
                                                     specrt__cuda_tree *trees,
                                                     specrt_cuda_beam *beams, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!verdicts || !beams) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_begin_kernel, (unsigned)n_batch, 32, 0, stream, trees,
                          verdicts, beams);
}

static specrt_status specrt__tree_expand(const specrt__tree_position &position, int32_t n_batch,
                                         int32_t topk, const int32_t *ids, const float *logprobs,
                                         specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                                         void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (topk < 1 || topk > SPECRT_TREE_MAX_TOPK || !ids || !logprobs || !beams)
        return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_expand_kernel, (unsigned)n_batch,
                          topk == 1 ? 32 : specrt__block_size(SPECRT__TREE_THREADS), 0, stream,
                          position, trees, ids, logprobs, topk, beams);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_expand(int32_t n_batch, int32_t topk,
                                                      const int32_t *ids, const float *logprobs,
                                                      specrt__cuda_tree *trees,
                                                      specrt_cuda_beam *beams, void *stream) {
    return specrt__tree_expand(specrt__tree_pass(), n_batch, topk, ids, logprobs, trees, beams,
                               stream);
}

/* specrt__cuda_topk() of topk rows for each beam, then specrt__cuda_tree_expand(), in one launch.
 *   r, grid : the ranking, as specrt__shortlist_shortlist() prepares it
 *   drafts  : as specrt__cuda_tree_finish() writes them; NULL: not after this level */
static specrt_status specrt__tree_rank(const specrt__shortlist_ranks *r, dim3 grid,
                                       const specrt__tree_position &position,
                                       specrt__cuda_tree *trees, specrt_cuda_beam *beams,
                                       specrt_cuda_draft *drafts, void *stream) {
    return SPECRT__LAUNCH(specrt__tree_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0, stream,
                          *r, position, trees, beams, drafts);
}

SPECRT__KERNEL specrt_status specrt__cuda_tree_finish(int32_t n_batch,
                                                      const specrt__cuda_tree *trees,
                                                      specrt_cuda_draft *drafts, void *stream) {
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!drafts) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__tree_finish_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__TREE_THREADS), 0, stream, trees, drafts);
}

// >>verify_distribution : src/cuda/verify_distribution.cuh
/* verify_distribution.cuh : owns, on the device, the distribution of a node: what its filters keep of its
 * logits. Weights are computed from logits again wherever they are needed, by the twin's operations in the
 * twin's order, so they are the same bits. Filters look at all tokens, or at few that are enough
 * (>>verify_filter). */

enum {
    SPECRT__VERIFY_THREADS = 256,
    SPECRT__VERIFY_DISTRIBUTION_THREADS =
        1024, /* it reads all logits of a node, and more than once */
    SPECRT__VERIFY_EACH = 16,
    SPECRT__VERIFY_PART = SPECRT__VERIFY_EACH * SPECRT__VERIFY_THREADS, /* logits of a block */
    SPECRT__VERIFY_BINS = 2048,
    SPECRT__VERIFY_LANES = 8 /* of a sum, as in the twin */
};

/* How a node's token is drawn: a token is kept when it stands at or before (order, id) by (logit descending,
 * id ascending) and weighs `least` or more. */
struct specrt__cuda_distribution {
    int32_t best; /* -1: no logit is above -inf */
    int32_t id;
    uint32_t order;
    bool drawn;        /* else the best is taken */
    bool top_k, top_p; /* what cuts it, beside `least` */
    bool whole;        /* its sums take a reading of all logits */
    float max, scale, least;
};

/* --- weights --- */

static __device__ float specrt__verify_scale(float temperature) {
    return temperature > 1e-30f ? 1 / temperature : 1e30f;
}

/* Twin: specrt__verify_exp16, of one logit; rounded as there, where nothing is fused. */
static __device__ float specrt__verify_weight(float x, float max, float scale) {
    const uint32_t limit = 0x42a00000u;
    uint32_t size = __float_as_uint(__fmul_rn(__fadd_rn(x, -max), scale)) & 0x7fffffffu;
    if (size >= limit) return 0;
    float t = -__uint_as_float(size);
    float z = __fadd_rn(__fmul_rn(t, 1.44269504f), 12582912.0f), n = __fadd_rn(z, -12582912.0f);
    float r = __fadd_rn(__fadd_rn(t, -__fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float y = __fadd_rn(__fmul_rn(r, 1 / 5040.0f), 1 / 720.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 120.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 24.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1 / 6.0f);
    y = __fadd_rn(__fmul_rn(y, r), 0.5f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    return __fmul_rn(y, __uint_as_float((__float_as_uint(z) + 127) << 23));
}

/* Of a token, 0 if a filter removed it. */
static __device__ float specrt__verify_kept(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id) {
    uint32_t order = specrt__shortlist_order(logit);
    if (order < distribution.order || (order == distribution.order && id > distribution.id))
        return 0;
    float weight = specrt__verify_weight(logit, distribution.max, distribution.scale);
    return weight < distribution.least ? 0 : weight;
}

/* The sum of a block's kept weights, in the lanes of the twin; eight threads hold it. Warps call.
 *   logits : of tokens [begin, begin + n);  n : 0 or less: none.  Twin: specrt__verify_sum */
static __device__ double specrt__verify_sum(const specrt__cuda_distribution &distribution,
                                            const float *logits, int32_t begin, int32_t n) {
    int32_t lane = specrt__block_thread() % SPECRT__VERIFY_LANES;
    int32_t whole = n - n % SPECRT__VERIFY_LANES;
    double sum = 0;
    for (int32_t first = lane; first < whole; first += SPECRT__VERIFY_EACH * SPECRT__VERIFY_LANES) {
        float row[SPECRT__VERIFY_EACH]; /* loads under way */
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
            int32_t i = first + j * SPECRT__VERIFY_LANES;
            row[j] = i < whole ? logits[i] : -INFINITY;
        }
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
            sum += (double)specrt__verify_kept(distribution, row[j],
                                               begin + first + j * SPECRT__VERIFY_LANES);
    }
    for (int32_t i = whole; i < n && lane == 0; i++)
        sum += (double)specrt__verify_kept(distribution, logits[i], begin + i);
    for (int by = 1; by < SPECRT__VERIFY_LANES; by *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    return sum;
}

/* Sums of as many blocks as the thread block has eight threads, from `first` on. */
static __device__ void specrt__verify_sum_blocks(const specrt__cuda_distribution &distribution,
                                                 const float *logits, int32_t n_vocab,
                                                 int32_t first, double *sums) {
    int32_t block = first + specrt__block_thread() / SPECRT__VERIFY_LANES;
    int32_t begin = block * SPECRT__VERIFY_BLOCK;
    int32_t n = specrt__pool_least(n_vocab - begin, SPECRT__VERIFY_BLOCK);
    double sum = specrt__verify_sum(distribution, logits + begin, begin, n);
    if (n > 0 && specrt__block_thread() % SPECRT__VERIFY_LANES == 0) sums[block] = sum;
}

/* Of sums [n]: their sum, and with a target where the running sum passes it: *block, and in *before what
 * stands before that block. One thread adds, in order; all fetch. */
static __device__ double specrt__verify_add(const double *sums, int32_t n, double target,
                                            int32_t *block, double *before) {
    __shared__ double some[SPECRT__VERIFY_THREADS], shared_sum, shared_before;
    __shared__ int32_t shared_block;
    int32_t thread = specrt__block_thread();
    double sum = 0;
    *block = 0, *before = 0;
    for (int32_t begin = 0; begin < n; begin += specrt__block_threads()) {
        __syncthreads();
        if (begin + thread < n) some[thread] = sums[begin + thread];
        __syncthreads();
        int32_t n_here = specrt__pool_least(n - begin, specrt__block_threads());
        for (int32_t i = 0; i < n_here && thread == 0 && sum <= target; i++) {
            if (!(some[i] > 0)) continue;
            *block = begin + i;
            *before = sum;
            sum += some[i];
        }
    }
    if (thread == 0) shared_block = *block, shared_before = *before, shared_sum = sum;
    __syncthreads();
    *block = shared_block;
    *before = shared_before;
    sum = shared_sum;
    __syncthreads();
    return sum;
}

/* --- the best token --- */

/* Block (p, node): the greatest key of logits [p * PART, + PART) of a node of all; NaN and -inf
 * are none.
 *   logits [n_batch, max_nodes, n_logits] -> best u64 [n_batch, max_nodes, gridDim.x]
 *   grid (parts, n_batch * max_nodes), any block.  Twin: specrt_logits_topk */
static __global__ void specrt__verify_best_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  const float *logits) {
    int32_t at = (int32_t)blockIdx.y, n_vocab = v.params.n_vocab;
    if (at % v.params.max_nodes >= drafts[at / v.params.max_nodes].n) return;
    int32_t begin = (int32_t)blockIdx.x * SPECRT__VERIFY_PART;
    int32_t end = specrt__pool_least(n_vocab, begin + SPECRT__VERIFY_PART);
    uint64_t best = 0;
    logits += (int64_t)at * v.params.n_logits;
    for (int32_t i = begin + specrt__block_thread(); i < end; i += specrt__block_threads()) {
        uint64_t key = specrt__shortlist_key(logits[i], i);
        if (logits[i] > -INFINITY && key > best) best = key;
    }
    best = specrt__block_max(best);
    if (specrt__block_thread() == 0) v.best[(int64_t)at * gridDim.x + blockIdx.x] = best;
}

/* --- filters: one block a node --- */

/* Tokens that a filter looks at: all of a row of logits, or candidates, by their keys. */
struct specrt__verify_tokens {
    const float *logits;  /* [n] */
    const uint64_t *keys; /* [n] in any order; NULL: all tokens */
    int32_t n;
};

enum { SPECRT__VERIFY_SOME = 4 }; /* tokens of a thread whose loads are under way */

/* The next tokens of a thread, from `first` on; -inf behind the last. */
static __device__ void specrt__verify_read(const specrt__verify_tokens &tokens, int32_t first,
                                           float *logits, int32_t *ids) {
    int32_t step = specrt__block_threads();
    uint64_t keys[SPECRT__VERIFY_SOME];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME && !tokens.keys; j++) {
        ids[j] = first + j * step;
        logits[j] = ids[j] < tokens.n ? tokens.logits[ids[j]] : -INFINITY;
    }
    if (!tokens.keys) return;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
        keys[j] = first + j * step < tokens.n ? tokens.keys[first + j * step] : 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
        ids[j] = specrt__shortlist_key_id(keys[j]);
        logits[j] = keys[j] ? specrt__shortlist_key_logit(keys[j]) : -INFINITY;
    }
}

/* The lane at which the running sum of x over lanes, from *before on, reaches a goal, the last if none
 * does. *before: what lies before that lane. One warp calls. */
template <typename T>
static __device__ int32_t specrt__verify_cross(T x, T goal, T *before, bool *reached) {
    int lane = specrt__block_thread() % 32;
    T sum = x;
    for (int by = 1; by < 32; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    unsigned lanes = __ballot_sync(0xffffffffu, *before + sum >= goal);
    int source = lanes ? __ffs((int)lanes) - 1 : 31;
    T below = __shfl_sync(0xffffffffu, sum, source > 0 ? source - 1 : 0);
    if (source > 0) *before += below;
    *reached = lanes != 0;
    return source;
}

/* The bin of a histogram where the sum from its upper end reaches a goal, the last if it does not. `above` is
 * what lies above the bins, *above then what lies above that bin. Warps add up 32nds of the bins. */
template <typename T>
static __device__ int32_t specrt__verify_reach(const T *bins, int32_t n_bins, T goal, T *above) {
    __shared__ T sums[32], shared_above;
    __shared__ int32_t bin;
    int32_t thread = specrt__block_thread(), lane = thread % 32, width = n_bins / 32;
    for (int32_t group = thread / 32; group < 32; group += specrt__block_threads() / 32) {
        T sum = 0;
        for (int32_t i = lane; i < width; i += 32) sum += bins[n_bins - 1 - group * width - i];
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0) sums[group] = sum;
    }
    __syncthreads();
    if (thread < 32) {
        bool reached;
        T before = *above;
        int32_t last =
            n_bins - 1 - width * specrt__verify_cross(sums[lane], goal, &before, &reached);
        int32_t first = 0, source = 0;
        for (reached = false; first < width && !reached; first += 32) {
            T here = before, x = bins[last - first - lane];
            source = specrt__verify_cross(x, goal, &here, &reached);
            T row = here + __shfl_sync(0xffffffffu, x, 31);
            before = reached || first + 32 == width ? here : row;
        }
        if (lane == 0) bin = last - (first - 32) - source, shared_above = before;
    }
    __syncthreads();
    *above = shared_above;
    int32_t out = bin;
    __syncthreads();
    return out;
}

/* Whether a filter looks at a token: those kept so far that have this weight, or any when it is negative. */
static __device__ bool specrt__verify_among(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id, float weight) {
    if (weight < 0) return logit > -INFINITY;
    return specrt__verify_kept(distribution, logit, id) == weight;
}

/* The order of the k-th of such tokens by (logit descending, id ascending), found digit by digit. *rest: its
 * place among those of the same order, *n_same: how many those are. Beyond the last token all are kept.
 *   same : 0, or an order: then the complement of the k-th id among the tokens of that order */
static __device__ uint32_t specrt__verify_kth(const specrt__cuda_distribution distribution,
                                              const specrt__verify_tokens &tokens, float weight,
                                              uint32_t same, int32_t k, int32_t *rest,
                                              int32_t *n_same) {
    __shared__ int32_t bins[SPECRT__VERIFY_BINS];
    uint32_t prefix = 0;
    int32_t above = 0, bin = 0, ids[SPECRT__VERIFY_SOME];
    int32_t step = SPECRT__VERIFY_SOME * specrt__block_threads();
    float logits[SPECRT__VERIFY_SOME];
    for (int shift = 21; shift >= -1; shift -= 11) { /* digits of 11, 11 and 10 bits */
        int low = shift > 0 ? shift : 0, top = shift + 11;
        for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_BINS;
             i += specrt__block_threads())
            bins[i] = 0;
        __syncthreads();
        for (int32_t i = specrt__block_thread(); i < tokens.n; i += step) {
            specrt__verify_read(tokens, i, logits, ids);
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
                uint32_t order = specrt__shortlist_order(logits[j]);
                uint32_t x = same ? ~(uint32_t)ids[j] : order;
                if ((same && order != same) || (top < 32 && x >> top != prefix >> top)) continue;
                if (specrt__verify_among(distribution, logits[j], ids[j], weight))
                    atomicAdd(&bins[x >> low & ((1u << (top - low)) - 1)], 1);
            }
        }
        __syncthreads();
        bin = specrt__verify_reach<int32_t>(bins, SPECRT__VERIFY_BINS, k, &above);
        prefix |= (uint32_t)bin << low;
    }
    *rest = k - above;
    *n_same = bins[bin];
    __syncthreads();
    return prefix;
}

/* Of the tokens that `weight` names only the k best are kept, and all that are better. Those that an earlier
 * cut removed stay away. */
static __device__ void specrt__verify_cut(specrt__cuda_distribution *distribution,
                                          const specrt__verify_tokens &tokens, float weight,
                                          int32_t k) {
    int32_t rest, n_same;
    uint32_t order = specrt__verify_kth(*distribution, tokens, weight, 0, k, &rest, &n_same);
    int32_t id = order == distribution->order ? distribution->id : INT32_MAX;
    if (rest < n_same)
        id = (int32_t)~specrt__verify_kth(*distribution, tokens, weight, order, rest, &rest,
                                          &n_same);
    __syncthreads();
    if (specrt__block_thread() == 0) {
        distribution->order = order;
        distribution->id = id;
    }
    __syncthreads();
}

enum { SPECRT__VERIFY_MASSES = 1024 };

/* Sums of the kept weights whose upper bits are prefix's, by the ten bits from `shift` on. Those of a bin
 * share their exponent, so each is a whole number of units and the sum exact, whoever adds first. Weights
 * are at most 1, so the two bits above the first digit are 0. */
static __device__ void specrt__verify_weigh(const specrt__cuda_distribution distribution,
                                            const specrt__verify_tokens &tokens, uint32_t prefix,
                                            int shift, double *masses) {
    __shared__ unsigned long long units[SPECRT__VERIFY_MASSES];
    int32_t thread = specrt__block_thread(), ids[SPECRT__VERIFY_SOME];
    int32_t step = SPECRT__VERIFY_SOME * specrt__block_threads();
    float logits[SPECRT__VERIFY_SOME];
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) units[i] = 0;
    __syncthreads();
    for (int32_t i = thread; i < tokens.n; i += step) {
        specrt__verify_read(tokens, i, logits, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            float weight = specrt__verify_kept(distribution, logits[j], ids[j]);
            uint32_t bits = __float_as_uint(weight);
            if (bits == 0 || bits >> shift >> 10 != prefix >> shift >> 10) continue;
            atomicAdd(&units[bits >> shift & (SPECRT__VERIFY_MASSES - 1)],
                      (unsigned long long)((bits & 0x7fffffu) | 0x800000u));
        }
    }
    __syncthreads();
    for (int32_t i = thread; i < SPECRT__VERIFY_MASSES; i += specrt__block_threads()) {
        uint32_t bits = prefix | (uint32_t)i << shift;
        masses[i] = ldexp((double)units[i], (int)(bits >> 23) - 150);
    }
    __syncthreads();
}

/* How many tokens are kept with a weight above 0. */
static __device__ int32_t specrt__verify_count(const specrt__cuda_distribution distribution,
                                               const specrt__verify_tokens &tokens, float weight) {
    int32_t n = 0, ids[SPECRT__VERIFY_SOME];
    float logits[SPECRT__VERIFY_SOME];
    for (int32_t i = specrt__block_thread(); i < tokens.n;
         i += SPECRT__VERIFY_SOME * specrt__block_threads()) {
        specrt__verify_read(tokens, i, logits, ids);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            n += specrt__verify_kept(distribution, logits[j], ids[j]) == weight;
    }
    return (int32_t)specrt__block_sum((double)n);
}

/* The fewest of the best whose weights reach a share of all that is kept: the weight in which the mass is
 * reached, then how many of that weight. @return false: the tokens may be too few for that, and nothing is
 * cut. Twin: specrt__verify_nucleus.
 *   total, error : of all that is kept, and by how much that may be wrong; error negative: it is all here
 *   least : all tokens of this order or above are among them; 1: all that is kept is. Near to it a weight
 *           may belong to a lower order, too. */
static __device__ bool specrt__verify_nucleus(specrt__cuda_distribution *distribution,
                                              const specrt__verify_tokens &tokens, float top_p,
                                              double total, double error, uint32_t least) {
    __shared__ double masses[SPECRT__VERIFY_MASSES];
    double mass = (double)top_p * (total - error), above = 0, n;
    uint32_t prefix = 0;
    for (int shift = 20; shift >= 0; shift -= 10) {
        specrt__verify_weigh(*distribution, tokens, prefix, shift, masses);
        if (shift == 20 && error < 0) {
            double all = 0;
            for (int32_t i = specrt__block_thread(); i < SPECRT__VERIFY_MASSES;
                 i += specrt__block_threads())
                all += masses[i];
            mass = (double)top_p * specrt__block_sum(all);
            error = 0;
        }
        int32_t bin = specrt__verify_reach<double>(masses, SPECRT__VERIFY_MASSES, mass, &above);
        prefix |= (uint32_t)bin << shift;
    }
    float weight = __uint_as_float(prefix);
    int32_t n_same = specrt__verify_count(*distribution, tokens, weight);
    n = ceil((mass - above) / (double)weight);
    float edge = specrt__verify_weight(specrt__shortlist_key_logit((uint64_t)least << 32),
                                       distribution->max, distribution->scale);
    if (least > 1 && !(n <= n_same && weight > 1.0001f * edge)) return false;
    if (ceil((mass + 2 * (double)top_p * error - above) / (double)weight) > n) return false;
    if (!(n < n_same)) n = n_same;
    specrt__verify_cut(distribution, tokens, weight, n > 1 ? (int32_t)n : 1);
    return true;
}

// >>verify_filter : src/cuda/verify_filter.cuh
/* verify_filter.cuh : owns candidates, the few tokens of a node among which its filters end, so that its
 * logits are read once. With top_p alone all weights count: parts sum up theirs, each below its own greatest
 * logit. Where the error of that may decide, they are read again (docs/decisions/gpu.md has the bytes).
 *
 * A part takes every so many-th line of logits, so that parts are alike wherever frequent tokens stand. Each
 * lists its greatest, as it finds them, from some order on; all tokens of the greatest of these orders are
 * then known. Where they do not hold all that is kept, as where many tie, filters look at all logits. */

enum {
    SPECRT__VERIFY_CANDIDATES = 128, /* of a part at most, about 2% of it */
    SPECRT__VERIFY_GROUPS = 128,     /* of a part's tokens */
    SPECRT__VERIFY_SURE = 64,        /* candidates of a part at least, if not too many tie */
    SPECRT__VERIFY_LINES = SPECRT__VERIFY_BLOCK / SPECRT__VERIFY_THREADS /* of a block of sums */
};

/* --- candidates --- */

/* The token that number j of a thread's logits belongs to; lanes are neighbours, and parts take turns at
 * lines. */
static __device__ int32_t specrt__verify_column(int j) {
    int32_t place = specrt__block_place(SPECRT__VERIFY_EACH, j);
    int32_t line = place / SPECRT__VERIFY_THREADS * (int32_t)gridDim.x + (int32_t)blockIdx.x;
    return line * SPECRT__VERIFY_THREADS + place % SPECRT__VERIFY_THREADS;
}

/* The same token's key. */
static __device__ uint64_t specrt__verify_key(uint32_t order, int j) {
    return (uint64_t)order << 32 | (uint32_t)~specrt__verify_column(j);
}

/* The greatest of each group, in order. A group has some columns of each 32, in lines that are far from each
 * other, so that great logits in a row are spread over all groups. */
static __device__ void specrt__verify_rank_groups(const uint32_t *orders, uint32_t *sorted) {
    __shared__ uint32_t groups[SPECRT__VERIFY_GROUPS];
    const int kEach = SPECRT__VERIFY_GROUPS / 32;
    int thread = specrt__block_thread();
    if (thread < SPECRT__VERIFY_GROUPS) groups[thread] = 0;
    __syncthreads();
    SPECRT__LAUNCH_UNROLL
    for (int g = 0; g < kEach; g++) {
        uint32_t most = 0;
        SPECRT__LAUNCH_UNROLL
        for (int j = g; j < SPECRT__VERIFY_EACH; j += kEach) most = max(most, orders[j]);
        atomicMax(&groups[32 * g + thread % 32], most);
    }
    __syncthreads();
    if (thread < SPECRT__VERIFY_GROUPS) {
        uint32_t mine = groups[thread];
        int rank = 0;
        for (int i = 0; i < SPECRT__VERIFY_GROUPS; i++)
            rank += groups[i] > mine || (groups[i] == mine && i < thread);
        sorted[rank] = mine;
    }
    __syncthreads();
}

/* Lists the tokens of a part in the order of their ids, from some order on: of `sure` groups at least one
 * each; of fewer, where those are too many.
 *   keys : [SPECRT__VERIFY_CANDIDATES] */
static __device__ void specrt__verify_list(const uint32_t *orders, int32_t sure, uint64_t *keys,
                                           uint32_t *least, int32_t *n_keys) {
    __shared__ uint32_t sorted[SPECRT__VERIFY_GROUPS];
    uint32_t from;
    int32_t before[SPECRT__VERIFY_EACH], n;
    bool takes[SPECRT__VERIFY_EACH];
    specrt__verify_rank_groups(orders, sorted);
    do { /* no token has the last of these orders */
        from = sure > 0 ? max(sorted[sure - 1], 1u) : UINT32_MAX;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_EACH; j++) takes[j] = orders[j] >= from;
        n = specrt__block_ranks<SPECRT__VERIFY_EACH>(takes, before);
        sure /= 2;
    } while (n > SPECRT__VERIFY_CANDIDATES);
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
        if (takes[j]) keys[before[j]] = specrt__verify_key(orders[j], j);
    if (specrt__block_thread() == 0) *least = from, *n_keys = n;
}

/* What a part's weights sum up to, were its own best the greatest, and the sum of each weight times what
 * stands in its exponent, which tells how far rounding goes.
 *   row : -inf where there is no token;  sums [2] */
static __device__ void specrt__verify_estimate(const float *row, uint64_t best, float temperature,
                                               double *sums) {
    float max = specrt__shortlist_key_logit(best), far = 0;
    float scale = specrt__verify_scale(temperature);
    double sum = 0;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
        float weight = specrt__verify_weight(row[j], max, scale);
        sum += (double)weight;
        if (weight > 0) far += weight * (max - row[j]) * scale;
    }
    sum = specrt__block_sum(sum);
    double all = specrt__block_sum((double)far);
    if (specrt__block_thread() == 0) sums[0] = sum, sums[1] = all;
}

/* Block (p, node): the best of a part of a node's logits, every so many-th line of SPECRT__VERIFY_THREADS,
 * and its candidates where the node is cut by top_k or top_p. NaN and -inf are none.
 *   logits [n_batch, max_nodes, n_logits] -> best, keys, least, n_keys, estimates
 *   grid (parts, n_batch * max_nodes), block SPECRT__VERIFY_THREADS.  Twin: specrt__verify_collect */
static __global__ void __launch_bounds__(SPECRT__VERIFY_THREADS, 4)
    specrt__verify_candidates_kernel(specrt__cuda_verifier v, const specrt_cuda_draft *drafts,
                                     const specrt_sampling *samplings, const float *logits) {
    int32_t node = (int32_t)blockIdx.y, sequence = node / v.params.max_nodes;
    int32_t n_vocab = v.params.n_vocab;
    if (node % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    int64_t at = (int64_t)node * gridDim.x + blockIdx.x;
    uint32_t orders[SPECRT__VERIFY_EACH];
    float row[SPECRT__VERIFY_EACH]; /* loads under way */
    uint64_t best = 0;
    logits += (int64_t)node * v.params.n_logits;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++)
        row[j] = specrt__verify_column(j) < n_vocab ? logits[specrt__verify_column(j)] : -INFINITY;
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_EACH; j++) {
        orders[j] = row[j] > -INFINITY ? specrt__shortlist_order(row[j]) : 0;
        if (orders[j] > 0) best = max(best, specrt__verify_key(orders[j], j));
    }
    best = specrt__block_max(best);
    if (specrt__block_thread() == 0) v.best[at] = best;
    bool top_k = s->top_k > 0 && s->top_k < n_vocab;
    if (!(s->temperature > 0) || !(top_k || (s->top_p > 0 && s->top_p < 1))) return;
    if (!top_k) specrt__verify_estimate(row, best, s->temperature, v.estimates + 2 * at);
    int32_t sure = top_k ? specrt__pool_least(s->top_k, SPECRT__VERIFY_SURE) : SPECRT__VERIFY_SURE;
    specrt__verify_list(orders, sure, v.keys + at * SPECRT__VERIFY_CANDIDATES, &v.least[at],
                        &v.n_keys[at]);
}

/* A node's candidates that are all known, moved together: part by part, each in the order of ids.
 *   n_parts : of a node;  *least : all tokens of this order or above are among them */
static __device__ specrt__verify_tokens specrt__verify_gather(const specrt__cuda_verifier &v,
                                                              int64_t node, int32_t n_parts,
                                                              uint32_t *least) {
    int64_t at = node * n_parts;
    uint64_t *keys = v.keys + at * SPECRT__VERIFY_CANDIDATES, greatest = 0, most = 0;
    int32_t thread = specrt__block_thread(), n = 0, before;
    for (int32_t p = thread; p < n_parts; p += specrt__block_threads()) {
        greatest = max(greatest, (uint64_t)v.least[at + p]);
        most = max(most, (uint64_t)v.n_keys[at + p]);
    }
    *least = (uint32_t)specrt__block_max(greatest);
    int32_t width = (int32_t)specrt__block_max(most), n_places = n_parts * width;
    for (int32_t first = 0; first < n_places; first += specrt__block_threads()) {
        int32_t i = first + thread, part = i / width, j = i % width;
        bool in = i < n_places && j < v.n_keys[at + part];
        uint64_t key = in ? keys[part * SPECRT__VERIFY_CANDIDATES + j] : 0;
        bool take = key >> 32 >= *least;
        int32_t n_taken = specrt__block_rank(take, &before);
        if (i < n_places && j == 0) v.starts[at + part] = n + before;
        if (take) keys[n + before] = key; /* no later one is read from here */
        n += n_taken;
    }
    __syncthreads();
    if (thread == 0) v.least[at] = *least, v.n_keys[at] = n; /* for another look */
    return {NULL, keys, n};
}

/* The sum of a node's weights, from its parts', and by how much that may be wrong. A weight is wrong by 2^-23
 * of it, times the number in its exponent or 2; here the sum's, the estimate's and the shift to the node's
 * best are, each at most so much, and as much again for safety. */
static __device__ double specrt__verify_total_estimate(const specrt__cuda_verifier &v, int64_t node,
                                                       int32_t n_parts, double *error) {
    const specrt__cuda_distribution *d = &v.distributions[node];
    double sum = 0, far = 0;
    for (int32_t p = specrt__block_thread(); p < n_parts; p += specrt__block_threads()) {
        int64_t at = node * n_parts + p;
        if (v.best[at] == 0) continue;
        double max = (double)specrt__shortlist_key_logit(v.best[at]);
        double below = ((double)d->max - max) * (double)d->scale, share = exp(-below);
        sum += share * v.estimates[2 * at];
        far += share * (v.estimates[2 * at + 1] + below * v.estimates[2 * at]);
    }
    sum = specrt__block_sum(sum);
    far = specrt__block_sum(far);
    *error = far / (1 << 21) + sum / (1 << 20);
    return sum;
}

/* Of keys [begin, end) in the order of their ids the first whose id is at least this. */
static __device__ int32_t specrt__verify_first(const uint64_t *keys, int32_t begin, int32_t end,
                                               int32_t id) {
    while (begin < end) {
        int32_t middle = begin + (end - begin) / 2;
        if (specrt__shortlist_key_id(keys[middle]) < id)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Sums of what is kept of candidates, by the blocks of a vocabulary: a thread adds those of a block, in the
 * order of their ids. */
static __device__ void specrt__verify_sum_candidates(const specrt__cuda_verifier &v, int64_t node,
                                                     const specrt__verify_tokens &tokens,
                                                     int32_t n_parts, int32_t n_blocks) {
    const specrt__cuda_distribution distribution = v.distributions[node];
    const int32_t *starts = v.starts + node * n_parts;
    for (int32_t block = specrt__block_thread(); block < n_blocks;
         block += specrt__block_threads()) {
        double sum = 0;
        for (int32_t line = 0; line < SPECRT__VERIFY_LINES; line++) {
            int32_t from = block * SPECRT__VERIFY_BLOCK + line * SPECRT__VERIFY_THREADS;
            int32_t part = from / SPECRT__VERIFY_THREADS % n_parts;
            int32_t end = part + 1 < n_parts ? starts[part + 1] : tokens.n;
            int32_t i = specrt__verify_first(tokens.keys, starts[part], end, from);
            for (; i < end; i++) {
                int32_t id = specrt__shortlist_key_id(tokens.keys[i]);
                if (id >= from + SPECRT__VERIFY_THREADS) break;
                sum += (double)specrt__verify_kept(distribution,
                                                   specrt__shortlist_key_logit(tokens.keys[i]), id);
            }
        }
        v.sums[node * n_blocks + block] = sum;
    }
}

/* --- filters --- */

/* Cuts a node's distribution as its sampling says. @return false: the tokens may be too few, and nothing is
 * cut.
 *   total, error, least : as in specrt__verify_nucleus() */
static __device__ bool specrt__verify_filter(specrt__cuda_distribution *distribution,
                                             const specrt__verify_tokens &tokens,
                                             const specrt_sampling *s, double total, double error,
                                             uint32_t least) {
    if (distribution->top_k) {
        if (least > 1 && tokens.n < s->top_k) return false;
        specrt__verify_cut(distribution, tokens, -1, s->top_k);
        error = -1, least = 1;
    }
    return !distribution->top_p ||
           specrt__verify_nucleus(distribution, tokens, s->top_p, total, error, least);
}

/* Block i: what top_k and top_p keep of node i of all, and its sums. Where top_p cuts alone and an estimate
 * of all weights may not do, it is left to a second launch, after they are summed.
 *   grid (n_batch * max_nodes), any block.  Twin: specrt__verify_distribution */
static __global__ void __launch_bounds__(SPECRT__VERIFY_THREADS, 3)
    specrt__verify_filter_kernel(specrt__cuda_verifier v, const specrt_cuda_draft *drafts,
                                 const specrt_sampling *samplings, const float *logits,
                                 int32_t n_parts, int32_t n_blocks, bool again) {
    int64_t node = blockIdx.x, at = node * n_parts;
    int32_t sequence = (int32_t)node / v.params.max_nodes, n_vocab = v.params.n_vocab, block;
    if ((int32_t)node % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    specrt__cuda_distribution *distribution = &v.distributions[node];
    if (!distribution->drawn || !(distribution->top_k || distribution->top_p)) return;
    if (again && !distribution->whole) return;
    double *sums = v.sums + node * n_blocks, total = 0, error = 0, before;
    specrt__verify_tokens few = {NULL, v.keys + at * SPECRT__VERIFY_CANDIDATES, v.n_keys[at]};
    specrt__verify_tokens all = {logits + node * v.params.n_logits, NULL, n_vocab};
    uint32_t least = v.least[at];
    if (again)
        total = specrt__verify_add(sums, n_blocks, (double)INFINITY, &block, &before);
    else
        few = specrt__verify_gather(v, node, n_parts, &least);
    if (!again && !distribution->top_k)
        total = specrt__verify_total_estimate(v, node, n_parts, &error);
    specrt__verify_tokens tokens = few;
    bool enough = true;
    while (!specrt__verify_filter(distribution, tokens, s, total, error, least)) {
        if (!again && !distribution->top_k) {
            if (specrt__block_thread() == 0) distribution->whole = true;
            return;
        }
        tokens = all, enough = false, least = 1; /* which always is enough */
    }
    if (specrt__block_thread() == 0) distribution->least = s->min_p;
    __syncthreads();
    if (enough) specrt__verify_sum_candidates(v, node, few, n_parts, n_blocks);
    for (int32_t first = 0; first < n_blocks && !enough;
         first += specrt__block_threads() / SPECRT__VERIFY_LANES)
        specrt__verify_sum_blocks(*distribution, all.logits, n_vocab, first, sums);
}

// >>verify : src/cuda/verify.cuh
/* verify.cuh : owns, on the device, what the target emits, and the launches. Every node draws at once, each
 * under the key of its position, then the path is walked. Chains sampled from the drafter are accepted or
 * rejected, node by node. */

/* --- kernels --- */

/* Block i: how node i of all draws, before top_k and top_p.
 *   best u64 [., n_parts] -> distributions; tokens where nothing is drawn;  grid (n_batch * max_nodes), any
 *   block. Twin: specrt__verify_distribution */
static __global__ void specrt__verify_distribution_kernel(specrt__cuda_verifier v,
                                                          const specrt_cuda_draft *drafts,
                                                          const specrt_sampling *samplings,
                                                          const float *logits, int32_t n_parts) {
    int64_t at = blockIdx.x;
    int32_t sequence = (int32_t)at / v.params.max_nodes;
    if ((int32_t)at % v.params.max_nodes >= drafts[sequence].n) return;
    const specrt_sampling *s = &samplings[sequence];
    specrt__cuda_distribution d;
    uint64_t best = 0;
    for (int32_t i = specrt__block_thread(); i < n_parts; i += specrt__block_threads())
        best = max(best, v.best[at * n_parts + i]);
    best = specrt__block_max(best);
    if (specrt__block_thread() > 0) return;
    bool filters = v.params.sampled == 2;
    d.best = best ? specrt__shortlist_key_id(best) : -1;
    d.max = d.best < 0 ? 0 : logits[at * v.params.n_logits + d.best];
    d.drawn = v.params.sampled && s->temperature > 0 && best > 0 && d.max < INFINITY;
    d.scale = specrt__verify_scale(s->temperature);
    d.top_k = filters && s->top_k > 0 && s->top_k < v.params.n_vocab;
    d.top_p = filters && s->top_p > 0 && s->top_p < 1;
    d.whole = !d.top_k && !d.top_p;
    d.least = filters && d.whole ? s->min_p : 0;
    d.order = 0;
    d.id = INT32_MAX;
    v.distributions[at] = d;
    v.tokens[at] = d.best;
}

/* Block (b, node): sums of the weights of blocks of logits [1024], as many as there are eight threads. Where
 * few are kept they are summed where they are found.
 *   grid (n_blocks / (threads / 8), n_batch * max_nodes), any block */
static __global__ void specrt__verify_sum_kernel(specrt__cuda_verifier v,
                                                 const specrt_cuda_draft *drafts,
                                                 const float *logits, int32_t n_blocks) {
    int64_t at = blockIdx.y;
    int32_t first = (int32_t)blockIdx.x * (specrt__block_threads() / SPECRT__VERIFY_LANES);
    if ((int32_t)at % v.params.max_nodes >= drafts[at / v.params.max_nodes].n) return;
    const specrt__cuda_distribution distribution = v.distributions[at];
    if (!distribution.drawn || !distribution.whole) return;
    specrt__verify_sum_blocks(distribution, logits + at * v.params.n_logits, v.params.n_vocab,
                              first, v.sums + at * n_blocks);
}

/* Block i: the token that node i of all draws.
 *   grid (n_batch * max_nodes), block SPECRT__VERIFY_THREADS at most.  Twin: specrt__verify_pick */
static __global__ void specrt__verify_pick_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  const specrt_sampling *samplings,
                                                  const float *logits, int32_t n_blocks) {
    __shared__ float weights[SPECRT__VERIFY_BLOCK];
    int64_t at = blockIdx.x;
    int32_t sequence = (int32_t)at / v.params.max_nodes, node = (int32_t)at % v.params.max_nodes;
    int32_t block, thread = specrt__block_thread(), token = 0;
    double before;
    if (node >= drafts[sequence].n) return;
    const specrt__cuda_distribution *distribution = &v.distributions[at];
    if (!distribution->drawn) return;
    const double *sums = v.sums + at * n_blocks;
    double total = specrt__verify_add(sums, n_blocks, (double)INFINITY, &block, &before);
    double target = total * specrt__verify_uniform(&samplings[sequence], SPECRT__VERIFY_DRAW,
                                                   drafts[sequence].positions[node] + 1, 0);
    specrt__verify_add(sums, n_blocks, target, &block, &before);
    int32_t begin = block * SPECRT__VERIFY_BLOCK;
    int32_t n = specrt__pool_least(v.params.n_vocab - begin, SPECRT__VERIFY_BLOCK);
    for (int32_t i = thread; i < n; i += specrt__block_threads())
        weights[i] = specrt__verify_kept(*distribution, logits[at * v.params.n_logits + begin + i],
                                         begin + i);
    __syncthreads();
    if (thread >= 32) return; /* one warp passes over what filters removed, 32 at a time */
    for (int32_t i = 0; i < n && before <= target; i += 32) {
        float weight = i + thread < n ? weights[i + thread] : 0;
        unsigned kept = __ballot_sync(0xffffffffu, weight > 0);
        for (; kept && before <= target; kept &= kept - 1) {
            int lane = __ffs((int)kept) - 1;
            token = begin + i + lane;
            before += (double)__shfl_sync(0xffffffffu, weight, lane);
        }
    }
    if (thread == 0) v.tokens[at] = token;
}

/* The path of a sequence: while a child has the token that its parent drew; none, if a node of it drew
 * nothing. A warp calls, of which a lane holds every 32nd node.
 *   tokens : of node i at i * step, -1: none.  Twin: specrt_verify_tree */
static __device__ void specrt__verify_walk(const specrt_cuda_draft *draft, const int32_t *tokens,
                                           int32_t step, int32_t max_nodes, specrt_verdict *out) {
    const int kEach = SPECRT_TREE_MAX_NODES / 32;
    int32_t n = specrt__pool_least(draft->n, max_nodes), lane = specrt__block_thread();
    int32_t n_out = 0, node = n > 0 ? 0 : -1, parents[kEach], drafted[kEach], drawn[kEach];
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < kEach; j++) {
        int32_t i = 32 * j + lane;
        parents[j] = i < n ? draft->parents[i] : -1;
        drafted[j] = i < n ? draft->tokens[i] : -1;
        drawn[j] = i < n ? tokens[i * step] : 0;
    }
    while (node >= 0) {
        int32_t token = -1, child = -1;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            int32_t x = __shfl_sync(0xffffffffu, drawn[j], node % 32);
            if (node / 32 == j) token = x;
        }
        if (token < 0) {
            n_out = 0;
            break;
        }
        if (lane == 0) {
            out->nodes[n_out] = node;
            out->tokens[n_out] = token;
        }
        n_out++;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < kEach; j++) {
            bool is_child = 32 * j + lane > node && parents[j] == node && drafted[j] == token;
            unsigned found = __ballot_sync(0xffffffffu, is_child);
            if (found && child < 0) child = 32 * j + __ffs((int)found) - 1;
        }
        node = child;
    }
    if (lane > 0) return;
    out->n = n_out;
    out->end = SPECRT_END_NONE;
}

/* Block b: the path of sequence b.  grid (n_batch), block 32 */
static __global__ void specrt__verify_walk_kernel(specrt__cuda_verifier v,
                                                  const specrt_cuda_draft *drafts,
                                                  specrt_verdict *verdicts) {
    int64_t b = blockIdx.x;
    specrt__verify_walk(&drafts[b], v.tokens + b * v.params.max_nodes, 1, v.params.max_nodes,
                        &verdicts[b]);
}

/* As specrt__shortlist_rank_kernel, of the target's logits at the nodes of drafts; the last block of a
 * sequence follows the best tokens. */
static __global__ void __launch_bounds__(SPECRT__SHORTLIST_THREADS, SPECRT__SHORTLIST_BLOCKS)
    specrt__verify_rank_kernel(specrt__shortlist_ranks r, const specrt_cuda_draft *drafts,
                               specrt_verdict *verdicts) {
    int64_t b = blockIdx.z;
    if (specrt__shortlist_rank(r) && threadIdx.x < 32)
        specrt__verify_walk(&drafts[b], r.ids + b * r.row_step * r.k, r.k, r.max_n, &verdicts[b]);
}

/* --- sampled chains --- */

/* Of x [n] the place at which the running sum passes the target, or the last above 0. Each warp adds up a
 * 32nd of what is left, its lanes side by side; that in which the target lies is left then. */
static __device__ int32_t specrt__verify_find(const float *x, int32_t n, double target) {
    __shared__ double sums[SPECRT__BLOCK_WARPS], before;
    __shared__ int32_t first, end;
    int32_t thread = specrt__block_thread(), n_warps = specrt__block_threads() / 32;
    if (thread == 0) before = 0, first = 0, end = n;
    __syncthreads();
    while (end - first > 32) {
        int32_t width = (end - first + SPECRT__BLOCK_WARPS - 1) / SPECRT__BLOCK_WARPS;
        for (int32_t part = thread / 32; part < SPECRT__BLOCK_WARPS; part += n_warps) {
            int32_t begin = first + part * width, stop = specrt__pool_least(begin + width, end);
            double sum = 0;
            for (int32_t i = begin + thread % 32; i < stop; i += 32) sum += (double)x[i];
            for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
            if (thread % 32 == 0) sums[part] = sum;
        }
        __syncthreads();
        if (thread == 0) {
            double sum = before;
            int32_t part = 0;
            for (int32_t i = 0; i < SPECRT__BLOCK_WARPS && sum <= target; i++) {
                if (!(sums[i] > 0)) continue;
                part = i;
                before = sum;
                sum += sums[i];
            }
            first += part * width;
            end = specrt__pool_least(first + width, end);
        }
        __syncthreads();
    }
    int32_t found = first;
    double sum = before;
    for (int32_t i = first; i < end && sum <= target; i++) {
        if (!(x[i] > 0)) continue;
        found = i;
        sum += (double)x[i];
    }
    __syncthreads();
    return found;
}

/* What a sequence's levels are drawn from. */
typedef struct specrt__verify_shortlist {
    const specrt__cuda_segment *segments; /* [n_batch, n_segments] */
    int32_t starts[SPECRT__CUDA_MAX_SEGMENTS], n_segments;
    const float *logits; /* of all sequences; in the kernel of its own */
    float temperature;
} specrt__verify_shortlist;

/* The next values of a thread, from x[first] on, whose loads are under way together; behind the last: none */
template <typename T>
static __device__ void specrt__verify_fetch(const T *x, int32_t first, int32_t n, T none, T *out) {
    SPECRT__LAUNCH_UNROLL
    for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
        int32_t i = first + j * specrt__block_threads();
        out[j] = i < n ? x[i] : none;
    }
}

/* The tokens of columns [0, n), to ids; -1: it has none. @return the greatest key of logit and column; 0:
 * there is none. */
static __device__ uint64_t specrt__verify_name(const specrt__verify_shortlist &from,
                                               const float *logits, int32_t n, int32_t *ids) {
    const specrt__cuda_segment *segment = from.segments + (int64_t)blockIdx.x * from.n_segments;
    int32_t threads = specrt__block_threads(), tokens[SPECRT__VERIFY_SOME];
    float row[SPECRT__VERIFY_SOME];
    uint64_t best = 0;
    for (int32_t s = 0; s < from.n_segments; s++, segment++) {
        int32_t n_rows = segment->n_rows ? *segment->n_rows : segment->max_rows;
        int32_t start = from.starts[s], end = s + 1 < from.n_segments ? from.starts[s + 1] : n;
        for (int32_t first = start + specrt__block_thread(); first < end;
             first += SPECRT__VERIFY_SOME * threads) {
            specrt__verify_fetch(logits, first, end, -INFINITY, row);
            specrt__verify_fetch(segment->ids, first - start, n_rows, -1, tokens);
            SPECRT__LAUNCH_UNROLL
            for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
                int32_t i = first + j * threads;
                if (i < end) ids[i] = tokens[j];
                if (tokens[j] >= 0 && row[j] > -INFINITY)
                    best = max(best, specrt__shortlist_key(row[j], i));
            }
        }
    }
    return specrt__block_max(best);
}

/* The distribution of a level: logits of columns [0, n) to probs, ids to tokens. @return their sum; 0: there
 * is none. Twin: specrt_verifier_propose. */
static __device__ double specrt__verify_soften(const specrt__verify_shortlist &from, int32_t n,
                                               int32_t *ids, float *probs) {
    const float *logits = from.logits;
    float scale = specrt__verify_scale(from.temperature), row[SPECRT__VERIFY_SOME];
    int32_t thread = specrt__block_thread(), threads = specrt__block_threads();
    int32_t step = SPECRT__VERIFY_SOME * threads, tokens[SPECRT__VERIFY_SOME];
    uint64_t best = specrt__verify_name(from, logits, n, ids);
    double sum = 0;
    if (best == 0) return 0;
    int32_t place = specrt__shortlist_key_id(best);
    float max = logits[place];
    for (int32_t first = thread; first < n; first += step) {
        specrt__verify_fetch<int32_t>(ids, first, n, -1, tokens);
        specrt__verify_fetch(logits, first, n, -INFINITY, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            bool counts = tokens[j] >= 0 && max < INFINITY;
            row[j] = counts ? specrt__verify_weight(row[j], max, scale) : (float)(i == place);
            if (i < n) probs[i] = row[j], sum += (double)row[j];
        }
    }
    double each = 1 / specrt__block_sum(sum);
    sum = 0;
    for (int32_t first = thread; first < n; first += step) {
        specrt__verify_fetch<float>(probs, first, n, 0, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            row[j] = (float)((double)row[j] * each);
            if (i < n) probs[i] = row[j], sum += (double)row[j];
        }
    }
    return specrt__block_sum(sum);
}

/* Block b: the token that sequence b drafts at its level, drawn from the distribution that is noted.
 *   step : from the logits of a sequence to those of the next
 *   ids i32, logprobs f32 [n_batch];  grid (n_batch), any block.  Twin: specrt_verifier_propose */
static __global__ void __launch_bounds__(SPECRT__VERIFY_DISTRIBUTION_THREADS)
    specrt__verify_propose_kernel(specrt__verify_shortlist from, int64_t step,
                                  const specrt__cuda_tree *trees, const specrt_sampling *samplings,
                                  specrt__cuda_distributions distributions, int32_t *ids,
                                  float *logprobs) {
    const specrt__cuda_tree *t = &trees[blockIdx.x];
    if (t->n_beam == 0 || t->level >= distributions.n_steps) return;
    int64_t at = (int64_t)blockIdx.x * distributions.n_steps + t->level;
    int32_t *tokens = distributions.ids + at * distributions.n_columns;
    float *probs = distributions.probs + at * distributions.n_columns;
    from.logits += (int64_t)blockIdx.x * step;
    double sum = specrt__verify_soften(from, distributions.n_columns, tokens, probs);
    double u = specrt__verify_uniform(&samplings[blockIdx.x], SPECRT__VERIFY_DRAFT,
                                      (int64_t)t->cycle, t->level);
    __syncthreads();
    int32_t i = specrt__verify_find(probs, sum > 0 ? distributions.n_columns : 0, u * sum);
    if (specrt__block_thread() > 0) return;
    ids[blockIdx.x] = sum > 0 ? tokens[i] : 0;
    logprobs[blockIdx.x] = sum > 0 ? logf(probs[i]) : -INFINITY;
    distributions.chances[at] = sum > 0 ? probs[i] : 0;
    distributions.sampled[at] = sum > 0 ? tokens[i] : -1;
}

/* What the distribution of a node gives a token. */
static __device__ float specrt__verify_mass(const specrt__cuda_distribution &distribution,
                                            float logit, int32_t id) {
    return distribution.drawn ? specrt__verify_kept(distribution, logit, id)
                              : (float)(id == distribution.best);
}

/* The sum of what a node's distribution gives all tokens.
 *   at : its number of all;  n_blocks : sums of a node */
static __device__ double specrt__verify_total(const specrt__cuda_verifier &v, int64_t at,
                                              int32_t n_blocks) {
    double sum = 0;
    for (int32_t i = specrt__block_thread(); i < n_blocks; i += specrt__block_threads())
        sum += v.sums[at * n_blocks + i];
    sum = specrt__block_sum(sum);
    return v.distributions[at].drawn ? sum : 1;
}

/* Weights [n_vocab] of what a node's distribution gives beyond `total` times a draft's distribution; probs
 * NULL: of all it gives. @return their sum. Twin: specrt__verify_subtract. */
static __device__ double specrt__verify_rest(const specrt__cuda_distribution distribution,
                                             const float *logits, int32_t n_vocab,
                                             const int32_t *ids, const float *probs, int32_t n,
                                             double total, float *weights) {
    int32_t thread = specrt__block_thread(), threads = specrt__block_threads();
    int32_t step = SPECRT__VERIFY_SOME * threads, tokens[SPECRT__VERIFY_SOME];
    float row[SPECRT__VERIFY_SOME], left[SPECRT__VERIFY_SOME];
    double sum = 0;
    for (int32_t first = thread; first < n_vocab; first += step) {
        specrt__verify_fetch(logits, first, n_vocab, -INFINITY, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++) {
            int32_t i = first + j * threads;
            if (i < n_vocab) weights[i] = specrt__verify_mass(distribution, row[j], i);
        }
    }
    __syncthreads();
    for (int32_t first = thread; first < n && probs; first += step) {
        specrt__verify_fetch(ids, first, n, -1, tokens);
        specrt__verify_fetch<float>(probs, first, n, 0, row);
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            left[j] = row[j] > 0 ? weights[tokens[j]] - (float)((double)row[j] * total) : 0;
        SPECRT__LAUNCH_UNROLL
        for (int j = 0; j < SPECRT__VERIFY_SOME; j++)
            if (row[j] > 0) weights[tokens[j]] = left[j] > 0 ? left[j] : 0;
    }
    __syncthreads();
    for (int32_t i = thread; i < n_vocab; i += threads) sum += (double)weights[i];
    return specrt__block_sum(sum);
}

/* Whether a draft is the chain that was sampled, or its beginning: any other would be judged by distributions
 * that its tokens do not come from.
 *   sampled : of each level, `level` of them.  Twin: specrt__session_check_sampled */
static __device__ bool specrt__verify_is_sampled(const specrt_cuda_draft *draft, int32_t max_nodes,
                                                 const int32_t *sampled, int32_t level) {
    bool own = draft->n >= 1 && draft->n <= max_nodes && draft->n <= level + 1;
    for (int32_t i = 1; own && i < draft->n; i++) own = draft->tokens[i] == sampled[i - 1];
    return own;
}

/* Block b: how many of sequence b's draws the target takes, and what it emits instead of the next; nothing,
 * if the draft is another or a node has no logit above -inf.
 *   grid (n_batch), any block.  Twins: specrt_verify_chain, specrt_session_verify */
static __global__ void __launch_bounds__(SPECRT__VERIFY_DISTRIBUTION_THREADS)
    specrt__verify_chain_kernel(specrt__cuda_verifier v, specrt__cuda_distributions distributions,
                                const specrt_cuda_draft *drafts, const specrt__cuda_tree *trees,
                                const specrt_sampling *samplings, const float *logits,
                                int32_t n_blocks, specrt_verdict *verdicts) {
    int64_t b = blockIdx.x, at = b * v.params.max_nodes;
    const specrt_cuda_draft *draft = &drafts[b];
    const specrt_sampling *s = &samplings[b];
    specrt_verdict *out = &verdicts[b];
    int64_t cycle = (int64_t)trees[b].cycle, level = b * distributions.n_steps;
    int32_t n = draft->n, n_vocab = v.params.n_vocab, i = 0, thread = specrt__block_thread();
    float *weights = distributions.weights + b * n_vocab;
    double total = 0;
    if (thread == 0) {
        out->n = 0;
        out->end = SPECRT_END_NONE;
    }
    if (!specrt__verify_is_sampled(draft, v.params.max_nodes, distributions.sampled + level,
                                   trees[b].level))
        return;
    logits += at * v.params.n_logits;
    for (;; i++, at++, level++, logits += v.params.n_logits) {
        if (v.distributions[at].best < 0) return;
        total = specrt__verify_total(v, at, n_blocks);
        if (i + 1 >= n) break;
        int32_t token = draft->tokens[i + 1];
        double p = (double)specrt__verify_mass(v.distributions[at], logits[token], token) / total;
        double u = specrt__verify_uniform(s, SPECRT__VERIFY_ACCEPT, cycle, i);
        if (!(u * (double)distributions.chances[level] < p)) break;
        if (thread == 0) out->tokens[i] = token, out->nodes[i] = i;
    }
    const float *probs = i + 1 < n ? distributions.probs + level * distributions.n_columns : NULL;
    double left =
        specrt__verify_rest(v.distributions[at], logits, n_vocab,
                            distributions.ids + (probs ? level * distributions.n_columns : 0),
                            probs, distributions.n_columns, total, weights);
    if (!(left > 1e-12 * total)) /* no more than rounding */
        left = specrt__verify_rest(v.distributions[at], logits, n_vocab, NULL, NULL, 0, total,
                                   weights);
    double u = specrt__verify_uniform(s, SPECRT__VERIFY_INSTEAD, cycle, i);
    int32_t token = specrt__verify_find(weights, n_vocab, u * left);
    if (thread > 0) return;
    out->tokens[i] = token;
    out->nodes[i] = i;
    out->n = i + 1;
}

/* out[i] = ids[in[i]].  grid (blocks of n), any block */
static __global__ void specrt__verify_remap_kernel(const int32_t *ids, int32_t n_ids,
                                                   const int32_t *in, int64_t n, int32_t *out) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] >= 0 && in[i] < n_ids ? ids[in[i]] : -1;
}

/* --- launches --- */

static bool specrt__verify_params_ok(const specrt__cuda_verifier_params *p) {
    return p && p->n_batch >= 1 && p->n_batch <= SPECRT__CUDA_MAX_BATCH && p->n_vocab >= 1 &&
           p->n_vocab <= p->n_logits && p->n_logits <= SPECRT_MAX_VOCAB && p->max_nodes >= 1 &&
           p->max_nodes <= SPECRT_TREE_MAX_NODES && p->sampled >= 0 && p->sampled <= 2 &&
           p->n_batch * p->max_nodes <= 65535;
}

static size_t specrt__verify_lay_out(void *memory, specrt__cuda_verifier *v) {
    size_t n = (size_t)v->params.n_batch * (size_t)v->params.max_nodes;
    size_t n_distributions = v->params.sampled ? n : 0;
    size_t n_parts = specrt__launch_blocks(v->params.n_vocab, SPECRT__VERIFY_PART);
    size_t n_blocks = specrt__launch_blocks(v->params.n_vocab, SPECRT__VERIFY_BLOCK);
    size_t n_ranking = specrt__cuda_topk_bytes(v->params.n_vocab, (int64_t)n, 1);
    specrt__launch_arena arena = {memory, 0};
    uint8_t *ranking;
    specrt__launch_carve(&arena, v->params.sampled ? 0 : n_ranking, &ranking);
    specrt__launch_carve(&arena, n_distributions * n_parts, &v->best);
    specrt__launch_carve(&arena, n_distributions * n_blocks, &v->sums);
    specrt__launch_carve(&arena, n_distributions, &v->distributions);
    specrt__launch_carve(&arena, n, &v->tokens);
    n_parts *= v->params.sampled == 2 ? n : 0;
    specrt__launch_carve(&arena, n_parts * SPECRT__VERIFY_CANDIDATES, &v->keys);
    specrt__launch_carve(&arena, 2 * n_parts, &v->estimates);
    specrt__launch_carve(&arena, n_parts, &v->least);
    specrt__launch_carve(&arena, n_parts, &v->n_keys);
    specrt__launch_carve(&arena, n_parts, &v->starts);
    v->scratch = ranking;
    return arena.bytes;
}

SPECRT__KERNEL size_t specrt__cuda_verifier_bytes(const specrt__cuda_verifier_params *params) {
    specrt__cuda_verifier v;
    if (!specrt__verify_params_ok(params)) return 0;
    v.params = *params;
    return specrt__verify_lay_out(NULL, &v);
}

SPECRT__KERNEL specrt_status specrt__cuda_verifier_place(const specrt__cuda_verifier_params *params,
                                                         void *memory, specrt__cuda_verifier *out) {
    if (!memory || !out || !specrt__verify_params_ok(params)) return SPECRT_STATUS_BAD_ARG;
    out->params = *params;
    specrt__verify_lay_out(memory, out);
    return SPECRT_STATUS_OK;
}

/* What top_k and top_p leave of the distributions; `again`: where a first look was not enough. */
static specrt_status specrt__verify_launch_filter(const specrt__cuda_verifier *v,
                                                  const specrt_cuda_draft *drafts,
                                                  const specrt_sampling *samplings,
                                                  const float *logits, bool again, void *stream) {
    const specrt__cuda_verifier_params *p = &v->params;
    if (p->sampled < 2) return SPECRT_STATUS_OK;
    return SPECRT__LAUNCH(specrt__verify_filter_kernel, (unsigned)(p->n_batch * p->max_nodes),
                          specrt__block_size(SPECRT__VERIFY_THREADS), 0, stream, *v, drafts,
                          samplings, logits,
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_PART),
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK), again);
}

/* The distributions of all nodes, and their sums. */
static specrt_status specrt__verify_lay_distributions(const specrt__cuda_verifier *verifier,
                                                      const specrt_cuda_draft *drafts,
                                                      const specrt_sampling *samplings,
                                                      const float *logits, void *stream) {
    if (!verifier || !specrt__verify_params_ok(&verifier->params) || !verifier->best ||
        !verifier->distributions || !verifier->tokens || !drafts || !samplings || !logits)
        return SPECRT_STATUS_BAD_ARG;
    const specrt__cuda_verifier_params *p = &verifier->params;
    unsigned n = (unsigned)(p->n_batch * p->max_nodes);
    unsigned n_parts = specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_PART);
    unsigned n_blocks = specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK);
    int threads = specrt__block_size(SPECRT__VERIFY_THREADS);
    dim3 sums(specrt__launch_blocks(n_blocks, threads / SPECRT__VERIFY_LANES), n);
    if (p->sampled == 2)
        SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_candidates_kernel, dim3(n_parts, n),
                                   (int)SPECRT__VERIFY_THREADS, 0, stream, *verifier, drafts,
                                   samplings, logits));
    else
        SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_best_kernel, dim3(n_parts, n), threads, 0, stream,
                                   *verifier, drafts, logits));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_distribution_kernel, n, 32, 0, stream, *verifier,
                               drafts, samplings, logits, (int32_t)n_parts));
    SPECRT__TRY(specrt__verify_launch_filter(verifier, drafts, samplings, logits, false, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_sum_kernel, sums, threads, 0, stream, *verifier,
                               drafts, logits, (int32_t)n_blocks));
    return specrt__verify_launch_filter(verifier, drafts, samplings, logits, true, stream);
}

/* The nodes of a batch's drafts. */
static specrt__cuda_batch specrt__verify_nodes(const specrt_cuda_draft *drafts, int32_t n_batch,
                                               int32_t max_nodes) {
    return {n_batch, max_nodes, &drafts->n, sizeof *drafts / sizeof(int32_t)};
}

/* Greedy verification by a ranking, which reads the logits once: ids i32 [n_batch, row_step, k] get the
 * target's best at each node too. */
static specrt_status specrt__verify_greedily(const specrt__cuda_verifier_params *p,
                                             const specrt_cuda_draft *drafts, const float *logits,
                                             int32_t k, int32_t *ids, int32_t row_step,
                                             void *scratch, specrt_verdict *verdicts,
                                             void *stream) {
    specrt__shortlist_ranks r;
    dim3 grid;
    if (!drafts || !verdicts) return SPECRT_STATUS_BAD_ARG;
    specrt__cuda_batch nodes = specrt__verify_nodes(drafts, p->n_batch, p->max_nodes);
    SPECRT__TRY(
        specrt__shortlist_whole(&nodes, logits, p->n_vocab, k, ids, row_step, scratch, &r, &grid));
    r.row_size = p->n_logits;
    return SPECRT__LAUNCH(specrt__verify_rank_kernel, grid, (int)SPECRT__SHORTLIST_THREADS, 0,
                          stream, r, drafts, verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_verify(const specrt__cuda_verifier *verifier,
                                                 const specrt_cuda_draft *drafts,
                                                 const specrt_sampling *samplings,
                                                 const float *logits, specrt_verdict *verdicts,
                                                 void *stream) {
    if (!verdicts || !verifier || !samplings) return SPECRT_STATUS_BAD_ARG;
    const specrt__cuda_verifier_params *p = &verifier->params;
    if (!p->sampled)
        return specrt__verify_greedily(p, drafts, logits, 1, verifier->tokens, p->max_nodes,
                                       verifier->scratch, verdicts, stream);
    SPECRT__TRY(specrt__verify_lay_distributions(verifier, drafts, samplings, logits, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__verify_pick_kernel, (unsigned)(p->n_batch * p->max_nodes),
                               specrt__block_size(SPECRT__VERIFY_THREADS), 0, stream, *verifier,
                               drafts, samplings, logits,
                               (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK)));
    return SPECRT__LAUNCH(specrt__verify_walk_kernel, (unsigned)p->n_batch, 32, 0, stream,
                          *verifier, drafts, verdicts);
}

static bool specrt__verify_distributions_ok(const specrt__cuda_distributions *distributions) {
    return distributions && distributions->n_steps >= 1 &&
           distributions->n_steps <= SPECRT_TREE_MAX_STEPS && distributions->n_columns >= 1 &&
           distributions->ids && distributions->probs && distributions->chances &&
           distributions->sampled && distributions->weights;
}

SPECRT__KERNEL specrt_status specrt__cuda_propose(const specrt__cuda_layout *layout,
                                                  const specrt__cuda_segment *segments,
                                                  int32_t n_batch, const float *logits,
                                                  int64_t step, const specrt__cuda_tree *trees,
                                                  const specrt_sampling *samplings,
                                                  const specrt__cuda_distributions *distributions,
                                                  int32_t *ids, float *logprobs, void *stream) {
    specrt__verify_shortlist from;
    SPECRT__CLEAR(&from, 1);
    SPECRT__TRY(specrt__window_check(n_batch, trees));
    if (!segments || !logits || !samplings || !ids || !logprobs ||
        !specrt__verify_distributions_ok(distributions) ||
        !(distributions->temperature > 0 && distributions->temperature <= 100) ||
        specrt__head_lay_out(layout, from.starts) != distributions->n_columns)
        return SPECRT_STATUS_BAD_ARG;
    from.segments = segments;
    from.n_segments = layout->n_segments;
    from.logits = logits;
    from.temperature = distributions->temperature;
    return SPECRT__LAUNCH(specrt__verify_propose_kernel, (unsigned)n_batch,
                          specrt__block_size(SPECRT__VERIFY_DISTRIBUTION_THREADS), 0, stream, from,
                          step, trees, samplings, *distributions, ids, logprobs);
}

SPECRT__KERNEL specrt_status specrt__cuda_verify_chain(
    const specrt__cuda_verifier *verifier, const specrt__cuda_distributions *distributions,
    const specrt_cuda_draft *drafts, const specrt__cuda_tree *trees,
    const specrt_sampling *samplings, const float *logits, specrt_verdict *verdicts, void *stream) {
    if (!verdicts || !trees || !specrt__verify_distributions_ok(distributions) || !verifier ||
        !verifier->params.sampled)
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__TRY(specrt__verify_lay_distributions(verifier, drafts, samplings, logits, stream));
    const specrt__cuda_verifier_params *p = &verifier->params;
    return SPECRT__LAUNCH(specrt__verify_chain_kernel, (unsigned)p->n_batch,
                          specrt__block_size(SPECRT__VERIFY_DISTRIBUTION_THREADS), 0, stream,
                          *verifier, *distributions, drafts, trees, samplings, logits,
                          (int32_t)specrt__launch_blocks(p->n_vocab, SPECRT__VERIFY_BLOCK),
                          verdicts);
}

SPECRT__KERNEL specrt_status specrt__cuda_remap(const int32_t *ids, int32_t n_ids,
                                                const int32_t *in, int64_t n, int32_t *out,
                                                void *stream) {
    if (!ids || !in || !out || n_ids < 1 || n < 1 || n > INT32_MAX) return SPECRT_STATUS_BAD_ARG;
    return SPECRT__LAUNCH(specrt__verify_remap_kernel,
                          specrt__launch_blocks(n, SPECRT__VERIFY_THREADS), SPECRT__VERIFY_THREADS,
                          0, stream, ids, n_ids, in, n, out);
}

// >>ring : src/cuda/ring.cuh
/* ring.cuh : owns the way of cycles to retrieval on the host, and of what that changes back, through
 * memory that both sides map. Neither waits for the other: a cycle that finds no room is lost to
 * retrieval, and counted. Prompts, which may be longer than any ring, go another way: the host waits
 * for each part of one.
 *
 * Record number i is in slot i % SPECRT__RETRIEVE_RECORDS, and belongs to one side at a time:
 *
 *             taken            done            posted        taken + SPECRT__RETRIEVE_RECORDS
 *     over    |   the device's   |  the host's   |    free    |
 *
 * The device writes a cycle into a free slot, then adds to `posted`. The host works it off, writes into the
 * record what changed, then adds to `done`. The device makes wishes of the changes, then adds to `taken`,
 * which it alone reads. Each number has one writer and only grows, and who reads it sees all that was
 * written before it: by __threadfence_system() on the device, by acquire and release on the host. So a
 * number that is read too early only makes a side do less this time, and nothing needs a lock. Numbers wrap
 * around: they are compared by their difference.
 *
 * A sequence that keeps nothing begins at the record that is posted next, `begun`. The device passes over
 * changes of earlier records; the host empties its cache when it comes to that one. */

/* Cycles on their way to retrieval on the host, in memory that both sides map. Records are numbered: the
 * device writes `posted` after a record, the host `done` after it has written what the record changed. */
typedef struct specrt__ring_records {
    uint32_t posted, done;
    uint32_t begun; /* the first record of the sequence at hand */
    /* Sequences, but for those that go on with what is kept; written after `begun`. */
    uint32_t n_begun;
    specrt__retrieve_record records[SPECRT__RETRIEVE_RECORDS];
} specrt__ring_records;

/* Retrieval's part of a sequence, on the device. */
typedef struct specrt__ring_cache {
    uint32_t posted, taken, begun; /* of the ring */
    int32_t n_cycles, n_events, n_lost;
    specrt__cuda_mailbox mailbox;
} specrt__ring_cache;

/* Retrieval of a batch, as kernels see it. */
typedef struct specrt__ring_view {
    specrt__ring_cache *caches;  /* DEVICE [n_batch]; NULL: nothing retrieves */
    specrt__ring_records *rings; /* [n_batch] */
    float *queries; /* f32 [n_batch, SPECRT__RETRIEVE_RECORDS, width] states that records go with */
    int32_t width;  /* of the target's hidden states; 0: none is read */
    int32_t k_best;
    const int32_t
        *best; /* DEVICE [n_batch, SPECRT_TREE_MAX_NODES, k_best] of the target's at nodes */
} specrt__ring_view;

/* Record number `at` becomes wishes from place `posted` of the mailbox on, a thread a change: memory of the
 * host is asked for at once, not a change at a time. @return the place behind them. */
static __device__ uint32_t specrt__ring_take_record(specrt__ring_cache *cache,
                                                    const volatile specrt__ring_records *ring,
                                                    uint32_t at, uint32_t posted) {
    const volatile specrt__retrieve_record *record = &ring->records[at % SPECRT__RETRIEVE_RECORDS];
    int32_t n = record->n_changes;
    for (int32_t i = specrt__block_thread(); i < n; i += specrt__block_threads()) {
        int32_t id = record->changes[i];
        specrt__cuda_change *c =
            &cache->mailbox.changes[(posted + (uint32_t)i) % SPECRT__CUDA_CHANGES];
        c->id = id >= 0 ? id : ~id;
        c->bit = SPECRT__CUDA_RETRIEVE;
        c->on = id >= 0;
        c->reserved = 0;
    }
    return posted + (uint32_t)n;
}

/* What the host made of its records becomes wishes. Records of another sequence are passed over. All threads
 * of a block call. Twin: specrt__retrieve_take. */
static __device__ void specrt__ring_take(specrt__ring_cache *cache,
                                         const volatile specrt__ring_records *ring) {
    __shared__ uint32_t done; /* one for all: the host may add to it between two looks */
    uint32_t taken = cache->taken, posted = cache->mailbox.posted, begun = cache->begun;
    if (specrt__block_thread() == 0) {
        done = ring->done;
        __threadfence_system();
    }
    __syncthreads();
    uint32_t end = done;
    for (; (int32_t)(end - taken) > 0; taken++)
        if ((int32_t)(taken - begun) >= 0)
            posted = specrt__ring_take_record(cache, ring, taken, posted);
    __syncthreads();
    if (specrt__block_thread() == 0) cache->taken = taken, cache->mailbox.posted = posted;
    __syncthreads();
}

/* Block b: a new sequence. What is kept goes on; else records before this one are another's, and what they
 * changed is passed over.
 *   grid (n_batch), any block
 *   Twin: specrt__retrieve_begin */
static __global__ void specrt__ring_begin_kernel(bool keep, specrt__ring_cache *caches,
                                                 specrt__ring_records *rings) {
    size_t b = blockIdx.x;
    if (keep) specrt__ring_take(&caches[b], &rings[b]);
    if (threadIdx.x != 0) return;
    caches[b].n_events = caches[b].n_lost = 0;
    if (keep) return;
    caches[b].n_cycles = 0;
    caches[b].mailbox.taken = caches[b].mailbox.posted;
    caches[b].begun = caches[b].posted;
    volatile specrt__ring_records *ring = &rings[b];
    ring->begun = caches[b].begun;
    __threadfence_system();
    ring->n_begun = ring->n_begun + 1;
}

/* Twin: specrt__retrieve_write. */
static __device__ void specrt__ring_write(const specrt__ring_cache *cache,
                                          const specrt_verdict *verdict, const int32_t *best,
                                          int32_t k_best, bool event, bool told,
                                          volatile specrt__retrieve_record *record) {
    const int32_t *row = best + (int64_t)verdict->nodes[verdict->n - 1] * k_best;
    int32_t n_best = 0;
    record->now = cache->n_cycles;
    record->n_tokens = verdict->n;
    for (int32_t i = 0; i < verdict->n; i++) record->tokens[i] = verdict->tokens[i];
    for (; n_best < SPECRT__RETRIEVE_TOP && row[n_best] >= 0; n_best++)
        record->best[n_best] = row[n_best];
    record->n_best = n_best;
    record->n_changes = 0;
    record->event = event;
    record->told = told;
}

/* Block b: the cycle of sequence b as a record, and what the host made of earlier ones. Before the window
 * learns, since what could have been drafted is asked here. Twin: specrt__retrieve_observe.
 *   learns, states [n_batch]; hidden f32 [n_batch, n_nodes, width] of the target, or NULL: not told
 *   grid (n_batch), any block */
static __global__ void specrt__ring_tell_kernel(const specrt_verdict *learns,
                                                const specrt_cuda_state *states,
                                                const float *hidden, int32_t n_nodes,
                                                specrt__ring_view v) {
    size_t b = blockIdx.x;
    const specrt_verdict *verdict = &learns[b];
    const specrt_cuda_state *s = &states[b];
    specrt__ring_cache *cache = &v.caches[b];
    volatile specrt__ring_records *ring = &v.rings[b];
    if (verdict->n < 1) return;
    int32_t token = verdict->tokens[verdict->n - 1];
    bool event = token >= 0 && token < s->params.n_ids && s->wants[token] == 0;
    bool told = event && hidden && v.width > 0;
    if (threadIdx.x == 0) {
        cache->n_cycles++;
        cache->n_events += event;
    }
    specrt__ring_take(cache, ring);
    bool room = cache->posted - cache->taken < SPECRT__RETRIEVE_RECORDS;
    size_t slot = cache->posted % SPECRT__RETRIEVE_RECORDS, width = (size_t)v.width;
    size_t row = b * (size_t)n_nodes + (size_t)verdict->nodes[verdict->n - 1];
    volatile float *query = v.queries + (b * SPECRT__RETRIEVE_RECORDS + slot) * width;
    for (size_t i = threadIdx.x; i < width && room && told; i += blockDim.x)
        query[i] = hidden[row * width + i];
    if (room && threadIdx.x == 0)
        specrt__ring_write(cache, verdict, v.best + b * SPECRT_TREE_MAX_NODES * (size_t)v.k_best,
                           v.k_best, event, told, &ring->records[slot]);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (room)
        ring->posted = ++cache->posted;
    else
        cache->n_lost += event;
}

/* --- prompts --- */

enum { SPECRT__RING_PROMPT = 512 }; /* tokens that the host waits for at a time */

/* A part of a sequence's prompt, which both sides map. */
typedef struct specrt__ring_prompt {
    int32_t n_cycles; /* of the sequence */
    int32_t reserved;
    int32_t tokens[SPECRT__RING_PROMPT];
    int32_t best[SPECRT__RING_PROMPT * SPECRT__RETRIEVE_TOP]; /* -1: none */
} specrt__ring_prompt;

/* A thread a token: n of them and the target's best there, best [n, k_best] or NULL, to place `at` on. */
static __global__ void specrt__ring_ask_kernel(const int32_t *tokens, int32_t n,
                                               const int32_t *best, int32_t k_best,
                                               const specrt__ring_cache *cache,
                                               specrt__ring_prompt *prompt, int32_t at) {
    int32_t i = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i == 0) prompt->n_cycles = cache->n_cycles;
    if (i >= n) return;
    prompt->tokens[at + i] = tokens[i];
    int32_t *row = prompt->best + (at + i) * SPECRT__RETRIEVE_TOP;
    for (int32_t j = 0; j < SPECRT__RETRIEVE_TOP; j++)
        row[j] = best && j < k_best ? best[(int64_t)i * k_best + j] : -1;
}

/* Members become what the host's cache holds, whatever was on its way from there. One block.
 *   residents : u32 [words of the ids] */
static __global__ void __launch_bounds__(SPECRT__POOL_THREADS, 2)
    specrt__ring_match_kernel(const uint32_t *residents, specrt__ring_cache *cache,
                              specrt_cuda_state *state) {
    const int kBit = SPECRT__CUDA_RETRIEVE;
    for (int32_t begin = 0; begin < state->params.n_ids; begin += specrt__block_threads()) {
        int32_t id = begin + specrt__block_thread();
        bool inside = id < state->params.n_ids;
        int want = inside && (residents[id / 32] >> id % 32 & 1) ? kBit : 0;
        bool differs = inside && (state->wants[id] & kBit) != want;
        specrt__pool_change(state, differs ? id : -1, kBit, want);
    }
    if (specrt__block_thread() != 0) return;
    cache->taken = cache->posted;
    cache->mailbox.taken = cache->mailbox.posted;
}

/* --- the host's side: one thread at a time --- */

/* A new sequence's cache is empty. */
static void specrt__ring_renew(const specrt__ring_records *ring, specrt__retrieve *r,
                               uint32_t *n_begun) {
    uint32_t n = specrt__os_load(&ring->n_begun);
    if (r->done != specrt__os_load(&ring->begun) || n == *n_begun) return;
    *n_begun = n;
    specrt__arc_reset(&r->arc, r->params.size / 2.0);
    specrt__retrieve_bar(r);
    r->n_events = r->n_blocked = 0;
}

/* Works off what was posted.
 *   n_begun : the ring's, as the host last saw it
 * @return how many cycles. */
static int32_t specrt__ring_serve(specrt__ring_records *ring, specrt__retrieve *r,
                                  uint32_t *n_begun) {
    uint32_t posted = specrt__os_load(&ring->posted);
    int32_t n = 0;
    for (; r->done != posted; n++) {
        specrt__ring_renew(ring, r, n_begun);
        specrt__retrieve_work(r, r->done);
        specrt__os_store(&ring->done, r->done);
    }
    return n;
}

/* n prompt tokens, once the device is done with them. Twin: specrt__retrieve_prefill.
 *   residents : the answer: a bit for each token, whether the cache holds it */
static void specrt__ring_answer(const specrt__ring_prompt *prompt, int32_t n,
                                specrt__ring_records *ring, specrt__retrieve *r, uint32_t *n_begun,
                                uint32_t *residents) {
    specrt__ring_serve(ring, r, n_begun);
    specrt__ring_renew(ring, r, n_begun);
    r->n_cycles = prompt->n_cycles;
    for (int32_t i = 0; i < n; i++) {
        const int32_t *best = prompt->best + i * SPECRT__RETRIEVE_TOP;
        int32_t n_best = 0;
        while (n_best < SPECRT__RETRIEVE_TOP && best[n_best] >= 0) n_best++;
        specrt__retrieve_read(r, prompt->tokens[i], best, n_best, NULL);
    }
    SPECRT__CLEAR(residents, (r->arc.n_ids + 31) / 32);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(&r->arc, list); id < r->arc.n_ids;
             id = r->arc.newer[id])
            residents[id / 32] |= 1u << id % 32;
}

// >>batch : src/cuda/batch.cuh
/* batch.cuh : owns what sessions do with each sequence of a batch beside the state of other sections:
 * where it stands, what came of a cycle, which rows of a level count. A thread is a sequence, in any
 * grid of blocks; in one kernel a row, in one a warp is the sequence. */

/* What shortlists read. */
typedef struct specrt__batch_costs {
    bool packs;          /* rows are copied; not so where they are shared */
    int32_t n_fixed;     /* rows that all sequences share */
    int64_t row, n_read; /* bytes of a row, and of a level's weights and codes */
    int64_t markov;      /* of a row of a Markov head; 0: there is none */
} specrt__batch_costs;

/* Sequences of a batch, side by side: all DEVICE [n], but for what says otherwise. */
typedef struct specrt__batch_part {
    int32_t n;
    specrt_cuda_state *states;
    specrt__cuda_tree *trees;
    specrt_cuda_beam *beams;
    specrt_cuda_draft *drafts;
    specrt_verdict *verdicts, *learns; /* learns: what observe() learns from */
    specrt_sampling *samplings;
    specrt_session_stats *stats;
    /* Bit i of [n, n_ids]: routed at level i of this cycle; NULL: nothing routes. */
    uint32_t *routed;
    int32_t n_ids, n_vocab;      /* n_vocab: what the target emits is below it */
    specrt__cuda_tally *tallies; /* [n, SPECRT_TREE_MAX_STEPS] of this cycle; NULL likewise */
    specrt__batch_costs costs;
} specrt__batch_part;

/* n of them, from number `first` on. */
static specrt__batch_part specrt__batch_of(specrt__batch_part all, int32_t first, int32_t n) {
    specrt__batch_part part = all;
    part.n = n;
    part.states += first;
    part.trees += first;
    part.beams += first;
    part.drafts += first;
    part.verdicts += first;
    part.learns += first;
    part.samplings += first;
    part.stats += first;
    if (!all.routed) return part;
    part.routed += (int64_t)first * all.n_ids;
    part.tallies += (int64_t)first * SPECRT_TREE_MAX_STEPS;
    return part;
}

static __device__ int32_t specrt__batch_index(void) {
    return (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
}

/* Position 0, nothing drafted or emitted. Twin: specrt_session_begin.
 *   step : what the number of the generation goes on by */
static __global__ void specrt__batch_begin_kernel(specrt__batch_part all, uint64_t step) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    specrt__cuda_tree *tree = &all.trees[b];
    SPECRT__CLEAR(&all.stats[b], 1);
    all.samplings[b].generation += step;
    tree->position = 0;
    tree->cycle = 0;
    tree->level = tree->n_candidates = tree->n_beam = 0;
    all.beams[b].n = all.drafts[b].n = all.verdicts[b].n = 0;
}

/* One sequence has n more prompt tokens, of which the next launch takes *count. */
static __global__ void specrt__batch_advance_kernel(specrt__cuda_tree *tree, int32_t n,
                                                    int32_t *count) {
    if (specrt__batch_index() != 0) return;
    tree->position += n;
    *count = n;
}

/* Drafts that are a root alone, before the position to draw. */
static __global__ void specrt__batch_ask_kernel(specrt__batch_part all, specrt_cuda_draft *asked) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    asked[b].n = 1;
    asked[b].tokens[0] = asked[b].depths[0] = 0;
    asked[b].parents[0] = -1;
    asked[b].masks[0] = 1;
    asked[b].logprobs[0] = 0;
    asked[b].positions[0] = all.trees[b].position - 1;
}

/* tokens: -1 where nothing was drawn. */
static __global__ void specrt__batch_answer_kernel(int32_t n, const specrt_verdict *verdicts,
                                                   int32_t *tokens) {
    int32_t b = specrt__batch_index();
    if (b < n) tokens[b] = verdicts[b].n > 0 ? verdicts[b].tokens[0] : -1;
}

/* Whether the level that would have drafted a token could; beyond the last that drafted, that one. Twin:
 * specrt_session_member. */
static __device__ bool specrt__batch_member(const specrt_cuda_state *s, const uint32_t *routed,
                                            int32_t token, int32_t level, int32_t n_levels) {
    if (token < 0 || token >= s->params.n_ids) return false;
    if (s->wants[token] & (SPECRT__CUDA_FIXED | SPECRT__CUDA_PACKED)) return true;
    if (!routed || n_levels == 0) return false;
    return routed[token] >> (level < n_levels ? level : n_levels - 1) & 1;
}

/* The passes of sequence b's tree, into its sums or a copy of them. Twin: specrt_session_route.
 * @return the rows that were routed, mean. */
static __device__ int64_t specrt__batch_add_passes(const specrt__batch_part &all, int32_t b,
                                                   specrt_session_stats *stats) {
    const specrt__cuda_tally *tallies =
        all.tallies ? all.tallies + (int64_t)b * SPECRT_TREE_MAX_STEPS : NULL;
    int64_t n_kept = all.costs.n_fixed + all.states[b].n_rows, n_routed = 0, n_bytes = 0;
    int32_t n_levels = all.trees[b].level;
    bool block = all.trees[b].block != 0; /* what all of its positions score is multiplied once */
    int32_t n_products = block && !tallies ? 1 : n_levels;
    for (int32_t t = 0; t < n_levels || t < n_products; t++) {
        int64_t n_rows = n_kept + (tallies ? tallies[t].n_rows : 0);
        if (t < n_levels) n_bytes += n_rows * all.costs.markov;
        if (block && t > 0) n_rows -= n_kept;
        if (t < n_products) n_bytes += all.costs.n_read + n_rows * all.costs.row;
        if (tallies && tallies[t].n > 0)
            n_routed += tallies[t].n_shared + tallies[t].n_scored / tallies[t].n;
    }
    stats->n_bytes += n_bytes;
    stats->n_passes += n_levels;
    return n_levels > 0 ? n_routed / n_levels : 0;
}

/* A cycle of sequence b. Twin: the counting in specrt_session_observe. */
static __device__ void specrt__batch_count(const specrt__batch_part &all, int32_t b,
                                           int32_t n_emitted, int32_t n_covered) {
    specrt_session_stats *stats = &all.stats[b];
    int64_t n_routed = specrt__batch_add_passes(all, b, stats);
    if (n_emitted < 1) return;
    stats->n_cycles++;
    stats->n_emitted += n_emitted;
    stats->n_drafted += all.drafts[b].n - 1;
    stats->n_rows += all.costs.n_fixed + all.states[b].n_rows + n_routed;
    stats->n_by_length[n_emitted]++;
    stats->n_covered += n_covered;
}

/* Nothing is routed of a tree that has just begun. Lanes of a warp call. */
static __device__ void specrt__batch_forget(const specrt__batch_part &all, int32_t b,
                                            int32_t lane) {
    __syncwarp();
    for (int32_t t = lane; t < SPECRT_TREE_MAX_STEPS && all.tallies; t += 32)
        SPECRT__CLEAR(&all.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + t], 1);
}

/* The first token after the prompt is what a verdict says that has no draft; it is the root of the first
 * tree. What is no token roots none: the sequence rests. A warp is a sequence. Twin: specrt_session_start. */
static __global__ void specrt__batch_start_kernel(specrt__batch_part all, const int32_t *tokens) {
    int32_t b = specrt__batch_index() / 32, lane = specrt__batch_index() % 32;
    if (b >= all.n) return;
    if (lane == 0) {
        specrt__batch_count(all, b, 0, 0);
        all.drafts[b].n = 0;
        all.verdicts[b].n = tokens[b] >= 0 && tokens[b] < all.n_vocab;
        all.verdicts[b].tokens[0] = tokens[b];
        all.verdicts[b].nodes[0] = 0;
        all.verdicts[b].end = SPECRT_END_NONE;
        specrt__tree_root(&all.trees[b], &all.verdicts[b], &all.beams[b]);
    }
    specrt__batch_forget(all, b, lane);
}

/* Whether a verdict is a path of its draft from the root, and both are of tokens: an engine that verifies on
 * its own writes them. Lanes of a warp call. Twin: specrt_session_observe, which refuses others.
 *   max_nodes : of a draft */
static __device__ bool specrt__batch_is_path(const specrt_cuda_draft *draft,
                                             const specrt_verdict *verdict, int32_t max_nodes,
                                             int32_t n_vocab, int32_t lane) {
    int32_t n_nodes = draft->n, n = verdict->n;
    bool ok = n >= 1 && n <= n_nodes && n_nodes <= max_nodes && verdict->nodes[0] == 0;
    for (int32_t i = lane; i < n_nodes && ok; i += 32)
        ok = draft->tokens[i] >= 0 && draft->tokens[i] < n_vocab;
    for (int32_t i = lane; i < n && ok; i += 32) {
        int32_t node = verdict->nodes[i];
        ok = node >= i && node < n_nodes && verdict->tokens[i] >= 0 && verdict->tokens[i] < n_vocab;
        if (ok && i > 0)
            ok = node > verdict->nodes[i - 1] && draft->tokens[node] == verdict->tokens[i - 1];
    }
    return __ballot_sync(0xffffffffu, !ok) == 0;
}

/* What observe() learns from: verdicts of drafts, which are counted; then their next trees begin. Where there
 * was no draft, as after start(), or the verdict is no path of it, the tree stays. A warp is a sequence.
 * Twin: specrt_session_observe. */
static __global__ void specrt__batch_learn_kernel(specrt__batch_part all) {
    int32_t b = specrt__batch_index() / 32, lane = specrt__batch_index() % 32, n_covered = 0;
    if (b >= all.n) return;
    const specrt_verdict *verdict = &all.verdicts[b];
    const uint32_t *routed = all.routed ? all.routed + (int64_t)b * all.n_ids : NULL;
    bool known = specrt__batch_is_path(&all.drafts[b], verdict,
                                       all.trees[b].params.num_draft_tokens, all.n_vocab, lane);
    int32_t n_levels = all.trees[b].level, n_emitted = known ? verdict->n : 0;
    for (int32_t i = lane; i < n_emitted; i += 32) {
        int32_t token = verdict->tokens[i];
        all.learns[b].tokens[i] = token;
        all.learns[b].nodes[i] = verdict->nodes[i];
        n_covered += specrt__batch_member(&all.states[b], routed, token, i, n_levels);
    }
    for (int by = 16; by > 0; by /= 2) n_covered += __shfl_xor_sync(0xffffffffu, n_covered, by);
    if (lane == 0) all.learns[b].n = n_emitted;
    if (n_emitted == 0) return;
    __syncwarp(); /* all lanes have read the level of the tree, which is begun anew */
    if (lane == 0) {
        specrt__batch_count(all, b, n_emitted, n_covered);
        specrt__tree_root(&all.trees[b], verdict, &all.beams[b]);
    }
    specrt__batch_forget(all, b, lane);
}

/* Sums, and the tree at hand. caches [n] or NULL: nothing retrieves. Twin: specrt_session_get_stats */
static __global__ void specrt__batch_stats_kernel(specrt__batch_part all,
                                                  const specrt__ring_cache *caches,
                                                  specrt_session_stats *out) {
    int32_t b = specrt__batch_index();
    if (b >= all.n) return;
    out[b] = all.stats[b];
    specrt__batch_add_passes(all, b, &out[b]);
    out[b].n_copied = all.costs.packs ? all.states[b].n_copied : 0;
    out[b].n_events = caches ? caches[b].n_events : 0;
    out[b].n_lost = caches ? caches[b].n_lost : 0;
}

/* Rows that a source chose for a level. */
typedef struct specrt__batch_choice {
    const int32_t *ids;        /* of sequence b from ids_step * b on */
    const int32_t *n_rows;     /* of sequence b at n_step * b; NULL: max_rows */
    const uint64_t *scored_by; /* [n_batch, max_rows]; NULL: by all */
    int64_t ids_step;
    int32_t n_step, max_rows;
} specrt__batch_choice;

/* Thread (r, b): bit r of the mask of sequence b: whether an earlier source has the token of row r at this
 * level, or another row of this one has, or none may. What is new is this level's from here on.
 *   masks [n_batch, words of max_rows]
 *   grid (blocks of max_rows, n_batch), block a multiple of 32.  Twin: specrt__source_route */
static __global__ void specrt__batch_claim_kernel(specrt__batch_part all, specrt__batch_choice c,
                                                  int32_t level, uint32_t *masks) {
    int32_t b = (int32_t)blockIdx.y, r = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    int32_t n = c.n_rows ? c.n_rows[(int64_t)b * c.n_step] : c.max_rows;
    int32_t id = r < n ? c.ids[b * c.ids_step + r] : -1, n_beam = all.beams[b].n;
    uint32_t *mine = all.routed + (int64_t)b * all.n_ids + (id < 0 ? 0 : id);
    bool masked = id >= 0 &&
                  (all.states[b].wants[id] != 0 || (atomicOr(mine, 1u << level) >> level & 1) != 0);
    uint32_t word = __ballot_sync(0xffffffffu, masked);
    if (threadIdx.x % 32 == 0 && r < c.max_rows)
        masks[(int64_t)b * ((c.max_rows + 31) / 32) + r / 32] = word;
    specrt__cuda_tally *tally = &all.tallies[(int64_t)b * SPECRT_TREE_MAX_STEPS + level];
    if (r == 0) {
        tally->n = n_beam;
        tally->n_rows += n;
        if (!c.scored_by) tally->n_shared += n;
    }
    if (!c.scored_by) return;
    uint64_t every = n_beam < 64 ? ((uint64_t)1 << n_beam) - 1 : ~(uint64_t)0;
    uint64_t by = id < 0 ? 0 : c.scored_by[(int64_t)b * c.max_rows + r] & every;
    int32_t before, sum = specrt__block_scan(__popcll(by), &before);
    if (threadIdx.x == 0) atomicAdd(&tally->n_scored, sum);
}

// >>shared : src/cuda/shared.cuh
/* shared.cuh : owns which packed rows of a batch are multiplied once for all of its sequences: those that
 * enough of them hold. Rows are read where they lie in the head; nothing is copied. What a sequence
 * does not hold of the shared rows is masked for it, and what it holds beyond them it lists as its own.
 * Twin: >>stock of the header. Tokens ascend and slots keep their order, whichever thread ran first. */

enum {
    SPECRT__SHARED_THREADS = 512,
    SPECRT__SHARED_EACH = 4,
#if defined(SPECRT_HARNESS)
    SPECRT__SHARED_CHUNK = 64 /* so that small vocabularies have several */
#else
    SPECRT__SHARED_CHUNK = 2048 /* tokens of a block that chooses */
#endif
};

/* All pointers are DEVICE. max_rows 0: sequences have copies of their rows, and there is none of this. */
typedef struct specrt__shared {
    int32_t n_batch, n_ids, capacity;
    int32_t max_rows, least; /* shared rows at most, and by how many a row must be held */
    const int32_t *row_of;   /* the head's; NULL: a token is its row */
    int32_t *holders;        /* [n_ids] how many hold a token; below 0: it is shared */
    int32_t *n_chosen;       /* [chunks] tokens of each that enough hold; behind holders */
    int32_t *ids, *places;   /* [max_rows] tokens, and their rows in the head */
    int32_t *n_rows;         /* [1] */
    uint32_t *masks;         /* [n_batch, words of max_rows] */
    int32_t *own_ids, *own_places, *n_own; /* [n_batch, capacity], [n_batch] */
} specrt__shared;

static __device__ int32_t specrt__shared_place(const specrt__shared &j, int32_t id) {
    return j.row_of ? j.row_of[id] : id;
}

static unsigned specrt__shared_chunks(int32_t n_ids) {
    return specrt__launch_blocks(n_ids, SPECRT__SHARED_CHUNK);
}

/* Thread (r, b): slot r of sequence b. holders and n_chosen are 0. Whoever makes a token's holders enough
 * counts the token, so that no block has to look at tokens of others.
 *   grid (blocks of capacity, n_batch) */
static __global__ void specrt__shared_count_kernel(specrt__shared j,
                                                   const specrt_cuda_state *states) {
    const specrt_cuda_state *s = &states[blockIdx.y];
    int32_t r = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= s->n_rows) return;
    int32_t id = s->ids[r];
    if (atomicAdd(&j.holders[id], 1) + 1 == j.least)
        atomicAdd(&j.n_chosen[id / SPECRT__SHARED_CHUNK], 1);
}

/* How many tokens of lower chunks enough hold. */
static __device__ int32_t specrt__shared_before(const specrt__shared &j, int32_t chunk) {
    int32_t n = 0, before;
    for (int32_t i = specrt__block_thread(); i < chunk; i += specrt__block_threads())
        n += j.n_chosen[i];
    return specrt__block_scan(n, &before);
}

/* Block i: the tokens of chunk i that enough hold, ascending; those beyond max_rows are not shared.
 *   grid (chunks), any block */
static __global__ void __launch_bounds__(SPECRT__SHARED_THREADS)
    specrt__shared_choose_kernel(specrt__shared j) {
    const int kEach = SPECRT__SHARED_EACH;
    int32_t chunk = (int32_t)blockIdx.x, begin = chunk * SPECRT__SHARED_CHUNK;
    int32_t end = specrt__pool_least(begin + SPECRT__SHARED_CHUNK, j.n_ids);
    int32_t n = specrt__shared_before(j, chunk), step = kEach * specrt__block_threads();
    for (int32_t first = begin; first < end; first += step) {
        bool takes[kEach];
        int32_t before[kEach];
        for (int i = 0; i < kEach; i++) {
            int32_t id = first + specrt__block_place(kEach, i);
            takes[i] = id < end && j.holders[id] >= j.least;
        }
        int32_t n_more = specrt__block_ranks<kEach>(takes, before);
        for (int i = 0; i < kEach; i++) {
            int32_t id = first + specrt__block_place(kEach, i), at = n + before[i];
            if (!takes[i] || at >= j.max_rows) continue;
            j.ids[at] = id;
            j.places[at] = specrt__shared_place(j, id);
            j.holders[id] = -1;
        }
        n += n_more;
    }
    if (end == j.n_ids && specrt__block_thread() == 0)
        *j.n_rows = specrt__pool_least(n, j.max_rows);
}

/* Which shared rows a sequence does not hold, 32 a warp at a time. */
static __device__ void specrt__shared_mask(const specrt__shared &j, const specrt_cuda_state *s,
                                           uint32_t *masks) {
    int32_t n = *j.n_rows, threads = specrt__block_threads();
    for (int32_t first = 0; first < n; first += threads) {
        int32_t i = first + specrt__block_thread();
        uint32_t word = __ballot_sync(0xffffffffu, i < n && s->slots[j.ids[i]] < 0);
        if (i % 32 == 0 && i < n) masks[i / 32] = word;
    }
}

/* Block b: the mask of sequence b, and the rows that it holds beyond the shared ones. */
static __global__ void __launch_bounds__(SPECRT__SHARED_THREADS)
    specrt__shared_split_kernel(specrt__shared j, const specrt_cuda_state *states) {
    int32_t b = (int32_t)blockIdx.x, n_words = (j.max_rows + 31) / 32, n = 0;
    const specrt_cuda_state *s = &states[b];
    int32_t *ids = j.own_ids + (int64_t)b * j.capacity;
    int32_t *places = j.own_places + (int64_t)b * j.capacity;
    int32_t n_rows = s->n_rows, threads = specrt__block_threads();
    specrt__shared_mask(j, s, j.masks + (int64_t)b * n_words);
    for (int32_t first = 0; first < n_rows; first += threads) {
        int32_t r = first + specrt__block_thread(), id = r < n_rows ? s->ids[r] : -1, before;
        bool own = id >= 0 && j.holders[id] >= 0;
        int32_t n_more = specrt__block_rank(own, &before);
        if (own) ids[n + before] = id, places[n + before] = specrt__shared_place(j, id);
        n += n_more;
    }
    if (specrt__block_thread() == 0) j.n_own[b] = n;
}

/* What the sequences hold now. */
static specrt_status specrt__shared_update(const specrt__shared &j, const specrt_cuda_state *states,
                                           void *stream) {
    const int threads = 128;
    dim3 grid(specrt__launch_blocks(j.capacity, threads), (unsigned)j.n_batch);
    unsigned n_chunks = specrt__shared_chunks(j.n_ids);
    SPECRT__TRY(specrt__launch_clear(j.holders, (size_t)j.n_ids + n_chunks, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__shared_count_kernel, grid, threads, 0, stream, j, states));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__shared_choose_kernel, n_chunks,
                               specrt__block_size(SPECRT__SHARED_THREADS), 0, stream, j));
    return SPECRT__LAUNCH(specrt__shared_split_kernel, (unsigned)j.n_batch,
                          specrt__block_size(SPECRT__SHARED_THREADS), 0, stream, j, states);
}

/* --- the host: what is allocated, who waits for whom, and the calls of policies and sessions --- */

// >>device : src/cuda/device.cuh
/* device.cuh : owns memory of the device, and what a policy's sessions share there. Refuses policies with
 * sources that only the CPU has, and devices without code for them. */

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

// >>load : src/cuda/load.cuh
/* load.cuh : owns that all kernels of a session are on the device before it is used. The runtime loads each
 * when it is first asked for, which a capture of mode Global may refuse. */

#define SPECRT__LOAD(kernel) (const void *)kernel
/* Products of rows of a type. */
#define SPECRT__LOAD_TILES(dtype)                                                                  \
    SPECRT__LOAD((specrt__head_tiles<dtype, 2, false>)),                                           \
        SPECRT__LOAD((specrt__head_tiles<dtype, 2, true>)),                                        \
        SPECRT__LOAD((specrt__head_tiles<dtype, 8, false>)),                                       \
        SPECRT__LOAD((specrt__head_tiles<dtype, 8, true>))

/* Loads kernels on the current device. */
static specrt_status specrt__load_each(const void *const *kernels, size_t n, specrt_error *err) {
    cudaFuncAttributes attributes;
    for (size_t i = 0; i < n; i++) {
        cudaError_t error = cudaFuncGetAttributes(&attributes, kernels[i]);
        if (error != cudaSuccess) return specrt__device_fail(error, 0, err);
    }
    return SPECRT_STATUS_OK;
}

/* Products, rankings, and what routes. */
static specrt_status specrt__load_levels(specrt_error *err) {
    const void *const kernels[] = {
        SPECRT__LOAD_TILES(SPECRT_DTYPE_F16),       SPECRT__LOAD_TILES(SPECRT_DTYPE_BF16),
        SPECRT__LOAD_TILES(SPECRT_DTYPE_Q8_0),      SPECRT__LOAD(specrt__head_f32<2>),
        SPECRT__LOAD(specrt__head_f32<16>),         SPECRT__LOAD(specrt__shortlist_rank_kernel),
        SPECRT__LOAD(specrt__cluster_read_kernel),  SPECRT__LOAD(specrt__cluster_weigh_kernel),
        SPECRT__LOAD(specrt__cluster_total_kernel), SPECRT__LOAD(specrt__cluster_rank_kernel),
        SPECRT__LOAD(specrt__cluster_take_kernel),  SPECRT__LOAD(specrt__cluster_list_kernel),
        SPECRT__LOAD(specrt__successor_kernel),     SPECRT__LOAD(specrt__scan_places<1>),
        SPECRT__LOAD(specrt__scan_places<2>),       SPECRT__LOAD(specrt__sketch_name_all),
        SPECRT__LOAD(specrt__batch_claim_kernel),   SPECRT__LOAD(specrt__tree_rank_kernel),
        SPECRT__LOAD(specrt__tree_expand_kernel),   SPECRT__LOAD(specrt__tree_block_kernel),
        SPECRT__LOAD(specrt__verify_propose_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* What comes once a cycle. */
static specrt_status specrt__load_cycles(specrt_error *err) {
    const void *const kernels[] = {SPECRT__LOAD(specrt__tree_finish_kernel),
                                   SPECRT__LOAD(specrt__verify_rank_kernel),
                                   SPECRT__LOAD(specrt__verify_best_kernel),
                                   SPECRT__LOAD(specrt__verify_distribution_kernel),
                                   SPECRT__LOAD(specrt__verify_candidates_kernel),
                                   SPECRT__LOAD(specrt__verify_filter_kernel),
                                   SPECRT__LOAD(specrt__verify_sum_kernel),
                                   SPECRT__LOAD(specrt__verify_pick_kernel),
                                   SPECRT__LOAD(specrt__verify_walk_kernel),
                                   SPECRT__LOAD(specrt__verify_chain_kernel),
                                   SPECRT__LOAD(specrt__batch_learn_kernel),
                                   SPECRT__LOAD(specrt__ring_tell_kernel),
                                   SPECRT__LOAD(specrt__window_observe_kernel),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint4>),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint32_t>),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint16_t>),
                                   SPECRT__LOAD(specrt__shortlist_split_rows),
                                   SPECRT__LOAD(specrt__shared_count_kernel),
                                   SPECRT__LOAD(specrt__shared_choose_kernel),
                                   SPECRT__LOAD(specrt__shared_split_kernel),
                                   SPECRT__LOAD(specrt__batch_stats_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* What comes once a sequence. */
static specrt_status specrt__load_prompts(specrt_error *err) {
    const void *const kernels[] = {
        SPECRT__LOAD(specrt__batch_begin_kernel),    SPECRT__LOAD(specrt__ring_begin_kernel),
        SPECRT__LOAD(specrt__window_begin_kernel),   SPECRT__LOAD(specrt__batch_advance_kernel),
        SPECRT__LOAD(specrt__ring_ask_kernel),       SPECRT__LOAD(specrt__ring_match_kernel),
        SPECRT__LOAD(specrt__window_prefill_kernel), SPECRT__LOAD(specrt__batch_ask_kernel),
        SPECRT__LOAD(specrt__batch_answer_kernel),   SPECRT__LOAD(specrt__batch_start_kernel),
        SPECRT__LOAD(specrt__window_start_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* All that sessions launch, whatever their policies. */
static specrt_status specrt__load_all(specrt_error *err) {
    SPECRT__TRY(specrt__load_levels(err));
    SPECRT__TRY(specrt__load_cycles(err));
    return specrt__load_prompts(err);
}

// >>side : src/cuda/side.cuh
/* side.cuh : owns the second stream: what is begun on it runs beside the application's from a fork to the
 * next join. A graph holds both or neither. */

typedef struct specrt__side {
    cudaStream_t stream;
    cudaEvent_t fork, join;
    bool forked, captured; /* captured: the fork is in a graph, which has to hold the join too */
} specrt__side;

/* With priority: what runs beside the drafter's pass is short, and waited for after it. */
static specrt_status specrt__side_open(specrt__side *side, specrt_error *err) {
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(&side->stream, cudaStreamNonBlocking, greatest);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->fork, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->join, cudaEventDisableTiming);
    return error == cudaSuccess ? SPECRT_STATUS_OK : specrt__device_fail(error, 0, err);
}

static void specrt__side_close(specrt__side *side) {
    if (side->fork) (void)cudaEventDestroy(side->fork);
    if (side->join) (void)cudaEventDestroy(side->join);
    if (side->stream) (void)cudaStreamDestroy(side->stream);
}

static specrt_status specrt__side_captured(void *stream, bool *out) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    *out = capture != cudaStreamCaptureStatusNone;
    return specrt__launch_status(error);
}

/* What comes next on the side waits for what the stream has. */
static specrt_status specrt__side_fork(specrt__side *side, void *stream) {
    SPECRT__TRY(specrt__side_captured(stream, &side->captured));
    SPECRT__TRY(specrt__launch_status(cudaEventRecord(side->fork, (cudaStream_t)stream)));
    return specrt__launch_status(cudaStreamWaitEvent(side->stream, side->fork, 0));
}

/* All that a fork is for has been begun. */
static specrt_status specrt__side_end(specrt__side *side) {
    SPECRT__TRY(specrt__launch_status(cudaEventRecord(side->join, side->stream)));
    side->forked = true;
    return SPECRT_STATUS_OK;
}

/* Whether a join may come on a stream. A graph on one side only is refused, before the runtime invalidates
 * it.
 *   captured : the stream is */
static specrt_status specrt__side_check(specrt__side *side, bool captured) {
    if (!side->forked || captured == side->captured) return SPECRT_STATUS_OK;
    /* A captured fork that cannot be joined is a graph's that has ended without it. */
    if (side->captured) side->forked = false;
    return SPECRT_STATUS_CAPTURE;
}

/* The stream goes on when what was forked is done. */
static specrt_status specrt__side_join(specrt__side *side, void *stream) {
    bool captured;
    if (!side->forked) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__side_captured(stream, &captured));
    SPECRT__TRY(specrt__side_check(side, captured));
    specrt_status status =
        specrt__launch_status(cudaStreamWaitEvent((cudaStream_t)stream, side->join, 0));
    if (status == SPECRT_STATUS_OK || side->captured) side->forked = false;
    return status;
}

// >>order : src/cuda/order.cuh
/* order.cuh : owns the order of calls on a batch: where each sequence is, and where the cycle of all is.
 * Refuses what comes too early, too late or twice, before anything starts. A graph's launches are no calls:
 * the order of calls that a graph may contain is not known. */

/* Where a sequence is. What is allowed in several places is a sum. */
enum {
    SPECRT__ORDER_CREATED = 1, /* begin has not come */
    SPECRT__ORDER_PROMPT = 2,  /* no token of the prompt has come */
    SPECRT__ORDER_READ = 4,    /* some have; the first token of the answer has not */
    SPECRT__ORDER_STARTED = 8  /* it takes part in cycles */
};

/* Where the cycle is; likewise. */
enum { SPECRT__ORDER_DRAFT = 1, SPECRT__ORDER_DRAFTED = 2, SPECRT__ORDER_VERIFIED = 4 };

/* Kinds of calls. */
enum { SPECRT__ORDER_PROMPTS, SPECRT__ORDER_CYCLES, SPECRT__ORDER_KINDS };

typedef struct specrt__order_cycle {
    int32_t level; /* passes so far */
    int stage;     /* SPECRT__ORDER_DRAFT... */
    bool
        learnt; /* observe() began it; else start(), and observe() may come, which learns nothing */
} specrt__order_cycle;

/* What the host knows of a batch's calls. */
typedef struct specrt__order {
    uint8_t at[SPECRT__CUDA_MAX_BATCH]; /* of each sequence: SPECRT__ORDER_CREATED... */
    int32_t n_batch, n_begun, n_started;
    specrt__order_cycle cycles[2];      /* of calls, and of the graph that is being captured */
    bool captured[SPECRT__ORDER_KINDS]; /* a graph has calls of this kind */
    specrt_error error;                 /* of the last call that was refused */
} specrt__order;

/* A call under way. */
typedef struct specrt__order_call {
    specrt__order *order;
    const char *name;
    int kind;
    specrt__order_cycle *cycle; /* that it is part of */
    bool captured, checks;      /* checks: its order is known */
} specrt__order_call;

static void specrt__order_create(specrt__order *o, int32_t n_batch) {
    SPECRT__CLEAR(o, 1);
    memset(o->at, SPECRT__ORDER_CREATED, sizeof o->at);
    o->n_batch = n_batch;
    o->cycles[0].stage = o->cycles[1].stage = SPECRT__ORDER_DRAFT;
}

/* --- what is refused --- */

static specrt_status specrt__order_refuse(specrt__order_call *c, const char *expected) {
    return specrt_error_set(&c->order->error, SPECRT_STATUS_BAD_ORDER, "%s: expected %s", c->name,
                            expected);
}

/* The call that starts now. */
static specrt_status specrt__order_call_begin(specrt__order *o, const char *name, int kind,
                                              void *stream, specrt__order_call *c) {
    c->order = o;
    c->name = name;
    c->kind = kind;
    SPECRT__TRY(specrt__side_captured(stream, &c->captured));
    c->checks = !c->captured && !o->captured[kind];
    c->cycle = &o->cycles[c->captured];
    return SPECRT_STATUS_OK;
}

/* What a sequence expects. */
static const char *specrt__order_expected(int at) {
    if (at == SPECRT__ORDER_CREATED) return "begin() before it";
    if (at == SPECRT__ORDER_PROMPT) return "prefill() before it, with tokens of the prompt";
    if (at == SPECRT__ORDER_READ) return "start() before it";
    return "begin() before it, since the sequence has started";
}

/* Whether the sequences that a call is about are where it may come. */
static specrt_status specrt__order_check_each(specrt__order_call *c, int32_t first, int32_t n,
                                              int allowed) {
    for (int32_t i = first; i < first + n && c->checks; i++)
        if (!(c->order->at[i] & allowed))
            return specrt_error_set(&c->order->error, SPECRT_STATUS_BAD_ORDER,
                                    "%s: sequence %d: expected %s", c->name, (int)i,
                                    specrt__order_expected(c->order->at[i]));
    return SPECRT_STATUS_OK;
}

/* Whether any sequence is where a call for all may come. Others rest. */
static specrt_status specrt__order_check_any(specrt__order_call *c, int allowed) {
    for (int32_t i = 0; i < c->order->n_batch && c->checks; i++)
        if (c->order->at[i] & allowed) return SPECRT_STATUS_OK;
    return c->checks ? specrt__order_refuse(c, specrt__order_expected(c->order->at[0]))
                     : SPECRT_STATUS_OK;
}

/* A sequence that starts while others draft would take their next level for its first. */
static specrt_status specrt__order_check_start(specrt__order_call *c) {
    const specrt__order_cycle *cycle = c->cycle;
    if (!c->checks || c->order->n_started == 0 || cycle->stage != SPECRT__ORDER_DRAFT ||
        cycle->level == 0)
        return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, "finish(), verify() and observe() before it, since other "
                                   "sequences are drafting");
}

/* Whether any sequence has ever begun. Those that have not started rest. */
static specrt_status specrt__order_check_begun(specrt__order_call *c) {
    if (!c->checks || c->order->n_begun > 0) return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, specrt__order_expected(SPECRT__ORDER_CREATED));
}

static specrt_status specrt__order_refuse_stage(specrt__order_call *c) {
    int stage = c->cycle->stage;
    return specrt__order_refuse(c, stage == SPECRT__ORDER_DRAFT ? "expand() or finish() before it"
                                   : stage == SPECRT__ORDER_DRAFTED ? "verify() before it"
                                                                    : "observe() before it");
}

/* Whether the cycle is in one of these stages. */
static specrt_status specrt__order_check_stage(specrt__order_call *c, int allowed) {
    SPECRT__TRY(specrt__order_check_begun(c));
    if (!c->checks || c->cycle->stage & allowed) return SPECRT_STATUS_OK;
    return specrt__order_refuse_stage(c);
}

/* Whether a level may be drafted now. A graph has all levels of a cycle, or none. */
static specrt_status specrt__order_check_level(specrt__order_call *c, int32_t num_steps) {
    SPECRT__TRY(specrt__order_check_begun(c));
    if (c->cycle->stage != SPECRT__ORDER_DRAFT) return specrt__order_refuse_stage(c);
    if (c->cycle->level < num_steps) return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, "finish() in its place: the trees have their last level");
}

/* Whether there may be something to learn, or nothing because the sequences have just started. */
static specrt_status specrt__order_check_observe(specrt__order_call *c) {
    const specrt__order_cycle *cycle = c->cycle;
    bool fresh = cycle->stage == SPECRT__ORDER_DRAFT && cycle->level == 0 && !cycle->learnt;
    return specrt__order_check_stage(c, fresh ? SPECRT__ORDER_DRAFT : SPECRT__ORDER_VERIFIED);
}

/* --- what came --- */

/* A call has started all that it is for. */
static void specrt__order_call_end(const specrt__order_call *c) {
    if (c->captured) c->order->captured[c->kind] = true;
}

/* A cycle begins. */
static void specrt__order_renew(const specrt__order_call *c, bool learnt) {
    c->cycle->level = 0;
    c->cycle->stage = SPECRT__ORDER_DRAFT;
    c->cycle->learnt = learnt;
    specrt__order_call_end(c);
}

/* Sequences are at another place. With the first to take part a cycle begins. */
static void specrt__order_move(const specrt__order_call *c, int32_t first, int32_t n, int at) {
    specrt__order *o = c->order;
    bool renews = o->n_started == 0 && at == SPECRT__ORDER_STARTED;
    memset(o->at + first, at, (size_t)n);
    o->n_begun = o->n_started = 0;
    for (int32_t i = 0; i < o->n_batch; i++) {
        o->n_begun += o->at[i] != SPECRT__ORDER_CREATED;
        o->n_started += o->at[i] == SPECRT__ORDER_STARTED;
    }
    if (renews) specrt__order_renew(c, false);
    specrt__order_call_end(c);
}

static void specrt__order_end_stage(const specrt__order_call *c, int stage) {
    c->cycle->stage = stage;
    specrt__order_call_end(c);
}

// >>session_make : src/cuda/session_make.cuh
/* session_make.cuh : owns batches of sequences whose state never leaves the device: which kernel runs
 * when, on which of two streams. Everything is allocated in create; a cycle's launches are the same
 * every time, so a graph can hold them. Retrieval's cache stays on the host: cycles go there, and
 * wishes come back, through memory that both sides map. */

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

// >>session : src/cuda/session.cuh
/* session.cuh : owns retrieval's part on the host, and a batch of sessions from create to close. */

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

// >>cycle : src/cuda/cycle.cuh
/* cycle.cuh : owns the calls of a cycle: which kernels run on which stream, and when streams wait for each
 * other. */

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

// >>cycle_block : src/cuda/cycle_block.cuh
/* cycle_block.cuh : owns drafts of a block: which kernels score, route and choose its positions. The calls
 * around it are those of every cycle. */

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

