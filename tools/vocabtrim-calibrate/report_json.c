/* report_json.c : the --json object and the bundle's provenance, which share most of their content.
 * The provenance leaves out what differs from run to run: seconds, memory, threads, shards. */
#include "calibrate.h"

#include <stdlib.h>
#include "base/json.h"
#include "base/measure.h"

/* ---- shared parts ---- */

static json_object *tokenizer_json(const calibration *run) {
    const counts_vocab *v = &run->counts.vocab;
    json_object *o = json_object_new_object();
    sl_json_put(o, "name", sl_json_text(v->name));
    sl_json_put(o, "sha256", sl_json_hex(v->sha256, 32));
    sl_json_put(o, "n_vocab", json_object_new_int(v->n_vocab));
    return o;
}

static void put_holdout(json_object *o, double share, coverage_range range) {
    sl_json_put(o, "coverage_holdout", sl_json_real(share));
    sl_json_put(o, "coverage_holdout_low", sl_json_real(range.low));
    sl_json_put(o, "coverage_holdout_high", sl_json_real(range.high));
}

static json_object *domain_json(const calibration *run, int i) {
    const counts_domain *d = &run->counts.domains[i];
    const char *language = sl_counts_language(&run->counts, d);
    json_object *o = json_object_new_object();
    sl_json_put(o, "name", sl_json_text(d->name));
    sl_json_put(o, "language", language ? json_object_new_string(language) : NULL);
    sl_json_put(o, "provenance", json_object_new_string(d->provenance));
    sl_json_put(o, "weight", sl_json_real(run->weights ? run->weights[i] : 1));
    sl_json_put(o, "n_documents", sl_json_whole(d->n_docs));
    sl_json_put(o, "n_bytes", sl_json_whole(d->n_bytes));
    sl_json_put(o, "digest", language ? NULL : sl_json_hex64(d->digest));
    sl_json_put(o, "n_tokens", sl_json_whole(d->n_tokens));
    sl_json_put(o, "n_tokens_holdout", sl_json_whole(calibrate_ranking_held_out(&run->ranking, d)));
    sl_json_put(o, "n_completions", sl_json_whole(d->n_completions));
    sl_json_put(o, "coverage_calibration",
                sl_json_real(calibration_coverage_domain(run, i, COVERAGE_RANKED)));
    put_holdout(o, calibration_coverage_domain(run, i, COVERAGE_HOLDOUT),
                calibrate_ranking_interval(&run->ranking, d, run->size));
    return o;
}

static json_object *selection_json(const calibration *run) {
    static const char *const rules[] = {"size", "mass", "min_count", "budget_mib", "accept_loss"};
    const calibrate_options *options = run->options;
    json_object *o = json_object_new_object();
    sl_json_put(o, "rule", json_object_new_string(rules[options->rule]));
    sl_json_put(o, "value",
                sl_json_real(options->rule == SELECT_SIZE ? run->size : options->rule_value));
    sl_json_put(o, "keep", sl_json_ids(run->keep, (size_t)run->n_keep));
    return o;
}

/* What both objects begin with. */
static json_object *common_json(const calibration *run) {
    const specrt_ranks_header *h = &run->ranking.header;
    json_object *o = json_object_new_object(), *domains = json_object_new_array();
    for (int i = 0; i < run->counts.n_domains; i++)
        json_object_array_add(domains, domain_json(run, i));
    sl_json_put(o, "tool", json_object_new_string("vocabtrim-calibrate " SPECRT_VERSION_STRING));
    sl_json_put(o, "tokenizer", tokenizer_json(run));
    sl_json_put(o, "options", sl_json_text(run->counts.options));
    sl_json_put(o, "selection", selection_json(run));
    sl_json_put(o, "n_tokens", sl_json_whole(sl_counts_n_tokens(&run->counts)));
    sl_json_put(o, "n_selected", json_object_new_int(run->size));
    sl_json_put(o, "n_forced", json_object_new_int(h->n_forced));
    sl_json_put(o, "n_valid", json_object_new_int(h->n_valid));
    sl_json_put(o, "coverage_calibration",
                sl_json_real(calibration_coverage(run, COVERAGE_RANKED)));
    put_holdout(o, calibration_coverage(run, COVERAGE_HOLDOUT),
                calibrate_ranking_interval(&run->ranking, NULL, run->size));
    sl_json_put(o, "domains", domains);
    return o;
}

/* ---- the bundle's provenance ---- */

char *calibrate_report_provenance(const calibration *run) {
    json_object *o = common_json(run);
    if (run->has_head) {
        json_object *head = json_object_new_object();
        sl_json_put(head, "file", sl_json_base_name(run->options->model));
        sl_json_put(head, "tensor", sl_json_text(run->head_name));
        sl_json_put(head, "dtype", json_object_new_string(specrt_dtype_name(run->head.dtype)));
        sl_json_put(head, "rows", json_object_new_int64(run->head.n_rows));
        sl_json_put(head, "cols", json_object_new_int64(run->head.n_cols));
        sl_json_put(o, "head", head);
    }
    return sl_json_to_text(o);
}

/* ---- --json ---- */

static json_object *sweep_json(const calibration *run) {
    json_object *rows = json_object_new_array();
    for (int i = 0; i < run->sweep.n_rows; i++) {
        const sweep_row *row = &run->sweep.rows[i];
        json_object *o = json_object_new_object();
        sl_json_put(o, "size", json_object_new_int(row->size));
        sl_json_put(o, "coverage_calibration", sl_json_real(row->coverage[COVERAGE_RANKED]));
        put_holdout(o, row->coverage[COVERAGE_HOLDOUT], row->holdout);
        sl_json_put(o, "tau", sl_json_real(row->tau));
        sl_json_put(o, "c", sl_json_real(row->c));
        sl_json_put(o, "mbsu", sl_json_real(row->mbsu));
        json_object_array_add(rows, o);
    }
    return rows;
}

static json_object *speed_json(const calibration *run) {
    const speed_model *m = &run->speed;
    if (!m->n_rates) return NULL;
    json_object *o = json_object_new_object(), *rates = json_object_new_array();
    for (int i = 0; i < m->n_rates; i++) json_object_array_add(rates, sl_json_real(m->rates[i]));
    sl_json_put(o, "accept_rate", rates);
    sl_json_put(o, "gamma", json_object_new_int(m->n_rates));
    sl_json_put(o, "target_params", m->target_params > 0 ? sl_json_real(m->target_params) : NULL);
    sl_json_put(o, "draft_params", m->draft_params > 0 ? sl_json_real(m->draft_params) : NULL);
    sl_json_put(o, "d_draft", m->d_draft > 0 ? sl_json_real(m->d_draft) : NULL);
    sl_json_put(o, "params_source",
                m->target_params > 0 ? json_object_new_string(m->source) : NULL);
    return o;
}

/* Ids seen at least once. */
static uint64_t count_distinct(const counts *c) {
    uint64_t n = 0;
    uint8_t *seen = (uint8_t *)calloc((size_t)c->vocab.n_vocab, 1);
    for (int i = 0; seen && i < c->n_domains; i++)
        for (int32_t j = 0; j < c->domains[i].n_rows; j++) {
            n += !seen[c->domains[i].rows[j].id];
            seen[c->domains[i].rows[j].id] = 1;
        }
    free(seen);
    return n;
}

static void put_reading(const calibration *run, json_object *o) {
    const corpus_stats *s = &run->stats;
    json_object *examples = json_object_new_array();
    for (int i = 0; i < CORPUS_EXAMPLES && s->bad_examples[i][0]; i++)
        json_object_array_add(examples, sl_json_text(s->bad_examples[i]));
    sl_json_put(o, "bytes_read", sl_json_whole(s->bytes_read));
    sl_json_put(o, "n_files", sl_json_whole(s->n_files));
    sl_json_put(o, "n_skipped_files", sl_json_whole(s->n_skipped_files));
    sl_json_put(o, "n_records", sl_json_whole(s->n_records));
    sl_json_put(o, "n_bad_records", sl_json_whole(s->n_bad_records));
    sl_json_put(o, "bad_examples", examples);
    sl_json_put(o, "n_replaced", sl_json_whole(s->n_replaced));
}

char *calibrate_report_json(const calibration *run) {
    json_object *o = common_json(run);
    char advice[CALIBRATE_ADVICE];
    calibrate_advice(advice);
    sl_json_put(o, "n_distinct", sl_json_whole(count_distinct(&run->counts)));
    sl_json_put(o, "unseen_estimate", sl_json_real(run->ranking.unseen));
    put_reading(run, o);
    sl_json_put(o, "sweep", sweep_json(run));
    sl_json_put(o, "speed", speed_json(run));
    sl_json_put(o, "best_size",
                run->sweep.best < 0 ? NULL
                                    : json_object_new_int(run->sweep.rows[run->sweep.best].size));
    sl_json_put(o, "advice", sl_json_text(advice));
    sl_json_put(o, "seconds", sl_json_real(run->seconds));
    sl_json_put(o, "peak_bytes", json_object_new_int64(sl_measure_peak_bytes()));
    return sl_json_to_text(o);
}
