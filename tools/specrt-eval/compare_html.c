/* compare_html.c : --report, one page with the tables and three plots. */
#include <math.h>
#include <stdlib.h>
#include "compare.h"
#include "html_plot.h"
#include "io.h"
#include "text.h"

static void cell(FILE *f, double x, int digits) {
    if (isnan(x))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.*f</td>", digits, x);
}

static void table_row(FILE *f, const comparison *c, int i) {
    figures x;
    figures_of(c, i, -1, &x);
    fputs("<tr><th>", f);
    html_text(f, c->contestants[i].name);
    fputs("</th>", f);
    cell(f, i == PLAIN ? NAN : x.accept_length, 2);
    cell(f, i == PLAIN ? NAN : x.accept_length_ci.low, 2);
    cell(f, i == PLAIN ? NAN : x.accept_length_ci.high, 2);
    cell(f, 100 * x.coverage, 1);
    cell(f, x.active_rows, 0);
    cell(f, (double)c->contestants[i].bytes_extra / 1e6, 2);
    cell(f, i == PLAIN ? NAN : x.draft * 1e3, 2);
    cell(f, i == PLAIN ? NAN : x.head * 1e3, 2);
    cell(f, x.target * 1e3, 2);
    cell(f, x.verify * 1e3, 2);
    cell(f, i == PLAIN ? NAN : x.update * 1e3, 2);
    cell(f, x.prefill * 1e3, 1);
    cell(f, x.tokens_per_second, 1);
    cell(f, x.speedup_plain, 2);
    cell(f, i == PLAIN ? NAN : x.speedup_full, 2);
    fputs("</tr>\n", f);
}

static void main_table(FILE *f, const comparison *c) {
    fputs(
        "<h2>Policies</h2>\n<table><tr><th>policy</th><th>accept length</th><th>from</th><th>to "
        "(95%)"
        "</th><th>covered %</th><th>rows</th><th>packed MB</th><th>draft ms</th><th>head ms</th>"
        "<th>target ms</th><th>verify ms</th><th>update ms</th><th>prefill ms</th><th>tokens/s</th>"
        "<th>x plain</th><th>x full</th></tr>\n",
        f);
    for (int i = 0; i < c->n_contestants; i++) table_row(f, c, i);
    fputs("</table>\n<p>Times are per cycle, prefill per prompt. Rows are scored at each drafter "
          "pass; "
          "packed MB are what the policy holds beside the head.</p>\n",
          f);
}

static void domain_table(FILE *f, const comparison *c) {
    fputs("<h2>Accept length by domain</h2>\n<table><tr><th>policy</th>", f);
    for (int d = 0; d < c->n_domains; d++) {
        fputs("<th>", f);
        html_text(f, c->domains[d]);
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
    for (int i = FULL; i < c->n_contestants; i++) {
        fputs("<tr><th>", f);
        html_text(f, c->contestants[i].name);
        fputs("</th>", f);
        for (int d = 0; d < c->n_domains; d++) {
            figures x;
            figures_of(c, i, d, &x);
            cell(f, x.n_turns ? x.accept_length : NAN, 2);
        }
        fputs("</tr>\n", f);
    }
    fputs("</table>\n", f);
}

/* One dot a policy; `y` picks the figure. */
static void plot_points(FILE *f, const comparison *c, const char *title, const char *label,
                        double (*y)(const figures *)) {
    size_t n = (size_t)c->n_contestants;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*at)[2] = (double(*)[2])calloc(n, sizeof *at);
    for (int i = FULL; series && at && i < c->n_contestants; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        at[i][0] = x.active_rows;
        at[i][1] = y(&x);
        series[i - FULL] = (plot_series){c->contestants[i].name,   &at[i][0], &at[i][1], 1,
                                         (i - FULL) % HTML_COLORS, false,     true};
    }
    const plot p = {.title = title,
                    .x = {"active rows", PLOT_LOG2, false, 0, 0},
                    .y = {label, PLOT_LINEAR, false, 0, 0},
                    .series = series,
                    .n_series = c->n_contestants - FULL};
    if (series && at) html_plot(f, &p);
    free(at);
    free(series);
}

static double accept_length(const figures *x) {
    return x->accept_length;
}
static double tokens_per_second(const figures *x) {
    return x->tokens_per_second;
}

static void plot_acceptance(FILE *f, const comparison *c) {
    size_t n = (size_t)c->n_contestants;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*y)[COMPARE_POSITIONS] = (double(*)[COMPARE_POSITIONS])calloc(n, sizeof *y);
    double x[COMPARE_POSITIONS];
    for (int k = 0; k < COMPARE_POSITIONS; k++) x[k] = k + 1;
    for (int i = FULL; series && y && i < c->n_contestants; i++) {
        figures g;
        figures_of(c, i, -1, &g);
        int seen = 0;
        while (seen < COMPARE_POSITIONS && !isnan(g.acceptance[seen])) seen++;
        for (int k = 0; k < seen; k++) y[i][k] = g.acceptance[k];
        series[i - FULL] = (plot_series){c->contestants[i].name,   x,     y[i], seen,
                                         (i - FULL) % HTML_COLORS, false, true};
    }
    const plot p = {.title = "Acceptance by position",
                    .caption = "Of the cycles whose tree was accepted up to the position before.",
                    .x = {"position in the draft", PLOT_LINEAR, false, 0, 0},
                    .y = {"accepted", PLOT_LINEAR, true, 0, 1},
                    .series = series,
                    .n_series = c->n_contestants - FULL};
    if (series && y) html_plot(f, &p);
    free(y);
    free(series);
}

static void write_page(FILE *f, const comparison *c) {
    char subtitle[256];
    figures plain;
    figures_of(c, PLAIN, -1, &plain);
    snprintf(
        subtitle, sizeof subtitle,
        "%s turns, %s tokens, temperature %g; %.1f%% of the tokens in repetition loops; %s tokens "
        "compared with plain decoding, %s",
        text_count((uint64_t)plain.n_turns), text_count((uint64_t)plain.n_tokens),
        c->options.temperature, 100 * plain.loop_share, text_count((uint64_t)c->n_compared),
        c->diverged ? "NOT ALL EQUAL" : "all equal");
    html_begin(f, "Policies compared", subtitle);
    main_table(f, c);
    if (c->n_domains > 1) domain_table(f, c);
    plot_points(f, c, "Accept length by rows scored", "accept length", accept_length);
    plot_points(f, c, "Speed by rows scored", "tokens/s", tokens_per_second);
    plot_acceptance(f, c);
    html_end(f);
}

specrt_status compare_write_report(const comparison *c, const char *path, bool force,
                                   specrt_error *err) {
    out_file out;
    TRY(out_open(&out, path, force, err));
    write_page(out.f, c);
    return out_commit(&out, err);
}
