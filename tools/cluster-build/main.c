/* cluster-build : from an LM head to clusters of its rows and a router that chooses among them.
 *
 *     model  -> rows.c -> kmeans*.c (seed.c, balance.c, vectors.c) -> members.c -> router.c -> section.c
 *     traces -> examples.c -> train.c (network.c, product.c), route.c --^
 *     options.c  the command line      schedule.c  clusters by level
 *     report.c  table, JSON
 */
#include "build.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"
#include "formats/bundle_write.h"
#include "model/head_check.h"
#include "base/io.h"

/* ---- input ---- */

/* A GGUF brings its tokenizer; without one the head's rows are all taken for tokens. */
static specrt_status open_tokenizer(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    uint8_t sha256[32];
    if (o->tokenizer) {
        TRY(sl_tokenizer_open(o->tokenizer, &b->tok, err));
        sl_tokenizer_fingerprint(b->tok, sha256);
        return sl_tokenizer_check_model(o->model, sha256, sl_tokenizer_name(b->tok), err);
    }
    if (b->source.g) TRY(sl_tokenizer_of_model(b->source.path, &b->tok, err));
    if (!b->tok)
        sl_cli_warn("%s: expected a tokenizer inside, found none; give --tokenizer, which names "
                    "the reserved rows",
                    o->model);
    return SPECRT_STATUS_OK;
}

/* Padding and placeholders. */
static specrt_status find_reserved(cluster_build *b, specrt_error *err) {
    int32_t n_vocab = sl_tokenizer_n_vocab(b->tok);
    if (n_vocab > b->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: \"%s\": expected a row for each of the tokenizer's %" PRId32
                                " tokens, found %" PRId64,
                                b->options->model, b->head_name, n_vocab, b->head.n_rows);
    for (int32_t row = 0; row < b->head.n_rows; row++) {
        int32_t id = build_id(b, row);
        if (id >= n_vocab || sl_tokenizer_type(b->tok, id) == TOKEN_RESERVED)
            b->left_out[row] = ROW_RESERVED;
    }
    return SPECRT_STATUS_OK;
}

/* The ids of a draft head with a vocabulary of its own. */
static specrt_status find_ids(cluster_build *b, specrt_error *err) {
    int32_t n_vocab = b->tok ? sl_tokenizer_n_vocab(b->tok) : 0;
    int64_t bound = n_vocab ? n_vocab : SPECRT_MAX_VOCAB;
    TRY(sl_model_d2t(&b->source, b->head.n_rows, bound, &b->ids, err));
    b->head.ids = b->ids;
    b->n_ids = b->ids ? n_vocab : (int32_t)b->head.n_rows;
    for (int32_t i = 0; b->ids && i < b->head.n_rows; i++)
        if (b->ids[i] >= b->n_ids) b->n_ids = b->ids[i] + 1;
    return SPECRT_STATUS_OK;
}

static specrt_status open_rows(cluster_build *b, specrt_error *err) {
    TRY(sl_new(&b->left_out, (size_t)b->head.n_rows, 1, b->options->model, err));
    if (b->tok) TRY(find_reserved(b, err));
    int threads = (int)b->options->common.threads;
    specrt_status status = sl_head_check(&b->head, b->head_name, b->left_out, threads, err);
    if (!status) status = members_plan(b, err);
    if (!status) status = rows_open(&b->head, b->left_out, threads, &b->rows, err);
    if (!status && b->rows.n == 0)
        status = specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "expected rows to cluster, found only zero, reserved or repeated ones");
    return sl_model_blame(&b->source, status, err);
}

/* ---- output ---- */

static specrt_status make_ident(cluster_build *b, specrt_error *err) {
    specrt_ident *out = &b->ident;
    if (b->tok) {
        out->n_vocab = sl_tokenizer_n_vocab(b->tok);
        out->n_normal = sl_tokenizer_n_normal(b->tok);
        sl_tokenizer_fingerprint(b->tok, out->tokenizer_sha256);
        snprintf(out->tokenizer_name, sizeof out->tokenizer_name, "%s", sl_tokenizer_name(b->tok));
    }
    return sl_model_blame(&b->source, sl_bundle_ident_head(out, &b->head, b->head_name, err), err);
}

static specrt_status check_output(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    const cli_common *common = &o->common;
    if (!common->output) return SPECRT_STATUS_OK;
    TRY(make_ident(b, err));
    return sl_bundle_check_section(common->output, cluster_section_tag(o->router), common->force,
                                   &b->ident, err);
}

static specrt_status write_bundle(const cluster_build *b, specrt_error *err) {
    const cli_common *common = &b->options->common;
    bundle_part part = {.tag = cluster_section_tag(b->options->router),
                        .version = 1,
                        .depends = SPECRT_SECTION_DEPENDS_HEAD};
    if (cluster_options_is_trained(b->options)) part.depends |= SPECRT_SECTION_DEPENDS_DRAFTER;
    void *bytes = cluster_section_bytes(b, &part.n_bytes);
    part.data = bytes;
    specrt_status status = sl_bundle_write_section(common->output, common->force, &part,
                                                   cluster_report_provenance(b), &b->ident, err);
    free(bytes);
    return status;
}

static specrt_status print_result(const cluster_build *b, specrt_error *err) {
    const cli_common *common = &b->options->common;
    if (common->json) return sl_cli_print_json(cluster_report_json(b), err);
    if (!common->quiet) cluster_report_table(b, sl_cli_table(&common->output, 1));
    return sl_out_flush_stdout(err);
}

/* ---- the work ---- */

/* Progress of k-means: a line that is redrawn, or one for each iteration under -v. */
static void each_iteration(void *user, int32_t iteration, double objective, int32_t moved) {
    const cluster_build *b = user;
    const cli_common *common = &b->options->common;
    if (common->verbose || common->progress == 1)
        sl_cli_info("k-means %" PRId32 ": objective %.6f, %" PRId32 " rows moved", iteration + 1,
                    objective / b->rows.n, moved);
}

static int32_t default_clusters(const cluster_build *b) {
    int32_t n = b->rows.n > 150000 ? 512 : 256;
    if (b->options->router == SPECRT_ROUTER_CORAL) n = b->rows.n < 16 ? b->rows.n : 16;
    if (b->options->router == SPECRT_ROUTER_CENTROID)
        n = b->rows.n / 64 < 2048 ? b->rows.n / 64 : 2048;
    return n < 1 ? 1 : n;
}

static specrt_status cluster(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    const row_set *rows = &b->rows;
    int32_t *worth = NULL;
    bool by_states = !cluster_options_is_trained(o) && o->traces.n > 0;
    if (by_states) {
        TRY(space_open(rows, &b->training.examples, (int)o->common.threads, &b->space, err));
        rows = &b->space.rows;
    }
    if (o->ordered) TRY(members_worth(b, &worth, err));
    kmeans_options options = {.n_clusters =
                                  o->n_clusters ? (int32_t)o->n_clusters : default_clusters(b),
                              .n_iterations = (int32_t)o->n_iterations,
                              .tolerance = 1e-5,
                              .largest = o->largest,
                              .worth = worth,
                              .seed = (uint64_t)o->common.seed,
                              .threads = (int)o->common.threads,
                              .each = each_iteration,
                              .user = b};
    if (o->ordered) options.room = (int32_t)(b->head.n_rows / o->n_clusters - o->n_hot);
    specrt_status status = kmeans_run(rows, &options, &b->k, err);
    free(worth);
    return status ? status : members_make(b, err);
}

static specrt_status run(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    double started = sl_measure_seconds();
    TRY(sl_model_open(o->model, &b->source, err));
    TRY(sl_model_head(&b->source, o->tensor, &b->head, &b->head_name, err));
    TRY(open_tokenizer(b, err));
    TRY(find_ids(b, err));
    TRY(check_output(b, err));
    TRY(router_read(b, err));
    TRY(open_rows(b, err));
    TRY(o->stored ? members_read(b, err) : cluster(b, err));
    TRY(router_make(b, err));
    b->seconds = sl_measure_seconds() - started;
    if (o->common.output) TRY(write_bundle(b, err));
    return print_result(b, err);
}

int main(int argc, char **argv) {
    cluster_options options;
    cluster_build b = {.options = &options};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    int code = cluster_options_parse(&options, argc, argv);
    if (code < 0) code = run(&b, &err) ? sl_cli_fail(&err) : CLI_OK;
    router_weights_free(&b.router);
    router_training_free(&b.training);
    sl_cli_list_free(&options.traces);
    free(b.ids);
    free(b.left_out);
    free(b.order);
    free(b.weights);
    cluster_members_free(&b.members);
    space_close(&b.space);
    kmeans_free(&b.k);
    rows_close(&b.rows);
    sl_tokenizer_close(b.tok);
    sl_model_close(&b.source);
    return code;
}
