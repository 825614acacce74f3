/* hnsw-build : from a head to an index that finds the rows with the greatest products.
 *
 *     model -> rows.c (which rows) -> index.c (the graph) -> recall.c (ef, the gate) -> bundle
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "formats/bundle_write.h"
#include "base/cli.h"
#include "base/error.h"
#include "base/measure.h"
#include "model/head_check.h"
#include "index.h"
#include "base/io.h"
#include "base/json.h"
#include "model/head_rows.h"
#include "model/model.h"
#include "base/progress.h"
#include "recall.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

enum { METRIC_AUTO = 2, SAMPLE_ROWS = 8192, SAMPLE_EF = 64, SHOWN_EF = 512 };

typedef struct hnsw_options {
    cli_common common;
    const char *model, *tensor, *vectors, *metric, *trace;
    int64_t m, ef_construction, n_queries;
    double min_recall;
    bool allow_below;
    int metric_value;      /* INDEX_PRODUCTS, INDEX_DISTANCES, METRIC_AUTO */
    int32_t vectors_value; /* as specrt_hnsw_header.vectors */
} hnsw_options;

typedef struct run {
    const hnsw_options *options;
    model model;
    const char *tensor;
    specrt_ident ident;    /* with -o */
    specrt_head_desc rows; /* what is indexed and scored: the head, or its rows as f16 */
    uint16_t *decoded;     /* of those, or NULL */
    specrt_head *head;
    int32_t *ids, n_ids, n_left_out[3];
    hnsw_recall_set set;
    hnsw_index index;
    void *section;
    size_t n_section;
    hnsw_recall_step steps[RECALL_MAX_STEPS];
    int n_steps, chosen;
    double sample_recall[2]; /* by metric; 0: not tried */
    double seconds, seconds_build;
} run;

/* ---- options ---- */

static int choose(const char *flag, const char *text, const char *const *names) {
    char expected[96] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0) return i;
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s%s", i ? ", " : "", names[i]);
    }
    sl_cli_usage("%s: expected one of %s, found '%s'", flag, expected, text);
    return -1;
}

static int check_options(hnsw_options *o) {
    static const char *const metrics[] = {"ip", "augmented-l2", "auto", NULL};
    static const char *const vectors[] = {"none", "int8", "f16", NULL};
    static const int32_t types[] = {SPECRT_HNSW_NONE, SPECRT_HNSW_INT8, SPECRT_HNSW_F16};
    if (!o->model)
        return sl_cli_usage("expected --model FILE, a GGUF or safetensors with the target's head");
    if (!o->common.output && !o->common.json) return sl_cli_usage("expected -o FILE or --json");
    o->metric_value = choose("--metric", o->metric, metrics);
    int kind = choose("--vectors", o->vectors, vectors);
    if (o->metric_value < 0 || kind < 0) return CLI_USAGE;
    o->vectors_value = types[kind];
    return -1;
}

static int parse(hnsw_options *o, int argc, char **argv) {
    *o = (hnsw_options){.vectors = "int8",
                        .metric = "auto",
                        .m = 32,
                        .ef_construction = 256,
                        .n_queries = 512,
                        .min_recall = 0.95};
    const cli_option options[] = {
        sl_cli_string("model", "FILE", &o->model, "GGUF or safetensors of the target"),
        sl_cli_string("tensor", "NAME", &o->tensor, "name of the head (default: the usual names)"),
        sl_cli_int("m", "N", &o->m, 2, SPECRT_HNSW_MAX_M, "links per node (default 32)"),
        sl_cli_int("ef-construction", "N", &o->ef_construction, 8, SPECRT_HNSW_MAX_EF,
                   "candidates for the links of a new node (default 256)"),
        sl_cli_string(
            "vectors", "WHAT", &o->vectors,
            "vectors in the bundle: int8 (default), f16, or none: search the application's rows"),
        sl_cli_string("metric", "WHICH", &o->metric,
                      "ip, augmented-l2, or auto (default): the one with more recall on a sample"),
        sl_cli_string("trace", "FILE", &o->trace,
                      "measure with the hidden states of this trace (specrt-eval record); default: "
                      "synthetic queries"),
        sl_cli_int("queries", "N", &o->n_queries, 1, 100000, "number of queries (default 512)"),
        sl_cli_real("min-recall", "P", &o->min_recall, 0, 1,
                    "recall of the ten best rows, for which ef is chosen; exit code 4 if no ef "
                    "reaches it (default 0.95)"),
        sl_cli_flag("allow-below", &o->allow_below, "write the bundle even below --min-recall"),
        {0}};
    const cli_tool tool = {
        "hnsw-build", "hnsw-build --model target.gguf --trace target.trace -o model.specb",
        "Indexes the rows of a target's head (HNSW), measures what a search finds, and writes the\n"
        "index into a bundle.",
        "hnsw-build --model FILE [options] -o BUNDLE", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    return code < 0 ? check_options(o) : code;
}

/* ---- rows ---- */

/* Rows that are not computed as stored are decoded once. */
static specrt_status decode_rows(run *r, specrt_error *err) {
    specrt_head_desc *rows = &r->rows;
    size_t n = (size_t)rows->n_rows, d = (size_t)rows->n_cols;
    switch (rows->dtype) {
    case SPECRT_DTYPE_F32:
    case SPECRT_DTYPE_F16:
    case SPECRT_DTYPE_BF16:
    case SPECRT_DTYPE_Q8_0: return SPECRT_STATUS_OK;
    default: break;
    }
    if (r->options->vectors_value == SPECRT_HNSW_NONE)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--vectors none: a %s head is not computed as stored; expected "
                                "int8 or f16",
                                specrt_dtype_name(rows->dtype));
    float *row = (float *)malloc(d * sizeof *row);
    r->decoded = (uint16_t *)malloc(n * d * sizeof *r->decoded);
    if (!row || !r->decoded) {
        free(row);
        return sl_error_no_memory_for(err, "the rows");
    }
    for (size_t i = 0; i < n; i++) {
        specrt_row_decode(rows->dtype, sl_head_row(rows, (int64_t)i), rows->n_cols, row);
        specrt_to_f16(row, rows->n_cols, r->decoded + i * d);
    }
    free(row);
    rows->rows = r->decoded;
    rows->dtype = SPECRT_DTYPE_F16;
    rows->row_stride = 0;
    return SPECRT_STATUS_OK;
}

/* Rows of reserved tokens, where the model brings its tokenizer; *out NULL: not known. */
static specrt_status reserved_rows(const run *r, uint8_t **out, specrt_error *err) {
    tokenizer *tok;
    *out = NULL;
    TRY(sl_tokenizer_of_model(r->options->model, &tok, err));
    if (!tok) return SPECRT_STATUS_OK;
    uint8_t *skip = (uint8_t *)calloc((size_t)r->rows.n_rows, 1);
    for (int32_t i = 0; skip && i < (int32_t)r->rows.n_rows; i++)
        skip[i] = i >= sl_tokenizer_n_vocab(tok) || sl_tokenizer_type(tok, i) == TOKEN_RESERVED;
    sl_tokenizer_close(tok);
    *out = skip;
    return skip ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the rows");
}

/* What is left out, and what is indexed: only rows that numbers can be trusted of. */
static specrt_status choose_rows(run *r, specrt_error *err) {
    uint8_t *skip;
    TRY(reserved_rows(r, &skip, err));
    specrt_status status =
        sl_head_check(&r->rows, r->tensor, skip, (int)r->options->common.threads, err);
    status = sl_model_blame(&r->model, status, err);
    if (!status) status = decode_rows(r, err);
    if (!status) status = specrt_head_bind(NULL, &r->rows, NULL, &r->head, err);
    if (!status)
        status = sl_model_blame(
            &r->model, index_rows(&r->rows, skip, &r->ids, &r->n_ids, r->n_left_out, err), err);
    free(skip);
    return status;
}

static specrt_status open_rows(run *r, specrt_error *err) {
    const hnsw_options *o = r->options;
    TRY(sl_model_open(o->model, &r->model, err));
    TRY(sl_model_head(&r->model, o->tensor, &r->rows, &r->tensor, err));
    if (r->rows.n_rows > SPECRT_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: expected at most %d rows, found more", o->model, r->tensor,
                                SPECRT_MAX_VOCAB);
    return choose_rows(r, err);
}

static specrt_status make_queries(run *r, specrt_error *err) {
    const hnsw_options *o = r->options;
    int32_t n = (int32_t)o->n_queries;
    if (o->trace) {
        TRY(sl_model_check_trace(&r->model, o->trace, err));
        return hnsw_recall_from_trace(o->trace, r->rows.n_cols, n, &r->set, err);
    }
    return hnsw_recall_synthetic(&r->rows, r->ids, r->n_ids, n, (uint64_t)o->common.seed, &r->set,
                                 err);
}

/* ---- building and measuring ---- */

static void show_progress(void *user, int64_t done) {
    sl_progress_update((progress *)user, (uint64_t)done);
}

/* A view of section bytes, through a bundle in memory as an application would open it. */
static specrt_status view_section(const run *r, const void *section, specrt_hnsw *out,
                                  specrt_bundle **bundle, void **bytes, specrt_error *err) {
    specrt_bundle_header h = {
        .version_major = SPECRT_BUNDLE_VERSION_MAJOR, .n_sections = 1, .table_offset = sizeof h};
    specrt_bundle_section s = {.tag = "hnsw", .version = 1, .offset = 128};
    size_t n = r->n_section;
    uint8_t *p = (uint8_t *)malloc(s.offset + n);
    *bytes = p;
    if (!p) return sl_error_no_memory_for(err, "the index");
    memcpy(h.magic, SPECRT_BUNDLE_MAGIC, 8);
    h.file_bytes = s.offset + n;
    s.stored_bytes = s.raw_bytes = n;
    s.checksum = specrt_hash64(section, n, 0);
    h.table_checksum = specrt_hash64(&s, sizeof s, 0);
    h.header_checksum = specrt_hash64(&h, offsetof(specrt_bundle_header, header_checksum), 0);
    memcpy(p, &h, sizeof h);
    memcpy(p + sizeof h, &s, sizeof s);
    memcpy(p + s.offset, section, n);
    TRY(specrt_bundle_open_memory(p, s.offset + n, "index", NULL, bundle, err));
    return specrt_bundle_hnsw(*bundle, r->head, out, err);
}

/* Recall from the least ef up, until it is reached and the usual ones are seen. The first that reaches it
 * is chosen, or else the last. */
static specrt_status measure(run *r, const int32_t *efs, double enough, specrt_error *err) {
    specrt_bundle *bundle = NULL;
    specrt_hnsw view;
    void *bytes = NULL;
    specrt_status status = view_section(r, r->section, &view, &bundle, &bytes, err);
    bool reached = false;
    for (r->n_steps = 0; !status && r->n_steps < RECALL_MAX_STEPS && efs[r->n_steps];) {
        hnsw_recall_step *step = &r->steps[r->n_steps];
        if (reached && efs[r->n_steps] > SHOWN_EF) break;
        status = hnsw_recall_measure(&r->set, &view, efs[r->n_steps], step, err);
        if (!reached) r->chosen = r->n_steps;
        reached = reached || step->recall >= enough;
        r->n_steps++;
    }
    specrt_bundle_close(bundle);
    free(bytes);
    return status;
}

static specrt_status build(run *r, const int32_t *ids, int32_t n, int metric, bool shows,
                           specrt_error *err) {
    const hnsw_options *o = r->options;
    progress bar;
    index_params params = {.m = (int32_t)o->m,
                           .ef_construction = (int32_t)o->ef_construction,
                           .metric = metric,
                           .seed = (uint64_t)o->common.seed,
                           .threads = (int)o->common.threads,
                           .progress = shows ? show_progress : NULL,
                           .user = &bar};
    sl_progress_begin(&bar, shows ? o->common.progress : 0, "building", "", (uint64_t)n);
    specrt_status status = index_build(&r->rows, ids, n, &params, &r->index, err);
    sl_progress_end(&bar);
    if (status) return status;
    r->index.header.vectors = o->vectors_value;
    free(r->section);
    r->section = index_bytes(&r->index, &r->rows, &r->n_section);
    return r->section ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the index");
}

/* Both metrics over a sample; the one that finds more is *best. */
static specrt_status choose_metric(run *r, int *best, specrt_error *err) {
    static const int32_t efs[] = {SAMPLE_EF, 0};
    int32_t step = r->n_ids / SAMPLE_ROWS + 1, n = 0;
    int32_t *sample = (int32_t *)malloc((size_t)r->n_ids * sizeof *sample);
    if (!sample) return sl_error_no_memory_for(err, "a sample");
    for (int32_t i = 0; i < r->n_ids; i += step) sample[n++] = r->ids[i];
    specrt_status status = hnsw_recall_truth(&r->set, r->head, &r->rows, sample, n, err);
    for (int metric = INDEX_PRODUCTS; metric <= INDEX_DISTANCES && !status; metric++) {
        status = build(r, sample, n, metric, false, err);
        if (!status) status = measure(r, efs, 2, err);
        r->sample_recall[metric] = r->steps[0].recall;
        index_free(&r->index);
    }
    *best = r->sample_recall[INDEX_DISTANCES] > r->sample_recall[INDEX_PRODUCTS] ? INDEX_DISTANCES
                                                                                 : INDEX_PRODUCTS;
    free(sample);
    return status;
}

static specrt_status build_and_measure(run *r, specrt_error *err) {
    static const int32_t efs[RECALL_MAX_STEPS] = {16, 32, 64, 128, 256, 512, 1024, 2048};
    int metric = r->options->metric_value;
    if (metric == METRIC_AUTO) TRY(choose_metric(r, &metric, err));
    double started = sl_measure_seconds();
    TRY(build(r, r->ids, r->n_ids, metric, true, err));
    r->seconds_build = sl_measure_seconds() - started;
    TRY(hnsw_recall_truth(&r->set, r->head, &r->rows, r->ids, r->n_ids, err));
    TRY(measure(r, efs, r->options->min_recall, err));
    const hnsw_recall_step *chosen = &r->steps[r->chosen];
    r->index.header.ef = chosen->ef;
    r->index.header.recall = (float)chosen->recall;
    memcpy(r->section, &r->index.header, sizeof r->index.header);
    return SPECRT_STATUS_OK;
}

/* ---- output ---- */

static json_object *common_json(const run *r) {
    const specrt_hnsw_header *h = &r->index.header;
    json_object *o = json_object_new_object();
    sl_json_put(o, "tool", json_object_new_string("hnsw-build " SPECRT_VERSION_STRING));
    sl_json_put(o, "model", sl_json_base_name(r->options->model));
    sl_json_put(o, "tensor", sl_json_text(r->tensor));
    sl_json_put(o, "n_rows", json_object_new_int(h->n_rows));
    sl_json_put(o, "n_nodes", json_object_new_int(h->n_nodes));
    sl_json_put(o, "n_reserved", json_object_new_int(r->n_left_out[0]));
    sl_json_put(o, "n_zero", json_object_new_int(r->n_left_out[1]));
    sl_json_put(o, "n_duplicate", json_object_new_int(r->n_left_out[2]));
    sl_json_put(o, "metric", json_object_new_string(h->metric ? "augmented-l2" : "ip"));
    sl_json_put(o, "vectors", json_object_new_string(r->options->vectors));
    sl_json_put(o, "m", json_object_new_int(h->m));
    sl_json_put(o, "ef_construction", json_object_new_int(h->ef_construction));
    sl_json_put(o, "seed", json_object_new_int64(r->options->common.seed));
    sl_json_put(o, "ef", json_object_new_int(h->ef));
    sl_json_put(o, "queries", json_object_new_string(r->options->trace ? "trace" : "synthetic"));
    sl_json_put(o, "n_queries", json_object_new_int(r->set.n));
    sl_json_put(o, "recall_at_10", sl_json_real((double)h->recall));
    sl_json_put(o, "n_repaired", json_object_new_int(r->index.n_repaired));
    if (r->options->metric_value == METRIC_AUTO) {
        sl_json_put(o, "sample_recall_ip", sl_json_real(r->sample_recall[INDEX_PRODUCTS]));
        sl_json_put(o, "sample_recall_augmented_l2",
                    sl_json_real(r->sample_recall[INDEX_DISTANCES]));
    }
    return o;
}

static char *full_json(const run *r) {
    json_object *o = common_json(r), *rows = json_object_new_array();
    for (int i = 0; i < r->n_steps; i++) {
        json_object *row = json_object_new_object();
        sl_json_put(row, "ef", json_object_new_int(r->steps[i].ef));
        sl_json_put(row, "recall_at_10", sl_json_real(r->steps[i].recall));
        sl_json_put(row, "queries_per_second", sl_json_real(r->steps[i].queries_per_second));
        json_object_array_add(rows, row);
    }
    sl_json_put(o, "sweep", rows);
    sl_json_put(o, "queries_per_second", sl_json_real(r->steps[r->chosen].queries_per_second));
    sl_json_put(o, "seconds_build", sl_json_real(r->seconds_build));
    sl_json_put(o, "seconds", sl_json_real(r->seconds));
    sl_json_put(o, "peak_bytes", json_object_new_int64(sl_measure_peak_bytes()));
    return sl_json_to_text(o);
}

static void print_table(const run *r, FILE *out) {
    const specrt_hnsw_header *h = &r->index.header;
    fprintf(out, "%s: %s of %s rows [%" PRId32 "], %s, built in %.1f s\n", sl_text_name(r->tensor),
            sl_text_count((uint64_t)h->n_nodes), sl_text_count((uint64_t)h->n_rows), h->dim,
            h->metric ? "distances of rows made equally long" : "products", r->seconds_build);
    if (r->options->metric_value == METRIC_AUTO)
        fprintf(out, "a sample at ef %d finds %.3f by products, %.3f by distances\n", SAMPLE_EF,
                r->sample_recall[INDEX_PRODUCTS], r->sample_recall[INDEX_DISTANCES]);
    fprintf(out, "\n      ef   recall@10   queries/s   us/query   (%s, one thread)\n",
            r->options->trace ? "recorded hidden states" : "synthetic queries");
    for (int i = 0; i < r->n_steps; i++)
        fprintf(out, "%8" PRId32 "   %9.3f   %9.0f   %8.0f%s\n", r->steps[i].ef, r->steps[i].recall,
                r->steps[i].queries_per_second, 1e6 / r->steps[i].queries_per_second,
                i == r->chosen ? "   chosen" : "");
}

static specrt_status write_bundle(const run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    const bundle_part part = {.tag = "hnsw",
                              .version = 1,
                              .depends = SPECRT_SECTION_DEPENDS_HEAD,
                              .data = r->section,
                              .n_bytes = r->n_section};
    return sl_bundle_write_section(common->output, common->force, &part,
                                   sl_json_to_text(common_json(r)), &r->ident, err);
}

static specrt_status print_result(const run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    if (common->json) return sl_cli_print_json(full_json(r), err);
    if (!common->quiet) print_table(r, sl_cli_table(&common->output, 1));
    return sl_out_flush_stdout(err);
}

static bool is_below(const run *r) {
    const hnsw_options *o = r->options;
    if ((double)r->index.header.recall >= o->min_recall - 1e-6) return false;
    sl_cli_warn("finds %.3f of the ten best at ef %" PRId32 ", less than --min-recall %g%s",
                (double)r->index.header.recall, r->index.header.ef, o->min_recall,
                o->allow_below ? ""
                               : "; nothing is written (--allow-below writes, a larger --m or "
                                 "--ef-construction finds more)");
    return true;
}

static specrt_status finish(run *r, int *code, specrt_error *err) {
    const hnsw_options *o = r->options;
    bool below = is_below(r);
    *code = below ? CLI_BELOW : CLI_OK;
    TRY(print_result(r, err));
    return o->common.output && (!below || o->allow_below) ? write_bundle(r, err) : SPECRT_STATUS_OK;
}

static specrt_status work(run *r, int *code, specrt_error *err) {
    const hnsw_options *o = r->options;
    double started = sl_measure_seconds();
    if (o->common.output)
        TRY(sl_bundle_write_check(o->common.output, "hnsw", o->common.force, err));
    TRY(open_rows(r, err));
    if (o->common.output) {
        TRY(sl_bundle_ident_head(&r->ident, &r->rows, r->tensor, err));
        TRY(sl_bundle_ident_check(o->common.output, &r->ident, err));
    }
    TRY(make_queries(r, err));
    TRY(build_and_measure(r, err));
    r->seconds = sl_measure_seconds() - started;
    return finish(r, code, err);
}

int main(int argc, char **argv) {
    hnsw_options options;
    run r = {.options = &options};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    int code = parse(&options, argc, argv);
    if (code >= 0) return code;
    if (work(&r, &code, &err)) code = sl_cli_fail(&err);
    index_free(&r.index);
    hnsw_recall_free(&r.set);
    specrt_head_close(r.head);
    free(r.section);
    free(r.ids);
    free(r.decoded);
    sl_model_close(&r.model);
    return code;
}
