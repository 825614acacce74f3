/* report.c : the table on the terminal. */
#include "specrt_adapt.h"
#include "calibrate.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { BAR_CELLS = 24 };

double calibration_coverage(const calibration *run, int kind) {
    return calibrate_ranking_coverage(&run->ranking, kind, run->size);
}

/* A bar of eighths of cells, or of whole '#' where the terminal is not UTF-8. */
static void print_bar(double share, bool utf8, FILE *out) {
    static const char *const eighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                          "\u258c", "\u258b", "\u258a", "\u2589"};
    int n = (int)lround(fmin(fmax(share, 0), 1) * BAR_CELLS * 8);
    if (!utf8) n = (n + 4) / 8 * 8;
    for (int i = 0; i < n / 8; i++) fputs(utf8 ? "\u2588" : "#", out);
    fputs(eighths[n % 8], out);
}

static void print_share(double share, int width, FILE *out) {
    if (isnan(share))
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, "%*.3f%%", width - 1, 100 * share);
}

/* Whether the tables have a column of intervals, in percent: " 98.71 to  98.95". */
static bool has_range(const calibration *run) {
    return !isnan(run->sweep.rows[run->sweep.chosen].holdout.low);
}

static void print_range(const calibration *run, coverage_range range, FILE *out) {
    if (has_range(run) && isnan(range.low))
        fprintf(out, "%18s", "-");
    else if (has_range(run))
        fprintf(out, "%8.2f to %6.2f", 100 * range.low, 100 * range.high);
}

static const char *range_head(const calibration *run) {
    return has_range(run) ? "      95% interval" : "";
}

static void print_head(const calibration *run, FILE *out) {
    const specrt_ranks_header *h = &run->ranking.header;
    uint64_t n_docs = 0;
    for (int i = 0; i < run->counts.n_domains; i++) n_docs += run->counts.domains[i].n_docs;
    fprintf(out, "%s: %s tokens in %s documents; %s ids, %s of them forced\n\n",
            sl_text_name(run->counts.vocab.name), sl_text_count(sl_counts_n_tokens(&run->counts)),
            sl_text_count(n_docs), sl_text_count((uint64_t)h->n_valid),
            sl_text_count((uint64_t)h->n_forced));
}

/* Bars begin at the round share under the smallest row, where the differences can be seen. */
static void print_sweep(const calibration *run, bool utf8, FILE *out) {
    const sweep *s = &run->sweep;
    bool has_holdout = !isnan(calibration_coverage(run, COVERAGE_HOLDOUT));
    int curve = has_holdout ? COVERAGE_HOLDOUT : COVERAGE_RANKED;
    double floor_share = fmin(floor(s->rows[0].coverage[curve] * 10) / 10, 0.9);
    bool has_tau = run->speed.n_rates > 0, has_mbsu = s->best >= 0;
    fprintf(out, "      size  calibration   hold-out%s%s%s  %.0f%%%*s\n", range_head(run),
            has_tau ? "     tau" : "", has_mbsu ? "    MBSU" : "", 100 * floor_share,
            BAR_CELLS - (floor_share >= 0.1 ? 3 : 2), "100%");
    for (int i = 0; i < s->n_rows; i++) {
        const sweep_row *row = &s->rows[i];
        fprintf(out, "%c %8s ", i == s->chosen ? '>' : ' ', sl_text_count((uint64_t)row->size));
        print_share(row->coverage[COVERAGE_RANKED], 12, out);
        print_share(row->coverage[COVERAGE_HOLDOUT], 11, out);
        print_range(run, row->holdout, out);
        if (has_tau) fprintf(out, "%8.3f", row->tau);
        if (has_mbsu) fprintf(out, "%8.3f", row->mbsu);
        fputs("  ", out);
        print_bar((row->coverage[curve] - floor_share) / (1 - floor_share), utf8, out);
        fputs(i == s->best ? "  best\n" : "\n", out);
    }
    fputc('\n', out);
}

static void print_speed(const calibration *run, FILE *out) {
    const speed_model *m = &run->speed;
    if (run->sweep.best < 0) return;
    const sweep_row *row = &run->sweep.rows[run->sweep.chosen];
    fprintf(out,
            "MBSU = tau / (c x gamma + 1), an estimate that ignores all but reading weights:\n"
            "  gamma = %d drafter passes; c = %.5f at %s ids, from a drafter of %.1fM and a target "
            "of %.1fM\n  parameters (%s)\n\n",
            m->n_rates, row->c, sl_text_count((uint64_t)row->size), m->draft_params / 1e6,
            m->target_params / 1e6, m->source);
}

static void print_domain(const calibration *run, int domain, int width, FILE *out) {
    const counts_domain *d = &run->counts.domains[domain];
    fputs("  ", out);
    sl_text_pad(d->name, width, out);
    fprintf(out, " %15s  %6.5g ", sl_text_count(d->n_tokens),
            run->weights ? run->weights[domain] : 1);
    print_share(calibration_coverage_domain(run, domain, COVERAGE_RANKED), 12, out);
    print_share(calibration_coverage_domain(run, domain, COVERAGE_HOLDOUT), 11, out);
    print_range(run, calibrate_ranking_interval(&run->ranking, d, run->size), out);
    fputc('\n', out);
}

static void print_domains(const calibration *run, FILE *out) {
    int width = 10, n, *order = calibration_worst_first(run, &n);
    for (int i = 0; order && i < n; i++)
        width = (int)fmax(width, sl_text_columns(run->counts.domains[order[i]].name));
    if (width > 48) width = 48;
    if (order && n > 1) {
        fprintf(out,
                "At %s ids, by domain, the worst first:\n  %-*s          tokens  weight  "
                "calibration   hold-out%s\n",
                sl_text_count((uint64_t)run->size), width, "", range_head(run));
        for (int i = 0; i < n; i++) print_domain(run, order[i], width, out);
        fputc('\n', out);
    }
    free(order);
}

void calibrate_advice(char *out) {
    snprintf(
        out, CALIBRATE_ADVICE,
        "--policy %s, with cograph-build's graph and sketch-build's sketch, which may be faster "
        "or slower than this list (figures: bench/results/held-out.md)",
        specrt_policy_untried(1, 1));
}

void calibrate_report_table(const calibration *run, FILE *out) {
    setlocale(LC_CTYPE, "");
    bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    char advice[CALIBRATE_ADVICE];
    print_head(run, out);
    print_sweep(run, utf8, out);
    print_speed(run, out);
    print_domains(run, out);
    calibrate_advice(advice);
    fprintf(out, "to run in specrt-eval compare: %s\n", advice);
}
