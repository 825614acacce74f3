/* tok_bpe.c : byte-pair merging. A piece becomes a row of symbols; the adjacent pair of lowest rank
 * merges, the leftmost of equals, until no pair has a rank. Short pieces rescan an array of ranks,
 * long ones keep candidates in a heap, O(n log n). */
#include "tok_bpe.h"

#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX

/* The merge of a pair, or NO_RANK. */
static inline uint32_t find_merge(const tokenizer *tok, int32_t left, int32_t right) {
    uint64_t key = tok_pair_key(left, right);
    size_t mask = SIZE_MAX >> tok->pair_shift;
    for (size_t i = tok_pair_slot(tok, key);; i = (i + 1) & mask) {
        uint64_t pair = tok->pairs[i];
        if (pair >> TOK_MERGE_BITS == key) return pair & ((1u << TOK_MERGE_BITS) - 1);
        if (pair == TOK_PAIR_EMPTY) return NO_RANK;
    }
}

static inline uint32_t find_rank(const tokenizer *tok, int32_t left, int32_t right) {
    uint32_t merge = find_merge(tok, left, right);
    return merge != NO_RANK && tok->merge_ranks ? tok->merge_ranks[merge] : merge;
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
            symbol = tok_find_symbol(tok, piece + i, (size_t)len);
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

size_t tok_bpe_short(const tokenizer *tok, const uint8_t *piece, size_t n, int32_t *out) {
    int32_t symbols[TOK_SHORT_PIECE];
    uint32_t ranks[TOK_SHORT_PIECE]; /* of the pair that begins here */
    size_t count = first_symbols(tok, piece, n, symbols);
    for (size_t i = 0; i + 1 < count; i++) ranks[i] = find_rank(tok, symbols[i], symbols[i + 1]);
    while (count > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[at]) at = i;
        if (ranks[at] == NO_RANK) break;
        symbols[at] = tok->merge_ids[find_merge(tok, symbols[at], symbols[at + 1])];
        count--;
        for (size_t i = at + 1; i < count; i++) symbols[i] = symbols[i + 1];
        for (size_t i = at + 1; i + 1 < count; i++) ranks[i] = ranks[i + 1];
        if (at > 0) ranks[at - 1] = find_rank(tok, symbols[at - 1], symbols[at]);
        if (at + 1 < count) ranks[at] = find_rank(tok, symbols[at], symbols[at + 1]);
    }
    return emit(tok, piece, n, symbols, count, out);
}

/* ---- long pieces ---- */

static bool item_less(tok_heap_item a, tok_heap_item b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_sink(tok_heap_item *heap, size_t n, size_t i) {
    tok_heap_item item = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && item_less(heap[child + 1], heap[child])) child++;
        if (!item_less(heap[child], item)) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

static bool heap_push(tok_bpe_scratch *s, tok_heap_item item) {
    if (s->n_heap == s->heap_capacity) {
        size_t capacity = s->heap_capacity + s->heap_capacity / 2 + 64;
        tok_heap_item *heap = realloc(s->heap, capacity * sizeof *heap);
        if (!heap) return false;
        s->heap = heap;
        s->heap_capacity = capacity;
    }
    size_t i = s->n_heap++;
    for (; i > 0 && item_less(item, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = item;
    return true;
}

static tok_heap_item heap_pop(tok_bpe_scratch *s) {
    tok_heap_item top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    heap_sink(s->heap, s->n_heap, 0);
    return top;
}

/* Offer the pair that begins at symbol i, if it merges. */
static bool offer(const tokenizer *tok, tok_bpe_scratch *s, uint32_t i, size_t n) {
    if (i >= n || s->after[i] >= n) return true;
    int32_t left = s->symbols[i], right = s->symbols[s->after[i]];
    uint32_t rank = find_rank(tok, left, right);
    return rank == NO_RANK || heap_push(s, (tok_heap_item){rank, i, left, right});
}

static bool reserve(tok_bpe_scratch *s, size_t n) {
    if (n <= s->capacity) return true;
    if (n >= UINT32_MAX / 2) return false;
    free(s->symbols);
    s->capacity = 0;
    s->symbols = malloc(n * 3 * sizeof(int32_t));
    if (!s->symbols) return false;
    s->before = (uint32_t *)(s->symbols + n);
    s->after = s->before + n;
    s->capacity = n;
    return true;
}

/* Symbols in a linked list by index; n stands for none. A merged symbol stays at its left index and
 * its right index becomes dead, so a candidate is stale when its pair is no longer what it was. */
static bool merge_long(const tokenizer *tok, tok_bpe_scratch *s, size_t n) {
    const int32_t dead = TOK_NONE - 1;
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->before[i] = i ? i - 1 : (uint32_t)n;
        s->after[i] = i + 1;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        if (!offer(tok, s, i, n)) return false;
    while (s->n_heap) {
        tok_heap_item top = heap_pop(s);
        uint32_t right = s->after[top.at];
        if (s->symbols[top.at] != top.left || right >= n || s->symbols[right] != top.right)
            continue;
        s->symbols[top.at] = tok->merge_ids[find_merge(tok, top.left, top.right)];
        s->symbols[right] = dead;
        s->after[top.at] = s->after[right];
        if (s->after[right] < n) s->before[s->after[right]] = top.at;
        if (!offer(tok, s, s->before[top.at], n) || !offer(tok, s, top.at, n)) return false;
    }
    return true;
}

size_t tok_bpe_long(const tokenizer *tok, tok_bpe_scratch *s, const uint8_t *piece, size_t n,
                    int32_t *out) {
    if (!reserve(s, n)) return SIZE_MAX;
    size_t count = first_symbols(tok, piece, n, s->symbols);
    if (!merge_long(tok, s, count)) return SIZE_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < count; i = s->after[i]) s->symbols[kept++] = s->symbols[i];
    return emit(tok, piece, n, s->symbols, kept, out);
}

size_t tok_bpe(const tokenizer *tok, tok_bpe_scratch *scratch, const uint8_t *piece, size_t n,
               int32_t *out) {
    if (n <= TOK_SHORT_PIECE) return tok_bpe_short(tok, piece, n, out);
    return tok_bpe_long(tok, scratch, piece, n, out);
}

void tok_bpe_scratch_free(tok_bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (tok_bpe_scratch){0};
}
