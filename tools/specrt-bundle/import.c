/* import.c : specrt-bundle import. The list keeps its order behind the forced ids; its size is kept, so
 * forced ids that it lacks take the place of its last ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "formats/bundle_write.h"
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/token_map.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct request {
    const char *map, *tokenizer, *model, *tensor, *values;
    int64_t size; /* 0: as many as the map has */
    bool dedupe;
    const cli_common *common;
} request;

/* The ranking being made, and how it differs from the file. */
typedef struct rank_list {
    specrt_ranks_header header;
    int32_t *ids;       /* [n_vocab] by rank */
    uint64_t *counts;   /* [n_vocab] by rank */
    uint64_t *by_id;    /* [n_vocab] counts of the file */
    uint8_t *taken;     /* [n_vocab] already ranked */
    int32_t n_added;    /* forced ids that the file lacks */
    int32_t n_reserved; /* placeholders in the file */
} rank_list;

static void rank_list_free(rank_list *r) {
    free(r->ids);
    free(r->counts);
    free(r->by_id);
    free(r->taken);
}

static specrt_status rank_list_alloc(rank_list *r, int32_t n_vocab, specrt_error *err) {
    size_t n = (size_t)n_vocab;
    *r = (rank_list){.header = {.n_vocab = n_vocab}};
    TRY(sl_new(&r->ids, n, sizeof *r->ids, "the list", err));
    TRY(sl_new(&r->counts, n, sizeof *r->counts, "the list", err));
    TRY(sl_new(&r->by_id, n, sizeof *r->by_id, "the list", err));
    return sl_new(&r->taken, n, 1, "the list", err);
}

static void rank(rank_list *r, int32_t id) {
    if (r->taken[id]) return;
    r->taken[id] = 1;
    r->counts[r->header.n_ranked] = r->by_id[id];
    r->ids[r->header.n_ranked++] = id;
}

/* Terminators, other specials, the list, and its reserved placeholders last. */
static void fill(rank_list *r, const tokenizer *tok, const token_map *map) {
    specrt_ranks_header *h = &r->header;
    const int32_t *terminators = sl_tokenizer_terminators(tok, &h->n_terminators);
    for (int32_t i = 0; map->counts && i < map->n; i++) r->by_id[map->ids[i]] = map->counts[i];
    for (int32_t i = 0; i < h->n_terminators; i++) rank(r, terminators[i]);
    for (int32_t id = 0; id < h->n_vocab; id++)
        if (sl_tokenizer_type(tok, id) == TOKEN_SPECIAL) rank(r, id);
    r->n_added = h->n_forced = h->n_ranked;
    for (int32_t i = 0; i < map->n; i++) {
        int32_t id = map->ids[i];
        bool reserved = sl_tokenizer_type(tok, id) == TOKEN_RESERVED && !r->taken[id];
        r->n_added -= r->taken[id];
        r->n_reserved += reserved;
        if (!reserved) rank(r, id);
    }
    h->n_valid = h->n_ranked;
    for (int32_t i = 0; i < map->n; i++) rank(r, map->ids[i]);
    for (int32_t i = h->n_terminators; i < h->n_ranked; i++) h->n_tokens += r->counts[i];
}

/* The size of the file, unless --size says otherwise or reserved ids make it smaller. */
static specrt_status set_size(const request *q, rank_list *r, const token_map *map,
                              specrt_error *err) {
    specrt_ranks_header *h = &r->header;
    h->n_default = map->n < h->n_valid ? map->n : h->n_valid;
    if (q->size) h->n_default = (int32_t)q->size;
    if (h->n_default >= h->n_forced && h->n_default <= h->n_valid) return SPECRT_STATUS_OK;
    return specrt_error_set(err, q->size ? SPECRT_STATUS_BAD_ARG : SPECRT_STATUS_BAD_INPUT,
                            "%s: size %" PRId32 ": expected at least %" PRId32
                            " (the forced ids) and at most %" PRId32
                            " (the valid ids); give --size",
                            q->map, h->n_default, h->n_forced, h->n_valid);
}

/* ---- what goes into the bundle ---------------------------------------------------------------- */

static json_object *digest(const char *path) {
    file_view view;
    if (sl_file_map(path, &view, NULL) != SPECRT_STATUS_OK) return NULL; /* a folder */
    json_object *o = sl_json_hex64(specrt_hash64(view.bytes, view.n, 0));
    sl_file_unmap(&view);
    return o;
}

static void put_figures(json_object *o, const rank_list *r, const token_map *map) {
    sl_json_put(o, "kind", sl_json_text(map->kind));
    sl_json_put(o, "values", sl_json_text(map->was_offset ? "offset" : "absolute"));
    sl_json_put(o, "n_imported", json_object_new_int(map->n));
    sl_json_put(o, "n_dropped", json_object_new_int(map->n_dropped));
    sl_json_put(o, "n_forced_added", json_object_new_int(r->n_added));
    sl_json_put(o, "n_reserved", json_object_new_int(r->n_reserved));
    sl_json_put(o, "n_selected", json_object_new_int(r->header.n_default));
    sl_json_put(o, "n_forced", json_object_new_int(r->header.n_forced));
    sl_json_put(o, "n_valid", json_object_new_int(r->header.n_valid));
}

static char *provenance(const request *q, const rank_list *r, const token_map *map) {
    json_object *o = json_object_new_object(), *input = json_object_new_object();
    sl_json_put(input, "file", sl_json_base_name(q->map));
    sl_json_put(input, "xxh64", digest(q->map));
    sl_json_put(o, "tool", sl_json_text("specrt-bundle import " SPECRT_VERSION_STRING));
    sl_json_put(o, "input", input);
    sl_json_put(o, "counted", json_object_new_boolean(map->counts != NULL));
    put_figures(o, r, map);
    return sl_json_to_text(o);
}

static specrt_status set_head(const request *q, specrt_ident *ident, specrt_error *err) {
    model m;
    specrt_head_desc head;
    const char *name;
    TRY(sl_model_open(q->model, &m, err));
    specrt_status status = sl_model_head(&m, q->tensor, &head, &name, err);
    if (status == SPECRT_STATUS_OK && head.n_rows < ident->n_vocab)
        status = specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                  "%s: its head has %lld rows, the tokenizer %" PRId32
                                  " ids; they belong to different models",
                                  q->model, (long long)head.n_rows, ident->n_vocab);
    if (status == SPECRT_STATUS_OK && m.g)
        status = sl_tokenizer_check_model(q->model, ident->tokenizer_sha256,
                                          (const char *)ident->tokenizer_name, err);
    if (status == SPECRT_STATUS_OK) status = sl_bundle_ident_head(ident, &head, name, err);
    sl_model_close(&m);
    return status;
}

static specrt_status write(const request *q, const tokenizer *tok, const rank_list *r,
                           const token_map *map, specrt_error *err) {
    specrt_ident ident = {.n_vocab = r->header.n_vocab, .n_normal = sl_tokenizer_n_normal(tok)};
    bundle_part part;
    sl_tokenizer_fingerprint(tok, ident.tokenizer_sha256);
    snprintf(ident.tokenizer_name, sizeof ident.tokenizer_name, "%s", sl_tokenizer_name(tok));
    if (q->model) TRY(set_head(q, &ident, err));
    TRY(sl_bundle_ranks(&r->header, r->ids, r->counts, &part, err));
    specrt_status status = sl_bundle_write_section(q->common->output, q->common->force, &part,
                                                   provenance(q, r, map), &ident, err);
    free((void *)(uintptr_t)part.data);
    return status;
}

/* ---- the verb --------------------------------------------------------------------------------- */

static bool is_ascending(const token_map *map) {
    for (int32_t i = 1; i < map->n; i++)
        if (map->ids[i] < map->ids[i - 1]) return false;
    return map->n > 1;
}

static void report(const request *q, const rank_list *r, const token_map *map) {
    const specrt_ranks_header *h = &r->header;
    if (q->common->json) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(q->common->output));
        put_figures(o, r, map);
        sl_json_print(o);
        return;
    }
    int32_t n_lost = h->n_valid - h->n_default;
    sl_cli_info("%s: %s%s, %" PRId32 " ids; size %" PRId32, q->map, map->kind,
                map->was_offset ? " of offsets" : "", map->n, h->n_default);
    if (map->n_dropped) sl_cli_info("%" PRId32 " repeated entries left out", map->n_dropped);
    if (r->n_reserved)
        sl_cli_info("%" PRId32 " reserved placeholders left out of every list", r->n_reserved);
    if (r->n_added)
        sl_cli_info("%" PRId32
                    " forced ids that the file lacks (terminators and other specials) come "
                    "first",
                    r->n_added);
    if (n_lost > 0)
        sl_cli_info("its last %" PRId32 " ids are beyond that size; --size %" PRId32 " takes all",
                    n_lost, h->n_valid);
    if (is_ascending(map) && !map->counts)
        sl_cli_info("the ids ascend, so the file tells no frequency; a smaller size keeps low ids");
}

static specrt_status run(const request *q, const tokenizer *tok, specrt_error *err) {
    token_map_options o = {.n_vocab = sl_tokenizer_n_vocab(tok), .dedupe = q->dedupe};
    token_map map;
    rank_list r;
    sl_token_map_values_of(q->values, &o.values);
    TRY(sl_token_map_read(q->map, &o, &map, err));
    specrt_status status = rank_list_alloc(&r, o.n_vocab, err);
    if (status == SPECRT_STATUS_OK) {
        fill(&r, tok, &map);
        status = set_size(q, &r, &map, err);
    }
    if (status == SPECRT_STATUS_OK) status = write(q, tok, &r, &map, err);
    if (status == SPECRT_STATUS_OK) report(q, &r, &map);
    rank_list_free(&r);
    sl_token_map_free(&map);
    return status;
}

static int check(const request *q) {
    token_map_values values;
    if (!q->tokenizer)
        return sl_cli_usage(
            "expected --tokenizer FILE, which has the terminators and special tokens");
    if (!q->common->output) return sl_cli_usage("expected -o FILE");
    if (q->tensor && !q->model) return sl_cli_usage("--tensor: expected --model FILE with it");
    if (!sl_token_map_values_of(q->values, &values))
        return sl_cli_usage("--values: expected absolute, offset or blocks, found '%s'", q->values);
    return -1;
}

static int start(const request *q) {
    specrt_error err;
    tokenizer *tok = NULL;
    specrt_status status = sl_tokenizer_open(q->tokenizer, &tok, &err);
    if (status == SPECRT_STATUS_OK) status = run(q, tok, &err);
    sl_tokenizer_close(tok);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}

int import_main(int argc, char **argv) {
    cli_common common;
    request q = {.common = &common};
    const cli_option options[] = {
        sl_cli_heading("Tokenizer and model"),
        sl_cli_string("tokenizer", "FILE", &q.tokenizer,
                      "GGUF, tokenizer.json or tiktoken ranks; required"),
        sl_cli_string("model", "FILE", &q.model, "GGUF or safetensors whose head the bundle names"),
        sl_cli_string("tensor", "NAME", &q.tensor, "name of the head (default: the usual names)"),
        sl_cli_heading("Token map"),
        sl_cli_string(
            "values", "KIND", &q.values,
            "absolute (ids), offset (id minus its index) or blocks (of 16 ids, exllamav3's); "
            "default: the one that fits"),
        sl_cli_flag("dedupe", &q.dedupe, "keep the first of ids that are listed twice"),
        sl_cli_int("size", "N", &q.size, 1, INT32_MAX,
                   "default size of the list (default: all ids of the map)"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle",
        "specrt-bundle import freq_32768.pt --tokenizer tokenizer.json -o model.specb",
        "Writes a bundle from a token map: torch .pt, .npy, safetensors, GGUF, JSON or text, or "
        "a\nfolder with d2t.npy or an EAGLE-3 checkpoint. The forced ids (terminators and "
        "special\ntokens) come first; the others keep the map's order.",
        "specrt-bundle import MAP --tokenizer FILE -o BUNDLE [options]", options};
    int code = verb_start_one(&tool, argc, argv, &common, &q.map, "one token map");
    if (code >= 0) return code;
    code = check(&q);
    if (code < 0) code = start(&q);
    return code;
}
