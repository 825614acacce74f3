/* plots.c : what a comparison shows over time and beside fixed lists. */
#include <math.h>
#include <stdlib.h>
#include "compare.h"
#include "base/html_plot.h"

static plot_series series_of(const comparison *c, int i, const double *x, const double *y, int n,
                             bool dots) {
    int k = i - FULL;
    return (plot_series){c->contestants[i].name, x, y, n, k % HTML_COLORS, k >= HTML_COLORS, dots};
}

void compare_plot_times(FILE *f, const comparison *c) {
    size_t n = (size_t)c->n_contestants;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*at)[2][ROW_BINS] = (double(*)[2][ROW_BINS])calloc(n, sizeof *at);
    for (int i = FULL; series && at && i < c->n_contestants; i++) {
        const row_times *t = &c->contestants[i].watch.times;
        for (int b = 0; b < ROW_BINS; b++) {
            at[i][0][b] = ((double)b + 0.5) * (double)t->width;
            at[i][1][b] = t->n[b] ? t->rows[b] / (double)t->n[b] : NAN;
        }
        series[i - FULL] = series_of(c, i, at[i][0], at[i][1], ROW_BINS, false);
    }
    const plot p = {.title = "Active rows over time",
                    .caption = c->stream ? "By tokens since the stream began."
                                         : "By tokens of the answer, mean over answers.",
                    .x = {"tokens written", PLOT_LINEAR, false, 0, 0},
                    .y = {"active rows", PLOT_LOG2, false, 0, 0},
                    .series = series,
                    .n_series = c->n_contestants - FULL};
    if (series && at) sl_html_plot(f, &p);
    free(at);
    free(series);
}

void compare_plot_coverage(FILE *f, const comparison *c) {
    double sizes[2][COVERAGE_POINTS], shares[2][COVERAGE_POINTS];
    size_t n = (size_t)c->n_contestants + 2;
    int32_t n_vocab = engine_get_config(c->models.target)->n_vocab;
    plot_series *series = (plot_series *)calloc(n, sizeof *series);
    double(*at)[2] = (double(*)[2])calloc(n, sizeof *at);
    specrt_ranks ranks;
    int k = 0;
    if (series && at) {
        int points = compare_coverage(c, NULL, n_vocab, sizes[0], shares[0]);
        series[k++] = (plot_series){
            "best list for these very tokens", sizes[0], shares[0], points, -1, true, false};
    }
    if (series && at && c->models.bundle &&
        specrt_bundle_ranks(c->models.bundle, &ranks, NULL) == SPECRT_STATUS_OK) {
        int points =
            compare_coverage(c, ranks.ids, (int32_t)ranks.header->n_ranked, sizes[1], shares[1]);
        series[k++] =
            (plot_series){"the bundle's ranks", sizes[1], shares[1], points, -1, false, false};
    }
    for (int i = FULL; series && at && i < c->n_contestants; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        at[i][0] = x.active_rows;
        at[i][1] = x.coverage;
        series[k++] = series_of(c, i, &at[i][0], &at[i][1], 1, true);
    }
    const plot p = {.title = "Coverage by size",
                    .caption = "Written tokens that could have been drafted: fixed lists of every "
                               "size, and each policy.",
                    .x = {"active rows", PLOT_LOG2, false, 0, 0},
                    .y = {"covered", PLOT_LINEAR, true, 0, 0},
                    .series = series,
                    .n_series = k};
    if (series && at) sl_html_plot(f, &p);
    free(at);
    free(series);
}

void compare_plot_phases(FILE *f, const comparison *c) {
    static const char *const parts[] = {"draft", "head", "target", "verify", "update"};
    enum { N_PARTS = 5 };
    size_t n = (size_t)c->n_contestants;
    double *values = (double *)malloc(N_PARTS * n * sizeof *values);
    const char **labels = (const char **)malloc(n * sizeof *labels);
    for (int i = 0; values && labels && i < c->n_contestants; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        double per = 1e3 / (i == PLAIN ? 1 : x.accept_length);
        const double phases[N_PARTS] = {i == PLAIN ? 0 : x.draft * per,
                                        i == PLAIN ? 0 : x.head * per, x.target * per,
                                        x.verify * per, i == PLAIN ? 0 : x.update * per};
        for (int k = 0; k < N_PARTS; k++) values[N_PARTS * i + k] = phases[k];
        labels[i] = c->contestants[i].name;
    }
    const bars b = {.title = "Timeline of a token",
                    .caption = "A cycle's phases one after another, by the tokens that it emits; "
                               "ms. The shortest bar wins.",
                    .unit = "ms",
                    .labels = labels,
                    .parts = parts,
                    .values = values,
                    .n_bars = c->n_contestants,
                    .n_parts = N_PARTS};
    if (values && labels) sl_html_bars(f, &b);
    free(values);
    free((void *)labels);
}
