/* worker.c : encoding and counting documents. Pieces go through in batches: split, then hash and
 * prefetch, then look up, so that the misses of a batch overlap. */
#include <stdlib.h>
#include "tokenizer/bpe.h"
#include "base/error.h"
#include "tokenizer/cache.h"
#include "tokenizer/normalise.h"
#include "tokenizer/split.h"

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
static bool reserve(id_list *list, size_t more) {
    if (list->n + more <= list->capacity) return true;
    size_t capacity = list->n + more + list->capacity / 2;
    int32_t *bigger = realloc(list->ids, capacity * sizeof *bigger);
    if (!bigger) return false;
    list->ids = bigger;
    list->capacity = capacity;
    return true;
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
    if (!reserve(list, end - from + TOK_CACHE_INLINE_IDS)) return false;
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
        if (!reserve(to->list, 1)) return false;
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
