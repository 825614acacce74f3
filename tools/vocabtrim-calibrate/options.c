/* options.c : the command line: the table, what may stand together, and the values with a grammar
 * of their own. */
#include "calibrate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "id_ranges.h"
#include "mpi_run.h"
#include "token_map.h"

#define NOT_GIVEN INT64_MIN
enum { MAX_OUTPUTS = 64 };

/* ---- the table ---- */

static int parse_table(calibrate_options *o, int argc, char **argv) {
    char exports[160];
    snprintf(exports, sizeof exports, "token map: %s", token_map_formats());
    const cli_option options[] = {
        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Input"},
        {"tokenizer", 0, "T", CLI_STRING, (void *)&o->tokenizer, 0, 0,
         "GGUF, tokenizer.json, tiktoken ranks; none: the corpus holds token ids"},
        {"corpus", 0, "PATH...", CLI_STRINGS, &o->corpus, 0, 0,
         "files and folders: text, code, .jsonl, .json, also .gz .zst; .bin .npy ids; - is stdin"},
        {"messages", 0, "WHICH", CLI_STRING, (void *)&o->messages, 0, 0,
         "of conversations: assistant (default: what the target would write) or all"},
        {"field", 0, "NAME", CLI_STRING, (void *)&o->field, 0, 0,
         "take this field of each JSON record"},
        {"provenance", 0, "WHO", CLI_STRING, (void *)&o->provenance, 0, 0,
         "who wrote the text: raw (default), target or draft; recorded"},
        {"domain", 0, "NAME", CLI_STRING, (void *)&o->domain, 0, 0,
         "count all of --corpus as one domain (default: one per argument)"},
        {"strict", 0, NULL, CLI_FLAG, &o->strict, 0, 0, "a bad record is an error, not skipped"},
        {"id-bytes", 0, "2|4", CLI_INT, &o->id_bytes, 0, 0, "width of the ids of .bin files"},
        {"n-vocab", 0, "N", CLI_INT, &o->n_vocab, 1, COUNTS_MAX_VOCAB,
         "vocabulary of --tokenizer none"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Size of the draft vocabulary, one of"},
        {"size", 0, "N", CLI_INT, &o->size, 0, 0,
         "exactly N ids (default 32768; a quarter of a vocabulary below 65536)"},
        {"mass", 0, "P", CLI_REAL, &o->mass, 1e-9, 1, "the fewest that cover share P of the text"},
        {"min-count", 0, "N", CLI_INT, &o->min_count, 1, 9e15, "those seen at least N times"},
        {"budget-mib", 0, "M", CLI_REAL, &o->budget_mib, 1e-6, 1e9,
         "as many rows of --model's head as fit M MiB"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Ranking"},
        {"keep", 0, "IDS|FILE", CLI_STRING, (void *)&o->keep, 0, 0,
         "always members: 5,7-9 or a file of ids; with --tokenizer none the terminators"},
        {"weights", 0, "FILE:W,...", CLI_STRINGS, &o->weights, 0, 0,
         "weight of a --corpus argument or domain (default 1)"},
        {"holdout", 0, "F", CLI_REAL, &o->holdout, 0, 0.9,
         "share of documents kept out of the ranking to measure coverage (default 0.05)"},
        {"min-coverage", 0, "P", CLI_REAL, &o->min_coverage, 0, 1,
         "fail with exit code 4 when hold-out coverage (without one, that of the ranked text) is "
         "below P"},
        {"allow-below", 0, NULL, CLI_FLAG, &o->allow_below, 0, 0,
         "write the outputs even below --min-coverage"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Model and speed estimate"},
        {"model", 0, "FILE", CLI_STRING, (void *)&o->model, 0, 0,
         "GGUF or safetensors whose head the list is for; recorded and checked"},
        {"tensor", 0, "NAME", CLI_STRING, (void *)&o->tensor, 0, 0, "its head's name, if unusual"},
        {"accept-rate", 0, "A1,A2,...", CLI_STRING, (void *)&o->accept_rate, 0, 0,
         "acceptance by draft position with the full vocabulary: estimate speed by size"},
        {"target-params", 0, "N", CLI_REAL, &o->target_params, 1, 1e15,
         "parameters of the target (default: --model's)"},
        {"draft-params", 0, "N", CLI_REAL, &o->draft_params, 1, 1e15,
         "of the drafter, embedding and full head included (default: EAGLE's for --model)"},
        {"d-draft", 0, "N", CLI_REAL, &o->d_draft, 1, 1e9,
         "columns of the draft head (default: --model's)"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Scale"},
        {"shard", 0, "I/N", CLI_STRING, (void *)&o->shard, 0, 0,
         "count batches I, I+N, ... (default with --counts-out: the scheduler's rank)"},
        {"counts-out", 0, "FILE", CLI_STRING, (void *)&o->counts_out, 0, 0,
         "write a count file; - is stdout"},
        {"merge", 0, "FILE...", CLI_STRINGS, &o->merge, 0, 0,
         "add count files, needs neither tokenizer nor corpus; - is stdin"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Output"},
        {"export", 0, "FORMAT=FILE", CLI_STRINGS, &o->exports, 0, 0, exports},
        {"report", 0, "FILE", CLI_STRING, (void *)&o->report, 0, 0, "HTML page with the curves"},
        {0}};
    const cli_tool tool = {
        "vocabtrim-calibrate",
        "vocabtrim-calibrate --tokenizer tokenizer.json --corpus chat.jsonl code/ --size 32768\n"
        "      -o model.specb",
        "Ranks a vocabulary by how often each token occurs in a corpus (FR-Spec, VocabTrim) and\n"
        "writes the ranking into a bundle, token maps for other engines, and a report.",
        "vocabtrim-calibrate --tokenizer T --corpus PATH... [options] -o BUNDLE", options};
    return cli_parse(&tool, argc, argv, &o->common, NULL);
}

/* ---- what may stand together ---- */

static int choose_rule(calibrate_options *o) {
    int given = 0;
    if (o->size != NOT_GIVEN) given++, o->rule = SELECT_SIZE, o->rule_value = (double)o->size;
    if (!isnan(o->mass)) given++, o->rule = SELECT_MASS, o->rule_value = o->mass;
    if (o->min_count != NOT_GIVEN)
        given++, o->rule = SELECT_MIN_COUNT, o->rule_value = (double)o->min_count;
    if (!isnan(o->budget_mib)) given++, o->rule = SELECT_BUDGET, o->rule_value = o->budget_mib;
    o->rule_given = given > 0;
    if (given > 1) return cli_usage("give one of --size, --mass, --min-count and --budget-mib");
    if (o->rule == SELECT_BUDGET && !o->model && given)
        return cli_usage("--budget-mib needs --model for the bytes of a row");
    return -1;
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c) {
    return !strcmp(text, a) || !strcmp(text, b) || (c && !strcmp(text, c));
}

static int check_words(const calibrate_options *o) {
    if (o->messages && !is_one_of(o->messages, "assistant", "all", NULL))
        return cli_usage("--messages: expected assistant or all, found '%s'", o->messages);
    if (o->provenance && !is_one_of(o->provenance, "raw", "target", "draft"))
        return cli_usage("--provenance: expected raw, target or draft, found '%s'", o->provenance);
    if (o->id_bytes != 0 && o->id_bytes != 2 && o->id_bytes != 4)
        return cli_usage("--id-bytes: expected 2 or 4, found %" PRId64, o->id_bytes);
    if (o->field && strpbrk(o->field, "\t\n"))
        return cli_usage("--field: a name without tabs and line ends is expected");
    if (o->domain && strpbrk(o->domain, "\t\n"))
        return cli_usage("--domain: a name without tabs and line ends is expected");
    return -1;
}

static int check_input(const calibrate_options *o) {
    bool ids = o->tokenizer && strcmp(o->tokenizer, "none") == 0;
    if (!o->corpus.n && !o->merge.n) return cli_usage("give --corpus, or --merge with count files");
    if (o->corpus.n && !o->tokenizer)
        return cli_usage("--corpus needs --tokenizer (none for files of token ids)");
    if (ids && o->corpus.n && !o->n_vocab) return cli_usage("--tokenizer none needs --n-vocab");
    if (o->n_vocab && !ids) return cli_usage("--n-vocab goes with --tokenizer none");
    if (!o->corpus.n && (o->messages || o->field || o->provenance || !isnan(o->holdout)))
        return cli_usage("--messages, --field, --provenance and --holdout are fixed in count "
                         "files; give them where the corpus is counted");
    bool stdin_corpus = false, stdin_merge = false;
    for (int i = 0; i < o->corpus.n; i++) stdin_corpus |= strcmp(o->corpus.items[i], "-") == 0;
    for (int i = 0; i < o->merge.n; i++) stdin_merge |= strcmp(o->merge.items[i], "-") == 0;
    if (stdin_corpus && stdin_merge)
        return cli_usage("--corpus - and --merge - cannot both read stdin");
    if (o->corpus.n > MAX_DOMAINS && o->weights.n)
        return cli_usage("--weights with more than %d --corpus arguments; give folders",
                         MAX_DOMAINS);
    return -1;
}

static bool is_stdout(const char *path) {
    return path && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0);
}

static int check_output(const calibrate_options *o) {
    const char *paths[MAX_OUTPUTS] = {o->common.output, o->counts_out, o->report};
    int n = 3, n_stdout = o->common.json;
    for (int i = 0; i < o->exports.n; i++) {
        const char *equals = strchr(o->exports.items[i], '=');
        if (!equals || equals == o->exports.items[i] || !equals[1])
            return cli_usage("--export: expected FORMAT=FILE, found '%s'", o->exports.items[i]);
        if (n == MAX_OUTPUTS) return cli_usage("--export: %d at most", MAX_OUTPUTS - 3);
        paths[n++] = equals + 1;
    }
    for (int i = 0; i < n; i++) n_stdout += is_stdout(paths[i]);
    if (n_stdout > 1) return cli_usage("more than one output goes to stdout");
    int code = cli_distinct(paths, n);
    if (code >= 0) return code;
    if (!o->common.output && !o->counts_out && !o->report && !o->exports.n && !o->common.json)
        return cli_usage("nothing to write; give -o, --counts-out, --export, --report or --json");
    return -1;
}

static int check_speed(const calibrate_options *o) {
    int given = (o->target_params > 0) + (o->draft_params > 0) + (o->d_draft > 0);
    if (given && !o->accept_rate)
        return cli_usage("--target-params, --draft-params and --d-draft go with --accept-rate");
    if (given && given < 3 && !o->model)
        return cli_usage("without --model give all of --target-params, --draft-params, --d-draft");
    if (o->tensor && !o->model) return cli_usage("--tensor goes with --model");
    return -1;
}

/* ---- shards ---- */

static int choose_shard(calibrate_options *o) {
    int code = -1;
    o->part = (shard){0, 1};
    /* A task that writes a bundle means all of the corpus, one that writes counts its share. */
    if (o->shard)
        code = shard_parse(o->shard, &o->part);
    else if (mpi_n_ranks() == 1 && options_counts_only(o) && o->corpus.n)
        code = shard_from_scheduler(&o->part);
    if (code < 0 && o->shard && o->part.n > 1 && !options_counts_only(o))
        cli_warn("the outputs will hold shard %s of the corpus only; --counts-out and --merge "
                 "put shards together",
                 o->shard);
    /* Ranks share what is left to this run. */
    o->part.index += o->part.n * mpi_rank();
    o->part.n *= mpi_n_ranks();
    return code;
}

bool options_counts_only(const calibrate_options *o) {
    return o->counts_out && !o->common.output && !o->report && !o->exports.n && !o->common.json;
}

int options_parse(calibrate_options *o, int argc, char **argv) {
    *o = (calibrate_options){.size = NOT_GIVEN,
                             .min_count = NOT_GIVEN,
                             .mass = NAN,
                             .budget_mib = NAN,
                             .holdout = NAN,
                             .min_coverage = NAN,
                             .rule_value = DEFAULT_SIZE};
    int code = parse_table(o, argc, argv);
    int (*const checks[])(const calibrate_options *) = {check_words, check_input, check_output,
                                                        check_speed};
    if (code < 0) code = choose_rule(o);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && code < 0; i++) code = checks[i](o);
    if (code < 0) code = choose_shard(o);
    if (!o->messages) o->messages = "assistant";
    if (!o->provenance) o->provenance = "raw";
    if (isnan(o->holdout)) o->holdout = 0.05;
    return code;
}

void options_free(calibrate_options *o) {
    cli_list_free(&o->corpus);
    cli_list_free(&o->merge);
    cli_list_free(&o->weights);
    cli_list_free(&o->exports);
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

/* Lengthen equal names of different paths until they differ or the paths end. */
static bool tell_apart(const calibrate_options *o, char **names, int *parts) {
    bool changed = false;
    bool *longer = (bool *)calloc((size_t)o->corpus.n, sizeof *longer);
    for (int i = 0; longer && i < o->corpus.n; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0 &&
                strcmp(o->corpus.items[i], o->corpus.items[j]) != 0)
                longer[i] = longer[j] = true;
    for (int i = 0; longer && i < o->corpus.n; i++) {
        if (!longer[i]) continue;
        char *name = tail_of(o->corpus.items[i], ++parts[i]);
        if (!name) break;
        changed = changed || strcmp(name, names[i]) != 0;
        free(names[i]);
        names[i] = name;
    }
    free(longer);
    return changed;
}

specrt_status options_domain_names(const calibrate_options *o, char ***out, specrt_error *err) {
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
    while (ok && !one && tell_apart(o, names, parts)) {
    }
    free(parts);
    *out = names;
    if (!ok) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    if (one && !o->domain)
        cli_info("%zu corpus arguments are counted as one domain; give folders or --domain to "
                 "tell them apart",
                 n);
    return SPECRT_STATUS_OK;
}

/* ---- values with a grammar ---- */

specrt_status options_keep(const calibrate_options *o, int32_t n_vocab, int32_t **ids, int32_t *n,
                           specrt_error *err) {
    id_list list;
    *ids = NULL;
    *n = 0;
    if (!o->keep) return SPECRT_STATUS_OK;
    TRY(id_ranges_read("--keep", o->keep, n_vocab, &list, err));
    *ids = list.ids;
    *n = (int32_t)list.n;
    return SPECRT_STATUS_OK;
}

/* The domain that a FILE of --weights means; -1: none. */
static int weight_domain(const calibrate_options *o, const counts *c, char *const *names,
                         const char *file) {
    for (int i = 0; i < o->corpus.n; i++)
        if (strcmp(o->corpus.items[i], file) == 0) file = names[i];
    for (int i = 0; i < c->n_domains; i++)
        if (strcmp(c->domains[i].name, file) == 0) return i;
    return -1;
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
    int domain = weight_domain(o, c, names, item);
    if (domain < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--weights: '%s' is no --corpus argument and no domain", item);
    weights[domain] = weight;
    return SPECRT_STATUS_OK;
}

static specrt_status set_weights(const calibrate_options *o, const counts *c, char *const *names,
                                 double *weights, specrt_error *err) {
    double sum = 0;
    for (int i = 0; i < c->n_domains; i++) weights[i] = 1;
    for (int i = 0; i < o->weights.n; i++) {
        char *text = strdup(o->weights.items[i]), *rest = NULL;
        specrt_status status =
            text ? SPECRT_STATUS_OK
                 : specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
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

specrt_status options_weights(const calibrate_options *o, const counts *c, char *const *names,
                              double **out, specrt_error *err) {
    *out = NULL;
    if (!o->weights.n) return SPECRT_STATUS_OK;
    double *weights = (double *)calloc((size_t)c->n_domains + 1, sizeof *weights);
    if (!weights) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    specrt_status status = set_weights(o, c, names, weights, err);
    if (status != SPECRT_STATUS_OK) return free(weights), status;
    *out = weights;
    return SPECRT_STATUS_OK;
}

specrt_status options_rates(const calibrate_options *o, speed_model *m, specrt_error *err) {
    if (!o->accept_rate) return SPECRT_STATUS_OK;
    m->rates = (double *)calloc(MAX_RATES, sizeof *m->rates);
    if (!m->rates) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
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
