/* build.c : filling a tokenizer, and compiling what a loader filled: the index of token bytes, the pair table
 * that merging reads, the list of tokens matched in raw text, tables by byte, the fingerprint. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

/* ---- filling ---- */

specrt_status sl_tok_reserve_ids(tokenizer *tok, int32_t n, specrt_error *err) {
    if (n > TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: token id %d; expected ids below %d", tok->path, n - 1,
                                TOK_MAX_VOCAB);
    if (n <= tok->n_vocab) return SPECRT_STATUS_OK;
    if (!sl_reserve(&tok->tokens, &tok->tokens_capacity, (size_t)n, sizeof *tok->tokens))
        return sl_error_no_memory(err, tok->path);
    for (int32_t id = tok->n_vocab; id < n; id++)
        tok->tokens[id] = (tok_token){.type = TOKEN_RESERVED};
    tok->n_vocab = tok->n_symbols = n;
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_pool_append(tokenizer *tok, const void *bytes, size_t n, uint32_t *offset,
                                 specrt_error *err) {
    if (n > UINT32_MAX - tok->pool_n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: more than 4 GiB of token text; expected less", tok->path);
    if (!sl_reserve(&tok->pool, &tok->pool_capacity, tok->pool_n + n + 1, 1))
        return sl_error_no_memory(err, tok->path);
    if (n) memcpy(tok->pool + tok->pool_n, bytes, n);
    *offset = (uint32_t)tok->pool_n;
    tok->pool_n += n;
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_set_token(tokenizer *tok, int32_t id, const void *bytes, size_t n,
                               token_type type, unsigned flags, specrt_error *err) {
    if (id < 0 || id >= TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: token id %d; expected 0 to %d",
                                tok->path, id, TOK_MAX_VOCAB - 1);
    if (n == 0 || n > TOK_MAX_TOKEN_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: token %d has %zu bytes; expected 1 to %d", tok->path, id, n,
                                TOK_MAX_TOKEN_BYTES);
    specrt_status status = sl_tok_reserve_ids(tok, id + 1, err);
    if (status) return status;
    tok_token *token = &tok->tokens[id];
    if (token->n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: token id %d is defined twice",
                                tok->path, id);
    token->type = (uint8_t)type;
    token->flags = (uint8_t)flags;
    token->n = (uint32_t)n;
    return sl_tok_pool_append(tok, bytes, n, &token->offset, err);
}

specrt_status sl_tok_set_score(tokenizer *tok, int32_t id, float score, specrt_error *err) {
    size_t need = (size_t)id + 1;
    if (score != score)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: score of token %d is not a number", tok->path, id);
    if (!sl_reserve(&tok->scores, &tok->scores_capacity, need, sizeof *tok->scores))
        return sl_error_no_memory(err, tok->path);
    for (; tok->n_scores < need; tok->n_scores++) tok->scores[tok->n_scores] = 0;
    tok->scores[id] = score;
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_add_normal(tokenizer *tok, tok_normal_kind kind, const char *from,
                                size_t n_from, const char *to, size_t n_to, specrt_error *err) {
    if (tok->n_normals == TOK_MAX_NORMALS || n_from > TOK_MAX_TOKEN_BYTES ||
        n_to > TOK_MAX_TOKEN_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: normalizer has more than %d steps or a text of over %d bytes",
                                tok->path, TOK_MAX_NORMALS, TOK_MAX_TOKEN_BYTES);
    tok_normal *step = &tok->normals[tok->n_normals++];
    *step = (tok_normal){.kind = kind, .n_from = (uint32_t)n_from, .n_to = (uint32_t)n_to};
    TRY(sl_tok_pool_append(tok, from, n_from, &step->from, err));
    return sl_tok_pool_append(tok, to, n_to, &step->to, err);
}

specrt_status sl_tok_add_merge(tokenizer *tok, int32_t left, int32_t right, int32_t merged,
                               specrt_error *err) {
    if (tok->n_merges == TOK_MAX_MERGES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: more than %d merges", tok->path,
                                TOK_MAX_MERGES);
    tok_merge *merge = sl_more(&tok->merges, tok->n_merges, sizeof *merge);
    if (!merge) return sl_error_no_memory(err, tok->path);
    *merge = (tok_merge){left, right, merged};
    tok->n_merges++;
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_add_terminator(tokenizer *tok, int32_t id, specrt_error *err) {
    int32_t i = 0, n = tok->n_terminators;
    while (i < n && tok->terminators[i] < id) i++;
    if (i < n && tok->terminators[i] == id) return SPECRT_STATUS_OK;
    if (!sl_more(&tok->terminators, (size_t)n, sizeof *tok->terminators))
        return sl_error_no_memory(err, tok->path);
    memmove(tok->terminators + i + 1, tok->terminators + i, (size_t)(n - i) * sizeof(int32_t));
    tok->terminators[i] = id;
    tok->n_terminators++;
    return SPECRT_STATUS_OK;
}

/* ---- index: bytes -> symbol ---- */

static bool same_bytes(const tokenizer *tok, int32_t id, const uint8_t *bytes, size_t n) {
    return n <= TOK_KEY_BYTES || memcmp(tok->pool + tok->tokens[id].offset, bytes, n) == 0;
}

/* The slot of a key, or the empty one where it belongs. */
static tok_index_slot *index_slot(const tokenizer *tok, tok_key key, const uint8_t *bytes,
                                  size_t n) {
    size_t mask = SIZE_MAX >> tok->index_shift;
    for (size_t i = (size_t)(tok_key_hash(key) >> tok->index_shift);; i = (i + 1) & mask) {
        tok_index_slot *slot = &tok->index[i];
        if (slot->id == TOK_NONE) return slot;
        if (tok_key_equal(slot->key, key) && same_bytes(tok, slot->id, bytes, n)) return slot;
    }
}

int32_t sl_tok_find_key(const tokenizer *tok, tok_key key, const uint8_t *bytes, size_t n) {
    return index_slot(tok, key, bytes, n)->id;
}

int32_t sl_tok_find_symbol(const tokenizer *tok, const void *bytes, size_t n) {
    if (n == 0 || !tok->index) return TOK_NONE;
    return sl_tok_find_key(tok, tok_key_make(bytes, n, n), bytes, n);
}

/* Unless another has the same bytes. */
static void index_add(tokenizer *tok, int32_t id) {
    const tok_token *token = &tok->tokens[id];
    const uint8_t *bytes = tok->pool + token->offset;
    tok_key key = tok_key_make(bytes, token->n, token->n);
    tok_index_slot *slot = index_slot(tok, key, bytes, token->n);
    if (slot->id == TOK_NONE) *slot = (tok_index_slot){key, id};
}

/* Whether merging can see a token, so that sl_tok_find_symbol() may find it. */
static bool is_symbol(const tokenizer *tok, int32_t id) {
    const tok_token *token = &tok->tokens[id];
    return token->n && (id >= tok->n_vocab || token->flags & TOK_FLAG_MERGED ||
                        (token->type == TOKEN_NORMAL && !(token->flags & TOK_FLAG_BYTE)));
}

specrt_status sl_tok_index(tokenizer *tok, specrt_error *err) {
    int bits = 4;
    while ((size_t)1 << bits < 2 * (size_t)tok->n_symbols) bits++;
    free(tok->index);
    tok->index = malloc(((size_t)1 << bits) * sizeof *tok->index);
    if (!tok->index) return sl_error_no_memory(err, tok->path);
    tok->index_shift = 64 - bits;
    for (size_t i = 0; i < (size_t)1 << bits; i++) tok->index[i].id = TOK_NONE;
    for (int32_t id = 0; id < tok->n_symbols; id++)
        if (is_symbol(tok, id)) index_add(tok, id);
    return SPECRT_STATUS_OK;
}

/* The bytes [offset, offset + n) of the pool become a symbol without an id of the vocabulary. */
static specrt_status add_extra_symbol(tokenizer *tok, uint32_t offset, int n, specrt_error *err) {
    size_t need = (size_t)tok->n_symbols + 1;
    if (tok->n_symbols == TOK_MAX_VOCAB ||
        !sl_reserve(&tok->tokens, &tok->tokens_capacity, need, sizeof *tok->tokens))
        return sl_error_no_memory(err, tok->path);
    tok->tokens[tok->n_symbols++] =
        (tok_token){.offset = offset, .n = (uint32_t)n, .type = TOKEN_RESERVED};
    if (need > (SIZE_MAX >> tok->index_shift) / 4 * 3) return sl_tok_index(tok, err);
    index_add(tok, tok->n_symbols - 1);
    return SPECRT_STATUS_OK;
}

/* Merging starts from code points; one that only occurs inside tokens becomes a symbol too. */
static specrt_status index_extras(tokenizer *tok, specrt_error *err) {
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token token = tok->tokens[id];
        if (!is_symbol(tok, id)) continue;
        for (uint32_t i = 0; i < token.n;) {
            int len;
            const uint8_t *p = tok->pool + token.offset + i;
            tok_decode(p, p + token.n - i, &len);
            if (sl_tok_find_symbol(tok, p, (size_t)len) == TOK_NONE) {
                specrt_status status = add_extra_symbol(tok, token.offset + i, len, err);
                if (status) return status;
            }
            i += (uint32_t)len;
        }
    }
    return SPECRT_STATUS_OK;
}

/* ---- spellings of tokens in vocabulary files ---- */

/* GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the other 68 in ascending
 * order for U+0100 and on. @return 0..255, or -1. */
static int byte_of_letter(uint32_t cp) {
    bool printable =
        (cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF);
    if (printable) return (int)cp;
    if (cp >= 0x100 && cp <= 0x120) return (int)cp - 0x100;        /* 0x00..0x20 */
    if (cp >= 0x121 && cp <= 0x142) return (int)cp - 0x121 + 0x7F; /* 0x7F..0xA0 */
    return cp == 0x143 ? 0xAD : -1;
}

static size_t unspell_bytes(const uint8_t *text, size_t n, uint8_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int len, byte = byte_of_letter(utf8_next(text + i, &len));
        if (byte < 0) return 0;
        out[count++] = (uint8_t)byte;
        i += (size_t)len;
    }
    return count;
}

/* A space in the file itself never meets a text, whose spaces become U+2581 first. */
static size_t unspell_spaces(const uint8_t *text, size_t n, uint8_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        if (text[i] == ' ') return 0;
        bool mark = n - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        out[count++] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    return count;
}

size_t sl_tok_unspell(tok_spelling spelling, const char *text, size_t n, uint8_t *out) {
    if (sl_utf8_valid(text, n) != n) return 0;
    if (spelling == TOK_SPELL_BYTE_LEVEL) return unspell_bytes((const uint8_t *)text, n, out);
    if (spelling == TOK_SPELL_SPACES) return unspell_spaces((const uint8_t *)text, n, out);
    memcpy(out, text, n);
    return n;
}

int sl_tok_byte_token(const char *text, size_t n) {
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

/* ---- names ---- */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The letters and digits of a name, lower-case: "<|Reserved_Token_3|>" is "reservedtoken3". */
static size_t bare_name(const char *text, size_t n, char *out, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < n && count + 1 < capacity; i++) {
        char c = lower(text[i]);
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out[count++] = c;
    }
    out[count] = 0;
    return count;
}

token_type sl_tok_special_type(const char *text, size_t n) {
    static const char *const words[] = {
        "reserved", "reservedspecialtoken", "reservedtoken", "unused",  "unusedtoken", "pad",
        "extra",    "placeholder",          "dummy",         "special", "control",     "fakepad",
    };
    char name[40];
    size_t length = bare_name(text, n, name, sizeof name), stem = length;
    bool bracketed = n > 2 && strchr("<[", text[0]) && strchr(">]", text[n - 1]);
    while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9') stem--;
    if (!bracketed || stem == length) return TOKEN_SPECIAL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == stem && memcmp(words[i], name, stem) == 0) return TOKEN_RESERVED;
    return TOKEN_SPECIAL;
}

static int32_t find_special(const tokenizer *tok, const char *name) {
    int32_t id = sl_tokenizer_find(tok, name, strlen(name));
    return id != TOK_NONE && tok->tokens[id].type == TOKEN_SPECIAL ? id : TOK_NONE;
}

specrt_status sl_tok_add_named_terminators(tokenizer *tok, specrt_error *err) {
    static const char *const names[] = {
        "</s>",
        "<eos>",
        "[EOS]",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endofturn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<turn|>",
        "<|tool_response>", /* where Gemma 4 waits for a tool */
        "<|return|>",
        "<|call|>",
        "<EOT>",
        "[EOT]",
        "<end_of_utterance>",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), /* DeepSeek's */
    };
    /* In gpt-oss <|end|> closes a message, and the turn goes on. */
    bool harmony = find_special(tok, "<|return|>") >= 0 && find_special(tok, "<|call|>") >= 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = find_special(tok, names[i]);
        if (id == TOK_NONE || (harmony && strcmp(names[i], "<|end|>") == 0)) continue;
        specrt_status status = sl_tok_add_terminator(tok, id, err);
        if (status) return status;
    }
    return SPECRT_STATUS_OK;
}

/* ---- cutting text that no splitter cuts ----
 * Merging never joins two characters that stand side by side in no token, so between them a piece may end
 * without changing any id; words then repeat and the cache knows them. The pairs that occur inside tokens are
 * exact for ASCII, hashed for others (an accident there only saves a cut). */

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

static specrt_status use_cuts(tokenizer *tok, specrt_error *err) {
    if (!is_sound(tok)) return SPECRT_STATUS_OK;
    pair_set *set = calloc(1, sizeof *set);
    if (!set) return sl_error_no_memory(err, tok->path);
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (is_symbol(tok, id))
            add_token(set, tok->pool + tok->tokens[id].offset, tok->tokens[id].n);
    tok->split = TOK_SPLIT_CUSTOM;
    tok->custom = (tok_custom_split){.next = next_ends, .state_free = free, .state = set};
    return SPECRT_STATUS_OK;
}

/* ---- pair table ---- */

typedef struct pair_list {
    uint64_t *pairs; /* tok_pair_make() */
    size_t n;
} pair_list;

static bool pair_append(pair_list *list, int32_t left, int32_t right, size_t merge) {
    if (!sl_more(&list->pairs, list->n, sizeof *list->pairs)) return false;
    list->pairs[list->n++] = tok_pair_make(left, right, (uint32_t)merge);
    return true;
}

/* All ways to cut a token into two symbols. */
static bool pairs_of_token(const tokenizer *tok, int32_t id, size_t merge, pair_list *list) {
    const tok_token *token = &tok->tokens[id];
    const uint8_t *bytes = tok->pool + token->offset;
    if (sl_tok_find_symbol(tok, bytes, token->n) != id) return true; /* equal bytes, higher id */
    for (uint32_t k = 1; k < token->n; k++) {
        int32_t left = sl_tok_find_symbol(tok, bytes, k);
        if (left == TOK_NONE) continue;
        int32_t right = sl_tok_find_symbol(tok, bytes + k, token->n - k);
        if (right != TOK_NONE && !pair_append(list, left, right, merge)) return false;
    }
    return true;
}

static specrt_status pairs_of_vocabulary(tokenizer *tok, pair_list *list, specrt_error *err) {
    for (size_t m = 0; m < tok->n_merges; m++) {
        int32_t id = tok->merge_ids[m];
        if (is_symbol(tok, id) && !pairs_of_token(tok, id, m, list))
            return sl_error_no_memory(err, tok->path);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status pairs_of_list(tokenizer *tok, pair_list *list, specrt_error *err) {
    for (size_t m = 0; m < tok->n_merges; m++) {
        tok_merge merge = tok->merges[m];
        tok->merge_ids[m] = merge.merged;
        if (!pair_append(list, merge.left, merge.right, m))
            return sl_error_no_memory(err, tok->path);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status build_pair_table(tokenizer *tok, const pair_list *list, specrt_error *err) {
    int bits = 1;
    while (((size_t)TOK_PAIR_BUCKET << bits) < list->n + list->n / 2) bits++;
    size_t n_buckets = (size_t)1 << bits, bytes = n_buckets * sizeof *tok->pairs;
    tok->pair_shift = 64 - bits;
    tok->pairs = aligned_alloc(sizeof *tok->pairs, bytes);
    if (!tok->pairs) return sl_error_no_memory(err, tok->path);
    memset(tok->pairs, 0xFF, bytes);
    for (size_t i = 0; i < list->n; i++) {
        uint64_t key = list->pairs[i] >> TOK_MERGE_BITS;
        if (tok_pair_find(tok, key) != TOK_NO_MERGE) continue; /* the first of equals counts */
        size_t bucket = tok_pair_bucket(tok, key), k = 0;
        while (tok->pairs[bucket][k] != TOK_PAIR_EMPTY)
            if (++k == TOK_PAIR_BUCKET) bucket = (bucket + 1) & (n_buckets - 1), k = 0;
        tok->pairs[bucket][k] = list->pairs[i];
    }
    return SPECRT_STATUS_OK;
}

/* Sort key of a token under TOK_MERGE_BY_SCORE. */
typedef struct scored_id {
    float score;
    int32_t id;
} scored_id;

static int compare_scored(const void *a, const void *b) {
    const scored_id *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Equal scores share a rank, so that the leftmost of them merges first. */
static specrt_status order_by_score(tokenizer *tok, specrt_error *err) {
    size_t n = tok->n_merges;
    scored_id *order = malloc(n * sizeof *order);
    tok->merge_ranks = malloc(n * sizeof *tok->merge_ranks);
    if (!order || !tok->merge_ranks) {
        free(order);
        return sl_error_no_memory(err, tok->path);
    }
    for (size_t i = 0; i < n; i++)
        order[i] = (scored_id){i < tok->n_scores ? tok->scores[i] : 0, (int32_t)i};
    qsort(order, n, sizeof *order, compare_scored);
    for (size_t i = 0; i < n; i++) {
        bool tie = i > 0 && order[i].score == order[i - 1].score;
        tok->merge_ids[i] = order[i].id;
        tok->merge_ranks[i] = tie ? tok->merge_ranks[i - 1] : (uint32_t)i;
    }
    free(order);
    return SPECRT_STATUS_OK;
}

static specrt_status build_pairs(tokenizer *tok, specrt_error *err) {
    bool listed = tok->merge_order == TOK_MERGE_LISTED;
    specrt_status status = SPECRT_STATUS_OK;
    pair_list list = {0};
    if (!listed && tok->chars) status = index_extras(tok, err);
    if (status) return status;
    if (!listed) tok->n_merges = (size_t)tok->n_vocab;
    tok->merge_ids = malloc((tok->n_merges + 1) * sizeof *tok->merge_ids);
    if (!tok->merge_ids) return sl_error_no_memory(err, tok->path);
    for (size_t i = 0; i < tok->n_merges; i++) tok->merge_ids[i] = (int32_t)i;
    if (tok->merge_order == TOK_MERGE_BY_SCORE) status = order_by_score(tok, err);
    if (!status)
        status = listed ? pairs_of_list(tok, &list, err) : pairs_of_vocabulary(tok, &list, err);
    if (!status) status = build_pair_table(tok, &list, err);
    free(list.pairs);
    return status;
}

/* ---- the rest ---- */

static void find_byte_ids(tokenizer *tok) {
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        tok->byte_ids[b] = tok->chars ? TOK_NONE : sl_tok_find_symbol(tok, &byte, 1);
    }
    for (int32_t id = 0; tok->chars && id < tok->n_vocab; id++)
        if (tok->tokens[id].flags & TOK_FLAG_BYTE && tok->tokens[id].n == 1)
            tok->byte_ids[tok->pool[tok->tokens[id].offset]] = id;
}

/* The first pairs of every piece are of bytes: a table of their own spares most look-ups. Not where a
 * byte has no token, and its neighbours may meet. */
static specrt_status find_byte_pairs(tokenizer *tok, specrt_error *err) {
    for (int b = 0; b < 256; b++)
        if (tok->chars || tok->byte_ids[b] == TOK_NONE) return SPECRT_STATUS_OK;
    tok->byte_pairs = malloc(65536 * sizeof *tok->byte_pairs);
    if (!tok->byte_pairs) return sl_error_no_memory(err, tok->path);
    for (int i = 0; i < 65536; i++) {
        uint64_t key = tok_pair_key(tok->byte_ids[i >> 8], tok->byte_ids[i & 255]);
        tok->byte_pairs[i] = tok_pair_find(tok, key);
    }
    return SPECRT_STATUS_OK;
}

static void fingerprint(tokenizer *tok) {
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token *token = &tok->tokens[id];
        if (token->type != TOKEN_NORMAL || token->n == 0) continue;
        specrt_tokenizer_hash_token(&sha, id, tok->pool + token->offset, token->n);
        tok->n_normal++;
    }
    specrt_sha256_final(&sha, tok->sha256);
}

specrt_status sl_tokenizer_finish(tokenizer *tok, specrt_error *err) {
    if (tok->n_terminators && tok->terminators[tok->n_terminators - 1] >= tok->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: end-of-text id %d; expected 0 to %d", tok->path,
                                tok->terminators[tok->n_terminators - 1], tok->n_vocab - 1);
    TRY(sl_tok_index(tok, err));
    TRY(build_pairs(tok, err));
    tok->unicode = sl_tok_unicode_new();
    if (!tok->unicode) return sl_error_no_memory(err, tok->path);
    TRY(sl_tok_raw_finish(tok, err));
    find_byte_ids(tok);
    TRY(find_byte_pairs(tok, err));
    fingerprint(tok);
    if (tok->n_normal == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: no normal tokens", tok->path);
    return use_cuts(tok, err);
}
