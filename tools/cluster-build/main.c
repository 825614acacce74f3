/* cluster-build : from an LM head to clusters of its rows and a router that chooses among them.
 *
 *     model  -> rows.c -> kmeans.c (seed.c, balance.c, vectors.c) -> router.c -> section.c -> bundle
 *     traces -> examples.c, arrays.c -> train.c (network.c, product.c), route.c --^
 *     options.c  the command line      schedule.c  clusters by level
 *     report.c  table, JSON            report_html.c  --report
 */
#include "build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bundle_write.h"
#include "io.h"

/* ---- input ---- */

/* A GGUF brings its tokenizer; without one the head's rows are all taken for tokens. */
static specrt_status open_tokenizer(build *b, specrt_error *err) {
    const build_options *o = b->options;
    uint8_t sha256[32];
    if (o->tokenizer) {
        TRY(tokenizer_open(o->tokenizer, &b->tok, err));
        tokenizer_fingerprint(b->tok, sha256);
        return b->source.g
                   ? tokenizer_check_model(b->source.path, sha256, tokenizer_name(b->tok), err)
                   : SPECRT_STATUS_OK;
    }
    if (!b->source.g || tokenizer_open(b->source.path, &b->tok, NULL) != SPECRT_STATUS_OK)
        cli_warn("%s: no tokenizer inside; give --tokenizer so that reserved rows are known",
                 o->model);
    return SPECRT_STATUS_OK;
}

/* u8 [n_rows]: padding and placeholders. */
static specrt_status find_reserved(const build *b, uint8_t **out, specrt_error *err) {
    int32_t n_vocab = tokenizer_n_vocab(b->tok);
    if (n_vocab > b->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: \"%s\": expected a row for each of the tokenizer's %" PRId32
                                " tokens, found %" PRId64,
                                b->options->model, b->head_name, n_vocab, b->head.n_rows);
    *out = calloc((size_t)b->head.n_rows, 1);
    if (!*out) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    for (int32_t row = 0; row < b->head.n_rows; row++) {
        int32_t id = build_id(b, row);
        (*out)[row] = id >= n_vocab || tokenizer_type(b->tok, id) == TOKEN_RESERVED;
    }
    return SPECRT_STATUS_OK;
}

/* The ids of a draft head with a vocabulary of its own. */
static specrt_status find_ids(build *b, specrt_error *err) {
    int32_t n_vocab = b->tok ? tokenizer_n_vocab(b->tok) : 0;
    int64_t bound = n_vocab ? n_vocab : SPECRT_MAX_VOCAB;
    TRY(model_d2t(&b->source, b->head.n_rows, bound, &b->ids, err));
    b->head.ids = b->ids;
    b->n_ids = b->ids ? n_vocab : (int32_t)b->head.n_rows;
    for (int32_t i = 0; b->ids && i < b->head.n_rows; i++)
        if (b->ids[i] >= b->n_ids) b->n_ids = b->ids[i] + 1;
    return SPECRT_STATUS_OK;
}

static specrt_status open_rows(build *b, specrt_error *err) {
    uint8_t *reserved = NULL;
    if (b->tok) TRY(find_reserved(b, &reserved, err));
    specrt_status status =
        rows_open(&b->head, reserved, (int)b->options->common.threads, &b->rows, err);
    free(reserved);
    if (!status && b->rows.n == 0)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "no row is left to cluster: all are zero, reserved or equal to "
                                  "others");
    return model_blame(&b->source, status, err);
}

/* ---- output ---- */

static specrt_status make_ident(const build *b, specrt_ident *out, specrt_error *err) {
    *out = (specrt_ident){0};
    if (b->tok) {
        out->n_vocab = tokenizer_n_vocab(b->tok);
        out->n_normal = tokenizer_n_normal(b->tok);
        tokenizer_fingerprint(b->tok, out->tokenizer_sha256);
        snprintf(out->tokenizer_name, sizeof out->tokenizer_name, "%s", tokenizer_name(b->tok));
    }
    return bundle_ident_head(out, &b->head, b->head_name, err);
}

static specrt_status check_output(const build *b, specrt_error *err) {
    const build_options *o = b->options;
    specrt_ident ident;
    if (o->report) TRY(out_check(o->report, o->common.force, err));
    if (!o->common.output) return SPECRT_STATUS_OK;
    TRY(bundle_write_check(o->common.output, section_tag(o->router), o->common.force, err));
    TRY(make_ident(b, &ident, err));
    return bundle_ident_check(o->common.output, &ident, err);
}

static specrt_status write_bundle(const build *b, specrt_error *err) {
    specrt_ident ident;
    bundle_part part = {.tag = section_tag(b->options->router),
                        .version = 1,
                        .depends = SPECRT_SECTION_DEPENDS_HEAD};
    if (options_is_trained(b->options)) part.depends |= SPECRT_SECTION_DEPENDS_DRAFTER;
    void *bytes = section_bytes(b, &part.n_bytes);
    char *provenance = report_provenance(b);
    specrt_status status = bytes && provenance ? make_ident(b, &ident, err)
                                               : specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                                                  "out of memory for the bundle");
    part.data = bytes;
    part.provenance = provenance;
    bundle_update update = {
        .parts = &part, .n_parts = 1, .ident = &ident, .force = b->options->common.force};
    if (!status) status = bundle_write(b->options->common.output, &update, err);
    free(bytes);
    free(provenance);
    return status;
}

static specrt_status print_result(const build *b, specrt_error *err) {
    const build_options *o = b->options;
    if (o->common.json) {
        char *json = report_json(b);
        if (!json) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
        puts(json);
        free(json);
    } else if (!o->common.quiet) {
        report_table(b, strcmp(o->common.output, "/dev/stdout") == 0 ? stderr : stdout);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return specrt_error_set(err, SPECRT_STATUS_IO, "stdout: cannot write: %s", strerror(errno));
    return SPECRT_STATUS_OK;
}

/* ---- the work ---- */

/* Progress of k-means: a line that is redrawn, or one for each iteration under -v. */
static void each_iteration(void *user, int32_t iteration, double objective, int32_t moved) {
    const build *b = user;
    const cli_common *common = &b->options->common;
    if (common->verbose || common->progress == 1)
        cli_info("k-means %" PRId32 ": objective %.6f, %" PRId32 " rows moved", iteration + 1,
                 objective / b->rows.n, moved);
}

static int32_t default_clusters(const build *b) {
    int32_t n = b->rows.n > 150000 ? 512 : 256;
    if (b->options->router == SPECRT_ROUTER_CORAL) n = b->rows.n < 16 ? b->rows.n : 16;
    if (b->options->router == SPECRT_ROUTER_CENTROID)
        n = b->rows.n / 64 < 2048 ? b->rows.n / 64 : 2048;
    return n < 1 ? 1 : n;
}

static specrt_status cluster(build *b, specrt_error *err) {
    const build_options *o = b->options;
    kmeans_options options = {.n_clusters =
                                  o->n_clusters ? (int32_t)o->n_clusters : default_clusters(b),
                              .n_iterations = (int32_t)o->n_iterations,
                              .tolerance = 1e-5,
                              .balanced = o->balanced,
                              .plus_plus = strcmp(o->init, "kmeans++") == 0,
                              .seed = (uint64_t)o->common.seed,
                              .threads = (int)o->common.threads,
                              .each = each_iteration,
                              .user = b};
    return kmeans_run(&b->rows, &options, &b->k, err);
}

static specrt_status run(build *b, specrt_error *err) {
    const build_options *o = b->options;
    double started = cli_seconds();
    TRY(model_open(o->model, &b->source, err));
    TRY(model_head(&b->source, o->tensor, &b->head, &b->head_name, err));
    TRY(open_tokenizer(b, err));
    TRY(find_ids(b, err));
    TRY(check_output(b, err));
    TRY(router_read(b, err));
    TRY(open_rows(b, err));
    TRY(cluster(b, err));
    TRY(router_make(b, err));
    b->seconds = cli_seconds() - started;
    if (o->report) TRY(report_html(b, err));
    if (o->common.output) TRY(write_bundle(b, err));
    return print_result(b, err);
}

int main(int argc, char **argv) {
    build_options options;
    build b = {.options = &options};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    int code = options_parse(&options, argc, argv);
    if (code < 0) code = run(&b, &err) ? cli_fail(&err) : CLI_OK;
    router_weights_free(&b.router);
    router_training_free(&b.training);
    cli_list_free(&options.traces);
    cli_list_free(&options.examples);
    free(b.ids);
    kmeans_free(&b.k);
    rows_close(&b.rows);
    tokenizer_close(b.tok);
    model_close(&b.source);
    return code;
}
