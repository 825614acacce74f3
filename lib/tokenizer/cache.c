/* cache.c : memory, records and replacement of the piece cache. */
#include "tokenizer/cache.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SETS_BYTES (((size_t)1 << TOK_CACHE_SETS_LOG2) * 2 * sizeof(tok_slot))

/* Zero pages of the system: a worker that meets little text touches little memory. */
static void *map_zeroed(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool sl_tok_cache_init(tok_cache *cache) {
    *cache = (tok_cache){.sets = map_zeroed(SETS_BYTES),
                         .arena = map_zeroed(TOK_CACHE_ARENA_WORDS * sizeof(uint32_t))};
    if (cache->sets) madvise(cache->sets, SETS_BYTES, MADV_HUGEPAGE);
    if (cache->sets && cache->arena) return true;
    sl_tok_cache_free(cache);
    return false;
}

void sl_tok_cache_free(tok_cache *cache) {
    if (cache->sets) munmap(cache->sets, SETS_BYTES);
    if (cache->arena) munmap(cache->arena, TOK_CACHE_ARENA_WORDS * sizeof(uint32_t));
    *cache = (tok_cache){0};
}

const int32_t *sl_tok_cache_ids(const tok_cache *cache, const tok_slot *slot, const uint8_t *piece,
                                size_t n, size_t *n_ids) {
    const uint32_t *record = cache->arena + slot->ids[0];
    *n_ids = record[0];
    if (memcmp(record + 1 + *n_ids, piece, n) != 0) return NULL;
    return (const int32_t *)(record + 1);
}

/* @return where the record begins, emptying the cache to make room. */
static int32_t put_record(tok_cache *cache, const uint8_t *piece, size_t n, const int32_t *ids,
                          size_t n_ids) {
    size_t words = 1 + n_ids + (n + 3) / 4;
    if (cache->arena_n + words > TOK_CACHE_ARENA_WORDS) {
        memset(cache->sets, 0, SETS_BYTES);
        cache->arena_n = 0;
    }
    uint32_t *record = cache->arena + cache->arena_n;
    record[0] = (uint32_t)n_ids;
    memcpy(record + 1, ids, n_ids * sizeof *ids);
    memcpy(record + 1 + n_ids, piece, n);
    cache->arena_n += words;
    return (int32_t)(record - cache->arena);
}

void sl_tok_cache_put(tok_cache *cache, tok_key key, const uint8_t *piece, size_t n,
                      const int32_t *ids, size_t n_ids) {
    tok_slot slot = {.key = key, .n_ids = (uint32_t)n_ids};
    if (n <= TOK_KEY_BYTES && n_ids <= TOK_CACHE_INLINE_IDS) {
        memcpy(slot.ids, ids, n_ids * sizeof *ids);
    } else {
        slot.ids[0] = put_record(cache, piece, n, ids, n_ids);
        slot.n_ids = TOK_CACHE_RECORD;
    }
    tok_slot *slots = cache->sets[tok_cache_set(key)];
    slots[slots[0].key.high != 0] = slot;
}
