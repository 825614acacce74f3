/* test_block.c : drafts of a block against brute force in double: which rows its positions score, what the
 * Markov head adds, and which tokens are chosen. */
#include "specrt/block.h"

/* --- which rows a block scores --- */

/* What each position would have alone, by a session without blocks. */
static void members_alone(const char *policy, const float *hidden, int32_t n, bool *members) {
    world w;
    const int32_t token = 9;
    const float no_path = 0;
    world_open(&w, BIASED, policy, (specrt_session_params){.tree = {N, 1, N + 1}});
    for (int32_t i = 0; i < n; i++) {
        specrt_beam beam = {1, &token, NULL, &no_path};
        root(w.s, token);
        add_members(specrt_session_route(w.s, 0, &beam, hidden + i * D, hidden + i * D), members);
    }
    world_close(&w);
}

TEST(union, "a union holds what each position would have") {
    static const char *const policies[] = {
        "sketch:16",
        "static:20+sketch:12",
        "centroid:2@schedule=flat",
        "centroid:1@schedule=flat@beam=per_row",
        "group:1@schedule=flat@cap=20+sketch:5",
        "centroid:1@schedule=flat@cap=20",
        "centroid:2@schedule=flat@cap=40",
        "cluster:1@schedule=flat",
        "static:30+window:64@min=40",
        "full",
    };
    float hidden[N * D];
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        bool expected[W1_ROWS] = {false}, found[W1_ROWS] = {false};
        int32_t each[N * 4];
        float logits[N * 4];
        world w;
        int n_expected = 0;
        fill(hidden, N * D, 1);
        members_alone(policies[p], hidden, N, expected);
        for (int i = 0; i < W1_ROWS; i++) n_expected += expected[i];
        world_open(&w, BIASED, policies[p], chain);
        root(w.s, 9);
        REQUIRE(!specrt_session_block_topk(w.s, hidden, hidden, N, 4, each, logits));
        int n = add_members(specrt_session_shortlist(w.s), found);
        for (int i = 0; i < W1_ROWS; i++)
            if (found[i] != expected[i]) fprintf(stderr, "%s: token %d\n", policies[p], i);
        CHECK(memcmp(found, expected, sizeof found) == 0);
        CHECK_INT(n, n_expected); /* none twice */
        world_close(&w);
    }
}

TEST(follow, "the tokens that follow the 8 best of each position but the last, and the root") {
    static const char *const text = "static:30+successor:64";
    specrt_cograph graph;
    float hidden[N * D], logits[N * 4];
    int32_t each[N * 4];
    const int32_t *next;
    const float *counts;
    specrt_session_stats stats;
    for (int turn = 0; turn < 20; turn++) {
        bool first[W1_ROWS] = {false}, expected[W1_ROWS] = {false}, found[W1_ROWS] = {false};
        world w;
        world_open(&w, turn % 2 ? MARKOV : PLAIN, text, chain);
        REQUIRE(!specrt_bundle_cograph(bundle, &graph, NULL));
        fill(hidden, N * D, 1);
        root(w.s, 10 + turn);
        add_members(specrt_session_shortlist(w.s), first);
        for (int n = specrt_cograph_successors(&graph, 10 + turn, &next, &counts); n-- > 0;)
            first[next[n]] = true;
        memcpy(expected, first, sizeof expected);
        for (int i = 0; i + 1 < N; i++) {
            double p[W1_ROWS];
            logprobs_of(&w, first, hidden + i * D, -1, 1, p);
            for (int k = 0; k < N; k++) { /* as many tokens as positions, up to 8 */
                int32_t best = best_of(p, W1_ROWS);
                p[best] = -INFINITY;
                for (int n = specrt_cograph_successors(&graph, best, &next, &counts); n-- > 0;)
                    expected[next[n]] = true;
            }
        }
        REQUIRE(!specrt_session_block_topk(w.s, hidden, NULL, N, 4, each, logits));
        int32_t n_rows = add_members(specrt_session_shortlist(w.s), found);
        CHECK(memcmp(found, expected, sizeof found) == 0);
        specrt_session_get_stats(w.s, &stats);
        CHECK_INT(stats.n_bytes, (int64_t)n_rows * D * 4); /* each row once */
        for (int i = 0; i < N; i++) {
            double p[W1_ROWS];
            for (int32_t id = 0; id < W1_ROWS; id++)
                p[id] = expected[id] ? logit_of(&w, id, hidden + i * D, -1) : -INFINITY;
            CHECK_INT(each[i * 4], best_of(p, W1_ROWS));
            CHECK_NEAR((double)logits[i * 4], p[each[i * 4]], 1e-4);
        }
        world_close(&w);
    }
}

/* --- chains --- */

/* A greedy chain by the definition, over these rows. @return its tokens. */
static int expect_chain(const world *w, const bool *members, const float *hidden, int32_t n,
                        int32_t previous, int32_t *out, double *logprob) {
    *logprob = 0;
    for (int i = 0; i < n; i++) {
        double p[W1_ROWS];
        logprobs_of(w, members, hidden + i * D, previous, 1, p);
        previous = out[i] = best_of(p, W1_ROWS);
        *logprob += p[previous];
    }
    return n;
}

TEST(chain, "a chain takes the best, bias included") {
    static const struct {
        const char *policy;
        int kind;
    } settings[] = {
        {"full", PLAIN},
        {"full", MARKOV | BIASED | SHAPED},
        {"full", MARKOV | OF_IDS},
        {"static:14", MARKOV | OF_IDS | BIASED},
        {"static:40", MARKOV},
        {"static:30+window:64@min=40", MARKOV | SHAPED},
        {"sketch:16", MARKOV | BIASED},
        {"static:20+successor:16", MARKOV},
        {"centroid:2+sketch:6+successor:8", MARKOV | SHAPED},
    };
    float hidden[N * D];
    for (size_t p = 0; p < sizeof settings / sizeof *settings; p++) {
        world w;
        specrt_draft draft;
        world_open(&w, settings[p].kind, settings[p].policy, chain);
        for (int turn = 0; turn < 10; turn++) {
            bool members[W1_ROWS] = {false};
            int32_t tokens[N], previous = 5 + turn, n = 1 + turn % N;
            double logprob;
            specrt_block block = {.n = n, .hidden = hidden};
            fill(hidden, N * D, 0.6f);
            root(w.s, previous);
            check_draft_block(w.s, &block, &draft);
            add_members(specrt_session_shortlist(w.s), members);
            expect_chain(&w, members, hidden, n, previous, tokens, &logprob);
            REQUIRE(draft.n == n + 1);
            for (int i = 0; i < n; i++) {
                CHECK_INT(draft.tokens[i + 1], tokens[i]);
                CHECK_INT(draft.parents[i + 1], i);
            }
            CHECK_NEAR((double)draft.logprobs[n], logprob, 1e-3);
        }
        world_close(&w);
    }
}

/* Lists by position are those of a chain whose passes give the same states, one after the other. */
TEST(position, "lists by position are a chain's") {
    static const char *const policies[] = {"static:30+successor:8+sketch:6", "centroid:2",
                                           "static:12/24/36+window:64@min=40",
                                           "cluster:2@beam=per_row", "full"};
    float hidden[N * D], states[TOPK * D];
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int shape = 0; shape < 2; shape++) {
            specrt_session_params params = chain;
            world a, b;
            if (shape) params.tree = (specrt_tree_params){N, 4, 20};
            world_open(&a, MARKOV | BIASED, policies[p], params);
            world_open(&b, MARKOV | BIASED, policies[p], params);
            for (int turn = 0; turn < 4; turn++) {
                specrt_block block = {.n = N, .hidden = hidden, .input = hidden, .by_position = 1};
                specrt_draft drafted, passed;
                specrt_beam beam;
                specrt_session_stats x, y;
                fill(hidden, N * D, 0.6f);
                root(a.s, 40 + turn);
                root(b.s, 40 + turn);
                int32_t n_kept = specrt_session_shortlist(a.s)->n_rows;
                check_draft_block(a.s, &block, &drafted);
                REQUIRE(!specrt_session_get_beam(b.s, &beam));
                for (int i = 0; beam.n > 0; i++) {
                    for (int r = 0; r < beam.n; r++)
                        memcpy(states + r * D, hidden + i * D, D * sizeof *states);
                    REQUIRE(!specrt_session_expand(b.s, states, states, beam.n, &beam));
                }
                REQUIRE(!specrt_session_finish(b.s, &passed));
                REQUIRE(drafted.n == passed.n);
                CHECK(!memcmp(drafted.tokens, passed.tokens, 4 * (size_t)passed.n));
                CHECK(!memcmp(drafted.parents, passed.parents, 4 * (size_t)passed.n));
                CHECK(!memcmp(drafted.logprobs, passed.logprobs, 4 * (size_t)passed.n));
                REQUIRE(!specrt_session_observe_chain(a.s, drafted.tokens, 1, 0, 7, NULL));
                REQUIRE(!specrt_session_observe_chain(b.s, passed.tokens, 1, 0, 7, NULL));
                specrt_session_get_stats(a.s, &x);
                specrt_session_get_stats(b.s, &y);
                CHECK_INT(x.n_passes, y.n_passes);
                CHECK_INT(x.n_rows, y.n_rows);
                /* rows of all passes are read once */
                CHECK_INT(y.n_bytes - x.n_bytes, (int64_t)(x.n_passes - 1) * n_kept * D * 4);
            }
            world_close(&a);
            world_close(&b);
        }
}

/* --- trees --- */

typedef struct path {
    double logprob;
    int32_t tokens[N], n;
} path;

static int by_logprob(const void *a, const void *b) {
    double x = ((const path *)a)->logprob, y = ((const path *)b)->logprob;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* All paths of up to n tokens over the 8 best of every position, best first. @return how many. */
static int all_paths(const world *w, const bool *members, const float *hidden, int n, int32_t first,
                     path *out) {
    int n_out = 1;
    out[0] = (path){0};
    for (int at = 0; at < n_out; at++) {
        double p[W1_ROWS];
        path from = out[at];
        if (from.n == n) continue;
        logprobs_of(w, members, hidden + from.n * D, from.n ? from.tokens[from.n - 1] : first, 1,
                    p);
        for (int k = 0; k < TOPK; k++) {
            int32_t best = best_of(p, W1_ROWS);
            path *to = &out[n_out++];
            *to = from;
            to->tokens[to->n++] = best;
            to->logprob += p[best];
            p[best] = -INFINITY;
        }
    }
    qsort(out + 1, (size_t)n_out - 1, sizeof *out, by_logprob);
    return n_out;
}

/* The tokens from the root to a node. */
static path path_to(const specrt_draft *draft, int32_t node) {
    path p = {.n = draft->depths[node]};
    for (int32_t i = node; i > 0; i = draft->parents[i])
        p.tokens[draft->depths[i] - 1] = draft->tokens[i];
    return p;
}

/* Where a beam is as wide as the tree has nodes, its nodes are the most probable of all paths. */
TEST(tree, "a tree keeps the most probable nodes") {
    enum { DEEP = 3, NODES = TOPK + 1, PATHS = 1 + 8 + 64 + 512 };
    static path paths[PATHS];
    static const char *const policies[] = {"static:40", "sketch:16", "static:20+successor:8"};
    float hidden[DEEP * D];
    for (int turn = 0; turn < 24; turn++) {
        bool members[W1_ROWS] = {false};
        specrt_session_params params = {.tree = {DEEP, TOPK, NODES}, .n_block = DEEP};
        specrt_block block = {.n = DEEP, .hidden = hidden};
        specrt_draft draft;
        world w;
        world_open(&w, turn % 2 ? MARKOV : PLAIN, policies[turn % 3], params);
        fill(hidden, DEEP * D, 0.5f);
        root(w.s, 11 + turn);
        check_draft_block(w.s, &block, &draft);
        add_members(specrt_session_shortlist(w.s), members);
        int n = all_paths(&w, members, hidden, DEEP, 11 + turn, paths);
        REQUIRE(draft.n == NODES);
        for (int32_t node = 1; node < NODES; node++) {
            path found = path_to(&draft, node);
            int at = 1;
            while (at < n && (paths[at].n != found.n ||
                              memcmp(paths[at].tokens, found.tokens, 4 * (size_t)found.n) != 0))
                at++;
            REQUIRE(at < n);
            CHECK(paths[at].logprob >= paths[NODES - 1].logprob - 1e-5);
            CHECK_NEAR((double)draft.logprobs[node], paths[at].logprob, 1e-3);
        }
        world_close(&w);
    }
}

/* --- sampled drafts --- */

static const specrt_sampling warm = {.temperature = 0.8f, .seed = 1, .session = 1};

/* What verification is shown is the distribution with the bias, over the rows that were scored. */
TEST(sampled, "distributions of samples are kept") {
    static const char *const policies[] = {"static:40", "sketch:16", "static:14+successor:16"};
    float hidden[N * D];
    for (int turn = 0; turn < 30; turn++) {
        bool members[W1_ROWS] = {false};
        specrt_session_params params = chain;
        specrt_block block = {.n = N, .hidden = hidden};
        specrt_draft draft;
        world w;
        params.draft = SPECRT_DRAFT_SAMPLED;
        params.sampling = warm;
        world_open(&w, MARKOV | BIASED, policies[turn % 3], params);
        fill(hidden, N * D, 0.5f);
        root(w.s, 11 + turn);
        check_draft_block(w.s, &block, &draft);
        add_members(specrt_session_shortlist(w.s), members);
        REQUIRE(draft.n == N + 1);
        for (int i = 0; i < N; i++) {
            const specrt_draft_distribution *q = &w.s->distributions[i];
            double p[W1_ROWS], found[W1_ROWS] = {0};
            logprobs_of(&w, members, hidden + i * D, draft.tokens[i], (double)warm.temperature, p);
            for (int32_t j = 0; j < q->n; j++) found[q->ids[j]] += (double)q->probs[j];
            for (int32_t id = 0; id < W1_ROWS; id++) CHECK_NEAR(found[id], exp(p[id]), 1e-5);
        }
        world_close(&w);
    }
}

/* --- confidence --- */

TEST(confidence, "a path ends where confidence does") {
    float hidden[N * D], confidence[D + RANK];
    int n_cut = 0;
    for (int turn = 0; turn < 60; turn++) {
        bool tree = turn % 3 == 2;
        specrt_session_params params = chain;
        world w;
        specrt_draft draft;
        if (tree) params.tree = (specrt_tree_params){N, 3, 30};
        world_open(&w, turn % 2 ? MARKOV : PLAIN, "static:40", params);
        fill(hidden, N * D, 0.5f);
        fill(confidence, D + RANK, 0.25f);
        specrt_block block = {.n = N,
                              .hidden = hidden,
                              .p_min = 0.4f,
                              .confidence = confidence,
                              .confidence_bias = 0.3f};
        root(w.s, 11 + turn);
        check_draft_block(w.s, &block, &draft);
        CHECK(tree || draft.n <= N + 1);
        for (int32_t node = 0; node < draft.n; node++) { /* whether it is trusted to go on */
            int at = draft.depths[node], has_child = 0;
            double x = 0.3;
            for (int32_t i = node + 1; i < draft.n; i++) has_child |= draft.parents[i] == node;
            if (at == N) continue;
            for (int j = 0; j < D; j++) x += (double)confidence[j] * (double)hidden[at * D + j];
            for (int j = 0; j < RANK && turn % 2; j++)
                x += (double)confidence[D + j] * (double)w1[draft.tokens[node] * RANK + j];
            bool trusted = 1 / (1 + exp(-x)) >= (double)block.p_min;
            CHECK(trusted || !has_child);
            CHECK(tree || has_child == trusted);
            n_cut += !trusted;
        }
        world_close(&w);
    }
    CHECK(n_cut > 20);
}

TEST(probability, "without weights it is the chain's probability that ends it") {
    float hidden[N * D];
    world w;
    specrt_draft draft;
    world_open(&w, MARKOV, "static:40", chain);
    for (int turn = 0; turn < 20; turn++) {
        specrt_block block = {.n = N, .hidden = hidden, .p_min = 0.2f};
        fill(hidden, N * D, 0.7f);
        root(w.s, 11 + turn);
        check_draft_block(w.s, &block, &draft);
        REQUIRE(draft.n > 1);
        for (int32_t i = 1; i < draft.n; i++)
            CHECK((i + 1 < draft.n) == (draft.logprobs[i] >= logf(0.2f) && i < N));
    }
    world_close(&w);
}

/* --- the application's selector --- */

/* The best of k candidates by the definition; -1: none is left. */
static int32_t judged_best(const selector *s, int position, int32_t previous, int k) {
    double p[W1_ROWS], most = -INFINITY;
    int32_t best = -1;
    for (int32_t id = 0; id < W1_ROWS; id++)
        p[id] = s->members[id] ? logit_of(s->w, id, s->hidden + position * D, previous) : -INFINITY;
    for (int i = 0; i < k; i++) {
        int32_t id = best_of(p, W1_ROWS);
        double x = p[id] + gain(previous, id);
        p[id] = -INFINITY;
        if ((s->removes && id % 4) || x <= most) continue;
        most = x;
        best = id;
    }
    return best;
}

TEST(selector, "the application chooses of k") {
    float hidden[N * D];
    int n_short = 0;
    for (int turn = 0; turn < 30; turn++) {
        bool members[W1_ROWS] = {false}, sampled = turn % 3 == 1, tree = turn % 3 == 2;
        specrt_session_params params = chain;
        world w;
        specrt_draft draft;
        if (sampled) params.draft = SPECRT_DRAFT_SAMPLED, params.sampling = warm;
        if (tree) params.tree = (specrt_tree_params){N, 3, 30};
        world_open(&w, turn % 2 ? MARKOV : PLAIN, "static:40", params);
        fill(hidden, N * D, 0.5f);
        root(w.s, 11 + turn);
        add_members(specrt_session_shortlist(w.s), members);
        selector s = {&w, members, hidden, .removes = turn % 4 == 3};
        specrt_block block = {.n = N, .hidden = hidden, .select = judge, .user = &s, .k = 5};
        check_draft_block(w.s, &block, &draft);
        for (int32_t i = 0; i < draft.n && !tree && !sampled; i++) {
            int32_t best = i < N ? judged_best(&s, i, draft.tokens[i], 5) : -1;
            CHECK_INT(i + 1 < draft.n ? draft.tokens[i + 1] : -1, best);
            n_short += i < N && best < 0;
        }
        for (int32_t i = 0; i + 1 < draft.n && sampled; i++) {
            const specrt_draft_distribution *q = &w.s->distributions[i];
            double sum = 0, part = 0;
            CHECK(q->n >= 1 && q->n <= 5);
            for (int32_t j = 0; j < q->n; j++) {
                double x = logit_of(&w, q->ids[j], hidden + i * D, draft.tokens[i]);
                double e = exp((x + gain(draft.tokens[i], q->ids[j])) / (double)warm.temperature);
                sum += e;
                if (j == 0) part = e;
            }
            CHECK_NEAR((double)q->probs[0], part / sum, 1e-4);
        }
        CHECK(!tree || s.removes || draft.n > N);
        world_close(&w);
    }
    CHECK(n_short > 0);
}

/* --- the best tokens, for trees of your own --- */

TEST(topk, "the best tokens are those of brute force") {
    enum { K = 16 };
    static const char *const policies[] = {"full", "sketch:32", "static:5", "centroid:2"};
    float hidden[N * D], logits[N * K];
    int32_t found[N * K];
    for (int turn = 0; turn < 24; turn++) {
        bool members[W1_ROWS] = {false};
        int32_t n = 1 + turn % N;
        world w;
        world_open(&w, turn % 8 < 4 ? BIASED : BIASED | MARKOV | SHAPED, policies[turn % 4], chain);
        fill(hidden, N * D, 0.5f);
        root(w.s, 11 + turn);
        REQUIRE(!specrt_session_block_topk(w.s, hidden, hidden, n, K, found, logits));
        int n_members = add_members(specrt_session_shortlist(w.s), members);
        for (int i = 0; i < n; i++) {
            double p[W1_ROWS];
            for (int32_t id = 0; id < W1_ROWS; id++)
                p[id] = members[id] ? logit_of(&w, id, hidden + i * D, -1) : -INFINITY;
            for (int k = 0; k < K; k++) {
                int32_t id = found[i * K + k], best = best_of(p, W1_ROWS);
                CHECK_INT(id, k < n_members ? best : -1);
                if (k < n_members)
                    CHECK_NEAR((double)logits[i * K + k], p[best], 1e-4);
                else
                    CHECK(logits[i * K + k] == -INFINITY);
                p[best] = -INFINITY;
            }
        }
        /* A chain of your own of them is learned from as any other. */
        const int32_t own[] = {11 + turn, found[0]};
        specrt_session_stats stats;
        REQUIRE(!specrt_session_finish(w.s, NULL));
        REQUIRE(!specrt_session_observe_chain(w.s, own, 2, 1, 3, NULL));
        specrt_session_get_stats(w.s, &stats);
        CHECK_INT(stats.n_covered, 1 + (members[3] != 0));
        world_close(&w);
    }
}
