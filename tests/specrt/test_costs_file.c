/* test_costs_file.c : costs in a file, whose they are, and where they are kept. */
#include "folder.h"
#include "costs.h"

#include <math.h>

static specrt_costs kept_costs(void) {
    specrt_costs c = costs_of(0.37, 0.1);
    strcpy(c.machine, "m");
    strcpy(c.key, "k");
    put_head(&c, "full", 0.00125);
    put_head(&c, "static:2048+window+successor:256", 1.0 / 3072);
    for (int32_t i = 0; i < SPECRT_CURVE_MAX_SIZES; i++) {
        specrt_curve_add(&c.head_first, 100 + i, 1e-5 * (i + 1));
        specrt_curve_add(&c.head_next[2], 100 + i, 1e-4 * (i + 1));
    }
    specrt_curve_add(&c.head_next[0], INT32_MAX, 1.0 / 3);
    c.keeps_chains = 1;
    c.policy_rows = 697;
    strcpy(c.policy, "static:512+window:3072@min=3072");
    c.error = 0.01, c.worst = 0.25;
    return c;
}

static bool same_curve(const specrt_curve *a, const specrt_curve *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->sizes[i] == b->sizes[i] && fabs(a->seconds[i] / b->seconds[i] - 1) < 1e-8;
    return same;
}

static bool same_costs(const specrt_costs *a, const specrt_costs *b) {
    bool same = same_curve(&a->target, &b->target) && same_curve(&a->draft, &b->draft) &&
                same_curve(&a->head_first, &b->head_first) && a->n_heads == b->n_heads &&
                strcmp(a->machine, b->machine) == 0 && strcmp(a->key, b->key) == 0 &&
                strcmp(a->policy, b->policy) == 0 && a->policy_rows == b->policy_rows &&
                a->keeps_chains == b->keeps_chains && a->error == b->error && a->worst == b->worst;
    for (int i = 0; i < SPECRT_COSTS_WIDTHS; i++)
        same = same && same_curve(&a->head_next[i], &b->head_next[i]);
    for (int i = 0; same && i < a->n_heads; i++)
        same = strcmp(a->heads[i].policy, b->heads[i].policy) == 0 &&
               fabs(a->heads[i].seconds / b->heads[i].seconds - 1) < 1e-8;
    return same;
}

static void test_kept(void) {
    specrt_costs c = kept_costs(), found;
    specrt_error err;
    const char *path = in_folder("a.costs");
    c.changed = 1;
    CHECK_INT(specrt_costs_read(path, NULL, &found, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "a.costs: expected a file of costs, found none that opens");
    REQUIRE(specrt_costs_write(&c, path, &err) == SPECRT_STATUS_OK);
    CHECK(!c.changed);
    CHECK_INT(specrt_costs_read(path, NULL, &found, &err), SPECRT_STATUS_OK);
    CHECK(same_costs(&c, &found));
    CHECK_INT(specrt_costs_read(path, "k", &found, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "a.costs: machine: expected ");
    CHECK_HAS(err.msg, ", found m");
    CHECK_INT(found.target.n, 0);
    CHECK_INT(specrt_costs_write(&c, in_folder("none/a.costs"), &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "none/a.costs: expected a file that can be written, found none");
    CHECK_INT(clear_folder(), 1); /* and no part of it */
}

/* Cut anywhere, or with any byte changed, the text is damaged and never read as other costs. */
static void test_damaged(void) {
    specrt_costs c = kept_costs(), found;
    specrt_error err;
    char text[SPECRT_COSTS_BYTES];
    size_t n = specrt_costs_text(&c, text);
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(specrt_costs_parse(text, i, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, i < 15 ? "t: expected the first line `specrt costs 1`, found another"
                                  : "t: sum: expected the checksum of its lines at the end");
    }
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 4;
        CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_INT(found.target.n, 0);
        text[i] ^= 4;
    }
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_OK);
}

/* text with the checksum of its lines. @return its bytes */
static size_t seal(char text[512], const char *lines) {
    specrt_sha256 sha;
    uint8_t digest[32];
    int n = snprintf(text, 400, "specrt costs 1\n%s", lines);
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, text, (size_t)n);
    specrt_sha256_final(&sha, digest);
    n += snprintf(text + n, 8, "sum ");
    for (int k = 0; k < 8; k++) n += snprintf(text + n, 3, "%02x", digest[k]);
    text[n++] = '\n';
    return (size_t)n;
}

/* A whole file, sealed by its checksum, whose lines are no costs. */
static void test_bad_lines(void) {
    static const char *bad[] = {"machine m\nkey k\ntarget 2 0.1\ntarget 2 0.1\n",
                                "machine m\nkey k\ntarget 1 -1\n",
                                "machine m\nkey k\ntarget 1 nan\n",
                                "machine m\nkey k\ntarget 0 0.1\n",
                                "machine m\nkey k\ndraft 1 inf\n",
                                "machine m\nkey k\nhead 0 full\n",
                                "machine m\nkey k\nwhat 1 2\n",
                                "machine m\nkey k\ndraft 1 1\n",
                                "machine m\nkey k\nfirst 2147483648 1\n",
                                "machine m\nkey k\nnext 1 2 0\n",
                                "machine m\nkey k\nnext 5 2 1\n",
                                "machine m\nkey k\nnext 4 2\n",
                                "machine m\nkey k\nkeeps_chains 2\n",
                                "machine m\nkey k\nerror 0.2 0.1\n",
                                "machine m\nkey k\nerror nan nan\n",
                                "machine m\nkey k\npolicy 0 nothing\n",
                                "machine m\nkey k\npolicy 0 auto\n",
                                "machine m\nkey k\npolicy -1 full\n",
                                "machine m\nkey k\npolicy 2147483648 full\n",
                                "machine m\nkey k\npolicy full\n",
                                "machine m\nkey k\npolicy 0 full\npolicy 0 full\n",
                                "machine m\nkey k\n",
                                "machine m\nkeys\n",
                                "machine\n",
                                ""};
    char text[512];
    specrt_costs found;
    specrt_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n = seal(text, bad[i]);
        CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK(strstr(err.msg, "t: line ") || strstr(err.msg, "t: expected times of target and"));
        CHECK(found.target.n == 0 && found.draft.n == 0 && !found.machine[0]);
    }
    size_t n = seal(text, "machine m\nkey k\ntarget 1 0.1\ntarget 2 -1\n");
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "t: line 5: expected machine, key, then costs, of sizes that ascend, "
                       "seconds above 0 and a policy that there is, found target 2 -1");
    n = seal(text, "machine m\nkey k\ntarget 1 3\ntarget 2 1\ndraft 1 1\n"); /* times that fall */
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_OK);
    CHECK_NEAR(found.target.seconds[1], 2, 1e-9);
}

/* Beside the bundle; in the user's cache folder without one, or nowhere. */
static void test_path(void) {
    char path[SPECRT_COSTS_PATH], other[SPECRT_COSTS_PATH];
    const char *bundle = in_folder("pair.specb");
    specrt_costs_path(bundle, "key", path);
    CHECK(strncmp(path, bundle, strlen(bundle)) == 0 && strstr(path, ".costs") != NULL);
    specrt_costs_path(bundle, "other key", other);
    CHECK(strcmp(path, other) != 0);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    specrt_costs_path(NULL, "key", path);
    CHECK(strncmp(path, in_folder("cache/specrt/"), strlen(in_folder("cache/specrt/"))) == 0);
    specrt_costs_path("/no/such/folder/pair.specb", "key", other);
    CHECK_STR(other, path);
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", in_folder("home/of/nobody"), 1);
    specrt_costs_path(NULL, "key", path);
    CHECK_STR(path, "");
    clear_folder();
}

static int meter_pass(void *user, int32_t n, double *seconds) {
    *seconds = 0.01 * n;
    return ++*(int *)user, 0;
}

/* A pass of 2 tokens takes longer than those of 4. */
static int meter_busy(void *user, int32_t n, double *seconds) {
    *seconds = n == 2 ? 0.9 : 0.01 * n;
    return ++*(int *)user, 0;
}

static specrt_costs costs;
static char line[SPECRT_COSTS_LINE];

/* @return passes that were measured */
static int find(int (*pass)(void *, int32_t, double *), const char *path, const char *key) {
    int n_calls = 0;
    const specrt_meter meter = {&n_calls, pass, pass};
    CHECK_INT(specrt_costs_find(&meter, 4, path, key, &costs, line, NULL), SPECRT_STATUS_OK);
    return n_calls;
}

/* A file is used where it can be; else there is one line that says why not. */
static void test_find(void) {
    const char *path = in_folder("a.costs");
    CHECK(find(meter_pass, path, "k") > 4 && costs.changed);
    CHECK_HAS(line, "costs: measured in 0.0 s, kept in /");
    REQUIRE(specrt_costs_write(&costs, path, NULL) == SPECRT_STATUS_OK);
    CHECK(find(meter_pass, path, "k") == 0 && !costs.changed && costs.target.n == 4);
    CHECK_HAS(line, "costs: read from /");
    CHECK(find(meter_pass, path, "other") > 4 && costs.changed);
    CHECK_HAS(line,
              "a.costs: key: expected these models and settings, found others; measured again "
              "in 0.0 s");
    strcpy(costs.machine, "another one");
    REQUIRE(specrt_costs_write(&costs, path, NULL) == SPECRT_STATUS_OK);
    CHECK(find(meter_pass, path, "other") > 4);
    CHECK_HAS(line, "a.costs: machine: expected ");
    CHECK_HAS(line, "found another one; measured again in 0.0 s");
    CHECK(find(meter_pass, "", "k") > 4);
    CHECK_HAS(line, "kept in no file: there is no cache folder");
    find(meter_busy, "", "k");
    CHECK_HAS(line, " s on a busy machine, not kept");
    find(meter_busy, path, "k");
    CHECK_HAS(line, "found another one; measured again in 0.0 s on a busy machine, not kept");
    CHECK_INT(specrt_costs_write(&costs, path, NULL), SPECRT_STATUS_OK);
    CHECK(costs.changed);
    CHECK_INT(specrt_costs_read(path, NULL, &costs, NULL), SPECRT_STATUS_OK);
    CHECK_STR(costs.machine, "another one"); /* the file is as it was */
    clear_folder();
}

static const test_case cases[] = {
    {"kept", "costs in a file, and whose they are", test_kept},
    {"damaged", "cut, or with one bit changed, at every byte", test_damaged},
    {"bad_lines", "a whole file that holds no costs", test_bad_lines},
    {"path", "beside the bundle, or in the user's cache folder", test_path},
    {"find", "from the file, or measured with one line", test_find},
};
TEST_MAIN(cases)
