/* test_text.c : numbers and tokens as people see them, and pages that hold any text. */
#include "html_plot.h"
#include "test.h"
#include "text.h"

static void test_count(void) {
    CHECK_STR(text_count(0), "0");
    CHECK_STR(text_count(999), "999");
    CHECK_STR(text_count(1000), "1,000");
    CHECK_STR(text_count(6787530), "6,787,530");
    CHECK_STR(text_count(UINT64_MAX), "18,446,744,073,709,551,615");
}

static void check_token(const char *bytes, size_t n, const char *expected) {
    char out[128];
    text_token((const uint8_t *)bytes, n, out);
    CHECK_STR(out, expected);
}

static void test_token(void) {
    check_token("", 0, "");
    check_token(" the", 4, "\xe2\x90\xa3the");
    check_token("a\n\tb\r", 5, "a\\n\\tb\\r");
    check_token("\0\x1b[", 3, "\\x00\\x1b[");
    check_token("\xc3\xa9", 2, "\xc3\xa9");
    check_token("\xc3", 1, "\\xc3");
    check_token("\xa9x", 2, "\\xa9x");
    check_token("\xc2\x85", 2, "\\xc2\\x85"); /* a C1 control */
    check_token("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");
    check_token("\xf0\x9f\x98", 3, "\\xf0\\x9f\\x98");
}

/* Everything a plot writes, owned. */
static char *plot_text(const plot *p) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f != NULL);
    html_plot(f, p);
    fclose(f);
    return text;
}

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
    return n;
}

static void test_plot(void) {
    const double x[] = {1024, 2048, 4096, 8192}, y[] = {0.5, 0.75, NAN, 1};
    const plot_series series[] = {{"<a&b>", x, y, 4, 0, false, true},
                                  {"c", x, y, 4, 1, true, false}};
    const plot_mark mark = {2048, "\"here\""};
    plot p = {.title = "T<1>",
              .x = {"size", PLOT_LOG2, false, 0, 0},
              .y = {"share", PLOT_LINEAR, true, 0.5, 1},
              .series = series,
              .n_series = 2,
              .marks = &mark,
              .n_marks = 1};
    char *text = plot_text(&p);
    CHECK_INT(count_of(text, "<svg"), 3); /* and two of the legend */
    CHECK_INT(count_of(text, "<svg"), count_of(text, "</svg>"));
    CHECK_INT(count_of(text, "<text"), count_of(text, "</text>"));
    CHECK_INT(count_of(text, "<circle"), 3); /* the NaN is left out */
    CHECK_HAS(text, "&lt;a&amp;b&gt;: 75.00% at 2048");
    CHECK_HAS(text, "T&lt;1&gt;");
    CHECK_HAS(text, "&quot;here&quot;");
    CHECK_HAS(text, "d=\"M62.0 308.0L"); /* the first point is the lower left corner */
    CHECK_HAS(text, "L604.0 18.0\"");    /* the last the upper right */
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

/* Data without extent still gives a drawing without NaN or endless loops. */
static void test_plot_degenerate(void) {
    const double zero = 0, one = 1;
    const plot_series series[] = {{"none", &one, &one, 0, 0, false, false},
                                  {"zero", &zero, &zero, 1, 0, false, true},
                                  {"one", &one, &one, 1, 0, false, true}};
    static const plot_scale scales[] = {PLOT_LINEAR, PLOT_LOG2, PLOT_LOG10};
    for (int s = 0; s < 9; s++)
        for (int k = 0; k < 3; k++) {
            plot p = {.title = "t",
                      .x = {"x", scales[s / 3], false, 0, 0},
                      .y = {"y", scales[s % 3], false, 0, 0},
                      .series = &series[k],
                      .n_series = 1};
            char *text = plot_text(&p);
            CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
            free(text);
        }
}

static const test_case cases[] = {
    {"text_count", "digits in groups", test_count},
    {"text_token", "controls and broken UTF-8 become visible", test_token},
    {"html_plot", "escapes, positions, points without a value", test_plot},
    {"html_plot_degenerate", "no data, one point, zeros on a log axis", test_plot_degenerate},
};
TEST_MAIN(cases)
