/* options.c : the command line: the table, what may stand together, and the values with a grammar
 * of their own. */
#include "calibrate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "counts/id_ranges.h"
#include "counts/input.h"
#include "model/token_map.h"

#define NOT_GIVEN       INT64_MIN
#define DEFAULT_HOLDOUT 0.1

/* ---- the table ---- */

static int parse_table(calibrate_options *o, int argc, char **argv) {
    char exports[160];
    snprintf(exports, sizeof exports, "token map: %s", sl_token_map_formats());
    const cli_option options[] = {
        sl_cli_heading("Input"),
        COUNTS_INPUT_TEXT(*o),
        sl_cli_string("provenance", "WHO", &o->provenance,
                      "who wrote the text: raw (default), target or draft; recorded"),
        sl_cli_string("domain", "NAME", &o->domain,
                      "count all of --corpus as one domain (default: one per argument)"),
        sl_cli_flag("by-language", &o->by_language,
                    "a domain for each script that documents are written in: NAME/Latin, NAME/Han"),
        COUNTS_INPUT_IDS(*o),

        sl_cli_heading("Size of the draft vocabulary, one of"),
        sl_cli_int("size", "N", &o->size, 0, 0,
                   "exactly N ids (default 32768; a quarter of a vocabulary below 65536)"),
        sl_cli_real("mass", "P", &o->mass, 1e-9, 1,
                    "the fewest that cover share P of held-out text"),
        sl_cli_real("accept-loss", "P", &o->loss, 1e-4, 0.5,
                    "the fewest that lose at most share P of the accept length in every domain, "
                    "estimated from held-out text and --accept-rate (0.8,0.8,0.8)"),
        sl_cli_int("min-count", "N", &o->min_count, 1, 9e15, "those seen at least N times"),
        sl_cli_real("budget-mib", "M", &o->budget_mib, 1e-6, 1e9,
                    "as many rows of --model's head as fit M MiB"),

        sl_cli_heading("Ranking"),
        sl_cli_string(
            "keep", "IDS|FILE", &o->keep,
            "always members: 5,7-9 or a file; bytes: the tokens of one byte, by which any text "
            "can be drafted (so with --accept-loss); with --tokenizer none the terminators"),
        sl_cli_strings("weights", "FILE:W,...", &o->weights,
                       "weight of a --corpus argument or domain (default 1)"),
        sl_cli_real("decay", "F", &o->decay, 1e-6, 1,
                    "multiply --merge's counts by F first, to follow traffic (1)"),
        sl_cli_flag("balance", &o->balance,
                    "the same share for each language of --by-language, else for each domain"),
        sl_cli_real("holdout", "F", &o->holdout, 0, 0.5,
                    "share of records tested at a time, by the list of the others (default 0.1; "
                    "0: none, else 0.05 to 0.5)"),
        sl_cli_real("min-coverage", "P", &o->min_coverage, 0, 1,
                    "fail with exit code 4 when hold-out coverage (else the text's) is below P"),
        sl_cli_flag("allow-below", &o->allow_below, "write the outputs even below --min-coverage"),

        sl_cli_heading("Model and speed estimate"),
        sl_cli_string("model", "FILE", &o->model,
                      "GGUF or safetensors whose head the list is for; recorded and checked"),
        sl_cli_string("tensor", "NAME", &o->tensor, "its head's name, if unusual"),
        sl_cli_string(
            "accept-rate", "A1,A2,...", &o->accept_rate,
            "acceptance by draft position with the full vocabulary: estimate speed by size"),
        sl_cli_real("target-params", "N", &o->target_params, 1, 1e15,
                    "parameters of the target (default: --model's)"),
        sl_cli_real(
            "draft-params", "N", &o->draft_params, 1, 1e15,
            "of the drafter, embedding and full head included (default: EAGLE's for --model)"),
        sl_cli_real("d-draft", "N", &o->d_draft, 1, 1e9,
                    "columns of the draft head (default: --model's)"),

        sl_cli_heading("Scale"),
        sl_cli_string(
            "shard", "I/N", &o->shard,
            "count batches I, I+N, ... (default with --counts-out: the scheduler's rank)"),
        sl_cli_string("counts-out", "FILE", &o->counts_out, "write a count file; - is stdout"),
        sl_cli_strings("merge", "FILE...", &o->merge,
                       "add count files, needs neither tokenizer nor corpus; - is stdin"),

        sl_cli_heading("Output"),
        sl_cli_strings("export", "FORMAT=FILE", &o->exports, exports),
        sl_cli_string("report", "FILE", &o->report, "HTML page with the curves"),
        {0}};
    const cli_tool tool = {
        "vocabtrim-calibrate",
        "vocabtrim-calibrate --tokenizer tokenizer.json --corpus chat.jsonl code/ --size 32768\n"
        "      -o model.specb",
        "Ranks a vocabulary by how often each token occurs in a corpus (FR-Spec, VocabTrim) and\n"
        "writes the ranking into a bundle, token maps for other engines, and a report.",
        "vocabtrim-calibrate --tokenizer T --corpus PATH... [options] -o BUNDLE", options};
    return sl_cli_parse(&tool, argc, argv, &o->common, NULL);
}

/* ---- what may stand together ---- */

static int choose_rule(calibrate_options *o) {
    int given = 0;
    if (o->size != NOT_GIVEN) given++, o->rule = SELECT_SIZE, o->rule_value = (double)o->size;
    if (!isnan(o->mass)) given++, o->rule = SELECT_MASS, o->rule_value = o->mass;
    if (o->min_count != NOT_GIVEN)
        given++, o->rule = SELECT_MIN_COUNT, o->rule_value = (double)o->min_count;
    if (!isnan(o->budget_mib)) given++, o->rule = SELECT_BUDGET, o->rule_value = o->budget_mib;
    if (!isnan(o->loss)) given++, o->rule = SELECT_LOSS, o->rule_value = o->loss;
    o->rule_given = given > 0;
    if (given > 1)
        return sl_cli_usage(
            "give one of --size, --mass, --accept-loss, --min-count and --budget-mib");
    if (o->decay < 1 && !o->merge.n) return sl_cli_usage("--decay goes with --merge");
    if (o->rule == SELECT_BUDGET && !o->model && given)
        return sl_cli_usage("--budget-mib needs --model for the bytes of a row");
    return -1;
}

/* What --accept-loss goes by where nothing else is said. */
static void fill_loss(calibrate_options *o) {
    if (o->rule != SELECT_LOSS) return;
    if (!o->accept_rate) o->accept_rate = "0.8,0.8,0.8";
    if (!o->keep && o->tokenizer && strcmp(o->tokenizer, "none") != 0) o->keep = "bytes";
}

static int check_words(const calibrate_options *o) {
    const char *who = o->provenance;
    if (who && strcmp(who, "raw") != 0 && strcmp(who, "target") != 0 && strcmp(who, "draft") != 0)
        return sl_cli_usage("--provenance: expected raw, target or draft, found '%s'", who);
    if (o->domain && strpbrk(o->domain, "\t\n"))
        return sl_cli_usage("--domain: a name without tabs and line ends is expected");
    return -1;
}

static int check_input(const calibrate_options *o) {
    bool ids = o->tokenizer && strcmp(o->tokenizer, "none") == 0;
    const counts_input input = COUNTS_INPUT(*o);
    int code = sl_counts_input_check(&input);
    if (code >= 0) return code;
    if (o->n_vocab && !ids) return sl_cli_usage("--n-vocab goes with --tokenizer none");
    if (ids && o->by_language)
        return sl_cli_usage("--by-language needs text: expected a --tokenizer, found none");
    if (!o->corpus.n && (o->messages || o->field || o->format || o->provenance || o->by_language ||
                         !isnan(o->holdout)))
        return sl_cli_usage(
            "--messages, --field, --format, --provenance, --by-language and --holdout are "
            "fixed in count files; give them where the corpus is counted");
    if (o->holdout > 0 && o->holdout < 1.0 / COUNTS_MAX_FOLDS)
        return sl_cli_usage("--holdout: expected 0, or 0.05 to 0.5, found %g", o->holdout);
    if (o->corpus.n > MAX_DOMAINS && o->weights.n)
        return sl_cli_usage("--weights with more than %d --corpus arguments; give folders",
                            MAX_DOMAINS);
    return -1;
}

int calibrate_options_outputs(const calibrate_options *o,
                              const char *paths[CALIBRATE_MAX_OUTPUTS]) {
    int n = 0;
    paths[n++] = o->common.output;
    paths[n++] = o->counts_out;
    paths[n++] = o->report;
    for (int i = 0; i < o->exports.n; i++) paths[n++] = strchr(o->exports.items[i], '=') + 1;
    return n;
}

static int check_output(const calibrate_options *o) {
    const char *paths[CALIBRATE_MAX_OUTPUTS];
    for (int i = 0; i < o->exports.n; i++) {
        const char *equals = strchr(o->exports.items[i], '=');
        if (!equals || equals == o->exports.items[i] || !equals[1])
            return sl_cli_usage("--export: expected FORMAT=FILE, found '%s'", o->exports.items[i]);
    }
    if (o->exports.n > CALIBRATE_MAX_OUTPUTS - 3)
        return sl_cli_usage("--export: %d at most", CALIBRATE_MAX_OUTPUTS - 3);
    int code = sl_cli_one_stdout(&o->common, paths, calibrate_options_outputs(o, paths));
    if (code >= 0) return code;
    if (!o->common.output && !o->counts_out && !o->report && !o->exports.n && !o->common.json)
        return sl_cli_usage(
            "nothing to write; give -o, --counts-out, --export, --report or --json");
    return -1;
}

static int check_speed(const calibrate_options *o) {
    int given = (o->target_params > 0) + (o->draft_params > 0) + (o->d_draft > 0);
    if (given && !o->accept_rate)
        return sl_cli_usage("--target-params, --draft-params and --d-draft go with --accept-rate");
    if (given && given < 3 && !o->model)
        return sl_cli_usage(
            "without --model give all of --target-params, --draft-params, --d-draft");
    if (o->tensor && !o->model) return sl_cli_usage("--tensor goes with --model");
    return -1;
}

bool calibrate_options_counts_only(const calibrate_options *o) {
    return o->counts_out && !o->common.output && !o->report && !o->exports.n && !o->common.json;
}

int calibrate_options_parse(calibrate_options *o, int argc, char **argv) {
    *o = (calibrate_options){.size = NOT_GIVEN,
                             .min_count = NOT_GIVEN,
                             .mass = NAN,
                             .loss = NAN,
                             .decay = 1,
                             .budget_mib = NAN,
                             .holdout = NAN,
                             .min_coverage = NAN,
                             .rule_value = DEFAULT_SIZE};
    int code = parse_table(o, argc, argv);
    int (*const checks[])(const calibrate_options *) = {check_words, check_input, check_output,
                                                        check_speed};
    if (code < 0) code = choose_rule(o);
    fill_loss(o);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && code < 0; i++) code = checks[i](o);
    if (code < 0)
        code = sl_shard_choose(o->shard, calibrate_options_counts_only(o), o->corpus.n > 0,
                               "outputs", &o->part);
    if (!o->messages) o->messages = "assistant";
    if (!o->provenance) o->provenance = "raw";
    if (isnan(o->holdout)) o->holdout = DEFAULT_HOLDOUT;
    o->n_folds = o->holdout > 0 ? (int)lround(1 / o->holdout) : 1;
    return code;
}

void calibrate_options_free(calibrate_options *o) {
    sl_cli_list_free(&o->corpus);
    sl_cli_list_free(&o->merge);
    sl_cli_list_free(&o->weights);
    sl_cli_list_free(&o->exports);
}

/* ---- names of domains ---- */

/* The last `parts` components of a path, without slashes at either end; owned. */
static char *tail_of(const char *path, int parts) {
    if (strcmp(path, "-") == 0) return strdup("stdin");
    const char *end = path + strlen(path), *start;
    while (end > path && end[-1] == '/') end--;
    for (start = end; start > path; start--)
        if (start[-1] == '/' && --parts == 0) break;
    while (start < end && *start == '/') start++;
    char *name = start < end ? strndup(start, (size_t)(end - start)) : strdup("root");
    for (char *p = name; p && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f) *p = '?';
    return name;
}

/* Lengthen equal names of different paths; *changed while they may differ yet. false: no memory. */
static bool tell_apart(const calibrate_options *o, char **names, int *parts, bool *changed) {
    bool *longer = (bool *)calloc((size_t)o->corpus.n, sizeof *longer), ok = longer != NULL;
    *changed = false;
    for (int i = 0; ok && i < o->corpus.n; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0 &&
                strcmp(o->corpus.items[i], o->corpus.items[j]) != 0)
                longer[i] = longer[j] = true;
    for (int i = 0; ok && i < o->corpus.n; i++) {
        char *name = longer[i] ? tail_of(o->corpus.items[i], ++parts[i]) : NULL;
        ok = name || !longer[i];
        if (!name) continue;
        *changed = *changed || strcmp(name, names[i]) != 0;
        free(names[i]);
        names[i] = name;
    }
    free(longer);
    return ok;
}

specrt_status calibrate_options_domain_names(const calibrate_options *o, char ***out,
                                             specrt_error *err) {
    size_t n = (size_t)o->corpus.n;
    const char *one = o->domain ? o->domain : n > MAX_DOMAINS ? "corpus" : NULL;
    char **names = (char **)calloc(n + 1, sizeof *names);
    int *parts = (int *)calloc(n + 1, sizeof *parts);
    bool ok = names && parts;
    for (size_t i = 0; ok && i < n; i++) {
        parts[i] = 1;
        names[i] = one ? strdup(one) : tail_of(o->corpus.items[i], 1);
        ok = names[i] != NULL;
    }
    for (bool changed = !one; ok && changed;) ok = tell_apart(o, names, parts, &changed);
    free(parts);
    *out = names;
    if (!ok) return sl_error_no_memory(err, NULL);
    if (one && !o->domain)
        sl_cli_info("%zu corpus arguments are counted as one domain; give folders or --domain to "
                    "tell them apart",
                    n);
    return SPECRT_STATUS_OK;
}

/* ---- values with a grammar ---- */

specrt_status calibrate_options_keep(const calibrate_options *o, const tokenizer *tok,
                                     int32_t n_vocab, int32_t **ids, int32_t *n,
                                     specrt_error *err) {
    id_list list;
    *ids = NULL;
    *n = 0;
    if (!o->keep) return SPECRT_STATUS_OK;
    if (strcmp(o->keep, "bytes") == 0 && !tok)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--keep bytes: expected a --tokenizer, which knows their ids");
    if (strcmp(o->keep, "bytes") == 0) return sl_tokenizer_byte_tokens(tok, ids, n, err);
    TRY(sl_id_ranges_read("--keep", o->keep, n_vocab, &list, err));
    *ids = list.ids;
    *n = (int32_t)list.n;
    return SPECRT_STATUS_OK;
}

/* Whether a FILE of --weights, as domains are named, means a domain: itself, or all languages of it. */
static bool is_meant(const counts *c, const counts_domain *d, const char *name) {
    size_t n = strlen(name);
    if (strcmp(d->name, name) == 0) return true;
    return sl_counts_language(c, d) && strncmp(d->name, name, n) == 0 &&
           strcmp(d->name + n + 1, sl_counts_language(c, d)) == 0;
}

static specrt_status set_weight(const calibrate_options *o, const counts *c, char *const *names,
                                char *item, double *weights, specrt_error *err) {
    char *colon = strrchr(item, ':'), *end = NULL;
    double weight = colon ? strtod(colon + 1, &end) : NAN;
    if (!colon || end == colon + 1 || *end || !(weight >= 0 && weight <= 1e6))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--weights: expected FILE:W with W from 0 to 1e6, found '%s'",
                                item);
    *colon = '\0';
    const char *name = item;
    bool found = false;
    for (int i = 0; i < o->corpus.n; i++)
        if (strcmp(o->corpus.items[i], item) == 0) name = names[i];
    for (int i = 0; i < c->n_domains; i++)
        if (is_meant(c, &c->domains[i], name)) weights[i] = weight, found = true;
    if (found) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--weights: '%s' is no --corpus argument and no domain", item);
}

static specrt_status set_weights(const calibrate_options *o, const counts *c, char *const *names,
                                 double *weights, specrt_error *err) {
    double sum = 0;
    for (int i = 0; i < c->n_domains; i++) weights[i] = 1;
    for (int i = 0; i < o->weights.n; i++) {
        char *text = strdup(o->weights.items[i]), *rest = NULL;
        specrt_status status = text ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
        for (char *item = text ? strtok_r(text, ",", &rest) : NULL; item && !status;
             item = strtok_r(NULL, ",", &rest))
            status = set_weight(o, c, names, item, weights, err);
        free(text);
        if (status != SPECRT_STATUS_OK) return status;
    }
    for (int i = 0; i < c->n_domains; i++) sum += weights[i];
    return sum > 0 ? SPECRT_STATUS_OK
                   : specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                      "--weights: at least one must be above 0");
}

specrt_status calibrate_options_weights(const calibrate_options *o, const counts *c,
                                        char *const *names, double **out, specrt_error *err) {
    *out = NULL;
    if (!o->weights.n && !o->balance) return SPECRT_STATUS_OK;
    double *weights = (double *)calloc((size_t)c->n_domains + 1, sizeof *weights);
    if (!weights) return sl_error_no_memory(err, NULL);
    specrt_status status = set_weights(o, c, names, weights, err);
    if (status != SPECRT_STATUS_OK) return free(weights), status;
    if (o->balance) calibrate_balance(c, weights);
    *out = weights;
    return SPECRT_STATUS_OK;
}

specrt_status calibrate_options_rates(const calibrate_options *o, speed_model *m,
                                      specrt_error *err) {
    if (!o->accept_rate) return SPECRT_STATUS_OK;
    m->rates = (double *)calloc(MAX_RATES, sizeof *m->rates);
    if (!m->rates) return sl_error_no_memory(err, NULL);
    for (const char *p = o->accept_rate;;) {
        char *end;
        double rate = strtod(p, &end);
        bool good = end > p && rate >= 0 && rate <= 1 && (*end == ',' || !*end);
        if (!good || m->n_rates == MAX_RATES)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "--accept-rate: expected up to %d shares from 0 to 1 as in "
                                    "0.8,0.7, found '%.40s'",
                                    MAX_RATES, p);
        m->rates[m->n_rates++] = rate;
        if (!*end) return SPECRT_STATUS_OK;
        p = end + 1;
    }
}
