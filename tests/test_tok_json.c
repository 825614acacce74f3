/* test_tok_json.c : tokenizer.json files against ids that PyPI's tokenizers gave (tests/golden/tokenizers/
 * make.py), pre-tokenizers and regexes against the pieces it gave, and bad files. */
#include <unistd.h>
#include "test.h"
#include "tok_json.h"
#include "tok_split.h"

#define GOLDEN "tests/golden/tokenizers"

/* ---- whole files ---- */

static void check_case(const char *name, tok_worker *w, json_object *text, json_object *expected) {
    id_list ids = {0};
    REQUIRE(tok_encode(w, json_object_get_string(text), (size_t)json_object_get_string_len(text),
                       &ids) == SPECRT_STATUS_OK);
    size_t n = json_object_array_length(expected), same = 0;
    while (same < n && same < ids.n &&
           ids.ids[same] == json_object_get_int(json_object_array_get_idx(expected, same)))
        same++;
    if (same != n || ids.n != n) {
        printf("%s: %s: token %zu: ", name, json_object_to_json_string(text), same);
        for (size_t i = same; i < ids.n && i < same + 8; i++) printf("%d ", ids.ids[i]);
        printf("; expected %s\n", json_object_to_json_string(expected));
        CHECK(!"ids differ");
    }
    free(ids.ids);
}

static void test_golden(void) {
    json_object *list = json_object_from_file(GOLDEN "/cases.json");
    REQUIRE(list);
    json_object_object_foreach(list, name, texts) {
        char path[200];
        specrt_error err = {0};
        tokenizer *tok = NULL;
        tok_worker *w = NULL;
        snprintf(path, sizeof path, GOLDEN "/%s.json", name);
        if (tokenizer_open(path, &tok, &err)) printf("%s\n", err.msg);
        REQUIRE(tok);
        REQUIRE(tok_worker_create(tok, &w, NULL) == SPECRT_STATUS_OK);
        for (size_t i = 0; i < json_object_array_length(texts); i++) {
            json_object *item = json_object_array_get_idx(texts, i);
            check_case(name, w, json_object_array_get_idx(item, 0),
                       json_object_array_get_idx(item, 1));
        }
        tok_worker_free(w);
        tokenizer_close(tok);
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
    if (tok_json_pre_tokenizer(tok, spec, &spelling, &err)) printf("%s\n", err.msg);
    REQUIRE(tok_set_token(tok, 0, "a", 1, TOKEN_NORMAL, 0, &err) == SPECRT_STATUS_OK);
    REQUIRE(tokenizer_finish(tok, &err) == SPECRT_STATUS_OK);
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
                : tok_split(tok->unicode, tok->split, (const uint8_t *)text, n, from, ends, max);
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
    tokenizer_close(tok);
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

static void test_pre_tokenizers(void) {
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
    {"[\\s\\S]", "a\n", "a|\n"},
    {"\\R", "a\r\nb\n", "a|\r\n|b|\n"},
    {"(?#note)a+?b", "aab", "aab"},
    {"a|\\{|\\-", "a{-", "a|{|-"},
    {"[\\]\\-a]+", "a]-b", "a]-|b"},
};

static void check_regex(const char *regex, const char *text, const char *expected) {
    json_object *spec = json_object_new_object(), *pattern = json_object_new_object();
    json_object_object_add(pattern, "Regex", json_object_new_string(regex));
    json_object_object_add(spec, "type", json_object_new_string("Split"));
    json_object_object_add(spec, "pattern", pattern);
    json_object_object_add(spec, "behavior", json_object_new_string("Isolated"));
    check_pieces(json_object_to_json_string(spec), text, expected);
    json_object_put(spec);
}

static void test_regexes(void) {
    for (size_t i = 0; i < sizeof regexes / sizeof regexes[0]; i++)
        check_regex(regexes[i].regex, regexes[i].text, regexes[i].pieces);
}

static const test_case cases[] = {
    {"golden", "ids of random texts under small tokenizers of every kind", test_golden},
    {"pre_tokenizers", "each kind and behaviour", test_pre_tokenizers},
    {"regexes", "Oniguruma's meaning, not PCRE2's", test_regexes},
};
TEST_MAIN(cases)
