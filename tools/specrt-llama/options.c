/* options.c : the command line of specrt-llama. */
#include "tool.h"

static int check(options *o) {
    specrt_error err;
    if (!o->target) return sl_cli_usage("expected -m FILE, the target");
    if (o->costs) {
        o->num_steps = 4; /* levels of 1, 1, 4 and 10 rows */
        o->topk = 10;
        o->num_draft_tokens = 60;
        return -1;
    }
    if (o->texts.n + o->files.n + o->prompts.n == 0)
        return sl_cli_usage("expected a prompt: -p TEXT, -f FILE or --prompts FILE");
    if (o->policies.n > 1 && !o->bench)
        return sl_cli_usage("--policy: expected one without --bench");
    if (o->system && !o->conversation) return sl_cli_usage("-sys: expected -cnv with it");
    if (o->bench && o->temperature > 0)
        return sl_cli_usage("--bench compares greedy decoding; expected no --temp");
    for (int i = 0; i < o->policies.n; i++)
        if (specrt_policy_check(auto_policy(o->policies.items[i], NULL), &err) != SPECRT_STATUS_OK)
            return sl_cli_fail(&err);
    if (o->bench && o->p_min > 0)
        return sl_cli_usage("--bench compares drafts of one length; expected no --draft-p-min");
    if (o->bench && (o->n_predict == 0 || o->n_predict == 1))
        return sl_cli_usage(
            "--bench: expected -n 2 or more: an answer's first token comes with its "
            "prompt and is not timed");
    if (o->bench && o->record) return sl_cli_usage("--record: expected no --bench with it");
    if (o->num_draft_tokens == 0) o->num_draft_tokens = o->topk == 1 ? o->num_steps + 1 : 32;
    return -1;
}

/* clang-format off */
#define OPTIONS_MODELS(o) \
    sl_cli_heading("Models"), \
    sl_cli_letter('m', sl_cli_string("model", "FILE", &(o).target, "the target, a GGUF")), \
    sl_cli_also("-md", sl_cli_string("model-draft", "FILE", &(o).draft, \
     "the drafter, a GGUF of the same vocabulary, an EAGLE-3 head or MTP layers; none: the target's own " \
     "MTP layers")), \
    sl_cli_letter('c', sl_cli_int("ctx-size", "N", &(o).n_context, 0, 1e9, \
     "positions; 0 (default): the target's, at most 4096")), \
    sl_cli_letter('t', sl_cli_int("threads", "N", &(o).n_threads, 0, 512, \
     "of llama.cpp; 0 (default): its own choice")), \
    sl_cli_also("-ngl --n-gpu-layers", sl_cli_int("gpu-layers", "N", &(o).n_gpu_layers, -1, 1e6, \
     "of the target on a GPU")), \
    sl_cli_also("-ngld --n-gpu-layers-draft", \
     sl_cli_int("gpu-layers-draft", "N", &(o).n_gpu_layers_draft, -1, 1e6, \
      "of the drafter: all of them or 0"))
#define OPTIONS_DRAFTS(o) \
    sl_cli_heading("Drafts"), \
    sl_cli_string("bundle", "FILE", &(o).bundle, "what policies need beyond the drafter"), \
    sl_cli_strings("policy", "SPEC", &(o).policies, \
     "auto (the default), auto+SPEC: as many tokens as are faster than plain decoding, or none; full, " \
     "microspec, static:N+window...: always --num-steps; with --bench any number of them"), \
    sl_cli_also("--draft-max --draft", sl_cli_int("num-steps", "N", &(o).num_steps, 1, \
     SPECRT_TREE_MAX_STEPS, "passes of the drafter in a cycle (4)")), \
    sl_cli_also("--spec-draft-p-min", sl_cli_real("draft-p-min", "P", &(o).p_min, 0, 1, \
     "no pass follows where the best path is less probable; 0, the default: all do")), \
    sl_cli_int("topk", "N", &(o).topk, 1, SPECRT_TREE_MAX_TOPK, \
     "branches of a draft tree; 1, the default, is a chain"), \
    sl_cli_int("num-draft-tokens", "N", &(o).num_draft_tokens, 0, SPECRT_TREE_MAX_NODES, \
     "nodes to verify, root included (a whole chain; of a tree 32)")
#define OPTIONS_PROMPTS(o) \
    sl_cli_heading("Prompts"), \
    sl_cli_letter('p', sl_cli_strings("prompt", "TEXT", &(o).texts, "a prompt; repeats")), \
    sl_cli_letter('f', sl_cli_strings("file", "FILE", &(o).files, "a prompt from a file; repeats")), \
    sl_cli_strings("prompts", "FILE", &(o).prompts, \
     "JSON Lines (.gz, .zst) as specrt-eval takes them: the first turn of each"), \
    sl_cli_int("limit", "N", &(o).limit, 1, 1e9, \
     "so many prompts of each such file, spread over it"), \
    sl_cli_also("-cnv", sl_cli_flag("conversation", &(o).conversation, \
     "prompts are a user's messages, in the target's chat template")), \
    sl_cli_also("-sys", sl_cli_string("system-prompt", "TEXT", &(o).system, "with -cnv")), \
    sl_cli_also("--n-predict", sl_cli_letter('n', sl_cli_int("predict", "N", &(o).n_predict, -1, 1e9, \
     "tokens of an answer (128); -1: until it ends")))
#define OPTIONS_SAMPLING(o) \
    sl_cli_heading("Sampling"), \
    sl_cli_also("--temperature", sl_cli_real("temp", "T", &(o).temperature, 0, 100, \
     "0, the default: greedy")), \
    sl_cli_int("top-k", "N", &(o).top_k, 0, 1e9, "sample from the N best; 0: off"), \
    sl_cli_real("top-p", "P", &(o).top_p, 0, 1, "from the best of mass P; 0: off"), \
    sl_cli_real("min-p", "P", &(o).min_p, 0, 0.999, "relative to the best; 0: off"), \
    sl_cli_letter('s', sl_cli_int("seed", "N", &(o).common.seed, 0, 9e15, "of sampling (default 1)"))
#define OPTIONS_TRACE(o) \
    sl_cli_heading("Trace"), \
    sl_cli_string("record", "FILE", &(o).record, \
     "every cycle to a trace, for specrt-eval replay and plan; best with --policy full"), \
    sl_cli_string("costs", "FILE", &(o).costs, \
     "no answers: what head, drafter and target cost here, for specrt-eval plan --costs"), \
    sl_cli_string("auto-costs", "FILE", &(o).auto_costs, "what auto chooses by instead of the clock, of " \
     "--costs or of specrt-eval plan --costs-out")
#define OPTIONS_BENCH(o) \
    sl_cli_heading("Comparison"), \
    sl_cli_flag("bench", &(o).bench, \
     "plain decoding, drafts by llama.cpp's whole head, `full` and the policies in turns: " \
     "speed, and whether tokens are plain decoding's"), \
    sl_cli_int("rounds", "N", &(o).rounds, 1, 1000, "of --bench, the best counts (5)")
/* clang-format on */

int options_parse(int argc, char **argv, options *o) {
    *o = (options){.n_predict = 128,
                   .num_steps = 4,
                   .topk = 1,
                   .rounds = 5,
                   .n_gpu_layers = -1,
                   .n_gpu_layers_draft = -1};
    const cli_option table[] = {OPTIONS_MODELS(*o),
                                OPTIONS_DRAFTS(*o),
                                OPTIONS_PROMPTS(*o),
                                OPTIONS_SAMPLING(*o),
                                OPTIONS_TRACE(*o),
                                OPTIONS_BENCH(*o),
                                {0}};
    const cli_tool tool = {
        "specrt-llama", "specrt-llama -m target.gguf -md draft.gguf -p \"The patient has\" -n 64",
        "Answers prompts with llama.cpp, drafting with few rows of the drafter's "
        "head. The output is the target's own.",
        "specrt-llama -m FILE [-md FILE] -p TEXT [options]", table};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code < 0) code = check(o);
    if (code >= 0) options_free(o);
    return code;
}

void options_free(options *o) {
    sl_cli_list_free(&o->policies);
    sl_cli_list_free(&o->texts);
    sl_cli_list_free(&o->files);
    sl_cli_list_free(&o->prompts);
}
