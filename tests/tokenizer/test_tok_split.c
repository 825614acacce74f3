/* test_tok_split.c : the hand-written splitters against PCRE2 with the published expressions. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "tokenizer/split.h"
#include "test.h"

/* PCRE2's \s holds U+180E, which lost that property in Unicode 6.3; the tokenizers follow Unicode. */
#define WS                                                                                         \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define S        "[" WS "]"
#define NS       "[^" WS "]"
#define TAIL     "|" S "*[\\r\\n]+|" S "+(?!" NS ")|" S "+"
#define CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define OTHER    " ?[^" WS "\\p{L}\\p{N}]+"
#define LLAMA3(numbers)                                                                            \
    CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "|" OTHER "[\\r\\n]*" TAIL
#define GPT2  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHER "|" S "+(?!" NS ")|" S "+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* clang-format off: it aligns by columns that wide characters do not have */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯ"          \
    "Ա-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"           \
    "Ὀ-Ὅὐ-ὗὙὛὝ\\x{1F5F}-\\x{1F7D}ᾀ-ᾴᾶ-ᾼ\\x{1FBE}ῂ-ῄῆ-ῌῐ-"          \
    "\\x{1FD3}ῖ-\\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ"            \
    "\\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-"         \
    "ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-"           \
    "𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
/* clang-format on */

typedef struct expression {
    tok_split_kind kind;
    const char *name;
    const char *patterns[7]; /* each splits inside the pieces of the one before */
} expression;

static const expression expressions[] = {
    {TOK_SPLIT_GPT2, "gpt-2", {GPT2}},
    {TOK_SPLIT_LLAMA3, "llama-bpe", {LLAMA3("\\p{N}{1,3}")}},
    {TOK_SPLIT_CL100K,
     "cl100k",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|" OTHER "+[\\r\\n]*+|" S
      "++$|" S "*[\\r\\n]|" S "+(?!" NS ")|" S}},
    {TOK_SPLIT_QWEN2, "qwen2", {LLAMA3("\\p{N}")}},
    {TOK_SPLIT_QWEN35,
     "qwen35",
     {CASELESS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
               "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL}},
    {TOK_SPLIT_O200K,
     "o200k",
     {"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CASELESS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER
      "+" LOWER "*" CASELESS "?|\\p{N}{1,3}|" OTHER "[\\r\\n/]*" TAIL}},
    {TOK_SPLIT_FALCON, "falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9]+", "[0-9][0-9][0-9]"}},
    {TOK_SPLIT_DEEPSEEK_LLM,
     "deepseek-llm",
     {"[\\r\\n]", S "?[" DEEPSEEK_LETTERS "]+", S "?[!-/:-~！-／：-～‘-‟　-。]+", S "+$",
      "[一-龥ࠀ-一가-\\x{D7FF}]+", "\\p{N}+"}},
    {TOK_SPLIT_SPACE, "space", {" [^ ]*|[^ ]+"}},
};
enum { N_EXPRESSIONS = sizeof expressions / sizeof expressions[0] };

#define MAX_TEXT 4096

typedef struct ends {
    size_t at[MAX_TEXT];
    size_t n;
} ends;

static tok_unicode *unicode;

static pcre2_code *compile(const char *pattern) {
    int code;
    PCRE2_SIZE offset;
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &offset, NULL);
    REQUIRE(re);
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    return re;
}

/* Split [begin, end) by one expression: matches, and what lies between them. */
static void split_piece(pcre2_code *re, pcre2_match_data *match, const uint8_t *text, size_t begin,
                        size_t end, ends *out) {
    size_t p = begin;
    while (p < end && pcre2_match(re, text + begin, end - begin, p - begin, PCRE2_NO_UTF_CHECK,
                                  match, NULL) > 0) {
        PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
        size_t first = begin + range[0], last = begin + range[1];
        if (first == last) break;
        if (first > p) out->at[out->n++] = first;
        out->at[out->n++] = p = last;
    }
    if (p < end) out->at[out->n++] = end;
}

static void split_by_pcre2(pcre2_code *const *codes, pcre2_match_data *match, const uint8_t *text,
                           size_t n, ends *out) {
    static ends before;
    out->n = 0;
    if (n) out->at[out->n++] = n;
    for (; *codes; codes++) {
        before = *out;
        out->n = 0;
        size_t begin = 0;
        for (size_t i = 0; i < before.n; begin = before.at[i++])
            split_piece(*codes, match, text, begin, before.at[i], out);
    }
}

/* Piece ends, asking for at most `max` at a time. */
static void split_by_scanner(tok_split_kind kind, const uint8_t *text, size_t n, size_t max,
                             ends *out) {
    out->n = 0;
    for (size_t from = 0; from < n; from = out->at[out->n - 1]) {
        size_t count = sl_tok_split(unicode, kind, text, n, from, out->at + out->n, max);
        REQUIRE(count >= 1 && count <= max);
        out->n += count;
    }
}

/* ---- random text ---- */

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static const char ascii_common[] = "estrlvdmSTRELVDMabAB  '  0123 \n\r\t.,!-/(\"$_";
/* Letters of each kind, marks, numbers, spaces, punctuation, symbols, joins, right-to-left, ends of
 * deepseek's ranges, unassigned. */
static const uint32_t others[] = {
    0x00,   0x0B,    0x0C,    0x1F,    0x7F,    0x85,    0xA0,    0xAA,    0xB2,   0xB5,   0xBD,
    0xC9,   0xE9,    0x17F,   0x1C5,   0x2B0,   0x300,   0x301,   0x391,   0x3C9,  0x416,  0x436,
    0x5D0,  0x627,   0x660,   0x661,   0x6F1,   0x7FF,   0x800,   0x903,   0x915,  0x1680, 0x180E,
    0x1C90, 0x1E9E,  0x1F00,  0x1F5F,  0x2003,  0x200B,  0x200D,  0x200F,  0x2014, 0x2018, 0x2019,
    0x201C, 0x201F,  0x2028,  0x2029,  0x202F,  0x205F,  0x20AC,  0x2126,  0x212A, 0x2167, 0x2460,
    0x2615, 0x2C00,  0x3000,  0x3001,  0x3002,  0x3007,  0x3042,  0x30FC,  0x4E00, 0x4E2D, 0x9FA5,
    0x9FA6, 0xAC00,  0xD7A3,  0xD7FF,  0xFB00,  0xFE0F,  0xFF01,  0xFF11,  0xFF21, 0xFF41, 0xFFFD,
    0xFFFF, 0x10400, 0x1D7D8, 0x1F600, 0x1F468, 0x1F680, 0xE0100, 0x10FFFF};

static size_t put_code_point(uint32_t cp, uint8_t *out) {
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(lead[n] | cp);
    return n;
}

/* `foreign` of 100 code points are not ASCII; some are repeated, so that runs get long. */
static size_t random_text(uint8_t *text, size_t limit, uint32_t foreign) {
    size_t n = 0, target = random_below((uint32_t)limit - 200);
    while (n < target) {
        bool other = random_below(100) < foreign;
        uint32_t cp = other ? others[random_below(sizeof others / sizeof others[0])]
                            : (uint32_t)ascii_common[random_below(sizeof ascii_common - 1)];
        uint32_t repeat = random_below(8) ? 1 : 1 + random_below(random_below(10) ? 5 : 45);
        while (repeat--) n += put_code_point(cp, text + n);
    }
    return n;
}

static void print_difference(const expression *e, const uint8_t *text, size_t n, const ends *a,
                             const ends *b) {
    size_t i = 0;
    while (i < a->n && i < b->n && a->at[i] == b->at[i]) i++;
    size_t from = i ? a->at[i - 1] : 0;
    fprintf(stderr, "%s: piece at %zu of %zu ends at %zu, expected %zu:", e->name, from, n,
            a->at[i], b->at[i]);
    for (size_t k = from > 8 ? from - 8 : 0; k < n && k < from + 40; k++)
        fprintf(stderr, "%s%02x", k == from ? " | " : " ", text[k]);
    fprintf(stderr, "\n");
}

static void check_random(uint32_t foreign, size_t limit, int n_texts) {
    static uint8_t text[MAX_TEXT];
    static ends expected, got;
    pcre2_match_data *match = pcre2_match_data_create(8, NULL);
    unicode = sl_tok_unicode_new();
    REQUIRE(unicode);
    for (int e = 0; e < N_EXPRESSIONS; e++) {
        pcre2_code *codes[7] = {NULL};
        /* Falcon's last splits see bytes, which only in ASCII are what a regex on text sees; the
         * vectors and tests/interop check the rest. */
        if (foreign && expressions[e].kind == TOK_SPLIT_FALCON) continue;
        for (int i = 0; expressions[e].patterns[i]; i++)
            codes[i] = compile(expressions[e].patterns[i]);
        int differences = 0;
        for (int t = 0; t < n_texts && differences < 3; t++) {
            size_t n = random_text(text, limit, foreign),
                   max = t % 4   ? MAX_TEXT
                         : t % 8 ? 64
                                 : 1 + (size_t)t % 7; /* 64: a block's */
            split_by_pcre2(codes, match, text, n, &expected);
            split_by_scanner(expressions[e].kind, text, n, max, &got);
            bool same =
                got.n == expected.n && memcmp(got.at, expected.at, got.n * sizeof got.at[0]) == 0;
            CHECK(same);
            if (!same) print_difference(&expressions[e], text, n, &got, &expected);
            differences += !same;
        }
        for (int i = 0; codes[i]; i++) pcre2_code_free(codes[i]);
    }
    pcre2_match_data_free(match);
    sl_tok_unicode_free(unicode);
}

TEST(ascii, "splitters on ASCII text") {
    check_random(0, 700, 4000);
}
TEST(mostly_ascii, "splitters on ASCII text with a few others") {
    check_random(2, 700, 4000);
}
TEST(mixed, "splitters on mixed text") {
    check_random(50, 300, 6000);
}
TEST(short, "splitters on short texts") {
    check_random(30, 210, 20000);
}

/* ---- classes ---- */

/* Every code point that PCRE2 knows has the classes its properties say. */
static void check_class(const char *property, unsigned class) {
    pcre2_code *assigned = compile("\\P{Cn}"), *re = compile(property);
    pcre2_match_data *match = pcre2_match_data_create(2, NULL);
    int wrong = 0;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint8_t text[4];
        if (cp >= 0xD800 && cp < 0xE000) cp = 0xE000;
        size_t n = put_code_point(cp, text);
        bool has = tok_class(unicode, cp) & class;
        if (has == (pcre2_match(re, text, n, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0)) continue;
        if (pcre2_match(assigned, text, n, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0)
            if (wrong++ < 5) fprintf(stderr, "%s: U+%04X\n", property, cp);
    }
    CHECK_INT(wrong, 0);
    pcre2_match_data_free(match);
    pcre2_code_free(assigned);
    pcre2_code_free(re);
}

TEST(classes, "properties of all code points") {
    unicode = sl_tok_unicode_new();
    REQUIRE(unicode);
    check_class("\\p{L}", UC_LETTER);
    check_class("\\p{N}", UC_NUMBER);
    check_class("\\p{M}", UC_MARK);
    check_class("\\p{P}", UC_PUNCT);
    check_class(S, UC_SPACE);
    check_class(UPPER, UC_UPPER);
    check_class(LOWER, UC_LOWER);
    sl_tok_unicode_free(unicode);
}
