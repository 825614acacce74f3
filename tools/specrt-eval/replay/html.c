/* html.c : --report, one page with tables and three plots. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/html_plot.h"
#include "base/io.h"
#include "report.h"
#include "base/text.h"

typedef struct page {
    FILE *f;
    const replay *r;
    const replay_params *params;
} page;

static const char *name_of(const page *p, int policy) {
    return replay_name(p->params, policy);
}

static void marked_cell(FILE *f, double x, int digits, bool exact) {
    if (isnan(x))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%s%.*f</td>", exact ? "" : "~ ", digits, x);
}

static void cell(FILE *f, double x, int digits) {
    marked_cell(f, x, digits, true);
}

static void interval_cell(FILE *f, replay_figure x, double scale, int digits) {
    if (isnan(x.low))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.*f to %.*f</td>", digits, scale * x.low, digits, scale * x.high);
}

static void begin_row(const page *p, int policy) {
    fputs("<tr><td><code>", p->f);
    sl_html_text(p->f, name_of(p, policy));
    fputs("</code></td>", p->f);
}

static void begin_table(FILE *f, const char *title, const char *columns) {
    fprintf(f, "<h2>%s</h2>\n<div class=\"scroll\"><table><tr><th>policy</th>%s", title, columns);
}

static void main_table(const page *p) {
    FILE *f = p->f;
    begin_table(f, "Policies",
                "<th>accept length</th><th>95%</th><th>covered %</th><th>95%</th><th>rows</th>"
                "<th>mass %</th><th>target's best</th><th>all kept</th><th>drafter's 10 best</th>"
                "<th>all kept</th></tr>\n");
    for (int i = -1; i < p->params->n_policies; i++) {
        replay_figures x;
        replay_figures_of(p->r, i, 0, -1, &x);
        begin_row(p, i);
        marked_cell(f, x.accept_length.value, 2, x.exact_accept_length);
        interval_cell(f, x.accept_length, 1, 2);
        marked_cell(f, 100 * x.coverage.value, 2, x.exact_coverage);
        interval_cell(f, x.coverage, 100, 2);
        marked_cell(f, x.active_rows.value, 1, x.exact_rows);
        cell(f, 100 * x.mass.value, 2);
        for (int k = 0; k < REPLAY_RECALLS; k++) cell(f, 100 * x.recall[k], 2);
        fputs("</tr>\n", f);
    }
    fprintf(
        f,
        "</table></div>\n<p class=\"note\">~ is estimated, from cycles that another policy drafted "
        "or from states that a trace does not keep: within %.0f%% where that was measured. Mass is "
        "of the target's distribution, at least: "
        "what the trace keeps of it. The oracle's list holds every token. Intervals are normal "
        "over sequences, and say nothing of the estimate's own error.</p>\n",
        100 * REPLAY_ERROR);
}

static void domain_table(const page *p) {
    FILE *f = p->f;
    begin_table(f, "Covered, % by domain", "");
    for (int d = 0; d < replay_n_domains(p->r); d++) {
        fputs("<th>", f);
        sl_html_text(f, replay_domain(p->r, d));
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
    for (int i = 0; i < p->params->n_policies; i++) {
        begin_row(p, i);
        for (int d = 0; d < replay_n_domains(p->r); d++) {
            replay_figures x;
            replay_figures_of(p->r, i, 0, d, &x);
            cell(f, 100 * x.coverage.value, 2);
        }
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

/* ---- plots ---- */

/* A line a policy over n points that `fill` gives. */
typedef struct lines {
    const char *title, *caption, *label;
    plot_axis y;
    int n;
    void (*fill)(const replay_figures *x, double *out);
} lines;

static void plot_lines(const page *p, const lines *l) {
    size_t n = (size_t)p->params->n_policies;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*y)[REPLAY_POSITIONS] = (double(*)[REPLAY_POSITIONS])calloc(n, sizeof *y);
    double x[REPLAY_POSITIONS];
    for (int k = 0; k < REPLAY_POSITIONS; k++) x[k] = k + 1;
    for (int i = 0; series && y && i < (int)n; i++) {
        replay_figures figures;
        replay_figures_of(p->r, i, 0, -1, &figures);
        l->fill(&figures, y[i]);
        series[i] =
            (plot_series){name_of(p, i), x, y[i], l->n, i % HTML_COLORS, i >= HTML_COLORS, true};
    }
    const plot shown = {.title = l->title,
                        .caption = l->caption,
                        .x = {l->label, PLOT_WHOLE, false, 0, 0},
                        .y = l->y,
                        .series = series,
                        .n_series = (int)n};
    if (series && y) sl_html_plot(p->f, &shown);
    free(y);
    free(series);
}

static void fill_acceptance(const replay_figures *x, double *out) {
    memcpy(out, x->acceptance, sizeof x->acceptance);
}

static void fill_coverage(const replay_figures *x, double *out) {
    memcpy(out, x->span_coverage, sizeof x->span_coverage);
}

/* One dot a policy on the line of its interval. */
static void plot_coverage(const page *p) {
    size_t n = (size_t)p->params->n_policies;
    plot_series *series = (plot_series *)calloc(2 * n, sizeof *series);
    double(*at)[5] = (double(*)[5])calloc(n, sizeof *at); /* x, x; y; low, high */
    for (int i = 0; series && at && i < (int)n; i++) {
        replay_figures x;
        replay_figures_of(p->r, i, 0, -1, &x);
        const double values[5] = {x.active_rows.value, x.active_rows.value, x.coverage.value,
                                  x.coverage.low, x.coverage.high};
        memcpy(at[i], values, sizeof values);
        series[2 * i] =
            (plot_series){NULL, at[i], at[i] + 3, 2, i % HTML_COLORS, i >= HTML_COLORS, false};
        series[2 * i + 1] = (plot_series){name_of(p, i),    at[i], at[i] + 2, 1, i % HTML_COLORS,
                                          i >= HTML_COLORS, true};
    }
    const plot shown = {.title = "Covered by rows scored",
                        .caption = "Lines are 95% intervals.",
                        .x = {"active rows", PLOT_LOG2, false, 0, 0},
                        .y = {"covered", PLOT_LINEAR, true, 0, 0},
                        .series = series,
                        .n_series = 2 * (int)n};
    if (series && at) sl_html_plot(p->f, &shown);
    free(at);
    free(series);
}

static void write_page(const page *p) {
    static char caption[160];
    const lines acceptance = {"Acceptance by position",
                              "Of the cycles that were accepted up to the position before.",
                              "position in the draft",
                              {"accepted", PLOT_LINEAR, true, 0, 1},
                              replay_tree(p->r, 0)->num_steps,
                              fill_acceptance};
    int n = snprintf(caption, sizeof caption,
                     "By tokens since the %s:", p->params->stream ? "topic began" : "prompt");
    for (int k = 0; k < REPLAY_SPANS; k++)
        n += snprintf(caption + n, sizeof caption - (size_t)n, " %s", replay_span_name(k));
    const lines coverage = {
        "Covered over time", caption,      "span", {"covered", PLOT_LINEAR, true, 0, 0},
        REPLAY_SPANS,        fill_coverage};
    char subtitle[160];
    replay_figures all;
    replay_figures_of(p->r, -1, 0, -1, &all);
    snprintf(subtitle, sizeof subtitle, "%s cycles of %s sequences, %s tokens%s",
             sl_text_count((uint64_t)all.n_cycles), sl_text_count((uint64_t)all.n_sequences),
             sl_text_count((uint64_t)all.n_tokens),
             replay_is_cut(p->r) ? ", up to where a trace was cut" : "");
    sl_html_begin(p->f, "Policies replayed", subtitle);
    main_table(p);
    if (replay_n_domains(p->r) > 1) domain_table(p);
    fputs("<h2>Plots</h2>\n<div class=\"plots\">\n", p->f);
    plot_coverage(p);
    plot_lines(p, &coverage);
    plot_lines(p, &acceptance);
    fputs("</div>\n", p->f);
    sl_html_end(p->f);
}

specrt_status replay_write_report(const replay *r, const replay_params *params, const char *path,
                                  bool force, specrt_error *err) {
    out_file out;
    TRY(sl_out_open(&out, path, force, err));
    write_page(&(page){out.f, r, params});
    return sl_out_commit(&out, err);
}
