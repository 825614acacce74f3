/* map.c : specrt-bundle map: a token map of one format as another. */
#include <inttypes.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "model/token_map.h"
#include "verbs.h"

typedef struct request {
    const char *input, *output, *format, *values;
    int64_t n_vocab; /* 0: as the file says */
    bool dedupe, force;
} request;

static specrt_status run(const request *r, token_map *map, specrt_error *err) {
    token_map_options o = {.n_vocab = (int32_t)r->n_vocab, .dedupe = r->dedupe};
    sl_token_map_values_of(r->values, &o.values);
    TRY(sl_token_map_read(r->input, &o, map, err));
    if (r->n_vocab) map->n_vocab = (int32_t)r->n_vocab;
    return sl_token_map_write(map, r->format, r->output, NULL, r->force, err);
}

static void report(const request *r, const token_map *map, const cli_common *common) {
    const char *values = map->was_offset ? "offset" : "absolute";
    if (!common->json) {
        sl_cli_info("%s: %" PRId32 " ids of %s (%s), format %s", r->output, map->n, map->kind,
                    values, r->format);
        return;
    }
    json_object *o = json_object_new_object();
    sl_json_put(o, "file", sl_json_text(r->output));
    sl_json_put(o, "format", sl_json_text(r->format));
    sl_json_put(o, "kind", sl_json_text(map->kind));
    sl_json_put(o, "values", sl_json_text(values));
    sl_json_put(o, "n_ids", json_object_new_int(map->n));
    sl_json_put(o, "n_dropped", json_object_new_int(map->n_dropped));
    sl_json_put(o, "n_vocab", json_object_new_int(map->n_vocab));
    sl_json_print(o);
}

static int check(const request *r, const cli_common *common) {
    token_map_values values;
    if (!r->format) return sl_cli_usage("expected --format, one of %s", sl_token_map_formats());
    if (!r->output) return sl_cli_usage("expected -o FILE");
    if (!sl_token_map_values_of(r->values, &values))
        return sl_cli_usage("--values: expected absolute, offset or blocks, found '%s'", r->values);
    if (sl_out_is_stdout(r->output) && common->json)
        return sl_cli_usage("stdout: expected --json or the map, found both; give -o FILE");
    return -1;
}

int map_main(int argc, char **argv) {
    request r = {0};
    const cli_option options[] = {
        sl_cli_string(
            "format", "F", &r.format,
            "sglang-pt vllm-json text npy speculators token-freq eagle3-pt safetensors mtplx "
            "exllamav3"),
        sl_cli_string("values", "KIND", &r.values,
                      "absolute, offset or blocks (default: recognised by content)"),
        sl_cli_flag("dedupe", &r.dedupe, "keep the first of ids that are listed twice"),
        sl_cli_int("n-vocab", "N", &r.n_vocab, 1, SPECRT_MAX_VOCAB,
                   "number of the target's ids, the length of t2d (default: the file's)"),
        {0}};
    const cli_tool tool = {"specrt-bundle",
                           "specrt-bundle map freq_32768.pt --format vllm-json -o map.json",
                           "Writes a token map of any format in another one. Lists keep their "
                           "order; formats with d2t,\nand vllm-json, are in ascending order. To "
                           "write a bundle, use import, which reads a\ntokenizer too.",
                           "specrt-bundle map MAP --format F -o FILE [options]", options};
    cli_common common;
    specrt_error err;
    token_map map = {0};
    int code = verb_start_one(&tool, argc, argv, &common, &r.input, "one token map");
    if (code >= 0) return code;
    r.output = common.output;
    r.force = common.force;
    code = check(&r, &common);
    if (code < 0) code = run(&r, &map, &err) == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
    if (code == CLI_OK) report(&r, &map, &common);
    sl_token_map_free(&map);
    return code;
}
