/* normalise.c : the steps of normalisation, and SentencePiece's spaces. NFC touches only the
 * few runs that need it. Each step writes to the one of two buffers that its text is not in. */
#include "tokenizer/normalise.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

/* Longest decomposition of one code point, U+FDFA's. */
#define MAX_PARTS 18

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

/* ---- Unicode forms ---- */

static int combining_class(int32_t cp) {
    return utf8proc_get_property(cp)->combining_class;
}

/* Canonical order: stable by combining class between starters, counted so that a hostile megabyte of
 * marks takes no longer than any other. */
static void sort_marks(const int32_t *in, size_t n, int32_t *out) {
    for (size_t i = 0; i < n;) {
        if (combining_class(in[i]) == 0) {
            out[i] = in[i];
            i++;
            continue;
        }
        size_t begin[257] = {0}, end = i;
        for (int c; end < n && (c = combining_class(in[end])) != 0; end++) begin[c + 1]++;
        for (int c = 0; c < 256; c++) begin[c + 1] += begin[c];
        for (size_t k = i; k < end; k++) out[i + begin[combining_class(in[k])]++] = in[k];
        i = end;
    }
}

static utf8proc_option_t form_options(tok_normal_kind form) {
    bool compatible = form == TOK_NORMAL_NFKC || form == TOK_NORMAL_NFKD;
    int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    return (utf8proc_option_t)options;
}

/* Append a run of text in a normal form. */
static bool append_form(tok_normaliser *work, tok_normal_kind form, tok_text *out,
                        const uint8_t *run, size_t n) {
    if (n * MAX_PARTS > work->points_capacity) {
        free(work->points);
        work->points_capacity = n * MAX_PARTS;
        work->points = malloc(2 * work->points_capacity * sizeof *work->points);
        if (!work->points) return work->points_capacity = 0, false;
    }
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t cp = tok_decode(run + i, run + n, &len);
        utf8proc_ssize_t parts =
            utf8proc_decompose_char((int32_t)cp, work->points + count, MAX_PARTS,
                                    (utf8proc_option_t)form_options(form), NULL);
        if (parts < 1 || parts > MAX_PARTS) return append(out, run, n); /* not Unicode */
        count += (size_t)parts;
        i += (size_t)len;
    }
    int32_t *sorted = work->points + work->points_capacity;
    sort_marks(work->points, count, sorted);
    utf8proc_ssize_t composed = (utf8proc_ssize_t)count;
    if (form == TOK_NORMAL_NFC || form == TOK_NORMAL_NFKC)
        composed = utf8proc_normalize_utf32(sorted, composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        if (!append(out, bytes, (size_t)sl_utf8_put((uint32_t)sorted[i], bytes))) return false;
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
static bool compose(const tokenizer *tok, tok_normaliser *work, tok_text *out, const uint8_t *text,
                    size_t n) {
    for (size_t p = 0; p < n;) {
        size_t begin, end = find_unstable(tok, text, n, p, &begin);
        if (end == n) return append(out, text + p, n - p);
        for (int len; end < n; end += (size_t)len) {
            uint32_t cp = tok_decode(text + end, text + n, &len);
            if (!(tok_class(tok->unicode, cp) & UC_UNSTABLE)) break;
        }
        if (!append(out, text + p, begin - p) ||
            !append_form(work, TOK_NORMAL_NFC, out, text + begin, end - begin))
            return false;
        p = end;
    }
    return true;
}

/* The other forms: runs that reach from one ASCII character to the next, which stays as it is. */
static bool transform(tok_normaliser *work, tok_normal_kind form, tok_text *out,
                      const uint8_t *text, size_t n) {
    for (size_t p = 0; p < n;) {
        size_t begin = skip_ascii(text, n, p), end = begin;
        if (begin > p && begin < n) begin--;
        while (end < n && text[end] >= 0x80) end++;
        if (!append(out, text + p, begin - p)) return false;
        if (end > begin && !append_form(work, form, out, text + begin, end - begin)) return false;
        p = end;
    }
    return true;
}

/* ---- strings ---- */

static bool replace(const tokenizer *tok, const tok_normal *step, tok_text *out,
                    const uint8_t *text, size_t n) {
    const uint8_t *end = text + n;
    for (const uint8_t *hit; step->n_from; text = hit + step->n_from) {
        hit = memmem(text, (size_t)(end - text), tok->pool + step->from, step->n_from);
        if (!hit) break;
        if (!append(out, text, (size_t)(hit - text)) ||
            !append(out, tok->pool + step->to, step->n_to))
            return false;
    }
    return append(out, text, (size_t)(end - text));
}

#define LOWER_BLOCK "\xE2\x96\x81" /* U+2581, the visible space of SentencePiece */

static const uint8_t *find_block(const uint8_t *text, size_t n) {
    return memmem(text, n, LOWER_BLOCK, 3);
}

static bool copy_spaced(tok_text *out, const uint8_t *text, size_t n) {
    const uint8_t *end = text + n;
    for (const uint8_t *block; (block = find_block(text, (size_t)(end - text))); text = block + 3)
        if (!append(out, text, (size_t)(block - text)) || !append(out, " ", 1)) return false;
    return append(out, text, (size_t)(end - text));
}

/* ---- the whole ---- */

/* Text on its way through the steps. */
typedef struct passage {
    tok_normaliser *work;
    const uint8_t *text;
    size_t n;
} passage;

/* The buffer the text is not in, emptied. */
static tok_text *spare(const passage *p) {
    tok_text *buffer = &p->work->buffers[p->n && p->text == p->work->buffers[0].bytes];
    buffer->n = 0;
    return buffer;
}

/* After a step that filled `out`. */
static bool advance(passage *p, const tok_text *out, bool ok) {
    p->text = out->bytes;
    p->n = out->n;
    return ok;
}

static bool run_step(const tokenizer *tok, const tok_normal *step, passage *p) {
    size_t before;
    tok_text *out = spare(p);
    switch (step->kind) {
    case TOK_NORMAL_NFC:
        if (find_unstable(tok, p->text, p->n, 0, &before) == p->n) return true;
        return advance(p, out, compose(tok, p->work, out, p->text, p->n));
    case TOK_NORMAL_PREPEND:
        if (p->work->no_prefix) return true;
        return advance(p, out,
                       append(out, tok->pool + step->to, step->n_to) && append(out, p->text, p->n));
    case TOK_NORMAL_REPLACE: return advance(p, out, replace(tok, step, out, p->text, p->n));
    default:
        if (skip_ascii(p->text, p->n, 0) == p->n) return true;
        return advance(p, out, transform(p->work, step->kind, out, p->text, p->n));
    }
}

static bool put_space(passage *p) {
    tok_text *out = spare(p);
    return advance(p, out, append(out, " ", 1) && append(out, p->text, p->n));
}

bool sl_tok_normalise(const tokenizer *tok, tok_normaliser *work, const uint8_t **text, size_t *n) {
    passage p = {work, *text, *n};
    for (int i = 0; i < tok->n_normals && p.n; i++)
        if (!run_step(tok, &tok->normals[i], &p)) return false;
    bool prefixed = tok->prefix == TOK_PREFIX_ALWAYS && !work->no_prefix;
    if (p.n && prefixed && !put_space(&p)) return false;
    if (tok->spm_spaces && find_block(p.text, p.n)) {
        tok_text *out = spare(&p);
        if (!advance(&p, out, copy_spaced(out, p.text, p.n))) return false;
    }
    *text = p.text;
    *n = p.n;
    return true;
}

bool sl_tok_prefix_missing(const tokenizer *tok, tok_normaliser *work, bool first,
                           const uint8_t **text, size_t *n) {
    if (tok->prefix != TOK_PREFIX_IF_MISSING || work->no_prefix || *n == 0 || (*text)[0] == ' ' ||
        !(first || tok->prefix_every_segment))
        return true;
    work->prefixed.n = 0;
    bool ok = append(&work->prefixed, " ", 1) && append(&work->prefixed, *text, *n);
    *text = work->prefixed.bytes;
    *n = work->prefixed.n;
    return ok;
}

void sl_tok_normaliser_free(tok_normaliser *work) {
    free(work->buffers[0].bytes);
    free(work->buffers[1].bytes);
    free(work->prefixed.bytes);
    free(work->points);
    *work = (tok_normaliser){0};
}
