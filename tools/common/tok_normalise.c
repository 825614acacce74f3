/* tok_normalise.c : NFC over the few runs that need it, and SentencePiece's spaces. */
#include "tok_normalise.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Longest canonical decomposition of one code point. */
#define MAX_PARTS 4

static bool append(tok_text *text, const void *bytes, size_t n) {
    if (text->n + n > text->capacity) {
        size_t capacity = text->n + n + text->capacity / 2 + 64;
        uint8_t *bigger = realloc(text->bytes, capacity);
        if (!bigger) return false;
        text->bytes = bigger;
        text->capacity = capacity;
    }
    if (n) memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    return true;
}

/* ---- NFC ---- */

static int combining_class(int32_t cp) {
    return utf8proc_get_property(cp)->combining_class;
}

/* Canonical order: stable by combining class between starters, counted so that a hostile megabyte of
 * marks takes no longer than any other. */
static void sort_marks(const int32_t *in, size_t n, int32_t *out) {
    for (size_t i = 0; i < n;) {
        size_t begin[257] = {0}, end = i;
        if (combining_class(in[i]) == 0) {
            out[i] = in[i];
            i++;
            continue;
        }
        for (int c; end < n && (c = combining_class(in[end])) != 0; end++) begin[c + 1]++;
        for (int c = 0; c < 256; c++) begin[c + 1] += begin[c];
        for (size_t k = i; k < end; k++) out[i + begin[combining_class(in[k])]++] = in[k];
        i = end;
    }
}

/* Append the NFC form of a run of text. */
static bool append_nfc(tok_normaliser *work, const uint8_t *run, size_t n) {
    if (n * MAX_PARTS > work->points_capacity) {
        free(work->points);
        work->points_capacity = n * MAX_PARTS;
        work->points = malloc(2 * work->points_capacity * sizeof *work->points);
        if (!work->points) return work->points_capacity = 0, false;
    }
    tok_text *out = &work->composed;
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t cp = tok_decode(run + i, run + n, &len);
        int32_t *to = work->points + count;
        utf8proc_ssize_t parts =
            utf8proc_decompose_char((int32_t)cp, to, MAX_PARTS, UTF8PROC_DECOMPOSE, NULL);
        if (parts < 1 || parts > MAX_PARTS) return append(out, run, n); /* not Unicode */
        count += (size_t)parts;
        i += (size_t)len;
    }
    int32_t *sorted = work->points + work->points_capacity;
    sort_marks(work->points, count, sorted);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(sorted, (utf8proc_ssize_t)count,
                                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        uint8_t bytes[4];
        utf8proc_ssize_t len = utf8proc_encode_char(sorted[i], bytes);
        if (!append(out, bytes, (size_t)len)) return false;
    }
    return true;
}

/* The first byte from p on that is not ASCII. */
static size_t skip_ascii(const uint8_t *text, size_t n, size_t p) {
    for (uint64_t word; p + 8 <= n; p += 8) {
        memcpy(&word, text + p, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (p < n && text[p] < 0x80) p++;
    return p;
}

/* The first code point from p on that composition may touch; *before: the code point before it. */
static size_t find_unstable(const tokenizer *tok, const uint8_t *text, size_t n, size_t p,
                            size_t *before) {
    *before = p;
    for (int len; (len = 0, p < n); p += (size_t)len) {
        if (text[p] < 0x80) {
            size_t q = skip_ascii(text, n, p);
            *before = q - 1;
            p = q;
            if (p == n) return n;
        }
        uint32_t cp = tok_decode(text + p, text + n, &len);
        if (tok_class(tok->unicode, cp) & UC_UNSTABLE) return p;
        *before = p;
    }
    return n;
}

/* A run to normalise reaches from the stable code point before the first unstable one to the next
 * stable one, where composition never reaches across. */
static bool compose(const tokenizer *tok, tok_normaliser *work, const uint8_t *text, size_t n) {
    tok_text *out = &work->composed;
    out->n = 0;
    for (size_t p = 0; p < n;) {
        size_t begin, end = find_unstable(tok, text, n, p, &begin);
        if (end == n) return append(out, text + p, n - p);
        for (int len; end < n; end += (size_t)len) {
            uint32_t cp = tok_decode(text + end, text + n, &len);
            if (!(tok_class(tok->unicode, cp) & UC_UNSTABLE)) break;
        }
        if (!append(out, text + p, begin - p) || !append_nfc(work, text + begin, end - begin))
            return false;
        p = end;
    }
    return true;
}

/* ---- SentencePiece ---- */

#define LOWER_BLOCK "\xE2\x96\x81" /* U+2581, the visible space of SentencePiece */

static const uint8_t *find_block(const uint8_t *text, size_t n) {
    return memmem(text, n, LOWER_BLOCK, 3);
}

static bool wants_prefix(const tokenizer *tok, bool first, const uint8_t *text, size_t n) {
    if (n == 0 || !(first || tok->prefix_every_segment)) return false;
    if (tok->prefix == TOK_PREFIX_ALWAYS) return true;
    return tok->prefix == TOK_PREFIX_IF_MISSING && text[0] != ' ' &&
           !(tok->spm_spaces && find_block(text, n < 3 ? n : 3));
}

static bool copy_spaced(const tokenizer *tok, tok_text *out, bool prefix, const uint8_t *text,
                        size_t n) {
    out->n = 0;
    if (prefix && !append(out, " ", 1)) return false;
    const uint8_t *end = text + n;
    for (const uint8_t *block; tok->spm_spaces && (block = find_block(text, (size_t)(end - text)));
         text = block + 3)
        if (!append(out, text, (size_t)(block - text)) || !append(out, " ", 1)) return false;
    return append(out, text, (size_t)(end - text));
}

bool tok_normalise(const tokenizer *tok, tok_normaliser *work, bool first, const uint8_t **text,
                   size_t *n) {
    size_t before;
    bool prefix = wants_prefix(tok, first, *text, *n);
    if (prefix || (tok->spm_spaces && find_block(*text, *n))) {
        if (!copy_spaced(tok, &work->spaced, prefix, *text, *n)) return false;
        *text = work->spaced.bytes;
        *n = work->spaced.n;
    }
    if (tok->nfc && find_unstable(tok, *text, *n, 0, &before) < *n) {
        if (!compose(tok, work, *text, *n)) return false;
        *text = work->composed.bytes;
        *n = work->composed.n;
    }
    return true;
}

void tok_normaliser_free(tok_normaliser *work) {
    free(work->spaced.bytes);
    free(work->composed.bytes);
    free(work->points);
    *work = (tok_normaliser){0};
}
