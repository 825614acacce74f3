/* test_values.c : where JSON values begin and end, in lines, arrays and one after another. */
#include "gather.h"

TEST(framing, "lines, concatenated values, arrays") {
    check_good("x.jsonl", "{\"text\":\"a\"}\n\n  \r\n{\"text\":\"b\"}\r\n{\"text\":\"c\"}", "a|b|c",
               0);
    check_good("x.json", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n", "a|b", 0);
    check_good("x.json", "{\"text\":\"a\"}{\"text\":\"b\"} \"c\"", "a|b|c", 0);
    check_good("x.json", "{\n \"text\":\n \"a]}\\\"\"\n}\n{\n \"text\": \"b\"}\n", "a]}\"|b", 0);
    check_good("x.json", "[]", "", 0);
    check_good("x.json", "[\n]\n[\"a\"]\n[\"b\",\"c\",]", "a|b|c", 0);
    check_good("x.json", "\xEF\xBB\xBF[{\"text\":\"a\"}]", "a", 0);
    check_good("x.jsonl", "\xEF\xBB\xBF{\"text\":\"a\"}\n", "a", 0);
    check_good("x.jsonl", "[\n{\"text\":\"a\"},\n{\"text\":\"b\"}\n]\n", "a|b",
               0); /* an array after all */
    check_good("part-00000", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n", "a|b", 0);
    check_good("part-00000", "[{\"text\":\"a\"}]", "a", 0);
    check_good("part-00000", "[Illustration]\n", "[Illustration]\n", 0);
    check_good("x.json", "", "", 0);
}

static size_t put_blanks(char *out, bool lines) {
    size_t n = draw(4);
    for (size_t i = 0; i < n; i++) out[i] = lines && draw(3) == 0 ? '\n' : " \t"[draw(2)];
    return n;
}

/* Strings of quotes, brackets and backslashes in objects of any layout, and some long ones. */
static size_t put_record(char *out, bool lines, gathered *want) {
    static const char *const parts[][2] = {{"\\\"", "\""},    {"\\\\", "\\"}, {"{", "{"},
                                           {"]", "]"},        {"\\n", "\n"},  {",", ","},
                                           {"word ", "word "}};
    static char text[600000];
    size_t at = 0, n = 0, n_parts = draw(40) == 0 ? 60000 : 1 + draw(12);
    at += (size_t)sprintf(out, "{\"n\":[1,{\"x\":null}],");
    at += put_blanks(out + at, lines);
    at += (size_t)sprintf(out + at, "\"text\":\"");
    for (size_t i = 0; i < n_parts; i++) {
        const char *const *part = parts[draw(7)];
        at += (size_t)sprintf(out + at, "%s", part[0]);
        n += (size_t)sprintf(text + n, "%s", part[1]);
    }
    at += (size_t)sprintf(out + at, "\"");
    at += put_blanks(out + at, lines);
    out[at++] = '}';
    gather_text(want, &(corpus_doc){.text = text, .n_bytes = n});
    return at;
}

TEST(any_layout, "random records in random layouts come out whole") {
    char *file = (char *)malloc(32u << 20);
    draw_state = 21;
    for (int round = 0; round < (test_quick() ? 8 : 30); round++) {
        gathered want = {0};
        size_t at = 0, n = 1 + draw(400);
        int layout = (int)draw(3); /* lines, one after another, an array */
        if (layout == 2) file[at++] = '[';
        for (size_t i = 0; i < n; i++) {
            if (layout > 0) at += put_blanks(file + at, true);
            at += put_record(file + at, layout > 0, &want);
            if (layout == 2 && i + 1 < n) file[at++] = ',';
            if (layout == 0) file[at++] = '\n';
        }
        if (layout == 2) file[at++] = ']';
        gathered g = gather_memory(layout ? "x.json" : "x.jsonl", file, at, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_OK);
        CHECK_INT(g.n_docs, want.n_docs);
        CHECK_INT(g.stats.n_bad_records, 0);
        CHECK(g.n_docs == want.n_docs && memcmp(g.ends, want.ends, n * sizeof *g.ends) == 0);
        CHECK(g.n_text == want.n_text && memcmp(g.text, want.text, g.n_text + 1) == 0);
        gather_free(&g), gather_free(&want);
    }
    free(file);
}

TEST(bad_lines, "bad lines are counted, located, fatal if strict") {
    static const char lines[] =
        "{\"text\":\"a\"}\n{\"text\": oops}\n{\"text\":\"b\"}\n{\"text\":\"b\n"
        "{\"text\":\"c\"} x\n[1]\n{\"id\":\"7\"}\n\n{\"text\":3}\n{\"text\":\"d\"}\n";
    gathered g = gather_string("dir/x.jsonl", lines, NULL);
    CHECK_STR(show(&g), "a|b|d");
    CHECK_INT(g.stats.n_records, 9);
    CHECK_INT(g.stats.n_bad_records, 6);
    CHECK_HAS(g.stats.bad_examples[0], "dir/x.jsonl:2: malformed JSON");
    CHECK_HAS(g.stats.bad_examples[1], "dir/x.jsonl:4: malformed JSON");
    CHECK_HAS(g.stats.bad_examples[2], "dir/x.jsonl:5: malformed JSON");
    CHECK_STR(g.stats.bad_examples[3], "dir/x.jsonl:6: a record expected, found 1");
    CHECK_STR(g.stats.bad_examples[4], "dir/x.jsonl:7: no known field; found id");
    gather_free(&g);
    corpus_options strict = {.strict = true};
    g = gather_string("x.jsonl", lines, &strict);
    CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(g.err.msg, "x.jsonl:2: malformed JSON");
    gather_free(&g);
}

/* A broken element is given up, and the next one found by its place on the line. */
TEST(bad_elements, "broken elements of arrays are passed over") {
    check_good("x.json", "[\n  {\"text\": \"a\"},\n  {\"text\": \"b},\n  {\"text\": \"c\"}\n]",
               "a|c", 1);
    check_good("x.json",
               "[\n  {\"text\": \"a\"},\n  {\"text\": {\"x\": 1},\n  {\"text\": \"c\"}\n]", "a|c",
               1);
    check_good("x.json",
               "[\n  {\n    \"text\": \"a\"\n  },\n  {\n    \"text\": \"b\"]\n  },\n  {\n"
               "    \"text\": \"c\"\n  }\n]",
               "a|c", 1);
    check_good("x.json", "[\n {\"text\": \"a\" \"b\"},\n {\"text\": nope},\n {\"text\":\"c\"}]",
               "c", 2);
    check_good("x.json", "{\"text\":\"a\"}\n{\"text\":\"b\n{\"text\":\"c\"}\n", "a|c", 1);
    check_good("x.json", "[{\"text\":\"a\"},{\"text\" \"b\"},{\"text\":\"c\"}]", "a|c", 1);
    check_good("x.json", "{\"text\":\"a\"}\n{\"text\":\"b\"", "a", 1);
    check_good("x.json", "{\"text\":\"a\"} 12,null\n{\"text\":\"b\"}", "a|b", 2);
}

TEST(bad_arrays, "arrays and lines that cannot be read at all say why") {
    check_fails("x.json", "[{\"text\":\"a\"},\n{\"text\":\"b\"}",
                "x.json: the array that begins on line 1 is not closed");
    check_fails("x.json", "[\n{\"text\":\"a\"},\n{\"text\":\"b",
                "x.json: the array that begins on line 1");
    check_fails("x.json", "\n[{\"text\":\"a\"},{\"text\":]}]",
                "x.json:2: malformed JSON (brackets do not match)");
    check_fails("x.json", "{\"id\": 1, \"meta\": {}, \"url\": \"x\"}",
                "x.json:1: no known field; found id meta url; expected conversations, messages,");
    check_fails("x.jsonl", "\nhello\nworld\n", "x.jsonl:2: malformed JSON");
}

/* One record of 65 MiB, between small ones, of which two are broken. */
TEST(too_long, "a record over the cap is a bad record") {
    LEFT_TO_ALL();
    size_t room = (66u << 20) + 64;
    char *text = (char *)malloc(room);
    for (int array = 0; array < 2; array++) {
        size_t at = (size_t)sprintf(text, "%s{\"text\":\"a\"}%s\n{\"text\":\"", array ? "[" : "",
                                    array ? "," : "");
        memset(text + at, 'x', 65u << 20);
        at += 65u << 20;
        at += (size_t)sprintf(text + at, "\"}%s\n{\"text\" ]}%s\n{\"text\":\"b\"}%s\n{\"text\"",
                              array ? "," : "", array ? "," : "", array ? "]" : "");
        gathered g = gather_memory(array ? "x.json" : "x.jsonl", text, at, NULL);
        CHECK_STR(g.status ? g.err.msg : show(&g), "a|b");
        CHECK_INT(g.stats.n_records, 5);
        CHECK_HAS(g.stats.bad_examples[0], ":2: a record longer than 64 MiB");
        CHECK_HAS(g.stats.bad_examples[1], ":3: malformed JSON");
        CHECK_HAS(g.stats.bad_examples[2], ":5: malformed JSON");
        gather_free(&g);
    }
    free(text);
}

TEST(across, "values that are longer than what is read at once, over the end of a batch") {
    enum { N = 700000 };
    char *text = (char *)malloc(3 * N);
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        at += (size_t)sprintf(text + at, i ? ",\"" : "[\"");
        memset(text + at, 'x' + i, N);
        at += N;
        text[at++] = '"';
    }
    at += (size_t)sprintf(text + at, ",\"b\"]");
    gathered g = gather_memory("x.json", text, at, NULL);
    CHECK_INT(g.n_docs, 3);
    CHECK_INT(g.stats.n_bad_records, 0);
    REQUIRE(g.n_text == 2 * N + 1);
    CHECK(g.text[0] == 'x' && g.text[N - 1] == 'x' && g.text[N] == 'y' && g.text[2 * N - 1] == 'y');
    CHECK_STR(g.text + 2 * N, "b");
    gather_free(&g);
    free(text);
}

/* Three bytes of an empty array cost json-c hundreds. */
TEST(crowded, "a record of a million arrays is a bad record") {
    size_t at = 0;
    char *text = (char *)malloc(5u << 20);
    at += (size_t)sprintf(text, "{\"text\":\"a\"}\n{\"text\":[");
    for (int i = 0; i < 1000000; i++, at += 3) memcpy(text + at, "[],", 3);
    at += (size_t)sprintf(text + at, "0]}\n{\"text\":\"b\",\"none\":");
    memset(text + at, ' ', 1000001); /* no values */
    at += 1000001;
    at += (size_t)sprintf(text + at, "0}\n");
    gathered g = gather_memory("x.jsonl", text, at, NULL);
    CHECK_STR(show(&g), "a|b");
    CHECK_HAS(g.stats.bad_examples[0], "x.jsonl:2: a record of too many values");
    gather_free(&g);
    free(text);
}
