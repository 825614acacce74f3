/* tokenizer_impl.h : the inside of a tokenizer, for the files of its folder only.
 *
 * A loader fills a tokenizer through the tok_set_ and tok_add_ calls and plain fields, then
 * sl_tokenizer_open() calls sl_tokenizer_finish(), which compiles the lookup tables. After that nothing
 * changes, so workers on any number of threads read it freely.
 *
 *     text -> segments between raw tokens -> normalise -> pieces (splitter) -> symbols -> ids
 *
 * Token bytes are raw: the byte-level alphabet is undone, U+2581 is a space, a byte token is its
 * byte. */
#ifndef TOKENIZER_IMPL_H
#define TOKENIZER_IMPL_H

#include "base/io.h"
#include "specrt_tools.h"
#include "tokenizer/tokenizer.h"
#include <string.h>

/* ---- keys ----
 * The bytes of a token or piece as two words, so that short ones compare and hash without a loop. */

#define TOK_KEY_BYTES 15 /* a key of up to so many bytes is the bytes themselves */

/* Short: the bytes, zero-padded, and their number in the top byte. Long: a hash of the bytes, and
 * their number under a top byte of 255; equal keys then call for a comparison of the bytes. No bytes
 * have an all-zero key. */
typedef struct tok_key {
    uint64_t low, high;
} tok_key;

static inline bool tok_key_equal(tok_key a, tok_key b) {
    return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

static inline uint64_t tok_key_hash(tok_key key) {
    return (key.low ^ (key.high << 29 | key.high >> 35)) * UINT64_C(0x9E3779B97F4A7C15);
}

/* tok_key_short() : of 1..15 bytes at p, where 16 may be read. Masks from a table: a branch on the
 * length would be mispredicted. */
static inline tok_key tok_key_short(const uint8_t *p, size_t n) {
#define KEEP(bytes) (~UINT64_C(0) >> (64 - 8 * (bytes)))
#define LOW(bytes)                                                                                 \
    { KEEP(bytes), 0 }
#define HIGH(bytes)                                                                                \
    { ~UINT64_C(0), KEEP(bytes) }
    static const uint64_t keep[TOK_KEY_BYTES + 1][2] = {
        {0, 0}, LOW(1),  LOW(2),  LOW(3),  LOW(4),  LOW(5),  LOW(6),  LOW(7),
        LOW(8), HIGH(1), HIGH(2), HIGH(3), HIGH(4), HIGH(5), HIGH(6), HIGH(7)};
#undef KEEP
#undef LOW
#undef HIGH
    uint64_t low, high;
    memcpy(&low, p, 8);
    memcpy(&high, p + 8, 8);
    return (tok_key){low & keep[n][0], (high & keep[n][1]) | (uint64_t)n << 56};
}

/* tok_key_make() : of n > 0 bytes at p, where `readable` >= n may be read. */
static inline tok_key tok_key_make(const uint8_t *p, size_t n, size_t readable) {
    if (n > TOK_KEY_BYTES) return (tok_key){specrt_hash64(p, n, 0), UINT64_C(255) << 56 | n};
    if (readable >= 16) return tok_key_short(p, n);
    uint8_t padded[16] = {0};
    memcpy(padded, p, n);
    return tok_key_short(padded, n);
}

/* ---- what a splitter asks of a code point, in a compact table ---- */

/* Properties; a code point has any number of them. */
enum {
    UC_LETTER = 1,  /* \p{L} */
    UC_NUMBER = 2,  /* \p{N} */
    UC_SPACE = 4,   /* \s: the White_Space property */
    UC_NEWLINE = 8, /* CR and LF */
    UC_MARK = 16,   /* \p{M} */
    UC_UPPER = 32,  /* \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}: may stand before a word's small letters */
    UC_LOWER = 64,  /* \p{Ll} \p{Lm} \p{Lo} \p{M} */
    UC_PUNCT = 128, /* \p{P} */
    UC_UNSTABLE = 256, /* may change under NFC, alone or after what precedes it */
    UC_MARKS = 512,    /* punctuation as `tokenizers` has it: ASCII's, and \p{P} of Unicode 8 */
};

#define UC_BLOCK 256

typedef struct tok_unicode {
    uint16_t block_of[0x110000 / UC_BLOCK]; /* index into blocks */
    uint16_t (*blocks)[UC_BLOCK];           /* distinct ones; the first is U+0000..U+00FF */
} tok_unicode;

/* sl_tok_unicode_new() : from the categories of utf8proc. @return NULL: out of memory. */
tok_unicode *sl_tok_unicode_new(void);
void sl_tok_unicode_free(tok_unicode *table);

static inline unsigned tok_class(const tok_unicode *table, uint32_t cp) {
    return table->blocks[table->block_of[cp / UC_BLOCK]][cp % UC_BLOCK];
}

/* tok_decode() : the code point at p < end; a byte that is no part of valid UTF-8 stands for an
 * unassigned code point of one byte. */
static inline uint32_t tok_decode(const uint8_t *p, const uint8_t *end, int *len) {
    const uint32_t unassigned = 0x10FFFF;
#define TAIL(i)    (p[i] & 0x3Fu)
#define IS_TAIL(i) ((p[i] & 0xC0) == 0x80)
    *len = 1;
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xC0 || p[0] >= 0xF8 || end - p < 2 || !IS_TAIL(1)) return unassigned;
    if (p[0] < 0xE0) return *len = 2, (p[0] & 0x1Fu) << 6 | TAIL(1);
    if (end - p < 3 || !IS_TAIL(2)) return unassigned;
    if (p[0] < 0xF0) return *len = 3, (p[0] & 0x0Fu) << 12 | TAIL(1) << 6 | TAIL(2);
    if (end - p < 4 || !IS_TAIL(3)) return unassigned;
    uint32_t cp = (p[0] & 0x07u) << 18 | TAIL(1) << 12 | TAIL(2) << 6 | TAIL(3);
    if (cp > 0x10FFFF) return unassigned;
    return *len = 4, cp;
#undef TAIL
#undef IS_TAIL
}

/* ---- tokens found in text as they stand ----
 * Before it is split: user-defined and added ones. The rules are those of `tokenizers`: leftmost, longest,
 * then the token's options. */

#define TOK_RAW_SINGLE_WORD 1u /* not inside a word */
#define TOK_RAW_LSTRIP      2u /* takes the white space before it along */
#define TOK_RAW_RSTRIP      4u
#define TOK_RAW_NORMALIZED  8u  /* looked for in normalised text, in its own normalised form */
#define TOK_RAW_HIDDEN      16u /* a special token: yields nothing, but hides what it overlaps */

typedef struct tok_raw {
    int32_t id;
    uint32_t flags;
    uint32_t offset, n; /* bytes in the pool */
} tok_raw;

typedef struct tok_raw_set {
    tok_raw *items; /* [n] by first byte, longest first */
    size_t n, capacity;
    int32_t begin[257];   /* range of items by first byte */
    uint64_t pairs[1024]; /* a bit for each two bytes that a token begins with */
} tok_raw_set;

/* sl_tok_add_raw() : look for text [n], which stands for `id`. */
specrt_status sl_tok_add_raw(tokenizer *tok, int32_t id, const void *text, size_t n, unsigned flags,
                             specrt_error *err);

/* sl_tok_raw_finish() : sort and normalise; after the normaliser is known. */
specrt_status sl_tok_raw_finish(tokenizer *tok, specrt_error *err);

/* A search through one text. */
typedef struct tok_raw_scan {
    const tokenizer *tok;
    const tok_raw_set *set;
    const uint8_t *text;
    size_t n, at, taken; /* where to search on; end of the last token found */
} tok_raw_scan;

/* sl_tok_raw_next() : the next token; text up to *begin and after the last *end is no token's. @return
 * its id, or -1 at the end. */
int32_t sl_tok_raw_next(tok_raw_scan *scan, size_t *begin, size_t *end);

/* ---- the tokenizer ---- */

#define TOK_MAX_VOCAB       (1 << 21) /* ids; the largest known vocabulary has 262,144 */
#define TOK_MAX_MERGES      (1 << 22)
#define TOK_MAX_TOKEN_BYTES 1024 /* of one token; the longest known has 256 */
#define TOK_PAIR_BUCKET     8
#define TOK_NONE            (-1)

/* What a loader says of a token besides its type. */
#define TOK_FLAG_BYTE   1u /* byte fallback (<0x0A>): found through byte_ids only, never merged */
#define TOK_FLAG_MERGED 2u /* an added token that merges make too, like a normal one */

typedef struct tok_token {
    uint32_t offset, n; /* bytes in the pool; n = 0 is a hole */
    uint8_t type;       /* token_type */
    uint8_t flags;
} tok_token;

/* Which adjacent symbols merge, and in what order: lowest rank first, the leftmost of equals. */
typedef enum tok_merge_order {
    TOK_MERGE_LISTED, /* the pairs of sl_tok_add_merge(), in that order (tokenizer.json, GGUF gpt2) */
    TOK_MERGE_BY_ID,    /* any pair whose concatenation is a token, by that token's id (tiktoken) */
    TOK_MERGE_BY_SCORE, /* the same by falling score (SentencePiece) */
} tok_merge_order;

typedef struct tok_merge {
    int32_t left, right, merged;
} tok_merge;

/* Cuts text into pieces that tokens never cross. A kind is named after its first tokenizer. */
typedef enum tok_split_kind {
    TOK_SPLIT_NONE,  /* the whole segment is one piece */
    TOK_SPLIT_SPACE, /* before every space (Metaspace with split) */
    TOK_SPLIT_GPT2,
    TOK_SPLIT_LLAMA3, /* llama-bpe */
    TOK_SPLIT_CL100K,
    TOK_SPLIT_QWEN2,
    TOK_SPLIT_QWEN35,
    TOK_SPLIT_O200K,
    TOK_SPLIT_DEEPSEEK_LLM,
    TOK_SPLIT_FALCON,
    TOK_SPLIT_CUSTOM, /* tokenizer.custom */
} tok_split_kind;

/* Flag of a piece's end. */
#define TOK_PIECE_DROPPED (~(SIZE_MAX >> 1))

/* A loader's own splitter (regexes of unknown tokenizers). */
typedef struct tok_custom_split {
    /* Writes the ends of the next 1..max pieces of text [n] from offset `from` < n, 0 at first, then
     * the last end; pieces tile the text, and those marked TOK_PIECE_DROPPED yield nothing.
     * @return how many; 0 when memory or a regex's limits ran out. */
    size_t (*next)(const void *state, void *scratch, const uint8_t *text, size_t n, size_t from,
                   size_t *ends, size_t max);
    void *(*scratch_new)(const void *state); /* one per worker; may be absent. NULL: no memory */
    void (*scratch_free)(void *scratch);
    void (*state_free)(void *state);
    void *state; /* owned, immutable */
} tok_custom_split;

/* The space put before text by SentencePiece ("dummy prefix") and its descendants. */
typedef enum tok_prefix {
    TOK_PREFIX_NONE,
    TOK_PREFIX_ALWAYS,     /* before any text that is not empty; a normaliser's */
    TOK_PREFIX_IF_MISSING, /* unless it begins with a space; a pre-tokenizer's */
} tok_prefix;

/* What is done to text, in order, before it is split. */
typedef enum tok_normal_kind {
    TOK_NORMAL_NFC,
    TOK_NORMAL_NFD,
    TOK_NORMAL_NFKC,
    TOK_NORMAL_NFKD,
    TOK_NORMAL_PREPEND, /* `to` before any text that is not empty */
    TOK_NORMAL_REPLACE, /* `from` by `to` */
} tok_normal_kind;

typedef struct tok_normal {
    tok_normal_kind kind;
    uint32_t from, n_from, to, n_to; /* bytes in the pool */
} tok_normal;
#define TOK_MAX_NORMALS 16

typedef struct tok_index_slot {
    tok_key key;
    int32_t id; /* TOK_NONE: empty */
} tok_index_slot;

struct tokenizer {
    const char *path; /* of the file being loaded, for messages; borrowed, NULL afterwards */

    /* Filled by the loader. */
    char name[64];
    tok_token *tokens; /* [n_symbols] by id */
    int32_t n_vocab;
    float *scores; /* [n_vocab], with TOK_MERGE_BY_SCORE only */
    uint8_t *pool;
    int32_t *terminators;
    int32_t n_terminators;
    tok_merge_order merge_order;
    tok_merge *merges; /* [n_merges] by rank; those not listed are found by sl_tokenizer_finish() */
    size_t n_merges;
    bool chars;         /* symbols start as code points, else as bytes */
    bool ignore_merges; /* a piece that is a token is that token, unmerged */
    bool byte_fallback; /* a code point without a symbol becomes its byte tokens */
    bool fuse_unknown;  /* neighbouring unknown code points give one unknown_id */
    int32_t unknown_id; /* TOK_NONE: unknown symbols vanish */
    tok_normal normals[TOK_MAX_NORMALS];
    int n_normals;
    bool spm_spaces; /* U+2581 in text means a space */
    tok_prefix prefix;
    bool prefix_every_segment; /* else only at the start of the document */
    tok_split_kind split;
    tok_custom_split custom;

    /* Compiled by sl_tokenizer_finish(). */
    size_t pool_n, pool_capacity, tokens_capacity, n_scores, scores_capacity;
    int32_t n_normal;
    int32_t n_symbols;     /* n_vocab, then code points that occur in tokens without being one */
    int32_t byte_ids[256]; /* the symbol of a byte (bytes), or its byte token (chars) */
    tok_index_slot *index; /* bytes -> symbol, open addressing */
    int index_shift;       /* 64 - log2 of slots */
    uint64_t (*pairs)[TOK_PAIR_BUCKET]; /* left 21 bits, right 21, merge 22; all ones: empty */
    int pair_shift;                     /* 64 - log2 of slots */
    uint32_t *byte_pairs;               /* [256, 256] the merge of two bytes; or NULL */
    int32_t *merge_ids;                 /* [n_merges] the symbol a merge makes */
    uint32_t *merge_ranks;              /* [n_merges] equal for equal scores; NULL: all distinct */
    tok_raw_set raw[2];                 /* looked for in text as it is, and in normalised text */
    tok_unicode *unicode;
    uint8_t sha256[32];
};

/* A slot of the pair table. */
#define TOK_ID_BITS    21
#define TOK_MERGE_BITS 22
#define TOK_MERGE_MASK ((UINT64_C(1) << TOK_MERGE_BITS) - 1)
#define TOK_PAIR_EMPTY UINT64_MAX

static inline uint64_t tok_pair_key(int32_t left, int32_t right) {
    return (uint64_t)left << TOK_ID_BITS | (uint64_t)right;
}

static inline uint64_t tok_pair_make(int32_t left, int32_t right, uint32_t merge) {
    return tok_pair_key(left, right) << TOK_MERGE_BITS | merge;
}

static inline size_t tok_pair_bucket(const tokenizer *tok, uint64_t key) {
    return (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> tok->pair_shift);
}

/* tok_pair_find() : the merge of a pair's key, or TOK_NO_MERGE. Whole buckets without a branch, since
 * nobody can predict whether a pair merges; a full one goes on in the next. */
#define TOK_NO_MERGE UINT32_MAX
static inline uint32_t tok_pair_find(const tokenizer *tok, uint64_t key) {
    size_t mask = SIZE_MAX >> tok->pair_shift;
    for (size_t i = tok_pair_bucket(tok, key);; i = (i + 1) & mask) {
        const uint64_t *bucket = tok->pairs[i];
        uint64_t found = UINT64_MAX;
        for (int k = 0; k < TOK_PAIR_BUCKET; k++)
            found = bucket[k] >> TOK_MERGE_BITS == key ? bucket[k] & TOK_MERGE_MASK : found;
        if (bucket[TOK_PAIR_BUCKET - 1] == TOK_PAIR_EMPTY || found != UINT64_MAX)
            return (uint32_t)found;
    }
}

/* Filling. Messages name tok->path. */

/* sl_tok_set_token() : define an id, once; ids may come in any order and leave holes.
 * @return BAD_INPUT for an id out of range or defined twice, NO_MEMORY. */
specrt_status sl_tok_set_token(tokenizer *tok, int32_t id, const void *bytes, size_t n,
                               token_type type, unsigned flags, specrt_error *err);

/* sl_tok_set_score() : after sl_tok_set_token of the same id. */
specrt_status sl_tok_set_score(tokenizer *tok, int32_t id, float score, specrt_error *err);

/* sl_tok_add_normal() : the next step of normalisation; strings where the kind has them. */
specrt_status sl_tok_add_normal(tokenizer *tok, tok_normal_kind kind, const char *from,
                                size_t n_from, const char *to, size_t n_to, specrt_error *err);

/* sl_tok_add_merge() : the next merge in rank order (TOK_MERGE_LISTED). */
specrt_status sl_tok_add_merge(tokenizer *tok, int32_t left, int32_t right, int32_t merged,
                               specrt_error *err);

/* sl_tok_add_terminator() : an id that ends a generation; repeats are dropped. */
specrt_status sl_tok_add_terminator(tokenizer *tok, int32_t id, specrt_error *err);

/* sl_tok_pool_append() : keep bytes for the tokenizer's life. */
specrt_status sl_tok_pool_append(tokenizer *tok, const void *bytes, size_t n, uint32_t *offset,
                                 specrt_error *err);

/* sl_tok_reserve_ids() : make [n_vocab, n) holes. */
specrt_status sl_tok_reserve_ids(tokenizer *tok, int32_t n, specrt_error *err);

/* sl_tok_index() : make sl_tok_find_symbol() work, for loaders that look tokens up after their last
 * sl_tok_set_token(). */
specrt_status sl_tok_index(tokenizer *tok, specrt_error *err);

/* sl_tok_find_symbol() : what merging can see: a normal token that is no byte token, the lowest id of
 * equals, or an extra symbol (id >= n_vocab); TOK_NONE if there is none. */
int32_t sl_tok_find_symbol(const tokenizer *tok, const void *bytes, size_t n);
int32_t sl_tok_find_key(const tokenizer *tok, tok_key key, const uint8_t *bytes, size_t n);

/* sl_tokenizer_finish() : check and compile, after the loader. */
specrt_status sl_tokenizer_finish(tokenizer *tok, specrt_error *err);

/* ---- spellings ----
 * What token spellings in vocabulary files stand for: the byte-level alphabet, U+2581, <0x0A>, placeholders,
 * ends of text. Shared by the loaders. */

/* How a vocabulary spells the bytes of its normal tokens. */
typedef enum tok_spelling {
    TOK_SPELL_PLAIN,      /* as they are */
    TOK_SPELL_BYTE_LEVEL, /* GPT-2's alphabet: one printable character for each byte */
    TOK_SPELL_SPACES,     /* U+2581 for a space */
} tok_spelling;

/* sl_tok_unspell() : the bytes that `text` [n] spells.
 *   out : [n]
 * @return how many; 0 when no text is tokenised to it (empty, or a character that cannot occur). */
size_t sl_tok_unspell(tok_spelling spelling, const char *text, size_t n, uint8_t *out);

/* sl_tok_byte_token() : 0..255 of "<0x00>".."<0xFF>"; -1: something else. */
int sl_tok_byte_token(const char *text, size_t n);

/* sl_tok_special_type() : TOKEN_RESERVED for a placeholder's name ("<unused12>", "[PAD7]",
 * "<|reserved_special_token_3|>"), else TOKEN_SPECIAL. */
token_type sl_tok_special_type(const char *text, size_t n);

/* sl_tok_add_named_terminators() : specials whose name says that text ends. After the last token. */
specrt_status sl_tok_add_named_terminators(tokenizer *tok, specrt_error *err);

/* Loaders: fill a tokenizer (zeroed but for path and unknown_id = TOK_NONE) from a file's bytes. */
specrt_status sl_tok_load_tiktoken(tokenizer *tok, const file_view *file, specrt_error *err);
specrt_status sl_tok_load_json(tokenizer *tok, const file_view *file, specrt_error *err);
specrt_status sl_tok_load_gguf(tokenizer *tok, const file_view *file, specrt_error *err);

#endif
