/* test_pairs.c : counts of pairs and the graph made of them, against brute force over the same ids. */
#include "starve.h"
#include "opened.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "counts/pairs_impl.h"

#include "tools/cograph-build/graph.h"

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Few ids are frequent, and what follows depends on what stands before. */
static int32_t random_id(int32_t before, int32_t n_vocab) {
    uint32_t rare = random_below((uint32_t)n_vocab), few = random_below(12);
    if (random_below(40) == 0) return n_vocab; /* a boundary */
    return random_below(3)
               ? (int32_t)((uint32_t)(before * 7 + 1 + (int32_t)few) % (uint32_t)n_vocab)
               : (int32_t)rare;
}

typedef struct text {
    int32_t *ids;
    size_t n;
    int32_t n_vocab;
} text;

static text make_text(int32_t n_vocab, size_t n) {
    text t = {(int32_t *)malloc((n + 1) * sizeof(int32_t)), n, n_vocab};
    for (size_t i = 0; i < n; i++) t.ids[i] = random_id(i ? t.ids[i - 1] : 0, n_vocab);
    return t;
}

static uint64_t *count_dense(const text *t) {
    size_t v = (size_t)t->n_vocab;
    uint64_t *dense = (uint64_t *)calloc(v * v, sizeof *dense);
    for (size_t i = 0; i + 1 < t->n; i++)
        if (t->ids[i] < t->n_vocab && t->ids[i + 1] < t->n_vocab)
            dense[(size_t)t->ids[i] * v + (size_t)t->ids[i + 1]]++;
    return dense;
}

/* A part of a text in blocks of `block` tokens, each block a run. The last token of a block is repeated
 * at the start of the next, so that no pair is lost or counted twice. */
static void count_part(pairs *p, const text *t, size_t begin, size_t end, size_t block) {
    pairs_counter *c;
    REQUIRE(sl_pairs_counter_create(p, &c, NULL) == SPECRT_STATUS_OK);
    id_list *tokens = sl_pairs_counter_tokens(c);
    for (size_t at = begin; at < end; at += block) {
        size_t n = end - at < block ? end - at : block;
        n += at + n < t->n;
        memcpy(tokens->ids, t->ids + at, n * sizeof *t->ids);
        tokens->n = n;
        REQUIRE(sl_pairs_counter_flush(c, NULL) == SPECRT_STATUS_OK);
    }
    sl_pairs_counter_free(c);
}

typedef struct collected {
    uint64_t *dense;
    int32_t n_vocab, last;
} collected;

static specrt_status collect_take(void *arg, const pairs_row *row, pairs_bytes *out,
                                  specrt_error *err) {
    uint8_t *at;
    (void)arg, (void)err;
    size_t n = sizeof(int32_t) * 2 + (size_t)row->n * 16;
    REQUIRE(sl_pairs_bytes_more(out, n, &at));
    memcpy(at, &row->source, 4);
    memcpy(at + 4, &row->n, 4);
    for (int32_t i = 0; i < row->n; i++) {
        int64_t id = row->ids[i];
        memcpy(at + 8 + 16 * i, &id, 8);
        memcpy(at + 16 + 16 * i, &row->counts[i], 8);
    }
    out->n += n;
    return SPECRT_STATUS_OK;
}

static specrt_status collect_put(void *arg, const void *bytes, size_t n, specrt_error *err) {
    collected *c = (collected *)arg;
    const uint8_t *p = (const uint8_t *)bytes, *end = p + n;
    (void)err;
    while (p < end) {
        int32_t head[2];
        memcpy(head, p, 8);
        CHECK(head[0] > c->last);
        c->last = head[0];
        p += 8;
        for (int32_t i = 0; i < head[1]; i++, p += 16) {
            uint64_t entry[2];
            memcpy(entry, p, 16);
            c->dense[(size_t)head[0] * (size_t)c->n_vocab + entry[0]] = entry[1];
        }
    }
    return SPECRT_STATUS_OK;
}

static void check_store(pairs *p, const text *t, int threads) {
    size_t v = (size_t)t->n_vocab;
    uint64_t *expected = count_dense(t);
    collected c = {(uint64_t *)calloc(v * v, sizeof(uint64_t)), t->n_vocab, -1};
    CHECK_INT(sl_pairs_each(p, threads, collect_take, collect_put, &c, NULL), SPECRT_STATUS_OK);
    CHECK(memcmp(expected, c.dense, v * v * sizeof *expected) == 0);
    free(expected);
    free(c.dense);
}

TEST(counts, "runs of many blocks, merged on several threads") {
    static const int32_t vocabs[] = {2, 63, 64, 1025, 2500};
    for (int i = 0; i < 5; i++) {
        random_state = (uint64_t)i + 1;
        text t = make_text(vocabs[i], 60000);
        pairs *p;
        REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
        count_part(p, &t, 0, t.n, 7000);
        check_store(p, &t, 1);
        check_store(p, &t, 3);
        sl_pairs_free(p);
        free(t.ids);
    }
}

TEST(spilling, "so little memory that runs go to disk again and again, and are merged there") {
    random_state = 7;
    text t = make_text(3000, 900000);
    pairs *p;
    REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, "/tmp", &p, NULL) == SPECRT_STATUS_OK);
    sl_pairs_limit(p, 40000);
    count_part(p, &t, 0, t.n, 9000);
    check_store(p, &t, 1);
    check_store(p, &t, 2);
    sl_pairs_free(p);
    free(t.ids);
}

TEST(no_disk, "a temporary file that cannot be made") {
    random_state = 8;
    text t = make_text(500, 60000);
    pairs *p;
    pairs_counter *c;
    specrt_error err;
    REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, "/nonexistent", &p, NULL) == SPECRT_STATUS_OK);
    sl_pairs_limit(p, 1000);
    REQUIRE(sl_pairs_counter_create(p, &c, NULL) == SPECRT_STATUS_OK);
    memcpy(sl_pairs_counter_tokens(c)->ids, t.ids, t.n * sizeof *t.ids);
    sl_pairs_counter_tokens(c)->n = t.n;
    CHECK_INT(sl_pairs_counter_flush(c, &err), SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "/nonexistent: cannot create a temporary file: No such file or directory");
    sl_pairs_counter_free(c);
    sl_pairs_free(p);
    free(t.ids);
}

TEST(cut_spill, "who cuts the file of spilled runs is found out") {
    random_state = 12;
    text t = make_text(300, 50000);
    pairs *p;
    specrt_error err;
    REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, "/tmp", &p, NULL) == SPECRT_STATUS_OK);
    sl_pairs_limit(p, 1000);
    count_part(p, &t, 0, t.n, 30000);
    REQUIRE(p->fd >= 0 && ftruncate(p->fd, 5000) == 0);
    errno = EINTR;
    CHECK_INT(sl_pairs_each(p, 1, collect_take, collect_put, NULL, &err), SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "/tmp: cannot read back pairs: the file ends early");
    sl_pairs_free(p);
    free(t.ids);
}

TEST(blocks, "two tokens are a pair; a counter counts when its block is full") {
    text t = {(int32_t[]){3, 1}, 2, 5};
    pairs *p;
    pairs_counter *c;
    REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    REQUIRE(sl_pairs_counter_create(p, &c, NULL) == SPECRT_STATUS_OK);
    id_list *tokens = sl_pairs_counter_tokens(c);
    size_t most = tokens->capacity;
    CHECK(most * 12 <= PAIRS_MIN_MEMORY && most * 12 > PAIRS_MIN_MEMORY / 4);
    memcpy(tokens->ids, t.ids, sizeof *t.ids), tokens->n = 1;
    CHECK_INT(sl_pairs_counter_flush(c, NULL), SPECRT_STATUS_OK);
    CHECK_INT(p->n_runs, 0);
    memcpy(tokens->ids, t.ids, 2 * sizeof *t.ids), tokens->n = 2;
    CHECK_INT(sl_pairs_counter_flush(c, NULL), SPECRT_STATUS_OK);
    CHECK_INT(tokens->n, 0);
    check_store(p, &t, 1);
    for (tokens->n = 0; tokens->n < most; tokens->n++) tokens->ids[tokens->n] = t.n_vocab;
    tokens->n = most / 2;
    CHECK_INT(sl_pairs_counter_check(c, NULL), SPECRT_STATUS_OK);
    CHECK_INT(tokens->n, most / 2);
    tokens->n = most;
    CHECK_INT(sl_pairs_counter_check(c, NULL), SPECRT_STATUS_OK);
    CHECK_INT(tokens->n, 0);
    check_store(p, &t, 1);
    sl_pairs_counter_free(c);
    sl_pairs_free(p);
}

/* ---- count files ---- */

static pairs_header some_header(const text *t, uint64_t n_tokens) {
    pairs_header h = {.n_vocab = t->n_vocab, .n_normal = t->n_vocab, .n_tokens = n_tokens};
    h.n_docs = 2, h.digest = UINT64_MAX / 3 * 2;
    strcpy(h.name, "toy");
    strcpy(h.options, "messages=assistant");
    return h;
}

static uint8_t *file_of(pairs *p, const pairs_header *h, size_t *n) {
    char *bytes;
    out_file out = {.f = open_memstream(&bytes, n), .path = (char *)(uintptr_t) "memory"};
    REQUIRE(out.f);
    CHECK_INT(sl_pairs_write(p, 2, h, &out, NULL), SPECRT_STATUS_OK);
    fclose(out.f);
    return (uint8_t *)bytes;
}

static uint8_t *file_of_part(const text *t, size_t begin, size_t end, size_t *n) {
    pairs *p;
    pairs_header h = some_header(t, end - begin);
    REQUIRE(sl_pairs_create(t->n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    count_part(p, t, begin, end, 5000);
    uint8_t *bytes = file_of(p, &h, n);
    sl_pairs_free(p);
    return bytes;
}

TEST(merge, "count files of parts in any order give the file of the whole") {
    random_state = 9;
    text t = make_text(1500, 40000);
    size_t n_whole, n[3], cuts[4] = {0, 11111, 30000, 40000};
    uint8_t *whole = file_of_part(&t, 0, t.n, &n_whole), *parts[3];
    for (int i = 0; i < 3; i++) parts[i] = file_of_part(&t, cuts[i], cuts[i + 1], &n[i]);
    static const int orders[3][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (int o = 0; o < 3; o++) {
        pairs *p;
        pairs_header sum = {0};
        size_t n_merged;
        REQUIRE(sl_pairs_create(0, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
        for (int i = 0; i < 3; i++)
            CHECK_INT(
                sl_pairs_read_memory(p, &sum, parts[orders[o][i]], n[orders[o][i]], "x", NULL),
                SPECRT_STATUS_OK);
        CHECK_INT(sum.n_docs, 6);
        CHECK(sum.digest == UINT64_MAX / 3 * 2 * 3);
        sum.n_docs = 2, sum.digest = UINT64_MAX / 3 * 2;
        uint8_t *merged = file_of(p, &sum, &n_merged);
        CHECK(n_merged == n_whole && memcmp(merged, whole, n_whole) == 0);
        check_store(p, &t, 1);
        free(merged);
        sl_pairs_free(p);
    }
    for (int i = 0; i < 3; i++) free(parts[i]);
    free(whole);
    free(t.ids);
}

TEST(damage, "any cut, and any changed byte behind the names, is seen") {
    specrt_error err;
    random_state = 10;
    text t = make_text(60, 400);
    size_t n;
    uint8_t *bytes = file_of_part(&t, 0, t.n, &n);
    for (size_t i = 0; i < n; i++) {
        pairs *p;
        pairs_header h = {0};
        REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(sl_pairs_read_memory(p, &h, bytes, i, "cut", NULL), SPECRT_STATUS_BAD_INPUT);
        bytes[i] ^= 0x10;
        h = (pairs_header){0};
        CHECK_INT(sl_pairs_read_memory(p, &h, bytes, n, "flip", &err), SPECRT_STATUS_BAD_INPUT);
        if (i == 19) CHECK_STR(err.msg, "flip: offset 404: n_vocab or n_normal is out of range");
        bytes[i] ^= 0x10;
        sl_pairs_free(p);
    }
    free(bytes);
    free(t.ids);
}

static void check_file(uint8_t *bytes, size_t n, const char *wrong) {
    pairs *p;
    pairs_header h = {0};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    REQUIRE(sl_pairs_create(0, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(sl_pairs_read_memory(p, &h, bytes, n, "x", &err),
              wrong ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK);
    CHECK_HAS(err.msg, wrong ? wrong : "");
    sl_pairs_free(p);
}

TEST(headers, "the bytes of a header with one field changed") {
    static const struct {
        int at;
        int32_t value;
        const char *wrong;
    } rows[] = {
        {8, 2, "its version is not 1"},
        {12, 0, "n_vocab or n_normal is out of range"},
        {12, COUNTS_MAX_VOCAB + 1, "n_vocab or n_normal is out of range"},
        {12, COUNTS_MAX_VOCAB, "ascending ids"}, /* only the rows are wrong */
        {16, -1, "n_vocab or n_normal is out of range"},
        {16, 61, "n_vocab or n_normal is out of range"},
        {16, 0, "its sums do not agree"},
        {0, 0, "not a count file of pairs"},
    };
    random_state = 10;
    text t = make_text(60, 400);
    size_t n;
    uint8_t *bytes = file_of_part(&t, 0, t.n, &n), kept[404];
    memcpy(kept, bytes, sizeof kept);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memcpy(bytes + rows[i].at, &rows[i].value, 4);
        check_file(bytes, n, rows[i].wrong);
        memcpy(bytes, kept, sizeof kept);
    }
    memset(bytes + 52, 'x', 64);
    check_file(bytes, n, "a text does not end");
    memcpy(bytes, kept, sizeof kept);
    memset(bytes + 116, 'x', 256);
    check_file(bytes, n, "a text does not end");
    memcpy(bytes, kept, sizeof kept);
    check_file(bytes, 0, "empty; expected a count file of pairs");
    check_file(bytes, 7, "not a count file of pairs");
    check_file(bytes, 403, "the file is cut in its header");
    check_file(bytes, n, NULL);
    free(bytes);
    free(t.ids);
}

TEST(rows, "rows by hand over 5 ids, each with sums that are right") {
    static const struct {
        uint8_t bytes[24];
        size_t n;
        uint64_t n_rows, sum, n_tokens;
        const char *wrong;
    } rows[] = {
        {{0, 2, 1, 7, 4, 1, 4, 1, 5, 1}, 10, 2, 9, 9, NULL},
        {{0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
         13,
         1,
         UINT64_MAX,
         UINT64_MAX,
         NULL},
        {{0, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 12, 1, 5, 9, NULL},
        {{0, 1, 0, 1}, 4, 1, 1, 9, "successors are not ascending ids"},
        {{0, 1, 6, 1}, 4, 1, 1, 9, "successors are not ascending ids"},
        {{0, 2, 1, 1, 5, 1}, 6, 1, 2, 9, "successors are not ascending ids"},
        {{0, 1, 1, 0}, 4, 1, 0, 9, "a count of 0"},
        {{6, 1, 1, 1}, 4, 1, 1, 9, "sources are not ascending ids"},
        {{1, 1, 1, 1, 1, 1, 1, 1}, 8, 2, 2, 9, "sources are not ascending ids"},
        {{2, 0}, 2, 1, 0, 9, "a row of no or too many successors"},
        {{2, 6}, 2, 1, 0, 9, "a row of no or too many successors"},
        {{0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2},
         13,
         1,
         1,
         9,
         "a number exceeds 64 bits"},
        {{0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 1, 1, 1},
         17,
         2,
         0,
         9,
         "counts exceed 64 bits"},
        {{0, 1, 1, 2}, 4, 2, 2, 9, "its sums do not agree"},
        {{0, 1, 1, 2}, 4, 1, 3, 9, "its sums do not agree"},
        {{0, 1, 1, 2}, 4, 1, 2, 1, "more pairs than tokens"},
        {{0, 1, 1, 2}, 4, 1, 2, 2, NULL},
    };
    const text none = {(int32_t[]){0}, 0, 5};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n, at = 404 + rows[i].n, start = 0;
        uint8_t *empty = file_of_part(&none, 0, 0, &n), file[500];
        memcpy(file, empty, 404);
        memcpy(file + 372, &rows[i].n_tokens, 8);
        memcpy(file + 404, rows[i].bytes, rows[i].n);
        uint64_t sums[3] = {rows[i].n_rows, rows[i].sum, specrt_hash64(file, 404, 0)};
        if (i == 0) start = 6, sums[2] = specrt_hash64(file + 404, start, sums[2]);
        sums[2] = specrt_hash64(file + 404 + start, rows[i].n - start, sums[2]);
        file[at] = 5;
        memcpy(file + at + 1, sums, sizeof sums);
        check_file(file, at + 1 + sizeof sums, rows[i].wrong);
        free(empty);
    }
}

TEST(mismatch, "other tokenizers, options, overflow") {
    pairs_header a = {.n_vocab = 10}, b = {.n_vocab = 11};
    specrt_error err;
    strcpy(a.name, "one"), strcpy(b.name, "two");
    CHECK_INT(sl_pairs_header_add(&a, &b, "f", &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg,
              "f: pairs of another tokenizer; expected one with 10 ids, found two with 11");
    b.n_vocab = 10;
    strcpy(b.options, "messages=all");
    CHECK_INT(sl_pairs_header_add(&a, &b, "f", &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "f: counted with other options; expected '', found 'messages=all'");
    strcpy(a.options, "messages=all");
    a.n_tokens = b.n_tokens = UINT64_MAX / 2 + 1;
    CHECK_INT(sl_pairs_header_add(&a, &b, "f", &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "f: counts exceed 64 bits");
}

/* ---- the graph ---- */

/* Row u by brute force: every other successor that beats an edge comes before it. */
static void check_row(const graph *g, const uint64_t *dense, const graph_rule *rule, int32_t u) {
    size_t v = (size_t)g->header.n_vocab;
    const uint64_t *row = dense + (size_t)u * v;
    uint64_t total = 0;
    int32_t n_wanted = 0, n = (int32_t)(g->offsets[u + 1] - g->offsets[u]), n_rule = 0;
    for (size_t i = 0; i < v; i++) total += row[i], n_wanted += row[i] >= (uint64_t)rule->min_count;
    CHECK(total == g->totals[u]);
    CHECK_INT(n, n_wanted < rule->max_degree ? n_wanted : rule->max_degree);
    for (int32_t k = 0; k < n; k++) {
        int32_t id = g->ids[g->offsets[u] + (uint32_t)k], place = 0;
        for (int32_t i = 0; i < (int32_t)v; i++)
            place += row[i] > row[id] || (row[i] == row[id] && i < id);
        CHECK_INT(place, k);
        CHECK((uint64_t)g->counts[g->offsets[u] + (uint32_t)k] == row[id]);
        n_rule += row[id] >= (uint64_t)rule->rule_count && k < rule->rule_degree &&
                  (double)row[id] / (double)total >= rule->rule_share;
    }
    CHECK_INT(g->n_rule[u], n_rule);
}

/* What the likeliest k successors of each token cover, and how many they are, by brute force. */
static void check_share(const graph *g, int32_t k) {
    double covered = 0, rows = 0, found_rows, total = (double)g->header.n_pairs;
    for (int32_t u = 0; u < g->header.n_vocab; u++)
        for (uint32_t i = g->offsets[u]; i < g->offsets[u + 1] && i - g->offsets[u] < (uint32_t)k;
             i++) {
            covered += (double)g->counts[i];
            rows += (double)g->totals[u] / total;
        }
    CHECK_NEAR(graph_share(g, k, &found_rows), covered / total, 1e-12);
    CHECK_NEAR(found_rows, rows, 1e-9);
}

/* The section, as the runtime reads it. */
static void check_bytes(const graph *g) {
    size_t n, n_bundle, v = (size_t)g->header.n_vocab, e = (size_t)g->header.n_edges;
    void *bytes = graph_bytes(g, &n);
    const fixture_section part = {"cograph", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, bytes, n, n};
    uint8_t *all = fixture_bundle(&part, 1, &n_bundle);
    specrt_cograph view;
    specrt_bundle *bundle = open_memory(all, n_bundle);
    REQUIRE(!specrt_bundle_cograph(bundle, &view, NULL));
    CHECK(memcmp(view.header, &g->header, sizeof g->header) == 0);
    CHECK(memcmp(view.totals, g->totals, 8 * v) == 0);
    CHECK(memcmp(view.offsets, g->offsets, 4 * (v + 1)) == 0);
    CHECK(memcmp(view.n_rule, g->n_rule, 4 * v) == 0);
    CHECK(memcmp(view.ids, g->ids, 4 * e) == 0 && memcmp(view.counts, g->counts, 4 * e) == 0);
    specrt_bundle_close(bundle);
    free(all);
    free(bytes);
}

TEST(graph, "rows, order, cuts and EvoSpec's rule") {
    static const graph_rule rules[] = {
        {1000, 1, 64, 5, 1e-4}, {7, 2, 3, 4, 0.05}, {64, 5, 64, 5, 0}, {1, 1, 1, 1, 1}};
    random_state = 11;
    text t = make_text(300, 80000);
    for (size_t i = 0; i < 4000; i++) t.ids[i] = i % 2 ? 7 : 5; /* counts above SMALL_COUNTS */
    uint64_t *dense = count_dense(&t);
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        pairs *p;
        graph g;
        REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
        count_part(p, &t, 0, t.n, 30000);
        REQUIRE(graph_create(p, 2, &rules[r], t.n_vocab, t.n, &g, NULL) == SPECRT_STATUS_OK);
        for (int32_t u = 0; u < t.n_vocab; u++) check_row(&g, dense, &rules[r], u);
        for (int32_t k = 1; k < 300; k *= 3) check_share(&g, k);
        check_bytes(&g);
        graph_free(&g);
        sl_pairs_free(p);
    }
    free(dense);
    free(t.ids);
}

/* Counts that f32 cannot tell apart: ties go to the lower id, as where they are equal. */
TEST(large_counts, "ties of counts in f32") {
    text t = {(int32_t[]){5, 9, 6, 5, 3, 6}, 6, 6 + 4};
    const graph_rule rule = {10, 1, 64, 5, 1e-4};
    pairs *p;
    graph g;
    REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    count_part(p, &t, 0, 6, 10);
    for (int i = 0; i < 25; i++) { /* twice as many each time */
        pairs_header h = some_header(&t, 1 << 30), sum = {0};
        size_t n;
        uint8_t *bytes = file_of(p, &h, &n);
        sl_pairs_free(p);
        REQUIRE(sl_pairs_create(t.n_vocab, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
        for (int k = 0; k < 2; k++) REQUIRE(!sl_pairs_read_memory(p, &sum, bytes, n, "x", NULL));
        free(bytes);
    }
    count_part(p, &t, 0, 2, 10); /* once more 5 9 */
    REQUIRE(graph_create(p, 1, &rule, t.n_vocab, 6, &g, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(g.offsets[6] - g.offsets[5], 2);
    CHECK_INT(g.ids[g.offsets[5]], 3);
    CHECK_INT(g.ids[g.offsets[5] + 1], 9);
    CHECK_INT(g.totals[5], (2 << 25) + 1);
    graph_free(&g);
    sl_pairs_free(p);
}

static int graph_all(void *arg) {
    const graph_rule rule = {10, 1, 64, 5, 1e-4};
    graph g;
    size_t n;
    specrt_status status = graph_create((pairs *)arg, 1, &rule, 300, 4000, &g, NULL);
    void *bytes = status ? NULL : graph_bytes(&g, &n);
    if (!status && !bytes) status = SPECRT_STATUS_NO_MEMORY;
    free(bytes);
    graph_free(&g);
    return status;
}

TEST(no_memory, "every allocation of a graph that fails") {
    text t = make_text(300, 4000);
    pairs *p;
    REQUIRE(sl_pairs_create(300, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    count_part(p, &t, 0, t.n, 5000);
    test_starve(graph_all, p, SPECRT_STATUS_NO_MEMORY);
    sl_pairs_free(p);
    free(t.ids);
}

TEST(nothing_left, "no pairs, no edges") {
    const graph_rule rule = {10, 3, 64, 5, 1e-4};
    text t = {(int32_t[]){1, 2, 1, 2}, 4, 5};
    pairs *p;
    graph g;
    specrt_error err;
    REQUIRE(sl_pairs_create(5, 0, 1, ".", &p, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(graph_create(p, 1, &rule, 5, 0, &g, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected at least two adjacent tokens, found none");
    graph_free(&g);
    count_part(p, &t, 0, 4, 10);
    CHECK_INT(graph_create(p, 1, &rule, 5, 4, &g, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected an edge, found that none of 3 pairs occurs 3 times");
    graph_free(&g);
    sl_pairs_free(p);
}
