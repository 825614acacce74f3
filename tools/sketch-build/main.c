/* sketch-build : from a head to a low-rank copy in few bits that tells which of its rows matter.
 *
 *     model -> order.c (rows by rank) -> basis.c (directions) -> codes.c, bands.c (the section) -> bundle
 *     trace -> states.c ------------------^  widths.c, turn.c    recall.c (what a scan finds), advice.c
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
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
    int64_t bytes; /* of a row, in bands; 0: one width */
    row_order order;
    state_set states;
    basis basis;
    sketch sketch;
    sketch_recall_table table;
    double seconds;
} run;

/* ---- options ---- */

/* Ranks are multiples of it. */
static int step_of(const sketch_options *o) {
    return o->four_bits ? 8 : 4;
}

static int parse(sketch_options *o, int argc, char **argv) {
    *o = (sketch_options){.n_states = 512, .min_recall = 0.99};
    const cli_option options[] = {
        sl_cli_string("model", "FILE", &o->model,
                      "GGUF or safetensors with the head that the drafter uses"),
        sl_cli_string("tensor", "NAME", &o->tensor, "its name, if unusual"),
        sl_cli_int("bytes", "N", &o->bytes, 0, 65536,
                   "bytes of a row that a scan reads, spent on bands of 8, 4, 2 and 1 bits by what "
                   "directions count (default: a quarter of the head's columns)"),
        sl_cli_string("codes", "TYPE", &o->codes,
                      "instead: int4 or int8, one width, as GPU sessions need"),
        sl_cli_int("rank", "N", &o->rank, 4, SPECRT_MAX_SKETCH_RANK,
                   "of one width: dimensions, a multiple of 8, of 4 in int8 (default: a quarter of "
                   "the head's columns, an eighth in int8)"),
        sl_cli_string("trace", "FILE", &o->trace,
                      "recorded states (specrt-eval record): ranks go where they lie"),
        sl_cli_string("held-out", "FILE", &o->held_out,
                      "another trace to measure with (default: half of --trace)"),
        sl_cli_int("states", "N", &o->n_states, 20, 100000,
                   "how many to measure with (default 512); synthetic ones without --trace"),
        sl_cli_real("min-recall", "P", &o->min_recall, 0, 1,
                    "of the ten best rows; exit code 4 when no choice reaches it (default 0.99)"),
        sl_cli_flag("allow-below", &o->allow_below, "write the bundle even below --min-recall"),
        {0}};
    const cli_tool tool = {"sketch-build",
                           "sketch-build --model target.gguf --trace pair.trace -o model.specb",
                           "Makes a low-rank copy of a head in few bits, which the drafter's "
                           "own state is scanned against;\n"
                           "measures which rank and how many exact rows find the best tokens.",
                           "sketch-build --model FILE [options] -o BUNDLE", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    if (!o->model) return sl_cli_usage("give --model, the GGUF or safetensors with the head");
    if (!o->common.output && !o->common.json)
        return sl_cli_usage("nothing to write; give -o or --json");
    o->four_bits = !o->codes || strcmp(o->codes, "int4") == 0;
    if (!o->four_bits && strcmp(o->codes, "int8") != 0)
        return sl_cli_usage("--codes: expected int8 or int4, found %.80s", o->codes);
    if (o->bytes && (o->rank || o->codes))
        return sl_cli_usage("--bytes: bands choose ranks and widths; give no --rank or --codes");
    if (o->held_out && !o->trace)
        return sl_cli_usage(
            "--held-out: expected --trace FILE beside it, which chooses directions");
    if (o->rank % step_of(o))
        return sl_cli_usage("--rank: expected a multiple of %d, found %" PRId64, step_of(o),
                            o->rank);
    return -1;
}

/* ---- the work ---- */

/* What a scan reads of a row in bands, an eighth of an f16 row unless it is said; 0: one width. */
static int64_t bytes_of(const sketch_options *o, int64_t n_cols) {
    enum { LEAST = BANDS_CONSTANT + BANDS_SCALE + 4 }; /* room for a line of codes */
    if (o->bytes || o->rank || o->codes) return o->bytes;
    return n_cols / 4 > LEAST ? n_cols / 4 : LEAST;
}

static specrt_status open_head(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    specrt_ident ident = {0};
    if (o->common.output)
        TRY(sl_bundle_write_check(o->common.output, "sketch", o->common.force, err));
    TRY(sl_model_open(o->model, &r->model, err));
    TRY(sl_model_head(&r->model, o->tensor, &r->head, &r->tensor, err));
    r->bytes = bytes_of(o, r->head.n_cols);
    if (r->head.n_rows > SPECRT_MAX_VOCAB || r->head.n_cols < step_of(o))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: %s [%" PRId64 ", %" PRId64 "]: expected at most %d rows, of %d columns or "
            "more",
            o->model, r->tensor, r->head.n_rows, r->head.n_cols, SPECRT_MAX_VOCAB, step_of(o));
    if (o->rank > r->head.n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--rank: expected at most %" PRId64
                                ", the columns of %s, found %" PRId64,
                                r->head.n_cols / step_of(o) * step_of(o), r->tensor, o->rank);
    specrt_status status = sl_head_check(&r->head, r->tensor, NULL, (int)o->common.threads, err);
    TRY(sl_model_blame(&r->model, status, err));
    if (!o->common.output) return SPECRT_STATUS_OK;
    TRY(sl_bundle_ident_head(&ident, &r->head, r->tensor, err));
    return sl_bundle_ident_check(o->common.output, &ident, err);
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

static int32_t rank_of(const run *r) {
    int32_t most =
        r->head.n_cols < SPECRT_MAX_SKETCH_RANK ? (int32_t)r->head.n_cols : SPECRT_MAX_SKETCH_RANK;
    if (r->bytes) return most; /* to choose from */
    int32_t step = step_of(r->options);
    int32_t rank = (int32_t)(r->head.n_cols / (r->options->four_bits ? 4 : 8) / step * step);
    if (r->options->rank) return (int32_t)r->options->rank;
    return rank < step ? step : rank > SPECRT_MAX_SKETCH_RANK ? SPECRT_MAX_SKETCH_RANK : rank;
}

/* A drafter's states lie in few directions, sums of rows under noise in all of them. */
static void warn_synthetic(const sketch_options *o) {
    sl_cli_warn(
        "without --trace synthetic states stand in for the drafter's: the sketch may draft much "
        "worse than figures here promise; record states (specrt-eval record --target %s "
        "--draft D --prompts F -o pair.trace; the target as its own drafter where there is "
        "none) and give --trace pair.trace",
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

static specrt_status make(run *r, specrt_error *err) {
    const sketch_options *o = r->options;
    int threads = (int)o->common.threads;
    if (r->bytes)
        return bands_make(&r->order, &r->basis, o->trace != NULL, threads, &r->sketch, err);
    return sketch_make(&r->order, &r->basis, o->trace != NULL, o->four_bits, threads, &r->sketch,
                       err);
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
    specrt_status status = basis_make(&r->order, o->trace ? &r->states : NULL, rank_of(r), r->bytes,
                                      threads, &r->options->common, &r->basis, err);
    TRY(sl_model_blame(&r->model, status, err));
    TRY(make(r, err));
    TRY(sketch_recall_measure(&r->sketch, &r->states, o->min_recall,
                              specrt_row_bytes(r->head.dtype, r->head.n_cols), threads, &r->table,
                              err));
    r->seconds = sl_measure_seconds() - started;
    return SPECRT_STATUS_OK;
}

/* ---- output ---- */

static json_object *bands_json(const band_list *list) {
    json_object *all = json_object_new_array();
    for (int32_t i = 0; i < list->n; i++) {
        json_object *one = json_object_new_object();
        sl_json_put(one, "rank", json_object_new_int(list->bands[i].rank));
        sl_json_put(one, "bits", json_object_new_int(list->bands[i].bits));
        json_object_array_add(all, one);
    }
    return all;
}

static const char *codes_name(const run *r, const char *bands) {
    return r->bytes ? bands : r->options->four_bits ? "int4" : "int8";
}

/* Recorded states that chose directions; none of those that measure. */
static int32_t n_basis_states(const run *r) {
    return r->options->trace ? r->states.n - r->states.n_measured : 0;
}

static double recall_at(const sketch_recall_table *t, int32_t rows) {
    int w = 0;
    while (w < t->n_rows - 1 && t->rows[w] < rows) w++;
    return t->recall[t->n_ranks - 1][w];
}

static sketch_facts facts_of(const run *r) {
    return (sketch_facts){.trace = r->options->trace,
                          .n_states = n_basis_states(r),
                          .n_measured = r->options->held_out ? 0 : r->states.n_measured,
                          .n_cols = r->order.n_cols,
                          .bytes = r->bytes,
                          .recall = recall_at(&r->table, 128)};
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
    sl_json_put(o, "rank", json_object_new_int(r->basis.rank));
    sl_json_put(o, "codes", json_object_new_string(codes_name(r, "bands")));
    sl_json_put(o, "bytes_per_row", sl_json_real(t->bytes[t->n_ranks - 1]));
    if (r->bytes) sl_json_put(o, "bands", bands_json(&r->basis.list));
    sl_json_put(o, "states", json_object_new_string(r->options->trace ? "trace" : "synthetic"));
    sl_json_put(o, "n_states", json_object_new_int(r->states.n_measured));
    sl_json_put(o, "n_states_basis", json_object_new_int(n_basis_states(r)));
    sl_json_put(o, "seed", json_object_new_int64(r->options->common.seed));
    for (int i = 0; i < t->n_ranks; i++)
        for (int w = 0; w < t->n_rows; w++) {
            json_object *row = json_object_new_object();
            sl_json_put(row, "rank", json_object_new_int(t->ranks[i]));
            sl_json_put(row, "rows", json_object_new_int(t->rows[w]));
            sl_json_put(row, "recall_at_10", sl_json_real(t->recall[i][w]));
            sl_json_put(row, "recall_of_best", sl_json_real(t->recall_best[i][w]));
            json_object_array_add(rows, row);
        }
    sl_json_put(o, "recall", rows);
    if (t->best_rank >= 0) {
        sl_json_put(o, "recommended_rank", json_object_new_int(t->ranks[t->best_rank]));
        sl_json_put(o, "recommended_rows", json_object_new_int(t->rows[t->best_rows]));
    }
    return o;
}

/* How many directions have how many bits. */
static void print_bands(const run *r, FILE *out) {
    const band_list *list = &r->basis.list;
    fprintf(out, "%g bytes of a row, in bands:", widths_bytes(list, list->n));
    for (int32_t i = 0; i < list->n; i++)
        fprintf(out, "%s %" PRId32 " directions of %" PRId32 " bit%s", i ? "," : "",
                list->bands[i].rank, list->bands[i].bits, list->bands[i].bits == 1 ? "" : "s");
    fputs("\n\n", out);
}

static void print_recall(const sketch_recall_table *t,
                         const double recall[BUILD_MAX_RANKS][BUILD_MAX_ROWS], FILE *out) {
    fprintf(out, "  rank  bytes");
    for (int w = 0; w < t->n_rows; w++) fprintf(out, " %7" PRId32, t->rows[w]);
    fputc('\n', out);
    for (int i = 0; i < t->n_ranks; i++) {
        fprintf(out, "%6" PRId32 " %6.5g", t->ranks[i], t->bytes[i]);
        for (int w = 0; w < t->n_rows; w++) fprintf(out, " %7.4f", recall[i][w]);
        fputc('\n', out);
    }
}

static void print_table(const run *r, FILE *out) {
    const sketch_recall_table *t = &r->table;
    sketch_facts facts = facts_of(r);
    char chose[64] = "synthetic states", advice[ADVICE_MOST];
    advice_say(&facts, advice);
    if (r->options->trace)
        snprintf(chose, sizeof chose, "recorded states; %" PRId32 " others chose directions",
                 n_basis_states(r));
    fprintf(out,
            "%s: %s rows [%" PRId32 "] in rank %" PRId32 " of %s, %.1f MB, built in %.1f s\n\n",
            sl_text_name(r->tensor), sl_text_count((uint64_t)r->order.n), r->order.n_cols,
            r->basis.rank, codes_name(r, "several widths"), (double)r->sketch.n_bytes / 1e6,
            r->seconds);
    if (r->bytes) print_bands(r, out);
    fprintf(out, "share of the ten best rows among those scored exactly (%" PRId32 " %s)\n\n",
            r->states.n_measured, chose);
    print_recall(t, t->recall, out);
    fprintf(out, "\nof the best row\n\n");
    print_recall(t, t->recall_best, out);
    if (t->best_rank >= 0)
        fprintf(out, "\nfewest bytes for %g: --policy sketch:%" PRId32 "@rank=%" PRId32 "\n",
                r->options->min_recall, t->rows[t->best_rows], t->ranks[t->best_rank]);
    fprintf(out, "\nto run: %s\n", advice);
}

static specrt_status write_bundle(const run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    const bundle_part part = {.tag = "sketch",
                              .version = r->bytes ? 2 : 1,
                              .depends = SPECRT_SECTION_DEPENDS_HEAD,
                              .data = r->sketch.bytes,
                              .n_bytes = r->sketch.n_bytes};
    specrt_ident ident = {0};
    TRY(sl_bundle_ident_head(&ident, &r->head, r->tensor, err));
    return sl_bundle_write_section(common->output, common->force, &part,
                                   sl_json_to_text(common_json(r)), &ident, err);
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

static specrt_status print_result(const run *r, specrt_error *err) {
    const cli_common *common = &r->options->common;
    if (common->json) return sl_cli_print_json(full_json(r), err);
    if (!common->quiet) print_table(r, sl_cli_table(&common->output, 1));
    return sl_out_flush_stdout(err);
}

static specrt_status finish(run *r, int *code, specrt_error *err) {
    const sketch_options *o = r->options;
    bool below = r->table.best_rank < 0;
    sketch_facts facts = facts_of(r);
    TRY(print_result(r, err));
    advice_warn(&facts);
    if (below)
        sl_cli_warn("no rank up to %" PRId32 " finds %g of the ten best rows%s", r->basis.rank,
                    o->min_recall,
                    o->allow_below ? ""
                                   : "; nothing is written (--allow-below writes, a greater --rank "
                                     "finds more)");
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
    basis_free(&r.basis);
    states_free(&r.states);
    order_free(&r.order);
    sl_model_close(&r.model);
    return code;
}
