/* test_trace.c : what was written is read, up to any cut; damage is found and named. */
#include <stdbool.h>
#include "specrt_tools.h"
#include "fixture.h"
#include "test.h"

enum { V = 5000, D_TARGET = 33, D_DRAFT = 17, TOP = 10, DRAFT_TOP = 64, TREE_TOP = 3, MOST = 40 };

static const int32_t ends[] = {7, 4999};
static const int32_t ends_of_old[] = {7, 9};
static const specrt_trace_info info = {.tokenizer_sha256 = {1, 2, 3},
                                       .n_vocab = V,
                                       .d_target = D_TARGET,
                                       .d_draft = D_DRAFT,
                                       .n_top = TOP,
                                       .n_draft_top = DRAFT_TOP,
                                       .n_tree_top = TREE_TOP,
                                       .policy = "static:100+window:3072",
                                       .tree = {6, 10, 60},
                                       .draft = SPECRT_DRAFT_TOP_K,
                                       .temperature = 0.5f,
                                       .n_ids = 4990,
                                       .n_terminators = 2,
                                       .terminators = ends};

typedef struct bytes {
    uint8_t *p;
    size_t n, capacity;
    int left; /* calls until it fails; 0: never */
} bytes;

static int append(void *user, const void *data, size_t n) {
    bytes *b = (bytes *)user;
    if (b->left > 0 && --b->left == 0) return 1;
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->p = (uint8_t *)realloc(b->p, b->capacity);
    }
    memcpy(b->p + b->n, data, n);
    b->n += n;
    return 0;
}

/* The arrays of one record. */
typedef struct content {
    specrt_trace_record r;
    int32_t tokens[MOST], nodes[MOST], tree_tokens[64], tree_parents[64];
    float tree_logprobs[64], top_logits[MOST * TOP], logsumexp[MOST],
        draft_logits[MOST * DRAFT_TOP];
    uint16_t target_hidden[MOST * D_TARGET], draft_hidden[MOST * D_DRAFT], prompt_hidden[D_TARGET];
    int32_t top_ids[MOST * TOP], draft_ids[MOST * DRAFT_TOP], tree_top_ids[64 * TREE_TOP];
    float draft_logsumexp[MOST];
} content;

static void fill_ids(int32_t *ids, int n, int32_t below, uint64_t *state) {
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(fixture_random(state) % (uint64_t)below);
}

static void fill_reals(float *x, int n, uint64_t *state) {
    for (int i = 0; i < n; i++) x[i] = fixture_normal(state);
}

/* Record number i: every fifth begins a sequence, and which arrays there are changes. */
static void make(int i, content *c) {
    uint64_t state = (uint64_t)i * 77 + 5;
    specrt_trace_record *r = &c->r;
    memset(c, 0, sizeof *c);
    bool cycle = i % 5 != 0;
    r->kind = cycle ? SPECRT_TRACE_CYCLE : SPECRT_TRACE_SEQUENCE;
    r->n = 1 + (int32_t)(fixture_random(&state) % 7);
    r->n_nodes = cycle ? r->n + (int32_t)(fixture_random(&state) % 50) : 0;
    if (!cycle) snprintf(r->domain, sizeof r->domain, "domain %d", i);
    fill_ids(c->tokens, MOST, V, &state);
    fill_ids(c->tree_tokens, 64, V, &state);
    fill_ids(c->top_ids, MOST * TOP, V, &state);
    fill_ids(c->draft_ids, MOST * DRAFT_TOP, V, &state);
    fill_ids(c->tree_top_ids, 64 * TREE_TOP, V, &state);
    for (int k = 0; k < MOST; k++) c->nodes[k] = k;
    for (int k = 0; k < 64; k++) c->tree_parents[k] = k - 1;
    fill_reals(c->tree_logprobs, 64, &state);
    fill_reals(c->top_logits, MOST * TOP, &state);
    fill_reals(c->logsumexp, MOST, &state);
    fill_reals(c->draft_logits, MOST * DRAFT_TOP, &state);
    fill_reals(c->draft_logsumexp, MOST, &state);
    for (int k = 0; k < MOST * D_TARGET; k++)
        c->target_hidden[k] = (uint16_t)fixture_random(&state);
    for (int k = 0; k < MOST * D_DRAFT; k++) c->draft_hidden[k] = (uint16_t)fixture_random(&state);
    r->tokens = c->tokens;
    if (cycle) {
        r->nodes = c->nodes;
        r->tree_tokens = c->tree_tokens;
        r->tree_parents = c->tree_parents;
        r->tree_logprobs = c->tree_logprobs;
    }
    if (i % 3) r->target_hidden = c->target_hidden, r->top_ids = c->top_ids;
    if (i % 2) r->top_logits = c->top_logits, r->top_logsumexp = c->logsumexp;
    if (i % 7) r->draft_hidden = c->draft_hidden;
    if (i % 4) r->draft_ids = c->draft_ids, r->draft_logits = c->draft_logits;
    if (i % 6) r->draft_logsumexp = c->draft_logsumexp;
    if (cycle && i % 8) r->tree_top_ids = c->tree_top_ids;
    memcpy(c->prompt_hidden, c->target_hidden, sizeof c->prompt_hidden);
    if (!cycle && i % 2) r->prompt_hidden = c->prompt_hidden;
}

static bool same(const void *a, const void *b, size_t n) {
    return (a == NULL) == (b == NULL) && (!a || memcmp(a, b, n) == 0);
}

static bool same_record(const specrt_trace_info *of, const specrt_trace_record *a,
                        const specrt_trace_record *b) {
    size_t n = (size_t)a->n, m = (size_t)a->n_nodes, top = n * (size_t)of->n_top;
    size_t d_target = (size_t)of->d_target, draft_top = n * (size_t)of->n_draft_top;
    return a->kind == b->kind && a->n == b->n && a->n_nodes == b->n_nodes &&
           strcmp(a->domain, b->domain) == 0 && same(a->tokens, b->tokens, 4 * n) &&
           same(a->nodes, b->nodes, 4 * n) && same(a->tree_tokens, b->tree_tokens, 4 * m) &&
           same(a->tree_parents, b->tree_parents, 4 * m) &&
           same(a->tree_logprobs, b->tree_logprobs, 4 * m) &&
           same(a->target_hidden, b->target_hidden, 2 * n * d_target) &&
           same(a->top_ids, b->top_ids, 4 * top) && same(a->top_logits, b->top_logits, 4 * top) &&
           same(a->top_logsumexp, b->top_logsumexp, 4 * n) &&
           same(a->draft_hidden, b->draft_hidden, 2 * n * (size_t)of->d_draft) &&
           same(a->draft_ids, b->draft_ids, 4 * draft_top) &&
           same(a->draft_logits, b->draft_logits, 4 * draft_top) &&
           same(a->draft_logsumexp, b->draft_logsumexp, 4 * n) &&
           same(a->tree_top_ids, b->tree_top_ids, 4 * m * (size_t)of->n_tree_top) &&
           same(a->prompt_hidden, b->prompt_hidden, 2 * d_target);
}

static bytes write_trace(int n_records) {
    static content c;
    bytes b = {0};
    specrt_trace_writer *w;
    REQUIRE(specrt_trace_writer_create(&info, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    for (int i = 0; i < n_records; i++) {
        make(i, &c);
        REQUIRE(specrt_trace_write(w, &c.r, NULL) == SPECRT_STATUS_OK);
    }
    REQUIRE(specrt_trace_writer_close(w, NULL) == SPECRT_STATUS_OK);
    return b;
}

/* A file of so many bytes behind the header, which are `more`; its checksums are right. */
static bytes with_more(uint8_t version, uint32_t n_said, const void *more, size_t n) {
    bytes b = write_trace(0);
    uint64_t hash = specrt_hash64(more, n_said < n ? n_said : n, 0);
    b.n = 128;
    append(&b, more, n);
    b.p[8] = version;
    if (version < 3) b.p[100] = 2; /* a kind of checksum from version 3 on; nothing before */
    memcpy(b.p + 12, &n_said, 4);
    memcpy(b.p + 104, &hash, 8);
    hash = specrt_hash64(b.p, 120, 0);
    memcpy(b.p + 120, &hash, 8);
    return b;
}

/* A file of one block, stored as it is, of n_records; n_raw: bytes that it says to unpack to. */
static bytes with_block(const uint32_t *words, uint64_t n, uint64_t n_raw, uint32_t n_records) {
    bytes b = write_trace(0);
    uint64_t sizes[2] = {n_raw, n}, hash;
    size_t at = b.n;
    append(&b, "BLK1", 4);
    append(&b, &n_records, 4);
    append(&b, sizes, 16);
    hash = specrt_hash64(words, n, specrt_hash64(b.p + at, 24, 0));
    append(&b, &hash, 8);
    append(&b, words, n);
    return b;
}

/* Reads to the end or the first error. @return how many records were right. */
static int read_trace(const uint8_t *p, size_t n, specrt_status *status, bool *cut) {
    static content c;
    specrt_trace_reader *r;
    specrt_trace_record record;
    int count = 0;
    *cut = false;
    *status = specrt_trace_open_memory(p, n, "t", NULL, &r, NULL);
    if (*status != SPECRT_STATUS_OK) return 0;
    for (;; count++) {
        *status = specrt_trace_read(r, &record, NULL);
        if (*status != SPECRT_STATUS_OK || record.kind == SPECRT_TRACE_END) break;
        make(count, &c);
        REQUIRE(same_record(&info, &c.r, &record));
    }
    *cut = specrt_trace_is_cut(r);
    specrt_trace_close(r);
    return count;
}

TEST(round_trip, "records of all kinds over several blocks") {
    enum { N = 3000 };
    bytes b = write_trace(N);
    specrt_status status;
    bool cut;
    CHECK(b.n > 2 << 20); /* several blocks */
    CHECK_INT(read_trace(b.p, b.n, &status, &cut), N);
    CHECK_INT(status, SPECRT_STATUS_OK);
    CHECK(!cut);
    free(b.p);
    b = write_trace(0);
    CHECK_INT(b.n, 128 + sizeof ends + strlen(info.policy) + 1);
    CHECK_INT(read_trace(b.p, b.n, &status, &cut), 0);
    CHECK_INT(status, SPECRT_STATUS_OK);
    free(b.p);
}

/* Where a block begins that comes after others. */
static size_t block_at(const bytes *b, int number) {
    uint64_t n_stored;
    size_t at = 128 + sizeof ends + strlen(info.policy) + 1;
    for (int i = 0; i < number; i++) {
        memcpy(&n_stored, b->p + at + 16, 8);
        at += 32 + (size_t)n_stored;
    }
    return at;
}

TEST(cut, "a file cut anywhere reads up to the cut") {
    enum { N = 3000 };
    bytes b = write_trace(N);
    int last = N;
    for (size_t n = b.n - 1; n > 200; n = n * 4 / 5) {
        specrt_status status;
        bool cut;
        int count = read_trace(b.p, n, &status, &cut);
        CHECK_INT(status, SPECRT_STATUS_OK);
        CHECK(cut && count < N && count <= last);
        last = count;
    }
    specrt_status status;
    bool cut;
    for (size_t n = 0; n <= 33; n++) { /* around the end of a block's header */
        CHECK_INT(read_trace(b.p, block_at(&b, 0) + n, &status, &cut), 0);
        CHECK(status == SPECRT_STATUS_OK && cut == (n > 0));
    }
    read_trace(b.p, 127, &status, &cut);
    CHECK_INT(status, SPECRT_STATUS_TRACE_MAGIC);
    read_trace(b.p, 140, &status, &cut); /* between the header and what it says of the recording */
    CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
    free(b.p);
}

TEST(damage, "a flipped bit anywhere is found") {
    bytes b = write_trace(40);
    specrt_status status;
    bool cut;
    for (size_t i = 0; i < b.n; i += i < 200 ? 1 : 37) {
        b.p[i] ^= 0x20;
        read_trace(b.p, b.n, &status, &cut);
        CHECK(status != SPECRT_STATUS_OK || cut);
        b.p[i] ^= 0x20;
    }
    b.p[8] = 4;
    specrt_trace_reader *r;
    specrt_error err;
    CHECK_INT(specrt_trace_open_memory(b.p, b.n, "x.trace", NULL, &r, &err),
              SPECRT_STATUS_TRACE_VERSION);
    CHECK_STR(err.msg, "x.trace: trace version: expected 1 to 3, found 4");
    free(b.p);
}

TEST(inconsistent, "damage under checksums that are right") {
    const struct {
        uint8_t version;
        uint32_t n_said; /* bytes of terminators and policy */
        const char *more;
        size_t n;
        bool good;
    } headers[] = {{3, 8, "\7\0\0\0\x9\0\0\0", 8, true}, /* no policy */
                   {3, 9, "\7\0\0\0\x9\0\0\0", 9, true},
                   {2, 10, "\7\0\0\0\x9\0\0\0s", 10, true},
                   {3, 9, "\7\0\0\0\x9\0\0\0s", 9, false},    /* a policy without an end */
                   {3, 4, "\7\0\0\0\x9\0\0\0", 8, false},     /* less than the terminators */
                   {3, 11, "\7\0\0\0\x9\0\0\0s", 10, false},  /* more than the file has */
                   {3, 9, "\7\0\0\0\x89\x13\0\0", 9, false}}; /* token 5001 */
    specrt_status status;
    bool cut;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        bytes b = with_more(headers[i].version, headers[i].n_said, headers[i].more, headers[i].n);
        read_trace(b.p, b.n, &status, &cut);
        CHECK_INT(status, headers[i].good ? SPECRT_STATUS_OK : SPECRT_STATUS_TRACE_DAMAGED);
        free(b.p);
    }
    enum { MANY = 100000 }; /* terminators, more than a reader has room for */
    char *many = (char *)calloc(MANY, 4);
    bytes flood = with_more(3, 4 * MANY, many, 4 * MANY);
    memcpy(flood.p + 96, &(int32_t){MANY}, 4);
    memcpy(flood.p + 120, (uint64_t[]){specrt_hash64(flood.p, 120, 0)}, 8);
    read_trace(flood.p, flood.n, &status, &cut);
    CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
    free(flood.p), free(many);
    const struct {
        int at; /* of a word that is changed */
        uint32_t value, n_records;
        uint64_t n, n_raw; /* 0: as many */
        const char *wrong; /* NULL: nothing */
    } blocks[] = {{0, SPECRT_TRACE_SEQUENCE, 1, 56, 0, NULL},
                  {0, SPECRT_TRACE_SEQUENCE, 2, 56, 0, "ends inside a record"}, /* the second */
                  {0, SPECRT_TRACE_SEQUENCE, 1, 52, 0, "ends inside a record"},
                  {0, SPECRT_TRACE_SEQUENCE, 1, 44, 0, "ends inside a record"},
                  {0, SPECRT_TRACE_SEQUENCE, 1, 12, 0, "ends inside a record"},
                  {0, SPECRT_TRACE_CYCLE, 1, 56, 0, "a record's counts are out of range"},
                  {0, 3, 1, 56, 0, "a record's counts are out of range"},
                  {1, 0, 1, 56, 0, "a record's counts are out of range"},
                  {3, 3, 1, 64, 0, "ends inside a record"}, /* nodes, which a sequence has not */
                  {13, V, 1, 56, 0, "a record's ids are out of range"},
                  {0, SPECRT_TRACE_SEQUENCE, 1, 0, 0, "header: expected sizes within limits"},
                  {0, SPECRT_TRACE_SEQUENCE, 1, 56, 40, "header: expected sizes within limits"}};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        uint32_t words[16] = {SPECRT_TRACE_SEQUENCE, 2, 0, 1, [12] = 8, [13] = V - 1};
        specrt_trace_reader *r;
        specrt_trace_record record;
        specrt_error err = {0};
        memset(words + 4, 'x', sizeof record.domain); /* without an end */
        words[blocks[i].at] = blocks[i].value;
        bytes b = with_block(words, blocks[i].n, blocks[i].n_raw ? blocks[i].n_raw : blocks[i].n,
                             blocks[i].n_records);
        REQUIRE(specrt_trace_open_memory(b.p, b.n, "t", NULL, &r, NULL) == SPECRT_STATUS_OK);
        status = specrt_trace_read(r, &record, &err);
        if (status == SPECRT_STATUS_OK) {
            CHECK_INT(strlen(record.domain), 31);
            CHECK(record.n == 2 && record.tokens[0] == 8 && record.tokens[1] == V - 1);
            status = specrt_trace_read(r, &record, &err);
        }
        CHECK_INT(status, blocks[i].wrong ? SPECRT_STATUS_TRACE_DAMAGED : SPECRT_STATUS_OK);
        if (blocks[i].wrong) CHECK_HAS(err.msg, blocks[i].wrong);
        specrt_trace_close(r);
        free(b.p);
    }
}

/* Adler-32 of bytes that come after others. */
static uint32_t adler(const uint8_t *p, size_t n, uint32_t before) {
    uint32_t a = before & 0xffff, b = before >> 16;
    for (size_t i = 0; i < n; i++) a = (a + p[i]) % 65521, b = (b + a) % 65521;
    return b << 16 | a;
}

TEST(adler, "a file with the checksums that writers in Python take") {
    enum { N = 3000 };
    bytes b = write_trace(N);
    specrt_status status;
    bool cut;
    size_t at = block_at(&b, 0);
    b.p[100] = 1; /* the kind */
    memcpy(b.p + 104, (uint64_t[]){adler(b.p + 128, at - 128, 1)}, 8);
    memcpy(b.p + 120, (uint64_t[]){adler(b.p, 120, 1)}, 8);
    for (int i = 1; at < b.n; i++) {
        size_t next = block_at(&b, i);
        uint32_t sum = adler(b.p + at, 24, 1);
        memcpy(b.p + at + 24, (uint64_t[]){adler(b.p + at + 32, next - at - 32, sum)}, 8);
        at = next;
    }
    CHECK_INT(read_trace(b.p, b.n, &status, &cut), N);
    CHECK(status == SPECRT_STATUS_OK && !cut);
    b.p[b.n - 1] ^= 1;
    CHECK(read_trace(b.p, b.n, &status, &cut) < N);
    CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
    free(b.p);
}

TEST(header_words, "words of the header that no writer puts there, under a right checksum") {
    static const struct {
        size_t at;
        int32_t value;
    } words[] = {{96, -1}, {96, SPECRT_MAX_TERMINATORS + 1}, {100, 2}};
    bytes b = write_trace(10);
    specrt_status status;
    bool cut;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        uint8_t kept[4];
        memcpy(kept, b.p + words[i].at, 4);
        memcpy(b.p + words[i].at, &words[i].value, 4);
        memcpy(b.p + 120, (uint64_t[]){specrt_hash64(b.p, 120, 0)}, 8);
        CHECK_INT(read_trace(b.p, b.n, &status, &cut), 0);
        CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
        memcpy(b.p + words[i].at, kept, 4);
    }
    memcpy(b.p + 120, (uint64_t[]){specrt_hash64(b.p, 120, 0)}, 8);
    CHECK_INT(read_trace(b.p, b.n, &status, &cut), 10);
    free(b.p);
}

TEST(hidden, "states in blocks of their own, which may be skipped") {
    enum { N = 3000 };
    static content c;
    bytes b = write_trace(N);
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_status status;
    bool cut;
    CHECK(memcmp(b.p + block_at(&b, 0), "HID1", 4) == 0);
    CHECK(memcmp(b.p + block_at(&b, 1), "BLK1", 4) == 0);
    CHECK_INT(read_trace(b.p, block_at(&b, 1), &status, &cut), 0); /* cut between the two */
    CHECK(status == SPECRT_STATUS_OK && cut);
    b.p[block_at(&b, 0) + 50] ^= 1;
    CHECK_INT(read_trace(b.p, b.n, &status, &cut), 0);
    CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
    REQUIRE(specrt_trace_open_memory(b.p, b.n, "t", NULL, &r, NULL) == SPECRT_STATUS_OK);
    specrt_trace_skip_hidden(r);
    for (int i = 0; i < N; i++) {
        make(i, &c);
        c.r.target_hidden = c.r.draft_hidden = c.r.prompt_hidden = NULL;
        REQUIRE(specrt_trace_read(r, &record, NULL) == SPECRT_STATUS_OK);
        CHECK(same_record(&info, &c.r, &record));
    }
    CHECK(specrt_trace_read(r, &record, NULL) == SPECRT_STATUS_OK && record.kind == 0);
    specrt_trace_close(r);
    memcpy(b.p + block_at(&b, 1), "HID1", 4); /* whose records are missing then */
    read_trace(b.p, b.n, &status, &cut);
    CHECK_INT(status, SPECRT_STATUS_TRACE_DAMAGED);
    free(b.p);
}

/* What the header says of the recording; a file of version 1 says none of it, and reads on. */
TEST(header, "what a trace says of its recording, in either version") {
    bytes b = write_trace(5);
    specrt_trace_reader *r;
    specrt_trace_record record;
    REQUIRE(specrt_trace_open_memory(b.p, b.n, "t", NULL, &r, NULL) == SPECRT_STATUS_OK);
    const specrt_trace_info *found = specrt_trace_get_info(r);
    CHECK_STR(found->policy, info.policy);
    CHECK(memcmp(&found->tree, &info.tree, sizeof info.tree) == 0);
    CHECK(found->temperature == 0.5f && found->draft == SPECRT_DRAFT_TOP_K);
    CHECK_INT(found->n_ids, 4990);
    CHECK_INT(found->n_tree_top, TREE_TOP);
    CHECK_INT(found->n_terminators, 2);
    CHECK(memcmp(found->terminators, ends, sizeof ends) == 0);
    specrt_trace_close(r);
    free(b.p);

    static content c;
    static const specrt_trace_info old = {.n_vocab = V, .n_top = TOP};
    specrt_trace_writer *w;
    b = (bytes){0};
    REQUIRE(specrt_trace_writer_create(&old, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    make(1, &c);
    REQUIRE(specrt_trace_write(w, &c.r, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_trace_writer_close(w, NULL) == SPECRT_STATUS_OK);
    b.p[8] = 1;
    memset(b.p + 72, 0xff, 48); /* which meant nothing then */
    memset(b.p + 12, 0xff, 4);
    memset(b.p + 36, 0xff, 4);
    uint64_t hash = specrt_hash64(b.p, 120, 0);
    memcpy(b.p + 120, &hash, 8);
    REQUIRE(specrt_trace_open_memory(b.p, b.n, "t", NULL, &r, NULL) == SPECRT_STATUS_OK);
    found = specrt_trace_get_info(r);
    CHECK(!found->policy && found->n_terminators == 0 && found->n_tree_top == 0);
    CHECK_INT(found->tree.num_steps, 0);
    CHECK_INT(specrt_trace_read(r, &record, NULL), SPECRT_STATUS_OK);
    CHECK(record.kind == SPECRT_TRACE_CYCLE && record.tokens[0] == c.tokens[0]);
    specrt_trace_close(r);
    free(b.p);
}

/* --- a file of version 2, as its program wrote it --- */

static const specrt_trace_info old_info = {.tokenizer_sha256 = {3, 2, 1},
                                           .n_vocab = 500,
                                           .d_target = 3,
                                           .d_draft = 2,
                                           .n_top = 2,
                                           .n_draft_top = 3,
                                           .n_tree_top = 1,
                                           .policy = "static:16",
                                           .tree = {2, 1, 3},
                                           .draft = SPECRT_DRAFT_TOP_K,
                                           .temperature = 0.25f,
                                           .n_ids = 490,
                                           .n_terminators = 2,
                                           .terminators = ends_of_old};

static void count_ids(int32_t *ids, int n, int32_t from) {
    for (int k = 0; k < n; k++) ids[k] = (from + 7 * k) % 500;
}

static void count_reals(float *x, int n, float from) {
    for (int k = 0; k < n; k++) x[k] = from + 0.25f * (float)k;
}

/* Record 0 begins a sequence, the others are cycles. */
static void make_old(int i, content *c) {
    specrt_trace_record *r = &c->r;
    memset(c, 0, sizeof *c);
    *r = (specrt_trace_record){.kind = i ? SPECRT_TRACE_CYCLE : SPECRT_TRACE_SEQUENCE,
                               .n = i ? 2 : 3,
                               .n_nodes = i ? 3 : 0,
                               .tokens = c->tokens,
                               .top_ids = c->top_ids};
    count_ids(c->tokens, 3, 100 + i);
    count_ids(c->top_ids, 6, 200 + i);
    if (i == 0) snprintf(r->domain, sizeof r->domain, "old");
    if (i == 0) return;
    for (int k = 0; k < 3; k++) c->nodes[k] = k, c->tree_parents[k] = k - 1;
    count_ids(c->tree_tokens, 3, 300 + i);
    count_reals(c->tree_logprobs, 3, -1);
    count_reals(c->top_logits, 4, 2);
    count_reals(c->logsumexp, 2, 3);
    count_ids(c->draft_ids, 6, 400 + i);
    count_reals(c->draft_logits, 6, 4);
    count_reals(c->draft_logsumexp, 2, 5);
    count_ids(c->tree_top_ids, 3, 50 + i);
    for (int k = 0; k < 6; k++) c->target_hidden[k] = c->draft_hidden[k] = (uint16_t)(0x3c00 + k);
    r->nodes = c->nodes;
    r->tree_tokens = c->tree_tokens;
    r->tree_parents = c->tree_parents;
    r->tree_logprobs = c->tree_logprobs;
    r->target_hidden = c->target_hidden;
    r->top_logits = c->top_logits;
    r->top_logsumexp = c->logsumexp;
    r->draft_hidden = c->draft_hidden;
    r->draft_ids = c->draft_ids;
    r->draft_logits = c->draft_logits;
    r->draft_logsumexp = c->draft_logsumexp;
    r->tree_top_ids = c->tree_top_ids;
}

TEST(golden, "a file of version 2 reads as it was written") {
    static content c;
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_error err = {0};
#if defined(SPECRT_NO_ZSTD)
    SKIP("built without zstd");
#endif
    specrt_status status = specrt_trace_open("tests/golden/traces/v2.trace", NULL, &r, &err);
    CHECK_STR(err.msg, "");
    REQUIRE(status == SPECRT_STATUS_OK);
    const specrt_trace_info *found = specrt_trace_get_info(r);
    CHECK_STR(found->policy, old_info.policy);
    CHECK(memcmp(&found->tree, &old_info.tree, sizeof found->tree) == 0);
    CHECK(memcmp(found->terminators, ends_of_old, sizeof ends_of_old) == 0);
    CHECK_INT(found->n_ids, 490);
    for (int i = 0; i < 4; i++) {
        make_old(i, &c);
        REQUIRE(specrt_trace_read(r, &record, NULL) == SPECRT_STATUS_OK);
        CHECK(same_record(&old_info, &c.r, &record));
    }
    CHECK(specrt_trace_read(r, &record, NULL) == SPECRT_STATUS_OK && record.kind == 0);
    CHECK(!specrt_trace_is_cut(r));
    specrt_trace_close(r);
}

TEST(limits, "each number, and the policy's text, at its limits and beyond them") {
    bytes b = {0};
    specrt_trace_writer *w;
    specrt_trace_reader *r;
    specrt_trace_info wrong;
    specrt_error err;
    for (int k = 0; k < 16; k++) { /* each number below its least and above its most */
        wrong = info;
        int32_t *numbers[] = {&wrong.n_vocab, &wrong.d_target,     &wrong.d_draft,
                              &wrong.n_top,   &wrong.n_draft_top,  &wrong.n_tree_top,
                              &wrong.n_ids,   &wrong.n_terminators};
        const int32_t most[] = {1 << 24, 1 << 20, 1 << 20, 4096, 4096, 4096, V, 64};
        *numbers[k / 2] = k % 2 ? most[k / 2] + 1 : -1;
        CHECK_INT(specrt_trace_writer_create(&wrong, append, &b, NULL, &w, &err),
                  SPECRT_STATUS_BAD_ARG);
    }
    char text[1025] = "";
    memset(text, 'p', 1024);
    wrong = info;
    wrong.policy = text;
    CHECK_INT(specrt_trace_writer_create(&wrong, append, &b, NULL, &w, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "trace: policy: expected at most 1023 bytes, found 1024");
    text[1023] = '\0';
    REQUIRE(specrt_trace_writer_create(&wrong, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_writer_close(w, NULL), SPECRT_STATUS_OK);
    b.n = 0;
    const int32_t many[64] = {0};
    specrt_trace_info least = {.n_vocab = 1, .n_ids = 1, .n_terminators = 64, .terminators = many};
    REQUIRE(specrt_trace_writer_create(&least, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_writer_close(w, NULL), SPECRT_STATUS_OK);
    REQUIRE(specrt_trace_open_memory(b.p, b.n, "t", NULL, &r, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_get_info(r)->n_terminators, 64);
    specrt_trace_close(r);
    free(b.p);
}

TEST(full_block, "a record that does not fit beside others") {
    enum { D = 1 << 18, T = 15, N = (1 << 22) - 1 };
    const specrt_trace_info wide = {.n_vocab = 1, .d_target = D, .n_top = T, .n_ids = 1};
    bytes b = {0};
    specrt_trace_writer *w;
    specrt_error err;
    int32_t *tokens = (int32_t *)calloc(N, sizeof *tokens);
    uint16_t *hidden = (uint16_t *)calloc(D, sizeof *hidden);
    specrt_trace_record record = {.kind = SPECRT_TRACE_SEQUENCE, .n = 1, .tokens = tokens};
    REQUIRE(tokens && hidden);
    REQUIRE(specrt_trace_writer_create(&wide, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    record.target_hidden = hidden;
    REQUIRE(specrt_trace_write(w, &record, NULL) == SPECRT_STATUS_OK);
    record.n = (1 << 28) / (2 * D); /* states of a block's most bytes; none is read */
    CHECK_INT(specrt_trace_write(w, &record, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "trace: record: expected less than a block, found more");
    record.target_hidden = NULL;
    record.n = N;
    record.top_logits = &(float){0}; /* 4 (T + 1) N + 48 bytes: 16 less than a block's most */
    CHECK_INT(specrt_trace_write(w, &record, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "trace: record: expected less than a block, found more");
    CHECK_INT(specrt_trace_writer_close(w, NULL), SPECRT_STATUS_OK);
    free(tokens), free(hidden), free(b.p);
}

TEST(to_f16, "as many halves as were asked for, and no more") {
    const float x[] = {1, -2, 65504};
    uint16_t halves[] = {7, 7, 7};
    specrt_to_f16(x, 2, halves);
    CHECK(halves[0] == 0x3c00 && halves[1] == 0xc000 && halves[2] == 7);
}

TEST(refusals, "records, traces and files that do not fit") {
    static content c;
    bytes b = {0};
    specrt_trace_writer *w;
    specrt_trace_reader *r;
    specrt_error err;
    uint8_t other[32] = {9};
    char name[] = "t";
    specrt_trace_info wrong = info;
    wrong.n_ids = V; /* all, and nothing ends a text */
    wrong.n_terminators = 0;
    REQUIRE(specrt_trace_writer_create(&wrong, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_writer_close(w, NULL), SPECRT_STATUS_OK);
    REQUIRE(specrt_trace_open_memory(b.p, b.n, name, NULL, &r, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_get_info(r)->n_ids, V);
    CHECK_INT(specrt_trace_get_info(r)->n_terminators, 0);
    CHECK_STR(specrt_trace_get_info(r)->policy, info.policy);
    specrt_trace_close(r);
    b.n = 0;
    REQUIRE(specrt_trace_writer_create(&info, append, &b, NULL, &w, NULL) == SPECRT_STATUS_OK);
    make(1, &c);
    c.tokens[0] = V;
    CHECK_INT(specrt_trace_write(w, &c.r, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "trace: record: tokens: expected values within limits, found others");
    for (int k = 0; k < 5; k++) { /* the last id of each list */
        static const char *const names[] = {
            "record: top_ids:", "draft_ids:", "tree_top_ids:", "tree_tokens:", "nodes:"};
        make(1, &c);
        int32_t *last[] = {&c.top_ids[c.r.n * TOP - 1], &c.draft_ids[c.r.n * DRAFT_TOP - 1],
                           &c.tree_top_ids[c.r.n_nodes * TREE_TOP - 1],
                           &c.tree_tokens[c.r.n_nodes - 1], &c.nodes[c.r.n - 1]};
        *last[k] = V;
        CHECK_INT(specrt_trace_write(w, &c.r, &err), SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, names[k]);
    }
    make(1, &c);
    c.r.n_nodes = SPECRT_TREE_MAX_NODES;
    CHECK_INT(specrt_trace_write(w, &c.r, NULL), SPECRT_STATUS_OK);
    make(1, &c);
    c.tree_parents[1] = 1;
    CHECK_INT(specrt_trace_write(w, &c.r, &err), SPECRT_STATUS_BAD_ARG);
    c.r.n = 0;
    CHECK_INT(specrt_trace_write(w, &c.r, &err), SPECRT_STATUS_BAD_ARG);
    make(1, &c);
    REQUIRE(specrt_trace_write(w, &c.r, NULL) == SPECRT_STATUS_OK);
    b.left = 1;
    CHECK_INT(specrt_trace_writer_close(w, &err), SPECRT_STATUS_IO);
    b.left = 0;
    REQUIRE(specrt_trace_open_memory(b.p, b.n, name, NULL, &r, NULL) == SPECRT_STATUS_OK);
    name[0] = '?'; /* the reader has its own */
    CHECK_INT(specrt_trace_get_info(r)->n_vocab, V);
    CHECK_INT(specrt_trace_check(r, info.tokenizer_sha256, D_TARGET, 0, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_check(r, other, 0, 0, &err), SPECRT_STATUS_TRACE_MISMATCH);
    CHECK_STR(
        err.msg,
        "t: tokenizer: expected this tokenizer's digest, found another; record the trace again");
    CHECK_INT(specrt_trace_check(r, NULL, D_TARGET + 1, 0, &err), SPECRT_STATUS_TRACE_MISMATCH);
    CHECK_INT(specrt_trace_check(r, NULL, 0, D_DRAFT, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_check(r, NULL, 0, D_DRAFT + 1, &err), SPECRT_STATUS_TRACE_MISMATCH);
    specrt_trace_close(r);
    free(b.p);
}

TEST(memory, "out of memory at any call is a status") {
    static content c;
    bytes whole = write_trace(30);
    for (int fail_at = 1; fail_at < 6; fail_at++) {
        fixture_allocator a = {.fail_at = fail_at};
        specrt_env env = fixture_desc(&a);
        bytes b = {0};
        specrt_trace_writer *w;
        specrt_trace_reader *r;
        specrt_trace_record record;
        if (specrt_trace_writer_create(&info, append, &b, &env, &w, NULL) == SPECRT_STATUS_OK) {
            make(1, &c);
            specrt_trace_write(w, &c.r, NULL);
            specrt_trace_writer_close(w, NULL);
        }
        CHECK_INT(a.n_live, 0);
        a.n_calls = 0;
        if (specrt_trace_open_memory(whole.p, whole.n, "t", &env, &r, NULL) == SPECRT_STATUS_OK) {
            specrt_status status = specrt_trace_read(r, &record, NULL);
            CHECK(status == SPECRT_STATUS_OK || status == SPECRT_STATUS_NO_MEMORY);
            specrt_trace_close(r);
        }
        CHECK_INT(a.n_live, 0);
        free(b.p);
    }
    free(whole.p);
}
