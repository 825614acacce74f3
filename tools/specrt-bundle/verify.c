/* verify.c : specrt-bundle verify. Opening checks header, table, checksums and the content of every
 * section the runtime knows; this adds the others, the provenance, the tokenizer and the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bundle_file.h"
#include "json_make.h"
#include "model.h"
#include "tokenizer.h"
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

static specrt_status check_sections(const bundle_file *b, specrt_error *err) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(b->bundle, &n);
    for (int32_t i = 0; i < n; i++) {
        const void *data;
        void *owned;
        TRY(bundle_file_section(b, &s[i], &data, &owned, err));
        free(owned);
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
    TRY(tokenizer_open(c->tokenizer, &tok, err));
    tokenizer_fingerprint(tok, sha256);
    tokenizer_close(tok);
    return specrt_bundle_check_tokenizer(bundle, sha256, err);
}

static specrt_status check_model(const checks *c, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    model m;
    specrt_head_desc desc;
    specrt_head *head = NULL;
    if (!d || d->head_rows == 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: records no head, so %s cannot be compared with it", c->bundle,
                                c->model);
    TRY(model_open(c->model, &m, err));
    specrt_status status = model_head(&m, c->tensor, &desc, NULL, err);
    if (status == SPECRT_STATUS_OK) status = specrt_head_bind(bundle, &desc, NULL, &head, err);
    specrt_head_close(head);
    model_close(&m);
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
        json_put(o, "file", json_text(c->bundle));
        json_put(o, "ok", json_object_new_boolean(true));
        json_put(o, "n_sections", json_object_new_int(n_sections));
        json_put(o, "tokenizer", json_text(c->tokenizer ? "matches" : NULL));
        json_put(o, "model", json_text(c->model ? "matches" : NULL));
        json_print(o);
    } else if (!common->quiet) {
        printf("%s: ok, %d sections%s%s\n", c->bundle, n_sections,
               c->tokenizer ? "; tokenizer matches" : "", c->model ? "; model matches" : "");
    }
}

int verify_main(int argc, char **argv) {
    checks c = {0};
    const cli_option options[] = {
        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "What it must belong to"},
        {"tokenizer", 0, "FILE", CLI_STRING, (void *)&c.tokenizer, 0, 0,
         "GGUF, tokenizer.json or tiktoken ranks"},
        {"model", 0, "FILE", CLI_STRING, (void *)&c.model, 0, 0, "GGUF or safetensors"},
        {"tensor", 0, "NAME", CLI_STRING, (void *)&c.tensor, 0, 0, "its head's name, if unusual"},
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle verify model.specb --tokenizer tokenizer.json",
        "Checks every checksum and content of a bundle, and that it belongs to a tokenizer and a\n"
        "model. Exit code 3 and the reason when it does not.",
        "specrt-bundle verify BUNDLE [options]", options};
    cli_common common;
    cli_list rest;
    specrt_error err;
    int32_t n_sections = 0;
    int code = verb_start(&tool, argc, argv, &common, &rest, 1, 1, "one bundle");
    if (code >= 0) return code;
    c.bundle = rest.items[0];
    if (check_all(&c, &n_sections, &err) == SPECRT_STATUS_OK) {
        print_result(&c, n_sections, &common);
        code = CLI_OK;
    } else {
        code = cli_fail(&err);
    }
    cli_list_free(&rest);
    return code;
}
