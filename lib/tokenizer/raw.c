/* raw.c : finding added tokens in text. */
#include "tokenizer/raw.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/error.h"
#include "tokenizer/normalise.h"

specrt_status sl_tok_add_raw(tokenizer *tok, int32_t id, const void *text, size_t n, unsigned flags,
                             specrt_error *err) {
    tok_raw_set *set = &tok->raw[(flags & TOK_RAW_NORMALIZED) != 0];
    tok_raw raw = {.id = id, .flags = flags};
    if (n == 0 || n > TOK_MAX_TOKEN_BYTES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: added token %d has %zu bytes; expected 1 to %d", tok->path, id,
                                n, TOK_MAX_TOKEN_BYTES);
    TRY(sl_tok_pool_append(tok, text, n, &raw.offset, err));
    raw.n = (uint32_t)n;
    if (!sl_tok_grow(&set->items, &set->capacity, set->n + 1, sizeof *set->items))
        return sl_error_no_memory(err, tok->path);
    set->items[set->n++] = raw;
    return SPECRT_STATUS_OK;
}

/* ---- compiling ---- */

static int compare_raw(const void *a, const void *b, void *user) {
    const tokenizer *tok = user;
    const tok_raw *x = a, *y = b;
    uint8_t first_x = tok->pool[x->offset], first_y = tok->pool[y->offset];
    if (first_x != first_y) return first_x < first_y ? -1 : 1;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    int order = memcmp(tok->pool + x->offset, tok->pool + y->offset, x->n);
    if (order) return order;
    bool hidden_x = x->flags & TOK_RAW_HIDDEN, hidden_y = y->flags & TOK_RAW_HIDDEN;
    if (hidden_x != hidden_y) return hidden_x ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool all_hidden(const tok_raw_set *set) {
    for (size_t i = 0; i < set->n; i++)
        if (!(set->items[i].flags & TOK_RAW_HIDDEN)) return false;
    return true;
}

static void mark_pair(tok_raw_set *set, unsigned first, unsigned second) {
    set->pairs[first * 4 + second / 64] |= (uint64_t)1 << second % 64;
}

/* A token of one byte begins any pair with it. */
static void mark_pairs(const tokenizer *tok, tok_raw_set *set) {
    for (size_t i = 0; i < set->n; i++) {
        const uint8_t *bytes = tok->pool + set->items[i].offset;
        for (unsigned b = 0; b < 256; b++)
            if (set->items[i].n == 1 || b == bytes[1]) mark_pair(set, bytes[0], b);
    }
}

static void sort_set(tokenizer *tok, tok_raw_set *set) {
    if (all_hidden(set)) set->n = 0;
    if (set->n) qsort_r(set->items, set->n, sizeof *set->items, compare_raw, tok);
    size_t i = 0;
    for (int b = 0; b < 256; b++) {
        set->begin[b] = (int32_t)i;
        while (i < set->n && tok->pool[set->items[i].offset] == b) i++;
    }
    set->begin[256] = (int32_t)i;
    mark_pairs(tok, set);
}

/* Each normalised token in its normalised form; one that normalises to nothing is never found. */
static specrt_status normalise_set(tokenizer *tok, tok_raw_set *set, specrt_error *err) {
    tok_normaliser work = {0};
    specrt_status status = SPECRT_STATUS_OK;
    size_t kept = 0;
    for (size_t i = 0; i < set->n && !status; i++) {
        tok_raw raw = set->items[i];
        const uint8_t *text = tok->pool + raw.offset;
        size_t n = raw.n;
        if (!sl_tok_normalise(tok, &work, &text, &n))
            status = sl_error_no_memory(err, tok->path);
        else if (n && text != tok->pool + raw.offset)
            status = sl_tok_pool_append(tok, text, n, &raw.offset, err);
        raw.n = (uint32_t)n;
        if (n) set->items[kept++] = raw;
    }
    set->n = kept;
    sl_tok_normaliser_free(&work);
    return status;
}

specrt_status sl_tok_raw_finish(tokenizer *tok, specrt_error *err) {
    TRY(normalise_set(tok, &tok->raw[1], err));
    for (int i = 0; i < 2; i++) sort_set(tok, &tok->raw[i]);
    return SPECRT_STATUS_OK;
}

/* ---- finding ---- */

/* The \w of Rust's regex crate, which decides what a single word is. */
static bool is_word(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    return cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
           (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
           (cp >= 0x1F170 && cp <= 0x1F189);
}

/* The code point that ends at p > 0; *begin: where it begins. */
static uint32_t code_point_before(const tok_raw_scan *s, size_t p, size_t *begin) {
    int len;
    size_t q = p - 1;
    while (q > 0 && (s->text[q] & 0xC0) == 0x80) q--;
    *begin = q;
    return tok_decode(s->text + q, s->text + p, &len);
}

static bool stands_alone(const tok_raw_scan *s, size_t begin, size_t end) {
    size_t before;
    int len;
    if (begin > 0 && is_word(code_point_before(s, begin, &before))) return false;
    return end == s->n || !is_word(tok_decode(s->text + end, s->text + s->n, &len));
}

static size_t strip_left(const tok_raw_scan *s, size_t p) {
    for (size_t begin; p > s->taken; p = begin)
        if (!(tok_class(s->tok->unicode, code_point_before(s, p, &begin)) & UC_SPACE)) break;
    return p;
}

static size_t strip_right(const tok_raw_scan *s, size_t p) {
    for (int len; p < s->n; p += (size_t)len)
        if (!(tok_class(s->tok->unicode, tok_decode(s->text + p, s->text + s->n, &len)) & UC_SPACE))
            break;
    return p;
}

/* The longest token at p, or NULL. */
static const tok_raw *longest_at(const tok_raw_scan *s, size_t p) {
    const tok_raw_set *set = s->set;
    for (int32_t i = set->begin[s->text[p]]; i < set->begin[s->text[p] + 1]; i++) {
        const tok_raw *raw = &set->items[i];
        if (raw->n <= s->n - p && memcmp(s->tok->pool + raw->offset, s->text + p, raw->n) == 0)
            return raw;
    }
    return NULL;
}

/* The next place from p on where a token may begin. */
static size_t skip_others(const tok_raw_scan *s, size_t p) {
    for (; p + 1 < s->n; p++) {
        unsigned first = s->text[p], second = s->text[p + 1];
        if (s->set->pairs[first * 4 + second / 64] >> second % 64 & 1) break;
    }
    return p;
}

int32_t sl_tok_raw_next(tok_raw_scan *s, size_t *begin, size_t *end) {
    while (s->set->n && s->at < s->n) {
        s->at = skip_others(s, s->at);
        const tok_raw *raw = longest_at(s, s->at);
        if (!raw) {
            s->at++;
            continue;
        }
        *begin = s->at;
        *end = s->at += raw->n;
        if (raw->flags & TOK_RAW_HIDDEN) continue;
        if (raw->flags & TOK_RAW_SINGLE_WORD && !stands_alone(s, *begin, *end)) continue;
        if (raw->flags & TOK_RAW_LSTRIP) *begin = strip_left(s, *begin);
        if (raw->flags & TOK_RAW_RSTRIP) *end = strip_right(s, *end);
        s->taken = *end;
        return raw->id;
    }
    return -1;
}
