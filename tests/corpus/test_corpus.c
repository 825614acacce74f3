/* test_corpus.c : corpora made at run time, in a folder of their own. */
#include "corpus/corpus.h"
#include "base/parallel.h"
#include "test.h"
#include "tokenizer/tokenizer.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

/* ---- files ---- */

static char folder[64];

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) perror(folder);
}

static const char *path_of(const char *name) {
    static char paths[32][128];
    static int turn;
    if (!folder[0]) {
        strcpy(folder, "/tmp/specrt-corpus-XXXXXX");
        REQUIRE(mkdtemp(folder));
        atexit(remove_folder);
    }
    char *path = paths[turn++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *put_file(const char *name, const void *bytes, size_t n) {
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    return path;
}

static const char *put_text(const char *name, const char *text) {
    return put_file(name, text, strlen(text));
}

static const char *make_folder(const char *name) {
    const char *path = path_of(name);
    REQUIRE(mkdir(path, 0777) == 0 || errno == EEXIST);
    return path;
}

/* gzip members or zstd frames of `part` bytes each. @return bytes; freed by the caller. */
static uint8_t *pack(const char *codec, const void *bytes, size_t n, size_t part, size_t *n_out) {
    size_t room = 2 * n + 1024 + 64 * (n / part + 1), at = 0;
    uint8_t *out = (uint8_t *)malloc(room);
    const uint8_t *from = (const uint8_t *)bytes;
    for (size_t i = 0; i < n; i += part) {
        size_t m = n - i < part ? n - i : part;
        if (strcmp(codec, "zst") == 0) {
            at += ZSTD_compress(out + at, room - at, from + i, m, 1);
            continue;
        }
        z_stream z = {0};
        deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
        z.next_in = (Bytef *)(uintptr_t)(from + i);
        z.avail_in = (uInt)m;
        z.next_out = out + at;
        z.avail_out = (uInt)(room - at);
        REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
        at += z.total_out;
        deflateEnd(&z);
    }
    *n_out = at;
    return out;
}

static const char *put_packed(const char *name, const char *codec, const void *bytes, size_t n,
                              size_t part) {
    size_t m;
    uint8_t *packed = pack(codec, bytes, n, part, &m);
    const char *path = put_file(name, packed, m);
    free(packed);
    return path;
}

static uint32_t draw_state;
static uint32_t draw(uint32_t n) {
    draw_state = draw_state * 1664525u + 1013904223u;
    return (draw_state >> 8) % n;
}

/* ---- collecting ---- */

typedef struct gathered {
    char *text; /* all documents, one after another */
    size_t n_text, capacity;
    size_t *ends; /* [n_docs] where each ends in text */
    bool *completion, *continues;
    size_t n_docs, docs_capacity;
    uint64_t sum; /* of hashes of (document, domain, flags, unit hash): any order */
    uint64_t digest;
    corpus_stats stats;
    specrt_error err;
    specrt_status status;
} gathered;

static void gather_free(gathered *g) {
    free(g->text), free(g->ends), free(g->completion), free(g->continues);
    memset(g, 0, sizeof *g);
}

static void gather_text(gathered *g, const corpus_doc *doc) {
    if (g->n_text + doc->n_bytes + 1 > g->capacity) {
        g->capacity = 2 * (g->n_text + doc->n_bytes + 1);
        g->text = (char *)realloc(g->text, g->capacity);
    }
    if (g->n_docs == g->docs_capacity) {
        g->docs_capacity = 2 * g->docs_capacity + 16;
        g->ends = (size_t *)realloc(g->ends, g->docs_capacity * sizeof *g->ends);
        g->completion = (bool *)realloc(g->completion, g->docs_capacity);
        g->continues = (bool *)realloc(g->continues, g->docs_capacity);
    }
    if (doc->n_bytes > 0) memcpy(g->text + g->n_text, doc->text, doc->n_bytes);
    g->n_text += doc->n_bytes;
    g->text[g->n_text] = '\0';
    g->ends[g->n_docs] = g->n_text;
    g->completion[g->n_docs] = doc->completion;
    g->continues[g->n_docs++] = doc->continues;
}

static uint64_t hash_doc(const corpus_doc *doc) {
    uint64_t key[4] = {doc->unit_hash, (uint64_t)doc->domain, doc->completion, doc->continues};
    uint64_t seed = specrt_hash64(key, sizeof key, 0);
    return doc->text ? specrt_hash64(doc->text, doc->n_bytes, seed)
                     : specrt_hash64(doc->ids, doc->n_ids * sizeof *doc->ids, seed);
}

typedef struct reader {
    corpus *c;
    gathered *g; /* texts are kept for one thread only */
    bool keep;
    uint64_t sums[8], n_docs[8];
    specrt_error errors[8];
} reader;

static void read_all(void *arg, int worker) {
    reader *r = (reader *)arg;
    corpus_batch batch = {0};
    bool end = false;
    while (sl_corpus_next(r->c, &batch, &end, &r->errors[worker]) == SPECRT_STATUS_OK && !end)
        for (int64_t i = 0; i < batch.n_docs; i++) {
            const corpus_doc *doc = &batch.docs[i];
            REQUIRE(!doc->text || sl_utf8_valid(doc->text, doc->n_bytes) == doc->n_bytes);
            r->sums[worker] += hash_doc(doc);
            r->n_docs[worker]++;
            if (r->keep) gather_text(r->g, doc);
        }
    sl_corpus_batch_free(&batch);
}

static void gather_open(gathered *g, corpus *c, int threads) {
    static reader r;
    memset(&r, 0, sizeof r);
    r.c = c, r.g = g, r.keep = threads == 1;
    if (threads == 1)
        read_all(&r, 0);
    else
        sl_parallel_run(threads, read_all, &r);
    uint64_t n_docs = 0;
    for (int i = 0; i < threads; i++) {
        g->sum += r.sums[i];
        n_docs += r.n_docs[i];
        if (r.errors[i].status != SPECRT_STATUS_OK) g->err = r.errors[i];
    }
    g->status = g->err.status;
    g->digest = sl_corpus_digest(c, 0);
    sl_corpus_get_stats(c, &g->stats);
    if (g->status == SPECRT_STATUS_OK) CHECK_INT(g->stats.n_docs, n_docs);
    sl_corpus_close(c);
}

static gathered gather(const char *path, const corpus_options *options, int threads) {
    static const corpus_options none;
    gathered g = {0};
    corpus *c;
    g.status = sl_corpus_open(&path, 1, options ? options : &none, &c, &g.err);
    if (g.status == SPECRT_STATUS_OK) gather_open(&g, c, threads);
    return g;
}

static gathered gather_memory(const char *name, const void *bytes, size_t n,
                              const corpus_options *options) {
    static const corpus_options none;
    gathered g = {0};
    corpus *c;
    g.status = sl_corpus_open_memory(name, bytes, n, options ? options : &none, &c, &g.err);
    if (g.status == SPECRT_STATUS_OK) gather_open(&g, c, 1);
    return g;
}

static gathered gather_string(const char *name, const char *text, const corpus_options *options) {
    return gather_memory(name, text, strlen(text), options);
}

/* ---- text units ---- */

/* Words, lines, paragraphs, CRLF, scripts, and stretches without a safe place. */
static char *make_text(size_t n) {
    static const char *const parts[] = {"word ",
                                        "Another ",
                                        "x\n",
                                        "end.\n\n",
                                        "\r\n",
                                        "1 2 3 ",
                                        "\xE4\xB8\xAD\xE6\x96\x87",
                                        "a\nb ",
                                        "d\xC3\xA9j\xC3\xA0 ",
                                        "\xE3\x80\x82\n\xE4\xB8\xAD",
                                        "  ",
                                        "\tindented\n",
                                        "//x\n/y",
                                        "\n",
                                        "!\nYes "};
    char *text = (char *)malloc(n + 1);
    size_t at = 0;
    while (at < n) {
        const char *part = parts[draw(sizeof parts / sizeof parts[0])];
        uint32_t repeat = draw(1500) == 0 ? 9000 + draw(9000) : 1;
        if (repeat > 1) part = draw(2) ? "0123456789" : "\xE4\xB8\xAD\xE6\x96\x87";
        for (uint32_t i = 0; i < repeat && at < n; i++)
            for (const char *p = part; *p && at < n; p++) text[at++] = *p;
    }
    text[n] = '\0';
    return text;
}

static bool letter(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The rule of corpus.h, spelt out: letter, space, letter; or visible, line feed, letter. */
static bool safe(const uint8_t *p, size_t at, size_t n) {
    if (at < 4 || at + 1 >= n) return false;
    if (letter(p[at - 1]) && p[at] == ' ' && letter(p[at + 1])) return true;
    if (p[at - 1] != '\n' || p[at - 2] <= ' ' || p[at - 2] == 127) return false;
    bool after = letter(p[at]) || (p[at] >= 0xC3 && p[at] <= 0xE0) ||
                 (p[at] >= 0xE3 && p[at] <= 0xED && memcmp(p + at, "\xE3\x80", 2) != 0);
    bool rare = p[at - 2] >= 0x80 && (p[at - 3] == 0xC2 || p[at - 4] == 0xE1 || p[at - 4] == 0xE2 ||
                                      memcmp(p + at - 4, "\xE3\x80\x80", 3) == 0);
    return after && !rare;
}

static size_t list_cuts(const char *text, size_t n, size_t *cuts) {
    size_t n_cuts = 0;
    for (size_t from = 65536; from < n; from += 65536) {
        size_t at = from;
        while (at < n && !safe((const uint8_t *)text, at, n)) at++;
        if (at < n && (n_cuts == 0 || cuts[n_cuts - 1] != at)) cuts[n_cuts++] = at;
    }
    return n_cuts;
}

static void check_units(const gathered *g, const char *text, size_t n, const size_t *cuts,
                        size_t n_cuts) {
    CHECK_INT(g->status, SPECRT_STATUS_OK);
    CHECK_INT(g->stats.n_records, n_cuts + 1);
    CHECK_INT(g->n_text, n);
    CHECK(g->n_text == n && memcmp(g->text, text, n) == 0);
    REQUIRE(g->n_docs == n_cuts + 1);
    for (size_t i = 0; i < n_cuts; i++) CHECK_INT(g->ends[i], cuts[i]);
    for (size_t i = 0; i < g->n_docs; i++) CHECK(g->continues[i] == (i > 0));
}

static void case_units(void) {
    draw_state = 1;
    size_t cuts[128];
    for (int round = 0; round < 6; round++) {
        size_t n = 2500000 + draw(1500000), n_cuts, m;
        char *text = make_text(n);
        while (sl_utf8_valid(text, n) != n) n--;
        n_cuts = list_cuts(text, n, cuts);
        gathered plain = gather_memory("a.txt", text, n, NULL);
        check_units(&plain, text, n, cuts, n_cuts);
        for (int i = 0; i < 2; i++) {
            uint8_t *packed = pack(i ? "zst" : "gz", text, n, 300000, &m);
            gathered g = gather_memory("a.txt", packed, m, NULL); /* told by content */
            check_units(&g, text, n, cuts, n_cuts);
            CHECK(g.sum == plain.sum && g.digest == plain.digest);
            gather_free(&g), free(packed);
        }
        gathered file = gather(put_file("units.md", text, n), NULL, 1);
        check_units(&file, text, n, cuts, n_cuts);
        CHECK(file.digest == plain.digest);
        gather_free(&plain), gather_free(&file), free(text);
    }
}

static void check_bytes(const char *in, size_t n, const char *want, size_t m, uint64_t replaced) {
    gathered g = gather_memory("x.txt", in, n, NULL);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_INT(g.n_text, m);
    CHECK(g.n_text == m && (m == 0 || memcmp(g.text, want, m) == 0));
    CHECK_INT(g.stats.n_replaced, replaced);
    gather_free(&g);
}

static void case_text_bytes(void) {
    check_bytes("a\r\nb\r\n", 6, "a\r\nb\r\n", 6, 0);
    check_bytes("a\0b", 3, "a\0b", 3, 0);
    check_bytes("\xEF\xBB\xBF"
                "bom",
                6, "bom", 3, 0);
    check_bytes("\xEF\xBB\xBF", 3, "", 0, 0);
    check_bytes("a\xE4\xB8z\xFF", 5, "a\xEF\xBF\xBDz\xEF\xBF\xBD", 8, 2);
    check_bytes("{\"text\": 1}", 11, "{\"text\": 1}", 11, 0); /* the name says text */
}

/* Three-byte characters without a break: forced at 64 MiB, on a character. */
static void case_forced(void) {
    size_t n = (64u << 20) + 300000;
    n -= n % 3;
    char *text = (char *)malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = "\xE4\xB8\xAD"[i % 3];
    gathered g = gather_memory("x", text, n, NULL);
    CHECK_INT(g.n_docs, 2);
    CHECK_INT(g.stats.n_forced_cuts, 1);
    CHECK_INT(g.stats.n_replaced, 0);
    CHECK_INT(g.n_text, n);
    if (g.n_docs == 2) CHECK_INT(g.ends[0], (64u << 20) + 2);
    gather_free(&g);
    free(text);
}

/* ---- records ---- */

/* Documents as "text|text!": an exclamation mark for a completion. */
static const char *show(const gathered *g) {
    static char out[4096];
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < g->n_docs && at < 3000; i++) {
        size_t from = i > 0 ? g->ends[i - 1] : 0;
        at +=
            (size_t)snprintf(out + at, sizeof out - at, "%s%.*s%s", i > 0 ? "|" : "",
                             (int)(g->ends[i] - from), g->text + from, g->completion[i] ? "!" : "");
    }
    return out;
}

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

static void case_shapes(void) {
    static const char *const rows[][3] = {
        /* record, what the target says, all that is said */
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
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char array[1024];
        check_records("x.jsonl", rows[i][0], rows[i][1], rows[i][2]);
        snprintf(array, sizeof array, "\n [ %s ]", rows[i][0]);
        check_records("x.json", array, rows[i][1], rows[i][2]);
    }
}

static void case_field(void) {
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
}

static void case_escapes(void) {
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

/* ---- how records stand in files ---- */

static void check_good(const char *name, const char *text, const char *want, uint64_t n_bad) {
    gathered g = gather_string(name, text, NULL);
    CHECK_STR(g.status ? g.err.msg : show(&g), want);
    CHECK_INT(g.stats.n_bad_records, n_bad);
    gather_free(&g);
}

static void case_framing(void) {
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

static void case_any_layout(void) {
    char *file = (char *)malloc(32u << 20);
    draw_state = 21;
    for (int round = 0; round < 30; round++) {
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

static void case_bad_lines(void) {
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
static void case_bad_elements(void) {
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

static void check_fails(const char *name, const char *text, const char *message) {
    gathered g = gather_string(name, text, NULL);
    CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(g.err.msg, message);
    gather_free(&g);
}

static void case_bad_files(void) {
    check_fails("x.json", "[{\"text\":\"a\"},\n{\"text\":\"b\"}",
                "x.json: the array that begins on line 1 is not closed");
    check_fails("x.json", "[\n{\"text\":\"a\"},\n{\"text\":\"b",
                "x.json: the array that begins on line 1");
    check_fails("x.json", "\n[{\"text\":\"a\"},{\"text\":]}]",
                "x.json:2: malformed JSON (brackets do not match)");
    check_fails("x.json", "{\"id\": 1, \"meta\": {}, \"url\": \"x\"}",
                "x.json:1: no known field; found id meta url; expected conversations, messages,");
    check_fails("x.jsonl", "\nhello\nworld\n", "x.jsonl:2: malformed JSON");
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

static void case_nuls(void) {
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

/* One record of 65 MiB, between small ones, of which two are broken. */
static void case_too_long(void) {
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

/* Three bytes of an empty array cost json-c hundreds. */
static void case_crowded(void) {
    size_t at = 0;
    char *text = (char *)malloc(4u << 20);
    at += (size_t)sprintf(text, "{\"text\":\"a\"}\n{\"text\":[");
    for (int i = 0; i < 1000000; i++, at += 3) memcpy(text + at, "[],", 3);
    at += (size_t)sprintf(text + at, "0]}\n{\"text\":\"b\"}\n");
    gathered g = gather_memory("x.jsonl", text, at, NULL);
    CHECK_STR(show(&g), "a|b");
    CHECK_HAS(g.stats.bad_examples[0], "x.jsonl:2: a record of too many values");
    gather_free(&g);
    free(text);
}

/* ---- packed files ---- */

static void case_damaged(void) {
    draw_state = 3;
    size_t n = 400000, m;
    char *text = make_text(n);
    for (int i = 0; i < 2; i++) {
        const char *codec = i ? "zst" : "gz";
        uint8_t *packed = pack(codec, text, n, n / 2, &m);
        gathered g = gather_memory("x.txt.gz", packed, m - 5, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(g.err.msg, "the file is cut short");
        gather_free(&g);
        memset(packed + m / 3, 0x5A, 16);
        g = gather_memory("x.txt.gz", packed, m, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(g.err.msg, i ? "x.txt.gz: zstd data at byte" : "x.txt.gz: gzip data at byte");
        gather_free(&g);
        free(packed);
        packed = pack(codec, "hello", 5, 5, &m);
        packed[m] = 'x', packed[m + 1] = 'y';
        g = gather_memory("x.txt", packed, m + 2, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        gather_free(&g);
        memset(packed + m, 0, 2);
        g = gather_memory("x.txt", packed, m + 2, NULL);
        CHECK_INT(g.status,
                  i ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK); /* gzip may be padded */
        gather_free(&g), free(packed);
    }
    free(text);
    gathered g = gather_string("plain.txt.gz", "not packed", NULL);
    CHECK_STR(show(&g), "not packed");
    gather_free(&g);
}

/* ---- token ids ---- */

static size_t make_npy(uint8_t *out, int version, const char *descr, const char *shape,
                       const void *data, size_t n) {
    char dict[128];
    int length = snprintf(dict, sizeof dict,
                          "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version, out[7] = 0;
    size_t at = version == 1 ? 10 : 12;
    memset(out + 8, 0, 4);
    out[8] = (uint8_t)length;
    memcpy(out + at, dict, (size_t)length);
    memcpy(out + at + (size_t)length, data, n);
    return at + (size_t)length + n;
}

static void check_ids(const char *name, const void *bytes, size_t n, int id_bytes, int32_t n_vocab,
                      const char *want) {
    corpus_options options = {.token_ids = true, .id_bytes = id_bytes, .n_vocab = n_vocab};
    specrt_error err = {0};
    corpus *c;
    corpus_batch batch = {0};
    bool end = false;
    char out[512] = "";
    size_t at = 0;
    specrt_status status = sl_corpus_open_memory(name, bytes, n, &options, &c, &err);
    while (status == SPECRT_STATUS_OK && !end) {
        status = sl_corpus_next(c, &batch, &end, &err);
        for (int64_t i = 0; i < batch.n_docs; i++) {
            for (size_t j = 0; j < batch.docs[i].n_ids && at < 400; j++)
                at += (size_t)sprintf(out + at, "%d ", batch.docs[i].ids[j]);
            at += (size_t)sprintf(out + at, "; ");
        }
    }
    if (err.status)
        CHECK_HAS(err.msg, want);
    else
        CHECK_STR(out, want);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
}

static void case_ids(void) {
    static const uint16_t u16[] = {1, 2, 65535, 4};
    static const uint16_t wide[] = {1, 0, 65535, 65535};
    static const int32_t i32[] = {1, 2, 3, 40, 5, -6};
    static const int64_t i64[] = {7, INT64_C(1) << 32};
    uint8_t file[512];
    check_ids("x.bin", u16, 8, 2, 0, "1 2 65535 4 ; ");
    check_ids("x.bin", wide, 8, 4, 0, "x.bin: id 4294967295 at index 1"); /* the wrong width */
    check_ids("x.bin", u16, 8, 2, 5, "x.bin: id 65535 at index 2; expected 0 to 4");
    check_ids("x.bin", u16, 7, 2, 0, "x.bin: the last id is cut short");
    check_ids("x.bin", u16, 8, 0, 0, "--id-bytes");
    check_ids("x.txt", "hello", 5, 2, 0, "x.txt: no token ids");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(4,)", u16, 8), 0, 0, "1 2 65535 4 ; ");
    check_ids("x.npy", file, make_npy(file, 2, "<i4", "(2, 2)", i32, 16), 0, 0, "1 2 ; 3 40 ; ");
    check_ids("x.npy", file, make_npy(file, 1, "<i4", "(6,)", i32, 24), 0, 0, "id -6 at index 5");
    check_ids("x.npy", file, make_npy(file, 1, "<i8", "(1,)", i64, 8), 0, 0, "7 ; ");
    check_ids("x.npy", file, make_npy(file, 1, "<i8", "(2,)", i64, 16), 0, 0,
              "id 4294967296 at index 1");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(5,)", u16, 8), 0, 0,
              "x.npy: the file is cut short; expected 78 bytes, found 76");
    check_ids("x.npy", file, make_npy(file, 1, "<u2", "(2, 1, 2)", u16, 8), 0, 0,
              "has another shape");
    check_ids("x.npy", file, make_npy(file, 1, "<f4", "(2,)", u16, 8), 0, 0, "holds another type");
    check_ids("x.npy", file, make_npy(file, 1, ">u2", "(4,)", u16, 8), 0, 0, "x.npy: .npy");
    check_ids("x.npy", file, 20, 0, 0, "x.npy: .npy header is cut off");
}

/* ---- folders, threads, shards, pipes ---- */

static void case_folder(void) {
    const char *top = make_folder("walk");
    make_folder("walk/b");
    make_folder("walk/.git");
    put_text("walk/c.txt", "c ");
    put_text("walk/a.md", "a ");
    put_text("walk/b/x.py", "bx ");
    put_text("walk/b/y.jsonl", "{\"text\":\"by \"}");
    put_text("walk/.hidden", "no ");
    put_text("walk/.git/config", "no ");
    put_text("walk/d.bin", "1234");
    put_text("walk/e.png", "\x89PNG\r\n");
    put_text("walk/f.json", "{\"name\": \"package\"}");
    if (symlink("nothing", path_of("walk/g")) || symlink("..", path_of("walk/b/loop")) ||
        symlink("b", path_of("walk/z")) || symlink("../c.txt", path_of("walk/b/a-link")))
        CHECK(errno == EEXIST);
    gathered g = gather(top, NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_STR(show(&g), "a |c |bx |by "); /* c.txt is met first through its link in b */
    CHECK_INT(g.stats.n_skipped_files, 4);
    CHECK_HAS(g.stats.skipped_examples[0], "walk/d.bin: token ids, not text");
    CHECK_HAS(g.stats.skipped_examples[1], "walk/e.png: a PNG image");
    CHECK_HAS(g.stats.skipped_examples[2], "walk/f.json:1: no known field; found name;");
    CHECK_HAS(g.stats.skipped_examples[3], "walk/g: a link to nothing");
    gather_free(&g);
    g = gather(make_folder("empty"), NULL, 1);
    CHECK_HAS(g.err.msg, "empty: expected files, found a folder without any");
    g = gather(path_of("missing.txt"), NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_IO);
    CHECK_HAS(g.err.msg, "missing.txt: cannot open: No such file");
}

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

static void case_threads(void) {
    const char *path = mixed_folder();
    gathered one = gather(path, NULL, 1);
    CHECK_INT(one.status, SPECRT_STATUS_OK);
    CHECK_INT(one.stats.n_files, 5);
    CHECK_INT(one.stats.bytes_read, one.stats.bytes_total);
    for (int threads = 2; threads <= 4; threads++) {
        gathered many = gather(path, NULL, threads);
        CHECK(many.sum == one.sum && many.digest == one.digest);
        CHECK(memcmp(&many.stats, &one.stats, sizeof one.stats) == 0);
        gather_free(&many);
    }
    for (int64_t n = 2; n <= 4; n++) { /* few files: batches are dealt */
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
}

/* A cluster's splits: the records of one file in several, in another order, lines ended otherwise. What
 * they are called and how they are dealt changes neither documents, held-out ones nor the digest. */
static void case_splits(void) {
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

/* With many files, those to be read from the start go to one shard each. */
static void case_many_files(void) {
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
}

/* Bad records of many batches: the first five in file order, whoever parsed them. */
static void case_bad_order(void) {
    size_t room = 6u << 20, at = 0;
    char *lines = (char *)malloc(room);
    unsigned line = 0;
    while (at + 2000 < room) {
        line++;
        bool bad = line > 1000 && line % 500 == 0;
        at += (size_t)sprintf(lines + at, bad ? "{\"text\" %0600u\n" : "{\"text\":\"%0600u\"}\n",
                              line);
    }
    const char *path = put_file("order.jsonl", lines, at);
    for (int threads = 1; threads <= 4; threads++) {
        gathered g = gather(path, NULL, threads);
        for (int i = 0; i < CORPUS_EXAMPLES; i++) {
            char want[32];
            snprintf(want, sizeof want, "order.jsonl:%d: ", 1500 + 500 * i);
            CHECK_HAS(g.stats.bad_examples[i], want);
        }
        gather_free(&g);
    }
    free(lines);
}

/* Of the bad records of many batches, strict names the first one. */
static void case_strict_order(void) {
    size_t room = 5u << 20, at = 0;
    char *lines = (char *)malloc(room);
    for (unsigned line = 1; at + 2000 < room; line++)
        at += (size_t)sprintf(
            lines + at, line % 700 == 0 ? "{\"text\" %0900u\n" : "{\"text\":\"%0900u\"}\n", line);
    const char *path = put_file("strict.jsonl", lines, at);
    corpus_options options = {.strict = true};
    for (int threads = 1; threads <= 8; threads++) {
        gathered g = gather(path, &options, threads);
        CHECK_HAS(g.err.msg, "strict.jsonl:700: malformed JSON");
        gather_free(&g);
    }
    free(lines);
}

/* A child writes into our standard input. */
static gathered gather_pipe(const void *bytes, size_t n, const char *path) {
    int ends[2], saved = dup(STDIN_FILENO);
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const char *p = (const char *)bytes;
        for (size_t at = 0; at < n;) {
            ssize_t m = write(ends[1], p + at, n - at < 5000 ? n - at : 5000);
            if (m < 0) _exit(1);
            at += (size_t)m;
        }
        _exit(0);
    }
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    gathered g = gather(path, NULL, 1);
    dup2(saved, STDIN_FILENO);
    close(saved);
    waitpid(child, NULL, 0);
    return g;
}

static void case_pipe(void) {
    draw_state = 5;
    size_t n = 2000000, m;
    char *text = make_text(n);
    gathered plain = gather_memory("x.txt", text, n, NULL);
    gathered g = gather_pipe(text, n, "-");
    CHECK(g.status == SPECRT_STATUS_OK && g.sum == plain.sum && g.digest == plain.digest);
    CHECK_INT(g.stats.bytes_total, 0);
    CHECK_INT(g.stats.bytes_read, n);
    gather_free(&g);
    uint8_t *packed = pack("zst", text, n, 700000, &m);
    g = gather_pipe(packed, m, "/dev/stdin");
    CHECK(g.status == SPECRT_STATUS_OK && g.sum == plain.sum);
    gather_free(&g), gather_free(&plain), free(packed), free(text);
    static const char json[] = "{\"output\":\"a\"}\n{\"output\":\"b\"}\n";
    g = gather_pipe(json, sizeof json - 1, "-");
    CHECK_STR(show(&g), "a!|b!");
    gather_free(&g);
}

/* ---- real files, when they are there ---- */

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
static void case_real(void) {
    check_real("prompts/humaneval/HumanEval.jsonl.gz", 164, 328);
    check_real("prompts/gsm8k/train.jsonl", 7473, 14946);
    check_real("prompts/spec_bench/question.jsonl", 480, 560);
    check_real("domains/function_calling/BFCL_v4_simple_python.json", 400, 400);
    check_real("domains/function_calling/BFCL_v4_multiple.json", 200, 200);
    check_real("domains/function_calling/BFCL_v4_live_multiple.json", 1053, 1090);
    test_data("README.md");
    gathered g = gather(test_data("generations"), NULL, 2);
    CHECK_INT(g.stats.n_docs, 39578);
    CHECK_INT(g.stats.n_text_bytes, 52699016);
    gather_free(&g);
}

/* Cut at every safe place, the parts must give the very ids of the whole. */
static void check_safe_places(const char *tokenizer_path, const char *text, size_t n) {
    specrt_error err = {0};
    tokenizer *tok;
    tok_worker *w;
    id_list whole = {0}, parts = {0};
    if (sl_tokenizer_open(tokenizer_path, &tok, &err)) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(err.status == SPECRT_STATUS_OK &&
            sl_tok_worker_create(tok, &w, &err) == SPECRT_STATUS_OK);
    CHECK(sl_tok_encode(w, text, n, &whole) == SPECRT_STATUS_OK);
    size_t start = 0, n_cuts = 0;
    for (size_t at = 4; at <= n; at++) {
        if (at < n && !safe((const uint8_t *)text, at, n)) continue;
        size_t before = parts.n;
        CHECK(sl_tok_encode(w, text + start, at - start, &parts) == SPECRT_STATUS_OK);
        bool same = parts.n <= whole.n && memcmp(parts.ids + before, whole.ids + before,
                                                 (parts.n - before) * sizeof *parts.ids) == 0;
        if (!same) fprintf(stderr, "%s: \"%.*s\"\n", tokenizer_path, 40, text + start);
        REQUIRE(same);
        start = at;
        n_cuts++;
    }
    CHECK_INT(parts.n, whole.n);
    CHECK(n_cuts > 100);
    free(whole.ids), free(parts.ids);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

static void case_safe_places(void) {
    static const char *const tokenizers[] = {
        "llama3/tokenizer.model",      "openai/o200k_base.tiktoken.gz",
        "qwen/qwen.tiktoken",          "gguf/ggml-vocab-gpt-2.gguf",
        "gguf/ggml-vocab-falcon.gguf", "gguf/ggml-vocab-deepseek-llm.gguf"};
    gathered g = gather(test_data("generations/qwen/Qwen1.5-1.8B-Chat.json"), NULL, 1);
    size_t n = g.n_text < 300000 ? g.n_text : 300000;
    while (sl_utf8_valid(g.text, n) != n) n--;
    draw_state = 2;
    char *made = make_text(300000);
    size_t n_made = sl_utf8_valid(made, 300000);
    for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "tokenizers/%s", tokenizers[i]);
        check_safe_places(test_data(path), g.text, n);
        check_safe_places(test_data(path), made, n_made);
    }
    free(made);
    gather_free(&g);
}

static const test_case cases[] = {
    {"units", "text is cut where the rule says, packed or not", case_units},
    {"text-bytes", "NULs, CRLF, byte-order marks, invalid bytes", case_text_bytes},
    {"forced", "64 MiB without a safe place are cut on a character", case_forced},
    {"shapes", "the documents of every record shape", case_shapes},
    {"field", "--field with dots, lists and records without it", case_field},
    {"escapes", "NULs, surrogates and bad bytes in JSON strings", case_escapes},
    {"framing", "lines, concatenated values, arrays", case_framing},
    {"any-layout", "random records in random layouts come out whole", case_any_layout},
    {"bad-lines", "bad lines are counted, located, fatal if strict", case_bad_lines},
    {"bad-elements", "broken elements of arrays are passed over", case_bad_elements},
    {"bad-files", "what cannot be read at all says why", case_bad_files},
    {"nuls", "text with NULs is text, binary data is not", case_nuls},
    {"too-long", "a record over the cap is a bad record", case_too_long},
    {"crowded", "a record of a million arrays is a bad record", case_crowded},
    {"damaged", "packed data cut, damaged, followed by something", case_damaged},
    {"ids", ".bin and .npy", case_ids},
    {"folder", "walks in name order, once, without hidden files", case_folder},
    {"threads", "threads and shards give the same documents", case_threads},
    {"many-files", "shards of many files", case_many_files},
    {"splits", "records dealt to files", case_splits},
    {"bad-order", "examples come in file order", case_bad_order},
    {"strict-order", "strict names the first bad record", case_strict_order},
    {"pipe", "standard input, packed too", case_pipe},
    {"safe-places", "cuts at safe places change no token", case_safe_places},
    {"real", "real files hold what Python finds in them", case_real},
};

TEST_MAIN(cases)
