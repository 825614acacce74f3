/* calibrate.h : what the files of vocabtrim-calibrate share: the parsed command line, the state of
 * a run, and one prototype group per file. */
#ifndef VOCABTRIM_CALIBRATE_CALIBRATE_H
#define VOCABTRIM_CALIBRATE_CALIBRATE_H

#include "base/cli.h"
#include "corpus/corpus.h"
#include "counts/counts.h"
#include "model/model.h"
#include "select.h"
#include "base/shard.h"
#include "sweep.h"
#include "tokenizer/tokenizer.h"

enum { MAX_RATES = 64, MAX_DOMAINS = 64, DEFAULT_SIZE = 32768 };

/* ---- options.c : the command line ---- */

typedef struct calibrate_options {
    cli_common common;

    /* input */
    const char *tokenizer; /* NULL with --merge alone; "none": the corpus holds ids */
    cli_list corpus, merge;
    const char *messages, *field, *exclude, *format, *provenance, *domain;
    bool strict, by_language;
    int64_t id_bytes, n_vocab;
    const char *shard; /* "I/N"; NULL: from the scheduler */
    shard part;        /* and of MPI ranks */

    /* selection */
    int64_t size, min_count;       /* INT64_MIN: not given */
    double mass, budget_mib, loss; /* NaN: not given */
    double holdout;                /* NaN: not given, the default */
    int n_folds;                   /* 1: nothing is held out */
    const char *keep;
    cli_list weights;
    double decay; /* of --merge */
    bool balance;
    select_rule rule;
    double rule_value;
    bool rule_given;

    /* speed and gate */
    const char *model, *tensor, *accept_rate;
    double target_params, draft_params, d_draft; /* 0: from the model */
    double min_coverage;                         /* NaN: no gate */
    bool allow_below;

    /* output */
    const char *counts_out, *report;
    cli_list exports;
} calibrate_options;

/* calibrate_options_parse() : @return -1 to go on, else the exit code. */
int calibrate_options_parse(calibrate_options *o, int argc, char **argv);
void calibrate_options_free(calibrate_options *o);

/* calibrate_options_counts_only() : a map task, which writes counts and nothing else. */
bool calibrate_options_counts_only(const calibrate_options *o);

/* calibrate_options_domain_names() : names of the --corpus arguments: as many trailing path components as
 * tell them apart; "stdin" for "-"; --domain, or "corpus" beyond MAX_DOMAINS.
 *   out : [o->corpus.n] owned strings */
specrt_status calibrate_options_domain_names(const calibrate_options *o, char ***out,
                                             specrt_error *err);

/* calibrate_options_outputs() : every file that is to be written, NULL where none was asked for; once
 * parsed. @return how many. */
enum { CALIBRATE_MAX_OUTPUTS = 64 };
int calibrate_options_outputs(const calibrate_options *o, const char *paths[CALIBRATE_MAX_OUTPUTS]);

/* calibrate_options_keep() : ids of --keep (a list as 5,7-9, or a file of one, or the tokens of one byte for
 * "bytes"), ascending and distinct.
 *   tok : NULL: none, and "bytes" is refused */
specrt_status calibrate_options_keep(const calibrate_options *o, const tokenizer *tok,
                                     int32_t n_vocab, int32_t **ids, int32_t *n, specrt_error *err);

/* calibrate_options_weights() : f64 [c->n_domains], owned; NULL: none were given.
 *   names : [o->corpus.n] domain of each --corpus argument */
specrt_status calibrate_options_weights(const calibrate_options *o, const counts *c,
                                        char *const *names, double **out, specrt_error *err);

/* calibrate_options_rates() : --accept-rate into m->rates. */
specrt_status calibrate_options_rates(const calibrate_options *o, speed_model *m,
                                      specrt_error *err);

/* ---- count.c : corpus to counts, on all threads ---- */

/* count_corpus() : add what the corpus holds to `c`, whose vocabulary is set.
 *   tok   : NULL: the corpus holds ids
 *   names : [o->corpus.n] domain of each --corpus argument
 *   stats : of the reading */
specrt_status count_corpus(const calibrate_options *o, const tokenizer *tok, char *const *names,
                           counts *c, corpus_stats *stats, specrt_error *err);

/* ---- reduce.c ---- */

/* reduce_counts() : add the counts of all MPI ranks at rank 0. Collective, also for a rank that failed.
 *   status, err : of this rank so far
 * @return as sl_mpi_agree(). */
specrt_status reduce_counts(counts *c, specrt_status status, specrt_error *err);

/* ---- what a run found, for the reports ---- */

typedef struct calibration {
    const calibrate_options *options;
    const tokenizer *tok; /* NULL: ids, or counts alone */
    counts counts;
    double *weights; /* [counts.n_domains], or NULL */
    int32_t *keep;
    int32_t n_keep;
    calibrate_ranking ranking;
    speed_model speed;
    sweep sweep;
    int32_t size;       /* chosen */
    corpus_stats stats; /* zero with --merge alone */
    double seconds;
    bool has_head;
    specrt_head_desc head;
    const char *head_name;
} calibration;

/* calibration_coverage() : of the chosen size; COVERAGE_HOLDOUT may be NaN. */
double calibration_coverage(const calibration *run, int kind);

/* ---- languages.c ---- */

/* calibrate_balance() : multiply the weights so that every language, or every domain where counts are not by
 * language, has the tokens of the largest.
 *   weights : [c->n_domains] */
void calibrate_balance(const counts *c, double *weights);

/* calibration_coverage_domain() : the same for a domain; NaN where it has no text of that kind. */
double calibration_coverage_domain(const calibration *run, int domain, int kind);

/* calibration_worst_first() : domains that have documents, by rising coverage; owned. NULL: no memory. */
int *calibration_worst_first(const calibration *run, int *n);

/* calibrate_warn_languages() : names languages with a thousandth of the text that the list covers by 5 points
 * less than all text. */
void calibrate_warn_languages(const calibration *run);

/* ---- report.c, report_json.c, report_html.c ---- */

void calibrate_report_table(const calibration *run, FILE *out);

/* calibrate_advice() : which policy to compare with such a list, and where figures are, a line in out
 * [CALIBRATE_ADVICE]. */
enum { CALIBRATE_ADVICE = 768 };
void calibrate_advice(char *out);

/* calibrate_report_json() : the --json object as one line; calibrate_report_provenance() : what goes into
 * the bundle. Both owned; NULL: no memory. */
char *calibrate_report_json(const calibration *run);
char *calibrate_report_provenance(const calibration *run);

specrt_status calibrate_report_html(const calibration *run, out_file *out, specrt_error *err);

#endif
