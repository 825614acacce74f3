/* test_tok_json.c : tokenizer.json files against ids that PyPI's tokenizers gave (tests/golden/tokenizers/
 * make.py), pre-tokenizers and regexes against the pieces it gave, and bad files. */
#include <unistd.h>
#include "starve.h"

#include "folder.h"
#include "test.h"
#include "tokenizer/from_json.h"
#include "tokenizer/split.h"
#include "tok_vectors.h"

#define GOLDEN "tests/golden/tokenizers"

/* ---- whole files ---- */

static void check_case(const char *name, tok_worker *w, json_object *text, json_object *expected) {
    id_list ids = {0};
    REQUIRE(sl_tok_encode(w, json_object_get_string(text), (size_t)json_object_get_string_len(text),
                          &ids) == SPECRT_STATUS_OK);
    size_t n = json_object_array_length(expected), same = 0;
    while (same < n && same < ids.n &&
           ids.ids[same] == json_object_get_int(json_object_array_get_idx(expected, same)))
        same++;
    if (same != n || ids.n != n) {
        printf("%s: %s: token %zu: ", name, json_object_to_json_string(text), same);
        for (size_t i = same; i < ids.n && i < same + 8; i++) printf("%d ", ids.ids[i]);
        printf("; expected %s\n", json_object_to_json_string(expected));
        CHECK(same == n && ids.n == n);
    }
    free(ids.ids);
}

TEST(golden, "ids of random texts under small tokenizers of every kind") {
    json_object *list = json_object_from_file(GOLDEN "/cases.json");
    REQUIRE(list);
    json_object_object_foreach(list, name, texts) {
        char path[200];
        specrt_error err = {0};
        tokenizer *tok = NULL;
        tok_worker *w = NULL;
        snprintf(path, sizeof path, GOLDEN "/%s.json", name);
        if (sl_tokenizer_open(path, &tok, &err)) printf("%s\n", err.msg);
        REQUIRE(tok);
        REQUIRE(sl_tok_worker_create(tok, &w, NULL) == SPECRT_STATUS_OK);
        for (size_t i = 0; i < json_object_array_length(texts); i++) {
            json_object *item = json_object_array_get_idx(texts, i);
            check_case(name, w, json_object_array_get_idx(item, 0),
                       json_object_array_get_idx(item, 1));
        }
        sl_tok_worker_free(w);
        sl_tokenizer_close(tok);
    }
    json_object_put(list);
}

/* ---- pieces ---- */

/* A tokenizer with this pre-tokenizer and hardly a token. */
static tokenizer *with_pre_tokenizer(const char *json) {
    specrt_error err = {0};
    tok_spelling spelling;
    tokenizer *tok = calloc(1, sizeof *tok);
    json_object *spec = json_tokener_parse(json);
    REQUIRE(tok && spec);
    tok->path = "test";
    tok->unknown_id = TOK_NONE;
    if (sl_tok_json_pre_tokenizer(tok, spec, &spelling, &err)) printf("%s\n", err.msg);
    REQUIRE(sl_tok_set_token(tok, 0, "a", 1, TOKEN_NORMAL, 0, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_tokenizer_finish(tok, &err) == SPECRT_STATUS_OK);
    json_object_put(spec);
    return tok;
}

/* The pieces of a text, up to `max` at a time, with bars between them. */
static void cut(const tokenizer *tok, const char *text, size_t max, char *out) {
    size_t n = strlen(text), ends[64], from = 0;
    void *scratch = tok->custom.scratch_new ? tok->custom.scratch_new(tok->custom.state) : NULL;
    char *p = out;
    while (from < n) {
        size_t count =
            tok->split == TOK_SPLIT_CUSTOM
                ? tok->custom.next(tok->custom.state, scratch, (const uint8_t *)text, n, from, ends,
                                   max)
                : sl_tok_split(tok->unicode, tok->split, (const uint8_t *)text, n, from, ends, max);
        REQUIRE(count > 0 && count <= max);
        for (size_t i = 0; i < count; i++) {
            size_t end = ends[i] & ~TOK_PIECE_DROPPED;
            REQUIRE(end > from && end <= n);
            if (end == ends[i])
                p += sprintf(p, "%s%.*s", p > out ? "|" : "", (int)(end - from), text + from);
            from = end;
        }
    }
    *p = 0;
    if (scratch) tok->custom.scratch_free(scratch);
}

static void check_pieces(const char *json, const char *text, const char *expected) {
    tokenizer *tok = with_pre_tokenizer(json);
    char pieces[400];
    for (size_t max = 1; max <= 64; max *= 8) {
        cut(tok, text, max, pieces);
        CHECK_STR(pieces, expected);
    }
    sl_tokenizer_close(tok);
}

static const struct {
    const char *spec, *text, *pieces;
} pre_tokenizers[] = {
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Isolated\",\"invert\":"
     "false}",
     "the-final--countdown-", "the|-|final|-|-|countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\",\"invert\":"
     "false}",
     "--a-b", "-|-|a|-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Isolated\",\"invert\":true}",
     "the-final--countdown-", "the|-|final|-|-|countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\",\"invert\":"
     "true}",
     "--a-b", "-|-|a|-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Removed\",\"invert\":false}",
     "the-final--countdown-", "the|final|countdown"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Removed\",\"invert\":"
     "false}",
     "--a-b", "a|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Removed\",\"invert\":true}",
     "the-final--countdown-", "-|-|-|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Removed\",\"invert\":true}",
     "--a-b", "-|-|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithPrevious\","
     "\"invert\":false}",
     "the-final--countdown-", "the-|final-|-|countdown-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithPrevious\","
     "\"invert\":false}",
     "--a-b", "-|-|a-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithPrevious\","
     "\"invert\":true}",
     "the-final--countdown-", "the|-final|-|-countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithPrevious\","
     "\"invert\":true}",
     "--a-b", "-|-a|-b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithNext\",\"invert\":"
     "false}",
     "the-final--countdown-", "the|-final|-|-countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithNext\","
     "\"invert\":false}",
     "--a-b", "-|-a|-b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithNext\",\"invert\":"
     "true}",
     "the-final--countdown-", "the-|final-|-|countdown-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithNext\","
     "\"invert\":true}",
     "--a-b", "-|-|a-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Contiguous\",\"invert\":"
     "false}",
     "the-final--countdown-", "the|-|final|--|countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Contiguous\",\"invert\":"
     "false}",
     "--a-b", "--|a|-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Contiguous\",\"invert\":"
     "true}",
     "the-final--countdown-", "the|-|final|--|countdown|-"},
    {"{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Contiguous\",\"invert\":"
     "true}",
     "--a-b", "--|a|-|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=(\\\\d{3})+(?!\\\\d))\"},\"behavior\":"
     "\"Isolated\",\"invert\":false}",
     "a1234567b89", "a1|234|567b89"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x*\"},\"behavior\":\"Removed\",\"invert\":"
     "false}",
     "axxb", "a|b"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x*\"},\"behavior\":\"Isolated\",\"invert\":"
     "false}",
     "axxb", "a|xx|b"},
    {"{\"type\":\"Digits\",\"individual_digits\":true}",
     "a12 3\xc2\xbd"
     "b",
     "a|1|2| |3|\xc2\xbd|b"},
    {"{\"type\":\"Digits\",\"individual_digits\":false}",
     "a12 3\xc2\xbd"
     "b",
     "a|12| |3\xc2\xbd|b"},
    {"{\"type\":\"Punctuation\"}", "Hey!! \xc2\xabok\xc2\xbb a$b \xe2\xb8\xbf\xe2\xb9\x83",
     "Hey|!|!| |\xc2\xab|ok|\xc2\xbb| a|$|b |\xe2\xb8\xbf|\xe2\xb9\x83"},
    {"{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "Hey!! $+a\xe2\x80\xa6",
     "Hey|!!| |$+|a|\xe2\x80\xa6"},
    {"{\"type\":\"Whitespace\"}",
     "Hi there, e\xcc\x81t_\xc3\xa9 \xe2\x93\x90!? \xe2\x80\x8d\xc2\xbdx",
     "Hi|there|,|e\xcc\x81t_\xc3\xa9|\xe2\x93\x90|!?|\xe2\x80\x8d|\xc2\xbd|x"},
    {"{\"type\":\"WhitespaceSplit\"}", " Hi\xe3\x80\x80there,\n x ", "Hi|there,|x"},
    {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"x\"}", "axxbxc", "a|b|c"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},{"
     "\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}]"
     "}",
     "I've 123 cats\xc2\xbd 4", "I|'ve| |1|2|3| cats|\xc2\xbd| |4"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
     "\"trim_offsets\":true,\"use_regex\":true},{\"type\":\"Digits\",\"individual_digits\":false}]"
     "}",
     "a\xc2\xbd 12 x\xc2\xb2", "a|\xc2|\xbd| |12| x|\xc2|\xb2"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":"
     "\"Contiguous\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
     "\"use_regex\":true},{\"type\":\"Digits\",\"individual_digits\":false},{\"type\":\"Split\","
     "\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}]}",
     "Hey!! 12345 \xc2\xab\xc2\xbd\xc2\xbb it's  3,141.592x",
     "Hey|!!| |123|45| |\xc2\xab|\xc2|\xbd|\xc2\xbb| it|'|s| | |3|,|141|.|592|x"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
     "\"trim_offsets\":true,\"use_regex\":false},{\"type\":\"Split\",\"pattern\":{\"String\":"
     "\"\xc4\xa0\"},\"behavior\":\"MergedWithNext\",\"invert\":false}]}",
     "a b  c", "a| b| | c"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"["
     "\\\\r\\\\n]\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{"
     "\"Regex\":\"\\\\s?\\\\p{L}+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":"
     "\"Split\",\"pattern\":{\"Regex\":\"\\\\s?\\\\p{P}+\"},\"behavior\":\"Isolated\",\"invert\":"
     "false},{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_"
     "space\":false,\"trim_offsets\":true,\"use_regex\":false}]}",
     "Hello, world!\r\n 42 \xc3\xa9t\xc3\xa9", "Hello|,| world|!|\r|\n| |4|2| \xc3\xa9t\xc3\xa9"},
};

TEST(pre_tokenizers, "each kind and behaviour") {
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof pre_tokenizers[0]; i++)
        check_pieces(pre_tokenizers[i].spec, pre_tokenizers[i].text, pre_tokenizers[i].pieces);
}

static const struct {
    const char *regex, *text, *pieces;
} regexes[] = {
    {"\\s+",
     "a\xe1\xa0\x8e b\xc2\x85"
     "c\xc2\xa0\xe3\x80\x80"
     "d",
     "a\xe1\xa0\x8e| |b|\xc2\x85|c|\xc2\xa0\xe3\x80\x80|d"},
    {"\\w+", "e\xcc\x81-x_1 \xc2\xb2\xe2\x93\x90\xe2\x80\x8dy",
     "e\xcc\x81|-|x_1| |\xc2\xb2\xe2\x93\x90|\xe2\x80\x8d|y"},
    {"[\\w]+", "x\xc2\xb2 y", "x|\xc2\xb2 |y"},
    {"[^\\W\\d]+", "ab1_c", "ab|1|_c"},
    {"\\b", "ab cd", "ab| |cd"},
    {"\\h+", "xyz abc9", "xyz |abc9"},
    {"\\p{N}{1,3}+", "1234567", "1234567"},
    {"(?:ab){1,2}?", "abab", "ab|ab"},
    {"a{,2}", "aaaa", "aa|aa"},
    {"a{2}?", "aaaa", "aa|aa"},
    {"ba{2}{2}", "baaaaa", "baaaa|a"},
    {"^a|a$", "a\na\na", "a|\n|a|\n|a"},
    {"(?m:a.)", "a\nab", "a\n|ab"},
    {"[\\p{L}&&[^\\p{Han}]]+",
     "ab\xe6\xbc\xa2"
     "cd",
     "ab|\xe6\xbc\xa2|cd"},
    {"[a-c[x-z]]+", "axd-z", "ax|d-|z"},
    {"[^a-c&&[^b]]+", "abcd", "a|b|c|d"},
    {"(?i:'s|k)", "it'\xc5\xbf K'S", "it|'\xc5\xbf| |K|'S"},
    {"\\p{^L}+", "a1 b", "a|1 |b"},
    {"[[:punct:]]+", "a$+!b", "a|$+!|b"},
    {"[[:^alpha:]]+", "a1-b", "a|1-|b"},
    {"\\p{Hiragana}+", "\xe3\x81\x82\xe3\x83\xbc\xe3\x82\xa2",
     "\xe3\x81\x82|\xe3\x83\xbc\xe3\x82\xa2"},
    {"\\p{Punct}+", "a$+!b", "a$+|!|b"},
    {"(?<q>['x]).\\k<q>", "'a' xbx", "'a'| |xbx"},
    {"(a)(?:b)\\1", "aba", "aba"},
    {"(?<=a)b|(?<!a)c", "abacc", "a|b|ac|c"},
    {"\\u00e9|\\x{1F600}|\\x41",
     "\xc3\xa9\xf0\x9f\x98\x80"
     "Aa",
     "\xc3\xa9|\xf0\x9f\x98\x80|A|a"},
    {"\\x{aA}|\\x{fF}|\\x09", "\xc2\xaa\xc3\xbf\tb", "\xc2\xaa|\xc3\xbf|\t|b"},
    {"[\\s\\S]", "a\n", "a|\n"},
    {"\\R", "a\r\nb\n", "a|\r\n|b|\n"},
    {"(?#note)a+?b", "aab", "aab"},
    {"a|\\{|\\-", "a{-", "a|{|-"},
    {"[\\]\\-a]+", "a]-b", "a]-|b"},
    {"[\\\u00e9-\u00fc]+", "a\u00f6b", "a|\u00f6|b"},
    {"\\D+", "ab12c", "ab|12|c"},
    {"[\\D]+", "12ab", "12|ab"},
    {"\\W+", "ab- c", "ab|- |c"},
    {"\\S+", "ab c", "ab| |c"},
    {"\\H+", "xyz abc9", "xyz |abc9"},
    {"\\P{L}+", "a1 b", "a|1 |b"},
    {"\\B", "ab c", "a|b c"},
    {"\\n|\\r|\\t|\\f|\\a|\\e|\\v", "a\nb\rc\td\fe\ag\x1bh\vi",
     "a|\n|b|\r|c|\t|d|\f|e|\a|g|\x1b|h|\v|i"},
    {"[\\b]", "ab\bc", "ab|\b|c"},
    {"a{2,}", "aaaab", "aaaa|b"},
    {"a{1,3}?b", "aaab", "aaab"},
    {"a{9}", "aaaaaaaaaa", "aaaaaaaaa|a"},
    {"a{1,2}{2}", "aaaaa", "aaaa|a"},
    {"a*?b|a++c|a?+d", "aabaacad", "aab|aac|ad"},
    {"(?i)a|b", "AB c", "A|B| c"},
    {"x(?:(?i)a|b)", "xBxa", "xB|xa"},
    {"(?i:a(?-i:b))", "Ab AB", "Ab| AB"},
    {"(?>a+)b", "aab", "aab"},
    {"a(?=b)|c(?!d)", "abcacd", "a|b|c|acd"},
};

static const struct {
    const char *regex, *wrong;
} bad_regexes[] = {
    {"(?", "a kind of (?...)"},
    {"(?i", "a kind of (?...)"},
    {"(?<q", "an unclosed group name"},
    {"a(?i)", "an option setting that is not first in its group"},
    {"\\k<q", "an unclosed group name"},
    {"\\kq", "\\k without <name>"},
    {"\\pL", "\\p without braces"},
    {"\\p{", "a malformed \\p"},
    {"\\p{}", "a malformed \\p"},
    {"\\x", "a malformed hexadecimal escape"},
    {"\\u12", "a malformed hexadecimal escape"},
    {"\\x{41", "a malformed hexadecimal escape"},
    {"\\xe9", "\\x with a byte above 7f"},
    {"\\x80", "\\x with a byte above 7f"},
    {"a\\", "a backslash at its end"},
    {"\\0", "an escape that PCRE2 has no equal for"},
    {"[[:foo:]]", "an unknown [:class:]"},
    {"[\\B]", "an anchor or a reference inside [...]"},
    {"[a-\\d]", "a range that ends in a set"},
    {"[]", "an empty [...]"},
    {"[a", "an unclosed [...]"},
    {"[a&&]", "an empty operand of &&"},
    {"*a", "a repeat of nothing"},
    {"a)", "an unopened )"},
    {"(a", "an unclosed ("},
};

static json_object *split_by(const char *regex) {
    json_object *spec = json_object_new_object(), *pattern = json_object_new_object();
    json_object_object_add(pattern, "Regex", json_object_new_string(regex));
    json_object_object_add(spec, "type", json_object_new_string("Split"));
    json_object_object_add(spec, "pattern", pattern);
    json_object_object_add(spec, "behavior", json_object_new_string("Isolated"));
    return spec;
}

TEST(regexes, "Oniguruma's meaning, not PCRE2's") {
    for (size_t i = 0; i < sizeof regexes / sizeof regexes[0]; i++) {
        json_object *spec = split_by(regexes[i].regex);
        check_pieces(json_object_to_json_string(spec), regexes[i].text, regexes[i].pieces);
        json_object_put(spec);
    }
}

TEST(bad_regexes, "what is wrong with a regex, or has no equal") {
    for (size_t i = 0; i < sizeof bad_regexes / sizeof bad_regexes[0]; i++) {
        specrt_error err = {0};
        tok_spelling spelling;
        tokenizer tok = {.path = "test"};
        json_object *spec = split_by(bad_regexes[i].regex);
        CHECK_INT(sl_tok_json_pre_tokenizer(&tok, spec, &spelling, &err),
                  SPECRT_STATUS_UNSUPPORTED);
        CHECK_HAS(err.msg, bad_regexes[i].wrong);
        json_object_put(spec);
    }
}

TEST(longest_regex, "is of 64 KiB") {
    enum { MOST = 65536 };
    static char pattern[MOST + 1];
    tok_regex *re;
    specrt_error err = {0};
    memset(pattern, 'a', sizeof pattern);
    pattern[0] = '[', pattern[MOST - 1] = ']'; /* a class, which PCRE2 makes short */
    CHECK_INT(sl_tok_regex_compile(pattern, MOST, "x", &re, &err), SPECRT_STATUS_OK);
    sl_tok_regex_free(re);
    CHECK_INT(sl_tok_regex_compile(pattern, MOST + 1, "x", &re, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "x: regex has 65537 bytes; expected 1 to 65536");
}

static int find_all(void *arg) {
    tok_regex *re = NULL;
    size_t span[2];
    specrt_status status = sl_tok_regex_compile((const char *)arg, strlen(arg), "x", &re, NULL);
    tok_regex_run *run = status ? NULL : sl_tok_regex_run_new();
    if (!status && !run) status = SPECRT_STATUS_NO_MEMORY;
    if (run)
        CHECK(sl_tok_regex_find(re, run, (const uint8_t *)"cab", 3, 0, span) == 1 && span[0] == 1);
    sl_tok_regex_run_free(run);
    sl_tok_regex_free(re);
    return status;
}

TEST(regex_no_memory, "every allocation of a regex that fails") {
    char pattern[] = "(?<q>[ax])b|\\k<q>";
    test_starve(find_all, pattern, SPECRT_STATUS_NO_MEMORY);
}

/* ---- bad files ---- */

static const struct {
    const char *json, *message;
} bad_files[] = {
    {"{", "byte 1: not JSON: it ends too early"},
    {"{} x", "not JSON"},
    {"{\"a\":\\ud800}", "half a surrogate pair"},
    {"{\"model\":{\"vocab\":{\"a\\u0000\":0}}}", "byte 21: \\u0000; expected whole characters"},
    {"{\"model\":{\"vocab\":{\"\\udc00\":0}}}", "byte 20: half a surrogate pair"},
    {"{\"a\":\"\\uDA00\"}", "byte 6: half a surrogate pair"},
    {"{\"a\":\"\\udBfF\\uD800\"}", "byte 6: half a surrogate pair"},
    {"{\"a\":\"\\uD900\\uE000\"}", "byte 6: half a surrogate pair"},
    {"{\"a\":\"\\uDFff\"}", "byte 6: half a surrogate pair"},
    {"{\"a\":\"\\uD900\\uDC00\"}", "model is missing"},
    {"null ", "the file is missing; expected an object"},
    {"{}", "model is missing; expected an object"},
    {"{\"model\":3}", "model is int; expected an object"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", "model.type is WordPiece; supported: BPE"},
    {"{\"model\":{\"type\":\"Unigram\"}}", "model.type is Unigram; supported: BPE"},
    {"{\"model\":{\"type\":\"WordLevel\"}}", "model.type is WordLevel; supported: BPE"},
    {"{\"model\":{\"vocab\":[1]}}", "model.vocab is array; expected an object"},
    {"{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}",
     "model.vocab.a is string; expected an id"},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "\"a\" has id -1; expected 0 to"},
    {"{\"model\":{\"vocab\":{\"a\":2097152},\"merges\":[]}}",
     "has id 2097152; expected 0 to 2097151"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0 is \"b\" and another token"},
    {"{\"model\":{\"vocab\":{\"\":0},\"merges\":[]}}", "token 0 has 0 bytes"},
    {"{\"model\":{\"vocab\":{},\"merges\":[]}}", "no normal tokens"},
    {"{\"model\":{\"vocab\":{\"a\":0}}}", "model.merges is missing; expected an array"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
     "model.merges[0]; expected \"a b\" or"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "model.merges[0]; expected"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", "model.merges[0]; expected"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
     "model.merges[0]: \"b\" is no token"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
     "model.merges[0]: \"aa\" is no token"},
    {"{\"model\":{\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
     "model.dropout makes tokens random"},
    {"{\"model\":{\"continuing_subword_prefix\":\"##\",\"vocab\":{\"a\":0},\"merges\":[]}}",
     "model.continuing_subword_prefix is \"##\""},
    {"{\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
     "model.end_of_word_suffix is \"</w>\""},
    {"{\"model\":{\"unk_token\":\"<unk>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
     "model.unk_token is \"<unk>\"; expected a token"},
    {"{\"model\":{\"fuse_unk\":1,\"vocab\":{\"a\":0},\"merges\":[]}}",
     "model.fuse_unk is int; expected a boolean"},
    {"{\"normalizer\":{\"type\":\"Lowercase\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "normalizer is Lowercase; supported: NFC"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"b\"},"
     "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "normalizer.Replace is of a Regex"},
    {"{\"pre_tokenizer\":[],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "pre_tokenizer; expected an object"},
    {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":"
     "[]}}",
     "pre_tokenizer is BertPreTokenizer; supported: Split"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\"},\"model\":{\"vocab\":{"
     "\"a\":0},\"merges\":[]}}",
     "Split.pattern is missing"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":"
     "\"Isolated\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "uses an unclosed ("},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Klingon}\"},"
     "\"behavior\":\"Isolated\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "regex does not compile"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\q\"},\"behavior\":"
     "\"Isolated\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "an escape that PCRE2 has no equal for"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
     "]},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "ByteLevel is behind ByteLevel or Metaspace"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?~a)\"},\"behavior\":"
     "\"Isolated\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "a kind of (?...)"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Odd\"},"
     "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "behavior is Odd; supported: Isolated"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{"
     "\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"}]},\"model\":{\"vocab\":{\"a\":0},"
     "\"merges\":[]}}",
     "Metaspace is behind a step"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"model\":{\"vocab\":{"
     "\"a\":0},\"merges\":[]}}",
     "supported: replacement U+2581"},
    {"{\"added_tokens\":{},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "added_tokens is object; expected an array"},
    {"{\"added_tokens\":[{\"content\":\"x\"}],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "added_tokens[0].id is missing"},
    {"{\"added_tokens\":[{\"id\":1}],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     "added_tokens[0].content is missing"},
    {"{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]"
     "}}",
     "id 0 is \"a\" and another token"},
    {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"special\":\"yes\"}],\"model\":{\"vocab\":{"
     "\"a\":0},\"merges\":[]}}",
     "added_tokens[0].special is string"},
};

/* With one more end of text, unless that is 0. */
static tokenizer *load_ending(const char *json, int32_t terminator, specrt_error *err) {
    file_view view = {(const uint8_t *)json, strlen(json), false};
    tokenizer *tok = calloc(1, sizeof *tok);
    REQUIRE(tok);
    tok->path = "no folder/tokenizer.json";
    tok->unknown_id = TOK_NONE;
    specrt_status status = sl_tok_load_json(tok, &view, err);
    if (!status && terminator) status = sl_tok_add_terminator(tok, terminator, err);
    if (!status) status = sl_tokenizer_finish(tok, err);
    if (!status) return tok;
    sl_tokenizer_close(tok);
    return NULL;
}

static tokenizer *load(const char *json, specrt_error *err) {
    return load_ending(json, 0, err);
}

TEST(bad_files, "one line naming file and field") {
    for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        specrt_error err = {0};
        tokenizer *tok = load(bad_files[i].json, &err);
        CHECK(!tok);
        CHECK_HAS(err.msg, "no folder/tokenizer.json: ");
        CHECK_HAS(err.msg, bad_files[i].message);
        CHECK(!strchr(err.msg, '\n'));
        sl_tokenizer_close(tok);
    }
}

TEST(damage, "a file cut or changed anywhere") {
    file_view file;
    REQUIRE(sl_file_map(GOLDEN "/spm_gemma.json", &file, NULL) == SPECRT_STATUS_OK);
    char *copy = malloc(file.n + 1);
    REQUIRE(copy);
    for (size_t at = 0; at < file.n; at += test_quick() ? 397 : 37) {
        specrt_error err = {0};
        memcpy(copy, file.bytes, file.n);
        copy[at] = 0;
        CHECK(!load(copy, &err));
        copy[at] = (char)(file.bytes[at] ^ (1 << at % 8));
        copy[file.n] = 0;
        sl_tokenizer_close(load(copy, &err));
    }
    free(copy);
    sl_file_unmap(&file);
}

/* ---- kinds of tokens ---- */

static const char kinds[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<|im_end|>\",\"special\":true},"
    "{\"id\":4,\"content\":\"<|reserved_special_token_0|>\",\"special\":true},"
    "{\"id\":5,\"content\":\"<tool>\",\"special\":false,\"normalized\":false},"
    "{\"id\":9,\"content\":\"<unused12>\",\"special\":true},"
    "{\"id\":10,\"content\":\"b\",\"special\":false},"
    "{\"id\":11,\"content\":\"<|return|>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xC4\xA0\":1,\"\xC4\xA0"
    "a\":2,\"\xE6\xBC\xA2\":6},\"merges\":[\"\xC4\xA0 a\"]}}";

static void check_terminators(const tokenizer *tok, const char *expected) {
    char line[100] = "", *end = line;
    int32_t n;
    const int32_t *ids = sl_tokenizer_terminators(tok, &n);
    for (int32_t i = 0; i < n; i++) end += sprintf(end, " %d", ids[i]);
    CHECK_STR(line, expected);
}

TEST(kinds, "normal, special, reserved, holes, terminators") {
    static const token_type types[] = {
        TOKEN_NORMAL,   TOKEN_NORMAL,   TOKEN_NORMAL,   TOKEN_SPECIAL, TOKEN_RESERVED,
        TOKEN_SPECIAL,  TOKEN_RESERVED, /* a letter outside the byte alphabet */
        TOKEN_RESERVED, TOKEN_RESERVED, TOKEN_RESERVED, TOKEN_SPECIAL, TOKEN_SPECIAL};
    specrt_error err = {0};
    tokenizer *tok = load(kinds, &err);
    REQUIRE(tok);
    CHECK_INT(sl_tokenizer_n_vocab(tok), 12);
    CHECK_INT(sl_tokenizer_n_normal(tok), 3);
    for (int32_t id = 0; id < 12; id++) CHECK_INT(sl_tokenizer_type(tok, id), types[id]);
    size_t n;
    CHECK(sl_tokenizer_bytes(tok, 2, &n)[0] == ' ' && n == 2);
    CHECK(!sl_tokenizer_bytes(tok, 7, &n) && n == 0);
    CHECK_INT(sl_tokenizer_find(tok, "<tool>", 6), 5);
    CHECK_STR(sl_tokenizer_name(tok), "gpt2-style BPE (tokenizer.json)");
    check_terminators(tok, " 3 11");
    tok_worker *w = worker_of(tok);
    check_ids(w, "a a<tool>b<|im_end|>a", " 0 2 5 10 0");
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
    tok = load_ending(kinds, 7, &err);
    REQUIRE(tok);
    check_terminators(tok, " 3 7 11");
    sl_tokenizer_close(tok);
    CHECK(!load_ending(kinds, 12, &err));
    CHECK_HAS(err.msg, ": end-of-text id 12; expected 0 to 11");
}

TEST(replace, "a Replace of a space is the spaces of SentencePiece if it puts their mark there") {
    specrt_error err = {0};
    tokenizer *tok = load("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                          "\"content\":\"b\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
                          "{\"a\":0,\"b\":1},\"merges\":[]}}",
                          &err);
    REQUIRE(tok);
    tok_worker *w = worker_of(tok);
    check_ids(w, "a aa", " 0 1 0 0");
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

/* ---- files beside it ---- */

static void write_file(const char *name, const char *text) {
    REQUIRE(sl_out_bytes(in_folder(name), true, text, strlen(text), NULL) == SPECRT_STATUS_OK);
}

static void check_beside(const char *expected) {
    tokenizer *tok = open_tokenizer(folder());
    check_terminators(tok, expected);
    sl_tokenizer_close(tok);
}

TEST(side_files, "ends of text from the files beside it") {
    specrt_error err = {0};
    tokenizer *tok = NULL;
    write_file("tokenizer.json", kinds);
    check_beside(" 3 11");
    write_file("tokenizer_config.json", "{\"eos_token\":\"<tool>\"}");
    check_beside(" 3 5 11");
    write_file("tokenizer_config.json", "{\"eos_token\":{\"content\":\"b\"}}");
    check_beside(" 3 10 11");
    write_file("config.json", "{\"text_config\":{\"eos_token_id\":1}}");
    check_beside(" 1 3 10 11");
    write_file("generation_config.json", "{\"eos_token_id\":[0,2]}");
    check_beside(" 0 2 3 10 11");
    write_file("generation_config.json", "{\"eos_token_id\":12}");
    CHECK(sl_tokenizer_open(folder(), &tok, &err) == SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg,
              "generation_config.json beside it: eos_token_id is 12; expected an id below 12");
    write_file("generation_config.json", "{");
    CHECK(sl_tokenizer_open(folder(), &tok, &err) == SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "/generation_config.json: byte 1: not JSON");
    REQUIRE(remove(in_folder("generation_config.json")) == 0);
    REQUIRE(symlink("/dev/null", in_folder("generation_config.json")) == 0); /* passed over */
    check_beside(" 1 3 10 11");
    CHECK_INT(clear_folder(), 4);
}

/* ---- several in a folder ---- */

static specrt_status open_folder(const char *expected) {
    specrt_error err = {0};
    tokenizer *tok = NULL;
    specrt_status status = sl_tokenizer_open(folder(), &tok, &err);
    if (status) CHECK_HAS(err.msg, expected);
    sl_tokenizer_close(tok);
    return status;
}

TEST(folders, "one tokenizer, or both are named") {
    tokenizer *tok;
    CHECK_INT(open_folder("no tokenizer in this folder"), SPECRT_STATUS_BAD_INPUT);
    write_file("x-00002-of-00002.gguf", "GG");
    write_file("x-00001-of-00002.gguf", "GG");
    CHECK_INT(open_folder("x-00001-of-00002.gguf: not a tokenizer"), SPECRT_STATUS_UNSUPPORTED);
    write_file("y-00001-of-00002.gguf", "GG");
    CHECK_INT(open_folder("found x-00001-of-00002.gguf and y-00001-of-00002.gguf"),
              SPECRT_STATUS_BAD_ARG);
    write_file("b.tiktoken", "?");
    CHECK_INT(open_folder("b.tiktoken: not a tokenizer"), SPECRT_STATUS_UNSUPPORTED);
    write_file("a.tiktoken", "?");
    CHECK_INT(open_folder("expected one tokenizer in this folder, found a.tiktoken and b.tiktoken"),
              SPECRT_STATUS_BAD_ARG);
    write_file("tokenizer.json", kinds);
    CHECK_INT(open_folder(""), SPECRT_STATUS_OK);
    REQUIRE(remove(in_folder("tokenizer.json")) == 0);
    REQUIRE(symlink("/dev/null", in_folder("tokenizer.json")) == 0);
    CHECK_INT(open_folder("tokenizer.json: expected a file, found a pipe"), SPECRT_STATUS_IO);
    CHECK_INT(sl_tokenizer_of_model(folder(), &tok, NULL), SPECRT_STATUS_IO);
    CHECK_INT(clear_folder(), 6);
}
