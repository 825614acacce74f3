/* test_record.c : the documents of JSON records. */
#include "gather.h"

static void check_records(const char *name, const char *text, const char *answers,
                          const char *everything) {
    corpus_options all = {.all_messages = true};
    gathered g = gather_string(name, text, NULL);
    CHECK_STR(g.status ? g.err.msg : show(&g), answers);
    gather_free(&g);
    g = gather_string(name, text, &all);
    CHECK_STR(g.status ? g.err.msg : show(&g), everything);
    gather_free(&g);
}

/* Rows: a record, what the target says, all that is said. */
static void check_all(const char *const rows[][3], size_t n) {
    for (size_t i = 0; i < n; i++) {
        char array[1024];
        check_records("x.jsonl", rows[i][0], rows[i][1], rows[i][2]);
        snprintf(array, sizeof array, "\n [ %s ]", rows[i][0]);
        check_records("x.json", array, rows[i][1], rows[i][2]);
    }
}

TEST(shapes, "the documents of every record shape") {
    static const char *const rows[][3] = {
        {"{\"conversations\":[{\"from\":\"human\",\"value\":\"h\"},{\"from\":\"gpt\",\"value\":"
         "\"g\"}]}",
         "g!", "h|g!"},
        {"{\"items\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"GPT\",\"value\":\"g\"}]}",
         "g!", "s|g!"},
        {"{\"system\":\"s\",\"conversation\":[{\"role\":\"user\",\"content\":\"u\"},"
         "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}",
         "a!|b!", "s|u|a!|b!"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"u\"},"
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\"]}]}",
         "a|b!", "u|a|b!"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": "
         "1}\"}}]},{\"role\":\"tool\",\"content\":\"t\"}]}",
         "{\"x\": 1}!", "{\"x\": 1}!|t"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":\"r\","
         "\"function_call\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}",
         "r|c|{\"x\":1}!", "r|c|{\"x\":1}!"},
        {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}", "o!", "i|o!"},
        {"{\"instruction\":\"i\",\"input\":\"n\",\"response\":\"r\"}", "r!", "i|n|r!"},
        {"{\"prompt\":\"p\",\"completion\":\"c\"}", "c!", "p|c!"},
        {"{\"question\":\"q\",\"answer\":[\"a\",\"b\"]}", "a!|b!", "q|a!|b!"},
        {"{\"task_id\":\"t\",\"prompt\":\"p\",\"canonical_solution\":\"c\"}", "c!", "p|c!"},
        {"{\"prompt\":\"p\",\"chosen\":[{\"role\":\"user\",\"content\":\"u\"},"
         "{\"role\":\"assistant\",\"content\":\"a\"}],\"rejected\":\"r\"}",
         "a!", "p|u|a!"},
        {"{\"question_id\":1,\"choices\":[{\"index\":0,\"turns\":[\"a\",\"b\"]}]}", "a!|b!",
         "a!|b!"},
        {"{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"a\"}},{\"text\":\"t\"}]"
         "}",
         "a!|t!", "a!|t!"},
        {"{\"question_id\":81,\"turns\":[\"t\",\"u\"]}", "", "t|u"},
        {"{\"id\":\"x\",\"question\":[[{\"role\":\"user\",\"content\":\"u\"}]],\"function\":[]}",
         "", "u"},
        {"{\"text\":\"t\",\"meta\":{\"text\":\"no\"}}", "t", "t"},
        {"{\"content\":\"c\",\"id\":3}", "c", "c"},
        {"{\"text\":\"t\",\"from\":\"usr/share/doc/x.html\"}", "t", "t"},
        {"{\"from\":\"human\",\"text\":\"h\"}", "", "h"},
        {"\"bare\"", "bare", "bare"},
        {"[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"}]", "a!",
         "u|a!"},
        {"[\"s\", {\"text\":\"t\"}]", "s|t", "s|t"},
        {"{\"text\":\"first\",\"text\":\"last\"}", "last", "last"},
        {"{\"output\":\"\"}", "!", "!"},
    };
    check_all(rows, sizeof rows / sizeof rows[0]);
}

TEST(served, "batches and logs of servers") {
    static const char *const rows[][3] = {
        /* Lines of an OpenAI batch: a result, one of the Responses API, and a request. */
        {"{\"custom_id\":\"1\",\"response\":{\"status_code\":200,\"body\":{\"choices\":[{"
         "\"message\":"
         "{\"role\":\"assistant\",\"content\":\"a\"}}]}},\"error\":null}",
         "a!", "a!"},
        {"{\"custom_id\":\"1\",\"response\":{\"body\":{\"output\":[{\"type\":\"reasoning\"},{"
         "\"role\":"
         "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\"}]}]}}}",
         "a!", "a!"},
        {"{\"custom_id\":\"1\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":"
         "\"user\",\"content\":\"u\"}]}}",
         "", "u"},
        /* Logs: an answer beside what it answers. */
        {"{\"request\":{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]},\"response\":{"
         "\"choices\":[{"
         "\"message\":{\"role\":\"assistant\",\"content\":\"a\"}}]}}",
         "a!", "u|a!"},
        {"{\"request\":{\"prompt\":\"u\"},\"response\":{\"body\":\"{\\\"choices\\\":[{"
         "\\\"text\\\":\\\"a\\\"}]}\"}}",
         "a!", "u|a!"},
        {"{\"event\":\"request.finished\",\"obj\":{\"text\":\"u\"},\"out\":{\"text\":\"a\"}}", "a!",
         "u|a!"},
        {"{\"prompt\":\"p\",\"response\":\"{\\\"choices\\\":[{\\\"text\\\":\\\"a\\\"}]}\"}", "a!",
         "p|a!"},
        {"{\"prompt\":\"p\",\"response\":\"{\\\"name\\\":1}\"}", "{\"name\":1}!",
         "p|{\"name\":1}!"},
        {"{\"event\":\"request.received\",\"obj\":{\"text\":\"u\"}}", "", "u"},
        {"{\"prompt\":\"p\",\"response\":{\"choices\":[{\"text\":\"a\"}]}}", "a!", "p|a!"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"h\"},{\"role\":\"user\",\"content\":"
         "\"u\"}],"
         "\"response\":{\"output\":[{\"role\":\"assistant\",\"content\":\"a\"}]}}",
         "a!", "h!|u|a!"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"response\":\"a\"}", "a!", "u|a!"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":"
         "\"a\"}],\"completion\":\"a\"}",
         "a!", "u|a!"},
    };
    check_all(rows, sizeof rows / sizeof rows[0]);
}

TEST(field, "--field with dots, lists and records without it") {
    static const char records[] =
        "{\"a\":{\"b\":\"x\"},\"text\":\"no\"}\n{\"a.b\":\"y\"}\n"
        "{\"a\":{\"b\":[\"z\",\"w\"]}}\n{\"a\":1}\n{\"a\":{\"b\":2}}\n\"s\"\n";
    corpus_options options = {.field = "a.b"};
    gathered g = gather_string("x.jsonl", records, &options);
    CHECK_STR(show(&g), "x|y|z|w|s");
    CHECK_INT(g.stats.n_bad_records, 2);
    CHECK_STR(g.stats.bad_examples[0], "x.jsonl:4: no field a.b");
    CHECK_STR(g.stats.bad_examples[1], "x.jsonl:5: not a string: field a.b");
    gather_free(&g);
    g = gather_string("x.jsonl", "{\"a\":{\"b\":{\"choices\":[{\"text\":\"x\"}]}}}", &options);
    CHECK_STR(show(&g), "x!"); /* a record in a record */
    gather_free(&g);
}

TEST(stream, "pieces end inside words: their tokens are not those of the answer") {
    gathered g = gather_string("x.jsonl", "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", NULL);
    CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(g.err.msg, "x.jsonl:1: a piece of a streamed answer in choices; expected ");
    gather_free(&g);
    static const char logged[] =
        "{\"response\":\"data: {\\\"choices\\\":[{\\\"text\\\":\\\"a\\\"}]}\\n\"}\n"
        "{\"response\":\"event: x\\ndata: {\\\"delta\\\":\\\"a\\\"}\"}\n"
        "{\"response\":[{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}]}\n"
        "{\"response\":\"data: 1\"}\n{\"response\":[{\"choices\":[{\"text\":\"b\"}]}]}\n";
    g = gather_string("x.jsonl", logged, NULL);
    CHECK_STR(show(&g), "data: 1!|b!");
    CHECK_INT(g.stats.n_bad_records, 3);
    CHECK_STR(g.stats.bad_examples[1],
              "x.jsonl:2: a piece of a streamed answer in a text of events");
    gather_free(&g);
}

TEST(escapes, "NULs, surrogates and bad bytes in JSON strings") {
    static const struct {
        const char *json, *want;
        size_t n;
        uint64_t replaced;
    } rows[] = {
        {"\"a\\u0000b\"", "a\0b", 3, 0},
        {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80", 4, 0},
        {"\"\\ud800\"", "\xEF\xBF\xBD", 3, 1},
        {"\"\\udc00\\ud800\"", "\xEF\xBF\xBD\xEF\xBF\xBD", 6, 2},
        {"\"\\ud800\\ud800\\udc00\"", "\xEF\xBF\xBD\xF0\x90\x80\x80", 7, 1},
        {"\"\\uDBFFx\\uDFFF\"", "\xEF\xBF\xBDx\xEF\xBF\xBD", 7, 2},
        {"\"\\ud999\\uDFfF\\uDbA0\"", "\xF1\xB6\x9F\xBF\xEF\xBF\xBD", 7, 1},
        {"\"\\\\ud800\"", "\\ud800", 6, 0},
        {"\"\xFF\\u00e9\xE4\xB8\"", "\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD", 8, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gathered g = gather_string("x.jsonl", rows[i].json, NULL);
        CHECK_INT(g.n_text, rows[i].n);
        CHECK(g.n_text == rows[i].n && memcmp(g.text, rows[i].want, rows[i].n) == 0);
        CHECK_INT(g.stats.n_replaced, rows[i].replaced);
        gather_free(&g);
    }
}
