/* worker.h : what encoding is made of: the cache of pieces, merging, normalisation. */
#ifndef TOKENIZER_WORKER_H
#define TOKENIZER_WORKER_H

#include "tokenizer/tokenizer_impl.h"

/* ---- the cache: pieces a worker has met -> their ids, in bounded memory ----
 * A slot holds a piece of at most 15 bytes and 3 ids within itself; other pieces of up to 255 bytes
 * have a record in the arena. A slot that is found moves to the front of its set, a new piece takes
 * the back. When the arena is full, the whole cache is emptied. */

#define TOK_CACHE_SETS_LOG2   18                /* of two slots in a cache line: 16 MiB */
#define TOK_CACHE_ARENA_WORDS ((size_t)2 << 20) /* 8 MiB */
#define TOK_CACHE_INLINE_IDS  3
#define TOK_CACHE_MAX_BYTES   255

/* An empty slot has an all-zero key. */
typedef struct tok_slot {
    tok_key key;
    int32_t ids[TOK_CACHE_INLINE_IDS]; /* or [0]: the record's place in the arena */
    uint32_t n_ids;                    /* or TOK_CACHE_RECORD */
} tok_slot;
#define TOK_CACHE_RECORD UINT32_MAX

typedef struct tok_cache {
    tok_slot (*sets)[2];
    uint32_t *arena; /* records: n_ids, ids, bytes in whole words */
    size_t arena_n;
} tok_cache;

bool sl_tok_cache_init(tok_cache *cache); /* false: no memory */
void sl_tok_cache_free(tok_cache *cache);

/* The key of a piece too long to remember: no slot has it. */
#define TOK_KEY_NONE ((tok_key){0, UINT64_C(254) << 56})

static inline size_t tok_cache_set(tok_key key) {
    return (size_t)(tok_key_hash(key) >> (64 - TOK_CACHE_SETS_LOG2));
}

/* tok_cache_find() : the slot of a key, moved to the front of its set; NULL if there is none. A long
 * key only names the candidate: compare the bytes of its record. */
static inline const tok_slot *tok_cache_find(tok_cache *cache, tok_key key, size_t set) {
    tok_slot *slots = cache->sets[set];
    if (tok_key_equal(slots[0].key, key)) return slots;
    if (!tok_key_equal(slots[1].key, key)) return NULL;
    tok_slot found = slots[1];
    slots[1] = slots[0];
    slots[0] = found;
    return slots;
}

/* sl_tok_cache_ids() : the ids of a record, NULL when its piece has other bytes. */
const int32_t *sl_tok_cache_ids(const tok_cache *cache, const tok_slot *slot, const uint8_t *piece,
                                size_t n, size_t *n_ids);

/* sl_tok_cache_put() : remember a piece that tok_cache_find() did not know. */
void sl_tok_cache_put(tok_cache *cache, tok_key key, const uint8_t *piece, size_t n,
                      const int32_t *ids, size_t n_ids);

/* ---- byte-pair merging of one piece ---- */

/* Pieces up to here are merged by scanning arrays, longer ones by a heap. */
#define TOK_SHORT_PIECE 64

/* Work space of long pieces; zero-initialise. */
typedef struct tok_bpe_scratch {
    int32_t *symbols;                 /* [capacity], of one allocation with the next three */
    uint32_t *before, *after, *ranks; /* ranks[i] of the pair that begins at i */
    uint64_t *heap;
    size_t capacity, n_heap, heap_capacity;
} tok_bpe_scratch;

/* sl_tok_bpe() : the ids of a piece of 1..n bytes.
 *   out : [n], at least as many as there can be ids
 * @return how many; SIZE_MAX when memory ran out. */
size_t sl_tok_bpe(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
                  int32_t *out);

/* The two ways on their own, for tests; the same ids. n <= TOK_SHORT_PIECE for the first. */
size_t sl_tok_bpe_short(const tokenizer *tok, const uint8_t *piece, size_t n, int32_t *out);
size_t sl_tok_bpe_long(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece,
                       size_t n, int32_t *out);

void sl_tok_bpe_scratch_free(tok_bpe_scratch *scratch);

/* ---- what some tokenizers do to text before they split it ---- */

typedef struct tok_text {
    uint8_t *bytes;
    size_t n, capacity;
} tok_text;

/* Work space of one worker; zero-initialise. */
typedef struct tok_normaliser {
    bool no_prefix; /* the segment goes on where another ended */
    tok_text buffers[2], prefixed;
    int32_t *points; /* of one run in a Unicode form: decomposed, then sorted */
    size_t points_capacity;
} tok_normaliser;

/* sl_tok_normalise() : the tokenizer's normalisation steps, its prefix if that is always put, U+2581
 * as a space.
 *   text, n : in: a segment; out: the same, or a view of the work space when anything changed
 * @return false when memory ran out. */
bool sl_tok_normalise(const tokenizer *tok, tok_normaliser *work, const uint8_t **text, size_t *n);

/* sl_tok_prefix_missing() : a space in front of normalised text, where the tokenizer asks for one that
 * is missing.
 *   first : the text begins the document */
bool sl_tok_prefix_missing(const tokenizer *tok, tok_normaliser *work, bool first,
                           const uint8_t **text, size_t *n);

void sl_tok_normaliser_free(tok_normaliser *work);

#endif
