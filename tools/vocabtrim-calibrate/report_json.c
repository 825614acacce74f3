/* report_json.c : the --json object and the bundle's provenance, which share most of their content.
 * The provenance leaves out what differs from run to run: seconds, memory, threads, shards. */
#include "calibrate.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/measure.h"

/* ---- shared parts ---- */

static json_object *tokenizer_json(const calibration *run) {
    const counts_vocab *v = &run->counts.vocab;
    json_object *o = json_object_new_object();
    json_put(o, "name", json_text(v->name));
    json_put(o, "sha256", json_hex(v->sha256, 32));
    json_put(o, "n_vocab", json_object_new_int(v->n_vocab));
    return o;
}

static json_object *domain_json(const calibration *run, int i) {
    const counts_domain *d = &run->counts.domains[i];
    double coverage[COUNTS_SPLITS];
    for (int s = 0; s < COUNTS_SPLITS; s++)
        calibrate_ranking_coverage_domain(&run->ranking, d, s, &run->size, 1, &coverage[s]);
    json_object *o = json_object_new_object();
    json_put(o, "name", json_text(d->name));
    json_put(o, "provenance", json_object_new_string(d->provenance));
    json_put(o, "weight", json_real(run->weights ? run->weights[i] : 1));
    json_put(o, "n_documents", json_whole(d->n_docs));
    json_put(o, "n_bytes", json_whole(d->n_bytes));
    json_put(o, "digest", json_hex64(d->digest));
    json_put(o, "n_tokens",
             json_whole(d->n_tokens[COUNTS_CALIBRATION] + d->n_tokens[COUNTS_HOLDOUT]));
    json_put(o, "n_tokens_holdout", json_whole(d->n_tokens[COUNTS_HOLDOUT]));
    json_put(o, "n_completions",
             json_whole(d->n_completions[COUNTS_CALIBRATION] + d->n_completions[COUNTS_HOLDOUT]));
    json_put(o, "coverage_calibration", json_real(coverage[COUNTS_CALIBRATION]));
    json_put(o, "coverage_holdout", json_real(coverage[COUNTS_HOLDOUT]));
    return o;
}

static json_object *selection_json(const calibration *run) {
    static const char *const rules[] = {"size", "mass", "min_count", "budget_mib"};
    const calibrate_options *options = run->options;
    json_object *o = json_object_new_object();
    json_put(o, "rule", json_object_new_string(rules[options->rule]));
    json_put(o, "value", json_real(options->rule == SELECT_SIZE ? run->size : options->rule_value));
    json_object *keep = json_object_new_array();
    for (int32_t i = 0; i < run->n_keep; i++)
        json_object_array_add(keep, json_object_new_int(run->keep[i]));
    json_put(o, "keep", keep);
    return o;
}

/* What both objects begin with. */
static json_object *common_json(const calibration *run) {
    const specrt_ranks_header *h = &run->ranking.header;
    json_object *o = json_object_new_object(), *domains = json_object_new_array();
    for (int i = 0; i < run->counts.n_domains; i++)
        json_object_array_add(domains, domain_json(run, i));
    json_put(o, "tool", json_object_new_string("vocabtrim-calibrate " SPECRT_VERSION_STRING));
    json_put(o, "tokenizer", tokenizer_json(run));
    json_put(o, "options", json_text(run->counts.options));
    json_put(o, "selection", selection_json(run));
    json_put(o, "n_tokens", json_whole(counts_n_tokens(&run->counts)));
    json_put(o, "n_selected", json_object_new_int(run->size));
    json_put(o, "n_forced", json_object_new_int(h->n_forced));
    json_put(o, "n_valid", json_object_new_int(h->n_valid));
    json_put(o, "coverage_calibration", json_real(calibration_coverage(run, COUNTS_CALIBRATION)));
    json_put(o, "coverage_holdout", json_real(calibration_coverage(run, COUNTS_HOLDOUT)));
    json_put(o, "domains", domains);
    return o;
}

/* ---- the bundle's provenance ---- */

char *calibrate_report_provenance(const calibration *run) {
    json_object *o = common_json(run);
    if (run->has_head) {
        json_object *head = json_object_new_object();
        json_put(head, "file", json_base_name(run->options->model));
        json_put(head, "tensor", json_text(run->head_name));
        json_put(head, "dtype", json_object_new_string(specrt_dtype_name(run->head.dtype)));
        json_put(head, "rows", json_object_new_int64(run->head.n_rows));
        json_put(head, "cols", json_object_new_int64(run->head.n_cols));
        json_put(o, "head", head);
    }
    return json_to_text(o);
}

/* ---- --json ---- */

static json_object *sweep_json(const calibration *run) {
    json_object *rows = json_object_new_array();
    for (int i = 0; i < run->sweep.n_rows; i++) {
        const sweep_row *row = &run->sweep.rows[i];
        json_object *o = json_object_new_object();
        json_put(o, "size", json_object_new_int(row->size));
        json_put(o, "coverage_calibration", json_real(row->coverage[COUNTS_CALIBRATION]));
        json_put(o, "coverage_holdout", json_real(row->coverage[COUNTS_HOLDOUT]));
        json_put(o, "tau", json_real(row->tau));
        json_put(o, "c", json_real(row->c));
        json_put(o, "mbsu", json_real(row->mbsu));
        json_object_array_add(rows, o);
    }
    return rows;
}

static json_object *speed_json(const calibration *run) {
    const speed_model *m = &run->speed;
    if (!m->n_rates) return NULL;
    json_object *o = json_object_new_object(), *rates = json_object_new_array();
    for (int i = 0; i < m->n_rates; i++) json_object_array_add(rates, json_real(m->rates[i]));
    json_put(o, "accept_rate", rates);
    json_put(o, "gamma", json_object_new_int(m->n_rates));
    json_put(o, "target_params", m->target_params > 0 ? json_real(m->target_params) : NULL);
    json_put(o, "draft_params", m->draft_params > 0 ? json_real(m->draft_params) : NULL);
    json_put(o, "d_draft", m->d_draft > 0 ? json_real(m->d_draft) : NULL);
    json_put(o, "params_source", m->target_params > 0 ? json_object_new_string(m->source) : NULL);
    return o;
}

/* Ids seen at least once, in either part. */
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
        json_object_array_add(examples, json_text(s->bad_examples[i]));
    json_put(o, "bytes_read", json_whole(s->bytes_read));
    json_put(o, "n_files", json_whole(s->n_files));
    json_put(o, "n_skipped_files", json_whole(s->n_skipped_files));
    json_put(o, "n_records", json_whole(s->n_records));
    json_put(o, "n_bad_records", json_whole(s->n_bad_records));
    json_put(o, "bad_examples", examples);
    json_put(o, "n_replaced", json_whole(s->n_replaced));
}

char *calibrate_report_json(const calibration *run) {
    json_object *o = common_json(run);
    char advice[CALIBRATE_ADVICE];
    calibrate_advice(advice);
    json_put(o, "n_distinct", json_whole(count_distinct(&run->counts)));
    json_put(o, "unseen_estimate", json_real(run->ranking.unseen));
    put_reading(run, o);
    json_put(o, "sweep", sweep_json(run));
    json_put(o, "speed", speed_json(run));
    json_put(o, "best_size",
             run->sweep.best < 0 ? NULL
                                 : json_object_new_int(run->sweep.rows[run->sweep.best].size));
    json_put(o, "advice", json_text(advice));
    json_put(o, "seconds", json_real(run->seconds));
    json_put(o, "peak_bytes", json_object_new_int64(measure_peak_bytes()));
    return json_to_text(o);
}
