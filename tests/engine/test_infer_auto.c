/* test_infer_auto.c : a file of costs, written and read: its curves, the policy that auto drafts from, the
 * word `auto` beside it; and what auto chooses from: costs of cycles and lists. */
#include "specrt_tools.h"
#include "engine/infer/auto.h"
#include "fixture.h"
#include "folder.h"
#include "base/io.h"

static pass_costs some_costs(void) {
    pass_costs c = {.keeps_chains = true};
    sl_curve_add(&c.head_first, 1024, 1e-5);
    for (int w = 0; w < PASS_WIDTHS; w++) sl_curve_add(&c.head[w], 2048, 2e-5 * (w + 1));
    sl_curve_add(&c.draft, 1, 5e-5);
    sl_curve_add(&c.target, 1, 1e-3);
    sl_curve_add(&c.target, 60, 15e-3);
    return c;
}

static void test_round(void) {
    static const char *const policies[] = {"", "full", "static:512+window:3072@min=3072"};
    const char *path = in_folder("costs.json");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        pass_costs given = some_costs(), found;
        specrt_error err;
        snprintf(given.policy, sizeof given.policy, "%s", policies[i]);
        given.policy_rows = 697 * (int32_t)i;
        REQUIRE(pass_costs_write(&given, path, true, &err) == SPECRT_STATUS_OK);
        REQUIRE(pass_costs_read(path, &found, &err) == SPECRT_STATUS_OK);
        CHECK_STR(found.policy, policies[i]);
        CHECK_INT(found.policy_rows, given.policy_rows);
        CHECK(found.keeps_chains);
        CHECK_INT(found.target.n, 2);
        CHECK_NEAR(sl_curve_at(&found.target, 60), 15e-3, 1e-12);
        CHECK_NEAR(sl_curve_at(&found.head[2], 2048), 6e-5, 1e-12);
    }
    clear_folder();
}

/* A file of costs whose last field is the one given. */
static specrt_status read_with(const char *field, const char *value, pass_costs *out,
                               specrt_error *err) {
    const char *path = in_folder("costs.json");
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "{\"head_first\":[{\"rows\":1,\"seconds\":1}],\"head\":["
                     "{\"topk\":1,\"points\":[{\"rows\":1,\"seconds\":1}]},"
                     "{\"topk\":4,\"points\":[{\"rows\":1,\"seconds\":1}]},"
                     "{\"topk\":10,\"points\":[{\"rows\":1,\"seconds\":1}]}],"
                     "\"draft\":[{\"tokens\":1,\"seconds\":1}],"
                     "\"target\":[{\"nodes\":1,\"seconds\":1}],\"%s\":%s}",
                     field, value);
    if (n < 0 || n >= (int)sizeof text) return SPECRT_STATUS_BAD_ARG;
    specrt_status status = sl_out_bytes(path, true, text, strlen(text), err);
    return status == SPECRT_STATUS_OK ? pass_costs_read(path, out, err) : status;
}

static void test_refused(void) {
    static const char *const policies[] = {
        "7",           "null",          "{}",        "[\"full\"]",  "\"\"", "\"auto\"",
        "\"nothing\"", "\"auto+full\"", "\"full+\"", "\"window:0\""};
    static const char *const rows[] = {"0", "-1", "1.5", "\"7\"", "null", "2147483648"};
    char named[1100]; /* window:000...1, longer than any policy's text */
    pass_costs found;
    specrt_error err;
    memset(named, '0', sizeof named);
    memcpy(named, "\"window:", 8);
    memcpy(named + sizeof named - 3, "1\"", 3);
    for (size_t i = 0; i <= sizeof policies / sizeof *policies; i++) {
        bool last = i == sizeof policies / sizeof *policies;
        CHECK(read_with("policy", last ? named : policies[i], &found, &err) ==
              SPECRT_STATUS_BAD_INPUT);
        CHECK(strstr(err.msg, "costs.json: policy") != NULL);
        CHECK_STR(found.policy, "");
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(read_with("policy_rows", rows[i], &found, &err) == SPECRT_STATUS_BAD_INPUT);
        CHECK(strstr(err.msg, "costs.json: policy_rows: ") != NULL);
        CHECK_INT(found.policy_rows, 0);
    }
    clear_folder();
}

#define POINT(size, n) "{\"" size "\":" #n ",\"seconds\":1}"

/* Curves that are none are refused by their key; one of the most points is taken. */
static void test_curves(void) {
    static const char *const bad[][2] = {
        {"draft", "7"},
        {"draft", "{}"},
        {"draft", "[]"},
        {"draft", "[7]"},
        {"draft", "[{\"tokens\":1}]"},
        {"draft", "[{\"seconds\":1}]"},
        {"draft", "[" POINT("nodes", 1) "]"},
        {"draft", "[" POINT("tokens", 0) "]"},
        {"draft", "[" POINT("tokens", 2147483648) "]"},
        {"draft", "[" POINT("tokens", 2) "," POINT("tokens", 2) "]"},
        {"draft", "[{\"tokens\":1,\"seconds\":0}]"},
        {"draft", "[{\"tokens\":1,\"seconds\":1e999}]"},
        {"target", "[" POINT("tokens", 1) "]"},
        {"head_first", "[" POINT("nodes", 1) "]"},
        {"head", "7"},
        {"head", "[7]"},
        {"head", "[{\"topk\":1,\"points\":[" POINT("rows", 1) "]}]"},
        {"head", "[{\"topk\":1}]"},
        {"head", "[{\"topk\":1,\"points\":[" POINT("nodes", 1) "]}]"}};
    pass_costs found;
    specrt_error err;
    char expected[64], most[64 * 40] = "[";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(expected, sizeof expected, "costs.json: %s: expected ", bad[i][0]);
        CHECK_INT(read_with(bad[i][0], bad[i][1], &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, expected);
    }
    for (int n = 1; n <= CURVE_MOST; n++)
        sprintf(most + strlen(most), "{\"tokens\":%d,\"seconds\":%d}%s", n, n,
                n < CURVE_MOST ? "," : "]");
    REQUIRE(read_with("draft", most, &found, &err) == SPECRT_STATUS_OK);
    CHECK_INT(found.draft.n, CURVE_MOST);
    CHECK(!found.keeps_chains);
    strcpy(most + strlen(most) - 1, "," POINT("tokens", 65) "]");
    CHECK_INT(read_with("draft", most, &found, &err), SPECRT_STATUS_BAD_INPUT);
    clear_folder();
}

/* A straight curve: `at` for a size of 0 and `slope` for each more. */
static void set_line(curve *c, double at, double slope) {
    c->n = 0;
    sl_curve_add(c, 1, at + slope);
    sl_curve_add(c, 4096, at + 4096 * slope);
}

/* Cycles by hand: the drafter's passes, its products by the next measured width, and the target's pass over a
 * chain's levels, or over as many nodes as the levels have or the tree may have. */
static void test_table(void) {
    static const struct {
        specrt_tree_params tree;
        double width, nodes[4]; /* which curve of the head; nodes of drafts of 0 to 3 levels */
    } trees[] = {{{3, 1, 4}, 1, {1, 2, 3, 4}},      {{3, 2, 60}, 2, {1, 3, 7, 11}},
                 {{3, 4, 16}, 2, {1, 5, 16, 16}},   {{3, 5, 60}, 3, {1, 6, 31, 56}},
                 {{3, 10, 60}, 3, {1, 11, 60, 60}}, {{3, 12, 60}, 3, {1, 13, 60, 60}}};
    static const int32_t rows[] = {1000, 2000};
    pass_costs costs = {.error = 0};
    double cycles[8];
    set_line(&costs.head_first, 3, 0.5);
    for (int w = 0; w < PASS_WIDTHS; w++) set_line(&costs.head[w], w + 1, w + 1);
    set_line(&costs.draft, 7, 11);
    set_line(&costs.target, 1000, 13);
    for (size_t t = 0; t < sizeof trees / sizeof *trees; t++) {
        const auto_desc desc = {&costs, &trees[t].tree, rows, NULL, 2};
        double w = trees[t].width, draft = 7 + 11 * (double)trees[t].tree.topk;
        CHECK_NEAR(auto_table(&desc, cycles), 11, 1e-9);
        for (int i = 0; i < 8; i++) {
            int n = i % 4;
            double size = rows[i / 4], sum = 1000 + 13 * trees[t].nodes[n];
            if (n) sum += 18 + 3 + 0.5 * size + (n - 1) * (draft + w + w * size);
            CHECK_NEAR(cycles[i], sum, 1e-6);
        }
    }
    costs.draft.y[1] = costs.draft.y[0] / 2; /* falls: reading more takes no less */
    const auto_desc desc = {&costs, &trees[0].tree, rows, NULL, 1};
    CHECK(auto_table(&desc, cycles) == 0);
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

/* Halves of a list, down to 512 rows, by the text and by a policy, where ends have rows in all of them. */
static void test_lists(void) {
    static const sizes by_text[] = {
        {"static:4096", 0, 4, {512, 1024, 2048, 4096}},
        {"static:1023", 0, 1, {1023}},
        {"static:5", 0, 1, {5}},
        {"static:131072", 0, 8, {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}},
        {"static:0", 0, 0, {0}},
        {"static:-8", 0, 0, {0}},
        {"static", 0, 0, {0}},
        {"full", 0, 0, {0}},
        {"static:600+window:8", 0, 0, {0}}};
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
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_error err;
    const specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = 8};
    for (size_t i = 0; i < sizeof by_text / sizeof *by_text; i++)
        check_sizes(&by_text[i], auto_sizes(by_text[i].text, found), found);
    REQUIRE(specrt_bundle_open_memory(bytes, n, "ranks", NULL, &bundle, &err) == SPECRT_STATUS_OK);
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &head, &err) == SPECRT_STATUS_OK);
    for (size_t i = 0; i < sizeof by_policy / sizeof *by_policy; i++) {
        const int32_t end = (7 * by_policy[i].last_end + 3) % V; /* as fixture_ranks() ranks */
        specrt_policy *policy;
        const specrt_policy_desc p = {
            .text = by_policy[i].text, .n_terminators = 1, .terminators = &end};
        REQUIRE(specrt_policy_create(bundle, head, &p, &policy, &err) == SPECRT_STATUS_OK);
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
    const specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = 8};
    const specrt_tree_params tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    const specrt_policy_desc p = {.text = text};
    specrt_policy *policy;
    specrt_head *head;
    specrt_auto *a;
    specrt_auto_choice choice;
    specrt_error err;
    pass_costs costs = {.policy_rows = policy_rows};
    snprintf(costs.policy, sizeof costs.policy, "%s", costs_policy);
    set_line(&costs.head_first, 0, 1);
    for (int w = 0; w < PASS_WIDTHS; w++) costs.head[w] = costs.head_first;
    set_line(&costs.draft, 1, 0);
    set_line(&costs.target, 1000, 0);
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &head, &err) == SPECRT_STATUS_OK);
    REQUIRE(specrt_policy_create(NULL, head, &p, &policy, &err) == SPECRT_STATUS_OK);
    REQUIRE(auto_create(&costs, &tree, policy, &a, &err) == SPECRT_STATUS_OK);
    specrt_auto_begin(a);
    specrt_auto_choose(a, &choice);
    specrt_auto_close(a);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return choice.num_steps;
}

/* The rows that a policy scored count for that policy, up to its bound. */
static void test_rows(void) {
    CHECK(first_steps("full", "full", 2) > 0);
    CHECK_INT(first_steps("full", "full", 0), 0);
    CHECK_INT(first_steps("full", "window:8@min=8", 2), 0);
    CHECK(first_steps("window:8@min=8", "window:8@min=8", 5000) > 0);
}

static void test_word(void) {
    pass_costs costs = some_costs();
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

static void test_file(void) {
    specrt_error err;
    pass_costs costs;
    REQUIRE(read_with("policy", "\"static:64\"", &costs, &err) == SPECRT_STATUS_OK);
    const char *file = auto_policy_file("auto", &costs);
    REQUIRE(file != NULL);
    CHECK(strstr(file, "costs.json") != NULL);
    CHECK(auto_policy_file("auto+full", &costs) == NULL);
    CHECK(auto_policy_file("static:64", &costs) == NULL);
    REQUIRE(read_with("policy_rows", "7", &costs, &err) == SPECRT_STATUS_OK);
    CHECK(auto_policy_file("auto", &costs) == NULL);

    specrt_error_set(&err, SPECRT_STATUS_BAD_ARG, "policy 'x': y");
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_BAD_ARG, NULL, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "policy 'x': y");
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_BAD_ARG, "c.json", &err), SPECRT_STATUS_BAD_ARG);
    CHECK(strstr(err.msg, "c.json: policy: ") == err.msg && strstr(err.msg, "policy 'x': y"));
    CHECK_INT(auto_policy_opened(SPECRT_STATUS_OK, "c.json", &err), SPECRT_STATUS_OK);
    clear_folder();
}

static const test_case cases[] = {
    {"round", "a file holds curves and the policy", test_round},
    {"refused", "a policy that is none, and rows that are none, are refused by file and field",
     test_refused},
    {"curves", "curves that are none are refused by file and key", test_curves},
    {"table", "costs of cycles by hand", test_table},
    {"lists", "halves of a list that keep what ends a generation", test_lists},
    {"rows", "rows that a policy scored are those that its drafts cost", test_rows},
    {"file", "a policy that does not open is told with the file that names it", test_file},
    {"word", "auto takes the costs' policy, auto+SPEC its own", test_word},
};
TEST_MAIN(cases)
