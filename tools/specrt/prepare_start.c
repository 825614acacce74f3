/* prepare_start.c : the command that starts an engine with what was prepared. */
#include "specrt_adapt.h"
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "prepare.h"

/* A policy that the bundle has the sections for, for engines that run our runtime. */
static const char *policy_of(const prepare *p) {
    return specrt_policy_untried(prepare_wants(p, "graph"), prepare_wants(p, "sketch"));
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

/* Absolute paths, owned: the command works from any folder. */
typedef struct places {
    char *target, *drafter, *bundle, *cut;
} places;

static void add_vllm(const prepare *p, const places *at, step *s, char *map, const char *config) {
    bool reads_bundle = p->way == WAY_BUNDLE; /* by our plug-in */
    snprintf(map, TOOL_PATH_BYTES, "SPECRT_TOKEN_MAP=%s", at->bundle);
    if (reads_bundle) step_option(s, "env", map);
    step_word(s, "vllm");
    step_option(s, "serve", at->target);
    step_option(s, "--speculative-config", config);
}

static void add_sglang(const prepare *p, const places *at, step *s, char *map) {
    bool is_mtp = p->kind == CHECKPOINT_MTP, is_cut = p->way == WAY_CUT;
    snprintf(map, TOOL_PATH_BYTES, "%s%s", at->cut, is_mtp ? "" : "/token_map.pt");
    step_word(s, "python");
    step_option(s, "-m", "sglang.launch_server");
    step_option(s, "--model-path", at->target);
    step_option(s, "--speculative-algorithm", is_mtp ? "NEXTN" : is_cut ? "EAGLE3" : "EAGLE");
    step_option(s, "--speculative-draft-model-path", is_mtp ? at->drafter : at->cut);
    if (!is_cut) step_option(s, "--speculative-token-map", map);
}

static void add_llama(const prepare *p, const places *at, step *s) {
    bool is_cut = p->way == WAY_CUT;
    step_word(s, is_cut ? "llama-server" : "specrt-llama");
    step_option(s, "-m", at->target);
    step_option(s, "-md", is_cut ? at->cut : at->drafter);
    if (is_cut) {
        step_option(s, "--spec-type", "draft-eagle3");
        return;
    }
    step_option(s, "--bundle", at->bundle);
    step_option(s, "--policy", policy_of(p));
}

char *prepare_start(const prepare *p) {
    const places at = {realpath(p->target, NULL), realpath(p->drafter, NULL),
                       realpath(p->bundle, NULL),
                       p->way == WAY_BUNDLE ? strdup("") : realpath(p->cut, NULL)};
    char map[TOOL_PATH_BYTES], *line = NULL;
    char *config = at.cut ? vllm_config(p, p->way == WAY_CUT ? at.cut : at.drafter) : NULL;
    step s = {.name = "start"};
    if (config && at.target && at.drafter && at.bundle) {
        if (p->engine == FOR_VLLM) add_vllm(p, &at, &s, map, config);
        if (p->engine == FOR_SGLANG) add_sglang(p, &at, &s, map);
        if (p->engine == FOR_LLAMA_CPP) add_llama(p, &at, &s);
        line = step_line(&s);
    }
    free(config);
    free(at.target);
    free(at.drafter);
    free(at.bundle);
    free(at.cut);
    return line;
}
