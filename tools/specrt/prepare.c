/* prepare.c : from a target, a drafter and text to a folder that an engine loads: a bundle, the cut drafter,
 * a report of coverage, and the command that starts the engine. */
#include "prepare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/missing.h"
#include "base/parallel.h"
#include "base/text.h"
#include "estimate.h"
#include "model/head_share.h"
#include "tokenizer/tokenizer.h"

const char *const prepare_engines[N_ENGINES] = {"vllm", "sglang", "llama.cpp", "text", "specrt"};

/* What each engine but ours takes for each kind of drafter, and why it takes nothing. */
enum { N_KINDS = CHECKPOINT_BLOCK + 1 };
static const struct {
    prepare_way way;
    const char *why;
} ways[N_KINDS][FOR_SPECRT] = {
    [CHECKPOINT_MODEL] = {{WAY_BUNDLE, NULL},
                          {WAY_NONE,
                           "SGLang scores a draft model by its whole vocabulary; expected "
                           "an EAGLE drafter"},
                          {WAY_BUNDLE, NULL},
                          {WAY_LIST, NULL}},
    [CHECKPOINT_EAGLE] = {{WAY_BUNDLE, NULL},
                          {WAY_LIST, NULL},
                          {WAY_NONE, "llama.cpp drafts with EAGLE-3 heads, MTP layers, block "
                                     "drafters and draft models; expected one of these"},
                          {WAY_LIST, NULL}},
    [CHECKPOINT_EAGLE3] = {{WAY_CUT, NULL}, {WAY_CUT, NULL}, {WAY_CUT, NULL}, {WAY_LIST, NULL}},
    [CHECKPOINT_MTP] = {{WAY_BUNDLE, NULL}, {WAY_LIST, NULL}, {WAY_BUNDLE, NULL}, {WAY_LIST, NULL}},
    [CHECKPOINT_BLOCK] = {{WAY_CUT, NULL},
                          {WAY_NONE, "SGLang scores blocks with the target's whole head; expected "
                                     "--for vllm or llama.cpp"},
                          {WAY_CUT, NULL},
                          {WAY_LIST, NULL}},
};

/* ---- what is given ---------------------------------------------------------------------------- */

static specrt_status find_kind(prepare *p, specrt_error *err) {
    TRY(sl_checkpoint_identify_path(p->drafter, &p->id, err));
    TRY(sl_checkpoint_refuse_block(&p->id, p->drafter, err));
    p->kind = p->id.kind;
    /* A whole model that is not the target drafts by all its layers, but in our engine. */
    if (p->kind == CHECKPOINT_MTP && p->id.tail.is_whole && p->engine != FOR_SPECRT &&
        !sl_io_is_one(p->drafter, p->target))
        p->kind = CHECKPOINT_MODEL;
    return SPECRT_STATUS_OK;
}

static int check_engine(prepare *p) {
    while (p->engine < N_ENGINES && strcmp(prepare_engines[p->engine], p->engine_name) != 0)
        p->engine++;
    if (p->engine == N_ENGINES)
        return sl_cli_usage("--for: expected vllm, sglang, llama.cpp, text or specrt, found %s",
                            p->engine_name);
    return -1;
}

/* A name, behind which "@" begins options of its tool. */
static bool is_section(const prepare *p, const char *list) {
    size_t n = strcspn(list, ",@");
    for (int i = 0; i < (p->engine == FOR_SPECRT ? N_SECTIONS : N_PLAIN_SECTIONS); i++)
        if (strlen(prepare_sections[i]) == n && strncmp(list, prepare_sections[i], n) == 0)
            return true;
    return n == 4 && strncmp(list, "none", n) == 0;
}

static int check_with(prepare *p) {
    bool is_ours = p->engine == FOR_SPECRT;
    if (!p->with) p->with = is_ours ? "graph,clusters,dynaspec,coral,sketch,index" : "graph";
    if (strlen(p->with) >= PREPARE_WITH) return sl_cli_usage("--with: expected a shorter list");
    for (const char *s = p->with; *s; s += strcspn(s, ","), s += *s == ',')
        if (!is_section(p, s))
            return sl_cli_usage("--with: expected graph, sketch, clusters%s or none, found %.*s",
                                is_ours ? ", dynaspec, coral, index" : "", (int)strcspn(s, ","), s);
    return -1;
}

/* A target that is its own drafter shows what lists keep. */
static int check_own(prepare *p) {
    if (p->text.n + p->prompts.n == 0)
        return sl_cli_usage("expected --text or --prompts with --for specrt");
    if (p->endpoint)
        return sl_cli_usage("--endpoint: expected --prompts alone with --for specrt, whose engine "
                            "lets the target answer");
    if (p->text.n > 0 && p->fill.n > 0)
        return sl_cli_usage("expected --text or --fill, found both: with --text the target does "
                            "not answer");
    p->drafts_itself = !p->drafter;
    if (!p->drafter) p->drafter = p->target;
    if (p->limit == 0) p->limit = 10;
    if (p->tokens == 0) p->tokens = 48;
    return -1;
}

static int need(const char *option, bool given) {
    if (given) return -1;
    return sl_cli_usage(
        "expected --target, --drafter, --text or --endpoint, --for and -o, found no %s", option);
}

static int check_other(prepare *p) {
    int code = need("--drafter", p->drafter != NULL);
    if (code < 0) code = need("--text", p->text.n > 0 || p->endpoint);
    if (code >= 0) return code;
    if ((p->endpoint != NULL) != (p->prompts.n > 0))
        return sl_cli_usage("expected --endpoint and --prompts together");
    if (p->limit || p->tokens || p->policies)
        return sl_cli_usage("--limit, --tokens, --policy: expected --for specrt with them");
    p->asks = p->endpoint != NULL;
    return -1;
}

static int check_options(prepare *p) {
    int code = need("--target", p->target != NULL);
    if (code < 0) code = need("--for", p->engine_name != NULL);
    if (code < 0) code = need("-o", p->common.output != NULL);
    if (code < 0) code = check_engine(p);
    if (code < 0) code = p->engine == FOR_SPECRT ? check_own(p) : check_other(p);
    if (code >= 0) return code;
    const char *paths[] = {p->target, p->drafter, p->common.output}; /* words of other tools */
    for (int i = 0; i < 3; i++)
        if (paths[i][0] == '-')
            return sl_cli_usage("%s: expected a path that does not begin with a dash; write ./%s",
                                paths[i], paths[i]);
    if (p->fill.n > 0 && p->prompts.n == 0)
        return sl_cli_usage("--fill: expected --prompts with it");
    if (p->text.n + p->fill.n > STEP_WORDS / 2 || p->prompts.n > STEP_WORDS / 2)
        return sl_cli_usage("--text, --prompts: expected at most %d paths", STEP_WORDS / 2);
    if ((p->size > 0) + (p->mass > 0) + (p->loss > 0) > 1)
        return sl_cli_usage("expected one of --size, --mass and --accept-loss, found two");
    return check_with(p);
}

/* ---- what the files are ----------------------------------------------------------------------- */

/* A target is a GGUF or the folder of a checkpoint, whose weights need not be there; our tools count with a
 * tokenizer alone, too. */
static specrt_status check_target(const prepare *p, bool *is_gguf, specrt_error *err) {
    char config[TOOL_PATH_BYTES];
    struct stat s;
    tokenizer *tok;
    if (stat(p->target, &s) != 0) return sl_missing(p->target, err);
    *is_gguf = !S_ISDIR(s.st_mode);
    snprintf(config, sizeof config, "%s/config.json", p->target);
    if (!*is_gguf && p->engine != FOR_SPECRT && access(config, R_OK) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot open: %s", config,
                                strerror(errno));
    TRY(sl_tokenizer_open(p->target, &tok, err));
    specrt_status status = SPECRT_STATUS_OK;
    if (p->size > sl_tokenizer_n_vocab(tok))
        status = specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                  "--size %lld: expected at most %d, the tokens of %s",
                                  (long long)p->size, (int)sl_tokenizer_n_vocab(tok), p->target);
    sl_tokenizer_close(tok);
    return status;
}

/* Several steps read each path, and a second run reads it again. */
static specrt_status check_path(const char *path, specrt_error *err) {
    struct stat s;
    bool is_stdin = strcmp(path, "-") == 0;
    if (!is_stdin && (access(path, R_OK) != 0 || stat(path, &s) != 0))
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot open: %s", path,
                                strerror(errno));
    if (!is_stdin && (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: expected a file or a folder, found a pipe or a device; write its "
                            "text to a file",
                            path);
}

static specrt_status check_paths(const cli_list *paths, specrt_error *err) {
    for (int i = 0; i < paths->n; i++) TRY(check_path(paths->items[i], err));
    return SPECRT_STATUS_OK;
}

/* That the weights of a model's head are there. */
static specrt_status check_weights(const char *path, specrt_error *err) {
    model m;
    specrt_head_desc head;
    TRY(sl_model_open(path, &m, err));
    specrt_status status = sl_model_head(&m, NULL, &head, NULL, err);
    sl_model_close(&m);
    return status;
}

/* A sketch and clusters are of a head. */
static specrt_status check_head(const prepare *p, specrt_error *err) {
    if (p->engine == FOR_SPECRT) return SPECRT_STATUS_OK;
    if (!prepare_wants(p, "sketch") && !prepare_wants(p, "clusters")) return SPECRT_STATUS_OK;
    return check_weights(prepare_head(p), err);
}

/* Whether the engine loads the drafter from where it is, in the form of a hub's folder. */
static bool is_loaded_there(const prepare *p) {
    bool has_copy = p->way == WAY_CUT || p->kind == CHECKPOINT_EAGLE; /* SGLang's is exported */
    return p->engine == FOR_VLLM ? p->way == WAY_BUNDLE : p->engine == FOR_SGLANG && !has_copy;
}

/* What the engine takes, and whether the files have its form. */
static int check_engine_files(prepare *p, bool target_is_gguf) {
    p->way = WAY_BUNDLE;
    if (p->engine == FOR_SPECRT && !p->drafts_itself && !p->runs)
        return sl_cli_usage("--target %s: expected a GGUF, which the engine runs with the drafter",
                            p->target);
    if (p->engine == FOR_SPECRT && p->kind == CHECKPOINT_BLOCK && !p->drafts_itself &&
        (p->id.is_gguf || p->id.block.selector))
        return sl_cli_usage("--drafter %s: is %s: the engine runs DFlash and DSpark drafters from "
                            "safetensors; expected one, or --for vllm or llama.cpp",
                            p->drafter, p->id.words);
    if (p->engine == FOR_SPECRT) return -1;
    if (p->kind == CHECKPOINT_MODEL && sl_io_is_one(p->drafter, p->target))
        return sl_cli_usage(
            "--drafter %s: expected a smaller model or MTP layers, found the target, "
            "which has no such layers",
            p->drafter);
    const char *why = ways[p->kind][p->engine].why;
    bool is_llama = p->engine == FOR_LLAMA_CPP;
    p->way = ways[p->kind][p->engine].way;
    if (p->id.is_gguf && !is_llama && p->engine != FOR_TEXT)
        return sl_cli_usage(
            "--drafter %s: expected a folder of safetensors, which %s loads; found a GGUF",
            p->drafter, p->engine_name);
    if (p->way == WAY_NONE)
        return sl_cli_usage("--drafter %s: is %s: %s", p->drafter, p->id.words, why);
    if (p->engine == FOR_VLLM && p->id.is_ordered)
        return sl_cli_usage(
            "--drafter %s: has an ordered head, which reads few rows already; start "
            "vLLM without a list",
            p->drafter);
    /* vLLM's selector would take the number of a row for a token; our plug-in cuts it later. */
    if (p->engine == FOR_VLLM && p->id.block.selector) p->way = WAY_BUNDLE;
    if (is_loaded_there(p) && sl_io_is_file(p->drafter))
        return sl_cli_usage("--drafter %s: expected the drafter's folder, which %s loads; found a "
                            "file",
                            p->drafter, p->engine_name);
    if (p->engine == FOR_SGLANG && p->kind == CHECKPOINT_MTP &&
        (p->id.tail.tied || p->id.tail.n_layers > 1))
        return sl_cli_usage("--drafter %s: %s: SGLang scores such layers by the whole head; start "
                            "SGLang without a list",
                            p->drafter,
                            p->id.tail.tied ? "its head is tied to the embedding"
                                            : "has more than one MTP layer");
    if (is_llama && !target_is_gguf)
        return sl_cli_usage("--target %s: expected a GGUF, which llama.cpp loads; found a folder; "
                            "convert it first: convert_hf_to_gguf.py %s",
                            p->target, p->target);
    if (is_llama && !p->id.is_gguf && p->kind != CHECKPOINT_EAGLE3)
        return sl_cli_usage("--drafter %s: expected a GGUF, which llama.cpp loads; found a folder; "
                            "convert it first: convert_hf_to_gguf.py %s",
                            p->drafter, p->drafter);
    p->cut_is_gguf = is_llama && p->way == WAY_CUT;
    return -1;
}

static specrt_status open_files(prepare *p, bool *target_is_gguf, specrt_error *err) {
    TRY(check_target(p, target_is_gguf, err));
    if (p->engine == FOR_SPECRT) prepare_own_find(p);
    if (!p->drafts_itself) TRY(find_kind(p, err));
    TRY(check_paths(&p->text, err));
    TRY(check_paths(&p->fill, err));
    TRY(check_paths(&p->prompts, err));
    return check_head(p, err);
}

static int check_files(prepare *p) {
    bool target_is_gguf = false;
    specrt_error err;
    if (open_files(p, &target_is_gguf, &err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    int code = check_engine_files(p, target_is_gguf);
    if (code < 0 && prepare_takes_rows(p) && check_weights(p->target, &err) != SPECRT_STATUS_OK)
        code = sl_cli_fail(&err);
    return code;
}

/* ---- where the results go --------------------------------------------------------------------- */

static const char *name_of_cut(const prepare *p) {
    if (p->engine == FOR_TEXT) return "token_map.txt";
    if (p->kind == CHECKPOINT_MTP) return "token_map.pt";
    return p->cut_is_gguf ? "drafter.gguf" : "drafter";
}

/* Whether the cut would replace the drafter that it is made from. */
static bool replaces_drafter(const prepare *p) {
    char *from = realpath(p->drafter, NULL), *to = realpath(p->cut, NULL);
    size_t n = to ? strlen(to) : 0;
    bool is = from && to && strncmp(from, to, n) == 0 && (from[n] == '/' || from[n] == 0);
    free(from);
    free(to);
    return is && p->way != WAY_BUNDLE;
}

static int name_outputs(prepare *p) {
    const char *folder = p->common.output;
    bool shows = p->common.progress > 0 || (p->common.progress < 0 && isatty(STDERR_FILENO));
    p->steps = (steps){.folder = folder,
                       .dry = p->dry_run,
                       .verbose = p->common.verbose,
                       .progress = shows,
                       .lock = -1};
    specrt_sha256_init(&p->steps.chain);
    int code = steps_check(&p->steps, p->common.force);
    if (code >= 0) return code;
    snprintf(p->answers, sizeof p->answers, "%s/answers.jsonl", folder);
    snprintf(p->bundle, sizeof p->bundle, "%s/model.specb", folder);
    snprintf(p->report, sizeof p->report, "%s/coverage.html", folder);
    snprintf(p->trace, sizeof p->trace, "%s/states.trace", folder);
    snprintf(p->comparison, sizeof p->comparison, "%s/compare.json", folder);
    snprintf(p->page, sizeof p->page, "%s/compare.html", folder);
    snprintf(p->cut, sizeof p->cut, "%s/%s", folder, name_of_cut(p));
    if (replaces_drafter(p))
        return sl_cli_usage("--drafter %s: expected another path than %s, where the cut drafter "
                            "goes; name another folder (-o)",
                            p->drafter, p->cut);
    snprintf(p->size_text, sizeof p->size_text, "%lld", (long long)p->size);
    snprintf(p->mass_text, sizeof p->mass_text, "%.9g", p->mass);
    snprintf(p->loss_text, sizeof p->loss_text, "%.9g", p->loss);
    snprintf(p->seed_text, sizeof p->seed_text, "%lld", (long long)p->common.seed);
    snprintf(p->tokens_text, sizeof p->tokens_text, "%lld", (long long)p->tokens);
    snprintf(p->threads_text, sizeof p->threads_text, "%lld", (long long)p->common.threads);
    if (p->common.threads != sl_parallel_cores()) p->steps.threads = p->threads_text;
    return -1;
}

/* ---- what came out ---------------------------------------------------------------------------- */

/* What is reported: what the steps say of the files that they wrote. Figures are borrowed from `ranks` and
 * `cut`; NULL: there is none. */
typedef struct outcome {
    json_object *ranks, *cut; /* owned */
    json_object *size, *rows, *rows_before, *missing, *low, *high, *coverage;
    bool held_out;    /* the coverage is of text that was not counted, and has an interval */
    head_share share; /* of the drafter before the cut; NAN: not known */
    char *start;      /* owned; NULL: no engine */
} outcome;

/* Held-out coverage is of the bundle's list. A drafter that has other rows covers what these cover. */
static void read_outcome(prepare *p, outcome *o) {
    json_object *ranks = step_result(&p->steps, "ranks"), *cut = step_result(&p->steps, "cut");
    json_object *is_cut = sl_json_get(cut, "cut");
    *o = (outcome){.ranks = ranks,
                   .cut = cut,
                   .size = sl_json_get(ranks, "n_selected"),
                   .rows = sl_json_get(cut, "n_rows"),
                   .rows_before = sl_json_get(cut, "n_rows_before"),
                   .missing = sl_json_get(cut, "n_missing")};
    p->uncut = p->way == WAY_CUT && is_cut && !json_object_get_boolean(is_cut);
    o->held_out = !p->uncut && json_object_get_int64(o->missing) == 0;
    o->coverage =
        o->held_out ? sl_json_get(ranks, "coverage_holdout") : sl_json_get(cut, "coverage");
    o->low = o->held_out ? sl_json_get(ranks, "coverage_holdout_low") : NULL;
    o->high = o->held_out ? sl_json_get(ranks, "coverage_holdout_high") : NULL;
    specrt_error none;
    if (sl_head_share(p->target, p->drafter, &p->id, prepare_n_drafts(p), &o->share, &none))
        o->share.draft = o->share.cycle = NAN;
}

static void free_outcome(outcome *o) {
    json_object_put(o->ranks);
    json_object_put(o->cut);
    free(o->start);
}

static const char *count_of(json_object *number) {
    return sl_text_count((uint64_t)json_object_get_int64(number));
}

static void print_coverage(const outcome *o) {
    double share = 100 * json_object_get_double(o->coverage);
    if (!o->coverage) return;
    if (o->low && o->high)
        sl_cli_info("these tokens cover %.2f%% of held-out text (95%% interval: %.2f to %.2f%%)",
                    share, 100 * json_object_get_double(o->low),
                    100 * json_object_get_double(o->high));
    else
        sl_cli_info("these tokens cover %.2f%% of %s text", share,
                    o->held_out ? "held-out" : "the counted");
}

/* The most that any list can save. */
static void print_share(const prepare *p, const head_share *s) {
    const char *pass = p->kind == CHECKPOINT_BLOCK ? "block" : "draft step";
    if (isnan(s->draft)) return;
    if (isnan(s->cycle))
        sl_cli_info("the whole head is %.0f%% of the bytes that a %s reads", 100 * s->draft, pass);
    else
        sl_cli_info("the whole head is %.0f%% of the bytes that a %s reads, %.0f%% of a cycle's "
                    "with %lld drafts: bound by memory, no list makes a cycle more than %.2f times "
                    "as fast",
                    100 * s->draft, pass, 100 * s->cycle, (long long)prepare_n_drafts(p),
                    1 / (1 - s->cycle));
}

static void print_cut(const prepare *p, const outcome *o) {
    if (p->uncut)
        sl_cli_warn("%s: nothing was cut: the drafter's head has %s rows, and the list %s; for a "
                    "shorter head give a smaller --size",
                    p->cut, count_of(o->rows_before), count_of(o->size));
    else if (p->way == WAY_CUT && o->rows)
        sl_cli_info("%s: the drafter, its head cut from %s to %s rows", p->cut,
                    count_of(o->rows_before), count_of(o->rows));
    else if (p->way == WAY_LIST)
        sl_cli_info("%s: the list of %s tokens%s", p->cut, count_of(o->size),
                    p->kind == CHECKPOINT_EAGLE && p->engine == FOR_SGLANG ? ", and the drafter"
                                                                           : "");
    if (!p->uncut && json_object_get_int64(o->missing) > 0)
        sl_cli_info("%s tokens of a higher rank have no row in this drafter", count_of(o->missing));
}

static void print_report(const prepare *p, const outcome *o) {
    sl_cli_info("%s: %s tokens", p->bundle, count_of(o->size));
    print_cut(p, o);
    print_coverage(o);
    print_share(p, &o->share);
    sl_cli_info("%s: the coverage of every size", p->report);
    if (p->compared) sl_cli_info("%s: the policies compared", p->page);
    if (o->start) sl_cli_info("%s/start.sh: the command that starts the engine", p->common.output);
    if (!o->start || p->common.json || p->common.quiet) return;
    if (p->engine == FOR_SPECRT) step_print(&p->steps, "info");
    if (p->compared) step_print(&p->steps, "compare");
    if (p->engine == FOR_SPECRT) printf("Next:\n  ");
    sl_text_lines(o->start, stdout);
}

static int print_json(const prepare *p, const outcome *o, int code) {
    specrt_error err;
    json_object *all = json_object_new_object();
    sl_json_put(all, "output", sl_json_text(p->common.output));
    sl_json_put(all, "bundle", sl_json_text(p->bundle));
    sl_json_put(all, "drafter", p->way == WAY_BUNDLE ? NULL : sl_json_text(p->cut));
    sl_json_put(all, "n_selected", json_object_get(o->size));
    sl_json_put(all, "n_rows", json_object_get(o->rows));
    sl_json_put(all, "n_rows_before", json_object_get(o->rows_before));
    sl_json_put(all, "cut", json_object_new_boolean(p->way == WAY_CUT && !p->uncut));
    sl_json_put(all, "coverage", json_object_get(o->coverage));
    sl_json_put(all, "coverage_low", json_object_get(o->low));
    sl_json_put(all, "coverage_high", json_object_get(o->high));
    sl_json_put(all, "coverage_is_held_out", json_object_new_boolean(o->held_out));
    sl_json_put(all, "head_share_draft", sl_json_real(o->share.draft));
    sl_json_put(all, "head_share_cycle", sl_json_real(o->share.cycle));
    sl_json_put(all, "n_steps", sl_json_whole((uint64_t)p->steps.n_steps));
    sl_json_put(all, "command", sl_json_text(o->start));
    return sl_cli_print_json(sl_json_to_text(all), &err) == SPECRT_STATUS_OK ? code
                                                                             : sl_cli_fail(&err);
}

static void start_path(const prepare *p, char path[TOOL_PATH_BYTES]) {
    snprintf(path, TOOL_PATH_BYTES, "%s/start.sh", p->common.output);
}

static specrt_status write_start(const prepare *p, const char *command, specrt_error *err) {
    char path[TOOL_PATH_BYTES], *text;
    start_path(p, path);
    int n = asprintf(&text, "#!/bin/sh\n%s \"$@\"\n", command);
    if (n < 0) return sl_error_no_memory(err, path);
    specrt_status status = sl_out_bytes(path, true, text, (size_t)n, err);
    free(text);
    struct stat s; /* who may read it may run it */
    if (status == SPECRT_STATUS_OK &&
        (stat(path, &s) != 0 || chmod(path, (s.st_mode & 0777) | (s.st_mode & 0444) >> 2) != 0))
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot make it executable: %s", path,
                                strerror(errno));
    return status;
}

static int report(prepare *p) {
    outcome o;
    specrt_error err;
    specrt_status status = SPECRT_STATUS_OK;
    int code = CLI_OK;
    read_outcome(p, &o);
    if (p->engine != FOR_TEXT) {
        o.start = prepare_start(p);
        status = o.start ? write_start(p, o.start, &err) : sl_error_no_memory(&err, p->cut);
    }
    if (p->uncut) code = CLI_BELOW;
    if (p->found) code = CLI_INVALID;
    if (status != SPECRT_STATUS_OK) {
        code = sl_cli_fail(&err);
    } else {
        print_report(p, &o);
        if (p->found) sl_cli_warn("exit code 3: the drafter has the fault that is named above");
        if (p->common.json) code = print_json(p, &o, code);
    }
    free_outcome(&o);
    return code;
}

/* ---- the verb --------------------------------------------------------------------------------- */

static int run(prepare *p) {
    char start[TOOL_PATH_BYTES];
    int code = steps_open(&p->steps);
    start_path(p, start);
    if (code == CLI_OK && !p->dry_run) unlink(start); /* names what steps replace, or leave out */
    if (code == CLI_OK) code = prepare_run(p);
    if (code == CLI_OK && !p->dry_run) code = report(p);
    if (code == CLI_OK && p->dry_run && p->steps.seconds > 0)
        sl_cli_info("%s on an idle machine%s", estimate_text(p->steps.seconds),
                    p->endpoint ? ", and the time of the endpoint" : "");
    steps_close(&p->steps);
    return code;
}

int prepare_main(int argc, char **argv) {
    prepare p = {0};
    const cli_option options[] = {
        sl_cli_heading("What to prepare"),
        sl_cli_string("target", "DIR|GGUF", &p.target,
                      "the target model; of a folder config.json and the tokenizer are read"),
        sl_cli_string("drafter", "DIR|GGUF", &p.drafter,
                      "its drafter: an EAGLE-1/2/3 head, MTP layers, a block drafter, a draft "
                      "model, or a GGUF for llama.cpp and specrt, which needs none"),
        sl_cli_strings("text", "PATH...", &p.text,
                       "what the target writes: files and folders that calibrate reads"),
        sl_cli_string("format", "WHICH", &p.format,
                      "read every file of --text as text or as json; auto (default): by name"),
        sl_cli_string("endpoint", "URL", &p.endpoint,
                      "where the target is served: its answers to --prompts are text, too"),
        sl_cli_strings(
            "prompts", "FILE...", &p.prompts,
            "questions of your users, for --endpoint; for specrt the target answers four "
            "fifths of them unless there is --text, and policies are compared on the rest"),
        sl_cli_strings("fill", "PATH...", &p.fill,
                       "any text, for the ranks below the answers: a token of these counts as 100"),
        sl_cli_string("model", "NAME", &p.model,
                      "the target's name there (default: the first listed)"),
        sl_cli_string("for", "ENGINE", &p.engine_name,
                      "vllm, sglang or llama.cpp; specrt: our runtime and tools, with policies "
                      "compared; text: a list of ids, for any other engine"),
        sl_cli_heading("How"),
        sl_cli_int("size", "N", &p.size, 1, INT32_MAX,
                   "tokens of the draft vocabulary (default 32768; a quarter of a vocabulary "
                   "below 65536)"),
        sl_cli_real("mass", "P", &p.mass, 1e-9, 1,
                    "as few tokens as cover share P of held-out text"),
        sl_cli_real("accept-loss", "P", &p.loss, 1e-4, 0.5,
                    "as few as lose at most share P of the accept length in every domain, by "
                    "coverage"),
        sl_cli_flag("by-language", &p.by_language,
                    "rank and report the text by the scripts that it is written in"),
        sl_cli_flag("balance", &p.balance,
                    "the same share for each language of --by-language, else for each --text"),
        sl_cli_string(
            "with", "LIST", &p.with,
            "other sections of the bundle: graph (default), sketch, clusters; or none. "
            "For specrt also dynaspec, coral, index (default: all). With options of their "
            "tools: coral@clusters=64@mean-rows=1024"),
        sl_cli_int("limit", "N", &p.limit, 2, 1e9,
                   "for specrt: prompts taken of each file of --prompts (10)"),
        sl_cli_int("tokens", "N", &p.tokens, 1, 1e9, "for specrt: tokens of an answer (48)"),
        sl_cli_string("policy", "SPEC,...", &p.policies,
                      "for specrt: what to compare (default: what the sections allow); or none"),
        sl_cli_flag(
            "dry-run", &p.dry_run,
            "print the commands, say which are done, estimate the time of the others; run none"),
        {0}};
    const cli_tool tool = {
        "specrt",
        "specrt prepare --target llama3/ --drafter eagle3/ --text chat.jsonl --for vllm --size "
        "8192 -o out",
        "Counts the text with the target's tokenizer, cuts the drafter's head to the tokens that\n"
        "occur most, checks the result and prints the command that starts the engine. The folder\n"
        "of -o keeps every step: a second run continues after the last finished one.",
        "specrt prepare --target T [--drafter D] (--text PATH... | [--endpoint URL] --prompts "
        "FILE...) "
        "--for ENGINE -o FOLDER [options]",
        options};
    int code = sl_cli_parse(&tool, argc, argv, &p.common, NULL);
    if (code >= 0) return code;
    code = check_options(&p);
    if (code < 0) code = check_files(&p);
    if (code < 0) code = name_outputs(&p);
    if (code < 0) code = run(&p);
    sl_cli_list_free(&p.text);
    sl_cli_list_free(&p.prompts);
    sl_cli_list_free(&p.fill);
    return code;
}
