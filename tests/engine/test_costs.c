/* test_costs.c : a file of costs, written and read: its curves, the policy that auto drafts from, and the
 * word `auto` beside it. */
#include "engine/budget.h"
#include "folder.h"
#include "base/io.h"

static pass_costs some_costs(void) {
    pass_costs c = {.keeps_chains = true};
    curve_add(&c.head_first, 1024, 1e-5);
    for (int w = 0; w < PASS_WIDTHS; w++) curve_add(&c.head[w], 2048, 2e-5 * (w + 1));
    curve_add(&c.draft, 1, 5e-5);
    curve_add(&c.target, 1, 1e-3);
    curve_add(&c.target, 60, 15e-3);
    return c;
}

static void test_round(void) {
    static const char *const policies[] = {"", "full", "static:512+window:3072@min=3072"};
    const char *path = in_folder("costs.json");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        pass_costs given = some_costs(), found;
        specrt_error err;
        snprintf(given.policy, sizeof given.policy, "%s", policies[i]);
        REQUIRE(pass_costs_write(&given, path, true, &err) == SPECRT_STATUS_OK);
        REQUIRE(pass_costs_read(path, &found, &err) == SPECRT_STATUS_OK);
        CHECK_STR(found.policy, policies[i]);
        CHECK(found.keeps_chains);
        CHECK_INT(found.target.n, 2);
        CHECK_NEAR(curve_at(&found.target, 60), 15e-3, 1e-12);
        CHECK_NEAR(curve_at(&found.head[2], 2048), 6e-5, 1e-12);
    }
    clear_folder();
}

static void test_refused(void) {
    static const char *const policies[] = {
        "7",           "null",          "{}",        "[\"full\"]",  "\"\"", "\"auto\"",
        "\"nothing\"", "\"auto+full\"", "\"full+\"", "\"window:0\""};
    const char *path = in_folder("costs.json");
    char text[1600], named[1100];
    for (size_t i = 0; i <= sizeof policies / sizeof *policies; i++) {
        pass_costs found;
        specrt_error err;
        memset(named, '0', sizeof named); /* window:000...1, longer than any policy's text */
        memcpy(named, "\"window:", 8);
        memcpy(named + sizeof named - 3, "1\"", 3);
        bool last = i == sizeof policies / sizeof *policies;
        int n = snprintf(text, sizeof text,
                         "{\"head_first\":[{\"rows\":1,\"seconds\":1}],\"head\":["
                         "{\"topk\":1,\"points\":[{\"rows\":1,\"seconds\":1}]},"
                         "{\"topk\":4,\"points\":[{\"rows\":1,\"seconds\":1}]},"
                         "{\"topk\":10,\"points\":[{\"rows\":1,\"seconds\":1}]}],"
                         "\"draft\":[{\"tokens\":1,\"seconds\":1}],"
                         "\"target\":[{\"nodes\":1,\"seconds\":1}],\"policy\":%s}",
                         last ? named : policies[i]);
        REQUIRE(n > 0 && out_bytes(path, true, text, strlen(text), &err) == SPECRT_STATUS_OK);
        CHECK(pass_costs_read(path, &found, &err) == SPECRT_STATUS_BAD_INPUT);
        CHECK(strstr(err.msg, "costs.json: policy") != NULL);
        CHECK_STR(found.policy, "");
    }
    clear_folder();
}

static void test_word(void) {
    pass_costs costs = some_costs();
    CHECK_STR(budget_policy("auto", NULL), "microspec");
    CHECK_STR(budget_policy("auto", &costs), "microspec");
    snprintf(costs.policy, sizeof costs.policy, "window:512");
    CHECK_STR(budget_policy("auto", &costs), "window:512");
    CHECK_STR(budget_policy("auto+full", &costs), "full");
    CHECK_STR(budget_policy("static:64", &costs), "static:64");
    CHECK(budget_policy(NULL, &costs) == NULL);
}

static const test_case cases[] = {
    {"round", "a file holds curves and the policy", test_round},
    {"refused", "a policy that is none is refused by file and field", test_refused},
    {"word", "auto takes the costs' policy, auto+SPEC its own", test_word},
};
TEST_MAIN(cases)
