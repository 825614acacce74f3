/* tok_build.c : filling a tokenizer, and compiling what a loader filled: the index of token bytes,
 * the pair table that merging reads, the list of tokens matched in raw text, the fingerprint. */
#include "tok_cut.h"

#include <stdlib.h>
#include <string.h>

static specrt_status no_memory(const tokenizer *tok, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", tok->path);
}

bool tok_grow(void *array, size_t *capacity, size_t need, size_t element) {
    if (need <= *capacity) return true;
    size_t wanted = need > 2 * *capacity ? need : 2 * *capacity;
    void **pointer = array;
    void *bigger = realloc(*pointer, wanted * element);
    if (!bigger) return false;
    *pointer = bigger;
    *capacity = wanted;
    return true;
}

/* ---- filling ---- */

specrt_status tok_reserve_ids(tokenizer *tok, int32_t n, specrt_error *err) {
    if (n > TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: token id %d; expected ids below %d", tok->path, n - 1,
                                TOK_MAX_VOCAB);
    if (n <= tok->n_vocab) return SPECRT_STATUS_OK;
    if (!tok_grow(&tok->tokens, &tok->tokens_capacity, (size_t)n, sizeof *tok->tokens))
        return no_memory(tok, err);
    for (int32_t id = tok->n_vocab; id < n; id++)
        tok->tokens[id] = (tok_token){.type = TOKEN_RESERVED};
    tok->n_vocab = tok->n_symbols = n;
    return SPECRT_STATUS_OK;
}

specrt_status tok_pool_append(tokenizer *tok, const void *bytes, size_t n, uint32_t *offset,
                              specrt_error *err) {
    if (n > UINT32_MAX - tok->pool_n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: more than 4 GiB of token text; expected less", tok->path);
    if (!tok_grow(&tok->pool, &tok->pool_capacity, tok->pool_n + n + 1, 1))
        return no_memory(tok, err);
    if (n) memcpy(tok->pool + tok->pool_n, bytes, n);
    *offset = (uint32_t)tok->pool_n;
    tok->pool_n += n;
    return SPECRT_STATUS_OK;
}

specrt_status tok_set_token(tokenizer *tok, int32_t id, const void *bytes, size_t n,
                            token_type type, unsigned flags, specrt_error *err) {
    if (id < 0 || id >= TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: token id %d; expected 0 to %d",
                                tok->path, id, TOK_MAX_VOCAB - 1);
    if (n == 0 || n > TOK_MAX_TOKEN_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: token %d has %zu bytes; expected 1 to %d", tok->path, id, n,
                                TOK_MAX_TOKEN_BYTES);
    specrt_status status = tok_reserve_ids(tok, id + 1, err);
    if (status) return status;
    tok_token *token = &tok->tokens[id];
    if (token->n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: token id %d is defined twice",
                                tok->path, id);
    token->type = (uint8_t)type;
    token->flags = (uint8_t)flags;
    token->n = (uint32_t)n;
    return tok_pool_append(tok, bytes, n, &token->offset, err);
}

specrt_status tok_set_score(tokenizer *tok, int32_t id, float score, specrt_error *err) {
    size_t need = (size_t)id + 1;
    if (score != score)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: score of token %d is not a number", tok->path, id);
    if (!tok_grow(&tok->scores, &tok->scores_capacity, need, sizeof *tok->scores))
        return no_memory(tok, err);
    for (; tok->n_scores < need; tok->n_scores++) tok->scores[tok->n_scores] = 0;
    tok->scores[id] = score;
    return SPECRT_STATUS_OK;
}

specrt_status tok_add_normal(tokenizer *tok, tok_normal_kind kind, const char *from, size_t n_from,
                             const char *to, size_t n_to, specrt_error *err) {
    if (tok->n_normals == TOK_MAX_NORMALS || n_from > TOK_MAX_TOKEN_BYTES ||
        n_to > TOK_MAX_TOKEN_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: normalizer has more than %d steps or a text of over %d bytes",
                                tok->path, TOK_MAX_NORMALS, TOK_MAX_TOKEN_BYTES);
    tok_normal *step = &tok->normals[tok->n_normals++];
    *step = (tok_normal){.kind = kind, .n_from = (uint32_t)n_from, .n_to = (uint32_t)n_to};
    TRY(tok_pool_append(tok, from, n_from, &step->from, err));
    return tok_pool_append(tok, to, n_to, &step->to, err);
}

specrt_status tok_add_merge(tokenizer *tok, int32_t left, int32_t right, int32_t merged,
                            specrt_error *err) {
    if (tok->n_merges == TOK_MAX_MERGES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: more than %d merges", tok->path,
                                TOK_MAX_MERGES);
    if (!tok_grow(&tok->merges, &tok->merges_capacity, tok->n_merges + 1, sizeof *tok->merges))
        return no_memory(tok, err);
    tok->merges[tok->n_merges++] = (tok_merge){left, right, merged};
    return SPECRT_STATUS_OK;
}

specrt_status tok_add_terminator(tokenizer *tok, int32_t id, specrt_error *err) {
    int32_t i = 0, n = tok->n_terminators;
    while (i < n && tok->terminators[i] < id) i++;
    if (i < n && tok->terminators[i] == id) return SPECRT_STATUS_OK;
    if (!tok_grow(&tok->terminators, &tok->terminators_capacity, (size_t)n + 1, sizeof(int32_t)))
        return no_memory(tok, err);
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

int32_t tok_find_key(const tokenizer *tok, tok_key key, const uint8_t *bytes, size_t n) {
    return index_slot(tok, key, bytes, n)->id;
}

int32_t tok_find_symbol(const tokenizer *tok, const void *bytes, size_t n) {
    if (n == 0 || !tok->index) return TOK_NONE;
    return tok_find_key(tok, tok_key_make(bytes, n, n), bytes, n);
}

/* Unless another has the same bytes. */
static void index_add(tokenizer *tok, int32_t id) {
    const tok_token *token = &tok->tokens[id];
    const uint8_t *bytes = tok->pool + token->offset;
    tok_key key = tok_key_make(bytes, token->n, token->n);
    tok_index_slot *slot = index_slot(tok, key, bytes, token->n);
    if (slot->id == TOK_NONE) *slot = (tok_index_slot){key, id};
}

bool tok_is_symbol(const tokenizer *tok, int32_t id) {
    const tok_token *token = &tok->tokens[id];
    return token->n && (id >= tok->n_vocab || token->flags & TOK_FLAG_MERGED ||
                        (token->type == TOKEN_NORMAL && !(token->flags & TOK_FLAG_BYTE)));
}

specrt_status tok_index(tokenizer *tok, specrt_error *err) {
    int bits = 4;
    while ((size_t)1 << bits < 2 * (size_t)tok->n_symbols) bits++;
    free(tok->index);
    tok->index = malloc(((size_t)1 << bits) * sizeof *tok->index);
    if (!tok->index) return no_memory(tok, err);
    tok->index_shift = 64 - bits;
    for (size_t i = 0; i < (size_t)1 << bits; i++) tok->index[i].id = TOK_NONE;
    for (int32_t id = 0; id < tok->n_symbols; id++)
        if (tok_is_symbol(tok, id)) index_add(tok, id);
    return SPECRT_STATUS_OK;
}

/* The bytes [offset, offset + n) of the pool become a symbol without an id of the vocabulary. */
static specrt_status add_extra_symbol(tokenizer *tok, uint32_t offset, int n, specrt_error *err) {
    size_t need = (size_t)tok->n_symbols + 1;
    if (tok->n_symbols == TOK_MAX_VOCAB ||
        !tok_grow(&tok->tokens, &tok->tokens_capacity, need, sizeof *tok->tokens))
        return no_memory(tok, err);
    tok->tokens[tok->n_symbols++] =
        (tok_token){.offset = offset, .n = (uint32_t)n, .type = TOKEN_RESERVED};
    if (need > (SIZE_MAX >> tok->index_shift) / 4 * 3) return tok_index(tok, err);
    index_add(tok, tok->n_symbols - 1);
    return SPECRT_STATUS_OK;
}

/* Merging starts from code points; one that only occurs inside tokens needs a symbol all the same. */
static specrt_status add_extra_symbols(tokenizer *tok, specrt_error *err) {
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token token = tok->tokens[id];
        if (!tok_is_symbol(tok, id)) continue;
        for (uint32_t i = 0; i < token.n;) {
            int len;
            const uint8_t *p = tok->pool + token.offset + i;
            tok_decode(p, p + token.n - i, &len);
            if (tok_find_symbol(tok, p, (size_t)len) == TOK_NONE) {
                specrt_status status = add_extra_symbol(tok, token.offset + i, len, err);
                if (status) return status;
            }
            i += (uint32_t)len;
        }
    }
    return SPECRT_STATUS_OK;
}

/* ---- pair table ---- */

typedef struct pair_list {
    uint64_t *pairs; /* tok_pair_make() */
    size_t n, capacity;
} pair_list;

static bool pair_append(pair_list *list, int32_t left, int32_t right, size_t merge) {
    if (!tok_grow(&list->pairs, &list->capacity, list->n + 1, sizeof *list->pairs)) return false;
    list->pairs[list->n++] = tok_pair_make(left, right, (uint32_t)merge);
    return true;
}

/* All ways to cut a token into two symbols. */
static bool pairs_of_token(const tokenizer *tok, int32_t id, size_t merge, pair_list *list) {
    const tok_token *token = &tok->tokens[id];
    const uint8_t *bytes = tok->pool + token->offset;
    if (tok_find_symbol(tok, bytes, token->n) != id) return true; /* equal bytes, higher id */
    for (uint32_t k = 1; k < token->n; k++) {
        int32_t left = tok_find_symbol(tok, bytes, k);
        if (left == TOK_NONE) continue;
        int32_t right = tok_find_symbol(tok, bytes + k, token->n - k);
        if (right != TOK_NONE && !pair_append(list, left, right, merge)) return false;
    }
    return true;
}

static specrt_status pairs_of_vocabulary(tokenizer *tok, pair_list *list, specrt_error *err) {
    for (size_t m = 0; m < tok->n_merges; m++) {
        int32_t id = tok->merge_ids[m];
        if (tok_is_symbol(tok, id) && !pairs_of_token(tok, id, m, list)) return no_memory(tok, err);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status pairs_of_list(tokenizer *tok, pair_list *list, specrt_error *err) {
    for (size_t m = 0; m < tok->n_merges; m++) {
        tok_merge merge = tok->merges[m];
        int32_t ids[3] = {merge.left, merge.right, merge.merged};
        for (int i = 0; i < 3; i++)
            if (ids[i] < 0 || ids[i] >= tok->n_vocab)
                return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                        "%s: merge %zu names token %d; expected 0 to %d", tok->path,
                                        m, ids[i], tok->n_vocab - 1);
        tok->merge_ids[m] = merge.merged;
        if (!pair_append(list, merge.left, merge.right, m)) return no_memory(tok, err);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status build_pair_table(tokenizer *tok, const pair_list *list, specrt_error *err) {
    int bits = 1;
    while (((size_t)TOK_PAIR_BUCKET << bits) < list->n + list->n / 2) bits++;
    size_t n_buckets = (size_t)1 << bits, bytes = n_buckets * sizeof *tok->pairs;
    tok->pair_shift = 64 - bits;
    tok->pairs = aligned_alloc(sizeof *tok->pairs, bytes);
    if (!tok->pairs) return no_memory(tok, err);
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
        return no_memory(tok, err);
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
    if (!listed && tok->chars) status = add_extra_symbols(tok, err);
    if (status) return status;
    if (!listed) tok->n_merges = (size_t)tok->n_vocab;
    tok->merge_ids = malloc((tok->n_merges + 1) * sizeof *tok->merge_ids);
    if (!tok->merge_ids) return no_memory(tok, err);
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
        tok->byte_ids[b] = tok->chars ? TOK_NONE : tok_find_symbol(tok, &byte, 1);
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
    if (!tok->byte_pairs) return no_memory(tok, err);
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

specrt_status tokenizer_finish(tokenizer *tok, specrt_error *err) {
    if (tok->n_terminators && tok->terminators[tok->n_terminators - 1] >= tok->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: end-of-text id %d; expected 0 to %d", tok->path,
                                tok->terminators[tok->n_terminators - 1], tok->n_vocab - 1);
    TRY(tok_index(tok, err));
    TRY(build_pairs(tok, err));
    tok->unicode = tok_unicode_new();
    if (!tok->unicode) return no_memory(tok, err);
    TRY(tok_raw_finish(tok, err));
    find_byte_ids(tok);
    TRY(find_byte_pairs(tok, err));
    fingerprint(tok);
    if (tok->n_normal == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: no normal tokens", tok->path);
    return tok_cut_use(tok, err);
}
