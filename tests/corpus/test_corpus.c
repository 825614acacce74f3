/* test_corpus.c : corpora of several files, threads and shards. */
#include "gather.h"

static const char *mixed_folder(void) {
    static char out[128];
    draw_state = 11;
    snprintf(out, sizeof out, "%s", make_folder("mixed"));
    size_t n = 2300000;
    char *text = make_text(n), *lines = (char *)malloc(3u << 20);
    put_file("mixed/a.txt", text, n);
    put_packed("mixed/b.txt.zst", "zst", text, n, 1000000);
    size_t at = 0;
    while (at < 2u << 20)
        at += (size_t)sprintf(lines + at, "{\"id\":%u, \"text\":\"%0*u\"}\n", draw(1000),
                              (int)draw(3000) + 1, draw(1000));
    put_file("mixed/c.jsonl", lines, at);
    put_packed("mixed/d.jsonl.gz", "gz", lines, at, 1 << 20);
    for (size_t i = 0; i + 2 < at; i++)
        if (lines[i] == '\n') lines[i] = ',';
    lines[at - 1] = ']';
    memmove(lines + 1, lines, at);
    lines[0] = '[';
    put_file("mixed/e.json", lines, at + 1);
    free(text), free(lines);
    return out;
}

TEST(threads, "threads and shards give the same documents") {
    const char *path = mixed_folder();
    gathered one = gather(path, NULL, 1);
    CHECK_INT(one.status, SPECRT_STATUS_OK);
    CHECK_INT(one.stats.n_files, 5);
    CHECK_INT(one.stats.bytes_read, one.stats.bytes_total);
    for (int threads = 2; threads <= 4; threads += test_quick() ? 2 : 1) {
        gathered many = gather(path, NULL, threads);
        CHECK(many.sum == one.sum && many.digest == one.digest);
        CHECK(memcmp(&many.stats, &one.stats, sizeof one.stats) == 0);
        gather_free(&many);
    }
    for (int64_t n = 2; n <= 4; n += test_quick() ? 2 : 1) { /* few files: batches are dealt */
        uint64_t sum = 0, digest = 0, records = 0;
        for (int64_t i = 0; i < n; i++) {
            corpus_options options = {.shard = i, .n_shards = n};
            gathered part = gather(path, &options, 1);
            sum += part.sum, digest += part.digest, records += part.stats.n_records;
            CHECK(part.stats.n_records > 0);
            gather_free(&part);
        }
        CHECK(sum == one.sum && digest == one.digest && records == one.stats.n_records);
    }
    gather_free(&one);
    clear_folder();
}

/* A cluster's splits: the records of one file in several, in another order, lines ended otherwise. What
 * they are called and how they are dealt changes neither documents, held-out ones nor the digest. */
TEST(splits, "records dealt to files") {
    const char *records[] = {"{\"text\": \"one\"}", "{\"text\": \"two\"}", "{\"text\": \"three\"}",
                             "{\"text\": \"two\"}"};
    static const int order[] = {2, 1, 0, 3};
    char whole[128] = "", array[128] = "[", split[2][64] = {"", ""};
    for (int i = 0; i < 4; i++) {
        strcat(strcat(whole, records[i]), "\n");
        strcat(strcat(array, records[i]), i < 3 ? ",\n  " : "]");
        strcat(strcat(split[i / 2], records[order[i]]), i / 2 ? "\r\n" : "\n");
    }
    gathered one = gather_memory("a.jsonl", whole, strlen(whole), NULL);
    gathered values = gather_memory("a.json", array, strlen(array), NULL);
    CHECK_INT(one.n_docs, 4);
    CHECK(values.sum == one.sum && values.digest == one.digest);
    uint64_t sum = 0, digest = 0;
    for (int i = 0; i < 2; i++) {
        gathered part = gather_memory("-", split[i], strlen(split[i]), NULL);
        CHECK_INT(part.n_docs, 2);
        CHECK(part.digest != one.digest);
        sum += part.sum, digest += part.digest;
        gather_free(&part);
    }
    CHECK(sum == one.sum && digest == one.digest);
    gather_free(&one), gather_free(&values);
}

TEST(many_files, "with many files, those to be read from the start go to one shard each") {
    const char *top = make_folder("many");
    char path[128], name[32], text[64];
    snprintf(path, sizeof path, "%s", top);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, i % 2 ? "many/%02d.json" : "many/%02d.txt", i);
        snprintf(text, sizeof text, i % 2 ? "[{\"text\":\"%d\"}]" : "%d ", i);
        put_text(name, text);
    }
    gathered whole = gather(path, NULL, 1);
    CHECK_INT(whole.n_docs, 20);
    uint64_t sum = 0, files = 0;
    for (int i = 0; i < 2; i++) {
        corpus_options options = {.shard = i, .n_shards = 2};
        gathered part = gather(path, &options, 2);
        sum += part.sum, files += part.stats.n_docs;
        gather_free(&part);
    }
    CHECK(sum == whole.sum);
    CHECK_INT(files, 20);
    gather_free(&whole);
    clear_folder();
}

/* Of bad records in many batches the first five in file order are shown, and strict names the first one,
 * whoever parsed them. */
TEST(bad_order, "the first bad records in file order") {
    const corpus_options strict = {.strict = true};
    size_t room = 6u << 20, at = 0;
    char *lines = (char *)malloc(room);
    for (unsigned line = 1; at + 2000 < room; line++) {
        bool bad = line > 1000 && line % 500 == 0;
        at += (size_t)sprintf(lines + at, bad ? "{\"text\" %0600u\n" : "{\"text\":\"%0600u\"}\n",
                              line);
    }
    const char *path = put_file("order.jsonl", lines, at);
    for (int threads = 1; threads <= 8; threads += test_quick() ? 3 : 1) {
        gathered g = gather(path, &strict, threads);
        CHECK_HAS(g.err.msg, "order.jsonl:1500: malformed JSON");
        gather_free(&g);
        if (threads > 4) continue;
        g = gather(path, NULL, threads);
        for (int i = 0; i < CORPUS_EXAMPLES; i++) {
            char want[32];
            snprintf(want, sizeof want, "order.jsonl:%d: ", 1500 + 500 * i);
            CHECK_HAS(g.stats.bad_examples[i], want);
        }
        gather_free(&g);
    }
    free(lines);
    clear_folder();
}

static void check_real(const char *relative, uint64_t n_records, uint64_t n_docs) {
    corpus_options all = {.all_messages = true};
    gathered g = gather(test_data(relative), &all, 1);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_INT(g.stats.n_records, n_records);
    CHECK_INT(g.stats.n_docs, n_docs);
    CHECK_INT(g.stats.n_bad_records, 0);
    gather_free(&g);
}

/* The numbers are Python's: json.load, or json.loads by line. */
TEST(real, "real files hold what Python finds in them") {
    check_real("prompts/humaneval/HumanEval.jsonl.gz", 164, 328);
    check_real("prompts/gsm8k/train.jsonl", 7473, 14946);
    check_real("prompts/spec_bench/question.jsonl", 480, 560);
    check_real("domains/function_calling/BFCL_v4_simple_python.json", 400, 400);
    check_real("domains/function_calling/BFCL_v4_multiple.json", 200, 200);
    check_real("domains/function_calling/BFCL_v4_live_multiple.json", 1053, 1090);
    test_data("README.md");
    LEFT_TO_ALL();
    gathered g = gather(test_data("generations"), NULL, 2);
    CHECK_INT(g.stats.n_docs, 39578);
    CHECK_INT(g.stats.n_text_bytes, 52699016);
    gather_free(&g);
}

TEST(progress, "what was read of a file so far, batch by batch") {
    enum { N = 3 << 20 };
    const corpus_options none = {0};
    corpus *c;
    corpus_batch batch = {0};
    corpus_stats stats;
    bool end = false;
    char *text = (char *)malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = "word "[i % 5];
    REQUIRE(sl_corpus_open_memory("x.txt", text, N, &none, &c, NULL) == SPECRT_STATUS_OK);
    for (uint64_t i = 1; i <= 4; i++) {
        REQUIRE(sl_corpus_next(c, &batch, &end, NULL) == SPECRT_STATUS_OK);
        sl_corpus_get_stats(c, &stats);
        CHECK_INT(stats.bytes_read, i < 4 ? i << 20 : N);
    }
    CHECK(end);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
    free(text);
}
