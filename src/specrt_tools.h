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

#include "specrt.h"

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
