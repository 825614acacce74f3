/* vocabtrim-calibrate : from a corpus, or the target's own text, to a ranked draft vocabulary.
 *
 *     corpus ─► count.c ─► counts ◄─ --merge        options.c  the command line
 *                             │                     input.c    tokenizer, count files, model
 *                         select.c ─► ranking       reduce.c   ranks under mpirun
 *                             │
 *                             │                     languages.c  shares, and what is covered badly
 *                          sweep.c ─► output.c ─► bundle, token maps, counts, report*.c
 */
#include "calibrate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "input.h"
#include "base/mpi.h"
#include "output.h"
#include "base/text.h"

/* ---- steps of a run ---- */

/* Of --keep only what is no special token anyway: those are members without it. */
static void drop_specials(calibration *run) {
    const uint8_t *types = run->counts.vocab.types;
    int32_t n = 0;
    for (int32_t i = 0; i < run->n_keep; i++) {
        uint8_t type = types[run->keep[i]];
        if (type == COUNTS_NORMAL || type == COUNTS_RESERVED) run->keep[n++] = run->keep[i];
    }
    run->n_keep = n;
}

/* What can be refused before the corpus is read. */
static specrt_status check_early(calibration *run, const model *m, specrt_error *err) {
    const calibrate_options *o = run->options;
    int32_t n_vocab = run->counts.vocab.n_vocab;
    TRY(calibrate_options_keep(o, run->tok, n_vocab, &run->keep, &run->n_keep, err));
    drop_specials(run);
    select_limits limits = select_limits_of(&run->counts.vocab, run->keep, run->n_keep);
    if (o->rule == SELECT_SIZE && o->rule_given)
        TRY(select_size_check(&limits, o->rule_value, err));
    return input_speed(o, m, run->has_head ? &run->head : NULL, n_vocab, &run->speed, err);
}

static void tell_speed(const calibration *run, double seconds) {
    const corpus_stats *s = &run->stats;
    if (!run->options->common.verbose || !run->options->corpus.n) return;
    sl_cli_info("read %s bytes of %s files, %s bytes of text, in %.2f s (%.1f MB of text/s); "
                "peak memory %.0f MB",
                sl_text_count(s->bytes_read), sl_text_count(s->n_files),
                sl_text_count(s->n_text_bytes), seconds, (double)s->n_text_bytes / 1e6 / seconds,
                (double)sl_measure_peak_bytes() / 1e6);
}

static specrt_status check_counted(const calibration *run, specrt_error *err) {
    if (sl_counts_n_tokens(&run->counts)) return SPECRT_STATUS_OK;
    bool all = strcmp(run->options->messages, "all") == 0;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "no tokens were counted: the corpus holds no text%s",
                            all ? "" : " that a target wrote (--messages all counts prompts too)");
}

/* A draft vocabulary of half the vocabulary or more saves little: small ones get a quarter. */
static specrt_status choose_size(calibration *run, specrt_error *err) {
    const calibrate_options *o = run->options;
    int32_t n_valid = run->ranking.header.n_valid, n_forced = run->ranking.header.n_forced;
    int32_t n_vocab = run->counts.vocab.n_vocab;
    double value = o->rule_value;
    if (!o->rule_given) {
        if (n_vocab < 2 * DEFAULT_SIZE) value = (n_vocab + 3) / 4;
        if (value > n_valid) value = n_valid;
        if (value < n_forced) value = n_forced;
        if (value != DEFAULT_SIZE)
            sl_cli_info("size %.0f instead of the default %d: the vocabulary has %" PRId32
                        " valid ids, %" PRId32 " of them forced",
                        value, DEFAULT_SIZE, n_valid, n_forced);
    }
    if (o->rule == SELECT_LOSS)
        run->size = sweep_size_of_loss(&run->ranking, &run->counts, &run->speed, value);
    else
        TRY(select_size(&run->ranking, o->rule, value,
                        run->has_head ? input_row_bytes(&run->head) : 0, &run->size, err));
    run->ranking.header.n_default = run->size;
    return SPECRT_STATUS_OK;
}

/* " (95% interval 80.4% to 82.3%)", or nothing where there is none. */
static const char *range_text(coverage_range range, char out[64]) {
    snprintf(out, 64, " (95%% interval %.1f%% to %.1f%%)", 100 * range.low, 100 * range.high);
    return isnan(range.low) ? "" : out;
}

/* Says where --mass rests on too little. @return whether it said so. */
static bool warn_mass(const calibration *run) {
    const calibrate_ranking *r = &run->ranking;
    double share = run->options->rule_value, n = (double)r->n_held_out;
    double held_out = calibration_coverage(run, COVERAGE_HOLDOUT);
    coverage_range range = calibrate_ranking_interval(r, NULL, run->size);
    if (run->options->rule != SELECT_MASS) return false;
    if (held_out < share)
        sl_cli_warn("--mass %g: cannot be reached: all %s ids that a list may hold cover %.2f%% of "
                    "held-out text",
                    share, sl_text_count((uint64_t)run->size), 100 * held_out);
    else if (n < select_mass_needs(share))
        sl_cli_warn(
            "--mass %g: %s held-out tokens cannot show it, so the list errs to the long side "
            "(%.1f%% of further text may be any of the ids not seen); give more text%s",
            share, sl_text_count(r->n_held_out), 100 * r->unseen,
            r->n_held_out ? "" : ", some of it held out (--holdout 0.1)");
    else if (share - range.low > (1 - share) / 2)
        sl_cli_warn("--mass %g: coverage of held-out text is known only within %.2f%% to %.2f%% "
                    "(95%% interval over %d parts of the text); more records narrow it",
                    share, 100 * range.low, 100 * range.high, r->n_folds);
    else
        return false;
    return true;
}

/* Says what --accept-loss found, and where it rests on too little. @return whether that is so. */
static bool tell_loss(const calibration *run) {
    const speed_model *m = &run->speed;
    double loss = run->options->rule_value, whole = speed_tau(m->rates, m->n_rates, 1);
    if (run->options->rule != SELECT_LOSS) return false;
    if (!run->ranking.n_held_out) {
        sl_cli_warn(
            "--accept-loss %g: nothing was held out, so the list has all ids; give more records, "
            "some of them held out (--holdout 0.1)",
            loss);
        return true;
    }
    sweep_worst w = sweep_worst_of(&run->ranking, &run->counts, m, run->size);
    const char *name = w.domain < 0 ? "all text" : run->counts.domains[w.domain].name;
    sl_cli_info("%s ids: accept length %.3f instead of %.3f, a loss of %.2f%% (95%%: %.2f to %.2f) "
                "in the worst domain, %s; estimated from coverage and --accept-rate %s",
                sl_text_count((uint64_t)run->size), w.tau, whole, 100 * (1 - w.tau / whole),
                100 * (1 - w.range.high / whole), 100 * (1 - w.range.low / whole),
                sl_text_name(name), run->options->accept_rate);
    if (1 - w.range.low / whole <= 2 * loss) return false;
    sl_cli_warn("--accept-loss %g: the text cannot show it; more records of %s narrow the interval",
                loss, sl_text_name(name));
    return true;
}

/* The domain that misses most of what the list misses more of held-out than of ranked text; -1: none misses
 * half of it. */
static int gap_domain(const calibration *run, double gap) {
    const counts *c = &run->counts;
    double all = gap * (double)run->ranking.n_held_out;
    for (int i = 0; c->n_domains > 1 && i < c->n_domains; i++) {
        double own = calibration_coverage_domain(run, i, COVERAGE_RANKED) -
                     calibration_coverage_domain(run, i, COVERAGE_HOLDOUT);
        uint64_t n = calibrate_ranking_held_out(&run->ranking, &c->domains[i]);
        if (own > 1.5 * gap && own * (double)n > all / 2) return i;
    }
    return -1;
}

/* Why a list covers more of the text that was ranked: one domain, ids that are new in any text, or records
 * that have words of their own. */
static void name_cause(const calibration *run, double gap, char *out, size_t n) {
    const calibrate_ranking *r = &run->ranking;
    int domain = gap_domain(run, gap);
    if (domain >= 0)
        snprintf(out, n, "most of the difference is in %s: give more records of it",
                 sl_text_name(run->counts.domains[domain].name));
    else if (run->size > r->n_seen || 2 * r->unseen > gap)
        snprintf(out, n,
                 "%.1f%% of further tokens will be ids not seen here (%s were seen): give "
                 "more text%s",
                 100 * r->unseen, sl_text_count((uint64_t)r->n_seen),
                 run->options->rule == SELECT_MASS || run->options->rule == SELECT_LOSS
                     ? ""
                     : ", or let --mass choose the size");
    else
        snprintf(out, n,
                 "records have words of their own: give more records of each kind, rather "
                 "than longer ones");
}

/* Where the list knows the text that was ranked better than other text, beyond chance, or nothing tells. */
static void warn_gap(const calibration *run) {
    const calibrate_ranking *r = &run->ranking;
    char cause[256], interval[64];
    if (r->n_held_out == 0 && run->options->corpus.n && run->options->n_folds > 1)
        sl_cli_warn("all records fell into one part of %d, so nothing was held out and coverage of "
                    "other text is unknown; give more records (a text file is one)",
                    run->options->n_folds);
    double ranked = calibration_coverage(run, COVERAGE_RANKED);
    double held_out = calibration_coverage(run, COVERAGE_HOLDOUT);
    coverage_range range = calibrate_ranking_interval(r, NULL, run->size);
    if (!(ranked - held_out > 0.01) || !(ranked > range.high)) return;
    name_cause(run, ranked - held_out, cause, sizeof cause);
    sl_cli_warn("the list covers %.1f%% of the text that was ranked, %.1f%% of held-out text%s: %s",
                100 * ranked, 100 * held_out, range_text(range, interval), cause);
}

static specrt_status select_and_sweep(calibration *run, char *const *names, specrt_error *err) {
    TRY(check_counted(run, err));
    TRY(calibrate_options_weights(run->options, &run->counts, names, &run->weights, err));
    TRY(calibrate_ranking_create(&run->counts, run->weights, run->keep, run->n_keep, &run->ranking,
                                 err));
    TRY(choose_size(run, err));
    if (!warn_mass(run) && !tell_loss(run)) warn_gap(run);
    calibrate_warn_languages(run);
    return sweep_create(&run->ranking, &run->speed, run->size, &run->sweep, err);
}

/* ---- the run ---- */

static specrt_status count(calibration *run, char *const *names, specrt_error *err) {
    const calibrate_options *o = run->options;
    if (!o->corpus.n) return SPECRT_STATUS_OK;
    specrt_status status = count_corpus(o, run->tok, names, &run->counts, &run->stats, err);
    return reduce_counts(&run->counts, status, err);
}

/* The quality gate: hold-out coverage, or that of the ranked text where there is none. */
static bool is_below(const calibration *run) {
    double coverage = calibration_coverage(run, COVERAGE_HOLDOUT),
           least = run->options->min_coverage;
    bool held_out = !isnan(coverage);
    char interval[64];
    if (isnan(least)) return false;
    if (!held_out) {
        coverage = calibration_coverage(run, COVERAGE_RANKED);
        sl_cli_warn(
            "no text was held out, so --min-coverage is held against the text that was ranked, "
            "which flatters");
    }
    if (coverage >= least) return false;
    sl_cli_warn("%" PRId32 " ids cover %.4f%% of the %s tokens%s, less than --min-coverage %g%%%s",
                run->size, 100 * coverage, held_out ? "held-out" : "ranked",
                range_text(calibrate_ranking_interval(&run->ranking, NULL, run->size), interval),
                100 * least,
                run->options->allow_below ? "" : "; nothing is written (--allow-below writes)");
    return true;
}

static int finish(calibration *run, char *const *names, double started, specrt_error *err) {
    const calibrate_options *o = run->options;
    sl_corpus_warn(&run->stats);
    tell_speed(run, sl_measure_seconds() - started);
    if (calibrate_options_counts_only(o)) {
        sl_cli_info("%s tokens, domains: %d", sl_text_count(sl_counts_n_tokens(&run->counts)),
                    run->counts.n_domains);
        return output_counts(run, err) ? sl_cli_fail(err) : CLI_OK;
    }
    if (select_and_sweep(run, names, err)) return sl_cli_fail(err);
    run->seconds = sl_measure_seconds() - started;
    bool below = is_below(run);
    specrt_status status = output_all(run, !below || o->allow_below, err);
    if (status != SPECRT_STATUS_OK) return sl_cli_fail(err);
    return below ? CLI_BELOW : CLI_OK;
}

static int run_with(calibration *run, tokenizer **tok, model *m, char ***names) {
    const calibrate_options *o = run->options;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    double started = sl_measure_seconds();
    specrt_status status = sl_mpi_rank() == 0 ? output_check(o, &err) : SPECRT_STATUS_OK;
    if (!status) status = calibrate_options_domain_names(o, names, &err);
    if (!status) status = input_open_counts(o, tok, &run->counts, &err);
    run->tok = *tok;
    if (!status && o->model) {
        status = input_open_model(o, &run->counts.vocab, m, &run->head, &run->head_name, &err);
        run->has_head = status == SPECRT_STATUS_OK;
    }
    if (!status) status = check_early(run, m, &err);
    if (!status && sl_mpi_rank() == 0) status = output_check_ident(run, &err);
    status = sl_mpi_agree(status, &err);
    if (!status) status = count(run, *names, &err);
    if (status) return sl_cli_fail(&err);
    return sl_mpi_rank() == 0 ? finish(run, *names, started, &err) : CLI_OK;
}

static void free_names(const calibrate_options *o, char **names) {
    for (int i = 0; names && i < o->corpus.n; i++) free(names[i]);
    free(names);
}

static int calibrate(int argc, char **argv) {
    calibrate_options options;
    calibration run = {.options = &options};
    tokenizer *tok = NULL;
    model m = {0};
    char **names = NULL;
    int code = calibrate_options_parse(&options, argc, argv);
    if (code < 0) code = run_with(&run, &tok, &m, &names);
    free_names(&options, names);
    sweep_free(&run.sweep);
    calibrate_ranking_free(&run.ranking);
    sl_counts_free(&run.counts);
    free(run.weights);
    free(run.keep);
    free(run.speed.rates);
    sl_tokenizer_close(tok);
    sl_model_close(&m);
    calibrate_options_free(&options);
    return code;
}

int main(int argc, char **argv) {
    sl_mpi_begin(&argc, &argv);
    return sl_mpi_end(calibrate(argc, argv));
}
