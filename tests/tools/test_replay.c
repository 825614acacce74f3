/* test_replay.c : the estimator of specrt-eval replay: which nodes smaller trees have, walks, intervals; and
 * what is told where a worker fails. That whole runs are replayed exactly is tests/cli/eval_replay.sh. */
#include "tools/specrt-eval/replay/impl.h"
#include "tools/specrt-eval/shared/eval.h"
#include "opened.h"

enum { TOPK = 5, STEPS = 5, NODES = 40, DRAFT = 12 };

/* --- trees --- */

/* A drafter whose proposals depend on the path alone. */
static void propose(uint64_t path, int32_t *ids, float *logprobs, int k) {
    uint64_t state = path * 0x9e3779b97f4a7c15u + 11;
    double sum = 0, weights[DRAFT];
    for (int j = 0; j < DRAFT; j++) sum += weights[j] = exp(2.5 * (double)fixture_normal(&state));
    for (int j = 0; j < k; j++) {
        int best = 0;
        for (int i = 1; i < DRAFT; i++)
            if (weights[i] > weights[best]) best = i;
        ids[j] = 100 + best;
        logprobs[j] = (float)log(weights[best] / sum);
        weights[best] = 0;
    }
}

static void grow_tree(const specrt_tree_params *params, uint64_t root, specrt_tree **tree,
                      specrt_draft *draft) {
    int32_t ids[TOPK * TOPK];
    float logprobs[TOPK * TOPK];
    uint64_t paths[TOPK] = {root}, next[TOPK];
    specrt_beam beam = {.n = 1};
    REQUIRE(specrt_tree_create(params, NULL, tree, NULL) == SPECRT_STATUS_OK);
    specrt_tree_begin(*tree, 1);
    while (beam.n > 0) {
        int n = beam.n;
        for (int i = 0; i < n; i++)
            propose(paths[i], ids + i * params->topk, logprobs + i * params->topk, params->topk);
        REQUIRE(specrt_tree_expand(*tree, ids, logprobs, n, params->topk, &beam) ==
                SPECRT_STATUS_OK);
        for (int i = 0; i < beam.n; i++)
            next[i] = paths[beam.parents[i]] * 131 + (uint64_t)beam.tokens[i];
        memcpy(paths, next, sizeof paths);
    }
    specrt_tree_finish(*tree, draft);
}

/* Whether a tree has the path that leads to a node of another. */
static bool has_path(const specrt_draft *in, const specrt_draft *of, int32_t node) {
    int32_t path[STEPS + 1], n = 0, at = 0;
    for (int32_t i = node; i > 0; i = of->parents[i]) path[n++] = of->tokens[i];
    while (n-- > 0) {
        int32_t child = -1;
        for (int32_t i = 1; i < in->n; i++)
            if (in->parents[i] == at && in->tokens[i] == path[n]) child = i;
        if (child < 0) return false;
        at = child;
    }
    return true;
}

TEST(thresholds, "which nodes of a recorded tree a smaller one has") {
    static const specrt_tree_params large = {STEPS, TOPK, NODES}, small[] = {{STEPS, TOPK, 12},
                                                                             {3, TOPK, 20},
                                                                             {2, TOPK, 9},
                                                                             {STEPS, TOPK, NODES}};
    for (uint64_t round = 0; round < 40; round++)
        for (size_t t = 0; t < sizeof small / sizeof *small; t++) {
            specrt_tree *a, *b;
            specrt_draft all, some;
            grow_tree(&large, round + 1, &a, &all);
            grow_tree(&small[t], round + 1, &b, &some);
            replay_cycle c = {.r = {.n_nodes = all.n,
                                    .tree_tokens = all.tokens,
                                    .tree_parents = all.parents,
                                    .tree_logprobs = all.logprobs},
                              .depths = (int32_t *)(uintptr_t)all.depths};
            int32_t order[SPECRT_TREE_MAX_NODES];
            replay_order_nodes(&c.r, order);
            float threshold = replay_threshold(&small[t], &c, order);
            for (int32_t i = 1; i < all.n; i++) {
                bool fits = all.depths[i] <= small[t].num_steps && all.logprobs[i] >= threshold;
                CHECK_INT(fits, has_path(&some, &all, i));
            }
            specrt_tree_close(a);
            specrt_tree_close(b);
        }
}

/* A correction that the drafter ranked second: in a chain never, in a tree where its path is likely
 * enough. */
TEST(rows, "what trees make of an accepted token and of a correction") {
    static const specrt_trace_info info = {.n_vocab = 50, .n_draft_top = 3};
    int32_t tokens[] = {7, 8}, nodes[] = {0, 1}, tree_tokens[] = {1, 7, 9}, parents[] = {-1, 0, 1};
    int32_t depths[] = {0, 1, 2}, draft_ids[] = {7, 5, 6, 9, 8, 4};
    float tree_logprobs[] = {0, -0.1f, -1}, draft_logits[] = {3, 1, 0, 2, 1, 0},
          sums[] = {3.1f, 2.4f};
    float room[6];
    replay_row rows[2] = {{.room = room}, {.room = room + 3}};
    replay_cycle c = {.r = {.n = 2,
                            .n_nodes = 3,
                            .tokens = tokens,
                            .nodes = nodes,
                            .tree_tokens = tree_tokens,
                            .tree_parents = parents,
                            .tree_logprobs = tree_logprobs,
                            .draft_ids = draft_ids,
                            .draft_logits = draft_logits,
                            .draft_logsumexp = sums},
                      .depths = depths,
                      .rows = rows};
    static const specrt_tree_params trees[] = {{2, 2, 3}, {2, 1, 3}, {2, 2, 2}};
    replay_levels levels[3] = {0};
    estimate_rows(trees, 3, &info, &c, levels);
    CHECK(rows[0].known && rows[0].place == 0 && rows[1].place == 1);
    CHECK(room[0] == INFINITY && isinf(room[1]) && room[1] > 0);
    CHECK_NEAR(room[2], -0.1f - -0.1f, 1e-6);         /* the last that a tree of two nodes has */
    CHECK_NEAR(room[3], -0.1 + (1 - 2.4) - -1, 1e-6); /* path and correction, above the last node */
    CHECK_INT(levels[0].accepted[0], 1);
    CHECK_INT(levels[0].reached[1], 1);
    CHECK_INT(levels[0].accepted[1], 0); /* -1.5 is below -1 */
    CHECK_INT(levels[1].accepted[1], 0);
    draft_ids[3] = -1; /* no pass was made */
    estimate_rows(trees, 1, &info, &c, levels);
    CHECK(!rows[1].known && room[3] == -INFINITY);
}

/* --- walks --- */

TEST(walks, "recorded cycles come out as they were; what another list lacks cuts them") {
    static const specrt_tree_params tree = {.num_steps = 4, .topk = 1, .num_draft_tokens = 5};
    replay_levels levels = {.reached = {100, 80, 60, 40}, .accepted = {80, 60, 40, 20}};
    uint64_t state = 3;
    replay_walk w = {0};
    for (int round = 0; round < 500; round++) {
        int32_t n = 1 + (int32_t)(fixture_random(&state) % 5), found = 0;
        for (int32_t i = 0; i < n; i++) {
            CHECK_INT(found, 0);
            found = walk_step(&w, &tree, &levels, i, i + 1 < n ? DRAFTED_YES : DRAFTED_NO);
        }
        CHECK_INT(found, n);
    }
    CHECK_INT(w.n_cycles, 500);
    w = (replay_walk){0}; /* a recorded cycle of five, whose third token the list lacks */
    CHECK_INT(walk_step(&w, &tree, &levels, 0, DRAFTED_YES), 0);
    CHECK_INT(walk_step(&w, &tree, &levels, 1, DRAFTED_YES), 0);
    CHECK_INT(walk_step(&w, &tree, &levels, 2, DRAFTED_NEVER), 3);
    CHECK_INT(walk_step(&w, &tree, &levels, 3, DRAFTED_YES), 0);
    /* not drafted at level 4, where .5 is; at level 1 .75 is: half of them */
    CHECK_NEAR(replay_chance(&levels, 3, 1, DRAFTED_NO), (.75 - .5) / (1 - .5), 1e-12);
    CHECK_INT(walk_step(&w, &tree, &levels, 3, DRAFTED_NO), 2);
    CHECK_INT(walk_step(&w, &tree, &levels, 0, DRAFTED_YES), 0);
    CHECK_INT(walk_step(&w, &tree, &levels, 3, DRAFTED_NO), 0); /* the other half */
    CHECK(replay_chance(&levels, 2, 0, DRAFTED_UNKNOWN) == .8 &&
          replay_chance(&levels, 2, 2, DRAFTED_NO) == 0);
}

/* Cycles that a run of `right` tokens, a wrong one and another such run make. */
static int64_t cycles_of_runs(int32_t steps, int32_t right, int32_t then) {
    specrt_tree_params tree = {.num_steps = steps, .topk = 1, .num_draft_tokens = steps + 1};
    replay_levels levels = {{0}, {0}};
    replay_walk w = {0};
    for (int32_t i = 0; i < right; i++) walk_step(&w, &tree, &levels, w.level, DRAFTED_YES);
    walk_step(&w, &tree, &levels, w.level, DRAFTED_NEVER);
    for (int32_t i = 0; i < then; i++) walk_step(&w, &tree, &levels, w.level, DRAFTED_YES);
    walk_step(&w, &tree, &levels, w.level, DRAFTED_NEVER);
    return w.n_cycles;
}

/* docs/decisions/lists-and-alignment.md: one cycle in a run shorter than one, wherever it stands. */
TEST(missing, "what a token costs that a list lacks") {
    for (int32_t steps = 1; steps <= 6; steps++)
        for (int32_t before = 0; before < 30; before++)
            for (int32_t after = 0; after < 30; after++) {
                int32_t m = steps + 1, whole = before + 1 + after;
                int64_t with_it = cycles_of_runs(steps, whole, 0) - 1;
                int64_t without = cycles_of_runs(steps, before, after);
                CHECK_INT(with_it, whole / m + 1);
                CHECK_INT(without - with_it, 1 + before / m + after / m - whole / m);
                if (whole < m) CHECK_INT(without - with_it, 1);
            }
}

/* --- intervals --- */

TEST(quantile, "Student's, beside a table") {
    static const double expected[][2] = {{1, 12.706205}, {2, 4.302653},   {3, 3.182446},
                                         {4, 2.776445},  {5, 2.570582},   {9, 2.262157},
                                         {29, 2.045230}, {1000, 1.962339}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK_NEAR(replay_student_quantile((int64_t)expected[i][0]), expected[i][1], .033);
}

/* Sequences of unlike lengths and rates: the true ratio lies in 95% of the intervals. */
static double hit_rate(int n, int n_trials, uint64_t seed) {
    replay_pair pairs[64];
    int hits = 0;
    for (int trial = 0; trial < n_trials; trial++) {
        for (int i = 0; i < n; i++) {
            int cycles = 20 + (int)(fixture_random(&seed) % 60), emitted = 0;
            double rate = .6 + .1 * (double)fixture_normal(&seed);
            for (int k = 0; k < cycles; k++)
                emitted += 1 + ((double)(fixture_random(&seed) % 1000000) < 1e6 * rate);
            pairs[i] = (replay_pair){emitted, cycles};
        }
        replay_figure f = replay_ratio(pairs, n);
        hits += f.low <= 1.6 && 1.6 <= f.high;
    }
    return (double)hits / n_trials;
}

TEST(intervals, "hold the true ratio as often as they say") {
    CHECK_NEAR(hit_rate(6, 4000, 1), .95, .015);
    CHECK_NEAR(hit_rate(15, 4000, 2), .95, .012);
    CHECK_NEAR(hit_rate(60, 4000, 3), .95, .012);
    const replay_pair one = {3, 2}, none = {0, 0};
    CHECK(replay_ratio(&one, 1).value == 1.5 && isnan(replay_ratio(&one, 1).low));
    CHECK(isnan(replay_ratio(&none, 1).value));
    const replay_pair same[] = {{4, 2}, {2, 1}, {6, 3}};
    CHECK(replay_ratio(same, 3).low == 2 && replay_ratio(same, 3).high == 2);
}

/* --- labels --- */

/* A router that reads what drafter passes are fed is followed where the trace tells that. */
TEST(exact, "not what follows from states that were not kept") {
    const specrt_trace_info info = {.n_vocab = 100}, *infos[] = {&info};
    replay_shared shared = {.n_cycles = 1, .n_tokens = 2};
    replay_sums sums = {.n_covered = 2, .n_cycles = 1};
    replay_walked walked = {2, 1};
    replay_levels levels = {{0}, {0}};
    replay_way ways[] = {{.exact_coverage = true},
                         {.exact_coverage = true,
                          .reads_draft_input = true,
                          .recorded = true,
                          .sums = &sums,
                          .walked = &walked,
                          .levels = &levels}};
    replay r = {.infos = infos, .n_trees = 1, .ways = ways, .n_ways = 2};
    replay_figures f;
    r.shared = &shared;
    r.n_sequences = 1;
    for (int untold = 0; untold < 2; untold++)
        for (int draft_input = 0; draft_input < 2; draft_input++) {
            r.untold = untold;
            ways[1].reads_draft_input = draft_input;
            replay_figures_of(&r, 0, 0, -1, &f);
            CHECK_INT(f.exact_coverage, !(untold && draft_input));
            CHECK(f.exact_accept_length);
        }
}

/* --- what workers fail by --- */

enum { N_TEXTS = 3, N_ROWS = 40, N_SEQUENCES = 3 };

/* A batch of sequences without cycles under three policies, after the oracle. */
typedef struct failing {
    fixture_allocator memory;
    specrt_head *head;
    specrt_trace_info info;
    const specrt_trace_info *infos[1];
    replay_way ways[1 + N_TEXTS];
    replay r;
} failing;

static void open_failing(failing *f, const char *const texts[N_TEXTS], int32_t topk) {
    static float weights[N_ROWS * 4];
    const specrt_head_desc desc = {.rows = weights, .n_rows = N_ROWS, .n_cols = 4};
    specrt_env env = fixture_desc(&f->memory);
    REQUIRE(specrt_head_bind(NULL, &desc, &env, &f->head, NULL) == SPECRT_STATUS_OK);
    f->info.n_vocab = N_ROWS;
    f->infos[0] = &f->info;
    f->r = (replay){.infos = f->infos,
                    .trees = {{.num_steps = 3, .topk = topk, .num_draft_tokens = 20}},
                    .n_trees = 1,
                    .ways = f->ways,
                    .n_ways = 1 + N_TEXTS,
                    .n_sequences = N_SEQUENCES};
    pthread_mutex_init(&f->r.lock, NULL);
    for (int i = 0; i <= N_TEXTS; i++) {
        replay_way *e = &f->ways[i];
        specrt_policy_desc wanted = {.text = i ? texts[i - 1] : NULL};
        e->levels = (replay_levels *)calloc(1, sizeof *e->levels);
        if (i) e->policy = create_policy(NULL, f->head, &wanted);
    }
}

static void close_failing(failing *f) {
    for (int i = 0; i <= N_TEXTS; i++) {
        specrt_policy_close(f->ways[i].policy);
        free(f->ways[i].sums), free(f->ways[i].walked), free(f->ways[i].levels);
    }
    specrt_head_close(f->head);
    pthread_mutex_destroy(&f->r.lock);
    CHECK_INT(f->memory.n_live, 0);
}

static void check_failure(failing *f, int threads, specrt_status status, const char *message) {
    replay_sequence sequences[N_SEQUENCES] = {{.info = &f->info, .number = 0},
                                              {.info = &f->info, .number = 1},
                                              {.info = &f->info, .number = 2}};
    replay_batch b = {.sequences = sequences, .n = N_SEQUENCES};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    f->r.params.threads = threads;
    CHECK_INT(replay_run_batch(&f->r, &b, &err), status);
    CHECK_INT(err.status, status);
    CHECK_STR(err.msg, message);
}

/* The first policy that does not fit the tree, whatever the threads; memory where that ran out. */
TEST(failures, "a worker's real cause is told, of the first policy") {
    static const char *const texts[] = {"full", "window:9@min=9", "window:4@min=2"};
    failing f = {.memory = {0}};
    open_failing(&f, texts, 10);
    for (int threads = 1; threads <= 4; threads++)
        check_failure(&f, threads, SPECRT_STATUS_BAD_ARG,
                      "session: topk: expected at most the 9 rows of policy 'window:9@min=9', "
                      "found 10");
    close_failing(&f);
    f = (failing){.memory = {0}};
    open_failing(&f, texts, 4);
    check_failure(&f, 1, SPECRT_STATUS_OK, "");
    for (int fail_at = 1; fail_at <= 3; fail_at++) {
        f.memory.fail_at = f.memory.n_calls + fail_at;
        check_failure(&f, 1, SPECRT_STATUS_NO_MEMORY,
                      fail_at == 2   ? "tree: out of memory"
                      : fail_at == 3 ? "verifier: out of memory"
                                     : "session: out of memory for policy 'full'");
    }
    close_failing(&f);
}
