/* worker.c : encoding and counting documents: the cache of pieces, merging, batches. */
#include "tokenizer/worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "tokenizer/split.h"

/* ---- the cache of pieces ---- */

#define SETS_BYTES (((size_t)1 << TOK_CACHE_SETS_LOG2) * 2 * sizeof(tok_slot))

/* Zero pages of the system: a worker that meets little text touches little memory. */
static void *map_zeroed(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool sl_tok_cache_init(tok_cache *cache) {
    *cache = (tok_cache){.sets = map_zeroed(SETS_BYTES),
                         .arena = map_zeroed(TOK_CACHE_ARENA_WORDS * sizeof(uint32_t))};
    if (cache->sets) sl_large_pages(cache->sets, SETS_BYTES);
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

/* ---- merging ----
 * A piece becomes a row of symbols; the adjacent pair of lowest rank merges, the leftmost of equals, until no
 * pair has a rank. Short pieces rescan an array of ranks, long ones keep candidates in a heap, O(n log n). */

/* What orders merges: their number, unless scores tie. */
static inline uint32_t rank_of(const tokenizer *tok, uint32_t merge) {
    return tok->merge_ranks && merge != TOK_NO_MERGE ? tok->merge_ranks[merge] : merge;
}

/* Writes the symbols merging starts from. What has none, and nothing to stand for it, is gone before
 * merging, so its neighbours meet: as in `tokenizers`. @return how many. */
static size_t first_symbols(const tokenizer *tok, const uint8_t *piece, size_t n,
                            int32_t *symbols) {
    bool vanish = tok->unknown_id == TOK_NONE && !tok->byte_fallback;
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int len = 1;
        int32_t symbol;
        if (tok->chars) {
            tok_decode(piece + i, piece + n, &len);
            symbol = sl_tok_find_symbol(tok, piece + i, (size_t)len);
        } else {
            symbol = tok->byte_ids[piece[i]];
        }
        if (symbol != TOK_NONE || !vanish) symbols[count++] = symbol;
        i += (size_t)len;
    }
    return count;
}

static bool has_byte_tokens(const tokenizer *tok, const uint8_t *bytes, int n) {
    if (!tok->chars || !tok->byte_fallback) return false;
    for (int i = 0; i < n; i++)
        if (tok->byte_ids[bytes[i]] == TOK_NONE) return false;
    return true;
}

static bool all_are_ids(const tokenizer *tok, const int32_t *symbols, size_t n) {
    uint32_t highest = 0;
    for (size_t i = 0; i < n; i++)
        highest = (uint32_t)symbols[i] > highest ? (uint32_t)symbols[i] : highest;
    return highest < (uint32_t)tok->n_vocab;
}

/* Merged symbols to ids: a code point without a token becomes its byte tokens or the unknown one. */
static size_t emit(const tokenizer *tok, const uint8_t *piece, size_t n, const int32_t *symbols,
                   size_t n_symbols, int32_t *out) {
    if (all_are_ids(tok, symbols, n_symbols)) {
        memcpy(out, symbols, n_symbols * sizeof *out);
        return n_symbols;
    }
    size_t at = 0, count = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < n_symbols; i++) {
        int32_t symbol = symbols[i];
        int len = 1;
        bool known = symbol != TOK_NONE && symbol < tok->n_vocab;
        if (known)
            len = (int)tok->tokens[symbol].n;
        else if (tok->chars)
            tok_decode(piece + at, piece + n, &len);
        bool unknown = !known && !has_byte_tokens(tok, piece + at, len);
        if (known)
            out[count++] = symbol;
        else if (!unknown)
            for (int k = 0; k < len; k++) out[count++] = tok->byte_ids[piece[at + (size_t)k]];
        else if (tok->unknown_id != TOK_NONE && !(tok->fuse_unknown && after_unknown))
            out[count++] = tok->unknown_id;
        after_unknown = unknown;
        at += (size_t)len;
    }
    return count;
}

/* ---- short pieces ---- */

/* A row of up to 64 symbols, those merged away left in place. Each symbol's pair with the next one
 * has a candidate: rank << 6 | place, so that the least of them is the leftmost of lowest rank. */
typedef struct row {
    int32_t symbols[TOK_SHORT_PIECE];
    uint32_t candidates[TOK_SHORT_PIECE];
    uint64_t alive; /* a bit for each symbol */
} row;
#define NO_CANDIDATE UINT32_MAX

static inline uint32_t candidate(const tokenizer *tok, uint32_t merge, int at) {
    return merge == TOK_NO_MERGE ? NO_CANDIDATE : rank_of(tok, merge) << 6 | (uint32_t)at;
}

static inline uint32_t pair_candidate(const tokenizer *tok, const row *r, int at, int next) {
    return candidate(tok, tok_pair_find(tok, tok_pair_key(r->symbols[at], r->symbols[next])), at);
}

/* `bytes`: the symbols are those of the piece's bytes, none of which vanished. */
static void find_candidates(const tokenizer *tok, const uint8_t *piece, bool bytes, row *r, int n) {
    for (int i = 0; i + 1 < n; i++)
        r->candidates[i] = bytes ? candidate(tok, tok->byte_pairs[piece[i] << 8 | piece[i + 1]], i)
                                 : pair_candidate(tok, r, i, i + 1);
    r->candidates[n - 1] = NO_CANDIDATE;
}

static inline uint32_t least(const uint32_t *values, int n) {
    uint32_t a = values[0], b = NO_CANDIDATE;
    for (int i = n & 1; i < n; i += 2) {
        a = values[i] < a ? values[i] : a;
        b = values[i + 1] < b ? values[i + 1] : b;
    }
    return a < b ? a : b;
}

/* Merge the symbol at `at` with the next one. */
static inline void merge_short(const tokenizer *tok, row *r, uint32_t rank, int at) {
    uint64_t right = r->alive & ~UINT64_C(1) << at; /* symbols to the right... */
    int gone = __builtin_ctzll(right);
    uint32_t merge = rank;
    if (tok->merge_ranks)
        merge = tok_pair_find(tok, tok_pair_key(r->symbols[at], r->symbols[gone]));
    r->symbols[at] = tok->merge_ids[merge];
    r->candidates[at] = r->candidates[gone] = NO_CANDIDATE;
    r->alive ^= UINT64_C(1) << gone;
    right &= right - 1; /* ...and those left of them */
    if (right) r->candidates[at] = pair_candidate(tok, r, at, __builtin_ctzll(right));
    uint64_t left = r->alive & ((UINT64_C(1) << at) - 1);
    if (!left) return;
    int before = 63 - __builtin_clzll(left);
    r->candidates[before] = pair_candidate(tok, r, before, at);
}

size_t sl_tok_bpe_short(const tokenizer *tok, const uint8_t *piece, size_t n, int32_t *out) {
    row r;
    int count = (int)first_symbols(tok, piece, n, r.symbols), kept = 0;
    if (count == 0) return 0;
    r.alive = ~UINT64_C(0) >> (64 - count);
    find_candidates(tok, piece, tok->byte_pairs && count == (int)n, &r, count);
    for (uint32_t top; (top = least(r.candidates, count)) != NO_CANDIDATE;)
        merge_short(tok, &r, top >> 6, top & 63);
    for (uint64_t alive = r.alive; alive; alive &= alive - 1)
        r.symbols[kept++] = r.symbols[__builtin_ctzll(alive)];
    return emit(tok, piece, n, r.symbols, (size_t)kept, out);
}

/* ---- long pieces ----
 * Symbols form a linked list by place; n stands for none. A merged symbol keeps its left place. The
 * heap holds rank << 32 | place of pairs, and an entry is stale when that rank is no longer its
 * place's. */

static void heap_sink(uint64_t *heap, size_t n, uint64_t item) {
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= item) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

static bool heap_push(tok_bpe_scratch *s, uint64_t item) {
    if (!sl_reserve(&s->heap, &s->heap_capacity, s->n_heap + 1, sizeof *s->heap)) return false;
    size_t i = s->n_heap++;
    for (; i > 0 && item < s->heap[(i - 1) / 2]; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = item;
    return true;
}

static uint64_t heap_pop(tok_bpe_scratch *s) {
    uint64_t top = s->heap[0];
    if (--s->n_heap) heap_sink(s->heap, s->n_heap, s->heap[s->n_heap]);
    return top;
}

/* Rank the pair that begins at symbol i anew. */
static bool offer(const tokenizer *tok, tok_bpe_scratch *s, uint32_t i, size_t n) {
    if (i >= n) return true;
    s->ranks[i] = TOK_NO_MERGE;
    if (s->after[i] >= n) return true;
    uint64_t key = tok_pair_key(s->symbols[i], s->symbols[s->after[i]]);
    uint32_t rank = rank_of(tok, tok_pair_find(tok, key));
    s->ranks[i] = rank;
    return rank == TOK_NO_MERGE || heap_push(s, (uint64_t)rank << 32 | i);
}

static bool reserve(tok_bpe_scratch *s, size_t n) {
    if (n <= s->capacity) return true;
    if (n >= UINT32_MAX / 4) return false;
    free(s->symbols);
    s->capacity = 0;
    s->symbols = malloc(n * 4 * sizeof(int32_t));
    if (!s->symbols) return false;
    s->before = (uint32_t *)(s->symbols + n);
    s->after = s->before + n;
    s->ranks = s->after + n;
    s->capacity = n;
    return true;
}

/* Merge the symbol at `at` with the next one. */
static bool merge_at(const tokenizer *tok, tok_bpe_scratch *s, uint32_t at, size_t n) {
    uint32_t gone = s->after[at], merge = s->ranks[at];
    if (tok->merge_ranks)
        merge = tok_pair_find(tok, tok_pair_key(s->symbols[at], s->symbols[gone]));
    s->symbols[at] = tok->merge_ids[merge];
    s->ranks[gone] = TOK_NO_MERGE;
    s->after[at] = s->after[gone];
    if (s->after[at] < n) s->before[s->after[at]] = at;
    return offer(tok, s, s->before[at], n) && offer(tok, s, at, n);
}

static bool merge_long(const tokenizer *tok, tok_bpe_scratch *s, size_t n) {
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->before[i] = i ? i - 1 : (uint32_t)n;
        s->after[i] = i + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!offer(tok, s, i, n)) return false;
    while (s->n_heap) {
        uint64_t top = heap_pop(s);
        uint32_t at = (uint32_t)top;
        if (s->ranks[at] == top >> 32 && !merge_at(tok, s, at, n)) return false;
    }
    return true;
}

size_t sl_tok_bpe_long(const tokenizer *tok, tok_bpe_scratch *s, const uint8_t *piece, size_t n,
                       int32_t *out) {
    if (!reserve(s, n)) return SIZE_MAX;
    size_t count = first_symbols(tok, piece, n, s->symbols);
    if (!merge_long(tok, s, count)) return SIZE_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < count; i = s->after[i]) s->symbols[kept++] = s->symbols[i];
    return emit(tok, piece, n, s->symbols, kept, out);
}

size_t sl_tok_bpe(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
                  int32_t *out) {
    if (n <= TOK_SHORT_PIECE) return sl_tok_bpe_short(tok, piece, n, out);
    return sl_tok_bpe_long(tok, scratch, piece, n, out);
}

void sl_tok_bpe_scratch_free(tok_bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (tok_bpe_scratch){0};
}

/* ---- workers ----
 * Pieces go through in batches: split, then hash and prefetch, then look up, so that the misses of a batch
 * overlap. */

#define BATCH 256

struct tok_worker {
    const tokenizer *tok;
    bool continues; /* sl_tok_worker_continue() */
    tok_cache cache;
    tok_bpe_scratch bpe;
    tok_normaliser normaliser;
    void *custom;
    id_list ids; /* of one batch, when counting */
    size_t ends[BATCH];
    tok_key keys[BATCH];
    uint32_t sets[BATCH];
};

/* Where ids go: appended to a list, or counted. */
typedef struct sink {
    id_list *list;
    uint64_t *counts, *n_tokens;
} sink;

specrt_status sl_tok_worker_create(const tokenizer *tok, tok_worker **out, specrt_error *err) {
    tok_worker *w = calloc(1, sizeof *w);
    bool ok = w && sl_tok_cache_init(&w->cache);
    if (ok) w->tok = tok;
    if (ok && tok->custom.scratch_new)
        ok = (w->custom = tok->custom.scratch_new(tok->custom.state)) != NULL;
    *out = ok ? w : NULL;
    if (ok) return SPECRT_STATUS_OK;
    sl_tok_worker_free(w);
    return sl_error_no_memory(err, "tokenizer");
}

void sl_tok_worker_free(tok_worker *w) {
    if (!w) return;
    if (w->custom && w->tok->custom.scratch_free) w->tok->custom.scratch_free(w->custom);
    sl_tok_cache_free(&w->cache);
    sl_tok_bpe_scratch_free(&w->bpe);
    sl_tok_normaliser_free(&w->normaliser);
    free(w->ids.ids);
    free(w);
}

void sl_tok_worker_continue(tok_worker *w, bool continues) {
    w->continues = continues;
}

/* Room for `more` ids. */
static bool reserve_ids(id_list *list, size_t more) {
    return sl_reserve(&list->ids, &list->capacity, list->n + more, sizeof *list->ids);
}

/* ---- one piece ---- */

/* A piece the cache does not know: a token as it stands, or merged. @return ids; SIZE_MAX: no memory */
static size_t encode_new(tok_worker *w, tok_key key, const uint8_t *piece, size_t n, int32_t *out) {
    const tokenizer *tok = w->tok;
    size_t count = 0;
    if (tok->ignore_merges) {
        int32_t id = n <= TOK_CACHE_MAX_BYTES ? sl_tok_find_key(tok, key, piece, n)
                                              : sl_tok_find_symbol(tok, piece, n);
        if (id != TOK_NONE && id < tok->n_vocab) out[count++] = id;
    }
    if (!count) count = sl_tok_bpe(tok, &w->bpe, piece, n, out);
    if (n <= TOK_CACHE_MAX_BYTES && count != SIZE_MAX)
        sl_tok_cache_put(&w->cache, key, piece, n, out, count);
    return count;
}

/* A piece that is in a record of the cache (slot), or new. */
static size_t encode_slow(tok_worker *w, const tok_slot *slot, tok_key key, const uint8_t *piece,
                          size_t n, int32_t *out) {
    size_t count;
    const int32_t *ids = slot ? sl_tok_cache_ids(&w->cache, slot, piece, n, &count) : NULL;
    if (!ids) return encode_new(w, key, piece, n, out);
    memcpy(out, ids, count * sizeof *out);
    return count;
}

/* ---- one batch ---- */

static void prepare_batch(tok_worker *w, const uint8_t *text, size_t n, size_t from,
                          size_t n_pieces) {
    for (size_t i = 0; i < n_pieces; i++) {
        size_t end = w->ends[i] & ~TOK_PIECE_DROPPED, piece_n = end - from;
        tok_key key = piece_n > TOK_CACHE_MAX_BYTES ? TOK_KEY_NONE
                                                    : tok_key_make(text + from, piece_n, n - from);
        size_t set = tok_cache_set(key);
        w->keys[i] = key;
        w->sets[i] = (uint32_t)set;
        __builtin_prefetch(w->cache.sets[set]);
        from = end;
    }
}

/* @return the ids written at `out`, which has room for one per byte and three more; SIZE_MAX: no
 * memory. */
static size_t encode_batch(tok_worker *w, const uint8_t *text, size_t n, size_t from,
                           size_t n_pieces, int32_t *out) {
    prepare_batch(w, text, n, from, n_pieces);
    int32_t *begin = out;
    for (size_t i = 0; i < n_pieces; i++) {
        size_t end = w->ends[i] & ~TOK_PIECE_DROPPED;
        const tok_slot *slot = tok_cache_find(&w->cache, w->keys[i], w->sets[i]);
        if (w->ends[i] & TOK_PIECE_DROPPED) {
            from = end;
            continue;
        }
        if (slot && slot->n_ids <= TOK_CACHE_INLINE_IDS) {
            memcpy(out, slot->ids, sizeof slot->ids);
            out += slot->n_ids;
        } else {
            size_t count = encode_slow(w, slot, w->keys[i], text + from, end - from, out);
            if (count == SIZE_MAX) return SIZE_MAX;
            out += count;
        }
        from = end;
    }
    return (size_t)(out - begin);
}

static bool put_batch(tok_worker *w, const sink *to, const uint8_t *text, size_t n, size_t from,
                      size_t n_pieces) {
    id_list *list = to->list ? to->list : &w->ids;
    if (!to->list) list->n = 0;
    size_t end = w->ends[n_pieces - 1] & ~TOK_PIECE_DROPPED;
    if (!reserve_ids(list, end - from + TOK_CACHE_INLINE_IDS)) return false;
    int32_t *ids = list->ids + list->n;
    size_t count = encode_batch(w, text, n, from, n_pieces, ids);
    if (count == SIZE_MAX) return false;
    list->n += count;
    if (to->list) return true;
    for (size_t i = 0; i < count; i++) to->counts[ids[i]]++;
    *to->n_tokens += count;
    return true;
}

/* ---- documents ---- */

static size_t split(tok_worker *w, const uint8_t *text, size_t n, size_t from) {
    const tokenizer *tok = w->tok;
    if (tok->split == TOK_SPLIT_CUSTOM)
        return tok->custom.next(tok->custom.state, w->custom, text, n, from, w->ends, BATCH);
    return sl_tok_split(tok->unicode, tok->split, text, n, from, w->ends, BATCH);
}

static bool put_id(const sink *to, int32_t id) {
    if (to->list) {
        if (!reserve_ids(to->list, 1)) return false;
        to->list->ids[to->list->n++] = id;
    } else {
        to->counts[id]++;
        ++*to->n_tokens;
    }
    return true;
}

/* Text between raw tokens, normalised. */
static bool put_text(tok_worker *w, const sink *to, bool first, const uint8_t *text, size_t n) {
    if (!sl_tok_prefix_missing(w->tok, &w->normaliser, first, &text, &n)) return false;
    for (size_t from = 0; from < n;) {
        size_t n_pieces = split(w, text, n, from);
        if (n_pieces == 0 || !put_batch(w, to, text, n, from, n_pieces)) return false;
        from = w->ends[n_pieces - 1] & ~TOK_PIECE_DROPPED;
    }
    return true;
}

static bool put_segment(tok_worker *w, const sink *to, bool first, const uint8_t *text, size_t n);

/* The raw tokens of one set and what lies between them: segments to normalise, or text that is. */
static bool put_between(tok_worker *w, const sink *to, int set, bool first, const uint8_t *text,
                        size_t n) {
    tok_raw_scan scan = {.tok = w->tok, .set = &w->tok->raw[set], .text = text, .n = n};
    size_t done = 0, begin, end;
    for (int32_t id = 0; id >= 0; done = end) {
        id = sl_tok_raw_next(&scan, &begin, &end);
        if (id < 0) begin = end = n;
        bool ok = true;
        if (begin > done && set == 0) ok = put_segment(w, to, done == 0, text + done, begin - done);
        if (begin > done && set == 1)
            ok = put_text(w, to, first && done == 0, text + done, begin - done);
        if (!ok || (id >= 0 && !put_id(to, id))) return false;
    }
    return true;
}

static bool put_segment(tok_worker *w, const sink *to, bool first, const uint8_t *text, size_t n) {
    w->normaliser.no_prefix = first && w->continues;
    return sl_tok_normalise(w->tok, &w->normaliser, &text, &n) &&
           put_between(w, to, 1, first, text, n);
}

static specrt_status run(tok_worker *w, const sink *to, const char *text, size_t n) {
    bool ok = put_between(w, to, 0, true, (const uint8_t *)text, n);
    return ok ? SPECRT_STATUS_OK : SPECRT_STATUS_NO_MEMORY;
}

specrt_status sl_tok_encode(tok_worker *w, const char *text, size_t n, id_list *out) {
    return run(w, &(sink){.list = out}, text, n);
}

specrt_status sl_tok_count(tok_worker *w, const char *text, size_t n, uint64_t *counts,
                           uint64_t *n_tokens) {
    return run(w, &(sink){.counts = counts, .n_tokens = n_tokens}, text, n);
}
