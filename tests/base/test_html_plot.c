/* test_html_plot.c : plots of every kind of axis and series, as they were approved. */
#include "approved.h"
#include "base/html_plot.h"
#include "test.h"

static const double sizes[] = {1000, 2000, 16000, NAN, 131072},
                    shares[] = {0.5, 0.625, 0.99, 0.2, 1}, numbers[] = {-3, 0, 12.5, 7, 1e4},
                    whole[] = {1, 2, 3, 4, 9};

/* Both series over both axes. */
static void put(plot_axis x, plot_axis y, const double *xs, const double *ys) {
    const plot_series series[] = {
        {.label = "first & <one>", .x = xs, .y = ys, .n = 5, .color = 0, .dots = true},
        {.label = "second", .x = xs, .y = ys, .n = 3, .color = 1, .dashed = true},
        {.x = xs, .y = ys + 1, .n = 1, .color = -1}};
    const plot_mark marks[] = {{xs[1], "here"}, {xs[2], "and there"}};
    plot p = {"a title", "a caption", x, y, series, 3, marks, 2};
    sl_html_plot(approved_out(), &p);
    p.caption = NULL;
    p.n_marks = 0;
    p.n_series = 1;
    sl_html_plot(approved_out(), &p);
}

TEST(plots, "of every scale") {
    const plot_axis by_two = {.label = "rows", .scale = PLOT_LOG2},
                    by_ten = {.label = "tokens", .scale = PLOT_LOG10},
                    share = {.label = "covered", .percent = true},
                    given = {.label = "covered", .percent = true, .min = 0.25, .max = 0.75},
                    linear = {.label = "ms"}, steps = {.label = "steps", .scale = PLOT_WHOLE};
    put(by_two, share, sizes, shares);
    put(by_ten, given, sizes, shares);
    put(linear, linear, numbers, numbers);
    put(steps, by_ten, whole, sizes);
    put(steps, steps, whole, whole);
    put(share, linear, shares, numbers);
    const double same[] = {2, 2, 2, 2, 2};
    put(linear, linear, same, same);
    put(by_two, by_ten, same, same);
    put(steps, steps, same, same);
}

TEST(bars, "of parts, some of which are missing") {
    static const char *const labels[] = {"plain", "a <policy>", "none"}, *const parts[] = {"draft",
                                                                                           "verify",
                                                                                           "rest"};
    static const double values[] = {1, 2, 3, 0.5, NAN, 4, 0, -1, 0};
    const bars b = {"times", "of a cycle", "ms", labels, parts, values, 3, 3};
    bars one = b;
    one.caption = NULL;
    one.n_bars = one.n_parts = 1;
    sl_html_bars(approved_out(), &b);
    sl_html_bars(approved_out(), &one);
}

TEST(page, "around them") {
    char lines[] = "one\ntwo & <three>\n\nfour";
    sl_html_begin(approved_out(), "a <title>", "and \"more\"");
    sl_html_lines(approved_out(), lines);
    sl_html_text(approved_out(), "tab\tline\n\x1b[0m\xff");
    sl_html_end(approved_out());
    approved_condense();
    approved_compare("tests/base/html_plot.exact");
}
