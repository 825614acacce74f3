/* report_json.c : the --json object and the bundle's provenance, which share most of their content. The
 * provenance leaves out what differs from run to run: seconds, memory, threads, shards. */
#include "calibrate.h"

#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- small pieces ------------------------------------------------------------------------------ */

/* NaN is null; nine digits are more than a share needs and read better than seventeen. */
static json_object *real(double x) {
    char text[32];
    if (isnan(x)) return NULL;
    snprintf(text, sizeof text, "%.9g", x);
    return json_object_new_double_s(x, text);
}

static json_object *whole(uint64_t n) {
    return json_object_new_uint64(n);
}

static void put(json_object *to, const char *key, json_object *value) {
    json_object_object_add(to, key, value);
}

static json_object *hex(const uint8_t *bytes, int n) {
    char text[65];
    for (int i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_object_new_string(text);
}

static json_object *hex64(uint64_t x) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(x >> (56 - 8 * i));
    return hex(bytes, 8);
}

/* Paths of this machine are nobody else's business. */
static json_object *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return json_object_new_string(slash && slash[1] ? slash + 1 : path);
}

/* ---- shared parts ------------------------------------------------------------------------------- */

static json_object *tokenizer_json(const calibration *run) {
    const counts_vocab *v = &run->counts.vocab;
    json_object *o = json_object_new_object();
    put(o, "name", json_object_new_string(v->name));
    put(o, "sha256", hex(v->sha256, 32));
    put(o, "n_vocab", json_object_new_int(v->n_vocab));
    return o;
}

static json_object *domain_json(const calibration *run, int i) {
    const counts_domain *d = &run->counts.domains[i];
    double coverage[COUNTS_SPLITS];
    for (int s = 0; s < COUNTS_SPLITS; s++)
        ranking_coverage_domain(&run->ranking, d, s, &run->size, 1, &coverage[s]);
    json_object *o = json_object_new_object();
    put(o, "name", json_object_new_string(d->name));
    put(o, "provenance", json_object_new_string(d->provenance));
    put(o, "weight", real(run->weights ? run->weights[i] : 1));
    put(o, "n_documents", whole(d->n_docs));
    put(o, "n_bytes", whole(d->n_bytes));
    put(o, "digest", hex64(d->digest));
    put(o, "n_tokens", whole(d->n_tokens[COUNTS_CALIBRATION] + d->n_tokens[COUNTS_HOLDOUT]));
    put(o, "n_tokens_holdout", whole(d->n_tokens[COUNTS_HOLDOUT]));
    put(o, "n_completions",
        whole(d->n_completions[COUNTS_CALIBRATION] + d->n_completions[COUNTS_HOLDOUT]));
    put(o, "coverage_calibration", real(coverage[COUNTS_CALIBRATION]));
    put(o, "coverage_holdout", real(coverage[COUNTS_HOLDOUT]));
    return o;
}

static json_object *selection_json(const calibration *run) {
    static const char *const rules[] = {"size", "mass", "min_count", "budget_mib"};
    const calibrate_options *options = run->options;
    json_object *o = json_object_new_object();
    put(o, "rule", json_object_new_string(rules[options->rule]));
    put(o, "value", real(options->rule == SELECT_SIZE ? run->size : options->rule_value));
    json_object *keep = json_object_new_array();
    for (int32_t i = 0; i < run->n_keep; i++)
        json_object_array_add(keep, json_object_new_int(run->keep[i]));
    put(o, "keep", keep);
    return o;
}

/* What both objects begin with. */
static json_object *common_json(const calibration *run) {
    const specrt_ranks_header *h = &run->ranking.header;
    json_object *o = json_object_new_object(), *domains = json_object_new_array();
    for (int i = 0; i < run->counts.n_domains; i++)
        json_object_array_add(domains, domain_json(run, i));
    put(o, "tool", json_object_new_string("vocabtrim-calibrate " SPECRT_VERSION_STRING));
    put(o, "tokenizer", tokenizer_json(run));
    put(o, "options", json_object_new_string(run->counts.options));
    put(o, "selection", selection_json(run));
    put(o, "n_tokens", whole(counts_n_tokens(&run->counts)));
    put(o, "n_selected", json_object_new_int(run->size));
    put(o, "n_forced", json_object_new_int(h->n_forced));
    put(o, "n_valid", json_object_new_int(h->n_valid));
    put(o, "coverage_calibration", real(calibration_coverage(run, COUNTS_CALIBRATION)));
    put(o, "coverage_holdout", real(calibration_coverage(run, COUNTS_HOLDOUT)));
    put(o, "domains", domains);
    return o;
}

static char *to_text(json_object *o) {
    const char *text =
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = text ? strdup(text) : NULL;
    json_object_put(o);
    return copy;
}

/* ---- the bundle's provenance ---------------------------------------------------------------------- */

char *report_provenance(const calibration *run) {
    json_object *o = common_json(run);
    if (run->has_head) {
        json_object *head = json_object_new_object();
        put(head, "file", base_name(run->options->model));
        put(head, "tensor", json_object_new_string(run->head_name));
        put(head, "dtype", json_object_new_string(specrt_dtype_name(run->head.dtype)));
        put(head, "rows", json_object_new_int64(run->head.n_rows));
        put(head, "cols", json_object_new_int64(run->head.n_cols));
        put(o, "head", head);
    }
    return to_text(o);
}

/* ---- --json --------------------------------------------------------------------------------------- */

static json_object *sweep_json(const calibration *run) {
    json_object *rows = json_object_new_array();
    for (int i = 0; i < run->sweep.n_rows; i++) {
        const sweep_row *row = &run->sweep.rows[i];
        json_object *o = json_object_new_object();
        put(o, "size", json_object_new_int(row->size));
        put(o, "coverage_calibration", real(row->coverage[COUNTS_CALIBRATION]));
        put(o, "coverage_holdout", real(row->coverage[COUNTS_HOLDOUT]));
        put(o, "tau", real(row->tau));
        put(o, "c", real(row->c));
        put(o, "mbsu", real(row->mbsu));
        json_object_array_add(rows, o);
    }
    return rows;
}

static json_object *speed_json(const calibration *run) {
    const speed_model *m = &run->speed;
    if (!m->n_rates) return NULL;
    json_object *o = json_object_new_object(), *rates = json_object_new_array();
    for (int i = 0; i < m->n_rates; i++) json_object_array_add(rates, real(m->rates[i]));
    put(o, "accept_rate", rates);
    put(o, "gamma", json_object_new_int(m->n_rates));
    put(o, "target_params", m->target_params ? real(m->target_params) : NULL);
    put(o, "draft_params", m->draft_params ? real(m->draft_params) : NULL);
    put(o, "d_draft", m->d_draft ? real(m->d_draft) : NULL);
    put(o, "params_source", m->target_params ? json_object_new_string(m->source) : NULL);
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
        json_object_array_add(examples, json_object_new_string(s->bad_examples[i]));
    put(o, "bytes_read", whole(s->bytes_read));
    put(o, "n_files", whole(s->n_files));
    put(o, "n_skipped_files", whole(s->n_skipped_files));
    put(o, "n_records", whole(s->n_records));
    put(o, "n_bad_records", whole(s->n_bad_records));
    put(o, "bad_examples", examples);
    put(o, "n_replaced", whole(s->n_replaced));
}

char *report_json(const calibration *run) {
    json_object *o = common_json(run);
    put(o, "n_distinct", whole(count_distinct(&run->counts)));
    put_reading(run, o);
    put(o, "sweep", sweep_json(run));
    put(o, "speed", speed_json(run));
    put(o, "best_size",
        run->sweep.best < 0 ? NULL : json_object_new_int(run->sweep.rows[run->sweep.best].size));
    put(o, "seconds", real(run->seconds));
    put(o, "peak_bytes", json_object_new_int64(cli_peak_bytes()));
    return to_text(o);
}
