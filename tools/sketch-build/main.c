/* sketch-build : from a head to a low-rank copy in few bits that tells which of its rows matter.
 *
 *     model -> order.c (rows by rank) -> basis.c (directions) -> codes.c (the section) -> bundle
 *     trace -> states.c ------------------^                      recall.c (what a search finds), advice.c
 */
#include <inttypes.h>
#include "build.h"
#include "base/error.h"
#include "base/measure.h"
#include "formats/bundle_write.h"
#include "model/head_check.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"

typedef struct run {
    const sketch_options *options;
    model model;
    const char *tensor;
    specrt_head_desc head;
    specrt_ident ident; /* with -o */
    int32_t rank;
    row_order order;
    state_set states;
    basis basis;
    row_clusters clusters;
    sketch sketch;
    sketch_recall_table table;
    double seconds;
} run;

/* ---- options ---- */

static int parse(sketch_options *o, int argc, char **argv) {
    *o = (sketch_options){.n_states = 512, .min_recall = 0.99, .n_signs = 96};
    const cli_option options[] = {
        sl_cli_string("model", "FILE", &o->model,
                      "GGUF or safetensors with the head that the drafter uses"),
        sl_cli_string("tensor", "NAME", &o->tensor, "name of the head (default: the usual names)"),
        sl_cli_int("signs", "N", &o->n_signs, 32, SPECRT_MAX_SKETCH_RANK,
                   "directions with one bit per row, a multiple of 32 (default 96)"),
        sl_cli_int("rank", "N", &o->rank, 240, SPECRT_MAX_SKETCH_RANK,
                   "directions with two bits per row: 240, 496, 752... (default: 240, for 2,048 "
                   "columns or more 496)"),
        sl_cli_int("clusters", "N", &o->n_clusters, 0, SPECRT_MAX_CLUSTERS,
                   "rows in so many clusters, for sketch:M@clusters=K (default 0: none)"),
        sl_cli_string("trace", "FILE", &o->trace,
                      "recorded states (specrt-eval record), which choose the directions"),
        sl_cli_string("held-out", "FILE", &o->held_out,
                      "measure with this trace (default: half of --trace)"),
        sl_cli_int(
            "states", "N", &o->n_states, 20, 100000,
            "number of states to measure with (default 512); synthetic ones without --trace"),
        sl_cli_real(
            "min-recall", "P", &o->min_recall, 0, 1,
            "recall of the ten best rows; exit code 4 if no choice reaches it (default 0.99)"),
        sl_cli_flag("allow-below", &o->allow_below, "write the bundle even below --min-recall"),
        {0}};
    const cli_tool tool = {
        "sketch-build", "sketch-build --model target.gguf --trace pair.trace -o model.specb",
        "Writes a low-rank copy of a head in one and two bits into a bundle, for "
        "the source sketch, and measures how often it finds the best rows.",
        "sketch-build --model FILE [options] -o BUNDLE", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    if (!o->model)
        return sl_cli_usage("expected --model FILE, a GGUF or safetensors with the head");
    if (!o->common.output && !o->common.json) return sl_cli_usage("expected -o FILE or --json");
    if (o->held_out && !o->trace)
        return sl_cli_usage(
            "--held-out: expected --trace FILE with it, which chooses the directions");
    if (o->n_signs % 32)
        return sl_cli_usage("--signs: expected a multiple of 32, found %" PRId64, o->n_signs);
    if (o->rank && o->rank % 256 != 240)
        return sl_cli_usage("--rank: expected 240, 496, 752..., found %" PRId64, o->rank);
    return -1;
}

/* ---- the work ---- */

static specrt_status open_head(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    if (o->common.output)
        TRY(sl_bundle_write_check(o->common.output, "sketch", o->common.force, err));
    TRY(sl_model_open(o->model, &r->model, err));
    TRY(sl_model_head(&r->model, o->tensor, &r->head, &r->tensor, err));
    if (r->head.n_rows > SPECRT_MAX_VOCAB || r->head.n_cols > 65536)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: %s [%" PRId64 ", %" PRId64 "]: expected at most %d rows, of at most 65536 columns",
            o->model, r->tensor, r->head.n_rows, r->head.n_cols, SPECRT_MAX_VOCAB);
    r->rank = (int32_t)(o->rank ? o->rank : r->head.n_cols < 2048 ? 240 : 496);
    if (o->n_clusters > r->head.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--clusters: expected at most the rows, %" PRId64
                                ", found %" PRId64,
                                r->head.n_rows, o->n_clusters);
    if (o->n_signs > r->rank)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--signs: expected at most the rank, %" PRId32 ", found %" PRId64,
                                r->rank, o->n_signs);
    specrt_status status = sl_head_check(&r->head, r->tensor, NULL, (int)o->common.threads, err);
    TRY(sl_model_blame(&r->model, status, err));
    if (!o->common.output) return SPECRT_STATUS_OK;
    TRY(sl_bundle_ident_head(&r->ident, &r->head, r->tensor, err));
    return sl_bundle_ident_check(o->common.output, &r->ident, err);
}

/* Ranks, where the bundle to add to has some. */
static specrt_status open_order(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    specrt_bundle *bundle = NULL;
    if (o->common.output && specrt_bundle_open(o->common.output, NULL, &bundle, NULL) != 0)
        bundle = NULL;
    specrt_status status = order_open(&r->head, bundle, (int)o->common.threads, &r->order, err);
    specrt_bundle_close(bundle);
    return status;
}

/* A drafter's states lie in few directions, sums of rows under noise in all of them. */
static void warn_synthetic(const sketch_options *o) {
    sl_cli_warn(
        "without --trace the sketch is built from synthetic states and may draft much worse than "
        "the figures here; record states (specrt-eval record --target %s --draft D --prompts F -o "
        "pair.trace; without a drafter, give the target twice) and give --trace pair.trace",
        o->model);
}

static specrt_status open_states(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    int32_t n = (int32_t)o->n_states;
    if (o->trace) TRY(sl_model_check_trace(&r->model, o->trace, err));
    if (o->held_out) TRY(sl_model_check_trace(&r->model, o->held_out, err));
    if (o->held_out)
        return states_held_out(o->trace, o->held_out, r->head.n_cols, n, &r->states, err);
    if (o->trace) return states_from_trace(o->trace, r->head.n_cols, n, &r->states, err);
    return states_synthetic(&r->order, n, (uint64_t)o->common.seed, &r->states, err);
}

static specrt_status build(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    int threads = (int)o->common.threads;
    double started = sl_measure_seconds();
    TRY(open_head(r, err));
    if (!o->trace) warn_synthetic(o);
    TRY(sl_model_blame(&r->model, open_order(r, err), err));
    TRY(open_states(r, err));
    TRY(states_truth(&r->states, &r->order, threads, err));
    specrt_status status = basis_make(&r->order, o->trace ? &r->states : NULL, r->rank, threads,
                                      &o->common, &r->basis, err);
    TRY(sl_model_blame(&r->model, status, err));
    if (o->n_clusters > 0)
        TRY(clusters_make(&r->order, &r->basis, (int32_t)o->n_clusters, threads, &o->common,
                          &r->clusters, err));
    TRY(sketch_make(&r->order, &r->basis, &r->clusters, (int32_t)o->n_signs, o->trace != NULL,
                    threads, &r->sketch, err));
    TRY(sketch_recall_measure(&r->sketch, &r->states, o->min_recall,
                              specrt_row_bytes(r->head.dtype, r->head.n_cols), threads, &r->table,
                              err));
    r->seconds = sl_measure_seconds() - started;
    return SPECRT_STATUS_OK;
}

/* ---- output ---- */

/* Recorded states that chose directions; none of those that measure. */
static int32_t n_basis_states(const run *r) {
    return r->options->trace ? r->states.n - r->states.n_measured : 0;
}

static sketch_facts facts_of(const run *r) {
    return (sketch_facts){.trace = r->options->trace,
                          .n_states = n_basis_states(r),
                          .n_measured = r->options->held_out ? 0 : r->states.n_measured,
                          .n_cols = r->order.n_cols};
}

static json_object *probed_json(const sketch_recall_table *t) {
    json_object *list = json_object_new_array();
    for (int p = 0; p < t->n_probed; p++) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "probed", json_object_new_int(t->probed[p].clusters));
        sl_json_put(o, "places", sl_json_real(t->probed[p].places));
        sl_json_put(o, "bytes_preview", sl_json_real(t->probed[p].bytes));
        sl_json_put(o, "recall_at_10", sl_json_real(t->probed[p].recall));
        sl_json_put(o, "recall_of_best", sl_json_real(t->probed[p].recall_best));
        json_object_array_add(list, o);
    }
    return list;
}

/* What the bundle keeps of how it was made. */
static json_object *common_json(const run *r) {
    json_object *o = json_object_new_object(), *rows = json_object_new_array();
    const sketch_recall_table *t = &r->table;
    sl_json_put(o, "tool", json_object_new_string("sketch-build " SPECRT_VERSION_STRING));
    sl_json_put(o, "model", sl_json_base_name(r->options->model));
    sl_json_put(o, "tensor", sl_json_text(r->tensor));
    sl_json_put(o, "n_rows", json_object_new_int(r->order.n));
    sl_json_put(o, "n_cols", json_object_new_int(r->order.n_cols));
    sl_json_put(o, "n_signs", json_object_new_int64(r->options->n_signs));
    sl_json_put(o, "rank", json_object_new_int(r->rank));
    sl_json_put(o, "states", json_object_new_string(r->options->trace ? "trace" : "synthetic"));
    sl_json_put(o, "n_states", json_object_new_int(r->states.n_measured));
    sl_json_put(o, "n_states_basis", json_object_new_int(n_basis_states(r)));
    sl_json_put(o, "seed", json_object_new_int64(r->options->common.seed));
    for (int k = 0; k < t->n_keeps; k++)
        for (int w = 0; w < t->n_rows; w++) {
            json_object *row = json_object_new_object();
            sl_json_put(row, "keep", json_object_new_int(t->keeps[k]));
            sl_json_put(row, "rows", json_object_new_int(t->rows[w]));
            sl_json_put(row, "bytes_pass", sl_json_real(t->bytes[k][w]));
            sl_json_put(row, "recall_at_10", sl_json_real(t->recall[k][w]));
            sl_json_put(row, "recall_of_best", sl_json_real(t->recall_best[k][w]));
            json_object_array_add(rows, row);
        }
    sl_json_put(o, "recall", rows);
    if (r->clusters.n > 0) sl_json_put(o, "n_clusters", json_object_new_int(r->clusters.n));
    if (r->clusters.n > 0) sl_json_put(o, "clusters", probed_json(t));
    if (t->best_keep >= 0) {
        sl_json_put(o, "recommended_keep", json_object_new_int(t->keeps[t->best_keep]));
        sl_json_put(o, "recommended_rows", json_object_new_int(t->rows[t->best_rows]));
    }
    return o;
}

static void print_recall(sketch_recall_table *t, double recall[BUILD_MAX_KEEPS][BUILD_MAX_ROWS],
                         FILE *out) {
    fprintf(out, "%8s", "keep");
    for (int w = 0; w < t->n_rows; w++) fprintf(out, " %8" PRId32, t->rows[w]);
    fputc('\n', out);
    for (int k = 0; k < t->n_keeps; k++) {
        fprintf(out, "%8" PRId32, t->keeps[k]);
        for (int w = 0; w < t->n_rows; w++) fprintf(out, " %8.4f", recall[k][w]);
        fputc('\n', out);
    }
}

static void print_bytes(sketch_recall_table *t, FILE *out) {
    double megabytes[BUILD_MAX_KEEPS][BUILD_MAX_ROWS];
    for (int k = 0; k < t->n_keeps; k++)
        for (int w = 0; w < t->n_rows; w++) megabytes[k][w] = t->bytes[k][w] / 1e6;
    print_recall(t, megabytes, out);
}

static void print_probed(const run *r, FILE *out) {
    const sketch_recall_table *t = &r->table;
    if (t->n_probed == 0) return;
    fprintf(out,
            "\nshare of the best rows that the preview of the best of %" PRId32
            " clusters reads (sketch:M@clusters=K), and its MB\n\n"
            "%8s %8s %8s %8s %8s\n",
            r->clusters.n, "clusters", "ten best", "the best", "places", "MB");
    for (int p = 0; p < t->n_probed; p++)
        fprintf(out, "%8" PRId32 " %8.4f %8.4f %8.0f %8.4f\n", t->probed[p].clusters,
                t->probed[p].recall, t->probed[p].recall_best, t->probed[p].places,
                t->probed[p].bytes / 1e6);
}

static void print_table(run *r, FILE *out) {
    sketch_recall_table *t = &r->table;
    sketch_facts facts = facts_of(r);
    char chose[64] = "synthetic states", advice[ADVICE_MOST];
    advice_say(&facts, advice);
    if (r->options->trace)
        snprintf(chose, sizeof chose, "recorded states; %" PRId32 " others chose directions",
                 n_basis_states(r));
    fprintf(out,
            "%s: %s rows [%" PRId32 "]: %" PRId64 " signs and %" PRId32
            " pairs of bits each, %.1f MB, built in %.1f s\n\n",
            sl_text_name(r->tensor), sl_text_count((uint64_t)r->order.n), r->order.n_cols,
            r->options->n_signs, r->rank, (double)r->sketch.n_bytes / 1e6, r->seconds);
    fprintf(out,
            "share of the ten best rows that are found, by places refined and rows named (%" PRId32
            " %s)\n\n",
            r->states.n_measured, chose);
    print_recall(t, t->recall, out);
    fprintf(out, "\nof the best row\n\n");
    print_recall(t, t->recall_best, out);
    fprintf(out, "\nMB that a pass reads\n\n");
    print_bytes(t, out);
    print_probed(r, out);
    if (t->best_keep >= 0)
        fprintf(out, "\nfewest bytes for %g: --policy sketch:%" PRId32 "@keep=%" PRId32 "\n",
                r->options->min_recall, t->rows[t->best_rows], t->keeps[t->best_keep]);
    fprintf(out, "\n%s: %s\n", facts.trace ? "to run in specrt-eval compare" : "next", advice);
}

static specrt_status write_bundle(const run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    const bundle_part part = {.tag = "sketch",
                              .version =
                                  r->clusters.n > 0 ? 4 : 3, /* who knows 3 alone may read it */
                              .depends = SPECRT_SECTION_DEPENDS_HEAD,
                              .data = r->sketch.bytes,
                              .n_bytes = r->sketch.n_bytes};
    return sl_bundle_write_section(common->output, common->force, &part,
                                   sl_json_to_text(common_json(r)), &r->ident, err);
}

static char *full_json(const run *r) {
    json_object *o = common_json(r);
    sketch_facts facts = facts_of(r);
    char advice[ADVICE_MOST];
    advice_say(&facts, advice);
    sl_json_put(o, "advice", sl_json_text(advice));
    sl_json_put(o, "seconds", sl_json_real(r->seconds));
    sl_json_put(o, "peak_bytes", json_object_new_int64(sl_measure_peak_bytes()));
    return sl_json_to_text(o);
}

static specrt_status print_result(run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    if (common->json) return sl_cli_print_json(full_json(r), err);
    if (!common->quiet) print_table(r, sl_cli_table(&common->output, 1));
    return sl_out_flush_stdout(err);
}

static specrt_status finish(run *r, int *code, specrt_error *err) {
    const sketch_options *o = r->options;
    bool below = r->table.best_keep < 0;
    sketch_facts facts = facts_of(r);
    TRY(print_result(r, err));
    advice_warn(&facts);
    if (below)
        sl_cli_warn("%" PRId64 " signs and rank %" PRId32 " do not find %g of the ten best rows%s",
                    o->n_signs, r->rank, o->min_recall,
                    o->allow_below
                        ? ""
                        : "; nothing is written (--allow-below writes; more --signs and a "
                          "greater --rank find more)");
    *code = below ? CLI_BELOW : CLI_OK;
    return o->common.output && (!below || o->allow_below) ? write_bundle(r, err) : SPECRT_STATUS_OK;
}

int main(int argc, char **argv) {
    sketch_options options;
    run r = {.options = &options};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    int code = parse(&options, argc, argv);
    if (code >= 0) return code;
    if (build(&r, &err) || finish(&r, &code, &err)) code = sl_cli_fail(&err);
    sketch_free(&r.sketch);
    clusters_free(&r.clusters);
    basis_free(&r.basis);
    states_free(&r.states);
    order_free(&r.order);
    sl_model_close(&r.model);
    return code;
}
