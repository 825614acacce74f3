/* report_html.c : --report, one page: figures, tables, and the tokens on both sides of the cut. */
#include "calibrate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/html_plot.h"
#include "base/text.h"

enum { CURVE_POINTS = 96, TOKENS_SHOWN = 60, MAX_TOKEN = 128 };

/* ---- figures ---- */

/* Ascending sizes, evenly spaced on a log axis, from the first that may be one to the last. */
static int curve_sizes(const calibration *run, int32_t sizes[CURVE_POINTS]) {
    const specrt_ranks_header *h = &run->ranking.header;
    double low = fmax(fmin(256, h->n_valid / 2.0), fmax(h->n_forced, 1));
    double ratio = log(h->n_valid / low) / (CURVE_POINTS - 1);
    int n = 0;
    for (int i = 0; i < CURVE_POINTS; i++) {
        int32_t size = (int32_t)lround(low * exp(ratio * i));
        if (size > h->n_valid) size = h->n_valid;
        if (n == 0 || size > sizes[n - 1]) sizes[n++] = size;
    }
    return n;
}

static void to_double(const int32_t *from, int n, double *to) {
    for (int i = 0; i < n; i++) to[i] = from[i];
}

static const char *mark_text(const char *what, int32_t size, char out[40]) {
    snprintf(out, 40, "%s: %s", what, sl_text_count((uint64_t)size));
    return out;
}

/* Counts by rank over the ids that were ranked by count, thinned to one point per small step. */
static void plot_frequency(const calibration *run, FILE *f) {
    const specrt_ranks_header *h = &run->ranking.header;
    double x[640], y[640];
    int n = 0;
    for (double at = 1; n < 640 && at <= h->n_valid - h->n_forced; at = fmax(at + 1, at * 1.03)) {
        int32_t rank = (int32_t)at;
        uint64_t count = run->ranking.counts[h->n_forced + rank - 1];
        if (count == 0) break;
        x[n] = rank;
        y[n++] = (double)count;
    }
    const plot_series series = {"count", x, y, n, 0, false, false};
    char chosen[40];
    const plot_mark mark = {fmax(run->size - h->n_forced, 1),
                            mark_text("chosen", run->size, chosen)};
    const plot p = {.title = "Count by rank",
                    .caption = "Forced tokens aside.",
                    .x = {"rank", PLOT_LOG10, false, 1, fmax(h->n_valid - h->n_forced, 2)},
                    .y = {"occurrences", PLOT_LOG10, false, 0, 0},
                    .series = &series,
                    .n_series = 1,
                    .marks = &mark,
                    .n_marks = 1};
    sl_html_plot(f, &p);
}

/* The round share under all values, from which an axis may begin. */
static double floor_of(const double *y, int n, double floor_so_far) {
    for (int i = 0; i < n; i++)
        if (!isnan(y[i])) floor_so_far = fmin(floor_so_far, floor(y[i] * 10) / 10);
    return floor_so_far;
}

static void plot_coverage(const calibration *run, FILE *f) {
    int32_t sizes[CURVE_POINTS];
    double x[CURVE_POINTS], y[COVERAGE_KINDS][CURVE_POINTS], low = 0.9;
    int n = curve_sizes(run, sizes);
    bool has_holdout = !isnan(calibration_coverage(run, COVERAGE_HOLDOUT));
    to_double(sizes, n, x);
    for (int s = 0; s < COVERAGE_KINDS; s++) {
        for (int i = 0; i < n; i++)
            y[s][i] = calibrate_ranking_coverage(&run->ranking, s, sizes[i]);
        low = floor_of(y[s], n, low);
    }
    const plot_series series[] = {
        {"calibration", x, y[COVERAGE_RANKED], n, 0, false, false},
        {"hold-out", x, y[COVERAGE_HOLDOUT], n, 1, true, false},
    };
    char chosen[40];
    const plot_mark mark = {run->size, mark_text("chosen", run->size, chosen)};
    const plot p = {.title = "Coverage by size",
                    .caption = "Share of the text's tokens that are members of the draft "
                               "vocabulary.",
                    .x = {"ids in the draft vocabulary", PLOT_LOG2, false, 0, 0},
                    .y = {"covered", PLOT_LINEAR, true, low, 1},
                    .series = series,
                    .n_series = has_holdout ? 2 : 1,
                    .marks = &mark,
                    .n_marks = 1};
    sl_html_plot(f, &p);
}

static int by_tokens(const void *left, const void *right) {
    const counts_domain *a = *(const counts_domain *const *)left,
                        *b = *(const counts_domain *const *)right;
    int order = (a->n_tokens < b->n_tokens) - (a->n_tokens > b->n_tokens);
    return order ? order : strcmp(a->name, b->name);
}

/* The largest domains have colors, the rest is grey. Hold-out where a domain has one. */
static void plot_domains(const calibration *run, FILE *f) {
    int32_t sizes[CURVE_POINTS];
    double x[CURVE_POINTS], low = 0.9;
    int n = curve_sizes(run, sizes), n_domains = run->counts.n_domains;
    size_t total = (size_t)n_domains;
    const counts_domain **order = (const counts_domain **)calloc(total, sizeof *order);
    plot_series *series = (plot_series *)calloc(total, sizeof *series);
    double *y = (double *)calloc(total * CURVE_POINTS, sizeof *y);
    to_double(sizes, n, x);
    for (int i = 0; order && i < n_domains; i++) order[i] = &run->counts.domains[i];
    if (order) qsort((void *)order, total, sizeof *order, by_tokens);
    for (int i = 0; order && series && y && i < n_domains; i++) {
        int kind = calibrate_ranking_held_out(&run->ranking, order[i]) ? COVERAGE_HOLDOUT
                                                                       : COVERAGE_RANKED;
        double *curve = y + (size_t)i * CURVE_POINTS;
        calibrate_ranking_coverage_domain(&run->ranking, order[i], kind, sizes, n, curve);
        low = floor_of(curve, n, low);
        series[i] = (plot_series){i < HTML_COLORS ? order[i]->name : NULL,
                                  x,
                                  curve,
                                  n,
                                  i < HTML_COLORS ? i : -1,
                                  false,
                                  false};
    }
    char chosen[40];
    const plot_mark mark = {run->size, mark_text("chosen", run->size, chosen)};
    const plot p = {.title = "Coverage by size and domain",
                    .caption = n_domains > HTML_COLORS
                                   ? "Hold-out; the largest domains have colors."
                                   : "Hold-out, where a domain has one.",
                    .x = {"ids in the draft vocabulary", PLOT_LOG2, false, 0, 0},
                    .y = {"covered", PLOT_LINEAR, true, low, 1},
                    .series = series,
                    .n_series = n_domains,
                    .marks = &mark,
                    .n_marks = 1};
    if (order && series && y) sl_html_plot(f, &p);
    free((void *)order);
    free(series);
    free(y);
}

static void plot_speed(const calibration *run, FILE *f) {
    const sweep *s = &run->sweep;
    double x[64], tau[64], mbsu[64];
    if (!run->speed.n_rates) return;
    for (int i = 0; i < s->n_rows; i++) {
        x[i] = s->rows[i].size;
        tau[i] = s->rows[i].tau;
        mbsu[i] = s->rows[i].mbsu;
    }
    const plot_series series[] = {
        {"expected accept length (tau)", x, tau, s->n_rows, 1, false, true},
        {"MBSU", x, mbsu, s->n_rows, 0, false, true}};
    char chosen[40], best[40];
    plot_mark marks[2] = {{run->size, mark_text("chosen", run->size, chosen)}};
    if (s->best >= 0)
        marks[1] =
            (plot_mark){s->rows[s->best].size, mark_text("best MBSU", s->rows[s->best].size, best)};
    plot p = {.title = "Accept length by size",
              .caption = "From the acceptance rates given and the coverage of each size.",
              .x = {"ids in the draft vocabulary", PLOT_LOG2, false, 0, 0},
              .y = {"tokens per cycle", PLOT_LINEAR, false, 0, 0},
              .series = series,
              .n_series = 1,
              .marks = marks,
              .n_marks = 1};
    sl_html_plot(f, &p);
    if (s->best < 0) return;
    p.title = "Estimated speed-up by size";
    p.caption = "MBSU = tau / (c x gamma + 1): counts weights read, measures nothing.";
    p.y.label = "MBSU";
    p.series = &series[1];
    p.n_marks = 2;
    sl_html_plot(f, &p);
}

/* ---- tables ---- */

static void cell_share(double share, FILE *f) {
    if (isnan(share))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.3f%%</td>", 100 * share);
}

static void cell_range(coverage_range range, FILE *f) {
    if (isnan(range.low))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.2f%% to %.2f%%</td>", 100 * range.low, 100 * range.high);
}

static void table_sweep(const calibration *run, FILE *f) {
    const sweep *s = &run->sweep;
    bool has_tau = run->speed.n_rates > 0, has_mbsu = s->best >= 0;
    fprintf(f,
            "<h2>Sizes</h2>\n<div class=\"scroll\"><table>\n<tr><th>ids</th><th>calibration</th>"
            "<th>hold-out</th><th>95%% interval</th>%s%s</tr>\n",
            has_tau ? "<th>tau</th>" : "", has_mbsu ? "<th>c</th><th>MBSU</th>" : "");
    for (int i = 0; i < s->n_rows; i++) {
        const sweep_row *row = &s->rows[i];
        fprintf(f, "<tr%s><td>%s%s%s</td>", i == s->chosen ? " class=\"chosen\"" : "",
                sl_text_count((uint64_t)row->size),
                i == s->chosen ? "<span class=\"badge\">chosen</span>" : "",
                i == s->best ? "<span class=\"badge best\">best MBSU</span>" : "");
        for (int k = 0; k < COVERAGE_KINDS; k++) cell_share(row->coverage[k], f);
        cell_range(row->holdout, f);
        if (has_tau) fprintf(f, "<td>%.3f</td>", row->tau);
        if (has_mbsu) fprintf(f, "<td>%.5f</td><td>%.3f</td>", row->c, row->mbsu);
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
    if (!has_mbsu) return;
    fprintf(f,
            "<p class=\"note\">gamma = %d drafter passes; drafter %.1fM, target %.1fM "
            "parameters (",
            run->speed.n_rates, run->speed.draft_params / 1e6, run->speed.target_params / 1e6);
    sl_html_text(f, run->speed.source);
    fputs(").</p>\n", f);
}

static void table_domains(const calibration *run, FILE *f) {
    const counts *c = &run->counts;
    fprintf(f,
            "<h2>Domains at %s ids</h2>\n<div class=\"scroll\"><table>\n<tr><th>domain</th>"
            "<th>text by</th><th>documents</th><th>tokens</th><th>weight</th><th>calibration</th>"
            "<th>hold-out</th><th>95%% interval</th></tr>\n",
            sl_text_count((uint64_t)run->size));
    int n, *order = calibration_worst_first(run, &n);
    for (int k = 0; order && k < n; k++) {
        int i = order[k];
        const counts_domain *d = &c->domains[i];
        fputs("<tr><td>", f);
        sl_html_text(f, d->name);
        fprintf(f, "</td><td>%s</td><td>%s</td><td>%s</td><td>%g</td>", d->provenance,
                sl_text_count(d->n_docs), sl_text_count(d->n_tokens),
                run->weights ? run->weights[i] : 1);
        cell_share(calibration_coverage_domain(run, i, COVERAGE_RANKED), f);
        cell_share(calibration_coverage_domain(run, i, COVERAGE_HOLDOUT), f);
        cell_range(calibrate_ranking_interval(&run->ranking, d, run->size), f);
        fputs("</tr>\n", f);
    }
    free(order);
    fputs("</table></div>\n", f);
}

static void list_tokens(const calibration *run, const char *title, int32_t from, FILE *f) {
    const specrt_ranks_header *h = &run->ranking.header;
    int32_t end = from + TOKENS_SHOWN < h->n_valid ? from + TOKENS_SHOWN : h->n_valid;
    char text[5 * MAX_TOKEN + 1];
    if (from >= end) return;
    fprintf(f, "<h2>%s</h2>\n<ul class=\"tokens\">\n", title);
    for (int32_t i = from; i < end; i++) {
        size_t n = 0;
        const uint8_t *bytes =
            run->tok ? sl_tokenizer_bytes(run->tok, run->ranking.ids[i], &n) : NULL;
        sl_text_token(bytes, n < MAX_TOKEN ? n : MAX_TOKEN, text);
        fputs("<li><span class=\"token\">", f);
        if (bytes)
            sl_html_text(f, text);
        else
            fprintf(f, "%" PRId32, run->ranking.ids[i]);
        fprintf(f, "</span><small>%s</small></li>\n", sl_text_count(run->ranking.counts[i]));
    }
    fputs("</ul>\n", f);
}

static void fact(const char *value, const char *what, FILE *f) {
    fprintf(f, "<div><b>%s</b><span>%s</span></div>\n", value, what);
}

static void facts(const calibration *run, FILE *f) {
    char share[32], range[64];
    double holdout = calibration_coverage(run, COVERAGE_HOLDOUT);
    fputs("<div class=\"facts\">\n", f);
    fact(sl_text_count((uint64_t)run->size), "ids in the draft vocabulary", f);
    snprintf(share, sizeof share, "%.3f%%",
             100 * (isnan(holdout) ? calibration_coverage(run, COVERAGE_RANKED) : holdout));
    fact(share, isnan(holdout) ? "of the corpus covered" : "of unseen text covered (hold-out)", f);
    const coverage_range *interval = &run->sweep.rows[run->sweep.chosen].holdout;
    snprintf(range, sizeof range, "%.2f%% to %.2f%%", 100 * interval->low, 100 * interval->high);
    if (!isnan(interval->low)) fact(range, "95% interval of the coverage of unseen text", f);
    fact(sl_text_count(sl_counts_n_tokens(&run->counts)), "tokens counted", f);
    fact(sl_text_count((uint64_t)run->ranking.header.n_valid), "ids in the full vocabulary", f);
    fact(sl_text_count((uint64_t)run->ranking.header.n_forced), "ids forced in", f);
    if (run->sweep.best >= 0)
        fact(sl_text_count((uint64_t)run->sweep.rows[run->sweep.best].size),
             "ids have the best MBSU", f);
    fputs("</div>\n", f);
}

specrt_status calibrate_report_html(const calibration *run, out_file *out, specrt_error *err) {
    FILE *f = out->f;
    sl_html_begin(f, "Draft vocabulary", run->counts.vocab.name);
    facts(run, f);
    fputs("<div class=\"plots\">\n", f);
    plot_coverage(run, f);
    if (run->counts.n_domains > 1) plot_domains(run, f);
    plot_frequency(run, f);
    plot_speed(run, f);
    fputs("</div>\n", f);
    table_sweep(run, f);
    table_domains(run, f);
    list_tokens(run, "Most frequent", run->ranking.header.n_forced, f);
    list_tokens(run, "The last that are in",
                run->size - TOKENS_SHOWN > run->ranking.header.n_forced
                    ? run->size - TOKENS_SHOWN
                    : run->ranking.header.n_valid,
                f);
    list_tokens(run, "The first left out", run->size, f);
    sl_html_end(f);
    if (fflush(f) == 0 && !ferror(f)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot write: %s", out->path,
                            strerror(errno));
}
