/* test_counts.c : count files add up exactly, in any order, and refuse what does not belong. */
#include "counts/counts.h"
#include "test.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { N_VOCAB = 300 };

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
    strcpy(c->options, "messages=assistant holdout=0.05 seed=1");
}

/* A document of random ids, added to `c` and to the dense oracle. */
static void add_document(counts *c, const char *domain, uint64_t dense[COUNTS_SPLITS][N_VOCAB]) {
    counts_domain d = {.name = (char *)(uintptr_t)domain, .n_docs = 1, .n_bytes = 100};
    counts_row rows[N_VOCAB];
    int split = random_below(4) == 0;
    strcpy(d.provenance, "raw");
    d.rows = rows;
    d.digest = random_below(1u << 30) * 0x9e3779b97f4a7c15u;
    d.n_completions[split] = 1;
    for (int32_t id = (int32_t)random_below(20); id < 290; id += 1 + (int32_t)random_below(60)) {
        counts_row row = {.id = id};
        row.n[split] = 1 + random_below(1000);
        d.n_tokens[split] += row.n[split];
        if (dense) dense[split][id] += row.n[split];
        rows[d.n_rows++] = row;
    }
    CHECK_INT(sl_counts_add(c, &d, NULL), SPECRT_STATUS_OK);
}

/* The bytes of a count file, owned. */
static char *to_text(const counts *c, size_t *n) {
    char path[] = "/tmp/specrt-counts-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    out_file out;
    REQUIRE(sl_out_open(&out, path, true, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_write(c, &out, NULL), SPECRT_STATUS_OK);
    CHECK_INT(sl_out_commit(&out, NULL), SPECRT_STATUS_OK);
    file_view view;
    REQUIRE(sl_file_map(path, &view, NULL) == SPECRT_STATUS_OK);
    char *text = (char *)calloc(view.n + 1, 1);
    memcpy(text, view.bytes, *n = view.n);
    sl_file_unmap(&view);
    unlink(path);
    return text;
}

static void check_dense(const counts_domain *d, uint64_t dense[COUNTS_SPLITS][N_VOCAB]) {
    uint64_t sums[COUNTS_SPLITS] = {0};
    for (int s = 0; s < COUNTS_SPLITS; s++)
        for (int id = 0; id < N_VOCAB; id++) sums[s] += dense[s][id];
    for (int s = 0; s < COUNTS_SPLITS; s++) CHECK_INT(d->n_tokens[s], sums[s]);
    for (int32_t i = 0; i < d->n_rows; i++)
        for (int s = 0; s < COUNTS_SPLITS; s++) {
            CHECK_INT(d->rows[i].n[s], dense[s][d->rows[i].id]);
            dense[s][d->rows[i].id] = 0;
        }
    for (int id = 0; id < N_VOCAB; id++) CHECK(dense[0][id] == 0 && dense[1][id] == 0);
}

static void test_add(void) {
    static uint64_t dense[COUNTS_SPLITS][N_VOCAB];
    counts c = {0};
    memset(dense, 0, sizeof dense);
    random_state = 1;
    vocab_fill(&c);
    for (int i = 0; i < 50; i++) add_document(&c, "news", dense);
    REQUIRE(c.n_domains == 1);
    CHECK_INT(c.domains[0].n_docs, 50);
    CHECK_INT(c.domains[0].n_completions[0] + c.domains[0].n_completions[1], 50);
    check_dense(&c.domains[0], dense);
    sl_counts_free(&c);
}

/* Three shards of the same documents, concatenated in every order, give the bytes of one run. */
static void test_merge_is_exact(void) {
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

/* Every cut of a file is refused, and so are every changed digit and ranges of ids that are none. */
static void test_damage(void) {
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
    static const char *const ranges[] = {"299-293", "293-300", "293-29x"};
    for (int i = 0; i < 3; i++) {
        memcpy(strstr(text, i ? ranges[i - 1] : "293-299"), ranges[i], 7);
        refuse(text, n);
    }
    free(text);
    sl_counts_free(&c);
}

/* Rows out of order, and an id beyond the vocabulary, where the sum of all numbers is right. */
static void test_rows(void) {
    counts c = {0};
    size_t n;
    int id, n_calibration, n_holdout;
    char changed[8192];
    vocab_fill(&c);
    random_state = 3;
    for (int i = 0; i < 5; i++) add_document(&c, "news", NULL);
    char *text = to_text(&c, &n), *end = strstr(text, "#end"), *last = end - 1;
    while (last[-1] != '\n') last--;
    char *row = last - 1;
    while (row[-1] != '\n') row--;
    n = (size_t)snprintf(changed, sizeof changed, "%.*s%.*s%.*s%s", (int)(row - text), text,
                         (int)(end - last), last, (int)(last - row), row, end);
    refuse(changed, n);
    REQUIRE(sscanf(last, "%d %d %d", &id, &n_calibration, &n_holdout) == 3);
    *(n_holdout ? &n_holdout : &n_calibration) -= N_VOCAB - id;
    n = (size_t)snprintf(changed, sizeof changed, "%.*s%d\t%d\t%d\n%s", (int)(last - text), text,
                         N_VOCAB, n_calibration, n_holdout, end);
    refuse(changed, n);
    free(text);
    sl_counts_free(&c);
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

static void test_mismatch(void) {
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
    strcpy(b.options, "messages=all holdout=0.05 seed=1");
    expect_refusal(&a, &b, "found 'messages=all holdout=0.05 seed=1'");
    strcpy(b.options, a.options);
    strcpy(b.domains[0].provenance, "target");
    expect_refusal(
        &a, &b,
        "b.txt: domain 'news': expected provenance raw, as in the counts before, found target");
    sl_counts_free(&a);
    sl_counts_free(&b);
}

/* The same tokens under another name (GGUF, tiktoken): either order gives one name. */
static void test_names(void) {
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

/* Packed files read like plain ones, and a cut one is refused. */
static void test_packed(void) {
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

static void test_overflow(void) {
    counts c = {0};
    counts_row row = {.id = 1, .n = {UINT64_MAX - 5, 0}};
    counts_domain d = {.name = (char *)(uintptr_t) "x",
                       .provenance = "raw",
                       .rows = &row,
                       .n_rows = 1,
                       .n_tokens = {UINT64_MAX - 5, 0}};
    vocab_fill(&c);
    specrt_error err;
    CHECK_INT(sl_counts_add(&c, &d, &err), SPECRT_STATUS_OK);
    CHECK_INT(sl_counts_add(&c, &d, &err), SPECRT_STATUS_BAD_INPUT);
    sl_counts_free(&c);
}

static const test_case cases[] = {
    {"counts_add", "sums equal a dense oracle", test_add},
    {"counts_merge", "shards in any order give the bytes of one run", test_merge_is_exact},
    {"counts_damage", "cut files and changed numbers are refused", test_damage},
    {"counts_rows", "rows that are none, with the right sum, are refused", test_rows},
    {"counts_mismatch", "other tokenizers and options are refused by name", test_mismatch},
    {"counts_names", "the kept name does not depend on the order", test_names},
    {"counts_packed", ".gz and .zst count files", test_packed},
    {"counts_overflow", "sums beyond 64 bits are an error", test_overflow},
};
TEST_MAIN(cases)
