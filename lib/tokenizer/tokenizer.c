/* tokenizer.c : what can be asked of a tokenizer. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

void sl_tokenizer_close(tokenizer *tok) {
    if (!tok) return;
    if (tok->custom.state_free) tok->custom.state_free(tok->custom.state);
    sl_tok_unicode_free(tok->unicode);
    void *owned[] = {tok->tokens,     tok->scores,      tok->pool,         tok->terminators,
                     tok->merges,     tok->index,       tok->pairs,        tok->merge_ids,
                     tok->byte_pairs, tok->merge_ranks, tok->raw[0].items, tok->raw[1].items};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
    free(tok);
}

/* ---- accessors ---- */

const char *sl_tokenizer_name(const tokenizer *tok) {
    return tok->name;
}

int32_t sl_tokenizer_n_vocab(const tokenizer *tok) {
    return tok->n_vocab;
}

int32_t sl_tokenizer_n_normal(const tokenizer *tok) {
    return tok->n_normal;
}

token_type sl_tokenizer_type(const tokenizer *tok, int32_t id) {
    if (id < 0 || id >= tok->n_vocab) return TOKEN_RESERVED;
    return (token_type)tok->tokens[id].type;
}

const uint8_t *sl_tokenizer_bytes(const tokenizer *tok, int32_t id, size_t *n) {
    bool hole = id < 0 || id >= tok->n_vocab || tok->tokens[id].n == 0;
    *n = hole ? 0 : tok->tokens[id].n;
    return hole ? NULL : tok->pool + tok->tokens[id].offset;
}

int32_t sl_tokenizer_find(const tokenizer *tok, const void *bytes, size_t n) {
    int32_t found = sl_tok_find_symbol(tok, bytes, n);
    if (found >= 0 && found < tok->n_vocab) return found;
    if (tok->chars && n == 1 && tok->byte_ids[*(const uint8_t *)bytes] != TOK_NONE)
        return tok->byte_ids[*(const uint8_t *)bytes];
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token *token = &tok->tokens[id];
        if (n && token->n == n && memcmp(tok->pool + token->offset, bytes, n) == 0) return id;
    }
    return TOK_NONE;
}

specrt_status sl_tokenizer_byte_tokens(const tokenizer *tok, int32_t **ids, int32_t *n,
                                       specrt_error *err) {
    int32_t count = 0;
    *ids = NULL;
    *n = 0;
    for (int32_t id = 0; id < tok->n_vocab; id++)
        count += tok->tokens[id].n == 1 && sl_tokenizer_type(tok, id) == TOKEN_NORMAL;
    if (count == 0) return SPECRT_STATUS_OK;
    *ids = (int32_t *)malloc((size_t)count * sizeof **ids);
    if (!*ids) return sl_error_no_memory(err, tok->name);
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (tok->tokens[id].n == 1 && sl_tokenizer_type(tok, id) == TOKEN_NORMAL)
            (*ids)[(*n)++] = id;
    return SPECRT_STATUS_OK;
}

const int32_t *sl_tokenizer_terminators(const tokenizer *tok, int32_t *n) {
    *n = tok->n_terminators;
    return tok->terminators;
}

void sl_tokenizer_fingerprint(const tokenizer *tok, uint8_t sha256[32]) {
    memcpy(sha256, tok->sha256, 32);
}
