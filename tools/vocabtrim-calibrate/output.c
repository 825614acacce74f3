/* output.c : see output.h. Every file is complete before the first appears under its name. */
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "formats/bundle_write.h"
#include "model/token_map.h"

/* ---- before counting ---- */

/* The format is what stands before the first '='. */
static const char *export_path(const char *item, char format[32]) {
    const char *equals = strchr(item, '=');
    snprintf(format, 32, "%.*s", (int)(equals - item), item);
    return equals + 1;
}

static specrt_status check_export(const calibrate_options *o, const char *item, specrt_error *err) {
    char format[32], unused[256];
    const char *path = export_path(item, format);
    TRY(sl_token_map_default_name(format, 1, unused, sizeof unused, err));
    if (strcmp(format, "gguf") == 0 && !o->model)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--export gguf needs --model, the drafter to rewrite");
    return sl_token_map_check(format, path, o->common.force, err);
}

specrt_status output_check(const calibrate_options *o, specrt_error *err) {
    if (o->common.output)
        TRY(sl_bundle_write_check(o->common.output, "ranks", o->common.force, err));
    if (o->counts_out) TRY(sl_out_check(o->counts_out, o->common.force, err));
    if (o->report) TRY(sl_out_check(o->report, o->common.force, err));
    for (int i = 0; i < o->exports.n; i++) TRY(check_export(o, o->exports.items[i], err));
    return SPECRT_STATUS_OK;
}

/* What the bundle is for. */
static specrt_status make_ident(const calibration *run, specrt_ident *ident, specrt_error *err) {
    const counts_vocab *v = &run->counts.vocab;
    *ident = (specrt_ident){.n_vocab = v->n_vocab, .n_normal = v->n_normal};
    memcpy(ident->tokenizer_sha256, v->sha256, sizeof ident->tokenizer_sha256);
    memcpy(ident->tokenizer_name, v->name, sizeof ident->tokenizer_name);
    if (!run->has_head) return SPECRT_STATUS_OK;
    return sl_bundle_ident_head(ident, &run->head, run->head_name, err);
}

specrt_status output_check_ident(const calibration *run, specrt_error *err) {
    specrt_ident ident;
    if (!run->options->common.output) return SPECRT_STATUS_OK;
    TRY(make_ident(run, &ident, err));
    return sl_bundle_ident_check(run->options->common.output, &ident, err);
}

/* ---- files that are written aside and renamed at the end ---- */

typedef specrt_status (*write_fn)(const calibration *run, out_file *out, specrt_error *err);

static specrt_status write_counts(const calibration *run, out_file *out, specrt_error *err) {
    return sl_counts_write(&run->counts, out, err);
}

/* Write everything; what goes through a pipe or device is over with here, a file waits for its
 * commit. */
static specrt_status stage(const calibration *run, const char *path, write_fn write, out_file *out,
                           specrt_error *err) {
    *out = (out_file){0};
    if (!path) return SPECRT_STATUS_OK;
    TRY(sl_out_open(out, path, run->options->common.force, err));
    specrt_status status = write(run, out, err);
    if (status != SPECRT_STATUS_OK) return sl_out_abort(out), status;
    return out->temp ? SPECRT_STATUS_OK : sl_out_commit(out, err);
}

static specrt_status commit(out_file *out, specrt_error *err) {
    return out->f ? sl_out_commit(out, err) : SPECRT_STATUS_OK;
}

specrt_status output_counts(const calibration *run, specrt_error *err) {
    out_file out;
    TRY(stage(run, run->options->counts_out, write_counts, &out, err));
    return commit(&out, err);
}

/* ---- the bundle and the token maps ---- */

static specrt_status write_bundle(const calibration *run, const char *provenance,
                                  specrt_error *err) {
    bundle_part part;
    specrt_ident ident;
    TRY(make_ident(run, &ident, err));
    TRY(sl_bundle_ranks(&run->ranking.header, run->ranking.ids, run->ranking.counts, &part, err));
    part.provenance = provenance;
    bundle_update update = {
        .parts = &part, .n_parts = 1, .ident = &ident, .force = run->options->common.force};
    specrt_status status = sl_bundle_write(run->options->common.output, &update, err);
    free((void *)(uintptr_t)part.data);
    return status;
}

/* *n_done : how many of the exports, from the first on, are complete. */
static specrt_status write_exports(const calibration *run, int *n_done, specrt_error *err) {
    const calibrate_options *o = run->options;
    const specrt_ranks ranks = {&run->ranking.header, run->ranking.ids, run->ranking.counts};
    token_map map;
    char format[32];
    /* t2d has an entry for every row of the head, padding included. */
    int32_t n_vocab = run->has_head ? (int32_t)run->head.n_rows : 0;
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; i < o->exports.n && status == SPECRT_STATUS_OK; i++) {
        const char *path = export_path(o->exports.items[i], format);
        const char *drafter = strcmp(format, "gguf") == 0 ? o->model : NULL;
        TRY(sl_token_map_for(format, &ranks, run->size, n_vocab, &map, err));
        memcpy(map.tokenizer_sha256, run->counts.vocab.sha256, sizeof map.tokenizer_sha256);
        status = sl_token_map_write(&map, format, path, drafter, o->common.force, err);
        sl_token_map_free(&map);
        if (status == SPECRT_STATUS_OK) ++*n_done;
    }
    return status;
}

/* ---- all of it ---- */

/* The table goes to stdout unless a file does. */
static specrt_status print_result(const calibration *run, specrt_error *err) {
    const calibrate_options *o = run->options;
    const char *paths[CALIBRATE_MAX_OUTPUTS];
    if (o->common.json) return sl_cli_print_json(calibrate_report_json(run), err);
    if (!o->common.quiet)
        calibrate_report_table(run, sl_cli_table(paths, calibrate_options_outputs(o, paths)));
    return sl_out_flush_stdout(err);
}

/* What this run has put where nothing was: gone again if a later output fails. The bundle comes last,
 * since other tools may add to it as soon as it is there. */
typedef struct written {
    bool *is_new; /* [exports] owned: was not there before */
    int n_exports;
    const char *counts, *report; /* borrowed; NULL: not written, or replaced */
} written;

static const char *if_new(const char *path) {
    return path && access(path, F_OK) != 0 ? path : NULL;
}

static specrt_status commit_new(out_file *out, const char *path, const char **written_to,
                                specrt_error *err) {
    const char *is_new = if_new(path);
    TRY(commit(out, err));
    *written_to = is_new;
    return SPECRT_STATUS_OK;
}

static void take_back(const calibrate_options *o, const written *w, int32_t size) {
    char format[32];
    for (int i = 0; i < w->n_exports; i++) {
        const char *path = export_path(o->exports.items[i], format);
        if (w->is_new[i]) sl_token_map_remove(format, path, size);
    }
    if (w->counts) unlink(w->counts);
    if (w->report) unlink(w->report);
}

static specrt_status write_files(const calibration *run, const char *provenance, written *w,
                                 specrt_error *err) {
    const calibrate_options *o = run->options;
    out_file counts_file, report_file = {0};
    specrt_status status = stage(run, o->counts_out, write_counts, &counts_file, err);
    if (!status) status = stage(run, o->report, calibrate_report_html, &report_file, err);
    if (!status) status = print_result(run, err);
    if (!status) status = write_exports(run, &w->n_exports, err);
    if (!status) status = commit_new(&counts_file, o->counts_out, &w->counts, err);
    if (!status) status = commit_new(&report_file, o->report, &w->report, err);
    if (!status && o->common.output) status = write_bundle(run, provenance, err);
    sl_out_abort(&counts_file);
    sl_out_abort(&report_file);
    return status;
}

specrt_status output_all(const calibration *run, bool files, specrt_error *err) {
    const calibrate_options *o = run->options;
    if (!files) return print_result(run, err);
    char *provenance = calibrate_report_provenance(run), format[32];
    written w = {(bool *)calloc((size_t)o->exports.n + 1, sizeof *w.is_new), 0, NULL, NULL};
    specrt_status status =
        provenance && w.is_new ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
    if (status == SPECRT_STATUS_OK) {
        for (int i = 0; i < o->exports.n; i++)
            w.is_new[i] = if_new(export_path(o->exports.items[i], format)) != NULL;
        status = write_files(run, provenance, &w, err);
        if (status != SPECRT_STATUS_OK) take_back(o, &w, run->size);
    }
    free(w.is_new);
    free(provenance);
    return status;
}
