/* test_verify.c : draws, filters and rejection against distributions written out in double, and
 * draw-and-descend against plain sampling. */
#include "specrt.h"
#include "decode/verify.h"
#include "distribution.h"
#include "opened.h"

static uint64_t random_state = 2463534242u;
static double random_real(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

enum { V = 23 };

static const specrt_sampling settings[] = {
    {1, 0, 0, 0, 1, 1, 0},    {0.7f, 0, 0, 0, 2, 1, 0}, {1.5f, 5, 0, 0, 3, 1, 0},
    {1, 0, 0.8f, 0, 4, 1, 0}, {1, 0, 0, 0.1f, 5, 1, 0}, {0.9f, 9, 0.9f, 0.05f, 6, 1, 3},
    {1, 1, 0, 0, 7, 1, 0},    {1, V, 1, 0, 8, 1, 0},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

TEST(distribution, "draws follow temperature, top-k, top-p and min-p") {
    float logits[V];
    for (int i = 0; i < V; i++) logits[i] = (float)(4 * random_real());
    logits[3] = logits[11]; /* a tie */
    logits[7] = logits[8] = -INFINITY;
    for (int k = 0; k < N_SETTINGS; k++) {
        enum { N = 40000 };
        double p[V];
        int seen[V] = {0};
        specrt_verifier *v = create_verifier(V, V, &settings[k]);
        distribution_of(logits, V, &settings[k], p);
        for (int64_t i = 0; i < N; i++) seen[specrt_verifier_draw(v, logits, i)]++;
        CHECK(distribution_holds(distribution_fit_of(seen, p, V, N)));
        specrt_verifier_close(v);
    }
}

/* Weights of a verifier against the oracle's p: the very same tokens kept, the same shares. */
static void check_weights(specrt_verifier *v, const float *logits, int n) {
    static double p[DISTRIBUTION_MAX_VOCAB];
    double sum = 0;
    distribution_of(logits, n, &v->sampling, p);
    specrt__verify_distribution(v, logits);
    for (int i = 0; i < n; i++) {
        double share = (double)v->weights[i] / v->total;
        bool kept = v->weights[i] > 0;
        if (p[i] > 1e-30) CHECK(kept);
        if (p[i] == 0) CHECK(!kept);
        CHECK_NEAR(share, p[i], 1e-5 * p[i] + 1e-12); /* |t| ulps of exp(t), t to -80 */
        sum += share;
    }
    CHECK_NEAR(sum, 1, 1e-12 + 1e-16 * n);
}

/* Vocabularies around the sizes of blocks, with ties, NaN and -inf, under random filters. */
TEST(filters, "they keep the definition's tokens, at any size and under ties") {
    static float logits[DISTRIBUTION_MAX_VOCAB];
    static const int sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 1000, 1023, 1024, 1025, 3000};
    for (int round = 0; round < 400; round++) {
        int n = sizes[round % 13];
        double spread = round % 3 == 0 ? 0.5 : round % 3 == 1 ? 8 : 60;
        specrt_sampling s = {(float)(0.05 + 2 * random_real()), 0, 0, 0, 1, 1, 0};
        if (random_real() < 0.5) s.top_k = 1 + (int32_t)(random_real() * 1.2 * n);
        if (random_real() < 0.5) s.top_p = (float)(0.01 + 0.98 * random_real());
        if (random_real() < 0.4) s.min_p = (float)(0.3 * random_real() * random_real());
        for (int i = 0; i < n; i++) {
            logits[i] = (float)(spread * (random_real() - random_real()));
            if (round % 5 == 0) logits[i] = floorf(logits[i]); /* many ties */
            if (i != n / 2 && random_real() < 0.02) logits[i] = -INFINITY;
        }
        specrt_verifier *v = create_verifier(n, n, &s);
        check_weights(v, logits, n);
        specrt_verifier_close(v);
    }
}

/* --- vocabularies of real size --- */

/* The first and last tokens of the first, the second, a middle and the last block of sums. */
static int block_edges(int n, int32_t *ids) {
    const int block = SPECRT__VERIFY_BLOCK, last = (n - 1) / block * block;
    const int all[] = {0, block - 1, block, 2 * block - 1, 61 * block, last - 1, last, n - 1};
    int n_ids = 0;
    for (int i = 0; i < 8; i++)
        if (all[i] >= 0 && all[i] < n && (n_ids == 0 || all[i] > ids[n_ids - 1]))
            ids[n_ids++] = all[i];
    return n_ids;
}

enum { EDGES, ONE, TIES, FLAT, RANDOM, N_SHAPES };

/* Logits of a shape: at the edges of blocks with all other blocks empty; all mass on one of these; ties
 * everywhere; every token nearly as likely; at random. */
static void shape_logits(int shape, int round, float *logits, int n) {
    int32_t edges[8];
    int n_edges = block_edges(n, edges);
    for (int i = 0; i < n; i++) {
        double x = random_real();
        logits[i] = (float)(shape == TIES ? floor(3 * x) : shape == FLAT ? 0.01 * x : 12 * x);
        if (shape == EDGES || shape == ONE) logits[i] = -INFINITY;
    }
    if (shape == ONE) logits[edges[round % n_edges]] = 1;
    for (int i = 0; shape == EDGES && i < n_edges; i++) logits[edges[i]] = (float)random_real();
}

/* Draws are the inverse of the distribution function, and so are those that replace a rejected token. */
static void check_picks(const specrt_sampling *s, float *logits, int n, int n_draws) {
    static double p[DISTRIBUTION_MAX_VOCAB], rest[DISTRIBUTION_MAX_VOCAB];
    int32_t ids[8];
    float probs[8];
    specrt_verdict verdict;
    specrt_draft_distribution distribution = {block_edges(n, ids), ids, probs};
    double q = 1.0 / distribution.n, left = 0;
    specrt_verifier *v = create_verifier(n, n, s);
    check_weights(v, logits, n);
    distribution_of(logits, n, s, p);
    for (int64_t at = 0; at < n_draws; at++) {
        double u = specrt__verify_uniform(s, SPECRT__VERIFY_DRAW, at, 0);
        CHECK(distribution_picks(p, n, u, specrt_verifier_draw(v, logits, at)));
    }
    memcpy(rest, p, (size_t)n * sizeof *p);
    for (int i = 0; i < distribution.n; i++) {
        probs[i] = (float)q;
        rest[ids[i]] = fmax(0, p[ids[i]] - (double)probs[i]);
    }
    for (int i = 0; i < n; i++) left += rest[i];
    for (int i = 0; i < n && left > 0; i++) rest[i] /= left;
    for (int64_t at = 0; at < n_draws; at++) {
        int32_t token = ids[at % distribution.n];
        double accept = specrt__verify_uniform(s, SPECRT__VERIFY_ACCEPT, at, 0);
        REQUIRE(specrt_verify_chain(v, &token, &distribution, 1, logits, at, &verdict) ==
                SPECRT_STATUS_OK);
        CHECK_INT(verdict.n, accept * q < p[token] ? 2 : 1);
        double u = specrt__verify_uniform(s, SPECRT__VERIFY_INSTEAD, at, 0);
        if (verdict.n == 1) CHECK(distribution_picks(rest, n, u, verdict.tokens[0]));
    }
    specrt_verifier_close(v);
}

TEST(blocks, "vocabularies to 128,256: picks over blocks, empty, full and tied") {
    static float logits[2 * DISTRIBUTION_MAX_VOCAB];
    static const int sizes[] = {1, 1023, 1024, 1025, DISTRIBUTION_MAX_VOCAB};
    static const specrt_sampling filters[] = {
        {1, 0, 0, 0, 1, 1, 0},    {0.8f, 6, 0, 0, 2, 1, 0},           {1, 0, 0.6f, 0, 3, 1, 0},
        {1, 0, 0, 0.3f, 4, 1, 0}, {1.2f, 3000, 0.9f, 0.05f, 5, 1, 0},
    };
    for (int size = 0; size < 5; size++)
        for (int shape = 0; shape < N_SHAPES; shape++)
            for (int f = 0; f < 5; f++) {
                int n = sizes[size];
                if (test_brief() && n == DISTRIBUTION_MAX_VOCAB && (f + shape) % 5) continue;
                shape_logits(shape, f, logits, n);
                memcpy(logits + n, logits,
                       (size_t)n * sizeof *logits); /* after an accepted token */
                check_picks(&filters[f], logits, n, n == DISTRIBUTION_MAX_VOCAB ? 16 : 64);
            }
}

TEST(pick_edges, "a draw of 0, and draws on a running sum: tokens without mass are never picked") {
    enum { N = 3000 };
    static float logits[N];
    const specrt_sampling s = {1, 0, 0, 0, 1, 1, 0};
    for (int i = 0; i < N; i++) logits[i] = -INFINITY;
    logits[1500] = logits[1501] = logits[2900] = logits[2901] = 0; /* the first block has none */
    specrt_verifier *v = create_verifier(N, N, &s);
    specrt__verify_distribution(v, logits);
    static const int32_t expected[] = {1500, 1501, 2900, 2901};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(specrt__verify_pick(v, 0.25 * i), expected[i]);
        CHECK_INT(specrt__verify_pick(v, 0.25 * i + 0.2499), expected[i]);
    }
    specrt_verifier_close(v);
}

/* Sums go by eight lanes, which are added pairwise: to the bit, and over nothing that lies behind. */
TEST(sum, "in lanes, to the bit") {
    float *x = (float *)calloc(9, sizeof *x), small = 0x1p-60f;
    x[0] = small, x[2] = 1, x[3] = -1;
    CHECK(specrt__verify_sum(x, 8) == (double)small);
    x[8] = 1; /* of the first lane */
    CHECK(specrt__verify_sum(x, 9) == 1 && specrt__verify_sum(x, 3) == 1);
    float *eight = (float *)realloc(x, 8 * sizeof *x);
    CHECK(specrt__verify_sum(eight, 8) == (double)small);
    free(eight);
}

TEST(page_end, "logits that end where a page does: nothing behind the last one is read") {
    static const int sizes[] = {1, 63, 1023, 1024, 1025, 5000};
    static const specrt_sampling filters[] = {{0, 0, 0, 0, 1, 1, 0},
                                              {1, 0, 0, 0, 1, 1, 0},
                                              {0.8f, 6, 0, 0, 2, 1, 0},
                                              {1, 0, 0.6f, 0, 3, 1, 0}};
    for (int size = 0; size < 6; size++)
        for (int f = 0; f < 4; f++) {
            int n = sizes[size];
            fixture_pages pages = fixture_pages_open((size_t)n * sizeof(float));
            float *logits = (float *)(void *)pages.bytes;
            for (int i = 0; i < n; i++) logits[i] = (float)(4 * random_real());
            specrt_verifier *v = create_verifier(n, n, &filters[f]);
            for (int k = 0; k < 3; k++) CHECK(specrt_verifier_draw(v, logits, k) < n);
            specrt_verifier_close(v);
            fixture_pages_close(&pages);
        }
}

/* Whether draws give the tokens from `first` to before `end`, and no other; each has an eighth at least. */
static void check_drawn(const specrt_sampling *s, const float *logits, int first, int end) {
    int seen[6] = {0};
    specrt_verifier *v = create_verifier(6, 6, s);
    for (int64_t at = 0; at < 200; at++) {
        int32_t drawn = specrt_verifier_draw(v, logits, at);
        REQUIRE(drawn >= 0 && drawn < 6);
        seen[drawn]++;
    }
    for (int i = 0; i < 6; i++) CHECK((seen[i] > 0) == (i >= first && i < end));
    specrt_verifier_close(v);
}

TEST(nucleus_edge, "where the running sum is the mass to the bit, the nucleus ends") {
    const specrt_sampling s = {1, 0, 0.5f, 0, 1, 1, 0};
    const specrt_sampling least = {1, 0, 0, 0.5f, 1, 1, 0}; /* of the best: those weigh as much */
    float logits[6];
    for (int first = 0; first < 5;
         first++) { /* weights of 1, 1 and four times 0.5; 2 of 4 are the mass */
        for (int i = 0; i < 6; i++) logits[i] = i == first || i == first + 1 ? 0 : (float)-log(2);
        check_drawn(&s, logits, first, first + 2);
        check_drawn(&least, logits, 0, 6);
    }
    for (int i = 0; i < 6; i++) logits[i] = i < 4 ? 0 : -INFINITY; /* two of four are the mass */
    check_drawn(&s, logits, 0, 2);
}

/* Rows with an infinite best: the greedy token, whatever the temperature. Rows that hold no distribution:
 * none. */
TEST(degenerate, "rows of NaN and infinities give the greedy token") {
    float logits[V];
    for (int k = 0; k < N_SETTINGS; k++) {
        specrt_verifier *v = create_verifier(V, V, &settings[k]);
        for (int i = 0; i < V; i++) logits[i] = -INFINITY;
        CHECK_INT(specrt_verifier_draw(v, logits, 1), -1);
        logits[9] = -1e30f;
        CHECK_INT(specrt_verifier_draw(v, logits, 2), 9);
        logits[4] = logits[6] = INFINITY;
        CHECK_INT(specrt_verifier_draw(v, logits, 3), 4);
        CHECK_INT(specrt_verifier_draw(v, logits, -1), -1);
        CHECK_INT(specrt_verifier_draw(v, NULL, 3), -1);
        CHECK_INT(specrt_verifier_draw(NULL, logits, 3), -1);
        specrt_verifier_close(v);
    }
}

/* One NaN anywhere, also behind the best token and beside others that are infinite, is found; behind the
 * vocabulary it is padding. */
TEST(nan, "NaN is refused wherever it is") {
    enum { N = 200, N_VOCAB = 190 };
    float logits[2 * N];
    const int32_t tokens[2] = {3, 4}, parents[2] = {-1, 0};
    const specrt_draft draft = {.n = 2, .tokens = tokens, .parents = parents};
    specrt_verdict verdict;
    for (int k = 0; k < N_SETTINGS; k++) {
        specrt_verifier *v = create_verifier(N, N_VOCAB, &settings[k]);
        for (int at = 0; at < N; at++)
            for (int others = 0; others < 3; others++) {
                for (int i = 0; i < 2 * N; i++) logits[i] = i % 3 || !others ? 0 : -INFINITY;
                logits[4] = logits[N + 9] = others == 2 ? INFINITY : 60;
                logits[N + at] = NAN;
                int32_t drawn = specrt_verifier_draw(v, logits + N, 5);
                CHECK_INT(drawn, at < N_VOCAB ? -1 : 9);
                CHECK_INT(specrt_verify_tree(v, &draft, logits, 5, &verdict),
                          at < N_VOCAB ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK);
                CHECK_INT(verdict.n, at < N_VOCAB ? 0 : 2);
            }
        specrt_verifier_close(v);
    }
}

TEST(padding, "columns behind the vocabulary are never emitted") {
    enum { N = 64, N_VOCAB = 50 };
    float padded[3 * N], plain[3 * N_VOCAB];
    const int32_t tokens[3] = {3, 4, 5}, parents[3] = {-1, 0, 0}, ids[1] = {4};
    const float certain[1] = {1};
    const specrt_draft draft = {.n = 3, .tokens = tokens, .parents = parents};
    const specrt_draft_distribution q = {1, ids, certain};
    specrt_verdict a, b;
    for (int i = 0; i < 3 * N; i++)
        padded[i] = i % N < N_VOCAB ? (float)(4 * random_real()) : i % 2 ? 1e9f : INFINITY;
    for (int i = 0; i < 3 * N_VOCAB; i++) plain[i] = padded[i / N_VOCAB * N + i % N_VOCAB];
    for (int k = -1; k < N_SETTINGS; k++) {
        const specrt_sampling *s = k < 0 ? NULL : &settings[k];
        specrt_verifier *wide, *narrow;
        wide = create_verifier(N, N_VOCAB, s);
        narrow = create_verifier(N_VOCAB, N_VOCAB, s);
        for (int64_t i = 0; i < 500; i++) {
            CHECK_INT(specrt_verifier_draw(wide, padded, i),
                      specrt_verifier_draw(narrow, plain, i));
            CHECK_INT(specrt_verify_tree(wide, &draft, padded, i, &a), SPECRT_STATUS_OK);
            CHECK_INT(specrt_verify_tree(narrow, &draft, plain, i, &b), SPECRT_STATUS_OK);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
            CHECK_INT(specrt_verify_chain(wide, tokens + 1, &q, 1, padded, i, &a),
                      SPECRT_STATUS_OK);
            CHECK_INT(specrt_verify_chain(narrow, tokens + 1, &q, 1, plain, i, &b),
                      SPECRT_STATUS_OK);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
        }
        specrt_verifier_close(wide);
        specrt_verifier_close(narrow);
    }
}

TEST(cold, "a temperature near 0 is greedy, not a division by zero") {
    const float temperatures[] = {1e-45f, 1e-38f, 1e-20f, 1e-5f};
    float logits[V] = {0};
    logits[12] = 1e-3f, logits[2] = -3e38f;
    for (int k = 0; k < 4; k++) {
        specrt_sampling s = {temperatures[k], 0, 0, 0, 1, 1, 0};
        specrt_verifier *v = create_verifier(V, V, &s);
        for (int64_t i = 0; i < 20; i++) CHECK_INT(specrt_verifier_draw(v, logits, i), 12);
        specrt_verifier_close(v);
    }
}

TEST(greedy, "ties to the lower id, NaN never") {
    float logits[V] = {0};
    specrt_verifier *v = create_verifier(V, V, NULL);
    CHECK_INT(specrt_verifier_draw(v, logits, 0), 0);
    logits[5] = logits[9] = 1;
    CHECK_INT(specrt_verifier_draw(v, logits, 3), 5);
    for (int i = 0; i < V; i++) logits[i] = i == 8 ? INFINITY : -INFINITY;
    CHECK_INT(specrt_verifier_draw(v, logits, 4), 8);
    specrt_verifier_close(v);
}

/* A target whose logits depend on the last two tokens, so that a wrong path shows. */
static void target(int32_t before, int32_t last, float *logits) {
    uint64_t saved = random_state;
    random_state = (uint64_t)(before * 131 + last + 1) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < V; i++) logits[i] = (float)(5 * random_real());
    random_state = saved;
}

/* A random tree under the last token; children of a node are distinct. */
static int random_tree(int32_t root, int32_t *tokens, int32_t *parents) {
    int n = 1 + (int)(random_real() * (SPECRT_TREE_MAX_NODES - 1));
    tokens[0] = root;
    parents[0] = -1;
    for (int i = 1; i < n; i++) {
        parents[i] = (int32_t)(random_real() * i);
        bool fresh;
        do {
            fresh = true;
            tokens[i] = (int32_t)(random_real() * V);
            for (int j = 1; j < i; j++)
                if (parents[j] == parents[i] && tokens[j] == tokens[i]) fresh = false;
            if (!fresh) parents[i] = (int32_t)(random_real() * i);
        } while (!fresh);
    }
    return n;
}

TEST(stream, "whatever is drafted, the stream is the one of plain decoding") {
    static float logits[SPECRT_TREE_MAX_NODES][V];
    for (int k = -1; k < N_SETTINGS; k++) {
        enum { LENGTH = 300 };
        int32_t plain[LENGTH + SPECRT_TREE_MAX_NODES] = {1, 2},
                               stream[LENGTH + SPECRT_TREE_MAX_NODES] = {1, 2};
        specrt_verdict verdict;
        int n_longer = 0;
        specrt_verifier *v = create_verifier(V, V, k < 0 ? NULL : &settings[k]);
        for (int n = 2; n < LENGTH; n++) {
            target(plain[n - 2], plain[n - 1], logits[0]);
            plain[n] = specrt_verifier_draw(v, logits[0], n);
        }
        for (int n = 2; n < LENGTH; n += verdict.n) {
            int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
            specrt_draft draft = {.n = random_tree(stream[n - 1], tokens, parents),
                                  .tokens = tokens,
                                  .parents = parents};
            for (int i = 0; i < draft.n; i++)
                target(i == 0 ? stream[n - 2] : tokens[parents[i]], tokens[i], logits[i]);
            REQUIRE(specrt_verify_tree(v, &draft, logits[0], n, &verdict) == SPECRT_STATUS_OK);
            REQUIRE(verdict.n >= 1 && verdict.nodes[0] == 0);
            for (int i = 1; i < verdict.n; i++) {
                CHECK_INT(parents[verdict.nodes[i]], verdict.nodes[i - 1]);
                CHECK_INT(tokens[verdict.nodes[i]], verdict.tokens[i - 1]);
            }
            memcpy(stream + n, verdict.tokens, (size_t)verdict.n * sizeof *stream);
            n_longer += verdict.n > 1;
        }
        CHECK(memcmp(plain, stream, sizeof(int32_t) * LENGTH) == 0);
        CHECK(n_longer > 5);
        specrt_verifier_close(v);
    }
}

/* ---- sampled chains ------------------------------------------------------------------------- */

TEST(propose, "q is the softmax over the list; its tokens come as often as q says") {
    enum { N = 40000 };
    const float temperatures[] = {1, 0.4f, 3};
    float logits[V], probs[V + 1];
    specrt_verifier *v = create_verifier(V, V, NULL);
    for (int i = 0; i < V; i++) logits[i] = (float)(4 * random_real());
    probs[V] = 7; /* behind the list */
    logits[0] = logits[10] = NAN;
    logits[V - 1] = -INFINITY;
    for (int k = 0; k < 3; k++) {
        int seen[V] = {0};
        double p[V];
        specrt_sampling s = {temperatures[k], 0, 0, 0, 0, 1, 0};
        distribution_of(logits, V, &s, p);
        for (int64_t i = 0; i < N; i++)
            seen[specrt_verifier_propose(v, logits, V, temperatures[k], i / 3, (int32_t)(i % 3),
                                         probs)]++;
        CHECK(distribution_holds(distribution_fit_of(seen, p, V, N)));
        for (int i = 0; i < V; i++) CHECK_NEAR((double)probs[i], p[i], 1e-6 * p[i]);
        CHECK(probs[V] == 7);
    }
    CHECK_INT(specrt_verifier_propose(v, logits, 1, 1, 0, 0, probs), -1);
    CHECK_INT(specrt_verifier_propose(v, logits, 0, 1, 0, 0, probs), -1);
    CHECK_INT(specrt_verifier_propose(v, logits, V, 0, 0, 0, probs), -1);
    CHECK_INT(specrt_verifier_propose(v, logits, V, NAN, 0, 0, probs), -1);
    logits[4] = logits[9] = INFINITY;
    CHECK_INT(specrt_verifier_propose(v, logits, V, 1, 0, 0, probs), 4);
    CHECK(probs[4] == 1 && probs[9] == 0 && probs[3] == 0);
    specrt_verifier_close(v);
}

/* Emissions of one drafted token and what follows, over many cycles: counts, and how many accepted. */
static int chain_counts(specrt_verifier *v, const float *draft_logits, const int32_t *ids,
                        int n_ids, const float *logits, int n, int *seen) {
    float probs[V];
    specrt_draft_distribution distribution = {n_ids, ids, probs};
    specrt_verdict verdict;
    int n_accepted = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t token = ids[specrt_verifier_propose(v, draft_logits, n_ids, 1, i, 0, probs)];
        REQUIRE(specrt_verify_chain(v, &token, &distribution, 1, logits, i, &verdict) ==
                SPECRT_STATUS_OK);
        if (verdict.n == 2) CHECK_INT(verdict.tokens[0], token);
        n_accepted += verdict.n == 2;
        seen[verdict.tokens[0]]++;
    }
    return n_accepted;
}

TEST(rejection, "what is emitted follows p; it is accepted as often as sum min(p, q) says") {
    enum { N = 40000, N_IDS = 9 };
    float logits[2 * V], draft_logits[N_IDS];
    int32_t ids[N_IDS];
    for (int i = 0; i < 2 * V; i++) logits[i] = (float)(4 * random_real());
    logits[2] = logits[5] = -INFINITY;
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = 2 * i;
        draft_logits[i] = 0.7f * logits[2 * i] + (float)random_real();
    }
    draft_logits[1] = 2; /* a token that the target excludes */
    draft_logits[3] = -INFINITY;
    for (int k = 0; k < N_SETTINGS; k++) {
        specrt_sampling plain = {1, 0, 0, 0, 0, 1, 0};
        double p[V], q[N_IDS], expected = 0;
        int seen[V] = {0};
        specrt_verifier *v = create_verifier(V, V, &settings[k]);
        distribution_of(logits, V, &settings[k], p);
        distribution_of(draft_logits, N_IDS, &plain, q);
        for (int i = 0; i < N_IDS; i++) expected += fmin(p[ids[i]], q[i]);
        int n_accepted = chain_counts(v, draft_logits, ids, N_IDS, logits, N, seen);
        CHECK(distribution_holds(distribution_fit_of(seen, p, V, N)));
        CHECK_NEAR((double)n_accepted / N, expected, 4.5 * sqrt(expected * (1 - expected) / N));
        specrt_verifier_close(v);
    }
}

/* p = q leaves nothing to reject; a greedy target and a row without a distribution work too; so does a list
 * that holds a token twice, if q says so. */
TEST(rejection_edges, "p = q, a token listed twice, greedy targets") {
    enum { N = 20000 };
    float logits[2 * V] = {0}, doubled[V + 2];
    int32_t ids[V + 2];
    int seen[V] = {0};
    double p[V];
    specrt_sampling s = {1, 0, 0, 0, 7, 1, 0}, greedy = {0, 0, 0, 0, 0, 1, 0};
    for (int i = 0; i < V; i++) {
        logits[i] = doubled[i] = (float)(3 * random_real());
        ids[i] = i;
    }
    doubled[V] = doubled[V + 1] = 1;
    ids[V] = ids[V + 1] = 5;
    specrt_verifier *v = create_verifier(V, V, &s);
    CHECK(chain_counts(v, logits, ids, V, logits, N, seen) >= N - 1);
    memset(seen, 0, sizeof seen);
    float probs[V + 2];
    specrt_draft_distribution distribution = {V + 2, ids, probs};
    specrt_verdict verdict;
    for (int64_t i = 0; i < N; i++) {
        int32_t token = ids[specrt_verifier_propose(v, doubled, V + 2, 1, i, 0, probs)];
        REQUIRE(specrt_verify_chain(v, &token, &distribution, 1, logits, i, &verdict) ==
                SPECRT_STATUS_OK);
        seen[verdict.tokens[0]]++;
    }
    distribution_of(logits, V, &s, p);
    CHECK(distribution_holds(distribution_fit_of(seen, p, V, N)));
    /* Rejected against a residual of nothing, which only rounding can bring about: p itself. */
    specrt__verify_distribution(v, logits);
    distribution = (specrt_draft_distribution){V, ids, probs};
    for (int i = 0; i < V; i++) probs[i] = (float)((double)v->weights[i] / v->total * 1.0001);
    CHECK(!specrt__verify_subtract(v, &distribution));
    for (int i = 0; i < V; i++)
        doubled[i] = i == V - 1 ? -26 : 0, probs[i] = i == V - 1 ? 0 : 0.05f;
    specrt__verify_distribution(v, doubled); /* e^-26 is left, of a total of 22 */
    CHECK(!specrt__verify_subtract(v, &distribution));
    specrt_verifier_close(v);
    v = create_verifier(V, V, &greedy);
    memset(seen, 0, sizeof seen);
    chain_counts(v, logits, ids, V, logits, 100, seen);
    CHECK_INT(seen[specrt_verifier_draw(v, logits, 0)], 100);
    for (int i = 0; i < V; i++) logits[i] = -INFINITY;
    specrt_verdict none;
    CHECK_INT(specrt_verify_chain(v, ids, NULL, 0, logits, 1, &none), SPECRT_STATUS_BAD_INPUT);
    CHECK_INT(none.n, 0);
    specrt_verifier_close(v);
}

/* Drafts without a root, with too many nodes, before the text; and the smallest and largest that are none
 * of these. */
TEST(refused_drafts, "no root, too many nodes, a negative position") {
    static float logits[(SPECRT_TREE_MAX_NODES + 1) * V];
    int32_t tokens[SPECRT_TREE_MAX_NODES + 1] = {0}, parents[SPECRT_TREE_MAX_NODES + 1];
    float probs[1] = {1};
    const int32_t ids[1] = {0};
    const specrt_draft_distribution distribution = {1, ids, probs};
    specrt_draft_distribution distributions[SPECRT_TREE_MAX_NODES];
    specrt_verdict verdict;
    for (int i = 0; i <= SPECRT_TREE_MAX_NODES; i++) parents[i] = i - 1;
    for (int i = 0; i < SPECRT_TREE_MAX_NODES; i++) distributions[i] = distribution;
    specrt_verifier *v = create_verifier(V, V, NULL);
    const struct {
        int32_t n;
        int64_t position;
        specrt_status status;
    } drafts[] = {{0, 1, SPECRT_STATUS_BAD_ARG},
                  {1, -1, SPECRT_STATUS_BAD_ARG},
                  {SPECRT_TREE_MAX_NODES + 1, 1, SPECRT_STATUS_BAD_ARG},
                  {1, 0, SPECRT_STATUS_OK},
                  {SPECRT_TREE_MAX_NODES, 0, SPECRT_STATUS_OK}};
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        specrt_draft draft = {.n = drafts[i].n, .tokens = tokens, .parents = parents};
        CHECK_INT(specrt_verify_tree(v, &draft, logits, drafts[i].position, &verdict),
                  drafts[i].status);
        CHECK_INT(verdict.n, drafts[i].status ? 0 : drafts[i].n); /* all tie, so 0 is drawn */
    }
    for (int32_t n = -1; n <= SPECRT_TREE_MAX_NODES; n++) {
        bool fits = n >= 0 && n < SPECRT_TREE_MAX_NODES;
        CHECK_INT(specrt_verify_chain(v, tokens, distributions, n, logits, 0, &verdict),
                  fits ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ARG);
        CHECK_INT(verdict.n, fits ? n + 1 : 0);
    }
    specrt_verifier_close(v);
}

TEST(before, "what lies before a draft is not of it, though it looks like the root's child") {
    float logits[2 * V] = {0};
    const int32_t tokens[3] = {4, 9, 4}, parents[3] = {0, -1, 0};
    const specrt_draft draft = {.n = 2, .tokens = tokens + 1, .parents = parents + 1};
    specrt_verdict verdict;
    logits[4] = 2;
    specrt_verifier *v = create_verifier(V, V, NULL);
    REQUIRE(!specrt_verify_tree(v, &draft, logits, 0, &verdict));
    CHECK_INT(verdict.n, 2);
    CHECK_INT(verdict.nodes[1], 1);
    specrt_verifier_close(v);
}

/* Distributions that are none: they do not sum to 1, name tokens that are not there, or give the drafted
 * token nothing. */
TEST(refused_distributions, "what is no distribution over the vocabulary") {
    float logits[2 * V] = {0};
    const struct {
        int32_t ids[2];
        float probs[2];
        specrt_status status;
    } distributions[] = {
        {{3, 4}, {0.5f, 0.5f}, SPECRT_STATUS_OK},
        {{3, 4}, {0.5f, 0.4f}, SPECRT_STATUS_BAD_ARG},
        {{3, 4}, {0.5f, 0.6f}, SPECRT_STATUS_BAD_ARG},
        {{3, 4}, {1.5f, -0.5f}, SPECRT_STATUS_BAD_ARG},
        {{3, 4}, {0, 1}, SPECRT_STATUS_BAD_ARG},
        {{3, -1}, {0.5f, 0.5f}, SPECRT_STATUS_BAD_ARG},
        {{3, V}, {0.5f, 0.5f}, SPECRT_STATUS_BAD_ARG},
        {{3, V - 1}, {0.5f, 0.5f}, SPECRT_STATUS_OK},
        {{3, 0}, {0.5f, 0.5f}, SPECRT_STATUS_OK},
        {{3, -1}, {1, 0}, SPECRT_STATUS_OK}, /* a masked row may stand for no token */
        {{3, INT32_MAX}, {1, 0}, SPECRT_STATUS_OK},
        {{3, 4}, {NAN, 0.5f}, SPECRT_STATUS_BAD_ARG}};
    specrt_verdict verdict;
    const int32_t token = 3;
    specrt_verifier *v = create_verifier(V, V, NULL);
    for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++) {
        const specrt_draft_distribution distribution = {2, distributions[i].ids,
                                                        distributions[i].probs};
        CHECK_INT(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict),
                  distributions[i].status);
    }
    specrt_verifier_close(v);
}

TEST(greedy_chain, "ties of a greedy target go to the lower id") {
    float logits[2 * V] = {0}, probs[1] = {1};
    const int32_t tied[2] = {4, 9};
    specrt_verdict verdict;
    logits[4] = logits[9] = 2;
    specrt_verifier *v = create_verifier(V, V, NULL);
    for (int i = 0; i < 2; i++) {
        const specrt_draft_distribution distribution = {1, &tied[i], probs};
        REQUIRE(!specrt_verify_chain(v, &tied[i], &distribution, 1, logits, i, &verdict));
        CHECK_INT(verdict.n, i == 0 ? 2 : 1);
        CHECK_INT(verdict.tokens[0], 4);
    }
    specrt_verifier_close(v);
}

TEST(refused, "settings that are no distribution are refused") {
    specrt_verifier *v;
    specrt_error err;
    const specrt_sampling bad[] = {{-1, 0, 0, 0, 0, 1, 0},     {NAN, 0, 0, 0, 0, 1, 0},
                                   {100.1f, 0, 0, 0, 0, 1, 0}, {1, -1, 0, 0, 0, 1, 0},
                                   {1, 0, 1.5f, 0, 0, 1, 0},   {1, 0, 0, 1, 0, 1, 0},
                                   {1, 0, NAN, 0, 0, 1, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(specrt_verifier_create(V, V, &bad[i], NULL, &v, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK(v == NULL);
    }
    CHECK(specrt_verifier_create(0, 0, NULL, NULL, &v, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_verifier_create(SPECRT_MAX_VOCAB + 1, SPECRT_MAX_VOCAB + 1, NULL, NULL, &v,
                                 &err) == SPECRT_STATUS_BAD_ARG);
    specrt_verifier_close(NULL);
    fixture_allocator a = {0};
    specrt_env env = fixture_desc(&a);
    const specrt_sampling hottest = {100, 0, 0, 0, 0, 1, 0};
    float logits[2] = {0, 0}, probs[2];
    REQUIRE(!specrt_verifier_create(2, 2, &hottest, &env, &v, NULL));
    CHECK(specrt_verifier_propose(v, logits, 2, 100, 0, 0, probs) >= 0);
    CHECK_INT(specrt_verifier_propose(v, logits, 2, 100.1f, 0, 0, probs), -1);
    CHECK_INT(a.n_live, 1);
    specrt_verifier_close(v);
    CHECK_INT(a.n_live, 0);
}
