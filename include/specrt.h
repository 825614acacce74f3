/* generated from src/ by `make single-header`; edit there */
/* specrt.h : vocabulary-pruned speculative decoding, a runtime in one header (MIT).
 *
 * In speculative decoding a drafter proposes tokens and the target model verifies them with its full
 * vocabulary, so a drafter may score only a few thousand rows of its LM head. specrt chooses these rows at
 * every draft step, computes their logits, builds the draft tree, verifies it, and learns from the outcome.
 *
 * FUNCTIONS, by task (prefix specrt_):
 *     open a bundle          bundle_open, bundle_open_memory, bundle_check_tokenizer, bundle_close
 *     bind the LM head       head_bind, head_check_states, head_close
 *     choose a policy        policy_check, policy_create, policy_get_info, policy_ends, policy_close
 *     score and rank rows    shortlist_logits, shortlist_topk, logits_topk
 *     generate text          generate; or one cycle per call: host_begin, host_cycle
 *     run your own loop      session_create, _begin, _prefill, _first, _get_beam, _expand, _finish, _accept,
 *                            _get_stats, _last_error, _close
 *     with steps of your own session_draw, _start, _shortlist, _route, _member, _verify, _observe,
 *                            _observe_chain
 *     draft blocks           session_draft_block, session_block_topk: specrt_block.h
 *     serve many sequences   stock_create, stock_get_stats, stock_close, session_expand_batch
 *     save a conversation    session_save, session_load
 *     learn beside decoding  worker_create, _submit, _close
 *     choose draft lengths   auto_create, _begin, _unread, _choose, _should_continue, _observe, _set_costs,
 *                            _skip, _get_stats, _close
 *     use parts alone        tree_create, _get_params, _begin, _expand, _finish, _close; verifier_create,
 *                            _set_generation, _draw, _propose, _close; verify_tree, verify_chain
 *     name things            version, status_name
 * On a GPU: specrt_cuda.h. To build, inspect, record or train: specrt_tools.h. Methods and papers:
 * docs/methods/. Policies: docs/policy-text.md. Words: docs/concepts.md. Files: docs/FORMAT.md.
 *
 * USE. In exactly one source file, define SPECRT_IMPLEMENTATION before the include; link with -lzstd -lm.
 * README.md has a whole decode loop, examples/ has programs, and >>decoding has the order of calls.
 *
 * OPTIONS, defined before the include:
 *     SPECRT_STATIC    all functions are static to the including file
 *     SPECRT_NO_ZSTD   no libzstd; bundles must be uncompressed (specrt-bundle unpack)
 *     SPECRT_NO_SIMD   scalar code only
 *     SPECRT_NO_FILES  no files: paths are refused, bundles are opened from memory
 *     SPECRT_WORKER    declares specrt_worker, a thread for background tasks (needs pthreads)
 *     SPECRT_SMALL     only policies of full, static and window, in three fifths of the size
 *     SPECRT_TOOLS     all of specrt_tools.h: also traces, alignment and construction of indexes
 *
 * CONVENTIONS. They hold unless a comment says otherwise.
 *     Memory     "borrowed": the caller owns it and keeps it alive for the stated time. "owned": the object
 *                frees it. "scratch": the caller owns it; its contents are undefined after the call. Only
 *                open, bind and create allocate, through specrt_env.alloc; libzstd allocates its own.
 *     Closing    close accepts NULL. Close an object before the objects that it borrows.
 *     Arrays     f32 [n, m]: n rows of m floats, without gaps. Pointer arguments are borrowed for the call.
 *     Arguments  n: rows of an array. out: receives the result. desc: copied. params: copied; NULL: all
 *                defaults. env: copied; NULL: all defaults, or those of the head. token: target id. host: the
 *                models. Other pointers may be NULL only where a comment says so, or the array is empty.
 *     Errors     Every status function may return OK and BAD_ARG. A failed call changes nothing else, sets
 *                *out to zeros and writes one line to err, which may be NULL. For a NULL argument, a function
 *                without a status returns NULL, 0 or -1. Calls on a session have no err: the line is in
 *                specrt_session_last_error(). They return BAD_ORDER when they do not come in order, and
 *                BAD_INPUT for logits with a NaN, or with none above -inf.
 *     Threads    Bundles, heads and policies are immutable and shareable. One thread at a time may use a
 *                session, or a stock with all its sessions. There are no global variables.
 *     Limits     The library does not tokenise, run models, write bundles, print, exit or abort. */
/* The implementation maps files. Strict C hides mmap() unless this macro precedes the first system header. */
#if defined(SPECRT_IMPLEMENTATION) && defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) &&     \
    !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#ifndef SPECRT_H
#define SPECRT_H
/* Sections: api decoding many saved | specrt_block.h: block | specrt_tools.h: tools | specrt_cuda.h: cuda. */

// >>api
// Bundles, heads and products. Files are little-endian, and so must the machine be.

#include <stddef.h>
#include <stdint.h>

#define SPECRT_VERSION_MAJOR  1
#define SPECRT_VERSION_MINOR  0
#define SPECRT_VERSION_PATCH  0
#define SPECRT_VERSION_STRING "1.0.0-rc1"
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

/* specrt_version() : SPECRT_VERSION of the linked library. It fits this header if the major numbers are
 * equal; while these are 0, if the minor numbers are equal too. */
SPECRT_API int32_t specrt_version(void);

/* ---- status and errors ---- */

/* X(name, number, text): makes the enum and specrt_status_name(). Numbers come in blocks, one per subject. */
#define SPECRT_STATUS_LIST(X)                                                                      \
    X(OK, 0, "ok")                                                                                 \
    X(NO_MEMORY, 1, "out of memory")                                                               \
    X(IO, 2, "input/output error")                                                                 \
    X(BAD_ARG, 3, "bad argument")                                                                  \
    X(UNSUPPORTED, 4, "unsupported")                                                               \
    X(BAD_INPUT, 5, "invalid input")                                                               \
    X(HOST, 6, "the application's models failed")                                                  \
    X(BAD_ORDER, 7, "call in the wrong order")                                                     \
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
    X(DEVICE_ARCH, 62, "the library has no code for the device's architecture")                    \
    X(CAPTURE, 63, "CUDA graph must contain observe() and the expand() that follows it")

/* Result of a call that can fail. */
typedef enum specrt_status {
#define SPECRT_STATUS_ENUM(name, number, text) SPECRT_STATUS_##name = number,
    SPECRT_STATUS_LIST(SPECRT_STATUS_ENUM)
#undef SPECRT_STATUS_ENUM
        SPECRT_STATUS_FORCE_INT = 0x7fffffff
} specrt_status;

/* What failed, for a person to read. */
typedef struct specrt_error {
    specrt_status status; /* as the call returns it */
    char msg[512]; /* one line: file or object, field, expected, found, fix; NUL-terminated */
} specrt_error;

/* specrt_status_name() : Static text for a status, never NULL.
 *   status : any number */
SPECRT_API const char *specrt_status_name(specrt_status status);

/* ---- environment ---- */

#define SPECRT_LOG_INFO 2 /* level of a log line */
/* Callbacks of the application. Zero-initialise it. */
typedef struct specrt_env {
    void *(*alloc)(void *user, size_t bytes); /* aligned to 16 bytes; NULL: malloc */
    void (*free)(void *user, void *ptr);      /* NULL: free */
    void *user;                               /* first argument of all these callbacks */
    /* One line of information during open, bind, create or a CUDA session's expand; NULL: silent */
    void (*log)(void *user, int level, const char *section, const char *msg);
    /* Runs task(arg, i) for i in [0, n) in any order and returns when all are done; NULL: on this thread */
    void (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
} specrt_env;

/* ---- formats of weight rows ---- */

/* X(name, number, elements of a block, bytes of a block, text). Numbers equal ggml's tensor types. */
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
    X(IQ4_NL, 20, 32, 18, "iq4_nl")                                                                \
    X(I32, 26, 1, 4, "i32")                                                                        \
    X(I64, 27, 1, 8, "i64")                                                                        \
    X(BF16, 30, 1, 2, "bf16")

/* Type of a tensor's elements; a GGUF tensor type is a specrt_dtype. */
typedef enum specrt_dtype {
#define SPECRT_DTYPE_ENUM(name, number, elems, bytes, text) SPECRT_DTYPE_##name = number,
    SPECRT_DTYPE_LIST(SPECRT_DTYPE_ENUM)
#undef SPECRT_DTYPE_ENUM
        SPECRT_DTYPE_FORCE_INT = 0x7fffffff
} specrt_dtype;

/* ---- bundles: files of offline artifacts (docs/FORMAT.md) ---- */

#define SPECRT_MAX_VOCAB 16777216           /* most tokens of a vocabulary */
typedef struct specrt_bundle specrt_bundle; /* an open bundle */
/* specrt_bundle_open() : Maps a file, checks its header, table and checksums, and decompresses zstd sections.
 *   path : file name
 * @return OK, IO, NO_MEMORY, BUNDLE_*. */
SPECRT_API specrt_status specrt_bundle_open(const char *path, const specrt_env *env,
                                            specrt_bundle **out, specrt_error *err);

/* specrt_bundle_open_memory() : Opens a bundle that is in memory.
 *   bytes : u8 [n_bytes], the whole bundle, borrowed for its life, aligned to 16
 *   name : copied; replaces the path in messages
 * @return OK, NO_MEMORY, BUNDLE_*. */
SPECRT_API specrt_status specrt_bundle_open_memory(const void *bytes, size_t n_bytes,
                                                   const char *name, const specrt_env *env,
                                                   specrt_bundle **out, specrt_error *err);
SPECRT_API void specrt_bundle_close(specrt_bundle *bundle);

/* specrt_bundle_check_tokenizer() : Refuses a bundle that was built for another tokenizer.
 *   sha256 : the application's digest (specrt_tokenizer_hash_token())
 * @return OK, also when the bundle records no tokenizer; BUNDLE_MISMATCH with both digests. */
SPECRT_API specrt_status specrt_bundle_check_tokenizer(const specrt_bundle *bundle,
                                                       const uint8_t sha256[32], specrt_error *err);

/* ---- heads: the matrix that turns hidden states into logits ---- */

typedef struct specrt_head specrt_head;       /* a bound LM head */
typedef struct specrt_compute specrt_compute; /* how products run; owned by the head */

/* A matrix of one row per token. The logit of a row is logit_scale x with x = row . hidden + bias, then
 * softcap tanh(logit / softcap). Without both, a logit is x and costs nothing more. */
typedef struct specrt_head_desc {
    const void *rows;   /* [n_rows, n_cols] of dtype, borrowed for the life of the head */
    specrt_dtype dtype; /* packed rows keep f32, f16, bf16, q8_0; others are decoded to f16 */
    int64_t n_rows;     /* at least the tokenizer's vocabulary; padding rows are never proposed */
    int64_t n_cols;     /* width of the drafter's hidden states */
    size_t row_stride;  /* bytes between rows; 0: specrt_row_bytes(dtype, n_cols) */
    const float *bias;  /* f32 [n_rows], borrowed for the life of the head; NULL: none */
    /* i32 [n_rows] distinct target ids of the rows, borrowed for the life of the head (EAGLE-3's d2t in
     * absolute form); NULL: row numbers. A token without a row is never proposed. */
    const int32_t *ids;
    float logit_scale; /* Cohere's logit_scale; 1 / logits_scaling of Granite; 0: 1 */
    float softcap;     /* Gemma 2's final_logit_softcapping; 0: none */
    const struct specrt_markov_desc *markov; /* added to logits, copied (>>block); NULL: none */
} specrt_head_desc;

#define SPECRT_HEAD_MAX_RMS 0.02 /* most error of check_states; 8-bit states have 0.012 */
/* specrt_head_check_states() : Checks that an engine's hidden states give its logits. It detects states of
 * another layer, rows of another file, and another scale or cap.
 *   hidden : f32 [n, n_cols] states
 *   logits : f32 [n, n_logits] of the engine, by target id
 *   n_logits : columns; ids at or above are not compared
 *   relative_rms : receives the root of sum (logit - ours)^2 / sum logit^2 over all n; NULL: not wanted
 * @return OK; BAD_INPUT: relative_rms above SPECRT_HEAD_MAX_RMS, or another best token beyond rounding. */
SPECRT_API specrt_status specrt_head_check_states(const specrt_head_desc *desc, const float *hidden,
                                                  int32_t n, const float *logits, int32_t n_logits,
                                                  double *relative_rms, specrt_error *err);

/* specrt_head_bind() : Checks a head against a bundle and chooses the kernels for this CPU.
 *   bundle : compared by size and digest; NULL: no check. Rows with ids may be another head than the recorded
 *       one, unless a section depends on the head
 *   desc : copied; its arrays are borrowed for the life of the head
 *   env : copied; policies and sessions of this head use it
 * @return OK, NO_MEMORY, UNSUPPORTED dtype, BUNDLE_MISMATCH with both sides. */
SPECRT_API specrt_status specrt_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc,
                                          const specrt_env *env, specrt_head **out,
                                          specrt_error *err);
SPECRT_API void specrt_head_close(specrt_head *head);

/* ---- shortlists: the rows that are scored ---- */

/* Rows that are contiguous in memory, or listed by place. */
typedef struct specrt_segment {
    const void *rows;   /* [n_rows, n_cols] of dtype */
    size_t row_stride;  /* bytes between rows */
    const int32_t *ids; /* i32 [n_rows] target id of each row */
    const float *bias;  /* f32 [n_rows]; NULL: none */
    specrt_dtype dtype; /* any float format; f32, f16, bf16, q8_0 are fastest for many states */
    int32_t n_rows;     /* columns of the logits that this segment fills */
    /* i32 [n_masked] distinct rows whose logits are -inf: rows of an earlier segment, or never proposed */
    const int32_t *masked;
    int32_t n_masked;      /* number of masked rows */
    const int32_t *places; /* i32 [n_rows] row i is row places[i] of rows and bias; NULL: row i */
    uint64_t scored_by;    /* bit h: hidden state h scores it, others get -inf; 0: all do */
} specrt_segment;

/* The tokens that the drafter may propose now, each once. Logit column i is row i, segments in order. */
typedef struct specrt_shortlist {
    const specrt_compute *compute;  /* how products run */
    const specrt_segment *segments; /* [n_segments] */
    int32_t n_segments;             /* number of segments */
    int32_t n_rows;                 /* sum over segments: columns of the logits */
    int64_t n_cols;                 /* width of hidden states */
    const specrt_head *head;        /* for logit_scale and softcap; NULL: neither */
} specrt_shortlist;

/* specrt_shortlist_logits() : Computes all logits, each independent of n, on 64 KB of stack.
 *   hidden : f32 [n, n_cols]
 *   logits : f32 [n, shortlist->n_rows], written; -inf where masked */
SPECRT_API specrt_status specrt_shortlist_logits(const specrt_shortlist *shortlist,
                                                 const float *hidden, int32_t n, float *logits);

/* specrt_shortlist_topk() : The k best tokens of each hidden state. Ties go to the lower id; NaN ranks last.
 *   logits : f32 [n, shortlist->n_rows], from specrt_shortlist_logits()
 *   k : 1 to min(shortlist->n_rows, 256)
 *   ids : i32 [n, k], written: target ids, best first
 *   logprobs : f32 [n, k], written: log of the softmax over the shortlist; -inf where masked or NaN */
SPECRT_API specrt_status specrt_shortlist_topk(const specrt_shortlist *shortlist,
                                               const float *logits, int32_t n, int32_t k,
                                               int32_t *ids, float *logprobs);

#define SPECRT_LOGITS_MAX_K 16 /* most tokens of specrt_logits_topk() */
/* specrt_logits_topk() : The k best tokens of one row of logits, without -inf and NaN; ties: the lower id.
 *   logits : f32 [n] of the target
 *   k : 0 to SPECRT_LOGITS_MAX_K
 *   ids : i32 [k], written, best first
 * @return how many tokens were written. */
SPECRT_API int32_t specrt_logits_topk(const float *logits, int32_t n, int32_t k, int32_t *ids);

// >>decoding

/* ---- policies: which tokens the drafter may propose (docs/policy-text.md) ----
 *     policy := source ('+' source)*      source := name[:size][@key=value]...
 *
 *     full                         every token
 *     static:N                     the N most frequent tokens, by the bundle or by ids; N/M/... by tree level
 *     window:W                     MicroSpec: tokens that the target recently emitted or ranked high
 *     retrieve:B                   EvoSpec: tokens near those that the list lacked
 *     successor:K                  the K likeliest successors of the tokens being extended
 *     cluster:K group:K centroid:K DynaSpec, CORAL, centroids: the rows of K clusters that a router chooses
 *     sketch:M                     the M best rows by a low-rank copy of the head
 *
 * A sum scores each token once. Terminators are always included if the head has rows for them. Presets:
 * frspec, vocabtrim, microspec, evospec, dynaspec, coral (NAME-paper: as published), hybrid (specrt's). */

#define SPECRT_MAX_TERMINATORS 64           /* most tokens that end a generation */
typedef struct specrt_policy specrt_policy; /* a policy bound to a bundle and a head */

/* What to create. Zero-initialise it. */
typedef struct specrt_policy_desc {
    const char *text;      /* the policy, copied; required */
    int32_t n_vocab;       /* tokens are in [0, n_vocab); 0: from the bundle, else from the head */
    int32_t n_terminators; /* tokens that end a generation, in addition to the bundle's */
    const int32_t *terminators; /* i32 [n_terminators], copied */
    /* i32 [n_ids] distinct target ids, most frequent first, copied: the list of `static`, in place of the
     * bundle's. Tokens without a row in a head with ids are skipped. NULL: the bundle's list */
    const int32_t *ids;
    int32_t n_ids; /* also the size of `static` without N */
    /* [n_vocab, n_embed] the embedding that DynaSpec's router reads, copied; its rows are borrowed for the
     * policy's life. NULL: no source needs it */
    const specrt_head_desc *embedding;
    /* The target's head, row i for token i, borrowed for the policy's life; retrieve@sem=hnsw_h and hnsw_w
     * search it. NULL: the drafter's head, if the index was built from it */
    const specrt_head *target;
} specrt_policy_desc;

/* specrt_policy_check() : Checks a policy's text before anything is loaded.
 * @return OK; BAD_ARG with the position, what was expected there and what was found. */
SPECRT_API specrt_status specrt_policy_check(const char *text, specrt_error *err);

/* specrt_policy_create() : Creates what all sessions of a policy share, and packs its fixed rows.
 *   bundle : borrowed for the policy's life; NULL: no source needs one
 *   head : borrowed for the policy's life; sketch, cluster, group and centroid must have been built from it
 * @return OK, NO_MEMORY, UNSUPPORTED, BUNDLE_CONTENT; BUNDLE_SECTION_MISSING with the tool that builds the
 * section; BUNDLE_MISMATCH with both sides. The message begins with the policy's text. */
SPECRT_API specrt_status specrt_policy_create(const specrt_bundle *bundle, const specrt_head *head,
                                              const specrt_policy_desc *desc, specrt_policy **out,
                                              specrt_error *err);
SPECRT_API void specrt_policy_close(specrt_policy *policy);

/* Facts about a policy, borrowed for its life. From is_full on: 1: yes, 0: no. */
typedef struct specrt_policy_info {
    const char *text;     /* canonical form: sizes filled in, defaults omitted */
    int32_t bound;        /* most rows that any session scores in one draft step */
    int32_t hidden_width; /* columns of specrt_target_rows.hidden that a source reads; 0: none */
    const specrt_shortlist *shortlist; /* of all steps (full, static); NULL: ask a session */
    const int32_t *static_ids; /* i32 [n_static] target ids of the rows of `static`, by frequency */
    int32_t n_static;          /* 0: no source static, or one with sizes by level */
    int32_t is_full;           /* source full: all rows, in place */
    int32_t learns;            /* rows follow the text (window, retrieve) */
    int32_t keeps;             /* what a source learned outlives SPECRT_BEGIN_NEW (keep=on) */
    int32_t by_level;          /* rows differ by tree level: call expand or route at each */
    int32_t by_path;           /* rows follow the drafted tokens (successor, sketch, clusters) */
    int32_t by_states;         /* rows follow the drafter's hidden states (sketch, clusters) */
    int32_t needs_prompt_logits; /* a source reads the target's logits of the prompt */
    int32_t needs_tree_rows;     /* a source reads the target's results at rejected nodes */
    int32_t needs_draft_input;   /* a source reads draft_input (DynaSpec's router) */
    int32_t needs_submit;        /* sessions need params.submit (mode=async) */
    int32_t n_packed;            /* most rows that a session packs, and a stock reserves for it */
} specrt_policy_info;

/* specrt_policy_get_info() : NULL for NULL. */
SPECRT_API const specrt_policy_info *specrt_policy_get_info(const specrt_policy *policy);

/* specrt_policy_ends() : 1 if a token is a terminator of the bundle or the desc, else 0. */
SPECRT_API int specrt_policy_ends(const specrt_policy *policy, int32_t token);

/* ---- draft trees: chains and EAGLE-2's dynamic trees (Li et al. 2024, arXiv 2406.16858, section 4) ----
 * A level is one drafter pass. expand() receives the best tokens of every row of a level and returns the beam
 * of the next one; finish() selects the best nodes of all levels. A chain is a tree with topk = 1. */

#define SPECRT_TREE_MAX_NODES 64 /* most nodes of a finished tree, the bits of an ancestor mask */
#define SPECRT_TREE_MAX_STEPS 32 /* most levels */
#define SPECRT_TREE_MAX_TOPK  64 /* widest beam */

/* Shape of a tree. 0 selects EAGLE-2's value. */
typedef struct specrt_tree_params {
    int32_t num_steps;        /* levels, that is drafter passes: 6 (EAGLE-2's depth + 1) */
    int32_t topk;             /* tokens that a row proposes, and the width of the beam: 10 */
    int32_t num_draft_tokens; /* nodes to verify, root included: 60 */
} specrt_tree_params;

/* Rows of the next drafter pass, best first. */
typedef struct specrt_beam {
    int32_t n;              /* rows */
    const int32_t *tokens;  /* i32 [n] target ids, inputs of the pass */
    const int32_t *parents; /* i32 [n] rows of the previous pass, for states; first level: 0 */
    const float *logprobs;  /* f32 [n] natural log of the path's probability */
} specrt_beam;

/* A tree to verify. Parents precede children. Node 0 is the root: the last emitted token, yet to be read. */
typedef struct specrt_draft {
    int32_t n;              /* nodes */
    const int32_t *tokens;  /* i32 [n] target ids */
    const int32_t *parents; /* i32 [n] nodes; root: -1 */
    const int32_t *depths;  /* i32 [n] distance from the root: position = the root's + depth */
    const uint64_t *masks;  /* u64 [n] bit j: node j is this node or an ancestor */
    const float *logprobs;  /* f32 [n] natural log of the path's probability; root: 0 */
    /* i32 [n] the beam row of the node in pass depths[i]; -1: no pass read the node. NULL: unknown */
    const int32_t *beam_rows;
    int64_t cycle; /* a number that the session checks; 0: a tree of your own */
} specrt_draft;

typedef struct specrt_tree specrt_tree; /* a tree of one sequence, and memory for its results */
/* specrt_tree_create() : Allocates a tree.
 * @return OK, NO_MEMORY, BAD_ARG with the limit. */
SPECRT_API specrt_status specrt_tree_create(const specrt_tree_params *params, const specrt_env *env,
                                            specrt_tree **out, specrt_error *err);
SPECRT_API void specrt_tree_close(specrt_tree *tree);

/* specrt_tree_get_params() : The shape with defaults filled in, borrowed for the tree's life. */
SPECRT_API const specrt_tree_params *specrt_tree_get_params(const specrt_tree *tree);

/* specrt_tree_begin() : Starts a tree. Its first pass has one row.
 *   root : target id */
SPECRT_API void specrt_tree_begin(specrt_tree *tree, int32_t root);

/* specrt_tree_expand() : Adds the proposals of one pass.
 *   ids, logprobs : i32, f32 [n, k] from specrt_shortlist_topk(), best first
 *   n : 1 at the first level, then the beam's n
 *   k : 0 to topk
 *   beam : the next pass, borrowed until the next call; n = 0: continue with finish */
SPECRT_API specrt_status specrt_tree_expand(specrt_tree *tree, const int32_t *ids,
                                            const float *logprobs, int32_t n, int32_t k,
                                            specrt_beam *beam);

/* specrt_tree_finish() : Selects the num_draft_tokens most probable nodes. Ties go to the earlier proposal.
 *   draft : the tree, borrowed until the next begin */
SPECRT_API void specrt_tree_finish(specrt_tree *tree, specrt_draft *draft);

/* ---- lossless verification ---- */

/* How the target samples; all zeros: greedy. Filters apply one after the other, in the fields' order. */
typedef struct specrt_sampling {
    float temperature; /* 0: greedy, ties go to the lower id */
    int32_t top_k;     /* tokens; 0: off */
    float top_p;       /* probability in (0, 1]; 0: off */
    float min_p;       /* share of the best token's probability, in [0, 1); 0: off */
    /* The key of every draw is these three numbers, and the position (or cycle and level). Two generations
     * with the same three numbers draw the same random numbers: equal prompts get equal texts. */
    uint64_t seed;
    uint64_t session;    /* number of the session, 1 or more; a temperature needs it */
    uint64_t generation; /* number of the generation in its session */
} specrt_sampling;

/* Why a generation ended. */
typedef enum specrt_end {
    SPECRT_END_NONE = 0,       /* it goes on */
    SPECRT_END_TERMINATOR = 1, /* a terminator, which is the last token */
    SPECRT_END_LENGTH = 2,     /* max_tokens */
    SPECRT_END_CONTEXT = 3,    /* the context is full */
    SPECRT_END_STOPPED = 4     /* the application stopped it */
} specrt_end;

/* What a cycle emits. */
typedef struct specrt_verdict {
    int32_t n; /* accepted drafts, then the target's own token; at least 1 */
    int32_t tokens[SPECRT_TREE_MAX_NODES]; /* [n] target ids */
    int32_t nodes[SPECRT_TREE_MAX_NODES];  /* [n] to keep in caches: root, accepted nodes */
    specrt_end end; /* whether the generation ends here; NONE after specrt_session_verify() */
    int64_t cycle;  /* a number that the session checks; 0: you decided */
} specrt_verdict;

typedef struct specrt_verifier specrt_verifier; /* memory of verification for one sequence */
/* specrt_verifier_create() : Creates a verifier.
 *   n_logits : columns of the target's logits
 *   n_vocab : tokens are in [0, n_vocab), n_vocab <= n_logits. The other columns are padding, never emitted
 *   sampling : copied; NULL: greedy
 * @return OK, NO_MEMORY, BAD_ARG with the field. */
SPECRT_API specrt_status specrt_verifier_create(int32_t n_logits, int32_t n_vocab,
                                                const specrt_sampling *sampling,
                                                const specrt_env *env, specrt_verifier **out,
                                                specrt_error *err);
SPECRT_API void specrt_verifier_close(specrt_verifier *verifier);

/* specrt_verifier_set_generation() : Sets a number of the key of later draws.
 *   generation : as in specrt_sampling */
SPECRT_API void specrt_verifier_set_generation(specrt_verifier *verifier, uint64_t generation);

/* specrt_verifier_draw() : The token that plain decoding emits at a position.
 *   logits : f32 [n_logits] of the target
 *   position : of the emitted token, counted from 0 at the start of the sequence
 * @return the token; -1 if a logit is NaN, none is above -inf, or an argument is out of range. */
SPECRT_API int32_t specrt_verifier_draw(specrt_verifier *verifier, const float *logits,
                                        int64_t position);

/* specrt_verify_tree() : Draws the target's token at the root and descends to the child that has it, until no
 * child does. Draws depend on logits and keys alone: equal logits give plain decoding's output exactly.
 *   draft : the tree; its tokens and parents are read
 *   logits : f32 [draft->n, n_logits] of the target
 *   position : of the token after the root
 * @return OK; BAD_ARG for a draft that is no tree; BAD_INPUT for logits as in specrt_verifier_draw(). */
SPECRT_API specrt_status specrt_verify_tree(specrt_verifier *verifier, const specrt_draft *draft,
                                            const float *logits, int64_t position,
                                            specrt_verdict *out);

/* The distribution q that a draft token was sampled from. */
typedef struct specrt_draft_distribution {
    int32_t n;          /* tokens */
    const int32_t *ids; /* i32 [n] target ids, borrowed; probabilities of equal ids are added */
    const float *probs; /* f32 [n] borrowed; their sum is 1 */
} specrt_draft_distribution;

/* specrt_verifier_propose() : Samples a draft token from softmax(logits / temperature) over a shortlist.
 *   logits : f32 [n] of the drafter; NaN counts as -inf
 *   temperature : in (0, 100]
 *   cycle, level : keys of the draw; each pair occurs once in a sequence
 *   probs : f32 [n], written: q
 * @return the index of the token in the shortlist; -1 if no logit is above -inf: end the draft. */
SPECRT_API int32_t specrt_verifier_propose(const specrt_verifier *verifier, const float *logits,
                                           int32_t n, float temperature, int64_t cycle,
                                           int32_t level, float *probs);

/* specrt_verify_chain() : Rejection sampling (Leviathan et al. 2023, Algorithm 1). Token x is accepted with
 * probability min(1, p(x) / q(x)); otherwise a token is drawn from norm(max(0, p - q)). The output has the
 * target's distribution, but is not the token stream of plain decoding.
 *   tokens : i32 [n] sampled target ids; n may be 0; node i + 1 of the verdict is tokens[i]
 *   distributions : [n] of each token
 *   logits : f32 [n + 1, n_logits] of the target, the root's first
 *   cycle : key of the draws, as for specrt_verifier_propose()
 * @return OK; BAD_ARG if probabilities do not sum to 1 within 0.001, or a token's is 0; BAD_INPUT. */
SPECRT_API specrt_status specrt_verify_chain(specrt_verifier *verifier, const int32_t *tokens,
                                             const specrt_draft_distribution *distributions,
                                             int32_t n, const float *logits, int64_t cycle,
                                             specrt_verdict *out);

/* ---- auto: the draft length of every cycle (docs/methods/auto.md) ----
 * Chooses how many levels to draft, from which list, or not at all, by measured costs and recent acceptance.
 * Equal cycles and costs give equal choices. See specrt_session_params.auto_draft. Your own loop: begin; each
 * cycle choose, up to choice.num_steps levels (0: none) while should_continue is 1, the target, observe. */

#define SPECRT_AUTO_MAX_LISTS 8 /* most lists */
/* Choices and their costs. */
typedef struct specrt_auto_desc {
    int32_t num_steps; /* most levels of a draft, 1 to SPECRT_TREE_MAX_STEPS */
    int32_t n_lists;   /* 1 to SPECRT_AUTO_MAX_LISTS; each list contains those before it */
    /* i32 [n_lists] leading rows of `static` in each list, ascending, copied. NULL: one list, the whole
     * policy. Only sessions read it */
    const int32_t *rows;
    /* f64 [n_lists, num_steps + 1] cost of a cycle by list and levels, in any one unit, copied: the drafter's
     * passes, the head's products, the target's pass. Column 0: a plain pass of the target */
    const double *costs;
    double read; /* cost per token, after the first, that the drafter reads before its first pass */
    int32_t keeps_chains; /* 1: the drafter need not read an accepted chain again; else 0 */
} specrt_auto_desc;

typedef struct specrt_auto specrt_auto; /* the state of draft lengths: one sequence at a time */
/* specrt_auto_create() : Creates it from desc, which it copies. What it learns stays for later sequences.
 * @return OK, NO_MEMORY, BAD_ARG with the field. */
SPECRT_API specrt_status specrt_auto_create(const specrt_auto_desc *desc, const specrt_env *env,
                                            specrt_auto **out, specrt_error *err);
SPECRT_API void specrt_auto_close(specrt_auto *a);

/* specrt_auto_begin() : Starts a sequence whose prompt the drafter has read. */
SPECRT_API void specrt_auto_begin(specrt_auto *a);
/* specrt_auto_unread() : After begin: the drafter reads n tokens of the prompt when it first drafts.
 *   n_left : tokens of the answer at most, which must repay that; 0: unknown */
SPECRT_API void specrt_auto_unread(specrt_auto *a, int64_t n, int64_t n_left);

/* What to draft in a cycle. */
typedef struct specrt_auto_choice {
    int32_t num_steps; /* most levels; 0: no draft */
    int32_t list;      /* list to draft from */
} specrt_auto_choice;

/* specrt_auto_choose() : The choice for the next cycle. It stays the same until observe. */
SPECRT_API void specrt_auto_choose(specrt_auto *a, specrt_auto_choice *out);

/* specrt_auto_should_continue() : Whether to draft another level.
 *   n : levels drafted in this cycle, at least 1
 *   logprob : natural log of the chain's probability; NaN: a tree, or unknown
 * @return 1 or 0. */
SPECRT_API int specrt_auto_should_continue(specrt_auto *a, int32_t n, float logprob);

/* A finished cycle. Arrays are borrowed for the call. */
typedef struct specrt_auto_cycle {
    int32_t n_passes;      /* levels drafted and verified; 0: none */
    int32_t n_accepted;    /* accepted draft tokens; n_accepted + 1 were emitted */
    const float *logprobs; /* f32 [n_passes] natural log of a chain's probability; NULL: unknown */
    const int32_t *lists; /* i32 [n_accepted + 1] first list with a token; n_lists: none; NULL: 0 */
    /* f32 [n_accepted + 1] natural log of the target's probability of each emitted token at temperature 1,
     * over its vocabulary or its best tokens; NaN: unknown. NULL: all unknown */
    const float *target_logprobs;
} specrt_auto_cycle;

/* specrt_auto_observe() : Learns from a cycle. @return OK; BAD_ARG: counts out of range, nothing learned. */
SPECRT_API specrt_status specrt_auto_observe(specrt_auto *a, const specrt_auto_cycle *cycle);

/* specrt_auto_set_costs() : Replaces costs that were measured again.
 *   costs, read : as in specrt_auto_desc
 * @return as specrt_auto_create(); after an error nothing has changed. */
SPECRT_API specrt_status specrt_auto_set_costs(specrt_auto *a, const double *costs, double read,
                                               specrt_error *err);
/* specrt_auto_skip() : The next choice will be 0 levels, so that a plain cycle can be timed. */
SPECRT_API void specrt_auto_skip(specrt_auto *a);

/* Sums since create. */
typedef struct specrt_auto_stats {
    int64_t n_cycles;  /* observed cycles */
    int64_t n_emitted; /* emitted tokens */
    int64_t n_plain;   /* cycles without a draft */
    int64_t n_probes;  /* drafts although plain decoding was predicted to be faster */
    int64_t n_passes;  /* levels drafted */
    double cost; /* by the table, in plain passes; n_emitted / cost: speed over plain decoding */
} specrt_auto_stats;
SPECRT_API void specrt_auto_get_stats(const specrt_auto *a, specrt_auto_stats *out);

/* ---- sessions: one sequence ----
 *
 *     specrt_session_begin(s, NULL);
 *     for each chunk of the prompt:
 *         specrt_session_prefill(s, tokens, n, &rows);      // the target's results at these positions
 *     specrt_session_first(s, logits, &verdict);            // logits after the last prompt token
 *     while (emit verdict.tokens, verdict.end == SPECRT_END_NONE):
 *         for (specrt_session_get_beam(s, &beam); beam.n > 0;)
 *             draft_hidden = your drafter(beam.tokens, beam.parents)
 *             specrt_session_expand(s, draft_hidden, draft_input, beam.n, &beam)
 *         specrt_session_finish(s, &draft);
 *         rows.logits = your target(draft.tokens, draft.masks, draft.depths)
 *         specrt_session_accept(s, &draft, &rows, &verdict);
 *         keep verdict.nodes in your caches
 *
 * With steps of your own: draw and start for first; verify and observe for accept; route and your own tree
 * for expand; observe_chain for a whole cycle. Sources learn in begin, prefill, first and accept alone. */

typedef struct specrt_session specrt_session; /* one sequence: sources, tree and verifier */
/* A task to run once on another thread. */
typedef struct specrt_task {
    void (*run)(struct specrt_task *task); /* runs it */
    struct specrt_task *next;              /* for a queue that holds the task until it runs */
} specrt_task;

#if defined(SPECRT_WORKER)
typedef struct specrt_worker specrt_worker; /* a thread that runs tasks in their order */
/* specrt_worker_create() : Starts the thread. @return OK, NO_MEMORY. */
SPECRT_API specrt_status specrt_worker_create(const specrt_env *env, specrt_worker **out,
                                              specrt_error *err);

/* specrt_worker_submit() : Queues a task and returns at once; use it as specrt_session_params.submit.
 *   worker : the specrt_worker
 *   task : borrowed until it has run */
SPECRT_API void specrt_worker_submit(void *worker, specrt_task *task);

/* specrt_worker_close() : Runs all queued tasks, then ends the thread. Close its sessions first. */
SPECRT_API void specrt_worker_close(specrt_worker *worker);
#endif

/* How draft tokens are chosen. */
typedef enum specrt_draft_kind {
    SPECRT_DRAFT_TOP_K = 0,  /* the best tokens; verified by specrt_verify_tree() */
    SPECRT_DRAFT_SAMPLED = 1 /* a chain of sampled tokens; verified by specrt_verify_chain() */
} specrt_draft_kind;

typedef struct specrt_stock specrt_stock; /* packed rows that several sessions share; see >>many */
/* What to create. Zero-initialise it. */
typedef struct specrt_session_params {
    specrt_tree_params tree;  /* sampled drafts: topk is 1, num_draft_tokens is num_steps + 1 */
    specrt_sampling sampling; /* of the target */
    int32_t n_logits; /* columns of the target's logits, required; from n_vocab on: padding */
    specrt_draft_kind draft; /* how draft tokens are chosen */
    float draft_temperature; /* of sampled drafts, in (0, 100]; 0: the target's */
    /* Queues a task for another thread and returns at once; mode=async needs it. A session has one task at
     * most and waits for it in begin, save, load, close and in a prefill that fills the cache (prompt=) */
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;       /* first argument of submit */
    specrt_auto *auto_draft; /* chooses draft lengths; borrowed; NULL: always num_steps */
    specrt_stock *stock;     /* holds the packed rows; borrowed; NULL: the session does */
    int32_t n_block;         /* most states of a block, up to num_steps; 0: no blocks */
} specrt_session_params;

/* The target's results at n positions, borrowed for the call. logits and ids both NULL: unknown. */
typedef struct specrt_target_rows {
    const float *logits; /* f32 [n, n_logits]; NULL: see ids */
    const int32_t *ids;  /* i32 [n, k] the best target ids, best first; -1: none */
    int32_t k;           /* columns of ids */
    const float *hidden; /* f32 [n, d_hidden] inputs of the target's head; NULL: unknown */
    int32_t d_hidden;    /* the policy's hidden_width, unless that is 0 */
} specrt_target_rows;

/* Sums since the sequence began. */
typedef struct specrt_session_stats {
    int64_t n_cycles;  /* observed cycles */
    int64_t n_emitted; /* emitted tokens; the accept length is n_emitted / n_cycles */
    int64_t n_covered; /* emitted tokens that the shortlist of their level contained */
    int64_t n_drafted; /* nodes of the trees, roots excluded */
    int64_t n_rows;    /* rows of the shortlists; the mean is n_rows / n_cycles */
    int64_t n_passes;  /* levels drafted */
    int64_t n_bytes;   /* bytes read to draft: scored rows, routers, sketches */
    int64_t n_copied;  /* rows read from the head to be packed */
    int64_t n_events;  /* cycles whose last token the shortlist lacked, if a source retrieves */
    int64_t n_lost;    /* events that were dropped because sixteen cycles waited for the worker */
    int64_t n_by_length[SPECRT_TREE_MAX_NODES + 1]; /* cycles by emitted tokens */
} specrt_session_stats;

/* specrt_session_create() : Creates a session. The other calls never allocate.
 *   policy : borrowed for the session's life
 *   params : n_logits is required
 * @return OK, NO_MEMORY, BAD_ARG with the field: no n_logits, a temperature without a session number, topk
 * above the policy's bound, sampled drafts of a greedy target, mode=async without submit, lists of
 * auto_draft that `static` lacks, or a stock that is full or of another head. */
SPECRT_API specrt_status specrt_session_create(const specrt_policy *policy,
                                               const specrt_session_params *params,
                                               const specrt_env *env, specrt_session **out,
                                               specrt_error *err);
SPECRT_API void specrt_session_close(specrt_session *session);

/* specrt_session_last_error() : The failure of the last call on this session that failed, borrowed until the
 * next. Status OK: none has failed. @return NULL for NULL. */
SPECRT_API const specrt_error *specrt_session_last_error(const specrt_session *session);

/* How a prompt continues what was before. */
typedef enum specrt_begin {
    SPECRT_BEGIN_NEW = 0, /* a new sequence: sources and statistics are reset */
    SPECRT_BEGIN_TURN = 1 /* the next turn of a conversation: both are kept */
} specrt_begin;

/* A prompt and its answer. Zero-initialise it. `position` is the number of tokens in the target's cache. The
 * last token of an answer was emitted but never read, so it leads the next prompt:
 *
 *     tokens     p0 p1 p2 a0 a1 a2      prompt p, answer a
 *     read       p0 p1 p2 a0 a1         position 5
 *     next turn  prefill a2 u0 u1       u: what the user wrote
 *
 * Position 0 repeats the whole conversation. A position between drops the end of the cache. */
typedef struct specrt_request {
    specrt_begin begin; /* a new sequence, or a turn of this one */
    int64_t position; /* of the first token of the prompt; of a turn at most what the target read */
    int64_t max_tokens; /* where first, accept and generate end the answer; 0: no limit */
    const specrt_sampling *sampling; /* copied; NULL: as before, with the next generation number */
} specrt_request;

/* specrt_session_begin() : Begins a prompt, at any time. It ends a cycle that has not been observed.
 *   request : NULL: a new sequence */
SPECRT_API specrt_status specrt_session_begin(specrt_session *session,
                                              const specrt_request *request);

/* specrt_session_prefill() : The next tokens of the prompt.
 *   tokens : i32 [n] target ids
 *   rows : at these n positions; hidden is not read; NULL: not computed (a cached prefix) */
SPECRT_API specrt_status specrt_session_prefill(specrt_session *session, const int32_t *tokens,
                                                int32_t n, const specrt_target_rows *rows);

/* specrt_session_first() : Draws the first token of the answer and roots the first tree in it (draw, start).
 *   logits : f32 [n_logits] of the target, after the last token of the prompt
 *   out : the token, and whether the answer ends with it */
SPECRT_API specrt_status specrt_session_first(specrt_session *session, const float *logits,
                                              specrt_verdict *out);

/* specrt_session_draw() : The token that plain decoding emits next.
 *   logits : f32 [n_logits] of the target
 *   token : receives it */
SPECRT_API specrt_status specrt_session_draw(specrt_session *session, const float *logits,
                                             int32_t *token);

/* specrt_session_start() : Roots the first tree.
 *   token : the first token after the prompt, or the last token that specrt_session_observe_chain() lacked */
SPECRT_API specrt_status specrt_session_start(specrt_session *session, int32_t token);

/* specrt_session_get_beam() : The rows of the next drafter pass. The first pass has the root alone.
 *   beam : borrowed until the next call; n = 0: continue with finish */
SPECRT_API specrt_status specrt_session_get_beam(specrt_session *session, specrt_beam *beam);

/* specrt_session_shortlist() : The tokens that may be proposed, borrowed until the next start or observe.
 * After expand or route it includes the routed rows of that level. */
SPECRT_API const specrt_shortlist *specrt_session_shortlist(const specrt_session *session);

/* specrt_session_route() : The shortlist of a level, for trees of your own. Call it once per level, in order.
 *   level : 0 for the first pass
 *   beam : rows of the pass, at most topk; parents are not read
 *   draft_hidden, draft_input : as for specrt_session_expand()
 * @return borrowed until the next call; NULL for a level or beam out of range or order. */
SPECRT_API const specrt_shortlist *specrt_session_route(specrt_session *session, int32_t level,
                                                        const specrt_beam *beam,
                                                        const float *draft_hidden,
                                                        const float *draft_input);

/* specrt_session_expand() : Scores a drafter pass over the shortlist and adds its best tokens to the tree.
 *   draft_hidden : f32 [n, n_cols] hidden states that the pass produced
 *   draft_input : f32 [n, n_cols] hidden states that the pass read, which DynaSpec routes by; NULL: unknown
 *   n : 1 at the first pass, then the beam's n
 *   beam : rows of the next pass, borrowed until the next call; n = 0: continue with finish */
SPECRT_API specrt_status specrt_session_expand(specrt_session *session, const float *draft_hidden,
                                               const float *draft_input, int32_t n,
                                               specrt_beam *beam);

/* specrt_session_finish() : Ends the draft.
 *   draft : the tree to verify, borrowed until the next start or observe; NULL: you use your own tree */
SPECRT_API specrt_status specrt_session_finish(specrt_session *session, specrt_draft *draft);

/* specrt_session_accept() : Verifies, cuts after a terminator or max_tokens, and learns (verify, observe).
 *   draft : as for specrt_session_verify()
 *   rows : the target's results at the draft->n nodes; logits are required
 *   out : what to emit and to keep in caches, and whether the answer ends there. Then begin comes next */
SPECRT_API specrt_status specrt_session_accept(specrt_session *session, const specrt_draft *draft,
                                               const specrt_target_rows *rows, specrt_verdict *out);

/* specrt_session_verify() : Decides what to emit, by specrt_verify_tree() or, for sampled drafts,
 * specrt_verify_chain(). It may be called again.
 *   draft : from finish, or your own tree, rooted in the last emitted token. A sampled draft must be the
 *       session's; it may be cut, but its length must not depend on the tokens that are cut off
 *   logits : f32 [draft->n, n_logits] of the target
 * @return OK; BAD_ARG for a draft that is no tree, has another root, or tokens that were not sampled. */
SPECRT_API specrt_status specrt_session_verify(specrt_session *session, const specrt_draft *draft,
                                               const float *logits, specrt_verdict *out);

/* Whether a token may be proposed. */
typedef enum specrt_member {
    SPECRT_MEMBER_NO = 0,    /* no */
    SPECRT_MEMBER_FIXED = 1, /* in every cycle: full, static */
    SPECRT_MEMBER_NOW = 2    /* in this cycle, by another source */
} specrt_member;

/* specrt_session_member() : Whether the shortlist of a level contains a token, from finish to observe.
 *   level : 0 for the first pass */
SPECRT_API specrt_member specrt_session_member(const specrt_session *session, int32_t token,
                                               int32_t level);

/* specrt_session_observe() : Learns from a cycle and roots the next tree in its last token. It follows finish
 * or verify.
 *   draft : as verified; without verify, a tree of your own
 *   verdict : as returned, or cut at a terminator or a limit; or what you decided
 *   rows : at the draft->n nodes; NULL: sources learn from the tokens alone
 * @return OK; BAD_ARG for tokens or widths out of range, and for nodes that are no path of the draft. */
SPECRT_API specrt_status specrt_session_observe(specrt_session *session, const specrt_draft *draft,
                                                const specrt_verdict *verdict,
                                                const specrt_target_rows *rows);

/* specrt_session_observe_chain() : Learns from a chain that the application verified, or from plain decoding
 * (n = 1).
 *   tokens : i32 [n] that the target read: the root, which is the last emitted token, then the draft
 *   n : 1 to SPECRT_TREE_MAX_NODES
 *   n_accepted : accepted draft tokens, 0 to n - 1
 *   last : the target's own token after them; -1: not drawn yet. Then call specrt_session_start(last) later;
 *       until then the session keeps the best tokens of rows but not the hidden states
 *   rows : at the n tokens; NULL: sources learn from the tokens alone
 * @return as specrt_session_observe(). */
SPECRT_API specrt_status specrt_session_observe_chain(specrt_session *session,
                                                      const int32_t *tokens, int32_t n,
                                                      int32_t n_accepted, int32_t last,
                                                      const specrt_target_rows *rows);
SPECRT_API void specrt_session_get_stats(const specrt_session *session, specrt_session_stats *out);

/* ---- the whole loop over callbacks ---- */

typedef struct specrt_block specrt_block; /* states of a block drafter: specrt_block.h */
/* The application's models. Results are borrowed until the next callback. Each returns 0; any other value
 * ends the call with HOST, and begin must come next. Sequences may take turns, each with its session and
 * `user`. specrt_session_expand_batch() runs them in one model batch. */
typedef struct specrt_host {
    void *user;        /* first argument of all callbacks */
    int64_t n_context; /* target's cache positions, 2 or more, tree nodes included; 0: no limit */
    int32_t max_batch; /* most prompt tokens of one call; 0: no limit */
    /* The target reads prompt tokens i32 [n], and so does the drafter, as far as it can.
     *   logits : f32 [n, n_logits] if `all`, else [1, n_logits] of the last token */
    int (*target_prefill)(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits);
    /* One drafter pass. At level 0 the beam is the last emitted token; the drafter first reads the tokens
     * emitted since the last draft.
     *   draft_hidden : f32 [beam->n, n_cols] for the head
     *   draft_input : f32 [beam->n, n_cols] that the pass read; NULL: unknown */
    int (*draft_step)(void *user, int32_t level, const specrt_beam *beam,
                      const float **draft_hidden, const float **draft_input);
    /* The target reads the tree; each node attends to its ancestors.
     *   logits : f32 [draft->n, n_logits] */
    int (*target_verify)(void *user, const specrt_draft *draft, const float **logits);
    /* Keeps verdict->nodes in the caches and removes the others. verdict->tokens are emitted.
     * draft->beam_rows says which nodes the drafter has read */
    int (*commit)(void *user, const specrt_draft *draft, const specrt_verdict *verdict);
    /* f32 [draft->n, *width] that the target's head multiplied in the last target_verify. Called before
     * commit if the policy's hidden_width is not 0; else it may be NULL */
    int (*target_hidden)(void *user, const float **hidden, int32_t *width);
    int32_t num_steps; /* most levels of the next draft; 0: the session's. May change every cycle */
    float p_min; /* a draft ends if its best path is less probable; 0: never. May change too */
    int32_t reads_late; /* 1: the drafter reads the prompt in its first pass, if it ever drafts */
    /* One pass of a block drafter behind the root, in place of draft_step. It fills *block, which is zeros.
     *   n : the most positions that are of use */
    int (*draft_block)(void *user, int32_t root, int32_t n, specrt_block *block);
} specrt_host;

/* specrt_host_begin() : Begins a sequence, reads the prompt and draws the first token.
 *   request : as for specrt_session_begin(); target_prefill gets the prompt alone
 *   prompt : i32 [n], n >= 1, from request->position on
 *   out : the first token, and whether the answer ends with it
 * @return OK, HOST, BAD_ARG with the missing callback, the token, or the context size. */
SPECRT_API specrt_status specrt_host_begin(specrt_session *session, const specrt_host *host,
                                           const specrt_request *request, const int32_t *prompt,
                                           int64_t n, specrt_verdict *out);

/* specrt_host_cycle() : One cycle of draft, verify, commit and observe.
 *   out : what is emitted, cut where the answer ends; n = 0 and end CONTEXT: the context is full
 * @return OK, HOST. */
SPECRT_API specrt_status specrt_host_cycle(specrt_session *session, const specrt_host *host,
                                           specrt_verdict *out);

/* Where an answer goes, and what came of it. `each` receives new tokens i32 [n]; any value but 0 stops it. */
typedef struct specrt_generation {
    int (*each)(void *user, const int32_t *tokens, int32_t n); /* NULL: none */
    void *user;                                                /* first argument of each */
    int64_t n_tokens;                                          /* out: number of tokens */
    specrt_end end;                                            /* out: why it ended */
} specrt_generation;

/* specrt_generate() : Answers a prompt.
 *   request, prompt : as for specrt_host_begin()
 *   generation : receives the tokens
 * @return as specrt_host_begin(). */
SPECRT_API specrt_status specrt_generate(specrt_session *session, const specrt_host *host,
                                         const specrt_request *request, const int32_t *prompt,
                                         int64_t n, specrt_generation *generation);

// >>many
/* ---- stocks: packed rows that several sessions share ----
 * Windows and caches of several sequences hold mostly the same rows. A stock packs each row once for all, and
 * specrt_session_expand_batch() multiplies it once. Drafts are bitwise equal to those without a stock. */

/* What to create. Zero-initialise it. */
typedef struct specrt_stock_params {
    int32_t n_rows;      /* capacity in packed rows; 0: the head's rows, always enough */
    const double *costs; /* f64 [n_costs] time of a row by 1, 2... states, copied; NULL: 1, 4/3 */
    int32_t n_costs;     /* at most 64 */
} specrt_stock_params;

/* specrt_stock_create() : Reserves memory. Sessions can join while the rows that they may need fit in n_rows.
 *   head : borrowed for the stock's life
 * @return OK, NO_MEMORY with the rows, BAD_ARG with the field. */
SPECRT_API specrt_status specrt_stock_create(const specrt_head *head,
                                             const specrt_stock_params *params,
                                             const specrt_env *env, specrt_stock **out,
                                             specrt_error *err);
SPECRT_API void specrt_stock_close(specrt_stock *stock);

/* State of a stock. */
typedef struct specrt_stock_stats {
    int32_t n_rows;     /* capacity */
    int32_t n_held;     /* packed rows now */
    int32_t n_sessions; /* sessions now */
    int32_t n_shared;   /* rows of the last batch that were multiplied once for the batch */
    int64_t n_holds;    /* sum over packed rows of the sessions that hold the row */
    int64_t n_packed;   /* rows read from the head since create */
} specrt_stock_stats;
SPECRT_API void specrt_stock_get_stats(const specrt_stock *stock, specrt_stock_stats *out);

#define SPECRT_SESSION_MAX_BATCH 1024 /* most sessions of a batch */
/* specrt_session_expand_batch() : specrt_session_expand() for several sessions, each at its own level,
 * bitwise equal to separate calls. Rows of `full`, `static` and a common stock are read once for the batch.
 *   sessions : [n] distinct, of one policy; n is 1 to SPECRT_SESSION_MAX_BATCH
 *   draft_hidden : f32 [n_hidden, n_cols] rows of sessions[0], then of sessions[1]...
 *   draft_input : f32 [n_hidden, n_cols] as for specrt_session_expand(); NULL: unknown
 *   n_hidden : sum of the sessions' beam rows
 *   beams : [n], written: the next passes, borrowed; n = 0: continue with that session's finish
 * @return OK; a failure comes before any tree has changed, with its text in sessions[0]. */
SPECRT_API specrt_status specrt_session_expand_batch(specrt_session *const *sessions, int32_t n,
                                                     const float *draft_hidden,
                                                     const float *draft_input, int32_t n_hidden,
                                                     specrt_beam *beams);

// >>saved

/* specrt_session_save() : Writes all state that future drafts depend on (docs/FORMAT.md), without statistics,
 * auto_draft and max_tokens. Waits for the session's task.
 *   bytes : u8 [capacity], written; with capacity 0 it may be NULL
 *   capacity : 0: nothing is written, and *n_bytes is the most that any save of this session needs
 *   n_bytes : receives the number of bytes
 * @return OK; BAD_ORDER between expand and observe; BAD_ARG: *n_bytes is above the capacity. */
SPECRT_API specrt_status specrt_session_save(specrt_session *session, void *bytes, size_t capacity,
                                             size_t *n_bytes);

/* specrt_session_load() : Restores a saved session of the same policy, in place of begin. Tree shape and
 * sampling stay this session's; the number of the generation is the saved one.
 *   bytes : u8 [n] of any origin; checked
 * @return OK, SESSION_MAGIC, SESSION_VERSION, SESSION_DAMAGED with the fault, SESSION_MISMATCH with both
 * sides. After a failure the session is as after create. */
SPECRT_API specrt_status specrt_session_load(specrt_session *session, const void *bytes, size_t n);

#ifdef __cplusplus
}
#endif

#endif
/* specrt_block.h : drafts of a drafter that gives the states of several positions in one pass: DFlash (arXiv
 * 2602.06036), DFlash 2, DSpark. The conventions of specrt.h hold, whose single header always has it.
 *
 * FUNCTIONS (prefix specrt_):
 *     draft from a block            session_draft_block; specrt_host.draft_block
 *     make a tree of your own of it session_block_topk
 *     choose how many positions     auto_set_sunk, and specrt_session_params.auto_draft
 *
 * A block takes the place of the passes of a draft: in the loop of >>decoding,
 *
 *     block.hidden = your drafter(root)                     // f32 [n, n_cols], one state for each position
 *     specrt_session_draft_block(s, &block, &draft);        // in place of get_beam, expand and finish
 *
 * verify, observe, accept and all else stay. The session's tree says what is drafted: topk 1 is a chain,
 * taken left to right; sampled drafts are chains whose distributions verification is shown; topk above 1 is a
 * tree over the distributions of the positions, the more probable nodes of which are kept (DDTree). Sessions
 * are created with specrt_session_params.n_block. docs/block-drafters.md has all of it. */
#ifndef SPECRT_BLOCK_H
#define SPECRT_BLOCK_H

// >>block
// Markov heads; drafts from the states of a block.

#ifdef __cplusplus
extern "C" {
#endif

/* ---- blocks: the states of several positions in one pass ---- */

/* A Markov head (DSpark): the logit of token v behind token p grows by to[v] . from[p], after logit_scale and
 * softcap. It belongs to a head (specrt_head_desc.markov) and is multiplied for the rows of the shortlist
 * alone, in every draft of a session: by expand, expand_batch and draft_block. Only rows and row_stride,
 * types and sizes are read of both. */
typedef struct specrt_markov_desc {
    specrt_head_desc from; /* w1 [at least every id of the head, rank]: row i is of target id i */
    specrt_head_desc to;   /* w2 [the head's n_rows, rank]: row i is of row i of the head */
} specrt_markov_desc;

#define SPECRT_BLOCK_MAX_K 256 /* most candidates of a position */

/* Judges the best tokens of a position anew, as the selector of DFlash 2 does.
 *   user : specrt_block.user
 *   position : 0 for the first state
 *   previous : the token before it on the path that is continued; the root at position 0
 *   ids : i32 [k] candidates, best first
 *   logits : f32 [k] their logits, the Markov head's part in them. The function changes them in place; -inf
 *       takes a candidate out
 * @return 0; any other value ends the call with HOST. */
typedef int (*specrt_selector)(void *user, int32_t position, int32_t previous, const int32_t *ids,
                               int32_t k, float *logits);

/* The states of a block, and how a draft is made of them. Zero-initialise it. Its arrays are borrowed. */
struct specrt_block {
    int32_t n;           /* positions, 1 to specrt_session_params.n_block */
    const float *hidden; /* f32 [n, n_cols] for the head; row 0 proposes what follows the root */
    const float *input;  /* f32 [n, n_cols] that the pass read (DynaSpec's router); NULL: unknown */
    /* 0: one union of rows, scored for all positions by one product. `sketch` and clusters choose for each
     * position what it would have alone; `successor` follows the root and the best tokens of positions.
     * 1: a list for each position, routed left to right by the tokens that were chosen before it */
    int32_t by_position;
    /* The draft ends before the first position of less confidence; 0: never. Confidence is
     * sigmoid(confidence . [state; from[previous]] + confidence_bias), and in a tree a path's own; with
     * `confidence` NULL it is the probability of the best path, as of specrt_host.p_min */
    float p_min;
    const float *confidence; /* f32 [n_cols + rank]; rank 0 without a Markov head. NULL: none */
    float confidence_bias;
    specrt_selector select; /* NULL: none */
    void *user;             /* first argument of select */
    int32_t k;              /* candidates that select is shown: topk to SPECRT_BLOCK_MAX_K */
};

/* specrt_session_draft_block() : Makes a draft of a block (the beams, expand and finish of a cycle).
 *   block : as above. With auto_draft, positions beyond the chosen number are not read
 *   draft : the chain or tree to verify, borrowed until the next start or observe; the root alone if the
 *       first position had too little confidence, or auto_draft chose no draft
 * @return OK; BAD_ARG with the field; HOST: select failed, and begin must come next. */
SPECRT_API specrt_status specrt_session_draft_block(specrt_session *session,
                                                    const specrt_block *block, specrt_draft *draft);

/* specrt_auto_set_sunk() : What the pass of a block takes, of the costs that it was created with or was given
 * last. Where a draft ends inside its block, this part is spent: further tokens must be worth the rest of
 * their costs, and the cycle is charged for the whole pass.
 *   sunk : f64 [n_lists, num_steps + 1] as costs of specrt_auto_desc, in the same unit, copied: from 0 to
 *       the cost; column 0 is 0. Zeros: the drafter has no blocks, as after specrt_auto_create()
 * @return OK; BAD_ARG: nothing has changed. */
SPECRT_API specrt_status specrt_auto_set_sunk(specrt_auto *a, const double *sunk,
                                              specrt_error *err);

/* specrt_session_block_topk() : The k best tokens of each position without the logits of all tokens: exact
 * for the rows of the policy's union, which `sketch` searches the head for. It is the only pass of its cycle;
 * a tree of your own may follow, as behind specrt_session_route(). Without the Markov head.
 *   hidden : f32 [n, n_cols]
 *   input : f32 [n, n_cols] as specrt_block.input; NULL: unknown
 *   n : 1 to specrt_session_params.n_block
 *   k : 1 to SPECRT_BLOCK_MAX_K
 *   ids : i32 [n, k], written: target ids, best first; -1 beyond the rows that were scored
 *   logits : f32 [n, k], written; -inf there */
SPECRT_API specrt_status specrt_session_block_topk(specrt_session *session, const float *hidden,
                                                   const float *input, int32_t n, int32_t k,
                                                   int32_t *ids, float *logits);

#ifdef __cplusplus
}
#endif

#endif
/* specrt_tools.h : for programs that build, inspect, record or train. An application needs it only for the
 * digest of its tokenizer and for alignment. The conventions of specrt.h hold. The single header has what is
 * marked (*) where SPECRT_TOOLS is defined.
 *
 * FUNCTIONS, by task (prefix specrt_):
 *     report one line       error_set
 *     hash                  hash64; sha256_init, sha256_update, sha256_final; tokenizer_hash_token
 *     decode rows           dtype_name; row_bytes, row_decode; to_f16
 *     read a bundle         bundle_sections, bundle_data, bundle_ident; sections as views: bundle_ranks,
 *                           bundle_cograph, bundle_clusters, bundle_sketch, bundle_hnsw; cograph_successors
 *     compare, multiply     head_digest, digest_distance; head_compute
 *     search an index       hnsw_search, hnsw_scratch_bytes
 *     build an index (*)    hnsw_nearest, hnsw_scores, hnsw_any_above
 *     write a trace (*)     trace_writer_create, trace_write, trace_writer_close
 *     read a trace (*)      trace_open, _open_memory, _close, _get_info, _check, _skip_hidden, _read, _is_cut
 *     align the drafter (*) align_create, _observe, _acquire, _gradient, _release, _clear, _get_stats, _close
 */
#ifndef SPECRT_TOOLS_H
#define SPECRT_TOOLS_H

// >>tools
// Sections of a bundle, weight rows, hashes, indexes, traces, alignment.

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/* specrt_error_set() : Writes a line to *err, cut at its capacity.
 *   status : to store and return
 *   format : as of printf
 * @return status, so that callers write `return specrt_error_set(err, ...)`. */
SPECRT_API specrt_status
specrt_error_set(specrt_error *err, specrt_status status, const char *format, ...);

/* ---- hashes: of file contents and of vocabularies ---- */

/* specrt_hash64() : XXH64, the checksum of bundle sections and traces.
 *   data : u8 [bytes]
 *   bytes : size
 *   seed : of the hash */
SPECRT_API uint64_t specrt_hash64(const void *data, size_t bytes, uint64_t seed);

/* A SHA-256 (FIPS 180-4) of bytes that come in pieces. */
typedef struct specrt_sha256 {
    uint32_t state[8]; /* of the hash */
    uint64_t n_bytes;  /* hashed so far */
    uint8_t block[64]; /* an incomplete block */
} specrt_sha256;

/* specrt_sha256_init() : Begins a digest.
 *   sha : overwritten */
SPECRT_API void specrt_sha256_init(specrt_sha256 *sha);

/* specrt_sha256_update() : Adds bytes.
 *   sha : the digest
 *   data : u8 [bytes]
 *   bytes : size */
SPECRT_API void specrt_sha256_update(specrt_sha256 *sha, const void *data, size_t bytes);

/* specrt_sha256_final() : Ends a digest.
 *   sha : the digest
 *   digest : u8 [32], written */
SPECRT_API void specrt_sha256_final(specrt_sha256 *sha, uint8_t digest[32]);

/* specrt_tokenizer_hash_token() : Adds one normal token (no special, unknown or padding token) to a
 * tokenizer's digest, in ascending order of ids. All file forms of a tokenizer have the same digest.
 *   sha : the digest
 *   id : the token
 *   bytes : u8 [n] the token's text, with the byte-level alphabet and U+2581 decoded
 *   n : size */
SPECRT_API void specrt_tokenizer_hash_token(specrt_sha256 *sha, int32_t id, const void *bytes,
                                            size_t n);

/* ---- rows ---- */

/* specrt_dtype_name() : Static text such as "q6_k"; NULL for an unknown number.
 *   dtype : any number */
SPECRT_API const char *specrt_dtype_name(specrt_dtype dtype);

/* specrt_row_bytes() : Bytes of a row. 0: an unknown type, an overflow, or n_cols is not a positive multiple
 * of the block.
 *   dtype : of the row
 *   n_cols : elements of the row */
SPECRT_API size_t specrt_row_bytes(specrt_dtype dtype, int64_t n_cols);

/* specrt_row_decode() : Decodes one row of any float format.
 *   dtype : of the row
 *   row : specrt_row_bytes() bytes, any alignment
 *   n_cols : elements of the row
 *   out : f32 [n_cols], written
 * @return OK; UNSUPPORTED for integer and unknown types; BAD_ARG if n_cols is not a multiple of the block. */
SPECRT_API specrt_status specrt_row_decode(specrt_dtype dtype, const void *row, int64_t n_cols,
                                           float *out);

/* specrt_to_f16() : Converts f32 to f16, rounding to nearest even.
 *   x : f32 [n]
 *   out : f16 [n], written */
SPECRT_API void specrt_to_f16(const float *x, int64_t n, uint16_t *out);

/* ---- the bundle file ----
 * docs/FORMAT.md describes every byte. These structs are the only definition of the layout. */

#define SPECRT_BUNDLE_MAGIC         "\x89SPECB\r\n" /* first 8 bytes */
#define SPECRT_BUNDLE_VERSION_MAJOR 1               /* readers refuse others */
#define SPECRT_BUNDLE_VERSION_MINOR 0               /* readers accept all */
#define SPECRT_BUNDLE_ALIGN         64              /* alignment of sections, in bytes */
#define SPECRT_BUNDLE_MAX_SECTIONS  256             /* most sections */

/* The 64 bytes at offset 0. */
typedef struct specrt_bundle_header {
    char magic[8];            /* SPECRT_BUNDLE_MAGIC */
    uint32_t version_major;   /* SPECRT_BUNDLE_VERSION_MAJOR */
    uint32_t version_minor;   /* SPECRT_BUNDLE_VERSION_MINOR */
    uint32_t n_sections;      /* entries of the section table */
    uint32_t flags;           /* 0 */
    uint64_t table_offset;    /* 64 */
    uint64_t file_bytes;      /* size of the file */
    uint64_t table_checksum;  /* XXH64 of the section table */
    uint64_t reserved;        /* 0 */
    uint64_t header_checksum; /* XXH64 of the 56 bytes before it */
} specrt_bundle_header;

/* Flags of a section. A reader ignores an optional section whose tag, version or flags it does not know. */
#define SPECRT_SECTION_ZSTD              1u  /* one zstd frame; otherwise stored raw */
#define SPECRT_SECTION_OPTIONAL          2u  /* readers may ignore it */
#define SPECRT_SECTION_DEPENDS_TOKENIZER 16u /* valid only for the tokenizer of "ident" */
#define SPECRT_SECTION_DEPENDS_HEAD      32u /* valid only for the head of "ident" */
#define SPECRT_SECTION_DEPENDS_DRAFTER   64u /* valid only for the drafter that it was trained with */

/* An entry of the section table: 64 bytes each, sorted by tag, after the header. */
typedef struct specrt_bundle_section {
    char tag[8];           /* "ranks" and so on, padded with NUL */
    uint32_t version;      /* of the section */
    uint32_t flags;        /* SPECRT_SECTION_* */
    uint64_t offset;       /* multiple of SPECRT_BUNDLE_ALIGN */
    uint64_t stored_bytes; /* in the file */
    uint64_t raw_bytes;    /* decompressed */
    uint64_t checksum;     /* XXH64 of the stored bytes */
    uint64_t reserved[2];  /* 0 */
} specrt_bundle_section;

#define SPECRT_DIGEST_ROWS        64 /* sampled head rows */
#define SPECRT_DIGEST_PROJECTIONS 4  /* random projections of each row, by vectors of +1 and -1 */

/* Projections of sampled rows: a comparable digest of a head. */
typedef struct specrt_digest {
    float values[SPECRT_DIGEST_ROWS][SPECRT_DIGEST_PROJECTIONS]; /* by row and projection */
} specrt_digest;

/* Section "ident": what the bundle was built for. Digests identify; names are for people. */
typedef struct specrt_ident {
    uint8_t tokenizer_sha256[32]; /* specrt_tokenizer_hash_token() over normal tokens; 0: unknown */
    int32_t n_vocab;              /* ids that the tokenizer can produce, specials included */
    int32_t n_normal;             /* normal tokens, which the digest covers */
    int32_t head_rows;            /* rows of the head; 0: no head recorded */
    int32_t head_cols;            /* columns of the head; 0: no head recorded */
    specrt_digest head_digest;    /* specrt_head_digest() */
    char tokenizer_name[64];      /* UTF-8, NUL-terminated */
    char head_name[64];           /* UTF-8, NUL-terminated */
} specrt_ident;

/* Section "ranks" (FR-Spec, VocabTrim): distinct ids, of which every prefix of n_forced to n_valid is a draft
 * vocabulary. After the header: u64 counts[n_ranked], i32 ids[n_ranked]. The order is: forced ids
 * (terminators, other specials, requested ids; each group ascending), then by count descending with ties to
 * the lower id, then reserved placeholders. 0 <= n_terminators <= n_forced <= n_default <= n_valid <=
 * n_ranked <= n_vocab; n_default >= 1. */
typedef struct specrt_ranks_header {
    int32_t n_vocab;       /* ids are in [0, n_vocab) */
    int32_t n_ranked;      /* entries; n_vocab if the whole vocabulary was ranked */
    int32_t n_forced;      /* leading entries that every list contains */
    int32_t n_terminators; /* leading forced entries that end a generation */
    int32_t n_valid;       /* leading entries that are not reserved placeholders */
    int32_t n_default;     /* calibrated list size */
    uint64_t n_tokens;     /* counted tokens, terminators excluded */
} specrt_ranks_header;

/* Section "cograph" (EvoSpec's successor graph): which tokens followed a token in a corpus, and how often.
 * After the header: u64 totals[n_vocab], u32 offsets[n_vocab + 1], u32 n_rule[n_vocab], i32 ids[n_edges], f32
 * counts[n_edges]. Token u has the edges [offsets[u], offsets[u + 1]), by count descending with ties to the
 * lower id. The first n_rule[u] edges satisfy the published rule. Counts are exact up to 2^24, then rounded
 * to 24 bits. */
typedef struct specrt_cograph_header {
    int32_t n_vocab;     /* tokens are in [0, n_vocab) */
    int32_t n_sources;   /* tokens with successors */
    uint64_t n_edges;    /* successors of all tokens */
    uint64_t n_tokens;   /* counted tokens */
    uint64_t n_pairs;    /* counted pairs of adjacent tokens of one document */
    int32_t max_degree;  /* most successors kept per token */
    int32_t min_count;   /* least count of a kept successor */
    int32_t rule_degree; /* published rule: most successors per token, */
    int32_t rule_count;  /* their least count, */
    float rule_share;    /* and their least share of the token's pairs */
    uint32_t reserved;   /* 0 */
} specrt_cograph_header;

#define SPECRT_MAX_SKETCH_RANK 4080 /* largest rank */

/* Section "sketch": a low-rank copy of a head (docs/methods/sketch.md). A hidden state h becomes z = basis (h
 * - center), most important dimension first. The row at place v scores, by signs, +1 or -1 in n_signs
 * dimensions, constant_unit * constants[v] + scale_unit * s(scales[v]) * (signs[v] . z); s() has 5 exponent
 * and 3 fraction bits. By its record: constant + scale * ((2 c - 3) . z) with 2-bit c in `rank` dimensions.
 * After the header: basis[rank, n_cols] of basis_dtype, f32 center[n_cols], i32 rows[n_rows], u8
 * scales[n_blocks, 16], i8 constants[n_blocks, 16]; from a multiple of 64 on: u8 signs[n_blocks, n_signs /
 * 32, 16, 4], u8 records[n_rows, n_lines, 64]; of version 4, whose places go by cluster, records of mean rows
 * [n_clusters, n_lines, 64] and u32 starts[n_clusters + 1] in places. */
typedef struct specrt_sketch_header {
    int32_t n_rows;       /* of the head */
    int32_t n_cols;       /* of the head */
    int32_t rank;         /* 256 n_lines - 16 */
    int32_t n_signs;      /* a multiple of 32, at most rank */
    int32_t whitened;     /* 1: the directions fit recorded hidden states; 0: the head alone */
    int32_t basis_dtype;  /* specrt_dtype: F16 or Q8_0 */
    float scale_unit;     /* of scales */
    float constant_unit;  /* of constants */
    int32_t n_clusters;   /* of version 4; else 0 */
    uint32_t reserved[7]; /* 0 */
} specrt_sketch_header;

/* Router of a section of clusters. e: embedding of the pass's input token; g: draft input; h: draft hidden;
 * rms(x) = x / root mean square. */
typedef enum specrt_router_kind {
    SPECRT_ROUTER_NONE,     /* no weights: the section cannot route yet */
    SPECRT_ROUTER_CENTROID, /* w2 h + b2 */
    SPECRT_ROUTER_DYNASPEC, /* w2 silu(w1 [rms(e); rms(g)] + b1) + b2 */
    SPECRT_ROUTER_CORAL     /* w2 (silu(w1 rms(h) + b1) + rms(h)) + b2 */
} specrt_router_kind;

#define SPECRT_MAX_CLUSTERS 16384 /* most clusters */

/* Sections "cluster" (DynaSpec), "group" (CORAL) and "centroid": the rows of a head in clusters, and a
 * router. After the header: u32 offsets[n_clusters + 1], i32 ids[n_members] (cluster m has [offsets[m],
 * offsets[m + 1]), ascending; a row may be in several, or none), i32 schedule[n_schedule], and f16 weights
 * w1[n_hidden, n_embed + n_state], b1[n_hidden], w2[n_clusters, n_hidden or, if 0, n_state], b2[n_clusters].
 */
typedef struct specrt_clusters_header {
    int32_t n_rows;       /* rows of the head; of a head with ids: above all ids */
    int32_t n_cols;       /* of the head */
    int32_t n_clusters;   /* none is empty */
    int32_t n_members;    /* rows in clusters */
    int32_t router;       /* specrt_router_kind */
    int32_t softmax;      /* scores become probabilities by 0: sigmoid, 1: softmax */
    int32_t n_embed;      /* width of e; 0: not read */
    int32_t n_state;      /* width of g or h */
    int32_t n_hidden;     /* outputs of w1; 0: no w1 */
    int32_t n_schedule;   /* levels, 1 to 32 */
    uint32_t reserved[2]; /* 0 */
} specrt_clusters_header;

/* specrt_bundle_sections() : The section table, borrowed from the bundle.
 *   n_sections : receives the number of entries */
SPECRT_API const specrt_bundle_section *specrt_bundle_sections(const specrt_bundle *bundle,
                                                               int32_t *n_sections);

/* specrt_bundle_data() : The decompressed bytes of a section, borrowed from the bundle, aligned to 16. NULL:
 * the bundle lacks it.
 *   tag : of the section
 *   n_bytes : receives the size; 0 if missing */
SPECRT_API const void *specrt_bundle_data(const specrt_bundle *bundle, const char *tag,
                                          size_t *n_bytes);

/* specrt_bundle_ident() : Section "ident", borrowed from the bundle; NULL: missing. */
SPECRT_API const specrt_ident *specrt_bundle_ident(const specrt_bundle *bundle);

/* View of section "ranks", borrowed from the bundle. */
typedef struct specrt_ranks {
    const specrt_ranks_header *header; /* sizes */
    const int32_t *ids;                /* i32 [n_ranked] by rank */
    const uint64_t *counts;            /* u64 [n_ranked] by rank */
} specrt_ranks;

/* specrt_bundle_ranks() : The view. Open has checked the section.
 * @return OK; BUNDLE_SECTION_MISSING with the tool that builds it. */
SPECRT_API specrt_status specrt_bundle_ranks(const specrt_bundle *bundle, specrt_ranks *out,
                                             specrt_error *err);

#if !defined(SPECRT_STATIC) || !defined(SPECRT_SMALL) /* static functions must be defined */
/* View of section "cograph", borrowed from the bundle. */
typedef struct specrt_cograph {
    const specrt_cograph_header *header; /* sizes */
    const uint64_t *totals;  /* u64 [n_vocab] pairs that each token began, dropped ones included */
    const uint32_t *offsets; /* u32 [n_vocab + 1] */
    const uint32_t *n_rule;  /* u32 [n_vocab] */
    const int32_t *ids;      /* i32 [n_edges] */
    const float *counts;     /* f32 [n_edges] */
} specrt_cograph;

/* specrt_bundle_cograph() : The view, after a check of the whole section.
 * @return OK; BUNDLE_SECTION_MISSING with the tool that builds it; BUNDLE_CONTENT. */
SPECRT_API specrt_status specrt_bundle_cograph(const specrt_bundle *bundle, specrt_cograph *out,
                                               specrt_error *err);

/* specrt_cograph_successors() : The successors of a token. p(v | token) is counts[i] / totals[token].
 *   graph : the view
 *   ids, counts : receive i32, f32 [returned], by count, borrowed from the bundle
 * @return how many successors; 0 for a token outside the graph. */
SPECRT_API int32_t specrt_cograph_successors(const specrt_cograph *graph, int32_t token,
                                             const int32_t **ids, const float **counts);

/* View of a section of clusters, borrowed from the bundle. */
typedef struct specrt_clusters {
    const specrt_clusters_header *header; /* sizes */
    const uint32_t *offsets;              /* u32 [n_clusters + 1] */
    const int32_t *ids;                   /* i32 [n_members] */
    const int32_t *schedule; /* i32 [n_schedule] clusters per level; the last value repeats */
    const uint16_t *w1;      /* f16, shapes above; NULL: none */
    const uint16_t *b1;      /* f16; NULL: none */
    const uint16_t *w2;      /* f16; NULL: none */
    const uint16_t *b2;      /* f16; NULL: none */
} specrt_clusters;

/* specrt_bundle_clusters() : The view, after a check of the whole section.
 *   tag : "cluster", "group" or "centroid"
 * @return OK; BUNDLE_SECTION_MISSING with the tool that builds it; BUNDLE_CONTENT; NO_MEMORY. */
SPECRT_API specrt_status specrt_bundle_clusters(const specrt_bundle *bundle, const char *tag,
                                                specrt_clusters *out, specrt_error *err);

/* View of section "sketch", borrowed from the bundle. */
typedef struct specrt_sketch {
    const specrt_sketch_header *header; /* sizes */
    const void *basis;                  /* [rank, n_cols] of basis_dtype */
    const float *center;     /* f32 [n_cols] mean hidden state, subtracted from each state */
    const int32_t *rows;     /* i32 [n_rows] head row at each place, most frequent first */
    const uint8_t *scales;   /* u8 [n_blocks, 16] */
    const int8_t *constants; /* i8 [n_blocks, 16] */
    const uint8_t *signs;    /* u8 [n_blocks, n_signs / 32, 16, 4] */
    const uint8_t *records;  /* u8 [n_rows, n_lines, 64] */
} specrt_sketch;

/* specrt_bundle_sketch() : The view, after a check of the whole section.
 * @return OK; BUNDLE_SECTION_MISSING with the tool that builds it; BUNDLE_CONTENT; NO_MEMORY. */
SPECRT_API specrt_status specrt_bundle_sketch(const specrt_bundle *bundle, specrt_sketch *out,
                                              specrt_error *err);
#endif

/* ---- heads ---- */

/* specrt_head_digest() : The digest of a head: SPECRT_DIGEST_ROWS rows spread over [0, n_rows), each
 * projected on SPECRT_DIGEST_PROJECTIONS fixed random vectors of +1 and -1 and divided by sqrt(n_cols). */
SPECRT_API specrt_status specrt_head_digest(const specrt_head_desc *desc, specrt_digest *out,
                                            specrt_error *err);

#define SPECRT_DIGEST_TOLERANCE 0.5f /* largest distance of digests of one head */

/* specrt_digest_distance() : 0 for equal heads, about 0.1 for a 4-bit quantisation, about 1.4 for another
 * head or row order; infinity for NULL. It ignores a constant that is added to every row, because softmax
 * does.
 *   a, b : digests */
SPECRT_API float specrt_digest_distance(const specrt_digest *a, const specrt_digest *b);

/* specrt_head_compute() : How the head's products run, borrowed from the head; for a specrt_shortlist of any
 * matrix. */
SPECRT_API const specrt_compute *specrt_head_compute(const specrt_head *head);
#if !defined(SPECRT_STATIC) || !defined(SPECRT_SMALL)
/* ---- HNSW: approximate search of the rows with the greatest products ---- */

#define SPECRT_HNSW_MAX_M     256    /* most links per node above level 0 */
#define SPECRT_HNSW_MAX_LEVEL 31     /* highest level */
#define SPECRT_HNSW_MAX_EF    4096   /* largest ef */
#define SPECRT_HNSW_MAX_DIM   131072 /* widest row: products of int8 rows stay below 2^31 */

/* Values of specrt_hnsw_header.vectors: the vectors that a search reads. int8 is the fastest. */
enum {
    SPECRT_HNSW_NONE = -1, /* none: the head's rows */
    SPECRT_HNSW_F16 = 1,   /* f16 copies */
    SPECRT_HNSW_INT8 = 24  /* int8 copies with scales */
};

/* Section "hnsw": a navigable graph over rows of a head (Malkov and Yashunin 2018, arXiv 1603.09320). After
 * the header: i32 ids[n_nodes], i32 starts[n_nodes + 1], i32 links0[n_nodes, 2 m], i32 links[n_lists, m];
 * from a multiple of 64 on the vectors, f16 [n_nodes, dim rounded up to 32], or int8 [n_nodes, dim rounded up
 * to 64] and f32 scales[n_nodes]. Node i is row ids[i], on levels 0 to starts[i + 1] - starts[i]. Its links
 * on level l > 0 are list starts[i] + l - 1. Links are nodes; -1 fills the rest of a list. */
typedef struct specrt_hnsw_header {
    int32_t n_rows;          /* of the head */
    int32_t dim;             /* columns of the head */
    int32_t n_nodes;         /* indexed rows; the others are reserved, duplicates or zero */
    int32_t m;               /* most links per node and level; 2 m on level 0 */
    int32_t max_level;       /* highest level of a node */
    int32_t entry;           /* node where a search begins */
    int32_t metric;          /* of construction: 0: products; 1: distances of normalised rows */
    int32_t vectors;         /* SPECRT_HNSW_NONE, F16 or INT8 */
    int32_t n_lists;         /* link lists above level 0 */
    int32_t ef_construction; /* candidates per node during construction */
    int32_t ef;              /* default candidates of a search */
    float recall;            /* measured recall of the ten best at ef, in [0, 1] */
    uint32_t reserved[4];    /* 0 */
} specrt_hnsw_header;

/* View of section "hnsw", borrowed from the bundle and the head. */
typedef struct specrt_hnsw {
    const specrt_hnsw_header *header; /* sizes */
    const int32_t *ids;               /* i32 [n_nodes] */
    const int32_t *starts;            /* i32 [n_nodes + 1] */
    const int32_t *links0;            /* i32 [n_nodes, 2 m] */
    const int32_t *links;             /* i32 [n_lists, m] */
    const int8_t *codes;              /* i8 [n_nodes, n_cols]; NULL: `rows` is searched */
    const float *scales;              /* f32 [n_nodes] of codes */
    const float *offsets;    /* f32 [n_nodes] builders add the product of two; NULL: none */
    specrt_segment rows;     /* the stored vectors, or the head's rows */
    int64_t n_cols;          /* columns of the searched vectors */
    const specrt_head *head; /* gives exact scores; NULL: scores of the stored vectors */
} specrt_hnsw;

/* specrt_bundle_hnsw() : The view, after a check of the section except its vectors.
 *   head : the indexed matrix, borrowed for the view's life; NULL: only if vectors are stored
 * @return OK; BUNDLE_SECTION_MISSING with the tool that builds it; BUNDLE_CONTENT; BUNDLE_MISMATCH for a head
 * of another shape. */
SPECRT_API specrt_status specrt_bundle_hnsw(const specrt_bundle *bundle, const specrt_head *head,
                                            specrt_hnsw *out, specrt_error *err);

/* specrt_hnsw_scratch_bytes() : Scratch size of searches up to an ef; 0: ef out of range. One search at a
 * time uses the scratch, aligned as by malloc.
 *   index : the view
 *   ef : 0: the index's */
SPECRT_API size_t specrt_hnsw_scratch_bytes(const specrt_hnsw *index, int32_t ef);

/* specrt_hnsw_search() : The rows with approximately the greatest products. Ties go to the lower id.
 *   index : the view
 *   query : f32 [dim]
 *   k : 1 to ef
 *   ef : at most that of the scratch; 0: the larger of the index's and k
 *   ids : i32 [k], written, best first
 *   scores : f32 [k], written: products with the head's rows, bias included
 *   scratch : of specrt_hnsw_scratch_bytes()
 * @return how many were found; 0 for arguments out of range. */
SPECRT_API int32_t specrt_hnsw_search(const specrt_hnsw *index, const float *query, int32_t k,
                                      int32_t ef, int32_t *ids, float *scores, void *scratch);
#endif
#if !defined(SPECRT_STATIC) || defined(SPECRT_TOOLS)
/* ---- HNSW under construction ----
 * Builders search by nodes of an index of int8 vectors whose links may still change. Scores are symmetric. */

/* specrt_hnsw_nearest() : The nodes of a level that are nearest to a node.
 *   index : the view
 *   node : to compare with
 *   level : of the graph
 *   ef : candidates
 *   nodes : i32 [ef], written, best first
 *   scores : f32 [ef], written
 *   scratch : of specrt_hnsw_scratch_bytes()
 * @return how many were found. */
SPECRT_API int32_t specrt_hnsw_nearest(const specrt_hnsw *index, int32_t node, int32_t level,
                                       int32_t ef, int32_t *nodes, float *scores, void *scratch);

/* specrt_hnsw_scores() : Scores of listed nodes with one node.
 *   index : the view
 *   node : to compare with
 *   nodes : i32 [n]
 *   scores : f32 [n], written
 *   scratch : of specrt_hnsw_scratch_bytes() */
SPECRT_API void specrt_hnsw_scores(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                   int32_t n, float *scores, void *scratch);

/* specrt_hnsw_any_above() : 1 if the score of any listed node with one node exceeds a bound, else 0.
 *   index : the view
 *   node : to compare with
 *   nodes : i32 [n]
 *   bound : of scores
 *   scratch : of specrt_hnsw_scratch_bytes() */
SPECRT_API int specrt_hnsw_any_above(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                     int32_t n, float bound, void *scratch);

/* ---- traces: recorded cycles for training and replay (docs/FORMAT.md) ----
 * A trace is a file of blocks, each with its own compression and checksum. Writing needs bounded memory. A
 * file that was cut is readable up to its last whole block. */

/* What a trace was recorded with. Pointers are borrowed: for the call when writing, else the reader's. */
typedef struct specrt_trace_info {
    uint8_t tokenizer_sha256[32]; /* as in specrt_ident; 0: unknown */
    int32_t n_vocab;              /* ids are in [0, n_vocab) */
    int32_t d_target;             /* width of the target's hidden states */
    int32_t d_draft;              /* width of the drafter's hidden states */
    int32_t n_top;                /* recorded best tokens of the target per row */
    int32_t n_draft_top;          /* recorded best tokens of the drafter per row */
    int32_t n_tree_top;           /* recorded best tokens of the target per tree node; 0: none */
    const char *policy;           /* canonical text; NULL: unknown */
    specrt_tree_params tree;      /* of the drafts; 0: unknown */
    int32_t draft;                /* specrt_draft_kind */
    float temperature;            /* of the target */
    int32_t n_ids;                /* proposable tokens are below it; 0: n_vocab */
    int32_t n_terminators;        /* at most SPECRT_MAX_TERMINATORS */
    const int32_t *terminators;   /* i32 [n_terminators] */
} specrt_trace_info;

/* Kind of a record. */
typedef enum specrt_trace_kind {
    SPECRT_TRACE_END,      /* when reading: no more records */
    SPECRT_TRACE_SEQUENCE, /* a new sequence and its prompt; one row per prompt token */
    SPECRT_TRACE_CYCLE     /* a cycle; one row per emitted token, as known where it was drawn */
} specrt_trace_kind;

/* One record. Pointers are borrowed for the call to write, or until the next read. NULL: not recorded. */
typedef struct specrt_trace_record {
    int32_t kind;                  /* specrt_trace_kind */
    int32_t n;                     /* rows; at least 1 */
    int32_t n_nodes;               /* of a cycle's tree, at most SPECRT_TREE_MAX_NODES; else 0 */
    char domain[32];               /* of a sequence, NUL-terminated */
    const int32_t *tokens;         /* i32 [n] of the prompt, or emitted */
    const int32_t *nodes;          /* i32 [n] of a cycle: node where each token was drawn */
    const int32_t *tree_tokens;    /* i32 [n_nodes] as in specrt_draft */
    const int32_t *tree_parents;   /* i32 [n_nodes] as in specrt_draft */
    const float *tree_logprobs;    /* f32 [n_nodes] of the path, natural log */
    const uint16_t *target_hidden; /* f16 [n, d_target] after the final norm */
    const int32_t *top_ids;        /* i32 [n, n_top] of the target, best first; -1: none */
    const float *top_logits;       /* f32 [n, n_top] */
    const float *top_logsumexp;    /* f32 [n] over the whole vocabulary */
    const uint16_t *draft_hidden;  /* f16 [n, d_draft] input of the drafter's head; NaN: no pass */
    const int32_t *draft_ids;      /* i32 [n, n_draft_top] best of the drafter's whole head */
    const float *draft_logits;     /* f32 [n, n_draft_top] */
    const float *draft_logsumexp;  /* f32 [n] over the drafter's whole head */
    const int32_t *tree_top_ids;   /* i32 [n_nodes, n_tree_top] of the target by node; -1: none */
    const uint16_t *prompt_hidden; /* f16 [d_target] of a sequence's last token; NULL for EAGLE-3 */
} specrt_trace_record;

typedef struct specrt_trace_writer specrt_trace_writer; /* a trace that is being written */

/* specrt_trace_writer_create() : Begins a trace.
 *   info : copied
 *   write : appends u8 [n] to the file; any value but 0 is a failure
 *   user : first argument of write
 * @return OK, NO_MEMORY, IO, BAD_ARG with the field. */
SPECRT_API specrt_status specrt_trace_writer_create(
    const specrt_trace_info *info, int (*write)(void *user, const void *bytes, size_t n),
    void *user, const specrt_env *env, specrt_trace_writer **out, specrt_error *err);

/* specrt_trace_write() : Adds a record.
 *   record : to write
 * @return OK, IO, BAD_ARG with the field. */
SPECRT_API specrt_status specrt_trace_write(specrt_trace_writer *writer,
                                            const specrt_trace_record *record, specrt_error *err);

/* specrt_trace_writer_close() : Writes pending records and frees the writer.
 * @return OK, IO. */
SPECRT_API specrt_status specrt_trace_writer_close(specrt_trace_writer *writer, specrt_error *err);

typedef struct specrt_trace_reader specrt_trace_reader; /* an open trace */

/* specrt_trace_open() : Maps a file.
 *   path : file name
 * @return OK, IO, NO_MEMORY, TRACE_MAGIC, TRACE_VERSION, TRACE_DAMAGED. */
SPECRT_API specrt_status specrt_trace_open(const char *path, const specrt_env *env,
                                           specrt_trace_reader **out, specrt_error *err);

/* specrt_trace_open_memory() : Opens a trace that is in memory.
 *   bytes : u8 [n_bytes], borrowed for the reader's life
 *   n_bytes : size
 *   name : copied; replaces the path in messages
 * @return OK, NO_MEMORY, TRACE_MAGIC, TRACE_VERSION, TRACE_DAMAGED. */
SPECRT_API specrt_status specrt_trace_open_memory(const void *bytes, size_t n_bytes,
                                                  const char *name, const specrt_env *env,
                                                  specrt_trace_reader **out, specrt_error *err);
SPECRT_API void specrt_trace_close(specrt_trace_reader *reader);

/* specrt_trace_get_info() : What the trace was recorded with, borrowed from the reader. */
SPECRT_API const specrt_trace_info *specrt_trace_get_info(const specrt_trace_reader *reader);

/* specrt_trace_check() : Compares a trace with a tokenizer and widths.
 *   sha256 : digest of the tokenizer; NULL: any
 *   d_target, d_draft : widths; 0: any
 * @return OK; TRACE_MISMATCH with both sides. */
SPECRT_API specrt_status specrt_trace_check(const specrt_trace_reader *reader,
                                            const uint8_t sha256[32], int32_t d_target,
                                            int32_t d_draft, specrt_error *err);

/* specrt_trace_skip_hidden() : Omits hidden states, for faster reading. Call it before the first read. */
SPECRT_API void specrt_trace_skip_hidden(specrt_trace_reader *reader);

/* specrt_trace_read() : The next record.
 *   record : written; kind is SPECRT_TRACE_END after the last whole block
 * @return OK, NO_MEMORY, TRACE_DAMAGED with the block. */
SPECRT_API specrt_status specrt_trace_read(specrt_trace_reader *reader, specrt_trace_record *record,
                                           specrt_error *err);

/* specrt_trace_is_cut() : 1 if reading has reached an incomplete last block, else 0. */
SPECRT_API int specrt_trace_is_cut(const specrt_trace_reader *reader);

/* ---- alignment: training the drafter on the target's outputs ----
 * EvoSpec's path B (Zhang et al. 2026, arXiv 2605.27390, section 3.4 and Algorithm 1). It selects positions
 * where drafter and target differ, in batches, and computes the loss gradient. Your framework runs the
 * drafter's layer and the optimiser. Training never changes the output.
 *
 *     specrt_align_observe(a, positions, n);                  // after verification, before observe
 *     if ((batch = specrt_align_acquire(a)) != NULL) {
 *         hidden = your drafter, once more, at batch->contexts
 *         specrt_align_gradient(a, batch, hidden, dh, &loss);
 *         your layer's backward pass from dh, a step of your optimiser
 *         specrt_align_release(a, batch);
 *     }
 *
 * gradient may run on another thread, beside the other calls, which belong to one thread. */

#define SPECRT_ALIGN_MAX_BATCH 4096 /* most positions of a batch */
#define SPECRT_ALIGN_MAX_TOP   256  /* most retained tokens of a position */

/* Parameters of Algorithm 1. */
typedef struct specrt_align_params {
    int32_t n_batch; /* |B|: positions of a batch, 1 to SPECRT_ALIGN_MAX_BATCH */
    int32_t n_steps; /* gamma: later positions of a cycle are ignored; 1 to SPECRT_TREE_MAX_NODES */
    int32_t n_top;   /* K_logit: retained tokens of the target, 1 to SPECRT_ALIGN_MAX_TOP */
    float temperature; /* T_KD, above 0 */
    float beta;        /* of the weights w_j = exp(-beta L_base (j - 1)), Eq. 4; 0 or more */
    float epsilon;     /* smallest divergence KL(p || q) of a position that is used, in nats */
} specrt_align_params;

/* Table 5 of the paper. The paper has no values for n_top and epsilon; these are specrt's. */
#define SPECRT_ALIGN_DEFAULTS                                                                      \
    { 32, 6, 64, 1.0f, 0.3f, 0.1f }

/* A position of the accepted path at which the drafter had a distribution. */
typedef struct specrt_align_position {
    uint64_t context;      /* your own key: where to find the drafter's input again */
    int32_t step;          /* j: 1 at the root, then ascending */
    int32_t token;         /* emitted target id */
    int32_t covered;       /* 1: in the shortlist (specrt_session_member()); 0: not (path A) */
    int32_t rejected;      /* 1: the target rejected the draft token; else 0 */
    const float *logits;   /* f32 [n_logits] of the target, borrowed for the call */
    const float *hidden;   /* f32 [n_cols] input of the drafter's head, borrowed for the call */
    int32_t drafted;       /* a proposed token, for L_base; -1: L_base uses the retained tokens */
    float drafted_logprob; /* natural log of its probability over the shortlist, at temperature 1 */
} specrt_align_position;

/* Positions to learn from, borrowed from acquire until release. */
typedef struct specrt_align_batch {
    int32_t n;                /* params.n_batch, or more: cycles are not divided */
    const uint64_t *contexts; /* u64 [n] */
    const int32_t *steps;     /* i32 [n] j */
    const float *weights;     /* f32 [n] w_j */
    const int32_t *n_top;     /* i32 [n] retained tokens */
    const int32_t *ids;       /* i32 [n, n_top of params] target ids, best first */
    const float *probs; /* f32 [n, n_top of params] p: softmax at T_KD over the retained tokens */
} specrt_align_batch;

/* Sums since create. */
typedef struct specrt_align_stats {
    int64_t n_positions; /* observed, with a step of at most n_steps */
    int64_t n_missing;   /* of them, not covered (path A) */
    int64_t n_invalid;   /* covered, but not finite, or without a retained token in the head */
    int64_t n_rejected;  /* valid, rejected by the target */
    int64_t n_kept;      /* valid, with a divergence above epsilon (path B) */
    int64_t n_dropped; /* above epsilon, but the buffer was full and the last batch not released */
    int64_t n_batches; /* acquired */
    double divergence; /* sum of KL(p || q) over valid positions, in nats */
    int64_t n_bytes;   /* memory of the object now */
} specrt_align_stats;

typedef struct specrt_align
    specrt_align; /* selected positions: a buffer that fills, and the batch that is acquired */

/* specrt_align_create() : Creates both buffers.
 *   head : the drafter's, borrowed for the object's life; it scores retained tokens, on the shortlist or not
 *   n_logits : columns of the target's logits
 *   params : copied; NULL: SPECRT_ALIGN_DEFAULTS
 * @return OK, NO_MEMORY, BAD_ARG with the field and its limits. */
SPECRT_API specrt_status specrt_align_create(const specrt_head *head, int32_t n_logits,
                                             const specrt_align_params *params,
                                             const specrt_env *env, specrt_align **out,
                                             specrt_error *err);
SPECRT_API void specrt_align_close(specrt_align *align);

/* specrt_align_observe() : Adds the positions of one cycle.
 *   positions : [n] steps ascending
 * @return how many were kept; -1, and none is, for a token out of range, steps out of order, or a covered
 * position without logits or hidden. */
SPECRT_API int32_t specrt_align_observe(specrt_align *align, const specrt_align_position *positions,
                                        int32_t n);

/* specrt_align_acquire() : The full buffer as a batch; NULL: not full, or the last batch is not released. */
SPECRT_API const specrt_align_batch *specrt_align_acquire(specrt_align *align);

/* specrt_align_gradient() : The gradient of J = sum of w_j T_KD^2 KL(p_j || q_j) (Eq. 5).
 *   batch : from acquire
 *   hidden : f32 [batch->n, n_cols] that the drafter's head multiplies now
 *   dh : f32 [batch->n, n_cols], written: dJ / d hidden
 *   loss : receives J; NULL: not wanted
 * @return OK; BAD_INPUT if a value is not finite: skip the optimiser step. */
SPECRT_API specrt_status specrt_align_gradient(const specrt_align *align,
                                               const specrt_align_batch *batch, const float *hidden,
                                               float *dh, double *loss);

/* specrt_align_release() : Ends a batch.
 *   batch : from acquire */
SPECRT_API void specrt_align_release(specrt_align *align, const specrt_align_batch *batch);

/* specrt_align_clear() : Empties the filling buffer, for example when contexts are lost. */
SPECRT_API void specrt_align_clear(specrt_align *align);
SPECRT_API void specrt_align_get_stats(const specrt_align *align, specrt_align_stats *out);
#endif

#ifdef __cplusplus
}
#endif

#endif
/* specrt_adapt.h : what passes cost on a machine, and what to run there. Tools, engines and `auto` ask these
 * functions and decide nothing of their own. The conventions of specrt.h hold. The single header has it where
 * SPECRT_TOOLS is defined.
 *
 * FUNCTIONS, by task (prefix specrt_):
 *     measure passes        meter_open, meter_close; curve_add, curve_at, curve_make_monotone; costs_measure,
 *                           _busy, _machine, _head, _width, _next, _nodes
 *     keep costs            costs_find, costs_path, costs_read, costs_write; as text: costs_text, costs_parse
 *     follow the clock      clock_init, _see, _table, _auto, _hopeless, _explain, _seconds; timer_host,
 *                           _begin
 *     decide what to run    ratio_outcome, outcome_name, advise, advice_text
 *     know policies         policy_preset, policy_untried, advise_untried
 */
#ifndef SPECRT_ADAPT_H
#define SPECRT_ADAPT_H

// >>adapt
// Costs of passes; the verdict on policies.

#if !defined(SPECRT_STATIC) || defined(SPECRT_TOOLS)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- costs: what passes of both models and products of the head take ----
 * The models are a specrt_host, so every engine is measured alike, and tests can set the time. */

enum {
    SPECRT_CURVE_MAX_SIZES = 64,
    SPECRT_COSTS_MAX_HEADS = 8, /* policies whose scoring was timed */
    SPECRT_COSTS_WIDTHS = 3,    /* hidden rows of one product that are timed: 1, 4, 10 */
    SPECRT_COSTS_TEXT = 256, /* bytes of a policy, of a machine's name, of a line about a clock */
    SPECRT_COSTS_KEY = 512,
    SPECRT_COSTS_POLICY = 1024,
    SPECRT_COSTS_PATH = 1024,
    SPECRT_COSTS_LINE = 2560,  /* bytes of a line about costs */
    SPECRT_COSTS_BYTES = 65536 /* of a file, its NUL included, at most */
};

/* Seconds by size. Zero-initialise it. */
typedef struct specrt_curve {
    int32_t n;                              /* sizes */
    int32_t sizes[SPECRT_CURVE_MAX_SIZES];  /* [n], ascending */
    double seconds[SPECRT_CURVE_MAX_SIZES]; /* [n], of each size */
    double low[SPECRT_CURVE_MAX_SIZES];     /* [n], lower end of the 95% interval of seconds */
    double high[SPECRT_CURVE_MAX_SIZES];    /* [n], upper end; both are seconds where not known */
} specrt_curve;

/* specrt_curve_add() : Adds a measured size, in any order; each once. A full curve stays as it is.
 *   curve : changed; low and high become seconds
 *   size : above 0
 *   seconds : above 0
 * @return its place in the curve; -1: the curve is full. */
SPECRT_API int32_t specrt_curve_add(specrt_curve *curve, int32_t size, double seconds);

/* specrt_curve_make_monotone() : The nearest curve that never falls, by least squares (pool adjacent
 * violators: Ayer et al. 1955). More work takes no less time; where it seems to, the clock was disturbed.
 *   curve : changed */
SPECRT_API void specrt_curve_make_monotone(specrt_curve *curve);

/* specrt_curve_at() : Seconds of a size, which may lie between whole ones: linear between measured sizes and
 * beyond them, proportional to a single one; below the least size never under a tenth of its seconds. An
 * empty curve: 0.
 *   curve : read
 *   size : above 0 */
SPECRT_API double specrt_curve_at(const specrt_curve *curve, double size);

/* Scoring one level of a draft by a policy. */
typedef struct specrt_scoring {
    char policy[SPECRT_COSTS_TEXT]; /* its text */
    double seconds;                 /* of a level */
} specrt_scoring;

/* Zero-initialise it. */
typedef struct specrt_costs {
    char machine[SPECRT_COSTS_TEXT]; /* where it was measured: processor, how many there are */
    char key[SPECRT_COSTS_KEY]; /* of models, threads, context and build: what costs depend on */
    specrt_curve target;        /* a pass of the target, by tokens, with logits of all tokens */
    specrt_curve draft;         /* a pass of the drafter, by tokens, without its LM head */
    specrt_curve prompt;        /* the target reads a prompt, by tokens, with logits of the last */
    specrt_curve prompt_all;    /* the same with logits of all tokens */
    /* The drafter's first pass after a prompt, by the prompt's tokens: it reads those that it has not read
     * beside the target */
    specrt_curve draft_prompt;
    /* A product of the head, by its rows, for the one hidden row after the target's pass; empty: not timed */
    specrt_curve head_first;
    /* The same for specrt_costs_width(i) hidden rows of a cycle's next levels */
    specrt_curve head_next[SPECRT_COSTS_WIDTHS];
    specrt_scoring heads[SPECRT_COSTS_MAX_HEADS]; /* [n_heads] of whole policies */
    int32_t n_heads;                              /* policies whose scoring was timed */
    int32_t keeps_chains;                         /* as in specrt_auto_desc */
    int32_t policy_rows; /* that the policy below scored in the mean, rounded up; 0: not known */
    char policy[SPECRT_COSTS_POLICY]; /* the fastest by these costs; "": none was compared */
    /* Positions that a pass of the drafter drafts at most, where it drafts blocks; 0: token by token. Of
     * blocks, draft is the one pass of a draft: up to n_block by its positions, behind one token that it
     * reads first; from there on a whole block, by what it reads beyond that token. head_next of 4 and 10
     * rows is then the product for so many positions, after passes of target and drafter */
    int32_t n_block;
    double seconds; /* that measuring took; 0: unknown, as of a file */
    double error;   /* at sizes between the measured ones, as a share: the median; 0: unknown */
    double worst;   /* the same: the greatest */
    /* Width of the 95% interval of a cycle with three drafts in plain passes, as a share; 0: unknown */
    double spread;
    double busy;     /* processors in use when measuring began, by the load average; 0: unknown */
    int32_t changed; /* 1: since it was read from a file or written to one */
    /* 1: spread is above 0.25, or times contradict each other: the machine was too busy to tell. Not to be
     * kept, and proof of nothing */
    int32_t disturbed;
} specrt_costs;

/* specrt_costs_width() : Hidden rows of the product that head_next[i] is about: 1, 4 or 10.
 *   i : from 0, below SPECRT_COSTS_WIDTHS */
SPECRT_API int32_t specrt_costs_width(int32_t i);

/* specrt_costs_next() : head_next of the next width from so many hidden rows on, or the last. Borrowed from
 * costs.
 *   costs : read
 *   n : hidden rows, from 1 */
SPECRT_API const specrt_curve *specrt_costs_next(const specrt_costs *costs, int32_t n);

/* specrt_costs_nodes() : Nodes that the target verifies of a draft of n levels.
 *   tree : as specrt_tree_get_params() returns it
 *   n : from 1, at most its num_steps */
SPECRT_API int32_t specrt_costs_nodes(const specrt_tree_params *tree, int32_t n);

/* specrt_costs_read_token() : Seconds of a token, after the first, that the drafter reads before a draft.
 *   costs : read */
SPECRT_API double specrt_costs_read_token(const specrt_costs *costs);

/* specrt_costs_draft() : Seconds of the drafter's passes of a draft of n levels, without its LM head.
 *   costs : read
 *   n_read : tokens that the first pass reads, from 1; also a mean
 *   n : levels, from 1; of blocks the positions of the one pass
 *   width : rows of the next passes, a tree's topk; blocks have none */
SPECRT_API double specrt_costs_draft(const specrt_costs *costs, double n_read, int32_t n,
                                     int32_t width);

/* specrt_costs_machine() : The processor's name and how many there are.
 *   out : char [SPECRT_COSTS_TEXT], written */
SPECRT_API void specrt_costs_machine(char *out);

/* What is timed. */
typedef enum specrt_pass {
    /* The target's pass over a chain of n tokens, what a session takes from its logits, and the commit of the
     * first token */
    SPECRT_PASS_TARGET = 0,
    /* The first drafter pass of a draft, which reads n tokens. Of blocks: of n positions behind one token, or
     * a whole block behind so many more tokens, as in specrt_costs.n_block */
    SPECRT_PASS_DRAFT = 1,
    /* Products of the head's first n rows in one cycle: with one hidden row after the target's pass, then at
     * each next level with as many as specrt_costs_width() says. Of blocks: for as many positions of a block,
     * each after passes of target and drafter; that of one position follows the first product */
    SPECRT_PASS_HEAD = 2,
    /* A prompt of n tokens: the target's part with logits of the last token; the drafter's first pass; the
     * target's part with logits of all tokens */
    SPECRT_PASS_PROMPT = 3
} specrt_pass;

enum {
    SPECRT_PASSES = 4,    /* values of specrt_pass */
    SPECRT_PASS_TIMES = 4 /* most times of one of them */
};

/* The models, for measuring: of specrt_meter_open(), or callbacks of your own. */
typedef struct specrt_meter {
    void *user; /* first argument of pass */
    /* Runs a pass of size n.
     *   seconds : f64 [SPECRT_PASS_TIMES], zeros, written: its times in the order above; 0: not timed
     * Returns 0, or another value where a model failed. */
    int (*pass)(void *user, specrt_pass pass, int32_t n, double *seconds);
    /* Largest n of each pass; 0: it is not made. Of drafts, -n: of blocks of at most n positions */
    int32_t most[SPECRT_PASSES];
} specrt_meter;

/* A host that is measured. Zero-initialise it. */
typedef struct specrt_meter_desc {
    specrt_host host;          /* copied */
    void (*reset)(void *user); /* the models forget their sequence, which was any */
    void *reset_user;          /* first argument of reset */
    int32_t n_logits;          /* columns of the target's logits; lower numbers are tokens */
    specrt_tree_params tree;   /* the largest draft that the host takes; no member is 0 */
    const specrt_head *head;   /* the drafter's, borrowed; NULL: products are not timed */
    specrt_head_desc rows;     /* what head was bound from; its arrays are borrowed */
    int32_t n_before;          /* tokens in the caches before a pass; 0: 64 */
    int32_t n_block;     /* positions that host.draft_block drafts at most; 0: tree.num_steps */
    double (*now)(void); /* seconds; monotonic; NULL: specrt_clock_seconds() */
} specrt_meter_desc;

/* specrt_meter_open() : A meter of the host's passes, by the calls that sessions make. The host's sequence is
 * lost.
 *   desc : copied
 *   out : written, owned by the caller: specrt_meter_close()
 * @return OK; NO_MEMORY; BAD_ARG with the member. */
SPECRT_API specrt_status specrt_meter_open(const specrt_meter_desc *desc, specrt_meter *out,
                                           specrt_error *err);

/* specrt_meter_close() : Frees what specrt_meter_open() created, and resets the host.
 *   meter : cleared */
SPECRT_API void specrt_meter_close(specrt_meter *meter);

/* specrt_costs_measure() : Times passes in rounds of one pass of each size. The lower quartile of a size's
 * times counts. A target or drafter pass that takes longer than more work does is lowered.
 *   meter : the models; it makes passes of target and drafter at least
 *   seconds : no round begins later, but for what disturbed depends on, which has up to 5 rounds (12 if all)
 *       while spread is too wide; 0: 1.2
 *   all : 0: passes of target and drafter at a few sizes, as auto needs; 1: all that the meter times, with
 *       sizes in between, which show the error of the curves, for up to 1.6 times as long
 *   out : written: machine, curves, seconds, error, worst, spread, busy, changed, disturbed; the rest zero
 * @return OK; NO_MEMORY; BAD_ARG; HOST: a pass failed. */
SPECRT_API specrt_status specrt_costs_measure(const specrt_meter *meter, double seconds, int all,
                                              specrt_costs *out, specrt_error *err);

/* specrt_costs_busy() : Whether the machine was too busy to tell, and what to do.
 *   costs : read
 *   line : char [SPECRT_COSTS_TEXT], written: one sentence without its full stop, or ""
 * @return costs->disturbed */
SPECRT_API int specrt_costs_busy(const specrt_costs *costs, char *line);

/* What a policy's sessions are created from, borrowed. */
typedef struct specrt_costs_drafts {
    const specrt_bundle *bundle;  /* NULL: none */
    const specrt_head *head;      /* of the drafter */
    int64_t n_cols;               /* columns of the head */
    specrt_policy_desc policy;    /* its text is not read */
    specrt_session_params params; /* the tree of drafts; auto_draft is not read */
} specrt_costs_drafts;

/* specrt_costs_head() : Seconds of scoring a level by a policy: measured once, kept in costs. With
 * params.n_block above 0 a whole block is scored at once, and a position of it counts as a level.
 *   costs : read and changed
 *   drafts : what the policy is created from
 *   policy : its text
 * @return 0: the policy does not open with this bundle and head. */
SPECRT_API double specrt_costs_head(specrt_costs *costs, const specrt_costs_drafts *drafts,
                                    const char *policy);

/* ---- costs in a file ----
 * A few lines of text that end in a checksum:
 *
 *     specrt costs 1
 *     machine Intel(R) Xeon(R) Platinum 8481C, 2 processors
 *     key target ... threads 2, context 4096, ...
 *     target 1 0.0672 0.0669 0.0701
 *     draft 1 0.0113 0.0112 0.0115
 *     head 0.00031 window:3072@...
 *     first 256 1.1e-05
 *     next 4 256 3.9e-05
 *     prompt 64 0.81
 *     prompt_all 64 0.97
 *     draft_prompt 64 0.14
 *     block 7
 *     keeps_chains 1
 *     policy 3072 window:3072@...
 *     error 0.02 0.09
 *     sum 5f0c8d1a2b3e4f60
 *
 * Seconds follow sizes; low and high may follow them. A head's policy ends its line. All below `draft` may be
 * absent: `first` and `next` are head_first and head_next, after its width; `policy` is after its rows;
 * `block` is n_block. Numbers have a decimal point in every locale. */

/* specrt_costs_text() : The text of costs.
 *   costs : read
 *   out : char [SPECRT_COSTS_BYTES], written
 * @return its bytes, without the NUL */
SPECRT_API size_t specrt_costs_text(const specrt_costs *costs, char *out);

/* specrt_costs_parse() : Costs from text [n]; curves become monotone, spread and disturbed follow from them.
 *   name : of the file, for errors
 *   key : whose costs are asked for, of this machine; NULL: any, of any machine
 * @return OK; BAD_INPUT: damaged, or of another machine or key. Then *out is zero. */
SPECRT_API specrt_status specrt_costs_parse(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err);

/* specrt_costs_read() : Costs from a file.
 *   path : of the file
 *   key : as in specrt_costs_parse()
 *   out : written
 * @return as specrt_costs_parse(); IO: the file cannot be opened. */
SPECRT_API specrt_status specrt_costs_read(const char *path, const char *key, specrt_costs *out,
                                           specrt_error *err);

/* specrt_costs_write() : Replaces the file as a whole. Does nothing where costs are disturbed.
 *   costs : written there; no longer changed
 *   path : of the file
 * @return OK; IO: the file could not be written, and is as it was. */
SPECRT_API specrt_status specrt_costs_write(specrt_costs *costs, const char *path,
                                            specrt_error *err);

/* specrt_costs_path() : Where costs are kept: beside the bundle, or in specrt/ of the user's cache folder
 * where there is no bundle or its folder cannot be written; created if needed.
 *   bundle : its path; NULL: none
 *   key : the name has a hash of it
 *   out : char [SPECRT_COSTS_PATH], written; "": there is no such folder, so nothing is kept */
SPECRT_API void specrt_costs_path(const char *bundle, const char *key, char *out);

/* specrt_costs_find() : Costs from the file, else measured.
 *   meter : the models
 *   path : of specrt_costs_path(); "": there is no file
 *   key : as in specrt_costs_parse()
 *   out : written
 *   line : char [SPECRT_COSTS_LINE], written: where the costs are from, and why a file was not used
 * @return as specrt_costs_measure() */
SPECRT_API specrt_status specrt_costs_find(const specrt_meter *meter, const char *path,
                                           const char *key, specrt_costs *out, char *line,
                                           specrt_error *err);

/* ---- the clock: what cycles cost now ----
 * A busy machine makes everything slower, which changes no choice (`slow`); what changes choices is the share
 * of each figure beside it, learned apart. */

/* A cycle of one sequence, or of several in one pass of the target. */
typedef struct specrt_clock_cycle {
    int32_t n_slots;       /* sequences in the target's pass */
    int32_t n_tokens;      /* of that pass, drafts included */
    int32_t n_passes;      /* of the drafter; 0: a plain cycle */
    int32_t n_read;        /* tokens of the drafter's first pass */
    int32_t n_scored;      /* levels that were scored, of all slots */
    int32_t n_block;       /* positions that its one pass drafted; read where costs are of blocks */
    double target_seconds; /* all that is no drafting */
    double draft_seconds;  /* of the drafter's passes */
    double head_seconds;   /* of scoring */
} specrt_clock_cycle;

/* The figures as they are now: natural logs of ratios to the costs measured at the start. */
typedef struct specrt_clock {
    specrt_costs costs;      /* as measured at the start */
    specrt_tree_params tree; /* as specrt_tree_get_params() returns it */
    double head;             /* seconds of scoring a level, as measured at the start */
    double slow;             /* of all passes */
    double target[SPECRT_TREE_MAX_NODES + 1]; /* by tokens of a pass */
    double draft;                             /* of the drafter's passes */
    double scoring;                           /* of levels */
    double drift;                             /* of late, of cycles with a draft */
    int32_t since_plain;                      /* cycles since a plain cycle was timed */
    int32_t since_draft;                      /* cycles since one with a draft was */
    int32_t asked;                            /* plain cycles that are still to be timed */
} specrt_clock;

/* specrt_clock_init() : As measured at the start.
 *   clock : written
 *   costs : copied
 *   tree : copied
 *   head : of specrt_costs_head() */
SPECRT_API void specrt_clock_init(specrt_clock *clock, const specrt_costs *costs,
                                  const specrt_tree_params *tree, double head);

/* specrt_clock_see() : Learns from a cycle.
 *   clock : changed
 *   cycle : that ended
 * @return 1: time a plain cycle next, because cycles with drafts take other times than expected, or none was
 * plain for long; else 0 */
SPECRT_API int specrt_clock_see(specrt_clock *clock, const specrt_clock_cycle *cycle);

/* specrt_clock_table() : Costs and read of specrt_auto_desc, for one list, where n_slots sequences draft
 * alike.
 *   clock : read
 *   n_slots : 1 or more
 *   cycles : f64 [tree.num_steps + 1], written
 *   read : written */
SPECRT_API void specrt_clock_table(const specrt_clock *clock, int32_t n_slots, double *cycles,
                                   double *read);

/* specrt_clock_auto() : A controller by the clock's table.
 *   clock : read
 *   keeps_chains : as in specrt_auto_desc; trees keep none
 *   out : written, owned by the caller
 * @return as specrt_auto_create() */
SPECRT_API specrt_status specrt_clock_auto(const specrt_clock *clock, int32_t keeps_chains,
                                           specrt_auto **out, specrt_error *err);

/* specrt_clock_hopeless() : Whether drafts of any length are slower than plain decoding even if 95% of
 * drafted tokens are accepted, as those of a drafter slower than its target.
 *   clock : read
 *   line : char [SPECRT_COSTS_TEXT], written where they are: why
 * @return 1: they are; 0: they are not, or costs are disturbed */
SPECRT_API int specrt_clock_hopeless(const specrt_clock *clock, char *line);

/* specrt_clock_explain() : One line: whether drafts were made, what decided, and what came of it.
 *   clock : read
 *   stats : of the controller
 *   out : char [SPECRT_COSTS_TEXT], written */
SPECRT_API void specrt_clock_explain(const specrt_clock *clock, const specrt_auto_stats *stats,
                                     char *out);

/* specrt_clock_seconds() : The system's monotonic clock. */
SPECRT_API double specrt_clock_seconds(void);

/* A host whose cycles are timed for a controller. Its address must not change. Zero-initialise it. */
typedef struct specrt_timer {
    specrt_host host;         /* whose callbacks are timed */
    specrt_clock clock;       /* by which it decides */
    specrt_auto *auto_draft;  /* borrowed */
    int32_t keeps_chains;     /* as in specrt_auto_desc */
    double (*now)(void);      /* seconds; monotonic; NULL: specrt_clock_seconds() */
    specrt_clock_cycle cycle; /* that goes on; the timer's own, as all below */
    double began;             /* when the last cycle ended; 0: none has */
    double drafted;           /* when the drafter's last pass ended; 0: it was counted */
    int32_t n_unread;         /* tokens that the drafter's next pass reads */
} specrt_timer;

/* specrt_timer_host() : The callbacks of timer->host, timed; a block counts as one pass. Before it, the
 * caller sets host, clock, auto_draft and keeps_chains.
 *   timer : changed; borrowed by *out
 *   out : written; valid as long as the timer */
SPECRT_API void specrt_timer_host(specrt_timer *timer, specrt_host *out);

/* specrt_timer_begin() : Another sequence follows; the time until its first cycle ends is not counted. A
 * prompt that goes through the host's target_prefill does so by itself.
 *   timer : changed */
SPECRT_API void specrt_timer_begin(specrt_timer *timer);

/* ---- the verdict: which policy, and is it faster than plain decoding? ----
 * A request counts whole: reading its prompt, and an answer of a named length. The worst task decides, for an
 * application has one task. */

/* Requests of which an interval of 95% can be told: that all of six lie on one side comes by chance in 1 of
 * 32 cases. Of fewer, give NaN. */
enum { SPECRT_ADVISE_REQUESTS = 6 };

/* A ratio of two speeds. */
typedef struct specrt_ratio {
    double value; /* above 1: faster */
    double low;   /* where the 95% interval begins; NaN: not known, as of few requests */
    double high;  /* where it ends; NaN with low */
} specrt_ratio;

/* What a ratio comes to. */
typedef enum specrt_outcome {
    SPECRT_OUTCOME_SLOWER = -1, /* the interval ends below 1 */
    SPECRT_OUTCOME_TIE = 0,     /* as fast, within the error; also where no interval is known */
    SPECRT_OUTCOME_FASTER = 1   /* the interval begins above 1 */
} specrt_outcome;

/* specrt_ratio_outcome() : Faster, a tie or slower.
 *   ratio : any; NULL: a tie */
SPECRT_API specrt_outcome specrt_ratio_outcome(const specrt_ratio *ratio);

/* specrt_outcome_name() : "slower", "a tie" or "faster"; static.
 *   outcome : any; others are "a tie" */
SPECRT_API const char *specrt_outcome_name(specrt_outcome outcome);

/* A policy with its tree, as it was measured or as costs foretell. */
typedef struct specrt_way {
    const char *name;      /* borrowed; the policy as texts show it */
    double bytes;          /* of the head, read by a pass of the drafter: decides among ties */
    double accept_length;  /* tokens a cycle */
    double prompt_seconds; /* of reading the prompt, the drafter's part included */
    double token_seconds;  /* of a token of the answer */
    specrt_ratio ratio; /* of its speed over whole requests in its worst task to plain decoding's */
    const char *task;   /* borrowed; the worst one; NULL: requests name fewer than two tasks */
} specrt_way;

/* Plain decoding of the same requests. */
typedef struct specrt_plain {
    double prompt_seconds; /* of reading the prompt */
    double token_seconds;  /* of a token of the answer */
    double prompt_tokens;  /* of a request, in the mean; 0: prompts were not timed */
    double answer_tokens; /* of a request, in the mean: 2 or more, for the prompt gives the first */
} specrt_plain;

/* What specrt_advise() decides. */
typedef struct specrt_advice {
    int32_t chosen;         /* index of the way to draft with */
    int32_t n_ties;         /* other ways that are as fast as the fastest, within the error */
    specrt_outcome outcome; /* of the chosen way beside plain decoding */
    /* The request would take plain decoding's time, INFINITY: never, 0: it takes no longer */
    double answer_tokens; /* with answers so long, at the same accept length */
    double accept_length; /* with so many tokens a cycle, at the same length of answer */
} specrt_advice;

/* specrt_advise() : Chooses among ways. Of those that are as fast as the fastest within the error, and at
 * most 5% slower, the one that reads the fewest bytes.
 *   ways : [n], n >= 1; ratios above 0
 *   plain : of the same requests
 *   ties : u8 [n], written: 1 for the chosen way and those that tie with the fastest; NULL: not wanted
 * @return OK; BAD_ARG: no way, or a time or ratio that is none. */
SPECRT_API specrt_status specrt_advise(const specrt_way *ways, int32_t n, const specrt_plain *plain,
                                       uint8_t *ties, specrt_advice *out, specrt_error *err);

/* specrt_advice_text() : The verdict in two or three sentences: what to run, whether it is faster over which
 * requests, the reason, and what would change it.
 *   ways : of specrt_advise()
 *   plain : the same
 *   advice : the same
 *   out : char [size], written, cut at its size and always terminated
 *   size : of out */
SPECRT_API void specrt_advice_text(const specrt_way *ways, const specrt_plain *plain,
                                   const specrt_advice *advice, char *out, size_t size);

/* ---- where nothing was measured ---- */

/* specrt_policy_preset() : A preset by its number, in the order in which errors list them.
 *   i : from 0
 *   text : char [size], written: the policy that the name stands for; NULL: not wanted
 *   size : of text
 * @return the name, static; NULL: there are fewer. */
SPECRT_API const char *specrt_policy_preset(int32_t i, char *text, size_t size);

/* specrt_policy_untried() : What to draft with before anything of the pair was measured: of the policies
 * whose sections are there, the one that retained most of the accept length on published models
 * (bench/results/held-out.md).
 *   has_graph : whether the bundle has a section `cograph`
 *   has_sketch : whether the bundle has a section `sketch`
 * @return static text of a policy. */
SPECRT_API const char *specrt_policy_untried(int has_graph, int has_sketch);

/* specrt_advise_untried() : The same by costs alone: `full` where scoring all rows makes a cycle of three
 * drafts at most 2% longer, else specrt_policy_untried() for the sections of the bundle, of those that open.
 *   costs : heads that were not timed yet are, and kept there
 *   drafts : what policies are created from
 * @return static text of a policy. */
SPECRT_API const char *specrt_advise_untried(specrt_costs *costs,
                                             const specrt_costs_drafts *drafts);

#ifdef __cplusplus
}
#endif
#endif

#endif
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

/* =================================================================================================
 * Stop here if you only want the API.
 * ============================================================================================== */
#if defined(SPECRT_IMPLEMENTATION) && !defined(SPECRT_IMPLEMENTED)
#define SPECRT_IMPLEMENTED

#if defined(SPECRT_SMALL) && defined(SPECRT_TOOLS)
#error "specrt.h: SPECRT_SMALL leaves out what SPECRT_TOOLS needs; define one of them"
#endif

#if !defined(SPECRT__INTERNAL) && defined(SPECRT_SMALL) && defined(__GNUC__)
#define SPECRT__INTERNAL                                                                           \
    static __attribute__((unused)) /* some have callers in other sources only */
#elif !defined(SPECRT__INTERNAL)
#define SPECRT__INTERNAL static
#endif

// >>base : src/core/base.h
/* base.h : what every part of the runtime is written with: statuses, memory, sizes, numbers */

/* The linkage of what several files of src/ share. In the single header, which is one file, it is static. */
#if !defined(SPECRT__INTERNAL)
#if defined(__cplusplus)
#define SPECRT__INTERNAL extern "C"
#elif defined(__GNUC__)
#define SPECRT__INTERNAL __attribute__((visibility("hidden")))
#else
#define SPECRT__INTERNAL
#endif
#endif

/* What kernels run too, from the same text: whole numbers, and float operations that no compiler fuses. */
#if defined(__CUDACC__)
#define SPECRT__BOTH __host__ __device__
#else
#define SPECRT__BOTH
#endif

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "specrt.h: bundles and weights are little-endian; so must the host be"
#endif

/* Forward any status that is not OK to the caller. */
#define SPECRT__TRY(expression)                                                                    \
    do {                                                                                           \
        specrt_status specrt__try = (expression);                                                  \
        if (specrt__try != SPECRT_STATUS_OK) return specrt__try;                                   \
    } while (0)

/* Refuses NULL for an argument that the call needs, by the names in the header. */
#define SPECRT__NEED(argument)                                                                     \
    do {                                                                                           \
        if (!(argument)) return specrt__base_refuse_null(err, __func__, #argument);                \
    } while (0)

SPECRT__INTERNAL specrt_status specrt__base_refuse_null(specrt_error *err, const char *function,
                                                        const char *argument);

/* Zeroes the n elements that a typed pointer points to. */
#define SPECRT__CLEAR(pointer, n) ((void)memset((pointer), 0, (size_t)(n) * sizeof *(pointer)))

/* --- memory and sizes --- */

/* NULL: out of memory, or of addresses. */
static inline void *specrt__base_alloc(const specrt_env *env, uint64_t bytes) {
    if (bytes > PTRDIFF_MAX) return NULL;
    if (env->alloc) return env->alloc(env->user, (size_t)bytes);
    return malloc(bytes ? (size_t)bytes : 1);
}

static inline void specrt__base_free(const specrt_env *env, void *ptr) {
    if (!ptr) return;
    if (env->free)
        env->free(env->user, ptr);
    else
        free(ptr);
}

/* What callers gave, or all defaults. */
static inline specrt_env specrt__base_env(const specrt_env *env) {
    specrt_env none;
    memset(&none, 0, sizeof none);
    return env ? *env : none;
}

/* *out = a * b, a + b; false when that overflows. */
static inline bool specrt__base_mul(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a * b;
    return b == 0 || a <= UINT64_MAX / b;
}

static inline bool specrt__base_add(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a + b;
    return a <= UINT64_MAX - b;
}

/* The next n elements of a block that is carved into arrays, those of the widest type first. */
#define SPECRT__CARVE(type, at, n) ((type *)specrt__base_carve(at, (uint64_t)(n) * sizeof(type)))

static inline void *specrt__base_carve(uint8_t **at, uint64_t bytes) {
    void *p = *at;
    *at += bytes;
    return p;
}

/* a rounded up to a multiple of a power of two; a is far from the end of its range. */
static inline uint64_t specrt__base_align(uint64_t a, uint64_t alignment) {
    return (a + alignment - 1) & ~(alignment - 1);
}

static inline uint16_t specrt__base_load16(const void *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

SPECRT__BOTH static inline uint32_t specrt__base_load32(const void *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint64_t specrt__base_load64(const void *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* --- half and bfloat16 --- */

SPECRT__BOTH static inline float specrt__base_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

SPECRT__BOTH static inline uint32_t specrt__base_bits(float x) {
    return specrt__base_load32(&x);
}

/* 2^40 e^-x in whole numbers, so that it and its sums are the same on any machine and in any order; 0 where x
 * is 27.7 or more, or NaN. Below 0 it is as at 0. */
SPECRT__BOTH static inline uint64_t specrt__base_decay(float x) {
    /* 2^32 ln(2)^k / k! of k = 1 to 9: the terms of 2^x */
    static const uint32_t terms[] = {2977044472u, 1031764991u, 238388332u, 41309550u, 5726720u,
                                     661577u,     65510u,      5676u,      437u};
    if (!(x < 27.7f)) return 0;
    uint64_t t = x > 0 ? (uint64_t)((double)x * (4294967296.0 * 1.4426950408889634)) : 0, sum = 0;
    uint64_t rest = ~t & 0xffffffffu; /* of 2^-t = 2^-floor 2^rest / 2, in 2^-32 */
    for (int k = 8; k >= 0; k--) sum = terms[k] + (sum * rest >> 32);
    return (((uint64_t)1 << 32) + (sum * rest >> 32)) << 7 >> (t >> 32);
}

static inline float specrt__base_bf16(uint16_t bits) {
    return specrt__base_float((uint32_t)bits << 16);
}

/* Exact for every half, subnormals, infinities and NaNs included. */
static inline float specrt__base_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return specrt__base_float(sign | 0x70000000u | magnitude << 13);
    if (magnitude >= 0x0400u) return specrt__base_float(sign | ((magnitude << 13) + 0x38000000u));
    float tiny = (float)magnitude * (1.0f / 16777216.0f); /* subnormal: units of 2^-24 */
    return sign ? -tiny : tiny;
}

/* Nearest half, ties to even; beyond 65504 infinity, as the hardware rounds. */
static inline uint16_t specrt__base_to_f16(float x) {
    uint32_t bits = specrt__base_bits(x), sign = bits >> 16 & 0x8000u,
             magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: adding 0.5 leaves units of 2^-24 in the low bits */
        float shifted = specrt__base_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (specrt__base_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

/* --- random numbers --- */

/* Uniform in [0, 1) from a key: rounds of SplitMix64's finaliser. Keys that differ in any word give
 * independent numbers, so whoever draws twice puts what for into the key. */
SPECRT__BOTH static inline double specrt__base_uniform(const uint64_t *key, int n) {
    uint64_t z = 0;
    for (int i = 0; i < n; i++) {
        z += key[i] + 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

// >>base : src/core/base.c
/* base.c : owns status texts, errors, allocation through specrt_env, overflow-checked sizes, unaligned
 * little-endian loads, half and bfloat16 conversion, keyed random numbers, XXH64 and SHA-256.
 * Refuses big-endian hosts. Nothing here knows of files, bundles or heads. */

SPECRT_API int32_t specrt_version(void) {
    return SPECRT_VERSION;
}

SPECRT_API const char *specrt_status_name(specrt_status status) {
    switch (status) {
#define SPECRT_STATUS_CASE(name, number, text)                                                     \
    case SPECRT_STATUS_##name: return text;
        SPECRT_STATUS_LIST(SPECRT_STATUS_CASE)
#undef SPECRT_STATUS_CASE
    default: return "unknown status";
    }
}

SPECRT_API specrt_status specrt_error_set(specrt_error *err, specrt_status status,
                                          const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        err->msg[0] = '\0';
        if (format) vsnprintf(err->msg, sizeof err->msg, format, args);
        va_end(args);
        for (char *p = err->msg; *p; p++) /* names from hostile files stay on one line */
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    return status;
}

SPECRT__INTERNAL specrt_status specrt__base_refuse_null(specrt_error *err, const char *function,
                                                        const char *argument) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: %s: expected a pointer, found NULL",
                            function, argument);
}

/* --- hashes --- */

#define SPECRT__BASE_P1 0x9E3779B185EBCA87u
#define SPECRT__BASE_P2 0xC2B2AE3D27D4EB4Fu
#define SPECRT__BASE_P3 0x165667B19E3779F9u
#define SPECRT__BASE_P4 0x85EBCA77C2B2AE63u
#define SPECRT__BASE_P5 0x27D4EB2F165667C5u

static uint64_t specrt__base_rotl64(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static uint64_t specrt__base_hash_round(uint64_t lane, uint64_t input) {
    return specrt__base_rotl64(lane + input * SPECRT__BASE_P2, 31) * SPECRT__BASE_P1;
}

/* XXH64: four lanes over blocks of 32 bytes, merged, then the tail, then the avalanche. */
SPECRT_API uint64_t specrt_hash64(const void *data, size_t bytes, uint64_t seed) {
    const uint8_t *p = (const uint8_t *)data;
    size_t left = bytes;
    uint64_t hash = seed + SPECRT__BASE_P5;
    if (!data && bytes > 0) return 0;
    if (bytes >= 32) {
        uint64_t lane[4] = {seed + SPECRT__BASE_P1 + SPECRT__BASE_P2, seed + SPECRT__BASE_P2, seed,
                            seed - SPECRT__BASE_P1};
        for (; left >= 32; p += 32, left -= 32)
            for (int i = 0; i < 4; i++)
                lane[i] = specrt__base_hash_round(lane[i], specrt__base_load64(p + 8 * i));
        hash = specrt__base_rotl64(lane[0], 1) + specrt__base_rotl64(lane[1], 7) +
               specrt__base_rotl64(lane[2], 12) + specrt__base_rotl64(lane[3], 18);
        for (int i = 0; i < 4; i++) {
            hash ^= specrt__base_hash_round(0, lane[i]);
            hash = hash * SPECRT__BASE_P1 + SPECRT__BASE_P4;
        }
    }
    hash += bytes;
    for (; left >= 8; p += 8, left -= 8) {
        hash ^= specrt__base_hash_round(0, specrt__base_load64(p));
        hash = specrt__base_rotl64(hash, 27) * SPECRT__BASE_P1 + SPECRT__BASE_P4;
    }
    for (; left >= 4; p += 4, left -= 4) {
        hash ^= specrt__base_load32(p) * SPECRT__BASE_P1;
        hash = specrt__base_rotl64(hash, 23) * SPECRT__BASE_P2 + SPECRT__BASE_P3;
    }
    for (; left > 0; p++, left--) {
        hash ^= *p * SPECRT__BASE_P5;
        hash = specrt__base_rotl64(hash, 11) * SPECRT__BASE_P1;
    }
    hash = (hash ^ hash >> 33) * SPECRT__BASE_P2;
    hash = (hash ^ hash >> 29) * SPECRT__BASE_P3;
    return hash ^ hash >> 32;
}

static uint32_t specrt__base_rotr32(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static uint32_t specrt__base_load_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A word of the schedule from the 16 words before it. */
static uint32_t specrt__base_sha_word(const uint32_t *w) {
    uint32_t x = w[-15], y = w[-2];
    x = specrt__base_rotr32(x, 7) ^ specrt__base_rotr32(x, 18) ^ x >> 3;
    y = specrt__base_rotr32(y, 17) ^ specrt__base_rotr32(y, 19) ^ y >> 10;
    return w[-16] + x + w[-7] + y;
}

static void specrt__base_sha_block(uint32_t state[8], const uint8_t *block) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        w[i] = i < 16 ? specrt__base_load_be32(block + 4 * i) : specrt__base_sha_word(w + i);
        uint32_t x =
            specrt__base_rotr32(e, 6) ^ specrt__base_rotr32(e, 11) ^ specrt__base_rotr32(e, 25);
        uint32_t y =
            specrt__base_rotr32(a, 2) ^ specrt__base_rotr32(a, 13) ^ specrt__base_rotr32(a, 22);
        uint32_t t = h + x + ((e & f) ^ (~e & g)) + k[i] + w[i];
        h = g, g = f, f = e, e = d + t;
        d = c, c = b, b = a, a = t + y + ((b & c) ^ (b & d) ^ (c & d));
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

SPECRT_API void specrt_sha256_init(specrt_sha256 *sha) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    if (!sha) return;
    memset(sha, 0, sizeof *sha);
    memcpy(sha->state, start, sizeof start);
}

SPECRT_API void specrt_sha256_update(specrt_sha256 *sha, const void *data, size_t bytes) {
    const uint8_t *p = (const uint8_t *)data;
    if (!sha || !data) return;
    size_t held = (size_t)(sha->n_bytes % 64);
    sha->n_bytes += bytes;
    if (held + bytes >= 64 && held > 0) {
        memcpy(sha->block + held, p, 64 - held);
        specrt__base_sha_block(sha->state, sha->block);
        p += 64 - held, bytes -= 64 - held, held = 0;
    }
    for (; bytes >= 64; p += 64, bytes -= 64) specrt__base_sha_block(sha->state, p);
    if (bytes > 0) memcpy(sha->block + held, p, bytes);
}

SPECRT_API void specrt_sha256_final(specrt_sha256 *sha, uint8_t digest[32]) {
    uint8_t tail[72] = {0x80};
    if (digest) memset(digest, 0, 32);
    if (!sha || !digest) return;
    uint64_t n_bits = sha->n_bytes * 8;
    size_t n_pad = 64 - (size_t)((sha->n_bytes + 8) % 64);
    for (int i = 0; i < 8; i++) tail[n_pad + (size_t)i] = (uint8_t)(n_bits >> (56 - 8 * i));
    specrt_sha256_update(sha, tail, n_pad + 8);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* id and length before the bytes, so that no two vocabularies give one byte stream. */
SPECRT_API void specrt_tokenizer_hash_token(specrt_sha256 *sha, int32_t id, const void *bytes,
                                            size_t n) {
    uint8_t head[8];
    if (!bytes && n > 0) return;
    for (int i = 0; i < 4; i++) {
        head[i] = (uint8_t)((uint32_t)id >> (8 * i));
        head[4 + i] = (uint8_t)((uint32_t)n >> (8 * i));
    }
    specrt_sha256_update(sha, head, sizeof head);
    specrt_sha256_update(sha, bytes, n);
}

// >>os : src/core/os.h
/* os.h : what is asked of the operating system */

/* What was written before a store is seen after the load that gives its value. */
#if defined(__GNUC__)
static inline uint32_t specrt__os_load(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void specrt__os_store(uint32_t *p, uint32_t value) {
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
#else /* Microsoft's volatile orders so */
static inline uint32_t specrt__os_load(const uint32_t *p) {
    return *(const volatile uint32_t *)p;
}

static inline void specrt__os_store(uint32_t *p, uint32_t value) {
    *(volatile uint32_t *)p = value;
}
#endif

typedef struct specrt__os_map {
    const void *bytes; /* NULL: nothing mapped */
    size_t n;
} specrt__os_map;

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err);
SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map);
SPECRT__INTERNAL void specrt__os_yield(void);
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n);

#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
/* For costs: a clock that does not go back, in seconds; processors in use; whether files can be created in a
 * folder; whether a folder is there, or was created; a file by its path in UTF-8; whether a file was replaced
 * as a whole. */
SPECRT__INTERNAL double specrt__os_seconds(void);
SPECRT__INTERNAL long specrt__os_processors(void);
SPECRT__INTERNAL bool specrt__os_can_write(const char *folder);
SPECRT__INTERNAL bool specrt__os_make_folder(const char *path);
SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n); /* the user's folder for caches */
SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode);
SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n);
#endif

// >>os : src/core/os.c
/* os.c : owns what is asked of the operating system: read-only mappings of regular files, large pages,
 * the clock, files of costs, numbers that two threads share, a worker thread where asked for. POSIX and
 * Windows, where paths are UTF-8, and SPECRT_NO_FILES, where every path is refused. Refuses to map folders,
 * pipes and devices. */

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#endif

#if defined(SPECRT_NO_FILES)

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    return specrt_error_set(
        err, SPECRT_STATUS_IO,
        "%s: expected bytes in memory (SPECRT_NO_FILES), found a path; call the "
        "function that ends with _open_memory",
        path);
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    memset(map, 0, sizeof *map);
}

SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
    (void)memory, (void)n;
}

/* No system is known that would let other threads go on. */
SPECRT__INTERNAL void specrt__os_yield(void) {}

#elif defined(_WIN32)

/* A path in UTF-8, as Windows takes it, owned; NULL: no UTF-8, or no memory. */
static wchar_t *specrt__os_wide(const char *path) {
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *wide = n > 0 ? (wchar_t *)malloc((size_t)n * sizeof(wchar_t)) : NULL;
    if (wide) MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, n);
    return wide;
}

static specrt_status specrt__os_refused(const char *path, specrt_error *err) {
    char why[200] = "";
    unsigned long code = GetLastError();
    FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                       FORMAT_MESSAGE_MAX_WIDTH_MASK,
                   NULL, code, 0, why, sizeof why, NULL);
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s(Windows' error %lu)", path, why, code);
}

/* An empty file gives OK with bytes NULL and n 0. */
static specrt_status specrt__os_map_handle(HANDLE file, const char *path, specrt__os_map *out,
                                           specrt_error *err) {
    LARGE_INTEGER n;
    if (GetFileType(file) != FILE_TYPE_DISK)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a regular file, found a pipe or device", path);
    if (!GetFileSizeEx(file, &n)) return specrt__os_refused(path, err);
    if (n.QuadPart == 0) return SPECRT_STATUS_OK;
    if ((uint64_t)n.QuadPart > SIZE_MAX)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: size: expected less than the address space, found more", path);
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *bytes = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    specrt_status status = bytes ? SPECRT_STATUS_OK : specrt__os_refused(path, err);
    if (mapping) CloseHandle(mapping); /* the view stays */
    out->bytes = bytes;
    out->n = bytes ? (size_t)n.QuadPart : 0;
    return status;
}

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    wchar_t *wide = specrt__os_wide(path);
    if (!wide) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: expected a path in UTF-8", path);
    HANDLE file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE) return specrt__os_refused(path, err);
    specrt_status status = specrt__os_map_handle(file, path, out, err);
    CloseHandle(file); /* the view stays */
    return status;
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    if (map->bytes) UnmapViewOfFile(map->bytes);
    memset(map, 0, sizeof *map);
}

/* Large pages are a privilege there. */
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
    (void)memory, (void)n;
}

/* Let other threads go on: another one's work is awaited. */
SPECRT__INTERNAL void specrt__os_yield(void) {
    SwitchToThread();
}

#else

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if !defined(O_CLOEXEC)
#error "specrt.h: include its implementation before other headers, or add -D_DEFAULT_SOURCE"
#endif

/* An empty file gives OK with bytes NULL and n 0. */
static specrt_status specrt__os_map_fd(int fd, const char *path, specrt__os_map *out,
                                       specrt_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a regular file, found a folder, pipe or device",
                                path);
    if (info.st_size == 0) return SPECRT_STATUS_OK;
    if ((uint64_t)info.st_size > SIZE_MAX)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: size: expected less than the address space, found more", path);
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    out->bytes = bytes;
    out->n = (size_t)info.st_size;
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__os_map_open(const char *path, specrt__os_map *out,
                                                   specrt_error *err) {
    memset(out, 0, sizeof *out);
    /* Without O_NONBLOCK the open of a named pipe would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    specrt_status status = specrt__os_map_fd(fd, path, out, err);
    close(fd); /* the mapping stays */
    return status;
}

SPECRT__INTERNAL void specrt__os_map_close(specrt__os_map *map) {
    /* The mapping was made read-only; munmap wants a plain pointer. */
    if (map->bytes) munmap((void *)(uintptr_t)map->bytes, map->n);
    memset(map, 0, sizeof *map);
}

/* Large pages, where the system gives them on request: more bandwidth for big heads. To be asked
 * before the memory is first written. */
SPECRT__INTERNAL void specrt__os_advise_huge(void *memory, size_t n) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t huge = (uintptr_t)2 << 20;
    uintptr_t begin = ((uintptr_t)memory + huge - 1) / huge * huge;
    uintptr_t end = ((uintptr_t)memory + n) / huge * huge;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)n;
#endif
}

/* Let other threads go on: another one's work is awaited. */
SPECRT__INTERNAL void specrt__os_yield(void) {
    sched_yield();
}

#endif

/* --- for costs --- */
#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
#if defined(_WIN32)
SPECRT__INTERNAL double specrt__os_seconds(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
}
#else
#include <time.h>

SPECRT__INTERNAL double specrt__os_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

#if defined(SPECRT_NO_FILES)

SPECRT__INTERNAL long specrt__os_processors(void) {
    return 1; /* no system is known that counts them */
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    (void)folder;
    return false;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    (void)path;
    return false;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    (void)out, (void)n;
    return false;
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    (void)path, (void)mode;
    return NULL;
}

SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n) {
    (void)path, (void)bytes, (void)n;
    return false;
}

#elif defined(_WIN32)

SPECRT__INTERNAL long specrt__os_processors(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (long)info.dwNumberOfProcessors;
}

/* Attributes of a path; INVALID_FILE_ATTRIBUTES: nothing is there. */
static unsigned long specrt__os_attributes(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    unsigned long bits = wide ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
    free(wide);
    return bits;
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    unsigned long bits = specrt__os_attributes(folder);
    return bits != INVALID_FILE_ATTRIBUTES && (bits & FILE_ATTRIBUTE_DIRECTORY);
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    bool made = wide && (CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
    free(wide);
    return made;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    wchar_t wide[MAX_PATH];
    unsigned long length = GetEnvironmentVariableW(L"LOCALAPPDATA", wide, MAX_PATH);
    return length > 0 && length < MAX_PATH &&
           WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, (int)n, NULL, NULL) > 0;
}

static long specrt__os_process(void) {
    return (long)GetCurrentProcessId();
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    wchar_t *wide = specrt__os_wide(path), wide_mode[4] = {0};
    for (int i = 0; i < 3 && mode[i]; i++) wide_mode[i] = (wchar_t)mode[i];
    FILE *f = wide ? _wfopen(wide, wide_mode) : NULL;
    free(wide);
    return f;
}

static bool specrt__os_remove(const char *path) {
    wchar_t *wide = specrt__os_wide(path);
    bool removed = wide && DeleteFileW(wide);
    free(wide);
    return removed;
}

static bool specrt__os_rename(const char *from, const char *to) {
    wchar_t *old = specrt__os_wide(from), *name = specrt__os_wide(to);
    bool renamed = old && name && MoveFileExW(old, name, MOVEFILE_REPLACE_EXISTING);
    free(old);
    free(name);
    return renamed;
}
#else

SPECRT__INTERNAL long specrt__os_processors(void) {
    return sysconf(_SC_NPROCESSORS_ONLN);
}

SPECRT__INTERNAL bool specrt__os_can_write(const char *folder) {
    return access(folder, W_OK) == 0;
}

SPECRT__INTERNAL bool specrt__os_make_folder(const char *path) {
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

SPECRT__INTERNAL bool specrt__os_cache(char *out, size_t n) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && cache[0];
    if (!given && !(home && home[0])) return false;
    int length = given ? snprintf(out, n, "%s", cache) : snprintf(out, n, "%s/.cache", home);
    return (size_t)length < n;
}

static long specrt__os_process(void) {
    return (long)getpid();
}

SPECRT__INTERNAL FILE *specrt__os_fopen(const char *path, const char *mode) {
    return fopen(path, mode);
}

static bool specrt__os_remove(const char *path) {
    return remove(path) == 0;
}

static bool specrt__os_rename(const char *from, const char *to) {
    return rename(from, to) == 0;
}
#endif

#if !defined(SPECRT_NO_FILES)
/* Under another name first, so that no reader meets half a file. */
SPECRT__INTERNAL bool specrt__os_replace(const char *path, const char *bytes, size_t n) {
    char part[1100];
    int length = snprintf(part, sizeof part, "%s.%ld.tmp", path, specrt__os_process());
    FILE *f = length < (int)sizeof part ? specrt__os_fopen(part, "wb") : NULL;
    if (!f) return false;
    bool written = fwrite(bytes, 1, n, f) == n;
    written = fclose(f) == 0 && written && specrt__os_rename(part, path);
    if (!written) specrt__os_remove(part);
    return written;
}
#endif
#endif

/* --- a worker thread --- */
#if defined(SPECRT_WORKER)
#if defined(_WIN32)
typedef HANDLE specrt__os_thread;
typedef SRWLOCK specrt__os_lock;
typedef CONDITION_VARIABLE specrt__os_signal;
#define SPECRT__OS_THREAD(name, arg)  static DWORD WINAPI name(void *arg)
#define SPECRT__OS_LOCK(lock)         AcquireSRWLockExclusive(lock)
#define SPECRT__OS_UNLOCK(lock)       ReleaseSRWLockExclusive(lock)
#define SPECRT__OS_WAIT(signal, lock) SleepConditionVariableSRW(signal, lock, INFINITE, 0)
#define SPECRT__OS_WAKE(signal)       WakeConditionVariable(signal)
#else
#include <pthread.h>
typedef pthread_t specrt__os_thread;
typedef pthread_mutex_t specrt__os_lock;
typedef pthread_cond_t specrt__os_signal;
#define SPECRT__OS_THREAD(name, arg)  static void *name(void *arg)
#define SPECRT__OS_LOCK(lock)         pthread_mutex_lock(lock)
#define SPECRT__OS_UNLOCK(lock)       pthread_mutex_unlock(lock)
#define SPECRT__OS_WAIT(signal, lock) pthread_cond_wait(signal, lock)
#define SPECRT__OS_WAKE(signal)       pthread_cond_signal(signal)
#endif

struct specrt_worker {
    specrt_env env;
    specrt__os_thread thread;
    specrt__os_lock lock; /* over all below */
    specrt__os_signal more;
    specrt_task *first, *last; /* that wait */
    bool closing;
};

SPECRT__OS_THREAD(specrt__os_work, arg) {
    specrt_worker *w = (specrt_worker *)arg;
    SPECRT__OS_LOCK(&w->lock);
    while (w->first || !w->closing) {
        specrt_task *task = w->first;
        if (!task) {
            SPECRT__OS_WAIT(&w->more, &w->lock);
            continue;
        }
        w->first = task->next;
        SPECRT__OS_UNLOCK(&w->lock);
        task->run(task);
        SPECRT__OS_LOCK(&w->lock);
    }
    SPECRT__OS_UNLOCK(&w->lock);
    return 0;
}

SPECRT_API void specrt_worker_submit(void *worker, specrt_task *task) {
    specrt_worker *w = (specrt_worker *)worker;
    if (!w || !task) return;
    task->next = NULL;
    SPECRT__OS_LOCK(&w->lock);
    if (w->first)
        w->last->next = task;
    else
        w->first = task;
    w->last = task;
    SPECRT__OS_WAKE(&w->more);
    SPECRT__OS_UNLOCK(&w->lock);
}

#if defined(_WIN32)
static bool specrt__os_worker_start(specrt_worker *w, char *why, size_t n) {
    InitializeSRWLock(&w->lock);
    InitializeConditionVariable(&w->more);
    w->thread = CreateThread(NULL, 0, specrt__os_work, w, 0, NULL);
    if (!w->thread) snprintf(why, n, "Windows' error %lu", GetLastError());
    return w->thread != NULL;
}

static void specrt__os_worker_join(specrt_worker *w) {
    WaitForSingleObject(w->thread, INFINITE);
    CloseHandle(w->thread);
}
#else
static void specrt__os_worker_end(specrt_worker *w) {
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
}

static bool specrt__os_worker_start(specrt_worker *w, char *why, size_t n) {
    pthread_mutex_init(&w->lock, NULL); /* neither fails without attributes */
    pthread_cond_init(&w->more, NULL);
    int code = pthread_create(&w->thread, NULL, specrt__os_work, w);
    if (code == 0) return true;
    snprintf(why, n, "%s", strerror(code));
    specrt__os_worker_end(w);
    return false;
}

static void specrt__os_worker_join(specrt_worker *w) {
    pthread_join(w->thread, NULL);
    specrt__os_worker_end(w);
}
#endif

SPECRT_API specrt_status specrt_worker_create(const specrt_env *env, specrt_worker **out,
                                              specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    char why[100];
    SPECRT__NEED(out);
    *out = NULL;
    specrt_worker *w = (specrt_worker *)specrt__base_alloc(&own, sizeof(specrt_worker));
    if (!w) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "worker: out of memory");
    memset(w, 0, sizeof *w);
    w->env = own;
    if (!specrt__os_worker_start(w, why, sizeof why)) {
        specrt__base_free(&own, w);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "worker: expected a new thread, found: %s", why);
    }
    *out = w;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_worker_close(specrt_worker *worker) {
    if (!worker) return;
    SPECRT__OS_LOCK(&worker->lock);
    worker->closing = true;
    SPECRT__OS_WAKE(&worker->more);
    SPECRT__OS_UNLOCK(&worker->lock);
    specrt__os_worker_join(worker);
    specrt_env env = worker->env;
    specrt__base_free(&env, worker);
}
#endif

// >>bundle : src/core/bundle.h
/* bundle.h : an open bundle, for the files that read its sections */

struct specrt_bundle {
    specrt_env env;
    specrt__os_map map; /* of a bundle opened by path */
    const uint8_t *bytes;
    uint64_t n_bytes;
    const specrt_bundle_section *sections; /* [n_sections], in bytes */
    int32_t n_sections;
    const void *data[SPECRT_BUNDLE_MAX_SECTIONS]; /* in bytes or in decoded */
    uint8_t *decoded;                             /* all zstd sections, owned */
    char name[256];                               /* path, for messages */
};

/* --- section contents --- */

static inline specrt_status specrt__bundle_bad(const specrt_bundle *b, const char *tag,
                                               const char *wrong, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CONTENT, "%s: section '%s': %s", b->name, tag,
                            wrong);
}

/* --- views --- */

/* The version of a section that it has. */
static inline uint32_t specrt__bundle_version(const specrt_bundle *bundle, const char *tag) {
    for (int32_t i = 0; i < bundle->n_sections; i++)
        if (strncmp(bundle->sections[i].tag, tag, 8) == 0) return bundle->sections[i].version;
    return 0;
}

SPECRT__INTERNAL specrt_status specrt__bundle_missing(const specrt_bundle *bundle, const char *tag,
                                                      specrt_error *err);

// >>bundle : src/core/bundle.c
/* bundle.c : owns the container: header, section table, checksums, decompression, and views of the sections
 * "ident" and "ranks", whose content is checked once at open so that users of the views need not.
 * Refuses whatever it would have to trust: every size, offset and count is checked before use, a
 * section is never larger than the cap of its kind, a frame's own idea of its size is not asked.
 * Invariants of an open bundle: immutable; sections[i] has data[i], NULL when it was skipped. */

#if !defined(SPECRT_NO_ZSTD)
#include <zstd.h>
#endif

/* The sections this runtime knows; the caps bound what a hostile file can make it allocate. */
typedef struct specrt__bundle_kind {
    char tag[9];        /* of up to 8 characters, padded with NULs */
    uint32_t version;   /* the newest it reads, as all before it */
    uint64_t max_bytes; /* decompressed */
    const char *tool;   /* that builds it */
} specrt__bundle_kind;

#define SPECRT__BUNDLE_FLAGS                                                                       \
    (SPECRT_SECTION_ZSTD | SPECRT_SECTION_OPTIONAL | SPECRT_SECTION_DEPENDS_TOKENIZER |            \
     SPECRT_SECTION_DEPENDS_HEAD | SPECRT_SECTION_DEPENDS_DRAFTER)

static const specrt__bundle_kind specrt__bundle_kinds[] = {
    {"centroid", 1, 1ull << 30, "cluster-build --router centroid"},
    {"cluster", 1, 1ull << 30, "cluster-build --router dynaspec"},
    {"cograph", 1, 4ull << 30, "cograph-build"},
    {"group", 1, 1ull << 30, "cluster-build --router coral"},
    {"hnsw", 1, 64ull << 30, "hnsw-build"},
    {"ident", 1, sizeof(specrt_ident), "any builder"},
    {"prov", 1, 16u << 20, "any builder"},
    {"ranks", 1, sizeof(specrt_ranks_header) + 12ull * SPECRT_MAX_VOCAB, "vocabtrim-calibrate"},
    {"sketch", 4, 64ull << 30, "sketch-build"},
    {"", 0, 0, ""}, /* the end */
};

static const specrt__bundle_kind *specrt__bundle_kind_of(const char tag[8]) {
    const specrt__bundle_kind *kind = specrt__bundle_kinds;
    while (kind->version && memcmp(kind->tag, tag, 8) != 0) kind++;
    return kind->version ? kind : NULL;
}

/* --- the container --- */

static bool specrt__bundle_all_zero(const uint8_t *p, uint64_t n) {
    while (n > 0 && *p == 0) p++, n--;
    return n == 0;
}

static specrt_status specrt__bundle_check_magic(const specrt_bundle *b, specrt_error *err) {
    size_t n = b->n_bytes < 8 ? (size_t)b->n_bytes : 8;
    if (n == 0 || memcmp(b->bytes, SPECRT_BUNDLE_MAGIC, n) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MAGIC,
                                "%s: not a specrt bundle; expected the magic \\x89SPECB, found %s",
                                b->name, n ? "other bytes" : "an empty file");
    if (b->n_bytes < sizeof(specrt_bundle_header))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TRUNCATED,
                                "%s: truncated; expected a header of 64 bytes, found %d", b->name,
                                (int)b->n_bytes);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_check_header(const specrt_bundle *b, specrt_error *err) {
    specrt_bundle_header h;
    memcpy(&h, b->bytes, sizeof h);
    if (h.version_major != SPECRT_BUNDLE_VERSION_MAJOR)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: format version: expected %d.x, found %u.%u; update specrt or "
                                "rebuild the bundle",
                                b->name, SPECRT_BUNDLE_VERSION_MAJOR, (unsigned)h.version_major,
                                (unsigned)h.version_minor);
    uint64_t sum = specrt_hash64(&h, offsetof(specrt_bundle_header, header_checksum), 0);
    if (sum != h.header_checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: header: checksum expected %016llx, found %016llx; the file is "
                                "damaged",
                                b->name, (unsigned long long)h.header_checksum,
                                (unsigned long long)sum);
    if (h.flags != 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: header: flags %#x are unknown to specrt %s; update specrt",
                                b->name, (unsigned)h.flags, SPECRT_VERSION_STRING);
    if (h.file_bytes != b->n_bytes)
        return specrt_error_set(
            err,
            h.file_bytes > b->n_bytes ? SPECRT_STATUS_BUNDLE_TRUNCATED : SPECRT_STATUS_BUNDLE_TABLE,
            "%s: header: expected a file of %llu bytes, found %llu; copy it again", b->name,
            (unsigned long long)h.file_bytes, (unsigned long long)b->n_bytes);
    return SPECRT_STATUS_OK;
}

/* Finds the table and checks its bounds and its checksum. */
static specrt_status specrt__bundle_check_table(specrt_bundle *b, specrt_error *err) {
    specrt_bundle_header h;
    memcpy(&h, b->bytes, sizeof h);
    if (h.n_sections > SPECRT_BUNDLE_MAX_SECTIONS)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT,
                                "%s: header: expected at most %d sections, found %u", b->name,
                                SPECRT_BUNDLE_MAX_SECTIONS, (unsigned)h.n_sections);
    size_t bytes = h.n_sections * sizeof(specrt_bundle_section);
    if (h.table_offset != sizeof h || bytes > b->n_bytes - sizeof h)
        return specrt_error_set(
            err, SPECRT_STATUS_BUNDLE_TABLE,
            "%s: header: section table: expected %u sections at offset 64, found "
            "offset %llu in %llu bytes; copy the file again",
            b->name, (unsigned)h.n_sections, (unsigned long long)h.table_offset,
            (unsigned long long)b->n_bytes);
    b->sections = (const specrt_bundle_section *)(const void *)(b->bytes + sizeof h);
    b->n_sections = (int32_t)h.n_sections;
    if (specrt_hash64(b->sections, bytes, 0) != h.table_checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: section table: checksum mismatch; the file is damaged",
                                b->name);
    return SPECRT_STATUS_OK;
}

/* One to eight of [a-z0-9_-], padded with NULs. */
static bool specrt__bundle_tag_ok(const char tag[8]) {
    int n = 0;
    while (n < 8 && ((tag[n] >= 'a' && tag[n] <= 'z') || (tag[n] >= '0' && tag[n] <= '9') ||
                     tag[n] == '_' || tag[n] == '-'))
        n++;
    return n > 0 && specrt__bundle_all_zero((const uint8_t *)tag + n, (uint64_t)(8 - n));
}

/* NULL, or what is wrong with section i, whose bytes may not start before *end; moves *end on. */
static const char *specrt__bundle_check_section(const specrt_bundle *b, int32_t i, uint64_t *end) {
    const specrt_bundle_section *s = &b->sections[i];
    if (!specrt__bundle_tag_ok(s->tag)) return "its tag is no name";
    if (i > 0 && memcmp(s[-1].tag, s->tag, 8) >= 0) return "tags are not ascending and distinct";
    if (s->offset % SPECRT_BUNDLE_ALIGN != 0) return "its offset is not a multiple of 64";
    if (s->offset < *end) return "it overlaps what stands before it";
    if (s->offset > b->n_bytes || s->stored_bytes > b->n_bytes - s->offset)
        return "it reaches beyond the end of the file";
    if (!(s->flags & SPECRT_SECTION_ZSTD) && s->raw_bytes != s->stored_bytes)
        return "it is stored raw, yet its raw and stored sizes differ";
    if (!specrt__bundle_all_zero(b->bytes + *end, s->offset - *end))
        return "the padding before it is not zero";
    *end = s->offset + s->stored_bytes;
    return NULL;
}

static specrt_status specrt__bundle_check_sections(const specrt_bundle *b, specrt_error *err) {
    uint64_t end =
        sizeof(specrt_bundle_header) + (uint64_t)b->n_sections * sizeof(specrt_bundle_section);
    for (int32_t i = 0; i < b->n_sections; i++) {
        const char *wrong = specrt__bundle_check_section(b, i, &end);
        if (wrong)
            return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TABLE, "%s: section %d: %s", b->name,
                                    (int)i, wrong);
    }
    if (end != b->n_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TABLE,
                                "%s: expected the last section to end the file at %llu, found %llu",
                                b->name, (unsigned long long)b->n_bytes, (unsigned long long)end);
    return SPECRT_STATUS_OK;
}

/* --- section contents --- */

/* A zstd block takes 4 bytes or more, and gives 128 KiB or less. */
enum { SPECRT__BUNDLE_ZSTD_RATIO = 32768 };

/* Whether section i is one to read: sets *known, or refuses it unless it is marked optional. */
static specrt_status specrt__bundle_know(const specrt_bundle *b, int32_t i, bool *known,
                                         specrt_error *err) {
    const specrt_bundle_section *s = &b->sections[i];
    const specrt__bundle_kind *kind = specrt__bundle_kind_of(s->tag);
    *known = kind && s->version >= 1 && s->version <= kind->version &&
             (s->flags & ~SPECRT__BUNDLE_FLAGS) == 0;
    if (!*known && !(s->flags & SPECRT_SECTION_OPTIONAL))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: section '%.8s' version %u is unknown to specrt %s and not "
                                "optional; update specrt",
                                b->name, s->tag, (unsigned)s->version, SPECRT_VERSION_STRING);
    if (!*known && b->env.log) {
        char line[96];
        snprintf(line, sizeof line, "skipping the unknown optional section '%.8s'", s->tag);
        b->env.log(b->env.user, SPECRT_LOG_INFO, "bundle", line);
    }
    if (*known && s->raw_bytes > kind->max_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT,
                                "%s: section '%.8s': expected at most %llu bytes, found %llu",
                                b->name, s->tag, (unsigned long long)kind->max_bytes,
                                (unsigned long long)s->raw_bytes);
    if (*known && s->flags & SPECRT_SECTION_ZSTD &&
        s->raw_bytes / SPECRT__BUNDLE_ZSTD_RATIO > s->stored_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected %llu bytes, more than a zstd frame "
                                "of %llu can hold; the file is damaged",
                                b->name, s->tag, (unsigned long long)s->raw_bytes,
                                (unsigned long long)s->stored_bytes);
    return SPECRT_STATUS_OK;
}

#if defined(SPECRT_NO_ZSTD)

static specrt_status specrt__bundle_unzstd(const specrt_bundle *b, const specrt_bundle_section *s,
                                           uint8_t *out, specrt_error *err) {
    (void)out;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: section '%.8s' is compressed and this program was built without "
                            "zstd; run specrt-bundle unpack",
                            b->name, s->tag);
}

#else

/* Exactly one frame that gives exactly raw_bytes. */
static specrt_status specrt__bundle_unzstd(const specrt_bundle *b, const specrt_bundle_section *s,
                                           uint8_t *out, specrt_error *err) {
    const uint8_t *stored = b->bytes + s->offset;
    size_t n_stored = (size_t)s->stored_bytes, n = ZSTD_findFrameCompressedSize(stored, n_stored);
    if (!ZSTD_isError(n) && n != n_stored)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected one zstd frame, found more bytes",
                                b->name, s->tag);
    if (!ZSTD_isError(n)) n = ZSTD_decompress(out, (size_t)s->raw_bytes, stored, n_stored);
    if (ZSTD_isError(n))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD, "%s: section '%.8s': zstd: %s",
                                b->name, s->tag, ZSTD_getErrorName(n));
    if (n != s->raw_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected %llu bytes, found %llu", b->name,
                                s->tag, (unsigned long long)s->raw_bytes, (unsigned long long)n);
    return SPECRT_STATUS_OK;
}

#endif

/* Checks section i's stored bytes and points data[i] at its content, unpacked at *decoded. */
static specrt_status specrt__bundle_load(specrt_bundle *b, int32_t i, uint8_t **decoded,
                                         specrt_error *err) {
    const specrt_bundle_section *s = &b->sections[i];
    uint64_t sum = specrt_hash64(b->bytes + s->offset, (size_t)s->stored_bytes, 0);
    if (sum != s->checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: section '%.8s': checksum expected %016llx, found %016llx; the "
                                "file is damaged",
                                b->name, s->tag, (unsigned long long)s->checksum,
                                (unsigned long long)sum);
    if (!(s->flags & SPECRT_SECTION_ZSTD)) {
        b->data[i] = b->bytes + s->offset;
        return SPECRT_STATUS_OK;
    }
    SPECRT__TRY(specrt__bundle_unzstd(b, s, *decoded, err));
    b->data[i] = *decoded;
    *decoded += specrt__base_align(s->raw_bytes, SPECRT_BUNDLE_ALIGN);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_load_all(specrt_bundle *b, specrt_error *err) {
    bool known[SPECRT_BUNDLE_MAX_SECTIONS];
    uint64_t total = 0;
    for (int32_t i = 0; i < b->n_sections; i++) {
        const specrt_bundle_section *s = &b->sections[i];
        SPECRT__TRY(specrt__bundle_know(b, i, &known[i], err));
        if (known[i] && s->flags & SPECRT_SECTION_ZSTD)
            total += specrt__base_align(s->raw_bytes, SPECRT_BUNDLE_ALIGN);
    }
    if (total > 0) {
        b->decoded = (uint8_t *)specrt__base_alloc(&b->env, total + SPECRT_BUNDLE_ALIGN);
        if (!b->decoded)
            return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                    "%s: out of memory for %llu bytes of sections", b->name,
                                    (unsigned long long)total);
    }
    uint8_t *decoded =
        (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)b->decoded, SPECRT_BUNDLE_ALIGN);
    for (int32_t i = 0; i < b->n_sections; i++)
        if (known[i]) SPECRT__TRY(specrt__bundle_load(b, i, &decoded, err));
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_check_ident(const specrt_bundle *b, specrt_error *err) {
    size_t n;
    const specrt_ident *d = (const specrt_ident *)specrt_bundle_data(b, "ident", &n);
    if (!d) return SPECRT_STATUS_OK;
    if (n != sizeof *d)
        return specrt__bundle_bad(b, "ident", "size: expected 1200 bytes, found another", err);
    if (!memchr(d->tokenizer_name, 0, sizeof d->tokenizer_name) ||
        !memchr(d->head_name, 0, sizeof d->head_name))
        return specrt__bundle_bad(b, "ident", "names: expected a NUL at the end, found none", err);
    if (d->n_vocab < 0 || d->n_vocab > SPECRT_MAX_VOCAB || d->n_normal < 0 ||
        d->n_normal > d->n_vocab)
        return specrt__bundle_bad(
            b, "ident", "n_vocab, n_normal: expected 0 <= n_normal <= n_vocab, found others", err);
    if (d->head_rows < 0 || d->head_cols < 0 || (d->head_rows > 0) != (d->head_cols > 0))
        return specrt__bundle_bad(
            b, "ident", "head_rows, head_cols: expected both above 0, or both 0, found others",
            err);
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++)
        for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
            if (!(fabsf(d->head_digest.values[i][k]) <= FLT_MAX))
                return specrt__bundle_bad(
                    b, "ident", "head_digest: expected finite numbers, found others", err);
    return SPECRT_STATUS_OK;
}

/* The view of the section's bytes, which hold at least its header. */
static specrt_ranks specrt__bundle_ranks_view(const void *data) {
    specrt_ranks view;
    view.header = (const specrt_ranks_header *)data;
    view.counts = (const uint64_t *)(const void *)(view.header + 1);
    view.ids = (const int32_t *)(const void *)(view.counts + view.header->n_ranked);
    return view;
}

static bool specrt__bundle_ranks_sizes_ok(const specrt_ranks_header *h) {
    return 0 <= h->n_terminators && h->n_terminators <= h->n_forced &&
           h->n_forced <= h->n_default && 1 <= h->n_default && h->n_default <= h->n_valid &&
           h->n_valid <= h->n_ranked && h->n_ranked <= h->n_vocab && h->n_vocab <= SPECRT_MAX_VOCAB;
}

/* NULL, or what is wrong with the ids; seen: scratch, zeroed, one bit per id of the vocabulary. */
static const char *specrt__bundle_check_ids(const specrt_ranks *r, uint8_t *seen) {
    for (int32_t i = 0; i < r->header->n_ranked; i++) {
        int32_t id = r->ids[i];
        if (id < 0 || id >= r->header->n_vocab)
            return "ids: expected ids below n_vocab, found another";
        if (seen[id >> 3] >> (id & 7) & 1) return "ids: expected distinct ids, found one twice";
        seen[id >> 3] = (uint8_t)(seen[id >> 3] | 1 << (id & 7));
    }
    return NULL;
}

static specrt_status specrt__bundle_check_ranks(const specrt_bundle *b, specrt_error *err) {
    size_t n;
    const void *data = specrt_bundle_data(b, "ranks", &n);
    if (!data) return SPECRT_STATUS_OK;
    if (n < sizeof(specrt_ranks_header))
        return specrt__bundle_bad(b, "ranks", "size: expected at least its header, found less",
                                  err);
    const specrt_ranks_header *h = (const specrt_ranks_header *)data;
    if (!specrt__bundle_ranks_sizes_ok(h))
        return specrt__bundle_bad(b, "ranks",
                                  "expected 0 <= n_terminators <= n_forced <= n_default <= n_valid "
                                  "<= n_ranked <= n_vocab <= 16777216",
                                  err);
    if (n - sizeof *h != (uint64_t)h->n_ranked * 12)
        return specrt__bundle_bad(
            b, "ranks", "size: expected 12 bytes per ranked id after the header, found another",
            err);
    size_t n_seen = ((size_t)h->n_vocab + 7) / 8;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(&b->env, n_seen);
    if (!seen) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", b->name);
    memset(seen, 0, n_seen);
    specrt_ranks view = specrt__bundle_ranks_view(data);
    const char *wrong = specrt__bundle_check_ids(&view, seen);
    specrt__base_free(&b->env, seen);
    return wrong ? specrt__bundle_bad(b, "ranks", wrong, err) : SPECRT_STATUS_OK;
}

/* --- opening --- */

static specrt_status specrt__bundle_read(specrt_bundle *b, specrt_error *err) {
    SPECRT__TRY(specrt__bundle_check_magic(b, err));
    SPECRT__TRY(specrt__bundle_check_header(b, err));
    SPECRT__TRY(specrt__bundle_check_table(b, err));
    SPECRT__TRY(specrt__bundle_check_sections(b, err));
    SPECRT__TRY(specrt__bundle_load_all(b, err));
    SPECRT__TRY(specrt__bundle_check_ident(b, err));
    return specrt__bundle_check_ranks(b, err);
}

/* Takes over the mapping, also on failure. */
static specrt_status specrt__bundle_open(specrt__os_map map, const void *bytes, size_t n_bytes,
                                         const char *name, const specrt_env *env,
                                         specrt_bundle **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_bundle *b = (specrt_bundle *)specrt__base_alloc(&own, sizeof *b);
    *out = NULL;
    if (!b) {
        specrt__os_map_close(&map);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", name);
    }
    memset(b, 0, sizeof *b);
    b->env = own;
    b->map = map;
    b->bytes = (const uint8_t *)bytes;
    b->n_bytes = n_bytes;
    snprintf(b->name, sizeof b->name, "%s", name);
    specrt_status status = specrt__bundle_read(b, err);
    if (status == SPECRT_STATUS_OK)
        *out = b;
    else
        specrt_bundle_close(b);
    return status;
}

SPECRT_API specrt_status specrt_bundle_open(const char *path, const specrt_env *env,
                                            specrt_bundle **out, specrt_error *err) {
    specrt__os_map map;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(path);
    SPECRT__TRY(specrt__os_map_open(path, &map, err));
    return specrt__bundle_open(map, map.bytes, map.n, path, env, out, err);
}

SPECRT_API specrt_status specrt_bundle_open_memory(const void *bytes, size_t n_bytes,
                                                   const char *name, const specrt_env *env,
                                                   specrt_bundle **out, specrt_error *err) {
    specrt__os_map none;
    memset(&none, 0, sizeof none);
    SPECRT__NEED(out);
    *out = NULL;
    if (n_bytes > 0) SPECRT__NEED(bytes); /* an empty file has none */
    SPECRT__NEED(name);
    if ((uintptr_t)bytes % 16 != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected bytes aligned to 16, found an address that is not",
                                name);
    return specrt__bundle_open(none, bytes, n_bytes, name, env, out, err);
}

SPECRT_API void specrt_bundle_close(specrt_bundle *bundle) {
    if (!bundle) return;
    specrt_env env = bundle->env;
    specrt__base_free(&env, bundle->decoded);
    specrt__os_map_close(&bundle->map);
    specrt__base_free(&env, bundle);
}

/* --- views --- */

SPECRT_API const specrt_bundle_section *specrt_bundle_sections(const specrt_bundle *bundle,
                                                               int32_t *n_sections) {
    if (n_sections) *n_sections = bundle ? bundle->n_sections : 0;
    return bundle && n_sections ? bundle->sections : NULL;
}

SPECRT_API const void *specrt_bundle_data(const specrt_bundle *bundle, const char *tag,
                                          size_t *n_bytes) {
    if (n_bytes) *n_bytes = 0;
    for (int32_t i = 0; bundle && tag && n_bytes && i < bundle->n_sections; i++) {
        if (strncmp(bundle->sections[i].tag, tag, 8) != 0 || strlen(tag) > 8) continue;
        if (bundle->data[i]) *n_bytes = (size_t)bundle->sections[i].raw_bytes;
        return bundle->data[i];
    }
    return NULL;
}

SPECRT_API const specrt_ident *specrt_bundle_ident(const specrt_bundle *bundle) {
    size_t n;
    return (const specrt_ident *)specrt_bundle_data(bundle, "ident", &n);
}

/* The first eight bytes of a digest in hex tell two of them apart. */
static const char *specrt__bundle_hex(const uint8_t *digest, char out[20]) {
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return out;
}

SPECRT_API specrt_status specrt_bundle_check_tokenizer(const specrt_bundle *bundle,
                                                       const uint8_t sha256[32],
                                                       specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    char ours[20], theirs[20];
    SPECRT__NEED(bundle);
    SPECRT__NEED(sha256);
    if (!ident || specrt__bundle_all_zero(ident->tokenizer_sha256, 32) ||
        memcmp(ident->tokenizer_sha256, sha256, 32) == 0)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                            "%s: tokenizer: expected '%s' (sha256 %s...), found another (sha256 "
                            "%s...); use the bundle made for this model",
                            bundle->name, ident->tokenizer_name,
                            specrt__bundle_hex(ident->tokenizer_sha256, ours),
                            specrt__bundle_hex(sha256, theirs));
}

/* The error for a section a caller needs, with the name of the tool that builds it. */
SPECRT__INTERNAL specrt_status specrt__bundle_missing(const specrt_bundle *bundle, const char *tag,
                                                      specrt_error *err) {
    const specrt__bundle_kind *kind = specrt__bundle_kinds;
    while (strncmp(kind->tag, tag, 8) != 0) kind++;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                            "%s: has no section '%s'; %s builds it", bundle->name, tag, kind->tool);
}

SPECRT_API specrt_status specrt_bundle_ranks(const specrt_bundle *bundle, specrt_ranks *out,
                                             specrt_error *err) {
    size_t n;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    const void *data = specrt_bundle_data(bundle, "ranks", &n);
    if (!data) return specrt__bundle_missing(bundle, "ranks", err);
    *out = specrt__bundle_ranks_view(data);
    return SPECRT_STATUS_OK;
}

// >>rows : src/core/rows.h
/* rows.h : decoding of rows that are stored in blocks */

/* The weights of 16 codes of iq4_nl with a scale of 1: close where weights are many. */

/* ---- one block each: bytes in ggml's layout to f32 -------------------------------------------- */

SPECRT__INTERNAL void specrt__rows_decode_blocks(specrt_dtype dtype, const uint8_t *row,
                                                 int64_t n_cols, float *out);

// >>rows : src/core/rows.c
/* rows.c : owns the formats a weight row can be stored in: names, sizes, decoding to f32.
 * Refuses integer and unknown types. Rows may have any alignment. */

SPECRT_API const char *specrt_dtype_name(specrt_dtype dtype) {
    switch (dtype) {
#define SPECRT_DTYPE_CASE(name, number, elems, bytes, text)                                        \
    case SPECRT_DTYPE_##name: return text;
        SPECRT_DTYPE_LIST(SPECRT_DTYPE_CASE)
#undef SPECRT_DTYPE_CASE
    default: return NULL;
    }
}

/* Elements and bytes of a block; false for types not in the list. */
static bool specrt__rows_block(specrt_dtype dtype, int64_t *n_elems, int64_t *n_bytes) {
    switch (dtype) {
#define SPECRT_DTYPE_CASE(name, number, elems, bytes, text)                                        \
    case SPECRT_DTYPE_##name: *n_elems = elems, *n_bytes = bytes; return true;
        SPECRT_DTYPE_LIST(SPECRT_DTYPE_CASE)
#undef SPECRT_DTYPE_CASE
    default: return false;
    }
}

SPECRT_API size_t specrt_row_bytes(specrt_dtype dtype, int64_t n_cols) {
    int64_t n_elems, n_bytes;
    if (!specrt__rows_block(dtype, &n_elems, &n_bytes)) return 0;
    if (n_cols % n_elems != 0) return 0;
    if ((uint64_t)(n_cols / n_elems) > (uint64_t)PTRDIFF_MAX / (uint64_t)n_bytes) return 0;
    return (size_t)(n_cols / n_elems * n_bytes);
}

/* ---- one block each: bytes in ggml's layout to f32 -------------------------------------------- */

static void specrt__rows_q4_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((block[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void specrt__rows_q4_1(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float m = specrt__base_f16(specrt__base_load16(block + 2));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(block[4 + i] & 15) + m;
        out[16 + i] = d * (float)(block[4 + i] >> 4) + m;
    }
}

SPECRT__INTERNAL const int8_t specrt__rows_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                         1,    13,   25,  38,  53,  69,  89,  113};

static void specrt__rows_iq4_nl(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)specrt__rows_levels[block[2 + i] & 15];
        out[16 + i] = d * (float)specrt__rows_levels[block[2 + i] >> 4];
    }
}

/* Element i of 32 with its fifth bit, which is bit i of `high`. */
static inline int specrt__rows_five_bits(const uint8_t *low, uint32_t high, int i) {
    int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return nibble | (int)(high >> i & 1u) << 4;
}

static void specrt__rows_q5_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    uint32_t high = specrt__base_load32(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(specrt__rows_five_bits(block + 6, high, i) - 16);
}

static void specrt__rows_q5_1(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float m = specrt__base_f16(specrt__base_load16(block + 2));
    uint32_t high = specrt__base_load32(block + 4);
    for (int i = 0; i < 32; i++) out[i] = d * (float)specrt__rows_five_bits(block + 8, high, i) + m;
}

static void specrt__rows_q8_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)block[2 + i];
}

/* q4_k and q5_k: f16 d, f16 dmin, then eight 6-bit scales and eight 6-bit minima in 12 bytes. Group j
 * of 32 elements takes nibble j % 2 of the bytes at low + 32 * (j / 2), and bit j of high[0..31]. */
static void specrt__rows_k_groups(const uint8_t *block, const uint8_t *low, const uint8_t *high,
                                  float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float dmin = specrt__base_f16(specrt__base_load16(block + 2));
    const uint8_t *s = block + 4;
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = low + 32 * (j / 2);
        for (int i = 0; i < 32; i++) {
            int n = (q[i] >> 4 * (j % 2) & 15) | (high[i] >> j & 1) << 4;
            out[32 * j + i] = ds * (float)n - dm;
        }
    }
}

static void specrt__rows_q4_k(const uint8_t *block, float *out) {
    static const uint8_t no_high_bits[32] = {0};
    specrt__rows_k_groups(block, block + 16, no_high_bits, out);
}

static void specrt__rows_q5_k(const uint8_t *block, float *out) {
    specrt__rows_k_groups(block, block + 48, block + 16, out);
}

/* q6_k: 128 bytes of low nibbles, 64 of bit pairs, 16 int8 scales, then f16 d. Each half of the block
 * is four runs of 32 elements that share the bytes of the bit pairs. */
static void specrt__rows_q6_k(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block + 208));
    for (int half = 0; half < 2; half++) {
        const uint8_t *high = block + 128 + 32 * half;
        for (int run = 0; run < 4; run++) {
            const uint8_t *low = block + 64 * half + 32 * (run % 2);
            const uint8_t *scales = block + 192 + 8 * half + 2 * run;
            for (int i = 0; i < 32; i++) {
                int n = (low[i] >> 4 * (run / 2) & 15) | (high[i] >> 2 * run & 3) << 4;
                *out++ = d * (float)(int8_t)scales[i / 16] * (float)(n - 32);
            }
        }
    }
}

typedef void (*specrt__rows_decoder)(const uint8_t *block, float *out);

/* NULL for types that are not stored in blocks. */
static specrt__rows_decoder specrt__rows_find_decoder(specrt_dtype dtype) {
    switch (dtype) {
    case SPECRT_DTYPE_Q4_0: return specrt__rows_q4_0;
    case SPECRT_DTYPE_Q4_1: return specrt__rows_q4_1;
    case SPECRT_DTYPE_Q5_0: return specrt__rows_q5_0;
    case SPECRT_DTYPE_Q5_1: return specrt__rows_q5_1;
    case SPECRT_DTYPE_Q8_0: return specrt__rows_q8_0;
    case SPECRT_DTYPE_Q4_K: return specrt__rows_q4_k;
    case SPECRT_DTYPE_Q5_K: return specrt__rows_q5_k;
    case SPECRT_DTYPE_Q6_K: return specrt__rows_q6_k;
    case SPECRT_DTYPE_IQ4_NL: return specrt__rows_iq4_nl;
    default: return NULL;
    }
}

SPECRT__INTERNAL void specrt__rows_decode_blocks(specrt_dtype dtype, const uint8_t *row,
                                                 int64_t n_cols, float *out) {
    specrt__rows_decoder decode = specrt__rows_find_decoder(dtype);
    int64_t n_elems = 1, n_bytes = 0;
    specrt__rows_block(dtype, &n_elems, &n_bytes);
    for (int64_t i = 0; i < n_cols; i += n_elems, row += n_bytes) decode(row, out + i);
}

SPECRT_API specrt_status specrt_row_decode(specrt_dtype dtype, const void *row, int64_t n_cols,
                                           float *out) {
    const uint8_t *p = (const uint8_t *)row;
    bool blocks = specrt__rows_find_decoder(dtype) != NULL;
    if (!row || !out) return SPECRT_STATUS_BAD_ARG;
    if (!blocks && dtype != SPECRT_DTYPE_F32 && dtype != SPECRT_DTYPE_F16 &&
        dtype != SPECRT_DTYPE_BF16)
        return SPECRT_STATUS_UNSUPPORTED;
    size_t bytes = specrt_row_bytes(dtype, n_cols);
    if (bytes == 0) return SPECRT_STATUS_BAD_ARG;
    if (blocks)
        specrt__rows_decode_blocks(dtype, p, n_cols, out);
    else if (dtype == SPECRT_DTYPE_F32)
        memcpy(out, p, bytes);
    else if (dtype == SPECRT_DTYPE_F16)
        for (int64_t i = 0; i < n_cols; i++)
            out[i] = specrt__base_f16(specrt__base_load16(p + 2 * i));
    else
        for (int64_t i = 0; i < n_cols; i++)
            out[i] = specrt__base_bf16(specrt__base_load16(p + 2 * i));
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_to_f16(const float *x, int64_t n, uint16_t *out) {
    for (int64_t i = 0; x && out && i < n; i++) out[i] = specrt__base_to_f16(x[i]);
}

// >>simd : src/core/simd.h
/* simd.h : owns the kernels: dot products, the sum of exponentials and the search for great logits, for
 * every instruction set. Refuses nothing; its callers checked. Rows and vectors may have any alignment.
 * The arithmetic is one definition for all formats, batches and instruction sets: a column is
 * decoded to f32 (exactly, for f32, f16, bf16 and q8_0), column j is fused into lane j % 16, and
 * the lanes are added as a tree. So a logit has the same bits whatever it is batched with. (Without
 * a fused instruction about one operation in 2^29 rounds differently.) Instructions that take a
 * bfloat16 or 8-bit hidden state (dpbf16, dpbusd) are not used: they would round it. */

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) ||                                     \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error                                                                                             \
    "specrt.h: compile the implementation without -ffast-math or parts of it; it tells NaN, rounds"
#endif

/* With these instructions clang makes of `a > b ? a : b` one that gives anything for NaN. */
#if defined(__wasm_relaxed_simd__)
#error "specrt.h: compile the implementation without -mrelaxed-simd; it tells NaN on purpose"
#endif

/* Which vector instructions there may be. */
#if !defined(SPECRT_NO_SIMD) && defined(__GNUC__) && defined(__x86_64__)
#define SPECRT__SIMD_X86
#elif !defined(SPECRT_NO_SIMD) && defined(__GNUC__) && defined(__aarch64__)
#define SPECRT__SIMD_ARM64
#elif !defined(SPECRT_NO_SIMD) && defined(__wasm_simd128__)
#define SPECRT__SIMD_WASM
#endif

enum {
    SPECRT__SIMD_F32,
    SPECRT__SIMD_F16,
    SPECRT__SIMD_BF16,
    SPECRT__SIMD_Q8_0,
    SPECRT__SIMD_FORMATS
};

enum {
    SPECRT__SIMD_MOST = 6, /* hidden rows of the widest tile */
    SPECRT__SIMD_SCAN = 16 /* logits that find() tells from others */
};

/* Four rows against one hidden row.
 *   next   : four rows to fetch into the cache meanwhile
 *   hidden : f32 [n_cols]
 *   out    : f32 [4] */
typedef void specrt__simd_four(const uint8_t *const *rows, const uint8_t *const *next,
                               const float *hidden, int64_t n_cols, float *out);

/* Four rows, read side by side, against a few hidden rows: adds to sums that are kept for later columns.
 *   next   : four stretches, each to be fetched meanwhile: `step` bytes for every 32 columns
 *   hidden : pointers to f32 [32 n_blocks]
 *   from, sums : f32 [hidden rows, 4, 16], those before and after; may be the same */
typedef void specrt__simd_tile(const uint8_t *const *rows, const uint8_t *const *next, int64_t step,
                               const float *const *hidden, int64_t n_blocks, const float *from,
                               float *sums);

/* Adds the 16 lanes of a tile's sums: sums f32 [n, 4, 16], out f32 n rows of 4, `stride` apart. */
typedef void specrt__simd_lanes(const float *sums, int32_t n, float *out, size_t stride);

/* Products of four rows of 8-bit numbers with a vector of 16-bit ones: whole numbers, so that every
 * instruction set gives the same, as long as the sizes of a row's terms add up to less than 2^31.
 *   n_cols : a multiple of 32
 *   out    : i32 [4] */
typedef void specrt__simd_tile_i8(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                  int32_t *out);

typedef struct specrt__simd_kernels {
    const char *name;
    specrt__simd_four *four[SPECRT__SIMD_FORMATS];   /* rows side by side */
    specrt__simd_four *stream[SPECRT__SIMD_FORMATS]; /* the same, made for rows from memory */
    specrt__simd_tile *tile[SPECRT__SIMD_FORMATS][SPECRT__SIMD_MOST - 1]; /* of 2, 3, ... */
    int n_hidden[SPECRT__SIMD_FORMATS]; /* of the widest tile, 3 at least */
    specrt__simd_lanes *lanes;
    specrt__simd_tile_i8 *tile_i8;
    double (*sum_exp)(const float *x, int64_t n, float max); /* of exp(x - max); NaN counts 0 */
    /* The first multiple of SPECRT__SIMD_SCAN from which on some of as many are at least `bound`, NaN or
     * infinite, or fewer are left */
    int64_t (*find)(const float *x, int64_t n, float bound);
} specrt__simd_kernels;

SPECRT__INTERNAL int specrt__simd_format(specrt_dtype dtype);
SPECRT__INTERNAL const specrt__simd_kernels *specrt__simd_choose(void);

// >>simd_kernels : src/core/simd_kernels.h
/* simd_kernels.h : the kernels, written once, over vectors of as many lanes as an instruction set has. A
 * file that has the operations of one makes its kernels by SPECRT__SIMD_KERNELS().
 *
 * A product takes four rows, in blocks of 32 columns. Column j is fused into lane j % 16 of a row's sums,
 * which are 16 / L vectors of L lanes:
 *
 *     columns of a block      0 .. 7   8 .. 15   16 .. 23   24 .. 31
 *     their vector, L = 8        0         1          0          1
 *     their vector, L = 16       0         0          0          0
 *
 * So a lane meets the same columns in the same order for every L, for any number R of rows that are read
 * side by side, and for any number N of hidden rows that share them. That is why a logit has the same bits
 * in every batch and on every machine with a fused instruction. Columns behind the last block are padded
 * with zeros, which change no sum.
 *
 *     _KERNELS     all of an instruction set, and its table:
 *       _PRODUCTS    _FOUR   four rows by one hidden row, R side by side; each block is a _BLOCK
 *                    _TILE   four rows by N hidden rows, L of the 16 lanes at a time; each block is a _STEP
 *                    _LANES  adds the 16 lanes of a tile's sums
 *       _EXP, _SUM_EXP, _FIND
 *
 * Each of them is the text of a function, into which an instruction set (isa), its attribute (target), its
 * type of vectors (V) and their lanes (L) are filled. SPECRT__SIMD_OP(isa, fma) names its function
 * specrt__simd_fma_<isa>(); f32, f16, bf16 and q8_0 are operations, too: L columns of a row as floats.
 * Loops over R, N, 16 / L and a block's columns are unrolled, so that sums can stay in registers. */

/* --- instruction sets --- */

#if defined(SPECRT__SIMD_X86)
#include <immintrin.h>

#define SPECRT__SIMD_AVX2   __attribute__((target("avx2,fma,f16c")))
#define SPECRT__SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma,f16c")))

/* g++ 12, which takes the undefined vectors inside its own intrinsics for ours (bug 105593), is unasked. */
#if defined(__cplusplus) && !defined(__clang__)
#define SPECRT__SIMD_UNASKED                                                                       \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")           \
        _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define SPECRT__SIMD_ASKED _Pragma("GCC diagnostic pop")
#else
#define SPECRT__SIMD_UNASKED
#define SPECRT__SIMD_ASKED
#endif
#elif defined(SPECRT__SIMD_ARM64)
#include <arm_neon.h>

typedef struct specrt__simd_v4x2 {
    float32x4_t lo, hi;
} specrt__simd_v4x2;
#elif defined(SPECRT__SIMD_WASM)
#include <wasm_simd128.h>

typedef struct specrt__simd_v4x2 {
    v128_t lo, hi;
} specrt__simd_v4x2;
#endif

/* --- kernels: written once, over vectors of as many lanes as the instruction set has --- */

#if defined(__clang__)
#define SPECRT__SIMD_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define SPECRT__SIMD_UNROLL _Pragma("GCC unroll 8")
#else
#define SPECRT__SIMD_UNROLL
#endif

/* Rows of a few KB are over before the hardware has seen a stream in them. */
#if defined(__GNUC__)
#define SPECRT__SIMD_PREFETCH(p) __builtin_prefetch(p)
#else
#define SPECRT__SIMD_PREFETCH(p) (void)(p)
#endif

/* The operations of an instruction set are named after it. */
#define SPECRT__SIMD_OP(isa, op) specrt__simd_##op##_##isa

/* Columns of four rows beyond the last whole block, padded with zeros to one. */
typedef struct specrt__simd_tail {
    uint8_t bytes[4][128];
    const uint8_t *rows[4];
} specrt__simd_tail;

static inline void specrt__simd_pad(specrt__simd_tail *t, const uint8_t *const *rows,
                                    int64_t n_cols, size_t elem_bytes) {
    size_t n_left = (size_t)(n_cols % 32), n_done = (size_t)n_cols - n_left;
    memset(t->bytes, 0, sizeof t->bytes);
    for (int r = 0; r < 4; r++) {
        memcpy(t->bytes[r], rows[r] + n_done * elem_bytes, n_left * elem_bytes);
        t->rows[r] = t->bytes[r];
    }
}

/* Block i of R rows from r0 on against one hidden row. */
#define SPECRT__SIMD_BLOCK(isa, V, L, format, R, rows, hidden, i)                                  \
    SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                           \
        SPECRT__SIMD_UNROLL for (int at = p * L; at < 32; at += 16) {                              \
        V x = SPECRT__SIMD_OP(isa, load)((hidden) + 32 * (i) + at);                                \
        SPECRT__SIMD_UNROLL for (int r = r0; r < r0 + R; r++) sums[r][p] = SPECRT__SIMD_OP(        \
            isa, fma)(SPECRT__SIMD_OP(isa, format)((rows)[r], i, at), x, sums[r][p]);              \
    }

/* Rows are read R side by side. What is fetched meanwhile is fetched in the order of memory: all of one
 * row, then of the next. */
#define SPECRT__SIMD_FOUR(isa, target, V, L, format, block_bytes, R)                               \
    target static void specrt__simd_four_##format##x##R##_##isa(                                   \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        V sums[4][16 / L];                                                                         \
        specrt__simd_tail tail;                                                                    \
        float last[32] = {0};                                                                      \
        if (n_cols % 32 != 0) {                                                                    \
            specrt__simd_pad(&tail, rows, n_cols, block_bytes / 32);                               \
            memcpy(last, hidden + n_cols / 32 * 32, (size_t)(n_cols % 32) * sizeof *last);         \
        }                                                                                          \
        SPECRT__SIMD_UNROLL for (int r0 = 0; r0 < 4; r0 += R) {                                    \
            SPECRT__SIMD_UNROLL for (int r = r0; r < r0 + R; r++)                                  \
                SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[r][p] =                  \
                    SPECRT__SIMD_OP(isa, splat)(0);                                                \
            for (int64_t i = 0, part = 0; part < R; part++) {                                      \
                int64_t begin = i, end = n_cols / 32 * (part + 1) / R;                             \
                for (; i < end; i++) {                                                             \
                    SPECRT__SIMD_UNROLL for (int line = 0; line < R * block_bytes; line += 64)     \
                        SPECRT__SIMD_PREFETCH(next[r0 + part] + R * block_bytes * (i - begin) +    \
                                              line);                                               \
                    SPECRT__SIMD_BLOCK(isa, V, L, format, R, rows, hidden, i)                      \
                }                                                                                  \
            }                                                                                      \
            if (n_cols % 32 != 0) {                                                                \
                SPECRT__SIMD_BLOCK(isa, V, L, format, R, tail.rows, last, 0)                       \
            }                                                                                      \
        }                                                                                          \
        SPECRT__SIMD_OP(isa, reduce)(sums, out);                                                   \
    }

/* Block i of four rows against N hidden rows, L of the 16 lanes from `first` on. */
#define SPECRT__SIMD_STEP(isa, V, L, format, N, rows, hidden, i)                                   \
    SPECRT__SIMD_UNROLL for (int at = first; at < 32; at += 16) {                                  \
        V x[N];                                                                                    \
        SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) x[h] =                                     \
            SPECRT__SIMD_OP(isa, load)((hidden)[h] + 32 * (i) + at);                               \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {                                          \
            V w = SPECRT__SIMD_OP(isa, format)((rows)[r], i, at);                                  \
            SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) s[r][h] =                              \
                SPECRT__SIMD_OP(isa, fma)(w, x[h], s[r][h]);                                       \
        }                                                                                          \
    }

/* Takes L lanes at a time, so that all its sums stay in registers. */
#define SPECRT__SIMD_TILE(isa, target, V, L, format, block_bytes, N)                               \
    target static void specrt__simd_tile_##format##x##N##_##isa(                                   \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t step,                      \
        const float *const *hidden, int64_t n_blocks, const float *from, float *sums) {            \
        SPECRT__SIMD_UNROLL for (int first = 0; first < 16; first += L) {                          \
            V s[4][N];                                                                             \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++) s[r][h] =                          \
                    SPECRT__SIMD_OP(isa, load)(from + 16 * (4 * h + r) + first);                   \
            for (int64_t i = 0, part = 0; part < 4; part++) {                                      \
                int64_t end = n_blocks * (part + 1) / 4;                                           \
                const uint8_t *ahead = next[part] - 4 * step * i;                                  \
                for (; i < end; i++) {                                                             \
                    SPECRT__SIMD_UNROLL for (int line = 0; line < 2 * block_bytes; line += 64)     \
                        SPECRT__SIMD_PREFETCH(ahead + 4 * step * i + line);                        \
                    if (step == block_bytes) {                                                     \
                        SPECRT__SIMD_UNROLL for (int line = 0; line < 2 * block_bytes; line += 64) \
                            SPECRT__SIMD_PREFETCH(ahead + 4 * step * i + 2 * block_bytes + line);  \
                    }                                                                              \
                    SPECRT__SIMD_STEP(isa, V, L, format, N, rows, hidden, i)                       \
                }                                                                                  \
            }                                                                                      \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int h = 0; h < N; h++)                                    \
                    SPECRT__SIMD_OP(isa, store)(sums + 16 * (4 * h + r) + first, s[r][h]);         \
        }                                                                                          \
    }

#define SPECRT__SIMD_LANES(isa, target, V, L)                                                      \
    target static void specrt__simd_lanes_of_##isa(const float *sums, int32_t n, float *out,       \
                                                   size_t stride) {                                \
        for (; n > 0; n--, sums += 64, out += stride) {                                            \
            V four[4][16 / L];                                                                     \
            SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                        \
                SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) four[r][p] =                  \
                    SPECRT__SIMD_OP(isa, load)(sums + 16 * r + p * L);                             \
            SPECRT__SIMD_OP(isa, reduce)(four, out);                                               \
        }                                                                                          \
    }

/* A tile's definition or name, of 2 to N hidden rows. */
#define SPECRT__SIMD_EACH_3(define, ...) define(__VA_ARGS__, 2) define(__VA_ARGS__, 3)
#define SPECRT__SIMD_EACH_5(define, ...)                                                           \
    SPECRT__SIMD_EACH_3(define, __VA_ARGS__) define(__VA_ARGS__, 4) define(__VA_ARGS__, 5)
#define SPECRT__SIMD_EACH_6(define, ...)                                                           \
    SPECRT__SIMD_EACH_5(define, __VA_ARGS__) define(__VA_ARGS__, 6)
#define SPECRT__SIMD_NAME(isa, format, N) specrt__simd_tile_##format##x##N##_##isa,

/* Bytes of 32 columns; the formats with single columns divide them evenly. Rows of f16 and bf16 come
 * from memory faster one after the other. */
#define SPECRT__SIMD_PRODUCTS(isa, target, V, L, N, Q)                                             \
    SPECRT__SIMD_FOUR(isa, target, V, L, f32, 128, 4)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, f16, 64, 4)                                               \
    SPECRT__SIMD_FOUR(isa, target, V, L, f16, 64, 1)                                               \
    SPECRT__SIMD_FOUR(isa, target, V, L, bf16, 64, 4)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, bf16, 64, 1)                                              \
    SPECRT__SIMD_FOUR(isa, target, V, L, q8_0, 34, 4)                                              \
    SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, f32, 128)                          \
        SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, f16, 64)                       \
            SPECRT__SIMD_EACH_##N(SPECRT__SIMD_TILE, isa, target, V, L, bf16, 64)                  \
                SPECRT__SIMD_EACH_##Q(SPECRT__SIMD_TILE, isa, target, V, L, q8_0, 34)              \
                    SPECRT__SIMD_LANES(isa, target, V, L)

/* exp(x) for -87 <= x <= 0 : 2^n e^r, n = round(x / ln 2), Taylor to r^7 (5e-9 of the value).
 * Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits, for pow2 to take. */
#define SPECRT__SIMD_EXP(isa, target, V)                                                           \
    target static inline V specrt__simd_exp_##isa(V x) {                                           \
        static const float taylor[6] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f};  \
        V magic = SPECRT__SIMD_OP(isa, splat)(12582912.0f);                                        \
        V z = SPECRT__SIMD_OP(isa, fma)(x, SPECRT__SIMD_OP(isa, splat)(1.44269504f), magic);       \
        V n = SPECRT__SIMD_OP(isa, sub)(z, magic);                                                 \
        V r = SPECRT__SIMD_OP(isa, fma)(n, SPECRT__SIMD_OP(isa, splat)(-0.693359375f), x);         \
        r = SPECRT__SIMD_OP(isa, fma)(n, SPECRT__SIMD_OP(isa, splat)(2.12194440e-4f), r);          \
        V y = SPECRT__SIMD_OP(isa, splat)(1 / 5040.0f);                                            \
        SPECRT__SIMD_UNROLL for (int k = 0; k < 6; k++) y =                                        \
            SPECRT__SIMD_OP(isa, fma)(y, r, SPECRT__SIMD_OP(isa, splat)(taylor[k]));               \
        y = SPECRT__SIMD_OP(isa, fma)(y, r, SPECRT__SIMD_OP(isa, splat)(1.0f));                    \
        return SPECRT__SIMD_OP(isa, mul)(y, SPECRT__SIMD_OP(isa, pow2)(z));                        \
    }

/* Terms below e^-87 of the largest count as that: they cannot change a sum that is at least 1. */
#define SPECRT__SIMD_SUM_EXP(isa, target, V, L)                                                    \
    target static double specrt__simd_sum_exp_##isa(const float *x, int64_t n, float max) {        \
        V shift = SPECRT__SIMD_OP(isa, splat)(max), floor = SPECRT__SIMD_OP(isa, splat)(-87.0f);   \
        specrt__simd_sums_##isa sums[16 / L];                                                      \
        float tail[16];                                                                            \
        double lanes[16];                                                                          \
        SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[p] =                             \
            SPECRT__SIMD_OP(isa, zeros)();                                                         \
        for (int64_t i = 0; i < n; i += 16) {                                                      \
            const float *from = x + i;                                                             \
            if (n - i < 16) {                                                                      \
                for (int k = 0; k < 16; k++) tail[k] = i + k < n ? from[k] : -INFINITY;            \
                from = tail;                                                                       \
            }                                                                                      \
            SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) {                                 \
                V t = SPECRT__SIMD_OP(isa, sub)(SPECRT__SIMD_OP(isa, load)(from + p * L), shift);  \
                t = SPECRT__SIMD_OP(isa, exp)(SPECRT__SIMD_OP(isa, max)(t, floor));                \
                sums[p] = SPECRT__SIMD_OP(isa, add)(sums[p], t);                                   \
            }                                                                                      \
        }                                                                                          \
        SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                       \
            SPECRT__SIMD_OP(isa, lanes)(sums[p], lanes + p * L);                                   \
        return specrt__simd_total(lanes);                                                          \
    }

/* Leaves the loop when any of n reaches the bound, or may be NaN: max() passes over NaN, a sum keeps it. */
#define SPECRT__SIMD_BREAK(isa, V, L, x, n, bound)                                                 \
    V most = SPECRT__SIMD_OP(isa, splat)(-INFINITY), sum = SPECRT__SIMD_OP(isa, splat)(0);         \
    SPECRT__SIMD_UNROLL for (int j = 0; j < n; j += L) {                                           \
        V part = SPECRT__SIMD_OP(isa, load)(x + j);                                                \
        most = SPECRT__SIMD_OP(isa, max)(part, most);                                              \
        sum = SPECRT__SIMD_OP(isa, fma)(part, one, sum);                                           \
    }                                                                                              \
    if (SPECRT__SIMD_OP(isa, any_reach)(most, bound)) break;                                       \
    if (SPECRT__SIMD_OP(isa, any_reach)(sum, infinite)) break;

#define SPECRT__SIMD_FIND(isa, target, V, L)                                                       \
    target static int64_t specrt__simd_find_##isa(const float *x, int64_t n, float bound) {        \
        V b = SPECRT__SIMD_OP(isa, splat)(bound), one = SPECRT__SIMD_OP(isa, splat)(1);            \
        V infinite = SPECRT__SIMD_OP(isa, splat)(INFINITY);                                        \
        int64_t i = 0;                                                                             \
        for (; i + 4 * SPECRT__SIMD_SCAN <= n; i += 4 * SPECRT__SIMD_SCAN) {                       \
            SPECRT__SIMD_BREAK(isa, V, L, x + i, 4 * SPECRT__SIMD_SCAN, b)                         \
        }                                                                                          \
        for (; i + SPECRT__SIMD_SCAN <= n; i += SPECRT__SIMD_SCAN) {                               \
            SPECRT__SIMD_BREAK(isa, V, L, x + i, SPECRT__SIMD_SCAN, b)                             \
        }                                                                                          \
        return i;                                                                                  \
    }

/* All of an instruction set with vectors V of L lanes; a tile takes N hidden rows, Q for q8_0, whose scales
 * need registers too. */
#define SPECRT__SIMD_KERNELS(isa, target, V, L, N, Q)                                              \
    SPECRT__SIMD_PRODUCTS(isa, target, V, L, N, Q)                                                 \
    SPECRT__SIMD_EXP(isa, target, V)                                                               \
    SPECRT__SIMD_SUM_EXP(isa, target, V, L)                                                        \
    SPECRT__SIMD_FIND(isa, target, V, L)                                                           \
    SPECRT__INTERNAL const specrt__simd_kernels specrt__simd_kernels_##isa = {                     \
        /* name = */ #isa,                                                                         \
        {/* four = */ specrt__simd_four_f32x4_##isa, specrt__simd_four_f16x4_##isa,                \
         specrt__simd_four_bf16x4_##isa, specrt__simd_four_q8_0x4_##isa},                          \
        {/* stream = */ specrt__simd_four_f32x4_##isa, specrt__simd_four_f16x1_##isa,              \
         specrt__simd_four_bf16x1_##isa, specrt__simd_four_q8_0x4_##isa},                          \
        {/* tile = */ {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, f32)},                        \
         {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, f16)},                                     \
         {SPECRT__SIMD_EACH_##N(SPECRT__SIMD_NAME, isa, bf16)},                                    \
         {SPECRT__SIMD_EACH_##Q(SPECRT__SIMD_NAME, isa, q8_0)}},                                   \
        /* n_hidden = */ {N, N, N, Q},                                                             \
        /* lanes = */ specrt__simd_lanes_of_##isa,                                                 \
        /* tile_i8 = */ specrt__simd_tile_i8_##isa,                                                \
        /* sum_exp = */ specrt__simd_sum_exp_##isa,                                                \
        /* find = */ specrt__simd_find_##isa,                                                      \
    };

/* Lanes are added as a tree: i and i + 8, i and i + 4, ... */
static inline double specrt__simd_total(double *lanes) {
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) lanes[i] += lanes[i + n];
    return lanes[0];
}

// >>blocks : src/core/blocks.h
/* blocks.h : owns the kernels of rows whose codes of 4 to 6 bits share scales: for one hidden row they are
 * multiplied as they are read, for more a row is decoded once. Refuses nothing; its callers checked. A
 * weight is what specrt_row_decode() gives: a code times a scale is exact in f32, so that fused with
 * its offset it is rounded once, as there. Sums are added as in >>simd, and so a product has the bits
 * of the decoded row's, for any batch and instruction set. */

/* Scalar kernels will do for a small program: the rows that it packs are never blocks. */
#if !defined(SPECRT_SMALL) &&                                                                      \
    (defined(SPECRT__SIMD_X86) || defined(SPECRT__SIMD_ARM64) || defined(SPECRT__SIMD_WASM))
#define SPECRT__BLOCKS_VECTORS
#endif

enum { SPECRT__BLOCKS_COLS = 256 }; /* a multiple of every format's block */

/*   four   : as a kernel of >>simd
 *   expand : n_cols <= SPECRT__BLOCKS_COLS of four rows to f32 [4, SPECRT__BLOCKS_COLS]; fetches as many
 *            of the next four into the cache */
typedef struct specrt__blocks_kernels {
    specrt_dtype dtype;
    specrt__simd_four *four;
    void (*expand)(const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols,
                   float *out);
} specrt__blocks_kernels;

SPECRT__INTERNAL const specrt__blocks_kernels *
specrt__blocks_find(const specrt__simd_kernels *kernels, specrt_dtype dtype);

// >>blocks_kernels : src/core/blocks_kernels.h
/* blocks_kernels.h : the kernels of blocks, written once for all instruction sets. */

/* The formats and their bytes of 256 columns; rows are read so many at a time, at most. */
#define SPECRT__BLOCKS_EACH(X, ...)                                                                \
    X(__VA_ARGS__, q4_0, Q4_0, 144)                                                                \
    X(__VA_ARGS__, q4_1, Q4_1, 160)                                                                \
    X(__VA_ARGS__, q5_0, Q5_0, 176)                                                                \
    X(__VA_ARGS__, q5_1, Q5_1, 192)                                                                \
    X(__VA_ARGS__, q4_k, Q4_K, 144)                                                                \
    X(__VA_ARGS__, q5_k, Q5_K, 176)                                                                \
    X(__VA_ARGS__, q6_k, Q6_K, 210)                                                                \
    X(__VA_ARGS__, iq4_nl, IQ4_NL, 144)

#define SPECRT__BLOCKS_ENTRY(isa, format, name, n_bytes)                                           \
    {SPECRT_DTYPE_##name, specrt__blocks_four_##format##_##isa,                                    \
     specrt__blocks_expand_##format##_##isa},

#define SPECRT__BLOCKS_TABLE(isa)                                                                  \
    SPECRT__INTERNAL const specrt__blocks_kernels specrt__blocks_kernels_##isa[] = {               \
        SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_ENTRY, isa)};

#if defined(SPECRT__BLOCKS_VECTORS)

/* --- codes: 16 of a block as bytes, alike for every instruction set --- */

typedef uint8_t specrt__blocks_codes __attribute__((vector_size(16)));
typedef uint16_t specrt__blocks_words __attribute__((vector_size(16)));
typedef uint32_t specrt__blocks_fours __attribute__((vector_size(16)));
typedef uint64_t specrt__blocks_longs __attribute__((vector_size(16)));
typedef uint8_t specrt__blocks_bytes __attribute__((vector_size(32)));
typedef uint16_t specrt__blocks_pairs __attribute__((vector_size(32)));

#define SPECRT__BLOCKS_CODES(name)                                                                 \
    static inline __attribute__((always_inline)) specrt__blocks_codes specrt__blocks_##name

/* Bits [from, from + n) of 16 bytes. */
SPECRT__BLOCKS_CODES(bits)(const uint8_t *p, int from, int n) {
    const uint8_t low = (uint8_t)((1 << n) - 1); /* apart: g++ widens it under ubsan */
    specrt__blocks_words x;
    memcpy(&x, p, sizeof x);
    return (specrt__blocks_codes)(x >> from) & low;
}

/* Sixteens where bit i of two bytes is clear. */
SPECRT__BLOCKS_CODES(clear)(const uint8_t *p) {
    const specrt__blocks_longs each = {0x8040201008040201u, 0x8040201008040201u};
    specrt__blocks_words x = {(uint16_t)specrt__base_load16(p)};
#if defined(__clang__)
    specrt__blocks_codes y =
        __builtin_shufflevector((specrt__blocks_codes)x, (specrt__blocks_codes)x, 0, 0, 0, 0, 0, 0,
                                0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
#else
    const specrt__blocks_codes which = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    specrt__blocks_codes y = __builtin_shuffle((specrt__blocks_codes)x, which);
#endif
    return (specrt__blocks_codes)((y & (specrt__blocks_codes)each) == 0) & 16;
}

/* Eight scales, then eight minima of q4_k and q5_k. */
SPECRT__BLOCKS_CODES(scales)(const uint8_t *p) {
    uint32_t x = specrt__base_load32(p), y = specrt__base_load32(p + 4),
             z = specrt__base_load32(p + 8);
    specrt__blocks_fours all = {
        x & 0x3f3f3f3fu, (z & 0x0f0f0f0fu) | (x >> 6 & 0x03030303u) << 4, /* of scales */
        y & 0x3f3f3f3fu, (z >> 4 & 0x0f0f0f0fu) | (y >> 6 & 0x03030303u) << 4};
    return (specrt__blocks_codes)all;
}

/* --- what 256 columns share, made ready before they are multiplied --- */

/* Instructions that take a number from memory to all lanes cost less than those that move it there from
 * another register. */
typedef struct specrt__blocks_ready {
    /* Of group g: stored scales at 4 g, what is added at 4 g + 1; computed ones (of q6_k two) at g and
     * 16 + g. */
    float scales[32];
    int8_t codes[256]; /* of formats whose codes lie in two places */
} specrt__blocks_ready;

#define SPECRT__BLOCKS_HALF(isa, p) specrt__blocks_half_##isa(p)

/* Stored scales: the first four halves of a group, of which one or two are scales. */
#define SPECRT__BLOCKS_HALVES(isa, b, n, bytes, s)                                                 \
    for (int g = 0; g < n; g++) specrt__blocks_halves_##isa((b) + bytes * g, (s)->scales + 4 * g)

#define SPECRT__BLOCKS_TIMES(isa, L, half, codes, to)                                              \
    SPECRT__SIMD_UNROLL for (int at = 0; at < 16; at += L) SPECRT__SIMD_OP(isa, store)(            \
        (to) + at, SPECRT__SIMD_OP(isa, mul)(SPECRT__SIMD_OP(isa, splat)(half),                    \
                                             specrt__blocks_floats_##isa(codes, (at)&8)))

#define SPECRT__BLOCKS_READY_q4_0(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 18, s)
#define SPECRT__BLOCKS_READY_q4_1(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 20, s)
#define SPECRT__BLOCKS_READY_iq4_nl(isa, L, b, n, s) SPECRT__BLOCKS_HALVES(isa, b, n, 18, s)
#define SPECRT__BLOCKS_READY_q5_0(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 22, s)
#define SPECRT__BLOCKS_READY_q5_1(isa, L, b, n, s)   SPECRT__BLOCKS_HALVES(isa, b, n, 24, s)
#define SPECRT__BLOCKS_READY_q4_k(isa, L, b, n, s)                                                 \
    specrt__blocks_codes codes = specrt__blocks_scales((b) + 4);                                   \
    SPECRT__BLOCKS_TIMES(isa, L, SPECRT__BLOCKS_HALF(isa, b), codes, (s)->scales);                 \
    SPECRT__BLOCKS_TIMES(isa, L, -SPECRT__BLOCKS_HALF(isa, (b) + 2), codes, (s)->scales + 8)
#define SPECRT__BLOCKS_READY_q5_k(isa, L, b, n, s)                                                 \
    SPECRT__BLOCKS_READY_q4_k(isa, L, b, n, s);                                                    \
    specrt__blocks_codes_q5_k_##isa(b, (s)->codes)
#define SPECRT__BLOCKS_READY_q6_k(isa, L, b, n, s)                                                 \
    SPECRT__BLOCKS_TIMES(isa, L, SPECRT__BLOCKS_HALF(isa, (b) + 208),                              \
                         specrt__blocks_bits((b) + 192, 0, 8), (s)->scales);                       \
    specrt__blocks_codes_q6_k_##isa(b, (s)->codes)

/* Codes of 256 columns, a group at a time: nibbles below, the higher bits (from bit `from` of other bytes
 * on) above them. */
#define SPECRT__BLOCKS_JOIN(low, half, high, from, mask, zero, codes)                              \
    do {                                                                                           \
        specrt__blocks_pairs x, y;                                                                 \
        memcpy(&x, low, sizeof x);                                                                 \
        memcpy(&y, high, sizeof y);                                                                \
        x = (x >> (half)&0x0f0f) |                                                                 \
            (((from) < 4 ? y << ((4 - (from)) & 7) : y >> (((from)-4) & 7)) & (mask));             \
        specrt__blocks_bytes z = (specrt__blocks_bytes)x - (uint8_t)(zero);                        \
        memcpy(codes, &z, sizeof z);                                                               \
    } while (0)

#define SPECRT__BLOCKS_JOINED(isa, target)                                                         \
    target static inline void specrt__blocks_codes_q5_k_##isa(const uint8_t *b, int8_t *codes) {   \
        SPECRT__SIMD_UNROLL for (int g = 0; g < 8; g++) SPECRT__BLOCKS_JOIN(                       \
            b + 48 + g / 2 * 32, g % 2 * 4, b + 16, g, 0x1010, 0, codes + 32 * g);                 \
    }                                                                                              \
    target static inline void specrt__blocks_codes_q6_k_##isa(const uint8_t *b, int8_t *codes) {   \
        SPECRT__SIMD_UNROLL for (int g = 0; g < 8; g++)                                            \
            SPECRT__BLOCKS_JOIN(b + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, b + 128 + g / 4 * 32,  \
                                g % 4 * 2, 0x3030, 32, codes + 32 * g);                            \
    }

/* --- weights: L columns of group g from `at` on --- */

#define SPECRT__BLOCKS_SPLAT(isa, x) SPECRT__SIMD_OP(isa, splat)(x)
#define SPECRT__BLOCKS_WEIGHT(isa, codes, at, scale, offset)                                       \
    SPECRT__SIMD_OP(isa, fma)                                                                      \
    (SPECRT__BLOCKS_SPLAT(isa, scale), specrt__blocks_floats_##isa(codes, (at)&8),                 \
     SPECRT__BLOCKS_SPLAT(isa, offset))

/* Nibbles less `zero`: 16 from bit `from` (0 or 4) of the bytes at p on. */
#define SPECRT__BLOCKS_NIBBLES(isa, target, V)                                                     \
    target static inline V specrt__blocks_nibbles_##isa(const uint8_t *p, int from, int zero,      \
                                                        int at, float scale, float offset) {       \
        return SPECRT__BLOCKS_WEIGHT(isa, specrt__blocks_bits(p, from, 4) - (uint8_t)zero, at,     \
                                     scale, offset);                                               \
    }

/* The same where a nibble is the place of its weight. */
#define SPECRT__BLOCKS_LEVELS(isa, target, V)                                                      \
    target static inline V specrt__blocks_levels_##isa(const uint8_t *p, int from, int at,         \
                                                       float scale) {                              \
        return SPECRT__BLOCKS_WEIGHT(                                                              \
            isa, specrt__blocks_look_##isa(specrt__blocks_bits(p, from, 4)), at, scale, 0);        \
    }

/* Nibbles with a fifth bit, bit `first` of the word at `high` on. */
#define SPECRT__BLOCKS_FIVES(isa, target, V)                                                       \
    target static inline V specrt__blocks_fives_##isa(const uint8_t *p, const uint8_t *high,       \
                                                      int first, int zero, int at, float scale,    \
                                                      float offset) {                              \
        return SPECRT__BLOCKS_WEIGHT(isa,                                                          \
                                     specrt__blocks_bits(p, first / 4, 4) + (uint8_t)(16 - zero) - \
                                         specrt__blocks_clear(high + first / 8),                   \
                                     at, scale, offset);                                           \
    }

/* Codes that are ready. */
#define SPECRT__BLOCKS_MADE(isa, s, g, at, scale, offset)                                          \
    SPECRT__BLOCKS_WEIGHT(                                                                         \
        isa, specrt__blocks_bits((const uint8_t *)(s)->codes + 32 * (g) + ((at)&16), 0, 8), at,    \
        scale, offset)

#define SPECRT__BLOCKS_q4_0(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 18 * (g) + 2, (at) / 16 * 4, 8, (at)&8,                     \
                                 (s)->scales[4 * (g)], 0)
#define SPECRT__BLOCKS_q4_1(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 20 * (g) + 4, (at) / 16 * 4, 0, (at)&8,                     \
                                 (s)->scales[4 * (g)], (s)->scales[4 * (g) + 1])
#define SPECRT__BLOCKS_iq4_nl(isa, b, s, g, at)                                                    \
    specrt__blocks_levels_##isa((b) + 18 * (g) + 2, (at) / 16 * 4, (at)&8, (s)->scales[4 * (g)])
#define SPECRT__BLOCKS_q5_0(isa, b, s, g, at)                                                      \
    specrt__blocks_fives_##isa((b) + 22 * (g) + 6, (b) + 22 * (g) + 2, (at)&16, 16, (at)&8,        \
                               (s)->scales[4 * (g)], 0)
#define SPECRT__BLOCKS_q5_1(isa, b, s, g, at)                                                      \
    specrt__blocks_fives_##isa((b) + 24 * (g) + 8, (b) + 24 * (g) + 4, (at)&16, 0, (at)&8,         \
                               (s)->scales[4 * (g)], (s)->scales[4 * (g) + 1])
#define SPECRT__BLOCKS_q4_k(isa, b, s, g, at)                                                      \
    specrt__blocks_nibbles_##isa((b) + 16 + (g) / 2 * 32 + ((at)&16), (g) % 2 * 4, 0, (at)&8,      \
                                 (s)->scales[g], (s)->scales[16 + (g)])
#define SPECRT__BLOCKS_q5_k(isa, b, s, g, at)                                                      \
    SPECRT__BLOCKS_MADE(isa, s, g, at, (s)->scales[g], (s)->scales[16 + (g)])
#define SPECRT__BLOCKS_q6_k(isa, b, s, g, at)                                                      \
    SPECRT__BLOCKS_MADE(isa, s, g, at, (s)->scales[2 * (g) + (at) / 16], 0)

/* --- kernels --- */

/* Groups at a time. Two of q4_k and q5_k share their bytes; 256 columns are an even number of groups. */
#define SPECRT__BLOCKS_STEP_q4_0   1
#define SPECRT__BLOCKS_STEP_q4_1   1
#define SPECRT__BLOCKS_STEP_iq4_nl 1
#define SPECRT__BLOCKS_STEP_q5_0   1
#define SPECRT__BLOCKS_STEP_q5_1   1
#define SPECRT__BLOCKS_STEP_q4_k   2
#define SPECRT__BLOCKS_STEP_q5_k   2
#define SPECRT__BLOCKS_STEP_q6_k   2

/* With clang and AVX-512, one group of q4_0 at a time was a tenth slower: a group is a few instructions. */
#if defined(__clang__)
#define SPECRT__BLOCKS_LOOP_avx512 _Pragma("clang loop unroll_count(2)")
#else
#define SPECRT__BLOCKS_LOOP_avx512
#endif
#define SPECRT__BLOCKS_LOOP_avx2
#define SPECRT__BLOCKS_LOOP_neon
#define SPECRT__BLOCKS_LOOP_wasm

/* Group g of four rows against one hidden row. */
#define SPECRT__BLOCKS_GROUP(isa, V, L, format, n_bytes, hidden)                                   \
    SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++)                                           \
        SPECRT__SIMD_UNROLL for (int at = p * L; at < 32; at += 16) {                              \
        V x = SPECRT__SIMD_OP(isa, load)((hidden) + at);                                           \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r][p] = SPECRT__SIMD_OP(isa, fma)(    \
            SPECRT__BLOCKS_##format(isa, rows[r] + n_bytes * i, &ready[r], g, at), x, sums[r][p]); \
    }

#define SPECRT__BLOCKS_FOUR(isa, target, V, L, format, name, n_bytes)                              \
    target static void specrt__blocks_four_##format##_##isa(                                       \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        V sums[4][16 / L];                                                                         \
        specrt__blocks_ready ready[4];                                                             \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                            \
            SPECRT__SIMD_UNROLL for (int p = 0; p < 16 / L; p++) sums[r][p] =                      \
                SPECRT__SIMD_OP(isa, splat)(0);                                                    \
        for (int64_t i = 0, left = n_cols / 32; left > 0; i++, left -= 8) {                        \
            int n_groups = left < 8 ? (int)left : 8;                                               \
            for (int r = 0; r < 4; r++) {                                                          \
                for (int line = 0; line < n_bytes; line += 64)                                     \
                    SPECRT__SIMD_PREFETCH(next[r] + n_bytes * i + line);                           \
                SPECRT__BLOCKS_READY_##format(isa, L, rows[r] + n_bytes * i, n_groups, &ready[r]); \
            }                                                                                      \
            SPECRT__BLOCKS_LOOP_##isa for (int first = 0; first < n_groups;                        \
                                           first += SPECRT__BLOCKS_STEP_##format)                  \
                SPECRT__SIMD_UNROLL for (int g = first; g < first + SPECRT__BLOCKS_STEP_##format;  \
                                         g++, hidden += 32)                                        \
                    SPECRT__BLOCKS_GROUP(isa, V, L, format, n_bytes, hidden)                       \
        }                                                                                          \
        SPECRT__SIMD_OP(isa, reduce)(sums, out);                                                   \
    }

/* Group g of four rows. */
#define SPECRT__BLOCKS_STORE(isa, L, format, out)                                                  \
    SPECRT__SIMD_UNROLL for (int at = 0; at < 32; at += L)                                         \
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++)                                            \
            SPECRT__SIMD_OP(isa, store)((out) + r * SPECRT__BLOCKS_COLS + at,                      \
                                        SPECRT__BLOCKS_##format(isa, rows[r], &ready[r], g, at));

#define SPECRT__BLOCKS_EXPAND(isa, target, V, L, format, name, n_bytes)                            \
    target static void specrt__blocks_expand_##format##_##isa(                                     \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols, float *out) {      \
        specrt__blocks_ready ready[4];                                                             \
        int n_groups = (int)(n_cols / 32);                                                         \
        for (int r = 0; r < 4; r++) {                                                              \
            for (int line = 0; line < n_bytes; line += 64) SPECRT__SIMD_PREFETCH(next[r] + line);  \
            SPECRT__BLOCKS_READY_##format(isa, L, rows[r], n_groups, &ready[r]);                   \
        }                                                                                          \
        for (int first = 0; first < n_groups; first += SPECRT__BLOCKS_STEP_##format)               \
            SPECRT__SIMD_UNROLL for (int g = first; g < first + SPECRT__BLOCKS_STEP_##format;      \
                                     g++, out += 32) {                                             \
                SPECRT__BLOCKS_STORE(isa, L, format, out)                                          \
            }                                                                                      \
    }

#define SPECRT__BLOCKS_KERNELS(isa, target, V, L)                                                  \
    SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_FOUR, isa, target, V, L)                                    \
    SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_EXPAND, isa, target, V, L)                                  \
    SPECRT__BLOCKS_TABLE(isa)

#endif

// >>simd_scalar : src/core/simd_scalar.c
/* simd_scalar.c : the scalar instruction set, which the others must equal bit for bit. Lanes are plain loops,
 * which compilers turn into vectors where they can, and formats share functions: written out by
 * SPECRT__SIMD_KERNELS() like the others, these kernels were a third of a program. */

static inline float specrt__simd_fma_scalar(float a, float b, float c) {
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}

/* --- products: 32 columns of a row are decoded, then multiplied with every hidden row --- */

static inline void specrt__simd_f32_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_float(specrt__base_load32(block + 4 * k));
}

static inline void specrt__simd_f16_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_f16(specrt__base_load16(block + 2 * k));
}

static inline void specrt__simd_bf16_scalar(const uint8_t *block, float *out) {
    for (int k = 0; k < 32; k++) out[k] = specrt__base_bf16(specrt__base_load16(block + 2 * k));
}

/* A half times an 8-bit number fits in 24 bits, so the decoded value is exact here too. */
static inline void specrt__simd_q8_0_scalar(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int k = 0; k < 32; k++) out[k] = d * (float)(int8_t)block[2 + k];
}

/* Adds 32 columns to the 16 lanes of a row's sums, which no other pointer reaches meanwhile. */
static inline void specrt__simd_add_scalar(const float *weights, const float *hidden, float *sums) {
    float lanes[16];
    memcpy(lanes, sums, sizeof lanes);
    for (int k = 0; k < 16; k++) {
        lanes[k] = specrt__simd_fma_scalar(weights[k], hidden[k], lanes[k]);
        lanes[k] = specrt__simd_fma_scalar(weights[16 + k], hidden[16 + k], lanes[k]);
    }
    memcpy(sums, lanes, sizeof lanes);
}

/* The lanes of four rows by n hidden rows, each added as a tree. */
static void specrt__simd_lanes_scalar(const float *sums, int32_t n, float *out, size_t stride) {
    float lanes[16];
    for (; n > 0; n--, out += stride)
        for (int r = 0; r < 4; r++, sums += 16) {
            memcpy(lanes, sums, sizeof lanes);
            for (int half = 8; half > 0; half /= 2)
                for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
            out[r] = lanes[0];
        }
}

/* Adds blocks of four rows by n hidden rows to sums f32 [n, 4, 16]. */
typedef void specrt__simd_multiply(int n, const uint8_t *const *rows, const float *const *hidden,
                                   int64_t n_blocks, float *sums);

#define SPECRT__SIMD_MULTIPLY(format, block_bytes)                                                 \
    static void specrt__simd_multiply_##format(int n, const uint8_t *const *rows,                  \
                                               const float *const *hidden, int64_t n_blocks,       \
                                               float *sums) {                                      \
        float weights[32];                                                                         \
        for (int r = 0; r < 4; r++, sums += 16)                                                    \
            for (int64_t i = 0; i < n_blocks; i++) {                                               \
                specrt__simd_##format##_scalar(rows[r] + block_bytes * i, weights);                \
                for (int h = 0; h < n; h++)                                                        \
                    specrt__simd_add_scalar(weights, hidden[h] + 32 * i, sums + 64 * h);           \
            }                                                                                      \
    }

/* One hidden row; block_bytes: of 32 columns. */
static void specrt__simd_single(specrt__simd_multiply *multiply, size_t block_bytes,
                                const uint8_t *const *rows, const float *hidden, int64_t n_cols,
                                float *out) {
    float sums[64] = {0}, last[32] = {0};
    const float *columns = hidden;
    specrt__simd_tail tail;
    multiply(1, rows, &columns, n_cols / 32, sums);
    if (n_cols % 32 != 0) {
        specrt__simd_pad(&tail, rows, n_cols, block_bytes / 32);
        memcpy(last, hidden + n_cols / 32 * 32, (size_t)(n_cols % 32) * sizeof *last);
        columns = last;
        multiply(1, tail.rows, &columns, 1, sums);
    }
    specrt__simd_lanes_scalar(sums, 1, out, 4);
}

#define SPECRT__SIMD_TILE_SCALAR(format, N)                                                        \
    static void specrt__simd_tile_##format##x##N##_scalar(                                         \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t step,                      \
        const float *const *hidden, int64_t n_blocks, const float *from, float *sums) {            \
        (void)next, (void)step;                                                                    \
        memmove(sums, from, N * 64 * sizeof *sums);                                                \
        specrt__simd_multiply_##format(N, rows, hidden, n_blocks, sums);                           \
    }

#define SPECRT__SIMD_PRODUCTS_SCALAR(format, block_bytes)                                          \
    SPECRT__SIMD_MULTIPLY(format, block_bytes)                                                     \
    static void specrt__simd_four_##format##_scalar(                                               \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        (void)next;                                                                                \
        specrt__simd_single(specrt__simd_multiply_##format, block_bytes, rows, hidden, n_cols,     \
                            out);                                                                  \
    }                                                                                              \
    SPECRT__SIMD_EACH_3(SPECRT__SIMD_TILE_SCALAR, format)

SPECRT__SIMD_PRODUCTS_SCALAR(f32, 128)
SPECRT__SIMD_PRODUCTS_SCALAR(f16, 64)
SPECRT__SIMD_PRODUCTS_SCALAR(bf16, 64)
SPECRT__SIMD_PRODUCTS_SCALAR(q8_0, 34)

static void specrt__simd_tile_i8_scalar(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                        int32_t *out) {
    for (int r = 0; r < 4; r++) {
        out[r] = 0;
        for (int64_t j = 0; j < n_cols; j++) out[r] += rows[r][j] * x[j];
    }
}

/* --- the sum of exponentials and the search for great logits: as in >>simd_kernels --- */

/* x[16] becomes exp(x). */
static inline void specrt__simd_exp_scalar(float *x) {
    static const float taylor[7] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f};
    const float magic = 12582912.0f;
    float z[16], r[16], y[16];
    for (int k = 0; k < 16; k++) {
        z[k] = specrt__simd_fma_scalar(x[k], 1.44269504f, magic);
        r[k] = specrt__simd_fma_scalar(z[k] - magic, -0.693359375f, x[k]);
        r[k] = specrt__simd_fma_scalar(z[k] - magic, 2.12194440e-4f, r[k]);
        y[k] = 1 / 5040.0f;
    }
    for (int term = 0; term < 7; term++)
        for (int k = 0; k < 16; k++) y[k] = specrt__simd_fma_scalar(y[k], r[k], taylor[term]);
    for (int k = 0; k < 16; k++)
        x[k] = y[k] * specrt__base_float((specrt__base_bits(z[k]) + 127) << 23);
}

static double specrt__simd_sum_exp_scalar(const float *x, int64_t n, float max) {
    double lanes[16] = {0};
    float t[16];
    for (; n > 0; x += 16, n -= 16) {
        for (int k = 0; k < 16; k++) t[k] = -INFINITY;
        memcpy(t, x, (size_t)(n < 16 ? n : 16) * sizeof *t);
        for (int k = 0; k < 16; k++) t[k] = t[k] - max > -87.0f ? t[k] - max : -87.0f;
        specrt__simd_exp_scalar(t);
        for (int k = 0; k < 16; k++) lanes[k] += t[k];
    }
    return specrt__simd_total(lanes);
}

static int64_t specrt__simd_find_scalar(const float *x, int64_t n, float bound) {
    int64_t i = 0;
    for (int any = 0; i + SPECRT__SIMD_SCAN <= n; i += SPECRT__SIMD_SCAN) {
        for (int k = 0; k < SPECRT__SIMD_SCAN; k++) any |= !(x[i + k] < bound); /* NaN too */
        if (any) break;
    }
    return i;
}

#define SPECRT__SIMD_TILES_SCALAR(format)                                                          \
    { specrt__simd_tile_##format##x2_scalar, specrt__simd_tile_##format##x3_scalar }
#define SPECRT__SIMD_FOURS_SCALAR                                                                  \
    {                                                                                              \
        specrt__simd_four_f32_scalar, specrt__simd_four_f16_scalar, specrt__simd_four_bf16_scalar, \
            specrt__simd_four_q8_0_scalar                                                          \
    }

SPECRT__INTERNAL const specrt__simd_kernels specrt__simd_kernels_scalar = {
    /* name = */ "scalar",
    /* four = */ SPECRT__SIMD_FOURS_SCALAR,
    /* stream = */ SPECRT__SIMD_FOURS_SCALAR,
    /* tile = */
    {SPECRT__SIMD_TILES_SCALAR(f32), SPECRT__SIMD_TILES_SCALAR(f16),
     SPECRT__SIMD_TILES_SCALAR(bf16), SPECRT__SIMD_TILES_SCALAR(q8_0)},
    /* n_hidden = */ {3, 3, 3, 3},
    /* lanes = */ specrt__simd_lanes_scalar,
    /* tile_i8 = */ specrt__simd_tile_i8_scalar,
    /* sum_exp = */ specrt__simd_sum_exp_scalar,
    /* find = */ specrt__simd_find_scalar,
};

/* --- blocks decoded by >>rows --- */

static void specrt__blocks_multiply(specrt_dtype dtype, int64_t n_bytes, const uint8_t *const *rows,
                                    const float *hidden, int64_t n_cols, float *out) {
    float sums[64] = {0}, weights[256];
    for (int r = 0; r < 4; r++) {
        const uint8_t *from = rows[r];
        for (int64_t i = 0; i < n_cols; i += 256, from += n_bytes) {
            int64_t n = n_cols - i < 256 ? n_cols - i : 256;
            specrt__rows_decode_blocks(dtype, from, n, weights);
            for (int64_t j = 0; j < n; j += 32)
                specrt__simd_add_scalar(weights + j, hidden + i + j, sums + 16 * r);
        }
    }
    specrt__simd_lanes_scalar(sums, 1, out, 4);
}

#define SPECRT__BLOCKS_SCALAR(isa, format, name, n_bytes)                                          \
    static void specrt__blocks_four_##format##_##isa(                                              \
        const uint8_t *const *rows, const uint8_t *const *next, const float *hidden,               \
        int64_t n_cols, float *out) {                                                              \
        (void)next;                                                                                \
        specrt__blocks_multiply(SPECRT_DTYPE_##name, n_bytes, rows, hidden, n_cols, out);          \
    }                                                                                              \
    static void specrt__blocks_expand_##format##_##isa(                                            \
        const uint8_t *const *rows, const uint8_t *const *next, int64_t n_cols, float *out) {      \
        (void)next;                                                                                \
        for (int r = 0; r < 4; r++, out += SPECRT__BLOCKS_COLS)                                    \
            specrt__rows_decode_blocks(SPECRT_DTYPE_##name, rows[r], n_cols, out);                 \
    }

SPECRT__BLOCKS_EACH(SPECRT__BLOCKS_SCALAR, scalar)
SPECRT__BLOCKS_TABLE(scalar)

// >>simd_x86 : src/core/simd_x86.c
/* simd_x86.c : the kernels with AVX2 and with AVX-512. */

#if defined(SPECRT__SIMD_X86)

/* --- AVX2, FMA and F16C: 16 registers of 8 lanes --- */
typedef struct specrt__simd_sums_avx2 {
    __m256d lo, hi;
} specrt__simd_sums_avx2;

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_splat_avx2(float x) {
    return _mm256_set1_ps(x);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_load_avx2(const float *p) {
    return _mm256_loadu_ps(p);
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_store_avx2(float *p, __m256 v) {
    _mm256_storeu_ps(p, v);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_f32_avx2(const uint8_t *row, int64_t i,
                                                             int at) {
    return _mm256_loadu_ps((const float *)(const void *)(row + 128 * i + 4 * at));
}

SPECRT__SIMD_AVX2 static inline __m128i specrt__simd_16_avx2(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_f16_avx2(const uint8_t *row, int64_t i,
                                                             int at) {
    return _mm256_cvtph_ps(specrt__simd_16_avx2(row + 64 * i + 2 * at));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_bf16_avx2(const uint8_t *row, int64_t i,
                                                              int at) {
    __m256i bits = _mm256_cvtepu16_epi32(specrt__simd_16_avx2(row + 64 * i + 2 * at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_q8_0_avx2(const uint8_t *row, int64_t i,
                                                              int at) {
    const uint8_t *block = row + 34 * i;
    __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + at));
    __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)specrt__base_load16(block)));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_fma_avx2(__m256 a, __m256 b, __m256 c) {
    return _mm256_fmadd_ps(a, b, c);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_sub_avx2(__m256 a, __m256 b) {
    return _mm256_sub_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_mul_avx2(__m256 a, __m256 b) {
    return _mm256_mul_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_max_avx2(__m256 a, __m256 b) {
    return _mm256_max_ps(a, b);
}

SPECRT__SIMD_AVX2 static inline int specrt__simd_any_reach_avx2(__m256 a, __m256 b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}

SPECRT__SIMD_AVX2 static inline __m256 specrt__simd_pow2_avx2(__m256 z) {
    __m256i n = _mm256_add_epi32(_mm256_castps_si256(z), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}

/* 8 lanes to 4. */
SPECRT__SIMD_AVX2 static inline __m128 specrt__simd_fold_avx2(__m256 v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* Four rows of 4 lanes, transposed as they are added. */
SPECRT__SIMD_AVX2 static inline void specrt__simd_cross_avx2(__m128 a, __m128 b, __m128 c, __m128 d,
                                                             float *out) {
    __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd)));
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_reduce_avx2(__m256 (*rows)[2], float *out) {
    __m128 x[4];
    for (int r = 0; r < 4; r++)
        x[r] = specrt__simd_fold_avx2(_mm256_add_ps(rows[r][0], rows[r][1]));
    specrt__simd_cross_avx2(x[0], x[1], x[2], x[3], out);
}

SPECRT__SIMD_AVX2 static inline specrt__simd_sums_avx2 specrt__simd_zeros_avx2(void) {
    specrt__simd_sums_avx2 d;
    d.lo = d.hi = _mm256_setzero_pd();
    return d;
}

SPECRT__SIMD_AVX2 static inline specrt__simd_sums_avx2
specrt__simd_add_avx2(specrt__simd_sums_avx2 d, __m256 v) {
    d.lo = _mm256_add_pd(d.lo, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    d.hi = _mm256_add_pd(d.hi, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    return d;
}

SPECRT__SIMD_AVX2 static inline void specrt__simd_lanes_avx2(specrt__simd_sums_avx2 d,
                                                             double *out) {
    _mm256_storeu_pd(out, d.lo);
    _mm256_storeu_pd(out + 4, d.hi);
}

/* The lanes of four rows, each added up. */
SPECRT__SIMD_AVX2 static inline void specrt__simd_reduce_i32_avx2(const __m256i *sums,
                                                                  int32_t *out) {
    __m256i ab = _mm256_hadd_epi32(sums[0], sums[1]), cd = _mm256_hadd_epi32(sums[2], sums[3]);
    __m256i x = _mm256_hadd_epi32(ab, cd);
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)(void *)out, y);
}

SPECRT__SIMD_AVX2 static void specrt__simd_tile_i8_avx2(const int8_t *const *rows, const int16_t *x,
                                                        int64_t n_cols, int32_t *out) {
    __m256i sums[4];
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r] = _mm256_setzero_si256();
    for (int64_t j = 0; j < n_cols; j += 16) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + j));
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {
            __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(rows[r] + j));
            __m256i w = _mm256_cvtepi8_epi16(q);
            sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(w, v));
        }
    }
    specrt__simd_reduce_i32_avx2(sums, out);
}

SPECRT__SIMD_KERNELS(avx2, SPECRT__SIMD_AVX2, __m256, 8, 3, 3)

/* --- AVX2: blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

SPECRT__SIMD_AVX2 static inline __m256 specrt__blocks_floats_avx2(specrt__blocks_codes codes,
                                                                  int at) {
    __m128i q = (__m128i)codes;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(at ? _mm_srli_si128(q, 8) : q));
}

SPECRT__SIMD_AVX2 static inline float specrt__blocks_half_avx2(const uint8_t *p) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)specrt__base_load16(p))));
}

SPECRT__SIMD_AVX2 static inline void specrt__blocks_halves_avx2(const uint8_t *p, float *out) {
    _mm_storeu_ps(out, _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

SPECRT__SIMD_AVX2 static inline specrt__blocks_codes
specrt__blocks_look_avx2(specrt__blocks_codes places) {
    __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)specrt__rows_levels);
    return (specrt__blocks_codes)_mm_shuffle_epi8(levels, (__m128i)places);
}

SPECRT__BLOCKS_NIBBLES(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_LEVELS(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_FIVES(avx2, SPECRT__SIMD_AVX2, __m256)
SPECRT__BLOCKS_JOINED(avx2, SPECRT__SIMD_AVX2)
SPECRT__BLOCKS_KERNELS(avx2, SPECRT__SIMD_AVX2, __m256, 8)

#endif

/* --- AVX-512 F and BW: 32 registers of 16 lanes --- */
SPECRT__SIMD_UNASKED

typedef struct specrt__simd_sums_avx512 {
    __m512d lo, hi;
} specrt__simd_sums_avx512;

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_splat_avx512(float x) {
    return _mm512_set1_ps(x);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_load_avx512(const float *p) {
    return _mm512_loadu_ps(p);
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_store_avx512(float *p, __m512 v) {
    _mm512_storeu_ps(p, v);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_f32_avx512(const uint8_t *row, int64_t i,
                                                                 int at) {
    return _mm512_loadu_ps(row + 128 * i + 4 * at);
}

SPECRT__SIMD_AVX512 static inline __m256i specrt__simd_32_avx512(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_f16_avx512(const uint8_t *row, int64_t i,
                                                                 int at) {
    return _mm512_cvtph_ps(specrt__simd_32_avx512(row + 64 * i + 2 * at));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_bf16_avx512(const uint8_t *row, int64_t i,
                                                                  int at) {
    __m512i bits = _mm512_cvtepu16_epi32(specrt__simd_32_avx512(row + 64 * i + 2 * at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_q8_0_avx512(const uint8_t *row, int64_t i,
                                                                  int at) {
    const uint8_t *block = row + 34 * i;
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + at));
    __m128 d = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)block));
    return _mm512_mul_ps(_mm512_broadcastss_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_fma_avx512(__m512 a, __m512 b, __m512 c) {
    return _mm512_fmadd_ps(a, b, c);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_sub_avx512(__m512 a, __m512 b) {
    return _mm512_sub_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_mul_avx512(__m512 a, __m512 b) {
    return _mm512_mul_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_max_avx512(__m512 a, __m512 b) {
    return _mm512_max_ps(a, b);
}

SPECRT__SIMD_AVX512 static inline int specrt__simd_any_reach_avx512(__m512 a, __m512 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ) != 0;
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_pow2_avx512(__m512 z) {
    __m512i n = _mm512_add_epi32(_mm512_castps_si512(z), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}

SPECRT__SIMD_AVX512 static inline __m256 specrt__simd_upper_avx512(__m512 v) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

/* Parts of 128 bits: x0 + x2, x1 + x3, y0 + y2, y1 + y3. A blend goes where no shuffle can. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__simd_halve_avx512(__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_reduce_avx512(__m512 (*rows)[1], float *out) {
    const __m512i others =
        _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    const __m512i firsts = _mm512_setr_epi32(0, 8, 4, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512 ab = specrt__simd_halve_avx512(rows[0][0], rows[1][0]);
    __m512 cd = specrt__simd_halve_avx512(rows[2][0], rows[3][0]);
    __m512 x = _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, ab, cd),
                             _mm512_permutex2var_ps(ab, others, cd)); /* of a, c, b, d */
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, x)));
}

SPECRT__SIMD_AVX512 static inline specrt__simd_sums_avx512 specrt__simd_zeros_avx512(void) {
    specrt__simd_sums_avx512 d;
    d.lo = d.hi = _mm512_setzero_pd();
    return d;
}

SPECRT__SIMD_AVX512 static inline specrt__simd_sums_avx512
specrt__simd_add_avx512(specrt__simd_sums_avx512 d, __m512 v) {
    d.lo = _mm512_add_pd(d.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    d.hi = _mm512_add_pd(d.hi, _mm512_cvtps_pd(specrt__simd_upper_avx512(v)));
    return d;
}

SPECRT__SIMD_AVX512 static inline void specrt__simd_lanes_avx512(specrt__simd_sums_avx512 d,
                                                                 double *out) {
    _mm512_storeu_pd(out, d.lo);
    _mm512_storeu_pd(out + 8, d.hi);
}

SPECRT__SIMD_AVX512 static void specrt__simd_tile_i8_avx512(const int8_t *const *rows,
                                                            const int16_t *x, int64_t n_cols,
                                                            int32_t *out) {
    __m512i sums[4];
    __m256i halves[4];
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) sums[r] = _mm512_setzero_si512();
    for (int64_t j = 0; j < n_cols; j += 32) {
        __m512i v = _mm512_loadu_si512(x + j);
        SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) {
            __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)(rows[r] + j));
            __m512i w = _mm512_cvtepi8_epi16(q);
            sums[r] = _mm512_add_epi32(sums[r], _mm512_madd_epi16(w, v));
        }
    }
    SPECRT__SIMD_UNROLL for (int r = 0; r < 4; r++) halves[r] =
        _mm256_add_epi32(_mm512_castsi512_si256(sums[r]), _mm512_extracti64x4_epi64(sums[r], 1));
    specrt__simd_reduce_i32_avx2(halves, out);
}

SPECRT__SIMD_KERNELS(avx512, SPECRT__SIMD_AVX512, __m512, 16, 6, 5)

/* --- AVX-512: blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_floats_avx512(specrt__blocks_codes codes,
                                                                      int at) {
    (void)at;
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
}

#define specrt__blocks_half_avx512   specrt__blocks_half_avx2
#define specrt__blocks_halves_avx512 specrt__blocks_halves_avx2

/* Of the weights of all 16 codes each takes its own: by the low four bits of a lane. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_take_avx512(const uint8_t *p, int from,
                                                                    __m512 weights) {
    __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, (unsigned)from), weights);
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_levels_avx512(const uint8_t *p, int from,
                                                                      int at, float scale) {
    __m512 levels = specrt__blocks_floats_avx512(
        specrt__blocks_bits((const uint8_t *)specrt__rows_levels, 0, 8), 0);
    (void)at;
    return specrt__blocks_take_avx512(p, from, _mm512_mul_ps(_mm512_set1_ps(scale), levels));
}

SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_nibbles_avx512(const uint8_t *p, int from,
                                                                       int zero, int at,
                                                                       float scale, float offset) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 weights =
        _mm512_fmadd_ps(_mm512_set1_ps(scale), _mm512_sub_ps(codes, _mm512_set1_ps((float)zero)),
                        _mm512_set1_ps(offset));
    (void)at;
    return specrt__blocks_take_avx512(p, from, weights);
}

/* The same of 32 codes, whose fifth bits are turned to bit 4. */
SPECRT__SIMD_AVX512 static inline __m512 specrt__blocks_fives_avx512(const uint8_t *p,
                                                                     const uint8_t *high, int first,
                                                                     int zero, int at, float scale,
                                                                     float offset) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 s = _mm512_set1_ps(scale), o = _mm512_set1_ps(offset);
    __m512 low = _mm512_fmadd_ps(s, _mm512_sub_ps(codes, _mm512_set1_ps((float)zero)), o);
    __m512 upper = _mm512_fmadd_ps(s, _mm512_sub_ps(codes, _mm512_set1_ps((float)zero - 16)), o);
    __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i fifths = _mm512_rorv_epi32(_mm512_set1_epi32((int)specrt__base_load32(high)),
                                       _mm512_add_epi32(lane, _mm512_set1_epi32(first - 4)));
    (void)at;
    lanes = _mm512_srli_epi32(lanes, (unsigned)first / 4);
    lanes = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), lanes, fifths, 0xca); /* by bit */
    return _mm512_permutex2var_ps(low, lanes, upper);
}

SPECRT__SIMD_AVX512 static inline __m512i specrt__blocks_twice(const uint8_t *p) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Two numbers, each in half of the lanes. */
SPECRT__SIMD_AVX512 static inline __m512i specrt__blocks_halves_of(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi32(a), _mm256_set1_epi32(b), 1);
}

/* Groups 2 i and 2 i + 1 share bytes: low nibbles and bits 2 i, then high ones and bits 2 i + 1. */
SPECRT__SIMD_AVX512 static inline void specrt__blocks_codes_q5_k_avx512(const uint8_t *b,
                                                                        int8_t *codes) {
    const __m512i nibble = _mm512_set1_epi8(15), five = _mm512_set1_epi8(31);
    __m512i fifths = specrt__blocks_twice(b + 16);
    SPECRT__SIMD_UNROLL for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_srlv_epi32(specrt__blocks_twice(b + 48 + 32 * i),
                                        specrt__blocks_halves_of(0, 4));
        __m512i high = _mm512_rorv_epi32(fifths, specrt__blocks_halves_of(2 * i - 4, 2 * i - 3));
        low = _mm512_and_si512(_mm512_ternarylogic_epi32(nibble, low, high, 0xca), five);
        _mm512_storeu_si512((void *)(codes + 64 * i), low);
    }
}

/* Of each 128 columns groups 0 and 1 are low nibbles, 2 and 3 high ones; group g's two bits are 2 g on. */
SPECRT__SIMD_AVX512 static inline void specrt__blocks_codes_q6_k_avx512(const uint8_t *b,
                                                                        int8_t *codes) {
    const __m512i nibble = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);
    SPECRT__SIMD_UNROLL for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_loadu_si512((const void *)(b + i / 2 * 64));
        __m512i high = specrt__blocks_twice(b + 128 + i / 2 * 32);
        low = _mm512_srli_epi32(low, (unsigned)i % 2 * 4);
        high = _mm512_rorv_epi32(high, specrt__blocks_halves_of(i % 2 * 4 - 4, i % 2 * 4 - 2));
        low = _mm512_and_si512(_mm512_ternarylogic_epi32(nibble, low, high, 0xca), six);
        _mm512_storeu_si512((void *)(codes + 64 * i), _mm512_sub_epi8(low, _mm512_set1_epi8(32)));
    }
}

SPECRT__BLOCKS_KERNELS(avx512, SPECRT__SIMD_AVX512, __m512, 16)

#endif

SPECRT__SIMD_ASKED

#endif

// >>simd_arm64 : src/core/simd_arm64.c
/* simd_arm64.c : the kernels with NEON. */

#if defined(SPECRT__SIMD_ARM64)

typedef struct specrt__simd_sums_neon {
    float64x2_t part[4];
} specrt__simd_sums_neon;

static inline specrt__simd_v4x2 specrt__simd_pair_neon(float32x4_t lo, float32x4_t hi) {
    specrt__simd_v4x2 v;
    v.lo = lo, v.hi = hi;
    return v;
}

static inline specrt__simd_v4x2 specrt__simd_splat_neon(float x) {
    return specrt__simd_pair_neon(vdupq_n_f32(x), vdupq_n_f32(x));
}

static inline specrt__simd_v4x2 specrt__simd_load_neon(const float *p) {
    return specrt__simd_pair_neon(vld1q_f32(p), vld1q_f32(p + 4));
}

/* 16 bytes at any address. */
static inline uint8x16_t specrt__simd_16_neon(const uint8_t *p) {
    return vld1q_u8(p);
}

static inline void specrt__simd_store_neon(float *p, specrt__simd_v4x2 v) {
    vst1q_f32(p, v.lo), vst1q_f32(p + 4, v.hi);
}

static inline specrt__simd_v4x2 specrt__simd_f32_neon(const uint8_t *row, int64_t i, int at) {
    row += 128 * i + 4 * at;
    return specrt__simd_pair_neon(vreinterpretq_f32_u8(specrt__simd_16_neon(row)),
                                  vreinterpretq_f32_u8(specrt__simd_16_neon(row + 16)));
}

static inline specrt__simd_v4x2 specrt__simd_f16_neon(const uint8_t *row, int64_t i, int at) {
    float16x8_t h = vreinterpretq_f16_u8(specrt__simd_16_neon(row + 64 * i + 2 * at));
    return specrt__simd_pair_neon(vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h));
}

static inline specrt__simd_v4x2 specrt__simd_bf16_neon(const uint8_t *row, int64_t i, int at) {
    uint16x8_t h = vreinterpretq_u16_u8(specrt__simd_16_neon(row + 64 * i + 2 * at));
    return specrt__simd_pair_neon(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                                  vreinterpretq_f32_u32(vshll_high_n_u16(h, 16)));
}

static inline specrt__simd_v4x2 specrt__simd_q8_0_neon(const uint8_t *row, int64_t i, int at) {
    const uint8_t *block = row + 34 * i;
    int16x8_t q = vmovl_s8(vreinterpret_s8_u8(vld1_u8(block + 2 + at)));
    float32x4_t d =
        vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)specrt__base_load16(block))));
    return specrt__simd_pair_neon(vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)))),
                                  vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(q))));
}

static inline specrt__simd_v4x2 specrt__simd_fma_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b,
                                                      specrt__simd_v4x2 c) {
    return specrt__simd_pair_neon(vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_sub_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_mul_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_max_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_neon(vbslq_f32(vcgtq_f32(a.lo, b.lo), a.lo, b.lo),
                                  vbslq_f32(vcgtq_f32(a.hi, b.hi), a.hi, b.hi));
}

static inline int specrt__simd_any_reach_neon(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return vminvq_u32(vandq_u32(vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi))) == 0;
}

static inline float32x4_t specrt__simd_exponent_neon(float32x4_t z) {
    uint32x4_t n = vaddq_u32(vreinterpretq_u32_f32(z), vdupq_n_u32(127));
    return vreinterpretq_f32_u32(vshlq_n_u32(n, 23));
}

static inline specrt__simd_v4x2 specrt__simd_pow2_neon(specrt__simd_v4x2 z) {
    return specrt__simd_pair_neon(specrt__simd_exponent_neon(z.lo),
                                  specrt__simd_exponent_neon(z.hi));
}

static inline void specrt__simd_reduce_neon(specrt__simd_v4x2 (*rows)[2], float *out) {
    for (int r = 0; r < 4; r++) {
        float32x4_t lo = vaddq_f32(rows[r][0].lo, rows[r][1].lo);
        float32x4_t x = vaddq_f32(lo, vaddq_f32(rows[r][0].hi, rows[r][1].hi));
        float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
        out[r] = vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
    }
}

static inline specrt__simd_sums_neon specrt__simd_zeros_neon(void) {
    specrt__simd_sums_neon d;
    for (int i = 0; i < 4; i++) d.part[i] = vdupq_n_f64(0);
    return d;
}

static inline specrt__simd_sums_neon specrt__simd_add_neon(specrt__simd_sums_neon d,
                                                           specrt__simd_v4x2 v) {
    d.part[0] = vaddq_f64(d.part[0], vcvt_f64_f32(vget_low_f32(v.lo)));
    d.part[1] = vaddq_f64(d.part[1], vcvt_high_f64_f32(v.lo));
    d.part[2] = vaddq_f64(d.part[2], vcvt_f64_f32(vget_low_f32(v.hi)));
    d.part[3] = vaddq_f64(d.part[3], vcvt_high_f64_f32(v.hi));
    return d;
}

static inline void specrt__simd_lanes_neon(specrt__simd_sums_neon d, double *out) {
    for (int i = 0; i < 4; i++) vst1q_f64(out + 2 * i, d.part[i]);
}

static void specrt__simd_tile_i8_neon(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                      int32_t *out) {
    for (int r = 0; r < 4; r++) {
        int32x4_t lo = vdupq_n_s32(0), hi = vdupq_n_s32(0);
        for (int64_t j = 0; j < n_cols; j += 8) {
            int16x8_t w = vmovl_s8(vld1_s8(rows[r] + j)), v = vld1q_s16(x + j);
            lo = vmlal_s16(lo, vget_low_s16(w), vget_low_s16(v));
            hi = vmlal_s16(hi, vget_high_s16(w), vget_high_s16(v));
        }
        out[r] = vaddvq_s32(vaddq_s32(lo, hi));
    }
}

SPECRT__SIMD_KERNELS(neon, , specrt__simd_v4x2, 8, 3, 3)

/* --- blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

static inline specrt__simd_v4x2 specrt__blocks_floats_neon(specrt__blocks_codes codes, int at) {
    int8x16_t q = (int8x16_t)codes;
    int16x8_t x = vmovl_s8(at ? vget_high_s8(q) : vget_low_s8(q));
    return specrt__simd_pair_neon(vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))),
                                  vcvtq_f32_s32(vmovl_high_s16(x)));
}

static inline float specrt__blocks_half_neon(const uint8_t *p) {
    return vgetq_lane_f32(
        vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)specrt__base_load16(p)))), 0);
}

static inline void specrt__blocks_halves_neon(const uint8_t *p, float *out) {
    vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))));
}

static inline specrt__blocks_codes specrt__blocks_look_neon(specrt__blocks_codes places) {
    return (specrt__blocks_codes)vqtbl1q_s8(vld1q_s8(specrt__rows_levels), (uint8x16_t)places);
}

SPECRT__BLOCKS_NIBBLES(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_LEVELS(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_FIVES(neon, , specrt__simd_v4x2)
SPECRT__BLOCKS_JOINED(neon, )
SPECRT__BLOCKS_KERNELS(neon, , specrt__simd_v4x2, 8)

#endif

#endif

// >>simd_wasm : src/core/simd_wasm.c
/* simd_wasm.c : the kernels with WebAssembly's vectors of 128 bits, which have no fused instruction: a
 * product of floats is exact as a double, and so is rounded with the sum, as in >>simd_scalar. */

#if defined(SPECRT__SIMD_WASM)

typedef struct specrt__simd_sums_wasm {
    v128_t part[4];
} specrt__simd_sums_wasm;

static inline specrt__simd_v4x2 specrt__simd_pair_wasm(v128_t lo, v128_t hi) {
    specrt__simd_v4x2 v;
    v.lo = lo, v.hi = hi;
    return v;
}

static inline specrt__simd_v4x2 specrt__simd_splat_wasm(float x) {
    return specrt__simd_pair_wasm(wasm_f32x4_splat(x), wasm_f32x4_splat(x));
}

static inline specrt__simd_v4x2 specrt__simd_load_wasm(const float *p) {
    return specrt__simd_pair_wasm(wasm_v128_load(p), wasm_v128_load(p + 4));
}

static inline void specrt__simd_store_wasm(float *p, specrt__simd_v4x2 v) {
    wasm_v128_store(p, v.lo), wasm_v128_store(p + 4, v.hi);
}

static inline specrt__simd_v4x2 specrt__simd_f32_wasm(const uint8_t *row, int64_t i, int at) {
    row += 128 * i + 4 * at;
    return specrt__simd_pair_wasm(wasm_v128_load(row), wasm_v128_load(row + 16));
}

/* Four halves, each with its sign to the left: as floats they are 2^112 times too small, and the greatest
 * exponent is that of infinities and NaN. */
static inline v128_t specrt__simd_halves_wasm(v128_t h) {
    v128_t bits = wasm_v128_and(wasm_i32x4_shl(h, 13), wasm_u32x4_const_splat(0x8fffe000u));
    v128_t x = wasm_f32x4_mul(bits, wasm_f32x4_const_splat(5.1922968585348276e33f));
    v128_t above = wasm_f32x4_ge(wasm_f32x4_abs(x), wasm_f32x4_const_splat(65536));
    return wasm_v128_or(x, wasm_v128_and(above, wasm_u32x4_const_splat(0x7f800000u)));
}

static inline specrt__simd_v4x2 specrt__simd_f16_wasm(const uint8_t *row, int64_t i, int at) {
    row += 64 * i + 2 * at;
    return specrt__simd_pair_wasm(specrt__simd_halves_wasm(wasm_i32x4_load16x4(row)),
                                  specrt__simd_halves_wasm(wasm_i32x4_load16x4(row + 8)));
}

static inline specrt__simd_v4x2 specrt__simd_bf16_wasm(const uint8_t *row, int64_t i, int at) {
    row += 64 * i + 2 * at;
    return specrt__simd_pair_wasm(wasm_i32x4_shl(wasm_u32x4_load16x4(row), 16),
                                  wasm_i32x4_shl(wasm_u32x4_load16x4(row + 8), 16));
}

/* Eight whole numbers as floats. */
static inline specrt__simd_v4x2 specrt__simd_floats_wasm(v128_t i16) {
    return specrt__simd_pair_wasm(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(i16)),
                                  wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(i16)));
}

static inline specrt__simd_v4x2 specrt__simd_mul_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_mul(a.lo, b.lo), wasm_f32x4_mul(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_q8_0_wasm(const uint8_t *row, int64_t i, int at) {
    const uint8_t *block = row + 34 * i;
    return specrt__simd_mul_wasm(
        specrt__simd_splat_wasm(specrt__base_f16(specrt__base_load16(block))),
        specrt__simd_floats_wasm(wasm_i16x8_load8x8(block + 2 + at)));
}

/* The upper two floats as doubles. */
static inline v128_t specrt__simd_upper_wasm(v128_t x) {
    return wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(x, x, 1, 1));
}

static inline v128_t specrt__simd_fused_wasm(v128_t a, v128_t b, v128_t c) {
    v128_t lo = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b));
    v128_t hi = wasm_f64x2_mul(specrt__simd_upper_wasm(a), specrt__simd_upper_wasm(b));
    lo = wasm_f32x4_demote_f64x2_zero(wasm_f64x2_add(lo, wasm_f64x2_promote_low_f32x4(c)));
    hi = wasm_f32x4_demote_f64x2_zero(wasm_f64x2_add(hi, specrt__simd_upper_wasm(c)));
    return wasm_i64x2_shuffle(lo, hi, 0, 2);
}

static inline specrt__simd_v4x2 specrt__simd_fma_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b,
                                                      specrt__simd_v4x2 c) {
    return specrt__simd_pair_wasm(specrt__simd_fused_wasm(a.lo, b.lo, c.lo),
                                  specrt__simd_fused_wasm(a.hi, b.hi, c.hi));
}

static inline specrt__simd_v4x2 specrt__simd_sub_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_sub(a.lo, b.lo), wasm_f32x4_sub(a.hi, b.hi));
}

static inline specrt__simd_v4x2 specrt__simd_max_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return specrt__simd_pair_wasm(wasm_f32x4_pmax(b.lo, a.lo), wasm_f32x4_pmax(b.hi, a.hi));
}

static inline int specrt__simd_any_reach_wasm(specrt__simd_v4x2 a, specrt__simd_v4x2 b) {
    return !wasm_i32x4_all_true(
        wasm_v128_and(wasm_f32x4_lt(a.lo, b.lo), wasm_f32x4_lt(a.hi, b.hi)));
}

static inline v128_t specrt__simd_exponent_wasm(v128_t z) {
    return wasm_i32x4_shl(wasm_i32x4_add(z, wasm_i32x4_const_splat(127)), 23);
}

static inline specrt__simd_v4x2 specrt__simd_pow2_wasm(specrt__simd_v4x2 z) {
    return specrt__simd_pair_wasm(specrt__simd_exponent_wasm(z.lo),
                                  specrt__simd_exponent_wasm(z.hi));
}

static inline void specrt__simd_reduce_wasm(specrt__simd_v4x2 (*rows)[2], float *out) {
    for (int r = 0; r < 4; r++) {
        v128_t lo = wasm_f32x4_add(rows[r][0].lo, rows[r][1].lo);
        v128_t x = wasm_f32x4_add(lo, wasm_f32x4_add(rows[r][0].hi, rows[r][1].hi));
        v128_t y = wasm_f32x4_add(x, wasm_i64x2_shuffle(x, x, 1, 1));
        out[r] = wasm_f32x4_extract_lane(y, 0) + wasm_f32x4_extract_lane(y, 1);
    }
}

static inline specrt__simd_sums_wasm specrt__simd_zeros_wasm(void) {
    specrt__simd_sums_wasm d;
    for (int i = 0; i < 4; i++) d.part[i] = wasm_f64x2_const_splat(0);
    return d;
}

static inline specrt__simd_sums_wasm specrt__simd_add_wasm(specrt__simd_sums_wasm d,
                                                           specrt__simd_v4x2 v) {
    d.part[0] = wasm_f64x2_add(d.part[0], wasm_f64x2_promote_low_f32x4(v.lo));
    d.part[1] = wasm_f64x2_add(d.part[1], specrt__simd_upper_wasm(v.lo));
    d.part[2] = wasm_f64x2_add(d.part[2], wasm_f64x2_promote_low_f32x4(v.hi));
    d.part[3] = wasm_f64x2_add(d.part[3], specrt__simd_upper_wasm(v.hi));
    return d;
}

static inline void specrt__simd_lanes_wasm(specrt__simd_sums_wasm d, double *out) {
    for (int i = 0; i < 4; i++) wasm_v128_store(out + 2 * i, d.part[i]);
}

static void specrt__simd_tile_i8_wasm(const int8_t *const *rows, const int16_t *x, int64_t n_cols,
                                      int32_t *out) {
    for (int r = 0; r < 4; r++) {
        v128_t sum = wasm_i32x4_const_splat(0);
        for (int64_t j = 0; j < n_cols; j += 8)
            sum = wasm_i32x4_add(
                sum, wasm_i32x4_dot_i16x8(wasm_i16x8_load8x8(rows[r] + j), wasm_v128_load(x + j)));
        sum = wasm_i32x4_add(sum, wasm_i64x2_shuffle(sum, sum, 1, 1));
        out[r] = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
    }
}

SPECRT__SIMD_KERNELS(wasm, , specrt__simd_v4x2, 8, 3, 3)

/* --- blocks --- */
#if defined(SPECRT__BLOCKS_VECTORS)

static inline specrt__simd_v4x2 specrt__blocks_floats_wasm(specrt__blocks_codes codes, int at) {
    v128_t q = (v128_t)codes;
    return specrt__simd_floats_wasm(at ? wasm_i16x8_extend_high_i8x16(q)
                                       : wasm_i16x8_extend_low_i8x16(q));
}

static inline float specrt__blocks_half_wasm(const uint8_t *p) {
    return specrt__base_f16(specrt__base_load16(p));
}

static inline void specrt__blocks_halves_wasm(const uint8_t *p, float *out) {
    wasm_v128_store(out, specrt__simd_halves_wasm(wasm_i32x4_load16x4(p)));
}

static inline specrt__blocks_codes specrt__blocks_look_wasm(specrt__blocks_codes places) {
    return (specrt__blocks_codes)wasm_i8x16_swizzle(wasm_v128_load(specrt__rows_levels),
                                                    (v128_t)places);
}

SPECRT__BLOCKS_NIBBLES(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_LEVELS(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_FIVES(wasm, , specrt__simd_v4x2)
SPECRT__BLOCKS_JOINED(wasm, )
SPECRT__BLOCKS_KERNELS(wasm, , specrt__simd_v4x2, 8)

#endif

#endif

// >>simd : src/core/simd.c
/* simd.c : chooses the kernels of a type, and those of this machine. */

/* The kernels of a type here; -1 for those of >>blocks, which are decoded when packed. */
SPECRT__INTERNAL int specrt__simd_format(specrt_dtype dtype) {
    switch (dtype) {
    case SPECRT_DTYPE_F32: return SPECRT__SIMD_F32;
    case SPECRT_DTYPE_F16: return SPECRT__SIMD_F16;
    case SPECRT_DTYPE_BF16: return SPECRT__SIMD_BF16;
    case SPECRT_DTYPE_Q8_0: return SPECRT__SIMD_Q8_0;
    default: return -1;
    }
}

SPECRT__INTERNAL const specrt__simd_kernels *specrt__simd_choose(void) {
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx512bw")) return &specrt__simd_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &specrt__simd_kernels_avx2; /* no CPU has AVX2 without F16C */
#elif defined(SPECRT__SIMD_ARM64)
    return &specrt__simd_kernels_neon;
#elif defined(SPECRT__SIMD_WASM)
    return &specrt__simd_kernels_wasm;
#endif
    return &specrt__simd_kernels_scalar;
}

// >>blocks : src/core/blocks.c
/* blocks.c : finds the kernels of a type of blocks. */

/* The kernels of a type of blocks, of the instruction set that `kernels` are of. */
SPECRT__INTERNAL const specrt__blocks_kernels *
specrt__blocks_find(const specrt__simd_kernels *kernels, specrt_dtype dtype) {
    const specrt__blocks_kernels *k = specrt__blocks_kernels_scalar;
#if !defined(SPECRT__BLOCKS_VECTORS)
    (void)kernels;
#elif defined(SPECRT__SIMD_X86)
    if (kernels == &specrt__simd_kernels_avx2) k = specrt__blocks_kernels_avx2;
    if (kernels == &specrt__simd_kernels_avx512) k = specrt__blocks_kernels_avx512;
#elif defined(SPECRT__SIMD_ARM64)
    if (kernels == &specrt__simd_kernels_neon) k = specrt__blocks_kernels_neon;
#else
    if (kernels == &specrt__simd_kernels_wasm) k = specrt__blocks_kernels_wasm;
#endif
    while (k->dtype != dtype) k++;
    return k;
}

// >>head : src/core/head.h
/* head.h : a bound head: its rows, products with them, copies of them */

struct specrt_compute {
    const specrt__simd_kernels *kernels;
    specrt_env env;
};

struct specrt_head {
    specrt_compute compute;
    specrt_head_desc desc;     /* row_stride and logit_scale filled in */
    specrt_markov_desc markov; /* the same; what desc.markov points to if it is not NULL */
    int32_t n_ids;             /* every row's id is below it */
    int32_t *row_of; /* [n_ids] -1: none; NULL: each id is its row. Stands behind this struct */
};

/* --- products --- */

/* The tiles of a type: those of f32 where rows are decoded for them. */
static inline int specrt__head_tiles(specrt_dtype dtype) {
    int format = specrt__simd_format(dtype);
    return format < 0 ? SPECRT__SIMD_F32 : format;
}

SPECRT__INTERNAL void specrt__head_products(const specrt__simd_kernels *kernels,
                                            const specrt_segment *s, int32_t begin, int32_t end,
                                            int64_t n_cols, const float *hidden, int32_t n,
                                            float *logits, size_t logits_stride);

/* --- from products to logits: scaled, then capped (specrt_head_desc.logit_scale) --- */

static inline bool specrt__head_is_plain(const specrt_head_desc *desc) {
    return desc->logit_scale == 1 && desc->softcap == 0;
}

static inline double specrt__head_logit(const specrt_head_desc *desc, double product) {
    double x = (double)desc->logit_scale * product, cap = (double)desc->softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* How fast a logit grows with its product. */
static inline double specrt__head_slope(const specrt_head_desc *desc, double logit) {
    double cap = (double)desc->softcap, share = cap > 0 ? logit / cap : 0;
    return (double)desc->logit_scale * (1 - share * share);
}

SPECRT__INTERNAL void specrt__head_shape(const specrt_head_desc *desc, int32_t n, float *x);

/* --- binding --- */

static inline const uint8_t *specrt__head_row(const specrt_head_desc *desc, int64_t row) {
    return (const uint8_t *)desc->rows + (size_t)row * desc->row_stride;
}

SPECRT__INTERNAL specrt_status specrt__head_resolve(const char *name, const specrt_head_desc *in,
                                                    specrt_head_desc *out, specrt_error *err);
SPECRT__INTERNAL specrt_status specrt__head_check(const specrt_bundle *bundle,
                                                  const specrt_head_desc *desc, specrt_error *err);

/* The row of a token; -1: it has none. */
static inline int32_t specrt__head_row_of(const specrt_head *head, int32_t id) {
    if (id < 0 || id >= head->n_ids) return -1;
    return head->row_of ? head->row_of[id] : id;
}

/* The type a row has once packed: its own where there are kernels for it, else f16. */
static inline specrt_dtype specrt__head_packed_dtype(const specrt_head *head) {
    return specrt__simd_format(head->desc.dtype) >= 0 ? head->desc.dtype : SPECRT_DTYPE_F16;
}

SPECRT__INTERNAL void specrt__head_fetch(const specrt_head *head, int64_t row);
SPECRT__INTERNAL void specrt__head_pack(const specrt_head *head, int64_t row, uint8_t *out);

// >>head_products : src/core/head_products.c
/* head_products.c : owns the bound head, its check against a bundle, and every product with its rows.
 * Refuses integer types, strides that overlap and sizes that overflow. */

/* --- products --- */

/* Pointers to byte `at` of rows [first, first + 4), the last row standing in for those beyond it. */
static void specrt__head_four(const specrt_segment *s, int32_t first, int64_t at,
                              const uint8_t **out) {
    const uint8_t *rows = (const uint8_t *)s->rows + at;
    if (!s->places && first + 4 <= s->n_rows) {
        rows += (size_t)first * s->row_stride;
        for (int32_t r = 0; r < 4; r++, rows += s->row_stride) out[r] = rows;
        return;
    }
    for (int32_t r = 0; r < 4; r++) {
        int32_t row = first + r < s->n_rows ? first + r : s->n_rows - 1;
        out[r] = rows + (size_t)(s->places ? s->places[row] : row) * s->row_stride;
    }
}

/* Rows here and there lie in pages of their own, whose addresses take long to find: asked for early. */
static void specrt__head_walk(const specrt_segment *s, int32_t first, size_t row_bytes) {
    const uint8_t *rows[4];
    specrt__head_four(s, first, 0, rows);
    for (int r = 0; r < 4; r++)
        for (size_t page = 0; page < row_bytes; page += 4096) SPECRT__SIMD_PREFETCH(rows[r] + page);
}

/* Adds the biases of rows [begin, end) to their logits. */
static void specrt__head_bias(const specrt_segment *s, int32_t begin, int32_t end, float *logits) {
    if (!s->bias) return;
    for (int32_t row = begin; row < end; row++)
        logits[row] += s->bias[s->places ? s->places[row] : row];
}

enum {
    SPECRT__HEAD_CACHED = 32 << 20, /* bytes of rows that some cache may hold */
    SPECRT__HEAD_AHEAD = 8192       /* bytes to fetch ahead of a row that is read by itself */
};

static specrt__simd_four *specrt__head_four_of(const specrt__simd_kernels *kernels,
                                               specrt_dtype dtype, bool stream) {
    int format = specrt__simd_format(dtype);
    if (format < 0) return specrt__blocks_find(kernels, dtype)->four;
    return (stream ? kernels->stream : kernels->four)[format];
}

/* Logits of rows [begin, end) for one hidden row. */
static void specrt__head_single(const specrt__simd_kernels *kernels, const specrt_segment *s,
                                int32_t begin, int32_t end, int64_t n_cols, const float *hidden,
                                float *logits) {
    bool stream = !s->places && s->row_stride * (size_t)s->n_rows > SPECRT__HEAD_CACHED;
    specrt__simd_four *four = specrt__head_four_of(kernels, s->dtype, stream);
    size_t row_bytes = specrt_row_bytes(s->dtype, n_cols);
    int32_t ahead = 4;
    const uint8_t *rows[4], *next[4];
    float last[4];
    if (four != specrt__head_four_of(kernels, s->dtype, false))
        ahead = (int32_t)((SPECRT__HEAD_AHEAD + s->row_stride - 1) / s->row_stride);
    for (int32_t row = begin; row < end; row += 4) {
        specrt__head_four(s, row, 0, rows);
        specrt__head_four(s, row + ahead, 0, next);
        if (s->places) specrt__head_walk(s, row + 8, row_bytes);
        four(rows, next, hidden, n_cols, row + 4 <= end ? logits + row : last);
    }
    if (begin < end && (end - begin) % 4 != 0)
        memcpy(logits + end - (end - begin) % 4, last, (size_t)((end - begin) % 4) * sizeof *last);
    specrt__head_bias(s, begin, end, logits);
}

/* Bytes of 32 columns. */
static int64_t specrt__head_block_bytes(int format) {
    static const uint8_t bytes[SPECRT__SIMD_FORMATS] = {128, 64, 64, 34};
    return bytes[format];
}

enum {
    SPECRT__HEAD_SUMS = 24, /* sums kept for the next columns, of four rows and a tile each */
    SPECRT__HEAD_TILE = 4 * SPECRT__SIMD_MOST * 16,
    SPECRT__HEAD_TILES = 4, /* at a time, so that their hidden rows stay in a cache */
    SPECRT__HEAD_MOST = SPECRT__HEAD_TILES * SPECRT__SIMD_MOST,
    SPECRT__HEAD_COLS = 256 /* at a time where they are copied; twice as many of a single tile */
};

/* Rows [begin, end) against n hidden rows. Four rows and 2 or more hidden rows are a tile, whose sums are 16
 * lanes for each product:
 *
 *     hidden rows             first[0]   first[1]   ...   n
 *     rows begin to + 3       |  tile 0  |  tile 1  |     |    sums
 *     rows begin + 4 to + 7   |  tile 0  |  tile 1  |     |    sums + sums_stride
 *
 * The type of the rows decides what is looped over in which order, outer loops first:
 *
 *     f32              columns, rows, tiles   sums of all rows wait for the next columns (_parts)
 *     f16, bf16, q8_0  rows, tiles, columns   sums_stride 0: sums of four rows, added up at once (_columns)
 *     blocks           rows, columns, tiles   the same, of columns that are decoded for all tiles (_expand)
 *
 * In each of them a lane meets its columns from the first to the last, so the order changes no bit. Sums
 * begin as zeros at column 0, and lanes are added up behind the last column (_finish). Tiles are as even as
 * they go, so none has one hidden row, for which there is no tile. */
typedef struct specrt__head_work {
    const specrt__simd_kernels *kernels;
    const specrt_segment *segment;
    const float *hidden; /* [n, n_cols] */
    int64_t n_cols;
    int32_t n, n_tiles, begin, end;
    float *logits; /* [n, logits_stride] */
    size_t logits_stride;
    int32_t first[SPECRT__HEAD_TILES + 1]; /* hidden row of each tile */
    const float *at[SPECRT__HEAD_MOST]; /* the columns of each hidden row, as a kernel wants them */
    float *copies;      /* [n, some columns] for f32, or [n, 32]: those behind the last block */
    float *sums;        /* [rows / 4 or 1, n_tiles, a tile's] */
    size_t sums_stride; /* from four rows to the next; 0: theirs are not kept */
    float *decoded;     /* [4, SPECRT__BLOCKS_COLS] of blocks; as these two, aligned to 64 */
    float room[SPECRT__HEAD_COLS * SPECRT__HEAD_MOST + SPECRT__HEAD_SUMS * SPECRT__HEAD_TILE +
               4 * SPECRT__BLOCKS_COLS + 16];
} specrt__head_work;

/* Tiles as even as they go: the last of full ones would be mostly empty. */
static void specrt__head_divide(specrt__head_work *w) {
    int32_t most = w->kernels->n_hidden[specrt__head_tiles(w->segment->dtype)];
    w->n_tiles = (w->n + most - 1) / most;
    for (int32_t tile = 0; tile <= w->n_tiles; tile++) w->first[tile] = w->n * tile / w->n_tiles;
}

/* Columns [at, at + n) of a hidden row, 0 beyond the last. */
static void specrt__head_copy(const specrt__head_work *w, int32_t h, int64_t at, int64_t n,
                              float *to) {
    int64_t n_left = w->n_cols - at < n ? w->n_cols - at : n;
    memcpy(to, w->hidden + h * w->n_cols + at, (size_t)n_left * sizeof *to);
    memset(to + n_left, 0, (size_t)(n - n_left) * sizeof *to);
}

/* Columns [at, at + n) beside each other: hidden rows that come from memory as fast as they are multiplied
 * must not push each other from the first cache. */
static void specrt__head_gather(specrt__head_work *w, int64_t at, int64_t n) {
    for (int32_t h = 0; h < w->n; h++) {
        float *to = w->copies + h * n;
        specrt__head_copy(w, h, at, n, to);
        w->at[h] = to;
    }
}

/* All columns, where they are; those behind the last block are copied. */
static void specrt__head_point(specrt__head_work *w) {
    int64_t n_whole = w->n_cols / 32 * 32;
    for (int32_t h = 0; h < w->n; h++) {
        w->at[h] = w->hidden + h * w->n_cols;
        if (n_whole < w->n_cols) specrt__head_copy(w, h, n_whole, 32, w->copies + 32 * h);
    }
}

/* Adds the columns behind the last block, for n hidden rows from h0 on. */
static void specrt__head_last(const specrt__head_work *w, int32_t row, int32_t h0, int32_t n,
                              int64_t n_blocks, float *sums) {
    int format = specrt__simd_format(w->segment->dtype);
    const uint8_t *rows[4];
    const float *hidden[SPECRT__SIMD_MOST];
    specrt__simd_tail tail;
    specrt__head_four(w->segment, row, 0, rows);
    specrt__simd_pad(&tail, rows, w->n_cols, (size_t)specrt__head_block_bytes(format) / 32);
    for (int32_t i = 0; i < n; i++)
        hidden[i] =
            format == SPECRT__SIMD_F32 ? w->at[h0 + i] + 32 * n_blocks : w->copies + 32 * (h0 + i);
    w->kernels->tile[format][n - 2](tail.rows, tail.rows, 0, hidden, 1, sums, sums);
}

/* Logits of four rows from their sums, without the bias. */
static void specrt__head_finish(const specrt__head_work *w, int32_t row, const float *sums) {
    float *logits = w->logits + row, last[SPECRT__SIMD_MOST][4];
    for (int32_t tile = 0; tile < w->n_tiles; tile++, sums += SPECRT__HEAD_TILE) {
        int32_t n = w->first[tile + 1] - w->first[tile];
        if (row + 4 <= w->end) {
            w->kernels->lanes(sums, n, logits, w->logits_stride);
            logits += (size_t)n * w->logits_stride;
            continue;
        }
        w->kernels->lanes(sums, n, last[0], 4);
        for (int32_t i = 0; i < n; i++, logits += w->logits_stride)
            memcpy(logits, last[i], (size_t)(w->end - row) * sizeof *logits);
    }
}

/* Adds the columns [at, at + n); rows are fetched in shares, one by each tile. */
static void specrt__head_columns(specrt__head_work *w, int64_t at, int64_t n) {
    static const float zeros[SPECRT__HEAD_TILE] = {0};
    const specrt_segment *s = w->segment;
    int format = specrt__simd_format(s->dtype);
    int64_t bytes = specrt__head_block_bytes(format), n_blocks = n / 32;
    int64_t step = (bytes + w->n_tiles - 1) / w->n_tiles;
    int32_t ahead =
        (int32_t)specrt__base_align((uint64_t)(SPECRT__HEAD_AHEAD / (n_blocks * bytes + 1)) + 1, 4);
    float *sums = w->sums;
    for (int32_t row = w->begin; row < w->end; row += 4, sums += w->sums_stride) {
        const uint8_t *rows[4], *fetch[4], *next[4];
        specrt__head_four(s, row, at / 32 * bytes, rows);
        specrt__head_four(s, row + ahead, at / 32 * bytes, fetch);
        if (s->places && at == 0)
            specrt__head_walk(s, row + 8, specrt_row_bytes(s->dtype, w->n_cols));
        for (int32_t tile = 0, share = 0, r = 0; tile < w->n_tiles; tile++) {
            int32_t h0 = w->first[tile], n_hidden = w->first[tile + 1] - h0;
            float *to = sums + tile * SPECRT__HEAD_TILE;
            for (int p = 0; p < 4; p++) {
                next[p] = fetch[r] + share * n_blocks * step;
                if (++share == w->n_tiles) share = 0, r++;
            }
            w->kernels->tile[format][n_hidden - 2](rows, next, step, w->at + h0, n_blocks,
                                                   at == 0 ? zeros : to, to);
            if (n % 32 != 0) specrt__head_last(w, row, h0, n_hidden, n_blocks, to);
        }
        if (at + n == w->n_cols) specrt__head_finish(w, row, sums);
    }
}

/* Some columns of a few hidden rows stay in the first cache while many rows pass; the sums wait for the
 * next columns. That pays where memory is the bound: rows of f32. */
static void specrt__head_parts(specrt__head_work *w) {
    int64_t n_part = w->n_tiles > 1 ? SPECRT__HEAD_COLS : 2 * SPECRT__HEAD_COLS;
    w->sums_stride = (size_t)w->n_tiles * SPECRT__HEAD_TILE;
    for (int64_t at = 0; at < w->n_cols; at += n_part) {
        int64_t n = w->n_cols - at < n_part ? w->n_cols - at : n_part;
        specrt__head_gather(w, at, (n + 31) / 32 * 32);
        specrt__head_columns(w, at, n);
    }
}

/* Four rows are decoded for all tiles, some columns at a time. */
static void specrt__head_expand(specrt__head_work *w) {
    static const float zeros[SPECRT__HEAD_TILE] = {0};
    const specrt__blocks_kernels *blocks = specrt__blocks_find(w->kernels, w->segment->dtype);
    size_t part_bytes = specrt_row_bytes(w->segment->dtype, SPECRT__BLOCKS_COLS);
    const float *hidden[SPECRT__SIMD_MOST];
    const uint8_t *from[4], *next[4], *rows[4];
    for (int r = 0; r < 4; r++) rows[r] = (const uint8_t *)(w->decoded + r * SPECRT__BLOCKS_COLS);
    for (int32_t row = w->begin; row < w->end; row += 4) {
        specrt__head_four(w->segment, row, 0, from);
        specrt__head_four(w->segment, row + 4, 0, next);
        for (int64_t at = 0; at < w->n_cols; at += SPECRT__BLOCKS_COLS) {
            int64_t n = w->n_cols - at;
            if (n > SPECRT__BLOCKS_COLS) n = SPECRT__BLOCKS_COLS;
            blocks->expand(from, next, n, w->decoded);
            for (int r = 0; r < 4; r++) from[r] += part_bytes, next[r] += part_bytes;
            for (int32_t tile = 0; tile < w->n_tiles; tile++) {
                int32_t h0 = w->first[tile], n_hidden = w->first[tile + 1] - h0;
                float *sums = w->sums + tile * SPECRT__HEAD_TILE;
                for (int32_t h = 0; h < n_hidden; h++) hidden[h] = w->at[h0 + h] + at;
                w->kernels->tile[SPECRT__SIMD_F32][n_hidden - 2](rows, rows, 0, hidden, n / 32,
                                                                 at == 0 ? zeros : sums, sums);
            }
        }
        specrt__head_finish(w, row, w->sums);
    }
}

/* Logits of rows [begin, end) for n > 1 hidden rows: four rows at a time, each read from memory once. */
static void specrt__head_several(const specrt__simd_kernels *kernels, const specrt_segment *s,
                                 int32_t begin, int32_t end, int64_t n_cols, const float *hidden,
                                 int32_t n, float *logits, size_t logits_stride) {
    bool parts = s->dtype == SPECRT_DTYPE_F32;
    int32_t n_hidden = kernels->n_hidden[specrt__head_tiles(s->dtype)];
    int32_t most = SPECRT__HEAD_TILES * n_hidden;
    int32_t n_tiles = ((n < most ? n : most) + n_hidden - 1) / n_hidden;
    int32_t n_rows = SPECRT__HEAD_SUMS / n_tiles * 4;
    specrt__head_work w;
    w.kernels = kernels, w.segment = s, w.n_cols = n_cols;
    w.logits_stride = logits_stride, w.sums_stride = 0;
    w.copies = (float *)(void *)(((uintptr_t)w.room + 63) & ~(uintptr_t)63);
    w.sums = w.copies + SPECRT__HEAD_COLS * SPECRT__HEAD_MOST;
    w.decoded = w.sums + SPECRT__HEAD_SUMS * SPECRT__HEAD_TILE;
    for (; begin < end; begin += n_rows)
        for (int32_t h = 0; h < n; h += w.n) { /* never one alone */
            w.n = n - h <= most ? n - h : n - h < 2 * most ? (n - h) / 2 : most;
            specrt__head_divide(&w);
            w.hidden = hidden + h * n_cols;
            w.logits = logits + (size_t)h * logits_stride;
            w.begin = begin, w.end = end - begin < n_rows ? end : begin + n_rows;
            if (specrt__simd_format(s->dtype) < 0)
                specrt__head_point(&w), specrt__head_expand(&w);
            else if (parts)
                specrt__head_parts(&w);
            else
                specrt__head_point(&w), specrt__head_columns(&w, 0, n_cols);
            for (int32_t i = 0; i < w.n; i++)
                specrt__head_bias(s, w.begin, w.end, w.logits + (size_t)i * logits_stride);
        }
}

/* Logits of rows [begin, end) for n hidden rows.
 *   logits : f32, n rows of logits_stride */
SPECRT__INTERNAL void specrt__head_products(const specrt__simd_kernels *kernels,
                                            const specrt_segment *s, int32_t begin, int32_t end,
                                            int64_t n_cols, const float *hidden, int32_t n,
                                            float *logits, size_t logits_stride) {
    if (n == 1)
        specrt__head_single(kernels, s, begin, end, n_cols, hidden, logits);
    else if (n > 1)
        specrt__head_several(kernels, s, begin, end, n_cols, hidden, n, logits, logits_stride);
}

/* --- from products to logits: scaled, then capped (specrt_head_desc.logit_scale) --- */

/* The same of n products, in place. Monotone: which logits are the best stays. */
SPECRT__INTERNAL void specrt__head_shape(const specrt_head_desc *desc, int32_t n, float *x) {
    float scale = desc->logit_scale, cap = desc->softcap;
    if (specrt__head_is_plain(desc)) return;
    for (int32_t i = 0; i < n; i++) x[i] *= scale;
    for (int32_t i = 0; i < n && cap > 0; i++) x[i] = cap * tanhf(x[i] / cap);
}

// >>head : src/core/head.c
/* head.c : owns the binding of a head, its digest, and copies of its rows. Refuses weights that are not the
 * bundle's. */

/* --- binding --- */

/* What *in says, with its stride and scale filled in, or why not; name: what it is, for messages. */
SPECRT__INTERNAL specrt_status specrt__head_resolve(const char *name, const specrt_head_desc *in,
                                                    specrt_head_desc *out, specrt_error *err) {
    const char *type = specrt_dtype_name(in->dtype);
    uint64_t bytes;
    if (!type || in->dtype == SPECRT_DTYPE_I32 || in->dtype == SPECRT_DTYPE_I64)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: type %d: expected a float row format, found %s", name,
                                (int)in->dtype, type ? type : "an unknown one");
    if (!in->rows || in->n_rows < 1 || in->n_rows > SPECRT_MAX_VOCAB)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG, "%s: expected 1 to %d rows in memory, found %lld%s", name,
            SPECRT_MAX_VOCAB, (long long)in->n_rows, in->rows ? "" : " at NULL");
    size_t row_bytes = specrt_row_bytes(in->dtype, in->n_cols);
    if (row_bytes == 0 || in->n_cols > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected a positive number of columns in whole blocks of "
                                "%s, found %lld",
                                name, type, (long long)in->n_cols);
    *out = *in;
    if (out->row_stride == 0) out->row_stride = row_bytes;
    if (out->row_stride < row_bytes ||
        !specrt__base_mul(out->row_stride, (uint64_t)in->n_rows, &bytes) || bytes > PTRDIFF_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: row_stride: expected at least %llu bytes, found %llu", name,
                                (unsigned long long)row_bytes, (unsigned long long)in->row_stride);
    if (out->logit_scale == 0) out->logit_scale = 1;
    if (!(out->logit_scale > 0 && out->logit_scale <= FLT_MAX) ||
        !(out->softcap >= 0 && out->softcap <= FLT_MAX))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected a logit_scale and softcap above 0, or 0 for none, "
                                "found %g and %g",
                                name, (double)in->logit_scale, (double)in->softcap);
    return SPECRT_STATUS_OK;
}

/* SplitMix64 at step `column`: bit p is the sign of that column in projection p. */
static uint64_t specrt__head_signs(int64_t column) {
    uint64_t z = ((uint64_t)column + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* One row, decoded 256 columns at a time: every block format divides that. */
static void specrt__head_project(const specrt_head_desc *desc, int64_t row, float *out) {
    const uint8_t *p = specrt__head_row(desc, row);
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    double sums[SPECRT_DIGEST_PROJECTIONS] = {0, 0, 0, 0};
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++) {
            uint64_t signs = specrt__head_signs(done + j);
            for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
                sums[k] += signs >> k & 1 ? -(double)values[j] : (double)values[j];
        }
    }
    for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
        out[k] = (float)(sums[k] / sqrt((double)desc->n_cols));
}

SPECRT_API specrt_status specrt_head_digest(const specrt_head_desc *desc, specrt_digest *out,
                                            specrt_error *err) {
    specrt_head_desc head;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(desc);
    SPECRT__TRY(specrt__head_resolve("head", desc, &head, err));
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) {
        int64_t row = (2 * i + 1) * head.n_rows / (2 * SPECRT_DIGEST_ROWS);
        specrt__head_project(&head, row, out->values[i]);
        for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++) {
            if (fabsf(out->values[i][k]) <= FLT_MAX) continue;
            memset(out, 0, sizeof *out);
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "head: row %lld: expected finite weights, found NaN or "
                                    "infinity",
                                    (long long)row);
        }
    }
    return SPECRT_STATUS_OK;
}

/* A row's product and bias, decoded 256 columns at a time. */
static double specrt__head_exact(const specrt_head_desc *desc, int64_t row, const float *hidden) {
    const uint8_t *p = specrt__head_row(desc, row);
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    double sum = desc->bias ? (double)desc->bias[row] : 0;
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++) sum += (double)values[j] * (double)hidden[done + j];
    }
    return sum;
}

typedef struct specrt__head_match {
    double difference, size; /* sums of squares, over all states */
    int64_t n;               /* logits */
    int32_t best, found;     /* of the last state: by their logits, by ours */
    double margin;           /* between the two, by logits */
} specrt__head_match;

static void specrt__head_match_state(const specrt_head_desc *desc, const float *hidden,
                                     const float *logits, int32_t n_logits, specrt__head_match *m) {
    double found = 0;
    m->best = m->found = -1;
    for (int64_t row = 0; row < desc->n_rows; row++) {
        int32_t id = desc->ids ? desc->ids[row] : (int32_t)row;
        if (id < 0 || id >= n_logits) continue;
        double own = specrt__head_logit(desc, specrt__head_exact(desc, row, hidden));
        double logit = (double)logits[id];
        m->difference += (own - logit) * (own - logit);
        m->size += logit * logit;
        m->n++;
        if (m->best < 0 || logit > (double)logits[m->best]) m->best = id;
        if (m->found < 0 || own > found) found = own, m->found = id;
    }
    m->margin = m->n ? (double)logits[m->best] - (double)logits[m->found] : 0;
}

SPECRT_API specrt_status specrt_head_check_states(const specrt_head_desc *desc, const float *hidden,
                                                  int32_t n, const float *logits, int32_t n_logits,
                                                  double *relative_rms, specrt_error *err) {
    specrt_head_desc head;
    specrt__head_match m = {0, 0, 0, 0, 0, 0};
    double rms = 0, apart = 0;
    bool same = true;
    SPECRT__NEED(desc);
    SPECRT__NEED(hidden);
    SPECRT__NEED(logits);
    SPECRT__TRY(specrt__head_resolve("head", desc, &head, err));
    if (n < 1 || n_logits < 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: expected states and logits to check, found %d and %d",
                                (int)n, (int)n_logits);
    for (int32_t i = 0; i < n && same; i++) {
        specrt__head_match_state(&head, hidden + i * head.n_cols, logits + (int64_t)i * n_logits,
                                 n_logits, &m);
        rms = m.size > 0 ? sqrt(m.difference / m.size) : 1;
        apart = m.n ? sqrt(m.difference / (double)m.n) : 0;
        same = m.margin <= 4 * apart; /* or nearly tied */
    }
    if (relative_rms) *relative_rms = rms;
    if (rms <= SPECRT_HEAD_MAX_RMS && same) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "head: rows times states are not these logits: expected a relative rms "
                            "of at most %g and best token %d, found %.3g and %d",
                            SPECRT_HEAD_MAX_RMS, (int)m.best, rms, (int)m.found);
}

/* Projection k of every row less its mean, so that a constant added to all rows drops out. */
static void specrt__head_center(const specrt_digest *digest, int k, double *out) {
    double mean = 0;
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) mean += digest->values[i][k];
    mean /= SPECRT_DIGEST_ROWS;
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) out[i] = digest->values[i][k] - mean;
}

/* |a - b| / sqrt(|a| |b|) of the centred digests. */
SPECRT_API float specrt_digest_distance(const specrt_digest *a, const specrt_digest *b) {
    double aa = 0, bb = 0, difference = 0;
    if (!a || !b) return INFINITY;
    for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++) {
        double x[SPECRT_DIGEST_ROWS], y[SPECRT_DIGEST_ROWS];
        specrt__head_center(a, k, x);
        specrt__head_center(b, k, y);
        for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) {
            aa += x[i] * x[i];
            bb += y[i] * y[i];
            difference += (x[i] - y[i]) * (x[i] - y[i]);
        }
    }
    if (difference == 0) return 0;
    /* Infinite where the rows of one are all equal. */
    return (float)sqrt(difference / sqrt(aa * bb));
}

static bool specrt__head_needed(const specrt_bundle *bundle) {
    int32_t n;
    const specrt_bundle_section *sections = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++)
        if (sections[i].flags & SPECRT_SECTION_DEPENDS_HEAD) return true;
    return false;
}

SPECRT__INTERNAL specrt_status specrt__head_check(const specrt_bundle *bundle,
                                                  const specrt_head_desc *desc, specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    specrt_digest digest;
    if (!ident) return SPECRT_STATUS_OK;
    if (desc->ids && !specrt__head_needed(bundle)) return SPECRT_STATUS_OK;
    if (!desc->ids && ident->n_vocab > desc->n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected at least the %d rows of tokenizer '%s', found "
                                "%lld",
                                bundle->name, (int)ident->n_vocab, ident->tokenizer_name,
                                (long long)desc->n_rows);
    if (ident->head_rows == 0) return SPECRT_STATUS_OK;
    if (ident->head_rows != desc->n_rows || ident->head_cols != desc->n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected '%s' [%d, %d], found [%lld, %lld]; use the "
                                "bundle made for this model: sketch, cluster and centroid are of "
                                "the drafter's head",
                                bundle->name, ident->head_name, (int)ident->head_rows,
                                (int)ident->head_cols, (long long)desc->n_rows,
                                (long long)desc->n_cols);
    SPECRT__TRY(specrt_head_digest(desc, &digest, err));
    float distance = specrt_digest_distance(&ident->head_digest, &digest);
    if (distance > SPECRT_DIGEST_TOLERANCE)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected the weights of '%s', found others (distance "
                                "%.2f, at most %.2f); use the bundle made for this model: sketch, "
                                "cluster and centroid are of the drafter's head",
                                bundle->name, ident->head_name, (double)distance,
                                (double)SPECRT_DIGEST_TOLERANCE);
    return SPECRT_STATUS_OK;
}

/* One more than the highest id. */
static specrt_status specrt__head_count_ids(const specrt_head_desc *desc, int32_t *out,
                                            specrt_error *err) {
    *out = (int32_t)desc->n_rows;
    if (!desc->ids) return SPECRT_STATUS_OK;
    *out = 0;
    for (int64_t i = 0; i < desc->n_rows; i++) {
        if (desc->ids[i] < 0 || desc->ids[i] >= SPECRT_MAX_VOCAB)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "head: ids: row %lld: expected a token from 0 to %d, found %d",
                                    (long long)i, SPECRT_MAX_VOCAB - 1, (int)desc->ids[i]);
        if (desc->ids[i] >= *out) *out = desc->ids[i] + 1;
    }
    return SPECRT_STATUS_OK;
}

/* The inverse of desc.ids, into its own memory. */
static specrt_status specrt__head_map_ids(specrt_head *head, specrt_error *err) {
    head->row_of = (int32_t *)(void *)(head + 1);
    memset(head->row_of, 0xff, (size_t)head->n_ids * sizeof(int32_t));
    for (int32_t i = 0; i < (int32_t)head->desc.n_rows; i++) {
        int32_t *row = &head->row_of[head->desc.ids[i]];
        if (*row >= 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "head: ids: expected distinct tokens, found %d at rows %d and "
                                    "%d",
                                    (int)head->desc.ids[i], (int)*row, (int)i);
        *row = i;
    }
    return SPECRT_STATUS_OK;
}

/* A Markov head beside a head: its ranks are one, and its rows those of all tokens and of the head. */
static specrt_status specrt__head_add_markov(specrt_head *head, specrt_error *err) {
    const specrt_markov_desc *in = head->desc.markov;
    specrt_markov_desc *out = &head->markov;
    if (!in) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__head_resolve("head: markov: from", &in->from, &out->from, err));
    SPECRT__TRY(specrt__head_resolve("head: markov: to", &in->to, &out->to, err));
    if (out->from.n_cols != out->to.n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: markov: expected one rank, found %lld of from and %lld of "
                                "to",
                                (long long)out->from.n_cols, (long long)out->to.n_cols);
    if (out->from.n_rows < head->n_ids || out->to.n_rows != head->desc.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: markov: expected a row of from for each of %d token ids, "
                                "and one of to for each of the head's %lld rows, found %lld and "
                                "%lld; cut `to` with the head, and keep `from` whole",
                                (int)head->n_ids, (long long)head->desc.n_rows,
                                (long long)out->from.n_rows, (long long)out->to.n_rows);
    head->desc.markov = out;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc,
                                          const specrt_env *env, specrt_head **out,
                                          specrt_error *err) {
    specrt_head_desc resolved;
    specrt_env allocator = specrt__base_env(env);
    int32_t n_ids;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(desc);
    SPECRT__TRY(specrt__head_resolve("head", desc, &resolved, err));
    SPECRT__TRY(specrt__head_count_ids(&resolved, &n_ids, err));
    if (bundle) SPECRT__TRY(specrt__head_check(bundle, &resolved, err));
    size_t map_bytes = resolved.ids ? (size_t)n_ids * sizeof(int32_t) : 0;
    specrt_head *head = (specrt_head *)specrt__base_alloc(&allocator, sizeof *head + map_bytes);
    if (!head) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "head: out of memory");
    head->compute.kernels = specrt__simd_choose();
    head->compute.env = allocator;
    head->desc = resolved;
    head->n_ids = n_ids;
    head->row_of = NULL;
    specrt_status status = resolved.ids ? specrt__head_map_ids(head, err) : SPECRT_STATUS_OK;
    if (status == SPECRT_STATUS_OK) status = specrt__head_add_markov(head, err);
    if (status == SPECRT_STATUS_OK)
        *out = head;
    else
        specrt_head_close(head);
    return status;
}

SPECRT_API void specrt_head_close(specrt_head *head) {
    if (!head) return;
    specrt_env allocator = head->compute.env;
    specrt__base_free(&allocator, head);
}

SPECRT_API const specrt_compute *specrt_head_compute(const specrt_head *head) {
    return head ? &head->compute : NULL;
}

/* Ask for a row that is packed next: the beginning of each of its pages, from where hardware goes on. */
SPECRT__INTERNAL void specrt__head_fetch(const specrt_head *head, int64_t row) {
    const uint8_t *p = specrt__head_row(&head->desc, row);
    size_t n = specrt_row_bytes(head->desc.dtype, head->desc.n_cols);
    for (size_t page = 0; page < n; page += 4096)
        for (size_t at = page; at < page + 512 && at < n; at += 64) SPECRT__SIMD_PREFETCH(p + at);
}

/* One row, packed: copied, or decoded and rounded to f16. */
SPECRT__INTERNAL void specrt__head_pack(const specrt_head *head, int64_t row, uint8_t *out) {
    const specrt_head_desc *desc = &head->desc;
    const uint8_t *p = specrt__head_row(desc, row);
    if (specrt__simd_format(desc->dtype) >= 0) {
        memcpy(out, p, specrt_row_bytes(desc->dtype, desc->n_cols));
        return;
    }
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++, out += 2) {
            uint16_t half = specrt__base_to_f16(values[j]);
            memcpy(out, &half, sizeof half);
        }
    }
}

// >>shortlist : src/core/shortlist.h
/* shortlist.h : ranking keys, and products of segments */

enum { SPECRT__SHORTLIST_BLOCK = 128 }; /* rows of one task, a multiple of a tile's four */

SPECRT__INTERNAL void specrt__shortlist_run(const specrt_compute *compute, int64_t n,
                                            void (*task)(void *arg, int64_t i), void *arg);

static inline int64_t specrt__shortlist_blocks(int32_t n_rows) {
    return ((int64_t)n_rows + SPECRT__SHORTLIST_BLOCK - 1) / SPECRT__SHORTLIST_BLOCK;
}

/* --- logits --- */

/* Whether hidden row h has logits of a segment. */
static inline bool specrt__shortlist_scored(const specrt_segment *s, int32_t h) {
    return s->scored_by == 0 || (h < 64 && (s->scored_by >> h & 1));
}

typedef struct specrt__shortlist_product {
    const specrt_shortlist *shortlist;
    const float *hidden;
    int32_t n;
    float *logits;
    int32_t first; /* of the segments to multiply */
} specrt__shortlist_product;

SPECRT__INTERNAL void specrt__shortlist_multiply(const specrt__shortlist_product *p,
                                                 const specrt_segment *s, int32_t begin,
                                                 int32_t end, float *logits);
SPECRT__INTERNAL void specrt__shortlist_complete(const specrt_shortlist *shortlist, int32_t first,
                                                 const float *hidden, int32_t n, float *logits);

/* --- logits of rows that several sequences share --- */

enum { SPECRT__SHORTLIST_SHARED = 64 }; /* hidden rows of one product: 32 KB of a task's stack */

/* A shortlist's first segment times the hidden rows of several sequences, each with a place of its own for
 * its logits. */
typedef struct specrt__shortlist_shared {
    const specrt_shortlist *shortlist;
    const float *hidden;  /* f32 [n, n_cols] */
    int32_t n;            /* at most SPECRT__SHORTLIST_SHARED */
    float *const *logits; /* [n] f32 [n_rows of the segment] */
} specrt__shortlist_shared;

SPECRT__INTERNAL void specrt__shortlist_shared_task(void *arg, int64_t i);

static inline void specrt__shortlist_share(specrt__shortlist_shared *product) {
    const specrt_shortlist *shortlist = product->shortlist;
    specrt__shortlist_run(shortlist->compute, specrt__shortlist_blocks(shortlist->segments->n_rows),
                          specrt__shortlist_shared_task, product);
}

/* --- the best k --- */

enum { SPECRT__SHORTLIST_MAX_K = 256 };

/* Orders a logit as an unsigned number: NaN below all, -0 as 0. */
SPECRT__BOTH static inline uint32_t specrt__shortlist_order(float logit) {
    uint32_t bits = specrt__base_bits(logit + 0.0f);
    uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return logit != logit ? 0 : order;
}

/* Orders candidates as one number: by logit, then by lower id. */
SPECRT__BOTH static inline uint64_t specrt__shortlist_key(float logit, int32_t id) {
    return (uint64_t)specrt__shortlist_order(logit) << 32 | (uint32_t)~id;
}

SPECRT__BOTH static inline int32_t specrt__shortlist_key_id(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

SPECRT__BOTH static inline float specrt__shortlist_key_logit(uint64_t key) {
    uint32_t order = (uint32_t)(key >> 32);
    return specrt__base_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

SPECRT__INTERNAL specrt_status specrt__shortlist_rank(const specrt_shortlist *shortlist,
                                                      const float *logits, int32_t n, int32_t k,
                                                      int32_t *ids, float *logprobs, float *best);

/* The ids of all rows, in the order of their logits. */
static inline void specrt__shortlist_ids(const specrt_shortlist *shortlist, int32_t *ids) {
    for (int32_t i = 0; i < shortlist->n_segments; ids += shortlist->segments[i++].n_rows)
        memcpy(ids, shortlist->segments[i].ids,
               (size_t)shortlist->segments[i].n_rows * sizeof *ids);
}

SPECRT__INTERNAL void specrt__shortlist_select(uint64_t *keys, int32_t n, int32_t k);

/* The best of a row of logits, by lower id among equals; -1: one is NaN, or none is above -inf. */
SPECRT__INTERNAL int32_t specrt__shortlist_argmax(const float *logits, int32_t n);

/* The k best tokens of the target at position i, at most SPECRT_LOGITS_MAX_K. @return how many are known. */
SPECRT__INTERNAL int32_t specrt__shortlist_target_best(const specrt_target_rows *rows, int32_t i,
                                                       int32_t n_logits, int32_t k, int32_t *ids);

// >>shortlist : src/core/shortlist.c
/* shortlist.c : owns the products and the ranking over a list of segments, the packing of rows into one, and
 * which sources want which token. Refuses nothing of the world: its inputs were checked when they were
 * made. Work is cut into blocks that do not depend on who runs them. */

/* task(arg, i) for every i in [0, n), on the application's threads if it lends any. */
SPECRT__INTERNAL void specrt__shortlist_run(const specrt_compute *compute, int64_t n,
                                            void (*task)(void *arg, int64_t i), void *arg) {
    const specrt_env *env = &compute->env;
    if (env->parallel_for && n > 1) {
        env->parallel_for(env->user, n, task, arg);
        return;
    }
    for (int64_t i = 0; i < n; i++) task(arg, i);
}

/* --- logits --- */

/* Rows [begin, end) of a segment for each run of hidden rows that score it. */
SPECRT__INTERNAL void specrt__shortlist_multiply(const specrt__shortlist_product *p,
                                                 const specrt_segment *s, int32_t begin,
                                                 int32_t end, float *logits) {
    const specrt_shortlist *shortlist = p->shortlist;
    size_t stride = (size_t)shortlist->n_rows;
    for (int32_t h = 0, n; h < p->n; h += n) {
        bool scored = specrt__shortlist_scored(s, h);
        float *out = logits + (size_t)h * stride;
        for (n = 1; h + n < p->n && specrt__shortlist_scored(s, h + n) == scored;) n++;
        if (scored)
            specrt__head_products(shortlist->compute->kernels, s, begin, end, shortlist->n_cols,
                                  p->hidden + h * shortlist->n_cols, n, out, stride);
        for (int32_t i = 0; i < n && scored && shortlist->head; i++)
            specrt__head_shape(&shortlist->head->desc, end - begin,
                               out + (size_t)i * stride + (size_t)begin);
        for (int32_t i = 0; i < n && !scored; i++)
            for (int32_t r = begin; r < end; r++) out[(size_t)i * stride + (size_t)r] = -INFINITY;
    }
}

/* Block i, counted through the segments from the first on. */
static void specrt__shortlist_product_task(void *arg, int64_t i) {
    const specrt__shortlist_product *p = (const specrt__shortlist_product *)arg;
    const specrt_shortlist *shortlist = p->shortlist;
    const specrt_segment *s = shortlist->segments + p->first;
    float *logits = p->logits;
    for (int32_t j = 0; j < p->first; j++) logits += shortlist->segments[j].n_rows;
    for (; i >= specrt__shortlist_blocks(s->n_rows); s++) {
        i -= specrt__shortlist_blocks(s->n_rows);
        logits += s->n_rows;
    }
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = s->n_rows - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    specrt__shortlist_multiply(p, s, begin, end, logits);
}

/* Each token is scored once: what an earlier segment covers does not count again. */
static void specrt__shortlist_mask(const specrt_shortlist *shortlist, int32_t n, float *logits) {
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t row = 0; row < n; row++)
            for (int32_t j = 0; j < s->n_masked; j++)
                logits[(int64_t)row * shortlist->n_rows + s->masked[j]] = -INFINITY;
        logits += s->n_rows;
    }
}

/* The logits of the segments from `first` on, beside those that are there already; then all masks. */
SPECRT__INTERNAL void specrt__shortlist_complete(const specrt_shortlist *shortlist, int32_t first,
                                                 const float *hidden, int32_t n, float *logits) {
    specrt__shortlist_product p = {shortlist, hidden, n, logits, first};
    int64_t n_blocks = 0;
    for (int32_t i = first; i < shortlist->n_segments; i++)
        n_blocks += specrt__shortlist_blocks(shortlist->segments[i].n_rows);
    specrt__shortlist_run(shortlist->compute, n_blocks, specrt__shortlist_product_task, &p);
    specrt__shortlist_mask(shortlist, n, logits);
}

SPECRT_API specrt_status specrt_shortlist_logits(const specrt_shortlist *shortlist,
                                                 const float *hidden, int32_t n, float *logits) {
    if (!shortlist || !hidden || !logits || n < 1) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_complete(shortlist, 0, hidden, n, logits);
    return SPECRT_STATUS_OK;
}

/* --- logits of rows that several sequences share --- */

/* The rows of a segment from `begin` on, for products, which look at no ids or masks. */
static specrt_segment specrt__shortlist_rest(const specrt_segment *s, int32_t begin) {
    specrt_segment rest = *s;
    rest.n_rows -= begin;
    if (s->places)
        rest.places += begin;
    else
        rest.rows = (const uint8_t *)s->rows + (size_t)begin * s->row_stride;
    if (s->bias && !s->places) rest.bias += begin;
    return rest;
}

SPECRT__INTERNAL void specrt__shortlist_shared_task(void *arg, int64_t i) {
    const specrt__shortlist_shared *p = (const specrt__shortlist_shared *)arg;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK,
            left = p->shortlist->segments->n_rows - begin;
    int32_t n_rows = left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK;
    float tile[(int)SPECRT__SHORTLIST_SHARED * (int)SPECRT__SHORTLIST_BLOCK];
    specrt_segment rest = specrt__shortlist_rest(p->shortlist->segments, begin);
    specrt_shortlist tiled = *p->shortlist;
    specrt__shortlist_product product = {&tiled, p->hidden, p->n, tile, 0};
    tiled.n_rows = n_rows;
    specrt__shortlist_multiply(&product, &rest, 0, n_rows, tile);
    for (int32_t h = 0; h < p->n; h++)
        memcpy(p->logits[h] + begin, tile + (size_t)h * (size_t)n_rows,
               (size_t)n_rows * sizeof *tile);
}

/* --- the best k --- */

/* Moves the k greatest of n distinct keys to the front. They come in no order, so which half one goes to
 * cannot be foretold: no branch asks. */
SPECRT__INTERNAL void specrt__shortlist_select(uint64_t *keys, int32_t n, int32_t k) {
    int32_t begin = 0, end = n;
    while (begin < k && k < end) {
        int32_t middle = begin + (end - begin) / 2, last = end - 1, front = begin;
        uint64_t a = keys[begin], b = keys[middle], c = keys[last];
        int32_t at = a < b ? (b < c   ? middle
                              : a < c ? last
                                      : begin)
                           : (a < c   ? begin
                              : b < c ? last
                                      : middle);
        uint64_t pivot = keys[at];
        keys[at] = keys[last];
        for (int32_t i = begin; i < last; i++) {
            uint64_t key = keys[i];
            keys[i] = keys[front];
            keys[front] = key;
            front += key > pivot;
        }
        keys[last] = keys[front];
        keys[front] = pivot;
        if (k <= front)
            end = front;
        else
            begin = front + 1;
    }
}

/* The k greatest keys of a row, descending. */
static void specrt__shortlist_best(const specrt_shortlist *shortlist, const float *logits,
                                   int32_t k, uint64_t *best) {
    const specrt__simd_kernels *kernels = shortlist->compute->kernels;
    int32_t n_best = 0;
    float worst = -INFINITY; /* logit of best[k - 1] once there are k */
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t r = 0; r < s->n_rows; r++) {
            if (r % SPECRT__SIMD_SCAN == 0 && n_best == k && worst == worst) {
                r += (int32_t)kernels->find(logits + r, s->n_rows - r, worst);
                if (r >= s->n_rows) break;
            }
            if (logits[r] < worst) continue;
            uint64_t key = specrt__shortlist_key(logits[r], s->ids[r]);
            if (n_best == k && key < best[k - 1]) continue;
            int32_t at = n_best < k ? n_best++ : k - 1;
            for (; at > 0 && best[at - 1] < key; at--) best[at] = best[at - 1];
            best[at] = key;
            if (n_best == k) worst = specrt__shortlist_key_logit(best[k - 1]);
        }
        logits += s->n_rows;
    }
}

typedef struct specrt__shortlist_ranking {
    const specrt_shortlist *shortlist;
    const float *logits;
    int32_t k;
    int32_t *ids;
    float *logprobs, *best; /* either may be NULL */
} specrt__shortlist_ranking;

/* How many of n are equal to x: what the sum of exponentials comes to when x is infinite. */
static double specrt__shortlist_count(const float *logits, int32_t n, float x) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) count += logits[i] == x;
    return count;
}

static void specrt__shortlist_ranking_task(void *arg, int64_t i) {
    const specrt__shortlist_ranking *r = (const specrt__shortlist_ranking *)arg;
    int32_t n = r->shortlist->n_rows;
    const float *logits = r->logits + i * n;
    uint64_t best[SPECRT__SHORTLIST_MAX_K];
    specrt__shortlist_best(r->shortlist, logits, r->k, best);
    for (int32_t j = 0; j < r->k; j++) {
        r->ids[i * r->k + j] = specrt__shortlist_key_id(best[j]);
        if (r->best) r->best[i * r->k + j] = specrt__shortlist_key_logit(best[j]);
    }
    if (!r->logprobs) return;
    float max = specrt__shortlist_key_logit(best[0]);
    double total = fabsf(max) <= FLT_MAX ? r->shortlist->compute->kernels->sum_exp(logits, n, max)
                                         : specrt__shortlist_count(logits, n, max);
    double log_total = log(total);
    for (int32_t j = 0; j < r->k; j++) {
        float logit = specrt__shortlist_key_logit(best[j]);
        double logprob = (logit == max ? 0.0 : (double)logit - max) - log_total;
        r->logprobs[i * r->k + j] = logit > -INFINITY ? (float)logprob : -INFINITY;
    }
}

/* As specrt_shortlist_topk(); best : f32 [n, k] the logits themselves. Either may be NULL. */
SPECRT__INTERNAL specrt_status specrt__shortlist_rank(const specrt_shortlist *shortlist,
                                                      const float *logits, int32_t n, int32_t k,
                                                      int32_t *ids, float *logprobs, float *best) {
    specrt__shortlist_ranking r = {shortlist, logits, k, ids, logprobs, best};
    if (k < 1 || k > shortlist->n_rows || k > SPECRT__SHORTLIST_MAX_K) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_run(shortlist->compute, n, specrt__shortlist_ranking_task, &r);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_shortlist_topk(const specrt_shortlist *shortlist,
                                               const float *logits, int32_t n, int32_t k,
                                               int32_t *ids, float *logprobs) {
    if (!shortlist || !logits || !ids || !logprobs || n < 1) return SPECRT_STATUS_BAD_ARG;
    return specrt__shortlist_rank(shortlist, logits, n, k, ids, logprobs, NULL);
}

/* --- the best few of a whole vocabulary --- */

/* Ids come in ascending order, so an equal one that comes later ranks lower. */
SPECRT_API int32_t specrt_logits_topk(const float *logits, int32_t n, int32_t k, int32_t *ids) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    float best[SPECRT_LOGITS_MAX_K], bound = -INFINITY;
    int32_t n_best = 0;
    if (!logits || !ids || k < 1 || k > SPECRT_LOGITS_MAX_K) return 0;
    for (int32_t i = 0; i < n; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(logits + i, n - i, bound);
        if (i >= n) break;
        if (!(logits[i] > bound)) continue;
        int32_t at = n_best < k ? n_best++ : k - 1;
        for (; at > 0 && best[at - 1] < logits[i]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = logits[i];
        ids[at] = i;
        if (n_best == k) bound = best[k - 1];
    }
    return n_best;
}

SPECRT__INTERNAL int32_t specrt__shortlist_argmax(const float *logits, int32_t n) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    float bound = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(logits + i, n - i, bound);
        if (i >= n) break;
        if (logits[i] != logits[i]) return -1; /* find() stops at NaN too */
        if (logits[i] > bound) bound = logits[i], best = i;
    }
    return best;
}

SPECRT__INTERNAL int32_t specrt__shortlist_target_best(const specrt_target_rows *rows, int32_t i,
                                                       int32_t n_logits, int32_t k, int32_t *ids) {
    if (!rows) return 0;
    if (rows->logits)
        return specrt_logits_topk(rows->logits + (int64_t)i * n_logits, n_logits, k, ids);
    int32_t n = rows->ids && rows->k > 0 ? (rows->k < k ? rows->k : k) : 0;
    if (n > 0) memcpy(ids, rows->ids + (int64_t)i * rows->k, (size_t)n * sizeof *ids);
    return n;
}

// >>pool : src/core/pool.h
/* pool.h : which tokens are wanted, and their packed rows */

/* --- packing --- */

typedef struct specrt__pool_packing {
    const specrt_head *head;
    const int32_t *ids; /* the token of each place; it has a row */
    int32_t n;
    uint8_t *rows;
    size_t row_stride;
    float *bias;          /* NULL when the head has none */
    const int32_t *slots; /* [n] the places to fill; NULL: 0 to n - 1 */
} specrt__pool_packing;

SPECRT__INTERNAL void specrt__pool_packing_task(void *arg, int64_t i);

/* Rows of the head, each to its place. */
static inline void specrt__pool_pack(specrt__pool_packing *packing) {
    specrt__shortlist_run(&packing->head->compute, specrt__shortlist_blocks(packing->n),
                          specrt__pool_packing_task, packing);
}

SPECRT__INTERNAL specrt_segment specrt__pool_gather(specrt__pool_packing *named, int32_t *places);

/* --- a stock: rows that several sessions hold, each packed once --- */

/* A place is taken while a session holds its token. */
struct specrt_stock {
    specrt_env env;
    const specrt_head *head;
    int32_t n_rows;     /* places */
    int32_t n_promised; /* rows that its sessions may hold: at most n_rows, unless those are all */
    int32_t n_sessions;
    int32_t n_held, n_used; /* n_used: the places that were ever taken are below it */
    int64_t n_packed;       /* rows read from the head, since creation */
    uint64_t version;       /* counts changes of what is held */
    int32_t *place_of;      /* [head's n_ids] of a token; -1: nobody holds it */
    int32_t *ids;           /* [n_rows] token of a place that is taken */
    int32_t *n_holders;     /* [n_rows] */
    int32_t *vacant;        /* [n_rows - n_held] a stack, lower places first */
    float *bias;            /* [n_rows], or NULL */
    uint8_t *rows;          /* [n_rows], aligned to 64 */
    size_t row_stride;
    /* The rows that the last batch multiplied for all of its states (>>stock). */
    uint64_t chosen;      /* the version that they were chosen for */
    int32_t chosen_least; /* by so many holders */
    int32_t n_shared, max_shared;
    int32_t *shared;     /* [max_shared] places, ascending */
    int32_t *shared_at;  /* [n_rows] where among them; -1 */
    int32_t *n_of_batch; /* [n_used] scratch: holders in a batch */
    float *logits;       /* [SPECRT__SHORTLIST_SHARED, max_shared] */
    int32_t n_costs;
    double *costs; /* [n_costs] */
};

/* --- membership: who wants a token, and the slots of packed rows --- */

/* A token has a bit for every source that wants it; it is packed while one of SPECRT__POOL_PACKED
 * wants it and no fixed segment holds it. */
enum {
    SPECRT__POOL_INVALID = 1, /* never proposed */
    SPECRT__POOL_FIXED = 2,   /* a row of a fixed segment */
    SPECRT__POOL_PINNED = 4,  /* terminators */
    SPECRT__POOL_FILL = 8,    /* makes up a least number of rows */
    SPECRT__POOL_SOURCE = 16, /* the first source's, whose bits end below CHANGED */
    SPECRT__POOL_MAX_SOURCES = 26,
    SPECRT__POOL_CHANGED = 1 << 30, /* listed in `changed` */
    SPECRT__POOL_PACKED = (SPECRT__POOL_CHANGED - 1) & ~(SPECRT__POOL_INVALID | SPECRT__POOL_FIXED)
};

/* Wishes may change any number of times; sync() then moves as few rows as the difference needs. */
typedef struct specrt__pool {
    specrt_env env;
    const specrt_head *head;
    int32_t n_ids,
        capacity;     /* tokens are below n_ids; sources never want more than capacity rows */
    int32_t n_fixed;  /* tokens with the bit FIXED */
    int32_t n_wanted; /* tokens that shall be packed */
    int32_t n_rows;   /* tokens that are, as of the last sync */
    int32_t n_changed;
    int32_t n_sources;         /* that have a bit */
    int64_t n_copied, n_moved; /* rows, since creation: from the head, and from slot to slot */
    int32_t *wants;            /* [n_ids] */
    int32_t *slots;            /* [n_ids] -1: none */
    int32_t *changed;          /* [n_ids] tokens to look at */
    int32_t *ids;              /* [capacity] token of a slot; -1 inside sync: a hole */
    int32_t *holes, *fresh;    /* [capacity] scratch of sync */
    float *bias;               /* [capacity], or NULL */
    uint8_t *rows;             /* [capacity], aligned to 64 */
    size_t row_stride;
    specrt_stock *stock; /* borrowed: rows and biases are its own, or NULL */
    int32_t *places;     /* [capacity] of a slot's row in the stock, else the head; NULL: packed */
} specrt__pool;

SPECRT__INTERNAL specrt__pool *specrt__pool_make(const specrt_head *head, int32_t n_ids,
                                                 int32_t capacity, specrt_stock *stock,
                                                 bool in_head, const specrt_env *env);

static inline specrt__pool *specrt__pool_create(const specrt_head *head, int32_t n_ids,
                                                int32_t capacity, const specrt_env *env) {
    return specrt__pool_make(head, n_ids, capacity, NULL, false, env);
}

SPECRT__INTERNAL void specrt__pool_free(specrt__pool *p);
SPECRT__INTERNAL void specrt__pool_reset(specrt__pool *p);

/* The bit of one more source that packs rows. Each asks once, when a session opens it, and wants and drops
 * tokens by the bit. */
static inline int32_t specrt__pool_register(specrt__pool *p) {
    return (int32_t)SPECRT__POOL_SOURCE << p->n_sources++;
}

/* Bits that no source takes back: INVALID and FIXED, before anything is wanted. */
static inline void specrt__pool_mark(specrt__pool *p, int32_t id, int32_t bit) {
    if (bit == SPECRT__POOL_FIXED && !(p->wants[id] & SPECRT__POOL_FIXED)) p->n_fixed++;
    p->wants[id] |= bit;
}

/* An id that a source may propose. */
static inline bool specrt__pool_valid(const specrt__pool *p, int32_t id) {
    return id >= 0 && id < p->n_ids && !(p->wants[id] & SPECRT__POOL_INVALID);
}

static inline bool specrt__pool_member(const specrt__pool *p, int32_t id) {
    return id >= 0 && id < p->n_ids &&
           (p->wants[id] & (SPECRT__POOL_FIXED | SPECRT__POOL_PACKED)) != 0;
}

static inline void specrt__pool_change(specrt__pool *p, int32_t id, int32_t wants) {
    int32_t fixed = p->wants[id] & SPECRT__POOL_FIXED;
    bool before = !fixed && (p->wants[id] & SPECRT__POOL_PACKED) != 0;
    bool after = !fixed && (wants & SPECRT__POOL_PACKED) != 0;
    p->n_wanted += (int32_t)after - (int32_t)before;
    if (before != after && !(wants & SPECRT__POOL_CHANGED)) {
        p->changed[p->n_changed++] = id;
        wants |= SPECRT__POOL_CHANGED;
    }
    p->wants[id] = wants;
}

/* The source of this bit wants a valid token, or no longer does. */
static inline void specrt__pool_want(specrt__pool *p, int32_t id, int32_t bit) {
    specrt__pool_change(p, id, p->wants[id] | bit);
}

static inline void specrt__pool_drop(specrt__pool *p, int32_t id, int32_t bit) {
    specrt__pool_change(p, id, p->wants[id] & ~bit);
}

SPECRT__INTERNAL void specrt__pool_sync(specrt__pool *p);
SPECRT__INTERNAL bool specrt__pool_arrange(specrt__pool *p, const uint8_t *ids, int32_t n);
SPECRT__INTERNAL void specrt__pool_segment(const specrt__pool *p, specrt_segment *out);

// >>pool : src/core/pool.c
/* pool.c : owns membership: which sources want a token, the slots of packed rows, and the rows of a stock
 * that several sessions hold. A change of wishes moves as few rows as the difference needs. */

/* --- packing --- */

SPECRT__INTERNAL void specrt__pool_packing_task(void *arg, int64_t i) {
    const specrt__pool_packing *p = (const specrt__pool_packing *)arg;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = p->n - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    for (int32_t r = begin; r < end; r++) {
        int32_t slot = p->slots ? p->slots[r] : r;
        int32_t row = specrt__head_row_of(p->head, p->ids[slot]);
        if (r + 1 < end) {
            int32_t next = p->slots ? p->slots[r + 1] : r + 1;
            specrt__head_fetch(p->head, specrt__head_row_of(p->head, p->ids[next]));
        }
        specrt__head_pack(p->head, row, p->rows + (size_t)slot * p->row_stride);
        if (p->bias) p->bias[slot] = p->head->desc.bias[row];
    }
}

/* A segment of these tokens: packed where there is room for rows, else the head's own rows by number.
 *   places : [n] room for those numbers */
SPECRT__INTERNAL specrt_segment specrt__pool_gather(specrt__pool_packing *named, int32_t *places) {
    const specrt_head *head = named->head;
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.ids = named->ids;
    s.n_rows = named->n;
    s.dtype = specrt__head_packed_dtype(head);
    s.rows = named->rows ? named->rows : head->desc.rows;
    s.row_stride = named->rows ? named->row_stride : head->desc.row_stride;
    s.bias = named->rows ? named->bias : head->desc.bias;
    s.places = named->rows ? NULL : places;
    if (named->rows) specrt__pool_pack(named);
    for (int32_t i = 0; i < s.n_rows && s.places; i++)
        places[i] = specrt__head_row_of(head, s.ids[i]);
    return s;
}

/* --- a stock: rows that several sessions hold, each packed once --- */

/* A session's hold of a token. @return its place; *fresh: the row must be packed first. */
static int32_t specrt__pool_hold(specrt_stock *stock, int32_t id, bool *fresh) {
    int32_t place = stock->place_of[id];
    *fresh = place < 0;
    if (*fresh) {
        place = stock->vacant[stock->n_rows - ++stock->n_held];
        stock->place_of[id] = place;
        stock->ids[place] = id;
        if (place >= stock->n_used) stock->n_used = place + 1;
    }
    stock->n_holders[place]++;
    stock->version++;
    return place;
}

static void specrt__pool_release(specrt_stock *stock, int32_t place) {
    stock->version++;
    if (--stock->n_holders[place] > 0) return;
    stock->place_of[stock->ids[place]] = -1;
    stock->vacant[stock->n_rows - stock->n_held--] = place;
}

/* --- membership: who wants a token, and the slots of packed rows --- */

/* Its rows in a stock that has promised them, or, where that is NULL, its own; or, in_head, where they are in
 * the head, whose rows must be multiplied as they are.
 * @return NULL when memory or the address space do not hold it. */
SPECRT__INTERNAL specrt__pool *specrt__pool_make(const specrt_head *head, int32_t n_ids,
                                                 int32_t capacity, specrt_stock *stock,
                                                 bool in_head, const specrt_env *env) {
    size_t packed_bytes = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    bool placed = stock || in_head;
    size_t n = (size_t)n_ids, m = (size_t)capacity, stride = placed ? 0 : packed_bytes;
    size_t words = 3 * n + (placed || head->desc.bias ? 4 : 3) * m;
    size_t at_rows = (size_t)specrt__base_align(sizeof(specrt__pool) + 4 * words, 64);
    uint64_t bytes;
    if (!specrt__base_mul(stride, m, &bytes) || !specrt__base_add(bytes, at_rows + 64, &bytes))
        return NULL;
    specrt__pool *p = (specrt__pool *)specrt__base_alloc(env, bytes);
    if (!p) return NULL;
    specrt__os_advise_huge(p, (size_t)bytes);
    memset(p, 0, sizeof *p);
    p->env = *env;
    p->head = head;
    p->n_ids = n_ids;
    p->capacity = capacity;
    p->row_stride = stride;
    p->stock = stock;
    p->wants = (int32_t *)(void *)(p + 1);
    p->slots = p->wants + n;
    p->changed = p->slots + n;
    p->ids = p->changed + n;
    p->holes = p->ids + m;
    p->fresh = p->holes + m;
    p->places = placed ? p->fresh + m : NULL;
    p->bias = head->desc.bias && !placed ? (float *)(void *)(p->fresh + m) : NULL;
    p->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)p + at_rows, 64);
    memset(p->wants, 0, n * sizeof *p->wants);
    memset(p->slots, 0xff, n * sizeof *p->slots);
    if (stock) stock->n_sessions++, stock->n_promised += capacity;
    return p;
}

/* Leaves no row packed; gives back what it holds of a stock. */
static void specrt__pool_vacate(specrt__pool *p) {
    for (int32_t slot = 0; slot < p->n_rows; slot++) {
        p->slots[p->ids[slot]] = -1;
        if (p->stock) specrt__pool_release(p->stock, p->places[slot]);
    }
    p->n_rows = 0;
}

SPECRT__INTERNAL void specrt__pool_free(specrt__pool *p) {
    if (!p) return;
    specrt_env env = p->env;
    specrt__pool_vacate(p);
    if (p->stock) p->stock->n_sessions--, p->stock->n_promised -= p->capacity;
    specrt__base_free(&env, p);
}

/* As created, but for tokens marked invalid or fixed. */
SPECRT__INTERNAL void specrt__pool_reset(specrt__pool *p) {
    const int32_t keep = SPECRT__POOL_INVALID | SPECRT__POOL_FIXED;
    for (int32_t i = 0; i < p->n_ids; i++) p->wants[i] &= keep;
    specrt__pool_vacate(p);
    p->n_wanted = p->n_changed = 0;
}

/* Slots of tokens that nobody wants any more become holes. @return how many. */
static int32_t specrt__pool_leave(specrt__pool *p) {
    int32_t n_holes = 0;
    for (int32_t i = 0; i < p->n_changed; i++) {
        int32_t id = p->changed[i];
        if (p->slots[id] < 0 || (p->wants[id] & SPECRT__POOL_PACKED)) continue;
        p->holes[n_holes++] = p->slots[id];
        if (p->stock) specrt__pool_release(p->stock, p->places[p->slots[id]]);
        p->ids[p->slots[id]] = -1;
        p->slots[id] = -1;
    }
    return n_holes;
}

/* New tokens take holes first, then the end. @return how many. */
static int32_t specrt__pool_enter(specrt__pool *p, int32_t *n_holes) {
    int32_t n_fresh = 0;
    for (int32_t i = 0; i < p->n_changed; i++) {
        int32_t id = p->changed[i];
        p->wants[id] &= ~SPECRT__POOL_CHANGED;
        if (p->slots[id] >= 0 || !(p->wants[id] & SPECRT__POOL_PACKED)) continue;
        int32_t slot = *n_holes > 0 ? p->holes[--*n_holes] : p->n_rows++;
        p->slots[id] = slot;
        p->ids[slot] = id;
        p->fresh[n_fresh++] = slot;
    }
    p->n_changed = 0;
    return n_fresh;
}

/* The last rows move into the holes that are left. */
static void specrt__pool_compact(specrt__pool *p, int32_t n_holes) {
    while (n_holes > 0) {
        int32_t last = p->n_rows - 1, hole = p->holes[n_holes - 1];
        if (hole >= p->n_rows) {
            n_holes--;
            continue;
        }
        p->n_rows--;
        if (p->ids[last] < 0) continue;
        if (p->places)
            p->places[hole] = p->places[last];
        else
            memcpy(p->rows + (size_t)hole * p->row_stride, p->rows + (size_t)last * p->row_stride,
                   p->row_stride);
        if (p->bias) p->bias[hole] = p->bias[last];
        p->ids[hole] = p->ids[last];
        p->slots[p->ids[hole]] = hole;
        p->n_moved++;
        n_holes--;
    }
}

/* Holds the rows of slots in `fresh`, which becomes the list of places to pack: rows that nobody held.
 * @return how many. */
static int32_t specrt__pool_hold_all(specrt__pool *p, int32_t n_fresh) {
    int32_t n_packed = 0;
    bool fresh;
    for (int32_t i = 0; i < n_fresh; i++) {
        int32_t slot = p->fresh[i];
        p->places[slot] = specrt__pool_hold(p->stock, p->ids[slot], &fresh);
        if (fresh) p->fresh[n_packed++] = p->places[slot];
    }
    p->stock->n_packed += n_packed;
    return n_packed;
}

/* The rows of slots in `fresh` stay where they are in the head. */
static void specrt__pool_point(specrt__pool *p, int32_t n_fresh) {
    for (int32_t i = 0; i < n_fresh; i++)
        p->places[p->fresh[i]] = specrt__head_row_of(p->head, p->ids[p->fresh[i]]);
}

/* Pack what is wanted now. Only rows that were not there at the last sync are read from the head, of a stock
 * those that no session held. */
SPECRT__INTERNAL void specrt__pool_sync(specrt__pool *p) {
    const specrt_stock *stock = p->stock;
    int32_t n_holes = specrt__pool_leave(p), n_fresh = specrt__pool_enter(p, &n_holes);
    specrt__pool_packing packing = {p->head,       p->ids,  n_fresh, p->rows,
                                    p->row_stride, p->bias, p->fresh};
    if (stock) {
        packing.n = specrt__pool_hold_all(p, n_fresh);
        packing.ids = stock->ids;
        packing.rows = stock->rows;
        packing.row_stride = stock->row_stride;
        packing.bias = stock->bias;
    } else if (p->places) {
        specrt__pool_point(p, n_fresh);
        packing.n = 0;
    }
    specrt__pool_pack(&packing);
    p->n_copied += packing.n;
    specrt__pool_compact(p, n_holes);
}

/* Packs what is wanted now in this order of slots, whatever was packed before.
 *   ids : n words of 4 bytes, unaligned
 * @return false, with nothing packed, unless they are the tokens that are wanted, each once. */
SPECRT__INTERNAL bool specrt__pool_arrange(specrt__pool *p, const uint8_t *ids, int32_t n) {
    specrt__pool_vacate(p);
    for (int32_t i = 0; i < p->n_changed; i++) p->wants[p->changed[i]] &= ~SPECRT__POOL_CHANGED;
    p->n_changed = 0;
    if (n != p->n_wanted || n > p->capacity) return false;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)specrt__base_load32(ids + 4 * (size_t)i);
        if (!specrt__pool_member(p, id)) return false;
        if (p->wants[id] & (SPECRT__POOL_FIXED | SPECRT__POOL_CHANGED)) return false;
        p->wants[id] |= SPECRT__POOL_CHANGED;
        p->changed[p->n_changed++] = id;
    }
    specrt__pool_sync(p); /* gives slots in the order of changes */
    return true;
}

/* The wanted rows as a segment. */
SPECRT__INTERNAL void specrt__pool_segment(const specrt__pool *p, specrt_segment *out) {
    const specrt_head_desc *head = &p->head->desc;
    bool in_head = p->places && !p->stock;
    out->rows = p->stock ? p->stock->rows : in_head ? head->rows : p->rows;
    out->row_stride = p->stock ? p->stock->row_stride : in_head ? head->row_stride : p->row_stride;
    out->ids = p->ids;
    out->bias = p->stock ? p->stock->bias : in_head ? head->bias : p->bias;
    out->dtype = specrt__head_packed_dtype(p->head);
    out->n_rows = p->n_rows;
    out->masked = NULL;
    out->n_masked = 0;
    out->places = p->places;
    out->scored_by = 0;
}

// >>saved : src/sources/saved.h
/* saved.h : the words of 32 bits of a saved session (docs/FORMAT.md, "Saved sessions"), as sources write and
 * read their own */

/* Bytes of the header that belong to sources. */
enum {
    SPECRT__SAVED_P = 64,    /* f64: retrieval's p */
    SPECRT__SAVED_FILL = 80, /* i32: ranks that fill up the window */
    SPECRT__SAVED_EVENTS =
        84, /* i32: events of retrieval, of which more than the warm-up are alike */
    SPECRT__SAVED_HEADER = 104
};

/* Lists of `retrieve`, which every save has, also of a program without it. */
enum { SPECRT__SAVED_RETRIEVAL = 5 };

typedef struct specrt__save {
    uint8_t *bytes; /* NULL: words are only counted */
    size_t n;
} specrt__save;

static inline void specrt__save_word(specrt__save *out, int32_t word) {
    if (out->bytes) memcpy(out->bytes + out->n, &word, 4);
    out->n += 4;
}

/* A list: its length, then its words. */
static inline void specrt__save_list(specrt__save *out, const int32_t *words, int32_t n) {
    specrt__save_word(out, n);
    for (int32_t i = 0; i < n; i++) specrt__save_word(out, words[i]);
}

static inline void specrt__save_header(specrt__save *out, size_t at, const void *value, size_t n) {
    if (out->bytes) memcpy(out->bytes + at, value, n);
}

typedef struct specrt__saved_list {
    const uint8_t *words;
    int32_t n; /* within the limits that the source named */
} specrt__saved_list;

typedef struct specrt__saved {
    const uint8_t *header;           /* [SPECRT__SAVED_HEADER] */
    const specrt__saved_list *lists; /* those of the source */
} specrt__saved;

static inline int32_t specrt__saved_word(const specrt__saved_list *list, int32_t i) {
    return (int32_t)specrt__base_load32(list->words + 4 * (size_t)i);
}

/* Whether all words are from 0 on and below `end`. */
static inline bool specrt__saved_within(const specrt__saved_list *list, int32_t end) {
    for (int32_t i = 0; i < list->n; i++)
        if (specrt__saved_word(list, i) < 0 || specrt__saved_word(list, i) >= end) return false;
    return true;
}

// >>source : src/sources/source.h
/* source.h : what a source is, and how one that routes adds segments to a level */

/* --- routed sources: segments chosen anew at every level of the tree --- */

/* What a source may route by. Nothing here depends on the tokens that the level will propose, which
 * keeps the shortlist a function of the prefix (docs/methods). */
typedef struct specrt__source_level {
    int32_t level;         /* 0: the first pass */
    int32_t n;             /* rows of the pass */
    const int32_t *tokens; /* [n] that the pass was fed, the root at level 0 */
    const float *logprobs; /* [n] cumulative */
    const float
        *draft_input; /* f32 [n, n_cols] hidden states that the pass reads; NULL: not known */
    const float *draft_hidden; /* f32 [n, n_cols] hidden states that it produces */
    /* The rows are positions of a block: each has as many rows as it would have alone, and all score them. Of
     * tokens only the first is known, which stands for all. */
    bool each;
    bool again; /* what the source added to this shortlist before stays in use */
} specrt__source_level;

enum { SPECRT__SOURCE_MAX_SEGMENTS = 1280 }; /* three sources of 400 clusters, and the others' */

/* The segments of a level, as sources add them, and which tokens they brought at which level of this
 * cycle: a token is scored by the first segment that has it. */
typedef struct specrt__source_routed {
    const specrt__pool *pool; /* fixed and packed tokens come first */
    uint32_t *levels;         /* [pool->n_ids] bit i: routed at level i; NULL: nothing routes */
    int32_t level;
    specrt_segment segments[SPECRT__SOURCE_MAX_SEGMENTS];
    int32_t n_segments, n_rows, n_masked;
    int32_t max_rows; /* of a level: the policy's bound on what is routed */
    int64_t n_read;   /* bytes of weights and codes that this level's sources chose by */
    int32_t *masked;  /* [max_rows] */
} specrt__source_routed;

/* Whether a token would be a new row of the level. */
static inline bool specrt__source_is_new(const specrt__source_routed *r, int32_t id) {
    return specrt__pool_valid(r->pool, id) && !specrt__pool_member(r->pool, id) &&
           !(r->levels[id] >> r->level & 1);
}

/* Adds a segment without its mask, which is found here. @return false, and nothing is added, beyond
 * the bounds. A segment may have an id twice, as of clusters that share it: the first counts. */
static inline bool specrt__source_route(specrt__source_routed *r, const specrt_segment *segment) {
    if (segment->n_rows < 1) return true;
    if (r->n_segments == SPECRT__SOURCE_MAX_SEGMENTS || r->n_rows + segment->n_rows > r->max_rows)
        return false;
    specrt_segment *s = &r->segments[r->n_segments++];
    uint32_t bit = 1u << r->level;
    *s = *segment;
    s->masked = r->masked + r->n_masked;
    s->n_masked = 0;
    for (int32_t i = 0; i < s->n_rows; i++) {
        int32_t id = s->ids[i];
        if (specrt__source_is_new(r, id))
            r->levels[id] |= bit;
        else
            r->masked[r->n_masked + s->n_masked++] = i;
    }
    r->n_rows += s->n_rows;
    r->n_masked += s->n_masked;
    return true;
}

typedef struct specrt__source_option {
    const char *key;
    const char *names;          /* "off on": they stand for 0, 1...; NULL: it is a number */
    int32_t least, most, value; /* limits of a number; the default */
} specrt__source_option;

enum { SPECRT__SOURCE_MAX_OPTIONS = 8 };

/* Does not compile unless a table has n options and a source has room for their values. */
#define SPECRT__SOURCE_FITS(table, n)                                                              \
    typedef char table##_fit                                                                       \
        [sizeof table / sizeof *table == (n) && (n) <= (int)SPECRT__SOURCE_MAX_OPTIONS ? 1 : -1]

/* --- a source --- */

/* What a policy's text asks of a source, and what the policy was created with. All pointers are borrowed. */
typedef struct specrt__source_request {
    const specrt_bundle *bundle; /* NULL: none */
    const specrt_head *head;     /* the draft head */
    const specrt_policy_desc *desc;
    const int32_t *frequent; /* [n_frequent] tokens by rank; NULL: ascending ids */
    int32_t n_frequent;
    int32_t size;
    const int32_t *options; /* in the order of the source's table of options */
} specrt__source_request;

/* What the sessions of a policy share of a source. */
typedef struct specrt__source_shared {
    void *data;        /* owned: unshare() frees it */
    int32_t bound;     /* rows at most: of each level if the source routes, else packed ones */
    int32_t more;      /* rows that every position of a block beyond the first may add to bound */
    bool reads_tokens; /* route() reads the tokens of a level alone: a block has more of them */
    bool reads_prompt; /* prefill() reads the target's logits or best ids */
    bool reads_tree;   /* observe() reads them at rejected nodes, too */
    bool reads_states; /* route() reads the drafter's hidden states: */
    bool reads_input;  /* those that the pass read */
    bool keeps;        /* begin() does not forget */
    int32_t hidden_width; /* of the target's hidden states that observe() reads; 0: none */
    bool submits;         /* hands tasks to specrt_session_params.submit */
    bool in_head;         /* wanted rows are read in the head, by index, instead of packed */
} specrt__source_shared;

/* What a session lends to its sources. All pointers are borrowed. */
typedef struct specrt__source_session {
    specrt__pool *pool; /* marked already */
    int32_t topk;       /* rows of a pass at most */
    int32_t n_block;    /* positions of a block at most, 1 or more */
    int32_t n_states;   /* rows of a level at most: the greater of the two */
    int32_t n_logits;   /* columns of the target's logits */
    int32_t bound;      /* rows that are fixed or packed at most */
    const specrt_env *env;
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;
} specrt__source_session;

/* A cycle, as observe() sees it. */
typedef struct specrt__source_cycle {
    const specrt_draft *draft;
    const specrt_verdict *verdict;
    const specrt_target_rows *rows; /* NULL: nothing is known of the target */
    specrt_session_stats *stats;    /* the session's, for events */
} specrt__source_cycle;

/* A source of tokens: all that policies, sessions and saved sessions know of it. Every function but share()
 * is optional. A source that packs rows wants and drops tokens of its session's pool; one that routes adds
 * segments at every level. Sessions call sources in the order of specrt__policy_kinds to route, and in the
 * opposite order to learn: the first one, `window`, fills up what the others leave. */
typedef struct specrt__source {
    /* Of a policy's text: at most SPECRT__SOURCE_MAX_OPTIONS. */
    const specrt__source_option *options;
    int n_options;
    /* Makes what all sessions of a policy share. @return as specrt_policy_create. */
    specrt_status (*share)(const specrt__source_request *request, specrt__source_shared *out,
                           specrt_error *err);
    void (*unshare)(void *shared);
    /* A session's state; NULL: out of memory. Without open(), the state is what sessions share. */
    void *(*open)(void *shared, const specrt__source_session *with);
    void (*close)(void *state);
    /* Adds the level's segments with specrt__source_route. Never allocates. */
    void (*route)(void *state, const specrt__source_level *level, specrt__source_routed *out);
    /* A new sequence. The pool was reset. */
    void (*begin)(void *state);
    /* Prompt tokens [n], and what the target thought after each of them; rows NULL: not known. */
    void (*prefill)(void *state, const int32_t *tokens, int32_t n, const specrt_target_rows *rows);
    /* The prompt is complete, and the target's first token follows. */
    void (*start)(void *state, int32_t token);
    void (*observe)(void *state, const specrt__source_cycle *cycle);
    /* Takes over what another thread has learnt. */
    void (*settle)(void *state);
    /* A saved session has n_lists lists of words of this source (sources/saved.h). Those of `window` and
     * `retrieve`, with which the format began, are in every saved session: empty in one without the source.
     * */
    int32_t n_lists;
    bool always_saved;
    void (*limits)(const void *state, int32_t *most); /* [n_lists] words at most */
    void (*save)(const void *state, specrt__save *out);
    /* The session is as after begin(). @return what is wrong with the words, or NULL. */
    const char *(*load)(void *state, const specrt__saved *in);
} specrt__source;

/* Parts of a table: no options; no share, unshare, open, close and route, as of a source that the program was
 * compiled without; no begin, prefill, start, observe and settle; no lists. */
#define SPECRT__SOURCE_HAS_NO_OPTIONS NULL, 0
#define SPECRT__SOURCE_IS_LEFT_OUT    NULL, NULL, NULL, NULL, NULL
#define SPECRT__SOURCE_LEARNS_NOTHING NULL, NULL, NULL, NULL, NULL
#define SPECRT__SOURCE_SAVES_NOTHING  0, false, NULL, NULL, NULL

// >>ranks : src/sources/ranks.h
/* ranks.h : lists of leading tokens of a ranking: a bundle's, or an application's */

enum { SPECRT__RANKS_MAX_LEVELS = 8 };

/* The head's rows of leading ranks, packed once. */
typedef struct specrt__ranks_list {
    specrt_env env;
    specrt_shortlist shortlist;
    specrt_segment segment; /* rows, ids and bias stand behind this struct, in one block */
    int32_t n_levels;       /* of those that have a size of their own; 0: all are alike */
    int32_t levels[SPECRT__RANKS_MAX_LEVELS]; /* [n_levels] rows; the last holds from there on */
    int32_t n_always;                         /* rows of every level */
} specrt__ranks_list;

/* Distinct tokens, most frequent first. A list is a prefix of n_forced or more, and at least one. */
typedef struct specrt__ranks_order {
    const char *name;   /* for messages: the bundle's, or "ids" */
    const int32_t *ids; /* i32 [n], borrowed */
    int32_t n;
    int32_t n_forced;       /* leading tokens that every list contains */
    int32_t n_default;      /* size of a list for which none was asked */
    int32_t n_vocab;        /* ids are below it */
    specrt_status mismatch; /* status of tokens that the head lacks */
} specrt__ranks_order;

/* @return OK; BUNDLE_SECTION_MISSING, also without a bundle. */
SPECRT__INTERNAL specrt_status specrt__ranks_of_bundle(const specrt_bundle *bundle,
                                                       specrt__ranks_order *out, specrt_error *err);
/* Of specrt_policy_desc.ids. @return OK, NO_MEMORY, BAD_ARG with the entry. */
SPECRT__INTERNAL specrt_status specrt__ranks_of_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                                    const specrt_env *env, specrt__ranks_order *out,
                                                    specrt_error *err);

/* size : 0 takes the default one. @return OK, BAD_ARG naming the limits. */
SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt__ranks_order *order, int32_t size,
                                                  int32_t *out, specrt_error *err);
/* size : as above. @return OK, BAD_ARG, NO_MEMORY, or the order's mismatch. */
SPECRT__INTERNAL specrt_status specrt__ranks_create(const specrt__ranks_order *order,
                                                    const specrt_head *head, int32_t size,
                                                    specrt__ranks_list **out, specrt_error *err);
SPECRT__INTERNAL void specrt__ranks_free(specrt__ranks_list *list);
SPECRT__INTERNAL specrt__ranks_list *specrt__ranks_pack(const specrt_head *head, const int32_t *ids,
                                                        int32_t n_ids);

/* --- a size for every level: the rows of all are fixed, the others are routed --- */

SPECRT__INTERNAL void specrt__ranks_set_levels(specrt__ranks_list *list, const specrt_head *head,
                                               const int32_t *ids, const int32_t *sizes, int32_t n);

// >>ranks : src/sources/ranks.c
/* ranks.c : owns the static source: a prefix of a ranking, packed once and shared by all sessions. The
 * ranking is the bundle's, which was checked when the bundle was opened, or the application's, which is
 * checked here. Refuses sizes outside the ranking's limits and ids beyond the head. */

/* Where the arrays of a list of n rows lie in its block; rows at the next multiple of 64 in memory. */
typedef struct specrt__ranks_layout {
    size_t row_stride, ids, bias, rows, end;
} specrt__ranks_layout;

static bool specrt__ranks_lay_out(const specrt_head *head, int32_t n, specrt__ranks_layout *out) {
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    uint64_t bytes = (uint64_t)n * (stride + sizeof(int32_t) + sizeof(float)) + 4096;
    if (bytes > PTRDIFF_MAX) return false; /* of an address of 32 bits */
    out->row_stride = stride;
    out->ids = sizeof(specrt__ranks_list);
    out->bias = out->ids + (size_t)n * sizeof(int32_t);
    out->rows = out->bias + (size_t)n * sizeof(float);
    out->end = out->rows + 63 + stride * (size_t)n;
    return true;
}

/* --- rankings --- */

SPECRT__INTERNAL specrt_status specrt__ranks_of_bundle(const specrt_bundle *bundle,
                                                       specrt__ranks_order *out,
                                                       specrt_error *err) {
    specrt_ranks ranks;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "static: needs a bundle with section 'ranks' (in C and Python, a "
                                "list in `ids` will do); vocabtrim-calibrate builds it");
    SPECRT__TRY(specrt_bundle_ranks(bundle, &ranks, err));
    out->name = bundle->name;
    out->ids = ranks.ids;
    out->n = ranks.header->n_valid;
    out->n_forced = ranks.header->n_forced;
    out->n_default = ranks.header->n_default;
    out->n_vocab = ranks.header->n_vocab;
    out->mismatch = SPECRT_STATUS_BUNDLE_MISMATCH;
    return SPECRT_STATUS_OK;
}

/* seen : u8 [n_vocab / 8 + 1] zeros */
static specrt_status specrt__ranks_check_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                             uint8_t *seen, specrt_error *err) {
    const int32_t *ids = desc->ids;
    for (int32_t i = 0; i < desc->n_ids; i++) {
        int32_t before = 0;
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "ids: entry %d: expected a token from 0 to %d (n_vocab - 1), "
                                    "found %d",
                                    (int)i, (int)n_vocab - 1, (int)ids[i]);
        bool twice = seen[ids[i] / 8] >> (ids[i] % 8) & 1;
        while (twice && ids[before] != ids[i]) before++;
        if (twice)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "ids: expected distinct tokens, found %d at entries %d and %d",
                                    (int)ids[i], (int)before, (int)i);
        seen[ids[i] / 8] = (uint8_t)(seen[ids[i] / 8] | 1u << (ids[i] % 8));
    }
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__ranks_of_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                                    const specrt_env *env, specrt__ranks_order *out,
                                                    specrt_error *err) {
    size_t n = (size_t)n_vocab / 8 + 1;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(env, n);
    if (!seen) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "ids: out of memory");
    memset(seen, 0, n);
    specrt_status status = specrt__ranks_check_ids(desc, n_vocab, seen, err);
    specrt__base_free(env, seen);
    out->name = "ids";
    out->ids = desc->ids;
    out->n = out->n_default = desc->n_ids;
    out->n_forced = 0;
    out->n_vocab = n_vocab;
    out->mismatch = SPECRT_STATUS_BAD_ARG;
    return status;
}

SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt__ranks_order *order, int32_t size,
                                                  int32_t *out, specrt_error *err) {
    int32_t least = order->n_forced > 1 ? order->n_forced : 1;
    *out = size == 0 ? order->n_default : size;
    if (*out >= least && *out <= order->n) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: static: size: expected %d (%d forced tokens) to %d, or none for "
                            "the default %d, found %d",
                            order->name, (int)least, (int)order->n_forced, (int)order->n,
                            (int)order->n_default, (int)size);
}

/* --- lists --- */

/* A list keeps the tokens that have a row. @return how many of ids [n], which `out` takes if not NULL. */
static int32_t specrt__ranks_keep(const specrt_head *head, const int32_t *ids, int32_t n,
                                  int32_t *out) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (specrt__head_row_of(head, ids[i]) < 0) continue;
        if (out) out[n_kept] = ids[i];
        n_kept++;
    }
    return n_kept;
}

/* A head with ids of its own leaves tokens out on purpose, but not all. */
static specrt_status specrt__ranks_check_rows(const specrt__ranks_order *order,
                                              const specrt_head *head, int32_t n,
                                              specrt_error *err) {
    const int32_t *ids = order->ids;
    for (int32_t i = 0; i < n && !head->row_of; i++)
        if (ids[i] >= head->n_ids)
            return specrt_error_set(err, order->mismatch,
                                    "%s: static: token %d: expected an id below the head's %d "
                                    "rows; use the list made for this model",
                                    order->name, (int)ids[i], (int)head->n_ids);
    if (specrt__ranks_keep(head, ids, n, NULL) > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, order->mismatch,
                            "%s: static: expected the head to have rows for some of its %d tokens, "
                            "found none",
                            order->name, (int)n);
}

static void specrt__ranks_fill(specrt__ranks_list *list, const specrt_head *head,
                               const int32_t *ids, int32_t n_ids, int32_t n,
                               const specrt__ranks_layout *at) {
    uint8_t *block = (uint8_t *)list;
    int32_t *own_ids = (int32_t *)(void *)(block + at->ids);
    float *bias = head->desc.bias ? (float *)(void *)(block + at->bias) : NULL;
    memset(list, 0, sizeof *list);
    specrt__ranks_keep(head, ids, n_ids, own_ids);
    uint8_t *rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)(block + at->rows), 64);
    specrt__pool_packing packing = {head, own_ids, n, rows, at->row_stride, bias, NULL};
    specrt__pool_pack(&packing);
    list->env = head->compute.env;
    list->segment.rows = packing.rows;
    list->segment.row_stride = at->row_stride;
    list->segment.ids = own_ids;
    list->segment.bias = bias;
    list->segment.dtype = specrt__head_packed_dtype(head);
    list->segment.n_rows = n;
    list->shortlist.compute = &head->compute;
    list->shortlist.segments = &list->segment;
    list->shortlist.n_segments = 1;
    list->shortlist.n_rows = n;
    list->shortlist.n_cols = head->desc.n_cols;
    list->shortlist.head = head;
}

/* The tokens of ids [n_ids] that have rows.
 * @return NULL when memory or the address space do not hold them. */
SPECRT__INTERNAL specrt__ranks_list *specrt__ranks_pack(const specrt_head *head, const int32_t *ids,
                                                        int32_t n_ids) {
    specrt__ranks_layout at;
    int32_t n = specrt__ranks_keep(head, ids, n_ids, NULL);
    if (!specrt__ranks_lay_out(head, n, &at)) return NULL;
    specrt__ranks_list *list = (specrt__ranks_list *)specrt__base_alloc(&head->compute.env, at.end);
    if (!list) return NULL;
    specrt__os_advise_huge(list, at.end);
    specrt__ranks_fill(list, head, ids, n_ids, n, &at);
    return list;
}

SPECRT__INTERNAL specrt_status specrt__ranks_create(const specrt__ranks_order *order,
                                                    const specrt_head *head, int32_t size,
                                                    specrt__ranks_list **out, specrt_error *err) {
    int32_t n;
    *out = NULL;
    SPECRT__TRY(specrt__ranks_size(order, size, &n, err));
    SPECRT__TRY(specrt__ranks_check_rows(order, head, n, err));
    *out = specrt__ranks_pack(head, order->ids, n);
    if (!*out)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "%s: static: out of memory for %d rows", order->name, (int)n);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL void specrt__ranks_free(specrt__ranks_list *list) {
    if (!list) return;
    specrt_env env = list->env;
    specrt__base_free(&env, list);
}

/* --- a size for every level: the rows of all are fixed, the others are routed --- */

/* sizes [n] count ranks; a head with ids of its own has rows for some of them. */
SPECRT__INTERNAL void specrt__ranks_set_levels(specrt__ranks_list *list, const specrt_head *head,
                                               const int32_t *ids, const int32_t *sizes,
                                               int32_t n) {
    list->n_levels = n;
    list->n_always = list->segment.n_rows;
    for (int32_t i = 0; i < n; i++) {
        list->levels[i] = specrt__ranks_keep(head, ids, sizes[i], NULL);
        if (list->levels[i] < list->n_always) list->n_always = list->levels[i];
    }
}

static void specrt__ranks_unshare(void *shared) {
    specrt__ranks_free((specrt__ranks_list *)shared);
}

static void specrt__ranks_route(void *state, const specrt__source_level *level,
                                specrt__source_routed *out) {
    const specrt__ranks_list *list = (const specrt__ranks_list *)state;
    int32_t i = level->level < list->n_levels ? level->level : list->n_levels - 1;
    specrt_segment rest = list->segment;
    rest.rows = (const uint8_t *)rest.rows + (size_t)list->n_always * rest.row_stride;
    rest.ids += list->n_always;
    if (rest.bias) rest.bias += list->n_always;
    rest.n_rows = list->levels[i] - list->n_always;
    (void)specrt__source_route(out, &rest); /* fits: the policy's bound has room for the largest */
}

/* Its list is made with its sizes, by >>policy. */
SPECRT__INTERNAL const specrt__source specrt__ranks_levels = {
    SPECRT__SOURCE_HAS_NO_OPTIONS,
    /* share = */ NULL,
    /* unshare = */ specrt__ranks_unshare,
    /* open = */ NULL,
    /* close = */ NULL,
    /* route = */ specrt__ranks_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};

// >>window : src/sources/window.h
/* window.h : MicroSpec's window */

enum { SPECRT__WINDOW_LRU, SPECRT__WINDOW_STREAM };
enum { SPECRT__WINDOW_POSITIONS_ALL, SPECRT__WINDOW_POSITIONS_LAST, SPECRT__WINDOW_POSITIONS_TREE };
enum { SPECRT__WINDOW_MAX_K = SPECRT_LOGITS_MAX_K };
enum { SPECRT__WINDOW_BOTH, SPECRT__WINDOW_CTX, SPECRT__WINDOW_EXT };
enum { SPECRT__WINDOW_PACKED, SPECRT__WINDOW_INDEXED };

enum {
    SPECRT__WINDOW_OPTION_MODE,
    SPECRT__WINDOW_OPTION_KPRE,
    SPECRT__WINDOW_OPTION_KVER,
    SPECRT__WINDOW_OPTION_POSITIONS,
    SPECRT__WINDOW_OPTION_ONLY,
    SPECRT__WINDOW_OPTION_EMITTED,
    SPECRT__WINDOW_OPTION_MIN,
    SPECRT__WINDOW_OPTION_ROWS,
    SPECRT__WINDOW_OPTIONS
};

typedef struct specrt__window_params {
    int32_t size; /* stream: elements; else distinct tokens */
    int32_t mode, positions, only;
    int32_t kpre, kver; /* at most SPECRT__WINDOW_MAX_K */
    int32_t emitted;    /* whether emitted tokens are pushed */
    int32_t min;        /* rows to fill up to, of all sources together */
    /* [n_frequent] what to fill up with, borrowed; NULL: ascending ids, which in byte-pair vocabularies
     * are bytes and early merges */
    const int32_t *frequent;
    int32_t n_frequent;
} specrt__window_params;

typedef struct specrt__window_shared {
    specrt_env env;
    specrt__window_params params;
} specrt__window_shared;

typedef struct specrt__window {
    specrt_env env;
    specrt__window_params params;
    specrt__pool *pool;
    int32_t bit; /* of the pool */
    int32_t n_logits;
    /* Distinct tokens by recency: a doubly linked ring whose entry `list_size` stands between the
     * newest and the oldest. In the mode unique_lru they are the window, in `stream` the set that is
     * being put together before it is appended. */
    int32_t list_size, n_list;
    int32_t *ids, *older, *newer; /* [list_size + 1] */
    int32_t *places;              /* [n_ids] place in the list; -1: none */
    /* The last elements of the stream, and how many of them are this token. */
    int32_t ring_begin, n_ring;
    int32_t *ring;   /* [size] */
    int32_t *counts; /* [n_ids] */
    int32_t n_seed;  /* the best tokens at the latest prompt position */
    int32_t seed[SPECRT_LOGITS_MAX_K];
    int32_t n_fill; /* of params.frequent, in use */
} specrt__window;

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_env *env);

SPECRT__INTERNAL void specrt__window_close(void *state);
SPECRT__INTERNAL void specrt__window_begin(void *state);

/* --- pushing --- */

SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id);
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id);

/* --- what is pushed --- */

SPECRT__INTERNAL void specrt__window_prefill(void *state, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows);
SPECRT__INTERNAL void specrt__window_start(void *state, int32_t token);
SPECRT__INTERNAL void specrt__window_observe(void *state, const specrt__source_cycle *cycle);

// >>window : src/sources/window.c
/* window.c : owns MicroSpec's window (docs/methods/window.md): which tokens the target
 * lately saw or thought likely. Every step takes constant time; nothing is allocated after creation.
 * Refuses an indexed window over rows that no product reads as they are; tokens that may not be proposed are
 * passed over. */

static const specrt__source_option specrt__window_options[] = {
    {"mode", "unique_lru stream", 0, 0, 0},     {"kpre", NULL, 0, SPECRT__WINDOW_MAX_K, 0},
    {"kver", NULL, 0, SPECRT__WINDOW_MAX_K, 3}, {"positions", "all last tree", 0, 0, 0},
    {"only", "both ctx ext", 0, 0, 0},          {"emitted", "off on", 0, 0, 1},
    {"min", NULL, 0, SPECRT_MAX_VOCAB, 256},    {"rows", "packed indexed", 0, 0, 0},
};
SPECRT__SOURCE_FITS(specrt__window_options, SPECRT__WINDOW_OPTIONS);

static specrt_status specrt__window_share(const specrt__source_request *request,
                                          specrt__source_shared *out, specrt_error *err) {
    const int32_t *options = request->options;
    const specrt_env *env = &request->head->compute.env;
    specrt_dtype dtype = request->head->desc.dtype;
    out->in_head = options[SPECRT__WINDOW_OPTION_ROWS] == SPECRT__WINDOW_INDEXED;
    if (out->in_head && specrt__head_packed_dtype(request->head) != dtype)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "window: rows=indexed: expected a head of f32, f16, bf16 or q8_0, "
                                "found %s, whose rows are decoded as they are packed; use "
                                "rows=packed",
                                specrt_dtype_name(dtype));
    specrt__window_shared *s =
        (specrt__window_shared *)specrt__base_alloc(env, sizeof(specrt__window_shared));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "window: out of memory");
    s->env = *env;
    s->params.size = request->size;
    s->params.mode = options[SPECRT__WINDOW_OPTION_MODE];
    s->params.positions = options[SPECRT__WINDOW_OPTION_POSITIONS];
    s->params.only = options[SPECRT__WINDOW_OPTION_ONLY];
    s->params.kpre = options[SPECRT__WINDOW_OPTION_KPRE];
    s->params.kver = options[SPECRT__WINDOW_OPTION_KVER];
    s->params.emitted = options[SPECRT__WINDOW_OPTION_EMITTED];
    s->params.min = options[SPECRT__WINDOW_OPTION_MIN];
    if (s->params.min > request->size) s->params.min = request->size;
    s->params.frequent = request->frequent;
    s->params.n_frequent = request->n_frequent;
    out->data = s;
    out->bound = request->size;
    out->reads_prompt = s->params.kpre > 0;
    out->reads_tree = s->params.positions == SPECRT__WINDOW_POSITIONS_TREE && s->params.kver > 0 &&
                      s->params.only != SPECRT__WINDOW_CTX;
    return SPECRT_STATUS_OK;
}

static void specrt__window_unshare(void *shared) {
    specrt_env env = ((specrt__window_shared *)shared)->env;
    specrt__base_free(&env, shared);
}

/* --- a session's --- */

static void specrt__window_list_clear(specrt__window *w) {
    w->n_list = 0;
    w->older[w->list_size] = w->newer[w->list_size] = w->list_size;
}

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_env *env) {
    bool stream = params->mode == SPECRT__WINDOW_STREAM;
    size_t n_ids = (size_t)pool->n_ids, size = (size_t)params->size;
    size_t list = (size < n_ids ? size : n_ids) + 1;
    size_t words = 3 * list + n_ids + (stream ? size + n_ids : 0);
    size_t bytes = sizeof(specrt__window) + words * sizeof(int32_t);
    specrt__window *w = (specrt__window *)specrt__base_alloc(env, bytes);
    if (!w) return NULL;
    memset(w, 0, bytes);
    w->env = *env;
    w->params = *params;
    w->pool = pool;
    w->bit = specrt__pool_register(pool);
    w->n_logits = n_logits;
    w->list_size = (int32_t)list - 1;
    w->ids = (int32_t *)(void *)(w + 1);
    w->older = w->ids + list;
    w->newer = w->older + list;
    w->places = w->newer + list;
    w->ring = stream ? w->places + n_ids : NULL;
    w->counts = stream ? w->ring + size : NULL;
    memset(w->places, 0xff, n_ids * sizeof *w->places);
    return w;
}

/* Drafts need topk rows, and more than are fixed or packed at most there cannot be. */
static void *specrt__window_open(void *shared, const specrt__source_session *with) {
    specrt__window_params params = ((const specrt__window_shared *)shared)->params;
    if (params.min < with->topk) params.min = with->topk;
    if (params.min > with->bound) params.min = with->bound;
    return specrt__window_create(with->pool, &params, with->n_logits, with->env);
}

SPECRT__INTERNAL void specrt__window_close(void *state) {
    specrt_env env = ((specrt__window *)state)->env;
    specrt__base_free(&env, state);
}

/* Only what the list and the ring name is not as created. */
SPECRT__INTERNAL void specrt__window_begin(void *state) {
    specrt__window *w = (specrt__window *)state;
    for (int32_t i = 0; i < w->n_list; i++) w->places[w->ids[i]] = -1;
    for (int32_t i = 0; i < w->n_ring; i++) w->counts[w->ring[i]] = 0;
    specrt__window_list_clear(w);
    w->ring_begin = w->n_ring = w->n_seed = w->n_fill = 0;
}

/* --- pushing --- */

/* To the new end of the list. @return the token that leaves it, or -1. */
SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id) {
    int32_t end = w->list_size, place = w->places[id], evicted = -1;
    if (place < 0 && w->n_list == w->list_size) {
        place = w->newer[end];
        evicted = w->ids[place];
        w->places[evicted] = -1;
    }
    if (place < 0) {
        place = w->n_list++;
    } else {
        w->newer[w->older[place]] = w->newer[place];
        w->older[w->newer[place]] = w->older[place];
    }
    w->ids[place] = id;
    w->places[id] = place;
    w->older[place] = w->older[end];
    w->newer[place] = end;
    w->newer[w->older[end]] = place;
    w->older[end] = place;
    return evicted;
}

/* One more element of the stream; the oldest leaves a full window. */
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id) {
    int32_t size = w->params.size;
    if (w->n_ring == size) {
        int32_t oldest = w->ring[w->ring_begin];
        if (--w->counts[oldest] == 0) specrt__pool_drop(w->pool, oldest, w->bit);
        w->ring_begin = w->ring_begin + 1 == size ? 0 : w->ring_begin + 1;
        w->n_ring--;
    }
    int32_t end = w->ring_begin < size - w->n_ring ? w->ring_begin + w->n_ring
                                                   : w->ring_begin - (size - w->n_ring);
    w->ring[end] = id;
    w->n_ring++;
    if (w->counts[id]++ == 0) specrt__pool_want(w->pool, id, w->bit);
}

/* A single element. */
static void specrt__window_push(specrt__window *w, int32_t id) {
    if (!specrt__pool_valid(w->pool, id)) return;
    if (w->params.mode == SPECRT__WINDOW_STREAM) {
        specrt__window_append(w, id);
        return;
    }
    int32_t evicted = specrt__window_touch(w, id);
    specrt__pool_want(w->pool, id, w->bit);
    if (evicted >= 0) specrt__pool_drop(w->pool, evicted, w->bit);
}

/* An element of a set. The stream takes sets as tuples without repetition, ordered by last
 * occurrence; of more than `size` elements only the last could stay, so the list may forget. */
static void specrt__window_add(specrt__window *w, int32_t id) {
    if (w->params.mode != SPECRT__WINDOW_STREAM)
        specrt__window_push(w, id);
    else if (specrt__pool_valid(w->pool, id))
        specrt__window_touch(w, id);
}

/* The set is complete. */
static void specrt__window_flush(specrt__window *w) {
    if (w->params.mode != SPECRT__WINDOW_STREAM) return;
    for (int32_t at = w->newer[w->list_size]; at != w->list_size; at = w->newer[at]) {
        specrt__window_append(w, w->ids[at]);
        w->places[w->ids[at]] = -1;
    }
    specrt__window_list_clear(w);
}

/* --- what is pushed --- */

SPECRT__INTERNAL void specrt__window_prefill(void *state, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows) {
    specrt__window *w = (specrt__window *)state;
    bool ext = w->params.only == SPECRT__WINDOW_EXT;
    for (int32_t i = 0; i < n; i++) {
        if (!ext) specrt__window_push(w, tokens[i]);
        w->n_seed = specrt__shortlist_target_best(rows, i, w->n_logits, w->params.kpre, w->seed);
        for (int32_t j = 0; j < w->n_seed && !ext; j++) specrt__window_add(w, w->seed[j]);
    }
}

static int32_t specrt__window_frequent(const specrt__window *w, int32_t rank) {
    return w->params.frequent ? w->params.frequent[rank] : rank;
}

/* Tokens by frequency make up for a short window, and give way as it grows: the shortest prefix of the
 * list that reaches the least number of rows, found from the one before. */
static void specrt__window_fill(specrt__window *w) {
    specrt__pool *pool = w->pool;
    int32_t n_wanted = w->params.min - pool->n_fixed;
    while (w->n_fill > 0) {
        int32_t id = specrt__window_frequent(w, w->n_fill - 1);
        if (specrt__pool_valid(pool, id)) {
            specrt__pool_drop(pool, id, SPECRT__POOL_FILL);
            if (pool->n_wanted < n_wanted) {
                specrt__pool_want(pool, id, SPECRT__POOL_FILL);
                break;
            }
        }
        w->n_fill--;
    }
    while (w->n_fill < w->params.n_frequent && pool->n_wanted < n_wanted) {
        int32_t id = specrt__window_frequent(w, w->n_fill++);
        if (specrt__pool_valid(pool, id)) specrt__pool_want(pool, id, SPECRT__POOL_FILL);
    }
}

/* The prompt is complete, and `token` follows it. */
SPECRT__INTERNAL void specrt__window_start(void *state, int32_t token) {
    specrt__window *w = (specrt__window *)state;
    if (w->params.only == SPECRT__WINDOW_EXT)
        for (int32_t j = 0; j < w->n_seed; j++) specrt__window_add(w, w->seed[j]);
    specrt__window_flush(w);
    if (w->params.emitted && w->params.only != SPECRT__WINDOW_CTX) specrt__window_push(w, token);
    specrt__window_fill(w);
}

static void specrt__window_add_row(specrt__window *w, const specrt_target_rows *rows,
                                   int32_t node) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    int32_t n = specrt__shortlist_target_best(rows, node, w->n_logits, w->params.kver, best);
    for (int32_t j = 0; j < n; j++) specrt__window_add(w, best[j]);
}

/* The tree, then the target's best at the verified positions, then what was emitted. */
static void specrt__window_learn(specrt__window *w, const specrt__source_cycle *cycle) {
    const specrt_draft *draft = cycle->draft;
    const specrt_verdict *verdict = cycle->verdict;
    for (int32_t i = 1; i < draft->n; i++) specrt__window_add(w, draft->tokens[i]);
    specrt__window_flush(w);
    if (w->params.positions == SPECRT__WINDOW_POSITIONS_TREE) {
        for (int32_t i = 0; i < draft->n; i++) specrt__window_add_row(w, cycle->rows, i);
    } else {
        int32_t first = w->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? verdict->n - 1 : 0;
        for (int32_t i = first; i < verdict->n; i++)
            specrt__window_add_row(w, cycle->rows, verdict->nodes[i]);
    }
    specrt__window_flush(w);
    for (int32_t i = 0; i < verdict->n && w->params.emitted; i++)
        specrt__window_push(w, verdict->tokens[i]);
}

/* Filled up in any case: a prompt may have grown since the last time, and other sources may have. */
SPECRT__INTERNAL void specrt__window_observe(void *state, const specrt__source_cycle *cycle) {
    specrt__window *w = (specrt__window *)state;
    if (w->params.only != SPECRT__WINDOW_CTX) specrt__window_learn(w, cycle);
    specrt__window_fill(w);
}

/* --- saved sessions --- */

/* The list by recency, of a stream the set that is not appended yet; the stream's elements; the target's
 * best at the latest prompt position. */
enum {
    SPECRT__WINDOW_SAVED_LIST,
    SPECRT__WINDOW_SAVED_RING,
    SPECRT__WINDOW_SAVED_SEED,
    SPECRT__WINDOW_SAVED
};

static void specrt__window_limits(const void *state, int32_t *most) {
    const specrt__window *w = (const specrt__window *)state;
    most[SPECRT__WINDOW_SAVED_LIST] = w->list_size;
    most[SPECRT__WINDOW_SAVED_RING] = w->ring ? w->params.size : 0;
    most[SPECRT__WINDOW_SAVED_SEED] = SPECRT_LOGITS_MAX_K;
}

static void specrt__window_save(const void *state, specrt__save *out) {
    const specrt__window *w = (const specrt__window *)state;
    int32_t left = w->params.size - w->ring_begin; /* elements up to the ring's end */
    specrt__save_header(out, SPECRT__SAVED_FILL, &w->n_fill, sizeof w->n_fill);
    specrt__save_word(out, w->n_list);
    for (int32_t at = w->newer[w->list_size]; at != w->list_size; at = w->newer[at])
        specrt__save_word(out, w->ids[at]);
    specrt__save_word(out, w->n_ring);
    for (int32_t i = 0; i < w->n_ring; i++)
        specrt__save_word(out, w->ring[i < left ? w->ring_begin + i : i - left]);
    specrt__save_list(out, w->seed, w->n_seed);
}

static const char *specrt__window_load(void *state, const specrt__saved *in) {
    specrt__window *w = (specrt__window *)state;
    const specrt__saved_list *tokens = &in->lists[SPECRT__WINDOW_SAVED_LIST];
    const specrt__saved_list *ring = &in->lists[SPECRT__WINDOW_SAVED_RING];
    const specrt__saved_list *seed = &in->lists[SPECRT__WINDOW_SAVED_SEED];
    int32_t n_fill = (int32_t)specrt__base_load32(in->header + SPECRT__SAVED_FILL);
    if (n_fill < 0 || n_fill > w->params.n_frequent) return "fill";
    if (!specrt__saved_within(tokens, w->pool->n_ids) ||
        !specrt__saved_within(ring, w->pool->n_ids))
        return "tokens";
    for (int32_t i = 0; i < tokens->n; i++) {
        int32_t id = specrt__saved_word(tokens, i);
        if (!specrt__pool_valid(w->pool, id) || w->places[id] >= 0) return "window";
        specrt__window_touch(w, id);
        if (!w->ring) specrt__pool_want(w->pool, id, w->bit);
    }
    for (int32_t i = 0; i < ring->n; i++) {
        int32_t id = specrt__saved_word(ring, i);
        if (!specrt__pool_valid(w->pool, id)) return "window";
        specrt__window_append(w, id);
    }
    w->n_seed = seed->n;
    for (int32_t i = 0; i < seed->n; i++) w->seed[i] = specrt__saved_word(seed, i);
    for (; w->n_fill < n_fill; w->n_fill++) {
        int32_t id = specrt__window_frequent(w, w->n_fill);
        if (specrt__pool_valid(w->pool, id)) specrt__pool_want(w->pool, id, SPECRT__POOL_FILL);
    }
    return NULL;
}

SPECRT__INTERNAL const specrt__source specrt__window_source = {
    /* options = */ specrt__window_options,
    /* n_options = */ SPECRT__WINDOW_OPTIONS,
    /* share = */ specrt__window_share,
    /* unshare = */ specrt__window_unshare,
    /* open = */ specrt__window_open,
    /* close = */ specrt__window_close,
    /* route = */ NULL,
    /* begin = */ specrt__window_begin,
    /* prefill = */ specrt__window_prefill,
    /* start = */ specrt__window_start,
    /* observe = */ specrt__window_observe,
    /* settle = */ NULL,
    /* n_lists = */ SPECRT__WINDOW_SAVED,
    /* always_saved = */ true,
    /* limits = */ specrt__window_limits,
    /* save = */ specrt__window_save,
    /* load = */ specrt__window_load,
};

#if !defined(SPECRT_SMALL)

// >>hnsw : src/sources/hnsw.h
/* hnsw.h : search of an index, for builders and retrieval */

typedef struct specrt__hnsw_scratch {
    const specrt__simd_kernels *kernels;
    uint64_t *seen; /* a bit of each node */
    uint64_t *keys; /* [ef] best first */
    float *query;   /* [n_cols] padded with zeros */
    int16_t *codes; /* [n_cols] times unit: the query */
    float *scores;  /* [2 m], or [ef] to score exactly */
    int32_t *nodes; /* [2 m], or [ef] */
    float unit, offset;
} specrt__hnsw_scratch;

/* --- search --- */

/* The better the greater, ties to the lower node; the lowest bit tells that it is not yet expanded. */
static inline uint64_t specrt__hnsw_key(float score, int32_t node) {
    uint64_t key = specrt__shortlist_key(score, node);
    return key >> 32 << 32 | (uint32_t)(key << 1) | 1;
}

// >>hnsw : src/sources/hnsw.c
/* hnsw.c : owns the view of the index and the search in it: greedy down to level 1, best first on level 0,
 * over products as they are. Refuses links, levels and ids out of range, so that a search of a hostile
 * graph ends and stays within its arrays; a graph with cycles or unreachable nodes only finds less.
 * Rows as int8 meet a query of 16 bits, in whole numbers: only the rows' rounding is lost, and every
 * instruction set walks the same way. */

enum {
    SPECRT__HNSW_AHEAD = 8, /* rows fetched into the cache before they are scored */
    SPECRT__HNSW_PAD_I8 = 64
};

static size_t specrt__hnsw_take(size_t *at, uint64_t n_bytes) {
    size_t place = *at;
    *at += (size_t)specrt__base_align(n_bytes, 64);
    return place;
}

static size_t specrt__hnsw_seen_bytes(const specrt_hnsw *g) {
    return ((size_t)g->header->n_nodes + 63) / 64 * 8;
}

static size_t specrt__hnsw_lay_out(const specrt_hnsw *g, int32_t ef, uint8_t *base,
                                   specrt__hnsw_scratch *s) {
    size_t k = (size_t)ef, wide = 2 * (size_t)g->header->m, width = wide > k ? wide : k, at = 0;
    size_t n_cols = (size_t)g->n_cols;
    s->seen = (uint64_t *)(void *)(base + specrt__hnsw_take(&at, specrt__hnsw_seen_bytes(g)));
    s->keys = (uint64_t *)(void *)(base + specrt__hnsw_take(&at, k * sizeof *s->keys));
    s->query = (float *)(void *)(base + specrt__hnsw_take(&at, n_cols * sizeof *s->query));
    s->codes = (int16_t *)(void *)(base + specrt__hnsw_take(&at, n_cols * sizeof *s->codes));
    s->scores = (float *)(void *)(base + specrt__hnsw_take(&at, width * sizeof *s->scores));
    s->nodes = (int32_t *)(void *)(base + specrt__hnsw_take(&at, width * sizeof *s->nodes));
    return at;
}

static int32_t specrt__hnsw_ef(const specrt_hnsw *g, int32_t ef) {
    if (ef == 0) ef = g->header->ef;
    return ef < 1 || ef > SPECRT_HNSW_MAX_EF ? 0 : ef;
}

SPECRT_API size_t specrt_hnsw_scratch_bytes(const specrt_hnsw *index, int32_t ef) {
    uint64_t anywhere = 0; /* offsets do not depend on it */
    specrt__hnsw_scratch s;
    ef = index ? specrt__hnsw_ef(index, ef) : 0;
    return ef ? specrt__hnsw_lay_out(index, ef, (uint8_t *)&anywhere, &s) : 0;
}

/* --- opening --- */

static const char *specrt__hnsw_check_sizes(const specrt_hnsw_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (h->n_rows < 1 || h->n_rows > SPECRT_MAX_VOCAB || h->dim < 1 || h->dim > SPECRT_HNSW_MAX_DIM)
        return "n_rows, dim: expected 1 to 16777216, and 1 to 131072, found others";
    if (h->n_nodes < 1 || h->n_nodes > h->n_rows)
        return "n_nodes: expected 1 to n_rows, found another";
    if (h->m < 2 || h->m > SPECRT_HNSW_MAX_M) return "m: expected 2 to 256, found another";
    if (h->max_level < 0 || h->max_level > SPECRT_HNSW_MAX_LEVEL || h->entry < 0 ||
        h->entry >= h->n_nodes)
        return "max_level, entry: expected 0 to 31, and a node, found others";
    if (h->vectors != SPECRT_HNSW_NONE && h->vectors != SPECRT_HNSW_F16 &&
        h->vectors != SPECRT_HNSW_INT8)
        return "vectors: expected none, f16 or int8, found another type";
    if (h->n_lists < 0 || (int64_t)h->n_lists > (int64_t)h->n_nodes * SPECRT_HNSW_MAX_LEVEL)
        return "n_lists: expected 0 to 31 per node, found another";
    if (h->ef < 1 || h->ef > SPECRT_HNSW_MAX_EF) return "ef: expected 1 to 4096, found another";
    return NULL;
}

/* The vectors begin at an offset. @return where they end. */
static uint64_t specrt__hnsw_view_vectors(const uint8_t *base, uint64_t at, specrt_hnsw *g) {
    const specrt_hnsw_header *h = g->header;
    uint64_t nodes = (uint64_t)h->n_nodes, dim = (uint64_t)h->dim;
    if (h->vectors == SPECRT_HNSW_INT8) {
        g->n_cols = (int64_t)specrt__base_align(dim, SPECRT__HNSW_PAD_I8);
        g->codes = (const int8_t *)(base + at);
        at += nodes * (uint64_t)g->n_cols;
        g->scales = (const float *)(const void *)(base + at);
        return at + nodes * sizeof(float);
    }
    g->n_cols = (int64_t)specrt__base_align(dim, 32);
    g->rows.dtype = SPECRT_DTYPE_F16;
    g->rows.row_stride = specrt_row_bytes(g->rows.dtype, g->n_cols);
    g->rows.rows = base + at;
    return at + nodes * (uint64_t)g->rows.row_stride;
}

/* Offsets in the section, whose size must be theirs. */
static bool specrt__hnsw_view(const uint8_t *base, size_t n, specrt_hnsw *g) {
    const specrt_hnsw_header *h = (const specrt_hnsw_header *)(const void *)base;
    size_t nodes = (size_t)h->n_nodes, m = (size_t)h->m;
    uint64_t words = 2 * (uint64_t)nodes + 1 + 2 * (uint64_t)nodes * m + (uint64_t)h->n_lists * m;
    uint64_t end = sizeof *h + 4 * words;
    g->header = h;
    g->ids = (const int32_t *)(const void *)(h + 1);
    g->starts = g->ids + nodes;
    g->links0 = g->starts + nodes + 1;
    g->links = g->links0 + 2 * nodes * m;
    if (end > n) return false;
    if (h->vectors != SPECRT_HNSW_NONE)
        end = specrt__hnsw_view_vectors(base, specrt__base_align(end, 64), g);
    return end == n;
}

static const char *specrt__hnsw_check_links(const specrt_hnsw *g, const int32_t *links, int32_t n,
                                            int32_t level) {
    for (int32_t i = 0; i < n && links[i] != -1; i++) {
        int32_t to = links[i];
        if (to < 0 || to >= g->header->n_nodes)
            return "links: expected links to nodes, found another";
        if (g->starts[to + 1] - g->starts[to] < level)
            return "links: expected links within a level, found one to a lower level";
    }
    return NULL;
}

static const char *specrt__hnsw_check_node(const specrt_hnsw *g, int32_t node) {
    const specrt_hnsw_header *h = g->header;
    const char *wrong =
        specrt__hnsw_check_links(g, g->links0 + (size_t)node * 2 * (size_t)h->m, 2 * h->m, 0);
    if (g->ids[node] < 0 || g->ids[node] >= h->n_rows || (node && g->ids[node] <= g->ids[node - 1]))
        return "ids: expected ascending rows, found others";
    for (int32_t list = g->starts[node]; list < g->starts[node + 1] && !wrong; list++)
        wrong = specrt__hnsw_check_links(g, g->links + (size_t)list * (size_t)h->m, h->m,
                                         list - g->starts[node] + 1);
    return wrong;
}

static const char *specrt__hnsw_check(const specrt_hnsw *g) {
    const specrt_hnsw_header *h = g->header;
    const char *wrong = NULL;
    if (g->starts[0] != 0 || g->starts[h->n_nodes] != h->n_lists)
        return "starts: expected 0 first and n_lists last, found others";
    for (int32_t i = 0; i < h->n_nodes; i++)
        if (g->starts[i + 1] < g->starts[i] || g->starts[i + 1] - g->starts[i] > h->max_level)
            return "starts: expected steps of 0 to max_level, found another";
    if (g->starts[h->entry + 1] - g->starts[h->entry] != h->max_level)
        return "entry: expected a node on the highest level, found a lower one";
    for (int32_t i = 0; i < h->n_nodes && !wrong; i++) wrong = specrt__hnsw_check_node(g, i);
    return wrong;
}

/* The head must be the one that was indexed, and serve where no vectors are stored. */
static specrt_status specrt__hnsw_bind(const specrt_bundle *bundle, specrt_hnsw *g,
                                       specrt_error *err) {
    const specrt_hnsw_header *h = g->header;
    const specrt_head_desc *head = g->head ? &g->head->desc : NULL;
    if (head && (head->n_rows < h->n_rows || head->n_cols != h->dim))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: hnsw: expected a head [%d, %d], found [%lld, %lld]; use the "
                                "bundle made for this model",
                                bundle->name, (int)h->n_rows, (int)h->dim, (long long)head->n_rows,
                                (long long)head->n_cols);
    if (h->vectors != SPECRT_HNSW_NONE) return SPECRT_STATUS_OK;
    if (!head)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "%s: hnsw: vectors: expected a head or stored vectors, found neither; "
            "rebuild it with --vectors int8",
            bundle->name);
    g->n_cols = h->dim;
    g->rows.rows = head->rows;
    g->rows.row_stride = head->row_stride;
    g->rows.dtype = head->dtype;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_bundle_hnsw(const specrt_bundle *bundle, const specrt_head *head,
                                            specrt_hnsw *out, specrt_error *err) {
    size_t n;
    specrt_hnsw view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    memset(&view, 0, sizeof view);
    const uint8_t *bytes = (const uint8_t *)specrt_bundle_data(bundle, "hnsw", &n);
    if (!bytes) return specrt__bundle_missing(bundle, "hnsw", err);
    const char *wrong =
        specrt__hnsw_check_sizes((const specrt_hnsw_header *)(const void *)bytes, n);
    if (!wrong && !specrt__hnsw_view(bytes, n, &view))
        wrong = "size: expected the bytes of its header's counts, found others";
    if (!wrong) wrong = specrt__hnsw_check(&view);
    if (wrong) return specrt__bundle_bad(bundle, "hnsw", wrong, err);
    view.head = head;
    SPECRT__TRY(specrt__hnsw_bind(bundle, &view, err));
    *out = view;
    return SPECRT_STATUS_OK;
}

/* --- search --- */

static specrt__hnsw_scratch specrt__hnsw_begin(const specrt_hnsw *g, int32_t ef, void *scratch) {
    specrt__hnsw_scratch s;
    specrt__hnsw_lay_out(g, ef, (uint8_t *)scratch, &s);
    s.kernels = g->head ? g->head->compute.kernels : specrt__simd_choose();
    return s;
}

/* The query, padded; for int8 rows as 16 bits, as many as no sum overflows with. A multiple of 127, so
 * that codes of a node stay what they are. One that is not finite is as zero. */
static void specrt__hnsw_ask(const specrt_hnsw *g, specrt__hnsw_scratch *s, const float *query) {
    int64_t dim = g->header->dim;
    int32_t most = (int32_t)(0x7fffffff / (128 * 127 * dim)) * 127;
    float max = 0;
    memset(s->query, 0, (size_t)g->n_cols * sizeof *s->query);
    memcpy(s->query, query, (size_t)dim * sizeof *s->query);
    if (!g->codes) return;
    memset(s->codes, 0, (size_t)g->n_cols * sizeof *s->codes);
    if (most > 258 * 127) most = 258 * 127;
    for (int64_t j = 0; j < dim; j++) max = fabsf(query[j]) > max ? fabsf(query[j]) : max;
    s->unit = max > 0 && max <= FLT_MAX ? max / (float)most : 0;
    float inverse = s->unit > 0 ? (float)most / max : 0;
    for (int64_t j = 0; j < dim && inverse > 0; j++) {
        float code = query[j] * inverse;
        s->codes[j] = (int16_t)(code == code ? lrintf(code) : 0);
    }
}

static void specrt__hnsw_fetch(const specrt_hnsw *g, int32_t node) {
    const int8_t *row = g->codes + (int64_t)node * g->n_cols;
    for (int64_t j = 0; j < g->n_cols; j += 64) SPECRT__SIMD_PREFETCH(row + j);
}

/* Scores of four nodes at most. */
static void specrt__hnsw_score_four(const specrt_hnsw *g, const specrt__hnsw_scratch *s,
                                    const int32_t *nodes, int32_t n, float *scores) {
    const int8_t *rows[4];
    int32_t sums[4];
    for (int32_t r = 0; r < 4; r++) rows[r] = g->codes + (int64_t)nodes[r < n ? r : 0] * g->n_cols;
    s->kernels->tile_i8(rows, s->codes, g->n_cols, sums);
    for (int32_t r = 0; r < n && r < 4; r++) {
        scores[r] = g->scales[nodes[r]] * s->unit * (float)sums[r];
        if (g->offsets) scores[r] += s->offset * g->offsets[nodes[r]];
    }
}

static void specrt__hnsw_score_codes(const specrt_hnsw *g, const specrt__hnsw_scratch *s,
                                     const int32_t *nodes, int32_t n, float *scores) {
    for (int32_t i = 0; i < n && i < SPECRT__HNSW_AHEAD; i++) specrt__hnsw_fetch(g, nodes[i]);
    for (int32_t i = 0; i < n; i += 4) {
        for (int32_t r = i + SPECRT__HNSW_AHEAD; r < i + SPECRT__HNSW_AHEAD + 4 && r < n; r++)
            specrt__hnsw_fetch(g, nodes[r]);
        specrt__hnsw_score_four(g, s, nodes + i, n - i, scores + i);
    }
}

/* Products of the n nodes in s->nodes with the query, into s->scores. */
static void specrt__hnsw_score(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t n) {
    specrt_segment rows = g->rows;
    int32_t places[2 * SPECRT_HNSW_MAX_M];
    if (g->codes) {
        specrt__hnsw_score_codes(g, s, s->nodes, n, s->scores);
        return;
    }
    rows.places = s->nodes;
    rows.n_rows = n;
    if (g->header->vectors == SPECRT_HNSW_NONE) {
        for (int32_t i = 0; i < n; i++) places[i] = g->ids[s->nodes[i]];
        rows.places = places;
    }
    specrt__head_products(s->kernels, &rows, 0, n, g->n_cols, s->query, 1, s->scores, 0);
}

static int32_t specrt__hnsw_node(uint64_t key) {
    return specrt__shortlist_key_id(key >> 1 | 0x80000000u);
}

/* Keeps a key if it is among the ef best so far. @return its place, or ef. */
static int32_t specrt__hnsw_keep(uint64_t *keys, int32_t *n, int32_t ef, uint64_t key) {
    if (*n == ef && key < keys[ef - 1]) return ef;
    uint64_t *at = keys;
    for (int32_t left = *n; left > 0;) {
        int32_t half = (left + 1) / 2;
        at = at[half - 1] > key ? at + half : at;
        left -= half;
    }
    if (*n < ef) ++*n;
    memmove(at + 1, at, (size_t)(keys + *n - 1 - at) * sizeof *keys);
    *at = key;
    return (int32_t)(at - keys);
}

static const int32_t *specrt__hnsw_links(const specrt_hnsw *g, int32_t node, int32_t level,
                                         int32_t *n) {
    size_t m = (size_t)g->header->m;
    *n = level ? g->header->m : 2 * g->header->m;
    return level ? g->links + ((size_t)g->starts[node] + (size_t)level - 1) * m
                 : g->links0 + (size_t)node * 2 * m;
}

/* The links of a node that were not seen before, into s->nodes. @return how many there are. */
static int32_t specrt__hnsw_unseen(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t node,
                                   int32_t level) {
    int32_t n_links, n = 0;
    const int32_t *links = specrt__hnsw_links(g, node, level, &n_links);
    for (int32_t i = 0; i < n_links && links[i] >= 0; i++) {
        uint64_t *word = &s->seen[links[i] >> 6], bit = 1ull << (links[i] & 63);
        s->nodes[n] = links[i];
        n += (*word & bit) == 0;
        *word |= bit;
    }
    return n;
}

/* The first place from one on that is not expanded, or n. */
static int32_t specrt__hnsw_open(const uint64_t *keys, int32_t at, int32_t n) {
    while (at < n && !(keys[at] & 1)) at++;
    return at;
}

/* Best-first search of one level from an entry (Malkov and Yashunin 2016, algorithm 2), into s->keys:
 *
 *     keys   closed  closed  open  closed  open       the best nodes so far, best first, at most ef
 *                            ^at                      all before it are closed
 *
 * A node is closed by scoring those of its links that were not scored before. Each turn closes the best open
 * one. A scored node that is among the ef best enters as open; one that enters before `at` takes `at` back.
 * A node that drops out need not be remembered: the worst of the ef only gets better. So the search ends when
 * all of them are closed, since none of their links is left to score, and it ends at all, since a node is
 * scored once. What it misses are better nodes that only worse ones lead to; a greater ef finds more of them.
 * Links of the node that is likely to be next are fetched while the present ones are scored.
 * @return how many nodes there are. */
static int32_t specrt__hnsw_explore(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t entry,
                                    int32_t level, int32_t ef) {
    int32_t n = 0, at = 0, n_links;
    memset(s->seen, 0, specrt__hnsw_seen_bytes(g));
    s->seen[entry >> 6] |= 1ull << (entry & 63);
    s->nodes[0] = entry;
    specrt__hnsw_score(g, s, 1);
    specrt__hnsw_keep(s->keys, &n, ef, specrt__hnsw_key(s->scores[0], entry));
    while ((at = specrt__hnsw_open(s->keys, at, n)) < n) {
        s->keys[at]--;
        int32_t n_unseen = specrt__hnsw_unseen(g, s, specrt__hnsw_node(s->keys[at]), level);
        int32_t next = specrt__hnsw_open(s->keys, at, n);
        if (next < n) {
            const int32_t *links =
                specrt__hnsw_links(g, specrt__hnsw_node(s->keys[next]), level, &n_links);
            for (int32_t i = 0; i < n_links; i += 16) SPECRT__SIMD_PREFETCH(links + i);
        }
        if (n_unseen == 0) continue;
        specrt__hnsw_score(g, s, n_unseen);
        for (int32_t i = 0; i < n_unseen; i++) {
            uint64_t key = specrt__hnsw_key(s->scores[i], s->nodes[i]);
            int32_t place = specrt__hnsw_keep(s->keys, &n, ef, key);
            if (place < at) at = place;
        }
    }
    return n;
}

/* From the entry down to a level, one best node at a time, then all ef. */
static int32_t specrt__hnsw_descend(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t level,
                                    int32_t ef) {
    int32_t node = g->header->entry;
    for (int32_t l = g->header->max_level; l > level; l--) {
        specrt__hnsw_explore(g, s, node, l, 1);
        node = specrt__hnsw_node(s->keys[0]);
    }
    return specrt__hnsw_explore(g, s, node, level, ef);
}

/* The n found, ranked anew by the head's own rows. */
static void specrt__hnsw_rerank(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t n) {
    const specrt_head_desc *head = &g->head->desc;
    specrt_segment rows;
    memset(&rows, 0, sizeof rows);
    rows.rows = head->rows;
    rows.row_stride = head->row_stride;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.places = s->nodes;
    rows.n_rows = n;
    for (int32_t i = 0; i < n; i++) s->nodes[i] = g->ids[specrt__hnsw_node(s->keys[i])];
    specrt__head_products(s->kernels, &rows, 0, n, head->n_cols, s->query, 1, s->scores, 0);
    for (int32_t i = 0; i < n; i++) {
        uint64_t key = specrt__shortlist_key(s->scores[i], s->nodes[i]);
        int32_t at = i;
        for (; at > 0 && s->keys[at - 1] < key; at--) s->keys[at] = s->keys[at - 1];
        s->keys[at] = key;
    }
}

SPECRT_API int32_t specrt_hnsw_search(const specrt_hnsw *index, const float *query, int32_t k,
                                      int32_t ef, int32_t *ids, float *scores, void *scratch) {
    if (!index || !query || !ids || !scores || !scratch) return 0;
    if (ef == 0) ef = index->header->ef > k ? index->header->ef : k;
    if (k < 1 || k > ef || ef > SPECRT_HNSW_MAX_EF) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, ef, scratch);
    specrt__hnsw_ask(index, &s, query);
    int32_t n = specrt__hnsw_descend(index, &s, 0, ef);
    bool exact = index->head != NULL;
    if (exact) specrt__hnsw_rerank(index, &s, n);
    for (int32_t i = 0; i < n && i < k; i++) {
        ids[i] =
            exact ? specrt__shortlist_key_id(s.keys[i]) : index->ids[specrt__hnsw_node(s.keys[i])];
        scores[i] = specrt__shortlist_key_logit(s.keys[i]);
    }
    return n < k ? n : k;
}

/* --- for builders --- */
#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)

static void specrt__hnsw_ask_node(const specrt_hnsw *g, specrt__hnsw_scratch *s, int32_t node) {
    const int8_t *codes = g->codes + (int64_t)node * g->n_cols;
    for (int64_t j = 0; j < g->n_cols; j += SPECRT__HNSW_PAD_I8)
        for (int k = 0; k < SPECRT__HNSW_PAD_I8; k++) s->codes[j + k] = codes[j + k];
    s->unit = g->scales[node];
    s->offset = g->offsets ? g->offsets[node] : 0;
}

SPECRT_API int32_t specrt_hnsw_nearest(const specrt_hnsw *index, int32_t node, int32_t level,
                                       int32_t ef, int32_t *nodes, float *scores, void *scratch) {
    if (!index || !nodes || !scores || !scratch) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, ef, scratch);
    specrt__hnsw_ask_node(index, &s, node);
    int32_t n = specrt__hnsw_descend(index, &s, level, ef);
    for (int32_t i = 0; i < n; i++) {
        nodes[i] = specrt__hnsw_node(s.keys[i]);
        scores[i] = specrt__shortlist_key_logit(s.keys[i]);
    }
    return n;
}

SPECRT_API void specrt_hnsw_scores(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                   int32_t n, float *scores, void *scratch) {
    if (!index || !nodes || !scores || !scratch) return;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, 1, scratch);
    specrt__hnsw_ask_node(index, &s, node);
    specrt__hnsw_score_codes(index, &s, nodes, n, scores);
}

SPECRT_API int specrt_hnsw_any_above(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                     int32_t n, float bound, void *scratch) {
    if (!index || !nodes || !scratch) return 0;
    specrt__hnsw_scratch s = specrt__hnsw_begin(index, 1, scratch);
    float scores[4];
    specrt__hnsw_ask_node(index, &s, node);
    for (int32_t i = 0; i < n; i += 4) {
        specrt__hnsw_score_four(index, &s, nodes + i, n - i, scores);
        for (int32_t r = 0; r < 4 && i + r < n; r++)
            if (scores[r] > bound) return 1;
    }
    return 0;
}

#endif

// >>cograph : src/sources/cograph.c
/* cograph.c : owns the view of the successor graph (section 6.2 of EvoSpec's appendix;
 * docs/methods/successor.md): which tokens follow a token. Refuses a section whose offsets, order, ids
 * or counts are not what the format says. Invariant of a view: every row lies in the arrays, its ids
 * are below n_vocab, its counts positive. */

/* Offsets in the section, for sizes that were checked. */
static void specrt__cograph_lay_out(specrt_cograph *g) {
    size_t n = (size_t)g->header->n_vocab;
    g->totals = (const uint64_t *)(const void *)(g->header + 1);
    g->offsets = (const uint32_t *)(const void *)(g->totals + n);
    g->n_rule = g->offsets + n + 1;
    g->ids = (const int32_t *)(const void *)(g->n_rule + n);
    g->counts = (const float *)(const void *)(g->ids + g->header->n_edges);
}

/* NULL, or what is wrong with the sizes. */
static const char *specrt__cograph_check_sizes(const specrt_cograph_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (h->n_vocab < 1 || h->n_vocab > SPECRT_MAX_VOCAB)
        return "n_vocab: expected 1 to 16777216, found another";
    if (h->n_edges > UINT32_MAX) return "n_edges: expected at most 4294967295, found more";
    if (n - sizeof *h != (uint64_t)h->n_vocab * 16 + 4 + h->n_edges * 8)
        return "size: expected the bytes of n_vocab and n_edges, found others";
    if (h->max_degree < 1 || h->max_degree > h->n_vocab || h->rule_degree < 0)
        return "max_degree, rule_degree: expected 1 to n_vocab, and 0 or more, found others";
    return NULL;
}

/* NULL, or what is wrong with the successors of one token. */
static const char *specrt__cograph_check_row(const specrt_cograph *g, int32_t token) {
    uint32_t begin = g->offsets[token], end = g->offsets[token + 1];
    if (end < begin || end > g->header->n_edges)
        return "offsets: expected ascending offsets, found one below its predecessor";
    if (end - begin > (uint32_t)g->header->max_degree)
        return "offsets: expected rows of at most max_degree edges, found a longer one";
    if (g->n_rule[token] > end - begin)
        return "n_rule: expected at most the edges of its row, found more";
    for (uint32_t i = begin; i < end; i++) {
        if (g->ids[i] < 0 || g->ids[i] >= g->header->n_vocab)
            return "ids: expected ids below n_vocab, found another";
        if (!(g->counts[i] > 0 && g->counts[i] <= FLT_MAX))
            return "counts: expected positive finite counts, found another";
        if (i == begin) continue;
        if (g->counts[i] > g->counts[i - 1] ||
            (g->counts[i] == g->counts[i - 1] && g->ids[i] <= g->ids[i - 1]))
            return "ids: expected successors ordered by count and id, found others";
    }
    return end > begin && g->totals[token] == 0
               ? "totals: expected a positive total for a row with edges, found 0"
               : NULL;
}

SPECRT_API specrt_status specrt_bundle_cograph(const specrt_bundle *bundle, specrt_cograph *out,
                                               specrt_error *err) {
    size_t n;
    specrt_cograph view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    view.header = (const specrt_cograph_header *)specrt_bundle_data(bundle, "cograph", &n);
    if (!view.header) return specrt__bundle_missing(bundle, "cograph", err);
    const char *wrong = specrt__cograph_check_sizes(view.header, n);
    if (wrong) return specrt__bundle_bad(bundle, "cograph", wrong, err);
    specrt__cograph_lay_out(&view);
    if (view.offsets[0] != 0 || view.offsets[view.header->n_vocab] != view.header->n_edges)
        wrong = "offsets: expected 0 first and n_edges last, found others";
    for (int32_t i = 0; i < view.header->n_vocab && !wrong; i++)
        wrong = specrt__cograph_check_row(&view, i);
    if (wrong) return specrt__bundle_bad(bundle, "cograph", wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}

SPECRT_API int32_t specrt_cograph_successors(const specrt_cograph *graph, int32_t token,
                                             const int32_t **ids, const float **counts) {
    if (ids) *ids = NULL;
    if (counts) *counts = NULL;
    if (!graph || !ids || !counts || token < 0 || token >= graph->header->n_vocab) return 0;
    uint32_t begin = graph->offsets[token];
    *ids = graph->ids + begin;
    *counts = graph->counts + begin;
    return (int32_t)(graph->offsets[token + 1] - begin);
}

// >>cluster : src/sources/cluster.h
/* cluster.h : routers over clusters */

static inline int64_t specrt__cluster_inputs(const specrt_clusters_header *h) {
    return (int64_t)h->n_embed + h->n_state;
}

/* Inputs of w2. */
static inline int64_t specrt__cluster_width(const specrt_clusters_header *h) {
    return h->n_hidden > 0 ? h->n_hidden : h->n_state;
}

/* --- sources --- */

enum {
    SPECRT__CLUSTER_SCHEDULE,
    SPECRT__CLUSTER_BEAM,
    SPECRT__CLUSTER_CAP,
    SPECRT__CLUSTER_ALWAYS,
    SPECRT__CLUSTER_OPTIONS
};

enum {
    SPECRT__CLUSTER_MOST =
        400 /* clusters of a level: their ranges must fit beside other segments */
};

/* The head cluster by cluster, a copy of its most frequent rows, and the router. One block. */
typedef struct specrt__cluster_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_clusters view;
    specrt_head_desc embedding; /* rows NULL: not read */
    specrt_segment always;      /* the most frequent; masked is not used */
    specrt_segment rows; /* those of clusters: copies, or the head's own if they lie so there */
    int32_t *ids;        /* [n_always + n_members] */
    int32_t *starts;     /* [n_clusters + 1] in rows */
    int32_t levels[SPECRT_TREE_MAX_STEPS]; /* clusters */
    int32_t cap;
    bool
        per_row; /* clusters for each row of a level, which alone scores them; else for the level */
    specrt_segment w1, w2; /* the router's layers */
} specrt__cluster_shared;

SPECRT__INTERNAL specrt__cluster_shared *specrt__cluster_allocate(const specrt_clusters *c,
                                                                  const specrt_head *head,
                                                                  int32_t n_always,
                                                                  int32_t n_copies);
SPECRT__INTERNAL void specrt__cluster_pack(specrt__cluster_shared *s, const int32_t *always,
                                           int32_t n_always, int32_t first);
SPECRT__INTERNAL int32_t specrt__cluster_bound(const specrt__cluster_shared *s, int32_t n);

static inline void specrt__cluster_unshare(void *shared) {
    specrt__cluster_shared *s = (specrt__cluster_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* --- a session's router --- */

typedef struct specrt__cluster {
    specrt_env env;
    const specrt__cluster_shared *shared;
    float *inputs;    /* [n_states, n_embed + n_state] */
    float *hidden;    /* [n_states, n_hidden] */
    float *scores;    /* [n_states, n_clusters] then probabilities by path */
    float *totals;    /* [n_clusters] */
    uint64_t *heap;   /* [n_clusters] */
    uint64_t *takers; /* [n_clusters] the level's rows that score it; 0: all do */
    int32_t *taken;   /* [n_clusters] rows of each cluster in this level */
} specrt__cluster;

SPECRT__INTERNAL void *specrt__cluster_open(void *opaque, const specrt__source_session *with);

static inline void specrt__cluster_close(void *state) {
    specrt__cluster *s = (specrt__cluster *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

SPECRT__INTERNAL void specrt__cluster_forward(specrt__cluster *s, const specrt_compute *compute,
                                              const specrt__source_level *level);

/* --- the choice --- */

typedef struct specrt__cluster_choice {
    int32_t n,
        n_rows; /* clusters and rows taken at this level; of a block, rows of this position */
    bool each;
} specrt__cluster_choice;

// >>cluster_section : src/sources/cluster_section.c
/* cluster_section.c : owns the sections of clusters and their routers, as a bundle holds them. Refuses
 * sizes, ids and numbers that no builder writes. */

static bool specrt__cluster_within(int32_t x, int32_t least, int32_t most) {
    return x >= least && x <= most;
}

/* Whether the widths are those of the router's kind. */
static bool specrt__cluster_widths_ok(const specrt_clusters_header *h) {
    const int32_t most = 65536;
    switch (h->router) {
    case SPECRT_ROUTER_NONE: return h->n_embed == 0 && h->n_state == 0 && h->n_hidden == 0;
    case SPECRT_ROUTER_CENTROID:
        return h->n_embed == 0 && h->n_state == h->n_cols && h->n_hidden == 0;
    case SPECRT_ROUTER_DYNASPEC:
        return specrt__cluster_within(h->n_embed, 0, most) &&
               specrt__cluster_within(h->n_state, 1, most) &&
               specrt__cluster_within(h->n_hidden, 1, most);
    case SPECRT_ROUTER_CORAL:
        return h->n_embed == 0 && h->n_state == h->n_cols && h->n_hidden == h->n_state;
    default: return false;
    }
}

/* NULL, or what is wrong with the sizes. */
static const char *specrt__cluster_check_sizes(const specrt_clusters_header *h, size_t n) {
    if (n < sizeof *h) return "size: expected at least its header, found less";
    if (!specrt__cluster_within(h->n_rows, 1, SPECRT_MAX_VOCAB) ||
        !specrt__cluster_within(h->n_cols, 1, 65536))
        return "n_rows, n_cols: expected 1 to 16777216, and 1 to 65536, found others";
    if (!specrt__cluster_within(h->n_members, 1, h->n_rows) ||
        !specrt__cluster_within(h->n_clusters, 1,
                                h->n_members < SPECRT_MAX_CLUSTERS ? h->n_members
                                                                   : SPECRT_MAX_CLUSTERS))
        return "n_clusters, n_members: expected 1 to 16384, n_members from n_clusters to n_rows, "
               "found others";
    if (!specrt__cluster_widths_ok(h))
        return "n_embed, n_state, n_hidden: expected the widths of its router, found others";
    if (!specrt__cluster_within(h->n_schedule, 1, 32) || !specrt__cluster_within(h->softmax, 0, 1))
        return "n_schedule, softmax: expected 1 to 32, and 0 or 1, found others";
    uint64_t words = (uint64_t)h->n_clusters + 1 + (uint64_t)h->n_members + (uint64_t)h->n_schedule;
    uint64_t halves = (uint64_t)(h->n_hidden * (specrt__cluster_inputs(h) + 1));
    if (h->router != SPECRT_ROUTER_NONE)
        halves += (uint64_t)(h->n_clusters * (specrt__cluster_width(h) + 1));
    return n - sizeof *h == 4 * words + 2 * halves
               ? NULL
               : "size: expected the bytes of its header's counts, found others";
}

/* Offsets in the section, for sizes that were checked. */
static void specrt__cluster_lay_out(specrt_clusters *c) {
    const specrt_clusters_header *h = c->header;
    c->offsets = (const uint32_t *)(const void *)(h + 1);
    c->ids = (const int32_t *)(const void *)(c->offsets + h->n_clusters + 1);
    c->schedule = c->ids + h->n_members;
    if (h->router == SPECRT_ROUTER_NONE) return;
    const uint16_t *weights = (const uint16_t *)(const void *)(c->schedule + h->n_schedule);
    if (h->n_hidden > 0) {
        c->w1 = weights;
        c->b1 = c->w1 + h->n_hidden * specrt__cluster_inputs(h);
        weights = c->b1 + h->n_hidden;
    }
    c->w2 = weights;
    c->b2 = c->w2 + h->n_clusters * specrt__cluster_width(h);
}

/* NULL, or what is wrong with who is in which cluster. A row may be in several. */
static const char *specrt__cluster_check_ids(const specrt_clusters *c) {
    const specrt_clusters_header *h = c->header;
    if (c->offsets[0] != 0 || c->offsets[h->n_clusters] != (uint32_t)h->n_members)
        return "offsets: expected 0 first and n_members last, found others";
    for (int32_t m = 0; m < h->n_clusters; m++) {
        uint32_t begin = c->offsets[m], end = c->offsets[m + 1];
        if (end <= begin || end > (uint32_t)h->n_members)
            return "offsets: expected ascending offsets, found one at or below its predecessor";
        for (uint32_t i = begin; i < end; i++) {
            int32_t id = c->ids[i];
            if (id < 0 || id >= h->n_rows) return "ids: expected ids below n_rows, found another";
            if (i > begin && id <= c->ids[i - 1])
                return "ids: expected ascending ids in a cluster, found others";
        }
    }
    return NULL;
}

static const char *specrt__cluster_check_router(const specrt_clusters *c, size_t n) {
    const specrt_clusters_header *h = c->header;
    for (int32_t i = 0; i < h->n_schedule; i++)
        if (!specrt__cluster_within(c->schedule[i], 1, h->n_clusters))
            return "schedule: expected levels from 1 to n_clusters, found another";
    const uint16_t *end = (const uint16_t *)(const void *)((const uint8_t *)h + n);
    for (const uint16_t *w = (const uint16_t *)(const void *)(c->schedule + h->n_schedule); w < end;
         w++)
        if ((*w & 0x7c00) == 0x7c00) return "weights: expected finite numbers, found others";
    return NULL;
}

SPECRT_API specrt_status specrt_bundle_clusters(const specrt_bundle *bundle, const char *tag,
                                                specrt_clusters *out, specrt_error *err) {
    size_t n;
    specrt_clusters view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    SPECRT__NEED(tag);
    memset(&view, 0, sizeof view);
    view.header = (const specrt_clusters_header *)specrt_bundle_data(bundle, tag, &n);
    if (!view.header) return specrt__bundle_missing(bundle, tag, err);
    const char *wrong = specrt__cluster_check_sizes(view.header, n);
    if (wrong) return specrt__bundle_bad(bundle, tag, wrong, err);
    specrt__cluster_lay_out(&view);
    wrong = specrt__cluster_check_ids(&view);
    if (!wrong) wrong = specrt__cluster_check_router(&view, n);
    if (wrong) return specrt__bundle_bad(bundle, tag, wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}

// >>cluster : src/sources/cluster.c
/* cluster.c */

/* --- sources --- */

static const specrt__source_option specrt__cluster_options[] = {
    {"schedule", "table harmonic flat", 0, 0, 0},
    {"beam", "level per_row", 0, 0, 0},
    {"cap", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"always", NULL, 0, 65536, 256},
};
SPECRT__SOURCE_FITS(specrt__cluster_options, SPECRT__CLUSTER_OPTIONS);

/* Clusters of level t.
 *   size : of level 0; 0: the table's; below 0: a share in % */
static int32_t specrt__cluster_level(const specrt_clusters *c, int32_t size, int32_t shape,
                                     int32_t t) {
    int32_t last = c->header->n_schedule - 1, first = c->schedule[0];
    int64_t n = size > 0 ? size : first;
    if (size < 0) n = ((int64_t)c->header->n_clusters * -size + 50) / 100;
    if (shape == 0) n = c->schedule[t < last ? t : last] * n / first;
    if (shape == 1 && t >= 2) n /= 2 * (t + 1);
    if (n > c->header->n_clusters) n = c->header->n_clusters;
    return n > 1 ? (int32_t)n : 1;
}

static specrt_status specrt__cluster_check_head(const specrt_bundle *bundle, const char *tag,
                                                const specrt_clusters *c, const specrt_head *head,
                                                const specrt_head_desc *embedding,
                                                specrt_error *err) {
    const specrt_clusters_header *h = c->header;
    int32_t n_absent = 0;
    if (h->n_cols != head->desc.n_cols || (!head->row_of && h->n_rows != head->desc.n_rows))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': expected a head [%d, %d], found [%lld, %lld]; "
                                "use the bundle made for this model",
                                bundle->name, tag, (int)h->n_rows, (int)h->n_cols,
                                (long long)head->desc.n_rows, (long long)head->desc.n_cols);
    if (h->router == SPECRT_ROUTER_NONE)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "%s: section '%s': has clusters and no router; run cluster-build "
                                "with --router",
                                bundle->name, tag);
    if (h->n_state != head->desc.n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': the router reads %d columns, the drafter has "
                                "%lld; train it with traces of this drafter",
                                bundle->name, tag, (int)h->n_state, (long long)head->desc.n_cols);
    while (n_absent < h->n_members && specrt__head_row_of(head, c->ids[n_absent]) < 0) n_absent++;
    if (n_absent == h->n_members)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': expected the head to have rows for some of its "
                                "%d tokens, found none",
                                bundle->name, tag, (int)n_absent);
    if (h->n_embed == 0 || (embedding && embedding->n_cols == h->n_embed)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: the router reads an embedding of %d columns, found %lld; "
                            "set specrt_policy_desc.embedding",
                            tag, (int)h->n_embed, embedding ? (long long)embedding->n_cols : 0);
}

/* The most frequent of all, forced ones included, that have rows. @return how many. */
static int32_t specrt__cluster_always(const specrt_bundle *bundle, const specrt_head *head,
                                      int32_t n, int32_t *out) {
    specrt_ranks ranks;
    int32_t n_out = 0;
    if (n == 0 || specrt_bundle_ranks(bundle, &ranks, NULL) != SPECRT_STATUS_OK) return 0;
    for (int32_t i = ranks.header->n_forced; i < ranks.header->n_valid && n_out < n; i++)
        if (specrt__head_row_of(head, ranks.ids[i]) >= 0) out[n_out++] = ranks.ids[i];
    return n_out;
}

static void specrt__cluster_halves(const uint16_t *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = specrt__base_f16(x[i]);
}

/* A layer as a segment of f16 rows. */
static specrt_segment specrt__cluster_layer(const uint16_t *weights, int64_t n_in, int32_t n_out,
                                            const float *bias) {
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.rows = weights;
    s.row_stride = (size_t)n_in * sizeof *weights;
    s.dtype = SPECRT_DTYPE_F16;
    s.bias = bias;
    s.n_rows = n_out;
    return s;
}

/* The row of the head where it lies cluster by cluster already, in a format that products take; -1: it
 * does not. */
static int32_t specrt__cluster_in_place(const specrt_clusters *c, const specrt_head *head) {
    int32_t first = -1, n = 0;
    if (specrt__head_packed_dtype(head) != head->desc.dtype) return -1;
    for (int32_t i = 0; i < c->header->n_members; i++) {
        int32_t row = specrt__head_row_of(head, c->ids[i]);
        if (row < 0) continue;
        if (first < 0) first = row;
        if (row != first + n++) return -1;
    }
    return first;
}

/* The block, empty but for room for n_copies rows. */
SPECRT__INTERNAL specrt__cluster_shared *specrt__cluster_allocate(const specrt_clusters *c,
                                                                  const specrt_head *head,
                                                                  int32_t n_always,
                                                                  int32_t n_copies) {
    const specrt_clusters_header *h = c->header;
    size_t n = (size_t)n_always + (size_t)h->n_members;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    size_t words = 2 * n + (size_t)h->n_clusters * 2 + 1 + (size_t)h->n_hidden;
    uint64_t at_rows = sizeof(specrt__cluster_shared) + 4 * words, bytes;
    if (!specrt__base_mul(stride, (uint64_t)n_copies, &bytes) ||
        !specrt__base_add(bytes, at_rows + 64, &bytes))
        return NULL;
    specrt__cluster_shared *s =
        (specrt__cluster_shared *)specrt__base_alloc(&head->compute.env, bytes);
    if (!s) return NULL;
    specrt__os_advise_huge(s, (size_t)bytes);
    memset(s, 0, sizeof *s);
    uint8_t *at = (uint8_t *)(s + 1);
    s->ids = SPECRT__CARVE(int32_t, &at, n);
    s->starts = SPECRT__CARVE(int32_t, &at, h->n_clusters + 1);
    float *bias = SPECRT__CARVE(float, &at, n), *b1 = SPECRT__CARVE(float, &at, h->n_hidden);
    float *b2 = SPECRT__CARVE(float, &at, h->n_clusters);
    if (head->desc.bias) s->always.bias = bias;
    specrt__cluster_halves(c->b1, h->n_hidden, b1);
    s->w1 = specrt__cluster_layer(c->w1, specrt__cluster_inputs(h), h->n_hidden, b1);
    specrt__cluster_halves(c->b2, h->n_clusters, b2);
    s->w2 = specrt__cluster_layer(c->w2, specrt__cluster_width(h), h->n_clusters, b2);
    s->always.rows = (const void *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->always.row_stride = stride;
    s->always.dtype = specrt__head_packed_dtype(head);
    s->env = head->compute.env;
    s->head = head;
    s->view = *c;
    return s;
}

/* Tokens cluster by cluster, behind those that always come; those without a row are passed over.
 * @return how many. */
static int32_t specrt__cluster_list(specrt__cluster_shared *s, const int32_t *always,
                                    int32_t n_always) {
    const specrt_clusters *c = &s->view;
    int32_t n = n_always;
    if (n > 0) memcpy(s->ids, always, (size_t)n * sizeof *s->ids);
    for (int32_t m = 0; m < c->header->n_clusters; m++) {
        s->starts[m] = n - n_always;
        for (uint32_t i = c->offsets[m]; i < c->offsets[m + 1]; i++)
            if (specrt__head_row_of(s->head, c->ids[i]) >= 0) s->ids[n++] = c->ids[i];
    }
    s->starts[c->header->n_clusters] = n - n_always;
    return n;
}

/* Fills the segments; first: the head's row where the clusters begin, -1: they are copied. */
SPECRT__INTERNAL void specrt__cluster_pack(specrt__cluster_shared *s, const int32_t *always,
                                           int32_t n_always, int32_t first) {
    const specrt_head_desc *head = &s->head->desc;
    int32_t n = specrt__cluster_list(s, always, n_always);
    specrt__pool_packing packing = {s->head,
                                    s->ids,
                                    first < 0 ? n : n_always,
                                    (uint8_t *)(uintptr_t)s->always.rows,
                                    s->always.row_stride,
                                    (float *)(uintptr_t)s->always.bias,
                                    NULL};
    specrt__pool_pack(&packing);
    s->always.ids = s->ids;
    s->always.n_rows = n_always;
    s->rows = s->always;
    if (first >= 0) {
        s->rows.rows = head->rows;
        s->rows.row_stride = head->row_stride;
        s->rows.bias = head->bias;
    }
    int32_t begin = first < 0 ? n_always : first;
    s->rows.rows = (const uint8_t *)s->rows.rows + (size_t)begin * s->rows.row_stride;
    if (s->rows.bias) s->rows.bias += begin;
    s->rows.ids = s->ids + n_always;
}

static int32_t specrt__cluster_size(const specrt__cluster_shared *s, int32_t m) {
    return s->starts[m + 1] - s->starts[m];
}

/* Rows of the n largest clusters: of those above the n-th's size, and that size for the others. */
static int64_t specrt__cluster_largest(const specrt__cluster_shared *s, int32_t n) {
    int32_t low = 0, high = s->view.header->n_members;
    int64_t sum = 0;
    while (low < high) { /* the least size that at most n clusters exceed */
        int32_t size = low + (high - low) / 2, n_above = 0;
        for (int32_t m = 0; m < s->view.header->n_clusters; m++)
            n_above += specrt__cluster_size(s, m) > size;
        if (n_above > n)
            low = size + 1;
        else
            high = size;
    }
    for (int32_t m = 0; m < s->view.header->n_clusters; m++)
        if (specrt__cluster_size(s, m) > low) sum += specrt__cluster_size(s, m), n--;
    return sum + (int64_t)n * low;
}

/* The most rows that n clusters a level come to, filled up to any topk. */
SPECRT__INTERNAL int32_t specrt__cluster_bound(const specrt__cluster_shared *s, int32_t n) {
    int32_t total = s->starts[s->view.header->n_clusters];
    int64_t least = SPECRT_TREE_MAX_TOPK + specrt__cluster_largest(s, 1);
    int64_t sum = s->per_row ? total : specrt__cluster_largest(s, n);
    if (sum < least) sum = least;
    if (sum > total) sum = total;
    if (s->cap > 0 && sum > s->cap) sum = s->cap;
    return (int32_t)sum + s->always.n_rows;
}

static specrt_status specrt__cluster_share(const specrt__source_request *request, const char *tag,
                                           specrt__source_shared *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const specrt_head *head = request->head;
    const specrt_head_desc *embed = request->desc->embedding;
    const int32_t *options = request->options;
    specrt_clusters c;
    specrt_head_desc embedding;
    int32_t n_always = options[SPECRT__CLUSTER_ALWAYS], most = 0;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "%s: needs a bundle with section '%s'; cluster-build builds it",
                                tag, tag);
    SPECRT__TRY(specrt_bundle_clusters(bundle, tag, &c, err));
    SPECRT__TRY(specrt__cluster_check_head(bundle, tag, &c, head, embed, err));
    memset(&embedding, 0, sizeof embedding);
    if (c.header->n_embed > 0)
        SPECRT__TRY(specrt__head_resolve("embedding", embed, &embedding, err));
    if (n_always > head->n_ids) n_always = head->n_ids;
    int32_t first = specrt__cluster_in_place(&c, head);
    specrt__cluster_shared *s = specrt__cluster_allocate(
        &c, head, n_always, n_always + (first < 0 ? c.header->n_members : 0));
    int32_t *always =
        (int32_t *)specrt__base_alloc(&head->compute.env, ((size_t)n_always + 1) * sizeof(int32_t));
    if (!s || !always) {
        specrt__base_free(&head->compute.env, s);
        specrt__base_free(&head->compute.env, always);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory for %d rows", tag,
                                (int)c.header->n_members);
    }
    n_always = specrt__cluster_always(bundle, head, n_always, always);
    specrt__cluster_pack(s, always, n_always, first);
    specrt__base_free(&head->compute.env, always);
    s->embedding = embedding;
    s->per_row = options[SPECRT__CLUSTER_BEAM] != 0;
    s->cap = options[SPECRT__CLUSTER_CAP];
    for (int32_t t = 0; t < SPECRT_TREE_MAX_STEPS; t++) {
        s->levels[t] =
            specrt__cluster_level(&c, request->size, options[SPECRT__CLUSTER_SCHEDULE], t);
        if (s->levels[t] > SPECRT__CLUSTER_MOST) s->levels[t] = SPECRT__CLUSTER_MOST;
        if (s->levels[t] > most) most = s->levels[t];
    }
    out->data = s;
    out->bound = specrt__cluster_bound(s, most);
    out->more = out->bound - s->always.n_rows;
    out->reads_states = true;
    out->reads_input = c.header->router == SPECRT_ROUTER_DYNASPEC;
    return SPECRT_STATUS_OK;
}

/* --- a session's router --- */

SPECRT__INTERNAL void *specrt__cluster_open(void *opaque, const specrt__source_session *with) {
    const specrt__cluster_shared *shared = (const specrt__cluster_shared *)opaque;
    const specrt_clusters_header *h = shared->view.header;
    size_t k = (size_t)with->n_states, m = (size_t)h->n_clusters;
    size_t n_inputs = k * (size_t)specrt__cluster_inputs(h), n_hidden = k * (size_t)h->n_hidden;
    size_t n_scores = k * m, words = n_inputs + n_hidden + n_scores + 2 * m;
    size_t at_floats = sizeof(specrt__cluster) + 2 * m * sizeof(uint64_t);
    specrt__cluster *s = (specrt__cluster *)specrt__base_alloc(with->env, at_floats + 4 * words);
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->env = *with->env;
    s->shared = shared;
    uint8_t *at = (uint8_t *)(s + 1);
    s->heap = SPECRT__CARVE(uint64_t, &at, m);
    s->takers = SPECRT__CARVE(uint64_t, &at, m);
    s->inputs = SPECRT__CARVE(float, &at, n_inputs);
    s->hidden = SPECRT__CARVE(float, &at, n_hidden);
    s->scores = SPECRT__CARVE(float, &at, n_scores);
    s->totals = SPECRT__CARVE(float, &at, m);
    s->taken = SPECRT__CARVE(int32_t, &at, m);
    return s;
}

/* x / root mean square, in place; zeros stay. */
static void specrt__cluster_rms(float *x, int64_t n) {
    double square = 0;
    for (int64_t j = 0; j < n; j++) square += (double)x[j] * (double)x[j];
    float scale = square > 0 ? (float)(1 / sqrt(square / (double)n)) : 0;
    for (int64_t j = 0; j < n; j++) x[j] *= scale;
}

/* What the router reads at a level; a hidden state that was not told is 0. */
static void specrt__cluster_read(specrt__cluster *s, const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    const specrt_head_desc *embedding = &s->shared->embedding;
    bool before = h->router == SPECRT_ROUTER_DYNASPEC;
    const float *states = before ? level->draft_input : level->draft_hidden;
    size_t width = (size_t)h->n_state;
    float *x = s->inputs;
    for (int32_t i = 0; i < level->n; i++) {
        if (h->n_embed > 0) {
            bool is = level->tokens[i] >= 0 && level->tokens[i] < embedding->n_rows;
            const uint8_t *row = (const uint8_t *)embedding->rows +
                                 (is ? (size_t)level->tokens[i] * embedding->row_stride : 0);
            specrt_row_decode(embedding->dtype, row, embedding->n_cols, x);
            specrt__cluster_rms(x, h->n_embed);
            x += h->n_embed;
        }
        if (states)
            memcpy(x, states + (size_t)i * width, width * sizeof *x);
        else
            memset(x, 0, width * sizeof *x);
        if (h->router != SPECRT_ROUTER_CENTROID) specrt__cluster_rms(x, h->n_state);
        x += width;
    }
}

/* out f32 [n, rows of the layer] = layer times x f32 [n, n_in] */
static void specrt__cluster_multiply(const specrt_compute *compute, const specrt_segment *layer,
                                     int64_t n_in, const float *x, int32_t n, float *out) {
    specrt_shortlist product = {compute, layer, 1, layer->n_rows, n_in, NULL};
    specrt_shortlist_logits(&product, x, n, out);
}

/* Scores of all clusters for every row of the level. */
SPECRT__INTERNAL void specrt__cluster_forward(specrt__cluster *s, const specrt_compute *compute,
                                              const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    const float *x = s->inputs;
    specrt__cluster_read(s, level);
    if (h->n_hidden > 0) {
        int64_t n = (int64_t)level->n * h->n_hidden;
        specrt__cluster_multiply(compute, &s->shared->w1, specrt__cluster_inputs(h), x, level->n,
                                 s->hidden);
        for (int64_t i = 0; i < n; i++) {
            s->hidden[i] /= 1 + expf(-s->hidden[i]);
            if (h->router == SPECRT_ROUTER_CORAL) s->hidden[i] += x[i];
        }
        x = s->hidden;
    }
    specrt__cluster_multiply(compute, &s->shared->w2, specrt__cluster_width(h), x, level->n,
                             s->scores);
}

/* One row's scores to probabilities, times that of its path. */
static void specrt__cluster_weigh(float *scores, int32_t n, bool softmax, float path) {
    double sum = 0;
    float most = -INFINITY;
    for (int32_t m = 0; m < n && softmax; m++) most = scores[m] > most ? scores[m] : most;
    for (int32_t m = 0; m < n; m++) {
        scores[m] = softmax ? expf(scores[m] - most) : 1 / (1 + expf(-scores[m]));
        sum += softmax ? (double)scores[m] : 0;
    }
    float scale = softmax ? (float)(path / sum) : path;
    for (int32_t m = 0; m < n; m++) scores[m] *= scale;
}

/* --- the choice --- */

static void specrt__cluster_sift(uint64_t *heap, int32_t n, int32_t i) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[i] >= heap[child]) return;
        uint64_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

/* A cluster into the level, cut short by the cap; not at all where no more fit. */
static void specrt__cluster_admit(specrt__cluster *s, int32_t m, specrt__cluster_choice *choice) {
    int32_t size = specrt__cluster_size(s->shared, m), cap = s->shared->cap;
    int32_t others = s->taken[m]; /* rows of it that another position or row takes */
    if ((others > 0 && !choice->each) || choice->n == SPECRT__CLUSTER_MOST) return;
    if (cap > 0 && size > cap - choice->n_rows) size = cap - choice->n_rows;
    s->taken[m] = size > others ? size : others;
    choice->n_rows += size;
    choice->n += size > 0 && others == 0;
}

/* Takes the `n` best clusters by probability, ties to the lower, then more while they hold fewer rows
 * than a level proposes.
 *   taker : bit of the row that they are for; 0: for all */
static void specrt__cluster_take(specrt__cluster *s, const float *probs, int32_t n, uint64_t taker,
                                 specrt__cluster_choice *choice) {
    int32_t n_heap = s->shared->view.header->n_clusters, n_rows = 0;
    for (int32_t m = 0; m < n_heap; m++)
        s->heap[m] = (uint64_t)specrt__base_bits(probs[m] > 0 ? probs[m] : 0) << 32 | (uint32_t)~m;
    for (int32_t i = n_heap / 2 - 1; i >= 0; i--) specrt__cluster_sift(s->heap, n_heap, i);
    for (; n_heap > 0 && (n > 0 || n_rows < SPECRT_TREE_MAX_TOPK); n--) {
        int32_t m = (int32_t) ~(uint32_t)s->heap[0];
        s->heap[0] = s->heap[--n_heap];
        specrt__cluster_sift(s->heap, n_heap, 0);
        specrt__cluster_admit(s, m, choice);
        s->takers[m] |= taker;
        n_rows += s->taken[m];
    }
}

/* Adds rows [begin, end) of the stored head. */
static void specrt__cluster_add(const specrt__cluster_shared *shared, int32_t begin, int32_t end,
                                uint64_t takers, specrt__source_routed *out) {
    specrt_segment s = shared->rows;
    s.rows = (const uint8_t *)s.rows + (size_t)begin * s.row_stride;
    s.ids += begin;
    if (s.bias) s.bias += begin;
    s.n_rows = end - begin;
    s.scored_by = takers;
    specrt__source_route(out, &s);
}

/* What always comes and what was taken, clusters side by side for the same rows as one range. */
static void specrt__cluster_add_taken(const specrt__cluster *s, specrt__source_routed *out) {
    const specrt__cluster_shared *shared = s->shared;
    int32_t begin = 0, end = 0;
    uint64_t takers = 0;
    specrt__source_route(out, &shared->always);
    for (int32_t m = 0; m < shared->view.header->n_clusters; m++) {
        if (s->taken[m] == 0) continue;
        if (shared->starts[m] != end || s->takers[m] != takers) {
            specrt__cluster_add(shared, begin, end, takers, out);
            begin = shared->starts[m];
            takers = s->takers[m];
        }
        end = shared->starts[m] + s->taken[m];
    }
    specrt__cluster_add(shared, begin, end, takers, out);
}

/* Which clusters a level takes, and for which of its rows. A block takes for each position what that one
 * would take alone. */
static void specrt__cluster_decide(specrt__cluster *s, const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    int32_t n = s->shared->levels[level->level];
    specrt__cluster_choice choice = {0, 0, level->each};
    specrt__cluster_forward(s, &s->shared->head->compute, level);
    memset(s->taken, 0, (size_t)h->n_clusters * sizeof *s->taken);
    memset(s->takers, 0, (size_t)h->n_clusters * sizeof *s->takers);
    memset(s->totals, 0, (size_t)h->n_clusters * sizeof *s->totals);
    for (int32_t i = 0; i < level->n; i++) {
        float *scores = s->scores + (size_t)i * (size_t)h->n_clusters;
        specrt__cluster_weigh(scores, h->n_clusters, h->softmax != 0, expf(level->logprobs[i]));
        if (level->each) {
            choice.n_rows = 0;
            specrt__cluster_take(s, scores, s->shared->levels[i], 0, &choice);
        } else if (s->shared->per_row)
            specrt__cluster_take(s, scores, n, 1ull << i, &choice);
        for (int32_t m = 0; m < h->n_clusters; m++) s->totals[m] += scores[m];
    }
    if (!s->shared->per_row && !level->each) specrt__cluster_take(s, s->totals, n, 0, &choice);
}

static void specrt__cluster_route(void *state, const specrt__source_level *level,
                                  specrt__source_routed *out) {
    specrt__cluster *s = (specrt__cluster *)state;
    specrt__cluster_decide(s, level);
    specrt__cluster_add_taken(s, out);
    out->n_read += (int64_t)(s->shared->w1.row_stride * (size_t)s->shared->w1.n_rows +
                             s->shared->w2.row_stride * (size_t)s->shared->w2.n_rows);
}

static specrt_status specrt__cluster_share_clusters(const specrt__source_request *request,
                                                    specrt__source_shared *out, specrt_error *err) {
    return specrt__cluster_share(request, "cluster", out, err);
}

static specrt_status specrt__cluster_share_groups(const specrt__source_request *request,
                                                  specrt__source_shared *out, specrt_error *err) {
    return specrt__cluster_share(request, "group", out, err);
}

static specrt_status specrt__cluster_share_centroids(const specrt__source_request *request,
                                                     specrt__source_shared *out,
                                                     specrt_error *err) {
    return specrt__cluster_share(request, "centroid", out, err);
}

SPECRT__INTERNAL const specrt__source specrt__cluster_source = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_clusters,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
SPECRT__INTERNAL const specrt__source specrt__cluster_groups = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_groups,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
SPECRT__INTERNAL const specrt__source specrt__cluster_centroids = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_centroids,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};

// >>successor : src/sources/successor.h
/* successor.h : tokens that follow those of a level */

typedef struct specrt__successor_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_cograph graph;
    int32_t size;
} specrt__successor_shared;

typedef struct specrt__successor {
    specrt_env env;
    const specrt__successor_shared *shared;
    float *scores;   /* [n_ids] of tokens found, else 0 */
    uint64_t *keys;  /* [max_found] */
    int32_t *ids;    /* [n_block, size] */
    int32_t *places; /* [n_block, size] their rows in the head */
    uint8_t *rows;   /* [n_block, size] decoded; NULL where the head is computed as stored */
    float *bias;     /* [n_block, size] of decoded rows, or NULL */
    size_t row_stride;
    int32_t n_used; /* of these places by the shortlist at hand */
} specrt__successor;

SPECRT__INTERNAL void *specrt__successor_open(void *opaque, const specrt__source_session *with);

static inline void specrt__successor_close(void *state) {
    specrt__successor *s = (specrt__successor *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

// >>successor : src/sources/successor.c
/* successor.c : owns the successor source (docs/methods/successor.md): at every level, the
 * tokens that likeliest follow those being extended, scored where they lie in the head, by an indexed
 * product. Refuses graphs of a larger vocabulary than the head's. Tokens that are members anyway take
 * no place. */

static specrt_status specrt__successor_share(const specrt__source_request *request,
                                             specrt__source_shared *out, specrt_error *err) {
    const specrt_head *head = request->head;
    specrt_cograph graph;
    if (!request->bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "successor: needs a bundle with section 'cograph'; "
                                "cograph-build builds it");
    SPECRT__TRY(specrt_bundle_cograph(request->bundle, &graph, err));
    if (!head->row_of && graph.header->n_vocab > head->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "successor: the graph has %d tokens, the head %lld rows; "
                                "use the bundle made for this model",
                                (int)graph.header->n_vocab, (long long)head->desc.n_rows);
    specrt__successor_shared *s =
        (specrt__successor_shared *)specrt__base_alloc(&head->compute.env, sizeof *s);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    s->env = head->compute.env;
    s->head = head;
    s->graph = graph;
    s->size = request->size < graph.header->n_vocab ? request->size : graph.header->n_vocab;
    out->data = s;
    out->bound = out->more = s->size;
    out->reads_tokens = true;
    return SPECRT_STATUS_OK;
}

static void specrt__successor_unshare(void *shared) {
    specrt__successor_shared *s = (specrt__successor_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

SPECRT__INTERNAL void *specrt__successor_open(void *opaque, const specrt__source_session *with) {
    const specrt__successor_shared *shared = (const specrt__successor_shared *)opaque;
    const specrt_head *head = shared->head;
    bool decodes = specrt__head_packed_dtype(head) != head->desc.dtype;
    size_t n_ids = (size_t)head->n_ids, size = (size_t)shared->size;
    size_t n_places = size * (size_t)with->n_block;
    size_t n_found = (size_t)shared->graph.header->max_degree;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    if (n_found > size) n_found = size; /* a token adds no more */
    n_found *= (size_t)with->n_states;
    if (n_found > n_ids) n_found = n_ids;
    size_t words = 2 * n_found + n_ids + 3 * n_places;
    size_t at_rows = (size_t)specrt__base_align(sizeof(specrt__successor) + 4 * words, 64);
    uint64_t bytes = 0;
    if (decodes && !specrt__base_mul(stride, n_places, &bytes)) return NULL;
    if (!specrt__base_add(bytes, at_rows + 64, &bytes)) return NULL;
    specrt__successor *s = (specrt__successor *)specrt__base_alloc(with->env, bytes);
    if (!s) return NULL;
    memset(s, 0, at_rows);
    s->env = *with->env;
    s->shared = shared;
    uint8_t *at = (uint8_t *)(s + 1);
    s->keys = SPECRT__CARVE(uint64_t, &at, n_found);
    s->scores = SPECRT__CARVE(float, &at, n_ids);
    s->ids = SPECRT__CARVE(int32_t, &at, n_places);
    s->places = SPECRT__CARVE(int32_t, &at, n_places);
    if (head->desc.bias) s->bias = SPECRT__CARVE(float, &at, n_places);
    if (decodes) s->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->row_stride = stride;
    return s;
}

/* The first `size` new successors of one token, which are in order. @return how many. */
static int32_t specrt__successor_chain(const specrt__successor *s, int32_t token,
                                       const specrt__source_routed *out, int32_t *found) {
    const int32_t *ids;
    const float *counts;
    int32_t n = specrt_cograph_successors(&s->shared->graph, token, &ids, &counts), n_ids = 0;
    for (int32_t i = 0; i < n && n_ids < s->shared->size; i++) {
        if (!specrt__source_is_new(out, ids[i]) || s->scores[ids[i]] > 0) continue;
        s->scores[ids[i]] = 1;
        found[n_ids++] = ids[i];
    }
    for (int32_t i = 0; i < n_ids; i++) s->scores[found[i]] = 0;
    return n_ids;
}

/* Adds the new successors of a token on a path of this probability to what was found. Half a pair is
 * taken off each count: what followed a rare token once need not do so again. */
static int32_t specrt__successor_add(specrt__successor *s, int32_t token, float weight,
                                     const specrt__source_routed *out, int32_t n_found) {
    const int32_t *ids;
    const float *counts;
    int32_t n = specrt_cograph_successors(&s->shared->graph, token, &ids, &counts), n_new = 0;
    if (n == 0) return n_found;
    float scale = weight / (float)s->shared->graph.totals[token];
    for (int32_t i = 0; i < n && n_new < s->shared->size; i++) {
        float score = scale * (counts[i] - 0.5f);
        if (!specrt__source_is_new(out, ids[i])) continue;
        if (!(score > FLT_MIN)) score = FLT_MIN;
        n_new++;
        if (!(s->scores[ids[i]] > 0)) s->keys[n_found++] = (uint32_t)ids[i];
        s->scores[ids[i]] += score;
    }
    return n_found;
}

/* The best `size` over all tokens of the level. @return how many. */
static int32_t specrt__successor_union(specrt__successor *s, const specrt__source_level *level,
                                       const specrt__source_routed *out, int32_t *found) {
    int32_t n_found = 0, size = s->shared->size;
    for (int32_t i = 0; i < level->n; i++)
        n_found = specrt__successor_add(
            s, level->tokens[i], expf(level->logprobs[i] - level->logprobs[0]), out, n_found);
    for (int32_t i = 0; i < n_found; i++) {
        int32_t id = (int32_t)s->keys[i];
        s->keys[i] = (uint64_t)specrt__base_bits(s->scores[id]) << 32 | (uint32_t)~id;
        s->scores[id] = 0;
    }
    if (n_found > size) specrt__shortlist_select(s->keys, n_found, size);
    if (n_found > size) n_found = size;
    for (int32_t i = 0; i < n_found; i++) found[i] = (int32_t) ~(uint32_t)s->keys[i];
    return n_found;
}

static void specrt__successor_route(void *state, const specrt__source_level *level,
                                    specrt__source_routed *out) {
    specrt__successor *s = (specrt__successor *)state;
    size_t at = (size_t)(level->again ? s->n_used : 0);
    int32_t *ids = s->ids + at;
    int32_t n = level->n == 1 || level->each
                    ? specrt__successor_chain(s, level->tokens[0], out, ids)
                    : specrt__successor_union(s, level, out, ids);
    specrt__pool_packing found = {s->shared->head,
                                  ids,
                                  n,
                                  s->rows ? s->rows + at * s->row_stride : NULL,
                                  s->row_stride,
                                  s->bias ? s->bias + at : NULL,
                                  NULL};
    specrt_segment segment = specrt__pool_gather(&found, s->places + at);
    specrt__source_route(out, &segment);
    s->n_used = (int32_t)at + n;
}

SPECRT__INTERNAL const specrt__source specrt__successor_source = {
    SPECRT__SOURCE_HAS_NO_OPTIONS,
    /* share = */ specrt__successor_share,
    /* unshare = */ specrt__successor_unshare,
    /* open = */ specrt__successor_open,
    /* close = */ specrt__successor_close,
    /* route = */ specrt__successor_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};

// >>scan : src/sources/scan.h
/* scan.h : owns products of a head's low-bit copies with a few hidden states in 8 bits: signs of all rows,
 * sixteen rows side by side, and pairs of bits of single rows. Sums are whole numbers, so that every
 * instruction set finds the same. Refuses nothing; its callers checked. */

enum {
    SPECRT__SCAN_STATES = 5,  /* of a query: each sign is loaded once for all */
    SPECRT__SCAN_BLOCKS = 32, /* the most a call covers */
    SPECRT__SCAN_MOST = 16 * SPECRT__SCAN_BLOCKS,
    SPECRT__SCAN_AHEAD = 8 /* records from one to that to be fetched */
};

/* --- signs --- */

/* Signs of rows in blocks of 16 places. A line of 64 bytes holds 32 dimensions: four of each place in the
 * lowest bits of its four bytes, the next four above them, and so on; 1 stands for +1, 0 for -1. */
typedef struct specrt__scan_signs {
    const uint8_t *codes; /* a block every `stride` bytes, of which the first 64 * n_lines count */
    size_t stride;
    int32_t n_lines;
    const uint8_t *scales;   /* [n_blocks, 16] specrt__scan_scale() */
    const int8_t *constants; /* [n_blocks, 16] in constant_unit, added to scores */
    float constant_unit;
} specrt__scan_signs;

/* Hidden states as they are scanned with, one or SPECRT__SCAN_STATES: z is about unit * q. */
typedef struct specrt__scan_query {
    int8_t *q; /* [8 * n_lines, n_states, 4]: four dimensions of each state, then the next */
    int32_t n_states;
    float unit[SPECRT__SCAN_STATES];
    int32_t offset[SPECRT__SCAN_STATES]; /* the sum of q */
    /* scores from here on are of interest, and what is no number */
    float least[SPECRT__SCAN_STATES];
} specrt__scan_query;

/* What is of interest to a state, by place; a vector's width of it may be overwritten at a time. */
typedef struct specrt__scan_hits {
    int32_t n, places[SPECRT__SCAN_MOST + 16];
    float scores[SPECRT__SCAN_MOST + 16];
} specrt__scan_hits;

/* Where dimension k of a state lies. */
static inline int8_t *specrt__scan_at(const specrt__scan_query *query, int state, int32_t k) {
    return query->q + ((size_t)(k / 4) * (size_t)query->n_states + (size_t)state) * 4 + k % 4;
}

/* A scale of 5 bits of exponent and 3 of a fraction: from 2^-31 to 1.875. */
enum { SPECRT__SCAN_EXPONENT = 96 << 23 };
static inline float specrt__scan_scale(uint8_t scale) {
    return specrt__base_float(((uint32_t)scale << 20) + (uint32_t)SPECRT__SCAN_EXPONENT);
}

/* Bit i of `hit` stands for place + i. */
static inline void specrt__scan_keep(specrt__scan_hits *hits, int32_t place, int hit,
                                     const float *scores) {
    for (int i = 0; hit; i++, hit >>= 1) {
        if (!(hit & 1)) continue;
        hits->places[hits->n] = place + i;
        hits->scores[hits->n++] = scores[i];
    }
}

/* --- pairs of bits --- */

/* A row's record is n_lines lines of 64 bytes, each four planes of a pair of bits: byte j holds dimensions
 * 256 line + 64 plane + j. A pair c stands for 2 c - 3. The last four bytes hold no dimensions but two bf16
 * numbers, the row's scale and its constant. */
typedef struct specrt__scan_records {
    const uint8_t *bytes; /* [n_places, n_lines, 64] */
    int32_t n_lines;
} specrt__scan_records;

/* Dimensions of a record. */
static inline int32_t specrt__scan_record_rank(int32_t n_lines) {
    return 256 * n_lines - 16;
}

/* Where dimension k of a state lies among [n_lines, 4, 64], in which a record's last four bytes meet zeros.
 * */
static inline int32_t specrt__scan_record_at(int32_t n_lines, int32_t k) {
    int32_t line = k / 256, width = line == n_lines - 1 ? 60 : 64, in_line = k - 256 * line;
    return 256 * line + in_line / width * 64 + in_line % width;
}

/* --- kernels --- */

typedef struct specrt__scan_kernels {
    /* Adds to the hits [n_states] those in blocks [first, first + n_blocks). */
    void (*signs)(const specrt__scan_signs *rows, int32_t first, int32_t n_blocks,
                  const specrt__scan_query *query, specrt__scan_hits *hits);
    /* sums [n] of codes times q, i8 [n_lines, 4, 64], of the records at these places. */
    void (*pairs)(const specrt__scan_records *records, const int32_t *places, int32_t n,
                  const int8_t *q, int32_t *sums);
} specrt__scan_kernels;

/* The fastest of this machine. */
SPECRT__INTERNAL const specrt__scan_kernels *specrt__scan_choose(void);

#if defined(SPECRT__SIMD_X86)
#elif defined(SPECRT__SIMD_ARM64)
#endif

// >>scan_x86 : src/sources/scan_x86.c
/* scan_x86.c : scans with AVX2 and with AVX-512 VNNI. */

#if defined(SPECRT__SIMD_X86)

#define SPECRT__SCAN_AVX2 __attribute__((target("avx2,fma")))
#define SPECRT__SCAN_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma")))

static inline int32_t specrt__scan_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return four;
}

/* --- AVX2 --- */

/* Sums of 8 places by one state. Eight products of a line fit 16 bits. */
SPECRT__SCAN_AVX2 static inline __m256i specrt__scan_dot_avx2(const uint8_t *codes, int32_t n_lines,
                                                              const int8_t *q, int32_t n_states) {
    __m256i sum = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    for (int32_t line = 0; line < n_lines; line++, codes += 64) {
        __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)codes);
        __m256i part = _mm256_setzero_si256();
        for (int bit = 0; bit < 8; bit++, q += 4 * n_states) {
            __m256i z = _mm256_set1_epi32(specrt__scan_four(q));
            __m256i code = _mm256_and_si256(_mm256_srli_epi16(all, bit), one);
            part = _mm256_add_epi16(part, _mm256_maddubs_epi16(code, z));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
    }
    return sum;
}

SPECRT__SCAN_AVX2 static void specrt__scan_signs_avx2(const specrt__scan_signs *rows, int32_t first,
                                                      int32_t n_blocks,
                                                      const specrt__scan_query *query,
                                                      specrt__scan_hits *hits) {
    for (int32_t half = 2 * first; half < 2 * (first + n_blocks); half++) {
        const uint8_t *codes = rows->codes + (size_t)(half / 2) * rows->stride + half % 2 * 32;
        const void *scales = rows->scales + 8 * (size_t)half;
        const void *constants = rows->constants + 8 * (size_t)half;
        __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)scales));
        __m256 scale = _mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_slli_epi32(bits, 20), _mm256_set1_epi32(SPECRT__SCAN_EXPONENT)));
        __m256i steps = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)constants));
        __m256 constant =
            _mm256_mul_ps(_mm256_set1_ps(rows->constant_unit), _mm256_cvtepi32_ps(steps));
        for (int s = 0; s < query->n_states; s++) {
            float scores[8];
            __m256i dot =
                specrt__scan_dot_avx2(codes, rows->n_lines, query->q + 4 * s, query->n_states);
            dot = _mm256_sub_epi32(_mm256_slli_epi32(dot, 1), _mm256_set1_epi32(query->offset[s]));
            __m256 x =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                                _mm256_mul_ps(_mm256_set1_ps(query->unit[s]), scale), constant);
            int hit =
                _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(query->least[s]), _CMP_NLT_UQ));
            if (!hit) continue;
            _mm256_storeu_ps(scores, x);
            specrt__scan_keep(&hits[s], 8 * half, hit, scores);
        }
    }
}

/* Half a line of a record times a state. Four products of pairs fit 16 bits. */
SPECRT__SCAN_AVX2 static inline __m256i specrt__scan_half_avx2(const uint8_t *codes,
                                                               const int8_t *q) {
    __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    __m256i sum = _mm256_setzero_si256(), mask = _mm256_set1_epi8(3);
    for (int plane = 0; plane < 4; plane++, q += 64) {
        __m256i code = _mm256_and_si256(_mm256_srli_epi16(all, 2 * plane), mask);
        __m256i z = _mm256_loadu_si256((const __m256i *)(const void *)q);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, z));
    }
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

SPECRT__SCAN_AVX2 static void specrt__scan_pairs_avx2(const specrt__scan_records *records,
                                                      const int32_t *places, int32_t n,
                                                      const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        __m256i sum = _mm256_setzero_si256();
        for (size_t j = 0; j < bytes; j += 64) {
            SPECRT__SIMD_PREFETCH(next + j);
            sum = _mm256_add_epi32(sum, specrt__scan_half_avx2(record + j, q + 4 * j));
            sum = _mm256_add_epi32(sum, specrt__scan_half_avx2(record + j + 32, q + 4 * j + 32));
        }
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        sums[i] = _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_avx2 = {
    /* signs = */ specrt__scan_signs_avx2,
    /* pairs = */ specrt__scan_pairs_avx2,
};

/* --- AVX-512 VNNI --- */

SPECRT__SIMD_UNASKED

/* Adds products of fours; with the intrinsic, gcc 12 moves the sums about and spills them. */
#if defined(__GNUC__)
#define SPECRT__SCAN_DOT(sums, codes, z)                                                           \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(z))
#else
#define SPECRT__SCAN_DOT(sums, codes, z) ((sums) = _mm512_dpbusd_epi32(sums, codes, z))
#endif

/* Blocks that one state is scanned with side by side, so that products need not wait for each other. */
enum { SPECRT__SCAN_TILE = 4 };

/* A line for n_states, a constant. Signs stay where their bits are, so that sum i counts 2^i times; the upper
 * halves come down first. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_line_vnni(__m512i line, const int8_t *q, int n_states, __m512i (*sums)[4]) {
    SPECRT__SIMD_UNROLL
    for (int bit = 0; bit < 8; bit++) {
        if (bit == 4) line = _mm512_srli_epi16(line, 4);
        __m512i code = _mm512_and_si512(line, _mm512_set1_epi8((char)(1 << bit % 4)));
        SPECRT__SIMD_UNROLL
        for (int s = 0; s < n_states; s++)
            SPECRT__SCAN_DOT(sums[s][bit % 4], code,
                             _mm512_set1_epi32(specrt__scan_four(q + 4 * (bit * n_states + s))));
    }
}

/* Sums that count 2^i times, which divides them, as one. */
SPECRT__SCAN_VNNI static inline __m512i specrt__scan_unite_vnni(const __m512i *sums) {
    __m512i low = _mm512_add_epi32(sums[0], _mm512_srai_epi32(sums[1], 1));
    return _mm512_add_epi32(
        low, _mm512_add_epi32(_mm512_srai_epi32(sums[2], 2), _mm512_srai_epi32(sums[3], 3)));
}

/* Keeps what is of interest to state s in a block. */
SPECRT__SCAN_VNNI static inline void specrt__scan_keep_vnni(const specrt__scan_signs *rows,
                                                            int32_t block,
                                                            const specrt__scan_query *query, int s,
                                                            __m512i dot, specrt__scan_hits *hits) {
    const void *scales = rows->scales + 16 * (size_t)block;
    const void *constants = rows->constants + 16 * (size_t)block;
    __m512i bits = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)scales));
    __m512 scale = _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(bits, 20), _mm512_set1_epi32(SPECRT__SCAN_EXPONENT)));
    __m512i steps = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)constants));
    __m512 constant = _mm512_mul_ps(_mm512_set1_ps(rows->constant_unit), _mm512_cvtepi32_ps(steps));
    dot = _mm512_sub_epi32(_mm512_slli_epi32(dot, 1), _mm512_set1_epi32(query->offset[s]));
    __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                               _mm512_mul_ps(_mm512_set1_ps(query->unit[s]), scale), constant);
    __mmask16 hit = _mm512_cmp_ps_mask(x, _mm512_set1_ps(query->least[s]), _CMP_NLT_UQ);
    if (!hit) return;
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i places = _mm512_add_epi32(_mm512_set1_epi32(16 * block), lanes);
    _mm512_storeu_si512(hits->places + hits->n, _mm512_maskz_compress_epi32(hit, places));
    _mm512_storeu_ps(hits->scores + hits->n, _mm512_maskz_compress_ps(hit, x));
    hits->n += __builtin_popcount(hit);
}

/* n_blocks for n_states; one of both is 1, and both are constants. */
SPECRT__SCAN_VNNI static inline __attribute__((always_inline)) void
specrt__scan_tile_vnni(const specrt__scan_signs *rows, int32_t block, int n_blocks,
                       const specrt__scan_query *query, int n_states, specrt__scan_hits *hits) {
    __m512i sums[SPECRT__SCAN_STATES][4];
    const uint8_t *codes = rows->codes + (size_t)block * rows->stride;
    const int8_t *q = query->q;
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < n_states * n_blocks; s++) {
        SPECRT__SIMD_UNROLL
        for (int i = 0; i < 4; i++) sums[s][i] = _mm512_setzero_si512();
    }
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64, q += 32 * n_states) {
        SPECRT__SIMD_UNROLL
        for (int b = 0; b < n_blocks; b++)
            specrt__scan_line_vnni(_mm512_loadu_si512(codes + (size_t)b * rows->stride), q,
                                   n_states, &sums[b]);
    }
    SPECRT__SIMD_UNROLL
    for (int s = 0; s < n_states * n_blocks; s++)
        specrt__scan_keep_vnni(rows, block + s / n_states, query, s % n_states,
                               specrt__scan_unite_vnni(sums[s]), &hits[s % n_states]);
}

SPECRT__SCAN_VNNI static void specrt__scan_signs_vnni(const specrt__scan_signs *rows, int32_t first,
                                                      int32_t n_blocks,
                                                      const specrt__scan_query *query,
                                                      specrt__scan_hits *hits) {
    int32_t b = first, end = first + n_blocks;
    if (query->n_states > 1)
        for (; b < end; b++) specrt__scan_tile_vnni(rows, b, 1, query, SPECRT__SCAN_STATES, hits);
    for (; b + SPECRT__SCAN_TILE <= end; b += SPECRT__SCAN_TILE)
        specrt__scan_tile_vnni(rows, b, SPECRT__SCAN_TILE, query, 1, hits);
    for (; b < end; b++) specrt__scan_tile_vnni(rows, b, 1, query, 1, hits);
}

SPECRT__SCAN_VNNI static void specrt__scan_pairs_vnni(const specrt__scan_records *records,
                                                      const int32_t *places, int32_t n,
                                                      const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        __m512i sum = _mm512_setzero_si512();
        for (size_t j = 0; j < bytes; j += 64) {
            __m512i all = _mm512_loadu_si512(record + j), mask = _mm512_set1_epi8(3);
            SPECRT__SIMD_PREFETCH(next + j);
            SPECRT__SIMD_UNROLL
            for (size_t plane = 0; plane < 4; plane++, all = _mm512_srli_epi16(all, 2))
                SPECRT__SCAN_DOT(sum, _mm512_and_si512(all, mask),
                                 _mm512_loadu_si512(q + 4 * j + 64 * plane));
        }
        sums[i] = _mm512_reduce_add_epi32(sum);
    }
}

SPECRT__SIMD_ASKED

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_vnni = {
    /* signs = */ specrt__scan_signs_vnni,
    /* pairs = */ specrt__scan_pairs_vnni,
};

#endif

// >>scan_arm64 : src/sources/scan_arm64.c
/* scan_arm64.c : scans with NEON. */

#if defined(SPECRT__SIMD_ARM64)

/* Sums of 4 places by one state. Eight products of a line fit 16 bits. */
static inline int32x4_t specrt__scan_dot_neon(const specrt__scan_signs *rows, const uint8_t *codes,
                                              const int8_t *q, int32_t n_states) {
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (int32_t line = 0; line < rows->n_lines; line++, codes += 64) {
        uint8x16_t all = vld1q_u8(codes);
        int16x8_t a = vdupq_n_s16(0), b = a;
        for (int bit = 0; bit < 8; bit++, q += 4 * n_states) {
            uint32_t four;
            memcpy(&four, q, sizeof four);
            int8x8_t z = vreinterpret_s8_u32(vdup_n_u32(four));
            uint8x16_t code = vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)-bit)), vdupq_n_u8(1));
            a = vmlal_s8(a, vget_low_s8(vreinterpretq_s8_u8(code)), z);
            b = vmlal_s8(b, vget_high_s8(vreinterpretq_s8_u8(code)), z);
        }
        low = vpadalq_s16(low, a);
        high = vpadalq_s16(high, b);
    }
    return vpaddq_s32(low, high);
}

static void specrt__scan_signs_neon(const specrt__scan_signs *rows, int32_t first, int32_t n_blocks,
                                    const specrt__scan_query *query, specrt__scan_hits *hits) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    for (int32_t part = 4 * first; part < 4 * (first + n_blocks); part++) {
        const uint8_t *codes = rows->codes + (size_t)(part / 4) * rows->stride + part % 4 * 16;
        float scales[4], constants[4], scores[4];
        for (int i = 0; i < 4; i++) {
            scales[i] = specrt__scan_scale(rows->scales[4 * part + i]);
            constants[i] = rows->constant_unit * (float)rows->constants[4 * part + i];
        }
        for (int s = 0; s < query->n_states; s++) {
            int32x4_t dot = specrt__scan_dot_neon(rows, codes, query->q + 4 * s, query->n_states);
            dot = vsubq_s32(vshlq_n_s32(dot, 1), vdupq_n_s32(query->offset[s]));
            float32x4_t x = vfmaq_f32(vld1q_f32(constants), vcvtq_f32_s32(dot),
                                      vmulq_n_f32(vld1q_f32(scales), query->unit[s]));
            uint32x4_t is = vmvnq_u32(vcltq_f32(x, vdupq_n_f32(query->least[s])));
            int hit = (int)vaddvq_u32(vandq_u32(is, vld1q_u32(bits)));
            if (!hit) continue;
            vst1q_f32(scores, x);
            specrt__scan_keep(&hits[s], 4 * part, hit, scores);
        }
    }
}

/* A quarter of a line of a record times a state. Four products of pairs fit 16 bits. */
static inline int32x4_t specrt__scan_quarter_neon(const uint8_t *codes, const int8_t *q) {
    uint8x16_t all = vld1q_u8(codes);
    int16x8_t a = vdupq_n_s16(0), b = a;
    for (int plane = 0; plane < 4; plane++, q += 64) {
        uint8x16_t code = vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)(-2 * plane))), vdupq_n_u8(3));
        int8x16_t x = vreinterpretq_s8_u8(code), z = vld1q_s8(q);
        a = vmlal_s8(a, vget_low_s8(x), vget_low_s8(z));
        b = vmlal_s8(b, vget_high_s8(x), vget_high_s8(z));
    }
    return vpadalq_s16(vpaddlq_s16(a), b);
}

static void specrt__scan_pairs_neon(const specrt__scan_records *records, const int32_t *places,
                                    int32_t n, const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        int32_t ahead = i + SPECRT__SCAN_AHEAD < n ? i + SPECRT__SCAN_AHEAD : i;
        const uint8_t *next = records->bytes + (size_t)places[ahead] * bytes;
        int32x4_t sum = vdupq_n_s32(0);
        for (size_t j = 0; j < bytes; j += 16) {
            if (j % 64 == 0) SPECRT__SIMD_PREFETCH(next + j);
            sum =
                vaddq_s32(sum, specrt__scan_quarter_neon(record + j, q + 256 * (j / 64) + j % 64));
        }
        sums[i] = vaddvq_s32(sum);
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_neon = {
    /* signs = */ specrt__scan_signs_neon,
    /* pairs = */ specrt__scan_pairs_neon,
};

#endif

// >>scan : src/sources/scan.c
/* scan.c : scans in scalar code, and the choice of kernels for this machine. */

/* The product of place i of a block; q: of a state, every n_states fours. */
static inline int32_t specrt__scan_dot(const specrt__scan_signs *rows, const uint8_t *codes, int i,
                                       const int8_t *q, int32_t n_states) {
    int32_t sum = 0;
    for (int32_t line = 0; line < rows->n_lines; line++)
        for (int32_t bit = 0; bit < 8; bit++, q += 4 * n_states)
            for (int j = 0; j < 4; j++) sum += (codes[64 * line + 4 * i + j] >> bit & 1) * q[j];
    return sum;
}

static void specrt__scan_signs_scalar(const specrt__scan_signs *rows, int32_t first,
                                      int32_t n_blocks, const specrt__scan_query *query,
                                      specrt__scan_hits *hits) {
    for (int32_t at = 16 * first; at < 16 * (first + n_blocks); at++) {
        const uint8_t *codes = rows->codes + (size_t)(at / 16) * rows->stride;
        float scale = specrt__scan_scale(rows->scales[at]);
        float constant = rows->constant_unit * (float)rows->constants[at];
        for (int s = 0; s < query->n_states; s++) {
            int32_t dot = specrt__scan_dot(rows, codes, at % 16, query->q + 4 * s, query->n_states);
            float score =
                fmaf((float)(2 * dot - query->offset[s]), query->unit[s] * scale, constant);
            if (!(score < query->least[s])) specrt__scan_keep(&hits[s], at, 1, &score);
        }
    }
}

static void specrt__scan_pairs_scalar(const specrt__scan_records *records, const int32_t *places,
                                      int32_t n, const int8_t *q, int32_t *sums) {
    size_t bytes = 64 * (size_t)records->n_lines;
    for (int32_t i = 0; i < n; i++) {
        const uint8_t *record = records->bytes + (size_t)places[i] * bytes;
        sums[i] = 0;
        for (size_t j = 0; j < bytes; j++)
            for (size_t plane = 0; plane < 4; plane++)
                sums[i] += (record[j] >> 2 * plane & 3) * q[256 * (j / 64) + 64 * plane + j % 64];
    }
}

SPECRT__INTERNAL const specrt__scan_kernels specrt__scan_scalar = {
    /* signs = */ specrt__scan_signs_scalar,
    /* pairs = */ specrt__scan_pairs_scalar,
};

SPECRT__INTERNAL const specrt__scan_kernels *specrt__scan_choose(void) {
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        return &specrt__scan_vnni;
    if (__builtin_cpu_supports("avx2")) return &specrt__scan_avx2;
#elif defined(SPECRT__SIMD_ARM64)
    return &specrt__scan_neon;
#endif
    return &specrt__scan_scalar;
}

// >>sketch : src/sources/sketch.h
/* sketch.h : the low-rank copy of a head, and what is found with it */

/* --- the section --- */

/* Lines of a record. */
static inline int32_t specrt__sketch_lines(const specrt_sketch_header *h) {
    return (h->rank + 16) / 256;
}

/* Clusters of neighbouring places; none where n_clusters is 0. */
typedef struct specrt__sketch_clusters {
    int32_t n;
    specrt__scan_records centroids; /* [n] of their mean rows */
    const uint32_t *starts;         /* [n + 1] places */
} specrt__sketch_clusters;

static inline specrt__sketch_clusters specrt__sketch_clusters_of(const specrt_sketch *view) {
    specrt__sketch_clusters c;
    size_t bytes = 64 * (size_t)specrt__sketch_lines(view->header);
    c.n = view->header->n_clusters;
    c.centroids.n_lines = specrt__sketch_lines(view->header);
    c.centroids.bytes = view->records + (size_t)view->header->n_rows * bytes;
    c.starts = (const uint32_t *)(const void *)(c.centroids.bytes + (size_t)c.n * bytes);
    return c;
}

/* --- what sessions share --- */

enum {
    SPECRT__SKETCH_SIGNS,
    SPECRT__SKETCH_KEEP,
    SPECRT__SKETCH_SCAN,
    SPECRT__SKETCH_CLUSTERS,
    SPECRT__SKETCH_OPTIONS,
    SPECRT__SKETCH_PARTS = 4,  /* of a preview, for as many threads */
    SPECRT__SKETCH_SPARE = 512 /* keys beyond what is kept: a call's hits */
};

typedef struct specrt__sketch_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_sketch view;
    specrt_segment basis;
    const specrt__scan_kernels *scan;
    specrt__scan_signs
        signs; /* its constants with the head's bias stand behind this struct, if it has one */
    specrt__scan_records records;
    specrt__sketch_clusters clusters;
    int32_t n_probed;             /* clusters that a state previews; 0: all places */
    const float *center;          /* [rank] taken off z; behind this struct */
    int32_t rank, size, n_places; /* dimensions of a record; rows to name; places to preview */
    int32_t keep;                 /* places of a state that are refined, about */
} specrt__sketch_shared;

/* Blocks of 16 places. */
static inline int32_t specrt__sketch_n_blocks(const specrt__sketch_shared *s) {
    return (s->n_places + 15) / 16;
}

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view);

/* --- a session --- */

/* Keys of the best so far. */
typedef struct specrt__sketch_best {
    uint64_t *keys; /* specrt__shortlist_key() of places, or of tokens that count */
    int32_t n, size, room;
} specrt__sketch_best;

typedef struct specrt__sketch {
    specrt_env env;
    const specrt__sketch_shared *shared;
    specrt__scan_query *queries; /* [n_states], or as many as it takes with STATES in each */
    uint64_t *keys;              /* of the lists */
    specrt__sketch_best *kept;   /* [n_states, PARTS] places that a preview keeps */
    specrt__sketch_best *found;  /* [n_states] tokens */
    float *z;                    /* [n_states, rank] */
    float *units;                /* [n_states] of q_pairs */
    int32_t *sums;               /* [n_states] of q_pairs */
    uint64_t *weights;           /* [n_ids] of tokens found, in 2^-56; else 0 */
    uint64_t *merged;            /* [n_merged] tokens of all states */
    int32_t *ids, *places;       /* [bound], of a block's positions together */
    int32_t *blocks;    /* [n_blocks] of 16 places to preview, ascending: all, or a state's */
    uint8_t *probed;    /* [n_blocks of the sketch] whether they are among them; or NULL */
    uint64_t *clusters; /* [n_clusters] keys of a state's; or NULL */
    int8_t *q_signs;    /* [n_states + STATES, n_signs] of the queries */
    int8_t *q_pairs;    /* [n_states, n_lines, 4, 64] */
    uint8_t *rows;      /* [bound] decoded; NULL where the head is computed as stored */
    float *bias;        /* [bound] of decoded rows, or NULL */
    size_t row_stride;
    int32_t first, end;                  /* queries that are previewed together, of n_blocks */
    int32_t n, n_queries, n_blocks;      /* states of the level at hand, and its blocks */
    int32_t n_states, n_block;           /* those of any level, and of a block */
    int64_t n_read;                      /* bytes of the sketch, at the level at hand */
    const specrt__source_routed *routed; /* of the level at hand */
} specrt__sketch;

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with);

static inline void specrt__sketch_close(void *state) {
    specrt__sketch *s = (specrt__sketch *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* Keys that lists have room for. Guessed bounds let few more places pass than are kept; of tokens the bound
 * rises while they come. */
static inline int32_t specrt__sketch_kept_room(int32_t size) {
    return size + SPECRT__SKETCH_SPARE;
}
static inline int32_t specrt__sketch_found_room(int32_t size) {
    return 2 * size + SPECRT__SKETCH_SPARE;
}

/* What a state is scanned with, beside others: it is number i % n_states there. */
static inline specrt__scan_query *specrt__sketch_query(const specrt__sketch *s, int32_t i) {
    return &s->queries[i / s->queries->n_states];
}

SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s);

/* The token at a place. */
static inline int32_t specrt__sketch_token(const specrt__sketch *s, int32_t place) {
    int32_t row = s->shared->view.rows[place];
    return s->shared->head->desc.ids ? s->shared->head->desc.ids[row] : row;
}

/* --- the search (sketch_search.c) --- */

/* specrt__sketch_search() : the best tokens of every state, in `found`. The level's z and queries are set. */
SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s);

SPECRT__INTERNAL specrt_segment specrt__sketch_segment(specrt__sketch *s, int32_t n);
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__source_level *level);

/* --- routing --- */

// >>sketch_section : src/sources/sketch_section.c
/* sketch_section.c : owns the section of a sketch as a bundle holds it. Refuses sizes and numbers that no
 * builder writes. */

/* NULL, or what is wrong with the header. */
static const char *specrt__sketch_check_header(const specrt_sketch_header *h) {
    if (h->n_rows < 1 || h->n_rows > SPECRT_MAX_VOCAB || h->n_cols < 1 || h->n_cols > 65536)
        return "n_rows, n_cols: expected 1 to 16777216, and 1 to 65536, found others";
    if (h->rank < 240 || h->rank > SPECRT_MAX_SKETCH_RANK || h->rank % 256 != 240)
        return "rank: expected 240 to 4080, 240 more than a multiple of 256, found another";
    if (h->n_signs < 32 || h->n_signs > h->rank || h->n_signs % 32)
        return "n_signs: expected a multiple of 32 from 32 to rank, found another";
    if (h->basis_dtype != SPECRT_DTYPE_F16 &&
        (h->basis_dtype != SPECRT_DTYPE_Q8_0 || h->n_cols % 32))
        return "basis_dtype: expected F16, or Q8_0 of whole blocks, found another";
    if (!(h->scale_unit >= 0 && h->scale_unit <= FLT_MAX) ||
        !(h->constant_unit >= 0 && h->constant_unit <= FLT_MAX))
        return "scale_unit, constant_unit: expected finite numbers from 0, found others";
    if (h->n_clusters < 0 || h->n_clusters > SPECRT_MAX_CLUSTERS || h->n_clusters > h->n_rows)
        return "n_clusters: expected 0 to 16384, at most n_rows, found another";
    return NULL;
}

/* Places of the arrays. @return the bytes of the section. */
static uint64_t specrt__sketch_arrays(const specrt_sketch_header *h, const uint8_t *base,
                                      specrt_sketch *s) {
    uint64_t n = (uint64_t)h->n_rows, n_places = (n + 15) / 16 * 16, at = sizeof *h;
    uint64_t row = specrt_row_bytes((specrt_dtype)h->basis_dtype, h->n_cols);
    s->header = h;
    s->basis = base + at;
    at = specrt__base_align(at + row * (uint64_t)h->rank, 4);
    s->center = (const float *)(const void *)(base + at);
    at += 4 * (uint64_t)h->n_cols;
    s->rows = (const int32_t *)(const void *)(base + at);
    at += 4 * n;
    s->scales = base + at;
    at += n_places;
    s->constants = (const int8_t *)(base + at);
    at = specrt__base_align(at + n_places, 64);
    s->signs = base + at;
    at += n_places * (uint64_t)(h->n_signs / 8);
    s->records = base + at;
    uint64_t clusters = (uint64_t)h->n_clusters, record = (uint64_t)((h->rank + 16) / 4);
    return at + n * record + (clusters > 0 ? clusters * (record + 4) + 4 : 0);
}

static bool specrt__sketch_halves_finite(const uint8_t *x, size_t n, size_t stride) {
    bool finite = true;
    for (size_t i = 0; i < n; i++, x += stride) finite = finite && (x[1] & 0x7c) != 0x7c;
    return finite;
}

/* Whether a record's scale and constant, two bf16 numbers, are finite, and the scale not negative. */
static bool specrt__sketch_record_good(const uint8_t *end) {
    return (end[-1] & 0x7f) * 2 + (end[-2] >> 7) != 255 && end[-3] * 2 + (end[-4] >> 7) < 255;
}

/* NULL, or what is wrong with the numbers. */
static const char *specrt__sketch_check_numbers(const specrt_sketch *s) {
    const specrt_sketch_header *h = s->header;
    int32_t n_records = h->n_rows + h->n_clusters; /* centroids follow rows */
    size_t d = (size_t)h->n_cols, bytes = (size_t)((h->rank + 16) / 4), rank = (size_t)h->rank;
    const uint8_t *basis = (const uint8_t *)s->basis, *end = s->records;
    bool q8_0 = h->basis_dtype == SPECRT_DTYPE_Q8_0;
    if (!specrt__sketch_halves_finite(basis, rank * (q8_0 ? d / 32 : d), q8_0 ? 34 : 2))
        return "basis: expected finite weights, found others";
    for (size_t i = 0; i < d; i++)
        if (!(fabsf(s->center[i]) <= FLT_MAX))
            return "center: expected finite numbers, found others";
    for (int32_t i = 0; i < n_records; i++)
        if (!specrt__sketch_record_good(end += bytes))
            return "records: expected finite scales from 0, found another";
    return NULL;
}

static const char *specrt__sketch_check_clusters(const specrt_sketch *s) {
    specrt__sketch_clusters c = specrt__sketch_clusters_of(s);
    if (c.n == 0) return NULL;
    if (c.starts[0] != 0 || c.starts[c.n] != (uint32_t)s->header->n_rows)
        return "starts: expected 0 first and n_rows last, found others";
    for (int32_t m = 0; m < c.n; m++)
        if (c.starts[m + 1] <= c.starts[m])
            return "starts: expected ascending places, found one at or below its predecessor";
    return NULL;
}

/* NULL, or what is wrong with the arrays; seen: scratch, zeroed, a bit for each row. */
static const char *specrt__sketch_check(const specrt_sketch *s, uint8_t *seen) {
    const specrt_sketch_header *h = s->header;
    const char *wrong = specrt__sketch_check_numbers(s);
    if (!wrong) wrong = specrt__sketch_check_clusters(s);
    if (wrong) return wrong;
    for (size_t i = 0; i < (size_t)h->n_rows; i++) {
        int32_t row = s->rows[i];
        if (row < 0 || row >= h->n_rows) return "rows: expected rows below n_rows, found another";
        if (seen[row >> 3] >> (row & 7) & 1) return "rows: expected distinct rows, found one twice";
        seen[row >> 3] = (uint8_t)(seen[row >> 3] | 1 << (row & 7));
    }
    return NULL;
}

SPECRT_API specrt_status specrt_bundle_sketch(const specrt_bundle *bundle, specrt_sketch *out,
                                              specrt_error *err) {
    size_t n;
    specrt_sketch view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    const uint8_t *base = (const uint8_t *)specrt_bundle_data(bundle, "sketch", &n);
    const specrt_sketch_header *header = (const specrt_sketch_header *)(const void *)base;
    if (!base) return specrt__bundle_missing(bundle, "sketch", err);
    if (specrt__bundle_version(bundle, "sketch") < 3)
        return specrt_error_set(
            err, SPECRT_STATUS_BUNDLE_VERSION,
            "%s: section 'sketch': expected version 3 or 4, found %d; rebuild it "
            "with sketch-build",
            bundle->name, (int)specrt__bundle_version(bundle, "sketch"));
    const char *wrong = n < sizeof *header ? "size: expected at least its header, found less"
                                           : specrt__sketch_check_header(header);
    if (!wrong && specrt__sketch_arrays(header, base, &view) != n)
        wrong = "size: expected the bytes of its header's counts, found others";
    if (!wrong && header->n_clusters > 0 && specrt__bundle_version(bundle, "sketch") < 4)
        wrong = "n_clusters: expected 0 in version 3, found another";
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    size_t n_seen = ((size_t)header->n_rows + 7) / 8;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(&bundle->env, n_seen);
    if (!seen)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", bundle->name);
    memset(seen, 0, n_seen);
    wrong = specrt__sketch_check(&view, seen);
    specrt__base_free(&bundle->env, seen);
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}

// >>sketch : src/sources/sketch.c
/* sketch.c : owns what `sketch` names: the rows that a low-rank copy of the head finds best for the
 * drafter's own states. Low rank with rescoring: SVD-softmax (Shim et al. 2017) previews and refines,
 * SpecVocab names rows. */

/* --- what sessions share --- */

static const specrt__source_option specrt__sketch_options[] = {
    {"signs", NULL, 0, SPECRT_MAX_SKETCH_RANK, 0},
    {"keep", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"scan", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"clusters", NULL, 0, SPECRT_MAX_CLUSTERS, 0},
};
SPECRT__SOURCE_FITS(specrt__sketch_options, SPECRT__SKETCH_OPTIONS);

static specrt_status specrt__sketch_check_fit(const specrt_bundle *bundle,
                                              const specrt_sketch *view, const specrt_head *head,
                                              const int32_t *options, specrt_error *err) {
    const specrt_sketch_header *h = view->header;
    if (h->n_cols != head->desc.n_cols || h->n_rows != head->desc.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section 'sketch': expected a head [%d, %d], found [%lld, "
                                "%lld]; use the bundle made for this model",
                                bundle->name, (int)h->n_rows, (int)h->n_cols,
                                (long long)head->desc.n_rows, (long long)head->desc.n_cols);
    if (options[SPECRT__SKETCH_SIGNS] > h->n_signs)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: signs: expected at most the section's %d, found %d; "
                                "build it with sketch-build --signs %d",
                                (int)h->n_signs, (int)options[SPECRT__SKETCH_SIGNS],
                                (int)options[SPECRT__SKETCH_SIGNS]);
    if (options[SPECRT__SKETCH_CLUSTERS] > 0 && h->n_clusters == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: clusters: the section has none; build it with "
                                "sketch-build --clusters N");
    if (options[SPECRT__SKETCH_SCAN] > 0 && h->n_clusters > 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "sketch: scan: expected rows by frequency, found them in clusters; "
                                "use clusters=N");
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_segment specrt__sketch_basis(const specrt_sketch *view) {
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.rows = view->basis;
    s.dtype = (specrt_dtype)view->header->basis_dtype;
    s.row_stride = specrt_row_bytes(s.dtype, view->header->n_cols);
    s.n_rows = view->header->rank;
    return s;
}

/* Constants of places with the head's bias in them. @return their unit. */
static float specrt__sketch_add_bias(const specrt__sketch_shared *s, int8_t *constants) {
    const specrt_sketch *v = &s->view;
    const float *bias = s->head->desc.bias;
    float most = 0, unit = v->header->constant_unit;
    for (int32_t i = 0; i < v->header->n_rows; i++)
        most = fmaxf(most, fabsf(unit * (float)v->constants[i] + bias[v->rows[i]]));
    float inverse = most > 0 && most <= FLT_MAX ? 127 / most : 0;
    for (int32_t i = 0; i < v->header->n_rows; i++) {
        float x = (unit * (float)v->constants[i] + bias[v->rows[i]]) * inverse;
        constants[i] = (int8_t)lrintf(fmaxf(fminf(x, 127), -127));
    }
    return inverse > 0 ? most / 127 : 0;
}

/* What is scanned. */
static void specrt__sketch_fill(specrt__sketch_shared *s, const int32_t *options) {
    const specrt_sketch *v = &s->view;
    const specrt_sketch_header *h = v->header;
    float *center = (float *)(void *)(s + 1);
    int8_t *constants = (int8_t *)(center + h->rank);
    specrt_shortlist basis = {&s->head->compute, &s->basis, 1, h->rank, h->n_cols, NULL};
    int32_t n_signs = options[SPECRT__SKETCH_SIGNS], n_probed = options[SPECRT__SKETCH_CLUSTERS];
    specrt_shortlist_logits(&basis, v->center, 1, center);
    s->center = center;
    s->signs.codes = v->signs;
    s->signs.stride = 64 * (size_t)(h->n_signs / 32);
    s->signs.n_lines = n_signs == 0 ? h->n_signs / 32 : (n_signs + 31) / 32;
    s->signs.scales = v->scales;
    s->signs.constants = s->head->desc.bias ? constants : v->constants;
    s->signs.constant_unit =
        s->head->desc.bias ? specrt__sketch_add_bias(s, constants) : h->constant_unit;
    s->records.bytes = v->records;
    s->records.n_lines = specrt__sketch_lines(h);
    s->clusters = specrt__sketch_clusters_of(v);
    s->n_probed = n_probed < s->clusters.n ? n_probed : 0;
}

/* Places that are refined where the policy's text says none: one of 16, which finds nearly all of the best.
 * */
static int32_t specrt__sketch_keep(int32_t n_places, int32_t size) {
    int32_t keep = n_places / 16;
    return keep < 4 * size ? 4 * size : keep;
}

static specrt_status specrt__sketch_share(const specrt__source_request *request,
                                          specrt__source_shared *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const specrt_head *head = request->head;
    const int32_t *options = request->options;
    specrt_sketch view;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "sketch: needs a bundle with section 'sketch'; "
                                "sketch-build builds it");
    SPECRT__TRY(specrt_bundle_sketch(bundle, &view, err));
    SPECRT__TRY(specrt__sketch_check_fit(bundle, &view, head, options, err));
    int32_t n = view.header->n_rows, n_places = options[SPECRT__SKETCH_SCAN];
    size_t n_constants = head->desc.bias ? ((size_t)n + 15) / 16 * 16 : 0;
    size_t bytes = sizeof(specrt__sketch_shared) + 4 * (size_t)view.header->rank + n_constants;
    specrt__sketch_shared *s =
        (specrt__sketch_shared *)specrt__base_alloc(&head->compute.env, bytes);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    memset(s, 0, bytes);
    s->env = head->compute.env;
    s->head = head;
    s->view = view;
    s->rank = view.header->rank;
    s->n_places = n_places == 0 || n_places > n ? n : n_places;
    s->size = request->size < s->n_places ? request->size : s->n_places;
    s->keep = options[SPECRT__SKETCH_KEEP];
    if (s->keep == 0) s->keep = specrt__sketch_keep(s->n_places, s->size);
    if (s->keep < s->size) s->keep = s->size;
    if (s->keep > s->n_places) s->keep = s->n_places;
    s->basis = specrt__sketch_basis(&view);
    s->scan = specrt__scan_choose();
    specrt__sketch_fill(s, options);
    out->bound = out->more = s->size;
    out->reads_states = true;
    out->data = s;
    return SPECRT_STATUS_OK;
}

static void specrt__sketch_unshare(void *shared) {
    specrt__sketch_shared *s = (specrt__sketch_shared *)shared;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

/* --- a session --- */

/* Tokens that so many states may name in all. */
static uint64_t specrt__sketch_most(const specrt__sketch_shared *shared, int32_t n_states) {
    uint64_t n = (uint64_t)shared->n_places, named = (uint64_t)shared->size * (uint64_t)n_states;
    return named > n ? n : named;
}

/* Where the arrays lie behind the struct; base NULL: to learn the bytes. */
static uint64_t specrt__sketch_allot(specrt__sketch *s, uint8_t *base) {
    const specrt__sketch_shared *shared = s->shared;
    uint64_t k = (uint64_t)s->n_states, rank = (uint64_t)shared->rank;
    uint64_t bound = specrt__sketch_most(shared, s->n_block);
    uint64_t at = sizeof *s, n, n_signs = 32 * (uint64_t)shared->signs.n_lines;
    uint64_t n_blocks = (uint64_t)specrt__sketch_n_blocks(shared);
    uint64_t n_clusters = shared->n_probed > 0 ? (uint64_t)shared->clusters.n : 0;
    bool decodes = specrt__head_packed_dtype(shared->head) != shared->head->desc.dtype;
#define SPECRT__SKETCH_ALLOT(field, type, count)                                                   \
    n = (count);                                                                                   \
    s->field = base && n ? (type *)(void *)(base + at) : NULL;                                     \
    at = specrt__base_align(at + n * sizeof(type), 64)
    at = specrt__base_align(at, 64);
    SPECRT__SKETCH_ALLOT(queries, specrt__scan_query, k);
    SPECRT__SKETCH_ALLOT(
        keys, uint64_t,
        k * (SPECRT__SKETCH_PARTS * (uint64_t)specrt__sketch_kept_room(shared->keep) +
             (uint64_t)specrt__sketch_found_room(shared->size)));
    SPECRT__SKETCH_ALLOT(kept, specrt__sketch_best, k * SPECRT__SKETCH_PARTS);
    SPECRT__SKETCH_ALLOT(found, specrt__sketch_best, k);
    SPECRT__SKETCH_ALLOT(z, float, k *rank);
    SPECRT__SKETCH_ALLOT(units, float, k);
    SPECRT__SKETCH_ALLOT(sums, int32_t, k);
    SPECRT__SKETCH_ALLOT(weights, uint64_t, (uint64_t)shared->head->n_ids);
    SPECRT__SKETCH_ALLOT(merged, uint64_t, specrt__sketch_most(shared, s->n_states));
    SPECRT__SKETCH_ALLOT(ids, int32_t, bound);
    SPECRT__SKETCH_ALLOT(places, int32_t, bound);
    SPECRT__SKETCH_ALLOT(blocks, int32_t, n_blocks);
    SPECRT__SKETCH_ALLOT(probed, uint8_t, n_clusters > 0 ? n_blocks : 0);
    SPECRT__SKETCH_ALLOT(clusters, uint64_t, n_clusters);
    SPECRT__SKETCH_ALLOT(q_signs, int8_t, (k + SPECRT__SCAN_STATES) * n_signs);
    SPECRT__SKETCH_ALLOT(q_pairs, int8_t, k * (rank + 16));
    SPECRT__SKETCH_ALLOT(rows, uint8_t, decodes ? bound * s->row_stride : 0);
    SPECRT__SKETCH_ALLOT(bias, float, decodes && shared->head->desc.bias ? bound : 0);
#undef SPECRT__SKETCH_ALLOT
    return at + 64;
}

SPECRT__INTERNAL void *specrt__sketch_open(void *opaque, const specrt__source_session *with) {
    specrt__sketch plan, *s;
    memset(&plan, 0, sizeof plan);
    plan.env = *with->env;
    plan.shared = (const specrt__sketch_shared *)opaque;
    plan.n_states = with->n_states;
    plan.n_block = with->n_block;
    plan.row_stride = specrt_row_bytes(specrt__head_packed_dtype(plan.shared->head),
                                       plan.shared->head->desc.n_cols);
    uint64_t bytes = specrt__sketch_allot(&plan, NULL);
    s = (specrt__sketch *)specrt__base_alloc(with->env, bytes);
    if (!s) return NULL;
    memset(s, 0, (size_t)bytes);
    *s = plan;
    specrt__sketch_allot(s, (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)s, 64));
    uint64_t *keys = s->keys;
    for (int32_t i = 0; i < with->n_states; i++) {
        for (int part = 0; part < SPECRT__SKETCH_PARTS; part++) {
            s->kept[i * SPECRT__SKETCH_PARTS + part].keys = keys;
            keys += specrt__sketch_kept_room(s->shared->keep);
        }
        s->found[i].keys = keys;
        keys += specrt__sketch_found_room(s->shared->size);
    }
    s->n_blocks = specrt__sketch_n_blocks(s->shared);
    for (int32_t b = 0; b < s->n_blocks; b++) s->blocks[b] = b;
    return s;
}

/* --- hidden states in 8 bits --- */

/* Queries for the level's states. @return how many. */
static int32_t specrt__sketch_ask(specrt__sketch *s) {
    int32_t n_states = s->n == 1 || s->shared->n_probed > 0 ? 1 : SPECRT__SCAN_STATES;
    int32_t n = (s->n + n_states - 1) / n_states;
    size_t bytes = 32 * (size_t)(s->shared->signs.n_lines * n_states);
    for (int32_t i = 0; i < n; i++) {
        memset(&s->queries[i], 0, sizeof s->queries[i]);
        s->queries[i].n_states = n_states;
        s->queries[i].q = s->q_signs + (size_t)i * bytes;
        for (int k = 0; k < n_states; k++) s->queries[i].least[k] = INFINITY;
    }
    memset(s->q_signs, 0, (size_t)n * bytes);
    return n;
}

/* The unit in which z [n] fits 8 bits; what is no number becomes 0. */
static float specrt__sketch_unit(float *z, int32_t n) {
    float most = 0;
    for (int32_t j = 0; j < n; j++) {
        if (!(fabsf(z[j]) <= FLT_MAX)) z[j] = 0;
        most = fabsf(z[j]) > most ? fabsf(z[j]) : most;
    }
    return most / 127;
}

/* The 8-bit copies of state i. */
static void specrt__sketch_round_state(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    specrt__scan_query *query = specrt__sketch_query(s, i);
    int32_t k = i % query->n_states, n_signs = 32 * shared->signs.n_lines, n = shared->rank;
    float *z = s->z + (size_t)i * (size_t)n;
    int8_t *pairs = s->q_pairs + (size_t)i * (size_t)(n + 16);
    for (int32_t j = 0; j < n; j++) z[j] -= shared->center[j];
    float unit = specrt__sketch_unit(z, n), inverse = unit > 0 ? 1 / unit : 0;
    s->units[i] = unit;
    s->sums[i] = 0;
    for (int32_t j = 0; j < n; j++) {
        int8_t q = (int8_t)lrintf(z[j] * inverse);
        pairs[specrt__scan_record_at(shared->records.n_lines, j)] = q;
        s->sums[i] += q;
    }
    query->unit[k] = specrt__sketch_unit(z, n_signs);
    inverse = query->unit[k] > 0 ? 1 / query->unit[k] : 0;
    for (int32_t j = 0; j < n_signs; j++) {
        int8_t q = (int8_t)lrintf(z[j] * inverse);
        *specrt__scan_at(query, k, j) = q;
        query->offset[k] += q;
    }
    query->unit[k] *= shared->view.header->scale_unit;
    query->least[k] = -INFINITY;
}

SPECRT__INTERNAL void specrt__sketch_round(specrt__sketch *s) {
    s->n_queries = specrt__sketch_ask(s);
    for (int32_t i = 0; i < s->n; i++) specrt__sketch_round_state(s, i);
}

/* --- the tokens of a level --- */

/* The weight, in 2^-56, of a share e of a sum; of any that is found, at least 1. */
static uint64_t specrt__sketch_weight(uint64_t e, double scale) {
    uint64_t weight = e > 0 ? (uint64_t)((double)e * scale) : 0;
    return weight > 0 ? weight : 1;
}

/* Adds what a state found, weighed by its path, in 2^-40, and its own estimate of the next token (of a capped
 * head without the cap, which a score less its constant does not tell). All in whole numbers: in which order
 * does not matter.
 * @return tokens in merged. */
static int32_t specrt__sketch_weigh(specrt__sketch *s, const specrt__sketch_best *found,
                                    uint64_t path, int32_t n_merged) {
    float most = -INFINITY, scale = s->shared->head->desc.logit_scale;
    uint64_t sum = 0;
    for (int32_t j = 0; j < found->n; j++) {
        float score = specrt__shortlist_key_logit(found->keys[j]);
        most = score > most ? score : most;
    }
    for (int32_t j = 0; j < found->n; j++) {
        uint64_t e =
            specrt__base_decay(scale * (most - specrt__shortlist_key_logit(found->keys[j])));
        s->ids[j] = specrt__shortlist_key_id(found->keys[j]);
        found->keys[j] = e;
        sum += e;
    }
    double share = sum > 0 ? (double)path * 65536.0 / (double)sum : 0;
    for (int32_t j = 0; j < found->n; j++) {
        uint64_t *weight = &s->weights[s->ids[j]];
        if (*weight == 0) s->merged[n_merged++] = (uint32_t)s->ids[j];
        *weight += specrt__sketch_weight(found->keys[j], share);
    }
    return n_merged;
}

/* The first n of ids as rows: those of the head by number, or decoded. */
SPECRT__INTERNAL specrt_segment specrt__sketch_segment(specrt__sketch *s, int32_t n) {
    specrt__pool_packing named = {s->shared->head, s->ids,  n,   s->rows,
                                  s->row_stride,   s->bias, NULL};
    return specrt__pool_gather(&named, s->places);
}

/* All that the states found, each token once. @return how many. */
static int32_t specrt__sketch_unite(specrt__sketch *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++)
        for (int32_t j = 0; j < s->found[i].n; j++) {
            int32_t id = specrt__shortlist_key_id(s->found[i].keys[j]);
            if (s->weights[id] == 0) s->ids[n++] = id;
            s->weights[id] = 1;
        }
    for (int32_t i = 0; i < n; i++) s->weights[s->ids[i]] = 0;
    return n;
}

/* The level's tokens: the best over all states by probability. @return how many. */
SPECRT__INTERNAL int32_t specrt__sketch_join(specrt__sketch *s, const specrt__source_level *level) {
    int32_t n = 0, bound = s->shared->size;
    float most = -INFINITY;
    if (level->each) return specrt__sketch_unite(s);
    if (s->n == 1) {
        for (; n < s->found->n; n++) s->ids[n] = specrt__shortlist_key_id(s->found->keys[n]);
        return n;
    }
    for (int32_t i = 0; i < s->n; i++) most = level->logprobs[i] > most ? level->logprobs[i] : most;
    for (int32_t i = 0; i < s->n; i++)
        n = specrt__sketch_weigh(s, &s->found[i], specrt__base_decay(most - level->logprobs[i]), n);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)s->merged[i];
        s->merged[i] = specrt__shortlist_key((float)s->weights[id], id);
        s->weights[id] = 0;
    }
    if (n > bound) specrt__shortlist_select(s->merged, n, bound);
    if (n > bound) n = bound;
    for (int32_t i = 0; i < n; i++) s->ids[i] = specrt__shortlist_key_id(s->merged[i]);
    return n;
}

/* --- routing --- */

static void specrt__sketch_route(void *state, const specrt__source_level *level,
                                 specrt__source_routed *out) {
    specrt__sketch *s = (specrt__sketch *)state;
    const specrt__sketch_shared *shared = s->shared;
    specrt_shortlist basis = {
        &shared->head->compute, &shared->basis, 1, shared->rank, shared->head->desc.n_cols, NULL};
    s->routed = out;
    s->n = level->n;
    s->n_read = (int64_t)shared->basis.row_stride * shared->rank;
    specrt_shortlist_logits(&basis, level->draft_hidden, s->n, s->z);
    specrt__sketch_round(s);
    specrt__sketch_search(s);
    specrt_segment segment = specrt__sketch_segment(s, specrt__sketch_join(s, level));
    specrt__source_route(out, &segment);
    out->n_read += s->n_read;
}

SPECRT__INTERNAL const specrt__source specrt__sketch_source = {
    /* options = */ specrt__sketch_options,
    /* n_options = */ SPECRT__SKETCH_OPTIONS,
    /* share = */ specrt__sketch_share,
    /* unshare = */ specrt__sketch_unshare,
    /* open = */ specrt__sketch_open,
    /* close = */ specrt__sketch_close,
    /* route = */ specrt__sketch_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};

// >>sketch_search : src/sources/sketch_search.c
/* sketch_search.c : owns how a sketch is searched: signs preview all rows, or those of the clusters whose
 * centroids score best; records of those that score best refine the scores, and the best of these are
 * named. */

/* --- lists of the best --- */

static void specrt__sketch_clear(specrt__sketch_best *list, int32_t size, int32_t room) {
    list->n = 0;
    list->size = size;
    list->room = room;
}

/* Keeps the best. @return the score from which on others are of interest. */
static float specrt__sketch_trim(specrt__sketch_best *list) {
    uint64_t least = UINT64_MAX;
    if (list->n < list->size) return -INFINITY;
    if (list->n > list->size) specrt__shortlist_select(list->keys, list->n, list->size);
    list->n = list->size;
    for (int32_t i = 0; i < list->n; i++) least = list->keys[i] < least ? list->keys[i] : least;
    return specrt__shortlist_key_logit(least);
}

/* --- scores by records --- */

enum { SPECRT__SKETCH_BATCH = 256 };

static float specrt__sketch_bf16(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return specrt__base_float((uint32_t)half << 16);
}

/* What the row of a record scores for state i, by the sum of its codes, before the head's bias. */
static float specrt__sketch_score(const specrt__sketch *s, int32_t i,
                                  const specrt__scan_records *records, int32_t at, int32_t sum,
                                  float bias) {
    const uint8_t *end = records->bytes + ((size_t)at + 1) * 64 * (size_t)records->n_lines;
    return fmaf((float)(2 * sum - 3 * s->sums[i]), s->units[i] * specrt__sketch_bf16(end - 4),
                specrt__sketch_bf16(end - 2) + bias);
}

/* State i as records are multiplied with it. */
static const int8_t *specrt__sketch_pairs(const specrt__sketch *s, int32_t i) {
    return s->q_pairs + (size_t)i * (size_t)(s->shared->rank + 16);
}

/* --- the clusters --- */

/* Marks the blocks of the clusters whose mean rows score best for state i. */
static void specrt__sketch_mark(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    int32_t places[SPECRT__SKETCH_BATCH], sums[SPECRT__SKETCH_BATCH], n;
    for (int32_t m = 0; m < shared->clusters.n; m += n) {
        n = shared->clusters.n - m < SPECRT__SKETCH_BATCH ? shared->clusters.n - m
                                                          : SPECRT__SKETCH_BATCH;
        for (int32_t j = 0; j < n; j++) places[j] = m + j;
        shared->scan->pairs(&shared->clusters.centroids, places, n, specrt__sketch_pairs(s, i),
                            sums);
        for (int32_t j = 0; j < n; j++)
            s->clusters[m + j] = specrt__shortlist_key(
                specrt__sketch_score(s, i, &shared->clusters.centroids, m + j, sums[j], 0), m + j);
    }
    specrt__shortlist_select(s->clusters, shared->clusters.n, shared->n_probed);
    for (int32_t j = 0; j < shared->n_probed; j++) {
        int32_t m = specrt__shortlist_key_id(s->clusters[j]);
        uint32_t first = shared->clusters.starts[m] / 16,
                 last = (shared->clusters.starts[m + 1] - 1) / 16;
        memset(s->probed + first, 1, last - first + 1);
    }
}

/* Lists the blocks that state i previews: those of its clusters. */
static void specrt__sketch_probe(specrt__sketch *s, int32_t i) {
    const specrt__sketch_shared *shared = s->shared;
    int32_t n_blocks = specrt__sketch_n_blocks(shared);
    memset(s->probed, 0, (size_t)n_blocks);
    specrt__sketch_mark(s, i);
    s->n_blocks = 0;
    for (int32_t b = 0; b < n_blocks; b++)
        if (s->probed[b]) s->blocks[s->n_blocks++] = b;
    s->n_read += 64 * (int64_t)shared->clusters.centroids.n_lines * shared->clusters.n;
}

/* Neighbours among listed blocks [at, end), as many as a scan covers. */
static int32_t specrt__sketch_run(const specrt__sketch *s, int32_t at, int32_t end) {
    int32_t n = 1;
    while (n < SPECRT__SCAN_BLOCKS && at + n < end && s->blocks[at + n] == s->blocks[at] + n) n++;
    return n;
}

/* --- the preview --- */

/* Takes what is of interest to a state. @return its new bound. */
static float specrt__sketch_collect(specrt__sketch_best *list, const specrt__scan_hits *hits,
                                    int32_t n_places, float least) {
    if (list->n + hits->n > list->room) least = specrt__sketch_trim(list);
    for (int32_t i = 0; i < hits->n; i++)
        if (hits->places[i] < n_places && !(hits->scores[i] < least))
            list->keys[list->n++] = specrt__shortlist_key(hits->scores[i], hits->places[i]);
    return least;
}

/* Scans blocks for a query, number `at`. Places of each state are added to every PARTS-th of `kept`. */
static void specrt__sketch_scan(const specrt__sketch *s, specrt__scan_query *query, int32_t at,
                                int32_t block, int32_t n_blocks, specrt__sketch_best *kept) {
    specrt__scan_hits hits[SPECRT__SCAN_STATES];
    int32_t first = at * query->n_states;
    for (int32_t k = 0; k < query->n_states; k++) hits[k].n = 0;
    s->shared->scan->signs(&s->shared->signs, block, n_blocks, query, hits);
    for (int32_t k = 0; k < query->n_states && first + k < s->n; k++)
        query->least[k] = specrt__sketch_collect(&kept[(first + k) * SPECRT__SKETCH_PARTS],
                                                 &hits[k], s->shared->n_places, query->least[k]);
}

/* Sets the scores that about `keep` places reach, for the states of a query, by the middle four of every 64
 * blocks: frequent rows come first and score high, so that the first ones would promise too much. Of
 * clusters, whose rows score alike, by one of every 16. Scores stay at -inf where the sample is too small. */
static void specrt__sketch_guess(specrt__sketch *s, int32_t at) {
    specrt__scan_query *query = &s->queries[at];
    int32_t n_blocks = s->n_blocks, n_each = s->shared->clusters.n > 0 ? 1 : 4, n;
    int32_t n_sampled = n_blocks < 34 ? 0 : (n_blocks + 15 * n_each / 2) / (16 * n_each) * n_each;
    float share = (float)s->shared->keep * (float)n_sampled / (float)n_blocks;
    int32_t k = (int32_t)share + 1, first = at * query->n_states;
    int32_t room = specrt__sketch_kept_room(s->shared->keep);
    int32_t end = first + query->n_states < s->n ? first + query->n_states : s->n;
    for (int32_t i = first; i < end; i++)
        specrt__sketch_clear(&s->kept[i * SPECRT__SKETCH_PARTS],
                             k < s->shared->keep ? k : s->shared->keep, room);
    for (int32_t i = 0; i < n_sampled; i += n_each)
        for (int32_t j = 16 * i + 15 * n_each / 2, last = j + n_each; j < last; j += n) {
            n = specrt__sketch_run(s, j, last);
            specrt__sketch_scan(s, query, at, s->blocks[j], n, s->kept);
        }
    for (int32_t i = first; i < end; i++)
        query->least[i - first] = specrt__sketch_trim(&s->kept[i * SPECRT__SKETCH_PARTS]);
}

/* The first state of a query. */
static int32_t specrt__sketch_first_of(const specrt__sketch *s, int32_t query) {
    int32_t first = query * s->queries->n_states;
    return first < s->n ? first : s->n;
}

/* Part `part` of the blocks, for the states that are previewed together. Signs pass the cache once. */
static void specrt__sketch_preview_part(void *arg, int64_t part) {
    const specrt__sketch *s = (const specrt__sketch *)arg;
    specrt__scan_query queries[SPECRT_TREE_MAX_TOPK];
    specrt__sketch_best *kept = s->kept + part;
    int64_t n_blocks = s->n_blocks;
    int32_t end = (int32_t)(n_blocks * (part + 1) / SPECRT__SKETCH_PARTS), n;
    memcpy(queries, s->queries + s->first, (size_t)(s->end - s->first) * sizeof *queries);
    for (int32_t i = specrt__sketch_first_of(s, s->first); i < specrt__sketch_first_of(s, s->end);
         i++)
        specrt__sketch_clear(&kept[i * SPECRT__SKETCH_PARTS], s->shared->keep,
                             specrt__sketch_kept_room(s->shared->keep));
    for (int32_t b = (int32_t)(n_blocks * part / SPECRT__SKETCH_PARTS); b < end; b += n) {
        n = specrt__sketch_run(s, b, end);
        for (int32_t i = s->first; i < s->end; i++)
            specrt__sketch_scan(s, &queries[i - s->first], i, s->blocks[b], n, kept);
    }
}

/* The places that a state keeps, of all parts, in the first part's list. */
static void specrt__sketch_gather(specrt__sketch_best *all) {
    for (int part = 1; part < SPECRT__SKETCH_PARTS; part++)
        for (int32_t j = 0; j < all[part].n; j++) {
            if (all->n == all->room) specrt__sketch_trim(all);
            all->keys[all->n++] = all[part].keys[j];
        }
    if (all->n > all->size) specrt__sketch_trim(all);
}

/* The places that each state of those keeps.
 * @return false where a state has too few: its bound was guessed far too high. The bound is dropped. */
static bool specrt__sketch_gather_all(specrt__sketch *s) {
    bool enough = true;
    for (int32_t i = specrt__sketch_first_of(s, s->first); i < specrt__sketch_first_of(s, s->end);
         i++) {
        specrt__sketch_best *all = &s->kept[i * SPECRT__SKETCH_PARTS];
        float *least = &specrt__sketch_query(s, i)->least[i % s->queries->n_states];
        specrt__sketch_gather(all);
        if (all->n >= all->size / 2) continue;
        enough = enough && !(*least > -INFINITY);
        *least = -INFINITY;
    }
    return enough;
}

/* The places that states keep, of the queries [first, end) together. */
static void specrt__sketch_preview(specrt__sketch *s, int32_t first, int32_t end) {
    const specrt__sketch_shared *shared = s->shared;
    int64_t block = 64 * shared->signs.n_lines + 32;
    bool all = shared->keep >= shared->n_places || shared->keep >= 16 * s->n_blocks;
    s->first = first;
    s->end = end;
    for (int32_t i = first; i < end && !all; i++) specrt__sketch_guess(s, i);
    do {
        specrt__shortlist_run(&shared->head->compute, SPECRT__SKETCH_PARTS,
                              specrt__sketch_preview_part, s);
        s->n_read += s->n_blocks * block;
    } while (!specrt__sketch_gather_all(s));
}

/* --- the refinement --- */

/* Adds the tokens of a batch that count. Tokens lie all over memory. @return the new bound. */
static float specrt__sketch_name(const specrt__sketch *s, int32_t i, const int32_t *places,
                                 const int32_t *sums, int32_t n, float least) {
    const specrt__sketch_shared *shared = s->shared;
    specrt__sketch_best *found = &s->found[i];
    const float *bias = shared->head->desc.bias;
    for (int32_t j = 0; j < n; j++) {
        float score = specrt__sketch_score(s, i, &shared->records, places[j], sums[j],
                                           bias ? bias[shared->view.rows[places[j]]] : 0);
        if (score < least) continue;
        int32_t id = specrt__sketch_token(s, places[j]);
        if (!specrt__source_is_new(s->routed, id)) continue;
        found->keys[found->n++] = specrt__shortlist_key(score, id);
        if (found->n == found->room) least = specrt__sketch_trim(found);
    }
    return least;
}

/* The best tokens of state i, of the places that it keeps. */
static void specrt__sketch_refine(void *arg, int64_t i) {
    const specrt__sketch *s = (const specrt__sketch *)arg;
    const specrt__sketch_best *kept = &s->kept[i * SPECRT__SKETCH_PARTS];
    const int8_t *q = specrt__sketch_pairs(s, (int32_t)i);
    int32_t places[SPECRT__SKETCH_BATCH], sums[SPECRT__SKETCH_BATCH], n;
    float least = -INFINITY;
    specrt__sketch_clear(&s->found[i], s->shared->size, specrt__sketch_found_room(s->shared->size));
    for (int32_t at = 0; at < kept->n; at += n) {
        n = kept->n - at < SPECRT__SKETCH_BATCH ? kept->n - at : SPECRT__SKETCH_BATCH;
        for (int32_t j = 0; j < n; j++) places[j] = specrt__shortlist_key_id(kept->keys[at + j]);
        s->shared->scan->pairs(&s->shared->records, places, n, q, sums);
        least = specrt__sketch_name(s, (int32_t)i, places, sums, n, least);
    }
    (void)specrt__sketch_trim(&s->found[i]);
}

SPECRT__INTERNAL void specrt__sketch_search(specrt__sketch *s) {
    int64_t record = 64 * s->shared->records.n_lines;
    if (s->shared->n_probed == 0) specrt__sketch_preview(s, 0, s->n_queries);
    for (int32_t i = 0; i < s->n && s->shared->n_probed > 0; i++) { /* each its own clusters */
        specrt__sketch_probe(s, i);
        specrt__sketch_preview(s, i, i + 1);
    }
    for (int32_t i = 0; i < s->n; i++) s->n_read += record * s->kept[i * SPECRT__SKETCH_PARTS].n;
    specrt__shortlist_run(&s->shared->head->compute, s->n, specrt__sketch_refine, s);
}

// >>arc : src/sources/arc.h
/* arc.h : the adaptive cache of retrieval */

enum { SPECRT__ARC_NONE, SPECRT__ARC_T1, SPECRT__ARC_T2, SPECRT__ARC_B1, SPECRT__ARC_B2 };

typedef struct specrt__arc {
    int32_t n_ids, capacity;
    double p;
    int32_t sizes[5]; /* by list */
    int32_t *older,
        *newer;      /* [n_ids + 5] rings; entry n_ids + list stands between newest and oldest */
    int32_t *births; /* [n_ids] when a resident came in */
    uint8_t *lists;  /* [n_ids] */
} specrt__arc;

static inline size_t specrt__arc_bytes(int32_t n_ids) {
    return (3 * (size_t)n_ids + 10) * sizeof(int32_t) + (size_t)n_ids;
}

SPECRT__INTERNAL void specrt__arc_reset(specrt__arc *a, double p);
SPECRT__INTERNAL void specrt__arc_init(specrt__arc *a, int32_t n_ids, int32_t capacity,
                                       void *memory);

static inline bool specrt__arc_resident(const specrt__arc *a, int32_t id) {
    return a->lists[id] == SPECRT__ARC_T1 || a->lists[id] == SPECRT__ARC_T2;
}

static inline int32_t specrt__arc_oldest(const specrt__arc *a, int list) {
    return a->newer[a->n_ids + list];
}

SPECRT__INTERNAL void specrt__arc_move(specrt__arc *a, int32_t id, int list);
SPECRT__INTERNAL void specrt__arc_adapt(specrt__arc *a, int list);

/* --- EvoSpec's variant (its appendix A.3) --- */

enum { SPECRT__ARC_RESIDENCY = 8 };

/* A resident is used. */
static inline void specrt__arc_touch(specrt__arc *a, int32_t id) {
    if (specrt__arc_resident(a, id)) specrt__arc_move(a, id, SPECRT__ARC_T2);
}

SPECRT__INTERNAL bool specrt__arc_insert(specrt__arc *a, int32_t id, int32_t now, bool adapts,
                                         int32_t *victim);

// >>arc : src/sources/arc.c
/* arc.c : owns adaptive replacement caches over token ids (Megiddo and Modha, FAST 2003): T1 and T2 are
 * resident, B1 and B2 remember what left them, p says how much T1 deserves. The rule of replacement is
 * EvoSpec's; the paper's, over the same lists, stands in the tests. Every step takes constant time but
 * for eviction among young tokens. Refuses nothing: ids are in [0, n_ids). */

SPECRT__INTERNAL void specrt__arc_reset(specrt__arc *a, double p) {
    a->p = p;
    memset(a->sizes, 0, sizeof a->sizes);
    memset(a->lists, SPECRT__ARC_NONE, (size_t)a->n_ids);
    for (int32_t end = a->n_ids; end < a->n_ids + 5; end++) a->older[end] = a->newer[end] = end;
}

/* In memory of specrt__arc_bytes(), borrowed, aligned to 4. */
SPECRT__INTERNAL void specrt__arc_init(specrt__arc *a, int32_t n_ids, int32_t capacity,
                                       void *memory) {
    size_t n = (size_t)n_ids;
    a->n_ids = n_ids;
    a->capacity = capacity;
    a->older = (int32_t *)memory;
    a->newer = a->older + n + 5;
    a->births = a->newer + n + 5;
    a->lists = (uint8_t *)(void *)(a->births + n);
    specrt__arc_reset(a, 0);
}

/* From where it is to the newest end of a list; NONE: out of all. */
SPECRT__INTERNAL void specrt__arc_move(specrt__arc *a, int32_t id, int list) {
    int32_t end = a->n_ids + list;
    if (a->lists[id] != SPECRT__ARC_NONE) {
        a->newer[a->older[id]] = a->newer[id];
        a->older[a->newer[id]] = a->older[id];
        a->sizes[a->lists[id]]--;
    }
    a->lists[id] = (uint8_t)list;
    if (list == SPECRT__ARC_NONE) return;
    a->sizes[list]++;
    a->older[id] = a->older[end];
    a->newer[id] = end;
    a->newer[a->older[end]] = id;
    a->older[end] = id;
}

/* How far a hit among the ghosts of `own` moves p. */
static double specrt__arc_step(const specrt__arc *a, int own, int other) {
    double ratio = (double)a->sizes[other] / a->sizes[own];
    return ratio > 1 ? ratio : 1;
}

SPECRT__INTERNAL void specrt__arc_adapt(specrt__arc *a, int list) {
    if (list == SPECRT__ARC_B1) a->p += specrt__arc_step(a, SPECRT__ARC_B1, SPECRT__ARC_B2);
    if (list == SPECRT__ARC_B2) a->p -= specrt__arc_step(a, SPECRT__ARC_B2, SPECRT__ARC_B1);
    if (a->p > a->capacity) a->p = a->capacity;
    if (a->p < 0) a->p = 0;
}

/* --- EvoSpec's variant (its appendix A.3) --- */

/* The oldest of a list that has been resident for long enough, or -1. */
static int32_t specrt__arc_eligible(const specrt__arc *a, int list, int32_t now) {
    int32_t id = specrt__arc_oldest(a, list);
    while (id < a->n_ids && now - a->births[id] < SPECRT__ARC_RESIDENCY) id = a->newer[id];
    return id < a->n_ids ? id : -1;
}

/* @return the token that leaves, or -1 when all are too young. Ghosts are bounded each for itself. */
static int32_t specrt__arc_evict(specrt__arc *a, int32_t now) {
    int from = a->sizes[SPECRT__ARC_T1] > a->p ? SPECRT__ARC_T1 : SPECRT__ARC_T2;
    int32_t victim = specrt__arc_eligible(a, from, now);
    if (victim < 0) {
        from = from == SPECRT__ARC_T1 ? SPECRT__ARC_T2 : SPECRT__ARC_T1;
        victim = specrt__arc_eligible(a, from, now);
    }
    if (victim < 0) return -1;
    int ghosts = from == SPECRT__ARC_T1 ? SPECRT__ARC_B1 : SPECRT__ARC_B2;
    specrt__arc_move(a, victim, ghosts);
    if (a->sizes[ghosts] > a->capacity)
        specrt__arc_move(a, specrt__arc_oldest(a, ghosts), SPECRT__ARC_NONE);
    return victim;
}

/* Lets in a token that is not resident.
 *   adapts : whether a ghost moves p
 *   victim : the token that leaves for it, or -1
 * @return false when there is no room. */
SPECRT__INTERNAL bool specrt__arc_insert(specrt__arc *a, int32_t id, int32_t now, bool adapts,
                                         int32_t *victim) {
    /* Asked first: making room may drop it from the ghosts. */
    bool ghost = a->lists[id] != SPECRT__ARC_NONE;
    *victim = -1;
    if (adapts) specrt__arc_adapt(a, a->lists[id]);
    if (a->sizes[SPECRT__ARC_T1] + a->sizes[SPECRT__ARC_T2] == a->capacity) {
        *victim = specrt__arc_evict(a, now);
        if (*victim < 0) return false;
    }
    specrt__arc_move(a, id, ghost ? SPECRT__ARC_T2 : SPECRT__ARC_T1);
    a->births[id] = now;
    return true;
}

// >>retrieve : src/sources/retrieve.h
/* retrieve.h : EvoSpec's retrieval */

enum {
    SPECRT__RETRIEVE_TOP = 10, /* of the target, at the correction, and of the index */
    /* The target's best, the nearest of the index, and the corrected token. */
    SPECRT__RETRIEVE_SEEDS = 2 * SPECRT__RETRIEVE_TOP + 1,
    SPECRT__RETRIEVE_SUCCESSORS = 8, /* of each of them */
    SPECRT__RETRIEVE_INSERTIONS = 32,
    SPECRT__RETRIEVE_WARM_UP = 50, /* events before p moves */
    SPECRT__RETRIEVE_RECORDS = 16, /* that may wait for another thread */
    SPECRT__RETRIEVE_NEVER = INT32_MAX
};

enum { SPECRT__RETRIEVE_LOGITS, SPECRT__RETRIEVE_HNSW_H, SPECRT__RETRIEVE_HNSW_W };
enum {
    SPECRT__RETRIEVE_SEM,
    SPECRT__RETRIEVE_GRAPH,
    SPECRT__RETRIEVE_KEEP,
    SPECRT__RETRIEVE_MODE,
    SPECRT__RETRIEVE_PROMPT,
    SPECRT__RETRIEVE_OPTIONS
};
enum { SPECRT__RETRIEVE_PROMPT_OFF, SPECRT__RETRIEVE_PROMPT_TOKENS, SPECRT__RETRIEVE_PROMPT_BEST };

typedef struct specrt__retrieve_params {
    int32_t size;
    int32_t sem, prompt;
    bool keep; /* what was retrieved outlives specrt_session_begin() */
    bool async;
    specrt_cograph graph; /* header NULL: none */
    specrt_hnsw index;    /* likewise */
} specrt__retrieve_params;

typedef struct specrt__retrieve_shared {
    specrt_env env;
    specrt__retrieve_params params;
} specrt__retrieve_shared;

/* What the cache learns from a cycle, and what that changed. */
typedef struct specrt__retrieve_record {
    int32_t now; /* cycles before it */
    int32_t n_tokens, n_best, n_changes;
    bool event, told; /* told: the target's hidden state is among the queries */
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    int32_t best[SPECRT__RETRIEVE_TOP];
    int32_t changes[2 * SPECRT__RETRIEVE_INSERTIONS]; /* id: it came in; ~id: it left */
} specrt__retrieve_record;

typedef struct specrt__retrieve {
    specrt_task task; /* first, so that it leads back here */
    specrt_env env;
    specrt__retrieve_params params;
    specrt__pool *pool;
    int32_t bit; /* of the pool */
    int32_t n_logits;
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;
    int32_t n_cycles;
    /* Records are numbered, and number i is in place i % n_records:
     *
     *           taken          done           limit         posted        taken + n_records
     *     over    |  worked off  |  the task's   |   waiting    |    free   |
     *
     * The session writes records up to `posted`, gives them to a task up to `limit`, and takes over what they
     * changed up to `taken`; working them off moves `done`. A task is out while done is not limit. Until then
     * it alone writes done, last of all, and has what follows done; limit stays. So of all that changes the
     * two sides share but done, which says whose a record is. */
    uint32_t posted, limit, taken, n_records;
    bool due; /* records beyond limit have an event */
    uint32_t done;
    int32_t n_events;  /* corrections that could not have been drafted */
    int32_t n_blocked; /* candidates that found no room */
    /* [n_ids] the last event that a token was a candidate of; NEVER: it may not */
    int32_t *offered;
    specrt__arc arc;
    specrt__retrieve_record *records; /* [n_records] */
    float *queries;                   /* [n_records, width of the index]; NULL: no index */
    uint8_t *scratch;                 /* of searches */
} specrt__retrieve;

/* --- what a policy's sessions share --- */

/* Of the hidden states that it reads; 0: none. */
static inline int32_t specrt__retrieve_width(const specrt__retrieve_params *params) {
    return params->sem == SPECRT__RETRIEVE_HNSW_H ? params->index.header->dim : 0;
}

/* --- a session's --- */

SPECRT__INTERNAL void specrt__retrieve_bar(specrt__retrieve *r);
SPECRT__INTERNAL specrt__retrieve *specrt__retrieve_create(specrt__pool *pool,
                                                           const specrt__retrieve_params *params,
                                                           int32_t n_logits, const specrt_env *env);

/* Returns when no task is out. */
static inline void specrt__retrieve_settle(const specrt__retrieve *r) {
    while (specrt__os_load(&r->done) != r->limit) specrt__os_yield();
}

SPECRT__INTERNAL void specrt__retrieve_close(void *state);

/* --- working off --- */

SPECRT__INTERNAL void specrt__retrieve_work(specrt__retrieve *r, uint32_t number);

/* --- between cycles --- */

SPECRT__INTERNAL void specrt__retrieve_take(specrt__retrieve *r);

/* Works off what waits; no task is out. */
static inline void specrt__retrieve_finish(specrt__retrieve *r) {
    while (r->done != r->posted) specrt__retrieve_work(r, r->done);
    r->limit = r->done;
    r->due = false;
}

SPECRT__INTERNAL void specrt__retrieve_begin(void *state);
SPECRT__INTERNAL void specrt__retrieve_read(specrt__retrieve *r, int32_t token, const int32_t *best,
                                            int32_t n_best, specrt__pool *pool);
SPECRT__INTERNAL void specrt__retrieve_prefill(void *state, const int32_t *tokens, int32_t n,
                                               const specrt_target_rows *rows);
SPECRT__INTERNAL void specrt__retrieve_observe(void *state, const specrt__source_cycle *cycle);

// >>retrieve : src/sources/retrieve.c
/* retrieve.c : owns EvoSpec's retrieval (docs/methods/retrieve.md): when the target emits a
 * token that could not have been drafted, that token, what the target thought likely there, what lies
 * near and what often follows those come into a small adaptive cache. Refuses an index of another head;
 * tokens that may not be proposed are passed over.
 *
 * A cycle becomes a record, records are worked off in order, and what they change is taken over by the
 * session between cycles. Who works them off, the session at once or a task on another thread, changes
 * nothing but when: the cache depends on the records alone. */

static const specrt__source_option specrt__retrieve_options[] = {
    {"sem", "logits hnsw_h hnsw_w", 0, 0, 0},
    {"graph", "off on", 0, 0, 1},
    {"keep", "off on", 0, 0, 0},
    {"mode", "sync async", 0, 0, 0},
    {"prompt", "off tokens best", 0, 0, 0},
};
SPECRT__SOURCE_FITS(specrt__retrieve_options, SPECRT__RETRIEVE_OPTIONS);

/* --- what a policy's sessions share --- */

/* The head that was indexed, or NULL where that is not at hand: the drafter's is another. */
static specrt_status specrt__retrieve_target(const specrt_bundle *bundle, const specrt_head *head,
                                             const specrt_head *target, const specrt_head **out,
                                             specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    *out = target;
    if (target && target->row_of)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "target: expected row i to be token i, found rows with ids");
    if (target) return specrt__head_check(bundle, &target->desc, err);
    bool same = ident && ident->head_rows > 0 && !head->row_of &&
                specrt__head_check(bundle, &head->desc, NULL) == SPECRT_STATUS_OK;
    if (same) *out = head;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__retrieve_resolve_index(const specrt_bundle *bundle,
                                                    const specrt_head *head,
                                                    const specrt_head *target, int32_t sem,
                                                    specrt_hnsw *out, specrt_error *err) {
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "retrieve: needs a bundle with section 'hnsw', or @sem=logits; "
                                "hnsw-build builds it");
    SPECRT__TRY(specrt__retrieve_target(bundle, head, target, &target, err));
    if (sem == SPECRT__RETRIEVE_HNSW_W && !target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "retrieve: sem=hnsw_w searches with rows of the target's "
                                "head: expected it in specrt_policy_desc.target, found NULL");
    return specrt_bundle_hnsw(bundle, target, out, err);
}

static specrt_status specrt__retrieve_resolve(const specrt__source_request *request,
                                              specrt__retrieve_params *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const int32_t *options = request->options;
    out->size = request->size;
    out->sem = options[SPECRT__RETRIEVE_SEM];
    out->prompt = options[SPECRT__RETRIEVE_PROMPT];
    out->keep = options[SPECRT__RETRIEVE_KEEP] != 0;
    out->async = options[SPECRT__RETRIEVE_MODE] != 0;
    if (out->sem != SPECRT__RETRIEVE_LOGITS)
        SPECRT__TRY(specrt__retrieve_resolve_index(bundle, request->head, request->desc->target,
                                                   out->sem, &out->index, err));
    if (!options[SPECRT__RETRIEVE_GRAPH]) return SPECRT_STATUS_OK;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "retrieve: needs a bundle with section 'cograph', or @graph=off; "
                                "cograph-build builds it");
    return specrt_bundle_cograph(bundle, &out->graph, err);
}

static specrt_status specrt__retrieve_share(const specrt__source_request *request,
                                            specrt__source_shared *out, specrt_error *err) {
    const specrt_env *env = &request->head->compute.env;
    specrt__retrieve_params params;
    memset(&params, 0, sizeof params);
    SPECRT__TRY(specrt__retrieve_resolve(request, &params, err));
    specrt__retrieve_shared *s =
        (specrt__retrieve_shared *)specrt__base_alloc(env, sizeof(specrt__retrieve_shared));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "retrieve: out of memory");
    s->env = *env;
    s->params = params;
    out->data = s;
    out->bound = params.size;
    out->reads_prompt = params.prompt == SPECRT__RETRIEVE_PROMPT_BEST;
    out->hidden_width = specrt__retrieve_width(&params);
    out->submits = params.async;
    out->keeps = params.keep;
    return SPECRT_STATUS_OK;
}

static void specrt__retrieve_unshare(void *shared) {
    specrt_env env = ((specrt__retrieve_shared *)shared)->env;
    specrt__base_free(&env, shared);
}

/* --- a session's --- */

/* Tokens that may not be proposed, or always are. The pool's marks are made before. */
SPECRT__INTERNAL void specrt__retrieve_bar(specrt__retrieve *r) {
    for (int32_t i = 0; i < r->pool->n_ids; i++) {
        int32_t marks = SPECRT__POOL_INVALID | SPECRT__POOL_FIXED;
        r->offered[i] = r->pool->wants[i] & marks ? SPECRT__RETRIEVE_NEVER : 0;
    }
}

SPECRT__INTERNAL specrt__retrieve *specrt__retrieve_create(specrt__pool *pool,
                                                           const specrt__retrieve_params *params,
                                                           int32_t n_logits,
                                                           const specrt_env *env) {
    const specrt_hnsw *index = params->index.header ? &params->index : NULL;
    size_t n_ids = (size_t)pool->n_ids, n_records = params->async ? SPECRT__RETRIEVE_RECORDS : 1;
    size_t at_queries = (size_t)specrt__base_align(
        sizeof(specrt__retrieve) + n_records * sizeof(specrt__retrieve_record) +
            n_ids * sizeof(int32_t) + specrt__arc_bytes(pool->n_ids),
        64);
    size_t n_queries = index ? n_records * (size_t)index->header->dim : 0;
    size_t at_scratch = (size_t)specrt__base_align(at_queries + n_queries * sizeof(float), 64);
    int32_t ef = index && index->header->ef > SPECRT__RETRIEVE_TOP ? 0 : SPECRT__RETRIEVE_TOP;
    size_t bytes = at_scratch + (index ? specrt_hnsw_scratch_bytes(index, ef) : 0);
    specrt__retrieve *r = (specrt__retrieve *)specrt__base_alloc(env, bytes + 64);
    if (!r) return NULL;
    memset(r, 0, bytes + 64);
    r->env = *env;
    r->params = *params;
    r->pool = pool;
    r->bit = specrt__pool_register(pool);
    r->n_logits = n_logits;
    r->n_records = (uint32_t)n_records;
    r->records = (specrt__retrieve_record *)(void *)(r + 1);
    r->offered = (int32_t *)(void *)(r->records + n_records);
    specrt__arc_init(&r->arc, pool->n_ids, params->size, r->offered + n_ids);
    specrt__arc_reset(&r->arc, params->size / 2.0);
    specrt__retrieve_bar(r);
    uint8_t *base = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)r, 64);
    if (index) r->queries = (float *)(void *)(base + at_queries);
    if (index) r->scratch = base + at_scratch;
    return r;
}

static void *specrt__retrieve_open(void *shared, const specrt__source_session *with) {
    const specrt__retrieve_shared *s = (const specrt__retrieve_shared *)shared;
    specrt__retrieve *r =
        specrt__retrieve_create(with->pool, &s->params, with->n_logits, with->env);
    if (!r) return NULL;
    r->submit = with->submit;
    r->submit_user = with->submit_user;
    return r;
}

SPECRT__INTERNAL void specrt__retrieve_close(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt_env env = r->env;
    specrt__retrieve_settle(r);
    specrt__base_free(&env, r);
}

/* --- working off --- */

/* A candidate of an event, once: residents count as used. */
static void specrt__retrieve_offer(specrt__retrieve *r, specrt__retrieve_record *record, int32_t id,
                                   int32_t *n_inserted) {
    int32_t victim;
    bool adapts = r->n_events > SPECRT__RETRIEVE_WARM_UP;
    if (id < 0 || id >= r->arc.n_ids || r->offered[id] >= r->n_events) return;
    r->offered[id] = r->n_events;
    if (specrt__arc_resident(&r->arc, id)) {
        specrt__arc_touch(&r->arc, id);
        return;
    }
    if (*n_inserted == SPECRT__RETRIEVE_INSERTIONS) return;
    if (!specrt__arc_insert(&r->arc, id, record->now, adapts, &victim)) {
        r->n_blocked++;
        return;
    }
    if (victim >= 0) record->changes[record->n_changes++] = ~victim;
    record->changes[record->n_changes++] = id;
    ++*n_inserted;
}

/* What the index finds. @return how many, none where the target told no hidden state. */
static int32_t specrt__retrieve_near(specrt__retrieve *r, const specrt__retrieve_record *record,
                                     int32_t token, int32_t *ids) {
    const specrt_hnsw *index = &r->params.index;
    float scores[SPECRT__RETRIEVE_TOP];
    if (r->params.sem == SPECRT__RETRIEVE_LOGITS) return 0;
    float *query = r->queries + (size_t)(record - r->records) * (size_t)index->header->dim;
    if (r->params.sem == SPECRT__RETRIEVE_HNSW_W) {
        if (token >= index->header->n_rows) return 0;
        const specrt_head_desc *rows = &index->head->desc;
        specrt_row_decode(rows->dtype, specrt__head_row(rows, token), rows->n_cols, query);
    } else if (!record->told) {
        return 0;
    }
    return specrt_hnsw_search(index, query, SPECRT__RETRIEVE_TOP, 0, ids, scores, r->scratch);
}

/* The target's best, what is near, and the token. One that stands there twice is offered once.
 * @return how many. */
static int32_t specrt__retrieve_seeds(specrt__retrieve *r, const specrt__retrieve_record *record,
                                      int32_t token, int32_t *seeds) {
    int32_t n = record->n_best;
    memcpy(seeds, record->best, (size_t)n * sizeof *seeds);
    n += specrt__retrieve_near(r, record, token, seeds + n);
    seeds[n++] = token;
    return n;
}

/* Token first, then the seeds by rank, then their successors, the likeliest of each seed first. */
static void specrt__retrieve_admit(specrt__retrieve *r, specrt__retrieve_record *record,
                                   int32_t token, const int32_t *seeds, int32_t n_seeds) {
    const int32_t *ids;
    const float *counts;
    int32_t n_inserted = 0;
    const specrt_cograph *graph = &r->params.graph;
    r->n_events++;
    specrt__retrieve_offer(r, record, token, &n_inserted);
    for (int32_t i = 0; i < n_seeds; i++) specrt__retrieve_offer(r, record, seeds[i], &n_inserted);
    if (!graph->header) return;
    for (int32_t k = 0; k < SPECRT__RETRIEVE_SUCCESSORS; k++)
        for (int32_t i = 0; i < n_seeds; i++) {
            bool listed = specrt_cograph_successors(graph, seeds[i], &ids, &counts) > 0 &&
                          (uint32_t)k < graph->n_rule[seeds[i]];
            if (listed) specrt__retrieve_offer(r, record, ids[k], &n_inserted);
        }
}

static void specrt__retrieve_event(specrt__retrieve *r, specrt__retrieve_record *record) {
    int32_t seeds[SPECRT__RETRIEVE_SEEDS];
    int32_t token = record->tokens[record->n_tokens - 1];
    int32_t n_seeds = specrt__retrieve_seeds(r, record, token, seeds);
    specrt__retrieve_admit(r, record, token, seeds, n_seeds);
}

SPECRT__INTERNAL void specrt__retrieve_work(specrt__retrieve *r, uint32_t number) {
    specrt__retrieve_record *record = &r->records[number % r->n_records];
    record->n_changes = 0;
    for (int32_t i = 0; i < record->n_tokens; i++)
        if (record->tokens[i] < r->arc.n_ids) specrt__arc_touch(&r->arc, record->tokens[i]);
    if (record->event) specrt__retrieve_event(r, record);
    specrt__os_store(&r->done, number + 1);
}

/* Nothing is read after the last record is done: the session may be closed then. */
static void specrt__retrieve_run(specrt_task *task) {
    specrt__retrieve *r = (specrt__retrieve *)(void *)task;
    uint32_t limit = r->limit;
    for (uint32_t i = r->done; i != limit; i++) specrt__retrieve_work(r, i);
}

/* --- between cycles --- */

/* Membership becomes what the records that are done have made of it. */
SPECRT__INTERNAL void specrt__retrieve_take(specrt__retrieve *r) {
    uint32_t done = specrt__os_load(&r->done);
    for (; r->taken != done; r->taken++) {
        const specrt__retrieve_record *record = &r->records[r->taken % r->n_records];
        for (int32_t i = 0; i < record->n_changes; i++) {
            int32_t id = record->changes[i];
            if (id >= 0)
                specrt__pool_want(r->pool, id, r->bit);
            else
                specrt__pool_drop(r->pool, ~id, r->bit);
        }
    }
}

/* Everything posted is worked off and taken over. */
static void specrt__retrieve_catch_up(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt__retrieve_settle(r);
    specrt__retrieve_finish(r);
    specrt__retrieve_take(r);
}

SPECRT__INTERNAL void specrt__retrieve_begin(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt__retrieve_settle(r);
    if (!r->params.keep) {
        specrt__arc_reset(&r->arc, r->params.size / 2.0);
        specrt__retrieve_bar(r);
        r->n_cycles = r->n_events = r->n_blocked = 0;
        r->posted = r->limit = r->taken = r->done = 0;
        r->due = false;
        return;
    }
    specrt__retrieve_finish(r);
    r->taken = r->done; /* membership is made anew */
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(&r->arc, list); id < r->arc.n_ids;
             id = r->arc.newer[id])
            specrt__pool_want(r->pool, id, r->bit);
}

/* A token of the prompt, or one that the target thought likely there: it may give way at once.
 * @return whether it came in, and in *victim what left for it, or -1. */
static bool specrt__retrieve_warm(specrt__retrieve *r, int32_t id, int32_t *victim) {
    if (id < 0 || id >= r->arc.n_ids || r->offered[id] == SPECRT__RETRIEVE_NEVER) return false;
    if (specrt__arc_resident(&r->arc, id)) {
        specrt__arc_touch(&r->arc, id);
        return false;
    }
    if (!specrt__arc_insert(&r->arc, id, r->n_cycles, false, victim)) return false;
    r->arc.births[id] = r->n_cycles - SPECRT__ARC_RESIDENCY;
    return true;
}

/* A prompt token, then the target's best there, the best of all last.
 *   pool : whose members these become; NULL: the caller sees to it */
SPECRT__INTERNAL void specrt__retrieve_read(specrt__retrieve *r, int32_t token, const int32_t *best,
                                            int32_t n_best, specrt__pool *pool) {
    int32_t victim;
    for (int32_t i = n_best; i >= 0; i--) {
        int32_t id = i == n_best ? token : best[i];
        if (!specrt__retrieve_warm(r, id, &victim) || !pool) continue;
        if (victim >= 0) specrt__pool_drop(pool, victim, r->bit);
        specrt__pool_want(pool, id, r->bit);
    }
}

/* What comes before the first cycle, or the next turn. */
SPECRT__INTERNAL void specrt__retrieve_prefill(void *state, const int32_t *tokens, int32_t n,
                                               const specrt_target_rows *rows) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    int32_t best[SPECRT__RETRIEVE_TOP];
    if (r->params.prompt == SPECRT__RETRIEVE_PROMPT_OFF) return;
    specrt__retrieve_catch_up(r);
    for (int32_t i = 0; i < n; i++) {
        int32_t n_best = 0;
        if (r->params.prompt == SPECRT__RETRIEVE_PROMPT_BEST)
            n_best =
                specrt__shortlist_target_best(rows, i, r->n_logits, SPECRT__RETRIEVE_TOP, best);
        specrt__retrieve_read(r, tokens[i], best, n_best, r->pool);
    }
}

static void specrt__retrieve_start(void *state, int32_t token) {
    (void)token;
    specrt__retrieve_take((specrt__retrieve *)state);
}

static void specrt__retrieve_write(specrt__retrieve *r, const specrt_verdict *verdict,
                                   const specrt_target_rows *rows, bool event) {
    uint32_t slot = r->posted++ % r->n_records;
    specrt__retrieve_record *record = &r->records[slot];
    int32_t node = verdict->nodes[verdict->n - 1], width = specrt__retrieve_width(&r->params);
    record->now = r->n_cycles;
    record->n_tokens = verdict->n;
    memcpy(record->tokens, verdict->tokens, (size_t)verdict->n * sizeof *record->tokens);
    record->event = event;
    if (!event) return;
    r->due = true;
    record->n_best =
        specrt__shortlist_target_best(rows, node, r->n_logits, SPECRT__RETRIEVE_TOP, record->best);
    record->told = width > 0 && rows && rows->hidden;
    if (record->told)
        memcpy(r->queries + slot * (size_t)width, rows->hidden + (size_t)node * (size_t)width,
               (size_t)width * sizeof(float));
}

/* Records without an event change no membership: they wait for one, since waking a thread has its price. */
static bool specrt__retrieve_due(const specrt__retrieve *r) {
    return r->due || r->posted - r->limit >= r->n_records / 2;
}

/* Before any other source learns from the cycle, since what could have been drafted is asked here. Only
 * the last token can be an event: the others were drafted. */
SPECRT__INTERNAL void specrt__retrieve_observe(void *state, const specrt__source_cycle *cycle) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    const specrt_verdict *verdict = cycle->verdict;
    int32_t token = verdict->tokens[verdict->n - 1];
    bool event = specrt__pool_valid(r->pool, token) && !specrt__pool_member(r->pool, token);
    r->n_cycles++;
    cycle->stats->n_events += event;
    specrt__retrieve_take(r);
    if (r->posted - r->taken < r->n_records)
        specrt__retrieve_write(r, verdict, cycle->rows, event);
    else
        cycle->stats->n_lost += event;
    if (!r->params.async) {
        specrt__retrieve_work(r, r->done);
        r->limit = r->done;
        specrt__retrieve_take(r);
    } else if (specrt__os_load(&r->done) == r->limit && specrt__retrieve_due(r)) {
        r->limit = r->posted;
        r->due = false;
        r->task.run = specrt__retrieve_run;
        r->submit(r->submit_user, &r->task);
    }
}

/* --- saved sessions --- */

/* The cache's lists by recency, and the ages of T1's tokens, then of T2's, in cycles since they came in. */
enum { SPECRT__RETRIEVE_SAVED_AGES = SPECRT__SAVED_RETRIEVAL - 1 };

static void specrt__retrieve_limits(const void *state, int32_t *most) {
    for (int i = 0; i <= (int)SPECRT__RETRIEVE_SAVED_AGES; i++)
        most[i] = ((const specrt__retrieve *)state)->arc.capacity;
}

/* Ages beyond the least residency, and events beyond the warm-up, are all alike. */
static void specrt__retrieve_save(const void *state, specrt__save *out) {
    const specrt__retrieve *r = (const specrt__retrieve *)state;
    const specrt__arc *a = &r->arc;
    int32_t n_events =
        r->n_events > SPECRT__RETRIEVE_WARM_UP ? SPECRT__RETRIEVE_WARM_UP + 1 : r->n_events;
    specrt__save_header(out, SPECRT__SAVED_P, &a->p, sizeof a->p);
    specrt__save_header(out, SPECRT__SAVED_EVENTS, &n_events, sizeof n_events);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_B2; list++) {
        specrt__save_word(out, a->sizes[list]);
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id])
            specrt__save_word(out, id);
    }
    specrt__save_word(out, a->sizes[SPECRT__ARC_T1] + a->sizes[SPECRT__ARC_T2]);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id]) {
            int32_t age = r->n_cycles - a->births[id];
            specrt__save_word(out, age < SPECRT__ARC_RESIDENCY ? age : SPECRT__ARC_RESIDENCY);
        }
}

/* @return what is wrong with words on their own, or NULL. */
static const char *specrt__retrieve_saved_wrong(const specrt__retrieve *r, const specrt__saved *in,
                                                double p) {
    const specrt__saved_list *ages = &in->lists[SPECRT__RETRIEVE_SAVED_AGES];
    uint32_t n_events = specrt__base_load32(in->header + SPECRT__SAVED_EVENTS);
    for (int i = 0; i < (int)SPECRT__RETRIEVE_SAVED_AGES; i++)
        if (!specrt__saved_within(&in->lists[i], r->arc.n_ids)) return "tokens";
    if (!specrt__saved_within(ages, SPECRT__ARC_RESIDENCY + 1) ||
        ages->n != in->lists[0].n + in->lists[1].n)
        return "ages";
    if (n_events > SPECRT__RETRIEVE_WARM_UP + 1) return "events";
    return p >= 0 && p <= r->arc.capacity ? NULL : "cache";
}

static const char *specrt__retrieve_load(void *state, const specrt__saved *in) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    const specrt__saved_list *ages = &in->lists[SPECRT__RETRIEVE_SAVED_AGES];
    specrt__arc *a = &r->arc;
    double p;
    memcpy(&p, in->header + SPECRT__SAVED_P, 8);
    const char *wrong = specrt__retrieve_saved_wrong(r, in, p);
    if (wrong) return wrong;
    for (int32_t id = 0; id < a->n_ids; id++) /* keep=on outlives begin */
        if (specrt__arc_resident(a, id)) specrt__pool_drop(r->pool, id, r->bit);
    specrt__arc_reset(a, p);
    specrt__retrieve_bar(r);
    r->n_cycles = SPECRT__ARC_RESIDENCY;
    r->n_events = (int32_t)specrt__base_load32(in->header + SPECRT__SAVED_EVENTS);
    r->n_blocked = 0;
    for (int list = SPECRT__ARC_T1, age = 0; list <= SPECRT__ARC_B2; list++) {
        const specrt__saved_list *ids = &in->lists[list - SPECRT__ARC_T1];
        for (int32_t i = 0; i < ids->n; i++) {
            int32_t id = specrt__saved_word(ids, i);
            if (a->lists[id] != SPECRT__ARC_NONE || r->offered[id] == SPECRT__RETRIEVE_NEVER)
                return "cache";
            specrt__arc_move(a, id, list);
            if (!specrt__arc_resident(a, id)) continue;
            a->births[id] = r->n_cycles - specrt__saved_word(ages, age++);
            specrt__pool_want(r->pool, id, r->bit);
        }
    }
    return NULL;
}

SPECRT__INTERNAL const specrt__source specrt__retrieve_source = {
    /* options = */ specrt__retrieve_options,
    /* n_options = */ SPECRT__RETRIEVE_OPTIONS,
    /* share = */ specrt__retrieve_share,
    /* unshare = */ specrt__retrieve_unshare,
    /* open = */ specrt__retrieve_open,
    /* close = */ specrt__retrieve_close,
    /* route = */ NULL,
    /* begin = */ specrt__retrieve_begin,
    /* prefill = */ specrt__retrieve_prefill,
    /* start = */ specrt__retrieve_start,
    /* observe = */ specrt__retrieve_observe,
    /* settle = */ specrt__retrieve_catch_up,
    /* n_lists = */ SPECRT__SAVED_RETRIEVAL,
    /* always_saved = */ true,
    /* limits = */ specrt__retrieve_limits,
    /* save = */ specrt__retrieve_save,
    /* load = */ specrt__retrieve_load,
};

#endif

// >>auto : src/adapt/auto.h
/* auto.h : the controller of draft length */

enum { SPECRT__AUTO_BINS = 8 };
#define SPECRT__AUTO_ONE    65536
#define SPECRT__AUTO_FORGET 6     /* counters halve in 44 observations */
#define SPECRT__AUTO_FIRST  39322 /* of a first token, before any was seen: 0.6 */
#define SPECRT__AUTO_COVER  62259 /* of a list: 0.95 */
#define SPECRT__AUTO_WEIGHT 4     /* of what is supposed, in observations */
#define SPECRT__AUTO_TRUST  16    /* the same of a drafter that is as right as the target is sure */
#define SPECRT__AUTO_ANSWER 256   /* tokens that an answer is supposed to have at most */
#define SPECRT__AUTO_LENT   (2 * SPECRT__AUTO_ONE) /* passes, once, to begin with */

/* Seen and hits in 1 / 65,536, so that forgetting does not round. */
typedef struct specrt__auto_tally {
    int32_t seen, hits;
} specrt__auto_tally;

struct specrt_auto {
    specrt_env env;
    int32_t num_steps, n_lists, rows[SPECRT_AUTO_MAX_LISTS]; /* rows[0] 0: the whole policy */
    int64_t costs[SPECRT_AUTO_MAX_LISTS][SPECRT_TREE_MAX_STEPS + 1];
    int64_t sunk[SPECRT_AUTO_MAX_LISTS]
                [SPECRT_TREE_MAX_STEPS + 1]; /* of costs, by a block's pass */
    double plain;                            /* a plain pass, in the unit of the costs */
    int64_t read;
    bool keeps_chains;
    specrt__auto_tally
        levels[SPECRT_TREE_MAX_STEPS]; /* accepted, of those reached that the list held */
    specrt__auto_tally covers[SPECRT_AUTO_MAX_LISTS]; /* held, of tokens emitted */
    specrt__auto_tally bins[SPECRT__AUTO_BINS]; /* accepted, of chain tokens by their probability */
    specrt__auto_tally sure[SPECRT__AUTO_BINS]; /* accepted, by the target's probability */
    int64_t paths[SPECRT_TREE_MAX_STEPS]; /* that the l tokens before this one were all drafted */
    int64_t balance;                      /* passes that drafting may still lose */
    int32_t waited, interval;             /* plain cycles since the last probe, and until */
    int32_t n_unread;                     /* tokens that the first pass reads, the prompt's apart */
    int64_t n_prompt, n_left;             /* of the prompt, unread; that may repay reading them */
    bool told;                            /* plain cycles come with the target's probabilities */
    bool skips;                           /* the next choice is a plain cycle, asked for */
    bool chosen, probes;                  /* of the cycle at hand */
    int32_t n_block;                      /* positions of its block; 0: there is none */
    specrt_auto_choice choice;
    int64_t rate;  /* tokens by pass that the best choice is thought to give */
    int64_t path;  /* that what is drafted is accepted */
    float logprob; /* of what is drafted */
    specrt_auto_stats stats;
};

/* An observation of some weight, at most 1, of which a share hit. */
static inline void specrt__auto_weigh(specrt__auto_tally *t, int64_t weight, int64_t share) {
    t->seen += (int32_t)(weight - (t->seen * weight >> (16 + SPECRT__AUTO_FORGET)));
    t->hits += (int32_t)((weight * share >> 16) - (t->hits * weight >> (16 + SPECRT__AUTO_FORGET)));
}

static inline void specrt__auto_count(specrt__auto_tally *t, bool hit) {
    specrt__auto_weigh(t, SPECRT__AUTO_ONE, hit ? SPECRT__AUTO_ONE : 0);
}

/* --- within a draft --- */

/* The pass of a block of n positions was made for the draft at hand. */
SPECRT__INTERNAL void specrt__auto_block(specrt_auto *a, int32_t n);

SPECRT__INTERNAL int32_t specrt__auto_bin(float before, float logprob);

// >>auto : src/adapt/auto.c
/* auto.c : owns counters of what was accepted and covered, the account of the guard, and what cycles cost.
 * Refuses tables that are no costs.
 *
 * Fixed point. A number x is kept as the whole number 65,536 x, and SPECRT__AUTO_ONE is 1: probabilities,
 * tokens, counters, costs in plain passes of the target, and rates in tokens by plain pass.
 *
 *     a b    a * b >> 16          a / b    a * SPECRT__AUTO_ONE / b
 *
 * Whole numbers give the same choices on every machine. Floats would not: a compiler may fuse a product
 * with a sum, and a choice between near equals would turn. (One comparison of doubles, in _pays(), has no
 * sum.) An observation adds its weight of at most 1 to a counter, which loses 1/64 of itself for each whole
 * one. So counters stay within 64, and half of a full one is of the last 44 observations. Of n seen with h
 * hits the rate is (h + w p) / (n + w): p is what is supposed, as if it had been seen w times.
 *
 * Nothing overflows 63 bits in texts of fewer than 2^26 tokens. A cost is at most a million passes (2^36
 * here) and at least 1 here, so a rate of at most 33 tokens by cost is below 2^38. The greatest product is
 * that of a prompt and what reading a token of it costs, 2^24 2^36. _gains() multiplies a rate by a cost
 * only where the cost is below 32 tokens, 2^21 here. */

#define SPECRT__AUTO_EXCESS 655 /* a cycle may cost 1% more than plain decoding */
#define SPECRT__AUTO_SAVED  (8 * SPECRT__AUTO_ONE) /* passes kept of what was gained */
#define SPECRT__AUTO_MARGIN 2048 /* by which drafts must beat plain decoding: 1 / 32, where told */
#define SPECRT__AUTO_LEAST  8    /* plain cycles between probes */
#define SPECRT__AUTO_MOST   512

static int64_t specrt__auto_rate_by(const specrt__auto_tally *t, int64_t supposed, int64_t weight) {
    weight *= SPECRT__AUTO_ONE;
    return (t->hits * (int64_t)SPECRT__AUTO_ONE + weight * supposed) / (t->seen + weight);
}

static int64_t specrt__auto_rate(const specrt__auto_tally *t, int64_t supposed) {
    return specrt__auto_rate_by(t, supposed, SPECRT__AUTO_WEIGHT);
}

/* Of a token that the list holds, accepted at a level (0: the first); deeper ones like those before them
 * until seen otherwise. */
static int64_t specrt__auto_next(const specrt_auto *a, int32_t level, int64_t before) {
    return specrt__auto_rate(&a->levels[level], level == 0 ? SPECRT__AUTO_FIRST : before);
}

/* --- the choice --- */

static int64_t specrt__auto_cost(const specrt_auto *a, int32_t list, int32_t n_steps) {
    return a->costs[list][n_steps] + (n_steps > 0 ? (a->n_unread - 1) * a->read : 0);
}

/* What the pass of a block has cost beyond the block of n_steps positions that costs know. */
static int64_t specrt__auto_spent(const specrt_auto *a, int32_t n_steps) {
    const int64_t *sunk = a->sunk[a->choice.list];
    if (a->n_block <= n_steps) return 0;
    return sunk[a->n_block] - sunk[n_steps] + (n_steps == 0 ? (a->n_unread - 1) * a->read : 0);
}

/* Reading the prompt, once, before the first draft. */
static int64_t specrt__auto_prompt(const specrt_auto *a) {
    return a->n_prompt * a->read;
}

/* Tokens by cost of drafts of 1, 2, ... levels from a list, as long as acceptance stays as it was lately. */
static void specrt__auto_rates(const specrt_auto *a, int32_t list,
                               int64_t rates[SPECRT_TREE_MAX_STEPS + 1]) {
    int64_t cover = specrt__auto_rate(&a->covers[list], SPECRT__AUTO_COVER);
    int64_t reached = SPECRT__AUTO_ONE, tokens = SPECRT__AUTO_ONE, next = 0;
    if (a->n_lists == 1) cover = SPECRT__AUTO_ONE; /* then levels count all */
    for (int32_t n = 1; n <= a->num_steps; n++) {
        next = specrt__auto_next(a, n - 1, next);
        reached = reached * (next * cover >> 16) >> 16;
        tokens += reached;
        rates[n] = tokens * SPECRT__AUTO_ONE / a->costs[list][n];
    }
}

/* The list and depth that emit most by cost. */
static void specrt__auto_best(specrt_auto *a) {
    int64_t rates[SPECRT_TREE_MAX_STEPS + 1];
    a->rate = 0;
    for (int32_t list = 0; list < a->n_lists; list++) {
        specrt__auto_rates(a, list, rates);
        for (int32_t n = 1; n <= a->num_steps; n++) {
            if (rates[n] <= a->rate) continue;
            a->rate = rates[n];
            a->choice.list = list;
            a->choice.num_steps = n;
        }
    }
}

/* A draft of which nothing is accepted must leave the account above 0; none that pays less than plain
 * decoding is taken for one that does. */
static int32_t specrt__auto_afford(const specrt_auto *a, int32_t n_steps, bool pays) {
    int64_t most = a->balance + SPECRT__AUTO_ONE + SPECRT__AUTO_EXCESS;
    int64_t rates[SPECRT_TREE_MAX_STEPS + 1];
    if (!pays) most -= specrt__auto_prompt(a);
    if (n_steps == 0 || specrt__auto_cost(a, a->choice.list, n_steps) <= most) return n_steps;
    specrt__auto_rates(a, a->choice.list, rates);
    for (n_steps--; n_steps > 0; n_steps--)
        if (specrt__auto_cost(a, a->choice.list, n_steps) <= most &&
            (!pays || rates[n_steps] > SPECRT__AUTO_ONE))
            return n_steps;
    return 0;
}

/* Tokens that the answer may have after those emitted while the prompt is unread: at most four times as many,
 * as most answers end long before their limit, and as rates are those of earlier texts at first. */
static int64_t specrt__auto_ahead(const specrt_auto *a) {
    int64_t most = 4 * (int64_t)(a->n_unread - 1);
    return a->n_left < most ? a->n_left : most;
}

/* What the drafter must read first is to pay within 64 passes, and the prompt within the answer: at a rate r,
 * n tokens save n (1 - 1 / r) passes. Where plain cycles tell when to begin again, a doubt is no reason to
 * draft. */
static bool specrt__auto_pays(const specrt_auto *a) {
    int64_t least = SPECRT__AUTO_ONE + ((a->n_unread - 1) * a->read >> SPECRT__AUTO_FORGET);
    int64_t prompt = specrt__auto_prompt(a);
    if (a->told) least += SPECRT__AUTO_MARGIN;
    if (a->rate <= least) return false;
    return prompt == 0 || (double)specrt__auto_ahead(a) * (double)(a->rate - SPECRT__AUTO_ONE) >
                              (double)prompt * (double)a->rate / SPECRT__AUTO_ONE;
}

SPECRT_API void specrt_auto_choose(specrt_auto *a, specrt_auto_choice *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!a || !out) return;
    if (!a->chosen) {
        specrt__auto_best(a);
        bool pays = specrt__auto_pays(a);
        int32_t n_steps = pays ? a->num_steps : a->choice.num_steps;
        if (pays)
            a->interval = SPECRT__AUTO_LEAST;
        else if (a->waited < (a->told ? SPECRT__AUTO_MOST : a->interval))
            n_steps = 0;
        if (a->skips) n_steps = 0;
        a->skips = false;
        a->choice.num_steps = specrt__auto_afford(a, n_steps, pays);
        a->probes = !pays && a->choice.num_steps > 0;
        a->path = SPECRT__AUTO_ONE;
        a->logprob = 0;
        a->chosen = true;
    }
    *out = a->choice;
}

/* --- within a draft --- */

/* By a token's probability in the list, from unlikely to sure. */
static const float specrt__auto_edges[SPECRT__AUTO_BINS - 1] = {
    -2.9957323f, -2.0794415f, -1.3862944f, -0.9162907f, -0.5108256f, -0.2231435f, -0.0512933f};
static const int32_t specrt__auto_middles[SPECRT__AUTO_BINS] = {1638,  5734,  12288, 21299,
                                                                32768, 45875, 57344, 63897};

/* The bin of a token, -1 where it has no probability. */
SPECRT__INTERNAL int32_t specrt__auto_bin(float before, float logprob) {
    float x = logprob - before;
    int32_t bin = 0;
    if (x != x) return -1;
    while (bin < SPECRT__AUTO_BINS - 1 && x >= specrt__auto_edges[bin]) bin++;
    return bin;
}

/* Whether any number of further levels emits more than their time would elsewhere. The positions of a block
 * were computed together: more of them cost their scoring and the target's nodes alone. */
static int specrt__auto_gains(const specrt_auto *a, int32_t n) {
    int64_t cover = specrt__auto_rate(&a->covers[a->choice.list], SPECRT__AUTO_COVER);
    int64_t rate = a->rate > SPECRT__AUTO_ONE ? a->rate : SPECRT__AUTO_ONE, reached = a->path;
    const int64_t *costs = a->costs[a->choice.list], *sunk = a->sunk[a->choice.list];
    int64_t gain = 0, next = 0;
    if (a->n_lists == 1) cover = SPECRT__AUTO_ONE;
    for (int32_t i = 0; i < n; i++) next = specrt__auto_next(a, i, next);
    for (int32_t i = n; i < a->choice.num_steps; i++) {
        int64_t more = costs[i + 1] - costs[n];
        if (a->n_block > 0) more -= sunk[i + 1] - sunk[n];
        next = specrt__auto_next(a, i, next);
        reached = reached * (next * cover >> 16) >> 16;
        gain += reached;
        /* gain / more > rate, which is 1 or more. */
        if (more < gain && (more < 0 || gain * SPECRT__AUTO_ONE > rate * more)) return 1;
    }
    return 0;
}

SPECRT__INTERNAL void specrt__auto_block(specrt_auto *a, int32_t n) {
    if (a) a->n_block = n < a->num_steps ? n : a->num_steps;
}

SPECRT_API int specrt_auto_should_continue(specrt_auto *a, int32_t n, float logprob) {
    if (!a) return 0;
    int32_t bin = specrt__auto_bin(a->logprob, logprob);
    if (n < 1 || n >= a->choice.num_steps) return 0;
    if (a->probes) return 1;
    if (bin >= 0)
        a->path = a->path * specrt__auto_rate(&a->bins[bin], specrt__auto_middles[bin]) >> 16;
    else
        a->path = a->path * specrt__auto_rate(&a->levels[n - 1], SPECRT__AUTO_FIRST) >> 16;
    a->logprob = logprob;
    return specrt__auto_gains(a, n);
}

/* --- a cycle --- */

/* Whether the chosen list holds emitted token i. */
static bool specrt__auto_holds(const specrt_auto *a, const specrt_auto_cycle *c, int32_t i) {
    return a->n_lists == 1 || !c->lists || c->lists[i] <= a->choice.list;
}

/* The bin of emitted token i by the target's probability, -1 where that is not known. */
static int32_t specrt__auto_sureness(const specrt_auto_cycle *c, int32_t i) {
    return c->target_logprobs ? specrt__auto_bin(0, c->target_logprobs[i]) : -1;
}

/* A plain token, with which a draft might have begun, or which it might have reached from one of those
 * before it: each level sees it as far as they would have been accepted. */
static void specrt__auto_suppose(specrt_auto *a, const specrt_auto_cycle *c) {
    int32_t bin = specrt__auto_sureness(c, 0);
    bool held = specrt__auto_holds(a, c, 0);
    int64_t share = 0;
    a->told = bin >= 0;
    if (!a->told) return;
    if (held)
        share = specrt__auto_rate_by(&a->sure[bin], specrt__auto_middles[bin], SPECRT__AUTO_TRUST);
    a->paths[0] = SPECRT__AUTO_ONE;
    for (int32_t i = 0; i < a->num_steps && held; i++)
        specrt__auto_weigh(&a->levels[i], a->paths[i], share);
    for (int32_t i = a->num_steps - 1; i > 0; i--) a->paths[i] = a->paths[i - 1] * share >> 16;
}

static void specrt__auto_learn(specrt_auto *a, const specrt_auto_cycle *c) {
    for (int32_t i = 0; c->lists && i <= c->n_accepted; i++)
        for (int32_t list = 0; list < a->n_lists; list++)
            specrt__auto_count(&a->covers[list], c->lists[i] <= list);
    for (int32_t i = 0; i < c->n_passes && i <= c->n_accepted; i++) {
        bool hit = i < c->n_accepted;
        int32_t bin = -1;
        if (c->logprobs) bin = specrt__auto_bin(i > 0 ? c->logprobs[i - 1] : 0, c->logprobs[i]);
        if (bin >= 0) specrt__auto_count(&a->bins[bin], hit);
        if (!specrt__auto_holds(a, c, i)) continue;
        specrt__auto_count(&a->levels[i], hit);
        bin = specrt__auto_sureness(c, i);
        if (bin >= 0) specrt__auto_count(&a->sure[bin], hit);
    }
    if (c->n_passes == 0)
        specrt__auto_suppose(a, c);
    else
        memset(a->paths, 0, sizeof a->paths);
}

/* A probe that gave something is followed by another. */
static void specrt__auto_wait(specrt_auto *a, const specrt_auto_cycle *c) {
    if (c->n_passes == 0) {
        a->waited++;
    } else if (a->probes && c->n_accepted == 0) {
        a->waited = 0;
        a->interval = 2 * a->interval < SPECRT__AUTO_MOST ? 2 * a->interval : SPECRT__AUTO_MOST;
    }
}

SPECRT_API specrt_status specrt_auto_observe(specrt_auto *a, const specrt_auto_cycle *c) {
    specrt_auto_choice choice;
    if (!a || !c || c->n_passes < 0 || c->n_passes > a->num_steps || c->n_accepted < 0 ||
        c->n_accepted > c->n_passes)
        return SPECRT_STATUS_BAD_ARG;
    specrt_auto_choose(a, &choice);
    const bool drafts = c->n_passes > 0 || a->n_block > 0;
    int64_t cost =
        specrt__auto_cost(a, choice.list, c->n_passes) + specrt__auto_spent(a, c->n_passes);
    specrt__auto_learn(a, c);
    specrt__auto_wait(a, c);
    a->stats.n_cycles++;
    a->stats.n_emitted += c->n_accepted + 1;
    a->stats.n_plain += c->n_passes == 0;
    a->stats.n_probes += a->probes && c->n_passes > 0;
    a->stats.n_passes += c->n_passes;
    a->stats.cost += (double)cost / SPECRT__AUTO_ONE;
    if (drafts) {
        a->stats.cost += (double)specrt__auto_prompt(a) / SPECRT__AUTO_ONE;
        a->n_prompt = 0;
    }
    a->n_left = a->n_left > c->n_accepted + 1 ? a->n_left - c->n_accepted - 1 : 0;
    a->balance += (c->n_accepted + 1) * (int64_t)(SPECRT__AUTO_ONE + SPECRT__AUTO_EXCESS) - cost;
    if (a->balance > SPECRT__AUTO_SAVED) a->balance = SPECRT__AUTO_SAVED;
    if (!drafts)
        a->n_unread++;
    else if (a->keeps_chains)
        a->n_unread = c->n_accepted == c->n_passes ? 2 : 1;
    else
        a->n_unread = c->n_accepted + 1;
    a->chosen = false;
    a->n_block = 0;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_auto_begin(specrt_auto *a) {
    if (!a) return;
    a->n_unread = 1;
    a->n_prompt = a->n_left = 0;
    if (!a->told) a->waited = a->interval; /* another text: look again */
    memset(a->paths, 0, sizeof a->paths);
    a->chosen = false;
    a->n_block = 0;
}

SPECRT_API void specrt_auto_unread(specrt_auto *a, int64_t n, int64_t n_left) {
    if (!a || n < 0) return;
    a->n_prompt = n < SPECRT_MAX_VOCAB ? n : SPECRT_MAX_VOCAB; /* sums of costs fit */
    a->n_left = n_left > 0 && n_left < SPECRT__AUTO_ANSWER ? n_left : SPECRT__AUTO_ANSWER;
    a->chosen = false;
}

SPECRT_API void specrt_auto_get_stats(const specrt_auto *a, specrt_auto_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (a && out) *out = a->stats;
}

/* --- from costs --- */

static specrt_status specrt__auto_refuse(const char *field, const char *expected, double found,
                                         specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "auto: %s: expected %s, found %g", field,
                            expected, found);
}

/* In plain passes; at most so many that sums of them fit. */
static bool specrt__auto_passes(double cost, double plain, int64_t *out) {
    double passes = cost / plain;
    if (!(passes >= 0 && passes <= 1e6)) return false;
    *out = (int64_t)(passes * SPECRT__AUTO_ONE + 0.5);
    return true;
}

static specrt_status specrt__auto_take_costs(specrt_auto *a, const specrt_auto_desc *d,
                                             specrt_error *err) {
    double plain = d->costs ? d->costs[0] : 0;
    if (!(plain > 0)) return specrt__auto_refuse("costs[0]", "a plain pass's, above 0", plain, err);
    for (int32_t list = 0; list < d->n_lists; list++)
        for (int32_t n = 0; n <= d->num_steps; n++) {
            double cost = d->costs[list * (d->num_steps + 1) + n];
            int64_t *out = &a->costs[list][n];
            if (!specrt__auto_passes(n ? cost : plain, plain, out) || *out == 0)
                return specrt__auto_refuse("costs", "above 0, at most a million plain passes", cost,
                                           err);
        }
    a->plain = plain;
    if (specrt__auto_passes(d->read, plain, &a->read)) return SPECRT_STATUS_OK;
    return specrt__auto_refuse("read", "0 to a million plain passes", d->read, err);
}

SPECRT_API specrt_status specrt_auto_set_costs(specrt_auto *a, const double *costs, double read,
                                               specrt_error *err) {
    SPECRT__NEED(a);
    SPECRT__NEED(costs);
    specrt_auto was = *a;
    specrt_auto_desc desc;
    SPECRT__CLEAR(&desc, 1);
    desc.num_steps = a->num_steps;
    desc.n_lists = a->n_lists;
    desc.costs = costs;
    desc.read = read;
    specrt_status status = specrt__auto_take_costs(a, &desc, err);
    if (status != SPECRT_STATUS_OK) *a = was;
    return status;
}

SPECRT_API specrt_status specrt_auto_set_sunk(specrt_auto *a, const double *sunk,
                                              specrt_error *err) {
    SPECRT__NEED(a);
    SPECRT__NEED(sunk);
    specrt_auto was = *a;
    for (int32_t list = 0; list < a->n_lists; list++)
        for (int32_t n = 0; n <= a->num_steps; n++) {
            double spent = *sunk++;
            int64_t *out = &a->sunk[list][n], most = n ? a->costs[list][n] : 0;
            if (specrt__auto_passes(spent, a->plain, out) && *out <= most) continue;
            *a = was;
            return specrt__auto_refuse("sunk", "0 to the cost, 0 without a draft", spent, err);
        }
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_auto_skip(specrt_auto *a) {
    if (a) a->skips = true;
}

static specrt_status specrt__auto_take(specrt_auto *a, const specrt_auto_desc *d,
                                       specrt_error *err) {
    if (d->num_steps < 1 || d->num_steps > SPECRT_TREE_MAX_STEPS)
        return specrt__auto_refuse("num_steps", "1 to 32", d->num_steps, err);
    if (d->n_lists < 1 || d->n_lists > SPECRT_AUTO_MAX_LISTS || (d->n_lists > 1 && !d->rows))
        return specrt__auto_refuse("n_lists", "1 to 8, and rows where above 1", d->n_lists, err);
    for (int32_t i = 0; d->rows && i < d->n_lists; i++) {
        if (d->rows[i] <= (i ? d->rows[i - 1] : 0))
            return specrt__auto_refuse("rows", "above 0, ascending", d->rows[i], err);
        a->rows[i] = d->rows[i];
    }
    a->num_steps = d->num_steps;
    a->n_lists = d->n_lists;
    a->keeps_chains = d->keeps_chains != 0;
    a->balance = SPECRT__AUTO_LENT;
    a->interval = SPECRT__AUTO_LEAST;
    specrt_auto_begin(a);
    return specrt__auto_take_costs(a, d, err);
}

SPECRT_API specrt_status specrt_auto_create(const specrt_auto_desc *desc, const specrt_env *env,
                                            specrt_auto **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(desc);
    specrt_auto *a = (specrt_auto *)specrt__base_alloc(&own, sizeof *a);
    if (!a) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "auto: out of memory");
    SPECRT__CLEAR(a, 1);
    a->env = own;
    specrt_status status = specrt__auto_take(a, desc, err);
    if (status == SPECRT_STATUS_OK)
        *out = a;
    else
        specrt_auto_close(a);
    return status;
}

SPECRT_API void specrt_auto_close(specrt_auto *a) {
    if (!a) return;
    specrt_env env = a->env;
    specrt__base_free(&env, a);
}

// >>policy : src/decode/policy.h
/* policy.h : a policy, parsed and made */

/* The table of sources, one line per source, in the order in which a sum covers tokens and is printed. A
 * line is the name of the number, then the members of specrt__policy_kind. A program adds lines of its own
 * by SPECRT__MORE_SOURCES: examples/own_source.h shows how. */
#define SPECRT__POLICY_TABLE(SOURCE)                                                               \
    SOURCE(FULL, "full", 0, 0, NULL, false, false)                                                 \
    SOURCE(STATIC, "static", SPECRT__RANKS_MAX_LEVELS, 0, NULL, false, false)                      \
    SOURCE(WINDOW, "window", 1, 3072, &specrt__window_source, false, false)                        \
    SOURCE(RETRIEVE, "retrieve", 1, 256, &specrt__retrieve_source, false, false)                   \
    SOURCE(CLUSTER, "cluster", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_source), true, true)     \
    SOURCE(GROUP, "group", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_groups), true, true)         \
    SOURCE(CENTROID, "centroid", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_centroids), true,      \
           true)                                                                                   \
    SOURCE(SUCCESSOR, "successor", 1, 1024, SPECRT__POLICY_LARGE(specrt__successor_source), false, \
           false)                                                                                  \
    SOURCE(SKETCH, "sketch", 1, 512, SPECRT__POLICY_LARGE(specrt__sketch_source), true, false)     \
    SPECRT__MORE_SOURCES(SOURCE)
#if !defined(SPECRT__MORE_SOURCES)
#define SPECRT__MORE_SOURCES(SOURCE)
#endif

#define SPECRT__POLICY_NUMBER(NAME, ...) SPECRT__POLICY_##NAME,
enum { SPECRT__POLICY_TABLE(SPECRT__POLICY_NUMBER) SPECRT__POLICY_KINDS };
/* Sources of a policy at most, whatever the table has: a program's own lines change no struct. */
enum { SPECRT__POLICY_MAX_SOURCES = SPECRT__POOL_MAX_SOURCES };
enum { SPECRT__POLICY_MAX_TEXT = 1024 }; /* as much as a trace keeps */

typedef struct specrt__policy_kind {
    const char *name;
    int32_t n_sizes;              /* it may be given: one for each level, or one for all, or none */
    int32_t size;                 /* when the text names none; 0: as calibrated */
    const specrt__source *source; /* NULL: its rows are fixed */
    bool of_head;                 /* its section was made of the very head that drafts */
    bool takes_share;             /* N% for a size: of its clusters */
} specrt__policy_kind;

static inline int specrt__policy_n_options(const specrt__policy_kind *kind) {
    return kind->source ? kind->source->n_options : 0;
}

typedef struct specrt__policy_source {
    bool present;
    int32_t size;     /* of the first level, or of all; below 0 a list's at most, or a share in % */
    int32_t n_levels; /* 0: all are alike */
    int32_t levels[SPECRT__RANKS_MAX_LEVELS];
    int32_t options[SPECRT__SOURCE_MAX_OPTIONS];
} specrt__policy_source;

typedef struct specrt__policy_spec {
    specrt__policy_source sources[SPECRT__POLICY_KINDS];
} specrt__policy_spec;

/* --- parsing --- */

SPECRT__INTERNAL specrt_status specrt__policy_parse(const char *text, specrt__policy_spec *out,
                                                    specrt_error *err);

/* --- printing --- */

SPECRT__INTERNAL void specrt__policy_print(const specrt__policy_spec *spec, char *text);

/* --- what sessions share --- */

struct specrt_policy {
    specrt_env env;
    specrt_policy_info info;
    specrt_shortlist shortlist; /* of a policy that never changes */
    const specrt_head *head;
    char text[SPECRT__POLICY_MAX_TEXT];
    int32_t n_vocab, bound;
    specrt__ranks_list *list; /* owned; NULL where no row is packed for all */
    int32_t *full_ids;        /* owned; NULL but for `full` over rows without ids */
    specrt_segment fixed;     /* n_rows = 0: none */
    /* In the order of specrt__policy_kinds, but for a static list of several sizes, which is the first. */
    int32_t n_sources;
    struct {
        int kind; /* of specrt__policy_kinds */
        const specrt__source *source;
        specrt__source_shared shared;
    } sources[SPECRT__POLICY_MAX_SOURCES];
    bool in_head;                      /* those are not packed, but read in the head */
    int32_t packed_bound;              /* rows that sources pack at most */
    int32_t routed_bound;              /* rows that sources add to a level at most */
    const int32_t *frequent, *invalid; /* by rank, borrowed from the bundle, or NULL */
    int32_t n_frequent, n_invalid;
    /* all of them, and those to pack: rows that no fixed segment holds */
    int32_t n_ends, n_terminators;
    int32_t ends[SPECRT_MAX_TERMINATORS], terminators[SPECRT_MAX_TERMINATORS];
};

/* The place of a kind among the policy's sources, or -1. */
static inline int specrt__policy_find(const specrt_policy *policy, int kind) {
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].kind == kind) return i;
    return -1;
}

/* What sessions share of a source, or NULL. */
static inline const void *specrt__policy_shared(const specrt_policy *policy, int kind) {
    int i = specrt__policy_find(policy, kind);
    return i < 0 ? NULL : policy->sources[i].shared.data;
}

// >>policy_text : src/decode/policy_text.c
/* policy_text.c : owns the text of a policy: its sources, presets and options, parsed and printed. Refuses
 * texts that are no policy. */

/* Sources of the table that a small program leaves out. Its saved sessions have lists of `retrieve` all the
 * same. */
#if defined(SPECRT_SMALL)
static const specrt__source specrt__policy_without = {
    SPECRT__SOURCE_HAS_NO_OPTIONS, SPECRT__SOURCE_IS_LEFT_OUT, SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING};
static const specrt__source specrt__retrieve_source = {SPECRT__SOURCE_HAS_NO_OPTIONS,
                                                       SPECRT__SOURCE_IS_LEFT_OUT,
                                                       SPECRT__SOURCE_LEARNS_NOTHING,
                                                       /* n_lists = */ SPECRT__SAVED_RETRIEVAL,
                                                       /* always_saved = */ true,
                                                       NULL,
                                                       NULL,
                                                       NULL};
#define SPECRT__POLICY_LARGE(source) &specrt__policy_without
#else
#define SPECRT__POLICY_LARGE(source) &source
#endif

#define SPECRT__POLICY_KIND(NAME, ...) {__VA_ARGS__},
SPECRT__INTERNAL const specrt__policy_kind specrt__policy_kinds[SPECRT__POLICY_KINDS] = {
    SPECRT__POLICY_TABLE(SPECRT__POLICY_KIND)};

typedef char
    specrt__policy_kinds_fit[(int)SPECRT__POLICY_KINDS <= (int)SPECRT__POLICY_MAX_SOURCES ? 1 : -1];

typedef struct specrt__policy_preset {
    const char *name;
    int kind;
    int32_t size;
    const char *rest; /* its options, and further sources */
} specrt__policy_preset;

/* Sizes of papers, below 0: lists are no longer than there are tokens. CORAL's 32k of 128,256 rows are a
 * quarter of the clusters. DynaSpec's 27.3k are 21.3%, the mean of six levels, of which the first has 52%. */
static const specrt__policy_preset specrt__policy_presets[] = {
    {"frspec", SPECRT__POLICY_STATIC, -32768, ""},
    {"vocabtrim", SPECRT__POLICY_STATIC, -32768, ""},
    {"microspec", SPECRT__POLICY_WINDOW, 3072, "@kver=8@positions=tree@min=3072"},
    {"microspec-paper", SPECRT__POLICY_WINDOW, 3072,
     "@mode=stream@kpre=3@positions=last@emitted=off@min=0"},
    {"hybrid", SPECRT__POLICY_WINDOW, 3072, "+successor:256+sketch:256"},
    {"evospec", SPECRT__POLICY_STATIC, 0, "+retrieve:256"},
    {"evospec-paper", SPECRT__POLICY_STATIC, -32000, "+retrieve:256@sem=hnsw_h"},
    {"dynaspec", SPECRT__POLICY_CLUSTER, 0, ""},
    {"dynaspec-paper", SPECRT__POLICY_CLUSTER, -52, "@schedule=harmonic@beam=per_row@always=0"},
    {"coral", SPECRT__POLICY_GROUP, 0, ""},
    {"coral-paper", SPECRT__POLICY_GROUP, -25, "@schedule=flat@beam=per_row@always=0"},
};
enum { SPECRT__POLICY_PRESETS = sizeof specrt__policy_presets / sizeof specrt__policy_presets[0] };

/* As texts have it; "": as calibrated. */
static const char *specrt__policy_size(int kind, int32_t size, char number[16]) {
    bool share = size < 0 && specrt__policy_kinds[kind].takes_share;
    snprintf(number, 16, ":%d%s", (int)(size < 0 ? -size : size), share ? "%" : "");
    return size == 0 ? "" : number;
}

#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
/* By [graph][sketch]. */
static const char *const specrt__policy_untried[2][2] = {
    {"microspec", "window+sketch:256"},
    {"static:512+window+successor:256", "hybrid"},
};

SPECRT_API const char *specrt_policy_preset(int32_t i, char *text, size_t size) {
    if (i < 0 || i >= SPECRT__POLICY_PRESETS) return NULL;
    const specrt__policy_preset *preset = &specrt__policy_presets[i];
    char number[16];
    if (text && size)
        snprintf(text, size, "%s%s%s", specrt__policy_kinds[preset->kind].name,
                 specrt__policy_size(preset->kind, preset->size, number), preset->rest);
    return preset->name;
}

SPECRT_API const char *specrt_policy_untried(int has_graph, int has_sketch) {
    return specrt__policy_untried[has_graph != 0][has_sketch != 0];
}
#endif

/* --- parsing --- */

typedef struct specrt__policy_parser {
    const char *text, *at;
    specrt_error *err;
} specrt__policy_parser;

/* The length of the word at a place. */
static int specrt__policy_word(const char *at) {
    return (int)strcspn(at, "+:/@=");
}

/* The length of a name, which a blank ends where others follow it. */
static int specrt__policy_name(const char *name) {
    return (int)strcspn(name, " ");
}

static bool specrt__policy_is(const char *at, const char *name) {
    int n = specrt__policy_word(at);
    return specrt__policy_name(name) == n && strncmp(at, name, (size_t)n) == 0;
}

static specrt_status specrt__policy_fail(const specrt__policy_parser *p, const char *expected) {
    int n = specrt__policy_word(p->at);
    if (n == 0 && *p->at) n = 1; /* a delimiter */
    if (n > 40) n = 40;
    return specrt_error_set(
        p->err, SPECRT_STATUS_BAD_ARG, "policy '%.100s': position %d: expected %s, found %s%.*s%s",
        p->text, (int)(p->at - p->text) + 1, expected, n ? "'" : "the end", n, p->at, n ? "'" : "");
}

/* The decimal number of the next n characters, within limits. */
static specrt_status specrt__policy_digits(specrt__policy_parser *p, int n, int32_t least,
                                           int32_t most, int32_t *out) {
    char expected[64];
    int64_t value = 0;
    bool good = n > 0 && n <= 10;
    for (int i = 0; i < n && good; i++) {
        good = p->at[i] >= '0' && p->at[i] <= '9';
        value = 10 * value + (p->at[i] - '0');
    }
    if (!good || value < least || value > most) {
        snprintf(expected, sizeof expected, "a number from %d to %d", (int)least, (int)most);
        return specrt__policy_fail(p, expected);
    }
    *out = (int32_t)value;
    p->at += n;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_number(specrt__policy_parser *p, int32_t least, int32_t most,
                                           int32_t *out) {
    return specrt__policy_digits(p, specrt__policy_word(p->at), least, most, out);
}

/* :N%, below 0. */
static specrt_status specrt__policy_share_of(specrt__policy_parser *p, int32_t *size) {
    p->at++;
    SPECRT__TRY(specrt__policy_digits(p, specrt__policy_word(p->at) - 1, 1, 100, size));
    *size = -*size;
    p->at++;
    return SPECRT_STATUS_OK;
}

/* :N, or :N/M/... for level by level; what only repeats the last is left out. */
static specrt_status specrt__policy_sizes(specrt__policy_parser *p, const specrt__policy_kind *kind,
                                          specrt__policy_source *source) {
    int32_t n = 0, *levels = source->levels, most = kind->n_sizes;
    if (kind->takes_share && p->at[specrt__policy_word(p->at + 1)] == '%')
        return specrt__policy_share_of(p, &source->size);
    do {
        p->at++;
        if (n == most) return specrt__policy_fail(p, "no more sizes");
        SPECRT__TRY(specrt__policy_number(p, 1, SPECRT_MAX_VOCAB, &levels[n++]));
    } while (*p->at == '/' && most > 1);
    source->size = levels[0];
    while (n > 1 && levels[n - 1] == levels[n - 2]) levels[--n] = 0;
    if (n == 1) levels[--n] = 0;
    source->n_levels = n;
    return SPECRT_STATUS_OK;
}

/* Adds a name to a list "a, b or c"; `left` names follow it. */
static void specrt__policy_list(char *text, size_t size, const char *name, int left) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%.*s%s", specrt__policy_name(name), name,
             left > 1    ? ", "
             : left == 1 ? " or "
                         : "");
}

/* The value's name and those that follow it; NULL: it has none. */
static const char *specrt__policy_value_name(const specrt__source_option *option, int32_t value) {
    const char *name = option->names;
    for (; name && value > 0; value--) {
        name = strchr(name, ' ');
        if (name) name++;
    }
    return name;
}

/* What stands after `key=`. */
static specrt_status specrt__policy_value(specrt__policy_parser *p,
                                          const specrt__source_option *option, int32_t *out) {
    char expected[128] = "";
    int32_t n = 0;
    if (!option->names) return specrt__policy_number(p, option->least, option->most, out);
    while (specrt__policy_value_name(option, n)) n++;
    for (int32_t i = 0; i < n; i++) {
        const char *name = specrt__policy_value_name(option, i);
        if (!specrt__policy_is(p->at, name)) {
            specrt__policy_list(expected, sizeof expected, name, (int)(n - 1 - i));
            continue;
        }
        *out = i;
        p->at += specrt__policy_word(p->at);
        return SPECRT_STATUS_OK;
    }
    return specrt__policy_fail(p, expected);
}

static specrt_status specrt__policy_no_option(const specrt__policy_parser *p,
                                              const specrt__policy_kind *kind) {
    char expected[200] = "";
    int n = specrt__policy_n_options(kind);
    if (n == 0) return specrt__policy_fail(p, "no option for this source");
    for (int i = 0; i < n; i++)
        specrt__policy_list(expected, sizeof expected, kind->source->options[i].key, n - 1 - i);
    return specrt__policy_fail(p, expected);
}

/* Any number of @key=value. */
static specrt_status specrt__policy_parse_options(specrt__policy_parser *p,
                                                  const specrt__policy_kind *kind, int32_t *out) {
    unsigned seen = 0;
    while (*p->at == '@') {
        int i = 0, n = specrt__policy_n_options(kind);
        p->at++;
        while (i < n && !specrt__policy_is(p->at, kind->source->options[i].key)) i++;
        if (i == n) return specrt__policy_no_option(p, kind);
        if (seen >> i & 1) return specrt__policy_fail(p, "each option once");
        seen |= 1u << i;
        p->at += specrt__policy_word(p->at);
        if (*p->at != '=') return specrt__policy_fail(p, "'='");
        p->at++;
        SPECRT__TRY(specrt__policy_value(p, &kind->source->options[i], &out[i]));
    }
    return SPECRT_STATUS_OK;
}

/* A text that other programs understand. */
static specrt_status specrt__policy_left_out(const specrt__policy_parser *p, int kind) {
    return specrt_error_set(
        p->err, SPECRT_STATUS_UNSUPPORTED,
        "policy '%.100s': position %d: expected full, static or window, found '%s'; compile "
        "specrt.h without SPECRT_SMALL",
        p->text, (int)(p->at - p->text) + 1, specrt__policy_kinds[kind].name);
}

/* The source that a word begins, with its defaults. */
static specrt_status specrt__policy_begin(specrt__policy_parser *p, specrt__policy_spec *spec,
                                          int kind, int32_t size, specrt__policy_source **out) {
    specrt__policy_source *source = &spec->sources[kind];
    bool first = true;
    for (int i = 0; i < (int)SPECRT__POLICY_KINDS; i++) first = first && !spec->sources[i].present;
    if (specrt__policy_kinds[kind].source && !specrt__policy_kinds[kind].source->share)
        return specrt__policy_left_out(p, kind);
    if (source->present) return specrt__policy_fail(p, "each source once");
    if (!first && (kind == SPECRT__POLICY_FULL || spec->sources[SPECRT__POLICY_FULL].present))
        return specrt__policy_fail(p, "'full' without other sources, because it has every token");
    source->present = true;
    source->size = size;
    for (int i = 0; i < specrt__policy_n_options(&specrt__policy_kinds[kind]); i++)
        source->options[i] = specrt__policy_kinds[kind].source->options[i].value;
    *out = source;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_parse_source(specrt__policy_parser *p,
                                                 specrt__policy_spec *spec);

static specrt_status specrt__policy_parse_preset(specrt__policy_parser *p,
                                                 const specrt__policy_preset *preset,
                                                 specrt__policy_spec *spec) {
    specrt__policy_source *source;
    specrt__policy_parser rest = {preset->rest, preset->rest, p->err};
    SPECRT__TRY(specrt__policy_begin(p, spec, preset->kind, preset->size, &source));
    p->at += specrt__policy_word(p->at);
    if (*p->at && *p->at != '+')
        return specrt__policy_fail(p, "'+' or the end, since a preset takes no size or options");
    SPECRT__TRY(
        specrt__policy_parse_options(&rest, &specrt__policy_kinds[preset->kind], source->options));
    while (*rest.at == '+') {
        rest.at++;
        SPECRT__TRY(specrt__policy_parse_source(&rest, spec));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_no_source(const specrt__policy_parser *p) {
    char expected[300] = "";
    int n_presets = SPECRT__POLICY_PRESETS;
    for (int i = 0; i < (int)SPECRT__POLICY_KINDS; i++)
        specrt__policy_list(expected, sizeof expected, specrt__policy_kinds[i].name,
                            (int)SPECRT__POLICY_KINDS + n_presets - 1 - i);
    for (int i = 0; i < n_presets; i++)
        specrt__policy_list(expected, sizeof expected, specrt__policy_presets[i].name,
                            n_presets - 1 - i);
    return specrt__policy_fail(p, expected);
}

static specrt_status specrt__policy_parse_source(specrt__policy_parser *p,
                                                 specrt__policy_spec *spec) {
    specrt__policy_source *source;
    int kind = 0;
    for (int i = 0; i < SPECRT__POLICY_PRESETS; i++)
        if (specrt__policy_is(p->at, specrt__policy_presets[i].name))
            return specrt__policy_parse_preset(p, &specrt__policy_presets[i], spec);
    while (kind < (int)SPECRT__POLICY_KINDS &&
           !specrt__policy_is(p->at, specrt__policy_kinds[kind].name))
        kind++;
    if (kind == (int)SPECRT__POLICY_KINDS) return specrt__policy_no_source(p);
    SPECRT__TRY(specrt__policy_begin(p, spec, kind, specrt__policy_kinds[kind].size, &source));
    p->at += specrt__policy_word(p->at);
    if (*p->at == ':' && specrt__policy_kinds[kind].n_sizes > 0)
        SPECRT__TRY(specrt__policy_sizes(p, &specrt__policy_kinds[kind], source));
    return specrt__policy_parse_options(p, &specrt__policy_kinds[kind], source->options);
}

SPECRT__INTERNAL specrt_status specrt__policy_parse(const char *text, specrt__policy_spec *out,
                                                    specrt_error *err) {
    specrt__policy_parser p = {text, text, err};
    memset(out, 0, sizeof *out);
    for (;;) {
        SPECRT__TRY(specrt__policy_parse_source(&p, out));
        if (!*p.at) return SPECRT_STATUS_OK;
        if (*p.at != '+') return specrt__policy_fail(&p, "'+' or the end");
        p.at++;
    }
}

SPECRT_API specrt_status specrt_policy_check(const char *text, specrt_error *err) {
    specrt__policy_spec spec;
    SPECRT__NEED(text);
    return specrt__policy_parse(text, &spec, err);
}

/* --- printing --- */

/* Adds to a text that has room for every policy. */
static void specrt__policy_append(char *text, const char *a, const char *b, const char *c) {
    size_t n = strlen(text);
    snprintf(text + n, SPECRT__POLICY_MAX_TEXT - n, "%s%s%s", a, b, c);
}

static void specrt__policy_print_options(const specrt__policy_kind *kind,
                                         const specrt__policy_source *source, char *text) {
    char number[16], name[32];
    for (int i = 0; i < specrt__policy_n_options(kind); i++) {
        const specrt__source_option *option = &kind->source->options[i];
        const char *names = specrt__policy_value_name(option, source->options[i]);
        if (source->options[i] == option->value) continue;
        snprintf(number, sizeof number, "%d", (int)source->options[i]);
        if (names) snprintf(name, sizeof name, "%.*s", specrt__policy_name(names), names);
        specrt__policy_append(text, "@", option->key, "=");
        specrt__policy_append(text, names ? name : number, "", "");
    }
}

SPECRT__INTERNAL void specrt__policy_print(const specrt__policy_spec *spec, char *text) {
    char number[16];
    text[0] = '\0';
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        const specrt__policy_source *source = &spec->sources[kind];
        if (!source->present) continue;
        specrt__policy_append(text, text[0] ? "+" : "", specrt__policy_kinds[kind].name,
                              specrt__policy_size(kind, source->size, number));
        for (int i = 1; i < source->n_levels; i++) {
            snprintf(number, sizeof number, "/%d", (int)source->levels[i]);
            specrt__policy_append(text, number, "", "");
        }
        specrt__policy_print_options(&specrt__policy_kinds[kind], source, text);
    }
}

// >>policy : src/decode/policy.c
/* policy.c */

/* --- what sessions share --- */

static specrt_status specrt__policy_resolve_vocab(specrt_policy *p, const specrt_bundle *bundle,
                                                  int32_t n_vocab, specrt_error *err) {
    const specrt_ident *ident = bundle ? specrt_bundle_ident(bundle) : NULL;
    specrt_ranks ranks;
    int32_t least = 1, most = p->head->row_of ? SPECRT_MAX_VOCAB : p->head->n_ids;
    p->n_vocab = n_vocab;
    if (bundle && specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK) {
        const specrt_ranks_header *h = ranks.header;
        p->frequent = ranks.ids + h->n_forced;
        p->n_frequent = h->n_valid - h->n_forced;
        p->invalid = ranks.ids + h->n_valid;
        p->n_invalid = h->n_ranked - h->n_valid;
        least = h->n_vocab;
    }
    if (p->n_vocab == 0 && ident) p->n_vocab = ident->n_vocab; /* 0 where no tokenizer was known */
    if (p->n_vocab == 0) p->n_vocab = least > 1 ? least : p->head->n_ids;
    if (n_vocab == 0 && p->n_vocab < least) p->n_vocab = least;
    if (!p->frequent) p->n_frequent = p->n_vocab;
    if (least > most)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: expected a head with rows for its %d tokens, found %d rows; "
                                "use the bundle made for this model",
                                bundle->name, (int)least, (int)most);
    if (p->n_vocab < least || p->n_vocab > most)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG, "n_vocab: expected %d%s to %s%d%s, found %d", (int)least,
            least > 1 ? " (the bundle's)" : "", p->head->row_of ? "" : "the head's ", (int)most,
            p->head->row_of ? "" : " rows", (int)p->n_vocab);
    if (p->head->row_of && p->n_vocab < p->head->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: expected rows of tokens below %d, found one of %d",
                                (int)p->n_vocab, (int)p->head->n_ids - 1);
    return SPECRT_STATUS_OK;
}

/* Ids of rows that are their numbers. */
static specrt_status specrt__policy_number_rows(specrt_policy *p, specrt_error *err) {
    p->full_ids = (int32_t *)specrt__base_alloc(&p->env, (size_t)p->n_vocab * sizeof(int32_t));
    if (!p->full_ids) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    for (int32_t i = 0; i < p->n_vocab; i++) p->full_ids[i] = i;
    return SPECRT_STATUS_OK;
}

/* All tokens that have rows: the head itself, or its rows decoded. */
static specrt_status specrt__policy_make_full(specrt_policy *p, specrt_error *err) {
    const specrt_head_desc *head = &p->head->desc;
    if (!head->ids) SPECRT__TRY(specrt__policy_number_rows(p, err));
    p->fixed.rows = head->rows;
    p->fixed.row_stride = head->row_stride;
    p->fixed.ids = head->ids ? head->ids : p->full_ids;
    p->fixed.bias = head->bias;
    p->fixed.dtype = head->dtype;
    p->fixed.n_rows = head->ids ? (int32_t)head->n_rows : p->n_vocab;
    if (specrt__head_packed_dtype(p->head) == head->dtype) return SPECRT_STATUS_OK;
    p->list = specrt__ranks_pack(p->head, p->fixed.ids, p->fixed.n_rows);
    if (!p->list)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "full: out of memory for %d rows",
                                (int)p->fixed.n_rows);
    p->fixed = p->list->segment;
    return SPECRT_STATUS_OK;
}

/* Only what every level holds stays fixed; the list goes to the source that routes the rest. */
static void specrt__policy_make_levels(specrt_policy *p, const specrt__policy_source *source,
                                       const int32_t *ids) {
    specrt__ranks_set_levels(p->list, p->head, ids, source->levels, source->n_levels);
    p->routed_bound += p->fixed.n_rows - p->list->n_always;
    p->fixed.n_rows = p->list->n_always;
    p->sources[p->n_sources].kind = SPECRT__POLICY_STATIC;
    p->sources[p->n_sources].source = &specrt__ranks_levels;
    p->sources[p->n_sources++].shared.data = p->list;
    p->list = NULL;
}

/* A list that no source takes would be ignored. */
static specrt_status specrt__policy_check_arrays(const specrt_policy_desc *desc, bool taken,
                                                 specrt_error *err) {
    if (desc->n_terminators < 0 || (desc->n_terminators > 0 && !desc->terminators))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "terminators: expected n_terminators tokens, found %s and %d",
                                desc->terminators ? "a list" : "NULL", (int)desc->n_terminators);
    if (desc->n_ids < 0 || (desc->n_ids > 0) != (desc->ids != NULL))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "ids: expected n_ids tokens, or NULL and 0, found %s and %d",
                                desc->ids ? "a list" : "NULL", (int)desc->n_ids);
    if (!desc->ids || taken) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "ids: expected source static, which takes them, found a policy "
                            "without it; add it or pass no ids");
}

static specrt_status specrt__policy_make_static(specrt_policy *p, const specrt_bundle *bundle,
                                                const specrt_policy_desc *desc,
                                                specrt__policy_source *source, specrt_error *err) {
    specrt__ranks_order order;
    SPECRT__TRY(desc->ids ? specrt__ranks_of_ids(desc, p->n_vocab, &p->env, &order, err)
                          : specrt__ranks_of_bundle(bundle, &order, err));
    if (source->size < 0) source->size = -source->size < order.n ? -source->size : order.n;
    SPECRT__TRY(specrt__ranks_size(&order, source->size, &source->size, err));
    int32_t most = source->size;
    for (int32_t i = 1; i < source->n_levels; i++) {
        int32_t *size = &source->levels[i];
        SPECRT__TRY(specrt__ranks_size(&order, *size, size, err));
        if (*size > most) most = *size;
    }
    SPECRT__TRY(specrt__ranks_create(&order, p->head, most, &p->list, err));
    p->fixed = p->list->segment;
    if (source->n_levels > 0) specrt__policy_make_levels(p, source, order.ids);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_share(specrt_policy *p, int kind,
                                          const specrt__source_request *request,
                                          specrt_error *err) {
    const specrt__source *source = specrt__policy_kinds[kind].source;
    specrt__source_shared *shared = &p->sources[p->n_sources].shared;
    if (request->bundle && specrt__policy_kinds[kind].of_head)
        SPECRT__TRY(specrt__head_check(request->bundle, &p->head->desc, err));
    SPECRT__TRY(source->share(request, shared, err));
    p->sources[p->n_sources].kind = kind;
    p->sources[p->n_sources++].source = source;
    *(source->route ? &p->routed_bound : &p->packed_bound) += shared->bound;
    if (shared->in_head) p->in_head = true;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_make_sources(specrt_policy *p, const specrt_bundle *bundle,
                                                 const specrt_policy_desc *desc,
                                                 const specrt__policy_spec *spec,
                                                 specrt_error *err) {
    specrt__source_request request = {bundle, p->head, desc, p->frequent, p->n_frequent, 0, NULL};
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        request.size = spec->sources[kind].size;
        request.options = spec->sources[kind].options;
        if (spec->sources[kind].present && specrt__policy_kinds[kind].source)
            SPECRT__TRY(specrt__policy_share(p, kind, &request, err));
    }
    return SPECRT_STATUS_OK;
}

static bool specrt__policy_holds(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static specrt_status specrt__policy_add_terminators(specrt_policy *p, const int32_t *ids, int32_t n,
                                                    specrt_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= p->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "terminator: expected a token from 0 to %d, found %d",
                                    (int)p->n_vocab - 1, (int)ids[i]);
        if (specrt__policy_holds(p->ends, p->n_ends, ids[i])) continue;
        if (p->n_ends == SPECRT_MAX_TERMINATORS)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "terminators: expected at most %d, found more",
                                    SPECRT_MAX_TERMINATORS);
        p->ends[p->n_ends++] = ids[i];
        if (specrt__head_row_of(p->head, ids[i]) >= 0 &&
            !specrt__policy_holds(p->fixed.ids, p->fixed.n_rows, ids[i]))
            p->terminators[p->n_terminators++] = ids[i];
    }
    return SPECRT_STATUS_OK;
}

static void specrt__policy_tell_source(specrt_policy_info *info, int kind,
                                       const specrt__source *source,
                                       const specrt__source_shared *shared) {
    if (source->observe) info->learns = 1;
    if (source->route) info->by_level = 1;
    if (source->route && kind != SPECRT__POLICY_STATIC) info->by_path = 1;
    if (shared->reads_states) info->by_states = 1;
    if (shared->keeps) info->keeps = 1;
    if (shared->reads_prompt) info->needs_prompt_logits = 1;
    if (shared->reads_tree) info->needs_tree_rows = 1;
    if (shared->reads_input) info->needs_draft_input = 1;
    if (shared->submits) info->needs_submit = 1;
    if (shared->hidden_width > 0) info->hidden_width = shared->hidden_width;
}

/* What applications ask of it. */
static void specrt__policy_tell(specrt_policy *p, bool is_full) {
    specrt_policy_info *info = &p->info;
    info->text = p->text;
    info->bound = p->bound + p->routed_bound;
    info->n_packed = p->bound - p->fixed.n_rows;
    info->is_full = is_full;
    for (int i = 0; i < p->n_sources; i++)
        specrt__policy_tell_source(info, p->sources[i].kind, p->sources[i].source,
                                   &p->sources[i].shared);
    if (p->list && !is_full) {
        info->n_static = p->fixed.n_rows;
        info->static_ids = p->fixed.ids;
    }
    if (p->n_sources > 0 || p->n_terminators > 0) return;
    p->shortlist.compute = &p->head->compute;
    p->shortlist.segments = &p->fixed;
    p->shortlist.n_segments = 1;
    p->shortlist.n_rows = p->fixed.n_rows;
    p->shortlist.n_cols = p->head->desc.n_cols;
    p->shortlist.head = p->head;
    info->shortlist = &p->shortlist;
}

static specrt_status specrt__policy_make(specrt_policy *p, const specrt_bundle *bundle,
                                         const specrt_policy_desc *desc, specrt__policy_spec *spec,
                                         specrt_error *err) {
    specrt_ranks ranks;
    specrt__policy_source *list = &spec->sources[SPECRT__POLICY_STATIC];
    SPECRT__TRY(specrt__policy_resolve_vocab(p, bundle, desc->n_vocab, err));
    SPECRT__TRY(specrt__policy_check_arrays(desc, list->present, err));
    if (spec->sources[SPECRT__POLICY_FULL].present) SPECRT__TRY(specrt__policy_make_full(p, err));
    if (list->present) SPECRT__TRY(specrt__policy_make_static(p, bundle, desc, list, err));
    SPECRT__TRY(specrt__policy_make_sources(p, bundle, desc, spec, err));
    if (p->frequent && specrt_bundle_ranks(bundle, &ranks, err) == SPECRT_STATUS_OK)
        SPECRT__TRY(specrt__policy_add_terminators(p, ranks.ids, ranks.header->n_terminators, err));
    SPECRT__TRY(specrt__policy_add_terminators(p, desc->terminators, desc->n_terminators, err));
    int64_t bound = (int64_t)p->fixed.n_rows + p->packed_bound + p->n_terminators;
    int32_t most = p->head->row_of ? (int32_t)p->head->desc.n_rows : p->n_vocab;
    p->bound = bound < most ? (int32_t)bound : most;
    specrt__policy_print(spec, p->text);
    specrt__policy_tell(p, spec->sources[SPECRT__POLICY_FULL].present);
    return SPECRT_STATUS_OK;
}

/* Of several policies an application knows which could not be made. */
static void specrt__policy_blame(const char *text, specrt_error *err) {
    specrt_error why;
    if (!err) return;
    why = *err;
    specrt_error_set(err, why.status, "policy '%.100s': %s", text, why.msg);
}

SPECRT_API specrt_status specrt_policy_create(const specrt_bundle *bundle, const specrt_head *head,
                                              const specrt_policy_desc *desc, specrt_policy **out,
                                              specrt_error *err) {
    specrt__policy_spec spec;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__NEED(desc);
    SPECRT__NEED(desc->text);
    const char *text = desc->text;
    SPECRT__TRY(specrt__policy_parse(text, &spec, err));
    specrt_policy *p =
        (specrt_policy *)specrt__base_alloc(&head->compute.env, sizeof(specrt_policy));
    if (!p)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "policy '%.100s': out of memory",
                                text);
    memset(p, 0, sizeof *p);
    p->env = head->compute.env;
    p->head = head;
    specrt_status status = specrt__policy_make(p, bundle, desc, &spec, err);
    if (status == SPECRT_STATUS_OK)
        *out = p;
    else
        specrt__policy_blame(text, err), specrt_policy_close(p);
    return status;
}

SPECRT_API void specrt_policy_close(specrt_policy *policy) {
    if (!policy) return;
    specrt_env env = policy->env;
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].source->unshare)
            policy->sources[i].source->unshare(policy->sources[i].shared.data);
    specrt__ranks_free(policy->list);
    specrt__base_free(&env, policy->full_ids);
    specrt__base_free(&env, policy);
}

SPECRT_API const specrt_policy_info *specrt_policy_get_info(const specrt_policy *policy) {
    return policy ? &policy->info : NULL;
}

SPECRT_API int specrt_policy_ends(const specrt_policy *policy, int32_t token) {
    return policy && specrt__policy_holds(policy->ends, policy->n_ends, token);
}

// >>tree : src/decode/tree.h
/* tree.h : the draft tree */

typedef struct specrt__tree_candidate {
    int32_t token;
    int32_t parent;   /* candidate index; -1: the root */
    int32_t beam_row; /* of the level after its own; -1: it did not get there */
    float logprob;    /* cumulative */
} specrt__tree_candidate;

struct specrt_tree {
    specrt_env env;
    specrt_tree_params params;
    int32_t root, level, n_candidates, n_beam;
    specrt__tree_candidate *candidates; /* [topk + (num_steps - 1) * topk^2] */
    int32_t *beam;                      /* [topk] candidate indices */
    int32_t *beam_tokens, *beam_parents;
    float *beam_logprobs;
    int32_t chosen[SPECRT_TREE_MAX_NODES]; /* candidate of each node but the root */
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
    float logprobs[SPECRT_TREE_MAX_NODES];
    int32_t beam_rows[SPECRT_TREE_MAX_NODES];
};

SPECRT__INTERNAL specrt_status specrt__tree_resolve(const specrt_tree_params *in,
                                                    specrt_tree_params *out, specrt_error *err);

/* Rounding may lift a probability above 1; a child must not pass its parent. NaN never wins. */
SPECRT__BOTH static inline float specrt__tree_add(float path, float logprob) {
    return logprob != logprob ? -INFINITY : path + (logprob < 0 ? logprob : 0);
}

/* The node of a candidate among chosen [n], which ascends; node 0 for the root's -1. */
static inline int32_t specrt__tree_node(const specrt_tree *t, int32_t candidate, int32_t n) {
    int32_t node = n;
    while (node > 0 && t->chosen[node - 1] != candidate) node--;
    return node;
}

// >>tree : src/decode/tree.c
/* tree.c : owns the candidates of one draft: expansion level by level and the choice of nodes to verify.
 * Refuses trees beyond the limits. Cumulative log-probabilities never rise along a path, and ties go
 * to the lower candidate index, so a chosen node's parent is chosen too (methods of EAGLE-2, where
 * ties could orphan a node). */

SPECRT__INTERNAL specrt_status specrt__tree_resolve(const specrt_tree_params *in,
                                                    specrt_tree_params *out, specrt_error *err) {
    memset(out, 0, sizeof *out);
    if (in) *out = *in;
    if (out->num_steps == 0) out->num_steps = 6;
    if (out->topk == 0) out->topk = 10;
    if (out->num_draft_tokens == 0) out->num_draft_tokens = 60;
    if (out->num_steps < 1 || out->num_steps > SPECRT_TREE_MAX_STEPS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: num_steps: expected 1 to %d, found %d",
                                SPECRT_TREE_MAX_STEPS, (int)out->num_steps);
    if (out->topk < 1 || out->topk > SPECRT_TREE_MAX_TOPK)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: topk: expected 1 to %d, found %d", SPECRT_TREE_MAX_TOPK,
                                (int)out->topk);
    if (out->num_draft_tokens < 2 || out->num_draft_tokens > SPECRT_TREE_MAX_NODES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: num_draft_tokens: expected 2 to %d, found %d",
                                SPECRT_TREE_MAX_NODES, (int)out->num_draft_tokens);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_tree_create(const specrt_tree_params *params, const specrt_env *env,
                                            specrt_tree **out, specrt_error *err) {
    specrt_tree_params p;
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__TRY(specrt__tree_resolve(params, &p, err));
    size_t k = (size_t)p.topk, n = k + (size_t)(p.num_steps - 1) * k * k;
    size_t bytes = sizeof(specrt_tree) + n * sizeof(specrt__tree_candidate) +
                   k * (3 * sizeof(int32_t) + sizeof(float));
    specrt_tree *t = (specrt_tree *)specrt__base_alloc(&own, bytes);
    if (!t) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "tree: out of memory");
    memset(t, 0, sizeof *t);
    t->env = own;
    t->params = p;
    t->candidates = (specrt__tree_candidate *)(void *)(t + 1);
    t->beam = (int32_t *)(void *)(t->candidates + n);
    t->beam_tokens = t->beam + k;
    t->beam_parents = t->beam_tokens + k;
    t->beam_logprobs = (float *)(void *)(t->beam_parents + k);
    *out = t;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_tree_close(specrt_tree *tree) {
    if (!tree) return;
    specrt_env env = tree->env;
    specrt__base_free(&env, tree);
}

SPECRT_API const specrt_tree_params *specrt_tree_get_params(const specrt_tree *tree) {
    return tree ? &tree->params : NULL;
}

SPECRT_API void specrt_tree_begin(specrt_tree *tree, int32_t root) {
    if (!tree) return;
    tree->root = root;
    tree->level = tree->n_candidates = 0;
    tree->n_beam = 1; /* the root */
}

/* The m best of candidates [first, n), by (logprob descending, index ascending), none at -inf.
 * @return how many. */
static int32_t specrt__tree_best(const specrt_tree *t, int32_t first, int32_t m, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = first; i < t->n_candidates; i++) {
        float x = t->candidates[i].logprob;
        if (!(x > -INFINITY) || (n == m && x <= t->candidates[out[m - 1]].logprob)) continue;
        int32_t at = n < m ? n++ : m - 1;
        for (; at > 0 && t->candidates[out[at - 1]].logprob < x; at--) out[at] = out[at - 1];
        out[at] = i;
    }
    return n;
}

SPECRT_API specrt_status specrt_tree_expand(specrt_tree *t, const int32_t *ids,
                                            const float *logprobs, int32_t n, int32_t k,
                                            specrt_beam *beam) {
    if (beam) memset(beam, 0, sizeof *beam);
    if (!t || !beam || (k > 0 && (!ids || !logprobs)) || n != t->n_beam || k < 0 ||
        k > t->params.topk || t->level == t->params.num_steps)
        return SPECRT_STATUS_BAD_ARG;
    int32_t first = t->n_candidates;
    for (int32_t r = 0; r < n; r++) {
        int32_t parent = t->level == 0 ? -1 : t->beam[r];
        float path = parent < 0 ? 0 : t->candidates[parent].logprob;
        for (int32_t j = 0; j < k; j++) {
            specrt__tree_candidate *c = &t->candidates[t->n_candidates++];
            c->token = ids[r * k + j];
            c->parent = parent;
            c->beam_row = -1;
            c->logprob = specrt__tree_add(path, logprobs[r * k + j]);
        }
    }
    t->n_beam =
        ++t->level < t->params.num_steps ? specrt__tree_best(t, first, t->params.topk, t->beam) : 0;
    for (int32_t i = 0; i < t->n_beam; i++) {
        specrt__tree_candidate *c = &t->candidates[t->beam[i]];
        c->beam_row = i;
        t->beam_tokens[i] = c->token;
        t->beam_parents[i] = (t->beam[i] - first) / k;
        t->beam_logprobs[i] = c->logprob;
    }
    beam->n = t->n_beam;
    beam->tokens = t->beam_tokens;
    beam->parents = t->beam_parents;
    beam->logprobs = t->beam_logprobs;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_tree_finish(specrt_tree *t, specrt_draft *draft) {
    if (draft) memset(draft, 0, sizeof *draft);
    if (!t || !draft) return;
    int32_t n = specrt__tree_best(t, 0, t->params.num_draft_tokens - 1, t->chosen);
    for (int32_t i = 1; i < n; i++) { /* into candidate order: parents first, levels together */
        int32_t x = t->chosen[i], at = i;
        for (; at > 0 && t->chosen[at - 1] > x; at--) t->chosen[at] = t->chosen[at - 1];
        t->chosen[at] = x;
    }
    t->tokens[0] = t->root;
    t->parents[0] = -1;
    t->depths[0] = 0;
    t->masks[0] = 1;
    t->logprobs[0] = 0;
    t->beam_rows[0] = t->level > 0 ? 0 : -1;
    for (int32_t i = 1; i <= n; i++) {
        const specrt__tree_candidate *c = &t->candidates[t->chosen[i - 1]];
        int32_t parent = specrt__tree_node(t, c->parent, i - 1);
        t->tokens[i] = c->token;
        t->parents[i] = parent;
        t->depths[i] = t->depths[parent] + 1;
        t->masks[i] = t->masks[parent] | (uint64_t)1 << i;
        t->logprobs[i] = c->logprob;
        t->beam_rows[i] = t->depths[i] < t->level ? c->beam_row : -1;
    }
    draft->n = n + 1;
    draft->tokens = t->tokens;
    draft->parents = t->parents;
    draft->depths = t->depths;
    draft->masks = t->masks;
    draft->logprobs = t->logprobs;
    draft->beam_rows = t->beam_rows;
    draft->cycle = 0;
}

// >>verify : src/decode/verify.h
/* verify.h : the verifier, and the distribution that it draws by */

enum { SPECRT__VERIFY_BLOCK = 1024 }; /* weights of one partial sum, a multiple of 16 */

/* What a random number is for: part of its key. */
enum { SPECRT__VERIFY_DRAW, SPECRT__VERIFY_DRAFT, SPECRT__VERIFY_ACCEPT, SPECRT__VERIFY_INSTEAD };

struct specrt_verifier {
    specrt_env env;
    specrt_sampling sampling;
    int32_t n_logits; /* columns of the target's logits */
    int32_t n_vocab, n_blocks;
    double total;   /* of the weights */
    double *sums;   /* [n_blocks] of each block of weights */
    float *weights; /* [n_vocab] unnormalised probabilities, 0 for what a filter removed */
    float *values;  /* [n_vocab] weights of the kept, by place */
    int32_t *kept;  /* [n_vocab] ids that a filter keeps; a heap meanwhile */
};

SPECRT__INTERNAL specrt_status specrt__verify_check(int32_t n_logits, int32_t n_vocab,
                                                    const specrt_sampling *s, specrt_error *err);

/* The random number in [0, 1) of a purpose at two places. */
SPECRT__BOTH static inline double specrt__verify_uniform(const specrt_sampling *s, int purpose,
                                                         int64_t a, int64_t b) {
    const uint64_t key[] = {s->seed,           s->session,  s->generation,
                            (uint64_t)purpose, (uint64_t)a, (uint64_t)b};
    return specrt__base_uniform(key, 6);
}

/* --- weights --- */

SPECRT__INTERNAL double specrt__verify_sum(const float *x, int32_t n);

static inline int32_t specrt__verify_block(const specrt_verifier *v, int32_t block) {
    int32_t left = v->n_vocab - block * SPECRT__VERIFY_BLOCK;
    return left < SPECRT__VERIFY_BLOCK ? left : SPECRT__VERIFY_BLOCK;
}

/* --- filters --- */

/* @return false for logits that are none: NaN, or nothing above -inf. */
SPECRT__INTERNAL bool specrt__verify_distribution(specrt_verifier *v, const float *logits);

/* specrt__verify_pick() : the token at which the running sum of weights passes u times the total; u in [0,
 * 1). */
SPECRT__INTERNAL int32_t specrt__verify_pick(const specrt_verifier *v, double u);

/* --- draw-and-descend --- */

/* The first node whose parent is not before it; 0: there is none. Parents must be known. */
SPECRT__INTERNAL int32_t specrt__verify_stray(const specrt_draft *draft);

/* --- rejection sampling --- */

SPECRT__INTERNAL bool specrt__verify_subtract(specrt_verifier *v,
                                              const specrt_draft_distribution *distribution);

// >>verify : src/decode/verify.c
/* verify.c : owns the target's sampling distribution and the decision what to emit: draw-and-descend for any
 * draft, rejection for sampled chains. Refuses settings and drafts' distributions that are no sampling
 * distribution. Draws of plain decoding are keyed by position, those of a sampled chain by cycle and level:
 * a position is drafted again after a rejection, when what was rejected may already have changed q. */

SPECRT__INTERNAL specrt_status specrt__verify_check(int32_t n_logits, int32_t n_vocab,
                                                    const specrt_sampling *s, specrt_error *err) {
    if (n_logits < 1 || n_logits > SPECRT_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: n_logits: expected 1 to %d, found %d", SPECRT_MAX_VOCAB,
                                (int)n_logits);
    if (n_vocab < 1 || n_vocab > n_logits)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: n_vocab: expected 1 to the %d columns of logits, found "
                                "%d",
                                (int)n_logits, (int)n_vocab);
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: temperature: expected 0 to 100, found %g",
                                (double)s->temperature);
    if (s->top_k < 0 || !(s->top_p >= 0 && s->top_p <= 1) || !(s->min_p >= 0 && s->min_p < 1))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: expected top_k >= 0, top_p in [0, 1] and min_p in [0, "
                                "1), found %d, %g and %g",
                                (int)s->top_k, (double)s->top_p, (double)s->min_p);
    if (s->temperature > 0 && s->session == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: session: expected a number of 1 or more, another one "
                                "for each session with this seed, since equal numbers draw equal "
                                "texts; found 0");
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_verifier_create(int32_t n_logits, int32_t n_vocab,
                                                const specrt_sampling *sampling,
                                                const specrt_env *env, specrt_verifier **out,
                                                specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_sampling s;
    if (!out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: out: expected a pointer, found NULL");
    *out = NULL;
    memset(&s, 0, sizeof s);
    if (sampling) s = *sampling;
    SPECRT__TRY(specrt__verify_check(n_logits, n_vocab, &s, err));
    size_t n = (size_t)n_vocab, n_blocks = (n + SPECRT__VERIFY_BLOCK - 1) / SPECRT__VERIFY_BLOCK;
    size_t bytes = n_blocks * sizeof(double) + n * (2 * sizeof(float) + sizeof(int32_t));
    specrt_verifier *v = (specrt_verifier *)specrt__base_alloc(&own, sizeof *v + bytes);
    if (!v) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "verifier: out of memory");
    v->env = own;
    v->sampling = s;
    v->n_logits = n_logits;
    v->n_vocab = n_vocab;
    v->n_blocks = (int32_t)n_blocks;
    v->sums = (double *)(void *)(v + 1);
    v->weights = (float *)(void *)(v->sums + n_blocks);
    v->values = v->weights + n;
    v->kept = (int32_t *)(void *)(v->values + n);
    *out = v;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_verifier_close(specrt_verifier *verifier) {
    if (!verifier) return;
    specrt_env env = verifier->env;
    specrt__base_free(&env, verifier);
}

SPECRT_API void specrt_verifier_set_generation(specrt_verifier *verifier, uint64_t generation) {
    if (verifier) verifier->sampling.generation = generation;
}

/* --- weights --- */

/* exp(scale (x - max)), 16 at a time, for compilers to use vectors: 2^n e^r as in >>simd. What is below
 * e^-80 of the best counts as -inf does, and NaN too: exactly 0. Comparisons are of bits, for those of
 * floats may trap and keep their branch; the copy tells that out overlaps nothing. */
static void specrt__verify_exp16(const float *in, float max, float scale, float *out) {
    const uint32_t limit = 0x42a00000u; /* of 80 */
    float x[16];
    memcpy(x, in, sizeof x);
    for (int i = 0; i < 16; i++) {
        uint32_t size = specrt__base_bits((x[i] - max) * scale) & 0x7fffffffu;
        uint32_t mask = 0u - (uint32_t)(size < limit);
        float t = -specrt__base_float((size & mask) | (limit & ~mask));
        float z = t * 1.44269504f + 12582912.0f, n = z - 12582912.0f;
        float r = (t - n * 0.693359375f) + n * 2.12194440e-4f;
        float y = r * (1 / 5040.0f) + 1 / 720.0f;
        y = y * r + 1 / 120.0f;
        y = y * r + 1 / 24.0f;
        y = y * r + 1 / 6.0f;
        y = y * r + 0.5f;
        y = y * r + 1.0f;
        y = y * r + 1.0f;
        y *= specrt__base_float((specrt__base_bits(z) + 127) << 23);
        x[i] = specrt__base_float(specrt__base_bits(y) & mask);
    }
    memcpy(out, x, sizeof x);
}

/* Weights of n logits, in place if out is x. */
static void specrt__verify_exp(const float *x, int32_t n, float max, float temperature,
                               float *out) {
    float scale = temperature > 1e-30f ? 1 / temperature : 1e30f, tail[16];
    int32_t n_whole = n - n % 16;
    for (int32_t i = 0; i < n_whole; i += 16) specrt__verify_exp16(x + i, max, scale, out + i);
    for (int32_t i = n_whole; i < n_whole + 16; i++) tail[i % 16] = i < n ? x[i] : -INFINITY;
    specrt__verify_exp16(tail, max, scale, tail);
    for (int32_t i = n_whole; i < n; i++) out[i] = tail[i % 16];
}

SPECRT__INTERNAL double specrt__verify_sum(const float *x, int32_t n) {
    double lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) lanes[k] += (double)x[i + k];
    for (; i < n; i++) lanes[0] += (double)x[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Sums of the weights as they are; given logits, of the weights that those have. */
static void specrt__verify_weigh(specrt_verifier *v, const float *logits, float max) {
    v->total = 0;
    for (int32_t b = 0; b < v->n_blocks; b++) {
        int32_t n = specrt__verify_block(v, b), begin = b * SPECRT__VERIFY_BLOCK;
        if (logits)
            specrt__verify_exp(logits + begin, n, max, v->sampling.temperature, v->weights + begin);
        v->sums[b] = specrt__verify_sum(v->weights + begin, n);
        v->total += v->sums[b];
    }
}

/* --- filters --- */

/* Rank order: greater logit first, then lower id. */
static bool specrt__verify_above(const float *x, int32_t a, int32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* Of a heap with the last of its ids in rank order on top. */
static void specrt__verify_sift(const float *x, int32_t *heap, int32_t n, int32_t at) {
    int32_t id = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && specrt__verify_above(x, heap[child], heap[child + 1])) child++;
        if (specrt__verify_above(x, heap[child], id)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

static void specrt__verify_heapify(const float *x, int32_t *heap, int32_t n) {
    for (int32_t i = n / 2 - 1; i >= 0; i--) specrt__verify_sift(x, heap, n, i);
}

/* Tokens whose x is above a bound, into kept; with k, the k best of them. @return how many. */
static int32_t specrt__verify_collect(specrt_verifier *v, const float *x, float bound, int32_t k) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    int32_t n = 0;
    for (int32_t i = 0; i < v->n_vocab; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(x + i, v->n_vocab - i, bound);
        if (i >= v->n_vocab) break;
        if (!(x[i] > bound)) continue;
        if (n == k && k > 0) {
            v->kept[0] = i;
            specrt__verify_sift(x, v->kept, n, 0);
        } else {
            v->kept[n++] = i;
            if (n == k) specrt__verify_heapify(x, v->kept, n);
        }
        if (n == k) bound = x[v->kept[0]]; /* an equal one that comes later ranks lower */
    }
    return n;
}

/* Weights that share sign, exponent and three bits; those from 0 to 1 fall into buckets 0 to 1016. */
static int32_t specrt__verify_bucket(float weight) {
    return (int32_t)(specrt__base_bits(weight) >> 20);
}

/* Tokens of kept [begin, n) from a bucket on come first. @return where they end. */
static int32_t specrt__verify_part(specrt_verifier *v, int32_t begin, int32_t n, int32_t bucket) {
    for (int32_t i = begin; i < n; i++) {
        int32_t id = v->kept[i];
        if (specrt__verify_bucket(v->weights[id]) < bucket) continue;
        v->kept[i] = v->kept[begin];
        v->kept[begin++] = id;
    }
    return begin;
}

/* Of the n kept the fewest, best first, whose weights reach a mass. @return how many: they come first.
 * A histogram finds the bucket that the mass is reached in; only that one is put in order. */
static int32_t specrt__verify_nucleus(specrt_verifier *v, const float *logits, double mass,
                                      int32_t n) {
    double masses[1024], sum = 0;
    int32_t bucket = 1023;
    memset(masses, 0, sizeof masses);
    for (int32_t i = 0; i < n; i++) {
        float weight = v->weights[v->kept[i]];
        masses[specrt__verify_bucket(weight)] += (double)weight;
    }
    while (bucket > 0 && sum + masses[bucket] < mass) sum += masses[bucket--];
    int32_t n_above = specrt__verify_part(v, 0, n, bucket + 1);
    int32_t *heap = v->kept + n_above,
            n_heap = specrt__verify_part(v, n_above, n, bucket) - n_above;
    specrt__verify_heapify(logits, heap, n_heap);
    sum += masses[bucket];
    while (n_heap > 1 && sum - (double)v->weights[heap[0]] >= mass) {
        sum -= (double)v->weights[heap[0]];
        heap[0] = heap[--n_heap];
        specrt__verify_sift(logits, heap, n_heap, 0);
    }
    return n_above + n_heap;
}

/* All weights but those of the n kept become 0, and theirs too if min_p says so. */
static void specrt__verify_keep(specrt_verifier *v, int32_t n) {
    const int32_t *ids = v->kept;
    for (int32_t i = 0; i < n; i++) v->values[i] = v->weights[ids[i]];
    memset(v->weights, 0, (size_t)v->n_vocab * sizeof *v->weights);
    memset(v->sums, 0, (size_t)v->n_blocks * sizeof *v->sums);
    v->total = 0;
    for (int32_t i = 0; i < n; i++) {
        if (v->values[i] < v->sampling.min_p) continue; /* the best weighs 1 */
        v->weights[ids[i]] = v->values[i];
        v->sums[ids[i] / SPECRT__VERIFY_BLOCK] += (double)v->values[i];
        v->total += (double)v->values[i];
    }
}

/* The distribution of a row of logits, into weights, sums and total.
 * A nucleus is found without sorting the vocabulary: tokens below (1 - top_p) / n_vocab of the total
 * weigh less than 1 - top_p of it together, so the nucleus ends above that. */
SPECRT__INTERNAL bool specrt__verify_distribution(specrt_verifier *v, const float *logits) {
    const specrt_sampling *s = &v->sampling;
    int32_t n = v->n_vocab, best = specrt__shortlist_argmax(logits, n);
    bool top_k = s->top_k > 0 && s->top_k<n, top_p = s->top_p> 0 && s->top_p < 1;
    if (best < 0) return false;
    float max = logits[best];
    const int32_t *ids = v->kept;
    if (s->temperature == 0 || max == INFINITY) {
        v->weights[best] = 1;
        v->kept[0] = best;
        specrt__verify_keep(v, 1);
        return true;
    }
    if (top_k) {
        n = specrt__verify_collect(v, logits, -INFINITY, s->top_k);
        for (int32_t i = 0; i < n; i++) v->values[i] = logits[ids[i]];
        specrt__verify_exp(v->values, n, max, s->temperature, v->values);
        for (int32_t i = 0; i < n; i++) v->weights[ids[i]] = v->values[i];
        v->total = specrt__verify_sum(v->values, n);
    } else {
        specrt__verify_weigh(v, logits, max);
        if (!top_p && !(s->min_p > 0)) return true;
        float least = top_p ? (float)(0.99 * (1 - (double)s->top_p) * v->total / n) : s->min_p;
        if (least < s->min_p) least = s->min_p;
        n = specrt__verify_collect(v, v->weights, nextafterf(least, 0), 0);
    }
    if (top_p) n = specrt__verify_nucleus(v, logits, (double)s->top_p * v->total, n);
    specrt__verify_keep(v, n);
    return true;
}

SPECRT__INTERNAL int32_t specrt__verify_pick(const specrt_verifier *v, double u) {
    double target = u * v->total, sum = 0, before = 0;
    int32_t block = 0, token = 0;
    for (int32_t b = 0; b < v->n_blocks && sum <= target; b++) {
        if (!(v->sums[b] > 0)) continue;
        block = b;
        before = sum;
        sum += v->sums[b];
    }
    int32_t begin = block * SPECRT__VERIFY_BLOCK, end = begin + specrt__verify_block(v, block);
    for (int32_t i = begin; i < end && before <= target; i++) {
        if (!(v->weights[i] > 0)) continue;
        token = i;
        before += (double)v->weights[i];
    }
    return token;
}

SPECRT_API int32_t specrt_verifier_draw(specrt_verifier *v, const float *logits, int64_t position) {
    if (!v || !logits || position < 0) return -1;
    if (v->sampling.temperature == 0) return specrt__shortlist_argmax(logits, v->n_vocab);
    if (!specrt__verify_distribution(v, logits)) return -1;
    return specrt__verify_pick(
        v, specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_DRAW, position, 0));
}

/* --- draw-and-descend --- */

SPECRT__INTERNAL int32_t specrt__verify_stray(const specrt_draft *draft) {
    for (int32_t i = 1; i < draft->n; i++)
        if (draft->parents[i] < 0 || draft->parents[i] >= i) return i;
    return 0;
}

static bool specrt__verify_is_tree(const specrt_draft *draft) {
    return draft && draft->n >= 1 && draft->n <= SPECRT_TREE_MAX_NODES && draft->tokens &&
           draft->parents && specrt__verify_stray(draft) == 0;
}

static int32_t specrt__verify_child(const specrt_draft *draft, int32_t parent, int32_t token) {
    for (int32_t i = parent + 1; i < draft->n; i++)
        if (draft->parents[i] == parent && draft->tokens[i] == token) return i;
    return -1;
}

SPECRT_API specrt_status specrt_verify_tree(specrt_verifier *v, const specrt_draft *draft,
                                            const float *logits, int64_t position,
                                            specrt_verdict *out) {
    if (!out) return SPECRT_STATUS_BAD_ARG;
    memset(out, 0, sizeof *out);
    if (!v || !logits || position < 0 || !specrt__verify_is_tree(draft))
        return SPECRT_STATUS_BAD_ARG;
    for (int32_t node = 0; node >= 0;) {
        int32_t token = specrt_verifier_draw(v, logits + (int64_t)node * v->n_logits, position++);
        if (token < 0) return memset(out, 0, sizeof *out), SPECRT_STATUS_BAD_INPUT;
        out->nodes[out->n] = node;
        out->tokens[out->n++] = token;
        node = specrt__verify_child(draft, node, token);
    }
    return SPECRT_STATUS_OK;
}

/* --- rejection sampling --- */

/* The pick is made from the very numbers that are handed out as q. */
SPECRT_API int32_t specrt_verifier_propose(const specrt_verifier *v, const float *logits, int32_t n,
                                           float temperature, int64_t cycle, int32_t level,
                                           float *probs) {
    int32_t best = 0;
    double target, sum = 0;
    if (!v || !logits || !probs) return -1;
    for (int32_t i = 0; i < n; i++) probs[i] = 0;
    if (!(temperature > 0 && temperature <= 100) || specrt_logits_topk(logits, n, 1, &best) == 0)
        return -1;
    if (logits[best] == INFINITY) {
        probs[best] = 1;
        return best;
    }
    specrt__verify_exp(logits, n, logits[best], temperature, probs);
    double scale = 1 / specrt__verify_sum(probs, n);
    for (int32_t i = 0; i < n; i++) probs[i] = (float)((double)probs[i] * scale);
    target = specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_DRAFT, cycle, level) *
             specrt__verify_sum(probs, n);
    for (int32_t i = 0; i < n && sum <= target; i++) {
        if (!(probs[i] > 0)) continue;
        best = i;
        sum += (double)probs[i];
    }
    return best;
}

/* q of a token; 0 when the distribution is none. */
static double specrt__verify_chance(const specrt_verifier *v,
                                    const specrt_draft_distribution *distribution, int32_t token) {
    if (distribution->n < 1 || !distribution->ids || !distribution->probs) return 0;
    double sum = specrt__verify_sum(distribution->probs, distribution->n), q = 0;
    if (!(fabs(sum - 1) <= 1e-3)) return 0;
    for (int32_t i = 0; i < distribution->n; i++) {
        if (distribution->probs[i] == 0) continue; /* masked rows may stand for no token */
        if (distribution->ids[i] < 0 || distribution->ids[i] >= v->n_vocab ||
            distribution->probs[i] < 0)
            return 0;
        if (distribution->ids[i] == token) q += (double)distribution->probs[i];
    }
    return q;
}

/* The weights become those of max(0, p - q). @return false when that is 0 everywhere. */
SPECRT__INTERNAL bool specrt__verify_subtract(specrt_verifier *v,
                                              const specrt_draft_distribution *distribution) {
    double total = v->total;
    for (int32_t i = 0; i < distribution->n; i++)
        if (distribution->probs[i] > 0)
            v->weights[distribution->ids[i]] -= (float)((double)distribution->probs[i] * total);
    for (int32_t i = 0; i < distribution->n; i++)
        if (distribution->probs[i] > 0 && v->weights[distribution->ids[i]] < 0)
            v->weights[distribution->ids[i]] = 0;
    specrt__verify_weigh(v, NULL, 0);
    return v->total > 1e-12 * total;
}

SPECRT_API specrt_status specrt_verify_chain(specrt_verifier *v, const int32_t *tokens,
                                             const specrt_draft_distribution *distributions,
                                             int32_t n, const float *logits, int64_t cycle,
                                             specrt_verdict *out) {
    double q[SPECRT_TREE_MAX_NODES];
    if (!out) return SPECRT_STATUS_BAD_ARG;
    memset(out, 0, sizeof *out);
    if (!v || !logits || n < 0 || n >= SPECRT_TREE_MAX_NODES ||
        (n > 0 && (!tokens || !distributions)))
        return SPECRT_STATUS_BAD_ARG;
    for (int32_t i = 0; i < n; i++) {
        q[i] = specrt__verify_chance(v, &distributions[i], tokens[i]);
        if (!(q[i] > 0)) return SPECRT_STATUS_BAD_ARG;
    }
    for (int32_t i = 0; i <= n; i++, logits += v->n_logits) {
        if (!specrt__verify_distribution(v, logits))
            return memset(out, 0, sizeof *out), SPECRT_STATUS_BAD_INPUT;
        out->nodes[i] = i;
        out->n = i + 1;
        if (i < n) {
            double p = (double)v->weights[tokens[i]] / v->total;
            out->tokens[i] = tokens[i];
            if (specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_ACCEPT, cycle, i) * q[i] < p)
                continue;
            if (!specrt__verify_subtract(v, &distributions[i]))
                (void)specrt__verify_distribution(v, logits);
        }
        out->tokens[i] = specrt__verify_pick(
            v, specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_INSTEAD, cycle, i));
        break;
    }
    return SPECRT_STATUS_OK;
}

// >>stock : src/decode/stock.h
/* stock.h : a stock, and products of several sequences with its rows */

/* --- making --- */

SPECRT__INTERNAL specrt_status specrt__stock_check_room(const specrt_stock *stock,
                                                        const specrt_head *head, int32_t n_rows,
                                                        specrt_error *err);

/* --- which rows are shared --- */

/* A sequence of a batch, and where its rows of the stock go. */
typedef struct specrt__stock_member {
    const specrt_shortlist *shortlist;
    const specrt_segment *segment; /* the rows, of those of the shortlist */
    const float *hidden;           /* f32 [n, n_cols] */
    float *logits;    /* f32 [n, n_rows of the shortlist], the segment's first column */
    int32_t n, first; /* first: of its states in the batch */
    int64_t block;    /* of its first block of rows */
} specrt__stock_member;

/* --- products --- */

SPECRT__INTERNAL bool specrt__stock_multiply(specrt_stock *stock,
                                             const specrt__stock_member *members, int32_t n,
                                             const float *hidden, int32_t n_states);

// >>stock : src/decode/stock.c
/* stock.c : owns the making of a stock, and the products of several sequences with its rows: a row that
 * enough of them hold is multiplied for all of their states at once, what a sequence does not hold of
 * that is left aside, and its other rows are multiplied for it alone. Refuses heads other than its own.
 * Which rows are shared changes no logit, for a row's product has the same bits whatever is multiplied
 * beside it. */

enum {
    SPECRT__STOCK_MAX_SHARED = 16384, /* rows: 4 MiB of logits */
    SPECRT__STOCK_MAX_COSTS = SPECRT__SHORTLIST_SHARED
};

/* A state beyond the first, in products of the first, and what shared products must save of all: to look for
 * them and to copy their logits takes time too. See docs/methods/sums.md, "Many sequences". */
static const double specrt__stock_more = 1.0 / 3, specrt__stock_gain = 1.0 / 16;

/* --- making --- */

static specrt_status specrt__stock_check(const specrt_head *head, const specrt_stock_params *params,
                                         specrt_error *err) {
    if (params->n_rows < 0 || params->n_rows > SPECRT_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "stock: n_rows: expected 0 (the head's %lld) to %d, found %d",
                                (long long)head->desc.n_rows, SPECRT_MAX_VOCAB,
                                (int)params->n_rows);
    if (params->n_costs < 0 || params->n_costs > SPECRT__STOCK_MAX_COSTS ||
        (params->n_costs > 0 && !params->costs))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "stock: n_costs: expected 0 to %d, and costs where not 0, found %d",
                                SPECRT__STOCK_MAX_COSTS, (int)params->n_costs);
    for (int32_t i = 0; i < params->n_costs; i++)
        if (!(params->costs[i] > 0 && params->costs[i] < INFINITY))
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "stock: costs: %d: expected a time above 0, found %g", (int)i,
                                    params->costs[i]);
    return SPECRT_STATUS_OK;
}

/* Rows are not touched: a system that backs memory as it is used has but those that were held. */
static specrt_stock *specrt__stock_allocate(const specrt_head *head, int32_t n_rows,
                                            int32_t n_costs, const specrt_env *env) {
    size_t n = (size_t)n_rows, most = SPECRT__STOCK_MAX_SHARED, n_shared = n < most ? n : most;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    size_t n_words = (size_t)head->n_ids + (head->desc.bias ? 6 : 5) * n + n_shared +
                     (size_t)SPECRT__SHORTLIST_SHARED * n_shared;
    uint64_t bytes, extra = sizeof(specrt_stock) + 8 * (uint64_t)n_costs + 4 * (uint64_t)n_words;
    if (!specrt__base_mul(stride, n, &bytes) || !specrt__base_add(bytes, extra + 64, &bytes))
        return NULL;
    specrt_stock *s = (specrt_stock *)specrt__base_alloc(env, bytes);
    if (!s) return NULL;
    SPECRT__CLEAR(s, 1);
    uint8_t *at = (uint8_t *)(s + 1);
    s->costs = SPECRT__CARVE(double, &at, (size_t)n_costs);
    s->place_of = SPECRT__CARVE(int32_t, &at, (size_t)head->n_ids);
    s->ids = SPECRT__CARVE(int32_t, &at, n);
    s->n_holders = SPECRT__CARVE(int32_t, &at, n);
    s->vacant = SPECRT__CARVE(int32_t, &at, n);
    s->shared_at = SPECRT__CARVE(int32_t, &at, n);
    s->shared = SPECRT__CARVE(int32_t, &at, n_shared);
    s->logits = SPECRT__CARVE(float, &at, SPECRT__SHORTLIST_SHARED *n_shared);
    if (head->desc.bias) s->bias = SPECRT__CARVE(float, &at, n);
    s->n_of_batch = SPECRT__CARVE(int32_t, &at, n);
    s->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->row_stride = stride;
    s->n_rows = n_rows;
    s->max_shared = (int32_t)n_shared;
    return s;
}

SPECRT_API specrt_status specrt_stock_create(const specrt_head *head,
                                             const specrt_stock_params *params,
                                             const specrt_env *env, specrt_stock **out,
                                             specrt_error *err) {
    specrt_stock_params defaults;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__CLEAR(&defaults, 1);
    if (!params) params = &defaults;
    if (!env) env = &head->compute.env;
    SPECRT__TRY(specrt__stock_check(head, params, err));
    int32_t most = (int32_t)head->desc.n_rows, n_rows = params->n_rows;
    if (n_rows == 0 || n_rows > most) n_rows = most;
    specrt_stock *s = specrt__stock_allocate(head, n_rows, params->n_costs, env);
    if (!s)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "stock: out of memory for %d rows of %llu bytes", (int)n_rows,
                                (unsigned long long)specrt_row_bytes(
                                    specrt__head_packed_dtype(head), head->desc.n_cols));
    s->env = *env;
    s->head = head;
    s->n_costs = params->n_costs;
    for (int32_t i = 0; i < s->n_costs; i++) s->costs[i] = params->costs[i];
    memset(s->place_of, 0xff, (size_t)head->n_ids * sizeof *s->place_of);
    memset(s->shared_at, 0xff, (size_t)n_rows * sizeof *s->shared_at);
    for (int32_t i = 0; i < n_rows; i++) {
        s->n_holders[i] = 0;
        s->vacant[i] = n_rows - 1 - i;
    }
    *out = s;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_stock_close(specrt_stock *stock) {
    if (!stock) return;
    specrt_env env = stock->env;
    specrt__base_free(&env, stock);
}

SPECRT_API void specrt_stock_get_stats(const specrt_stock *stock, specrt_stock_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!stock || !out) return;
    out->n_rows = stock->n_rows;
    out->n_held = stock->n_held;
    out->n_sessions = stock->n_sessions;
    out->n_shared = stock->n_shared;
    out->n_packed = stock->n_packed;
    for (int32_t i = 0; i < stock->n_rows; i++) out->n_holds += stock->n_holders[i];
}

/* Whether one more session may hold so many rows: whatever it wants, there is a place then. */
SPECRT__INTERNAL specrt_status specrt__stock_check_room(const specrt_stock *stock,
                                                        const specrt_head *head, int32_t n_rows,
                                                        specrt_error *err) {
    int32_t n_left = stock->n_rows - stock->n_promised;
    if (stock->head != head)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: stock: expected one of the policy's head, found another "
                                "head's");
    if (n_rows <= n_left || stock->n_rows >= head->desc.n_rows) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: stock: expected room for the %d rows that the policy packs "
                            "at most, found %d of %d not promised to %d other sessions; "
                            "n_rows 0 is always enough",
                            (int)n_rows, (int)(n_left > 0 ? n_left : 0), (int)stock->n_rows,
                            (int)stock->n_sessions);
}

/* --- which rows are shared --- */

/* What a row takes with n states, of any unit. */
static double specrt__stock_cost(const specrt_stock *stock, int32_t n) {
    if (stock->n_costs == 0) return 1 + specrt__stock_more * (n - 1);
    if (n <= stock->n_costs) return stock->costs[n - 1];
    return stock->costs[stock->n_costs - 1] * n / stock->n_costs;
}

/* The fewest of n sequences, which have n_states in all, by whom a row must be held for one product with
 * all states to be cheaper than one for each of them; n + 1: it never is. */
static int32_t specrt__stock_least(const specrt_stock *stock, int32_t n, int32_t n_states) {
    double together = specrt__stock_cost(stock, n_states);
    double alone = specrt__stock_cost(stock, (n_states + n / 2) / n);
    int32_t least = 2;
    while (least <= n && least * alone <= together) least++;
    return least;
}

/* How many of a batch hold each row. */
static void specrt__stock_count(specrt_stock *s, const specrt__stock_member *members, int32_t n) {
    memset(s->n_of_batch, 0, (size_t)s->n_used * sizeof *s->n_of_batch);
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 0; r < members[i].segment->n_rows; r++)
            s->n_of_batch[members[i].segment->places[r]]++;
}

/* The rows that so many hold; none, unless all of them save enough. Chosen anew when what is held changes:
 * another batch of the same sequences' rows has the same logits by these. */
static void specrt__stock_choose(specrt_stock *s, const specrt__stock_member *members, int32_t n,
                                 int32_t n_states, int32_t least) {
    double together = specrt__stock_cost(s, n_states), all = 0, saved = 0;
    double alone = specrt__stock_cost(s, (n_states + n / 2) / n);
    if (s->chosen == s->version && s->chosen_least == least) return;
    for (int32_t i = 0; i < s->n_shared; i++) s->shared_at[s->shared[i]] = -1;
    s->n_shared = 0;
    specrt__stock_count(s, members, n);
    for (int32_t place = 0; place < s->n_used; place++) {
        all += s->n_of_batch[place] * alone;
        if (s->n_of_batch[place] < least || s->n_shared == s->max_shared) continue;
        saved += s->n_of_batch[place] * alone - together;
        s->shared[s->n_shared++] = place;
    }
    if (saved < specrt__stock_gain * all) s->n_shared = 0;
    for (int32_t i = 0; i < s->n_shared; i++) s->shared_at[s->shared[i]] = i;
    s->chosen = s->version;
    s->chosen_least = least;
}

/* --- products --- */

typedef struct specrt__stock_batch {
    specrt_stock *stock;
    const specrt__stock_member *members;
    int32_t n, n_states;
    const float *hidden; /* f32 [n_states, n_cols] of all */
} specrt__stock_batch;

/* Shared rows of block i, for all states. */
static void specrt__stock_shared_task(void *arg, int64_t i) {
    const specrt__stock_batch *b = (const specrt__stock_batch *)arg;
    const specrt_stock *s = b->stock;
    specrt_segment rows = *b->members->segment;
    specrt_shortlist shortlist = *b->members->shortlist;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = s->n_shared - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    rows.places = s->shared;
    rows.n_rows = s->n_shared;
    shortlist.n_rows = s->max_shared;
    specrt__shortlist_product product = {&shortlist, b->hidden, b->n_states, s->logits, 0};
    specrt__shortlist_multiply(&product, &rows, begin, end, s->logits);
}

/* Takes what is shared of the rows [begin, end). @return how many are left, places and rows of which are
 * listed. */
static int32_t specrt__stock_take(const specrt_stock *s, const specrt__stock_member *m,
                                  int32_t begin, int32_t end, int32_t *places, int32_t *rows) {
    size_t stride = (size_t)m->shortlist->n_rows, shared_stride = (size_t)s->max_shared;
    const float *shared = s->logits + (size_t)m->first * shared_stride;
    int32_t n_left = 0;
    for (int32_t r = begin; r < end; r++) {
        int32_t place = m->segment->places[r], at = s->shared_at[place];
        if (at < 0) places[n_left] = place, rows[n_left++] = r;
        for (int32_t h = 0; h < m->n && at >= 0; h++)
            m->logits[(size_t)h * stride + (size_t)r] =
                shared[(size_t)h * shared_stride + (size_t)at];
    }
    return n_left;
}

/* A block of a member's rows: shared ones are copied, others multiplied. */
static void specrt__stock_member_task(void *arg, int64_t i) {
    const specrt__stock_batch *b = (const specrt__stock_batch *)arg;
    const specrt__stock_member *m = b->members + b->n - 1;
    float tile[(int)SPECRT__SHORTLIST_SHARED * (int)SPECRT__SHORTLIST_BLOCK];
    int32_t places[SPECRT__SHORTLIST_BLOCK], rows[SPECRT__SHORTLIST_BLOCK];
    while (m->block > i) m--;
    int32_t begin = (int32_t)(i - m->block) * SPECRT__SHORTLIST_BLOCK;
    int32_t left = m->segment->n_rows - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    int32_t n = specrt__stock_take(b->stock, m, begin, end, places, rows);
    if (n == 0) return;
    specrt_segment rest = *m->segment;
    specrt_shortlist shortlist = *m->shortlist;
    rest.places = places;
    rest.n_rows = shortlist.n_rows = n;
    specrt__shortlist_product product = {&shortlist, m->hidden, m->n, tile, 0};
    specrt__shortlist_multiply(&product, &rest, 0, n, tile);
    for (int32_t h = 0; h < m->n; h++)
        for (int32_t j = 0; j < n; j++)
            m->logits[h * m->shortlist->n_rows + rows[j]] = tile[h * n + j];
}

/* Logits of the members' rows in the stock, where shared products are cheaper. hidden: of all, one after
 * another, at most SPECRT__SHORTLIST_SHARED. @return false: they are not, and nothing was done. */
SPECRT__INTERNAL bool specrt__stock_multiply(specrt_stock *stock,
                                             const specrt__stock_member *members, int32_t n,
                                             const float *hidden, int32_t n_states) {
    specrt__stock_batch b = {stock, members, n, n_states, hidden};
    const specrt__stock_member *last = &members[n - 1];
    int32_t least = specrt__stock_least(stock, n, n_states);
    if (least > n) return false;
    specrt__stock_choose(stock, members, n, n_states, least);
    if (stock->n_shared == 0) return false;
    const specrt_compute *compute = members->shortlist->compute;
    specrt__shortlist_run(compute, specrt__shortlist_blocks(stock->n_shared),
                          specrt__stock_shared_task, &b);
    specrt__shortlist_run(compute, last->block + specrt__shortlist_blocks(last->segment->n_rows),
                          specrt__stock_member_task, &b);
    return true;
}

// >>block : src/decode/block.h
/* block.h : what a session has for blocks and for Markov heads */

/* Scratch of a session, one block of memory. */
typedef struct specrt__block {
    int32_t n;        /* positions at most; 0: none */
    float *positions; /* [n, bound] logits of each */
    float
        *states; /* [2, topk, n_cols] one state, and what the pass read, for every row of a beam */
    float *from; /* [topk, rank] w1 of the tokens before */
    float *bias; /* [topk, bound] */
    int32_t *places; /* [bound] of a shortlist's rows in w2 */
} specrt__block;

SPECRT__INTERNAL specrt_status specrt__block_check_params(specrt_session *s,
                                                          const specrt_session_params *params,
                                                          specrt_error *err);
SPECRT__INTERNAL bool specrt__block_make(specrt_session *s, int32_t n);

/* Adds to the logits of n rows what the Markov head says of the tokens before them, if the head has one. */
SPECRT__INTERNAL void specrt__block_add_markov(specrt_session *s, int32_t n);

/* A draft's levels, of a block. */
SPECRT__INTERNAL specrt_status specrt__block_grow(specrt_session *s, const specrt_block *block);

// >>session : src/decode/session.h
/* session.h : a session's state */

/* Where a session stands in the order of calls. What is allowed in several places is a sum of them. */
enum {
    SPECRT__AT_CREATED = 1,  /* begin has not come */
    SPECRT__AT_PROMPT = 2,   /* no token of the prompt has come */
    SPECRT__AT_READ = 4,     /* some have; the first token of the answer has not */
    SPECRT__AT_OPEN = 8,     /* observe_chain left its last token to start */
    SPECRT__AT_DRAFT = 16,   /* a tree has its root, and grows */
    SPECRT__AT_DRAFTED = 32, /* it is finished, or another was verified */
    SPECRT__AT_ENDED = 64    /* the answer ended, or a model failed */
};

/* A chain whose last token is not drawn yet, and the target's best tokens at each of its nodes. */
typedef struct specrt__session_open {
    int32_t n, n_accepted; /* n 0: there is none */
    bool told;             /* there are ids */
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    int32_t ids[SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K];
} specrt__session_open;

struct specrt_session {
    specrt_env env;
    const specrt_policy *policy;
    specrt__pool *pool;
    specrt_tree *tree;
    specrt_verifier *verifier;
    specrt_shortlist shortlist;
    specrt_segment segments[2 + SPECRT__SOURCE_MAX_SEGMENTS]; /* fixed, packed, routed */
    int32_t n_kept; /* of the segments, fixed and packed ones; the others are the last level's */
    specrt__source_routed *routed;            /* NULL: the policy routes nothing */
    void *states[SPECRT__POLICY_MAX_SOURCES]; /* of the policy's sources, in its order */
    int n_open;                               /* of them */
    int64_t n_routed_rows;                    /* of this cycle */
    int64_t position;                         /* of the next token to emit */
    int64_t n_copied_before;                  /* by the pool, until begin */
    int64_t cycle;                            /* trees begun: keys the draws of sampled drafts */
    int64_t stamp;       /* counts them without end, so that verdicts are told apart */
    uint64_t generation; /* number of the one that the next begin begins */
    int64_t n_left;      /* tokens that the answer may still have */
    int64_t n_late;      /* of the prompt, that the drafter reads when it first drafts */
    int32_t n_logits;    /* columns of the target's logits */
    int32_t level;       /* passes scored in this cycle */
    int at;              /* SPECRT__AT_* */
    specrt_error error;  /* of the last call that failed */
    specrt_session_stats stats;
    int32_t topk;
    int32_t bound;   /* rows of a shortlist at most */
    int32_t *ids;    /* [topk, topk] */
    float *logprobs; /* [topk, topk] */
    float *logits;   /* [topk, bound] */
    specrt__block block;
    /* Sampled drafts: what each level's token was sampled from. */
    specrt_draft_distribution
        *distributions;        /* [num_steps]; NULL: drafts are top-k; owns what follows */
    int32_t *distribution_ids; /* [num_steps, bound] */
    float *distribution_probs;
    int32_t sampled[SPECRT_TREE_MAX_STEPS]; /* those tokens; -1: none */
    float draft_temperature;                /* 0: the target's */
    specrt__session_open open;
    specrt_auto *auto_draft; /* NULL: drafts are as deep as the tree */
    specrt_auto_choice choice;
    int32_t n_fixed;   /* rows of the fixed segment that are drafted from in this cycle */
    int32_t *fixed_at; /* [n_ids] place of a token there; NULL: it is used whole */
    bool in_batch;     /* while a batch is looked through for a session that comes twice */
};

/* The state of a source, or NULL: the policy has none. */
static inline void *specrt__session_state(const specrt_session *s, int kind) {
    int i = specrt__policy_find(s->policy, kind);
    return i < 0 ? NULL : s->states[i];
}

/* Whether a prompt may begin so. */
SPECRT__INTERNAL specrt_status specrt__session_check_request(specrt_session *s,
                                                             const specrt_request *request);

/* Whether a call comes in order; else the session's error names what was expected.
 *   allowed : sum of SPECRT__AT_* */
SPECRT__INTERNAL specrt_status specrt__session_refuse_order(specrt_session *s, const char *call);
static inline specrt_status specrt__session_order(specrt_session *s, int allowed,
                                                  const char *call) {
    return s->at & allowed ? SPECRT_STATUS_OK : specrt__session_refuse_order(s, call);
}

/* Before anything is read of an argument. */
#define SPECRT__SESSION_NEEDS(s, argument, call)                                                   \
    do {                                                                                           \
        if (!(s) || !(argument))                                                                   \
            return specrt__base_refuse_null((s) ? &(s)->error : NULL, call, #argument);            \
    } while (0)

SPECRT__INTERNAL void specrt__session_mark(specrt__pool *pool, const specrt_policy *policy);
SPECRT__INTERNAL specrt_status specrt__session_shape(const specrt_session_params *params,
                                                     specrt_tree_params *tree, specrt_error *err);
SPECRT__INTERNAL specrt_status specrt__session_check_columns(const specrt_policy *policy,
                                                             int32_t n_logits, specrt_error *err);

/* --- a sequence --- */

SPECRT__INTERNAL void specrt__session_pack(specrt_session *s);
SPECRT__INTERNAL void specrt__session_reset(specrt_session *s);

/* --- a cycle --- */

/* The rows of the pass to come. */
SPECRT__INTERNAL specrt_beam specrt__session_beam(const specrt_session *s);
/* What sources route a pass by. */
SPECRT__INTERNAL specrt__source_level specrt__session_level(int32_t at, const specrt_beam *beam,
                                                            const float *draft_hidden,
                                                            const float *draft_input);
/* The last level's routed segments make way for those of this one. */
SPECRT__INTERNAL const specrt_shortlist *specrt__session_route_by(specrt_session *s,
                                                                  specrt__source_level level);
/* The shortlist becomes what is kept and what was routed so far. */
SPECRT__INTERNAL void specrt__session_list_routed(specrt_session *s);
/* So many bytes that sources read, and rows of the head, were read to draft. */
SPECRT__INTERNAL void specrt__session_count_read(specrt_session *s, int64_t n_read, int64_t n_rows);
/* Whether a pass of n rows may come now. */
SPECRT__INTERNAL specrt_status specrt__session_check_expand(specrt_session *s, int32_t n);
/* The rows of the pass to come, for the tree at hand. */
SPECRT__INTERNAL void specrt__session_route_pass(specrt_session *s, const float *draft_hidden,
                                                 const float *draft_input);
/* The tree's next level, from the session's k ids and logprobs of each of n rows. */
SPECRT__INTERNAL specrt_status specrt__session_propose(specrt_session *s, int32_t n, int32_t k,
                                                       specrt_beam *beam);
/* The same, of one token that is sampled from the distribution that verification will be shown.
 *   ids : of n logits; NULL: they are those of the shortlist */
SPECRT__INTERNAL specrt_status specrt__session_sample(specrt_session *s, const int32_t *ids,
                                                      const float *logits, int32_t n,
                                                      specrt_beam *beam);
/* The tree's next level, from the logits of a pass of n rows. */
SPECRT__INTERNAL specrt_status specrt__session_grow(specrt_session *s, int32_t n,
                                                    specrt_beam *beam);

/* Cuts what is emitted where the answer ends. */
SPECRT__INTERNAL void specrt__session_cut(const specrt_session *s, specrt_verdict *verdict);
/* Learns from a cycle that was cut, and ends the answer where it says so. */
SPECRT__INTERNAL specrt_status specrt__session_end(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_target_rows *rows,
                                                   const specrt_verdict *cut);

SPECRT__INTERNAL float specrt__session_certainty(const float *logits, int32_t n, int32_t token);

// >>session_make : src/decode/session_make.c
/* session_make.c : owns the making of a session: what it allocates, and what of its policy and parameters
 * do not fit. */

/* Marks that hold for every sequence. */
SPECRT__INTERNAL void specrt__session_mark(specrt__pool *pool, const specrt_policy *policy) {
    for (int32_t i = 0; i < pool->n_ids; i++)
        if (i >= policy->n_vocab || specrt__head_row_of(policy->head, i) < 0)
            specrt__pool_mark(pool, i, SPECRT__POOL_INVALID);
    for (int32_t i = 0; i < policy->n_invalid; i++)
        if (policy->invalid[i] < pool->n_ids)
            specrt__pool_mark(pool, policy->invalid[i], SPECRT__POOL_INVALID);
    for (int32_t i = 0; i < policy->fixed.n_rows; i++)
        specrt__pool_mark(pool, policy->fixed.ids[i], SPECRT__POOL_FIXED);
}

static bool specrt__session_make_routed(specrt_session *s) {
    const specrt_policy *policy = s->policy;
    size_t n_ids = (size_t)s->pool->n_ids;
    size_t n_rows = (size_t)(policy->routed_bound + s->bound - policy->info.bound);
    if (policy->routed_bound == 0) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(
        &s->env, sizeof *s->routed + n_ids * sizeof(uint32_t) + n_rows * sizeof(int32_t));
    if (!at) return false;
    s->routed = SPECRT__CARVE(specrt__source_routed, &at, 1);
    SPECRT__CLEAR(s->routed, 1);
    s->routed->pool = s->pool;
    s->routed->levels = SPECRT__CARVE(uint32_t, &at, n_ids);
    s->routed->masked = SPECRT__CARVE(int32_t, &at, n_rows);
    s->routed->max_rows = (int32_t)n_rows;
    return true;
}

static bool specrt__session_open_sources(specrt_session *s, const specrt_session_params *params,
                                         int32_t n_logits) {
    int32_t n_block = params->n_block > 1 ? params->n_block : 1;
    const specrt__source_session with = {s->pool,
                                         s->topk,
                                         n_block,
                                         s->topk > n_block ? s->topk : n_block,
                                         n_logits,
                                         s->policy->bound,
                                         &s->env,
                                         params->submit,
                                         params->submit_user};
    for (; s->n_open < s->policy->n_sources; s->n_open++) {
        const specrt__source *source = s->policy->sources[s->n_open].source;
        void *shared = s->policy->sources[s->n_open].shared.data;
        void *state = source->open ? source->open(shared, &with) : shared;
        if (!state) return false;
        s->states[s->n_open] = state;
    }
    return true;
}

static bool specrt__session_make_scratch(specrt_session *s) {
    uint64_t k = (uint64_t)s->topk, n = k * (uint64_t)s->bound;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, (n + 2 * k * k) * sizeof(float));
    if (!at) return false;
    s->logits = SPECRT__CARVE(float, &at, n);
    s->logprobs = SPECRT__CARVE(float, &at, k *k);
    s->ids = SPECRT__CARVE(int32_t, &at, k * k);
    return true;
}

/* The tree that a draft of this kind has, or why there is none. */
SPECRT__INTERNAL specrt_status specrt__session_shape(const specrt_session_params *params,
                                                     specrt_tree_params *tree, specrt_error *err) {
    float temperature = params->draft_temperature;
    *tree = params->tree;
    if (params->draft != SPECRT_DRAFT_TOP_K && params->draft != SPECRT_DRAFT_SAMPLED)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: draft: expected top-k (0) or sampled (1), found %d",
                                (int)params->draft);
    if (params->draft == SPECRT_DRAFT_TOP_K)
        return temperature == 0 ? SPECRT_STATUS_OK
                                : specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                                   "session: draft_temperature: expected 0, since "
                                                   "top-k drafts are not sampled, found %g",
                                                   (double)temperature);
    if (params->sampling.temperature == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: sampled drafts: expected a temperature above 0, found a "
                                "greedy target; use top-k drafts");
    if (!(temperature >= 0 && temperature <= 100))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: draft_temperature: expected 0 to 100, found %g",
                                (double)temperature);
    if (tree->topk > 1)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "session: sampled drafts: expected topk 1, a chain, found %d; trees "
            "take top-k drafts",
            (int)tree->topk);
    tree->topk = 1;
    if (tree->num_steps == 0) tree->num_steps = 6;
    if (tree->num_draft_tokens == 0) tree->num_draft_tokens = tree->num_steps + 1;
    return SPECRT_STATUS_OK;
}

static bool specrt__session_make_distributions(specrt_session *s,
                                               const specrt_session_params *params) {
    uint64_t n_steps = (uint64_t)specrt_tree_get_params(s->tree)->num_steps;
    uint64_t n = n_steps * (uint64_t)s->bound;
    if (params->draft != SPECRT_DRAFT_SAMPLED) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, n_steps * sizeof *s->distributions +
                                                             n * (sizeof(int32_t) + sizeof(float)));
    if (!at) return false;
    s->distributions = SPECRT__CARVE(specrt_draft_distribution, &at, n_steps);
    s->distribution_ids = SPECRT__CARVE(int32_t, &at, n);
    s->distribution_probs = SPECRT__CARVE(float, &at, n);
    s->draft_temperature = params->draft_temperature;
    return true;
}

/* Columns of the target's logits, which the application must say: it alone knows what lies behind them. */
SPECRT__INTERNAL specrt_status specrt__session_check_columns(const specrt_policy *policy,
                                                             int32_t n_logits, specrt_error *err) {
    const specrt_head *head = policy->head;
    int32_t least = head->row_of ? head->n_ids : policy->n_vocab;
    if (n_logits >= least && n_logits <= SPECRT_MAX_VOCAB) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: n_logits: expected the columns of the target's logits, at "
                            "least %d, one for every token that may be proposed "
                            "(specrt_policy_desc.n_vocab), found %d",
                            (int)least, (int)n_logits);
}

static specrt_status specrt__session_refuse_auto(const specrt_session *s, const char *expected,
                                                 int32_t found, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: auto_draft: policy '%s': expected %s, found %d",
                            s->policy->text, expected, (int)found);
}

/* Lists are leading rows of `static`; what ends a generation is in all of them. */
static specrt_status specrt__session_make_lists(specrt_session *s, const specrt_auto *auto_draft,
                                                specrt_error *err) {
    const specrt_policy *policy = s->policy;
    int32_t n_fixed = policy->list ? policy->fixed.n_rows : 0, n_ids = s->pool->n_ids;
    int32_t least = auto_draft->rows[0], most = auto_draft->rows[auto_draft->n_lists - 1];
    if (most > n_fixed)
        return specrt__session_refuse_auto(s, "lists within the rows of static", most, err);
    if (least < s->topk)
        return specrt__session_refuse_auto(s, "lists of topk rows or more", least, err);
    for (int32_t i = least; i < n_fixed; i++)
        if (specrt_policy_ends(policy, policy->fixed.ids[i]))
            return specrt__session_refuse_auto(s, "lists that hold all terminators", least, err);
    s->fixed_at = (int32_t *)specrt__base_alloc(&s->env, (size_t)n_ids * sizeof(int32_t));
    if (!s->fixed_at)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "session: out of memory for lists");
    for (int32_t i = 0; i < n_ids; i++) s->fixed_at[i] = -1;
    for (int32_t i = 0; i < n_fixed; i++) s->fixed_at[policy->fixed.ids[i]] = i;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_make_auto(specrt_session *s, specrt_auto *auto_draft,
                                               specrt_error *err) {
    int32_t most = specrt_tree_get_params(s->tree)->num_steps;
    s->n_fixed = s->policy->fixed.n_rows;
    if (!auto_draft) return SPECRT_STATUS_OK;
    if (auto_draft->num_steps > most)
        return specrt__session_refuse_auto(s, "at most the num_steps of its tree",
                                           auto_draft->num_steps, err);
    if (auto_draft->rows[0] > 0) SPECRT__TRY(specrt__session_make_lists(s, auto_draft, err));
    s->auto_draft = auto_draft;
    return SPECRT_STATUS_OK;
}

static bool specrt__session_submits(const specrt_policy *policy) {
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].shared.submits) return true;
    return false;
}

static specrt_status specrt__session_make(specrt_session *s, const specrt_session_params *params,
                                          specrt_error *err) {
    const specrt_policy *policy = s->policy;
    int32_t n_ids = policy->head->n_ids, n_logits = params->n_logits;
    int32_t n_vocab = policy->n_vocab < n_logits ? policy->n_vocab : n_logits;
    int32_t capacity = policy->info.n_packed;
    specrt_tree_params tree;
    SPECRT__TRY(specrt__session_check_columns(policy, n_logits, err));
    SPECRT__TRY(specrt__session_shape(params, &tree, err));
    SPECRT__TRY(specrt_tree_create(&tree, &s->env, &s->tree, err));
    SPECRT__TRY(
        specrt_verifier_create(n_logits, n_vocab, &params->sampling, &s->env, &s->verifier, err));
    s->topk = specrt_tree_get_params(s->tree)->topk;
    if (s->topk > policy->info.bound)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: topk: expected at most the %d rows of policy '%s', found "
                                "%d",
                                (int)policy->info.bound, policy->text, (int)s->topk);
    SPECRT__TRY(specrt__block_check_params(s, params, err));
    if (specrt__session_submits(policy) && !params->submit)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy '%s': expected params.submit, which runs what "
                                "mode=async leaves to another thread, found NULL",
                                policy->text);
    if (params->stock && policy->in_head)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy '%s': expected rows=packed with params.stock, "
                                "which shares packed rows, found rows=indexed",
                                policy->text);
    if (params->stock)
        SPECRT__TRY(specrt__stock_check_room(params->stock, policy->head, capacity, err));
    s->pool =
        specrt__pool_make(policy->head, n_ids, capacity, params->stock, policy->in_head, &s->env);
    if (s->pool) specrt__session_mark(s->pool, policy);
    if (!s->pool || !specrt__session_open_sources(s, params, n_logits) ||
        !specrt__session_make_routed(s) || !specrt__session_make_scratch(s) ||
        !specrt__session_make_distributions(s, params) || !specrt__block_make(s, params->n_block))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "session: out of memory for policy '%s'", policy->text);
    SPECRT__TRY(specrt__session_make_auto(s, params->auto_draft, err));
    s->shortlist.compute = &policy->head->compute;
    s->shortlist.segments = s->segments;
    s->shortlist.n_cols = policy->head->desc.n_cols;
    s->shortlist.head = policy->head;
    s->n_logits = n_logits;
    s->stamp = 1;
    s->generation = params->sampling.generation;
    specrt__session_reset(s);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_create(const specrt_policy *policy,
                                               const specrt_session_params *params,
                                               const specrt_env *env, specrt_session **out,
                                               specrt_error *err) {
    specrt_session_params defaults;
    if (out) *out = NULL;
    if (!policy || !out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy, out: expected pointers, found NULL");
    specrt_env own = env ? *env : policy->env;
    SPECRT__CLEAR(&defaults, 1);
    specrt_session *s = (specrt_session *)specrt__base_alloc(&own, sizeof(specrt_session));
    if (!s)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "session: out of memory for policy '%s'", policy->text);
    SPECRT__CLEAR(s, 1);
    s->env = own;
    s->policy = policy;
    specrt_status status = specrt__session_make(s, params ? params : &defaults, err);
    if (status == SPECRT_STATUS_OK)
        *out = s;
    else
        specrt_session_close(s);
    return status;
}

SPECRT_API void specrt_session_close(specrt_session *session) {
    if (!session) return;
    specrt_env env = session->env;
    for (int i = 0; i < session->n_open; i++)
        if (session->policy->sources[i].source->close)
            session->policy->sources[i].source->close(session->states[i]);
    specrt__base_free(&env, session->routed);
    specrt__pool_free(session->pool);
    specrt_tree_close(session->tree);
    specrt_verifier_close(session->verifier);
    specrt__base_free(&env, session->fixed_at);
    specrt__base_free(&env, session->distributions);
    specrt__base_free(&env, session->logits);
    specrt__base_free(&env, session->block.positions);
    specrt__base_free(&env, session);
}

// >>session_order : src/decode/session_order.c
/* session_order.c : owns the order of calls on a session: where it stands, which call is expected there, and
 * what a request may begin with. Refuses what comes too early, too late or twice, for an engine that goes on
 * would emit tokens of another text. */

/* What is expected where a session stands. */
static const char *specrt__session_expected(int at) {
    if (at & SPECRT__AT_CREATED) return "specrt_session_begin() first";
    if (at & SPECRT__AT_PROMPT) return "specrt_session_prefill() first, with the prompt";
    if (at & SPECRT__AT_READ) return "specrt_session_first() or start() first, which root a tree";
    if (at & SPECRT__AT_OPEN)
        return "specrt_session_start() first, with the token that observe_chain() lacked";
    if (at & SPECRT__AT_DRAFT)
        return "specrt_session_expand() or finish(), or begin() for another prompt";
    if (at & SPECRT__AT_DRAFTED)
        return "specrt_session_accept(), or verify() and observe(), which end the cycle";
    return "specrt_session_begin() first: the generation has ended";
}

SPECRT__INTERNAL specrt_status specrt__session_refuse_order(specrt_session *s, const char *call) {
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER, "%s: expected %s", call,
                            specrt__session_expected(s->at));
}

SPECRT_API const specrt_error *specrt_session_last_error(const specrt_session *session) {
    return session ? &session->error : NULL;
}

/* How many tokens the target has read: all but the last one that was emitted. */
static int64_t specrt__session_n_read(const specrt_session *s) {
    if (s->at & SPECRT__AT_OPEN) return s->position + s->open.n_accepted;
    if (s->at & (SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED | SPECRT__AT_ENDED))
        return s->position > 0 ? s->position - 1 : 0;
    return s->position;
}

SPECRT__INTERNAL specrt_status specrt__session_check_request(specrt_session *s,
                                                             const specrt_request *r) {
    bool turn = r->begin == SPECRT_BEGIN_TURN;
    int64_t most = turn ? specrt__session_n_read(s) : INT64_MAX / 2;
    if (!turn && r->begin != SPECRT_BEGIN_NEW)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: begin: expected new (0) or turn (1), found %d",
                                (int)r->begin);
    if (r->position < 0 || r->position > most)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: position: expected 0 to %lld%s, found %lld",
                                (long long)most,
                                turn ? ", the tokens that the target has read (the last emitted "
                                       "one leads the prompt)"
                                     : "",
                                (long long)r->position);
    if (r->max_tokens < 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: max_tokens: expected 0 for no limit, or more, found %lld",
                                (long long)r->max_tokens);
    if (!r->sampling) return SPECRT_STATUS_OK;
    if (s->distributions && r->sampling->temperature == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: sampling: expected a temperature above 0, since the "
                                "session has sampled drafts, found 0");
    return specrt__verify_check(s->verifier->n_logits, s->verifier->n_vocab, r->sampling,
                                &s->error);
}

/* Sources forget the sequence. */
static void specrt__session_forget(specrt_session *s) {
    specrt__pool_reset(s->pool);
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->begin) s->policy->sources[i].source->begin(s->states[i]);
    for (int32_t i = 0; i < s->policy->n_terminators; i++)
        specrt__pool_want(s->pool, s->policy->terminators[i], SPECRT__POOL_PINNED);
    s->n_copied_before = s->pool->n_copied;
    s->cycle = 0;
    SPECRT__CLEAR(&s->stats, 1);
    specrt__session_pack(s);
}

SPECRT__INTERNAL void specrt__session_reset(specrt_session *s) {
    specrt__session_forget(s);
    s->at = SPECRT__AT_CREATED;
    s->position = 0;
    s->open.n = 0;
    s->n_left = INT64_MAX;
    specrt_tree_begin(s->tree, 0);
}

SPECRT_API specrt_status specrt_session_begin(specrt_session *s, const specrt_request *request) {
    specrt_request r;
    SPECRT__SESSION_NEEDS(s, s, "begin");
    SPECRT__CLEAR(&r, 1);
    if (request) r = *request;
    SPECRT__TRY(specrt__session_check_request(s, &r));
    if (r.sampling) s->verifier->sampling = *r.sampling, s->generation = r.sampling->generation;
    specrt_verifier_set_generation(s->verifier, s->generation++);
    s->position = r.position;
    s->n_left = r.max_tokens > 0 ? r.max_tokens : INT64_MAX;
    s->n_late = 0;
    s->open.n = 0;
    s->level = 0;
    s->stamp++;
    specrt_tree_begin(s->tree, s->tree->root); /* a draft that was left is forgotten */
    if (r.begin == SPECRT_BEGIN_NEW) specrt__session_forget(s);
    /* what a new sequence starts behind has been read, and perhaps all of its prompt */
    s->at = r.begin == SPECRT_BEGIN_NEW && r.position > 0 ? SPECRT__AT_PROMPT | SPECRT__AT_READ
                                                          : SPECRT__AT_PROMPT;
    return SPECRT_STATUS_OK;
}

// >>session : src/decode/session.c
/* session.c : owns a sequence and its cycles: what is drafted, verified and learned. Refuses tokens, trees
 * and paths that no cycle can have. */

/* --- a sequence --- */

/* Of the cycle to come. */
static void specrt__session_choose(specrt_session *s) {
    if (!s->auto_draft) return;
    specrt_auto_choose(s->auto_draft, &s->choice);
    if (s->fixed_at) s->n_fixed = s->auto_draft->rows[s->choice.list];
}

/* Packs what the sources want now and lists the segments. */
SPECRT__INTERNAL void specrt__session_pack(specrt_session *s) {
    int32_t n = 0;
    specrt__session_choose(s);
    specrt__pool_sync(s->pool);
    if (s->n_fixed > 0) s->segments[n] = s->policy->fixed, s->segments[n++].n_rows = s->n_fixed;
    if (s->pool->n_rows > 0) specrt__pool_segment(s->pool, &s->segments[n++]);
    s->shortlist.n_segments = s->n_kept = n;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows;
    s->n_routed_rows = 0;
    s->level = 0;
    memset(s->sampled, 0xff, sizeof s->sampled); /* -1: a level may come to none */
    if (s->routed) SPECRT__CLEAR(s->routed->levels, s->pool->n_ids);
}

/* Rows of the routed segments that a row of the level scores, mean. */
static int64_t specrt__session_scored(const specrt__source_routed *routed, int32_t n) {
    int64_t n_products = 0;
    for (int32_t i = 0; i < routed->n_segments; i++)
        for (int32_t h = 0; h < n; h++)
            if (specrt__shortlist_scored(&routed->segments[i], h))
                n_products += routed->segments[i].n_rows;
    return n_products / n;
}

SPECRT__INTERNAL void specrt__session_count_read(specrt_session *s, int64_t n_read,
                                                 int64_t n_rows) {
    const specrt_head *head = s->pool->head;
    specrt_dtype dtype =
        s->policy->info.is_full ? head->desc.dtype : specrt__head_packed_dtype(head);
    size_t row = specrt_row_bytes(dtype, head->desc.n_cols);
    s->stats.n_bytes += n_read + n_rows * (int64_t)row;
}

SPECRT__INTERNAL specrt__source_level specrt__session_level(int32_t at, const specrt_beam *beam,
                                                            const float *draft_hidden,
                                                            const float *draft_input) {
    specrt__source_level level;
    SPECRT__CLEAR(&level, 1);
    level.level = at;
    level.n = beam->n;
    level.tokens = beam->tokens;
    level.logprobs = beam->logprobs;
    level.draft_input = draft_input;
    level.draft_hidden = draft_hidden;
    return level;
}

SPECRT__INTERNAL void specrt__session_list_routed(specrt_session *s) {
    const specrt__source_routed *routed = s->routed;
    memcpy(s->segments + s->n_kept, routed->segments,
           (size_t)routed->n_segments * sizeof *s->segments);
    s->shortlist.n_segments = s->n_kept + routed->n_segments;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows + routed->n_rows;
}

SPECRT__INTERNAL const specrt_shortlist *specrt__session_route_by(specrt_session *s,
                                                                  specrt__source_level level) {
    specrt__source_routed *routed = s->routed;
    s->stats.n_passes++;
    s->level++;
    if (!routed) return specrt__session_count_read(s, 0, s->shortlist.n_rows), &s->shortlist;
    routed->level = level.level;
    routed->n_segments = routed->n_rows = routed->n_masked = 0;
    routed->n_read = 0;
    for (int i = 0; i < s->policy->n_sources; i++)
        if (s->policy->sources[i].source->route)
            s->policy->sources[i].source->route(s->states[i], &level, routed);
    specrt__session_list_routed(s);
    s->n_routed_rows += specrt__session_scored(routed, level.n);
    specrt__session_count_read(s, routed->n_read, s->shortlist.n_rows);
    return &s->shortlist;
}

/* Whether a pass of your own may come now. */
static specrt_status specrt__session_check_pass(specrt_session *s, int32_t at,
                                                const specrt_beam *beam) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "route"));
    if (at != s->level)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "route: level: expected %d, the next of this cycle, found %d",
                                (int)s->level, (int)at);
    if (at >= SPECRT_TREE_MAX_STEPS || beam->n < 1 || beam->n > s->topk)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "route: expected at most %d levels of 1 to %d rows, found level %d "
                                "of %d rows",
                                SPECRT_TREE_MAX_STEPS, (int)s->topk, (int)at, (int)beam->n);
    return SPECRT_STATUS_OK;
}

SPECRT_API const specrt_shortlist *specrt_session_route(specrt_session *s, int32_t at,
                                                        const specrt_beam *beam,
                                                        const float *draft_hidden,
                                                        const float *draft_input) {
    if (!s || !beam || !draft_hidden || !beam->tokens || !beam->logprobs) {
        (void)specrt__base_refuse_null(s ? &s->error : NULL, "route",
                                       "beam, its tokens or logprobs, or draft_hidden");
        return NULL;
    }
    if (specrt__session_check_pass(s, at, beam) != SPECRT_STATUS_OK) return NULL;
    return specrt__session_route_by(s, specrt__session_level(at, beam, draft_hidden, draft_input));
}

static specrt_status specrt__session_check_tokens(specrt_session *s, const char *call,
                                                  const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->verifier->n_vocab)
            return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                    "%s: token %d: expected 0 to %d, found %d", call, (int)i,
                                    (int)s->verifier->n_vocab - 1, (int)tokens[i]);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_prefill(specrt_session *s, const int32_t *tokens, int32_t n,
                                                const specrt_target_rows *rows) {
    SPECRT__SESSION_NEEDS(s, s, "prefill");
    if (n > 0) SPECRT__SESSION_NEEDS(s, tokens, "prefill");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_PROMPT | SPECRT__AT_READ, "prefill"));
    if (n < 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "prefill: n: expected 0 or more tokens, found %d", (int)n);
    SPECRT__TRY(specrt__session_check_tokens(s, "prefill", tokens, n));
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->prefill)
            s->policy->sources[i].source->prefill(s->states[i], tokens, n, rows);
    s->position += n;
    if (n > 0) s->at = SPECRT__AT_READ;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_refuse_logits(specrt_session *s, const char *call) {
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_INPUT,
                            "%s: logits: expected numbers, one of them above -inf, found NaN or "
                            "-inf alone",
                            call);
}

SPECRT_API specrt_status specrt_session_draw(specrt_session *s, const float *logits,
                                             int32_t *token) {
    SPECRT__SESSION_NEEDS(s, token, "draw");
    *token = 0;
    SPECRT__SESSION_NEEDS(s, logits, "draw");
    SPECRT__TRY(
        specrt__session_order(s, SPECRT__AT_READ | SPECRT__AT_OPEN | SPECRT__AT_DRAFT, "draw"));
    int32_t drawn = specrt_verifier_draw(
        s->verifier, logits, s->position + (s->at & SPECRT__AT_OPEN ? s->open.n_accepted : 0));
    if (drawn < 0) return specrt__session_refuse_logits(s, "draw");
    *token = drawn;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_observe_chain(specrt_session *s, specrt_draft *chain,
                                                   int32_t n_accepted, int32_t last,
                                                   const specrt_target_rows *rows);

/* The cycle that waited for its last token. */
static specrt_status specrt__session_end_open(specrt_session *s, int32_t last) {
    specrt__session_open *open = &s->open;
    specrt_target_rows rows;
    specrt_draft chain;
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&chain, 1);
    rows.ids = open->ids;
    rows.k = SPECRT_LOGITS_MAX_K;
    chain.n = open->n;
    chain.tokens = open->tokens;
    open->n = 0;
    return specrt__session_observe_chain(s, &chain, open->n_accepted, last,
                                         open->told ? &rows : NULL);
}

SPECRT_API specrt_status specrt_session_start(specrt_session *s, int32_t token) {
    SPECRT__SESSION_NEEDS(s, s, "start");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_READ | SPECRT__AT_OPEN, "start"));
    SPECRT__TRY(specrt__session_check_tokens(s, "start", &token, 1));
    if (s->open.n > 0) return specrt__session_end_open(s, token);
    if (s->auto_draft) {
        specrt_auto_begin(s->auto_draft);
        specrt_auto_unread(s->auto_draft, s->n_late, s->n_left);
    }
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->start)
            s->policy->sources[i].source->start(s->states[i], token);
    specrt__session_pack(s);
    s->position++;
    s->n_left--;
    s->cycle++;
    s->stamp++;
    s->at = SPECRT__AT_DRAFT;
    specrt_tree_begin(s->tree, token);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL void specrt__session_cut(const specrt_session *s, specrt_verdict *v) {
    int64_t left = s->n_left > 0 ? s->n_left : 0;
    if (v->n >= left) v->end = SPECRT_END_LENGTH, v->n = left > 1 ? (int32_t)left : 1;
    for (int32_t i = 0; i < v->n; i++)
        if (specrt_policy_ends(s->policy, v->tokens[i]))
            v->end = SPECRT_END_TERMINATOR, v->n = i + 1;
}

SPECRT_API specrt_status specrt_session_first(specrt_session *s, const float *logits,
                                              specrt_verdict *out) {
    specrt_verdict first;
    SPECRT__SESSION_NEEDS(s, out, "first");
    SPECRT__CLEAR(out, 1);
    SPECRT__CLEAR(&first, 1);
    SPECRT__SESSION_NEEDS(s, logits, "first");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_READ, "first"));
    SPECRT__TRY(specrt_session_draw(s, logits, &first.tokens[0]));
    first.n = 1;
    first.cycle = s->stamp;
    specrt__session_cut(s, &first);
    SPECRT__TRY(specrt_session_start(s, first.tokens[0]));
    if (first.end != SPECRT_END_NONE) s->at = SPECRT__AT_ENDED;
    *out = first;
    return SPECRT_STATUS_OK;
}

/* --- a cycle --- */

SPECRT_API const specrt_shortlist *specrt_session_shortlist(const specrt_session *session) {
    return session ? &session->shortlist : NULL;
}

/* No beam where another level would not pay. */
static void specrt__session_stop(specrt_session *s, specrt_beam *beam) {
    if (s->auto_draft && beam->n > 0 &&
        !specrt_auto_should_continue(s->auto_draft, s->tree->level,
                                     s->topk == 1 ? beam->logprobs[0] : NAN))
        beam->n = 0;
}

SPECRT__INTERNAL specrt_status specrt__session_propose(specrt_session *s, int32_t n, int32_t k,
                                                       specrt_beam *beam) {
    SPECRT__TRY(specrt_tree_expand(s->tree, s->ids, s->logprobs, n, k, beam));
    specrt__session_stop(s, beam);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_sample(specrt_session *s, const int32_t *ids,
                                                      const float *logits, int32_t n,
                                                      specrt_beam *beam) {
    int32_t level = s->tree->level;
    size_t at = (size_t)level * (size_t)s->bound;
    int32_t *kept = s->distribution_ids + at;
    float *probs = s->distribution_probs + at, logprob = -INFINITY;
    if (ids)
        memcpy(kept, ids, (size_t)n * sizeof *kept);
    else
        specrt__shortlist_ids(&s->shortlist, kept);
    float temperature =
        s->draft_temperature > 0 ? s->draft_temperature : s->verifier->sampling.temperature;
    int32_t i =
        specrt_verifier_propose(s->verifier, logits, n, temperature, s->cycle, level, probs);
    s->sampled[level] = i < 0 ? -1 : kept[i];
    if (i >= 0) logprob = logf(probs[i]);
    s->distributions[level].n = n;
    s->distributions[level].ids = kept;
    s->distributions[level].probs = probs;
    SPECRT__TRY(specrt_tree_expand(s->tree, &kept[i < 0 ? 0 : i], &logprob, 1, 1, beam));
    specrt__session_stop(s, beam);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_grow(specrt_session *s, int32_t n,
                                                    specrt_beam *beam) {
    int32_t n_rows = s->shortlist.n_rows, k = s->topk < n_rows ? s->topk : n_rows;
    if (k == 0) return specrt_tree_expand(s->tree, s->ids, s->logprobs, n, 0, beam);
    specrt__block_add_markov(s, n);
    if (s->distributions) return specrt__session_sample(s, NULL, s->logits, n_rows, beam);
    SPECRT__TRY(specrt_shortlist_topk(&s->shortlist, s->logits, n, k, s->ids, s->logprobs));
    return specrt__session_propose(s, n, k, beam);
}

SPECRT__INTERNAL specrt_beam specrt__session_beam(const specrt_session *s) {
    static const float no_path = 0;
    static const int32_t no_parent = 0;
    const specrt_tree *t = s->tree;
    specrt_beam beam;
    beam.n = t->n_beam;
    beam.tokens = t->level ? t->beam_tokens : &t->root;
    beam.parents = t->level ? t->beam_parents : &no_parent;
    beam.logprobs = t->level ? t->beam_logprobs : &no_path;
    return beam;
}

SPECRT_API specrt_status specrt_session_get_beam(specrt_session *session, specrt_beam *beam) {
    SPECRT__SESSION_NEEDS(session, beam, "get_beam");
    SPECRT__CLEAR(beam, 1);
    SPECRT__TRY(specrt__session_order(session, SPECRT__AT_DRAFT, "get_beam"));
    *beam = specrt__session_beam(session);
    if (session->tree->level == session->tree->params.num_steps ||
        (session->auto_draft && session->choice.num_steps == 0))
        beam->n = 0;
    return SPECRT_STATUS_OK;
}

/* The rows of the pass to come, for the tree at hand. */
SPECRT__INTERNAL void specrt__session_route_pass(specrt_session *s, const float *draft_hidden,
                                                 const float *draft_input) {
    specrt_beam own = specrt__session_beam(s);
    specrt__source_level level =
        specrt__session_level(s->tree->level, &own, draft_hidden, draft_input);
    specrt__session_route_by(s, level);
}

/* Whether a pass of n rows may come now: the tree's next level, if no pass of your own came before. */
SPECRT__INTERNAL specrt_status specrt__session_check_expand(specrt_session *s, int32_t n) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "expand"));
    if (s->level != s->tree->level)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "expand: expected route() again, which scored level %d of this "
                                "cycle",
                                (int)s->level - 1);
    if (s->tree->level == s->tree->params.num_steps || s->tree->n_beam == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "expand: expected finish(): the tree has its last level");
    if (n == s->tree->n_beam) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "expand: n: expected the %d rows of the beam, found %d",
                            (int)s->tree->n_beam, (int)n);
}

SPECRT_API specrt_status specrt_session_expand(specrt_session *s, const float *draft_hidden,
                                               const float *draft_input, int32_t n,
                                               specrt_beam *beam) {
    SPECRT__SESSION_NEEDS(s, beam, "expand");
    SPECRT__CLEAR(beam, 1);
    SPECRT__SESSION_NEEDS(s, draft_hidden, "expand");
    SPECRT__TRY(specrt__session_check_expand(s, n));
    specrt__session_route_pass(s, draft_hidden, draft_input);
    SPECRT__TRY(specrt_shortlist_logits(&s->shortlist, draft_hidden, n, s->logits));
    return specrt__session_grow(s, n, beam);
}

SPECRT_API specrt_status specrt_session_finish(specrt_session *session, specrt_draft *draft) {
    SPECRT__SESSION_NEEDS(session, session, "finish");
    if (draft) SPECRT__CLEAR(draft, 1);
    SPECRT__TRY(specrt__session_order(session, SPECRT__AT_DRAFT, "finish"));
    if (draft) specrt_tree_finish(session->tree, draft), draft->cycle = session->stamp;
    session->at = SPECRT__AT_DRAFTED;
    return SPECRT_STATUS_OK;
}

/* Whether it is a tree of tokens behind the last emitted one. */
static specrt_status specrt__session_check_draft(specrt_session *s, const char *call,
                                                 const specrt_draft *draft) {
    if (draft->cycle != 0 && draft->cycle != s->stamp)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "%s: draft: expected that of this cycle, found an older one; call "
                                "specrt_session_finish() first",
                                call);
    if (draft->n < 1 || draft->n > SPECRT_TREE_MAX_NODES || !draft->tokens)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "%s: draft: expected 1 to %d nodes with tokens, as "
                                "specrt_session_finish() gives them, found %d%s",
                                call, SPECRT_TREE_MAX_NODES, (int)draft->n,
                                draft->tokens ? "" : " without");
    SPECRT__TRY(specrt__session_check_tokens(s, call, draft->tokens, draft->n));
    if (draft->tokens[0] != s->tree->root)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "%s: draft: root: expected %d, the last emitted token, found %d",
                                call, (int)s->tree->root, (int)draft->tokens[0]);
    int32_t stray = draft->parents ? specrt__verify_stray(draft) : 0;
    if (stray == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "%s: draft: parent of node %d: expected 0 to %d, found %d", call,
                            (int)stray, (int)stray - 1, (int)draft->parents[stray]);
}

/* A sampled chain is judged by what its tokens were sampled from, so it must be of those tokens. */
static specrt_status specrt__session_check_sampled(specrt_session *s, const specrt_draft *draft) {
    bool own = draft->n <= s->tree->level + 1;
    for (int32_t i = 1; i < draft->n && own; i++)
        own = draft->parents[i] == i - 1 && draft->tokens[i] == s->sampled[i - 1];
    if (own) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "verify: draft: expected the chain that the session sampled, or its "
                            "beginning, found another; verify your own with specrt_verify_chain()");
}

SPECRT_API specrt_status specrt_session_verify(specrt_session *s, const specrt_draft *draft,
                                               const float *logits, specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "verify");
    SPECRT__CLEAR(out, 1);
    SPECRT__SESSION_NEEDS(s, draft, "verify");
    SPECRT__SESSION_NEEDS(s, logits, "verify");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED, "verify"));
    SPECRT__TRY(specrt__session_check_draft(s, "verify", draft));
    SPECRT__SESSION_NEEDS(s, draft->parents, "verify");
    if (s->distributions) SPECRT__TRY(specrt__session_check_sampled(s, draft));
    specrt_status status =
        s->distributions ? specrt_verify_chain(s->verifier, draft->tokens + 1, s->distributions,
                                               draft->n - 1, logits, s->cycle, out)
                         : specrt_verify_tree(s->verifier, draft, logits, s->position, out);
    if (status == SPECRT_STATUS_OK) s->at = SPECRT__AT_DRAFTED, out->cycle = s->stamp;
    return status == SPECRT_STATUS_BAD_INPUT ? specrt__session_refuse_logits(s, "verify") : status;
}

/* Whether a verdict names a path of the draft from its root, and tokens. */
static specrt_status specrt__session_check_verdict(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_verdict *verdict) {
    if (verdict->cycle != 0 && verdict->cycle != s->stamp)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "observe: verdict: expected that of this cycle, found an older "
                                "one; call specrt_session_verify() first");
    bool path = verdict->n >= 1 && verdict->n <= draft->n && verdict->nodes[0] == 0;
    for (int32_t i = 1; i < verdict->n && path; i++) {
        int32_t node = verdict->nodes[i];
        path = node > 0 && node < draft->n && draft->tokens[node] == verdict->tokens[i - 1] &&
               (!draft->parents || draft->parents[node] == verdict->nodes[i - 1]);
    }
    if (path) return specrt__session_check_tokens(s, "observe", verdict->tokens, verdict->n);
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "observe: verdict: expected a path of the draft from its root, and a "
                            "token after it, found %d nodes that are none",
                            (int)verdict->n);
}

static specrt_status specrt__session_check_rows(specrt_session *s, const specrt_target_rows *rows) {
    int32_t width = s->policy->info.hidden_width;
    if (width == 0 || !rows || !rows->hidden || rows->d_hidden == width) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "observe: rows: d_hidden: expected %d, the policy's hidden_width, "
                            "found %d",
                            (int)width, (int)rows->d_hidden);
}

/* Whether the level that would have drafted a token could; beyond the last that drafted, that one. */
SPECRT_API specrt_member specrt_session_member(const specrt_session *s, int32_t token,
                                               int32_t level) {
    if (!s || token < 0 || token >= s->pool->n_ids || level < 0) return SPECRT_MEMBER_NO;
    if (s->fixed_at && s->fixed_at[token] >= s->n_fixed) return SPECRT_MEMBER_NO;
    if (s->pool->wants[token] & SPECRT__POOL_FIXED) return SPECRT_MEMBER_FIXED;
    if (specrt__pool_member(s->pool, token)) return SPECRT_MEMBER_NOW;
    if (!s->routed || s->level == 0) return SPECRT_MEMBER_NO;
    if (level >= s->level) level = s->level - 1;
    return s->routed->levels[token] >> level & 1 ? SPECRT_MEMBER_NOW : SPECRT_MEMBER_NO;
}

/* The first of the lists that holds a token. */
static int32_t specrt__session_list_of(const specrt_session *s, int32_t token) {
    int32_t list = 0, at = token < s->pool->n_ids ? s->fixed_at[token] : -1;
    if (at < 0) return specrt_session_member(s, token, 0) ? 0 : s->auto_draft->n_lists;
    while (list < s->auto_draft->n_lists && at >= s->auto_draft->rows[list]) list++;
    return list;
}

/* What the target's 16 best leave out is little wherever its probability is large enough to matter. */
SPECRT__INTERNAL float specrt__session_certainty(const float *logits, int32_t n, int32_t token) {
    int32_t best[SPECRT_LOGITS_MAX_K] = {0};
    int32_t k = specrt_logits_topk(logits, n, SPECRT_LOGITS_MAX_K, best);
    float sum = 0;
    for (int32_t i = 0; i < k; i++) sum += expf(logits[best[i]] - logits[best[0]]);
    return logits[token] - logits[best[0]] - logf(sum);
}

/* Probabilities are told of a chain that is the session's own. */
static void specrt__session_spend(specrt_session *s, const specrt_draft *draft,
                                  const specrt_verdict *verdict, const float *logits) {
    specrt_auto_cycle cycle;
    int32_t lists[SPECRT_TREE_MAX_NODES], n_logits = s->n_logits;
    float certain[SPECRT_TREE_MAX_NODES];
    SPECRT__CLEAR(&cycle, 1);
    if (!s->auto_draft) return;
    if (s->topk > 1) cycle.n_passes = s->tree->level; /* its last ones may be in no node */
    for (int32_t i = 0; i < draft->n; i++)
        if (draft->depths[i] > cycle.n_passes) cycle.n_passes = draft->depths[i];
    if (cycle.n_passes > s->auto_draft->num_steps) cycle.n_passes = s->auto_draft->num_steps;
    cycle.n_accepted = verdict->n - 1 < cycle.n_passes ? verdict->n - 1 : cycle.n_passes;
    if (s->topk == 1 && draft->logprobs == s->tree->logprobs) cycle.logprobs = draft->logprobs + 1;
    for (int32_t i = 0; s->fixed_at && i <= cycle.n_accepted; i++)
        lists[i] = specrt__session_list_of(s, verdict->tokens[i]);
    if (s->fixed_at) cycle.lists = lists;
    for (int32_t i = 0; logits && i <= cycle.n_accepted; i++)
        certain[i] = specrt__session_certainty(logits + (int64_t)verdict->nodes[i] * n_logits,
                                               s->verifier->n_vocab, verdict->tokens[i]);
    if (logits) cycle.target_logprobs = certain;
    (void)specrt_auto_observe(s->auto_draft, &cycle);
}

static void specrt__session_learn(specrt_session *s, const specrt_draft *draft,
                                  const specrt_verdict *verdict, const specrt_target_rows *rows) {
    const specrt__source_cycle cycle = {draft, verdict, rows, &s->stats};
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->observe)
            s->policy->sources[i].source->observe(s->states[i], &cycle);
}

/* What came of a cycle that was checked. */
static void specrt__session_close_cycle(specrt_session *s, const specrt_draft *draft,
                                        const specrt_verdict *verdict,
                                        const specrt_target_rows *rows) {
    s->stats.n_cycles++;
    s->stats.n_emitted += verdict->n;
    s->stats.n_drafted += draft->n - 1;
    s->stats.n_rows += s->n_fixed + s->pool->n_rows;
    if (s->level > 0) s->stats.n_rows += s->n_routed_rows / s->level;
    s->stats.n_by_length[verdict->n]++;
    for (int32_t i = 0; i < verdict->n; i++)
        s->stats.n_covered += specrt_session_member(s, verdict->tokens[i], i) != SPECRT_MEMBER_NO;
    int32_t root = verdict->tokens[verdict->n - 1]; /* the tree may hold the draft: read it first */
    specrt__session_spend(s, draft, verdict, rows ? rows->logits : NULL);
    specrt__session_learn(s, draft, verdict, rows);
    specrt__session_pack(s);
    s->position += verdict->n;
    s->n_left -= verdict->n;
    s->cycle++;
    s->stamp++;
    s->at = SPECRT__AT_DRAFT;
    specrt_tree_begin(s->tree, root);
}

SPECRT_API specrt_status specrt_session_observe(specrt_session *s, const specrt_draft *draft,
                                                const specrt_verdict *verdict,
                                                const specrt_target_rows *rows) {
    SPECRT__SESSION_NEEDS(s, draft, "observe");
    SPECRT__SESSION_NEEDS(s, verdict, "observe");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFTED, "observe"));
    SPECRT__SESSION_NEEDS(s, draft->parents, "observe");
    SPECRT__SESSION_NEEDS(s, draft->depths, "observe");
    SPECRT__SESSION_NEEDS(s, draft->logprobs, "observe");
    SPECRT__TRY(specrt__session_check_draft(s, "observe", draft));
    SPECRT__TRY(specrt__session_check_verdict(s, draft, verdict));
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    specrt__session_close_cycle(s, draft, verdict, rows);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_end(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_target_rows *rows,
                                                   const specrt_verdict *cut) {
    SPECRT__TRY(specrt_session_observe(s, draft, cut, rows));
    if (cut->end != SPECRT_END_NONE) s->at = SPECRT__AT_ENDED;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_accept(specrt_session *s, const specrt_draft *draft,
                                               const specrt_target_rows *rows,
                                               specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "accept");
    SPECRT__CLEAR(out, 1);
    SPECRT__SESSION_NEEDS(s, rows, "accept");
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    SPECRT__TRY(specrt_session_verify(s, draft, rows->logits, out));
    specrt__session_cut(s, out);
    specrt_status status = specrt__session_end(s, draft, rows, out);
    if (status != SPECRT_STATUS_OK) SPECRT__CLEAR(out, 1);
    return status;
}

/* Keeps a chain until its last token is known. */
static specrt_status specrt__session_leave_open(specrt_session *s, const specrt_draft *chain,
                                                int32_t n_accepted,
                                                const specrt_target_rows *rows) {
    specrt__session_open *open = &s->open;
    open->n = chain->n;
    open->n_accepted = n_accepted;
    open->told = rows && (rows->logits || (rows->ids && rows->k > 0));
    memcpy(open->tokens, chain->tokens, (size_t)chain->n * sizeof *chain->tokens);
    memset(open->ids, 0xff, sizeof open->ids); /* -1: none */
    for (int32_t i = 0; i < chain->n; i++)
        specrt__shortlist_target_best(rows, i, s->n_logits, SPECRT_LOGITS_MAX_K,
                                      open->ids + i * SPECRT_LOGITS_MAX_K);
    s->at = SPECRT__AT_OPEN;
    return SPECRT_STATUS_OK;
}

/* A chain that came in order, with its last token. */
static specrt_status specrt__session_observe_chain(specrt_session *s, specrt_draft *chain,
                                                   int32_t n_accepted, int32_t last,
                                                   const specrt_target_rows *rows) {
    static const float none[SPECRT_TREE_MAX_NODES] = {0};
    specrt_verdict verdict;
    SPECRT__CLEAR(&verdict, 1);
    for (int32_t i = 0; i < chain->n; i++) verdict.nodes[i] = i; /* they are depths, too */
    chain->depths = verdict.nodes;
    chain->logprobs = none;
    verdict.n = n_accepted + 1;
    for (int32_t i = 0; i < verdict.n; i++)
        verdict.tokens[i] = i < n_accepted ? chain->tokens[i + 1] : last;
    SPECRT__TRY(specrt__session_check_verdict(s, chain, &verdict));
    specrt__session_close_cycle(s, chain, &verdict, rows);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_observe_chain(specrt_session *s, const int32_t *tokens,
                                                      int32_t n, int32_t n_accepted, int32_t last,
                                                      const specrt_target_rows *rows) {
    specrt_draft chain;
    SPECRT__SESSION_NEEDS(s, tokens, "observe_chain");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED, "observe_chain"));
    if (n_accepted < 0 || n_accepted >= n)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "observe_chain: n_accepted: expected 0 to %d, found %d", (int)n - 1,
                                (int)n_accepted);
    SPECRT__CLEAR(&chain, 1);
    chain.n = n;
    chain.tokens = tokens;
    SPECRT__TRY(specrt__session_check_draft(s, "observe_chain", &chain));
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    if (last == -1) return specrt__session_leave_open(s, &chain, n_accepted, rows);
    return specrt__session_observe_chain(s, &chain, n_accepted, last, rows);
}

SPECRT_API void specrt_session_get_stats(const specrt_session *session, specrt_session_stats *out) {
    if (!out) return;
    SPECRT__CLEAR(out, 1);
    if (!session) return;
    *out = session->stats;
    out->n_copied = session->pool->n_copied - session->n_copied_before;
}

// >>block : src/decode/block.c
/* block.c : owns drafts of a block: which rows its positions score, what a Markov head adds, and which tokens
 * are chosen, left to right. Refuses blocks that the session has no room for. The tree, verification and
 * learning are those of every draft. */

/* --- making --- */

/* Rows of a shortlist at most: a position beyond the first may add what it would have alone. */
static int64_t specrt__block_bound(const specrt_policy *policy, int32_t n) {
    int64_t bound = policy->info.bound, most = policy->head->desc.n_rows;
    for (int i = 0; i < policy->n_sources && n > 1; i++) {
        int64_t more = (int64_t)(n - 1) * policy->sources[i].shared.more;
        bound += more < most ? more : most;
    }
    return bound;
}

SPECRT__INTERNAL specrt_status specrt__block_check_params(specrt_session *s,
                                                          const specrt_session_params *params,
                                                          specrt_error *err) {
    int32_t n = params->n_block, most = specrt_tree_get_params(s->tree)->num_steps;
    if (n < 0 || n > most)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: n_block: expected 0 to the %d levels of the tree "
                                "(num_steps), found %d",
                                (int)most, (int)n);
    int64_t bound = specrt__block_bound(s->policy, n);
    if (bound > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: n_block: expected fewer rows of policy '%s', found %lld",
                                s->policy->text, (long long)bound);
    s->bound = (int32_t)bound;
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL bool specrt__block_make(specrt_session *s, int32_t n) {
    const specrt_head_desc *head = &s->policy->head->desc;
    uint64_t k = (uint64_t)s->topk, bound = (uint64_t)s->bound, n_positions = (uint64_t)n * bound;
    uint64_t n_states = n > 0 && k > 1 ? 2 * k * (uint64_t)head->n_cols : 0;
    uint64_t n_from = head->markov ? k * (uint64_t)head->markov->from.n_cols : 0;
    uint64_t n_bias = head->markov ? k * bound : 0, n_places = head->markov ? bound : 0;
    uint64_t n_words = n_positions + n_states + n_from + n_bias + n_places;
    if (n_words == 0) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, 4 * n_words);
    if (!at) return false;
    s->block.n = n;
    s->block.positions = SPECRT__CARVE(float, &at, n_positions);
    s->block.states = SPECRT__CARVE(float, &at, n_states);
    s->block.from = SPECRT__CARVE(float, &at, n_from);
    s->block.bias = SPECRT__CARVE(float, &at, n_bias);
    s->block.places = SPECRT__CARVE(int32_t, &at, n_places);
    return true;
}

/* --- a Markov head --- */

/* Rows of w1, for each token of a beam. One that has none adds nothing. */
static void specrt__block_read_from(specrt_session *s, const specrt_beam *beam) {
    const specrt_head_desc *from = &s->policy->head->markov.from;
    for (int32_t i = 0; i < beam->n; i++) {
        float *out = s->block.from + i * from->n_cols;
        if (beam->tokens[i] < from->n_rows)
            specrt_row_decode(from->dtype, specrt__head_row(from, beam->tokens[i]), from->n_cols,
                              out);
        else
            SPECRT__CLEAR(out, from->n_cols);
    }
}

SPECRT__INTERNAL void specrt__block_add_markov(specrt_session *s, int32_t n) {
    const specrt_head *head = s->policy->head;
    const specrt_head_desc *to = &head->markov.to;
    int32_t n_rows = s->shortlist.n_rows;
    specrt_segment rows;
    specrt_beam beam = specrt__session_beam(s);
    if (!head->desc.markov || n_rows == 0) return;
    specrt__shortlist_ids(&s->shortlist, s->block.places);
    for (int32_t i = 0; i < n_rows; i++)
        s->block.places[i] = specrt__head_row_of(head, s->block.places[i]);
    SPECRT__CLEAR(&rows, 1);
    rows.rows = to->rows;
    rows.row_stride = to->row_stride;
    rows.dtype = to->dtype;
    rows.n_rows = n_rows;
    rows.places = s->block.places;
    specrt_shortlist product = {&head->compute, &rows, 1, n_rows, to->n_cols, NULL};
    specrt__block_read_from(s, &beam);
    specrt_shortlist_logits(&product, s->block.from, n, s->block.bias);
    for (int64_t i = 0; i < (int64_t)n * n_rows; i++) s->logits[i] += s->block.bias[i];
    s->stats.n_bytes += (int64_t)specrt_row_bytes(to->dtype, to->n_cols) * n_rows;
}

/* --- the rows of a block --- */

enum { SPECRT__BLOCK_CANDIDATES = 8 }; /* tokens of a position that sources of tokens follow */

/* What follows the best tokens of the positions, for those behind them. Logits that are there move up, since
 * a row of them becomes longer. */
static void specrt__block_follow(specrt_session *s, const float *hidden, int32_t n) {
    float *positions = s->block.positions, logprobs[SPECRT__BLOCK_CANDIDATES];
    int32_t ids[SPECRT__BLOCK_CANDIDATES], n_before = s->shortlist.n_rows;
    int32_t first = s->shortlist.n_segments, k = SPECRT__BLOCK_CANDIDATES;
    if (k > s->block.n) k = s->block.n; /* for so many tokens, sources have room */
    if (k > n_before) k = n_before;
    for (int32_t i = 0; i + 1 < n && k > 0; i++) {
        specrt_beam best = {k, ids, NULL, logprobs};
        specrt__source_level level = specrt__session_level(0, &best, NULL, NULL);
        level.again = true;
        specrt_shortlist_topk(&s->shortlist, positions + (int64_t)i * n_before, 1, k, ids,
                              logprobs);
        for (int j = 0; j < s->policy->n_sources; j++)
            if (s->policy->sources[j].shared.reads_tokens)
                s->policy->sources[j].source->route(s->states[j], &level, s->routed);
    }
    specrt__session_list_routed(s);
    int32_t n_after = s->shortlist.n_rows;
    if (n_after == n_before) return;
    for (int32_t i = n; i-- > 1;)
        memmove(positions + (int64_t)i * n_after, positions + (int64_t)i * n_before,
                (size_t)n_before * sizeof *positions);
    specrt__shortlist_complete(&s->shortlist, first, hidden, n, positions);
    s->n_routed_rows += n_after - n_before;
    specrt__session_count_read(s, 0, n_after - n_before);
}

/* One union of rows, and the logits of all positions. */
static void specrt__block_unite(specrt_session *s, const float *hidden, const float *input,
                                int32_t n) {
    static const float no_path[SPECRT_TREE_MAX_STEPS] = {0};
    int32_t roots[SPECRT_TREE_MAX_STEPS];
    bool follows = false;
    for (int32_t i = 0; i < n; i++) roots[i] = s->tree->root;
    specrt_beam all = {n, roots, NULL, no_path};
    specrt__source_level level = specrt__session_level(0, &all, hidden, input);
    level.each = true;
    specrt__session_route_by(s, level);
    if (s->shortlist.n_rows > 0)
        specrt_shortlist_logits(&s->shortlist, hidden, n, s->block.positions);
    for (int i = 0; i < s->policy->n_sources; i++)
        follows |= s->policy->sources[i].shared.reads_tokens;
    if (follows) specrt__block_follow(s, hidden, n);
}

/* A state for each row of a beam. */
static const float *specrt__block_repeat(const float *state, int64_t n_cols, int32_t n,
                                         float *out) {
    if (n == 1 || !state) return state;
    for (int32_t i = 0; i < n; i++) memcpy(out + i * n_cols, state, (size_t)n_cols * sizeof *out);
    return out;
}

/* The rows of one position, by the tokens before it, and its logits for every row of the beam: of the rows
 * that all positions have, they are there. */
static void specrt__block_route(specrt_session *s, const specrt_block *block, int32_t position,
                                const specrt_beam *beam) {
    int64_t n_cols = s->shortlist.n_cols;
    int32_t n_kept = s->n_fixed + s->pool->n_rows;
    const float *hidden =
        specrt__block_repeat(block->hidden + position * n_cols, n_cols, beam->n, s->block.states);
    const float *input =
        specrt__block_repeat(block->input ? block->input + position * n_cols : NULL, n_cols,
                             beam->n, s->block.states + s->topk * n_cols);
    specrt__session_route_by(s, specrt__session_level(position, beam, hidden, input));
    if (position > 0) specrt__session_count_read(s, 0, -n_kept);
    for (int32_t i = 0; i < beam->n; i++)
        memcpy(s->logits + (int64_t)i * s->shortlist.n_rows,
               s->block.positions + (int64_t)position * n_kept, (size_t)n_kept * sizeof *s->logits);
    specrt__shortlist_complete(&s->shortlist, s->n_kept, hidden, beam->n, s->logits);
}

/* What the positions score in common, before a token is chosen. @return whether that is all. */
static bool specrt__block_score(specrt_session *s, const specrt_block *block, int32_t n) {
    specrt_shortlist kept = s->shortlist;
    if (!block->by_position || !s->routed) {
        specrt__block_unite(s, block->hidden, block->input, n);
        return true;
    }
    kept.n_segments = s->n_kept;
    kept.n_rows = s->n_fixed + s->pool->n_rows;
    if (kept.n_rows > 0) specrt_shortlist_logits(&kept, block->hidden, n, s->block.positions);
    return false;
}

/* --- the tokens of a position --- */

/* Whether the paths of a beam go on: each has a confidence of its own. @return whether any does. */
static bool specrt__block_trusts(specrt_session *s, const specrt_block *block, int32_t position,
                                 const specrt_beam *beam, bool *trusted) {
    const specrt_head *head = s->policy->head;
    int64_t n_cols = head->desc.n_cols, rank = head->desc.markov ? head->markov.from.n_cols : 0;
    const float *state = block->hidden + position * n_cols, *weights = block->confidence;
    double sum = (double)block->confidence_bias;
    bool any = false;
    for (int32_t i = 0; i < beam->n; i++) trusted[i] = true;
    if (!(block->p_min > 0)) return true;
    if (!weights) return beam->logprobs[0] >= logf(block->p_min);
    for (int64_t j = 0; j < n_cols; j++) sum += (double)weights[j] * (double)state[j];
    if (rank > 0) specrt__block_read_from(s, beam);
    for (int32_t i = 0; i < beam->n; i++) {
        double x = sum;
        for (int64_t j = 0; j < rank; j++)
            x += (double)weights[n_cols + j] * (double)s->block.from[i * rank + j];
        trusted[i] = 1 / (1 + exp(-x)) >= (double)block->p_min;
        any |= trusted[i];
    }
    return any;
}

/* The best of a row of logits, as the application's function judges them.
 *   ids, logits : [k], written
 * @return how many are left; below 0: it failed. */
static int32_t specrt__block_select(specrt_session *s, const specrt_block *block, int32_t position,
                                    int32_t previous, const float *row, int32_t *ids,
                                    float *logits) {
    int32_t k = block->k < s->shortlist.n_rows ? block->k : s->shortlist.n_rows, n = 0;
    (void)specrt__shortlist_rank(&s->shortlist, row, 1, k, ids, NULL, logits);
    while (n < k && logits[n] > -INFINITY) n++;
    if (n == 0) return 0;
    int code = block->select(block->user, position, previous, ids, n, logits);
    if (code != 0) {
        s->at = SPECRT__AT_ENDED;
        (void)specrt_error_set(&s->error, SPECRT_STATUS_HOST, "draft_block: select: returned %d",
                               code);
        return -1;
    }
    k = n, n = 0;
    for (int32_t i = 0; i < k; i++)
        if (logits[i] > -INFINITY) ids[n] = ids[i], logits[n++] = logits[i];
    return n;
}

/* A row's k proposals of n candidates; where there are fewer, none. */
static void specrt__block_rank(specrt_session *s, int32_t row, int32_t k, const int32_t *ids,
                               const float *logits, int32_t n) {
    int32_t *best = s->ids + row * k;
    float *logprobs = s->logprobs + row * k;
    specrt_segment segment;
    SPECRT__CLEAR(&segment, 1);
    segment.ids = ids;
    segment.n_rows = n;
    specrt_shortlist candidates = {s->shortlist.compute, &segment, 1, n, 0, NULL};
    for (int32_t i = 0; i < k; i++) best[i] = s->tree->root, logprobs[i] = -INFINITY;
    if (n > 0) specrt_shortlist_topk(&candidates, logits, 1, n < k ? n : k, best, logprobs);
}

/* The level of a position, its candidates judged by the application. */
static specrt_status specrt__block_choose(specrt_session *s, const specrt_block *block,
                                          int32_t position, const specrt_beam *beam,
                                          const bool *trusted, specrt_beam *next) {
    int32_t ids[SPECRT_BLOCK_MAX_K], k = s->topk;
    float logits[SPECRT_BLOCK_MAX_K];
    for (int32_t i = 0; i < beam->n; i++) {
        int32_t n = 0;
        if (trusted[i])
            n = specrt__block_select(s, block, position, beam->tokens[i],
                                     s->logits + (int64_t)i * s->shortlist.n_rows, ids, logits);
        if (n < 0) return SPECRT_STATUS_HOST;
        if (s->distributions && n > 0) return specrt__session_sample(s, ids, logits, n, next);
        specrt__block_rank(s, i, k, ids, logits, n);
    }
    return specrt__session_propose(s, beam->n, k, next);
}

/* The level of a position. Where nothing tells the rows of a beam apart, the first is ranked for all. */
static specrt_status specrt__block_extend(specrt_session *s, const specrt_block *block,
                                          int32_t position, const specrt_beam *beam,
                                          const bool *trusted, specrt_beam *next) {
    int32_t n_rows = s->shortlist.n_rows, k = s->topk < n_rows ? s->topk : n_rows;
    bool alike = !s->policy->head->desc.markov && !block->select && !block->by_position;
    int32_t n = alike ? 1 : beam->n;
    if (n_rows == 0) return specrt_tree_expand(s->tree, s->ids, s->logprobs, beam->n, 0, next);
    specrt__block_add_markov(s, n);
    if (block->select) return specrt__block_choose(s, block, position, beam, trusted, next);
    if (s->distributions) return specrt__session_sample(s, NULL, s->logits, n_rows, next);
    SPECRT__TRY(specrt_shortlist_topk(&s->shortlist, s->logits, n, k, s->ids, s->logprobs));
    for (int32_t i = n; i < beam->n; i++) {
        memcpy(s->ids + i * k, s->ids, (size_t)k * sizeof *s->ids);
        memcpy(s->logprobs + i * k, s->logprobs, (size_t)k * sizeof *s->logprobs);
    }
    for (int32_t i = 0; i < beam->n * k; i++)
        if (!trusted[i / k]) s->logprobs[i] = -INFINITY;
    return specrt__session_propose(s, beam->n, k, next);
}

/* --- calls --- */

/* Whether a block may come now, as the only pass of its cycle. */
static specrt_status specrt__block_check(specrt_session *s, const char *call, int32_t n) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, call));
    if (s->level > 0 || s->tree->level > 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "%s: expected the first pass of a cycle, found one after another",
                                call);
    if (n >= 1 && n <= s->block.n) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "%s: n: expected 1 to %d positions (specrt_session_params.n_block), "
                            "found %d",
                            call, (int)s->block.n, (int)n);
}

static specrt_status specrt__block_check_choice(specrt_session *s, const specrt_block *block) {
    if (block->by_position != 0 && block->by_position != 1)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: by_position: expected 0 or 1, found %d",
                                (int)block->by_position);
    if (!(block->p_min >= 0 && block->p_min <= 1))
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: p_min: expected 0 to 1, found %g",
                                (double)block->p_min);
    if (block->select && (block->k < s->topk || block->k > SPECRT_BLOCK_MAX_K))
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: k: expected %d (topk) to %d candidates, found %d",
                                (int)s->topk, SPECRT_BLOCK_MAX_K, (int)block->k);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__block_grow(specrt_session *s, const specrt_block *block) {
    bool trusted[SPECRT_TREE_MAX_TOPK];
    int32_t n = block->n;
    SPECRT__SESSION_NEEDS(s, block->hidden, "draft_block");
    SPECRT__TRY(specrt__block_check(s, "draft_block", n));
    SPECRT__TRY(specrt__block_check_choice(s, block));
    if (s->auto_draft && s->choice.num_steps < n) n = s->choice.num_steps;
    if (n > 0) specrt__auto_block(s->auto_draft, n);
    specrt_beam beam = specrt__session_beam(s);
    bool scored = n > 0 && specrt__block_score(s, block, n);
    for (int32_t i = 0; i < n && beam.n > 0; i++) {
        if (!specrt__block_trusts(s, block, i, &beam, trusted)) break;
        int32_t n_rows = s->shortlist.n_rows;
        for (int32_t j = 0; j < beam.n && scored; j++)
            memcpy(s->logits + (int64_t)j * n_rows, s->block.positions + (int64_t)i * n_rows,
                   (size_t)n_rows * sizeof *s->logits);
        if (!scored) specrt__block_route(s, block, i, &beam);
        SPECRT__TRY(specrt__block_extend(s, block, i, &beam, trusted, &beam));
    }
    if (scored) s->stats.n_passes += s->tree->level - 1;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_draft_block(specrt_session *s, const specrt_block *block,
                                                    specrt_draft *draft) {
    SPECRT__SESSION_NEEDS(s, draft, "draft_block");
    SPECRT__CLEAR(draft, 1);
    SPECRT__SESSION_NEEDS(s, block, "draft_block");
    SPECRT__TRY(specrt__block_grow(s, block));
    return specrt_session_finish(s, draft);
}

SPECRT_API specrt_status specrt_session_block_topk(specrt_session *s, const float *hidden,
                                                   const float *input, int32_t n, int32_t k,
                                                   int32_t *ids, float *logits) {
    SPECRT__SESSION_NEEDS(s, hidden, "block_topk");
    SPECRT__SESSION_NEEDS(s, ids, "block_topk");
    SPECRT__SESSION_NEEDS(s, logits, "block_topk");
    SPECRT__TRY(specrt__block_check(s, "block_topk", n));
    if (k < 1 || k > SPECRT_BLOCK_MAX_K)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "block_topk: k: expected 1 to %d, found %d", SPECRT_BLOCK_MAX_K,
                                (int)k);
    specrt__block_unite(s, hidden, input, n);
    int32_t n_rows = s->shortlist.n_rows, n_best = k < n_rows ? k : n_rows;
    for (int32_t i = 0; i < n; i++) {
        int32_t *best = ids + (int64_t)i * k;
        float *scores = logits + (int64_t)i * k;
        if (n_best > 0)
            (void)specrt__shortlist_rank(&s->shortlist, s->block.positions + (int64_t)i * n_rows, 1,
                                         n_best, best, NULL, scores);
        for (int32_t j = 0; j < k; j++)
            if (j >= n_best || !(scores[j] > -INFINITY)) best[j] = -1, scores[j] = -INFINITY;
    }
    return SPECRT_STATUS_OK;
}

// >>session_batch : src/decode/session_batch.c
/* session_batch.c : owns one pass of several sequences, whose common rows are read once. Refuses a batch
 * before any of its trees has changed. */

/* What sequences multiply together: as many as one product takes the states of. */
typedef struct specrt__session_group {
    specrt_session *const *sessions;
    int32_t n, n_states;
    const float *hidden; /* f32 [n_states, n_cols] */
} specrt__session_group;

/* Whether these sessions can take a pass of so many rows together; if not, the first says why. */
static specrt_status specrt__session_check_batch(specrt_session *const *sessions, int32_t n,
                                                 int32_t n_hidden) {
    specrt_session *first = sessions[0];
    specrt_status status = SPECRT_STATUS_OK;
    int64_t n_rows = 0;
    int32_t n_seen = 0;
    for (; n_seen < n && status == SPECRT_STATUS_OK; n_seen++) {
        specrt_session *s = sessions[n_seen];
        bool fits = s && !s->in_batch && s->policy == first->policy;
        if (!fits)
            status = specrt_error_set(&first->error, SPECRT_STATUS_BAD_ARG,
                                      "expand_batch: session %d: expected another session of the "
                                      "same policy, found NULL, one twice, or another policy",
                                      (int)n_seen);
        else if ((status = specrt__session_check_expand(s, s->tree->n_beam)) != SPECRT_STATUS_OK)
            first->error = s->error;
        if (!fits) break;
        s->in_batch = true;
        n_rows += s->tree->n_beam;
    }
    for (int32_t i = 0; i < n_seen; i++) sessions[i]->in_batch = false;
    if (status != SPECRT_STATUS_OK || n_rows == n_hidden) return status;
    return specrt_error_set(&first->error, SPECRT_STATUS_BAD_ARG,
                            "expand_batch: n_hidden: expected the %lld rows of the beams, found %d",
                            (long long)n_rows, (int)n_hidden);
}

/* The first of n sequences, by their states. A pass has SPECRT_TREE_MAX_TOPK at most. */
static specrt__session_group specrt__session_group_of(specrt_session *const *sessions, int32_t n,
                                                      const float *draft_hidden) {
    specrt__session_group g = {sessions, 0, 0, draft_hidden};
    while (g.n < n && g.n_states + sessions[g.n]->tree->n_beam <= SPECRT__SHORTLIST_SHARED)
        g.n_states += sessions[g.n++]->tree->n_beam;
    return g;
}

/* The logits of the rows that all have. */
static void specrt__session_share(const specrt__session_group *g) {
    float *logits[SPECRT__SHORTLIST_SHARED];
    specrt__shortlist_shared product = {&g->sessions[0]->shortlist, g->hidden, 0, logits};
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        for (int32_t row = 0; row < s->tree->n_beam; row++)
            logits[product.n++] = s->logits + (size_t)row * (size_t)s->shortlist.n_rows;
    }
    specrt__shortlist_share(&product);
}

/* The logits of the rows that all hold of one stock. @return false: shared products do not pay, or there is
 * none. */
static bool specrt__session_join(const specrt__session_group *g) {
    specrt__stock_member members[SPECRT__SHORTLIST_SHARED];
    specrt_stock *stock = g->sessions[0]->pool->stock;
    const float *draft_hidden = g->hidden;
    int64_t n_blocks = 0;
    int32_t first = 0;
    if (!stock || g->n < 2) return false;
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        specrt__stock_member *m = &members[i];
        if (s->pool->stock != stock || s->pool->n_rows == 0) return false;
        m->shortlist = &s->shortlist;
        m->segment = &s->segments[s->n_kept - 1];
        m->hidden = draft_hidden;
        m->logits = s->logits + s->n_fixed;
        m->n = s->tree->n_beam;
        m->first = first;
        m->block = n_blocks;
        n_blocks += specrt__shortlist_blocks(m->segment->n_rows);
        draft_hidden += m->n * s->shortlist.n_cols;
        first += m->n;
    }
    return specrt__stock_multiply(stock, members, g->n, g->hidden, g->n_states);
}

/* Scores a pass of each of the group and grows the trees.
 *   alike : the fixed rows, if any, are the same of all */
static specrt_status specrt__session_expand_group(const specrt__session_group *g, bool alike,
                                                  specrt_beam *beams) {
    const float *draft_hidden = g->hidden;
    int32_t n_done = 0;
    if (alike && g->sessions[0]->n_fixed > 0) specrt__session_share(g), n_done++;
    if (alike && specrt__session_join(g)) n_done++;
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        int32_t n_rows = s->tree->n_beam;
        specrt__shortlist_complete(&s->shortlist, n_done, draft_hidden, n_rows, s->logits);
        SPECRT__CLEAR(&beams[i], 1);
        SPECRT__TRY(specrt__session_grow(s, n_rows, &beams[i]));
        draft_hidden += n_rows * s->shortlist.n_cols;
    }
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_expand_batch(specrt_session *const *sessions, int32_t n,
                                                     const float *draft_hidden,
                                                     const float *draft_input, int32_t n_hidden,
                                                     specrt_beam *beams) {
    const float *at = draft_hidden;
    bool alike = true; /* each may have chosen another list */
    if (n < 1 || n > SPECRT_SESSION_MAX_BATCH || !sessions || !sessions[0])
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__SESSION_NEEDS(sessions[0], beams, "expand_batch");
    SPECRT__SESSION_NEEDS(sessions[0], draft_hidden, "expand_batch");
    SPECRT__TRY(specrt__session_check_batch(sessions, n, n_hidden));
    int64_t n_cols = sessions[0]->shortlist.n_cols;
    for (int32_t i = 0; i < n; i++) {
        alike &= sessions[i]->n_fixed == sessions[0]->n_fixed;
        specrt__session_route_pass(sessions[i], at,
                                   draft_input ? draft_input + (at - draft_hidden) : NULL);
        at += sessions[i]->tree->n_beam * n_cols;
    }
    for (int32_t i = 0; i < n;) {
        specrt__session_group g = specrt__session_group_of(sessions + i, n - i, draft_hidden);
        SPECRT__TRY(specrt__session_expand_group(&g, alike, beams + i));
        draft_hidden += g.n_states * n_cols;
        i += g.n;
    }
    return SPECRT_STATUS_OK;
}

// >>snapshot : src/decode/snapshot.h
/* snapshot.h : the numbers of the format of saved sessions */

enum {
    SPECRT__SNAPSHOT_VERSION = 2,  /* 1 did not say where the session stood */
    SPECRT__SNAPSHOT_CHECKED = 24, /* bytes before those that the checksum is of */
    SPECRT__SNAPSHOT_PARTS = SPECRT__POLICY_KINDS,
    SPECRT__SNAPSHOT_LISTS = 3 + 8 * SPECRT__SNAPSHOT_PARTS /* with eight of a source at most */
};

// >>snapshot : src/decode/snapshot.c
/* snapshot.c : owns saved sessions (docs/FORMAT.md, "Saved sessions"): a header, the policy's text, then
 * lists of words of 32 bits, each with its length. Refuses bytes of another version, policy or
 * vocabulary, damaged ones, and lists that no session could have: whatever is in them, indices stay
 * within their arrays. */

/* What ids mean to a policy: its fixed rows, the order that windows are filled up in, what may not be
 * proposed, what ends a text. */
static uint64_t specrt__snapshot_digest(const specrt_session *s) {
    const specrt_policy *p = s->policy;
    const int32_t sizes[6] = {p->n_vocab,    s->pool->n_ids, p->fixed.n_rows,
                              p->n_frequent, p->n_invalid,   p->n_ends};
    uint64_t h = specrt_hash64(sizes, sizeof sizes, 0);
    if (p->fixed.n_rows > 0) h = specrt_hash64(p->fixed.ids, 4 * (size_t)p->fixed.n_rows, h);
    if (p->frequent) h = specrt_hash64(p->frequent, 4 * (size_t)p->n_frequent, h);
    if (p->n_invalid > 0) h = specrt_hash64(p->invalid, 4 * (size_t)p->n_invalid, h);
    return specrt_hash64(p->ends, 4 * (size_t)p->n_ends, h);
}

static size_t specrt__snapshot_text(const specrt_session *s) {
    return (size_t)specrt__base_align(strlen(s->policy->text), 4);
}

/* --- lists --- */

/* A source whose lists a save has. */
typedef struct specrt__snapshot_part {
    const specrt__source *source;
    void *state; /* NULL: the policy does not have it, and its lists are empty */
} specrt__snapshot_part;

/* The parts in the order of the table: of sources that the policy has, and of those that are always saved.
 * @return how many. */
static int specrt__snapshot_parts(const specrt_session *s, specrt__snapshot_part *parts) {
    int n = 0;
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        const specrt__source *source = specrt__policy_kinds[kind].source;
        if (!source || source->n_lists == 0) continue;
        parts[n].source = source;
        parts[n].state = specrt__session_state(s, kind);
        n += parts[n].state || source->always_saved;
    }
    return n;
}

/* The most words that each list may have. @return how many lists there are. */
static int specrt__snapshot_limits(const specrt_session *s, int32_t most[SPECRT__SNAPSHOT_LISTS]) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    int n_parts = specrt__snapshot_parts(s, parts), n = 0;
    memset(most, 0, SPECRT__SNAPSHOT_LISTS * sizeof *most);
    most[n++] = s->pool->capacity;
    for (int i = 0; i < n_parts; n += parts[i++].source->n_lists)
        if (parts[i].state) parts[i].source->limits(parts[i].state, most + n);
    most[n++] = SPECRT_TREE_MAX_NODES;
    most[n++] = SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K;
    return n;
}

/* The most that a save takes. */
static size_t specrt__snapshot_bound(const specrt_session *s) {
    int32_t most[SPECRT__SNAPSHOT_LISTS];
    int n = specrt__snapshot_limits(s, most);
    size_t words = (size_t)n;
    for (int i = 0; i < n; i++) words += (size_t)most[i];
    return SPECRT__SAVED_HEADER + specrt__snapshot_text(s) + 4 * words;
}

/* --- writing --- */

/* Packed tokens by slot; the parts; a chain that waits for its last token, and the target's best there. */
static void specrt__snapshot_put_lists(specrt__save *out, const specrt_session *s) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    const specrt__session_open *open = &s->open;
    int n_parts = specrt__snapshot_parts(s, parts);
    specrt__save_list(out, s->pool->ids, s->pool->n_rows);
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].state) parts[i].source->save(parts[i].state, out);
        for (int j = 0; j < parts[i].source->n_lists && !parts[i].state; j++)
            specrt__save_word(out, 0);
    }
    specrt__save_list(out, open->tokens, open->n);
    specrt__save_list(out, open->ids,
                      open->n > 0 && open->told ? open->n * SPECRT_LOGITS_MAX_K : 0);
}

/* What sources keep in the header is there already. */
static void specrt__snapshot_put_header(uint8_t *h, const specrt_session *s, size_t n_bytes) {
    uint32_t version = SPECRT__SNAPSHOT_VERSION, n = (uint32_t)n_bytes, at = (uint32_t)s->at;
    uint32_t n_text = (uint32_t)strlen(s->policy->text);
    uint64_t digest = specrt__snapshot_digest(s);
    memcpy(h, "SPECRSES", 8);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &n, 4);
    memcpy(h + 24, &digest, 8);
    memcpy(h + 32, &s->position, 8);
    memcpy(h + 40, &s->cycle, 8);
    memcpy(h + 48, &s->generation, 8);
    memcpy(h + 56, &s->verifier->sampling.generation, 8);
    memcpy(h + 72, &at, 4);
    memcpy(h + 76, &s->tree->root, 4);
    memcpy(h + 88, &s->open.n_accepted, 4);
    memcpy(h + 92, &n_text, 4);
    memcpy(h + SPECRT__SAVED_HEADER, s->policy->text, n_text);
    uint64_t sum =
        specrt_hash64(h + SPECRT__SNAPSHOT_CHECKED, n_bytes - SPECRT__SNAPSHOT_CHECKED, 0);
    memcpy(h + 16, &sum, 8);
}

/* What was learnt is all taken over, and what is wanted packed. */
static void specrt__snapshot_settle(specrt_session *s) {
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->settle)
            s->policy->sources[i].source->settle(s->states[i]);
    if (s->pool->n_changed > 0) specrt__session_pack(s);
}

SPECRT_API specrt_status specrt_session_save(specrt_session *s, void *bytes, size_t capacity,
                                             size_t *n_bytes) {
    SPECRT__SESSION_NEEDS(s, n_bytes, "save");
    *n_bytes = 0;
    bool drafting = s->at & SPECRT__AT_DRAFTED || (s->level > 0 && s->open.n == 0);
    if (drafting && capacity > 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "save: expected specrt_session_accept() or observe() first, which "
                                "end the cycle");
    specrt__save w = {NULL, SPECRT__SAVED_HEADER + specrt__snapshot_text(s)};
    *n_bytes = specrt__snapshot_bound(s);
    if (*n_bytes > UINT32_MAX)
        return specrt_error_set(&s->error, SPECRT_STATUS_UNSUPPORTED,
                                "save: expected at most %u bytes, found %llu", UINT32_MAX,
                                (unsigned long long)*n_bytes);
    if (capacity == 0) return SPECRT_STATUS_OK;
    SPECRT__SESSION_NEEDS(s, bytes, "save");
    specrt__snapshot_settle(s);
    specrt__snapshot_put_lists(&w, s);
    *n_bytes = w.n;
    if (capacity < w.n)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "save: capacity: expected at least %llu bytes, found %llu",
                                (unsigned long long)w.n, (unsigned long long)capacity);
    w.bytes = (uint8_t *)bytes;
    w.n = SPECRT__SAVED_HEADER + specrt__snapshot_text(s);
    memset(w.bytes, 0, w.n);
    specrt__snapshot_put_lists(&w, s); /* the checksum in the header is of them too */
    specrt__snapshot_put_header(w.bytes, s, w.n);
    return SPECRT_STATUS_OK;
}

/* --- reading --- */

typedef struct specrt__snapshot {
    const uint8_t *bytes;
    size_t n;
    int n_lists; /* packed tokens first, the chain and the target's best there last */
    specrt__saved_list lists[SPECRT__SNAPSHOT_LISTS];
} specrt__snapshot;

static specrt_status specrt__snapshot_damaged(const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                            "session: %s: expected what a session saved, found something else; "
                            "start a new sequence",
                            what);
}

/* What can be told before anything in it is believed. */
static specrt_status specrt__snapshot_check(const specrt__snapshot *in, specrt_error *err) {
    if (in->n < 8 || memcmp(in->bytes, "SPECRSES", 8) != 0)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MAGIC,
                                "session: expected bytes of specrt_session_save(), found others");
    if (in->n < SPECRT__SAVED_HEADER) return specrt__snapshot_damaged("header", err);
    uint32_t version = specrt__base_load32(in->bytes + 8);
    if (version < 1 || version > SPECRT__SNAPSHOT_VERSION)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_VERSION,
                                "session: version: expected 1 to %d, found %u; save it again",
                                (int)SPECRT__SNAPSHOT_VERSION, (unsigned)version);
    if (specrt__base_load32(in->bytes + 12) != in->n)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                                "session: expected %u bytes, found %llu; start a new sequence",
                                (unsigned)specrt__base_load32(in->bytes + 12),
                                (unsigned long long)in->n);
    if (specrt_hash64(in->bytes + SPECRT__SNAPSHOT_CHECKED, in->n - SPECRT__SNAPSHOT_CHECKED, 0) !=
        specrt__base_load64(in->bytes + 16))
        return specrt__snapshot_damaged("checksum", err);
    return SPECRT_STATUS_OK;
}

/* Whether it is of this policy, over the same lists. *at: where its own lists begin. */
static specrt_status specrt__snapshot_belongs(const specrt_session *s, const specrt__snapshot *in,
                                              size_t *at, specrt_error *err) {
    const char *text = (const char *)in->bytes + SPECRT__SAVED_HEADER;
    size_t n_text = specrt__base_load32(in->bytes + 92);
    if (n_text > in->n - SPECRT__SAVED_HEADER) return specrt__snapshot_damaged("policy", err);
    if (n_text != strlen(s->policy->text) || memcmp(text, s->policy->text, n_text) != 0)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MISMATCH,
                                "session: policy: expected '%.160s', found '%.*s'", s->policy->text,
                                n_text < 160 ? (int)n_text : 160, text);
    uint64_t expected = specrt__snapshot_digest(s), found = specrt__base_load64(in->bytes + 24);
    if (expected != found)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MISMATCH,
                                "session: policy '%.160s': expected a vocabulary and lists of "
                                "digest %016llx, found %016llx; use the bundle it was saved with",
                                s->policy->text, (unsigned long long)expected,
                                (unsigned long long)found);
    *at = SPECRT__SAVED_HEADER + specrt__snapshot_text(s);
    return SPECRT_STATUS_OK;
}

static bool specrt__snapshot_cut(const specrt_session *s, size_t at, specrt__snapshot *in) {
    int32_t most[SPECRT__SNAPSHOT_LISTS];
    in->n_lists = specrt__snapshot_limits(s, most);
    for (int i = 0; i < in->n_lists; i++) {
        if (at > in->n || in->n - at < 4) return false;
        uint32_t n = specrt__base_load32(in->bytes + at);
        if (n > (uint32_t)most[i]) return false;
        in->lists[i].n = (int32_t)n;
        in->lists[i].words = in->bytes + at + 4;
        at += 4 + 4 * (size_t)n;
    }
    return at == in->n;
}

/* Where the session was in the order of calls; 0: nowhere. Version 1 does not say, so its sessions may do
 * whatever such bytes allow: continue the prompt, or the tree that they have. */
static int specrt__snapshot_at(const specrt__snapshot *in) {
    uint32_t at = specrt__base_load32(in->bytes + 72);
    bool open = in->lists[in->n_lists - 2].n > 0;
    if (specrt__base_load32(in->bytes + 8) == 1)
        return open ? SPECRT__AT_OPEN : SPECRT__AT_PROMPT | SPECRT__AT_READ | SPECRT__AT_DRAFT;
    const uint32_t places = SPECRT__AT_CREATED | SPECRT__AT_PROMPT | SPECRT__AT_READ |
                            SPECRT__AT_OPEN | SPECRT__AT_DRAFT | SPECRT__AT_ENDED;
    return (at & ~places) == 0 && open == ((at & SPECRT__AT_OPEN) != 0) ? (int)at : 0;
}

/* Every index within its array, but for what the target thought best: those are checked before use, as an
 * application's are. Sources check their own lists. @return what is wrong, or NULL. */
static const char *specrt__snapshot_wrong(const specrt_session *s, const specrt__snapshot *in) {
    const specrt__saved_list *chain = &in->lists[in->n_lists - 2];
    const int32_t n_vocab = s->verifier->n_vocab, n_best = in->lists[in->n_lists - 1].n;
    int32_t root = (int32_t)specrt__base_load32(in->bytes + 76);
    int32_t n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    if (!specrt__saved_within(&in->lists[0], s->pool->n_ids)) return "tokens";
    if (specrt__base_load64(in->bytes + 32) > INT64_MAX / 2) return "position"; /* and goes on */
    if (specrt__base_load64(in->bytes + 40) > INT64_MAX / 2) return "cycle";
    if (root < 0 || root >= n_vocab) return "root";
    if (specrt__snapshot_at(in) == 0) return "place in the order of calls";
    if (n_accepted < 0 || (chain->n > 0 && n_accepted >= chain->n) ||
        (n_best > 0 && n_best != chain->n * SPECRT_LOGITS_MAX_K) ||
        !specrt__saved_within(chain, n_vocab))
        return "chain";
    return NULL;
}

/* --- becoming what was saved: the session is as after begin --- */

static void specrt__snapshot_enter_rest(specrt_session *s, const specrt__snapshot *in) {
    const specrt__saved_list *chain = &in->lists[in->n_lists - 2], *best = chain + 1;
    s->position = (int64_t)specrt__base_load64(in->bytes + 32);
    s->cycle = (int64_t)specrt__base_load64(in->bytes + 40);
    s->at = specrt__snapshot_at(in);
    s->generation = specrt__base_load64(in->bytes + 48);
    specrt_verifier_set_generation(s->verifier, specrt__base_load64(in->bytes + 56));
    specrt_tree_begin(s->tree, (int32_t)specrt__base_load32(in->bytes + 76));
    s->open.n = chain->n;
    s->open.n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    s->open.told = best->n > 0;
    memcpy(s->open.tokens, chain->words, 4 * (size_t)chain->n);
    memcpy(s->open.ids, best->words, 4 * (size_t)best->n);
}

static specrt_status specrt__snapshot_enter(specrt_session *s, const specrt__snapshot *in,
                                            specrt_error *err) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    specrt__saved own = {in->bytes, in->lists + 1};
    int n_parts = specrt__snapshot_parts(s, parts);
    for (int i = 0; i < n_parts; own.lists += parts[i++].source->n_lists) {
        const char *wrong = parts[i].state ? parts[i].source->load(parts[i].state, &own) : NULL;
        if (wrong) return specrt__snapshot_damaged(wrong, err);
    }
    if (!specrt__pool_arrange(s->pool, in->lists[0].words, in->lists[0].n))
        return specrt__snapshot_damaged("rows", err);
    specrt__snapshot_enter_rest(s, in);
    specrt__session_pack(s);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__snapshot_load(specrt_session *s, specrt__snapshot *in,
                                           specrt_error *err) {
    size_t at = 0;
    SPECRT__TRY(specrt__snapshot_check(in, err));
    SPECRT__TRY(specrt__snapshot_belongs(s, in, &at, err));
    if (!specrt__snapshot_cut(s, at, in)) return specrt__snapshot_damaged("lists", err);
    const char *wrong = specrt__snapshot_wrong(s, in);
    return wrong ? specrt__snapshot_damaged(wrong, err) : specrt__snapshot_enter(s, in, err);
}

SPECRT_API specrt_status specrt_session_load(specrt_session *s, const void *bytes, size_t n) {
    specrt__snapshot in;
    SPECRT__SESSION_NEEDS(s, bytes, "load");
    SPECRT__CLEAR(&in, 1);
    in.bytes = (const uint8_t *)bytes;
    in.n = n;
    specrt__session_reset(s);
    specrt_status status = specrt__snapshot_load(s, &in, &s->error);
    if (status != SPECRT_STATUS_OK) specrt__session_reset(s);
    return status;
}

// >>host : src/decode/host.c
/* host.c : owns the loop over the application's models. Refuses tables with holes, prompts that fill the
 * context, and generations that a model failed. */

/* Before a model sees it: a host need not check tokens. */
static specrt_status specrt__host_check_prompt(specrt_session *s, const specrt_host *host,
                                               int64_t position, const int32_t *prompt, int64_t n) {
    int32_t n_vocab = s->verifier->n_vocab;
    int64_t most = host->n_context ? host->n_context - 1 - position : INT64_MAX;
    if (n < 1 || n > most)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %lld tokens, found %lld", (long long)most,
                                (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= n_vocab)
            return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %lld: expected 0 to %d, found %d", (long long)i,
                                    (int)n_vocab - 1, (int)prompt[i]);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__host_check(specrt_session *s, const specrt_host *host) {
    bool reads = s->policy->info.hidden_width > 0;
    const char *missing = !host->target_prefill                     ? "target_prefill"
                          : !host->draft_step && !host->draft_block ? "draft_step"
                          : !host->target_verify                    ? "target_verify"
                          : !host->commit                           ? "commit"
                          : reads && !host->target_hidden           ? "target_hidden"
                                                                    : NULL;
    if (missing)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "host: %s: expected a function, found NULL", missing);
    if (host->n_context < 0 || host->n_context == 1)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "host: n_context: expected 0 for no limit, or at least 2 for a "
                                "prompt and what follows it, found %lld",
                                (long long)host->n_context);
    return SPECRT_STATUS_OK;
}

/* What a callback returned. After a failure nobody knows what the models have read. */
static specrt_status specrt__host_returned(specrt_session *s, const char *callback, int code,
                                           bool has_result) {
    if (code == 0 && has_result) return SPECRT_STATUS_OK;
    s->at = SPECRT__AT_ENDED;
    if (code == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_HOST,
                                "host: %s: returned 0, expected a result with it, found NULL",
                                callback);
    return specrt_error_set(&s->error, SPECRT_STATUS_HOST, "host: %s: returned %d", callback, code);
}

/* One batch of the prompt. *last: the logits of its last token. */
static specrt_status specrt__host_prefill(specrt_session *s, const specrt_host *host,
                                          const int32_t *tokens, int32_t n, const float **last) {
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    int all = s->policy->info.needs_prompt_logits;
    int code = host->target_prefill(host->user, tokens, n, all, &rows.logits);
    SPECRT__TRY(specrt__host_returned(s, "target_prefill", code, rows.logits != NULL));
    *last = rows.logits + (all ? (int64_t)(n - 1) * s->n_logits : 0);
    return specrt_session_prefill(s, tokens, n, all ? &rows : NULL);
}

/* The prompt and the first token after it. */
static specrt_status specrt__host_start(specrt_session *s, const specrt_host *host,
                                        const int32_t *prompt, int64_t n, specrt_verdict *out) {
    const float *last = NULL;
    int64_t batch = host->max_batch > 0 ? host->max_batch : INT32_MAX;
    for (int64_t done = 0; done < n; done += batch) {
        int64_t left = n - done < batch ? n - done : batch;
        SPECRT__TRY(specrt__host_prefill(s, host, prompt + done, (int32_t)left, &last));
    }
    s->n_late = host->reads_late ? n : 0;
    return specrt_session_first(s, last, out);
}

SPECRT_API specrt_status specrt_host_begin(specrt_session *s, const specrt_host *host,
                                           const specrt_request *request, const int32_t *prompt,
                                           int64_t n, specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "host_begin");
    memset(out, 0, sizeof *out);
    SPECRT__SESSION_NEEDS(s, host, "host_begin");
    SPECRT__SESSION_NEEDS(s, prompt, "host_begin");
    SPECRT__TRY(specrt__host_check(s, host));
    if (request) SPECRT__TRY(specrt__session_check_request(s, request));
    SPECRT__TRY(specrt__host_check_prompt(s, host, request ? request->position : 0, prompt, n));
    SPECRT__TRY(specrt_session_begin(s, request));
    return specrt__host_start(s, host, prompt, n, out);
}

/* Passes of a draft at most. */
static int32_t specrt__host_steps(const specrt_session *s, const specrt_host *host) {
    int32_t most = s->tree->params.num_steps;
    return host->num_steps > 0 && host->num_steps < most ? host->num_steps : most;
}

/* A block of the drafter, as far as it is of use. */
static specrt_status specrt__host_block(specrt_session *s, const specrt_host *host, int32_t n) {
    specrt_block block;
    specrt_beam beam;
    SPECRT__CLEAR(&block, 1);
    SPECRT__TRY(specrt_session_get_beam(s, &beam));
    if (beam.n == 0) return SPECRT_STATUS_OK;
    if (s->auto_draft && s->choice.num_steps < n) n = s->choice.num_steps;
    int code = host->draft_block(host->user, s->tree->root, n, &block);
    SPECRT__TRY(specrt__host_returned(s, "draft_block", code, block.hidden != NULL));
    if (block.n > n) block.n = n;
    if (block.p_min == 0) block.p_min = host->p_min;
    return specrt__block_grow(s, &block);
}

/* Where it ends follows from tokens that stay in the draft, as a sampled chain must have it. */
static specrt_status specrt__host_draft(specrt_session *s, const specrt_host *host) {
    specrt_beam beam;
    const int32_t n_steps = specrt__host_steps(s, host);
    if (host->draft_block) return specrt__host_block(s, host, n_steps);
    const float least = host->p_min > 0 ? logf(host->p_min) : -INFINITY;
    SPECRT__TRY(specrt_session_get_beam(s, &beam));
    for (int32_t level = 0; level < n_steps && beam.n > 0 && beam.logprobs[0] >= least; level++) {
        const float *draft_hidden = NULL, *draft_input = NULL;
        int code = host->draft_step(host->user, level, &beam, &draft_hidden, &draft_input);
        SPECRT__TRY(specrt__host_returned(s, "draft_step", code, draft_hidden != NULL));
        SPECRT__TRY(specrt_session_expand(s, draft_hidden, draft_input, beam.n, &beam));
    }
    return SPECRT_STATUS_OK;
}

/* The hidden states that the last verification computed, where a source reads them. */
static specrt_status specrt__host_hidden(specrt_session *s, const specrt_host *host,
                                         specrt_target_rows *rows) {
    int32_t width = s->policy->info.hidden_width;
    if (width == 0) return SPECRT_STATUS_OK;
    int code = host->target_hidden(host->user, &rows->hidden, &rows->d_hidden);
    SPECRT__TRY(specrt__host_returned(s, "target_hidden", code, rows->hidden != NULL));
    if (rows->d_hidden == width) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "host: target_hidden: expected %d columns, which the index has, found "
                            "%d",
                            (int)width, (int)rows->d_hidden);
}

/* Verifies a draft that the target has read, tells the host what to keep, and learns. */
static specrt_status specrt__host_accept(specrt_session *s, const specrt_host *host,
                                         const specrt_draft *draft, const specrt_target_rows *rows,
                                         specrt_verdict *out) {
    SPECRT__TRY(specrt_session_verify(s, draft, rows->logits, out));
    specrt__session_cut(s, out);
    SPECRT__TRY(specrt__host_returned(s, "commit", host->commit(host->user, draft, out), true));
    return specrt__session_end(s, draft, rows, out);
}

SPECRT_API specrt_status specrt_host_cycle(specrt_session *s, const specrt_host *host,
                                           specrt_verdict *out) {
    specrt_draft draft;
    specrt_target_rows rows;
    SPECRT__SESSION_NEEDS(s, out, "host_cycle");
    memset(&rows, 0, sizeof rows);
    memset(out, 0, sizeof *out);
    SPECRT__SESSION_NEEDS(s, host, "host_cycle");
    SPECRT__TRY(specrt__host_check(s, host));
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "host_cycle"));
    int64_t left = host->n_context ? host->n_context - (s->position - 1) : INT64_MAX;
    if (left < 1) return out->end = SPECRT_END_CONTEXT, SPECRT_STATUS_OK;
    if (left > specrt__host_steps(s, host)) SPECRT__TRY(specrt__host_draft(s, host));
    SPECRT__TRY(specrt_session_finish(s, &draft));
    int code = host->target_verify(host->user, &draft, &rows.logits);
    SPECRT__TRY(specrt__host_returned(s, "target_verify", code, rows.logits != NULL));
    SPECRT__TRY(specrt__host_hidden(s, host, &rows));
    return specrt__host_accept(s, host, &draft, &rows, out);
}

/* Gives new tokens to the application. @return whether it goes on. */
static bool specrt__host_give(specrt_generation *g, const specrt_verdict *v) {
    g->n_tokens += v->n;
    g->end = v->end;
    if (v->n > 0 && g->each && g->each(g->user, v->tokens, v->n) != 0 && g->end == SPECRT_END_NONE)
        g->end = SPECRT_END_STOPPED;
    return g->end == SPECRT_END_NONE;
}

SPECRT_API specrt_status specrt_generate(specrt_session *s, const specrt_host *host,
                                         const specrt_request *request, const int32_t *prompt,
                                         int64_t n, specrt_generation *g) {
    specrt_verdict verdict;
    SPECRT__SESSION_NEEDS(s, g, "generate");
    g->n_tokens = 0;
    g->end = SPECRT_END_NONE;
    SPECRT__TRY(specrt_host_begin(s, host, request, prompt, n, &verdict));
    while (specrt__host_give(g, &verdict)) SPECRT__TRY(specrt_host_cycle(s, host, &verdict));
    return SPECRT_STATUS_OK;
}

#if defined(SPECRT_TOOLS)

// >>align : src/adapt/align.c
/* align.c : owns what waits to be learnt from: the gate, the buffers, the curriculum's weights, and the
 * gradient of the loss with respect to hidden states. Refuses settings out of range and values that are
 * not finite. Knows nothing of the drafter but its head: the layer's backward pass and the optimiser
 * are the application's. */

typedef struct specrt__align_buffer {
    specrt_align_batch view; /* of the arrays below */
    bool out;
    uint64_t *contexts; /* [capacity] */
    int32_t *steps, *n_top;
    float *weights;
    int32_t *ids;    /* [capacity, width] */
    float *probs;    /* [capacity, width] */
    float *logits;   /* [width + 1] of the drafter, scratch */
    int32_t *places; /* [width + 1] rows of the head, scratch */
    float *row;      /* [n_cols] scratch */
} specrt__align_buffer;

struct specrt_align {
    specrt_env env;
    const specrt_head *head;
    specrt_compute compute; /* the head's, on the calling thread alone */
    specrt_align_params params;
    int32_t n_logits;
    size_t bytes;
    specrt__align_buffer buffers[2];
    int filling;
    bool full;    /* since before this cycle */
    int32_t *ids; /* [width + 1] of the position being looked at, then the token itself */
    float *probs; /* [width] */
    specrt_align_stats stats;
};

static specrt_status specrt__align_check(const specrt_align_params *p, int32_t n_logits,
                                         specrt_error *err) {
    const struct {
        const char *name;
        int32_t value, least, most;
    } counts[] = {{"n_logits", n_logits, 1, SPECRT_MAX_VOCAB},
                  {"n_batch", p->n_batch, 1, SPECRT_ALIGN_MAX_BATCH},
                  {"n_steps", p->n_steps, 1, SPECRT_TREE_MAX_NODES},
                  {"n_top", p->n_top, 1, SPECRT_ALIGN_MAX_TOP}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].most)
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG, "align: %s: expected %d to %d, found %d",
                counts[i].name, (int)counts[i].least, (int)counts[i].most, (int)counts[i].value);
    if (!(p->temperature > 0 && p->temperature <= 1000))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "align: temperature: expected above 0, to 1000, found %g",
                                (double)p->temperature);
    if (!(p->beta >= 0 && p->beta <= 1000) || !(p->epsilon >= 0))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "align: expected beta in [0, 1000] and epsilon of at least 0, "
                                "found %g and %g",
                                (double)p->beta, (double)p->epsilon);
    return SPECRT_STATUS_OK;
}

/* A cycle that fills a buffer goes into it as a whole. */
static int32_t specrt__align_capacity(const specrt_align *a) {
    return a->params.n_batch + a->params.n_steps - 1;
}

/* Tokens that a position may retain. */
static int32_t specrt__align_width(const specrt_align *a) {
    return a->params.n_top;
}

static uint64_t specrt__align_size(const specrt_align *a) {
    uint64_t n = (uint64_t)specrt__align_capacity(a), k = (uint64_t)specrt__align_width(a);
    uint64_t entry = sizeof(uint64_t) + 3 * sizeof(int32_t) + k * 2 * sizeof(float);
    uint64_t scratch = 2 * (k + 1) * sizeof(float) + (uint64_t)a->head->desc.n_cols * sizeof(float);
    return 2 * (n * entry + scratch) + (2 * k + 1) * sizeof(float);
}

static void specrt__align_carve(specrt_align *a, uint8_t *at) {
    int32_t n = specrt__align_capacity(a), k = specrt__align_width(a);
    for (int i = 0; i < 2; i++) a->buffers[i].contexts = SPECRT__CARVE(uint64_t, &at, n);
    for (int i = 0; i < 2; i++) {
        specrt__align_buffer *b = &a->buffers[i];
        b->steps = SPECRT__CARVE(int32_t, &at, n);
        b->n_top = SPECRT__CARVE(int32_t, &at, n);
        b->weights = SPECRT__CARVE(float, &at, n);
        b->ids = SPECRT__CARVE(int32_t, &at, (int64_t)n * k);
        b->probs = SPECRT__CARVE(float, &at, (int64_t)n *k);
        b->logits = SPECRT__CARVE(float, &at, k + 1);
        b->places = SPECRT__CARVE(int32_t, &at, k + 1);
        b->row = SPECRT__CARVE(float, &at, a->head->desc.n_cols);
        b->view.contexts = b->contexts;
        b->view.steps = b->steps;
        b->view.weights = b->weights;
        b->view.n_top = b->n_top;
        b->view.ids = b->ids;
        b->view.probs = b->probs;
    }
    a->ids = SPECRT__CARVE(int32_t, &at, k + 1);
    a->probs = SPECRT__CARVE(float, &at, k);
}

SPECRT_API specrt_status specrt_align_create(const specrt_head *head, int32_t n_logits,
                                             const specrt_align_params *params,
                                             const specrt_env *env, specrt_align **out,
                                             specrt_error *err) {
    static const specrt_align_params defaults = SPECRT_ALIGN_DEFAULTS;
    specrt_env own = specrt__base_env(env);
    specrt_align probe;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__CLEAR(&probe, 1);
    probe.env = own;
    probe.head = head;
    probe.params = params ? *params : defaults;
    probe.n_logits = n_logits;
    SPECRT__TRY(specrt__align_check(&probe.params, n_logits, err));
    uint64_t bytes = sizeof probe + specrt__align_size(&probe);
    uint8_t *block = (uint8_t *)specrt__base_alloc(&own, bytes);
    if (!block) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "align: out of memory");
    specrt_align *a = (specrt_align *)(void *)block;
    *a = probe;
    a->bytes = (size_t)bytes;
    a->compute = head->compute;
    a->compute.env.parallel_for = NULL;
    specrt__align_carve(a, block + sizeof *a);
    *out = a;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_align_close(specrt_align *align) {
    if (!align) return;
    specrt_env env = align->env;
    specrt__base_free(&env, align);
}

/* --- the two distributions over the retained support --- */

/* The k greatest finite logits of tokens that the head has rows for, best first, ties to the lower id.
 * @return how many; -1: a logit is NaN or +inf. */
static int32_t specrt__align_top(const specrt_align *a, const float *logits, int32_t *ids) {
    int32_t n = 0, k = a->params.n_top;
    for (int32_t i = 0; i < a->n_logits; i++) {
        float x = logits[i];
        if (n == k && x <= logits[ids[k - 1]]) continue;
        if (isnan(x) || x == INFINITY) return -1;
        if (x == -INFINITY || specrt__head_row_of(a->head, i) < 0) continue;
        int32_t at = n < k ? n++ : k - 1;
        for (; at > 0 && x > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return n;
}

/* Logits of the drafter for tokens [n] that the head has rows for. */
static void specrt__align_score(const specrt_align *a, const specrt__align_buffer *b,
                                const float *hidden, const int32_t *ids, int32_t n) {
    const specrt_head_desc *head = &a->head->desc;
    specrt_segment rows;
    specrt_shortlist few;
    for (int32_t i = 0; i < n; i++) b->places[i] = specrt__head_row_of(a->head, ids[i]);
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&few, 1);
    rows.rows = head->rows;
    rows.row_stride = head->row_stride;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.n_rows = n;
    rows.places = b->places;
    few.compute = &a->compute;
    few.segments = &rows;
    few.n_segments = 1;
    few.n_rows = n;
    few.n_cols = head->n_cols;
    few.head = a->head;
    specrt_shortlist_logits(&few, hidden, 1, b->logits);
}

/* log sum exp(x / t); NaN where an x is NaN. */
static double specrt__align_logsumexp(const float *x, int32_t n, double t) {
    double best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] <= best)) best = x[i];
    for (int32_t i = 0; i < n; i++) sum += exp((x[i] - best) / t);
    return best / t + log(sum);
}

/* KL(p || q), q the softmax of logits at t. */
static double specrt__align_divergence(const float *probs, const float *logits, int32_t n,
                                       double t) {
    double total = specrt__align_logsumexp(logits, n, t), sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (probs[i] > 0)
            sum += (double)probs[i] * (log((double)probs[i]) - (double)logits[i] / t + total);
    return sum;
}

/* The first step's cross-entropy against the token that was emitted: over the shortlist where a proposal's
 * log-probability tells its logsumexp, else over the retained tokens and that one. */
static double specrt__align_base_loss(const specrt_align *a, const specrt__align_buffer *b,
                                      const specrt_align_position *e, int32_t n) {
    if (specrt__head_row_of(a->head, e->token) < 0) return INFINITY;
    if (e->drafted >= 0 && specrt__head_row_of(a->head, e->drafted) >= 0) {
        const int32_t both[2] = {e->drafted, e->token};
        specrt__align_score(a, b, e->hidden, both, 1);
        double total = (double)b->logits[0] - (double)e->drafted_logprob;
        specrt__align_score(a, b, e->hidden, both + 1, 1);
        return total - (double)b->logits[0];
    }
    bool among = false;
    for (int32_t i = 0; i < n; i++) among = among || a->ids[i] == e->token;
    if (!among) a->ids[n] = e->token;
    specrt__align_score(a, b, e->hidden, a->ids, n + !among);
    double total = specrt__align_logsumexp(b->logits, n + !among, 1);
    for (int32_t i = 0; i < n; i++)
        if (a->ids[i] == e->token) return total - (double)b->logits[i];
    return total - (double)b->logits[n];
}

/* --- the gate and the buffer --- */

/* p over the retained tokens of a position, into a->ids and a->probs. @return how many; 0: none, or not
 * finite. */
static int32_t specrt__align_retain(const specrt_align *a, const float *logits) {
    double t = (double)a->params.temperature, sum = 0;
    int32_t n = specrt__align_top(a, logits, a->ids);
    for (int32_t i = 0; i < n; i++)
        sum += exp(((double)logits[a->ids[i]] - (double)logits[a->ids[0]]) / t);
    for (int32_t i = 0; i < n; i++)
        a->probs[i] =
            (float)(exp(((double)logits[a->ids[i]] - (double)logits[a->ids[0]]) / t) / sum);
    return n < 0 ? 0 : n;
}

static void specrt__align_keep(specrt_align *a, const specrt_align_position *e, int32_t n,
                               double base_loss) {
    specrt__align_buffer *b = &a->buffers[a->filling];
    size_t k = (size_t)specrt__align_width(a), at = (size_t)b->view.n;
    /* At j = 1 the weight is 1, whatever the loss: infinity times 0 is none. */
    double power = e->step > 1 ? (double)a->params.beta * base_loss * (e->step - 1) : 0;
    if (a->params.beta == 0) power = 0;
    b->contexts[at] = e->context;
    b->steps[at] = e->step;
    b->weights[at] = (float)exp(-(power > 0 ? power : 0));
    b->n_top[at] = n;
    memcpy(b->ids + at * k, a->ids, (size_t)n * sizeof *b->ids);
    memcpy(b->probs + at * k, a->probs, (size_t)n * sizeof *b->probs);
    b->view.n++;
    a->stats.n_kept++;
}

/* What the gate says of a covered position. @return 1 if it was kept. */
static int32_t specrt__align_look(specrt_align *a, const specrt_align_position *e,
                                  double *base_loss) {
    specrt__align_buffer *b = &a->buffers[a->filling];
    int32_t n = specrt__align_retain(a, e->logits);
    double divergence = NAN;
    if (n > 0) {
        specrt__align_score(a, b, e->hidden, a->ids, n);
        divergence =
            specrt__align_divergence(a->probs, b->logits, n, (double)a->params.temperature);
        if (e->step == 1) *base_loss = specrt__align_base_loss(a, b, e, n);
    }
    if (!(divergence < INFINITY)) {
        a->stats.n_invalid++;
        return 0;
    }
    a->stats.divergence += divergence;
    a->stats.n_rejected += e->rejected != 0;
    if (!e->rejected && !(divergence > (double)a->params.epsilon)) return 0;
    if (a->full) {
        a->stats.n_dropped++;
        return 0;
    }
    specrt__align_keep(a, e, n, *base_loss);
    return 1;
}

/* Whether all its tokens have logits, and a covered one what is compared. */
static bool specrt__align_valid(const specrt_align *a, const specrt_align_position *e) {
    return e->token >= 0 && e->token < a->n_logits && e->drafted < a->n_logits &&
           (!e->covered || (e->logits && e->hidden));
}

SPECRT_API int32_t specrt_align_observe(specrt_align *a, const specrt_align_position *positions,
                                        int32_t n) {
    double base_loss = 0;
    int32_t n_kept = 0;
    if (!a || (!positions && n > 0)) return -1;
    for (int32_t i = 0; i < n; i++)
        if (!specrt__align_valid(a, &positions[i]) ||
            positions[i].step <= (i ? positions[i - 1].step : 0))
            return -1;
    a->full = a->buffers[a->filling].view.n >= a->params.n_batch;
    for (int32_t i = 0; i < n && positions[i].step <= a->params.n_steps; i++) {
        a->stats.n_positions++;
        if (positions[i].covered)
            n_kept += specrt__align_look(a, &positions[i], &base_loss);
        else
            a->stats.n_missing++;
    }
    return n_kept;
}

SPECRT_API const specrt_align_batch *specrt_align_acquire(specrt_align *a) {
    if (!a) return NULL;
    specrt__align_buffer *full = &a->buffers[a->filling], *other = &a->buffers[1 - a->filling];
    if (full->view.n < a->params.n_batch || other->out) return NULL;
    full->out = true;
    a->filling = 1 - a->filling;
    a->stats.n_batches++;
    return &full->view;
}

static specrt__align_buffer *specrt__align_buffer_of(specrt_align *a,
                                                     const specrt_align_batch *batch) {
    return &a->buffers[batch == &a->buffers[1].view];
}

SPECRT_API void specrt_align_release(specrt_align *align, const specrt_align_batch *batch) {
    if (!align || !batch) return;
    specrt__align_buffer *b = specrt__align_buffer_of(align, batch);
    b->out = false;
    b->view.n = 0;
}

SPECRT_API void specrt_align_clear(specrt_align *align) {
    if (align) align->buffers[align->filling].view.n = 0;
}

SPECRT_API void specrt_align_get_stats(const specrt_align *align, specrt_align_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!align || !out) return;
    *out = align->stats;
    out->n_bytes = (int64_t)align->bytes;
}

/* --- the gradient --- */

/* dh = W[support]^T g with g_k = w T (q_k - p_k) of entry i, times how a logit follows its product.
 * @return its loss. */
static double specrt__align_entry(const specrt_align *a, const specrt__align_buffer *b, int32_t i,
                                  const float *hidden, float *dh) {
    const specrt_head_desc *head = &a->head->desc;
    int32_t n = b->n_top[i];
    size_t at = (size_t)i * (size_t)specrt__align_width(a);
    const int32_t *ids = b->ids + at;
    const float *probs = b->probs + at;
    double t = (double)a->params.temperature, w = (double)b->weights[i];
    specrt__align_score(a, b, hidden, ids, n);
    double total = specrt__align_logsumexp(b->logits, n, t);
    SPECRT__CLEAR(dh, head->n_cols);
    for (int32_t k = 0; k < n; k++) {
        double q = exp((double)b->logits[k] / t - total);
        float g = (float)(w * t * (q - (double)probs[k]) *
                          specrt__head_slope(head, (double)b->logits[k]));
        const uint8_t *row = (const uint8_t *)head->rows + (size_t)b->places[k] * head->row_stride;
        specrt_row_decode(head->dtype, row, head->n_cols, b->row);
        for (int64_t c = 0; c < head->n_cols; c++) dh[c] += g * b->row[c];
    }
    return w * t * t * specrt__align_divergence(probs, b->logits, n, t);
}

SPECRT_API specrt_status specrt_align_gradient(const specrt_align *align,
                                               const specrt_align_batch *batch, const float *hidden,
                                               float *dh, double *loss) {
    if (!align || !batch || !hidden || !dh) return SPECRT_STATUS_BAD_ARG;
    const specrt__align_buffer *b = &align->buffers[batch == &align->buffers[1].view];
    int64_t n_cols = align->head->desc.n_cols;
    double sum = 0;
    for (int32_t i = 0; i < batch->n; i++)
        sum += specrt__align_entry(align, b, i, hidden + i * n_cols, dh + i * n_cols);
    if (loss) *loss = sum;
    for (int64_t i = 0; i < batch->n * n_cols; i++)
        if (!isfinite(dh[i])) return SPECRT_STATUS_BAD_INPUT;
    return isfinite(sum) ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_INPUT;
}

// >>costs : src/adapt/costs.h
/* costs.h : the curves of costs by number */

enum { SPECRT__COSTS_CURVES = 9, SPECRT__COSTS_READ = 7 /* tokens that reading is told by */ };

/* A curve, and the name of its lines in a file, static: in the order of specrt_pass and of the times of each.
 * @return NULL: there are fewer */
SPECRT__INTERNAL specrt_curve *specrt__costs_curve(specrt_costs *c, int32_t i, const char **name);

/* spread of the curves; disturbed where it is too wide to choose by */
SPECRT__INTERNAL void specrt__costs_judge(specrt_costs *c);

/* Processors in use, by the load average of the last minute; 0: unknown */
SPECRT__INTERNAL double specrt__costs_load(void);

// >>costs : src/adapt/costs.c
/* costs.c : what passes take on this machine: curves by size, and what scoring by a policy takes. */

enum { SPECRT__COSTS_HEAD_ROUNDS = 3, SPECRT__COSTS_WINDOW_TOKENS = 256 };
#define SPECRT__COSTS_CACHE_BYTES ((size_t)16 << 20)

/* --- curves --- */

static void specrt__curve_put(specrt_curve *c, int32_t i, int32_t size, double seconds, double low,
                              double high) {
    c->sizes[i] = size;
    c->seconds[i] = seconds;
    c->low[i] = low;
    c->high[i] = high;
}

SPECRT_API int32_t specrt_curve_add(specrt_curve *c, int32_t size, double seconds) {
    int32_t i;
    if (!c || c->n == SPECRT_CURVE_MAX_SIZES) return -1;
    for (i = c->n++; i > 0 && c->sizes[i - 1] > size; i--)
        specrt__curve_put(c, i, c->sizes[i - 1], c->seconds[i - 1], c->low[i - 1], c->high[i - 1]);
    specrt__curve_put(c, i, size, seconds, seconds, seconds);
    return i;
}

static void specrt__curve_pool(double *y, int32_t n_sizes) {
    double level[SPECRT_CURVE_MAX_SIZES];
    int32_t size[SPECRT_CURVE_MAX_SIZES], n = 0, at = 0;
    for (int32_t i = 0; i < n_sizes; i++) {
        level[n] = y[i];
        size[n++] = 1;
        for (; n > 1 && level[n - 2] > level[n - 1]; n--) {
            int32_t both = size[n - 2] + size[n - 1];
            level[n - 2] = (level[n - 2] * size[n - 2] + level[n - 1] * size[n - 1]) / both;
            size[n - 2] = both;
        }
    }
    for (int32_t b = 0; b < n; b++)
        for (int32_t k = 0; k < size[b]; k++) y[at++] = level[b];
}

SPECRT_API void specrt_curve_make_monotone(specrt_curve *c) {
    if (!c) return;
    specrt__curve_pool(c->seconds, c->n);
    specrt__curve_pool(c->low, c->n);
    specrt__curve_pool(c->high, c->n);
    for (int32_t i = 0; i < c->n; i++) { /* rounding moves them apart */
        if (c->low[i] > c->seconds[i]) c->low[i] = c->seconds[i];
        if (c->high[i] < c->seconds[i]) c->high[i] = c->seconds[i];
    }
}

SPECRT_API double specrt_curve_at(const specrt_curve *c, double size) {
    int32_t i = 1;
    if (!c || c->n == 0) return 0;
    double least = 0.1 * c->seconds[0], seconds;
    if (c->n == 1) {
        seconds = c->seconds[0] * size / c->sizes[0];
    } else {
        while (i + 1 < c->n && c->sizes[i] < size) i++;
        double slope = (c->seconds[i] - c->seconds[i - 1]) / (c->sizes[i] - c->sizes[i - 1]);
        seconds = c->seconds[i] + slope * (size - c->sizes[i]);
    }
    return seconds > least ? seconds : least;
}

SPECRT_API int32_t specrt_costs_width(int32_t i) {
    return i <= 0 ? 1 : i == 1 ? 4 : 10;
}

SPECRT_API const specrt_curve *specrt_costs_next(const specrt_costs *c, int32_t n) {
    int32_t i = 0;
    while (i + 1 < SPECRT_COSTS_WIDTHS && specrt_costs_width(i) < n) i++;
    return c ? &c->head_next[i] : NULL;
}

SPECRT_API int32_t specrt_costs_nodes(const specrt_tree_params *tree, int32_t n) {
    if (!tree) return 0;
    int32_t all = tree->topk + (n - 1) * tree->topk * tree->topk + 1;
    if (tree->topk == 1) return n + 1;
    return all < tree->num_draft_tokens ? all : tree->num_draft_tokens;
}

SPECRT_API double specrt_costs_read_token(const specrt_costs *c) {
    if (!c) return 0;
    int32_t n = c->n_block > 0 ? c->n_block : 1;
    double more =
        specrt_curve_at(&c->draft, n + SPECRT__COSTS_READ) - specrt_curve_at(&c->draft, n);
    return more > 0 ? more / (int)SPECRT__COSTS_READ : 0;
}

SPECRT_API double specrt_costs_draft(const specrt_costs *c, double n_read, int32_t n,
                                     int32_t width) {
    if (!c) return 0;
    if (c->n_block > 0)
        return specrt_curve_at(&c->draft, n) + (n_read - 1) * specrt_costs_read_token(c);
    return specrt_curve_at(&c->draft, n_read) + (n - 1) * specrt_curve_at(&c->draft, width);
}

/* In the order of passes and their times. */
SPECRT__INTERNAL specrt_curve *specrt__costs_curve(specrt_costs *c, int32_t i, const char **name) {
    static const char *const names[] = {"target",  "draft",  "first",        "next 1",    "next 4",
                                        "next 10", "prompt", "draft_prompt", "prompt_all"};
    specrt_curve *const curves[] = {&c->target,       &c->draft,        &c->head_first,
                                    &c->head_next[0], &c->head_next[1], &c->head_next[2],
                                    &c->prompt,       &c->draft_prompt, &c->prompt_all};
    if (i >= SPECRT__COSTS_CURVES) return NULL;
    *name = names[i];
    return curves[i];
}

/* --- the head --- */

/* The models' passes come between products, so rows are not in the processor's cache. */
static void specrt__costs_fill_cache(void) {
    char *bytes = (char *)malloc(SPECRT__COSTS_CACHE_BYTES);
    if (!bytes) return;
    memset(bytes, 1, SPECRT__COSTS_CACHE_BYTES);
    (void)*(volatile char *)bytes; /* so that no compiler leaves it out */
    free(bytes);
}

/* A prompt that fills every window: SPECRT__COSTS_WINDOW_TOKENS tokens, each with other ones. */
static specrt_status specrt__costs_read_prompt(specrt_session *s, int32_t n_vocab) {
    static const int32_t k = SPECRT_LOGITS_MAX_K;
    int32_t tokens[SPECRT__COSTS_WINDOW_TOKENS],
        best[SPECRT__COSTS_WINDOW_TOKENS * SPECRT_LOGITS_MAX_K];
    for (int32_t i = 0; i < SPECRT__COSTS_WINDOW_TOKENS * k; i++)
        best[i] = (int32_t)(i * 31LL % n_vocab);
    for (int32_t i = 0; i < SPECRT__COSTS_WINDOW_TOKENS; i++) tokens[i] = best[i * k];
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.ids = best;
    rows.k = k;
    specrt_status status = specrt_session_begin(s, NULL);
    if (status == SPECRT_STATUS_OK)
        status = specrt_session_prefill(s, tokens, SPECRT__COSTS_WINDOW_TOKENS, &rows);
    return status == SPECRT_STATUS_OK ? specrt_session_start(s, tokens[0]) : status;
}

/* All levels of a draft. @return seconds a level; 0: an error */
static double specrt__costs_time_levels(specrt_session *s, const float *hidden, int32_t num_steps) {
    specrt_beam beam;
    double sum = 0;
    int32_t n = 0;
    if (specrt_session_get_beam(s, &beam) != SPECRT_STATUS_OK) return 0;
    for (; n < num_steps && beam.n > 0; n++) {
        specrt__costs_fill_cache();
        double began = specrt__os_seconds();
        if (specrt_session_expand(s, hidden, hidden, beam.n, &beam) != SPECRT_STATUS_OK) return 0;
        sum += specrt__os_seconds() - began;
    }
    return n > 0 ? sum / n : 0;
}

/* A whole block. @return seconds a position; 0: an error */
static double specrt__costs_time_block(specrt_session *s, const float *hidden, int32_t n) {
    specrt_block block;
    specrt_draft draft;
    SPECRT__CLEAR(&block, 1);
    block.n = n;
    block.hidden = block.input = hidden;
    specrt__costs_fill_cache();
    double began = specrt__os_seconds();
    if (specrt_session_draft_block(s, &block, &draft) != SPECRT_STATUS_OK) return 0;
    return (specrt__os_seconds() - began) / n;
}

static double specrt__costs_time_session(specrt_session *s, const specrt_costs_drafts *d) {
    const int32_t n_block = d->params.n_block;
    size_t n = SPECRT_TREE_MAX_TOPK * (size_t)d->n_cols;
    double least = 0;
    float *hidden = (float *)malloc(n * sizeof *hidden);
    for (size_t i = 0; hidden && i < n; i++) hidden[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    for (int round = 0; hidden && round < SPECRT__COSTS_HEAD_ROUNDS; round++) {
        double seconds = 0;
        if (specrt__costs_read_prompt(s, d->policy.n_vocab) == SPECRT_STATUS_OK)
            seconds = n_block > 0 ? specrt__costs_time_block(s, hidden, n_block)
                                  : specrt__costs_time_levels(s, hidden, d->params.tree.num_steps);
        if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
    }
    free(hidden);
    return least;
}

static double specrt__costs_time_head(const specrt_costs_drafts *d, const char *text) {
    specrt_policy_desc desc = d->policy;
    specrt_session_params params = d->params;
    specrt_policy *policy = NULL;
    specrt_session *session = NULL;
    specrt_error err;
    double seconds = 0;
    desc.text = text;
    params.auto_draft = NULL;
    if (specrt_policy_create(d->bundle, d->head, &desc, &policy, &err) == SPECRT_STATUS_OK &&
        specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK)
        seconds = specrt__costs_time_session(session, d);
    specrt_session_close(session);
    specrt_policy_close(policy);
    return seconds;
}

SPECRT_API double specrt_costs_head(specrt_costs *c, const specrt_costs_drafts *d,
                                    const char *policy) {
    if (!c || !d || !policy) return 0;
    for (int32_t i = 0; i < c->n_heads; i++)
        if (strcmp(c->heads[i].policy, policy) == 0) return c->heads[i].seconds;
    double seconds = specrt__costs_time_head(d, policy);
    size_t n = strlen(policy);
    if (seconds > 0 && n < SPECRT_COSTS_TEXT && c->n_heads < SPECRT_COSTS_MAX_HEADS) {
        memcpy(c->heads[c->n_heads].policy, policy, n + 1);
        c->heads[c->n_heads++].seconds = seconds;
        c->changed = 1;
    }
    return seconds;
}

// >>costs_file : src/adapt/costs_file.c
/* costs_file.c : owns the file of costs, its text and where it is kept. Refuses damaged files, and those of
 * another machine or key. */

static const char specrt__costs_first_line[] = "specrt costs 1\n";

enum { SPECRT__COSTS_HASH = 16 }; /* hexadecimal digits */

/* The first digits of a digest. out: char [SPECRT__COSTS_HASH + 1] */
static void specrt__costs_hash(const char *bytes, size_t n, char *out) {
    uint8_t digest[32];
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, bytes, n);
    specrt_sha256_final(&sha, digest);
    for (int i = 0; i < SPECRT__COSTS_HASH / 2; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* --- where --- */

SPECRT_API void specrt_costs_machine(char *out) {
    char line[SPECRT_COSTS_TEXT], name[128] = "unknown processor";
    if (!out) return;
    FILE *f = specrt__os_fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", name) == 1 ||
            sscanf(line, "CPU part : %127[^\n]", name) == 1)
            break;
    if (f) fclose(f);
    snprintf(out, SPECRT_COSTS_TEXT, "%s, %ld processors", name, specrt__os_processors());
}

SPECRT__INTERNAL double specrt__costs_load(void) {
    int whole = 0, cents = 0;
    FILE *f = specrt__os_fopen("/proc/loadavg", "r");
    if (f && fscanf(f, "%d.%d", &whole, &cents) != 2) whole = cents = 0;
    if (f) fclose(f);
    return whole + cents / 100.0;
}

static bool specrt__costs_fits(int n) {
    return n > 0 && n < SPECRT_COSTS_PATH;
}

static bool specrt__costs_beside(const char *bundle, const char *hash, char *out) {
    const char *slash = strrchr(bundle, '/');
    char folder[SPECRT_COSTS_PATH] = ".";
    if (slash && !specrt__costs_fits(
                     snprintf(folder, sizeof folder, "%.*s", (int)(slash - bundle) + 1, bundle)))
        return false;
    return specrt__os_can_write(folder) &&
           specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s.%s.costs", bundle, hash));
}

static bool specrt__costs_in_cache(const char *hash, char *out) {
    char folder[SPECRT_COSTS_PATH];
    if (!specrt__os_cache(folder, sizeof folder) || !specrt__os_make_folder(folder) ||
        !specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s/specrt", folder)) ||
        !specrt__os_make_folder(out))
        return false;
    return specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s/specrt/%s.costs", folder, hash));
}

SPECRT_API void specrt_costs_path(const char *bundle, const char *key, char *out) {
    char hash[SPECRT__COSTS_HASH + 1];
    if (!key || !out) return;
    specrt__costs_hash(key, strlen(key), hash);
    if (!(bundle && specrt__costs_beside(bundle, hash, out)) && !specrt__costs_in_cache(hash, out))
        out[0] = '\0';
}

/* --- reading --- */

/* Zero-initialise it. */
typedef struct specrt__costs_reader {
    const char *at, *end;
    int n; /* lines read */
    char line[SPECRT_COSTS_LINE];
} specrt__costs_reader;

/* @return whether there was a line that fits */
static bool specrt__costs_next(specrt__costs_reader *r) {
    const char *end = (const char *)memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!end || end - r->at >= SPECRT_COSTS_LINE) return false;
    size_t n = (size_t)(end - r->at);
    memcpy(r->line, r->at, n);
    r->line[n] = '\0';
    r->at = end + 1;
    r->n++;
    return true;
}

/* The next line is "NAME VALUE", and VALUE fits in out, char [size]. */
static bool specrt__costs_value(specrt__costs_reader *r, const char *name, char *out, size_t size) {
    size_t n = strlen(name);
    if (!specrt__costs_next(r) || strncmp(r->line, name, n) != 0 || r->line[n] != ' ') return false;
    int written = snprintf(out, size, "%s", r->line + n + 1);
    return written >= 0 && (size_t)written < size;
}

static bool specrt__costs_is_time(double seconds) {
    return seconds >= 1e-12 && seconds < 1e6;
}

/* Numbers are read and written here, for scanf() and printf() take the decimal point of the locale. Moves *at
 * behind a number and the space before it. @return NaN: there is none */
static double specrt__costs_number(const char **at) {
    const char *p = *at + (**at == ' ');
    double digits = 0;
    int exponent = 0, n = 0, after = 0;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !after); p++) {
        if (*p == '.') {
            after = 1;
            continue;
        }
        digits = 10 * digits + (*p - '0');
        exponent -= after;
        n++;
    }
    if (n == 0 || n > 99) return NAN;
    if (*p == 'e') {
        bool below = p[1] == '-';
        int power = 0;
        for (p += 1 + (p[1] == '-' || p[1] == '+'); *p >= '0' && *p <= '9'; p++)
            power = power < 1000 ? 10 * power + (*p - '0') : power;
        exponent += below ? -power : power;
    }
    *at = p;
    return exponent < 0 ? digits / pow(10, -exponent) : digits * pow(10, exponent);
}

static bool specrt__costs_take_point(specrt_curve *c, const char *at) {
    double size = specrt__costs_number(&at), seconds = specrt__costs_number(&at), low = seconds,
           high = seconds;
    if (*at) low = specrt__costs_number(&at), high = specrt__costs_number(&at);
    if (*at || !(size >= 1 && size <= INT32_MAX && size == floor(size)) ||
        !(specrt__costs_is_time(low) && low <= seconds && seconds <= high &&
          specrt__costs_is_time(high)) ||
        (c->n > 0 && size <= c->sizes[c->n - 1]))
        return false;
    int32_t i = specrt_curve_add(c, (int32_t)size, seconds);
    if (i >= 0) c->low[i] = low, c->high[i] = high;
    return i >= 0;
}

static bool specrt__costs_take_head(specrt_costs *c, double seconds, const char *policy) {
    size_t n = strlen(policy);
    if (c->n_heads == SPECRT_COSTS_MAX_HEADS || n >= SPECRT_COSTS_TEXT ||
        !specrt__costs_is_time(seconds))
        return false;
    memcpy(c->heads[c->n_heads].policy, policy, n + 1);
    c->heads[c->n_heads++].seconds = seconds;
    return true;
}

/* One that parses. */
static bool specrt__costs_take_policy(specrt_costs *c, double rows, const char *policy) {
    size_t n = strlen(policy);
    if (c->policy[0] || n >= sizeof c->policy || !(rows >= 0 && rows <= INT32_MAX) ||
        specrt_policy_check(policy, NULL) != SPECRT_STATUS_OK)
        return false;
    memcpy(c->policy, policy, n + 1);
    c->policy_rows = (int32_t)rows;
    return true;
}

/* @return what follows NAME and a space; NULL: the line is another */
static const char *specrt__costs_after(const char *line, const char *name) {
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

static bool specrt__costs_take_line(specrt_costs *c, const char *line) {
    specrt_curve *curve;
    const char *name, *at;
    for (int32_t i = 0; (curve = specrt__costs_curve(c, i, &name)) != NULL; i++)
        if ((at = specrt__costs_after(line, name)) != NULL)
            return specrt__costs_take_point(curve, at);
    if ((at = specrt__costs_after(line, "head")) != NULL) {
        double seconds = specrt__costs_number(&at);
        return *at == ' ' && specrt__costs_take_head(c, seconds, at + 1);
    }
    if ((at = specrt__costs_after(line, "policy")) != NULL) {
        double rows = specrt__costs_number(&at);
        return *at == ' ' && specrt__costs_take_policy(c, rows, at + 1);
    }
    if ((at = specrt__costs_after(line, "error")) != NULL) {
        c->error = specrt__costs_number(&at);
        c->worst = specrt__costs_number(&at);
        return !*at && c->error >= 0 && c->worst >= c->error && c->worst < 1e6;
    }
    if ((at = specrt__costs_after(line, "block")) != NULL) {
        double n = specrt__costs_number(&at);
        c->n_block = n >= 1 && n <= SPECRT_TREE_MAX_STEPS ? (int32_t)n : 0;
        return !*at && c->n_block > 0 && c->n_block == n;
    }
    c->keeps_chains = 1;
    return strcmp(line, "keeps_chains 1") == 0;
}

/* Whether text ends in the checksum of the lines before it, which *n then is the end of. */
static bool specrt__costs_is_whole(const char *text, size_t *n) {
    const size_t last = 4 + SPECRT__COSTS_HASH + 1; /* "sum HASH\n" */
    char sum[4 + SPECRT__COSTS_HASH + 2] = "sum ";
    if (*n < last) return false;
    specrt__costs_hash(text, *n - last, sum + 4);
    sum[last - 1] = '\n';
    *n -= last;
    return memcmp(text + *n, sum, last) == 0 && !memchr(text, 0, *n);
}

static specrt_status specrt__costs_take_lines(specrt__costs_reader *r, const char *name,
                                              specrt_costs *out, specrt_error *err) {
    specrt_curve *curve;
    const char *curve_name;
    bool fits = specrt__costs_value(r, "machine", out->machine, sizeof out->machine) &&
                specrt__costs_value(r, "key", out->key, sizeof out->key);
    while (fits && r->at < r->end)
        fits = specrt__costs_next(r) && specrt__costs_take_line(out, r->line);
    if (!fits)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: line %d: expected machine, key, then costs, of sizes that ascend, "
            "seconds above 0 and a policy that there is, found %.60s",
            name, r->n, r->line);
    if (out->target.n == 0 || out->draft.n == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected times of target and draft, found %d and %d", name,
                                (int)out->target.n, (int)out->draft.n);
    for (int32_t i = 0; (curve = specrt__costs_curve(out, i, &curve_name)) != NULL; i++)
        specrt_curve_make_monotone(curve);
    specrt__costs_judge(out);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__costs_check_key(const specrt_costs *c, const char *name,
                                             const char *key, specrt_error *err) {
    char machine[SPECRT_COSTS_TEXT];
    if (!key) return SPECRT_STATUS_OK;
    specrt_costs_machine(machine);
    if (strcmp(c->machine, machine) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: machine: expected %s, found %.100s", name, machine,
                                c->machine);
    if (strcmp(c->key, key) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: key: expected these models and settings, found others", name);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__costs_take_all(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err) {
    const size_t first = sizeof specrt__costs_first_line - 1;
    specrt__costs_reader r;
    SPECRT__CLEAR(&r, 1);
    if (n < first || memcmp(text, specrt__costs_first_line, first) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected the first line `specrt costs 1`, found another; "
                                "specrt-eval plan --costs-out and specrt-llama --costs write such "
                                "files",
                                name);
    if (!specrt__costs_is_whole(text, &n))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: sum: expected the checksum of its lines at the end, found "
                                "another: the file is damaged",
                                name);
    r.at = text + first;
    r.end = text + n;
    r.n = 1;
    SPECRT__TRY(specrt__costs_take_lines(&r, name, out, err));
    return specrt__costs_check_key(out, name, key, err);
}

SPECRT_API specrt_status specrt_costs_parse(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err) {
    SPECRT__NEED(text);
    SPECRT__NEED(name);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    specrt_status status = specrt__costs_take_all(text, n, name, key, out, err);
    if (status != SPECRT_STATUS_OK) SPECRT__CLEAR(out, 1);
    return status;
}

SPECRT_API specrt_status specrt_costs_read(const char *path, const char *key, specrt_costs *out,
                                           specrt_error *err) {
    char text[SPECRT_COSTS_BYTES];
    SPECRT__NEED(path);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    FILE *f = specrt__os_fopen(path, "rb");
    if (!f)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a file of costs, found none that opens", path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return specrt_costs_parse(text, n, path, key, out, err);
}

/* --- or measuring --- */

SPECRT_API specrt_status specrt_costs_find(const specrt_meter *meter, const char *path,
                                           const char *key, specrt_costs *out, char *line,
                                           specrt_error *err) {
    char kept[SPECRT_COSTS_PATH + SPECRT_COSTS_TEXT + 16];
    specrt_error why;
    SPECRT__NEED(meter);
    SPECRT__NEED(path);
    SPECRT__NEED(key);
    SPECRT__NEED(out);
    SPECRT__NEED(line);
    specrt_status found = path[0] ? specrt_costs_read(path, key, out, &why) : SPECRT_STATUS_IO;
    if (found == SPECRT_STATUS_OK) {
        snprintf(line, SPECRT_COSTS_LINE, "costs: read from %s", path);
        return found;
    }
    SPECRT__TRY(specrt_costs_measure(meter, 0, 0, out, err));
    snprintf(out->key, sizeof out->key, "%s", key);
    if (specrt_costs_busy(out, line))
        snprintf(kept, sizeof kept, "not kept: %s", line);
    else
        snprintf(kept, sizeof kept, "kept in %s",
                 path[0] ? path : "no file: there is no cache folder");
    bool again = found != SPECRT_STATUS_IO;
    snprintf(line, SPECRT_COSTS_LINE, "costs: %s%s in %.1f s, %s", again ? why.msg : "",
             again ? "; measured again" : "measured", out->seconds, kept);
    return SPECRT_STATUS_OK;
}

/* --- writing --- */

/* A text of n bytes that grows; all that costs hold fits in SPECRT_COSTS_BYTES. */
typedef struct specrt__costs_writer {
    char *text;
    size_t n;
} specrt__costs_writer;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
specrt__costs_put(specrt__costs_writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->n, SPECRT_COSTS_BYTES - w->n, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < SPECRT_COSTS_BYTES - w->n) w->n += (size_t)n;
}

/* What stands for the decimal point in this locale becomes one. */
static void specrt__costs_put_number(specrt__costs_writer *w, double x) {
    char text[48], *to = text;
    snprintf(text, sizeof text, "%.9g", x);
    for (const char *from = text; *from; from++) {
        bool digit = strchr("0123456789+-e", *from) != NULL;
        if (digit || to == text || to[-1] != '.') *to++ = digit ? *from : '.';
    }
    *to = '\0';
    specrt__costs_put(w, " %s", text);
}

static void specrt__costs_put_curve(specrt__costs_writer *w, const char *name,
                                    const specrt_curve *c) {
    for (int32_t i = 0; i < c->n; i++) {
        specrt__costs_put(w, "%s %d", name, (int)c->sizes[i]);
        specrt__costs_put_number(w, c->seconds[i]);
        if (c->low[i] < c->seconds[i] || c->high[i] > c->seconds[i]) {
            specrt__costs_put_number(w, c->low[i]);
            specrt__costs_put_number(w, c->high[i]);
        }
        specrt__costs_put(w, "\n");
    }
}

SPECRT_API size_t specrt_costs_text(const specrt_costs *c, char *out) {
    char hash[SPECRT__COSTS_HASH + 1];
    const char *name;
    const specrt_curve *curve;
    specrt__costs_writer w = {out, 0};
    if (!c || !out) return 0;
    specrt__costs_put(&w, "%smachine %s\nkey %s\n", specrt__costs_first_line, c->machine, c->key);
    for (int32_t i = 0; (curve = specrt__costs_curve((specrt_costs *)c, i, &name)) != NULL; i++)
        specrt__costs_put_curve(&w, name, curve);
    for (int32_t i = 0; i < c->n_heads; i++) {
        specrt__costs_put(&w, "head");
        specrt__costs_put_number(&w, c->heads[i].seconds);
        specrt__costs_put(&w, " %s\n", c->heads[i].policy);
    }
    if (c->n_block > 0) specrt__costs_put(&w, "block %d\n", (int)c->n_block);
    if (c->keeps_chains) specrt__costs_put(&w, "keeps_chains 1\n");
    if (c->policy[0]) specrt__costs_put(&w, "policy %d %s\n", (int)c->policy_rows, c->policy);
    if (c->worst > 0) {
        specrt__costs_put(&w, "error");
        specrt__costs_put_number(&w, c->error);
        specrt__costs_put_number(&w, c->worst);
        specrt__costs_put(&w, "\n");
    }
    specrt__costs_hash(out, w.n, hash);
    specrt__costs_put(&w, "sum %s\n", hash);
    return w.n;
}

SPECRT_API specrt_status specrt_costs_write(specrt_costs *costs, const char *path,
                                            specrt_error *err) {
    char text[SPECRT_COSTS_BYTES];
    SPECRT__NEED(costs);
    SPECRT__NEED(path);
    if (costs->disturbed) return SPECRT_STATUS_OK;
    if (!specrt__os_replace(path, text, specrt_costs_text(costs, text)))
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a file that can be written, found none", path);
    costs->changed = 0;
    return SPECRT_STATUS_OK;
}

// >>measure : src/adapt/measure.c
/* measure.c : how costs are measured: in rounds, so that what disturbs the machine for a while hits all sizes
 * alike. Lowers times that cannot be, and says that the machine was too busy to tell. */

#define SPECRT__MEASURE_SECONDS   1.2
#define SPECRT__MEASURE_EXTRA     1.6  /* times the seconds: no size is added later */
#define SPECRT__MEASURE_TOLERANCE 0.07 /* of curves between measured sizes, as a share */
#define SPECRT__MEASURE_SPREAD    0.25 /* a greater one decides nothing */
#define SPECRT__MEASURE_OFF       1.5 /* times what a pass can take: the machine did something else */

enum {
    SPECRT__MEASURE_LEAST_ROUNDS = 2, /* for the sizes that the spread is of, whatever they take */
    SPECRT__MEASURE_ROUNDS = 5,
    SPECRT__MEASURE_ALL_ROUNDS = 12,
    SPECRT__MEASURE_MOST_ROUNDS = 20, /* of a disturbed machine */
    SPECRT__MEASURE_TIMES = 40,
    SPECRT__MEASURE_SITES = 128,
    SPECRT__MEASURE_LEAST_ROWS = 256,
    SPECRT__MEASURE_CHAIN = 9,   /* nodes of the longest chain that is tried */
    SPECRT__MEASURE_VERIFIED = 4 /* tokens of the pass that verifies three drafts */
};

/* A size of one kind of pass. */
typedef struct specrt__site {
    specrt_pass pass;
    int32_t size;
    bool held, asked; /* unseen by the curves; to be timed now */
    int32_t n;
    double times[SPECRT_PASS_TIMES][SPECRT__MEASURE_TIMES]; /* [n] each */
} specrt__site;

typedef struct specrt__survey {
    const specrt_meter *meter;
    specrt_costs *costs;
    double began, seconds;
    bool all;
    int32_t n_block; /* of the meter's drafts; 0: they are token by token */
    int32_t n, n_errors;
    specrt__site sites[SPECRT__MEASURE_SITES];
    double errors[(int)SPECRT__MEASURE_SITES * (int)SPECRT_PASS_TIMES];
} specrt__survey;

/* --- sizes --- */

static bool specrt__survey_add(specrt__survey *v, specrt_pass pass, int64_t size, bool held) {
    if (v->n == SPECRT__MEASURE_SITES) return false;
    specrt__site *s = &v->sites[v->n++];
    s->pass = pass;
    s->size = (int32_t)size;
    s->held = held;
    s->asked = true;
    return true;
}

/* @return the greatest that was added */
static int32_t specrt__survey_add_all(specrt__survey *v, specrt_pass pass, const int32_t *sizes,
                                      int32_t n, bool held) {
    int32_t last = 0;
    for (int32_t i = 0; i < n && sizes[i] <= v->meter->most[pass]; i++)
        specrt__survey_add(v, pass, last = sizes[i], held);
    return last;
}

/* Powers of two and all rows; held back, the sizes between them. */
static void specrt__survey_add_head(specrt__survey *v) {
    int64_t most = v->meter->most[SPECRT_PASS_HEAD];
    for (int64_t rows = SPECRT__MEASURE_LEAST_ROWS; rows < most; rows *= 2) {
        int64_t next = 2 * rows < most ? 2 * rows : most;
        specrt__survey_add(v, SPECRT_PASS_HEAD, rows, false);
        if (next > rows + 1)
            specrt__survey_add(v, SPECRT_PASS_HEAD, rows + (next - rows) / 2, true);
    }
    if (most > 0) specrt__survey_add(v, SPECRT_PASS_HEAD, most, false);
}

/* Blocks of one position and whole ones, then these behind more tokens; of all, lengths in between. */
static void specrt__survey_add_blocks(specrt__survey *v) {
    specrt__survey_add(v, SPECRT_PASS_DRAFT, 1, false);
    if (v->n_block > 1) specrt__survey_add(v, SPECRT_PASS_DRAFT, v->n_block, false);
    specrt__survey_add(v, SPECRT_PASS_DRAFT, v->n_block + SPECRT__COSTS_READ, false);
    for (int32_t n = 2; v->all && n < v->n_block; n *= 2)
        specrt__survey_add(v, SPECRT_PASS_DRAFT, n, false);
    for (int32_t n = 3; v->all && n < v->n_block; n *= 2)
        specrt__survey_add(v, SPECRT_PASS_DRAFT, n, true);
}

static void specrt__survey_fill(specrt__survey *v) {
    static const int32_t nodes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    static const int32_t other_nodes[] = {5, 7, 9, 14, 20, 28, 40, 54};
    static const int32_t drafts[] = {1, 8}, more_drafts[] = {2, 4, 10}, other_drafts[] = {3, 6};
    static const int32_t prompts[] = {16, 64, 256};
    const int32_t *most = v->meter->most;
    int32_t last = specrt__survey_add_all(v, SPECRT_PASS_TARGET, nodes, 11, false);
    int32_t nodes_most = most[0] < SPECRT_TREE_MAX_NODES ? most[0] : SPECRT_TREE_MAX_NODES;
    if (last < nodes_most) specrt__survey_add(v, SPECRT_PASS_TARGET, nodes_most, false);
    if (v->n_block > 0)
        specrt__survey_add_blocks(v);
    else
        specrt__survey_add_all(v, SPECRT_PASS_DRAFT, drafts, 2, false);
    if (!v->all) return;
    for (int32_t i = 0; i < 8 && other_nodes[i] < nodes_most; i++)
        specrt__survey_add(v, SPECRT_PASS_TARGET, other_nodes[i], true);
    specrt__survey_add_all(v, SPECRT_PASS_DRAFT, more_drafts, 3, false); /* of blocks, none */
    specrt__survey_add_all(v, SPECRT_PASS_DRAFT, other_drafts, 2, true);
    specrt__survey_add_head(v);
    last = specrt__survey_add_all(v, SPECRT_PASS_PROMPT, prompts, 3, false);
    if (last == 0 && most[SPECRT_PASS_PROMPT] > 0)
        specrt__survey_add(v, SPECRT_PASS_PROMPT, most[SPECRT_PASS_PROMPT], false);
}

/* --- curves --- */

static double specrt__survey_elapsed(const specrt__survey *v) {
    return specrt__os_seconds() - v->began;
}

/* The lower quartile, of which other programs can disturb three rounds in four, and on which a round that
 * found its memory in a cache has no say. low, high: ranks that enclose it with 95%, or all */
static double specrt__site_seconds(const specrt__site *s, int32_t time, double *low, double *high) {
    double x[SPECRT__MEASURE_TIMES], mass = pow(0.75, s->n), below = mass;
    int32_t n = 0, first = 0, last = s->n - 1;
    for (; n < s->n; n++) {
        int32_t i = n;
        for (; i > 0 && x[i - 1] > s->times[time][n]; i--) x[i] = x[i - 1];
        x[i] = s->times[time][n];
    }
    for (int32_t i = 0; i < last; i++) { /* below: the chance that at most i + 1 of n are */
        if (below <= 0.025) first = i;
        if (below >= 0.975) last = i;
        mass *= (n - i) / (3.0 * (i + 1));
        below += mass;
    }
    *low = x[first];
    *high = x[last];
    return x[(n - 1) / 4];
}

/* @return the curve of one of a pass's times; NULL: the pass has fewer */
static specrt_curve *specrt__survey_curve(specrt_costs *c, specrt_pass pass, int32_t time) {
    static const int32_t first[] = {0, 1, 2, 6, SPECRT__COSTS_CURVES};
    const char *name;
    int32_t i = first[pass] + time;
    return i < first[pass + 1] ? specrt__costs_curve(c, i, &name) : NULL;
}

/* A pass takes no longer than a larger one, and no longer than passes of fewer tokens that do its work.
 * @return whether one of a chain did, by more than noise; large trees have few rounds, and are lowered
 * alone */
static bool specrt__measure_lower(specrt_curve *c) {
    bool disturbed = false;
    for (int32_t k = 2 * c->n - 2; k > 0; k--) { /* down the sizes, then up again */
        int32_t i = k >= c->n ? k - c->n : c->n - k;
        double most =
            k >= c->n ? c->seconds[i + 1] : c->seconds[i - 1] * c->sizes[i] / c->sizes[i - 1];
        if (c->seconds[i] <= SPECRT__MEASURE_OFF * most) continue;
        c->seconds[i] = c->low[i] = c->high[i] = most;
        disturbed = disturbed || c->sizes[i] <= SPECRT__MEASURE_CHAIN;
    }
    return disturbed;
}

/* The width of a size's interval. */
static double specrt__measure_width(const specrt_curve *c, int32_t size) {
    for (int32_t i = 0; i < c->n; i++)
        if (c->sizes[i] == size) return c->high[i] - c->low[i];
    return 0;
}

SPECRT__INTERNAL void specrt__costs_judge(specrt_costs *c) {
    const specrt_curve *target = &c->target, *draft = &c->draft;
    int32_t most = target->n > 0 ? target->sizes[target->n - 1] : 1;
    int32_t n = most < SPECRT__MEASURE_VERIFIED ? most : SPECRT__MEASURE_VERIFIED;
    int32_t size = c->n_block > 0 ? c->n_block : 1, passes = c->n_block > 0 ? 1 : n - 1;
    double plain = specrt_curve_at(target, 1);
    double cycle = specrt_curve_at(target, n) + passes * specrt_curve_at(draft, size);
    double width = specrt__measure_width(target, n) + passes * specrt__measure_width(draft, size);
    c->spread = hypot(width / cycle, specrt__measure_width(target, 1) / plain);
    if (c->spread > SPECRT__MEASURE_SPREAD) c->disturbed = 1;
}

static void specrt__survey_make_curves(specrt__survey *v) {
    const char *name;
    specrt_curve *curve;
    SPECRT__CLEAR(v->costs, 1);
    v->costs->n_block = v->n_block;
    for (int32_t k = 0; k < v->n; k++) {
        const specrt__site *s = &v->sites[k];
        if (s->held || s->n == 0) continue;
        for (int32_t i = 0; (curve = specrt__survey_curve(v->costs, s->pass, i)) != NULL; i++) {
            double low, high, seconds = specrt__site_seconds(s, i, &low, &high);
            int32_t at = seconds > 0 ? specrt_curve_add(curve, s->size, seconds) : -1;
            if (at >= 0) curve->low[at] = low, curve->high[at] = high;
        }
    }
    bool target = specrt__measure_lower(&v->costs->target);
    bool draft = specrt__measure_lower(&v->costs->draft);
    v->costs->disturbed = target || draft;
    for (int32_t i = 0; (curve = specrt__costs_curve(v->costs, i, &name)) != NULL; i++)
        specrt_curve_make_monotone(curve);
    specrt__costs_judge(v->costs);
}

/* --- rounds --- */

static bool specrt__survey_decides(const specrt__survey *v, const specrt__site *s) {
    if (s->pass == SPECRT_PASS_DRAFT) return s->size == (v->n_block > 0 ? v->n_block : 1);
    int32_t most = v->meter->most[SPECRT_PASS_TARGET];
    int32_t n = most < SPECRT__MEASURE_VERIFIED ? most : SPECRT__MEASURE_VERIFIED;
    return s->pass == SPECRT_PASS_TARGET && (s->size == 1 || s->size == n);
}

/* Late in the first round a size is left out if there are two of its kind; of all that a meter times, only
 * long prompts are. */
static bool specrt__survey_skips(const specrt__survey *v, const specrt__site *s, int32_t round) {
    if (specrt__survey_decides(v, s)) return false;
    if (round > 0) return true;
    return (!v->all || s->pass == SPECRT_PASS_PROMPT) && s - v->sites > 1 && s[-2].pass == s->pass;
}

static int specrt__survey_round(specrt__survey *v, int32_t round, double until) {
    for (int32_t k = 0; k < v->n; k++) {
        specrt__site *s = &v->sites[k];
        double seconds[SPECRT_PASS_TIMES] = {0};
        if (!s->asked || s->n == SPECRT__MEASURE_TIMES ||
            (specrt__survey_elapsed(v) > until && specrt__survey_skips(v, s, round)))
            continue;
        int code = v->meter->pass(v->meter->user, s->pass, s->size, seconds);
        if (code != 0) return code;
        for (int32_t i = 0; i < SPECRT_PASS_TIMES; i++) s->times[i][s->n] = seconds[i];
        s->n++;
    }
    for (int32_t k = 0; k < v->n; k++) v->sites[k].asked = v->sites[k].asked && v->sites[k].n > 0;
    return 0;
}

/* When time is up, the sizes that decide are still timed: an interval over two or three rounds is as wide as
 * all of their times. */
static bool specrt__survey_ends(specrt__survey *v, int32_t round, double until) {
    int32_t enough = v->all ? SPECRT__MEASURE_ALL_ROUNDS : SPECRT__MEASURE_ROUNDS;
    bool late = specrt__survey_elapsed(v) > until;
    if (round < SPECRT__MEASURE_LEAST_ROUNDS + v->all || (round < enough && !late)) return false;
    specrt__survey_make_curves(v);
    if (!late) return !v->costs->disturbed;
    return round >= enough || v->costs->spread <= SPECRT__MEASURE_SPREAD;
}

static int specrt__survey_rounds(specrt__survey *v, double until) {
    int code = 0;
    for (int32_t round = 0; round < SPECRT__MEASURE_MOST_ROUNDS && code == 0; round++) {
        if (specrt__survey_ends(v, round, until)) break;
        code = specrt__survey_round(v, round, round ? until : SPECRT__MEASURE_EXTRA * v->seconds);
    }
    return code;
}

/* --- sizes in between --- */

/* By what shares the curves miss what they have not seen. out: [n], as many times as the pass has.
 * @return the greatest */
static double specrt__survey_miss(const specrt__survey *v, const specrt__site *s, double *out,
                                  int32_t *n) {
    double worst = 0, low, high;
    const specrt_curve *curve;
    *n = 0;
    for (int32_t i = 0; (curve = specrt__survey_curve(v->costs, s->pass, i)) != NULL; i++) {
        double seconds = specrt__site_seconds(s, i, &low, &high);
        if (!(seconds > 0)) continue;
        double off = fabs(specrt_curve_at(curve, s->size) / seconds - 1);
        out[(*n)++] = off;
        if (off > worst) worst = off;
    }
    return worst;
}

/* The nearest size that the curves know, above (side 1) or below (-1). */
static specrt__site *specrt__survey_next_to(specrt__survey *v, const specrt__site *of,
                                            int32_t side) {
    specrt__site *found = NULL;
    for (int32_t i = 0; i < v->n; i++) {
        specrt__site *s = &v->sites[i];
        if (s->pass != of->pass || s->held || s->n == 0 || (s->size - of->size) * side <= 0)
            continue;
        if (!found || (found->size - s->size) * side > 0) found = s;
    }
    return found;
}

/* Ask again of a gap, and of its two halves unless they are narrow. @return whether any is asked for. */
static bool specrt__survey_split(specrt__survey *v, specrt__site *s) {
    bool any = false;
    for (int32_t side = -1; side <= 1; side += 2) {
        specrt__site *other = specrt__survey_next_to(v, s, side);
        int32_t half = other ? side * (other->size - s->size) / 2 : 0;
        if (half == 0 || half < s->size / 16 ||
            !specrt__survey_add(v, s->pass, s->size + side * half, true))
            continue;
        s->asked = other->asked = any = true;
    }
    return any;
}

/* Held sizes join the curves. Where these were far off, the next ones to be held are asked for, if there is
 * time; what they missed elsewhere stands. @return whether any are asked for. */
static bool specrt__survey_judge(specrt__survey *v, bool refine) {
    bool any = false;
    double off[SPECRT_PASS_TIMES];
    int32_t n = v->n, n_off;
    specrt__survey_make_curves(v);
    for (int32_t k = 0; k < n; k++) v->sites[k].asked = false;
    for (int32_t k = 0; k < n; k++) {
        specrt__site *s = &v->sites[k];
        if (!s->held || s->n == 0) continue;
        double worst = specrt__survey_miss(v, s, off, &n_off);
        bool splits = worst > SPECRT__MEASURE_TOLERANCE && refine && specrt__survey_split(v, s);
        any = any || splits;
        for (int32_t i = 0; !splits && i < n_off; i++) v->errors[v->n_errors++] = off[i];
    }
    for (int32_t k = 0; k < n; k++) v->sites[k].held = false;
    return any;
}

/* --- all --- */

/* A round of the smallest passes reads the weights from disk, if need be. */
static int specrt__survey_take(specrt__survey *v) {
    double unused[SPECRT_PASS_TIMES], late = SPECRT__MEASURE_EXTRA * v->seconds;
    int code = v->meter->pass(v->meter->user, SPECRT_PASS_TARGET, 1, unused);
    if (code == 0) code = v->meter->pass(v->meter->user, SPECRT_PASS_DRAFT, 1, unused);
    if (code == 0) code = specrt__survey_rounds(v, v->seconds);
    while (code == 0 && specrt__survey_judge(v, specrt__survey_elapsed(v) < late))
        code = specrt__survey_rounds(v, late);
    return code;
}

static int specrt__measure_by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static specrt_status specrt__survey_run(specrt__survey *v, specrt_costs *out, specrt_error *err) {
    double busy = specrt__costs_load();
    v->began = specrt__os_seconds();
    v->costs = out;
    specrt__survey_fill(v);
    int code = specrt__survey_take(v);
    if (code != 0) {
        SPECRT__CLEAR(out, 1);
        return specrt_error_set(err, SPECRT_STATUS_HOST,
                                "costs: expected passes of both models, found that one failed with "
                                "%d",
                                code);
    }
    specrt__survey_make_curves(v);
    qsort(v->errors, (size_t)v->n_errors, sizeof *v->errors, specrt__measure_by_size);
    if (v->n_errors > 0) {
        out->error = v->errors[v->n_errors / 2];
        out->worst = v->errors[v->n_errors - 1];
    }
    specrt_costs_machine(out->machine);
    out->busy = busy;
    out->changed = 1;
    out->seconds = specrt__survey_elapsed(v);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_costs_measure(const specrt_meter *meter, double seconds, int all,
                                              specrt_costs *out, specrt_error *err) {
    SPECRT__NEED(meter);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    if (!meter->pass || meter->most[0] < 1 || meter->most[1] == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "costs: meter: expected passes of 1 token or more of target and "
                                "drafter, found %d and %d",
                                (int)meter->most[0], (int)meter->most[1]);
    specrt__survey *v = (specrt__survey *)calloc(1, sizeof *v);
    if (!v) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "costs: out of memory");
    v->meter = meter;
    v->n_block = meter->most[SPECRT_PASS_DRAFT] < 0 ? -meter->most[SPECRT_PASS_DRAFT] : 0;
    v->seconds = seconds > 0 ? seconds : SPECRT__MEASURE_SECONDS;
    v->all = all != 0;
    specrt_status status = specrt__survey_run(v, out, err);
    free(v);
    return status;
}

SPECRT_API int specrt_costs_busy(const specrt_costs *c, char *line) {
    char cores[64] = "", why[64] = "more work took less time";
    if (!c || !line) return 0;
    line[0] = '\0';
    if (!c->disturbed) return 0;
    if (c->spread > SPECRT__MEASURE_SPREAD)
        snprintf(why, sizeof why, "costs differ by %.0f%% between rounds", 100 * c->spread);
    if (c->busy >= 0.5)
        snprintf(cores, sizeof cores, "; the load was %.0f on %ld processors", c->busy,
                 specrt__os_processors());
    snprintf(line, SPECRT_COSTS_TEXT,
             "too busy to tell: %s; wait until the machine is idle, or measure for more seconds "
             "(plan --measure)%s",
             why, cores);
    return 1;
}

// >>meter : src/adapt/meter.c
/* meter.c : passes of any host, for specrt_costs_measure(), by the calls that sessions make. */

#define SPECRT__METER_SMALL 0.01 /* seconds of these cycles, at most one more */

enum {
    SPECRT__METER_BEFORE = 64,  /* tokens before a pass */
    SPECRT__METER_DRIFT = 64,   /* more of them, after which the sequence begins again */
    SPECRT__METER_LIKE = 3,     /* cycles before a pass of the target */
    SPECRT__METER_PROMPT = 256, /* tokens of the longest prompt */
    SPECRT__METER_DRAFT = 10    /* tokens that the first pass of a draft reads at most */
};

typedef struct specrt__meter {
    specrt_meter_desc desc;
    int64_t n_past;   /* tokens in the target's cache; 0: begin again */
    int32_t n_unread; /* of those, that the drafter has not read */
    int32_t n_block;  /* positions of a block at most; 0: it drafts token by token */
    bool drafted;     /* since the last commit */
    int32_t *tokens;  /* [most(n_before, SPECRT__METER_PROMPT)] any */
    int32_t *ids;     /* [n_rows] of the head */
    float *hidden;    /* [SPECRT_TREE_MAX_TOPK, n_cols] any */
    float *logits;    /* [SPECRT_TREE_MAX_TOPK, n_rows] */
} specrt__meter;

static double specrt__meter_now(const specrt__meter *m) {
    return m->desc.now ? m->desc.now() : specrt_clock_seconds();
}

/* --- calls as a session makes them --- */

/* What sources learn from. */
static void specrt__meter_best(const specrt__meter *m, const float *logits, int32_t n) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    for (int32_t i = 0; i < n; i++)
        specrt_logits_topk(logits + (size_t)i * (size_t)m->desc.n_logits, m->desc.n_logits,
                           SPECRT_LOGITS_MAX_K, best);
}

/* Of an empty sequence. */
static int specrt__meter_read(specrt__meter *m, int32_t n, int all) {
    const specrt_host *h = &m->desc.host;
    int32_t batch = h->max_batch > 0 && h->max_batch < n ? h->max_batch : n;
    m->desc.reset(m->desc.reset_user);
    for (int32_t done = 0; done < n; done += batch) {
        const float *logits = NULL;
        int32_t now = n - done < batch ? n - done : batch;
        int code = h->target_prefill(h->user, m->tokens + done, now, all, &logits);
        if (code != 0) return code;
        if (all && logits) specrt__meter_best(m, logits, now);
    }
    m->n_past = n;
    m->n_unread = n;
    m->drafted = false;
    return 0;
}

/* n more tokens fit, behind about as many as asked for. */
static int specrt__meter_make_room(specrt__meter *m, int32_t n) {
    const int64_t context = m->desc.host.n_context;
    int64_t before = m->desc.n_before;
    if (m->n_past > 0 && m->n_past <= before + SPECRT__METER_DRIFT &&
        (context == 0 || m->n_past + n <= context))
        return 0;
    if (context > 0 && before > context / 4) before = context / 4 + 1;
    return specrt__meter_read(m, (int32_t)before, 0);
}

/* A chain of n tokens, of which the first `keep` stay. */
static int specrt__meter_verify(specrt__meter *m, int32_t n, int32_t keep) {
    static const float none[SPECRT_TREE_MAX_NODES] = {0};
    int32_t parents[SPECRT_TREE_MAX_NODES], depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
    const specrt_host *h = &m->desc.host;
    const float *logits = NULL;
    specrt_verdict verdict;
    SPECRT__CLEAR(&verdict, 1);
    verdict.n = keep;
    for (int32_t i = 0; i < n; i++) {
        parents[i] = i - 1;
        depths[i] = i;
        masks[i] = ((uint64_t)2 << i) - 1;
        verdict.nodes[i] = i;
        verdict.tokens[i] = m->tokens[i + 1];
    }
    const specrt_draft draft = {n, m->tokens, parents, depths, masks, none, NULL, 0};
    int code = h->target_verify(h->user, &draft, &logits);
    if (code != 0) return code;
    if (logits) specrt__meter_best(m, logits, n);
    m->n_past += keep;
    /* It reads a draft's root with the draft, but in front of a block only what was verified. */
    m->n_unread = m->drafted && m->n_block == 0 ? keep - 1 : m->n_unread + keep;
    m->drafted = false;
    return h->commit(h->user, &draft, &verdict);
}

static int specrt__meter_draft(specrt__meter *m, int32_t level, int32_t n) {
    static const int32_t parents[SPECRT_TREE_MAX_TOPK] = {0};
    static const float logprobs[SPECRT_TREE_MAX_TOPK] = {0};
    const specrt_beam beam = {n, m->tokens, parents, logprobs};
    const float *hidden = NULL, *input = NULL;
    m->drafted = true;
    m->n_unread = 0;
    return m->desc.host.draft_step(m->desc.host.user, level, &beam, &hidden, &input);
}

/* The first pass of a draft of n levels. */
static int specrt__meter_begin_draft(specrt__meter *m, int32_t n) {
    const specrt_host *h = &m->desc.host;
    specrt_block block;
    if (m->n_block == 0) return specrt__meter_draft(m, 0, 1);
    SPECRT__CLEAR(&block, 1);
    m->drafted = true;
    m->n_unread = 0;
    return h->draft_block(h->user, m->tokens[0], n < m->n_block ? n : m->n_block, &block);
}

/* The head's first rows where they lie: as fast as rows that were packed. */
static void specrt__meter_multiply(const specrt__meter *m, int32_t n_rows, int32_t n,
                                   double *seconds) {
    const specrt_head_desc *head = &m->desc.rows;
    int32_t best[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    float logprobs[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    specrt_segment rows;
    specrt_shortlist list;
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&list, 1);
    rows.rows = head->rows;
    rows.row_stride =
        head->row_stride ? head->row_stride : specrt_row_bytes(head->dtype, head->n_cols);
    rows.ids = m->ids;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.n_rows = n_rows;
    list.compute = specrt_head_compute(m->desc.head);
    list.segments = &rows;
    list.n_segments = 1;
    list.n_rows = n_rows;
    list.n_cols = head->n_cols;
    list.head = m->desc.head;
    double began = specrt__meter_now(m);
    if (specrt_shortlist_logits(&list, m->hidden, n, m->logits) == SPECRT_STATUS_OK &&
        specrt_shortlist_topk(&list, m->logits, n, n, best, logprobs) == SPECRT_STATUS_OK)
        *seconds = specrt__meter_now(m) - began;
}

/* --- passes --- */

/* One cycle, up to the target's pass, with a draft of so many levels; a plain one has none. */
static int specrt__meter_begin_cycle(specrt__meter *m, int32_t n_levels) {
    return n_levels > 0 && !m->drafted ? specrt__meter_begin_draft(m, n_levels) : 0;
}

/* Cycles like the one to be timed, as in decoding: the first takes up to twice as long, since it finds
 * neither weights in caches nor a graph of its shape. A large model's weights fit no cache. */
static int specrt__meter_warm(specrt__meter *m, int32_t n, int32_t n_levels) {
    const double began = specrt__meter_now(m);
    int code = 0;
    for (int i = 0; i < SPECRT__METER_LIKE && code == 0; i++) {
        if (i > 0 && specrt__meter_now(m) - began > SPECRT__METER_SMALL) break;
        code = specrt__meter_begin_cycle(m, n_levels);
        if (code == 0) code = specrt__meter_verify(m, n, 1);
    }
    return code;
}

static int specrt__meter_time_target(specrt__meter *m, int32_t n, double *seconds) {
    int code = specrt__meter_make_room(m, n + SPECRT__METER_LIKE);
    if (code == 0) code = specrt__meter_warm(m, n, n - 1);
    if (code == 0) code = specrt__meter_begin_cycle(m, n - 1);
    double began = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_verify(m, n, 1);
    seconds[0] = specrt__meter_now(m) - began;
    return code;
}

/* The first pass of a draft of n_levels, in front of which the drafter has read all but n_unread tokens. */
static int specrt__meter_time_first(specrt__meter *m, int32_t n_levels, int32_t n_unread,
                                    double *seconds) {
    const int32_t most = m->desc.tree.num_draft_tokens;
    int code = specrt__meter_warm(m, 1, n_levels);
    while (code == 0 && m->n_unread < n_unread) {
        int32_t left = n_unread - m->n_unread, now = left < most ? left : most;
        code = specrt__meter_verify(m, now, now);
    }
    double began = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_begin_draft(m, n_levels);
    *seconds = specrt__meter_now(m) - began;
    return code;
}

/* Of blocks, what is longer than a whole one is read. */
static int specrt__meter_time_draft(specrt__meter *m, int32_t n, double *seconds) {
    int32_t n_levels = n < m->n_block ? n : m->n_block;
    int code = specrt__meter_make_room(m, 2 * (n + SPECRT__METER_LIKE));
    if (code != 0) return code;
    if (m->n_block == 0) return specrt__meter_time_first(m, 1, n - 1, seconds);
    return specrt__meter_time_first(m, n_levels, 1 + n - n_levels, seconds);
}

/* A product after the passes of a cycle. */
static int specrt__meter_time_rows(specrt__meter *m, int32_t n_rows, int32_t n, double *seconds) {
    int code = specrt__meter_verify(m, 1, 1);
    if (code == 0) code = specrt__meter_begin_draft(m, n);
    if (code == 0) specrt__meter_multiply(m, n_rows, n, seconds);
    return code;
}

/* Of the next position's own list, then of all positions of a block. */
static int specrt__meter_time_blocks(specrt__meter *m, int32_t n_rows, double *seconds) {
    int code = 0;
    specrt__meter_multiply(m, n_rows, 1, &seconds[1]);
    for (int32_t w = 1; w < SPECRT_COSTS_WIDTHS && code == 0; w++)
        code = specrt__meter_time_rows(m, n_rows, specrt_costs_width(w), &seconds[1 + w]);
    return code;
}

/* The first product finds its rows where the target's pass left them, which may be nowhere near; the next
 * ones where the product before did. */
static int specrt__meter_time_head(specrt__meter *m, int32_t n_rows, double *seconds) {
    double unused;
    int code = specrt__meter_make_room(m, SPECRT_TREE_MAX_TOPK);
    specrt__meter_multiply(m, n_rows, 1, &unused); /* of the cycle before */
    if (code == 0) code = specrt__meter_time_rows(m, n_rows, 1, &seconds[0]);
    if (m->n_block > 0) return code == 0 ? specrt__meter_time_blocks(m, n_rows, seconds) : code;
    for (int32_t w = 0; w < SPECRT_COSTS_WIDTHS && code == 0; w++) {
        int32_t n = specrt_costs_width(w);
        if (n > m->desc.tree.topk || w + 1 >= m->desc.tree.num_steps) break;
        code = specrt__meter_draft(m, w + 1, n);
        if (code == 0) specrt__meter_multiply(m, n_rows, n, &seconds[1 + w]);
    }
    return code;
}

static int specrt__meter_time_prompt(specrt__meter *m, int32_t n, double *seconds) {
    double at[4] = {specrt__meter_now(m), 0, 0, 0};
    int code = specrt__meter_read(m, n, 0);
    at[1] = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_begin_draft(m, 1);
    at[2] = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_read(m, n, 1);
    at[3] = specrt__meter_now(m);
    for (int i = 0; i < 3; i++) seconds[i] = at[i + 1] - at[i];
    m->n_past = 0;
    return code;
}

static int specrt__meter_pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    specrt__meter *m = (specrt__meter *)user;
    if (pass == SPECRT_PASS_TARGET) return specrt__meter_time_target(m, n, seconds);
    if (pass == SPECRT_PASS_DRAFT) return specrt__meter_time_draft(m, n, seconds);
    if (pass == SPECRT_PASS_HEAD) return specrt__meter_time_head(m, n, seconds);
    return specrt__meter_time_prompt(m, n, seconds);
}

/* --- opening --- */

static specrt_status specrt__meter_check(const specrt_meter_desc *d, specrt_error *err) {
    const specrt_host *h = &d->host;
    const char *missing = !h->target_prefill                  ? "host.target_prefill"
                          : !h->draft_step && !h->draft_block ? "host.draft_step"
                          : !h->target_verify                 ? "host.target_verify"
                          : !h->commit                        ? "host.commit"
                          : !d->reset                         ? "reset"
                                                              : NULL;
    if (missing)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "meter: %s: expected a function, found NULL", missing);
    if (d->n_logits < 1 || d->tree.num_draft_tokens < 1 || d->n_before < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "meter: expected n_logits and tree.num_draft_tokens of 1 or more, "
                                "n_before of 0 or more, found %d, %d, %d",
                                (int)d->n_logits, (int)d->tree.num_draft_tokens, (int)d->n_before);
    if (d->n_block >= 0 && d->n_block <= SPECRT_TREE_MAX_STEPS) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "meter: n_block: expected 0 to %d positions, found %d",
                            SPECRT_TREE_MAX_STEPS, (int)d->n_block);
}

static bool specrt__meter_fill(specrt__meter *m) {
    const specrt_head_desc *head = &m->desc.rows;
    int32_t n = m->desc.n_before > SPECRT__METER_PROMPT ? m->desc.n_before : SPECRT__METER_PROMPT;
    m->tokens = (int32_t *)malloc((size_t)n * sizeof *m->tokens);
    for (int32_t i = 0; m->tokens && i < n; i++)
        m->tokens[i] = (int32_t)((i * 977LL + 11) % m->desc.n_logits);
    if (!m->desc.head) return m->tokens != NULL;
    size_t rows = (size_t)head->n_rows, n_hidden = SPECRT_TREE_MAX_TOPK * (size_t)head->n_cols;
    m->ids = (int32_t *)malloc(rows * sizeof *m->ids);
    m->hidden = (float *)malloc(n_hidden * sizeof *m->hidden);
    m->logits = (float *)malloc(SPECRT_TREE_MAX_TOPK * rows * sizeof *m->logits);
    if (!m->tokens || !m->ids || !m->hidden || !m->logits) return false;
    for (size_t i = 0; i < rows; i++) m->ids[i] = head->ids ? head->ids[i] : (int32_t)i;
    for (size_t i = 0; i < n_hidden; i++) m->hidden[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    return true;
}

static int32_t specrt__meter_least(int64_t a, int64_t b) {
    return (int32_t)(a < b ? a : b);
}

SPECRT_API specrt_status specrt_meter_open(const specrt_meter_desc *desc, specrt_meter *out,
                                           specrt_error *err) {
    SPECRT__NEED(desc);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    SPECRT__TRY(specrt__meter_check(desc, err));
    specrt__meter *m = (specrt__meter *)calloc(1, sizeof *m);
    out->user = m;
    if (m) m->desc = *desc;
    if (m && m->desc.n_before == 0) m->desc.n_before = SPECRT__METER_BEFORE;
    if (m && desc->host.draft_block)
        m->n_block = desc->n_block > 0 ? desc->n_block : desc->tree.num_steps;
    if (!m || !specrt__meter_fill(m)) {
        specrt_meter_close(out);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "meter: expected memory for a product of %lld rows, found none",
                                (long long)desc->rows.n_rows);
    }
    int64_t room = desc->host.n_context > 0 ? desc->host.n_context / 2 : INT32_MAX;
    if (room < 1) room = 1;
    out->pass = specrt__meter_pass;
    out->most[SPECRT_PASS_TARGET] = specrt__meter_least(desc->tree.num_draft_tokens, room);
    out->most[SPECRT_PASS_DRAFT] = m->n_block > 0
                                       ? -specrt__meter_least(m->n_block, (room + 1) / 2)
                                       : specrt__meter_least(SPECRT__METER_DRAFT, (room + 1) / 2);
    out->most[SPECRT_PASS_HEAD] =
        desc->head ? specrt__meter_least(desc->rows.n_rows, INT32_MAX) : 0;
    out->most[SPECRT_PASS_PROMPT] = specrt__meter_least(SPECRT__METER_PROMPT, room);
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_meter_close(specrt_meter *meter) {
    specrt__meter *m = meter ? (specrt__meter *)meter->user : NULL;
    if (!m) return;
    m->desc.reset(m->desc.reset_user);
    free(m->tokens), free(m->ids), free(m->hidden), free(m->logits);
    free(m);
    SPECRT__CLEAR(meter, 1);
}

// >>clock : src/adapt/clock.c
/* clock.c : what cycles cost now, from the clock of cycles. Refuses nothing that it can count. */

#include <math.h>

/* A figure moves by 1/8 of what it was off by, and faster the longer it was not seen. */
#define SPECRT__CLOCK_LEAST_WEIGHT (1.0 / 8)
#define SPECRT__CLOCK_MOST_WEIGHT  0.5
#define SPECRT__CLOCK_MOST_OFF                                                                     \
    0.7 /* natural log: a pass that took twice as long or more counts as twice */
#define SPECRT__CLOCK_MOST_RIGHT 0.95 /* of drafted tokens, that may be accepted */
#define SPECRT__CLOCK_MOST_DRIFT 0.1  /* beyond which plain cycles are timed */

enum { SPECRT__CLOCK_AGE = 128, SPECRT__CLOCK_KNOWN = 8, SPECRT__CLOCK_ASKED = 3 };

SPECRT_API void specrt_clock_init(specrt_clock *c, const specrt_costs *costs,
                                  const specrt_tree_params *tree, double head) {
    if (!c || !costs || !tree) return;
    memset(c, 0, sizeof *c);
    c->costs = *costs;
    c->tree = *tree;
    c->head = head;
}

/* ---- the figures now ------------------------------------------------------------------------- */

static double specrt__clock_target_at(const specrt_clock *c, int32_t n) {
    int32_t i = n < SPECRT_TREE_MAX_NODES ? n : SPECRT_TREE_MAX_NODES;
    return specrt_curve_at(&c->costs.target, n) * exp(c->slow + c->target[i]);
}

/* The drafter's passes of drafts of n levels in so many slots, which first read n_read tokens in all. A block
 * has its levels in one pass. */
static double specrt__clock_passes_at(const specrt_clock *c, int32_t n_slots, int32_t n,
                                      int32_t n_read) {
    return specrt_costs_draft(&c->costs, n_read, n, n_slots * c->tree.topk) *
           exp(c->slow + c->draft);
}

static double specrt__clock_head_at(const specrt_clock *c) {
    return c->head * exp(c->slow + c->scoring);
}

static double specrt__clock_read_at(const specrt_clock *c) {
    return specrt_costs_read_token(&c->costs) * exp(c->slow + c->draft);
}

/* Seconds of drafting n levels in each of so many slots. */
static double specrt__clock_drafts_at(const specrt_clock *c, int32_t n_slots, int32_t n) {
    return specrt__clock_passes_at(c, n_slots, n, n_slots) + n * n_slots * specrt__clock_head_at(c);
}

/* What a block has spent before its first token is chosen. @return NULL: the drafter has none */
static const double *specrt__clock_sunk(const specrt_clock *c,
                                        double out[SPECRT_TREE_MAX_STEPS + 1]) {
    if (c->costs.n_block == 0) return NULL;
    out[0] = 0;
    for (int32_t n = 1; n <= c->tree.num_steps; n++) out[n] = specrt__clock_passes_at(c, 1, n, 1);
    return out;
}

SPECRT_API void specrt_clock_table(const specrt_clock *c, int32_t n_slots, double *cycles,
                                   double *read) {
    if (!c || !cycles || !read) return;
    cycles[0] = specrt__clock_target_at(c, n_slots);
    for (int32_t n = 1; n <= c->tree.num_steps; n++)
        cycles[n] = specrt__clock_drafts_at(c, n_slots, n) +
                    specrt__clock_target_at(c, n_slots * specrt_costs_nodes(&c->tree, n));
    *read = n_slots * specrt__clock_read_at(c);
}

SPECRT_API int specrt_clock_hopeless(const specrt_clock *c, char *line) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], read, tokens = 1, reached = 1;
    if (!c || !line || c->costs.disturbed) return 0;
    specrt_clock_table(c, 1, cycles, &read);
    for (int32_t n = 1; n <= c->tree.num_steps; n++) {
        reached *= SPECRT__CLOCK_MOST_RIGHT;
        tokens += reached;
        if (tokens * cycles[0] > cycles[n]) return 0;
    }
    int32_t n = c->tree.num_steps < 3 ? c->tree.num_steps : 3;
    snprintf(
        line, SPECRT_COSTS_TEXT,
        "drafting off: a pass of %d tokens costs %.2f passes here, its draft %.2f; too slow even "
        "if %.0f%% of drafted tokens are accepted",
        (int)specrt_costs_nodes(&c->tree, n),
        specrt__clock_target_at(c, specrt_costs_nodes(&c->tree, n)) / cycles[0],
        specrt__clock_drafts_at(c, 1, n) / cycles[0], 100 * SPECRT__CLOCK_MOST_RIGHT);
    return 1;
}

SPECRT_API specrt_status specrt_clock_auto(const specrt_clock *clock, int32_t keeps_chains,
                                           specrt_auto **out, specrt_error *err) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1], sunk[SPECRT_TREE_MAX_STEPS + 1], read;
    specrt_auto_desc desc;
    const double *spent;
    SPECRT__NEED(clock);
    SPECRT__NEED(out);
    specrt_clock_table(clock, 1, cycles, &read);
    memset(&desc, 0, sizeof desc);
    desc.num_steps = clock->tree.num_steps;
    desc.n_lists = 1;
    desc.costs = cycles;
    desc.read = read;
    desc.keeps_chains = keeps_chains && clock->tree.topk == 1;
    SPECRT__TRY(specrt_auto_create(&desc, NULL, out, err));
    spent = specrt__clock_sunk(clock, sunk);
    return spent ? specrt_auto_set_sunk(*out, spent, err)
                 : SPECRT_STATUS_OK; /* fits: of the costs */
}

/* ---- learning -------------------------------------------------------------------------------- */

/* How far a time is from what was expected. */
static double specrt__clock_off_by(double seconds, double expected) {
    if (!(seconds > 0 && expected > 0)) return 0;
    double off = log(seconds / expected);
    return off > SPECRT__CLOCK_MOST_OFF    ? SPECRT__CLOCK_MOST_OFF
           : off < -SPECRT__CLOCK_MOST_OFF ? -SPECRT__CLOCK_MOST_OFF
                                           : off;
}

static double specrt__clock_weight_of(int32_t since) {
    double weight = (double)since / (int)SPECRT__CLOCK_AGE;
    return weight < SPECRT__CLOCK_LEAST_WEIGHT  ? SPECRT__CLOCK_LEAST_WEIGHT
           : weight > SPECRT__CLOCK_MOST_WEIGHT ? SPECRT__CLOCK_MOST_WEIGHT
                                                : weight;
}

/* Neighbouring sizes are off by the same causes; a plain pass has a token for each slot. */
static void specrt__clock_move_target(specrt_clock *c, const specrt_clock_cycle *y, double by) {
    int32_t n = y->n_tokens < SPECRT_TREE_MAX_NODES ? y->n_tokens : SPECRT_TREE_MAX_NODES;
    for (int32_t i = y->n_slots + 1; i <= SPECRT_TREE_MAX_NODES; i++)
        c->target[i] += ldexp(by, i < n ? i - n : n - i);
}

/* A pass with drafts. What it was off by is the shape's: plain cycles see the machine's speed. */
static void specrt__clock_see_draft(specrt_clock *c, const specrt_clock_cycle *y) {
    double weight = specrt__clock_weight_of(c->since_draft);
    double off = specrt__clock_off_by(y->target_seconds, specrt__clock_target_at(c, y->n_tokens));
    int32_t n_levels = c->costs.n_block > 0 ? y->n_block : y->n_passes;
    double passes = specrt__clock_passes_at(c, y->n_slots, n_levels, y->n_read);
    specrt__clock_move_target(c, y, weight * off);
    if (y->n_read <= SPECRT_TREE_MAX_NODES) /* not a whole prompt */
        c->draft += weight * specrt__clock_off_by(y->draft_seconds, passes);
    c->scoring +=
        weight * specrt__clock_off_by(y->head_seconds, y->n_scored * specrt__clock_head_at(c));
    c->drift += (off - c->drift) / 8;
    c->since_draft = 0;
    c->since_plain++;
}

/* Asked for, it counts half: the machine's speed has changed, or was not seen for long. */
static void specrt__clock_see_plain(specrt_clock *c, const specrt_clock_cycle *y) {
    double weight =
        c->asked > 0 ? SPECRT__CLOCK_MOST_WEIGHT : specrt__clock_weight_of(c->since_plain);
    c->slow +=
        weight * specrt__clock_off_by(y->target_seconds, specrt__clock_target_at(c, y->n_tokens));
    if (c->asked > 0) c->asked--;
    c->drift = 0;
    c->since_plain = 0;
    c->since_draft++;
}

SPECRT_API int specrt_clock_see(specrt_clock *c, const specrt_clock_cycle *y) {
    if (!c || !y) return 0;
    if (y->n_passes == 0)
        specrt__clock_see_plain(c, y);
    else
        specrt__clock_see_draft(c, y);
    if (fabs(c->drift) > SPECRT__CLOCK_MOST_DRIFT && c->since_plain > SPECRT__CLOCK_KNOWN)
        c->asked = SPECRT__CLOCK_ASKED;
    if (c->since_plain >= SPECRT__CLOCK_AGE) c->asked = 1;
    return c->asked > 0;
}

/* ---- in words -------------------------------------------------------------------------------- */

SPECRT_API void specrt_clock_explain(const specrt_clock *c, const specrt_auto_stats *s, char *out) {
    if (!c || !s || !out) return;
    int64_t n_drafts = s->n_cycles - s->n_plain, n_accepted = s->n_emitted - s->n_cycles;
    double n_cycles = s->n_cycles > 0 ? (double)s->n_cycles : 1;
    int32_t n =
        n_drafts > 0 ? (int32_t)((s->n_passes + n_drafts / 2) / n_drafts) : c->tree.num_steps;
    if (n < 1) n = 1;
    double plain = specrt__clock_target_at(c, 1);
    bool off = 2 * s->n_plain >= s->n_cycles;
    snprintf(
        out, SPECRT_COSTS_TEXT,
        "drafting %s in %.0f%% of cycles: a pass of %d tokens costs %.2f passes here, its draft "
        "%.2f; %lld tokens drafted, %lld accepted; estimated %.2fx plain decoding",
        off ? "off" : "on", 100 * (double)(off ? s->n_plain : n_drafts) / n_cycles,
        (int)specrt_costs_nodes(&c->tree, n),
        specrt__clock_target_at(c, specrt_costs_nodes(&c->tree, n)) / plain,
        specrt__clock_drafts_at(c, 1, n) / plain, (long long)s->n_passes, (long long)n_accepted,
        s->cost > 0 ? (double)s->n_emitted / s->cost : 1.0);
}

/* ---- a host that is timed -------------------------------------------------------------------- */

SPECRT_API double specrt_clock_seconds(void) {
    return specrt__os_seconds();
}

SPECRT_API void specrt_timer_begin(specrt_timer *t) {
    if (!t) return;
    t->began = t->drafted = 0;
    t->n_unread = 1;
    memset(&t->cycle, 0, sizeof t->cycle);
}

static int specrt__clock_time_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                                      const float **logits) {
    specrt_timer *t = (specrt_timer *)user;
    int32_t n_unread = t->began > 0 ? 1 : t->n_unread; /* batches of the same prompt add up */
    specrt_timer_begin(t);
    if (t->host.reads_late) t->n_unread = n_unread + n;
    return t->host.target_prefill(t->host.user, tokens, n, all, logits);
}

/* Between two passes of the drafter, and before the target's, a level is scored. */
static void specrt__clock_end_scoring(specrt_timer *t, double now) {
    if (t->drafted > 0) t->cycle.head_seconds += now - t->drafted;
    t->drafted = 0;
}

static void specrt__clock_end_pass(specrt_timer *t, double began) {
    t->drafted = t->now();
    t->cycle.draft_seconds += t->drafted - began;
    t->cycle.n_passes++;
}

static int specrt__clock_time_draft(void *user, int32_t level, const specrt_beam *beam,
                                    const float **hidden, const float **draft_input) {
    specrt_timer *t = (specrt_timer *)user;
    double began = t->now();
    specrt__clock_end_scoring(t, began);
    int code = t->host.draft_step(t->host.user, level, beam, hidden, draft_input);
    specrt__clock_end_pass(t, began);
    return code;
}

static int specrt__clock_time_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    specrt_timer *t = (specrt_timer *)user;
    double began = t->now();
    int code = t->host.draft_block(t->host.user, root, n, block);
    specrt__clock_end_pass(t, began);
    t->cycle.n_block = block->n > 0 && block->n < n ? block->n : n;
    return code;
}

static int specrt__clock_time_verify(void *user, const specrt_draft *draft, const float **logits) {
    specrt_timer *t = (specrt_timer *)user;
    specrt__clock_end_scoring(t, t->now());
    t->cycle.n_tokens = draft->n;
    return t->host.target_verify(t->host.user, draft, logits);
}

static int specrt__clock_time_hidden(void *user, const float **hidden, int32_t *width) {
    specrt_timer *t = (specrt_timer *)user;
    return t->host.target_hidden(t->host.user, hidden, width);
}

/* Tokens that the drafter's next first pass reads, as specrt_auto counts them. */
static int32_t specrt__clock_unread_after(const specrt_timer *t, int32_t n_accepted) {
    if (t->cycle.n_passes == 0) return t->n_unread + 1;
    if (!t->keeps_chains) return n_accepted + 1;
    return n_accepted == t->cycle.n_passes ? 2 : 1;
}

/* The cycle ends here; observe() and what the application does before the next draft count to the next. */
static int specrt__clock_time_commit(void *user, const specrt_draft *draft,
                                     const specrt_verdict *verdict) {
    specrt_timer *t = (specrt_timer *)user;
    double cycles[SPECRT_TREE_MAX_STEPS + 1], sunk[SPECRT_TREE_MAX_STEPS + 1], read;
    int code = t->host.commit(t->host.user, draft, verdict);
    double now = t->now();
    t->cycle.n_slots = 1;
    t->cycle.n_read = t->n_unread;
    t->cycle.n_scored = t->cycle.n_block > 0 ? t->cycle.n_block : t->cycle.n_passes;
    t->cycle.target_seconds = now - t->began - t->cycle.draft_seconds - t->cycle.head_seconds;
    t->n_unread = specrt__clock_unread_after(t, verdict->n - 1);
    if (t->began > 0 && specrt_clock_see(&t->clock, &t->cycle)) specrt_auto_skip(t->auto_draft);
    specrt_clock_table(&t->clock, 1, cycles, &read);
    const double *spent = specrt__clock_sunk(&t->clock, sunk);
    specrt_status status = specrt_auto_set_costs(t->auto_draft, cycles, read, NULL);
    if (status == SPECRT_STATUS_OK && spent) (void)specrt_auto_set_sunk(t->auto_draft, spent, NULL);
    t->began = now;
    memset(&t->cycle, 0, sizeof t->cycle);
    return code;
}

SPECRT_API void specrt_timer_host(specrt_timer *t, specrt_host *out) {
    if (!t || !out) return;
    if (!t->now) t->now = specrt_clock_seconds;
    specrt_timer_begin(t);
    *out = t->host;
    out->user = t;
    out->target_prefill = specrt__clock_time_prefill;
    if (out->draft_step) out->draft_step = specrt__clock_time_draft;
    if (out->draft_block) out->draft_block = specrt__clock_time_block;
    out->target_verify = specrt__clock_time_verify;
    out->commit = specrt__clock_time_commit;
    if (out->target_hidden) out->target_hidden = specrt__clock_time_hidden;
}

// >>advise : src/adapt/advise.c
/* advise.c : the one verdict on policies. Refuses times that are none. */

#include <math.h>

/* Most of an interval's width is how prompts differ, whatever the policy. So a way that is slower by more
 * than this share does not tie with the fastest one, however wide the intervals are. */
#define SPECRT__ADVISE_SLACK 0.05

SPECRT_API specrt_outcome specrt_ratio_outcome(const specrt_ratio *r) {
    if (r && r->low > 1) return SPECRT_OUTCOME_FASTER;
    if (r && r->high < 1) return SPECRT_OUTCOME_SLOWER;
    return SPECRT_OUTCOME_TIE;
}

SPECRT_API const char *specrt_outcome_name(specrt_outcome outcome) {
    if (outcome == SPECRT_OUTCOME_FASTER) return "faster";
    return outcome == SPECRT_OUTCOME_SLOWER ? "slower" : "a tie";
}

/* --- the choice --- */

/* The error of a difference is the root of the squares of both errors. An unknown one is no reason to tell
 * two ways apart. */
static int specrt__advise_ties(const specrt_ratio *r, const specrt_ratio *fastest) {
    double apart = fastest->value - r->value;
    if (apart > SPECRT__ADVISE_SLACK * fastest->value) return 0;
    return !(apart > hypot(r->high - r->value, fastest->value - fastest->low));
}

static int specrt__advise_prefers(const specrt_way *way, const specrt_way *chosen) {
    if (way->bytes != chosen->bytes) return way->bytes < chosen->bytes;
    return way->ratio.value > chosen->ratio.value;
}

static specrt_status specrt__advise_check(const specrt_way *ways, int32_t n,
                                          const specrt_plain *plain, specrt_error *err) {
    if (n < 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: n: expected at least one way, found %d", (int)n);
    if (!(plain->prompt_seconds >= 0 && plain->token_seconds > 0 && plain->answer_tokens > 0))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: plain: expected times and lengths above 0, found %g s for "
                                "a prompt, %g s for a token, %g tokens",
                                plain->prompt_seconds, plain->token_seconds, plain->answer_tokens);
    if (plain->answer_tokens < 2)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "advise: plain: expected answers of 2 tokens or more, found %g; no "
                                "draft is made before the first token",
                                plain->answer_tokens);
    for (int32_t i = 0; i < n; i++)
        if (!(ways[i].ratio.value > 0 && ways[i].prompt_seconds >= 0 && ways[i].token_seconds > 0 &&
              ways[i].accept_length > 0))
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG,
                "advise: %s: expected a ratio, an accept length and times above "
                "0, found %g, %g, %g s and %g s",
                ways[i].name ? ways[i].name : "?", ways[i].ratio.value, ways[i].accept_length,
                ways[i].prompt_seconds, ways[i].token_seconds);
    return SPECRT_STATUS_OK;
}

/* What would reach plain decoding's time: a longer answer, over which the prompt's extra time is regained;
 * or a greater accept length, where a cycle takes as long. */
static void specrt__advise_reach(const specrt_way *way, const specrt_plain *plain,
                                 specrt_advice *out) {
    double extra = way->prompt_seconds - plain->prompt_seconds;
    double gain = plain->token_seconds - way->token_seconds;
    double left = plain->token_seconds * plain->answer_tokens - extra;
    if (extra <= gain * plain->answer_tokens) return;
    out->answer_tokens = gain > 0 ? extra / gain : INFINITY;
    out->accept_length = INFINITY;
    if (left > 0)
        out->accept_length = way->accept_length * way->token_seconds * plain->answer_tokens / left;
}

SPECRT_API specrt_status specrt_advise(const specrt_way *ways, int32_t n, const specrt_plain *plain,
                                       uint8_t *ties, specrt_advice *out, specrt_error *err) {
    SPECRT__NEED(ways);
    SPECRT__NEED(plain);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    specrt_status status = specrt__advise_check(ways, n, plain, err);
    if (status != SPECRT_STATUS_OK) return status;
    int32_t fastest = 0;
    for (int32_t i = 1; i < n; i++)
        if (ways[i].ratio.value > ways[fastest].ratio.value) fastest = i;
    out->chosen = fastest;
    out->n_ties = -1;
    for (int32_t i = 0; i < n; i++) {
        int is_tie = specrt__advise_ties(&ways[i].ratio, &ways[fastest].ratio);
        if (ties) ties[i] = (uint8_t)is_tie;
        out->n_ties += is_tie;
        if (is_tie && specrt__advise_prefers(&ways[i], &ways[out->chosen])) out->chosen = i;
    }
    out->outcome = specrt_ratio_outcome(&ways[out->chosen].ratio);
    specrt__advise_reach(&ways[out->chosen], plain, out);
    return SPECRT_STATUS_OK;
}

/* --- in words --- */

typedef struct specrt__advise_line {
    char *at;
    size_t left;
} specrt__advise_line;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
specrt__advise_put(specrt__advise_line *line, const char *format, ...) {
    va_list args;
    if (line->left == 0) return;
    va_start(args, format);
    int n = vsnprintf(line->at, line->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < line->left ? (size_t)n : line->left - 1;
    line->at += used;
    line->left -= used;
}

/* Why a draft is not faster, in the terms that can be changed. */
static void specrt__advise_put_reason(specrt__advise_line *line, const specrt_way *way,
                                      const specrt_plain *plain, const specrt_advice *a) {
    double cycle = way->accept_length * way->token_seconds / plain->token_seconds;
    specrt__advise_put(line, " A cycle takes %.2f plain passes and gives %.2f tokens", cycle,
                       way->accept_length);
    if (way->prompt_seconds > 1.01 * plain->prompt_seconds)
        specrt__advise_put(line, "; its prompts take %.2f times plain decoding's",
                           way->prompt_seconds / plain->prompt_seconds);
    specrt__advise_put(line, ".");
    int longer = a->answer_tokens > 0 && a->answer_tokens < 1e6;
    int better = a->accept_length > 0 && a->accept_length < 1e3;
    if (longer || better) specrt__advise_put(line, " It breaks even at");
    if (longer) specrt__advise_put(line, " answers of %.0f tokens", ceil(a->answer_tokens));
    if (longer && better) specrt__advise_put(line, ", or");
    if (better)
        specrt__advise_put(line, " an accept length of %.2f", ceil(100 * a->accept_length) / 100);
    if (longer || better) specrt__advise_put(line, ".");
}

SPECRT_API void specrt_advice_text(const specrt_way *ways, const specrt_plain *plain,
                                   const specrt_advice *a, char *out, size_t size) {
    static const char *const verdicts[] = {
        "Decode plainly: %s is slower, %.2f times plain decoding's speed",
        "Draft with %s or decode plainly: they are as fast within the error, a ratio of %.2f",
        "Draft with %s: it is faster, %.2f times plain decoding's speed",
        "Draft with %s or decode plainly: these requests are too few to tell, a ratio of %.2f"};
    specrt__advise_line line = {out, size};
    if (out && size) *out = 0;
    if (!ways || !plain || !a || !out) return;
    const specrt_way *way = &ways[a->chosen];
    const specrt_ratio *r = &way->ratio;
    int known = r->low == r->low;
    specrt__advise_put(&line, verdicts[known ? a->outcome + 1 : 3], way->name, r->value);
    if (known) specrt__advise_put(&line, " (95%%: %.2f to %.2f)", r->low, r->high);
    if (way->task) specrt__advise_put(&line, " in its worst task (%s),", way->task);
    if (plain->prompt_tokens > 0)
        specrt__advise_put(&line, " over whole requests (prompt %.0f, answer %.0f tokens)",
                           plain->prompt_tokens, plain->answer_tokens);
    else
        specrt__advise_put(&line, " over answers of %.0f tokens without their prompts",
                           plain->answer_tokens);
    specrt__advise_put(&line, ".");
    if (a->outcome != SPECRT_OUTCOME_FASTER) specrt__advise_put_reason(&line, way, plain, a);
    if (!known)
        specrt__advise_put(&line, " Give %d or more.", (int)SPECRT_ADVISE_REQUESTS);
    else if (a->outcome == SPECRT_OUTCOME_TIE)
        specrt__advise_put(&line, " More prompts narrow the interval.");
}

/* --- untried --- */

#define SPECRT__ADVISE_SMALL 0.02 /* of a cycle: lists gain nothing */

/* A cycle of three drafts, where a level is scored in so many seconds. */
static double specrt__advise_cycle(const specrt_costs *c, const specrt_costs_drafts *d,
                                   double scoring) {
    int32_t n = d->params.tree.num_steps;
    if (n < 1 || n > 3) n = 3;
    return specrt_curve_at(&c->target, n + 1) + specrt_costs_draft(c, 1, n, 1) + n * scoring;
}

SPECRT_API const char *specrt_advise_untried(specrt_costs *costs,
                                             const specrt_costs_drafts *drafts) {
    specrt_cograph graph;
    specrt_sketch sketch;
    if (!costs || !drafts) return NULL;
    const specrt_bundle *bundle = drafts->bundle;
    int has_graph = bundle && specrt_bundle_cograph(bundle, &graph, NULL) == SPECRT_STATUS_OK;
    int has_sketch = bundle && specrt_bundle_sketch(bundle, &sketch, NULL) == SPECRT_STATUS_OK;
    const char *policy = specrt_policy_untried(has_graph, has_sketch);
    double all = specrt_costs_head(costs, drafts, "full");
    double list = specrt_costs_head(costs, drafts, policy);
    if (list == 0) list = specrt_costs_head(costs, drafts, policy = specrt_policy_untried(0, 0));
    if (list == 0) return "full";
    double cycle = specrt__advise_cycle(costs, drafts, list);
    int is_small = specrt__advise_cycle(costs, drafts, all) <= (1 + SPECRT__ADVISE_SMALL) * cycle;
    return all > 0 && is_small ? "full" : policy;
}

// >>trace : src/trace/trace.h
/* trace.h : the layout that writer and reader of traces share */

#if !defined(SPECRT_NO_ZSTD)
#include <zstd.h>
#endif

enum {
    SPECRT__TRACE_VERSION = 3,
    SPECRT__TRACE_HEADER = 128,
    SPECRT__TRACE_BLOCK_HEADER = 32,
    SPECRT__TRACE_MAGIC_BLOCK = 0x314b4c42,  /* "BLK1" */
    SPECRT__TRACE_MAGIC_HIDDEN = 0x31444948, /* "HID1": hidden states of the block that follows */
    SPECRT__TRACE_FLUSH = 1 << 20,           /* raw bytes of a block, at least */
    SPECRT__TRACE_MAX_BLOCK = 1 << 28,
    SPECRT__TRACE_MAX_WIDTH = 1 << 20,
    SPECRT__TRACE_MAX_TOP = 1 << 12,
    SPECRT__TRACE_MAX_TEXT = 1024, /* of a policy, with its NUL */
    SPECRT__TRACE_FIELDS = 15,
    SPECRT__TRACE_HIDDEN = 1 << 5 | 1 << 9 | 1 << 14, /* fields that are hidden states */
    SPECRT__TRACE_APART = 1 << 30                     /* they are in the block before */
};

/* One array of a record: the address of the pointer to it, and its bytes. */
typedef struct specrt__trace_field {
    void *at;
    uint64_t n_bytes;
} specrt__trace_field;

/* The pointers are of several types, so they are copied as bytes. */
static inline const void *specrt__trace_get(const specrt__trace_field *f) {
    const void *array;
    memcpy(&array, f->at, sizeof array);
    return array;
}

static inline void specrt__trace_set(const specrt__trace_field *f, const void *array) {
    memcpy(f->at, &array, sizeof array);
}

SPECRT__INTERNAL void specrt__trace_layout(const specrt_trace_info *info, specrt_trace_record *r,
                                           specrt__trace_field f[SPECRT__TRACE_FIELDS]);
SPECRT__INTERNAL bool specrt__trace_counts_ok(const specrt_trace_record *r);
SPECRT__INTERNAL const char *specrt__trace_wrong(const specrt_trace_info *info,
                                                 const specrt_trace_record *r);
SPECRT__INTERNAL bool specrt__trace_info_ok(const specrt_trace_info *info);

/* Bytes that grow. */
typedef struct specrt__trace_buffer {
    uint8_t *p;
    size_t n, at, capacity; /* at: where reading goes on */
} specrt__trace_buffer;

SPECRT__INTERNAL bool specrt__trace_reserve(const specrt_env *env, specrt__trace_buffer *b,
                                            size_t n);

static inline void specrt__trace_release(const specrt_env *env, specrt__trace_buffer *b) {
    specrt__base_free(env, b->p);
    memset(b, 0, sizeof *b);
}

// >>trace : src/trace/trace.c
/* trace.c : owns trace files: records in blocks, their hidden states in blocks beside them. Refuses sizes
 * that do not fit each other, tokens outside the vocabulary, damaged blocks. Every record is a list of
 * arrays in one order, described once. */

/* The arrays of a record in file order; those of no bytes do not apply. */
SPECRT__INTERNAL void specrt__trace_layout(const specrt_trace_info *info, specrt_trace_record *r,
                                           specrt__trace_field f[SPECRT__TRACE_FIELDS]) {
    uint64_t n = (uint64_t)r->n, nodes = (uint64_t)r->n_nodes,
             cycle = r->kind == SPECRT_TRACE_CYCLE;
    uint64_t top = n * (uint64_t)info->n_top, draft_top = n * (uint64_t)info->n_draft_top;
    const specrt__trace_field fields[SPECRT__TRACE_FIELDS] = {
        {(void *)&r->tokens, 4 * n},
        {(void *)&r->nodes, 4 * n * cycle},
        {(void *)&r->tree_tokens, 4 * nodes},
        {(void *)&r->tree_parents, 4 * nodes},
        {(void *)&r->tree_logprobs, 4 * nodes},
        {(void *)&r->target_hidden, 2 * n * (uint64_t)info->d_target},
        {(void *)&r->top_ids, 4 * top},
        {(void *)&r->top_logits, 4 * top},
        {(void *)&r->top_logsumexp, 4 * n},
        {(void *)&r->draft_hidden, 2 * n * (uint64_t)info->d_draft},
        {(void *)&r->draft_ids, 4 * draft_top},
        {(void *)&r->draft_logits, 4 * draft_top},
        {(void *)&r->draft_logsumexp, 4 * n},
        {(void *)&r->tree_top_ids, 4 * nodes * (uint64_t)info->n_tree_top},
        {(void *)&r->prompt_hidden, 2 * (uint64_t)info->d_target * (1 - cycle)},
    };
    memcpy(f, fields, sizeof fields);
}

/* What must be true of a record before its arrays are looked at. */
SPECRT__INTERNAL bool specrt__trace_counts_ok(const specrt_trace_record *r) {
    bool cycle = r->kind == SPECRT_TRACE_CYCLE;
    if (r->kind != SPECRT_TRACE_SEQUENCE && !cycle) return false;
    if (r->n < 1 || r->n > SPECRT_MAX_VOCAB) return false;
    return cycle ? r->n_nodes >= 1 && r->n_nodes <= SPECRT_TREE_MAX_NODES && r->n <= r->n_nodes
                 : r->n_nodes == 0;
}

static bool specrt__trace_ids_ok(const int32_t *ids, int64_t n, int32_t least, int32_t n_vocab) {
    for (int64_t i = 0; ids && i < n; i++)
        if (ids[i] < least || ids[i] >= n_vocab) return false;
    return true;
}

/* @return what is wrong; NULL: nothing. */
SPECRT__INTERNAL const char *specrt__trace_wrong(const specrt_trace_info *info,
                                                 const specrt_trace_record *r) {
    int64_t n = r->n;
    if (!r->tokens || !specrt__trace_ids_ok(r->tokens, n, 0, info->n_vocab)) return "tokens";
    if (!specrt__trace_ids_ok(r->tree_tokens, r->n_nodes, 0, info->n_vocab)) return "tree_tokens";
    if (!specrt__trace_ids_ok(r->top_ids, n * info->n_top, -1, info->n_vocab)) return "top_ids";
    if (!specrt__trace_ids_ok(r->draft_ids, n * info->n_draft_top, -1, info->n_vocab))
        return "draft_ids";
    if (!specrt__trace_ids_ok(r->tree_top_ids, (int64_t)r->n_nodes * info->n_tree_top, -1,
                              info->n_vocab))
        return "tree_top_ids";
    if (r->kind != SPECRT_TRACE_CYCLE) return NULL;
    if (!r->tree_tokens || !r->tree_parents) return "tree";
    if (!r->nodes || !specrt__trace_ids_ok(r->nodes, n, 0, r->n_nodes)) return "nodes";
    for (int32_t i = 0; i < r->n_nodes; i++)
        if (r->tree_parents[i] >= i || r->tree_parents[i] < (i ? 0 : -1)) return "tree_parents";
    return NULL;
}

SPECRT__INTERNAL bool specrt__trace_info_ok(const specrt_trace_info *info) {
    const struct {
        int32_t value, least, most;
    } counts[] = {{info->n_vocab, 1, SPECRT_MAX_VOCAB},
                  {info->d_target, 0, SPECRT__TRACE_MAX_WIDTH},
                  {info->d_draft, 0, SPECRT__TRACE_MAX_WIDTH},
                  {info->n_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_draft_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_tree_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_ids, 0, info->n_vocab},
                  {info->n_terminators, 0, SPECRT_MAX_TERMINATORS}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].most) return false;
    return specrt__trace_ids_ok(info->terminators, info->n_terminators, 0, info->n_vocab);
}

/* Room for n bytes, of which those that there are stay. */
SPECRT__INTERNAL bool specrt__trace_reserve(const specrt_env *env, specrt__trace_buffer *b,
                                            size_t n) {
    if (n <= b->capacity) return true;
    uint8_t *grown = (uint8_t *)specrt__base_alloc(env, n + n / 2);
    if (!grown) return false;
    if (b->n) memcpy(grown, b->p, b->n);
    specrt__base_free(env, b->p);
    b->p = grown;
    b->capacity = n + n / 2;
    return true;
}

// >>writer : src/trace/writer.c
/* writer.c : owns the writing of traces. */

/* --- writing --- */

struct specrt_trace_writer {
    specrt_env env;
    specrt_trace_info info;
    int (*write)(void *user, const void *bytes, size_t n);
    void *user;
    specrt__trace_buffer records, hidden, stored; /* of the block at hand; stored: compressed */
    uint32_t n_records;
};

static void specrt__trace_store32(uint8_t *p, uint32_t x) {
    memcpy(p, &x, 4);
}
static void specrt__trace_store64(uint8_t *p, uint64_t x) {
    memcpy(p, &x, 8);
}

static specrt_status specrt__trace_put(specrt_trace_writer *w, const void *bytes, size_t n,
                                       specrt_error *err) {
    if (w->write(w->user, bytes, n) == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "trace: write: expected 0, found a failure of the callback");
}

static specrt_status specrt__trace_put_header(specrt_trace_writer *w, specrt_error *err) {
    const specrt_trace_info *info = &w->info;
    uint8_t h[SPECRT__TRACE_HEADER + 4 * SPECRT_MAX_TERMINATORS + SPECRT__TRACE_MAX_TEXT] = {0};
    uint8_t *more = h + SPECRT__TRACE_HEADER;
    size_t n_ids = 4 * (size_t)info->n_terminators;
    size_t n_text = info->policy ? strlen(info->policy) + 1 : 0;
    if (n_text > SPECRT__TRACE_MAX_TEXT)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: policy: expected at most %d bytes, found %llu",
                                SPECRT__TRACE_MAX_TEXT - 1, (unsigned long long)n_text - 1);
    if (n_ids > 0) memcpy(more, info->terminators, n_ids);
    if (n_text > 0) memcpy(more + n_ids, info->policy, n_text);
    memcpy(h, "SPECRTRC", 8);
    specrt__trace_store32(h + 8, SPECRT__TRACE_VERSION);
    specrt__trace_store32(h + 12, (uint32_t)(n_ids + n_text));
    specrt__trace_store32(h + 16, (uint32_t)info->n_vocab);
    specrt__trace_store32(h + 20, (uint32_t)info->d_target);
    specrt__trace_store32(h + 24, (uint32_t)info->d_draft);
    specrt__trace_store32(h + 28, (uint32_t)info->n_top);
    specrt__trace_store32(h + 32, (uint32_t)info->n_draft_top);
    specrt__trace_store32(h + 36, (uint32_t)info->n_tree_top);
    memcpy(h + 40, info->tokenizer_sha256, 32);
    specrt__trace_store32(h + 72, (uint32_t)info->tree.num_steps);
    specrt__trace_store32(h + 76, (uint32_t)info->tree.topk);
    specrt__trace_store32(h + 80, (uint32_t)info->tree.num_draft_tokens);
    specrt__trace_store32(h + 84, (uint32_t)info->draft);
    memcpy(h + 88, &info->temperature, 4);
    specrt__trace_store32(h + 92, (uint32_t)info->n_ids);
    specrt__trace_store32(h + 96, (uint32_t)info->n_terminators);
    specrt__trace_store64(h + 104, specrt_hash64(more, n_ids + n_text, 0));
    specrt__trace_store64(h + 120, specrt_hash64(h, 120, 0));
    return specrt__trace_put(w, h, SPECRT__TRACE_HEADER + n_ids + n_text, err);
}

SPECRT_API specrt_status specrt_trace_writer_create(
    const specrt_trace_info *info, int (*write)(void *user, const void *bytes, size_t n),
    void *user, const specrt_env *env, specrt_trace_writer **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(info);
    SPECRT__NEED(write);
    if (!specrt__trace_info_ok(info) || (info->n_terminators > 0 && !info->terminators))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "trace: expected widths and terminators within limits, found others");
    specrt_trace_writer *w = (specrt_trace_writer *)specrt__base_alloc(&own, sizeof *w);
    if (!w) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "trace: out of memory");
    memset(w, 0, sizeof *w);
    w->env = own;
    w->info = *info;
    w->write = write;
    w->user = user;
    specrt_status status = specrt__trace_put_header(w, err);
    if (status == SPECRT_STATUS_OK)
        *out = w;
    else
        specrt__base_free(&own, w);
    return status;
}

/* The bytes as stored, compressed where that makes them fewer. */
static const uint8_t *specrt__trace_pack(specrt_trace_writer *w, const specrt__trace_buffer *raw,
                                         size_t *n_stored) {
    *n_stored = raw->n;
#if !defined(SPECRT_NO_ZSTD)
    size_t bound = ZSTD_compressBound(raw->n);
    if (specrt__trace_reserve(&w->env, &w->stored, bound)) {
        size_t n = ZSTD_compress(w->stored.p, bound, raw->p, raw->n, 3);
        if (!ZSTD_isError(n) && n < raw->n) return *n_stored = n, w->stored.p;
    }
#else
    (void)w;
#endif
    return raw->p;
}

static specrt_status specrt__trace_put_block(specrt_trace_writer *w, uint32_t magic,
                                             specrt__trace_buffer *raw, specrt_error *err) {
    uint8_t h[SPECRT__TRACE_BLOCK_HEADER];
    size_t n_stored;
    if (raw->n == 0) return SPECRT_STATUS_OK;
    const uint8_t *stored = specrt__trace_pack(w, raw, &n_stored);
    specrt__trace_store32(h, magic);
    specrt__trace_store32(h + 4, w->n_records);
    specrt__trace_store64(h + 8, raw->n);
    specrt__trace_store64(h + 16, n_stored);
    specrt__trace_store64(h + 24, specrt_hash64(stored, n_stored, specrt_hash64(h, 24, 0)));
    raw->n = 0;
    SPECRT__TRY(specrt__trace_put(w, h, sizeof h, err));
    return specrt__trace_put(w, stored, n_stored, err);
}

/* Hidden states first: a file that is cut between the two has neither. */
static specrt_status specrt__trace_flush(specrt_trace_writer *w, specrt_error *err) {
    SPECRT__TRY(specrt__trace_put_block(w, SPECRT__TRACE_MAGIC_HIDDEN, &w->hidden, err));
    SPECRT__TRY(specrt__trace_put_block(w, SPECRT__TRACE_MAGIC_BLOCK, &w->records, err));
    w->n_records = 0;
    return SPECRT_STATUS_OK;
}

/* The arrays of a record that it has, as a bit each, and their bytes: hidden states beside the others. */
static uint32_t specrt__trace_measure(const specrt__trace_field *fields, uint64_t *n,
                                      uint64_t *n_hidden) {
    uint32_t has = 0;
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++) {
        if (!specrt__trace_get(&fields[i]) || !fields[i].n_bytes) continue;
        has |= 1u << i;
        *(SPECRT__TRACE_HIDDEN >> i & 1 ? n_hidden : n) += (fields[i].n_bytes + 3) & ~(uint64_t)3;
    }
    return *n_hidden ? has | SPECRT__TRACE_APART : has;
}

static void specrt__trace_append(specrt__trace_buffer *b, const void *bytes, uint64_t n) {
    memcpy(b->p + b->n, bytes, (size_t)n);
    memset(b->p + b->n + n, 0, (size_t)(-n & 3));
    b->n += (size_t)((n + 3) & ~(uint64_t)3);
}

/* A record: kind, n, n_nodes, which arrays, the domain of a sequence, the arrays, each up to a multiple
 * of 4 bytes. */
SPECRT_API specrt_status specrt_trace_write(specrt_trace_writer *writer,
                                            const specrt_trace_record *record, specrt_error *err) {
    specrt__trace_field fields[SPECRT__TRACE_FIELDS];
    SPECRT__NEED(writer);
    SPECRT__NEED(record);
    specrt_trace_record r = *record;
    bool begins = r.kind == SPECRT_TRACE_SEQUENCE;
    uint64_t n = 16 + (begins ? sizeof r.domain : 0), n_hidden = 0;
    const char *wrong =
        specrt__trace_counts_ok(&r) ? specrt__trace_wrong(&writer->info, &r) : "counts";
    if (wrong)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: record: %s: expected values within limits, found others",
                                wrong);
    specrt__trace_layout(&writer->info, &r, fields);
    uint32_t has = specrt__trace_measure(fields, &n, &n_hidden);
    if (n > SPECRT__TRACE_MAX_BLOCK - writer->records.n ||
        n_hidden > SPECRT__TRACE_MAX_BLOCK - writer->hidden.n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: record: expected less than a block, found more");
    if (!specrt__trace_reserve(&writer->env, &writer->records, writer->records.n + (size_t)n) ||
        !specrt__trace_reserve(&writer->env, &writer->hidden, writer->hidden.n + (size_t)n_hidden))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "trace: out of memory");
    const uint32_t head[4] = {(uint32_t)r.kind, (uint32_t)r.n, (uint32_t)r.n_nodes, has};
    r.domain[sizeof r.domain - 1] = '\0';
    specrt__trace_append(&writer->records, head, sizeof head);
    if (begins) specrt__trace_append(&writer->records, r.domain, sizeof r.domain);
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++)
        if (has >> i & 1)
            specrt__trace_append(SPECRT__TRACE_HIDDEN >> i & 1 ? &writer->hidden : &writer->records,
                                 specrt__trace_get(&fields[i]), fields[i].n_bytes);
    writer->n_records++;
    return writer->records.n + writer->hidden.n >= SPECRT__TRACE_FLUSH
               ? specrt__trace_flush(writer, err)
               : SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_trace_writer_close(specrt_trace_writer *w, specrt_error *err) {
    if (!w) return SPECRT_STATUS_OK;
    specrt_status status = specrt__trace_flush(w, err);
    specrt_env env = w->env;
    specrt__trace_release(&env, &w->records);
    specrt__trace_release(&env, &w->hidden);
    specrt__trace_release(&env, &w->stored);
    specrt__base_free(&env, w);
    return status;
}

// >>reader : src/trace/reader.c
/* reader.c : owns the reading of traces. Refuses what is cut or damaged. */

/* --- reading --- */

struct specrt_trace_reader {
    specrt_env env;
    specrt__os_map map;
    char name[256]; /* path, for messages */
    const uint8_t *bytes;
    size_t n_bytes, at; /* at: the next block */
    specrt_trace_info info;
    specrt__trace_buffer records, hidden; /* of the block at hand */
    uint32_t n_left;                      /* records of it */
    int64_t n_blocks;
    bool cut, adler, skips; /* adler: checksums; skips: hidden states */
    int32_t terminators[SPECRT_MAX_TERMINATORS];
    char policy[SPECRT__TRACE_MAX_TEXT];
};

static specrt_status specrt__trace_damaged(const specrt_trace_reader *r, const char *what,
                                           specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_TRACE_DAMAGED, "%s: block %lld: %s", r->name,
                            (long long)r->n_blocks, what);
}

/* zlib's Adler-32, for writers in languages whose libraries have that and no XXH64. */
static uint32_t specrt__trace_adler(const uint8_t *p, size_t n, uint32_t sum) {
    enum { MODULUS = 65521, BLOCK = 5552 }; /* so many bytes cannot overflow b */
    uint32_t a = sum & 0xffff, b = sum >> 16;
    for (size_t left; n > 0; a %= MODULUS, b %= MODULUS) {
        left = n < (size_t)BLOCK ? n : (size_t)BLOCK;
        n -= left;
        while (left-- > 0) a += *p++, b += a;
    }
    return b << 16 | a;
}

/* The checksum of bytes [n] that follow others; before: theirs, or what each kind begins with. */
static uint64_t specrt__trace_sum(const specrt_trace_reader *r, const uint8_t *p, size_t n,
                                  uint64_t before) {
    return r->adler ? specrt__trace_adler(p, n, (uint32_t)before) : specrt_hash64(p, n, before);
}

static uint64_t specrt__trace_sum_of(const specrt_trace_reader *r, const uint8_t *p, size_t n) {
    return specrt__trace_sum(r, p, n, r->adler ? 1 : 0);
}

/* What version 2 added: of the recording, and behind the header terminators and the policy's text.
 * @return whether it is all there. */
static bool specrt__trace_read_more(specrt_trace_reader *r, const uint8_t *h, size_t n) {
    const uint8_t *more = h + SPECRT__TRACE_HEADER;
    specrt_trace_info *info = &r->info;
    info->n_tree_top = (int32_t)specrt__base_load32(h + 36);
    info->tree.num_steps = (int32_t)specrt__base_load32(h + 72);
    info->tree.topk = (int32_t)specrt__base_load32(h + 76);
    info->tree.num_draft_tokens = (int32_t)specrt__base_load32(h + 80);
    info->draft = (int32_t)specrt__base_load32(h + 84);
    memcpy(&info->temperature, h + 88, 4);
    info->n_ids = (int32_t)specrt__base_load32(h + 92);
    info->n_terminators = (int32_t)specrt__base_load32(h + 96);
    info->terminators = r->terminators;
    if (info->n_terminators < 0 || info->n_terminators > SPECRT_MAX_TERMINATORS) return false;
    size_t n_ids = 4 * (size_t)info->n_terminators;
    if (n > r->n_bytes - SPECRT__TRACE_HEADER ||
        n - n_ids > sizeof r->policy || /* also below n_ids */
        specrt__base_load64(h + 104) != specrt__trace_sum_of(r, more, n))
        return false;
    memcpy(r->terminators, more, n_ids);
    memcpy(r->policy, more + n_ids, n - n_ids);
    if (n > n_ids) info->policy = r->policy;
    return n == n_ids || r->policy[n - n_ids - 1] == '\0';
}

static specrt_status specrt__trace_read_header(specrt_trace_reader *r, specrt_error *err) {
    const uint8_t *h = r->bytes;
    specrt_trace_info *info = &r->info;
    if (r->n_bytes < SPECRT__TRACE_HEADER || memcmp(h, "SPECRTRC", 8) != 0)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_MAGIC,
                                "%s: not a specrt trace; specrt-eval record writes one", r->name);
    uint32_t version = specrt__base_load32(h + 8), n_more = 0;
    if (version < 1 || version > SPECRT__TRACE_VERSION)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_VERSION,
                                "%s: trace version: expected 1 to %d, found %u", r->name,
                                SPECRT__TRACE_VERSION, (unsigned)version);
    info->n_vocab = (int32_t)specrt__base_load32(h + 16);
    info->d_target = (int32_t)specrt__base_load32(h + 20);
    info->d_draft = (int32_t)specrt__base_load32(h + 24);
    info->n_top = (int32_t)specrt__base_load32(h + 28);
    info->n_draft_top = (int32_t)specrt__base_load32(h + 32);
    memcpy(info->tokenizer_sha256, h + 40, 32);
    r->adler = version > 2 && specrt__base_load32(h + 100) == 1;
    bool good = specrt__base_load64(h + 120) == specrt__trace_sum_of(r, h, 120);
    if (version > 2) good &= specrt__base_load32(h + 100) <= 1;
    if (good && version > 1) n_more = specrt__base_load32(h + 12);
    if (good && version > 1) good = specrt__trace_read_more(r, h, n_more);
    if (!good || !specrt__trace_info_ok(info))
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_DAMAGED,
            "%s: header: expected a matching checksum and sizes, found others; record "
            "the trace again",
            r->name);
    r->at = SPECRT__TRACE_HEADER + n_more;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__trace_start(specrt__os_map map, const void *bytes, size_t n_bytes,
                                         const char *name, const specrt_env *env,
                                         specrt_trace_reader **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_trace_reader *r = (specrt_trace_reader *)specrt__base_alloc(&own, sizeof *r);
    *out = NULL;
    if (!r) {
        specrt__os_map_close(&map);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", name);
    }
    memset(r, 0, sizeof *r);
    r->env = own;
    r->map = map;
    snprintf(r->name, sizeof r->name, "%s", name);
    r->bytes = (const uint8_t *)bytes;
    r->n_bytes = n_bytes;
    specrt_status status = specrt__trace_read_header(r, err);
    if (status == SPECRT_STATUS_OK)
        *out = r;
    else
        specrt_trace_close(r);
    return status;
}

SPECRT_API specrt_status specrt_trace_open(const char *path, const specrt_env *env,
                                           specrt_trace_reader **out, specrt_error *err) {
    specrt__os_map map;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(path);
    SPECRT__TRY(specrt__os_map_open(path, &map, err));
    return specrt__trace_start(map, map.bytes, map.n, path, env, out, err);
}

SPECRT_API specrt_status specrt_trace_open_memory(const void *bytes, size_t n_bytes,
                                                  const char *name, const specrt_env *env,
                                                  specrt_trace_reader **out, specrt_error *err) {
    specrt__os_map none = {NULL, 0};
    SPECRT__NEED(out);
    *out = NULL;
    if (n_bytes > 0) SPECRT__NEED(bytes); /* an empty file has none */
    SPECRT__NEED(name);
    return specrt__trace_start(none, bytes, n_bytes, name, env, out, err);
}

SPECRT_API void specrt_trace_close(specrt_trace_reader *r) {
    if (!r) return;
    specrt_env env = r->env;
    specrt__os_map_close(&r->map);
    specrt__trace_release(&env, &r->records);
    specrt__trace_release(&env, &r->hidden);
    specrt__base_free(&env, r);
}

SPECRT_API const specrt_trace_info *specrt_trace_get_info(const specrt_trace_reader *reader) {
    return reader ? &reader->info : NULL;
}
SPECRT_API int specrt_trace_is_cut(const specrt_trace_reader *reader) {
    return reader && reader->cut;
}
SPECRT_API void specrt_trace_skip_hidden(specrt_trace_reader *reader) {
    if (reader) reader->skips = true;
}

SPECRT_API specrt_status specrt_trace_check(const specrt_trace_reader *reader,
                                            const uint8_t sha256[32], int32_t d_target,
                                            int32_t d_draft, specrt_error *err) {
    static const uint8_t unknown[32] = {0};
    SPECRT__NEED(reader);
    const specrt_trace_info *info = &reader->info;
    if (sha256 && memcmp(info->tokenizer_sha256, unknown, 32) != 0 &&
        memcmp(info->tokenizer_sha256, sha256, 32) != 0)
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_MISMATCH,
            "%s: tokenizer: expected this tokenizer's digest, found another; record "
            "the trace again",
            reader->name);
    if ((d_target == 0 || d_target == info->d_target) && (d_draft == 0 || d_draft == info->d_draft))
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_TRACE_MISMATCH,
        "%s: hidden states: expected widths %d (target) and %d (drafter), found "
        "%d and %d",
        reader->name, (int)d_target, (int)d_draft, (int)info->d_target, (int)info->d_draft);
}

static bool specrt__trace_unpack(const uint8_t *stored, size_t n_stored, uint8_t *raw,
                                 size_t n_raw) {
    if (n_stored == n_raw) return memcpy(raw, stored, n_raw), true;
#if defined(SPECRT_NO_ZSTD)
    return false;
#else
    return ZSTD_decompress(raw, n_raw, stored, n_stored) == n_raw;
#endif
}

typedef struct specrt__trace_block {
    uint32_t magic, n_records; /* n_records = 0: the file ends here, or was cut */
    uint64_t n_raw, n_stored, checksum;
    const uint8_t *header;
} specrt__trace_block;

/* The block that begins at an offset, unless it is not all there. */
static specrt_status specrt__trace_find(specrt_trace_reader *r, size_t at, specrt__trace_block *out,
                                        specrt_error *err) {
    const uint8_t *h = r->bytes + at;
    size_t left = r->n_bytes - at;
    memset(out, 0, sizeof *out);
    r->cut = left > 0 && left < SPECRT__TRACE_BLOCK_HEADER;
    if (left < SPECRT__TRACE_BLOCK_HEADER) return SPECRT_STATUS_OK;
    specrt__trace_block b = {specrt__base_load32(h),      specrt__base_load32(h + 4),
                             specrt__base_load64(h + 8),  specrt__base_load64(h + 16),
                             specrt__base_load64(h + 24), h};
    if ((b.magic != SPECRT__TRACE_MAGIC_BLOCK && b.magic != SPECRT__TRACE_MAGIC_HIDDEN) ||
        b.n_raw > SPECRT__TRACE_MAX_BLOCK || b.n_stored > b.n_raw || b.n_raw < 1 ||
        b.n_records == 0)
        return specrt__trace_damaged(r, "header: expected sizes within limits, found others", err);
    r->cut = b.n_stored > left - SPECRT__TRACE_BLOCK_HEADER;
    if (!r->cut) *out = b;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__trace_load(specrt_trace_reader *r, const specrt__trace_block *b,
                                        specrt__trace_buffer *out, specrt_error *err) {
    const uint8_t *stored = b->header + SPECRT__TRACE_BLOCK_HEADER;
    size_t n = (size_t)b->n_stored;
    if (specrt__trace_sum(r, stored, n, specrt__trace_sum_of(r, b->header, 24)) != b->checksum)
        return specrt__trace_damaged(r, "checksum: expected the stored one, found another", err);
    out->n = out->at = 0;
    if (!specrt__trace_reserve(&r->env, out, (size_t)b->n_raw))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", r->name);
    if (!specrt__trace_unpack(stored, n, out->p, (size_t)b->n_raw))
        return specrt__trace_damaged(
            r, "data: expected a zstd frame of the stated size, found another", err);
    out->n = (size_t)b->n_raw;
    return SPECRT_STATUS_OK;
}

/* The next block, with the hidden states before it; none when the file ends or was cut. */
static specrt_status specrt__trace_next_block(specrt_trace_reader *r, specrt_error *err) {
    specrt__trace_block hidden = {0, 0, 0, 0, 0, NULL}, block;
    size_t at = r->at;
    r->n_blocks++;
    r->hidden.n = r->hidden.at = 0;
    SPECRT__TRY(specrt__trace_find(r, at, &block, err));
    if (block.magic == SPECRT__TRACE_MAGIC_HIDDEN) {
        hidden = block;
        at += SPECRT__TRACE_BLOCK_HEADER + (size_t)hidden.n_stored;
        SPECRT__TRY(specrt__trace_find(r, at, &block, err));
        r->cut |= block.n_records == 0;
        if (block.magic == SPECRT__TRACE_MAGIC_HIDDEN)
            return specrt__trace_damaged(
                r, "expected records after hidden states, found more hidden states", err);
    }
    if (block.n_records == 0) return SPECRT_STATUS_OK;
    if (hidden.n_records && !r->skips) SPECRT__TRY(specrt__trace_load(r, &hidden, &r->hidden, err));
    SPECRT__TRY(specrt__trace_load(r, &block, &r->records, err));
    r->n_left = block.n_records;
    r->at = at + SPECRT__TRACE_BLOCK_HEADER + (size_t)block.n_stored;
    return SPECRT_STATUS_OK;
}

/* An array of a record: from the block, or from the hidden states before it. @return false: not all there. */
static bool specrt__trace_take_field(specrt_trace_reader *r, const specrt__trace_field *f,
                                     bool hidden, bool apart) {
    specrt__trace_buffer *from = apart ? &r->hidden : &r->records;
    uint64_t n = (f->n_bytes + 3) & ~(uint64_t)3;
    if (apart && r->skips) return true;
    if (n == 0 || n > from->n - from->at) return false;
    if (!(hidden && r->skips)) specrt__trace_set(f, from->p + from->at);
    from->at += (size_t)n;
    return true;
}

/* Points the record's arrays into the block. */
static const char *specrt__trace_take(specrt_trace_reader *r, specrt_trace_record *out) {
    specrt__trace_field fields[SPECRT__TRACE_FIELDS];
    specrt__trace_buffer *b = &r->records;
    if (b->n - b->at < 16) return "ends inside a record";
    const uint8_t *p = b->p + b->at;
    out->kind = (int32_t)specrt__base_load32(p);
    out->n = (int32_t)specrt__base_load32(p + 4);
    out->n_nodes = (int32_t)specrt__base_load32(p + 8);
    uint32_t has = specrt__base_load32(p + 12);
    b->at += 16;
    if (!specrt__trace_counts_ok(out)) return "a record's counts are out of range";
    if (out->kind == SPECRT_TRACE_SEQUENCE) {
        if (b->n - b->at < sizeof out->domain) return "ends inside a record";
        memcpy(out->domain, b->p + b->at, sizeof out->domain - 1);
        b->at += sizeof out->domain;
    }
    specrt__trace_layout(&r->info, out, fields);
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++) {
        bool hidden = SPECRT__TRACE_HIDDEN >> i & 1;
        if (!(has >> i & 1)) continue;
        if (!specrt__trace_take_field(r, &fields[i], hidden, hidden && (has & SPECRT__TRACE_APART)))
            return "ends inside a record";
    }
    return specrt__trace_wrong(&r->info, out) ? "a record's ids are out of range" : NULL;
}

SPECRT_API specrt_status specrt_trace_read(specrt_trace_reader *reader, specrt_trace_record *record,
                                           specrt_error *err) {
    SPECRT__NEED(record);
    memset(record, 0, sizeof *record);
    SPECRT__NEED(reader);
    if (reader->n_left == 0) SPECRT__TRY(specrt__trace_next_block(reader, err));
    if (reader->n_left == 0) { /* who reads many traces need not keep a block of each */
        specrt__trace_release(&reader->env, &reader->records);
        specrt__trace_release(&reader->env, &reader->hidden);
        return SPECRT_STATUS_OK;
    }
    reader->n_left--;
    const char *wrong = specrt__trace_take(reader, record);
    if (!wrong) return SPECRT_STATUS_OK;
    memset(record, 0, sizeof *record);
    reader->n_left = 0;
    return specrt__trace_damaged(reader, wrong, err);
}

#endif

#endif /* SPECRT_IMPLEMENTATION */
