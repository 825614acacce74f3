/* split.c : hand-written scanners for the regular expressions that published tokenizers split
 * text with. Each next_KIND() returns the end of the piece that begins at p, as the expression it
 * quotes would match there; docs name \s the White_Space property. */
#include "tokenizer/split.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- the ASCII classes of 64 bytes of text, a bit for each byte ---- */

#define TOK_BLOCK 64

/* Bit i speaks of byte i. */
typedef struct tok_block {
    uint64_t high; /* not ASCII */
    uint64_t letter, upper, number;
    uint64_t space, newline, blank; /* blank: ' ' alone */
    uint64_t apostrophe, slash;
} tok_block;

#ifdef __SSE2__
#define TOK_HAVE_BLOCKS 1

/* Bytes in [first, first + count): shifted to the bottom of the signed range, where one comparison
 * tells them. */
static inline __m128i tok_in_range(__m128i v, char first, char count) {
    __m128i shifted = _mm_add_epi8(v, _mm_set1_epi8((char)(-128 - first)));
    return _mm_cmplt_epi8(shifted, _mm_set1_epi8((char)(-128 + count)));
}

static inline uint64_t tok_bits(__m128i v, int at) {
    return (uint64_t)(uint32_t)_mm_movemask_epi8(v) << at;
}

static inline __m128i tok_is(__m128i v, char c) {
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

static inline tok_block tok_block_load(const uint8_t *text) {
    tok_block b = {0};
    for (int at = 0; at < TOK_BLOCK; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(text + at));
        __m128i folded = _mm_or_si128(v, _mm_set1_epi8(0x20)), blank = tok_is(v, ' ');
        b.high |= tok_bits(v, at);
        b.letter |= tok_bits(tok_in_range(folded, 'a', 26), at);
        b.upper |= tok_bits(tok_in_range(v, 'A', 26), at);
        b.number |= tok_bits(tok_in_range(v, '0', 10), at);
        b.space |= tok_bits(_mm_or_si128(tok_in_range(v, '\t', 5), blank), at);
        b.newline |= tok_bits(_mm_or_si128(tok_is(v, '\n'), tok_is(v, '\r')), at);
        b.blank |= tok_bits(blank, at);
        b.apostrophe |= tok_bits(tok_is(v, '\''), at);
        b.slash |= tok_bits(tok_is(v, '/'), at);
    }
    return b;
}
#endif

/* ---- scanners ---- */

/* The text being cut. */
typedef struct view {
    const tok_unicode *unicode;
    const uint8_t *text;
    size_t n;
} view;

/* Class of the code point at p (0 past the end, which no class matches) and its length. */
static inline unsigned class_at(const view *v, size_t p, size_t *len) {
    if (p >= v->n) return *len = 0, 0;
    uint8_t c = v->text[p];
    if (c < 0x80) return *len = 1, v->unicode->blocks[0][c];
    int bytes;
    uint32_t cp = tok_decode(v->text + p, v->text + v->n, &bytes);
    *len = (size_t)bytes;
    return tok_class(v->unicode, cp);
}

/* Past the longest run from p of code points with any property of `any`. */
static inline size_t skip_any(const view *v, size_t p, unsigned any) {
    size_t len;
    while (class_at(v, p, &len) & any) p += len;
    return p;
}

/* Past the longest run from p of code points with no property of `none`. */
static inline size_t skip_none(const view *v, size_t p, unsigned none) {
    size_t len;
    while (p < v->n && !(class_at(v, p, &len) & none)) p += len;
    return p;
}

/* ---- parts that several expressions share ---- */

/* Length of 's 't 'm 'd 're 've 'll at p, or 0. Regardless of case, U+017F (long s) is an s. */
static size_t contraction(const view *v, size_t p, bool any_case) {
    if (p + 1 >= v->n || v->text[p] != '\'') return 0;
    uint8_t fold = any_case ? 0x20 : 0;
    uint8_t a = v->text[p + 1], b = p + 2 < v->n ? v->text[p + 2] : 0;
    if (any_case && a == 0xC5 && b == 0xBF) return 3;
    a |= fold, b |= fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? 3 : 0;
}

/* \s+(?!\S)|\s+ at the first of the spaces [p, e): all but the last if anything follows. */
static size_t spaces_but_last(const view *v, size_t p, size_t e) {
    if (e == v->n) return e;
    size_t last = p, len;
    for (size_t q = p; q < e; q += len) {
        last = q;
        class_at(v, q, &len);
    }
    return last > p ? last : e;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at a space. */
static inline size_t spaces(const view *v, size_t p) {
    size_t len, last_newline = 0, e = p;
    for (unsigned c; (c = class_at(v, e, &len)) & UC_SPACE;) {
        e += len;
        if (c & UC_NEWLINE) last_newline = e;
    }
    return last_newline ? last_newline : spaces_but_last(v, p, e);
}

/* \p{N}{1,limit} at a number. */
static size_t numbers(const view *v, size_t p, int limit) {
    size_t len;
    for (int i = 0; i < limit && class_at(v, p, &len) & UC_NUMBER; i++) p += len;
    return p;
}

/* ---- gpt-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ ---- */

static size_t next_gpt2(const view *v, size_t p) {
    const unsigned word = UC_SPACE | UC_LETTER | UC_NUMBER;
    size_t len, contracted = contraction(v, p, false);
    if (contracted) return p + contracted;
    size_t q = p + (v->text[p] == ' ');
    unsigned c = class_at(v, q, &len);
    if (c & UC_LETTER) return skip_any(v, q, UC_LETTER);
    if (c & UC_NUMBER) return skip_any(v, q, UC_NUMBER);
    if (len && !(c & word)) return skip_none(v, q, word);
    return spaces_but_last(v, p, skip_any(v, p, UC_SPACE));
}

/* ---- llama-bpe, cl100k, qwen2, qwen35 ----
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
 *     |\s*[\r\n]+|\s+(?!\S)|\s+
 * cl100k has \s+$ before the newlines; qwen2 takes numbers singly; qwen35 reads [\p{L}\p{M}] for \p{L},
 * save in the first negated class, where it makes no difference. */

static inline size_t next_llama3(const view *v, size_t p, unsigned letter, int max_numbers) {
    const unsigned word = UC_SPACE | UC_NUMBER | letter;
    size_t len, next_len, contracted = contraction(v, p, true);
    if (contracted) return p + contracted;
    unsigned c = class_at(v, p, &len);
    if (c & letter) return skip_any(v, p + len, letter);
    if (c & UC_NUMBER) return numbers(v, p, max_numbers);
    if (!(c & UC_NEWLINE) && class_at(v, p + len, &next_len) & letter)
        return skip_any(v, p + len + next_len, letter);
    size_t q = p + (v->text[p] == ' ');
    if (q < v->n && !(class_at(v, q, &len) & word))
        return skip_any(v, skip_none(v, q, word), UC_NEWLINE);
    return spaces(v, p);
}

static size_t next_cl100k(const view *v, size_t p) {
    size_t len;
    bool space = class_at(v, p, &len) & UC_SPACE;
    if (space && skip_any(v, p, UC_SPACE) == v->n) return v->n;
    return next_llama3(v, p, UC_LETTER, 3);
}

/* ---- o200k ----
 *     [^\r\n\p{L}\p{N}]?U*l+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+l*(?i:...)?|\p{N}{1,3}
 *     | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and l = [\p{Ll}\p{Lm}\p{Lo}\p{M}]. */

/* U*l+ at p, or 0. When no l follows the capitals, the last of them that is an l too ends it. */
static size_t small_word(const view *v, size_t p) {
    size_t len, end_of_last_both = 0;
    for (unsigned c; (c = class_at(v, p, &len)) & UC_UPPER;) {
        p += len;
        if (c & UC_LOWER) end_of_last_both = p;
    }
    return class_at(v, p, &len) & UC_LOWER ? skip_any(v, p, UC_LOWER) : end_of_last_both;
}

/* U+l* at p, or 0. */
static size_t capital_word(const view *v, size_t p) {
    size_t e = skip_any(v, p, UC_UPPER);
    return e > p ? skip_any(v, e, UC_LOWER) : 0;
}

static size_t next_o200k(const view *v, size_t p) {
    const unsigned word = UC_SPACE | UC_LETTER | UC_NUMBER;
    size_t len;
    unsigned c = class_at(v, p, &len);
    if (c & UC_NUMBER) return numbers(v, p, 3);
    bool prefix = !(c & (UC_NEWLINE | UC_LETTER | UC_NUMBER));
    size_t e = prefix ? small_word(v, p + len) : 0;
    if (!e) e = small_word(v, p);
    if (!e && prefix) e = capital_word(v, p + len);
    if (!e) e = capital_word(v, p);
    if (e) return e + contraction(v, e, true);
    size_t q = p + (v->text[p] == ' ');
    if (q == v->n || class_at(v, q, &len) & word) return spaces(v, p);
    q = skip_none(v, q, word);
    while (q < v->n && (v->text[q] == '\r' || v->text[q] == '\n' || v->text[q] == '/')) q++;
    return q;
}

/* ---- falcon: four splits, each inside the pieces of the one before ----
 *     runs of punctuation as `tokenizers` has it; gpt-2's; runs of digits; [0-9][0-9][0-9]
 * The last two come after the byte-level alphabet, where six bytes inside characters look like
 * numbers too, so that a piece may begin inside a character. */

static inline bool is_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9';
}

/* Bytes that byte-level text shows as digits, superscripts and fractions. */
static bool looks_numeric(uint8_t byte) {
    return is_digit(byte) || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
           (byte >= 0xBC && byte <= 0xBE);
}

/* The last two splits at p, in a piece of the first two that begins at or before p and is `run`, a
 * class or none of those, from q on. It is walked no further than its first edge: a piece of a
 * megabyte may have many. */
static size_t falcon_edge(const view *v, size_t p, size_t q, unsigned run, unsigned none) {
    size_t len, k = p;
    int digits = 0;
    for (unsigned c; (c = class_at(v, q, &len), len) && (run ? c & run : !(c & none)); q += len)
        for (; k < q + len; k++) {
            if (looks_numeric(v->text[k]) != looks_numeric(v->text[p])) return k;
            digits = is_digit(v->text[k]) ? digits + 1 : 0;
            if (digits == 3) return k - 2 > p ? k - 2 : k + 1;
        }
    return k;
}

static size_t next_falcon(const view *v, size_t p) {
    const unsigned word = UC_SPACE | UC_LETTER | UC_NUMBER;
    size_t len, begin = p;
    while (begin > 0 && p - begin < 3 && (v->text[begin] & 0xC0) == 0x80) begin--;
    class_at(v, begin, &len);
    if (begin + len <= p) begin = p; /* not UTF-8 */
    if (class_at(v, begin, &len) & UC_MARKS) return falcon_edge(v, p, begin, UC_MARKS, 0);
    size_t q = begin + (v->text[begin] == ' ');
    unsigned c = class_at(v, q, &len);
    if (c & UC_LETTER) return falcon_edge(v, p, q, UC_LETTER, 0);
    if (c & UC_NUMBER) return falcon_edge(v, p, q, UC_NUMBER, 0);
    if (len && !(c & (word | UC_MARKS))) return falcon_edge(v, p, q, 0, word | UC_MARKS);
    size_t e = skip_any(v, p, UC_SPACE);
    return class_at(v, e, &len) & UC_MARKS ? e : spaces_but_last(v, p, e);
}

/* ---- deepseek-llm: six splits, each inside the pieces of the one before ----
 *     [\r\n]    \s?A+    \s?Q+    \s+$    C+    \p{N}+
 * with A the letters below, Q = [!-/:-~！-／：-～‘-‟　-。] (which holds the ASCII letters too) and
 * C = [一-龥ࠀ-一가-퟿]. */

typedef struct range {
    uint32_t first, last;
} range;

static const range deepseek_letters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
static const range deepseek_marks[] = {
    {'!', '/'}, {':', '~'}, {0x2018, 0x201F}, {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};
static const range deepseek_scripts[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};

static bool in_ranges(uint32_t cp, const range *ranges, size_t n) {
    while (n > 0) {
        size_t half = n / 2;
        if (cp < ranges[half].first)
            n = half;
        else if (cp <= ranges[half].last)
            return true;
        else
            ranges += half + 1, n -= half + 1;
    }
    return false;
}

enum { DS_NEWLINE = 1, DS_SPACE = 2, DS_LETTER = 4, DS_MARK = 8, DS_SCRIPT = 16, DS_NUMBER = 32 };
#define IN(cp, ranges) in_ranges(cp, ranges, sizeof ranges / sizeof ranges[0])

static unsigned deepseek_at(const view *v, size_t p, size_t *len) {
    unsigned c = class_at(v, p, len), out = 0;
    if (*len == 0) return 0;
    int bytes;
    uint32_t cp = tok_decode(v->text + p, v->text + v->n, &bytes);
    if (c & UC_NEWLINE) return DS_NEWLINE;
    if (c & UC_SPACE) out |= DS_SPACE;
    if (c & UC_NUMBER) out |= DS_NUMBER;
    if (cp < 0x80) { /* the same without a search */
        if (c & UC_LETTER) out |= DS_LETTER;
        if (cp > ' ' && cp < 0x7F && !(c & UC_NUMBER)) out |= DS_MARK;
        return out;
    }
    if (IN(cp, deepseek_letters)) out |= DS_LETTER;
    if (IN(cp, deepseek_marks)) out |= DS_MARK;
    if (IN(cp, deepseek_scripts)) out |= DS_SCRIPT;
    return out;
}

/* The first three splits leave pieces of letters, of marks and of the rest; the others cut these. */
typedef enum deepseek_kind { DS_LETTERS, DS_MARKS, DS_REST } deepseek_kind;

static bool deepseek_letters_begin(const view *v, size_t p) {
    size_t len, next_len;
    unsigned c = deepseek_at(v, p, &len);
    return c & DS_LETTER || (c & DS_SPACE && deepseek_at(v, p + len, &next_len) & DS_LETTER);
}

static bool deepseek_marks_begin(const view *v, size_t p) {
    size_t len, next_len;
    unsigned c = deepseek_at(v, p, &len);
    return c & DS_MARK || (c & DS_SPACE && deepseek_at(v, p + len, &next_len) & DS_MARK &&
                           !deepseek_letters_begin(v, p + len));
}

static bool deepseek_ends(const view *v, size_t e, deepseek_kind kind) {
    size_t len;
    unsigned c = deepseek_at(v, e, &len);
    if (len == 0 || c & DS_NEWLINE) return true;
    if (kind == DS_LETTERS) return !(c & DS_LETTER);
    if (kind == DS_MARKS && !(c & DS_MARK)) return true;
    return deepseek_letters_begin(v, e) || (kind == DS_REST && deepseek_marks_begin(v, e));
}

/* Do spaces reach from e to the end of the piece? */
static bool deepseek_only_spaces(const view *v, size_t e, deepseek_kind kind) {
    size_t len;
    while (!deepseek_ends(v, e, kind)) {
        if (!(deepseek_at(v, e, &len) & DS_SPACE)) return false;
        e += len;
    }
    return true;
}

static size_t next_deepseek_llm(const view *v, size_t p) {
    size_t len, spaces_from = SIZE_MAX; /* where the spaces before e begin */
    unsigned c = deepseek_at(v, p, &len);
    if (c & DS_NEWLINE) return p + len;
    deepseek_kind kind = deepseek_letters_begin(v, p) ? DS_LETTERS
                         : deepseek_marks_begin(v, p) ? DS_MARKS
                                                      : DS_REST;
    /* Where these change is an edge; marks (third split) cut letters, but keep a space before. */
    unsigned edges = DS_SCRIPT | DS_NUMBER;
    if (kind == DS_LETTERS && (c & (DS_SPACE | DS_MARK)) != DS_SPACE) edges |= DS_MARK;
    for (size_t e = p;;) {
        if (!(c & DS_SPACE))
            spaces_from = SIZE_MAX;
        else if (spaces_from == SIZE_MAX)
            spaces_from = e;
        bool cut_spaces = spaces_from != SIZE_MAX && spaces_from > p;
        e += len;
        if (deepseek_ends(v, e, kind)) return cut_spaces ? spaces_from : e;
        unsigned before = c;
        c = deepseek_at(v, e, &len);
        if ((before ^ c) & edges)
            return cut_spaces && deepseek_only_spaces(v, e, kind) ? spaces_from : e;
        if (kind == DS_LETTERS) edges |= DS_MARK;
    }
}

/* ---- words of SentencePiece ---- */

static size_t next_space(const view *v, size_t p) {
    const uint8_t *space = memchr(v->text + p + 1, ' ', v->n - p - 1);
    return space ? (size_t)(space - v->text) : v->n;
}

/* ---- 64 bytes at once ----
 * In ASCII text, whether a piece begins at a byte follows from the classes of a few neighbours, so a
 * block that begins where a piece does is cut with a handful of word operations. What lies past the
 * first byte that is not ASCII is left for the next block or for the scanners above. */

#ifdef TOK_HAVE_BLOCKS

typedef struct block_starts {
    uint64_t starts;
    uint64_t unknown; /* from the lowest of these bits on, nothing is known */
} block_starts;

/* Bit i of the result is bit i - 1: the class of the byte before. */
static inline uint64_t before(uint64_t bits) {
    return bits << 1;
}

/* Length of an ASCII contraction whose apostrophe is at p, or 0. */
static inline int contraction_length(const uint8_t *p, uint8_t fold) {
    uint8_t a = p[1] | fold, b = p[2] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The bit `distance` above that of byte i, if the block holds it. */
static inline uint64_t bit_after(int i, int distance) {
    return i + distance < TOK_BLOCK ? UINT64_C(1) << (i + distance) : 0;
}

/* Every third number of a run begins a piece. */
static inline uint64_t triple_starts(uint64_t number) {
    uint64_t run_of_four = number & number << 1 & number << 2 & number << 3;
    uint64_t starts = number & ~before(number);
    for (uint64_t next = starts; (next = next << 3 & run_of_four);) starts |= next;
    return starts;
}

/* Runs of newline, other space, newline are one piece or two by what precedes: the second newline. */
static inline uint64_t broken_newlines(const tok_block *b, uint64_t inner_space) {
    uint64_t first = inner_space & before(b->newline);
    return (inner_space + first) & ~inner_space & b->newline;
}

static inline block_starts starts_gpt2(const tok_block *b, const uint8_t *text) {
    uint64_t other = ~(b->letter | b->number | b->space);
    uint64_t other_start = other & ~before(other | b->blank);
    uint64_t starts = other_start | (b->letter & ~before(b->letter | b->blank)) |
                      (b->number & ~before(b->number | b->blank)) |
                      (b->space & (~before(b->space) | ~(b->space >> 1)));
    for (uint64_t a = b->apostrophe & (other_start | 1); a; a &= a - 1) {
        int i = __builtin_ctzll(a), length = contraction_length(text + i, 0);
        if (length) starts = (starts & ~before(a & -a)) | bit_after(i, length);
    }
    return (block_starts){starts, b->high};
}

static inline block_starts starts_llama3(const tok_block *b, const uint8_t *text,
                                         bool single_numbers) {
    uint64_t inner = b->space & ~b->newline, other = ~(b->letter | b->number | b->space);
    uint64_t other_start = other & (~before(other | b->blank) | 1);
    uint64_t starts = other_start | (b->letter & ~before(b->letter | inner | other_start)) |
                      (single_numbers ? b->number : triple_starts(b->number)) |
                      (b->newline & ~before(b->space | other)) |
                      (inner & (~before(inner) | ~(b->space >> 1)));
    for (uint64_t a = b->apostrophe & other_start; a; a &= a - 1) {
        int i = __builtin_ctzll(a), length = contraction_length(text + i, 0x20);
        if (length) starts |= bit_after(i, length);
    }
    return (block_starts){starts, b->high | broken_newlines(b, inner)};
}

static inline block_starts starts_o200k(const tok_block *b, const uint8_t *text) {
    uint64_t inner = b->space & ~b->newline, other = ~(b->letter | b->number | b->space);
    uint64_t other_start = other & (~before(other | b->blank) | 1);
    uint64_t lower = b->letter & ~b->upper;
    uint64_t starts = other_start | (b->letter & ~before(b->letter | inner | other_start)) |
                      (b->upper & before(lower)) | triple_starts(b->number) |
                      (b->newline & ~before(b->space | other)) |
                      (inner & (~before(inner) | ~(b->space >> 1)));
    uint64_t unknown = b->high | broken_newlines(b, inner) | (b->slash & before(b->newline));
    uint64_t ends = 0;
    for (uint64_t a = b->apostrophe & before(b->letter); a; a &= a - 1) {
        uint64_t bit = a & -a;
        int i = __builtin_ctzll(a), length = contraction_length(text + i, 0x20);
        if (text[i + 1] >= 0x80) unknown |= bit; /* perhaps a long s */
        if (!length || ends & bit) continue;
        starts &= ~(length == 3 ? bit | bit << 2 : bit); /* 'vE has no edge of case within */
        ends |= bit_after(i, length);
    }
    return (block_starts){starts | ends, unknown};
}

/* Bits below the lowest set one; all when there is none. */
static inline uint64_t below(uint64_t bits) {
    return bits ? (bits & -bits) - 1 : ~UINT64_C(0);
}

/* Where pieces begin, bit 0 among them. Spaces before the unknown may go with it or not. */
static inline uint64_t known_starts(tok_split_kind kind, const uint8_t *text) {
    tok_block b = tok_block_load(text);
    block_starts s = kind == TOK_SPLIT_GPT2    ? starts_gpt2(&b, text)
                     : kind == TOK_SPLIT_O200K ? starts_o200k(&b, text)
                                               : starts_llama3(&b, text, kind == TOK_SPLIT_QWEN2);
    uint64_t known = below(s.unknown), solid = known & ~b.space;
    /* The first of the spaces that close the known part is the last certain start. */
    int last = solid ? TOK_BLOCK - __builtin_clzll(solid) : 0;
    uint64_t upto = last >= TOK_BLOCK - 1 ? ~UINT64_C(0) : ((uint64_t)2 << last) - 1;
    return (s.starts | 1) & known & upto;
}

/* Cuts whole blocks while it can: @return how many pieces; *from moves past them. */
static inline size_t split_blocks(tok_split_kind kind, const uint8_t *text, size_t n, size_t *from,
                                  size_t *ends, size_t max) {
    size_t count = 0, p = *from;
    /* A contraction may reach two bytes past the block. */
    while (p + TOK_BLOCK + 2 <= n && count + TOK_BLOCK <= max) {
        uint64_t starts = known_starts(kind, text + p) & ~UINT64_C(1);
        if (!starts) break;
        size_t begin = p;
        p += 63 - (size_t)__builtin_clzll(starts);
        for (; starts; starts &= starts - 1)
            ends[count++] = begin + (size_t)__builtin_ctzll(starts);
    }
    *from = p;
    return count;
}

#endif

/* ---- dispatch ---- */

static inline size_t next_piece(const view *v, tok_split_kind kind, size_t p) {
    switch (kind) {
    case TOK_SPLIT_SPACE: return next_space(v, p);
    case TOK_SPLIT_GPT2: return next_gpt2(v, p);
    case TOK_SPLIT_LLAMA3: return next_llama3(v, p, UC_LETTER, 3);
    case TOK_SPLIT_CL100K: return next_cl100k(v, p);
    case TOK_SPLIT_QWEN2: return next_llama3(v, p, UC_LETTER, 1);
    case TOK_SPLIT_QWEN35: return next_llama3(v, p, UC_LETTER | UC_MARK, 1);
    case TOK_SPLIT_O200K: return next_o200k(v, p);
    case TOK_SPLIT_DEEPSEEK_LLM: return next_deepseek_llm(v, p);
    case TOK_SPLIT_FALCON: return next_falcon(v, p);
    case TOK_SPLIT_CUSTOM:
    case TOK_SPLIT_NONE: break;
    }
    return v->n;
}

/* `blocks` is the kind that the block cutter takes for this one, TOK_SPLIT_NONE: it cannot. */
static inline size_t split_kind(const view *v, tok_split_kind kind, tok_split_kind blocks,
                                size_t from, size_t *ends, size_t max) {
    size_t count = 0, enough = max > TOK_BLOCK ? max - TOK_BLOCK : max;
    while (from < v->n && count < enough) {
#ifdef TOK_HAVE_BLOCKS
        if (blocks != TOK_SPLIT_NONE && v->text[from] < 0x80)
            count += split_blocks(blocks, v->text, v->n, &from, ends + count, max - count);
        if (count == max) break;
#else
        (void)blocks;
#endif
        ends[count++] = from = next_piece(v, kind, from);
    }
    return count;
}

size_t sl_tok_split(const tok_unicode *unicode, tok_split_kind kind, const uint8_t *text, size_t n,
                    size_t from, size_t *ends, size_t max) {
    view v = {unicode, text, n};
    switch (kind) {
    case TOK_SPLIT_GPT2: return split_kind(&v, kind, TOK_SPLIT_GPT2, from, ends, max);
    case TOK_SPLIT_CL100K:
    case TOK_SPLIT_LLAMA3: return split_kind(&v, kind, TOK_SPLIT_LLAMA3, from, ends, max);
    case TOK_SPLIT_QWEN35:
    case TOK_SPLIT_QWEN2: return split_kind(&v, kind, TOK_SPLIT_QWEN2, from, ends, max);
    case TOK_SPLIT_O200K: return split_kind(&v, kind, TOK_SPLIT_O200K, from, ends, max);
    default: return split_kind(&v, kind, TOK_SPLIT_NONE, from, ends, max);
    }
}
