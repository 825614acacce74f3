/* html.c : --report, one page with tables and plots. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "compare.h"
#include "base/html_plot.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"

static void cell(FILE *f, double x, int digits) {
    if (isnan(x))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.*f</td>", digits, x);
}

static void count_cell(FILE *f, double x) {
    if (isnan(x))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%s</td>", sl_text_count((uint64_t)(x + 0.5)));
}

static void interval_cell(FILE *f, const interval *x) {
    if (isnan(x->low))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.2f to %.2f</td>", x->low, x->high);
}

static void begin_row(FILE *f, const comparison *c, int i, bool marks) {
    fprintf(f, "<tr%s><td>", marks && i == c->verdict.to_run ? " class=\"chosen\"" : "");
    sl_html_code(f, c->ways[i].name);
    fputs("</td>", f);
}

/* title_of() : in the page's first table, or in that of times; NULL: not there */
static const char *title_of(const compare_column *column, bool times) {
    return times ? column->times : column->page;
}

static void column_titles(FILE *f, bool times) {
    int n;
    const compare_column *columns = compare_columns(&n);
    fputs("<div class=\"scroll\"><table><tr><th>policy</th>", f);
    for (int k = 0; k < n; k++) {
        const char *title = title_of(&columns[k], times);
        if (title) fprintf(f, "<th>%s</th>", title);
        if (title && (columns[k].flags & COLUMN_PAGE_SPREAD)) fputs("<th>95%</th>", f);
    }
    fputs("</tr>\n", f);
}

static void column_row(FILE *f, const comparison *c, int i, bool times) {
    int n;
    const compare_column *columns = compare_columns(&n);
    figures x;
    figures_of(c, i, -1, &x);
    begin_row(f, c, i, !times);
    for (int k = 0; k < n; k++) {
        const compare_column *column = &columns[k];
        double value = compare_column_shown(column, i, &x);
        if (!title_of(column, times)) continue;
        if (column->flags & COLUMN_COUNT)
            count_cell(f, value);
        else
            cell(f, value, column->digits);
        if (!(column->flags & COLUMN_PAGE_SPREAD)) continue;
        interval ends = {NAN, NAN};
        if (i != PLAIN) ends = compare_column_interval(column, &x);
        interval_cell(f, &ends);
    }
    fputs("</tr>\n", f);
}

static void main_table(FILE *f, const comparison *c) {
    fputs("<h2>Policies</h2>\n", f);
    column_titles(f, false);
    for (int i = 0; i < c->n_ways; i++) column_row(f, c, i, false);
    fputs("</table></div>\n<p class=\"note\">Rows of the head are scored at each drafter pass; "
          "packed MB are what the policy holds beside it, at most. Speeds are means over turns, "
          "after the prompt; x plain and x full are their ratios to plain decoding's and to the "
          "whole vocabulary's in this run; x whole is plain decoding's time of all requests, "
          "prompts included, beside the policy's. The last columns are shares of the whole "
          "vocabulary's accept length; the "
          "policy is "
          "recommended by the worst task. "
          "Intervals come from the bootstrap over prompts.</p>\n",
          f);
}

static void time_table(FILE *f, const comparison *c) {
    fputs("<h2>Milliseconds of a cycle, and of a prompt</h2>\n", f);
    column_titles(f, true);
    for (int i = 0; i < c->n_ways; i++) column_row(f, c, i, true);
    fputs(
        "</table></div>\n<p class=\"note\">draft: the drafter's layer; head: products with the "
        "shortlist rows, their ranking, the tree; target: its pass over the tree; verify: drawing; "
        "update: learning and packing. A cycle of plain decoding is one token.</p>\n",
        f);
}

static void spread_cell(FILE *f, double x, const interval *ci) {
    if (isnan(x)) {
        fputs("<td>-</td>", f);
        return;
    }
    fprintf(f, "<td>%.2f", x);
    if (!isnan(ci->low)) fprintf(f, " <small>%.2f-%.2f</small>", ci->low, ci->high);
    fputs("</td>", f);
}

/* Where text repeats, any drafter is right. */
static void loop_row(FILE *f, const comparison *c) {
    fputs("<tr><td>% of tokens in loops</td>", f);
    for (int d = 0; d < c->n_domains; d++) {
        figures x;
        figures_of(c, PLAIN, d, &x);
        cell(f, x.n_turns ? 100 * x.loop_share : NAN, 1);
    }
    fputs("</tr>\n", f);
}

/* Accept length or speed-up by domain; plain decoding has a row of the latter's tokens per second. */
static void domain_table(FILE *f, const comparison *c, bool speed) {
    fprintf(f, "<h2>%s by task</h2>\n<div class=\"scroll\"><table><tr><th>policy</th>",
            speed ? "Speed, times plain decoding," : "Accept length");
    for (int d = 0; d < c->n_domains; d++) {
        fputs("<th>", f);
        sl_html_text(f, c->domains[d]);
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
    for (int i = speed ? PLAIN : FULL; i < c->n_ways; i++) {
        begin_row(f, c, i, false);
        for (int d = 0; d < c->n_domains; d++) {
            figures x;
            figures_of(c, i, d, &x);
            if (x.n_turns == 0)
                fputs("<td>-</td>", f);
            else if (i == PLAIN)
                fprintf(f, "<td>%.0f tokens/s</td>", x.tokens_per_second);
            else
                spread_cell(f, speed ? x.speedup_plain : x.accept_length,
                            speed ? &x.speedup_plain_ci : &x.accept_length_ci);
        }
        fputs("</tr>\n", f);
    }
    if (!speed) loop_row(f, c);
    fputs("</table></div>\n<p class=\"note\">Small: 95% intervals over the task's prompts.</p>\n",
          f);
}

static void list_table(FILE *f, const comparison *c) {
    fputs("<h2>What of the target's wishes the lists held, %</h2>\n<div class=\"scroll\"><table>"
          "<tr><th>policy</th><th>mass</th>",
          f);
    for (int t = 0; t < WATCH_TOPS; t++) fprintf(f, "<th>best %d</th>", watch_top(t));
    for (int t = 0; t < WATCH_TOPS; t++) fprintf(f, "<th>%d beyond</th>", watch_top(t));
    fputs("</tr>\n", f);
    for (int i = FULL; i < c->n_ways; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        begin_row(f, c, i, false);
        cell(f, 100 * x.mass, 2);
        for (int t = 0; t < WATCH_TOPS; t++) cell(f, 100 * x.recall[t], 1);
        for (int t = 0; t < WATCH_TOPS; t++) cell(f, 100 * x.recall_beyond[t], 1);
        fputs("</tr>\n", f);
    }
    fputs(
        "</table></div>\n<p class=\"note\">Mass of the target's distribution, and its best tokens; "
        "beyond: of "
        "those only that no fixed list holds.</p>\n",
        f);
}

static void change_table(FILE *f, const comparison *c) {
    fputs("<h2>Accept length around changes of domain</h2>\n<div class=\"scroll\"><table><tr>"
          "<th>policy</th>",
          f);
    for (int s = 0; s < WATCH_SPANS; s++) fprintf(f, "<th>%s</th>", watch_span_name(s));
    fputs("</tr>\n", f);
    for (int i = FULL; i < c->n_ways; i++) {
        begin_row(f, c, i, false);
        for (int s = 0; s < WATCH_SPANS; s++) cell(f, compare_span(c, i, s), 2);
        fputs("</tr>\n", f);
    }
    fprintf(f,
            "</table></div>\n<p class=\"note\">By tokens since the domain changed, which it did %d "
            "times; before: the last 128 tokens. Domains differ in themselves: read a row beside "
            "full's.</p>\n",
            c->n_changes);
}

/* One dot a policy, on the line of its interval. */
static void plot_points(FILE *f, const comparison *c, const char *title, const char *label,
                        double (*y)(const figures *), interval (*spread)(const figures *)) {
    size_t n = (size_t)c->n_ways;
    plot_series *series = (plot_series *)calloc(2 * n, sizeof *series);
    double(*at)[5] = (double(*)[5])calloc(n, sizeof *at); /* x, x; y; low, high */
    for (int i = FULL, k = 0; series && at && i < c->n_ways; i++, k++) {
        figures x;
        figures_of(c, i, -1, &x);
        interval line = spread(&x);
        const double values[5] = {x.shortlist_rows, x.shortlist_rows, y(&x), line.low, line.high};
        memcpy(at[i], values, sizeof values);
        series[2 * k] =
            (plot_series){NULL, at[i], at[i] + 3, 2, k % HTML_COLORS, k >= HTML_COLORS, false};
        series[2 * k + 1] = (plot_series){c->ways[i].name,  at[i], at[i] + 2, 1, k % HTML_COLORS,
                                          k >= HTML_COLORS, true};
    }
    const plot p = {.title = title,
                    .caption = "Lines are 95% intervals.",
                    .x = {"shortlist rows", PLOT_LOG2, false, 0, 0},
                    .y = {label, PLOT_LINEAR, false, 0, 0},
                    .series = series,
                    .n_series = 2 * (c->n_ways - FULL)};
    if (series && at) sl_html_plot(f, &p);
    free(at);
    free(series);
}

static double accept_length(const figures *x) {
    return x->accept_length;
}
static interval accept_length_spread(const figures *x) {
    return x->accept_length_ci;
}
static double speedup(const figures *x) {
    return x->speedup_plain;
}
static interval speedup_spread(const figures *x) {
    return x->speedup_plain_ci;
}

static void plot_acceptance(FILE *f, const comparison *c) {
    size_t n = (size_t)c->n_ways;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*y)[COMPARE_POSITIONS] = (double(*)[COMPARE_POSITIONS])calloc(n, sizeof *y);
    double x[COMPARE_POSITIONS];
    for (int k = 0; k < COMPARE_POSITIONS; k++) x[k] = k + 1;
    for (int i = FULL; series && y && i < c->n_ways; i++) {
        figures g;
        figures_of(c, i, -1, &g);
        int seen = 0;
        while (seen < COMPARE_POSITIONS && !isnan(g.acceptance[seen])) seen++;
        for (int k = 0; k < seen; k++) y[i][k] = g.acceptance[k];
        series[i - FULL] =
            (plot_series){c->ways[i].name,         x,   y[i], seen, (i - FULL) % HTML_COLORS,
                          i - FULL >= HTML_COLORS, true};
    }
    const plot p = {.title = "Acceptance by position",
                    .caption = "Of the cycles whose tree was accepted up to the position before.",
                    .x = {"position in the draft", PLOT_WHOLE, false, 0, 0},
                    .y = {"accepted", PLOT_LINEAR, true, 0, 1},
                    .series = series,
                    .n_series = c->n_ways - FULL};
    if (series && y) sl_html_plot(f, &p);
    free(y);
    free(series);
}

static void plot_phases(FILE *f, const comparison *c) {
    static const char *const parts[] = {"draft", "head", "target", "verify", "update"};
    enum { N_PARTS = 5 };
    size_t n = (size_t)c->n_ways;
    double *values = (double *)malloc(N_PARTS * n * sizeof *values);
    const char **labels = (const char **)malloc(n * sizeof *labels);
    for (int i = 0; values && labels && i < c->n_ways; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        double per = 1e3 / (i == PLAIN ? 1 : x.accept_length);
        const double phases[N_PARTS] = {i == PLAIN ? 0 : x.draft * per,
                                        i == PLAIN ? 0 : x.head * per, x.target * per,
                                        x.verify * per, i == PLAIN ? 0 : x.update * per};
        for (int k = 0; k < N_PARTS; k++) values[N_PARTS * i + k] = phases[k];
        labels[i] = c->ways[i].name;
    }
    const bars b = {.title = "Timeline of a token",
                    .caption = "A cycle's phases one after another, by the tokens that it emits; "
                               "ms. The shortest bar wins.",
                    .unit = "ms",
                    .labels = labels,
                    .parts = parts,
                    .values = values,
                    .n_bars = c->n_ways,
                    .n_parts = N_PARTS};
    if (values && labels) sl_html_bars(f, &b);
    free(values);
    free((void *)labels);
}

/* What presets and bare names stand for. */
static void name_policies(FILE *f, const comparison *c) {
    const char *before = "<p class=\"note\">";
    for (int i = FULL; i < c->n_ways; i++) {
        const compare_way *k = &c->ways[i];
        char canonical[EVAL_CANONICAL];
        const char *text = k->policy ? eval_policy_text(k->policy, k->name, canonical) : k->name;
        if (strcmp(text, k->name) == 0) continue;
        fputs(before, f);
        sl_html_text(f, k->name);
        fputs(" is ", f);
        sl_html_code(f, text);
        before = "; ";
    }
    if (*before == ';') fputs(".</p>\n", f);
}

static void write_advice(FILE *f, const comparison *c) {
    char *text = compare_words(c);
    if (text) sl_html_lines(f, text);
    free(text);
}

static void write_page(FILE *f, const comparison *c) {
    char subtitle[256];
    figures plain;
    figures_of(c, PLAIN, -1, &plain);
    snprintf(
        subtitle, sizeof subtitle,
        "%s turns, %s tokens, temperature %g; %.1f%% of the tokens in repetition loops (period <= "
        "%d)%s; %s tokens compared with plain decoding, %s",
        sl_text_count((uint64_t)plain.n_turns), sl_text_count((uint64_t)plain.n_tokens),
        c->options.temperature, 100 * plain.loop_share, LOOP_LONGEST,
        plain.loop_share > 0 ? ", which flatter every policy" : "",
        sl_text_count((uint64_t)c->n_compared), c->diverged ? "NOT ALL EQUAL" : compare_outcome(c));
    sl_html_begin(f, "Policies compared", subtitle);
    compare_write_cards(f, c);
    write_advice(f, c);
    main_table(f, c);
    name_policies(f, c);
    time_table(f, c);
    if (c->n_domains > 1) domain_table(f, c, false);
    if (c->n_domains > 1) domain_table(f, c, true);
    if (c->n_changes) change_table(f, c);
    if (c->lists) list_table(f, c);
    fputs("<h2>Plots</h2>\n<div class=\"plots\">\n", f);
    plot_points(f, c, "Accept length by rows scored", "accept length", accept_length,
                accept_length_spread);
    plot_points(f, c, "Speed-up by rows scored", "times plain decoding", speedup, speedup_spread);
    plot_acceptance(f, c);
    plot_phases(f, c);
    fputs("</div>\n", f);
    sl_html_end(f);
}

specrt_status compare_write_report(const comparison *c, const char *path, bool force,
                                   specrt_error *err) {
    out_file out;
    TRY(sl_out_open(&out, path, force, err));
    write_page(out.f, c);
    return sl_out_commit(&out, err);
}
