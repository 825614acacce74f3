/* test_infer_auto.c : a file of costs, the policy that auto drafts from, the word `auto` beside it; and what
 * auto chooses from: costs of cycles and lists. */
#include "specrt_tools.h"
#include "engine/infer/auto.h"
#include "opened.h"
#include "folder.h"
#include "base/io.h"

static specrt_costs some_costs(void) {
    specrt_costs c = {.keeps_chains = 1};
    specrt_curve_add(&c.head_first, 1024, 1e-5);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
        specrt_curve_add(&c.head_next[w], 2048, 2e-5 * (w + 1));
    specrt_curve_add(&c.draft, 1, 5e-5);
    specrt_curve_add(&c.target, 1, 1e-3);
    specrt_curve_add(&c.target, 60, 15e-3);
    return c;
}

/* What tools write they read again; a file that is there needs force, and one without the head's costs, as
 * llama.cpp's cache is, has no table. */
TEST(round, "a file of costs, written and read again") {
    const char *path = in_folder("a.costs");
    specrt_costs given = some_costs(), found;
    specrt_error err;
    snprintf(given.policy, sizeof given.policy, "static:512+window:3072@min=3072");
    given.policy_rows = 697;
    REQUIRE(auto_costs_write(&given, path, false, &err) == SPECRT_STATUS_OK);
    REQUIRE(auto_costs_read(path, &found, &err) == SPECRT_STATUS_OK);
    CHECK_STR(found.policy, given.policy);
    CHECK_INT(found.policy_rows, 697);
    CHECK(found.keeps_chains);
    CHECK_NEAR(specrt_curve_at(&found.target, 60), 15e-3, 1e-12);
    CHECK_NEAR(specrt_curve_at(&found.head_next[2], 2048), 6e-5, 1e-12);
    CHECK(auto_costs_write(&given, path, false, &err) != SPECRT_STATUS_OK);
    given.head_next[1].n = 0;
    REQUIRE(auto_costs_write(&given, path, true, &err) == SPECRT_STATUS_OK);
    CHECK_INT(auto_costs_read(path, &found, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "a.costs: expected costs of the head, lines `first` and `next`, found none; "
                       "specrt-eval plan --costs-out and specrt-llama --costs measure it");
    REQUIRE(sl_out_bytes(path, true, "{\"draft\": []}", 13, &err) == SPECRT_STATUS_OK);
    CHECK_INT(auto_costs_read(path, &found, &err), SPECRT_STATUS_BAD_INPUT); /* of old versions */
    CHECK_HAS(err.msg, "specrt-eval plan --costs-out and specrt-llama --costs write such files");
    clear_folder();
}

/* A straight curve: `at` for a size of 0 and `slope` for each more. */
static void set_line(specrt_curve *c, double at, double slope) {
    c->n = 0;
    specrt_curve_add(c, 1, at + slope);
    specrt_curve_add(c, 4096, at + 4096 * slope);
}

/* Cycles by hand: the drafter's passes, its products by the next measured width, and the target's pass over a
 * chain's levels, or over as many nodes as the levels have or the tree may have. */
TEST(table, "costs of cycles by hand") {
    static const struct {
        specrt_tree_params tree;
        double width, nodes[4]; /* which curve of the head; nodes of drafts of 0 to 3 levels */
    } trees[] = {{{3, 1, 4}, 1, {1, 2, 3, 4}},      {{3, 2, 60}, 2, {1, 3, 7, 11}},
                 {{3, 4, 16}, 2, {1, 5, 16, 16}},   {{3, 5, 60}, 3, {1, 6, 31, 56}},
                 {{3, 10, 60}, 3, {1, 11, 60, 60}}, {{3, 12, 60}, 3, {1, 13, 60, 60}}};
    static const int32_t rows[] = {1000, 2000};
    specrt_costs costs = {.error = 0};
    double cycles[8], sunk[8];
    set_line(&costs.head_first, 3, 0.5);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) set_line(&costs.head_next[w], w + 1, w + 1);
    set_line(&costs.draft, 7, 11);
    set_line(&costs.target, 1000, 13);
    for (size_t t = 0; t < sizeof trees / sizeof *trees; t++) {
        const auto_desc desc = {&costs, &trees[t].tree, rows, NULL, 2};
        double w = trees[t].width, draft = 7 + 11 * (double)trees[t].tree.topk;
        CHECK_NEAR(auto_table(&desc, cycles, sunk), 11, 1e-9);
        for (int i = 0; i < 8; i++) {
            CHECK_NEAR(sunk[i], 0, 0);
            int n = i % 4;
            double size = rows[i / 4], sum = 1000 + 13 * trees[t].nodes[n];
            if (n) sum += 18 + 3 + 0.5 * size + (n - 1) * (draft + w + w * size);
            CHECK_NEAR(cycles[i], sum, 1e-6);
        }
    }
    costs.draft.seconds[1] = costs.draft.seconds[0] / 2; /* falls: reading more takes no less */
    const auto_desc desc = {&costs, &trees[0].tree, rows, NULL, 1};
    CHECK(auto_table(&desc, cycles, sunk) == 0);
}

/* Blocks: one pass, one product of its positions, and what either takes is between measured sizes. */
TEST(block_table, "cycles of blocks") {
    enum { STEPS = 12 };
    const specrt_tree_params tree = {STEPS, 1, STEPS + 1};
    static const int32_t rows[] = {1000, 2000};
    double cycles[2 * (STEPS + 1)], sunk[2 * (STEPS + 1)];
    specrt_costs costs = {.n_block = STEPS};
    set_line(&costs.head_first, 0, 1);
    set_line(&costs.head_next[1], 0, 1.6); /* 0.2 for each of three more positions */
    set_line(&costs.head_next[2], 0, 2.2); /* 0.1 for each of six more */
    set_line(&costs.draft, 7, 3);
    specrt_curve_add(&costs.draft, STEPS, 7 + 3 * STEPS); /* then what it reads */
    costs.draft.sizes[2] = STEPS + 7, costs.draft.seconds[2] = 7 + 3 * STEPS + 7 * 2;
    set_line(&costs.target, 1000, 13);
    const auto_desc desc = {&costs, &tree, rows, rows, 2};
    CHECK_NEAR(auto_table(&desc, cycles, sunk), 2, 1e-9);
    for (int i = 0; i < 2 * (STEPS + 1); i++) {
        int n = i % (STEPS + 1);
        double head = n <= 4 ? 1 + 0.2 * (n - 1) : 1.6 + 0.1 * (n - 4);
        CHECK_NEAR(sunk[i], n ? 7 + 3 * n : 0, 1e-6);
        CHECK_NEAR(cycles[i], 1000 + 13 * (n + 1) + sunk[i] + (n ? head * rows[i > STEPS] : 0),
                   1e-6);
    }
    CHECK_NEAR(specrt_costs_draft(&costs, 3.5, 4, 1), 7 + 3 * 4 + 2.5 * 2, 1e-9);
    specrt_auto *a;
    REQUIRE(auto_open(&desc, &a, NULL) == SPECRT_STATUS_OK);
    specrt_auto_close(a);
}

TEST(fit, "costs of blocks are not those of drafts token by token") {
    specrt_error err;
    specrt_costs costs = {.n_block = 7}, tokens = {.n_block = 0};
    CHECK_INT(auto_costs_fit(&costs, 6, "c", &err), SPECRT_STATUS_OK);
    CHECK_INT(auto_costs_fit(&tokens, 0, "c", &err), SPECRT_STATUS_OK);
    CHECK_INT(auto_costs_fit(&tokens, 6, "c", &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "c: expected costs of a drafter of blocks, found those of drafts token by "
                       "token; measure this drafter's");
    CHECK_INT(auto_costs_fit(&costs, 0, "c", &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "c: expected costs of drafts token by token, found");
}

typedef struct sizes {
    const char *text;
    int32_t last_end; /* rank of the last token that ends a generation */
    int32_t n, rows[SPECRT_AUTO_MAX_LISTS];
} sizes;

static void check_sizes(const sizes *s, int32_t n, const int32_t *found) {
    if (n != s->n) fprintf(stderr, "%s: %d lists\n", s->text, (int)n);
    REQUIRE(n == s->n);
    for (int32_t i = 0; i < n; i++) CHECK_INT(found[i], s->rows[i]);
}

TEST(lists, "halves of a list, down to 512 rows, where ends have rows in all of them") {
    static const sizes by_policy[] = {{"static:3000", 0, 3, {750, 1500, 3000}},
                                      {"static:3000", 511, 3, {750, 1500, 3000}},
                                      {"static:3000", 749, 3, {750, 1500, 3000}},
                                      {"static:3000", 750, 2, {1500, 3000}},
                                      {"static:1024", 511, 2, {512, 1024}},
                                      {"static:1024", 512, 1, {1024}},
                                      {"static:300", 0, 1, {300}},
                                      {"static:2048+window:64@min=8", 0, 3, {512, 1024, 2048}},
                                      {"static:2048/1024", 0, 0, {0}},
                                      {"window:64@min=8", 0, 0, {0}},
                                      {"full", 0, 0, {0}}};
    enum { V = 4096 };
    static float rows[V][8];
    int32_t found[SPECRT_AUTO_MAX_LISTS];
    size_t n;
    uint8_t *bytes = fixture_ranks_bundle(V, 1, 3000, &n);
    specrt_bundle *bundle = open_memory(bytes, n);
    specrt_head *head = bind_rows(NULL, rows, V, 8);
    for (size_t i = 0; i < sizeof by_policy / sizeof *by_policy; i++) {
        const int32_t end = (7 * by_policy[i].last_end + 3) % V; /* as fixture_ranks() ranks */
        const specrt_policy_desc p = {
            .text = by_policy[i].text, .n_terminators = 1, .terminators = &end};
        specrt_policy *policy = create_policy(bundle, head, &p);
        check_sizes(&by_policy[i], auto_lists(policy, found), found);
        specrt_policy_close(policy);
    }
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    free(bytes);
}

/* What auto would do first where all 4096 rows cost more than drafting gains, and a few cost nothing. */
static int32_t first_steps(const char *text, const char *costs_policy, int32_t policy_rows) {
    enum { V = 4096 };
    static float rows[V][8];
    const specrt_tree_params tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    specrt_policy *policy;
    specrt_auto *a;
    specrt_auto_choice choice;
    specrt_error err;
    specrt_costs costs = {.policy_rows = policy_rows};
    snprintf(costs.policy, sizeof costs.policy, "%s", costs_policy);
    set_line(&costs.head_first, 0, 1);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) costs.head_next[w] = costs.head_first;
    set_line(&costs.draft, 1, 0);
    set_line(&costs.target, 1000, 0);
    specrt_head *head = bind_rows(NULL, rows, V, 8);
    policy = create_policy(NULL, head, &(specrt_policy_desc){.text = text});
    REQUIRE(auto_create(&costs, &tree, policy, &a, &err) == SPECRT_STATUS_OK);
    specrt_auto_begin(a);
    specrt_auto_choose(a, &choice);
    specrt_auto_close(a);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return choice.num_steps;
}

TEST(rows, "the rows that a policy scored count for that policy, up to its bound") {
    CHECK(first_steps("full", "full", 2) > 0);
    CHECK_INT(first_steps("full", "full", 0), 0);
    CHECK_INT(first_steps("full", "window:8@min=8", 2), 0);
    CHECK(first_steps("window:8@min=8", "window:8@min=8", 5000) > 0);
}

TEST(word, "auto takes the costs' policy, auto+SPEC its own") {
    specrt_costs costs = some_costs();
    CHECK_STR(auto_policy("auto", NULL), "microspec");
    CHECK_STR(auto_policy("auto", &costs), "microspec");
    snprintf(costs.policy, sizeof costs.policy, "window:512");
    CHECK_STR(auto_policy("auto", &costs), "window:512");
    CHECK_STR(auto_policy("auto+full", &costs), "full");
    CHECK_STR(auto_policy("static:64", &costs), "static:64");
    CHECK_STR(auto_policy(NULL, &costs), "microspec");
    CHECK(auto_is_named("auto") && auto_is_named("auto+full"));
    CHECK(!auto_is_named("automatic") && !auto_is_named("aut") && !auto_is_named(NULL));
}

TEST(file, "a policy that does not open is told with the file that names it") {
    specrt_error err;
    specrt_costs costs = some_costs();
    CHECK(auto_policy_file("auto", &costs, "c") == NULL);
    snprintf(costs.policy, sizeof costs.policy, "static:64");
    CHECK_STR(auto_policy_file("auto", &costs, "c"), "c");
    CHECK(auto_policy_file("auto+full", &costs, "c") == NULL);
    CHECK(auto_policy_file("static:64", &costs, "c") == NULL);

    specrt_error_set(&err, SPECRT_STATUS_BAD_ARG, "policy 'x': y");
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_BAD_ARG, NULL, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "policy 'x': y");
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_BAD_ARG, "a.costs", &err), SPECRT_STATUS_BAD_ARG);
    CHECK(strstr(err.msg, "a.costs: policy: ") == err.msg && strstr(err.msg, "policy 'x': y"));
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_OK, "a.costs", &err), SPECRT_STATUS_OK);
}
