/* regex.c : Oniguruma's regexes on PCRE2. The translator reads a pattern once, left to right;
 * `out` grows, and `atom` remembers where the last repeatable thing begins in it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "specrt_tools.h"
#include "tokenizer/split.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/error.h"
#include "base/memory.h"

#define MAX_PATTERN    65536
#define MAX_DEPTH      100
#define JIT_STACK_MIN  (32 << 10)
#define JIT_STACK_MAX  (64 << 20)
#define HEAP_LIMIT_KIB (512 << 10)

/* Oniguruma's \s and \w, spelled out: PCRE2's \s has U+180E, its \w is narrower. Oniguruma's \w has
 * the letters in circles and squares and, outside of [...], Latin-1's superscripts and fractions. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-"         \
    "\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

struct tok_regex {
    pcre2_code *code;
    bool jit;
};

struct tok_regex_run {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- growing text ---- */

typedef struct strbuf {
    char *s;
    size_t n, capacity;
    bool failed; /* out of memory, found once at the end */
} strbuf;

static void text_put(strbuf *t, const char *s, size_t n) {
    if (t->failed) return;
    if (!sl_reserve(&t->s, &t->capacity, t->n + n + 1, 1)) {
        t->failed = true;
        return;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

static void text_add(strbuf *t, const char *s) {
    text_put(t, s, strlen(s));
}

static void text_insert(strbuf *t, size_t at, const char *s) {
    size_t n = strlen(s), tail = t->n - at;
    text_put(t, s, n); /* makes room */
    if (t->failed) return;
    memmove(t->s + at + n, t->s + at, tail);
    memcpy(t->s + at, s, n);
}

/* ---- reading a pattern ---- */

typedef struct reader {
    const char *s, *p, *end;
    const char *wrong; /* the first thing that has no translation */
    int depth;
} reader;

static bool refuse(reader *r, const char *what) {
    if (!r->wrong) r->wrong = what;
    return false;
}

static bool at(const reader *r, const char *s) {
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, s, n) == 0;
}

static bool take(reader *r, const char *s) {
    if (!at(r, s)) return false;
    r->p += strlen(s);
    return true;
}

/* What comes before `close`, which is taken, too. */
static bool take_until(reader *r, char close, const char **s, size_t *n) {
    const char *end = memchr(r->p, close, (size_t)(r->end - r->p));
    if (!end) return false;
    *s = r->p;
    *n = (size_t)(end - r->p);
    r->p = end + 1;
    return true;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Hex digits, `min` to `max` of them, into "\x{...}". */
static bool take_hex(reader *r, strbuf *out, int min, int max) {
    int n = 0;
    while (n < max && r->p + n < r->end && is_hex(r->p[n])) n++;
    if (n < min) return refuse(r, "a malformed hexadecimal escape");
    if (min == 1 && max == 2 && n == 2 && r->p[0] >= '8')
        return refuse(r, "\\x with a byte above 7f");
    text_add(out, "\\x{");
    text_put(out, r->p, (size_t)n);
    text_add(out, "}");
    r->p += n;
    return true;
}

/* Whether it is the name of a script, which PCRE2 would take to mean its extensions too. */
static bool is_script(const char *name, size_t n) {
    char probe[80];
    int length = snprintf(probe, sizeof probe, "\\p{sc:%.*s}", (int)n, name), code;
    PCRE2_SIZE offset;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)probe, (size_t)length, PCRE2_UTF, &code, &offset, NULL);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

/* A property by PCRE2's name. */
static void put_property(strbuf *out, const char *name, size_t n) {
    static const char *const names[][2] = {
        {"letter", "L"},          {"mark", "M"},  {"number", "N"},
        {"punctuation", "P"},     {"punct", "P"}, {"symbol", "S"},
        {"separator", "Z"},       {"other", "C"}, {"digit", "Nd"},
        {"space", "White_Space"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == n && strncasecmp(names[i][0], name, n) == 0) {
            text_add(out, names[i][1]);
            return;
        }
    if (is_script(name, n)) text_add(out, "sc:");
    text_put(out, name, n);
}

/* After \p or \P: "{L}" or "{^L}". */
static bool take_property(reader *r, strbuf *out, bool negated) {
    if (!take(r, "{")) return refuse(r, "\\p without braces");
    if (take(r, "^")) negated = !negated;
    const char *name;
    size_t n;
    if (!take_until(r, '}', &name, &n) || n == 0 || n > 64) return refuse(r, "a malformed \\p");
    text_add(out, negated ? "\\P{" : "\\p{");
    put_property(out, name, n);
    text_add(out, "}");
    return true;
}

/* What an escape stands for. */
typedef enum escape {
    ESCAPE_BAD,
    ESCAPE_CHAR,    /* one code point, written to out */
    ESCAPE_SET,     /* a set, written as the inside of a class */
    ESCAPE_NOT_SET, /* everything but the set written so */
    ESCAPE_OTHER,   /* anchors and references: not for classes */
} escape;

static escape escape_set(strbuf *out, const char *set, bool negated) {
    text_add(out, set);
    return negated ? ESCAPE_NOT_SET : ESCAPE_SET;
}

static escape escape_char(strbuf *out, const char *s) {
    text_add(out, s);
    return ESCAPE_CHAR;
}

static escape escape_other(strbuf *out, char letter) {
    static const char is[] = "(?=[" WORD_ALONE "])", is_not[] = "(?![" WORD_ALONE "])";
    static const char was[] = "(?<=[" WORD_ALONE "])", was_not[] = "(?<![" WORD_ALONE "])";
    char pair[3] = {'\\', letter, 0};
    if (letter != 'b' && letter != 'B') {
        text_add(out, pair);
        return ESCAPE_OTHER;
    }
    const char *const parts[] = {
        "(?:", was, letter == 'b' ? is_not : is, "|", was_not, letter == 'b' ? is : is_not, ")"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) text_add(out, parts[i]);
    return ESCAPE_OTHER;
}

/* "name>", behind "<". */
static bool take_group_name(reader *r, strbuf *out) {
    const char *name;
    size_t n;
    if (!take_until(r, '>', &name, &n)) return refuse(r, "an unclosed group name");
    text_add(out, "<");
    text_put(out, name, n);
    text_add(out, ">");
    return true;
}

/* A reference by name, behind \k. */
static escape take_reference(reader *r, strbuf *out) {
    text_add(out, "\\k");
    if (!take(r, "<")) return refuse(r, "\\k without <name>"), ESCAPE_BAD;
    return take_group_name(r, out) ? ESCAPE_OTHER : ESCAPE_BAD;
}

/* The escape after a backslash. */
static escape take_escape(reader *r, bool in_class, strbuf *out) {
    if (r->p == r->end) return refuse(r, "a backslash at its end"), ESCAPE_BAD;
    char c = *r->p++;
    switch (c) {
    case 's':
    case 'S': return escape_set(out, SPACE, c == 'S');
    case 'w':
    case 'W': return escape_set(out, in_class ? WORD : WORD_ALONE, c == 'W');
    case 'd':
    case 'D': return escape_set(out, "\\p{Nd}", c == 'D');
    case 'h':
    case 'H': return escape_set(out, "0-9A-Fa-f", c == 'H');
    case 'p':
    case 'P': return take_property(r, out, c == 'P') ? ESCAPE_SET : ESCAPE_BAD;
    case 'n': return escape_char(out, "\\n");
    case 'r': return escape_char(out, "\\r");
    case 't': return escape_char(out, "\\t");
    case 'f': return escape_char(out, "\\f");
    case 'a': return escape_char(out, "\\a");
    case 'e': return escape_char(out, "\\e");
    case 'v': return escape_char(out, "\\x{b}");
    case 'k': return take_reference(r, out);
    case 'u': return take_hex(r, out, 4, 4) ? ESCAPE_CHAR : ESCAPE_BAD;
    case 'x':
        if (!take(r, "{")) return take_hex(r, out, 1, 2) ? ESCAPE_CHAR : ESCAPE_BAD;
        if (!take_hex(r, out, 1, 8)) return ESCAPE_BAD;
        if (!take(r, "}")) return refuse(r, "a malformed hexadecimal escape"), ESCAPE_BAD;
        return ESCAPE_CHAR;
    default: break;
    }
    if (strchr("bBAzZGRX123456789", c)) return escape_other(out, c);
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
        return refuse(r, "an escape that PCRE2 has no equal for"), ESCAPE_BAD;
    text_add(out, "\\");
    text_put(out, &c, 1);
    return ESCAPE_CHAR;
}

/* ---- classes ---- */

/* One operand of &&: a PCRE2 class body and alternatives that do not fit into one. */
typedef struct operand {
    strbuf body, alternatives; /* alternatives: "|[...]|(?:...)" */
} operand;

static void operand_free(operand *o) {
    free(o->body.s);
    free(o->alternatives.s);
    *o = (operand){{0}, {0}};
}

/* The operand as one atom. */
static void put_operand(strbuf *out, operand *o) {
    if (o->alternatives.n == 0) {
        text_add(out, "[");
        text_put(out, o->body.s ? o->body.s : "", o->body.n);
        text_add(out, "]");
    } else {
        text_add(out, "(?:");
        if (o->body.n) {
            text_add(out, "[");
            text_put(out, o->body.s, o->body.n);
            text_add(out, "]");
        }
        size_t skip = o->body.n ? 0 : 1;
        text_put(out, o->alternatives.s + skip, o->alternatives.n - skip);
        text_add(out, ")");
    }
    out->failed |= o->body.failed | o->alternatives.failed;
}

static void add_not_set(operand *o, const char *set) {
    text_add(&o->alternatives, "|[^");
    text_add(&o->alternatives, set);
    text_add(&o->alternatives, "]");
}

/* [:alpha:] and its like, at "[:". */
static bool take_posix(reader *r, operand *o) {
    static const char *const names[][2] = {
        {"alpha", "\\p{Alphabetic}"},
        {"digit", "\\p{Nd}"},
        {"alnum", "\\p{Alphabetic}\\p{Nd}"},
        {"space", SPACE},
        {"punct", "\\p{P}\\p{S}"},
        {"upper", "\\p{Uppercase}"},
        {"lower", "\\p{Lowercase}"},
        {"word", WORD},
        {"xdigit", "0-9A-Fa-f"},
    };
    r->p += 2;
    bool negated = take(r, "^");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char closed[16];
        snprintf(closed, sizeof closed, "%s:]", names[i][0]);
        if (!take(r, closed)) continue;
        if (negated)
            add_not_set(o, names[i][1]);
        else
            text_add(&o->body, names[i][1]);
        return true;
    }
    return refuse(r, "an unknown [:class:]");
}

/* One code point of a class, escaped where PCRE2 needs it. */
static void take_literal(reader *r, strbuf *out) {
    unsigned char c = (unsigned char)*r->p;
    size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (n > (size_t)(r->end - r->p)) n = (size_t)(r->end - r->p);
    bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (c > ' ' && c < 0x7F && !letter) text_add(out, "\\");
    text_put(out, r->p, n);
    r->p += n;
}

/* A code point or a set at p. @return whether it was a code point, so a range may follow. */
static bool take_class_item(reader *r, operand *o) {
    if (!take(r, "\\")) {
        take_literal(r, &o->body);
        return true;
    }
    if (take(r, "b")) {
        text_add(&o->body, "\\x{8}");
        return true;
    }
    if (r->p < r->end && (unsigned char)*r->p >= 0x80) {
        take_literal(r, &o->body);
        return true;
    }
    strbuf set = {0};
    escape kind = take_escape(r, true, &set);
    o->body.failed |= set.failed;
    if (kind == ESCAPE_OTHER)
        refuse(r, "an anchor or a reference inside [...]");
    else if (kind == ESCAPE_NOT_SET)
        add_not_set(o, set.s ? set.s : "");
    else if (set.n)
        text_put(&o->body, set.s, set.n);
    free(set.s);
    return kind == ESCAPE_CHAR;
}

static bool take_class(reader *r, strbuf *out);

/* Items up to "]" or "&&". */
static bool take_operand(reader *r, operand *o) {
    while (r->p < r->end && *r->p != ']' && !at(r, "&&") && !r->wrong) {
        if (at(r, "[:")) {
            take_posix(r, o);
            continue;
        }
        if (*r->p == '[') {
            text_add(&o->alternatives, "|");
            take_class(r, &o->alternatives);
            continue;
        }
        bool single = take_class_item(r, o);
        bool range = single && r->end - r->p >= 2 && r->p[0] == '-' && r->p[1] != ']';
        if (!range || r->p[1] == '[' || at(r, "-&&")) continue;
        text_add(&o->body, "-");
        r->p++;
        if (!take_class_item(r, o)) refuse(r, "a range that ends in a set");
    }
    return !r->wrong;
}

/* A class at "[". Operands but the last become lookaheads, a negated class one that must fail. */
static bool take_class(reader *r, strbuf *out) {
    if (++r->depth > MAX_DEPTH) return refuse(r, "nesting too deep");
    r->p++;
    bool negated = take(r, "^");
    if (at(r, "]")) return refuse(r, "an empty [...]");
    strbuf whole = {0};
    operand o = {{0}, {0}};
    int n_operands = 1;
    for (; take_operand(r, &o) && take(r, "&&"); n_operands++) {
        text_add(&whole, "(?=");
        put_operand(&whole, &o);
        text_add(&whole, ")");
        operand_free(&o);
    }
    if (!r->wrong && !take(r, "]")) refuse(r, "an unclosed [...]");
    bool plain = n_operands == 1 && o.alternatives.n == 0;
    if (plain && o.body.n == 0) refuse(r, "an empty [...]");
    if (!r->wrong && plain) {
        text_add(out, negated ? "[^" : "[");
        text_put(out, o.body.s, o.body.n);
        text_add(out, "]");
    } else if (!r->wrong) {
        if (o.body.n == 0 && o.alternatives.n == 0)
            refuse(r, "an empty operand of &&");
        else
            put_operand(&whole, &o);
        text_add(out, negated ? "(?:(?!" : "(?:");
        text_put(out, whole.s ? whole.s : "", whole.n);
        text_add(out, negated ? ")(?s:.))" : ")");
    }
    out->failed |= whole.failed | o.body.failed | o.alternatives.failed;
    free(whole.s);
    operand_free(&o);
    r->depth--;
    return !r->wrong;
}

/* ---- groups and repeats ---- */

/* Option letters at p, Ruby's m being PCRE2's s. */
static void take_options(reader *r, strbuf *out) {
    for (;;) {
        const char *option = take(r, "i") ? "i" : take(r, "m") ? "s" : take(r, "-") ? "-" : NULL;
        if (!option) return;
        text_add(out, option);
    }
}

/* What follows "(?" up to where the inside begins. `first`: nothing stands before it in its group.
 * *closed: it was an option setting "(?i)", which is no group. */
static bool take_group_head(reader *r, strbuf *out, bool first, bool *closed) {
    static const char *const heads[] = {":", "=", "!", ">", "<=", "<!"};
    text_add(out, "(?");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (take(r, heads[i])) {
            text_add(out, heads[i]);
            return true;
        }
    if (take(r, "<")) return take_group_name(r, out);
    take_options(r, out);
    if (take(r, ":")) {
        text_add(out, ":");
        return true;
    }
    /* In Ruby a setting reaches over the alternatives to its right as one group. */
    if (!take(r, ")")) return refuse(r, "a kind of (?...) that PCRE2 has no equal for");
    if (!first) return refuse(r, "an option setting that is not first in its group");
    text_add(out, ")");
    *closed = true;
    return true;
}

/* "{2,5}" at p, normalised. @return false, nothing taken, if it is not an interval. */
static bool take_interval(reader *r, strbuf *out, bool *exact) {
    const char *p = r->p + 1, *low = p;
    while (p < r->end && *p >= '0' && *p <= '9') p++;
    size_t n_low = (size_t)(p - low), n_high = 0;
    const char *high = p;
    bool comma = p < r->end && *p == ',';
    if (comma) {
        high = ++p;
        while (p < r->end && *p >= '0' && *p <= '9') p++;
        n_high = (size_t)(p - high);
    }
    if (p == r->end || *p != '}' || n_low + n_high == 0 || n_low > 5 || n_high > 5) return false;
    text_add(out, "{");
    text_put(out, n_low ? low : "0", n_low ? n_low : 1);
    if (comma) text_add(out, ",");
    text_put(out, high, n_high);
    text_add(out, "}");
    *exact = !comma;
    r->p = p + 1;
    return true;
}

static void wrap(strbuf *out, size_t atom) {
    text_insert(out, atom, "(?:");
    text_add(out, ")");
}

/* The repeats at p, of what begins at out[atom]. After an interval "?" makes it lazy (not after an
 * exact one) and "+" repeats it: Ruby has no possessive intervals. */
static void take_repeats(reader *r, strbuf *out, size_t atom) {
    for (bool repeated = false; r->p < r->end; repeated = true) {
        strbuf repeat = {0};
        bool exact = false;
        char c = *r->p;
        if (c == '{') {
            if (!take_interval(r, &repeat, &exact)) return;
            if (!exact && take(r, "?")) text_add(&repeat, "?");
        } else if (strchr("*+?", c)) {
            text_put(&repeat, r->p++, 1);
            if (take(r, "?"))
                text_add(&repeat, "?");
            else if (take(r, "+"))
                text_add(&repeat, "+");
        } else {
            return;
        }
        if (repeated) wrap(out, atom);
        text_put(out, repeat.s ? repeat.s : "", repeat.n);
        out->failed |= repeat.failed;
        free(repeat.s);
    }
}

/* One atom at p, not a group. */
static void take_atom(reader *r, strbuf *out) {
    if (*r->p == '[') {
        take_class(r, out);
    } else if (take(r, "\\")) {
        if (r->p < r->end && (unsigned char)*r->p >= 0x80) {
            take_literal(r, out);
            return;
        }
        strbuf inside = {0};
        escape kind = take_escape(r, false, &inside);
        if (kind == ESCAPE_SET || kind == ESCAPE_NOT_SET)
            text_add(out, kind == ESCAPE_SET ? "[" : "[^");
        text_put(out, inside.s ? inside.s : "", inside.n);
        if (kind == ESCAPE_SET || kind == ESCAPE_NOT_SET) text_add(out, "]");
        out->failed |= inside.failed;
        free(inside.s);
    } else if (strchr("*+?", *r->p)) {
        refuse(r, "a repeat of nothing");
    } else if (strchr(".^$", *r->p)) {
        text_put(out, r->p++, 1);
    } else {
        take_literal(r, out);
    }
}

static void translate(reader *r, strbuf *out) {
    size_t groups[MAX_DEPTH];
    int depth = 0;
    bool first = true; /* nothing yet in this group */
    while (r->p < r->end && !r->wrong && !out->failed) {
        size_t atom = out->n;
        bool closed = false;
        if (take(r, "(?#")) {
            while (r->p < r->end && *r->p != ')') r->p++;
            take(r, ")");
            continue;
        }
        if (take(r, "|")) {
            text_add(out, "|");
            first = false;
            continue;
        }
        if (*r->p == '(') {
            r->p++;
            if (!take(r, "?"))
                text_add(out, "(");
            else
                take_group_head(r, out, first, &closed);
            if (closed) continue;
            if (depth == MAX_DEPTH)
                refuse(r, "nesting too deep");
            else
                groups[depth++] = atom;
            first = true;
            continue;
        }
        if (take(r, ")")) {
            if (depth == 0)
                refuse(r, "an unopened )");
            else
                atom = groups[--depth];
            text_add(out, ")");
        } else {
            take_atom(r, out);
        }
        first = false;
        if (!r->wrong) take_repeats(r, out, atom);
    }
    if (depth) refuse(r, "an unclosed (");
}

/* ---- compiling and matching ---- */

static specrt_status compile(const strbuf *translated, const char *where, tok_regex *re,
                             specrt_error *err) {
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return sl_error_no_memory(err, where);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* Ruby's ^ and $ are those of lines. */
    re->code = pcre2_compile((PCRE2_SPTR)translated->s, translated->n,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (re->code) {
        re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
        return SPECRT_STATUS_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) return sl_error_no_memory(err, where);
    char reason[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: regex does not compile: %s", where,
                            reason);
}

specrt_status sl_tok_regex_compile(const char *pattern, size_t n, const char *where,
                                   tok_regex **out, specrt_error *err) {
    *out = NULL;
    if (n == 0 || n > MAX_PATTERN)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: regex has %zu bytes; expected 1 to %d", where, n, MAX_PATTERN);
    reader r = {pattern, pattern, pattern + n, NULL, 0};
    strbuf translated = {0};
    translate(&r, &translated);
    specrt_status status = SPECRT_STATUS_OK;
    tok_regex *re = calloc(1, sizeof *re);
    if (!re || translated.failed)
        status = sl_error_no_memory(err, where);
    else if (r.wrong)
        status = specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: regex \"%.*s\" uses %s",
                                  where, n > 80 ? 80 : (int)n, pattern, r.wrong);
    else
        status = compile(&translated, where, re, err);
    free(translated.s);
    if (status)
        sl_tok_regex_free(re);
    else
        *out = re;
    return status;
}

void sl_tok_regex_free(tok_regex *re) {
    if (!re) return;
    pcre2_code_free(re->code);
    free(re);
}

tok_regex_run *sl_tok_regex_run_new(void) {
    tok_regex_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->data = pcre2_match_data_create(1, NULL);
    run->context = pcre2_match_context_create(NULL);
    run->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (run->data && run->context && run->stack) {
        pcre2_jit_stack_assign(run->context, NULL, run->stack);
        pcre2_set_heap_limit(run->context, HEAP_LIMIT_KIB);
        return run;
    }
    sl_tok_regex_run_free(run);
    return NULL;
}

void sl_tok_regex_run_free(tok_regex_run *run) {
    if (!run) return;
    pcre2_match_data_free(run->data);
    pcre2_match_context_free(run->context);
    pcre2_jit_stack_free(run->stack);
    free(run);
}

int sl_tok_regex_find(const tok_regex *re, tok_regex_run *run, const uint8_t *text, size_t n,
                      size_t from, size_t span[2]) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (re->jit) rc = pcre2_jit_match(re->code, text, n, from, 0, run->data, run->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->data,
                         run->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) return -1;
    const PCRE2_SIZE *ovector = pcre2_get_ovector_pointer(run->data);
    span[0] = ovector[0];
    span[1] = ovector[1];
    /* \K in a lookahead can put the begin behind the end. */
    return span[0] <= span[1] && span[0] >= from ? 1 : -1;
}
