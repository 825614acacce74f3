/* test_counts.c : count files add up exactly, in any order, and refuse what does not belong. */
#include "counts/coverage.h"
#include "folder.h"

#include <zlib.h>
#include <zstd.h>

enum { N_VOCAB = 300, N_FOLDS = 4 };

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static void vocab_fill(counts *c) {
    c->vocab = (counts_vocab){.n_vocab = N_VOCAB, .n_normal = 290};
    strcpy(c->vocab.name, "toy");
    memset(c->vocab.sha256, 0xab, 32);
    c->vocab.types = (uint8_t *)calloc(N_VOCAB, 1);
    c->vocab.types[290] = c->vocab.types[292] = COUNTS_TERMINATOR;
    c->vocab.types[291] = COUNTS_SPECIAL;
    memset(c->vocab.types + 293, COUNTS_RESERVED, 7);
    strcpy(c->options, "messages=assistant folds=4 seed=1");
}

/* A document of random ids, added to `c` and to the dense oracle. */
static void add_document(counts *c, const char *domain, uint64_t dense[N_FOLDS][N_VOCAB]) {
    counts_domain d = {.name = (char *)(uintptr_t)domain, .n_docs = 1, .n_bytes = 100};
    counts_row rows[N_VOCAB];
    int32_t fold = (int32_t)random_below(N_FOLDS);
    strcpy(d.provenance, "raw");
    d.rows = rows;
    d.digest = random_below(1u << 30) * 0x9e3779b97f4a7c15u;
    d.n_completions = 1;
    for (int32_t id = (int32_t)random_below(20); id < 290; id += 1 + (int32_t)random_below(60)) {
        counts_row row = {id, fold, 1 + random_below(1000)};
        d.n_tokens += row.n;
        if (dense) dense[fold][id] += row.n;
        rows[d.n_rows++] = row;
    }
    CHECK_INT(sl_counts_add(c, &d, NULL), SPECRT_STATUS_OK);
}

/* The bytes of a count file, owned. */
static char *to_text(const counts *c, size_t *n) {
    const char *path = in_folder("counts");
    out_file out;
    REQUIRE(sl_out_open(&out, path, true, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_write(c, &out, NULL), SPECRT_STATUS_OK);
    CHECK_INT(sl_out_commit(&out, NULL), SPECRT_STATUS_OK);
    file_view view;
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    char *text = (char *)calloc(view.n + 1, 1);
    memcpy(text, view.bytes, *n = view.n);
    sl_file_unmap(&view);
    clear_folder();
    return text;
}

static void check_dense(const counts_domain *d, uint64_t dense[N_FOLDS][N_VOCAB]) {
    uint64_t sum = 0;
    int32_t i = 0;
    for (int id = 0; id < N_VOCAB; id++)
        for (int fold = 0; fold < N_FOLDS; fold++) {
            if (!dense[fold][id]) continue;
            REQUIRE(i < d->n_rows);
            CHECK(d->rows[i].id == id && d->rows[i].fold == fold);
            CHECK_INT(d->rows[i++].n, dense[fold][id]);
            sum += dense[fold][id];
        }
    CHECK_INT(d->n_rows, i);
    CHECK_INT(d->n_tokens, sum);
}

TEST(counts_add, "sums equal a dense oracle") {
    static uint64_t dense[N_FOLDS][N_VOCAB];
    counts c = {0};
    memset(dense, 0, sizeof dense);
    random_state = 1;
    vocab_fill(&c);
    for (int i = 0; i < 50; i++) add_document(&c, "news", dense);
    REQUIRE(c.n_domains == 1);
    CHECK_INT(c.domains[0].n_docs, 50);
    CHECK_INT(c.domains[0].n_completions, 50);
    check_dense(&c.domains[0], dense);
    sl_counts_free(&c);
}

TEST(counts_merge, "shards in any order give the bytes of one run") {
    static const char *const names[] = {"b", "a", "c/d e"};
    counts whole = {0}, shards[3];
    char *texts[3];
    size_t sizes[3], n_whole, n;
    memset(shards, 0, sizeof shards);
    vocab_fill(&whole);
    for (int i = 0; i < 3; i++) vocab_fill(&shards[i]);
    for (uint64_t seed = 0; seed < 60; seed++) {
        const char *name = names[seed % 7 % 3];
        random_state = seed;
        add_document(&whole, name, NULL);
        random_state = seed;
        add_document(&shards[seed % 3], name, NULL);
    }
    char *expected = to_text(&whole, &n_whole);
    for (int i = 0; i < 3; i++) texts[i] = to_text(&shards[i], &sizes[i]);
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        char *joined = (char *)malloc(sizes[0] + sizes[1] + sizes[2]);
        size_t at = 0;
        for (int i = 0; i < 3; i++) {
            memcpy(joined + at, texts[orders[o][i]], sizes[orders[o][i]]);
            at += sizes[orders[o][i]];
        }
        counts merged = {0};
        specrt_error err = {SPECRT_STATUS_OK, ""};
        CHECK_INT(sl_counts_read_memory(&merged, joined, at, "joined", &err), SPECRT_STATUS_OK);
        CHECK_STR(err.msg, "");
        char *text = to_text(&merged, &n);
        CHECK_STR(text, expected);
        free(text);
        free(joined);
        sl_counts_free(&merged);
    }
    for (int i = 0; i < 3; i++) free(texts[i]), sl_counts_free(&shards[i]);
    free(expected);
    sl_counts_free(&whole);
}

static void refuse(const char *text, size_t n) {
    counts in = {0};
    CHECK(sl_counts_read_memory(&in, text, n, "bad", NULL) == SPECRT_STATUS_BAD_INPUT);
    sl_counts_free(&in);
}

TEST(counts_damage, "every cut of a file is refused, and so is every changed digit") {
    counts c = {0};
    size_t n;
    vocab_fill(&c);
    random_state = 3;
    for (int i = 0; i < 5; i++) add_document(&c, "news", NULL);
    char *text = to_text(&c, &n);
    for (size_t cut = 0; cut < n; cut++) refuse(text, cut);
    for (char *p = strchr(strstr(text, "#domain"), '\n'); *p != '#'; p++) {
        if (*p < '0' || *p > '9') continue;
        char old = *p;
        *p = old == '9' ? '1' : (char)(old + 1);
        refuse(text, n);
        *p = old;
    }
    free(text);
    sl_counts_free(&c);
}

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char sample[] = "#specrt-counts\t2\n"
                             "#tokenizer\t" DIGEST "\t10\t8\ttoy\n"
                             "#terminators\t8\n"
                             "#special\n"
                             "#reserved\t3,5-6\n"
                             "#options\tx folds=3 by=language\n"
                             "#domain\traw\t1\t2\t7\t00000000000000ff\tnews/han\n"
                             "1\t2\t3\n"
                             "4\t5\t0\t6\n"
                             "#end\t2\t21\n";
/* The same in version 1: a calibration part and a hold-out part. */
static const char sample_1[] = "#specrt-counts\t1\n"
                               "#tokenizer\t" DIGEST "\t10\t8\ttoy\n"
                               "#terminators\t8\n"
                               "#special\n"
                               "#reserved\t3,5-6\n"
                               "#options\tmessages=assistant holdout=0.05 seed=1\n"
                               "#domain\traw\t1\t2\t3\t4\t00000000000000ff\tnews\n"
                               "1\t2\t3\n"
                               "4\t5\t0\n"
                               "#end\t2\t15\n";

TEST(counts_fields, "every field of a file, read and written") {
    static const uint8_t types[10] = {0, 0, 0, 3, 0, 3, 3, 0, 1, 0};
    counts c = {0};
    size_t n;
    REQUIRE(sl_counts_read_memory(&c, sample, strlen(sample), "a", NULL) == SPECRT_STATUS_OK);
    CHECK(c.vocab.sha256[0] == 0x01 && c.vocab.sha256[31] == 0xef);
    CHECK_INT(c.vocab.n_vocab, 10);
    CHECK_INT(c.vocab.n_normal, 8);
    CHECK(memcmp(c.vocab.types, types, sizeof types) == 0);
    REQUIRE(c.n_domains == 1);
    counts_domain *d = &c.domains[0];
    CHECK_STR(d->provenance, "raw");
    CHECK(d->n_docs == 1 && d->n_bytes == 2 && d->digest == 255);
    CHECK(d->n_completions == 7 && d->n_tokens == 16);
    CHECK_INT(sl_counts_n_tokens(&c), 16);
    CHECK_INT(sl_counts_n_folds(&c), 3);
    for (int fold = 0; fold < 3; fold++) CHECK(sl_counts_holds_out(&c, fold));
    CHECK_STR(sl_counts_language(&c, d), "han");
    char *text = to_text(&c, &n);
    CHECK_STR(text, sample);
    free(text);
    d->n_docs = 0;
    CHECK(!sl_counts_language(&c, d));
    d->n_docs = 1, d->name[4] = '-';
    CHECK(!sl_counts_language(&c, d));
    d->name[4] = '/', c.options[9] = '\0';
    CHECK(!sl_counts_language(&c, d));
    sl_counts_free(&c);
}

/* A file of version 1 is read as two folds of which the second is held out, and written as version 2; counts
 * by folds are not added to it. */
TEST(counts_version_1, "files of version 1 are read as two folds") {
    counts c = {0}, again = {0};
    specrt_error err;
    size_t n;
    REQUIRE(sl_counts_read_memory(&c, sample_1, strlen(sample_1), "a", NULL) == SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_n_folds(&c), 2);
    CHECK(!sl_counts_holds_out(&c, 0) && sl_counts_holds_out(&c, 1));
    const counts_domain *d = &c.domains[0];
    CHECK(d->n_completions == 7 && d->n_tokens == 10 && d->n_rows == 3);
    CHECK(d->rows[1].id == 1 && d->rows[1].fold == 1 && d->rows[1].n == 3);
    char *text = to_text(&c, &n);
    CHECK_HAS(text, "#specrt-counts\t2\n");
    CHECK_HAS(text, "\n1\t2\t3\n4\t5\n#end\t2\t15\n");
    CHECK_INT(sl_counts_read_memory(&again, text, n, "b", NULL), SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_read_memory(&again, sample_1, strlen(sample_1), "a", NULL),
              SPECRT_STATUS_OK);
    CHECK_INT(again.domains[0].n_tokens, 20);
    CHECK_INT(sl_counts_read_memory(&c, sample, strlen(sample), "c", &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "c: counted with other options");
    free(text);
    sl_counts_free(&c);
    sl_counts_free(&again);
}

/* One change of the sample; where nothing is wrong it is read. */
TEST(counts_lines, "a line that is wrong is named") {
    static const struct {
        const char *from, *to, *wrong; /* "" : nothing */
    } rows[] = {
        {"counts\t2", "counts\t3", "bad:1: not a count file"},
        {"counts\t2", "counts\t1", "bad:7: #domain: expected"},
        {"abcdef\t10", "abcdeg\t10", "bad:2: #tokenizer: expected"},
        {"abcdef\t10", "abcde\t10", "bad:2: #tokenizer: expected"},
        {"\t10\t8\t", "\t0\t0\t", "bad:2: #tokenizer: expected"},
        {"\t10\t8\t", "\t10\t10\t", ""},
        {"\t10\t8\t", "\t10\t11\t", "bad:2: #tokenizer: expected"},
        {"\t10\t8\t", "\t2097152\t8\t", ""},
        {"\t10\t8\t", "\t2097153\t8\t", "bad:2: #tokenizer: expected"},
        {"\t10\t8\t", "\t1x\t8\t", "bad:2: #tokenizer: expected"},
        {"\t8\ttoy", "\t8", "bad:2: #tokenizer: expected"},
        {"#terminators\t8", "#terminators\t10", "bad:3: expected ids of the vocabulary"},
        {"#terminators\t8", "#terminators\t9", ""},
        {"#terminators\t8", "#terminator\t9", "bad:3: expected #terminators"},
        {"#special", "#specials", "bad:4: expected #special"},
        {"#special", "#special\t", ""},
        {"3,5-6", "3;5-6", "bad:5: expected ids of the vocabulary"},
        {"3,5-6", "3,6-5", "bad:5: expected ids of the vocabulary"},
        {"3,5-6", "3,5-", "bad:5: expected ids of the vocabulary"},
        {"3,5-6", ",5-6", "bad:5: expected ids of the vocabulary"},
        {"3,5-6", "3,5-10", "bad:5: expected ids of the vocabulary"},
        {"#options\t", "#option\t", "bad:6: expected #options"},
        {"folds=3", "folds=0", "bad:6: #options: expected folds=1 to folds=20"},
        {"folds=3", "folds=21", "bad:6: #options: expected folds=1 to folds=20"},
        {"folds=3", "folds=20", ""},
        {"folds=3", "folds=2", "bad:9: expected ID and a count for each fold"},
        {"\traw", "\tdraft", ""},
        {"\traw", "\trow", "bad:7: #domain: expected"},
        {"\t1\t2\t7", "\t1\t2", "bad:7: #domain: expected"},
        {"\t1\t2\t7", "\t1\t2\t-7", "bad:7: #domain: expected"},
        {"0000ff", "0000f", "bad:7: #domain: expected"},
        {"\tnews/han", "\t", "bad:7: #domain: expected"},
        {"\tnews/han", "", "bad:7: #domain: expected"},
        {"news", "n\037ws", "bad:7: #domain: expected"},
        {"news", "n\177ws", "bad:7: #domain: expected"},
        {"news", "n ws", ""},
        {"#domain\t", "#domain\n", "bad:7: expected #domain or #end"},
        {"1\t2\t3\n", "1\t5\n", ""},
        {"1\t2\t3\n", "1\n", "bad:8: expected ID and a count for each fold"},
        {"1\t2\t3\n", "1\t2\t3\t\n", "bad:8: expected ID and a count for each fold"},
        {"1\t2\t3\n", "\t2\t3\n", "bad:8: expected ID and a count for each fold"},
        {"1\t2\t3\n", "1\t0\t0\n", "bad:8: a row without a count"},
        {"1\t2\t3\n", "0\t0\t6\n", ""},
        {"4\t5\t0\t6\n", "9\t0\t6\n", ""},
        {"4\t5\t0\t6\n", "10\t0\t5\n", "bad:9: expected ID and a count for each fold"},
        {"4\t5\t0\t6\n", "1\t8\t6\n", "bad:9: ids are not ascending"},
        {"4\t5\t0\t6\n", "4\t18446744073709551615\t6\n", "bad:9: counts exceed 64 bits"},
        {"4\t5\t0\t6\n", "4\t18446744073709551616\t6\n", "bad:9: expected ID"},
        {"4\t5\t0\t6\n", "\n", "bad:9: empty line"},
        {"#end\t2", "#end\t3", "bad:10: #end does not agree"},
        {"\t21\n", "\t22\n", "bad:10: #end does not agree"},
        {"\t21\n", "\n", "bad:10: #end: expected"},
        {"\t21\n", "\t21\t\n", "bad:10: #end: expected"},
        {"\t2\t21\n", "\n", "bad:10: expected #domain or #end"},
        {"#end\t2\t21\n", "", "bad:10: expected #end, found the end: a cut file"},
        {"\t21\n", "\t21\n\n", "bad:11: not a count file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        counts c = {0};
        specrt_error err = {SPECRT_STATUS_OK, ""};
        const char *at = strstr(sample, rows[i].from);
        REQUIRE(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - sample), sample, rows[i].to,
                 at + strlen(rows[i].from));
        CHECK_INT(sl_counts_read_memory(&c, text, strlen(text), "bad", &err),
                  rows[i].wrong[0] ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK);
        CHECK_HAS(err.msg, rows[i].wrong);
        sl_counts_free(&c);
    }
}

/* A name longer than any buffer, in a file longer than what is read at once, and many rows. */
TEST(counts_long, "lines of any length") {
    enum { NAME = 100000, ROWS = 5008 }; /* types end where a page does */
    static counts_row rows[ROWS];
    counts a = {0}, b = {0};
    counts_domain many = {.name = (char *)(uintptr_t) "many",
                          .provenance = "raw",
                          .rows = rows,
                          .n_rows = ROWS,
                          .n_tokens = ROWS};
    size_t n, m;
    char *name = (char *)malloc(NAME + 1);
    memset(name, 'n', NAME);
    name[NAME] = '\0';
    vocab_fill(&a);
    add_document(&a, name, NULL);
    for (int32_t i = 0; i < ROWS; i++) rows[i] = (counts_row){i, 1, 1};
    CHECK_INT(sl_counts_add(&a, &many, NULL), SPECRT_STATUS_OK);
    a.vocab.n_vocab = ROWS;
    a.vocab.types = (uint8_t *)realloc(a.vocab.types, ROWS);
    memset(a.vocab.types + N_VOCAB, 0, ROWS - N_VOCAB);
    char *text = to_text(&a, &n);
    CHECK_INT(sl_counts_read_memory(&b, text, n, "a", NULL), SPECRT_STATUS_OK);
    char *again = to_text(&b, &m);
    CHECK_STR(again, text);
    text[n / 2] = '\0';
    refuse(text, n);
    free(name), free(text), free(again);
    sl_counts_free(&a);
    sl_counts_free(&b);
}

static void expect_refusal(const counts *a, const counts *b, const char *message) {
    size_t n_a, n_b;
    char *first = to_text(a, &n_a), *second = to_text(b, &n_b);
    counts c = {0};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(sl_counts_read_memory(&c, first, n_a, "a.txt", &err), SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_read_memory(&c, second, n_b, "b.txt", &err), SPECRT_STATUS_BAD_INPUT);
    if (!strstr(err.msg, message)) CHECK_STR(err.msg, message);
    sl_counts_free(&c);
    free(first);
    free(second);
}

TEST(counts_mismatch, "other tokenizers and options are refused by name") {
    counts a = {0}, b = {0};
    vocab_fill(&a);
    vocab_fill(&b);
    add_document(&a, "news", NULL);
    add_document(&b, "news", NULL);
    b.vocab.sha256[0] = 0x01;
    strcpy(b.vocab.name, "other");
    expect_refusal(&a, &b, "expected toy (abababab, 300 ids), found other (01ababab, 300 ids)");
    b.vocab.sha256[0] = 0xab;
    b.vocab.types[0] = COUNTS_SPECIAL;
    expect_refusal(&a, &b, "special tokens");
    b.vocab.types[0] = COUNTS_NORMAL;
    strcpy(b.options, "messages=all folds=4 seed=1");
    expect_refusal(&a, &b, "found 'messages=all folds=4 seed=1'");
    strcpy(b.options, a.options);
    strcpy(b.domains[0].provenance, "target");
    expect_refusal(
        &a, &b,
        "b.txt: domain 'news': expected provenance raw, as in the counts before, found target");
    sl_counts_free(&a);
    sl_counts_free(&b);
}

TEST(counts_names, "the kept name does not depend on the order") {
    counts a = {0}, b = {0};
    size_t n_a, n_b;
    vocab_fill(&a);
    vocab_fill(&b);
    strcpy(a.vocab.name, "toy (gguf)");
    strcpy(b.vocab.name, "toy (tiktoken)");
    char *first = to_text(&a, &n_a), *second = to_text(&b, &n_b);
    for (int order = 0; order < 2; order++) {
        counts c = {0};
        CHECK_INT(sl_counts_read_memory(&c, order ? first : second, order ? n_a : n_b, "x", NULL),
                  SPECRT_STATUS_OK);
        CHECK_INT(sl_counts_read_memory(&c, order ? second : first, order ? n_b : n_a, "y", NULL),
                  SPECRT_STATUS_OK);
        CHECK_STR(c.vocab.name, "toy (gguf)");
        sl_counts_free(&c);
    }
    free(first);
    free(second);
    sl_counts_free(&a);
    sl_counts_free(&b);
}

TEST(counts_packed, "packed files read like plain ones, and a cut one is refused") {
    counts c = {0};
    size_t n;
    vocab_fill(&c);
    random_state = 5;
    for (int i = 0; i < 30; i++) add_document(&c, "news", NULL);
    char *text = to_text(&c, &n);
    size_t bound = ZSTD_compressBound(n) + 64;
    uint8_t *packed[2] = {(uint8_t *)malloc(bound), (uint8_t *)malloc(bound)};
    size_t sizes[2] = {ZSTD_compress(packed[0], bound, text, n, 3), 0};
    z_stream z;
    memset(&z, 0, sizeof z);
    REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)n;
    z.next_out = packed[1];
    z.avail_out = (uInt)bound;
    REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
    sizes[1] = z.total_out;
    deflateEnd(&z);
    for (int i = 0; i < 2; i++) {
        counts in = {0}, cut = {0};
        CHECK_INT(sl_counts_read_memory(&in, packed[i], sizes[i], "packed", NULL),
                  SPECRT_STATUS_OK);
        CHECK_INT(sl_counts_n_tokens(&in), sl_counts_n_tokens(&c));
        CHECK(sl_counts_read_memory(&cut, packed[i], sizes[i] / 2, "cut", NULL) !=
              SPECRT_STATUS_OK);
        sl_counts_free(&in);
        sl_counts_free(&cut);
        free(packed[i]);
    }
    free(text);
    sl_counts_free(&c);
}

TEST(counts_overflow, "sums beyond 64 bits are an error") {
    counts c = {0};
    counts_row row = {.id = 1, .n = UINT64_MAX - 5};
    counts_domain d = {.name = (char *)(uintptr_t) "x",
                       .provenance = "raw",
                       .rows = &row,
                       .n_rows = 1,
                       .n_tokens = UINT64_MAX - 5};
    vocab_fill(&c);
    specrt_error err;
    CHECK_INT(sl_counts_add(&c, &d, &err), SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_add(&c, &d, &err), SPECRT_STATUS_BAD_INPUT);
    sl_counts_free(&c);
}

/* Folds drawn from records of known coverage: the interval contains the true share in about 95 of 100 draws,
 * and is as wide as a formula of its own says. */
TEST(counts_range, "the interval of coverage, against draws and by hand") {
    int n_inside = 0;
    random_state = 21;
    for (int draw = 0; draw < 1000; draw++) {
        double covered[10] = {0}, all[10] = {0}, n = 0;
        for (int record = 0; record < 200; record++) {
            int fold = (int)random_below(10), length = 20 + (int)random_below(200);
            /* Records differ: 70% to 90% covered. */
            int share = 70 + (int)random_below(21);
            for (int i = 0; i < length; i++) covered[fold] += random_below(100) < (uint32_t)share;
            all[fold] += length;
            n += length;
        }
        coverage_range range = sl_coverage_range(covered, all, 10, n);
        n_inside += range.low <= 0.8 && 0.8 <= range.high;
    }
    CHECK(n_inside >= 930 && n_inside <= 975);
    /* Two folds of 100, 80 and 90 covered: variance (5^2 + 5^2) / 200^2 x 2, n = 51, t = 12.706. */
    const double covered[] = {80, 0, 90}, all[] = {100, 0, 100}, whole[] = {100, 0, 100};
    coverage_range range = sl_coverage_range(covered, all, 3, 200);
    CHECK_NEAR(range.low, 0.174589, 1e-6);
    CHECK_NEAR(range.high, 0.993456, 1e-6);
    /* Nothing missed of 200 tokens, and one fold alone. */
    range = sl_coverage_range(whole, all, 3, 200);
    CHECK_NEAR(range.low, 1 / (1 + 12.706 * 12.706 / 200), 1e-12);
    CHECK_NEAR(range.high, 1, 0);
    range = sl_coverage_range(covered, all, 2, 200);
    CHECK(range.low != range.low && range.high != range.high);
}
