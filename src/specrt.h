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
