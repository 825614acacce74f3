/* build.c : filling a tokenizer, and the index of token bytes. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

bool sl_tok_grow(void *array, size_t *capacity, size_t need, size_t element) {
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

specrt_status sl_tok_reserve_ids(tokenizer *tok, int32_t n, specrt_error *err) {
    if (n > TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: token id %d; expected ids below %d", tok->path, n - 1,
                                TOK_MAX_VOCAB);
    if (n <= tok->n_vocab) return SPECRT_STATUS_OK;
    if (!sl_tok_grow(&tok->tokens, &tok->tokens_capacity, (size_t)n, sizeof *tok->tokens))
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
    if (!sl_tok_grow(&tok->pool, &tok->pool_capacity, tok->pool_n + n + 1, 1))
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
    if (!sl_tok_grow(&tok->scores, &tok->scores_capacity, need, sizeof *tok->scores))
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
    if (!sl_tok_grow(&tok->merges, &tok->merges_capacity, tok->n_merges + 1, sizeof *tok->merges))
        return sl_error_no_memory(err, tok->path);
    tok->merges[tok->n_merges++] = (tok_merge){left, right, merged};
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_add_terminator(tokenizer *tok, int32_t id, specrt_error *err) {
    int32_t i = 0, n = tok->n_terminators;
    while (i < n && tok->terminators[i] < id) i++;
    if (i < n && tok->terminators[i] == id) return SPECRT_STATUS_OK;
    if (!sl_tok_grow(&tok->terminators, &tok->terminators_capacity, (size_t)n + 1, sizeof(int32_t)))
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

bool sl_tok_is_symbol(const tokenizer *tok, int32_t id) {
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
        if (sl_tok_is_symbol(tok, id)) index_add(tok, id);
    return SPECRT_STATUS_OK;
}

/* The bytes [offset, offset + n) of the pool become a symbol without an id of the vocabulary. */
static specrt_status add_extra_symbol(tokenizer *tok, uint32_t offset, int n, specrt_error *err) {
    size_t need = (size_t)tok->n_symbols + 1;
    if (tok->n_symbols == TOK_MAX_VOCAB ||
        !sl_tok_grow(&tok->tokens, &tok->tokens_capacity, need, sizeof *tok->tokens))
        return sl_error_no_memory(err, tok->path);
    tok->tokens[tok->n_symbols++] =
        (tok_token){.offset = offset, .n = (uint32_t)n, .type = TOKEN_RESERVED};
    if (need > (SIZE_MAX >> tok->index_shift) / 4 * 3) return sl_tok_index(tok, err);
    index_add(tok, tok->n_symbols - 1);
    return SPECRT_STATUS_OK;
}

specrt_status sl_tok_index_extras(tokenizer *tok, specrt_error *err) {
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token token = tok->tokens[id];
        if (!sl_tok_is_symbol(tok, id)) continue;
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
