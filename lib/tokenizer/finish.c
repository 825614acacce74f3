/* finish.c : compiling what a loader filled: the pair table that merging reads, the list of tokens matched in
 * raw text, tables by byte, the fingerprint. */
#include "tokenizer/cut.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

/* ---- pair table ---- */

typedef struct pair_list {
    uint64_t *pairs; /* tok_pair_make() */
    size_t n, capacity;
} pair_list;

static bool pair_append(pair_list *list, int32_t left, int32_t right, size_t merge) {
    if (!sl_tok_grow(&list->pairs, &list->capacity, list->n + 1, sizeof *list->pairs)) return false;
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
        if (sl_tok_is_symbol(tok, id) && !pairs_of_token(tok, id, m, list))
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
    if (!listed && tok->chars) status = sl_tok_index_extras(tok, err);
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
    return sl_tok_cut_use(tok, err);
}
