/* specrt_tools.h : for programs that build, inspect or record: what a bundle holds, byte by byte, rows of
 * weights, hashes and traces. An application does without, but for the digest of its tokenizer.
 *
 * FUNCTIONS, by task:
 *     refuse with one line   specrt_error_set
 *     hash                   specrt_hash64; specrt_sha256_init, _update, _final; specrt_tokenizer_hash_token
 *     read rows              specrt_dtype_name; specrt_row_bytes, _decode; specrt_to_f16
 *     look into a bundle     specrt_bundle_sections, _data, _ident; its sections as views _ranks, _cograph,
 *                            _clusters, _sketch, _hnsw; specrt_cograph_successors
 *     tell heads apart       specrt_head_digest, specrt_digest_distance
 *     multiply               specrt_head_compute
 *     search an index        specrt_hnsw_search, _scratch_bytes
 *     build an index         specrt_hnsw_nearest, _scores, _any_above
 *     record                 specrt_trace_writer_create, specrt_trace_write, specrt_trace_writer_close
 *     read what was recorded specrt_trace_open, _open_memory, _close, _get_info, _check, _skip_hidden, _read,
 *                            _is_cut */
#ifndef SPECRT_TOOLS_H
#define SPECRT_TOOLS_H

#include "specrt.h"

// >>tools

#ifdef __cplusplus
extern "C" {
#endif

/* --- errors --- */

/* specrt_error_set() : fill *err (may be NULL) with a printf-style line, cut at its capacity.
 * @return status, so that callers write `return specrt_error_set(err, ...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
SPECRT_API specrt_status
specrt_error_set(specrt_error *err, specrt_status status, const char *format, ...);

/* --- hashes: of file contents and of vocabularies --- */

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

/* --- rows --- */

/* specrt_dtype_name() : "q6_k"; NULL if the number is not in the list. */
SPECRT_API const char *specrt_dtype_name(specrt_dtype dtype);

/* specrt_row_bytes() : bytes of a row of n_cols elements; 0 if the type is unknown, n_cols is not a
 * positive multiple of its block, or the size overflows. */
SPECRT_API size_t specrt_row_bytes(specrt_dtype dtype, int64_t n_cols);

/* specrt_row_decode() : one row of any float format to f32 [n_cols].
 *   row : specrt_row_bytes() bytes, borrowed, any alignment
 * @return OK; UNSUPPORTED for integer and unknown types; BAD_ARG when n_cols fits no blocks. */
SPECRT_API specrt_status specrt_row_decode(specrt_dtype dtype, const void *row, int64_t n_cols,
                                           float *out);

/* --- bundle: the file ---
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

/* A section with a flag, version or tag that a reader does not know is unknown to it. */
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

/* Section "ident": what the bundle was built for. Names inform, digests identify. */
#define SPECRT_DIGEST_ROWS        64 /* sampled head rows */
#define SPECRT_DIGEST_PROJECTIONS 4  /* random +-1 projections of each */
typedef struct specrt_digest {
    float values[SPECRT_DIGEST_ROWS][SPECRT_DIGEST_PROJECTIONS];
} specrt_digest;

typedef struct specrt_ident {
    uint8_t tokenizer_sha256[32]; /* specrt_tokenizer_hash_token() over normal tokens; 0: unknown */
    int32_t n_vocab;              /* ids the tokenizer can produce, specials included */
    int32_t n_normal;             /* tokens under the digest */
    int32_t head_rows, head_cols; /* 0, 0: no head recorded */
    specrt_digest head_digest;    /* specrt_head_digest() */
    char tokenizer_name[64], head_name[64]; /* NUL-terminated UTF-8 */
} specrt_ident;

/* Section "ranks" (FR-Spec, VocabTrim): distinct ids whose every prefix from n_forced to n_valid is
 * a draft vocabulary. Then come uint64 counts[n_ranked] and int32 ids[n_ranked], both by rank:
 * forced ids first (terminators, other specials, ids kept on request, each ascending), then by count
 * descending, ties by lower id, then reserved placeholders.
 * 0 <= n_terminators <= n_forced <= n_default <= n_valid <= n_ranked <= n_vocab, n_default >= 1. */
typedef struct specrt_ranks_header {
    int32_t n_vocab;       /* ids are in [0, n_vocab) */
    int32_t n_ranked;      /* entries; n_vocab when the whole vocabulary was ranked */
    int32_t n_forced;      /* leading entries that are members of every list */
    int32_t n_terminators; /* leading forced entries that end a generation */
    int32_t n_valid;       /* leading entries that are not reserved placeholders */
    int32_t n_default;     /* the calibrated size */
    uint64_t n_tokens;     /* tokens counted; terminators excluded */
} specrt_ranks_header;

/* Section "cograph" (EvoSpec's successor graph; the successor source): which tokens followed a token in
 * a corpus, and how often. After the header come uint64 totals[n_vocab], uint32 offsets[n_vocab + 1],
 * uint32 n_rule[n_vocab], int32 ids[n_edges] and float counts[n_edges]. The successors of token u are
 * the edges [offsets[u], offsets[u + 1]), by count descending, ties by lower id; the first n_rule[u] of
 * them obey the published rule. A count is exact up to 2^24 and has 24 leading bits beyond. */
typedef struct specrt_cograph_header {
    int32_t n_vocab;
    int32_t n_sources; /* tokens that have successors */
    uint64_t n_edges;
    uint64_t n_tokens, n_pairs; /* counted; a pair is two tokens side by side in one document */
    int32_t max_degree;         /* successors kept of a token, and */
    int32_t min_count;          /* how often they followed it at least */
    int32_t rule_degree,
        rule_count;    /* the published rule: at most so many, each at least so often, */
    float rule_share;  /* and with at least this share of the token's pairs */
    uint32_t reserved; /* 0 */
} specrt_cograph_header;

/* Section "sketch" (docs/methods/sketch.md): a low-rank copy of a head in two parts. A hidden state h becomes
 * z = basis (h - center), `rank` numbers, the most important first. Signs preview all rows: the row at a
 * place v scores about constant_unit * constants[v] + scale_unit * s(scales[v]) * (signs[v] . z), where s()
 * has 5 bits of exponent and 3 of a fraction, and signs are +1 or -1 in the first `n_signs` dimensions.
 * Records refine those that score best: constant + scale * ((2 c - 3) . z), c being pairs of bits in `rank`
 * dimensions. After the header come basis[rank, n_cols] in basis_dtype, float center[n_cols], int32
 * rows[n_rows], u8 scales[n_blocks, 16], i8 constants[n_blocks, 16], from a multiple of 64 on u8
 * signs[n_blocks, n_signs / 32, 16, 4], and u8 records[n_rows, n_lines, 64]. docs/FORMAT.md has every bit. */
#define SPECRT_MAX_SKETCH_RANK 4080
typedef struct specrt_sketch_header {
    int32_t n_rows, n_cols; /* of the head */
    int32_t rank;           /* 256 n_lines - 16 */
    int32_t n_signs;        /* a multiple of 32, at most rank */
    int32_t whitened;       /* 1: directions lie where recorded hidden states did */
    int32_t basis_dtype;    /* specrt_dtype: F16 or Q8_0 */
    float scale_unit, constant_unit;
    uint32_t reserved[8]; /* 0 */
} specrt_sketch_header;

/* Sections "cluster" (DynaSpec), "group" (CORAL) and "centroid" (docs/methods/cluster.md), one layout: the
 * rows of a head in clusters, and a router that chooses among them. After the header come uint32
 * offsets[n_clusters + 1], int32 ids[n_members] (cluster m holds [offsets[m], offsets[m + 1]), ascending;
 * the head's other rows are in none), int32 schedule[n_schedule] and the router's weights in f16:
 * w1[n_hidden, n_embed + n_state], b1[n_hidden], w2[n_clusters, n_hidden or else n_state],
 * b2[n_clusters]. */
typedef enum specrt_router_kind {
    SPECRT_ROUTER_NONE,     /* no weights: it cannot route yet */
    SPECRT_ROUTER_CENTROID, /* w2 h + b2; h is the drafter's output */
    /* w2 silu(w1 [rms(e); rms(g)] + b1) + b2; e embeds the token that the pass is fed, g is the
     * hidden state it is fed; rms(x) = x / root mean square */
    SPECRT_ROUTER_DYNASPEC,
    SPECRT_ROUTER_CORAL /* w2 (silu(w1 rms(h) + b1) + rms(h)) + b2 */
} specrt_router_kind;

#define SPECRT_MAX_CLUSTERS 16384

typedef struct specrt_clusters_header {
    int32_t n_rows, n_cols; /* of the head; of one with ids of its own n_rows is above them all */
    int32_t n_clusters;     /* none is empty */
    int32_t n_members;      /* rows in clusters */
    int32_t router;         /* specrt_router_kind */
    int32_t softmax;        /* scores become probabilities by 0: sigmoid, 1: softmax */
    int32_t n_embed;        /* width of e; 0: not read */
    int32_t n_state;        /* width of g or h: the drafter's */
    int32_t n_hidden;       /* outputs of w1; 0: there is none */
    int32_t n_schedule;     /* levels; 1 to 32 */
    uint32_t reserved[2];   /* 0 */
} specrt_clusters_header;

/* specrt_bundle_sections() : the table as stored, borrowed from the bundle. */
SPECRT_API const specrt_bundle_section *specrt_bundle_sections(const specrt_bundle *bundle,
                                                               int32_t *n_sections);

/* specrt_bundle_data() : the decompressed bytes of a section, borrowed from the bundle, aligned to
 * 16; NULL (and *n_bytes = 0) when the bundle lacks it. */
SPECRT_API const void *specrt_bundle_data(const specrt_bundle *bundle, const char *tag,
                                          size_t *n_bytes);

/* specrt_bundle_ident() : what it was built for, borrowed; NULL when the bundle records nothing. */
SPECRT_API const specrt_ident *specrt_bundle_ident(const specrt_bundle *bundle);

/* specrt_ranks : view of section "ranks", borrowed from the bundle. */
typedef struct specrt_ranks {
    const specrt_ranks_header *header;
    const int32_t *ids;     /* [n_ranked] by rank */
    const uint64_t *counts; /* [n_ranked] by rank */
} specrt_ranks;

/* specrt_bundle_ranks() : validated at open (sizes in order, ids distinct and in range).
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it. */
SPECRT_API specrt_status specrt_bundle_ranks(const specrt_bundle *bundle, specrt_ranks *out,
                                             specrt_error *err);

/* specrt_cograph : view of section "cograph", borrowed from the bundle. */
typedef struct specrt_cograph {
    const specrt_cograph_header *header;
    const uint64_t *totals;  /* [n_vocab] pairs that each token began, those not kept included */
    const uint32_t *offsets; /* [n_vocab + 1] */
    const uint32_t *n_rule;  /* [n_vocab] */
    const int32_t *ids;      /* [n_edges] */
    const float *counts;     /* [n_edges] */
} specrt_cograph;

/* specrt_bundle_cograph() : checks all of the section, so that users of the view need not.
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it, BUNDLE_CONTENT. */
SPECRT_API specrt_status specrt_bundle_cograph(const specrt_bundle *bundle, specrt_cograph *out,
                                               specrt_error *err);

/* specrt_cograph_successors() : what most often followed a token, borrowed.
 *   ids, counts : i32, f32 [returned], by count; p(v | token) is counts[i] / totals[token]
 * @return how many there are; 0 for a token outside the graph. */
SPECRT_API int32_t specrt_cograph_successors(const specrt_cograph *graph, int32_t token,
                                             const int32_t **ids, const float **counts);

/* specrt_clusters : view of a section of clusters, borrowed from the bundle. */
typedef struct specrt_clusters {
    const specrt_clusters_header *header;
    const uint32_t *offsets;           /* [n_clusters + 1] */
    const int32_t *ids;                /* [n_members] */
    const int32_t *schedule;           /* [n_schedule] clusters of each level; the last holds on */
    const uint16_t *w1, *b1, *w2, *b2; /* f16, shapes above; NULL: there is none */
} specrt_clusters;

/* specrt_bundle_clusters() : checks all of the section, so that users of the view need not.
 *   tag : "cluster", "group" or "centroid"
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it, BUNDLE_CONTENT, NO_MEMORY. */
SPECRT_API specrt_status specrt_bundle_clusters(const specrt_bundle *bundle, const char *tag,
                                                specrt_clusters *out, specrt_error *err);

/* specrt_sketch : view of section "sketch", borrowed from the bundle. */
typedef struct specrt_sketch {
    const specrt_sketch_header *header;
    const void *basis;       /* [rank, n_cols] in basis_dtype */
    const float *center;     /* [n_cols] the mean of states, taken off each */
    const int32_t *rows;     /* [n_rows] the head's row at each place, the frequent first */
    const uint8_t *scales;   /* [n_blocks, 16] */
    const int8_t *constants; /* [n_blocks, 16] */
    const uint8_t *signs;    /* [n_blocks, n_signs / 32, 16, 4] */
    const uint8_t *records;  /* [n_rows, n_lines, 64] */
} specrt_sketch;

/* specrt_bundle_sketch() : checks all of the section, so that users of the view need not.
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it, BUNDLE_CONTENT, NO_MEMORY. */
SPECRT_API specrt_status specrt_bundle_sketch(const specrt_bundle *bundle, specrt_sketch *out,
                                              specrt_error *err);

/* --- heads --- */

/* specrt_head_digest() : the comparable digest of a head: SPECRT_DIGEST_ROWS rows spread over
 * [0, n_rows), each projected on SPECRT_DIGEST_PROJECTIONS fixed random +-1 vectors and divided by
 * sqrt(n_cols). */
SPECRT_API specrt_status specrt_head_digest(const specrt_head_desc *desc, specrt_digest *out,
                                            specrt_error *err);

/* What is above this distance (specrt_digest_distance()) is taken for another head. */
#define SPECRT_DIGEST_TOLERANCE 0.5f

/* specrt_digest_distance() : 0 for one head, about 0.1 for its 4-bit quantisation, about 1.4 for another head
 * or another row order. A constant added to every row does not count, since no softmax sees it. */
SPECRT_API float specrt_digest_distance(const specrt_digest *a, const specrt_digest *b);

/* specrt_head_compute() : how its products run, borrowed, for actives of the application's own (any
 * weight matrix is a segment). */
SPECRT_API const specrt_compute *specrt_head_compute(const specrt_head *head);

/* --- approximate search: the rows of a head with the greatest products (HNSW) --- */

/* Section "hnsw": a navigable graph over rows of a head (Malkov and Yashunin 2018). After the header come
 * int32 ids[n_nodes], int32 starts[n_nodes + 1], int32 links0[n_nodes, 2 m], int32 links[n_lists, m] and,
 * from the next multiple of 64, the vectors: as f16 [n_nodes, dim rounded up to 32], or as int8 [n_nodes,
 * dim rounded up to 64] with a float scale[n_nodes] each behind them. Node i is row ids[i], on levels 0 to
 * starts[i + 1] - starts[i]; its links on level l > 0 are list starts[i] + l - 1. Links are nodes, -1
 * from the first free place on. */
#define SPECRT_HNSW_MAX_M     256
#define SPECRT_HNSW_MAX_LEVEL 31
#define SPECRT_HNSW_MAX_EF    4096
#define SPECRT_HNSW_MAX_DIM   131072 /* products of int8 rows stay below 2^31 */

/* specrt_hnsw_header.vectors : what a search reads; int8 is the fastest by far. */
enum { SPECRT_HNSW_NONE = -1, SPECRT_HNSW_F16 = 1, SPECRT_HNSW_INT8 = 24 };

typedef struct specrt_hnsw_header {
    int32_t n_rows, dim; /* of the head */
    int32_t n_nodes;     /* rows indexed; others are reserved, duplicates or zero */
    int32_t m;           /* links of a node on a level at most; twice as many on level 0 */
    int32_t max_level, entry;
    int32_t metric; /* the graph was built for: 0 products, 1 distances of rows made equally long */
    int32_t vectors;
    int32_t n_lists;             /* above level 0 */
    int32_t ef_construction, ef; /* ef: of a search, when it names none */
    float recall;                /* of the ten best, at ef, as measured */
    uint32_t reserved[4];
} specrt_hnsw_header;

/* A view, borrowed from the bundle and the head. */
typedef struct specrt_hnsw {
    const specrt_hnsw_header *header;
    const int32_t *ids, *starts, *links0, *links;
    const int8_t *codes; /* [n_nodes, n_cols] times scales f32 [n_nodes]; NULL: rows are searched */
    const float *scales;
    const float *offsets;    /* [n_nodes] builders': products of two are added; or NULL */
    specrt_segment rows;     /* the stored vectors, or the head's rows */
    int64_t n_cols;          /* of what is searched */
    const specrt_head *head; /* scores exactly; NULL: scores are those of the stored vectors */
} specrt_hnsw;

/* specrt_bundle_hnsw() : checks all of the section but the vectors, so that users need not.
 *   head : of the matrix that was indexed, borrowed for the view's life; NULL only where vectors are
 *          stored
 * @return OK; BUNDLE_SECTION_MISSING naming the tool that builds it, BUNDLE_CONTENT, BUNDLE_MISMATCH for
 * a head of another shape, BAD_ARG. */
SPECRT_API specrt_status specrt_bundle_hnsw(const specrt_bundle *bundle, const specrt_head *head,
                                            specrt_hnsw *out, specrt_error *err);

/* specrt_hnsw_scratch_bytes() : for searches with at most this ef (0: the index's); 0: ef out of range.
 * Scratch is aligned as malloc aligns it, and one search's at a time. */
SPECRT_API size_t specrt_hnsw_scratch_bytes(const specrt_hnsw *index, int32_t ef);

/* specrt_hnsw_search() : the rows with about the greatest products, ties to the lower id.
 *   query : f32 [dim]
 *   k, ef : 1 <= k <= ef <= that of the scratch; 0: the index's ef, but at least k (for which the scratch
 *           must have room, too)
 *   ids, scores : i32, f32 [k], best first; scores are products with the head's rows, bias included
 * @return how many there are; 0 for arguments out of range. Never allocates. */
SPECRT_API int32_t specrt_hnsw_search(const specrt_hnsw *index, const float *query, int32_t k,
                                      int32_t ef, int32_t *ids, float *scores, void *scratch);

/* ---- an index under construction -------------------------------------------------------------------- */

/* Builders search for nodes with nodes of an index of int8 vectors, whose links may be under
 * construction. The scores of two nodes are the same whichever asks. */

/* specrt_hnsw_nearest() : nodes of one level, best first.
 *   nodes, scores : i32, f32 [ef]
 * @return how many there are. */
SPECRT_API int32_t specrt_hnsw_nearest(const specrt_hnsw *index, int32_t node, int32_t level,
                                       int32_t ef, int32_t *nodes, float *scores, void *scratch);

/* specrt_hnsw_scores() : of the listed nodes with one. */
SPECRT_API void specrt_hnsw_scores(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                   int32_t n, float *scores, void *scratch);

/* specrt_hnsw_any_above() : 1 when any of these scores is above a bound, else 0. */
SPECRT_API int specrt_hnsw_any_above(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                     int32_t n, float bound, void *scratch);

/* ---- traces: recorded cycles, for training and replay (docs/FORMAT.md) -----------------------------
 * A file of blocks, each compressed and checksummed on its own: written as it goes in bounded memory, and
 * readable up to where it was cut. */

typedef struct specrt_trace_info {
    uint8_t tokenizer_sha256[32]; /* as specrt_ident; 0: unknown */
    int32_t n_vocab, d_target, d_draft;
    int32_t n_top;       /* of the target's best tokens a row keeps */
    int32_t n_draft_top; /* of the drafter's */
    int32_t n_tree_top;  /* of the target's at every node of a tree; 0: at emitted tokens only */
    /* How it was recorded, for replay; zeros: not known. Borrowed when writing, the reader's when
     * reading. */
    const char *policy;      /* in canonical form; NULL: not known */
    specrt_tree_params tree; /* of its drafts */
    int32_t draft;           /* specrt_draft_kind */
    float temperature;       /* of the target */
    int32_t n_ids;           /* tokens that could be proposed are below it; 0: n_vocab */
    int32_t n_terminators;
    const int32_t *terminators; /* [n_terminators], at most SPECRT_MAX_TERMINATORS */
} specrt_trace_info;

typedef enum specrt_trace_kind {
    SPECRT_TRACE_END,      /* reading: nothing follows */
    SPECRT_TRACE_SEQUENCE, /* a new sequence and its prompt; a row a prompt token */
    SPECRT_TRACE_CYCLE     /* a cycle; a row an emitted token: what was known where it was drawn */
} specrt_trace_kind;

/* One record. Writing, all pointers are borrowed for the call; reading, until the next read. What is
 * NULL was not recorded. */
typedef struct specrt_trace_record {
    int32_t kind;          /* specrt_trace_kind */
    int32_t n;             /* rows; at least 1 */
    int32_t n_nodes;       /* of a cycle's tree, at most SPECRT_TREE_MAX_NODES; else 0 */
    char domain[32];       /* of a sequence; NUL-terminated */
    const int32_t *tokens; /* [n] of the prompt, or emitted */
    const int32_t *nodes;  /* [n] a cycle's: the node each was drawn at */
    const int32_t *tree_tokens, *tree_parents; /* [n_nodes] as in specrt_draft */
    const float *tree_logprobs;                /* [n_nodes] cumulative */
    const uint16_t *target_hidden;             /* f16 [n, d_target] after the final norm */
    const int32_t *top_ids;     /* [n, n_top] the target's best, best first; -1: none */
    const float *top_logits;    /* [n, n_top] */
    const float *top_logsumexp; /* [n] over the whole vocabulary */
    const uint16_t
        *draft_hidden;         /* f16 [n, d_draft] what its head multiplied there; NaN: no pass */
    const int32_t *draft_ids;  /* [n, n_draft_top] the drafter's best over its whole head */
    const float *draft_logits; /* [n, n_draft_top] */
    const float *draft_logsumexp; /* [n] over its whole head */
    /* [n_nodes, n_tree_top] as top_ids, where each node was verified */
    const int32_t *tree_top_ids;
    /* f16 [d_target] a sequence's: the target at its last token; NULL where drafters are not fed its
     * states (EAGLE-3) */
    const uint16_t *prompt_hidden;
} specrt_trace_record;

/* specrt_to_f16() : f32 [n] -> f16 [n], to nearest even. */
SPECRT_API void specrt_to_f16(const float *x, int64_t n, uint16_t *out);

typedef struct specrt_trace_writer specrt_trace_writer;

/* specrt_trace_writer_create() : begins a trace.
 *   write : called with bytes [n] to append to the file; anything but 0 is a failure
 * @return OK, NO_MEMORY, BAD_ARG naming the field, IO. */
SPECRT_API specrt_status specrt_trace_writer_create(
    const specrt_trace_info *info, int (*write)(void *user, const void *bytes, size_t n),
    void *user, const specrt_desc *env, specrt_trace_writer **out, specrt_error *err);

/* specrt_trace_write() : one record. @return OK, BAD_ARG naming the field, IO. */
SPECRT_API specrt_status specrt_trace_write(specrt_trace_writer *writer,
                                            const specrt_trace_record *record, specrt_error *err);

/* specrt_trace_writer_close() : writes what is pending and frees. @return OK or IO. */
SPECRT_API specrt_status specrt_trace_writer_close(specrt_trace_writer *writer, specrt_error *err);

typedef struct specrt_trace_reader specrt_trace_reader;

/* specrt_trace_open() : maps a file. @return OK, IO, NO_MEMORY, TRACE_MAGIC, TRACE_VERSION,
 * TRACE_DAMAGED header. */
SPECRT_API specrt_status specrt_trace_open(const char *path, const specrt_desc *env,
                                           specrt_trace_reader **out, specrt_error *err);
SPECRT_API specrt_status specrt_trace_open_memory(const void *bytes, size_t n_bytes,
                                                  const char *name, const specrt_desc *env,
                                                  specrt_trace_reader **out, specrt_error *err);
SPECRT_API void specrt_trace_close(specrt_trace_reader *reader);
SPECRT_API const specrt_trace_info *specrt_trace_get_info(const specrt_trace_reader *reader);

/* specrt_trace_check() : whether it was recorded with this tokenizer and these widths (0: any).
 * @return OK, TRACE_MISMATCH naming both sides. */
SPECRT_API specrt_status specrt_trace_check(const specrt_trace_reader *reader,
                                            const uint8_t sha256[32], int32_t d_target,
                                            int32_t d_draft, specrt_error *err);

/* specrt_trace_skip_hidden() : records come without hidden states from now on, several times faster where
 * those are wide. Before the first read. */
SPECRT_API void specrt_trace_skip_hidden(specrt_trace_reader *reader);

/* specrt_trace_read() : the next record; kind is SPECRT_TRACE_END after the last, also where the file
 * was cut.
 * @return OK, NO_MEMORY, TRACE_DAMAGED naming the block. */
SPECRT_API specrt_status specrt_trace_read(specrt_trace_reader *reader, specrt_trace_record *record,
                                           specrt_error *err);

/* specrt_trace_is_cut() : 1 once reading has met a last block that is not all there. */
SPECRT_API int specrt_trace_is_cut(const specrt_trace_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
