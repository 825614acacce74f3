/* specrt.h : vocabulary-pruned speculative decoding, a single-header runtime (MIT).
 *
 * WHAT. In speculative decoding a drafter proposes tokens and the target verifies them with its full
 * vocabulary. The drafter may therefore score only a few thousand likely rows of its LM head and the
 * output stays exactly the target's. specrt answers, at every draft step, "which rows, and what are
 * their logits". This file opens a bundle (.specb) of offline artifacts, binds your draft head to it
 * and scores the active vocabulary. docs/METHODS.md says which published method is which source.
 *
 * USE. In exactly one source file:
 *
 *     #define SPECRT_IMPLEMENTATION
 *     #include "specrt.h"          // link with -lzstd -lm
 *
 *     specrt_error err;
 *     specrt_bundle *bundle;
 *     specrt_head *head;
 *     specrt_static *list;
 *     if (specrt_bundle_open("llama3.specb", NULL, &bundle, &err)) { puts(err.msg); exit(1); }
 *     specrt_head_desc hd = {.rows = weights, .dtype = SPECRT_DTYPE_F16,
 *                            .n_rows = 128256, .n_cols = 4096};
 *     specrt_head_bind(bundle, &hd, &head, &err);
 *     specrt_static_create(bundle, head, 32768, &list, &err);   // 0: the calibrated size
 *     const specrt_active *active = specrt_static_active(list);
 *     specrt_active_logits(active, hidden, 1, logits);          // hidden f32 [1, 4096]
 *     specrt_active_topk(active, logits, 1, 10, ids, logprobs); // target ids, best first
 *
 * OPTIONS, before the include of the implementation:
 *     SPECRT_STATIC         every function static to the including file
 *     SPECRT_NO_ZSTD        no libzstd: bundles must be stored raw (specrt-bundle unpack)
 *     SPECRT_NO_SIMD        scalar code only
 *
 * MEMORY.  "borrowed": yours, must outlive the object. "owned": the object frees it. "scratch": yours,
 *          contents meaningless after the call. Everything is allocated in open/bind/create through
 *          specrt_desc.alloc; step functions never allocate. Closing NULL is a no-op.
 * THREADS. Bundles, heads and static lists are immutable once made: share them freely. No globals, no
 *          threads are started.
 * ERRORS.  Fallible calls return specrt_status (0 is OK) and leave outputs zeroed on failure. Cold
 *          calls take a specrt_error* (may be NULL) that names file, section, expected and found.
 * DOES NOT: tokenise text, run your model, write bundles, print, exit, abort.
 */
#ifndef SPECRT_H
#define SPECRT_H

/* Contents: api | base os bundle rows head active ranks */

// >>api (uses:)
// Everything public. All multi-byte on-disk values are little-endian; so must the host be.

#include <stddef.h>
#include <stdint.h>

#define SPECRT_VERSION_MAJOR 0
#define SPECRT_VERSION_MINOR 1
#define SPECRT_VERSION_PATCH 0
#define SPECRT_VERSION_STRING "0.1.0"

#ifdef SPECRT_STATIC
    #define SPECRT_API static
#else
    #define SPECRT_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ------------------------------------------------------------------------ */

/* One list makes the enum and specrt_status_name(). Numbers are blocked by section for additions. */
#define SPECRT_STATUS_LIST(X)                                                                      \
    X(OK, 0, "ok")                                                                                 \
    X(NO_MEMORY, 1, "out of memory")                                                               \
    X(IO, 2, "input/output error")                                                                 \
    X(BAD_ARG, 3, "bad argument")                                                                  \
    X(UNSUPPORTED, 4, "unsupported")                                                               \
    X(BAD_INPUT, 5, "invalid input")                                                               \
    X(BUNDLE_MAGIC, 20, "not a specrt bundle")                                                     \
    X(BUNDLE_VERSION, 21, "unknown bundle version")                                                \
    X(BUNDLE_TRUNCATED, 22, "bundle is truncated")                                                 \
    X(BUNDLE_TABLE, 23, "bundle section table is invalid")                                         \
    X(BUNDLE_CHECKSUM, 24, "bundle checksum mismatch")                                             \
    X(BUNDLE_ZSTD, 25, "bundle section does not decompress")                                       \
    X(BUNDLE_LIMIT, 26, "bundle section exceeds a size limit")                                     \
    X(BUNDLE_SECTION_MISSING, 27, "bundle lacks a section")                                        \
    X(BUNDLE_MISMATCH, 28, "bundle belongs to something else")                                     \
    X(BUNDLE_CONTENT, 29, "bundle section content is invalid")

typedef enum specrt_status {
#define SPECRT_STATUS_ENUM(name, number, text) SPECRT_STATUS_##name = number,
    SPECRT_STATUS_LIST(SPECRT_STATUS_ENUM)
#undef SPECRT_STATUS_ENUM
    SPECRT_STATUS_FORCE_INT = 0x7fffffff
} specrt_status;

/* One line for a person: file, section or field, expected, found, fix. Caller-owned, thread-safe. */
typedef struct specrt_error {
    specrt_status status;
    char msg[512];
} specrt_error;

/* specrt_status_name() : static text of a status, never NULL. */
SPECRT_API const char *specrt_status_name(specrt_status status);

/* specrt_error_set() : fill *err (may be NULL) with a printf-style line, cut at its capacity.
 * @return status, so that callers write `return specrt_error_set(err, ...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
SPECRT_API specrt_status
specrt_error_set(specrt_error *err, specrt_status status, const char *format, ...);

/* ---- environment ------------------------------------------------------------------------------ */

/* Zero-initialise it; NULL in place of a desc means all defaults. */
typedef struct specrt_desc {
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc. Must align to 16 bytes. */
    void (*free)(void *user, void *ptr);      /* NULL: free */
    void *user;                               /* passed to alloc, free and log */
    void (*log)(void *user, int level, const char *section, const char *msg); /* NULL: silent */
    /* Runs task(arg, i) for i in [0, n), in any order, returning when all are done. NULL: inline. */
    void (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
} specrt_desc;

/* ---- hashes: of file contents and of vocabularies ---------------------------------------------- */

/* specrt_hash64() : XXH64 of a byte range (the checksum of every bundle section). */
SPECRT_API uint64_t specrt_hash64(const void *data, size_t bytes, uint64_t seed);

/* Streaming SHA-256 (FIPS 180-4), for tokenizer fingerprints. */
typedef struct specrt_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64];
} specrt_sha256;
SPECRT_API void specrt_sha256_init(specrt_sha256 *sha);
SPECRT_API void specrt_sha256_update(specrt_sha256 *sha, const void *data, size_t bytes);
SPECRT_API void specrt_sha256_final(specrt_sha256 *sha, uint8_t digest[32]);

/* specrt_tokenizer_hash_token() : feed one *normal* token (not specials, unknown or padding) in
 * ascending id order; the digest is the same for every file form of one tokenizer.
 *   bytes : the raw bytes the token stands for (byte-level alphabet and U+2581 undone), u8 [n] */
SPECRT_API void specrt_tokenizer_hash_token(specrt_sha256 *sha, int32_t id, const void *bytes,
                                            size_t n);

/* ---- rows: the formats a weight row can be stored in -------------------------------------------- */

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

/* specrt_dtype_name() : "q6_k"; NULL if the number is not in the list. */
SPECRT_API const char *specrt_dtype_name(specrt_dtype dtype);

/* specrt_row_bytes() : bytes of a row of n_cols elements; 0 if the type is unknown, n_cols is not a
 * positive multiple of its block, or the size overflows. */
SPECRT_API size_t specrt_row_bytes(specrt_dtype dtype, int64_t n_cols);

/* specrt_row_decode() : one row of any float format to f32 [n_cols].
 *   row : specrt_row_bytes() bytes, borrowed, any alignment
 * @return OK; UNSUPPORTED for integer and unknown types; BAD_ARG when n_cols does not fit blocks. */
SPECRT_API specrt_status specrt_row_decode(specrt_dtype dtype, const void *row, int64_t n_cols,
                                           float *out);

/* ---- bundle: the file ----------------------------------------------------------------------------
 * docs/FORMAT.md describes every byte; these structs are the single definition of the layout. */

#define SPECRT_BUNDLE_MAGIC         "\x89SPECB\r\n"
#define SPECRT_BUNDLE_VERSION_MAJOR 1
#define SPECRT_BUNDLE_VERSION_MINOR 0
#define SPECRT_BUNDLE_ALIGN         64
#define SPECRT_BUNDLE_MAX_SECTIONS  256

typedef struct specrt_bundle_header { /* 64 bytes at offset 0 */
    char magic[8];
    uint32_t version_major, version_minor;
    uint32_t n_sections;
    uint32_t flags;           /* 0 */
    uint64_t table_offset;    /* 64 */
    uint64_t file_bytes;      /* whole file */
    uint64_t table_checksum;  /* XXH64 of the section table */
    uint64_t reserved;        /* 0 */
    uint64_t header_checksum; /* XXH64 of the 56 bytes before it */
} specrt_bundle_header;

#define SPECRT_SECTION_ZSTD              1u  /* stored as one zstd frame, else raw */
#define SPECRT_SECTION_OPTIONAL          2u  /* readers that do not know the tag may skip it */
#define SPECRT_SECTION_DEPENDS_TOKENIZER 16u /* valid only for the fingerprint's tokenizer */
#define SPECRT_SECTION_DEPENDS_HEAD      32u
#define SPECRT_SECTION_DEPENDS_DRAFTER   64u

typedef struct specrt_bundle_section { /* 64 bytes each, sorted by tag, after the header */
    char tag[8];                       /* "ranks", NUL-padded */
    uint32_t version;
    uint32_t flags;
    uint64_t offset; /* multiple of SPECRT_BUNDLE_ALIGN */
    uint64_t stored_bytes;
    uint64_t raw_bytes;
    uint64_t checksum; /* XXH64 of the stored bytes */
    uint64_t reserved[2];
} specrt_bundle_section;

/* Section "ident": what the bundle was built for. Names are information, digests are identity. */
#define SPECRT_SKETCH_ROWS        64 /* sampled head rows */
#define SPECRT_SKETCH_PROJECTIONS 4  /* random +-1 projections of each */
typedef struct specrt_ident {
    uint8_t tokenizer_sha256[32]; /* specrt_tokenizer_hash_token() over normal tokens; 0: unknown */
    int32_t n_vocab;              /* ids the tokenizer can produce, specials included */
    int32_t n_normal;             /* tokens under the digest */
    int32_t head_rows, head_cols; /* 0, 0: no head recorded */
    float head_sketch[SPECRT_SKETCH_ROWS][SPECRT_SKETCH_PROJECTIONS];
    char tokenizer_name[64], head_name[64]; /* NUL-terminated UTF-8 */
} specrt_ident;

/* Section "ranks" (FR-Spec, VocabTrim): a permutation of the vocabulary whose every prefix is a
 * draft vocabulary. Then come: int32 ids[n_ranked], forced ids first (terminators, then other
 * specials, each ascending), then by count descending, ties by lower id, then reserved placeholders;
 * uint64 counts[n_ranked], in the same order. */
typedef struct specrt_ranks_header {
    int32_t n_ranked;      /* entries */
    int32_t n_forced;      /* leading entries that are members of every list */
    int32_t n_terminators; /* leading forced entries that end a generation */
    int32_t n_valid;       /* entries that are not reserved placeholders */
    int32_t n_default;     /* the calibrated size */
    int32_t reserved;
    uint64_t n_tokens; /* counted tokens; n_terminator tokens excluded */
} specrt_ranks_header;

typedef struct specrt_bundle specrt_bundle;

/* specrt_bundle_open() : map a bundle file, check header, table and checksums, decompress zstd
 * sections once (owned); raw sections are views of the mapping.
 *   desc : may be NULL; copied
 * @return OK, IO, NO_MEMORY, BUNDLE_*. */
SPECRT_API specrt_status specrt_bundle_open(const char *path, const specrt_desc *desc,
                                            specrt_bundle **out, specrt_error *err);

/* specrt_bundle_open_memory() : the same over bytes u8 [n_bytes], borrowed, 8-byte aligned;
 * `name` stands for the path in messages. */
SPECRT_API specrt_status specrt_bundle_open_memory(const void *bytes, size_t n_bytes,
                                                   const char *name, const specrt_desc *desc,
                                                   specrt_bundle **out, specrt_error *err);
SPECRT_API void specrt_bundle_close(specrt_bundle *bundle);

/* specrt_bundle_sections() : the table as stored, borrowed from the bundle. */
SPECRT_API const specrt_bundle_section *specrt_bundle_sections(const specrt_bundle *bundle,
                                                               int32_t *n_sections);

/* specrt_bundle_data() : the decompressed bytes of a section, borrowed from the bundle, aligned to
 * 16; NULL (and *n_bytes = 0) when the bundle lacks it. */
SPECRT_API const void *specrt_bundle_data(const specrt_bundle *bundle, const char *tag,
                                          size_t *n_bytes);

/* specrt_bundle_ident() : what it was built for, borrowed; NULL when the bundle records nothing. */
SPECRT_API const specrt_ident *specrt_bundle_ident(const specrt_bundle *bundle);

/* specrt_bundle_check_tokenizer() : refuse a bundle of another tokenizer.
 *   sha256 : the application's digest (specrt_tokenizer_hash_token)
 * @return OK, also when the bundle records none; BUNDLE_MISMATCH naming both sides. */
SPECRT_API specrt_status specrt_bundle_check_tokenizer(const specrt_bundle *bundle,
                                                       const uint8_t sha256[32],
                                                       specrt_error *err);

/* specrt_ranks : view of section "ranks", borrowed from the bundle. */
typedef struct specrt_ranks {
    const specrt_ranks_header *header;
    const int32_t *ids;     /* [n_ranked] by rank */
    const uint64_t *counts; /* [n_ranked] by rank */
} specrt_ranks;

/* specrt_bundle_ranks() : validated at open (a permutation in range).
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it. */
SPECRT_API specrt_status specrt_bundle_ranks(const specrt_bundle *bundle, specrt_ranks *out,
                                             specrt_error *err);

/* ---- head: the matrix the drafter's logits come from -------------------------------------------- */

typedef struct specrt_head specrt_head;

typedef struct specrt_head_desc {
    const void *rows;   /* [n_rows, n_cols] of dtype, borrowed for the life of the head */
    specrt_dtype dtype; /* computed as stored for f32, f16, bf16, q8_0; others decoded to f16 when packed */
    int64_t n_rows;     /* at least the tokenizer's vocabulary; more is padding, never proposed */
    int64_t n_cols;     /* d_draft */
    size_t row_stride;  /* bytes between rows; 0: specrt_row_bytes(dtype, n_cols) */
    const float *bias;  /* f32 [n_rows], borrowed; NULL: none */
} specrt_head_desc;

/* specrt_head_sketch() : the comparable digest of a head: SPECRT_SKETCH_ROWS rows spread over
 * [0, n_rows), each projected on SPECRT_SKETCH_PROJECTIONS fixed random +-1 vectors and divided by
 * sqrt(n_cols). Two quantisations of one head agree within a tolerance, different heads do not.
 *   out : f32 [SPECRT_SKETCH_ROWS, SPECRT_SKETCH_PROJECTIONS] */
SPECRT_API specrt_status specrt_head_sketch(const specrt_head_desc *desc,
                                            float out[SPECRT_SKETCH_ROWS][SPECRT_SKETCH_PROJECTIONS],
                                            specrt_error *err);

/* specrt_head_bind() : check the head against the bundle (dimensions, sketch where recorded).
 *   bundle : borrowed, may be NULL for policies that need none
 * @return OK, BAD_ARG, NO_MEMORY, UNSUPPORTED dtype, BUNDLE_MISMATCH naming both sides. */
SPECRT_API specrt_status specrt_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc,
                                          specrt_head **out, specrt_error *err);
SPECRT_API void specrt_head_close(specrt_head *head);

/* ---- active vocabulary: contiguous segments of rows --------------------------------------------- */

typedef struct specrt_segment {
    const void *rows;   /* [n_rows, n_cols] of dtype, contiguous */
    const int32_t *ids; /* [n_rows] target id of each row */
    const float *bias;  /* [n_rows], or NULL */
    specrt_dtype dtype; /* f32, f16, bf16 or q8_0 */
    int32_t n_rows;
} specrt_segment;

/* The tokens the drafter may propose now. Column i of its logits is the i-th row, segments in order.
 * Each token is scored once. */
typedef struct specrt_active {
    const specrt_segment *segments; /* [n_segments] */
    int32_t n_segments;
    int32_t n_rows; /* sum over segments */
    int64_t n_cols;
} specrt_active;

/* specrt_active_logits() : hidden f32 [n, n_cols] -> logits f32 [n, active->n_rows].
 * A row of the result is bitwise the same whatever n is. Never allocates. */
SPECRT_API specrt_status specrt_active_logits(const specrt_active *active, const float *hidden,
                                              int32_t n, float *logits);

/* specrt_active_topk() : the k best target ids of each row with log-probabilities under the softmax
 * over the active vocabulary only. Ties go to the lower target id.
 *   logits : f32 [n, active->n_rows], unchanged
 *   ids, logprobs : i32, f32 [n, k], best first; 1 <= k <= active->n_rows, k <= 256
 * @return OK or BAD_ARG. Never allocates. NaN logits rank last. */
SPECRT_API specrt_status specrt_active_topk(const specrt_active *active, const float *logits,
                                            int32_t n, int32_t k, int32_t *ids, float *logprobs);

/* ---- static source: FR-Spec, VocabTrim ---------------------------------------------------------- */

typedef struct specrt_static specrt_static;

/* specrt_static_create() : pack the first `size` ranks of the bundle once; share by all sessions.
 *   size : 0 takes the calibrated size; at least the forced ids, at most n_valid
 * @return OK, BAD_ARG naming the limits, NO_MEMORY, BUNDLE_SECTION_MISSING. */
SPECRT_API specrt_status specrt_static_create(const specrt_bundle *bundle, const specrt_head *head,
                                              int32_t size, specrt_static **out, specrt_error *err);
SPECRT_API void specrt_static_close(specrt_static *list);

/* specrt_static_active() : its active vocabulary, borrowed; the same at every step, free to ask. */
SPECRT_API const specrt_active *specrt_static_active(const specrt_static *list);

#ifdef __cplusplus
}
#endif

#endif /* SPECRT_H */

/* =================================================================================================
 * Stop here if you only want the API.
 * ============================================================================================== */
