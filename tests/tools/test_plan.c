/* test_plan.c : what a smaller tree would have emitted, and what is recommended. */
#include "tools/specrt-eval/shared/retained.h"
#include "tools/specrt-eval/plan/plan.h"
#include "fixture.h"
#include "test.h"

static double chance(uint64_t *state) {
    return (double)(fixture_random(state) >> 11) / 9007199254740992.0;
}

/* --- trees --- */

enum { MOST_STEPS = 6 };

/* The drafter's distribution over 40 tokens after a path, which is told by its hash. */
static void propose(uint64_t path, int32_t k, int32_t *ids, float *logprobs) {
    float mass[40], sum = 0;
    for (int32_t v = 0; v < 40; v++) {
        uint64_t h = specrt_hash64(&v, sizeof v, path);
        mass[v] = expf(4 * (float)(h >> 40) / 16777216.0f);
        sum += mass[v];
    }
    for (int32_t j = 0; j < k; j++) {
        int32_t best = 0;
        for (int32_t v = 1; v < 40; v++)
            if (mass[v] > mass[best]) best = v;
        ids[j] = best;
        logprobs[j] = logf(mass[best] / sum);
        mass[best] = -1;
    }
}

static uint64_t step_of(uint64_t path, int32_t token) {
    return specrt_hash64(&token, sizeof token, path);
}

static void draw_tree(specrt_tree *t, uint64_t root, specrt_draft *draft) {
    int32_t k = specrt_tree_get_params(t)->topk, ids[64 * 10];
    uint64_t paths[64] = {root}, before[64];
    float logprobs[64 * 10];
    specrt_beam beam = {.n = 1};
    specrt_tree_begin(t, 0);
    while (beam.n) {
        int32_t n = beam.n;
        for (int32_t i = 0; i < n; i++) propose(paths[i], k, ids + i * k, logprobs + i * k);
        REQUIRE(specrt_tree_expand(t, ids, logprobs, n, k, &beam) == SPECRT_STATUS_OK);
        memcpy(before, paths, sizeof paths);
        for (int32_t i = 0; i < beam.n; i++)
            paths[i] = step_of(before[beam.parents[i]], beam.tokens[i]);
    }
    specrt_tree_finish(t, draft);
}

/* The target wants one token after each path: often the drafter's first or second. */
static void descend(const specrt_draft *draft, uint64_t root, specrt_verdict *verdict) {
    uint64_t path = root;
    int32_t node = 0, next = 0;
    verdict->n = 0;
    while (next >= 0) {
        int32_t ids[4];
        float logprobs[4];
        propose(path, 4, ids, logprobs);
        int32_t wanted = ids[path % 7 < 4 ? 0 : path % 7 < 6 ? 1 : 3];
        node = next, next = -1;
        verdict->nodes[verdict->n] = node;
        verdict->tokens[verdict->n++] = wanted;
        for (int32_t i = 1; i < draft->n; i++)
            if (draft->parents[i] == node && draft->tokens[i] == wanted) next = i;
        path = step_of(path, wanted);
    }
}

static specrt_tree *tree_of(const specrt_tree_params *s) {
    const specrt_tree_params params = {s->num_steps, s->topk, s->num_draft_tokens};
    specrt_tree *t;
    REQUIRE(specrt_tree_create(&params, NULL, &t, NULL) == SPECRT_STATUS_OK);
    return t;
}

/* Every shape against a tree made with it. Where fewer levels leave the wide tree too few nodes it may
 * miss one, never find too much. */
TEST(smaller_trees, "tokens of smaller trees against such trees") {
    const specrt_tree_params none = {0, 0, 0};
    int n_shapes = 0, n_seen = 0, n_missed = 0;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) {
        specrt_tree_params shapes[PLAN_SHAPES];
        int n = plan_shapes(w, &none, shapes);
        specrt_tree *wide = tree_of(&shapes[n - 1]);
        n_shapes += n;
        for (int s = 0; s < n; s++) {
            specrt_tree *small = tree_of(&shapes[s]);
            for (uint64_t root = 1; root < 60; root++) {
                specrt_draft a, b;
                specrt_verdict va, vb;
                draw_tree(wide, root, &a);
                draw_tree(small, root, &b);
                descend(&a, root, &va);
                descend(&b, root, &vb);
                int32_t kept = 1;
                for (int32_t i = 1; i < a.n; i++) kept += a.depths[i] <= shapes[s].num_steps;
                int found = plan_tree_tokens(&a, &va, &shapes[s]);
                if (kept >= shapes[s].num_draft_tokens || w == 0)
                    CHECK_INT(found, vb.n);
                else
                    CHECK(found <= vb.n);
                n_missed += vb.n - found;
                n_seen++;
            }
            specrt_tree_close(small);
        }
        specrt_tree_close(wide);
    }
    CHECK(n_shapes > 60);
    CHECK(n_missed < n_seen / 50);
}

TEST(shorter_chains, "a long chain is as many short ones; the last may go on in the next") {
    static const struct {
        int ran, accepted, num_steps, tokens, cycles, open;
    } cases[] = {{8, 0, 3, 1, 1, 0}, {8, 2, 3, 3, 1, 0}, {8, 3, 3, 4, 1, 0}, {8, 4, 3, 5, 2, 0},
                 {8, 7, 3, 8, 2, 0}, {8, 8, 3, 8, 2, 1}, {8, 8, 8, 9, 1, 0}, {8, 8, 5, 6, 1, 3},
                 {8, 5, 8, 6, 1, 0}, {8, 8, 1, 8, 4, 1}, {3, 3, 3, 4, 1, 0}, {2, 2, 5, 0, 0, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_tally t = {.open = 0};
        plan_tally_chain(&t, cases[i].ran, cases[i].accepted, cases[i].num_steps);
        CHECK_NEAR(t.tokens, cases[i].tokens, 0);
        CHECK_NEAR(t.cycles, cases[i].cycles, 0);
        CHECK_INT(t.open, cases[i].open);
        plan_tally_chain(&t, 8, 0, cases[i].num_steps);
        CHECK_NEAR(t.tokens, cases[i].tokens + cases[i].open + 1, 0);
    }
}

/* Text whose next token is drafted right with a chance that changes slowly: what a chain of 8 says of
 * shorter ones, against such chains. */
TEST(chains_in_text, "their accept length against such chains") {
    enum { N = 200000, RAN = 8 };
    static bool right[N + RAN];
    uint64_t state = 5;
    for (int i = 0; i < N + RAN; i++) right[i] = chance(&state) < (i / 40 % 2 ? 0.85 : 0.4);
    for (int steps = 1; steps <= RAN; steps++) {
        plan_tally t = {.open = 0};
        double n = 0;
        for (int at = 0, k; at < N; at += k + 1) {
            for (k = 0; k < RAN && right[at + k];) k++;
            plan_tally_chain(&t, RAN, k, steps);
        }
        for (int at = 0, k; at < N; at += k + 1, n++)
            for (k = 0; k < steps && right[at + k];) k++;
        CHECK_NEAR(t.tokens / t.cycles, N / n, 0.03 * N / n);
    }
}

TEST(shapes, "bounds on what is considered") {
    specrt_tree_params shapes[PLAN_SHAPES];
    const specrt_tree_params most = {3, 0, 16}, chain = {4, 1, 0}, other = {0, 7, 0},
                             block = {15, 1, 0}, none = {0, 0, 0};
    int n = plan_shapes(2, &most, shapes);
    for (int i = 0; i < n; i++)
        CHECK(shapes[i].num_steps <= 3 && shapes[i].num_draft_tokens <= 16 && shapes[i].topk == 10);
    CHECK(n == 6);
    CHECK_INT(plan_shapes(0, &chain, shapes), 4);
    CHECK_INT(shapes[3].num_draft_tokens, 5);
    CHECK_INT(plan_shapes(0, &block, shapes), 15);
    CHECK_INT(shapes[14].num_draft_tokens, 16);
    CHECK_INT(plan_shapes(0, &none, shapes), 8);
    CHECK_INT(plan_shapes(1, &chain, shapes), 0);
    CHECK_INT(plan_shapes(0, &other, shapes), 0);
}

static plan plan_of(plan_way *ways, int n) {
    static plan_policy policies[4];
    for (int i = 0; i < 4; i++) snprintf(policies[i].name, sizeof policies[i].name, "p%d", i);
    plan p = {.policies = policies, .ways = ways, .n_ways = n, .traces = {.n = 1}};
    p.options.max_tokens = 50;
    p.plain_way = (plan_way){.policy = -1, .speed = 99, .low = 89, .high = 109};
    for (int i = 0; i < n; i++) ways[i].accept_length = 2;
    return p;
}

TEST(ratio, "prompts count, and an answer's interval only as far as the answer does") {
    const plan_way a = {.speed = 100, .low = 50, .high = 200, .prompt_seconds = 1},
                   b = {.speed = 50, .low = 50, .high = 50, .prompt_seconds = 2},
                   unknown = {.speed = 50, .low = NAN, .high = NAN};
    plan p = {.plain_request = {.answer_tokens = 100}, .traces = {.n = 1}};
    specrt_ratio r = plan_ratio(&p, &a, &b);
    CHECK_NEAR(r.value, 2, 1e-12);
    CHECK_NEAR(r.low, 2 / 1.5, 1e-12);
    CHECK_NEAR(r.high, 2 * 1.5, 1e-12);
    CHECK(isnan(plan_ratio(&p, &a, &unknown).low));
    p.traces.n = 0, p.n_prompts = SPECRT_ADVISE_REQUESTS - 1; /* few tell nothing of others */
    CHECK(isnan(plan_ratio(&p, &a, &b).low));
}

TEST(recommended, "the fewest rows among choices that tie with the fastest") {
    plan_way ways[] = {{.policy = 2, .rows = 700, .speed = 100, .low = 90, .high = 110},
                       {.policy = -1, .rows = 0, .speed = 99, .low = 89, .high = 109},
                       {.policy = 1, .rows = 500, .speed = 97, .low = 87, .high = 107},
                       {.policy = 3, .rows = 600, .speed = 96, .low = 86, .high = 106},
                       {.policy = 0, .rows = 100, .speed = 94, .low = 84, .high = 104}};
    plan p = plan_of(ways, 5);
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK_INT(p.chosen, 2);
    CHECK(ways[0].ties && ways[3].ties);
    CHECK(!ways[1].ties && !ways[4].ties); /* plain, and 6% slower */
    CHECK_HAS(p.advice_text,
              "Draft with --policy p1 --num-steps 0 --topk 0 --num-draft-tokens 0 or "
              "decode plainly: they are as fast within the error");
    for (int i = 0; i < 5; i++)
        if (ways[i].policy >= 0) ways[i].low = ways[i].speed - 9, ways[i].speed -= 40;
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK_INT(p.advice.outcome, SPECRT_OUTCOME_SLOWER);
    CHECK_HAS(p.advice_text, "Decode plainly: --policy");
    p.costs.disturbed = 1; /* nothing is recommended from such costs */
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK_INT(p.chosen, -1);
    CHECK_HAS(p.advice_text, "No verdict: too busy to tell: ");
}

/* All rows in half of their bytes are fewer than most of them, and an engine needs another file. */
TEST(copy, "a whole head in fewer bits is recommended by its bytes") {
    plan_way ways[] = {{.policy = 0, .rows = 1000, .speed = 100, .low = 90, .high = 110},
                       {.policy = 1, .rows = 600, .speed = 99, .low = 89, .high = 109}};
    plan p = plan_of(ways, 2);
    char *text = NULL;
    size_t n = 0;
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK_INT(p.ways[p.chosen].policy, 1);
    snprintf(p.policies[0].name, sizeof p.policies[0].name, "full@head=q4_0");
    p.policies[0].row_saved = 0.5;
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK_INT(p.ways[p.chosen].policy, 0);
    FILE *words = open_memstream(&text, &n);
    REQUIRE(words);
    plan_advice(&p, words);
    fclose(words);
    CHECK_HAS(text, "Draft with --policy full@head=q4_0 ");
    CHECK_HAS(text, "llama-quantize --output-tensor-type q4_0 writes one.");
    free(text);
    p.policies[0].row_saved = 0;
}

TEST(worst_task, "the fastest choice loses in one task what another does not") {
    plan_way ways[] = {{.policy = 0, .rows = 100, .speed = 100, .low = 99, .high = 101},
                       {.policy = 1, .rows = 500, .speed = 97, .low = 96, .high = 98},
                       {.policy = 2, .rows = 900, .speed = 96, .low = 95, .high = 97}};
    plan p = plan_of(ways, 3);
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK(!plan_by_task(&p));
    CHECK_INT(p.ways[p.chosen].policy, 0);
    static const double worst[] = {0.80, 0.97, 0.99};
    for (int i = 0; i < 3; i++) {
        ways[i].kept.mean = 0.99;
        retained_add_task(&ways[i].kept, "code", 0.995);
        retained_add_task(&ways[i].kept, "chat", worst[i]);
    }
    REQUIRE(!plan_recommend(&p, NULL));
    CHECK(plan_by_task(&p));
    CHECK_STR(ways[0].kept.task, "chat");
    CHECK_NEAR(plan_at_worst(&ways[1]).speed, 97 * 0.97 / 0.99, 1e-9);
    CHECK_NEAR(plan_at_worst(&ways[1]).low, 96 * 0.97 / 0.99, 1e-9);
    CHECK_INT(p.ways[p.chosen].policy, 1); /* ties with 2 in the worst task, with fewer rows */
    CHECK(!ways[0].ties && ways[2].ties);
    CHECK_HAS(p.advice_text, "in its worst task (chat)");
}

TEST(first_pass, "what the first pass of a draft reads, where a chain is kept and where not") {
    specrt_costs read = {.error = 0}, kept = {.keeps_chains = true};
    const specrt_tree_params one = {1, 1, 2}, four = {4, 1, 5}, tree = {4, 4, 16};
    CHECK_NEAR(plan_first_tokens(&read, &four, 2.5), 2.5, 1e-12);
    CHECK_NEAR(plan_first_tokens(&kept, &tree, 2.5), 2.5, 1e-12);
    CHECK_NEAR(plan_first_tokens(&kept, &one, 1.4), 1.4, 1e-9); /* accepted whole, or not at all */
    CHECK_NEAR(plan_first_tokens(&kept, &four, 1 + 0.5 + 0.25 + 0.125 + 0.0625), 1.0625, 1e-9);
    CHECK_NEAR(plan_first_tokens(&kept, &four, 5), 2, 1e-9);
    CHECK_NEAR(plan_first_tokens(&kept, &four, 1), 1, 1e-9);
}

/* A cycle of 10 ms beside the head, and a head of 1 us a row: 204 rows are a fiftieth. */
TEST(small_head, "rows with which the head stops to matter") {
    plan p = {.n_ways = 0};
    const plan_way one = {.shape = {1, 1, 2}, .accept_length = 1.5};
    const plan_way two = {.shape = {2, 4, 8}, .accept_length = 1.5};
    for (int i = 0; i <= 1; i++) {
        specrt_curve_add(&p.costs.head_first, i ? 1000 : 0, i * 1e-3);
        specrt_curve_add(&p.costs.head_next[1], i ? 1000 : 0, i * 3e-3);
        specrt_curve_add(&p.costs.draft, 1 + i, 1e-3);
        specrt_curve_add(&p.costs.target, 1 + i, 9e-3);
    }
    CHECK_NEAR(plan_head_share(&p, &one, 1000), 1.0 / 11, 1e-9);
    CHECK_NEAR(plan_small_head(&p, &one), 204, 1e-9);
    CHECK_NEAR(plan_head_share(&p, &two, 1000), 4.0 / 15,
               1e-9); /* two levels, the next one wider */
    CHECK_NEAR(plan_small_head(&p, &two), 56, 1e-9);
    p.costs.target.seconds[0] = p.costs.target.seconds[1] = 9;
    CHECK_NEAR(plan_small_head(&p, &one), 1000, 1e-9);
}

TEST(block, "a block is one pass and one product, whatever its length, by curves that are flat") {
    plan p = {.costs = {.n_block = 7}};
    const plan_way one = {.shape = {1, 1, 2}, .accept_length = 1.5},
                   seven = {.shape = {7, 1, 8}, .accept_length = 1.5};
    for (int i = 0; i <= 1; i++) {
        specrt_curve_add(&p.costs.head_first, 1 + i * 999, (1 + i * 999) * 1e-6);
        specrt_curve_add(&p.costs.draft, 1 + 6 * i, 1e-3);
        specrt_curve_add(&p.costs.target, 1 + 7 * i, 8.9e-3);
    }
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) p.costs.head_next[w] = p.costs.head_first;
    specrt_curve_add(&p.costs.draft, 14, 1e-3 + 1.4e-3); /* it reads: 0.2 ms a token */
    CHECK_NEAR(plan_head_share(&p, &one, 1000), 1.0 / 11, 1e-9);
    CHECK_NEAR(plan_head_share(&p, &seven, 1000), 1.0 / 11, 1e-9);
}
