/* languages.c : equal shares for languages, and a word about those that the list covers badly. */
#include "calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/order.h"
#include "base/text.h"
#include "corpus/script.h"

/* ---- --balance ---- */

/* Of what a domain is a part when shares are made equal: its language, else itself. */
static const char *share_of(const counts *c, const counts_domain *d) {
    const char *language = sl_counts_language(c, d);
    return language ? language : d->name;
}

static uint64_t tokens_of(const counts *c, const char *share) {
    uint64_t n = 0;
    for (int i = 0; i < c->n_domains; i++)
        if (strcmp(share_of(c, &c->domains[i]), share) == 0) n += c->domains[i].n_tokens;
    return n;
}

void calibrate_balance(const counts *c, double *weights) {
    uint64_t most = 0;
    for (int i = 0; i < c->n_domains; i++) {
        uint64_t n = tokens_of(c, share_of(c, &c->domains[i]));
        if (n > most) most = n;
    }
    for (int i = 0; i < c->n_domains; i++) {
        const char *language = sl_counts_language(c, &c->domains[i]);
        uint64_t n = tokens_of(c, share_of(c, &c->domains[i]));
        bool wordless = language && strcmp(language, sl_script_name(SCRIPT_NONE)) == 0;
        if (n && !wordless) weights[i] *= (double)most / (double)n;
    }
}

/* ---- coverage ---- */

double calibration_coverage_domain(const calibration *run, int domain, int kind) {
    double coverage;
    calibrate_ranking_coverage_domain(&run->ranking, &run->counts.domains[domain], kind, &run->size,
                                      1, &coverage);
    return coverage;
}

/* On held-out text where the domain has some. */
static double coverage_of(const calibration *run, int domain) {
    double coverage = calibration_coverage_domain(run, domain, COVERAGE_HOLDOUT);
    return isnan(coverage) ? calibration_coverage_domain(run, domain, COVERAGE_RANKED) : coverage;
}

typedef struct placed {
    double coverage;
    int domain;
} placed;

static int by_coverage(const void *left, const void *right) {
    const placed *a = (const placed *)left, *b = (const placed *)right;
    double x = isnan(a->coverage) ? 2 : a->coverage, y = isnan(b->coverage) ? 2 : b->coverage;
    int order = (x > y) - (x < y);
    return order ? order : sl_order_i32(&a->domain, &b->domain);
}

int *calibration_worst_first(const calibration *run, int *n) {
    const counts *c = &run->counts;
    placed *order = (placed *)calloc((size_t)c->n_domains + 1, sizeof *order);
    int *out = (int *)calloc((size_t)c->n_domains + 1, sizeof *out);
    *n = 0;
    for (int i = 0; order && out && i < c->n_domains; i++)
        if (c->domains[i].n_docs || !strstr(c->options, COUNTS_BY_LANGUAGE))
            order[(*n)++] = (placed){coverage_of(run, i), i};
    if (order && out) qsort(order, (size_t)*n, sizeof *order, by_coverage);
    for (int i = 0; order && out && i < *n; i++) out[i] = order[i].domain;
    free(order);
    return out;
}

/* ---- the warning ---- */

/* Much text of a language, and a list that was not made for it. */
static bool is_neglected(const calibration *run, int domain, double all) {
    const counts_domain *d = &run->counts.domains[domain];
    bool much = d->n_tokens >= 1000 && 1000 * d->n_tokens >= sl_counts_n_tokens(&run->counts);
    return much && all - coverage_of(run, domain) > 0.05;
}

void calibrate_warn_languages(const calibration *run) {
    double all = calibration_coverage(run, COVERAGE_HOLDOUT);
    char named[400] = "";
    int n, *order = calibration_worst_first(run, &n);
    if (isnan(all)) all = calibration_coverage(run, COVERAGE_RANKED);
    for (int i = 0; order && i < n; i++) {
        const counts_domain *d = &run->counts.domains[order[i]];
        size_t length = strlen(named);
        if (!sl_counts_language(&run->counts, d) || !is_neglected(run, order[i], all)) continue;
        if (length > sizeof named - 120) break;
        snprintf(named + length, sizeof named - length, "%s%.1f%% of %.80s", length ? ", " : "",
                 100 * coverage_of(run, order[i]), sl_text_name(d->name));
    }
    free(order);
    if (named[0])
        sl_cli_warn(
            "the list covers %.1f%% of all tokens, but %s; drafts in such text are shorter: "
            "--balance gives each language the same share, a larger --size helps all",
            100 * all, named);
}
