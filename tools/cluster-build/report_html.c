/* report_html.c : --report, one page: how training went and how well the router finds the target's tokens. */
#include "build.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "base/html_plot.h"
#include "base/io.h"
#include "base/text.h"

static void plot_loss(const train_curve *c, FILE *f) {
    double x[TRAIN_MAX_EPOCHS];
    for (int32_t i = 0; i < c->n; i++) x[i] = i + 1;
    const plot_series series[] = {{"trained on", x, c->loss, c->n, 0, false, true},
                                  {"held out", x, c->holdout, c->n, 1, false, true}};
    const plot_mark mark = {c->best + 1, "kept"};
    const plot p = {.title = "Loss by epoch",
                    .caption = "Mean cross entropy of a position; that of what is trained on is "
                               "taken while the weights move.",
                    .x = {"epoch", PLOT_WHOLE, false, 0, 0},
                    .y = {"loss", PLOT_LINEAR, false, 0, 0},
                    .series = series,
                    .n_series = 2,
                    .marks = &mark,
                    .n_marks = 1};
    sl_html_plot(f, &p);
}

static void plot_recall(const route_figures *r, FILE *f) {
    double x[ROUTE_LEVELS], recall[ROUTE_LEVELS], oracle[ROUTE_LEVELS], fixed[ROUTE_LEVELS];
    for (int32_t t = 0; t < r->n_levels; t++) {
        x[t] = t;
        recall[t] = r->levels[t].recall;
        oracle[t] = r->levels[t].oracle;
        fixed[t] = r->levels[t].fixed;
    }
    const plot_series series[] = {
        {"router", x, recall, r->n_levels, 0, false, true},
        {"oracle, as many clusters", x, oracle, r->n_levels, 1, false, true},
        {"static list of the mean size", x, fixed, r->n_levels, 2, false, true}};
    const plot p = {.title = "The target's best token is in the list",
                    .caption = "Share of positions held out, by level of the draft. The oracle "
                               "takes the clusters that hold most of the target's probability.",
                    .x = {"level", PLOT_WHOLE, false, 0, 0},
                    .y = {"recall", PLOT_LINEAR, true, 0, 0},
                    .series = series,
                    .n_series = isnan(r->all.fixed) ? 2 : 3};
    sl_html_plot(f, &p);
}

static void table_levels(const route_figures *r, FILE *f) {
    fputs("<h2>By level</h2>\n<div class=\"scroll\"><table>\n<tr><th>level</th><th>positions</th>"
          "<th>rows</th><th>recall</th><th>oracle</th><th>static</th><th>mass</th>"
          "<th>oracle's</th></tr>\n",
          f);
    for (int32_t t = 0; t <= r->n_levels; t++) {
        const route_level *x = t < r->n_levels ? &r->levels[t] : &r->all;
        if (x->n == 0) continue;
        if (t < r->n_levels)
            fprintf(f, "<tr><td>%" PRId32 "</td>", t);
        else
            fputs("<tr><td>all</td>", f);
        fprintf(f, "<td>%s</td><td>%.0f</td><td>%.4f</td><td>%.4f</td>",
                sl_text_count((uint64_t)x->n), x->rows, x->recall, x->oracle);
        fprintf(f, isnan(x->fixed) ? "<td>-</td>" : "<td>%.4f</td>", x->fixed);
        fprintf(f, "<td>%.4f</td><td>%.4f</td></tr>\n", x->mass, x->mass_oracle);
    }
    fputs("</table></div>\n", f);
}

specrt_status cluster_report_html(const cluster_build *b, specrt_error *err) {
    const router_training *t = &b->training;
    char title[64], subtitle[160];
    out_file out;
    snprintf(title, sizeof title, "Router: %s", b->options->router_name);
    snprintf(subtitle, sizeof subtitle,
             "%" PRId32 " clusters; trained on %" PRId64 " positions, %" PRId64
             " held out; about %.0f rows a level",
             b->k.n_clusters, t->examples.n - t->examples.n_holdout, t->examples.n_holdout,
             b->schedule.rows);
    TRY(sl_out_open(&out, b->options->report, true, err));
    sl_html_begin(out.f, title, subtitle);
    plot_loss(&t->curve, out.f);
    plot_recall(&t->figures, out.f);
    table_levels(&t->figures, out.f);
    sl_html_end(out.f);
    specrt_status status = ferror(out.f) ? specrt_error_set(err, SPECRT_STATUS_IO,
                                                            "%s: cannot write", b->options->report)
                                         : sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}
