/* check.c : specrt-bundle check: what engines would load otherwise than it is meant, without a word, each
 * with its fix. */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/missing.h"
#include "engines.h"

/* Of findings: whether the engine drafts wrong tokens, and whether `export --for` writes the drafter without
 * the fault. */
static const struct {
    const char *code;
    bool wrong_drafts, export_fixes;
} effects[] = {
    {"attention-bias", true, true}, {"bias", true, true},
    {"tied", true, true},           {"architecture", true, true},
    {"layer-name", true, true},     {"draft-vocab-size", true, true},
    {"d2t-absolute", true, true},   {"d2t-order", false, true},
    {"tied-head", true, true},      {"no-head", true, true},
    {"no-t2d", false, true},        {"t2d-length", false, true},
    {"t2d-type", false, true},      {"fc-bias", false, false},
    {"terminators", false, false},  {"thinking", false, false},
    {"bytes", false, false},        {"mapping", false, false},
    {"ordered-flag", false, false}, {"ordered-tensors", true, true},
    {"ordered-type", true, true},   {"ordered-shape", true, true},
    {"ordered-range", true, true},  {"ordered-tied", true, true},
    {"ordered-keys", false, false}, {"ordered-clusters", false, false},
    {"ordered-topk", false, false}, {"ordered-head", false, false},
};

/* A finding that is not in the table is of drafts that are wrong, and that export would write again. */
static void put_effects(json_object *o, const char *code) {
    bool wrong = true, fixes = false;
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++)
        if (strcmp(effects[i].code, code) == 0)
            wrong = effects[i].wrong_drafts, fixes = effects[i].export_fixes;
    sl_json_put(o, "wrong_drafts", json_object_new_boolean(wrong));
    sl_json_put(o, "export_fixes", json_object_new_boolean(fixes));
}

void exam_find(exam *e, const char *code, const char *engines, const char *fix, const char *format,
               ...) {
    char what[512];
    va_list args;
    if (e->q->engine && engines && !strstr(engines, e->q->engine)) return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    json_object *o = json_object_new_object();
    sl_json_put(o, "code", sl_json_text(code));
    sl_json_put(o, "engines", sl_json_text(engines));
    sl_json_put(o, "what", sl_json_text(what));
    sl_json_put(o, "fix", sl_json_text(fix));
    put_effects(o, code);
    json_object_array_add(e->findings, o);
}

/* ---- the verb --------------------------------------------------------------------------------- */

/* A drafter by its files, and anything else as a list. */
static specrt_status examine_kind(exam *e, bool *is_list, specrt_error *err) {
    const char *path = e->q->drafter;
    char inside[4096];
    struct stat info;
    file_view file;
    *is_list = false;
    if (stat(path, &info) != 0) return sl_missing(path, err);
    if (S_ISDIR(info.st_mode)) {
        snprintf(inside, sizeof inside, "%s/d2t.npy", path);
        *is_list = access(inside, F_OK) == 0;
        return *is_list ? exam_list(e, err) : exam_folder(e, err);
    }
    TRY(sl_file_map(path, &file, err));
    bool is_gguf = sl_gguf_probe(file.bytes, file.n);
    /* An index begins as a list in JSON does. */
    bool is_st = (file.n > 8 && file.bytes[8] == '{') || strstr(path, ".index.json");
    sl_file_unmap(&file);
    if (is_gguf) return exam_gguf(e, err);
    if (is_st) return exam_folder(e, err);
    *is_list = true;
    return exam_list(e, err);
}

static specrt_status examine(exam *e, specrt_error *err) {
    TRY(exam_open_target(e, err));
    if (e->q->keep && !e->t.tok)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: --keep bytes: expected a tokenizer in the target's folder, "
                                "found none that is read",
                                e->q->target);
    bool is_list;
    TRY(examine_kind(e, &is_list, err));
    if (!is_list) TRY(exam_tokenizer(e, err));
    TRY(exam_tokens(e, err));
    return exam_bundle(e, err);
}

static void print_findings(const exam *e) {
    size_t n = json_object_array_length(e->findings);
    const char *keys[] = {"code", "engines", "what", "fix"}, *text[4];
    for (size_t i = 0; i < n; i++) {
        json_object *o = json_object_array_get_idx(e->findings, i), *value;
        for (int k = 0; k < 4; k++)
            text[k] = json_object_object_get_ex(o, keys[k], &value) && value
                          ? json_object_get_string(value)
                          : "every engine";
        printf("%s (%s): %s\n    fix: %s\n", text[0], text[1], text[2], text[3]);
    }
    if (n == 0)
        sl_cli_info("%s: %s, nothing found%s", e->q->drafter, e->kind,
                    e->q->target ? "" : "; its tokens were not checked, which needs --target");
}

/* @return the exit code */
static int report(const exam *e) {
    bool ok = json_object_array_length(e->findings) == 0;
    specrt_error err;
    if (!e->q->common->json) {
        print_findings(e);
    } else {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(e->q->drafter));
        sl_json_put(o, "kind", sl_json_text(e->kind));
        sl_json_put(o, "engine", sl_json_text(e->q->engine));
        sl_json_put(o, "target", sl_json_text(e->q->target));
        if (e->block) sl_json_put(o, "block", json_object_get(e->block));
        if (e->ordered) sl_json_put(o, "ordered", json_object_get(e->ordered));
        sl_json_put(o, "ok", json_object_new_boolean(ok));
        sl_json_put(o, "findings", json_object_get(e->findings));
        sl_json_print(o);
    }
    if (sl_out_flush_stdout(&err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    return ok ? CLI_OK : CLI_INVALID;
}

static int start(const check_request *q) {
    specrt_error err;
    exam e = {.q = q, .findings = json_object_new_array()};
    specrt_status status = e.findings ? examine(&e, &err) : sl_error_no_memory(&err, q->drafter);
    int code = status == SPECRT_STATUS_OK ? report(&e) : sl_cli_fail(&err);
    json_object_put(e.findings);
    json_object_put(e.block);
    json_object_put(e.ordered);
    sl_token_map_free(&e.map);
    free(e.sorted);
    exam_close_target(&e);
    if (e.c.m.path) sl_checkpoint_close(&e.c);
    return code;
}

static int check(check_request *q) {
    if (q->engine && !engine_is_known(q->engine))
        return sl_cli_usage("--for: expected one of %s, found '%s'", engine_names(), q->engine);
    if (engine_is_ordered(q->engine)) q->engine = NULL; /* any of those that load it */
    if (q->keep && strcmp(q->keep, "bytes") != 0)
        return sl_cli_usage("--keep: expected bytes, found '%s'", q->keep);
    if (q->keep && !q->target)
        return sl_cli_usage("--keep bytes: expected the target (--target DIR)");
    return -1;
}

int check_main(int argc, char **argv) {
    check_request q = {0};
    const cli_option options[] = {
        sl_cli_string("target", "DIR", &q.target, "the target of the drafter: a folder or a GGUF"),
        sl_cli_string(
            "for", "ENGINE", &q.engine,
            "vllm sglang specforge speculators llama.cpp specrt gemma4 exllamav3 mtplx text "
            "(default: faults for any of them)"),
        sl_cli_string("bundle", "FILE", &q.bundle,
                      "check that the drafter's list is the list of this bundle"),
        sl_cli_string("keep", "bytes", &q.keep, "check that every token of one byte has a row"),
        {0}};
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle check drafter/ --target llama3/ --for vllm",
        "Checks a drafter or a list of tokens before an engine loads it. Engines load some faulty\n"
        "files without an error message, and then draft wrong tokens or decode more slowly.\n"
        "Prints each fault with its fix; the exit code is then 3. docs/TOKEN_MAPS.md lists all.",
        "specrt-bundle check DRAFTER|LIST [--target DIR] [--for ENGINE] [--bundle FILE] [--keep "
        "bytes]",
        options};
    cli_common common;
    int code = verb_start_one(&tool, argc, argv, &common, &q.drafter, "one drafter or list");
    if (code >= 0) return code;
    q.common = &common;
    code = check(&q);
    if (code < 0) code = start(&q);
    return code;
}
