/* test_seen.c : what tools say was seen is what the tables of published pairs show. */
#include "model/seen.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of full that the page gives a policy: the 4th column of its row in the pair's section. */
static double share_in_page(FILE *page, int pair, const char *policy) {
    char line[512], row[128], title[128];
    bool inside = false;
    double share = -1;
    snprintf(row, sizeof row, "| `%s` | ", policy);
    snprintf(title, sizeof title, "## %s\n", seen_pairs[pair]);
    rewind(page);
    while (fgets(line, sizeof line, page)) {
        if (strncmp(line, "## ", 3) == 0) inside = strcmp(line, title) == 0;
        if (!inside || strncmp(line, row, strlen(row)) != 0 || share >= 0) continue;
        const char *at = line + strlen(row);
        for (int bars = 0; bars < 2 && at; bars++) at = strchr(at, '|') + 1;
        share = atof(at);
    }
    return share;
}

static void test_page(void) {
    FILE *page = fopen("bench/results/published.md", "r");
    REQUIRE(page != NULL);
    for (const seen_policy *s = seen_policies; s->policy; s++)
        for (int pair = 0; pair < SEEN_PAIRS; pair++) {
            double share = share_in_page(page, pair, s->policy);
            if (share != s->kept[pair])
                printf("%s on %s: the page has %g, the tools %g\n", s->policy, seen_pairs[pair],
                       share, s->kept[pair]);
            CHECK(share == s->kept[pair]);
        }
    fclose(page);
}

static void test_say(void) {
    char text[SEEN_MOST];
    CHECK(seen_say("sketch:128", text));
    CHECK_HAS(text, "kept 100.0% of accept length on Qwen2.5-Coder-1.5B");
    for (int pair = 0; pair < SEEN_PAIRS; pair++) CHECK_HAS(text, seen_pairs[pair]);
    CHECK(!seen_say("static:2049", text));
    CHECK(text[0] == '\0');
}

static const test_case cases[] = {
    {"page", "shares are those of bench/results/published.md", test_page},
    {"say", "a policy that was seen, and one that was not", test_say},
};
TEST_MAIN(cases)
