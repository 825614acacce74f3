/* cograph-build : from a corpus to the graph of which token follows which.
 *
 *     corpus -> count.c -> pairs (lib/counts) <- --merge      options.c  the command line
 *                            |                                  report.c   table, JSON, provenance
 *                         graph.c -> bundle
 */
#include "build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/measure.h"
#include "formats/bundle_write.h"
#include "counts/id_ranges.h"
#include "base/mpi.h"

/* ---- input ---- */

static specrt_status open_vocab(const cograph_options *o, tokenizer **tok, counts_vocab *v,
                                specrt_error *err) {
    id_list breaks = {0};
    if (!o->tokenizer || (strcmp(o->tokenizer, "none") == 0 && !o->n_vocab))
        return SPECRT_STATUS_OK;
    if (strcmp(o->tokenizer, "none") != 0) {
        TRY(sl_tokenizer_open(o->tokenizer, tok, err));
        return sl_counts_vocab_from_tokenizer(*tok, v, err);
    }
    TRY(sl_counts_vocab_from_ids((int32_t)o->n_vocab, v, err));
    if (o->breaks) TRY(sl_id_ranges_read("--breaks", o->breaks, v->n_vocab, &breaks, err));
    for (size_t i = 0; i < breaks.n; i++) v->types[breaks.ids[i]] = COUNTS_SPECIAL;
    free(breaks.ids);
    return SPECRT_STATUS_OK;
}

static void header_from(const cograph_options *o, const counts_vocab *v, pairs_header *out) {
    *out = (pairs_header){.n_vocab = v->n_vocab, .n_normal = v->n_normal};
    memcpy(out->sha256, v->sha256, sizeof out->sha256);
    memcpy(out->name, v->name, sizeof out->name);
    snprintf(out->options, sizeof out->options, "messages=%s%s%s", o->messages,
             o->field ? " field=" : "", o->field ? o->field : "");
}

/* Merged counts must be of the tokenizer that was given. */
static specrt_status check_merged(const cograph_build *b, const counts_vocab *given,
                                  specrt_error *err) {
    pairs_header ours, merged = b->header;
    if (!given->types) return SPECRT_STATUS_OK;
    header_from(b->options, given, &ours);
    memcpy(ours.options, merged.options, sizeof ours.options);
    return sl_pairs_header_add(&ours, &merged, b->options->merge.items[0], err);
}

static specrt_status merge_files(cograph_build *b, pairs *p, specrt_error *err) {
    const cograph_options *o = b->options;
    /* Ranks are added up, so one of them brings in the files. */
    if (sl_mpi_rank() > 0) return SPECRT_STATUS_OK;
    for (int i = 0; i < o->merge.n; i++) TRY(sl_pairs_read(p, &b->header, o->merge.items[i], err));
    return SPECRT_STATUS_OK;
}

/* ---- MPI ---- */

/* All pairs to rank 0, one rank after another, so that its memory holds what --memory says. */
static specrt_status gather(cograph_build *b, pairs *p, specrt_status status, specrt_error *err) {
    TRY(sl_mpi_agree(status, err));
    if (sl_mpi_rank() > 0) {
        sl_mpi_send(&b->header, sizeof b->header, 0);
        status = sl_pairs_send(p, 0, err);
    }
    for (int from = 1; sl_mpi_rank() == 0 && from < sl_mpi_n_ranks(); from++) {
        size_t n;
        pairs_header *more = (pairs_header *)sl_mpi_receive(from, &n);
        specrt_error late;
        specrt_status got = sl_pairs_receive(p, from, &late);
        /* Of count files alone the first rank has all. */
        if (!got && more->n_vocab)
            got = sl_pairs_header_add(&b->header, more, "an MPI rank", &late);
        if (got && !status) status = got, *err = late;
        free(more);
    }
    return sl_mpi_agree(status, err);
}

/* ---- output ---- */

static specrt_ident make_ident(const pairs_header *h) {
    specrt_ident ident = {.n_vocab = h->n_vocab, .n_normal = h->n_normal};
    memcpy(ident.tokenizer_sha256, h->sha256, sizeof ident.tokenizer_sha256);
    memcpy(ident.tokenizer_name, h->name, sizeof ident.tokenizer_name);
    return ident;
}

static specrt_status check_output(const cograph_build *b, specrt_error *err) {
    const cograph_options *o = b->options;
    const cli_common *common = &o->common;
    const specrt_ident ident = make_ident(&b->header);
    if (o->temp && access(o->temp, W_OK | X_OK) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "--temp: %s: %s", o->temp, strerror(errno));
    if (o->counts_out) TRY(sl_out_check(o->counts_out, common->force, err));
    return sl_bundle_check_section(common->output, "cograph", common->force,
                                   b->header.n_vocab ? &ident : NULL, err);
}

static specrt_status write_bundle(const cograph_build *b, specrt_error *err) {
    const cli_common *common = &b->options->common;
    const specrt_ident ident = make_ident(&b->header);
    bundle_part part = {
        .tag = "cograph", .version = 1, .depends = SPECRT_SECTION_DEPENDS_TOKENIZER};
    void *bytes = graph_bytes(&b->graph, &part.n_bytes);
    part.data = bytes;
    specrt_status status = sl_bundle_write_section(common->output, common->force, &part,
                                                   cograph_report_provenance(b), &ident, err);
    free(bytes);
    return status;
}

static specrt_status print_result(const cograph_build *b, specrt_error *err) {
    const cli_common *common = &b->options->common;
    const char *const outputs[] = {common->output, b->options->counts_out};
    if (common->json) return sl_cli_print_json(cograph_report_json(b), err);
    if (!common->quiet) cograph_report_table(b, sl_cli_table(outputs, 2));
    return sl_out_flush_stdout(err);
}

static specrt_status write_all(cograph_build *b, pairs *p, double started, specrt_error *err) {
    const cograph_options *o = b->options;
    int threads = (int)o->common.threads;
    out_file out = {0};
    specrt_status status = SPECRT_STATUS_OK;
    if (o->common.output || o->common.json)
        TRY(graph_create(p, threads, &o->rule, b->header.n_vocab, b->header.n_tokens, &b->graph,
                         err));
    if (b->graph.header.n_edges && !b->graph.n_rule_edges)
        sl_cli_warn("no edge satisfies EvoSpec's rule (--max-degree, --min-count, --tau), so "
                    "retrieve will find no successors");
    b->seconds = sl_measure_seconds() - started;
    if (o->counts_out) {
        TRY(sl_out_open(&out, o->counts_out, o->common.force, err));
        status = sl_pairs_write(p, threads, &b->header, &out, err);
        /* A pipe or device is done with here; a file waits until all is well. */
        if (!status && !out.temp) status = sl_out_commit(&out, err);
    }
    if (!status) status = print_result(b, err);
    if (!status && o->common.output) status = write_bundle(b, err);
    if (!status && out.f) status = sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}

/* ---- the run ---- */

/* The folder of the output, without its last slash. */
static char *temp_folder(const cograph_options *o) {
    const char *path = o->common.output ? o->common.output : o->counts_out;
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (o->temp) return strdup(o->temp);
    if (!slash || strncmp(path, "/dev/", 5) == 0) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static specrt_status count(cograph_build *b, const tokenizer *tok, const counts_vocab *v, pairs *p,
                           specrt_error *err) {
    double started = sl_measure_seconds();
    specrt_status status = SPECRT_STATUS_OK;
    if (b->options->corpus.n)
        status = count_pairs(b->options, tok, v->types, p, &b->header, &b->stats, err);
    b->seconds_counting = sl_measure_seconds() - started;
    if (!status) status = merge_files(b, p, err);
    if (!status && !b->options->corpus.n && sl_mpi_rank() == 0) status = check_merged(b, v, err);
    return status;
}

static specrt_status run(cograph_build *b, tokenizer **tok, counts_vocab *v, pairs **p,
                         char **folder, specrt_error *err) {
    const cograph_options *o = b->options;
    double started = sl_measure_seconds();
    specrt_status status = open_vocab(o, tok, v, err);
    if (!status && o->corpus.n) header_from(o, v, &b->header);
    if (!status && sl_mpi_rank() == 0) status = check_output(b, err);
    *folder = temp_folder(o);
    if (!status && !*folder) status = sl_error_no_memory(err, NULL);
    if (!status)
        status = sl_pairs_create(b->header.n_vocab, (uint64_t)o->memory_mib << 20,
                                 (int)o->common.threads, *folder, p, err);
    TRY(sl_mpi_agree(status, err));
    status = count(b, *tok, v, *p, err);
    TRY(gather(b, *p, status, err));
    if (sl_mpi_rank() > 0) return SPECRT_STATUS_OK;
    sl_corpus_warn(&b->stats);
    return write_all(b, *p, started, err);
}

static int build_graph(int argc, char **argv) {
    cograph_options options;
    cograph_build b = {.options = &options};
    tokenizer *tok = NULL;
    counts_vocab v = {0};
    pairs *p = NULL;
    char *folder = NULL;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    int code = cograph_options_parse(&options, argc, argv);
    if (code < 0) code = run(&b, &tok, &v, &p, &folder, &err) ? sl_cli_fail(&err) : CLI_OK;
    graph_free(&b.graph);
    sl_pairs_free(p);
    free(folder);
    free(v.types);
    sl_tokenizer_close(tok);
    cograph_options_free(&options);
    return code;
}

int main(int argc, char **argv) {
    sl_mpi_begin(&argc, &argv);
    return sl_mpi_end(build_graph(argc, argv));
}
