/* test_kind.c : what is text and what is not. */
#include "gather.h"

TEST(bad_files, "files that hold no text say what they are") {
    check_fails("x.txt",
                "\x7F"
                "ELF\2\1\1",
                "x.txt: an ELF program");
    check_fails("x",
                "\xFF\xFE"
                "a",
                "x: UTF-16 text");
    check_fails("x.npy", "\x93NUMPY", "x.npy: token ids, not text");
}

TEST(nuls, "text with NULs is text, binary data is not") {
    char text[4000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 10 ? 'a' : '\0';
    check_bytes(text, sizeof text, text, sizeof text, 0);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
    gathered g = gather_memory("x.txt", text, sizeof text, NULL);
    CHECK_HAS(g.err.msg, "x.txt: binary data, not text");
    gather_free(&g);
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof text; i += 100) memcpy(text + i, "\1\0\xE3", 3); /* as in .pyc */
    g = gather_memory("x.txt", text, sizeof text, NULL);
    CHECK_HAS(g.err.msg, "x.txt: binary data, not text");
    gather_free(&g);
}

TEST(limits, "so many NULs, control bytes and ill-formed ones of 300 bytes are text, or are not") {
    static const struct {
        int n_nul, n_control, n_bad;
        bool text;
    } rows[] = {
        {108, 0, 0, true}, {109, 0, 0, false}, {0, 23, 0, true}, {0, 24, 0, false},
        {1, 3, 5, true},   {1, 4, 5, false},   {0, 4, 5, true},  {1, 4, 0, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[300];
        memset(text, 'a', sizeof text);
        memset(text + 10, 0, (size_t)rows[i].n_nul);
        memset(text + 150, 31, (size_t)rows[i].n_control);
        memset(text + 200, 0xFF, (size_t)rows[i].n_bad);
        gathered g = gather_memory("x.txt", text, sizeof text, NULL);
        CHECK_INT(g.status == SPECRT_STATUS_OK, rows[i].text);
        gather_free(&g);
    }
}

TEST(controls, "a third of a text may be of any byte but those that no text has") {
    for (int c = 1; c < 128; c++) {
        char text[300];
        bool expected = c >= 32 ? c != 127 : (c >= '\a' && c <= '\r') || c == 27;
        memset(text, 'a', sizeof text);
        memset(text + 100, c, 100);
        gathered g = gather_memory("x.txt", text, sizeof text, NULL);
        CHECK_INT(g.status == SPECRT_STATUS_OK, expected);
        gather_free(&g);
    }
}

/* What has no extension to go by. A name that begins with its only dot has none. */
TEST(contents, "of files without an extension") {
    static const struct {
        const char *text;
        bool json;
    } texts[] = {{"{\"text\":\"a\"}", true},
                 {" {\n\"text\":\"a\"}", true},
                 {"{}\n{\"text\":\"a\"}", true},
                 {"[{\"text\":\"a\"}]", true},
                 {"{a}", false},
                 {"[1]", false},
                 {"{", false},
                 {"\"a\"", false}};
    static const char *const names[] = {"x", ".jsonl", "a/.json", "x.7", ".7", "x.0."};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            gathered g = gather_string(names[k], texts[i].text, NULL);
            CHECK_INT(g.status, SPECRT_STATUS_OK);
            CHECK_STR(show(&g), texts[i].json ? "a" : texts[i].text);
            gather_free(&g);
        }
}

/* Records in files whose name says text: counted as such, with a line that says what to do; and either way of
 * reading on demand. */
TEST(doubts, "records in a file whose name says text") {
    static const struct {
        const char *name, *text, *doubt; /* "" : none */
    } rows[] = {
        {"x.txt", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n",
         "x.txt: JSON records, counted as text with their keys; --format json reads the records"},
        {"x.log.gz", "[{\"text\":\"a\"}]", "x.log.gz: JSON records"},
        {"x.log", "INFO 11-30 output: 'a'\n",
         "x.log: a log, counted as text with its time stamps and requests; put the answers into "
         ".jsonl, as {\"output\": \"text\"}"},
        {"x.log.2026-11-30_08", "{\"text\":\"a\"}", "x.log.2026-11-30_08: JSON records"},
        {"x.csv", "id,prompt,response\r\n1,a,b\r\n",
         "x.csv: a table, counted as text with its separators; put the column to count into "
         ".jsonl, "
         "found columns id,prompt,response"},
        {"x.tsv", "", "x.tsv: a table"},
        {"x.txt", "{a} brace", ""},
        {"x.c", "{\"a\"}", ""},
        {"x.jsonl", "{\"text\":\"a\"}", ""},
    };
    const corpus_options as_text = {.reading = CORPUS_AS_TEXT},
                         as_json = {.reading = CORPUS_AS_JSON};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gathered g = gather_string(rows[i].name, rows[i].text, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_OK);
        CHECK_INT(g.stats.n_doubtful_files, rows[i].doubt[0] != '\0');
        CHECK_HAS(g.stats.doubtful_examples[0], rows[i].doubt);
        gather_free(&g);
        g = gather_string(rows[i].name, rows[i].text, &as_text);
        CHECK_INT(g.stats.n_doubtful_files, 0);
        CHECK_STR(show(&g), rows[i].text);
        gather_free(&g);
    }
    gathered g = gather_string("x.txt", rows[0].text, &as_json);
    CHECK_STR(show(&g), "a|b");
    CHECK_INT(g.stats.n_doubtful_files, 0);
    gather_free(&g);
}
