/* normalise.c : text before it is split: classes of code points, normalisation, tokens that are found as they
 * stand. */
#include "tokenizer/worker.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/utf8.h"

/* ---- classes of code points, from utf8proc's categories ---- */

#define PLANES_END 0x40000 /* planes 4 to 13 are unassigned, 15 and 16 private: no property */
#define TAGS_BEGIN 0xE0000
#define TAGS_END   0xE1000
#define N_BLOCKS   (0x110000 / UC_BLOCK)

static bool is_white_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static unsigned category_class(utf8proc_category_t category) {
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return UC_LETTER | UC_UPPER;
    case UTF8PROC_CATEGORY_LL: return UC_LETTER | UC_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return UC_LETTER | UC_UPPER | UC_LOWER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return UC_MARK | UC_UPPER | UC_LOWER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return UC_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return UC_PUNCT;
    default: return 0;
    }
}

/* What composition can touch: a character that NFC replaces, one with a combining class, and the
 * second half of any composition. The last is marked when its composite comes by, so it is set in
 * classes[] rather than returned. */
static void mark_unstable(uint32_t cp, uint16_t *classes) {
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)cp);
    bool hangul = cp >= 0xAC00 && cp < 0xD7A4;
    if (property->combining_class) classes[cp] |= UC_UNSTABLE;
    if (!hangul && (property->decomp_type || property->decomp_seqindex == UINT16_MAX)) return;
    utf8proc_int32_t parts[8];
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 8, UTF8PROC_DECOMPOSE, NULL);
    if (n < 1 || n > 8) return;
    uint32_t last = (uint32_t)parts[n - 1];
    n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == 1 && (uint32_t)parts[0] == cp)
        classes[last] |= UC_UNSTABLE;
    else
        classes[cp] |= UC_UNSTABLE;
}

/* `tokenizers` takes punctuation from a table of Unicode 8 and stays there, as tokenizers trained
 * with it must. */
static bool is_mark(uint32_t cp, unsigned class) {
    static const uint32_t newer[][2] = {
        {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
        {0xC84, 0xC84},     {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},
        {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
        {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F},
        {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
        {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
        {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1},
        {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
        {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
        {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
    };
    if (cp < 0x80) return cp > ' ' && cp < 0x7F && !(class & (UC_LETTER | UC_NUMBER));
    if (cp == 0x166D || cp == 0x111C9) return true; /* symbols since */
    for (size_t i = 0; class & UC_PUNCT && i < sizeof newer / sizeof newer[0]; i++)
        if (cp >= newer[i][0] && cp <= newer[i][1]) return false;
    return class & UC_PUNCT;
}

static void fill_range(uint16_t *classes, uint32_t begin, uint32_t end) {
    for (uint32_t cp = begin; cp < end; cp++) {
        unsigned c = category_class(utf8proc_category((utf8proc_int32_t)cp));
        if (is_white_space(cp)) c |= UC_SPACE;
        if (cp == '\n' || cp == '\r') c |= UC_NEWLINE;
        if (is_mark(cp, c)) c |= UC_MARKS;
        classes[cp] |= (uint16_t)c;
        mark_unstable(cp, classes);
    }
}

/* Blocks are shared where equal: about 300 of 4,352 differ. */
static bool share_blocks(tok_unicode *table, const uint16_t *classes) {
    table->blocks = malloc(N_BLOCKS * sizeof *table->blocks);
    if (!table->blocks) return false;
    uint16_t n = 0;
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        const uint16_t *block = classes + b * UC_BLOCK;
        uint16_t i = 0;
        while (i < n && memcmp(table->blocks[i], block, sizeof table->blocks[0])) i++;
        if (i == n) memcpy(table->blocks[n++], block, sizeof table->blocks[0]);
        table->block_of[b] = i;
    }
    return true;
}

tok_unicode *sl_tok_unicode_new(void) {
    tok_unicode *table = calloc(1, sizeof *table);
    uint16_t *classes = calloc(0x110000, sizeof *classes);
    bool ok = table && classes;
    if (ok) {
        fill_range(classes, 0, PLANES_END);
        fill_range(classes, TAGS_BEGIN, TAGS_END);
        ok = share_blocks(table, classes);
    }
    free(classes);
    if (ok) return table;
    sl_tok_unicode_free(table);
    return NULL;
}

void sl_tok_unicode_free(tok_unicode *table) {
    if (!table) return;
    free(table->blocks);
    free(table);
}

/* ---- normalisation ----
 * Its steps, and SentencePiece's spaces. NFC touches only the few runs that need it. Each step writes to the
 * one of two buffers that its text is not in. */

/* Longest decomposition of one code point, U+FDFA's. */
#define MAX_PARTS 18

static bool append(tok_text *text, const void *bytes, size_t n) {
    if (!sl_reserve(&text->bytes, &text->capacity, text->n + n, 1)) return false;
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
        utf8proc_uint8_t bytes[4];
        if (!append(out, bytes, (size_t)utf8proc_encode_char(sorted[i], bytes))) return false;
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

/* ---- tokens found in text as they stand ---- */

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
    if (!sl_reserve(&set->items, &set->capacity, set->n + 1, sizeof *set->items))
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
    if (set->n) sl_sort(set->items, set->n, sizeof *set->items, compare_raw, tok);
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
