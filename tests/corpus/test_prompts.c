/* test_prompts.c : prompt files of every shape, and what is passed over or refused. */
#include "base/io.h"
#include "corpus/prompts.h"
#include "folder.h"
#include "test.h"

static specrt_error err;
static prompt_list list;

static specrt_status read_chosen(const char *text, const prompt_choice *choice) {
    REQUIRE(sl_out_bytes(in_folder("qa.x.jsonl"), true, text, strlen(text), &err) ==
            SPECRT_STATUS_OK);
    err.msg[0] = '\0';
    return sl_prompts_read(in_folder("qa.x.jsonl"), choice, &list, &err);
}

static specrt_status read_text(const char *text, int64_t limit) {
    return read_chosen(text, &(prompt_choice){.limit = limit});
}

/* "domain[system]turn|turn #id #id; next prompt" */
static const char *show(void) {
    static char out[2048];
    size_t at = 0;
    out[0] = '\0';
#define ADD(...) (at += (size_t)snprintf(out + at, sizeof out - at, __VA_ARGS__))
    for (int i = 0; i < list.n; i++) {
        const prompt *p = &list.items[i];
        ADD("%s%s[%s]", i ? "; " : "", p->domain, p->system ? p->system : "");
        for (int k = 0; k < p->n_turns; k++) ADD("%s%s", k ? "|" : "", p->turns[k]);
        for (int k = 0; k < p->n_ids; k++) ADD(" #%d", p->ids[k]);
    }
#undef ADD
    return out;
}

TEST(shapes, "turns, system message, ids and domain of every shape") {
    static const char *const rows[][2] = {
        {"{\"prompt\":\"p\",\"input\":\"no\"}", "qa[]p"},
        {"{\"custom_id\":\"1\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}}",
         "qa[]u"},
        {"{\"request\":{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]},\"response\":{}}",
         "qa[]u"},
        {"{\"question\":\"q\",\"text\":\"no\"}", "qa[]q"},
        {"{\"instruction\":\"i\",\"input\":\"x\"}", "qa[]i\n\nx"},
        {"{\"instruction\":\"i\",\"input\":\"\"}", "qa[]i"},
        {"{\"instruction\":\"i\"}", "qa[]i"},
        {"{\"text\":\"t\",\"prompt\":3,\"system\":\"s\"}", "qa[s]t"},
        {"{\"turns\":[\"a\",\"b\"],\"prompt\":\"no\"}", "qa[]a|b"},
        {"{\"prompt_ids\":[5,70000,0],\"turns\":[\"no\"]}", "qa[] #5 #70000 #0"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
         "\"u\"},{\"role\":\"assistant\",\"content\":\"no\"},{\"content\":\"v\"}]}",
         "qa[s]u|v"},
        {"{\"system\":\"s\",\"messages\":[{\"role\":\"system\",\"content\":\"no\"},{\"content\":"
         "\"u\"}]}",
         "qa[s]u"},
        {"{\"question\":[[{\"content\":\"u\"}],[{\"content\":\"v\"},{\"content\":\"w\"}]],"
         "\"function\":[{\"name\":\"f\"}]}",
         "qa[][{\"name\":\"f\"}]\n\nu|v|w"},
        {"{\"question\":[[{\"content\":\"u\"}]]}", "qa[]u"},
        {"{\"prompt\":\"p\",\"domain\":\"d\",\"category\":\"c\",\"task\":\"t\"}", "d[]p"},
        {"{\"prompt\":\"p\",\"domain\":1,\"category\":\"c\",\"task\":\"t\"}", "c[]p"},
        {"{\"prompt\":\"p\",\"task\":\"math\"}", "math[]p"},
        {"{\"prompt\":\"p\",\"category\":\"math\"}", "mt_bench[]p"},
        {"{\"prompt\":\"p\",\"category\":\"humanities\"}", "mt_bench[]p"},
        {"[{\"prompt\":\"a\"},\n{\"prompt\":\"b\"}]", "qa[]a; qa[]b"},
        {"\xEF\xBB\xBF{\"prompt\":\"a\"}\r\n\n {\n\"prompt\":\"b\"}{\"prompt\":\"c\"}\t",
         "qa[]a; qa[]b; qa[]c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_INT(read_text(rows[i][0], 0), SPECRT_STATUS_OK);
        CHECK_STR(err.msg[0] ? err.msg : show(), rows[i][1]);
        sl_prompts_free(&list);
    }
    CHECK_INT(clear_folder(), 1);
}

TEST(refused, "what is no prompt is named with its line") {
    static const char shape[] = ": expected an object with a text under prompt, question";
    static const char *const rows[][2] = {
        {"", "qa.x.jsonl: expected one prompt per line, found none"},
        {"{\"prompt\":\"\"}\n", "expected one prompt per line, found empty lines only"},
        {"{\"prompt\":\"a\"}\n\n{\"promt\":\"b\"}", "qa.x.jsonl:3"},
        {"{\n\"prompt\":\n\"a\"}\n3 ", "qa.x.jsonl:4"},
        {"[\"a\"]", "qa.x.jsonl:1"},
        {"{\"turns\":[\"a\",3]}", "qa.x.jsonl:1"},
        {"{\"prompt_ids\":[1,2.5]}", "qa.x.jsonl:1"},
        {"{\"messages\":\"a\"}", "qa.x.jsonl:1"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "qa.x.jsonl:1"},
        {"{\"question\":[\"a\"]}", "qa.x.jsonl:1"},
        {"{\"prompt\":\"a\"}\n{\"prompt\" \"b\"}", "qa.x.jsonl:2: expected JSON: "},
        {"{\"prompt\":\"a\"", "qa.x.jsonl:1: expected JSON: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_INT(read_text(rows[i][0], 0), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, rows[i][1]);
        if (rows[i][1][0] == 'q' && !strchr(rows[i][1], ' ')) CHECK_HAS(err.msg, shape);
        sl_prompts_free(&list);
    }
    CHECK_INT(sl_prompts_read(in_folder("none"), NULL, &list, &err), SPECRT_STATUS_IO);
    CHECK_INT(clear_folder(), 1);
}

TEST(choice, "of a later file, too, so many and evenly spread, of every Nth one or of the others") {
    static const struct {
        prompt_choice choice;
        const char *kept;
    } rows[] = {
        {{.limit = 0}, "01234"},
        {{.limit = 1}, "0"},
        {{.limit = 2}, "02"},
        {{.limit = 3}, "013"},
        {{.limit = 4}, "0123"},
        {{.limit = 5}, "01234"},
        {{.limit = 6}, "01234"},
        {{.every = 1}, "01234"},
        {{.every = 2}, "024"},
        {{.every = 5}, "0"},
        {{.skip_every = 2}, "13"},
        {{.skip_every = 5}, "1234"},
        {{.skip_every = 1}, ""},
        {{.every = 2, .limit = 2}, "02"},
        {{.skip_every = 5, .limit = 2}, "13"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        char turns[8] = "";
        CHECK_INT(sl_prompts_add("first", "d", &list), SPECRT_STATUS_OK);
        CHECK_INT(read_chosen("{\"text\":\"0\"}{\"text\":\"1\"}{\"text\":\"2\"}"
                              "{\"text\":\"3\"}{\"text\":\"4\"}",
                              &rows[r].choice),
                  SPECRT_STATUS_OK);
        for (int i = 1; i < list.n && i < 7; i++) turns[i - 1] = list.items[i].turns[0][0];
        CHECK_STR(turns, rows[r].kept);
        CHECK_STR(list.items[0].turns[0], "first");
        CHECK_STR(list.items[0].place, "--prompt");
        sl_prompts_free(&list);
    }
    clear_folder();
}

TEST(long, "a file that does not fit the first buffer") {
    enum { N = 200000 };
    char *text = (char *)malloc(N + 1);
    memset(text, 'x', N);
    memcpy(text, "{\"text\":\"", 9);
    memcpy(text + N - 2, "\"}", 3);
    CHECK_INT(read_text(text, 0), SPECRT_STATUS_OK);
    CHECK_INT(list.n, 1);
    CHECK_INT(strspn(list.items[0].turns[0], "x"), N - 11);
    sl_prompts_free(&list);
    clear_folder();
    free(text);
}

TEST(passed_over, "empty prompts, and those that do not fit") {
    const specrt_error why = {SPECRT_STATUS_BAD_INPUT, "prompt: too long"};
    char *answer = NULL;
    CHECK_INT(sl_prompts_account(&list, 0, &err), SPECRT_STATUS_OK);
    CHECK_INT(read_text("{\"text\":\"a\"}", 0), SPECRT_STATUS_OK);
    CHECK(!sl_prompts_pass_over(&list, &list.items[0], &why)); /* the only one */
    CHECK_INT(read_text("{\"text\":\"\"}\n{\"turns\":[\"b\",\"\"]}\n{\"prompt_ids\":[]}\n"
                        "{\"text\":\"c\"}",
                        0),
              SPECRT_STATUS_OK);
    CHECK_INT(list.n, 2);
    CHECK_INT(sl_prompts_account(&list, 0, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "no prompt could be decoded: 3 prompts were passed over: 3 empty, first "
                       "qa.x.jsonl:1");
    CHECK(sl_prompts_pass_over(&list, &list.items[1], &why));
    CHECK(sl_prompts_pass_over(&list, &list.items[0], &why));
    CHECK_INT(sl_prompts_account(&list, 0, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "5 prompts were passed over: 3 empty, first qa.x.jsonl:1; 2 unfit, first "
                       "qa.x.jsonl:4: prompt: too long");
    CHECK_INT(sl_prompts_account(&list, 1, &err), SPECRT_STATUS_OK); /* a warning */
    json_object *json = json_object_new_object();
    sl_prompts_put_json(&list, json);
    answer = strdup(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN));
    CHECK_STR(answer, "{\"n_empty\":3,\"n_unfit\":2}");
    free(answer);
    json_object_put(json);
    list.n_empty = 0, list.n_unfit = 1;
    CHECK_INT(sl_prompts_account(&list, 0, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, ": 1 prompt was passed over: 1 unfit, first qa.x.jsonl:4: prompt: too long");
    sl_prompts_free(&list);
    clear_folder();
}
