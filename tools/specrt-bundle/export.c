/* export.c : specrt-bundle export. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/io.h"
#include "base/json.h"
#include "model/token_map.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct request {
    const char *bundle, *format, *output, *drafter, *head;
    int64_t size, n_vocab; /* 0: as the bundle says */
    char name[64];         /* the default output */
    bool force;
} request;

/* t2d has an entry for every row of the target's head, padding included. */
static int32_t vocabulary(const request *r, const specrt_bundle *bundle, const token_map *map) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    if (r->n_vocab) return (int32_t)r->n_vocab;
    return d && d->head_rows > map->n_vocab ? d->head_rows : map->n_vocab;
}

/* A drafter or head of another tokenizer would be cut to rows that mean other tokens. */
static specrt_status check_model(const char *path, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    if (!path || !d) return SPECRT_STATUS_OK;
    return tokenizer_check_model(path, d->tokenizer_sha256, (const char *)d->tokenizer_name, err);
}

static specrt_status run(request *r, token_map *map, specrt_error *err) {
    const char *source = r->drafter ? r->drafter : r->head;
    specrt_bundle *bundle;
    specrt_ranks ranks;
    TRY(specrt_bundle_open(r->bundle, NULL, &bundle, err));
    specrt_status status = specrt_bundle_ranks(bundle, &ranks, err);
    if (status == SPECRT_STATUS_OK)
        status = token_map_from_ranks(&ranks, (int32_t)r->size, map, err);
    if (status == SPECRT_STATUS_OK) map->n_vocab = vocabulary(r, bundle, map);
    if (status == SPECRT_STATUS_OK) status = check_model(source, bundle, err);
    specrt_bundle_close(bundle);
    TRY(status);
    if (!r->output) {
        TRY(token_map_default_name(r->format, map->n, r->name, sizeof r->name, err));
        r->output = r->name;
    }
    return token_map_write(map, r->format, r->output, source, r->force, err);
}

/* Without -o the name is the result; a program wants nothing else on stdout. */
static void report(const request *r, const token_map *map, const cli_common *common) {
    if (common->json) {
        json_object *o = json_object_new_object();
        json_put(o, "file", json_text(r->output));
        json_put(o, "format", json_text(r->format));
        json_put(o, "n_ids", json_object_new_int(map->n));
        json_put(o, "n_vocab", json_object_new_int(map->n_vocab));
        json_print(o);
        return;
    }
    if (!common->output) puts(r->output);
    cli_info("%s: %" PRId32 " ids of %" PRId32 ", format %s", r->output, map->n, map->n_vocab,
             r->format);
}

static int check(const request *r, const cli_common *common) {
    bool to_stdout =
        r->output && (strcmp(r->output, "-") == 0 || strcmp(r->output, "/dev/stdout") == 0);
    if (!r->format) return cli_usage("expected --format, one of %s", token_map_formats());
    if (r->drafter && strcmp(r->format, "gguf") != 0)
        return cli_usage("--drafter goes with --format gguf");
    if (r->head && strcmp(r->format, "safetensors") != 0)
        return cli_usage("--head goes with --format safetensors");
    if (to_stdout && common->json)
        return cli_usage("--json and the map cannot both go to stdout; give -o FILE");
    return -1;
}

int export_main(int argc, char **argv) {
    request r = {0};
    const cli_option options[] = {
        cli_heading("What to write"),
        cli_string(
            "format", "F", &r.format,
            "sglang-pt vllm-json text npy speculators token-freq eagle3-pt safetensors gguf"),
        cli_int("size", "N", &r.size, 1, INT32_MAX, "ids (default: the calibrated size)"),
        cli_int("n-vocab", "N", &r.n_vocab, 1, INT32_MAX,
                "length of t2d (default: rows of the recorded head, else the tokenizer's ids)"),
        cli_string("drafter", "FILE", &r.drafter,
                   "gguf: the drafter to rewrite with a smaller head"),
        cli_string("head", "FILE", &r.head,
                   "safetensors: add the rows of this model's head as lm_head.weight"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle export model.specb --format sglang-pt -o freq_32768.pt",
        "Writes the most frequent ids of a bundle as a token map of another engine. Without -o\n"
        "the file gets a usual name in this folder, which is printed; npy writes a folder.\n"
        "docs/TOKEN_MAPS.md says which engine reads which format, and with which flags.",
        "specrt-bundle export BUNDLE --format F [options]", options};
    cli_common common;
    cli_list rest;
    specrt_error err;
    token_map map = {0};
    int code = verb_start(&tool, argc, argv, &common, &rest, 1, 1, "one bundle");
    if (code >= 0) return code;
    r.bundle = rest.items[0];
    r.output = common.output;
    r.force = common.force;
    code = check(&r, &common);
    if (code < 0) code = run(&r, &map, &err) == SPECRT_STATUS_OK ? CLI_OK : cli_fail(&err);
    if (code == CLI_OK) report(&r, &map, &common);
    token_map_free(&map);
    cli_list_free(&rest);
    return code;
}
