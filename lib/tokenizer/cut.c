/* cut.c : the pairs of characters that occur inside tokens, exact for ASCII, hashed for others (an
 * accident there only saves a cut). */
#include "tokenizer/cut.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

#define HASH_BITS 18

typedef struct pair_set {
    uint64_t ascii[128][2];
    uint64_t others[(1 << HASH_BITS) / 64];
} pair_set;

static inline uint32_t hash_pair(uint32_t a, uint32_t b) {
    return (a * 0x9E3779B1u + b * 0x85EBCA77u) >> (32 - HASH_BITS);
}

static inline bool side_by_side(const pair_set *set, uint32_t a, uint32_t b) {
    if ((a | b) < 128) return set->ascii[a][b / 64] >> b % 64 & 1;
    uint32_t h = hash_pair(a, b);
    return set->others[h / 64] >> h % 64 & 1;
}

static void add_pair(pair_set *set, uint32_t a, uint32_t b) {
    uint32_t h = hash_pair(a, b);
    if ((a | b) < 128)
        set->ascii[a][b / 64] |= (uint64_t)1 << b % 64;
    else
        set->others[h / 64] |= (uint64_t)1 << h % 64;
}

static void add_token(pair_set *set, const uint8_t *bytes, size_t n) {
    int len;
    uint32_t before = tok_decode(bytes, bytes + n, &len);
    for (size_t i = (size_t)len; i < n; i += (size_t)len) {
        uint32_t cp = tok_decode(bytes + i, bytes + n, &len);
        add_pair(set, before, cp);
        before = cp;
    }
}

static size_t next_ends(const void *state, void *scratch, const uint8_t *text, size_t n,
                        size_t from, size_t *ends, size_t max) {
    const pair_set *set = state;
    int len;
    size_t count = 0;
    (void)scratch;
    uint32_t before = tok_decode(text + from, text + n, &len);
    for (size_t p = from + (size_t)len; p < n; p += (size_t)len) {
        uint32_t cp = text[p];
        len = 1;
        if (cp >= 0x80) cp = tok_decode(text + p, text + n, &len);
        if (!side_by_side(set, before, cp)) ends[count++] = p;
        if (count == max) return count;
        before = cp;
    }
    ends[count++] = n;
    return count;
}

/* Not where unknown characters fuse with their neighbours or vanish from between them, nor where a
 * piece is looked up whole. */
static bool is_sound(const tokenizer *tok) {
    int n_bytes = 0;
    for (int32_t id = 0; id < tok->n_vocab; id++)
        n_bytes += (tok->tokens[id].flags & TOK_FLAG_BYTE) != 0;
    bool all_known = tok->byte_fallback && n_bytes == 256;
    bool apart = tok->unknown_id != TOK_NONE && !tok->fuse_unknown;
    return tok->split == TOK_SPLIT_NONE && tok->chars && !tok->ignore_merges &&
           (all_known || apart);
}

specrt_status sl_tok_cut_use(tokenizer *tok, specrt_error *err) {
    if (!is_sound(tok)) return SPECRT_STATUS_OK;
    pair_set *set = calloc(1, sizeof *set);
    if (!set) return sl_error_no_memory(err, tok->path);
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (sl_tok_is_symbol(tok, id))
            add_token(set, tok->pool + tok->tokens[id].offset, tok->tokens[id].n);
    tok->split = TOK_SPLIT_CUSTOM;
    tok->custom = (tok_custom_split){.next = next_ends, .state_free = free, .state = set};
    return SPECRT_STATUS_OK;
}
