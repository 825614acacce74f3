/* test_costs_file.c : costs in a file, whose they are, and where they are kept. */
#include "folder.h"
#include "costs.h"

#include <locale.h>
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
        specrt_curve_add(&c.draft_prompt, 100 + i, 1e-3 * (i + 1));
        c.head_first.low[i] = 0.9e-5 * (i + 1);
        c.draft_prompt.high[i] = 1.01e-3 * (i + 1);
    }
    specrt_curve_add(&c.prompt, 64, 0.5);
    specrt_curve_add(&c.prompt_all, 64, 0.75);
    specrt_curve_add(&c.head_next[0], INT32_MAX, 1.0 / 3);
    c.n_block = 7;
    c.keeps_chains = 1;
    c.policy_rows = 697;
    strcpy(c.policy, "static:512+window:3072@min=3072");
    c.error = 0.01, c.worst = 0.25;
    return c;
}

static bool same_curve(const specrt_curve *a, const specrt_curve *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->sizes[i] == b->sizes[i] && fabs(a->seconds[i] / b->seconds[i] - 1) < 1e-8 &&
               fabs(a->low[i] / b->low[i] - 1) < 1e-8 && fabs(a->high[i] / b->high[i] - 1) < 1e-8;
    return same;
}

static bool same_costs(const specrt_costs *a, const specrt_costs *b) {
    bool same = same_curve(&a->target, &b->target) && same_curve(&a->draft, &b->draft) &&
                same_curve(&a->head_first, &b->head_first) && same_curve(&a->prompt, &b->prompt) &&
                same_curve(&a->prompt_all, &b->prompt_all) &&
                same_curve(&a->draft_prompt, &b->draft_prompt) && a->n_heads == b->n_heads &&
                a->n_block == b->n_block && strcmp(a->machine, b->machine) == 0 &&
                strcmp(a->key, b->key) == 0 && strcmp(a->policy, b->policy) == 0 &&
                a->policy_rows == b->policy_rows && a->keeps_chains == b->keeps_chains &&
                a->error == b->error && a->worst == b->worst;
    for (int i = 0; i < SPECRT_COSTS_WIDTHS; i++)
        same = same && same_curve(&a->head_next[i], &b->head_next[i]);
    for (int i = 0; same && i < a->n_heads; i++)
        same = strcmp(a->heads[i].policy, b->heads[i].policy) == 0 &&
               fabs(a->heads[i].seconds / b->heads[i].seconds - 1) < 1e-8;
    return same;
}

TEST(kept, "costs in a file, and whose they are") {
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

TEST(damaged, "cut, or with one bit changed, at every byte") {
    specrt_costs c = kept_costs(), found;
    specrt_error err;
    static char text[SPECRT_COSTS_BYTES];
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

TEST(bad_lines, "a whole file, sealed by its checksum, whose lines are no costs") {
    static const char *bad[] = {"machine m\nkey k\ntarget 2 0.1\ntarget 2 0.1\n",
                                "machine m\nkey k\ntarget 1 -1\n",
                                "machine m\nkey k\ntarget 1 nan\n",
                                "machine m\nkey k\ntarget 0 0.1\n",
                                "machine m\nkey k\ndraft 1 inf\n",
                                "machine m\nkey k\ntarget 1.5 0.1\n",
                                "machine m\nkey k\ntarget 1 0.1 0.2 0.3\n",
                                "machine m\nkey k\ntarget 1 0.3 0.1 0.2\n",
                                "machine m\nkey k\ntarget 1 0.2 0.1\n",
                                "machine m\nkey k\ntarget 1 0.2 0.1 0.3 0.4\n",
                                "machine m\nkey k\ntarget 1 0,5\n",
                                "machine m\nkey k\ntarget 1 1e-13\n",
                                "machine m\nkey k\ntarget 1 1e9999999999\n",
                                "machine m\nkey k\nprompt 1 .\n",
                                "machine m\nkey k\nprompt_alll 1 1\n",
                                "machine m\nkey k\nhead 0 full\n",
                                "machine m\nkey k\nhead full\n",
                                "machine m\nkey k\nwhat 1 2\n",
                                "machine m\nkey k\nfirst 2147483648 1\n",
                                "machine m\nkey k\nnext 1 2 0\n",
                                "machine m\nkey k\nnext 5 2 1\n",
                                "machine m\nkey k\nnext 4 2\n",
                                "machine m\nkey k\nkeeps_chains 2\n",
                                "machine m\nkey k\nblock 0\n",
                                "machine m\nkey k\nblock 33\n",
                                "machine m\nkey k\nblock 1.5\n",
                                "machine m\nkey k\nblock 7 7\n",
                                "machine m\nkey k\nblock\n",
                                "machine m\nkey k\nerror 0.2 0.1\n",
                                "machine m\nkey k\nerror nan nan\n",
                                "machine m\nkey k\npolicy 0 nothing\n",
                                "machine m\nkey k\npolicy 0 auto\n",
                                "machine m\nkey k\npolicy -1 full\n",
                                "machine m\nkey k\npolicy 2147483648 full\n",
                                "machine m\nkey k\npolicy full\n",
                                "machine m\nkey k\npolicy 0 full\npolicy 0 full\n",
                                "machine m\nkeys\n",
                                "machine\n",
                                ""},
                      *const few[] = {"machine m\nkey k\ndraft 1 1\n", "machine m\nkey k\n"};
    char text[512];
    specrt_costs found;
    specrt_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n = seal(text, bad[i]);
        CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, "t: line ");
        CHECK(found.target.n == 0 && found.draft.n == 0 && !found.machine[0]);
    }
    for (int i = 0; i < 2; i++) {
        size_t n = seal(text, few[i]);
        CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(err.msg, "t: expected times of target and draft");
    }
    size_t n = seal(text, "machine m\nkey k\ntarget 1 0.1\ntarget 2 -1\n");
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_STR(err.msg, "t: line 5: expected machine, key, then costs, of sizes that ascend, "
                       "seconds above 0 and a policy that there is, found target 2 -1");
    n = seal(text, "machine m\nkey k\ntarget 1 3\ntarget 2 1\ndraft 1 1\n"); /* times that fall */
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, &err), SPECRT_STATUS_OK);
    CHECK_NEAR(found.target.seconds[1], 2, 1e-9);
}

TEST(numbers, "numbers in every form that printf() writes, and an interval") {
    static const struct {
        const char *text;
        double seconds;
    } numbers[] = {
        {"1", 1},        {"0.0672", 0.0672}, {".5", 0.5},   {"7.", 7},
        {"1e-05", 1e-5}, {"1.25e+02", 125},  {"2e3", 2000}, {"0.000000123456789", 1.23456789e-7}};
    char text[512], lines[200];
    specrt_costs found;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(lines, sizeof lines, "machine m\nkey k\ntarget 1 %s\ndraft 1 3 2 4e0\n",
                 numbers[i].text);
        size_t n = seal(text, lines);
        CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, NULL), SPECRT_STATUS_OK);
        CHECK_NEAR(found.target.seconds[0] / numbers[i].seconds, 1, 1e-14);
        CHECK(found.target.low[0] == found.target.high[0]);
        CHECK(!found.disturbed && found.spread == 0);
        CHECK(found.draft.low[0] == 2 && found.draft.seconds[0] == 3 && found.draft.high[0] == 4);
    }
}

TEST(disturbed, "what a file's intervals say of the machine that measured it") {
    char text[512];
    specrt_costs found;
    size_t n = seal(text, "machine m\nkey k\ntarget 1 1\ntarget 4 2 1.9 2.1\ndraft 1 1 0.9 1.1\n");
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, NULL), SPECRT_STATUS_OK);
    CHECK_NEAR(found.spread, (0.2 + 3 * 0.2) / 5, 1e-9);
    CHECK(!found.disturbed && found.n_block == 0);
    n = seal(text, "machine m\nkey k\ntarget 1 1\ntarget 4 2 1.9 2.1\ndraft 1 1 0.1 3\n"
                   "draft 7 3 2.9 3.2\nblock 7\n");
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, NULL), SPECRT_STATUS_OK);
    CHECK_NEAR(found.spread, (0.2 + 0.3) / 5, 1e-9); /* of one pass, over the whole block */
    CHECK(!found.disturbed && found.n_block == 7);
    n = seal(text, "machine m\nkey k\ntarget 1 1 0.8 1.1\ntarget 4 2\ndraft 1 1\n");
    CHECK_INT(specrt_costs_parse(text, n, "t", NULL, &found, NULL), SPECRT_STATUS_OK);
    CHECK_NEAR(found.spread, 0.3, 1e-9);
    CHECK(found.disturbed);
}

/* The text is the same where the locale has a decimal comma. Where the machine has no such locale, it is made
 * of the sources in /usr/share/i18n, if there are any. */
TEST(locale, "with a decimal comma, where there is one") {
    LEFT_TO_ALL(); /* making one takes its time */
    static char plain[SPECRT_COSTS_BYTES], text[SPECRT_COSTS_BYTES];
    char command[600];
    specrt_costs c = kept_costs(), found;
    size_t n = specrt_costs_text(&c, plain);
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s >/dev/null 2>&1",
                 in_folder("de_DE.UTF-8"));
        if (system(command) >= 0) setenv("LOCPATH", in_folder(""), 1);
        if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) fprintf(stderr, "no locale with a comma\n");
    }
    CHECK_INT(specrt_costs_text(&c, text), n);
    CHECK_STR(text, plain);
    CHECK_INT(specrt_costs_parse(plain, n, "t", NULL, &found, NULL), SPECRT_STATUS_OK);
    CHECK(same_costs(&c, &found));
    setlocale(LC_NUMERIC, "C");
    clear_folder();
}

TEST(path, "beside the bundle; in the user's cache folder without one, or nowhere") {
    char path[SPECRT_COSTS_PATH], other[SPECRT_COSTS_PATH];
    const char *bundle = in_folder("pair.specb");
    specrt_costs_path(bundle, "key", path);
    CHECK(strncmp(path, bundle, strlen(bundle)) == 0 && strstr(path, ".costs") != NULL);
    specrt_costs_path(bundle, "other key", other);
    CHECK(strcmp(path, other) != 0);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    unsetenv("HOME");
    specrt_costs_path(NULL, "key", path);
    CHECK(strncmp(path, in_folder("cache/specrt/"), strlen(in_folder("cache/specrt/"))) == 0);
    specrt_costs_path("/no/such/folder/pair.specb", "key", other);
    CHECK_STR(other, path);
    setenv("XDG_CACHE_HOME", "", 1);
    specrt_costs_path(NULL, "key", path);
    CHECK_STR(path, "");
    setenv("HOME", in_folder("home/of/nobody"), 1);
    specrt_costs_path(NULL, "key", path);
    CHECK_STR(path, "");
    setenv("HOME", in_folder("cache"), 1);
    specrt_costs_path(NULL, "key", path);
    CHECK(strncmp(path, in_folder("cache/.cache/specrt/"),
                  strlen(in_folder("cache/.cache/specrt/"))) == 0);
    clear_folder();
}

static int meter_pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    seconds[0] = 0.01 * n;
    return ++*(int *)user, pass > SPECRT_PASS_DRAFT;
}

/* A pass of 2 tokens takes longer than those of 4. */
static int meter_busy(void *user, specrt_pass pass, int32_t n, double *seconds) {
    seconds[0] = n == 2 ? 0.9 : 0.01 * n;
    return ++*(int *)user, pass > SPECRT_PASS_DRAFT;
}

static specrt_costs costs;
static char line[SPECRT_COSTS_LINE];

/* @return passes that were measured */
static int find(int (*pass)(void *, specrt_pass, int32_t, double *), const char *path,
                const char *key) {
    int n_calls = 0;
    const specrt_meter meter = {&n_calls, pass, {4, 8, 100, 100}};
    CHECK_INT(specrt_costs_find(&meter, path, key, &costs, line, NULL), SPECRT_STATUS_OK);
    return n_calls;
}

TEST(find, "a file is used where it can be; else there is one line that says why not") {
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
    CHECK_HAS(line, "costs: measured in 0.0 s, not kept: too busy to tell: more work took ");
    find(meter_busy, path, "k");
    CHECK_HAS(line, "found another one; measured again in 0.0 s, not kept: too busy to tell: ");
    CHECK_INT(specrt_costs_write(&costs, path, NULL), SPECRT_STATUS_OK);
    CHECK(costs.changed);
    CHECK_INT(specrt_costs_read(path, NULL, &costs, NULL), SPECRT_STATUS_OK);
    CHECK_STR(costs.machine, "another one"); /* the file is as it was */
    clear_folder();
}
