/* test_verify.c : draws against the law written out in double, and draw-and-descend against plain
 * sampling. */
#define SPECRT_IMPLEMENTATION
#include "specrt.h"
#include "test.h"

static uint64_t random_state = 2463534242u;
static double random_real(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

enum { V = 23 };

static int by_probability(const void *a, const void *b) {
    const double *x = (const double *)a, *y = (const double *)b;
    if (x[0] != y[0]) return x[0] > y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : 1;
}

/* The sampling law [V], by the definition. */
static void law(const float *logits, const specrt_sampling *s, double *p) {
    double rows[V][2], total = 0, cut = 0, max = -INFINITY;
    int kept = s->top_k > 0 && s->top_k < V ? s->top_k : V;
    for (int i = 0; i < V; i++) max = fmax(max, (double)logits[i]);
    for (int i = 0; i < V; i++)
        rows[i][0] = exp(((double)logits[i] - max) / (double)s->temperature), rows[i][1] = i,
        p[i] = 0;
    qsort(rows, V, sizeof rows[0], by_probability);
    for (int i = 0; i < kept; i++) total += rows[i][0];
    for (int i = 0; i < kept; i++) {
        bool in_nucleus = s->top_p == 0 || s->top_p == 1 || cut < (double)s->top_p * total;
        cut += rows[i][0];
        if (in_nucleus && rows[i][0] >= (double)s->min_p) p[(int)rows[i][1]] = rows[i][0];
    }
    total = 0;
    for (int i = 0; i < V; i++) total += p[i];
    for (int i = 0; i < V; i++) p[i] /= total;
}

static const specrt_sampling settings[] = {
    {1, 0, 0, 0, 1, 0},    {0.7f, 0, 0, 0, 2, 0}, {1.5f, 5, 0, 0, 3, 0},
    {1, 0, 0.8f, 0, 4, 0}, {1, 0, 0, 0.1f, 5, 0}, {0.9f, 9, 0.9f, 0.05f, 6, 3},
    {1, 1, 0, 0, 7, 0},    {1, V, 1, 0, 8, 0},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

/* Chi-square over 40,000 positions, bound at about five standard deviations. */
static void test_law(void) {
    float logits[V];
    for (int i = 0; i < V; i++) logits[i] = (float)(4 * random_real());
    logits[3] = logits[11]; /* a tie */
    for (int k = 0; k < N_SETTINGS; k++) {
        enum { N = 40000 };
        double p[V], chi2 = 0;
        int seen[V] = {0}, free_cells = -1;
        specrt_verifier *v;
        REQUIRE(specrt_verifier_create(V, &settings[k], NULL, &v, NULL) == SPECRT_STATUS_OK);
        law(logits, &settings[k], p);
        for (int64_t i = 0; i < N; i++) seen[specrt_verifier_draw(v, logits, i)]++;
        for (int i = 0; i < V; i++) {
            if (p[i] == 0)
                CHECK_INT(seen[i], 0);
            else
                chi2 += (seen[i] - N * p[i]) * (seen[i] - N * p[i]) / (N * p[i]), free_cells++;
        }
        CHECK(chi2 < free_cells + 5 * sqrt(2.0 * free_cells) + 5);
        specrt_verifier_free(v);
    }
}

static void test_greedy(void) {
    specrt_verifier *v;
    float logits[V] = {0};
    REQUIRE(specrt_verifier_create(V, NULL, NULL, &v, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_verifier_draw(v, logits, 0), 0);
    logits[5] = logits[9] = 1;
    logits[0] = NAN;
    CHECK_INT(specrt_verifier_draw(v, logits, 3), 5);
    for (int i = 0; i < V; i++) logits[i] = i == 8 ? INFINITY : -INFINITY;
    CHECK_INT(specrt_verifier_draw(v, logits, 4), 8);
    specrt_verifier_free(v);
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

/* Whatever is drafted, the stream is the one of plain decoding. */
static void test_stream(void) {
    static float logits[SPECRT_TREE_MAX_NODES][V];
    for (int k = -1; k < N_SETTINGS; k++) {
        enum { LENGTH = 300 };
        int32_t plain[LENGTH + SPECRT_TREE_MAX_NODES] = {1, 2},
                               stream[LENGTH + SPECRT_TREE_MAX_NODES] = {1, 2};
        specrt_verifier *v;
        specrt_verdict verdict;
        int n_longer = 0;
        REQUIRE(specrt_verifier_create(V, k < 0 ? NULL : &settings[k], NULL, &v, NULL) ==
                SPECRT_STATUS_OK);
        for (int n = 2; n < LENGTH; n++) {
            target(plain[n - 2], plain[n - 1], logits[0]);
            plain[n] = specrt_verifier_draw(v, logits[0], n);
        }
        for (int n = 2; n < LENGTH; n += verdict.n) {
            int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
            specrt_draft draft = {
                random_tree(stream[n - 1], tokens, parents), tokens, parents, NULL, NULL, NULL};
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
        specrt_verifier_free(v);
    }
}

static void test_refused(void) {
    specrt_verifier *v;
    specrt_error err;
    const specrt_sampling bad[] = {{-1, 0, 0, 0, 0, 0}, {NAN, 0, 0, 0, 0, 0},
                                   {1, -1, 0, 0, 0, 0}, {1, 0, 1.5f, 0, 0, 0},
                                   {1, 0, 0, 1, 0, 0},  {1, 0, NAN, 0, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(specrt_verifier_create(V, &bad[i], NULL, &v, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK(v == NULL);
    }
    CHECK(specrt_verifier_create(0, NULL, NULL, &v, &err) == SPECRT_STATUS_BAD_ARG);
    specrt_verifier_free(NULL);
}

static const test_case cases[] = {
    {"law", "draws follow temperature, top-k, top-p and min-p", test_law},
    {"greedy", "ties to the lower id, NaN never", test_greedy},
    {"stream", "any draft leaves plain decoding's stream as it is", test_stream},
    {"refused", "settings that are no law are refused", test_refused},
};
TEST_MAIN(cases)
