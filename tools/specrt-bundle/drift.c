/* drift.c : specrt-bundle drift. How much of today's text a calibrated list still covers. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "bundle_file.h"
#include "counts/coverage.h"
#include "verbs.h"

enum { SHOWN = 8 };        /* missing ids */
#define LANGUAGE_DROP 0.05 /* as vocabtrim-calibrate warns */
#define PLAIN_DROP    0.02 /* tolerated where one of the texts has no interval */

typedef struct missing {
    int32_t id;
    uint64_t n;
} missing;

typedef struct drift {
    const char *bundle;
    cli_list files;
    int64_t size;
    double max_drop; /* NaN: not given */
    counts counts;
    bool *in_list; /* [n_vocab] */
    /* coverage of held-out text then, else of the ranked text; NaN: not recorded */
    double calibrated;
    coverage_range then, now; /* 95% intervals; NaN: unknown */
    uint64_t n_tokens, n_covered;
    missing worst[SHOWN]; /* by count, then the lower id */
    int n_worst;
} drift;

/* ---- the list ---- */

static specrt_status take_list(drift *d, const specrt_bundle *bundle, const specrt_ranks *ranks,
                               specrt_error *err) {
    const specrt_ranks_header *h = ranks->header;
    if (d->size == 0) d->size = h->n_default;
    if (d->size > h->n_valid)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--size %" PRId64 ": expected at most %" PRId32 ", the ids of %s",
                                d->size, h->n_valid, d->bundle);
    d->in_list = (bool *)calloc((size_t)h->n_vocab, sizeof *d->in_list);
    if (!d->in_list) return sl_error_no_memory(err, d->bundle);
    for (int64_t i = 0; i < d->size; i++) d->in_list[ranks->ids[i]] = true;
    const counts_vocab *v = &d->counts.vocab;
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    if (v->n_vocab != h->n_vocab ||
        (ident && memcmp(ident->tokenizer_sha256, v->sha256, sizeof v->sha256) != 0))
        return specrt_error_set(
            err, SPECRT_STATUS_BUNDLE_MISMATCH,
            "%s: expected counts by the tokenizer of %s, found those of %s with %" PRId32 " ids",
            d->files.items[0], d->bundle, v->name, v->n_vocab);
    return SPECRT_STATUS_OK;
}

/* What the list covered of a part of its text, held out or ranked, whatever weights its domains had: as
 * today's text is measured. NaN: not recorded. */
static double plain_coverage(json_object *provenance, bool held_out) {
    json_object *ranks = json_object_object_get(provenance, "ranks");
    json_object *domains = json_object_object_get(ranks, "domains");
    double n = 0, covered = 0;
    for (size_t i = 0; i < sl_json_length(domains); i++) {
        json_object *o = json_object_array_get_idx(domains, i);
        json_object *share =
            json_object_object_get(o, held_out ? "coverage_holdout" : "coverage_calibration");
        double n_held_out = json_object_get_double(json_object_object_get(o, "n_tokens_holdout"));
        double n_all = json_object_get_double(json_object_object_get(o, "n_tokens"));
        double n_here = held_out ? n_held_out : n_all - n_held_out;
        if (!share) continue;
        n += n_here;
        covered += n_here * json_object_get_double(share);
    }
    return n > 0 ? covered / n : NAN;
}

/* The recorded interval is of the weighted coverage: its widths are taken for the plain one. */
static coverage_range recorded_range(json_object *provenance, double plain) {
    json_object *share = verb_coverage(provenance, "coverage_holdout"),
                *low = verb_coverage(provenance, "coverage_holdout_low"),
                *high = verb_coverage(provenance, "coverage_holdout_high");
    if (!share || !low || !high) return (coverage_range){NAN, NAN};
    double off = plain - json_object_get_double(share);
    return (coverage_range){json_object_get_double(low) + off, json_object_get_double(high) + off};
}

/* Coverage is recorded for the calibrated size alone. */
static void take_calibrated(drift *d, const specrt_bundle *bundle, int32_t n_default) {
    json_object *provenance = verb_provenance(bundle);
    d->then = (coverage_range){NAN, NAN};
    d->calibrated = plain_coverage(provenance, true);
    if (!isnan(d->calibrated)) d->then = recorded_range(provenance, d->calibrated);
    if (isnan(d->calibrated)) d->calibrated = plain_coverage(provenance, false);
    if (d->size != n_default) d->calibrated = d->then.low = d->then.high = NAN;
    json_object_put(provenance);
}

static specrt_status open_list(drift *d, specrt_error *err) {
    bundle_file b;
    specrt_ranks ranks;
    TRY(bundle_file_open(d->bundle, &b, err));
    specrt_status status = specrt_bundle_ranks(b.bundle, &ranks, err);
    if (status == SPECRT_STATUS_OK) status = take_list(d, b.bundle, &ranks, err);
    if (status == SPECRT_STATUS_OK) take_calibrated(d, b.bundle, ranks.header->n_default);
    bundle_file_close(&b);
    return status;
}

/* ---- today's text ---- */

static void keep_missing(drift *d, int32_t id, uint64_t n) {
    int at = d->n_worst;
    while (at > 0 &&
           (d->worst[at - 1].n < n || (d->worst[at - 1].n == n && d->worst[at - 1].id > id)))
        at--;
    if (at == SHOWN) return;
    if (d->n_worst < SHOWN) d->n_worst++;
    memmove(&d->worst[at + 1], &d->worst[at], (size_t)(d->n_worst - at - 1) * sizeof d->worst[0]);
    d->worst[at] = (missing){id, n};
}

/* A token may be in several domains. */
static specrt_status add_up(drift *d, specrt_error *err) {
    uint64_t *n = (uint64_t *)calloc((size_t)d->counts.vocab.n_vocab, sizeof *n);
    double all[COUNTS_MAX_FOLDS] = {0}, covered[COUNTS_MAX_FOLDS] = {0};
    if (!n) return sl_error_no_memory(err, d->files.items[0]);
    for (int i = 0; i < d->counts.n_domains; i++)
        for (int32_t j = 0; j < d->counts.domains[i].n_rows; j++) {
            const counts_row *row = &d->counts.domains[i].rows[j];
            n[row->id] += row->n;
            all[row->fold] += (double)row->n;
            if (d->in_list[row->id]) covered[row->fold] += (double)row->n;
        }
    for (int32_t id = 0; id < d->counts.vocab.n_vocab; id++) {
        d->n_tokens += n[id];
        if (d->in_list[id])
            d->n_covered += n[id];
        else if (n[id])
            keep_missing(d, id, n[id]);
    }
    free(n);
    d->now = sl_coverage_range(covered, all, COUNTS_MAX_FOLDS, (double)d->n_tokens);
    return SPECRT_STATUS_OK;
}

/* *n : tokens of the domain */
static double domain_coverage(const drift *d, const counts_domain *domain, uint64_t *n) {
    uint64_t all = 0, covered = 0;
    for (int32_t j = 0; j < domain->n_rows; j++) {
        all += domain->rows[j].n;
        if (d->in_list[domain->rows[j].id]) covered += domain->rows[j].n;
    }
    *n = all;
    return all ? (double)covered / (double)all : NAN;
}

static specrt_status measure(drift *d, specrt_error *err) {
    for (int i = 0; i < d->files.n; i++) TRY(sl_counts_read(&d->counts, d->files.items[i], err));
    TRY(open_list(d, err));
    TRY(add_up(d, err));
    return d->n_tokens ? SPECRT_STATUS_OK
                       : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                          "%s: expected counts, found none", d->files.items[0]);
}

/* ---- what came out ---- */

static double today(const drift *d) {
    return (double)d->n_covered / (double)d->n_tokens;
}

static double drop_of(const drift *d) {
    return d->calibrated - today(d);
}

/* hypot() is of glibc 2.35, sqrt() of any. */
static double both(double a, double b) {
    return sqrt(a * a + b * b);
}

/* The interval of the difference of two independent shares, from the interval of each; none where one of them
 * has none. */
static coverage_range drop_range(const drift *d) {
    double then = d->calibrated, now = today(d), drop = drop_of(d);
    if (isnan(d->then.low) || isnan(d->now.low)) return (coverage_range){NAN, NAN};
    return (coverage_range){drop - both(then - d->then.low, d->now.high - now),
                            drop + both(d->then.high - then, now - d->now.low)};
}

/* The drop that must be exceeded, by the whole interval where there is one. */
static double tolerated(const drift *d) {
    if (!isnan(d->max_drop)) return d->max_drop;
    return isnan(drop_range(d).low) ? PLAIN_DROP : 0;
}

static json_object *domains_json(const drift *d) {
    json_object *all = json_object_new_array();
    for (int i = 0; i < d->counts.n_domains; i++) {
        const counts_domain *domain = &d->counts.domains[i];
        const char *language = sl_counts_language(&d->counts, domain);
        uint64_t n;
        double coverage = domain_coverage(d, domain, &n);
        json_object *o = json_object_new_object();
        sl_json_put(o, "name", sl_json_text(domain->name));
        sl_json_put(o, "language", language ? json_object_new_string(language) : NULL);
        sl_json_put(o, "n_tokens", sl_json_whole(n));
        sl_json_put(o, "coverage", sl_json_real(coverage));
        json_object_array_add(all, o);
    }
    return all;
}

static json_object *missing_json(const drift *d) {
    json_object *all = json_object_new_array();
    for (int i = 0; i < d->n_worst; i++) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "id", json_object_new_int(d->worst[i].id));
        sl_json_put(o, "n", sl_json_whole(d->worst[i].n));
        json_object_array_add(all, o);
    }
    return all;
}

static void put_range(json_object *o, const char *key, coverage_range range) {
    char name[64];
    snprintf(name, sizeof name, "%s_low", key);
    sl_json_put(o, name, sl_json_real(range.low));
    snprintf(name, sizeof name, "%s_high", key);
    sl_json_put(o, name, sl_json_real(range.high));
}

static void print_json(const drift *d) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "size", sl_json_whole((uint64_t)d->size));
    sl_json_put(o, "n_tokens", sl_json_whole(d->n_tokens));
    sl_json_put(o, "coverage", sl_json_real(today(d)));
    put_range(o, "coverage", d->now);
    sl_json_put(o, "coverage_calibrated", sl_json_real(d->calibrated));
    put_range(o, "coverage_calibrated", d->then);
    sl_json_put(o, "drop", sl_json_real(drop_of(d)));
    put_range(o, "drop", drop_range(d));
    sl_json_put(o, "domains", domains_json(d));
    sl_json_put(o, "missing", missing_json(d));
    sl_json_print(o);
}

static void print_share(const char *what, double share, coverage_range range) {
    printf("  %-16s %6.2f%%", what, 100 * share);
    if (!isnan(range.low))
        printf("  (95%% interval %.2f%% to %.2f%%)", 100 * range.low, 100 * range.high);
    printf("\n");
}

static void print_table(const drift *d) {
    printf("%s tokens, a list of %s\n\n", sl_text_count(d->n_tokens),
           sl_text_count((uint64_t)d->size));
    if (!isnan(d->calibrated)) print_share("at calibration", d->calibrated, d->then);
    print_share("in this text", today(d), d->now);
    for (int i = 0; d->counts.n_domains > 1 && i < d->counts.n_domains; i++) {
        uint64_t n;
        double coverage = domain_coverage(d, &d->counts.domains[i], &n);
        if (n) printf("    %6.2f%%  %s\n", 100 * coverage, sl_text_name(d->counts.domains[i].name));
    }
    if (d->n_worst) printf("\nmost frequent ids outside the list:");
    for (int i = 0; i < d->n_worst; i++)
        printf(" %" PRId32 " (%s)", d->worst[i].id, sl_text_count(d->worst[i].n));
    if (d->n_worst) printf("\n");
}

/* A list that was made from one language, and today's text in another: counts by language show it where the
 * sum over all text does not. */
static void warn_languages(const drift *d) {
    double all = d->calibrated == d->calibrated ? d->calibrated : today(d);
    for (int i = 0; i < d->counts.n_domains; i++) {
        uint64_t n;
        double coverage = domain_coverage(d, &d->counts.domains[i], &n);
        const char *language = sl_counts_language(&d->counts, &d->counts.domains[i]);
        if (!language || n < 1000 || 1000 * n < d->n_tokens || all - coverage <= LANGUAGE_DROP)
            continue;
        sl_cli_warn(
            "%s: %.1f%% of this text, of which the list covers %.1f%% (%.1f%% of %s): it was "
            "made from other languages; calibrate again with this text and --balance",
            sl_text_name(d->counts.domains[i].name), 100 * (double)n / (double)d->n_tokens,
            100 * coverage, 100 * all,
            d->calibrated == d->calibrated ? "the text at calibration" : "all of it");
    }
}

static void warn_drop(const drift *d, coverage_range range) {
    char interval[80] = "", limit[32] = "";
    if (tolerated(d) > 0) snprintf(limit, sizeof limit, ", more than %.2f", 100 * tolerated(d));
    if (!isnan(range.low))
        snprintf(interval, sizeof interval, " (95%% interval %.2f to %.2f)", 100 * range.low,
                 100 * range.high);
    sl_cli_warn(
        "coverage fell by %.2f points since calibration%s%s; calibrate again with this text",
        100 * drop_of(d), interval, limit);
}

static int report(const drift *d, const cli_common *common) {
    coverage_range range = drop_range(d);
    double least = isnan(range.low) ? drop_of(d) : range.low;
    if (common->json)
        print_json(d);
    else
        print_table(d);
    warn_languages(d);
    if (!(least > tolerated(d))) return CLI_OK;
    warn_drop(d, range);
    return CLI_BELOW;
}

int drift_main(int argc, char **argv) {
    drift d = {.max_drop = NAN};
    const cli_option options[] = {
        sl_cli_strings("counts", "FILE...", &d.files,
                       "counts of today's text (vocabtrim-calibrate --counts-out)"),
        sl_cli_int("size", "N", &d.size, 1, INT32_MAX,
                   "size of the list (default: the calibrated size)"),
        sl_cli_real("max-drop", "P", &d.max_drop, 0, 1,
                    "exit code 4 if coverage fell by more, beyond chance (default 0; 0.02 where "
                    "one of the texts has no interval)"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle drift model.specb --counts today.counts",
        "Compares how much of today's text the list of a bundle covers with what it covered when "
        "it was calibrated. A drop counts where its 95% interval lies above --max-drop: it follows "
        "from the interval that calibration recorded and from how much the records of today's "
        "text differ. Several count files are added, so give one file per day:\n"
        "vocabtrim-calibrate --tokenizer T --corpus today.jsonl --counts-out today.counts\n"
        "With --by-language there, coverage is printed by language, and languages that the list "
        "was not built for are named.",
        "specrt-bundle drift BUNDLE --counts FILE... [options]", options};
    cli_common common;
    specrt_error err;
    int code = verb_start_one(&tool, argc, argv, &common, &d.bundle, "one bundle");
    if (code >= 0) return code;
    if (d.files.n == 0)
        code = sl_cli_usage("expected --counts FILE");
    else
        code = measure(&d, &err) == SPECRT_STATUS_OK ? report(&d, &common) : sl_cli_fail(&err);
    sl_counts_free(&d.counts);
    sl_cli_list_free(&d.files);
    free(d.in_list);
    return code;
}
