/* specrt.h : vocabulary-pruned speculative decoding, a single-header runtime (MIT).
 *
 * WHAT. In speculative decoding a drafter proposes tokens and the target verifies them with its
 * full vocabulary. The drafter may therefore score only a few thousand likely rows of its LM head
 * and the output stays exactly the target's. specrt answers, at every draft step, "which rows, and
 * what are their logits". This file opens a bundle (.specb) of offline artifacts, binds your draft
 * head to it, keeps and scores the active vocabulary of a policy, builds the draft tree, verifies it
 * without loss and learns from the outcome. docs/methods says which published method is which
 * source.
 *
 * USE. In exactly one source file:
 *
 *     #define SPECRT_IMPLEMENTATION
 *     #include "specrt.h"          // link with -lzstd -lm
 *
 *     specrt_error err;
 *     specrt_bundle *bundle;
 *     specrt_head *head;
 *     specrt_policy *policy;
 *     if (specrt_bundle_open("llama3.specb", NULL, &bundle, &err)) { puts(err.msg); exit(1); }
 *     specrt_head_desc hd = {.rows = weights, .dtype = SPECRT_DTYPE_F16,
 *                            .n_rows = 128256, .n_cols = 4096};
 *     specrt_head_bind(bundle, &hd, NULL, &head, &err);
 *     specrt_policy_desc pd = {.text = "static:32768"};
 *     specrt_policy_create(bundle, head, &pd, &policy, &err);
 *     const specrt_active *active = specrt_policy_get_info(policy)->active;
 *     specrt_active_logits(active, hidden, 1, logits);          // hidden f32 [1, 4096]
 *     specrt_active_topk(active, logits, 1, 10, ids, logprobs); // target ids, best first
 *
 * That is one fixed list. Other policies add lists that follow the text, and MicroSpec's needs no bundle;
 * a session (specrt_session_create) runs the cycle of draft, verification and
 * observation, whole or in parts.
 *
 * OPTIONS, before the include of the implementation:
 *     SPECRT_STATIC         every function static to the including file
 *     SPECRT_NO_ZSTD        no libzstd: bundles must be stored raw (specrt-bundle unpack)
 *     SPECRT_NO_SIMD        scalar code only
 *     SPECRT_WORKER         specrt_worker, a thread for what need not delay a cycle (needs pthreads);
 *                           define it wherever this file is included
 *
 * MEMORY.  "borrowed": yours, must outlive the object. "owned": the object frees it. "scratch":
 *          yours, contents meaningless after the call. Everything is allocated in open/bind/create
 *          through specrt_desc.alloc (but for what libzstd needs while a bundle opens); step
 *          functions never allocate. Closing NULL is a no-op.
 * THREADS. Bundles, heads and policies are immutable once made: share them freely. A
 *          session is one thread's at a time; so is a stock, with all of its sessions. No globals; no
 *          threads are started but by specrt_worker_create().
 * ERRORS.  Fallible calls return specrt_status (0 is OK) and leave outputs zeroed on failure. Cold
 *          calls take a specrt_error* (may be NULL) that names file, section, expected and found.
 * DOES NOT: tokenise text, run your model, write bundles, print, exit, abort.
 */
/* The implementation maps files, which strict C hides until asked, and asking must come first. */
#if defined(SPECRT_IMPLEMENTATION) && defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) &&     \
    !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#ifndef SPECRT_H
#define SPECRT_H

/* WORDS. One word is one thing (docs/concepts.md says more).
 *     head, row       the matrix the drafter's logits come from; a row scores one token
 *     head digest     numbers that tell whether a head is the one a bundle was made for
 *     id              a token's number in the target's vocabulary
 *     active          the tokens that may be proposed now; of a session, its shortlist
 *     list            the ranked ids of `static`
 *     source, policy  a rule that brings tokens in; a sum of such rules. A routed source chooses anew at
 *                     every level of the tree
 *     cluster, router a group of head rows; what chooses clusters at a level
 *     sketch          a low-rank copy of a head, which names the rows worth scoring
 *     segment         head rows that lie side by side, or are listed by place
 *     stock           packed rows that several sessions hold
 *     level, node     one pass of the drafter in a cycle; one drafted token of its tree
 *     draft input     the hidden states that a pass of the drafter reads
 *     draft hidden    the hidden states that it produces; the LM head multiplies them
 *     target rows     what the target said at some positions: its logits or best tokens
 *     cycle           a draft, a pass of the target over it, and what is learnt from the outcome
 *     session, host   the state of one sequence; the application's models (in specrt_cuda.h the host is
 *                     the CPU and its memory, as CUDA says it)
 *
 * FUNCTIONS, by task:
 *     open a bundle        specrt_bundle_open, _open_memory, _close, _check_tokenizer
 *     bind a head          specrt_head_bind, _close, _check_states
 *     score and rank       specrt_active_logits, _topk; specrt_logits_topk
 *     choose a policy      specrt_policy_check, _create, _close, _get_info, _ends
 *     run the whole loop   specrt_generate; or cycle by cycle specrt_host_begin, _cycle
 *     run it yourself      specrt_session_create, _close, _begin, _prefill, _draw, _start,
 *                          _get_beam, _expand, _finish, _verify, _observe, _get_stats, _set_sequence; what
 *                          you verified _observe_chain; of a tree of your own
 *                          _shortlist, _route, _member;
 *                          specrt_worker_create, _submit, _close
 *     move or set aside    specrt_session_save, _load
 *     many sequences       specrt_stock_create, _close, _get_stats; specrt_session_expand_batch
 *     choose draft lengths specrt_auto_create, _close, _begin, _choose, _should_continue, _observe,
 *                          _get_stats
 *     trees and verdicts   specrt_tree_create, _free, _get_params, _begin, _expand, _finish;
 *                          specrt_verifier_create, _free, _set_sequence, _draw, _propose;
 *                          specrt_verify_tree, _verify_chain
 *     align the drafter    specrt_align_create, _close, _observe, _acquire, _gradient, _release, _clear,
 *                          _get_stats
 *     name things          specrt_version, specrt_status_name
 * On a GPU: specrt_cuda.h. To build, inspect or record: specrt_tools.h. */

/* Contents: api decoding many saved | specrt_tools.h: tools | specrt_cuda.h: cuda.
 * In the single header they stand one after the other, and then every file of src/. Look for ">>name". */

// >>api
// Everything public but the decoding loop. All multi-byte on-disk values are little-endian; so must the
// host be.

#include <stddef.h>
#include <stdint.h>

#define SPECRT_VERSION_MAJOR  0
#define SPECRT_VERSION_MINOR  1
#define SPECRT_VERSION_PATCH  0
#define SPECRT_VERSION_STRING "0.1.0"
#define SPECRT_VERSION                                                                             \
    (SPECRT_VERSION_MAJOR * 10000 + SPECRT_VERSION_MINOR * 100 + SPECRT_VERSION_PATCH)

#if !defined(SPECRT_STATIC)
#define SPECRT_API extern
#elif defined(__GNUC__)
#define SPECRT_API static __attribute__((unused))
#else
#define SPECRT_API static
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* specrt_version() : SPECRT_VERSION of the library that the program runs with. The major number differs from
 * the header's where the two do not fit together. */
SPECRT_API int32_t specrt_version(void);

/* --- status and errors --- */

/* One list makes the enum and specrt_status_name(). Numbers come in blocks, a block per section. */
#define SPECRT_STATUS_LIST(X)                                                                      \
    X(OK, 0, "ok")                                                                                 \
    X(NO_MEMORY, 1, "out of memory")                                                               \
    X(IO, 2, "input/output error")                                                                 \
    X(BAD_ARG, 3, "bad argument")                                                                  \
    X(UNSUPPORTED, 4, "unsupported")                                                               \
    X(BAD_INPUT, 5, "invalid input")                                                               \
    X(HOST, 6, "the application's models failed")                                                  \
    X(BUNDLE_MAGIC, 20, "not a specrt bundle")                                                     \
    X(BUNDLE_VERSION, 21, "unknown bundle version")                                                \
    X(BUNDLE_TRUNCATED, 22, "bundle is truncated")                                                 \
    X(BUNDLE_TABLE, 23, "bundle section table is invalid")                                         \
    X(BUNDLE_CHECKSUM, 24, "bundle checksum mismatch")                                             \
    X(BUNDLE_ZSTD, 25, "bundle section does not decompress")                                       \
    X(BUNDLE_LIMIT, 26, "bundle section exceeds a size limit")                                     \
    X(BUNDLE_SECTION_MISSING, 27, "bundle lacks a section")                                        \
    X(BUNDLE_MISMATCH, 28, "bundle belongs to something else")                                     \
    X(BUNDLE_CONTENT, 29, "bundle section content is invalid")                                     \
    X(TRACE_MAGIC, 40, "not a specrt trace")                                                       \
    X(TRACE_VERSION, 41, "unknown trace version")                                                  \
    X(TRACE_DAMAGED, 42, "trace is damaged")                                                       \
    X(TRACE_MISMATCH, 43, "trace belongs to something else")                                       \
    X(SESSION_MAGIC, 50, "not a saved session")                                                    \
    X(SESSION_VERSION, 51, "unknown version of a saved session")                                   \
    X(SESSION_DAMAGED, 52, "saved session is damaged")                                             \
    X(SESSION_MISMATCH, 53, "saved session belongs to something else")                             \
    X(DEVICE, 60, "the device failed")                                                             \
    X(NO_DEVICE, 61, "no device")                                                                  \
    X(DEVICE_ARCH, 62, "the device's architecture was not compiled for")                           \
    X(CAPTURE, 63, "not to be captured so: a graph holds observe() and the expand() after it")

typedef enum specrt_status {
#define SPECRT_STATUS_ENUM(name, number, text) SPECRT_STATUS_##name = number,
    SPECRT_STATUS_LIST(SPECRT_STATUS_ENUM)
#undef SPECRT_STATUS_ENUM
        SPECRT_STATUS_FORCE_INT = 0x7fffffff
} specrt_status;

/* One line for a person: file, section or field, expected, found, fix. Owned by the caller. */
typedef struct specrt_error {
    specrt_status status;
    char msg[512];
} specrt_error;

/* specrt_status_name() : static text of a status, never NULL. */
SPECRT_API const char *specrt_status_name(specrt_status status);

/* --- environment --- */

#define SPECRT_LOG_INFO 2

/* Zero-initialise it; NULL in place of a desc means all defaults. */
typedef struct specrt_desc {
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc. Must align to 16 bytes. */
    void (*free)(void *user, void *ptr);      /* NULL: free */
    void *user;                               /* passed to all of these functions */
    /* One line of news, from inside a cold call; level SPECRT_LOG_INFO. NULL: silent */
    void (*log)(void *user, int level, const char *section, const char *msg);
    /* Runs task(arg, i) for i in [0, n) in any order and returns when all are done. NULL: inline */
    void (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
} specrt_desc;

/* --- rows: the formats a weight row can be stored in --- */

/* Values are ggml's, so a GGUF tensor type is a specrt_dtype. X(name, ggml_type, block_elems,
 * block_bytes, text) */
#define SPECRT_DTYPE_LIST(X)                                                                       \
    X(F32, 0, 1, 4, "f32")                                                                         \
    X(F16, 1, 1, 2, "f16")                                                                         \
    X(Q4_0, 2, 32, 18, "q4_0")                                                                     \
    X(Q4_1, 3, 32, 20, "q4_1")                                                                     \
    X(Q5_0, 6, 32, 22, "q5_0")                                                                     \
    X(Q5_1, 7, 32, 24, "q5_1")                                                                     \
    X(Q8_0, 8, 32, 34, "q8_0")                                                                     \
    X(Q4_K, 12, 256, 144, "q4_k")                                                                  \
    X(Q5_K, 13, 256, 176, "q5_k")                                                                  \
    X(Q6_K, 14, 256, 210, "q6_k")                                                                  \
    X(I32, 26, 1, 4, "i32")                                                                        \
    X(I64, 27, 1, 8, "i64")                                                                        \
    X(BF16, 30, 1, 2, "bf16")

typedef enum specrt_dtype {
#define SPECRT_DTYPE_ENUM(name, number, elems, bytes, text) SPECRT_DTYPE_##name = number,
    SPECRT_DTYPE_LIST(SPECRT_DTYPE_ENUM)
#undef SPECRT_DTYPE_ENUM
        SPECRT_DTYPE_FORCE_INT = 0x7fffffff
} specrt_dtype;

/* --- bundle: the file that the tools build (docs/FORMAT.md) --- */

#define SPECRT_MAX_VOCAB 16777216

typedef struct specrt_bundle specrt_bundle;

/* specrt_bundle_open() : map a bundle file, check header, table and checksums, decompress zstd
 * sections once (owned); raw sections are views of the mapping.
 *   desc : may be NULL; copied
 * @return OK, IO, NO_MEMORY, BUNDLE_*. */
SPECRT_API specrt_status specrt_bundle_open(const char *path, const specrt_desc *desc,
                                            specrt_bundle **out, specrt_error *err);

/* specrt_bundle_open_memory() : the same over bytes u8 [n_bytes], borrowed, 16-byte aligned;
 * `name` stands for the path in messages. */
SPECRT_API specrt_status specrt_bundle_open_memory(const void *bytes, size_t n_bytes,
                                                   const char *name, const specrt_desc *desc,
                                                   specrt_bundle **out, specrt_error *err);
SPECRT_API void specrt_bundle_close(specrt_bundle *bundle);

/* specrt_bundle_check_tokenizer() : refuse a bundle of another tokenizer.
 *   sha256 : the application's digest (specrt_tokenizer_hash_token)
 * @return OK, also when the bundle records none; BUNDLE_MISMATCH naming both sides. */
SPECRT_API specrt_status specrt_bundle_check_tokenizer(const specrt_bundle *bundle,
                                                       const uint8_t sha256[32], specrt_error *err);

/* --- head: the matrix the drafter's logits come from --- */

typedef struct specrt_head specrt_head;

/* How products run: the kernels of this CPU and specrt_desc.parallel_for; lives in the head. */
typedef struct specrt_compute specrt_compute;

typedef struct specrt_head_desc {
    const void *rows; /* [n_rows, n_cols] of dtype, borrowed for the life of the head */
    /* packed as stored for f32, f16, bf16, q8_0; others decoded to f16 then */
    specrt_dtype dtype;
    int64_t n_rows;    /* at least the tokenizer's vocabulary; more is padding, never proposed */
    int64_t n_cols;    /* d_draft */
    size_t row_stride; /* bytes between rows; 0: specrt_row_bytes(dtype, n_cols) */
    const float *bias; /* f32 [n_rows], borrowed; NULL: none */
    /* i32 [n_rows] target id of each row, distinct, borrowed for the life of the head (EAGLE-3's d2t
     * made absolute); NULL: the row's number. Ids without a row are never proposed. */
    const int32_t *ids;
    /* Where the model's probabilities are not of the products x (bias included) themselves: logits are
     * logit_scale x (0: x; Cohere's logit_scale, one over Granite's), then softcap tanh(logit / softcap) (0:
     * no cap; Gemma 2's final_logit_softcapping). Both 0 cost nothing */
    float logit_scale, softcap;
} specrt_head_desc;

/* specrt_head_check_states() : whether an engine's states are what this head multiplies: rows times states,
 * scaled and capped as the desc says, beside logits that the engine made itself. It finds states of another
 * layer, rows of another file, and logits that are scaled or capped otherwise; do it once, at the start.
 *   hidden : f32 [n, n_cols]
 *   logits : f32 [n, n_logits] by target id; ids from n_logits on are left out
 *   relative_rms : of the difference, over all n; NULL: not wanted
 * @return OK; BAD_INPUT when relative_rms is above SPECRT_HEAD_MAX_RMS, or a state's best token another one
 *         by more than rounding, with both; BAD_ARG naming the field. */
#define SPECRT_HEAD_MAX_RMS                                                                        \
    0.02 /* an engine that rounds states to 8 bits, as for a q8_0 head: 0.012 */
SPECRT_API specrt_status specrt_head_check_states(const specrt_head_desc *desc, const float *hidden,
                                                  int32_t n, const float *logits, int32_t n_logits,
                                                  double *relative_rms, specrt_error *err);

/* specrt_head_bind() : check the head against the bundle (dimensions, digest where recorded) and
 * choose the kernels for this CPU.
 *   bundle : borrowed until the call returns; NULL: nothing to check against. Rows with ids may be
 *            another head than the bundle records, unless one of its sections depends on that
 *   env    : copied; lists made from this head allocate and run through it; NULL: all defaults
 * @return OK, BAD_ARG, NO_MEMORY, UNSUPPORTED dtype, BUNDLE_MISMATCH naming both sides. */
SPECRT_API specrt_status specrt_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc,
                                          const specrt_desc *env, specrt_head **out,
                                          specrt_error *err);
SPECRT_API void specrt_head_close(specrt_head *head);

/* --- active vocabulary: contiguous segments of rows --- */

typedef struct specrt_segment {
    const void *rows;   /* [n_rows, n_cols] of dtype */
    size_t row_stride;  /* bytes between rows */
    const int32_t *ids; /* [n_rows] target id of each row */
    const float *bias;  /* [n_rows], or NULL */
    specrt_dtype dtype; /* any float format; q8_0 and larger are the fastest for many hidden rows */
    int32_t n_rows;
    /* [n_masked] distinct rows whose logits are -inf: an earlier segment covers them, or they are never
     * proposed. A range chosen whole may hold such rows */
    const int32_t *masked;
    int32_t n_masked;
    /* [n_rows] row i is the places[i]-th of `rows` and `bias`; NULL: the i-th */
    const int32_t *places;
    /* bit h: for hidden row h; for the others these logits are -inf. 0: for all */
    uint64_t scored_by;
} specrt_segment;

/* The tokens the drafter may propose now. Column i of its logits is the i-th row, segments in
 * order. Each token is scored once. */
typedef struct specrt_active {
    const specrt_compute *compute;
    const specrt_segment *segments; /* [n_segments] */
    int32_t n_segments;
    int32_t n_rows; /* sum over segments */
    int64_t n_cols;
    const specrt_head *head; /* whose logit_scale and softcap hold; NULL: logits are the products */
} specrt_active;

/* specrt_active_logits() : hidden f32 [n, n_cols] -> logits f32 [n, active->n_rows], -inf where masked.
 * A row of the result is bitwise the same whatever n is. Never allocates; takes 64 KB of stack. */
SPECRT_API specrt_status specrt_active_logits(const specrt_active *active, const float *hidden,
                                              int32_t n, float *logits);

/* specrt_active_topk() : the k best target ids of each row with log-probabilities under the softmax
 * over the active vocabulary only. Ties go to the lower target id.
 *   logits : f32 [n, active->n_rows], unchanged
 *   ids, logprobs : i32, f32 [n, k], best first; 1 <= k <= active->n_rows, k <= 256
 * @return OK or BAD_ARG. Never allocates. NaN logits rank last. */
SPECRT_API specrt_status specrt_active_topk(const specrt_active *active, const float *logits,
                                            int32_t n, int32_t k, int32_t *ids, float *logprobs);

/* specrt_logits_topk() : the ids of the k best logits of one row, ties to the lower id; -inf and NaN
 * are never among them. What sources learn from the target with.
 *   logits : f32 [n]; k: 0 to SPECRT_LOGITS_MAX_K; ids : i32 [k], best first
 * @return how many there are: k, or fewer. Never allocates. */
#define SPECRT_LOGITS_MAX_K 16
SPECRT_API int32_t specrt_logits_topk(const float *logits, int32_t n, int32_t k, int32_t *ids);

// >>decoding
// Everything public of the decoding loop: policies, trees, verification, sessions, the host.

/* ---- policies: what the drafter may propose -------------------------------------------------------
 *   policy := source ('+' source)*      source := name[:size][@key=value]...
 *
 *   full        every token
 *   static:N    the N most frequent tokens of the bundle; without N as many as were calibrated
 *   static:N/M/...  N at the first level of the tree, M at the second, the last at all that follow;
 *               at most 8
 *   window:W    MicroSpec: what the target lately saw or thought likely (docs/methods/window.md); W is 3072
 *       mode=unique_lru|stream   W distinct tokens by last occurrence; or the last W elements of the stream
 *                              (the paper's Eq. 4)
 *       kpre=0..8, kver=0..8   best tokens taken at each prompt and verified position: 3, 3
 *       positions=all|last|tree   those that count as verified: the accepted path, its end, all nodes
 *       only=both|ctx|ext      ablations: the prompt alone, or all but the prompt
 *       emitted=on|off         whether emitted tokens enter too, last
 *       min=N                  filled up to N rows, by frequency: 256, at most W
 *   retrieve:B  EvoSpec: B tokens brought in when the target emitted one that could not be drafted, with
 *               what it thought likely there and what often follows those; B is 256
 *       sem=logits|hnsw_h|hnsw_w   likely there: the target's ten best logits alone; or ten more that the
 *                              bundle's index finds for the target's hidden state, or for the token's row
 *       graph=on|off           whether successors come along, from the bundle's graph
 *       prompt=off|tokens|best   whether the prompt's tokens come in before the first cycle, and with best
 *                              also the target's ten best at each of its positions; off is the paper's
 *       keep=off|on            whether they outlive specrt_session_begin (SPECRT_BEGIN_NEW)
 *       mode=sync|async        found before the next cycle, or beside the cycles, by a task that
 *                              specrt_session_params.submit runs; found tokens come in between cycles
 *   successor:K the K tokens, not members otherwise, that likeliest follow those being extended; chosen
 *               anew at every level of the tree from the bundle's graph; K is 1024
 *   cluster:K, group:K, centroid:K   the K clusters of the head's rows that a router finds likeliest, anew at
 *               every level, from the bundle's section of that name: DynaSpec, CORAL, centroids. Without K
 *               the section's own clusters by level; with it those, scaled to K at the first
 *       schedule=table|harmonic|flat   clusters by level t from K at t = 0: the section's shape; K /
 *                         2 (t + 1) from t = 2; K always
 *       beam=level|per_row   one list for a level by the probability of its rows' paths; or each row scores
 *                         its own K alone
 *       cap=N             at most N rows of clusters a level; 0: no limit
 *       always=N          and the N most frequent tokens: 256, if the bundle has ranks
 *   sketch:M    the M tokens, not members otherwise, that a low-rank copy of the head finds best for
 *               what the drafter gave, anew at every level, from the bundle's sketch; M is 512
 *       keep=N            places that its records refine, of those that its signs preview; 0: one of 16
 *       signs=N           directions that the preview reads; 0: all
 *       scan=N            rows that it previews, the N most frequent; 0: all
 *
 * A sum scores each token once; terminators are members wherever the head has rows for them. Presets
 * are published settings (docs/methods/README.md): frspec and vocabtrim, a static list that takes the
 * share of the vocabulary that 32,768 is of Llama-3's. Where ours differ from what is published, NAME is
 * ours and NAME-paper the publication's:
 *   microspec   window:3072@kpre=8@kver=8@positions=tree@min=3072, always full; the paper: Eq. 2 to 4
 *   evospec     the share that 32,000 is of Qwen3's rows, and retrieve:256; the paper: @sem=hnsw_h
 *   hybrid      ours: window:3072+successor:256+sketch:256; it needs a graph and a sketch in the bundle
 *   dynaspec    cluster; the paper: @schedule=harmonic@beam=per_row@always=0
 *   coral       group; the paper: @schedule=flat@beam=per_row@always=0 */

#define SPECRT_MAX_TERMINATORS 64

typedef struct specrt_policy specrt_policy; /* immutable: share it between sessions and threads */

typedef struct specrt_policy_desc {
    const char *text;      /* NULL: "microspec" */
    int32_t n_vocab;       /* tokens are below it; 0: as the bundle says, else as the head does */
    int32_t n_terminators; /* tokens that end a generation, beside those the bundle knows */
    const int32_t *terminators; /* [n_terminators], copied */
    /* [n_vocab, n_embed] the embedding that routers were trained with (DynaSpec's read it); copied, its
     * rows are borrowed for the policy's life. NULL: no source may need it */
    const specrt_head_desc *embedding;
    /* The target's head, row i for token i, borrowed for the policy's life: what retrieve@sem=hnsw_h and
     * hnsw_w search. NULL: the drafter's, if it is the one that was indexed */
    const specrt_head *target;
} specrt_policy_desc;

/* specrt_policy_check() : whether a text is a policy, before anything is loaded.
 * @return OK; BAD_ARG naming the position, what was expected there and what was found. */
SPECRT_API specrt_status specrt_policy_check(const char *text, specrt_error *err);

/* specrt_policy_create() : pack what all sessions share.
 *   bundle : borrowed for the policy's life; NULL where no source needs one
 *   head   : borrowed for the policy's life; memory comes from its env
 *   desc   : NULL: all defaults
 * What a source reads of a head (sketch, cluster, group, centroid) must be of this one, whether it was bound
 * to the bundle or to none.
 * @return OK, BAD_ARG, NO_MEMORY, UNSUPPORTED, BUNDLE_SECTION_MISSING naming the tool that builds it,
 * BUNDLE_CONTENT, BUNDLE_MISMATCH naming both sides; the message begins with the policy's text. */
SPECRT_API specrt_status specrt_policy_create(const specrt_bundle *bundle, const specrt_head *head,
                                              const specrt_policy_desc *desc, specrt_policy **out,
                                              specrt_error *err);
SPECRT_API void specrt_policy_close(specrt_policy *policy);

/* What a policy is, borrowed for its life. */
typedef struct specrt_policy_info {
    const char *text; /* in canonical form: sizes filled in, defaults left out */
    int32_t bound;    /* the most rows that any of its sessions ever scores */
    /* Columns of the target's hidden states, if a source reads them where drafts are verified
     * (specrt_target_rows.hidden); else 0 */
    int32_t hidden_width;
    /* 1: a source learns from the target's logits at prompt positions; 0: they need not be computed
     * (specrt_session_prefill's rows may be NULL) */
    int32_t needs_prompt_logits;
    /* The active vocabulary, if it is the same at every step, as that of `full` and `static`; else NULL: ask
     * a session */
    const specrt_active *active;
} specrt_policy_info;

SPECRT_API const specrt_policy_info *specrt_policy_get_info(const specrt_policy *policy);

/* specrt_policy_ends() : 1 when a token ends a generation: the bundle's terminators and the desc's. */
SPECRT_API int specrt_policy_ends(const specrt_policy *policy, int32_t token);

/* ---- draft trees: chains and EAGLE-2 (Li et al. 2024) --------------------------------------------
 * A level is one drafter pass. expand() takes the best tokens of every row of the level and gives the
 * beam of the next; finish() keeps the best nodes over all levels. A chain is topk = 1. */

#define SPECRT_TREE_MAX_NODES 64 /* of a finished tree: the width of an ancestor mask */
#define SPECRT_TREE_MAX_STEPS 32
#define SPECRT_TREE_MAX_TOPK  64

typedef struct specrt_tree_params { /* 0 takes the default, EAGLE-2's */
    int32_t num_steps;              /* levels, that is drafter passes: 6 (EAGLE's depth + 1) */
    int32_t topk;                   /* tokens a row proposes, and the width of the beam: 10 */
    int32_t num_draft_tokens;       /* nodes to verify, root included: 60 */
} specrt_tree_params;

/* The rows of the next drafter pass, best first. Row i feeds tokens[i] with the hidden state that row
 * parents[i] of the previous pass gave. */
typedef struct specrt_beam {
    int32_t n;
    const int32_t *tokens;  /* [n] target ids */
    const int32_t *parents; /* [n] rows of the previous pass; at the first level all 0 */
    const float *logprobs;  /* [n] cumulative: of the path, not of the token */
} specrt_beam;

/* The tree to verify. Nodes are ordered so that parents come first; node 0 is the root, the last
 * token emitted and not yet run through the target. */
typedef struct specrt_draft {
    int32_t n;
    const int32_t *tokens;  /* [n] target ids */
    const int32_t *parents; /* [n] nodes; -1 for the root */
    const int32_t *depths;  /* [n] 0 for the root: position = that of the root + depth */
    const uint64_t *masks;  /* [n] bit j: node j is an ancestor, or the node itself */
    const float *logprobs;  /* [n] cumulative; 0 for the root */
    /* [n] what the drafter has read: in pass depths[i] the node was this row of the beam; -1: no pass had
     * it. NULL: not told */
    const int32_t *beam_rows;
} specrt_draft;

typedef struct specrt_tree specrt_tree; /* scratch and results of one sequence */

/* specrt_tree_create() : params and env may be NULL.
 * @return OK, NO_MEMORY, BAD_ARG naming the limit. */
SPECRT_API specrt_status specrt_tree_create(const specrt_tree_params *params,
                                            const specrt_desc *env, specrt_tree **out,
                                            specrt_error *err);
SPECRT_API void specrt_tree_free(specrt_tree *tree);

/* specrt_tree_get_params() : with the defaults filled in, borrowed. */
SPECRT_API const specrt_tree_params *specrt_tree_get_params(const specrt_tree *tree);

/* specrt_tree_begin() : a new tree from its root. Its first pass has one row. */
SPECRT_API void specrt_tree_begin(specrt_tree *tree, int32_t root);

/* specrt_tree_expand() : the proposals of a pass.
 *   ids, logprobs : i32, f32 [n, k], as specrt_active_topk() gives them; n is 1 at the first level, then
 *                   the beam's; 0 <= k <= topk
 *   beam : the rows of the next pass, borrowed until the next call; n = 0 after the last level, and
 *          where no proposal has a probability above 0, or there is none
 * @return OK or BAD_ARG. Never allocates. */
SPECRT_API specrt_status specrt_tree_expand(specrt_tree *tree, const int32_t *ids,
                                            const float *logprobs, int32_t n, int32_t k,
                                            specrt_beam *beam);

/* specrt_tree_finish() : the num_draft_tokens best nodes over all levels, borrowed until the next
 * begin. Ties go to the earlier proposal, so a kept node's parent is always kept. */
SPECRT_API void specrt_tree_finish(specrt_tree *tree, specrt_draft *draft);

/* ---- lossless verification ------------------------------------------------------------------------ */

/* How the target samples. Zero-initialised is greedy. The filters apply in this order, each to what
 * the one before left: temperature, top_k, top_p, min_p. */
typedef struct specrt_sampling {
    float temperature; /* 0: greedy, ties to the lower id */
    int32_t top_k;     /* 0: off */
    float top_p;       /* in (0, 1]; 0: off */
    float min_p;       /* relative to the best token, in [0, 1) */
    /* in the key of every draw, with the position; of sampled drafts, with cycle and level.
     * Generations that share both share their chance */
    uint64_t seed, sequence;
} specrt_sampling;

/* What a cycle emits. */
typedef struct specrt_verdict {
    int32_t n; /* tokens emitted: accepted drafts, then the bonus token; at least 1 */
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    int32_t nodes[SPECRT_TREE_MAX_NODES]; /* [n] to commit: the root, then the accepted nodes */
} specrt_verdict;

typedef struct specrt_verifier specrt_verifier; /* scratch of one sequence */

/* specrt_verifier_create() : n_vocab is the target's, sampling is copied.
 * @return OK, NO_MEMORY, BAD_ARG naming the field. */
SPECRT_API specrt_status specrt_verifier_create(int32_t n_vocab, const specrt_sampling *sampling,
                                                const specrt_desc *env, specrt_verifier **out,
                                                specrt_error *err);
SPECRT_API void specrt_verifier_free(specrt_verifier *verifier);

/* specrt_verifier_set_sequence() : the number in the key of the draws to come. Give every generation
 * another one: with the same, equal prompts get the same answer, and answers at equal positions are not
 * independent. */
SPECRT_API void specrt_verifier_set_sequence(specrt_verifier *verifier, uint64_t sequence);

/* specrt_verifier_draw() : the token that plain decoding emits after a position, whatever drafted.
 *   logits : f32 [n_vocab] of the target; NaN counts as -inf
 *   position : of the token to emit, from 0 at the start of the sequence */
SPECRT_API int32_t specrt_verifier_draw(specrt_verifier *verifier, const float *logits,
                                        int64_t position);

/* specrt_verify_tree() : draw-and-descend. At each node the target's own token is drawn; if a child has
 * it, descend, else emit it and stop. What is emitted depends on the target's logits and the key of the
 * draw alone, so the run equals plain decoding with the same seed token for token, for any draft.
 *   logits : f32 [draft->n, n_vocab], borrowed
 *   position : of the token after the root
 * @return OK or BAD_ARG. Never allocates. */
SPECRT_API specrt_status specrt_verify_tree(specrt_verifier *verifier, const specrt_draft *draft,
                                            const float *logits, int64_t position,
                                            specrt_verdict *out);

/* q: what a draft token was sampled from. Token ids[i] had probability probs[i], any other none; an id
 * that comes twice has both. */
typedef struct specrt_draft_distribution {
    int32_t n;
    const int32_t *ids; /* [n] target ids, borrowed */
    const float *probs; /* [n] sum to 1, borrowed */
} specrt_draft_distribution;

/* specrt_verifier_propose() : sample a draft token from softmax(logits / temperature) over a shortlist,
 * for specrt_verify_chain().
 *   logits : f32 [n] of the drafter; NaN counts as -inf
 *   temperature : in (0, 100]
 *   cycle, level : the key of the draw, with seed and sequence; no pair may come twice in a sequence
 *   probs  : f32 [n], written: q, exactly as sampled
 * @return which of the n; -1 when no logit is above -inf: draft no further. Never allocates. */
SPECRT_API int32_t specrt_verifier_propose(const specrt_verifier *verifier, const float *logits,
                                           int32_t n, float temperature, int64_t cycle,
                                           int32_t level, float *probs);

/* specrt_verify_chain() : rejection sampling (Leviathan et al. 2023). Draft token x is accepted with
 * probability min(1, p(x) / q(x)), else a token is drawn from norm(max(0, p - q)) and the rest falls;
 * after the last, one is drawn from p. The output follows the target's distribution, though it is not the
 * stream of plain decoding. Node 0 of the verdict is the root, node i + 1 is tokens[i].
 *   tokens : i32 [n] target ids, each sampled from its distribution after those before it; n may be 0
 *   distributions   : [n]
 *   logits : f32 [n + 1, n_vocab], row 0 of the root, borrowed
 *   cycle  : the key of the draws, as for specrt_verifier_propose()
 * @return OK; BAD_ARG when a distribution is none (its probabilities do not sum to 1 within 0.001: divided by
 * the softmax over more than the shortlist?), or gives its token no chance. Never allocates. */
SPECRT_API specrt_status specrt_verify_chain(specrt_verifier *verifier, const int32_t *tokens,
                                             const specrt_draft_distribution *distributions,
                                             int32_t n, const float *logits, int64_t cycle,
                                             specrt_verdict *out);

/* ---- auto: as much drafting as pays ----------------------------------------------------------------
 * How deep to draft, from how many rows, or not at all, anew in every cycle: from what cycles cost, by the
 * curves that `specrt-eval plan` measures, from what was accepted lately, and from how sure the target was of
 * its tokens, which tells of drafts where there are none. Counters that forget exponentially, in whole
 * numbers: the same cycles give the same choices anywhere. Choices follow from cycles that are over and from
 * drafted tokens that stay in the draft, so that sampled drafts keep their distribution.
 * docs/methods/auto.md has the rules.
 *
 * specrt_session_params.auto_draft hands it to a session, which then ends drafts by itself; all that is left
 * to a loop of your own is to skip the draft where specrt_session_get_beam() gives no rows. Without a
 * session:
 *
 *     specrt_auto_begin(a);                        // a prompt, which the drafter has read
 *     specrt_auto_choose(a, &choice);              // each cycle; num_steps 0: decode plainly
 *     for (n = 0; n < choice.num_steps; n++) {
 *         your drafter's next level, from choice.list
 *         if (!specrt_auto_goes_on(a, n + 1, logprob)) break;
 *     }
 *     your target, and
 *     specrt_auto_observe(a, &cycle);
 *
 * One thread at a time; sequences that take turns have one each. */

#define SPECRT_AUTO_MAX_LISTS 8

/* What may be left out, to show what it is for; with all of them it is the fixed policy of num_steps levels
 * from the last list. */
#define SPECRT_AUTO_GUARD      1u  /* plain cycles */
#define SPECRT_AUTO_DEPTH      2u  /* fewer levels than num_steps, by cycle */
#define SPECRT_AUTO_LISTS      4u  /* other lists than the last */
#define SPECRT_AUTO_CONFIDENCE 8u  /* ends of a chain by what was drafted in it */
#define SPECRT_AUTO_CERTAINTY  16u /* what plain cycles tell by the target's own probabilities */

typedef struct specrt_auto_desc {
    int32_t num_steps; /* levels of a draft at most, 1 to SPECRT_TREE_MAX_STEPS */
    int32_t n_lists;   /* each holds those before it; 1 to SPECRT_AUTO_MAX_LISTS */
    /* i32 [n_lists] leading rows of `static` that are list i, ascending, copied; NULL: one list, the whole
     * policy. Only sessions look at it */
    const int32_t *rows;
    /* f64 [n_lists, num_steps + 1] of a cycle from list i with so many levels: first pass over one token,
     * products, the target over the nodes; in any one unit, copied. Column 0 is a plain pass of the target */
    const double *costs;
    double read; /* of the first pass, for each token beyond one that the drafter must read */
    /* 1: it need not read again what it drafted of a chain that was accepted */
    int32_t keeps_chains;
    uint32_t without; /* SPECRT_AUTO_... */
} specrt_auto_desc;

typedef struct specrt_auto specrt_auto;

/* specrt_auto_create() : it keeps what it learns over all sequences; the other calls never allocate.
 *   env : may be NULL
 * @return OK, NO_MEMORY, BAD_ARG naming the field, what was expected and what was found. */
SPECRT_API specrt_status specrt_auto_create(const specrt_auto_desc *desc, const specrt_desc *env,
                                            specrt_auto **out, specrt_error *err);
SPECRT_API void specrt_auto_close(specrt_auto *a);

/* specrt_auto_begin() : a new sequence, whose prompt the drafter has read. */
SPECRT_API void specrt_auto_begin(specrt_auto *a);

typedef struct specrt_auto_choice {
    int32_t num_steps; /* levels at most; 0: no draft */
    int32_t list;
} specrt_auto_choice;

/* specrt_auto_choose() : of the cycle to come; asked again before it is observed, the same. */
SPECRT_API void specrt_auto_choose(specrt_auto *a, specrt_auto_choice *out);

/* specrt_auto_goes_on() : whether another level follows.
 *   n       : levels drafted, 1 at least
 *   logprob : of a chain up to there, cumulative; NaN: of a tree, or not known
 * @return 1 or 0. */
SPECRT_API int specrt_auto_should_continue(specrt_auto *a, int32_t n, float logprob);

/* A cycle as it went. */
typedef struct specrt_auto_cycle {
    int32_t n_passes;   /* levels drafted and verified; 0: none */
    int32_t n_accepted; /* of the drafted tokens; emitted was one more */
    /* f32 [n_passes] of a chain, cumulative, borrowed; NULL: of a tree, or not known */
    const float *logprobs;
    /* i32 [n_accepted + 1] the first list that holds an emitted token, n_lists: none does; borrowed. NULL:
     * all hold all */
    const int32_t *lists;
    /* f32 [n_accepted + 1] log-probability that the target gave each emitted token, at temperature 1 and over
     * its whole vocabulary, or over its best few tokens, borrowed; NaN: not known, NULL: none is */
    const float *target_logprobs;
} specrt_auto_cycle;

/* specrt_auto_observe() : in constant time.
 * @return OK; BAD_ARG for counts out of range, and nothing is learnt. */
SPECRT_API specrt_status specrt_auto_observe(specrt_auto *a, const specrt_auto_cycle *cycle);

/* Sums since create. */
typedef struct specrt_auto_stats {
    int64_t n_cycles, n_emitted;
    int64_t n_plain;  /* of the cycles, without a draft */
    int64_t n_probes; /* of them, drafted although it did not pay, to see whether it does again */
    int64_t n_passes; /* levels drafted */
    double cost; /* by the table, in plain passes; n_emitted / cost: times plain decoding's speed */
} specrt_auto_stats;

SPECRT_API void specrt_auto_get_stats(const specrt_auto *a, specrt_auto_stats *out);

/* ---- sessions: one sequence --------------------------------------------------------------------------
 *
 *     specrt_session_begin(s, SPECRT_BEGIN_NEW, 0);
 *     for each chunk of the prompt:
 *         specrt_session_prefill(s, tokens, n, &rows);      // what the target said there
 *     token = specrt_session_draw(s, logits);               // after the last prompt token
 *     specrt_session_start(s, token);
 *     while (token is not the last):
 *         for (specrt_session_get_beam(s, &beam); beam.n > 0;)
 *             hidden = your drafter(beam.tokens, beam.parents)
 *             specrt_session_expand(s, hidden, input, beam.n, &beam)
 *         specrt_session_finish(s, &draft);
 *         logits = your target(draft.tokens, draft.masks, draft.depths)
 *         specrt_session_verify(s, &draft, logits, &verdict);
 *         keep verdict.nodes in your caches, emit verdict.tokens
 *         specrt_session_observe(s, &draft, &verdict, &rows);
 *
 * Any part may be yours: score specrt_session_shortlist() in your own way, build the tree or verify it
 * elsewhere; only begin, prefill, start and observe teach the sources. One thread at a time. */

typedef struct specrt_session specrt_session;

/* Work that runs once, on another thread than the session's. */
typedef struct specrt_task {
    void (*run)(struct specrt_task *task);
    struct specrt_task *next; /* to link it with, for whoever holds it until it runs */
} specrt_task;

#if defined(SPECRT_WORKER)
/* A thread that runs tasks one after another, of any number of sessions. */
typedef struct specrt_worker specrt_worker;

/* specrt_worker_create() : starts it. env : may be NULL. @return OK, NO_MEMORY. */
SPECRT_API specrt_status specrt_worker_create(const specrt_desc *env, specrt_worker **out,
                                              specrt_error *err);

/* specrt_worker_submit() : runs a task after those before it; returns at once and never allocates. The
 * shape of specrt_session_params.submit, with the worker as its user. */
SPECRT_API void specrt_worker_submit(void *worker, specrt_task *task);

/* specrt_worker_close() : runs what was submitted, then ends the thread. Close its sessions first. */
SPECRT_API void specrt_worker_close(specrt_worker *worker);
#endif

/* How draft tokens are chosen. */
typedef enum specrt_draft_kind {
    SPECRT_DRAFT_TOP_K = 0, /* the best ones, verified by draw-and-descend: specrt_verify_tree() */
    SPECRT_DRAFT_SAMPLED =
        1 /* a chain sampled from the drafter's distribution: specrt_verify_chain() */
} specrt_draft_kind;

typedef struct specrt_stock specrt_stock; /* see >>many */

typedef struct specrt_session_params {
    specrt_tree_params tree; /* sampled drafts: topk is 1, num_draft_tokens num_steps + 1 */
    specrt_sampling sampling;
    /* Columns of the target's logits, one at least for each of the policy's tokens; 0: the draft head's
     * rows, or the policy's n_vocab where those have ids of their own. */
    int32_t n_logits;
    specrt_draft_kind draft;
    float draft_temperature; /* of sampled drafts, to 100; 0: the target's */
    /* Runs a task soon, once, on another thread, and returns at once; needed by mode=async. The session has
     * at most one task out; it waits for it in begin, in close and where a prompt fills the cache
     * (prompt=). */
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;
    /* Ends drafts where going on does not pay, and chooses how much of `static` they are from; borrowed for
     * the session's life, observed by it. NULL: every draft has num_steps levels */
    specrt_auto *auto_draft;
    /* Holds the rows that the session packs, each once for all sessions of it; borrowed for the session's
     * life. NULL: the session has its own */
    specrt_stock *stock;
} specrt_session_params;

/* What the target said at n positions: its logits, or its best tokens if you have found them. */
typedef struct specrt_target_rows {
    const float *logits; /* f32 [n, n_logits], borrowed; NULL: see ids */
    const int32_t *ids;  /* i32 [n, k] best first, -1: none; NULL too: nothing is known */
    int32_t k;
    const float *hidden; /* f32 [n, d_hidden] what its head multiplied; NULL: not told */
    int32_t d_hidden;    /* the policy's hidden_width, where that is not 0 */
} specrt_target_rows;

/* Sums since begin, over `n_cycles` observations. */
typedef struct specrt_session_stats {
    int64_t n_cycles;
    int64_t n_emitted; /* accept length: n_emitted / n_cycles */
    int64_t n_covered; /* of those, in the shortlist they were or would have been drafted from */
    int64_t n_drafted; /* nodes of the trees, roots excluded */
    int64_t n_rows;    /* of the shortlists drafted from; mean active rows: n_rows / n_cycles */
    int64_t n_passes;  /* levels drafted, of all cycles */
    int64_t n_bytes;   /* read at them: rows scored, and weights and codes that sources chose by */
    int64_t n_copied;  /* rows read from the head to be packed */
    int64_t n_events; /* cycles whose last token could not have been drafted, where one retrieves */
    int64_t n_lost;   /* of those, not learnt from: sixteen cycles waited for the worker */
    int64_t n_by_length[SPECRT_TREE_MAX_NODES + 1]; /* cycles that emitted this many tokens */
} specrt_session_stats;

/* specrt_session_create() : everything a sequence needs; the other calls never allocate.
 *   policy : borrowed for the session's life
 *   params, env : NULL: all defaults (env: the head's)
 * @return OK, NO_MEMORY, BAD_ARG, also when topk is above the policy's bound, for sampled drafts of a
 *         greedy target or with topk above 1, for mode=async without submit, for an auto_draft of more levels
 *         than the tree's or of lists that are none of the policy's `static`, and for a stock of another
 *         head or that has promised its rows to other sessions. */
SPECRT_API specrt_status specrt_session_create(const specrt_policy *policy,
                                               const specrt_session_params *params,
                                               const specrt_desc *env, specrt_session **out,
                                               specrt_error *err);
SPECRT_API void specrt_session_close(specrt_session *session);

typedef enum specrt_begin {
    SPECRT_BEGIN_NEW = 0, /* a new sequence: sources and statistics forget everything */
    SPECRT_BEGIN_TURN = 1 /* the next turn of a conversation: both keep what they have */
} specrt_begin;

/* specrt_session_begin() : then comes prefill. Draws are keyed by the next number after the last sequence's,
 * the first by sampling.sequence: generations of one session are independent, and the same again for a
 * session made anew. With BEGIN_TURN all that sources learnt stays: window, cache and its ghosts, membership.
 *   position : of the first token to prefill: 0 where the prompt repeats the conversation, else as many
 *              tokens as the target's cache holds
 * @return OK; BAD_ARG for a position below 0. Never allocates. */
SPECRT_API specrt_status specrt_session_begin(specrt_session *session, specrt_begin kind,
                                              int64_t position);

/* specrt_session_set_sequence() : the number that keys the draws after the next begin; those that
 * follow count on from there. With top-k drafts an answer follows from prompt, seed and number alone, as
 * in plain decoding, whatever the session did before. Sessions that share a seed need numbers of their
 * own. */
SPECRT_API void specrt_session_set_sequence(specrt_session *session, uint64_t sequence);

/* specrt_session_prefill() : the next prompt tokens.
 *   tokens : i32 [n]
 *   rows   : the target at those n positions, whose hidden states no source reads; NULL for positions it
 *            did not compute (cached prefixes)
 * @return OK; BAD_ARG for a token outside the vocabulary, before anything is learnt. */
SPECRT_API specrt_status specrt_session_prefill(specrt_session *session, const int32_t *tokens,
                                                int32_t n, const specrt_target_rows *rows);

/* specrt_session_draw() : the token that plain decoding emits next. logits : f32 [n_logits] */
SPECRT_API int32_t specrt_session_draw(specrt_session *session, const float *logits);

/* specrt_session_start() : the first token after the prompt; it is the root of the first tree. After
 * specrt_session_observe_chain() without a last token it is that one. */
SPECRT_API specrt_status specrt_session_start(specrt_session *session, int32_t token);

/* specrt_session_get_beam() : the rows of the pass to come, borrowed until the next call: first the root
 * alone. n = 0: go on with finish, since all levels are there or auto_draft has this cycle go without a
 * draft. */
SPECRT_API void specrt_session_get_beam(const specrt_session *session, specrt_beam *beam);

/* specrt_session_shortlist() : what may be proposed in this cycle, borrowed; its content changes only in
 * start and observe, but for routed sources' rows: after expand or route these are that level's. */
SPECRT_API const specrt_active *specrt_session_shortlist(const specrt_session *session);

/* specrt_session_route() : the shortlist of a level of a tree that you grow yourself, which
 * expand does for its own; each level once in a cycle, in order.
 *   level  : 0 for the first pass
 *   beam   : the rows of the pass, at most topk; its parents are not looked at
 *   draft_hidden, draft_input : as for expand
 * @return borrowed until the next call; NULL for a level or beam out of range. */
SPECRT_API const specrt_active *specrt_session_route(specrt_session *session, int32_t level,
                                                     const specrt_beam *beam,
                                                     const float *draft_hidden,
                                                     const float *draft_input);

/* specrt_session_expand() : score a drafter pass over the shortlist and grow the tree by it.
 *   draft_hidden : f32 [n, n_cols] hidden states that the pass produced; n is 1 at the first pass, then the
 *            beam's
 *   draft_input : f32 [n, n_cols] hidden states that the pass read, for sources that route by them
 *            (DynaSpec); NULL: not known
 *   beam   : the rows of the next pass; n = 0: go on with finish */
SPECRT_API specrt_status specrt_session_expand(specrt_session *session, const float *draft_hidden,
                                               const float *draft_input, int32_t n,
                                               specrt_beam *beam);

/* specrt_session_finish() : the tree to verify, borrowed until the next start or observe. */
SPECRT_API void specrt_session_finish(specrt_session *session, specrt_draft *draft);

/* specrt_session_verify() : specrt_verify_tree() at the session's position; for sampled drafts
 * specrt_verify_chain(), and draft must be the one that finish gave, or a prefix whose length does not
 * depend on the tokens it leaves out. The same holds for a verdict that is cut before observe: at a
 * terminator or a limit, but not by what is cut off. */
SPECRT_API specrt_status specrt_session_verify(specrt_session *session, const specrt_draft *draft,
                                               const float *logits, specrt_verdict *out);

/* Whether a token may be proposed. */
typedef enum specrt_member {
    SPECRT_MEMBER_NO = 0,
    SPECRT_MEMBER_FIXED = 1, /* in every cycle: full, static */
    SPECRT_MEMBER_NOW = 2    /* by a source that changes its mind */
} specrt_member;

/* specrt_session_member() : of the list a token at this level was, or would have been, drafted from. The
 * list is the cycle's from finish to observe. */
SPECRT_API specrt_member specrt_session_member(const specrt_session *session, int32_t token,
                                               int32_t level);

/* specrt_session_observe() : learn from a cycle, and root the next tree in its last token.
 *   rows : the target at the draft->n nodes; NULL: nothing but the tokens is learnt
 * @return OK; BAD_ARG for tokens or nodes out of range and hidden states of another width than the policy
 * reads, before anything is learnt. */
SPECRT_API specrt_status specrt_session_observe(specrt_session *session, const specrt_draft *draft,
                                                const specrt_verdict *verdict,
                                                const specrt_target_rows *rows);

/* specrt_session_observe_chain() : the same of a chain that the application verified in its own way, whoever
 * drafted it; or of plain decoding, n = 1.
 *   tokens : i32 [n] that the target read: the root, then what was drafted; n at most SPECRT_TREE_MAX_NODES
 *   n_accepted : of those drafted, 0 to n - 1
 *   last   : the target's own token after them, the root of the next draft; -1: not drawn yet. Then the
 *            cycle waits, with the best tokens of rows but without hidden states, for
 *            specrt_session_start(last), and another observe is BAD_ARG; begin forgets it
 *   rows   : the target at the n tokens; NULL: nothing but the tokens is learnt */
SPECRT_API specrt_status specrt_session_observe_chain(specrt_session *session,
                                                      const int32_t *tokens, int32_t n,
                                                      int32_t n_accepted, int32_t last,
                                                      const specrt_target_rows *rows);

SPECRT_API void specrt_session_get_stats(const specrt_session *session, specrt_session_stats *out);

/* ---- alignment: the drafter learns from what the target says (EvoSpec's path B) -----------------
 * Zhang et al. 2026, arXiv 2605.27390, section 3.4 and Algorithm 1. Of every cycle the application tells
 * the positions where its drafter had a distribution. Those that could be drafted, and where the two models
 * differ, wait in a bounded buffer; a full one is a batch. What remains to the application is the drafter's
 * own layer, forward from inputs it kept and backward from `dh`, and the optimiser:
 *
 *     specrt_align_observe(a, positions, n);                  // after verification, before observe
 *     if ((batch = specrt_align_acquire(a)) != NULL) {
 *         hidden = your drafter, once more, at batch->contexts
 *         specrt_align_gradient(a, batch, hidden, dh, &loss);
 *         your layer's backward pass from dh, a step of your optimiser
 *         specrt_align_release(a, batch);
 *     }
 *
 * gradient may run on another thread, for a batch that is out, beside all other calls; these are one
 * thread's. Whatever is learnt costs no token: verification does not ask who drafted. */

#define SPECRT_ALIGN_MAX_BATCH 4096
#define SPECRT_ALIGN_MAX_TOP   256

typedef struct specrt_align_params {
    int32_t n_batch; /* |B|: positions that make a batch, 1 to SPECRT_ALIGN_MAX_BATCH */
    int32_t
        n_steps; /* gamma: later positions of a cycle are left out; 1 to SPECRT_TREE_MAX_NODES */
    int32_t
        n_top; /* K_logit: of the target's best tokens that are kept, 1 to SPECRT_ALIGN_MAX_TOP */
    float temperature; /* T_KD, above 0 */
    float beta;        /* of the curriculum w_j = exp(-beta L_base (j - 1)) (Eq. 4), 0 or more */
    float epsilon;     /* of the gate: a divergence above it, in nats, is kept */
} specrt_align_params;

/* The paper's Table 5; n_top and epsilon are ours, for it gives none. */
#define SPECRT_ALIGN_DEFAULTS                                                                      \
    { 32, 6, 64, 1.0f, 0.3f, 0.1f }

/* One position of a cycle's accepted path where the drafter had a distribution. */
typedef struct specrt_align_position {
    uint64_t context;    /* of yours: where the drafter's input is to be found again */
    int32_t step;        /* j: 1 where the root was the last token, then ascending */
    int32_t token;       /* that was emitted there */
    int32_t covered;     /* 1: it could have been drafted (specrt_session_member()); 0: path A's */
    int32_t rejected;    /* 1: the target refused what was drafted there */
    const float *logits; /* f32 [n_logits] of the target, borrowed */
    const float *hidden; /* f32 [n_cols] what the drafter's head multiplied, borrowed */
    int32_t drafted;     /* a token proposed there and its log-probability over the shortlist, at */
    float drafted_logprob; /* temperature 1, from which L_base follows; -1: none, L_base is over the
                              retained support */
} specrt_align_position;

/* Positions to learn from, borrowed from specrt_align_acquire() until specrt_align_release(). */
typedef struct specrt_align_batch {
    int32_t n; /* params.n_batch at least, with the rest of the cycle that filled it */
    const uint64_t *contexts; /* [n] */
    const int32_t *steps;     /* [n] j */
    const float *weights;     /* [n] w_j */
    const int32_t *n_top;     /* [n] retained tokens of each */
    const int32_t *ids;       /* [n, n_top of params] the target's best first */
    const float *probs;       /* likewise, of the target, softmax at T_KD over those retained */
} specrt_align_batch;

/* Sums since create. */
typedef struct specrt_align_stats {
    int64_t n_positions; /* told, of steps up to gamma */
    int64_t n_missing;   /* of those, not covered: path A */
    int64_t n_invalid;   /* of those, not finite, or without a retained token that the head has */
    int64_t n_rejected;  /* of the others, refused by the target */
    int64_t n_kept;      /* of the others, past the gate: path B */
    int64_t n_dropped;   /* past the gate, but the buffer was full and the last batch out */
    int64_t n_batches;   /* taken */
    double divergence;   /* sum of KL(p || q) over n_positions - n_missing - n_invalid */
    int64_t n_bytes;     /* of memory that it holds now */
} specrt_align_stats;

typedef struct specrt_align specrt_align;

/* specrt_align_create() : two buffers, one to fill while the other is out; the other calls never allocate.
 *   head     : the drafter's, borrowed for its life. Retained tokens are scored by it, whether the
 *              shortlist held them or not; those without a row are left out
 *   n_logits : columns of the target's logits
 *   params   : NULL: SPECRT_ALIGN_DEFAULTS
 *   env      : NULL: all defaults
 * @return OK, NO_MEMORY, BAD_ARG naming the field and its limits. */
SPECRT_API specrt_status specrt_align_create(const specrt_head *head, int32_t n_logits,
                                             const specrt_align_params *params,
                                             const specrt_desc *env, specrt_align **out,
                                             specrt_error *err);
SPECRT_API void specrt_align_close(specrt_align *align);

/* specrt_align_observe() : the positions of one cycle, [n], steps ascending.
 * @return how many were kept; -1, and nothing is, for a token outside the logits or steps out of order. */
SPECRT_API int32_t specrt_align_observe(specrt_align *align, const specrt_align_position *positions,
                                        int32_t n);

/* specrt_align_acquire() : the buffer as a batch, once it is full; NULL: it is not, or the last one is out.
 * */
SPECRT_API const specrt_align_batch *specrt_align_acquire(specrt_align *align);

/* specrt_align_gradient() : of J = sum w_j T^2 KL(p_j || q_j) (Eq. 5) with respect to hidden states.
 *   hidden : f32 [batch->n, n_cols] what the drafter's head multiplies there now
 *   dh     : f32 [batch->n, n_cols], written
 *   loss   : J; NULL: not wanted
 * @return OK; BAD_INPUT when a value is not finite: make no step of it. */
SPECRT_API specrt_status specrt_align_gradient(const specrt_align *align,
                                               const specrt_align_batch *batch, const float *hidden,
                                               float *dh, double *loss);

/* specrt_align_release() : ends a batch; its buffer is empty again. */
SPECRT_API void specrt_align_release(specrt_align *align, const specrt_align_batch *batch);

/* specrt_align_clear() : forget what waits, as when the drafter's inputs are lost. A batch that is out
 * stays. */
SPECRT_API void specrt_align_clear(specrt_align *align);

SPECRT_API void specrt_align_get_stats(const specrt_align *align, specrt_align_stats *out);

/* ---- the whole loop over a host ------------------------------------------------------------------
 * The application's models as a table of callbacks. What they give is borrowed until their next call.
 * They return 0; anything else ends the call with SPECRT_STATUS_HOST, and the generation: begin another.
 *
 * Several sequences of an engine have a session each, of one policy, which holds the packed rows for all
 * of them, and copies of one table that differ in `user` alone; by specrt_host_cycle() they take turns.
 * Where the engine runs them in one batch, make that call's steps yourself, each for all sequences: a pass
 * over the beams of all, whose first is the last token of each, then specrt_session_expand_batch(), level by
 * level; _finish() of each; a pass over all drafts; _verify(), your commit and _observe(). */
typedef struct specrt_host {
    void *user;
    /* Positions of the target's cache, which holds a tree's nodes beside them, 2 or more; 0: no limit. */
    int64_t n_context;
    int32_t max_batch; /* prompt tokens of one call; 0: no limit */

    /* Run prompt tokens [n] through the target, and through the drafter as far as it can go.
     *   logits : f32 [n, n_logits] when `all`, else [1, n_logits] of the last token */
    int (*target_prefill)(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits);
    /* One drafter pass. At the first level (level 0) the beam is the root alone, the last token
     * emitted: a drafter that keeps state first takes in what was emitted since the last draft.
     *   draft_hidden : f32 [beam->n, n_cols] what the head multiplies
     *   draft_input : f32 [beam->n, n_cols] what this pass read, for sources that route by it; NULL: not
     *            known */
    int (*draft_step)(void *user, int32_t level, const specrt_beam *beam,
                      const float **draft_hidden, const float **draft_input);
    /* Run the tree through the target, each node seeing its ancestors.
     *   logits : f32 [draft->n, n_logits] */
    int (*target_verify)(void *user, const specrt_draft *draft, const float **logits);
    /* Keep verdict->nodes in the caches, forget the other nodes; verdict->tokens are emitted. Which nodes the
     * drafter has read, and where, draft->beam_rows tells. */
    int (*commit)(void *user, const specrt_draft *draft, const specrt_verdict *verdict);
    /* What the target's head multiplied in the last target_verify: f32 [draft->n, *width]. Asked before
     * commit, and only where the policy's hidden_width is not 0; else it may be NULL. */
    int (*target_hidden)(void *user, const float **hidden, int32_t *width);

    /* Of the drafts to come; both may change from cycle to cycle, and cost no token. */
    int32_t num_steps; /* passes of the drafter at most; 0: as many as the session's */
    float p_min;       /* no pass follows where the best path is less probable; 0: all do */
} specrt_host;

/* specrt_host_begin() : begin, prefill, the first token.
 *   kind   : SPECRT_BEGIN_NEW: a new sequence; SPECRT_BEGIN_TURN: the next turn of a conversation
 *   prompt : i32 [n], n >= 1; of a turn the conversation so far and what was said to it
 *   first  : the token after the prompt
 * @return OK, HOST, BAD_ARG naming the missing callback, the token, or the context that is too small. */
SPECRT_API specrt_status specrt_host_begin(specrt_session *session, const specrt_host *host,
                                           specrt_begin kind, const int32_t *prompt, int64_t n,
                                           int32_t *first, specrt_error *err);

/* specrt_host_cycle() : draft, verify, commit, observe. Near the context's end nothing is drafted.
 *   verdict : its n is 0 when the context is full; written after the draft, so that a host may keep
 *             the last one here
 * @return OK, HOST, BAD_ARG. Never allocates. */
SPECRT_API specrt_status specrt_host_cycle(specrt_session *session, const specrt_host *host,
                                           specrt_verdict *verdict, specrt_error *err);

typedef enum specrt_end {
    SPECRT_END_TERMINATOR, /* it is the last token given */
    SPECRT_END_LENGTH,     /* max_tokens */
    SPECRT_END_CONTEXT,    /* the context is full */
    SPECRT_END_STOPPED     /* by the application */
} specrt_end;

typedef struct specrt_generation {
    int64_t max_tokens; /* 0: no limit */
    specrt_begin begin; /* the kind of specrt_host_begin() */
    /* Called with new tokens as they come; anything but 0 stops. NULL: nobody listens. */
    int (*each)(void *user, const int32_t *tokens, int32_t n);
    void *user;
    int64_t n_tokens; /* out: how many were given */
    specrt_end end;   /* out: why it ended */
} specrt_generation;

/* specrt_generate() : the answer to a prompt, cut after a terminator and at max_tokens. Called again, it
 * draws anew: see specrt_session_begin().
 * @return as specrt_host_begin. Never allocates. */
SPECRT_API specrt_status specrt_generate(specrt_session *session, const specrt_host *host,
                                         const int32_t *prompt, int64_t n,
                                         specrt_generation *generation, specrt_error *err);

// >>many
// Several sequences at once on a CPU: what they share is read once.

/* ---- a stock: packed rows that many sequences hold ----------------------------------------------------
 * What windows and caches of several sequences hold is largely the same. A stock packs a row once, however
 * many of its sessions hold it, and lets it go with the last; specrt_session_expand_batch() multiplies a row
 * that enough of a batch hold for all of the batch's states at once, where that is cheaper than for each
 * holder. Drafts are bit for bit those of sessions with rows of their own.
 *
 * A stock and all of its sessions are one thread's at a time, together. */

typedef struct specrt_stock_params { /* zero-initialise it */
    /* Packed rows at most. Sessions are created while the rows that they may hold together, each as many as
     * its policy packs at most, are not more; 0: as many as the head has, which are always enough */
    int32_t n_rows;
    /* f64 [n_costs] what a row's product with 1, 2... states takes, in any unit, copied; beyond the last in
     * proportion; at most 64. NULL: each state beyond the first takes a third of it */
    const double *costs;
    int32_t n_costs;
} specrt_stock_params;

/* specrt_stock_create() : memory for so many rows, of which those never held are never touched.
 *   head   : borrowed for the stock's life; rows are packed as sessions do, copied or decoded to f16
 *   params, env : NULL: all defaults (env: the head's)
 * @return OK, NO_MEMORY naming the rows, BAD_ARG naming the field. */
SPECRT_API specrt_status specrt_stock_create(const specrt_head *head,
                                             const specrt_stock_params *params,
                                             const specrt_desc *env, specrt_stock **out,
                                             specrt_error *err);

/* specrt_stock_close() : after its sessions. */
SPECRT_API void specrt_stock_close(specrt_stock *stock);

typedef struct specrt_stock_stats {
    int32_t n_rows;     /* that it has room for */
    int32_t n_held;     /* now, each once */
    int32_t n_sessions; /* now */
    int32_t n_shared;   /* multiplied for all of the last batch that had any */
    int64_t n_holds;    /* now, once for each session that holds it */
    int64_t n_packed;   /* read from the head, since create */
} specrt_stock_stats;

SPECRT_API void specrt_stock_get_stats(const specrt_stock *stock, specrt_stock_stats *out);

/* specrt_session_expand_batch() : specrt_session_expand() for several sequences at once, each at a level of
 * its own. The rows that all have in every cycle (full, static) are read once for the batch, not once a
 * session, and so are those that many hold of one stock (specrt_session_params.stock); those of its own
 * (window and retrieve without a stock, routed ones) each session scores by itself. Bit for bit what expand
 * gives to them one after another.
 *   sessions : [n] distinct, of one policy; 1 to SPECRT_SESSION_MAX_BATCH
 *   draft_hidden : f32 [n_hidden, n_cols] what the pass produced: the rows of sessions[0], then of
 *   sessions[1] and so
 *              on, each as many as its expand would take
 *   draft_input : f32 [n_hidden, n_cols], or NULL, as for expand
 *   n_hidden : the sum of those rows
 *   beams    : [n] the rows of the next passes; n = 0: go on with that session's finish
 * Statistics count the shared rows for each of them. @return OK, or BAD_ARG before any tree has grown. */
#define SPECRT_SESSION_MAX_BATCH 1024
SPECRT_API specrt_status specrt_session_expand_batch(specrt_session *const *sessions, int32_t n,
                                                     const float *draft_hidden,
                                                     const float *draft_input, int32_t n_hidden,
                                                     specrt_beam *beams);

// >>saved
// A session as bytes: a conversation that moves to another process or machine, or waits for its next turn
// without a session.

/* specrt_session_save() : all that drafts follow from, as bytes (docs/FORMAT.md): window, cache and its
 * ghosts, the order of packed rows, the number that keys the draws, the position. A session that loads them
 * drafts what this one would, on another machine too. Left out are a tree that is being drafted (the cycle
 * begins again), the statistics, and auto_draft, which is the application's.
 *   bytes, capacity : where to write; capacity 0: nothing is written
 *   n_bytes : those written; of capacity 0 the most that any save of this session takes, now and later
 * In the middle of a prompt it packs what was learnt so far. Waits for a task that is out.
 * @return OK; BAD_ARG where the capacity does not hold it, *n_bytes says what would, and between expand and
 * observe. Never allocates. */
SPECRT_API specrt_status specrt_session_save(specrt_session *session, void *bytes, size_t capacity,
                                             size_t *n_bytes);

/* specrt_session_load() : in place of begin, go on where a session of the same policy was saved; with
 * BEGIN_TURN before the next prompt, if that comes next. Trees and sampling are this session's own. Two
 * sessions that go on from the same bytes draw by the same numbers: specrt_session_set_sequence() gives one
 * another.
 *   bytes : u8 [n] of any origin, checked; not kept
 * @return OK; SESSION_MAGIC, SESSION_VERSION; SESSION_DAMAGED naming what is wrong; SESSION_MISMATCH naming
 * both sides, for another policy, vocabulary or list. Then the session is as after begin. Never allocates. */
SPECRT_API specrt_status specrt_session_load(specrt_session *session, const void *bytes, size_t n,
                                             specrt_error *err);

#ifdef __cplusplus
}
#endif

#endif
