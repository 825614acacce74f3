/* test_select.c : ranking, sizes, coverage and the estimate of speed, against brute force and the
 * figures of the VocabTrim paper. */
#include "starve.h"
#include "test.h"

#include "tools/vocabtrim-calibrate/calibrate.h"
#include "tools/vocabtrim-calibrate/select.h"
#include "tools/vocabtrim-calibrate/sweep.h"

enum { N_VOCAB = 3000, FIRST_SPECIAL = 2900, FIRST_RESERVED = 2950, N_FOLDS = 3 };

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* A vocabulary with every kind of id, and domains with many equal counts. */
static void counts_fill(counts *c, int n_domains) {
    static const char *const names[] = {"a", "b", "c"};
    *c = (counts){.vocab = {.n_vocab = N_VOCAB}, .options = "messages=all folds=3 seed=1"};
    c->vocab.types = (uint8_t *)calloc(N_VOCAB, 1);
    memset(c->vocab.types + FIRST_SPECIAL, COUNTS_SPECIAL, FIRST_RESERVED - FIRST_SPECIAL);
    memset(c->vocab.types + FIRST_RESERVED, COUNTS_RESERVED, N_VOCAB - FIRST_RESERVED);
    c->vocab.types[7] = c->vocab.types[2901] = COUNTS_TERMINATOR;
    for (int i = 0; i < n_domains; i++) {
        static counts_row rows[N_FOLDS * N_VOCAB];
        counts_domain d = {.name = (char *)(uintptr_t)names[i], .rows = rows, .n_docs = 1};
        strcpy(d.provenance, "raw");
        for (int32_t id = 0; id < FIRST_SPECIAL; id++) {
            if (id == 7 || random_below(3) == 0) continue;
            for (int32_t fold = 0; fold < N_FOLDS; fold++) {
                counts_row row = {id, fold, random_below(10)};
                d.n_tokens += row.n;
                if (row.n) rows[d.n_rows++] = row;
            }
        }
        d.n_completions = 100;
        REQUIRE(sl_counts_add(c, &d, NULL) == SPECRT_STATUS_OK);
    }
}

/* Of all folds but one; -1: of all. */
static uint64_t count_of(const counts *c, int32_t id, int but, const double *weights) {
    uint64_t sum = 0;
    for (int i = 0; i < c->n_domains; i++)
        for (int32_t j = 0; j < c->domains[i].n_rows; j++)
            if (c->domains[i].rows[j].id == id && c->domains[i].rows[j].fold != but)
                sum += (uint64_t)((weights ? weights[i] : 1) * (double)c->domains[i].rows[j].n);
    return sum;
}

/* What the ranking must be, decided pair by pair. */
static bool ranks_before(const counts *c, int but, int32_t a, int32_t b, int32_t kept) {
    int32_t ids[2] = {a, b};
    int group[2];
    for (int i = 0; i < 2; i++) {
        uint8_t type = c->vocab.types[ids[i]];
        group[i] = type == COUNTS_TERMINATOR ? 0
                   : type == COUNTS_SPECIAL  ? 1
                   : ids[i] == kept          ? 2
                   : type == COUNTS_NORMAL   ? 3
                                             : 4;
    }
    if (group[0] != group[1]) return group[0] < group[1];
    uint64_t n_a = count_of(c, a, but, NULL), n_b = count_of(c, b, but, NULL);
    if (group[0] == 3 && n_a != n_b) return n_a > n_b;
    return a < b;
}

TEST(ranking, "order of forced, counted and reserved ids, ties by id") {
    counts c;
    calibrate_ranking r;
    int32_t kept = 2960;
    random_state = 11;
    counts_fill(&c, 3);
    REQUIRE(calibrate_ranking_create(&c, NULL, &kept, 1, &r, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(r.header.n_ranked, N_VOCAB);
    CHECK_INT(r.header.n_terminators, 2);
    CHECK_INT(r.header.n_forced, 1 + 50 + 1);
    CHECK_INT(r.header.n_valid, N_VOCAB - 49);
    CHECK_INT(r.ids[0], 7);
    CHECK_INT(r.ids[1], 2901);
    CHECK_INT(r.ids[51], kept);
    for (int32_t i = 0; i + 1 < N_VOCAB; i++)
        CHECK(ranks_before(&c, -1, r.ids[i], r.ids[i + 1], kept));
    /* The ranking that tests a fold is of the others. */
    for (int fold = 0; fold < N_FOLDS; fold++) {
        static int32_t by_rank[N_VOCAB];
        for (int32_t id = 0; id < N_VOCAB; id++) by_rank[r.folds[fold].position[id]] = id;
        for (int32_t i = 0; i + 1 < N_VOCAB; i++)
            CHECK(ranks_before(&c, fold, by_rank[i], by_rank[i + 1], kept));
    }
    for (int32_t i = 0; i < N_VOCAB; i++) {
        CHECK_INT(r.all.position[r.ids[i]], i);
        /* Completions count at the highest terminator. */
        uint64_t extra = r.ids[i] == 2901 ? 300 : 0;
        CHECK_INT(r.counts[i], count_of(&c, r.ids[i], -1, NULL) + extra);
    }
    uint64_t n_tokens = 0;
    for (int i = 0; i < 3; i++) n_tokens += c.domains[i].n_tokens;
    CHECK_INT(r.header.n_tokens, n_tokens);
    calibrate_ranking_free(&r);
    sl_counts_free(&c);
}

TEST(coverage, "overall and by domain, against brute force") {
    static const int32_t sizes[] = {1, 60, 777, 2000, 2951};
    counts c;
    calibrate_ranking r;
    random_state = 12;
    counts_fill(&c, 2);
    REQUIRE(calibrate_ranking_create(&c, NULL, NULL, 0, &r, NULL) == SPECRT_STATUS_OK);
    for (int s = 0; s < COVERAGE_KINDS; s++) {
        double by_domain[2][5];
        for (int d = 0; d < 2; d++)
            calibrate_ranking_coverage_domain(&r, &c.domains[d], s, sizes, 5, by_domain[d]);
        for (int k = 0; k < 5; k++) {
            uint64_t inside = 0, all = 0, inside_d[2] = {0};
            for (int d = 0; d < 2; d++) {
                for (int32_t j = 0; j < c.domains[d].n_rows; j++) {
                    const counts_row *row = &c.domains[d].rows[j];
                    const rank_curve *curve = s == COVERAGE_RANKED ? &r.all : &r.folds[row->fold];
                    if (curve->position[row->id] < sizes[k]) inside_d[d] += row->n;
                }
                inside += inside_d[d];
                all += c.domains[d].n_tokens;
                CHECK_NEAR(by_domain[d][k], (double)inside_d[d] / (double)c.domains[d].n_tokens,
                           1e-12);
            }
            CHECK_NEAR(calibrate_ranking_coverage(&r, s, sizes[k]), (double)inside / (double)all,
                       1e-12);
        }
    }
    /* The interval of all text, from what each fold covers. */
    double covered[N_FOLDS] = {0}, all[N_FOLDS] = {0};
    for (int d = 0; d < 2; d++)
        for (int32_t j = 0; j < c.domains[d].n_rows; j++) {
            const counts_row *row = &c.domains[d].rows[j];
            all[row->fold] += (double)row->n;
            if (r.folds[row->fold].position[row->id] < 777) covered[row->fold] += (double)row->n;
        }
    coverage_range expected = sl_coverage_range(covered, all, N_FOLDS, (double)r.n_held_out);
    coverage_range found = calibrate_ranking_interval(&r, NULL, 777);
    CHECK(found.low == expected.low && found.high == expected.high);
    found = calibrate_ranking_interval(&r, &c.domains[1], 777);
    double share = calibrate_ranking_coverage(&r, COVERAGE_HOLDOUT, 777);
    CHECK(found.low < share && share < found.high);
    calibrate_ranking_free(&r);
    /* One fold: all text is ranked, and nothing is held out. */
    strcpy(c.options, "messages=all folds=1 seed=1");
    for (int d = 0; d < 2; d++)
        for (int32_t j = 0; j < c.domains[d].n_rows; j++) c.domains[d].rows[j].fold = 0;
    REQUIRE(calibrate_ranking_create(&c, NULL, NULL, 0, &r, NULL) == SPECRT_STATUS_OK);
    share = calibrate_ranking_coverage(&r, COVERAGE_HOLDOUT, 777);
    CHECK(share != share && r.n_held_out == 0);
    calibrate_ranking_free(&r);
    sl_counts_free(&c);
}

TEST(weights, "weighted sums, exact and free of a common factor") {
    static const double weights[][3] = {{1, 3, 0}, {0.25, 0.75, 0}}, whole[] = {1, 3, 0};
    counts c;
    calibrate_ranking r[2];
    random_state = 13;
    counts_fill(&c, 3);
    for (int i = 0; i < 2; i++)
        REQUIRE(calibrate_ranking_create(&c, weights[i], NULL, 0, &r[i], NULL) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        CHECK_INT(r[0].ids[i], r[1].ids[i]);
        CHECK_INT(r[0].counts[i], r[1].counts[i]);
        uint64_t extra = r[0].ids[i] == 2901 ? 400 : 0;
        CHECK_INT(r[0].counts[i], count_of(&c, r[0].ids[i], -1, whole) + extra);
    }
    /* What is new of further text, and what was held out, of domains that count. */
    uint64_t n = 0, n_once = 0, n_held_out = 0;
    for (int32_t id = 0; id < N_VOCAB; id++) {
        uint64_t count = count_of(&c, id, -1, (const double[]){1, 1, 0});
        n += count, n_once += count == 1;
    }
    for (int i = 0; i < 2; i++) n_held_out += c.domains[i].n_tokens;
    CHECK_NEAR(r[0].unseen, (double)n_once / (double)n, 1e-12);
    CHECK_INT(r[0].n_held_out, n_held_out);
    for (int i = 0; i < 2; i++) calibrate_ranking_free(&r[i]);
    sl_counts_free(&c);
}

TEST(sizes, "the four rules and the range of each") {
    counts c;
    calibrate_ranking r;
    int32_t size;
    specrt_error err;
    random_state = 14;
    counts_fill(&c, 1);
    REQUIRE(calibrate_ranking_create(&c, NULL, NULL, 0, &r, NULL) == SPECRT_STATUS_OK);
    int32_t forced = r.header.n_forced, valid = r.header.n_valid;
    const double good[] = {forced, 1000, valid};
    for (int i = 0; i < 3; i++) {
        CHECK(select_size(&r, SELECT_SIZE, good[i], 0, &size, &err) == SPECRT_STATUS_OK);
        CHECK_INT(size, good[i]);
    }
    const double bad[] = {0, -5, forced - 1, valid + 1, 1e12};
    for (int i = 0; i < 5; i++) {
        CHECK(select_size(&r, SELECT_SIZE, bad[i], 0, &size, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, "expected 51 ");
        CHECK_HAS(err.msg, "to 2950");
    }
    /* The smallest size that reaches the share of held-out text: one less does not. */
    for (double share = 0.05; share < 0.99; share += 0.05) {
        REQUIRE(select_size(&r, SELECT_MASS, share, 0, &size, &err) == SPECRT_STATUS_OK);
        CHECK(calibrate_ranking_coverage(&r, COVERAGE_HOLDOUT, size) >= share);
        CHECK(size == forced || calibrate_ranking_coverage(&r, COVERAGE_HOLDOUT, size - 1) < share);
    }
    for (int least = 1; least < 40; least += 7) {
        int32_t expected = forced;
        for (int32_t i = forced; i < valid; i++) expected += r.counts[i] >= (uint64_t)least;
        CHECK(select_size(&r, SELECT_MIN_COUNT, least, 0, &size, &err) == SPECRT_STATUS_OK);
        CHECK_INT(size, expected);
    }
    CHECK(select_size(&r, SELECT_BUDGET, 1, 1000, &size, &err) == SPECRT_STATUS_OK);
    CHECK_INT(size, 1048);
    CHECK(select_size(&r, SELECT_BUDGET, 100, 1000, &size, &err) == SPECRT_STATUS_OK);
    CHECK_INT(size, valid);
    CHECK(select_size(&r, SELECT_BUDGET, 0.01, 1000, &size, &err) == SPECRT_STATUS_BAD_ARG);
    calibrate_ranking_free(&r);
    sl_counts_free(&c);
}

/* Of 10 tokens 3 occur once; `held_out` tokens of the second part, which alone is held out as in counts of
 * version 1, are one that the ranking of the first has last. */
static void little_text(int n_held_out, calibrate_ranking *r) {
    counts_row rows[] = {{5, 0, 5}, {6, 0, 2},  {8, 0, 1},
                         {9, 0, 1}, {10, 0, 1}, {90, 1, (uint64_t)n_held_out}};
    counts_domain d = {.name = (char *)(uintptr_t) "a", .rows = rows, .n_docs = 1};
    counts c = {.vocab = {.n_vocab = 100}};
    c.vocab.types = (uint8_t *)calloc(100, 1);
    strcpy(d.provenance, "raw");
    d.n_rows = n_held_out ? 6 : 5;
    d.n_tokens = 10 + (uint64_t)n_held_out;
    REQUIRE(sl_counts_add(&c, &d, NULL) == SPECRT_STATUS_OK);
    REQUIRE(calibrate_ranking_create(&c, NULL, NULL, 0, r, NULL) == SPECRT_STATUS_OK);
    sl_counts_free(&c);
}

TEST(little_text, "a share without held-out text counts what was not seen") {
    calibrate_ranking r;
    int32_t size;
    specrt_error err;
    little_text(0, &r);
    CHECK_INT(r.n_seen, 5);
    CHECK_NEAR(r.unseen, 0.3, 1e-12);
    CHECK_NEAR(calibrate_ranking_estimate(&r, 2), 0.7 * 0.7, 1e-12);
    CHECK_NEAR(calibrate_ranking_estimate(&r, 5), 0.7, 1e-12);
    CHECK_NEAR(calibrate_ranking_estimate(&r, 24), 0.7 + 0.3 * 19 / 95, 1e-12);
    CHECK_NEAR(calibrate_ranking_estimate(&r, 100), 1, 1e-12);
    REQUIRE(select_size(&r, SELECT_MASS, 0.75, 0, &size, &err) == SPECRT_STATUS_OK);
    CHECK_INT(size, 21);
    calibrate_ranking_free(&r);
    /* 3 / (1 - .75) = 12 can show three quarters; fewer only make the list longer. */
    for (int n = 1; n < 14; n++) {
        little_text(n, &r);
        REQUIRE(select_size(&r, SELECT_MASS, 0.75, 0, &size, &err) == SPECRT_STATUS_OK);
        CHECK_INT(size, 91);
        REQUIRE(select_size(&r, SELECT_MASS, 1, 0, &size, &err) == SPECRT_STATUS_OK);
        CHECK_INT(size, 100);
        calibrate_ranking_free(&r);
    }
    CHECK_NEAR(select_mass_needs(0.98), 150, 1e-9);
}

/* VocabTrim's figures for Llama-3.2-3B; docs/methods/vocabtrim.md tells the conventions behind them. */
TEST(mbsu, "the four values of the VocabTrim paper") {
    const double target = 3.2126e9, rows = 128256;
    const speed_model eagle = {.target_params = target,
                               .draft_params = 907.5e6,
                               .d_draft = 3072,
                               .n_rows = 128256,
                               .n_rates = 4};
    const speed_model independent = {.target_params = target,
                                     .draft_params = 314e6,
                                     .d_draft = 1024,
                                     .n_rows = 128256,
                                     .n_rates = 4};
    CHECK_NEAR(speed_c(&eagle, 128256), 0.28250, 5e-5);
    CHECK_NEAR(speed_c(&eagle, 32975), 0.19139, 5e-5);
    CHECK_NEAR(speed_c(&independent, 128256), 0.09774, 5e-5);
    CHECK_NEAR(speed_c(&independent, 32975), 0.06739, 5e-5);
    CHECK_NEAR(speed_mbsu(3.141, speed_c(&eagle, (int32_t)rows), 4), 1.475, 5e-4);
    CHECK_NEAR(speed_mbsu(3.081, speed_c(&eagle, 32975), 4), 1.745, 5e-4);
    /* A tree of depth 5 has 6 drafter passes. */
    CHECK_NEAR(speed_mbsu(3.551, speed_c(&eagle, (int32_t)rows), 6), 1.318, 5e-4);
    CHECK_NEAR(speed_mbsu(3.846, speed_c(&independent, (int32_t)rows), 4), 2.765, 5e-4);
}

TEST(tau, "the closed form against drawing cycles") {
    const double rates[] = {0.8, 0.7, 0.6}, coverage = 0.9;
    double sum = 0;
    int n = 2000000;
    random_state = 15;
    for (int i = 0; i < n; i++) {
        int accepted = 0;
        while (accepted < 3 && random_below(1u << 30) < rates[accepted] * (1u << 30) &&
               random_below(1u << 30) < coverage * (1u << 30))
            accepted++;
        sum += accepted + 1;
    }
    CHECK_NEAR(speed_tau(rates, 3, coverage), sum / n, 0.004);
    CHECK_NEAR(speed_tau(rates, 3, 1), 1 + 0.8 + 0.8 * 0.7 + 0.8 * 0.7 * 0.6, 1e-12);
    CHECK_NEAR(speed_tau(rates, 3, 0), 1, 0);
}

static void check_sweep(const calibrate_ranking *r, const speed_model *m, int32_t chosen, int n,
                        const int32_t *sizes) {
    sweep s;
    REQUIRE(sweep_create(r, m, chosen, &s, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(s.n_rows, n);
    for (int i = 0; i < n && i < s.n_rows; i++) CHECK_INT(s.rows[i].size, sizes[i]);
    CHECK_INT(s.rows[s.chosen].size, chosen);
    int best = -1;
    for (int i = 0; i < s.n_rows; i++)
        if (m->n_rates && (best < 0 || s.rows[i].mbsu > s.rows[best].mbsu)) best = i;
    CHECK_INT(s.best, best);
    sweep_free(&s);
}

TEST(sweep, "powers of two, the chosen size, the best") {
    counts c;
    calibrate_ranking r;
    double *rates = (double *)malloc(2 * sizeof *rates); /* and nothing behind them */
    REQUIRE(rates);
    rates[0] = 0.8, rates[1] = 0.7;
    const speed_model none = {.n_rows = N_VOCAB};
    const speed_model some = {.rates = rates,
                              .n_rates = 2,
                              .target_params = 1e6,
                              .draft_params = 4e5,
                              .d_draft = 100,
                              .n_rows = N_VOCAB};
    random_state = 16;
    counts_fill(&c, 2);
    REQUIRE(calibrate_ranking_create(&c, NULL, NULL, 0, &r, NULL) == SPECRT_STATUS_OK);
    check_sweep(&r, &none, 51, 5, (const int32_t[]){51, 512, 1024, 2048, 2950});
    check_sweep(&r, &some, 1024, 4, (const int32_t[]){512, 1024, 2048, 2950});
    check_sweep(&r, &some, 2000, 5, (const int32_t[]){512, 1024, 2000, 2048, 2950});
    check_sweep(&r, &some, 2500, 5, (const int32_t[]){512, 1024, 2048, 2500, 2950});
    check_sweep(&r, &some, 2950, 4, (const int32_t[]){512, 1024, 2048, 2950});
    free(rates);
    calibrate_ranking_free(&r);
    sl_counts_free(&c);
}

static int select_all(void *arg) {
    const speed_model none = {.n_rows = N_VOCAB};
    calibrate_ranking r = {.ids = NULL};
    sweep s = {.rows = NULL};
    specrt_status status = calibrate_ranking_create((const counts *)arg, NULL, NULL, 0, &r, NULL);
    if (!status) status = sweep_create(&r, &none, 100, &s, NULL);
    sweep_free(&s);
    calibrate_ranking_free(&r);
    return status;
}

static int name_all(void *arg) {
    char **names = NULL;
    specrt_status status = calibrate_options_domain_names((calibrate_options *)arg, &names, NULL);
    for (int i = 0; names && i < 3; i++) free(names[i]);
    free(names);
    return status;
}

TEST(no_memory, "every allocation that fails") {
    counts c;
    const char *paths[] = {"a/x", "b/x", "c"};
    calibrate_options o = {.corpus = {.items = paths, .n = 3}};
    test_starve(name_all, &o, SPECRT_STATUS_NO_MEMORY);
    random_state = 17;
    counts_fill(&c, 1);
    test_starve(select_all, &c, SPECRT_STATUS_NO_MEMORY);
    sl_counts_free(&c);
}
