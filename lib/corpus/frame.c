/* frame.c : what belongs to block k of a file, from absolute offsets and the content around
 * them.
 *
 * A line belongs to the block it begins in. Text is cut at the first safe place at or after each
 * multiple of CORPUS_UNIT_BYTES: a place where every splitter begins a new piece and sees the
 * pieces on both sides as it would in the whole text. Where CORPUS_UNIT_BYTES after a multiple of
 * CORPUS_CAP_BYTES hold no safe place, the cut is forced at that multiple, so no unit is longer
 * than the two together. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <string.h>

enum { LOOK_BEHIND = 4, LOOK_AHEAD = 2 }; /* bytes around a cut that decide it */

static bool is_letter(char c) {
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

/* Lead bytes of U+00C0..07FF, U+0800..0FFF, U+3040..D7FF: letters, marks and symbols, no white
 * space. */
static bool begins_script(const uint8_t *p) {
    return (p[0] >= 0xC3 && p[0] <= 0xE0) || (p[0] >= 0xE4 && p[0] <= 0xED) ||
           (p[0] == 0xE3 && p[1] != 0x80);
}

/* The character that ends before p is not white space; U+0085, U+00A0, U+1680 and most of
 * U+2000..2FFF are taken as such. */
static bool ends_visible(const uint8_t *p) {
    if (p[-1] < 0x80) return p[-1] > ' ' && p[-1] != 0x7F;
    bool ideographic_space = p[-3] == 0xE3 && p[-2] == 0x80 && p[-1] == 0x80;
    return p[-2] != 0xC2 && p[-3] != 0xE1 && p[-3] != 0xE2 && !ideographic_space;
}

/* A single space between two ASCII letters, or after a single line feed. */
static bool is_safe_cut(const char *p) {
    if (p[0] == ' ') return is_letter(p[-1]) && is_letter(p[1]);
    const uint8_t *u = (const uint8_t *)p;
    return p[-1] == '\n' && (is_letter(p[0]) || begins_script(u)) && ends_visible(u - 1);
}

static const char *scan_cut(const char *p, const char *end) {
    for (; p < end; p++)
        if ((p[0] == ' ' || p[-1] == '\n') && is_safe_cut(p)) return p;
    return NULL;
}

/* find_cut() : the first cut of text in [from, limit), extending the window as needed. */
static specrt_status find_cut(corpus_window *w, corpus_stream *s, uint64_t from, uint64_t limit,
                              uint64_t *cut, bool *found, specrt_error *err) {
    *found = false;
    for (uint64_t at = from; at < limit;) {
        uint64_t end = at + CORPUS_UNIT_BYTES;
        if (limit < end) end = limit;
        specrt_status status = sl_corpus_window_fill(w, s, end + LOOK_AHEAD, err);
        if (status != SPECRT_STATUS_OK) return status;
        uint64_t have = w->base + w->n;
        bool last = end + 1 > have;
        if (last) end = have > 0 ? have - 1 : 0;
        const char *p =
            at < end ? scan_cut(w->bytes + (at - w->base), w->bytes + (end - w->base)) : NULL;
        *found = p != NULL;
        if (p) *cut = w->base + (uint64_t)(p - w->bytes);
        if (p || last) break;
        at = end;
    }
    return SPECRT_STATUS_OK;
}

/* first_cut() : the first cut at or after `from` > 0; the end of the content if there is none. */
static specrt_status first_cut(corpus_window *w, corpus_stream *s, uint64_t from, uint64_t *cut,
                               bool *forced, specrt_error *err) {
    uint64_t force = (from + CORPUS_CAP_BYTES - 1) / CORPUS_CAP_BYTES * CORPUS_CAP_BYTES;
    bool found;
    *forced = false;
    specrt_status status = find_cut(w, s, from, force + CORPUS_UNIT_BYTES, cut, &found, err);
    if (status != SPECRT_STATUS_OK || found) return status;
    uint64_t end = w->base + w->n;
    *forced = force < end;
    *cut = *forced ? force : end;
    /* not inside a character: at most three bytes continue one */
    for (int i = 0; i < 3 && *cut < end && (w->bytes[*cut - w->base] & 0xC0) == 0x80; i++) ++*cut;
    return SPECRT_STATUS_OK;
}

static specrt_status frame_text(const corpus_format *f, corpus_window *w, corpus_stream *s,
                                uint64_t low, uint64_t high, corpus_range *out, specrt_error *err) {
    uint64_t cut = f->first;
    bool forced = false;
    specrt_status status = low > 0 ? first_cut(w, s, low, &cut, &forced, err)
                                   : sl_corpus_window_fill(w, s, cut + 1, err);
    while (status == SPECRT_STATUS_OK && cut < high && cut < w->base + w->n) {
        out->cuts[out->n_cuts++] = cut;
        out->n_forced += forced;
        uint64_t next = (cut / CORPUS_UNIT_BYTES + 1) * CORPUS_UNIT_BYTES;
        status = first_cut(w, s, next, &cut, &forced, err);
    }
    out->start = out->n_cuts > 0 ? out->cuts[0] : cut;
    out->end = cut;
    return status;
}

/* find_line() : where the first line that begins in [from, limit) begins, else the limit or the end
 * of the content. */
static specrt_status find_line(corpus_window *w, corpus_stream *s, uint64_t from, uint64_t limit,
                               uint64_t *line, specrt_error *err) {
    uint64_t most = limit - 1; /* where a line feed makes a line begin before the limit */
    for (uint64_t at = from - 1; at < most;) {
        uint64_t end = at + CORPUS_UNIT_BYTES;
        if (most < end) end = most;
        specrt_status status = sl_corpus_window_fill(w, s, end, err);
        if (status != SPECRT_STATUS_OK) return status;
        bool last = end >= w->base + w->n && w->ended;
        if (last) end = w->base + w->n;
        const char *p = w->bytes + (at - w->base);
        const char *hit = at < end ? (const char *)memchr(p, '\n', (size_t)(end - at)) : NULL;
        *line = hit ? at + (uint64_t)(hit - p) + 1 : end;
        if (hit || last) return SPECRT_STATUS_OK;
        at = end;
    }
    *line = limit;
    return SPECRT_STATUS_OK;
}

static specrt_status frame_lines(const corpus_format *f, corpus_window *w, corpus_stream *s,
                                 uint64_t low, uint64_t high, corpus_range *out,
                                 specrt_error *err) {
    out->start = f->first;
    specrt_status status = sl_corpus_window_fill(w, s, high, err);
    if (status == SPECRT_STATUS_OK && low > 0)
        status = find_line(w, s, low, high, &out->start, err);
    out->end = out->start;
    if (status == SPECRT_STATUS_OK && out->start < high && out->start < w->base + w->n)
        status = find_line(w, s, high, high + CORPUS_CAP_BYTES, &out->end, err);
    return status;
}

static specrt_status frame_ids(const corpus_format *f, corpus_window *w, corpus_stream *s,
                               uint64_t low, uint64_t high, corpus_range *out, specrt_error *err) {
    if (f->end > 0 && high > f->end) high = f->end;
    specrt_status status = sl_corpus_window_fill(w, s, high, err);
    if (status != SPECRT_STATUS_OK) return status;
    uint64_t end = w->base + w->n < high ? w->base + w->n : high;
    if (f->end > 0 && end < high)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: the file is cut short; expected %llu bytes of ids, found %llu",
                                s->name, (unsigned long long)(f->end - f->first),
                                (unsigned long long)(end - f->first));
    out->start = low < end ? low : end;
    out->end = end;
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_frame_block(const corpus_format *f, corpus_window *w, corpus_stream *s,
                                    uint64_t block, corpus_range *out, specrt_error *err) {
    memset(out, 0, sizeof *out);
    bool ids = f->kind == KIND_IDS;
    uint64_t low = ids ? f->first + block * f->group_bytes : block * CORPUS_BATCH_BYTES;
    uint64_t high = low + (ids ? f->group_bytes : CORPUS_BATCH_BYTES);
    uint64_t base = low > LOOK_BEHIND ? low - LOOK_BEHIND : 0;
    if (s->any_offset) {
        w->n = 0;
        w->base = base;
        w->ended = false;
    } else
        sl_corpus_window_drop(w, base);
    if (ids) return frame_ids(f, w, s, low, high, out, err);
    return f->kind == KIND_TEXT ? frame_text(f, w, s, low, high, out, err)
                                : frame_lines(f, w, s, low, high, out, err);
}
