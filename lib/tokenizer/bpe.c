/* bpe.c : byte-pair merging. A piece becomes a row of symbols; the adjacent pair of lowest rank
 * merges, the leftmost of equals, until no pair has a rank. Short pieces rescan an array of ranks,
 * long ones keep candidates in a heap, O(n log n). */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

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
    if (s->n_heap == s->heap_capacity) {
        size_t capacity = s->heap_capacity + s->heap_capacity / 2 + 64;
        uint64_t *heap = realloc(s->heap, capacity * sizeof *heap);
        if (!heap) return false;
        s->heap = heap;
        s->heap_capacity = capacity;
    }
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
