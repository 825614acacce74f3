/* verify.c : specrt-bundle verify. Opening checks header, table, checksums, and what tells a bundle from
 * another; this adds the content of every section that the runtime knows, the checksums of the others,
 * the provenance, the tokenizer and the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bundle_file.h"
#include "base/error.h"
#include "base/json.h"
#include "model/model.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct checks {
    const char *bundle, *tokenizer, *model, *tensor;
} checks;

static specrt_status check_provenance(const checks *c, const specrt_bundle *bundle,
                                      specrt_error *err) {
    size_t n;
    json_object *provenance = verb_provenance(bundle);
    bool broken = !provenance && specrt_bundle_data(bundle, "prov", &n);
    json_object_put(provenance);
    if (!broken) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CONTENT,
                            "%s: section 'prov': expected one JSON object", c->bundle);
}

/* Sections of one bundle are of one head. */
static specrt_status check_shape(const char *path, const specrt_bundle *bundle, const char *tag,
                                 int64_t n_rows, int64_t n_cols, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    if (!d || d->head_rows == 0 || (d->head_rows == n_rows && d->head_cols == n_cols))
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CONTENT,
                            "%s: section '%s': expected the bundle's head [%d, %d], found one of "
                            "[%lld, %lld]; build it again",
                            path, tag, (int)d->head_rows, (int)d->head_cols, (long long)n_rows,
                            (long long)n_cols);
}

/* Without a head, an index that has no vectors of its own is as good as it can be. */
static specrt_status check_index(const char *path, const specrt_bundle *bundle,
                                 const specrt_head *head, specrt_error *err) {
    specrt_hnsw index;
    size_t n;
    specrt_status status = specrt_bundle_hnsw(bundle, head, &index, err);
    if (status != SPECRT_STATUS_OK && (head || status != SPECRT_STATUS_BAD_ARG)) return status;
    const specrt_hnsw_header *h =
        (const specrt_hnsw_header *)specrt_bundle_data(bundle, "hnsw", &n);
    return check_shape(path, bundle, "hnsw", h->n_rows, h->dim, err);
}

static specrt_status check_clusters(const char *path, const specrt_bundle *bundle, const char *tag,
                                    specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    specrt_clusters c;
    TRY(specrt_bundle_clusters(bundle, tag, &c, err));
    int32_t n_rows = c.header->n_rows;
    bool has_ids = d && n_rows > d->head_rows && c.header->n_members <= d->head_rows;
    if (has_ids) n_rows = d->head_rows; /* of a draft head: its rows are tokens here and there */
    return check_shape(path, bundle, tag, n_rows, c.header->n_cols, err);
}

static specrt_status check_graph(const char *path, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    specrt_cograph g;
    TRY(specrt_bundle_cograph(bundle, &g, err));
    if (!d || d->n_vocab == 0 || g.header->n_vocab == d->n_vocab) return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BUNDLE_CONTENT,
        "%s: section 'cograph': expected the tokenizer's %d ids, found %d; build "
        "it again",
        path, (int)d->n_vocab, (int)g.header->n_vocab);
}

static specrt_status check_sketch(const char *path, const specrt_bundle *bundle,
                                  specrt_error *err) {
    specrt_sketch s;
    TRY(specrt_bundle_sketch(bundle, &s, err));
    return check_shape(path, bundle, "sketch", s.header->n_rows, s.header->n_cols, err);
}

specrt_status verb_check_section(const char *path, const specrt_bundle *bundle, const char *tag,
                                 const specrt_head *head, specrt_error *err) {
    if (strcmp(tag, "cluster") == 0 || strcmp(tag, "group") == 0 || strcmp(tag, "centroid") == 0)
        return check_clusters(path, bundle, tag, err);
    if (strcmp(tag, "cograph") == 0) return check_graph(path, bundle, err);
    if (strcmp(tag, "hnsw") == 0) return check_index(path, bundle, head, err);
    return strcmp(tag, "sketch") == 0 ? check_sketch(path, bundle, err) : SPECRT_STATUS_OK;
}

static specrt_status check_sections(const bundle_file *b, specrt_error *err) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(b->bundle, &n);
    for (int32_t i = 0; i < n; i++) {
        const void *data;
        void *owned;
        TRY(bundle_file_section(b, &s[i], &data, &owned, err));
        free(owned);
        TRY(verb_check_section(b->path, b->bundle, verb_tag(&s[i]), NULL, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status check_tokenizer(const checks *c, const specrt_bundle *bundle,
                                     specrt_error *err) {
    static const uint8_t unknown[32];
    const specrt_ident *d = specrt_bundle_ident(bundle);
    tokenizer *tok;
    uint8_t sha256[32];
    if (!d || memcmp(d->tokenizer_sha256, unknown, sizeof unknown) == 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: records no tokenizer, so %s cannot be compared with it",
                                c->bundle, c->tokenizer);
    TRY(sl_tokenizer_open(c->tokenizer, &tok, err));
    sl_tokenizer_fingerprint(tok, sha256);
    sl_tokenizer_close(tok);
    return specrt_bundle_check_tokenizer(bundle, sha256, err);
}

static specrt_status check_model(const checks *c, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    model m;
    specrt_head_desc desc;
    specrt_head *head = NULL;
    int32_t *ids = NULL;
    size_t n_bytes;
    if (!d || d->head_rows == 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: records no head, so %s cannot be compared with it", c->bundle,
                                c->model);
    TRY(sl_model_open(c->model, &m, err));
    specrt_status status = sl_model_head(&m, c->tensor, &desc, NULL, err);
    if (status == SPECRT_STATUS_OK)
        status =
            sl_model_d2t(&m, desc.n_rows, d->n_vocab ? d->n_vocab : SPECRT_MAX_VOCAB, &ids, err);
    desc.ids = ids;
    if (status == SPECRT_STATUS_OK) status = specrt_head_bind(bundle, &desc, NULL, &head, err);
    if (status == SPECRT_STATUS_OK && specrt_bundle_data(bundle, "hnsw", &n_bytes))
        status = verb_check_section(c->bundle, bundle, "hnsw", head, err);
    specrt_head_close(head);
    free(ids);
    sl_model_close(&m);
    return status;
}

static specrt_status check_all(const checks *c, int32_t *n_sections, specrt_error *err) {
    bundle_file b;
    TRY(bundle_file_open(c->bundle, &b, err));
    specrt_bundle_sections(b.bundle, n_sections);
    specrt_status status = check_sections(&b, err);
    if (status == SPECRT_STATUS_OK) status = check_provenance(c, b.bundle, err);
    if (status == SPECRT_STATUS_OK && c->tokenizer) status = check_tokenizer(c, b.bundle, err);
    if (status == SPECRT_STATUS_OK && c->model) status = check_model(c, b.bundle, err);
    bundle_file_close(&b);
    return status;
}

static void print_result(const checks *c, int32_t n_sections, const cli_common *common) {
    if (common->json) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(c->bundle));
        sl_json_put(o, "ok", json_object_new_boolean(true));
        sl_json_put(o, "n_sections", json_object_new_int(n_sections));
        sl_json_put(o, "tokenizer", sl_json_text(c->tokenizer ? "matches" : NULL));
        sl_json_put(o, "model", sl_json_text(c->model ? "matches" : NULL));
        sl_json_print(o);
    } else if (!common->quiet) {
        printf("%s: ok, %d sections%s%s\n", sl_text_name(c->bundle), n_sections,
               c->tokenizer ? "; tokenizer matches" : "", c->model ? "; model matches" : "");
    }
}

int verify_main(int argc, char **argv) {
    checks c = {0};
    const cli_option options[] = {
        sl_cli_heading("Tokenizer and model"),
        sl_cli_string("tokenizer", "FILE", &c.tokenizer, "GGUF, tokenizer.json or tiktoken ranks"),
        sl_cli_string("model", "FILE", &c.model, "GGUF or safetensors"),
        sl_cli_string("tensor", "NAME", &c.tensor, "name of the head (default: the usual names)"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle verify model.specb --tokenizer tokenizer.json",
        "Checks every checksum and content of a bundle, and that it belongs to a tokenizer and a\n"
        "model. Exit code 3 and the reason when it does not.",
        "specrt-bundle verify BUNDLE [options]", options};
    cli_common common;
    specrt_error err;
    int32_t n_sections = 0;
    int code = verb_start_one(&tool, argc, argv, &common, &c.bundle, "one bundle");
    if (code >= 0) return code;
    if (check_all(&c, &n_sections, &err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    print_result(&c, n_sections, &common);
    return CLI_OK;
}
