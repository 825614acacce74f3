/* test_tree.c : trees against a brute-force EAGLE-2 expansion, forced ties included. */
#include "specrt.h"
#include "fixture.h"
#include "test.h"

static uint64_t random_state = 88172645463325252u;
static uint32_t random_below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

/* The oracle keeps every node ever proposed and sorts. */
enum { MAX_NODES = 2048 };
typedef struct oracle_node {
    int token, parent, depth, index;
    float logprob;
    int beam_row; /* -1: no pass had it */
} oracle_node;

static int by_rank(const void *a, const void *b) {
    const oracle_node *x = (const oracle_node *)a, *y = (const oracle_node *)b;
    if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
    return x->index - y->index;
}

static int by_index(const void *a, const void *b) {
    return ((const oracle_node *)a)->index - ((const oracle_node *)b)->index;
}

/* A row's proposals: distinct tokens, falling log-probabilities, many of them equal or zero. */
static void propose(int k, int32_t *ids, float *logprobs) {
    float x = 0;
    for (int j = 0; j < k; j++) {
        ids[j] = (int32_t)(random_below(1000) * (uint32_t)k) + j;
        x -= 0.5f * (float)random_below(3);
        logprobs[j] = x;
    }
}

static void check_finished(const specrt_draft *draft, const oracle_node *nodes, int n,
                           int n_draft) {
    static oracle_node best[MAX_NODES];
    memcpy(best, nodes, (size_t)n * sizeof *best);
    qsort(best, (size_t)n, sizeof *best, by_rank);
    if (n > n_draft - 1) n = n_draft - 1;
    qsort(best, (size_t)n, sizeof *best, by_index);
    REQUIRE(draft->n == n + 1);
    for (int i = 1; i <= n; i++) {
        const oracle_node *node = &best[i - 1];
        int parent = draft->parents[i];
        REQUIRE(parent >= 0 && parent < i);
        CHECK_INT(draft->tokens[i], node->token);
        CHECK_INT(draft->depths[i], node->depth);
        CHECK(draft->logprobs[i] == node->logprob);
        CHECK_INT(draft->beam_rows[i], node->beam_row);
        CHECK_INT(parent == 0 ? -1 : best[parent - 1].index, node->parent);
        CHECK(draft->masks[i] == (draft->masks[parent] | (uint64_t)1 << i));
    }
}

/* n_steps : passes that there are, of params.num_steps that there might be */
static void run_random(specrt_tree_params params, int k, int n_steps) {
    static oracle_node nodes[MAX_NODES], level[MAX_NODES];
    int32_t ids[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    float logprobs[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    specrt_tree *tree;
    specrt_beam beam;
    specrt_draft draft;
    REQUIRE(specrt_tree_create(&params, NULL, &tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(tree, 7);
    int n = 0, n_rows = 1, rows[SPECRT_TREE_MAX_TOPK] = {-1};
    for (int step = 0; step < n_steps; step++) {
        int first = n;
        for (int r = 0; r < n_rows; r++) {
            propose(k, ids + r * k, logprobs + r * k);
            for (int j = 0; j < k; j++, n++)
                nodes[n] =
                    (oracle_node){ids[r * k + j],
                                  rows[r],
                                  step + 1,
                                  n,
                                  (rows[r] < 0 ? 0 : nodes[rows[r]].logprob) + logprobs[r * k + j],
                                  -1};
            if (step > 0) nodes[rows[r]].beam_row = r;
        }
        REQUIRE(specrt_tree_expand(tree, ids, logprobs, n_rows, k, &beam) == SPECRT_STATUS_OK);
        memcpy(level, nodes + first, (size_t)(n - first) * sizeof *level);
        qsort(level, (size_t)(n - first), sizeof *level, by_rank);
        n_rows = n - first < params.topk ? n - first : params.topk;
        if (step + 1 == params.num_steps) n_rows = 0;
        REQUIRE(beam.n == n_rows);
        for (int r = 0; r < n_rows; r++) {
            rows[r] = level[r].index;
            CHECK_INT(beam.tokens[r], level[r].token);
            CHECK_INT(beam.parents[r], (level[r].index - first) / k);
            CHECK(beam.logprobs[r] == level[r].logprob);
        }
    }
    specrt_tree_finish(tree, &draft);
    CHECK_INT(draft.tokens[0], 7);
    CHECK_INT(draft.parents[0], -1);
    CHECK_INT(draft.beam_rows[0], n_steps ? 0 : -1);
    check_finished(&draft, nodes, n, params.num_draft_tokens);
    specrt_tree_close(tree);
}

TEST(random, "beams and trees equal a brute-force sort, under many ties") {
    for (int i = 0; i < 300; i++) {
        specrt_tree_params p = {1 + (int32_t)random_below(7), 1 + (int32_t)random_below(10),
                                2 + (int32_t)random_below(63)};
        int k = 1 + (int)random_below((uint32_t)p.topk);
        run_random(p, k, i % 3 ? p.num_steps : (int)random_below((uint32_t)p.num_steps + 1));
    }
    run_random((specrt_tree_params){6, 10, 60}, 10, 6);
    run_random((specrt_tree_params){4, 8, 32}, 8, 4);
}

TEST(chain, "topk = 1 is a chain") {
    specrt_tree_params chain = {4, 1, 5};
    specrt_tree *tree;
    specrt_beam beam;
    specrt_draft draft;
    REQUIRE(specrt_tree_create(&chain, NULL, &tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(tree, 100);
    for (int32_t step = 0; step < 4; step++) {
        float logprob = -0.5f;
        int32_t id = 200 + step;
        REQUIRE(specrt_tree_expand(tree, &id, &logprob, 1, 1, &beam) == SPECRT_STATUS_OK);
        CHECK_INT(beam.n, step < 3);
        if (beam.n) CHECK_INT(beam.tokens[0], id);
    }
    specrt_tree_finish(tree, &draft);
    REQUIRE(draft.n == 5);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(draft.parents[i], i - 1);
        CHECK_INT(draft.masks[i], (1 << (i + 1)) - 1);
        CHECK_INT(draft.beam_rows[i], i < 4 ? 0 : -1); /* the last was not fed to a pass */
    }
    specrt_tree_close(tree);
}

TEST(extremes, "impossible proposals are never drafted, and certain ones never lose their parent") {
    specrt_tree_params p = {3, 2, 3};
    specrt_tree *tree;
    specrt_beam beam;
    specrt_draft draft;
    const int32_t ids[4] = {1, 2, 3, 4};
    const float none[4] = {-INFINITY, NAN, -INFINITY, NAN}, certain[4] = {1e-7f, 0, 1e-7f, 0};
    REQUIRE(specrt_tree_create(&p, NULL, &tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(tree, 9);
    REQUIRE(specrt_tree_expand(tree, ids, none, 1, 2, &beam) == SPECRT_STATUS_OK);
    CHECK_INT(beam.n, 0);
    specrt_tree_finish(tree, &draft);
    CHECK_INT(draft.n, 1);
    specrt_tree_begin(tree, 9);
    REQUIRE(specrt_tree_expand(tree, NULL, NULL, 1, 0, &beam) == SPECRT_STATUS_OK);
    CHECK_INT(beam.n, 0);
    specrt_tree_finish(tree, &draft);
    CHECK_INT(draft.n, 1);
    specrt_tree_begin(tree, 9);
    REQUIRE(specrt_tree_expand(tree, ids, certain, 1, 2, &beam) == SPECRT_STATUS_OK);
    REQUIRE(specrt_tree_expand(tree, ids, certain, 2, 2, &beam) == SPECRT_STATUS_OK);
    REQUIRE(specrt_tree_expand(tree, ids, certain, 2, 2, &beam) == SPECRT_STATUS_OK);
    specrt_tree_finish(tree, &draft);
    REQUIRE(draft.n == 3);
    CHECK_INT(draft.parents[1], 0);
    CHECK_INT(draft.parents[2], 0);
    CHECK(specrt_tree_expand(tree, ids, certain, 2, 2, &beam) == SPECRT_STATUS_BAD_ARG);
    specrt_tree_close(tree);
}

TEST(forced_ties, "where all tie, the earliest nodes are kept with their parents") {
    enum { K = 10 };
    int32_t ids[K * K];
    const float certain[K * K] = {0};
    specrt_tree *tree;
    specrt_beam beam;
    specrt_draft draft;
    for (int i = 0; i < K * K; i++) ids[i] = i;
    REQUIRE(specrt_tree_create(NULL, NULL, &tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(tree, 7);
    for (int32_t step = 0, n = 1; step < 6; step++, n = K) {
        REQUIRE(specrt_tree_expand(tree, ids, certain, n, K, &beam) == SPECRT_STATUS_OK);
        for (int32_t i = 0; i < beam.n; i++) CHECK_INT(beam.parents[i], 0);
    }
    specrt_tree_finish(tree, &draft);
    REQUIRE(draft.n == 60);
    for (int32_t i = 1; i < 60; i++) {
        CHECK_INT(draft.parents[i], i <= K ? 0 : (i - K - 1) / K + 1);
        CHECK_INT(draft.depths[i], i <= K ? 1 : 2);
    }
    specrt_tree_close(tree);
}

TEST(limits, "bad sizes are refused, defaults are EAGLE-2's") {
    specrt_tree *tree;
    specrt_error err;
    const specrt_tree_params bad[] = {{33, 1, 2}, {-1, 1, 2}, {6, 65, 60}, {6, 10, 65}, {6, 10, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(specrt_tree_create(&bad[i], NULL, &tree, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK(strstr(err.msg, "expected") != NULL);
    }
    REQUIRE(specrt_tree_create(NULL, NULL, &tree, &err) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_tree_get_params(tree)->num_steps, 6);
    CHECK_INT(specrt_tree_get_params(tree)->topk, 10);
    CHECK_INT(specrt_tree_get_params(tree)->num_draft_tokens, 60);
    specrt_tree_close(tree);
    for (int i = 0; i < 3; i++) { /* the greatest of each that is accepted */
        const specrt_tree_params most[] = {{SPECRT_TREE_MAX_STEPS, 1, 2},
                                           {1, SPECRT_TREE_MAX_TOPK, 2},
                                           {1, 1, SPECRT_TREE_MAX_NODES}};
        CHECK_INT(specrt_tree_create(&most[i], NULL, &tree, &err), SPECRT_STATUS_OK);
        specrt_tree_close(tree);
    }
    specrt_tree_close(NULL);
}

/* Rows that are not the beam's, more proposals a row than topk, and a level too many. */
TEST(refused, "rows that are no beam, and levels that are too many") {
    const specrt_tree_params p = {2, 3, 10};
    const int32_t ids[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float logprobs[12] = {0};
    specrt_tree *tree;
    specrt_beam beam;
    fixture_allocator allocator = {0, 0, 0};
    specrt_env env = fixture_desc(&allocator);
    REQUIRE(specrt_tree_create(&p, &env, &tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(tree, 7);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 2, 3, &beam), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 1, 4, &beam), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 1, -1, &beam), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 1, 3, &beam), SPECRT_STATUS_OK);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 2, 3, &beam), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 3, 3, &beam), SPECRT_STATUS_OK);
    CHECK_INT(beam.n, 0);
    CHECK_INT(specrt_tree_expand(tree, ids, logprobs, 0, 3, &beam), SPECRT_STATUS_BAD_ARG);
    specrt_tree_close(tree);
    CHECK_INT(allocator.n_live, 0);
}
