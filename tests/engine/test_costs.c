/* test_costs.c : a file of costs, written and read: its curves, the policy that auto drafts from, and the
 * word `auto` beside it. */
#include "specrt_tools.h"
#include "engine/infer/auto.h"
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
    char text[1600];
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

static void test_word(void) {
    pass_costs costs = some_costs();
    CHECK_STR(auto_policy("auto", NULL), "microspec");
    CHECK_STR(auto_policy("auto", &costs), "microspec");
    snprintf(costs.policy, sizeof costs.policy, "window:512");
    CHECK_STR(auto_policy("auto", &costs), "window:512");
    CHECK_STR(auto_policy("auto+full", &costs), "full");
    CHECK_STR(auto_policy("static:64", &costs), "static:64");
    CHECK(auto_policy(NULL, &costs) == NULL);
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
    {"file", "a policy that does not open is told with the file that names it", test_file},
    {"word", "auto takes the costs' policy, auto+SPEC its own", test_word},
};
TEST_MAIN(cases)
