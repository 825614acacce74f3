/* export.c : specrt-bundle export: a token map, or a drafter's whole folder. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/checkpoint.h"
#include "model/eagle3_gguf.h"
#include "model/head_cut.h"
#include "model/token_map.h"
#include "model/token_pick.h"
#include "tokenizer/tokenizer.h"
#include "engines.h"
#include "ordered.h"
#include "recut.h"
#include "verbs.h"

typedef struct request {
    const char *bundle, *format, *output, *drafter, *head, *target;
    const char *engine, *values;   /* with --for */
    int64_t size, n_vocab;         /* 0: as the bundle says, and the drafter */
    int64_t n_clusters, topk, hot; /* of an ordered head; 0: as the bundle says */
    char name[64];                 /* the default output */
    bool force;
} request;

/* t2d has an entry for every row of the target's head, padding included. */
static int32_t vocabulary(const request *r, const specrt_bundle *bundle, int32_t n_ids) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    if (r->n_vocab) return (int32_t)r->n_vocab;
    return d && d->head_rows > n_ids ? d->head_rows : n_ids;
}

/* A drafter or head of another tokenizer would be cut to rows that mean other tokens. */
static specrt_status check_model(const char *path, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    if (!path || !d) return SPECRT_STATUS_OK;
    return sl_tokenizer_check_model(path, d->tokenizer_sha256, (const char *)d->tokenizer_name,
                                    err);
}

/* ---- what drafts ------------------------------------------------------------------------------ */

/* The drafter, and the rows that it scores before and after. */
typedef struct drafter {
    checkpoint_id id;
    bool converts;     /* from an EAGLE-3 head in safetensors to a GGUF */
    int32_t n_before;  /* 0: it has no head of its own */
    int32_t n_missing; /* ids that rank higher than one taken, and have no row */
    double coverage;
} drafter;

static specrt_status take_drafter(const request *r, model *m, drafter *out, specrt_error *err) {
    const gguf_tensor *d2t = m->g ? sl_gguf_find_tensor(m->g, "d2t") : NULL;
    specrt_head_desc head = {0};
    TRY(sl_checkpoint_identify(m, &out->id, err));
    TRY(sl_checkpoint_refuse_block(&out->id, m->path, err));
    out->converts = out->id.kind == CHECKPOINT_EAGLE3 && !m->g && strcmp(r->format, "gguf") == 0;
    if (!d2t) sl_model_head(m, NULL, &head, NULL, NULL);
    int64_t n = d2t ? d2t->dims[0] : head.n_rows;
    out->n_before = n <= SPECRT_MAX_VOCAB ? (int32_t)n : 0;
    return SPECRT_STATUS_OK;
}

static specrt_status open_drafter(const request *r, drafter *out, specrt_error *err) {
    model m;
    if (!r->drafter) return SPECRT_STATUS_OK;
    TRY(sl_model_open(r->drafter, &m, err));
    specrt_status status = take_drafter(r, &m, out, err);
    sl_model_close(&m);
    return status;
}

/* ---- a list, or a GGUF cut to it -------------------------------------------------------------- */

static void warn_terminators(int32_t n_missing, const char *path) {
    if (n_missing)
        sl_cli_warn("%" PRId32 " of the bundle's terminators have no row in %s: it cannot draft "
                    "the end of a text",
                    n_missing, path);
}

/* Of a head that is cut already, the most frequent tokens that it has rows for. */
static specrt_status keep_rows(const request *r, drafter *d, const specrt_ranks *ranks,
                               const token_map *old, token_map *map, specrt_error *err) {
    int32_t n_vocab = ranks->header->n_vocab, *row_of;
    token_pick pick;
    TRY(sl_token_rows(old->ids, old->n, n_vocab, r->drafter, &row_of, err));
    specrt_status status =
        sl_token_pick(ranks, (int32_t)r->size, row_of, n_vocab, r->drafter, &pick, err);
    free(row_of);
    TRY(status);
    free(map->ids);
    free(map->counts);
    map->counts = NULL;
    map->ids = pick.ids;
    map->n = pick.n;
    d->n_missing = pick.n_missing;
    warn_terminators(pick.n_terminators, r->drafter);
    return SPECRT_STATUS_OK;
}

static specrt_status select_rows(const request *r, drafter *d, const specrt_ranks *ranks,
                                 token_map *map, specrt_error *err) {
    token_map old;
    specrt_error why;
    if (!d->converts && !(d->id.is_gguf && strcmp(r->format, "gguf") == 0)) return SPECRT_STATUS_OK;
    /* Without a d2t rows are ids; a damaged one is refused where the head is cut. */
    if (sl_token_map_read(r->drafter, NULL, &old, &why) != SPECRT_STATUS_OK)
        return SPECRT_STATUS_OK;
    specrt_status status = keep_rows(r, d, ranks, &old, map, err);
    sl_token_map_free(&old);
    return status;
}

/* An EAGLE-3 checkpoint becomes a GGUF, with the tokens of the list that it has rows for. */
static specrt_status write_eagle3(const request *r, token_map *map, specrt_error *err) {
    int32_t n = map->n;
    TRY(sl_eagle3_gguf_write(r->drafter, r->target, map->ids, &map->n, r->output, r->force, err));
    if (map->n < n)
        sl_cli_warn("%s: has no row for %" PRId32 " of the list's %" PRId32
                    " tokens, which are left "
                    "out",
                    r->drafter, n - map->n, n);
    return SPECRT_STATUS_OK;
}

/* A drafter's GGUF without a head, with rows of the target's. */
static specrt_status write_headless(const request *r, const token_map *map, specrt_error *err) {
    out_file out;
    TRY(sl_out_open(&out, r->output, r->force, err));
    specrt_status status = sl_head_cut_gguf(r->drafter, r->target, map->ids, map->n, &out, err);
    if (status == SPECRT_STATUS_OK) return sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}

/* None of our tools converts a target. */
static specrt_status check_llama_target(const char *path, specrt_error *err) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--target %s: expected a GGUF, which llama.cpp loads, found a folder; "
                            "convert it: python3 llama.cpp/convert_hf_to_gguf.py %s --outfile "
                            "target.gguf",
                            path, path);
}

static specrt_status check_target(const request *r, const drafter *d, specrt_error *err) {
    if (!r->target && d->converts)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: an EAGLE-3 checkpoint has no tokenizer: expected --target "
                                "FILE.gguf, the model that it was trained for",
                                r->drafter);
    if (!r->target) return SPECRT_STATUS_OK;
    if (strcmp(r->format, "gguf") != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: a list takes no rows: expected no --target", r->drafter);
    return check_llama_target(r->target, err);
}

static specrt_status write_map(request *r, const drafter *d, token_map *map, specrt_error *err) {
    if (!r->output) {
        TRY(sl_token_map_default_name(r->format, map->n, r->name, sizeof r->name, err));
        r->output = r->name;
    }
    if (d->converts) return write_eagle3(r, map, err);
    if (r->target) return write_headless(r, map, err);
    const char *weights = r->drafter ? r->drafter : r->head;
    if (r->engine && strcmp(r->format, "gguf") != 0) weights = NULL;
    return sl_token_map_write(map, r->format, r->output, weights, r->force, err);
}

static specrt_status run_bundle(request *r, const specrt_bundle *bundle, drafter *d, token_map *map,
                                specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    const char *source = d->converts ? r->target : r->drafter ? r->drafter : r->head;
    specrt_ranks ranks;
    TRY(specrt_bundle_ranks(bundle, &ranks, err));
    TRY(sl_token_map_for(r->format, &ranks, (int32_t)r->size,
                         vocabulary(r, bundle, ranks.header->n_vocab), map, err));
    if (ident) memcpy(map->tokenizer_sha256, ident->tokenizer_sha256, 32);
    TRY(check_model(source, bundle, err));
    TRY(check_model(r->target, bundle, err));
    TRY(select_rows(r, d, &ranks, map, err));
    TRY(write_map(r, d, map, err));
    if (!d->n_before) d->n_before = map->n_vocab;
    return sl_token_coverage(&ranks, map->ids, map->n, &d->coverage, err);
}

static specrt_status run(request *r, drafter *d, token_map *map, specrt_error *err) {
    specrt_bundle *bundle;
    TRY(open_drafter(r, d, err));
    TRY(check_target(r, d, err));
    TRY(specrt_bundle_open(r->bundle, NULL, &bundle, err));
    specrt_status status = run_bundle(r, bundle, d, map, err);
    specrt_bundle_close(bundle);
    return status;
}

/* ---- what came out ---------------------------------------------------------------------------- */

/* The same keys for a drafter of any kind. */
static void put_rows(json_object *o, int32_t n, int32_t n_before, double coverage) {
    sl_json_put(o, "n_rows", json_object_new_int(n));
    sl_json_put(o, "n_rows_before", json_object_new_int(n_before));
    sl_json_put(o, "cut", json_object_new_boolean(n < n_before));
    sl_json_put(o, "coverage", sl_json_real(coverage));
}

/* --json says the same. */
static void say_rows(const request *r, int32_t n, int32_t n_before, double coverage, bool json) {
    if (json) return;
    if (n >= n_before)
        sl_cli_warn("%s: nothing was cut: the drafter had %" PRId32 " rows, and the list is not "
                    "smaller; a smaller --size cuts it",
                    r->output, n_before);
    if (!isnan(coverage))
        sl_cli_info("%s: its %" PRId32 " rows cover %.2f%% of the counted tokens", r->output, n,
                    100 * coverage);
}

/* Without -o the name is the result; a program wants nothing else on stdout. */
static void report(const request *r, const drafter *d, const token_map *map,
                   const cli_common *common) {
    if (common->json) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(r->output));
        sl_json_put(o, "format", sl_json_text(r->format));
        sl_json_put(o, "n_ids", json_object_new_int(map->n));
        sl_json_put(o, "n_vocab", json_object_new_int(map->n_vocab));
        if (r->drafter) sl_json_put(o, "n_missing", json_object_new_int(d->n_missing));
        if (r->drafter) put_rows(o, map->n, d->n_before, d->coverage);
        sl_json_print(o);
    } else {
        if (!common->output) puts(r->output);
        sl_cli_info("%s: %" PRId32 " ids of %" PRId32 ", format %s", r->output, map->n,
                    map->n_vocab, r->format);
    }
    if (r->drafter) say_rows(r, map->n, d->n_before, d->coverage, common->json);
}

/* ---- a drafter's folder ----------------------------------------------------------------------- */

static specrt_status run_recut(const request *r, recut_report *out, specrt_error *err) {
    recut_request q = {.drafter = r->drafter,
                       .output = r->output,
                       .engine = r->engine,
                       .target = r->target,
                       .size = (int32_t)r->size,
                       .n_vocab = (int32_t)r->n_vocab,
                       .force = r->force};
    specrt_bundle *bundle;
    sl_token_map_values_of(r->values, &q.values);
    TRY(specrt_bundle_open(r->bundle, NULL, &bundle, err));
    specrt_status status = specrt_bundle_ranks(bundle, &q.ranks, err);
    if (status == SPECRT_STATUS_OK) status = check_model(r->drafter, bundle, err);
    if (status == SPECRT_STATUS_OK) status = check_model(r->target, bundle, err);
    if (status == SPECRT_STATUS_OK) status = recut(&q, out, err);
    specrt_bundle_close(bundle);
    return status;
}

static void print_recut(const request *r, const recut_report *p) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "file", sl_json_text(r->output));
    sl_json_put(o, "engine", sl_json_text(r->engine));
    sl_json_put(o, "n_ids", json_object_new_int(p->n_rows));
    put_rows(o, p->n_rows, p->n_rows_before, p->coverage);
    sl_json_put(o, "n_vocab", json_object_new_int(p->n_vocab));
    sl_json_put(o, "n_missing", json_object_new_int(p->n_missing));
    sl_json_put(o, "same_weights", json_object_new_boolean(p->same_weights));
    sl_json_put(o, "token_map", p->has_map ? sl_json_text("token_map.pt") : NULL);
    sl_json_print(o);
}

static void report_recut(const request *r, const recut_report *p, const cli_common *common) {
    warn_terminators(p->n_terminators, r->drafter);
    if (common->json) {
        print_recut(r, p);
    } else if (p->has_map) {
        sl_cli_info("%s: the drafter, and token_map.pt of %" PRId32 " ids: start %s with "
                    "--speculative-token-map %s/token_map.pt",
                    r->output, p->n_rows, r->engine, r->output);
    } else {
        sl_cli_info("%s: %" PRId32 " of %" PRId32 " rows of the head%s, for %s", r->output,
                    p->n_rows, p->n_rows_before,
                    p->same_weights ? ", the weights as they were" : "", r->engine);
        if (p->n_missing)
            sl_cli_info("%" PRId32 " ids of a higher rank have no row in this drafter",
                        p->n_missing);
    }
    if (!common->json && strcmp(r->engine, "llama.cpp") == 0)
        sl_cli_info("llama.cpp loads a GGUF: convert the folder with its convert_hf_to_gguf.py, or "
                    "export with --target TARGET.gguf");
    say_rows(r, p->n_rows, p->n_rows_before, p->coverage, common->json);
}

/* ---- an ordered head -------------------------------------------------------------------------- */

static specrt_status run_ordered(const request *r, ordered_counts *out, specrt_error *err) {
    specrt_bundle *bundle;
    TRY(specrt_bundle_open(r->bundle, NULL, &bundle, err));
    ordered_request q = {.drafter = r->drafter,
                         .output = r->output,
                         .bundle = bundle,
                         .n_clusters = r->n_clusters,
                         .topk = r->topk,
                         .hot = r->hot,
                         .force = r->force};
    specrt_status status = check_model(r->drafter, bundle, err);
    if (status == SPECRT_STATUS_OK) status = ordered_write(&q, out, err);
    specrt_bundle_close(bundle);
    return status;
}

static void report_ordered(const request *r, const ordered_counts *n, const cli_common *common) {
    if (n->n_hot > 0 && n->topk > 1)
        sl_cli_warn("%s: engines score its %" PRId32 " hot tokens once for each of %" PRId32
                    " clusters; --topk 1 scores them once",
                    r->output, n->n_hot, n->topk);
    if (common->json) {
        json_object *o = ordered_json(n);
        sl_json_put(o, "file", sl_json_text(r->output));
        sl_json_put(o, "engine", sl_json_text(r->engine));
        sl_json_print(o);
        return;
    }
    sl_cli_info("%s: an ordered head of %" PRId32 " clusters of %" PRId32 " slots, %" PRId32
                " of them scored; %" PRId32 " tokens have a slot, %" PRId32 " one in each cluster",
                r->output, n->n_clusters, n->n_slots, n->topk, n->n_tokens, n->n_hot);
    sl_cli_info("%s: reads less than the whole head up to about %.0f sequences at a time",
                r->output, floor(n->batch));
}

static int start_ordered(const request *r, const cli_common *common) {
    ordered_counts n;
    specrt_error err;
    if (r->size || r->n_vocab || r->target || r->values)
        return sl_cli_usage("--for gemma4 goes without --size, --n-vocab, --target and --values");
    if (run_ordered(r, &n, &err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    report_ordered(r, &n, common);
    return CLI_OK;
}

/* ---- the verb --------------------------------------------------------------------------------- */

static int check_folder(const request *r) {
    token_map_values values;
    if (!engine_is_known(r->engine))
        return sl_cli_usage("--for: expected one of %s, found '%s'", engine_names(), r->engine);
    if (r->format || r->head) return sl_cli_usage("--for goes without --format and --head");
    if (!r->drafter) return sl_cli_usage("--for: expected the drafter to cut (--drafter DIR)");
    if (!r->output) return sl_cli_usage("--for: expected a folder or file to write to (-o DIR)");
    if (!sl_token_map_values_of(r->values, &values))
        return sl_cli_usage("--values: expected absolute or offset, found '%s'", r->values);
    return -1;
}

/* An input that -o -f would replace: rows that were cut off are nowhere else. NULL: none. */
static const char *lost_input(const request *r) {
    const char *inputs[] = {r->bundle, r->drafter, r->target, r->head};
    const char *slash = r->drafter ? strrchr(r->drafter, '/') : NULL;
    char folder[4096];
    for (int i = 0; i < 4; i++)
        if (sl_io_is_one(r->output, inputs[i])) return inputs[i];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - r->drafter) : 1,
             slash ? r->drafter : ".");
    return r->drafter && sl_io_is_one(r->output, folder) ? r->drafter : NULL;
}

static int check(const request *r, const cli_common *common) {
    const char *lost = lost_input(r);
    if (lost)
        return sl_cli_usage("-o %s: would replace %s, which is read; name another place", r->output,
                            lost);
    if ((r->n_clusters || r->topk || r->hot) && !engine_is_ordered(r->engine))
        return sl_cli_usage("--clusters, --topk and --hot go with --for gemma4");
    if (r->engine) return check_folder(r);
    if (!r->format) return sl_cli_usage("expected --format, one of %s", sl_token_map_formats());
    if (r->drafter && strcmp(r->format, "gguf") != 0)
        return sl_cli_usage("--drafter goes with --format gguf, or with --for");
    if (r->head && strcmp(r->format, "safetensors") != 0)
        return sl_cli_usage("--head goes with --format safetensors");
    if (r->values) return sl_cli_usage("--values goes with --for");
    if (r->target && !r->drafter) return sl_cli_usage("--target goes with --drafter");
    if (sl_out_is_stdout(r->output) && common->json)
        return sl_cli_usage("--json and the map cannot both go to stdout; give -o FILE");
    return -1;
}

static int start_recut(const request *r, const cli_common *common) {
    recut_report p;
    specrt_error err;
    if (run_recut(r, &p, &err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    report_recut(r, &p, common);
    return CLI_OK;
}

static int start_map(request *r, const cli_common *common) {
    token_map map = {0};
    drafter d = {0};
    specrt_error err;
    int code = run(r, &d, &map, &err) == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
    if (code == CLI_OK) report(r, &d, &map, common);
    sl_token_map_free(&map);
    return code;
}

/* What an engine takes for the drafter: a list or a GGUF, written as a token map, or else a folder. */
static int start_for(request *r, const cli_common *common) {
    engine_choice choice;
    specrt_error err;
    if (engine_is_ordered(r->engine)) return start_ordered(r, common);
    bool is_llama = strcmp(r->engine, "llama.cpp") == 0;
    if (is_llama && r->target && check_llama_target(r->target, &err) != SPECRT_STATUS_OK)
        return sl_cli_fail(&err);
    if (engine_choose(r->engine, r->drafter, r->target, &choice, &err) != SPECRT_STATUS_OK)
        return sl_cli_fail(&err);
    if (!choice.format) return start_recut(r, common);
    if (r->values) return sl_cli_usage("--values goes with a folder of safetensors that is cut");
    r->format = choice.format;
    if (!r->n_vocab) r->n_vocab = choice.n_rows;
    return start_map(r, common);
}

int export_main(int argc, char **argv) {
    request r = {0};
    const cli_option options[] = {
        sl_cli_heading("What to write"),
        sl_cli_string(
            "format", "F", &r.format,
            "sglang-pt vllm-json text npy speculators token-freq eagle3-pt safetensors gguf mtplx "
            "exllamav3"),
        sl_cli_int("size", "N", &r.size, 1, INT32_MAX, "ids (default: the calibrated size)"),
        sl_cli_int("n-vocab", "N", &r.n_vocab, 1, INT32_MAX,
                   "length of t2d (default: rows of the recorded head, else the tokenizer's ids)"),
        sl_cli_string(
            "drafter", "FILE|DIR", &r.drafter,
            "gguf: the drafter to rewrite with a smaller head, an eagle3 or dflash GGUF, "
            "one with MTP layers or an EAGLE-3 checkpoint; with --for the drafter that it "
            "is for"),
        sl_cli_string(
            "target", "FILE", &r.target,
            "gguf: the model that an EAGLE-3 checkpoint was trained for, a GGUF; for a drafter "
            "without a head: whose rows it takes"),
        sl_cli_string("head", "FILE", &r.head,
                      "safetensors: add the rows of this model's head as lm_head.weight, quantised "
                      "ones in f16"),
        sl_cli_heading("What an engine takes for a drafter"),
        sl_cli_string("for", "ENGINE", &r.engine,
                      "vllm sglang specforge speculators llama.cpp specrt; gemma4: a drafter of "
                      "Gemma 4 with an ordered head; lists for MTP layers: sglang vllm exllamav3 "
                      "mtplx text"),
        sl_cli_string("values", "KIND", &r.values,
                      "of its own d2t, absolute or offset (default: both are tried)"),
        sl_cli_heading("Ordered head (--for gemma4)"),
        sl_cli_int("clusters", "C", &r.n_clusters, 1, SPECRT_MAX_CLUSTERS,
                   "clusters, as cluster-build --ordered made them; for a list alone: vocabulary / "
                   "N"),
        sl_cli_int("topk", "K", &r.topk, 1, SPECRT_MAX_CLUSTERS,
                   "clusters that a pass scores (default: as the bundle says)"),
        sl_cli_int("hot", "N", &r.hot, 1, SPECRT_MAX_VOCAB,
                   "tokens in every cluster, as cluster-build --hot made them; all slots of a "
                   "cluster: a list alone"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle export model.specb --format sglang-pt -o freq_32768.pt",
        "Writes the most frequent ids of a bundle as a token map of another engine. Without -o\n"
        "the file gets a usual name in this folder, which is printed; npy writes a folder.\n"
        "With --for, what that engine takes for a drafter: its folder or its GGUF with the head "
        "cut\n"
        "to them, or a list.\n"
        "docs/TOKEN_MAPS.md says which engine reads which format, and with which flags.",
        "specrt-bundle export BUNDLE (--format F | --drafter DIR --for ENGINE -o OUT) [options]",
        options};
    cli_common common;
    int code = verb_start_one(&tool, argc, argv, &common, &r.bundle, "one bundle");
    if (code >= 0) return code;
    r.output = common.output;
    r.force = common.force;
    code = check(&r, &common);
    if (code < 0) code = r.engine ? start_for(&r, &common) : start_map(&r, &common);
    return code;
}
