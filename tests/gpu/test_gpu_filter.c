/* test_gpu_filter.c : what top_k, top_p and min_p keep on the device against the CPU's: the token that every
 * node draws, and the sum of every block of weights. Logits tie, are flat, are few, or stand together. */
#include <stdbool.h>
#include "specrt.h"
#include "core/shortlist.h"
#include "cuda/kernels.h"
#include "decode/verify.h"
#include "gpu.h"

enum {
    BATCH = 3,
    NODES = 2,
    PADDING = 5,
    CANDIDATES = 128
}; /* of a part: SPECRT__VERIFY_CANDIDATES */

GPU_RANDOM(63)

/* How logits come. HALF have 8 bits, as of models in bf16; TOGETHER has all that counts in a few ids. */
enum { NORMAL, HALF, FEW, FLAT, MASKED, WILD, TOGETHER, LONE, KINDS, SPREAD = KINDS };

static float draw_logit(int32_t i, int kind) {
    float x = 3 * fixture_normal(&random_state);
    if (kind == HALF) return specrt__base_float(specrt__base_bits(4 + x) & 0xffff0000u);
    if (kind == FEW) return (float)random_below(3);
    if (kind == FLAT) return random_below(2) ? 0.0f : -0.0f;
    if (kind == MASKED) return random_below(30) ? -INFINITY : x;
    if (kind == WILD && random_below(9) == 0) return random_below(2) ? NAN : -INFINITY;
    if (kind == TOGETHER) return i < 300 ? 10 + x / 3 : x;
    if (kind == LONE) return i == 700 ? x : -INFINITY;
    if (kind == SPREAD) return i % 64 == 7 ? 1.0f : -INFINITY;
    return x;
}

/* One node's row, behind whose tokens greater logits stand. */
static void draw_row(float *row, int32_t n_vocab, int kind) {
    for (int32_t i = 0; i < n_vocab + PADDING; i++)
        row[i] = i < n_vocab ? draw_logit(i, kind) : 1e6f;
}

typedef struct filter_case {
    int32_t n_vocab;
    float *logits; /* [BATCH, NODES, n_vocab + PADDING] */
    specrt_cuda_draft drafts[BATCH];
    specrt_sampling samplings[BATCH];
    /* what the device found */
    int32_t tokens[BATCH * NODES];
    double *sums; /* [BATCH, NODES, blocks] */
    uint32_t least[BATCH * NODES];
    int32_t n_known[BATCH * NODES]; /* candidates that no other token is above */
} filter_case;

static size_t blocks_of(const filter_case *c) {
    return ((size_t)c->n_vocab + SPECRT__VERIFY_BLOCK - 1) / SPECRT__VERIFY_BLOCK;
}

/* The twin's draw of a node, and its sums beside the device's. NaN, which the twin refuses, is -inf. */
static void compare_node(const filter_case *c, int32_t b, int32_t node) {
    int32_t row = c->n_vocab + PADDING, at = b * NODES + node;
    float *logits = (float *)malloc((size_t)row * sizeof *logits);
    for (int32_t i = 0; i < row; i++) {
        float x = c->logits[(int64_t)at * row + i];
        logits[i] = isnan(x) ? -INFINITY : x;
    }
    specrt_verifier *v = create_verifier(row, c->n_vocab, &c->samplings[b]);
    int32_t token = specrt_verifier_draw(v, logits, c->drafts[b].positions[node] + 1);
    CHECK_INT(c->tokens[at], token);
    bool drawn = c->samplings[b].temperature > 0 && token >= 0;
    if (drawn) REQUIRE(specrt__verify_distribution(v, logits));
    for (size_t i = 0; i < blocks_of(c) && drawn; i++)
        CHECK_NEAR(c->sums[(size_t)at * blocks_of(c) + i], v->sums[i], 1e-12 * v->total);
    specrt_verifier_close(v);
    free(logits);
}

/* Candidates of a node that are known: all tokens that have the parts' greatest order or more, once each. */
static int32_t check_known(const filter_case *c, int32_t at, const uint64_t *keys) {
    const float *logits = c->logits + (int64_t)at * (c->n_vocab + PADDING);
    bool *seen = (bool *)calloc((size_t)c->n_vocab, sizeof *seen);
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_vocab; i++)
        n += logits[i] > -INFINITY && specrt__shortlist_order(logits[i]) >= c->least[at];
    for (int32_t i = 0; i < n; i++) {
        int32_t id = specrt__shortlist_key_id(keys[i]);
        REQUIRE(id >= 0 && id < c->n_vocab);
        CHECK(!seen[id] && specrt__shortlist_key(logits[id], id) == keys[i]);
        CHECK(keys[i] >> 32 >= c->least[at]);
        seen[id] = true;
    }
    free(seen);
    return n;
}

static void get_known(filter_case *c, const specrt__cuda_verifier *verifier, int32_t n_parts) {
    size_t n = (size_t)(BATCH * NODES * n_parts);
    uint64_t *keys = (uint64_t *)malloc(n * CANDIDATES * sizeof *keys);
    uint32_t *least = (uint32_t *)malloc(n * sizeof *least);
    gpu_get(keys, verifier->keys, n * CANDIDATES * sizeof *keys);
    gpu_get(least, verifier->least, n * sizeof *least);
    for (int32_t at = 0; at < BATCH * NODES; at++) {
        for (int32_t p = 0; p < n_parts; p++)
            if (least[at * n_parts + p] > c->least[at]) c->least[at] = least[at * n_parts + p];
        if (c->least[at] > 0) /* it was filtered */
            c->n_known[at] = check_known(c, at, keys + (size_t)(at * n_parts) * CANDIDATES);
    }
    free(keys), free(least);
}

static void run_device(filter_case *c) {
    int32_t row = c->n_vocab + PADDING, n_parts = (c->n_vocab + 4095) / 4096;
    specrt__cuda_verifier_params p = {BATCH, row, c->n_vocab, NODES, 2};
    specrt__cuda_verifier verifier;
    size_t n_sums = BATCH * NODES * blocks_of(c);
    void *memory = gpu_zeros(specrt__cuda_verifier_bytes(&p));
    filter_case *d = (filter_case *)gpu_copy(c, sizeof *c);
    float *logits = (float *)gpu_copy(c->logits, (size_t)(BATCH * NODES * row) * sizeof *c->logits);
    specrt_verdict *verdicts = (specrt_verdict *)gpu_alloc(BATCH * sizeof *verdicts);
    REQUIRE(specrt__cuda_verifier_place(&p, memory, &verifier) == SPECRT_STATUS_OK);
    CHECK_INT(specrt__cuda_verify(&verifier, d->drafts, d->samplings, logits, verdicts, NULL),
              SPECRT_STATUS_OK);
    gpu_get(c->tokens, verifier.tokens, sizeof c->tokens);
    c->sums = (double *)malloc(n_sums * sizeof *c->sums);
    gpu_get(c->sums, verifier.sums, n_sums * sizeof *c->sums);
    get_known(c, &verifier, n_parts);
    gpu_free(memory), gpu_free(d), gpu_free(logits), gpu_free(verdicts);
}

/* What was found, once it has been compared. */
static filter_case run_filter(int32_t n_vocab, int kind, specrt_sampling s) {
    filter_case c;
    int32_t row = n_vocab + PADDING;
    memset(&c, 0, sizeof c);
    c.n_vocab = n_vocab;
    c.logits = (float *)malloc((size_t)(BATCH * NODES * row) * sizeof *c.logits);
    for (int32_t b = 0; b < BATCH; b++) {
        c.drafts[b].n = b == 1 ? 1 : NODES;
        c.samplings[b] = s;
        c.samplings[b].session = 1 + (uint64_t)b;
        c.samplings[b].seed = fixture_random(&random_state);
        for (int32_t i = 0; i < NODES; i++) {
            c.drafts[b].parents[i] = i - 1;
            c.drafts[b].positions[i] = 100 + i;
            draw_row(c.logits + (int64_t)(b * NODES + i) * row, n_vocab, kind);
        }
    }
    run_device(&c);
    for (int32_t b = 0; b < BATCH; b++)
        for (int32_t i = 0; i < c.drafts[b].n; i++) compare_node(&c, b, i);
    free(c.logits), free(c.sums);
    return c;
}

static specrt_sampling filters(float temperature, int32_t top_k, float top_p, float min_p) {
    specrt_sampling s;
    memset(&s, 0, sizeof s);
    s.temperature = temperature;
    s.top_k = top_k;
    s.top_p = top_p;
    s.min_p = min_p;
    return s;
}

/* A line and less, and parts that are whole, begun, or a token more. */
static const int32_t VOCABULARIES[] = {1, 130, 1025, 4096, 4097, 9001};
enum { N_VOCABULARIES = sizeof VOCABULARIES / sizeof VOCABULARIES[0] };

static void run_kinds(const specrt_sampling *settings, int n_settings) {
    int turn = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < n_settings; i++)
            for (int n = 0; n < N_VOCABULARIES; n++)
                if (turn++ % (test_quick() ? 29 : test_brief() ? 13 : 5) == 0)
                    run_filter(VOCABULARIES[n], kind, settings[i]);
}

TEST(top_k, "alone and with min_p") {
    const specrt_sampling settings[] = {
        filters(0.7f, 1, 0, 0),    filters(1, 50, 0, 0),         filters(1, 65, 0, 0),
        filters(1.5f, 400, 0, 0),  filters(1, 1024, 0, 0),       filters(1, 10000, 0, 0),
        filters(1e-35f, 20, 0, 0), filters(0.8f, 300, 0, 0.02f),
    };
    run_kinds(settings, sizeof settings / sizeof settings[0]);
}

TEST(top_p, "alone and with min_p") {
    const specrt_sampling settings[] = {
        filters(1, 0, 1e-6f, 0), filters(0.7f, 0, 0.5f, 0),
        filters(1, 0, 0.95f, 0), filters(2, 0, 0.999f, 0),
        filters(1, 0, 1, 0),     filters(0.7f, 0, 0.9f, 0.01f),
        filters(1, 0, 0.7f, 0),  filters(1, 0, 0.999999f, 0.5f),
    };
    run_kinds(settings, sizeof settings / sizeof settings[0]);
}

TEST(both, "filters together, and none") {
    const specrt_sampling settings[] = {
        filters(0.7f, 20, 0.8f, 0), filters(1, 500, 0.3f, 0),    filters(1, 9000, 0.9f, 0),
        filters(1, 64, 0.999f, 0),  filters(1, 40, 0.95f, 0.1f), filters(0, 40, 0.95f, 0.1f),
        filters(1, 0, 0, 0.05f),
    };
    run_kinds(settings, sizeof settings / sizeof settings[0]);
}

/* Where few hold all that is kept, all of them are known, and no more than a part lists. */
TEST(candidates, "few tokens tell what is kept") {
    static const int kinds[] = {NORMAL, HALF, TOGETHER, WILD};
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < 2; n++) {
            filter_case c = run_filter(n ? 9001 : 4096, kinds[i], filters(1, 60, 0, 0));
            for (int at = 0; at < BATCH * NODES; at++)
                if (at % NODES < c.drafts[at / NODES].n) CHECK(c.n_known[at] >= 60);
        }
}

/* A mass so near to a whole number of weights that an estimate of all weights cannot tell how many reach it:
 * 32 of 64 or one more. */
TEST(close, "an estimate that does not tell") {
    const float half[] = {nextafterf(0.5f, 0), 0.5f, nextafterf(0.5f, 1)};
    for (int i = 0; i < 3; i++) {
        run_filter(4096, SPREAD, filters(1, 0, half[i], 0));
        run_filter(8192, SPREAD, filters(1, 0, half[i], 0));
    }
}

TEST(too_many, "where too many tie, none is listed, and filters look at all") {
    filter_case c = run_filter(9001, FLAT, filters(1, 60, 0, 0));
    CHECK_INT(c.n_known[0], 0);
    CHECK(c.least[0] == UINT32_MAX);
}

TEST(whole, "a whole vocabulary, with long=1 a published one") {
    for (int kind = 0; kind < KINDS && gpu_long(); kind++) {
        run_filter(151936, kind, filters(0.7f, 20, 0.8f, 0));
        run_filter(151936, kind, filters(1, 0, 0.95f, 0));
    }
}
