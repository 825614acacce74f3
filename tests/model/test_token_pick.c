/* test_token_pick.c : the most frequent tokens that a head has rows for, and what they cover. */
#include "model/token_pick.h"
#include "test.h"

#include <math.h>

/* A terminator, a forced id, three counted ids, one never seen and one reserved. */
static const specrt_ranks_header header = {
    .n_vocab = 7, .n_ranked = 7, .n_forced = 2, .n_terminators = 1, .n_valid = 6, .n_default = 3};
static const int32_t ids[] = {6, 0, 3, 5, 1, 2, 4};
static const uint64_t counts[] = {100, 0, 60, 30, 10, 0, 0};
static const specrt_ranks ranks = {&header, ids, counts};

TEST(pick, "by rank, of those with rows") {
    static const struct {
        int32_t rows[7], n_ids, size, picked[7], n, n_missing, n_terminators;
    } table[] = {
        {{0, 1, 2, 3, 4, 5, 6}, 7, 0, {6, 0, 3}, 3, 0, 0},
        {{0, 1, 2, 3, 4, 5, 6}, 7, 6, {6, 0, 3, 5, 1, 2}, 6, 0, 0},
        {{-1, 0, 1, -1, -1, -1, -1}, 7, 0, {1, 2}, 2, 4, 1}, /* fewer than the calibrated size */
        {{0, 1, 2, 3, 4, 5, 6}, 6, 2, {0, 3}, 2, 1, 1},
        {{-1, 0, 1, -1, 2, 3, -1}, 7, 2, {5, 1}, 2, 3, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        token_pick p;
        REQUIRE(sl_token_pick(&ranks, table[i].size, table[i].rows, table[i].n_ids, "d", &p,
                              NULL) == SPECRT_STATUS_OK);
        CHECK_INT(p.n, table[i].n);
        for (int32_t k = 0; k < p.n; k++) CHECK_INT(p.ids[k], table[i].picked[k]);
        CHECK_INT(p.n_missing, table[i].n_missing);
        CHECK_INT(p.n_terminators, table[i].n_terminators);
        free(p.ids);
    }
}

TEST(refuses, "sizes that the rows do not give") {
    static const struct {
        int32_t rows[7], size;
        const char *says;
    } table[] = {
        {{0, 1, 2, 3, 4, 5, 6}, 1, "size 1: expected at least 2 (the forced ids)"},
        {{0, 1, 2, 3, -1, 5, 6},
         7,
         "size 7: expected at most 6, the ids of the bundle that have rows in d"},
        {{0, -1, 2, 3, 4, 5, 6},
         6,
         "size 6: expected at most 5, the ids of the bundle that have rows in d"},
        {{-1, -1, -1, -1, 4, -1, -1},
         0,
         "size 0: expected at most 0, the ids of the bundle that have rows in d"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        token_pick p;
        specrt_error err;
        CHECK_INT(sl_token_pick(&ranks, table[i].size, table[i].rows, 7, "d", &p, &err),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, table[i].says);
        CHECK(!p.ids);
    }
}

TEST(rows, "the inverse of a d2t") {
    static const int32_t d2t[] = {2, 0, 9}, expected[2][4] = {{1, -1, 0, -1}, {0, 1, 2, -1}};
    for (int i = 0; i < 2; i++) {
        int32_t *rows;
        REQUIRE(!sl_token_rows(i ? NULL : d2t, 3, 4, "d", &rows, NULL));
        for (int id = 0; id < 4; id++) CHECK_INT(rows[id], expected[i][id]);
        free(rows);
    }
}

TEST(coverage, "without terminators, NaN without counts") {
    static const uint64_t none[7];
    const specrt_ranks uncounted = {&header, ids, none};
    double x;
    REQUIRE(!sl_token_coverage(&ranks, (const int32_t[]){6, 3, 2}, 3, &x, NULL));
    CHECK(x == 0.6);
    REQUIRE(!sl_token_coverage(&ranks, (const int32_t[]){1, 3, 5, 9}, 4, &x, NULL));
    CHECK(x == 1);
    REQUIRE(!sl_token_coverage(&uncounted, ids, 7, &x, NULL));
    CHECK(isnan(x));
}
