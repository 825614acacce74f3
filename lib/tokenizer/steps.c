/* steps.c : running a list of pre-tokenizers. Level i pulls pieces from level i - 1 and cuts each
 * into items, matches and the gaps between them, then joins or drops items by the step's behaviour. */

#include "tokenizer/split.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

#define NOWHERE SIZE_MAX

typedef struct span {
    size_t begin, end;
    bool match;
} span;

/* What one step is doing with the piece it is cutting. Offsets are into its view of the piece. */
typedef struct level {
    span piece; /* in the text */
    bool active;
    uint8_t *spelled; /* the piece as the step sees it, when that differs; owned */
    size_t spelled_capacity;
    const uint8_t *view;
    size_t n;
    size_t at;         /* end of the last item */
    size_t search;     /* where the next search begins */
    size_t last_match; /* end of the last match, NOWHERE before it */
    span found;        /* a match whose gap was handed out first */
    bool has_found, done;
    span pending; /* items joined so far */
    bool has_pending, previous_match;
    size_t map_view, map_text; /* view offset and text offset known to correspond */
} level;

typedef struct scratch {
    const tok_steps *steps;
    tok_regex_run *run;
    level levels[TOK_MAX_STEPS];
    const uint8_t *text;
    size_t n;
    bool taken, failed; /* the text was handed to the first level; a match went over its limits */
    span held;          /* a piece found but not handed out */
    bool has_held;
} scratch;

/* ---- how a step sees a piece ---- */

static size_t spell_byte(uint8_t byte, uint8_t out[4]) {
    bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    uint32_t cp = printable      ? byte
                  : byte <= 0x20 ? 0x100u + byte
                  : byte == 0xAD ? 0x143u
                                 : 0x121u + byte - 0x7F;
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, out);
}

static size_t spell_space(uint8_t byte, uint8_t out[3]) {
    if (byte == ' ') return memcpy(out, "\xE2\x96\x81", 3), 3;
    out[0] = byte;
    return 1;
}

/* The piece in the step's spelling. */
static bool spell(scratch *s, level *l, tok_spelling spelling) {
    const uint8_t *piece = s->text + l->piece.begin;
    size_t n = l->piece.end - l->piece.begin;
    l->view = piece;
    l->n = n;
    if (spelling == TOK_SPELL_PLAIN) return true;
    if (spelling == TOK_SPELL_SPACES && !memchr(piece, ' ', n)) return true;
    if (3 * n > l->spelled_capacity) {
        free(l->spelled);
        l->spelled_capacity = 0;
        l->spelled = malloc(6 * n);
        if (!l->spelled) return false;
        l->spelled_capacity = 6 * n;
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += spelling == TOK_SPELL_SPACES ? spell_space(piece[i], l->spelled + count)
                                              : spell_byte(piece[i], l->spelled + count);
    l->view = l->spelled;
    l->n = count;
    return true;
}

/* The text offset of a view offset; calls come in ascending order. */
static size_t to_text(const scratch *s, level *l, tok_spelling spelling, size_t offset) {
    if (l->view != l->spelled) return l->piece.begin + offset;
    while (l->map_view < offset) {
        int len;
        uint32_t cp = utf8_next(l->view + l->map_view, &len);
        l->map_view += (size_t)len;
        if (spelling == TOK_SPELL_BYTE_LEVEL)
            l->map_text++;
        else
            l->map_text += cp == 0x2581 && s->text[l->map_text] == ' ' ? 1 : (size_t)len;
    }
    return l->map_text;
}

/* ---- items: matches and the gaps between them ---- */

static bool find_class(const tok_steps *steps, const tok_step *step, level *l, span *out) {
    for (size_t p = l->search; p < l->n;) {
        int len;
        uint32_t cp = tok_decode(l->view + p, l->view + l->n, &len);
        if (tok_class(steps->tok->unicode, cp) & step->classes) {
            *out = (span){p, p + (size_t)len, true};
            return true;
        }
        p += (size_t)len;
    }
    return false;
}

static bool find_literal(const tok_step *step, level *l, span *out) {
    const uint8_t *hit =
        memmem(l->view + l->search, l->n - l->search, step->literal, step->n_literal);
    if (!hit) return false;
    size_t begin = (size_t)(hit - l->view);
    *out = (span){begin, begin + step->n_literal, true};
    return true;
}

static bool find_piece(const tok_steps *steps, const tok_step *step, level *l, span *out) {
    size_t end;
    if (l->search >= l->n) return false;
    sl_tok_split(steps->tok->unicode, step->splitter, l->view, l->n, l->search, &end, 1);
    *out = (span){l->search, end, true};
    return true;
}

/* As Oniguruma iterates: an empty match right behind another does not count. */
static bool find_regex(scratch *s, const tok_step *step, level *l, span *out) {
    while (l->search <= l->n) {
        size_t found[2];
        int result = sl_tok_regex_find(step->regex, s->run, l->view, l->n, l->search, found);
        if (result < 0) s->failed = true;
        if (result <= 0) return false;
        if (found[0] < found[1] || found[1] != l->last_match) {
            *out = (span){found[0], found[1], true};
            return true;
        }
        int len = 1;
        if (l->search < l->n) utf8_next(l->view + l->search, &len);
        l->search += (size_t)len;
    }
    return false;
}

static bool find_match(scratch *s, const tok_step *step, level *l, span *out) {
    switch (step->kind) {
    case TOK_STEP_CLASS: return find_class(s->steps, step, l, out);
    case TOK_STEP_LITERAL: return find_literal(step, l, out);
    case TOK_STEP_SPLITTER: return find_piece(s->steps, step, l, out);
    default: return find_regex(s, step, l, out);
    }
}

static bool next_item(scratch *s, const tok_step *step, level *l, span *out) {
    if (l->has_found) {
        *out = l->found;
        l->has_found = false;
        l->at = out->end;
        return true;
    }
    if (!l->done && find_match(s, step, l, &l->found)) {
        l->search = l->last_match = l->found.end;
        *out = l->found;
        if (l->found.begin > l->at) {
            *out = (span){l->at, l->found.begin, false};
            l->has_found = true;
        }
        l->at = out->end;
        return true;
    }
    l->done = true;
    if (l->at >= l->n) return false;
    *out = (span){l->at, l->n, false};
    l->at = l->n;
    return true;
}

/* ---- groups: items joined by the behaviour ---- */

/* Does an item continue the pending group? */
static bool joins(const tok_step *step, const level *l, span item) {
    switch (step->behavior) {
    case TOK_MERGED_WITH_PREVIOUS: return item.match && !l->previous_match;
    case TOK_MERGED_WITH_NEXT: return !item.match && l->pending.match;
    case TOK_CONTIGUOUS: return item.match == l->previous_match;
    default: return false;
    }
}

/* The next group of the level's piece, in view offsets. */
static bool next_group(scratch *s, const tok_step *step, level *l, span *out) {
    span item;
    while (next_item(s, step, l, &item)) {
        item.match ^= step->invert;
        if (step->behavior == TOK_REMOVED && item.match) continue;
        bool join = l->has_pending && joins(step, l, item);
        bool hand_out = l->has_pending && !join;
        *out = l->pending;
        if (join)
            l->pending.end = item.end, l->pending.match = item.match;
        else
            l->pending = item;
        l->has_pending = true;
        l->previous_match = item.match;
        if (hand_out) return true;
    }
    *out = l->pending;
    bool last = l->has_pending;
    l->has_pending = false;
    return last;
}

static bool begin_piece(scratch *s, int i, span piece) {
    level *l = &s->levels[i];
    l->piece = piece;
    l->at = l->search = l->map_view = 0;
    l->map_text = piece.begin;
    l->last_match = NOWHERE;
    l->has_found = l->done = l->has_pending = l->previous_match = false;
    l->active = spell(s, l, s->steps->steps[i].spelling);
    if (!l->active) s->failed = true;
    return l->active;
}

/* The next piece that is not empty out of level i, in text offsets; level -1 is the text. */
static bool next_piece(scratch *s, int i, span *out) {
    if (i < 0) {
        if (s->taken) return false;
        s->taken = true;
        *out = (span){0, s->n, false};
        return true;
    }
    level *l = &s->levels[i];
    const tok_step *step = &s->steps->steps[i];
    for (;;) {
        span group;
        while (l->active && next_group(s, step, l, &group)) {
            if (group.begin == group.end) continue;
            out->begin = to_text(s, l, step->spelling, group.begin);
            out->end = to_text(s, l, step->spelling, group.end);
            return true;
        }
        l->active = false;
        span piece;
        if (s->failed || !next_piece(s, i - 1, &piece) || !begin_piece(s, i, piece)) return false;
    }
}

/* ---- the custom splitter ---- */

static void *scratch_new(const void *state) {
    scratch *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->steps = state;
    s->run = sl_tok_regex_run_new();
    if (s->run) return s;
    free(s);
    return NULL;
}

static void scratch_free(void *pointer) {
    scratch *s = pointer;
    if (!s) return;
    for (int i = 0; i < TOK_MAX_STEPS; i++) free(s->levels[i].spelled);
    sl_tok_regex_run_free(s->run);
    free(s);
}

static void begin_text(scratch *s, const uint8_t *text, size_t n) {
    s->text = text;
    s->n = n;
    s->taken = s->failed = s->has_held = false;
    for (int i = 0; i < s->steps->n; i++) s->levels[i].active = false;
}

static size_t next_ends(const void *state, void *pointer, const uint8_t *text, size_t n,
                        size_t from, size_t *ends, size_t max) {
    const tok_steps *steps = state;
    scratch *s = pointer;
    if (from == 0) begin_text(s, text, n);
    size_t count = 0;
    while (count < max && from < n) {
        if (!s->has_held && !next_piece(s, steps->n - 1, &s->held)) s->held = (span){n, n, false};
        s->has_held = true;
        if (s->failed) return 0;
        if (s->held.begin > from) {
            from = s->held.begin;
            ends[count++] = from | TOK_PIECE_DROPPED;
        } else {
            from = ends[count++] = s->held.end;
            s->has_held = false;
        }
    }
    return count;
}

void sl_tok_steps_use(tok_steps *steps, tokenizer *tok) {
    steps->tok = tok;
    tok->split = TOK_SPLIT_CUSTOM;
    tok->custom = (tok_custom_split){
        .next = next_ends,
        .scratch_new = scratch_new,
        .scratch_free = scratch_free,
        .state_free = sl_tok_steps_free,
        .state = steps,
    };
}

void sl_tok_steps_free(void *pointer) {
    tok_steps *steps = pointer;
    if (!steps) return;
    for (int i = 0; i < steps->n; i++) {
        sl_tok_regex_free(steps->steps[i].regex);
        free(steps->steps[i].literal);
    }
    free(steps);
}
