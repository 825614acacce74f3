/* tok_cache.h : pieces a worker has met -> their ids, in bounded memory.
 *
 * A slot holds a piece of at most 15 bytes and 3 ids within itself; other pieces of up to 255 bytes
 * have a record in the arena. Two slots share a cache line, and a new piece pushes out the older of
 * the two. When the arena is full, the whole cache is emptied. */
#ifndef TOK_CACHE_H
#define TOK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TOK_CACHE_SETS_LOG2    18                /* of two slots: 16 MiB */
#define TOK_CACHE_ARENA_WORDS  ((size_t)2 << 20) /* 8 MiB */
#define TOK_CACHE_INLINE_BYTES 15
#define TOK_CACHE_INLINE_IDS   3
#define TOK_CACHE_MAX_BYTES    255

/* Short pieces: the bytes, zero-padded, and their number in the top byte. Long ones: a hash of the
 * bytes, and their number with a top byte of 255. An empty slot has an all-zero key. */
typedef struct tok_key {
    uint64_t low, high;
} tok_key;

/* Of a piece too long to remember: no slot has it. */
#define TOK_KEY_NONE ((tok_key){0, UINT64_C(254) << 56})

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

bool tok_cache_init(tok_cache *cache); /* false: no memory */
void tok_cache_free(tok_cache *cache);

static inline uint64_t tok_load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* tok_key_short() : of 1..15 bytes at p, where 16 may be read. */
static inline tok_key tok_key_short(const uint8_t *p, size_t n) {
    uint64_t low = tok_load64(p), high = tok_load64(p + 8);
    uint64_t keep = ~UINT64_C(0) >> ((64 - 8 * n) & 63);
    bool one = n <= 8;
    low = one ? low & keep : low;
    high = one ? 0 : high & keep;
    return (tok_key){low, high | (uint64_t)n << 56};
}

tok_key tok_key_long(const uint8_t *p, size_t n);

static inline size_t tok_cache_set(tok_key key) {
    uint64_t h = (key.low ^ (key.high << 29 | key.high >> 35)) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h >> (64 - TOK_CACHE_SETS_LOG2));
}

static inline bool tok_key_equal(tok_key a, tok_key b) {
    return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

/* tok_cache_find() : the slot of a key, NULL if there is none. A long key only names the candidate:
 * compare the bytes of its record. */
static inline const tok_slot *tok_cache_find(const tok_cache *cache, tok_key key, size_t set) {
    const tok_slot *slots = cache->sets[set];
    if (tok_key_equal(slots[0].key, key)) return &slots[0];
    return tok_key_equal(slots[1].key, key) ? &slots[1] : NULL;
}

/* tok_cache_ids() : the ids of a record, NULL when its piece has other bytes. */
const int32_t *tok_cache_ids(const tok_cache *cache, const tok_slot *slot, const uint8_t *piece,
                             size_t n, size_t *n_ids);

/* tok_cache_put() : remember a piece that tok_cache_find() did not know. */
void tok_cache_put(tok_cache *cache, tok_key key, const uint8_t *piece, size_t n,
                   const int32_t *ids, size_t n_ids);

#endif
