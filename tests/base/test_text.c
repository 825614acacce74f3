/* test_text.c : numbers and tokens as people see them, and pages that hold any text. */
#include "base/html_plot.h"
#include "base/json.h"
#include "test.h"
#include "base/text.h"

TEST(text_count, "digits in groups") {
    CHECK_STR(sl_text_count(0), "0");
    CHECK_STR(sl_text_count(999), "999");
    CHECK_STR(sl_text_count(1000), "1,000");
    CHECK_STR(sl_text_count(6787530), "6,787,530");
    CHECK_STR(sl_text_count(UINT64_MAX), "18,446,744,073,709,551,615");
}

static void check_token(const char *bytes, size_t n, const char *expected) {
    char out[128];
    sl_text_token((const uint8_t *)bytes, n, out);
    CHECK_STR(out, expected);
}

TEST(text_token, "controls and broken UTF-8 become visible") {
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

static void check_name(const char *name, const char *expected) {
    char copy[64];
    CHECK_STR(sl_text_name(name), expected);
    snprintf(copy, sizeof copy, "%s", name);
    sl_text_clean(copy);
    CHECK_STR(copy, expected);
}

TEST(text_name, "nothing that a terminal obeys, nothing broken") {
    check_name("", "");
    check_name("caf\xc3\xa9 \xe6\x97\xa5", "caf\xc3\xa9 \xe6\x97\xa5");
    check_name("\x1b[31mred\x1b[0m", "?[31mred?[0m");
    check_name("a\nb\tc\x7f", "a?b?c?");
    check_name("\xff\xc3.\xe6\x97", "??.??");
    check_name("\xc2\x9b"
               "31m",
               "?31m"); /* a C1 control */
    check_name("x\xe2\x80\xae"
               "gpj\xe2\x81\xa6\xe2\x80\xa8",
               "x?gpj??"); /* written backwards */
    char name[400];
    for (int i = 0; i < 399; i++) name[i] = "\xc3\xa9"[i % 2];
    name[399] = '\0';
    const char *cut = sl_text_name(name);
    CHECK_INT(strlen(cut), 255);
    CHECK_STR(cut + 250, "\xc3\xa9...");
}

static void check_pad(const char *text, int n, const char *behind, const char *before) {
    char *printed = NULL;
    size_t n_printed;
    FILE *f = open_memstream(&printed, &n_printed);
    REQUIRE(f != NULL);
    sl_text_pad(text, n, f);
    fputc('|', f);
    sl_text_pad_left(text, n, f);
    fclose(f);
    char expected[128];
    snprintf(expected, sizeof expected, "%s|%s", behind, before);
    CHECK_STR(printed, expected);
    free(printed);
}

TEST(text_pad, "columns of what is shown") {
    check_pad("ab", 4, "ab  ", "  ab");
    check_pad("abcdef", 4, "abcd", "abcd");
    check_pad("\xe6\x97\xa5\xe6\x97\xa5", 3, "\xe6\x97\xa5 ", " \xe6\x97\xa5");
    check_pad("\x1b[1m\xff", 6, "?[1m? ", " ?[1m?");
    CHECK_INT(sl_text_columns("\x1b[1m\xff\xe6\x97\xa5"), 7);
}

TEST(text_lines, "each line clean, tabs as spaces") {
    char *printed = NULL;
    size_t n;
    FILE *f = open_memstream(&printed, &n);
    REQUIRE(f != NULL);
    sl_text_lines("a\tb\tc\n\x1b[1m\n", f);
    fclose(f);
    CHECK_STR(printed, "a b c\n?[1m\n\n");
    free(printed);
}

TEST(json_to_text, "what json-c lets through of a file's JSON") {
    json_object *o = json_object_new_object();
    sl_json_put(o, "k\xff", json_object_new_string("\x1b\xc3(\xc2\x9b\x7f\xc2\xa0"));
    sl_json_put(o, "text", sl_json_text("a\xff"));
    char *text = sl_json_to_text(o);
    CHECK_STR(text, "{\"k\xef\xbf\xbd\":\"\\u001b\xef\xbf\xbd(\\u009b\\u007f\xc2\xa0\",\"text\":"
                    "\"a\xef\xbf\xbd\"}");
    free(text);
}

/* Everything a plot writes, owned. */
static char *plot_text(const plot *p) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f != NULL);
    sl_html_plot(f, p);
    fclose(f);
    return text;
}

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
    return n;
}

TEST(html_plot, "escapes, positions, points without a value") {
    const double x[] = {1024, 2048, 4096, 8192}, y[] = {0.5, 0.75, NAN, 1};
    const plot_series series[] = {{"<a&b>", x, y, 4, 0, false, true},
                                  {"c", x, y, 4, 1, true, false}};
    const plot_mark marks[] = {
        {2048, "\"here\""}, {4096, "there"}, {1000, "below"}, {9000, "above"}};
    plot p = {.title = "T<1>\x1b[\xff",
              .caption = "of two",
              .x = {"size", PLOT_LOG2, false, 0, 0},
              .y = {"share", PLOT_LINEAR, true, 0.5, 1},
              .series = series,
              .n_series = 2,
              .marks = marks,
              .n_marks = 4};
    char *text = plot_text(&p);
    CHECK_INT(count_of(text, "<svg"), 1);
    CHECK_INT(count_of(text, "<svg"), count_of(text, "</svg>"));
    CHECK_INT(count_of(text, "<text"), count_of(text, "</text>"));
    CHECK_INT(count_of(text, "class=\"dot\""), 4); /* the NaN is left out; the name has one */
    CHECK_HAS(text,
              "y=\"22.0\" text-anchor=\"end\" style=\"fill:var(--c0)\">&lt;a&amp;b&gt;</text>");
    CHECK_HAS(text,
              "y=\"36.0\" text-anchor=\"end\" style=\"fill:var(--c1)\">c</text>"); /* below it */
    CHECK_INT(count_of(text, "class=\"dot dash\""), 4); /* along a curve, and at its name */
    CHECK_HAS(text, "&lt;a&amp;b&gt;: 75.00% at 2048");
    CHECK_HAS(text, "T&lt;1&gt;?[?");
    CHECK_HAS(text, "x=\"192.0\" y=\"278\" text-anchor=\"start\">&quot;here&quot;");
    CHECK_HAS(text, "x=\"310.0\" y=\"262\" text-anchor=\"end\">there"); /* right of the middle */
    CHECK(!strstr(text, "below") && !strstr(text, "above"));            /* what the axis shows */
    CHECK_HAS(text, "<h3>T&lt;1&gt;?[?</h3><p>of two</p>");
    CHECK_HAS(text, "x=\"251\" y=\"330\" text-anchor=\"middle\">size (logarithmic)<");
    CHECK_INT(count_of(text, "class=\"grid\""), 10); /* 50% to 100% by ten, and each power of two */
    CHECK_HAS(text, "d=\"M56.0 288.0L");             /* the first point is the lower left corner */
    CHECK_HAS(text, "L446.0 18.0\"");                /* the last the upper right */
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

/* The numbers along the x axis, with a space behind each. */
static void check_ticks(plot_axis x, const char *expected) {
    const double one = 1;
    const plot_series series = {"s", &one, &one, 1, 0, false, false};
    plot p = {.title = "t",
              .x = x,
              .y = {"y", PLOT_LINEAR, false, 0, 0},
              .series = &series,
              .n_series = 1};
    char ticks[256] = "", *text = plot_text(&p);
    static const char before[] = "y=\"307\" text-anchor=\"middle\">";
    for (const char *at = text; (at = strstr(at, before));) {
        at += sizeof before - 1;
        sprintf(ticks + strlen(ticks), "%.*s ", (int)strcspn(at, "<"), at);
    }
    CHECK_STR(ticks, expected);
    free(text);
}

TEST(html_ticks, "round numbers along an axis, with no more digits than they need") {
    check_ticks((plot_axis){"x", PLOT_LINEAR, false, 0, 100}, "0 20 40 60 80 100 ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, false, -1, 1}, "-1.0 -0.5 0.0 0.5 1.0 ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, false, 0, 5.5}, "0 1 2 3 4 5 ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, false, 0, 0.24}, "0.00 0.05 0.10 0.15 0.20 ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, false, 0, 0.024}, "0.000 0.005 0.010 0.015 0.020 ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, true, 0, 1}, "0% 20% 40% 60% 80% 100% ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, true, 0, 0.024}, "0.0% 0.5% 1.0% 1.5% 2.0% ");
    check_ticks((plot_axis){"x", PLOT_LINEAR, true, 0, 0.0024}, "0.00% 0.05% 0.10% 0.15% 0.20% ");
    check_ticks((plot_axis){"x", PLOT_WHOLE, false, 1, 4}, "1 2 3 4 ");
    check_ticks((plot_axis){"x", PLOT_LOG2, false, 256, 4096}, "256 512 1k 2k 4k ");
    check_ticks((plot_axis){"x", PLOT_LOG2, false, 1, 1 << 24},
                "1 4 16 64 256 1k 4k 16k 64k 256k 1M 4M 16M ");
    check_ticks((plot_axis){"x", PLOT_LOG10, false, 0.5, 2e6}, "1 10 100 1k 10k 100k 1M ");
}

/* 7 units for each letter of the longest label, and 20; the longest bar is 40 short of the right edge. */
TEST(html_bars, "positions and colors of parts, and parts that draw nothing") {
    static const char *const labels[] = {"a", "b<"}, *const parts[] = {"up", "down&", "flat"};
    const double values[] = {1, 0, 2, 3, NAN, -1};
    const bars b = {"T<", NULL, "ms", labels, parts, values, 2, 3};
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f != NULL);
    sl_html_bars(f, &b);
    fclose(f);
    CHECK_HAS(text, "<figure><h3>T&lt;</h3>\n<svg viewBox=\"0 0 460 70\"");
    CHECK_HAS(text, "<text x=\"26.0\" y=\"29.0\" text-anchor=\"end\">a</text>");
    CHECK_HAS(text, "<text x=\"26.0\" y=\"51.0\" text-anchor=\"end\">b&lt;</text>");
    CHECK_INT(count_of(text, "<rect x="), 3);
    CHECK_HAS(text,
              "<rect x=\"34.0\" y=\"18.0\" width=\"124.0\" height=\"14\" style=\"fill:var(--c0)\">"
              "<title>up: 1 ms</title>");
    CHECK_HAS(text,
              "<rect x=\"158.0\" y=\"18.0\" width=\"248.0\" height=\"14\" style=\"fill:var(--c2)\">"
              "<title>flat: 2 ms</title>");
    CHECK_HAS(text, "<rect x=\"34.0\" y=\"40.0\" width=\"372.0\" height=\"14\"");
    CHECK_INT(count_of(text, "<text x=\"412.0\""), 2);
    CHECK_HAS(text, "y=\"51.0\">3</text>");
    CHECK_INT(count_of(text, "<li>"), 3);
    CHECK_HAS(text, "style=\"fill:var(--c1)\"/></svg>down&amp;</li>");
    free(text);
}

/* Data without extent still gives a drawing without NaN or endless loops. */
TEST(html_plot_degenerate, "no data, one point, zeros on a log axis") {
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
            if (k == 2 && s < 3) CHECK_HAS(text, "translate(251.0 "); /* one point: in the middle */
            free(text);
        }
}

TEST(json_range, "an interval, of which one end is not known") {
    json_object *range = sl_json_range(NAN, 0.5);
    CHECK_STR(json_object_to_json_string_ext(range, JSON_C_TO_STRING_PLAIN), "[null,0.5]");
    json_object_put(range);
}

TEST(json_base_name, "the last component of a path") {
    static const char *const names[][2] = {{"b.c", "b.c"},  {"a/b.c", "b.c"},
                                           {"/b.c", "b.c"}, {"/a/b/", "b"},
                                           {"a//", "a"},    {"/a/\xff", "\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_object *name = sl_json_base_name(names[i][0]);
        CHECK_STR(json_object_get_string(name), names[i][1]);
        json_object_put(name);
    }
}
