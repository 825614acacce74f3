/* prepare_start.c : the command that starts an engine with what was prepared. */
#include "specrt_adapt.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "prepare.h"

/* A policy that the bundle has the sections for, for engines that run our runtime: the fastest, if any was
 * measured. */
static const char *policy_of(const prepare *p, json_object *comparison) {
    const char *best = sl_json_get_text(comparison, "recommended");
    return best ? best : specrt_policy_untried(prepare_has(p, "graph"), prepare_has(p, "sketch"));
}

int64_t prepare_n_drafts(const prepare *p) {
    return p->id.block.n_drafts > 0 ? p->id.block.n_drafts : 3;
}

/* What `vllm serve --speculative-config` takes, owned. */
static char *vllm_config(const prepare *p, const char *drafter) {
    json_object *o = json_object_new_object();
    static const char *const methods[] = {"draft_model", "eagle", "eagle3", "mtp", "dflash"};
    const char *method = p->id.block.markov ? "dspark" : p->id.is_gemma4 ? "mtp" : methods[p->kind];
    sl_json_put(o, "method", sl_json_text(method));
    if (!p->id.tail.is_whole || p->kind != CHECKPOINT_MTP) /* else the target's own layers */
        sl_json_put(o, "model", sl_json_text(drafter));
    sl_json_put(o, "num_speculative_tokens", sl_json_whole((uint64_t)prepare_n_drafts(p)));
    return sl_json_to_text(o);
}

/* Absolute paths, owned: the command works from any folder. */
typedef struct places {
    char *target, *drafter, *bundle, *cut;
} places;

static void add_vllm(const prepare *p, const places *at, step *s, char *map, const char *config) {
    bool reads_bundle = p->way == WAY_BUNDLE; /* by our plug-in */
    snprintf(map, TOOL_PATH_BYTES, "SPECRT_TOKEN_MAP=%s", at->bundle);
    if (reads_bundle) step_words(s, "env", map, NULL);
    step_words(s, "vllm", "serve", at->target, "--speculative-config", config, NULL);
}

static void add_sglang(const prepare *p, const places *at, step *s, char *map) {
    bool is_mtp = p->kind == CHECKPOINT_MTP, is_cut = p->way == WAY_CUT;
    snprintf(map, TOOL_PATH_BYTES, "%s%s", at->cut, is_mtp ? "" : "/token_map.pt");
    step_words(s, "python", "-m", "sglang.launch_server", "--model-path", at->target,
               "--speculative-algorithm",
               is_mtp   ? "NEXTN"
               : is_cut ? "EAGLE3"
                        : "EAGLE",
               "--speculative-draft-model-path", is_mtp ? at->drafter : at->cut, NULL);
    if (!is_cut) step_option(s, "--speculative-token-map", map);
}

/* What was not measured may be slower than plain decoding, which `auto` finds out. */
static void add_llama(const prepare *p, const places *at, step *s, char *policy, char number[24]) {
    bool is_cut = p->way == WAY_CUT, is_block = p->kind == CHECKPOINT_BLOCK;
    snprintf(policy, TOOL_PATH_BYTES, "auto+%s", policy_of(p, NULL));
    step_words(s, is_cut ? "llama-server" : "specrt-llama", "-m", at->target, "-md",
               is_cut ? at->cut : at->drafter, NULL);
    if (is_cut)
        step_option(s, "--spec-type",
                    p->id.block.markov ? "draft-dspark"
                    : is_block         ? "draft-dflash"
                                       : "draft-eagle3");
    else
        step_words(s, "--bundle", at->bundle, "--policy", policy, NULL);
    snprintf(number, 24, "%" PRId64, prepare_n_drafts(p));
    if (is_block) step_option(s, "--spec-draft-n-max", number);
}

/* Where nothing drafts, a list for an engine that does. */
static void add_own(const prepare *p, const places *at, step *s, char *tool, char *map,
                    const char *policy) {
    bool drafts = p->runs && !p->drafts_itself;
    if (!tool_path(drafts ? "specrt-eval" : "specrt-bundle", tool)) return;
    snprintf(map, TOOL_PATH_BYTES, "%.*s.pt", (int)(strlen(at->bundle) - strlen(".specb")),
             at->bundle);
    step_word(s, tool);
    if (drafts)
        step_words(s, "decode", "--target", at->target, "--prompt", "Why is the sky blue?", NULL);
    else
        step_words(s, "export", at->bundle, "--format", "sglang-pt", "-f", "-o", map, NULL);
    if (drafts && strcmp(policy, "plain") != 0)
        step_words(s, "--draft", at->drafter, "--bundle", at->bundle, "--policy", policy, NULL);
}

char *prepare_start(const prepare *p) {
    const places at = {realpath(p->target, NULL), realpath(p->drafter, NULL),
                       realpath(p->bundle, NULL),
                       p->way == WAY_BUNDLE ? strdup("") : realpath(p->cut, NULL)};
    char map[TOOL_PATH_BYTES], tool[TOOL_PATH_BYTES], number[24], *line = NULL;
    json_object *comparison = p->compared ? json_object_from_file(p->comparison) : NULL;
    char *config = at.cut ? vllm_config(p, p->way == WAY_CUT ? at.cut : at.drafter) : NULL;
    step s = {.name = "start"};
    if (config && at.target && at.drafter && at.bundle) {
        if (p->engine == FOR_VLLM) add_vllm(p, &at, &s, map, config);
        if (p->engine == FOR_SGLANG) add_sglang(p, &at, &s, map);
        if (p->engine == FOR_LLAMA_CPP) add_llama(p, &at, &s, map, number);
        if (p->engine == FOR_SPECRT) add_own(p, &at, &s, tool, map, policy_of(p, comparison));
        line = step_line(&s);
    }
    json_object_put(comparison);
    free(config);
    free(at.target);
    free(at.drafter);
    free(at.bundle);
    free(at.cut);
    return line;
}
