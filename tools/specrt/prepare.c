/* prepare.c : from a target, a drafter and text to a folder that an engine loads: a bundle, the cut drafter,
 * a report of coverage, and the command that starts the engine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "estimate.h"
#include "step.h"
#include "tool.h"

enum { VLLM, SGLANG, LLAMA_CPP, N_ENGINES };
static const char *const engines[N_ENGINES] = {"vllm", "sglang", "llama.cpp"};

typedef struct prepare {
    const char *target, *drafter, *engine_name, *size, *mass, *with, *endpoint, *model;
    cli_list text, prompts;
    bool dry_run, by_language, balance;
    cli_common common;
    int engine;
    checkpoint_kind kind;
    bool target_is_gguf, drafter_is_gguf, cut_is_gguf;
    bool checked; /* the check has run: an exit code of 3 is its findings */
    char answers[TOOL_PATH_BYTES], bundle[TOOL_PATH_BYTES], report[TOOL_PATH_BYTES],
        cut[TOOL_PATH_BYTES];
    char *start; /* the command of the engine, owned */
    steps steps;
} prepare;

/* ---- what is given ---- */

/* llama.cpp reads a list of tokens from drafters of these architectures. */
static checkpoint_kind gguf_kind(const gguf *g) {
    gguf_string arch = {0};
    bool cut = sl_gguf_get_string(g, "general.architecture", &arch) && arch.n == 6 &&
               (memcmp(arch.s, "eagle3", 6) == 0 || memcmp(arch.s, "dflash", 6) == 0);
    return cut ? CHECKPOINT_EAGLE3 : CHECKPOINT_MODEL;
}

static specrt_status look_at_drafter(prepare *p, specrt_error *err) {
    model m;
    TRY(sl_model_open(p->drafter, &m, err));
    p->drafter_is_gguf = m.g != NULL;
    if (m.g) p->kind = gguf_kind(m.g);
    sl_model_close(&m);
    if (p->drafter_is_gguf) return SPECRT_STATUS_OK;
    checkpoint c;
    TRY(sl_checkpoint_open(p->drafter, true, &c, err));
    /* A whole model drafts by all its layers. */
    p->kind = c.kind == CHECKPOINT_MTP && c.tail.is_whole ? CHECKPOINT_MODEL : c.kind;
    sl_checkpoint_close(&c);
    return SPECRT_STATUS_OK;
}

/* A target is a GGUF or the folder of a checkpoint, whose weights need not be there. */
static specrt_status look_at_target(prepare *p, specrt_error *err) {
    struct stat s;
    if (stat(p->target, &s) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", p->target, strerror(errno));
    p->target_is_gguf = !S_ISDIR(s.st_mode);
    return SPECRT_STATUS_OK;
}

/* ---- where the results go ---- */

static int make_folder(const char *path) {
    struct stat s;
    specrt_error err;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode)))
        return CLI_OK;
    specrt_error_set(&err, SPECRT_STATUS_IO, "%s: cannot make this folder: %s", path,
                     strerror(errno));
    return sl_cli_fail(&err);
}

static int name_outputs(prepare *p) {
    const char *folder = p->common.output;
    if (strlen(folder) > TOOL_PATH_BYTES / 2) return sl_cli_usage("-o: expected a shorter path");
    p->cut_is_gguf = p->engine == LLAMA_CPP && (p->drafter_is_gguf || p->target_is_gguf);
    snprintf(p->answers, sizeof p->answers, "%s/answers.jsonl", folder);
    snprintf(p->bundle, sizeof p->bundle, "%s/model.specb", folder);
    snprintf(p->report, sizeof p->report, "%s/coverage.html", folder);
    const char *name = p->kind == CHECKPOINT_MTP ? "token_map.pt"
                       : p->cut_is_gguf          ? "drafter.gguf"
                                                 : "drafter";
    snprintf(p->cut, sizeof p->cut, "%s/%s", folder, name);
    return -1;
}

/* ---- the steps ---- */

/* Whether a list begins with this word. */
static bool is_first(const char *list, const char *word) {
    size_t n = strcspn(list, ",");
    return n == strlen(word) && strncmp(list, word, n) == 0;
}

static bool wants(const prepare *p, const char *section) {
    for (const char *s = p->with; *s; s += strcspn(s, ","), s += *s == ',')
        if (is_first(s, section)) return true;
    return false;
}

static bool is_section(const char *list) {
    return is_first(list, "graph") || is_first(list, "sketch") || is_first(list, "clusters") ||
           is_first(list, "none");
}

/* Engines score draft models and EAGLE-1/2 heads by the whole vocabulary, except SGLang with a token map. For
 * the others our plug-in or specrt-llama reads the bundle. */
static bool cuts(const prepare *p) {
    return p->kind == CHECKPOINT_EAGLE3 || p->engine == SGLANG;
}

static void add_corpus(const prepare *p, step *s) {
    step_option(s, "--tokenizer", p->target);
    step_word(s, "--corpus");
    for (int i = 0; i < p->text.n; i++) step_word(s, p->text.items[i]);
    if (p->endpoint) step_word(s, p->answers);
}

static int run_ask(prepare *p) {
    step s = {
        .name = "ask", .what = "let the served target answer the prompts", .output = p->answers};
    step_word(&s, "specrt");
    step_word(&s, "ask");
    step_option(&s, "--endpoint", p->endpoint);
    step_option(&s, "--model", p->model);
    step_word(&s, "--prompts");
    for (int i = 0; i < p->prompts.n; i++) step_word(&s, p->prompts.items[i]);
    step_option(&s, "-o", p->answers);
    return step_run(&p->steps, &s);
}

static int run_ranks(prepare *p) {
    step s = {.name = "ranks", .what = "count the tokens of the text", .output = p->bundle};
    step_word(&s, "vocabtrim-calibrate");
    s.seconds = estimate_ranks(&p->text);
    add_corpus(p, &s);
    step_option(&s, p->mass ? "--mass" : "--size", p->mass ? p->mass : p->size);
    if (p->by_language) step_word(&s, "--by-language");
    if (p->balance) step_word(&s, "--balance");
    step_option(&s, "--report", p->report);
    step_word(&s, "-f");
    step_option(&s, "-o", p->bundle);
    return step_run(&p->steps, &s);
}

static int run_graph(prepare *p) {
    step s = {.name = "graph", .what = "count which tokens follow which", .output = p->bundle};
    step_word(&s, "cograph-build");
    s.seconds = estimate_graph(&p->text);
    add_corpus(p, &s);
    step_word(&s, "-f");
    step_option(&s, "-o", p->bundle);
    return step_run(&p->steps, &s);
}

/* Sections of the head that drafts: the drafter's own, else the target's. */
static int run_head_section(prepare *p, const char *name, const char *what, const char *tool) {
    step s = {.name = name, .what = what, .output = p->bundle};
    bool is_own = p->kind == CHECKPOINT_EAGLE3 || p->kind == CHECKPOINT_MODEL;
    const char *head = is_own ? p->drafter : p->target;
    s.seconds = strcmp(tool, "sketch-build") == 0 ? estimate_sketch(head) : estimate_clusters(head);
    step_word(&s, tool);
    step_option(&s, "--model", head);
    if (strcmp(tool, "cluster-build") == 0) step_option(&s, "--tokenizer", p->target);
    step_word(&s, "-f");
    step_option(&s, "-o", p->bundle);
    return step_run(&p->steps, &s);
}

static int run_cut(prepare *p) {
    step s = {.name = "cut", .what = "cut the drafter's head to these tokens", .output = p->cut};
    s.seconds = estimate_copy(p->drafter);
    step_word(&s, "specrt-bundle");
    step_word(&s, "export");
    step_word(&s, p->bundle);
    step_option(&s, "--drafter", p->drafter);
    step_option(&s, p->cut_is_gguf ? "--format" : "--for",
                p->cut_is_gguf ? "gguf" : engines[p->engine]);
    if (p->cut_is_gguf && !p->drafter_is_gguf) step_option(&s, "--target", p->target);
    step_word(&s, "-f");
    step_option(&s, "-o", p->cut);
    return step_run(&p->steps, &s);
}

static int run_check(prepare *p) {
    step s = {.name = "check", .what = "what the engine would load wrongly", .shows = true};
    step_word(&s, "specrt-bundle");
    step_word(&s, "check");
    step_word(&s, p->cut);
    step_option(&s, "--target", p->target);
    step_option(&s, "--for", engines[p->engine]);
    p->checked = true;
    return step_run(&p->steps, &s);
}

static int run_steps(prepare *p) {
    bool checks = cuts(p) && !p->cut_is_gguf; /* llama.cpp says itself what it refuses */
    p->steps.n_steps = (p->endpoint != NULL) + 1 + wants(p, "graph") + wants(p, "sketch") +
                       wants(p, "clusters") + cuts(p) + checks;
    int code = p->endpoint ? run_ask(p) : CLI_OK;
    if (code == CLI_OK) code = run_ranks(p);
    if (code == CLI_OK && wants(p, "graph")) code = run_graph(p);
    if (code == CLI_OK && wants(p, "sketch"))
        code = run_head_section(p, "sketch", "copy the head in one and two bits", "sketch-build");
    if (code == CLI_OK && wants(p, "clusters"))
        code = run_head_section(p, "clusters", "cluster the rows of the head", "cluster-build");
    if (code == CLI_OK && cuts(p)) code = run_cut(p);
    if (code == CLI_OK && checks) code = run_check(p);
    return code;
}

/* ---- what came out ---- */

/* A policy that the bundle has the sections for, for engines that run our runtime. */
static const char *policy_of(const prepare *p) {
    if (wants(p, "graph") && wants(p, "sketch")) return "hybrid";
    return wants(p, "graph") ? "static:512+window+successor:256" : "microspec";
}

/* What `vllm serve --speculative-config` takes, owned. */
static char *vllm_config(const prepare *p, const char *drafter) {
    json_object *o = json_object_new_object();
    const char *method = p->kind == CHECKPOINT_EAGLE3  ? "eagle3"
                         : p->kind == CHECKPOINT_EAGLE ? "eagle"
                                                       : "draft_model";
    sl_json_put(o, "method", sl_json_text(method));
    sl_json_put(o, "model", sl_json_text(drafter));
    sl_json_put(o, "num_speculative_tokens", sl_json_whole(3));
    return sl_json_to_text(o);
}

static void name_sglang(const prepare *p, step *s, const char *map) {
    bool is_mtp = p->kind == CHECKPOINT_MTP;
    step_word(s, "python");
    step_option(s, "-m", "sglang.launch_server");
    step_option(s, "--model-path", p->target);
    step_option(s, "--speculative-algorithm",
                is_mtp                         ? "NEXTN"
                : p->kind == CHECKPOINT_EAGLE3 ? "EAGLE3"
                                               : "EAGLE");
    step_option(s, "--speculative-draft-model-path", is_mtp ? p->drafter : p->cut);
    if (p->kind != CHECKPOINT_EAGLE3) step_option(s, "--speculative-token-map", map);
}

static void name_llama(const prepare *p, step *s) {
    step_word(s, cuts(p) ? "llama-server" : "specrt-llama");
    step_option(s, "-m", p->target);
    step_option(s, "-md", cuts(p) ? p->cut : p->drafter);
    if (cuts(p)) {
        step_option(s, "--spec-type", "draft-eagle3");
        return;
    }
    step_option(s, "--bundle", p->bundle);
    step_option(s, "--policy", policy_of(p));
}

/* The command of the engine, owned. */
static char *name_command(const prepare *p) {
    const char *drafter = cuts(p) ? p->cut : p->drafter;
    char file[TOOL_PATH_BYTES + 32], *config = vllm_config(p, drafter);
    step s = {.name = "start"};
    if (p->engine == VLLM) {
        snprintf(file, sizeof file, "SPECRT_TOKEN_MAP=%s", p->bundle);
        if (!cuts(p)) step_option(&s, "env", file);
        step_word(&s, "vllm");
        step_option(&s, "serve", p->target);
        step_option(&s, "--speculative-config", config);
    } else if (p->engine == SGLANG) {
        snprintf(file, sizeof file, "%s%s", p->cut,
                 p->kind == CHECKPOINT_MTP ? "" : "/token_map.pt");
        name_sglang(p, &s, file);
    } else {
        name_llama(p, &s);
    }
    char *line = config ? step_line(&s) : NULL;
    free(config);
    return line;
}

static specrt_status write_start(const prepare *p, specrt_error *err) {
    char path[TOOL_PATH_BYTES], *text;
    snprintf(path, sizeof path, "%s/start.sh", p->common.output);
    int n = asprintf(&text, "#!/bin/sh\n%s\n", p->start);
    if (n < 0) return sl_error_no_memory(err, path);
    specrt_status status = sl_out_bytes(path, true, text, (size_t)n, err);
    free(text);
    return status;
}

/* A number of what a step printed; null where there is none. */
static json_object *figure(const prepare *p, const char *step_name, const char *key) {
    json_object *all = step_result(&p->steps, step_name), *value = NULL;
    json_object_object_get_ex(all, key, &value);
    json_object_get(value);
    json_object_put(all);
    return value;
}

static int report(const prepare *p, int code) {
    json_object *size = figure(p, "ranks", "n_selected"),
                *coverage = figure(p, "ranks", "coverage_holdout");
    sl_cli_info("%s: %s tokens", p->bundle, sl_text_count((uint64_t)json_object_get_int64(size)));
    if (coverage)
        sl_cli_info("they cover %.2f%% of held-out text", 100 * json_object_get_double(coverage));
    sl_cli_info("%s: the coverage of every size", p->report);
    if (cuts(p))
        sl_cli_info("%s: the %s", p->cut,
                    p->kind == CHECKPOINT_MTP ? "list of its tokens" : "drafter, cut");
    sl_cli_info("%s/start.sh: the command that starts the engine", p->common.output);
    if (!p->common.json && !p->common.quiet) sl_text_lines(p->start, stdout);
    specrt_error err;
    json_object *o = p->common.json ? json_object_new_object() : NULL;
    if (o) {
        sl_json_put(o, "output", sl_json_text(p->common.output));
        sl_json_put(o, "bundle", sl_json_text(p->bundle));
        sl_json_put(o, "drafter", cuts(p) ? sl_json_text(p->cut) : NULL);
        sl_json_put(o, "n_selected", json_object_get(size));
        sl_json_put(o, "coverage_holdout", json_object_get(coverage));
        sl_json_put(o, "n_steps", sl_json_whole((uint64_t)p->steps.n_steps));
        sl_json_put(o, "command", sl_json_text(p->start));
        if (sl_cli_print_json(sl_json_to_text(o), &err) != SPECRT_STATUS_OK)
            code = sl_cli_fail(&err);
    }
    json_object_put(size);
    json_object_put(coverage);
    return code;
}

/* ---- the verb ---- */

static int check_options(prepare *p) {
    if (!p->target || !p->drafter || (p->text.n == 0 && !p->endpoint) || !p->engine_name ||
        !p->common.output)
        return sl_cli_usage("expected --target, --drafter, --text or --endpoint, --for and -o");
    if ((p->endpoint != NULL) != (p->prompts.n > 0))
        return sl_cli_usage("expected --endpoint and --prompts together");
    while (p->engine < N_ENGINES && strcmp(engines[p->engine], p->engine_name) != 0) p->engine++;
    if (p->engine == N_ENGINES)
        return sl_cli_usage("--for: expected vllm, sglang or llama.cpp, found %s", p->engine_name);
    if (p->text.n > STEP_WORDS / 2 || p->prompts.n > STEP_WORDS / 2)
        return sl_cli_usage("--text, --prompts: expected at most %d paths", STEP_WORDS / 2);
    if (p->size && p->mass) return sl_cli_usage("expected --size or --mass, found both");
    for (const char *s = p->with; *s; s += strcspn(s, ","), s += *s == ',')
        if (!is_section(s))
            return sl_cli_usage("--with: expected graph, sketch, clusters or none, found %.*s",
                                (int)strcspn(s, ","), s);
    return -1;
}

static int check_files(prepare *p) {
    specrt_error err;
    if (look_at_target(p, &err) != SPECRT_STATUS_OK || look_at_drafter(p, &err) != SPECRT_STATUS_OK)
        return sl_cli_fail(&err);
    if (p->drafter_is_gguf && p->engine != LLAMA_CPP)
        return sl_cli_usage(
            "--drafter %s: expected a folder of safetensors, which %s loads; found a GGUF",
            p->drafter, p->engine_name);
    if (p->engine != SGLANG && p->kind == CHECKPOINT_MTP)
        return sl_cli_usage("--drafter %s: expected --for sglang for MTP layers in safetensors; "
                            "llama.cpp takes a GGUF of them, and vLLM scores the target's whole "
                            "head",
                            p->drafter);
    if (p->engine == SGLANG && p->kind == CHECKPOINT_MODEL)
        return sl_cli_usage(
            "--drafter %s: expected an EAGLE drafter; SGLang scores a draft model by its whole "
            "vocabulary",
            p->drafter);
    return -1;
}

static int run_all(prepare *p) {
    char records[TOOL_PATH_BYTES];
    p->steps = (steps){.folder = p->common.output, .dry = p->dry_run, .verbose = p->common.verbose};
    specrt_sha256_init(&p->steps.chain);
    snprintf(records, sizeof records, "%s/steps", p->common.output);
    if (!p->dry_run && (make_folder(p->common.output) != CLI_OK || make_folder(records) != CLI_OK))
        return CLI_IO;
    int code = run_steps(p);
    if (p->dry_run && code == CLI_OK && p->steps.seconds > 0)
        sl_cli_info("%s on an idle machine%s", estimate_text(p->steps.seconds),
                    p->endpoint ? ", and the time of the endpoint" : "");
    if (p->dry_run || (code != CLI_OK && !(code == CLI_INVALID && p->checked))) return code;
    specrt_error err;
    p->start = name_command(p);
    specrt_status status =
        p->start ? write_start(p, &err) : sl_error_no_memory(&err, p->common.output);
    if (status != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    return report(p, code);
}

int prepare_main(int argc, char **argv) {
    prepare p = {.with = "graph"};
    const cli_option options[] = {
        sl_cli_heading("What to prepare"),
        sl_cli_string("target", "DIR|GGUF", &p.target,
                      "the target model; of a folder config.json and the tokenizer are read"),
        sl_cli_string("drafter", "DIR|GGUF", &p.drafter,
                      "its drafter: an EAGLE-1/2/3 head, MTP layers, a draft model, or a GGUF for "
                      "llama.cpp"),
        sl_cli_strings("text", "PATH...", &p.text,
                       "what the target writes: files and folders that calibrate reads"),
        sl_cli_string("endpoint", "URL", &p.endpoint,
                      "where the target is served: its answers to --prompts are text, too"),
        sl_cli_strings("prompts", "FILE...", &p.prompts, "questions of your users, for --endpoint"),
        sl_cli_string("model", "NAME", &p.model,
                      "the target's name there (default: the first listed)"),
        sl_cli_string("for", "ENGINE", &p.engine_name, "vllm, sglang or llama.cpp"),
        sl_cli_heading("How"),
        sl_cli_string("size", "N", &p.size,
                      "tokens of the draft vocabulary (default 32768; a quarter of a vocabulary "
                      "below 65536)"),
        sl_cli_string("mass", "P", &p.mass, "as few tokens as cover share P of held-out text"),
        sl_cli_flag("by-language", &p.by_language,
                    "rank and report the text by the scripts that it is written in"),
        sl_cli_flag("balance", &p.balance,
                    "the same share for each language of --by-language, else for each --text"),
        sl_cli_string("with", "LIST", &p.with,
                      "other sections of the bundle: graph (default), sketch, clusters; or none"),
        sl_cli_flag("dry-run", &p.dry_run,
                    "print the commands, which are done, and the time of the others; run none"),
        {0}};
    const cli_tool tool = {
        "specrt",
        "specrt prepare --target llama3/ --drafter eagle3/ --text chat.jsonl --for vllm -o out",
        "Counts the text with the target's tokenizer, cuts the drafter's head to the tokens that\n"
        "occur most, checks the result and prints the command that starts the engine. The folder\n"
        "of -o keeps every step: a second run continues after the last finished one.",
        "specrt prepare --target T --drafter D (--text PATH... | --endpoint URL --prompts FILE...) "
        "--for ENGINE -o FOLDER [options]",
        options};
    int code = sl_cli_parse(&tool, argc, argv, &p.common, NULL);
    if (code >= 0) return code;
    code = check_options(&p);
    if (code < 0) code = check_files(&p);
    if (code < 0) code = name_outputs(&p);
    if (code < 0) code = run_all(&p);
    sl_cli_list_free(&p.text);
    sl_cli_list_free(&p.prompts);
    free(p.start);
    return code;
}
