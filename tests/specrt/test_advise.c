/* test_advise.c : the verdict, against the time of whole requests added up. */
#include "specrt_adapt.h"
#include "fixture.h"
#include "test.h"
#include "costs.h"
#include <math.h>
#include <string.h>

static const specrt_plain plain = {
    .prompt_seconds = 0.5, .token_seconds = 0.1, .prompt_tokens = 40, .answer_tokens = 100};

/* A policy that reads prompts in so many seconds, and whose tokens take so long. */
static specrt_way way_of(const char *name, double bytes, double prompt, double token, double half) {
    double n = plain.answer_tokens;
    double value = (plain.prompt_seconds + n * plain.token_seconds) / (prompt + n * token);
    return (specrt_way){.name = name,
                        .bytes = bytes,
                        .accept_length = 2.5,
                        .prompt_seconds = prompt,
                        .token_seconds = token,
                        .ratio = {value, value - half, value + half}};
}

static specrt_advice advise(const specrt_way *ways, int32_t n, uint8_t *ties) {
    specrt_advice advice;
    specrt_error err;
    REQUIRE(specrt_advise(ways, n, &plain, ties, &advice, &err) == SPECRT_STATUS_OK);
    return advice;
}

/* Seconds of a request with an answer of n tokens. */
static double seconds_of(double prompt, double token, double n) {
    return prompt + n * token;
}

TEST(interval_decides, "the interval decides") {
    CHECK(specrt_ratio_outcome(&(specrt_ratio){1.1, 1.01, 1.2}) == SPECRT_OUTCOME_FASTER);
    CHECK(specrt_ratio_outcome(&(specrt_ratio){0.9, 0.85, 0.99}) == SPECRT_OUTCOME_SLOWER);
    CHECK(specrt_ratio_outcome(&(specrt_ratio){0.99, 0.92, 1.07}) == SPECRT_OUTCOME_TIE);
    CHECK(specrt_ratio_outcome(&(specrt_ratio){1.5, 1, 2}) == SPECRT_OUTCOME_TIE);
    CHECK(specrt_ratio_outcome(&(specrt_ratio){0.5, 0, 1}) == SPECRT_OUTCOME_TIE);
    CHECK(specrt_ratio_outcome(&(specrt_ratio){1.5, NAN, NAN}) == SPECRT_OUTCOME_TIE);
    CHECK(specrt_ratio_outcome(NULL) == SPECRT_OUTCOME_TIE);
    CHECK_STR(specrt_outcome_name(SPECRT_OUTCOME_FASTER), "faster");
    CHECK_STR(specrt_outcome_name(SPECRT_OUTCOME_TIE), "a tie");
    CHECK_STR(specrt_outcome_name(SPECRT_OUTCOME_SLOWER), "slower");
}

TEST(among_ties_fewest_bytes, "among ties the fewest bytes") {
    uint8_t ties[4];
    specrt_way ways[4] = {
        way_of("full", 900, 0.5, 0.080, 0.03), way_of("list", 30, 0.5, 0.081, 0.03),
        way_of("small", 10, 0.5, 0.082, 0.03), way_of("tiny", 1, 0.5, 0.090, 0.03)};
    specrt_advice a = advise(ways, 4, ties);
    CHECK(a.chosen == 2 && a.n_ties == 2);
    CHECK(ties[0] && ties[1] && ties[2] && !ties[3]);
    CHECK(a.outcome == SPECRT_OUTCOME_FASTER);
    ways[2].bytes = ways[1].bytes; /* then the faster one */
    CHECK(advise(ways, 4, NULL).chosen == 1);
    ways[0] = way_of("slow", 1, 0.5, 0.2, 0.001); /* the fastest is the second, and nothing ties */
    ways[2].ratio.value = 9;                      /* behind those that are asked for */
    a = advise(ways, 2, ties);
    CHECK(a.chosen == 1 && a.n_ties == 0 && !ties[0] && ties[1]);
}

TEST(is_no_tie, "neither wide intervals nor nearness alone make a tie") {
    specrt_way ways[2] = {way_of("full", 900, 0.5, 0.080, 0.5), way_of("slow", 1, 0.5, 0.086, 0.5)};
    CHECK(advise(ways, 2, NULL).chosen == 0);
    ways[0] = way_of("full", 900, 0.5, 0.080, 0.001);
    ways[1] = way_of("near", 1, 0.5, 0.082, 0.001);
    CHECK(advise(ways, 2, NULL).chosen == 0);
    ways[0] = way_of("full", 900, 0.5, 0.080, 0.02);
    ways[1] = way_of("near", 1, 0.5, 0.082,
                     0.02); /* the intervals overlap, but the difference is no chance */
    CHECK(ways[1].ratio.high > ways[0].ratio.low);
    CHECK(advise(ways, 2, NULL).chosen == 0);
    ways[1].ratio.low = ways[1].ratio.high = NAN; /* of one prompt: the slack decides */
    CHECK(advise(ways, 2, NULL).chosen == 1);
}

TEST(a_longer_answer_regains_prompt, "at the length that is named, both take as long") {
    const specrt_way way = way_of("window", 1, 3.5, 0.09, 0.01);
    specrt_advice a = advise(&way, 1, NULL);
    CHECK(a.outcome == SPECRT_OUTCOME_SLOWER);
    CHECK_NEAR(seconds_of(plain.prompt_seconds, plain.token_seconds, a.answer_tokens),
               seconds_of(way.prompt_seconds, way.token_seconds, a.answer_tokens), 1e-9);
    CHECK(a.answer_tokens > plain.answer_tokens);
}

TEST(a_greater_accept_length_would_do, "an accept length so great reaches plain decoding") {
    const specrt_way way = way_of("full", 1, 0.6, 0.12, 0.01);
    specrt_advice a = advise(&way, 1, NULL);
    double token = way.token_seconds * way.accept_length / a.accept_length;
    CHECK(a.answer_tokens == INFINITY);
    CHECK_NEAR(seconds_of(way.prompt_seconds, token, plain.answer_tokens),
               seconds_of(plain.prompt_seconds, plain.token_seconds, plain.answer_tokens), 1e-9);
}

TEST(nothing_helps_where_prompt_alone_takes_longer, "what nothing helps, and what needs no help") {
    const specrt_way way = way_of("full", 1, 20, 0.12, 0.01);
    specrt_advice a = advise(&way, 1, NULL);
    CHECK(a.answer_tokens == INFINITY && a.accept_length == INFINITY);
    const specrt_way fast = way_of("full", 1, 0.5, 0.05, 0.01);
    a = advise(&fast, 1, NULL);
    CHECK(a.answer_tokens == 0 && a.accept_length == 0);
}

static const char *text_of(const specrt_way *way, specrt_advice *a) {
    static char text[1024];
    *a = advise(way, 1, NULL);
    specrt_advice_text(way, &plain, a, text, sizeof text);
    return text;
}

TEST(text_says_decided, "the text says what decided") {
    specrt_advice a;
    specrt_way way = way_of("hybrid", 1, 0.5, 0.08, 0.01);
    CHECK_HAS(text_of(&way, &a), "Draft with hybrid: it is faster, 1.24 times");
    CHECK_HAS(text_of(&way, &a), "(prompt 40, answer 100 tokens)");
    specrt_plain untimed = plain;
    char text[512];
    untimed.prompt_tokens = 0;
    specrt_advice_text(&way, &untimed, &a, text, sizeof text);
    CHECK_HAS(text, "over answers of 100 tokens without their prompts.");
    CHECK(strstr(text_of(&way, &a), "cycle") == NULL);
    way.task = "math";
    CHECK_HAS(text_of(&way, &a), "in its worst task (math)");
    way = way_of("hybrid", 1, 0.5, 0.101, 0.07);
    CHECK_HAS(text_of(&way, &a), "Draft with hybrid or decode plainly: they are as fast");
    CHECK_HAS(text_of(&way, &a), "(95%: 0.92 to 1.06)");
    CHECK_HAS(text_of(&way, &a), "breaks even at an accept length of 2.53.");
    way = way_of("window", 1, 3.5, 0.09, 0.01);
    CHECK_HAS(text_of(&way, &a), "Decode plainly: window is slower, 0.84 times");
    CHECK_HAS(text_of(&way, &a),
              "A cycle takes 2.25 plain passes and gives 2.50 tokens; its prompts "
              "take 7.00 times plain decoding's");
    CHECK_HAS(text_of(&way, &a),
              "breaks even at answers of 300 tokens, or an accept length of 3.22.");
    way.ratio.low = way.ratio.high = NAN;
    CHECK_HAS(text_of(&way, &a), "these requests are too few to tell, a ratio of 0.84");
    CHECK_HAS(text_of(&way, &a), "Give 6 or more.");
    CHECK(strstr(text_of(&way, &a), "95%") == NULL);
}

TEST(text_is_cut_at_its_size, "the text is cut at its size") {
    specrt_advice a;
    const specrt_way way = way_of("window", 1, 3.5, 0.09, 0.01);
    const char *whole = text_of(&way, &a);
    for (size_t size = 1; size <= strlen(whole) + 2; size++) {
        char text[1024];
        memset(text, '#', sizeof text);
        specrt_advice_text(&way, &plain, &a, text, size);
        size_t n = strlen(whole) < size - 1 ? strlen(whole) : size - 1;
        CHECK(strlen(text) == n && strncmp(text, whole, n) == 0);
        CHECK(text[size] == '#');
    }
}

TEST(is_no_time_is_refused, "what is no time is refused") {
    specrt_way way = way_of("full", 1, 0.5, 0.1, 0.01), good = way;
    specrt_plain none = plain;
    specrt_advice a;
    specrt_error err;
    CHECK(specrt_advise(&way, 0, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    none.answer_tokens = 0;
    CHECK(specrt_advise(&way, 1, &none, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "advise: plain: expected");
    none = plain, none.answer_tokens = 1;
    CHECK(specrt_advise(&way, 1, &none, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected answers of 2 tokens or more, found 1");
    way.ratio.value = NAN;
    CHECK(specrt_advise(&way, 1, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "advise: full: expected");
    way = good, way.token_seconds = 0;
    CHECK(specrt_advise(&way, 1, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    way = good, way.accept_length = -1;
    CHECK(specrt_advise(&way, 1, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    way = good, way.prompt_seconds = NAN;
    CHECK(specrt_advise(&way, 1, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
    way = good, way.name = NULL, way.ratio.value = 0;
    CHECK(specrt_advise(&way, 1, &plain, NULL, &a, &err) == SPECRT_STATUS_BAD_ARG);
}

TEST(untried, "by costs alone, without a bundle; of a bundle's sections test_policy knows") {
    specrt_head *head;
    specrt_costs_drafts drafts = drafts_of(&head);
    specrt_costs c = costs_of(0.2, 0.05), d = c;
    put_head(&c, "full", 0.004);
    put_head(&c, "microspec", 0.0001);
    CHECK_STR(specrt_advise_untried(&c, &drafts), "microspec");
    put_head(&d, "full", 0.0038);
    put_head(&d, "microspec", 0.0001);
    double cycle = specrt_curve_at(&d.target, 4) + 3 * (specrt_curve_at(&d.draft, 1) + 0.0001);
    d.heads[0].seconds = 0.0001 + 0.0199 * cycle / 3;
    CHECK_STR(specrt_advise_untried(&d, &drafts), "full");
    d.heads[0].seconds = 0.0001 + 0.0201 * cycle / 3;
    CHECK_STR(specrt_advise_untried(&d, &drafts), "microspec");
    cycle -= 2 * specrt_curve_at(&d.draft, 1); /* a block is one pass */
    for (int i = 1; i < d.draft.n; i++) d.draft.seconds[i] = d.draft.seconds[0];
    d.n_block = COSTS_STEPS;
    d.heads[0].seconds = 0.0001 + 0.0199 * cycle / 3;
    CHECK_STR(specrt_advise_untried(&d, &drafts), "full");
    d.heads[0].seconds = 0.0001 + 0.0201 * cycle / 3;
    CHECK_STR(specrt_advise_untried(&d, &drafts), "microspec");
    d.n_heads = 0; /* timed here */
    CHECK(specrt_advise_untried(&d, &drafts) != NULL);
    CHECK_INT(d.n_heads, 2);
    specrt_head_close(head);
}
